/* sqrl/dlpack.h - columns as DLPack tensors, without a copy.
 *
 * The structs are those of DLPack (https://github.com/dmlc/dlpack, header version 1.0),
 * under names of our own since C has no namespaces: layouts are the same.
 */
#ifndef SQRL_DLPACK_H
#define SQRL_DLPACK_H

#include "batch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqrl_dl_device {
    int32_t device_type; /* 1 = kDLCPU */
    int32_t device_id;
};
struct sqrl_dl_datatype {
    uint8_t code; /* 0 int, 1 uint, 2 float, 5 complex, 6 bool */
    uint8_t bits;
    uint16_t lanes;
};
struct sqrl_dl_tensor {
    void *data;
    struct sqrl_dl_device device;
    int32_t ndim;
    struct sqrl_dl_datatype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
};
/* "dltensor" capsules: the layout before 1.0 */
struct sqrl_dl_managed {
    struct sqrl_dl_tensor tensor;
    void *manager;
    void (*deleter)(struct sqrl_dl_managed *self);
};
/* "dltensor_versioned" capsules */
struct sqrl_dl_managed_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager;
    void (*deleter)(struct sqrl_dl_managed_versioned *self);
    uint64_t flags; /* 1 read-only, 2 is-copied */
    struct sqrl_dl_tensor tensor;
};

/* Which array of a column: its data ([n, shape...], or flat when ragged), offsets [n +
 * 1], shapes [n, dims] or valid [n]. */
enum sqrl_part { SQRL_PART_DATA, SQRL_PART_OFFSETS, SQRL_PART_SHAPES, SQRL_PART_VALID };

/* The tensor holds a reference to the batch until its deleter runs (any thread). A part
 * that the column does not have is SQRL_E_NOT_FOUND. */
SQRL_CHECK int sqrl_dlpack_export(struct sqrl_batch *batch, uint32_t column,
                                  enum sqrl_part part, struct sqrl_dl_managed **out,
                                  struct sqrl_error *err);
SQRL_CHECK int sqrl_dlpack_export_versioned(struct sqrl_batch *batch, uint32_t column,
                                            enum sqrl_part part,
                                            struct sqrl_dl_managed_versioned **out,
                                            struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
