/* sqrl/fs.h - where bytes live: one ops table for local files and object stores.
 *
 * A file system answers for URL schemes. Its calls may block; cancel tokens end them.
 * Reads are batched ranges, so that one call may become one merged or many parallel
 * requests. Writes are atomic: a created file appears under its name, whole and synced,
 * at commit, or not at all.
 *
 * Shims (retry, fault injection, cache, throttle) are file systems that wrap another.
 * Threads: one file may be read by many threads at once; one writer belongs to one
 * thread.
 */
#ifndef SQRL_FS_H
#define SQRL_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "context.h"
#include "error.h"
#include "option.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SQRL_FS_API 1
#define SQRL_SIZE_UNKNOWN UINT64_MAX

struct sqrl_fs;
struct sqrl_file;        /* open for reading */
struct sqrl_file_writer; /* a file that is being made */

/* Set by one thread, seen by all that hold it. Zero-initialise. */
struct sqrl_cancel {
    int requested;
};
SQRL_API void sqrl_cancel_request(struct sqrl_cancel *cancel);
SQRL_API bool sqrl_cancel_requested(const struct sqrl_cancel *cancel); /* NULL: false */

/* One range of a batched read; `got` may be less than `size` only at the end of the file.
 */
struct sqrl_range {
    uint64_t offset;
    size_t size;
    uint8_t *data; /* size bytes of room */
    size_t got;
};

struct sqrl_stat {
    uint64_t size;
    int64_t modified_ns; /* since 1970, 0 when unknown */
    bool directory;
    char etag[72]; /* identity of the content where the store has one, else "" */
};

/* Called for each entry, in byte order of names where the store can; `name` is relative
 * to the listed directory. Return non-zero to stop: the listing then returns that number
 * and leaves `err` to you. */
typedef int (*sqrl_list_fn)(void *arg, const char *name, const struct sqrl_stat *stat);

/* What a file system did so far: sums over its life, all threads together. */
struct sqrl_fs_metrics {
    uint64_t requests; /* all but lists, repetitions and hedges among them */
    uint64_t lists;    /* listing requests, a page each */
    uint64_t bytes;    /* of bodies that came over the link */
    uint64_t retries, hedges;
    uint64_t cache_hits, cache_bytes; /* reads, and their bytes, that a cache answered */
    uint64_t first_byte_ns;           /* from requests to their first bytes, ... */
    uint64_t first_bytes;             /* ... of so many requests */
    uint64_t parallel_most;           /* requests that were under way at a time */
};

struct sqrl_fs_ops {
    size_t size;
    uint32_t api;
    const char *name;    /* "local" */
    const char *schemes; /* "file|" : separated by |, the empty one means plain paths */
    const char *doc;
    uint32_t flags; /* enum sqrl_fs_flag */
    const struct sqrl_option *options;
    size_t fs_size, file_size, writer_size; /* states, allocated zeroed by the library */

    int (*open)(void *fs, struct sqrl_context *context,
                const struct sqrl_settings *settings, struct sqrl_error *err);
    void (*close)(void *fs);
    int (*stat)(void *fs, const char *path, struct sqrl_stat *out,
                struct sqrl_error *err);
    /* One level: files and directories. Recursive: the files only, names with slashes.
     * Hidden entries (a leading dot) and temporaries are left out. */
    int (*list)(void *fs, const char *path, bool recursive, sqrl_list_fn visit, void *arg,
                const struct sqrl_cancel *cancel, struct sqrl_error *err);
    /* `stat` comes with what the caller knows of the file: a size above 0 is from a
     * listing or an index, perhaps with an etag. A remote file system takes that for true
     * and spares the request; the first read finds out. Else it is zeroed. */
    int (*file_open)(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                     struct sqrl_error *err);
    int (*file_read)(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                     const struct sqrl_cancel *cancel, struct sqrl_error *err);
    void (*file_close)(void *fs, void *file);
    /* replace=false: SQRL_E_EXISTS here when the name is taken already, or at commit when
     * it is by then. A failed commit leaves nothing behind, like abort. */
    int (*writer_open)(void *fs, const char *path, bool replace, void *writer,
                       struct sqrl_error *err);
    int (*writer_write)(void *fs, void *writer, const uint8_t *data, size_t size,
                        struct sqrl_error *err);
    int (*writer_commit)(void *fs, void *writer, struct sqrl_error *err);
    void (*writer_abort)(void *fs, void *writer);
    int (*remove)(void *fs, const char *path, struct sqrl_error *err);
    int (*make_directory)(void *fs, const char *path,
                          struct sqrl_error *err); /* with parents */
    /* See sqrl_fs_sweep; NULL where no writer leaves temporaries. */
    int (*sweep)(void *fs, const char *directory, uint64_t *removed,
                 struct sqrl_error *err);
    /* See sqrl_fs_remove_directory; NULL where a directory is nothing but a name. */
    int (*remove_directory)(void *fs, const char *path, struct sqrl_error *err);
    /* Adds to *out, see sqrl_fs_metrics. NULL: reads and listings are counted as they are
     * called. */
    void (*metrics)(void *fs, struct sqrl_fs_metrics *out);
};

