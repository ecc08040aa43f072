/* The executor against a slow plain model: every sample exactly once, in the same order
 * on any number of threads, stages in plan order. */
#include "sqrl/pack.h"
#include "support/stream_model.h"

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
    unsigned mixed = 0;
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
            assert_true(__builtin_popcount(shards) >= 2);
            mixed += __builtin_popcount(shards) >= 3;
            sorted(&got);
        }
        same(&got, &expect);
        free(got.id);
        free(batches.id);
        sqrl_plan_unref(plan);
    }
    assert_true(mixed >= 9);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_order),          cmocka_unit_test(shuffled_order),
        cmocka_unit_test(stages_in_plan_order), cmocka_unit_test(skip_reads_nothing),
        cmocka_unit_test(take_stops_reading),   cmocka_unit_test(native_shards),
    };
    syn_writer = write_sample;
    return cmocka_run_group_tests(tests, NULL, syn_settle);
}
