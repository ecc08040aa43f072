/* payload.h - the decompressed bytes of a file, from its beginning to its end, and the
 * pieces of them that become blocks. For formats that are read in order. */
#ifndef SQRL_FORMAT_PAYLOAD_H
#define SQRL_FORMAT_PAYLOAD_H

#include "base/base.h"
#include "sqrl/codec.h"
#include "sqrl/format.h"

/* No block's bytes grow beyond this: a sample is at most 2 GiB. */
#define SQRL_PAYLOAD_MAX ((size_t)1 << 31)

struct sqrl_payload {
    struct sqrl_context *context;
    struct sqrl_file *file;
    const struct sqrl_codec_ops *codec; /* NULL: the file is not compressed */
    void *decoder;
    struct sqrl_buffer *in; /* what was read of the file and not yet used */
    struct sqrl_codec_io io;
    uint64_t file_at; /* of the next read */
    uint64_t total;   /* bytes given out so far */
    bool end;         /* all bytes were given out */
    /* All of the content, unpacked at once by sqrl_payload_piece; NULL: it is a stream.
     */
    struct sqrl_buffer *whole;
    /* What the last piece left over, see sqrl_payload_keep. */
    struct sqrl_buffer *held;
    size_t held_from, held_end;
    uint64_t samples; /* that sqrl_payload_next gave out so far */
};

/* The codec of a file, by its first bytes; NULL when it is not compressed. */
SQRL_CHECK int sqrl_payload_codec(struct sqrl_file *file,
                                  const struct sqrl_codec_ops **out,
                                  struct sqrl_error *err);

/* Finds out by its first bytes whether the file is compressed. Zero-initialise the
 * payload; sqrl_payload_close also after a failure. The file must outlive it. */
SQRL_CHECK int sqrl_payload_open(struct sqrl_payload *payload,
                                 struct sqrl_context *context, struct sqrl_file *file,
                                 struct sqrl_error *err);
void sqrl_payload_close(struct sqrl_payload *payload);

/* A place of a compressed file from which it can be decompressed: where a frame or member
 * begins (no window), or a block within a gzip member. */
struct sqrl_payload_point {
    uint64_t file_offset, raw_offset;
    uint8_t bits, value;   /* of the byte before: src/codec/codec.h, inflate_resume */
    const uint8_t *window; /* the bytes before it, at most 32 KiB, in a zstd frame */
    size_t window_bytes;   /* of that frame */
    size_t window_raw;     /* decompressed; 0: there is none */
};
/* Opens the payload from there on; `total` counts from there, too. */
SQRL_CHECK int sqrl_payload_open_at(struct sqrl_payload *payload,
                                    struct sqrl_context *context, struct sqrl_file *file,
                                    const struct sqrl_codec_ops *codec,
                                    const struct sqrl_payload_point *point,
                                    struct sqrl_error *err);

/* Fills out[0, size). *got is less only at the end of the payload, or on failure: then it
 * counts the good bytes before the fault. Errors name the offsets in the compressed file
 * and in the payload. */
SQRL_CHECK int sqrl_payload_read(struct sqrl_payload *payload, uint8_t *out, size_t size,
                                 size_t *got, const struct sqrl_cancel *cancel,
                                 struct sqrl_error *err);

/* A new buffer with what the last piece left over and fresh bytes behind it, `size` in
 * all or fewer at the end; *out is NULL when there is nothing left. On failure *out may
 * be set all the same: the good bytes before the fault. */
SQRL_CHECK int sqrl_payload_piece(struct sqrl_payload *payload, size_t size,
                                  struct sqrl_buffer **out,
                                  const struct sqrl_cancel *cancel,
                                  struct sqrl_error *err);
/* Replaces *piece, which holds no whole sample, by one of at least twice its size.
 * SQRL_E_LIMIT beyond `max` bytes. On failure as sqrl_payload_piece. */
SQRL_CHECK int sqrl_payload_grow(struct sqrl_payload *payload, struct sqrl_buffer **piece,
                                 size_t max, const struct sqrl_cancel *cancel,
                                 struct sqrl_error *err);
/* piece[from, size) begins the next piece. Keeps a reference while there is something. */
void sqrl_payload_keep(struct sqrl_payload *payload, struct sqrl_buffer *piece,
                       size_t from);
/* Where the next piece will begin in the payload. */
uint64_t sqrl_payload_at(const struct sqrl_payload *payload);

/* Makes samples of the piece block->bytes: all whole ones. *tail receives where the first
 * one begins that the piece cuts; 0 samples with a rest ask for a larger piece. Errors
 * name byte (block->origin and on) and sample (block->first and on). */
typedef int (*sqrl_payload_parse)(void *reader, struct sqrl_block *block, size_t *tail,
                                  struct sqrl_error *err);
/* All of a format's next(): a piece becomes a block. Reads on until it holds a whole
 * sample; what fails comes behind the samples before it; a rest at the end is
 * SQRL_E_TRUNCATED. For formats that parse where they read; otherwise the functions
 * above. */
SQRL_CHECK int sqrl_payload_next(struct sqrl_payload *payload, sqrl_payload_parse parse,
                                 void *reader, const struct sqrl_cancel *cancel,
                                 struct sqrl_block **out, struct sqrl_error *err);
/* Puts text that is no payload, the keys, behind a copy of the block's bytes, for nodes
 * to point to; *offset receives where. */
SQRL_CHECK int sqrl_payload_add_text(struct sqrl_block *block, const char *text,
                                     size_t size, uint64_t *offset,
                                     struct sqrl_error *err);

/* --- writing: samples in one member or frame a block --- */
struct sqrl_pressing {
    const struct sqrl_codec_ops *codec; /* NULL: stored as they are */
    int level;
};
/* The options "codec" and "level", for the write options of a format; SQRL_PRESS_CHOICES
 * are the names. */
#define SQRL_PRESS_CHOICES "gzip|zstd|lz4|none"
SQRL_CHECK int sqrl_pressing_read(struct sqrl_pressing *pressing,
                                  const struct sqrl_settings *settings,
                                  const struct sqrl_option *list, struct sqrl_error *err);
/* One member or frame with raw[0, size). */
SQRL_CHECK int sqrl_press(const struct sqrl_pressing *pressing,
                          struct sqrl_context *context, const uint8_t *raw, size_t size,
                          struct sqrl_buffer **out, struct sqrl_error *err);

/* The counts that every writer of such a format keeps. */
struct sqrl_plain_writer {
    struct sqrl_context *context;
    struct sqrl_file_writer *file;
    struct sqrl_pressing pressing;
    uint64_t samples, blocks, raw_bytes;
};
SQRL_CHECK int sqrl_plain_append(void *writer, const struct sqrl_coded_block *block,
                                 struct sqrl_error *err);
SQRL_CHECK int sqrl_plain_finish(void *writer, struct sqrl_shard_info *info,
                                 struct sqrl_error *err);
void sqrl_plain_dispose(void *writer);

#endif
