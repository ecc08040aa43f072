/* iterator.c - the consumer's side: opening a plan, taking runs and batches, cancel,
 * close.
 *
 * Close does not wait: it marks the iterator as stopped and lets go of its reference;
 * workers in the middle of a job let go of theirs when they are through. In the child of
 * a fork there are no workers and the lock may be held for ever: every call there only
 * says so.
 */
#include "stream/output.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define FIRST_BLOCK_BYTES (UINT64_C(3) << 19) /* a guess until one is loaded */
#define PULL_LOW 2u /* the consumer starts workers when so few outputs are left */

static bool forked(const struct sqrl_iterator *it) {
    return it->generation != sqrl_fork_generation();
}

/* --- opening: the plan compiled --- */

static int compile_filter(struct sqrl_iterator *it, const struct sqrl_plan *p,
                          struct sqrl_error *err) {
    struct sqrl_filter *filter = &it->filter[it->filters];
    uint32_t fields = sqrl_expression_fields(p->expression);
    filter->expression = p->expression;
    filter->map = sqrl_malloc((fields + 1) * sizeof *filter->map, "filter", err);
    if (!filter->map)
        return SQRL_E_NO_MEMORY;
    it->filters++;
    for (uint32_t i = 0; i < fields; i++) {
        char *origin;
        int code = sqrl_projection_origin(
            p->names, sqrl_expression_field(p->expression, i), &origin, err);
        filter->map[i] = SQRL_NO_NODE;
        if (!code && origin)
            code = sqrl_wants_add(it->filter_wants, origin, &filter->map[i], err);
        free(origin);
        if (code)
            return code;
    }
    return SQRL_OK;
}

static void add_op(struct sqrl_assign *a, enum sqrl_op_kind kind, uint64_t n) {
    a->op[a->ops++] = (struct sqrl_op){kind, n};
}

/* take and skip behind batch count batches, and may alternate. */
static void batch_limit(struct sqrl_assign *a, const struct sqrl_plan *p) {
    if (p->kind == SQRL_STAGE_TAKE) {
        a->batch_take = SQRL_MIN(a->batch_take, p->number);
        return;
    }
    if (a->batch_take != SQRL_UNKNOWN)
        a->batch_take -= SQRL_MIN(a->batch_take, p->number);
    if (__builtin_add_overflow(a->batch_skip, p->number, &a->batch_skip))
        a->batch_skip = SQRL_UNKNOWN;
}

static int compile_stage(struct sqrl_iterator *it, const struct sqrl_plan *p,
                         struct sqrl_error *err) {
    struct sqrl_assign *a = &it->assign;
    switch (p->kind) {
    case SQRL_STAGE_FILTER:
        add_op(a, OP_FILTER, 0);
        return compile_filter(it, p, err);
    case SQRL_STAGE_TAKE:
    case SQRL_STAGE_SKIP:
        if (p->batched)
            batch_limit(a, p);
        else
            add_op(a, p->kind == SQRL_STAGE_TAKE ? OP_TAKE : OP_SKIP, p->number);
        return SQRL_OK;
    case SQRL_STAGE_SHUFFLE:
        it->seed = p->number;
        it->kind = p->window_bytes == SQRL_SINGLE_SAMPLES ? SQRL_ORDER_SAMPLES
                                                          : SQRL_ORDER_WINDOWS;
        it->window_bytes = p->window_bytes;
        return SQRL_OK;
    case SQRL_STAGE_ON_ERROR:
        it->on_error = &p->on_error;
        return SQRL_OK;
    case SQRL_STAGE_PREFETCH:
        it->limit_bytes = p->number ? p->number : sqrl_budget_limit(it->context);
        return SQRL_OK;
    case SQRL_STAGE_BATCH:
        it->batch = p;
        return SQRL_OK;
    default:
        return SQRL_OK;
    }
}

