/* Set algebra, replacing and removing, against a plain array of (name, version, value).
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

enum { NAMES = 12, VERSIONS = 5 };

/* What a catalog should hold: 0 nothing, else a number that its metadata carry. */
struct model {
    int value[NAMES][VERSIONS + 1];
};

static const char *name_of(int n) {
    static char text[8][32];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(text[turn], sizeof text[turn], "name_%d", n);
    return text[turn];
}

static void put(struct sqrl_catalog *catalog, struct model *model, int n, int v,
                int value) {
    uint8_t metadata[] = {0x81, 0xa1, 'v', (uint8_t)value}; /* {"v": value} */
    assert_int_equal(sqrl_catalog_set(catalog, name_of(n), (uint64_t)v, "jsonl", NULL, 0,
                                      metadata, sizeof metadata, NULL),
                     SQRL_OK);
    model->value[n][v] = value;
}

static int value_at(const struct sqrl_catalog *catalog, int n, int v) {
    struct sqrl_catalog_source source;
    if (sqrl_catalog_find(catalog, name_of(n), v, &source, NULL) != SQRL_OK)
        return 0;
    assert_int_equal(source.version, v);
    assert_string_equal(source.name, name_of(n));
    return (int)source.metadata[2].v.i;
}

static void assert_holds(const struct sqrl_catalog *catalog, const struct model *model) {
    size_t count = 0, names = 0, walked = 0;
    struct sqrl_catalog_source source;
    for (int n = 0; n < NAMES; n++) {
        int latest = 0;
        for (int v = 1; v <= VERSIONS; v++) {
            assert_int_equal(value_at(catalog, n, v), model->value[n][v]);
            if (model->value[n][v]) {
                count++;
                latest = v;
            }
        }
        names += latest != 0;
        int code = sqrl_catalog_find(catalog, name_of(n), -1, &source, NULL);
        assert_int_equal(code, latest ? SQRL_OK : SQRL_E_NOT_FOUND);
        assert_int_equal(source.version, latest);
    }
    for (uint64_t cursor = 0; sqrl_catalog_next(catalog, &cursor, &source);)
        walked++;
    assert_int_equal(sqrl_catalog_count(catalog), count);
    assert_int_equal(sqrl_catalog_names(catalog), names);
    assert_int_equal(walked, count);
}

/* --- one catalog that changes --- */
static void test_random_changes(void **state) {
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 7);
    struct sqrl_catalog *catalog;
    struct model model = {0};
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    for (int i = 0; i < 3000; i++) {
        int n = (int)sqrl_rng_below(&rng, NAMES);
        int v = 1 + (int)sqrl_rng_below(&rng, VERSIONS);
        uint64_t what = sqrl_rng_below(&rng, 10);
        if (what < 5) {
            put(catalog, &model, n, v, 1 + (int)sqrl_rng_below(&rng, 100));
        } else {
            int whole = what == 9, there = 0;
            for (int k = 1; k <= VERSIONS; k++)
                there |= whole ? model.value[n][k] : k == v ? model.value[n][k] : 0;
            int code = sqrl_catalog_remove(catalog, name_of(n), whole ? 0 : v, NULL);
            assert_int_equal(code, there ? SQRL_OK : SQRL_E_NOT_FOUND);
            for (int k = 1; k <= VERSIONS; k++)
                if (whole || k == v)
                    model.value[n][k] = 0;
        }
        assert_holds(catalog, &model);
    }
    sqrl_catalog_free(catalog);
}

static void test_order(void **state) {
    struct sqrl_catalog *catalog;
    struct model model = {0};
    struct sqrl_catalog_source source;
    static const int added[][2] = {{3, 2}, {1, 1}, {3, 1}, {2, 4}, {1, 3}},
                     walked[][2] = {{3, 2}, {3, 1}, {1, 1}, {1, 3}, {2, 4}};
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    for (int i = 0; i < 5; i++)
        put(catalog, &model, added[i][0], added[i][1], 1);
    put(catalog, &model, 3, 2, 9); /* replaced in its place */
    uint64_t cursor = 0;
    for (int i = 0; i < 5; i++) {
        assert_true(sqrl_catalog_next(catalog, &cursor, &source));
        assert_string_equal(source.name, name_of(walked[i][0]));
        assert_int_equal(source.version, walked[i][1]);
    }
    assert_false(sqrl_catalog_next(catalog, &cursor, &source));
    assert_int_equal(sqrl_catalog_seek(catalog, "name_1", &cursor, NULL), SQRL_OK);
    assert_true(sqrl_catalog_next(catalog, &cursor, &source));
    assert_int_equal(source.version, 1);
    assert_int_equal(sqrl_catalog_seek(catalog, "name", &cursor, NULL), SQRL_E_NOT_FOUND);
    assert_int_equal(sqrl_catalog_remove(catalog, "name_1", -1, NULL), SQRL_OK);
    assert_int_equal(value_at(catalog, 1, 3), 0);
    assert_int_equal(value_at(catalog, 1, 1), 1);
    sqrl_catalog_free(catalog);
}

