/* codec.h - the private half of the codec floor. */
#ifndef SQRL_CODEC_PRIVATE_H
#define SQRL_CODEC_PRIVATE_H

#include "base/base.h"
#include "sqrl/codec.h"

extern const struct sqrl_codec_ops sqrl_codec_gzip;
extern const struct sqrl_codec_ops sqrl_codec_zstd;
extern const struct sqrl_codec_ops sqrl_codec_lz4;
extern const struct sqrl_codec_ops sqrl_codec_none;
#if SQRL_HAVE_ISAL
/* gzip with zlib's inflate and deflate at every level: the twin that tests compare with.
 * It is not in the registry; without ISA-L, sqrl_codec_gzip is the same thing. */
extern const struct sqrl_codec_ops sqrl_codec_gzip_zlib;
#endif

/* --- scratch.c: a thread's working memory ---
 * Making a compression context costs page faults that can exceed the work on one block,
 * and the one-shot calls have no state to keep it in. So each thread keeps one of each
 * kind. */
enum sqrl_scratch {
    SQRL_SCRATCH_ZSTD_COMPRESS,
    SQRL_SCRATCH_ZSTD_DECOMPRESS,
    SQRL_SCRATCH_LZ4_FAST,
    SQRL_SCRATCH_LZ4_HC,
    SQRL_SCRATCH_ISAL_INFLATE,
    SQRL_SCRATCH_ISAL_DEFLATE,
    SQRL_SCRATCH_ZLIB_INFLATE,
    SQRL_SCRATCH_LIBDEFLATE,
    SQRL_SCRATCH_ZLIB_DEFLATE,
    SQRL_SCRATCHES
};
/* Takes the thread's thing of that kind; NULL: there is none, make one. */
void *sqrl_scratch_take(enum sqrl_scratch kind);
/* Gives it back for the next call, or frees it with `release` if it can't be kept. */
void sqrl_scratch_give(enum sqrl_scratch kind, void *thing, void (*release)(void *thing));

/* --- deflate engines ---
 * What gzip.c needs of a library: raw deflate, no framing. */
struct sqrl_inflate_step {
    const uint8_t *in;
    size_t in_size;
    uint8_t *out;
    size_t out_size;
    bool
        whole; /* all the input and all the room are here: no later step on this member */
    bool done; /* set: the last block has ended */
    /* Set with done: bytes the engine has taken that lie behind the last block. */
    uint8_t back[8];
    unsigned back_size;
    const char *problem; /* set on SQRL_E_CORRUPT: what is wrong */
};
struct sqrl_deflate_engine {
    /* An inflate state; the thread's idle one if there is. Ready for a member. */
    void *(*inflate_open)(struct sqrl_error *err);
    void (*inflate_close)(void *state);
    void (*inflate_reset)(void *state);
    /* SQRL_OK or a code without a message. Nothing moved and not done: it needs input or
     * room. */
    int (*inflate)(void *state, struct sqrl_inflate_step *step);
    /* The state goes on in the middle of a stream, where a block begins: `bits` (0 to 7)
     * bits of the byte before the input are still to come, they are the lowest of
     * `value`; distances may point into the `size` (at most 32 KiB) bytes of `window`. */
    void (*inflate_resume)(void *state, unsigned bits, unsigned value,
                           const uint8_t *window, size_t size);
    /* One raw deflate stream; SQRL_E_LIMIT (no message) if it does not fit. */
    int (*deflate)(int level, const uint8_t *raw, size_t raw_size, uint8_t *out,
                   size_t out_capacity, size_t *out_size, struct sqrl_error *err);
};
extern const struct sqrl_deflate_engine sqrl_engine_zlib;
extern const char sqrl_zlib_library[]; /* "zlib 1.2.13" */
uint32_t sqrl_zlib_crc32(uint32_t crc, const void *data, size_t size);
#if SQRL_HAVE_ISAL
extern const struct sqrl_deflate_engine sqrl_engine_isal;
extern const char sqrl_isal_library[];
uint32_t sqrl_isal_crc32(uint32_t crc, const void *data, size_t size);
#endif

