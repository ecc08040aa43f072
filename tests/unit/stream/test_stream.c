/* The executor against a slow plain model: every sample exactly once, in the same order
 * on any number of threads. */
#include <sys/wait.h>

#include "sqrl/pack.h"
#include "support/synthetic.h"

static int write_sample(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    struct sqrl_error err;
    char text[40];
    uint64_t id = shard * 100000 + sample, shape[2] = {2, 3};
    uint8_t image[6];
    for (unsigned i = 0; i < 6; i++)
        image[i] = (uint8_t)(id * 7 + i);
    int n = snprintf(text, sizeof text, "%0*llu", (int)(id % 11), (unsigned long long)id);
    int rc = sqrl_msgpack_put_map(out, 3, &err);
    rc |= sqrl_msgpack_put_string(out, "id", 2, &err);
    rc |= sqrl_msgpack_put_int(out, (int64_t)id, &err);
    rc |= sqrl_msgpack_put_string(out, "image", 5, &err);
    rc |= sqrl_msgpack_put_ndarray(out, SQRL_DTYPE_UINT8, shape, 2, image, &err);
    rc |= sqrl_msgpack_put_string(out, "text", 4, &err);
    return rc | sqrl_msgpack_put_string(out, text, (size_t)n, &err);
}

/* --- the model --- */
struct list {
    uint64_t *id;
    size_t count, room;
};
static void list_add(struct list *list, uint64_t id) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->id = realloc(list->id, list->room * sizeof *list->id);
        assert_non_null(list->id);
    }
    list->id[list->count++] = id;
}
static void model(const struct syn_shard *table, size_t count, struct list *out) {
    for (size_t s = 0; s < count; s++)
        for (uint64_t i = 0; i < syn_first(&table[s], table[s].blocks); i++)
            list_add(out, s * 100000 + i);
}

static int drain_runs(struct sqrl_plan *plan, struct list *out, struct sqrl_error *err) {
    struct sqrl_iterator *it;
    struct sqrl_run *run;
    int rc = sqrl_iterator_open(plan, &it, err);
    if (rc)
        return rc;
    uint64_t position = 0;
    while (!(rc = sqrl_iterator_next_run(it, &run, err)) && run) {
        assert_int_equal(run->first, position);
        position += run->count;
        for (uint32_t i = 0; i < run->count; i++) {
            const struct sqrl_block *block = run->samples[i].block;
            const struct sqrl_node *nodes = block->tape.nodes;
            uint32_t node = sqrl_map_find(nodes, block->begin[run->samples[i].index],
                                          block->bytes->data, "id", 2);
            list_add(out, nodes[node].v.u);
            assert_int_equal(block->shard * 100000 + block->first + run->samples[i].index,
                             nodes[node].v.u);
        }
        sqrl_run_release(run);
    }
    sqrl_iterator_close(it);
    return rc;
}

static int drain_batches(struct sqrl_plan *plan, struct list *out, struct list *sizes,
                         struct sqrl_error *err) {
    struct sqrl_iterator *it;
    struct sqrl_batch *batch;
    int rc = sqrl_iterator_open(plan, &it, err);
    if (rc)
        return rc;
    while (!(rc = sqrl_iterator_next_batch(it, &batch, err)) && batch) {
        const struct sqrl_column *id = sqrl_batch_column(batch, "id");
        const struct sqrl_column *image = sqrl_batch_column(batch, "image");
        const struct sqrl_column *text = sqrl_batch_column(batch, "text");
        assert_non_null(id);
        assert_int_equal(id->dtype, SQRL_DTYPE_INT64);
        if (sizes)
            list_add(sizes, batch->rows);
        for (uint64_t r = 0; r < batch->rows; r++) {
            uint64_t v = (uint64_t)((int64_t *)id->data)[r];
            char expect[40];
            list_add(out, v);
            assert_int_equal(batch->place[r].shard * 100000 + batch->place[r].sample, v);
            int n = snprintf(expect, sizeof expect, "%0*llu", (int)(v % 11),
                             (unsigned long long)v);
            if (image)
                for (unsigned i = 0; i < 6; i++)
                    assert_int_equal(((uint8_t *)image->data)[r * 6 + i],
                                     (uint8_t)(v * 7 + i));
            if (text) {
                assert_int_equal(text->offsets[r + 1] - text->offsets[r], n);
                assert_memory_equal((char *)text->data + text->offsets[r], expect,
                                    (size_t)n);
            }
        }
        sqrl_batch_unref(batch);
    }
    sqrl_iterator_close(it);
    return rc;
}

static void same(const struct list *a, const struct list *b) {
    assert_int_equal(a->count, b->count);
    if (a->count)
        assert_memory_equal(a->id, b->id, a->count * sizeof *a->id);
}

static uint64_t below(struct sqrl_rng *rng, uint64_t n) {
    return sqrl_rng_below(rng, n);
}

