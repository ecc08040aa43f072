/* edge.c - streams of zstd and lz4 frames: the frames themselves are the libraries', this
 * file is what stands between them (zero padding, skippable frames, which both formats
 * have in the same form, the next frame or the end) and when to wait for more. */
#include "codec/codec.h"

#define SKIPPABLE_MAGIC 0x184D2A50u /* to ...5F */

static void gather(struct sqrl_frames *edge, struct sqrl_codec_io *io, unsigned want) {
    while (edge->have < want && io->in_size > 0) {
        edge->bytes[edge->have++] = *io->in;
        sqrl_io_consume(io, 1);
    }
}

static void pass(struct sqrl_frames *edge, struct sqrl_codec_io *io) {
    size_t n = SQRL_MIN(edge->skip, (uint64_t)io->in_size);
    sqrl_io_consume(io, n);
    edge->skip -= n;
    if (edge->skip == 0)
        edge->skipping = false;
}

static int alien(const struct sqrl_frames *edge, const struct sqrl_codec_io *io,
                 const char *codec, struct sqrl_error *err) {
    if (edge->begun == 0) {
        return sqrl_error_set(
            err, SQRL_E_FORMAT, "not %s data: it begins with %02x %02x %02x %02x", codec,
            edge->bytes[0], edge->bytes[1], edge->bytes[2], edge->bytes[3]);
    }
    return sqrl_error_set(
        err, SQRL_E_CORRUPT,
        "%s: foreign bytes behind frame %llu, at offset %llu: the file is "
        "damaged or something was appended to it",
        codec, (unsigned long long)edge->begun,
        (unsigned long long)(io->in_total - edge->have));
}

enum edge { EDGE_WAIT, EDGE_FRAME, EDGE_END };

/* At an edge with no input left. */
static int starved(struct sqrl_frames *edge, struct sqrl_codec_io *io, const char *codec,
                   enum edge *result, struct sqrl_error *err) {
    if (!io->in_end) {
        *result = EDGE_WAIT;
        return SQRL_OK;
    }
    if (edge->have > 0 || edge->skipping || edge->begun == 0)
        return sqrl_codec_cut(codec, io->in_total, err);
    io->out_end = true;
    *result = EDGE_END;
    return SQRL_OK;
}

/* Passes what stands between frames. On EDGE_FRAME a magic has been consumed. */
static int step_edge(struct sqrl_frames *edge, const struct sqrl_frame_engine *engine,
                     struct sqrl_codec_io *io, enum edge *result,
                     struct sqrl_error *err) {
    for (;;) {
        if (edge->skipping) {
            pass(edge, io);
            if (edge->skipping)
                return starved(edge, io, engine->codec, result, err);
        }
        while (edge->have == 0 && edge->begun > 0 && io->in_size > 0 && *io->in == 0)
            sqrl_io_consume(io, 1);
        gather(edge, io, 4);
        if (edge->have < 4)
            return starved(edge, io, engine->codec, result, err);
        uint32_t found = sqrl_load_le32(edge->bytes);
        if (found == engine->magic) {
            edge->have = 0;
            edge->begun++;
            *result = EDGE_FRAME;
            return SQRL_OK;
        }
        if ((found & 0xFFFFFFF0u) != SKIPPABLE_MAGIC)
            return alien(edge, io, engine->codec, err);
        gather(edge, io, 8);
        if (edge->have < 8)
            return starved(edge, io, engine->codec, result, err);
        edge->skip = sqrl_load_le32(edge->bytes + 4);
        edge->skipping = edge->skip > 0;
        edge->have = 0;
        edge->begun++;
    }
}

static int step_frame(struct sqrl_frames *frames, const struct sqrl_frame_engine *engine,
                      void *state, struct sqrl_codec_io *io, bool *waits,
                      struct sqrl_error *err) {
    uint8_t nothing;
    if (io->in_size == 0 && !frames->pending) {
        *waits = true;
        return io->in_end ? sqrl_codec_cut(engine->codec, io->in_total, err) : SQRL_OK;
    }
    struct sqrl_frame_step step = {.in = io->in ? io->in : &nothing,
                                   .in_size = io->in_size,
                                   .out = io->out_size ? io->out : &nothing,
                                   .out_size = io->out_size,
                                   .offset = io->in_total};
    int rc = engine->step(state, &step, err);
    sqrl_io_consume(io, step.taken);
    if (rc != SQRL_OK)
        return rc;
    if (step.given > 0)
        io->out += step.given;
    io->out_size -= step.given;
    frames->pending = !step.ended && io->out_size == 0;
    frames->in_frame = !step.ended;
    *waits = !step.ended && step.taken == 0 && step.given == 0;
    if (*waits && io->in_end && io->in_size == 0 && io->out_size > 0)
        return sqrl_codec_cut(engine->codec, io->in_total, err);
    return SQRL_OK;
}

int sqrl_frames_decode(struct sqrl_frames *frames, const struct sqrl_frame_engine *engine,
                       void *state, struct sqrl_codec_io *io, struct sqrl_error *err) {
    int rc = SQRL_OK;
    bool waits = false;
    io->out_end = false;
    while (rc == SQRL_OK && !waits) {
        enum edge edge;
        if (frames->in_frame) {
            rc = step_frame(frames, engine, state, io, &waits, err);
            continue;
        }
        rc = step_edge(frames, engine, io, &edge, err);
        waits = rc == SQRL_OK && edge != EDGE_FRAME;
        if (rc == SQRL_OK && !waits) {
            frames->in_frame = true;
            frames->pending = false;
            rc = engine->begin(state, io->in_total - 4, err);
        }
    }
    return rc;
}
