/* The cache over a file system whose requests are counted and fail on order. */
#include "cache_test.h"

#define FILE_BYTES (9 * MIB + 12345)

/* --- the contract of file systems --- */

static void test_contract(void **state) {
    struct env *e = *state;
    static const char *const options[] = {"", "unit=shard", "limit=1MiB", "fresh=0"};
    for (size_t i = 0; i < SQRL_COUNT_OF(options); i++) {
        char root[32];
        struct sqrl_fs *fs = open_cache(e, options[i]);
        snprintf(root, sizeof root, "root%zu", i);
        OK(sqrl_fs_make_directory(fs, root, &err));
        contract_fs(fs, root);
        sqrl_fs_unref(fs);
    }
    assert_int_equal(e->heard.warnings, 0);
}

static void test_contract_local(void **state) {
    struct env *e = *state;
    struct sqrl_fs *local, *fs;
    char *path, root[100], cache[100];
    snprintf(root, sizeof root, "%s/files", e->directory);
    snprintf(cache, sizeof cache, "%s/cache?limit=64MiB", e->directory);
    OK(sqrl_fs_for_url(e->context, root, NULL, &local, &path, &err));
    OK(sqrl_fs_make_directory(local, root, &err));
    OK(sqrl_fs_cache(local, cache, "", NULL, &fs, &err));
    contract_fs(fs, root);
    sqrl_fs_unref(fs);
    sqrl_fs_unref(local);
    free(path);
}

/* --- what is fetched, and how often --- */

static void test_second_epoch_asks_nothing(void **state) {
    struct env *e = *state;
    struct sqrl_fs_metrics metrics;
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "a", 1, FILE_BYTES);
    assert_int_equal(e->plan.opens, 1);
    assert_int_equal(e->plan.reads, 1);
    assert_int_equal(metric_named(e, "cache.bytes_fetched"), FILE_BYTES);
    for (int epoch = 0; epoch < 3; epoch++)
        assert_whole(fs, "a", 1, FILE_BYTES);
    assert_int_equal(e->plan.opens, 1);
    assert_int_equal(e->plan.stats, 0);
    assert_int_equal(e->plan.reads, 1);
    assert_int_equal(metric_named(e, "cache.bytes"), 3 * (uint64_t)FILE_BYTES);
    assert_int_equal(metric_named(e, "cache.hits"), 3);
    sqrl_fs_metrics(fs, &metrics);
    assert_int_equal(metrics.cache_hits, 3);
    assert_int_equal(metrics.cache_bytes, 3 * (uint64_t)FILE_BYTES);
    sqrl_fs_unref(fs);
    /* Another process: asks whether it is the same still, and reads nothing. */
    fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "a", 1, FILE_BYTES);
    assert_int_equal(e->plan.opens, 2);
    assert_int_equal(e->plan.reads, 1);
    sqrl_fs_unref(fs);
}

