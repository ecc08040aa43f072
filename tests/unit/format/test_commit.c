/* Commits: what is written is read back; appended commits join, replacing ones supersede;
 * names and ids; damage; disagreements; failing allocations. In memory (mem://). */
#include "format/commit_inner.h"
#include "shards.h"

#include "base/base.h"

static struct sqrl_context *context;
static struct sqrl_fs *fs;

static void quiet(void *arg, enum sqrl_log_level level, const char *line) {}

static int setup(void **state) {
    struct sqrl_config config = {.size = sizeof config, .log = quiet};
    char *path;
    if (sqrl_context_new(&config, &context, NULL) ||
        sqrl_fs_for_url(context, "mem://d", NULL, &fs, &path, NULL))
        return 1;
    free(path);
    return 0;
}

static int teardown(void **state) {
    sqrl_fs_unref(fs);
    sqrl_context_unref(context);
    return 0;
}

static void write_shard(const char *path, uint64_t first, uint32_t count,
                        uint32_t per_block) {
    struct samples s = {0};
    struct sqrl_error err = {0};
    for (uint32_t i = 0; i < count; i++)
        samples_text(&s, first + i);
    if (shard_write(context, fs, path, &s, per_block, NULL, &err))
        fail_msg("%s: %s", err.where, err.message);
    samples_reset(&s);
}

static bool exists(const char *path) {
    struct sqrl_stat stat;
    return sqrl_fs_stat(fs, path, &stat, NULL) == SQRL_OK;
}

static void commit(const char *directory, bool replace, const char *a, const char *b) {
    const char *names[] = {a, b};
    struct sqrl_error err = {0};
    if (sqrl_commit_write(context, fs, directory, names, b ? 2 : 1, replace, NULL, &err))
        fail_msg("%s: %s", err.where, err.message);
}

static struct sqrl_commits commits_of(const char *directory) {
    struct sqrl_commits commits;
    struct sqrl_error err = {0};
    if (sqrl_commits_read(context, fs, directory, &commits, &err))
        fail_msg("%s: %s", err.where, err.message);
    return commits;
}

static void test_append_and_replace(void **state) {
    write_shard("ar/a.sqrl", 0, 100, 30);
    write_shard("ar/b.sqrl", 100, 50, 50);
    write_shard("ar/c.sqrl", 150, 7, 2);
    write_shard("ar/d.sqrl", 157, 1, 1);
    struct sqrl_commits commits = commits_of("ar");
    assert_int_equal(commits.count, 0);
    sqrl_commits_reset(&commits);

    commit("ar", false, "b.sqrl", "a.sqrl"); /* the order is as given */
    commits = commits_of("ar");
    uint64_t fingerprint = commits.fingerprint;
    assert_int_equal(commits.count, 1);
    const struct sqrl_commit *first = &commits.items[0];
    assert_int_equal(first->shard_count, 2);
    assert_string_equal(first->shards[0].name, "b.sqrl");
    assert_string_equal(first->shards[1].name, "a.sqrl");
    assert_int_equal(first->shards[0].samples, 50);
    assert_int_equal(first->shards[1].samples, 100);
    assert_int_equal(first->shards[1].blocks, 4);
    assert_int_equal(first->samples, 150);
    assert_int_equal(first->chunk_count, 2); /* both are far below a chunk's size */
    assert_int_equal(first->chunks[1].blocks, 4);
    assert_int_equal(first->chunks[1].samples, 100);
    assert_true(first->has_schema);
    assert_int_equal(first->schema.count, 2);
    assert_int_equal(first->schema.samples, 150);
    assert_string_equal(first->schema.fields[1].name, "text");
    assert_int_equal(first->hash, commits.items[0].hash);
    uint64_t hash = first->hash;
    assert_int_equal(fingerprint, sqrl_xxh3(&hash, 8));
    sqrl_commits_reset(&commits);

    commit("ar", false, "c.sqrl", NULL);
    commits = commits_of("ar");
    assert_int_equal(commits.count, 2);
    assert_int_equal(commits.items[0].hash, hash);
    assert_string_equal(commits.items[1].shards[0].name, "c.sqrl");
    assert_true(strcmp(commits.items[0].id, commits.items[1].id) < 0);
    assert_int_not_equal(commits.fingerprint, fingerprint);
    sqrl_commits_reset(&commits);

    const char *again[] = {"d.sqrl", "a.sqrl"};
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_commit_write(context, fs, "ar", again, 2, false, NULL, &err),
                     SQRL_E_EXISTS);
    assert_non_null(strstr(err.message, "a.sqrl"));

    commit("ar", true, "d.sqrl", "b.sqrl"); /* b stays, a and c go */
    commits = commits_of("ar");
    assert_int_equal(commits.count, 1);
    assert_int_equal(commits.items[0].supersedes_count, 2);
    assert_int_equal(commits.items[0].samples, 51);
    assert_false(exists("ar/a.sqrl"));
    assert_false(exists("ar/c.sqrl"));
    assert_true(exists("ar/b.sqrl"));
    assert_true(exists("ar/d.sqrl"));
    sqrl_commits_reset(&commits);
}

