/* Locating fields against looking each up by itself, over random samples: other orders of
 * keys, missing and repeated ones, maps where values were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stream/columns/locate.h"

static const char *const KEYS[] = {
    "a", "bb", "label", "a.b", "quite_long_key", "seventeen_letters"};

/* A random map as JSON; depth 0 gives no more maps. */
static size_t write_map(struct sqrl_rng *rng, char *out, unsigned depth, bool regular) {
    size_t n = (size_t)sprintf(out, "{");
    unsigned pairs = regular ? 4 : (unsigned)sqrl_rng_below(rng, 6);
    for (unsigned i = 0; i < pairs; i++) {
        unsigned key = regular ? i : (unsigned)sqrl_rng_below(rng, SQRL_COUNT_OF(KEYS));
        n += (size_t)sprintf(out + n, "%s\"%s\": ", i ? ", " : "", KEYS[key]);
        uint64_t kind = sqrl_rng_below(rng, regular ? 4 : 8);
        if (depth && (regular ? i == 1 : kind >= 5))
            n += write_map(rng, out + n, depth - 1, regular);
        else if (kind == 0)
            n += (size_t)sprintf(out + n, "null");
        else if (kind == 1)
            n += (size_t)sprintf(out + n, "[1, {\"a\": 2}]");
        else
            n += (size_t)sprintf(out + n, "%u", (unsigned)sqrl_rng_below(rng, 1000));
    }
    return n + (size_t)sprintf(out + n, "}");
}

static const char *const NAMES[] = {"a",
                                    "bb",
                                    "a.a",
                                    "a.bb",
                                    "bb.label",
                                    "bb.a\\.b",
                                    "a\\.b",
                                    "bb.bb.a",
                                    "label",
                                    "quite_long_key",
                                    "seventeen_letters.a",
                                    "bb.bb"};

/* Fields whose last key begins with 'l' or 'q' may not be lost. */
static bool stranger(void *arg, const char *name) {
    const char *dot = strrchr(name, '.');
    ++*(unsigned *)arg;
    const char *last = dot ? dot + 1 : name;
    /* a name may come out when it does, or when something below it may */
    return *last == 'l' || *last == 'q' || *last == 's';
}

static void name_of(char *out, const char *prefix, const struct sqrl_node *key,
                    const uint8_t *bytes) {
    char *to = out + sprintf(out, "%s%s", prefix, *prefix ? "." : "");
    for (uint32_t i = 0; i < key->size; i++) {
        char c = (char)bytes[key->v.offset + i];
        if (c == '.')
            *to++ = '\\';
        *to++ = c;
    }
    *to = 0;
}

static bool is_nothing(const struct sqrl_node *v) {
    return v->type == SQRL_NULL || (v->type == SQRL_MAP && !v->size);
}

/* Whether a pair of the map is a stranger by the plain reading of locate.h; below an
 * unwanted map (`wanted` NULL) every value is judged by its own name. */
static bool any_stranger(const struct sqrl_node *nodes, uint32_t map,
                         const uint8_t *bytes, const char *prefix, const bool *wanted) {
    unsigned unused = 0;
    uint32_t end = sqrl_node_next(nodes, map);
    for (uint32_t key = map + 1, value; key < end; key = sqrl_node_next(nodes, value)) {
        char name[400];
        value = sqrl_node_next(nodes, key);
        const struct sqrl_node *v = &nodes[value];
        name_of(name, prefix, &nodes[key], bytes);
        bool is_wanted = false, leads = false, strange = false;
        for (size_t i = 0; wanted && i < SQRL_COUNT_OF(NAMES); i++) {
            size_t size = strlen(name);
            is_wanted |= wanted[i] && !strcmp(NAMES[i], name);
            leads |= wanted[i] && !strncmp(NAMES[i], name, size) && NAMES[i][size] == '.';
        }
        if (leads && v->type == SQRL_MAP)
            strange = any_stranger(nodes, value, bytes, name, wanted);
        else if (!is_wanted && !is_nothing(v) && v->type != SQRL_MAP)
            strange = stranger(&unused, name);
        else if (!is_wanted && !is_nothing(v))
            strange = (!wanted || stranger(&unused, name)) &&
                      any_stranger(nodes, value, bytes, name, NULL);
        if (strange)
            return true;
    }
    return false;
}

