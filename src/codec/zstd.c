/* zstd.c - Zstandard (RFC 8878) by libzstd.
 *
 * A stored frame is written by hand, since libzstd offers no way to ask for one: magic,
 * frame header, raw blocks of 128 KiB. Its header names a window of 128 KiB instead of
 * the single segment flag, so that streaming decoders need no window of the content's
 * size and `zstd -dc` takes any length; 128 KiB is then also the greatest block (min of
 * the window and 128 KiB). The content size is always there, in 4 bytes or, from 4 GiB
 * on, in 8. */
#include "codec/codec.h"

#include <zstd.h>
#include <zstd_errors.h>

#define ZSTD_MAGIC 0xFD2FB528u
#define BLOCK ((size_t)128 * 1024)
#define WINDOW_128K 0x38 /* exponent 7 over 1 KiB, mantissa 0 */
#define WINDOW_LOG_MAX 27

/* --- stored frames --- */

static size_t stored_header_size(uint64_t raw_size) {
    return raw_size >> 32 ? 14 : 10;
}

static uint64_t stored_blocks(uint64_t raw_size) {
    return raw_size == 0 ? 1 : raw_size / BLOCK + (raw_size % BLOCK != 0);
}

static uint64_t stored_size(uint64_t raw_size) {
    return stored_header_size(raw_size) + stored_blocks(raw_size) * 3 + raw_size;
}

static bool stored_piece(uint64_t raw_size, uint64_t i, struct sqrl_stored_piece *piece) {
    *piece = (struct sqrl_stored_piece){0, 0, 0};
    if (raw_size == 0 || i >= stored_blocks(raw_size))
        return false;
    piece->raw_offset = i * BLOCK;
    piece->offset = stored_header_size(raw_size) + i * (BLOCK + 3) + 3;
    piece->size = (size_t)SQRL_MIN((uint64_t)BLOCK, raw_size - piece->raw_offset);
    return true;
}

static void put_stored_header(uint64_t raw_size, uint8_t *out) {
    bool wide = raw_size >> 32;
    sqrl_store_le32(out, ZSTD_MAGIC);
    out[4] =
        wide ? 0xC0 : 0x80; /* content size in 8 or 4 bytes, no checksum, no dictionary */
    out[5] = WINDOW_128K;
    if (wide)
        sqrl_store_le64(out + 6, raw_size);
    else
        sqrl_store_le32(out + 6, (uint32_t)raw_size);
}

/* Bit 0: last block; bits 1 and 2: type 0, raw; then 21 bits of size. */
static void put_stored_block(size_t n, bool last, uint8_t *out) {
    uint32_t header = (uint32_t)n << 3 | last;
    out[0] = (uint8_t)header;
    out[1] = (uint8_t)(header >> 8);
    out[2] = (uint8_t)(header >> 16);
}

static void stored_framing(uint64_t raw_size, uint8_t *out) {
    put_stored_header(raw_size, out);
    out += stored_header_size(raw_size);
    uint64_t left = raw_size;
    do {
        size_t n = (size_t)SQRL_MIN(left, (uint64_t)BLOCK);
        put_stored_block(n, n == left, out);
        out += 3;
        left -= n;
    } while (left > 0);
}

static int zstd_store(const uint8_t *raw, size_t raw_size, uint8_t *out,
                      size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    *out_size = 0;
    if (stored_size(raw_size) > out_capacity)
        return sqrl_codec_no_room("zstd", out_capacity, err);
    put_stored_header(raw_size, out);
    uint8_t *at = out + stored_header_size(raw_size);
    size_t left = raw_size;
    do {
        size_t n = SQRL_MIN(left, BLOCK);
        put_stored_block(n, n == left, at);
        if (n > 0)
            memcpy(at + 3, raw + (raw_size - left), n);
        at += 3 + n;
        left -= n;
    } while (left > 0);
    *out_size = (size_t)(at - out);
    return SQRL_OK;
}

/* --- whole frames --- */

static size_t zstd_bound(size_t raw) {
    size_t bound = ZSTD_compressBound(raw);
    return ZSTD_isError(bound) ? 0 : SQRL_MAX(bound, (size_t)stored_size(raw));
}

