/* gzip.c - the gzip format (RFC 1952) over a deflate engine.
 *
 * The framing is our own, so that both engines behave alike: header with its optional
 * fields and their CRC16, trailer, members in a row, zero padding behind them. One state
 * machine serves streams and whole frames. */
#include "codec/codec.h"

#define STORED_MAX ((size_t)65535)
#define HEADER_SIZE 10
#define TRAILER_SIZE 8

enum {
    FLAG_CRC = 2,
    FLAG_EXTRA = 4,
    FLAG_NAME = 8,
    FLAG_COMMENT = 16,
    FLAG_RESERVED = 0xE0
};

enum phase { AT_EDGE, IN_HEADER, IN_BODY, IN_TRAILER };
enum header_part { FIXED, EXTRA_SIZE, EXTRA, NAME, COMMENT, HEADER_CRC, HEADER_END };

struct decoder {
    const struct sqrl_deflate_engine *engine;
    void *inflate;
    enum phase phase;
    bool whole;
    uint64_t members;
    uint64_t member_offset;
    /* header */
    enum header_part part;
    uint8_t bytes[HEADER_SIZE]; /* the part that is being gathered; the trailer later */
    unsigned have;
    uint8_t flags;
    unsigned extra_left;
    uint32_t header_crc;
    /* body */
    uint32_t crc;
    uint32_t size; /* modulo 2^32, as in the trailer */
    bool resumed;  /* begun within this member */
};

/* --- header --- */

/* The next part that the flags ask for. */
static void next_part(struct decoder *d) {
    static const uint8_t needs[] = {[EXTRA_SIZE] = FLAG_EXTRA,
                                    [NAME] = FLAG_NAME,
                                    [COMMENT] = FLAG_COMMENT,
                                    [HEADER_CRC] = FLAG_CRC};
    if (d->part == EXTRA_SIZE && (d->flags & FLAG_EXTRA)) {
        d->part = EXTRA;
    } else {
        do
            d->part++;
        while (d->part < HEADER_END && !(d->flags & needs[d->part]));
    }
    d->have = 0;
    if (d->part == EXTRA && d->extra_left == 0)
        next_part(d); /* once: it leads away from EXTRA */
}

static const char *check_fixed(struct decoder *d) {
    if (d->have >= 2 && d->bytes[1] != 0x8B)
        return "it does not begin with 1f 8b";
    if (d->have >= 3 && d->bytes[2] != 8)
        return "its compression method is not deflate";
    if (d->have >= 4 && (d->bytes[3] & FLAG_RESERVED))
        return "reserved header flags are set";
    return NULL;
}

/* One header byte; returns what is wrong with it, or NULL. */
static const char *header_byte(struct decoder *d, uint8_t byte) {
    if (d->part != HEADER_CRC && d->part != FIXED)
        d->header_crc = sqrl_crc32(d->header_crc, &byte, 1);
    switch (d->part) {
    case FIXED:
        d->bytes[d->have++] = byte;
        if (d->have == HEADER_SIZE) {
            d->flags = d->bytes[3];
            d->header_crc = sqrl_crc32(0, d->bytes, HEADER_SIZE);
            next_part(d);
            return NULL;
        }
        return check_fixed(d);
    case EXTRA_SIZE:
        d->bytes[d->have++] = byte;
        if (d->have == 2) {
            d->extra_left = d->bytes[0] | (unsigned)d->bytes[1] << 8;
            next_part(d);
        }
        return NULL;
    case EXTRA:
        if (--d->extra_left == 0)
            next_part(d);
        return NULL;
    case NAME:
    case COMMENT:
        if (byte == 0)
            next_part(d);
        return NULL;
    default:
        d->bytes[d->have++] = byte;
        if (d->have < 2)
            return NULL;
        if ((d->bytes[0] | (unsigned)d->bytes[1] << 8) != (d->header_crc & 0xFFFF))
            return "the header's CRC16 is wrong";
        next_part(d);
        return NULL;
    }
}

static int damaged(const struct decoder *d, const struct sqrl_codec_io *io,
                   const char *what, struct sqrl_error *err) {
    return sqrl_error_set(
        err, SQRL_E_CORRUPT,
        "gzip: damaged data near offset %llu (member at offset %llu): %s; "
        "get the file again",
        (unsigned long long)io->in_total, (unsigned long long)d->member_offset, what);
}

