/* Schemas: the rules of sqrl/schema.h as a table, joining as properties over random
 * values, MessagePack and text forms, limits, failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "sqrl/schema.h"

static struct sqrl_context *context;

static int setup(void **state) {
    return sqrl_context_new(NULL, &context, NULL);
}

static int teardown(void **state) {
    sqrl_context_unref(context);
    return 0;
}

static struct sqrl_block *block_of(const void *data, size_t size, bool json) {
    struct sqrl_block *block = NULL;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_block_new(context, &block, &err), 0);
    assert_int_equal(sqrl_buffer_new(context, size + 64, &block->bytes, &err), 0);
    memcpy(block->bytes->data, data, size);
    block->bytes->size = size;
    int rc = json ? sqrl_block_parse_jsonl(block, 0, SQRL_JSON_NAN, NULL, &err)
                  : sqrl_block_parse_msgpack(block, 0, NULL, NULL, &err);
    if (rc)
        fail_msg("%s: %s", err.where, err.message);
    return block;
}

/* "name=type;name=type" of all fields. */
static void schema_text(const struct sqrl_schema *schema, char *out, size_t size) {
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < schema->count; i++) {
        char type[128];
        sqrl_field_type_text(&schema->fields[i], type, sizeof type);
        n += (size_t)snprintf(out + n, size - n, "%s%s=%s", i ? ";" : "",
                              schema->fields[i].name, type);
        assert_true(n < size);
    }
}

static const struct {
    const char *lines, *expected;
} rules[] = {
    {"{\"a\":1}\n{\"a\":-2}", "a=int64"},
    {"{\"a\":true}\n{\"a\":false}", "a=bool"},
    {"{\"a\":1}\n{\"a\":2.5}", "a=float64"},
    {"{\"a\":2.5}\n{\"a\":1}", "a=float64"},
    {"{\"a\":1}\n{\"a\":18446744073709551615}", "a=uint64"},
    {"{\"a\":18446744073709551615}\n{\"a\":1}", "a=uint64"},
    {"{\"a\":-1}\n{\"a\":18446744073709551615}", "a=float64"},
    {"{\"a\":18446744073709551615}\n{\"a\":-1}", "a=float64"},
    {"{\"a\":18446744073709551615}\n{\"a\":0.5}", "a=float64"},
    {"{\"a\":1}\n{\"a\":true}", "a=other"},
    {"{\"a\":1}\n{\"a\":\"x\"}", "a=other"},
    {"{\"a\":\"x\"}\n{\"a\":\"\"}", "a=string"},
    {"{\"a\":null}\n{\"a\":null}", "a=null"},
    {"{\"a\":null}\n{\"a\":3}", "a=int64?"},
    {"{\"a\":3}\n{\"a\":null}", "a=int64?"},
    {"{\"a\":3}\n{}", "a=int64?"},
    {"{}\n{\"a\":3}", "a=int64?"},
    {"{\"a\":1,\"b\":2}\n{\"b\":3,\"a\":4}", "a=int64;b=int64"},
    {"{\"a\":1}\n{\"b\":2}", "a=int64?;b=int64?"},
    {"{\"a\":{\"b\":1,\"c\":{\"d\":\"x\"}},\"e\":2}", "a.b=int64;a.c.d=string;e=int64"},
    {"{\"a.b\":1,\"a\":{\"b\":\"x\"}}", "a\\.b=int64;a.b=string"},
    {"{\"a\":{\"b\":\"x\"},\"a.b\":1}", "a.b=string;a\\.b=int64"},
    {"{\"a\\\\.b\":1,\"a\\\\\":{\"b\":2}}", "a\\\\\\.b=int64;a\\\\.b=int64"},
    {"{\"a\":[1,2]}\n{\"a\":[]}\n{\"a\":[3]}", "a=int64[~]"},
    {"{\"a\":[]}\n{\"a\":[0.5]}", "a=float64[~]"},
    {"{\"a\":[]}\n{\"a\":[true]}", "a=bool[~]"},
    {"{\"a\":[1,0.5]}", "a=float64[~]"},
    {"{\"a\":[-1,18446744073709551615]}", "a=float64[~]"},
    {"{\"a\":[1,2]}\n{\"a\":[18446744073709551615]}", "a=uint64[~]"},
    {"{\"a\":[1,\"x\"]}", "a=other"},
    {"{\"a\":[1,null]}", "a=other"},
    {"{\"a\":[true,1]}", "a=other"},
    {"{\"a\":[[1],[2]]}", "a=other"},
    {"{\"a\":[{\"b\":1}]}", "a=other"},
    {"{\"a\":[1]}\n{\"a\":1}", "a=other"},
    {"{\"a\":[]}\n{\"a\":1}", "a=other"},
    {"{\"a\":1}\n{\"a\":[]}", "a=other"},
    {"{\"a\":\"x\"}\n{\"a\":[]}", "a=other"},
    {"{\"a\":1}\n{\"a\":\"x\"}\n{\"a\":null}\n{\"a\":1}", "a=other?"},
    {"{\"a\":123456789012345678901234567890}", "a=other"},
    {"{\"a\\u0000b\":1,\"c\":2}", "c=int64"},
    {"{\"a\":{}}\n{\"a\":{\"b\":1}}", "a.b=int64?"},
    {"1\n-2", "=int64"},
    {"\"x\"\n\"y\"", "=string"},
    {"[1,2]\n[]", "=int64[~]"},
    {"{\"a\":1,\"a\":2}\n{\"b\":1}", "a=int64?;b=int64?"},
    {"{\"a\":1,\"a\":2}\n{\"a\":3}", "a=int64"},
    {"{}\n{}", ""},
};

