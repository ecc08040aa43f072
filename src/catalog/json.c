/* json.c - a catalog's values as canonical JSON, and back.
 *
 * JSON has no tags: a catalog key is the map {"!CatalogKey": [name, version]}. */
#include <stdio.h>
#include <stdlib.h>

#include "catalog/scalar.h"
#include "catalog/yaml.h"
#include "sqrl/catalog.h"

#define KEY_TAG "!CatalogKey"
#define TIME_TAG "!Time"

static bool is_tag(const struct sqrl_node *n, const uint8_t *bytes, const char *tag) {
    return n->type == SQRL_STRING && n->size == strlen(tag) &&
           memcmp(bytes + n->v.offset, tag, n->size) == 0;
}

/* --- writing --- */
struct writer {
    struct sqrl_bytes *out;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    struct sqrl_error *err;
};

static int write_node(struct writer *w, uint32_t node);

static int put(struct writer *w, const char *text) {
    return sqrl_bytes_append(w->out, text, strlen(text), w->err);
}

static int by_text(const void *x, const void *y, void *arg) {
    const struct writer *w = arg;
    const struct sqrl_node *a = &w->nodes[*(const uint32_t *)x];
    const struct sqrl_node *b = &w->nodes[*(const uint32_t *)y];
    int order = memcmp(w->bytes + a->v.offset, w->bytes + b->v.offset,
                       SQRL_MIN(a->size, b->size));
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* The keys of a map in order, to be freed; NULL with an error. */
static uint32_t *sorted_keys(struct writer *w, uint32_t map) {
    uint32_t count = w->nodes[map].size, n = 0, end = sqrl_node_next(w->nodes, map);
    uint32_t *keys = sqrl_malloc((count + 1) * sizeof *keys, "keys", w->err);
    for (uint32_t key = map + 1; keys && key < end;
         key = sqrl_node_next(w->nodes, key + 1)) {
        keys[n++] = key;
        if (w->nodes[key].type == SQRL_STRING)
            continue;
        sqrl_error_set(w->err, SQRL_E_UNSUPPORTED,
                       "a key is no text; JSON has only texts as keys, YAML has others");
        free(keys);
        keys = NULL;
    }
    if (keys)
        qsort_r(keys, n, sizeof *keys, by_text, w);
    return keys;
}

static int write_map(struct writer *w, uint32_t map) {
    const struct sqrl_node *n = &w->nodes[map];
    if (n->size == 1 &&
        (is_tag(n + 1, w->bytes, KEY_TAG) || is_tag(n + 1, w->bytes, TIME_TAG)))
        return sqrl_error_set(w->err, SQRL_E_UNSUPPORTED,
                              "a map with the one key " KEY_TAG " or " TIME_TAG
                              " would be read as a catalog key or a time");
    uint32_t *keys = sorted_keys(w, map);
    if (!keys)
        return w->err && w->err->code ? (int)w->err->code : SQRL_E_NO_MEMORY;
    int code = put(w, "{");
    for (uint32_t i = 0; i < n->size && !code; i++) {
        code = put(w, i ? "," : "");
        if (!code)
            code = write_node(w, keys[i]);
        if (!code)
            code = put(w, ":");
        if (!code)
            code = write_node(w, keys[i] + 1);
    }
    free(keys);
    return code ? code : put(w, "}");
}

static int write_list(struct writer *w, uint32_t list) {
    uint32_t end = sqrl_node_next(w->nodes, list);
    int code = put(w, "[");
    for (uint32_t i = list + 1; i < end && !code; i = sqrl_node_next(w->nodes, i)) {
        code = put(w, i > list + 1 ? "," : "");
        if (!code)
            code = write_node(w, i);
    }
    return code ? code : put(w, "]");
}

static int write_key(struct writer *w, const struct sqrl_node *ext) {
    struct sqrl_tape tape = {0};
    const uint8_t *packed;
    char version[32];
    int code = sqrl_catalog_key_decode(ext, w->bytes, &tape, &packed, w->err);
    if (!code)
        code = put(w, "{\"" KEY_TAG "\":[");
    if (!code)
        code = sqrl_json_encode(w->out, tape.nodes, 1, packed, w->err);
    if (!code) {
        snprintf(version, sizeof version, ",%lld]}", (long long)tape.nodes[2].v.i);
        code = put(w, version);
    }
    sqrl_tape_reset(&tape);
    return code;
}

static int write_time(struct writer *w, const struct sqrl_node *n) {
    char time[SQRL_CATALOG_TIME_BYTES], text[SQRL_CATALOG_TIME_BYTES + 24];
    if (!sqrl_catalog_time((const char *)w->bytes + n->v.offset, n->size, time))
        return sqrl_error_set(w->err, SQRL_E_UNSUPPORTED,
                              "a date or time that YAML does not know");
    snprintf(text, sizeof text, "{\"" TIME_TAG "\":\"%s\"}", time);
    return put(w, text);
}

/* No deeper than SQRL_CATALOG_MAX_DEPTH: a catalog holds nothing deeper. */
static int write_node(struct writer *w, uint32_t node) {
    const struct sqrl_node *n = &w->nodes[node];
    if (n->type == SQRL_MAP)
        return write_map(w, node);
    if (n->type == SQRL_ARRAY)
        return write_list(w, node);
    if (n->type == SQRL_EXT && n->aux == SQRL_CATALOG_KEY_EXT + 128)
        return write_key(w, n);
    if (n->type == SQRL_EXT && n->aux == SQRL_CATALOG_TIME_EXT + 128)
        return write_time(w, n);
    if (n->type <= SQRL_STRING)
        return sqrl_json_encode(w->out, w->nodes, node, w->bytes, w->err);
    return sqrl_error_set(w->err, SQRL_E_UNSUPPORTED,
                          "a catalog's file holds texts, numbers, booleans, nulls, lists "
                          "and maps; no binaries, arrays or extensions");
}

int sqrl_catalog_json_write(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                            uint32_t node, const uint8_t *bytes, struct sqrl_error *err) {
    struct sqrl_error own = {0};
    struct writer w = {out, nodes, bytes, err ? err : &own};
    return write_node(&w, node);
}

/* --- reading --- */
/* No key twice in a map. */
static int check_keys(const struct sqrl_yaml *doc, struct sqrl_error *err) {
    const struct sqrl_node *nodes = doc->tape.nodes;
    for (uint32_t i = 0; i < doc->tape.count; i++) {
        uint32_t found, before;
        if (nodes[i].type != SQRL_MAP)
            continue;
        int code = sqrl_keys_duplicate(nodes, i, sqrl_node_next(nodes, i), doc->text.data,
                                       &found, &before, err);
        if (code || found != SQRL_TABLE_NONE)
            return code ? code
                        : sqrl_error_set(err, SQRL_E_CORRUPT,
                                         "the key \"%.*s\" stands in a map twice",
                                         (int)SQRL_MIN(nodes[found].size, 60u),
                                         (const char *)doc->text.data +
                                             nodes[found].v.offset);
    }
    return SQRL_OK;
}

/* Node i is {"!CatalogKey": [name, version]}, or {"!Time": text}. */
static bool is_key(const struct sqrl_yaml *doc, uint32_t i, const char *tag) {
    const struct sqrl_node *n = &doc->tape.nodes[i];
    return n->type == SQRL_MAP && n->size == 1 && is_tag(n + 1, doc->text.data, tag);
}

static int fold_time(struct sqrl_yaml *doc, uint32_t i, struct sqrl_node *ext,
                     struct sqrl_error *err) {
    char text[SQRL_CATALOG_TIME_BYTES];
    *ext = doc->tape.nodes[i + 2];
    if (ext->type != SQRL_STRING ||
        !sqrl_catalog_time((const char *)doc->text.data + ext->v.offset, ext->size, text))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "a " TIME_TAG " is a date or time: \"2024-01-31\"");
    ext->type = SQRL_EXT;
    ext->aux = SQRL_CATALOG_TIME_EXT + 128;
    return SQRL_OK;
}

