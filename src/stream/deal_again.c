/* deal_again.c - what the consumers of an earlier run have left, dealt to others.
 *
 * Where all of them stand at the same slot, and the new number of consumers divides the
 * lanes, the sequence of slots simply goes on: global batches stay what they were.
 * Otherwise the begun windows' lanes are cut into equal parts, and the windows behind
 * them are dealt as at the beginning.
 */
#include <stdlib.h>

#include "stream/deal_private.h"

#define MAX_CUTS 1024u
#define MAX_INTERVALS (UINT64_C(1) << 24)

/* --- what came from outside --- */

static bool cut_fits(const struct sqrl_deal *deal, const struct sqrl_cut *cut) {
    return cut->lanes && cut->basis && cut->lanes <= SQRL_LANES * SQRL_MAX_CONSUMERS &&
           cut->lanes % cut->basis == 0 && cut->origin <= deal->samples;
}

static bool interval_fits(const struct sqrl_deal *deal, const struct sqrl_share *share,
                          const struct sqrl_interval *i) {
    if (i->cut >= share->cuts || i->window >= deal->windows || i->from >= i->to)
        return false;
    const struct sqrl_cut *cut = &share->cut[i->cut];
    struct slots slots = slots_of(deal, cut, i->window);
    return i->lane < cut->lanes &&
           i->to <= class_count(slots.begin, slots.end, cut->lanes, i->lane);
}

int sqrl_deal_check(const struct sqrl_deal *deal, const struct sqrl_share *share,
                    struct sqrl_error *err) {
    bool good = share->consumers && share->consumers <= SQRL_MAX_CONSUMERS &&
                share->consumer < share->consumers && share->like == deal->like &&
                share->cuts && share->cuts <= MAX_CUTS && share->lefts <= MAX_INTERVALS &&
                share->window <= deal->windows && share->at <= deal->samples;
    for (size_t i = 0; i < share->cuts && good; i++)
        good = cut_fits(deal, &share->cut[i]);
    for (size_t i = 0; i < share->lefts && good; i++)
        good = interval_fits(deal, share, &share->left[i]);
    good = good && last_cut(share)->lanes % share->consumers == 0;
    if (good && share->window < deal->windows) {
        struct slots slots = slots_of(deal, last_cut(share), share->window);
        good = share->at <=
               class_count(slots.begin, slots.end, share->consumers, share->consumer);
    } else if (good) {
        good = share->at == 0;
    }
    if (good)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "the state's positions do not fit the data: it was changed or "
                          "belongs to other data");
}

/* All consumers of one run, each once. */
static int check_shares(const struct sqrl_deal *deal, const struct sqrl_share *shares,
                        size_t count, struct sqrl_error *err) {
    uint8_t *seen = sqrl_calloc(count + 1, 1, "shares", err);
    int code = seen ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count && !code; i++) {
        const struct sqrl_share *s = &shares[i];
        code = sqrl_deal_check(deal, s, err);
        if (code)
            break;
        if (s->consumers != count || s->cuts != shares->cuts ||
            memcmp(s->cut, shares->cut, s->cuts * sizeof *s->cut) != 0)
            code = sqrl_error_set(
                err, SQRL_E_STATE,
                "going on with another number of consumers needs the state of each of "
                "the %llu before, of the same run; %zu are given",
                (unsigned long long)s->consumers, count);
        else if (seen[s->consumer]++)
            code = sqrl_error_set(err, SQRL_E_STATE,
                                  "two of the states are of consumer %llu of %zu: give "
                                  "each rank's and worker's once",
                                  (unsigned long long)s->consumer, count);
    }
    free(seen);
    return code;
}

/* --- going on in step --- */

/* The slot that a consumer gives next. */
static uint64_t next_slot(const struct sqrl_deal *deal, const struct sqrl_share *share) {
    struct slots slots = slots_of(deal, last_cut(share), share->window);
    return class_first(slots.begin, share->consumers, share->consumer) +
           share->at * share->consumers;
}

/* True when every slot below *slot was given and none from it on. */
static bool in_step(const struct sqrl_deal *deal, const struct sqrl_share *shares,
                    size_t count, uint64_t *slot) {
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < count; i++) {
        if (shares[i].lefts || shares[i].pass || shares[i].window == deal->windows)
            return false;
        uint64_t next = next_slot(deal, &shares[i]);
        least = SQRL_MIN(least, next);
        most = SQRL_MAX(most, next);
    }
    *slot = least;
    return most - least < count;
}