enum sqrl_fs_flag {
    SQRL_FS_LOCAL = 1, /* reads are quick enough for CPU threads */
    SQRL_FS_WRITABLE = 2,
    SQRL_FS_LISTABLE = 4,
    /* A read fails when the file is another one than was opened (If-Match); without it a
     * cache looks the file up again behind each fetch. */
    SQRL_FS_VERSIONED = 32,
    SQRL_FS_URL = 16, /* paths are URLs: errors leave out their queries */
    SQRL_FS_SHIM = 8  /* wraps another, whose errors already name the path */
};

/* The file system for a URL ("file:///data/a%20b", "data/x", "mem://x"), from the
 * context's registry, and the path within it (free() it). A plain path is taken as it is:
 * no escapes, no ~. Settings may be NULL. */
SQRL_CHECK int sqrl_fs_for_url(struct sqrl_context *context, const char *url,
                               const struct sqrl_settings *settings, struct sqrl_fs **out,
                               char **path, struct sqrl_error *err);
/* The one that answers for the URL's scheme, or NULL: its options tell which of a
 * caller's settings are the file system's. */
SQRL_API const struct sqrl_fs_ops *sqrl_fs_ops_for_url(struct sqrl_context *context,
                                                       const char *url);
/* Adds a file system to the context's registry; `ops` must outlive the context. A scheme
 * that is taken is SQRL_E_EXISTS. */
SQRL_CHECK int sqrl_fs_register(struct sqrl_context *context,
                                const struct sqrl_fs_ops *ops, struct sqrl_error *err);
/* The i-th registered file system, NULL behind the last. */
SQRL_API const struct sqrl_fs_ops *sqrl_fs_registered(struct sqrl_context *context,
                                                      size_t i);
/* A file system from an ops table of the caller's (tests, shims, plugins). */
SQRL_CHECK int sqrl_fs_new(struct sqrl_context *context, const struct sqrl_fs_ops *ops,
                           const struct sqrl_settings *settings, struct sqrl_fs **out,
                           struct sqrl_error *err);
/* Wraps `inner`: failed calls whose error is retryable are tried again, up to `attempts`
 * times in all, waiting delay_ms, 2 x, 4 x ... with jitter between. Writes and commits
 * are not: a file system whose requests can fail on the way repeats them itself. Takes
 * its own reference. */
SQRL_CHECK int sqrl_fs_retry(struct sqrl_fs *inner, unsigned attempts, unsigned delay_ms,
                             struct sqrl_fs **out, struct sqrl_error *err);
/* A link as a shim plays it: 0 is without a limit. */
struct sqrl_link {
    size_t size;                   /* sizeof(struct sqrl_link) */
    uint64_t latency_us;           /* from a request to its first byte */
    uint64_t bytes_per_second;     /* of one request */
    uint64_t all_bytes_per_second; /* of all requests together */
};
/* Reads "latency=30ms,bandwidth=40MB,total=400MB"; parts may be left out. */
SQRL_CHECK int sqrl_link_parse(const char *text, struct sqrl_link *out,
                               struct sqrl_error *err);
/* Wraps `inner` so that it behaves like a remote one behind that link (also local files:
 * SQRL_FS_LOCAL is gone): each range of a read, each lookup, listing and open of a file
 * whose size is not known takes as long as a request would, and is counted as one by
 * sqrl_fs_metrics. Cancel tokens end its waiting. Takes its own reference. */
SQRL_CHECK int sqrl_fs_throttle(struct sqrl_fs *inner, const struct sqrl_link *link,
                                struct sqrl_fs **out, struct sqrl_error *err);
