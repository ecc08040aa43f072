/* Samples by position: against arithmetic, over random layouts, on many threads; what it
 * costs, counted where the file system is called; ranges, damage and failing reads. */
#include <pthread.h>

#include "opening.h"

#include "support/fault_fs.h"

static const char *fault_at(const char *name) {
    static char url[300];
    snprintf(url, sizeof url, "fault://%s", at(name));
    return url;
}

/* {"i": n, "pad": n % 97 times a letter} */
static void put_sample(struct sqrl_packer *packer, uint64_t i) {
    char pad[100];
    memset(pad, 'a' + (int)(i % 26), sizeof pad);
    struct sqrl_bytes *bytes = sqrl_packer_bytes(packer);
    assert_int_equal(sqrl_msgpack_put_map(bytes, 2, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(bytes, "i", 1, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_uint(bytes, i, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(bytes, "pad", 3, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(bytes, pad, i % 97, NULL), SQRL_OK);
    assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
}

static void pack_samples(const char *url, uint64_t count, uint64_t per_shard,
                         uint64_t block_bytes, const char *codec) {
    struct sqrl_setting setting = {"codec", codec};
    struct sqrl_settings settings = {&setting, 1};
    struct sqrl_pack_options options = {.size = sizeof options,
                                        .samples_per_shard = per_shard,
                                        .block_bytes = block_bytes,
                                        .prefix = "p",
                                        .settings = &settings};
    struct sqrl_packer *packer = NULL;
    assert_int_equal(sqrl_packer_open(context, url, &options, &packer, NULL), SQRL_OK);
    for (uint64_t i = 0; i < count; i++)
        put_sample(packer, i);
    assert_int_equal(sqrl_packer_finish(packer, NULL, NULL), SQRL_OK);
}

static struct sqrl_source *open_source(const char *url) {
    struct sqrl_source *source = NULL;
    struct sqrl_error err = {0};
    if (sqrl_open(context, url, NULL, &source, &err))
        fail_msg("%s: %s: %s", url, err.where, err.message);
    return source;
}

/* Not through cmocka, so that threads may ask it. */
static bool is_sample(const struct sqrl_sample *sample, uint64_t i) {
    char want[160];
    int n =
        snprintf(want, sizeof want, "{\"i\": %llu, \"pad\": \"", (unsigned long long)i);
    memset(want + n, 'a' + (int)(i % 26), i % 97);
    n += (int)(i % 97);
    memcpy(want + n, "\"}", 2);
    struct sqrl_bytes json = {0};
    const struct sqrl_block *block = sample->block;
    bool same = sqrl_json_encode(&json, block->tape.nodes, block->begin[sample->index],
                                 block->bytes->data, NULL) == SQRL_OK &&
                json.size == (size_t)n + 2 && memcmp(json.data, want, json.size) == 0;
    sqrl_bytes_reset(&json);
    return same;
}

static bool check_many(struct sqrl_source *source, const uint64_t *indices,
                       size_t count) {
    struct sqrl_samples *samples = NULL;
    if (sqrl_source_get_many(source, indices, count, NULL, &samples, NULL))
        return false;
    bool same = samples->count == count;
    for (size_t i = 0; same && i < count; i++)
        same = is_sample(&samples->samples[i], indices[i]);
    sqrl_samples_release(samples);
    return same;
}

static void test_layouts(void **state) {
    static const char *const codecs[] = {"zstd", "lz4", "none"};
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 7);
    for (unsigned turn = 0; turn < 30; turn++) {
        uint64_t count = 1 + sqrl_rng_below(&rng, 3000);
        uint64_t per_shard = 1 + sqrl_rng_below(&rng, turn % 3 ? 3000 : 40);
        char name[32];
        snprintf(name, sizeof name, "layout-%u", turn);
        pack_samples(at(name), count, per_shard, 1 + sqrl_rng_below(&rng, 20000),
                     codecs[turn % 3]);
        struct sqrl_source *source = open_source(at(name));
        assert_int_equal(sqrl_source_samples(source), count);
        uint64_t indices[700];
        for (unsigned calls = 0; calls < 4; calls++) {
            size_t n = calls == 3 ? 1 : (size_t)sqrl_rng_below(&rng, 700);
            for (size_t i = 0; i < n; i++)
                indices[i] = sqrl_rng_below(&rng, count);
            if (!check_many(source, indices, n))
                fail_msg("layout %u, call %u", turn, calls);
        }
        for (size_t i = 0; i < 700; i++) /* a run of neighbours */
            indices[i] = i % count;
        assert_true(check_many(source, indices, 700));
        for (uint64_t i = 0; i < count; i += 1 + count / 7) {
            uint64_t shard, row, back;
            assert_int_equal(sqrl_source_locate(source, i, &shard, &row, NULL), SQRL_OK);
            assert_int_equal(shard, i / per_shard);
            assert_int_equal(row, i % per_shard);
            assert_int_equal(sqrl_source_position(source, shard, row, &back, NULL),
                             SQRL_OK);
            assert_int_equal(back, i);
        }
        sqrl_source_unref(source);
    }
}

/* Requests and ranges since the last call. */
static void expect_reads(unsigned reads, unsigned ranges) {
    static unsigned before[2];
    if (reads != UINT32_MAX) {
        unsigned got = fault_fs_shared.reads - before[0];
        if (got != reads || fault_fs_shared.ranges - before[1] != ranges)
            fail_msg("%u reads of %u ranges, expected %u of %u", got,
                     fault_fs_shared.ranges - before[1], reads, ranges);
    }
    before[0] = fault_fs_shared.reads;
    before[1] = fault_fs_shared.ranges;
}

/* 100 samples of 60 to 160 bytes, a block each; 20 a shard. */
static void test_cost(void **state) {
    fault_fs_shared = (struct fault_plan){0};
    pack_samples(at("cost"), 100, 20, 1, "zstd");
    struct sqrl_source *source = open_source(fault_at("cost"));
    expect_reads(UINT32_MAX, 0);
    uint64_t one[] = {50}, other[] = {51}, run[] = {42, 41, 44, 43, 43}, two[] = {45, 48},
             far[] = {46, 90};
    assert_true(check_many(source, one, 1)); /* the shard's index, and the block */
    expect_reads(2, 2);
    assert_true(check_many(source, other, 1)); /* its index is held */
    expect_reads(1, 1);
    assert_true(check_many(source, run, 5)); /* neighbours: one range */
    expect_reads(1, 1);
    assert_true(check_many(source, two, 2)); /* apart: one request of two ranges */
    expect_reads(1, 2);
    assert_true(check_many(source, far, 2)); /* another shard: its index and its block */
    expect_reads(3, 3);
    sqrl_source_unref(source);
}

static void test_cache(void **state) {
    fault_fs_shared = (struct fault_plan){0};
    pack_samples(at("cached"), 3000, 0, 100000, "zstd");
    struct sqrl_source *source = open_source(fault_at("cached"));
    uint64_t one[] = {1000}, same[] = {1001}, whole[3000];
    assert_true(check_many(source, one, 1));
    expect_reads(UINT32_MAX, 0);
    assert_true(check_many(source, same, 1)); /* its block is cached */
    expect_reads(0, 0);
    for (size_t i = 0; i < 3000; i++)
        whole[i] = i;
    assert_true(check_many(source, whole, 3000));
    expect_reads(UINT32_MAX, 0);
    assert_true(check_many(source, whole, 3000));
    expect_reads(0, 0);
    assert_in_range(sqrl_budget_used(context), 1, sqrl_budget_limit(context) / 4);
    sqrl_source_unref(source);
    assert_int_equal(sqrl_budget_used(context), 0);
}

static void test_errors(void **state) {
    pack_samples(at("errors"), 100, 30, 500, "zstd");
    struct sqrl_source *source = open_source(at("errors"));
    struct sqrl_samples *samples = NULL;
    struct sqrl_error err = {0};
    uint64_t behind[] = {3, 100};
    assert_int_equal(sqrl_source_get_many(source, behind, 2, NULL, &samples, &err),
                     SQRL_E_INVALID);
    assert_null(samples);
    assert_non_null(strstr(err.message, "no sample 100"));
    assert_non_null(strstr(err.message, "0 to 99"));
    assert_int_equal(sqrl_source_get_many(source, NULL, 0, NULL, &samples, &err),
                     SQRL_OK);
    assert_int_equal(samples->count, 0);
    sqrl_samples_release(samples);
    sqrl_samples_release(NULL);
    sqrl_source_unref(source);
    put_coded("lines.jsonl.gz", "gzip", "{\"a\": 1}\n{\"a\": 2}\n", 18);
    source = open_source(at("lines.jsonl.gz"));
    assert_int_equal(sqrl_source_get_many(source, behind, 1, NULL, &samples, &err),
                     SQRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "squirrel index"));
    assert_non_null(strstr(err.where, "lines.jsonl.gz"));
    sqrl_source_unref(source);
}

/* A flipped bit is an error that names shard and block; the other blocks are good. */
static void test_damage(void **state) {
    pack_samples(at("damage"), 200, 0, 1000, "none");
    size_t size;
    char *bytes = slurp(at("damage/p-000000.sqrl"), &size);
    bytes[size / 3] ^= 4;
    put("damage/p-000000.sqrl", bytes, size);
    free(bytes);
    struct sqrl_source *source = open_source(at("damage"));
    uint64_t all[200];
    unsigned bad = 0;
    struct sqrl_samples *samples = NULL;
    struct sqrl_error err = {0};
    for (uint64_t i = 0; i < 200; i++) {
        all[i] = i;
        if (check_many(source, &i, 1))
            continue;
        bad++;
        assert_int_equal(sqrl_source_get_many(source, &i, 1, NULL, &samples, &err),
                         SQRL_E_CORRUPT);
        assert_non_null(strstr(err.where, "damage/p-000000.sqrl: block "));
        assert_non_null(strstr(err.message, "checksum"));
    }
    assert_in_range(bad, 5, 40); /* one block's */
    assert_int_equal(sqrl_source_get_many(source, all, 200, NULL, &samples, &err),
                     SQRL_E_CORRUPT);
    assert_non_null(strstr(err.where, "damage/p-000000.sqrl: block "));
    assert_null(samples);
    sqrl_source_unref(source);
}

/* Each read fails once; afterwards all is there. */
static void test_failing_reads(void **state) {
    pack_samples(at("failing"), 600, 200, 2000, "zstd");
    uint64_t indices[300];
    for (size_t i = 0; i < 300; i++)
        indices[i] = (i * 7919) % 600;
    for (unsigned n = 1; n < 100; n++) {
        fault_fs_shared = (struct fault_plan){0};
        struct sqrl_source *source = open_source(fault_at("failing"));
        fault_fs_shared = (struct fault_plan){.fail_read = n};
        struct sqrl_samples *samples = NULL;
        struct sqrl_error err = {0};
        int rc = sqrl_source_get_many(source, indices, 300, NULL, &samples, &err);
        bool reached = fault_fs_shared.reads >= n;
        fault_fs_shared = (struct fault_plan){0};
        assert_int_equal(rc, reached ? SQRL_E_IO : SQRL_OK);
        sqrl_samples_release(samples);
        assert_true(check_many(source, indices, 300));
        sqrl_source_unref(source);
        if (!reached)
            return;
    }
    fail_msg("it always fails");
}

static void test_allocations(void **state) {
    pack_samples(at("memory"), 600, 200, 2000, "zstd");
    uint64_t indices[300];
    for (size_t i = 0; i < 300; i++)
        indices[i] = (i * 7919) % 600;
    for (uint64_t n = 1; n < 3000; n++) {
        struct sqrl_source *source = open_source(at("memory"));
        struct sqrl_samples *samples = NULL;
        sqrl_fail_allocation(n);
        int rc = sqrl_source_get_many(source, indices, 300, NULL, &samples, NULL);
        sqrl_fail_allocation(0);
        if (rc != SQRL_OK)
            assert_int_equal(rc, SQRL_E_NO_MEMORY);
        sqrl_samples_release(samples);
        assert_true(check_many(source, indices, 300));
        sqrl_source_unref(source);
        if (rc == SQRL_OK && n > 200)
            return;
    }
}

struct reader {
    pthread_t thread;
    struct sqrl_source *source;
    uint64_t seed;
    bool well;
};

static void *read_randomly(void *arg) {
    struct reader *reader = arg;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, reader->seed);
    reader->well = true;
    for (unsigned call = 0; reader->well && call < 20; call++) {
        uint64_t indices[500];
        size_t n = 1 + (size_t)sqrl_rng_below(&rng, 500);
        for (size_t i = 0; i < n; i++)
            indices[i] = sqrl_rng_below(&rng, 5000);
        reader->well = check_many(reader->source, indices, n);
    }
    return NULL;
}

static void test_threads(void **state) {
    pack_samples(at("threads"), 5000, 700, 3000, "lz4");
    struct reader readers[4];
    struct sqrl_source *source = open_source(at("threads"));
    for (unsigned i = 0; i < 4; i++) {
        readers[i] = (struct reader){.source = source, .seed = i};
        assert_int_equal(
            pthread_create(&readers[i].thread, NULL, read_randomly, &readers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_true(readers[i].well);
    }
    sqrl_source_unref(source);
}

static int setup(void **state) {
    return opening_setup(state) || fault_fs_register(context, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),     cmocka_unit_test(test_cost),
        cmocka_unit_test(test_cache),       cmocka_unit_test(test_errors),
        cmocka_unit_test(test_damage),      cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_allocations), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, setup, opening_teardown);
}