static void test_small_reads_in_sequence(void **state) {
    struct env *e = *state;
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    for (uint64_t at = 0; at < FILE_BYTES; at += 10000)
        assert_read(file, 1, at, (size_t)SQRL_MIN(10000u, FILE_BYTES - at));
    /* The first grain, then slots of 4 MiB: 9 MiB are three of them. */
    assert_int_equal(e->plan.reads, 4);
    assert_int_equal(metric_named(e, "cache.bytes_fetched"), FILE_BYTES);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

static void test_small_random_reads_fetch_little(void **state) {
    struct env *e = *state;
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    assert_read(file, 1, 5 * MIB + 100, 1000);
    assert_int_equal(metric_named(e, "cache.bytes_fetched"), 64 * KIB);
    assert_read(file, 1, 3 * MIB - 10, 20); /* over a boundary of grains */
    assert_int_equal(metric_named(e, "cache.bytes_fetched"), 3 * 64 * KIB);
    assert_read(file, 1, FILE_BYTES - 1, 1); /* the last grain is shorter */
    assert_int_equal(metric_named(e, "cache.bytes_fetched"),
                     3 * 64 * KIB + FILE_BYTES % (64 * KIB));
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

/* Many small pieces of a slot become one. */
static void test_crowded_slots_are_made_one(void **state) {
    struct env *e = *state;
    put(e->memory, "a", 1, 8 * MIB);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    for (unsigned i = 0; i < 31; i++)
        assert_read(file, 1, (i * 2 + 1) * 128 * KIB % (4 * MIB) + i, 5);
    assert_int_equal(piece_count(e), 1);
    assert_int_equal(metric_named(e, "cache.misses"), 9);
    assert_read(file, 1, 0, 4 * MIB);
    assert_int_equal(metric_named(e, "cache.misses"), 9);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

static void test_whole_shards(void **state) {
    struct env *e = *state;
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB&unit=shard");
    struct sqrl_file *file = open_file(fs, "a");
    assert_read(file, 1, 5 * MIB, 10);
    assert_int_equal(metric_named(e, "cache.bytes_fetched"), FILE_BYTES);
    unsigned reads = e->plan.reads;
    assert_read(file, 1, 0, FILE_BYTES);
    assert_int_equal(e->plan.reads, reads);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

/* A known size alone tells no version: it is looked up; an ETag from a listing does. */
static void test_known_files(void **state) {
    struct env *e = *state;
    struct sqrl_stat known = {.size = FILE_BYTES};
    struct sqrl_file *file;
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    OK(sqrl_file_open_known(fs, "a", &known, &file, &err));
    assert_read(file, 1, 0, 100);
    assert_int_equal(piece_count(e), 1);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

/* --- changes --- */

static void test_changed_objects_are_never_mixed(void **state) {
    struct env *e = *state;
    struct sqrl_error err = {0};
    uint8_t back[16];
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    assert_read(file, 1, 0, 1000);
    sqrl_file_unref(file);
    put(e->memory, "a", 2, FILE_BYTES);
    /* This shim has found version 1 current: what it holds of it is read, the rest is an
     * error, never version 2. */
    file = open_file(fs, "a");
    assert_read(file, 1, 0, 1000);
    assert_int_equal(sqrl_file_read_exact(file, 4 * MIB, back, 16, NULL, &err),
                     SQRL_E_CORRUPT);
    assert_non_null(strstr(err.message, "it changed since it was opened"));
    assert_non_null(strstr(err.where, "mem://a"));
    sqrl_file_unref(file);
    assert_whole(fs, "a", 2, FILE_BYTES); /* which it found out by that */
    sqrl_fs_unref(fs);
    fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "a", 2, FILE_BYTES);
    sqrl_fs_unref(fs);
    put(e->memory, "a", 3, 100); /* another length */
    fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "a", 3, 100);
    sqrl_fs_unref(fs);
}

/* Where reading itself does not tell, the file is looked up again behind each fetch. */
static void test_rewritten_in_place(void **state) {
    struct env *e = *state;
    struct sqrl_fs *local, *fs;
    struct sqrl_file *file;
    struct sqrl_error err = {0};
    char *path, name[100], cache[100];
    uint8_t back[16];
    snprintf(name, sizeof name, "%s/file", e->directory);
    snprintf(cache, sizeof cache, "%s/cache?limit=64MiB", e->directory);
    OK(sqrl_fs_for_url(e->context, name, NULL, &local, &path, &err));
    put(local, name, 1, FILE_BYTES);
    OK(sqrl_fs_cache(local, cache, "", NULL, &fs, &err));
    file = open_file(fs, name);
    assert_read(file, 1, 0, 1000);
    FILE *same = fopen(name, "r+b");
    assert_non_null(same);
    assert_int_equal(fseek(same, 5 * MIB, SEEK_SET), 0);
    for (int i = 0; i < 16; i++)
        fputc(i, same);
    fclose(same);
    struct timespec times[2] = {{1, 0}, {1, 0}}; /* whatever the clock's grain is */
    assert_int_equal(utimensat(AT_FDCWD, name, times, 0), 0);
    assert_int_equal(sqrl_file_read_exact(file, 5 * MIB, back, 16, NULL, &err),
                     SQRL_E_CORRUPT);
    assert_read(file, 1, 0, 1000);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    OK(sqrl_fs_cache(local, cache, "", NULL, &fs, &err));
    file = open_file(fs, name);
    OK(sqrl_file_read_exact(file, 5 * MIB, back, 16, NULL, &err));
    for (int i = 0; i < 16; i++)
        assert_int_equal(back[i], i);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    sqrl_fs_unref(local);
    free(path);
}

/* --- damage --- */

static void flip_byte(const char *path, void *arg) {
    long offset = *(long *)arg;
    if (!strstr(path, "/objects/"))
        return;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    struct stat st;
    assert_int_equal(fstat(fileno(file), &st), 0);
    offset = offset < 0 ? (long)st.st_size + offset : offset;
    if (offset < st.st_size) {
        assert_int_equal(fseek(file, offset, SEEK_SET), 0);
        int byte = fgetc(file);
        assert_int_equal(fseek(file, offset, SEEK_SET), 0);
        fputc(byte ^ 0x10, file);
    }
    fclose(file);
}

static void cut(const char *path, void *arg) {
    if (strstr(path, "/objects/"))
        assert_int_equal(truncate(path, *(off_t *)arg), 0);
}

static void drop(const char *path, void *arg) {
    if (strstr(path, "/objects/"))
        assert_int_equal(unlink(path), 0);
}

/* Magic, checksum, key, size, checksums, version, URL, padding, bytes, the last one. */
static void test_flipped_bytes(void **state) {
    struct env *e = *state;
    const long offsets[] = {0, 8, 40, 60, 100, 2200, 2280, 4000, 4096, 500000, -1};
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    for (size_t i = 0; i < SQRL_COUNT_OF(offsets); i++) {
        assert_read(file, 1, 0, FILE_BYTES);
        uint64_t damaged = metric_named(e, "cache.damaged");
        unsigned reads = e->plan.reads;
        long offset = offsets[i];
        each_file(e->directory, flip_byte, &offset);
        assert_read(file, 1, 0, FILE_BYTES); /* while it is in use */
        assert_true(metric_named(e, "cache.damaged") > damaged);
        assert_true(e->plan.reads > reads);
    }
    assert_int_equal(e->heard.warnings, 1); /* once */
    assert_non_null(strstr(e->heard.last, "damaged"));
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

static void test_cut_and_deleted_pieces(void **state) {
    struct env *e = *state;
    const off_t sizes[] = {0, 50, 4096, 100000};
    char line[128];
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        assert_read(file, 1, 0, FILE_BYTES);
        off_t size = sizes[i];
        each_file(e->directory, cut, &size);
        assert_read(file, 1, 0, FILE_BYTES);
    }
    each_file(e->directory, drop, NULL);
    assert_read(file, 1, 0, FILE_BYTES);
    snprintf(line, sizeof line, "rm -rf %s/v1", e->directory); /* all of it */
    assert_int_equal(system(line), 0);
    assert_read(file, 1, 0, FILE_BYTES);
    unsigned reads = e->plan.reads;
    assert_read(file, 1, 0, FILE_BYTES);
    assert_int_equal(e->plan.reads, reads); /* it was made anew */
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

/* A whole piece under another's name is no hit. */
static void test_swapped_pieces(void **state) {
    struct env *e = *state;
    char line[512];
    put(e->memory, "a", 1, 4 * MIB);
    put(e->memory, "b", 2, 4 * MIB);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "a", 1, 4 * MIB);
    assert_whole(fs, "b", 2, 4 * MIB);
    snprintf(line, sizeof line,
             "cd %s/v1/objects && set -- */* && cp $1 x && cp $2 $1 && mv x $2",
             e->directory);
    assert_int_equal(system(line), 0);
    assert_whole(fs, "a", 1, 4 * MIB);
    assert_whole(fs, "b", 2, 4 * MIB);
    assert_int_equal(metric_named(e, "cache.damaged"), 2);
    sqrl_fs_unref(fs);
}

/* --- the network is down --- */

static void break_network(struct env *e) {
    e->plan.fail_stat = e->plan.fail_list = e->plan.fail_open = e->plan.fail_read = 1;
    e->plan.stats = e->plan.lists = e->plan.opens = e->plan.reads = 0;
    e->plan.times = UINT_MAX;
    e->plan.retryable = true;
}

static int add_name(void *arg, const char *name, const struct sqrl_stat *stat) {
    char *text = arg;
    sprintf(text + strlen(text), "%s%s:%llu ", name, stat->directory ? "/" : "",
            (unsigned long long)stat->size);
    return 0;
}

static void look_around(struct sqrl_fs *fs) {
    struct sqrl_stat stat;
    struct sqrl_error err = {0};
    struct sqrl_file *file;
    char text[256] = "";
    OK(sqrl_fs_stat(fs, "d", &stat, &err));
    assert_true(stat.directory);
    OK(sqrl_fs_list(fs, "d", false, add_name, text, NULL, &err));
    assert_string_equal(text, "a:3000000 b:10 sub/:0 ");
    text[0] = '\0';
    OK(sqrl_fs_list(fs, "d", true, add_name, text, NULL, &err));
    assert_string_equal(text, "a:3000000 b:10 sub/c:1 ");
    assert_int_equal(sqrl_fs_stat(fs, "d/none", &stat, &err), SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.where, "d/none"));
    assert_int_equal(sqrl_file_open(fs, "d/none", &file, &err), SQRL_E_NOT_FOUND);
    OK(sqrl_fs_stat(fs, "d/a", &stat, &err));
    assert_true(stat.size == 3000000 && !stat.directory && stat.modified_ns > 0);
    assert_whole(fs, "d/a", 1, 3000000);
}

static void test_offline(void **state) {
    struct env *e = *state;
    struct sqrl_error err = {0};
    struct sqrl_file *file;
    uint8_t back[8];
    OK(sqrl_fs_make_directory(e->memory, "d/sub", &err));
    put(e->memory, "d/a", 1, 3000000);
    put(e->memory, "d/b", 2, 10);
    put(e->memory, "d/sub/c", 3, 1);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    look_around(fs);
    file = open_file(fs, "d/b"); /* looked up, but not read */
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    break_network(e);
    fs = open_cache(e, "limit=64MiB");
    look_around(fs);
    assert_int_equal(e->heard.warnings, 1);
    assert_non_null(strstr(e->heard.last, "found current"));
    assert_non_null(strstr(e->heard.last, "second"));
    /* One failed request, then the cache is believed. */
    assert_int_equal(e->plan.stats + e->plan.lists + e->plan.opens, 1);
    OK(sqrl_file_open(fs, "d/b", &file, &err));
    assert_int_equal(sqrl_file_read_exact(file, 0, back, 8, NULL, &err), SQRL_E_IO);
    assert_true(err.retryable);
    sqrl_file_unref(file);
    assert_int_equal(sqrl_file_open(fs, "d/never", &file, &err), SQRL_E_IO);
    sqrl_fs_unref(fs);
    /* The network is back: what is there now counts. */
    e->plan.fail_stat = e->plan.fail_list = e->plan.fail_open = e->plan.fail_read = 0;
    put(e->memory, "d/a", 5, 77);
    fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "d/a", 5, 77);
    assert_int_equal(e->heard.warnings, 1);
    sqrl_fs_unref(fs);
}

/* An answer is an answer: what is forbidden now is not read from the cache. */
static void test_refusals_are_no_outage(void **state) {
    struct env *e = *state;
    struct sqrl_file *file;
    put(e->memory, "a", 1, 1000);
    struct sqrl_fs *fs = open_cache(e, "");
    assert_whole(fs, "a", 1, 1000);
    sqrl_fs_unref(fs);
    e->plan.refuse = true;
    fs = open_cache(e, "");
    assert_int_equal(sqrl_file_open(fs, "a", &file, NULL), SQRL_E_PERMISSION);
    sqrl_fs_unref(fs);
    e->plan.refuse = false;
    e->plan.vanish = true;
    fs = open_cache(e, "");
    assert_int_equal(sqrl_file_open(fs, "a", &file, NULL), SQRL_E_NOT_FOUND);
    sqrl_fs_unref(fs);
    break_network(e); /* and that it is gone is remembered */
    fs = open_cache(e, "");
    e->plan.vanish = false;
    assert_int_equal(sqrl_file_open(fs, "a", &file, NULL), SQRL_E_NOT_FOUND);
    sqrl_fs_unref(fs);
}

static void test_fresh_answers_are_shared(void **state) {
    struct env *e = *state;
    struct sqrl_stat stat;
    char text[256] = "";
    put(e->memory, "d/a", 1, 1000);
    for (int process = 0; process < 5; process++) {
        struct sqrl_fs *fs = open_cache(e, "fresh=3600");
        text[0] = '\0';
        OK(sqrl_fs_list(fs, "d", false, add_name, text, NULL, &err));
        assert_string_equal(text, "a:1000 ");
        OK(sqrl_fs_stat(fs, "d/a", &stat, &err));
        assert_whole(fs, "d/a", 1, 1000);
        sqrl_fs_unref(fs);
    }
    assert_int_equal(e->plan.lists, 1);
    assert_int_equal(e->plan.stats, 1);
    assert_int_equal(e->plan.reads, 1);
    /* A change is found out by what is missing; then nobody believes the old any more. */
    struct sqrl_file *file;
    uint8_t back[8];
    put(e->memory, "d/a", 2, 1000);
    each_file(e->directory, drop, NULL);
    struct sqrl_fs *fs = open_cache(e, "fresh=3600");
    file = open_file(fs, "d/a");
    assert_int_equal(sqrl_file_read_exact(file, 0, back, 8, NULL, NULL), SQRL_E_CORRUPT);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    fs = open_cache(e, "fresh=3600");
    assert_whole(fs, "d/a", 2, 1000);
    sqrl_fs_unref(fs);
}

/* --- faults of the network while it is read --- */

static void test_errors_of_reading(void **state) {
    struct env *e = *state;
    struct sqrl_error err = {0};
    uint8_t back[100];
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "");
    struct sqrl_file *file = open_file(fs, "a");
    e->plan.fail_read = 1;
    assert_int_equal(sqrl_file_read_exact(file, 0, back, 100, NULL, &err), SQRL_E_IO);
    assert_int_equal(piece_count(e), 0);
    assert_read(file, 1, 0, 100);
    e->plan.cut_at = 5 * MIB;
    assert_int_equal(sqrl_file_read_exact(file, 6 * MIB, back, 100, NULL, &err),
                     SQRL_E_TRUNCATED);
    e->plan.cut_at = 0;
    assert_read(file, 1, 6 * MIB, 100);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

/* The n-th allocation fails, for every n until none does. */
static void test_allocations_fail(void **state) {
    struct env *e = *state;
    put(e->memory, "a", 1, 200000);
    int rc = SQRL_E_NO_MEMORY;
    for (uint64_t n = 1; rc != SQRL_OK; n++) {
        struct sqrl_fs *fs = NULL;
        struct sqrl_file *file = NULL;
        struct sqrl_error err = {0};
        uint8_t back[64];
        sqrl_fail_allocation(n);
        rc = sqrl_fs_cache(e->remote, e->directory, "mem://", "x", &fs, &err);
        if (rc == SQRL_OK)
            rc = sqrl_file_open(fs, "a", &file, &err);
        struct sqrl_range ranges[2] = {{100000, 32, back + 32, 0}, {70000, 32, back, 0}};
        if (rc == SQRL_OK)
            rc = sqrl_file_read(file, ranges, 2, NULL, &err);
        sqrl_fail_allocation(0);
        assert_true(rc == SQRL_OK || (rc == SQRL_E_NO_MEMORY && (int)err.code == rc));
        for (size_t i = 0; rc == SQRL_OK && i < 64; i++)
            assert_int_equal(back[i], byte_of(1, i < 32 ? 70000 + i : 100000 + i - 32));
        sqrl_file_unref(file);
        sqrl_fs_unref(fs);
        assert_true(n < 300);
        each_file(e->directory, drop, NULL);
    }
}

/* --- the limit and a full disk --- */

static void test_limit(void **state) {
    struct env *e = *state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 5);
    for (unsigned i = 0; i < 8; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%u", i);
        put(e->memory, name, i, 3 * MIB + i * 1000);
    }
    struct sqrl_fs *fs = open_cache(e, "limit=8MiB");
    for (int round = 0; round < 400; round++) {
        char name[8];
        unsigned i = (unsigned)sqrl_rng_below(&rng, 8);
        snprintf(name, sizeof name, "f%u", i);
        struct sqrl_file *file = open_file(fs, name);
        uint64_t at = sqrl_rng_below(&rng, 3 * MIB - 100000);
        assert_read(file, i, at, (size_t)sqrl_rng_below(&rng, round % 5 ? 5000 : 100000));
        sqrl_file_unref(file);
        assert_true(cache_size(e) <= 8 * MIB);
    }
    assert_true(metric_named(e, "cache.evictions") > 0);
    assert_true(metric_named(e, "cache.hits") > 0);
    assert_true(cache_size(e) > 3 * MIB); /* and it is made use of */
    sqrl_fs_unref(fs);
    assert_int_equal(e->heard.warnings, 0);
}