static void random_table(struct sqrl_rng *rng, struct syn_shard *table, size_t count) {
    memset(table, 0, count * sizeof *table);
    uint64_t mode = below(rng, 4);
    for (size_t s = 0; s < count; s++) {
        table[s].indexed = mode == 0 || (mode == 2 && below(rng, 2));
        table[s].known = mode != 2 && table[s].indexed && (mode == 0 || below(rng, 2));
        table[s].hide_samples = !table[s].known && below(rng, 2);
        table[s].blocks = (uint32_t)below(rng, 8);
        for (uint32_t b = 0; b < table[s].blocks; b++)
            table[s].samples[b] = (uint32_t)(below(rng, 5) ? below(rng, 40) : 0);
        table[s].slow_us = below(rng, 10) ? 0 : (uint32_t)below(rng, 300);
    }
}

static void plain_order(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 7);
    for (unsigned round = 0; round < 60; round++) {
        struct syn_shard table[12];
        size_t count = below(&rng, 12);
        random_table(&rng, table, count);
        struct sqrl_context *context = syn_context(1 + (unsigned)below(&rng, 8), 0);
        struct sqrl_source *source = syn_source(context, table, count);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list expect = {0}, got = {0}, batches = {0};
        model(table, count, &expect);
        if (below(&rng, 2))
            SYN_STAGE(plan, sqrl_plan_prefetch(plan, 1 + below(&rng, 100000), SYN_OUT));
        syn_must(drain_runs(plan, &got, &err), &err);
        same(&got, &expect);
        struct sqrl_batch_options o = {.size = sizeof o,
                                       .batch_size = 1 + below(&rng, 70)};
        SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
        syn_must(drain_batches(plan, &batches, NULL, &err), &err);
        same(&batches, &expect);
        free(expect.id);
        free(got.id);
        free(batches.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
static void sorted(struct list *list) {
    if (list->count)
        qsort(list->id, list->count, sizeof *list->id, by_value);
}

/* Everything exactly once; the same order for every number of threads, as samples and as
 * batches; another seed gives another order. */
static void shuffled_order(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 11);
    for (unsigned round = 0; round < 40; round++) {
        struct syn_shard table[12];
        size_t count = 1 + below(&rng, 11);
        random_table(&rng, table, count);
        uint64_t window = 1 + below(&rng, below(&rng, 2) ? 3000 : 300000);
        struct list expect = {0}, first = {0}, other = {0};
        model(table, count, &expect);
        for (unsigned threads = 1; threads <= 8;
             threads += 1 + (unsigned)below(&rng, 4)) {
            struct sqrl_context *context = syn_context(threads, 0);
            struct sqrl_source *source = syn_source(context, table, count);
            struct sqrl_plan *plan = syn_plan(source);
            struct sqrl_error err;
            struct list got = {0}, batches = {0};
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, round, window, SYN_OUT));
            syn_must(drain_runs(plan, &got, &err), &err);
            if (threads == 1) {
                first = got;
                memset(&got, 0, sizeof got);
                struct sqrl_plan *base = syn_plan(source);
                SYN_STAGE(base, sqrl_plan_shuffle_all(base, round + 1, window, SYN_OUT));
                syn_must(drain_runs(base, &other, &err), &err);
                sqrl_plan_unref(base);
            } else {
                same(&got, &first);
            }
            struct sqrl_batch_options o = {.size = sizeof o,
                                           .batch_size = 1 + below(&rng, 70)};
            SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
            syn_must(drain_batches(plan, &batches, NULL, &err), &err);
            same(&batches, &first);
            free(got.id);
            free(batches.id);
            sqrl_plan_unref(plan);
            sqrl_source_unref(source);
            sqrl_context_unref(context);
        }
        if (expect.count > 20) {
            assert_int_equal(other.count, first.count);
            assert_memory_not_equal(other.id, first.id, first.count * sizeof *first.id);
            assert_memory_not_equal(expect.id, first.id, first.count * sizeof *first.id);
        }
        sorted(&first);
        sorted(&other);
        same(&first, &expect);
        same(&other, &expect);
        free(expect.id);
        free(first.id);
        free(other.id);
    }
}

/* --- stages against a slow model that walks the list --- */
struct stage {
    int kind; /* 0 filter id % mod == 0 by listing, 1 take, 2 skip */
    uint64_t n;
};

static void apply(const struct list *in, const struct stage *stage, unsigned stages,
                  struct list *out) {
    uint64_t left[8];
    for (unsigned k = 0; k < stages; k++)
        left[k] = stage[k].n;
    for (unsigned k = 0; k < stages; k++)
        if (stage[k].kind == 1 && !left[k])
            return;
    for (size_t i = 0; i < in->count; i++) {
        bool keep = true, last = false;
        for (unsigned k = 0; k < stages && keep; k++) {
            if (stage[k].kind == 0) {
                keep = in->id[i] % 100000 > stage[k].n;
            } else if (stage[k].kind == 1) {
                keep = left[k] > 0;
                left[k] -= keep;
                last |= left[k] == 0;
            } else if (left[k]) {
                left[k]--;
                keep = false;
            }
        }
        if (keep)
            list_add(out, in->id[i]);
        if (last)
            return;
    }
}

