/* deal.c - windows, lanes and hands: see deal.h.
 *
 * Sample x of the chunks laid end to end has slot x + shift, where shift makes slot 0 of
 * lane 0 fall on the cut's origin. Counting slots of a class (slot mod m == r) is all the
 * arithmetic there is: a window's lanes, a consumer's samples and its quota come from it.
 *
 * Lanes are laid out in the order of their ranks. The rank of a lane is its number with
 * mixed-radix digits reversed, the prime factors of the basis first: lanes that are equal
 * modulo the basis, or modulo a product of its first prime factors, are neighbours.
 */
#include "stream/deal_private.h"

#include <stdlib.h>

/* --- ranks --- */

static void add_factors(struct ranks *ranks, uint64_t n) {
    for (uint64_t p = 2; n > 1 && ranks->count < MAX_RADICES; p++) {
        if (p * p > n)
            p = n;
        for (; n % p == 0 && ranks->count < MAX_RADICES; n /= p)
            ranks->radix[ranks->count++] = (uint32_t)p;
    }
}

void sqrl_ranks_init(struct ranks *ranks, const struct sqrl_cut *cut) {
    ranks->count = 0;
    add_factors(ranks, cut->basis);
    add_factors(ranks, cut->lanes / cut->basis);
}

uint64_t sqrl_rank_lane(const struct ranks *ranks, uint64_t rank) {
    uint64_t lane = 0;
    for (unsigned i = ranks->count; i-- > 0; rank /= ranks->radix[i])
        lane = lane * ranks->radix[i] + rank % ranks->radix[i];
    return lane;
}

uint64_t sqrl_lane_rank(const struct ranks *ranks, uint64_t lane) {
    uint64_t rank = 0;
    for (unsigned i = 0; i < ranks->count; lane /= ranks->radix[i], i++)
        rank = rank * ranks->radix[i] + lane % ranks->radix[i];
    return rank;
}

/* --- shares --- */

void sqrl_share_reset(struct sqrl_share *share) {
    free(share->cut);
    free(share->left);
    memset(share, 0, sizeof *share);
}

/* A copy with room for `more` further cuts and intervals from `left` on only. */
static int share_copy(const struct sqrl_share *from, size_t more, size_t left,
                      struct sqrl_share *out, struct sqrl_error *err) {
    *out = *from;
    out->lefts = from->lefts - left;
    out->cut = sqrl_calloc(from->cuts + more, sizeof *out->cut, "share", err);
    out->left = sqrl_calloc(out->lefts + 1, sizeof *out->left, "share", err);
    if (!out->cut || !out->left) {
        sqrl_share_reset(out);
        return SQRL_E_NO_MEMORY;
    }
    memcpy(out->cut, from->cut, from->cuts * sizeof *out->cut);
    if (out->lefts)
        memcpy(out->left, from->left + left, out->lefts * sizeof *out->left);
    return SQRL_OK;
}

int sqrl_share_copy(const struct sqrl_share *share, struct sqrl_share *out,
                    struct sqrl_error *err) {
    return share_copy(share, 0, 0, out, err);
}

/* --- the deal --- */

static const struct sqrl_unit *unit_at(const struct sqrl_deal *deal, uint64_t position) {
    if (deal->kind == SQRL_ORDER_WINDOWS)
        position = sqrl_permutation_at(&deal->permutation, position);
    return &deal->unit[position];
}

static uint64_t kib_of(const struct sqrl_deal_args *args, const struct sqrl_unit *unit) {
    return (args->shard_bytes[unit->shard] * unit->blocks + 1023) / 1024;
}

