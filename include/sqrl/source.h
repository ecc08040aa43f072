/* sqrl/source.h - open anything: drivers, and what they open.
 *
 * sqrl_open takes a file or a directory of any known format; a driver (io + format +
 * options) turns it into a source: an ordered list of shards, counts where they are
 * known, and readers. A source is immutable and free for all threads; it survives a fork.
 */
#ifndef SQRL_SOURCE_H
#define SQRL_SOURCE_H

#include "format.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SQRL_DRIVER_API 1

struct sqrl_source;

/* One file of samples. Strings live as long as the source. */
struct sqrl_shard {
    const char *path; /* full URL or path, for messages */
    uint64_t file_bytes;
    uint64_t samples;   /* SQRL_UNKNOWN when only reading tells */
    uint64_t blocks;    /* SQRL_UNKNOWN when sequential or not yet opened */
    uint64_t raw_bytes; /* or SQRL_UNKNOWN */
    const struct sqrl_format_ops *format;
    uint64_t checksum; /* of the content, as its index knows, and of a choice; 0: none */
};

/* What a driver's open() fills: it adds shards in their order. `path` is within the
 * driver's fs; of `known` (may be NULL) file_bytes (0: asked from the fs), samples,
 * blocks and raw_bytes are taken (SQRL_UNKNOWN where a driver can't tell). */
struct sqrl_shard_list;
SQRL_CHECK int sqrl_shard_list_add(struct sqrl_shard_list *list, const char *path,
                                   const struct sqrl_format_ops *format,
                                   const struct sqrl_shard *known,
                                   struct sqrl_error *err);
/* Where a driver knows them without opening shards: the union of the schemas (copied),
 * and a number that changes with the data (else it is made from names and sizes). */
SQRL_CHECK int sqrl_shard_list_set_schema(struct sqrl_shard_list *list,
                                          const struct sqrl_schema *schema,
                                          struct sqrl_error *err);
/* Consecutive blocks of one shard and their samples. */
struct sqrl_shard_chunk {
    uint32_t shard, first_block, blocks, samples;
};
/* Where a driver knows which blocks hold how many samples: chunks of all shards, in their
 * order, each block in one of them (copied). */
SQRL_CHECK int sqrl_shard_list_set_chunks(struct sqrl_shard_list *list,
                                          const struct sqrl_shard_chunk *chunks,
                                          uint64_t count, struct sqrl_error *err);
SQRL_API void sqrl_shard_list_set_fingerprint(struct sqrl_shard_list *list,
                                              uint64_t fingerprint);

struct sqrl_driver_args {
    struct sqrl_context *context;
    struct sqrl_fs *fs;
    const char *url;
    const char *path; /* within fs */
    struct sqrl_stat stat;
    const struct sqrl_settings *settings;
};

/* A driver over files. `open` may be NULL: then a directory's files whose names or first
 * bytes fit `format` are the shards, in byte order of their names. */
struct sqrl_driver_ops {
    size_t size;
    uint32_t api;
    const char *name; /* "sqrl", "messagepack", "jsonl", "idx" */
    const char *doc;
    const struct sqrl_format_ops *format;
    const struct sqrl_option *options; /* beside those of the format */
    int (*open)(const struct sqrl_driver_args *args, struct sqrl_shard_list *out,
                struct sqrl_error *err);
};

/* Adds a driver to a context's registry; the table must outlive the context. */
SQRL_CHECK int sqrl_driver_register(struct sqrl_context *context,
                                    const struct sqrl_driver_ops *ops,
                                    struct sqrl_error *err);
SQRL_API const struct sqrl_driver_ops *sqrl_driver_by_name(struct sqrl_context *context,
                                                           const char *name);
SQRL_API const struct sqrl_driver_ops *sqrl_driver_at(struct sqrl_context *context,
                                                      size_t i);

/* Opens `url`. Settings are those of the driver, its format and the url's file system;
 * each gets its own. The setting "driver" names the driver; otherwise it is found from
 * the content (first bytes before names). A directory that mixes formats, an empty one, a
 * missing path and an unknown format are errors that say what was found and what to do.
 */
