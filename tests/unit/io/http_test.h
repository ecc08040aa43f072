/* http_test.h - what the tests of HTTP share: the server with faults on demand
 * (tests/support/fault_server.c), a file of random bytes on it, a context. */
#ifndef TESTS_UNIT_IO_HTTP_TEST_H
#define TESTS_UNIT_IO_HTTP_TEST_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/http/job.h"
#include "io/http/ranges.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* ThreadSanitizer otherwise ends a child of a process with threads when it starts one. */
SQRL_API const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}

#define SIZE ((size_t)3 << 20)

static char folder[64], base[64];
static pid_t server;
static uint8_t *content;

/* --- the server --- */

static int start_server(void **state) {
    const char *program = getenv("SQRL_FAULT_SERVER");
    struct sqrl_error err;
    if (!program || sqrl_curl_load(&err) != SQRL_OK)
        return 0; /* the tests skip */
    snprintf(folder, sizeof folder, "/tmp/sqrl-http-XXXXXX");
    if (!mkdtemp(folder) || !(content = malloc(SIZE)))
        return -1;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 5);
    for (size_t i = 0; i < SIZE; i += 8)
        sqrl_store_le64(content + i, sqrl_rng_next(&rng));
    char path[128];
    snprintf(path, sizeof path, "%s/data.bin", folder);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(content, 1, SIZE, file) != SIZE || fclose(file) != 0)
        return -1;
    int out[2], port = 0;
    if (pipe(out) != 0)
        return -1;
    server = fork();
    if (server == 0) {
        dup2(out[1], 1);
        close(out[0]);
        execl(program, program, "--root", folder, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *lines = fdopen(out[0], "r");
    bool good = lines && fscanf(lines, "port %d", &port) == 1;
    snprintf(base, sizeof base, "http://127.0.0.1:%d", port);
    if (lines)
        fclose(lines);
    return good ? 0 : -1;
}

static int stop_server(void **state) {
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (*folder && system(command) != 0)
        return -1;
    free(content);
    return 0;
}

struct world {
    struct sqrl_context *context;
    struct sqrl_http *http;
    struct sqrl_http_policy policy;
    struct sqrl_fs_metrics metrics;
};

static void open_world(struct world *w) {
    struct sqrl_error err;
    if (!*base)
        skip();
    *w = (struct world){0};
    struct sqrl_config config = {.size = sizeof config, .log_level = SQRL_LOG_ERROR};
    assert_int_equal(sqrl_context_new(&config, &w->context, &err), SQRL_OK);
    assert_int_equal(sqrl_http_of(w->context, &w->http, &err), SQRL_OK);
    w->policy.metrics = &w->metrics;
    w->policy.stall_ns = 1000000000;
    w->policy.proxy = "";
}

static void close_world(struct world *w) {
    sqrl_context_unref(w->context);
}

/* GET of a path; the body goes to `out`, if it is small. */
static void get(struct world *w, const char *path, char *out, size_t room) {
    char url[256];
    struct sqrl_http_response response;
    struct sqrl_error err;
    snprintf(url, sizeof url, "%s%s", base, path);
    struct sqrl_http_policy policy = {.proxy = ""};
    struct sqrl_http_request request = {.method = "GET", .url = url, .policy = &policy};
    int rc = sqrl_http_perform(w->http, &request, &response, 1, &err);
    if (rc != SQRL_OK)
        fail_msg("%s: %s", url, err.message);
    assert_int_equal(response.status, 200);
    if (out)
        snprintf(out, room, "%s", (const char *)response.body);
    sqrl_http_response_free(&response);
}

static void set(struct world *w, const char *settings) {
    char path[200];
    get(w, "/_control/reset", NULL, 0);
    snprintf(path, sizeof path, "/_control/set?%s", settings);
    get(w, path, NULL, 0);
}

static uint64_t counter(struct world *w, const char *name) {
    char text[8192], quoted[64];
    get(w, "/_control/counters", text, sizeof text);
    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    const char *at = strstr(text, quoted);
    assert_non_null(at);
    return strtoull(at + strlen(quoted), NULL, 10);
}

static int open_object(struct world *w, const char *path, size_t head,
                       struct sqrl_http_object *object, struct sqrl_error *err) {
    char url[256];
    snprintf(url, sizeof url, "%s%s", base, path);
    struct sqrl_http_request pattern = {.url = url, .policy = &w->policy};
    return sqrl_http_object_open(w->context, &pattern, head, object, NULL, err);
}

static void check_ranges(const struct sqrl_range *ranges, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t left = ranges[i].offset < SIZE ? SIZE - ranges[i].offset : 0;
        assert_int_equal(ranges[i].got, SQRL_MIN(left, ranges[i].size));
        assert_memory_equal(ranges[i].data, content + ranges[i].offset, ranges[i].got);
    }
}

/* Reads all of the file in pieces under a fault; every piece is right or the error. */
static int read_all(struct world *w, unsigned pieces, struct sqrl_error *err) {
    struct sqrl_http_object object;
    int rc = open_object(w, "/data.bin", 0, &object, err);
    if (rc != SQRL_OK)
        return rc;
    uint8_t *data = malloc(SIZE);
    memset(data, 0, SIZE);
    for (unsigned i = 0; i < pieces && rc == SQRL_OK; i++) {
        uint64_t from = SIZE / pieces * i,
                 to = i + 1 == pieces ? SIZE : from + SIZE / pieces;
        struct sqrl_range range = {from, (size_t)(to - from), data + from, 0};
        rc = sqrl_http_object_read(w->context, &object, &range, 1, NULL, err);
        if (rc == SQRL_OK)
            check_ranges(&range, 1);
    }
    free(data);
    sqrl_http_object_close(&object);
    return rc;
}

#endif
