/* source.c - what a source says: a driver's name, arguments and metadata, made once and
 * shared from then on. */
#include <stdlib.h>

#include "catalog/catalog.h"
#include "catalog/scalar.h"
#include "catalog/yaml.h"

enum { MAX_VALUE_BYTES = 64 << 20 };

/* One MessagePack map with texts as keys, decoded with offsets from the start of
 * `bytes`. */
static int decode_map(struct sqrl_tape *tape, const uint8_t *bytes, size_t from,
                      size_t end, const char *what, struct sqrl_error *err) {
    static const struct sqrl_limits limits = {.max_depth = SQRL_CATALOG_MAX_DEPTH};
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
    *value = (struct sqrl_catalog_value){.refs = 1,
                                         .kwargs_nodes = kwargs->count,
                                         .bytes_at = (uint32_t)bytes_at,
                                         .driver_at = (uint32_t)driver_at};
    memcpy(value->nodes, kwargs->nodes, kwargs->count * sizeof *value->nodes);
    memcpy(value->nodes + kwargs->count, metadata->nodes,
           metadata->count * sizeof *value->nodes);
    memcpy((uint8_t *)value->nodes + bytes_at, bytes->data, bytes->size);
    memcpy((uint8_t *)value->nodes + driver_at, driver, driver_size);
    return value;
}

