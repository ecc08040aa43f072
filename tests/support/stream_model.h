/* stream_model.h - samples with an id, an image and a text, and a slow plain model of
 * their order, for tests of the executor. */
#ifndef TESTS_STREAM_MODEL_H
#define TESTS_STREAM_MODEL_H

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
static inline void model(const struct syn_shard *table, size_t count, struct list *out) {
    for (size_t s = 0; s < count; s++)
        for (uint64_t i = 0; i < syn_first(&table[s], table[s].blocks); i++)
            list_add(out, s * 100000 + i);
}

static inline int drain_runs(struct sqrl_plan *plan, struct list *out,
                             struct sqrl_error *err) {
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
            struct sqrl_place place = sqrl_block_place(block, run->samples[i].index);
            assert_int_equal(place.shard * 100000 + place.sample, nodes[node].v.u);
        }
        sqrl_run_release(run);
    }
    sqrl_iterator_close(it);
    return rc;
}

static inline int drain_batches(struct sqrl_plan *plan, struct list *out,
                                struct list *sizes, struct sqrl_error *err) {
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

static inline void same(const struct list *a, const struct list *b) {
    assert_int_equal(a->count, b->count);
    if (a->count)
        assert_memory_equal(a->id, b->id, a->count * sizeof *a->id);
}

static inline uint64_t below(struct sqrl_rng *rng, uint64_t n) {
    return sqrl_rng_below(rng, n);
}

static inline void random_table(struct sqrl_rng *rng, struct syn_shard *table,
                                size_t count) {
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

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
static inline void sorted(struct list *list) {
    if (list->count)
        qsort(list->id, list->count, sizeof *list->id, by_value);
}

#endif