SQRL_CHECK int sqrl_open(struct sqrl_context *context, const char *url,
                         const struct sqrl_settings *settings, struct sqrl_source **out,
                         struct sqrl_error *err);
/* The same within a file system of the caller's: `path` is a path of `fs`, `url` what the
 * source and messages call it. Settings are those of the driver and its format. */
SQRL_CHECK int sqrl_open_in(struct sqrl_context *context, struct sqrl_fs *fs,
                            const char *url, const char *path,
                            const struct sqrl_settings *settings,
                            struct sqrl_source **out, struct sqrl_error *err);
/* The settings that sqrl_open takes beside those of driver, format and file system;
 * NULL-ended. */
SQRL_API const struct sqrl_option *sqrl_open_options(void);
SQRL_API struct sqrl_source *sqrl_source_ref(struct sqrl_source *source);
SQRL_API void sqrl_source_unref(struct sqrl_source *source);

SQRL_API struct sqrl_context *sqrl_source_context(const struct sqrl_source *source);
SQRL_API const char *sqrl_source_url(const struct sqrl_source *source);
/* Its shards are files of this machine: a read of one is no request. */
SQRL_API bool sqrl_source_local(const struct sqrl_source *source);
/* What opening it listed far away, where the setting "listed" was given (maybe empty): as
 * that setting it spares another process on the same URL the listings, each once. Text of
 * at most 2 MiB; the source's. NULL: nothing was listed, or too much. */
SQRL_API const char *sqrl_source_listed(const struct sqrl_source *source);
/* What its file system did so far: requests, bytes and the like, see sqrl_fs_metrics. */
SQRL_API void sqrl_source_metrics(struct sqrl_source *source,
                                  struct sqrl_fs_metrics *out);
/* Reads all bytes of a shard's file and lets them go: a cache (sqrl/cache.h) has them
 * then. `step` (may be NULL) is told how many came, again and again; what it returns
 * other than 0 ends it and is returned. Any thread. */
SQRL_CHECK int sqrl_source_fetch(struct sqrl_source *source, uint64_t shard,
                                 int (*step)(void *arg, uint64_t bytes), void *arg,
                                 const struct sqrl_cancel *cancel,
                                 struct sqrl_error *err);
SQRL_API const char *sqrl_source_driver(const struct sqrl_source *source);
SQRL_API uint64_t sqrl_source_shards(const struct sqrl_source *source);
/* NULL behind the last. */
SQRL_API const struct sqrl_shard *sqrl_source_shard(const struct sqrl_source *source,
                                                    uint64_t shard);
/* All samples, or SQRL_UNKNOWN. The first call may read footers of shards whose counts no
 * commit tells. */
SQRL_API uint64_t sqrl_source_samples(const struct sqrl_source *source);
/* The union of the shards' schemas, or NULL when it is not known without reading. Opens
 * shards that were not opened yet (their footers only). */
SQRL_CHECK int sqrl_source_schema(struct sqrl_source *source,
                                  const struct sqrl_schema **out, struct sqrl_error *err);

/* The chunks that the driver knows without opening shards; NULL: it does not. */
SQRL_API const struct sqrl_shard_chunk *
sqrl_source_chunks(const struct sqrl_source *source, uint64_t *count);

/* A number that changes when the data set does: for resume states. */
SQRL_API uint64_t sqrl_source_fingerprint(const struct sqrl_source *source);

/* --- random access ---
 * Samples have positions: 0 to sqrl_source_samples - 1, in the order of the shards. */

/* Where a sample lies, and back. Opens shards whose samples no commit counts. An index
 * behind the last sample is SQRL_E_INVALID; SQRL_E_UNSUPPORTED where a shard's samples
 * are not counted (`squirrel index` counts them). */
SQRL_CHECK int sqrl_source_locate(struct sqrl_source *source, uint64_t index,
                                  uint64_t *shard, uint64_t *row, struct sqrl_error *err);
