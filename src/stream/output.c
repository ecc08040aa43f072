/* output.c - see output.h. */
#include "stream/output.h"

#include <stdlib.h>

struct sqrl_output *sqrl_output_new(struct sqrl_error *err) {
    return sqrl_calloc(1, sizeof(struct sqrl_output), "batch", err);
}

static void hold_drop(struct sqrl_hold *hold) {
    sqrl_loaded_unref(hold->loaded);
    sqrl_window_unref(hold->window);
}

void sqrl_output_release(struct sqrl_output *output) {
    for (uint32_t i = 0; i < output->held; i++)
        hold_drop(&output->holds[i]);
    output->held = output->compact_holds = output->compacted = 0;
    output->pinned = 0;
}

void sqrl_output_clear(struct sqrl_output *o) {
    struct sqrl_row *rows = o->rows;
    struct sqrl_hold *holds = o->holds;
    uint32_t capacity = o->capacity, hold_room = o->hold_room;
    struct sqrl_segment *segment = o->segment;
    uint32_t segment_room = o->segment_room;
    uint64_t *left = o->left;
    sqrl_output_release(o);
    sqrl_batch_unref(o->batch);
    sqrl_run_release(o->run);
    free(o->error);
    free(o->kept);
    memset(o, 0, sizeof *o);
    o->rows = rows;
    o->capacity = capacity;
    o->holds = holds;
    o->hold_room = hold_room;
    o->segment = segment;
    o->segment_room = segment_room;
    o->left = left;
}

void sqrl_output_free(struct sqrl_output *output) {
    if (!output)
        return;
    sqrl_output_clear(output);
    free(output->rows);
    free(output->holds);
    free(output->segment);
    free(output->left);
    free(output);
}

int sqrl_output_reserve(struct sqrl_output *o, uint32_t more, struct sqrl_error *err) {
    if (SQRL_LIKELY(o->capacity - o->count >= more))
        return SQRL_OK;
    uint64_t room = SQRL_MAX((uint64_t)o->capacity * 2, (uint64_t)o->count + more);
    if (room > UINT32_MAX)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a batch of more than 2^32-1 rows");
    room = SQRL_MAX(room, 64u);
    room = SQRL_MIN(room, UINT32_MAX);
    void *grown = sqrl_realloc(o->rows, room * sizeof *o->rows, "batch", err);
    if (!grown)
        return SQRL_E_NO_MEMORY;
    o->rows = grown;
    o->capacity = (uint32_t)room;
    return SQRL_OK;
}

int sqrl_output_hold(struct sqrl_output *o, struct sqrl_loaded *loaded,
                     struct sqrl_window *window, struct sqrl_error *err) {
    if (o->held > o->compact_holds) {
        const struct sqrl_hold *last = &o->holds[o->held - 1];
        if (window ? last->window == window : last->loaded == loaded)
            return SQRL_OK;
    }
    if (o->held == o->hold_room) {
        uint32_t room = o->hold_room ? 2 * o->hold_room : 8;
        void *grown = sqrl_realloc(o->holds, room * sizeof *o->holds, "batch", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        o->holds = grown;
        o->hold_room = room;
    }
    struct sqrl_hold *hold = &o->holds[o->held++];
    if (window) {
        __atomic_add_fetch(&window->refs, 1, __ATOMIC_RELAXED);
        *hold = (struct sqrl_hold){NULL, window};
        o->pinned += window->bytes;
    } else {
        *hold = (struct sqrl_hold){sqrl_loaded_ref(loaded), NULL};
        o->pinned += loaded->bytes_held;
    }
    return SQRL_OK;
}

void sqrl_output_compact(struct sqrl_output *o, struct sqrl_context *context,
                         const struct sqrl_columns *columns) {
    struct sqrl_loaded *small;
    uint32_t rows = o->count - o->compacted;
    if (!rows || o->held == o->compact_holds ||
        sqrl_rows_compact(context, columns, o->rows + o->compacted, rows, &small, NULL) ||
        !small)
        return;
    for (uint32_t i = 0; i < rows; i++)
        o->rows[o->compacted + i] =
            (struct sqrl_row){small, i, o->rows[o->compacted + i].at};
    for (uint32_t i = o->compact_holds; i < o->held; i++)
        hold_drop(&o->holds[i]);
    o->holds[o->compact_holds] = (struct sqrl_hold){small, NULL};
    o->held = ++o->compact_holds;
    o->compacted = o->count;
    o->pinned = 0;
}
