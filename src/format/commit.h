/* commit.h - which shards of a directory are the data set.
 *
 * Each pack run writes, last, one immutable file `_sqrl/<id>.idx` that names its shards
 * with sizes, counts, schema and chunks. A data set is the union of its commits in the
 * order of their ids; a commit may supersede earlier ones, so that replacing a data set
 * is one atomic step. `_sqrl/list` names the commits for places that can't be listed; it
 * is derived. docs/formats/native-shard.md is the specification.
 */
#ifndef SQRL_FORMAT_COMMIT_H
#define SQRL_FORMAT_COMMIT_H

#include "format/group.h"
#include "sqrl/format.h"

#define SQRL_COMMIT_DIRECTORY "_sqrl"
#define SQRL_COMMIT_SUFFIX ".idx"
#define SQRL_COMMIT_LIST "list"
#define SQRL_COMMIT_ID_BYTES 40    /* "0018a1b2c3d4e5f6-0123456789abcdef" and NUL */
#define SQRL_SHARD_PREFIX_BYTES 28 /* a random prefix and NUL */
/* What writers aim at, fine enough for windows of 64 MiB; 64 MiB is the most. */
#define SQRL_CHUNK_BYTES (UINT64_C(4) << 20)

/* --- names --- */
/* A prefix for one pack run's shards that no other run has: 26 characters [0-9a-z], time
 * first. */
SQRL_CHECK int sqrl_shard_prefix(char out[SQRL_SHARD_PREFIX_BYTES],
                                 struct sqrl_error *err);
/* "<prefix>-<number, 6 digits or more>.sqrl", allocated: free with free(). */
char *sqrl_shard_name(const char *prefix, uint64_t number, struct sqrl_error *err);

/* --- reading --- */
struct sqrl_commit_shard {
    char *name; /* relative to the directory */
    uint64_t file_bytes, samples, blocks, raw_bytes;
    uint64_t footer_checksum;
};

/* A run of consecutive blocks of one shard: at most SQRL_CHUNK_BYTES of payload, or one
 * block. */
struct sqrl_commit_chunk {
    uint32_t shard; /* within the commit */
    uint32_t first_block;
    uint32_t blocks;
    uint32_t samples;
};

struct sqrl_commit {
    char id[SQRL_COMMIT_ID_BYTES];
    uint64_t hash; /* xxh3 of the file but for its last 8 bytes, which hold it */
    uint64_t samples, raw_bytes, file_bytes;
    struct sqrl_commit_shard *shards; /* in their order; of a family the base */
    uint64_t shard_count;
    struct sqrl_commit_chunk *chunks;
    uint64_t chunk_count;
    bool has_schema;
    struct sqrl_schema schema; /* of all its shards */
    char (*supersedes)[SQRL_COMMIT_ID_BYTES];
    uint64_t supersedes_count;
    struct sqrl_commit_group *groups;
    uint64_t group_count;
};

/* Shards that hold a group of fields. Those of a base are the commit's own: `set` is
 * empty then. */
struct sqrl_commit_group {
    struct sqrl_group group;
    char **of;              /* names of the bases' shards */
    uint64_t of_count;      /* without a base: set.shard_count */
    struct sqrl_commit set; /* the shards, chunks and schema: those joined to of[i] */
};

/* The commits that count (superseded ones are gone), in the order of their ids. */
struct sqrl_commits {
    struct sqrl_commit *items;
    size_t count;
    uint64_t fingerprint; /* xxh3 over the hashes, 8 bytes little-endian each, in order */
};

/* Reads the commits of a directory; none is no error (count 0). Where the file system
 * can't be listed, `_sqrl/list` names them. Damage is SQRL_E_CORRUPT that names the file
 * and `squirrel index`. Reset also on failure. */
SQRL_CHECK int sqrl_commits_read(struct sqrl_context *context, struct sqrl_fs *fs,
                                 const char *directory, struct sqrl_commits *out,
                                 struct sqrl_error *err);
/* One commit alone: `id` as sqrl_commit_path found it. Reset also on failure. */
SQRL_CHECK int sqrl_commits_read_one(struct sqrl_context *context, struct sqrl_fs *fs,
                                     const char *directory, const char *id,
                                     struct sqrl_commits *out, struct sqrl_error *err);
/* Is this the path or URL of a commit file, "DIRECTORY/_sqrl/ID.idx"? Then the length of
 * DIRECTORY, and its id; else 0. */
size_t sqrl_commit_path(const char *path, char id[SQRL_COMMIT_ID_BYTES]);
void sqrl_commits_reset(struct sqrl_commits *commits);
/* One commit file's bytes. `id` is from its name. Reset (sqrl_commit_reset) also on
 * failure. */
SQRL_CHECK int sqrl_commit_parse(const char *id, const uint8_t *bytes, size_t size,
                                 struct sqrl_commit *out, struct sqrl_error *err);
void sqrl_commit_reset(struct sqrl_commit *commit);

/* --- writing --- */
struct sqrl_commit_total {
    uint64_t shards, blocks, samples, raw_bytes, file_bytes;
};

/* Commits the shards `names` (relative to `directory`, whole and synced, in this order)
 * in one new commit file: their footers are read again, so that a commit never names a
 * broken shard. Shards that hold groups of fields go to their base, which must be among
 * them; of two that hold the same group of one base the first counts. `replace_all`: the
 * new commit supersedes all others; once it is there, the others' files and their shards
 * are removed (what can't be removed is logged, and is no failure). `total` may be NULL.
 * On failure nothing is committed. */
SQRL_CHECK int sqrl_commit_write(struct sqrl_context *context, struct sqrl_fs *fs,
                                 const char *directory, const char *const *names,
                                 size_t count, bool replace_all,
                                 struct sqrl_commit_total *total, struct sqrl_error *err);

/* What a commit of these shards would come to: reads their footers. */
SQRL_CHECK int sqrl_commit_measure(struct sqrl_context *context, struct sqrl_fs *fs,
                                   const char *directory, const char *const *names,
                                   size_t count, struct sqrl_commit_total *total,
                                   struct sqrl_error *err);

/* Commits the shards `names`, which hold a group of fields, as parts of the data set's
 * shards of[i], which other commits hold. SQRL_E_EXISTS when one of them has such a group
 * already, also when two do this at once: at most one of them succeeds. */
SQRL_CHECK int sqrl_commit_add_group(struct sqrl_context *context, struct sqrl_fs *fs,
                                     const char *directory, const char *const *names,
                                     const char *const *of, size_t count,
                                     struct sqrl_commit_total *total,
                                     struct sqrl_error *err);

/* Rewrites `_sqrl/list` from the directory's commit files. sqrl_commit_write does it too.
 */
SQRL_CHECK int sqrl_commit_list_write(struct sqrl_context *context, struct sqrl_fs *fs,
                                      const char *directory, struct sqrl_error *err);

#endif
