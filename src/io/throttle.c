/* throttle.c - a shim that plays a link: latency, bandwidth, counts.
 *
 * A request waits for the latency, then its bytes pass in chunks. A chunk takes its time
 * on the request's own connection, and a turn on the link that all share: the link is the
 * time at which it is free again, which each chunk moves on. So requests share the link
 * in small turns, and which one is first does not matter to the sum. */
#include "io/io.h"

#include <stdlib.h>
#include <time.h>

#define CHUNK_BYTES (UINT64_C(128) << 10)
#define SLICE_NS UINT64_C(10000000) /* a cancelled wait ends within this */
#define SECOND UINT64_C(1000000000)

struct throttle {
    struct sqrl_fs *inner;
    struct sqrl_link link;
    uint64_t requests, lists, bytes, first_bytes, first_byte_ns; /* atomics */
    uint64_t under_way, most;
    struct sqrl_lock lock;
    uint64_t free_at; /* the link; under the lock */
};

static int wait_until(uint64_t at, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    for (uint64_t now = sqrl_now_ns(); now < at; now = sqrl_now_ns()) {
        if (sqrl_cancel_requested(cancel))
            return sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
        uint64_t ns = SQRL_MIN(at - now, SLICE_NS);
        struct timespec t = {0, (long)ns};
        nanosleep(&t, NULL);
    }
    return SQRL_OK;
}

