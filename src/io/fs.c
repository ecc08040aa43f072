/* fs.c - handles over ops tables: references, paths in errors, what every file system
 * owes.
 *
 * A file or writer holds its file system, and that its context: the last unref of any of
 * them only hands memory back. State areas of the implementers are zeroed and aligned
 * to 16. */
#include "io/ahead.h"
#include "io/http/http.h"
#include "io/listed.h"

#include <stdlib.h>

#define ALIGN ((size_t)16)
#define ROUND_UP(n) (((n) + ALIGN - 1) / ALIGN * ALIGN)

struct sqrl_fs {
    int refs;
    uint32_t flags;
    const struct sqrl_fs_ops *ops;
    const char *schemes;               /* a shim has those of the file system it wraps, */
    const struct sqrl_option *options; /* and its options */
    struct sqrl_context *context;      /* a reference, or NULL */
    void *state;                       /* behind this struct */
    uint64_t reads, bytes, lists;      /* atomic; where the implementer counts nothing */
    struct sqrl_listed *listed;        /* or NULL */
};

struct sqrl_file {
    int refs;
    struct sqrl_fs *fs;
    struct sqrl_stat stat;
    void *state;
    char *path;
    struct sqrl_lock lock;    /* of the list: */
    struct sqrl_ahead *ahead; /* atomic head */
};

struct sqrl_file_writer {
    struct sqrl_fs *fs;
    int failed; /* the first failed write's code */
    void *state;
    char *path;
};

void sqrl_cancel_request(struct sqrl_cancel *cancel) {
    __atomic_store_n(&cancel->requested, 1, __ATOMIC_RELEASE);
}

bool sqrl_cancel_requested(const struct sqrl_cancel *cancel) {
    return cancel && __atomic_load_n(&cancel->requested, __ATOMIC_ACQUIRE);
}

/* Prepends the path to an error, as the user would write it. */
static int name_path(const struct sqrl_fs *fs, const char *path, int rc,
                     struct sqrl_error *err) {
    size_t n = strcspn(fs->schemes, "|");
    if (n == 0 || fs->flags & SQRL_FS_LOCAL)
        return sqrl_error_at(err, rc, "%s", path);
    if (fs->flags & SQRL_FS_URL) { /* no passwords, no signatures */
        char *url = sqrl_format(NULL, "%.*s://%s", (int)n, fs->schemes, path);
        char *shown = url ? sqrl_http_url_clean(url, NULL) : NULL;
        rc = sqrl_error_at(err, rc, "%s", shown ? shown : "a URL");
        free(shown);
        free(url);
        return rc;
    }
    return sqrl_error_at(err, rc, "%.*s://%s", (int)n, fs->schemes, path);
}

/* The same for an error of the implementer's, unless it is a shim: its inner calls did
 * it. */
static int at_path(const struct sqrl_fs *fs, const char *path, int rc,
                   struct sqrl_error *err) {
    return rc == SQRL_OK || fs->flags & SQRL_FS_SHIM ? rc : name_path(fs, path, rc, err);
}

static int unsupported(const struct sqrl_fs *fs, const char *verb,
                       struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_UNSUPPORTED, "the file system \"%s\" can't %s",
                          fs->ops->name, verb);
}

/* --- file systems --- */

int sqrl_fs_make(struct sqrl_context *context, const struct sqrl_fs_ops *ops,
                 const struct sqrl_fs *inner, struct sqrl_fs **out,
                 struct sqrl_error *err) {
    *out = NULL;
    if (ops->api != SQRL_FS_API || ops->size < offsetof(struct sqrl_fs_ops, sweep)) {
        return sqrl_error_set(
            err, SQRL_E_UNSUPPORTED,
            "file system \"%s\": made for another version of the library", ops->name);
    }
    struct sqrl_fs *fs =
        sqrl_calloc(1, ROUND_UP(sizeof(*fs)) + ops->fs_size, "a file system", err);
    if (!fs)
        return SQRL_E_NO_MEMORY;
    fs->refs = 1;
    fs->ops = ops;
    fs->schemes = inner ? inner->schemes : ops->schemes ? ops->schemes : "";
    fs->options = inner ? inner->options : ops->options;
    fs->flags = ops->flags | (inner ? inner->flags : 0);
    fs->context = context ? sqrl_context_ref(context) : NULL;
    fs->state = (char *)fs + ROUND_UP(sizeof(*fs));
    *out = fs;
    return SQRL_OK;
}