int sqrl_catalog_value_new(const char *driver, const uint8_t *kwargs, size_t kwargs_size,
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

void sqrl_catalog_value_unref(struct sqrl_catalog_value *value) {
    if (value && __atomic_fetch_sub(&value->refs, 1, __ATOMIC_ACQ_REL) == 1)
        free(value);
}

/* --- equality --- */
struct tree {
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
};

static bool same(struct tree a, uint32_t i, struct tree b, uint32_t k);

/* The keys of a map by a table: its pairs stand in another order than the other's. */
static bool same_shuffled(struct tree a, uint32_t i, struct tree b, uint32_t k) {
    struct sqrl_keys keys = {.nodes = b.nodes, .bytes = b.bytes};
    uint32_t end = sqrl_node_next(b.nodes, k);
    bool equal = true;
    for (uint32_t key = k + 1; key < end && equal;
         key = sqrl_node_next(b.nodes, key + 1)) {
        uint32_t before;
        equal = sqrl_keys_add(&keys, key, &before, NULL) == SQRL_OK;
    }
    end = sqrl_node_next(a.nodes, i);
    for (uint32_t key = i + 1; key < end && equal;
         key = sqrl_node_next(a.nodes, key + 1)) {
        uint32_t found = sqrl_keys_find(&keys, a.nodes, key, a.bytes);
        equal = found != SQRL_TABLE_NONE && same(a, key + 1, b, found + 1);
    }
    sqrl_keys_reset(&keys);
    return equal;
}

/* Maps are equal in any order of their keys; mostly it is the same. */
static bool same_map(struct tree a, uint32_t i, struct tree b, uint32_t k) {
    uint32_t end = sqrl_node_next(a.nodes, i), x = i + 1, y = k + 1;
    while (x < end && sqrl_scalar_same(a.nodes, x, a.bytes, b.nodes, y, b.bytes)) {
        if (!same(a, x + 1, b, y + 1))
            return false;
        x = sqrl_node_next(a.nodes, x + 1);
        y = sqrl_node_next(b.nodes, y + 1);
    }
    return x >= end || same_shuffled(a, i, b, k);
}

/* Arrays and the like: as MessagePack has them. */
static bool same_encoded(struct tree a, uint32_t i, struct tree b, uint32_t k) {
    struct sqrl_bytes first = {0}, second = {0};
    bool equal = sqrl_msgpack_encode(&first, a.nodes, i, a.bytes, NULL) == SQRL_OK &&
                 sqrl_msgpack_encode(&second, b.nodes, k, b.bytes, NULL) == SQRL_OK &&
                 first.size == second.size &&
                 memcmp(first.data, second.data, first.size) == 0;
    sqrl_bytes_reset(&first);
    sqrl_bytes_reset(&second);
    return equal;
}

static bool is_time(const struct sqrl_node *n) {
    return n->type == SQRL_EXT && n->aux == SQRL_CATALOG_TIME_EXT + 128;
}

/* However they are written; what is no time is compared as it is. */
static bool same_time(struct tree a, uint32_t i, struct tree b, uint32_t k) {
    char first[SQRL_CATALOG_TIME_BYTES], second[SQRL_CATALOG_TIME_BYTES];
    const struct sqrl_node *x = &a.nodes[i], *y = &b.nodes[k];
    size_t n = sqrl_catalog_time((const char *)a.bytes + x->v.offset, x->size, first);
    size_t m = sqrl_catalog_time((const char *)b.bytes + y->v.offset, y->size, second);
    if (!n || !m)
        return sqrl_scalar_same(a.nodes, i, a.bytes, b.nodes, k, b.bytes);
    return n == m && memcmp(first, second, n) == 0;
}

/* No deeper than SQRL_CATALOG_MAX_DEPTH. */
static bool same(struct tree a, uint32_t i, struct tree b, uint32_t k) {
    const struct sqrl_node *x = &a.nodes[i], *y = &b.nodes[k];
    if (is_time(x) && is_time(y))
        return same_time(a, i, b, k);
    if (x->type < SQRL_ARRAY || y->type < SQRL_ARRAY)
        return sqrl_scalar_same(a.nodes, i, a.bytes, b.nodes, k, b.bytes);
    if (x->type != y->type || x->size != y->size)
        return false;
    if (x->type == SQRL_MAP)
        return same_map(a, i, b, k);
    if (x->type != SQRL_ARRAY)
        return same_encoded(a, i, b, k);
    uint32_t end = sqrl_node_next(a.nodes, i);
    for (i++, k++; i < end;
         i = sqrl_node_next(a.nodes, i), k = sqrl_node_next(b.nodes, k))
        if (!same(a, i, b, k))
            return false;
    return true;
}

/* One of the two maps of a source: its nodes, and the same as MessagePack. */
struct part {
    struct tree tree;
    const uint8_t *packed;
    size_t size;
};

static bool same_part(struct part a, struct part b) {
    return (a.size == b.size && memcmp(a.packed, b.packed, a.size) == 0) ||
           same(a.tree, 0, b.tree, 0);
}

static struct part kwargs_of(const struct sqrl_catalog_source *s) {
    return (struct part){{s->kwargs, s->bytes}, s->bytes, s->kwargs_size};
}

static struct part metadata_of(const struct sqrl_catalog_source *s) {
    return (struct part){
        {s->metadata, s->bytes}, s->bytes + s->kwargs_size, s->metadata_size};
}

unsigned sqrl_catalog_source_differs(const struct sqrl_catalog_source *a,
                                     const struct sqrl_catalog_source *b) {
    return (strcmp(a->driver_name, b->driver_name) ? SQRL_DIFFERS_DRIVER : 0u) |
           (same_part(kwargs_of(a), kwargs_of(b)) ? 0u : SQRL_DIFFERS_KWARGS) |
           (same_part(metadata_of(a), metadata_of(b)) ? 0u : SQRL_DIFFERS_METADATA);
}

static struct sqrl_catalog_source view(const struct sqrl_catalog_value *value) {
    const char *base = (const char *)value->nodes;
    return (struct sqrl_catalog_source){
        .driver_name = base + value->driver_at,
        .kwargs = value->nodes,
        .metadata = value->nodes + value->kwargs_nodes,
        .bytes = (const uint8_t *)base + value->bytes_at,
        .kwargs_size = value->kwargs_size,
        .metadata_size = value->metadata_size,
    };
}

unsigned sqrl_catalog_value_differs(const struct sqrl_catalog_value *a,
                                    const struct sqrl_catalog_value *b) {
    if (a == b)
        return 0;
    struct sqrl_catalog_source x = view(a), y = view(b);
    return sqrl_catalog_source_differs(&x, &y);
}

void sqrl_catalog_view(const struct sqrl_catalog *catalog, uint32_t index,
                       struct sqrl_catalog_source *out) {
    const struct sqrl_catalog_item *item = &catalog->item[index];
    *out = view(item->value);
    out->untrusted = item->value->untrusted;
    out->name = catalog->name[item->name].text;
    out->version = item->version;
}
