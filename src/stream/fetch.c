/* fetch.c - remote shards: their bytes are on the way before LOAD asks for them.
 *
 * A strand's stretch of its file is cut into pieces (io/ahead.h), which I/O threads read
 * in the order of the sequence, many at a time; LOAD gets a block only when the pieces it
 * lies in are there, so CPU threads don't wait for the network. A strand that is a whole
 * shard of known size needs no index for that: its pieces are asked for while its index
 * is read, which lies in one of them. Of others the index is read first.
 *
 * Pieces are charged to the budget from the claim until the last block in them is loaded.
 * They have a limit of their own and leave the budget room for the blocks they become.
 * What the head of the line needs next is always granted. */
#include <stdlib.h>

#include "driver/fetch.h"
#include "io/ahead.h"
#include "stream/executor.h"
#include "stream/plan.h"

#define MOST_AHEAD (UINT64_C(128) << 20)
#define LEAST_AHEAD (UINT64_C(16) << 20)
#define OTHER_BYTES                                                                      \
    (UINT64_C(16) << 20)               /* slots, outputs, what is being decompressed     \
                                        */
#define NEAR_BYTES (UINT64_C(1) << 20) /* that a sequential reader wants at a time */
#define EXTRA_OPENS                                                                      \
    8u /* strands whose index may be read before there is room for more                  \
        */

/* Plans that take a part begin with little, and what they use up doubles it. */
void sqrl_fetch_limits(struct sqrl_iterator *it) {
    uint64_t budget = sqrl_budget_limit(it->context);
    uint64_t others = SQRL_MIN(it->limit_bytes, budget) + OTHER_BYTES;
    uint64_t left = budget > others ? budget - others : 0;
    it->fetch_most = SQRL_MAX(SQRL_MIN(left, MOST_AHEAD), LEAST_AHEAD);
    it->fetch_limit = it->plan->limited ? LEAST_AHEAD : it->fetch_most;
    if (!it->remote)
        return;
    it->slabs_held +=
        (size_t)it->fetch_most; /* what one wave gives back the next takes */
    sqrl_slab_hold(it->context, (size_t)it->fetch_most);
}

static bool grant(struct sqrl_iterator *it, uint64_t bytes, bool force, bool only_look) {
    uint64_t limit = sqrl_budget_limit(it->context);
    uint64_t blocks = SQRL_MIN(it->limit_bytes, limit / 4);
    blocks -= SQRL_MIN(blocks, sqrl_account_ahead(it->account));
    if (!force && (sqrl_account_ahead(it->fetching) + bytes > it->fetch_limit ||
                   sqrl_budget_used(it->context) + bytes + blocks > limit))
        return false;
    return only_look || sqrl_account_charge(it->fetching, bytes, force);
}

/* --- what a strand needs --- */

bool sqrl_chunk_whole(const struct sqrl_source *source, const struct sqrl_chunk *chunk) {
    const struct sqrl_shard *shard = sqrl_source_shard(source, chunk->shard);
    return chunk->first_block == 0 && chunk->first_row == 0 &&
           chunk->rows == SQRL_UNKNOWN &&
           (chunk->blocks == SQRL_UNKNOWN || chunk->blocks == shard->blocks) &&
           shard->file_bytes && shard->file_bytes != SQRL_SIZE_UNKNOWN &&
           !sqrl_source_subset_of(source);
}

static bool whole(const struct sqrl_iterator *it, const struct sqrl_strand *s) {
    return !s->skip && sqrl_chunk_whole(it->source, &s->chunk);
}

/* The piece in which the shard's index lies, or its beginning, where opening reads. */
static uint64_t opening_piece(const struct sqrl_iterator *it, const struct sqrl_strand *s,
                              uint64_t pieces) {
    const struct sqrl_shard *shard = sqrl_source_shard(it->source, s->chunk.shard);
    return shard->format->flags & SQRL_FORMAT_TAIL ? pieces - 1 : 0;
}

static uint64_t opening_bytes(const struct sqrl_iterator *it,
                              const struct sqrl_strand *s) {
    uint64_t size = sqrl_source_shard(it->source, s->chunk.shard)->file_bytes;
    uint64_t piece = opening_piece(it, s, sqrl_piece_count(0, size));
    return sqrl_piece_begin(0, size, piece + 1) - sqrl_piece_begin(0, size, piece);
}