int sqrl_fs_new(struct sqrl_context *context, const struct sqrl_fs_ops *ops,
                const struct sqrl_settings *settings, struct sqrl_fs **out,
                struct sqrl_error *err) {
    static const struct sqrl_option none[] = {{.name = NULL}};
    static const struct sqrl_settings empty = {NULL, 0};
    const struct sqrl_option *lists[] = {ops->options ? ops->options : none, NULL};
    *out = NULL;
    settings = settings ? settings : &empty;
    int rc = sqrl_settings_check(settings, lists, ops->name, err);
    if (rc != SQRL_OK)
        return rc;
    struct sqrl_fs *fs;
    rc = sqrl_fs_make(context, ops, NULL, &fs, err);
    if (rc != SQRL_OK)
        return rc;
    if (ops->open) {
        rc = ops->open(fs->state, context, settings, err);
        if (rc != SQRL_OK) {
            sqrl_context_unref(fs->context);
            free(fs);
            return rc;
        }
    }
    *out = fs;
    return SQRL_OK;
}

struct sqrl_fs *sqrl_fs_ref(struct sqrl_fs *fs) {
    __atomic_fetch_add(&fs->refs, 1, __ATOMIC_RELAXED);
    return fs;
}

void sqrl_fs_unref(struct sqrl_fs *fs) {
    if (!fs || __atomic_fetch_sub(&fs->refs, 1, __ATOMIC_ACQ_REL) != 1)
        return;
    if (fs->ops->close)
        fs->ops->close(fs->state);
    sqrl_listed_free(fs->listed);
    sqrl_context_unref(fs->context);
    free(fs);
}

struct sqrl_listed **sqrl_fs_listed_place(struct sqrl_fs *fs) {
    return &fs->listed;
}

const struct sqrl_fs_ops *sqrl_fs_ops_of(const struct sqrl_fs *fs) {
    return fs->ops;
}
uint32_t sqrl_fs_flags(const struct sqrl_fs *fs) {
    return fs->flags;
}
const struct sqrl_option *sqrl_fs_options(const struct sqrl_fs *fs) {
    return fs->options;
}
void *sqrl_fs_state(struct sqrl_fs *fs) {
    return fs->state;
}
struct sqrl_context *sqrl_fs_context(const struct sqrl_fs *fs) {
    return fs->context;
}
void sqrl_fs_set_flags(struct sqrl_fs *fs, uint32_t flags) {
    fs->flags = flags;
}

/* Does the table, which may be that of an older plugin, reach to this operation? */
#define HAS(fs, op)                                                                      \
    ((fs)->ops->size >= offsetof(struct sqrl_fs_ops, op) + sizeof((fs)->ops->op) &&      \
     (fs)->ops->op)

void sqrl_fs_metrics(struct sqrl_fs *fs, struct sqrl_fs_metrics *out) {
    memset(out, 0, sizeof *out);
    if (HAS(fs, metrics)) {
        fs->ops->metrics(fs->state, out);
        return;
    }
    out->requests = __atomic_load_n(&fs->reads, __ATOMIC_RELAXED);
    out->bytes = __atomic_load_n(&fs->bytes, __ATOMIC_RELAXED);
    out->lists = __atomic_load_n(&fs->lists, __ATOMIC_RELAXED);
}

