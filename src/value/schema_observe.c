/* Widening a schema by a block's samples. It runs on every block that is packed, so it
 * must cost next to nothing: fields usually come in the same order, so the field after
 * the last one is tried first, and a value whose type the field has already is done in
 * one switch. Only a miss goes to the hash table, which is made on the first miss of a
 * call.
 */
#include "value/schema.h"

#include <stdlib.h>

#define NOT_KEPT UINT32_MAX

struct known {
    uint64_t stamp; /* last sample that had the field, + 1 */
    uint32_t name_size;
    bool
        plain; /* the name has no dot and no backslash: a key without them may equal it */
};

struct observer {
    struct sqrl_schema *schema;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    struct known *known; /* [capacity], beside schema->fields */
    uint32_t capacity;
    uint32_t *table; /* field + 1, open addressing; NULL until the first miss */
    uint32_t table_size;
    uint32_t guess;  /* the field that is expected next */
    uint64_t sample; /* number of this sample, from 1: stamps */
    struct sqrl_place place;
    struct sqrl_error *err;
    bool (*keep)(void *arg, const char *name); /* NULL: all fields */
    void *keep_arg;
    size_t prefix; /* bytes of name that belong to the maps around */
    char name[SQRL_MAX_FIELD_NAME + 2];
};

static uint64_t name_hash(const char *name, size_t size) {
    uint64_t h = size;
    for (; size >= 8; name += 8, size -= 8)
        h = sqrl_mix64(h ^ sqrl_load_le64(name));
    uint64_t tail = 0;
    memcpy(&tail, name, size);
    return sqrl_mix64(h ^ tail);
}

static void table_put(struct observer *o, uint32_t field) {
    const char *name = o->schema->fields[field].name;
    uint32_t mask = o->table_size - 1;
    uint32_t i = (uint32_t)name_hash(name, o->known[field].name_size) & mask;
    while (o->table[i])
        i = (i + 1) & mask;
    o->table[i] = field + 1;
}

/* Makes the table, or a larger one: never more than half full. */
static int table_make(struct observer *o) {
    uint32_t size = 64;
    while (size < 4 * o->schema->count)
        size *= 2;
    uint32_t *table = sqrl_calloc(size, sizeof *table, "table of fields", o->err);
    if (!table)
        return SQRL_E_NO_MEMORY;
    free(o->table);
    o->table = table;
    o->table_size = size;
    for (uint32_t i = 0; i < o->schema->count; i++)
        table_put(o, i);
    return SQRL_OK;
}

static void known_set(struct observer *o, uint32_t field) {
    const char *name = o->schema->fields[field].name;
    o->known[field] = (struct known){.name_size = (uint32_t)strlen(name),
                                     .plain = !strpbrk(name, ".\\")};
}

static int known_grow(struct observer *o) {
    if (o->schema->count <= o->capacity && o->known)
        return SQRL_OK;
    uint32_t capacity = SQRL_MAX(16u, 2 * o->schema->count);
    struct known *known =
        sqrl_realloc(o->known, capacity * sizeof *known, "fields of a schema", o->err);
    if (!known)
        return SQRL_E_NO_MEMORY;
    o->known = known;
    o->capacity = capacity;
    return SQRL_OK;
}

static int at_sample(struct observer *o, int rc) {
    if (o->place.sample == SQRL_UNKNOWN || rc != SQRL_E_LIMIT)
        return rc;
    return sqrl_error_at(o->err, rc, "sample %llu", (unsigned long long)o->place.sample);
}

/* The field of this dotted name, added when it is new, or NOT_KEPT. */
static int find_slow(struct observer *o, const char *name, size_t size, uint32_t *out) {
    if (!o->table) {
        int rc = table_make(o);
        if (rc)
            return rc;
    }
    uint32_t mask = o->table_size - 1;
    for (uint32_t i = (uint32_t)name_hash(name, size) & mask; o->table[i];
         i = (i + 1) & mask) {
        uint32_t field = o->table[i] - 1;
        if (o->known[field].name_size == size &&
            memcmp(o->schema->fields[field].name, name, size) == 0) {
            *out = field;
            return SQRL_OK;
        }
    }
    *out = NOT_KEPT;
    if (o->keep && !o->keep(o->keep_arg, name))
        return SQRL_OK;
    int rc = sqrl_schema_add(o->schema, name, size, o->err);
    if (rc || (rc = known_grow(o)))
        return at_sample(o, rc);
    uint32_t field = o->schema->count - 1;
    known_set(o, field);
    if (2 * o->schema->count > o->table_size)
        rc = table_make(o);
    else
        table_put(o, field);
    *out = field;
    return rc;
}

/* Appends a key to name[prefix, ...), escaped. The size of the whole, or 0 when too long.
 */
static size_t name_append(struct observer *o, const uint8_t *key, size_t size) {
    size_t n = o->prefix;
    for (size_t i = 0; i < size; i++) {
        if (n + 2 > sizeof o->name)
            return 0;
        if (key[i] == '.' || key[i] == '\\')
            o->name[n++] = '\\';
        o->name[n++] = (char)key[i];
    }
    return n <= SQRL_MAX_FIELD_NAME ? n : 0;
}

