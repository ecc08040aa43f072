/* URLs to file systems and paths. */
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

static struct sqrl_context *context;

static int set_up(void **state) {
    return sqrl_context_new(NULL, &context, NULL);
}

static int tear_down(void **state) {
    sqrl_context_unref(context);
    return 0;
}

static void test_urls(void **unused) {
    static const struct {
        const char *url, *fs, *path;
    } good[] = {
        {"data/x", "local", "data/x"},
        {"/data/x y", "local", "/data/x y"},
        {"/data/100%25", "local", "/data/100%25"}, /* a plain path is not decoded */
        {"~/x", "local", "~/x"},
        {".", "local", "."},
        {"a/b://c", "local", "a/b://c"}, /* a slash before it: no scheme */
        {"file:///data/x", "local", "/data/x"},
        {"file:///data/a%20b%2fc%C3%A4", "local", "/data/a b/c\xc3\xa4"},
        {"file://localhost/x", "local", "/x"},
        {"file:///", "local", "/"},
        {"file:///x#y?z", "local", "/x#y?z"},
        {"mem://bucket/x%20y", "memory", "bucket/x%20y"},
        {"mem://", "memory", ""},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(good); i++) {
        struct sqrl_fs *fs;
        struct sqrl_error err = {0};
        char *path;
        int rc = sqrl_fs_for_url(context, good[i].url, NULL, &fs, &path, &err);
        if (rc != SQRL_OK)
            print_error("%s: %s\n", good[i].url, err.message);
        assert_int_equal(rc, SQRL_OK);
        assert_string_equal(sqrl_fs_ops_of(fs)->name, good[i].fs);
        assert_string_equal(path, good[i].path);
        sqrl_fs_unref(fs);
        free(path);
    }
}

static void test_bad_urls(void **unused) {
    static const struct {
        const char *url;
        int code;
        const char *part;
    } bad[] = {
        {"", SQRL_E_INVALID, "empty"},
        {"hdfs://bucket/x", SQRL_E_UNSUPPORTED, "\"hdfs://\""},
        {"S3://bucket/x", SQRL_E_UNSUPPORTED, "mem://"},
        {"simplecache::s3://b/x", SQRL_E_UNSUPPORTED, "plain paths"},
        {"file://host/x", SQRL_E_INVALID, "absolute"},
        {"file://x", SQRL_E_INVALID, "absolute"},
        {"file://", SQRL_E_INVALID, "absolute"},
        {"file:///a%2", SQRL_E_INVALID, "%25"},
        {"file:///a%", SQRL_E_INVALID, "%25"},
        {"file:///a%zz", SQRL_E_INVALID, "%25"},
        {"file:///a%00b", SQRL_E_INVALID, "%25"},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(bad); i++) {
        struct sqrl_fs *fs;
        struct sqrl_error err = {0};
        char *path;
        int rc = sqrl_fs_for_url(context, bad[i].url, NULL, &fs, &path, &err);
        if (rc != bad[i].code || !strstr(err.message, bad[i].part))
            print_error("%s: %d %s\n", bad[i].url, rc, err.message);
        assert_int_equal(rc, bad[i].code);
        assert_non_null(strstr(err.message, bad[i].part));
        assert_string_equal(err.where, bad[i].url);
        assert_null(fs);
        assert_null(path);
    }
}

static void test_settings(void **unused) {
    const struct sqrl_setting item = {"regon", "eu"};
    const struct sqrl_settings settings = {&item, 1};
    struct sqrl_fs *fs;
    struct sqrl_error err = {0};
    char *path;
    assert_int_equal(sqrl_fs_for_url(context, "/x", &settings, &fs, &path, &err),
                     SQRL_E_INVALID);
    assert_non_null(strstr(err.message, "regon"));
}

