/* Packing: what goes in comes out in order whatever the number of threads, destinations
 * are never half-written, and nothing is replaced that was not to be. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "opening.h"

/* A sample {"i": k, "pad": text of 1 to 2,000 characters that depends on k}. */
static void make_sample(struct sqrl_bytes *out, uint64_t k) {
    char pad[2000];
    size_t size = (size_t)(sqrl_mix64(k) % sizeof pad) + 1;
    memset(pad, 'a' + (int)(k % 26), size);
    assert_int_equal(sqrl_msgpack_put_map(out, 2, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(out, "i", 1, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_uint(out, k, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(out, "pad", 3, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(out, pad, size, NULL), SQRL_OK);
}

static int pack_range(struct sqrl_context *in, const char *destination,
                      struct sqrl_pack_options *options, uint64_t from, uint64_t to,
                      struct sqrl_pack_report *report, struct sqrl_error *err) {
    struct sqrl_packer *packer = NULL;
    struct sqrl_bytes sample = {0};
    options->size = sizeof *options;
    int rc = sqrl_packer_open(in, destination, options, &packer, err);
    if (rc)
        return rc;
    for (uint64_t k = from; !rc && k < to; k++) {
        if (k % 2) { /* both ways of adding */
            make_sample(sqrl_packer_bytes(packer), k);
            rc = sqrl_packer_accept(packer, err);
        } else {
            sample.size = 0;
            make_sample(&sample, k);
            rc = sqrl_packer_append(packer, sample.data, sample.size, err);
        }
    }
    sqrl_bytes_reset(&sample);
    if (!rc)
        return sqrl_packer_finish(packer, report, err);
    sqrl_packer_abandon(packer);
    return rc;
}

static void pack_well(const char *destination, struct sqrl_pack_options options,
                      uint64_t from, uint64_t to, struct sqrl_pack_report *report) {
    struct sqrl_error err = {0};
    if (pack_range(context, destination, &options, from, to, report, &err))
        fail_msg("%s: %s", err.where, err.message);
}

static void expect_range(const char *url, uint64_t from, uint64_t to) {
    struct reading r;
    if (read_source(url, NULL, false, &r))
        fail_msg("%s: %s", url, r.text);
    assert_int_equal(r.samples, to - from);
    const char *line = (const char *)r.lines.data;
    for (uint64_t k = from; k < to; k++) {
        char want[64];
        int n = snprintf(want, sizeof want, "{\"i\": %llu, \"pad\": \"%c",
                         (unsigned long long)k, 'a' + (int)(k % 26));
        if (strncmp(line, want, (size_t)n) != 0)
            fail_msg("%s: sample %llu is \"%.40s\"", url, (unsigned long long)k, line);
        line = strchr(line, '\n') + 1;
    }
    reading_reset(&r);
}

/* How many entries, hidden ones too; temporaries would be among them. */
static int count_entries(const char *path) {
    int count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (dir)
        closedir(dir);
    return count;
}

/* Whether a shard stands there under its final name. */
static bool has_shard(const char *path) {
    bool found = false;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        found = found || (entry->d_name[0] != '.' && strstr(entry->d_name, ".sqrl"));
    if (dir)
        closedir(dir);
    return found;
}

static void test_formats(void **state) {
    static const char *const names[] = {"a.sqrl",      "a.jsonl",      "a.jsonl.gz",
                                        "a.jsonl.zst", "a.jsonl.lz4",  "a.gz",
                                        "a.msgpack",   "a.msgpack.zst"};
    struct sqrl_pack_report report;
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        pack_well(at(names[i]), (struct sqrl_pack_options){0}, 0, 5000, &report);
        assert_int_equal(report.samples, 5000);
        assert_int_equal(report.shards, 1);
        struct stat st;
        assert_int_equal(stat(at(names[i]), &st), 0);
        assert_int_equal(report.file_bytes, st.st_size);
        expect_range(at(names[i]), 0, 5000);
    }
    assert_int_equal(
        run("gzip -t %s/a.jsonl.gz && gzip -t %s/a.gz", directory, directory), 0);
    assert_int_equal(
        run("gzip -dc %s/a.jsonl.gz | cmp - %s/a.jsonl", directory, directory), 0);
}

static void test_shards(void **state) {
    static const char *const formats[] = {"sqrl", "messagepack", "jsonl"};
    for (size_t i = 0; i < SQRL_COUNT_OF(formats); i++) {
        struct sqrl_pack_report report;
        char name[32];
        snprintf(name, sizeof name, "cut-%s", formats[i]);
        struct sqrl_pack_options options = {.format = formats[i],
                                            .samples_per_shard = 1000};
        pack_well(at(name), options, 0, 3500, &report);
        assert_int_equal(report.samples, 3500);
        assert_int_equal(report.shards, 4);
        expect_range(at(name), 0, 3500);
        assert_int_equal(count_entries(at(name)), i == 0 ? 5 : 4);
        struct sqrl_source *source = NULL;
        assert_int_equal(sqrl_open(context, at(name), NULL, &source, NULL), SQRL_OK);
        assert_int_equal(sqrl_source_shards(source), 4);
        sqrl_source_unref(source);
    }
    /* By bytes: each shard holds at least that much, but the last. */
    struct sqrl_pack_report report;
    struct sqrl_pack_options options = {.shard_bytes = 500000, .block_bytes = 100000};
    pack_well(at("bytes"), options, 0, 3000, &report);
    assert_int_equal(report.shards, report.raw_bytes / 500000 + (report.raw_bytes > 0) -
                                        (report.raw_bytes / report.shards >= 510000));
    expect_range(at("bytes"), 0, 3000);
}

/* Files are the same for 1, 2 and 7 threads. */
static void test_threads_do_not_matter(void **state) {
    static const char *const names[] = {"t1.sqrl", "t2.sqrl", "t7.sqrl"};
    static const unsigned threads[] = {1, 2, 7};
    size_t size[3];
    char *data[3];
    for (size_t i = 0; i < 3; i++) {
        struct sqrl_config config = {.size = sizeof config, .cpu_threads = threads[i]};
        struct sqrl_context *own = NULL;
        struct sqrl_pack_options options = {.block_bytes = 20000};
        struct sqrl_error err = {0};
        assert_int_equal(sqrl_context_new(&config, &own, NULL), SQRL_OK);
        if (pack_range(own, at(names[i]), &options, 0, 4000, NULL, &err))
            fail_msg("%s", err.message);
        data[i] = slurp(at(names[i]), &size[i]);
        sqrl_context_unref(own);
    }
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(size[i], size[0]);
        assert_memory_equal(data[i], data[0], size[0]);
    }
    for (size_t i = 0; i < 3; i++)
        free(data[i]);
}

static void refused(const char *destination, struct sqrl_pack_options options, int code,
                    const char *says) {
    struct sqrl_error err = {0};
    int rc = pack_range(context, destination, &options, 0, 10, NULL, &err);
    char text[1200];
    sqrl_error_text(&err, text, sizeof text);
    if (rc != code || !strstr(text, says) ||
        strncmp(text, destination, strlen(destination)) != 0)
        fail_msg("%s: got %s: \"%s\", expected %s with \"%s\"", destination,
                 sqrl_code_name(rc), text, sqrl_code_name(code), says);
}

static void test_destinations(void **state) {
    struct sqrl_pack_options plain = {0}, overwrite = {.overwrite = true},
                             append = {.append = true};
    /* A file. */
    pack_well(at("one.jsonl"), plain, 0, 10, NULL);
    refused(at("one.jsonl"), plain, SQRL_E_EXISTS, "overwrite");
    refused(at("one.jsonl"), append, SQRL_E_UNSUPPORTED, "directory");
    expect_range(at("one.jsonl"), 0, 10);
    pack_well(at("one.jsonl"), overwrite, 50, 90, NULL);
    expect_range(at("one.jsonl"), 50, 90);
    refused(at("one.jsonl"),
            (struct sqrl_pack_options){.format = "sqrl", .overwrite = true},
            SQRL_E_INVALID, "jsonl");
    put_text("thing.txt", "text");
    refused(at("thing.txt"), overwrite, SQRL_E_EXISTS, "this is a file");
    refused(at("x.jsonl"), (struct sqrl_pack_options){.samples_per_shard = 5},
            SQRL_E_INVALID, "directory");
    pack_well(at("new/deep/x.jsonl"), plain, 0, 3, NULL);
    expect_range(at("new/deep/x.jsonl"), 0, 3);
    /* A directory, also one whose name has a suffix. */
    mkdir(at("dir.jsonl"), 0777);
    pack_well(at("dir.jsonl"), plain, 0, 10, NULL);
    expect_range(at("dir.jsonl"), 0, 10);
    refused(at("dir.jsonl"), plain, SQRL_E_EXISTS, "commit");
    pack_well(at("dir.jsonl"), append, 10, 25, NULL);
    expect_range(at("dir.jsonl"), 0, 25);
    pack_well(at("dir.jsonl"), overwrite, 100, 120, NULL);
    expect_range(at("dir.jsonl"), 100, 120);
    assert_int_equal(count_entries(at("dir.jsonl")), 2); /* a shard and _sqrl */
    pack_well(at("slash.gz/"), plain, 0, 5, NULL);
    expect_range(at("slash.gz"), 0, 5);
    /* Others than native: nothing of another kind is removed or mixed in. */
    struct sqrl_pack_options lines = {.format = "jsonl", .overwrite = true};
    pack_well(at("lines"), lines, 0, 5, NULL);
    pack_well(at("lines"), lines, 7, 9, NULL);
    expect_range(at("lines"), 7, 9);
    assert_int_equal(count_entries(at("lines")), 1);
    put_text("lines/notes.txt", "mine");
    refused(at("lines"), lines, SQRL_E_EXISTS, "notes.txt");
    refused(at("lines"), plain, SQRL_E_EXISTS, "holds data");
}

static void test_options(void **state) {
    static const struct sqrl_setting unknown = {"lovel", "3"}, zstd = {"codec", "zstd"},
                                     level = {"level", "99"}, gzip = {"codec", "gzip"};
    struct sqrl_settings settings = {&unknown, 1};
    struct sqrl_pack_options options = {.settings = &settings};
    refused(at("o"), options, SQRL_E_INVALID, "level");
    settings.items = &zstd;
    refused(at("o.jsonl.gz"), options, SQRL_E_INVALID, "gzip");
    settings.items = &level;
    refused(at("o.jsonl.gz"), options, SQRL_E_INVALID, "99");
    refused(at("o"), (struct sqrl_pack_options){.format = "idx"}, SQRL_E_UNSUPPORTED,
            "nothing writes");
    refused(at("o"), (struct sqrl_pack_options){.format = "csv"}, SQRL_E_NOT_FOUND,
            "jsonl");
    refused(at("o"), (struct sqrl_pack_options){.prefix = "a/b"}, SQRL_E_INVALID,
            "prefix");
    refused(at("o"), (struct sqrl_pack_options){.append = true, .overwrite = true},
            SQRL_E_INVALID, "exclude");
    struct sqrl_pack_options wrong = {.size = 8};
    struct sqrl_packer *packer = NULL;
    assert_int_equal(sqrl_packer_open(context, at("o"), &wrong, &packer, NULL),
                     SQRL_E_INVALID);
    assert_null(packer);
    /* The codec chooses the suffix of shards. */
    settings.items = &gzip;
    options.format = "jsonl";
    options.prefix = "part";
    pack_well(at("coded"), options, 0, 3, NULL);
    assert_int_equal(access(at("coded/part-000000.jsonl.gz"), R_OK), 0);
}

/* Settings are borrowed for the call: their texts may be gone when shards are made. */
static void test_options_are_copied(void **state) {
    (void)state;
    char name[] = "ascii", value[] = "false";
    struct sqrl_setting item = {name, value};
    struct sqrl_settings settings = {&item, 1};
    struct sqrl_pack_options options = {
        .size = sizeof options, .settings = &settings, .format = "jsonl", .prefix = "p"};
    struct sqrl_packer *packer = NULL;
    struct sqrl_bytes sample = {NULL, 0, 0};
    assert_int_equal(sqrl_packer_open(context, at("kept"), &options, &packer, NULL),
                     SQRL_OK);
    memset(name, 'x', sizeof name - 1);
    memset(value, 'x', sizeof value - 1);
    memset(&item, 0, sizeof item);
    assert_int_equal(sqrl_msgpack_put_string(&sample, "\xc3\xa9", 2, NULL), SQRL_OK);
    assert_int_equal(sqrl_packer_append(packer, sample.data, sample.size, NULL), SQRL_OK);
    assert_int_equal(sqrl_packer_finish(packer, NULL, NULL), SQRL_OK);
    FILE *file = fopen(at("kept/p-000000.jsonl"), "rb");
    char line[16] = "";
    assert_non_null(file);
    assert_int_equal(fread(line, 1, sizeof line, file), 5);
    assert_memory_equal(line, "\"\xc3\xa9\"\n", 5);
    fclose(file);
    sqrl_bytes_reset(&sample);
}

static void test_bad_samples(void **state) {
    struct sqrl_packer *packer = NULL;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_packer_open(context, at("some.jsonl"), NULL, &packer, NULL),
                     SQRL_OK);
    assert_int_equal(sqrl_packer_append(packer, (const uint8_t *)"", 0, &err),
                     SQRL_E_INVALID);
    make_sample(sqrl_packer_bytes(packer), 3);
    sqrl_packer_reject(packer); /* taken back */
    make_sample(sqrl_packer_bytes(packer), 0);
    assert_int_equal(sqrl_packer_accept(packer, &err), SQRL_OK);
    make_sample(sqrl_packer_bytes(packer), 4); /* not accepted before the end: dropped */
    assert_int_equal(sqrl_packer_finish(packer, NULL, &err), SQRL_OK);
    expect_range(at("some.jsonl"), 0, 1);
    /* Bytes that are no MessagePack are refused when they are encoded. */
    assert_int_equal(sqrl_packer_open(context, at("bad.jsonl"), NULL, &packer, NULL),
                     SQRL_OK);
    int rc = sqrl_packer_append(packer, (const uint8_t *)"\xc1", 1, &err);
    rc = rc ? rc : sqrl_packer_finish(packer, NULL, &err);
    assert_int_equal(rc, SQRL_E_CORRUPT);
    assert_int_equal(access(at("bad.jsonl"), F_OK), -1);
}

static void test_empty(void **state) {
    static const char *const names[] = {"e.sqrl", "e.jsonl.gz", "e.gz", "e-directory"};
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        struct sqrl_pack_report report;
        pack_well(at(names[i]), (struct sqrl_pack_options){0}, 0, 0, &report);
        assert_int_equal(report.samples, 0);
        expect_range(at(names[i]), 0, 0);
    }
}

