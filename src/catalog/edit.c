/* edit.c - adding, replacing and removing sources. */
#include <stdlib.h>

#include "catalog/catalog.h"
#include "sqrl/codec.h"

enum { MAX_NAME_BYTES = 4096, FIRST_CAPACITY = 16 };

static int grow(void **array, uint32_t *capacity, uint64_t wanted, size_t size,
                const char *what, struct sqrl_error *err) {
    if (wanted <= *capacity)
        return SQRL_OK;
    uint64_t larger = SQRL_MAX(2 * (uint64_t)*capacity, (uint64_t)FIRST_CAPACITY);
    larger = SQRL_MAX(larger, wanted);
    void *more = sqrl_realloc(*array, larger * size, what, err);
    if (!more)
        return SQRL_E_NO_MEMORY;
    *array = more;
    *capacity = (uint32_t)larger;
    return SQRL_OK;
}

int sqrl_catalog_reserve(struct sqrl_catalog *c, uint32_t names, uint32_t items,
                         struct sqrl_error *err) {
    if (items > SQRL_CATALOG_MAX_SOURCES - c->items)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a catalog holds at most %d sources",
                              SQRL_CATALOG_MAX_SOURCES);
    int code = grow((void **)&c->name, &c->name_capacity, (uint64_t)c->names + names,
                    sizeof *c->name, "names", err);
    if (!code)
        code = grow((void **)&c->item, &c->item_capacity, (uint64_t)c->items + items,
                    sizeof *c->item, "sources", err);
    if (!code)
        code = sqrl_table_reserve(&c->name_table, names, err);
    return code ? code : sqrl_table_reserve(&c->item_table, items, err);
}

static int check_text(const char *text, const char *what, struct sqrl_error *err) {
    size_t size = text ? strlen(text) : 0;
    if (!size)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "%s is empty: it has at least one letter", what);
    if (size > MAX_NAME_BYTES)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "%s has %zu bytes; shorten it to at most %d", what, size,
                              MAX_NAME_BYTES);
    if (!sqrl_utf8_valid((const uint8_t *)text, size, NULL))
        return sqrl_error_set(err, SQRL_E_INVALID, "%s is not UTF-8", what);
    return SQRL_OK;
}

/* The name's index; a new one is added. */
static uint32_t intern(struct sqrl_catalog *c, const char *text, uint64_t hash,
                       struct sqrl_error *err) {
    uint32_t name = sqrl_catalog_name_index(c, text, hash);
    if (name != SQRL_TABLE_NONE)
        return name;
    struct sqrl_catalog_name *added = &c->name[c->names];
    *added = (struct sqrl_catalog_name){.text = sqrl_strdup(text, err),
                                        .hash = hash,
                                        .first = SQRL_TABLE_NONE,
                                        .last = SQRL_TABLE_NONE,
                                        .latest = SQRL_TABLE_NONE};
    if (!added->text)
        return SQRL_TABLE_NONE;
    sqrl_table_add(&c->name_table, hash, c->names);
    c->live_names++;
    return c->names++;
}

/* Takes over the reference. */
static void link_item(struct sqrl_catalog *c, uint32_t name, uint64_t version,
                      struct sqrl_catalog_value *value) {
    struct sqrl_catalog_name *n = &c->name[name];
    uint32_t index = c->items++;
    c->item[index] = (struct sqrl_catalog_item){name, SQRL_TABLE_NONE, version, value};
    if (n->last == SQRL_TABLE_NONE)
        n->first = index;
    else
        c->item[n->last].next = index;
    n->last = index;
    if (n->latest == SQRL_TABLE_NONE || c->item[n->latest].version < version)
        n->latest = index;
    c->live_items++;
    sqrl_table_add(&c->item_table, sqrl_catalog_item_hash(name, version), index);
}

/* Puts a value (its reference is taken over) under a name and version. */
static int put(struct sqrl_catalog *c, const char *text, uint64_t hash, uint64_t version,
               struct sqrl_catalog_value *value, struct sqrl_error *err) {
    uint32_t name = intern(c, text, hash, err);
    if (name == SQRL_TABLE_NONE) {
        sqrl_catalog_value_unref(value);
        return SQRL_E_NO_MEMORY;
    }
    uint32_t item = sqrl_catalog_item_index(c, name, version);
    if (item == SQRL_TABLE_NONE) {
        link_item(c, name, version, value);
        return SQRL_OK;
    }
    sqrl_catalog_value_unref(c->item[item].value);
    c->item[item].value = value;
    return SQRL_OK;
}

int sqrl_catalog_take(struct sqrl_catalog *c, const struct sqrl_catalog *from,
                      uint32_t item, struct sqrl_error *err) {
    const struct sqrl_catalog_item *taken = &from->item[item];
    const struct sqrl_catalog_name *name = &from->name[taken->name];
    __atomic_fetch_add(&taken->value->refs, 1, __ATOMIC_RELAXED);
    return put(c, name->text, name->hash, taken->version, taken->value, err);
}

/* The version to write to: as given, else (0) one above the latest. */
static int choose_version(const struct sqrl_catalog *c, const char *text, uint64_t hash,
                          bool replace, uint64_t *version, struct sqrl_error *err) {
    uint32_t name = sqrl_catalog_name_index(c, text, hash);
    uint64_t latest = name == SQRL_TABLE_NONE ? 0 : c->item[c->name[name].latest].version;
    if (!*version)
        *version = latest + 1;
    if (*version > INT64_MAX)
        return sqrl_error_set(err, SQRL_E_LIMIT, "versions of sources end at 2^63 - 1");
    if (!replace && name != SQRL_TABLE_NONE &&
        sqrl_catalog_item_index(c, name, *version) != SQRL_TABLE_NONE)
        return sqrl_error_set(err, SQRL_E_EXISTS,
                              "the catalog has version %llu of source \"%.80s\" already",
                              (unsigned long long)*version, text);
    return SQRL_OK;
}