static void begin(struct throttle *t, uint64_t requests) {
    uint64_t now = __atomic_add_fetch(&t->under_way, requests, __ATOMIC_RELAXED);
    uint64_t most = __atomic_load_n(&t->most, __ATOMIC_RELAXED);
    while (now > most && !__atomic_compare_exchange_n(&t->most, &most, now, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    __atomic_add_fetch(&t->requests, requests, __ATOMIC_RELAXED);
    __atomic_add_fetch(&t->first_bytes, requests, __ATOMIC_RELAXED);
    __atomic_add_fetch(&t->first_byte_ns, requests * t->link.latency_us * 1000,
                       __ATOMIC_RELAXED);
}

static void end(struct throttle *t, uint64_t requests) {
    __atomic_sub_fetch(&t->under_way, requests, __ATOMIC_RELAXED);
}

static uint64_t take_turn(struct throttle *t, uint64_t from, uint64_t bytes) {
    if (!t->link.all_bytes_per_second)
        return from;
    sqrl_lock_take(&t->lock);
    t->free_at =
        SQRL_MAX(t->free_at, from) + bytes * SECOND / t->link.all_bytes_per_second;
    uint64_t at = t->free_at;
    sqrl_lock_drop(&t->lock);
    return at;
}

/* The time of `requests` requests at once, `longest` bytes in the longest of them. */
static int play(struct throttle *t, uint64_t requests, uint64_t bytes, uint64_t longest,
                const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    uint64_t first = sqrl_now_ns() + t->link.latency_us * 1000;
    begin(t, requests);
    int rc = wait_until(first, cancel, err);
    for (uint64_t done = 0; rc == SQRL_OK && done < bytes;) {
        uint64_t size = SQRL_MIN(bytes - done, CHUNK_BYTES);
        done += size;
        uint64_t own =
            t->link.bytes_per_second
                ? first + (uint64_t)((double)longest * ((double)done / (double)bytes) *
                                     (double)SECOND / (double)t->link.bytes_per_second)
                : first;
        uint64_t turn = take_turn(t, first, size);
        rc = wait_until(SQRL_MAX(own, turn), cancel, err);
    }
    end(t, requests);
    return rc;
}

static void throttle_close(void *fs) {
    struct throttle *t = fs;
    sqrl_fs_unref(t->inner);
    sqrl_lock_reset(&t->lock);
}

static int throttle_stat(void *fs, const char *path, struct sqrl_stat *out,
                         struct sqrl_error *err) {
    struct throttle *t = fs;
    int rc = play(t, 1, 0, 0, NULL, err);
    return rc ? rc : sqrl_fs_stat(t->inner, path, out, err);
}

static int throttle_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                         void *arg, const struct sqrl_cancel *cancel,
                         struct sqrl_error *err) {
    struct throttle *t = fs;
    int rc = play(t, 1, 0, 0, cancel, err);
    __atomic_sub_fetch(&t->requests, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&t->lists, 1, __ATOMIC_RELAXED);
    return rc ? rc : sqrl_fs_list(t->inner, path, recursive, visit, arg, cancel, err);
}

struct throttle_file {
    struct sqrl_file *inner;
};

static int throttle_file_open(void *fs, const char *path, void *file,
                              struct sqrl_stat *stat, struct sqrl_error *err) {
    struct throttle *t = fs;
    struct throttle_file *f = file;
    int rc = stat->size ? SQRL_OK : play(t, 1, 0, 0, NULL, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_open_known(t->inner, path, stat, &f->inner, err);
    if (rc == SQRL_OK)
        *stat = *sqrl_file_stat(f->inner);
    return rc;
}

/* Ranges that follow each other are one request. */
static int throttle_file_read(void *fs, void *file, struct sqrl_range *ranges,
                              size_t count, const struct sqrl_cancel *cancel,
                              struct sqrl_error *err) {
    struct throttle *t = fs;
    uint64_t requests = 0, longest = 0, bytes = 0, run = 0;
    int rc =
        sqrl_file_read(((struct throttle_file *)file)->inner, ranges, count, cancel, err);
    for (size_t i = 0; i < count && rc == SQRL_OK; i++) {
        bool follows = i && ranges[i - 1].offset + ranges[i - 1].size == ranges[i].offset;
        requests += !follows;
        run = follows ? run + ranges[i].got : ranges[i].got;
        longest = SQRL_MAX(longest, run);
        bytes += ranges[i].got;
    }
    if (rc == SQRL_OK)
        rc = play(t, requests, bytes, longest, cancel, err);
    if (rc == SQRL_OK)
        __atomic_add_fetch(&t->bytes, bytes, __ATOMIC_RELAXED);
    return rc;
}

static void throttle_file_close(void *fs, void *file) {
    (void)fs;
    sqrl_file_unref(((struct throttle_file *)file)->inner);
}

/* --- what is not slowed down: passed on --- */
struct throttle_writer {
    struct sqrl_file_writer *inner;
};

static int throttle_writer_open(void *fs, const char *path, bool replace, void *writer,
                                struct sqrl_error *err) {
    struct throttle_writer *w = writer;
    return sqrl_file_create(((struct throttle *)fs)->inner, path, replace, &w->inner,
                            err);
}

static int throttle_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                                 struct sqrl_error *err) {
    (void)fs;
    return sqrl_file_write(((struct throttle_writer *)writer)->inner, data, size, err);
}

static int throttle_writer_commit(void *fs, void *writer, struct sqrl_error *err) {
    (void)fs;
    return sqrl_file_commit(((struct throttle_writer *)writer)->inner, err);
}

static void throttle_writer_abort(void *fs, void *writer) {
    (void)fs;
    sqrl_file_abort(((struct throttle_writer *)writer)->inner);
}

static int throttle_remove(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_remove(((struct throttle *)fs)->inner, path, err);
}

static int throttle_make_directory(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_make_directory(((struct throttle *)fs)->inner, path, err);
}

static int throttle_remove_directory(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_remove_directory(((struct throttle *)fs)->inner, path, err);
}

static int throttle_sweep(void *fs, const char *directory, uint64_t *removed,
                          struct sqrl_error *err) {
    return sqrl_fs_sweep(((struct throttle *)fs)->inner, directory, removed, err);
}

/* What came over the played link; retries, hedges and hits are those below. */
static void throttle_metrics(void *fs, struct sqrl_fs_metrics *out) {
    struct throttle *t = fs;
    sqrl_fs_metrics(t->inner, out);
    out->requests = __atomic_load_n(&t->requests, __ATOMIC_RELAXED);
    out->lists = __atomic_load_n(&t->lists, __ATOMIC_RELAXED);
    out->bytes = __atomic_load_n(&t->bytes, __ATOMIC_RELAXED);
    out->first_bytes = __atomic_load_n(&t->first_bytes, __ATOMIC_RELAXED);
    out->first_byte_ns = __atomic_load_n(&t->first_byte_ns, __ATOMIC_RELAXED);
    out->parallel_most = __atomic_load_n(&t->most, __ATOMIC_RELAXED);
}

static const struct sqrl_fs_ops throttle_ops = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "throttle",
    .schemes = "",
    .doc = "plays a slow link",
    .flags = SQRL_FS_SHIM,
    .fs_size = sizeof(struct throttle),
    .file_size = sizeof(struct throttle_file),
    .writer_size = sizeof(struct throttle_writer),
    .close = throttle_close,
    .stat = throttle_stat,
    .list = throttle_list,
    .file_open = throttle_file_open,
    .file_read = throttle_file_read,
    .file_close = throttle_file_close,
    .writer_open = throttle_writer_open,
    .writer_write = throttle_writer_write,
    .writer_commit = throttle_writer_commit,
    .writer_abort = throttle_writer_abort,
    .remove = throttle_remove,
    .make_directory = throttle_make_directory,
    .sweep = throttle_sweep,
    .remove_directory = throttle_remove_directory,
    .metrics = throttle_metrics,
};

