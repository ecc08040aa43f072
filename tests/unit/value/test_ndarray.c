/* Arrays in MessagePack: dtypes, views, what is refused and what stays a map. That they
 * decode to what NumPy sees is in test_msgpack.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dump.h"
#include "value/value.h"

#define LIT(s) s, sizeof(s) - 1

/* --- dtypes --- */

/* As numpy.dtype(text) gives them on a little-endian machine. */
static const struct {
    const char *text;
    enum sqrl_dtype dtype;
    bool swapped;
} PARSED[] = {
    {"bool", SQRL_DTYPE_BOOL, false},
    {"|b1", SQRL_DTYPE_BOOL, false},
    {"int8", SQRL_DTYPE_INT8, false},
    {"|i1", SQRL_DTYPE_INT8, false},
    {">i1", SQRL_DTYPE_INT8, false},
    {"int16", SQRL_DTYPE_INT16, false},
    {"<i2", SQRL_DTYPE_INT16, false},
    {">i2", SQRL_DTYPE_INT16, true},
    {"i2", SQRL_DTYPE_INT16, false},
    {"=i2", SQRL_DTYPE_INT16, false},
    {"int32", SQRL_DTYPE_INT32, false},
    {"<i4", SQRL_DTYPE_INT32, false},
    {"int64", SQRL_DTYPE_INT64, false},
    {">i8", SQRL_DTYPE_INT64, true},
    {"uint8", SQRL_DTYPE_UINT8, false},
    {"|u1", SQRL_DTYPE_UINT8, false},
    {"uint16", SQRL_DTYPE_UINT16, false},
    {">u2", SQRL_DTYPE_UINT16, true},
    {"uint32", SQRL_DTYPE_UINT32, false},
    {"<u4", SQRL_DTYPE_UINT32, false},
    {"uint64", SQRL_DTYPE_UINT64, false},
    {"<u8", SQRL_DTYPE_UINT64, false},
    {"float16", SQRL_DTYPE_FLOAT16, false},
    {"<f2", SQRL_DTYPE_FLOAT16, false},
    {"float32", SQRL_DTYPE_FLOAT32, false},
    {">f4", SQRL_DTYPE_FLOAT32, true},
    {"float64", SQRL_DTYPE_FLOAT64, false},
    {"<f8", SQRL_DTYPE_FLOAT64, false},
    {"complex64", SQRL_DTYPE_COMPLEX64, false},
    {"<c8", SQRL_DTYPE_COMPLEX64, false},
    {"complex128", SQRL_DTYPE_COMPLEX128, false},
    {">c16", SQRL_DTYPE_COMPLEX128, true},
};

static void dtypes_are_parsed_and_named(void **state) {
    (void)state;
    static const char *const OTHERS[] = {
        "",     "<",   "<U5",  "|S3",   "<M8[ns]", "|O",  "<f16",
        "<c32", "<i3", "<u16", "other", "f",       "4",   "<f4 ",
        "<<f4", "<b2", "c16x", "|V8",   "float",   "u1u", "<c1"};
    static const size_t SIZES[SQRL_DTYPE_COUNT] = {0, 1, 1, 2, 4, 8, 1, 2,
                                                   4, 8, 2, 4, 8, 8, 16};
    for (size_t i = 0; i < SQRL_COUNT_OF(PARSED); i++) {
        bool swapped = !PARSED[i].swapped;
        const char *text = PARSED[i].text;
        if (sqrl_dtype_parse(text, strlen(text), &swapped) != PARSED[i].dtype ||
            swapped != PARSED[i].swapped)
            fail_msg("%s", text);
        assert_int_equal(sqrl_dtype_parse(text, strlen(text), NULL), PARSED[i].dtype);
    }
    for (size_t i = 0; i < SQRL_COUNT_OF(OTHERS); i++) {
        bool swapped = true;
        if (sqrl_dtype_parse(OTHERS[i], strlen(OTHERS[i]), &swapped) || swapped)
            fail_msg("%s", OTHERS[i]);
    }
    for (int i = 0; i < SQRL_DTYPE_COUNT; i++) {
        const char *name = sqrl_dtype_name((enum sqrl_dtype)i);
        assert_int_equal(sqrl_dtype_parse(name, strlen(name), NULL), i);
        assert_int_equal(sqrl_dtype_size((enum sqrl_dtype)i), SIZES[i]);
    }
    assert_int_equal(sqrl_dtype_size((enum sqrl_dtype)99), 0);
    assert_string_equal(sqrl_dtype_name((enum sqrl_dtype)99), "other");
}