/* Every phase returns SQRL_OK and sets *waits when it can't go on with what it has. */
static int starved(struct sqrl_codec_io *io, bool *waits, struct sqrl_error *err) {
    *waits = true;
    return io->in_end && io->in_size == 0 ? sqrl_codec_cut("gzip", io->in_total, err)
                                          : SQRL_OK;
}

static int step_edge(struct decoder *d, struct sqrl_codec_io *io, bool *waits,
                     struct sqrl_error *err) {
    while (d->members > 0 && io->in_size > 0 && *io->in == 0)
        sqrl_io_consume(io, 1);
    if (io->in_size == 0) {
        if (d->members == 0)
            return starved(io, waits, err);
        io->out_end = io->in_end;
        *waits = true;
        return SQRL_OK;
    }
    if (*io->in == 0x1F) {
        d->phase = IN_HEADER;
        d->part = FIXED;
        d->have = 0;
        d->member_offset = io->in_total;
        d->members++;
        return SQRL_OK;
    }
    if (d->members == 0) {
        return sqrl_error_set(
            err, d->whole ? SQRL_E_CORRUPT : SQRL_E_FORMAT,
            "not gzip data: it begins with %02x where 1f 8b is expected", *io->in);
    }
    return sqrl_error_set(
        err, SQRL_E_CORRUPT,
        "gzip: foreign bytes behind member %llu, at offset %llu: the file is "
        "damaged or something was appended to it",
        (unsigned long long)d->members, (unsigned long long)io->in_total);
}

static int step_header(struct decoder *d, struct sqrl_codec_io *io, bool *waits,
                       struct sqrl_error *err) {
    while (io->in_size > 0 && d->part != HEADER_END) {
        uint8_t byte = *io->in;
        const char *problem = header_byte(d, byte);
        if (problem)
            return damaged(d, io, problem, err);
        sqrl_io_consume(io, 1);
    }
    if (d->part != HEADER_END)
        return starved(io, waits, err);
    d->engine->inflate_reset(d->inflate);
    d->phase = IN_BODY;
    d->crc = 0;
    d->size = 0;
    return SQRL_OK;
}

static int step_body(struct decoder *d, struct sqrl_codec_io *io, bool *waits,
                     struct sqrl_error *err) {
    struct sqrl_inflate_step step = {
        .in = io->in, .in_size = io->in_size, .out = io->out, .out_size = io->out_size};
    int rc = d->engine->inflate(d->inflate, &step);
    size_t in = io->in_size - step.in_size, out = io->out_size - step.out_size;
    sqrl_io_consume(io, in);
    if (rc == SQRL_E_NO_MEMORY)
        return sqrl_error_set(err, rc, "gzip: no memory for the inflate state");
    if (rc != SQRL_OK)
        return damaged(d, io, step.problem, err);
    if (out > 0) {
        d->crc = sqrl_crc32(d->crc, io->out, out);
        d->size += (uint32_t)out;
        io->out += out;
        io->out_size -= out;
    }
    if (step.done) {
        d->phase = IN_TRAILER;
        d->have = step.back_size;
        memcpy(d->bytes, step.back, step.back_size);
        return SQRL_OK;
    }
    if (in > 0 || out > 0)
        return SQRL_OK;
    *waits = true;
    return io->out_size > 0 ? starved(io, waits, err) : SQRL_OK;
}

static int step_trailer(struct decoder *d, struct sqrl_codec_io *io, bool *waits,
                        struct sqrl_error *err) {
    while (d->have < TRAILER_SIZE && io->in_size > 0) {
        d->bytes[d->have++] = *io->in;
        sqrl_io_consume(io, 1);
    }
    if (d->have < TRAILER_SIZE)
        return starved(io, waits, err);
    if (!d->resumed && sqrl_load_le32(d->bytes) != d->crc)
        return damaged(d, io, "the content's CRC32 is wrong", err);
    if (!d->resumed && sqrl_load_le32(d->bytes + 4) != d->size)
        return damaged(d, io, "the content's length is wrong", err);
    d->resumed = false;
    d->phase = AT_EDGE;
    return SQRL_OK;
}

static int gzip_decode(void *state, struct sqrl_codec_io *io, struct sqrl_error *err) {
    struct decoder *d = state;
    bool waits = false;
    int rc = SQRL_OK;
    io->out_end = false;
    while (rc == SQRL_OK && !waits) {
        switch (d->phase) {
        case AT_EDGE:
            rc = step_edge(d, io, &waits, err);
            break;
        case IN_HEADER:
            rc = step_header(d, io, &waits, err);
            break;
        case IN_BODY:
            rc = step_body(d, io, &waits, err);
            break;
        case IN_TRAILER:
            rc = step_trailer(d, io, &waits, err);
            break;
        }
    }
    return rc;
}

