/* Sidecars through sqrl_open: a golden one that another implementation wrote; what
 * sqrl_index writes, while each read, write and allocation fails; several threads. */
#include "opening.h"

#include "driver/driver.h"
#include "support/fault_fs.h"

static const char *fault_at(const char *name) {
    static char url[300];
    snprintf(url, sizeof url, "fault://%s", at(name));
    return url;
}

static void expect_line(const struct sqrl_sample *sample, const char *want) {
    struct sqrl_bytes json = {0};
    const struct sqrl_block *block = sample->block;
    assert_int_equal(sqrl_json_encode(&json, block->tape.nodes,
                                      block->begin[sample->index], block->bytes->data,
                                      NULL),
                     SQRL_OK);
    assert_int_equal(json.size, strlen(want));
    assert_memory_equal(json.data, want, json.size);
    sqrl_bytes_reset(&json);
}

/* {"i": 0} ... one a line; free() it. */
static char *numbers(uint64_t count, const char *pad, size_t *size) {
    size_t line = strlen(pad) + 48;
    char *text = malloc(count * line + 1);
    *size = 0;
    for (uint64_t i = 0; i < count; i++)
        *size += (size_t)sprintf(text + *size, "{\"i\": %llu, \"pad\": \"%s%llu\"}\n",
                                 (unsigned long long)i, pad,
                                 (unsigned long long)(i * 2654435761u));
    return text;
}

