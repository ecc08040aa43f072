#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "support/contract_codec.h"

static const size_t sizes[] = {0,      1,       2,       255,    256,    65534,
                               65535,  65536,   131071,  131072, 131073, 262144,
                               262145, 1000003, 4194304, 4194305};

void contract_codec_fill(uint8_t *out, size_t size, int kind) {
    static const char *const words[] = {"batch ", "shard ", "rank ",
                                        "epoch ", "the ",   "of "};
    uint64_t state = 12345;
    for (size_t i = 0; i < size;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t draw = (uint32_t)(state >> 33);
        if (kind == 0) {
            out[i] = (uint8_t)(i / 1000);
            i++;
        } else if (kind == 1) {
            const char *word = words[draw % 6];
            for (; *word && i < size; i++)
                out[i] = (uint8_t)*word++;
        } else {
            out[i++] = (uint8_t)draw;
        }
    }
}

/* Memory that ends at a page that can't be touched, so that a library without
 * instrumentation is caught too when it reads or writes behind it. */
struct guarded {
    uint8_t *data, *map;
    size_t map_size;
};

static struct guarded guarded_new(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (size + page - 1) / page * page;
    struct guarded g = {.map_size = body + page};
    g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map + body, page, PROT_NONE), 0);
    g.data = g.map + body - size;
    return g;
}

static void guarded_free(struct guarded g) {
    munmap(g.map, g.map_size);
}

static void *state_new(const struct sqrl_codec_ops *codec) {
    size_t size = (codec->decoder_size + 63) / 64 * 64;
    void *state = aligned_alloc(64, size);
    assert_non_null(state);
    memset(state, 0, size);
    return state;
}

int contract_codec_stream(const struct sqrl_codec_ops *codec, const uint8_t *in,
                          size_t in_size, size_t in_step, uint8_t *out, size_t out_size,
                          size_t out_step, size_t *got, struct sqrl_error *err) {
    void *state = state_new(codec);
    struct sqrl_codec_io io = {0};
    size_t fed = 0;
    int rc = codec->decoder_open(state, err);
    *got = 0;
    while (rc == SQRL_OK && !io.out_end) {
        size_t give = in_step ? SQRL_MIN(in_step, in_size - fed) : in_size - fed;
        size_t room = out_step ? SQRL_MIN(out_step, out_size - *got) : out_size - *got;
        io.in = in + fed;
        io.in_size = give;
        io.in_end = fed + give == in_size;
        io.out = out + *got;
        io.out_size = room;
        rc = codec->decode(state, &io, err);
        assert_true(io.in_size <= give && io.out_size <= room);
        fed += give - io.in_size;
        *got += room - io.out_size;
        assert_true(io.in_total == fed);
        if (rc == SQRL_OK && !io.out_end && give == io.in_size && room == io.out_size) {
            if (give == 0 && room > 0 && fed < in_size)
                continue;
            /* Nothing moved: only right when the room is used up. */
            assert_true(room == 0);
            rc = SQRL_E_LIMIT;
        }
    }
    if (rc == SQRL_OK)
        assert_true(fed == in_size);
    codec->decoder_close(state);
    free(state);
    return rc;
}

static void same(const uint8_t *a, const uint8_t *b, size_t size) {
    if (size > 0)
        assert_memory_equal(a, b, size);
}

/* Both ways back: whole, and as a stream of various steps. */
static void check_frame(const struct sqrl_codec_ops *codec, const uint8_t *frame,
                        size_t frame_size, const uint8_t *raw, size_t raw_size) {
    static const size_t steps[][2] = {{0, 0}, {4096, 1000}, {7, 0}, {0, 333}};
    struct sqrl_error err = {0};
    uint8_t *back = malloc(raw_size + 64);
    assert_non_null(back);
    memset(back, 0xEE, raw_size + 64);
    int rc = codec->decompress(frame, frame_size, back, raw_size, &err);
    if (rc != SQRL_OK)
        print_error("%s, %zu bytes: %s\n", codec->name, raw_size, err.message);
    assert_int_equal(rc, SQRL_OK);
    same(back, raw, raw_size);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(back[raw_size + i], 0xEE);
    for (size_t i = 0; i < SQRL_COUNT_OF(steps); i++) {
        size_t got;
        bool small = steps[i][0] == 7 || steps[i][1] == 333;
        if (small && raw_size > (steps[i][0] ? 140000 : 1500000))
            continue; /* a hundred thousand calls */
        memset(back, 0xDD, raw_size + 64);
        rc = contract_codec_stream(codec, frame, frame_size, steps[i][0], back,
                                   raw_size + 1, steps[i][1], &got, &err);
        if (rc != SQRL_OK)
            print_error("%s, %zu bytes: %s\n", codec->name, raw_size, err.message);
        assert_int_equal(rc, SQRL_OK);
        assert_true(got == raw_size);
        same(back, raw, raw_size);
    }
    free(back);
}