static int open_with(struct decoder *d, const struct sqrl_deflate_engine *engine,
                     struct sqrl_error *err) {
    d->engine = engine;
    d->inflate = engine->inflate_open(err);
    return d->inflate ? SQRL_OK : SQRL_E_NO_MEMORY;
}

void sqrl_gzip_resume(void *state, unsigned bits, unsigned value, const uint8_t *window,
                      size_t size) {
    struct decoder *d = state;
    d->engine->inflate_resume(d->inflate, bits, value, window, size);
    d->members = 1;
    d->phase = IN_BODY;
    d->resumed = true;
}

static void gzip_decoder_close(void *state) {
    struct decoder *d = state;
    if (d->inflate)
        d->engine->inflate_close(d->inflate);
    d->inflate = NULL;
}

static int decompress_with(const struct sqrl_deflate_engine *engine, const uint8_t *in,
                           size_t in_size, uint8_t *raw, size_t raw_size,
                           struct sqrl_error *err) {
    struct decoder d = {.whole = true};
    struct sqrl_codec_io io = {
        .in = in, .in_size = in_size, .out = raw, .out_size = raw_size, .in_end = true};
    int rc = open_with(&d, engine, err);
    if (rc == SQRL_OK)
        rc = gzip_decode(&d, &io, err);
    gzip_decoder_close(&d);
    if (rc != SQRL_OK)
        return rc;
    if (!io.out_end) {
        return sqrl_error_set(
            err, SQRL_E_CORRUPT,
            "gzip: more than the %zu bytes that are expected (member at "
            "offset %llu)",
            raw_size, (unsigned long long)d.member_offset);
    }
    if (io.out_size > 0) {
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "gzip: the data hold %zu bytes where %zu are expected",
                              raw_size - io.out_size, raw_size);
    }
    return SQRL_OK;
}

/* --- writing --- */

static uint64_t stored_blocks(uint64_t raw_size) {
    return raw_size == 0 ? 1 : raw_size / STORED_MAX + (raw_size % STORED_MAX != 0);
}

static uint64_t stored_size(uint64_t raw_size) {
    return HEADER_SIZE + stored_blocks(raw_size) * 5 + raw_size + TRAILER_SIZE;
}

static bool stored_piece(uint64_t raw_size, uint64_t i, struct sqrl_stored_piece *piece) {
    *piece = (struct sqrl_stored_piece){0, 0, 0};
    if (raw_size == 0 || i >= stored_blocks(raw_size))
        return false;
    piece->raw_offset = i * STORED_MAX;
    piece->offset = HEADER_SIZE + i * (STORED_MAX + 5) + 5;
    piece->size = (size_t)SQRL_MIN((uint64_t)STORED_MAX, raw_size - piece->raw_offset);
    return true;
}

static size_t gzip_bound(size_t raw) {
    return (size_t)stored_size(raw);
}

/* No name and no time: the same content gives the same file. XFL as zlib sets it. */
static void write_header(uint8_t *out, int level) {
    static const uint8_t header[HEADER_SIZE] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255};
    memcpy(out, header, HEADER_SIZE);
    out[8] = level == 9 ? 2 : level == 1 ? 4 : 0;
}

static void write_trailer(uint8_t *out, const uint8_t *raw, size_t raw_size) {
    sqrl_store_le32(out, sqrl_crc32(0, raw, raw_size));
    sqrl_store_le32(out + 4, (uint32_t)raw_size);
}

static int gzip_store(const uint8_t *raw, size_t raw_size, uint8_t *out,
                      size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    *out_size = 0;
    if (stored_size(raw_size) > out_capacity)
        return sqrl_codec_no_room("gzip", out_capacity, err);
    write_header(out, 0);
    uint8_t *at = out + HEADER_SIZE;
    size_t left = raw_size;
    do {
        uint16_t n = (uint16_t)SQRL_MIN(left, STORED_MAX);
        at[0] = n == left; /* last block; type 0 */
        at[1] = (uint8_t)n;
        at[2] = (uint8_t)(n >> 8);
        at[3] = (uint8_t)~at[1];
        at[4] = (uint8_t)~at[2];
        if (n > 0)
            memcpy(at + 5, raw + (raw_size - left), n);
        at += 5 + n;
        left -= n;
    } while (left > 0);
    write_trailer(at, raw, raw_size);
    *out_size = (size_t)(at + TRAILER_SIZE - out);
    return SQRL_OK;
}

