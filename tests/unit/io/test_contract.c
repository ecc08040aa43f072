/* The contract of include/sqrl/fs.h on every file system there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"
#include "support/contract_fs.h"
#include "support/fault_fs.h"

static struct sqrl_context *context;

static int set_up(void **state) {
    return sqrl_context_new(NULL, &context, NULL);
}

static int tear_down(void **state) {
    sqrl_context_unref(context);
    return 0;
}

static struct sqrl_fs *open_fs(const char *url, char **path) {
    struct sqrl_fs *fs;
    struct sqrl_error err;
    assert_int_equal(sqrl_fs_for_url(context, url, NULL, &fs, path, &err), SQRL_OK);
    return fs;
}

static void remove_tree(const char *path) {
    char line[256];
    snprintf(line, sizeof(line), "rm -rf %s", path);
    assert_int_equal(system(line), 0);
}

static void test_local(void **unused) {
    char directory[] = "/tmp/sqrl-io-XXXXXX", *path;
    assert_non_null(mkdtemp(directory));
    struct sqrl_fs *fs = open_fs(directory, &path);
    contract_fs(fs, path);
    sqrl_fs_unref(fs);
    free(path);
    remove_tree(directory);
}

static void test_memory(void **unused) {
    char *path;
    struct sqrl_fs *fs = open_fs("mem://bucket/root", &path);
    struct sqrl_error err;
    assert_int_equal(sqrl_fs_make_directory(fs, path, &err), SQRL_OK);
    contract_fs(fs, path);
    sqrl_fs_unref(fs);
    free(path);
}

static void test_retry_over_local(void **unused) {
    char directory[] = "/tmp/sqrl-io-XXXXXX", *path;
    struct sqrl_error err;
    assert_non_null(mkdtemp(directory));
    struct sqrl_fs *local = open_fs(directory, &path), *fs;
    assert_int_equal(sqrl_fs_retry(local, 3, 1, &fs, &err), SQRL_OK);
    contract_fs(fs, path);
    sqrl_fs_unref(fs);
    sqrl_fs_unref(local);
    free(path);
    remove_tree(directory);
}

/* A file system on which every call fails once now and then, retried: nothing shows. */
static void test_retry_over_faults(void **unused) {
    char directory[] = "/tmp/sqrl-io-XXXXXX", *path;
    struct sqrl_error err;
    assert_non_null(mkdtemp(directory));
    struct fault_plan plan = {.fail_open = 3,
                              .fail_read = 5,
                              .fail_list = 2,
                              .fail_stat = 2,
                              .fail_create = 4,
                              .times = 2,
                              .list_after = 1,
                              .retryable = true};
    struct sqrl_fs *local = open_fs(directory, &path), *faulty, *fs;
    assert_int_equal(fault_fs_new(local, &plan, &faulty, &err), SQRL_OK);
    assert_int_equal(sqrl_fs_retry(faulty, 3, 1, &fs, &err), SQRL_OK);
    contract_fs(fs, path);
    assert_true(plan.reads > 5 && plan.lists > 2 && plan.opens > 3 && plan.creates > 4);
    sqrl_fs_unref(fs);
    sqrl_fs_unref(faulty);
    sqrl_fs_unref(local);
    free(path);
    remove_tree(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_retry_over_local),
        cmocka_unit_test(test_retry_over_faults),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
