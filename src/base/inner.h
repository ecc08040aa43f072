/* inner.h - what the files of the base floor share with each other and with their tests.
 */
#ifndef SQRL_BASE_INNER_H
#define SQRL_BASE_INNER_H

#include "base.h"

/* Defined when AddressSanitizer, ThreadSanitizer are built in. */
#if defined(__SANITIZE_ADDRESS__)
#define SQRL_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define SQRL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SQRL_ASAN 1
#elif __has_feature(thread_sanitizer)
#define SQRL_TSAN 1
#endif
#endif

/* True when the armed fault of sqrl_fail_allocation is due: the caller then fails. */
bool sqrl_allocation_fails(void);
/* The message of every refused allocation; returns SQRL_E_NO_MEMORY. */
int sqrl_no_memory(struct sqrl_error *err, const char *what, size_t size);

/* Copies `in` to `out` (at most size - 1 bytes and a NUL; size > 0), showing bytes that
 * are not valid UTF-8, controls, and the marks that reorder text on a screen as \xNN.
 * Never cuts a character or an escape. Returns the length; `*whole` tells whether all of
 * it fitted. */
size_t sqrl_text_clean(char *out, size_t size, const char *in, bool *whole);

/* --- threads.c --- */
/* The cgroup's CPU quota in thousandths of a CPU, 0 for none. `root` is put before every
 * path
 * ("" in production, a fixture's directory in tests). */
uint64_t sqrl_cgroup_quota(const char *root);
/* ceil(quota), at most `cpus`, divided by `siblings`; at least 1. */
unsigned sqrl_threads_from(unsigned cpus, uint64_t quota_millis, unsigned siblings);

/* --- cpu.c --- */
/* What SQRL_CPU's text (NULL: not set) chooses on a machine that has AVX2 or not. */
bool sqrl_cpu_choose(const char *wish, bool have_avx2);

/* --- pool.c --- */
/* `name`: of its threads, "cpu" or "io". */
struct sqrl_pool *sqrl_pool_new(unsigned threads, const char *name,
                                struct sqrl_error *err);
/* Gives up the owner's share: threads end once the queue is empty. Joins nothing. NULL is
 * allowed. A pool of an older fork generation is left alone (its threads don't exist
 * here). */
void sqrl_pool_release(struct sqrl_pool *pool);
uint32_t sqrl_pool_generation(const struct sqrl_pool *pool);

/* --- slab.c --- */
#define SQRL_SLAB_CLASSES 96
#define SQRL_SLAB_IDLE_LIMIT ((size_t)64 << 20)

struct sqrl_region;
struct sqrl_region_list {
    struct sqrl_region *first, *last;
};
struct sqrl_slabs {
    struct sqrl_lock lock;
    struct sqrl_region_list partial[SQRL_SLAB_CLASSES];
    struct sqrl_region_list idle; /* newest first, of all classes */
    size_t idle_bytes, idle_limit;
    size_t held;         /* by sqrl_slab_hold: the larger of both limits counts */
    size_t mapped_bytes; /* atomic, not under the lock: a fork can't tear it */
};
void sqrl_slabs_init(struct sqrl_slabs *slabs);
void sqrl_slabs_reset(struct sqrl_slabs *slabs);
/* The class of a size and its capacity; false when no class is so large. */
bool sqrl_slab_class(size_t size, unsigned *index, size_t *capacity);

/* --- context.c --- */
struct sqrl_log_sink {
    struct sqrl_lock lock; /* held while the sink runs */
    sqrl_log_fn log;
    void *arg;
    int level; /* atomic: the lowest level that is made into a line */
};

struct sqrl_slot_state {
    struct sqrl_lock lock;
    void *state; /* atomic: set once */
    void (*free_slot)(void *state);
};

struct sqrl_context {
    int refs;
    unsigned config_cpu_threads; /* 0: from the machine */
    unsigned io_threads;
    unsigned siblings; /* atomic */
    uint64_t budget_limit, budget_used, budget_peak;
    uint64_t counters[SQRL_COUNTERS];
    struct sqrl_lock pool_lock;
    struct sqrl_pool *pool, *io_pool; /* atomic */
    struct sqrl_slabs slabs;
    struct sqrl_log_sink sink;
    struct sqrl_slot_state slots[SQRL_SLOTS];
};

/* The pool where it runs in this generation, else NULL. Starts nothing. */
struct sqrl_pool *sqrl_context_live_pool(const struct sqrl_context *context);
void sqrl_sink_set(struct sqrl_log_sink *sink, sqrl_log_fn log, void *arg, int level);
size_t sqrl_slabs_idle(struct sqrl_slabs *slabs);
const char *sqrl_counter_name(enum sqrl_counter counter);

#endif
