/* sqrl/quality.h - what an order of samples is worth, in figures.
 *
 * Pure functions of arrays, any thread; memory: 40 bytes a sample while they run.
 */
#ifndef SQRL_QUALITY_H
#define SQRL_QUALITY_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kendall's tau-b of the pairs (a[i], b[i]), i < count: 1 where both have one order, -1
 * for opposite ones, about 0 for unrelated ones; NaN where one of them is constant. (W.
 * R. Knight, "A computer method for calculating Kendall's tau with ungrouped data", J.
 * Am. Stat. Assoc. 61 (1966): O(n log n).) */
SQRL_CHECK int sqrl_kendall_tau(const uint64_t *a, const uint64_t *b, size_t count,
                                double *out, struct sqrl_error *err);

struct sqrl_quality {
    double tau; /* of the order and the source's own */
    /* How far samples are from where they were, as parts of the whole; a perfect shuffle
     * has a mean of 1/3. */
    double mean_displacement, max_displacement;
    /* Within whole batches, the mean of: different groups, and the entropy of their
     * shares in bits. Beside them what batches drawn at random would have of groups, and
     * the entropy of the whole. */
    double batch_groups, random_batch_groups;
    double batch_entropy, whole_entropy;
    uint64_t batches;
};
/* order[i]: position in the source of the sample that came as number i. group[i]: what it
 * belongs to, below 2^26 (a shard's number, say). Fewer samples than batch_size are one
 * batch. SQRL_E_INVALID: no samples, or batch_size 0. */
SQRL_CHECK int sqrl_quality_measure(const uint64_t *order, const uint32_t *group,
                                    size_t count, size_t batch_size,
                                    struct sqrl_quality *out, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
