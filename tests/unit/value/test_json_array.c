/* NumPy arrays in JSON: what SquirrelJsonEncoder writes, both ways; contents that are
 * wrong; arrays that only MessagePack or JSON can hold. */
#include "json_help.h"

#include "golden/json/vectors.h"

static void reads_what_squirrel_core_writes(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(ARRAYS); i++)
        check_json(ARRAYS[i].text, strlen(ARRAYS[i].text), ARRAYS[i].dump,
                   ARRAYS[i].same ? ARRAYS[i].text : NULL, strlen(ARRAYS[i].text));
}

static void keys_come_in_any_order(void **state) {
    (void)state;
    static const char *const TEXTS[] = {
        "{\"data\":[[1,2],[3,4]],\"type\":\"<u2\",\"shape\":[2,2]}",
        "{\"shape\":[2,2],\"data\":[[1,2],[3,4]],\"type\":\"<u2\"}",
        "{\"type\":\"uint16\",\"shape\":[2,2],\"data\":[[1,2],[3,4]]}",
        "{\"type\":\"<u2\",\"data\":[1,2,3,4],\"shape\":[2,2]}", /* np.reshape has it so
                                                                  */
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(TEXTS); i++) {
        char *dump = dump_json(TEXTS[i], strlen(TEXTS[i]));
        assert_string_equal(dump, "n:uint16::2,2:0100020003000400");
        free(dump);
    }
}

/* Strings with escapes before, in and behind an array keep their places. */
static void escapes_around_an_array(void **state) {
    (void)state;
    const char *text =
        "[\"\\n\",{\"data\":[\"a\\u00e9\",\"\\ud83d\\ude00\"],\"type\":\"<U2\","
        "\"shape\":[2]},\"\\t\",{\"k\":\"\\\\\"}]";
    char *dump = dump_json(text, strlen(text));
    assert_string_equal(
        dump,
        "[s:0a,n:other::2:61000000e900000000f6010000000000:s:3c5532,s:09,{s:6b=s:5c}]");
    free(dump);
}

static void refuses_wrong_contents(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *says;
    } BAD[] = {
        {"{\"data\":[1,2],\"type\":\"<i4\",\"shape\":[3]}", SQRL_E_CORRUPT,
         "differ in size"},
        {"{\"data\":[1,2],\"type\":\"<i4\",\"shape\":[1]}", SQRL_E_CORRUPT,
         "differ in size"},
        {"{\"data\":[],\"type\":\"<i4\",\"shape\":[4294967296,4294967296]}",
         SQRL_E_CORRUPT, "differ in size"},
        {"{\"data\":[[1,2],[3]],\"type\":\"<i4\",\"shape\":[3]}", SQRL_E_CORRUPT,
         "differ in length"},
        {"{\"data\":[1,[2]],\"type\":\"<i4\",\"shape\":[2]}", SQRL_E_CORRUPT, "nested"},
        {"{\"data\":[[1],2],\"type\":\"<i4\",\"shape\":[2]}", SQRL_E_CORRUPT, "nested"},
        {"{\"data\":[1.5],\"type\":\"<i4\",\"shape\":[1]}", SQRL_E_TYPE, "no integer"},
        {"{\"data\":[300],\"type\":\"|u1\",\"shape\":[1]}", SQRL_E_TYPE, "out of range"},
        {"{\"data\":[-1],\"type\":\"<u8\",\"shape\":[1]}", SQRL_E_TYPE, "out of range"},
        {"{\"data\":[18446744073709551615],\"type\":\"<i8\",\"shape\":[1]}", SQRL_E_TYPE,
         "out of range"},
        {"{\"data\":[99999999999999999999],\"type\":\"<i8\",\"shape\":[1]}", SQRL_E_TYPE,
         "too large"},
        {"{\"data\":[2],\"type\":\"|b1\",\"shape\":[1]}", SQRL_E_TYPE, "out of range"},
        {"{\"data\":[\"x\"],\"type\":\"<f4\",\"shape\":[1]}", SQRL_E_TYPE, "no number"},
        {"{\"data\":[null],\"type\":\"<f4\",\"shape\":[1]}", SQRL_E_TYPE, "no number"},
        {"{\"data\":[1],\"type\":\"<U1\",\"shape\":[1]}", SQRL_E_TYPE, "no string"},
        {"{\"data\":[\"ab\"],\"type\":\"<U1\",\"shape\":[1]}", SQRL_E_TYPE, "longer"},
        {"{\"data\":[\"\\ud800\"],\"type\":\"<U1\",\"shape\":[1]}", SQRL_E_CORRUPT,
         "surrogate"},
        {"{\"data\":[\"a\"],\"type\":\"<U1000000\",\"shape\":[1]}", SQRL_E_LIMIT,
         "bytes"},
        {"{\"data\":[1],\"type\":\"|O\",\"shape\":[1]}", SQRL_E_UNSUPPORTED, "object"},
        {"{\"data\":[1],\"type\":\"O\",\"shape\":[1]}", SQRL_E_UNSUPPORTED, "object"},
        {"{\"data\":[1],\"type\":\"object\",\"shape\":[1]}", SQRL_E_UNSUPPORTED,
         "object"},
        {"{\"data\":[1],\"type\":\"<c8\",\"shape\":[1]}", SQRL_E_UNSUPPORTED, "complex"},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(BAD); i++) {
        struct sqrl_tape tape = {0};
        struct sqrl_error err = {0};
        size_t size = strlen(BAD[i].text), offset = 0;
        uint8_t *bytes = exact(BAD[i].text, size);
        int code = sqrl_json_decode(&tape, bytes, size, &offset, 0, NULL, &err);
        if (code != BAD[i].code || !strstr(err.message, BAD[i].says) || offset >= size)
            fail_msg("%s: code %d at %zu: %s", BAD[i].text, code, offset, err.message);
        assert_int_equal(tape.count, 0);
        sqrl_tape_reset(&tape);
        free(bytes);
    }
}