static int name_too_long(struct observer *o, uint32_t *out) {
    *out = NOT_KEPT;
    o->name[SQRL_MAX_FIELD_NAME] = '\0';
    if (o->keep && !o->keep(o->keep_arg, o->name))
        return SQRL_OK;
    int rc = sqrl_error_set(o->err, SQRL_E_LIMIT,
                            "a field's name is longer than %d bytes (\"%.60s...\"); "
                            "select() other fields, or drop() a map around it",
                            SQRL_MAX_FIELD_NAME, o->name);
    return at_sample(o, rc);
}

/* The field of key node `key` in the maps around it. */
static int find_field(struct observer *o, const struct sqrl_node *key, uint32_t *out) {
    const uint8_t *text = o->bytes + key->v.offset;
    uint32_t guess = o->guess;
    if (guess < o->schema->count && o->prefix == 0 && o->known[guess].plain &&
        o->known[guess].name_size == key->size &&
        memcmp(o->schema->fields[guess].name, text, key->size) == 0) {
        *out = guess;
        return SQRL_OK;
    }
    size_t size = name_append(o, text, key->size);
    if (size == 0 && key->size > 0)
        return name_too_long(o, out);
    o->name[size] = '\0';
    if (guess < o->schema->count && o->known[guess].name_size == size &&
        memcmp(o->schema->fields[guess].name, o->name, size) == 0) {
        *out = guess;
        return SQRL_OK;
    }
    return find_slow(o, o->name, size, out);
}

static bool same_shape(const struct sqrl_field *field, const struct sqrl_node *dims) {
    for (uint32_t d = 0; d < field->dims; d++)
        if (field->shape[d] != dims[d].v.u)
            return false;
    return true;
}

/* True when the field's type holds this value already, without a change. */
static inline bool value_fits(const struct sqrl_field *field,
                              const struct sqrl_node *node) {
    switch (node->type) {
    case SQRL_STRING:
        return field->kind == SQRL_KIND_STRING;
    case SQRL_BINARY:
        return field->kind == SQRL_KIND_BINARY;
    case SQRL_INT:
        return field->dtype == SQRL_DTYPE_INT64 && field->kind == SQRL_KIND_DENSE &&
               field->dims == 0 && field->python_number &&
               (node->v.i >= 0 || field->negative);
    case SQRL_FLOAT:
        return field->dtype == SQRL_DTYPE_FLOAT64 && field->kind == SQRL_KIND_DENSE &&
               field->dims == 0 && field->python_number;
    case SQRL_NDARRAY:
        return field->dtype == node->aux && field->kind == SQRL_KIND_DENSE &&
               field->dims == node->size && !field->python_number &&
               same_shape(field, node + 2);
    default:
        return false;
    }
}

static void scalar_type(const struct sqrl_node *node, struct sqrl_value_type *type) {
    *type = (struct sqrl_value_type){.kind = SQRL_KIND_DENSE, .python_number = true};
    switch (node->type) {
    case SQRL_BOOL:
        type->dtype = SQRL_DTYPE_BOOL;
        break;
    case SQRL_INT:
        type->dtype = SQRL_DTYPE_INT64;
        type->negative = node->v.i < 0;
        break;
    case SQRL_UINT:
        type->dtype = SQRL_DTYPE_UINT64;
        break;
    case SQRL_FLOAT:
        type->dtype = SQRL_DTYPE_FLOAT64;
        break;
    default:
        *type = (struct sqrl_value_type){.kind = SQRL_KIND_OTHER};
        break;
    }
}

/* A list: numbers of one type are one ragged dimension, all else is OTHER. */
static void list_type(const struct sqrl_node *node, uint64_t *shape,
                      struct sqrl_value_type *type) {
    shape[0] = node->size;
    *type = (struct sqrl_value_type){.kind = SQRL_KIND_RAGGED,
                                     .dtype = SQRL_DTYPE_INT64,
                                     .python_number = true,
                                     .dims = 1,
                                     .shape = shape};
    for (uint32_t i = 0; i < node->size; i++) {
        struct sqrl_value_type item;
        scalar_type(node + 1 + i, &item);
        if (i == 0 && item.kind == SQRL_KIND_DENSE) {
            type->dtype = item.dtype;
            type->negative = item.negative;
        } else if (item.kind != SQRL_KIND_DENSE ||
                   !sqrl_dtype_join(&type->dtype, &type->python_number, &type->negative,
                                    item.dtype, true, item.negative)) {
            *type = (struct sqrl_value_type){.kind = SQRL_KIND_OTHER};
            return;
        }
    }
}

