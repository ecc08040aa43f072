/* mix.c - the schedule of a mix.
 *
 * With integer weights m (sum W) the lead of a source is lead = n * m - drawn * W: what
 * it is owed after n draws, in parts of W. The promise is -W < lead < W. A source may be
 * drawn when lead + m > 0 (it was not drawn too often), and must be within
 * ceil((W - lead) / m) draws. The next draw is first tried by chance: a source of
 * probability m / W is taken if everything else can still be in time; else the one with
 * the earliest end is. Since a source is tried as seldom as its window is long, looking
 * through the window costs a constant on average; windows that end far away are not
 * looked through.
 */
#include "sqrl/mix.h"

#include "base/base.h"

#include <math.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 signed_wide;

#define WHOLE (UINT64_C(1) << 52)
#define LOOK 4096u /* draws that a free choice looks ahead */

struct part {
    int64_t weight, lead;
    uint64_t drawn;
    int64_t work; /* of in_time() */
};

struct sqrl_mix {
    struct sqrl_mix_options options;
    uint32_t count;
    int64_t whole; /* sum of the weights */
    uint64_t draws, changes;
    struct part *part; /* [count] */
};

/* --- weights --- */

static int check_weights(const double *weights, size_t count, double *sum,
                         struct sqrl_error *err) {
    *sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i]))
            return sqrl_error_set(
                err, SQRL_E_INVALID,
                "weight %g of source %zu: weights are numbers from 0 on", weights[i], i);
        *sum += weights[i];
    }
    if (!(*sum > 0) || isinf(*sum))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              isinf(*sum) ? "the sum of the weights is too large"
                                          : "all weights are 0: nothing would be drawn");
    return SQRL_OK;
}

static bool are_integers(const double *weights, size_t count, double sum) {
    for (size_t i = 0; i < count; i++)
        if (weights[i] != floor(weights[i]))
            return false;
    return sum <= (double)WHOLE;
}

/* Integers of sum `whole` in proportion to the weights, by largest remainders. */
static int round_weights(const double *weights, size_t count, double sum, uint64_t whole,
                         int64_t *out, struct sqrl_error *err) {
    double *rest = sqrl_malloc(count * sizeof *rest, "weights", err);
    if (!rest)
        return SQRL_E_NO_MEMORY;
    int64_t left = (int64_t)whole;
    for (size_t i = 0; i < count; i++) {
        double share = weights[i] / sum * (double)whole;
        out[i] = (int64_t)share;
        rest[i] = share - floor(share);
        left -= out[i];
    }
    /* Rounding leaves less than one a source; in doubles it may leave less than nothing.
     */
    for (; left != 0; left += left > 0 ? -1 : 1) {
        size_t best = 0;
        for (size_t i = 1; i < count; i++)
            if (left > 0 ? rest[i] > rest[best] : out[i] > out[best])
                best = i;
        out[best] += left > 0 ? 1 : -1;
        rest[best] = -1;
    }
    free(rest);
    for (size_t i = 0; i < count; i++)
        if (weights[i] > 0 && !out[i])
            return sqrl_error_set(
                err, SQRL_E_INVALID,
                "weight %g of source %zu is less than half a sample in %llu: give a "
                "larger quota, a larger weight, or 0",
                weights[i], i, (unsigned long long)whole);
    return SQRL_OK;
}

/* Integer weights into out[count]; *whole is their sum. */
static int take_weights(const double *weights, size_t count, uint64_t quota, int64_t *out,
                        int64_t *whole, struct sqrl_error *err) {
    double sum;
    int code = check_weights(weights, count, &sum, err);
    if (code)
        return code;
    if (!quota && are_integers(weights, count, sum)) {
        for (size_t i = 0; i < count; i++)
            out[i] = (int64_t)weights[i];
        *whole = (int64_t)sum;
        return SQRL_OK;
    }
    *whole = (int64_t)(quota ? quota : WHOLE);
    return round_weights(weights, count, sum, (uint64_t)*whole, out, err);
}

/* --- making --- */

int sqrl_mix_new(const double *weights, size_t count,
                 const struct sqrl_mix_options *options, struct sqrl_mix **out,
                 struct sqrl_error *err) {
    *out = NULL;
    if (!count || count > SQRL_MAX_MIX)
        return sqrl_error_set(err, SQRL_E_INVALID, "a mix has 1 to %u sources, not %zu",
                              SQRL_MAX_MIX, count);
    if (options && options->quota > WHOLE)
        return sqrl_error_set(err, SQRL_E_INVALID, "the quota is above 2^52");
    struct sqrl_mix *mix = sqrl_calloc(1, sizeof *mix, "mix", err);
    if (!mix)
        return SQRL_E_NO_MEMORY;
    if (options)
        memcpy(&mix->options, options, SQRL_MIN(options->size, sizeof mix->options));
    mix->count = (uint32_t)count;
    mix->part = sqrl_calloc(count, sizeof *mix->part, "mix", err);
    int code = mix->part ? sqrl_mix_set_weights(mix, weights, err) : SQRL_E_NO_MEMORY;
    mix->changes = 0;
    if (code)
        sqrl_mix_free(mix);
    else
        *out = mix;
    return code;
}

