#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "support/contract_fs.h"

struct env {
    struct sqrl_fs *fs;
    const char *root;
    int rounds, reads; /* of random ranges: in all, of each thread */
};

/* root/name, in one of a few buffers. */
static const char *at(const struct env *e, const char *name) {
    static _Thread_local char buffers[4][1200];
    static _Thread_local unsigned next;
    char *out = buffers[next++ % 4];
    snprintf(out, sizeof(buffers[0]), "%s/%s", e->root, name);
    return out;
}

static void ok(int rc, const struct sqrl_error *err, int line) {
    if (rc != SQRL_OK) {
        char text[1200];
        sqrl_error_text(err, text, sizeof(text));
        print_error("line %d: %s\n", line, text);
    }
    assert_int_equal(rc, SQRL_OK);
}
#define OK(call)                                                                         \
    do {                                                                                 \
        struct sqrl_error err = {0};                                                     \
        int rc_ = (call);                                                                \
        ok(rc_, &err, __LINE__);                                                         \
    } while (0)

/* The call must fail with `code_`, name the path and say something. */
#define FAILS(code_, part, call)                                                         \
    do {                                                                                 \
        struct sqrl_error err = {0};                                                     \
        int rc_ = (call);                                                                \
        assert_int_equal(rc_, code_);                                                    \
        assert_int_equal(err.code, code_);                                               \
        assert_true(strlen(err.message) > 0);                                            \
        if (!strstr(err.where, part))                                                    \
            print_error("line %d: where is \"%s\"\n", __LINE__, err.where);              \
        assert_non_null(strstr(err.where, part));                                        \
    } while (0)

static uint8_t byte_of(uint64_t offset) {
    return (uint8_t)(offset * 167 + offset / 251);
}

void contract_fs_put(struct sqrl_fs *fs, const char *path, const void *data,
                     size_t size) {
    struct sqrl_file_writer *writer;
    OK(sqrl_file_create(fs, path, true, &writer, &err));
    OK(sqrl_file_write(writer, data, size, &err));
    OK(sqrl_file_commit(writer, &err));
}

static void put_text(const struct env *e, const char *name, const char *text) {
    contract_fs_put(e->fs, at(e, name), text, strlen(text));
}

static void assert_content(const struct env *e, const char *name, const char *text) {
    struct sqrl_file *file;
    char back[256] = {0};
    OK(sqrl_file_open(e->fs, at(e, name), &file, &err));
    assert_true(sqrl_file_size(file) == strlen(text));
    OK(sqrl_file_read_exact(file, 0, back, strlen(text), NULL, &err));
    assert_string_equal(back, text);
    sqrl_file_unref(file);
}

/* --- listings as one text: "a/x:3 b/ " --- */

struct listing {
    char text[4096];
    unsigned stop_at, seen;
};

static int add_name(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct listing *l = arg;
    size_t used = strlen(l->text);
    if (stat->directory)
        snprintf(l->text + used, sizeof(l->text) - used, "%s/ ", name);
    else
        snprintf(l->text + used, sizeof(l->text) - used, "%s:%llu ", name,
                 (unsigned long long)stat->size);
    return ++l->seen == l->stop_at ? 77 : 0;
}

static void assert_listing(const struct env *e, const char *name, bool recursive,
                           const char *expected) {
    struct listing l = {{0}, 0, 0};
    OK(sqrl_fs_list(e->fs, at(e, name), recursive, add_name, &l, NULL, &err));
    assert_string_equal(l.text, expected);
}

/* --- the checks; each works in a directory of its own --- */

static void check_writing(const struct env *e) {
    struct sqrl_file_writer *writer;
    struct sqrl_stat stat;
    OK(sqrl_fs_make_directory(e->fs, at(e, "w"), &err));
    OK(sqrl_file_create(e->fs, at(e, "w/a"), false, &writer, &err));
    OK(sqrl_file_write(writer, "one ", 4, &err));
    OK(sqrl_file_write(writer, "", 0, &err));
    /* Not there before the commit, not even in a listing. */
    FAILS(SQRL_E_NOT_FOUND, "w/a", sqrl_fs_stat(e->fs, at(e, "w/a"), &stat, &err));
    assert_listing(e, "w", false, "");
    OK(sqrl_file_write(writer, "two", 3, &err));
    OK(sqrl_file_commit(writer, &err));
    assert_content(e, "w/a", "one two");
    assert_listing(e, "w", false, "a:7 ");
    OK(sqrl_fs_stat(e->fs, at(e, "w/a"), &stat, &err));
    assert_true(stat.size == 7 && !stat.directory && stat.modified_ns > 0);
    /* Aborted: as if it had never been. */
    OK(sqrl_file_create(e->fs, at(e, "w/b"), false, &writer, &err));
    OK(sqrl_file_write(writer, "gone", 4, &err));
    sqrl_file_abort(writer);
    sqrl_file_abort(NULL);
    assert_listing(e, "w", false, "a:7 ");
    put_text(e, "w/empty", "");
    assert_content(e, "w/empty", "");
}