static void age_file(const char *path, void *arg) {
    struct timespec times[2] = {{time(NULL) - *(long *)arg, 0},
                                {time(NULL) - *(long *)arg, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_least_recently_used_goes_first(void **state) {
    struct env *e = *state;
    long day = 86400;
    put(e->memory, "old", 1, 2 * MIB);
    put(e->memory, "used", 2, 2 * MIB);
    put(e->memory, "new", 3, 3 * MIB);
    struct sqrl_fs *fs = open_cache(e, "limit=6MiB");
    assert_whole(fs, "old", 1, 2 * MIB);
    assert_whole(fs, "used", 2, 2 * MIB);
    each_file(e->directory, age_file, &day);
    assert_whole(fs, "used", 2, 2 * MIB); /* so it is not old any more */
    assert_whole(fs, "new", 3, 3 * MIB);
    assert_true(cache_size(e) <= 6 * MIB);
    unsigned reads = e->plan.reads;
    struct sqrl_file *file = open_file(fs, "new");
    assert_read(file, 3, 0, 3 * MIB);
    sqrl_file_unref(file);
    file = open_file(fs, "used");
    assert_read(file, 2, 2 * MIB - 10, 10);
    sqrl_file_unref(file);
    assert_int_equal(e->plan.reads, reads);
    assert_whole(fs, "old", 1, 2 * MIB);
    assert_true(e->plan.reads > reads);
    sqrl_fs_unref(fs);
}

/* While nothing can be fetched, nothing is evicted. */
static void test_nothing_is_evicted_offline(void **state) {
    struct env *e = *state;
    struct sqrl_stat stat;
    put(e->memory, "a", 1, 3 * MIB);
    struct sqrl_fs *fs = open_cache(e, "limit=4MiB");
    assert_whole(fs, "a", 1, 3 * MIB);
    sqrl_fs_unref(fs);
    break_network(e);
    fs = open_cache(e, "limit=1MiB");
    OK(sqrl_fs_stat(fs, "a", &stat, &err));
    assert_whole(fs, "a", 1, 3 * MIB);
    sqrl_fs_unref(fs);
    assert_int_equal(metric_named(e, "cache.evictions"), 0);
}

static void test_full_disk(void **state) {
    struct env *e = *state;
    struct rlimit old, small = {.rlim_cur = 100000, .rlim_max = RLIM_INFINITY};
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 3; i++)
        assert_read(file, 1, 0, FILE_BYTES);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(e->heard.warnings, 1);
    assert_non_null(strstr(e->heard.last, "can't be written"));
    assert_int_equal(piece_count(e), 0);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

static void test_unusable_places(void **state) {
    struct env *e = *state;
    struct sqrl_error err = {0};
    struct sqrl_fs *fs;
    char text[128];
    snprintf(text, sizeof text, "%s/file", e->directory);
    FILE *file = fopen(text, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(sqrl_fs_cache(e->remote, text, "", NULL, &fs, &err),
                     SQRL_E_NOT_FOUND);
    assert_null(fs);
    assert_non_null(strstr(err.message, "can't be written"));
    static const struct {
        const char *text, *part;
    } wrong[] = {{"", "names no directory"},
                 {"?limit=1GiB", "names no directory"},
                 {"/tmp/x?limt=1GiB", "did you mean \"limit\""},
                 {"/tmp/x?limit", "NAME=VALUE"},
                 {"/tmp/x?limit=many", "many"},
                 {"/tmp/x?limit=3", "less than 1 MiB"},
                 {"/tmp/x?unit=byte", "block"},
                 {"/tmp/x?fresh=-1", "fresh="}};
    for (size_t i = 0; i < SQRL_COUNT_OF(wrong); i++) {
        int rc = sqrl_fs_cache(e->remote, wrong[i].text, "", NULL, &fs, &err);
        if (rc != SQRL_E_INVALID || !strstr(err.message, wrong[i].part))
            print_error("%s: %d: %s\n", wrong[i].text, rc, err.message);
        assert_int_equal(rc, SQRL_E_INVALID);
        assert_non_null(strstr(err.message, wrong[i].part));
    }
}

/* --- threads and forks --- */

struct reader {
    struct sqrl_fs *fs;
    unsigned seed;
    size_t size;
    int failures;
};

static void *read_much(void *arg) {
    struct reader *r = arg;
    struct sqrl_rng rng;
    struct sqrl_file *file;
    uint8_t *back = malloc(300000);
    sqrl_rng_init(&rng, r->seed);
    r->failures += !back || sqrl_file_open(r->fs, "a", &file, NULL) != SQRL_OK;
    for (int i = 0; i < 60 && !r->failures; i++) {
        size_t size = (size_t)sqrl_rng_below(&rng, i % 4 ? 3000 : 300000);
        uint64_t at = sqrl_rng_below(&rng, r->size - size);
        r->failures += sqrl_file_read_exact(file, at, back, size, NULL, NULL) != SQRL_OK;
        for (size_t k = 0; k < size; k++)
            r->failures += back[k] != byte_of(1, at + k);
    }
    if (!r->failures)
        sqrl_file_unref(file);
    free(back);
    return NULL;
}

static void run_readers(struct env *e, const char *options) {
    enum { THREADS = 6 };
    struct reader readers[THREADS];
    pthread_t threads[THREADS];
    struct sqrl_fs *fs = open_cache(e, options);
    for (unsigned i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){fs, i, FILE_BYTES, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_much, &readers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].failures, 0);
    }
    sqrl_fs_unref(fs);
}

static void test_threads(void **state) {
    struct env *e = *state;
    put(e->memory, "a", 1, FILE_BYTES);
    run_readers(e, "limit=64MiB");
    run_readers(e, "limit=2MiB"); /* most is evicted again at once */
    assert_true(cache_size(e) <= 2 * MIB);
}

/* Threads that want the same bytes fetch them once. */
static void *read_all(void *arg) {
    struct reader *r = arg;
    struct sqrl_file *file = open_file(r->fs, "a");
    assert_read(file, 1, 0, r->size);
    sqrl_file_unref(file);
    return NULL;
}

static void test_threads_share_downloads(void **state) {
    enum { THREADS = 6 };
    struct env *e = *state;
    pthread_t threads[THREADS];
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct reader reader = {fs, 0, FILE_BYTES, 0};
    e->plan.slow_ms = 20; /* so that they meet */
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &reader), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(metric_named(e, "cache.bytes_fetched"), FILE_BYTES);
    sqrl_fs_unref(fs);
}

static void test_cancel_ends_waiting(void **state) {
    struct env *e = *state;
    struct sqrl_cancel cancel = {0};
    uint8_t back[16];
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "");
    struct sqrl_file *file = open_file(fs, "a");
    sqrl_cancel_request(&cancel);
    assert_int_equal(sqrl_file_read_exact(file, 0, back, 16, &cancel, NULL),
                     SQRL_E_CANCELLED);
    assert_read(file, 1, 0, 16);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
}