/* id > 100000 * shard + n, for all shards, as an expression */
static void expression_for(char *out, size_t size, size_t shards, uint64_t n) {
    size_t at = (size_t)snprintf(out, size, "id < 0");
    for (size_t s = 0; s < shards; s++)
        at += (size_t)snprintf(out + at, size - at, " or id > %zu and id < %zu",
                               s * 100000 + (size_t)n, s * 100000 + 99999);
}

static void stages_in_plan_order(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 23);
    for (unsigned round = 0; round < 150; round++) {
        struct syn_shard table[8];
        size_t count = 1 + below(&rng, 7);
        random_table(&rng, table, count);
        struct sqrl_context *context = syn_context(1 + (unsigned)below(&rng, 6), 0);
        struct sqrl_source *source = syn_source(context, table, count);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list all = {0}, expect = {0}, got = {0}, batches = {0}, sizes = {0};
        if (below(&rng,
                  2)) { /* shuffled: the model starts from the order that it gives */
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, round, 2000, SYN_OUT));
            syn_must(drain_runs(plan, &all, &err), &err);
        } else {
            model(table, count, &all);
        }
        struct stage stage[8];
        unsigned stages = (unsigned)below(&rng, 5);
        for (unsigned k = 0; k < stages; k++) {
            stage[k].kind = (int)below(&rng, 3);
            stage[k].n = below(&rng, 3) ? below(&rng, 200) : below(&rng, 10);
            if (stage[k].kind == 0) {
                char text[2000];
                stage[k].n = below(&rng, 60);
                expression_for(text, sizeof text, count, stage[k].n);
                SYN_STAGE(plan, sqrl_plan_filter(plan, text, SYN_OUT));
            } else if (stage[k].kind == 1) {
                SYN_STAGE(plan, sqrl_plan_take(plan, stage[k].n, SYN_OUT));
            } else {
                SYN_STAGE(plan, sqrl_plan_skip(plan, stage[k].n, SYN_OUT));
            }
        }
        apply(&all, stage, stages, &expect);
        syn_must(drain_runs(plan, &got, &err), &err);
        same(&got, &expect);
        uint64_t counted;
        syn_must(sqrl_plan_count(plan, &counted, &err), &err);
        if (counted != SQRL_UNKNOWN)
            assert_int_equal(counted, expect.count);
        /* batches, and take and skip of batches */
        uint64_t size = 1 + below(&rng, 30), skip = below(&rng, 3), take = below(&rng, 6);
        bool drop = below(&rng, 2);
        struct sqrl_batch_options o = {
            .size = sizeof o, .batch_size = size, .drop_remainder = drop};
        SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
        SYN_STAGE(plan, sqrl_plan_skip(plan, skip, SYN_OUT));
        SYN_STAGE(plan, sqrl_plan_take(plan, take, SYN_OUT));
        syn_must(drain_batches(plan, &batches, &sizes, &err), &err);
        uint64_t number = expect.count / size + (!drop && expect.count % size);
        number = SQRL_MIN(number - SQRL_MIN(number, skip), take);
        assert_int_equal(sizes.count, number);
        for (uint64_t b = 0; b < number; b++) {
            uint64_t from = (skip + b) * size;
            assert_int_equal(sizes.id[b], SQRL_MIN(size, expect.count - from));
        }
        if (batches.count)
            assert_memory_equal(batches.id, expect.id + skip * size,
                                batches.count * sizeof *batches.id);
        syn_must(sqrl_plan_count(plan, &counted, &err), &err);
        if (counted != SQRL_UNKNOWN)
            assert_int_equal(counted, number);
        free(all.id);
        free(expect.id);
        free(got.id);
        free(batches.id);
        free(sizes.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* A skip at the front reads nothing of what it passes over. */
static void skip_reads_nothing(void **state) {
    (void)state;
    struct syn_shard table[10];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 10; s++) {
        table[s].indexed = table[s].known = 1;
        table[s].blocks = 10;
        for (unsigned b = 0; b < 10; b++)
            table[s].samples[b] = 10;
    }
    struct sqrl_context *context = syn_context(2, 0);
    struct sqrl_source *source = syn_source(context, table, 10);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct list got = {0};
    SYN_STAGE(plan, sqrl_plan_skip(plan, 500, SYN_OUT));
    SYN_STAGE(plan, sqrl_plan_skip(plan, 455, SYN_OUT));
    __atomic_store_n(&syn_loads, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&syn_opens, 0, __ATOMIC_RELAXED);
    syn_must(drain_runs(plan, &got, &err), &err);
    assert_int_equal(got.count, 45);
    assert_int_equal(got.id[0], 900055);
    assert_int_equal(__atomic_load_n(&syn_loads, __ATOMIC_RELAXED), 5);
    assert_int_equal(__atomic_load_n(&syn_opens, __ATOMIC_RELAXED), 1);
    free(got.id);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* take() ends early: of 64 blocks only a few are read. */
static void take_stops_reading(void **state) {
    (void)state;
    static struct syn_shard table[40];
    for (unsigned s = 0; s < 40; s++) {
        table[s].indexed = s % 2;
        table[s].blocks = 64;
        table[s].pad_bytes = 1 << 20;
        for (unsigned b = 0; b < 64; b++)
            table[s].samples[b] = 5;
    }
    struct sqrl_context *context = syn_context(2, 0);
    struct sqrl_source *source = syn_source(context, table, 40);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct list got = {0};
    SYN_STAGE(plan, sqrl_plan_take(plan, 12, SYN_OUT));
    SYN_STAGE(plan, sqrl_plan_prefetch(plan, 16 << 20, SYN_OUT));
    __atomic_store_n(&syn_loads, 0, __ATOMIC_RELAXED);
    syn_must(drain_runs(plan, &got, &err), &err);
    assert_int_equal(got.count, 12);
    assert_true(__atomic_load_n(&syn_loads, __ATOMIC_RELAXED) <
                40); /* 16 MiB ahead, of 2560 */
    free(got.id);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* What is good before an error comes first, then the error, again and again. */
static void errors_in_place(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 31);
    for (unsigned round = 0; round < 60; round++) {
        struct syn_shard table[8];
        size_t count = 1 + below(&rng, 7), bad = below(&rng, count);
        random_table(&rng, table, count);
        bool on_open = below(&rng, 4) == 0;
        for (size_t s = 0; s < count; s++)
            table[s].known = 0;
        if (on_open) {
            table[bad].fail_open = 1;
        } else {
            table[bad].blocks = 1 + (uint32_t)below(&rng, 7);
            table[bad].fail_block = 1 + (uint32_t)below(&rng, table[bad].blocks);
        }
        struct sqrl_context *context = syn_context(1 + (unsigned)below(&rng, 6), 0);
        struct sqrl_source *source = syn_source(context, table, count);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list expect = {0}, got = {0}, sizes = {0};
        model(table, bad, &expect);
        for (uint64_t i = 0;
             !on_open && i < syn_first(&table[bad], table[bad].fail_block - 1); i++)
            list_add(&expect, bad * 100000 + i);
        sqrl_error_clear(&err);
        int rc = drain_runs(plan, &got, &err);
        assert_int_equal(rc, on_open ? SQRL_E_FORMAT : SQRL_E_CORRUPT);
        assert_non_null(strstr(err.where, ".syn"));
        same(&got, &expect);
        got.count = 0;
        struct sqrl_batch_options o = {.size = sizeof o,
                                       .batch_size = 1 + below(&rng, 20),
                                       .drop_remainder = below(&rng, 2)};
        SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
        struct sqrl_iterator *it;
        rc = sqrl_iterator_open(plan, &it, &err);
        if (rc) { /* the schema of the first shard is asked for on opening */
            assert_true(on_open && bad == 0);
        } else {
            struct sqrl_batch *batch;
            while (!(rc = sqrl_iterator_next_batch(it, &batch, &err)) && batch) {
                for (uint64_t r = 0; r < batch->rows; r++)
                    list_add(&got,
                             batch->place[r].shard * 100000 + batch->place[r].sample);
                sqrl_batch_unref(batch);
            }
            uint64_t whole = expect.count;
            if (o.drop_remainder)
                whole -= whole % o.batch_size;
            assert_int_equal(got.count, whole);
            if (whole)
                assert_memory_equal(got.id, expect.id, whole * sizeof *got.id);
            for (int again = 0; again < 3; again++) {
                struct sqrl_error repeated;
                assert_int_equal(sqrl_iterator_next_batch(it, &batch, &repeated), rc);
                assert_null(batch);
                assert_string_equal(repeated.message, err.message);
            }
            sqrl_iterator_close(it);
        }
        free(expect.id);
        free(got.id);
        free(sizes.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* In a shuffled stream the error comes behind the good rest of its window. */
static void shuffled_error(void **state) {
    (void)state;
    struct syn_shard table[4];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 4; s++) {
        table[s].indexed = s % 2;
        table[s].blocks = 3;
        table[s].samples[0] = table[s].samples[1] = table[s].samples[2] = 20;
    }
    table[2].fail_block = 2;
    struct list first = {0};
    for (unsigned threads = 1; threads < 6; threads++) {
        struct sqrl_context *context = syn_context(threads, 0);
        struct sqrl_source *source = syn_source(context, table, 4);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list got = {0};
        SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 3, 4000, SYN_OUT));
        assert_int_equal(drain_runs(plan, &got, &err), SQRL_E_CORRUPT);
        if (threads == 1)
            first = got;
        else
            same(&got, &first);
        if (threads > 1)
            free(got.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
    sorted(&first);
    for (size_t i = 1; i < first.count; i++)
        assert_true(first.id[i - 1] < first.id[i]);
    free(first.id);
}

static void filter_error_names_sample(void **state) {
    (void)state;
    struct syn_shard table[2] = {{.blocks = 2, .samples = {10, 10}},
                                 {.blocks = 1, .samples = {10}}};
    struct sqrl_context *context = syn_context(2, 0);
    struct sqrl_source *source = syn_source(context, table, 2);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct list got = {0};
    SYN_STAGE(plan, sqrl_plan_filter(plan, "id < 15 or text > 5", SYN_OUT));
    assert_int_equal(drain_runs(plan, &got, &err), SQRL_E_TYPE);
    assert_int_equal(got.count, 15);
    assert_non_null(strstr(err.where, "000000.syn: sample 15"));
    got.count = 0;
    SYN_STAGE(plan, sqrl_plan_take(plan, 15, SYN_OUT)); /* ends before the bad sample */
    syn_must(drain_runs(plan, &got, &err), &err);
    assert_int_equal(got.count, 15);
    free(got.id);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* Blocks of 3 MiB under a budget of 1 MiB: slower, but it ends. */
static void larger_than_budget(void **state) {
    (void)state;
    struct syn_shard table[6];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 6; s++) {
        table[s].indexed = s % 2;
        table[s].blocks = 4;
        table[s].pad_bytes = 3 << 20;
        for (unsigned b = 0; b < 4; b++)
            table[s].samples[b] = 7;
    }
    for (unsigned mode = 0; mode < 4; mode++) {
        struct sqrl_context *context = syn_context(4, 1 << 20);
        struct sqrl_source *source = syn_source(context, table, 6);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list got = {0}, expect = {0};
        model(table, 6, &expect);
        if (mode & 1)
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 8 << 20, SYN_OUT));
        if (mode & 2) {
            struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 50};
            SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
            syn_must(drain_batches(plan, &got, NULL, &err), &err);
        } else {
            syn_must(drain_runs(plan, &got, &err), &err);
        }
        sorted(&got);
        same(&got, &expect);
        free(got.id);
        free(expect.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* All that was charged comes back, also when the user keeps runs beyond the iterator. */
static void budget_comes_back(void **state) {
    (void)state;
    struct syn_shard table[6];
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 5);
    for (unsigned round = 0; round < 20; round++) {
        random_table(&rng, table, 6);
        struct sqrl_context *context = syn_context(3, 0);
        struct sqrl_source *source = syn_source(context, table, 6);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct sqrl_iterator *it;
        struct sqrl_run *kept[64];
        unsigned runs = 0;
        if (round % 2)
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 3000, SYN_OUT));
        syn_must(sqrl_iterator_open(plan, &it, &err), &err);
        unsigned most = (unsigned)below(&rng, 64);
        while (runs < most) {
            syn_must(sqrl_iterator_next_run(it, &kept[runs], &err), &err);
            if (!kept[runs])
                break;
            runs++;
        }
        sqrl_iterator_close(it);
        for (unsigned i = 0; i < runs; i++) {
            assert_true(kept[i]->samples[0].block->tape.count > 0);
            sqrl_run_release(kept[i]);
        }
        for (unsigned wait = 0; sqrl_budget_used(context) && wait < 2000; wait++)
            usleep(1000); /* workers are letting go */
        assert_int_equal(sqrl_budget_used(context), 0);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* list(stream): batches that a user keeps do not stop the stream, whatever the budget. */
static void kept_batches(void **state) {
    (void)state;
    struct syn_shard table[4];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 4; s++) {
        table[s].blocks = 20;
        for (unsigned b = 0; b < 20; b++)
            table[s].samples[b] = 50;
    }
    struct sqrl_context *context = syn_context(2, 1 << 16);
    struct sqrl_source *source = syn_source(context, table, 4);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_batch *batch[200];
    unsigned count = 0;
    struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 20};
    SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    do
        syn_must(sqrl_iterator_next_batch(it, &batch[count], &err), &err);
    while (batch[count] && ++count < 200);
    assert_int_equal(count, 200);
    sqrl_iterator_close(it);
    for (unsigned i = 0; i < count; i++) {
        int64_t *id = sqrl_batch_column(batch[i], "id")->data;
        assert_int_equal(batch[i]->number, i);
        for (unsigned r = 0; r < 20; r++)
            assert_int_equal(id[r], i / 50 * 100000 + i % 50 * 20 + r);
        sqrl_batch_unref(batch[i]);
    }
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

static void many_tiny_shards(void **state) {
    (void)state;
    enum { SHARDS = 10000 };
    struct syn_shard *table = calloc(SHARDS, sizeof *table);
    for (unsigned s = 0; s < SHARDS; s++) {
        table[s].indexed = s % 3 == 0;
        table[s].blocks = 1;
        table[s].samples[0] = s % 3;
    }
    struct sqrl_context *context = syn_context(4, 0);
    struct sqrl_source *source = syn_source(context, table, SHARDS);
    struct sqrl_error err;
    for (unsigned mode = 0; mode < 2; mode++) {
        struct sqrl_plan *plan = syn_plan(source);
        struct list got = {0}, expect = {0};
        model(table, SHARDS, &expect);
        if (mode)
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 1 << 20, SYN_OUT));
        syn_must(drain_runs(plan, &got, &err), &err);
        if (mode)
            sorted(&got);
        same(&got, &expect);
        free(got.id);
        free(expect.id);
        sqrl_plan_unref(plan);
    }
    sqrl_source_unref(source);
    sqrl_context_unref(context);
    free(table);
}

