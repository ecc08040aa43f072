/* Several processes on one cache directory: random reads with a limit that is much too
 * small, some killed in the middle, one that damages and deletes pieces. Every byte that
 * is read must be right, and the limit must hold at any time. */
#include "cache_test.h"

#define FILES 6
#define FILE_BYTES ((size_t)(1 * MIB) + 30000)
#define LIMIT_TEXT "limit=2MiB"
#define LIMIT (2 * MIB)

static void put_files(struct env *e) {
    for (unsigned i = 0; i < FILES; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%u", i);
        put(e->memory, name, i, FILE_BYTES);
    }
}

/* One random read; 0 when all bytes are right. */
static int read_somewhere(struct sqrl_fs *fs, struct sqrl_rng *rng, uint8_t *back) {
    char name[8];
    unsigned seed = (unsigned)sqrl_rng_below(rng, FILES);
    size_t size = (size_t)sqrl_rng_below(rng, sqrl_rng_below(rng, 4) ? 4000 : 200000);
    uint64_t at = sqrl_rng_below(rng, FILE_BYTES - size);
    struct sqrl_file *file;
    struct sqrl_error err = {0};
    snprintf(name, sizeof name, "f%u", seed);
    int rc = sqrl_file_open(fs, name, &file, &err);
    if (rc == SQRL_OK) {
        rc = sqrl_file_read_exact(file, at, back, size, NULL, &err);
        sqrl_file_unref(file);
    }
    if (rc != SQRL_OK)
        fprintf(stderr, "%s: %s\n", err.where, err.message);
    for (size_t i = 0; i < size && rc == SQRL_OK; i++)
        rc = back[i] == byte_of(seed, at + i) ? SQRL_OK : SQRL_E_CORRUPT;
    return rc;
}

struct worker {
    struct sqrl_fs *fs;
    unsigned seed, rounds;
    int rc;
};

static void *work(void *arg) {
    struct worker *w = arg;
    struct sqrl_rng rng;
    uint8_t *back = malloc(200000);
    sqrl_rng_init(&rng, w->seed);
    w->rc = back ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (unsigned i = 0; i < w->rounds && w->rc == SQRL_OK; i++)
        w->rc = read_somewhere(w->fs, &rng, back);
    free(back);
    return NULL;
}

/* A process: two threads on a cache of its own opening. Never returns. */
static void run_worker(struct env *e, unsigned seed, unsigned rounds) {
    struct worker workers[2];
    pthread_t other;
    struct sqrl_fs *fs = open_cache(e, LIMIT_TEXT);
    for (unsigned i = 0; i < 2; i++)
        workers[i] = (struct worker){fs, seed * 2 + i, rounds, 0};
    if (pthread_create(&other, NULL, work, &workers[1]) != 0)
        _exit(3);
    work(&workers[0]);
    pthread_join(other, NULL);
    sqrl_fs_unref(fs);
    _exit(workers[0].rc || workers[1].rc ? 1 : 0);
}

static pid_t start(struct env *e, unsigned seed, unsigned rounds) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_worker(e, seed, rounds);
    return child;
}

