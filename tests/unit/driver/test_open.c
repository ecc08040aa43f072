/* Opening: what files and directories are, found from their content; errors that say what
 * was found and what to do; readers shared among threads and after a fork. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "opening.h"

#include "driver/driver.h"
#include "golden/store/vectors.h"

static const char two_lines[] = "{\"a\": 1}\n{\"a\": 2}\n";

static void expect_driver(const char *url, const char *driver, uint64_t shards) {
    struct sqrl_source *source = NULL;
    struct sqrl_error err = {0};
    if (sqrl_open(context, url, NULL, &source, &err))
        fail_msg("%s: %s: %s", url, err.where, err.message);
    assert_string_equal(sqrl_source_driver(source), driver);
    assert_int_equal(sqrl_source_shards(source), shards);
    assert_string_equal(sqrl_source_url(source), url);
    assert_null(sqrl_source_shard(source, shards));
    sqrl_source_unref(source);
}

/* The content decides, whatever the name says. */
static void test_content_before_names(void **state) {
    expect_driver(put("named.msgpack", two_lines, sizeof two_lines - 1), "jsonl", 1);
    expect_driver(put("named.jsonl", store_payload, sizeof store_payload), "messagepack",
                  1);
    expect_driver(put("noname", two_lines, sizeof two_lines - 1), "jsonl", 1);
    expect_driver(put_coded("x.gz", "gzip", two_lines, sizeof two_lines - 1), "jsonl", 1);
    expect_driver(put_coded("x.bin", "zstd", store_payload, sizeof store_payload),
                  "messagepack", 1);
    static const uint8_t idx[] = {0, 0, 8, 1, 0, 0, 0, 1, 5};
    expect_driver(put("idx.jsonl", idx, sizeof idx), "idx", 1);
    char url[300];
    snprintf(url, sizeof url, "file://%s", at("noname"));
    expect_driver(url, "jsonl", 1);
}

static void test_unknown(void **state) {
    check_error(put_text("a.csv", "name,age\nann,3\n"), NULL, NULL, SQRL_E_FORMAT,
                "name,age", "jsonl");
    check_error(put("z.bin", "PK\3\4zip", 7), NULL, NULL, SQRL_E_FORMAT, "50 4b 03 04",
                "driver=");
    check_error(put("void", "", 0), NULL, NULL, SQRL_E_FORMAT, "0 bytes", NULL);
    check_error(put("a.jsonl", two_lines, sizeof two_lines - 1), "driver", "jsnol",
                SQRL_E_NOT_FOUND, "did you mean \"jsonl\"", NULL);
    check_error(at("a.jsonl"), "driver", "parquet", SQRL_E_NOT_FOUND, "messagepack",
                NULL);
    check_error(at("a.jsonl"), "driver", "idx", SQRL_E_FORMAT, "format jsonl, not idx",
                NULL);
    check_error(at("a.jsonl"), "max_lime", "3", SQRL_E_INVALID, "max_line",
                "driver jsonl");
    check_error(at("a.jsonl"), "max_line", "much", SQRL_E_INVALID, "much", NULL);
    check_error(at("a.jsonl"), "labels", "x", SQRL_E_INVALID, "labels", NULL);
}

static void test_missing(void **state) {
    put_text("train.jsonl", two_lines);
    check_error(at("trian.jsonl"), NULL, NULL, SQRL_E_NOT_FOUND,
                "did you mean \"train.jsonl\"", NULL);
    check_error(at("no/such/place"), NULL, NULL, SQRL_E_NOT_FOUND,
                "does not exist either", NULL);
    mkdir(at("only"), 0777);
    put_text("only/one.jsonl", two_lines);
    check_error(at("only/entirely-else"), NULL, NULL, SQRL_E_NOT_FOUND, "holds",
                "\"one.jsonl\"");
    mkdir(at("nothing"), 0777);
    check_error(at("nothing/x"), NULL, NULL, SQRL_E_NOT_FOUND, "is empty", NULL);
    struct sqrl_source *source = NULL;
    assert_int_equal(sqrl_open(context, "nofs://x/y", NULL, &source, NULL),
                     SQRL_E_UNSUPPORTED);
    assert_null(source);
}

