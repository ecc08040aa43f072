/* run.c - a run of samples in the consumer's hands. */
#include "stream/executor.h"

#include <stdlib.h>

struct run {
    struct sqrl_run run;        /* first: what the user sees */
    struct sqrl_buffer *memory; /* that this lies in */
    struct sqrl_hold *holds;
    uint32_t held;
    struct sqrl_sample sample[];
};

int sqrl_run_new(struct sqrl_context *context, struct sqrl_output *output,
                 struct sqrl_error *err) {
    size_t size = sizeof(struct run) + (size_t)output->count * sizeof(struct sqrl_sample);
    struct sqrl_buffer *memory;
    int code = sqrl_slot_new(context, size, &memory, err);
    if (code)
        return code;
    struct run *run = (struct run *)(void *)memory->data;
    run->memory = memory;
    run->run = (struct sqrl_run){output->count, run->sample, output->number};
    for (uint32_t i = 0; i < output->count; i++)
        run->sample[i] =
            (struct sqrl_sample){output->rows[i].from->block, output->rows[i].index};
    run->holds = output->holds;
    run->held = output->held;
    output->holds = NULL;
    output->held = output->hold_room = 0;
    output->run = &run->run;
    return SQRL_OK;
}

void sqrl_run_release(struct sqrl_run *handle) {
    struct run *run = (struct run *)handle;
    if (!run)
        return;
    for (uint32_t i = 0; i < run->held; i++) {
        sqrl_loaded_unref(run->holds[i].loaded);
        sqrl_window_unref(run->holds[i].window);
    }
    free(run->holds);
    sqrl_buffer_unref(run->memory);
}

/* What a user holds leaves the budget: a block with its run. Windows do when ASSIGN is
 * through with them. */
void sqrl_run_uncharge(struct sqrl_run *handle) {
    struct run *run = (struct run *)handle;
    for (uint32_t i = 0; i < run->held; i++)
        if (run->holds[i].loaded)
            sqrl_loaded_uncharge(run->holds[i].loaded);
}