/* --- two catalogs --- */
static void fill(struct sqrl_rng *rng, struct sqrl_catalog **catalog,
                 struct model *model) {
    *model = (struct model){0};
    assert_int_equal(sqrl_catalog_new(catalog, NULL), SQRL_OK);
    int count = (int)sqrl_rng_below(rng, 40);
    for (int i = 0; i < count; i++) {
        int n = (int)sqrl_rng_below(rng, NAMES);
        int v = 1 + (int)sqrl_rng_below(rng, VERSIONS);
        put(*catalog, model, n, v, 1 + (int)sqrl_rng_below(rng, 2));
    }
}

enum op { UNION, OURS, THEIRS, JOIN, INTERSECTION, SYMMETRIC, SUBTRACT, OPS };

/* What an operation gives at one place; *conflict where it has to fail. */
static int expected(enum op op, int a, int b, bool *conflict) {
    bool both = a && b;
    *conflict |= both && (op == JOIN || (a != b && (op == UNION || op == INTERSECTION)));
    switch (op) {
    case THEIRS:
        return b ? b : a;
    case INTERSECTION:
        return both ? a : 0;
    case SYMMETRIC:
        return both ? 0 : a ? a : b;
    case SUBTRACT:
        return b ? 0 : a;
    default:
        return a ? a : b;
    }
}

static int apply(enum op op, const struct sqrl_catalog *a, const struct sqrl_catalog *b,
                 struct sqrl_catalog **out, struct sqrl_error *err) {
    switch (op) {
    case UNION:
        return sqrl_catalog_union(a, b, SQRL_CONFLICT_ERROR, out, err);
    case OURS:
        return sqrl_catalog_union(a, b, SQRL_CONFLICT_OURS, out, err);
    case THEIRS:
        return sqrl_catalog_union(a, b, SQRL_CONFLICT_THEIRS, out, err);
    case JOIN:
        return sqrl_catalog_join(a, b, out, err);
    case INTERSECTION:
        return sqrl_catalog_intersection(a, b, out, err);
    case SYMMETRIC:
        return sqrl_catalog_symmetric_difference(a, b, out, err);
    default:
        return sqrl_catalog_subtract(a, b, out, err);
    }
}

static void test_set_algebra(void **state) {
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 3);
    for (int round = 0; round < 300; round++) {
        struct sqrl_catalog *a, *b, *made;
        struct model ma, mb;
        fill(&rng, &a, &ma);
        fill(&rng, &b, &mb);
        for (enum op op = 0; op < OPS; op++) {
            struct model want = {0};
            struct sqrl_error err = {0};
            bool conflict = false, equal = true;
            for (int n = 0; n < NAMES; n++)
                for (int v = 1; v <= VERSIONS; v++) {
                    want.value[n][v] =
                        expected(op, ma.value[n][v], mb.value[n][v], &conflict);
                    equal = equal && ma.value[n][v] == mb.value[n][v];
                }
            assert_int_equal(apply(op, a, b, &made, &err),
                             conflict ? SQRL_E_EXISTS : SQRL_OK);
            assert_int_equal(sqrl_catalog_equal(a, b), equal);
            if (conflict) {
                assert_null(made);
                assert_non_null(strstr(err.message, "source \"name_"));
                continue;
            }
            assert_holds(made, &want);
            sqrl_catalog_free(made);
        }
        assert_holds(a, &ma);
        assert_holds(b, &mb);
        sqrl_catalog_free(a);
        sqrl_catalog_free(b);
    }
}