int sqrl_fs_stat(struct sqrl_fs *fs, const char *path, struct sqrl_stat *out,
                 struct sqrl_error *err) {
    memset(out, 0, sizeof(*out));
    if (!fs->ops->stat)
        return unsupported(fs, "tell about files", err);
    return at_path(fs, path, fs->ops->stat(fs->state, path, out, err), err);
}

/* Tells an error of the visitor from one of the listing. */
struct visitor {
    sqrl_list_fn visit;
    void *arg;
    bool stopped;
    struct sqrl_bytes *keep; /* or NULL */
};

static int forward(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct visitor *v = arg;
    int rc = v->visit(v->arg, name, stat);
    v->stopped = rc != 0;
    if (v->keep && !rc)
        sqrl_listed_entry(v->keep, name, stat);
    return rc;
}

int sqrl_fs_list(struct sqrl_fs *fs, const char *path, bool recursive, sqrl_list_fn visit,
                 void *arg, const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    if (!fs->ops->list)
        return unsupported(fs, "list directories: name the files one by one", err);
    struct sqrl_bytes entries = {0};
    struct visitor v = {visit, arg, false, fs->listed ? &entries : NULL};
    int rc;
    if (fs->listed &&
        sqrl_listed_answer(fs->listed, path, recursive, visit, arg, &rc, err))
        return rc;
    __atomic_fetch_add(&fs->lists, 1, __ATOMIC_RELAXED);
    rc = fs->ops->list(fs->state, path, recursive, forward, &v, cancel, err);
    if (fs->listed && !v.stopped && (rc == SQRL_OK || rc == SQRL_E_NOT_FOUND))
        sqrl_listed_add(fs->listed, path, recursive, rc == SQRL_OK, &entries);
    sqrl_bytes_reset(&entries);
    return v.stopped ? rc : at_path(fs, path, rc, err);
}

int sqrl_fs_remove(struct sqrl_fs *fs, const char *path, struct sqrl_error *err) {
    if (!fs->ops->remove)
        return unsupported(fs, "remove files", err);
    return at_path(fs, path, fs->ops->remove(fs->state, path, err), err);
}

int sqrl_fs_make_directory(struct sqrl_fs *fs, const char *path, struct sqrl_error *err) {
    if (!fs->ops->make_directory)
        return unsupported(fs, "make directories", err);
    return at_path(fs, path, fs->ops->make_directory(fs->state, path, err), err);
}

int sqrl_fs_remove_directory(struct sqrl_fs *fs, const char *path,
                             struct sqrl_error *err) {
    if (!HAS(fs, remove_directory))
        return SQRL_OK;
    return at_path(fs, path, fs->ops->remove_directory(fs->state, path, err), err);
}

int sqrl_fs_sweep(struct sqrl_fs *fs, const char *directory, uint64_t *removed,
                  struct sqrl_error *err) {
    *removed = 0;
    if (!HAS(fs, sweep))
        return SQRL_OK;
    return at_path(fs, directory, fs->ops->sweep(fs->state, directory, removed, err),
                   err);
}

/* --- reading --- */

int sqrl_file_open(struct sqrl_fs *fs, const char *path, struct sqrl_file **out,
                   struct sqrl_error *err) {
    return sqrl_file_open_known(fs, path, NULL, out, err);
}

int sqrl_file_open_known(struct sqrl_fs *fs, const char *path,
                         const struct sqrl_stat *known, struct sqrl_file **out,
                         struct sqrl_error *err) {
    *out = NULL;
    size_t head = ROUND_UP(sizeof(struct sqrl_file)),
           state = ROUND_UP(fs->ops->file_size);
    size_t length = strlen(path) + 1;
    struct sqrl_file *file = sqrl_calloc(1, head + state + length, "an open file", err);
    if (!file)
        return name_path(fs, path, SQRL_E_NO_MEMORY, err);
    file->refs = 1;
    file->state = (char *)file + head;
    file->path = (char *)file + head + state;
    memcpy(file->path, path, length);
    if (known && known->size && known->size != SQRL_SIZE_UNKNOWN)
        file->stat = *known;
    int rc = fs->ops->file_open(fs->state, path, file->state, &file->stat, err);
    if (rc != SQRL_OK) {
        free(file);
        return at_path(fs, path, rc, err);
    }
    file->fs = sqrl_fs_ref(fs);
    sqrl_lock_init(&file->lock);
    *out = file;
    return SQRL_OK;
}

