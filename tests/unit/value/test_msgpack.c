/* MessagePack: vectors of msgpack-python and msgpack-numpy both ways, every cut,
 * mutations, claims that the data don't keep, limits, many values in one call, single
 * values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden/msgpack/vectors.h"
#include "dump.h"
#include "value/value.h"

#define COUNT SQRL_COUNT_OF(VECTORS)

static const uint8_t *vector_bytes(size_t i) {
    return (const uint8_t *)VECTORS[i].bytes;
}

/* A copy of the exact size, so that a sanitizer sees a read behind it. */
static uint8_t *exact(const void *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    return copy;
}

static void decodes_and_encodes_what_python_writes(void **state) {
    (void)state;
    struct sqrl_tape tape = {0};
    struct sqrl_bytes out = {0};
    struct sqrl_error err;
    for (size_t i = 0; i < COUNT; i++) {
        size_t size = VECTORS[i].size, offset = 0;
        uint8_t *bytes = exact(vector_bytes(i), size);
        tape.count = 0;
        out.size = 0;
        int code = sqrl_msgpack_decode(&tape, bytes, size, &offset, NULL, &err);
        if (code)
            fail_msg("%s: %s: %s", VECTORS[i].name, err.where, err.message);
        assert_int_equal(offset, size);
        assert_int_equal(sqrl_node_next(tape.nodes, 0), tape.count);
        char *text = dump_text(&tape, 0, bytes);
        if (strcmp(text, VECTORS[i].dump) != 0)
            fail_msg("%s:\n  %s\nbut Python\n  %s", VECTORS[i].name, text,
                     VECTORS[i].dump);
        free(text);
        assert_int_equal(sqrl_msgpack_encode(&out, tape.nodes, 0, bytes, &err), SQRL_OK);
        const char *again = VECTORS[i].again ? VECTORS[i].again : VECTORS[i].bytes;
        size_t again_size = VECTORS[i].again ? VECTORS[i].again_size : size;
        if (out.size != again_size || memcmp(out.data, again, again_size) != 0)
            fail_msg("%s: encoded differently", VECTORS[i].name);
        free(bytes);
    }
    sqrl_tape_reset(&tape);
    sqrl_bytes_reset(&out);
}

/* All vectors one behind the other; *size is the sum. */
static uint8_t *all_vectors(size_t *size) {
    *size = 0;
    for (size_t i = 0; i < COUNT; i++)
        *size += VECTORS[i].size;
    uint8_t *bytes = malloc(*size);
    assert_non_null(bytes);
    size_t at = 0;
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(bytes + at, VECTORS[i].bytes, VECTORS[i].size);
        at += VECTORS[i].size;
    }
    return bytes;
}

static void many_values_share_a_tape(void **state) {
    (void)state;
    size_t size, offset = 0, start = 0;
    uint8_t *bytes = all_vectors(&size);
    struct sqrl_tape tape = {0};
    uint32_t begin[COUNT + 1], count;
    assert_int_equal(sqrl_msgpack_decode_many(&tape, bytes, size, &offset, begin,
                                              COUNT + 1, &count, NULL, NULL),
                     SQRL_OK);
    assert_int_equal(count, COUNT);
    assert_int_equal(offset, size);
    for (size_t i = 0; i < COUNT; i++) {
        char *text = dump_text(&tape, begin[i], bytes);
        assert_string_equal(text, VECTORS[i].dump);
        free(text);
    }
    /* at most `max` */
    offset = 0;
    tape.count = 0;
    assert_int_equal(sqrl_msgpack_decode_many(&tape, bytes, size, &offset, begin, 7,
                                              &count, NULL, NULL),
                     SQRL_OK);
    assert_int_equal(count, 7);
    for (size_t i = 0; i < 7; i++)
        start += VECTORS[i].size;
    assert_int_equal(offset, start);
    free(bytes);
    sqrl_tape_reset(&tape);
}

