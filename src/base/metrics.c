#include "inner.h"

static const char *const counter_names[SQRL_COUNTERS] = {
    [SQRL_COUNT_BYTES_READ] = "bytes_read",
    [SQRL_COUNT_READS] = "reads",
    [SQRL_COUNT_BYTES_DECODED] = "bytes_decoded",
    [SQRL_COUNT_BLOCKS] = "blocks",
    [SQRL_COUNT_SAMPLES] = "samples",
    [SQRL_COUNT_BATCHES] = "batches",
    [SQRL_COUNT_WAIT_CONSUMER_NS] = "wait_consumer_ns",
    [SQRL_COUNT_LOAD_NS] = "load_ns",
    [SQRL_COUNT_FILL_NS] = "fill_ns",
    [SQRL_COUNT_RETRIES] = "retries",
    [SQRL_COUNT_HTTP_REQUESTS] = "http.requests",
    [SQRL_COUNT_HTTP_BYTES] = "http.bytes",
    [SQRL_COUNT_HTTP_RETRIES] = "http.retries",
    [SQRL_COUNT_HTTP_HEDGES] = "http.hedges",
    [SQRL_COUNT_HTTP_FIRST_BYTE_NS] = "http.first_byte_ns",
    [SQRL_COUNT_HTTP_CONNECTIONS] = "http.connections",
    [SQRL_COUNT_CACHE_HITS] = "cache.hits",
    [SQRL_COUNT_CACHE_MISSES] = "cache.misses",
    [SQRL_COUNT_CACHE_BYTES] = "cache.bytes",
    [SQRL_COUNT_CACHE_BYTES_FETCHED] = "cache.bytes_fetched",
    [SQRL_COUNT_CACHE_EVICTIONS] = "cache.evictions",
    [SQRL_COUNT_CACHE_BYTES_EVICTED] = "cache.bytes_evicted",
    [SQRL_COUNT_CACHE_DAMAGED] = "cache.damaged",
};

const char *sqrl_counter_name(enum sqrl_counter counter) {
    return counter_names[counter];
}

void sqrl_count(struct sqrl_context *context, enum sqrl_counter counter, uint64_t add) {
    __atomic_fetch_add(&context->counters[counter], add, __ATOMIC_RELAXED);
}

void sqrl_context_metrics(struct sqrl_context *context,
                          void (*visit)(void *arg, const struct sqrl_metric *metric),
                          void *arg) {
    for (int i = 0; i < SQRL_COUNTERS; i++) {
        struct sqrl_metric metric = {
            .name = counter_names[i],
            .value = __atomic_load_n(&context->counters[i], __ATOMIC_RELAXED)};
        visit(arg, &metric);
    }
    uint64_t idle = sqrl_slabs_idle(&context->slabs);
    uint64_t mapped = __atomic_load_n(&context->slabs.mapped_bytes, __ATOMIC_RELAXED);
    const struct sqrl_pool *pool = sqrl_context_live_pool(context);
    const struct sqrl_metric gauges[] = {
        {"slab.bytes_mapped", mapped},
        {"slab.bytes_idle", idle},
        {"budget.used_bytes", sqrl_budget_used(context)},
        {"budget.peak_bytes", __atomic_load_n(&context->budget_peak, __ATOMIC_RELAXED)},
        {"pool.threads", pool != NULL ? sqrl_pool_threads(pool) : 0},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(gauges); i++)
        visit(arg, &gauges[i]);
}
