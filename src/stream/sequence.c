/* sequence.c - which chunks an iterator reads: what is known of the shards becomes an
 * order. */
#include "stream/executor.h"
#include "driver/fetch.h"
#include "stream/plan.h"
#include "stream/state.h"

#include <stdlib.h>

/* Read ahead without prefetch(): what stays in a last-level cache. */
#define AHEAD_BYTES (UINT64_C(4) << 20)
#define AHEAD_BYTES_PER_THREAD (UINT64_C(2) << 20)
/* Sequential shards are read in parallel only as far as a later one may run ahead: up to
 * a whole shard. */
#define AHEAD_BYTES_SEQUENTIAL (UINT64_C(96) << 20)
#define UNITS_PER_WINDOW 16u
#define MAX_UNIT_BYTES (UINT64_C(64) << 20)
#define DEALT_BLOCK_BYTES                                                                \
    (UINT64_C(5) << 18) /* of a block that does not tell its size                        \
                         */
#define MAX_WINDOW_BYTES (UINT64_C(1) << 40)
#define MAX_KEPT_BYTES (UINT64_C(256) << 20) /* of windows, for later iterators */

/* Nodes that a sample takes on the tape, from its schema. */
static uint64_t nodes_per_sample(const struct sqrl_schema *schema) {
    uint64_t nodes = 1;
    if (!schema)
        return 8;
    for (uint32_t i = 0; i < schema->count; i++) {
        const struct sqrl_field *f = &schema->fields[i];
        nodes += 2; /* key and value */
        if (f->kind == SQRL_KIND_OTHER)
            nodes += 8;
        else if (f->kind == SQRL_KIND_RAGGED && f->python_number)
            nodes += f->shape[0] / 2;
        else if (!f->python_number &&
                 (f->kind == SQRL_KIND_DENSE || f->kind == SQRL_KIND_RAGGED))
            nodes += 1 + f->dims;
    }
    return nodes;
}

int sqrl_index_open(struct sqrl_iterator *it, uint64_t shard,
                    struct sqrl_shard_reader **out, struct sqrl_error *err) {
    if (!it->indexes)
        it->indexes = sqrl_calloc(it->shards + 1, 1, "order", err);
    if (!it->indexes)
        return SQRL_E_NO_MEMORY;
    it->indexes[shard] = 1;
    return sqrl_shard_open(it->source, shard, out, err);
}

/* What is known of a shard; indexed ones that were not opened yet tell when asked. */
static int shard_facts(struct sqrl_iterator *it, uint64_t s, uint64_t nodes,
                       struct sqrl_order_shard *out, struct sqrl_error *err) {
    const struct sqrl_shard *shard = sqrl_source_shard(it->source, s);
    uint64_t samples = shard->samples, raw = shard->raw_bytes;
    bool wanted = it->kind == SQRL_ORDER_SAMPLES ? samples == SQRL_UNKNOWN
                                                 : shard->blocks == SQRL_UNKNOWN;
    *out = (struct sqrl_order_shard){shard->blocks, SQRL_UNKNOWN, samples};
    if ((it->kind != SQRL_ORDER_AS_IT_LIES || it->plan->distributed) && wanted &&
        shard->format && shard->format->flags & SQRL_FORMAT_INDEXED) {
        struct sqrl_shard_reader *reader;
        if (!it->indexes)
            sqrl_source_open_ahead(it->source, s, it->shards);
        int code = sqrl_index_open(it, s, &reader, err);
        if (code)
            return code;
        const struct sqrl_shard_info *info = sqrl_shard_reader_info(reader);
        if (sqrl_shard_reader_indexed(reader)) {
            out->blocks = info->blocks;
            out->samples = samples = info->samples;
            raw = info->raw_bytes;
        }
        sqrl_shard_reader_unref(reader);
    }
    if (samples != SQRL_UNKNOWN && raw != SQRL_UNKNOWN)
        out->bytes =
            raw + samples * (nodes * sizeof(struct sqrl_node) + sizeof(uint32_t));
    return SQRL_OK;
}

/* Whole shards that a skip at the front passes over are not even opened: how many chunks
 * they are. */
