/* select, drop and rename on single samples (dict mode) and on names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stream/projection.h"

/* "s:meta,label" select, "d:..." drop, "r:a=b,c=d" rename; stages separated by spaces. */
static struct sqrl_projection *chain[8];
static unsigned stages;

static void build(const char *text) {
    char copy[200], *outer, *inner;
    stages = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *s = strtok_r(copy, " ", &outer); s; s = strtok_r(NULL, " ", &outer)) {
        const char *names[8], *to[8];
        size_t count = 0;
        for (char *n = strtok_r(s + 2, ",", &inner); n; n = strtok_r(NULL, ",", &inner)) {
            char *equal = strchr(n, '=');
            if (equal)
                *equal = 0;
            names[count] = n;
            to[count++] = equal ? equal + 1 : NULL;
        }
        enum sqrl_name_stage stage = *s == 's'   ? SQRL_NAMES_SELECT
                                     : *s == 'd' ? SQRL_NAMES_DROP
                                                 : SQRL_NAMES_RENAME;
        struct sqrl_error err;
        assert_int_equal(sqrl_projection_new(stages ? chain[stages - 1] : NULL, stage,
                                             names, *s == 'r' ? to : NULL, count,
                                             &chain[stages], &err),
                         SQRL_OK);
        stages++;
    }
}
static void clear(void) {
    while (stages)
        sqrl_projection_free(chain[--stages]);
}

static const struct {
    const char *sample, *stages, *expect;
} SAMPLES[] = {
    {"{\"a\": 1, \"b\": 2, \"c\": 3}", "s:c,a", "c=3 a=1 "},
    {"{\"a\": 1, \"b\": 2, \"c\": 3}", "d:b", "a=1 c=3 "},
    {"{\"a\": 1, \"b\": 2}", "r:a=b,b=a", "b=1 a=2 "},
    {"{\"a\": 1}", "s:a,gone", "a=1 "},
    {"{\"a\": 1, \"a\": 2}", "s:a", "a=2 "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "s:m.x", "m.x=1 "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "s:m", "m={} "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "d:m.x", "m.y=2 z=3 "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "d:m.gone", "m={} z=3 "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "r:m.x=q", "q=1 m.y=2 z=3 "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "r:m=k s:k.y", "k.y=2 "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "d:m.x s:m", "m.y=2 "},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"z\": 3}", "d:m.x d:m.y", "z=3 "},
    {"{\"m\": {\"n\": {\"p\": 1, \"q\": 2}, \"y\": 2}}", "d:m.n.p", "m.n.q=2 m.y=2 "},
    {"{\"m\": {\"n\": {\"p\": 1, \"q\": 2}, \"y\": 2}}", "s:m.n d:m.n.q", "m.n.p=1 "},
    {"{\"a.b\": 1, \"a\": {\"b\": 2}}", "s:a\\.b", "a.b=1 "},
    {"{\"a.b\": 1, \"a\": {\"b\": 2}}", "s:a.b", "a.b=2 "},
    {"{\"a.b\": 1, \"a\": {\"b\": 2}}", "d:a\\.b", "a={} "},
    {"{\"a\": {\"b.c\": 1, \"d\": 2}}", "d:a.d", "a.b\\.c=1 "},
    {"{\"a\": {\"b.c\": 1, \"d\": 2}}", "d:a.d s:a.b\\.c", "a.b\\.c=1 "},
    {"[1, 2]", "s:a", ""},
    {"{}", "d:a", ""},
};

/* What the error must hold; NULL: none. */
static const struct {
    const char *sample, *stages, *error;
} CLASHES[] = {
    {"{\"x\": 1, \"im\": 2}", "r:x=im", "\"im\": \"x\" and \"im\""},
    {"{\"im\": 1, \"x\": 2}", "r:x=im", "\"im\": \"im\" and \"x\""},
    {"{\"x\": 1}", "r:x=im", NULL},
    {"{\"x\": 1, \"x\": 2}", "r:x=im", NULL}, /* equal keys: the last counts */
    {"{\"x\": 1, \"im\": 2}", "r:x=im,im=x", NULL},
    {"{\"x\": 1, \"im\": 2}", "d:im r:x=im", NULL},
    {"{\"x\": 1, \"im\": 2}", "r:x=im s:im", "\"x\" and \"im\""},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"q\": 3}", "r:m.x=q", "\"q\": \"m.x\" and \"q\""},
    {"{\"m\": {\"x\": 1}, \"m.x\": 3}", "d:m.y", NULL},
    {"{\"m\": {\"x\": 1, \"y\": 2}, \"m.x\": 3}", "d:m.y", "\"m.x\" and \"m\\.x\""},
    {"{\"a\": {\"b\": 2}, \"a.b\": 1}", "s:a\\.b,a.b", "\"a\\.b\" and \"a.b\""},
    {"{\"a\": {\"b\": 2}}", "s:a\\.b,a.b", NULL},
    {"[1, 2]", "r:x=im", NULL},
};

