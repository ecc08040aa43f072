/* lz4.c - the LZ4 frame format, version 1.6.
 *
 * Whole frames are read and written by hand over LZ4's block functions: a block then goes
 * straight to its place (LZ4F decodes into a buffer of its own and copies when the room
 * left is below the frame's block size, which is so for the last block of every frame),
 * errors know their offset, and stored frames come out of the same code. Frames we write
 * have independent blocks of 4 MiB and the content size, no checksums: `lz4 -dc` reads
 * them. Streams use LZ4F. */
#include "codec/codec.h"

#include <lz4.h>
#include <lz4frame.h>
#include <lz4hc.h>
#include <stdlib.h>

#define LZ4_MAGIC 0x184D2204u
#define SKIP_MAGIC 0x184D2A50u
#define BLOCK ((size_t)4 << 20)
#define HEADER_SIZE 15
#define END_MARK_SIZE 4
#define STORED_BIT 0x80000000u
#define WINDOW ((size_t)64 * 1024)
#define LEVEL_HC 3 /* from here on the slow compressor, as in LZ4F */

enum {
    FLG_DICT = 1,
    FLG_RESERVED = 2,
    FLG_CHECKSUM = 4,
    FLG_SIZE = 8,
    FLG_BLOCK_CHECKSUM = 16,
    FLG_INDEPENDENT = 32,
    FLG_VERSION = 0xC0,
    FLG_VERSION_1 = 0x40
};

/* --- writing --- */

static uint64_t stored_blocks(uint64_t raw_size) {
    return raw_size / BLOCK + (raw_size % BLOCK != 0);
}

static uint64_t stored_size(uint64_t raw_size) {
    return HEADER_SIZE + stored_blocks(raw_size) * 4 + raw_size + END_MARK_SIZE;
}

static bool stored_piece(uint64_t raw_size, uint64_t i, struct sqrl_stored_piece *piece) {
    *piece = (struct sqrl_stored_piece){0, 0, 0};
    if (i >= stored_blocks(raw_size))
        return false;
    piece->raw_offset = i * BLOCK;
    piece->offset = HEADER_SIZE + i * (BLOCK + 4) + 4;
    piece->size = (size_t)SQRL_MIN((uint64_t)BLOCK, raw_size - piece->raw_offset);
    return true;
}

static size_t lz4_bound(size_t raw) {
    return (size_t)stored_size(raw);
}

static uint8_t *write_header(uint8_t *out, uint64_t raw_size) {
    sqrl_store_le32(out, LZ4_MAGIC);
    out[4] = FLG_VERSION_1 | FLG_INDEPENDENT | FLG_SIZE;
    out[5] = 7 << 4; /* blocks of 4 MiB */
    sqrl_store_le64(out + 6, raw_size);
    out[14] = (uint8_t)(sqrl_xxh32(out + 4, 10) >> 8);
    return out + HEADER_SIZE;
}

static void stored_framing(uint64_t raw_size, uint8_t *out) {
    uint8_t *at = write_header(out, raw_size);
    for (uint64_t done = 0; done < raw_size; done += BLOCK, at += 4)
        sqrl_store_le32(at, (uint32_t)SQRL_MIN(raw_size - done, BLOCK) | STORED_BIT);
    sqrl_store_le32(at, 0);
}

static int lz4_store(const uint8_t *raw, size_t raw_size, uint8_t *out,
                     size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    *out_size = 0;
    if (stored_size(raw_size) > out_capacity)
        return sqrl_codec_no_room("lz4", out_capacity, err);
    uint8_t *at = write_header(out, raw_size);
    for (size_t done = 0; done < raw_size;) {
        size_t n = SQRL_MIN(raw_size - done, BLOCK);
        sqrl_store_le32(at, (uint32_t)n | STORED_BIT);
        memcpy(at + 4, raw + done, n);
        at += 4 + n;
        done += n;
    }
    sqrl_store_le32(at, 0);
    *out_size = (size_t)(at + END_MARK_SIZE - out);
    return SQRL_OK;
}

