/* strand.c - which block is loaded next, and which comes next.
 *
 * Claims go strictly along the sequence: a strand further back gets a block only when
 * those in front of it have all the blocks they may have. load_from is the first strand
 * that may still have something to claim.
 */
#include "io/ahead.h"
#include "stream/executor.h"

#include <stdlib.h>

#define MIN_BLOCK_BYTES 4096u

/* --- budget --- */

static bool grant(struct sqrl_iterator *it, uint64_t bytes, bool force, bool only_look) {
    if (!force && sqrl_account_ahead(it->account) + bytes > it->limit_bytes)
        return false;
    if (!only_look)
        return sqrl_account_charge(it->account, bytes, force);
    return force ||
           sqrl_budget_used(it->context) + bytes <= sqrl_budget_limit(it->context);
}

/* --- claiming --- */

static bool claimed_all(const struct sqrl_strand *s) {
    return s->state == STRAND_ENDED ||
           (s->state == STRAND_OPEN && s->indexed && s->claimed == s->total);
}

static uint64_t estimate(const struct sqrl_iterator *it, const struct sqrl_strand *s) {
    struct sqrl_block_info info;
    if (!s->indexed)
        return it->block_estimate;
    sqrl_shard_reader_block_info(s->reader, s->first_block + s->claimed, &info);
    if (!info.raw_bytes || info.raw_bytes == SQRL_UNKNOWN)
        return it->block_estimate;
    uint64_t bytes = info.raw_bytes / 100 * it->ratio_percent;
    return SQRL_MAX(bytes, info.raw_bytes + MIN_BLOCK_BYTES);
}

/* Nothing of the strand is loaded or being loaded. */
static bool bare(const struct sqrl_strand *s) {
    return s->claimed == s->taken;
}

static bool claim_block(struct sqrl_iterator *it, struct sqrl_strand *s,
                        struct sqrl_job *job, bool only_look) {
    if (s->state != STRAND_OPEN || s->busy || claimed_all(s) ||
        s->claimed - s->taken >= STRAND_ROOM || !sqrl_fetch_there(s))
        return false;
    /* Until the columns are fixed, only the head of the line is read. */
    if (it->batch && !it->columns && (it->loading || s != it->head || !bare(s)))
        return false;
    uint64_t bytes = estimate(it, s);
    if (!grant(it, bytes, s == it->head && bare(s), only_look))
        return false;
    if (only_look)
        return true;
    *job = (struct sqrl_job){
        .kind = JOB_LOAD, .strand = s, .block = s->claimed, .estimate = bytes};
    s->claimed++;
    s->loading++;
    s->busy = !s->indexed;
    it->loading++;
    return true;
}

struct sqrl_strand *sqrl_strand_add(struct sqrl_iterator *it) {
    struct sqrl_chunk chunk;
    if (it->order_ended || it->strands >= MAX_STRANDS)
        return NULL;
    bool more;
    if (!it->deal)
        more = sqrl_order_next(it->order, &chunk);
    else if (sqrl_deal_walk_next(&it->walk, &chunk, &more, NULL))
        it->order_failed = true;
    if (!more) {
        it->order_ended = true;
        return NULL;
    }
    struct sqrl_strand *s = calloc(1, sizeof *s);
    if (!s) { /* ends the stream in its place: see assign.c */
        it->order_ended = it->order_failed = true;
        return NULL;
    }
    s->chunk = chunk;
    s->skip = it->skip_first;
    it->skip_first = 0;
    s->chunk.first_row += it->resume_row;
    if (s->chunk.rows != SQRL_UNKNOWN)
        s->chunk.rows -= SQRL_MIN(it->resume_row, s->chunk.rows);
    it->resume_row = 0;
    *it->tail = s;
    it->tail = &s->next;
    it->strands++;
    if (!it->load_from)
        it->load_from = s;
    if (!it->fetch_from)
        it->fetch_from = s;
    return s;
}

static bool claim_open(struct sqrl_iterator *it, struct sqrl_strand *s,
                       struct sqrl_job *job, bool only_look) {
    if (s->state != STRAND_NEW || it->remote)
        return false;
    if (!only_look) {
        *job = (struct sqrl_job){.kind = JOB_OPEN, .strand = s};
        s->state = STRAND_OPENING;
    }
    return true;
}