static int compile(struct sqrl_iterator *it, struct sqrl_error *err) {
    size_t stages = 0;
    for (const struct sqrl_plan *p = it->plan; p; p = p->before)
        stages++;
    const struct sqrl_plan **chain = sqrl_malloc(stages * sizeof *chain, "plan", err);
    it->assign.op = sqrl_calloc(stages + 1, sizeof *it->assign.op, "plan", err);
    it->filter = sqrl_calloc(stages, sizeof *it->filter, "plan", err);
    int code = chain && it->assign.op && it->filter ? SQRL_OK : SQRL_E_NO_MEMORY;
    size_t n = stages;
    for (const struct sqrl_plan *p = it->plan; p && !code; p = p->before)
        chain[--n] = p;
    for (size_t i = 0; i < stages && !code; i++)
        code = compile_stage(it, chain[i], err);
    free(chain);
    return code;
}

/* --- opening --- */

static int open_columns(struct sqrl_iterator *it, const struct sqrl_schema **schema,
                        struct sqrl_error *err) {
    *schema = NULL;
    if (!it->batch && !it->windowed)
        return SQRL_OK;
    int code = sqrl_source_schema(it->source, schema, err);
    if (!code && *schema && (*schema)->count && it->batch)
        code = sqrl_load_fix_columns(it, *schema, NULL, err);
    return code;
}

/* Plans that give nothing whatever the data are. */
static bool takes_nothing(const struct sqrl_iterator *it) {
    for (uint32_t i = 0; i < it->assign.ops; i++)
        if (it->assign.op[i].kind == OP_TAKE && !it->assign.op[i].left)
            return true;
    return it->batch && !it->assign.batch_take;
}

/* distribute(steps=): that many items, behind all other stages. */
static void limit_steps(struct sqrl_iterator *it) {
    const struct sqrl_distribute_options *o = sqrl_plan_distribution(it->plan);
    if (!o || !o->steps)
        return;
    if (it->batch)
        it->assign.batch_take = SQRL_MIN(it->assign.batch_take, o->steps);
    else
        add_op(&it->assign, OP_TAKE, o->steps);
}

/* What marks need to know, and where this run begins. */
static int open_marks(struct sqrl_iterator *it, struct sqrl_error *err) {
    struct sqrl_assign *a = &it->assign;
    const struct sqrl_batch_options *o = it->batch ? &it->batch->batching.options : NULL;
    a->budgeted = o && !o->batch_size;
    a->bucketed = o && o->boundaries;
    for (uint32_t i = 0; i < a->ops; i++)
        a->counts |= a->op[i].kind != OP_FILTER;
    a->before_left = sqrl_calloc(a->ops + 1, sizeof *a->before_left, "plan", err);
    it->first_left = sqrl_calloc(a->ops + 1, sizeof *it->first_left, "plan", err);
    return a->before_left && it->first_left ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static void set_first_mark(struct sqrl_iterator *it) {
    struct sqrl_assign *a = &it->assign;
    a->past.chunk = it->resume_chunk;
    a->past.row = it->resume_row;
    a->past.window = a->windows;
    a->past.at = a->resume_at;
    a->past.point = a->dealer.point;
    sqrl_mark_set(it, 0, &it->first);
    for (uint32_t i = 0; i < a->ops; i++)
        it->first_left[i] = a->op[i].left;
}

static int open_sequence(struct sqrl_iterator *it,
                         const struct sqrl_iterator_options *options,
                         struct sqrl_error *err) {
    const struct sqrl_schema *schema;
    struct sqrl_states *states = NULL;
    int code = sqrl_states_read(it, options, &states, err);
    if (!code)
        code = open_columns(it, &schema, err);
    if (!code)
        code = sqrl_filters_check(it, schema, err);
    if (!code)
        code = sqrl_plan_check_selects(it->plan, err);
    if (!code)
        code = sqrl_sequence_open(it, schema, states, err);
    if (!code && takes_nothing(it))
        it->finished = true;
    sqrl_states_free(states);
    if (!code)
        set_first_mark(it);
    return code;
}

static int open_parts(struct sqrl_iterator *it,
                      const struct sqrl_iterator_options *options,
                      struct sqrl_error *err) {
    struct sqrl_assign *a = &it->assign;
    int code = compile(it, err);
    if (code)
        return code;
    limit_steps(it);
    if (it->batch && it->batch->batching.options.boundaries && it->on_error &&
        it->on_error->policy == SQRL_ON_ERROR_SUBSTITUTE)
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "on_error \"substitute\" does not go with length buckets: a "
            "bad sample has no length; use \"skip\"");
    code = open_marks(it, err);
    if (code)
        return code;
    it->windowed = it->kind == SQRL_ORDER_WINDOWS ||
                   (it->plan->distributed && it->kind != SQRL_ORDER_SAMPLES);
    it->gathers = !it->batch && it->kind == SQRL_ORDER_WINDOWS;
    if (!it->batch)
        it->wants = it->filter_wants;
    it->check_names = !it->batch && sqrl_projection_may_clash(it->plan->names);
    a->buckets = it->batch ? (uint32_t)it->batch->batching.options.boundaries + 1 : 1;
    a->open = sqrl_calloc(a->buckets, sizeof *a->open, "batches", err);
    if (!a->open)
        return SQRL_E_NO_MEMORY;
    if (takes_nothing(it)) {
        it->finished = true;
        return SQRL_OK;
    }
    return open_sequence(it, options, err);
}

