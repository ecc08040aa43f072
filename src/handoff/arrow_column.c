/* arrow_column.c - one column of a batch as an Arrow type and array.
 *
 *   scalars         the primitive type; complex: fixed_size_list<float>[2]; bool: uint8
 *   DENSE, 1-D      fixed_size_list<primitive>[n]
 *   DENSE, 2-D up   the same over all elements, as arrow.fixed_shape_tensor
 *   RAGGED, 1-D     large_list<primitive>
 *   RAGGED, 2-D up  struct<data: large_list<primitive>, shape:
 * fixed_size_list<int64>[dims]> STRING, BINARY  large_utf8, large_binary NULL null
 *
 * What Arrow's type alone does not tell is in the metadata key "sqrl.dtype".
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "handoff.h"

static const char *const primitive[SQRL_DTYPE_COUNT] = {
    [SQRL_DTYPE_BOOL] = "C",      [SQRL_DTYPE_INT8] = "c",
    [SQRL_DTYPE_INT16] = "s",     [SQRL_DTYPE_INT32] = "i",
    [SQRL_DTYPE_INT64] = "l",     [SQRL_DTYPE_UINT8] = "C",
    [SQRL_DTYPE_UINT16] = "S",    [SQRL_DTYPE_UINT32] = "I",
    [SQRL_DTYPE_UINT64] = "L",    [SQRL_DTYPE_FLOAT16] = "e",
    [SQRL_DTYPE_FLOAT32] = "f",   [SQRL_DTYPE_FLOAT64] = "g",
    [SQRL_DTYPE_COMPLEX64] = "f", [SQRL_DTYPE_COMPLEX128] = "g"};

static bool is_complex(enum sqrl_dtype dtype) {
    return dtype == SQRL_DTYPE_COMPLEX64 || dtype == SQRL_DTYPE_COMPLEX128;
}

/* Closes a parent whose child failed. */
static int schema_drop(struct ArrowSchema *schema, int rc) {
    if (rc != SQRL_OK)
        schema->release(schema);
    return rc;
}

static int array_drop(struct ArrowArray *array, int rc) {
    if (rc != SQRL_OK)
        array->release(array);
    return rc;
}

static uint64_t elements_of(const struct sqrl_column *column) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < column->dims; i++)
        n *= column->shape[i];
    return n;
}

/* --- elements --- */

static int elements_schema(enum sqrl_dtype dtype, const char *name,
                           struct ArrowSchema *out, struct sqrl_error *err) {
    if (dtype <= SQRL_DTYPE_OTHER || dtype >= SQRL_DTYPE_COUNT)
        return sqrl_error_set(err, SQRL_E_TYPE, "column \"%s\" has no Arrow type", name);
    if (!is_complex(dtype) && dtype != SQRL_DTYPE_BOOL)
        return sqrl_arrow_schema_node(out, name, primitive[dtype], 0, err);
    const char *pairs[] = {"sqrl.dtype", sqrl_dtype_name(dtype), NULL};
    bool two = is_complex(dtype);
    int rc = sqrl_arrow_schema_node(out, name, two ? "+w:2" : primitive[dtype], two, err);
    if (rc != SQRL_OK)
        return rc;
    rc = sqrl_arrow_schema_metadata(out, pairs, err);
    if (rc == SQRL_OK && two)
        rc = sqrl_arrow_schema_node(out->children[0], "part", primitive[dtype], 0, err);
    return schema_drop(out, rc);
}

static int elements_array(struct sqrl_batch *batch, enum sqrl_dtype dtype,
                          const void *data, uint64_t count, const uint8_t *valid,
                          struct ArrowArray *out, struct sqrl_error *err) {
    bool two = is_complex(dtype);
    int rc = sqrl_arrow_array_node(out, batch, count, valid, two ? 1 : 2, two, err);
    if (rc != SQRL_OK)
        return rc;
    if (!two) {
        sqrl_arrow_array_buffer(out, 1, data);
        return SQRL_OK;
    }
    rc = sqrl_arrow_array_node(out->children[0], batch, count * 2, NULL, 2, 0, err);
    if (rc == SQRL_OK)
        sqrl_arrow_array_buffer(out->children[0], 1, data);
    return array_drop(out, rc);
}