static void test_permission(void **state) {
    put_text("secret.jsonl", two_lines);
    chmod(at("secret.jsonl"), 0);
    if (access(at("secret.jsonl"), R_OK) == 0) {
        print_message("skipped: this user may read everything\n");
        skip();
    }
    check_error(at("secret.jsonl"), NULL, NULL, SQRL_E_PERMISSION, "secret.jsonl", NULL);
}

static void test_directories(void **state) {
    mkdir(at("dir"), 0777);
    check_error(at("dir"), NULL, NULL, SQRL_E_NOT_FOUND, "no data files", NULL);
    mkdir(at("dir/sub"), 0777);
    check_error(at("dir"), NULL, NULL, SQRL_E_NOT_FOUND, "1 directory",
                "open one of them");
    put_text("dir/.hidden", "rubbish");
    put_text("dir/_SUCCESS", "");
    put_text("dir/README.md", "# Words");
    put_text("dir/LICENSE", "Words");
    check_error(at("dir"), NULL, NULL, SQRL_E_NOT_FOUND, "no data files", NULL);
    /* Byte order of names, plain and compressed of one format together. */
    put_text("dir/b.jsonl", "\"b\"\n");
    put_text("dir/B.jsonl", "\"B\"\n");
    put_coded("dir/a.jsonl.gz", "gzip", "\"a\"\n", 4);
    put_coded("dir/c.gz", "gzip", "\"c\"\n", 4);
    put_coded("dir/d.gz", "gzip", "", 0); /* holds nothing: fits any format */
    expect_driver(at("dir"), "jsonl", 5);
    check_lines(at("dir"), "\"B\"\n\"a\"\n\"b\"\n\"c\"\n", 16);
    check_lines(at("dir/"), "\"B\"\n\"a\"\n\"b\"\n\"c\"\n", 16);
    /* A file of another format, of none, and an empty one. */
    put("dir/e.gz", store_messagepack, sizeof store_messagepack);
    check_error(at("dir"), NULL, NULL, SQRL_E_FORMAT,
                "4 jsonl (B.jsonl), 1 messagepack (e.gz)", "driver=");
    struct reading r;
    assert_int_equal(read_all(at("dir"), "driver", "jsonl", &r), SQRL_OK);
    assert_int_equal(r.samples, 4);
    reading_reset(&r);
    assert_int_equal(read_all(at("dir"), "driver", "messagepack", &r), SQRL_OK);
    assert_int_equal(r.samples, STORE_SAMPLES);
    reading_reset(&r);
    check_error(at("dir"), "driver", "idx", SQRL_E_FORMAT, "no file of format idx",
                "B.jsonl");
    remove(at("dir/e.gz"));
    put_text("dir/f.csv", "a,b\n1,2\n");
    check_error(at("dir"), NULL, NULL, SQRL_E_FORMAT, "1 unknown (f.csv)", NULL);
    remove(at("dir/f.csv"));
    put_text("dir/g.jsonl", ""); /* no lines */
    check_lines(at("dir"), "\"B\"\n\"a\"\n\"b\"\n\"c\"\n", 16);
    put_text("dir/h.gz", "");
    check_error(at("dir"), NULL, NULL, SQRL_E_FORMAT, "h.gz", "empty");
}

/* More files than are sniffed: what is not seen on opening is seen on reading. */
static void test_many_files(void **state) {
    mkdir(at("many"), 0777);
    for (int i = 0; i < 400; i++) {
        char name[32], text[32];
        snprintf(name, sizeof name, "many/%03d.gz", i);
        size_t size = (size_t)snprintf(text, sizeof text, "\"%03d\"\n", i);
        put_coded(name, "gzip", text, size);
    }
    expect_driver(at("many"), "jsonl", 400);
    put("many/399.gz", store_messagepack, sizeof store_messagepack);
    struct reading r;
    assert_int_equal(read_all(at("many"), NULL, NULL, &r), SQRL_E_CORRUPT);
    assert_int_equal(r.samples, 399);
    assert_non_null(strstr(r.text, "many/399.gz"));
    reading_reset(&r);
}