static int add_window(struct sqrl_deal *deal, uint64_t *room, uint64_t sample,
                      uint64_t unit, struct sqrl_error *err) {
    if (deal->windows + 2 > *room) {
        *room = 2 * *room + 16;
        void *grown =
            sqrl_realloc(deal->window, *room * sizeof *deal->window, "windows", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        deal->window = grown;
    }
    deal->window[deal->windows++] = (struct window){sample, unit};
    return SQRL_OK;
}

/* Windows of whole chunks, of equal size in memory. */
static int cut_windows(struct sqrl_deal *deal, const struct sqrl_deal_args *args,
                       struct sqrl_error *err) {
    uint64_t total = 0, room = 0, passed = 0, sample = 0, bytes;
    if (__builtin_mul_overflow(args->window_bytes, args->like, &bytes))
        bytes = UINT64_MAX;
    uint64_t window = SQRL_MAX(bytes / 1024, 1u);
    for (uint64_t u = 0; u < deal->units; u++)
        total += kib_of(args, &deal->unit[u]);
    uint64_t count = SQRL_MAX((total + window - 1) / window, 1u);
    uint64_t target = SQRL_MAX((total + count - 1) / count, 1u), end = target;
    int code = deal->units ? add_window(deal, &room, 0, 0, err) : SQRL_OK;
    const struct sqrl_unit *unit = deal->units ? unit_at(deal, 0) : NULL;
    for (uint64_t u = 0; u + 1 < deal->units && !code; u++) {
        const struct sqrl_unit *next = unit_at(deal, u + 1);
        passed += kib_of(args, unit);
        sample += unit->samples;
        uint64_t middle = passed + kib_of(args, next) / 2;
        if (deal->kind != SQRL_ORDER_SAMPLES && middle >= end) {
            code = add_window(deal, &room, sample, u + 1, err);
            end += (middle - end) / target * target + target;
        }
        unit = next;
    }
    if (!code && !deal->window)
        code = add_window(deal, &room, 0, 0, err), deal->windows = 0;
    if (!code)
        deal->window[deal->windows] = (struct window){deal->samples, deal->units};
    return code;
}

int sqrl_deal_new(const struct sqrl_deal_args *args, struct sqrl_deal **out,
                  struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_deal *deal = sqrl_calloc(1, sizeof *deal, "deal", err);
    if (!deal) {
        free(args->units);
        return SQRL_E_NO_MEMORY;
    }
    deal->unit = args->units;
    deal->units = args->count;
    deal->kind = args->kind;
    deal->seed = args->seed;
    deal->epoch = args->epoch;
    deal->like = args->like;
    for (uint64_t u = 0; u < deal->units; u++)
        deal->samples += deal->unit[u].samples;
    bool single = deal->kind == SQRL_ORDER_SAMPLES;
    sqrl_permutation_init(&deal->permutation, single ? deal->samples : deal->units,
                          sqrl_order_key(args->seed, args->epoch,
                                         single ? SQRL_KEY_SAMPLES : SQRL_KEY_CHUNKS, 0));
    int code = cut_windows(deal, args, err);
    if (!code && single) {
        deal->unit_begin =
            sqrl_calloc(deal->units + 1, sizeof *deal->unit_begin, "deal", err);
        code = deal->unit_begin ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    for (uint64_t u = 0; u < deal->units && !code && single; u++)
        deal->unit_begin[u + 1] = deal->unit_begin[u] + deal->unit[u].samples;
    if (code)
        sqrl_deal_free(deal);
    else
        *out = deal;
    return code;
}

void sqrl_deal_free(struct sqrl_deal *deal) {
    if (!deal)
        return;
    free(deal->unit);
    free(deal->window);
    free(deal->unit_begin);
    free(deal);
}

uint64_t sqrl_deal_samples(const struct sqrl_deal *deal) {
    return deal->samples;
}
uint64_t sqrl_deal_windows(const struct sqrl_deal *deal) {
    return deal->windows;
}

/* --- who gets what --- */

uint64_t sqrl_deal_quota(uint64_t n, uint64_t consumers, uint64_t consumer,
                         enum sqrl_tail tail) {
    if (tail == SQRL_TAIL_UNEVEN)
        return class_below(n, consumers, consumer);
    return n / consumers + (tail == SQRL_TAIL_PAD && n % consumers);
}

uint64_t sqrl_lanes_for(uint64_t consumers) {
    uint64_t a = consumers, b = SQRL_LANES;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return consumers / a * SQRL_LANES;
}

int sqrl_deal_share(const struct sqrl_deal *deal, uint64_t consumers, uint64_t consumer,
                    enum sqrl_tail tail, bool repeats, struct sqrl_share *out,
                    struct sqrl_error *err) {
    struct sqrl_cut cut = {sqrl_lanes_for(deal->like), deal->like, 0};
    memset(out, 0, sizeof *out);
    if (cut.lanes % consumers)
        cut = (struct sqrl_cut){sqrl_lanes_for(consumers), consumers, 0};
    const struct sqrl_share share = {.consumers = consumers,
                                     .consumer = consumer,
                                     .like = deal->like,
                                     .cut = &cut,
                                     .cuts = 1};
    int code = share_copy(&share, 0, 0, out, err);
    out->quota = repeats ? SQRL_UNKNOWN
                         : sqrl_deal_quota(deal->samples, consumers, consumer, tail);
    return code;
}

/* --- hands --- */

void sqrl_hand_reset(struct sqrl_hand *hand) {
    free(hand->lane);
    free(hand->stretch);
    memset(hand, 0, sizeof *hand);
}

uint64_t sqrl_hand_next(struct sqrl_hand *hand) {
    struct sqrl_lane *lane = &hand->lane[hand->turn];
    while (SQRL_UNLIKELY(lane->from >= lane->to)) {
        hand->turn = hand->turn + 1 == hand->lanes ? 0 : hand->turn + 1;
        lane = &hand->lane[hand->turn];
    }
    hand->turn = hand->turn + 1 == hand->lanes ? 0 : hand->turn + 1;
    uint64_t at = lane->from++;
    if (lane->permutation.n)
        at = sqrl_permutation_at(&lane->permutation, at);
    return lane->base + at * lane->step;
}

static int hand_rooms(struct sqrl_hand *hand, size_t lanes, struct sqrl_error *err) {
    hand->lane = sqrl_calloc(lanes + 1, sizeof *hand->lane, "lanes", err);
    hand->stretch = sqrl_calloc(lanes + 1, sizeof *hand->stretch, "lanes", err);
    return hand->lane && hand->stretch ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static void lane_permutation(const struct sqrl_deal *deal, uint64_t window, uint64_t n,
                             struct sqrl_lane *lane) {
    if (deal->kind != SQRL_ORDER_WINDOWS)
        return;
    uint64_t number = sqrl_mix64(window + 1) + lane->lane;
    sqrl_permutation_init(&lane->permutation, n,
                          sqrl_order_key(deal->seed, deal->epoch, SQRL_KEY_LANE, number));
}

/* Samples [begin, end) behind the hand's others; *base is where they begin there. */
static void add_stretch(struct sqrl_hand *hand, uint64_t begin, uint64_t end,
                        uint64_t *base) {
    *base = hand->rows;
    hand->rows += end - begin;
    if (hand->stretches && hand->stretch[hand->stretches - 1].end == begin)
        hand->stretch[hand->stretches - 1].end = end;
    else
        hand->stretch[hand->stretches++] = (struct sqrl_stretch){begin, end};
}

/* The hand's lanes by number; a lane may be there in several parts. */
struct lane_index {
    uint64_t lane;
    size_t at;
};
static int by_lane(const void *x, const void *y) {
    const struct lane_index *a = x, *b = y;
    return (a->lane > b->lane) - (a->lane < b->lane);
}

/* Where the pieces of the hand's lanes lie: walks the window's lanes in their order. */
static int place_lanes(const struct sqrl_deal *deal, const struct sqrl_cut *cut,
                       uint64_t window, struct sqrl_hand *hand, struct sqrl_error *err) {
    struct slots slots = slots_of(deal, cut, window);
    struct ranks ranks;
    struct lane_index *index =
        sqrl_malloc((hand->lanes + 1) * sizeof *index, "lanes", err);
    if (!index)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < hand->lanes; i++)
        index[i] = (struct lane_index){hand->lane[i].lane, i};
    qsort(index, hand->lanes, sizeof *index, by_lane);
    sqrl_ranks_init(&ranks, cut);
    uint64_t sample = deal->window[window].sample, base = 0;
    for (uint64_t k = 0; k < cut->lanes; k++) {
        uint64_t lane = sqrl_rank_lane(&ranks, k);
        uint64_t n = class_count(slots.begin, slots.end, cut->lanes, lane);
        size_t low = 0, high = hand->lanes;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (index[middle].lane < lane)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < hand->lanes && index[low].lane == lane)
            add_stretch(hand, sample, sample + n, &base);
        for (; low < hand->lanes && index[low].lane == lane; low++) {
            struct sqrl_lane *to = &hand->lane[index[low].at];
            to->base = base;
            to->step = 1;
            lane_permutation(deal, window, n, to);
        }
        sample += n;
    }
    free(index);
    return SQRL_OK;
}

/* Single samples: a lane's positions are slots, a lane's number of them apart. */
static void place_slots(const struct sqrl_cut *cut, struct sqrl_hand *hand) {
    uint64_t shift = shift_of(cut);
    for (size_t i = 0; i < hand->lanes; i++) {
        struct sqrl_lane *lane = &hand->lane[i];
        lane->base = class_first(shift, cut->lanes, lane->lane) - shift;
        lane->step = cut->lanes;
    }
}

static int place(const struct sqrl_deal *deal, const struct sqrl_cut *cut,
                 uint64_t window, struct sqrl_hand *hand, struct sqrl_error *err) {
    if (deal->kind != SQRL_ORDER_SAMPLES)
        return place_lanes(deal, cut, window, hand, err);
    place_slots(cut, hand);
    return SQRL_OK;
}

int sqrl_fresh_lanes(const struct sqrl_deal *deal, const struct sqrl_cut *cut,
                     uint64_t consumers, uint64_t consumer, uint64_t window, uint64_t at,
                     struct sqrl_hand *hand, struct sqrl_error *err) {
    struct slots slots = slots_of(deal, cut, window);
    uint64_t first = class_first(slots.begin, consumers, consumer);
    uint64_t own = class_count(slots.begin, slots.end, consumers, consumer);
    uint64_t lanes = SQRL_MIN(cut->lanes / consumers, own);
    memset(hand, 0, sizeof *hand);
    hand->begin.kind = SQRL_HAND_FRESH;
    int code = hand_rooms(hand, lanes, err);
    for (uint64_t i = 0; i < lanes && !code; i++) {
        struct sqrl_lane *lane = &hand->lane[i];
        lane->lane = (first + consumers * i) % cut->lanes;
        lane->from = class_below(at, lanes, i);
        lane->to = class_count(slots.begin, slots.end, cut->lanes, lane->lane);
    }
    hand->lanes = code ? 0 : lanes;
    hand->turn = lanes ? at % lanes : 0;
    hand->give = own - SQRL_MIN(at, own);
    return code;
}

static int fresh_hand(const struct sqrl_deal *deal, const struct sqrl_share *share,
                      uint64_t window, uint64_t at, struct sqrl_hand *hand,
                      struct sqrl_error *err) {
    const struct sqrl_cut *cut = last_cut(share);
    int code = sqrl_fresh_lanes(deal, cut, share->consumers, share->consumer, window, at,
                                hand, err);
    if (!code && hand->give)
        code = place(deal, cut, window, hand, err);
    return code;
}

/* The intervals from `left` on that are of one window. */
static size_t group_of(const struct sqrl_share *share, size_t left) {
    size_t end = left + 1;
    while (end < share->lefts && share->left[end].cut == share->left[left].cut &&
           share->left[end].window == share->left[left].window)
        end++;
    return end - left;
}

static int left_hand(const struct sqrl_deal *deal, const struct sqrl_share *share,
                     size_t left, size_t group, struct sqrl_hand *hand,
                     struct sqrl_error *err) {
    const struct sqrl_interval *interval = &share->left[left];
    memset(hand, 0, sizeof *hand);
    hand->begin.kind = SQRL_HAND_LEFT;
    int code = hand_rooms(hand, group, err);
    for (size_t i = 0; i < group && !code; i++) {
        struct sqrl_lane *lane = &hand->lane[i];
        lane->lane = interval[i].lane;
        lane->from = interval[i].from;
        lane->to = interval[i].to;
        hand->give += lane->to - lane->from;
    }
    hand->lanes = code ? 0 : group;
    return code ? code
                : place(deal, &share->cut[interval->cut], interval->window, hand, err);
}

/* A sample again, so that nobody has less than the others: the consumer's first of the
 * epoch or, where it has none, somebody's. */
static int pad_hand(const struct sqrl_deal *deal, const struct sqrl_share *share,
                    struct sqrl_hand *hand, struct sqrl_error *err) {
    struct sqrl_share first = *share;
    int code = fresh_hand(deal, &first, 0, 0, hand, err);
    if (!code && !hand->give) {
        sqrl_hand_reset(hand);
        first.consumer =
            (share->consumer % deal->window[1].sample + shift_of(last_cut(share))) %
            share->consumers;
        code = fresh_hand(deal, &first, 0, 0, hand, err);
    }
    if (code)
        return code;
    uint64_t row = sqrl_hand_next(hand), sample = 0;
    for (size_t i = 0; i < hand->stretches; i++) {
        uint64_t n = hand->stretch[i].end - hand->stretch[i].begin;
        if (row < n) {
            sample = hand->stretch[i].begin + row;
            break;
        }
        row -= n;
    }
    hand->lane[0] = (struct sqrl_lane){.step = 1, .to = 1};
    if (deal->kind == SQRL_ORDER_SAMPLES)
        hand->lane[0].base = row;
    hand->stretch[0] = (struct sqrl_stretch){sample, sample + 1};
    hand->begin.kind = SQRL_HAND_PAD;
    hand->lanes = hand->stretches = hand->rows = hand->give = 1;
    hand->turn = 0;
    return SQRL_OK;
}

void sqrl_dealer_init(struct sqrl_dealer *dealer, const struct sqrl_deal *deal,
                      const struct sqrl_share *share) {
    *dealer = (struct sqrl_dealer){deal,
                                   share,
                                   {.window = share->window,
                                    .at = share->at,
                                    .quota = share->quota,
                                    .pass = share->pass}};
}

/* The next window that has something for the consumer; *more false behind the last. */
static int next_window(struct sqrl_dealer *d, struct sqrl_hand *hand, bool *more,
                       struct sqrl_error *err) {
    struct sqrl_point *p = &d->point;
    for (; p->window < d->deal->windows; p->window++, p->at = 0) {
        int code = fresh_hand(d->deal, d->share, p->window, p->at, hand, err);
        *more = hand->give > 0;
        if (code || *more)
            return code;
        sqrl_hand_reset(hand);
    }
    *more = false;
    return SQRL_OK;
}

/* A hand that has something; not cut to the quota yet. The point is where it begins. */
static int next_hand(struct sqrl_dealer *d, struct sqrl_hand *hand,
                     struct sqrl_error *err) {
    struct sqrl_point *p = &d->point;
    bool more;
    if (p->left < d->share->lefts)
        return left_hand(d->deal, d->share, p->left, group_of(d->share, p->left), hand,
                         err);
    int code = next_window(d, hand, &more, err);
    if (!code && !more && p->quota > 1) { /* once more from the beginning */
        p->window = p->at = 0;
        p->pass++;
        code = next_window(d, hand, &more, err);
    }
    return code || more ? code : pad_hand(d->deal, d->share, hand, err);
}

int sqrl_dealer_next(struct sqrl_dealer *d, struct sqrl_hand *hand,
                     struct sqrl_error *err) {
    struct sqrl_point *p = &d->point;
    memset(hand, 0, sizeof *hand);
    if (!p->quota || !d->deal->samples)
        return SQRL_OK;
    int code = next_hand(d, hand, err);
    if (code)
        return code;
    hand->give = SQRL_MIN(hand->give, p->quota);
    p->kind = hand->begin.kind;
    hand->begin = *p;
    if (hand->begin.kind == SQRL_HAND_LEFT)
        p->left += group_of(d->share, p->left);
    if (hand->begin.kind == SQRL_HAND_FRESH) {
        p->window++;
        p->at = 0;
    }
    if (p->quota != SQRL_UNKNOWN)
        p->quota -= hand->give;
    return SQRL_OK;
}

struct sqrl_point sqrl_point_behind(const struct sqrl_point *point, uint64_t given) {
    struct sqrl_point p = *point;
    if (p.kind == SQRL_HAND_LEFT)
        p.given += given;
    if (p.kind == SQRL_HAND_FRESH)
        p.at += given;
    if (p.quota != SQRL_UNKNOWN)
        p.quota -= SQRL_MIN(given, p.quota);
    return p;
}

struct sqrl_point sqrl_hand_point(const struct sqrl_hand *hand, uint64_t given) {
    return sqrl_point_behind(&hand->begin, given);
}

/* --- what is left --- */

/* The largest number of whole rounds over the lanes that `given` turns make. */
static uint64_t rounds_of(const struct sqrl_interval *from, size_t count,
                          uint64_t given) {
    uint64_t low = 0, high = 0;
    for (size_t i = 0; i < count; i++)
        high = SQRL_MAX(high, from[i].to - from[i].from);
    while (low < high) {
        uint64_t middle = high - (high - low) / 2, sum = 0;
        for (size_t i = 0; i < count; i++)
            sum += SQRL_MIN(from[i].to - from[i].from, middle);
        if (sum <= given)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The intervals of one window after `given` turns, in the order in which they go on. */
static void advance(struct sqrl_share *out, const struct sqrl_interval *from,
                    size_t count, uint64_t given) {
    uint64_t rounds = rounds_of(from, count, given), rest = given;
    size_t turn = 0, kept = 0;
    for (size_t i = 0; i < count; i++)
        rest -= SQRL_MIN(from[i].to - from[i].from, rounds);
    for (; rest && turn < count; turn++)
        rest -= from[turn].to - from[turn].from > rounds;
    for (size_t k = 0; k < count; k++) {
        size_t i = (turn + k) % count;
        struct sqrl_interval next = from[i];
        next.from += SQRL_MIN(next.to - next.from, rounds + (i < turn));
        if (next.from < next.to)
            out->left[kept++] = next;
    }
    memmove(out->left + kept, out->left + count,
            (out->lefts - count) * sizeof *out->left);
    out->lefts -= count - kept;
}

int sqrl_share_at(const struct sqrl_share *share, const struct sqrl_point *point,
                  struct sqrl_share *out, struct sqrl_error *err) {
    int code = share_copy(share, 0, SQRL_MIN(point->left, share->lefts), out, err);
    if (code)
        return code;
    if (point->given && out->lefts)
        advance(out, &share->left[point->left], group_of(share, point->left),
                point->given);
    out->window = point->window;
    out->at = point->at;
    out->quota = point->quota;
    out->pass = point->pass;
    return SQRL_OK;
}

/* --- walking chunks --- */

void sqrl_deal_walk_init(struct sqrl_deal_walk *walk, const struct sqrl_deal *deal,
                         const struct sqrl_share *share) {
    memset(walk, 0, sizeof *walk);
    sqrl_dealer_init(&walk->dealer, deal, share);
}

void sqrl_deal_walk_reset(struct sqrl_deal_walk *walk) {
    sqrl_hand_reset(&walk->hand);
}

uint64_t sqrl_deal_window_of(const struct sqrl_deal *deal, uint64_t sample) {
    uint64_t low = 0, high = deal->windows;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (deal->window[middle].sample <= sample)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Moves unit and unit_begin to the unit that holds walk->sample. */
static void find_unit(struct sqrl_deal_walk *walk) {
    const struct sqrl_deal *deal = walk->dealer.deal;
    uint64_t window = sqrl_deal_window_of(deal, walk->sample);
    if (walk->unit_begin > walk->sample || walk->unit < deal->window[window].unit) {
        walk->unit = deal->window[window].unit;
        walk->unit_begin = deal->window[window].sample;
    }
    while (walk->unit_begin + unit_at(deal, walk->unit)->samples <= walk->sample)
        walk->unit_begin += unit_at(deal, walk->unit++)->samples;
}

static void chunk_of(const struct sqrl_unit *unit, uint64_t first, uint64_t rows,
                     struct sqrl_chunk *out) {
    *out = (struct sqrl_chunk){.shard = unit->shard,
                               .first_block = unit->first_block,
                               .blocks = unit->blocks,
                               .first_row = first,
                               .rows = rows};
}

static void single_sample(struct sqrl_deal_walk *walk, struct sqrl_chunk *out) {
    const struct sqrl_deal *deal = walk->dealer.deal;
    uint64_t sample =
        sqrl_permutation_at(&deal->permutation, sqrl_hand_next(&walk->hand));
    uint64_t low = 0, high = deal->units;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (deal->unit_begin[middle] <= sample)
            low = middle;
        else
            high = middle;
    }
    chunk_of(&deal->unit[low], sample - deal->unit_begin[low], 1, out);
    walk->hand.give--;
}

static void next_piece(struct sqrl_deal_walk *walk, struct sqrl_chunk *out) {
    const struct sqrl_stretch *stretch = &walk->hand.stretch[walk->stretch];
    if (walk->sample < stretch->begin || walk->sample >= stretch->end)
        walk->sample = stretch->begin;
    find_unit(walk);
    const struct sqrl_unit *unit = unit_at(walk->dealer.deal, walk->unit);
    uint64_t first = walk->sample - walk->unit_begin;
    uint64_t rows = SQRL_MIN(unit->samples - first, stretch->end - walk->sample);
    chunk_of(unit, first, rows, out);
    walk->sample += rows;
    if (walk->sample < stretch->end)
        return;
    walk->sample = UINT64_MAX; /* no stretch holds it */
    out->ends_window = ++walk->stretch == walk->hand.stretches;
    walk->hand.give = out->ends_window ? 0 : walk->hand.give;
}

int sqrl_deal_walk_next(struct sqrl_deal_walk *walk, struct sqrl_chunk *out, bool *more,
                        struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    *more = false;
    if (walk->ended)
        return SQRL_OK;
    if (!walk->hand.give) {
        sqrl_hand_reset(&walk->hand);
        walk->stretch = 0;
        walk->sample = UINT64_MAX;
        int code = sqrl_dealer_next(&walk->dealer, &walk->hand, err);
        walk->ended = code || !walk->hand.give;
        if (walk->ended)
            return code;
    }
    *more = true;
    if (walk->dealer.deal->kind == SQRL_ORDER_SAMPLES)
        single_sample(walk, out);
    else
        next_piece(walk, out);
    out->number = walk->number++;
    return SQRL_OK;
}