static void expect_numbers(const char *url, uint64_t count, const char *pad) {
    struct sqrl_source *source = NULL;
    struct sqrl_samples *samples = NULL;
    struct sqrl_error err = {0};
    if (sqrl_open(context, url, NULL, &source, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(sqrl_source_samples(source), count);
    uint64_t indices[] = {count - 1, 0, count / 2, count / 3, count / 2};
    if (sqrl_source_get_many(source, indices, 5, NULL, &samples, &err))
        fail_msg("%s: %s", err.where, err.message);
    for (size_t i = 0; i < 5; i++) {
        char want[200];
        snprintf(want, sizeof want, "{\"i\": %llu, \"pad\": \"%s%llu\"}",
                 (unsigned long long)indices[i], pad,
                 (unsigned long long)(indices[i] * 2654435761u));
        expect_line(&samples->samples[i], want);
    }
    sqrl_samples_release(samples);
    sqrl_source_unref(source);
}

static void test_golden(void **state) {
    char path[512];
    const char *root = getenv("SQRL_GOLDEN");
    snprintf(path, sizeof path, "%s/sidecar/lines.jsonl.gz",
             root ? root : "tests/golden");
    struct sqrl_source *source = NULL;
    struct sqrl_samples *samples = NULL;
    struct sqrl_shard_reader *reader = NULL;
    assert_int_equal(sqrl_open(context, path, NULL, &source, NULL), SQRL_OK);
    assert_int_equal(sqrl_source_samples(source), 60);
    assert_int_equal(sqrl_shard_open(source, 0, &reader, NULL), SQRL_OK);
    assert_true(sqrl_shard_reader_indexed(reader));
    assert_int_equal(sqrl_shard_reader_info(reader)->blocks, 3);
    sqrl_shard_reader_unref(reader);
    uint64_t indices[60];
    for (size_t i = 0; i < 60; i++)
        indices[i] = 59 - i;
    assert_int_equal(sqrl_source_get_many(source, indices, 60, NULL, &samples, NULL),
                     SQRL_OK);
    for (size_t i = 0; i < 60; i++) {
        char want[64];
        snprintf(want, sizeof want, "{\"i\": %zu, \"text\": \"line %zu\"}", 59 - i,
                 59 - i);
        expect_line(&samples->samples[i], want);
    }
    sqrl_samples_release(samples);
    sqrl_source_unref(source);
    struct reading r;
    assert_int_equal(read_source(path, NULL, true, &r), SQRL_OK);
    assert_int_equal(r.samples, 60);
    reading_reset(&r);
}

/* 3 MB in one gzip member: places within it. */
static void test_one_member(void **state) {
    size_t size;
    char *text = numbers(60000, "some padding of the line, ", &size);
    put_coded("one.jsonl.gz", "gzip", text, size);
    put("one.jsonl", text, size);
    free(text);
    struct sqrl_pack_report report;
    static const char *const names[] = {"one.jsonl.gz", "one.jsonl"};
    for (size_t i = 0; i < 2; i++) {
        struct sqrl_error err = {0};
        if (sqrl_index(context, at(names[i]), NULL, false, &report, &err))
            fail_msg("%s: %s", err.where, err.message);
        assert_int_equal(report.samples, 60000);
        assert_in_range(report.blocks, 3, 8);
        expect_numbers(at(names[i]), 60000, "some padding of the line, ");
    }
}

/* Counted through the file system: a block costs one read of the file where its place is
 * near, and the index is read once. */
static void test_cost(void **state) {
    size_t size;
    char *text = numbers(60000, "more padding of the line, ", &size);
    put("cost.jsonl", text, size);
    free(text);
    assert_int_equal(sqrl_index(context, at("cost.jsonl"), NULL, false, NULL, NULL),
                     SQRL_OK);
    fault_fs_shared = (struct fault_plan){0};
    struct sqrl_source *source = NULL;
    struct sqrl_samples *samples = NULL;
    assert_int_equal(sqrl_open(context, fault_at("cost.jsonl"), NULL, &source, NULL),
                     SQRL_OK);
    assert_int_equal(sqrl_source_samples(source), 60000);
    unsigned before = fault_fs_shared.reads;
    for (uint64_t i = 0; i < 60000; i += 59999) {
        assert_int_equal(sqrl_source_get_many(source, &i, 1, NULL, &samples, NULL),
                         SQRL_OK);
        sqrl_samples_release(samples);
        assert_int_equal(fault_fs_shared.reads - before, 1);
        before++;
    }
    sqrl_source_unref(source);
}

static void test_faults(void **state) {
    size_t size;
    char *text = numbers(3000, "", &size);
    put_coded("faulty.jsonl.gz", "gzip", text, size);
    free(text);
    struct sqrl_error err = {0};
    for (unsigned n = 1, kind = 0; kind < 4; n++) {
        fault_fs_shared = (struct fault_plan){0};
        *(kind == 0   ? &fault_fs_shared.fail_read
          : kind == 1 ? &fault_fs_shared.fail_open
          : kind == 2 ? &fault_fs_shared.fail_write
                      : &fault_fs_shared.fail_commit) = n;
        int rc =
            sqrl_index(context, fault_at("faulty.jsonl.gz"), NULL, false, NULL, &err);
        fault_fs_shared = (struct fault_plan){0};
        if (rc == SQRL_OK) {
            expect_numbers(at("faulty.jsonl.gz"), 3000, "");
            assert_int_equal(run("rm -r %s/_index", directory), 0);
            kind++;
            n = 0;
            continue;
        }
        assert_int_equal(rc, SQRL_E_IO);
        assert_int_not_equal(run("test -e %s/_index/faulty.jsonl.gz.sqri", directory), 0);
        assert_true(n < 100);
    }
    for (uint64_t n = 1;; n++) {
        sqrl_fail_allocation(n);
        int rc = sqrl_index(context, at("faulty.jsonl.gz"), NULL, false, NULL, &err);
        sqrl_fail_allocation(0);
        if (rc == SQRL_OK)
            break;
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        assert_true(n < 1000);
    }
    expect_numbers(at("faulty.jsonl.gz"), 3000, "");
}

static void test_native(void **state) {
    struct sqrl_pack_report report;
    struct sqrl_packer *packer = NULL;
    assert_int_equal(sqrl_packer_open(context, at("native"), NULL, &packer, NULL),
                     SQRL_OK);
    assert_int_equal(
        sqrl_packer_append(packer, (const uint8_t *)"\x81\xa1x\x05", 4, NULL), SQRL_OK);
    assert_int_equal(sqrl_packer_finish(packer, NULL, NULL), SQRL_OK);
    assert_int_equal(sqrl_index(context, at("native"), NULL, false, &report, NULL),
                     SQRL_OK);
    assert_int_equal(report.samples, 1);
    assert_int_not_equal(run("test -e %s/native/_index", directory), 0);
}

static int setup(void **state) {
    return opening_setup(state) || fault_fs_register(context, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_one_member),
        cmocka_unit_test(test_cost),   cmocka_unit_test(test_faults),
        cmocka_unit_test(test_native),
    };
    return cmocka_run_group_tests(tests, setup, opening_teardown);
}
