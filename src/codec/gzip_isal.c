/* gzip_isal.c - raw deflate by ISA-L (igzip): all reading, and writing at levels 1 to 3.
 *
 * ISA-L reads ahead into a bit buffer of 64 bits and, as a stream, into an output window
 * of its own. So a member's last step can find up to 8 bytes taken that lie behind the
 * last block: they are handed back in step->back (gzip's trailer has 8, so that is never
 * more). */
#include "codec/codec.h"

#if SQRL_HAVE_ISAL
#include <isa-l.h>
#include <stdlib.h>

#define PIECE ((size_t)1 << 30) /* ISA-L counts in uint32_t */
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

/* --- inflate --- */

static void *isal_open(struct sqrl_error *err) {
    struct inflate_state *s = sqrl_scratch_take(SQRL_SCRATCH_ISAL_INFLATE);
    if (!s)
        s = sqrl_calloc(1, sizeof(*s), "inflate state", err);
    if (s)
        isal_inflate_init(s);
    return s;
}

static void isal_close(void *state) {
    sqrl_scratch_give(SQRL_SCRATCH_ISAL_INFLATE, state, free);
}

static void isal_reset(void *state) {
    isal_inflate_init(state);
}

static void isal_resume(void *state, unsigned bits, unsigned value, const uint8_t *window,
                        size_t size) {
    struct inflate_state *s = state;
    isal_inflate_init(s);
    s->read_in = value;
    s->read_in_length = (int32_t)bits;
    if (size)
        isal_inflate_set_dict(s, (uint8_t *)(uintptr_t)window, (uint32_t)size);
}

static const char *problem_text(int rc) {
    switch (rc) {
    case ISAL_INVALID_BLOCK:
        return "invalid deflate block";
    case ISAL_INVALID_SYMBOL:
        return "invalid deflate symbol";
    case ISAL_INVALID_LOOKBACK:
        return "invalid distance: it points before the data";
    default:
        return "invalid deflate data";
    }
}

/* Moves the bytes that the bit buffer holds whole out of it. */
static void hand_back(struct inflate_state *s, struct sqrl_inflate_step *step) {
    unsigned bits = s->read_in_length > 0 ? (unsigned)s->read_in_length : 0;
    uint64_t held = s->read_in >> (bits & 7);
    step->back_size = bits / 8;
    for (unsigned i = 0; i < step->back_size; i++) {
        step->back[i] = (uint8_t)held;
        held >>= 8;
    }
}

static int isal_step(void *state, struct sqrl_inflate_step *step) {
    struct inflate_state *s = state;
    uint8_t nothing = 0;
    int rc;
    bool moved;
    do {
        uint32_t in = (uint32_t)SQRL_MIN(step->in_size, PIECE);
        uint32_t out = (uint32_t)SQRL_MIN(step->out_size, PIECE);
        s->next_in = in ? (uint8_t *)(uintptr_t)step->in : &nothing;
        s->avail_in = in;
        s->next_out = out ? step->out : &nothing;
        s->avail_out = out;
        rc = isal_inflate(s);
        /* On an invalid distance it may count a byte more than there is. */
        in -= s->avail_in <= in ? s->avail_in : 0;
        out -= s->avail_out;
        if (in > 0)
            step->in += in;
        if (out > 0)
            step->out += out;
        step->in_size -= in;
        step->out_size -= out;
        moved = in > 0 || out > 0;
    } while (rc == ISAL_DECOMP_OK && s->block_state != ISAL_BLOCK_FINISH && moved &&
             step->out_size > 0);
    if (rc < 0) {
        step->problem = problem_text(rc);
        return SQRL_E_CORRUPT;
    }
    if (s->block_state == ISAL_BLOCK_FINISH) {
        step->done = true;
        hand_back(s, step);
    }
    return SQRL_OK;
}

/* --- deflate --- */

struct deflater {
    struct isal_zstream stream;
    uint8_t level_memory[SQRL_MAX(
        ISAL_DEF_LVL3_DEFAULT, SQRL_MAX(ISAL_DEF_LVL1_DEFAULT, ISAL_DEF_LVL2_DEFAULT))];
};

static int isal_deflate_all(int level, const uint8_t *raw, size_t raw_size, uint8_t *out,
                            size_t out_capacity, size_t *out_size,
                            struct sqrl_error *err) {
    *out_size = 0;
    if (level > ISAL_DEF_MAX_LEVEL)
        return sqrl_engine_zlib.deflate(level, raw, raw_size, out, out_capacity, out_size,
                                        err);
    struct deflater *d = sqrl_scratch_take(SQRL_SCRATCH_ISAL_DEFLATE);
    if (!d)
        d = sqrl_malloc(sizeof(*d), "deflate state", err);
    if (!d)
        return SQRL_E_NO_MEMORY;
    struct isal_zstream *z = &d->stream;
    size_t room = out_capacity;
    uint8_t nothing = 0;
    isal_deflate_init(z);
    z->level = (uint32_t)level;
    z->level_buf = d->level_memory;
    z->level_buf_size = sizeof(d->level_memory);
    z->flush = NO_FLUSH;
    z->next_in = raw_size ? (uint8_t *)(uintptr_t)raw : &nothing;
    z->next_out = out;
    int rc;
    do {
        uint32_t in = (uint32_t)SQRL_MIN(raw_size, PIECE);
        uint32_t give = (uint32_t)SQRL_MIN(room, PIECE);
        z->avail_in = in;
        z->avail_out = give;
        z->end_of_stream = in == raw_size;
        rc = isal_deflate(z);
        raw_size -= in - z->avail_in;
        room -= give - z->avail_out;
    } while (rc == COMP_OK && z->internal_state.state != ZSTATE_END && room > 0);
    bool ended = rc == COMP_OK && z->internal_state.state == ZSTATE_END;
    sqrl_scratch_give(SQRL_SCRATCH_ISAL_DEFLATE, d, free);
    if (!ended)
        return SQRL_E_LIMIT;
    *out_size = out_capacity - room;
    return SQRL_OK;
}

uint32_t sqrl_isal_crc32(uint32_t crc, const void *data, size_t size) {
    return size ? crc32_gzip_refl(crc, data, size) : crc;
}

#if SQRL_HAVE_LIBDEFLATE
#define WITH_LIBDEFLATE " and libdeflate"
#else
#define WITH_LIBDEFLATE ""
#endif

const char sqrl_isal_library[] = "isa-l " TEXT(ISAL_MAJOR_VERSION) "." TEXT(
    ISAL_MINOR_VERSION) "." TEXT(ISAL_PATCH_VERSION) WITH_LIBDEFLATE;
const struct sqrl_deflate_engine sqrl_engine_isal = {
    .inflate_open = isal_open,
    .inflate_close = isal_close,
    .inflate_reset = isal_reset,
    .inflate = isal_step,
    .inflate_resume = isal_resume,
    .deflate = isal_deflate_all,
};
#endif
