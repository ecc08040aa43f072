/* wants.c - building the tree of wanted names. */
#include "stream/columns/wants.h"

#include <stdlib.h>

struct sqrl_wants *sqrl_wants_new(struct sqrl_error *err) {
    struct sqrl_wants *wants = sqrl_calloc(1, sizeof *wants, "fields", err);
    if (!wants)
        return NULL;
    wants->capacity = 16;
    wants->node = sqrl_calloc(wants->capacity, sizeof *wants->node, "fields", err);
    if (!wants->node) {
        free(wants);
        return NULL;
    }
    wants->node[0].want = NO_WANT;
    wants->nodes = 1;
    return wants;
}

void sqrl_wants_free(struct sqrl_wants *wants) {
    if (!wants)
        return;
    for (uint32_t i = 0; i < wants->nodes; i++)
        free(wants->node[i].key);
    free(wants->node);
    free(wants);
}

uint32_t sqrl_wants_count(const struct sqrl_wants *wants) {
    return wants->count;
}

void sqrl_wants_set_stranger(struct sqrl_wants *wants, sqrl_stranger_fn stranger,
                             void *arg) {
    wants->stranger = stranger;
    wants->stranger_arg = arg;
}

uint32_t sqrl_wants_child(const struct sqrl_wants *wants, uint32_t parent,
                          const void *key, uint32_t size) {
    uint32_t child = wants->node[parent].first;
    while (child && (wants->node[child].key_size != size ||
                     memcmp(wants->node[child].key, key, size) != 0))
        child = wants->node[child].next;
    return child;
}

static int child_add(struct sqrl_wants *wants, uint32_t parent, const char *key,
                     uint32_t size, uint32_t *out, struct sqrl_error *err) {
    if (wants->nodes == wants->capacity) {
        void *grown = sqrl_realloc(wants->node, 2 * wants->capacity * sizeof *wants->node,
                                   "fields", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        wants->node = grown;
        wants->capacity *= 2;
    }
    char *copy = sqrl_malloc((size_t)size + 1, "fields", err);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    memcpy(copy, key, size);
    copy[size] = 0;
    wants->node[wants->nodes] = (struct want_node){copy, size, NO_WANT, parent, 0, 0};
    uint32_t *link = &wants->node[parent].first;
    while (*link)
        link = &wants->node[*link].next;
    *link = wants->nodes;
    *out = wants->nodes++;
    return SQRL_OK;
}

int sqrl_wants_add(struct sqrl_wants *wants, const char *name, uint32_t *out,
                   struct sqrl_error *err) {
    struct sqrl_path path;
    *out = NO_WANT;
    int code = sqrl_path_parse(&path, name, err);
    if (code)
        return code;
    uint32_t at = 0;
    for (uint32_t k = 0; k < path.count && !code; k++) {
        uint32_t child = sqrl_wants_child(wants, at, path.key[k].name, path.key[k].size);
        if (!child)
            code = child_add(wants, at, path.key[k].name, path.key[k].size, &child, err);
        at = child;
    }
    sqrl_path_reset(&path);
    if (code)
        return code;
    if (wants->node[at].want == NO_WANT)
        wants->node[at].want = wants->count++;
    *out = wants->node[at].want;
    return SQRL_OK;
}