static void many_values_end_before_a_cut_or_a_fault(void **state) {
    (void)state;
    static const char BYTES[] = "\x01\x92\x02\x03\xa3"
                                "ab";
    size_t size = sizeof BYTES - 1, offset = 0;
    const uint8_t *bytes = (const uint8_t *)BYTES;
    struct sqrl_tape tape = {0};
    struct sqrl_error err;
    uint32_t begin[8], count;
    sqrl_error_clear(&err);
    assert_int_equal(sqrl_msgpack_decode_many(&tape, bytes, size, &offset, begin, 8,
                                              &count, NULL, &err),
                     SQRL_OK);
    assert_int_equal(count, 2);
    assert_int_equal(offset, 4);
    assert_int_equal(begin[1], 1);
    assert_int_equal(tape.count, 4);
    assert_int_equal(err.code, SQRL_OK);

    static const char BAD[] = "\x01\x02\x92\x05\xc1\x07";
    offset = 1;
    tape.count = 0;
    assert_int_equal(sqrl_msgpack_decode_many(&tape, (const uint8_t *)BAD, sizeof BAD - 1,
                                              &offset, begin, 8, &count, NULL, &err),
                     SQRL_E_CORRUPT);
    assert_int_equal(count, 1);
    assert_int_equal(offset, 4);
    assert_int_equal(tape.count, 1);
    assert_string_equal(err.where, "byte 4");

    offset = 0;
    assert_int_equal(
        sqrl_msgpack_decode_many(&tape, NULL, 0, &offset, begin, 8, &count, NULL, &err),
        SQRL_OK);
    assert_int_equal(count, 0);
    offset = 1;
    assert_int_equal(
        sqrl_msgpack_decode_many(&tape, NULL, 0, &offset, begin, 8, &count, NULL, &err),
        SQRL_E_INVALID);
    sqrl_tape_reset(&tape);
}

static void every_cut_is_truncated(void **state) {
    (void)state;
    struct sqrl_tape tape = {0};
    struct sqrl_error err;
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t cut = 0; cut < VECTORS[i].size; cut++) {
            uint8_t *bytes = exact(vector_bytes(i), cut);
            size_t offset = 0;
            int code = sqrl_msgpack_decode(&tape, bytes, cut, &offset, NULL, &err);
            if (code != SQRL_E_TRUNCATED)
                fail_msg("%s: %zu bytes give %d", VECTORS[i].name, cut, code);
            assert_int_equal(tape.count, 0);
            assert_true(offset <= cut);
            free(bytes);
        }
    }
    sqrl_tape_reset(&tape);
}

