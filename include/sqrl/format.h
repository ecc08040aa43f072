/* sqrl/format.h - how the bytes of one file become samples, and back: an ops table.
 *
 * A format is a pure parser: it gets an open file and options, knows no URLs and starts
 * no threads. Reading: an INDEXED format knows its blocks before it reads them and loads
 * any of them on any thread; a sequential one gives them one after another. Writing is
 * split in encode (pure, many threads) and append (in order, one thread).
 *
 * How to add one: CONTRIBUTING.md, "A format".
 */
#ifndef SQRL_FORMAT_H
#define SQRL_FORMAT_H

#include "block.h"
#include "fs.h"
#include "schema.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SQRL_FORMAT_API 1
#define SQRL_BLOCK_BYTES (1u << 20) /* the size blocks aim at */

enum sqrl_format_flag {
    /* Has load(): any block on any thread. A file whose info.blocks is SQRL_UNKNOWN is
     * read by next() all the same. */
    SQRL_FORMAT_INDEXED = 1,
    SQRL_FORMAT_WRITES = 2,
    /* open() knows what to do with args->sidecar. */
    SQRL_FORMAT_SIDECAR = 4,
    /* open() reads the end of the file, not its beginning. */
    SQRL_FORMAT_TAIL = 8
};

/* What sniffing sees: the first bytes of a file (up to 4 KiB), and, when they begin a
 * compressed stream, the first bytes within. */
struct sqrl_probe {
    const char *path;
    const uint8_t *head;
    size_t head_size;
    const uint8_t *inner; /* NULL when the file is not compressed */
    size_t inner_size;
};

struct sqrl_sidecar;
struct sqrl_group;
struct sqrl_reader_args {
    struct sqrl_context *context;
    struct sqrl_fs *fs;                   /* to open companions (the labels of images) */
    struct sqrl_file *file;               /* valid until close(); take no reference */
    uint64_t shard;                       /* to be put into blocks */
    const struct sqrl_settings *settings; /* checked; borrowed for open() only */
    const struct sqrl_limits *limits;     /* borrowed for open() only; may be NULL */
    const struct sqrl_sidecar *sidecar;   /* what `squirrel index` knows of the file, or
                                             NULL; valid until close() */
    bool in_order; /* next() gives all blocks, although load() could (for indexing) */
};

struct sqrl_shard_info {
    uint64_t samples;                 /* SQRL_UNKNOWN when only reading tells */
    uint64_t blocks;                  /* SQRL_UNKNOWN for sequential formats */
    uint64_t raw_bytes;               /* payload, decompressed; or SQRL_UNKNOWN */
    const struct sqrl_schema *schema; /* NULL when not known; lives until close() */
};

/* One block of an indexed format, known without reading it. */
struct sqrl_block_info {
    uint64_t first;   /* sample number within the shard; SQRL_UNKNOWN with `samples` */
    uint32_t samples; /* SQRL_NO_NODE (all ones) when only reading tells (plain lines) */
    uint64_t offset, stored_bytes; /* where it lies in the file */
    uint64_t raw_bytes;            /* decompressed */
};

struct sqrl_writer_args {
    struct sqrl_context *context;
    struct sqrl_file_writer
        *file; /* the writer only writes; the caller commits or aborts */
    const struct sqrl_settings *settings; /* checked; borrowed for create() only */
    const struct sqrl_group *group; /* NULL, or native shards: of which fields; lives
                                       until dispose() */
};

/* Samples on their way to a file: MessagePack, one after another. */
struct sqrl_raw_block {
    const uint8_t *bytes;
    size_t size;
    const uint32_t *begin; /* [count]: where each sample begins in bytes */
    uint32_t count;
};

/* What encode made of it; freed by sqrl_coded_block_reset. */
struct sqrl_coded_block {
    struct sqrl_buffer *stored; /* bytes for the file */
    uint64_t raw_bytes;
    uint32_t count;
    uint32_t flags;            /* private to the format */
    uint64_t checksum;         /* xxh3 of the stored bytes */
    struct sqrl_schema schema; /* of these samples */
    struct sqrl_bytes extra;   /* private to the format (sample offsets, keys ...) */
};
SQRL_API void sqrl_coded_block_reset(struct sqrl_coded_block *block);

/* One scalar field of all samples of a shard, from an index beside its data. */
struct sqrl_values {
    enum sqrl_dtype dtype; /* BOOL, INT64, UINT64, FLOAT64; OTHER: texts */
    uint64_t count;
    const uint8_t *valid;    /* one bit a sample, the lowest first; NULL: all have one */
    const void *data;        /* [count]; the bytes of all texts */
    const uint64_t *offsets; /* texts: [count + 1] into data */
    struct sqrl_buffer *memory; /* of all this; sqrl_buffer_unref it */
};

