/* http:// and its connections: what is done with slow and overloaded servers, proxies,
 * other hosts; how long connections are kept, and what becomes of them in a fork. */
#include "http_test.h"

/* --- redirects and credentials --- */

static int sign(void *arg, const struct sqrl_http_request *request, int refused,
                struct sqrl_http_headers *out, struct sqrl_error *err) {
    ++*(int *)arg;
    return sqrl_http_headers_add(out, "Authorization", "Bearer secret", err);
}

static void credentials_stay_with_their_host(void **state) {
    struct world w;
    struct sqrl_error err;
    open_world(&w);
    const char *port = strrchr(base, ':');
    /* 127.0.0.1 and localhost are different hosts to a client. */
    const char *const hosts[] = {"http://127.0.0.1", "http://localhost"};
    struct sqrl_http_header extra = {(char *)"Authorization", (char *)"Basic c2VjcmV0"};
    for (size_t i = 0; i < 2; i++) {
        char url[256];
        struct sqrl_http_response response;
        int signs = 0;
        set(&w, "faults=");
        snprintf(url, sizeof url, "%s/_to/%s%s/data.bin", base, hosts[i], port);
        struct sqrl_http_request request = {
            .method = "HEAD", .url = url, .policy = &w.policy};
        if (i == 0) {
            request.sign = sign;
            request.arg = &signs;
        } else {
            request.headers = &extra;
            request.header_count = 1;
        }
        assert_int_equal(sqrl_http_perform(w.http, &request, &response, 1, &err),
                         SQRL_OK);
        assert_int_equal(response.status, 200);
        assert_int_equal(response.foreign, i == 1);
        assert_int_equal(counter(&w, "authorized"), i == 0 ? 2 : 1);
        assert_int_equal(signs, i == 0 ? 2 : 0);
        sqrl_http_response_free(&response);
    }
    close_world(&w);
}

static void addresses(void **state) {
    static const char *const within[] = {
        "127.0.0.1",       "127.1",          "10.1.2.3",
        "172.16.0.1",      "172.31.255.255", "192.168.0",
        "169.254.169.254", "100.64.0.1",     "0.0.0.0",
        "224.0.0.1",       "localhost",      "a.localhost",
        "localhost.",      "[::1]",          "::1",
        "fe80::1",         "[fd00::1]",      "::ffff:10.0.0.1",
        "64:ff9b::7f00:1", "2130706433",     "2002:7f00:1::"};
    static const char *const outside[] = {
        "8.8.8.8",     "172.32.0.1",      "100.128.0.1",    "192.169.0.1",
        "example.org", "2606:4700::1111", "::ffff:8.8.8.8", "11.0.0.1"};
    for (size_t i = 0; i < SQRL_COUNT_OF(within); i++)
        if (sqrl_host_public(within[i]))
            fail_msg("%s", within[i]);
    for (size_t i = 0; i < SQRL_COUNT_OF(outside); i++)
        if (!sqrl_host_public(outside[i]))
            fail_msg("%s", outside[i]);
}

static void private_addresses_are_refused(void **state) {
    struct world w;
    struct sqrl_error err;
    open_world(&w);
    set(&w, "faults="); /* a connection to it is kept now */
    w.policy.public_only = true;
    w.policy.proxy = NULL;
    struct sqrl_http_response response;
    struct sqrl_http_request request = {
        .method = "GET", .url = base, .policy = &w.policy};
    int rc = sqrl_http_perform(w.http, &request, &response, 1, &err);
    assert_int_equal(rc, SQRL_E_PERMISSION);
    assert_non_null(strstr(err.message, "SQRL_ALLOW_PRIVATE"));
    sqrl_http_response_free(&response);
    close_world(&w);
}

/* --- forks --- */

static int child_reads(struct world *w) {
    struct sqrl_error err;
    struct sqrl_http *http;
    if (sqrl_http_of(w->context, &http, &err) != SQRL_OK || http == w->http)
        return 1;
    w->http = http;
    return read_all(w, 3, &err) == SQRL_OK ? 0 : 2;
}

static void fork_after_use(void **state) {
    struct world w;
    struct sqrl_error err;
    open_world(&w);
    set(&w, "faults=");
    assert_int_equal(read_all(&w, 3, &err), SQRL_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(child_reads(&w));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(read_all(&w, 3, &err), SQRL_OK); /* the parent's go on */
    close_world(&w);
}

/* The last reference closes every connection. */
static void nothing_stays_open(void **state) {
    struct world w, other;
    struct sqrl_error err;
    open_world(&w);
    set(&w, "faults=");
    assert_int_equal(read_all(&w, 4, &err), SQRL_OK);
    close_world(&w);
    open_world(&other);
    uint64_t open = 1;
    for (int i = 0; i < 600 && open > 0; i++) { /* the server sees it a little later */
        usleep(i > 0 ? 100000 : 0);
        open = counter(&other, "open");
    }
    assert_int_equal(open, 0);
    close_world(&other);
}

/* --- servers that are slow, or have too much to do --- */

/* Retry-After is waited for, and the time that it takes is not longer than the deadline.
 */
static void servers_say_when(void **state) {
    struct world w;
    struct sqrl_error err;
    open_world(&w);
    static const char *const names[] = {"503", "429"};
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        struct sqrl_http_object object;
        uint8_t data[100];
        struct sqrl_range range = {500, 100, data, 0};
        char text[64];
        set(&w, "faults=");
        assert_int_equal(open_object(&w, "/data.bin", 0, &object, &err), SQRL_OK);
        snprintf(text, sizeof text, "retry-after=1&faults=%s@1", names[i]);
        set(&w, text);
        uint64_t begun = sqrl_now_ns(), second = 1000000000;
        assert_int_equal(sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err),
                         SQRL_OK);
        assert_true(sqrl_now_ns() - begun >= second);
        check_ranges(&range, 1);
        assert_int_equal(counter(&w, "requests"), 2);
        snprintf(text, sizeof text, "retry-after=3600&faults=%s=1", names[i]);
        set(&w, text);
        int rc = sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err);
        assert_int_equal(rc,
                         SQRL_E_IO); /* at once: the hour is longer than the deadline */
        assert_non_null(strstr(err.message, names[i]));
        assert_int_equal(counter(&w, "requests"), 1);
        sqrl_http_object_close(&object);
    }
    set(&w, "faults=&retry-after=0");
    close_world(&w);
}

