/* executor.c - workers: which job comes next, filling batches, counting.
 *
 * ASSIGN goes first (it is short and everything waits for it), then FILL (it frees blocks
 * and feeds the consumer), then LOAD: so memory is used up before more is taken, and what
 * a block is filled from is still in a cache. A worker that finds nothing to do ends;
 * whoever makes work (a finished job, a consumer that takes) starts one, and that one the
 * next.
 */
#include "stream/output.h"

#include <stdlib.h>

#define SLICE_NS                                                                         \
    UINT64_C(3000000) /* then other iterators have their turn on the pool                \
                       */
#define PART_BYTES (UINT64_C(2) << 20)
#define SMALL_FILL_BYTES (UINT64_C(256) << 10) /* batches that are filled in one job */
#define MAX_SPARES 64u
#define WAKE_OUTPUTS 2u
#define WAKE_BYTES (UINT64_C(2) << 20)

/* --- choosing --- */

static bool can_assign(const struct sqrl_iterator *it) {
    const struct sqrl_assign *a = &it->assign;
    return !it->assign_busy && !it->finished && sqrl_assign_has_room(it) &&
           (a->current || a->window || a->ended || sqrl_strand_ready(it));
}

/* Takes outputs to fill: one, or several small ones. */
static void claim_fill(struct sqrl_iterator *it, struct sqrl_job *job) {
    uint32_t most = SQRL_MAX(it->fill_queued / SQRL_MAX(it->workers, 1u), 1u), n = 0;
    uint64_t bytes = 0;
    struct sqrl_output *last = NULL;
    job->kind = JOB_FILL;
    job->output = it->fill_head;
    while (it->fill_head && n < most && (!n || bytes < SMALL_FILL_BYTES)) {
        last = it->fill_head;
        last->state = OUTPUT_FILLING;
        bytes += last->bytes;
        it->fill_head = last->next_work;
        n++;
    }
    last->next_work = NULL;
    it->fill_queued -= n;
    if (!it->fill_head)
        it->fill_tail = &it->fill_head;
}

static void claim_part(struct sqrl_iterator *it, struct sqrl_job *job) {
    struct sqrl_output *o = it->part_head;
    *job = (struct sqrl_job){.kind = JOB_PART, .output = o, .part = o->next_part++};
    if (o->next_part == o->parts) {
        it->part_head = o->next_work;
        o->next_work = NULL;
    }
}

/* The next job; with only_look just whether there is one. */
static bool choose(struct sqrl_iterator *it, struct sqrl_job *job, bool only_look) {
    if (!only_look)
        memset(job, 0, sizeof *job);
    if (it->stopped)
        return false;
    if (only_look && (it->fill_head || it->part_head || can_assign(it)))
        return true;
    if (only_look)
        return sqrl_strand_claim(it, job, true);
    bool assign = can_assign(it);
    if (!assign && it->part_head) {
        claim_part(it, job);
    } else if (!assign && it->fill_head) {
        claim_fill(it, job);
    } else if (assign || !sqrl_strand_claim(it, job, false)) {
        if (!assign &&
            !can_assign(it)) /* the claim may have found the end of the order */
            return false;
        job->kind = JOB_ASSIGN;
        it->assign_busy = true;
    }
    return true;
}

void sqrl_executor_kick(struct sqrl_iterator *it) {
    struct sqrl_job unused;
    if (it->io_idle)
        sqrl_fetch_kick(it);
    if (!it->idle || it->stopped || !choose(it, &unused, true))
        return;
    struct sqrl_worker *worker = it->idle;
    it->idle = worker->next_idle;
    __atomic_add_fetch(&it->refs, 1, __ATOMIC_RELAXED);
    sqrl_pool_submit(it->pool, &worker->task);
}

/* --- filling --- */

static void fail_output(struct sqrl_output *o, int code, const struct sqrl_error *error) {
    o->code = code;
    o->error = malloc(sizeof *o->error);
    if (o->error)
        *o->error = *error;
}

static uint32_t part_row(const struct sqrl_output *o, uint32_t part) {
    return (uint32_t)((uint64_t)o->count * part / o->parts);
}

/* Gathers a run, or lays an output out; true when it was filled, false when its parts
 * were put up for claims. */
