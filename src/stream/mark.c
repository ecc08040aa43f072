/* mark.c - points in the stream, for resume states.
 *
 * ASSIGN runs ahead of the consumer, so each output carries its own: runs the point in
 * front of them (and each row how many were judged since), batches the point behind them.
 */
#include <stdlib.h>

#include "stream/executor.h"

void sqrl_mark_set(const struct sqrl_iterator *it, uint64_t back,
                   struct sqrl_mark *mark) {
    const struct sqrl_assign *a = &it->assign;
    memset(mark, 0, sizeof *mark);
    if (!it->deal && a->window) {
        mark->chunk = a->window->chunk;
        mark->row = a->window->chunk_row;
        mark->window = a->windows - 1;
        mark->at = mark->tick = a->position - back;
    } else if (it->kind == SQRL_ORDER_SAMPLES && !it->deal && a->current) {
        mark->chunk = a->current->chunk;
        mark->at = mark->tick = a->row - a->current->from - back;
    } else if (!it->deal && a->current) {
        mark->chunk = a->current->chunk;
        mark->tick = a->row - back;
        mark->row = a->current->chunk_row + mark->tick;
    } else if (it->deal && (a->window || a->current)) {
        /* a->given counts the block, which is one row, when it is taken */
        mark->tick = a->given - back;
        if (a->current)
            mark->tick = a->given - 1 + (a->row - a->current->from) - back;
        mark->point = sqrl_hand_point(&a->hand, mark->tick);
    } else {
        *mark = a->past;
    }
    mark->valid = true;
    mark->given = a->numbered;
    mark->batch_skip = a->batch_skip;
    mark->batch_take = a->batch_take;
}

void sqrl_mark_before(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    sqrl_mark_set(it, 1, &a->before);
    for (uint32_t i = 0; i < a->ops && a->counts; i++)
        a->before_left[i] = a->op[i].left;
}

void sqrl_mark_output(struct sqrl_iterator *it, struct sqrl_output *o, bool before) {
    struct sqrl_assign *a = &it->assign;
    if (before)
        o->mark = a->before;
    else
        sqrl_mark_set(it, 0, &o->mark);
    o->mark.given = a->numbered;
    o->mark.batch_skip = a->batch_skip;
    o->mark.batch_take = a->batch_take;
    if (!a->counts)
        return;
    if (!o->left)
        o->left = malloc(a->ops * sizeof *o->left);
    if (!o->left)
        o->mark.valid = false;
    for (uint32_t i = 0; i < a->ops && o->left; i++)
        o->left[i] = before ? a->before_left[i] : a->op[i].left;
}

int sqrl_mark_segment(struct sqrl_iterator *it, uint64_t back, struct sqrl_output *o,
                      uint64_t *tick, struct sqrl_error *err) {
    const struct sqrl_assign *a = &it->assign;
    if (!o->segments || o->stretch != a->stretch) {
        if (o->segments == o->segment_room) {
            uint32_t room = o->segment_room ? 2 * o->segment_room : 4;
            void *grown =
                sqrl_realloc(o->segment, room * sizeof *o->segment, "batch", err);
            if (!grown)
                return SQRL_E_NO_MEMORY;
            o->segment = grown;
            o->segment_room = room;
        }
        struct sqrl_segment *segment = &o->segment[o->segments++];
        segment->first = o->count;
        sqrl_mark_set(it, back, &segment->mark);
        o->stretch = a->stretch;
    }
    *tick = o->segment[o->segments - 1].mark.tick;
    return SQRL_OK;
}

static const struct sqrl_output *oldest_open(const struct sqrl_assign *a,
                                             uint64_t *waiting) {
    const struct sqrl_output *oldest = NULL;
    *waiting = 0;
    for (uint32_t b = 0; b < a->buckets; b++) {
        const struct sqrl_output *o = a->open[b];
        if (!o || !o->count)
            continue;
        *waiting += o->count;
        if (!oldest || o->base < oldest->base)
            oldest = o;
    }
    return oldest;
}

/* Rows that wait, and those of an earlier run that were not read again yet. */
static void list_held(const struct sqrl_assign *a, struct sqrl_output *o,
                      uint64_t waiting) {
    size_t more = a->replay_head ? a->replays - a->replay_at : 0;
    o->kept = malloc((waiting + more + 1) * sizeof *o->kept);
    if (!o->kept) {
        o->mark.valid = false;
        return;
    }
    for (uint32_t b = 0; b < a->buckets; b++) {
        const struct sqrl_output *open = a->open[b];
        for (uint32_t i = 0; open && i < open->count; i++)
            o->kept[o->kepts++] = (uint32_t)(open->base + open->rows[i].at - o->base);
    }
    for (size_t i = a->replay_at; i < a->replays && more; i++)
        if (a->replay[i] >= o->base + o->head)
            o->kept[o->kepts++] = (uint32_t)(a->replay[i] - o->base);
    if (a->replay_head > o->base + o->head)
        o->head = a->replay_head - o->base;
}

void sqrl_mark_bucket(struct sqrl_iterator *it, struct sqrl_output *o, bool before) {
    struct sqrl_assign *a = &it->assign;
    uint64_t waiting, head = a->rows_passed + (a->in_row && !before);
    const struct sqrl_output *oldest = oldest_open(a, &waiting);
    sqrl_mark_output(it, o, before);
    o->base = head;
    if (oldest) {
        struct sqrl_mark now = o->mark;
        o->mark = oldest->mark;
        o->mark.given = now.given;
        o->mark.batch_skip = now.batch_skip;
        o->mark.batch_take = now.batch_take;
        o->base = oldest->base;
        for (uint32_t i = 0; i < a->ops && a->counts && o->left && oldest->left; i++)
            o->left[i] = oldest->left[i];
    }
    o->head = head - o->base;
    list_held(a, o, waiting);
}