static void test_rules(void **state) {
    for (size_t i = 0; i < SQRL_COUNT_OF(rules); i++) {
        struct sqrl_schema schema = {0};
        struct sqrl_block *block = block_of(rules[i].lines, strlen(rules[i].lines), true);
        assert_int_equal(sqrl_schema_observe(&schema, block, NULL), 0);
        char text[512];
        schema_text(&schema, text, sizeof text);
        if (strcmp(text, rules[i].expected) != 0)
            fail_msg("%s\ngives %s, not %s", rules[i].lines, text, rules[i].expected);
        assert_int_equal(schema.samples, block->count);
        sqrl_schema_reset(&schema);
        sqrl_block_unref(block);
    }
}

static void put_array(struct sqrl_bytes *out, const char *name, enum sqrl_dtype dtype,
                      uint32_t dims, const uint64_t *shape) {
    static const uint8_t zeros[4096];
    assert_int_equal(sqrl_msgpack_put_map(out, 1, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(out, name, strlen(name), NULL), 0);
    assert_int_equal(sqrl_msgpack_put_ndarray(out, dtype, shape, dims, zeros, NULL), 0);
}

static void check_arrays(const struct sqrl_bytes *bytes, const char *expected) {
    struct sqrl_schema schema = {0};
    struct sqrl_block *block = block_of(bytes->data, bytes->size, false);
    assert_int_equal(sqrl_schema_observe(&schema, block, NULL), 0);
    char text[256];
    schema_text(&schema, text, sizeof text);
    assert_string_equal(text, expected);
    sqrl_schema_reset(&schema);
    sqrl_block_unref(block);
}

static void test_arrays(void **state) {
    struct sqrl_bytes bytes = {0};
    uint64_t a[] = {4, 5, 3}, b[] = {4, 6, 3}, c[] = {7};
    put_array(&bytes, "x", SQRL_DTYPE_UINT8, 3, a);
    put_array(&bytes, "x", SQRL_DTYPE_UINT8, 3, a);
    check_arrays(&bytes, "x=uint8[4,5,3]");
    put_array(&bytes, "x", SQRL_DTYPE_UINT8, 3, b);
    check_arrays(&bytes, "x=uint8[~,~,~]");
    put_array(&bytes, "x", SQRL_DTYPE_UINT8, 1, c);
    check_arrays(&bytes, "x=other");
    bytes.size = 0;
    put_array(&bytes, "x", SQRL_DTYPE_FLOAT32, 1, c);
    put_array(&bytes, "x", SQRL_DTYPE_FLOAT64, 1, c);
    check_arrays(&bytes, "x=other");
    bytes.size = 0;
    put_array(&bytes, "x", SQRL_DTYPE_FLOAT64, 0, c);
    put_array(&bytes, "x", SQRL_DTYPE_FLOAT64, 0, c);
    check_arrays(&bytes, "x=float64");
    /* A plain number beside an array's dtype widens to it, and never the reverse. */
    static const uint8_t plain_int[] = {0x81, 0xa1, 'x', 0x05};
    assert_int_equal(sqrl_bytes_append(&bytes, plain_int, sizeof plain_int, NULL), 0);
    check_arrays(&bytes, "x=float64");
    put_array(&bytes, "x", SQRL_DTYPE_INT64, 0, c);
    check_arrays(&bytes, "x=other");
    /* Binaries; keys that are no text have no field. */
    static const uint8_t binary[] = {0x82, 0xa1, 'y', 0xc4, 1, 0, 0x07, 0x08};
    bytes.size = 0;
    assert_int_equal(sqrl_bytes_append(&bytes, binary, sizeof binary, NULL), 0);
    check_arrays(&bytes, "y=binary");
    sqrl_bytes_reset(&bytes);
}

static void test_first_and_seen(void **state) {
    const char *lines = "{\"a\":null}\n{\"b\":1}\n{\"a\":2,\"b\":0.5}\n{\"a\":\"x\"}";
    struct sqrl_schema schema = {0};
    struct sqrl_block *block = block_of(lines, strlen(lines), true);
    block->shard = 7;
    block->first = 100;
    assert_int_equal(sqrl_schema_observe(&schema, block, NULL), 0);
    assert_int_equal(schema.fields[0].seen, 3);
    assert_int_equal(schema.fields[0].first.sample, 103); /* became other there */
    assert_int_equal(schema.fields[0].first.shard, 7);
    assert_int_equal(schema.fields[1].seen, 2);
    assert_int_equal(schema.fields[1].first.sample, 102); /* became float64 there */
    sqrl_schema_reset(&schema);
    sqrl_block_unref(block);
}

/* --- properties over random values --- */

static const char *const values[] = {"1",
                                     "-1",
                                     "0",
                                     "18446744073709551615",
                                     "0.5",
                                     "true",
                                     "null",
                                     "\"s\"",
                                     "[1]",
                                     "[]",
                                     "[-3]",
                                     "[0.5,1]",
                                     "[false]",
                                     "[\"x\"]",
                                     "[18446744073709551615]",
                                     "{}",
                                     "{\"p\":1}",
                                     "{\"p\":null,\"q\":\"x\"}",
                                     "123456789012345678901234567890"};
static const char *const keys[] = {"a", "b", "c.d", "e"};

static size_t random_sample(struct sqrl_rng *rng, uint64_t kinds, char *out) {
    size_t n = (size_t)sprintf(out, "{");
    for (size_t k = 0; k < SQRL_COUNT_OF(keys); k++) {
        size_t value = sqrl_rng_below(rng, kinds);
        if (sqrl_rng_below(rng, 4) == 0)
            continue;
        n += (size_t)sprintf(out + n, "%s\"%s\":%s", n > 1 ? "," : "", keys[k],
                             values[value]);
    }
    return n + (size_t)sprintf(out + n, "}\n");
}

static void assert_same(const struct sqrl_schema *a, const struct sqrl_schema *b) {
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->samples, b->samples);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct sqrl_field *f = &a->fields[i];
        int at = sqrl_schema_find(b, f->name, strlen(f->name));
        assert_true(at >= 0);
        const struct sqrl_field *g = &b->fields[at];
        assert_int_equal(f->kind, g->kind);
        assert_int_equal(f->dtype, g->dtype);
        assert_int_equal(f->python_number, g->python_number);
        assert_int_equal(f->nullable, g->nullable);
        assert_int_equal(f->negative, g->negative);
        assert_int_equal(f->dims, g->dims);
        assert_int_equal(f->seen, g->seen);
        assert_memory_equal(f->shape, g->shape, sizeof f->shape);
    }
}

