/* The executor against a slow plain model: every sample exactly once, in the same order
 * on any number of threads. */
#include "support/synthetic.h"

static void write_sample(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
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
    rc |= sqrl_msgpack_put_string(out, text, (size_t)n, &err);
    assert_int_equal(rc, 0);
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
    syn_writer = write_sample;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