static bool fill_output(struct sqrl_iterator *it, struct sqrl_output *o) {
    struct sqrl_error error;
    if (o->run) {
        sqrl_stat_add(&it->stat[STAT_FILL].items, o->count);
        sqrl_stat_add(&it->stat[STAT_FILL].bytes, o->bytes);
        sqrl_run_gather(it->context, o);
        return true;
    }
    sqrl_error_clear(&error);
    int code = sqrl_batch_lay_out(it->context, it->columns, o->rows, o->count, o->number,
                                  &o->batch, &error);
    if (code) {
        fail_output(o, code, &error);
        sqrl_output_release(o);
        return true;
    }
    o->slot_bytes = o->batch->slot->size;
    (void)sqrl_budget_take(it->context, o->slot_bytes, true);
    sqrl_stat_add(&it->stat[STAT_FILL].items, o->count);
    sqrl_stat_add(&it->stat[STAT_FILL].bytes, o->slot_bytes);
    uint64_t parts = SQRL_MIN(o->slot_bytes / PART_BYTES, (uint64_t)o->count);
    if (parts < 2 || it->workers < 2) {
        sqrl_batch_fill(o->batch, it->source, it->columns, o->rows, 0, o->count);
        sqrl_output_release(o);
        return true;
    }
    pthread_mutex_lock(&it->lock);
    o->parts = (uint32_t)SQRL_MIN(parts, 4u * it->workers);
    struct sqrl_output **end = &it->part_head;
    while (*end)
        end = &(*end)->next_work;
    o->next_work = NULL;
    *end = o;
    sqrl_executor_kick(it);
    pthread_mutex_unlock(&it->lock);
    return false;
}

/* Small outputs are handed on in pairs while more are under way: a switch to the consumer
 * and back costs as much as filling some ten rows. */
void sqrl_executor_wake(struct sqrl_iterator *it) {
    const struct sqrl_output *head = it->out_head;
    if (!it->consumer_waits || !head || head->state != OUTPUT_READY)
        return;
    if (it->finished_outputs >= WAKE_OUTPUTS || it->finished_outputs == it->queued ||
        head->bytes >= WAKE_BYTES)
        pthread_cond_broadcast(&it->ready);
}

/* Lock held. From here on the slot counts as large as it is: padding may have made it so.
 */
static void mark_ready(struct sqrl_iterator *it, struct sqrl_output *o) {
    o->state = OUTPUT_READY;
    if (o->slot_bytes > o->bytes) {
        it->queued_bytes += o->slot_bytes - o->bytes;
        o->bytes = o->slot_bytes;
    }
    it->finished_outputs++;
    sqrl_executor_wake(it);
}

static void run_fill(struct sqrl_iterator *it, struct sqrl_output *list) {
    struct sqrl_output *filled = NULL;
    while (list) {
        struct sqrl_output *o = list;
        list = o->next_work;
        o->next_work = NULL;
        if (fill_output(it, o)) {
            o->next_work = filled;
            filled = o;
        }
    }
    pthread_mutex_lock(&it->lock);
    while (filled) {
        struct sqrl_output *o = filled;
        filled = o->next_work;
        o->next_work = NULL;
        mark_ready(it, o);
    }
    pthread_mutex_unlock(&it->lock);
}

static void run_part(struct sqrl_iterator *it, struct sqrl_output *o, uint32_t part) {
    sqrl_batch_fill(o->batch, it->source, it->columns, o->rows, part_row(o, part),
                    part_row(o, part + 1));
    pthread_mutex_lock(&it->lock);
    bool last = ++o->parts_done == o->parts;
    pthread_mutex_unlock(&it->lock);
    if (!last)
        return;
    sqrl_output_release(o);
    pthread_mutex_lock(&it->lock);
    mark_ready(it, o);
    pthread_mutex_unlock(&it->lock);
}

/* --- workers --- */

static unsigned stat_of(enum sqrl_job_kind kind) {
    if (kind == JOB_ASSIGN)
        return STAT_ASSIGN;
    return kind == JOB_FILL || kind == JOB_PART ? STAT_FILL : STAT_LOAD;
}

static void run_job(struct sqrl_iterator *it, struct sqrl_worker *worker,
                    const struct sqrl_job *job) {
    switch (job->kind) {
    case JOB_OPEN:
        sqrl_load_open(it, job);
        break;
    case JOB_LOAD:
        sqrl_load_block(it, worker, job);
        break;
    case JOB_ASSIGN:
        sqrl_assign_run(it);
        break;
    case JOB_FILL:
        run_fill(it, job->output);
        break;
    case JOB_PART:
        run_part(it, job->output, job->part);
        break;
    case JOB_FETCH:
        sqrl_fetch_piece(it, job);
        break;
    case JOB_NONE:
        break;
    }
}

/* Waiting is told to the stage that had to wait. */
static void count_wait(struct sqrl_iterator *it, struct sqrl_worker *worker,
                       enum sqrl_job_kind kind, uint64_t now) {
    uint64_t since = worker->idle_since;
    worker->idle_since = 0;
    if (kind == JOB_ASSIGN) {
        since = it->starved_since;
        it->starved_since = 0;
    }
    if (since && since < now)
        sqrl_stat_add(&it->stat[stat_of(kind)].wait_ns, now - since);
}