static void test_cut(void **state) {
    struct sqrl_packer *packer = NULL;
    struct sqrl_pack_report report;
    assert_int_equal(sqrl_packer_open(context, at("by-hand"), NULL, &packer, NULL),
                     SQRL_OK);
    for (uint64_t k = 0; k < 10; k++) {
        make_sample(sqrl_packer_bytes(packer), k);
        assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
        if (k % 4 == 3) {
            assert_int_equal(sqrl_packer_cut(packer, NULL), SQRL_OK);
            assert_int_equal(sqrl_packer_cut(packer, NULL), SQRL_OK); /* nothing to cut */
        }
    }
    assert_int_equal(sqrl_packer_finish(packer, &report, NULL), SQRL_OK);
    assert_int_equal(report.shards, 3);
    expect_range(at("by-hand"), 0, 10);
    assert_int_equal(sqrl_packer_open(context, at("file.sqrl"), NULL, &packer, NULL),
                     SQRL_OK);
    assert_int_equal(sqrl_packer_cut(packer, NULL), SQRL_E_INVALID);
    sqrl_packer_abandon(packer);
    assert_int_equal(access(at("file.sqrl"), F_OK), -1);
}

static void test_abandon(void **state) {
    struct sqrl_pack_options options = {.size = sizeof options, .samples_per_shard = 100};
    struct sqrl_packer *packer = NULL;
    assert_int_equal(sqrl_packer_open(context, at("given-up"), &options, &packer, NULL),
                     SQRL_OK);
    for (uint64_t k = 0; k < 2050; k++) {
        make_sample(sqrl_packer_bytes(packer), k);
        assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
    }
    sqrl_packer_abandon(packer);
    sqrl_packer_abandon(NULL);
    assert_int_equal(access(at("given-up"), F_OK), -1);
    /* The place is free for the next try. */
    pack_well(at("given-up"), options, 0, 30, NULL);
    expect_range(at("given-up"), 0, 30);
}