/* --- building maps by hand --- */

static struct sqrl_bytes map;

static void key(const char *name) {
    assert_int_equal(sqrl_msgpack_put_binary(&map, name, strlen(name), NULL), SQRL_OK);
}

static void text(const char *value) {
    assert_int_equal(sqrl_msgpack_put_string(&map, value, strlen(value), NULL), SQRL_OK);
}

static void shape_of(const int64_t *shape, size_t dims) {
    key("shape");
    assert_int_equal(sqrl_msgpack_put_array(&map, dims, NULL), SQRL_OK);
    for (size_t k = 0; k < dims; k++)
        assert_int_equal(sqrl_msgpack_put_int(&map, shape[k], NULL), SQRL_OK);
}

static void data_of(size_t size) {
    static const uint8_t ZEROS[256];
    key("data");
    assert_int_equal(sqrl_msgpack_put_binary(&map, ZEROS, size, NULL), SQRL_OK);
}

static void begin_array(size_t pairs) {
    map.size = 0;
    assert_int_equal(sqrl_msgpack_put_map(&map, pairs, NULL), SQRL_OK);
    key("nd");
    assert_int_equal(sqrl_msgpack_put_bool(&map, true, NULL), SQRL_OK);
    key("type");
}

/* Decodes the map; returns the code, the type of its first node in *type. */
static int decode_map(int *type, struct sqrl_error *err) {
    struct sqrl_tape tape = {0};
    size_t offset = 0;
    sqrl_error_clear(err);
    int code = sqrl_msgpack_decode(&tape, map.data, map.size, &offset, NULL, err);
    *type = code ? -1 : tape.nodes[0].type;
    if (!code)
        assert_int_equal(sqrl_node_next(tape.nodes, 0), tape.count);
    sqrl_tape_reset(&tape);
    return code;
}

/* An array of text dtype `type`; checks the code. */
static void check_array(const char *type, const int64_t *shape, size_t dims, size_t bytes,
                        int want) {
    struct sqrl_error err;
    int got_type;
    begin_array(4);
    text(type);
    shape_of(shape, dims);
    data_of(bytes);
    int code = decode_map(&got_type, &err);
    if (code != want)
        fail_msg("%s, %zu dimensions, %zu bytes: %d %s", type, dims, bytes, code,
                 err.message);
    if (!code)
        assert_int_equal(got_type, SQRL_NDARRAY);
}

static void data_must_be_as_long_as_the_shape_says(void **state) {
    (void)state;
    static const int64_t S23[] = {2, 3}, NEGATIVE[] = {2, -3}, HUGE_[] = {INT64_MAX, 2},
                         BIG[] = {INT64_C(1) << 32, INT64_C(1) << 32}, NONE[] = {0, 5},
                         MANY[33] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    check_array("<i2", S23, 2, 12, SQRL_OK);
    check_array("<i2", S23, 2, 11, SQRL_E_CORRUPT);
    check_array("<i2", S23, 2, 13, SQRL_E_CORRUPT);
    check_array("<i2", S23, 2, 0, SQRL_E_CORRUPT);
    check_array("<i2", S23, 0, 2, SQRL_OK);
    check_array("<i2", S23, 0, 0, SQRL_E_CORRUPT);
    check_array("<i2", NONE, 2, 0, SQRL_OK);
    check_array("<i2", NONE, 2, 2, SQRL_E_CORRUPT);
    check_array("<i2", NEGATIVE, 2, 12, SQRL_E_CORRUPT);
    check_array("<i2", HUGE_, 2, 12, SQRL_E_CORRUPT);
    check_array("<f8", HUGE_, 1, 12, SQRL_E_CORRUPT);
    check_array("|u1", BIG, 2, 0, SQRL_E_CORRUPT);
    check_array("|u1", MANY, 32, 1, SQRL_OK);
    check_array("|u1", MANY, 33, 1, SQRL_E_LIMIT);
    /* sizes of dtypes that are described by text */
    check_array("<U5", S23, 2, 120, SQRL_OK);
    check_array("<U5", S23, 2, 30, SQRL_E_CORRUPT);
    check_array("|S4", S23, 2, 24, SQRL_OK);
    check_array("|S4", S23, 2, 25, SQRL_E_CORRUPT);
    check_array("|V7", S23, 2, 42, SQRL_OK);
    check_array("<M8[ns]", S23, 2, 48, SQRL_OK);
    check_array("<M8[ns]", S23, 2, 47, SQRL_E_CORRUPT);
    check_array("<m8[25s]", S23, 2, 48, SQRL_OK);
    check_array("<f16", S23, 2, 96, SQRL_OK);
    check_array("<f16", S23, 2, 48, SQRL_E_CORRUPT);
    check_array("|S99999999999999999999", S23, 2, 24,
                SQRL_OK); /* not understood: 24 % 6 */
    check_array("strange", S23, 2, 18, SQRL_OK);
    check_array("strange", S23, 2, 19, SQRL_E_CORRUPT);
    check_array("strange", NONE, 2, 1, SQRL_E_CORRUPT);
}

