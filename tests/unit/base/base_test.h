/* base_test.h - cmocka and what the base floor's tests share. */
#ifndef BASE_TEST_H
#define BASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/inner.h"

static inline struct sqrl_context *new_context(unsigned threads) {
    struct sqrl_config config = {.size = sizeof config, .cpu_threads = threads};
    struct sqrl_context *context;
    assert_int_equal(sqrl_context_new(&config, &context, NULL), SQRL_OK);
    return context;
}

struct metric_wanted {
    const char *name;
    uint64_t value;
    bool found;
};

static inline void match_metric(void *arg, const struct sqrl_metric *metric) {
    struct metric_wanted *wanted = arg;
    if (strcmp(metric->name, wanted->name) == 0) {
        wanted->value = metric->value;
        wanted->found = true;
    }
}

static inline uint64_t metric(struct sqrl_context *context, const char *name) {
    struct metric_wanted wanted = {.name = name};
    sqrl_context_metrics(context, match_metric, &wanted);
    assert_true(wanted.found);
    return wanted.value;
}

#endif
