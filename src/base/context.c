/* context.c - the owner of everything.
 *
 * Who holds a reference: the caller, buffers, and whatever the upper floors open. Pool
 * threads hold none (pool.c), so that the count can reach zero while they sleep. Every
 * part has a lock of its own and no two are held at once, except that the `make` of an
 * upper slot may use lower slots, the pool and the slabs. */
#include <stdlib.h>

#include "inner.h"

#define DEFAULT_IO_THREADS 32
#define DEFAULT_BUDGET_BYTES ((uint64_t)192 << 20)
#define MAX_THREADS 1024u

int sqrl_context_new(const struct sqrl_config *config, struct sqrl_context **out,
                     struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_config chosen = {0};
    if (config != NULL) {
        if (config->size < offsetof(struct sqrl_config, cpu_threads))
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "config: set size to sizeof(struct sqrl_config)");
        memcpy(&chosen, config, SQRL_MIN(config->size, sizeof chosen));
    }
    if (chosen.cpu_threads > MAX_THREADS || chosen.io_threads > MAX_THREADS)
        return sqrl_error_set(err, SQRL_E_INVALID, "config: at most %u threads",
                              MAX_THREADS);
    struct sqrl_context *context = sqrl_calloc(1, sizeof *context, "a context", err);
    if (context == NULL)
        return SQRL_E_NO_MEMORY;
    context->refs = 1;
    context->config_cpu_threads = chosen.cpu_threads;
    context->io_threads = chosen.io_threads > 0 ? chosen.io_threads : DEFAULT_IO_THREADS;
    context->siblings = chosen.sibling_processes;
    context->budget_limit = chosen.memory_budget_bytes > 0 ? chosen.memory_budget_bytes
                                                           : DEFAULT_BUDGET_BYTES;
    sqrl_lock_init(&context->pool_lock);
    sqrl_slabs_init(&context->slabs);
    sqrl_lock_init(&context->sink.lock);
    sqrl_sink_set(&context->sink, chosen.log, chosen.log_arg, (int)chosen.log_level);
    for (int i = 0; i < SQRL_SLOTS; i++)
        sqrl_lock_init(&context->slots[i].lock);
    *out = context;
    return SQRL_OK;
}

struct sqrl_context *sqrl_context_ref(struct sqrl_context *context) {
    __atomic_fetch_add(&context->refs, 1, __ATOMIC_RELAXED);
    return context;
}

/* Upper floors first: what they keep may stand on lower ones. */
static void free_slots(struct sqrl_context *context) {
    for (int i = SQRL_SLOTS - 1; i >= 0; i--) {
        struct sqrl_slot_state *slot = &context->slots[i];
        if (slot->state != NULL && slot->free_slot != NULL)
            slot->free_slot(slot->state);
        sqrl_lock_reset(&slot->lock);
    }
}

void sqrl_context_unref(struct sqrl_context *context) {
    if (context == NULL || __atomic_fetch_sub(&context->refs, 1, __ATOMIC_ACQ_REL) != 1)
        return;
    free_slots(context);
    sqrl_pool_release(context->pool);
    sqrl_pool_release(context->io_pool);
    sqrl_slabs_reset(&context->slabs);
    sqrl_lock_reset(&context->pool_lock);
    sqrl_lock_reset(&context->sink.lock);
    free(context);
}

static struct sqrl_pool *live(struct sqrl_pool *const *at) {
    struct sqrl_pool *pool = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    bool here = pool != NULL && sqrl_pool_generation(pool) == sqrl_fork_generation();
    return here ? pool : NULL;
}

struct sqrl_pool *sqrl_context_live_pool(const struct sqrl_context *context) {
    return live(&context->pool);
}

static unsigned wished_threads(const struct sqrl_context *context) {
    if (context->config_cpu_threads > 0)
        return context->config_cpu_threads;
    unsigned siblings = __atomic_load_n(&context->siblings, __ATOMIC_RELAXED);
    return SQRL_MIN(sqrl_default_threads(siblings), MAX_THREADS);
}

unsigned sqrl_context_cpu_threads(const struct sqrl_context *context) {
    struct sqrl_pool *pool = sqrl_context_live_pool(context);
    return pool != NULL ? sqrl_pool_threads(pool) : wished_threads(context);
}

unsigned sqrl_context_io_threads(const struct sqrl_context *context) {
    return context->io_threads;
}

void sqrl_context_set_siblings(struct sqrl_context *context, unsigned processes) {
    __atomic_store_n(&context->siblings, processes, __ATOMIC_RELAXED);
}

static struct sqrl_pool *start(struct sqrl_context *context, struct sqrl_pool **at,
                               unsigned threads, const char *name,
                               struct sqrl_error *err) {
    struct sqrl_pool *pool = live(at);
    if (pool != NULL)
        return pool;
    sqrl_lock_take(&context->pool_lock);
    pool = live(at);
    if (pool == NULL) {
        pool = sqrl_pool_new(threads, name, err);
        if (pool != NULL)
            __atomic_store_n(at, pool, __ATOMIC_RELEASE);
    }
    sqrl_lock_drop(&context->pool_lock);
    return pool;
}

struct sqrl_pool *sqrl_context_pool(struct sqrl_context *context,
                                    struct sqrl_error *err) {
    struct sqrl_pool *pool = live(&context->pool);
    if (pool != NULL)
        return pool;
    return start(context, &context->pool, wished_threads(context), "cpu", err);
}

struct sqrl_pool *sqrl_context_io_pool(struct sqrl_context *context,
                                       struct sqrl_error *err) {
    return start(context, &context->io_pool, context->io_threads, "io", err);
}

void *sqrl_context_slot(struct sqrl_context *context, enum sqrl_slot index,
                        void *(*make)(struct sqrl_context *context,
                                      struct sqrl_error *err),
                        void (*free_slot)(void *state), struct sqrl_error *err) {
    struct sqrl_slot_state *slot = &context->slots[index];
    void *state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
    if (state != NULL)
        return state;
    sqrl_lock_take(&slot->lock);
    state = slot->state;
    if (state == NULL) {
        state = make(context, err);
        slot->free_slot = free_slot;
        __atomic_store_n(&slot->state, state, __ATOMIC_RELEASE);
    }
    sqrl_lock_drop(&slot->lock);
    return state;
}