static void check_round_trips(const struct sqrl_codec_ops *codec) {
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        for (int kind = 0; kind < 3; kind++) {
            if (sizes[i] > 200000 && kind != 1)
                continue; /* check_stored does the large ones that don't shrink */
            size_t n = sizes[i], bound = codec->bound(n), size = 0;
            uint8_t *raw = malloc(n + 1), *out = malloc(bound + 1);
            assert_true(raw && out);
            contract_codec_fill(raw, n, kind);
            out[bound] = 0xEE;
            assert_int_equal(
                codec->compress(codec->level_default, raw, n, out, bound, &size, NULL),
                SQRL_OK);
            assert_true(size <= bound);
            assert_int_equal(out[bound], 0xEE);
            check_frame(codec, out, size, raw, n);
            free(raw);
            free(out);
        }
    }
}

static void check_levels(const struct sqrl_codec_ops *codec) {
    size_t n = 100000, bound = codec->bound(n), size;
    uint8_t *raw = malloc(n), *out = malloc(bound);
    struct sqrl_error err = {0};
    assert_true(raw && out);
    contract_codec_fill(raw, n, 1);
    for (int level = codec->level_min; level <= codec->level_max; level++) {
        assert_int_equal(codec->compress(level, raw, n, out, bound, &size, &err),
                         SQRL_OK);
        if (codec->level_max > 0)
            assert_true(size < n / 2);
        check_frame(codec, out, size, raw, n);
    }
    if (codec->level_max > 0) {
        assert_int_equal(
            codec->compress(codec->level_max + 1, raw, n, out, bound, &size, &err),
            SQRL_E_INVALID);
        assert_int_equal(
            codec->compress(codec->level_min - 1, raw, n, out, bound, &size, &err),
            SQRL_E_INVALID);
        assert_true(size == 0);
    }
    free(raw);
    free(out);
}

/* The pieces that stored_piece tells are the content, in order and without a gap. */
static void check_stored(const struct sqrl_codec_ops *codec) {
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        size_t n = sizes[i], size, covered = 0;
        uint64_t end = 0;
        size_t total = (size_t)codec->stored_size(n);
        uint8_t *raw = malloc(n + 1), *out = malloc(total + 1);
        struct sqrl_error err = {0};
        assert_true(raw && out && total <= codec->bound(n));
        contract_codec_fill(raw, n, 2);
        if (total > 0)
            assert_int_equal(codec->store(raw, n, out, total - 1, &size, &err),
                             SQRL_E_LIMIT);
        assert_int_equal(codec->store(raw, n, out, total, &size, &err), SQRL_OK);
        assert_true(size == total);
        check_frame(codec, out, size, raw, n);
        struct sqrl_stored_piece piece;
        uint8_t *framing = malloc(total - n + 1);
        size_t framed = 0;
        assert_non_null(framing);
        if (codec->stored_framing)
            codec->stored_framing(n, framing);
        for (uint64_t k = 0; codec->stored_piece(n, k, &piece); k++) {
            assert_true(piece.raw_offset == covered && piece.size > 0);
            if (codec->stored_framing)
                assert_memory_equal(framing + framed, out + end, piece.offset - end);
            framed += piece.offset - end;
            assert_true(piece.offset >= end && piece.offset + piece.size <= total);
            assert_memory_equal(out + piece.offset, raw + covered, piece.size);
            covered += piece.size;
            end = piece.offset + piece.size;
        }
        assert_true(covered == n && framed + (total - end) == total - n);
        if (codec->stored_framing)
            assert_memory_equal(framing + framed, out + end, total - end);
        free(framing);
        free(raw);
        free(out);
    }
}

/* Too little room is an error, and nothing is written behind it. */
static void check_room(const struct sqrl_codec_ops *codec) {
    size_t n = 5000, bound = codec->bound(n), size;
    uint8_t raw[5000], *out = malloc(bound);
    struct sqrl_error err = {0};
    assert_non_null(out);
    contract_codec_fill(raw, n, 2);
    for (size_t room = 0; room < 64; room++) {
        uint8_t *small = malloc(room + 1);
        assert_non_null(small);
        int rc = codec->compress(codec->level_default, raw, n, small, room, &size, &err);
        assert_int_equal(rc, SQRL_E_LIMIT);
        assert_true(size == 0);
        free(small);
    }
    free(out);
}