#if SQRL_HAVE_LIBDEFLATE
/* One whole member into exactly raw_size bytes; false when it is anything else. */
bool sqrl_libdeflate_member(const uint8_t *in, size_t in_size, uint8_t *raw,
                            size_t raw_size);
#endif

/* --- reading gzip from within (gzip.c, gzip_zlib.c) --- */
#define SQRL_GZIP_WINDOW 32768u
/* An open decoder of the gzip codec goes on where a deflate block begins, see
 * inflate_resume. The checksum of that member is not known then, so it is not tested. */
void sqrl_gzip_resume(void *state, unsigned bits, unsigned value, const uint8_t *window,
                      size_t size);
/* Decodes a gzip file and finds those places. */
struct sqrl_gzip_scan;
struct sqrl_gzip_place {
    bool member;          /* a member begins here (or the file ends) */
    bool block;           /* a block that is not a member's first begins here */
    unsigned bits, value; /* see inflate_resume */
};
struct sqrl_gzip_scan *sqrl_gzip_scan_open(struct sqrl_error *err);
void sqrl_gzip_scan_close(struct sqrl_gzip_scan *scan);
/* One step: advances `io` as decode() does, at most to the next such place. */
int sqrl_gzip_scan_step(struct sqrl_gzip_scan *scan, struct sqrl_codec_io *io,
                        struct sqrl_gzip_place *place, struct sqrl_error *err);

/* --- edge.c: streams of zstd and lz4 frames --- */
/* One call into a library, within a frame. Neither `in` nor `out` is NULL. */
struct sqrl_frame_step {
    const uint8_t *in;
    size_t in_size;
    uint8_t *out;
    size_t out_size;
    uint64_t offset;     /* of in[0] in the stream, for messages */
    size_t taken, given; /* set: how much of both was used */
    bool ended;          /* set: the frame has */
};
/* What the library of one codec does; `state` is the decoder's. */
struct sqrl_frame_engine {
    const char *codec;
    uint32_t magic; /* little-endian, that a frame begins with */
    /* Begins a frame, whose magic, at `offset`, was consumed already. */
    int (*begin)(void *state, uint64_t offset, struct sqrl_error *err);
    int (*step)(void *state, struct sqrl_frame_step *step, struct sqrl_error *err);
};
/* Where a stream stands; zero-initialise. */
struct sqrl_frames {
    uint8_t bytes[8]; /* of a magic, gathered between frames */
    unsigned have;
    bool skipping;
    uint64_t skip;  /* bytes of a skippable frame still to pass */
    uint64_t begun; /* frames so far, skippable ones too */
    bool in_frame;
    bool pending; /* the last step filled the room: there may be more to give out */
};
/* decode() of the ops table: frames one after another, between them skippable frames and
 * zero padding, then the end. */
int sqrl_frames_decode(struct sqrl_frames *frames, const struct sqrl_frame_engine *engine,
                       void *state, struct sqrl_codec_io *io, struct sqrl_error *err);
static inline void sqrl_io_consume(struct sqrl_codec_io *io, size_t n) {
    if (n == 0)
        return; /* in may be NULL then */
    io->in += n;
    io->in_size -= n;
    io->in_total += n;
}

/* --- checksums --- */
uint32_t sqrl_xxh32(const void *data, size_t size); /* seed 0 */
#if defined(__x86_64__)
uint64_t sqrl_xxh3_avx2(const void *data, size_t size);
void sqrl_xxh3_update_avx2(void *state, const void *data, size_t size);
#endif
/* The twins of sqrl_crc32c, for tests. */
uint32_t sqrl_crc32c_table(uint32_t crc, const void *data, size_t size);

/* Errors shared by the codecs. */
int sqrl_codec_check_level(const struct sqrl_codec_ops *codec, int level,
                           struct sqrl_error *err);
int sqrl_codec_no_room(const char *codec, size_t capacity, struct sqrl_error *err);
int sqrl_codec_cut(const char *codec, uint64_t offset, struct sqrl_error *err);

#endif