/* The EXT node in place of node i; the MessagePack of its list goes behind the text. */
static int fold_key(struct sqrl_yaml *doc, uint32_t i, struct sqrl_node *ext,
                    struct sqrl_error *err) {
    const struct sqrl_node *list = &doc->tape.nodes[i + 2];
    struct sqrl_bytes packed = {0};
    if (list->type != SQRL_ARRAY || list->size != 2 || list[1].type != SQRL_STRING ||
        list[2].type != SQRL_INT)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "a " KEY_TAG " is a name and a version: [\"name\", 1]");
    int code = sqrl_msgpack_encode(&packed, doc->tape.nodes, i + 2, doc->text.data, err);
    *ext = (struct sqrl_node){.type = SQRL_EXT,
                              .aux = SQRL_CATALOG_KEY_EXT + 128,
                              .size = (uint32_t)packed.size,
                              .v.offset = doc->text.size};
    if (!code)
        code = sqrl_bytes_append(&doc->text, packed.data, packed.size, err);
    sqrl_bytes_reset(&packed);
    return code;
}

/* Folds all catalog keys. Their nodes become one each, so that what stands behind them
 * moves up: `place` tells where each node went. */
static int fold_keys(struct sqrl_yaml *doc, struct sqrl_error *err) {
    struct sqrl_tape *tape = &doc->tape;
    uint32_t count = tape->count, to = 0;
    uint32_t *place = sqrl_malloc((count + 1) * sizeof *place, "a tape's places", err);
    int code = place ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (uint32_t i = 0; i < count && !code;) {
        struct sqrl_node node = tape->nodes[i];
        uint32_t next = i + 1;
        bool time = is_key(doc, i, TIME_TAG);
        if (time || is_key(doc, i, KEY_TAG)) {
            next = (uint32_t)node.v.next;
            code = (time ? fold_time : fold_key)(doc, i, &node, err);
        }
        for (uint32_t k = i; k < next; k++)
            place[k] = to;
        tape->nodes[to++] = node;
        i = next;
    }
    if (!code) {
        place[count] = to;
        for (uint32_t i = 0; i < to; i++)
            if (tape->nodes[i].type >= SQRL_ARRAY)
                tape->nodes[i].v.next = place[tape->nodes[i].v.next];
        tape->count = to;
    }
    free(place);
    return code;
}

int sqrl_catalog_json_read(struct sqrl_yaml *out, const char *text, size_t size,
                           struct sqrl_error *err) {
    static const struct sqrl_limits limits = {.max_depth = SQRL_YAML_MAX_DEPTH,
                                              .max_nodes = SQRL_YAML_MAX_NODES};
    size_t offset = 0;
    sqrl_yaml_reset(out);
    if (size > SQRL_YAML_MAX_BYTES)
        return sqrl_error_set(err, SQRL_E_LIMIT, "%zu bytes of JSON; at most %d are read",
                              size, SQRL_YAML_MAX_BYTES);
    int code = sqrl_bytes_append(&out->text, text, size, err);
    if (!code) {
        code = sqrl_json_decode(&out->tape, out->text.data, size, &offset,
                                SQRL_JSON_NAN | SQRL_JSON_NO_ARRAYS, &limits, err);
        if (!code && offset != size)
            code = sqrl_error_set(err, SQRL_E_CORRUPT,
                                  "something stands behind the catalog");
        if (code)
            sqrl_error_at(err, code, "byte %zu", offset);
    }
    if (!code)
        code = check_keys(out, err);
    if (!code)
        code = fold_keys(out, err);
    if (code)
        sqrl_yaml_reset(out);
    return code;
}
