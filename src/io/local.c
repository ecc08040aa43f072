/* local.c - local files: file:// and plain paths.
 *
 * A batch of ranges is put in order of offsets; ranges that touch become one preadv,
 * whose pieces go where each range wants them. So a reader of stored frames names the
 * payload and the framing between as ranges of their own and still pays one system call
 * per 8 MiB at most. Between calls the cancel token is looked at. */
#include "io/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECES 256
#define CALL_BYTES ((size_t)8 << 20)

struct local_file {
    int fd;
    uint64_t size; /* when it was opened */
};

static int local_open(void *fs, struct sqrl_context *context,
                      const struct sqrl_settings *settings, struct sqrl_error *err) {
    struct sqrl_local *local = fs;
    local->context = context;
    return SQRL_OK;
}

const char *sqrl_local_kind(mode_t mode) {
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a FIFO (named pipe)";
    if (S_ISSOCK(mode))
        return "a socket";
    return "a device";
}

void sqrl_local_fill_stat(const struct stat *st, struct sqrl_stat *out) {
    memset(out, 0, sizeof(*out));
    out->directory = S_ISDIR(st->st_mode);
    out->size = out->directory ? 0 : (uint64_t)st->st_size;
    out->modified_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int local_stat(void *fs, const char *path, struct sqrl_stat *out,
                      struct sqrl_error *err) {
    struct stat st;
    if (stat(path, &st) != 0)
        return sqrl_error_set_errno(err, errno, "can't look it up");
    sqrl_local_fill_stat(&st, out);
    return SQRL_OK;
}

/* --- reading --- */

static int refuse_kind(mode_t mode, struct sqrl_error *err) {
    if (S_ISDIR(mode))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a directory; a file is expected here");
    return sqrl_error_set(
        err, SQRL_E_UNSUPPORTED,
        "is %s, which can't be read at an offset; copy it to a file first",
        sqrl_local_kind(mode));
}

static int local_file_open(void *fs, const char *path, void *file,
                           struct sqrl_stat *stat_, struct sqrl_error *err) {
    struct local_file *f = file;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0 && errno == ENXIO)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "is a socket or a device, not a file to be read");
    if (f->fd < 0)
        return sqrl_error_set_errno(err, errno, "can't open it for reading");
    struct stat st;
    int rc = SQRL_OK;
    if (fstat(f->fd, &st) != 0)
        rc = sqrl_error_set_errno(err, errno, "can't look it up");
    else if (!S_ISREG(st.st_mode))
        rc = refuse_kind(st.st_mode, err);
    if (rc != SQRL_OK) {
        close(f->fd);
        return rc;
    }
    sqrl_local_fill_stat(&st, stat_);
    f->size = stat_->size;
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return SQRL_OK;
}

static void local_file_close(void *fs, void *file) {
    struct local_file *f = file;
    close(f->fd);
}

/* Ranges in order of offsets: `order` is NULL when they are so already. */
struct batch {
    struct sqrl_range *ranges;
    struct sqrl_range **order;
    size_t count;
};

static struct sqrl_range *range_at(const struct batch *b, size_t i) {
    return b->order ? b->order[i] : &b->ranges[i];
}

/* Fills iov with what is left of the ranges from `first` on that lie end to end; returns
 * the number of pieces. */
static int gather(const struct batch *b, size_t first, struct iovec *iov, size_t *bytes) {
    int pieces = 0;
    *bytes = 0;
    for (size_t i = first; i < b->count && pieces < PIECES && *bytes < CALL_BYTES; i++) {
        struct sqrl_range *r = range_at(b, i);
        struct sqrl_range *before = i > first ? range_at(b, i - 1) : NULL;
        if (before && before->offset + before->size != r->offset)
            break;
        size_t left = SQRL_MIN(r->size - r->got, CALL_BYTES - *bytes);
        if (left > 0)
            iov[pieces++] = (struct iovec){r->data + r->got, left};
        *bytes += left;
        if (left < r->size - r->got)
            break;
    }
    return pieces;
}