static void check_replacing(const struct env *e) {
    struct sqrl_file_writer *first, *second;
    struct sqrl_file *old;
    char back[8] = {0};
    OK(sqrl_fs_make_directory(e->fs, at(e, "r"), &err));
    /* Two writers of one name: the first commit wins, the second says so. */
    OK(sqrl_file_create(e->fs, at(e, "r/x"), false, &first, &err));
    OK(sqrl_file_create(e->fs, at(e, "r/x"), false, &second, &err));
    OK(sqrl_file_write(first, "first", 5, &err));
    OK(sqrl_file_write(second, "second", 6, &err));
    OK(sqrl_file_commit(first, &err));
    FAILS(SQRL_E_EXISTS, "r/x", sqrl_file_commit(second, &err));
    assert_content(e, "r/x", "first");
    FAILS(SQRL_E_EXISTS, "r/x",
          sqrl_file_create(e->fs, at(e, "r/x"), false, &first, &err));
    assert_null(first);
    /* Replacing on purpose; who has it open goes on reading the old content. */
    OK(sqrl_file_open(e->fs, at(e, "r/x"), &old, &err));
    put_text(e, "r/x", "third");
    assert_content(e, "r/x", "third");
    /* ... or is told that it changed, where old content is not kept. */
    int rc = sqrl_file_read_exact(old, 0, back, 5, NULL, NULL);
    assert_true(rc == SQRL_OK || rc == SQRL_E_STATE);
    if (rc == SQRL_OK)
        assert_string_equal(back, "first");
    sqrl_file_unref(old);
    assert_listing(e, "r", false, "x:5 ");
    FAILS(SQRL_E_INVALID, "/r", sqrl_file_create(e->fs, at(e, "r"), true, &first, &err));
}

#define BIG ((size_t)3 * 1024 * 1024 + 12345)

static void check_large(const struct env *e) {
    struct sqrl_file_writer *writer;
    struct sqrl_file *file;
    uint8_t *data = malloc(BIG), *back = malloc(BIG);
    assert_true(data && back);
    for (size_t i = 0; i < BIG; i++)
        data[i] = byte_of(i);
    OK(sqrl_file_create(e->fs, at(e, "big"), false, &writer, &err));
    for (size_t done = 0, n = 1; done < BIG; done += n) {
        n = SQRL_MIN(n * 3, BIG - done);
        OK(sqrl_file_write(writer, data + done, n, &err));
    }
    OK(sqrl_file_commit(writer, &err));
    OK(sqrl_file_open(e->fs, at(e, "big"), &file, &err));
    assert_true(sqrl_file_size(file) == BIG);
    OK(sqrl_file_read_exact(file, 0, back, BIG, NULL, &err));
    assert_memory_equal(back, data, BIG);
    sqrl_file_unref(file);
    free(data);
    free(back);
}

static void assert_range(const struct sqrl_range *r, uint64_t file_size) {
    uint64_t left = r->offset < file_size ? file_size - r->offset : 0;
    assert_true(r->got == SQRL_MIN((uint64_t)r->size, left));
    for (size_t k = 0; k < r->got; k++)
        assert_int_equal(r->data[k], byte_of(r->offset + k));
    for (size_t k = r->got; k < r->size; k++)
        assert_int_equal(r->data[k], 0xEE);
}

/* Any batch of ranges: touching, overlapping, in any order, empty, across and behind the
 * end. */
