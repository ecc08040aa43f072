#include <limits.h>
#include <stdlib.h>
#include <time.h>

#include "io/io.h"
#include "support/fault_fs.h"

struct fault_plan fault_fs_shared;

struct fault {
    struct sqrl_fs *inner;
    struct fault_plan *plan;
};

/* Is this call one that fails? Counts it. */
static bool strikes(const struct fault_plan *plan, unsigned *counter, unsigned first) {
    unsigned n = __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
    unsigned times = plan->times ? plan->times : 1;
    return first != 0 && n >= first && n - first < times;
}

static int fail(const struct fault_plan *plan, const char *what, const char *path,
                struct sqrl_error *err) {
    int code = plan->code ? plan->code : SQRL_E_IO;
    sqrl_error_set(err, code, "%s failed on order", what);
    if (err)
        err->retryable = plan->retryable;
    return sqrl_error_at(err, code, "%s", path);
}

static void fault_close(void *fs) {
    sqrl_fs_unref(((struct fault *)fs)->inner);
}

static int fault_stat(void *fs, const char *path, struct sqrl_stat *out,
                      struct sqrl_error *err) {
    struct fault *f = fs;
    if (strikes(f->plan, &f->plan->stats, f->plan->fail_stat))
        return fail(f->plan, "stat", path, err);
    return sqrl_fs_stat(f->inner, path, out, err);
}

struct limited {
    sqrl_list_fn visit;
    void *arg;
    unsigned left;
    bool cut; /* stopped by us, not by the visitor */
};

static int visit_limited(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct limited *l = arg;
    if (l->left == 0) {
        l->cut = true;
        return 1;
    }
    l->left--;
    return l->visit(l->arg, name, stat);
}

static int fault_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                      void *arg, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    struct fault *f = fs;
    if (!strikes(f->plan, &f->plan->lists, f->plan->fail_list))
        return sqrl_fs_list(f->inner, path, recursive, visit, arg, cancel, err);
    struct limited l = {visit, arg, f->plan->list_after, false};
    int rc = sqrl_fs_list(f->inner, path, recursive, visit_limited, &l, cancel, err);
    return rc == SQRL_OK || l.cut ? fail(f->plan, "listing", path, err) : rc;
}

struct fault_file {
    struct sqrl_file *inner;
};

static int fault_file_open(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                           struct sqrl_error *err) {
    struct fault *f = fs;
    struct fault_file *to = file;
    bool struck = strikes(f->plan, &f->plan->opens, f->plan->fail_open);
    if (f->plan->vanish || f->plan->refuse) {
        int code = f->plan->vanish ? SQRL_E_NOT_FOUND : SQRL_E_PERMISSION;
        sqrl_error_set(err, code, f->plan->vanish ? "it is gone" : "access is refused");
        return sqrl_error_at(err, code, "%s", path);
    }
    if (struck)
        return fail(f->plan, "open", path, err);
    int rc = sqrl_file_open_known(f->inner, path, stat, &to->inner, err);
    if (rc == SQRL_OK)
        *stat = *sqrl_file_stat(to->inner);
    return rc;
}

static int wait_slowly(const struct fault_plan *plan, const struct sqrl_cancel *cancel,
                       const char *path, struct sqrl_error *err) {
    for (unsigned i = 0; i < plan->slow_ms; i++) {
        struct timespec t = {0, 1000000};
        if (sqrl_cancel_requested(cancel)) {
            sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
            return sqrl_error_at(err, SQRL_E_CANCELLED, "%s", path);
        }
        nanosleep(&t, NULL);
    }
    return SQRL_OK;
}

static int fault_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                           const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct fault *f = fs;
    struct sqrl_file *inner = ((struct fault_file *)file)->inner;
    const char *path = sqrl_file_path(inner);
    bool struck = strikes(f->plan, &f->plan->reads, f->plan->fail_read);
    __atomic_fetch_add(&f->plan->ranges, (unsigned)count, __ATOMIC_RELAXED);
    int rc = wait_slowly(f->plan, cancel, path, err);
    if (rc != SQRL_OK)
        return rc;
    if (struck)
        return fail(f->plan, "read", path, err);
    for (size_t i = 0; f->plan->cut_at && i < count; i++) {
        if (ranges[i].offset + ranges[i].size > f->plan->cut_at) {
            sqrl_error_set(err, SQRL_E_TRUNCATED,
                           "the file was cut at offset %llu meanwhile",
                           (unsigned long long)f->plan->cut_at);
            return sqrl_error_at(err, SQRL_E_TRUNCATED, "%s", path);
        }
    }
    return sqrl_file_read(inner, ranges, count, cancel, err);
}