/* --- a full disk: the file size limit fails write() like ENOSPC does --- */
static struct sqrl_packer *begin_pack(const char *destination, bool append,
                                      uint64_t samples) {
    struct sqrl_pack_options options = {.size = sizeof options, .append = append};
    struct sqrl_packer *packer = NULL;
    assert_int_equal(sqrl_packer_open(context, destination, &options, &packer, NULL),
                     SQRL_OK);
    for (uint64_t k = 0; k < samples; k++) {
        make_sample(sqrl_packer_bytes(packer), k);
        assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
    }
    return packer;
}

/* Giving up takes the directories that were made for it, and no others. */
static void test_abandon_directories(void **state) {
    static const struct {
        const char *destination, *goes, *stays;
    } cases[] = {
        {"there/a/b/set", "there/a", "there"},
        {"there/a//set", "there/a", "there"},
        {"there/x/y/one.jsonl", "there/x", "there"},
        {"there/one.jsonl", "there/one.jsonl", "there"},
        {"there", "there/none", "there/_sqrl"},
    };
    assert_int_equal(mkdir(at("there"), 0777), 0);
    for (size_t i = 0; i < SQRL_COUNT_OF(cases); i++) {
        sqrl_packer_abandon(begin_pack(at(cases[i].destination), false, 3000));
        if (access(at(cases[i].goes), F_OK) == 0 || access(at(cases[i].stays), F_OK) != 0)
            fail_msg("%s: \"%s\" is there, or \"%s\" is not", cases[i].destination,
                     cases[i].goes, cases[i].stays);
    }
    struct sqrl_packer *packer = NULL; /* refused after its directory was made */
    struct sqrl_pack_options options = {.size = sizeof options, .samples_per_shard = 1};
    assert_int_equal(
        sqrl_packer_open(context, at("there/z/one.jsonl"), &options, &packer, NULL),
        SQRL_E_INVALID);
    assert_int_equal(access(at("there/z"), F_OK), -1);
}

