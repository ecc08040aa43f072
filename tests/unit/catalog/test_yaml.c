/* Scalars' meanings, refusals with their places, and text that reads back equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/yaml.h"
#include "sqrl/catalog.h"

/* What ruamel.yaml 0.19 (YAML 1.2), squirrel-core's reader, gives for the plain scalar;
 * JSON's spelling of the value, texts in quotes. Dates are texts here. */
static const struct {
    const char *plain, *value;
} scalars[] = {
    {"", "null"},
    {"~", "null"},
    {"null", "null"},
    {"Null", "null"},
    {"NULL", "null"},
    {"nUll", "\"nUll\""},
    {"true", "true"},
    {"True", "true"},
    {"TRUE", "true"},
    {"false", "false"},
    {"yes", "\"yes\""},
    {"no", "\"no\""},
    {"on", "\"on\""},
    {"y", "\"y\""},
    {"0", "0"},
    {"-0", "0"},
    {"+5", "5"},
    {"012", "12"},
    {"1_000", "1000"},
    {"0x1F", "31"},
    {"0o17", "15"},
    {"0b11", "3"},
    {"-0x10", "-16"},
    {"0xG", "\"0xG\""},
    {"_1", "\"_1\""},
    {"-", "\"-\""},
    {"1:30", "\"1:30\""},
    {"9223372036854775807", "9223372036854775807"},
    {"-9223372036854775808", "-9223372036854775808"},
    {"18446744073709551615", "18446744073709551615"},
    {"1.5", "1.5"},
    {".5", "0.5"},
    {"5.", "5.0"},
    {"1e3", "1000.0"},
    {"1.e5", "100000.0"},
    {"-1E-2", "-0.01"},
    {"1_0.5", "10.5"},
    {".e5", "\".e5\""},
    {"1e", "\"1e\""},
    {"1.2.3", "\"1.2.3\""},
    {".", "\".\""},
    {".inf", "Infinity"},
    {"-.INF", "-Infinity"},
    {"+.inf", "Infinity"},
    {".NaN", "NaN"},
    {"-.nan", "\"-.nan\""},
    {"=", "\"=\""},
};

static void test_scalars(void **state) {
    for (size_t i = 0; i < SQRL_COUNT_OF(scalars); i++) {
        struct sqrl_node node;
        struct sqrl_bytes got = {0};
        const char *text = scalars[i].plain;
        assert_int_equal(sqrl_yaml_resolve(text, strlen(text), &node, NULL), SQRL_OK);
        node.v.offset = node.type == SQRL_STRING ? 0 : node.v.offset;
        assert_int_equal(sqrl_json_encode(&got, &node, 0, (const uint8_t *)text, NULL),
                         SQRL_OK);
        assert_int_equal(got.size, strlen(scalars[i].value));
        assert_memory_equal(got.data, scalars[i].value, got.size);
        sqrl_bytes_reset(&got);
    }
    struct sqrl_node node;
    static const char *const large[] = {"18446744073709551616", "-9223372036854775809",
                                        "0x10000000000000000"};
    for (size_t i = 0; i < SQRL_COUNT_OF(large); i++)
        assert_int_equal(sqrl_yaml_resolve(large[i], strlen(large[i]), &node, NULL),
                         SQRL_E_LIMIT);
}

/* Dates and times, and their one form; "" for what stays a text. The forms are those that
 * PyYAML's str() of its datetime gives. */
