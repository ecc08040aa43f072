/* gzip_zlib.c - raw deflate by zlib: all of gzip where ISA-L is not built in, and the
 * writing levels that ISA-L lacks. */
#include "codec/codec.h"

#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#define PIECE ((size_t)1 << 30) /* zlib counts in unsigned int */

static void *take_memory(void *arg, unsigned count, unsigned size) {
    return sqrl_calloc(count, size, "zlib state", NULL);
}
static void free_memory(void *arg, void *memory) {
    free(memory);
}

static unsigned piece(size_t size) {
    return (unsigned)SQRL_MIN(size, PIECE);
}

/* --- inflate --- */

static void free_inflate(void *arg) {
    inflateEnd(arg);
    free(arg);
}

static void *zlib_inflate_open(struct sqrl_error *err) {
    z_stream *z = sqrl_scratch_take(SQRL_SCRATCH_ZLIB_INFLATE);
    if (z) {
        inflateReset(z);
        return z;
    }
    z = sqrl_calloc(1, sizeof(*z), "inflate state", err);
    if (!z)
        return NULL;
    z->zalloc = take_memory;
    z->zfree = free_memory;
    if (inflateInit2(z, -15) != Z_OK) {
        sqrl_error_set(err, SQRL_E_NO_MEMORY, "gzip: no memory for the inflate state");
        free(z);
        return NULL;
    }
    return z;
}

static void zlib_inflate_close(void *state) {
    sqrl_scratch_give(SQRL_SCRATCH_ZLIB_INFLATE, state, free_inflate);
}

static void zlib_inflate_reset(void *state) {
    inflateReset(state);
}

static void zlib_inflate_resume(void *state, unsigned bits, unsigned value,
                                const uint8_t *window, size_t size) {
    inflateReset(state);
    if (bits)
        inflatePrime(state, (int)bits, (int)value);
    if (size)
        inflateSetDictionary(state, window, (unsigned)size);
}

static int zlib_inflate(void *state, struct sqrl_inflate_step *step) {
    z_stream *z = state;
    uint8_t nothing = 0;
    int rc;
    do {
        unsigned in = piece(step->in_size), out = piece(step->out_size);
        z->next_in = in ? (Bytef *)(uintptr_t)step->in : &nothing;
        z->avail_in = in;
        z->next_out = out ? step->out : &nothing;
        z->avail_out = out;
        rc = inflate(z, Z_NO_FLUSH);
        in -= z->avail_in;
        out -= z->avail_out;
        if (in > 0)
            step->in += in;
        if (out > 0)
            step->out += out;
        step->in_size -= in;
        step->out_size -= out;
    } while (rc == Z_OK && step->in_size > 0 && step->out_size > 0);
    if (rc == Z_STREAM_END) {
        step->done = true;
        return SQRL_OK;
    }
    if (rc == Z_OK || rc == Z_BUF_ERROR)
        return SQRL_OK;
    step->problem = z->msg ? z->msg : "zlib refuses it";
    return rc == Z_MEM_ERROR ? SQRL_E_NO_MEMORY : SQRL_E_CORRUPT;
}

/* --- places to go on from --- */

struct sqrl_gzip_scan {
    z_stream z;
    uint8_t last; /* the byte consumed last */
    bool in_member;
    uint64_t given; /* of this member */
};

struct sqrl_gzip_scan *sqrl_gzip_scan_open(struct sqrl_error *err) {
    struct sqrl_gzip_scan *scan = sqrl_calloc(1, sizeof *scan, "inflate state", err);
    if (!scan)
        return NULL;
    scan->z.zalloc = take_memory;
    scan->z.zfree = free_memory;
    if (inflateInit2(&scan->z, 15 + 16) == Z_OK)
        return scan;
    sqrl_error_set(err, SQRL_E_NO_MEMORY, "gzip: no memory for the inflate state");
    free(scan);
    return NULL;
}

void sqrl_gzip_scan_close(struct sqrl_gzip_scan *scan) {
    if (scan)
        inflateEnd(&scan->z);
    free(scan);
}

/* Between members: zero padding is passed over. */
static bool member_begins(struct sqrl_gzip_scan *scan, struct sqrl_codec_io *io) {
    while (io->in_size && *io->in == 0)
        sqrl_io_consume(io, 1);
    if (!io->in_size)
        return false;
    inflateReset(&scan->z);
    scan->in_member = true;
    scan->given = 0;
    return true;
}