/* --- ending early --- */
struct canceller {
    struct sqrl_iterator *it;
    unsigned after_us;
};
static void *cancel_later(void *arg) {
    struct canceller *c = arg;
    usleep(c->after_us);
    sqrl_iterator_cancel(c->it);
    return NULL;
}

static void cancel_and_close(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 77);
    for (unsigned round = 0; round < 120; round++) {
        struct syn_shard table[8];
        random_table(&rng, table, 8);
        struct sqrl_context *context = syn_context(1 + (unsigned)below(&rng, 6), 0);
        struct sqrl_source *source = syn_source(context, table, 8);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct sqrl_iterator *it;
        bool batches = below(&rng, 2), cancel = below(&rng, 2);
        if (below(&rng, 2))
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, round, 2000, SYN_OUT));
        struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 8};
        if (batches)
            SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
        syn_must(sqrl_iterator_open(plan, &it, &err), &err);
        sqrl_plan_unref(plan); /* the iterator has its own references */
        sqrl_source_unref(source);
        struct canceller canceller = {it, (unsigned)below(&rng, 1500)};
        pthread_t thread;
        if (cancel)
            assert_int_equal(pthread_create(&thread, NULL, cancel_later, &canceller), 0);
        unsigned most = (unsigned)below(&rng, 40);
        int rc = SQRL_OK;
        for (unsigned i = 0; i < most && !rc; i++) {
            struct sqrl_batch *batch = NULL;
            struct sqrl_run *run = NULL;
            rc = batches ? sqrl_iterator_next_batch(it, &batch, &err)
                         : sqrl_iterator_next_run(it, &run, &err);
            sqrl_batch_unref(batch);
            sqrl_run_release(run);
            if (!rc && !batch && !run)
                break;
        }
        if (rc) {
            assert_true(cancel);
            assert_int_equal(rc, SQRL_E_CANCELLED);
        }
        if (cancel)
            pthread_join(thread, NULL);
        sqrl_iterator_close(it);
        sqrl_context_unref(context);
    }
}

