/* The list of fields, and how types join.
 *
 * Number types form a small lattice. Plain numbers (from MessagePack or JSON) widen:
 *
 *     int64, none below 0 --> uint64 --> float64       int64, some below 0 --> float64
 *
 * Array elements keep their dtype; plain numbers beside them may widen to it, never the
 * reverse. OTHER absorbs all, NULL is absorbed by all. See sqrl_dtype_join.
 */
#include "value/schema.h"

#include <stdlib.h>

void sqrl_schema_reset(struct sqrl_schema *schema) {
    for (uint32_t i = 0; i < schema->count; i++)
        free(schema->fields[i].name);
    free(schema->fields);
    *schema = (struct sqrl_schema){0};
}

int sqrl_schema_add(struct sqrl_schema *schema, const char *name, size_t size,
                    struct sqrl_error *err) {
    if (schema->count >= SQRL_MAX_FIELDS)
        return sqrl_error_set(
            err, SQRL_E_LIMIT,
            "samples have more than %d different fields; select() fewer, or "
            "drop() some",
            SQRL_MAX_FIELDS);
    if (schema->count == schema->capacity) {
        uint32_t capacity = SQRL_MAX(8u, 2 * schema->capacity);
        struct sqrl_field *fields = sqrl_realloc(
            schema->fields, capacity * sizeof *fields, "fields of a schema", err);
        if (!fields)
            return SQRL_E_NO_MEMORY;
        schema->fields = fields;
        schema->capacity = capacity;
    }
    char *copy = sqrl_malloc(size + 1, "field name", err);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    memcpy(copy, name, size);
    copy[size] = '\0';
    schema->fields[schema->count++] = (struct sqrl_field){.name = copy};
    return SQRL_OK;
}

int sqrl_schema_copy(const struct sqrl_schema *from, struct sqrl_schema *to,
                     struct sqrl_error *err) {
    *to = (struct sqrl_schema){0};
    for (uint32_t i = 0; i < from->count; i++) {
        const char *name = from->fields[i].name;
        int rc = sqrl_schema_add(to, name, strlen(name), err);
        if (rc) {
            sqrl_schema_reset(to);
            return rc;
        }
        char *own = to->fields[i].name;
        to->fields[i] = from->fields[i];
        to->fields[i].name = own;
    }
    to->samples = from->samples;
    return SQRL_OK;
}

static bool field_is(const struct sqrl_field *field, const char *name, size_t size) {
    return strncmp(field->name, name, size) == 0 && field->name[size] == '\0';
}

int sqrl_schema_find(const struct sqrl_schema *schema, const char *name, size_t size) {
    for (uint32_t i = 0; i < schema->count; i++)
        if (field_is(&schema->fields[i], name, size))
            return (int)i;
    return -1;
}

void sqrl_schema_settle(struct sqrl_schema *schema) {
    for (uint32_t i = 0; i < schema->count; i++)
        if (schema->fields[i].seen < schema->samples)
            schema->fields[i].nullable = true;
}

bool sqrl_dtype_join(enum sqrl_dtype *a, bool *a_python, bool *a_negative,
                     enum sqrl_dtype b, bool b_python, bool b_negative) {
    if (*a == b) {
        *a_python = *a_python && b_python;
        *a_negative = *a_negative || b_negative;
        return true;
    }
    /* From here on one side must be a plain integer that widens to the other. */
    bool from_a = *a_python && (*a == SQRL_DTYPE_INT64 ||
                                (*a == SQRL_DTYPE_UINT64 && b != SQRL_DTYPE_INT64));
    enum sqrl_dtype narrow = from_a ? *a : b, wide = from_a ? b : *a;
    bool narrow_python = from_a ? *a_python : b_python;
    bool wide_python = from_a ? b_python : *a_python;
    bool negative = *a_negative || b_negative;
    if (!narrow_python)
        return false;
    if (narrow == SQRL_DTYPE_INT64 && wide == SQRL_DTYPE_UINT64) {
        if (negative && !wide_python)
            return false;
        *a = negative ? SQRL_DTYPE_FLOAT64 : SQRL_DTYPE_UINT64;
    } else if ((narrow == SQRL_DTYPE_INT64 || narrow == SQRL_DTYPE_UINT64) &&
               wide == SQRL_DTYPE_FLOAT64) {
        *a = SQRL_DTYPE_FLOAT64;
    } else {
        return false;
    }
    *a_python = narrow_python && wide_python;
    *a_negative = negative;
    return true;
}