static int init_locks(struct sqrl_iterator *it, struct sqrl_error *err) {
    pthread_condattr_t attributes;
    if (pthread_mutex_init(&it->lock, NULL))
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for a lock");
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&it->bad_lock, NULL);
    int failed = pthread_cond_init(&it->ready, &attributes);
    pthread_condattr_destroy(&attributes);
    if (!failed)
        return SQRL_OK;
    pthread_mutex_destroy(&it->lock);
    return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for a lock");
}

int sqrl_iterator_open(struct sqrl_plan *plan, struct sqrl_iterator **out,
                       struct sqrl_error *err) {
    return sqrl_iterator_start(plan, NULL, out, err);
}

int sqrl_iterator_make(struct sqrl_plan *plan,
                       const struct sqrl_iterator_options *options,
                       struct sqrl_iterator **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_iterator *it = sqrl_calloc(1, sizeof *it, "iterator", err);
    if (!it)
        return SQRL_E_NO_MEMORY;
    if (init_locks(it, err)) {
        free(it);
        return SQRL_E_NO_MEMORY;
    }
    it->refs = 1;
    it->generation = sqrl_fork_generation();
    it->plan = sqrl_plan_ref(plan);
    it->context = sqrl_source_context(plan->source);
    if (options && options->size >= sizeof *options) {
        it->epoch = options->epoch;
        it->follow = options->follow;
        it->next_epoch = options->next_epoch;
    }
    it->shards = sqrl_source_shards(plan->source);
    it->window_bytes = SQRL_DEFAULT_WINDOW_BYTES;
    it->measure_want = SQRL_NO_NODE;
    it->block_estimate = FIRST_BLOCK_BYTES;
    it->ratio_percent = 120;
    it->assign.batch_take = SQRL_UNKNOWN;
    it->assign.emitted_end = &it->assign.emitted;
    it->tail = &it->head;
    it->out_tail = &it->out_head;
    it->fill_tail = &it->fill_head;
    it->account = sqrl_account_new(it->context, err);
    it->fetching = sqrl_account_new(it->context, err);
    it->filter_wants = sqrl_wants_new(err);
    int code =
        it->account && it->fetching && it->filter_wants ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!code)
        code = sqrl_plan_narrow(plan, &it->source, err);
    if (!code)
        code = open_parts(it, options, err);
    if (code)
        sqrl_executor_unref(it);
    else
        *out = it;
    return code;
}

static int start(struct sqrl_iterator *it, struct sqrl_error *err) {
    return it->pool || it->finished ? SQRL_OK : sqrl_executor_start(it, err);
}

/* What is remote is asked for before the consumer asks. */
int sqrl_iterator_start(struct sqrl_plan *plan,
                        const struct sqrl_iterator_options *options,
                        struct sqrl_iterator **out, struct sqrl_error *err) {
    static const struct sqrl_iterator_options defaults;
    bool given = options && options->size >= sizeof *options;
    bool from_start = !given || !options->states;
    *out = from_start ? sqrl_follow_take(plan, given ? options : &defaults) : NULL;
    if (*out)
        return SQRL_OK;
    int code = sqrl_iterator_make(plan, options, out, err);
    if (!code && (*out)->remote && (code = start(*out, err))) {
        sqrl_iterator_close(*out);
        *out = NULL;
    }
    return code;
}