static void objects_are_refused_as_pickles(void **state) {
    (void)state;
    static const int64_t ONE[] = {1};
    struct sqrl_error err;
    int type;
    begin_array(5); /* {nd, type: [["", "|O"]], kind: b"O", shape, data: pickle} */
    assert_int_equal(sqrl_bytes_append(&map, LIT("\x91\x92\xa0\xa2|O"), NULL), SQRL_OK);
    key("kind");
    key("O");
    shape_of(ONE, 1);
    data_of(8);
    assert_int_equal(decode_map(&type, &err), SQRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "pickle"));
    assert_non_null(strstr(err.where, "byte "));

    check_array("|O", ONE, 1, 8, SQRL_E_UNSUPPORTED);
    check_array("object", ONE, 1, 8, SQRL_E_UNSUPPORTED);

    begin_array(5); /* a structure with a field of objects */
    assert_int_equal(sqrl_bytes_append(&map,
                                       LIT("\x92\x92\xa1"
                                           "a\xa3<i4\x92\xa1"
                                           "b\xa2|O"),
                                       NULL),
                     SQRL_OK);
    key("kind");
    key("V");
    shape_of(ONE, 1);
    data_of(12);
    assert_int_equal(decode_map(&type, &err), SQRL_E_UNSUPPORTED);
}

/* A structure; `fields` is the packed list. */
static int decode_structure(const char *fields, size_t size, size_t bytes, int *type) {
    static const int64_t TWO[] = {2};
    struct sqrl_error err;
    begin_array(5);
    assert_int_equal(sqrl_bytes_append(&map, fields, size, NULL), SQRL_OK);
    key("kind");
    key("V");
    shape_of(TWO, 1);
    data_of(bytes);
    return decode_map(type, &err);
}