static void same_as_looking_up(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 42);
    unsigned runs = 0;
    for (unsigned round = 0; round < 200; round++) {
        struct sqrl_error err;
        struct sqrl_wants *wants = sqrl_wants_new(&err);
        bool wanted[SQRL_COUNT_OF(NAMES)] = {false};
        uint32_t number[SQRL_COUNT_OF(NAMES)], found[SQRL_COUNT_OF(NAMES) + 1];
        unsigned asked = 0;
        for (size_t i = 0; i < SQRL_COUNT_OF(NAMES); i++) {
            wanted[i] = sqrl_rng_below(&rng, 2);
            if (wanted[i])
                assert_int_equal(sqrl_wants_add(wants, NAMES[i], &number[i], &err),
                                 SQRL_OK);
        }
        bool judged = sqrl_rng_below(&rng, 2);
        if (judged)
            sqrl_wants_set_stranger(wants, stranger, &asked);
        struct sqrl_locator *locator = sqrl_locator_new(wants, &err);
        uint64_t mode = sqrl_rng_below(&rng, 3); /* all regular, mixed, wild */
        for (unsigned sample = 0; sample < 300; sample++) {
            char json[4000];
            struct sqrl_tape tape = {0};
            size_t offset = 0;
            bool regular = mode == 0 || (mode == 1 && sqrl_rng_below(&rng, 3));
            write_map(&rng, json, 3, regular);
            uint8_t *bytes = (uint8_t *)json;
            assert_int_equal(
                sqrl_json_decode(&tape, bytes, strlen(json), &offset, 0, NULL, &err),
                SQRL_OK);
            const char *name;
            const uint32_t begin = 0;
            uint32_t quick[SQRL_COUNT_OF(NAMES) + 1];
            bool run = sqrl_locate_run(locator, tape.nodes, &begin, 1, bytes, quick);
            runs += run;
            sqrl_locate(locator, tape.nodes, 0, bytes, found, &name);
            if (run) /* nothing is asked of such samples any more */
                assert_memory_equal(quick, found,
                                    sqrl_wants_count(wants) * sizeof *found);
            bool strange = judged && any_stranger(tape.nodes, 0, bytes, "", wanted);
            assert_false(run && strange);
            if (strange != (name != NULL))
                print_error("%s: %s\n", json, name ? name : "no stranger");
            assert_int_equal(strange, name != NULL);
            for (size_t i = 0; i < SQRL_COUNT_OF(NAMES); i++) {
                struct sqrl_path path;
                if (!wanted[i])
                    continue;
                assert_int_equal(sqrl_path_parse(&path, NAMES[i], &err), SQRL_OK);
                uint32_t expect = sqrl_path_find(&path, 0, tape.nodes, 0, bytes);
                if (found[number[i]] != expect)
                    print_error("%s: %s\n", json, NAMES[i]);
                assert_int_equal(found[number[i]], expect);
                sqrl_path_reset(&path);
            }
            sqrl_tape_reset(&tape);
        }
        sqrl_locator_free(locator);
        sqrl_wants_free(wants);
    }
    assert_true(runs > 1000);
}

static void no_map_has_nothing(void **state) {
    (void)state;
    struct sqrl_error err;
    struct sqrl_wants *wants = sqrl_wants_new(&err);
    uint32_t a, again, found[2];
    assert_int_equal(sqrl_wants_add(wants, "a", &a, &err), SQRL_OK);
    assert_int_equal(sqrl_wants_add(wants, "a", &again, &err), SQRL_OK);
    assert_int_equal(a, again);
    assert_int_equal(sqrl_wants_count(wants), 1);
    struct sqrl_locator *locator = sqrl_locator_new(wants, &err);
    struct sqrl_node node = {.type = SQRL_INT};
    sqrl_locate(locator, &node, 0, NULL, found, NULL);
    assert_int_equal(found[a], SQRL_NO_NODE);
    sqrl_locator_free(locator);
    sqrl_wants_free(wants);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_looking_up),
        cmocka_unit_test(no_map_has_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