/* One more request for what is much later than usual: whoever is first wins, and it is
 * counted. The late answer takes longer than the whole test may. */
static void slow_answers_are_hedged(void **state) {
    struct world w;
    struct sqrl_error err;
    struct sqrl_http_object object;
    uint8_t data[4096];
    struct sqrl_range range = {4096, sizeof data, data, 0};
    open_world(&w);
    w.policy.stall_ns = UINT64_C(3600000000000);
    w.policy.deadline_ns = UINT64_C(3600000000000);
    set(&w, "faults=&latency-ms=60&late-ms=3600000");
    assert_int_equal(open_object(&w, "/data.bin", 0, &object, &err), SQRL_OK);
    for (int i = 0; i < 60; i++) /* what is usual; and hedges are below 2 % */
        assert_int_equal(sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err),
                         SQRL_OK);
    uint64_t before = w.metrics.hedges;
    set(&w, "faults=late@1&latency-ms=60");
    memset(data, 0, sizeof data);
    assert_int_equal(sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err),
                     SQRL_OK);
    check_ranges(&range, 1);
    assert_int_equal(w.metrics.hedges - before, 1);
    assert_int_equal(w.metrics.retries, 0);
    sqrl_http_object_close(&object);
    set(&w, "faults=&latency-ms=0&late-ms=1000");
    close_world(&w);
}

/* --- proxies --- */

/* A proxy gets whole URLs, from the option or from the environment; no_proxy and proxy=""
 * go past it. The host that is asked for does not exist: only the proxy can answer. */
static void proxies(void **state) {
    static const char url[] = "http://behind-the-proxy.invalid/data.bin";
    struct world w;
    struct sqrl_error err = {0};
    struct sqrl_http_response response;
    open_world(&w);
    set(&w, "faults=");
    struct sqrl_http_request request = {
        .method = "HEAD", .url = url, .policy = &w.policy};
    w.policy.proxy = base;
    assert_int_equal(sqrl_http_perform(w.http, &request, &response, 1, &err), SQRL_OK);
    assert_int_equal(response.status, 200);
    sqrl_http_response_free(&response);
    assert_int_equal(counter(&w, "proxied"), 1);
    w.policy.proxy = NULL;
    setenv("http_proxy", base, 1);
    assert_int_equal(sqrl_http_perform(w.http, &request, &response, 1, &err), SQRL_OK);
    sqrl_http_response_free(&response);
    assert_int_equal(counter(&w, "proxied"), 2);
    w.policy.attempts = 1;
    for (int way = 0; way < 2; way++) {
        if (way == 0)
            setenv("no_proxy", "behind-the-proxy.invalid", 1);
        else
            w.policy.proxy = "";
        assert_int_equal(sqrl_http_perform(w.http, &request, &response, 1, &err),
                         SQRL_E_IO);
        assert_non_null(strstr(err.message, "can't be resolved"));
        sqrl_http_response_free(&response);
        unsetenv("no_proxy");
    }
    unsetenv("http_proxy");
    assert_int_equal(counter(&w, "proxied"), 2);
    close_world(&w);
}

/* A proxy that is not there is an error that says so, without the proxy's password. */
static void proxies_that_fail(void **state) {
    struct world w;
    struct sqrl_error err = {0};
    struct sqrl_http_response response;
    open_world(&w);
    w.policy.proxy = "http://user:secret@127.0.0.1:9";
    w.policy.attempts = 1;
    struct sqrl_http_request request = {
        .method = "HEAD", .url = "http://example.invalid/x", .policy = &w.policy};
    assert_int_equal(sqrl_http_perform(w.http, &request, &response, 1, &err), SQRL_E_IO);
    sqrl_http_response_free(&response);
    assert_null(strstr(err.message, "secret"));
    assert_null(strstr(err.where, "secret"));
    close_world(&w);
}

/* --- idle connections --- */

/* Kept for the next read, then closed without anybody doing anything. */
static void idle_connections_are_closed(void **state) {
    struct world w, other;
    struct sqrl_error err;
    open_world(&w);
    open_world(&other);
    set(&other, "faults=");
    assert_int_equal(read_all(&w, 4, &err), SQRL_OK);
    assert_true(counter(&other, "open") > 0);
    sqrl_http_set_idle(w.http, 1000000);
    uint64_t open = 1, until = sqrl_now_ns() + UINT64_C(60000000000);
    while (open > 0 && sqrl_now_ns() < until)
        open = counter(&other, "open");
    assert_int_equal(open, 0);
    assert_int_equal(read_all(&w, 4, &err), SQRL_OK); /* new ones are made */
    close_world(&other);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(credentials_stay_with_their_host),
        cmocka_unit_test(private_addresses_are_refused),
        cmocka_unit_test(servers_say_when),
        cmocka_unit_test(slow_answers_are_hedged),
        cmocka_unit_test(proxies),
        cmocka_unit_test(proxies_that_fail),
        cmocka_unit_test(fork_after_use),
        cmocka_unit_test(nothing_stays_open),
        cmocka_unit_test(idle_connections_are_closed),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