static const struct {
    const char *plain, *form;
} times[] = {
    {"2024-01-31", "2024-01-31"},
    {"2024-02-29", "2024-02-29"},
    {"2001-12-14t21:59:43.10-05:00", "2001-12-14 21:59:43.100000-05:00"},
    {"2001-12-14 21:59:43.10 -5", "2001-12-14 21:59:43.100000-05:00"},
    {"2001-12-15 2:59:43.10", "2001-12-15 02:59:43.100000"},
    {"2001-1-2T02:59:43Z", "2001-01-02 02:59:43+00:00"},
    {"2024-01-02 03:04:05.000060", "2024-01-02 03:04:05.000060"},
    {"2024-01-02 03:04:05.006000-03:30", "2024-01-02 03:04:05.006000-03:30"},
    {"2024-01-02 \t03:04:05.", "2024-01-02 03:04:05"},
    {"2001-1-2", ""},
    {"2001-13-01", ""},
    {"2023-02-29", ""},
    {"0000-01-01", ""},
    {"2001-12-14 24:00:00", ""},
    {"2001-12-14T21:59", ""},
    {"2001-12-14 21:59:43 ", ""},
    {"2001-12-14 21:59:43.1234567", ""},
    {"2001-12-14 21:59:43z", ""},
    {"2001-12-14x", ""},
    {"20011214", NULL}, /* a number */
};

static void test_times(void **state) {
    for (size_t i = 0; i < SQRL_COUNT_OF(times); i++) {
        struct sqrl_node node;
        char form[SQRL_CATALOG_TIME_BYTES];
        const char *text = times[i].plain;
        assert_int_equal(sqrl_yaml_resolve(text, strlen(text), &node, NULL), SQRL_OK);
        size_t size = sqrl_catalog_time(text, strlen(text), form);
        if (!times[i].form) {
            assert_int_equal(node.type, SQRL_INT);
        } else if (!*times[i].form) {
            assert_int_equal(node.type, SQRL_STRING);
            assert_int_equal(size, 0);
        } else {
            assert_int_equal(node.type, SQRL_EXT);
            assert_int_equal(node.aux, SQRL_CATALOG_TIME_EXT + 128);
            assert_int_equal(size, strlen(times[i].form));
            assert_memory_equal(form, times[i].form, size);
        }
    }
}

static const struct {
    const char *yaml;
    int code;
    const char *where, *message; /* parts of them */
} refused[] = {
    {"a: 1\nb: {a: 1, a: 2}", SQRL_E_CORRUPT, "line 2, column 11", "in line 2"},
    {"{1: a, 1.0: b}", SQRL_E_CORRUPT, "line 1, column 8", "already"},
    {"{true: a, 1: b}", SQRL_E_CORRUPT, "line 1, column 11", "already"},
    {"{a: 1, \"a\": 2}", SQRL_E_CORRUPT, "line 1, column 8", "the key a"},
    {"a: &x {b: 1}\nc:\n  <<: *x", SQRL_E_UNSUPPORTED, "line 3, column 3", "merge"},
    {"a: !!str 1", SQRL_E_UNSUPPORTED, "line 1, column 4", "tag:yaml.org,2002:str"},
    {"a: !YamlSource {}", SQRL_E_UNSUPPORTED, "line 1, column 4", "!YamlSource"},
    {"a: !!python/object/apply:os.system [x]", SQRL_E_UNSUPPORTED, "line 1", "tag"},
    {"a: !CatalogKey [x]", SQRL_E_CORRUPT, "line 1, column 4", "[name, 1]"},
    {"a: &x [1, *x]", SQRL_E_UNSUPPORTED, "line 1, column 11", "itself"},
    {"a: *x", SQRL_E_CORRUPT, "line 1, column 4", "&x"},
    {"? [a]\n: 1", SQRL_E_UNSUPPORTED, "line 1, column 3", "key"},
    {"a: 1\n---\nb: 1", SQRL_E_UNSUPPORTED, "line 2, column 1", "second document"},
    {"# nothing", SQRL_E_TRUNCATED, "", "no document"},
    {"a: [1, 2", SQRL_E_CORRUPT, "line 2", "flow sequence"},
    {"a: \"\xff\"", SQRL_E_CORRUPT, "byte 4", "UTF-8"},
    {"a: 99999999999999999999", SQRL_E_LIMIT, "line 1, column 4", "64 bits"},
    {"{?a: 1}", SQRL_E_UNSUPPORTED, "line 1, column 3", "\"?\""},
    {"a: &b:c d", SQRL_E_UNSUPPORTED, "line 1, column 4", "anchor"},
    /* what libyaml reads though YAML 1.2 (6.1, 6.6, 7.3, 7.4) forbids it */
    {"a: [b,\nc]", SQRL_E_CORRUPT, "line 2, column 2", "indented"},
    {"a:\n- [b,\nc]", SQRL_E_CORRUPT, "line 3, column 2", "indented"},
    {"a: {b: [\n c\n]}", SQRL_E_CORRUPT, "line 3, column 2", "indented"},
    {"a: \"b\n\tc\"", SQRL_E_CORRUPT, "line 1, column 4", "indented"},
    {"a: 'b\nc'", SQRL_E_CORRUPT, "line 1, column 4", "indented"},
    {"[a, b]#c", SQRL_E_CORRUPT, "", "blank"},
    {"[a,#c\n b]", SQRL_E_CORRUPT, "line 2", "blank"},
    {"a: [-]", SQRL_E_CORRUPT, "line 1, column 5", "single -"},
    {"%YAML 1.1#\n--- a", SQRL_E_CORRUPT, "line 1", "blank"},
};

