/* sequence.c - which chunks an iterator reads: what is known of the shards becomes an
 * order. */
#include "stream/executor.h"

#include <stdlib.h>

/* Read ahead without prefetch(): what stays in a last-level cache. */
#define AHEAD_BYTES (UINT64_C(4) << 20)
#define AHEAD_BYTES_PER_THREAD (UINT64_C(2) << 20)
/* Sequential shards are read in parallel only as far as a later one may run ahead: up to
 * a whole shard. */
#define AHEAD_BYTES_SEQUENTIAL (UINT64_C(96) << 20)
#define MAX_KEPT_BYTES (UINT64_C(256) << 20) /* of windows, for the next ones */

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

/* What is known of a shard; indexed ones that were not opened yet tell when asked. */
static int shard_facts(struct sqrl_iterator *it, uint64_t s, uint64_t nodes,
                       struct sqrl_order_shard *out, struct sqrl_error *err) {
    const struct sqrl_shard *shard = sqrl_source_shard(it->source, s);
    uint64_t samples = shard->samples, raw = shard->raw_bytes;
    bool wanted = it->kind == SQRL_ORDER_SAMPLES ? samples == SQRL_UNKNOWN
                                                 : shard->blocks == SQRL_UNKNOWN;
    *out = (struct sqrl_order_shard){shard->blocks, SQRL_UNKNOWN, samples};
    if (it->kind != SQRL_ORDER_AS_IT_LIES && wanted && shard->format &&
        shard->format->flags & SQRL_FORMAT_INDEXED) {
        struct sqrl_shard_reader *reader;
        int code = sqrl_shard_open(it->source, s, &reader, err);
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

/* Whole shards that a skip at the front passes over are not even opened. */
static void skip_shards(struct sqrl_iterator *it, struct sqrl_order_shard *shards,
                        uint64_t count) {
    struct sqrl_assign *a = &it->assign;
    uint64_t skip = 0, passed = 0, s = 0;
    for (uint32_t i = 0; i < a->ops && a->op[i].kind == OP_SKIP; i++)
        if (__builtin_add_overflow(skip, a->op[i].left, &skip))
            skip = SQRL_UNKNOWN;
    if (it->kind != SQRL_ORDER_AS_IT_LIES || !skip)
        return;
    for (; s < count; s++) {
        uint64_t samples = sqrl_source_shard(it->source, s)->samples;
        if (samples == SQRL_UNKNOWN || samples > skip - passed)
            break;
        passed += samples;
        shards[s].blocks = 0;
    }
    it->skip_done = passed;
    it->skip_first = skip - passed;
}

/* How far to read ahead without prefetch(). */
static uint64_t default_ahead(const struct sqrl_iterator *it) {
    const struct sqrl_shard *first = sqrl_source_shard(it->source, 0);
    bool indexed = first && first->format && first->format->flags & SQRL_FORMAT_INDEXED;
    if (!indexed)
        return AHEAD_BYTES_SEQUENTIAL;
    return AHEAD_BYTES + AHEAD_BYTES_PER_THREAD * sqrl_context_cpu_threads(it->context);
}

int sqrl_sequence_open(struct sqrl_iterator *it, const struct sqrl_schema *schema,
                       struct sqrl_error *err) {
    uint64_t count = sqrl_source_shards(it->source), nodes = nodes_per_sample(schema);
    struct sqrl_order_shard *shards =
        sqrl_calloc(count + 1, sizeof *shards, "order", err);
    int code = shards ? SQRL_OK : SQRL_E_NO_MEMORY;
    bool sized = true;
    for (uint64_t s = 0; s < count && !code; s++) {
        code = shard_facts(it, s, nodes, &shards[s], err);
        sized = sized && !code && shards[s].bytes != SQRL_UNKNOWN;
    }
    if (!it->limit_bytes)
        it->limit_bytes = default_ahead(it);
    if (!code) {
        skip_shards(it, shards, count);
        struct sqrl_order_args args = {.shards = shards,
                                       .count = count,
                                       .kind = it->kind,
                                       .seed = it->seed,
                                       .epoch = it->epoch,
                                       .window_bytes = it->window_cut};
        code = sqrl_order_new(&args, &it->order, err);
    }
    if (it->windowed) {
        it->limit_bytes = SQRL_MAX(it->limit_bytes, 2 * it->window_cut);
        sqrl_slab_keep(it->context, SQRL_MIN(3 * it->window_cut / 2, MAX_KEPT_BYTES));
        it->window_cut *= sized ? 2 : 1; /* the estimate decides, unless it is far off */
    }
    free(shards);
    return code;
}
