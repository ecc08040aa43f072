/* Canonical JSON: one catalog, one text; and what is refused. The expected texts are what
 * Python's json.dumps(sort_keys=True, separators=(",", ":"), ensure_ascii=False) gives.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "sqrl/catalog.h"

static struct sqrl_catalog *read_as(enum sqrl_catalog_form form, const char *text) {
    struct sqrl_catalog *catalog;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    if (sqrl_catalog_read(catalog, text, strlen(text), form, "text", &err))
        fail_msg("%s: %s: %s", text, err.where, err.message);
    return catalog;
}

static void assert_text(const struct sqrl_catalog *catalog, enum sqrl_catalog_form form,
                        const char *want) {
    struct sqrl_bytes text = {0};
    struct sqrl_error err = {0};
    if (sqrl_catalog_write(catalog, form, &text, &err))
        fail_msg("%s: %s", err.where, err.message);
    if (text.size != strlen(want) || memcmp(text.data, want, text.size) != 0)
        fail_msg("is %.*s", (int)text.size, (const char *)text.data);
    sqrl_bytes_reset(&text);
}

static const char yaml[] =
    "sources:\n"
    "- {identifier: b, driver_name: x, version: 10}\n"
    "- {identifier: a, driver_name: x, metadata: {z: 1, \xc3\xa4: [1.5, "
    "1e3, -0.0, .inf], a: \"q\\\"\\n\xf0\x9f\x98\x80\"}}\n"
    "- {identifier: b, driver_name: x, version: 9, driver_kwargs: "
    "{k: !CatalogKey [a, -1], n: null, t: true}}\n";
static const char json[] =
    "{\"sources\":["
    "{\"driver_kwargs\":{},\"driver_name\":\"x\",\"identifier\":\"a\",\"metadata\":{"
    "\"a\":"
    "\"q\\\"\\n\xf0\x9f\x98\x80\",\"z\":1,\"\xc3\xa4\":[1.5,1000.0,-0.0,Infinity]},"
    "\"version\":1},"
    "{\"driver_kwargs\":{\"k\":{\"!CatalogKey\":[\"a\",-1]},\"n\":null,\"t\":true},"
    "\"driver_name\":\"x\",\"identifier\":\"b\",\"metadata\":{},\"version\":9},"
    "{\"driver_kwargs\":{},\"driver_name\":\"x\",\"identifier\":\"b\",\"metadata\":{},"
    "\"version\":10}],\"version\":\"0.20.2\"}\n";

static void test_canonical(void **state) {
    struct sqrl_catalog *first = read_as(SQRL_CATALOG_YAML, yaml);
    struct sqrl_catalog *second = read_as(SQRL_CATALOG_JSON, json);
    assert_true(sqrl_catalog_equal(first, second));
    assert_text(first, SQRL_CATALOG_JSON, json);
    assert_text(second, SQRL_CATALOG_JSON, json);
    sqrl_catalog_free(first);
    sqrl_catalog_free(second);
    struct sqrl_catalog *none = read_as(SQRL_CATALOG_JSON, "{}");
    assert_text(none, SQRL_CATALOG_JSON, "{\"sources\":[],\"version\":\"0.20.2\"}\n");
    sqrl_catalog_free(none);
}

/* What means a NumPy array in a sample is a map like any other here. */
static void test_no_arrays(void **state) {
    static const char text[] =
        "{\"sources\":[{\"driver_kwargs\":{},\"driver_name\":\"x\",\"identifier\":\"a\","
        "\"metadata\":{\"v\":{\"data\":[1,2],\"shape\":[2],\"type\":\"<f4\"}},"
        "\"version\":1}],"
        "\"version\":\"0.20.2\"}\n";
    struct sqrl_catalog *catalog = read_as(SQRL_CATALOG_JSON, text);
    assert_text(catalog, SQRL_CATALOG_JSON, text);
    sqrl_catalog_free(catalog);
}

/* A key in the middle of other values: what stands behind it is found again. */
static void test_keys_between_values(void **state) {
    struct sqrl_catalog *catalog = read_as(
        SQRL_CATALOG_JSON, "{\"sources\": [{\"identifier\": \"a\", \"driver_name\": "
                           "\"x\", \"driver_kwargs\": "
                           "{\"p\": [{\"!CatalogKey\": [\"b\", 2]}, {\"q\": "
                           "{\"!CatalogKey\": [\"c\", 1]}, \"r\": "
                           "[1, [2]]}, 3]}, \"metadata\": {\"s\": {\"t\": 4}}}]}");
    assert_text(
        catalog, SQRL_CATALOG_YAML,
        "!YamlCatalog\nversion: 0.20.2\nsources:\n- !YamlSource\n  identifier: a\n"
        "  driver_name: x\n  driver_kwargs:\n    p:\n    - !CatalogKey [b, 2]\n"
        "    - q: !CatalogKey [c, 1]\n      r:\n      - 1\n      - - 2\n    - 3\n"
        "  version: 1\n  metadata:\n    s:\n      t: 4\n");
    sqrl_catalog_free(catalog);
}