static void clashing_names(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(CLASHES); i++) {
        struct sqrl_error err;
        struct sqrl_buffer bytes = {.data = (uint8_t *)strdup(CLASHES[i].sample)};
        struct sqrl_block block = {.bytes = &bytes, .count = 1};
        size_t offset = 0;
        uint32_t first = 0;
        assert_int_equal(sqrl_json_decode(&block.tape, bytes.data,
                                          strlen(CLASHES[i].sample), &offset, 0, NULL,
                                          &err),
                         SQRL_OK);
        block.begin = &first;
        build(CLASHES[i].stages);
        const struct sqrl_projection *last = chain[stages - 1];
        if (!sqrl_projection_may_clash(last))
            fail_msg("case %zu", i);
        int code = sqrl_projection_check(last, &block, 0, &err);
        if (code != (CLASHES[i].error ? SQRL_E_TYPE : SQRL_OK))
            fail_msg("case %zu: %s", i, code ? err.message : "no error");
        if (CLASHES[i].error)
            assert_non_null(strstr(err.message, CLASHES[i].error));
        clear();
        sqrl_tape_reset(&block.tape);
        free(bytes.data);
    }
    build("s:a,b.c d:a");
    assert_false(sqrl_projection_may_clash(chain[stages - 1]));
    clear();
}

static void single_samples(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(SAMPLES); i++) {
        struct sqrl_error err;
        struct sqrl_buffer bytes = {.data = (uint8_t *)strdup(SAMPLES[i].sample)};
        struct sqrl_block block = {.bytes = &bytes, .count = 1};
        size_t offset = 0;
        uint32_t first = 0;
        assert_int_equal(sqrl_json_decode(&block.tape, bytes.data,
                                          strlen((char *)bytes.data), &offset, 0, NULL,
                                          &err),
                         SQRL_OK);
        block.begin = &first;
        build(SAMPLES[i].stages);
        struct sqrl_field_ref refs[8];
        char got[200] = "";
        size_t n = sqrl_projection_apply(chain[stages - 1], &block, 0, refs, 8), at = 0;
        for (size_t k = 0; k < n; k++) {
            const struct sqrl_node *node = &block.tape.nodes[refs[k].node];
            char value[24] = "{}";
            if (node->type == SQRL_INT)
                snprintf(value, sizeof value, "%lld", (long long)node->v.i);
            at += (size_t)snprintf(got + at, sizeof got - at, "%.*s=%s ",
                                   (int)refs[k].name_size, refs[k].name, value);
        }
        if (strcmp(got, SAMPLES[i].expect))
            print_error("%s %s\n", SAMPLES[i].sample, SAMPLES[i].stages);
        assert_string_equal(got, SAMPLES[i].expect);
        assert_int_equal(sqrl_projection_apply(chain[stages - 1], &block, 0, refs, 0), n);
        clear();
        sqrl_tape_reset(&block.tape);
        free(bytes.data);
    }
}

/* A name behind the stages, and what it was in the source; "-": nothing. */
static const struct {
    const char *stages, *name, *origin;
} ORIGINS[] = {
    {"s:a", "a", "a"},           {"s:a", "b", "-"},
    {"s:m", "m.x", "m.x"},       {"s:m.x", "m", "-"},
    {"s:m.x", "m.x.y", "m.x.y"}, {"d:a", "a", "-"},
    {"d:a", "a.b", "-"},         {"d:m.x", "m", "-"},
    {"d:m.x", "m.y", "m.y"},     {"r:a=b", "b", "a"},
    {"r:a=b", "b.c", "a.c"},     {"r:a=b", "a", "-"},
    {"r:a=b,b=a", "a", "b"},     {"r:a=b s:b r:b=c", "c", "a"},
    {"r:m.x=q", "q", "m.x"},     {"r:m.x=q", "m.y", "m.y"},
    {"r:m.x=q", "m", "-"},       {"d:ab", "abc", "abc"},
};

static void origins(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(ORIGINS); i++) {
        struct sqrl_error err;
        char *origin;
        build(ORIGINS[i].stages);
        assert_int_equal(
            sqrl_projection_origin(chain[stages - 1], ORIGINS[i].name, &origin, &err),
            SQRL_OK);
        assert_string_equal(origin ? origin : "-", ORIGINS[i].origin);
        free(origin);
        clear();
    }
}

static void refused(void **state) {
    (void)state;
    struct sqrl_error err;
    struct sqrl_projection *p;
    const char *twice[] = {"a", "a"}, *empty[] = {""};
    assert_int_equal(
        sqrl_projection_new(NULL, SQRL_NAMES_SELECT, twice, NULL, 2, &p, &err),
        SQRL_E_INVALID);
    assert_int_equal(sqrl_projection_new(NULL, SQRL_NAMES_DROP, empty, NULL, 1, &p, &err),
                     SQRL_E_INVALID);
    assert_int_equal(sqrl_projection_new(NULL, SQRL_NAMES_DROP, NULL, NULL, 0, &p, &err),
                     SQRL_E_INVALID);
    char deep[200];
    for (int i = 0; i < 65; i++)
        memcpy(deep + 2 * i, "a.", 2);
    deep[129] = 0;
    const char *too_deep[] = {deep};
    assert_int_equal(
        sqrl_projection_new(NULL, SQRL_NAMES_DROP, too_deep, NULL, 1, &p, &err),
        SQRL_E_LIMIT);
    assert_null(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_samples),
        cmocka_unit_test(clashing_names),
        cmocka_unit_test(origins),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