/* A consumer that waits for a slow block is woken at once. */
static void cancel_wakes(void **state) {
    (void)state;
    struct syn_shard table[1] = {{.blocks = 1, .samples = {3}, .slow_us = 400000}};
    struct sqrl_context *context = syn_context(1, 0);
    struct sqrl_source *source = syn_source(context, table, 1);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_run *run;
    pthread_t thread;
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    uint64_t begin = sqrl_now_ns();
    assert_false(sqrl_iterator_wait(it, 20000000));
    assert_true(sqrl_now_ns() - begin >= 19000000);
    struct canceller canceller = {it, 20000};
    assert_int_equal(pthread_create(&thread, NULL, cancel_later, &canceller), 0);
    assert_int_equal(sqrl_iterator_next_run(it, &run, &err), SQRL_E_CANCELLED);
    assert_true(sqrl_now_ns() - begin < 350000000);
    assert_int_equal(sqrl_iterator_next_run(it, &run, &err), SQRL_E_CANCELLED);
    assert_true(sqrl_iterator_wait(it, UINT64_MAX));
    pthread_join(thread, NULL);
    begin = sqrl_now_ns();
    sqrl_iterator_close(it); /* does not wait for the block */
    assert_true(sqrl_now_ns() - begin < 100000000);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

static void wrong_calls(void **state) {
    (void)state;
    struct syn_shard table[1] = {{.blocks = 1, .samples = {3}}};
    struct sqrl_context *context = syn_context(1, 0);
    struct sqrl_source *source = syn_source(context, table, 1);
    struct sqrl_plan *plan = syn_plan(source), *bad = NULL;
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_batch *batch;
    struct sqrl_run *run;
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    assert_int_equal(sqrl_iterator_next_batch(it, &batch, &err), SQRL_E_STATE);
    sqrl_iterator_close(it);
    sqrl_iterator_close(NULL);
    struct sqrl_batch_options o = {.size = sizeof o};
    assert_int_equal(sqrl_plan_batch(plan, &o, &bad, &err), SQRL_E_INVALID);
    o.batch_size = 2;
    o.max_bytes = 3;
    assert_int_equal(sqrl_plan_batch(plan, &o, &bad, &err), SQRL_E_INVALID);
    o.max_bytes = 0;
    SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
    assert_int_equal(sqrl_plan_batch(plan, &o, &bad, &err), SQRL_E_INVALID);
    assert_int_equal(sqrl_plan_filter(plan, "id == 1", &bad, &err), SQRL_E_INVALID);
    assert_int_equal(sqrl_plan_shuffle_all(plan, 1, 0, &bad, &err), SQRL_E_INVALID);
    const char *name = "id";
    assert_int_equal(sqrl_plan_select(plan, &name, 1, &bad, &err), SQRL_E_INVALID);
    assert_null(bad);
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    assert_int_equal(sqrl_iterator_next_run(it, &run, &err), SQRL_E_STATE);
    sqrl_iterator_close(it);
    sqrl_plan_unref(plan);
    plan = syn_plan(source);
    SYN_STAGE(plan, sqrl_plan_take(plan, 1, SYN_OUT));
    assert_int_equal(sqrl_plan_shuffle_all(plan, 1, 0, &bad, &err), SQRL_E_INVALID);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* Plans go on in a child; an iterator that was running says what to do. */
static void after_fork(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    print_message("skipped: ThreadSanitizer starts no threads in a child of a fork\n");
    skip();
#endif
    struct syn_shard table[4];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 4; s++) {
        table[s].blocks = 10;
        for (unsigned b = 0; b < 10; b++)
            table[s].samples[b] = 20;
    }
    for (unsigned round = 0; round < 5; round++) {
        struct sqrl_context *context = syn_context(2, 0);
        struct sqrl_source *source = syn_source(context, table, 4);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct sqrl_iterator *it;
        struct sqrl_run *run;
        syn_must(sqrl_iterator_open(plan, &it, &err), &err);
        syn_must(sqrl_iterator_next_run(it, &run, &err), &err);
        sqrl_run_release(run);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct sqrl_stage_stats stats[4];
            struct list got = {0};
            bool good = sqrl_iterator_next_run(it, &run, &err) == SQRL_E_STATE && !run &&
                        sqrl_iterator_wait(it, 1000) &&
                        sqrl_iterator_stats(it, stats, 4) == 4;
            sqrl_iterator_cancel(it);
            sqrl_iterator_close(it);
            alarm(20);
            good = good && drain_runs(plan, &got, &err) == SQRL_OK && got.count == 800;
            _exit(good ? 0 : 1);
        }
        int status = 1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        uint64_t rest = 20;
        for (;;) {
            syn_must(sqrl_iterator_next_run(it, &run, &err), &err);
            if (!run)
                break;
            rest += run->count;
            sqrl_run_release(run);
        }
        assert_int_equal(rest, 800);
        sqrl_iterator_close(it);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* Allocation n fails, for n = 1, 2, ... until all is well: an error, nothing lost, no
 * crash. */
static void allocation_faults(void **state) {
    (void)state;
    struct syn_shard table[3] = {{.indexed = 1, .blocks = 2, .samples = {5, 9}},
                                 {.blocks = 2, .samples = {4, 3}},
                                 {.indexed = 1, .known = 1, .blocks = 1, .samples = {6}}};
    for (unsigned mode = 0; mode < 4; mode++) {
        bool whole = false;
        for (uint64_t n = 1; !whole && n < 3000; n++) {
            struct sqrl_context *context = syn_context(2, 0);
            struct sqrl_source *source = syn_source(context, table, 3);
            struct sqrl_plan *plan = syn_plan(source);
            struct sqrl_error err;
            struct list got = {0};
            SYN_STAGE(plan, sqrl_plan_filter(plan, "id != 100001", SYN_OUT));
            if (mode & 1)
                SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 600, SYN_OUT));
            struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 4};
            if (mode & 2)
                SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
            sqrl_error_clear(&err);
            sqrl_fail_allocation(n);
            int rc = mode & 2 ? drain_batches(plan, &got, NULL, &err)
                              : drain_runs(plan, &got, &err);
            sqrl_fail_allocation(0);
            if (rc)
                assert_int_equal(rc, SQRL_E_NO_MEMORY);
            else
                assert_int_equal(got.count, 26);
            whole = rc == SQRL_OK && n > 400;
            free(got.id);
            sqrl_plan_unref(plan);
            sqrl_source_unref(source);
            sqrl_context_unref(context);
        }
        assert_true(whole);
    }
}

