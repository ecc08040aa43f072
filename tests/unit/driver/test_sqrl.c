/* Native shards through sqrl_open: golden files that another implementation wrote,
 * decoded for ever; directories with and without commits, and those that disagree with
 * theirs; commits of many writers' shards. */
#include <stdlib.h>
#include <unistd.h>

#include "../format/shards.h"
#include "format/commit.h"
#include "sqrl/codec.h"
#include "sqrl/pack.h"

static struct sqrl_context *context;
static struct sqrl_fs *fs;
static char directory[] = "/tmp/sqrl-driver-XXXXXX";
static const struct sqrl_settings none = {NULL, 0};

static void quiet(void *arg, enum sqrl_log_level level, const char *line) {}

static int setup(void **state) {
    struct sqrl_config config = {.size = sizeof config, .log = quiet};
    char *path;
    if (!mkdtemp(directory) || sqrl_context_new(&config, &context, NULL))
        return 1;
    int rc = sqrl_fs_for_url(context, directory, NULL, &fs, &path, NULL);
    free(path);
    return rc;
}

static int teardown(void **state) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", directory);
    sqrl_fs_unref(fs);
    sqrl_context_unref(context);
    return system(command);
}

static const char *at(const char *name) {
    static char path[4][160];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", directory, name);
    return path[next];
}

/* All samples of a source, and how many blocks they were in. */
static int read_all(const char *url, struct sqrl_bytes *out, uint64_t *samples,
                    uint64_t *blocks, struct sqrl_error *err) {
    struct sqrl_source *source = NULL;
    *samples = *blocks = 0;
    int rc = sqrl_open(context, url, &none, &source, err);
    for (uint64_t s = 0; rc == 0 && s < sqrl_source_shards(source); s++) {
        struct sqrl_shard_reader *reader = NULL;
        rc = sqrl_shard_open(source, s, &reader, err);
        for (struct sqrl_block *block = NULL; rc == 0;) {
            rc = sqrl_shard_reader_next(reader, NULL, &block, err);
            if (rc || !block)
                break;
            *samples += block->count;
            ++*blocks;
            for (uint32_t i = 0; rc == 0 && i < block->count; i++) /* as they were made */
                rc = sqrl_msgpack_encode(out, block->tape.nodes, block->begin[i],
                                         block->bytes->data, err);
            sqrl_block_unref(block);
        }
        sqrl_shard_reader_unref(reader);
    }
    sqrl_source_unref(source);
    return rc;
}

/* --- golden files --- */

static const char *golden(const char *name) {
    static char path[512];
    const char *root = getenv("SQRL_GOLDEN");
    snprintf(path, sizeof path, "%s/native/%s", root ? root : "tests/golden", name);
    return path;
}

static void test_golden(void **state) {
    FILE *expected = fopen(golden("expected.txt"), "r");
    if (!expected) {
        print_message("skipped: %s is not there\n", golden("expected.txt"));
        skip();
    }
    char name[64];
    unsigned long long samples, blocks, size, hash, fingerprint;
    int files = 0;
    while (fscanf(expected, "%63s %llu %llu %llu %llx %llx", name, &samples, &blocks,
                  &size, &hash, &fingerprint) == 6) {
        struct sqrl_bytes bytes = {0};
        struct sqrl_error err = {0};
        uint64_t got_samples, got_blocks;
        if (read_all(golden(name), &bytes, &got_samples, &got_blocks, &err))
            fail_msg("%s: %s: %s", name, err.where, err.message);
        assert_int_equal(got_samples, samples);
        assert_int_equal(got_blocks, blocks);
        assert_int_equal(bytes.size, size);
        assert_int_equal(sqrl_xxh3(bytes.data, bytes.size), hash);
        sqrl_bytes_reset(&bytes);
        if (fingerprint) {
            struct sqrl_commits commits;
            assert_int_equal(sqrl_commits_read(context, fs, golden(name), &commits, NULL),
                             0);
            assert_int_equal(commits.fingerprint, fingerprint);
            sqrl_commits_reset(&commits);
        }
        files++;
    }
    fclose(expected);
    assert_int_equal(files, 8);
}