static void check_ranges(const struct env *e) {
    struct sqrl_file *file;
    uint8_t *room = malloc(600 * 1024);
    assert_non_null(room);
    OK(sqrl_file_open(e->fs, at(e, "big"), &file, &err));
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 7);
    for (int round = 0; round < e->rounds; round++) {
        struct sqrl_range ranges[600];
        size_t count = 1 + sqrl_rng_below(&rng, round % 10 ? 20 : 600), used = 0;
        uint64_t next = sqrl_rng_below(&rng, BIG);
        for (size_t i = 0; i < count; i++) {
            uint64_t kind = sqrl_rng_below(&rng, 8);
            if (kind == 0)
                next = sqrl_rng_below(&rng, BIG + 2000);
            else if (kind == 1)
                next = next > 100 ? next - 100 : 0;
            size_t size = kind == 2 ? 0 : (size_t)sqrl_rng_below(&rng, 1000);
            ranges[i] = (struct sqrl_range){next, size, room + used, 99};
            used += size;
            next += size; /* mostly the next one touches */
        }
        memset(room, 0xEE, used);
        OK(sqrl_file_read(file, ranges, count, NULL, &err));
        for (size_t i = 0; i < count; i++)
            assert_range(&ranges[i], BIG);
    }
    OK(sqrl_file_read(file, NULL, 0, NULL, &err));
    FAILS(SQRL_E_TRUNCATED, "big",
          sqrl_file_read_exact(file, BIG - 5, room, 6, NULL, &err));
    FAILS(SQRL_E_TRUNCATED, "big",
          sqrl_file_read_exact(file, BIG + 5, room, 1, NULL, &err));
    FAILS(SQRL_E_INVALID, "big",
          sqrl_file_read_exact(file, UINT64_MAX - 5, room, 6, NULL, &err));
    FAILS(SQRL_E_INVALID, "big",
          sqrl_file_read_exact(file, (uint64_t)INT64_MAX, room, 6, NULL, &err));
    OK(sqrl_file_read_exact(file, BIG, room, 0, NULL, &err));
    sqrl_file_unref(file);
    free(room);
}

static void check_cancel(const struct env *e) {
    struct sqrl_cancel cancel = {0};
    struct sqrl_file *file;
    struct listing l = {{0}, 0, 0};
    char back[4];
    assert_false(sqrl_cancel_requested(NULL));
    OK(sqrl_file_open(e->fs, at(e, "big"), &file, &err));
    OK(sqrl_file_read_exact(file, 0, back, 4, &cancel, &err));
    sqrl_cancel_request(&cancel);
    assert_true(sqrl_cancel_requested(&cancel));
    FAILS(SQRL_E_CANCELLED, "big", sqrl_file_read_exact(file, 0, back, 4, &cancel, &err));
    FAILS(SQRL_E_CANCELLED, "",
          sqrl_fs_list(e->fs, e->root, true, add_name, &l, &cancel, &err));
    sqrl_file_unref(file);
}

static void check_listing(const struct env *e) {
    struct listing l = {{0}, 2, 0};
    OK(sqrl_fs_make_directory(e->fs, at(e, "l/a/deep/er"), &err));
    put_text(e, "l/a-b", "1");
    put_text(e, "l/a/x", "12");
    put_text(e, "l/a/deep/er/y", "123");
    put_text(e, "l/a.b", "1234");
    put_text(e, "l/a0", "12345");
    put_text(e, "l/Z", "");
    put_text(e, "l/.hidden", "h");
    OK(sqrl_fs_make_directory(e->fs, at(e, "l/.git"), &err));
    put_text(e, "l/.git/config", "h");
    /* '-' 2d, '.' 2e, '/' 2f, '0' 30: one level by name, all levels by full name. */
    assert_listing(e, "l", false, "Z:0 a/ a-b:1 a.b:4 a0:5 ");
    assert_listing(e, "l", true, "Z:0 a-b:1 a.b:4 a/deep/er/y:3 a/x:2 a0:5 ");
    assert_listing(e, "l/", true, "Z:0 a-b:1 a.b:4 a/deep/er/y:3 a/x:2 a0:5 ");
    assert_listing(e, "l/a", false, "deep/ x:2 ");
    assert_int_equal(sqrl_fs_list(e->fs, at(e, "l"), true, add_name, &l, NULL, NULL), 77);
    assert_string_equal(l.text, "Z:0 a-b:1 ");
    FAILS(SQRL_E_NOT_FOUND, "l/none",
          sqrl_fs_list(e->fs, at(e, "l/none"), false, add_name, &l, NULL, &err));
    FAILS(SQRL_E_INVALID, "l/a0",
          sqrl_fs_list(e->fs, at(e, "l/a0"), false, add_name, &l, NULL, &err));
}