struct sqrl_file *sqrl_file_ref(struct sqrl_file *file) {
    __atomic_fetch_add(&file->refs, 1, __ATOMIC_RELAXED);
    return file;
}

void sqrl_file_unref(struct sqrl_file *file) {
    if (!file || __atomic_fetch_sub(&file->refs, 1, __ATOMIC_ACQ_REL) != 1)
        return;
    struct sqrl_fs *fs = file->fs;
    if (fs->ops->file_close)
        fs->ops->file_close(fs->state, file->state);
    sqrl_lock_reset(&file->lock);
    free(file);
    sqrl_fs_unref(fs);
}

uint64_t sqrl_file_size(const struct sqrl_file *file) {
    return file->stat.size;
}
const char *sqrl_file_path(const struct sqrl_file *file) {
    return file->path;
}
uint32_t sqrl_file_flags(const struct sqrl_file *file) {
    return sqrl_fs_flags(file->fs);
}
const struct sqrl_stat *sqrl_file_stat(const struct sqrl_file *file) {
    return &file->stat;
}

struct sqrl_ahead **sqrl_file_ahead(struct sqrl_file *file, struct sqrl_lock **lock) {
    *lock = &file->lock;
    return &file->ahead;
}

struct sqrl_context *sqrl_file_context(const struct sqrl_file *file) {
    return file->fs->context;
}

int sqrl_file_read_past(struct sqrl_file *file, struct sqrl_range *ranges, size_t count,
                        const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_fs *fs = file->fs;
    if (sqrl_cancel_requested(cancel)) {
        int rc = sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
        return name_path(fs, file->path, rc, err);
    }
    if (count == 0)
        return SQRL_OK;
    int rc = fs->ops->file_read(fs->state, file->state, ranges, count, cancel, err);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += ranges[i].got;
    __atomic_fetch_add(&fs->reads, count, __ATOMIC_RELAXED);
    __atomic_fetch_add(&fs->bytes, bytes, __ATOMIC_RELAXED);
    return at_path(fs, file->path, rc, err);
}

/* Where something is read ahead: the ranges that are not are read together. */
static int read_beside(struct sqrl_file *file, struct sqrl_range *ranges, size_t count,
                       const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    enum { FEW = 64 };
    size_t few_rest[FEW], left = 0, *rest = few_rest;
    struct sqrl_range few[FEW], *past = few;
    if (count > FEW) {
        rest = sqrl_malloc(count * (sizeof *rest + sizeof *past), "ranges to read", err);
        if (!rest)
            return name_path(file->fs, file->path, SQRL_E_NO_MEMORY, err);
        past = (struct sqrl_range *)(void *)(rest + count);
    }
    int rc = sqrl_ahead_serve(file, ranges, count, rest, &left, cancel, err);
    for (size_t i = 0; i < left; i++)
        past[i] = ranges[rest[i]];
    if (rc == SQRL_OK && left)
        rc = sqrl_file_read_past(file, past, left, cancel, err);
    for (size_t i = 0; i < left; i++)
        ranges[rest[i]].got = rc == SQRL_OK ? past[i].got : 0;
    if (rest != few_rest)
        free(rest);
    return rc;
}