static int zstd_problem(size_t rc, uint64_t offset, struct sqrl_error *err) {
    const char *text = ZSTD_getErrorName(rc);
    unsigned long long at = offset;
    switch (ZSTD_getErrorCode(rc)) {
    case ZSTD_error_memory_allocation:
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "zstd: no memory for its state");
    case ZSTD_error_srcSize_wrong:
        return sqrl_codec_cut("zstd", offset, err);
    case ZSTD_error_frameParameter_windowTooLarge:
        return sqrl_error_set(
            err, SQRL_E_LIMIT,
            "zstd: the frame at offset %llu needs a window of more than "
            "%d MiB: write it again without --long",
            at, 1 << (WINDOW_LOG_MAX - 20));
    case ZSTD_error_dictionary_wrong:
    case ZSTD_error_version_unsupported:
    case ZSTD_error_frameParameter_unsupported:
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "zstd: the frame at offset %llu can't be read: %s", at,
                              text);
    default:
        return sqrl_error_set(
            err, SQRL_E_CORRUPT,
            "zstd: damaged data near offset %llu: %s; get the file again", at, text);
    }
}

static void free_compressor(void *arg) {
    ZSTD_freeCCtx(arg);
}
static void free_decompressor(void *arg) {
    ZSTD_freeDCtx(arg);
}

static int zstd_compress(int level, const uint8_t *raw, size_t raw_size, uint8_t *out,
                         size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    *out_size = 0;
    if (sqrl_codec_check_level(&sqrl_codec_zstd, level, err) != SQRL_OK)
        return SQRL_E_INVALID;
    ZSTD_CCtx *ctx = sqrl_scratch_take(SQRL_SCRATCH_ZSTD_COMPRESS);
    if (!ctx)
        ctx = ZSTD_createCCtx();
    if (!ctx)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "zstd: no memory for its state");
    size_t rc = ZSTD_CCtx_reset(ctx, ZSTD_reset_session_and_parameters);
    if (!ZSTD_isError(rc))
        rc = ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, level);
    if (!ZSTD_isError(rc))
        rc = ZSTD_compress2(ctx, out, out_capacity, raw, raw_size);
    sqrl_scratch_give(SQRL_SCRATCH_ZSTD_COMPRESS, ctx, free_compressor);
    if (!ZSTD_isError(rc)) {
        *out_size = rc;
        return SQRL_OK;
    }
    if (ZSTD_getErrorCode(rc) == ZSTD_error_dstSize_tooSmall)
        return sqrl_codec_no_room("zstd", out_capacity, err);
    if (ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "zstd: no memory for its state");
    return sqrl_error_set(err, SQRL_E_INVALID, "zstd: %s", ZSTD_getErrorName(rc));
}

/* Where decoding went wrong: the offset of the first frame that is not whole in itself.
 */
static uint64_t first_bad_frame(const uint8_t *in, size_t in_size) {
    size_t at = 0;
    while (at < in_size) {
        size_t n = ZSTD_findFrameCompressedSize(in + at, in_size - at);
        if (ZSTD_isError(n) || n == 0 || n >= in_size - at)
            break;
        at += n;
    }
    return at;
}

/* As far as its first bytes tell: does a frame, or a part of one, begin here? */
static bool begins_frame(const uint8_t *at, size_t size) {
    uint8_t magic[4] = {0x28, 0xB5, 0x2F, 0xFD}, skippable[4] = {0x50, 0x2A, 0x4D, 0x18};
    size_t n = SQRL_MIN(size, sizeof(magic));
    skippable[0] = (uint8_t)(0x50 | (n > 0 ? at[0] & 0x0F : 0));
    return memcmp(at, magic, n) == 0 || memcmp(at, skippable, n) == 0;
}