/* Whatever decodes must encode, and that must decode to the same value. */
static void check_stable(const uint8_t *bytes, size_t size) {
    struct sqrl_tape tape = {0}, again = {0};
    struct sqrl_bytes out = {0};
    struct sqrl_error err;
    size_t offset = 0, second = 0;
    int code = sqrl_msgpack_decode(&tape, bytes, size, &offset, NULL, &err);
    assert_true(offset <= size);
    if (code) {
        assert_int_equal(tape.count, 0);
        assert_int_equal(err.code, code);
        assert_true(strlen(err.message) > 10);
    } else {
        assert_int_equal(sqrl_msgpack_encode(&out, tape.nodes, 0, bytes, &err), SQRL_OK);
        assert_int_equal(
            sqrl_msgpack_decode(&again, out.data, out.size, &second, NULL, &err),
            SQRL_OK);
        assert_int_equal(second, out.size);
        char *a = dump_text(&tape, 0, bytes), *b = dump_text(&again, 0, out.data);
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
    sqrl_tape_reset(&tape);
    sqrl_tape_reset(&again);
    sqrl_bytes_reset(&out);
}

static void mutations_never_crash(void **state) {
    (void)state;
    static const char *const NAMES[] = {"nested",
                                        "sample",
                                        "structure in structure",
                                        "raw in a sample: high",
                                        "other order: i2",
                                        "complexes",
                                        "raw structure",
                                        "array <U5",
                                        "0-d <c16",
                                        "array of structures with titles",
                                        "scalar <f4"};
    for (size_t i = 0; i < COUNT; i++) {
        bool chosen = false;
        for (size_t k = 0; k < SQRL_COUNT_OF(NAMES); k++)
            chosen |= strcmp(NAMES[k], VECTORS[i].name) == 0;
        if (!chosen)
            continue;
        uint8_t *bytes = exact(vector_bytes(i), VECTORS[i].size);
        for (size_t at = 0; at < VECTORS[i].size; at++) {
            uint8_t was = bytes[at];
            for (unsigned flip = 1; flip < 256; flip++) {
                bytes[at] = (uint8_t)(was ^ flip);
                check_stable(bytes, VECTORS[i].size);
            }
            bytes[at] = was;
        }
        free(bytes);
    }
}

static int decode_text(const char *text, size_t size, const struct sqrl_limits *limits,
                       size_t *offset, struct sqrl_error *err) {
    struct sqrl_tape tape = {0};
    uint8_t *bytes = exact(text, size);
    *offset = 0;
    int code = sqrl_msgpack_decode(&tape, bytes, size, offset, limits, err);
    assert_true(tape.capacity <= 64);
    free(bytes);
    sqrl_tape_reset(&tape);
    return code;
}

static void claims_are_checked_before_memory_is_taken(void **state) {
    (void)state;
    static const char *const CLAIMS[] = {"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff",
                                         "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff",
                                         "\xc9\xff\xff\xff\xff", "\xdd\x7f\xff\xff\xff",
                                         "\xdf\x40\x00\x00\x00", "\xc6\x80\x00\x00\x01"};
    struct sqrl_error err;
    for (size_t i = 0; i < SQRL_COUNT_OF(CLAIMS); i++) {
        char bytes[40] = {0};
        memcpy(bytes, CLAIMS[i], 5);
        size_t offset;
        struct sqrl_limits wide = {.max_bytes = UINT64_C(1) << 40};
        int code = decode_text(bytes, sizeof bytes, NULL, &offset, &err);
        uint32_t claim = sqrl_load_be32(bytes + 1);
        uint64_t need = (bytes[0] == (char)0xdf ? 2ull : 1) * claim + 5;
        need += bytes[0] == (char)0xc9;
        assert_int_equal(code,
                         need > UINT64_C(1) << 31 ? SQRL_E_LIMIT : SQRL_E_TRUNCATED);
        assert_int_equal(offset, 0);
        assert_int_equal(decode_text(bytes, sizeof bytes, &wide, &offset, &err),
                         SQRL_E_TRUNCATED);
    }
    /* one item more than bytes */
    size_t offset;
    assert_int_equal(decode_text("\x93\x01\x02", 3, NULL, &offset, &err),
                     SQRL_E_TRUNCATED);
    assert_int_equal(offset, 0);
    assert_int_equal(decode_text("\x82\x01\x02\x03", 4, NULL, &offset, &err),
                     SQRL_E_TRUNCATED);
    assert_int_equal(offset, 0);
}

static void depth_is_limited(void **state) {
    (void)state;
    enum { DEEP = 1000000 };
    uint8_t *bytes = malloc(DEEP);
    assert_non_null(bytes);
    static const uint8_t OPENERS[] = {0x91, 0x81};
    for (size_t k = 0; k < 2; k++) {
        /* a map as its own key's key */
        memset(bytes, OPENERS[k], DEEP);
        bytes[DEEP - 1] = 0x01;
        struct sqrl_tape tape = {0};
        struct sqrl_error err;
        size_t offset = 0;
        assert_int_equal(sqrl_msgpack_decode(&tape, bytes, DEEP, &offset, NULL, &err),
                         SQRL_E_LIMIT);
        assert_int_equal(offset, 512);
        assert_non_null(strstr(err.message, "512"));
        assert_int_equal(tape.count, 0);
        sqrl_tape_reset(&tape);
    }
    for (uint32_t depth = 1; depth < 600; depth += 7) {
        memset(bytes, 0x91, depth);
        bytes[depth] = 0x07;
        struct sqrl_tape tape = {0};
        struct sqrl_limits limits = {.max_depth = depth};
        size_t offset = 0;
        assert_int_equal(
            sqrl_msgpack_decode(&tape, bytes, depth + 1, &offset, &limits, NULL),
            SQRL_OK);
        assert_int_equal(tape.count, depth + 1);
        for (uint32_t k = 0; k < depth; k++)
            assert_int_equal(tape.nodes[k].v.next, depth + 1);
        sqrl_tape_reset(&tape);
        limits.max_depth = depth - 1;
        offset = 0;
        if (depth > 1)
            assert_int_equal(
                sqrl_msgpack_decode(&tape, bytes, depth + 1, &offset, &limits, NULL),
                SQRL_E_LIMIT);
        sqrl_tape_reset(&tape);
    }
    free(bytes);
}

static void nodes_and_bytes_are_limited(void **state) {
    (void)state;
    struct sqrl_error err;
    uint8_t bytes[1003] = {0xdc, 1000 >> 8, 1000 & 255};
    for (uint32_t max = 1000; max <= 1002; max++) {
        struct sqrl_limits limits = {.max_nodes = max};
        struct sqrl_tape tape = {0};
        size_t offset = 0;
        int code =
            sqrl_msgpack_decode(&tape, bytes, sizeof bytes, &offset, &limits, &err);
        assert_int_equal(code, max < 1001 ? SQRL_E_LIMIT : SQRL_OK);
        sqrl_tape_reset(&tape);
    }
    for (uint64_t max = 1002; max <= 1004; max++) {
        struct sqrl_limits limits = {.max_bytes = max};
        struct sqrl_tape tape = {0};
        size_t offset = 0;
        int code =
            sqrl_msgpack_decode(&tape, bytes, sizeof bytes, &offset, &limits, &err);
        assert_int_equal(code, max < 1003 ? SQRL_E_LIMIT : SQRL_OK);
        sqrl_tape_reset(&tape);
    }
    /* a limit is one value's, not the tape's */
    struct sqrl_limits one = {.max_nodes = 1, .max_bytes = 1};
    struct sqrl_tape tape = {0};
    uint32_t begin[1000], count;
    size_t offset = 3;
    assert_int_equal(sqrl_msgpack_decode_many(&tape, bytes, sizeof bytes, &offset, begin,
                                              1000, &count, &one, &err),
                     SQRL_OK);
    assert_int_equal(count, 1000);
    sqrl_tape_reset(&tape);
}

static void faults_name_their_byte(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size, offset;
        int code;
    } CASES[] = {
        {"\xc1", 1, 0, SQRL_E_CORRUPT},
        {"\x92\x01\xc1", 3, 2, SQRL_E_CORRUPT},
        {"\xa3\x61\xff\x61", 4, 2, SQRL_E_CORRUPT},
        {"\x91\xa3\xed\xa0\x80", 5, 2, SQRL_E_CORRUPT},
        {"\xa2\xc3\xa9", 3, 3, SQRL_OK},
        {"\xa1\xc3\xa9", 3, 1, SQRL_E_CORRUPT},
        /* "data": raw, but no array */
        {"\x81\xa4"
         "data\xa1\xff",
         8, 7, SQRL_E_CORRUPT},
        {"\x82\xa4"
         "data\xa1\xff\xa1x\x01",
         11, 7, SQRL_E_CORRUPT},
        {"\x81\xa4"
         "date\xa1\xff",
         8, 7, SQRL_E_CORRUPT},
        {"\x81\xc4\x04"
         "data\xa1\xff",
         9, 8, SQRL_E_CORRUPT},
        {"\x92\xa4"
         "data\xa1\xff",
         8, 7, SQRL_E_CORRUPT},
        {"\x81\x01\x81\xa4"
         "data\xa1\xff",
         10, 9, SQRL_E_CORRUPT},
        {"\x81\xa4"
         "data\x81\xa4"
         "data\xa1\xff",
         14, 13, SQRL_E_CORRUPT},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(CASES); i++) {
        struct sqrl_error err;
        size_t offset;
        sqrl_error_clear(&err);
        int code = decode_text(CASES[i].bytes, CASES[i].size, NULL, &offset, &err);
        if (code != CASES[i].code || offset != CASES[i].offset)
            fail_msg("case %zu: code %d at %zu", i, code, offset);
        char where[32];
        snprintf(where, sizeof where, "byte %zu", offset);
        assert_string_equal(err.where, code ? where : "");
    }
}

