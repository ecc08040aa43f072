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
