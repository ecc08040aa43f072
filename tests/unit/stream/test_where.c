/* Subsets and sources by expression, against arithmetic; each allocation fails once. */
#include "../driver/opening.h"

#include "io/io.h"
#include "sqrl/stream.h"

enum { COUNT = 3000 };

static const char *pack(const char *name, const char *codec) {
    struct sqrl_setting items[] = {
        {"codec", codec}, {"key", "name"}, {"index", "n,name,even"}};
    struct sqrl_settings settings = {items, 3};
    struct sqrl_pack_options options = {.size = sizeof options,
                                        .samples_per_shard = 700,
                                        .block_bytes = 1500,
                                        .settings = &settings};
    struct sqrl_packer *packer = NULL;
    assert_int_equal(sqrl_packer_open(context, at(name), &options, &packer, NULL),
                     SQRL_OK);
    for (uint64_t i = 0; i < COUNT; i++) {
        char text[32];
        int size = snprintf(text, sizeof text, "sample %u", (unsigned)i);
        struct sqrl_bytes *b = sqrl_packer_bytes(packer);
        assert_int_equal(sqrl_msgpack_put_map(b, 3, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(b, "n", 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_uint(b, i, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(b, "name", 4, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(b, text, (size_t)size, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(b, "even", 4, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_bool(b, i % 2 == 0, NULL), SQRL_OK);
        assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
    }
    assert_int_equal(sqrl_packer_finish(packer, NULL, NULL), SQRL_OK);
    return at(name);
}

static struct sqrl_source *open_source(const char *url) {
    struct sqrl_source *source = NULL;
    assert_int_equal(sqrl_open(context, url, NULL, &source, NULL), SQRL_OK);
    return source;
}

static uint64_t number_of(const struct sqrl_sample *sample) {
    const struct sqrl_block *block = sample->block;
    uint32_t at = sqrl_map_find(block->tape.nodes, block->begin[sample->index],
                                block->bytes->data, "n", 1);
    assert_int_not_equal(at, SQRL_NO_NODE);
    return block->tape.nodes[at].v.u;
}

/* The view holds numbers first, first + step, ...: by position and by running it. */
static void expect(struct sqrl_source *view, uint64_t first, uint64_t step,
                   uint64_t count) {
    assert_int_equal(sqrl_source_samples(view), count);
    struct sqrl_plan *plan = NULL;
    struct sqrl_iterator *iterator = NULL;
    assert_int_equal(sqrl_plan_source(view, &plan, NULL), SQRL_OK);
    assert_int_equal(sqrl_iterator_open(plan, &iterator, NULL), SQRL_OK);
    uint64_t at = 0;
    for (struct sqrl_run *run;;) {
        assert_int_equal(sqrl_iterator_next_run(iterator, &run, NULL), SQRL_OK);
        if (!run)
            break;
        for (uint32_t i = 0; i < run->count; i++, at++)
            assert_int_equal(number_of(&run->samples[i]), first + at * step);
        sqrl_run_release(run);
    }
    assert_int_equal(at, count);
    sqrl_iterator_close(iterator);
    sqrl_plan_unref(plan);
    for (uint64_t i = 0; i < count; i += 1 + count / 50) {
        struct sqrl_samples *samples = NULL;
        uint64_t shard, row, back, number = first + i * step;
        assert_int_equal(sqrl_source_get_many(view, &i, 1, NULL, &samples, NULL),
                         SQRL_OK);
        assert_int_equal(number_of(&samples->samples[0]), number);
        sqrl_samples_release(samples);
        assert_int_equal(sqrl_source_locate(view, i, &shard, &row, NULL), SQRL_OK);
        assert_int_equal(shard * 700 + row, number);
        assert_int_equal(sqrl_source_position(view, shard, row, &back, NULL), SQRL_OK);
        assert_int_equal(back, i);
    }
}

static void test_subset(void **state) {
    static const char *const codecs[] = {"zstd", "none"};
    for (unsigned turn = 0; turn < 2; turn++) {
        struct sqrl_source *source = open_source(pack(turn ? "b" : "a", codecs[turn]));
        uint64_t positions[COUNT];
        for (uint64_t step = 1; step < 2000; step = 3 * step + 1) {
            uint64_t count = 0;
            for (uint64_t i = 5; i < COUNT; i += step)
                positions[count++] = i;
            struct sqrl_source *view = NULL, *again = NULL;
            assert_int_equal(sqrl_source_subset(source, positions, count, &view, NULL),
                             SQRL_OK);
            expect(view, 5, step, count);
            uint64_t some = 0; /* of the subset every third, from its second one on */
            for (uint64_t i = 1; i < count; i += 3)
                positions[some++] = i;
            assert_int_equal(sqrl_source_subset(view, positions, some, &again, NULL),
                             SQRL_OK);
            sqrl_source_unref(view);
            expect(again, 5 + step, 3 * step, some);
            positions[0] = count;
            assert_int_equal(sqrl_source_subset(again, positions, 1, &view, NULL),
                             SQRL_E_INVALID);
            sqrl_source_unref(again);
        }
        struct sqrl_source *view = NULL;
        uint64_t wrong[][2] = {{3, 3}, {4, 2}, {1, COUNT}};
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(sqrl_source_subset(source, wrong[i], 2, &view, NULL),
                             SQRL_E_INVALID);
        sqrl_source_unref(source);
    }
}

static void test_where(void **state) {
    struct sqrl_source *source = open_source(pack("where", "zstd")), *view = NULL;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_source_where(source, "even and n >= 100", &view, NULL),
                     SQRL_OK);
    expect(view, 100, 2, (COUNT - 100) / 2);
    uint64_t index;
    struct sqrl_key key = {"sample 200", 10, 0};
    assert_int_equal(sqrl_source_find(view, &key, &index, NULL), SQRL_OK);
    assert_int_equal(index, 50);
    key.bytes = "sample 201";
    assert_int_equal(sqrl_source_find(view, &key, &index, NULL), SQRL_E_NOT_FOUND);
    struct sqrl_source *both = NULL, *none = NULL;
    assert_int_equal(sqrl_source_where(view, "n < 2000 and n >= 10", &both, NULL),
                     SQRL_OK);
    sqrl_source_unref(view);
    expect(both, 100, 2, (2000 - 100) / 2);
    assert_int_equal(sqrl_source_find(both, &key, &index, NULL), SQRL_E_NOT_FOUND);
    key.bytes = "sample 200";
    assert_int_equal(sqrl_source_find(both, &key, &index, NULL), SQRL_OK);
    assert_int_equal(index, 50);
    assert_int_equal(sqrl_source_where(both, "not even", &none, NULL), SQRL_OK);
    assert_int_equal(sqrl_source_samples(none), 0);
    sqrl_source_unref(none);
    sqrl_source_unref(both);
    assert_int_equal(sqrl_source_where(source, "name == 'sample 7'", &view, NULL),
                     SQRL_OK);
    expect(view, 7, 1, 1);
    sqrl_source_unref(view);
    /* As many samples, but others: what states go by differs. */
    static const char *const choices[] = {"even", "not even", "even"};
    uint64_t sums[3];
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sqrl_source_where(source, choices[i], &view, NULL), SQRL_OK);
        assert_int_equal(sqrl_source_samples(view), COUNT / 2);
        sums[i] = sqrl_source_shard(view, 0)->checksum;
        sqrl_source_unref(view);
    }
    assert_true(sums[0] != sums[1] && sums[0] == sums[2]);
    assert_int_equal(sqrl_source_where(source, "missing > 3", &view, &err),
                     SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "index="));
    sqrl_source_unref(source);
}

/* Many keys, in any order and twice, of local shards and of far ones, which are asked in
 * parallel: the same positions, in one read a shard. */
static void test_find_many(void **state) {
    enum { KEYS = 2 * COUNT };
    const char *url = pack("many", "none");
    struct sqrl_link link = {.size = sizeof link};
    struct sqrl_fs *local = NULL, *far = NULL;
    struct sqrl_fs_metrics before, after;
    assert_int_equal(sqrl_fs_new(context, &sqrl_fs_local, NULL, &local, NULL), SQRL_OK);
    assert_int_equal(sqrl_fs_throttle(local, &link, &far, NULL), SQRL_OK);
    struct sqrl_source *source[2] = {open_source(url), NULL};
    assert_int_equal(sqrl_open_in(context, far, "far", url, NULL, &source[1], NULL),
                     SQRL_OK);
    char(*text)[24] = test_malloc(KEYS * sizeof *text);
    struct sqrl_key *key = test_malloc(KEYS * sizeof *key);
    uint64_t *index = test_malloc(KEYS * sizeof *index);
    for (unsigned i = 0; i < KEYS; i++) /* 1,009 has no factor with 3,000 */
        key[i] = (struct sqrl_key){
            text[i],
            (size_t)snprintf(text[i], sizeof text[i], "sample %u", i * 1009 % COUNT), 0};
    for (unsigned turn = 0; turn < 4; turn++) {
        sqrl_source_metrics(source[turn % 2], &before);
        assert_int_equal(
            sqrl_source_find_many(source[turn % 2], key, KEYS, NULL, index, NULL),
            SQRL_OK);
        sqrl_source_metrics(source[turn % 2], &after);
        for (unsigned i = 0; i < KEYS; i++)
            assert_int_equal(index[i], i * 1009 % COUNT);
        if (turn == 3) /* five shards; their indexes and blocks are there already */
            assert_int_equal(after.requests - before.requests, 5);
    }
    struct sqrl_error err = {0};
    key[7].size = key[9].size = 3; /* "sam" */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sqrl_source_find_many(source[i], key, 10, NULL, index, &err),
                         SQRL_E_NOT_FOUND);
        assert_non_null(strstr(err.message, "the key \"sam\""));
        assert_true(index[7] == SQRL_UNKNOWN && index[8] == 8 * 1009 % COUNT);
        struct sqrl_cancel cancel = {1};
        assert_int_equal(sqrl_source_find_many(source[i], key, 5, &cancel, index, NULL),
                         SQRL_E_CANCELLED);
        sqrl_source_unref(source[i]);
    }
    test_free(text);
    test_free(key);
    test_free(index);
    sqrl_fs_unref(far);
    sqrl_fs_unref(local);
}

static void test_allocations(void **state) {
    const char *url = pack("memory", "zstd");
    struct sqrl_key key = {"sample 2999", 11, 0};
    for (uint64_t n = 1, done = 0; !done; n += 1 + n / 50) {
        struct sqrl_source *source = open_source(url), *view = NULL;
        uint64_t index = 0;
        sqrl_fail_allocation(n);
        int rc = sqrl_source_where(source, "name contains '99' and even", &view, NULL);
        if (rc == SQRL_OK)
            rc = sqrl_source_find(source, &key, &index, NULL);
        sqrl_fail_allocation(0);
        done = rc == SQRL_OK;
        if (!done)
            assert_int_equal(rc, SQRL_E_NO_MEMORY);
        sqrl_source_unref(view);
        sqrl_source_unref(source);
        assert_true(n < 100000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subset),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_find_many),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, opening_setup, opening_teardown);
}
