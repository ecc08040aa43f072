/* The retry shim over a file system that fails on order. */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/io.h"
#include "support/contract_fs.h"
#include "support/fault_fs.h"

struct env {
    struct sqrl_context *context;
    struct sqrl_fs *memory, *faulty, *fs;
    struct fault_plan plan;
};

static void quiet(void *arg, enum sqrl_log_level level, const char *line) {}

static int set_up(void **state) {
    struct env *e = calloc(1, sizeof(*e));
    char *path;
    assert_non_null(e);
    assert_int_equal(sqrl_context_new(NULL, &e->context, NULL), SQRL_OK);
    sqrl_context_set_log(e->context, quiet, NULL, SQRL_LOG_DEBUG);
    assert_int_equal(sqrl_fs_for_url(e->context, "mem://", NULL, &e->memory, &path, NULL),
                     0);
    free(path);
    contract_fs_put(e->memory, "d/a", "content", 7);
    contract_fs_put(e->memory, "d/b", "", 0);
    contract_fs_put(e->memory, "d/c", "", 0);
    assert_int_equal(fault_fs_new(e->memory, &e->plan, &e->faulty, NULL), SQRL_OK);
    assert_int_equal(sqrl_fs_retry(e->faulty, 3, 4, &e->fs, NULL), SQRL_OK);
    e->plan.retryable = true;
    *state = e;
    return 0;
}

static int tear_down(void **state) {
    struct env *e = *state;
    sqrl_fs_unref(e->fs);
    sqrl_fs_unref(e->faulty);
    sqrl_fs_unref(e->memory);
    sqrl_context_unref(e->context);
    free(e);
    return 0;
}

static int read_once(struct env *e, const struct sqrl_cancel *cancel,
                     struct sqrl_error *err) {
    struct sqrl_file *file;
    char back[8] = {0};
    int rc = sqrl_file_open(e->fs, "d/a", &file, err);
    if (rc == SQRL_OK) {
        rc = sqrl_file_read_exact(file, 0, back, 7, cancel, err);
        sqrl_file_unref(file);
    }
    if (rc == SQRL_OK)
        assert_string_equal(back, "content");
    return rc;
}

static void test_retries(void **state) {
    struct env *e = *state;
    struct sqrl_error err = {0};
    e->plan.fail_open = e->plan.fail_read = 1;
    e->plan.times = 2; /* the third attempt of each works */
    uint64_t start = sqrl_now_ns();
    assert_int_equal(read_once(e, NULL, &err), SQRL_OK);
    assert_int_equal(err.code, SQRL_OK); /* what was overcome is not told */
    assert_int_equal(e->plan.opens, 3);
    assert_int_equal(e->plan.reads, 3);
    /* Delays of at least 2 and 4 ms for each of the two calls. */
    assert_true(sqrl_now_ns() - start >= 12000000);
}

static void test_gives_up(void **state) {
    struct env *e = *state;
    struct sqrl_error err = {0};
    e->plan.fail_read = 1;
    e->plan.times = UINT_MAX;
    assert_int_equal(read_once(e, NULL, &err), SQRL_E_IO);
    assert_int_equal(e->plan.reads, 3);
    assert_true(err.retryable);
    assert_string_equal(err.where, "d/a");
    assert_non_null(strstr(err.message, "read failed on order"));
    /* Also where the caller wants no text. */
    e->plan.reads = 0;
    assert_int_equal(read_once(e, NULL, NULL), SQRL_E_IO);
    assert_int_equal(e->plan.reads, 3);
}

static void test_lasting_errors(void **state) {
    struct env *e = *state;
    struct sqrl_error err = {0};
    struct sqrl_file *file;
    struct sqrl_stat stat;
    e->plan.retryable = false;
    e->plan.fail_read = 1;
    assert_int_equal(read_once(e, NULL, &err), SQRL_E_IO);
    assert_int_equal(e->plan.reads, 1);
    assert_int_equal(sqrl_fs_stat(e->fs, "none", &stat, &err), SQRL_E_NOT_FOUND);
    assert_int_equal(e->plan.stats, 1);
    e->plan.vanish = true;
    assert_int_equal(sqrl_file_open(e->fs, "d/a", &file, &err), SQRL_E_NOT_FOUND);
    e->plan.vanish = false;
    e->plan.refuse = true;
    assert_int_equal(sqrl_file_open(e->fs, "d/a", &file, &err), SQRL_E_PERMISSION);
    e->plan.refuse = false;
    e->plan.cut_at = 3;
    e->plan.retryable = true;
    assert_int_equal(read_once(e, NULL, &err), SQRL_E_TRUNCATED);
}

struct names {
    char text[64];
    int stop_at, seen;
};

static int add_name(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct names *n = arg;
    strcat(n->text, name);
    return ++n->seen == n->stop_at ? SQRL_E_USER : 0;
}