/* One block into at most `room` bytes; 0 when it does not get smaller than that. */
static size_t compress_block(void *state, int level, const uint8_t *raw, size_t n,
                             uint8_t *out, size_t room) {
    int size;
    if (level < LEVEL_HC)
        size = LZ4_compress_fast_extState(state, (const char *)raw, (char *)out, (int)n,
                                          (int)room, 1);
    else
        size = LZ4_compress_HC_extStateHC(state, (const char *)raw, (char *)out, (int)n,
                                          (int)room, level);
    return size > 0 ? (size_t)size : 0;
}

static int compress_blocks(void *state, int level, const uint8_t *raw, size_t raw_size,
                           uint8_t *out, size_t out_capacity, size_t *out_size,
                           struct sqrl_error *err) {
    uint8_t *at = write_header(out, raw_size), *end = out + out_capacity;
    for (size_t done = 0; done < raw_size;) {
        size_t n = SQRL_MIN(raw_size - done, BLOCK);
        size_t left = (size_t)(end - at);
        if (left < 4 + END_MARK_SIZE + 1)
            return sqrl_codec_no_room("lz4", out_capacity, err);
        left -= 4 + END_MARK_SIZE;
        size_t size =
            compress_block(state, level, raw + done, n, at + 4, SQRL_MIN(left, n - 1));
        sqrl_store_le32(at, (uint32_t)size);
        if (size == 0) {
            if (n > left)
                return sqrl_codec_no_room("lz4", out_capacity, err);
            memcpy(at + 4, raw + done, n);
            sqrl_store_le32(at, (uint32_t)n | STORED_BIT);
            size = n;
        }
        at += 4 + size;
        done += n;
    }
    sqrl_store_le32(at, 0);
    *out_size = (size_t)(at + END_MARK_SIZE - out);
    return SQRL_OK;
}

static int lz4_compress(int level, const uint8_t *raw, size_t raw_size, uint8_t *out,
                        size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    *out_size = 0;
    if (sqrl_codec_check_level(&sqrl_codec_lz4, level, err) != SQRL_OK)
        return SQRL_E_INVALID;
    if (out_capacity < HEADER_SIZE + END_MARK_SIZE)
        return sqrl_codec_no_room("lz4", out_capacity, err);
    bool hc = level >= LEVEL_HC;
    enum sqrl_scratch kind = hc ? SQRL_SCRATCH_LZ4_HC : SQRL_SCRATCH_LZ4_FAST;
    void *state = sqrl_scratch_take(kind);
    if (!state) {
        size_t size = (size_t)(hc ? LZ4_sizeofStateHC() : LZ4_sizeofState());
        state = sqrl_malloc(size, "lz4 state", err);
    }
    if (!state)
        return SQRL_E_NO_MEMORY;
    int rc =
        compress_blocks(state, level, raw, raw_size, out, out_capacity, out_size, err);
    sqrl_scratch_give(kind, state, free);
    return rc;
}

/* --- whole frames --- */

struct reader {
    const uint8_t *in;
    size_t in_size, at;
    uint8_t *raw;
    size_t raw_size, done;
    uint8_t flags;
    size_t block_max;
    size_t frame_start; /* in raw */
};

static int damaged(const struct reader *r, const char *what, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "lz4: damaged data at offset %zu: %s; get the file again",
                          r->at, what);
}

static int need(const struct reader *r, size_t n, struct sqrl_error *err) {
    return r->in_size - r->at < n ? sqrl_codec_cut("lz4", r->in_size, err) : SQRL_OK;
}

static int too_long(const struct reader *r, struct sqrl_error *err) {
    return sqrl_error_set(
        err, SQRL_E_CORRUPT,
        "lz4: more than the %zu bytes that are expected (block at offset %zu)",
        r->raw_size, r->at);
}

