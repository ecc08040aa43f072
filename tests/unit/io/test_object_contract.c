/* The contract of include/sqrl/fs.h on object stores: the kinds of
 * tests/support/object_servers.py, each skipped where its server is not installed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"
#include "support/contract_fs.h"

/* A server in a process of its own: it ends when `input` is closed. */
struct server {
    pid_t process;
    int input;
    char endpoint[256];
};

static void start(struct server *s, const char *kind) {
    const char *folder = getenv("SQRL_TEST_SUPPORT");
    int in[2], out[2];
    char script[512];
    size_t used = 0;
    if (!folder) {
        print_message("SQRL_TEST_SUPPORT is not set\n");
        skip();
    }
    snprintf(script, sizeof script, "%s/object_servers.py", folder);
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    s->process = fork();
    assert_true(s->process >= 0);
    if (s->process == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        unsetenv("LD_PRELOAD");
        execlp("python3", "python3", script, kind, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    s->input = in[1];
    memset(s->endpoint, 0, sizeof s->endpoint);
    while (used + 1 < sizeof s->endpoint && !strchr(s->endpoint, '\n')) {
        ssize_t n = read(out[0], s->endpoint + used, 1);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    close(out[0]);
    s->endpoint[strcspn(s->endpoint, "\n")] = '\0';
}

static void stop(struct server *s) {
    close(s->input);
    waitpid(s->process, NULL, 0);
}

static void run(const char *kind, const char *url, const char *tail,
                const struct sqrl_setting *more, size_t count) {
    struct sqrl_setting items[8];
    struct sqrl_context *context;
    struct server s;
    struct sqrl_error err = {0};
    struct sqrl_fs *fs;
    char *path, endpoint[300];
    start(&s, kind);
    if (strncmp(s.endpoint, "http://", 7) != 0) {
        print_message("%s: %s\n", kind, *s.endpoint ? s.endpoint : "no server");
        stop(&s);
        skip();
    }
    snprintf(endpoint, sizeof endpoint, "%s%s", s.endpoint, tail);
    items[0] = (struct sqrl_setting){"endpoint", endpoint};
    for (size_t i = 0; i < count; i++)
        items[i + 1] = more[i];
    const struct sqrl_settings settings = {items, count + 1};
    assert_int_equal(sqrl_context_new(NULL, &context, NULL), SQRL_OK);
    int rc = sqrl_fs_for_url(context, url, &settings, &fs, &path, &err);
    if (rc)
        print_error("%s: %s\n", err.where, err.message);
    assert_int_equal(rc, SQRL_OK);
    rc = sqrl_fs_make_directory(fs, path, &err);
    if (rc)
        print_error("%s: %s\n", err.where, err.message);
    assert_int_equal(rc, SQRL_OK);
    contract_fs_remote(fs, path);
    sqrl_fs_unref(fs);
    free(path);
    sqrl_context_unref(context);
    stop(&s);
}

static void test_s3(void **unused) {
    const struct sqrl_setting keys[] = {{"access_key_id", "testing"},
                                        {"secret_access_key", "testing"}};
    run("moto", "s3://bucket/root", "", keys, 2);
}

static void test_google_xml(void **unused) {
    const struct sqrl_setting keys[] = {
        {"api", "xml"}, {"token", "testing"}}; /* moto can't take GOOG4 apart */
    run("moto", "gs://bucket/root", "", keys, 2);
}

static void test_google_json(void **unused) {
    const struct sqrl_setting more[] = {{"anonymous", "true"}};
    run("gcs", "gs://bucket/root", "", more, 1);
}

static void test_azure(void **unused) {
    const struct sqrl_setting more[] = {
        {"account_name", "devstoreaccount1"},
        {"account_key", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
                        "K1SZFPTOtr/KBHBeksoGMGw=="}};
    run("azure", "az://bucket/root", "/devstoreaccount1", more, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s3),
        cmocka_unit_test(test_google_xml),
        cmocka_unit_test(test_google_json),
        cmocka_unit_test(test_azure),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
