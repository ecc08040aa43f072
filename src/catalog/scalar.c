/* scalar.c - keys of maps. Few keys are compared each with each; many by a table. */
#include <math.h>

#include "catalog/scalar.h"
#include "sqrl/codec.h"

enum { FEW = 12 };

/* A number as one that compares by its bits; all else as it is. */
static struct sqrl_node canonical(struct sqrl_node node) {
    if (node.type == SQRL_BOOL)
        node.type = SQRL_INT;
    if (node.type != SQRL_FLOAT)
        return node;
    double f = node.v.f;
    if (isnan(f))
        return (struct sqrl_node){.type = SQRL_FLOAT, .v.f = NAN};
    if (f >= -0x1p63 && f < 0x1p63 && (double)(int64_t)f == f)
        return (struct sqrl_node){.type = SQRL_INT, .v.i = (int64_t)f};
    if (f >= 0x1p63 && f < 0x1p64)
        return (struct sqrl_node){.type = SQRL_UINT, .v.u = (uint64_t)f};
    return node;
}

bool sqrl_scalar_same(const struct sqrl_node *a, uint32_t i, const uint8_t *a_bytes,
                      const struct sqrl_node *b, uint32_t k, const uint8_t *b_bytes) {
    struct sqrl_node x = canonical(a[i]), y = canonical(b[k]);
    if (x.type != y.type || x.type >= SQRL_ARRAY)
        return false;
    if (x.type < SQRL_NUMBER)
        return x.v.u == y.v.u;
    return x.size == y.size && x.aux == y.aux &&
           memcmp(a_bytes + x.v.offset, b_bytes + y.v.offset, x.size) == 0;
}

static uint64_t hash_of(const struct sqrl_node *nodes, uint32_t key,
                        const uint8_t *bytes) {
    struct sqrl_node n = canonical(nodes[key]);
    if (n.type >= SQRL_NUMBER && n.type < SQRL_ARRAY)
        return sqrl_xxh3(bytes + n.v.offset, n.size);
    return sqrl_mix64(n.v.u);
}

struct wanted {
    const struct sqrl_keys *keys;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    uint32_t key;
};

static bool is_wanted(const void *arg, uint32_t index) {
    const struct wanted *w = arg;
    return sqrl_scalar_same(w->nodes, w->key, w->bytes, w->keys->nodes, index,
                            w->keys->bytes);
}

void sqrl_keys_reset(struct sqrl_keys *keys) {
    sqrl_table_reset(&keys->table);
}

uint32_t sqrl_keys_find(const struct sqrl_keys *keys, const struct sqrl_node *nodes,
                        uint32_t key, const uint8_t *bytes) {
    struct wanted wanted = {keys, nodes, bytes, key};
    return sqrl_table_find(&keys->table, hash_of(nodes, key, bytes), is_wanted, &wanted);
}

int sqrl_keys_add(struct sqrl_keys *keys, uint32_t key, uint32_t *before,
                  struct sqrl_error *err) {
    *before = sqrl_keys_find(keys, keys->nodes, key, keys->bytes);
    if (*before != SQRL_TABLE_NONE)
        return SQRL_OK;
    int code = sqrl_table_reserve(&keys->table, 1, err);
    if (code == SQRL_OK)
        sqrl_table_add(&keys->table, hash_of(keys->nodes, key, keys->bytes), key);
    return code;
}

static bool few_duplicate(const struct sqrl_node *nodes, uint32_t map, uint32_t end,
                          const uint8_t *bytes, uint32_t *found, uint32_t *before) {
    uint32_t few[FEW], count = 0;
    for (uint32_t i = map + 1; i < end; i = sqrl_node_next(nodes, i + 1)) {
        for (uint32_t k = 0; k < count; k++)
            if (sqrl_scalar_same(nodes, i, bytes, nodes, few[k], bytes)) {
                *found = i;
                *before = few[k];
                return true;
            }
        few[count++] = i;
    }
    return false;
}

int sqrl_keys_duplicate(const struct sqrl_node *nodes, uint32_t map, uint32_t end,
                        const uint8_t *bytes, uint32_t *found, uint32_t *before,
                        struct sqrl_error *err) {
    struct sqrl_keys keys = {.nodes = nodes, .bytes = bytes};
    int code = SQRL_OK;
    *found = SQRL_TABLE_NONE;
    if (nodes[map].size <= FEW) {
        few_duplicate(nodes, map, end, bytes, found, before);
        return SQRL_OK;
    }
    for (uint32_t i = map + 1; i < end && code == SQRL_OK && *found == SQRL_TABLE_NONE;
         i = sqrl_node_next(nodes, i + 1)) {
        code = sqrl_keys_add(&keys, i, before, err);
        if (code == SQRL_OK && *before != SQRL_TABLE_NONE)
            *found = i;
    }
    sqrl_keys_reset(&keys);
    return code;
}