static void test_refusals(void **state) {
    for (size_t i = 0; i < SQRL_COUNT_OF(refused); i++) {
        struct sqrl_yaml yaml = {0};
        struct sqrl_error err = {0};
        const char *text = refused[i].yaml;
        int code = sqrl_yaml_read(&yaml, text, strlen(text), &err);
        if (code != refused[i].code || !strstr(err.where, refused[i].where) ||
            !strstr(err.message, refused[i].message))
            fail_msg("%s: %d, %s: %s", text, code, err.where, err.message);
        assert_null(yaml.tape.nodes);
    }
}

static int read_repeated(const char *unit, size_t count, struct sqrl_error *err) {
    size_t size = strlen(unit);
    char *text = malloc(size * count + 1);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * size, unit, size);
    struct sqrl_yaml yaml = {0};
    int code = sqrl_yaml_read(&yaml, text, size * count, err);
    sqrl_yaml_reset(&yaml);
    free(text);
    return code;
}

static void test_limits(void **state) {
    struct sqrl_error err = {0};
    assert_int_equal(read_repeated("[", SQRL_YAML_MAX_DEPTH + 1, &err), SQRL_E_LIMIT);
    assert_non_null(strstr(err.message, "nested"));
    assert_int_equal(read_repeated("[", 1000000, &err), SQRL_E_LIMIT);
    assert_int_equal(read_repeated("- ", 1000000, &err), SQRL_E_LIMIT);
    /* Ten levels of ten aliases each: ten thousand million values if they were made. */
    char bomb[2048];
    size_t at = (size_t)snprintf(bomb, sizeof bomb, "a0: &a0 x\n");
    for (int i = 1; i <= 10; i++)
        at += (size_t)snprintf(bomb + at, sizeof bomb - at,
                               "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,"
                               "*a%d]\n",
                               i, i, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1,
                               i - 1, i - 1, i - 1);
    struct sqrl_yaml yaml = {0};
    assert_int_equal(sqrl_yaml_read(&yaml, bomb, at, &err), SQRL_E_LIMIT);
    assert_non_null(strstr(err.message, "aliases"));
}

static void assert_json(const char *text, const char *json) {
    struct sqrl_yaml yaml = {0};
    struct sqrl_error err = {0};
    struct sqrl_bytes got = {0};
    if (sqrl_yaml_read(&yaml, text, strlen(text), &err))
        fail_msg("%s: %s: %s", text, err.where, err.message);
    assert_int_equal(sqrl_json_encode(&got, yaml.tape.nodes, 0, yaml.text.data, &err),
                     SQRL_OK);
    if (got.size != strlen(json) || memcmp(got.data, json, got.size) != 0)
        fail_msg("%s gives %.*s", text, (int)got.size, (const char *)got.data);
    sqrl_bytes_reset(&got);
    sqrl_yaml_reset(&yaml);
}

