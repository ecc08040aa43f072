/* assign.c - ASSIGN: every surviving row gets its run, or its batch and place in it.
 *
 * Serial, so it must be cheap: per row a few compares and one 16-byte entry; in plans
 * without filters whole ranges at once. It looks at no value: LOAD has left one byte a
 * row (how many filters it passed) and the lengths that bucketing needs. Stages are
 * applied in plan order, so take(10) in front of a filter counts rows that the filter
 * drops.
 *
 * State belongs to whoever holds assign_busy; the lock is taken to fetch blocks and to
 * publish outputs. An error ends the stream in its place: what was collected before it is
 * given first (also as a smaller last batch, unless drop_remainder is set), then the
 * error.
 */
#include "stream/output.h"
#include "stream/window.h"

#include <stdlib.h>

#define RING_BYTES (UINT64_C(24) << 20) /* finished or waiting to be filled */
#define SMALL_RING_BYTES (UINT64_C(2) << 20)
#define SMALL_RING 64u
#define STEP_BYTES (UINT64_C(4) << 20) /* published at the latest */
#define PIN_BYTES (UINT64_C(16) << 20)

enum verdict { ROW_PASSES, ROW_DROPPED, ROW_FAILS, ROW_ENDS };

static void end_with(struct sqrl_assign *a, int code) {
    a->ended = true;
    a->code = code;
}

/* --- outputs --- */

static struct sqrl_output *fresh_output(struct sqrl_assign *a) {
    struct sqrl_output *o = a->spare;
    if (!o)
        return sqrl_output_new(&a->error);
    a->spare = o->next;
    o->next = NULL;
    return o;
}

static void give_back(struct sqrl_assign *a, struct sqrl_output *o) {
    sqrl_output_clear(o);
    o->next = a->spare;
    a->spare = o;
}

static void emit(struct sqrl_assign *a, struct sqrl_output *o) {
    o->next = NULL;
    *a->emitted_end = o;
    a->emitted_end = &o->next;
    a->emitted_count++;
    a->emitted_bytes += o->bytes;
}

static int emit_run(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    struct sqrl_output *o = a->open[0];
    if (!o || !o->count)
        return SQRL_OK;
    o->number = a->numbered;
    a->numbered += o->count;
    a->open[0] = NULL;
    int code = sqrl_run_new(it->context, o, &a->error);
    if (code) {
        sqrl_output_free(o);
        return code;
    }
    o->state = it->gathers ? OUTPUT_QUEUED : OUTPUT_READY;
    emit(a, o);
    return SQRL_OK;
}

/* `before`: in front of the row that is judged, which does not fit any more. */
static void emit_batch(struct sqrl_iterator *it, uint32_t bucket, bool before) {
    struct sqrl_assign *a = &it->assign;
    struct sqrl_output *o = a->open[bucket];
    a->open[bucket] = NULL;
    if (a->batch_skip) {
        a->batch_skip--;
        give_back(a, o);
        return;
    }
    if (a->batch_take != SQRL_UNKNOWN && a->batch_take-- <= 1) {
        a->ended = a->cut = true;
    }
    o->number = a->numbered++;
    o->state = OUTPUT_QUEUED;
    if (a->bucketed)
        sqrl_mark_bucket(it, o, before);
    else
        sqrl_mark_output(it, o, before);
    emit(a, o);
}

/* --- rows into outputs --- */

