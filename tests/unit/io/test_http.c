/* http:// against a server with faults on demand (tests/support/fault_server.c): every
 * read gives the right bytes or one clear error, and nothing hangs. The bytes are those
 * that this test wrote into the files. */
#include "http_test.h"

#include "io/http/index_page.h"

/* --- reading --- */

static void ranges_of_all_kinds(void **state) {
    struct world w;
    struct sqrl_http_object object;
    struct sqrl_error err;
    open_world(&w);
    set(&w, "faults=");
    for (size_t head = 0; head <= 1000; head += 500) {
        assert_int_equal(open_object(&w, "/data.bin", head, &object, &err), SQRL_OK);
        assert_int_equal(object.size, SIZE);
        static const uint64_t spans[][2] = {
            {5, 10},          {0, 1},        {SIZE - 1, 1},    {SIZE - 10, 100},
            {SIZE, 5},        {SIZE + 7, 5}, {1000, 0},        {2000000, 70000},
            {2075000, 70000}, {100, 300},    {350, 100},       {1 << 20, 1 << 20},
            {0, SIZE},        {400, 200},    {SIZE / 2, SIZE},
        };
        enum { N = SQRL_COUNT_OF(spans) };
        struct sqrl_range ranges[N];
        for (size_t i = 0; i < N; i++) {
            ranges[i] = (struct sqrl_range){.offset = spans[i][0], .size = spans[i][1]};
            ranges[i].data = malloc(ranges[i].size + 1);
        }
        int rc = sqrl_http_object_read(w.context, &object, ranges, N, NULL, &err);
        if (rc != SQRL_OK)
            fail_msg("%s", err.message);
        check_ranges(ranges, N);
        for (size_t i = 0; i < N; i++)
            free(ranges[i].data);
        sqrl_http_object_close(&object);
    }
    close_world(&w);
}

/* Two ranges with a small gap are one request, with a large one two. */
static void near_ranges_are_merged(void **state) {
    struct world w;
    struct sqrl_http_object object;
    struct sqrl_error err;
    static uint8_t a[1000], b[1000], c[1000];
    open_world(&w);
    assert_int_equal(open_object(&w, "/data.bin", 1, &object, &err), SQRL_OK);
    struct sqrl_range ranges[] = {
        {200000, 1000, a, 0}, {205000, 1000, b, 0}, {900000, 1000, c, 0}};
    set(&w, "faults=");
    assert_int_equal(sqrl_http_object_read(w.context, &object, ranges, 3, NULL, &err),
                     SQRL_OK);
    check_ranges(ranges, 3);
    assert_int_equal(counter(&w, "requests"), 2);
    assert_int_equal(counter(&w, "bytes"), 6000 + 1000);
    sqrl_http_object_close(&object);
    close_world(&w);
}

/* --- faults --- */

/* Half of the requests fail: with some patience all bytes come. */
static void faults_end_in_the_right_bytes(void **state) {
    static const char *const names[] = {"503",
                                        "429",
                                        "500",
                                        "reset_headers",
                                        "reset_body",
                                        "truncate",
                                        "truncate_length",
                                        "longer",
                                        "whole",
                                        "range",
                                        "gzip",
                                        "login"};
    struct world w;
    struct sqrl_error err;
    open_world(&w);
    w.policy.attempts = 40;
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        char text[64];
        snprintf(text, sizeof text, "faults=%s=0.3&seed=%zu", names[i], i + 3);
        set(&w, text);
        int rc = read_all(&w, 8, &err);
        if (rc != SQRL_OK)
            fail_msg("%s: %s: %s", names[i], err.where, err.message);
        assert_true(counter(&w, names[i]) > 0);
    }
    assert_true(w.metrics.retries > 0);
    close_world(&w);
}