/* Whether strings are called ASCII, at every length and place in a buffer. */
static void ascii_is_flagged(void **state) {
    (void)state;
    for (size_t size = 2; size < 80; size++)
        for (size_t at = 0; at < size; at++)
            for (size_t tail = 0; tail < 40; tail += 13) {
                size_t header = size < 32 ? 1 : 2;
                uint8_t bytes[160];
                memset(bytes, 'x', sizeof bytes);
                bytes[0] = size < 32 ? (uint8_t)(0xa0 | size) : 0xd9;
                if (size >= 32)
                    bytes[1] = (uint8_t)size;
                bool accent = at + 1 < size;
                if (accent)
                    memcpy(bytes + header + at, "\xc3\xa9", 2);
                uint8_t *copy = exact(bytes, header + size + tail);
                struct sqrl_tape tape = {0};
                size_t offset = 0;
                assert_int_equal(sqrl_msgpack_decode(&tape, copy, header + size + tail,
                                                     &offset, NULL, NULL),
                                 SQRL_OK);
                assert_int_equal(offset, header + size);
                assert_int_equal(tape.nodes[0].flags, accent ? 0 : SQRL_NODE_ASCII);
                sqrl_tape_reset(&tape);
                free(copy);
            }
}

static void float32_keeps_every_bit(void **state) {
    (void)state;
    static const uint32_t BITS[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff,
                                    0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                                    0x7f800001, 0xffbfffff, 0xffffffff, 0x3f800000,
                                    0x7fa00001};
    struct sqrl_bytes out = {0};
    for (size_t i = 0; i < SQRL_COUNT_OF(BITS); i++) {
        uint32_t big = __builtin_bswap32(BITS[i]);
        uint8_t bytes[5] = {0xca};
        memcpy(bytes + 1, &big, 4);
        struct sqrl_tape tape = {0};
        size_t offset = 0;
        assert_int_equal(sqrl_msgpack_decode(&tape, bytes, 5, &offset, NULL, NULL),
                         SQRL_OK);
        assert_int_equal(tape.nodes[0].flags, SQRL_NODE_F32);
        float f;
        memcpy(&f, &BITS[i], 4);
        if (f == f)
            assert_true(tape.nodes[0].v.f == (double)f);
        else
            assert_true(tape.nodes[0].v.f != tape.nodes[0].v.f);
        out.size = 0;
        assert_int_equal(sqrl_msgpack_encode(&out, tape.nodes, 0, bytes, NULL), SQRL_OK);
        assert_int_equal(out.size, 5);
        assert_memory_equal(out.data, bytes, 5);
        sqrl_tape_reset(&tape);
    }
    sqrl_bytes_reset(&out);
}

