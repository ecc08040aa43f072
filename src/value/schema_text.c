/* Schemas as MessagePack (in footers and commits), and types as text (for people). */
#include "value/schema.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const kind_names[] = {"null",   "dense",  "ragged",
                                         "string", "binary", "other"};

/* --- MessagePack --- */

static int put_text(struct sqrl_bytes *out, const char *text, struct sqrl_error *err) {
    return sqrl_msgpack_put_string(out, text, strlen(text), err);
}

static int put_flag(struct sqrl_bytes *out, const char *key, struct sqrl_error *err) {
    int rc = put_text(out, key, err);
    return rc ? rc : sqrl_msgpack_put_bool(out, true, err);
}

static int put_number(struct sqrl_bytes *out, const char *key, uint64_t number,
                      struct sqrl_error *err) {
    int rc = put_text(out, key, err);
    return rc ? rc : sqrl_msgpack_put_uint(out, number, err);
}

static int put_array_type(struct sqrl_bytes *out, const struct sqrl_field *field,
                          struct sqrl_error *err) {
    int rc = put_text(out, "dtype", err);
    if (rc == SQRL_OK)
        rc = put_text(out, sqrl_dtype_name(field->dtype), err);
    if (rc == SQRL_OK)
        rc = put_text(out, "shape", err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_array(out, field->dims, err);
    for (uint32_t d = 0; rc == SQRL_OK && d < field->dims; d++)
        rc = sqrl_msgpack_put_uint(out, field->shape[d], err);
    return rc;
}

static int field_encode(const struct sqrl_field *field, struct sqrl_bytes *out,
                        struct sqrl_error *err) {
    bool numeric = field->kind == SQRL_KIND_DENSE || field->kind == SQRL_KIND_RAGGED;
    size_t pairs =
        4 + (numeric ? 2 : 0) + field->nullable + field->python_number + field->negative;
    int rc = sqrl_msgpack_put_map(out, pairs, err);
    if (rc == SQRL_OK)
        rc = put_text(out, "name", err);
    if (rc == SQRL_OK)
        rc = put_text(out, field->name, err);
    if (rc == SQRL_OK)
        rc = put_text(out, "kind", err);
    if (rc == SQRL_OK)
        rc = put_text(out, kind_names[field->kind], err);
    if (rc == SQRL_OK && numeric)
        rc = put_array_type(out, field, err);
    if (rc == SQRL_OK && field->nullable)
        rc = put_flag(out, "nullable", err);
    if (rc == SQRL_OK && field->python_number)
        rc = put_flag(out, "plain", err);
    if (rc == SQRL_OK && field->negative)
        rc = put_flag(out, "negative", err);
    if (rc == SQRL_OK)
        rc = put_number(out, "seen", field->seen, err);
    if (rc == SQRL_OK)
        rc = put_number(out, "first", field->first.sample, err);
    return rc;
}

int sqrl_schema_encode(const struct sqrl_schema *schema, struct sqrl_bytes *out,
                       struct sqrl_error *err) {
    int rc = sqrl_msgpack_put_array(out, schema->count, err);
    for (uint32_t i = 0; rc == SQRL_OK && i < schema->count; i++)
        rc = field_encode(&schema->fields[i], out, err);
    return rc;
}

/* A map that is being read. */
struct map {
    const struct sqrl_node *nodes;
    uint32_t node;
    const uint8_t *bytes;
};

static const struct sqrl_node *map_get(const struct map *map, const char *key) {
    uint32_t at = sqrl_map_find(map->nodes, map->node, map->bytes, key, strlen(key));
    return at == SQRL_NO_NODE ? NULL : &map->nodes[at];
}

static bool map_flag(const struct map *map, const char *key) {
    const struct sqrl_node *node = map_get(map, key);
    return node && node->type == SQRL_BOOL && node->v.u;
}

static bool map_count(const struct map *map, const char *key, uint64_t *out) {
    const struct sqrl_node *node = map_get(map, key);
    *out = 0;
    if (!node)
        return true;
    if (node->type != SQRL_UINT && (node->type != SQRL_INT || node->v.i < 0))
        return false;
    *out = node->v.u;
    return true;
}

/* An unknown kind is one of a later version: its values are still in the samples. */
static enum sqrl_kind kind_parse(const uint8_t *text, size_t size) {
    for (size_t i = 0; i < SQRL_COUNT_OF(kind_names); i++)
        if (strlen(kind_names[i]) == size && memcmp(kind_names[i], text, size) == 0)
            return (enum sqrl_kind)i;
    return SQRL_KIND_OTHER;
}

static bool decode_array_type(const struct map *map, struct sqrl_field *field) {
    const struct sqrl_node *dtype = map_get(map, "dtype");
    const struct sqrl_node *shape = map_get(map, "shape");
    if (!dtype || dtype->type != SQRL_STRING || !shape || shape->type != SQRL_ARRAY ||
        shape->size > SQRL_MAX_DIMS)
        return false;
    field->dtype =
        sqrl_dtype_parse((const char *)map->bytes + dtype->v.offset, dtype->size, NULL);
    field->dims = shape->size;
    for (uint32_t d = 0; d < shape->size; d++) {
        const struct sqrl_node *item = shape + 1 + d;
        if (item->type != SQRL_INT || item->v.i < 0)
            return false;
        field->shape[d] = item->v.u;
    }
    if (field->kind == SQRL_KIND_RAGGED && field->dims == 0)
        return false;
    if (field->dtype == SQRL_DTYPE_OTHER) {
        field->kind = SQRL_KIND_OTHER;
        field->dims = 0;
        memset(field->shape, 0, sizeof field->shape);
    }
    return true;
}

/* Fills all of `field` but its name. */
static bool field_decode(const struct map *map, struct sqrl_field *field) {
    const struct sqrl_node *kind = map_get(map, "kind");
    if (!kind || kind->type != SQRL_STRING)
        return false;
    field->kind = kind_parse(map->bytes + kind->v.offset, kind->size);
    bool numeric = field->kind == SQRL_KIND_DENSE || field->kind == SQRL_KIND_RAGGED;
    if (numeric && !decode_array_type(map, field))
        return false;
    field->nullable = map_flag(map, "nullable");
    if (field->dtype != SQRL_DTYPE_OTHER) {
        field->python_number = map_flag(map, "plain");
        field->negative = map_flag(map, "negative");
    }
    return map_count(map, "seen", &field->seen) &&
           map_count(map, "first", &field->first.sample);
}

static bool name_is_good(const uint8_t *name, size_t size) {
    return size <= SQRL_MAX_FIELD_NAME && !memchr(name, '\0', size);
}

static int decode_one(struct sqrl_schema *schema, const struct map *map,
                      struct sqrl_error *err) {
    const struct sqrl_node *name =
        map->nodes[map->node].type == SQRL_MAP ? map_get(map, "name") : NULL;
    if (!name || name->type != SQRL_STRING ||
        !name_is_good(map->bytes + name->v.offset, name->size))
        return sqrl_error_set(err, SQRL_E_CORRUPT, "field %u has no valid name",
                              schema->count);
    const char *text = (const char *)map->bytes + name->v.offset;
    if (sqrl_schema_find(schema, text, name->size) >= 0)
        return sqrl_error_set(err, SQRL_E_CORRUPT, "field \"%.*s\" is there twice",
                              (int)name->size, text);
    int rc = sqrl_schema_add(schema, text, name->size, err);
    if (rc)
        return rc;
    struct sqrl_field *field = &schema->fields[schema->count - 1];
    if (!field_decode(map, field))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the description of field \"%s\" is not valid",
                              field->name);
    schema->samples = SQRL_MAX(schema->samples, field->seen);
    return SQRL_OK;
}

