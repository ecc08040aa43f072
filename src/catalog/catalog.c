/* catalog.c - names, versions and values in memory. */
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog.h"
#include "sqrl/codec.h"

enum {
    MAX_SOURCES = 1 << 24,
    MAX_NAME_BYTES = 4096,
    MAX_VALUE_BYTES = 64 << 20,
    MAX_DEPTH = 100
};

int sqrl_catalog_new(struct sqrl_catalog **out, struct sqrl_error *err) {
    *out = sqrl_calloc(1, sizeof **out, "a catalog", err);
    return *out ? SQRL_OK : SQRL_E_NO_MEMORY;
}

void sqrl_catalog_free(struct sqrl_catalog *catalog) {
    if (!catalog)
        return;
    for (uint32_t i = 0; i < catalog->items; i++)
        free(catalog->item[i].value);
    for (uint32_t i = 0; i < catalog->names; i++)
        free(catalog->name[i].text);
    free(catalog->item);
    free(catalog->name);
    sqrl_table_reset(&catalog->name_table);
    sqrl_table_reset(&catalog->item_table);
    free(catalog);
}

/* --- finding --- */
struct wanted {
    const struct sqrl_catalog *catalog;
    const char *text;
    uint32_t name;
    uint64_t version;
};

static bool same_name(const void *arg, uint32_t index) {
    const struct wanted *wanted = arg;
    return strcmp(wanted->catalog->name[index].text, wanted->text) == 0;
}

static bool same_item(const void *arg, uint32_t index) {
    const struct wanted *wanted = arg;
    const struct sqrl_catalog_item *item = &wanted->catalog->item[index];
    return item->name == wanted->name && item->version == wanted->version;
}

static uint64_t item_hash(uint32_t name, uint64_t version) {
    return sqrl_mix64(sqrl_mix64(name) ^ version);
}

static uint32_t find_name(const struct sqrl_catalog *catalog, const char *text) {
    struct wanted wanted = {.catalog = catalog, .text = text};
    return sqrl_table_find(&catalog->name_table, sqrl_xxh3(text, strlen(text)), same_name,
                           &wanted);
}

static uint32_t find_item(const struct sqrl_catalog *catalog, uint32_t name,
                          uint64_t version) {
    struct wanted wanted = {.catalog = catalog, .name = name, .version = version};
    return sqrl_table_find(&catalog->item_table, item_hash(name, version), same_item,
                           &wanted);
}

static int no_name(const struct sqrl_catalog *catalog, const char *text,
                   struct sqrl_error *err) {
    if (!err)
        return SQRL_E_NOT_FOUND;
    const char *nearest = NULL;
    const char **names = sqrl_calloc(catalog->names + 1, sizeof *names, "names", NULL);
    for (uint32_t i = 0; names && i < catalog->names; i++)
        names[i] = catalog->name[i].text;
    if (names)
        nearest = sqrl_nearest(text, names, catalog->names);
    if (nearest)
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no source \"%.80s\"; did you mean \"%.80s\"?", text,
                       nearest);
    else if (!catalog->names)
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no source \"%.80s\": the catalog is empty", text);
    else
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no source \"%.80s\" among the %u of this catalog; the "
                       "first is \"%.80s\"",
                       text, catalog->names, catalog->name[0].text);
    free(names);
    return SQRL_E_NOT_FOUND;
}

static int no_version(const struct sqrl_catalog *catalog, uint32_t name, int64_t version,
                      struct sqrl_error *err) {
    char text[160] = "";
    size_t at = 0;
    uint32_t i = catalog->name[name].first;
    for (; err && i != SQRL_TABLE_NONE && at < sizeof text - 24;
         i = catalog->item[i].next)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%llu", at ? ", " : "",
                               (unsigned long long)catalog->item[i].version);
    return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                          "source \"%.80s\" has no version %lld; it has %s%s",
                          catalog->name[name].text, (long long)version, text,
                          i != SQRL_TABLE_NONE ? " ..." : "");
}

void sqrl_catalog_view(const struct sqrl_catalog *catalog, uint32_t index,
                       struct sqrl_catalog_source *out) {
    const struct sqrl_catalog_item *item = &catalog->item[index];
    const struct sqrl_catalog_value *value = item->value;
    const char *base = (const char *)value->nodes;
    *out = (struct sqrl_catalog_source){
        .name = catalog->name[item->name].text,
        .version = item->version,
        .driver_name = base + value->driver_at,
        .kwargs = value->nodes,
        .metadata = value->nodes + value->kwargs_nodes,
        .bytes = (const uint8_t *)base + value->bytes_at,
        .kwargs_size = value->kwargs_size,
        .metadata_size = value->metadata_size,
    };
}

size_t sqrl_catalog_count(const struct sqrl_catalog *catalog) {
    return catalog->items;
}