/* --- fixed_size_list --- */

static int fixed_schema(const char *name, uint64_t items, enum sqrl_dtype dtype,
                        struct ArrowSchema *out, struct sqrl_error *err) {
    char format[32];
    if (items > INT32_MAX)
        return sqrl_error_set(
            err, SQRL_E_LIMIT,
            "column \"%s\": Arrow's fixed_size_list ends at 2^31-1 elements", name);
    snprintf(format, sizeof format, "+w:%u", (unsigned)items);
    int rc = sqrl_arrow_schema_node(out, name, format, 1, err);
    if (rc != SQRL_OK)
        return rc;
    return schema_drop(out, elements_schema(dtype, "item", out->children[0], err));
}

static int fixed_array(struct sqrl_batch *batch, enum sqrl_dtype dtype, const void *data,
                       uint64_t items, const uint8_t *valid, struct ArrowArray *out,
                       struct sqrl_error *err) {
    int rc = sqrl_arrow_array_node(out, batch, batch->rows, valid, 1, 1, err);
    if (rc != SQRL_OK)
        return rc;
    return array_drop(out, elements_array(batch, dtype, data, batch->rows * items, NULL,
                                          out->children[0], err));
}

/* The canonical extension type, so that readers see the true shape. */
static int tensor_metadata(const struct sqrl_column *column, struct ArrowSchema *out,
                           struct sqrl_error *err) {
    char shape[SQRL_MAX_DIMS * 21 + 16];
    size_t at = (size_t)snprintf(shape, sizeof shape, "{\"shape\":[");
    for (uint32_t i = 0; i < column->dims; i++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%llu", i ? "," : "",
                               (unsigned long long)column->shape[i]);
    snprintf(shape + at, sizeof shape - at, "]}");
    const char *pairs[] = {"ARROW:extension:name", "arrow.fixed_shape_tensor",
                           "ARROW:extension:metadata", shape, NULL};
    return sqrl_arrow_schema_metadata(out, pairs, err);
}

/* --- large_list --- */

static int list_schema(const char *name, enum sqrl_dtype dtype, struct ArrowSchema *out,
                       struct sqrl_error *err) {
    int rc = sqrl_arrow_schema_node(out, name, "+L", 1, err);
    if (rc != SQRL_OK)
        return rc;
    return schema_drop(out, elements_schema(dtype, "item", out->children[0], err));
}

static int list_array(struct sqrl_batch *batch, const struct sqrl_column *column,
                      const uint8_t *valid, struct ArrowArray *out,
                      struct sqrl_error *err) {
    int rc = sqrl_arrow_array_node(out, batch, batch->rows, valid, 2, 1, err);
    if (rc != SQRL_OK)
        return rc;
    sqrl_arrow_array_buffer(out, 1, column->offsets);
    return array_drop(out, elements_array(batch, column->dtype, column->data,
                                          (uint64_t)column->offsets[batch->rows], NULL,
                                          out->children[0], err));
}

static int ragged_schema(const struct sqrl_column *column, struct ArrowSchema *out,
                         struct sqrl_error *err) {
    if (column->dims <= 1)
        return list_schema(column->name, column->dtype, out, err);
    int rc = sqrl_arrow_schema_node(out, column->name, "+s", 2, err);
    if (rc != SQRL_OK)
        return rc;
    rc = list_schema("data", column->dtype, out->children[0], err);
    if (rc == SQRL_OK)
        rc = fixed_schema("shape", column->dims, SQRL_DTYPE_INT64, out->children[1], err);
    return schema_drop(out, rc);
}