static void test_aliases(void **state) {
    assert_json("a: &x {b: [1, {c: 2}]}\nd: [*x, *x]\ne: *x",
                "{\"a\": {\"b\": [1, {\"c\": 2}]}, \"d\": [{\"b\": [1, {\"c\": 2}]}, "
                "{\"b\": [1, {\"c\": 2}]}], \"e\": {\"b\": [1, {\"c\": 2}]}}");
    assert_json("- &a x\n- &a y\n- *a\n- {*a : 1}", "[\"x\", \"y\", \"y\", {\"y\": 1}]");
}

/* Lines that are indented far enough, counted from the entry and not from its anchor. */
static void test_lines(void **state) {
    assert_json("a: [b,\n c\n ]", "{\"a\": [\"b\", \"c\"]}");
    assert_json("[a,\n\n# c\nb\n]", "[\"a\", \"b\"]");
    assert_json("a: [b,\n# c\n c] # d", "{\"a\": [\"b\", \"c\"]}");
    assert_json("key: &anchor\n b: [c,\n  d]", "{\"key\": {\"b\": [\"c\", \"d\"]}}");
    assert_json("key: &anchor\n- [c,\n d]\n", "{\"key\": [[\"c\", \"d\"]]}");
    assert_json("key:\n- 'c\n  d'\n", "{\"key\": [\"c d\"]}");
    assert_json("- &x\n  - [c,\n   d]\n", "[[[\"c\", \"d\"]]]");
    assert_json("a: \"b\n \tc\n\n d\"", "{\"a\": \"b c\\nd\"}");
    assert_json("a: [\"#b\",'c#d', e#f]", "{\"a\": [\"#b\", \"c#d\", \"e#f\"]}");
    assert_json("a: [-1, -b]", "{\"a\": [-1, \"-b\"]}");
}

/* Many keys: equal ones are found by the table, too. */
static void test_large_map(void **state) {
    static char text[400000];
    size_t at = 0;
    for (int i = 0; i < 20000; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "k%d: %d\n", i, i);
    struct sqrl_yaml yaml = {0};
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_yaml_read(&yaml, text, at, &err), SQRL_OK);
    assert_int_equal(yaml.tape.nodes[0].size, 20000);
    at += (size_t)snprintf(text + at, sizeof text - at, "k777: 1\n");
    assert_int_equal(sqrl_yaml_read(&yaml, text, at, &err), SQRL_E_CORRUPT);
    assert_string_equal(err.where, "line 20001, column 1");
    assert_non_null(strstr(err.message, "line 778"));
}

/* --- writing --- */
static void assert_written(const char *json, const char *yaml) {
    uint8_t bytes[1024];
    struct sqrl_tape tape = {0};
    struct sqrl_bytes got = {0};
    size_t offset = 0, size = strlen(json);
    memcpy(bytes, json, size);
    assert_int_equal(
        sqrl_json_decode(&tape, bytes, size, &offset, SQRL_JSON_NAN, NULL, NULL),
        SQRL_OK);
    assert_int_equal(sqrl_yaml_write(&got, tape.nodes, 0, bytes, 2, NULL), SQRL_OK);
    if (got.size != strlen(yaml) || memcmp(got.data, yaml, got.size) != 0)
        fail_msg("%s is written as\n%.*s", json, (int)got.size, (const char *)got.data);
    sqrl_bytes_reset(&got);
    sqrl_tape_reset(&tape);
}

/* The layout is squirrel-core's: see tests/golden/catalog/squirrel_core.yaml. */
static void test_layout(void **state) {
    assert_written("{}", " {}\n");
    assert_written(
        "{\"a\": 1, \"b\": [1, [2, []], {}, {\"a\": [{\"b\": null, \"c\": 2}]}]}",
        "\n  a: 1\n  b:\n  - 1\n  - - 2\n    - []\n  - {}\n  - a:\n"
        "    - b: null\n      c: 2\n");
    assert_written(
        "{\"yes\": \"12\", \"a\": \"a: b\", \"b\": \"a\\nb\", \"c\": \"\\u2028\"}",
        "\n  \"yes\": \"12\"\n  a: \"a: b\"\n  b: \"a\\nb\"\n  c: \"\\u2028\"\n");
    assert_written("[1e20, 0.5, 1.0, Infinity, NaN, -7]",
                   "\n  - 1.0e+20\n  - 0.5\n  - 1.0\n  - .inf\n  - .nan\n  - -7\n");
}