/* A listing that breaks off goes on behind what was delivered: nothing twice. */
static void test_listing(void **state) {
    struct env *e = *state;
    struct names names = {"", 0, 0};
    struct sqrl_error err = {0};
    e->plan.fail_list = 1;
    e->plan.times = 2;
    e->plan.list_after = 2;
    assert_int_equal(sqrl_fs_list(e->fs, "d", false, add_name, &names, NULL, &err),
                     SQRL_OK);
    assert_string_equal(names.text, "abc");
    assert_int_equal(e->plan.lists, 3);
    /* The visitor's own failure is passed on, not retried. */
    struct names stopped = {"", 2, 0};
    e->plan.lists = 10;
    assert_int_equal(sqrl_fs_list(e->fs, "d", false, add_name, &stopped, NULL, &err),
                     SQRL_E_USER);
    assert_string_equal(stopped.text, "ab");
    assert_int_equal(e->plan.lists, 11);
}

/* Half-done writes are not repeated; a failed commit leaves nothing. */
static void test_writing(void **state) {
    struct env *e = *state;
    struct sqrl_file_writer *writer;
    struct sqrl_error err = {0};
    struct sqrl_stat stat;
    e->plan.fail_create = 1;
    e->plan.fail_write = 2;
    assert_int_equal(sqrl_file_create(e->fs, "w", false, &writer, &err), SQRL_OK);
    assert_int_equal(e->plan.creates, 2);
    assert_int_equal(sqrl_file_write(writer, "x", 1, &err), SQRL_OK);
    assert_int_equal(sqrl_file_write(writer, "x", 1, &err), SQRL_E_IO);
    assert_int_equal(sqrl_file_write(writer, "x", 1, &err), SQRL_E_STATE);
    assert_int_equal(e->plan.writes, 2);
    assert_int_equal(sqrl_file_commit(writer, &err), SQRL_E_IO);
    e->plan.fail_commit = 1;
    assert_int_equal(sqrl_file_create(e->fs, "w", false, &writer, &err), SQRL_OK);
    assert_int_equal(sqrl_file_commit(writer, &err), SQRL_E_IO);
    assert_int_equal(e->plan.commits, 1);
    assert_int_equal(sqrl_fs_stat(e->fs, "w", &stat, &err), SQRL_E_NOT_FOUND);
    assert_int_equal(sqrl_fs_remove(e->fs, "d/b", &err), SQRL_OK);
    assert_int_equal(sqrl_fs_remove(e->fs, "d/b", &err), SQRL_E_NOT_FOUND);
}

static void *cancel_soon(void *arg) {
    struct timespec t = {0, 20000000};
    nanosleep(&t, NULL);
    sqrl_cancel_request(arg);
    return NULL;
}

/* Cancelling ends a wait between attempts, and a slow read, well within 200 ms. */
static void test_cancelled(void **state) {
    struct env *e = *state;
    struct sqrl_fs *patient;
    struct sqrl_file *file;
    struct sqrl_error err = {0};
    pthread_t thread;
    char back[8];
    assert_int_equal(sqrl_fs_retry(e->faulty, 10, 20000, &patient, &err), SQRL_OK);
    for (int slow = 0; slow < 2; slow++) {
        struct sqrl_cancel cancel = {0};
        e->plan.fail_read = slow ? 0 : 1;
        e->plan.slow_ms = slow ? 20000 : 0;
        e->plan.times = UINT_MAX;
        e->plan.reads = 0;
        assert_int_equal(sqrl_file_open(patient, "d/a", &file, &err), SQRL_OK);
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
        uint64_t start = sqrl_now_ns();
        assert_int_equal(sqrl_file_read_exact(file, 0, back, 7, &cancel, &err),
                         SQRL_E_CANCELLED);
        /* Far below the 20 s it would take; generous for a loaded machine. */
        assert_true(sqrl_now_ns() - start < 5000000000u);
        pthread_join(thread, NULL);
        sqrl_file_unref(file);
    }
    sqrl_fs_unref(patient);
}

static void test_flags(void **state) {
    struct env *e = *state;
    struct sqrl_fs *local, *shim;
    assert_int_equal(sqrl_fs_flags(e->fs) & SQRL_FS_SHIM, SQRL_FS_SHIM);
    assert_int_equal(sqrl_fs_flags(e->fs) & SQRL_FS_WRITABLE, SQRL_FS_WRITABLE);
    assert_int_equal(sqrl_fs_new(e->context, &sqrl_fs_local, NULL, &local, NULL),
                     SQRL_OK);
    assert_int_equal(sqrl_fs_retry(local, 1, 1, &shim, NULL), SQRL_OK);
    assert_int_equal(sqrl_fs_flags(shim) & SQRL_FS_LOCAL, SQRL_FS_LOCAL);
    sqrl_fs_unref(shim);
    sqrl_fs_unref(local);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_retries), TEST(test_gives_up), TEST(test_lasting_errors),
        TEST(test_listing), TEST(test_writing),  TEST(test_cancelled),
        TEST(test_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