static void test_vanishes(void **state) {
    put_text("gone.jsonl", two_lines);
    struct sqrl_source *source = NULL;
    struct sqrl_shard_reader *reader = NULL;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_open(context, at("gone.jsonl"), NULL, &source, NULL), SQRL_OK);
    remove(at("gone.jsonl"));
    assert_int_equal(sqrl_shard_open(source, 0, &reader, &err), SQRL_E_NOT_FOUND);
    assert_string_equal(err.where, at("gone.jsonl"));
    assert_int_equal(sqrl_shard_open(source, 1, &reader, &err), SQRL_E_INVALID);
    sqrl_source_unref(source);
}

/* An error is repeated by every later call; the samples before it came first. */
static void test_error_stays(void **state) {
    struct sqrl_source *source = NULL;
    struct sqrl_shard_reader *reader = NULL;
    struct sqrl_block *block = NULL;
    struct sqrl_error err = {0}, again = {0};
    put_text("bad.jsonl", "{\"a\": 1}\n{\"a\": 2}\n{]\n{\"a\": 3}\n");
    assert_int_equal(sqrl_open(context, at("bad.jsonl"), NULL, &source, NULL), SQRL_OK);
    assert_int_equal(sqrl_shard_open(source, 0, &reader, NULL), SQRL_OK);
    assert_int_equal(sqrl_shard_reader_next(reader, NULL, &block, &err), SQRL_OK);
    assert_int_equal(block->count, 2);
    sqrl_block_unref(block);
    assert_int_equal(sqrl_shard_reader_next(reader, NULL, &block, &err), SQRL_E_CORRUPT);
    assert_null(block);
    assert_int_equal(sqrl_shard_reader_next(reader, NULL, &block, &again),
                     SQRL_E_CORRUPT);
    assert_string_equal(err.message, again.message);
    assert_string_equal(err.where, again.where);
    assert_int_equal(sqrl_shard_reader_next(reader, NULL, &block, NULL), SQRL_E_CORRUPT);
    sqrl_shard_reader_unref(reader);
    sqrl_source_unref(source);
}

/* --- registered drivers --- */
static int never_open(const struct sqrl_driver_args *args, struct sqrl_shard_list *out,
                      struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_USER, "opened by the test's driver");
}

static void test_register(void **state) {
    struct sqrl_driver_ops ops = {.size = sizeof ops,
                                  .api = SQRL_DRIVER_API,
                                  .name = "mine",
                                  .format = sqrl_format_by_name("jsonl"),
                                  .open = never_open};
    struct sqrl_context *own = NULL;
    struct sqrl_source *source = NULL;
    assert_int_equal(sqrl_context_new(NULL, &own, NULL), SQRL_OK);
    assert_int_equal(sqrl_driver_register(own, &ops, NULL), SQRL_OK);
    assert_int_equal(sqrl_driver_register(own, &ops, NULL), SQRL_E_EXISTS);
    assert_ptr_equal(sqrl_driver_by_name(own, "mine"), &ops);
    assert_null(sqrl_driver_by_name(context, "mine"));
    struct sqrl_setting setting = {"driver", "mine"};
    struct sqrl_settings settings = {&setting, 1};
    put_text("a.jsonl", two_lines);
    assert_int_equal(sqrl_open(own, at("a.jsonl"), &settings, &source, NULL),
                     SQRL_E_USER);
    ops.api = 99;
    ops.name = "other";
    assert_int_equal(sqrl_driver_register(own, &ops, NULL), SQRL_E_INVALID);
    size_t count = 0;
    while (sqrl_driver_at(own, count))
        count++;
    size_t formats = 0;
    while (sqrl_format_at(formats))
        formats++;
    assert_int_equal(count, formats + 1); /* each format has a driver */
    sqrl_context_unref(own);
}