static void fault_file_close(void *fs, void *file) {
    sqrl_file_unref(((struct fault_file *)file)->inner);
}

struct fault_writer {
    struct sqrl_file_writer *inner;
};

static int fault_writer_open(void *fs, const char *path, bool replace, void *writer,
                             struct sqrl_error *err) {
    struct fault *f = fs;
    if (strikes(f->plan, &f->plan->creates, f->plan->fail_create))
        return fail(f->plan, "create", path, err);
    return sqrl_file_create(f->inner, path, replace,
                            &((struct fault_writer *)writer)->inner, err);
}

static int fault_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                              struct sqrl_error *err) {
    struct fault *f = fs;
    if (strikes(f->plan, &f->plan->writes, f->plan->fail_write))
        return fail(f->plan, "write", "(a file being made)", err);
    return sqrl_file_write(((struct fault_writer *)writer)->inner, data, size, err);
}

static int fault_writer_commit(void *fs, void *writer, struct sqrl_error *err) {
    struct fault *f = fs;
    struct sqrl_file_writer *inner = ((struct fault_writer *)writer)->inner;
    if (strikes(f->plan, &f->plan->commits, f->plan->fail_commit)) {
        sqrl_file_abort(inner);
        return fail(f->plan, "commit", "(a file being made)", err);
    }
    return sqrl_file_commit(inner, err);
}

static void fault_writer_abort(void *fs, void *writer) {
    sqrl_file_abort(((struct fault_writer *)writer)->inner);
}

static int fault_remove(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_remove(((struct fault *)fs)->inner, path, err);
}

static int fault_make_directory(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_make_directory(((struct fault *)fs)->inner, path, err);
}

static int fault_remove_directory(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_remove_directory(((struct fault *)fs)->inner, path, err);
}

static int fault_sweep(void *fs, const char *directory, uint64_t *removed,
                       struct sqrl_error *err) {
    return sqrl_fs_sweep(((struct fault *)fs)->inner, directory, removed, err);
}

static int open_shared(void *fs, struct sqrl_context *context,
                       const struct sqrl_settings *settings, struct sqrl_error *err) {
    struct fault *f = fs;
    f->plan = &fault_fs_shared;
    return sqrl_fs_new(context, &sqrl_fs_local, NULL, &f->inner, err);
}

static void fault_metrics(void *fs, struct sqrl_fs_metrics *out) {
    sqrl_fs_metrics(((struct fault *)fs)->inner, out);
}

static const struct sqrl_fs_ops fault_ops = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "fault",
    .schemes = "fault",
    .doc = "fails on order, for tests",
    .flags = SQRL_FS_SHIM | SQRL_FS_LOCAL | SQRL_FS_WRITABLE | SQRL_FS_LISTABLE,
    .fs_size = sizeof(struct fault),
    .file_size = sizeof(struct fault_file),
    .writer_size = sizeof(struct fault_writer),
    .open = open_shared,
    .close = fault_close,
    .stat = fault_stat,
    .list = fault_list,
    .file_open = fault_file_open,
    .file_read = fault_file_read,
    .file_close = fault_file_close,
    .writer_open = fault_writer_open,
    .writer_write = fault_writer_write,
    .writer_commit = fault_writer_commit,
    .writer_abort = fault_writer_abort,
    .remove = fault_remove,
    .make_directory = fault_make_directory,
    .sweep = fault_sweep,
    .remove_directory = fault_remove_directory,
    .metrics = fault_metrics,
};

int fault_fs_new(struct sqrl_fs *inner, struct fault_plan *plan, struct sqrl_fs **out,
                 struct sqrl_error *err) {
    int rc = sqrl_fs_make(sqrl_fs_context(inner), &fault_ops, inner, out, err);
    if (rc != SQRL_OK)
        return rc;
    struct fault *f = sqrl_fs_state(*out);
    f->inner = sqrl_fs_ref(inner);
    f->plan = plan;
    return SQRL_OK;
}

int fault_fs_register(struct sqrl_context *context, struct sqrl_error *err) {
    return sqrl_fs_register(context, &fault_ops, err);
}
