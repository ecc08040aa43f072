/* forecast.c - what a run of a plan will read, from the shards' indexes alone.
 *
 * The order is opened as for a run, and its chunks are walked without loading them: the
 * blocks of each are those that LOAD would claim.
 */
#include "stream/executor.h"
#include "stream/plan.h"

#include <stdlib.h>

struct walk {
    struct sqrl_iterator *it;
    struct sqrl_forecast *out;
    uint8_t *seen; /* [shards] */
    bool first;    /* in the first window */
};

static int next_chunk(struct sqrl_iterator *it, struct sqrl_chunk *chunk, bool *found,
                      struct sqrl_error *err) {
    *found = false;
    if (it->deal)
        return sqrl_deal_walk_next(&it->walk, chunk, found, err);
    *found = it->order && sqrl_order_next(it->order, chunk);
    return SQRL_OK;
}

static int walk_chunk(struct walk *w, const struct sqrl_chunk *chunk,
                      struct sqrl_error *err) {
    struct sqrl_forecast *out = w->out;
    struct sqrl_shard_reader *reader;
    int code = sqrl_shard_open(w->it->source, chunk->shard, &reader, err);
    if (code)
        return code;
    uint64_t total = chunk->blocks, rows = 0;
    if (!sqrl_shard_reader_indexed(reader))
        code =
            sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                           "shard %s has no index of blocks: what is read of it is not "
                           "known beforehand; pack it as native shards",
                           sqrl_source_shard(w->it->source, chunk->shard)->path);
    if (!code && total == SQRL_UNKNOWN)
        total = sqrl_shard_reader_info(reader)->blocks - chunk->first_block;
    uint64_t block = code ? 0 : sqrl_chunk_cut(reader, chunk, &total, &rows);
    for (; block < total && !code; block++) {
        struct sqrl_block_info info;
        sqrl_shard_reader_block_info(reader, chunk->first_block + block, &info);
        out->blocks++;
        out->block_bytes += info.stored_bytes;
        out->decoded_bytes += info.raw_bytes;
        out->first_blocks += w->first;
        out->first_bytes += w->first ? info.stored_bytes : 0;
    }
    out->chunks++;
    out->shards += !w->seen[chunk->shard];
    w->seen[chunk->shard] = 1;
    /* Windows that are not dealt end by what is loaded. */
    if (chunk->ends_window || !w->it->windowed ||
        (!w->it->deal && out->decoded_bytes >= w->it->window_bytes))
        w->first = false;
    sqrl_shard_reader_unref(reader);
    return code;
}

static int check(const struct sqrl_plan *plan, struct sqrl_error *err) {
    const struct sqrl_distribute_options *o = sqrl_plan_distribution(plan);
    if (!plan->limited && !(o && o->steps))
        return SQRL_OK;
    return sqrl_error_set(
        err, SQRL_E_INVALID,
        "a forecast is of whole epochs: leave out take, skip and steps");
}

int sqrl_plan_forecast(struct sqrl_plan *plan, uint64_t epoch, struct sqrl_forecast *out,
                       struct sqrl_error *err) {
    struct sqrl_iterator_options options = {.size = sizeof options, .epoch = epoch};
    struct sqrl_iterator *it = NULL;
    memset(out, 0, sizeof *out);
    int code = check(plan, err);
    if (!code)
        code = sqrl_plan_count(plan, &out->items, err);
    if (!code)
        code = sqrl_iterator_make(plan, &options, &it, err);
    if (code)
        return code;
    struct walk w = {it, out, sqrl_calloc(it->shards + 1, 1, "forecast", err), true};
    bool found = w.seen != NULL;
    code = found ? SQRL_OK : SQRL_E_NO_MEMORY;
    while (found && !code) {
        struct sqrl_chunk chunk;
        code = next_chunk(it, &chunk, &found, err);
        if (found && !code)
            code = walk_chunk(&w, &chunk, err);
    }
    out->window_bytes = it->windowed ? it->window_bytes : 0;
    free(w.seen);
    sqrl_iterator_close(it);
    return code;
}
