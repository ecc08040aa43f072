/* native.h - the native shard, version 1: "sqrl". docs/formats/native-shard.md is the
 * specification; this header is what other floors need of it. */
#ifndef SQRL_FORMAT_NATIVE_H
#define SQRL_FORMAT_NATIVE_H

#include "format/group.h"
#include "sqrl/format.h"

#define SQRL_NATIVE_VERSION 1u
#define SQRL_NATIVE_SUFFIX ".sqrl"

/* Read of a shard's end in the hope that it holds the footer; with a block it stays below
 * 1.1 MB. */
#define SQRL_NATIVE_TAIL_BYTES (48u * 1024u)

/* A block's raw bytes never exceed this: a sample is at most 2 GiB, and a block holds at
 * most one that is larger than the block size. */
#define SQRL_NATIVE_MAX_RAW ((UINT64_C(1) << 31) + (UINT64_C(1) << 30))

/* Reads "sqrl", INDEXED and WRITES. Write options: codec (zstd, lz4, none), level. A
 * writer given a sample or block above the limits fails with SQRL_E_LIMIT. When the
 * samples make more fields than a schema holds, the shard is written without one
 * (info->schema is NULL). */
extern const struct sqrl_format_ops sqrl_format_native;

/* What a commit keeps of a shard, from the tail of its file. */
struct sqrl_native_summary {
    uint64_t file_bytes, samples, raw_bytes, blocks;
    uint64_t footer_checksum; /* xxh3 of the footer: identifies the shard's content */
    bool has_schema;
    struct sqrl_schema schema;
    struct sqrl_group group;       /* family "": whole samples */
    struct sqrl_block_info *block; /* [blocks] */
};

/* Reads and checks a shard's tail: one read, rarely two. Reset the summary also on
 * failure. */
SQRL_CHECK int sqrl_native_summary_read(struct sqrl_context *context, struct sqrl_fs *fs,
                                        const char *path, struct sqrl_native_summary *out,
                                        struct sqrl_error *err);
void sqrl_native_summary_reset(struct sqrl_native_summary *summary);

#endif
