/* commit_inner.h - what reading and writing of commits share. */
#ifndef SQRL_FORMAT_COMMIT_INNER_H
#define SQRL_FORMAT_COMMIT_INNER_H

#include "base/base.h"
#include "format/commit.h"
#include "format/native.h"
#include "sqrl/codec.h"

/* A commit file: magic, a MessagePack map, xxh3 over all before it. */
#define COMMIT_VERSION 1u
#define COMMIT_MAGIC "\x89SQRI\r\n\x1a"
#define COMMIT_MAGIC_BYTES 8u
#define COMMIT_HASH_BYTES 8u
#define COMMIT_SHARD_BYTES 40u /* five u64 */
#define COMMIT_CHUNK_BYTES 16u /* four u32 */
/* In "requires" of commits that have groups of fields. */
#define COMMIT_NEEDS_GROUPS "groups"
#define COMMIT_MAX_BYTES (UINT64_C(1) << 30)

/* "<directory>/_sqrl/<name>", or "<directory>/<name>" without the folder; free(). */
char *commit_path(const char *directory, const char *folder, const char *name,
                  struct sqrl_error *err);
/* True for 16 hexadecimal digits, '-', 16 hexadecimal digits. */
bool commit_id_valid(const char *id, size_t size);
/* True for a relative path without empty, "." and ".." parts. */
bool commit_name_valid(const char *name, size_t size);

/* Identifiers, sorted. */
struct commit_id {
    char text[SQRL_COMMIT_ID_BYTES]; /* first: it sorts */
    uint64_t bytes;                  /* of its file, where a listing told; else 0 */
};
struct commit_ids {
    struct commit_id *items;
    size_t count, capacity;
};
SQRL_CHECK int commit_ids_add(struct commit_ids *ids, const char *id, size_t size,
                              uint64_t bytes, struct sqrl_error *err);
bool commit_ids_have(const struct commit_ids *ids, const char *id);
void commit_ids_reset(struct commit_ids *ids);
/* The ids of all commit files of a directory, superseded ones too. */
SQRL_CHECK int commit_ids_read(struct sqrl_context *context, struct sqrl_fs *fs,
                               const char *directory, struct commit_ids *out,
                               struct sqrl_error *err);
/* Reads and parses one commit file. Reset (sqrl_commit_reset) also on failure. */
SQRL_CHECK int commit_load(struct sqrl_context *context, struct sqrl_fs *fs,
                           const char *directory, const struct commit_id *id,
                           struct sqrl_commit *out, struct sqrl_error *err);

void commit_groups_reset(struct sqrl_commit *commit);

/* A commit, or a group's shards, in the making. */
struct commit_builder {
    struct sqrl_commit commit;
    uint64_t chunk_capacity;
    struct sqrl_commit_total total;
    struct sqrl_error *err;
};
SQRL_CHECK int commit_builder_init(struct commit_builder *b, size_t room,
                                   struct sqrl_error *err);
/* One more shard, at most `room`. */
SQRL_CHECK int commit_take_summary(struct commit_builder *b, const char *name,
                                   struct sqrl_native_summary *summary);
/* commit_groups.c: reads the footers of all `names` and sorts them into the commit and
 * its groups. */
SQRL_CHECK int commit_add_shards(struct commit_builder *b, struct sqrl_context *context,
                                 struct sqrl_fs *fs, const char *directory,
                                 const char *const *names, size_t count);
/* Writes the file; SQRL_E_EXISTS when there is one of this id. */
SQRL_CHECK int commit_publish(struct commit_builder *b, struct sqrl_fs *fs,
                              const char *directory);
/* Removes a file; logs a failure. */
void commit_remove_file(struct sqrl_context *context, struct sqrl_fs *fs,
                        const char *directory, const char *folder, const char *name);

/* The bytes of a commit file (hash included) from its parts. */
SQRL_CHECK int commit_encode(const struct sqrl_commit *commit, struct sqrl_bytes *out,
                             struct sqrl_error *err);

#endif
