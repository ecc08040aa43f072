/* table.h - a hash table of numbers: from a hash to the index of an item elsewhere.
 *
 * The table knows nothing of the items; the caller compares. */
#ifndef SQRL_CATALOG_TABLE_H
#define SQRL_CATALOG_TABLE_H

#include "base/base.h"

#define SQRL_TABLE_NONE UINT32_MAX

struct sqrl_table_slot {
    uint32_t hash;
    uint32_t index; /* SQRL_TABLE_NONE: free */
};
/* Zero-initialise; sqrl_table_reset frees. */
struct sqrl_table {
    struct sqrl_table_slot *slots;
    uint32_t capacity; /* 0 or a power of two */
    uint32_t count;
};

/* True when item `index` is the one that is looked for. */
typedef bool (*sqrl_table_same)(const void *arg, uint32_t index);

void sqrl_table_reset(struct sqrl_table *table);
/* Makes room for so many entries more; sqrl_table_add can't fail then. */
SQRL_CHECK int sqrl_table_reserve(struct sqrl_table *table, uint32_t more,
                                  struct sqrl_error *err);
void sqrl_table_add(struct sqrl_table *table, uint64_t hash, uint32_t index);
/* The index of the item, or SQRL_TABLE_NONE. */
uint32_t sqrl_table_find(const struct sqrl_table *table, uint64_t hash,
                         sqrl_table_same same, const void *arg);
/* Puts `to` in the place of `from`, an entry of the table. */
void sqrl_table_replace(struct sqrl_table *table, uint64_t hash, uint32_t from,
                        uint32_t to);
/* Takes an entry out. */
void sqrl_table_remove(struct sqrl_table *table, uint64_t hash, uint32_t index);

#endif