/* However samples are cut into blocks, and in whatever order the parts are merged. */
static void test_cutting_and_order(void **state) {
    enum { SAMPLES = 12, PARTS = 4, ROUNDS = 3000 };
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct sqrl_rng rng;
        sqrl_rng_init(&rng, seed);
        char text[SAMPLES * 256];
        size_t begin[SAMPLES + 1], n = 0;
        uint64_t kinds = 1 + sqrl_rng_below(&rng, SQRL_COUNT_OF(values));
        for (size_t i = 0; i < SAMPLES; i++) {
            begin[i] = n;
            n += random_sample(&rng, kinds, text + n);
        }
        begin[SAMPLES] = n;
        struct sqrl_schema whole = {0}, merged = {0}, parts[PARTS] = {{0}};
        struct sqrl_block *block = block_of(text, n, true);
        assert_int_equal(sqrl_schema_observe(&whole, block, NULL), 0);
        sqrl_block_unref(block);
        size_t at = 0;
        for (size_t p = 0; p < PARTS; p++) {
            size_t to =
                p + 1 == PARTS ? SAMPLES : at + sqrl_rng_below(&rng, SAMPLES - at + 1);
            block = block_of(text + begin[at], begin[to] - begin[at], true);
            /* Half of the parts go through observe on top of another. */
            struct sqrl_schema *into =
                p && sqrl_rng_below(&rng, 2) ? &parts[p - 1] : &parts[p];
            assert_int_equal(sqrl_schema_observe(into, block, NULL), 0);
            sqrl_block_unref(block);
            at = to;
        }
        for (size_t p = 0, first = sqrl_rng_below(&rng, PARTS); p < PARTS; p++) {
            size_t which =
                (first + p * 3) % PARTS; /* 3 and PARTS have no common divisor */
            assert_int_equal(sqrl_schema_merge(&merged, &parts[which], NULL), 0);
        }
        assert_same(&whole, &merged);
        for (size_t p = 0; p < PARTS; p++)
            sqrl_schema_reset(&parts[p]);
        sqrl_schema_reset(&whole);
        sqrl_schema_reset(&merged);
    }
}