SQRL_CHECK int sqrl_source_position(struct sqrl_source *source, uint64_t shard,
                                    uint64_t row, uint64_t *index,
                                    struct sqrl_error *err);

/* A source of some of another's samples, by rising positions: counted, in the same order,
 * with all that a source can do; 4 bytes a sample and no copy of data. Its readers number
 * samples and blocks anew; sqrl_source_locate, sqrl_source_position and sqrl_source_row
 * speak of numbers within the whole shard. Of a subset, too: positions are then the
 * subset's. SQRL_E_UNSUPPORTED where samples are not counted. */
SQRL_CHECK int sqrl_source_subset(struct sqrl_source *source, const uint64_t *positions,
                                  uint64_t count, struct sqrl_source **out,
                                  struct sqrl_error *err);
/* The number within the whole shard of what a reader calls sample `row`: itself, unless
 * the source is a subset. */
SQRL_API uint64_t sqrl_source_row(const struct sqrl_source *source, uint64_t shard,
                                  uint64_t row);

/* --- groups of fields ---
 * A data set may keep its fields in several aligned shards (docs/formats/native-shard.md,
 * section 6). Group 0 is the base, which gives shards, blocks and numbers; samples are
 * joined from all groups. A plan that selects fields reads only the groups it needs. */
struct sqrl_source_group {
    const char *name; /* "": a base that was written without groups */
    const char *const *fields;
    uint32_t field_count; /* 0 with name "": all fields that are in no other group */
    bool base, added;     /* added: written later than the base */
    uint64_t shards;      /* that have it; the others' samples lack its fields */
    uint64_t samples, raw_bytes, file_bytes;
};
/* How many; 0: samples are kept whole. A group of one name but different fields in other
 * shards counts as another. */
SQRL_API uint32_t sqrl_source_groups(const struct sqrl_source *source);
/* Strings live as long as the source. */
SQRL_API void sqrl_source_group(const struct sqrl_source *source, uint32_t group,
                                struct sqrl_source_group *out);
/* The file that holds a group of a shard; NULL when the shard lacks it. */
SQRL_API const struct sqrl_shard *
sqrl_source_group_shard(const struct sqrl_source *source, uint32_t group, uint64_t shard);

/* Copies of samples, in blocks of their own (whose shard, number and first say nothing).
 * Plain memory: it survives the source, and any thread may release it. */
struct sqrl_samples {
    size_t count;
    const struct sqrl_sample *samples; /* [count], in the order they were asked for */
};
/* The samples at these positions, in any order, also several times the same one. All of
 * them or an error: that of the first position, by number, that can't be read. Each block
 * is read at most once (local files: once a thread), neighbours in one request: cold, a
 * sample takes a request for its shard's index and one for its block; the index of shards
 * used lately and blocks (within a quarter of the memory budget) are kept. Memory: the
 * samples and at most 32 MiB of blocks. Uses threads of the context's pools: for more
 * than 128 of local files, for those of several shards elsewhere. Any thread; `cancel`
 * may be NULL. */
SQRL_CHECK int sqrl_source_get_many(struct sqrl_source *source, const uint64_t *indices,
                                    size_t count, const struct sqrl_cancel *cancel,
                                    struct sqrl_samples **out, struct sqrl_error *err);
/* NULL is allowed. */
SQRL_API void sqrl_samples_release(struct sqrl_samples *samples);

/* A key: a text or bytes, or (bytes NULL) an integer; one above INT64_MAX as it wraps. */
struct sqrl_key {
    const void *bytes;
    size_t size;
    int64_t number;
};
/* The position of the first sample with this key, of shards that were packed with the
 * option "key". Cold, a shard takes one request more than by position. SQRL_E_NOT_FOUND;
 * SQRL_E_UNSUPPORTED where a shard has no keys. Any thread. */
SQRL_CHECK int sqrl_source_find(struct sqrl_source *source, const struct sqrl_key *key,
                                uint64_t *index, struct sqrl_error *err);