int sqrl_file_read(struct sqrl_file *file, struct sqrl_range *ranges, size_t count,
                   const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    for (size_t i = 0; i < count; i++) {
        ranges[i].got = 0;
        if (ranges[i].offset > INT64_MAX ||
            ranges[i].size > INT64_MAX - ranges[i].offset) {
            int rc = sqrl_error_set(err, SQRL_E_INVALID,
                                    "no file reaches to offset %llu + %zu",
                                    (unsigned long long)ranges[i].offset, ranges[i].size);
            return name_path(file->fs, file->path, rc, err);
        }
    }
    if (__atomic_load_n(&file->ahead, __ATOMIC_ACQUIRE))
        return read_beside(file, ranges, count, cancel, err);
    return sqrl_file_read_past(file, ranges, count, cancel, err);
}

int sqrl_file_read_exact(struct sqrl_file *file, uint64_t offset, void *data, size_t size,
                         const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_range range = {.offset = offset, .size = size, .data = data};
    int rc = sqrl_file_read(file, &range, 1, cancel, err);
    if (rc != SQRL_OK || range.got == size)
        return rc;
    rc = sqrl_error_set(
        err, SQRL_E_TRUNCATED,
        "the file ends at offset %llu, but %zu bytes are expected at offset "
        "%llu: it is cut short; get it again",
        (unsigned long long)(range.got ? offset + range.got
                                       : SQRL_MIN(offset, file->stat.size)),
        size, (unsigned long long)offset);
    return name_path(file->fs, file->path, rc, err);
}

/* --- writing --- */

static void free_writer(struct sqrl_file_writer *writer) {
    struct sqrl_fs *fs = writer->fs;
    free(writer);
    sqrl_fs_unref(fs);
}

int sqrl_file_create(struct sqrl_fs *fs, const char *path, bool replace,
                     struct sqrl_file_writer **out, struct sqrl_error *err) {
    *out = NULL;
    if (!fs->ops->writer_open)
        return name_path(fs, path, unsupported(fs, "write", err), err);
    size_t head = ROUND_UP(sizeof(struct sqrl_file_writer));
    size_t state = ROUND_UP(fs->ops->writer_size), length = strlen(path) + 1;
    struct sqrl_file_writer *writer =
        sqrl_calloc(1, head + state + length, "a file writer", err);
    if (!writer)
        return name_path(fs, path, SQRL_E_NO_MEMORY, err);
    writer->state = (char *)writer + head;
    writer->path = (char *)writer + head + state;
    memcpy(writer->path, path, length);
    int rc = fs->ops->writer_open(fs->state, path, replace, writer->state, err);
    if (rc != SQRL_OK) {
        free(writer);
        return at_path(fs, path, rc, err);
    }
    writer->fs = sqrl_fs_ref(fs);
    *out = writer;
    return SQRL_OK;
}

int sqrl_file_write(struct sqrl_file_writer *writer, const void *data, size_t size,
                    struct sqrl_error *err) {
    struct sqrl_fs *fs = writer->fs;
    int rc = SQRL_OK;
    if (writer->failed)
        rc =
            sqrl_error_set(err, SQRL_E_STATE, "an earlier write to this file failed (%s)",
                           sqrl_code_name(writer->failed));
    else if (size > 0)
        rc = fs->ops->writer_write(fs->state, writer->state, data, size, err);
    if (rc != SQRL_OK && !writer->failed)
        writer->failed = rc;
    return at_path(fs, writer->path, rc, err);
}

int sqrl_file_commit(struct sqrl_file_writer *writer, struct sqrl_error *err) {
    struct sqrl_fs *fs = writer->fs;
    int rc;
    if (writer->failed) {
        fs->ops->writer_abort(fs->state, writer->state);
        rc = sqrl_error_set(err, writer->failed,
                            "not committed: an earlier write to this file failed");
        name_path(fs, writer->path, rc, err);
    } else {
        rc = fs->ops->writer_commit(fs->state, writer->state, err);
        at_path(fs, writer->path, rc, err);
    }
    free_writer(writer);
    return rc;
}

void sqrl_file_abort(struct sqrl_file_writer *writer) {
    if (!writer)
        return;
    writer->fs->ops->writer_abort(writer->fs->state, writer->state);
    free_writer(writer);
}