static void test_golden_needs(void **state) {
    if (access(golden("needs.bin"), R_OK) != 0) {
        print_message("skipped: %s is not there\n", golden("needs.bin"));
        skip();
    }
    struct sqrl_native_summary summary;
    struct sqrl_error err = {0};
    assert_int_equal(
        sqrl_native_summary_read(context, fs, golden("needs.bin"), &summary, &err),
        SQRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "something new"));
    sqrl_native_summary_reset(&summary);
}

/* --- directories --- */

static void make_shard(const char *name, uint64_t first, uint32_t count) {
    struct samples s = {0};
    struct sqrl_error err = {0};
    for (uint32_t i = 0; i < count; i++)
        samples_text(&s, first + i);
    if (shard_write(context, fs, at(name), &s, 50, NULL, &err))
        fail_msg("%s: %s", err.where, err.message);
    samples_reset(&s);
}

/* The ids of a directory's samples are first, first + 1 ... in this order. */
static void check_ids(const char *name, const uint64_t *runs, size_t count) {
    struct sqrl_bytes bytes = {0};
    struct sqrl_error err = {0};
    uint64_t samples, blocks;
    if (read_all(at(name), &bytes, &samples, &blocks, &err))
        fail_msg("%s: %s", err.where, err.message);
    struct samples expected = {0};
    for (size_t i = 0; i < count; i += 2)
        for (uint64_t k = 0; k < runs[i + 1]; k++)
            samples_text(&expected, runs[i] + k);
    assert_int_equal(samples, expected.count);
    assert_int_equal(bytes.size, expected.bytes.size);
    assert_memory_equal(bytes.data, expected.bytes.data, bytes.size);
    samples_reset(&expected);
    sqrl_bytes_reset(&bytes);
}

static void make_directory(const char *name) {
    assert_int_equal(sqrl_fs_make_directory(fs, at(name), NULL), 0);
}

static void test_without_commits(void **state) {
    make_directory("plain");
    make_shard("plain/b.sqrl", 100, 120);
    make_shard("plain/a.sqrl", 0, 100);
    check_ids("plain", (const uint64_t[]){0, 100, 100, 120}, 4);
}

static void test_with_commits(void **state) {
    make_directory("set");
    make_shard("set/b.sqrl", 0, 60);
    make_shard("set/a.sqrl", 60, 60);
    make_shard("set/c.sqrl", 120, 5);
    make_shard("set/stray.sqrl", 999, 9); /* no commit names it */
    const char *first[] = {"b.sqrl", "a.sqrl"}, *second[] = {"c.sqrl"};
    struct sqrl_error err = {0};
    assert_int_equal(
        sqrl_commit_write(context, fs, at("set"), first, 2, false, NULL, &err), 0);
    check_ids("set", (const uint64_t[]){0, 120}, 2);
    assert_int_equal(
        sqrl_commit_write(context, fs, at("set"), second, 1, false, NULL, &err), 0);
    check_ids("set", (const uint64_t[]){0, 125}, 2);

    struct sqrl_source *source;
    assert_int_equal(sqrl_open(context, at("set"), &none, &source, &err), 0);
    assert_int_equal(sqrl_source_shards(source), 3);
    assert_int_equal(sqrl_source_samples(source), 125); /* no shard was opened for that */
    const struct sqrl_schema *schema;
    assert_int_equal(sqrl_source_schema(source, &schema, &err), 0);
    assert_non_null(schema);
    assert_int_equal(schema->samples, 125);
    assert_int_equal(schema->count, 2);
    sqrl_source_unref(source);
}

static void check_disagreement(const char *name, int expected, const char *what) {
    struct sqrl_source *source;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_open(context, at(name), &none, &source, &err), expected);
    assert_null(source);
    assert_non_null(strstr(err.message, what));
    assert_non_null(strstr(err.message, "squirrel index"));
}

