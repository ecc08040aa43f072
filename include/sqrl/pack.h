/* sqrl/pack.h - write samples into shards, in parallel, and commit them in one step.
 *
 * A packer takes samples in order on one thread, cuts them into blocks, encodes blocks on
 * the context's pool and writes shards in order. Nothing appears at the destination under
 * its final name before it is whole and synced. The shards of a native destination become
 * part of the data set by one commit file at the end.
 */
#ifndef SQRL_PACK_H
#define SQRL_PACK_H

#include "source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqrl_packer;

/* Fields of samples (keys of the map, whole) that are kept in shards of their own. */
struct sqrl_pack_group {
    const char *name; /* 1 to 64 letters, digits, '_' and '-'; "rest" is taken */
    const char *const *fields;
    size_t field_count;
};

/* Zero means the default. Set `size` to sizeof(struct sqrl_pack_options). */
struct sqrl_pack_options {
    size_t size;
    const char *format;         /* default from the destination's suffix, else "sqrl" */
    uint64_t samples_per_shard; /* default: unlimited */
    uint64_t shard_bytes;       /* raw payload; default 256 MiB */
    uint64_t block_bytes;       /* at most, or one sample; default SQRL_BLOCK_BYTES */
    bool overwrite;     /* replace a file; for directories: forget earlier commits */
    bool append;        /* add a commit to a directory that has some */
    bool hold_commit;   /* finish() leaves the shards uncommitted, see
                           sqrl_pack_commit */
    const char *prefix; /* of shard names; default: a random one */
    bool resume; /* of native directories, with a prefix that names this pack alone:
                    whole shards that an earlier run of it left without a commit
                    are its first ones, see sqrl_packer_resumed; and this run, if
                    it gives up, leaves what is whole, too. Not with groups */
    const struct sqrl_settings
        *settings; /* the format's write options (codec, level ...) and the options of
                      the destination's file system */
    /* Native directories: fields go to aligned shards, one a group; those in no group to
     * a group "rest". All samples must be maps. A reader reads the groups it needs. */
    const struct sqrl_pack_group *groups;
    size_t group_count;
};

struct sqrl_pack_report {
    uint64_t samples, shards, blocks;
    uint64_t raw_bytes, file_bytes;
};

/* Destination: a directory (made when missing), or one file when its name has a suffix of
 * a known format ("out.jsonl.gz", "out.sqrl"). A directory that holds data already is
 * SQRL_E_EXISTS unless overwrite or append is set. Packers don't lock each other out:
 * what two of them append is all there, and two that overwrite at the same moment may
 * both stay; for one data set by many packers see hold_commit. */
SQRL_CHECK int sqrl_packer_open(struct sqrl_context *context, const char *destination,
                                const struct sqrl_pack_options *options,
                                struct sqrl_packer **out, struct sqrl_error *err);

/* With `resume`: how many samples are there already. The first one that is appended comes
 * behind them. Shards end where they would have ended in one run. */
SQRL_API uint64_t sqrl_packer_resumed(const struct sqrl_packer *packer);

/* Adds one MessagePack-encoded sample. Blocks while too many blocks wait to be encoded.
 */
SQRL_CHECK int sqrl_packer_append(struct sqrl_packer *packer, const uint8_t *sample,
                                  size_t size, struct sqrl_error *err);
/* For encoders that write in place: append one sample to the returned bytes, then call
 * sqrl_packer_accept, or sqrl_packer_reject to take it back. */
SQRL_API struct sqrl_bytes *sqrl_packer_bytes(struct sqrl_packer *packer);
SQRL_CHECK int sqrl_packer_accept(struct sqrl_packer *packer, struct sqrl_error *err);
SQRL_API void sqrl_packer_reject(struct sqrl_packer *packer);
/* Adds sample `index` of a block. */
SQRL_CHECK int sqrl_packer_append_sample(struct sqrl_packer *packer,
                                         const struct sqrl_block *block, uint32_t index,
                                         struct sqrl_error *err);
