/* deal.h - which samples each consumer gets, in which order: decided on counts alone,
 * before anything is read.
 *
 * A consumer is a (rank, worker) pair. The chunks of the source, permuted, are laid end
 * to end and cut into windows of whole chunks. The samples of all windows have slots 0,
 * 1, 2, ...; slot p belongs to lane p mod L and to consumer p mod C, where C divides the
 * number of lanes L = lcm(C, 48). Within a window each lane is one piece of consecutive
 * samples, permuted among themselves; a consumer's pieces lie next to each other, so that
 * it reads a C-th part of the window. So the sequence of slots, and with it every global
 * batch, is the same for each C that divides L; and a consumer takes from its lanes in
 * turn.
 *
 * What is left when a run goes on with other consumers is a list of intervals of lanes of
 * the windows that were begun, dealt in equal parts, and all windows behind them, which
 * are cut anew (a `cut`) where the new C does not divide L.
 *
 * Memory: 16 bytes a chunk, 24 a window. Everything here is immutable but for cursors.
 */
#ifndef SQRL_STREAM_DEAL_H
#define SQRL_STREAM_DEAL_H

#include "sqrl/stream.h"
#include "stream/order.h"

#define SQRL_LANES 48u
#define SQRL_MAX_CONSUMERS 65536u

/* Consecutive blocks of one shard. */
struct sqrl_unit {
    uint32_t shard, first_block, blocks, samples;
};

/* How windows are cut into lanes: slots are counted from sample `origin` on, and the
 * lanes of each of `basis` consumers (and of its divisors) lie next to each other. */
struct sqrl_cut {
    uint64_t lanes, basis, origin;
};

/* Positions from .. to of a lane of a window, not given yet. */
struct sqrl_interval {
    uint64_t cut, window, lane, from, to;
};

/* A point in the epoch, for one consumer. What is left of it: the intervals, then the
 * windows from `window` on under the last cut, without its first `at` samples there. */
struct sqrl_share {
    uint64_t consumers, consumer;
    uint64_t like; /* consumers of the first run: sizes the windows */
    struct sqrl_cut *cut;
    size_t cuts;
    struct sqrl_interval *left;
    size_t lefts;
    uint64_t window, at;
    uint64_t quota; /* samples still to give, with those repeated; SQRL_UNKNOWN: no end */
    uint64_t pass;  /* how often the epoch was gone through: not 0 with `steps` only */
};
void sqrl_share_reset(struct sqrl_share *share);
SQRL_CHECK int sqrl_share_copy(const struct sqrl_share *share, struct sqrl_share *out,
                               struct sqrl_error *err);

struct sqrl_deal_args {
    struct sqrl_unit *units; /* taken over, also on failure */
    uint64_t count;
    const uint64_t *shard_bytes; /* of a block in memory, on average, of each shard */
    enum sqrl_order_kind kind;
    uint64_t seed, epoch;
    uint64_t window_bytes; /* of one consumer */
    uint64_t like;
};

struct sqrl_deal;
SQRL_CHECK int sqrl_deal_new(const struct sqrl_deal_args *args, struct sqrl_deal **out,
                             struct sqrl_error *err);
void sqrl_deal_free(struct sqrl_deal *deal);
uint64_t sqrl_deal_samples(const struct sqrl_deal *deal);
uint64_t sqrl_deal_windows(const struct sqrl_deal *deal);

/* The whole epoch for one of `consumers`; reset it. */
SQRL_CHECK int sqrl_deal_share(const struct sqrl_deal *deal, uint64_t consumers,
                               uint64_t consumer, enum sqrl_tail tail, bool repeats,
                               struct sqrl_share *out, struct sqrl_error *err);
/* What the shares of all consumers of an earlier run have left, for one of `consumers`.
 */
SQRL_CHECK int sqrl_deal_again(const struct sqrl_deal *deal,
                               const struct sqrl_share *shares, size_t count,
                               uint64_t consumers, uint64_t consumer, enum sqrl_tail tail,
                               bool repeats, struct sqrl_share *out,
                               struct sqrl_error *err);