static void value_type(const struct sqrl_node *node, uint64_t *shape,
                       struct sqrl_value_type *type) {
    *type = (struct sqrl_value_type){.kind = SQRL_KIND_OTHER};
    switch (node->type) {
    case SQRL_NULL:
        type->kind = SQRL_KIND_NULL;
        break;
    case SQRL_STRING:
        type->kind = SQRL_KIND_STRING;
        break;
    case SQRL_BINARY:
        type->kind = SQRL_KIND_BINARY;
        break;
    case SQRL_ARRAY:
        list_type(node, shape, type);
        break;
    case SQRL_NDARRAY:
        if (node->aux == SQRL_DTYPE_OTHER || node->size > SQRL_MAX_DIMS)
            break;
        type->kind = SQRL_KIND_DENSE;
        type->dtype = (enum sqrl_dtype)node->aux;
        type->dims = node->size;
        type->shape = shape;
        for (uint32_t d = 0; d < node->size; d++)
            shape[d] = node[2 + d].v.u;
        break;
    default:
        scalar_type(node, type);
        break;
    }
}

static inline void observe_value(struct observer *o, uint32_t at,
                                 const struct sqrl_node *node) {
    struct sqrl_field *field = &o->schema->fields[at];
    if (SQRL_LIKELY(o->known[at].stamp != o->sample)) { /* a repeated key counts once */
        o->known[at].stamp = o->sample;
        field->seen++;
    }
    o->guess = at + 1;
    if (SQRL_LIKELY(value_fits(field, node)))
        return;
    uint64_t shape[SQRL_MAX_DIMS];
    struct sqrl_value_type type;
    value_type(node, shape, &type);
    sqrl_field_join(field, &type, o->place);
}

/* A map around the current key. */
struct level {
    uint32_t end; /* node behind the map */
    size_t prefix;
};

/* Whether a key is a field's name. The empty one is that of samples which are no maps. */
static bool can_name(const struct observer *o, const struct sqrl_node *key) {
    return key->type == SQRL_STRING && (key->size || o->prefix) &&
           !memchr(o->bytes + key->v.offset, '\0', key->size);
}

static int observe_map(struct observer *o, uint32_t map) {
    struct level level[SQRL_MAX_FIELD_DEPTH];
    uint32_t depth = 0, n = map + 1;
    level[0] = (struct level){sqrl_node_next(o->nodes, map), 0};
    o->prefix = 0;
    for (;;) {
        if (n == level[depth].end) {
            if (depth == 0)
                return SQRL_OK;
            o->prefix = level[--depth].prefix;
            continue;
        }
        const struct sqrl_node *key = &o->nodes[n];
        uint32_t value = sqrl_node_next(o->nodes, n);
        const struct sqrl_node *node = &o->nodes[value];
        n = sqrl_node_next(o->nodes, value);
        if (!can_name(o, key))
            continue;
        uint32_t field = NOT_KEPT;
        if (node->type == SQRL_MAP && depth + 1 < SQRL_MAX_FIELD_DEPTH) {
            size_t size = name_append(o, o->bytes + key->v.offset, key->size);
            if (size == 0 && key->size > 0) {
                int rc = name_too_long(o, &field);
                if (rc)
                    return rc;
                continue;
            }
            o->name[size] = '.';
            o->prefix = size + 1;
            level[++depth] = (struct level){n, o->prefix};
            n = value + 1;
            continue;
        }
        int rc = find_field(o, key, &field);
        if (rc)
            return rc;
        if (field != NOT_KEPT)
            observe_value(o, field, node);
    }
}

static int observe_bare(struct observer *o, uint32_t node) {
    uint32_t field;
    int rc = find_slow(o, "", 0, &field);
    if (rc == SQRL_OK && field != NOT_KEPT)
        observe_value(o, field, &o->nodes[node]);
    return rc;
}

int sqrl_schema_observe(struct sqrl_schema *schema, const struct sqrl_block *block,
                        struct sqrl_error *err) {
    return sqrl_schema_observe_only(schema, block, NULL, NULL, err);
}

int sqrl_schema_observe_only(struct sqrl_schema *schema, const struct sqrl_block *block,
                             bool (*keep)(void *arg, const char *name), void *arg,
                             struct sqrl_error *err) {
    struct observer o;
    memset(&o, 0, offsetof(struct observer, name));
    o.schema = schema;
    o.nodes = block->tape.nodes;
    o.bytes = block->bytes->data;
    o.err = err;
    o.keep = keep;
    o.keep_arg = arg;
    o.place.shard = block->shard;
    int rc = known_grow(&o);
    for (uint32_t i = 0; rc == SQRL_OK && i < schema->count; i++)
        known_set(&o, i);
    for (uint32_t i = 0; rc == SQRL_OK && i < block->count; i++) {
        o.sample = (uint64_t)i + 1;
        o.place.sample = block->first == SQRL_UNKNOWN ? SQRL_UNKNOWN : block->first + i;
        o.guess = 0;
        uint32_t node = block->begin[i];
        rc = o.nodes[node].type == SQRL_MAP ? observe_map(&o, node)
                                            : observe_bare(&o, node);
    }
    if (rc == SQRL_OK) {
        schema->samples += block->count;
        sqrl_schema_settle(schema);
    }
    free(o.known);
    free(o.table);
    return rc;
}