/* The frame header behind the magic. */
static int read_header(struct reader *r, struct sqrl_error *err) {
    int rc = need(r, 3, err);
    if (rc != SQRL_OK)
        return rc;
    const uint8_t *p = r->in + r->at;
    uint8_t flags = p[0], bd = p[1];
    if ((flags & FLG_VERSION) != FLG_VERSION_1 || (flags & FLG_RESERVED) || (bd & 0x8F) ||
        bd >> 4 < 4)
        return damaged(r, "unknown version or reserved bits in the frame header", err);
    if (flags & FLG_DICT) {
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "lz4: the frame needs a dictionary: write it without one");
    }
    size_t size = 2 + (flags & FLG_SIZE ? 8 : 0);
    rc = need(r, size + 1, err);
    if (rc != SQRL_OK)
        return rc;
    if (p[size] != (uint8_t)(sqrl_xxh32(p, size) >> 8))
        return damaged(r, "the frame header's checksum is wrong", err);
    if (flags & FLG_SIZE && sqrl_load_le64(p + 2) > r->raw_size - r->done)
        return too_long(r, err);
    r->flags = flags;
    r->block_max = (size_t)1 << (8 + 2 * (bd >> 4));
    r->frame_start = r->done;
    r->at += size + 1;
    return SQRL_OK;
}

static int read_block(struct reader *r, size_t size, bool stored,
                      struct sqrl_error *err) {
    const uint8_t *block = r->in + r->at;
    size_t room = r->raw_size - r->done;
    if (stored) {
        if (size > room)
            return too_long(r, err);
        memcpy(r->raw + r->done, block, size);
        r->done += size;
        return SQRL_OK;
    }
    size_t history =
        r->flags & FLG_INDEPENDENT ? 0 : SQRL_MIN(r->done - r->frame_start, WINDOW);
    uint8_t *out = r->raw + r->done;
    int got = LZ4_decompress_safe_usingDict((const char *)block, (char *)out, (int)size,
                                            (int)SQRL_MIN(room, r->block_max),
                                            (const char *)out - history, (int)history);
    if (got < 0) {
        return damaged(r,
                       room < r->block_max
                           ? "the block is invalid, or longer than expected"
                           : "the block is invalid",
                       err);
    }
    r->done += (size_t)got;
    return SQRL_OK;
}

/* The blocks and what ends them. */
static int read_blocks(struct reader *r, struct sqrl_error *err) {
    for (;;) {
        int rc = need(r, 4, err);
        if (rc != SQRL_OK)
            return rc;
        uint32_t word = sqrl_load_le32(r->in + r->at);
        size_t size = word & ~STORED_BIT;
        if (word == 0)
            break;
        if (size > r->block_max)
            return damaged(r, "a block is longer than the frame header allows", err);
        r->at += 4;
        size_t sum = r->flags & FLG_BLOCK_CHECKSUM ? 4 : 0;
        rc = need(r, size + sum, err);
        if (rc != SQRL_OK)
            return rc;
        const uint8_t *block = r->in + r->at;
        if (sum && sqrl_load_le32(block + size) != sqrl_xxh32(block, size))
            return damaged(r, "the block's checksum is wrong", err);
        rc = read_block(r, size, word & STORED_BIT, err);
        if (rc != SQRL_OK)
            return rc;
        r->at += size + sum;
    }
    r->at += 4;
    return SQRL_OK;
}

static int read_frame(struct reader *r, struct sqrl_error *err) {
    size_t start = r->at;
    int rc = read_header(r, err);
    if (rc != SQRL_OK)
        return rc;
    rc = read_blocks(r, err);
    if (rc != SQRL_OK)
        return rc;
    size_t size = r->done - r->frame_start;
    if (r->flags & FLG_SIZE && sqrl_load_le64(r->in + start + 2) != size)
        return damaged(r, "the content is shorter than the frame header says", err);
    if (!(r->flags & FLG_CHECKSUM))
        return SQRL_OK;
    rc = need(r, 4, err);
    if (rc != SQRL_OK)
        return rc;
    if (sqrl_load_le32(r->in + r->at) != sqrl_xxh32(r->raw + r->frame_start, size))
        return damaged(r, "the content's checksum is wrong", err);
    r->at += 4;
    return SQRL_OK;
}

