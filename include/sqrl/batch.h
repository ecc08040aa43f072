/* sqrl/batch.h - many samples as named columns, in one recycled slot of memory.
 *
 * A batch is handed on without a copy: NumPy's buffer protocol, DLPack, Arrow (see
 * arrow.h, dlpack.h) all point into its slot, and each keeps the batch alive. What a user
 * keeps leaves the memory budget, and a new slot replaces it. Threads: a batch is the
 * consumer's; its data may be written to. References are thread-safe.
 */
#ifndef SQRL_BATCH_H
#define SQRL_BATCH_H

#include "schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One column of n rows. Pointers are aligned to 64 bytes. */
struct sqrl_column {
    const char *name;
    enum sqrl_kind kind;   /* DENSE, RAGGED, STRING or BINARY; NULL: nothing but nulls */
    enum sqrl_dtype dtype; /* of the elements; UINT8 for STRING and BINARY */
    bool padded;           /* DENSE made from ragged values: see shapes */
    uint32_t dims;         /* of one row; 0: scalars */
    uint64_t shape[SQRL_MAX_DIMS]; /* DENSE: of one row, so data is [n, shape...] */
    void *data;                    /* row after row, C order, native byte order */
    uint64_t data_bytes;
    int64_t
        *offsets;    /* [n + 1] in elements (STRING, BINARY: bytes), or NULL when DENSE */
    int64_t *shapes; /* [n, dims] the true shape of each row: RAGGED with dims > 1, and
                        padded columns; else NULL */
    uint8_t *valid;  /* [n] 1 where there is a value, or NULL when all rows have one;
                        a missing value reads as zero or empty */
};

struct sqrl_batch {
    uint64_t rows;
    uint64_t number; /* 0, 1, 2 ... within its iterator */
    uint32_t columns;
    struct sqrl_column *column; /* [columns] */
    struct sqrl_place *place;   /* [rows] which sample each row was */
    /* private */
    int refs;
    struct sqrl_buffer *slot;
};

SQRL_API struct sqrl_batch *sqrl_batch_ref(struct sqrl_batch *batch);
/* NULL is allowed. The last reference only hands the slot back: no lock on threads, no
 * join. */
SQRL_API void sqrl_batch_unref(struct sqrl_batch *batch);
/* NULL when there is no such column. */
SQRL_API const struct sqrl_column *sqrl_batch_column(const struct sqrl_batch *batch,
                                                     const char *name);

#ifdef __cplusplus
}
#endif
#endif
