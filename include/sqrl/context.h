/* sqrl/context.h - what everything hangs from.
 *
 * A context owns thread pools, recycled memory, the memory budget, the registries of
 * codecs, file systems, formats and drivers, metrics and the log sink. A program usually
 * makes one and keeps it. There is no other global state, except a fork generation and
 * the table of CPU functions.
 *
 * Threads: all functions here may be called from any thread. Pools start on first use.
 * Fork: contexts, sources and plans work on in the child (its pools start anew there); a
 * running iterator does not and says so with SQRL_E_STATE.
 */
#ifndef SQRL_CONTEXT_H
#define SQRL_CONTEXT_H

#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqrl_context;

enum sqrl_log_level { SQRL_LOG_DEBUG, SQRL_LOG_INFO, SQRL_LOG_WARNING, SQRL_LOG_ERROR };

/* Receives one finished line (no newline, at most 2,047 bytes of clean UTF-8). Called on
 * any thread, one call at a time: others wait, so it must not log to the same context,
 * nor wait for a lock that a caller of the library may hold (Python's GIL): such a sink
 * queues the line. */
typedef void (*sqrl_log_fn)(void *arg, enum sqrl_log_level level, const char *line);

/* All fields may be 0: the default is chosen then. Set `size` to sizeof(struct
 * sqrl_config). */
struct sqrl_config {
    size_t size;
    unsigned
        cpu_threads;     /* default: affinity mask and cgroup quota / sibling_processes */
    unsigned io_threads; /* default 32; for network file systems */
    unsigned
        sibling_processes; /* processes that share the cores, e.g. DataLoader workers */
    uint64_t memory_budget_bytes; /* reads, blocks, windows and slots; default 192 MiB */
    enum sqrl_log_level
        log_level;   /* lines below it are not made; default SQRL_LOG_DEBUG=0 */
    sqrl_log_fn log; /* default: warnings and errors to standard error */
    void *log_arg;
};

/* Makes a context; `config` may be NULL. One reference. */
SQRL_CHECK int sqrl_context_new(const struct sqrl_config *config,
                                struct sqrl_context **out, struct sqrl_error *err);
SQRL_API struct sqrl_context *sqrl_context_ref(struct sqrl_context *context);
/* Drops one reference; the last stops the pools' threads (idle ones, at once) and frees
 * the memory. NULL is allowed. May be called on a pool's own thread: nothing is joined
 * there. */
SQRL_API void sqrl_context_unref(struct sqrl_context *context);

/* The number of CPU threads this context uses (whether started or not). */
SQRL_API unsigned sqrl_context_cpu_threads(const struct sqrl_context *context);

/* Changes the number of processes that share the machine's cores (DataLoader workers):
 * pools started from now on have their share. */
SQRL_API void sqrl_context_set_siblings(struct sqrl_context *context, unsigned processes);

/* Replaces the log sink; the old one is not called any more once this returns. NULL
 * restores the default, which prints nothing below SQRL_LOG_WARNING. Not from a sink. */
SQRL_API void sqrl_context_set_log(struct sqrl_context *context, sqrl_log_fn log,
                                   void *arg, enum sqrl_log_level level);

/* One number the library counts, over all iterators of the context: "bytes_read" and
 * "reads" of files, "bytes_decoded" by decompression (0 where nothing is compressed),
 * "blocks" loaded, "samples" and "batches" handed out, "wait_consumer_ns" in which the
 * consumer waited for data, "load_ns" and "fill_ns" of all threads (filling is part of
 * batches; without them it is 0), "retries"; of remote file systems "http.requests",
 * "http.bytes" of bodies, "http.retries", "http.hedges" (second requests for what was
 * slow), "http.first_byte_ns" from requests to their answers, summed, "http.connections"
 * that were opened; of caches (sqrl/cache.h) "cache.hits" (reads that one answered),
 * "cache.misses" (stretches fetched for one), "cache.bytes" (read from one),
 * "cache.bytes_fetched", "cache.evictions" (files), "cache.bytes_evicted" and
 * "cache.damaged" (pieces dropped and fetched again); and what is there now:
 * "slab.bytes_mapped", "slab.bytes_idle", "budget.used_bytes", "budget.peak_bytes",
 * "pool.threads". */
struct sqrl_metric {
    const char *name; /* lives as long as the context */
    uint64_t value;
};

/* Calls `visit` for every metric of the context, in a fixed order. */
SQRL_API void sqrl_context_metrics(struct sqrl_context *context,
                                   void (*visit)(void *arg,
                                                 const struct sqrl_metric *metric),
                                   void *arg);

/* "0.1.0" */
SQRL_API const char *sqrl_version(void);

/* The instruction set in use: "scalar" or "avx2". SQRL_CPU=scalar|avx2 in the environment
 * forces one before the first use; an unusable value gives "scalar". */
SQRL_API const char *sqrl_cpu_name(void);

#ifdef __cplusplus
}
#endif
#endif