/* What is shared stays as it is when one of the two changes or goes. */
static void test_copies_are_of_their_own(void **state) {
    struct sqrl_rng rng;
    struct sqrl_catalog *catalog, *copy;
    struct model model, changed;
    sqrl_rng_init(&rng, 5);
    fill(&rng, &catalog, &model);
    put(catalog, &model, 0, 1, 1);
    changed = model;
    assert_int_equal(sqrl_catalog_copy(catalog, &copy, NULL), SQRL_OK);
    assert_true(sqrl_catalog_equal(catalog, copy));
    put(copy, &changed, 0, 1, 77);
    assert_false(sqrl_catalog_equal(catalog, copy));
    assert_holds(catalog, &model);
    sqrl_catalog_free(catalog);
    assert_holds(copy, &changed);
    sqrl_catalog_free(copy);
}

static int is_odd(void *arg, const struct sqrl_catalog_source *source) {
    return arg ? -1 : (int)(source->version % 2);
}

static void test_slice_and_filter(void **state) {
    struct sqrl_catalog *catalog, *made;
    struct model model = {0}, want = {0};
    struct sqrl_error err;
    static const char *const names[] = {"name_2", "name_0", "name_2"},
                             *const missing[] = {"name_2", "nam_0"};
    assert_int_equal(sqrl_catalog_new(&catalog, NULL), SQRL_OK);
    for (int n = 0; n < 4; n++)
        for (int v = 1; v <= 3; v++)
            put(catalog, &model, n, v, 10 * n + v);
    for (int v = 1; v <= 3; v++) {
        want.value[2][v] = 20 + v;
        want.value[0][v] = v;
    }
    assert_int_equal(sqrl_catalog_slice(catalog, names, 3, &made, NULL), SQRL_OK);
    assert_holds(made, &want);
    sqrl_catalog_free(made);
    assert_int_equal(sqrl_catalog_slice(catalog, missing, 2, &made, &err),
                     SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "did you mean \"name_0\""));
    assert_null(made);
    assert_int_equal(sqrl_catalog_filter(catalog, is_odd, NULL, &made, NULL), SQRL_OK);
    for (int n = 0; n < 4; n++)
        model.value[n][2] = 0;
    assert_holds(made, &model);
    sqrl_catalog_free(made);
    assert_int_equal(sqrl_catalog_filter(catalog, is_odd, catalog, &made, &err),
                     SQRL_E_USER);
    sqrl_catalog_free(catalog);
}

/* --- equality of sources --- */
static void add_json(struct sqrl_catalog *catalog, const char *text) {
    char json[4096];
    struct sqrl_error err = {0};
    snprintf(json, sizeof json,
             "{\"sources\": [{\"identifier\": \"a\", \"driver_name\": \"x\", "
             "\"metadata\": {\"v\": %s}}]}",
             text);
    if (sqrl_catalog_read(catalog, json, strlen(json), SQRL_CATALOG_JSON, "json", &err))
        fail_msg("%s: %s: %s", text, err.where, err.message);
}

static unsigned differs(const char *first, const char *second) {
    struct sqrl_catalog *a, *b;
    struct sqrl_catalog_source x, y;
    assert_int_equal(sqrl_catalog_new(&a, NULL), SQRL_OK);
    assert_int_equal(sqrl_catalog_new(&b, NULL), SQRL_OK);
    add_json(a, first);
    add_json(b, second);
    assert_int_equal(sqrl_catalog_find(a, "a", 1, &x, NULL), SQRL_OK);
    assert_int_equal(sqrl_catalog_find(b, "a", 1, &y, NULL), SQRL_OK);
    unsigned difference = sqrl_catalog_source_differs(&x, &y);
    assert_int_equal(difference, sqrl_catalog_source_differs(&y, &x));
    assert_int_equal(difference == 0, sqrl_catalog_equal(a, b));
    sqrl_catalog_free(a);
    sqrl_catalog_free(b);
    return difference;
}