/* A resumed body begins at its byte: what came is not fetched again. */
static void broken_bodies_are_resumed(void **state) {
    struct world w;
    struct sqrl_error err;
    struct sqrl_http_object object;
    open_world(&w);
    static const char *const names[] = {"reset_body", "stall", "truncate", "trickle"};
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        uint8_t *data = malloc(SIZE);
        struct sqrl_range range = {0, SIZE, data, 0};
        char text[64];
        set(&w, "faults=");
        assert_int_equal(open_object(&w, "/data.bin", 0, &object, &err), SQRL_OK);
        snprintf(text, sizeof text, "faults=%s@1", names[i]);
        set(&w, text);
        int rc = sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err);
        if (rc != SQRL_OK)
            fail_msg("%s: %s", names[i], err.message);
        check_ranges(&range, 1);
        assert_true(counter(&w, "requests") >= 2);
        /* The server's count: what it sent to a connection that was given up, too. */
        assert_true(counter(&w, "bytes") < SIZE + SIZE / 2);
        free(data);
        sqrl_http_object_close(&object);
    }
    close_world(&w);
}

/* What never becomes good is one error that says what came. */
static void faults_that_stay_are_errors(void **state) {
    static const struct {
        const char *fault, *words;
        int code;
    } table[] = {
        {"503", "answered 503", SQRL_E_IO},
        {"500", "answered 500", SQRL_E_IO},
        {"reset_headers", "connection broke", SQRL_E_IO},
        {"range", "asked for bytes", SQRL_E_IO},
        {"gzip", "Content-Encoding", SQRL_E_IO},
        {"login", "text/html", SQRL_E_IO},
        {"loop", "circles", SQRL_E_IO},
        {"file", "not followed", SQRL_E_PERMISSION},
        {"etag", "changed", SQRL_E_STATE},
    };
    struct world w;
    open_world(&w);
    w.policy.attempts = 3;
    for (size_t i = 0; i < SQRL_COUNT_OF(table); i++) {
        struct sqrl_error err = {0};
        struct sqrl_http_object object;
        uint8_t data[100];
        struct sqrl_range range = {500, 100, data, 0};
        char text[64];
        set(&w, "faults=");
        assert_int_equal(open_object(&w, "/data.bin?Signature=secret", 0, &object, &err),
                         SQRL_OK);
        snprintf(text, sizeof text, "faults=%s=1", table[i].fault);
        set(&w, text);
        int rc = sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err);
        if (rc != table[i].code || !strstr(err.message, table[i].words))
            fail_msg("%s: %d: %s", table[i].fault, rc, err.message);
        assert_null(strstr(err.where, "secret"));
        assert_null(strstr(err.message, "secret"));
        assert_non_null(strstr(err.where, "/data.bin"));
        sqrl_http_object_close(&object);
    }
    close_world(&w);
}

/* Silence, and a trickle, end at the deadline. */
static void deadlines(void **state) {
    static const char *const names[] = {"stall", "trickle"};
    struct world w;
    open_world(&w);
    w.policy.deadline_ns = 2000000000;
    w.policy.stall_ns = 500000000;
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        struct sqrl_error err;
        struct sqrl_http_object object;
        uint8_t data[2000];
        struct sqrl_range range = {500, sizeof data, data, 0};
        char text[64];
        set(&w, "faults=");
        assert_int_equal(open_object(&w, "/data.bin", 0, &object, &err), SQRL_OK);
        snprintf(text, sizeof text, "faults=%s=1", names[i]);
        set(&w, text);
        uint64_t before = sqrl_now_ns();
        int rc = sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err);
        assert_int_equal(rc, SQRL_E_IO);
        assert_true(err.retryable);
        assert_true(sqrl_now_ns() - before < UINT64_C(60000000000));
        sqrl_http_object_close(&object);
    }
    close_world(&w);
}

static void *request_cancel(void *arg) {
    usleep(200000);
    sqrl_cancel_request(arg);
    return NULL;
}