static void test_disagreements(void **state) {
    make_directory("dis");
    make_shard("dis/a.sqrl", 0, 60);
    make_shard("dis/b.sqrl", 60, 60);
    const char *names[] = {"a.sqrl", "b.sqrl"};
    assert_int_equal(
        sqrl_commit_write(context, fs, at("dis"), names, 2, false, NULL, NULL), 0);
    make_shard("dis/b.sqrl", 60, 61);
    check_disagreement("dis", SQRL_E_CORRUPT, "b.sqrl");
    /* Changed behind an open source: noticed when the shard is opened. */
    make_shard("dis/b.sqrl", 60, 60);
    struct sqrl_source *source;
    struct sqrl_shard_reader *reader;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_open(context, at("dis"), &none, &source, &err), 0);
    make_shard("dis/b.sqrl", 60, 61);
    assert_int_equal(sqrl_shard_open(source, 1, &reader, &err), SQRL_E_CORRUPT);
    assert_non_null(strstr(err.where, "b.sqrl"));
    assert_non_null(strstr(err.message, "squirrel index"));
    sqrl_source_unref(source);
    assert_int_equal(sqrl_fs_remove(fs, at("dis/a.sqrl"), NULL), 0);
    check_disagreement("dis", SQRL_E_NOT_FOUND, "a.sqrl");
    struct sqrl_pack_report report;
    make_shard("dis/stray.sqrl", 7, 7);
    assert_int_equal(sqrl_pack_index(context, at("dis"), NULL, false, &report, &err), 0);
    assert_int_equal(report.shards, 1);
    check_ids("dis", (const uint64_t[]){60, 61}, 2);
    assert_int_equal(sqrl_pack_index(context, at("dis"), NULL, true, &report, &err), 0);
    assert_int_equal(report.shards, 2);
    check_ids("dis", (const uint64_t[]){60, 61, 7, 7}, 4);
}

/* A commit that is damaged: said so, and made anew from all shards. */
static void test_damaged_commit(void **state) {
    make_directory("dam");
    make_shard("dam/b.sqrl", 0, 60);
    make_shard("dam/a.sqrl", 60, 60);
    const char *names[] = {"b.sqrl", "a.sqrl"};
    assert_int_equal(
        sqrl_commit_write(context, fs, at("dam"), names, 2, false, NULL, NULL), 0);
    struct sqrl_commits commits;
    assert_int_equal(sqrl_commits_read(context, fs, at("dam"), &commits, NULL), 0);
    char path[200];
    snprintf(path, sizeof path, "%s/%s.idx", at("dam/_sqrl"), commits.items[0].id);
    sqrl_commits_reset(&commits);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 60, SEEK_SET), 0);
    assert_int_equal(fputc(0, file), 0);
    fclose(file);
    struct sqrl_source *source;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_open(context, at("dam"), &none, &source, &err), SQRL_E_CORRUPT);
    assert_non_null(strstr(err.where, ".idx"));
    assert_non_null(strstr(err.message, "squirrel index"));
    assert_int_equal(sqrl_pack_index(context, at("dam"), NULL, false, NULL, &err),
                     SQRL_E_CORRUPT);
    assert_int_equal(sqrl_pack_index(context, at("dam"), NULL, true, NULL, &err), 0);
    check_ids("dam", (const uint64_t[]){60, 60, 0, 60}, 4); /* by name now */
    make_directory("nothing");
    assert_int_equal(sqrl_pack_index(context, at("nothing"), NULL, true, NULL, &err),
                     SQRL_E_NOT_FOUND);
}