/* --- taking --- */

static int fork_error(struct sqrl_error *err) {
    return sqrl_error_set(
        err, SQRL_E_STATE,
        "this iterator was started before a fork; open a new one in the "
        "child process");
}

/* True when next() would not wait. Lock held. */
static bool is_ready(const struct sqrl_iterator *it) {
    return it->stopped ||
           (it->out_head ? it->out_head->state == OUTPUT_READY : it->finished);
}

/* Waits for at most wait_ns (UINT64_MAX: for ever). Lock held. */
static bool wait_ready(struct sqrl_iterator *it, uint64_t wait_ns) {
    if (is_ready(it))
        return true;
    uint64_t begin = sqrl_now_ns();
    uint64_t until = wait_ns > UINT64_MAX - begin ? UINT64_MAX : begin + wait_ns;
    struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    sqrl_executor_kick(it);
    it->consumer_waits = true;
    int failed = 0;
    while (!is_ready(it) && failed != ETIMEDOUT) {
        if (wait_ns == UINT64_MAX)
            failed = pthread_cond_wait(&it->ready, &it->lock);
        else
            failed = pthread_cond_timedwait(&it->ready, &it->lock, &at);
    }
    it->consumer_waits = false;
    uint64_t waited = sqrl_now_ns() - begin;
    sqrl_stat_add(&it->stat[STAT_CONSUMER].wait_ns, waited);
    sqrl_count(it->context, SQRL_COUNT_WAIT_CONSUMER_NS, waited);
    return is_ready(it);
}

/* The end, the error of the stream, or of this output: repeated from now on. Lock held.
 */
static int final_result(struct sqrl_iterator *it, struct sqrl_error *err) {
    if (it->final_code && err)
        *err = it->final;
    return it->final_code;
}

static int fail_here(struct sqrl_iterator *it, const struct sqrl_output *o,
                     struct sqrl_error *err) {
    it->final_code = o->code;
    if (o->error)
        it->final = *o->error;
    else
        sqrl_error_set(&it->final, o->code, "no memory to tell what went wrong");
    sqrl_executor_stop(it);
    return final_result(it, err);
}

/* Takes the output at the head; *out is NULL at the end. Lock held. */
static int take_output(struct sqrl_iterator *it, struct sqrl_output **out,
                       struct sqrl_error *err) {
    *out = NULL;
    wait_ready(it, UINT64_MAX);
    struct sqrl_output *o = it->out_head;
    if (it->stopped || !o)
        return final_result(it, err);
    if (o->code)
        return fail_here(it, o, err);
    it->out_head = o->next;
    if (!it->out_head)
        it->out_tail = &it->out_head;
    o->next = NULL;
    it->queued--;
    it->finished_outputs--;
    it->queued_bytes -= o->bytes;
    if (o->slot_bytes)
        sqrl_budget_give(it->context, o->slot_bytes);
    o->slot_bytes = 0;
    sqrl_stat_add(&it->stat[STAT_CONSUMER].items, 1);
    *out = o;
    return SQRL_OK;
}

/* The outputs handed out last stay for their marks. Lock held. */
static void keep_last(struct sqrl_iterator *it, struct sqrl_output *o) {
    if (it->last_but_one)
        sqrl_executor_recycle(it, it->last_but_one);
    it->last_but_one = it->last;
    it->last = o;
}

/* From the last hand-off to this call the consumer was at work. */
static void count_consumer(struct sqrl_iterator *it) {
    if (it->handed_at)
        sqrl_stat_add(&it->stat[STAT_CONSUMER].busy_ns, sqrl_now_ns() - it->handed_at);
    it->handed_at = 0;
}

