/* columns.c - which columns a stream of samples has, and which values fit them. */
#include "stream/columns/columns.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_ROW_BYTES (UINT64_C(1) << 32)

void sqrl_columns_free(struct sqrl_columns *columns) {
    if (!columns)
        return;
    for (uint32_t i = 0; i < columns->count; i++) {
        free(columns->column[i].name);
        free(columns->column[i].origin);
    }
    free(columns->column);
    free(columns);
}

int sqrl_columns_find(const struct sqrl_columns *columns, const char *name) {
    for (uint32_t i = 0; i < columns->count; i++)
        if (strcmp(columns->column[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* --- fixing them --- */

/* How FILL copies its values, and which need no further look. */
static void set_direct(struct sqrl_column_plan *c) {
    c->direct = DIRECT_NONE;
    c->usual = USUAL_NONE;
    if (c->kind == SQRL_KIND_STRING || c->kind == SQRL_KIND_BINARY) {
        c->direct = DIRECT_BYTES;
        c->usual = c->kind == SQRL_KIND_STRING ? SQRL_STRING : SQRL_BINARY;
    } else if (c->kind == SQRL_KIND_DENSE && c->dims) {
        c->direct = DIRECT_ARRAY;
    } else if (c->kind == SQRL_KIND_DENSE &&
               (c->dtype == SQRL_DTYPE_INT64 || c->dtype == SQRL_DTYPE_FLOAT64)) {
        c->direct = DIRECT_WORD;
        c->usual = c->dtype == SQRL_DTYPE_INT64 ? SQRL_INT : SQRL_FLOAT;
    }
}

static int column_sizes(struct sqrl_column_plan *c, enum sqrl_ragged ragged, double pad,
                        struct sqrl_error *err) {
    c->lengths = SQRL_NO_NODE;
    set_direct(c);
    if (c->direct == DIRECT_BYTES) {
        c->dtype = SQRL_DTYPE_UINT8;
        c->item_bytes = 1;
        c->dims = 0;
        return SQRL_OK;
    }
    if (c->kind == SQRL_KIND_NULL)
        return SQRL_OK;
    c->item_bytes = sqrl_dtype_size(c->dtype);
    if (!c->item_bytes)
        return sqrl_error_set(err, SQRL_E_TYPE, "field \"%.120s\" has no number type",
                              c->name);
    if (c->kind == SQRL_KIND_RAGGED) {
        c->padded = ragged == SQRL_RAGGED_PAD;
        if (ragged == SQRL_RAGGED_ERROR)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "field \"%.120s\" is declared with shapes that vary; "
                                  "choose offsets or padding for ragged fields",
                                  c->name);
        if (c->padded && !sqrl_pad_element(c->dtype, pad, c->pad))
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "pad value %g does not fit field \"%.120s\" of type %s",
                                  pad, c->name, sqrl_dtype_name(c->dtype));
        return SQRL_OK;
    }
    uint64_t bytes = c->item_bytes;
    for (uint32_t d = 0; d < c->dims; d++)
        if (__builtin_mul_overflow(bytes, c->shape[d], &bytes) || bytes > MAX_ROW_BYTES)
            return sqrl_error_set(err, SQRL_E_LIMIT,
                                  "field \"%.120s\" has more than 4 GiB a row", c->name);
    c->row_bytes = (size_t)bytes;
    return SQRL_OK;
}

/* Takes over kind, dtype and shape. */
static void take_type(struct sqrl_column_plan *c, const struct sqrl_field *field,
                      bool declared) {
    c->kind = field->kind;
    c->dtype = field->dtype;
    c->dims = field->dims;
    memcpy(c->shape, field->shape, sizeof c->shape);
    c->first = field->first;
    c->declared = declared;
    c->refuses_null = declared && !field->nullable;
    if (c->kind == SQRL_KIND_RAGGED && !declared) /* the largest sizes, not exact ones */
        memset(c->shape, 0, sizeof c->shape);
}

static int add_column(struct sqrl_columns *columns, const char *name, const char *origin,
                      struct sqrl_error *err) {
    if (sqrl_columns_find(columns, name) >= 0)
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "two fields would be named \"%.120s\"; rename() or drop() one", name);
    void *grown = sqrl_realloc(
        columns->column, (columns->count + 1) * sizeof *columns->column, "columns", err);
    if (!grown)
        return SQRL_E_NO_MEMORY;
    columns->column = grown;
    struct sqrl_column_plan *c = &columns->column[columns->count];
    memset(c, 0, sizeof *c);
    c->name = sqrl_strdup(name, err);
    c->origin = sqrl_strdup(origin, err);
    columns->count++;
    return c->name && c->origin ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static const struct sqrl_field *declared_field(const struct sqrl_batching *b,
                                               const char *name) {
    for (size_t i = 0; i < b->options.field_count; i++)
        if (strcmp(b->declared[i].name, name) == 0)
            return &b->declared[i];
    return NULL;
}

static bool lies_below(const char *name, const char *map) {
    return sqrl_name_covers(map, name) && name[strlen(map)] == '.';
}

/* A field that is null here and a map there: its null is a missing value of all fields of
 * that map, and no column. */
static bool is_absent_map(const struct sqrl_schema *schema, const struct sqrl_plan *batch,
                          const struct sqrl_field *field, const char *out) {
    bool found = false;
    if (field->kind != SQRL_KIND_NULL || !*out)
        return false;
    for (uint32_t i = 0; i < schema->count && !found; i++)
        found = lies_below(schema->fields[i].name, field->name);
    for (size_t i = 0; i < batch->batching.options.field_count && !found; i++)
        found = lies_below(batch->batching.declared[i].name, out);
    return found;
}

static int add_schema_fields(struct sqrl_columns *columns,
                             const struct sqrl_schema *schema,
                             const struct sqrl_plan *batch,
                             const struct sqrl_seen_block *block,
                             struct sqrl_error *err) {
    struct sqrl_name_map map = {0};
    int code = SQRL_OK;
    for (uint32_t i = 0; i < schema->count && !code; i++)
        code = sqrl_name_map_add(&map, schema->fields[i].name, i, err);
    if (!code)
        code = sqrl_projection_map(batch->names, &map, err);
    for (size_t i = 0; i < map.count && !code; i++) {
        const struct sqrl_field *field = &schema->fields[map.pair[i].tag];
        const struct sqrl_field *declared =
            declared_field(&batch->batching, map.pair[i].out);
        if (is_absent_map(schema, batch, field, map.pair[i].out))
            continue;
        const struct sqrl_field *type = declared ? declared : field;
        if (!*map.pair[i].out || type->kind == SQRL_KIND_OTHER ||
            (type->kind == SQRL_KIND_RAGGED && !declared &&
             batch->batching.options.ragged == SQRL_RAGGED_ERROR)) {
            code = sqrl_field_clash(field, map.pair[i].out, batch->source, block, err);
            break;
        }
        code = add_column(columns, map.pair[i].out, map.pair[i].origin, err);
        if (!code)
            take_type(&columns->column[columns->count - 1], type, declared != NULL);
    }
    sqrl_name_map_reset(&map);
    return code;
}

/* Declared fields that no sample of the schema has: their samples may come later. */
static int add_declared(struct sqrl_columns *columns, const struct sqrl_plan *batch,
                        struct sqrl_error *err) {
    const struct sqrl_batching *b = &batch->batching;
    int code = SQRL_OK;
    for (size_t i = 0; i < b->options.field_count && !code; i++) {
        const struct sqrl_field *field = &b->declared[i];
        if (sqrl_columns_find(columns, field->name) >= 0)
            continue;
        char *origin;
        code = sqrl_projection_origin(batch->names, field->name, &origin, err);
        if (!code && !origin)
            code =
                sqrl_error_set(err, SQRL_E_INVALID,
                               "field \"%.120s\" is declared for batch, but select, drop "
                               "or rename removes it",
                               field->name);
        if (!code)
            code = add_column(columns, field->name, origin, err);
        if (!code)
            take_type(&columns->column[columns->count - 1], field, true);
        free(origin);
    }
    return code;
}

/* A selected field that no sample has is a misspelt one. */
static int check_selected(const struct sqrl_columns *columns,
                          const struct sqrl_schema *schema, const struct sqrl_plan *batch,
                          struct sqrl_error *err) {
    enum sqrl_name_stage stage;
    size_t names = batch->names ? sqrl_projection_names(batch->names, &stage) : 0;
    for (size_t i = 0; i < names && stage == SQRL_NAMES_SELECT; i++) {
        const char *name = sqrl_projection_name(batch->names, i, false);
        bool found = false;
        for (uint32_t k = 0; k < columns->count && !found; k++)
            found = sqrl_name_covers(name, columns->column[k].name);
        if (found)
            continue;
        const char **known = sqrl_calloc(schema->count + 1, sizeof *known, "fields", err);
        if (!known)
            return SQRL_E_NO_MEMORY;
        for (uint32_t k = 0; k < schema->count; k++)
            known[k] = schema->fields[k].name;
        const char *near = sqrl_nearest(name, known, schema->count);
        free(known);
        return sqrl_error_set(
            err, SQRL_E_NOT_FOUND, "select: no sample%s has a field \"%.120s\"%s%.120s%s",
            columns->from_schema
                ? ""
                : " of the first block (declare the field if later ones do)",
            name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return SQRL_OK;
}

static int finish_columns(struct sqrl_columns *columns, const struct sqrl_plan *batch,
                          struct sqrl_error *err) {
    const struct sqrl_batch_options *o = &batch->batching.options;
    columns->header_bytes =
        sizeof(struct sqrl_batch) + columns->count * sizeof(struct sqrl_column);
    if (!columns->count)
        return sqrl_error_set(err, SQRL_E_TYPE, "no field is left for a batch");
    for (uint32_t i = 0; i < columns->count; i++) {
        struct sqrl_column_plan *c = &columns->column[i];
        int code = column_sizes(c, o->ragged, o->pad_value, err);
        if (code)
            return code;
        bool varies = c->kind == SQRL_KIND_RAGGED || c->kind == SQRL_KIND_STRING ||
                      c->kind == SQRL_KIND_BINARY;
        if (varies)
            c->lengths = columns->with_lengths++;
        columns->row_bytes += c->row_bytes;
        columns->header_bytes += strlen(c->name) + 1;
    }
    return SQRL_OK;
}

int sqrl_columns_new(const struct sqrl_schema *schema,
                     const struct sqrl_seen_block *block, const struct sqrl_plan *batch,
                     struct sqrl_columns **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_columns *columns = sqrl_calloc(1, sizeof *columns, "columns", err);
    if (!columns)
        return SQRL_E_NO_MEMORY;
    columns->from_schema = !block;
    int code = add_schema_fields(columns, schema, batch, block, err);
    if (!code)
        code = add_declared(columns, batch, err);
    if (!code)
        code = check_selected(columns, schema, batch, err);
    if (!code)
        code = finish_columns(columns, batch, err);
    if (code)
        sqrl_columns_free(columns);
    else
        *out = columns;
    return code;
}

/* --- which values fit --- */

static bool list_fits(const struct sqrl_column_plan *c, const struct sqrl_node *list,
                      uint32_t *length) {
    if (c->dims != 1 || (c->shape[0] && c->shape[0] != list->size) ||
        (c->kind == SQRL_KIND_DENSE && c->shape[0] != list->size))
        return false;
    for (uint32_t i = 1; i <= list->size; i++)
        if (!sqrl_number_fits(c->dtype, list + i))
            return false;
    *length = list->size;
    return true;
}

static bool array_fits(const struct sqrl_column_plan *c, const struct sqrl_node *array,
                       uint32_t *length) {
    if (array->aux != c->dtype || array->size != c->dims)
        return false;
    const struct sqrl_node *data = array + 1, *dim = array + 2;
    if (c->kind == SQRL_KIND_DENSE) {
        for (uint32_t d = 0; d < c->dims; d++)
            if (dim[d].v.u != c->shape[d])
                return false;
        return data->size == c->row_bytes;
    }
    for (uint32_t d = 0; d < c->dims; d++)
        if (c->shape[d] && dim[d].v.u != c->shape[d])
            return false;
    *length = (uint32_t)(data->size / c->item_bytes);
    return true;
}

bool sqrl_column_fits(const struct sqrl_column_plan *c, const struct sqrl_node *nodes,
                      uint32_t node, uint32_t *length) {
    *length = 0;
    if (node == SQRL_NO_NODE || nodes[node].type == SQRL_NULL)
        return !c->refuses_null;
    const struct sqrl_node *value = &nodes[node];
    switch (c->kind) {
    case SQRL_KIND_STRING:
    case SQRL_KIND_BINARY:
        *length = value->size;
        return value->type == (c->kind == SQRL_KIND_STRING ? SQRL_STRING : SQRL_BINARY);
    case SQRL_KIND_DENSE:
    case SQRL_KIND_RAGGED:
        if (value->type == SQRL_NDARRAY)
            return array_fits(c, value, length);
        if (value->type == SQRL_ARRAY)
            return list_fits(c, value, length);
        return c->dims == 0 && sqrl_number_fits(c->dtype, value);
    default:
        return false; /* NULL: nothing but nulls */
    }
}
