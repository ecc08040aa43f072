/* The user's catalogs: environment, configuration, folders; every allocation fails once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "sqrl/catalog.h"

static struct sqrl_context *context;
static char folder[] = "/tmp/sqrl-places-XXXXXX";

static void set(const char *variable, const char *value) {
    char text[256];
    snprintf(text, sizeof text, value, folder, folder);
    assert_int_equal(setenv(variable, text, 1), 0);
}

static void write_catalog(const char *path, const char *name, const char *driver) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", folder, path);
    FILE *file = fopen(full, "wb");
    assert_non_null(file);
    fprintf(file, "sources: [{identifier: %s, driver_name: %s}]\n", name, driver);
    fclose(file);
}

static int set_up(void **state) {
    char path[256];
    if (!mkdtemp(folder) || sqrl_context_new(NULL, &context, NULL) != SQRL_OK)
        return 1;
    static const char *const made[] = {"home", "data", "data/squirrel",
                                       "data/squirrel/catalogs"};
    for (size_t i = 0; i < SQRL_COUNT_OF(made); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        if (mkdir(path, 0700) != 0)
            return 1;
    }
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("XDG_DATA_HOME");
    set("HOME", "%s/home");
    set("XDG_DATA_DIRS", "relative:%s/data:%s/none");
    set("SQUIRREL_CATALOGS", "%s/env.yaml; ");
    write_catalog("env.yaml", "env", "csv");
    write_catalog("sub.yaml", "sub", "csv");
    write_catalog("data/squirrel/catalogs/b.yaml", "b", "csv");
    write_catalog("data/squirrel/catalogs/a.yaml", "a", "csv");
    write_catalog("data/squirrel/catalogs/c.text", "c", "csv");
    return 0;
}

static int tear_down(void **state) {
    char command[64];
    sqrl_context_unref(context);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void assert_names(const char *const *names, size_t count) {
    struct sqrl_catalog *catalog;
    struct sqrl_catalog_source source;
    struct sqrl_error err = {0};
    uint64_t cursor = 0;
    if (sqrl_catalog_default(context, &catalog, &err))
        fail_msg("%s: %s", err.where, err.message);
    for (size_t i = 0; i < count; i++) {
        assert_true(sqrl_catalog_next(catalog, &cursor, &source));
        assert_string_equal(source.name, names[i]);
    }
    assert_false(sqrl_catalog_next(catalog, &cursor, &source));
    sqrl_catalog_free(catalog);
}

static void test_subscribing(void **state) {
    static const char *const before[] = {"env", "a", "b"}, *const after[] = {"env", "sub",
                                                                             "a", "b"};
    char path[256];
    bool changed;
    snprintf(path, sizeof path, "%s/sub.yaml", folder);
    assert_names(before, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sqrl_catalog_subscribe(context, path, &changed, NULL), SQRL_OK);
        assert_int_equal(changed, i == 0);
        assert_names(after, 4);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sqrl_catalog_unsubscribe(context, path, &changed, NULL),
                         SQRL_OK);
        assert_int_equal(changed, i == 0);
        assert_names(before, 3);
    }
    assert_int_equal(sqrl_catalog_subscribe(context, "a\nb", &changed, NULL),
                     SQRL_E_INVALID);
}

static void test_conflict(void **state) {
    struct sqrl_catalog *catalog;
    struct sqrl_error err = {0};
    write_catalog("data/squirrel/catalogs/z.yaml", "env",
                  "csv"); /* the same: no conflict */
    assert_int_equal(sqrl_catalog_default(context, &catalog, NULL), SQRL_OK);
    sqrl_catalog_free(catalog);
    write_catalog("data/squirrel/catalogs/z.yaml", "env", "other");
    assert_int_equal(sqrl_catalog_default(context, &catalog, &err), SQRL_E_EXISTS);
    assert_null(catalog);
    assert_non_null(strstr(err.where, "catalogs/z.yaml"));
    assert_non_null(strstr(err.message, "\"env\""));
    assert_non_null(strstr(err.message, "/env.yaml"));
    snprintf(err.message, sizeof err.message, "%s/data/squirrel/catalogs/z.yaml", folder);
    assert_int_equal(unlink(err.message), 0);
}

