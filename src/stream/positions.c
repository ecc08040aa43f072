/* positions.c - the order in which a run gives samples, from counts alone.
 *
 * Chunks and hands are walked as STRANDS and ASSIGN walk them; a hand's rows are those of
 * its chunks laid end to end.
 */
#include "stream/deal_private.h"
#include "stream/executor.h"
#include "stream/plan.h"

#include <stdlib.h>

/* Consecutive samples of a shard. */
struct piece {
    uint64_t row; /* of its first within the hand */
    uint64_t position;
    uint32_t shard;
};

struct pieces {
    struct piece *item;
    size_t count, room;
    uint64_t rows;
};

struct places {
    uint64_t *position;
    uint32_t *shard;
    size_t count, capacity;
};

static void add_place(struct places *to, uint64_t position, uint32_t shard) {
    if (to->count == to->capacity)
        return;
    to->position[to->count] = position;
    to->shard[to->count++] = shard;
}

/* Number of the unit that begins with a block. */
static uint64_t unit_of(const struct sqrl_deal *deal, const struct sqrl_chunk *chunk) {
    uint64_t low = 0, high = deal->units;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        const struct sqrl_unit *unit = &deal->unit[middle];
        if (unit->shard < chunk->shard ||
            (unit->shard == chunk->shard && unit->first_block <= chunk->first_block))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int add_piece(struct pieces *to, const struct sqrl_deal *deal,
                     const uint64_t *first, const struct sqrl_chunk *chunk,
                     struct sqrl_error *err) {
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 64;
        void *grown = sqrl_realloc(to->item, room * sizeof *to->item, "positions", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        to->item = grown;
        to->room = room;
    }
    uint64_t position = first[unit_of(deal, chunk)] + chunk->first_row;
    to->item[to->count++] = (struct piece){to->rows, position, (uint32_t)chunk->shard};
    to->rows += chunk->rows;
    return SQRL_OK;
}

static void add_row(const struct pieces *pieces, uint64_t row, struct places *out) {
    size_t low = 0, high = pieces->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (pieces->item[middle].row <= row)
            low = middle;
        else
            high = middle;
    }
    const struct piece *piece = &pieces->item[low];
    add_place(out, piece->position + (row - piece->row), piece->shard);
}

/* The chunks up to the end of a hand; in the order of single samples one. */
static int next_pieces(struct sqrl_iterator *it, const uint64_t *first,
                       struct pieces *pieces, struct sqrl_error *err) {
    struct sqrl_chunk chunk = {0};
    bool more = true;
    int code = SQRL_OK;
    pieces->count = 0;
    pieces->rows = 0;
    while (more && !chunk.ends_window && !code) {
        code = sqrl_deal_walk_next(&it->walk, &chunk, &more, err);
        if (!code && more)
            code = add_piece(pieces, it->deal, first, &chunk, err);
        if (it->kind == SQRL_ORDER_SAMPLES)
            break;
    }
    return code;
}

static int walk(struct sqrl_iterator *it, const uint64_t *first, struct places *out,
                struct sqrl_error *err) {
    struct sqrl_dealer *dealer = &it->assign.dealer;
    struct pieces pieces = {0};
    int code = SQRL_OK;
    while (out->count < out->capacity && !code) {
        code = next_pieces(it, first, &pieces, err);
        if (code || !pieces.count)
            break;
        struct sqrl_hand hand = {.give = pieces.rows};
        if (it->kind != SQRL_ORDER_SAMPLES)
            code = sqrl_dealer_next(dealer, &hand, err);
        for (uint64_t i = 0; i < hand.give && out->count < out->capacity && !code; i++)
            add_row(&pieces, it->windowed ? sqrl_hand_next(&hand) : i, out);
        sqrl_hand_reset(&hand);
    }
    free(pieces.item);
    return code;
}

static int check(struct sqrl_plan *plan, const struct sqrl_iterator *it,
                 struct sqrl_error *err) {
    const struct sqrl_distribute_options *o = sqrl_plan_distribution(plan);
    if (!it->deal || o->owner)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "positions are known beforehand of streams that are "
                              "distributed, without a split of one's own");
    uint64_t items = SQRL_UNKNOWN;
    int code = plan->limited || o->steps ? SQRL_OK : sqrl_plan_count(plan, &items, err);
    if (code || items != SQRL_UNKNOWN)
        return code;
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "positions are those of whole epochs: leave out filters, take, "
                          "skip and steps");
}

int sqrl_plan_positions(struct sqrl_plan *plan, uint64_t epoch, uint64_t *position,
                        uint32_t *shard, size_t capacity, size_t *count,
                        struct sqrl_error *err) {
    struct sqrl_iterator_options options = {.size = sizeof options, .epoch = epoch};
    struct sqrl_iterator *it = NULL;
    struct places out = {position, shard, 0, capacity};
    *count = 0;
    int code = sqrl_iterator_make(plan, &options, &it, err);
    if (code)
        return code;
    code = check(plan, it, err);
    uint64_t *first =
        code ? NULL
             : sqrl_malloc((it->deal->units + 1) * sizeof *first, "positions", err);
    if (first) {
        first[0] = 0;
        for (uint64_t u = 0; u < it->deal->units; u++)
            first[u + 1] = first[u] + it->deal->unit[u].samples;
        code = walk(it, first, &out, err);
    } else if (!code) {
        code = SQRL_E_NO_MEMORY;
    }
    free(first);
    sqrl_iterator_close(it);
    *count = out.count;
    return code;
}
