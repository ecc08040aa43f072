/* scalar.h - keys of maps: when they are equal, and which were there already.
 *
 * As in Python's dict: 1, 1.0 and true are one key; texts are equal by their bytes. */
#ifndef SQRL_CATALOG_SCALAR_H
#define SQRL_CATALOG_SCALAR_H

#include "catalog/table.h"
#include "value/value.h"

/* Two nodes that are no containers. NaN equals NaN: a catalog equals its copy. */
bool sqrl_scalar_same(const struct sqrl_node *a, uint32_t i, const uint8_t *a_bytes,
                      const struct sqrl_node *b, uint32_t k, const uint8_t *b_bytes);

/* A set of keys of one tape. Zero-initialise with nodes and bytes. */
struct sqrl_keys {
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    struct sqrl_table table;
};
void sqrl_keys_reset(struct sqrl_keys *keys);
/* Adds the key at a node; *before is the node of an equal one, which stays, or
 * SQRL_TABLE_NONE. */
SQRL_CHECK int sqrl_keys_add(struct sqrl_keys *keys, uint32_t key, uint32_t *before,
                             struct sqrl_error *err);
/* The key that equals one of another tape, or SQRL_TABLE_NONE. */
uint32_t sqrl_keys_find(const struct sqrl_keys *keys, const struct sqrl_node *nodes,
                        uint32_t key, const uint8_t *bytes);
/* The first key of a map that stands in it twice, *before the one before it; or
 * SQRL_TABLE_NONE. */
SQRL_CHECK int sqrl_keys_duplicate(const struct sqrl_node *nodes, uint32_t map,
                                   uint32_t end, const uint8_t *bytes, uint32_t *found,
                                   uint32_t *before, struct sqrl_error *err);

#endif