static void test_no_memory(void **state) {
    char path[256];
    snprintf(path, sizeof path, "%s/sub.yaml", folder);
    for (uint64_t n = 1;; n++) {
        struct sqrl_catalog *catalog = NULL;
        struct sqrl_error err = {0};
        sqrl_fail_allocation(n);
        int code = sqrl_catalog_subscribe(context, path, NULL, &err);
        if (code == SQRL_OK)
            code = sqrl_catalog_default(context, &catalog, &err);
        if (code == SQRL_OK)
            code = sqrl_catalog_unsubscribe(context, path, NULL, &err);
        sqrl_fail_allocation(0);
        if (code == SQRL_OK)
            assert_int_equal(sqrl_catalog_names(catalog), 4);
        sqrl_catalog_free(catalog);
        if (code == SQRL_OK)
            break;
        assert_int_equal(code, SQRL_E_NO_MEMORY);
        assert_int_equal(err.code, SQRL_E_NO_MEMORY);
        assert_int_equal(sqrl_catalog_unsubscribe(context, path, NULL, NULL), SQRL_OK);
    }
}

/* A program that stands for an interpreter. */
static void write_program(const char *name, const char *lines) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", lines);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
}

static int ask(const char *program, struct sqrl_catalog **catalog,
               struct sqrl_error *err) {
    char path[256];
    snprintf(path, sizeof path, "%%s/%s", program);
    set("SQUIRREL_PYTHON", path);
    memset(err, 0, sizeof *err);
    int code = sqrl_catalog_default(context, catalog, err);
    unsetenv("SQUIRREL_PYTHON");
    return code;
}

static void test_python_is_asked(void **state) {
    struct sqrl_catalog *catalog;
    struct sqrl_catalog_source source;
    struct sqrl_error err;
    write_program("good", "test \"$*\" = '-m squirrel.catalog' && test ! -t 0 && "
                          "echo 'sources: [{identifier: offered, driver_name: csv}]' && "
                          "echo '# whole'");
    assert_int_equal(ask("good", &catalog, &err), SQRL_OK);
    assert_int_equal(sqrl_catalog_count(catalog), 1);
    assert_int_equal(sqrl_catalog_find(catalog, "offered", 1, &source, NULL), SQRL_OK);
    sqrl_catalog_free(catalog);

    write_program("far", "printf 'sources: [{identifier: near, driver_name: csv}]\\n"
                         "# from elsewhere\\n"
                         "sources: [{identifier: far, driver_name: csv}]\\n# whole\\n'");
    assert_int_equal(ask("far", &catalog, &err), SQRL_OK);
    assert_int_equal(sqrl_catalog_find(catalog, "near", 1, &source, NULL), SQRL_OK);
    assert_false(source.untrusted);
    assert_int_equal(sqrl_catalog_find(catalog, "far", 1, &source, NULL), SQRL_OK);
    assert_true(source.untrusted);
    sqrl_catalog_free(catalog);

    write_program("told", "echo 'exists: both have it'; exit 1");
    assert_int_equal(ask("told", &catalog, &err), SQRL_E_EXISTS);
    assert_null(catalog);
    assert_string_equal(err.message, "both have it");
    assert_string_equal(err.where, "SQUIRREL_PYTHON");

    write_program("killed", "echo 'sources: []'; kill -9 $$");
    assert_int_equal(ask("killed", &catalog, &err), SQRL_E_USER);
    assert_non_null(strstr(err.message, "squirrel.catalog"));
    write_program("torn", "echo 'sources: ['; echo '# whole'");
    assert_int_equal(ask("torn", &catalog, &err), SQRL_E_CORRUPT);
    assert_int_equal(ask("nowhere", &catalog, &err), SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere"));
    set("SQUIRREL_PYTHON", "");
    assert_names((const char *const[]){"env", "a", "b"}, 3); /* as if it was not set */
    unsetenv("SQUIRREL_PYTHON");
}

/* Each in a process of its own: no line is lost. */
static void test_many_subscribe_at_once(void **state) {
    enum { WRITERS = 8, LINES = 10 };
    pid_t writer[WRITERS];
    char path[64];
    int status;
    for (int i = 0; i < WRITERS; i++) {
        writer[i] = fork();
        assert_true(writer[i] >= 0);
        if (writer[i])
            continue;
        struct sqrl_context *own;
        int code = sqrl_context_new(NULL, &own, NULL);
        for (int n = 0; n < LINES && !code; n++) {
            snprintf(path, sizeof path, "/none/%d-%d.yaml", i, n);
            code = sqrl_catalog_subscribe(own, path, NULL, NULL);
        }
        _exit(code);
    }
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(waitpid(writer[i], &status, 0), writer[i]);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < WRITERS * LINES; i++) {
        bool changed = false;
        snprintf(path, sizeof path, "/none/%d-%d.yaml", i / LINES, i % LINES);
        assert_int_equal(sqrl_catalog_unsubscribe(context, path, &changed, NULL),
                         SQRL_OK);
        assert_true(changed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subscribing),
        cmocka_unit_test(test_conflict),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_python_is_asked),
        cmocka_unit_test(test_many_subscribe_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