static struct sqrl_schema random_schema(uint64_t seed) {
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, seed);
    char text[1024];
    size_t n = 0;
    uint64_t kinds = 1 + sqrl_rng_below(&rng, SQRL_COUNT_OF(values));
    for (size_t i = 0; i < 3; i++)
        n += random_sample(&rng, kinds, text + n);
    struct sqrl_schema schema = {0};
    struct sqrl_block *block = block_of(text, n, true);
    assert_int_equal(sqrl_schema_observe(&schema, block, NULL), 0);
    sqrl_block_unref(block);
    return schema;
}

static void test_encode_decode(void **state) {
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct sqrl_schema schema = random_schema(seed), back, copy;
        struct sqrl_bytes bytes = {0};
        struct sqrl_tape tape = {0};
        size_t offset = 0;
        assert_int_equal(sqrl_schema_encode(&schema, &bytes, NULL), 0);
        assert_int_equal(
            sqrl_msgpack_decode(&tape, bytes.data, bytes.size, &offset, NULL, NULL), 0);
        assert_int_equal(offset, bytes.size);
        assert_int_equal(sqrl_schema_decode(&back, tape.nodes, 0, bytes.data, NULL), 0);
        back.samples = schema.samples;
        assert_same(&schema, &back);
        for (uint32_t i = 0; i < schema.count; i++)
            assert_string_equal(schema.fields[i].name, back.fields[i].name);
        assert_int_equal(sqrl_schema_copy(&schema, &copy, NULL), 0);
        assert_same(&schema, &copy);
        sqrl_schema_reset(&copy);
        sqrl_schema_reset(&back);
        sqrl_schema_reset(&schema);
        sqrl_tape_reset(&tape);
        sqrl_bytes_reset(&bytes);
    }
}