/* Content of another length than expected is an error, never a write behind the room. */
static void check_lengths(const struct sqrl_codec_ops *codec) {
    size_t n = 70000, bound = codec->bound(n), size;
    uint8_t *raw = malloc(n), *out = malloc(bound), *back = malloc(n + 8);
    struct sqrl_error err = {0};
    assert_true(raw && out && back);
    contract_codec_fill(raw, n, 1);
    assert_int_equal(
        codec->compress(codec->level_default, raw, n, out, bound, &size, &err), 0);
    static const long off[] = {-70000, -69999, -1, 1, 8};
    for (size_t i = 0; i < SQRL_COUNT_OF(off); i++) {
        size_t wrong = (size_t)((long)n + off[i]);
        memset(back, 0xEE, n + 8);
        int rc = codec->decompress(out, size, back, wrong, &err);
        assert_true(rc == SQRL_E_CORRUPT || rc == SQRL_E_TRUNCATED);
        assert_true(strlen(err.message) > 0);
        for (size_t k = wrong; k < n + 8; k++)
            assert_int_equal(back[k], 0xEE);
    }
    free(raw);
    free(out);
    free(back);
}

/* Cut at every byte: TRUNCATED as a stream, an error as a frame. */
static void check_cut(const struct sqrl_codec_ops *codec, const uint8_t *frame,
                      size_t cut, size_t steps, const uint8_t *raw, size_t n) {
    struct guarded part = guarded_new(cut), back = guarded_new(n);
    struct sqrl_error err = {0};
    size_t got;
    if (cut > 0)
        memcpy(part.data, frame, cut);
    for (size_t step = 0; step < steps; step++) {
        int rc = contract_codec_stream(codec, part.data, cut, step, back.data, n, step,
                                       &got, &err);
        /* With the room used up the end of the input need not have been looked at. */
        assert_true(rc == SQRL_E_TRUNCATED || (rc == SQRL_E_LIMIT && got == n));
        same(back.data, raw, got);
    }
    int rc = codec->decompress(part.data, cut, back.data, n, &err);
    assert_true(rc == SQRL_E_TRUNCATED || rc == SQRL_E_CORRUPT);
    guarded_free(part);
    guarded_free(back);
}

static void check_cuts(const struct sqrl_codec_ops *codec) {
    static const size_t lengths[] = {700, 5000};
    for (int kind = 1; kind < 3; kind++) {
        for (size_t i = 0; i < 2; i++) {
            size_t n = lengths[i], bound = codec->bound(n), size;
            uint8_t *raw = malloc(n), *out = malloc(bound);
            assert_true(raw && out);
            contract_codec_fill(raw, n, kind);
            assert_int_equal(
                codec->compress(codec->level_default, raw, n, out, bound, &size, NULL),
                0);
            for (size_t cut = 0; cut<size; cut += size> 2000 && cut > 300 ? 97 : 1)
                /* Byte by byte only near the ends: each opens a decoder of 100 KB. */
                check_cut(codec, out, cut, cut < 40 || cut + 20 > size ? 3 : 1, raw, n);
            free(raw);
            free(out);
        }
    }
}