void sqrl_mix_free(struct sqrl_mix *mix) {
    if (mix)
        free(mix->part);
    free(mix);
}

int sqrl_mix_set_weights(struct sqrl_mix *mix, const double *weights,
                         struct sqrl_error *err) {
    int64_t *rounded = sqrl_malloc(mix->count * sizeof *rounded, "weights", err), whole;
    if (!rounded)
        return SQRL_E_NO_MEMORY;
    int code =
        take_weights(weights, mix->count, mix->options.quota, rounded, &whole, err);
    for (uint32_t i = 0; i < mix->count && !code; i++)
        mix->part[i] = (struct part){.weight = rounded[i]};
    free(rounded);
    if (code)
        return code;
    mix->whole = whole;
    mix->draws = 0;
    mix->changes++;
    return SQRL_OK;
}

/* --- drawing --- */

/* The same for the same seed, change and draw, whatever came before. */
static uint32_t by_chance(const struct sqrl_mix *mix) {
    uint64_t r = sqrl_mix64(mix->options.seed ^ sqrl_mix64(mix->changes + 1));
    r = sqrl_mix64(r + mix->draws * UINT64_C(0x9e3779b97f4a7c15));
    int64_t at = (int64_t)(((wide)r * (uint64_t)mix->whole) >> 64);
    uint32_t i = 0;
    while (at >= mix->part[i].weight)
        at -= mix->part[i++].weight;
    return i;
}

/* Draws from now until the source must have had its next one: at least 1. */
static uint64_t draws_left(const struct sqrl_mix *mix, const struct part *p) {
    return (uint64_t)((mix->whole - p->lead + p->weight - 1) / p->weight);
}

/* Whether all others meet their ends if source `chosen` is drawn now. */
static bool in_time(struct sqrl_mix *mix, uint32_t chosen) {
    uint64_t end = draws_left(mix, &mix->part[chosen]), due = 0;
    if (end > LOOK)
        return false;
    for (uint32_t i = 0; i < mix->count; i++)
        mix->part[i].work = mix->part[i].lead;
    for (uint64_t draw = 1; draw < end; draw++) {
        for (uint32_t i = 0; i < mix->count; i++) {
            struct part *p = &mix->part[i];
            p->work += p->weight;
            if (p->work < mix->whole)
                continue;
            p->work -= mix->whole;
            due += i != chosen;
        }
        if (due > draw - 1)
            return false;
    }
    return true;
}

static uint32_t earliest(const struct sqrl_mix *mix) {
    uint32_t best = UINT32_MAX;
    uint64_t end = UINT64_MAX;
    for (uint32_t i = 0; i < mix->count; i++) {
        const struct part *p = &mix->part[i];
        if (!p->weight || p->lead + p->weight <= 0)
            continue;
        uint64_t left = draws_left(mix, p);
        if (left < end) {
            end = left;
            best = i;
        }
    }
    return best;
}

uint32_t sqrl_mix_next(struct sqrl_mix *mix) {
    uint32_t i = by_chance(mix);
    mix->draws++;
    if (!mix->options.independent) {
        const struct part *p = &mix->part[i];
        if (p->lead + p->weight <= 0 || !in_time(mix, i))
            i = earliest(mix);
        for (uint32_t k = 0; k < mix->count; k++)
            mix->part[k].lead += mix->part[k].weight;
        mix->part[i].lead -= mix->whole;
    }
    mix->part[i].drawn++;
    return i;
}

/* --- state --- */

void sqrl_mix_state(const struct sqrl_mix *mix, uint64_t *drawn, uint64_t *changes) {
    *changes = mix->changes;
    for (uint32_t i = 0; i < mix->count; i++)
        drawn[i] = mix->part[i].drawn;
}

int sqrl_mix_resume(struct sqrl_mix *mix, const uint64_t *drawn, uint64_t changes,
                    struct sqrl_error *err) {
    uint64_t draws = 0;
    for (uint32_t i = 0; i < mix->count; i++)
        if (__builtin_add_overflow(draws, drawn[i], &draws) || draws > INT64_MAX)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "the state of the mix is damaged: more draws than fit");
    for (uint32_t i = 0; i < mix->count; i++) {
        signed_wide lead =
            (signed_wide)draws * mix->part[i].weight - (signed_wide)drawn[i] * mix->whole;
        if (!mix->options.independent && (lead >= mix->whole || lead <= -mix->whole))
            return sqrl_error_set(
                err, SQRL_E_INVALID,
                "the state of the mix does not fit its weights: source %u was drawn "
                "%llu times of %llu; resume with the weights it was saved with",
                i, (unsigned long long)drawn[i], (unsigned long long)draws);
    }
    for (uint32_t i = 0; i < mix->count; i++) {
        struct part *p = &mix->part[i];
        p->drawn = drawn[i];
        if (!mix->options.independent)
            p->lead = (int64_t)((signed_wide)draws * p->weight -
                                (signed_wide)drawn[i] * mix->whole);
    }
    mix->draws = draws;
    mix->changes = changes;
    return SQRL_OK;
}
