/* sqrl/mix.h - which of several streams gives the next sample.
 *
 * A schedule, nothing else: it reads no data and knows no lengths. Its promise: of every
 * first n draws, source i has more than n * w[i] - 1 and less than n * w[i] + 1, where w
 * are the weights divided by their sum. Such orders are those of fair scheduling (Baruah,
 * Cohen, Plaxton, Varvel 1996): draw c of a source lies in the window from floor((c - 1)
 * / w) + 1 to ceil(c / w), and the earliest end first always meets all of them. Within
 * that freedom the seed decides.
 *
 * To go on later, save sqrl_mix_state and the sqrl_iterator_state of each source; on
 * other numbers of ranks give each source's iterator the states of all ranks
 * (sqrl/stream.h), and the mix the draws of the rank that was furthest on.
 *
 * Threads: a mix belongs to one thread at a time.
 */
#ifndef SQRL_MIX_H
#define SQRL_MIX_H

#include "error.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SQRL_MAX_MIX 65536u /* sources */

struct sqrl_mix;

/* Zero means the default. Set `size` to sizeof(struct sqrl_mix_options). */
struct sqrl_mix_options {
    size_t size;
    uint64_t seed;
    /* Not 0: weights are rounded to multiples of 1/quota (largest remainders), so that
     * draws 1 to quota, quota + 1 to 2 * quota ... hold exactly as many of each source. A
     * weight that would become 0 by that is SQRL_E_INVALID. */
    uint64_t quota;
    bool independent; /* each draw by chance alone: without the promise */
};

/* `weights` are at least 0 and not all 0; integers whose sum is at most 2^52 are taken
 * exactly, others to 52 bits. SQRL_E_INVALID names the weight that can't be. */
SQRL_CHECK int sqrl_mix_new(const double *weights, size_t count,
                            const struct sqrl_mix_options *options, struct sqrl_mix **out,
                            struct sqrl_error *err);
/* NULL is allowed. */
SQRL_API void sqrl_mix_free(struct sqrl_mix *mix);
/* The number of the source that gives the next sample. */
SQRL_API uint32_t sqrl_mix_next(struct sqrl_mix *mix);
/* From the next draw on: the promise counts anew from here. On failure the old ones stay.
 */
SQRL_CHECK int sqrl_mix_set_weights(struct sqrl_mix *mix, const double *weights,
                                    struct sqrl_error *err);
/* The state: draws of each source since the weights were set, and how often they were set
 * anew. `drawn` is [count of sources]. */
SQRL_API void sqrl_mix_state(const struct sqrl_mix *mix, uint64_t *drawn,
                             uint64_t *changes);
/* Continues where a mix of the same sources, weights and options had this state.
 * SQRL_E_INVALID: no such mix can have it; the mix is left as it was. */
SQRL_CHECK int sqrl_mix_resume(struct sqrl_mix *mix, const uint64_t *drawn,
                               uint64_t changes, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