/* *out has its cuts and consumers; the slots from `slot` on are left. */
static void go_on(const struct sqrl_deal *deal, uint64_t slot, struct sqrl_share *out) {
    const struct sqrl_cut *cut = last_cut(out);
    uint64_t sample = SQRL_MIN(slot - shift_of(cut), deal->samples);
    out->window =
        sample == deal->samples ? deal->windows : sqrl_deal_window_of(deal, sample);
    out->at = 0;
    if (out->window == deal->windows)
        return;
    struct slots slots = slots_of(deal, cut, out->window);
    out->at = class_count(slots.begin, slot, out->consumers, out->consumer);
}

/* --- dealing intervals --- */

struct heap_of_intervals {
    struct sqrl_interval *item;
    size_t count, room;
};

static int add_interval(struct heap_of_intervals *heap, struct sqrl_interval interval,
                        struct sqrl_error *err) {
    if (heap->count == heap->room) {
        size_t room = heap->room ? 2 * heap->room : 64;
        if (room > MAX_INTERVALS)
            return sqrl_error_set(err, SQRL_E_LIMIT,
                                  "the states are too far apart: more than %llu "
                                  "intervals are left",
                                  (unsigned long long)MAX_INTERVALS);
        void *grown = sqrl_realloc(heap->item, room * sizeof *heap->item, "shares", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        heap->item = grown;
        heap->room = room;
    }
    heap->item[heap->count++] = interval;
    return SQRL_OK;
}

/* What a consumer has left in windows below `end`. */
static int add_share(const struct sqrl_deal *deal, const struct sqrl_share *share,
                     uint64_t end, struct heap_of_intervals *heap,
                     struct sqrl_error *err) {
    int code = SQRL_OK;
    for (size_t i = 0; i < share->lefts && !code; i++)
        code = add_interval(heap, share->left[i], err);
    for (uint64_t w = share->window; w < end && !code && !share->pass; w++) {
        struct sqrl_hand hand;
        code = sqrl_fresh_lanes(deal, last_cut(share), share->consumers, share->consumer,
                                w, w == share->window ? share->at : 0, &hand, err);
        for (size_t i = 0; i < hand.lanes && !code; i++)
            if (hand.lane[i].from < hand.lane[i].to)
                code = add_interval(
                    heap,
                    (struct sqrl_interval){share->cuts - 1, w, hand.lane[i].lane,
                                           hand.lane[i].from, hand.lane[i].to},
                    err);
        sqrl_hand_reset(&hand);
    }
    return code;
}

static int by_place(const void *x, const void *y) {
    const struct sqrl_interval *a = x, *b = y;
    if (a->cut != b->cut)
        return a->cut < b->cut ? -1 : 1;
    if (a->window != b->window)
        return a->window < b->window ? -1 : 1;
    if (a->lane != b->lane) /* ranks, while this sorts */
        return a->lane < b->lane ? -1 : 1;
    return (a->from > b->from) - (a->from < b->from);
}

/* By window, then as the lanes lie, so that a part of the list lies together. */
static void sort_intervals(const struct sqrl_share *share,
                           struct heap_of_intervals *heap) {
    for (unsigned back = 0; back < 2; back++) {
        struct ranks ranks = {{0}, 0};
        uint64_t cut = UINT64_MAX;
        for (size_t i = 0; i < heap->count; i++) {
            struct sqrl_interval *item = &heap->item[i];
            if (item->cut != cut)
                sqrl_ranks_init(&ranks, &share->cut[cut = item->cut]);
            item->lane = back ? sqrl_rank_lane(&ranks, item->lane)
                              : sqrl_lane_rank(&ranks, item->lane);
        }
        if (!back && heap->count)
            qsort(heap->item, heap->count, sizeof *heap->item, by_place);
    }
}

/* The consumer's part: positions [from, to) of all that the list holds. */
static void take_part(const struct heap_of_intervals *heap, uint64_t from, uint64_t to,
                      struct sqrl_share *out) {
    uint64_t passed = 0;
    out->lefts = 0;
    for (size_t i = 0; i < heap->count && passed < to; i++) {
        struct sqrl_interval item = heap->item[i];
        uint64_t n = item.to - item.from;
        uint64_t begin = SQRL_MAX(passed, from), end = SQRL_MIN(passed + n, to);
        if (begin < end) {
            item.to = item.from + (end - passed);
            item.from += begin - passed;
            out->left[out->lefts++] = item;
        }
        passed += n;
    }
}

/* Cuts that no interval refers to any more go. */
static void drop_cuts(struct sqrl_share *share) {
    size_t kept = 0;
    for (size_t c = 0; c < share->cuts; c++) {
        bool used = c + 1 == share->cuts;
        for (size_t i = 0; i < share->lefts && !used; i++)
            used = share->left[i].cut == c;
        if (!used)
            continue;
        for (size_t i = 0; i < share->lefts; i++)
            if (share->left[i].cut == c)
                share->left[i].cut = kept;
        share->cut[kept++] = share->cut[c];
    }
    share->cuts = kept;
}

static uint64_t extras_last(uint64_t n, uint64_t consumers, uint64_t consumer) {
    uint64_t without = consumers - n % consumers;
    return n / consumers * consumer + (consumer > without ? consumer - without : 0);
}

static int deal_anew(const struct sqrl_deal *deal, const struct sqrl_share *shares,
                     size_t count, uint64_t consumers, uint64_t consumer,
                     struct sqrl_share *out, uint64_t *left, struct sqrl_error *err) {
    struct heap_of_intervals heap = {NULL, 0, 0};
    uint64_t end = 0, rest = 0;
    int code = SQRL_OK;
    for (size_t i = 0; i < count; i++)
        end = SQRL_MAX(end, shares[i].pass ? deal->windows
                                           : shares[i].window + (shares[i].at > 0));
    for (size_t i = 0; i < count && !code; i++)
        code = add_share(deal, &shares[i], end, &heap, err);
    if (!code) {
        struct sqrl_share all = *shares;
        all.left =
            heap.item; /* the whole list, so that all consumers drop the same cuts */
        all.lefts = heap.count;
        sort_intervals(shares, &heap);
        out->cut = sqrl_calloc(all.cuts + 1, sizeof *out->cut, "shares", err);
        out->left = sqrl_calloc(heap.count + 1, sizeof *out->left, "shares", err);
        code = out->cut && out->left ? SQRL_OK : SQRL_E_NO_MEMORY;
        if (!code) {
            const struct sqrl_cut *last = last_cut(&all);
            uint64_t lanes = last->lanes, basis = last->basis;
            memcpy(out->cut, all.cut, all.cuts * sizeof *out->cut);
            if (lanes % consumers) {
                lanes = sqrl_lanes_for(consumers);
                basis = consumers;
            }
            out->cut[all.cuts] =
                (struct sqrl_cut){lanes, basis, deal->window[end].sample};
            all.cut = out->cut;
            all.cuts++;
            drop_cuts(&all);
            out->cuts = all.cuts;
        }
    }
    for (size_t i = 0; i < heap.count && !code; i++)
        rest += heap.item[i].to - heap.item[i].from;
    if (!code)
        take_part(&heap, extras_last(rest, consumers, consumer),
                  extras_last(rest, consumers, consumer + 1), out);
    free(heap.item);
    out->window = end;
    out->at = 0;
    *left = rest + deal->samples - deal->window[end].sample;
    return code;
}

/* All that the consumer has, whatever the others have. */
static uint64_t own_rows(const struct sqrl_deal *deal, const struct sqrl_share *share) {
    uint64_t own = 0;
    for (size_t i = 0; i < share->lefts; i++)
        own += share->left[i].to - share->left[i].from;
    if (share->window == deal->windows)
        return own;
    struct slots slots = slots_of(deal, last_cut(share), share->window);
    uint64_t end = deal->samples + shift_of(last_cut(share));
    return own + class_count(slots.begin, end, share->consumers, share->consumer) -
           share->at;
}

int sqrl_deal_again(const struct sqrl_deal *deal, const struct sqrl_share *shares,
                    size_t count, uint64_t consumers, uint64_t consumer,
                    enum sqrl_tail tail, bool repeats, struct sqrl_share *out,
                    struct sqrl_error *err) {
    uint64_t slot, left;
    memset(out, 0, sizeof *out);
    int code = check_shares(deal, shares, count, err);
    if (code)
        return code;
    if (last_cut(shares)->lanes % consumers == 0 && in_step(deal, shares, count, &slot)) {
        code = sqrl_share_copy(shares, out, err);
        out->consumers = consumers;
        out->consumer = consumer;
        if (!code)
            go_on(deal, slot, out);
        left = deal->samples -
               SQRL_MIN(deal->samples, code ? 0 : slot - shift_of(last_cut(shares)));
    } else {
        out->consumers = consumers;
        out->consumer = consumer;
        out->like = deal->like;
        code = deal_anew(deal, shares, count, consumers, consumer, out, &left, err);
    }
    if (code) {
        sqrl_share_reset(out);
        return code;
    }
    out->pass = 0;
    out->quota = tail == SQRL_TAIL_UNEVEN ? own_rows(deal, out)
                                          : sqrl_deal_quota(left, consumers, 0, tail);
    if (repeats)
        out->quota = SQRL_UNKNOWN;
    return SQRL_OK;
}