/* 33 dimensions: one more than NumPy 1 has. */
static void refuses_too_many_dimensions(void **state) {
    (void)state;
    struct dump text = {0};
    dump_print(&text, "{\"data\":0,\"type\":\"<i4\",\"shape\":[1");
    for (int i = 1; i < 33; i++)
        dump_print(&text, ",1");
    dump_print(&text, "]}");
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    uint8_t *bytes = exact(text.text, text.size);
    assert_int_equal(decode_all(&tape, bytes, text.size, &err), SQRL_E_LIMIT);
    free(bytes);
    free(text.text);
    sqrl_tape_reset(&tape);
}

/* An array from MessagePack's side: data in the bytes, not on the tape. */
static void writes_arrays_of_msgpack(void **state) {
    (void)state;
    struct sqrl_bytes packed = {0}, out = {0};
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    const float data[6] = {0, 1, 0.5f, -1, 1e10f, 0.1f};
    const uint64_t shape[2] = {2, 3};
    size_t offset = 0;
    assert_int_equal(
        sqrl_msgpack_put_ndarray(&packed, SQRL_DTYPE_FLOAT32, shape, 2, data, &err),
        SQRL_OK);
    assert_int_equal(
        sqrl_msgpack_decode(&tape, packed.data, packed.size, &offset, NULL, &err),
        SQRL_OK);
    assert_int_equal(sqrl_json_encode(&out, tape.nodes, 0, packed.data, &err), SQRL_OK);
    /* json.dumps(np.array(..., dtype="f4"), cls=SquirrelJsonEncoder) */
    const char *python = "{\"data\": [[0.0, 1.0, 0.5], [-1.0, 10000000000.0, "
                         "0.10000000149011612]], \"type\": \"<f4\", \"shape\": [2, 3]}";
    assert_int_equal(out.size, strlen(python));
    assert_memory_equal(out.data, python, out.size);
    sqrl_bytes_reset(&packed);
    sqrl_bytes_reset(&out);
    sqrl_tape_reset(&tape);
}

/* JSON to MessagePack and back is the same array. */
static void goes_through_msgpack(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(ARRAYS); i++) {
        struct sqrl_tape tape = {0}, tape2 = {0};
        struct sqrl_bytes packed = {0};
        struct sqrl_error err = {0};
        size_t size = strlen(ARRAYS[i].text), offset = 0;
        uint8_t *bytes = exact(ARRAYS[i].text, size);
        assert_int_equal(decode_all(&tape, bytes, size, &err), SQRL_OK);
        assert_int_equal(sqrl_msgpack_encode(&packed, tape.nodes, 0, bytes, &err),
                         SQRL_OK);
        assert_int_equal(
            sqrl_msgpack_decode(&tape2, packed.data, packed.size, &offset, NULL, &err),
            SQRL_OK);
        char *dump = dump_text(&tape2, 0, packed.data);
        assert_string_equal(dump, ARRAYS[i].dump);
        free(dump);
        free(bytes);
        sqrl_bytes_reset(&packed);
        sqrl_tape_reset(&tape);
        sqrl_tape_reset(&tape2);
    }
}

static void refuses_to_write_what_json_lacks(void **state) {
    (void)state;
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    const uint8_t bytes[32] = "|S4<M8[D]";
    struct sqrl_node nodes[3] = {
        {.type = SQRL_NDARRAY, .aux = SQRL_DTYPE_COMPLEX64, .v.next = 2},
        {.type = SQRL_BINARY, .size = 8},
        {.type = SQRL_STRING, .size = 3},
    };
    assert_int_equal(sqrl_json_encode(&out, nodes, 0, bytes, &err), SQRL_E_TYPE);
    nodes[0].aux = SQRL_DTYPE_OTHER;
    nodes[0].v.next = 3;
    assert_int_equal(sqrl_json_encode(&out, nodes, 0, bytes, &err), SQRL_E_TYPE);
    assert_non_null(strstr(err.message, "|S4"));
    nodes[2].v.offset = 3;
    nodes[2].size = 6;
    assert_int_equal(sqrl_json_encode(&out, nodes, 0, bytes, &err), SQRL_E_TYPE);
    nodes[0].aux = SQRL_DTYPE_FLOAT32; /* 8 bytes, but no dimensions: one element */
    assert_int_equal(sqrl_json_encode(&out, nodes, 0, bytes, &err), SQRL_E_CORRUPT);
    assert_int_equal(out.size, 0);
    sqrl_bytes_reset(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_squirrel_core_writes),
        cmocka_unit_test(keys_come_in_any_order),
        cmocka_unit_test(escapes_around_an_array),
        cmocka_unit_test(refuses_wrong_contents),
        cmocka_unit_test(refuses_too_many_dimensions),
        cmocka_unit_test(writes_arrays_of_msgpack),
        cmocka_unit_test(goes_through_msgpack),
        cmocka_unit_test(refuses_to_write_what_json_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