/* SQRL_E_CORRUPT when a share that was read from outside does not fit the deal. */
SQRL_CHECK int sqrl_deal_check(const struct sqrl_deal *deal,
                               const struct sqrl_share *share, struct sqrl_error *err);
/* How many of n samples the consumer gives. */
uint64_t sqrl_deal_quota(uint64_t n, uint64_t consumers, uint64_t consumer,
                         enum sqrl_tail tail);

enum sqrl_hand_kind { SQRL_HAND_LEFT, SQRL_HAND_FRESH, SQRL_HAND_PAD };

/* A point between two samples: what `share` has left then. `given` is of the intervals of
 * one window that begin at `left`. */
struct sqrl_point {
    uint64_t left, given;
    uint64_t window, at, quota, pass;
    enum sqrl_hand_kind kind; /* of the hand it is in */
};

/* Where shards have owners: how many samples a consumer gives. */
uint64_t sqrl_split_quota(const uint64_t *samples, uint64_t consumers, uint64_t consumer,
                          enum sqrl_tail tail);

/* --- hands: what a consumer gets of one window --- */

struct sqrl_lane {
    struct sqrl_permutation permutation; /* n 0: as they lie */
    uint64_t lane;
    uint64_t base;     /* of its piece within the hand's samples; SAMPLES: first slot */
    uint64_t step;     /* between positions: 1; SAMPLES: lanes */
    uint64_t from, to; /* positions to give */
};

/* Samples [begin, end) of the permuted chunks laid end to end. */
struct sqrl_stretch {
    uint64_t begin, end;
};

struct sqrl_hand {
    uint64_t give; /* samples to give */
    struct sqrl_point begin;
    uint64_t rows; /* of all stretches */
    struct sqrl_lane *lane;
    size_t lanes, turn;
    struct sqrl_stretch *stretch;
    size_t stretches;
};
void sqrl_hand_reset(struct sqrl_hand *hand);
/* The next sample: its row among those of the hand's stretches; in the order of single
 * samples its slot. One call for each of `give`. */
uint64_t sqrl_hand_next(struct sqrl_hand *hand);

/* Walks the hands of a share. */
struct sqrl_dealer {
    const struct sqrl_deal *deal;
    const struct sqrl_share *share;
    struct sqrl_point point; /* before the next hand */
};
void sqrl_dealer_init(struct sqrl_dealer *dealer, const struct sqrl_deal *deal,
                      const struct sqrl_share *share);
/* Sets hand->give to 0 at the end. Reset the hand, also on failure. */
SQRL_CHECK int sqrl_dealer_next(struct sqrl_dealer *dealer, struct sqrl_hand *hand,
                                struct sqrl_error *err);
/* The point behind `given` samples of a hand. */
struct sqrl_point sqrl_hand_point(const struct sqrl_hand *hand, uint64_t given);
/* The same from a point within a hand on. */
struct sqrl_point sqrl_point_behind(const struct sqrl_point *point, uint64_t given);
/* What is left of the share there. */
SQRL_CHECK int sqrl_share_at(const struct sqrl_share *share,
                             const struct sqrl_point *point, struct sqrl_share *out,
                             struct sqrl_error *err);

/* Walks the chunks of the hands' stretches, in order; the last of each hand ends a
 * window. In the order of single samples each is a chunk. */
struct sqrl_deal_walk {
    struct sqrl_dealer dealer;
    struct sqrl_hand hand;
    size_t stretch;
    uint64_t sample; /* next, of the chunks laid end to end */
    uint64_t unit, unit_begin;
    uint64_t number;
    bool ended;
};
void sqrl_deal_walk_init(struct sqrl_deal_walk *walk, const struct sqrl_deal *deal,
                         const struct sqrl_share *share);
void sqrl_deal_walk_reset(struct sqrl_deal_walk *walk);
/* *out is the next chunk; *more false at the end. */
SQRL_CHECK int sqrl_deal_walk_next(struct sqrl_deal_walk *walk, struct sqrl_chunk *out,
                                   bool *more, struct sqrl_error *err);

#endif