int sqrl_schema_decode(struct sqrl_schema *schema, const struct sqrl_node *nodes,
                       uint32_t node, const uint8_t *bytes, struct sqrl_error *err) {
    *schema = (struct sqrl_schema){0};
    if (nodes[node].type != SQRL_ARRAY)
        return sqrl_error_at(
            err, sqrl_error_set(err, SQRL_E_CORRUPT, "is not a list of fields"),
            "schema");
    int rc = SQRL_OK;
    uint32_t end = sqrl_node_next(nodes, node);
    for (uint32_t n = node + 1; rc == SQRL_OK && n < end; n = sqrl_node_next(nodes, n)) {
        struct map map = {nodes, n, bytes};
        rc = decode_one(schema, &map, err);
    }
    if (rc) {
        sqrl_schema_reset(schema);
        return sqrl_error_at(err, rc, "schema");
    }
    return SQRL_OK;
}

/* --- text --- */

/* Text of which only a part may fit. */
struct text {
    char *out;
    size_t size, length;
};

static void text_put(struct text *text, const char *more) {
    for (; *more; more++, text->length++)
        if (text->length + 1 < text->size)
            text->out[text->length] = *more;
}

size_t sqrl_field_type_text(const struct sqrl_field *field, char *out, size_t size) {
    struct text text = {out, size, 0};
    bool ragged = field->kind == SQRL_KIND_RAGGED;
    if (field->kind != SQRL_KIND_DENSE && !ragged) {
        text_put(&text, kind_names[field->kind]);
    } else {
        text_put(&text, sqrl_dtype_name(field->dtype));
        for (uint32_t d = 0; d < field->dims; d++) {
            char number[24];
            snprintf(number, sizeof number, "%llu", (unsigned long long)field->shape[d]);
            text_put(&text, d ? "," : "[");
            text_put(&text, ragged ? "~" : number);
        }
        if (field->dims)
            text_put(&text, "]");
    }
    if (field->nullable && field->kind != SQRL_KIND_NULL)
        text_put(&text, "?");
    if (size)
        out[SQRL_MIN(text.length, size - 1)] = '\0';
    return text.length;
}