/* Ends the current shard: the next sample begins a new one. */
SQRL_CHECK int sqrl_packer_cut(struct sqrl_packer *packer, struct sqrl_error *err);
/* Progress so far (written blocks). Any thread. */
SQRL_API void sqrl_packer_progress(const struct sqrl_packer *packer,
                                   struct sqrl_pack_report *out);
/* Writes what is left, syncs, commits and frees the packer, also on failure (then nothing
 * new is committed and what was not committed is removed). */
SQRL_CHECK int sqrl_packer_finish(struct sqrl_packer *packer,
                                  struct sqrl_pack_report *report,
                                  struct sqrl_error *err);
/* Gives up: removes what was written, and directories that were made for it and are empty
 * again, and frees the packer. NULL is allowed. */
SQRL_API void sqrl_packer_abandon(struct sqrl_packer *packer);

/* --- fields computed later ---
 * Adds fields to the samples of a native directory that are there already: a group of
 * shards beside them, and nothing is written anew. */
struct sqrl_add_options {
    size_t size;
    const char *group;         /* its name, as above */
    const char *const *fields; /* that samples may have; default: those that they have */
    size_t field_count;
    /* NULL: samples come in the data set's order, one for each. Else the dotted name of a
     * field whose value finds the sample (of the data set's key; it is not stored, and
     * samples are kept in memory until finish()). */
    const char *key;
    bool missing; /* some shards have the group: add it to those that lack it (whose
                     samples alone are given then) */
    uint64_t block_bytes;
    const struct sqrl_settings *settings; /* as those of a pack */
};
/* The packer takes samples (maps of the new fields) as any other; finish() commits them
 * in one step when there is one for each sample of the data set, and says which is
 * missing otherwise. Shards that others append meanwhile lack the group. SQRL_E_EXISTS
 * when the data set has the group or a field already; of two that add the same group at
 * once at most one succeeds. States of running streams stay good. */
SQRL_CHECK int sqrl_packer_add_fields(struct sqrl_context *context,
                                      const char *destination,
                                      const struct sqrl_add_options *options,
                                      struct sqrl_packer **out, struct sqrl_error *err);
/* The samples that are asked for, as runs of positions in the data set: run number `i`
 * (false: there is none). */
SQRL_API bool sqrl_packer_run(const struct sqrl_packer *packer, size_t i, uint64_t *first,
                              uint64_t *count);

/* Commits all shards of a native directory whose names begin with one of `prefixes` and
 * that no commit holds yet: the end of a pack by many processes, each with its own prefix
 * and hold_commit. One new commit file. Of `settings` (may be NULL) those of the
 * destination's file system are used. */
SQRL_CHECK int sqrl_pack_commit(struct sqrl_context *context, const char *destination,
                                const struct sqrl_settings *settings,
                                const char *const *prefixes, size_t count, bool overwrite,
                                struct sqrl_pack_report *report, struct sqrl_error *err);

/* What `squirrel index` does where a native directory and its commits disagree: one new
 * commit, in place of all there are, of the shards that they name and that are still
 * there, as they are now. `all`: and behind them of all other shards in the directory
 * (those of runs that were killed too); needed where a commit can't be read. Without any
 * commit, all are taken. Removes no shard. `settings` as above. */
SQRL_CHECK int sqrl_pack_index(struct sqrl_context *context, const char *destination,
                               const struct sqrl_settings *settings, bool all,
                               struct sqrl_pack_report *report, struct sqrl_error *err);

/* All of `squirrel index`: sqrl_pack_index for a directory of native shards, and for
 * files of other formats (squirrel stores, JSON lines, IDX; plain or compressed) a
 * sidecar beside each, `_index/<name>.sqri`: its samples are counted then, and any block
 * is read on any thread. Each file is read twice. A file that changes afterwards is an
 * error when it is read. `settings`: also the driver's and format's. */
SQRL_CHECK int sqrl_index(struct sqrl_context *context, const char *url,
                          const struct sqrl_settings *settings, bool all,
                          struct sqrl_pack_report *report, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
