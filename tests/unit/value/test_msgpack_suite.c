/* The public msgpack-test-suite: every value in every encoding that is allowed for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "value/value.h"

static uint8_t *json;
static struct sqrl_tape suite;
static unsigned cases, encodings;

static bool load_suite(void) {
    const char *root = getenv("SQRL_TEST_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/msgpack/msgpack-test-suite.json", root ? root : "");
    FILE *file = root && *root ? fopen(path, "rb") : NULL;
    if (!file) {
        print_message(
            "skipped: msgpack/msgpack-test-suite.json of the test data is absent\n");
        return false;
    }
    json = malloc(1 << 20);
    assert_non_null(json);
    size_t size = fread(json, 1, 1 << 20, file), offset = 0;
    fclose(file);
    struct sqrl_error err;
    if (sqrl_json_decode(&suite, json, size, &offset, 0, NULL, &err))
        fail_msg("%s: %s", path, err.message);
    return true;
}

/* "c4-01-ff" or "01-ff" as bytes. */
static size_t parse_hex(const struct sqrl_node *text, uint8_t *out) {
    const char *s = (const char *)json + text->v.offset;
    size_t n = 0;
    for (uint32_t i = 0; i + 1 < text->size; i += 3) {
        char pair[3] = {s[i], s[i + 1], 0};
        out[n++] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

static double as_double(const struct sqrl_node *n) {
    return n->type == SQRL_FLOAT ? n->v.f
           : n->type == SQRL_INT ? (double)n->v.i
                                 : (double)n->v.u;
}

/* JSON's value against MessagePack's; numbers by value, since 1 may be stored as a float.
 */
static bool same(const struct sqrl_node *want, uint32_t w, const struct sqrl_tape *got,
                 uint32_t g, const uint8_t *bytes) {
    const struct sqrl_node *a = &want[w], *b = &got->nodes[g];
    if (a->type == SQRL_ARRAY || a->type == SQRL_MAP) {
        if (b->type != a->type || b->size != a->size)
            return false;
        uint32_t i = w + 1, k = g + 1;
        while (i < a->v.next && k < b->v.next) {
            if (!same(want, i, got, k, bytes))
                return false;
            i = sqrl_node_next(want, i);
            k = sqrl_node_next(got->nodes, k);
        }
        return i == a->v.next && k == b->v.next;
    }
    if (a->type == SQRL_STRING)
        return b->type == SQRL_STRING && b->size == a->size &&
               memcmp(json + a->v.offset, bytes + b->v.offset, a->size) == 0;
    if (a->type == b->type && a->type != SQRL_FLOAT)
        return a->v.u == b->v.u;
    bool numbers = a->type >= SQRL_INT && a->type <= SQRL_FLOAT && b->type >= SQRL_INT &&
                   b->type <= SQRL_FLOAT;
    return numbers && as_double(a) == as_double(b);
}

/* Extension -1 of 4, 8 or 12 bytes, as the specification lays it out. */
static bool same_timestamp(const struct sqrl_node *want, const struct sqrl_node *got,
                           const uint8_t *bytes) {
    if (got->type != SQRL_EXT || got->aux != 127)
        return false;
    const uint8_t *p = bytes + got->v.offset;
    int64_t seconds;
    uint64_t nanoseconds = 0;
    if (got->size == 4) {
        seconds = sqrl_load_be32(p);
    } else if (got->size == 8) {
        uint64_t both = sqrl_load_be64(p);
        seconds = (int64_t)(both & ((UINT64_C(1) << 34) - 1));
        nanoseconds = both >> 34;
    } else {
        nanoseconds = sqrl_load_be32(p);
        seconds = (int64_t)sqrl_load_be64(p + 4);
    }
    return want[1].v.i == seconds && want[2].v.u == nanoseconds;
}

static bool matches(const char *kind, uint32_t value, const struct sqrl_tape *got,
                    const uint8_t *bytes) {
    const struct sqrl_node *want = &suite.nodes[value], *n = got->nodes;
    if (strcmp(kind, "binary") == 0) {
        uint8_t binary[4096];
        size_t size = parse_hex(want, binary);
        return n->type == SQRL_BINARY && n->size == size &&
               memcmp(binary, bytes + n->v.offset, size) == 0;
    }
    if (strcmp(kind, "timestamp") == 0)
        return same_timestamp(want, n, bytes);
    if (strcmp(kind, "bignum") == 0) {
        char text[32];
        snprintf(text, sizeof text, n->type == SQRL_UINT ? "%llu" : "%lld",
                 (unsigned long long)n->v.u);
        return strlen(text) == want->size &&
               memcmp(text, json + want->v.offset, want->size) == 0;
    }
    return same(suite.nodes, value, got, 0, bytes);
}

static void run_case(uint32_t map) {
    const struct sqrl_node *nodes = suite.nodes;
    char kind[32] = "";
    uint32_t value = SQRL_NO_NODE;
    uint32_t forms = sqrl_map_find(nodes, map, json, "msgpack", 7);
    assert_int_not_equal(forms, SQRL_NO_NODE);
    for (uint32_t k = map + 1; k < nodes[map].v.next;) {
        uint32_t v = sqrl_node_next(nodes, k);
        if (v != forms && (value == SQRL_NO_NODE ||
                           memcmp(json + nodes[k].v.offset, "bignum", 6) == 0)) {
            snprintf(kind, sizeof kind, "%.*s", (int)nodes[k].size,
                     (const char *)json + nodes[k].v.offset);
            value = v;
        }
        k = sqrl_node_next(nodes, v);
    }
    cases++;
    for (uint32_t f = forms + 1; f < nodes[forms].v.next; f++) {
        uint8_t bytes[4096];
        size_t size = parse_hex(&nodes[f], bytes), offset = 0;
        struct sqrl_tape tape = {0};
        if (sqrl_msgpack_decode(&tape, bytes, size, &offset, NULL, NULL) ||
            offset != size || !matches(kind, value, &tape, bytes))
            fail_msg("case %u (%s): %.*s", cases, kind, (int)nodes[f].size,
                     (const char *)json + nodes[f].v.offset);
        sqrl_tape_reset(&tape);
        encodings++;
    }
}

static void every_encoding_decodes_to_its_value(void **state) {
    (void)state;
    if (!load_suite())
        skip();
    for (uint32_t section = 2; section < suite.count;
         section = sqrl_node_next(suite.nodes, section) + 1)
        for (uint32_t c = section + 1; c < suite.nodes[section].v.next;
             c = sqrl_node_next(suite.nodes, c))
            run_case(c);
    print_message("%u cases, %u encodings\n", cases, encodings);
    assert_true(cases >= 50);
    sqrl_tape_reset(&suite);
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_encoding_decodes_to_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