static void check_directories(const struct env *e) {
    struct sqrl_stat stat;
    OK(sqrl_fs_make_directory(e->fs, at(e, "d/one//two/"), &err));
    OK(sqrl_fs_make_directory(e->fs, at(e, "d/one/two"), &err));
    OK(sqrl_fs_stat(e->fs, at(e, "d/one/two"), &stat, &err));
    assert_true(stat.directory);
    assert_listing(e, "d/one/two", false, "");
    put_text(e, "d/file", "f");
    FAILS(SQRL_E_EXISTS, "d/file",
          sqrl_fs_make_directory(e->fs, at(e, "d/file/below"), &err));
    FAILS(SQRL_E_EXISTS, "d/file", sqrl_fs_make_directory(e->fs, at(e, "d/file"), &err));
    if (!sqrl_fs_ops_of(e->fs)->remove_directory)
        return;
    FAILS(SQRL_E_STATE, "d/one", sqrl_fs_remove_directory(e->fs, at(e, "d/one"), &err));
    FAILS(SQRL_E_STATE, "d", sqrl_fs_remove_directory(e->fs, at(e, "d"), &err));
    FAILS(SQRL_E_INVALID, "d/file",
          sqrl_fs_remove_directory(e->fs, at(e, "d/file"), &err));
    FAILS(SQRL_E_NOT_FOUND, "d/none",
          sqrl_fs_remove_directory(e->fs, at(e, "d/none"), &err));
    OK(sqrl_fs_remove_directory(e->fs, at(e, "d/one/two"), &err));
    OK(sqrl_fs_remove_directory(e->fs, at(e, "d/one"), &err));
    assert_int_equal(sqrl_fs_stat(e->fs, at(e, "d/one"), &stat, NULL), SQRL_E_NOT_FOUND);
    OK(sqrl_fs_make_directory(e->fs, at(e, "d/hidden"), &err));
    put_text(e, "d/hidden/.x", "not listed, but there");
    FAILS(SQRL_E_STATE, "d/hidden",
          sqrl_fs_remove_directory(e->fs, at(e, "d/hidden"), &err));
}

static void check_errors(const struct env *e) {
    struct sqrl_file *file;
    struct sqrl_stat stat;
    FAILS(SQRL_E_NOT_FOUND, "no/where",
          sqrl_file_open(e->fs, at(e, "no/where"), &file, &err));
    assert_null(file);
    assert_int_equal(sqrl_file_open(e->fs, at(e, "none"), &file, NULL), SQRL_E_NOT_FOUND);
    FAILS(SQRL_E_INVALID, e->root, sqrl_file_open(e->fs, e->root, &file, &err));
    FAILS(SQRL_E_NOT_FOUND, "none", sqrl_fs_stat(e->fs, at(e, "none"), &stat, &err));
    FAILS(SQRL_E_NOT_FOUND, "none", sqrl_fs_remove(e->fs, at(e, "none"), &err));
    FAILS(SQRL_E_INVALID, e->root, sqrl_fs_remove(e->fs, e->root, &err));
    put_text(e, "gone", "x");
    OK(sqrl_fs_remove(e->fs, at(e, "gone"), &err));
    FAILS(SQRL_E_NOT_FOUND, "gone", sqrl_fs_stat(e->fs, at(e, "gone"), &stat, &err));
}

static void check_names(const struct env *e) {
    char longest[256];
    memset(longest, 'n', 250);
    longest[250] = '\0';
    const char *const names[] = {
        "with space", "per%20cent",  "\xc3\xa4\xe6\x97\xa5\xf0\x9f\x90\xbf",
        "a#b?c=d&e",  "~",           "-",
        "quote'\"",   "back\\slash", longest};
    OK(sqrl_fs_make_directory(e->fs, at(e, "n"), &err));
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        char name[300];
        snprintf(name, sizeof(name), "n/%s", names[i]);
        put_text(e, name, names[i]);
        assert_content(e, name, names[i]);
        OK(sqrl_fs_remove(e->fs, at(e, name), &err));
    }
}

/* Handles keep what they need alive. */
static void check_references(const struct env *e) {
    struct sqrl_file *file;
    char back[8] = {0};
    put_text(e, "kept", "kept");
    struct sqrl_fs *fs = sqrl_fs_ref(e->fs);
    OK(sqrl_file_open(fs, at(e, "kept"), &file, &err));
    sqrl_fs_unref(fs);
    struct sqrl_file *again = sqrl_file_ref(file);
    sqrl_file_unref(file);
    OK(sqrl_file_read_exact(again, 0, back, 4, NULL, &err));
    assert_string_equal(back, "kept");
    assert_non_null(strstr(sqrl_file_path(again), "/kept"));
    assert_true(sqrl_file_stat(again)->size == 4);
    sqrl_file_unref(again);
    sqrl_file_unref(NULL);
}

