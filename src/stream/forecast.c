/* forecast.c - what a run of a plan will read, from the shards' indexes alone.
 *
 * The order is opened as for a run, and its chunks are walked without loading them: the
 * blocks of each are those that LOAD would claim, and the pieces those that fetch.c would
 * ask for.
 */
#include "driver/fetch.h"
#include "format/native.h"
#include "io/ahead.h"
#include "stream/executor.h"
#include "stream/plan.h"

#include <stdlib.h>

struct walk {
    struct sqrl_iterator *it;
    struct sqrl_forecast *out;
    uint8_t *seen; /* [shards] */
    uint8_t *kept; /* [shards]: its index was read */
    bool first;    /* in the first window */
    uint64_t need; /* samples that the first output takes; counted down */
};

/* What the blocks [block, total) of a chunk are fetched by: *pieces of *bytes; in *front
 * those up to the end of block `until`. */
struct stretch {
    uint64_t pieces, bytes, front, front_bytes, indexes, index_bytes;
};

static void add_pieces(uint64_t begin, uint64_t end, uint64_t from, uint64_t to,
                       uint64_t until, struct stretch *s) {
    uint64_t count = sqrl_piece_count(begin, end);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t first = sqrl_piece_begin(begin, end, i);
        uint64_t next = sqrl_piece_begin(begin, end, i + 1);
        bool opening = i + 1 == count && from == begin && to != end; /* the index */
        if ((next <= from || first >= to) && !opening)
            continue;
        s->pieces++;
        s->bytes += next - first;
        if (first < until || opening) {
            s->front++;
            s->front_bytes += next - first;
        }
    }
}

static void walk_pieces(struct walk *w, const struct sqrl_chunk *chunk,
                        struct sqrl_shard_reader *reader, uint64_t block, uint64_t total,
                        uint64_t until) {
    struct sqrl_forecast *out = w->out;
    const struct sqrl_shard *shard = sqrl_source_shard(w->it->source, chunk->shard);
    struct sqrl_block_info from, to, last;
    struct stretch s = {0};
    if (block >= total)
        return;
    until = SQRL_MAX(until, block + 1);
    sqrl_shard_reader_block_info(reader, chunk->first_block + block, &from);
    sqrl_shard_reader_block_info(reader, chunk->first_block + total - 1, &to);
    sqrl_shard_reader_block_info(reader, chunk->first_block + until - 1, &last);
    uint64_t end = to.offset + to.stored_bytes;
    bool whole = sqrl_chunk_whole(w->it->source, chunk) && !w->kept[chunk->shard];
    if (whole) {
        add_pieces(0, shard->file_bytes, 0, end, last.offset + last.stored_bytes, &s);
    } else {
        add_pieces(from.offset, end, from.offset, end, last.offset + last.stored_bytes,
                   &s);
        if (!w->kept[chunk->shard]) {
            s.indexes = 1;
            s.index_bytes = SQRL_MIN(shard->file_bytes, (uint64_t)SQRL_NATIVE_TAIL_BYTES);
        }
    }
    w->kept[chunk->shard] = 1;
    out->requests += s.pieces + s.indexes;
    out->request_bytes += s.bytes + s.index_bytes;
    if (w->first) {
        out->first_requests += s.front + s.indexes;
        out->first_request_bytes += s.front_bytes + s.index_bytes;
        out->first_rounds = SQRL_MAX(out->first_rounds, whole ? 1u : 2u);
    }
}

static int next_chunk(struct sqrl_iterator *it, struct sqrl_chunk *chunk, bool *found,
                      struct sqrl_error *err) {
    *found = false;
    if (it->deal)
        return sqrl_deal_walk_next(&it->walk, chunk, found, err);
    *found = it->order && sqrl_order_next(it->order, chunk);
    return SQRL_OK;
}

/* One that the order needed. */
static void count_index(struct walk *w, uint64_t shard) {
    uint64_t size = sqrl_source_shard(w->it->source, shard)->file_bytes;
    if (!w->it->indexes[shard])
        return;
    w->kept[shard] = 1;
    size = SQRL_MIN(size, (uint64_t)SQRL_NATIVE_TAIL_BYTES);
    w->out->requests++;
    w->out->request_bytes += size;
    w->out->first_requests++;
    w->out->first_request_bytes += size;
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
    uint64_t begin = block, until = w->it->windowed ? total : block;
    for (; block < total && !code; block++) {
        struct sqrl_block_info info;
        sqrl_shard_reader_block_info(reader, chunk->first_block + block, &info);
        out->blocks++;
        out->block_bytes += info.stored_bytes;
        out->decoded_bytes += info.raw_bytes;
        out->first_blocks += w->first;
        out->first_bytes += w->first ? info.stored_bytes : 0;
        if (w->need && !w->it->windowed)
            until = block + 1;
        w->need -= SQRL_MIN(w->need, info.samples);
    }
    if (!code)
        walk_pieces(w, chunk, reader, begin, total, until);
    out->chunks++;
    out->shards += !w->seen[chunk->shard];
    w->seen[chunk->shard] = 1;
    /* Windows that are not dealt end by what is loaded. */
    bool ended = chunk->ends_window || !w->it->windowed ||
                 (!w->it->deal && out->decoded_bytes >= w->it->window_bytes);
    if (ended && !w->need)
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
    return sqrl_plan_forecast_first(plan, epoch, 0, out, err);
}

int sqrl_plan_forecast_first(struct sqrl_plan *plan, uint64_t epoch, uint64_t first,
                             struct sqrl_forecast *out, struct sqrl_error *err) {
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
    struct walk w = {it, out, NULL, NULL, true, 1};
    w.seen = sqrl_calloc(it->shards + 1, 2, "forecast", err);
    w.kept = w.seen ? w.seen + it->shards + 1 : NULL;
    for (uint64_t s = 0; w.seen && it->indexes && s < it->shards; s++)
        count_index(&w, s);
    if (it->batch)
        w.need = it->batch->batching.options.batch_size;
    w.need = SQRL_MAX(first ? first : w.need, 1u);
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