/* The one that made the directory gives up; another has opened it, or writes there. */
static void test_abandon_beside_others(void **state) {
    for (int written = 0; written < 2; written++) {
        const char *name = written ? "shared-1" : "shared-0";
        char commits[32];
        snprintf(commits, sizeof commits, "%s/_sqrl", name);
        struct sqrl_packer *first = begin_pack(at(name), true, 10);
        struct sqrl_packer *second = begin_pack(at(name), true, written ? 3000 : 0);
        sqrl_packer_abandon(first);
        assert_int_equal(access(at(commits), F_OK), written ? 0 : -1);
        make_sample(sqrl_packer_bytes(second), written ? 3000 : 0);
        assert_int_equal(sqrl_packer_accept(second, NULL), SQRL_OK);
        assert_int_equal(sqrl_packer_finish(second, NULL, NULL), SQRL_OK);
        expect_range(at(name), 0, written ? 3001 : 1);
    }
}

static void test_full_disk(void **state) {
    struct rlimit old, low = {300000, RLIM_INFINITY};
    struct sqrl_pack_options options = {.block_bytes = 50000};
    static const struct sqrl_setting none = {"codec", "none"};
    static const struct sqrl_settings settings = {&none, 1};
    struct sqrl_error err = {0};
    options.settings = &settings;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    low.rlim_max = old.rlim_max;
    pack_well(at("full"), (struct sqrl_pack_options){0}, 0, 20, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    options.overwrite = true;
    int rc = pack_range(context, at("full"), &options, 0, 5000, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_not_equal(rc, SQRL_OK);
    assert_int_equal(rc, err.code);
    assert_true(err.os_errno != 0);
    assert_int_equal(strncmp(err.where, at("full/"), strlen(at("full/"))), 0);
    expect_range(at("full"), 0, 20); /* the old data are as they were */
    assert_int_equal(count_entries(at("full")), 2);
    /* A disk that is really full, where one can be made. */
    mkdir(at("tiny"), 0777);
    if (run("mount -t tmpfs -o size=1m none %s/tiny 2>/dev/null", directory) != 0) {
        print_message("note: no small file system could be mounted\n");
        return;
    }
    options.overwrite = false;
    rc = pack_range(context, at("tiny/x"), &options, 0, 5000, NULL, &err);
    int left = count_entries(at("tiny/x"));
    run("umount %s/tiny", directory);
    assert_int_equal(rc, SQRL_E_NO_SPACE);
    assert_int_equal(left, 0);
}

/* --- processes --- */
/* ThreadSanitizer can't start threads in a child of a process that has some. */
#if defined(__SANITIZE_THREAD__)
enum { TSAN = 1 };
#elif defined(__has_feature)
enum { TSAN = __has_feature(thread_sanitizer) };
#else
enum { TSAN = 0 };
#endif

static void needs_threads_after_fork(void) {
    if (!TSAN)
        return;
    print_message("skipped: ThreadSanitizer has no threads after a fork\n");
    skip();
}

static void test_many_writers(void **state) {
    needs_threads_after_fork();
    enum { WRITERS = 4, EACH = 500 };
    pid_t children[WRITERS];
    char prefixes[WRITERS][16];
    const char *list[WRITERS];
    const char *destination = at("together");
    for (int w = 0; w < WRITERS; w++) {
        snprintf(prefixes[w], sizeof prefixes[w], "w%d", w);
        list[w] = prefixes[w];
        children[w] = fork();
        if (children[w] == 0) {
            struct sqrl_context *own = NULL;
            struct sqrl_pack_options options = {
                .samples_per_shard = 150, .hold_commit = true, .prefix = prefixes[w]};
            int rc = sqrl_context_new(NULL, &own, NULL);
            rc = rc ? rc
                    : pack_range(own, destination, &options, (uint64_t)w * EACH,
                                 (uint64_t)(w + 1) * EACH, NULL, NULL);
            sqrl_context_unref(own);
            _exit(rc);
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = 1;
        waitpid(children[w], &status, 0);
        assert_int_equal(status, 0);
    }
    struct sqrl_pack_report report;
    assert_int_equal(
        sqrl_pack_commit(context, destination, NULL, list, WRITERS, false, &report, NULL),
        SQRL_OK);
    assert_int_equal(report.samples, WRITERS * EACH);
    assert_int_equal(report.shards, WRITERS * 4);
    expect_range(destination, 0, WRITERS * EACH);
}

/* Two that pack to one directory at once, each with its own commit: both are there. */
static void test_two_appends(void **state) {
    needs_threads_after_fork();
    const char *destination = at("both");
    pid_t child = fork();
    struct sqrl_pack_options options = {.append = true, .samples_per_shard = 100};
    if (child == 0) {
        struct sqrl_context *own = NULL;
        int rc = sqrl_context_new(NULL, &own, NULL);
        rc = rc ? rc : pack_range(own, destination, &options, 0, 1000, NULL, NULL);
        sqrl_context_unref(own);
        _exit(rc);
    }
    pack_well(destination, options, 0, 1000, NULL);
    int status = 1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    struct sqrl_source *source = NULL;
    assert_int_equal(sqrl_open(context, destination, NULL, &source, NULL), SQRL_OK);
    assert_int_equal(sqrl_source_samples(source), 2000);
    assert_int_equal(sqrl_source_shards(source), 20);
    sqrl_source_unref(source);
}

/* A packer that is killed leaves the old data as they were and what the next one sweeps.
 */
static void test_killed(void **state) {
    needs_threads_after_fork();
    const char *destination = at("killed");
    pack_well(destination, (struct sqrl_pack_options){0}, 0, 40, NULL);
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) {
            struct sqrl_context *own = NULL;
            struct sqrl_pack_options options = {.append = true, .samples_per_shard = 200};
            if (sqrl_context_new(NULL, &own, NULL) == SQRL_OK)
                (void)!pack_range(own, destination, &options, 0, 10000000, NULL, NULL);
            _exit(0);
        }
        usleep(30000 + 20000 * (useconds_t)round);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        expect_range(destination, 0, 40);
    }
    pack_well(destination, (struct sqrl_pack_options){.overwrite = true}, 7, 9, NULL);
    expect_range(destination, 7, 9);
    assert_int_equal(count_entries(destination), 2);
}

/* The first pack of a directory is killed: its shards do not pass for a data set. */
static void test_killed_first(void **state) {
    needs_threads_after_fork();
    const char *destination = at("first");
    pid_t child = fork();
    if (child == 0) {
        struct sqrl_context *own = NULL;
        struct sqrl_pack_options options = {.samples_per_shard = 20};
        if (sqrl_context_new(NULL, &own, NULL) == SQRL_OK)
            (void)!pack_range(own, destination, &options, 0, 10000000, NULL, NULL);
        _exit(0);
    }
    while (!has_shard(destination))
        usleep(2000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    check_error(destination, NULL, NULL, SQRL_E_STATE, "belong to no commit",
                "overwrite");
    refused(destination, (struct sqrl_pack_options){0}, SQRL_E_EXISTS, "holds data");
    pack_well(destination, (struct sqrl_pack_options){.overwrite = true}, 3, 5, NULL);
    expect_range(destination, 3, 5);
    assert_int_equal(count_entries(destination), 2);
}

static void test_forked_packer(void **state) {
    struct sqrl_packer *packer = NULL;
    assert_int_equal(sqrl_packer_open(context, at("forked.jsonl"), NULL, &packer, NULL),
                     SQRL_OK);
    for (uint64_t k = 0; k < 3000; k++) {
        make_sample(sqrl_packer_bytes(packer), k);
        assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
    }
    pid_t child = fork();
    if (child == 0) {
        make_sample(sqrl_packer_bytes(packer), 1);
        int rc = sqrl_packer_accept(packer, NULL);
        int end = sqrl_packer_finish(packer, NULL, NULL);
        _exit(rc != SQRL_E_STATE || end != SQRL_E_STATE);
    }
    int status = 1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(sqrl_packer_finish(packer, NULL, NULL), SQRL_OK);
    expect_range(at("forked.jsonl"), 0, 3000);
}

/* Every allocation fails once: an error and no file, or (where it does not matter, as in
 * sweeping) all samples. */
static void test_no_memory(void **state) {
    struct sqrl_config config = {.size = sizeof config, .cpu_threads = 1};
    struct sqrl_context *own = NULL;
    struct sqrl_bytes sample = {0};
    unsigned failures = 0, successes = 0;
    make_sample(&sample, 0);
    assert_int_equal(sqrl_context_new(&config, &own, NULL), SQRL_OK);
    for (uint64_t n = 1; successes < 20; n++) {
        struct sqrl_pack_options options = {.size = sizeof options, .block_bytes = 3000};
        struct sqrl_packer *packer = NULL;
        sqrl_fail_allocation(n);
        int rc = sqrl_packer_open(own, at("oom.jsonl"), &options, &packer, NULL);
        for (int k = 0; !rc && k < 8; k++)
            rc = sqrl_packer_append(packer, sample.data, sample.size, NULL);
        if (!rc)
            rc = sqrl_packer_finish(packer, NULL, NULL);
        else
            sqrl_packer_abandon(packer);
        sqrl_fail_allocation(0);
        if (rc == SQRL_OK) {
            struct reading r;
            assert_int_equal(read_all(at("oom.jsonl"), NULL, NULL, &r), SQRL_OK);
            assert_int_equal(r.samples, 8);
            reading_reset(&r);
            remove(at("oom.jsonl"));
            successes++;
            continue;
        }
        failures++;
        successes = 0;
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        assert_int_equal(access(at("oom.jsonl"), F_OK), -1);
        assert_true(n < 5000);
    }
    assert_true(failures > 10);
    sqrl_bytes_reset(&sample);
    sqrl_context_unref(own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_destinations),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_options_are_copied),
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_abandon),
        cmocka_unit_test(test_abandon_directories),
        cmocka_unit_test(test_abandon_beside_others),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_many_writers),
        cmocka_unit_test(test_two_appends),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_killed_first),
        cmocka_unit_test(test_forked_packer),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, opening_setup, opening_teardown);
}