static uint64_t skip_shards(struct sqrl_iterator *it,
                            const struct sqrl_order_shard *shards, uint64_t count) {
    struct sqrl_assign *a = &it->assign;
    uint64_t skip = 0, passed = 0, chunks = 0, s = 0;
    for (uint32_t i = 0; i < a->ops && a->op[i].kind == OP_SKIP; i++)
        if (__builtin_add_overflow(skip, a->op[i].left, &skip))
            skip = SQRL_UNKNOWN;
    if (it->kind != SQRL_ORDER_AS_IT_LIES || !skip)
        return 0;
    for (; s < count; s++) {
        uint64_t samples = sqrl_source_shard(it->source, s)->samples;
        if (samples == SQRL_UNKNOWN || samples > skip - passed)
            break;
        passed += samples;
        chunks += shards[s].blocks != 0;
    }
    it->skip_done = passed;
    it->skip_first = skip - passed;
    return chunks;
}

/* How far to read ahead without prefetch(). */
static uint64_t default_ahead(const struct sqrl_iterator *it) {
    const struct sqrl_shard *first = sqrl_source_shard(it->source, 0);
    bool indexed = first && first->format && first->format->flags & SQRL_FORMAT_INDEXED;
    if (!indexed)
        return AHEAD_BYTES_SEQUENTIAL;
    return AHEAD_BYTES + AHEAD_BYTES_PER_THREAD * sqrl_context_cpu_threads(it->context);
}

/* Where shards have owners: the consumer's own chunks are kept, all for itself; *quota is
 * what it gives of them. */
static int keep_own(struct sqrl_iterator *it, const struct sqrl_distribute_options *o,
                    uint64_t consumers, uint64_t consumer, struct sqrl_deal_args *args,
                    uint64_t *quota, struct sqrl_error *err) {
    uint64_t kept = 0;
    int code = sqrl_plan_check_owners(it->plan, it->shards, o, consumers, err);
    uint64_t *samples = sqrl_calloc(consumers, sizeof *samples, "order", err);
    if (code || !samples) {
        free(samples);
        return code ? code : SQRL_E_NO_MEMORY;
    }
    for (uint64_t u = 0; u < args->count; u++) {
        const struct sqrl_unit unit = args->units[u];
        samples[o->owner[unit.shard]] += unit.samples;
        if (o->owner[unit.shard] == consumer)
            args->units[kept++] = unit;
    }
    args->count = kept;
    args->like = 1;
    *quota = sqrl_split_quota(samples, consumers, consumer, o->tail);
    free(samples);
    if (kept || !*quota)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "split: consumer %llu of %llu has no shard, so that it can't "
                          "give as many samples as the others: use tail=\"drop\" or "
                          "\"uneven\"",
                          (unsigned long long)consumer, (unsigned long long)consumers);
}

/* The consumer's share of the counted chunks. */
static int open_deal(struct sqrl_iterator *it, const struct sqrl_order_shard *shards,
                     struct sqrl_states *states, struct sqrl_error *err) {
    const struct sqrl_distribute_options *o = sqrl_plan_distribution(it->plan);
    struct sqrl_topology t;
    struct sqrl_deal_args args = {.kind = it->kind,
                                  .seed = it->seed,
                                  .epoch = it->epoch,
                                  .window_bytes = it->window_bytes};
    int code = sqrl_plan_topology(o, &t, err);
    uint64_t *bytes = sqrl_calloc(it->shards + 1, sizeof *bytes, "order", err);
    if (!code && !bytes)
        code = SQRL_E_NO_MEMORY;
    for (uint64_t s = 0; s < it->shards && !code; s++)
        bytes[s] = shards[s].bytes == SQRL_UNKNOWN || shards[s].blocks == SQRL_UNKNOWN
                       ? DEALT_BLOCK_BYTES
                       : shards[s].bytes / SQRL_MAX(shards[s].blocks, 1u);
    uint64_t want = it->kind == SQRL_ORDER_SAMPLES ? MAX_UNIT_BYTES
                                                   : it->window_bytes / UNITS_PER_WINDOW;
    if (!code)
        code = sqrl_units_collect(it, bytes, SQRL_MIN(want, MAX_UNIT_BYTES), &args.units,
                                  &args.count, err);
    args.shard_bytes = bytes;
    uint64_t consumers = t.world_size * t.workers;
    uint64_t consumer = t.worker * t.world_size + t.rank;
    uint64_t quota = SQRL_UNKNOWN;
    args.like = o->like ? o->like : consumers;
    if (!code && o->owner) {
        code = keep_own(it, o, consumers, consumer, &args, &quota, err);
        consumers = 1;
        consumer = 0;
    }
    if (states && states->state->dealt)
        args.like = states->state->share.like;
    if (!code && (!args.like || args.like > SQRL_MAX_CONSUMERS))
        code = sqrl_error_set(err, SQRL_E_CORRUPT, "the state's share is wrong");
    if (!code)
        code = sqrl_deal_new(&args, &it->deal, err);
    else
        free(args.units);
    if (!code)
        code = states ? sqrl_states_apply(it, states, consumers, consumer, err)
                      : sqrl_deal_share(it->deal, consumers, consumer, o->tail,
                                        o->steps > 0, &it->share, err);
    free(bytes);
    if (code)
        return code;
    if (o->owner && !states && !o->steps)
        it->share.quota = quota;
    sqrl_deal_walk_init(&it->walk, it->deal, &it->share);
    sqrl_dealer_init(&it->assign.dealer, it->deal, &it->share);
    it->assign.pass = it->share.pass;
    it->assign.pass_rows = states ? SQRL_UNKNOWN : 0; /* what came before counts, too */
    return SQRL_OK;
}