static int zstd_decompress(const uint8_t *in, size_t in_size, uint8_t *raw,
                           size_t raw_size, struct sqrl_error *err) {
    if (in_size == 0)
        return sqrl_codec_cut("zstd", 0, err);
    ZSTD_DCtx *ctx = sqrl_scratch_take(SQRL_SCRATCH_ZSTD_DECOMPRESS);
    if (!ctx)
        ctx = ZSTD_createDCtx();
    if (!ctx)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "zstd: no memory for its state");
    uint8_t nothing;
    size_t rc =
        ZSTD_decompressDCtx(ctx, raw_size ? raw : &nothing, raw_size, in, in_size);
    sqrl_scratch_give(SQRL_SCRATCH_ZSTD_DECOMPRESS, ctx, free_decompressor);
    if (rc == raw_size)
        return SQRL_OK;
    if (!ZSTD_isError(rc)) {
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "zstd: the frame holds %zu bytes where %zu are expected",
                              rc, raw_size);
    }
    uint64_t offset = first_bad_frame(in, in_size);
    if (ZSTD_getErrorCode(rc) == ZSTD_error_dstSize_tooSmall) {
        return sqrl_error_set(
            err, SQRL_E_CORRUPT,
            "zstd: the frame at offset %llu holds more than the %zu bytes "
            "that are expected",
            (unsigned long long)offset, raw_size);
    }
    if (offset > 0 && !begins_frame(in + offset, in_size - (size_t)offset)) {
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "zstd: foreign bytes behind the frame, at offset %llu",
                              (unsigned long long)offset);
    }
    if (ZSTD_getErrorCode(rc) == ZSTD_error_srcSize_wrong && offset < in_size) {
        return sqrl_error_set(
            err, SQRL_E_TRUNCATED,
            "zstd: the frame at offset %llu is cut short: the data end at "
            "offset %zu; get the file again",
            (unsigned long long)offset, in_size);
    }
    return zstd_problem(rc, offset, err);
}

static bool zstd_sniff(const uint8_t *magic, size_t size) {
    return size >= 4 && sqrl_load_le32(magic) == ZSTD_MAGIC;
}

/* --- streams --- */

struct decoder {
    ZSTD_DCtx *ctx;
    struct sqrl_frames frames;
};

static int zstd_decoder_open(void *state, struct sqrl_error *err) {
    struct decoder *d = state;
    d->ctx = ZSTD_createDCtx();
    if (!d->ctx)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "zstd: no memory for its state");
    size_t rc = ZSTD_DCtx_setParameter(d->ctx, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    return ZSTD_isError(rc) ? zstd_problem(rc, 0, err) : SQRL_OK;
}

/* The magic was taken already: hand it to libzstd, which only stores it. */
static int begin_frame(void *state, uint64_t offset, struct sqrl_error *err) {
    struct decoder *d = state;
    uint8_t magic[4], nothing;
    sqrl_store_le32(magic, ZSTD_MAGIC);
    ZSTD_DCtx_reset(d->ctx, ZSTD_reset_session_only);
    ZSTD_inBuffer in = {magic, sizeof(magic), 0};
    ZSTD_outBuffer out = {&nothing, 0, 0};
    size_t rc = ZSTD_decompressStream(d->ctx, &out, &in);
    return ZSTD_isError(rc) ? zstd_problem(rc, offset, err) : SQRL_OK;
}

static int step_frame(void *state, struct sqrl_frame_step *step, struct sqrl_error *err) {
    struct decoder *d = state;
    ZSTD_inBuffer in = {step->in, step->in_size, 0};
    ZSTD_outBuffer out = {step->out, step->out_size, 0};
    size_t rc = ZSTD_decompressStream(d->ctx, &out, &in);
    step->taken = in.pos;
    step->given = out.pos;
    step->ended = rc == 0;
    return ZSTD_isError(rc) ? zstd_problem(rc, step->offset + in.pos, err) : SQRL_OK;
}

static int zstd_decode(void *state, struct sqrl_codec_io *io, struct sqrl_error *err) {
    static const struct sqrl_frame_engine engine = {"zstd", ZSTD_MAGIC, begin_frame,
                                                    step_frame};
    return sqrl_frames_decode(&((struct decoder *)state)->frames, &engine, state, io,
                              err);
}

static void zstd_decoder_close(void *state) {
    struct decoder *d = state;
    ZSTD_freeDCtx(d->ctx);
    d->ctx = NULL;
}

const struct sqrl_codec_ops sqrl_codec_zstd = {
    .size = sizeof(struct sqrl_codec_ops),
    .api = SQRL_CODEC_API,
    .name = "zstd",
    .doc = "Zstandard frames",
    .suffix = ".zst",
    .level_min = -7,
    .level_max = 19,
    .level_default = 3,
    .bound = zstd_bound,
    .compress = zstd_compress,
    .store = zstd_store,
    .decompress = zstd_decompress,
    .sniff = zstd_sniff,
    .decoder_size = sizeof(struct decoder),
    .decoder_open = zstd_decoder_open,
    .decode = zstd_decode,
    .decoder_close = zstd_decoder_close,
    .library = "zstd " ZSTD_VERSION_STRING,
    .stored_size = stored_size,
    .stored_piece = stored_piece,
    .stored_framing = stored_framing,
};
