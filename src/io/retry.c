/* retry.c - a shim that tries retryable failures again.
 *
 * Only calls that can be repeated whole are: lookups, opens, reads, listings (which go on
 * behind the entries that were delivered), removals. A listing is repeated by count,
 * which needs a store that lists in a fixed order; all of ours do. */
#include "io/io.h"

#include <stdlib.h>
#include <time.h>

#define MAX_DELAY_MS 30000u
#define SLICE_MS 10u /* a cancelled wait ends within this */

struct retry {
    struct sqrl_fs *inner;
    unsigned attempts, delay_ms;
    uint64_t retries; /* atomic */
};

/* One call that may be repeated. */
struct round {
    struct retry *retry;
    const struct sqrl_cancel *cancel;
    const char *what;
    unsigned tried;
    struct sqrl_error err; /* of the last attempt */
    struct sqrl_error *callers;
};

static void begin(struct round *r, struct retry *retry, const char *what,
                  const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    memset(r, 0, sizeof(*r));
    r->retry = retry;
    r->what = what;
    r->cancel = cancel;
    r->callers = err;
}

static void sleep_ms(unsigned ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* Between half of the nominal delay and all of it, so that many readers don't march in
 * step. */
static unsigned delay_of(const struct round *r) {
    uint64_t nominal = r->retry->delay_ms;
    for (unsigned i = 1; i < r->tried && nominal < MAX_DELAY_MS; i++)
        nominal *= 2;
    nominal = SQRL_MIN(nominal, (uint64_t)MAX_DELAY_MS);
    uint64_t draw = sqrl_mix64(sqrl_now_ns() ^ (uint64_t)(uintptr_t)r);
    return (unsigned)(nominal / 2 + draw % (nominal / 2 + 1));
}

static void wait_for(struct round *r) {
    unsigned delay = delay_of(r);
    struct sqrl_context *context = sqrl_fs_context(r->retry->inner);
    __atomic_fetch_add(&r->retry->retries, 1, __ATOMIC_RELAXED);
    if (context) {
        sqrl_count(context, SQRL_COUNT_RETRIES, 1);
        sqrl_log(context, SQRL_LOG_INFO, "%s: %s failed (%s), trying again in %u ms",
                 r->err.where, r->what, r->err.message, delay);
    }
    while (delay > 0 && !sqrl_cancel_requested(r->cancel)) {
        unsigned slice = SQRL_MIN(delay, SLICE_MS);
        sleep_ms(slice);
        delay -= slice;
    }
}

/* After a call: is it to be made again? Waits first. In the end the error goes to the
 * caller. */
static bool again(struct round *r, int *rc) {
    if (*rc == SQRL_OK)
        return false;
    if (r->err.retryable && ++r->tried < r->retry->attempts) {
        wait_for(r);
        if (!sqrl_cancel_requested(r->cancel)) {
            sqrl_error_clear(&r->err);
            return true;
        }
        *rc = sqrl_error_set(&r->err, SQRL_E_CANCELLED,
                             "cancelled while waiting to try again");
    }
    if (r->callers)
        *r->callers = r->err;
    return false;
}

static void retry_close(void *fs) {
    sqrl_fs_unref(((struct retry *)fs)->inner);
}

static int retry_stat(void *fs, const char *path, struct sqrl_stat *out,
                      struct sqrl_error *err) {
    struct retry *retry = fs;
    struct round r;
    int rc;
    begin(&r, retry, "looking it up", NULL, err);
    do
        rc = sqrl_fs_stat(retry->inner, path, out, &r.err);
    while (again(&r, &rc));
    return rc;
}

/* Passes on the entries that were not delivered yet. */
struct relay {
    sqrl_list_fn visit;
    void *arg;
    uint64_t seen, delivered;
    bool stopped;
};

static int relay_entry(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct relay *relay = arg;
    if (relay->seen++ < relay->delivered)
        return 0;
    relay->delivered++;
    int rc = relay->visit(relay->arg, name, stat);
    relay->stopped = rc != 0;
    return rc;
}

static int retry_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                      void *arg, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    struct retry *retry = fs;
    struct round r;
    struct relay relay = {.visit = visit, .arg = arg};
    int rc;
    begin(&r, retry, "listing", cancel, err);
    do {
        relay.seen = 0;
        rc = sqrl_fs_list(retry->inner, path, recursive, relay_entry, &relay, cancel,
                          &r.err);
    } while (!relay.stopped && again(&r, &rc));
    return rc;
}

struct retry_file {
    struct sqrl_file *inner;
};

static int retry_file_open(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                           struct sqrl_error *err) {
    struct retry *retry = fs;
    struct retry_file *f = file;
    struct round r;
    int rc;
    begin(&r, retry, "opening", NULL, err);
    do
        rc = sqrl_file_open_known(retry->inner, path, stat, &f->inner, &r.err);
    while (again(&r, &rc));
    if (rc == SQRL_OK)
        *stat = *sqrl_file_stat(f->inner);
    return rc;
}