static int compress_with(const struct sqrl_deflate_engine *engine, int level,
                         const uint8_t *raw, size_t raw_size, uint8_t *out,
                         size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    size_t framing = HEADER_SIZE + TRAILER_SIZE, body = 0;
    *out_size = 0;
    if (sqrl_codec_check_level(&sqrl_codec_gzip, level, err) != SQRL_OK)
        return SQRL_E_INVALID;
    if (out_capacity <= framing)
        return sqrl_codec_no_room("gzip", out_capacity, err);
    /* More than stored blocks take is not worth having: then they are what is written. */
    size_t room = SQRL_MIN(out_capacity, gzip_bound(raw_size)) - framing;
    int rc = engine->deflate(level, raw, raw_size, out + HEADER_SIZE, room, &body, err);
    if (rc == SQRL_E_LIMIT)
        return gzip_store(raw, raw_size, out, out_capacity, out_size, err);
    if (rc != SQRL_OK)
        return rc;
    write_header(out, level);
    write_trailer(out + HEADER_SIZE + body, raw, raw_size);
    *out_size = framing + body;
    return SQRL_OK;
}

static bool gzip_sniff(const uint8_t *magic, size_t size) {
    return size >= 3 && magic[0] == 0x1F && magic[1] == 0x8B && magic[2] == 8;
}

/* --- whole files --- */

#if SQRL_HAVE_LIBDEFLATE
/* Deflate packs at most 1,032 bytes into one. A file of several members ends in the size
 * of the last one alone, which mostly is less than the file's. */
#define RATIO_MAX 1032u

static uint64_t whole_size(const uint8_t *in, size_t in_size) {
    if (in_size < HEADER_SIZE + TRAILER_SIZE || !gzip_sniff(in, in_size) ||
        in[3] &
            (FLAG_CRC | FLAG_RESERVED)) /* libdeflate doesn't check the header's CRC */
        return 0;
    uint64_t size = sqrl_load_le32(in + in_size - 4);
    return size >= in_size / 2 && size / RATIO_MAX <= in_size ? size : 0;
}
#define WHOLE .whole_size = whole_size, .whole = sqrl_libdeflate_member,
#else
#define WHOLE
#endif

/* --- the tables --- */

/* The calls of one ops table over one engine. */
#define GZIP_CALLS(engine_)                                                              \
    static int engine_##_open(void *state, struct sqrl_error *err) {                     \
        return open_with(state, &sqrl_engine_##engine_, err);                            \
    }                                                                                    \
    static int engine_##_decompress(const uint8_t *in, size_t in_size, uint8_t *raw,     \
                                    size_t raw_size, struct sqrl_error *err) {           \
        return decompress_with(&sqrl_engine_##engine_, in, in_size, raw, raw_size, err); \
    }                                                                                    \
    static int engine_##_compress(int level, const uint8_t *raw, size_t raw_size,        \
                                  uint8_t *out, size_t out_capacity, size_t *out_size,   \
                                  struct sqrl_error *err) {                              \
        return compress_with(&sqrl_engine_##engine_, level, raw, raw_size, out,          \
                             out_capacity, out_size, err);                               \
    }

#define GZIP_TABLE(engine_, library_)                                                    \
    {                                                                                    \
        .size = sizeof(struct sqrl_codec_ops), .api = SQRL_CODEC_API, .name = "gzip",    \
        .doc = "gzip members (deflate)", .suffix = ".gz", .level_min = 1,                \
        .level_max = 9, .level_default = 6, .bound = gzip_bound,                         \
        .compress = engine_##_compress, .store = gzip_store,                             \
        .decompress = engine_##_decompress, .sniff = gzip_sniff,                         \
        .decoder_size = sizeof(struct decoder), .decoder_open = engine_##_open,          \
        .decode = gzip_decode, .decoder_close = gzip_decoder_close, .library = library_, \
        .stored_size = stored_size, .stored_piece = stored_piece, WHOLE                  \
    }

GZIP_CALLS(zlib)
#if SQRL_HAVE_ISAL
GZIP_CALLS(isal)
const struct sqrl_codec_ops sqrl_codec_gzip = GZIP_TABLE(isal, sqrl_isal_library);
const struct sqrl_codec_ops sqrl_codec_gzip_zlib = GZIP_TABLE(zlib, sqrl_zlib_library);
#else
const struct sqrl_codec_ops sqrl_codec_gzip = GZIP_TABLE(zlib, sqrl_zlib_library);
#endif