static uint64_t piece_bytes(const struct sqrl_strand *s, uint64_t piece) {
    return sqrl_ahead_begin(s->ahead, piece + 1) - sqrl_ahead_begin(s->ahead, piece);
}

static void block_range(const struct sqrl_strand *s, uint64_t block, uint64_t *begin,
                        uint64_t *end) {
    struct sqrl_block_info info;
    sqrl_shard_reader_block_info(s->reader, s->first_block + block, &info);
    *begin = info.offset;
    *end = info.offset + info.stored_bytes;
}

bool sqrl_fetch_there(struct sqrl_strand *s) {
    uint64_t begin, end;
    if (!s->ahead)
        return true;
    if (s->indexed) {
        block_range(s, s->claimed, &begin, &end);
    } else {
        begin = sqrl_ahead_reached(s->ahead);
        end = begin + NEAR_BYTES;
    }
    return sqrl_ahead_settled(s->ahead, begin, end - begin);
}

/* Where that which the strand's consumer waits for ends. */
static uint64_t needed_end(const struct sqrl_strand *s) {
    uint64_t begin, end = 0;
    if (s->state != STRAND_OPEN)
        return sqrl_ahead_begin(s->ahead, 0) + 1;
    if (!s->indexed)
        return sqrl_ahead_reached(s->ahead) + NEAR_BYTES;
    if (s->claimed < s->total)
        block_range(s, s->claimed, &begin, &end);
    return end;
}

/* --- claiming --- */

/* Moves on to the next piece that is to be fetched; false when there is none. */
static bool unbegun(struct sqrl_strand *s) {
    if (!s->ahead || s->state == STRAND_ENDED)
        return false;
    uint64_t pieces = sqrl_ahead_pieces(s->ahead);
    while (s->next_piece < pieces &&
           (s->use[s->next_piece].begun || (s->counted && !s->use[s->next_piece].blocks)))
        s->next_piece++;
    return s->next_piece < pieces;
}

static void begin_piece(struct sqrl_strand *s, uint64_t piece) {
    s->use[piece].begun = true;
    s->use[piece].charged = piece_bytes(s, piece);
}

static bool claim_piece(struct sqrl_iterator *it, struct sqrl_strand *s,
                        struct sqrl_job *job, bool only_look) {
    if (!unbegun(s))
        return false;
    uint64_t piece = s->next_piece, bytes = piece_bytes(s, piece);
    bool force = s == it->head && sqrl_ahead_begin(s->ahead, piece) < needed_end(s);
    if (!grant(it, bytes, force, only_look))
        return false;
    if (only_look)
        return true;
    *job = (struct sqrl_job){.kind = JOB_FETCH, .strand = s, .block = piece};
    begin_piece(s, piece);
    s->charged += bytes;
    s->fetching++;
    s->next_piece++;
    return true;
}

/* Another strand of the shard is about to read its index. */
static bool opening_elsewhere(const struct sqrl_iterator *it,
                              const struct sqrl_strand *strand) {
    for (const struct sqrl_strand *s = it->head; s != strand; s = s->next)
        if (s->state == STRAND_OPENING && s->chunk.shard == strand->chunk.shard)
            return true;
    return false;
}

static bool claim_open(struct sqrl_iterator *it, struct sqrl_strand *s,
                       struct sqrl_job *job, bool only_look) {
    if (s->state != STRAND_NEW || opening_elsewhere(it, s))
        return false;
    uint64_t bytes = whole(it, s) ? opening_bytes(it, s) : 0;
    if (!grant(it, bytes, s == it->head, only_look))
        return false;
    if (!only_look) {
        *job = (struct sqrl_job){.kind = JOB_OPEN, .strand = s, .estimate = bytes};
        s->state = STRAND_OPENING;
        s->charged = bytes;
        s->fetching++;
    }
    return true;
}

static bool fetched_all(struct sqrl_strand *s) {
    return s->state == STRAND_ENDED || (s->state == STRAND_OPEN && !unbegun(s));
}