/* A list that was always empty: nothing is known but its one dimension. */
static bool only_empty(enum sqrl_kind kind, bool python, uint32_t dims,
                       const uint64_t *shape) {
    return kind == SQRL_KIND_RAGGED && python && dims == 1 && shape[0] == 0;
}

static bool is_numeric(enum sqrl_kind kind) {
    return kind == SQRL_KIND_DENSE || kind == SQRL_KIND_RAGGED;
}

static void field_take(struct sqrl_field *field, const struct sqrl_value_type *type) {
    field->kind = type->kind;
    field->dtype = type->dtype;
    field->python_number = type->python_number;
    field->negative = type->negative;
    field->dims = type->dims;
    for (uint32_t d = 0; d < type->dims; d++)
        field->shape[d] = type->shape[d];
}

static void field_other(struct sqrl_field *field) {
    field->kind = SQRL_KIND_OTHER;
    field->dtype = SQRL_DTYPE_OTHER;
    field->python_number = field->negative = false;
    field->dims = 0;
    memset(field->shape, 0, sizeof field->shape);
}

static void join_shape(struct sqrl_field *field, const struct sqrl_value_type *type) {
    bool same = true;
    for (uint32_t d = 0; d < field->dims; d++) {
        same = same && field->shape[d] == type->shape[d];
        field->shape[d] = SQRL_MAX(field->shape[d], type->shape[d]);
    }
    if (!same || type->kind == SQRL_KIND_RAGGED)
        field->kind = SQRL_KIND_RAGGED;
}

static bool join_numbers(struct sqrl_field *field, const struct sqrl_value_type *type,
                         struct sqrl_place place) {
    if (field->dims != type->dims)
        return false;
    if (only_empty(type->kind, type->python_number, type->dims, type->shape)) {
        field->kind = SQRL_KIND_RAGGED;
        return true;
    }
    if (only_empty(field->kind, field->python_number, field->dims, field->shape)) {
        field_take(field, type);
        field->kind = SQRL_KIND_RAGGED;
        field->first = place;
        return true;
    }
    enum sqrl_dtype before = field->dtype;
    if (!sqrl_dtype_join(&field->dtype, &field->python_number, &field->negative,
                         type->dtype, type->python_number, type->negative))
        return false;
    if (field->dtype != before)
        field->first = place;
    join_shape(field, type);
    return true;
}

void sqrl_field_join(struct sqrl_field *field, const struct sqrl_value_type *type,
                     struct sqrl_place place) {
    if (type->kind == SQRL_KIND_NULL) {
        field->nullable = true;
    } else if (field->kind == SQRL_KIND_NULL) {
        field_take(field, type);
        field->first = place;
    } else if (field->kind != SQRL_KIND_OTHER) {
        bool fits = is_numeric(field->kind) && is_numeric(type->kind)
                        ? join_numbers(field, type, place)
                        : field->kind == type->kind;
        if (!fits) {
            field_other(field);
            field->first = place;
        }
    }
}

int sqrl_schema_merge(struct sqrl_schema *schema, const struct sqrl_schema *other,
                      struct sqrl_error *err) {
    return sqrl_schema_merge_at(schema, other, 0, err);
}

int sqrl_schema_merge_at(struct sqrl_schema *schema, const struct sqrl_schema *other,
                         uint64_t begin, struct sqrl_error *err) {
    for (uint32_t i = 0; i < other->count; i++) {
        const struct sqrl_field *from = &other->fields[i];
        size_t size = strlen(from->name);
        int at = i < schema->count && field_is(&schema->fields[i], from->name, size)
                     ? (int)i
                     : sqrl_schema_find(schema, from->name, size);
        if (at < 0) {
            int rc = sqrl_schema_add(schema, from->name, size, err);
            if (rc)
                return rc;
            at = (int)schema->count - 1;
        }
        struct sqrl_field *field = &schema->fields[at];
        struct sqrl_value_type type = {from->kind,     from->dtype, from->python_number,
                                       from->negative, from->dims,  from->shape};
        struct sqrl_place place = {from->first.shard, from->first.sample + begin};
        sqrl_field_join(field, &type, place);
        field->seen += from->seen;
        field->nullable = field->nullable || from->nullable;
    }
    schema->samples += other->samples;
    sqrl_schema_settle(schema);
    return SQRL_OK;
}