static void test_pack_commit(void **state) {
    make_directory("many");
    make_shard("many/w1-000000.sqrl", 0, 10);
    make_shard("many/w1-000001.sqrl", 10, 10);
    make_shard("many/w0-1000000.sqrl", 40, 10);
    make_shard("many/w0-999999.sqrl", 20, 20);
    make_shard("many/other-000000.sqrl", 500, 10);
    const char *prefixes[] = {"w1-", "w0-"}, *wrong[] = {"w2-"};
    struct sqrl_pack_report report;
    struct sqrl_error err = {0};
    assert_int_equal(
        sqrl_pack_commit(context, at("many"), NULL, wrong, 1, false, &report, &err),
        SQRL_E_NOT_FOUND);
    assert_int_equal(
        sqrl_pack_commit(context, at("many"), NULL, prefixes, 2, false, &report, &err),
        0);
    assert_int_equal(report.shards, 4);
    assert_int_equal(report.samples, 50);
    check_ids("many", (const uint64_t[]){0, 50}, 2);
    /* Again: there is nothing left to commit. */
    assert_int_equal(
        sqrl_pack_commit(context, at("many"), NULL, prefixes, 2, false, &report, &err),
        0);
    assert_int_equal(report.shards, 0);
    make_shard("many/w1-000002.sqrl", 50, 5);
    assert_int_equal(
        sqrl_pack_commit(context, at("many"), NULL, prefixes, 2, false, &report, &err),
        0);
    assert_int_equal(report.shards, 1);
    check_ids("many", (const uint64_t[]){0, 55}, 2);
    make_shard("many/new-0.sqrl", 7, 3);
    const char *fresh[] = {"new-"};
    assert_int_equal(
        sqrl_pack_commit(context, at("many"), NULL, fresh, 1, true, &report, &err), 0);
    check_ids("many", (const uint64_t[]){7, 3}, 2);
    assert_int_not_equal(access(at("many/w1-000000.sqrl"), F_OK), 0);
    assert_int_equal(access(at("many/other-000000.sqrl"), F_OK), 0);
}

static void test_one_file(void **state) {
    make_shard("one.sqrl", 3, 70);
    check_ids("one.sqrl", (const uint64_t[]){3, 70}, 2);
    make_shard("empty.sqrl", 0, 0);
    check_ids("empty.sqrl", NULL, 0);
}

/* Damage in a frame that no load() reads: found by a check of the shard only. */
static void test_check(void **state) {
    make_shard("checked.sqrl", 0, 200);
    FILE *file = fopen(at("checked.sqrl"), "r+b");
    assert_non_null(file);
    char *bytes = calloc(1, 1 << 20);
    assert_non_null(bytes);
    size_t size = fread(bytes, 1, 1 << 20, file), tag = 0;
    for (size_t i = 0; i + 8 <= size && !tag; i++)
        tag = memcmp(bytes + i, "sqrloffs", 8) == 0 ? i : 0;
    assert_true(tag > 0);
    for (int damaged = 0; damaged < 2; damaged++) {
        struct sqrl_source *source = NULL;
        struct sqrl_shard_reader *reader = NULL;
        struct sqrl_error err = {0};
        if (damaged) {
            assert_int_equal(fseek(file, (long)tag + 20, SEEK_SET), 0);
            assert_int_equal(fputc(bytes[tag + 20] ^ 1, file),
                             (unsigned char)(bytes[tag + 20] ^ 1));
            assert_int_equal(fflush(file), 0);
        }
        check_ids("checked.sqrl", (const uint64_t[]){0, 200}, 2);
        assert_int_equal(sqrl_open(context, at("checked.sqrl"), &none, &source, &err), 0);
        assert_int_equal(sqrl_shard_open(source, 0, &reader, &err), 0);
        int rc = sqrl_shard_reader_check(reader, NULL, &err);
        assert_int_equal(rc, damaged ? SQRL_E_CORRUPT : SQRL_OK);
        if (damaged) {
            assert_string_equal(err.where, at("checked.sqrl"));
            assert_non_null(strstr(err.message, "\"offsets\""));
        }
        struct sqrl_cancel cancel = {1};
        assert_int_equal(sqrl_shard_reader_check(reader, &cancel, &err),
                         SQRL_E_CANCELLED);
        sqrl_shard_reader_unref(reader);
        sqrl_source_unref(source);
    }
    fclose(file);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),          cmocka_unit_test(test_golden_needs),
        cmocka_unit_test(test_without_commits), cmocka_unit_test(test_with_commits),
        cmocka_unit_test(test_disagreements),   cmocka_unit_test(test_damaged_commit),
        cmocka_unit_test(test_pack_commit),     cmocka_unit_test(test_one_file),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