SQRL_API struct sqrl_fs *sqrl_fs_ref(struct sqrl_fs *fs);
SQRL_API void sqrl_fs_unref(struct sqrl_fs *fs);
SQRL_API const struct sqrl_fs_ops *sqrl_fs_ops_of(const struct sqrl_fs *fs);
/* The settings that opening it took, NULL for none; of a shim those of what it wraps. */
SQRL_API const struct sqrl_option *sqrl_fs_options(const struct sqrl_fs *fs);
/* Requests, bytes and the like so far, through all shims. Any thread. */
SQRL_API void sqrl_fs_metrics(struct sqrl_fs *fs, struct sqrl_fs_metrics *out);
/* enum sqrl_fs_flag; a shim has those of the file system it wraps, and SQRL_FS_SHIM. */
SQRL_API uint32_t sqrl_fs_flags(const struct sqrl_fs *fs);
SQRL_API void *sqrl_fs_state(struct sqrl_fs *fs);

SQRL_CHECK int sqrl_fs_stat(struct sqrl_fs *fs, const char *path, struct sqrl_stat *out,
                            struct sqrl_error *err);
SQRL_CHECK int sqrl_fs_list(struct sqrl_fs *fs, const char *path, bool recursive,
                            sqrl_list_fn visit, void *arg,
                            const struct sqrl_cancel *cancel, struct sqrl_error *err);
SQRL_CHECK int sqrl_fs_remove(struct sqrl_fs *fs, const char *path,
                              struct sqrl_error *err);
SQRL_CHECK int sqrl_fs_make_directory(struct sqrl_fs *fs, const char *path,
                                      struct sqrl_error *err);

/* Removes an empty directory; one that is not empty is SQRL_E_STATE and stays. Where
 * directories are only the names of what lies in them there is nothing to do. */
SQRL_CHECK int sqrl_fs_remove_directory(struct sqrl_fs *fs, const char *path,
                                        struct sqrl_error *err);

/* A file open for reading: keeps its file system alive. Errors name its path. */
SQRL_CHECK int sqrl_file_open(struct sqrl_fs *fs, const char *path,
                              struct sqrl_file **out, struct sqrl_error *err);
/* The same where something is known of the file: size (0: not known) and etag, from a
 * listing or an index. File systems may believe it and spare the request that looks it
 * up.
 */
SQRL_CHECK int sqrl_file_open_known(struct sqrl_fs *fs, const char *path,
                                    const struct sqrl_stat *known, struct sqrl_file **out,
                                    struct sqrl_error *err);
SQRL_API struct sqrl_file *sqrl_file_ref(struct sqrl_file *file);
SQRL_API void sqrl_file_unref(struct sqrl_file *file);
SQRL_API uint64_t sqrl_file_size(const struct sqrl_file *file);
SQRL_API const char *sqrl_file_path(const struct sqrl_file *file);
/* Those of its file system. */
SQRL_API uint32_t sqrl_file_flags(const struct sqrl_file *file);
SQRL_API const struct sqrl_stat *sqrl_file_stat(const struct sqrl_file *file);
/* Batched ranged read, see struct sqrl_range. */
SQRL_CHECK int sqrl_file_read(struct sqrl_file *file, struct sqrl_range *ranges,
                              size_t count, const struct sqrl_cancel *cancel,
                              struct sqrl_error *err);
/* Exactly `size` bytes at `offset`; fewer there are is SQRL_E_TRUNCATED. */
SQRL_CHECK int sqrl_file_read_exact(struct sqrl_file *file, uint64_t offset, void *data,
                                    size_t size, const struct sqrl_cancel *cancel,
                                    struct sqrl_error *err);

/* A file being made. Exactly one of commit and abort ends and frees it, also on failure.
 */
SQRL_CHECK int sqrl_file_create(struct sqrl_fs *fs, const char *path, bool replace,
                                struct sqrl_file_writer **out, struct sqrl_error *err);
SQRL_CHECK int sqrl_file_write(struct sqrl_file_writer *writer, const void *data,
                               size_t size, struct sqrl_error *err);
SQRL_CHECK int sqrl_file_commit(struct sqrl_file_writer *writer, struct sqrl_error *err);
SQRL_API void sqrl_file_abort(struct sqrl_file_writer *writer);

/* Removes temporaries that dead local writers left in a directory; counts them.
 * Temporaries of living processes of this machine stay; those of other machines (on a
 * shared disk) and of earlier boots go when nothing was written to them for a day. In
 * object stores: uploads that were begun more than a day ago and never ended. */
SQRL_CHECK int sqrl_fs_sweep(struct sqrl_fs *fs, const char *directory, uint64_t *removed,
                             struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