/* A child goes on with what its parent opened, and neither disturbs the other. */
static void test_fork_after_use(void **state) {
    struct env *e = *state;
    put(e->memory, "a", 1, FILE_BYTES);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a");
    assert_read(file, 1, 0, 1000);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct reader r = {fs, 3, FILE_BYTES, 0};
        read_much(&r);
        sqrl_file_unref(file);
        sqrl_fs_unref(fs);
        _exit(r.failures ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_read(file, 1, 0, FILE_BYTES);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    assert_true(cache_size(e) <= 64 * MIB);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_contract),
        TEST(test_contract_local),
        TEST(test_second_epoch_asks_nothing),
        TEST(test_small_reads_in_sequence),
        TEST(test_small_random_reads_fetch_little),
        TEST(test_crowded_slots_are_made_one),
        TEST(test_whole_shards),
        TEST(test_known_files),
        TEST(test_changed_objects_are_never_mixed),
        TEST(test_rewritten_in_place),
        TEST(test_flipped_bytes),
        TEST(test_cut_and_deleted_pieces),
        TEST(test_swapped_pieces),
        TEST(test_offline),
        TEST(test_refusals_are_no_outage),
        TEST(test_fresh_answers_are_shared),
        TEST(test_errors_of_reading),
        TEST(test_allocations_fail),
        TEST(test_limit),
        TEST(test_least_recently_used_goes_first),
        TEST(test_nothing_is_evicted_offline),
        TEST(test_full_disk),
        TEST(test_unusable_places),
        TEST(test_threads),
        TEST(test_threads_share_downloads),
        TEST(test_cancel_ends_waiting),
        TEST(test_fork_after_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
