/* handoff_test.h - a batch to hand off: JSON lines in a directory of its own. */
#ifndef HANDOFF_TEST_H
#define HANDOFF_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "sqrl/arrow.h"
#include "sqrl/dlpack.h"

struct fixture {
    char folder[64], path[96];
    struct sqrl_context *context;
    struct sqrl_source *source;
    struct sqrl_plan *plan; /* batches of two rows */
};

static const char *const lines =
    "{\"i\": 1, \"f\": 0.5, \"b\": true, \"s\": \"a\", \"r\": [1, 2, 3], \"n\": 7}\n"
    "{\"i\": 2, \"f\": 1.5, \"b\": false, \"s\": \"\", \"r\": [], \"n\": null}\n"
    "{\"i\": 3, \"f\": 2.5, \"b\": true, \"s\": \"ccc\", \"r\": [4], \"n\": 9}\n";

static inline int fixture_open(void **state, enum sqrl_ragged ragged) {
    struct fixture *f = calloc(1, sizeof *f);
    struct sqrl_plan *whole = NULL;
    struct sqrl_error err;
    struct sqrl_batch_options options = {
        .size = sizeof options, .batch_size = 2, .ragged = ragged};
    strcpy(f->folder, "/tmp/sqrl-handoff-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/rows.jsonl", f->folder);
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    fputs(lines, file);
    fclose(file);
    assert_int_equal(sqrl_context_new(NULL, &f->context, &err), SQRL_OK);
    assert_int_equal(sqrl_open(f->context, f->path, NULL, &f->source, &err), SQRL_OK);
    assert_int_equal(sqrl_plan_source(f->source, &whole, &err), SQRL_OK);
    assert_int_equal(sqrl_plan_batch(whole, &options, &f->plan, &err), SQRL_OK);
    sqrl_plan_unref(whole);
    *state = f;
    return 0;
}

static inline int fixture_close(void **state) {
    struct fixture *f = *state;
    sqrl_plan_unref(f->plan);
    sqrl_source_unref(f->source);
    sqrl_context_unref(f->context);
    unlink(f->path);
    rmdir(f->folder);
    free(f);
    return 0;
}

/* The first batch; its iterator is closed already. */
static inline struct sqrl_batch *first_batch(struct fixture *f) {
    struct sqrl_iterator *iterator = NULL;
    struct sqrl_batch *batch = NULL;
    struct sqrl_error err;
    assert_int_equal(sqrl_iterator_open(f->plan, &iterator, &err), SQRL_OK);
    assert_int_equal(sqrl_iterator_next_batch(iterator, &batch, &err), SQRL_OK);
    assert_non_null(batch);
    sqrl_iterator_close(iterator);
    return batch;
}

static inline uint32_t column_of(const struct sqrl_batch *batch, const char *name) {
    const struct sqrl_column *column = sqrl_batch_column(batch, name);
    assert_non_null(column);
    return (uint32_t)(column - batch->column);
}

#endif