static void check_decode(const char *json, int expected) {
    struct sqrl_tape tape = {0};
    char text[512];
    size_t offset = 0, size = strlen(json);
    memcpy(text, json, size + 1);
    assert_int_equal(
        sqrl_json_decode(&tape, (uint8_t *)text, size, &offset, 0, NULL, NULL), 0);
    struct sqrl_schema schema;
    struct sqrl_error err = {0};
    int rc = sqrl_schema_decode(&schema, tape.nodes, 0, (uint8_t *)text, &err);
    if (rc != expected)
        fail_msg("%s: %s, not %s", json, sqrl_code_name(rc), sqrl_code_name(expected));
    sqrl_schema_reset(&schema);
    sqrl_tape_reset(&tape);
}

static void test_decode_bad(void **state) {
    check_decode("[]", SQRL_OK);
    check_decode("[{\"name\":\"a\",\"kind\":\"string\",\"later\":[1]}]", SQRL_OK);
    check_decode("[{\"name\":\"a\",\"kind\":\"of a later version\"}]", SQRL_OK);
    check_decode("{}", SQRL_E_CORRUPT);
    check_decode("[1]", SQRL_E_CORRUPT);
    check_decode("[{}]", SQRL_E_CORRUPT);
    check_decode("[{\"name\":\"a\"}]", SQRL_E_CORRUPT);
    check_decode("[{\"name\":1,\"kind\":\"string\"}]", SQRL_E_CORRUPT);
    check_decode("[{\"name\":\"a\\u0000\",\"kind\":\"string\"}]", SQRL_E_CORRUPT);
    check_decode(
        "[{\"name\":\"a\",\"kind\":\"string\"},{\"name\":\"a\",\"kind\":\"null\"}]",
        SQRL_E_CORRUPT);
    check_decode("[{\"name\":\"a\",\"kind\":\"dense\"}]", SQRL_E_CORRUPT);
    check_decode(
        "[{\"name\":\"a\",\"kind\":\"dense\",\"dtype\":\"int8\",\"shape\":[-1]}]",
        SQRL_E_CORRUPT);
    check_decode("[{\"name\":\"a\",\"kind\":\"ragged\",\"dtype\":\"int8\",\"shape\":[]}]",
                 SQRL_E_CORRUPT);
    check_decode(
        "[{\"name\":\"a\",\"kind\":\"dense\",\"dtype\":\"int8\",\"shape\":[1,1,1,1,"
        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]",
        SQRL_E_CORRUPT);
    check_decode("[{\"name\":\"a\",\"kind\":\"string\",\"seen\":-1}]", SQRL_E_CORRUPT);
}

static void test_type_text(void **state) {
    static const char *const good[] = {"bool",           "int64",
                                       "uint8[32,32,3]", "float32[~,~]",
                                       "string",         "binary?",
                                       "float64[~]?",    "complex64",
                                       "uint16[1]",      "float16[0,70000000000]"};
    static const char *const bad[] = {
        "",
        "in",
        "string[3]",
        "uint8[",
        "uint8[]",
        "uint8[3",
        "uint8[3,]",
        "uint8[3]x",
        "?",
        "uint8[-1]",
        "other",
        "null",
        "uint8 ",
        "uint8[3]]",
        "uint8[x]",
        "uint8[99999999999999999999999]",
        "int8[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
        "1,1,1,1,1,1,1,1,1]"};
    for (size_t i = 0; i < SQRL_COUNT_OF(good); i++) {
        struct sqrl_field field;
        assert_int_equal(sqrl_field_parse("f", good[i], &field, NULL), 0);
        char text[64], small[4];
        assert_int_equal(sqrl_field_type_text(&field, text, sizeof text),
                         strlen(good[i]));
        assert_string_equal(text, good[i]);
        assert_int_equal(sqrl_field_type_text(&field, small, sizeof small),
                         strlen(good[i]));
        assert_memory_equal(small, good[i], 3);
        assert_int_equal(small[3], 0);
        free(field.name);
    }
    for (size_t i = 0; i < SQRL_COUNT_OF(bad); i++) {
        struct sqrl_field field;
        if (sqrl_field_parse("f", bad[i], &field, NULL) != SQRL_E_INVALID)
            fail_msg("\"%s\" is accepted", bad[i]);
        assert_null(field.name);
    }
}