/* Memory for windows, beyond what the budget has room for anyway. While one is consumed
 * the next is read: from far away all of it, from this machine's files half. */
static void open_windows(struct sqrl_iterator *it, bool sized) {
    uint64_t window = SQRL_MIN(it->window_cut, MAX_WINDOW_BYTES);
    bool half = window > SQRL_DEFAULT_WINDOW_BYTES && sqrl_source_local(it->source);
    uint64_t need = window + (half ? window / 2 : window);
    it->limit_bytes = SQRL_MAX(it->limit_bytes, need);
    it->budget_widened = need - SQRL_MIN(need, 2 * SQRL_DEFAULT_WINDOW_BYTES);
    sqrl_budget_widen(it->context, it->budget_widened);
    uint64_t idle = window / 2 * 3;
    sqrl_slab_keep(it->context, SQRL_MIN(idle, MAX_KEPT_BYTES));
    it->slabs_held = (size_t)idle;
    sqrl_slab_hold(it->context, it->slabs_held);
    if (it->deal)
        it->window_cut = UINT64_MAX; /* windows end where they were planned to */
    else                             /* the estimate decides, unless it is far off */
        it->window_cut *= sized ? 2 : 1;
}

int sqrl_sequence_open(struct sqrl_iterator *it, const struct sqrl_schema *schema,
                       struct sqrl_states *states, struct sqrl_error *err) {
    uint64_t count = it->shards, skipped = 0;
    it->nodes = states ? states->state->nodes : nodes_per_sample(schema);
    struct sqrl_order_shard *shards =
        sqrl_calloc(count + 1, sizeof *shards, "order", err);
    int code = shards ? SQRL_OK : SQRL_E_NO_MEMORY;
    bool sized = true;
    for (uint64_t s = 0; s < count && !code; s++) {
        code = shard_facts(it, s, it->nodes, &shards[s], err);
        sized = sized && !code && shards[s].bytes != SQRL_UNKNOWN;
    }
    if (!it->limit_bytes)
        it->limit_bytes = default_ahead(it);
    it->window_cut = it->window_bytes;
    if (!code && it->plan->distributed) {
        code = open_deal(it, shards, states, err);
    } else if (!code) {
        if (!states)
            skipped = skip_shards(it, shards, count);
        struct sqrl_order_args args = {.shards = shards,
                                       .count = count,
                                       .kind = it->kind,
                                       .seed = it->seed,
                                       .epoch = it->epoch,
                                       .window_bytes = it->window_cut};
        code = sqrl_order_new(&args, &it->order, err);
        if (!code && skipped)
            sqrl_order_seek(it->order, skipped);
        if (!code && states)
            code = sqrl_states_apply(it, states, 1, 0, err);
    }
    if (it->windowed)
        open_windows(it, sized);
    it->remote = !sqrl_source_local(it->source);
    sqrl_fetch_limits(it);
    free(shards);
    return code;
}