static void cancelling(void **state) {
    struct world w;
    struct sqrl_error err;
    struct sqrl_http_object object;
    open_world(&w);
    w.policy.stall_ns = UINT64_C(100000000000);
    w.policy.deadline_ns = UINT64_C(100000000000);
    static const char *const names[] = {"stall", "503"};
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        static uint8_t data[2000];
        struct sqrl_range range = {500, sizeof data, data, 0};
        struct sqrl_cancel cancel = {0};
        pthread_t thread;
        char text[64];
        set(&w, "faults=");
        assert_int_equal(open_object(&w, "/data.bin", 0, &object, &err), SQRL_OK);
        snprintf(text, sizeof text, "faults=%s=1", names[i]);
        set(&w, text);
        w.policy.attempts = 100;
        pthread_create(&thread, NULL, request_cancel, &cancel);
        int rc = sqrl_http_object_read(w.context, &object, &range, 1, &cancel, &err);
        assert_int_equal(rc, SQRL_E_CANCELLED);
        pthread_join(thread, NULL);
        sqrl_http_object_close(&object);
    }
    close_world(&w);
}

/* An object that is replaced while it is open: an error, never a mix. */
static void a_changed_object_is_an_error(void **state) {
    struct world w;
    struct sqrl_error err;
    struct sqrl_http_object object;
    open_world(&w);
    char path[128];
    snprintf(path, sizeof path, "%s/changing.bin", folder);
    for (int etags = 0; etags < 2; etags++) {
        set(&w, etags ? "faults=&etags=1" : "faults=&etags=0");
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(content, 1, 5000, file), 5000);
        fclose(file);
        assert_int_equal(open_object(&w, "/changing.bin", 0, &object, &err), SQRL_OK);
        file = fopen(path, "wb");
        assert_int_equal(fwrite(content, 1, 5001, file), 5001);
        fclose(file);
        uint8_t data[100];
        struct sqrl_range range = {500, 100, data, 0};
        int rc = sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err);
        assert_int_equal(rc, SQRL_E_STATE);
        assert_non_null(strstr(err.message, "open it again"));
        sqrl_http_object_close(&object);
    }
    set(&w, "faults=&etags=1");
    close_world(&w);
}

/* --- servers that can't do everything --- */

static void poor_servers(void **state) {
    static const char *const settings[] = {"refuse-head=1", "ranges=0",
                                           "lengths=0&ranges=0", "etags=0"};
    struct world w;
    struct sqrl_error err;
    open_world(&w);
    for (size_t i = 0; i < SQRL_COUNT_OF(settings); i++) {
        set(&w, settings[i]);
        for (size_t head = 0; head <= 1; head++) {
            struct sqrl_http_object object;
            uint8_t data[100];
            struct sqrl_range range = {500, 100, data, 0};
            int rc = open_object(&w, "/data.bin", head * 1000, &object, &err);
            if (rc == SQRL_OK)
                rc = sqrl_http_object_read(w.context, &object, &range, 1, NULL, &err);
            if (rc != SQRL_OK)
                fail_msg("%s: %s", settings[i], err.message);
            check_ranges(&range, 1);
            sqrl_http_object_close(&object);
        }
        set(&w, "refuse-head=0&ranges=1&lengths=1&etags=1");
    }
    close_world(&w);
}

static void nothing_answers(void **state) {
    struct world w;
    struct sqrl_error err;
    open_world(&w);
    w.policy.attempts = 2;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* a port where nobody listens */
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, size), 0);
    getsockname(fd, (struct sockaddr *)&a, &size);
    char url[128];
    snprintf(url, sizeof url, "http://user:secret@127.0.0.1:%d/x?key=secret",
             ntohs(a.sin_port));
    const struct {
        const char *url, *words;
        int code;
    } table[] = {{url, "can't connect", SQRL_E_IO},
                 {"http://no-such-host.invalid/x", "can't be resolved", SQRL_E_IO},
                 {"ftp://127.0.0.1/x", "not a valid http", SQRL_E_INVALID},
                 {"http://", "not a valid http", SQRL_E_INVALID}};
    for (size_t i = 0; i < SQRL_COUNT_OF(table); i++) {
        struct sqrl_http_response response;
        struct sqrl_http_request request = {
            .method = "GET", .url = table[i].url, .policy = &w.policy};
        int rc = sqrl_http_perform(w.http, &request, &response, 1, &err);
        if (rc != table[i].code || !strstr(err.message, table[i].words))
            fail_msg("%s: %d: %s", table[i].url, rc, err.message);
        assert_null(strstr(err.where, "secret"));
        sqrl_http_response_free(&response);
    }
    close(fd);
    close_world(&w);
}