int sqrl_catalog_at(const struct sqrl_catalog *catalog, size_t i,
                    struct sqrl_catalog_source *out, struct sqrl_error *err) {
    *out = (struct sqrl_catalog_source){0};
    if (i >= catalog->items)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND, "the catalog has %u sources",
                              catalog->items);
    sqrl_catalog_view(catalog, (uint32_t)i, out);
    return SQRL_OK;
}

int sqrl_catalog_find(const struct sqrl_catalog *catalog, const char *name,
                      int64_t version, struct sqrl_catalog_source *out,
                      struct sqrl_error *err) {
    *out = (struct sqrl_catalog_source){0};
    uint32_t found = find_name(catalog, name);
    if (found == SQRL_TABLE_NONE)
        return no_name(catalog, name, err);
    uint32_t item = catalog->name[found].latest;
    if (version != 0 && version != -1)
        item =
            version < 0 ? SQRL_TABLE_NONE : find_item(catalog, found, (uint64_t)version);
    if (item == SQRL_TABLE_NONE)
        return no_version(catalog, found, version, err);
    sqrl_catalog_view(catalog, item, out);
    return SQRL_OK;
}

/* --- adding --- */
/* One MessagePack map with texts as keys, decoded with offsets from the start of
 * `bytes`. */
static int decode_map(struct sqrl_tape *tape, const uint8_t *bytes, size_t from,
                      size_t end, const char *what, struct sqrl_error *err) {
    static const struct sqrl_limits limits = {.max_depth = MAX_DEPTH};
    size_t offset = from;
    int code = sqrl_msgpack_decode(tape, bytes, end, &offset, &limits, err);
    if (code)
        return sqrl_error_at(err, code, "%s", what);
    if (offset != end || tape->nodes[0].type != SQRL_MAP)
        return sqrl_error_set(err, SQRL_E_TYPE, "%s is not one map", what);
    for (uint32_t i = 1; i < tape->count; i = sqrl_node_next(tape->nodes, i + 1))
        if (tape->nodes[i].type != SQRL_STRING)
            return sqrl_error_set(err, SQRL_E_TYPE, "a key of %s is not a text", what);
    return SQRL_OK;
}

/* Puts both tapes, the bytes and the driver's name into one allocation. */
static struct sqrl_catalog_value *join_value(const struct sqrl_tape *kwargs,
                                             const struct sqrl_tape *metadata,
                                             const struct sqrl_bytes *bytes,
                                             const char *driver, struct sqrl_error *err) {
    size_t nodes = (size_t)kwargs->count + metadata->count;
    size_t bytes_at = nodes * sizeof(struct sqrl_node), driver_size = strlen(driver) + 1;
    size_t driver_at = bytes_at + bytes->size;
    if (driver_at > UINT32_MAX) {
        sqrl_error_set(err, SQRL_E_LIMIT, "the arguments and metadata are too large");
        return NULL;
    }
    struct sqrl_catalog_value *value =
        sqrl_malloc(sizeof *value + driver_at + driver_size, "a source", err);
    if (!value)
        return NULL;
    *value = (struct sqrl_catalog_value){.kwargs_nodes = kwargs->count,
                                         .bytes_at = (uint32_t)bytes_at,
                                         .driver_at = (uint32_t)driver_at};
    memcpy(value->nodes, kwargs->nodes, kwargs->count * sizeof *value->nodes);
    memcpy(value->nodes + kwargs->count, metadata->nodes,
           metadata->count * sizeof *value->nodes);
    memcpy((uint8_t *)value->nodes + bytes_at, bytes->data, bytes->size);
    memcpy((uint8_t *)value->nodes + driver_at, driver, driver_size);
    return value;
}

static int make_value(const char *driver, const uint8_t *kwargs, size_t kwargs_size,
                      const uint8_t *metadata, size_t metadata_size,
                      struct sqrl_catalog_value **out, struct sqrl_error *err) {
    static const uint8_t empty_map[] = {0x80};
    struct sqrl_tape first = {0}, second = {0};
    struct sqrl_bytes bytes = {0};
    int code;
    if (!kwargs) {
        kwargs = empty_map;
        kwargs_size = sizeof empty_map;
    }
    if (!metadata) {
        metadata = empty_map;
        metadata_size = sizeof empty_map;
    }
    if (kwargs_size > MAX_VALUE_BYTES || metadata_size > MAX_VALUE_BYTES)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "more than %d bytes of arguments or "
                              "metadata",
                              MAX_VALUE_BYTES);
    code = sqrl_bytes_append(&bytes, kwargs, kwargs_size, err);
    if (!code)
        code = sqrl_bytes_append(&bytes, metadata, metadata_size, err);
    if (!code)
        code = decode_map(&first, bytes.data, 0, kwargs_size, "driver_kwargs", err);
    if (!code)
        code = decode_map(&second, bytes.data, kwargs_size, bytes.size, "metadata", err);
    if (!code && !(*out = join_value(&first, &second, &bytes, driver, err)))
        code = SQRL_E_NO_MEMORY;
    if (!code) {
        (*out)->kwargs_size = kwargs_size;
        (*out)->metadata_size = metadata_size;
    }
    sqrl_bytes_reset(&bytes);
    sqrl_tape_reset(&first);
    sqrl_tape_reset(&second);
    return code;
}