static void harm(const char *path, void *arg) {
    struct sqrl_rng *rng = arg;
    if (!strstr(path, "/objects/") || sqrl_rng_below(rng, 8))
        return;
    if (sqrl_rng_below(rng, 2)) {
        unlink(path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) /* evicted meanwhile */
        return;
    uint64_t junk = sqrl_rng_next(rng);
    ssize_t n = pwrite(fd, &junk, sizeof junk, (off_t)sqrl_rng_below(rng, 70000));
    (void)n;
    close(fd);
}

static bool ended(pid_t child, bool killed) {
    int status;
    pid_t got = waitpid(child, &status, WNOHANG);
    if (got != child)
        return false;
    if (killed && WIFSIGNALED(status))
        assert_int_equal(WTERMSIG(status), SIGKILL);
    else
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

static void count_working(const char *path, void *arg) {
    *(unsigned *)arg += strstr(path, "/working/") != NULL;
}

static void test_processes(void **state) {
    enum { STEADY = 3, ROUNDS = 120, KILLS = 8 };
    struct env *e = *state;
    pid_t steady[STEADY], victim;
    struct sqrl_rng rng;
    struct sqrl_cache_report report;
    unsigned left = STEADY, kills = 0, working = 0;
    bool done[STEADY] = {false};
    sqrl_rng_init(&rng, 11);
    put_files(e);
    for (unsigned i = 0; i < STEADY; i++)
        steady[i] = start(e, i, ROUNDS);
    while (left || kills < KILLS) {
        victim = start(e, 100 + kills, 100000);
        for (int i = 0; i < 10; i++) {
            struct timespec pause = {0, 5000000};
            nanosleep(&pause, NULL);
            each_file(e->directory, harm, &rng);
            assert_true(cache_size(e) <= LIMIT);
        }
        assert_int_equal(kill(victim, SIGKILL), 0);
        while (!ended(victim, true))
            usleep(1000);
        kills++;
        for (unsigned i = 0; i < STEADY; i++)
            if (!done[i] && ended(steady[i], false)) {
                done[i] = true;
                left--;
            }
    }
    /* What the killed ones left is swept, and nothing else stays behind. */
    OK(sqrl_cache_verify(e->directory, NULL, NULL, &report, &err));
    each_file(e->directory, count_working, &working);
    assert_int_equal(working, 0);
    OK(sqrl_cache_verify(e->directory, NULL, NULL, &report, &err));
    assert_int_equal(report.removed_files, 0);
    struct worker last = {open_cache(e, LIMIT_TEXT), 7, 20, 0};
    work(&last);
    assert_int_equal(last.rc, 0);
    sqrl_fs_unref(last.fs);
    assert_true(cache_size(e) <= LIMIT);
}

/* Two processes that fetch the same file at the same time both get it right. */
static void test_same_download(void **state) {
    struct env *e = *state;
    pid_t children[3];
    put(e->memory, "a", 1, 5 * MIB);
    e->plan.slow_ms = 20;
    for (unsigned i = 0; i < SQRL_COUNT_OF(children); i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
            assert_whole(fs, "a", 1, 5 * MIB);
            sqrl_fs_unref(fs);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < SQRL_COUNT_OF(children); i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(piece_count(e), 2);
    unsigned reads = e->plan.reads;
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "a", 1, 5 * MIB);
    assert_int_equal(e->plan.reads, reads);
    sqrl_fs_unref(fs);
}

/* --- the tools --- */

struct seen {
    unsigned count;
    struct sqrl_cache_object last;
    char url[256], version[128];
};

static int see(void *arg, const struct sqrl_cache_object *object) {
    struct seen *seen = arg;
    seen->count++;
    seen->last = *object;
    snprintf(seen->url, sizeof seen->url, "%s", object->url);
    snprintf(seen->version, sizeof seen->version, "%s", object->version);
    return 0;
}

static void test_list_verify_prune(void **state) {
    struct env *e = *state;
    struct seen seen = {0};
    struct sqrl_cache_report report;
    struct sqrl_stat stat;
    put(e->memory, "a?sig=secret", 1, 9 * MIB);
    struct sqrl_fs *fs = open_cache(e, "limit=64MiB");
    struct sqrl_file *file = open_file(fs, "a?sig=secret");
    assert_read(file, 1, 0, 5 * MIB);
    sqrl_file_unref(file);
    OK(sqrl_fs_stat(fs, "a?sig=secret", &stat, &err));
    sqrl_fs_unref(fs);
    OK(sqrl_cache_list(e->directory, see, &seen, &err));
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.url, "mem://a?"); /* no secrets */
    char version[64];
    snprintf(version, sizeof version, "modified %lld", (long long)stat.modified_ns);
    assert_string_equal(seen.version, version);
    assert_true(seen.last.object_bytes == 9 * MIB && seen.last.cached_bytes == 5 * MIB);
    assert_int_equal(seen.last.pieces, 2);
    assert_true(seen.last.disk_bytes > 5 * MIB && seen.last.disk_bytes < 6 * MIB);
    int64_t now = sqrl_wall_ns(), minute = INT64_C(60000000000);
    assert_true(seen.last.fetched_ns > now - minute && seen.last.fetched_ns <= now);
    assert_true(seen.last.used_ns > now - minute && seen.last.checked_ns > now - minute);
    OK(sqrl_cache_verify(e->directory, NULL, NULL, &report, &err));
    assert_int_equal(report.files, 3);
    assert_int_equal(report.removed_files, 0);
    char line[256];
    snprintf(line, sizeof line,
             "cd %s/v1 && for f in objects/*/* places/*; do printf x | dd of=$f bs=1 "
             "seek=120 conv=notrunc 2>/dev/null; done",
             e->directory);
    assert_int_equal(system(line), 0);
    OK(sqrl_cache_verify(e->directory, NULL, NULL, &report, &err));
    assert_int_equal(report.files, 3);
    assert_int_equal(report.removed_files, 3);
    assert_int_equal(cache_size(e) < 1000, 1); /* the tag and the limit */
    fs = open_cache(e, "limit=64MiB");
    assert_whole(fs, "a?sig=secret", 1, 9 * MIB);
    OK(sqrl_cache_prune(e->directory, UINT64_MAX, UINT64_C(3600000000000), &report,
                        &err));
    assert_int_equal(report.removed_files, 0);
    OK(sqrl_cache_prune(e->directory, 5 * MIB, UINT64_MAX, &report, &err));
    assert_true(report.removed_files > 0 && cache_size(e) <= 5 * MIB);
    OK(sqrl_cache_prune(e->directory, UINT64_MAX, 0, &report, &err));
    assert_int_equal(piece_count(e), 0);
    assert_whole(fs, "a?sig=secret", 1, 9 * MIB); /* pruned while in use */
    sqrl_fs_unref(fs);
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_cache_list("/tmp/no/cache/here", see, &seen, &err),
                     SQRL_E_NOT_FOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_processes),
        TEST(test_same_download),
        TEST(test_list_verify_prune),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
