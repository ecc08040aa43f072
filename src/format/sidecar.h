/* sidecar.h - counts and places of a file whose format has none: what `squirrel index`
 * writes beside it, so that it is read like a native shard: counted, any block on any
 * thread. docs/formats/sidecar.md is the specification.
 *
 * A sidecar speaks of the payload (the decompressed bytes): where each block of samples
 * lies in it, and from which places of the file it can be decompressed. */
#ifndef SQRL_FORMAT_SIDECAR_H
#define SQRL_FORMAT_SIDECAR_H

#include "format/payload.h"

#define SQRL_SIDECAR_VERSION 1u
#define SQRL_SIDECAR_MAGIC "\x89SQRS\r\n\x1a"
#define SQRL_SIDECAR_FOLDER "_index"
#define SQRL_SIDECAR_SUFFIX ".sqri"

struct sqrl_sidecar_block {
    uint64_t raw_offset, raw_bytes; /* of its samples in the payload */
    uint64_t checksum;              /* xxh3 of these bytes */
    uint64_t first;                 /* number of its first sample */
    uint32_t samples, point;        /* the last point at or before raw_offset */
};

struct sqrl_sidecar {
    struct sqrl_buffer *content;        /* of the file; the windows lie in it */
    const struct sqrl_codec_ops *codec; /* NULL: the file is not compressed */
    char format[24];
    uint64_t file_bytes, samples, raw_bytes;
    bool has_schema;
    struct sqrl_schema schema;
    struct sqrl_sidecar_block *block; /* [blocks] */
    uint64_t blocks;
    struct sqrl_payload_point *point; /* [points] */
    uint64_t points;
};

/* "<folder>/_index/<name>.sqri"; free() it. */
char *sqrl_sidecar_path(const char *path, struct sqrl_error *err);
/* The sidecar of the file `path`; *out is NULL where there is none. */
SQRL_CHECK int sqrl_sidecar_read(struct sqrl_context *context, struct sqrl_fs *fs,
                                 const char *path, struct sqrl_sidecar **out,
                                 struct sqrl_error *err);
/* Of bytes in memory; takes its own reference to them. Checks all that can be checked. */
SQRL_CHECK int sqrl_sidecar_parse(struct sqrl_buffer *content, struct sqrl_sidecar **out,
                                  struct sqrl_error *err);
void sqrl_sidecar_free(struct sqrl_sidecar *sidecar);

/* For formats: what open() tells, block_info(), and the payload of a block, checked. */
void sqrl_sidecar_info(const struct sqrl_sidecar *sidecar, struct sqrl_shard_info *out);
void sqrl_sidecar_block_info(const struct sqrl_sidecar *sidecar, uint64_t block,
                             struct sqrl_block_info *out);
SQRL_CHECK int sqrl_sidecar_load(const struct sqrl_sidecar *sidecar,
                                 struct sqrl_context *context, struct sqrl_file *file,
                                 uint64_t block, const struct sqrl_cancel *cancel,
                                 struct sqrl_buffer **out, struct sqrl_error *err);

/* SQRL_E_CORRUPT unless so many samples were in the block. */
int sqrl_sidecar_count(const struct sqrl_sidecar *sidecar, uint64_t block,
                       uint32_t samples, struct sqrl_error *err);

/* Reads the file twice and writes its sidecar, in place of an older one. A file that
 * knows its blocks already gets none; *samples and *blocks are told all the same. */
SQRL_CHECK int sqrl_sidecar_build(struct sqrl_context *context, struct sqrl_fs *fs,
                                  const char *path, const struct sqrl_format_ops *format,
                                  const struct sqrl_settings *settings, uint64_t *samples,
                                  uint64_t *blocks, struct sqrl_error *err);

#endif
