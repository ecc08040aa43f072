/* catalog.h - the private half of the catalog floor: how sources are kept.
 *
 * The items of one name form a list. Two tables find names and (name, version). What is
 * removed leaves a gap (a name without items, an item without a value) until gaps are
 * more than half: then all is put together anew. Values are shared between catalogs and
 * never changed. */
#ifndef SQRL_CATALOG_PRIVATE_H
#define SQRL_CATALOG_PRIVATE_H

#include "catalog/table.h"
#include "sqrl/catalog.h"
#include "value/value.h"

enum { SQRL_CATALOG_MAX_DEPTH = 100, SQRL_CATALOG_MAX_SOURCES = 1 << 24 };

struct sqrl_catalog_name {
    char *text;
    uint64_t hash;
    uint32_t first, last; /* items, SQRL_TABLE_NONE: none */
    uint32_t latest;      /* the item with the highest version */
};

/* One allocation: the nodes of both maps, their MessagePack, the driver's name. */
struct sqrl_catalog_value {
    uint32_t refs; /* atomic */
    uint32_t kwargs_nodes;
    uint32_t bytes_at, driver_at; /* from the start of nodes */
    bool untrusted;               /* set before it is shared */
    size_t kwargs_size, metadata_size;
    struct sqrl_node nodes[];
};

struct sqrl_catalog_item {
    uint32_t name;
    uint32_t next; /* of the same name, in order of addition */
    uint64_t version;
    struct sqrl_catalog_value *value; /* NULL: removed */
};

struct sqrl_catalog {
    struct sqrl_catalog_name *name;
    struct sqrl_catalog_item *item;
    uint32_t names, name_capacity, items, item_capacity; /* with those removed */
    uint32_t live_names, live_items;
    struct sqrl_table name_table, item_table;
    bool distrusts; /* what is added */
};

/* Does a file system reach other machines, and know "public_only"? NULL: no. */
bool sqrl_catalog_reaches_out(const struct sqrl_fs_ops *fs);

/* --- finding (catalog.c); SQRL_TABLE_NONE: not there --- */
uint32_t sqrl_catalog_name_index(const struct sqrl_catalog *catalog, const char *text,
                                 uint64_t hash);
uint32_t sqrl_catalog_item_index(const struct sqrl_catalog *catalog, uint32_t name,
                                 uint64_t version);
uint64_t sqrl_catalog_item_hash(uint32_t name, uint64_t version);
/* The next item behind a cursor, in the order of sqrl_catalog_next. */
uint32_t sqrl_catalog_next_item(const struct sqrl_catalog *catalog, uint64_t *cursor);
/* Fills the public view of an item. */
void sqrl_catalog_view(const struct sqrl_catalog *catalog, uint32_t item,
                       struct sqrl_catalog_source *out);

/* --- values (source.c) --- */
SQRL_CHECK int sqrl_catalog_value_new(const char *driver, const uint8_t *kwargs,
                                      size_t kwargs_size, const uint8_t *metadata,
                                      size_t metadata_size,
                                      struct sqrl_catalog_value **out,
                                      struct sqrl_error *err);
void sqrl_catalog_value_unref(struct sqrl_catalog_value *value);
/* enum sqrl_catalog_difference; 0: in nothing. */
unsigned sqrl_catalog_value_differs(const struct sqrl_catalog_value *a,
                                    const struct sqrl_catalog_value *b);

/* --- the default catalog that a Python interpreter knows (ask_python.c) --- */
SQRL_CHECK int sqrl_catalog_ask_python(const char *python, struct sqrl_catalog **out,
                                       struct sqrl_error *err);

/* --- changing (edit.c) --- */
/* Room for so many names and items more. */
SQRL_CHECK int sqrl_catalog_reserve(struct sqrl_catalog *catalog, uint32_t names,
                                    uint32_t items, struct sqrl_error *err);
/* Takes over an item of another catalog by reference; an item that is there keeps its
 * place and gets the other's value. Behind sqrl_catalog_reserve. */
SQRL_CHECK int sqrl_catalog_take(struct sqrl_catalog *catalog,
                                 const struct sqrl_catalog *from, uint32_t item,
                                 struct sqrl_error *err);

#endif
