/* Sources in memory, in files, and opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "sqrl/sqrl.h"

static struct sqrl_context *context;
static char folder[] = "/tmp/sqrl-catalog-XXXXXX";

static int set_up(void **state) {
    return mkdtemp(folder) && sqrl_context_new(NULL, &context, NULL) == SQRL_OK ? 0 : 1;
}

static int tear_down(void **state) {
    char command[64];
    sqrl_context_unref(context);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static struct sqrl_catalog *read_text(const char *yaml, struct sqrl_error *err) {
    struct sqrl_catalog *catalog;
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    sqrl_error_clear(err);
    if (sqrl_catalog_read(catalog, yaml, strlen(yaml), SQRL_CATALOG_YAML, "c.yaml",
                          err) == SQRL_OK)
        return catalog;
    sqrl_catalog_free(catalog);
    return NULL;
}

#define HEAD "!YamlCatalog\nversion: 0.20.2\nsources:\n"
#define SOURCE(name, rest)                                                               \
    "- !YamlSource\n  identifier: " name "\n  driver_name: x\n" rest

/* --- squirrel-core's own file --- */
static char *load(const char *name, size_t *size) {
    const char *root = getenv("SQRL_GOLDEN");
    char path[4096];
    snprintf(path, sizeof path, "%s/catalog/%s", root ? root : "tests/golden", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is not here", path);
    char *text = malloc(1 << 20);
    assert_non_null(text);
    *size = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

struct value {
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
};

static bool same(struct value a, uint32_t i, struct value b, uint32_t k);

/* {"!CatalogKey": [name, version]} of the JSON against the extension. */
static bool same_key(struct value a, uint32_t i, struct value b, uint32_t k) {
    const struct sqrl_node *ext = &b.nodes[k];
    const uint8_t *packed = b.bytes + ext->v.offset;
    struct sqrl_tape tape = {0};
    size_t offset = 0;
    uint32_t list = sqrl_map_find(a.nodes, i, a.bytes, "!CatalogKey", 11);
    bool good = ext->aux == SQRL_CATALOG_KEY_EXT + 128 && list != SQRL_NO_NODE &&
                sqrl_msgpack_decode(&tape, packed, ext->size, &offset, NULL, NULL) == 0 &&
                same(a, list, (struct value){tape.nodes, packed}, 0);
    sqrl_tape_reset(&tape);
    return good;
}

static bool same(struct value a, uint32_t i, struct value b, uint32_t k) {
    const struct sqrl_node *x = &a.nodes[i], *y = &b.nodes[k];
    if (y->type == SQRL_EXT)
        return same_key(a, i, b, k);
    if (x->type != y->type || (x->type >= SQRL_STRING && x->size != y->size))
        return false;
    if (x->type == SQRL_STRING)
        return memcmp(a.bytes + x->v.offset, b.bytes + y->v.offset, x->size) == 0;
    if (x->type < SQRL_ARRAY)
        return x->v.u == y->v.u;
    uint32_t end = sqrl_node_next(a.nodes, i++);
    for (k++; i < end; i = sqrl_node_next(a.nodes, i), k = sqrl_node_next(b.nodes, k))
        if (!same(a, i, b, k))
            return false;
    return true;
}

static bool text_is(struct value v, uint32_t row, const char *field, const char *text) {
    uint32_t node = sqrl_map_find(v.nodes, row, v.bytes, field, strlen(field));
    assert_true(node != SQRL_NO_NODE);
    return v.nodes[node].size == strlen(text) &&
           memcmp(v.bytes + v.nodes[node].v.offset, text, strlen(text)) == 0;
}

static uint32_t field_of(struct value v, uint32_t row, const char *field) {
    return sqrl_map_find(v.nodes, row, v.bytes, field, strlen(field));
}

/* The rows that squirrel-core's reader gave for its file, as JSON. */
static void assert_golden(const struct sqrl_catalog *catalog) {
    size_t size, offset = 0;
    char *json = load("squirrel_core.json", &size);
    struct sqrl_tape rows = {0};
    assert_int_equal(sqrl_json_decode(&rows, (uint8_t *)json, size, &offset,
                                      SQRL_JSON_NAN, NULL, NULL),
                     SQRL_OK);
    struct value want = {rows.nodes, (const uint8_t *)json};
    assert_int_equal(sqrl_catalog_count(catalog), rows.nodes[0].size);
    uint32_t row = 1;
    uint64_t cursor = 0;
    for (size_t i = 0; i < rows.nodes[0].size;
         i++, row = sqrl_node_next(rows.nodes, row)) {
        struct sqrl_catalog_source got;
        assert_true(sqrl_catalog_next(catalog, &cursor, &got));
        assert_true(text_is(want, row, "name", got.name));
        assert_true(text_is(want, row, "driver", got.driver_name));
        assert_int_equal(rows.nodes[field_of(want, row, "version")].v.u, got.version);
        if (!same(want, field_of(want, row, "kwargs"),
                  (struct value){got.kwargs, got.bytes}, 0) ||
            !same(want, field_of(want, row, "metadata"),
                  (struct value){got.metadata, got.bytes}, 0))
            fail_msg("%s has other values", got.name);
    }
    sqrl_tape_reset(&rows);
    free(json);
}

static void test_squirrel_cores_file(void **state) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog, *again;
    struct sqrl_bytes text = {0};
    size_t size;
    char *yaml = load("squirrel_core.yaml", &size);
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    if (sqrl_catalog_read(catalog, yaml, size, SQRL_CATALOG_YAML, "golden", &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_golden(catalog);
    assert_int_equal(sqrl_catalog_write(catalog, SQRL_CATALOG_YAML, &text, &err),
                     SQRL_OK);
    assert_int_equal(sqrl_catalog_new(&again, NULL), SQRL_OK);
    if (sqrl_catalog_read(again, (const char *)text.data, text.size, SQRL_CATALOG_YAML,
                          "written", &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_golden(again);
    sqrl_catalog_free(again);
    sqrl_catalog_free(catalog);
    sqrl_bytes_reset(&text);
    free(yaml);
}

/* --- memory --- */
static void test_versions(void **state) {
    struct sqrl_catalog *catalog;
    struct sqrl_catalog_source got;
    struct sqrl_error err = {0};
    static const uint8_t kwargs[] = "\x81\xa3url\xa1p";
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    static const uint64_t versions[] = {0, 7, 3, 0}, become[] = {1, 7, 3, 8};
    for (int i = 0; i < 4; i++)
        assert_int_equal(sqrl_catalog_add(catalog, "a", versions[i], "jsonl", kwargs, 7,
                                          NULL, 0, &err),
                         SQRL_OK);
    uint64_t cursor = 0;
    for (size_t i = 0; i < 4; i++) {
        assert_true(sqrl_catalog_next(catalog, &cursor, &got));
        assert_int_equal(got.version, become[i]);
        assert_int_equal(got.kwargs_size, 7);
        assert_memory_equal(got.bytes, kwargs, 7);
        assert_int_equal(got.metadata[0].type, SQRL_MAP);
        assert_int_equal(got.metadata[0].size, 0);
    }
    assert_int_equal(sqrl_catalog_find(catalog, "a", -1, &got, NULL), SQRL_OK);
    assert_int_equal(got.version, 8);
    assert_int_equal(sqrl_catalog_find(catalog, "a", 3, &got, NULL), SQRL_OK);
    assert_int_equal(got.version, 3);
    assert_int_equal(sqrl_catalog_find(catalog, "a", 2, &got, &err), SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "1, 7, 3, 8"));
    assert_null(got.name);
    assert_int_equal(sqrl_catalog_add(catalog, "a", 3, "x", NULL, 0, NULL, 0, &err),
                     SQRL_E_EXISTS);
    assert_int_equal(sqrl_catalog_count(catalog), 4);
    sqrl_catalog_free(catalog);
}

static void test_wrong_arguments(void **state) {
    struct sqrl_catalog *catalog;
    const uint8_t *list = (const uint8_t *)"\x91\x01",
                  *number = (const uint8_t *)"\x81\x01\x01",
                  *two = (const uint8_t *)"\x80\x80", *cut = (const uint8_t *)"\x81\xa1";
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    assert_int_equal(sqrl_catalog_add(catalog, "", 1, "x", NULL, 0, NULL, 0, NULL),
                     SQRL_E_INVALID);
    assert_int_equal(sqrl_catalog_add(catalog, "a", 1, "", NULL, 0, NULL, 0, NULL),
                     SQRL_E_INVALID);
    assert_int_equal(sqrl_catalog_add(catalog, "\xff", 1, "x", NULL, 0, NULL, 0, NULL),
                     SQRL_E_INVALID);
    assert_int_equal(
        sqrl_catalog_add(catalog, "a", UINT64_MAX, "x", NULL, 0, NULL, 0, NULL),
        SQRL_E_LIMIT);
    assert_int_equal(sqrl_catalog_add(catalog, "a", 1, "x", list, 2, NULL, 0, NULL),
                     SQRL_E_TYPE);
    assert_int_equal(sqrl_catalog_add(catalog, "a", 1, "x", number, 3, NULL, 0, NULL),
                     SQRL_E_TYPE);
    assert_int_equal(sqrl_catalog_add(catalog, "a", 1, "x", NULL, 0, two, 2, NULL),
                     SQRL_E_TYPE);
    assert_int_equal(sqrl_catalog_add(catalog, "a", 1, "x", NULL, 0, cut, 2, NULL),
                     SQRL_E_TRUNCATED);
    assert_int_equal(sqrl_catalog_count(catalog), 0);
    sqrl_catalog_free(catalog);
}

static void test_many_sources(void **state) {
    enum { NAMES = 3000, VERSIONS = 4 };
    struct sqrl_catalog *catalog;
    struct sqrl_catalog_source got;
    struct sqrl_error err = {0};
    char name[32];
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    for (int i = 0; i < NAMES * VERSIONS; i++) {
        snprintf(name, sizeof name, "source_%d", i % NAMES);
        assert_int_equal(sqrl_catalog_add(catalog, name, 0, "x", NULL, 0, NULL, 0, NULL),
                         SQRL_OK);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "source_%d", i);
        for (int v = 1; v <= VERSIONS; v++) {
            assert_int_equal(sqrl_catalog_find(catalog, name, v, &got, NULL), SQRL_OK);
            assert_string_equal(got.name, name);
            assert_int_equal(got.version, v);
        }
        assert_int_equal(sqrl_catalog_find(catalog, name, VERSIONS + 1, &got, NULL),
                         SQRL_E_NOT_FOUND);
    }
    assert_int_equal(sqrl_catalog_find(catalog, "sorce_17", 0, &got, &err),
                     SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "did you mean \"source_17\""));
    sqrl_catalog_free(catalog);
}

/* --- the document --- */
static void test_defaults(void **state) {
    struct sqrl_error err = {0};
    struct sqrl_catalog_source got;
    static const char *const texts[] = {
        HEAD SOURCE("a", ""),
        HEAD SOURCE("a", "  driver_kwargs:\n  metadata: ~\n  version: 1\n"),
        "{sources: [{identifier: a, driver_name: x}]}",
        "version: 0.20.2-dev1\nsources: [{identifier: a, driver_name: x}]",
        "version: 0.4\nsources: [{identifier: a, driver_name: x}]",
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(texts); i++) {
        struct sqrl_catalog *catalog = read_text(texts[i], &err);
        if (!catalog)
            fail_msg("%s: %s", err.where, err.message);
        uint64_t cursor = 0;
        assert_true(sqrl_catalog_next(catalog, &cursor, &got));
        assert_string_equal(got.name, "a");
        assert_string_equal(got.driver_name, "x");
        assert_int_equal(got.version, 1);
        assert_int_equal(got.kwargs[0].size + got.metadata[0].size, 0);
        sqrl_catalog_free(catalog);
    }
    struct sqrl_catalog *empty =
        read_text("!YamlCatalog\nversion: 0.20.2\nsources: []\n", &err);
    assert_non_null(empty);
    assert_int_equal(sqrl_catalog_count(empty), 0);
    struct sqrl_bytes out = {0};
    assert_int_equal(sqrl_catalog_write(empty, SQRL_CATALOG_YAML, &out, NULL), SQRL_OK);
    assert_int_equal(out.size, strlen("!YamlCatalog\nversion: 0.20.2\nsources: []\n"));
    sqrl_bytes_reset(&out);
    sqrl_catalog_free(empty);
}

static const struct {
    const char *yaml;
    int code;
    const char *where, *message;
} wrong[] = {
    {"[]", SQRL_E_CORRUPT, "c.yaml: line 1, column 1", "catalog"},
    {"source: []", SQRL_E_CORRUPT, "line 1, column 1", "did you mean sources?"},
    {"sources: {}", SQRL_E_CORRUPT, "line 1, column 10", "not a list"},
    {"version: 0.3.9\nsources: []", SQRL_E_UNSUPPORTED, "line 1, column 10", "0.3.9"},
    {"version: new\nsources: []", SQRL_E_CORRUPT, "line 1, column 10", "version"},
    {HEAD SOURCE("a", "  driver_kwarg: {}\n"), SQRL_E_CORRUPT, "line 7, column 3",
     "did you mean driver_kwargs?"},
    {HEAD SOURCE("a", "  metadata: {v: {nd: true, type: \"<f4\", kind: \"\", shape: [1], "
                      "data: abcd}}\n"),
     SQRL_E_UNSUPPORTED, "line 4", "array"},
    {HEAD "- !YamlSource\n  driver_name: x\n", SQRL_E_CORRUPT, "line 4",
     "without identifier"},
    {HEAD "- !YamlSource\n  identifier: a\n", SQRL_E_CORRUPT, "line 4",
     "without driver_name"},
    {HEAD SOURCE("12", ""), SQRL_E_CORRUPT, "line 5, column 15", "quote it"},
    {HEAD SOURCE("\"a\\0b\"", ""), SQRL_E_CORRUPT, "line 5, column 15", "identifier"},
    {HEAD SOURCE("a", "  version: 0\n"), SQRL_E_CORRUPT, "line 7, column 12", "from 1"},
    {HEAD SOURCE("a", "  version: 1.5\n"), SQRL_E_CORRUPT, "line 7, column 12", "from 1"},
    {HEAD SOURCE("a", "  driver_kwargs: [1]\n"), SQRL_E_CORRUPT, "line 7", "not a map"},
    {HEAD SOURCE("a", "  driver_kwargs: {1: 2}\n"), SQRL_E_CORRUPT, "line 7", "quote it"},
    {HEAD SOURCE("a", "") SOURCE("b", "") SOURCE("a", ""), SQRL_E_EXISTS,
     "c.yaml: line 10", "version 1 of source \"a\""},
    {HEAD "- !YamlSource [a]\n", SQRL_E_UNSUPPORTED, "line 4", "!YamlSource"},
    {HEAD "- a\n", SQRL_E_CORRUPT, "line 4, column 3", "source"},
};

static void test_wrong_documents(void **state) {
    for (size_t i = 0; i < SQRL_COUNT_OF(wrong); i++) {
        struct sqrl_error err;
        struct sqrl_catalog *catalog = read_text(wrong[i].yaml, &err);
        if (catalog || (int)err.code != wrong[i].code ||
            !strstr(err.where, wrong[i].where) || !strstr(err.message, wrong[i].message))
            fail_msg("%s\n%d, %s: %s", wrong[i].yaml, (int)err.code, err.where,
                     err.message);
    }
}

/* --- files, and opening --- */
static const char *at(const char *name) {
    static char path[32][256];
    static int turn;
    turn = (turn + 1) % 32;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    fclose(file);
}

static struct sqrl_bytes kwargs_of(const char *url, const char *name, const char *value) {
    struct sqrl_bytes out = {0};
    assert_int_equal(sqrl_msgpack_put_map(&out, name ? 2 : 1, NULL), SQRL_OK);
    const char *texts[] = {"url", url, name, value};
    for (int i = 0; i < (name ? 4 : 2); i++)
        assert_int_equal(sqrl_msgpack_put_string(&out, texts[i], strlen(texts[i]), NULL),
                         0);
    return out;
}

static void add(struct sqrl_catalog *catalog, const char *name, const char *driver,
                const char *url, const char *option, const char *value) {
    struct sqrl_bytes kwargs = kwargs_of(url, option, value);
    assert_int_equal(sqrl_catalog_add(catalog, name, 0, driver, kwargs.data, kwargs.size,
                                      NULL, 0, NULL),
                     SQRL_OK);
    sqrl_bytes_reset(&kwargs);
}

static void write_catalog(const char *path) {
    struct sqrl_catalog *catalog;
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    write_text(at("one.jsonl"), "{\"a\": 1}\n");
    write_text(at("two.jsonl"), "{\"a\": 1}\n{\"a\": 2}\n");
    add(catalog, "lines", "jsonl", at("one.jsonl"), NULL, NULL);
    add(catalog, "lines", "jsonl", at("two.jsonl"), "nan", "false");
    add(catalog, "wrong", "jsnol", at("one.jsonl"), NULL, NULL);
    add(catalog, "python", "parquet", at("one.jsonl"), NULL, NULL);
    add(catalog, "option", "jsonl", at("one.jsonl"), "nam", "false");
    add(catalog, "gone", "jsonl", at("three.jsonl"), NULL, NULL);
    add(catalog, "a@b", "jsonl", at("one.jsonl"), NULL, NULL);
    assert_int_equal(
        sqrl_catalog_add(catalog, "bare", 0, "jsonl", NULL, 0, NULL, 0, NULL), 0);
    assert_int_equal(sqrl_catalog_write_file(catalog, context, path, false, NULL),
                     SQRL_OK);
    assert_int_equal(sqrl_catalog_write_file(catalog, context, path, false, NULL),
                     SQRL_E_EXISTS);
    assert_int_equal(sqrl_catalog_write_file(catalog, context, path, true, NULL),
                     SQRL_OK);
    sqrl_catalog_free(catalog);
}

static const struct {
    const char *reference;
    int code;
    const char *said; /* in where or message; for SQRL_OK, the end of the url */
} references[] = {
    {"c.yaml#lines", SQRL_OK, "two.jsonl"},
    {"c.yaml#lines@1", SQRL_OK, "one.jsonl"},
    {"c.yaml#lines@2", SQRL_OK, "two.jsonl"},
    {"c.yaml#lines@-1", SQRL_OK, "two.jsonl"},
    {"c.yaml#a@b", SQRL_OK, "one.jsonl"},
    {"c.yaml#a@b@1", SQRL_OK, "one.jsonl"},
    {"c.yaml#lines@3", SQRL_E_NOT_FOUND, "has no version 3; it has 1, 2"},
    {"c.yaml#line", SQRL_E_NOT_FOUND, "did you mean \"lines\""},
    {"c.yaml#wrong", SQRL_E_NOT_FOUND, "did you mean \"jsonl\""},
    {"c.yaml#python", SQRL_E_UNSUPPORTED, "Python"},
    {"c.yaml#option", SQRL_E_INVALID, "did you mean \"nan\""},
    {"c.yaml#gone", SQRL_E_NOT_FOUND, "three.jsonl"},
    {"c.yaml#bare", SQRL_E_NOT_FOUND, "no url"},
    {"d.yaml#lines", SQRL_E_NOT_FOUND, "d.yaml"},
    {"c.yaml#", SQRL_E_INVALID, "catalog.yaml#name"},
};

static void test_open(void **state) {
    write_catalog(at("c.yaml"));
    for (size_t i = 0; i < SQRL_COUNT_OF(references); i++) {
        struct sqrl_error err = {0};
        struct sqrl_source *source = NULL;
        const char *reference = references[i].reference;
        int code = sqrl_catalog_open(context, at(reference), NULL, &source, &err);
        char text[1200] = "";
        if (code)
            sqrl_error_text(&err, text, sizeof text);
        else
            snprintf(text, sizeof text, "%s", sqrl_source_url(source));
        if (code != references[i].code || !strstr(text, references[i].said))
            fail_msg("%s: %d %s", reference, code, text);
        sqrl_source_unref(source);
    }
}

/* Settings of the caller stand behind the catalog's. */
static void test_open_with_more_settings(void **state) {
    struct sqrl_source *source = NULL;
    struct sqrl_error err = {0};
    struct sqrl_setting item = {"max_line", "many"};
    struct sqrl_settings more = {&item, 1};
    write_text(at("one.jsonl"), "{\"a\": 1}\n");
    write_text(at("m.yaml"),
               "sources: [{identifier: a, driver_name: jsonl, driver_kwargs: "
               "{url: /nowhere, storage_options: {anon: true}, x: {y: 1}}}]");
    assert_int_equal(sqrl_catalog_open(context, at("m.yaml#a"), &more, &source, &err),
                     SQRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\"x\""));
    char text[512];
    snprintf(
        text, sizeof text,
        "sources: [{identifier: a, driver_name: jsonl, driver_kwargs: {url: %s, nan: "
        "true, storage_options: {anon: true}, nothing: null}}]",
        at("one.jsonl"));
    write_text(at("m.yaml"), text);
    assert_int_equal(sqrl_catalog_open(context, at("m.yaml#a"), &more, &source, &err),
                     SQRL_E_INVALID);
    assert_non_null(strstr(err.message, "max_line"));
    item.value = "1 MiB";
    if (sqrl_catalog_open(context, at("m.yaml#a"), &more, &source, &err))
        fail_msg("%s: %s", err.where, err.message);
    sqrl_source_unref(source);
}

static void test_no_memory(void **state) {
    static const char text[] =
        HEAD SOURCE("a", "  driver_kwargs: {url: p}\n") SOURCE("b", "") SOURCE("c", "");
    int code = SQRL_E_NO_MEMORY;
    for (uint64_t n = 1; code == SQRL_E_NO_MEMORY; n++) {
        struct sqrl_catalog *catalog;
        assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
        sqrl_fail_allocation(n);
        code = sqrl_catalog_read(catalog, text, sizeof text - 1, SQRL_CATALOG_YAML, NULL,
                                 NULL);
        sqrl_fail_allocation(0);
        sqrl_catalog_free(catalog);
        assert_true(n < 500);
    }
    assert_int_equal(code, SQRL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_squirrel_cores_file),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_many_sources),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_wrong_documents),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_open_with_more_settings),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