struct sqrl_key_match {
    uint64_t which;  /* of the hashes that were asked for */
    uint64_t number; /* of a sample within the shard */
};

struct sqrl_format_ops {
    size_t size;
    uint32_t api;
    const char *name; /* "sqrl", "messagepack", "jsonl", "idx" */
    const char *doc;
    const char *suffixes; /* ".sqrl", ".jsonl|.jsonl.gz|.jsonl.zst" */
    uint32_t flags;
    const struct sqrl_option *options;       /* of reading */
    const struct sqrl_option *write_options; /* of writing, NULL when it can't */

    /* 0: not this format, 100: certain (magic number). Suffixes count for little. A file
     * of no bytes (head_size 0) is refused unless a format claims it with 50 or more. */
    int (*sniff)(const struct sqrl_probe *probe);

    size_t reader_size; /* state, allocated zeroed by the library */
    int (*open)(void *reader, const struct sqrl_reader_args *args,
                struct sqrl_shard_info *info, struct sqrl_error *err);
    /* INDEXED: any thread, in parallel. load() that fails on damage may set *out all the
     * same: the samples before the fault, to be delivered first. The library fills in
     * block->shard, number and first (from block_info or by counting). */
    void (*block_info)(const void *reader, uint64_t block, struct sqrl_block_info *out);
    int (*load)(void *reader, uint64_t block, const struct sqrl_cancel *cancel,
                struct sqrl_block **out, struct sqrl_error *err);
    /* Sequential: one thread at a time; *out is NULL at the end. May fail with *out set,
     * as load() does; the library does not call it again after a failure. */
    int (*next)(void *reader, const struct sqrl_cancel *cancel, struct sqrl_block **out,
                struct sqrl_error *err);
    void (*close)(void *reader); /* also after a failed open() */

    size_t writer_size; /* state, allocated zeroed by the library */
    int (*create)(void *writer, const struct sqrl_writer_args *args,
                  struct sqrl_error *err);
    int (*encode)(const void *writer, const struct sqrl_raw_block *raw,
                  struct sqrl_coded_block *out, struct sqrl_error *err);
    int (*append)(void *writer, const struct sqrl_coded_block *block,
                  struct sqrl_error *err);
    /* Writes what stands behind the data and fills `info` (schema lives until dispose).
     */
    int (*finish)(void *writer, struct sqrl_shard_info *info, struct sqrl_error *err);
    void (*dispose)(void *writer); /* frees the state; also after a failed create() */

    /* Checks what load() does not read: indexes beside the data. NULL: there is none. */
    int (*check)(void *reader, const struct sqrl_cancel *cancel, struct sqrl_error *err);

    /* Sequential formats whose files can be cut before they are parsed (lines): next()
     * only cuts, and gives blocks with `bytes` but without samples; parse() makes them,
     * on any thread, while next() goes on. One compressed file keeps several threads busy
     * then. NULL: next() does both. */
    int (*parse)(const void *reader, struct sqrl_block *block, struct sqrl_error *err);

    /* INDEXED: load() of many blocks, by rising numbers, in one batched read that merges
     * neighbours. On failure out[0, *loaded) are set, the error is block
     * blocks[*loaded]'s. NULL: load() is called for each. */
    int (*load_many)(void *reader, const uint64_t *blocks, size_t count,
                     const struct sqrl_cancel *cancel, struct sqrl_block **out,
                     size_t *loaded, struct sqrl_error *err);

    /* Shards that were written with keys: appends a struct sqrl_key_match for each sample
     * whose key has one of the hashes (rising; the same one may come again), see
     * sqrl_key_hash: by rising `which`, those of one by rising number. *field: the key's
     * dotted name. *field is NULL for a shard without keys. NULL: there are never any. */
    int (*find)(void *reader, const uint64_t *hashes, size_t count,
                const struct sqrl_cancel *cancel, struct sqrl_bytes *matches,
                const char **field, struct sqrl_error *err);
    /* A column of scalars; out->memory is NULL for a shard without that one. */
    int (*column)(void *reader, const char *field, const struct sqrl_cancel *cancel,
                  struct sqrl_values *out, struct sqrl_error *err);
};

/* The hash of a key: xxh3 of a text's or binary's content, of an integer's 8 bytes.
 * False for a node that can't be one. */
SQRL_API bool sqrl_key_hash(const struct sqrl_node *nodes, uint32_t node,
                            const uint8_t *bytes, uint64_t *out);

/* By name or position among the built-in ones; NULL when there is none. */
SQRL_API const struct sqrl_format_ops *sqrl_format_by_name(const char *name);
SQRL_API const struct sqrl_format_ops *sqrl_format_at(size_t i);

#ifdef __cplusplus
}
#endif
#endif