/* --- texts --- */

static void content_ranges(void **state) {
    uint64_t a, b, total;
    assert_true(sqrl_content_range("bytes 0-99/1000", &a, &b, &total));
    assert_int_equal(a, 0);
    assert_int_equal(b, 99);
    assert_int_equal(total, 1000);
    assert_true(sqrl_content_range("bytes 5-5/*", &a, &b, &total));
    assert_true(total == SQRL_SIZE_UNKNOWN);
    static const char *const bad[] = {
        "",          "bytes",         "bytes 5-4/10", "bytes 0-9/9",  "bytes */100",
        "bytes 0-9", "bytes -1-9/20", "items 0-9/20", "bytes 0-9/20x"};
    for (size_t i = 0; i < SQRL_COUNT_OF(bad); i++)
        assert_false(sqrl_content_range(bad[i], &a, &b, &total));
    assert_false(sqrl_content_range(NULL, &a, &b, &total));
}

static void shown_urls(void **state) {
    static const char *const table[][2] = {
        {"https://u:p@host:8/a/b?X-Amz-Signature=1#f", "https://host:8/a/b"},
        {"http://host", "http://host"},
        {"http://host?sig=1", "http://host"},
        {"http://host/a@b?c", "http://host/a@b"},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(table); i++) {
        char *shown = sqrl_http_url_clean(table[i][0], NULL);
        assert_string_equal(shown, table[i][1]);
        free(shown);
    }
    char *path = sqrl_http_path_escape("a b/\xc3\xa4?%", NULL);
    assert_string_equal(path, "a%20b/%C3%A4%3F%25");
    free(path);
    path = sqrl_http_component_escape("a/b~", NULL);
    assert_string_equal(path, "a%2Fb~");
    free(path);
}

static void index_pages(void **state) {
    static const char page[] =
        "<html><a href=\"../\">up</a><a href='?C=N;O=D'>Name</a>\n"
        "<A HREF=\"b%20c.gz\">b</A> <a class=x href = \"a.gz\">a</a><a href=sub/>s</a>"
        "<a href=\"/data/d.gz\">d</a><a href=\"http://host/data/e.gz\">e</a>"
        "<a href=\"http://other/data/f.gz\">f</a><a href=\"/else/g.gz\">g</a>"
        "<a href=\".hidden\">h</a><a href=\"sub/deep.gz\">i</a><a href=\"a.gz\">again</a>"
        "<a href=\"javascript:alert(1)\">j</a><a href=\"x&amp;y.gz\">k</a>"
        "<a href=\"/data/../l.gz\">l</a></html>";
    static const char *const expected[] = {"a.gz", "b%20c.gz", "d.gz",
                                           "e.gz", "sub/",     "x&y.gz"};
    struct sqrl_index_page found;
    struct sqrl_error err;
    if (sqrl_curl_load(&err) != SQRL_OK)
        skip();
    assert_int_equal(sqrl_index_page_read(page, "http://host/data/", &found, &err),
                     SQRL_OK);
    assert_int_equal(found.count, SQRL_COUNT_OF(expected));
    for (size_t i = 0; i < found.count; i++)
        assert_string_equal(found.names[i], expected[i]);
    sqrl_index_page_reset(&found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_ranges),
        cmocka_unit_test(shown_urls),
        cmocka_unit_test(index_pages),
        cmocka_unit_test(ranges_of_all_kinds),
        cmocka_unit_test(near_ranges_are_merged),
        cmocka_unit_test(faults_end_in_the_right_bytes),
        cmocka_unit_test(broken_bodies_are_resumed),
        cmocka_unit_test(faults_that_stay_are_errors),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(a_changed_object_is_an_error),
        cmocka_unit_test(poor_servers),
        cmocka_unit_test(nothing_answers),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