static int ragged_array(struct sqrl_batch *batch, const struct sqrl_column *column,
                        struct ArrowArray *out, struct sqrl_error *err) {
    if (column->dims <= 1)
        return list_array(batch, column, column->valid, out, err);
    int rc = sqrl_arrow_array_node(out, batch, batch->rows, column->valid, 1, 2, err);
    if (rc != SQRL_OK)
        return rc;
    rc = list_array(batch, column, NULL, out->children[0], err);
    if (rc == SQRL_OK)
        rc = fixed_array(batch, SQRL_DTYPE_INT64, column->shapes, column->dims, NULL,
                         out->children[1], err);
    return array_drop(out, rc);
}

/* --- columns --- */

int sqrl_arrow_column_schema(const struct sqrl_column *column, struct ArrowSchema *out,
                             struct sqrl_error *err) {
    switch (column->kind) {
    case SQRL_KIND_NULL:
        return sqrl_arrow_schema_node(out, column->name, "n", 0, err);
    case SQRL_KIND_STRING:
        return sqrl_arrow_schema_node(out, column->name, "U", 0, err);
    case SQRL_KIND_BINARY:
        return sqrl_arrow_schema_node(out, column->name, "Z", 0, err);
    case SQRL_KIND_RAGGED:
        return ragged_schema(column, out, err);
    case SQRL_KIND_DENSE:
        break;
    default:
        return sqrl_error_set(err, SQRL_E_TYPE, "column \"%s\" has no Arrow type",
                              column->name);
    }
    if (column->dims == 0)
        return elements_schema(column->dtype, column->name, out, err);
    int rc = fixed_schema(column->name, elements_of(column), column->dtype, out, err);
    if (rc != SQRL_OK || column->dims < 2 || is_complex(column->dtype))
        return rc;
    return schema_drop(out, tensor_metadata(column, out, err));
}

static int text_array(struct sqrl_batch *batch, const struct sqrl_column *column,
                      struct ArrowArray *out, struct sqrl_error *err) {
    int rc = sqrl_arrow_array_node(out, batch, batch->rows, column->valid, 3, 0, err);
    if (rc != SQRL_OK)
        return rc;
    sqrl_arrow_array_buffer(out, 1, column->offsets);
    sqrl_arrow_array_buffer(out, 2, column->data);
    return SQRL_OK;
}

int sqrl_arrow_column_array(struct sqrl_batch *batch, const struct sqrl_column *column,
                            struct ArrowArray *out, struct sqrl_error *err) {
    int rc;
    switch (column->kind) {
    case SQRL_KIND_NULL:
        rc = sqrl_arrow_array_node(out, batch, batch->rows, NULL, 0, 0, err);
        if (rc == SQRL_OK)
            out->null_count = out->length;
        return rc;
    case SQRL_KIND_STRING:
    case SQRL_KIND_BINARY:
        return text_array(batch, column, out, err);
    case SQRL_KIND_RAGGED:
        return ragged_array(batch, column, out, err);
    default:
        break;
    }
    if (column->dims == 0)
        return elements_array(batch, column->dtype, column->data, batch->rows,
                              column->valid, out, err);
    return fixed_array(batch, column->dtype, column->data, elements_of(column),
                       column->valid, out, err);
}

int sqrl_arrow_shapes_schema(const struct sqrl_column *column, struct ArrowSchema *out,
                             struct sqrl_error *err) {
    char *name = sqrl_format(err, "%s.shape", column->name);
    if (name == NULL)
        return SQRL_E_NO_MEMORY;
    int rc = fixed_schema(name, column->dims, SQRL_DTYPE_INT64, out, err);
    free(name);
    return rc;
}

int sqrl_arrow_shapes_array(struct sqrl_batch *batch, const struct sqrl_column *column,
                            struct ArrowArray *out, struct sqrl_error *err) {
    return fixed_array(batch, SQRL_DTYPE_INT64, column->shapes, column->dims, NULL, out,
                       err);
}