void sqrl_catalog_distrust(struct sqrl_catalog *catalog, bool on) {
    catalog->distrusts = on;
}

/* A source that is set again is no more trusted than before. */
static bool is_untrusted(const struct sqrl_catalog *c, const char *text, uint64_t hash,
                         uint64_t version) {
    uint32_t name = sqrl_catalog_name_index(c, text, hash);
    uint32_t item = name == SQRL_TABLE_NONE ? SQRL_TABLE_NONE
                                            : sqrl_catalog_item_index(c, name, version);
    return c->distrusts || (item != SQRL_TABLE_NONE && c->item[item].value->untrusted);
}

static int write_source(struct sqrl_catalog *c, const char *name, uint64_t version,
                        bool replace, const char *driver_name, const uint8_t *kwargs,
                        size_t kwargs_size, const uint8_t *metadata, size_t metadata_size,
                        struct sqrl_error *err) {
    struct sqrl_catalog_value *value = NULL;
    int code = check_text(name, "the name of a source", err);
    if (!code)
        code = check_text(driver_name, "the name of a driver", err);
    if (code)
        return code;
    uint64_t hash = sqrl_xxh3(name, strlen(name));
    code = choose_version(c, name, hash, replace, &version, err);
    if (!code)
        code = sqrl_catalog_reserve(c, 1, 1, err);
    if (!code && (code = sqrl_catalog_value_new(driver_name, kwargs, kwargs_size,
                                                metadata, metadata_size, &value, err)))
        sqrl_error_at(err, code, "source \"%.80s\"", name);
    if (code)
        return code;
    value->untrusted = is_untrusted(c, name, hash, version);
    return put(c, name, hash, version, value, err);
}

int sqrl_catalog_add(struct sqrl_catalog *catalog, const char *name, uint64_t version,
                     const char *driver_name, const uint8_t *kwargs, size_t kwargs_size,
                     const uint8_t *metadata, size_t metadata_size,
                     struct sqrl_error *err) {
    return write_source(catalog, name, version, false, driver_name, kwargs, kwargs_size,
                        metadata, metadata_size, err);
}

int sqrl_catalog_set(struct sqrl_catalog *catalog, const char *name, uint64_t version,
                     const char *driver_name, const uint8_t *kwargs, size_t kwargs_size,
                     const uint8_t *metadata, size_t metadata_size,
                     struct sqrl_error *err) {
    return write_source(catalog, name, version, true, driver_name, kwargs, kwargs_size,
                        metadata, metadata_size, err);
}

/* --- removing --- */
static void drop_value(struct sqrl_catalog *c, uint32_t item) {
    struct sqrl_catalog_item *i = &c->item[item];
    sqrl_table_remove(&c->item_table, sqrl_catalog_item_hash(i->name, i->version), item);
    sqrl_catalog_value_unref(i->value);
    i->value = NULL;
    c->live_items--;
}

static void drop_name(struct sqrl_catalog *c, uint32_t name) {
    struct sqrl_catalog_name *n = &c->name[name];
    sqrl_table_remove(&c->name_table, n->hash, name);
    free(n->text);
    *n = (struct sqrl_catalog_name){
        .first = SQRL_TABLE_NONE, .last = SQRL_TABLE_NONE, .latest = SQRL_TABLE_NONE};
    c->live_names--;
}

static void unlink_item(struct sqrl_catalog *c, uint32_t item) {
    struct sqrl_catalog_name *n = &c->name[c->item[item].name];
    uint32_t before = SQRL_TABLE_NONE, latest = SQRL_TABLE_NONE;
    for (uint32_t i = n->first; i != SQRL_TABLE_NONE; i = c->item[i].next) {
        if (c->item[i].next == item)
            before = i;
        if (i != item &&
            (latest == SQRL_TABLE_NONE || c->item[i].version > c->item[latest].version))
            latest = i;
    }
    if (before == SQRL_TABLE_NONE)
        n->first = c->item[item].next;
    else
        c->item[before].next = c->item[item].next;
    if (n->last == item)
        n->last = before;
    n->latest = latest;
}

/* Without gaps, when they are the greater part; it is no harm if there is no memory. */
static void compact(struct sqrl_catalog *c) {
    struct sqrl_catalog *copy = NULL;
    if (c->items < 64 || c->live_items > c->items / 2 ||
        sqrl_catalog_copy(c, &copy, NULL) != SQRL_OK)
        return;
    struct sqrl_catalog old = *c;
    *c = *copy;
    *copy = old;
    sqrl_catalog_free(copy);
}

int sqrl_catalog_remove(struct sqrl_catalog *catalog, const char *name, int64_t version,
                        struct sqrl_error *err) {
    struct sqrl_catalog_source found;
    int code = sqrl_catalog_find(catalog, name, version, &found, err);
    if (code)
        return code;
    uint32_t index =
        sqrl_catalog_name_index(catalog, name, sqrl_xxh3(name, strlen(name)));
    if (version == 0) {
        for (uint32_t i = catalog->name[index].first; i != SQRL_TABLE_NONE;
             i = catalog->item[i].next)
            drop_value(catalog, i);
        drop_name(catalog, index);
    } else {
        uint32_t item = sqrl_catalog_item_index(catalog, index, found.version);
        unlink_item(catalog, item);
        drop_value(catalog, item);
        if (catalog->name[index].first == SQRL_TABLE_NONE)
            drop_name(catalog, index);
    }
    compact(catalog);
    return SQRL_OK;
}