static void count_busy(struct sqrl_iterator *it, enum sqrl_job_kind kind, uint64_t ns) {
    unsigned stat = stat_of(kind);
    sqrl_stat_add(&it->stat[stat].busy_ns, ns);
    if (stat == STAT_LOAD)
        sqrl_count(it->context, SQRL_COUNT_LOAD_NS, ns);
    else if (stat == STAT_FILL)
        sqrl_count(it->context, SQRL_COUNT_FILL_NS, ns);
}

static void run_worker(struct sqrl_task *task) {
    struct sqrl_worker *worker = (struct sqrl_worker *)(void *)task;
    struct sqrl_iterator *it = worker->iterator;
    uint64_t begin = sqrl_now_ns(), now = begin;
    struct sqrl_job job;
    pthread_mutex_lock(&it->lock);
    while (choose(it, &job, false)) {
        count_wait(it, worker, job.kind, now);
        sqrl_executor_kick(it);
        pthread_mutex_unlock(&it->lock);
        run_job(it, worker, &job);
        uint64_t end = sqrl_now_ns();
        count_busy(it, job.kind, end - now);
        now = end;
        if (now - begin > SLICE_NS) {
            sqrl_pool_submit(it->pool, &worker->task); /* keeps its reference */
            return;
        }
        pthread_mutex_lock(&it->lock);
    }
    worker->idle_since = now;
    worker->next_idle = it->idle;
    it->idle = worker;
    pthread_mutex_unlock(&it->lock);
    sqrl_executor_unref(it);
}

int sqrl_executor_start(struct sqrl_iterator *it, struct sqrl_error *err) {
    struct sqrl_pool *pool = sqrl_context_pool(it->context, err);
    if (!pool)
        return SQRL_E_NO_MEMORY;
    unsigned threads = sqrl_pool_threads(pool);
    struct sqrl_worker *workers = sqrl_calloc(threads, sizeof *workers, "workers", err);
    if (!workers)
        return SQRL_E_NO_MEMORY;
    if (sqrl_fetch_start(it, err)) {
        free(workers);
        return SQRL_E_NO_MEMORY;
    }
    pthread_mutex_lock(&it->lock);
    it->worker = workers;
    it->workers = threads;
    it->pool = pool;
    for (unsigned i = 0; i < threads; i++) {
        workers[i].iterator = it;
        workers[i].task.run = run_worker;
        workers[i].next_idle = it->idle;
        it->idle = &workers[i];
    }
    sqrl_executor_kick(it);
    pthread_mutex_unlock(&it->lock);
    return SQRL_OK;
}

void sqrl_executor_stop(struct sqrl_iterator *it) {
    it->stopped = true;
    sqrl_cancel_request(&it->cancel);
    pthread_cond_broadcast(&it->ready);
}

void sqrl_executor_recycle(struct sqrl_iterator *it, struct sqrl_output *output) {
    sqrl_output_clear(output);
    if (it->spares >= MAX_SPARES) {
        sqrl_output_free(output);
        return;
    }
    output->next = it->spare;
    it->spare = output;
    it->spares++;
}

/* --- the end --- */

static void free_outputs(struct sqrl_output *list, struct sqrl_context *context) {
    while (list) {
        struct sqrl_output *next = list->next;
        if (list->slot_bytes)
            sqrl_budget_give(context, list->slot_bytes);
        sqrl_output_free(list);
        list = next;
    }
}

/* The last reference: no worker is left. */
void sqrl_executor_unref(struct sqrl_iterator *it) {
    if (__atomic_sub_fetch(&it->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    sqrl_strands_free(it);
    free_outputs(it->out_head, it->context);
    free_outputs(it->spare, it->context);
    free_outputs(it->last, it->context);
    free_outputs(it->last_but_one, it->context);
    free(it->first_left);
    sqrl_assign_reset(it);
    sqrl_slab_drop(it->context, it->slabs_held);
    sqrl_budget_narrow(it->context, it->budget_widened);
    for (unsigned i = 0; i < it->workers; i++) {
        sqrl_locator_free(it->worker[i].locator);
        free(it->worker[i].found);
    }
    free(it->worker);
    free(it->io_worker);
    free(it->indexes);
    for (uint32_t f = 0; f < it->filters; f++)
        free(it->filter[f].map);
    free(it->filter);
    sqrl_order_free(it->order);
    sqrl_deal_walk_reset(&it->walk);
    sqrl_share_reset(&it->share);
    sqrl_deal_free(it->deal);
    sqrl_columns_free(it->columns);
    if (it->wants != it->filter_wants)
        sqrl_wants_free(it->wants);
    sqrl_filters_free(it->filter_names);
    sqrl_wants_free(it->filter_wants);
    sqrl_account_unref(it->account);
    sqrl_account_unref(it->fetching);
    pthread_cond_destroy(&it->ready);
    pthread_mutex_destroy(&it->bad_lock);
    free(it->bad);
    pthread_mutex_destroy(&it->lock);
    sqrl_source_unref(it->source);
    sqrl_plan_unref(it->plan);
    free(it);
}