/* Appends node 0 by the function for its type. False for types without one. */
static bool put_single(struct sqrl_bytes *out, const struct sqrl_tape *tape,
                       const uint8_t *bytes) {
    const struct sqrl_node *n = tape->nodes;
    struct sqrl_ndarray a;
    switch (n->type) {
    case SQRL_NULL:
        return sqrl_msgpack_put_null(out, NULL) == SQRL_OK;
    case SQRL_BOOL:
        return sqrl_msgpack_put_bool(out, n->v.u, NULL) == SQRL_OK;
    case SQRL_INT:
        return sqrl_msgpack_put_int(out, n->v.i, NULL) == SQRL_OK;
    case SQRL_UINT:
        return sqrl_msgpack_put_uint(out, n->v.u, NULL) == SQRL_OK;
    case SQRL_FLOAT:
        return !n->flags && sqrl_msgpack_put_float(out, n->v.f, NULL) == SQRL_OK;
    case SQRL_STRING:
        return sqrl_msgpack_put_string(out, (const char *)bytes + n->v.offset, n->size,
                                       NULL) == SQRL_OK;
    case SQRL_BINARY:
        return sqrl_msgpack_put_binary(out, bytes + n->v.offset, n->size, NULL) ==
               SQRL_OK;
    case SQRL_EXT:
        return sqrl_msgpack_put_ext(out, n->aux - 128, bytes + n->v.offset, n->size,
                                    NULL) == SQRL_OK;
    case SQRL_NDARRAY:
        sqrl_ndarray_view(n, 0, bytes, &a);
        if (!a.dtype || a.swapped || a.scalar)
            return false;
        return sqrl_msgpack_put_ndarray(out, a.dtype, a.shape, a.dims, a.data, NULL) ==
               SQRL_OK;
    default:
        return false;
    }
}

