/* native_inner.h - what the parts of the native shard share: the layout of the file and
 * the parsed tail. docs/formats/native-shard.md says what every byte means. */
#ifndef SQRL_FORMAT_NATIVE_INNER_H
#define SQRL_FORMAT_NATIVE_INNER_H

#include "base/base.h"
#include "format/group.h"
#include "format/native.h"
#include "sqrl/codec.h"

/* Skippable frames of zstd and lz4: magic, size of the payload. Ours begin with a tag. */
#define NATIVE_SKIP_MAGIC 0x184D2A53u
#define NATIVE_SKIP_BYTES 8u
#define NATIVE_TAG_BYTES 8u
#define NATIVE_TAG_OFFSETS "sqrloffs"
#define NATIVE_TAG_KEYS "sqrlkeys"
#define NATIVE_TAG_COLUMN "sqrlcolm"
#define NATIVE_TAG_FOOTER "sqrlfoot"
#define NATIVE_KEY_BYTES 16u /* hash, number */
#define NATIVE_MAX_BITS 24u

/* The last bytes of the file. */
#define NATIVE_TRAILER_BYTES 40u
#define NATIVE_MAGIC "\x89SQRL\r\n\x1a"
#define NATIVE_MAX_FOOTER (UINT64_C(1) << 30)

/* A record of the block table. */
#define NATIVE_RECORD_BYTES 40u
enum { NATIVE_STORED = 1 }; /* flag: the frame holds the bytes uncompressed */

struct native_block {
    uint64_t offset, stored, raw;
    uint64_t first; /* number of its first sample */
    uint64_t checksum;
    uint32_t samples, flags;
};

/* A frame behind the data, as the footer lists it. */
struct native_frame {
    char kind[16];
    uint64_t offset, size; /* of the whole skippable frame */
    uint64_t checksum;
    /* of keys and columns */
    char *field, dtype[12];
    uint64_t count;
    uint32_t bits;
    bool valid;
};

struct native_tail {
    uint64_t file_bytes, data_bytes;
    uint64_t samples, raw_bytes, footer_checksum;
    const struct sqrl_codec_ops *codec;
    struct native_block *block;
    uint64_t blocks;
    struct native_frame *frame;
    uint32_t frames;
    bool has_schema;
    struct sqrl_schema schema;
    struct sqrl_group group; /* family "" when it holds whole samples */
};

/* Reads and checks the tail of a shard. Reset it also on failure. */
SQRL_CHECK int native_tail_read(struct sqrl_context *context, struct sqrl_file *file,
                                struct native_tail *out, struct sqrl_error *err);
void native_tail_reset(struct native_tail *tail);

/* Checks what stands in a file's last bytes (trailer and footer), already in memory:
 * `footer` is the whole footer frame without the trailer and begins at `offset` of the
 * file. */
SQRL_CHECK int native_footer_parse(const uint8_t *footer, size_t size, uint64_t offset,
                                   struct native_tail *out, struct sqrl_error *err);

/* The parts of the ops table. */
struct native_reader {
    struct sqrl_context *context;
    struct sqrl_file *file;
    uint64_t shard;
    struct sqrl_limits limits;
    struct native_tail tail;
};
int native_open(void *reader, const struct sqrl_reader_args *args,
                struct sqrl_shard_info *info, struct sqrl_error *err);
void native_block_info(const void *reader, uint64_t block, struct sqrl_block_info *out);
int native_load(void *reader, uint64_t block, const struct sqrl_cancel *cancel,
                struct sqrl_block **out, struct sqrl_error *err);
int native_load_many(void *reader, const uint64_t *blocks, size_t count,
                     const struct sqrl_cancel *cancel, struct sqrl_block **out,
                     size_t *loaded, struct sqrl_error *err);
int native_check(void *reader, const struct sqrl_cancel *cancel, struct sqrl_error *err);
void native_close(void *reader);

/* What damage means, for all ways of loading; the new block's shard and place, before its
 * bytes are there; its samples, when they are. */
int native_checksum_differs(const struct native_block *block, struct sqrl_error *err);
int native_block_begin(struct native_reader *reader, uint64_t number,
                       struct sqrl_block **out, struct sqrl_error *err);
int native_block_parse(struct native_reader *reader, const struct native_block *from,
                       struct sqrl_block *block, struct sqrl_error *err);

struct native_writer {
    struct sqrl_context *context;
    struct sqrl_file_writer *file;
    const struct sqrl_codec_ops *codec;
    int level, fast_level;
    bool store_all;
    uint64_t offset; /* written so far */
    uint64_t samples, raw_bytes, blocks;
    struct sqrl_bytes table;  /* records */
    struct sqrl_bytes ends;   /* u64 for each block: where its sizes end in `sizes` */
    struct sqrl_bytes sizes;  /* LEB128, for each sample */
    struct sqrl_bytes frames; /* the footer's list of frames: MessagePack maps */
    uint32_t frame_count;
    bool no_schema;
    struct sqrl_schema schema;
    struct native_index *index;     /* NULL: neither key= nor index= was given */
    const struct sqrl_group *group; /* borrowed, or NULL: whole samples */
};

/* native_index.c: keys and columns of a shard that is written. *out is NULL when none are
 * asked for. */
SQRL_CHECK int native_index_new(const struct sqrl_settings *settings,
                                struct native_index **out, struct sqrl_error *err);
void native_index_free(struct native_index *index);
/* What the samples of a block add; any thread. */
SQRL_CHECK int native_index_encode(const struct native_index *index,
                                   const struct sqrl_block *block, struct sqrl_bytes *out,
                                   struct sqrl_error *err);
/* Takes what encode() made, in order; `first` is the block's first sample. */
SQRL_CHECK int native_index_append(struct native_index *index, const uint8_t *coded,
                                   size_t size, uint64_t first, uint32_t count,
                                   struct sqrl_error *err);
/* The frames behind the data. */
SQRL_CHECK int native_index_write(struct native_writer *writer, struct sqrl_error *err);
/* One skippable frame of several parts, listed for the footer with `pairs` more entries.
 * One that would be too large is left out. */
SQRL_CHECK int native_write_frame(struct native_writer *writer, const char *kind,
                                  const char *tag, const struct sqrl_bytes *parts,
                                  size_t count, const struct sqrl_bytes *more,
                                  uint32_t pairs, struct sqrl_error *err);

/* native_lookup.c */
int native_find(void *reader, const uint64_t *hashes, size_t count,
                const struct sqrl_cancel *cancel, struct sqrl_bytes *matches,
                const char **field, struct sqrl_error *err);
int native_column(void *reader, const char *field, const struct sqrl_cancel *cancel,
                  struct sqrl_values *out, struct sqrl_error *err);

extern const struct sqrl_option native_write_options[];
int native_create(void *writer, const struct sqrl_writer_args *args,
                  struct sqrl_error *err);
int native_encode(const void *writer, const struct sqrl_raw_block *raw,
                  struct sqrl_coded_block *out, struct sqrl_error *err);
int native_append(void *writer, const struct sqrl_coded_block *block,
                  struct sqrl_error *err);
int native_finish(void *writer, struct sqrl_shard_info *info, struct sqrl_error *err);
void native_dispose(void *writer);

#endif