struct reader {
    struct sqrl_file *file;
    unsigned seed;
    int reads, failures;
};

static void *read_much(void *arg) {
    struct reader *r = arg;
    struct sqrl_rng rng;
    uint8_t room[3000];
    sqrl_rng_init(&rng, r->seed);
    for (int i = 0; i < r->reads; i++) {
        uint64_t offset = sqrl_rng_below(&rng, BIG - sizeof(room));
        struct sqrl_range ranges[2] = {{offset, 1000, room, 0},
                                       {offset + 1000, 2000, room + 1000, 0}};
        struct sqrl_error err;
        if (sqrl_file_read(r->file, ranges, 2, NULL, &err) != SQRL_OK)
            r->failures++;
        for (size_t k = 0; k < sizeof(room); k++)
            r->failures += room[k] != byte_of(offset + k);
    }
    return NULL;
}

static void check_threads(const struct env *e) {
    struct reader readers[4];
    pthread_t threads[4];
    struct sqrl_file *file;
    OK(sqrl_file_open(e->fs, at(e, "big"), &file, &err));
    for (unsigned i = 0; i < 4; i++) {
        readers[i] = (struct reader){file, i, e->reads, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_much, &readers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].failures, 0);
    }
    sqrl_file_unref(file);
}

/* A bit of everything that allocates. */
static int scenario(const struct env *e, struct sqrl_error *err) {
    struct sqrl_file_writer *writer;
    struct sqrl_file *file;
    struct listing l = {{0}, 0, 0};
    char back[6];
    int rc = sqrl_fs_make_directory(e->fs, at(e, "m/sub"), err);
    if (rc == SQRL_OK)
        rc = sqrl_file_create(e->fs, at(e, "m/sub/f"), true, &writer, err);
    if (rc != SQRL_OK)
        return rc;
    rc = sqrl_file_write(writer, "memory", 6, err);
    if (rc != SQRL_OK) {
        sqrl_file_abort(writer);
        return rc;
    }
    rc = sqrl_file_commit(writer, err);
    if (rc == SQRL_OK)
        rc = sqrl_fs_list(e->fs, at(e, "m"), true, add_name, &l, NULL, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_open(e->fs, at(e, "m/sub/f"), &file, err);
    if (rc != SQRL_OK)
        return rc;
    struct sqrl_range ranges[2] = {{3, 3, (uint8_t *)back + 3, 0},
                                   {0, 3, (uint8_t *)back, 0}};
    rc = sqrl_file_read(file, ranges, 2, NULL, err);
    sqrl_file_unref(file);
    if (rc == SQRL_OK)
        rc = sqrl_fs_remove(e->fs, at(e, "m/sub/f"), err);
    if (rc == SQRL_OK)
        assert_memory_equal(back, "memory", 6);
    return rc;
}

/* The n-th allocation fails, for every n until none does: one clear error, nothing left.
 */
static void check_allocations(const struct env *e) {
    int rc = SQRL_E_NO_MEMORY;
    for (uint64_t n = 1; rc != SQRL_OK; n++) {
        struct sqrl_error err = {0};
        sqrl_fail_allocation(n);
        rc = scenario(e, &err);
        sqrl_fail_allocation(0);
        assert_true(rc == SQRL_OK || rc == SQRL_E_NO_MEMORY);
        assert_int_equal(err.code, rc);
        assert_true(n < 200);
        struct listing l = {{0}, 0, 0};
        if (sqrl_fs_list(e->fs, at(e, "m"), true, add_name, &l, NULL, NULL) == SQRL_OK)
            assert_true(l.seen == 0 || strcmp(l.text, "sub/f:6 ") == 0);
    }
}

static void check_all(const struct env *e) {
    check_writing(e);
    check_replacing(e);
    check_large(e);
    check_ranges(e);
    check_cancel(e);
    check_listing(e);
    check_directories(e);
    check_errors(e);
    check_names(e);
    check_references(e);
    check_threads(e);
}

void contract_fs(struct sqrl_fs *fs, const char *root) {
    const struct env e = {fs, root, 200, 100};
    check_all(&e);
    check_allocations(&e);
}

void contract_fs_remote(struct sqrl_fs *fs, const char *root) {
    const struct env e = {fs, root, 20, 10};
    check_all(&e);
}