/* Books `n` bytes that were read; returns the first range that is not full. */
static size_t book(const struct batch *b, size_t first, size_t n) {
    while (first < b->count) {
        struct sqrl_range *r = range_at(b, first);
        size_t take = SQRL_MIN(n, r->size - r->got);
        r->got += take;
        n -= take;
        if (r->got < r->size)
            break;
        first++;
        if (n == 0)
            break;
    }
    return first;
}

/* The system says end of file at `offset`: fine only where it was the end at the start.
 */
static int check_end(const struct local_file *f, uint64_t offset,
                     struct sqrl_error *err) {
    if (offset >= f->size)
        return SQRL_OK;
    return sqrl_error_set(
        err, SQRL_E_TRUNCATED,
        "the file had %llu bytes when it was opened and now ends before "
        "offset %llu: it was cut or rewritten meanwhile",
        (unsigned long long)f->size, (unsigned long long)offset + 1);
}

/* A file that is cut while it is read may give zeros for a moment: the size goes first.
 */
static int check_size(const struct local_file *f, uint64_t end, struct sqrl_error *err) {
    struct stat st;
    if (end > f->size || fstat(f->fd, &st) != 0 || (uint64_t)st.st_size >= end)
        return SQRL_OK;
    return check_end(f, (uint64_t)st.st_size, err);
}

static int cancelled(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
}

/* One call's worth from range *first on; moves *first on, and *end to the end of what was
 * read. */