/* A writer that dies behind its commit leaves the replaced commits in place: they don't
 * count. */
static void test_superseded_stay_out(void **state) {
    write_shard("su/a.sqrl", 0, 10, 10);
    write_shard("su/b.sqrl", 10, 20, 10);
    commit("su", false, "a.sqrl", NULL);
    struct commit_ids ids;
    assert_int_equal(commit_ids_read(context, fs, "su", &ids, NULL), 0);
    char path[100];
    snprintf(path, sizeof path, "su/_sqrl/%s.idx", ids.items[0].text);
    struct sqrl_file *file;
    assert_int_equal(sqrl_file_open(fs, path, &file, NULL), 0);
    size_t size = (size_t)sqrl_file_size(file);
    uint8_t *old = malloc(size);
    assert_int_equal(sqrl_file_read_exact(file, 0, old, size, NULL, NULL), 0);
    sqrl_file_unref(file);
    commit("su", true, "b.sqrl", NULL);
    assert_false(exists(path));
    struct sqrl_file_writer *writer;
    assert_int_equal(sqrl_file_create(fs, path, false, &writer, NULL), 0);
    assert_int_equal(sqrl_file_write(writer, old, size, NULL), 0);
    assert_int_equal(sqrl_file_commit(writer, NULL), 0);
    struct sqrl_commits commits = commits_of("su");
    assert_int_equal(commits.count, 1);
    assert_int_equal(commits.items[0].samples, 20);
    sqrl_commits_reset(&commits);
    commit_ids_reset(&ids);
    free(old);
}

static void test_list(void **state) {
    write_shard("li/a.sqrl", 0, 10, 10);
    write_shard("li/b.sqrl", 10, 20, 10);
    commit("li", false, "a.sqrl", NULL);
    commit("li", false, "b.sqrl", NULL);
    struct commit_ids ids;
    assert_int_equal(commit_ids_read(context, fs, "li", &ids, NULL), 0);
    assert_int_equal(ids.count, 2);
    char expected[200], text[200] = "";
    snprintf(expected, sizeof expected, "%s.idx\n%s.idx\n", ids.items[0].text,
             ids.items[1].text);
    commit_ids_reset(&ids);
    struct sqrl_file *file;
    assert_int_equal(sqrl_file_open(fs, "li/_sqrl/list", &file, NULL), 0);
    assert_int_equal(sqrl_file_size(file), strlen(expected));
    assert_int_equal(sqrl_file_read_exact(file, 0, text, strlen(expected), NULL, NULL),
                     0);
    assert_string_equal(text, expected);
    sqrl_file_unref(file);

    /* A file system that can't list reads it. */
    struct sqrl_fs_ops blind = *sqrl_fs_ops_of(fs);
    blind.flags &= ~(uint32_t)SQRL_FS_LISTABLE;
    blind.list = NULL;
    struct sqrl_fs *other;
    assert_int_equal(sqrl_fs_new(context, &blind, NULL, &other, NULL), 0);
    struct sqrl_commits commits;
    assert_int_equal(sqrl_commits_read(context, other, "li", &commits, NULL), 0);
    assert_int_equal(commits.count, 2);
    sqrl_commits_reset(&commits);
    assert_int_equal(sqrl_commits_read(context, other, "none", &commits, NULL), 0);
    assert_int_equal(commits.count, 0);
    sqrl_commits_reset(&commits);
    sqrl_fs_unref(other);
}

