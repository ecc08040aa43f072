/* catalog.c - names and versions in memory: making, finding, walking. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog.h"
#include "sqrl/codec.h"

int sqrl_catalog_new(struct sqrl_catalog **out, struct sqrl_error *err) {
    *out = sqrl_calloc(1, sizeof **out, "a catalog", err);
    return *out ? SQRL_OK : SQRL_E_NO_MEMORY;
}

void sqrl_catalog_free(struct sqrl_catalog *catalog) {
    if (!catalog)
        return;
    for (uint32_t i = 0; i < catalog->items; i++)
        sqrl_catalog_value_unref(catalog->item[i].value);
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

uint64_t sqrl_catalog_item_hash(uint32_t name, uint64_t version) {
    return sqrl_mix64(sqrl_mix64(name) ^ version);
}

uint32_t sqrl_catalog_name_index(const struct sqrl_catalog *catalog, const char *text,
                                 uint64_t hash) {
    struct wanted wanted = {.catalog = catalog, .text = text};
    return sqrl_table_find(&catalog->name_table, hash, same_name, &wanted);
}

uint32_t sqrl_catalog_item_index(const struct sqrl_catalog *catalog, uint32_t name,
                                 uint64_t version) {
    struct wanted wanted = {.catalog = catalog, .name = name, .version = version};
    return sqrl_table_find(&catalog->item_table, sqrl_catalog_item_hash(name, version),
                           same_item, &wanted);
}

/* --- what is said of what is not there --- */
enum { NEAR = 3, SHORTEST = 3 };

struct near {
    const char *name[NEAR];
    size_t count;
};

static void add_near(struct near *near, const char *name) {
    for (size_t i = 0; i < near->count; i++)
        if (near->name[i] == name)
            return;
    if (near->count < NEAR)
        near->name[near->count++] = name;
}

static size_t common_prefix(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] && tolower((unsigned char)a[i]) == tolower((unsigned char)b[i]))
        i++;
    return i;
}

/* The name with the fewest other letters, names that hold it or that it holds, and names
 * that begin alike. */
static void find_near(const struct sqrl_catalog *catalog, const char *text,
                      struct near *near) {
    size_t size = strlen(text), count = 0;
    const char **names =
        sqrl_calloc(catalog->live_names + 1, sizeof *names, "names", NULL);
    if (!names)
        return;
    for (uint32_t i = 0; i < catalog->names; i++)
        if (catalog->name[i].text)
            names[count++] = catalog->name[i].text;
    const char *nearest = sqrl_nearest(text, names, count);
    if (nearest)
        add_near(near, nearest);
    for (size_t i = 0; i < count && size >= SHORTEST && near->count < NEAR; i++)
        if (strcasestr(names[i], text) ||
            (strlen(names[i]) >= SHORTEST && strcasestr(text, names[i])))
            add_near(near, names[i]);
    for (size_t i = 0; i < count && size > SHORTEST && near->count < NEAR; i++)
        if (2 * common_prefix(names[i], text) > size)
            add_near(near, names[i]);
    free(names);
}

static int no_name(const struct sqrl_catalog *catalog, const char *text,
                   struct sqrl_error *err) {
    if (!err)
        return SQRL_E_NOT_FOUND;
    struct near near = {.count = 0};
    find_near(catalog, text, &near);
    const char *const *name = near.name;
    if (near.count == 3)
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no source \"%.80s\"; did you mean \"%.80s\", "
                       "\"%.80s\" or \"%.80s\"?",
                       text, name[0], name[1], name[2]);
    else if (near.count)
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no source \"%.80s\"; did you mean \"%.80s\"%s%.80s%s?",
                       text, name[0], near.count > 1 ? " or \"" : "",
                       near.count > 1 ? name[1] : "", near.count > 1 ? "\"" : "");
    else if (!catalog->live_names)
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no source \"%.80s\": the catalog is empty", text);
    else {
        uint64_t cursor = 0;
        uint32_t first = sqrl_catalog_next_item(catalog, &cursor);
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no source \"%.80s\" among the %u of this catalog; the "
                       "first is \"%.80s\"",
                       text, catalog->live_names,
                       catalog->name[catalog->item[first].name].text);
    }
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

int sqrl_catalog_find(const struct sqrl_catalog *catalog, const char *name,
                      int64_t version, struct sqrl_catalog_source *out,
                      struct sqrl_error *err) {
    *out = (struct sqrl_catalog_source){0};
    uint32_t found =
        sqrl_catalog_name_index(catalog, name, sqrl_xxh3(name, strlen(name)));
    if (found == SQRL_TABLE_NONE)
        return no_name(catalog, name, err);
    uint32_t item = catalog->name[found].latest;
    if (version != 0 && version != -1)
        item = version < 0 ? SQRL_TABLE_NONE
                           : sqrl_catalog_item_index(catalog, found, (uint64_t)version);
    if (item == SQRL_TABLE_NONE)
        return no_version(catalog, found, version, err);
    sqrl_catalog_view(catalog, item, out);
    return SQRL_OK;
}

/* --- walking --- */
size_t sqrl_catalog_count(const struct sqrl_catalog *catalog) {
    return catalog->live_items;
}

size_t sqrl_catalog_names(const struct sqrl_catalog *catalog) {
    return catalog->live_names;
}

/* A cursor is the name that comes next, and in its upper half the item of it plus one; 0
 * there: the first. */
uint32_t sqrl_catalog_next_item(const struct sqrl_catalog *catalog, uint64_t *cursor) {
    uint32_t name = (uint32_t)*cursor, item = (uint32_t)(*cursor >> 32);
    if (!item) {
        while (name < catalog->names && catalog->name[name].first == SQRL_TABLE_NONE)
            name++;
        if (name >= catalog->names)
            return SQRL_TABLE_NONE;
        item = catalog->name[name].first + 1;
    }
    item--;
    uint32_t next = catalog->item[item].next;
    *cursor =
        next == SQRL_TABLE_NONE ? (uint64_t)name + 1 : ((uint64_t)next + 1) << 32 | name;
    return item;
}

bool sqrl_catalog_next(const struct sqrl_catalog *catalog, uint64_t *cursor,
                       struct sqrl_catalog_source *out) {
    uint32_t item = sqrl_catalog_next_item(catalog, cursor);
    *out = (struct sqrl_catalog_source){0};
    if (item == SQRL_TABLE_NONE)
        return false;
    sqrl_catalog_view(catalog, item, out);
    return true;
}

int sqrl_catalog_seek(const struct sqrl_catalog *catalog, const char *name,
                      uint64_t *cursor, struct sqrl_error *err) {
    uint32_t found =
        sqrl_catalog_name_index(catalog, name, sqrl_xxh3(name, strlen(name)));
    *cursor = found;
    return found == SQRL_TABLE_NONE ? no_name(catalog, name, err) : SQRL_OK;
}
