/* deal_private.h - the arithmetic of slots and lanes, shared by deal.c and deal_again.c.
 */
#ifndef SQRL_STREAM_DEAL_PRIVATE_H
#define SQRL_STREAM_DEAL_PRIVATE_H

#include "stream/deal.h"

#define MAX_RADICES 40u

struct window {
    uint64_t sample, unit; /* where it begins */
};

struct sqrl_deal {
    struct sqrl_unit *unit;
    uint64_t units, samples;
    enum sqrl_order_kind kind;
    uint64_t seed, epoch, like;
    struct sqrl_permutation permutation; /* of units; SAMPLES: of samples */
    struct window *window;               /* [windows + 1] */
    uint64_t windows;
    uint64_t *unit_begin; /* SAMPLES: [units + 1] */
};

/* --- slots --- */

/* How many x < end have x mod m == r. */
static inline uint64_t class_below(uint64_t end, uint64_t m, uint64_t r) {
    return end > r ? (end - r - 1) / m + 1 : 0;
}
static inline uint64_t class_count(uint64_t begin, uint64_t end, uint64_t m, uint64_t r) {
    return class_below(end, m, r) - class_below(begin, m, r);
}
/* The smallest x >= begin with x mod m == r. */
static inline uint64_t class_first(uint64_t begin, uint64_t m, uint64_t r) {
    return begin + (r + m - begin % m) % m;
}

static inline uint64_t shift_of(const struct sqrl_cut *cut) {
    return (cut->lanes - cut->origin % cut->lanes) % cut->lanes;
}

struct slots {
    uint64_t begin, end;
};
static inline struct slots slots_of(const struct sqrl_deal *deal,
                                    const struct sqrl_cut *cut, uint64_t window) {
    uint64_t shift = shift_of(cut);
    return (struct slots){deal->window[window].sample + shift,
                          deal->window[window + 1].sample + shift};
}

/* --- ranks --- */

struct ranks {
    uint32_t radix[MAX_RADICES];
    unsigned count;
};

void sqrl_ranks_init(struct ranks *ranks, const struct sqrl_cut *cut);
uint64_t sqrl_rank_lane(const struct ranks *ranks, uint64_t rank);
uint64_t sqrl_lane_rank(const struct ranks *ranks, uint64_t lane);

static inline const struct sqrl_cut *last_cut(const struct sqrl_share *share) {
    return &share->cut[share->cuts - 1];
}
uint64_t sqrl_lanes_for(uint64_t consumers);
/* The consumer's lanes of a whole window, `at` of whose slots were given, without their
 * places. No lanes: it has none there. */
SQRL_CHECK int sqrl_fresh_lanes(const struct sqrl_deal *deal, const struct sqrl_cut *cut,
                                uint64_t consumers, uint64_t consumer, uint64_t window,
                                uint64_t at, struct sqrl_hand *hand,
                                struct sqrl_error *err);
/* The window that holds a sample of the chunks laid end to end. */
uint64_t sqrl_deal_window_of(const struct sqrl_deal *deal, uint64_t sample);

#endif
