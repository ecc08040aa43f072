/* dlpack.c - arrays of a batch as DLPack tensors. */
#include "sqrl/dlpack.h"

#include <stdlib.h>

#include "base/base.h"

/* The managed tensor, what it points to, and the reference it holds, in one piece. */
struct holder {
    union {
        struct sqrl_dl_managed legacy;
        struct sqrl_dl_managed_versioned versioned;
    } managed;
    struct sqrl_batch *batch;
    int64_t shape[SQRL_MAX_DIMS + 1];
    int64_t strides[SQRL_MAX_DIMS + 1];
};

static const struct sqrl_dl_datatype datatypes[SQRL_DTYPE_COUNT] = {
    [SQRL_DTYPE_BOOL] = {6, 8, 1},       [SQRL_DTYPE_INT8] = {0, 8, 1},
    [SQRL_DTYPE_INT16] = {0, 16, 1},     [SQRL_DTYPE_INT32] = {0, 32, 1},
    [SQRL_DTYPE_INT64] = {0, 64, 1},     [SQRL_DTYPE_UINT8] = {1, 8, 1},
    [SQRL_DTYPE_UINT16] = {1, 16, 1},    [SQRL_DTYPE_UINT32] = {1, 32, 1},
    [SQRL_DTYPE_UINT64] = {1, 64, 1},    [SQRL_DTYPE_FLOAT16] = {2, 16, 1},
    [SQRL_DTYPE_FLOAT32] = {2, 32, 1},   [SQRL_DTYPE_FLOAT64] = {2, 64, 1},
    [SQRL_DTYPE_COMPLEX64] = {5, 64, 1}, [SQRL_DTYPE_COMPLEX128] = {5, 128, 1}};

static void holder_free(struct holder *holder) {
    sqrl_batch_unref(holder->batch);
    free(holder);
}
static void legacy_delete(struct sqrl_dl_managed *self) {
    holder_free(self->manager);
}
static void versioned_delete(struct sqrl_dl_managed_versioned *self) {
    holder_free(self->manager);
}

static int part_missing(const struct sqrl_column *column, const char *part,
                        struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_NOT_FOUND, "column \"%s\" has no %s", column->name,
                          part);
}

static int fill_data(const struct sqrl_batch *batch, const struct sqrl_column *column,
                     struct holder *holder, struct sqrl_dl_tensor *tensor,
                     struct sqrl_error *err) {
    size_t size = sqrl_dtype_size(column->dtype);
    if (column->kind == SQRL_KIND_NULL || size == 0)
        return part_missing(column, "data", err);
    tensor->data = column->data;
    tensor->dtype = datatypes[column->dtype];
    if (column->kind != SQRL_KIND_DENSE) {
        tensor->ndim = 1;
        holder->shape[0] = (int64_t)(column->data_bytes / size);
        return SQRL_OK;
    }
    tensor->ndim = (int32_t)column->dims + 1;
    holder->shape[0] = (int64_t)batch->rows;
    for (uint32_t i = 0; i < column->dims; i++)
        holder->shape[i + 1] = (int64_t)column->shape[i];
    return SQRL_OK;
}

static int fill_part(const struct sqrl_batch *batch, const struct sqrl_column *column,
                     enum sqrl_part part, struct holder *holder,
                     struct sqrl_dl_tensor *tensor, struct sqrl_error *err) {
    int64_t rows = (int64_t)batch->rows;
    tensor->ndim = 1;
    tensor->dtype = datatypes[SQRL_DTYPE_INT64];
    switch (part) {
    case SQRL_PART_DATA:
        return fill_data(batch, column, holder, tensor, err);
    case SQRL_PART_OFFSETS:
        tensor->data = column->offsets;
        holder->shape[0] = rows + 1;
        return column->offsets == NULL ? part_missing(column, "offsets", err) : SQRL_OK;
    case SQRL_PART_SHAPES:
        tensor->data = column->shapes;
        tensor->ndim = 2;
        holder->shape[0] = rows;
        holder->shape[1] = column->dims;
        return column->shapes == NULL ? part_missing(column, "shapes", err) : SQRL_OK;
    case SQRL_PART_VALID:
        tensor->data = column->valid;
        tensor->dtype = datatypes[SQRL_DTYPE_BOOL];
        holder->shape[0] = rows;
        return column->valid == NULL ? part_missing(column, "validity", err) : SQRL_OK;
    }
    return sqrl_error_set(err, SQRL_E_INVALID, "no such part of a column");
}

static int export(struct sqrl_batch *batch, uint32_t column, enum sqrl_part part,
                  bool versioned, struct holder **out, struct sqrl_error *err) {
    *out = NULL;
    if (column >= batch->columns)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND, "the batch has no column %u",
                              column);
    struct holder *holder = sqrl_calloc(1, sizeof *holder, "a DLPack tensor", err);
    if (holder == NULL)
        return SQRL_E_NO_MEMORY;
    struct sqrl_dl_tensor *tensor =
        versioned ? &holder->managed.versioned.tensor : &holder->managed.legacy.tensor;
    int rc = fill_part(batch, &batch->column[column], part, holder, tensor, err);
    if (rc != SQRL_OK) {
        free(holder);
        return rc;
    }
    int64_t stride = 1;
    for (int32_t i = tensor->ndim; i-- > 0;) {
        holder->strides[i] = stride;
        stride *= holder->shape[i];
    }
    tensor->device = (struct sqrl_dl_device){.device_type = 1};
    tensor->shape = holder->shape;
    tensor->strides = holder->strides;
    holder->batch = sqrl_batch_ref(batch);
    *out = holder;
    return SQRL_OK;
}

int sqrl_dlpack_export(struct sqrl_batch *batch, uint32_t column, enum sqrl_part part,
                       struct sqrl_dl_managed **out, struct sqrl_error *err) {
    struct holder *holder;
    *out = NULL;
    int rc = export(batch, column, part, false, &holder, err);
    if (rc != SQRL_OK)
        return rc;
    holder->managed.legacy.manager = holder;
    holder->managed.legacy.deleter = legacy_delete;
    *out = &holder->managed.legacy;
    return SQRL_OK;
}

int sqrl_dlpack_export_versioned(struct sqrl_batch *batch, uint32_t column,
                                 enum sqrl_part part,
                                 struct sqrl_dl_managed_versioned **out,
                                 struct sqrl_error *err) {
    struct holder *holder;
    *out = NULL;
    int rc = export(batch, column, part, true, &holder, err);
    if (rc != SQRL_OK)
        return rc;
    holder->managed.versioned.version.major = 1;
    holder->managed.versioned.manager = holder;
    holder->managed.versioned.deleter = versioned_delete;
    *out = &holder->managed.versioned;
    return SQRL_OK;
}