static void test_limits(void **state) {
    char *text = malloc(200000);
    size_t n = 0;
    for (int i = 0; i < SQRL_MAX_FIELDS; i++)
        n += (size_t)sprintf(text + n, "{\"f%d\":1}\n", (i * 7) % SQRL_MAX_FIELDS);
    struct sqrl_schema schema = {0};
    struct sqrl_error err = {0};
    struct sqrl_block *block = block_of(text, n, true);
    assert_int_equal(sqrl_schema_observe(&schema, block, &err), 0);
    assert_int_equal(sqrl_schema_observe(&schema, block, &err), 0);
    assert_int_equal(schema.count, SQRL_MAX_FIELDS);
    assert_int_equal(schema.fields[1].seen, 2);
    sqrl_block_unref(block);
    block = block_of("{\"more\":1}", 10, true);
    assert_int_equal(sqrl_schema_observe(&schema, block, &err), SQRL_E_LIMIT);
    sqrl_block_unref(block);
    sqrl_schema_reset(&schema);

    for (int size = SQRL_MAX_FIELD_NAME - 1; size <= SQRL_MAX_FIELD_NAME + 1; size++) {
        n = (size_t)sprintf(text, "{\"%0*d\":1}", size, 0);
        block = block_of(text, n, true);
        assert_int_equal(sqrl_schema_observe(&schema, block, &err),
                         size > SQRL_MAX_FIELD_NAME ? SQRL_E_LIMIT : 0);
        sqrl_block_unref(block);
        sqrl_schema_reset(&schema);
    }
    /* Deeper than names go: the map there is one field of kind OTHER. */
    n = 0;
    for (int i = 0; i < 40; i++)
        n += (size_t)sprintf(text + n, "{\"d\":");
    n += (size_t)sprintf(text + n, "1");
    for (int i = 0; i < 40; i++)
        text[n++] = '}';
    block = block_of(text, n, true);
    assert_int_equal(sqrl_schema_observe(&schema, block, &err), 0);
    assert_int_equal(schema.count, 1);
    assert_int_equal(schema.fields[0].kind, SQRL_KIND_OTHER);
    assert_int_equal(strlen(schema.fields[0].name), 2 * SQRL_MAX_FIELD_DEPTH - 1);
    sqrl_block_unref(block);
    sqrl_schema_reset(&schema);
    free(text);
}

static void test_failing_allocations(void **state) {
    const char *lines = "{\"a\":1,\"b\":{\"c\":\"x\"}}\n{\"z\":[1],\"a\":0.5}";
    struct sqrl_block *block = block_of(lines, strlen(lines), true);
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        struct sqrl_schema schema = {0}, copy = {0}, merged = {0};
        struct sqrl_error err = {0};
        sqrl_fail_allocation(n);
        int rc = sqrl_schema_observe(&schema, block, &err);
        if (rc == 0)
            rc = sqrl_schema_copy(&schema, &copy, &err);
        if (rc == 0)
            rc = sqrl_schema_merge(&merged, &schema, &err);
        sqrl_fail_allocation(0);
        sqrl_schema_reset(&schema);
        sqrl_schema_reset(&copy);
        sqrl_schema_reset(&merged);
        if (rc == 0)
            break;
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        failures++;
    }
    assert_true(failures > 5);
    sqrl_block_unref(block);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_first_and_seen),
        cmocka_unit_test(test_cutting_and_order),
        cmocka_unit_test(test_encode_decode),
        cmocka_unit_test(test_decode_bad),
        cmocka_unit_test(test_type_text),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