/* Native shards as the packer writes them: sizes are known, so windows are planned. */
static void native_shards(void **state) {
    (void)state;
    struct sqrl_error err;
    struct sqrl_context *context = syn_context(3, 0);
    struct sqrl_packer *packer;
    struct sqrl_pack_options options = {
        .size = sizeof options, .samples_per_shard = 700, .block_bytes = 4096};
    syn_must(sqrl_packer_open(context, "mem://native", &options, &packer, &err), &err);
    struct list expect = {0};
    for (uint64_t i = 0; i < 3000; i++) {
        syn_must(write_sample(sqrl_packer_bytes(packer), i / 700, i % 700), &err);
        syn_must(sqrl_packer_accept(packer, &err), &err);
        list_add(&expect, i / 700 * 100000 + i % 700);
    }
    syn_must(sqrl_packer_finish(packer, NULL, &err), &err);
    struct sqrl_source *source;
    syn_must(sqrl_open(context, "mem://native", NULL, &source, &err), &err);
    uint64_t last_first = 0;
    for (unsigned seed = 0; seed < 12; seed++) {
        struct sqrl_plan *plan = syn_plan(source);
        struct list got = {0}, batches = {0};
        if (seed)
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, seed, 100000, SYN_OUT));
        syn_must(drain_runs(plan, &got, &err), &err);
        struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 64};
        SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
        syn_must(drain_batches(plan, &batches, NULL, &err), &err);
        same(&batches, &got);
        assert_true(!seed || got.id[0] != last_first || got.id[1] != 1);
        last_first = got.id[0];
        if (seed) { /* of 3000, the first 100 come from many places */
            unsigned shards = 0;
            for (unsigned i = 0; i < 100; i++)
                shards |= 1u << got.id[i] / 100000;
            assert_true(__builtin_popcount(shards) >= 3);
            sorted(&got);
        }
        same(&got, &expect);
        free(got.id);
        free(batches.id);
        sqrl_plan_unref(plan);
    }
    struct sqrl_plan *plan = syn_plan(source);
    struct list got = {0};
    SYN_STAGE(plan, sqrl_plan_skip(plan, 2999, SYN_OUT));
    syn_must(drain_runs(plan, &got, &err), &err);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.id[0], 400199);
    free(got.id);
    free(expect.id);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* --- several iterators at once, on one pool --- */