bool sqrl_fetch_claim(struct sqrl_iterator *it, struct sqrl_job *job, bool only_look) {
    if (it->finished || it->stopped)
        return false;
    while (it->fetch_from && fetched_all(it->fetch_from))
        it->fetch_from = it->fetch_from->next;
    bool refused = false; /* no room for a piece: what lies behind may only be opened */
    unsigned behind = 0;
    for (struct sqrl_strand *s = it->fetch_from; s; s = s->next) {
        bool fresh = s->state == STRAND_NEW;
        if (claim_open(it, s, job, only_look) ||
            (!refused && claim_piece(it, s, job, only_look)))
            return true;
        refused = refused || fresh || unbegun(s);
        behind += refused;
        if (behind > EXTRA_OPENS)
            return false;
    }
    if (it->order_ended || refused || it->strands >= MAX_STRANDS ||
        (it->head && sqrl_account_ahead(it->fetching) >= it->fetch_limit))
        return false;
    if (only_look)
        return true;
    struct sqrl_strand *s = sqrl_strand_add(it);
    return s && claim_open(it, s, job, false);
}

/* --- letting go --- */

static bool loaded_all(const struct sqrl_strand *s) {
    return !s->loading &&
           (s->state == STRAND_ENDED ||
            (s->state == STRAND_OPEN && s->indexed && s->claimed == s->total));
}

struct sqrl_ahead *sqrl_fetch_end(struct sqrl_iterator *it, struct sqrl_strand *s) {
    bool over = it->finished || it->stopped;
    if (s->fetching || s->loading || !(over || loaded_all(s)))
        return NULL;
    return sqrl_fetch_detach(it, s);
}

struct sqrl_ahead *sqrl_fetch_detach(struct sqrl_iterator *it, struct sqrl_strand *s) {
    struct sqrl_ahead *ahead = s->ahead;
    if (s->charged)
        sqrl_account_uncharge(it->fetching, s->charged);
    s->charged = 0;
    s->ahead = NULL;
    free(s->use);
    s->use = NULL;
    return ahead;
}

static void drop_piece(struct sqrl_iterator *it, struct sqrl_strand *s, uint64_t piece) {
    struct sqrl_piece_use *use = &s->use[piece];
    sqrl_ahead_drop(s->ahead, piece);
    sqrl_account_uncharge(it->fetching, use->charged);
    if (it->fetch_limit < it->fetch_most)
        it->fetch_limit = SQRL_MIN(it->fetch_limit + 2 * use->charged, it->fetch_most);
    s->charged -= use->charged;
    use->charged = 0;
}

void sqrl_fetch_used(struct sqrl_iterator *it, struct sqrl_strand *s, uint64_t block) {
    uint64_t begin, end;
    if (!s->ahead)
        return;
    if (!s->indexed) {
        uint64_t reached = sqrl_ahead_reached(s->ahead);
        uint64_t pieces = sqrl_ahead_pieces(s->ahead);
        for (;
             s->dropped < pieces && sqrl_ahead_begin(s->ahead, s->dropped + 1) <= reached;
             s->dropped++)
            if (s->use[s->dropped].charged)
                drop_piece(it, s, s->dropped);
        return;
    }
    block_range(s, block, &begin, &end);
    uint64_t last = sqrl_ahead_find(s->ahead, SQRL_MAX(end, 1u) - 1);
    for (uint64_t i = sqrl_ahead_find(s->ahead, begin); i <= last; i++)
        if (s->use[i].blocks && --s->use[i].blocks == 0 && s->use[i].charged)
            drop_piece(it, s, i);
}

/* The network is asked again, past what was read ahead. */
void sqrl_fetch_forget(struct sqrl_strand *s, uint64_t block) {
    uint64_t begin, end;
    if (!s->ahead || !s->indexed)
        return;
    block_range(s, block, &begin, &end);
    uint64_t last = sqrl_ahead_find(s->ahead, SQRL_MAX(end, 1u) - 1);
    for (uint64_t i = sqrl_ahead_find(s->ahead, begin); i <= last; i++)
        sqrl_ahead_drop(s->ahead, i);
}

/* --- the jobs --- */