static void single_values_are_written_as_python_does(void **state) {
    (void)state;
    struct sqrl_tape tape = {0};
    struct sqrl_bytes out = {0};
    size_t seen = 0;
    for (size_t i = 0; i < COUNT; i++) {
        if (VECTORS[i].again)
            continue;
        size_t offset = 0;
        tape.count = 0;
        out.size = 0;
        assert_int_equal(sqrl_msgpack_decode(&tape, vector_bytes(i), VECTORS[i].size,
                                             &offset, NULL, NULL),
                         SQRL_OK);
        if (!put_single(&out, &tape, vector_bytes(i)))
            continue;
        if (out.size != VECTORS[i].size ||
            memcmp(out.data, VECTORS[i].bytes, out.size) != 0)
            fail_msg("%s: written differently", VECTORS[i].name);
        seen++;
    }
    assert_true(seen > 100);
    static const struct {
        size_t items;
        const char *array, *map;
        size_t size;
    } HEADERS[] = {{0, "\x90", "\x80", 1},
                   {15, "\x9f", "\x8f", 1},
                   {16, "\xdc\x00\x10", "\xde\x00\x10", 3},
                   {65535, "\xdc\xff\xff", "\xde\xff\xff", 3},
                   {65536, "\xdd\x00\x01\x00\x00", "\xdf\x00\x01\x00\x00", 5}};
    for (size_t i = 0; i < SQRL_COUNT_OF(HEADERS); i++) {
        out.size = 0;
        assert_int_equal(sqrl_msgpack_put_array(&out, HEADERS[i].items, NULL), SQRL_OK);
        assert_int_equal(out.size, HEADERS[i].size);
        assert_memory_equal(out.data, HEADERS[i].array, out.size);
        out.size = 0;
        assert_int_equal(sqrl_msgpack_put_map(&out, HEADERS[i].items, NULL), SQRL_OK);
        assert_int_equal(out.size, HEADERS[i].size);
        assert_memory_equal(out.data, HEADERS[i].map, out.size);
    }
    sqrl_tape_reset(&tape);
    sqrl_bytes_reset(&out);
}

