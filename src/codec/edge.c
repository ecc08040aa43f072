/* edge.c - what may stand between the frames of a zstd or lz4 stream: zero padding,
 * skippable frames (both formats have the same), the next frame or the end. */
#include "codec/codec.h"

#define SKIPPABLE_MAGIC 0x184D2A50u /* to ...5F */

static void gather(struct sqrl_edge *edge, struct sqrl_codec_io *io, unsigned want) {
    while (edge->have < want && io->in_size > 0) {
        edge->bytes[edge->have++] = *io->in;
        sqrl_io_consume(io, 1);
    }
}

static void pass(struct sqrl_edge *edge, struct sqrl_codec_io *io) {
    size_t n = SQRL_MIN(edge->skip, (uint64_t)io->in_size);
    sqrl_io_consume(io, n);
    edge->skip -= n;
    if (edge->skip == 0)
        edge->skipping = false;
}

static int alien(const struct sqrl_edge *edge, const struct sqrl_codec_io *io,
                 const char *codec, struct sqrl_error *err) {
    if (edge->frames == 0) {
        return sqrl_error_set(
            err, SQRL_E_FORMAT, "not %s data: it begins with %02x %02x %02x %02x", codec,
            edge->bytes[0], edge->bytes[1], edge->bytes[2], edge->bytes[3]);
    }
    return sqrl_error_set(
        err, SQRL_E_CORRUPT,
        "%s: foreign bytes behind frame %llu, at offset %llu: the file is "
        "damaged or something was appended to it",
        codec, (unsigned long long)edge->frames,
        (unsigned long long)(io->in_total - edge->have));
}

/* At an edge with no input left. */
static int starved(struct sqrl_edge *edge, struct sqrl_codec_io *io, const char *codec,
                   enum sqrl_edge_result *result, struct sqrl_error *err) {
    if (!io->in_end) {
        *result = SQRL_EDGE_WAIT;
        return SQRL_OK;
    }
    if (edge->have > 0 || edge->skipping || edge->frames == 0)
        return sqrl_codec_cut(codec, io->in_total, err);
    io->out_end = true;
    *result = SQRL_EDGE_END;
    return SQRL_OK;
}

int sqrl_edge_step(struct sqrl_edge *edge, struct sqrl_codec_io *io, uint32_t magic,
                   const char *codec, enum sqrl_edge_result *result,
                   struct sqrl_error *err) {
    for (;;) {
        if (edge->skipping) {
            pass(edge, io);
            if (edge->skipping)
                return starved(edge, io, codec, result, err);
        }
        while (edge->have == 0 && edge->frames > 0 && io->in_size > 0 && *io->in == 0)
            sqrl_io_consume(io, 1);
        gather(edge, io, 4);
        if (edge->have < 4)
            return starved(edge, io, codec, result, err);
        uint32_t found = sqrl_load_le32(edge->bytes);
        if (found == magic) {
            edge->have = 0;
            edge->frames++;
            *result = SQRL_EDGE_FRAME;
            return SQRL_OK;
        }
        if ((found & 0xFFFFFFF0u) != SKIPPABLE_MAGIC)
            return alien(edge, io, codec, err);
        gather(edge, io, 8);
        if (edge->have < 8)
            return starved(edge, io, codec, result, err);
        edge->skip = sqrl_load_le32(edge->bytes + 4);
        edge->skipping = edge->skip > 0;
        edge->have = 0;
        edge->frames++;
    }
}