static int lz4_decompress(const uint8_t *in, size_t in_size, uint8_t *raw,
                          size_t raw_size, struct sqrl_error *err) {
    uint8_t nothing;
    struct reader r = {
        .in = in, .in_size = in_size, .raw = raw ? raw : &nothing, .raw_size = raw_size};
    do {
        int rc = need(&r, 4, err);
        if (rc != SQRL_OK)
            return rc;
        uint32_t magic = sqrl_load_le32(in + r.at);
        if ((magic & 0xFFFFFFF0u) == SKIP_MAGIC) {
            rc = need(&r, 8, err);
            if (rc == SQRL_OK) {
                r.at += 8;
                rc = need(&r, sqrl_load_le32(in + r.at - 4), err);
            }
            if (rc != SQRL_OK)
                return rc;
            r.at += sqrl_load_le32(in + r.at - 4);
            continue;
        }
        if (magic != LZ4_MAGIC)
            return damaged(&r, "no frame begins here", err);
        r.at += 4;
        rc = read_frame(&r, err);
        if (rc != SQRL_OK)
            return rc;
    } while (r.at < in_size);
    if (r.done == raw_size)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "lz4: the frame holds %zu bytes where %zu are expected", r.done,
                          raw_size);
}

static bool lz4_sniff(const uint8_t *magic, size_t size) {
    return size >= 4 && sqrl_load_le32(magic) == LZ4_MAGIC;
}

/* --- streams --- */

struct decoder {
    LZ4F_dctx *ctx;
    struct sqrl_frames frames;
};

static int lz4_problem(size_t rc, uint64_t offset, struct sqrl_error *err) {
    const char *text = LZ4F_getErrorName(rc);
    if (strcmp(text, "ERROR_allocation_failed") == 0)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "lz4: no memory for its state");
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "lz4: damaged data near offset %llu: %s; get the file again",
                          (unsigned long long)offset, text);
}

static int lz4_decoder_open(void *state, struct sqrl_error *err) {
    struct decoder *d = state;
    size_t rc = LZ4F_createDecompressionContext(&d->ctx, LZ4F_VERSION);
    return LZ4F_isError(rc) ? lz4_problem(rc, 0, err) : SQRL_OK;
}

static int begin_frame(void *state, uint64_t offset, struct sqrl_error *err) {
    struct decoder *d = state;
    uint8_t magic[4], nothing;
    size_t in = sizeof(magic), out = 0;
    sqrl_store_le32(magic, LZ4_MAGIC);
    LZ4F_resetDecompressionContext(d->ctx);
    size_t rc = LZ4F_decompress(d->ctx, &nothing, &out, magic, &in, NULL);
    return LZ4F_isError(rc) ? lz4_problem(rc, offset, err) : SQRL_OK;
}

static int step_frame(void *state, struct sqrl_frame_step *step, struct sqrl_error *err) {
    struct decoder *d = state;
    size_t in = step->in_size, out = step->out_size;
    size_t rc = LZ4F_decompress(d->ctx, step->out, &out, step->in, &in, NULL);
    if (LZ4F_isError(rc))
        return lz4_problem(rc, step->offset, err);
    step->taken = in;
    step->given = out;
    step->ended = rc == 0;
    return SQRL_OK;
}

static int lz4_decode(void *state, struct sqrl_codec_io *io, struct sqrl_error *err) {
    static const struct sqrl_frame_engine engine = {"lz4", LZ4_MAGIC, begin_frame,
                                                    step_frame};
    return sqrl_frames_decode(&((struct decoder *)state)->frames, &engine, state, io,
                              err);
}

static void lz4_decoder_close(void *state) {
    struct decoder *d = state;
    LZ4F_freeDecompressionContext(d->ctx);
    d->ctx = NULL;
}

const struct sqrl_codec_ops sqrl_codec_lz4 = {
    .size = sizeof(struct sqrl_codec_ops),
    .api = SQRL_CODEC_API,
    .name = "lz4",
    .doc = "LZ4 frames",
    .suffix = ".lz4",
    .level_min = 1,
    .level_max = 12,
    .level_default = 1,
    .bound = lz4_bound,
    .compress = lz4_compress,
    .store = lz4_store,
    .decompress = lz4_decompress,
    .sniff = lz4_sniff,
    .decoder_size = sizeof(struct decoder),
    .decoder_open = lz4_decoder_open,
    .decode = lz4_decode,
    .decoder_close = lz4_decoder_close,
    .library = "lz4 " LZ4_VERSION_STRING,
    .stored_size = stored_size,
    .stored_piece = stored_piece,
    .stored_framing = stored_framing,
};