static void test_names_and_ids(void **state) {
    char a[SQRL_SHARD_PREFIX_BYTES], b[SQRL_SHARD_PREFIX_BYTES];
    assert_int_equal(sqrl_shard_prefix(a, NULL), 0);
    assert_int_equal(sqrl_shard_prefix(b, NULL), 0);
    assert_int_equal(strlen(a), 26);
    assert_int_equal(strspn(a, "0123456789abcdefghijklmnopqrstuvwxyz"), 26);
    assert_true(strcmp(a, b) < 0); /* time comes first */
    char *name = sqrl_shard_name("p", 7, NULL);
    assert_string_equal(name, "p-000007.sqrl");
    free(name);
    name = sqrl_shard_name("p", 12345678, NULL);
    assert_string_equal(name, "p-12345678.sqrl");
    free(name);
    static const char *const good[] = {"a", "a.sqrl", "x/y", ".a", "..a", "a..", "a/.b"};
    static const char *const bad[] = {"",  "/",  "/a",   "a/",   "a//b",
                                      ".", "..", "../a", "a/..", "a/./b"};
    for (size_t i = 0; i < SQRL_COUNT_OF(good); i++)
        assert_true(commit_name_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < SQRL_COUNT_OF(bad); i++)
        assert_false(commit_name_valid(bad[i], strlen(bad[i])));
    assert_false(commit_name_valid("a\0b", 3));
    assert_true(commit_id_valid("0123456789abcdef-0123456789abcdef", 33));
    assert_false(commit_id_valid("0123456789abcdef-0123456789abcdeF", 33));
    assert_false(commit_id_valid("0123456789abcdef_0123456789abcdef", 33));
    assert_false(commit_id_valid("0123456789abcdef-0123456789abcde", 32));
}

static void test_refusals(void **state) {
    write_shard("re/a.sqrl", 0, 10, 10);
    struct sqrl_error err = {0};
    const char *twice[] = {"a.sqrl", "a.sqrl"};
    const char *outside[] = {"../re/a.sqrl"};
    const char *missing[] = {"a.sqrl", "b.sqrl"};
    assert_int_equal(sqrl_commit_write(context, fs, "re", twice, 2, false, NULL, &err),
                     SQRL_E_INVALID);
    assert_int_equal(sqrl_commit_write(context, fs, "re", outside, 1, false, NULL, NULL),
                     SQRL_E_INVALID);
    assert_int_equal(sqrl_commit_write(context, fs, "re", missing, 2, false, NULL, &err),
                     SQRL_E_NOT_FOUND);
    struct sqrl_file_writer *writer;
    assert_int_equal(sqrl_file_create(fs, "re/b.sqrl", false, &writer, NULL), 0);
    assert_int_equal(sqrl_file_write(writer, "\x28\xb5\x2f\xfd half", 9, NULL), 0);
    assert_int_equal(sqrl_file_commit(writer, NULL), 0);
    assert_int_equal(sqrl_commit_write(context, fs, "re", missing, 2, false, NULL, &err),
                     SQRL_E_TRUNCATED);
    struct sqrl_commits commits = commits_of("re");
    assert_int_equal(commits.count, 0);
    sqrl_commits_reset(&commits);
}

/* --- damage --- */

static struct sqrl_bytes sample_commit(void) {
    static char a[] = "a.sqrl", b[] = "b.sqrl", e[] = "c.sqrl";
    struct sqrl_commit c = {.id = "0123456789abcdef-0123456789abcdef"};
    struct sqrl_commit_shard shards[] = {
        {.name = a, .file_bytes = 500, .samples = 30, .blocks = 3, .raw_bytes = 900},
        {.name = b, .file_bytes = 56},
        {.name = e, .file_bytes = 90, .samples = 5, .blocks = 1, .raw_bytes = 50}};
    struct sqrl_commit_chunk chunks[] = {{0, 0, 2, 20}, {0, 2, 1, 10}, {2, 0, 1, 5}};
    c.shards = shards;
    c.shard_count = 3;
    c.chunks = chunks;
    c.chunk_count = 3;
    c.samples = 35;
    c.raw_bytes = 950;
    struct sqrl_bytes bytes = {0};
    assert_int_equal(commit_encode(&c, &bytes, NULL), 0);
    return bytes;
}

static int parse(const struct sqrl_bytes *bytes, size_t size) {
    struct sqrl_commit out;
    struct sqrl_error err = {0};
    uint8_t *copy = malloc(size + 1); /* of the exact size, for the sanitizer */
    memcpy(copy, bytes->data, size);
    int rc =
        sqrl_commit_parse("0123456789abcdef-0123456789abcdef", copy, size, &out, &err);
    free(copy);
    sqrl_commit_reset(&out);
    if (rc)
        assert_non_null(strstr(err.message, "squirrel index"));
    return rc;
}

static void test_damage(void **state) {
    struct sqrl_bytes bytes = sample_commit();
    assert_int_equal(parse(&bytes, bytes.size), 0);
    for (size_t cut = 0; cut < bytes.size; cut++)
        assert_int_equal(parse(&bytes, cut), SQRL_E_CORRUPT);
    for (size_t i = 0; i < bytes.size; i++) {
        for (unsigned bit = 1; bit < 256; bit <<= 1) {
            bytes.data[i] ^= (uint8_t)bit;
            assert_int_equal(parse(&bytes, bytes.size), SQRL_E_CORRUPT);
            bytes.data[i] ^= (uint8_t)bit;
        }
    }
    sqrl_bytes_reset(&bytes);
}