int sqrl_fs_throttle(struct sqrl_fs *inner, const struct sqrl_link *link,
                     struct sqrl_fs **out, struct sqrl_error *err) {
    int rc = sqrl_fs_make(sqrl_fs_context(inner), &throttle_ops, inner, out, err);
    if (rc != SQRL_OK)
        return rc;
    sqrl_fs_set_flags(*out, sqrl_fs_flags(*out) & ~(uint32_t)SQRL_FS_LOCAL);
    struct throttle *t = sqrl_fs_state(*out);
    t->inner = sqrl_fs_ref(inner);
    t->link = *link;
    sqrl_lock_init(&t->lock);
    return SQRL_OK;
}

/* --- the link as text --- */
static int parse_time(const char *text, uint64_t *us, struct sqrl_error *err) {
    static const struct {
        const char *unit;
        double us;
    } units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    char *rest;
    double number = strtod(text, &rest);
    for (size_t i = 0; i < SQRL_COUNT_OF(units); i++)
        if (rest != text && strcmp(rest, units[i].unit) == 0 && number >= 0 &&
            number * units[i].us <= 3.6e9) {
            *us = (uint64_t)(number * units[i].us + 0.5);
            return SQRL_OK;
        }
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "throttle: latency \"%.40s\" is no time: write it as 30ms",
                          text);
}

static int parse_part(char *part, struct sqrl_link *out, struct sqrl_error *err) {
    char *value = strchr(part, '=');
    if (value) {
        *value++ = '\0';
        if (strcmp(part, "latency") == 0)
            return parse_time(value, &out->latency_us, err);
        if (strcmp(part, "bandwidth") == 0)
            return sqrl_parse_size(value, &out->bytes_per_second, err);
        if (strcmp(part, "total") == 0)
            return sqrl_parse_size(value, &out->all_bytes_per_second, err);
    }
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "throttle: \"%.40s\" is not known: write it as "
                          "latency=30ms,bandwidth=40MB,total=400MB",
                          part);
}

int sqrl_link_parse(const char *text, struct sqrl_link *out, struct sqrl_error *err) {
    *out = (struct sqrl_link){.size = sizeof *out};
    char *copy = sqrl_strdup(text, err), *save = NULL;
    int rc = copy ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (char *part = copy ? strtok_r(copy, ",", &save) : NULL; part && rc == SQRL_OK;
         part = strtok_r(NULL, ",", &save))
        rc = parse_part(part, out, err);
    free(copy);
    return rc;
}
