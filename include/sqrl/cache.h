/* sqrl/cache.h - files of slow places, kept on a disk that many processes share.
 *
 * sqrl_fs_cache wraps a file system. What is read through it is kept in a directory, in
 * pieces, and read from there again: also by other processes and machines that have the
 * directory, and also when the network is down. The setting `cache` of sqrl_open does the
 * same for a source.
 *
 * What holds: a piece belongs to one URL, ETag (or time of change) and length; an object
 * that changes is never mixed with old pieces. Every byte that comes from the cache was
 * checked against its checksum by that very read: a damaged piece is dropped and fetched
 * again. The limit holds over all processes that name the same one. A cache that can't be
 * written (disk full) is a warning; reading goes on.
 */
#ifndef SQRL_CACHE_H
#define SQRL_CACHE_H

#include "fs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What may stand behind the directory, as in "/scratch/cache?limit=200GiB&fresh=60":
 * limit, unit, fresh. */
SQRL_API const struct sqrl_option *sqrl_cache_options(void);

/* Wraps `inner` (takes a reference). `cache` is "DIRECTORY" or
 * "DIRECTORY?NAME=VALUE&..."; the directory is made where it is missing, and one that
 * can't be written is an error. `base` is what stands before a path of `inner` in its URL
 * ("s3://", "" for plain paths); `place` (may be NULL) tells apart places with the same
 * URLs, as an endpoint. */
SQRL_CHECK int sqrl_fs_cache(struct sqrl_fs *inner, const char *cache, const char *base,
                             const char *place, struct sqrl_fs **out,
                             struct sqrl_error *err);

/* One version of one object in a cache. */
struct sqrl_cache_object {
    const char *url;       /* without a query, which may hold secrets */
    const char *version;   /* its ETag, or "modified NANOSECONDS" */
    uint64_t object_bytes; /* its length */
    uint64_t cached_bytes; /* of these in the cache */
    uint64_t disk_bytes;   /* on the disk, with what the cache adds */
    uint64_t pieces;       /* files */
    int64_t fetched_ns;    /* the oldest piece; since 1970 */
    int64_t used_ns;       /* last read of any, to a minute */
    int64_t checked_ns;    /* last found current at its place; 0: not known */
};
typedef int (*sqrl_cache_fn)(void *arg, const struct sqrl_cache_object *object);

/* Calls `visit` for everything that the cache in `directory` ("?..." is ignored) holds,
 * in no order. A non-zero return of `visit` stops and is returned. */
SQRL_CHECK int sqrl_cache_list(const char *directory, sqrl_cache_fn visit, void *arg,
                               struct sqrl_error *err);

struct sqrl_cache_report {
    uint64_t files, bytes;                 /* looked at; bytes on the disk */
    uint64_t removed_files, removed_bytes; /* of these */
};

/* Reads every file of the cache and removes those that are damaged, and temporaries of
 * dead processes. `progress` (may be NULL) is called after each file; non-zero stops. */
SQRL_CHECK int
sqrl_cache_verify(const char *directory,
                  int (*progress)(void *arg, const struct sqrl_cache_report *so_far),
                  void *arg, struct sqrl_cache_report *out, struct sqrl_error *err);

/* Removes what was not used for `unused_ns` (UINT64_MAX: any), then the least recently
 * used until at most `keep_bytes` are left, and temporaries of dead processes. Readers of
 * what is removed go on: they fetch it again. */
SQRL_CHECK int sqrl_cache_prune(const char *directory, uint64_t keep_bytes,
                                uint64_t unused_ns, struct sqrl_cache_report *out,
                                struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