bool sqrl_strand_claim(struct sqrl_iterator *it, struct sqrl_job *job, bool only_look) {
    if (it->finished || it->stopped || it->parked)
        return false;
    while (it->load_from && claimed_all(it->load_from))
        it->load_from = it->load_from->next;
    unsigned active = 0;
    for (struct sqrl_strand *s = it->load_from; s; s = s->next) {
        if (claim_open(it, s, job, only_look) || claim_block(it, s, job, only_look))
            return true;
        active += !claimed_all(s);
        if (active > it->workers)
            return false;
    }
    if (it->order_ended || it->strands >= MAX_STRANDS || it->remote)
        return false;
    /* Running ahead is for as long as there is memory for it. */
    if (it->head && sqrl_account_ahead(it->account) >= it->limit_bytes)
        return false;
    if (only_look)
        return true;
    struct sqrl_strand *s = sqrl_strand_add(it);
    return s && claim_open(it, s, job, false);
}

/* --- taking --- */

static bool complete(const struct sqrl_strand *s) {
    return (s->state == STRAND_ENDED || (s->state == STRAND_OPEN && s->indexed)) &&
           s->taken == s->total && !s->loading && !s->fetching;
}

static void drop_head(struct sqrl_iterator *it) {
    struct sqrl_strand *s = it->head;
    if (it->load_from == s)
        it->load_from = s->next;
    if (it->fetch_from == s)
        it->fetch_from = s->next;
    sqrl_ahead_free(sqrl_fetch_detach(it, s));
    it->head = s->next;
    if (!it->head)
        it->tail = &it->head;
    it->strands--;
    sqrl_shard_reader_unref(s->reader);
    free(s);
}

/* Plain lines are loaded in any order: their numbers are known when the block's turn
 * comes. */
static void count_rows(struct sqrl_strand *s, struct sqrl_loaded *loaded) {
    if (loaded->first == SQRL_UNKNOWN && s->rows != SQRL_UNKNOWN) {
        loaded->first = s->rows;
        if (loaded->block)
            loaded->block->first = s->rows;
    }
    if (s->rows != SQRL_UNKNOWN)
        s->rows += loaded->count;
}

/* Which of its rows are the chunk's part that counts. */
static void place_rows(struct sqrl_strand *s, struct sqrl_loaded *loaded) {
    const struct sqrl_chunk *chunk = &s->chunk;
    uint64_t begin = s->passed, end = begin + loaded->count;
    uint64_t from = SQRL_MAX(chunk->first_row, begin), to = end;
    if (chunk->rows != SQRL_UNKNOWN)
        to = SQRL_MIN(end, chunk->first_row + chunk->rows);
    loaded->chunk = chunk->number;
    loaded->chunk_row = begin;
    loaded->from = from < end ? (uint32_t)(from - begin) : loaded->count;
    loaded->to = to > from ? (uint32_t)(to - begin) : loaded->from;
    s->passed = end;
}

enum sqrl_take sqrl_strand_take(struct sqrl_iterator *it, struct sqrl_loaded **out) {
    *out = NULL;
    while (it->head) {
        struct sqrl_strand *s = it->head;
        if (complete(s)) {
            bool window_end = s->chunk.ends_window;
            if (s->chunk.rows != SQRL_UNKNOWN &&
                s->passed < s->chunk.first_row + s->chunk.rows) {
                it->order_short = true;
                return TAKE_END;
            }
            drop_head(it);
            if (window_end)
                return TAKE_WINDOW_END;
            continue;
        }
        struct sqrl_loaded **slot = &s->done[s->taken % STRAND_ROOM];
        if (!*slot)
            return TAKE_LATER;
        *out = *slot;
        *slot = NULL;
        s->taken++;
        count_rows(s, *out);
        place_rows(s, *out);
        if ((*out)->from < (*out)->to || (*out)->code)
            return TAKE_BLOCK;
        sqrl_loaded_unref(*out);
        *out = NULL;
    }
    return it->order_ended ? TAKE_END : TAKE_LATER;
}

bool sqrl_strand_ready(const struct sqrl_iterator *it) {
    const struct sqrl_strand *s = it->head;
    if (!s)
        return it->order_ended;
    return complete(s) || s->done[s->taken % STRAND_ROOM];
}

void sqrl_strands_drop(struct sqrl_iterator *it) {
    for (struct sqrl_strand *s = it->head; s; s = s->next) {
        for (uint32_t i = 0; i < STRAND_ROOM; i++) {
            sqrl_loaded_unref(s->done[i]);
            s->done[i] = NULL;
        }
        if (it->remote)
            sqrl_ahead_free(sqrl_fetch_end(it, s));
    }
}

void sqrl_strands_free(struct sqrl_iterator *it) {
    sqrl_strands_drop(it);
    while (it->head)
        drop_head(it);
}