static void test_register(void **unused) {
    struct sqrl_error err = {0};
    char *path;
    assert_string_equal(sqrl_fs_registered(context, 0)->name, "local");
    assert_string_equal(sqrl_fs_registered(context, 1)->name, "memory");
    size_t count = 2;
    while (sqrl_fs_registered(context, count))
        count++;
    assert_int_equal(fault_fs_register(context, &err), SQRL_OK);
    assert_string_equal(sqrl_fs_registered(context, count)->name, "fault");
    assert_null(sqrl_fs_registered(context, count + 1));
    assert_int_equal(fault_fs_register(context, &err), SQRL_E_EXISTS);
    struct sqrl_fs *fs;
    assert_int_equal(sqrl_fs_for_url(context, "fault:///dev", NULL, &fs, &path, &err),
                     SQRL_OK);
    assert_string_equal(path, "/dev");
    assert_true(sqrl_fs_flags(fs) & SQRL_FS_SHIM);
    struct sqrl_stat stat;
    assert_int_equal(sqrl_fs_stat(fs, path, &stat, &err), SQRL_OK);
    assert_true(stat.directory);
    fault_fs_shared = (struct fault_plan){.fail_stat = 1};
    assert_int_equal(sqrl_fs_stat(fs, path, &stat, &err), SQRL_E_IO);
    sqrl_fs_unref(fs);
    free(path);
    /* A table of another version of the library. */
    struct sqrl_fs_ops odd = *sqrl_fs_registered(context, 0);
    odd.api = SQRL_FS_API + 1;
    assert_int_equal(sqrl_fs_new(context, &odd, NULL, &fs, &err), SQRL_E_UNSUPPORTED);
    /* An older one that ends before sweep: nothing to sweep. */
    uint64_t removed = 9;
    odd.api = SQRL_FS_API;
    odd.size = offsetof(struct sqrl_fs_ops, sweep);
    assert_int_equal(sqrl_fs_new(context, &odd, NULL, &fs, &err), SQRL_OK);
    assert_int_equal(sqrl_fs_sweep(fs, "/", &removed, &err), SQRL_OK);
    assert_true(removed == 0);
    sqrl_fs_unref(fs);
    /* Read-only and unlistable file systems say what they can't. */
    odd.list = NULL;
    odd.writer_open = NULL;
    odd.remove = NULL;
    struct sqrl_file_writer *writer;
    assert_int_equal(sqrl_fs_new(context, &odd, NULL, &fs, &err), SQRL_OK);
    assert_int_equal(sqrl_file_create(fs, "/tmp/x", true, &writer, &err),
                     SQRL_E_UNSUPPORTED);
    assert_int_equal(sqrl_fs_list(fs, "/", false, NULL, NULL, NULL, &err),
                     SQRL_E_UNSUPPORTED);
    assert_int_equal(sqrl_fs_remove(fs, "/tmp/x", &err), SQRL_E_UNSUPPORTED);
    sqrl_fs_unref(fs);
}

/* What mem:// holds belongs to the context: seen by all its handles, by no other context.
 */
static void test_memory_is_per_context(void **unused) {
    struct sqrl_context *other;
    struct sqrl_fs *a, *b, *c;
    struct sqrl_error err = {0};
    struct sqrl_stat stat;
    char *path;
    assert_int_equal(sqrl_context_new(NULL, &other, &err), SQRL_OK);
    assert_int_equal(sqrl_fs_for_url(context, "mem://x", NULL, &a, &path, &err), SQRL_OK);
    free(path);
    assert_int_equal(sqrl_fs_for_url(context, "mem://x", NULL, &b, &path, &err), SQRL_OK);
    free(path);
    assert_int_equal(sqrl_fs_for_url(other, "mem://x", NULL, &c, &path, &err), SQRL_OK);
    contract_fs_put(a, path, "1", 1);
    assert_int_equal(sqrl_fs_stat(b, path, &stat, &err), SQRL_OK);
    assert_int_equal(sqrl_fs_stat(c, path, &stat, &err), SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.where, "mem://x"));
    /* The file system keeps its context alive. */
    sqrl_context_unref(other);
    contract_fs_put(c, path, "2", 1);
    sqrl_fs_unref(a);
    sqrl_fs_unref(b);
    sqrl_fs_unref(c);
    free(path);
    assert_int_equal(sqrl_fs_new(NULL, &sqrl_fs_memory, NULL, &a, &err), SQRL_E_INVALID);
}

static void test_allocations(void **unused) {
    int rc = SQRL_E_NO_MEMORY;
    for (uint64_t n = 1; rc != SQRL_OK; n++) {
        struct sqrl_context *fresh;
        struct sqrl_fs *fs;
        struct sqrl_error err = {0};
        char *path;
        assert_int_equal(sqrl_context_new(NULL, &fresh, NULL), SQRL_OK);
        sqrl_fail_allocation(n);
        rc = sqrl_fs_for_url(fresh, "mem://a/b", NULL, &fs, &path, &err);
        sqrl_fail_allocation(0);
        assert_true(n < 20 && (rc == SQRL_OK || rc == SQRL_E_NO_MEMORY));
        sqrl_fs_unref(fs);
        free(path);
        sqrl_context_unref(fresh);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_urls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_urls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_settings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_register, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory_is_per_context, set_up, tear_down),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
