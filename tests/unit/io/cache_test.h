/* cache_test.h - what the tests of the cache share: a directory, a source of bytes whose
 * requests are counted and fail on order, and the size of what lies in the directory. */
#ifndef TESTS_UNIT_IO_CACHE_TEST_H
#define TESTS_UNIT_IO_CACHE_TEST_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"
#include "sqrl/cache.h"
#include "support/contract_fs.h"
#include "support/fault_fs.h"

#define MIB ((size_t)1 << 20)
#define KIB ((size_t)1 << 10)

/* OK has an error of its own. */
#pragma GCC diagnostic ignored "-Wshadow"
#define OK(call)                                                                         \
    do {                                                                                 \
        struct sqrl_error err = {0};                                                     \
        int rc_ = (call);                                                                \
        if (rc_ != SQRL_OK)                                                              \
            print_error("line %d: %s: %s\n", __LINE__, err.where, err.message);          \
        assert_int_equal(rc_, SQRL_OK);                                                  \
    } while (0)

struct heard {
    int warnings;
    char last[2048]; /* warning */
};

struct env {
    struct sqrl_context *context;
    struct sqrl_fs *memory, *remote; /* remote: memory behind the plan */
    struct fault_plan plan;
    struct heard heard;
    char directory[64];
};

static inline void hear(void *arg, enum sqrl_log_level level, const char *line) {
    struct heard *heard = arg;
    if (level < SQRL_LOG_WARNING)
        return;
    heard->warnings++;
    snprintf(heard->last, sizeof heard->last, "%s", line);
}

/* The byte at an offset of version `seed` of a file; no two 16 KiB are the same. */
static inline uint8_t byte_of(unsigned seed, uint64_t offset) {
    return (uint8_t)(sqrl_mix64(offset / 8 + ((uint64_t)seed << 40)) >> (offset % 8 * 8));
}

static inline uint8_t *content(unsigned seed, size_t size) {
    uint8_t *data = malloc(size ? size : 1);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = byte_of(seed, i);
    return data;
}

static inline void put(struct sqrl_fs *fs, const char *path, unsigned seed, size_t size) {
    uint8_t *data = content(seed, size);
    contract_fs_put(fs, path, data, size);
    free(data);
}

static inline int set_up(void **state) {
    struct env *e = calloc(1, sizeof *e);
    char *path;
    assert_non_null(e);
    struct sqrl_config config = {
        .size = sizeof config, .log = hear, .log_arg = &e->heard};
    assert_int_equal(sqrl_context_new(&config, &e->context, NULL), SQRL_OK);
    assert_int_equal(
        sqrl_fs_for_url(e->context, "mem://bucket", NULL, &e->memory, &path, NULL), 0);
    free(path);
    assert_int_equal(fault_fs_new(e->memory, &e->plan, &e->remote, NULL), SQRL_OK);
    snprintf(e->directory, sizeof e->directory, "/tmp/sqrl-cache-XXXXXX");
    assert_non_null(mkdtemp(e->directory));
    *state = e;
    return 0;
}

static inline int tear_down(void **state) {
    struct env *e = *state;
    char line[128];
    sqrl_fs_unref(e->remote);
    sqrl_fs_unref(e->memory);
    sqrl_context_unref(e->context);
    snprintf(line, sizeof line, "rm -rf %s", e->directory);
    assert_int_equal(system(line), 0);
    free(e);
    return 0;
}

/* A cache over the remote one, as a new process would open it. Its limit is 64 MiB where
 * the options name none, so that a test does not depend on how full the disk is. */
static inline struct sqrl_fs *open_cache(struct env *e, const char *options) {
    struct sqrl_fs *fs;
    char text[256];
    const char *limit = strstr(options, "limit=") ? "" : "limit=64MiB&";
    snprintf(text, sizeof text, "%s?%s%s", e->directory, limit, options);
    OK(sqrl_fs_cache(e->remote, text, "mem://", NULL, &fs, &err));
    return fs;
}

static inline struct sqrl_file *open_file(struct sqrl_fs *fs, const char *path) {
    struct sqrl_file *file;
    OK(sqrl_file_open(fs, path, &file, &err));
    return file;
}

/* Reads and compares. */
static inline void assert_read(struct sqrl_file *file, unsigned seed, uint64_t offset,
                               size_t size) {
    uint8_t *back = malloc(size ? size : 1);
    assert_non_null(back);
    OK(sqrl_file_read_exact(file, offset, back, size, NULL, &err));
    for (size_t i = 0; i < size; i++)
        if (back[i] != byte_of(seed, offset + i)) {
            print_error("byte %zu of %zu at %llu\n", i, size, (unsigned long long)offset);
            fail();
        }
    free(back);
}

static inline void assert_whole(struct sqrl_fs *fs, const char *path, unsigned seed,
                                size_t size) {
    struct sqrl_file *file = open_file(fs, path);
    assert_true(sqrl_file_size(file) == size);
    assert_read(file, seed, 0, size);
    sqrl_file_unref(file);
}

struct wanted {
    const char *name;
    uint64_t value;
};
static inline void pick_metric(void *arg, const struct sqrl_metric *metric) {
    struct wanted *wanted = arg;
    if (strcmp(metric->name, wanted->name) == 0)
        wanted->value = metric->value;
}
static inline uint64_t metric_named(struct env *e, const char *name) {
    struct wanted wanted = {name, UINT64_MAX};
    sqrl_context_metrics(e->context, pick_metric, &wanted);
    assert_true(wanted.value != UINT64_MAX);
    return wanted.value;
}

/* Calls visit(path, arg) for every file below a directory. */
static inline void each_file(const char *directory, void (*visit)(const char *, void *),
                             void *arg) {
    DIR *dir = opendir(directory);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[PATH_MAX];
        struct stat st;
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, d->d_name) >= PATH_MAX)
            continue;
        if (lstat(path, &st) != 0) /* renamed or removed meanwhile */
            continue;
        if (S_ISDIR(st.st_mode))
            each_file(path, visit, arg);
        else
            visit(path, arg);
    }
    if (dir)
        closedir(dir);
}

static inline void add_size(const char *path, void *arg) {
    struct stat st;
    if (!strstr(path, "/working/") && lstat(path, &st) == 0)
        *(uint64_t *)arg += (uint64_t)st.st_size;
}

/* Bytes of all finished files of the cache. */
static inline uint64_t cache_size(const struct env *e) {
    uint64_t sum = 0;
    each_file(e->directory, add_size, &sum);
    return sum;
}

static inline void count_piece(const char *path, void *arg) {
    *(unsigned *)arg += strstr(path, "/objects/") != NULL;
}

static inline unsigned piece_count(const struct env *e) {
    unsigned count = 0;
    each_file(e->directory, count_piece, &count);
    return count;
}

#endif