static void single_values_refuse_what_does_not_fit(void **state) {
    (void)state;
    struct sqrl_bytes out = {0};
    size_t big = (size_t)UINT32_MAX + 1;
    uint64_t shape[2] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    assert_int_equal(sqrl_msgpack_put_string(&out, "", big, NULL), SQRL_E_LIMIT);
    assert_int_equal(sqrl_msgpack_put_binary(&out, "", big, NULL), SQRL_E_LIMIT);
    assert_int_equal(sqrl_msgpack_put_ext(&out, 1, "", big, NULL), SQRL_E_LIMIT);
    assert_int_equal(sqrl_msgpack_put_ext(&out, 128, "", 1, NULL), SQRL_E_INVALID);
    assert_int_equal(sqrl_msgpack_put_array(&out, big, NULL), SQRL_E_LIMIT);
    assert_int_equal(sqrl_msgpack_put_map(&out, big, NULL), SQRL_E_LIMIT);
    assert_int_equal(sqrl_msgpack_put_ndarray(&out, SQRL_DTYPE_OTHER, shape, 1, "", NULL),
                     SQRL_E_INVALID);
    assert_int_equal(sqrl_msgpack_put_ndarray(&out, SQRL_DTYPE_UINT8, shape, 1, "", NULL),
                     SQRL_E_LIMIT);
    assert_int_equal(sqrl_msgpack_put_ndarray(&out, SQRL_DTYPE_UINT8, shape, 2, "", NULL),
                     SQRL_E_LIMIT);
    assert_int_equal(
        sqrl_msgpack_put_ndarray(&out, SQRL_DTYPE_UINT8, shape, 33, "", NULL),
        SQRL_E_LIMIT);
    assert_int_equal(out.size, 0);
    sqrl_bytes_reset(&out);
}

static void big_integers_of_json_are_refused(void **state) {
    (void)state;
    static const char TEXT[] = "123456789012345678901234567890";
    struct sqrl_node nodes[3] = {{.type = SQRL_ARRAY, .size = 2, .v.next = 3},
                                 {.type = SQRL_INT, .v.i = 1},
                                 {.type = SQRL_NUMBER, .size = sizeof TEXT - 1}};
    struct sqrl_bytes out = {0};
    struct sqrl_error err;
    assert_int_equal(sqrl_bytes_append(&out, "abc", 3, &err), SQRL_OK);
    assert_int_equal(sqrl_msgpack_encode(&out, nodes, 0, (const uint8_t *)TEXT, &err),
                     SQRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, TEXT));
    assert_int_equal(out.size, 3);
    sqrl_bytes_reset(&out);
}

/* Every allocation fails once: an error, nothing leaked, and all is well afterwards. */
static void memory_may_run_out(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = all_vectors(&size);
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        struct sqrl_tape tape = {0};
        struct sqrl_bytes out = {0};
        uint32_t begin[COUNT], count = 0;
        size_t offset = 0;
        sqrl_fail_allocation(n);
        int code = sqrl_msgpack_decode_many(&tape, bytes, size, &offset, begin, COUNT,
                                            &count, NULL, NULL);
        for (uint32_t i = 0; !code && i < count; i++)
            code = sqrl_msgpack_encode(&out, tape.nodes, begin[i], bytes, NULL);
        sqrl_fail_allocation(0);
        sqrl_tape_reset(&tape);
        sqrl_bytes_reset(&out);
        if (!code)
            break;
        assert_int_equal(code, SQRL_E_NO_MEMORY);
        failures++;
    }
    assert_true(failures > 5);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_and_encodes_what_python_writes),
        cmocka_unit_test(many_values_share_a_tape),
        cmocka_unit_test(many_values_end_before_a_cut_or_a_fault),
        cmocka_unit_test(every_cut_is_truncated),
        cmocka_unit_test(mutations_never_crash),
        cmocka_unit_test(claims_are_checked_before_memory_is_taken),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(nodes_and_bytes_are_limited),
        cmocka_unit_test(faults_name_their_byte),
        cmocka_unit_test(ascii_is_flagged),
        cmocka_unit_test(float32_keeps_every_bit),
        cmocka_unit_test(single_values_are_written_as_python_does),
        cmocka_unit_test(single_values_refuse_what_does_not_fit),
        cmocka_unit_test(big_integers_of_json_are_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
