/* local_write.c - files that appear whole or not at all.
 *
 * Bytes go to a temporary in the destination's directory; commit syncs it, gives it its
 * name and syncs the directory. The directory is held open, so that a chdir or a rename
 * of a parent changes nothing. Write-back is started early, every few MiB, so that the
 * last fsync finds little to do. Whatever fails, the temporary is removed; if the process
 * is killed, it stays for sqrl_fs_sweep. */
#include "io/local.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define CALL_BYTES ((size_t)16 << 20)
#define WRITE_BACK_BYTES ((uint64_t)8 << 20)
#define NAME_TRIES 16
#define MAX_LINKS 40

/* --- opening --- */

/* Splits a path; *directory is to be freed, *name points into `path`. */
static int split(const char *path, char **directory, const char **name,
                 struct sqrl_error *err) {
    const char *slash = strrchr(path, '/');
    *directory = NULL;
    *name = slash ? slash + 1 : path;
    if (**name == '\0' || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "names no file: a file name is expected");
    if (!slash)
        *directory = sqrl_strdup(".", err);
    else if (slash == path)
        *directory = sqrl_strdup("/", err);
    else
        *directory = sqrl_format(err, "%.*s", (int)(slash - path), path);
    return *directory ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* Where a path leads to: what a link names is replaced, not the link. To be freed. */
static char *follow(const char *path, struct sqrl_error *err) {
    char target[PATH_MAX];
    char *at = sqrl_strdup(path, err);
    for (int i = 0; at && i < MAX_LINKS; i++) {
        ssize_t size = readlink(at, target, sizeof target - 1);
        if (size <= 0)
            return at;
        target[size] = '\0';
        const char *slash = *target == '/' ? NULL : strrchr(at, '/');
        char *next = slash ? sqrl_format(err, "%.*s/%s", (int)(slash - at), at, target)
                           : sqrl_strdup(target, err);
        free(at);
        at = next;
    }
    return at;
}

/* Is there something under the final name that must not be replaced? */
static int check_target(struct sqrl_local_writer *w, mode_t *mode,
                        struct sqrl_error *err) {
    struct stat st;
    *mode = 0;
    if (fstatat(w->directory, w->name, &st, 0) != 0) {
        if (errno == ENOENT)
            return SQRL_OK;
        return sqrl_error_set_errno(err, errno, "can't write it");
    }
    if (!S_ISREG(st.st_mode)) {
        return sqrl_error_set(
            err, S_ISDIR(st.st_mode) ? SQRL_E_INVALID : SQRL_E_UNSUPPORTED,
            "is %s; choose another name for the file", sqrl_local_kind(st.st_mode));
    }
    if (!w->replace)
        return sqrl_error_set(
            err, SQRL_E_EXISTS,
            "is there already; choose another name or ask to replace it");
    *mode = st.st_mode & 07777;
    return SQRL_OK;
}

static int make_temporary(struct sqrl_local_writer *w, struct sqrl_error *err) {
    for (int i = 0; i < NAME_TRIES; i++) {
        char *name = sqrl_local_temporary_name(w->name, err);
        if (!name)
            return SQRL_E_NO_MEMORY;
        w->fd = openat(w->directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0) {
            w->temporary = name;
            return SQRL_OK;
        }
        int failure = errno;
        free(name);
        if (failure != EEXIST)
            return sqrl_error_set_errno(err, failure,
                                        "can't create a file in its directory");
    }
    return sqrl_error_set(err, SQRL_E_EXISTS, "no free name for a temporary was found");
}

int sqrl_local_writer_open(void *fs, const char *path, bool replace, void *writer,
                           struct sqrl_error *err) {
    struct sqrl_local *local = fs;
    struct sqrl_local_writer *w = writer;
    char *directory = NULL, *followed = NULL;
    const char *name;
    mode_t mode = 0; /* of the file that is replaced */
    w->fd = w->directory = -1;
    w->replace = replace;
    if (replace && !(followed = follow(path, err)))
        return SQRL_E_NO_MEMORY;
    int rc = split(followed ? followed : path, &directory, &name, err);
    if (rc == SQRL_OK) {
        w->name = sqrl_strdup(name, err);
        rc = w->name ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    if (rc == SQRL_OK) {
        w->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (w->directory < 0 && errno == ENOENT)
            rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                                "the directory %s does not exist; make it first",
                                directory);
        else if (w->directory < 0)
            rc = sqrl_error_set_errno(err, errno, "can't open its directory %s",
                                      directory);
    }
    if (rc == SQRL_OK)
        rc = check_target(w, &mode, err);
    if (rc == SQRL_OK)
        rc = sqrl_buffer_new(local->context, BUFFER_BYTES, &w->buffer, err);
    if (rc == SQRL_OK)
        rc = make_temporary(w, err);
    if (rc == SQRL_OK && mode)
        (void)fchmod(w->fd, mode); /* who may read it stays as it was, where it can */
    free(directory);
    free(followed);
    if (rc != SQRL_OK)
        sqrl_local_writer_abort(fs, w);
    return rc;
}

/* --- writing --- */

static int write_problem(const struct sqrl_local_writer *w, int failure,
                         struct sqrl_error *err) {
    unsigned long long written = w->written;
    if (failure == ENOSPC || failure == EDQUOT) {
        return sqrl_error_set_errno(err, failure,
                                    "no room after %llu bytes: free some space or choose "
                                    "another disk, and run again",
                                    written);
    }
    if (failure == EFBIG)
        return sqrl_error_set_errno(
            err, failure,
            "the limit on file size (ulimit -f) is reached after %llu bytes", written);
    return sqrl_error_set_errno(err, failure, "writing failed after %llu bytes", written);
}

/* Starts write-back of what is there; only a hint, so its failure is not one of ours. */
static void start_write_back(struct sqrl_local_writer *w) {
    if (w->written - w->started < WRITE_BACK_BYTES)
        return;
    (void)sync_file_range(w->fd, (off_t)w->started, (off_t)(w->written - w->started),
                          SYNC_FILE_RANGE_WRITE);
    w->started = w->written;
}

static int write_through(struct sqrl_local_writer *w, const uint8_t *data, size_t size,
                         struct sqrl_error *err) {
    while (size > 0) {
        ssize_t n = write(w->fd, data, SQRL_MIN(size, CALL_BYTES));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return write_problem(w, errno, err);
        data += n;
        size -= (size_t)n;
        w->written += (uint64_t)n;
        start_write_back(w);
    }
    return SQRL_OK;
}

static int flush(struct sqrl_local_writer *w, struct sqrl_error *err) {
    int rc = write_through(w, w->buffer->data, w->buffer->size, err);
    w->buffer->size = 0;
    return rc;
}

/* Whole buffers only, so that every write but the last begins and ends at a multiple of
 * 1 MiB. The page cache then holds the file in large folios, and whoever reads it while
 * it is warm copies at two to three times the rate (27 against 11 GB/s with ext4 on Linux
 * 6.18). */
int sqrl_local_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                            struct sqrl_error *err) {
    struct sqrl_local_writer *w = writer;
    int rc = SQRL_OK;
    while (size > 0 && rc == SQRL_OK) {
        size_t n = SQRL_MIN(size, BUFFER_BYTES - w->buffer->size);
        if (n == BUFFER_BYTES) {
            n = size - size % BUFFER_BYTES;
            rc = write_through(w, data, n, err);
        } else {
            memcpy(w->buffer->data + w->buffer->size, data, n);
            w->buffer->size += n;
            rc = w->buffer->size == BUFFER_BYTES ? flush(w, err) : SQRL_OK;
        }
        data += n;
        size -= n;
    }
    return rc;
}