static int retry_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                           const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct retry_file *f = file;
    struct round r;
    int rc;
    begin(&r, fs, "reading", cancel, err);
    do
        rc = sqrl_file_read(f->inner, ranges, count, cancel, &r.err);
    while (again(&r, &rc));
    return rc;
}

static void retry_file_close(void *fs, void *file) {
    sqrl_file_unref(((struct retry_file *)file)->inner);
}

struct retry_writer {
    struct sqrl_file_writer *inner;
};

static int retry_writer_open(void *fs, const char *path, bool replace, void *writer,
                             struct sqrl_error *err) {
    struct retry *retry = fs;
    struct retry_writer *w = writer;
    struct round r;
    int rc;
    begin(&r, retry, "creating", NULL, err);
    do
        rc = sqrl_file_create(retry->inner, path, replace, &w->inner, &r.err);
    while (again(&r, &rc));
    return rc;
}

static int retry_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                              struct sqrl_error *err) {
    return sqrl_file_write(((struct retry_writer *)writer)->inner, data, size, err);
}

static int retry_writer_commit(void *fs, void *writer, struct sqrl_error *err) {
    return sqrl_file_commit(((struct retry_writer *)writer)->inner, err);
}

static void retry_writer_abort(void *fs, void *writer) {
    sqrl_file_abort(((struct retry_writer *)writer)->inner);
}

static int retry_remove(void *fs, const char *path, struct sqrl_error *err) {
    struct retry *retry = fs;
    struct round r;
    int rc;
    begin(&r, retry, "removing", NULL, err);
    do {
        rc = sqrl_fs_remove(retry->inner, path, &r.err);
        /* The failed attempt may have done it all the same. */
        if (rc == SQRL_E_NOT_FOUND && r.tried > 0)
            rc = SQRL_OK;
    } while (again(&r, &rc));
    if (rc == SQRL_OK)
        sqrl_error_clear(&r.err);
    return rc;
}

static int retry_make_directory(void *fs, const char *path, struct sqrl_error *err) {
    struct retry *retry = fs;
    struct round r;
    int rc;
    begin(&r, retry, "making the directory", NULL, err);
    do
        rc = sqrl_fs_make_directory(retry->inner, path, &r.err);
    while (again(&r, &rc));
    return rc;
}

static int retry_remove_directory(void *fs, const char *path, struct sqrl_error *err) {
    struct retry *retry = fs;
    struct round r;
    int rc;
    begin(&r, retry, "removing the directory", NULL, err);
    do {
        rc = sqrl_fs_remove_directory(retry->inner, path, &r.err);
        if (rc == SQRL_E_NOT_FOUND && r.tried > 0)
            rc = SQRL_OK; /* as in retry_remove */
    } while (again(&r, &rc));
    if (rc == SQRL_OK)
        sqrl_error_clear(&r.err);
    return rc;
}

static int retry_sweep(void *fs, const char *directory, uint64_t *removed,
                       struct sqrl_error *err) {
    return sqrl_fs_sweep(((struct retry *)fs)->inner, directory, removed, err);
}

static void retry_metrics(void *fs, struct sqrl_fs_metrics *out) {
    struct retry *retry = fs;
    sqrl_fs_metrics(retry->inner, out);
    out->retries += __atomic_load_n(&retry->retries, __ATOMIC_RELAXED);
}

static const struct sqrl_fs_ops retry_ops = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "retry",
    .schemes = "",
    .doc = "tries failed calls again",
    .flags = SQRL_FS_SHIM,
    .fs_size = sizeof(struct retry),
    .file_size = sizeof(struct retry_file),
    .writer_size = sizeof(struct retry_writer),
    .close = retry_close,
    .stat = retry_stat,
    .list = retry_list,
    .file_open = retry_file_open,
    .file_read = retry_file_read,
    .file_close = retry_file_close,
    .writer_open = retry_writer_open,
    .writer_write = retry_writer_write,
    .writer_commit = retry_writer_commit,
    .writer_abort = retry_writer_abort,
    .remove = retry_remove,
    .make_directory = retry_make_directory,
    .sweep = retry_sweep,
    .remove_directory = retry_remove_directory,
    .metrics = retry_metrics,
};

int sqrl_fs_retry(struct sqrl_fs *inner, unsigned attempts, unsigned delay_ms,
                  struct sqrl_fs **out, struct sqrl_error *err) {
    int rc = sqrl_fs_make(sqrl_fs_context(inner), &retry_ops, inner, out, err);
    if (rc != SQRL_OK)
        return rc;
    struct retry *retry = sqrl_fs_state(*out);
    retry->inner = sqrl_fs_ref(inner);
    retry->attempts = SQRL_MAX(attempts, 1u);
    retry->delay_ms = delay_ms;
    return SQRL_OK;
}