/* One dimension: a number or "~". NULL when it is neither, else what follows. */
static const char *parse_dimension(const char *p, const char *end, uint64_t *out,
                                   bool *ragged) {
    *out = 0;
    if (p < end && *p == '~') {
        *ragged = true;
        return p + 1;
    }
    const char *start = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, (uint64_t)(*p - '0'), out))
            return NULL;
    return p == start ? NULL : p;
}

/* "[32,32,3]" or "[~]" in p..end. */
static bool parse_shape(const char *p, const char *end, struct sqrl_field *field) {
    bool ragged = false;
    do {
        p++;
        if (field->dims == SQRL_MAX_DIMS)
            return false;
        p = parse_dimension(p, end, &field->shape[field->dims++], &ragged);
    } while (p && p < end && *p == ',');
    if (ragged)
        field->kind = SQRL_KIND_RAGGED;
    return p && p + 1 == end && *p == ']';
}

static bool parse_type(const char *type, struct sqrl_field *field) {
    const char *end = type + strlen(type);
    if (end > type && end[-1] == '?') {
        field->nullable = true;
        end--;
    }
    const char *bracket = memchr(type, '[', (size_t)(end - type));
    size_t size = (size_t)((bracket ? bracket : end) - type);
    field->dtype = sqrl_dtype_parse(type, size, NULL);
    if (field->dtype != SQRL_DTYPE_OTHER) {
        field->kind = SQRL_KIND_DENSE;
        return !bracket || parse_shape(bracket, end, field);
    }
    field->kind = kind_parse((const uint8_t *)type, size);
    return !bracket &&
           (field->kind == SQRL_KIND_STRING || field->kind == SQRL_KIND_BINARY);
}

int sqrl_field_parse(const char *name, const char *type, struct sqrl_field *out,
                     struct sqrl_error *err) {
    *out = (struct sqrl_field){0};
    if (!parse_type(type, out)) {
        *out = (struct sqrl_field){0};
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "field \"%s\": \"%s\" is not a type: expected a dtype with an optional "
            "shape (\"float32\", \"uint8[32,32,3]\", \"int64[~]\"), \"string\" or "
            "\"binary\", and \"?\" behind it when values may miss",
            name, type);
    }
    out->name = sqrl_strdup(name, err);
    return out->name ? SQRL_OK : SQRL_E_NO_MEMORY;
}