struct consumer {
    struct sqrl_plan *plan;
    struct list got;
    int rc;
};
static void *consume(void *arg) {
    struct consumer *c = arg;
    c->rc = drain_runs(c->plan, &c->got, NULL);
    return NULL;
}

static void many_iterators(void **state) {
    (void)state;
    struct syn_shard table[10];
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 3);
    random_table(&rng, table, 10);
    struct sqrl_context *context = syn_context(3, 0);
    struct sqrl_source *source = syn_source(context, table, 10);
    struct sqrl_plan *plan = syn_plan(source), *shuffled = syn_plan(source);
    SYN_STAGE(shuffled, sqrl_plan_shuffle_all(shuffled, 9, 2000, SYN_OUT));
    struct consumer consumer[12];
    pthread_t thread[12];
    struct list expect = {0};
    model(table, 10, &expect);
    for (unsigned i = 0; i < 12; i++) {
        consumer[i] = (struct consumer){i % 2 ? shuffled : plan, {0}, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, consume, &consumer[i]), 0);
    }
    for (unsigned i = 0; i < 12; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(consumer[i].rc, SQRL_OK);
        same(&consumer[i].got, i % 2 ? &consumer[1].got : &expect);
    }
    for (unsigned i = 0; i < 12; i++)
        free(consumer[i].got.id);
    free(expect.id);
    sqrl_plan_unref(plan);
    sqrl_plan_unref(shuffled);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