void sqrl_fetch_piece(struct sqrl_iterator *it, const struct sqrl_job *job) {
    struct sqrl_strand *s = job->strand;
    sqrl_ahead_read(s->ahead, job->block, &it->cancel);
    pthread_mutex_lock(&it->lock);
    s->fetching--;
    struct sqrl_ahead *ahead = sqrl_fetch_end(it, s);
    pthread_mutex_unlock(&it->lock);
    sqrl_ahead_free(ahead);
}

/* Pieces of [begin, end) for the strand. Lock not held; OPENING strands are this job's.
 */
static int make_pieces(struct sqrl_iterator *it, struct sqrl_strand *s,
                       struct sqrl_file *file, uint64_t begin, uint64_t end,
                       bool by_opening, struct sqrl_error *err) {
    struct sqrl_ahead *ahead = NULL;
    uint64_t pieces = sqrl_piece_count(begin, end);
    struct sqrl_piece_use *use = sqrl_calloc(pieces, sizeof *use, "reading ahead", err);
    int code = use ? sqrl_ahead_new(file, begin, end, &ahead, err) : SQRL_E_NO_MEMORY;
    if (code) {
        free(use);
        return code;
    }
    pthread_mutex_lock(&it->lock);
    s->ahead = ahead;
    s->use = use;
    if (by_opening) { /* it was charged with the claim */
        uint64_t piece = opening_piece(it, s, pieces), claimed = s->charged;
        begin_piece(s, piece);
        s->charged = use[piece].charged;
        if (s->charged > claimed)
            (void)sqrl_account_charge(it->fetching, s->charged - claimed, true);
        else
            sqrl_account_uncharge(it->fetching, claimed - s->charged);
        sqrl_fetch_kick(it);
    }
    pthread_mutex_unlock(&it->lock);
    return SQRL_OK;
}

static int open_whole(struct sqrl_iterator *it, struct sqrl_strand *s,
                      struct sqrl_shard_reader **reader, struct sqrl_error *err) {
    struct sqrl_file *file = NULL;
    int code = sqrl_shard_open_file(it->source, s->chunk.shard, &file, err);
    if (!code && sqrl_file_size(file) && sqrl_file_size(file) != SQRL_SIZE_UNKNOWN)
        code = make_pieces(it, s, file, 0, sqrl_file_size(file), true, err);
    if (!code && s->ahead) /* here, not by the parser: this can be cancelled */
        sqrl_ahead_read(s->ahead, opening_piece(it, s, sqrl_ahead_pieces(s->ahead)),
                        &it->cancel);
    if (!code && sqrl_cancel_requested(&it->cancel))
        code = sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
    if (!code)
        code = sqrl_shard_open_in(it->source, s->chunk.shard, file, reader, err);
    sqrl_file_unref(file);
    return code;
}

int sqrl_fetch_open(struct sqrl_iterator *it, const struct sqrl_job *job,
                    struct sqrl_shard_reader **reader, struct sqrl_error *err) {
    struct sqrl_strand *s = job->strand;
    int code = sqrl_shard_open_kept(it->source, s->chunk.shard, reader, err);
    if (*reader && job->estimate) { /* its index is not in a piece any more */
        pthread_mutex_lock(&it->lock);
        sqrl_account_uncharge(it->fetching, s->charged);
        s->charged = 0;
        pthread_mutex_unlock(&it->lock);
    }
    if (!code && !*reader)
        code = job->estimate ? open_whole(it, s, reader, err)
                             : sqrl_shard_open(it->source, s->chunk.shard, reader, err);
    return code;
}

/* Adds 1 to the pieces of each block. */
static void count_blocks(const struct sqrl_strand *s, struct sqrl_shard_reader *reader,
                         uint64_t from, uint64_t to, uint32_t *blocks) {
    for (uint64_t b = from; b < to; b++) {
        struct sqrl_block_info info;
        sqrl_shard_reader_block_info(reader, b, &info);
        uint64_t end = SQRL_MAX(info.offset + info.stored_bytes, 1u);
        uint64_t last = sqrl_ahead_find(s->ahead, end - 1);
        for (uint64_t i = sqrl_ahead_find(s->ahead, info.offset); i <= last; i++)
            blocks[i]++;
    }
}