/* The same for many keys, in any order, also several times the same one: indices[i] is
 * that of keys[i], or SQRL_UNKNOWN. Each shard is asked once for all keys that those
 * before lack, in one batched read; far shards many at a time, for as many keys or 64 at
 * once; a sample that may have a key is read to see. SQRL_E_NOT_FOUND names the first key
 * that no sample has; the others' indices are set all the same. `cancel` may be NULL. */
SQRL_CHECK int sqrl_source_find_many(struct sqrl_source *source,
                                     const struct sqrl_key *keys, size_t count,
                                     const struct sqrl_cancel *cancel, uint64_t *indices,
                                     struct sqrl_error *err);
/* The dotted name of the field that is the key, of the first shard; free() it. *out is
 * NULL when there are no keys. */
SQRL_CHECK int sqrl_source_key_field(struct sqrl_source *source, char **out,
                                     struct sqrl_error *err);

/* The values of an indexed column of one shard (out->memory: sqrl_buffer_unref it), all
 * of its samples in order, also of a subset. SQRL_E_NOT_FOUND when the shard has no such
 * column. */
SQRL_CHECK int sqrl_source_column(struct sqrl_source *source, uint64_t shard,
                                  const char *field, struct sqrl_values *out,
                                  struct sqrl_error *err);

/* A reader of one shard. Errors of all calls name the shard's path and the block. */
struct sqrl_shard_reader;
SQRL_CHECK int sqrl_shard_open(struct sqrl_source *source, uint64_t shard,
                               struct sqrl_shard_reader **out, struct sqrl_error *err);
SQRL_API struct sqrl_shard_reader *
sqrl_shard_reader_ref(struct sqrl_shard_reader *reader);
SQRL_API void sqrl_shard_reader_unref(struct sqrl_shard_reader *reader);
SQRL_API const struct sqrl_shard_info *
sqrl_shard_reader_info(const struct sqrl_shard_reader *reader);
SQRL_API bool sqrl_shard_reader_indexed(const struct sqrl_shard_reader *reader);
SQRL_API void sqrl_shard_reader_block_info(const struct sqrl_shard_reader *reader,
                                           uint64_t block, struct sqrl_block_info *out);
/* INDEXED: any thread, in parallel. A failure on damaged data may come with *out set all
 * the same: the samples before the fault, which the caller delivers before the error (or
 * drops with sqrl_block_unref). */
SQRL_CHECK int sqrl_shard_reader_load(struct sqrl_shard_reader *reader, uint64_t block,
                                      const struct sqrl_cancel *cancel,
                                      struct sqrl_block **out, struct sqrl_error *err);
/* Checks what loading all blocks does not read: the shard's indexes beside its data. */
SQRL_CHECK int sqrl_shard_reader_check(struct sqrl_shard_reader *reader,
                                       const struct sqrl_cancel *cancel,
                                       struct sqrl_error *err);
/* The two halves of next() for formats that have them: cut, one thread at a time, gives a
 * block without its samples (NULL at the end; may fail with *out set, as load does),
 * parse makes them, on any thread. block->first is SQRL_UNKNOWN except for the first
 * block. */
SQRL_API bool sqrl_shard_reader_cuts(const struct sqrl_shard_reader *reader);
SQRL_CHECK int sqrl_shard_reader_cut(struct sqrl_shard_reader *reader,
                                     const struct sqrl_cancel *cancel,
                                     struct sqrl_block **out, struct sqrl_error *err);
SQRL_CHECK int sqrl_shard_reader_parse(struct sqrl_shard_reader *reader,
                                       struct sqrl_block *block, struct sqrl_error *err);
/* Sequential: one thread at a time; *out is NULL at the end. On an indexed shard it gives
 * the blocks in order too. Here the samples before a fault come as a block of their own
 * and the error with the next call; every call after it repeats that error. */
SQRL_CHECK int sqrl_shard_reader_next(struct sqrl_shard_reader *reader,
                                      const struct sqrl_cancel *cancel,
                                      struct sqrl_block **out, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
