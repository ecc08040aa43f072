/* The public yaml-test-suite over the strict reader: each case gives the suite's value,
 * or is refused for a reason that yaml_suite.h lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/yaml.h"
#include "yaml_suite.h"

static unsigned equal, refused, invalid, differences;

/* The suite shows invisible characters by others. */
static const struct {
    const char *shown, *meant;
} signs[] = {{"\u2423", " "},
             {"\u00bb", "\t"},
             {"\u2190", "\r"},
             {"\u21d4", "\ufeff"},
             {"\u21b5", ""},
             {"\u220e\n", ""},
             /* a tab is drawn as long as it is wide */
             {"\u2014\u00bb", "\t"},
             {"\u2014\u2014\u00bb", "\t"},
             {"\u2014\u2014\u2014\u00bb", "\t"},
             {"\u2014\u2014\u2014\u2014\u00bb", "\t"}};

static size_t find_sign(const char *text, size_t size) {
    size_t i = 0, count = sizeof signs / sizeof signs[0];
    while (i < count && (strlen(signs[i].shown) > size ||
                         memcmp(text, signs[i].shown, strlen(signs[i].shown)) != 0))
        i++;
    return i;
}

static char *unmask(const char *text, size_t size, size_t *out_size) {
    char *out = malloc(size + 1);
    size_t n = 0;
    assert_non_null(out);
    for (size_t at = 0; at < size;) {
        size_t i = find_sign(text + at, size - at);
        if (i == sizeof signs / sizeof signs[0]) {
            out[n++] = text[at++];
            continue;
        }
        memcpy(out + n, signs[i].meant, strlen(signs[i].meant));
        n += strlen(signs[i].meant);
        at += strlen(signs[i].shown);
    }
    *out_size = n;
    return out;
}

static double as_double(const struct sqrl_node *n) {
    return n->type == SQRL_FLOAT ? n->v.f
           : n->type == SQRL_INT ? (double)n->v.i
                                 : (double)n->v.u;
}

static bool is_number(const struct sqrl_node *n) {
    return n->type == SQRL_INT || n->type == SQRL_UINT || n->type == SQRL_FLOAT;
}

/* A key that is no text stands in JSON as its text; null as "". */
static bool same_key(const struct sqrl_node *want, const uint8_t *json,
                     const struct sqrl_yaml *got, uint32_t node) {
    const struct sqrl_node *n = &got->tape.nodes[node];
    struct sqrl_bytes text = {0};
    bool same = n->type == SQRL_NULL && want->size == 0;
    if (n->type == SQRL_STRING || n->type == SQRL_EXT)
        return n->size == want->size &&
               memcmp(got->text.data + n->v.offset, json + want->v.offset, n->size) == 0;
    if (!same &&
        sqrl_json_encode(&text, got->tape.nodes, node, got->text.data, NULL) == 0)
        same = text.size == want->size &&
               memcmp(text.data, json + want->v.offset, text.size) == 0;
    sqrl_bytes_reset(&text);
    return same;
}

/* The value of the key that stands at `key` of the JSON, wherever it stands in the map.
 */
static uint32_t value_of(const struct sqrl_node *key, const uint8_t *json,
                         const struct sqrl_yaml *got, uint32_t map) {
    const struct sqrl_node *nodes = got->tape.nodes;
    uint32_t end = sqrl_node_next(nodes, map);
    for (uint32_t i = map + 1; i < end; i = sqrl_node_next(nodes, i + 1))
        if (same_key(key, json, got, i))
            return i + 1;
    return SQRL_NO_NODE;
}

static bool same(const struct sqrl_tape *want, uint32_t w, const uint8_t *json,
                 const struct sqrl_yaml *got, uint32_t g) {
    const struct sqrl_node *a = &want->nodes[w], *b = &got->tape.nodes[g];
    if (is_number(a) && is_number(b))
        return as_double(a) == as_double(b);
    bool time = a->type == SQRL_STRING && b->type == SQRL_EXT; /* a date is its text */
    if (a->type != b->type && !time)
        return false;
    if (a->type == SQRL_STRING)
        return a->size == b->size &&
               memcmp(json + a->v.offset, got->text.data + b->v.offset, a->size) == 0;
    if (a->type < SQRL_ARRAY)
        return a->v.u == b->v.u;
    if (a->size != b->size)
        return false;
    uint32_t end = sqrl_node_next(want->nodes, w);
    for (uint32_t i = w + 1, k = g + 1; i < end; i = sqrl_node_next(want->nodes, i)) {
        if (a->type == SQRL_MAP) {
            k = value_of(&want->nodes[i++], json, got, g);
            if (k == SQRL_NO_NODE)
                return false;
        }
        if (!same(want, i, json, got, k))
            return false;
        k = sqrl_node_next(got->tape.nodes, k);
    }
    return true;
}

static enum reason listed(const char *id, const char **json) {
    *json = NULL;
    for (size_t i = 0; i < sizeof yaml_suite / sizeof yaml_suite[0]; i++)
        if (strcmp(yaml_suite[i].id, id) == 0) {
            *json = yaml_suite[i].json;
            return yaml_suite[i].reason;
        }
    return NOT_LISTED;
}

/* A case's field, SQRL_NO_NODE or SQRL_NULL included. */
static uint32_t field(const struct sqrl_yaml *suite, uint32_t test, const char *name) {
    return sqrl_map_find(suite->tape.nodes, test, suite->text.data, name, strlen(name));
}

