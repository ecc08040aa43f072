/* batch.c - what a consumer does with a batch. A batch lives in its slot: the last
 * reference gives the slot back. */
#include "sqrl/batch.h"
#include "base/base.h"

struct sqrl_batch *sqrl_batch_ref(struct sqrl_batch *batch) {
    __atomic_add_fetch(&batch->refs, 1, __ATOMIC_RELAXED);
    return batch;
}

void sqrl_batch_unref(struct sqrl_batch *batch) {
    if (batch && __atomic_sub_fetch(&batch->refs, 1, __ATOMIC_ACQ_REL) == 0)
        sqrl_buffer_unref(batch->slot);
}

const struct sqrl_column *sqrl_batch_column(const struct sqrl_batch *batch,
                                            const char *name) {
    for (uint32_t i = 0; i < batch->columns; i++)
        if (strcmp(batch->column[i].name, name) == 0)
            return &batch->column[i];
    return NULL;
}
