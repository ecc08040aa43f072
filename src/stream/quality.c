/* quality.c - Kendall's tau, displacement, and how mixed batches are. */
#include "sqrl/quality.h"

#include "base/base.h"

#include <math.h>
#include <stdlib.h>

#define MAX_GROUP (1u << 26)

struct pair {
    uint64_t a, b;
};

static int by_both(const void *left, const void *right) {
    const struct pair *x = left, *y = right;
    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

static double pairs_of(uint64_t n) {
    return (double)n * ((double)n - 1) / 2;
}

/* Sorts by b, bottom up; how many pairs stood the wrong way round. */
static double sort_and_count(struct pair *from, struct pair *to, size_t count) {
    double swaps = 0;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            size_t left = begin, middle = SQRL_MIN(begin + width, count);
            size_t right = middle, end = SQRL_MIN(middle + width, count);
            for (size_t out = begin; out < end; out++) {
                if (left < middle && (right == end || from[left].b <= from[right].b)) {
                    to[out] = from[left++];
                } else {
                    to[out] = from[right++];
                    swaps += (double)(middle - left);
                }
            }
        }
        memcpy(from, to, count * sizeof *from);
    }
    return swaps;
}

/* Pairs of neighbours that are equal in a, in b, or in both. */
enum equality { EQUAL_A = 1, EQUAL_B = 2 };
static double ties(const struct pair *pairs, size_t count, unsigned in) {
    double sum = 0;
    uint64_t run = 1;
    for (size_t i = 1; i <= count; i++) {
        bool same = i < count && (!(in & EQUAL_A) || pairs[i].a == pairs[i - 1].a) &&
                    (!(in & EQUAL_B) || pairs[i].b == pairs[i - 1].b);
        if (!same)
            sum += pairs_of(run);
        run = same ? run + 1 : 1;
    }
    return sum;
}

int sqrl_kendall_tau(const uint64_t *a, const uint64_t *b, size_t count, double *out,
                     struct sqrl_error *err) {
    *out = NAN;
    struct pair *pairs = sqrl_calloc(2 * count + 1, sizeof *pairs, "tau", err);
    if (!pairs)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        pairs[i] = (struct pair){a[i], b[i]};
    qsort(pairs, count, sizeof *pairs, by_both);
    double all = pairs_of(count), same_a = ties(pairs, count, EQUAL_A);
    double same_both = ties(pairs, count, EQUAL_A | EQUAL_B);
    double swaps = sort_and_count(pairs, pairs + count, count);
    double same_b = ties(pairs, count, EQUAL_B);
    free(pairs);
    double sum = all - same_a - same_b + same_both - 2 * swaps;
    double scale = sqrt(all - same_a) * sqrt(all - same_b);
    *out = scale > 0 ? sum / scale : NAN;
    return SQRL_OK;
}

static int displacement(const uint64_t *order, size_t count, struct sqrl_quality *out,
                        struct sqrl_error *err) {
    struct pair *pairs = sqrl_calloc(count, sizeof *pairs, "quality", err);
    if (!pairs)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        pairs[i] = (struct pair){order[i], i};
    qsort(pairs, count, sizeof *pairs, by_both);
    double sum = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t way = pairs[i].b > i ? pairs[i].b - i : i - pairs[i].b;
        sum += (double)way;
        most = SQRL_MAX(most, way);
    }
    free(pairs);
    out->mean_displacement = sum / (double)count / (double)count;
    out->max_displacement = (double)most / (double)count;
    return SQRL_OK;
}

static double entropy_term(uint64_t part, double whole) {
    double p = (double)part / whole;
    return part ? -p * log2(p) : 0;
}

/* Chance that a group of `size` among `count` is in a batch that is drawn at random. */
static double chance(uint64_t size, uint64_t count, uint64_t batch) {
    double none = 1;
    if (size + batch > count)
        return 1;
    for (uint64_t i = 0; i < batch; i++)
        none *= (double)(count - size - i) / (double)(count - i);
    return 1 - none;
}

static void measure_batch(const uint32_t *group, size_t count, uint64_t *seen,
                          struct sqrl_quality *out) {
    for (size_t i = 0; i < count; i++)
        seen[group[i]]++;
    for (size_t i = 0; i < count; i++) {
        out->batch_groups += seen[group[i]] > 0;
        out->batch_entropy += entropy_term(seen[group[i]], (double)count);
        seen[group[i]] = 0; /* each group once, and clean for the next batch */
    }
}

static int measure_batches(const uint32_t *group, size_t count, size_t batch,
                           struct sqrl_quality *out, struct sqrl_error *err) {
    uint32_t groups = 0;
    for (size_t i = 0; i < count; i++)
        groups = SQRL_MAX(groups, group[i]);
    if (groups >= MAX_GROUP)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a group's number is above %u",
                              MAX_GROUP - 1);
    uint64_t *seen = sqrl_calloc((size_t)groups + 1, sizeof *seen, "quality", err);
    if (!seen)
        return SQRL_E_NO_MEMORY;
    batch = SQRL_MIN(batch, count);
    for (size_t at = 0; at + batch <= count; at += batch) {
        measure_batch(group + at, batch, seen, out);
        out->batches++;
    }
    out->batch_groups /= (double)out->batches;
    out->batch_entropy /= (double)out->batches;
    for (size_t i = 0; i < count; i++)
        seen[group[i]]++;
    uint64_t size = UINT64_MAX;
    double known = 0;
    for (size_t g = 0; g <= groups; g++) {
        if (seen[g] != size) /* most groups are of one size */
            known = chance(seen[g], count, batch);
        size = seen[g];
        out->random_batch_groups += size ? known : 0;
        out->whole_entropy += entropy_term(size, (double)count);
    }
    free(seen);
    return SQRL_OK;
}

int sqrl_quality_measure(const uint64_t *order, const uint32_t *group, size_t count,
                         size_t batch_size, struct sqrl_quality *out,
                         struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    if (!count || !batch_size)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              count
                                  ? "a batch has at least 1 sample"
                                  : "there are no samples whose order could be measured");
    uint64_t *number = sqrl_malloc(count * sizeof *number, "quality", err);
    if (!number)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        number[i] = i;
    int code = sqrl_kendall_tau(number, order, count, &out->tau, err);
    free(number);
    if (!code)
        code = displacement(order, count, out, err);
    return code ? code : measure_batches(group, count, batch_size, out, err);
}