static const struct {
    const char *text;
    int code;
    const char *where, *message;
} wrong[] = {
    {"", SQRL_E_TRUNCATED, "text: byte 0", ""},
    {"{\"sources\": [", SQRL_E_TRUNCATED, "text: byte", ""},
    {"{} {}", SQRL_E_CORRUPT, "text: byte 3", "behind"},
    {"{'sources': []}", SQRL_E_CORRUPT, "text: byte 1", ""},
    {"{\"sources\": [], \"sources\": []}", SQRL_E_CORRUPT, "text", "\"sources\" stands"},
    {"{\"source\": []}", SQRL_E_CORRUPT, "text", "did you mean sources"},
    {"{\"version\": \"0.3\"}", SQRL_E_UNSUPPORTED, "text", "0.3"},
    {"{\"sources\": [{\"identifier\": \"a\", \"driver_name\": \"x\"}, {\"identifier\": "
     "\"a\"}]}",
     SQRL_E_CORRUPT, "text: source 1", "driver_name"},
    {"{\"sources\": [{\"identifier\": \"a\", \"driver_name\": \"x\", \"metadata\": "
     "{\"v\": "
     "{\"!CatalogKey\": [1, 2]}}}]}",
     SQRL_E_CORRUPT, "text", "name and a version"},
};

static void test_refusals(void **state) {
    for (size_t i = 0; i < SQRL_COUNT_OF(wrong); i++) {
        struct sqrl_catalog *catalog;
        struct sqrl_error err = {0};
        assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
        int code = sqrl_catalog_read(catalog, wrong[i].text, strlen(wrong[i].text),
                                     SQRL_CATALOG_JSON, "text", &err);
        if (code != wrong[i].code || !strstr(err.where, wrong[i].where) ||
            !strstr(err.message, wrong[i].message))
            fail_msg("%s: %d, %s: %s", wrong[i].text, code, err.where, err.message);
        sqrl_catalog_free(catalog);
    }
    char deep[400] = "{\"sources\": ";
    memset(deep + strlen(deep), '[', 200);
    struct sqrl_catalog *catalog;
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    assert_int_equal(
        sqrl_catalog_read(catalog, deep, strlen(deep), SQRL_CATALOG_JSON, NULL, NULL),
        SQRL_E_LIMIT);
    sqrl_catalog_free(catalog);
}

/* YAML can say what JSON can't: it is refused, not changed. */
static void test_what_json_can_not_hold(void **state) {
    static const char *const texts[] = {"{v: {1: 2}}", "{v: {null: 1}}",
                                        "{v: {\"!CatalogKey\": [a, 1]}}"};
    for (size_t i = 0; i < SQRL_COUNT_OF(texts); i++) {
        char text[200];
        struct sqrl_bytes out = {0};
        struct sqrl_error err = {0};
        snprintf(text, sizeof text,
                 "sources: [{identifier: a, driver_name: x, metadata: %s}]", texts[i]);
        struct sqrl_catalog *catalog = read_as(SQRL_CATALOG_YAML, text);
        assert_int_equal(sqrl_catalog_write(catalog, SQRL_CATALOG_JSON, &out, &err),
                         SQRL_E_UNSUPPORTED);
        assert_non_null(strstr(err.where, "source \"a\""));
        assert_int_equal(out.size, 0);
        sqrl_bytes_reset(&out);
        sqrl_catalog_free(catalog);
    }
}

static void test_no_memory(void **state) {
    for (uint64_t n = 1;; n++) {
        struct sqrl_catalog *catalog = NULL;
        struct sqrl_bytes out = {0};
        sqrl_fail_allocation(n);
        int code = sqrl_catalog_new(&catalog, NULL);
        if (code == SQRL_OK)
            code = sqrl_catalog_read(catalog, json, sizeof json - 1, SQRL_CATALOG_JSON,
                                     NULL, NULL);
        if (code == SQRL_OK)
            code = sqrl_catalog_write(catalog, SQRL_CATALOG_JSON, &out, NULL);
        sqrl_fail_allocation(0);
        sqrl_catalog_free(catalog);
        sqrl_bytes_reset(&out);
        if (code == SQRL_OK)
            break;
        assert_int_equal(code, SQRL_E_NO_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical),
        cmocka_unit_test(test_no_arrays),
        cmocka_unit_test(test_keys_between_values),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_what_json_can_not_hold),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