/* Room for one more name and one more item, so that nothing fails behind it. */
static int reserve(struct sqrl_catalog *c, struct sqrl_error *err) {
    if (c->items == MAX_SOURCES)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a catalog holds at most %d sources",
                              MAX_SOURCES);
    if (c->names == c->name_capacity) {
        uint32_t capacity = c->name_capacity ? 2 * c->name_capacity : 16;
        struct sqrl_catalog_name *more =
            sqrl_realloc(c->name, capacity * sizeof *more, "names", err);
        if (!more)
            return SQRL_E_NO_MEMORY;
        c->name = more;
        c->name_capacity = capacity;
    }
    if (c->items == c->item_capacity) {
        uint32_t capacity = c->item_capacity ? 2 * c->item_capacity : 16;
        struct sqrl_catalog_item *more =
            sqrl_realloc(c->item, capacity * sizeof *more, "sources", err);
        if (!more)
            return SQRL_E_NO_MEMORY;
        c->item = more;
        c->item_capacity = capacity;
    }
    int code = sqrl_table_reserve(&c->name_table, err);
    return code ? code : sqrl_table_reserve(&c->item_table, err);
}

static int check_text(const char *text, const char *what, struct sqrl_error *err) {
    size_t size = text ? strlen(text) : 0;
    if (!size || size > MAX_NAME_BYTES)
        return sqrl_error_set(err, SQRL_E_INVALID, "%s has 1 to %d bytes", what,
                              MAX_NAME_BYTES);
    if (!sqrl_utf8_valid((const uint8_t *)text, size, NULL))
        return sqrl_error_set(err, SQRL_E_INVALID, "%s is not UTF-8", what);
    return SQRL_OK;
}

/* The name's index; a new one is added behind reserve(). */
static uint32_t intern(struct sqrl_catalog *c, const char *text, struct sqrl_error *err) {
    uint32_t name = find_name(c, text);
    if (name != SQRL_TABLE_NONE)
        return name;
    struct sqrl_catalog_name *added = &c->name[c->names];
    *added = (struct sqrl_catalog_name){.text = sqrl_strdup(text, err),
                                        .hash = sqrl_xxh3(text, strlen(text)),
                                        .first = SQRL_TABLE_NONE,
                                        .last = SQRL_TABLE_NONE,
                                        .latest = SQRL_TABLE_NONE};
    if (!added->text)
        return SQRL_TABLE_NONE;
    sqrl_table_add(&c->name_table, added->hash, c->names);
    return c->names++;
}

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
    sqrl_table_add(&c->item_table, item_hash(name, version), index);
}

/* The version to add: as given where it is free, else (0) one above the latest. */
static int choose_version(const struct sqrl_catalog *c, const char *text,
                          uint64_t version, uint64_t *out, struct sqrl_error *err) {
    uint32_t name = find_name(c, text);
    uint64_t latest = name == SQRL_TABLE_NONE ? 0 : c->item[c->name[name].latest].version;
    *out = version ? version : latest + 1;
    if (*out > INT64_MAX)
        return sqrl_error_set(err, SQRL_E_LIMIT, "versions of sources end at 2^63 - 1");
    if (name != SQRL_TABLE_NONE && find_item(c, name, *out) != SQRL_TABLE_NONE)
        return sqrl_error_set(err, SQRL_E_EXISTS,
                              "the catalog has version %llu of source \"%.80s\" already",
                              (unsigned long long)*out, text);
    return SQRL_OK;
}

int sqrl_catalog_add(struct sqrl_catalog *catalog, const char *name, uint64_t version,
                     const char *driver_name, const uint8_t *kwargs, size_t kwargs_size,
                     const uint8_t *metadata, size_t metadata_size,
                     struct sqrl_error *err) {
    struct sqrl_catalog_value *value = NULL;
    int code = check_text(name, "the name of a source", err);
    if (!code)
        code = check_text(driver_name, "the name of a driver", err);
    if (!code)
        code = choose_version(catalog, name, version, &version, err);
    if (!code)
        code = reserve(catalog, err);
    if (!code && (code = make_value(driver_name, kwargs, kwargs_size, metadata,
                                    metadata_size, &value, err)))
        sqrl_error_at(err, code, "source \"%.80s\"", name);
    if (code)
        return code;
    uint32_t index = intern(catalog, name, err);
    if (index == SQRL_TABLE_NONE) {
        free(value);
        return SQRL_E_NO_MEMORY;
    }
    link_item(catalog, index, version, value);
    return SQRL_OK;
}