/* --- threads and forks --- */
enum { SHARDS = 60, ROUNDS = 300 };
static struct sqrl_source *shared;

static void *hammer(void *arg) {
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, (uint64_t)(uintptr_t)arg);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t shard = sqrl_rng_below(&rng, SHARDS);
        struct sqrl_shard_reader *reader = NULL;
        struct sqrl_block *block = NULL;
        if (sqrl_shard_open(shared, shard, &reader, NULL) ||
            sqrl_shard_reader_load(reader, 0, NULL, &block, NULL))
            return (void *)"failed";
        uint64_t value = block->tape.nodes[block->begin[0]].v.u;
        if (block->count != 1 || value != shard || block->shard != shard)
            return (void *)"wrong sample";
        sqrl_block_unref(block);
        sqrl_shard_reader_unref(reader);
    }
    return NULL;
}

static void open_numbers(void) {
    mkdir(at("numbers"), 0777);
    for (int i = 0; i < SHARDS; i++) {
        char name[40], text[16];
        snprintf(name, sizeof name, "numbers/%03d.jsonl", i);
        snprintf(text, sizeof text, "%d\n", i);
        put_text(name, text);
    }
    assert_int_equal(sqrl_open(context, at("numbers"), NULL, &shared, NULL), SQRL_OK);
    assert_int_equal(sqrl_source_shards(shared), SHARDS);
}

static void test_threads(void **state) {
    open_numbers();
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
    for (size_t i = 0; i < 4; i++) {
        void *fault = NULL;
        pthread_join(threads[i], &fault);
        if (fault)
            fail_msg("%s", (const char *)fault);
    }
    sqrl_source_unref(shared);
}

static void test_fork(void **state) {
    open_numbers();
    assert_null(hammer((void *)1));
    pid_t child = fork();
    if (child == 0)
        _exit(hammer((void *)2) != NULL);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_null(hammer((void *)3));
    sqrl_source_unref(shared);
}

static void test_fingerprint(void **state) {
    struct sqrl_source *a = NULL, *b = NULL, *c = NULL;
    put_text("f.jsonl", "1\n2\n");
    assert_int_equal(sqrl_open(context, at("f.jsonl"), NULL, &a, NULL), SQRL_OK);
    assert_int_equal(sqrl_open(context, at("f.jsonl"), NULL, &b, NULL), SQRL_OK);
    put_text("f.jsonl", "1\n2\n3\n");
    assert_int_equal(sqrl_open(context, at("f.jsonl"), NULL, &c, NULL), SQRL_OK);
    assert_true(sqrl_source_fingerprint(a) == sqrl_source_fingerprint(b));
    assert_true(sqrl_source_fingerprint(a) != sqrl_source_fingerprint(c));
    sqrl_source_unref(a);
    sqrl_source_unref(b);
    sqrl_source_unref(c);
}

/* Every allocation of opening a directory fails once. */
static void test_no_memory(void **state) {
    mkdir(at("few"), 0777);
    put_text("few/a.jsonl", two_lines);
    put_coded("few/b.jsonl.gz", "gzip", two_lines, sizeof two_lines - 1);
    for (uint64_t n = 1;; n++) {
        struct sqrl_source *source = NULL;
        sqrl_fail_allocation(n);
        int rc = sqrl_open(context, at("few"), NULL, &source, NULL);
        sqrl_fail_allocation(0);
        sqrl_source_unref(source);
        if (rc == SQRL_OK) {
            assert_true(n > 5);
            return;
        }
        assert_null(source);
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content_before_names),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_permission),
        cmocka_unit_test(test_directories),
        cmocka_unit_test(test_many_files),
        cmocka_unit_test(test_vanishes),
        cmocka_unit_test(test_error_stays),
        cmocka_unit_test(test_register),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, opening_setup, opening_teardown);
}
