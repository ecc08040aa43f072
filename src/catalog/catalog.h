/* catalog.h - the private half of the catalog floor: how sources are kept.
 *
 * Items stand in the order in which they were added and are never moved in memory; the
 * items of one name form a list. Two tables find names and (name, version). */
#ifndef SQRL_CATALOG_PRIVATE_H
#define SQRL_CATALOG_PRIVATE_H

#include "catalog/table.h"
#include "sqrl/catalog.h"
#include "value/value.h"

struct sqrl_catalog_name {
    char *text;
    uint64_t hash;
    uint32_t first, last; /* items, SQRL_TABLE_NONE: none */
    uint32_t latest;      /* the item with the highest version */
};

/* One allocation: the nodes of both maps, their MessagePack, the driver's name. */
struct sqrl_catalog_value {
    size_t kwargs_size, metadata_size;
    uint32_t kwargs_nodes;
    uint32_t bytes_at, driver_at; /* from the start of nodes */
    struct sqrl_node nodes[];
};

struct sqrl_catalog_item {
    uint32_t name;
    uint32_t next; /* of the same name, in order of addition */
    uint64_t version;
    struct sqrl_catalog_value *value;
};

struct sqrl_catalog {
    struct sqrl_catalog_name *name;
    struct sqrl_catalog_item *item;
    uint32_t names, name_capacity, items, item_capacity;
    struct sqrl_table name_table, item_table;
};

/* Fills the public view of an item. */
void sqrl_catalog_view(const struct sqrl_catalog *catalog, uint32_t item,
                       struct sqrl_catalog_source *out);

#endif