static int read_some(struct sqrl_local *local, struct local_file *f,
                     const struct batch *b, size_t *first, uint64_t *end,
                     const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct iovec iov[PIECES];
    struct sqrl_range *r = range_at(b, *first);
    uint64_t offset = r->offset + r->got;
    size_t bytes;
    int pieces = gather(b, *first, iov, &bytes);
    if (pieces == 0) {
        (*first)++; /* an empty range */
        return SQRL_OK;
    }
    ssize_t n;
    do {
        if (sqrl_cancel_requested(cancel))
            return cancelled(err);
        n = pieces == 1 ? pread(f->fd, iov[0].iov_base, iov[0].iov_len, (off_t)offset)
                        : preadv(f->fd, iov, pieces, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return sqrl_error_set_errno(err, errno, "can't read %zu bytes at offset %llu",
                                    bytes, (unsigned long long)offset);
    }
    if (n == 0) {
        (*first)++; /* short at the end of the file; those behind it find out for
                       themselves */
        return check_end(f, offset, err);
    }
    if (local->context) {
        sqrl_count(local->context, SQRL_COUNT_READS, 1);
        sqrl_count(local->context, SQRL_COUNT_BYTES_READ, (uint64_t)n);
    }
    *first = book(b, *first, (size_t)n);
    *end = SQRL_MAX(*end, offset + (uint64_t)n);
    return SQRL_OK;
}

static int by_offset(const void *a, const void *b) {
    const struct sqrl_range *x = *(struct sqrl_range *const *)a;
    const struct sqrl_range *y = *(struct sqrl_range *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int put_in_order(struct batch *b, struct sqrl_error *err) {
    size_t i = 1;
    while (i < b->count && b->ranges[i - 1].offset <= b->ranges[i].offset)
        i++;
    if (i >= b->count)
        return SQRL_OK;
    size_t bytes;
    if (sqrl_mul_overflow(b->count, sizeof(*b->order), &bytes))
        return sqrl_error_set(err, SQRL_E_LIMIT, "too many ranges in one read");
    b->order = sqrl_malloc(bytes, "the order of ranges", err);
    if (!b->order)
        return SQRL_E_NO_MEMORY;
    for (i = 0; i < b->count; i++)
        b->order[i] = &b->ranges[i];
    qsort(b->order, b->count, sizeof(*b->order), by_offset);
    return SQRL_OK;
}

static int local_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                           const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct batch b = {ranges, NULL, count};
    int rc = put_in_order(&b, err);
    size_t first = 0;
    uint64_t end = 0;
    while (rc == SQRL_OK && first < count)
        rc = read_some(fs, file, &b, &first, &end, cancel, err);
    if (rc == SQRL_OK && end)
        rc = check_size(file, end, err);
    free(b.order);
    return rc;
}

/* --- removing and directories --- */

static int local_remove(void *fs, const char *path, struct sqrl_error *err) {
    if (unlink(path) == 0)
        return SQRL_OK;
    int failure = errno;
    struct stat st;
    if ((failure == EISDIR || failure == EPERM) && lstat(path, &st) == 0 &&
        S_ISDIR(st.st_mode))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a directory; only files are removed");
    return sqrl_error_set_errno(err, failure, "can't remove it");
}

static int local_remove_directory(void *fs, const char *path, struct sqrl_error *err) {
    if (rmdir(path) == 0)
        return SQRL_OK;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return sqrl_error_set(err, SQRL_E_STATE, "the directory is not empty");
    if (errno == ENOTDIR)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a file; a directory is expected here");
    return sqrl_error_set_errno(err, errno, "can't remove the directory");
}

/* Makes the entry of a new directory durable; a failure here is not worth failing for,
 * since the files in it are synced with their own directory entry later. */
static void sync_parent(char *path) {
    char *slash = strrchr(path, '/');
    char kept = 0;
    const char *parent = ".";
    if (slash == path) {
        parent = "/";
    } else if (slash) {
        kept = *slash;
        *slash = '\0';
        parent = path;
    }
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kept)
        *slash = kept;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

static int make_one(char *path, struct sqrl_error *err) {
    struct stat st;
    if (mkdir(path, 0777) == 0) {
        sync_parent(path);
        return SQRL_OK;
    }
    int failure = errno;
    if (failure == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return SQRL_OK;
    if (failure == EEXIST || failure == ENOTDIR)
        return sqrl_error_set(
            err, SQRL_E_EXISTS,
            "can't make the directory %s: a file of that name is in the way", path);
    return sqrl_error_set_errno(err, failure, "can't make the directory %s", path);
}

static int local_make_directory(void *fs, const char *path, struct sqrl_error *err) {
    char *copy = sqrl_strdup(path, err);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    int rc = SQRL_OK;
    struct stat st;
    bool there = stat(copy, &st) == 0 && S_ISDIR(st.st_mode);
    for (char *p = copy; !there && rc == SQRL_OK && *p;) {
        p += strspn(p, "/");
        p += strcspn(p, "/");
        char kept = *p;
        *p = '\0';
        rc = make_one(copy, err);
        *p = kept;
        if (p[strspn(p, "/")] == '\0')
            break;
    }
    free(copy);
    return rc;
}

const struct sqrl_fs_ops sqrl_fs_local = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "local",
    .schemes = "file|",
    .doc = "files of this machine: plain paths and file:// URLs",
    .flags = SQRL_FS_LOCAL | SQRL_FS_WRITABLE | SQRL_FS_LISTABLE,
    .fs_size = sizeof(struct sqrl_local),
    .file_size = sizeof(struct local_file),
    .writer_size = sizeof(struct sqrl_local_writer),
    .open = local_open,
    .stat = local_stat,
    .list = sqrl_local_list,
    .file_open = local_file_open,
    .file_read = local_file_read,
    .file_close = local_file_close,
    .writer_open = sqrl_local_writer_open,
    .writer_write = sqrl_local_writer_write,
    .writer_commit = sqrl_local_writer_commit,
    .writer_abort = sqrl_local_writer_abort,
    .remove = local_remove,
    .make_directory = local_make_directory,
    .sweep = sqrl_local_sweep,
    .remove_directory = local_remove_directory,
};