/* --- ending --- */

/* Gives the temporary its name, only if that is free. */
static int name_once(struct sqrl_local_writer *w) {
    int rc =
        renameat2(w->directory, w->temporary, w->directory, w->name, RENAME_NOREPLACE);
    if (rc == 0 || (errno != EINVAL && errno != ENOSYS))
        return rc;
    /* Not every file system has it; a link fails on a taken name as well. */
    rc = linkat(w->directory, w->temporary, w->directory, w->name, 0);
    if (rc == 0)
        (void)unlinkat(w->directory, w->temporary, 0);
    return rc;
}

static int give_name(struct sqrl_local_writer *w, struct sqrl_error *err) {
    int rc = w->replace ? renameat(w->directory, w->temporary, w->directory, w->name)
                        : name_once(w);
    if (rc != 0 && errno == EEXIST)
        return sqrl_error_set(
            err, SQRL_E_EXISTS,
            "was created by somebody else meanwhile; choose another name "
            "or ask to replace it");
    if (rc != 0)
        return sqrl_error_set_errno(err, errno, "can't give the finished file its name");
    free(w->temporary);
    w->temporary = NULL;
    return SQRL_OK;
}

int sqrl_local_writer_commit(void *fs, void *writer, struct sqrl_error *err) {
    struct sqrl_local_writer *w = writer;
    int rc = flush(w, err);
    if (rc == SQRL_OK && fsync(w->fd) != 0)
        rc = write_problem(w, errno, err);
    if (rc == SQRL_OK) {
        int closed = close(w->fd); /* network file systems report late errors here */
        w->fd = -1;
        if (closed != 0 && errno != EINTR)
            rc = write_problem(w, errno, err);
    }
    if (rc == SQRL_OK)
        rc = give_name(w, err);
    /* EINVAL: a file system without directory sync. */
    if (rc == SQRL_OK && fsync(w->directory) != 0 && errno != EINVAL)
        rc = sqrl_error_set_errno(
            err, errno, "the file is in place, but its directory can't be synced");
    sqrl_local_writer_abort(fs, w);
    return rc;
}

void sqrl_local_writer_abort(void *fs, void *writer) {
    struct sqrl_local_writer *w = writer;
    if (w->temporary)
        (void)unlinkat(w->directory, w->temporary, 0);
    if (w->fd >= 0)
        close(w->fd);
    if (w->directory >= 0)
        close(w->directory);
    w->fd = w->directory = -1;
    free(w->temporary);
    free(w->name);
    w->temporary = w->name = NULL;
    sqrl_buffer_unref(w->buffer);
    w->buffer = NULL;
}