/* Every single bit flipped: an error, or the content as it was; no crash, no excess. */
static void check_flips(const struct sqrl_codec_ops *codec) {
    size_t n = 300, bound = codec->bound(n), size, got;
    uint8_t raw[300], *out = malloc(bound);
    struct guarded back = guarded_new(n);
    struct sqrl_error err = {0};
    assert_non_null(out);
    contract_codec_fill(raw, n, 1);
    assert_int_equal(
        codec->compress(codec->level_default, raw, n, out, bound, &size, &err), 0);
    struct guarded frame = guarded_new(size);
    memcpy(frame.data, out, size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int rc = codec->decompress(frame.data, size, back.data, n, &err);
        assert_true(rc == SQRL_OK || rc == SQRL_E_CORRUPT || rc == SQRL_E_TRUNCATED ||
                    rc == SQRL_E_UNSUPPORTED || rc == SQRL_E_LIMIT);
        rc = contract_codec_stream(codec, frame.data, size, 0, back.data, n, 0, &got,
                                   &err);
        assert_true(got <= n);
        frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(codec->decompress(frame.data, size, back.data, n, &err), SQRL_OK);
    guarded_free(frame);
    guarded_free(back);
    free(out);
}

/* Frames in a row are one stream; zeros behind them are padding, anything else is an
 * error. */
static void check_rows(const struct sqrl_codec_ops *codec) {
    size_t n = 3000, bound = codec->bound(n), size, at = 0, got;
    uint8_t raw[3000], back[9001], *out = calloc(3, bound + 32);
    struct sqrl_error err = {0};
    assert_non_null(out);
    contract_codec_fill(raw, n, 1);
    for (int i = 0; i < 3; i++) {
        int rc = i == 1 ? codec->store(raw, n, out + at, bound, &size, &err)
                        : codec->compress(codec->level_default, raw, n, out + at, bound,
                                          &size, &err);
        assert_int_equal(rc, SQRL_OK);
        at += size;
    }
    for (size_t step = 0; step < 3; step++) {
        for (size_t padding = 0; padding < 9; padding += 4) {
            assert_int_equal(contract_codec_stream(codec, out, at + padding, step, back,
                                                   sizeof(back), step, &got, &err),
                             SQRL_OK);
            assert_true(got == 3 * n);
            for (int i = 0; i < 3; i++)
                assert_memory_equal(back + (size_t)i * n, raw, n);
        }
        out[at + 4] = 'x';
        int rc = contract_codec_stream(codec, out, at + 9, step, back, sizeof(back), step,
                                       &got, &err);
        assert_int_equal(rc, SQRL_E_CORRUPT);
        assert_non_null(strstr(err.message, "offset"));
        out[at + 4] = 0;
    }
    assert_int_equal(codec->decompress(out, at, back, 3 * n, &err), SQRL_OK);
    assert_memory_equal(back + 2 * n, raw, n);
    free(out);
}

/* The quick way says the same as decode(), or no: a cut, flipped or doubled member is
 * never taken for a whole one. */
static void check_whole(const struct sqrl_codec_ops *codec) {
    size_t n = 3000, bound = codec->bound(n), size;
    uint8_t raw[3000], *out = malloc(2 * bound);
    struct guarded back = guarded_new(n);
    assert_non_null(out);
    contract_codec_fill(raw, n, 1);
    assert_int_equal(
        codec->compress(codec->level_default, raw, n, out, bound, &size, NULL), 0);
    struct guarded frame = guarded_new(size);
    memcpy(frame.data, out, size);
    assert_true(codec->whole_size(frame.data, size) == n);
    assert_true(codec->whole(frame.data, size, back.data, n));
    assert_memory_equal(back.data, raw, n);
    assert_false(codec->whole(frame.data, size, back.data, n - 1));
    for (size_t bit = 0; bit < size * 8; bit++) {
        frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (codec->whole(frame.data, size, back.data, n)) /* a byte that is only a note */
            assert_memory_equal(back.data, raw, n);
        frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    guarded_free(frame);
    for (size_t cut = 0; cut < size; cut++) {
        struct guarded part = guarded_new(cut);
        if (cut)
            memcpy(part.data, out, cut);
        (void)codec->whole_size(part.data, cut);
        assert_false(codec->whole(part.data, cut, back.data, n));
        guarded_free(part);
    }
    memcpy(out + size, out, size);
    assert_false(codec->whole(out, 2 * size, back.data, n));
    uint8_t claim[18] = {0x1F, 0x8B, 8, 0, 0, 0,    0,    0,   0,
                         255,  3,    0, 0, 0, 0xFF, 0xFF, 0xFF};
    assert_true(codec->whole_size(claim, sizeof claim) == 0); /* 16 MiB of 18 bytes */
    guarded_free(back);
    free(out);
}

static void check_names(const struct sqrl_codec_ops *codec) {
    assert_true(codec->size == sizeof(struct sqrl_codec_ops));
    assert_int_equal(codec->api, SQRL_CODEC_API);
    assert_true(strlen(codec->doc) > 0);
    assert_true(codec->level_min <= codec->level_default);
    assert_true(codec->level_default <= codec->level_max);
    assert_true(strlen(sqrl_codec_library(codec)) > 0);
    assert_false(codec->sniff((const uint8_t *)"", 0));
}

/* The n-th allocation of our own fails, for every n until nothing does. */
static void check_allocations(const struct sqrl_codec_ops *codec) {
    size_t n = 20000, bound = codec->bound(n), size = 0, got;
    uint8_t *raw = malloc(n), *out = malloc(bound), *back = malloc(n + 1);
    assert_true(raw && out && back);
    contract_codec_fill(raw, n, 1);
    for (uint64_t k = 1; k < 100; k++) {
        struct sqrl_error err = {0};
        sqrl_fail_allocation(k);
        int rc = codec->compress(codec->level_default, raw, n, out, bound, &size, &err);
        if (rc == SQRL_OK)
            rc = codec->decompress(out, size, back, n, &err);
        if (rc == SQRL_OK)
            rc = contract_codec_stream(codec, out, size, 0, back, n + 1, 0, &got, &err);
        sqrl_fail_allocation(0);
        if (rc == SQRL_OK)
            break;
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        assert_true(k < 99);
    }
    assert_memory_equal(back, raw, n);
    free(raw);
    free(out);
    free(back);
}

void contract_codec(const struct sqrl_codec_ops *codec, bool framed) {
    check_allocations(codec); /* first: later the thread's scratch is there */
    check_names(codec);
    check_round_trips(codec);
    check_levels(codec);
    check_stored(codec);
    check_room(codec);
    check_lengths(codec);
    if (!framed)
        return;
    check_cuts(codec);
    check_flips(codec);
    check_rows(codec);
    if (codec->whole)
        check_whole(codec);
}