static uint32_t bucket_of(const struct sqrl_batch_options *o, uint64_t length) {
    size_t low = 0, high = o->boundaries; /* the first boundary above length */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (o->boundary[middle] <= length)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static uint64_t row_bytes(const struct sqrl_columns *columns,
                          const struct sqrl_loaded *from, uint32_t row) {
    uint64_t bytes = columns->row_bytes;
    for (uint32_t c = 0; c < columns->count; c++) {
        const struct sqrl_column_plan *column = &columns->column[c];
        if (column->lengths != SQRL_NO_NODE)
            bytes +=
                (uint64_t)from->lengths[(size_t)column->lengths * from->count + row] *
                column->item_bytes;
    }
    return bytes;
}

/* True when the row does not fit any more into the batch that is being collected. */
static bool exceeds(const struct sqrl_batch_options *o, const struct sqrl_output *out,
                    uint64_t length, uint64_t bytes) {
    if (o->max_bytes)
        return out->bytes + bytes > o->max_bytes;
    if (!o->max_tokens)
        return false;
    uint64_t tokens;
    return __builtin_mul_overflow(SQRL_MAX(out->longest, length),
                                  (uint64_t)out->count + 1, &tokens) ||
           tokens > o->max_tokens;
}

static struct sqrl_output *open_output(struct sqrl_assign *a, uint32_t bucket) {
    if (!a->open[bucket])
        a->open[bucket] = fresh_output(a);
    return a->open[bucket];
}

/* Rows judged in the block, window or hand, with this one: see sqrl_mark_set. */
static uint64_t tick_of(const struct sqrl_iterator *it) {
    const struct sqrl_assign *a = &it->assign;
    if (a->window)
        return it->deal ? a->given : a->position;
    uint64_t row = a->row - (it->kind == SQRL_ORDER_SAMPLES ? a->current->from : 0);
    return it->deal ? a->given - 1 + row : row;
}

/* One row into the run, or its batch; batches that are full go. */
static int append_row(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t row,
                      struct sqrl_window *window) {
    struct sqrl_assign *a = &it->assign;
    const struct sqrl_batch_options *o = it->batch ? &it->batch->batching.options : NULL;
    uint64_t length = from->measure ? from->measure[row] : 0;
    uint32_t bucket = o && o->boundaries ? bucket_of(o, length) : 0;
    struct sqrl_output *out = open_output(a, bucket);
    if (!out)
        return SQRL_E_NO_MEMORY;
    uint64_t bytes = o && o->max_bytes ? row_bytes(it->columns, from, row) : 0;
    if (o && out->count && exceeds(o, out, length, bytes)) {
        emit_batch(it, bucket, true);
        if (a->ended || !(out = open_output(a, bucket)))
            return a->ended ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    int code = sqrl_output_reserve(out, 1, &a->error);
    if (!code)
        code = sqrl_output_hold(out, from, window, &a->error);
    if (code)
        return code;
    if (!o && !out->count)
        sqrl_mark_output(it, out, true);
    if (a->bucketed && !out->count) {
        sqrl_mark_output(it, out, true);
        out->base = a->rows_passed;
    }
    uint64_t tick = out->mark.tick;
    if (o && !a->bucketed && (code = sqrl_mark_segment(it, 1, out, &tick, &a->error)))
        return code;
    uint32_t at =
        (uint32_t)(a->bucketed ? a->rows_passed - out->base : tick_of(it) - tick);
    out->rows[out->count++] = (struct sqrl_row){from, row, at};
    out->longest = SQRL_MAX(out->longest, length);
    out->bytes +=
        o && o->max_bytes ? bytes : from->bytes_held / SQRL_MAX(from->count, 1u);
    if (o && o->batch_size && out->count == o->batch_size)
        emit_batch(it, bucket, false);
    return SQRL_OK;
}

/* A range of rows that all pass, without buckets and budgets. */
static int append_range(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t *row,
                        uint32_t end, uint32_t room) {
    struct sqrl_assign *a = &it->assign;
    uint64_t size = it->batch ? it->batch->batching.options.batch_size : UINT32_MAX;
    while (*row < end && a->emitted_count < room && a->emitted_bytes < STEP_BYTES &&
           !a->ended) {
        struct sqrl_output *out = open_output(a, 0);
        if (!out)
            return SQRL_E_NO_MEMORY;
        uint32_t n = (uint32_t)SQRL_MIN((uint64_t)(end - *row), size - out->count);
        int code = sqrl_output_reserve(out, n, &a->error);
        if (!code)
            code = sqrl_output_hold(out, from, NULL, &a->error);
        if (code)
            return code;
        if (!it->batch && !out->count)
            sqrl_mark_output(it, out, false);
        uint64_t tick = out->mark.tick;
        if (it->batch && (code = sqrl_mark_segment(it, 0, out, &tick, &a->error)))
            return code;
        struct sqrl_row *to = out->rows + out->count;
        uint32_t judged = (uint32_t)(tick_of(it) - tick);
        for (uint32_t i = 0; i < n; i++)
            to[i] = (struct sqrl_row){from, *row + i, judged + i + 1};
        *row += n;
        out->count += n;
        out->bytes += from->bytes_held / SQRL_MAX(from->count, 1u) * n;
        a->rows_passed += n;
        if (it->batch && out->count == size)
            emit_batch(it, 0, false);
    }
    return SQRL_OK;
}

/* --- one row through the stages --- */

static enum verdict judge(struct sqrl_assign *a, const uint8_t *stages, uint32_t row) {
    uint32_t passed = stages ? SQRL_ROW_PASSED(stages[row]) : UINT32_MAX, filters = 0;
    bool fails = stages && stages[row] & SQRL_ROW_FAILS;
    for (uint32_t i = 0; i < a->ops; i++) {
        struct sqrl_op *op = &a->op[i];
        if (op->kind == OP_FILTER) {
            if (filters++ == passed)
                return fails ? ROW_FAILS : ROW_DROPPED;
        } else if (op->kind == OP_TAKE) {
            if (!op->left)
                return ROW_ENDS;
            a->complete |= --op->left == 0;
        } else if (op->left) {
            op->left--;
            return ROW_DROPPED;
        }
    }
    return fails ? ROW_FAILS : ROW_PASSES;
}

/* Length buckets, behind a resume: the next row that passes was given by an earlier run.
 */
static bool was_given(struct sqrl_assign *a) {
    uint64_t number = a->rows_passed;
    if (number >= a->replay_head) {
        a->replay_head = 0;
        return false;
    }
    while (a->replay_at < a->replays && a->replay[a->replay_at] < number)
        a->replay_at++;
    bool waited = a->replay_at < a->replays && a->replay[a->replay_at] == number;
    a->replay_at += waited;
    return !waited;
}

/* A good row, and those before it that it replaces. */
static int give_row(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t row) {
    struct sqrl_assign *a = &it->assign;
    int code = append_row(it, from, row, a->window);
    if (!it->on_error)
        return code;
    for (; a->owed && !code && !a->ended; a->owed--)
        code = append_row(it, from, row, a->window);
    sqrl_on_error_good(it, from, row);
    return code;
}

static int fail_row(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t row) {
    struct sqrl_assign *a = &it->assign;
    bool replace = false;
    int code = sqrl_on_error_row(it, from, row, &replace);
    if (code || !replace)
        return code;
    if (!a->good) {
        a->owed++;
        return SQRL_OK;
    }
    return append_row(it, a->good, a->good_row, NULL);
}

static void take_row(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t row) {
    struct sqrl_assign *a = &it->assign;
    if (it->batch ? a->budgeted || a->bucketed : !a->open[0] || !a->open[0]->count)
        sqrl_mark_before(it);
    enum verdict verdict = judge(a, from->stage, row);
    a->in_row = true;
    int code = SQRL_OK;
    if (verdict == ROW_FAILS)
        code = fail_row(it, from, row);
    else if (verdict == ROW_PASSES && a->drop)
        a->drop--;
    else if (verdict == ROW_PASSES && !(a->replay_head && was_given(a)))
        code = give_row(it, from, row);
    a->in_row = false;
    a->rows_passed += verdict == ROW_PASSES;
    if (code)
        end_with(a, code);
    else if (verdict == ROW_ENDS || a->complete)
        a->ended = true;
}

/* --- input --- */

/* A block's error: the stream ends behind what came before. */
static void take_error(struct sqrl_assign *a, const struct sqrl_loaded *loaded) {
    a->code = loaded->code;
    if (loaded->error)
        a->error = *loaded->error;
    else
        sqrl_error_set(&a->error, a->code, "no memory to tell what went wrong");
}

/* Whether the stream goes on without what comes behind the block in its shard. */
static bool go_on_behind(struct sqrl_iterator *it, const struct sqrl_loaded *loaded) {
    int code;
    bool on = sqrl_on_error_rest(it, loaded, &code);
    if (code)
        end_with(&it->assign, code);
    return on;
}

/* The same where the lock is held: the user may be asked, who may wait for a thread that
 * wants it. */
static bool go_on_behind_unlocked(struct sqrl_iterator *it,
                                  const struct sqrl_loaded *loaded) {
    pthread_mutex_unlock(&it->lock);
    bool on = go_on_behind(it, loaded);
    pthread_mutex_lock(&it->lock);
    return on;
}

/* Rows of the current block, until it ends or enough is collected. */
static void step_block(struct sqrl_iterator *it, uint32_t room) {
    struct sqrl_assign *a = &it->assign;
    struct sqrl_loaded *from = a->current;
    const struct sqrl_batch_options *o = it->batch ? &it->batch->batching.options : NULL;
    bool plain =
        !from->stage && !a->ops && !a->owed && !(o && (o->boundaries || !o->batch_size));
    if (plain) {
        int code = append_range(it, from, &a->row, from->to, room);
        if (code)
            end_with(a, code);
        else if (it->on_error && a->row > from->from)
            sqrl_on_error_good(it, from, a->row - 1);
    }
    while (!plain && a->row < from->to && !a->ended && a->emitted_count < room &&
           a->emitted_bytes < STEP_BYTES)
        take_row(it, from, a->row++);
    if (a->row < from->to && !a->ended)
        return;
    if (!it->batch && !a->code) {
        int code = emit_run(it); /* one run a block */
        if (code)
            end_with(a, code);
    }
    if (from->code && !a->ended && !go_on_behind(it, from))
        take_error(a, from);
    sqrl_mark_set(it, 0, &a->past);
    a->stretch++;
    sqrl_loaded_unref(from);
    a->current = NULL;
    for (uint32_t b = 0; it->batch && b < a->buckets; b++)
        if (a->open[b] && a->open[b]->pinned > PIN_BYTES &&
            a->open[b]->pinned > 4 * a->open[b]->bytes)
            sqrl_output_compact(a->open[b], it->context, it->columns);
}

/* The window is used up: what is being collected must not keep it alive. */
static void leave_window(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    if (!it->batch && !a->code) {
        int code = emit_run(it);
        if (code)
            end_with(a, code);
    }
    for (uint32_t b = 0; it->batch && b < a->buckets; b++)
        if (a->open[b])
            sqrl_output_compact(a->open[b], it->context, it->columns);
    for (uint32_t i = 0; !it->batch && i < a->window->count; i++)
        sqrl_loaded_uncharge(a->window->block[i]);
    sqrl_mark_set(it, 0, &a->past);
    a->stretch++;
    sqrl_window_unref(a->window);
    a->window = NULL;
}

static void end_run(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    const struct sqrl_output *o = a->open[0];
    if (it->batch || !o || (o->count < RUN_ROWS && o->bytes < RUN_BYTES))
        return;
    int code = emit_run(it);
    if (code)
        end_with(a, code);
}

/* The same for a window that is dealt; behind damage some of its rows are not there. */
static void step_hand(struct sqrl_iterator *it, uint32_t room) {
    struct sqrl_assign *a = &it->assign;
    uint64_t rows = sqrl_window_rows(a->window);
    while (a->given < a->hand.give && !a->ended && a->emitted_count < room &&
           a->emitted_bytes < STEP_BYTES) {
        uint64_t at = sqrl_hand_next(&a->hand);
        a->given++;
        if (at >= rows)
            continue;
        uint32_t block = sqrl_window_find(a->window, at);
        struct sqrl_loaded *from = a->window->block[block];
        take_row(it, from, from->from + (uint32_t)(at - a->window->first[block]));
        end_run(it);
    }
    if (a->given == a->hand.give || a->ended)
        leave_window(it);
}

static void step_window(struct sqrl_iterator *it, uint32_t room) {
    struct sqrl_assign *a = &it->assign;
    uint64_t rows = sqrl_window_rows(a->window);
    while (a->position < rows && !a->ended && a->emitted_count < room &&
           a->emitted_bytes < STEP_BYTES) {
        uint64_t at = sqrl_permutation_at(&a->permutation, a->position++);
        uint32_t block = sqrl_window_find(a->window, at);
        struct sqrl_loaded *from = a->window->block[block];
        take_row(it, from, from->from + (uint32_t)(at - a->window->first[block]));
        end_run(it);
    }
    if (a->position >= rows || a->ended)
        leave_window(it);
}

static int short_of_samples(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "a shard has less samples than the data set's index says: run "
                          "`squirrel verify`, and `squirrel index` to index the shards "
                          "as they are");
}

/* The next of the consumer's hands. With distribute(steps=) the samples begin anew when
 * they are through: then some of them must have come out. */
static int take_hand(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    sqrl_hand_reset(&a->hand);
    a->given = 0;
    int code = sqrl_dealer_next(&a->dealer, &a->hand, &a->error);
    if (code || a->hand.begin.pass == a->pass)
        return code;
    if (a->rows_passed == a->pass_rows)
        return sqrl_error_set(
            &a->error, SQRL_E_INVALID,
            "distribute(steps=) can't be met: no sample of this rank and worker passes "
            "the filters");
    a->pass = a->hand.begin.pass;
    a->pass_rows = a->rows_passed;
    return SQRL_OK;
}

/* Begins to hand out the window that was collected, if it holds anything. */
static void begin_window(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    struct sqrl_window *window = a->next;
    a->next = NULL;
    if (!window)
        return;
    int code = sqrl_window_seal(window, &a->error);
    if (!code && it->deal)
        code = take_hand(it);
    if (!code && it->deal && !a->code && a->hand.rows != sqrl_window_rows(window))
        code = short_of_samples(&a->error);
    if (code) {
        sqrl_window_unref(window);
        end_with(a, code);
        return;
    }
    a->window = window;
    a->position = 0;
    if (it->deal)
        return;
    a->position = a->resume_at;
    a->resume_at = 0;
    if (a->position > sqrl_window_rows(window) && !a->code)
        end_with(a, sqrl_error_set(&a->error, SQRL_E_CORRUPT,
                                   "the state's positions do not fit the data"));
    sqrl_order_window(it->order, a->windows++, sqrl_window_rows(window), &a->permutation);
}

/* Takes a reference of its own. */
static int add_to_window(struct sqrl_assign *a, struct sqrl_loaded *loaded) {
    if (!a->next && !(a->next = sqrl_window_new(&a->error)))
        return SQRL_E_NO_MEMORY;
    int code = sqrl_window_add(a->next, loaded, &a->error);
    if (!code)
        sqrl_loaded_ref(loaded);
    return code;
}

static void take_block(struct sqrl_iterator *it, struct sqrl_loaded *loaded) {
    struct sqrl_assign *a = &it->assign;
    bool rows = loaded->from < loaded->to || !loaded->code;
    if (!it->windowed && rows && it->deal && a->given == a->hand.give) {
        int code = take_hand(it);
        if (code)
            end_with(a, code);
    }
    a->given += !it->windowed && rows;
    if (!it->windowed && rows) { /* its error, if any, comes behind them */
        a->current = loaded;
        a->row = loaded->from;
        return;
    }
    int code = rows ? add_to_window(a, loaded) : SQRL_OK;
    if (code) {
        end_with(a, code);
    } else if (loaded->code && !go_on_behind_unlocked(it, loaded)) {
        take_error(a, loaded);
        begin_window(it); /* the rest of the window, then the error */
        a->ended = !a->window;
    } else if (a->next && a->next->bytes >= it->window_cut) {
        begin_window(it);
    }
    sqrl_loaded_unref(loaded);
}

/* The input is at its end. */
static void take_end(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    if (it->order_failed)
        a->code =
            sqrl_error_set(&a->error, SQRL_E_NO_MEMORY, "no memory to run the stream");
    if (it->order_short)
        a->code = short_of_samples(&a->error);
    begin_window(it);
    a->ended |= !a->window;
}

/* --- the end --- */

/* Gives what was collected. */
static void flush(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    for (uint32_t b = 0; b < a->buckets; b++) {
        struct sqrl_output *o = a->open[b];
        if (!o)
            continue;
        if (!o->count || a->cut ||
            (it->batch && it->batch->batching.options.drop_remainder)) {
            sqrl_output_free(o);
            a->open[b] = NULL;
        } else if (it->batch) {
            emit_batch(it, b, false);
        } else if (emit_run(it)) {
            a->code = SQRL_E_NO_MEMORY;
        }
    }
}

static void finish(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    it->finished = true;
    it->final_code = a->code;
    it->final = a->error;
    sqrl_strands_drop(it);
    sqrl_cancel_request(&it->cancel); /* work ahead is of no use any more */
    pthread_cond_broadcast(&it->ready);
}

/* --- between the steps --- */

static uint32_t room_of(const struct sqrl_iterator *it) {
    uint32_t ring = it->workers + 2;
    if (it->queued_bytes < SMALL_RING_BYTES)
        ring = SQRL_MAX(ring, SMALL_RING);
    if (!it->queued)
        return ring;
    if (it->queued_bytes >= RING_BYTES)
        return 0;
    return it->queued < ring ? ring - it->queued : 0;
}

bool sqrl_assign_has_room(const struct sqrl_iterator *it) {
    return room_of(it) > 0;
}

/* Moves what was emitted to the queue. Lock held. */
static void publish(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    bool fills = it->batch || it->gathers;
    if (a->emitted) {
        *it->out_tail = a->emitted;
        it->out_tail = a->emitted_end;
        for (struct sqrl_output *o = a->emitted; o && fills; o = o->next) {
            o->next_work = NULL;
            *it->fill_tail = o;
            it->fill_tail = &o->next_work;
            it->fill_queued++;
        }
        it->queued += a->emitted_count;
        it->queued_bytes += a->emitted_bytes;
        if (!fills)
            it->finished_outputs += a->emitted_count;
        sqrl_executor_wake(it);
    }
    a->emitted = NULL;
    a->emitted_end = &a->emitted;
    a->emitted_count = 0;
    a->emitted_bytes = 0;
    if (!a->spare) {
        a->spare = it->spare;
        it->spare = NULL;
        it->spares = 0;
    }
}

/* Samples in front that LOAD did not even read count for the stages that skip them. */
static void count_skipped(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    for (uint32_t i = 0; i < a->ops && a->op[i].kind == OP_SKIP && it->skip_done; i++) {
        uint64_t n = SQRL_MIN(a->op[i].left, it->skip_done);
        a->op[i].left -= n;
        it->skip_done -= n;
    }
}

/* True when a step can be made; *room is for its outputs. Lock held. */
static bool next_step(struct sqrl_iterator *it, uint32_t *room) {
    struct sqrl_assign *a = &it->assign;
    struct sqrl_loaded *loaded;
    *room = room_of(it);
    if (it->stopped || !*room)
        return false;
    while (!a->current && !a->window && !a->ended) {
        enum sqrl_take take = sqrl_strand_take(it, &loaded);
        if (take == TAKE_LATER) {
            it->starved_since = sqrl_now_ns();
            return false;
        }
        count_skipped(it);
        if (take == TAKE_BLOCK) {
            take_block(it, loaded);
            continue;
        }
        if (take == TAKE_WINDOW_END)
            begin_window(it);
        else
            take_end(it);
        if (a->window && !sqrl_window_rows(a->window))
            leave_window(it);
    }
    return true;
}

void sqrl_assign_run(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    uint32_t room;
    pthread_mutex_lock(&it->lock);
    while (next_step(it, &room)) {
        pthread_mutex_unlock(&it->lock);
        if (a->current && !a->ended)
            step_block(it, room);
        else if (a->window && !a->ended && it->deal)
            step_hand(it, room);
        else if (a->window && !a->ended)
            step_window(it, room);
        if (!a->current && !a->window && a->code)
            a->ended = true;
        if (a->ended && !it->finished) {
            flush(it);
            if (!a->code && !a->complete && !a->cut)
                sqrl_filters_tell(it);
        }
        pthread_mutex_lock(&it->lock);
        publish(it);
        if (a->ended) {
            finish(it);
            break;
        }
        sqrl_executor_kick(it);
    }
    it->assign_busy = false;
    sqrl_executor_kick(it);
    pthread_mutex_unlock(&it->lock);
}

void sqrl_assign_reset(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    for (uint32_t b = 0; a->open && b < a->buckets; b++)
        sqrl_output_free(a->open[b]);
    for (struct sqrl_output *o = a->emitted, *next; o; o = next) {
        next = o->next;
        sqrl_output_free(o);
    }
    for (struct sqrl_output *o = a->spare, *next; o; o = next) {
        next = o->next;
        sqrl_output_free(o);
    }
    sqrl_loaded_unref(a->current);
    sqrl_loaded_unref(a->good);
    sqrl_window_unref(a->window);
    sqrl_window_unref(a->next);
    sqrl_hand_reset(&a->hand);
    free(a->before_left);
    free((void *)(uintptr_t)a->replay);
    free(a->open);
    free(a->op);
}
