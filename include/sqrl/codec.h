/* sqrl/codec.h - compression as an ops table, and checksums.
 *
 * Built in: "gzip" (ISA-L where it was built in, else zlib), "zstd", "lz4" (frame
 * format), "none". A codec works on whole frames in memory (shards) and as a stream
 * (files of unknown length). All functions are thread-safe on different states. compress
 * and decompress keep their working memory (up to a few MiB) for the thread's next call;
 * it goes with the thread.
 */
#ifndef SQRL_CODEC_H
#define SQRL_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "option.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SQRL_CODEC_API 1

#ifdef __GNUC__
#define SQRL_ALIGNED(n) __attribute__((aligned(n)))
#else
#define SQRL_ALIGNED(n)
#endif

/* One step of a stream: the codec advances `in`, `out` and `in_total` as far as it can,
 * and returns when it needs more input or more room, or when the stream is complete. */
struct sqrl_codec_io {
    const uint8_t *in;
    size_t in_size; /* bytes left at in */
    uint8_t *out;
    size_t out_size;   /* room left at out */
    uint64_t in_total; /* bytes consumed since open, for error offsets */
    bool in_end;       /* no more input comes behind in_size */
    bool out_end;      /* set by the codec: the stream is complete (all members) */
};

/* One run of payload bytes in a frame that store() makes. */
struct sqrl_stored_piece {
    uint64_t offset;     /* in the frame */
    uint64_t raw_offset; /* in the content */
    size_t size;
};

struct sqrl_codec_ops {
    size_t size; /* sizeof(struct sqrl_codec_ops) of the implementer */
    uint32_t api;
    const char *name;
    const char *doc;
    const char *suffix; /* ".gz", ".zst", ".lz4", "" */
    const struct sqrl_option *options;
    int level_min, level_max, level_default;

    /* The most bytes compress() can write for `raw` bytes. */
    size_t (*bound)(size_t raw);
    /* One whole frame (a gzip member, zstd or lz4 frame with content size). */
    int (*compress)(int level, const uint8_t *raw, size_t raw_size, uint8_t *out,
                    size_t out_capacity, size_t *out_size, struct sqrl_error *err);
    /* A frame that stores the bytes uncompressed (at most bound() bytes); NULL if the
     * format has none. Too little room is SQRL_E_LIMIT, here and in compress(). */
    int (*store)(const uint8_t *raw, size_t raw_size, uint8_t *out, size_t out_capacity,
                 size_t *out_size, struct sqrl_error *err);
    /* Frame(s) whose content is exactly raw_size bytes; anything else is SQRL_E_CORRUPT.
     */
    int (*decompress)(const uint8_t *in, size_t in_size, uint8_t *raw, size_t raw_size,
                      struct sqrl_error *err);
    /* True when `magic` (up to 6 bytes) begins a stream of this codec. */
    bool (*sniff)(const uint8_t *magic, size_t size);

    /* Streams. The library allocates state of the given size, zeroed, aligned to 64.
     * Several members or frames in a row are one stream; skippable frames are skipped;
     * bytes behind the last member that begin no new one are SQRL_E_CORRUPT (zero padding
     * is accepted). A stream that ends within a member is SQRL_E_TRUNCATED. */
    size_t decoder_size;
    int (*decoder_open)(void *state, struct sqrl_error *err);
    int (*decode)(void *state, struct sqrl_codec_io *io, struct sqrl_error *err);
    void (*decoder_close)(void *state);

    /* What it is built on, "zstd 1.5.4". */
    const char *library;

    /* The layout of store()'s frames is a function of the content's size alone, so that a
     * reader can read the payload straight to its place and the framing between the
     * pieces to a scratch: the frame's size, and its i-th piece (false behind the last
     * one). Pieces are in order, and together they are the content. NULL where store is.
     */
    uint64_t (*stored_size)(uint64_t raw_size);
    bool (*stored_piece)(uint64_t raw_size, uint64_t i, struct sqrl_stored_piece *piece);
    /* Writes all bytes of the frame that are no content, in order, without gaps:
     * stored_size(raw_size) - raw_size bytes. What a reader compares the framing with. */
    void (*stored_framing)(uint64_t raw_size, uint8_t *out);

    /* The quick way for a whole file in memory that is one frame or member; NULL: there
     * is none that beats decode(). whole_size tells what its content must take (0: the
     * bytes don't tell, or claim what they can't hold), whole unpacks exactly that.
     * false: they are damaged, several members, or of another size; decode() says what is
     * wrong. */
    uint64_t (*whole_size)(const uint8_t *in, size_t in_size);
    bool (*whole)(const uint8_t *in, size_t in_size, uint8_t *raw, size_t raw_size);
};

/* By name, NULL when it is not built in. The table is constant and lives for ever. */
SQRL_API const struct sqrl_codec_ops *sqrl_codec_by_name(const char *name);
/* By the first bytes of a file or by a file name's suffix; NULL when none fits. */
SQRL_API const struct sqrl_codec_ops *sqrl_codec_by_magic(const uint8_t *magic,
                                                          size_t size);
SQRL_API const struct sqrl_codec_ops *sqrl_codec_by_suffix(const char *path);
/* The i-th built-in codec, NULL behind the last. */
SQRL_API const struct sqrl_codec_ops *sqrl_codec_at(size_t i);
/* What a codec is built on: "isa-l 2.30", "zstd 1.5.4". */
SQRL_API const char *sqrl_codec_library(const struct sqrl_codec_ops *codec);

/* Checksums. xxh3 is XXH3_64bits with seed 0 (canonical value as a number). */
SQRL_API uint64_t sqrl_xxh3(const void *data, size_t size);
SQRL_API uint32_t sqrl_crc32(uint32_t crc, const void *data, size_t size); /* gzip's */
SQRL_API uint32_t sqrl_crc32c(uint32_t crc, const void *data,
                              size_t size); /* Castagnoli */

/* xxh3 over pieces; equals sqrl_xxh3 over all of them laid end to end. The state is plain
 * memory of the caller's: no release. */
struct sqrl_xxh3_state {
    unsigned char opaque[640] SQRL_ALIGNED(64);
};
SQRL_API void sqrl_xxh3_init(struct sqrl_xxh3_state *state);
SQRL_API void sqrl_xxh3_update(struct sqrl_xxh3_state *state, const void *data,
                               size_t size);
SQRL_API uint64_t sqrl_xxh3_digest(const struct sqrl_xxh3_state *state);

#ifdef __cplusplus
}
#endif
#endif