int sqrl_iterator_next_run(struct sqrl_iterator *it, struct sqrl_run **out,
                           struct sqrl_error *err) {
    struct sqrl_output *o;
    *out = NULL;
    if (forked(it))
        return fork_error(err);
    if (it->batch)
        return sqrl_error_set(err, SQRL_E_STATE, "this plan gives batches, not samples");
    int code = start(it, err);
    if (code)
        return code;
    pthread_mutex_lock(&it->lock);
    count_consumer(it);
    code = take_output(it, &o, err);
    if (o) {
        *out = o->run;
        o->run = NULL;
        sqrl_run_uncharge(*out);
        keep_last(it, o);
        sqrl_executor_kick(it);
        sqrl_count(it->context, SQRL_COUNT_SAMPLES, (*out)->count);
        it->handed_at = sqrl_now_ns();
    }
    pthread_mutex_unlock(&it->lock);
    return code;
}

int sqrl_iterator_next_batch(struct sqrl_iterator *it, struct sqrl_batch **out,
                             struct sqrl_error *err) {
    struct sqrl_output *o;
    *out = NULL;
    if (forked(it))
        return fork_error(err);
    if (!it->batch)
        return sqrl_error_set(err, SQRL_E_STATE, "this plan gives samples, not batches");
    int code = start(it, err);
    if (code)
        return code;
    pthread_mutex_lock(&it->lock);
    count_consumer(it);
    code = take_output(it, &o, err);
    if (o) {
        *out = o->batch;
        o->batch = NULL;
        keep_last(it, o);
        if (it->queued <= PULL_LOW)
            sqrl_executor_kick(it);
        sqrl_count(it->context, SQRL_COUNT_BATCHES, 1);
        sqrl_count(it->context, SQRL_COUNT_SAMPLES, (*out)->rows);
        it->handed_at = sqrl_now_ns();
    }
    pthread_mutex_unlock(&it->lock);
    return code;
}

bool sqrl_iterator_wait(struct sqrl_iterator *it, uint64_t wait_ns) {
    if (forked(it) || start(it, NULL))
        return true; /* next() says what is wrong */
    pthread_mutex_lock(&it->lock);
    count_consumer(it);
    bool ready = wait_ready(it, wait_ns);
    pthread_mutex_unlock(&it->lock);
    return ready;
}

/* --- ending --- */

void sqrl_iterator_cancel(struct sqrl_iterator *it) {
    if (forked(it))
        return;
    pthread_mutex_lock(&it->lock);
    if (!it->stopped && (it->out_head || !it->finished)) {
        it->final_code =
            sqrl_error_set(&it->final, SQRL_E_CANCELLED, "the stream was cancelled");
        sqrl_executor_stop(it);
    }
    pthread_mutex_unlock(&it->lock);
}

void sqrl_iterator_close(struct sqrl_iterator *it) {
    /* In a child of a fork the state may have been cut off anywhere: its memory is left.
     */
    if (!it || forked(it))
        return;
    pthread_mutex_lock(&it->lock);
    sqrl_executor_stop(it);
    sqrl_strands_drop(it);
    pthread_mutex_unlock(&it->lock);
    sqrl_executor_unref(it);
}

/* --- counting --- */

size_t sqrl_iterator_stats(const struct sqrl_iterator *it, struct sqrl_stage_stats *out,
                           size_t capacity) {
    static const char *const NAMES[STATS] = {"load", "assign", "fill", "consumer"};
    uint64_t total = 0;
    for (unsigned i = 0; i < STATS; i++)
        total += sqrl_stat_get(&it->stat[i].wait_ns);
    for (unsigned i = 0; i < STATS && i < capacity; i++) {
        const struct sqrl_stat_counts *s = &it->stat[i];
        out[i] = (struct sqrl_stage_stats){.name = NAMES[i],
                                           .items = sqrl_stat_get(&s->items),
                                           .bytes = sqrl_stat_get(&s->bytes),
                                           .busy_ns = sqrl_stat_get(&s->busy_ns),
                                           .wait_ns = sqrl_stat_get(&s->wait_ns)};
        out[i].wait_share =
            total ? (double)out[i].wait_ns / (double)total : 1.0 / (double)STATS;
    }
    return STATS;
}
