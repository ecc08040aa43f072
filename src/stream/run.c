/* run.c - a run of samples in the consumer's hands. */
#include "stream/executor.h"

#include <stdlib.h>

struct run {
    struct sqrl_run run;        /* first: what the user sees */
    struct sqrl_buffer *memory; /* that this lies in */
    struct sqrl_hold *holds;
    uint32_t held;
    struct sqrl_block *own; /* that the samples were copied to, or NULL */
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
    run->own = NULL;
    output->holds = NULL;
    output->held = output->hold_room = 0;
    output->run = &run->run;
    return SQRL_OK;
}

static void drop_holds(struct run *run) {
    for (uint32_t i = 0; i < run->held; i++) {
        sqrl_loaded_unref(run->holds[i].loaded);
        sqrl_window_unref(run->holds[i].window);
    }
    run->held = 0;
}

/* --- gathering --- */

/* Each sample would wait for half a dozen lines in turn, then for its data. So what comes
 * soon is fetched ahead, a step of the way at a time: where it begins, its nodes, its
 * bytes. */
enum { AHEAD_BEGIN = 12, AHEAD_NODES = 8, AHEAD_BYTES = 4, MOST_BYTES = 512, LINE = 64 };
/* GCC takes a function that only fetches for one without effects, and drops the call. */
#define FETCHES static inline __attribute__((always_inline))

FETCHES void fetch_lines(const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const char *)from + at);
}

FETCHES void fetch_bytes(const struct sqrl_sample *sample) {
    const struct sqrl_block *block = sample->block;
    const struct sqrl_node *nodes = block->tape.nodes;
    uint32_t begin = block->begin[sample->index];
    if (block->bytes == NULL || begin + 1 >= block->tape.count)
        return;
    size_t size = block->bytes->size, from = nodes[begin + 1].v.offset, to = size;
    if (sample->index + 1 < block->count) {
        uint32_t next = block->begin[sample->index + 1];
        to = next + 1 < block->tape.count ? nodes[next + 1].v.offset : size;
    }
    if (from < to && to <= size)
        fetch_lines(block->bytes->data + from,
                    to - from < MOST_BYTES ? to - from : MOST_BYTES);
}

FETCHES void fetch_ahead(const struct sqrl_sample *s, uint32_t left) {
    if (left <= AHEAD_BEGIN)
        return;
    const struct sqrl_sample *far = &s[AHEAD_BEGIN], *near = &s[AHEAD_NODES];
    __builtin_prefetch(&far->block->begin[far->index]);
    fetch_lines(&near->block->tape.nodes[near->block->begin[near->index]], 4 * LINE);
    fetch_bytes(&s[AHEAD_BYTES]);
}

/* Samples that are long enough to be read at memory's own pace stay where they are. */
enum { LARGE_SAMPLE = 64 << 10 };

static bool copy_all(const struct run *run, struct sqrl_block *to,
                     struct sqrl_place *places) {
    const struct sqrl_sample *s = run->run.samples;
    for (uint32_t i = 0; i < run->run.count; i++) {
        fetch_ahead(s + i, run->run.count - i);
        places[i] = sqrl_block_place(s[i].block, s[i].index);
        if (!s[i].block->bytes ||
            sqrl_block_append_sample(to, s[i].block, s[i].index, NULL))
            return false;
    }
    return true;
}

void sqrl_run_gather(struct sqrl_context *context, struct sqrl_output *output) {
    struct run *run = (struct run *)output->run;
    struct sqrl_block *to = NULL;
    if (output->bytes / run->run.count > LARGE_SAMPLE)
        return;
    struct sqrl_place *places = malloc(run->run.count * sizeof *places);
    if (!places || sqrl_block_new(context, &to, NULL) ||
        sqrl_buffer_new(context, (size_t)output->bytes, &to->bytes, NULL) ||
        !copy_all(run, to, places)) {
        free(places);
        sqrl_block_unref(to);
        return;
    }
    to->first = SQRL_UNKNOWN;
    to->shard = places[0].shard;
    to->places = places;
    for (uint32_t i = 0; i < run->run.count; i++)
        run->sample[i] = (struct sqrl_sample){to, i};
    run->own = to;
    drop_holds(run);
}

void sqrl_run_release(struct sqrl_run *handle) {
    struct run *run = (struct run *)handle;
    if (!run)
        return;
    drop_holds(run);
    sqrl_block_unref(run->own);
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