int sqrl_fetch_plan(struct sqrl_iterator *it, struct sqrl_strand *s,
                    struct sqrl_shard_reader *reader, uint64_t from, uint64_t to,
                    struct sqrl_error *err) {
    if (!sqrl_shard_reader_indexed(reader) || from >= to)
        return SQRL_OK;
    if (!s->ahead) {
        struct sqrl_block_info first, last;
        sqrl_shard_reader_block_info(reader, from, &first);
        sqrl_shard_reader_block_info(reader, to - 1, &last);
        uint64_t end = last.offset + last.stored_bytes;
        int code = SQRL_OK;
        if (end <= first.offset) /* not told */
            return SQRL_OK;
        code = make_pieces(it, s, sqrl_shard_reader_file(reader), first.offset, end,
                           false, err);
        if (code)
            return code;
    }
    uint64_t pieces = sqrl_ahead_pieces(s->ahead);
    uint32_t *blocks = sqrl_calloc(pieces, sizeof *blocks, "reading ahead", err);
    if (!blocks)
        return SQRL_E_NO_MEMORY;
    count_blocks(s, reader, from, to, blocks);
    pthread_mutex_lock(&it->lock);
    for (uint64_t i = 0; i < pieces; i++)
        s->use[i].blocks = blocks[i];
    s->counted = true;
    pthread_mutex_unlock(&it->lock);
    free(blocks);
    return SQRL_OK;
}

/* --- I/O workers --- */

void sqrl_fetch_kick(struct sqrl_iterator *it) {
    struct sqrl_job unused;
    if (!it->io_idle || !(sqrl_fetch_claim(it, &unused, true) || sqrl_follow_due(it)))
        return;
    struct sqrl_worker *worker = it->io_idle;
    it->io_idle = worker->next_idle;
    __atomic_add_fetch(&it->refs, 1, __ATOMIC_RELAXED);
    sqrl_pool_submit(it->io_pool, &worker->task);
}

static void run_io(struct sqrl_task *task) {
    struct sqrl_worker *worker = (struct sqrl_worker *)(void *)task;
    struct sqrl_iterator *it = worker->iterator;
    struct sqrl_job job;
    pthread_mutex_lock(&it->lock);
    bool found = sqrl_fetch_claim(it, &job, false);
    if (found) {
        sqrl_fetch_kick(it);
        pthread_mutex_unlock(&it->lock);
        if (job.kind == JOB_OPEN)
            sqrl_load_open(it, &job);
        else
            sqrl_fetch_piece(it, &job);
        pthread_mutex_lock(&it->lock);
    }
    sqrl_executor_kick(it); /* there may be blocks to load, or the order has ended */
    if (!found && sqrl_follow_due(it)) {
        it->followed = true;
        pthread_mutex_unlock(&it->lock);
        sqrl_follow_begin(it);
        pthread_mutex_lock(&it->lock);
    }
    if (found) { /* others have their turn; it keeps its reference */
        pthread_mutex_unlock(&it->lock);
        sqrl_pool_submit(it->io_pool, &worker->task);
        return;
    }
    worker->next_idle = it->io_idle;
    it->io_idle = worker;
    pthread_mutex_unlock(&it->lock);
    sqrl_executor_unref(it);
}

int sqrl_fetch_start(struct sqrl_iterator *it, struct sqrl_error *err) {
    if (!it->remote)
        return SQRL_OK;
    struct sqrl_pool *pool = sqrl_context_io_pool(it->context, err);
    unsigned threads = pool ? sqrl_pool_threads(pool) : 0;
    struct sqrl_worker *workers =
        pool ? sqrl_calloc(threads, sizeof *workers, "workers", err) : NULL;
    if (!workers)
        return SQRL_E_NO_MEMORY;
    pthread_mutex_lock(&it->lock);
    it->io_pool = pool;
    it->io_worker = workers;
    for (unsigned i = 0; i < threads; i++) {
        workers[i].iterator = it;
        workers[i].task.run = run_io;
        workers[i].next_idle = it->io_idle;
        it->io_idle = &workers[i];
    }
    pthread_mutex_unlock(&it->lock);
    return SQRL_OK;
}