static const struct {
    const char *fields;
    size_t size, bytes;
    int code, type;
} STRUCTURES[] = {
    /* [("a", "<i4"), ("b", "|u1")] */
    {LIT("\x92\x92\xa1"
         "a\xa3<i4\x92\xa1"
         "b\xa3|u1"),
     10, SQRL_OK, SQRL_NDARRAY},
    {LIT("\x92\x92\xa1"
         "a\xa3<i4\x92\xa1"
         "b\xa3|u1"),
     12, SQRL_E_CORRUPT, -1},
    /* [("a", "<i4", (2, 3))] */
    {LIT("\x91\x93\xa1"
         "a\xa3<i4\x92\x02\x03"),
     48, SQRL_OK, SQRL_NDARRAY},
    {LIT("\x91\x93\xa1"
         "a\xa3<i4\x92\x02\x03"),
     40, SQRL_E_CORRUPT, -1},
    /* [("a", "<i4", 2)] */
    {LIT("\x91\x93\xa1"
         "a\xa3<i4\x02"),
     16, SQRL_OK, SQRL_NDARRAY},
    /* [("a", [("x", "<f8"), ("y", "|S3")], (2,)), ("b", "|u1")] */
    {LIT("\x92\x93\xa1"
         "a\x92\x92\xa1x\xa3<f8\x92\xa1y\xa3|S3\x91\x02\x92\xa1"
         "b\xa3|u1"),
     46, SQRL_OK, SQRL_NDARRAY},
    {LIT("\x92\x93\xa1"
         "a\x92\x92\xa1x\xa3<f8\x92\xa1y\xa3|S3\x91\x02\x92\xa1"
         "b\xa3|u1"),
     44, SQRL_E_CORRUPT, -1},
    /* [(("title", "name"), "<i2")] */
    {LIT("\x91\x92\x92\xa1t\xa1n\xa3<i2"), 4, SQRL_OK, SQRL_NDARRAY},
    /* names and types as bytes, as Python 2 wrote them */
    {LIT("\x91\x92\xc4\x01"
         "a\xc4\x03<i2"),
     4, SQRL_OK, SQRL_NDARRAY},
    /* not a list of fields: a map */
    {LIT("\x91\x91\xa1"
         "a"),
     4, SQRL_OK, SQRL_MAP},
    {LIT("\x92\xa1"
         "a\xa3<i4"),
     4, SQRL_OK, SQRL_MAP},
    {LIT("\x91\x92\x01\xa3<i4"), 8, SQRL_OK, SQRL_MAP},
    {LIT("\x91\x92\xa1"
         "a\x01"),
     8, SQRL_OK, SQRL_MAP},
    {LIT("\x91\x93\xa1"
         "a\xa3<i4\xa1x"),
     8, SQRL_OK, SQRL_MAP},
    {LIT("\x91\x93\xa1"
         "a\xa3<i4\xff"),
     8, SQRL_OK, SQRL_MAP},
    {LIT("\x91\x92\x92\xa1t\x91\xa1n\xa3<i2"), 4, SQRL_OK, SQRL_MAP},
    /* not a text where kind says structure */
    {LIT("\xa3<i4"), 8, SQRL_OK, SQRL_MAP},
};

static void structures_have_the_size_of_their_fields(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(STRUCTURES); i++) {
        int type;
        int code = decode_structure(STRUCTURES[i].fields, STRUCTURES[i].size,
                                    STRUCTURES[i].bytes, &type);
        if (code != STRUCTURES[i].code || type != STRUCTURES[i].type)
            fail_msg("case %zu: code %d, type %d", i, code, type);
    }
}

/* Structures nested deeper than anybody's are no arrays, and nothing recurses. */
static void deep_structures_stay_maps(void **state) {
    (void)state;
    for (size_t depth = 1; depth < 120; depth += 7) {
        char fields[1024];
        size_t n = 0;
        for (size_t k = 0; k < depth; k++) {
            memcpy(fields + n,
                   "\x91\x92\xa1"
                   "a",
                   4);
            n += 4;
        }
        memcpy(fields + n, "\xa3<i2", 4);
        int type;
        assert_int_equal(decode_structure(fields, n + 4, 4, &type), SQRL_OK);
        assert_int_equal(type, depth <= 32 ? SQRL_NDARRAY : SQRL_MAP);
    }
}

static void complex_text_must_be_a_number(void **state) {
    (void)state;
    /* what Python's complex() takes of what repr() may give, and what it refuses */
    static const char *const GOOD[] = {
        "1j",         "(1+2j)",           "-0j", "(-0-0j)",  "nanj",
        "(inf-infj)", "(1e+16-2.5e-07j)", "0j",  "(nan+1j)", "1.5j"};
    static const char *const BAD[] = {"",       "j",       "(1+2j", "1+2j)", "1+2",
                                      "(1+j2)", "one",     "(+j)",  "1e+j",  "(1++2j)",
                                      "1 j",    "(1+2j) ", "()",    ".j"};
    struct sqrl_error err;
    int type;
    for (size_t i = 0; i < SQRL_COUNT_OF(GOOD) + SQRL_COUNT_OF(BAD); i++) {
        bool good = i < SQRL_COUNT_OF(GOOD);
        const char *t = good ? GOOD[i] : BAD[i - SQRL_COUNT_OF(GOOD)];
        map.size = 0;
        assert_int_equal(sqrl_msgpack_put_map(&map, 2, NULL), SQRL_OK);
        key("complex");
        assert_int_equal(sqrl_msgpack_put_bool(&map, true, NULL), SQRL_OK);
        key("data");
        text(t);
        int code = decode_map(&type, &err);
        if (code != (good ? SQRL_OK : SQRL_E_CORRUPT))
            fail_msg("%s: %d", t, code);
        if (good)
            assert_int_equal(type, SQRL_COMPLEX);
    }
}