/* As Python's == has it, but for NaN. */
static void test_equal_values(void **state) {
    static const char *const equal[][2] = {
        {"1", "1.0"},
        {"true", "1"},
        {"0", "-0.0"},
        {"9007199254740992", "9007199254740992.0"},
        {"18446744073709549568", "18446744073709549568.0"},
        {"{\"a\": 1, \"b\": [2, {\"c\": null}]}",
         "{\"b\": [2.0, {\"c\": null}], \"a\": 1}"},
        {"NaN", "NaN"},
        {"\"\\u00e9\"", "\"\xc3\xa9\""},
        {"{\"!CatalogKey\": [\"x\", 1]}", "{\"!CatalogKey\": [\"x\", 1]}"},
    };
    static const char *const unlike[][2] = {
        {"1", "\"1\""},
        {"1", "2"},
        {"9007199254740993", "9007199254740992.0"},
        {"18446744073709551615", "-1"},
        {"null", "false"},
        {"[1, 2]", "[2, 1]"},
        {"[]", "{}"},
        {"[[]]", "[]"},
        {"{\"a\": 1}", "{\"a\": 2}"},
        {"{\"a\": 1}", "{\"b\": 1}"},
        {"{\"a\": 1}", "{\"a\": 1, \"b\": 1}"},
        {"{\"a\": [1]}", "{\"a\": {\"b\": 1}}"},
        {"{\"!CatalogKey\": [\"x\", 1]}", "{\"!CatalogKey\": [\"x\", 2]}"},
        {"\"a\"", "\"a\\u0000\""},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(equal); i++)
        if (differs(equal[i][0], equal[i][1]))
            fail_msg("%s and %s differ", equal[i][0], equal[i][1]);
    for (size_t i = 0; i < SQRL_COUNT_OF(unlike); i++)
        if (differs(unlike[i][0], unlike[i][1]) != SQRL_DIFFERS_METADATA)
            fail_msg("%s and %s are equal", unlike[i][0], unlike[i][1]);
}

/* Ten thousand keys the other way round: looked up, not searched for. */
static void test_large_maps_in_another_order(void **state) {
    enum { COUNT = 10000 };
    struct sqrl_catalog *catalog[3];
    for (int which = 0; which < 3; which++) {
        struct sqrl_bytes map = {0};
        assert_int_equal(sqrl_catalog_new(&catalog[which], NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_map(&map, COUNT, NULL), SQRL_OK);
        for (int i = 0; i < COUNT; i++) {
            char key[16];
            int k = which ? COUNT - 1 - i : i;
            int size = snprintf(key, sizeof key, "key%d", k);
            assert_int_equal(sqrl_msgpack_put_string(&map, key, (size_t)size, NULL), 0);
            assert_int_equal(
                sqrl_msgpack_put_int(&map, which == 2 && k == 77 ? -1 : k, NULL),
                SQRL_OK);
        }
        assert_int_equal(sqrl_catalog_add(catalog[which], "a", 1, "x", map.data, map.size,
                                          NULL, 0, NULL),
                         SQRL_OK);
        sqrl_bytes_reset(&map);
    }
    assert_true(sqrl_catalog_equal(catalog[0], catalog[1]));
    assert_false(sqrl_catalog_equal(catalog[0], catalog[2]));
    for (int which = 0; which < 3; which++)
        sqrl_catalog_free(catalog[which]);
}

/* Every allocation fails once: an error, nothing lost, nothing leaked. */
static void test_no_memory(void **state) {
    struct sqrl_rng rng;
    struct sqrl_catalog *a, *b;
    struct model ma, mb;
    sqrl_rng_init(&rng, 11);
    fill(&rng, &a, &ma);
    fill(&rng, &b, &mb);
    for (enum op op = 0; op < OPS; op++)
        for (uint64_t n = 1;; n++) {
            struct sqrl_catalog *made = NULL;
            sqrl_fail_allocation(n);
            int code = apply(op, a, b, &made, NULL);
            sqrl_fail_allocation(0);
            sqrl_catalog_free(made);
            assert_holds(a, &ma);
            assert_holds(b, &mb);
            if (code != SQRL_E_NO_MEMORY)
                break;
            assert_null(made);
        }
    for (uint64_t n = 1;; n++) {
        sqrl_fail_allocation(n);
        int code = sqrl_catalog_set(a, "name_0", 1, "y", NULL, 0, NULL, 0, NULL);
        sqrl_fail_allocation(0);
        if (code == SQRL_OK)
            break;
        assert_int_equal(code, SQRL_E_NO_MEMORY);
        assert_holds(a, &ma);
    }
    sqrl_catalog_free(a);
    sqrl_catalog_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_changes),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_set_algebra),
        cmocka_unit_test(test_copies_are_of_their_own),
        cmocka_unit_test(test_slice_and_filter),
        cmocka_unit_test(test_equal_values),
        cmocka_unit_test(test_large_maps_in_another_order),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