/* Any text, as a value and as a key, reads back as it was. */
static void test_texts_read_back(void **state) {
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 11);
    static const char *const pieces[] = {"a",        "Z",          "0",
                                         " ",        ":",          "#",
                                         "-",        "?",          "'",
                                         "\"",       "\\",         "\n",
                                         "\t",       "\r",         "{",
                                         "}",        "[",          "]",
                                         ",",        "&",          "*",
                                         "!",        "|",          ">",
                                         "%",        "@",          "`",
                                         "~",        "<",          "=",
                                         ".",        "\x01",       "\x7f",
                                         "\xc2\x85", "\u00e9",     "\u2028",
                                         "\ufeff",   "\U0001f600", "\xef\xbf\xbe",
                                         "\ud7ff"};
    for (int round = 0; round < 4000; round++) {
        char text[1200];
        size_t size = 0, count = sqrl_rng_below(&rng, round % 50 ? 6 : 300);
        for (size_t i = 0; i < count; i++) {
            const char *piece = pieces[sqrl_rng_below(&rng, SQRL_COUNT_OF(pieces))];
            memcpy(text + size, piece, strlen(piece));
            size += strlen(piece);
        }
        struct sqrl_node nodes[] = {{.type = SQRL_MAP, .size = 1, .v.next = 3},
                                    {.type = SQRL_STRING, .size = (uint32_t)size},
                                    {.type = SQRL_STRING, .size = (uint32_t)size}};
        struct sqrl_bytes yaml = {0};
        struct sqrl_yaml got = {0};
        struct sqrl_error err = {0};
        assert_int_equal(sqrl_yaml_write(&yaml, nodes, 0, (const uint8_t *)text, 0, &err),
                         SQRL_OK);
        if (sqrl_yaml_read(&got, (const char *)yaml.data, yaml.size, &err))
            fail_msg("%s: %s\n%.*s", err.where, err.message, (int)yaml.size, yaml.data);
        assert_int_equal(got.tape.count, 3);
        for (int i = 1; i < 3; i++) {
            assert_int_equal(got.tape.nodes[i].type, SQRL_STRING);
            assert_int_equal(got.tape.nodes[i].size, size);
            if (size)
                assert_memory_equal(got.text.data + got.tape.nodes[i].v.offset, text,
                                    size);
        }
        sqrl_bytes_reset(&yaml);
        sqrl_yaml_reset(&got);
    }
}

static void test_what_can_not_be_written(void **state) {
    struct sqrl_bytes out = {0};
    struct sqrl_node binary = {.type = SQRL_BINARY, .size = 1};
    assert_int_equal(sqrl_yaml_write(&out, &binary, 0, (const uint8_t *)"x", 0, NULL),
                     SQRL_E_UNSUPPORTED);
    struct sqrl_node broken = {.type = SQRL_STRING, .size = 1};
    assert_int_equal(sqrl_yaml_write(&out, &broken, 0, (const uint8_t *)"\xff", 0, NULL),
                     SQRL_E_UNSUPPORTED);
    sqrl_bytes_reset(&out);
}

/* Every allocation fails once; nothing leaks (the sanitizer looks). */
static void test_no_memory(void **state) {
    static const char text[] = "a: &x {b: [1, 2], c: text}\nd: *x\ne: !CatalogKey [n, 1]";
    struct sqrl_yaml yaml = {0};
    int code = SQRL_E_NO_MEMORY;
    for (uint64_t n = 1; code == SQRL_E_NO_MEMORY; n++) {
        sqrl_fail_allocation(n);
        code = sqrl_yaml_read(&yaml, text, sizeof text - 1, NULL);
        sqrl_fail_allocation(0);
        assert_true(n < 100);
    }
    assert_int_equal(code, SQRL_OK);
    sqrl_yaml_reset(&yaml);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_large_map),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_texts_read_back),
        cmocka_unit_test(test_what_can_not_be_written),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