static void stats_add_up(void **state) {
    (void)state;
    struct syn_shard table[2] = {{.blocks = 3, .samples = {5, 9, 2}, .slow_us = 2000},
                                 {.blocks = 2, .samples = {4, 3}}};
    struct sqrl_context *context = syn_context(2, 0);
    struct sqrl_source *source = syn_source(context, table, 2);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_batch *batch;
    struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 4};
    SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    for (;;) {
        syn_must(sqrl_iterator_next_batch(it, &batch, &err), &err);
        if (!batch)
            break;
        sqrl_batch_unref(batch);
    }
    struct sqrl_stage_stats stats[4];
    assert_int_equal(sqrl_iterator_stats(it, stats, 4), 4);
    assert_string_equal(stats[0].name, "load");
    assert_int_equal(stats[0].items, 23);
    assert_int_equal(stats[2].items, 23);
    assert_int_equal(stats[3].items, 6);
    assert_true(stats[0].busy_ns > 6000000); /* three blocks of 2 ms */
    assert_true(stats[3].wait_ns > 1000000); /* the consumer was faster */
    double sum = 0;
    for (unsigned i = 0; i < 4; i++)
        sum += stats[i].wait_share;
    assert_true(sum > 0.999 && sum < 1.001);
    sqrl_iterator_close(it);
    char *text = sqrl_plan_describe(plan);
    assert_string_equal(text, "source('mem://syn') -> batch(4)");
    free(text);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_order),
        cmocka_unit_test(shuffled_order),
        cmocka_unit_test(stages_in_plan_order),
        cmocka_unit_test(skip_reads_nothing),
        cmocka_unit_test(take_stops_reading),
        cmocka_unit_test(errors_in_place),
        cmocka_unit_test(shuffled_error),
        cmocka_unit_test(filter_error_names_sample),
        cmocka_unit_test(larger_than_budget),
        cmocka_unit_test(budget_comes_back),
        cmocka_unit_test(kept_batches),
        cmocka_unit_test(many_tiny_shards),
        cmocka_unit_test(cancel_and_close),
        cmocka_unit_test(cancel_wakes),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(after_fork),
        cmocka_unit_test(allocation_faults),
        cmocka_unit_test(native_shards),
        cmocka_unit_test(many_iterators),
        cmocka_unit_test(stats_add_up),
    };
    syn_writer = write_sample;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