/* Every byte changed with the hash made anew: nothing may crash; what is accepted adds
 * up. */
static void test_hostile(void **state) {
    struct sqrl_bytes bytes = sample_commit();
    size_t end = bytes.size - 8;
    for (size_t i = 8; i < end; i++) {
        uint8_t before = bytes.data[i];
        for (unsigned value = 0; value < 256; value++) {
            struct sqrl_commit out;
            bytes.data[i] = (uint8_t)value;
            sqrl_store_le64(bytes.data + end, sqrl_xxh3(bytes.data, end));
            int rc = sqrl_commit_parse("0123456789abcdef-0123456789abcdef", bytes.data,
                                       bytes.size, &out, NULL);
            if (rc == 0) {
                uint64_t samples = 0, chunked = 0;
                for (uint64_t k = 0; k < out.shard_count; k++)
                    samples += out.shards[k].samples;
                for (uint64_t k = 0; k < out.chunk_count; k++)
                    chunked += out.chunks[k].samples;
                assert_int_equal(samples, out.samples);
                assert_int_equal(chunked, out.samples);
            }
            sqrl_commit_reset(&out);
        }
        bytes.data[i] = before;
    }
    sqrl_bytes_reset(&bytes);
}

static void test_chunks(void **state) {
    /* 70 blocks of 128 KiB and one of 100 MiB: runs of 32, 32, 6 blocks, and the large
     * one. */
    enum { BIG = 128 << 10 };
    uint8_t *data = calloc(1, (100u << 20) + 16);
    assert_non_null(data);
    struct samples s = {0};
    for (int i = 0; i < 70; i++) {
        samples_mark(&s);
        assert_int_equal(sqrl_msgpack_put_binary(&s.bytes, data, BIG - 5, NULL), 0);
    }
    samples_mark(&s);
    assert_int_equal(sqrl_msgpack_put_binary(&s.bytes, data, 100u << 20, NULL), 0);
    free(data);
    assert_int_equal(shard_write(context, fs, "ch/a.sqrl", &s, 1, NULL, NULL), 0);
    samples_reset(&s);
    commit("ch", false, "a.sqrl", NULL);
    struct sqrl_commits commits = commits_of("ch");
    const struct sqrl_commit *c = &commits.items[0];
    static const uint32_t blocks[] = {32, 32, 6, 1};
    assert_int_equal(c->chunk_count, 4);
    for (uint32_t i = 0, first = 0; i < 4; first += blocks[i++]) {
        assert_int_equal(c->chunks[i].blocks, blocks[i]);
        assert_int_equal(c->chunks[i].first_block, first);
        assert_int_equal(c->chunks[i].samples, blocks[i]);
    }
    sqrl_commits_reset(&commits);
}

static void test_failing_allocations(void **state) {
    write_shard("fa/a.sqrl", 0, 10, 3);
    write_shard("fa/b.sqrl", 10, 10, 3);
    const char *names[] = {"a.sqrl", "b.sqrl"};
    int failures = 0, successes = 0;
    /* Allocations behind the commit (list, removal) may fail without failing it. */
    for (uint64_t n = 1; successes < 100; n++) {
        struct sqrl_error err = {0};
        sqrl_fail_allocation(n);
        int rc = sqrl_commit_write(context, fs, "fa", names, 2, true, NULL, &err);
        sqrl_fail_allocation(0);
        struct sqrl_commits commits = commits_of("fa");
        if (rc == 0) {
            successes++;
            assert_int_equal(commits.count, 1);
        } else {
            failures++;
            assert_int_equal(rc, SQRL_E_NO_MEMORY);
            assert_int_equal(commits.count, successes ? 1 : 0);
        }
        sqrl_commits_reset(&commits);
        assert_true(exists("fa/a.sqrl") && exists("fa/b.sqrl"));
    }
    assert_true(failures > 20);
    for (uint64_t n = 1;; n++) {
        struct sqrl_commits commits;
        sqrl_fail_allocation(n);
        int rc = sqrl_commits_read(context, fs, "fa", &commits, NULL);
        sqrl_fail_allocation(0);
        sqrl_commits_reset(&commits);
        if (rc == 0)
            break;
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_and_replace),
        cmocka_unit_test(test_superseded_stay_out),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_names_and_ids),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