/* The short way for the usual order of keys must give the very nodes of the long way. */
static void both_ways_make_the_same_nodes(void **state) {
    (void)state;
    static const uint64_t SHAPE[] = {2, 200, 0, 70000};
    struct sqrl_bytes usual = {0}, other = {0};
    for (int dtype = 1; dtype < SQRL_DTYPE_COUNT; dtype++) {
        usual.size = other.size = 0;
        assert_int_equal(sqrl_msgpack_put_ndarray(&usual, (enum sqrl_dtype)dtype, SHAPE,
                                                  4, NULL, NULL),
                         SQRL_OK);
        /* the first pair (6 bytes behind the header) moved to the end */
        assert_int_equal(sqrl_bytes_append(&other, usual.data, 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_bytes_append(&other, usual.data + 6, usual.size - 6, NULL),
                         SQRL_OK);
        assert_int_equal(sqrl_bytes_append(&other, usual.data + 1, 5, NULL), SQRL_OK);
        struct sqrl_tape a = {0}, b = {0};
        size_t at = 0;
        assert_int_equal(sqrl_msgpack_decode(&a, usual.data, usual.size, &at, NULL, NULL),
                         SQRL_OK);
        at = 0;
        assert_int_equal(sqrl_msgpack_decode(&b, other.data, other.size, &at, NULL, NULL),
                         SQRL_OK);
        assert_int_equal(a.count, 6);
        assert_int_equal(b.count, 6);
        b.nodes[1].v.offset += 5; /* the data lie where the pair is missing */
        assert_memory_equal(a.nodes, b.nodes, 6 * sizeof a.nodes[0]);
        sqrl_tape_reset(&a);
        sqrl_tape_reset(&b);
    }
    sqrl_bytes_reset(&usual);
    sqrl_bytes_reset(&other);
}

static void a_view_takes_an_array_apart(void **state) {
    (void)state;
    static const uint64_t SHAPE[] = {2, 3};
    static const uint8_t DATA[] = "abcdefghijkl";
    map.size = 0;
    assert_int_equal(sqrl_msgpack_put_array(&map, 2, NULL), SQRL_OK);
    assert_int_equal(
        sqrl_msgpack_put_ndarray(&map, SQRL_DTYPE_UINT16, SHAPE, 2, DATA, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_null(&map, NULL), SQRL_OK);
    struct sqrl_tape tape = {0};
    size_t offset = 0;
    assert_int_equal(sqrl_msgpack_decode(&tape, map.data, map.size, &offset, NULL, NULL),
                     SQRL_OK);
    struct sqrl_ndarray a;
    sqrl_ndarray_view(tape.nodes, 1, map.data, &a);
    assert_int_equal(a.dtype, SQRL_DTYPE_UINT16);
    assert_false(a.swapped || a.scalar);
    assert_int_equal(a.dims, 2);
    assert_int_equal(a.shape[0], 2);
    assert_int_equal(a.shape[1], 3);
    assert_int_equal(a.data_bytes, 12);
    assert_memory_equal(a.data, DATA, 12);
    assert_int_equal(a.description, SQRL_NO_NODE);
    assert_int_equal(tape.nodes[sqrl_node_next(tape.nodes, 1)].type, SQRL_NULL);
    sqrl_ndarray_view(tape.nodes, 0, map.data, &a); /* no array: all zero */
    assert_null(a.data);
    sqrl_tape_reset(&tape);
}

static int release(void **state) {
    (void)state;
    sqrl_bytes_reset(&map);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_are_parsed_and_named),
        cmocka_unit_test(data_must_be_as_long_as_the_shape_says),
        cmocka_unit_test(objects_are_refused_as_pickles),
        cmocka_unit_test(structures_have_the_size_of_their_fields),
        cmocka_unit_test(deep_structures_stay_maps),
        cmocka_unit_test(complex_text_must_be_a_number),
        cmocka_unit_test(both_ways_make_the_same_nodes),
        cmocka_unit_test(a_view_takes_an_array_apart),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