int sqrl_gzip_scan_step(struct sqrl_gzip_scan *scan, struct sqrl_codec_io *io,
                        struct sqrl_gzip_place *place, struct sqrl_error *err) {
    z_stream *z = &scan->z;
    *place = (struct sqrl_gzip_place){0};
    if (!scan->in_member && !member_begins(scan, io)) {
        io->out_end = io->in_end;
        return SQRL_OK;
    }
    unsigned in = piece(io->in_size), out = piece(io->out_size);
    z->next_in = (Bytef *)(uintptr_t)io->in;
    z->avail_in = in;
    z->next_out = io->out;
    z->avail_out = out;
    int rc = inflate(z, Z_BLOCK);
    in -= z->avail_in;
    out -= z->avail_out;
    if (in)
        scan->last = io->in[in - 1];
    sqrl_io_consume(io, in);
    io->out += out;
    io->out_size -= out;
    scan->given += out;
    if (rc == Z_STREAM_END) {
        scan->in_member = false;
        place->member = true;
        return SQRL_OK;
    }
    if (rc != Z_OK && rc != Z_BUF_ERROR)
        return sqrl_error_set(err, SQRL_E_CORRUPT, "gzip: %s",
                              z->msg ? z->msg : "zlib refuses it");
    if (rc == Z_BUF_ERROR && io->in_end && !io->in_size && io->out_size)
        return sqrl_error_set(err, SQRL_E_TRUNCATED, "gzip: the file ends within it");
    if ((z->data_type & 128) && !(z->data_type & 64) && scan->given) {
        place->block = true;
        place->bits = (unsigned)z->data_type & 7;
        place->value = place->bits ? scan->last >> (8 - place->bits) : 0;
    }
    return SQRL_OK;
}

/* --- deflate --- */

struct deflater {
    z_stream z;
    int level;
};

static void free_deflate(void *arg) {
    struct deflater *d = arg;
    deflateEnd(&d->z);
    free(d);
}

static struct deflater *open_deflate(int level, struct sqrl_error *err) {
    struct deflater *d = sqrl_scratch_take(SQRL_SCRATCH_ZLIB_DEFLATE);
    if (d && d->level == level && deflateReset(&d->z) == Z_OK)
        return d;
    if (d)
        free_deflate(d);
    d = sqrl_calloc(1, sizeof(*d), "deflate state", err);
    if (!d)
        return NULL;
    d->level = level;
    d->z.zalloc = take_memory;
    d->z.zfree = free_memory;
    if (deflateInit2(&d->z, level, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        sqrl_error_set(err, SQRL_E_NO_MEMORY, "gzip: no memory for the deflate state");
        free(d);
        return NULL;
    }
    return d;
}

static int zlib_deflate(int level, const uint8_t *raw, size_t raw_size, uint8_t *out,
                        size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    *out_size = 0;
    struct deflater *d = open_deflate(level, err);
    if (!d)
        return SQRL_E_NO_MEMORY;
    uint8_t nothing = 0;
    z_stream *z = &d->z;
    size_t room = out_capacity;
    z->next_in = raw_size ? (Bytef *)(uintptr_t)raw : &nothing;
    z->next_out = out;
    int rc = Z_OK;
    do {
        unsigned in = piece(raw_size), give = piece(room);
        z->avail_in = in;
        z->avail_out = give;
        rc = deflate(z, in == raw_size ? Z_FINISH : Z_NO_FLUSH);
        raw_size -= in - z->avail_in;
        room -= give - z->avail_out;
    } while (rc == Z_OK && room > 0);
    sqrl_scratch_give(SQRL_SCRATCH_ZLIB_DEFLATE, d, free_deflate);
    if (rc != Z_STREAM_END)
        return SQRL_E_LIMIT;
    *out_size = out_capacity - room;
    return SQRL_OK;
}

uint32_t sqrl_zlib_crc32(uint32_t crc, const void *data, size_t size) {
    return size ? (uint32_t)crc32_z(crc, data, size) : crc;
}

const char sqrl_zlib_library[] = "zlib " ZLIB_VERSION;
const struct sqrl_deflate_engine sqrl_engine_zlib = {
    .inflate_open = zlib_inflate_open,
    .inflate_close = zlib_inflate_close,
    .inflate_reset = zlib_inflate_reset,
    .inflate = zlib_inflate,
    .inflate_resume = zlib_inflate_resume,
    .deflate = zlib_deflate,
};