struct expected {
    bool fail;
    char *yaml, *json; /* json NULL: the suite gives none */
    size_t yaml_size, json_size;
};

static void complain(const char *id, const char *what, const struct sqrl_error *err) {
    char text[1024] = "";
    if (err)
        sqrl_error_text(err, text, sizeof text);
    print_message("%s: %s %s\n", id, what, text);
    differences++;
}

static bool gives_value(const char *text, size_t size, const struct sqrl_yaml *got) {
    struct sqrl_tape want = {0};
    size_t offset = 0;
    uint8_t *json = malloc(size + 1); /* strings are unescaped in place */
    assert_non_null(json);
    memcpy(json, text, size);
    bool good = sqrl_json_decode(&want, json, size, &offset, 0, NULL, NULL) == 0 &&
                offset == size && same(&want, 0, json, got, 0);
    sqrl_tape_reset(&want);
    free(json);
    return good;
}

/* What the listed reason demands of the error. */
static bool fits(enum reason reason, const struct sqrl_error *err) {
    static const char *const word[] = {[TAG] = "the tag",
                                       [DOCUMENTS] = "second document",
                                       [EMPTY] = "no document",
                                       [CONTAINER_KEY] = "can't be a key",
                                       [DUPLICATE] = "already"};
    if (reason == LIBYAML)
        return err->code == SQRL_E_CORRUPT;
    if (reason == MISREAD)
        return err->code == SQRL_E_UNSUPPORTED;
    return strstr(err->message, word[reason]) != NULL;
}

static void run_case(const char *id, const struct expected *e) {
    struct sqrl_yaml got = {0};
    struct sqrl_error err = {0};
    const char *tree;
    enum reason reason = listed(id, &tree);
    int code = sqrl_yaml_read(&got, e->yaml, e->yaml_size, &err);
    const char *json = tree ? tree : e->json;
    if (e->fail) {
        invalid++;
        if (code == 0)
            complain(id, "is invalid YAML and was read", NULL);
    } else if (code) {
        refused++;
        if (reason == NOT_LISTED || reason == TREE || !fits(reason, &err))
            complain(id, "was refused:", &err);
    } else if (reason != NOT_LISTED && reason != TREE) {
        complain(id, "is listed and was read", NULL);
    } else if (!json || (tree && e->json)) {
        complain(id, "has no value, or two", NULL);
    } else if (!gives_value(json, tree ? strlen(tree) : e->json_size, &got)) {
        complain(id, "gives another value", NULL);
    } else {
        equal++;
    }
    sqrl_yaml_reset(&got);
}

static void take_text(const struct sqrl_yaml *suite, uint32_t node, bool masked,
                      char **out, size_t *size) {
    if (node == SQRL_NO_NODE)
        return;
    const struct sqrl_node *n = &suite->tape.nodes[node];
    free(*out);
    *out = NULL;
    if (n->type != SQRL_STRING)
        return;
    const char *text = (const char *)suite->text.data + n->v.offset;
    if (masked) {
        *out = unmask(text, n->size, size);
        return;
    }
    *out = malloc(n->size + 1);
    assert_non_null(*out);
    memcpy(*out, text, n->size);
    *size = n->size;
}

/* A file is a list of cases; what a case does not say is as in the one before. */
static void run_file(const char *path, const char *name) {
    static char text[1 << 20];
    struct sqrl_yaml suite = {0};
    struct sqrl_error err = {0};
    struct expected e = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    if (sqrl_yaml_read(&suite, text, size, &err))
        fail_msg("%s: %s", path, err.message);
    unsigned number = 0;
    for (uint32_t i = 1; i < suite.tape.count; i = sqrl_node_next(suite.tape.nodes, i)) {
        char id[32];
        snprintf(id, sizeof id, suite.tape.nodes[0].size > 1 ? "%.4s/%02u" : "%.4s", name,
                 number++);
        if (field(&suite, i, "yaml") != SQRL_NO_NODE)
            take_text(&suite, field(&suite, i, "yaml"), true, &e.yaml, &e.yaml_size);
        uint32_t json = field(&suite, i, "json");
        if (json == SQRL_NO_NODE && field(&suite, i, "tree") != SQRL_NO_NODE)
            free(e.json), e.json = NULL;
        take_text(&suite, json, false, &e.json, &e.json_size);
        uint32_t fail = field(&suite, i, "fail");
        e.fail = fail != SQRL_NO_NODE && suite.tape.nodes[fail].v.u;
        run_case(id, &e);
    }
    free(e.yaml);
    free(e.json);
    sqrl_yaml_reset(&suite);
}

static void test_suite(void **state) {
    const char *root = getenv("SQRL_TEST_DATA");
    char folder[2048], path[4096];
    snprintf(folder, sizeof folder, "%s/yaml/yaml-test-suite", root ? root : "");
    DIR *dir = root && *root ? opendir(folder) : NULL;
    if (!dir) {
        print_message("skipped: yaml/yaml-test-suite of the test data is absent\n");
        skip();
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strstr(entry->d_name, ".yaml"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        run_file(path, entry->d_name);
    }
    closedir(dir);
    print_message("%u equal, %u refused, %u invalid\n", equal, refused, invalid);
    assert_true(equal > 110);
    assert_int_equal(differences, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
