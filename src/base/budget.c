#include "inner.h"

static void raise_peak(struct sqrl_context *context, uint64_t used) {
    uint64_t peak = __atomic_load_n(&context->budget_peak, __ATOMIC_RELAXED);
    while (used > peak &&
           !__atomic_compare_exchange_n(&context->budget_peak, &peak, used, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

bool sqrl_budget_take(struct sqrl_context *context, uint64_t bytes, bool force) {
    uint64_t used = __atomic_load_n(&context->budget_used, __ATOMIC_RELAXED);
    uint64_t after;
    do {
        bool full = __builtin_add_overflow(used, bytes, &after) ||
                    after > sqrl_budget_limit(context);
        if (full && !force)
            return false;
    } while (!__atomic_compare_exchange_n(&context->budget_used, &used, after, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    raise_peak(context, after);
    return true;
}

void sqrl_budget_give(struct sqrl_context *context, uint64_t bytes) {
    __atomic_fetch_sub(&context->budget_used, bytes, __ATOMIC_RELAXED);
}

uint64_t sqrl_budget_limit(const struct sqrl_context *context) {
    return __atomic_load_n(&context->budget_limit, __ATOMIC_RELAXED);
}

void sqrl_budget_widen(struct sqrl_context *context, uint64_t bytes) {
    __atomic_fetch_add(&context->budget_limit, bytes, __ATOMIC_RELAXED);
}

void sqrl_budget_narrow(struct sqrl_context *context, uint64_t bytes) {
    __atomic_fetch_sub(&context->budget_limit, bytes, __ATOMIC_RELAXED);
}

uint64_t sqrl_budget_used(const struct sqrl_context *context) {
    return __atomic_load_n(&context->budget_used, __ATOMIC_RELAXED);
}
