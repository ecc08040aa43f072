/* base.h - the private half of the base floor: what every other floor may use.
 * The public half is include/sqrl/{error,context,buffer,option}.h. */
#ifndef SQRL_BASE_H
#define SQRL_BASE_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sqrl/buffer.h"
#include "sqrl/context.h"
#include "sqrl/error.h"
#include "sqrl/option.h"

/* --- small helpers (util.c and inline) --- */
#define SQRL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SQRL_MAX(a, b) ((a) > (b) ? (a) : (b))
#define SQRL_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define SQRL_LIKELY(x) __builtin_expect(!!(x), 1)
#define SQRL_UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline bool sqrl_add_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_add_overflow(a, b, out);
}
static inline bool sqrl_mul_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out);
}
static inline uint32_t sqrl_load_le32(const void *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v; /* little-endian machines only: checked by the build */
}
static inline uint64_t sqrl_load_le64(const void *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
static inline void sqrl_store_le32(void *p, uint32_t v) {
    memcpy(p, &v, 4);
}
static inline void sqrl_store_le64(void *p, uint64_t v) {
    memcpy(p, &v, 8);
}
static inline uint16_t sqrl_load_be16(const void *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
static inline uint32_t sqrl_load_be32(const void *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static inline uint64_t sqrl_load_be64(const void *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

/* malloc and calloc with the library's error; `what` names the thing in the message.
 * Tests make the n-th of these (and of slab growth) fail: sqrl_fail_allocation(n), 0
 * switches it off. */
void *sqrl_malloc(size_t size, const char *what, struct sqrl_error *err);
void *sqrl_calloc(size_t count, size_t size, const char *what, struct sqrl_error *err);
void *sqrl_realloc(void *old, size_t size, const char *what, struct sqrl_error *err);
char *sqrl_strdup(const char *text, struct sqrl_error *err);
char *sqrl_format(struct sqrl_error *err, const char *format, ...) SQRL_PRINTF(2, 3);
void sqrl_fail_allocation(uint64_t countdown);

/* Checked settings with their texts, in one allocation: free((void *)to->items). */
SQRL_CHECK int sqrl_settings_copy(const struct sqrl_settings *from,
                                  struct sqrl_settings *to, struct sqrl_error *err);

/* Edit distance capped at 3, for "did you mean". Returns the nearest of `names` or NULL.
 */
const char *sqrl_nearest(const char *name, const char *const *names, size_t count);

/* --- clock: monotonic nanoseconds --- */
uint64_t sqrl_now_ns(void);
int64_t sqrl_wall_ns(void); /* since 1970 */

/* --- random numbers: every draw is a function of its seed --- */
/* splitmix64's finaliser (Steele, Lea, Flood 2014), used as a mixing function. */
static inline uint64_t sqrl_mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
/* xoshiro256** (Blackman, Vigna 2018), seeded by splitmix64. */
struct sqrl_rng {
    uint64_t s[4];
};
void sqrl_rng_init(struct sqrl_rng *rng, uint64_t seed);
uint64_t sqrl_rng_next(struct sqrl_rng *rng);
/* Uniform in [0, n), without bias (Lemire 2019); n > 0. */
uint64_t sqrl_rng_below(struct sqrl_rng *rng, uint64_t n);
/* Unpredictable bytes from the system, for names of shards and commits. */
SQRL_CHECK int sqrl_random_bytes(void *out, size_t size, struct sqrl_error *err);

/* --- fork generation --- */
/* Raised in the child of each fork; 0 in a process that was never forked off. */
uint32_t sqrl_fork_generation(void);

/* A mutex that a child may take even if another thread held it at the fork: the first use
 * in a new generation makes it anew. The data it guards must bear being cut off at any
 * point, or be re-made by the owner when sqrl_lock_take returns true: the first take
 * since a fork. Nobody may call fork() while holding one. */
struct sqrl_lock {
    pthread_mutex_t mutex;
    uint32_t generation;
    uint32_t fresh;
};
void sqrl_lock_init(struct sqrl_lock *lock);
bool sqrl_lock_take(struct sqrl_lock *lock);
void sqrl_lock_drop(struct sqrl_lock *lock);
void sqrl_lock_reset(struct sqrl_lock *lock);

/* --- thread pools --- */
/* Blocks those signals that belong to the program's own threads: around the start of one
 * of the library's. `before` goes to pthread_sigmask(SIG_SETMASK, before, NULL). */
void sqrl_block_signals(sigset_t *before);
/* A task is embedded in its owner; it must stay alive until run() has been entered. */
struct sqrl_task {
    struct sqrl_task *next;
    void (*run)(struct sqrl_task *task);
};
struct sqrl_pool;
/* The context's pool for computation (and local reads), started on first use and anew
 * after a fork: ask again in each generation, a parent's pool has no threads in the
 * child. With fewer threads than wished it goes on; NULL with an error when none can be
 * started. Threads hold no reference to the context and take no signals. Tasks that are
 * still queued when the context goes are run. */
struct sqrl_pool *sqrl_context_pool(struct sqrl_context *context, struct sqrl_error *err);
/* The same for calls that wait for the network: threads as configured (default 16). */
struct sqrl_pool *sqrl_context_io_pool(struct sqrl_context *context,
                                       struct sqrl_error *err);
/* Queues a task, first in first out. Never fails, never blocks. */
void sqrl_pool_submit(struct sqrl_pool *pool, struct sqrl_task *task);
unsigned sqrl_pool_threads(const struct sqrl_pool *pool);
/* Threads for network file systems, as configured (default 16). */
unsigned sqrl_context_io_threads(const struct sqrl_context *context);
/* The number of threads to use: affinity mask and cgroup quota (v1 and v2), divided by
 * siblings, at least 1. */
unsigned sqrl_default_threads(unsigned siblings);

/* --- slabs: recycled large memory --- */
/* sqrl_buffer_new takes from here; direct use is for memory without a reference count.
 * Sizes are rounded to classes (powers of two from 64 KiB, their 1.5-fold and 8/7). Slabs
 * of 2 MiB and more are aligned to 2 MiB and asked to be huge pages. Freed slabs are kept
 * for reuse up to the idle limit (default 64 MiB a context), beyond it unmapped.
 * `*capacity` is what may be used and what sqrl_slab_give must be told. The caller keeps
 * the context alive. Slabs that were taken before a fork stay valid in the child. */
void *sqrl_slab_take(struct sqrl_context *context, size_t size, size_t *capacity,
                     struct sqrl_error *err);
void sqrl_slab_give(struct sqrl_context *context, void *slab, size_t capacity);
/* Raises the idle limit to at least `bytes`: for who gives much back at once only to take
 * it again, as shuffled windows do. */
void sqrl_slab_keep(struct sqrl_context *context, size_t bytes);
/* The same until sqrl_slab_drop with the same number; those of several add up. */
void sqrl_slab_hold(struct sqrl_context *context, size_t bytes);
void sqrl_slab_drop(struct sqrl_context *context, size_t bytes);

/* --- memory budget --- */
/* Counts bytes in flight; it does not block. The executor asks in sequence order, and the
 * head-of-line task always proceeds (force), so that it can't deadlock. */
bool sqrl_budget_take(struct sqrl_context *context, uint64_t bytes, bool force);
void sqrl_budget_give(struct sqrl_context *context, uint64_t bytes);
uint64_t sqrl_budget_limit(const struct sqrl_context *context);
/* Raises the limit until sqrl_budget_narrow with the same number: for who was asked for
 * more than there is, as shuffled windows are. The sum of all must stay below 2^63. */
void sqrl_budget_widen(struct sqrl_context *context, uint64_t bytes);
void sqrl_budget_narrow(struct sqrl_context *context, uint64_t bytes);
uint64_t sqrl_budget_used(const struct sqrl_context *context);

/* --- log --- */
void sqrl_log(struct sqrl_context *context, enum sqrl_log_level level, const char *format,
              ...) SQRL_PRINTF(3, 4);

/* --- metrics --- */
/* Counters of one context, relaxed atomics; the enum and its names are one table. */
enum sqrl_counter {
    SQRL_COUNT_BYTES_READ,
    SQRL_COUNT_READS,
    SQRL_COUNT_BYTES_DECODED, /* after decompression */
    SQRL_COUNT_BLOCKS,
    SQRL_COUNT_SAMPLES,
    SQRL_COUNT_BATCHES,
    SQRL_COUNT_WAIT_CONSUMER_NS, /* the consumer waited for data */
    SQRL_COUNT_LOAD_NS,
    SQRL_COUNT_FILL_NS,
    SQRL_COUNT_RETRIES,
    SQRL_COUNT_HTTP_REQUESTS,
    SQRL_COUNT_HTTP_BYTES, /* of bodies, received */
    SQRL_COUNT_HTTP_RETRIES,
    SQRL_COUNT_HTTP_HEDGES,
    SQRL_COUNT_HTTP_FIRST_BYTE_NS, /* from a request to its answer's headers, summed */
    SQRL_COUNT_HTTP_CONNECTIONS,   /* opened */
    SQRL_COUNT_CACHE_HITS,         /* reads that the cache answered */
    SQRL_COUNT_CACHE_MISSES,       /* stretches that were fetched for it */
    SQRL_COUNT_CACHE_BYTES,        /* read from it */
    SQRL_COUNT_CACHE_BYTES_FETCHED,
    SQRL_COUNT_CACHE_EVICTIONS, /* files */
    SQRL_COUNT_CACHE_BYTES_EVICTED,
    SQRL_COUNT_CACHE_DAMAGED, /* pieces that were dropped and fetched again */
    SQRL_COUNTERS
};
void sqrl_count(struct sqrl_context *context, enum sqrl_counter counter, uint64_t add);

/* --- CPU dispatch --- */
/* True when AVX2 (with BMI1/2, LZCNT) may be used: the machine has it and SQRL_CPU does
 * not say scalar. Kernels keep a function pointer that is set once from it (no
 * target_clones: its resolvers crash under ThreadSanitizer). */
bool sqrl_cpu_avx2(void);

/* --- registry slots of upper floors --- */
/* An upper floor keeps its per-context state (tables of drivers, caches) in a slot;
 * `free` runs when the context goes. `make` runs once, under the context's lock. */
enum sqrl_slot {
    SQRL_SLOT_VALUE,
    SQRL_SLOT_IO,
    SQRL_SLOT_FORMAT,
    SQRL_SLOT_DRIVER,
    SQRL_SLOT_CATALOG,
    SQRL_SLOTS
};
void *sqrl_context_slot(struct sqrl_context *context, enum sqrl_slot slot,
                        void *(*make)(struct sqrl_context *context,
                                      struct sqrl_error *err),
                        void (*free_slot)(void *state), struct sqrl_error *err);

#endif
