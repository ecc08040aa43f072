/* The schedule of a mix against its definition: counts of every prefix, quotas, states.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "sqrl/mix.h"

enum { MOST = 12 };

static struct sqrl_rng rng;

static struct sqrl_mix *new_mix(const double *weights, size_t count, uint64_t seed,
                                uint64_t quota, bool independent) {
    struct sqrl_mix *mix;
    struct sqrl_error err;
    struct sqrl_mix_options o = {sizeof o, seed, quota, independent};
    assert_int_equal(sqrl_mix_new(weights, count, &o, &mix, &err), SQRL_OK);
    return mix;
}

static size_t random_weights(double *weights) {
    size_t count = 1 + sqrl_rng_below(&rng, MOST);
    unsigned kind = (unsigned)sqrl_rng_below(&rng, 4);
    for (size_t i = 0; i < count; i++) {
        double u = (double)(1 + sqrl_rng_below(&rng, 1000000)) / 1e6;
        weights[i] = kind == 0   ? (double)(1 + sqrl_rng_below(&rng, 9))
                     : kind == 1 ? u
                     : kind == 2 ? exp(-12 * u)
                                 : (i ? 1e-4 * u : 1);
    }
    return count;
}

/* n draws, each prefix within 1 of n times the weight. */
static void check_prefixes(struct sqrl_mix *mix, const double *weights, size_t count,
                           unsigned n) {
    double sum = 0;
    uint64_t drawn[MOST] = {0};
    for (size_t i = 0; i < count; i++)
        sum += weights[i];
    for (unsigned draw = 1; draw <= n; draw++) {
        uint32_t source = sqrl_mix_next(mix);
        assert_true(source < count);
        drawn[source]++;
        for (size_t i = 0; i < count; i++) {
            double off = (double)drawn[i] - draw * (weights[i] / sum);
            if (!(fabs(off) < 1 + 1e-9))
                fail_msg("draw %u: source %zu is %g off", draw, i, off);
        }
    }
}

static void test_every_prefix(void **state) {
    (void)state;
    double weights[MOST];
    for (unsigned round = 0; round < 400; round++) {
        size_t count = random_weights(weights);
        struct sqrl_mix *mix = new_mix(weights, count, sqrl_rng_next(&rng), 0, false);
        check_prefixes(mix, weights, count, round % 50 ? 700 : 20000);
        struct sqrl_error err; /* the promise counts anew with other weights */
        for (size_t i = 0; i < count; i++)
            weights[i] *= (double)(1 + sqrl_rng_below(&rng, 5));
        assert_int_equal(sqrl_mix_set_weights(mix, weights, &err), SQRL_OK);
        check_prefixes(mix, weights, count, 300);
        sqrl_mix_free(mix);
    }
}

static void test_quota(void **state) {
    (void)state;
    static const double thirds[] = {1, 1, 1}, uneven[] = {0.7, 0.25, 0.05};
    static const uint64_t expected_thirds[] = {86, 85, 85}, expected[] = {179, 64, 13};
    for (unsigned which = 0; which < 2; which++) {
        struct sqrl_mix *mix = new_mix(which ? uneven : thirds, 3, 5, 256, false);
        for (unsigned batch = 0; batch < 50; batch++) {
            uint64_t drawn[3] = {0};
            for (unsigned i = 0; i < 256; i++)
                drawn[sqrl_mix_next(mix)]++;
            for (unsigned i = 0; i < 3; i++)
                assert_int_equal(drawn[i], (which ? expected : expected_thirds)[i]);
        }
        sqrl_mix_free(mix);
    }
}

/* With two sources of 1 to 9 the rare one comes at all places of ten, by the seed. */
static void test_seeds_differ(void **state) {
    (void)state;
    static const double weights[] = {9, 1};
    unsigned seen[10] = {0};
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct sqrl_mix *mix = new_mix(weights, 2, seed, 0, false);
        for (unsigned i = 0; i < 10; i++)
            seen[i] += sqrl_mix_next(mix);
        sqrl_mix_free(mix);
    }
    for (unsigned i = 0; i < 10; i++)
        assert_true(seen[i] > 50);
}

static void test_resume(void **state) {
    (void)state;
    double weights[MOST];
    for (unsigned round = 0; round < 200; round++) {
        size_t count = random_weights(weights);
        bool independent = round % 4 == 0;
        uint64_t seed = sqrl_rng_next(&rng), drawn[MOST], changes;
        struct sqrl_error err;
        struct sqrl_mix *a = new_mix(weights, count, seed, 0, independent);
        struct sqrl_mix *b = new_mix(weights, count, seed, 0, independent);
        if (round % 3 == 0)
            assert_int_equal(sqrl_mix_set_weights(a, weights, &err), SQRL_OK);
        for (uint64_t i = sqrl_rng_below(&rng, 3000); i > 0; i--)
            (void)sqrl_mix_next(a);
        sqrl_mix_state(a, drawn, &changes);
        assert_int_equal(sqrl_mix_resume(b, drawn, changes, &err), SQRL_OK);
        for (unsigned i = 0; i < 500; i++)
            assert_int_equal(sqrl_mix_next(a), sqrl_mix_next(b));
        drawn[0] += 1000000;
        if (!independent && count > 1)
            assert_int_equal(sqrl_mix_resume(b, drawn, changes, &err), SQRL_E_INVALID);
        sqrl_mix_free(a);
        sqrl_mix_free(b);
    }
}

/* Frequencies of independent draws: within five standard deviations. */
static void test_independent(void **state) {
    (void)state;
    static const double weights[] = {0.5, 0.3, 0.2};
    enum { N = 100000 };
    struct sqrl_mix *mix = new_mix(weights, 3, 11, 0, true);
    uint64_t drawn[3] = {0};
    for (unsigned i = 0; i < N; i++)
        drawn[sqrl_mix_next(mix)]++;
    for (unsigned i = 0; i < 3; i++) {
        double p = weights[i], deviation = sqrt(N * p * (1 - p));
        assert_true(fabs((double)drawn[i] - N * p) < 5 * deviation);
    }
    sqrl_mix_free(mix);
}

static void test_refusals(void **state) {
    (void)state;
    static const double bad[][2] = {
        {1, -1}, {0, 0}, {NAN, 1}, {INFINITY, 1}, {1e308, 1e308}};
    struct sqrl_mix *mix;
    struct sqrl_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sqrl_mix_new(bad[i], 2, NULL, &mix, &err), SQRL_E_INVALID);
    assert_int_equal(sqrl_mix_new(bad[0], 0, NULL, &mix, &err), SQRL_E_INVALID);
    struct sqrl_mix_options o = {.size = sizeof o, .quota = 10};
    static const double rare[] = {1, 0.001}, never[] = {1, 0};
    assert_int_equal(sqrl_mix_new(rare, 2, &o, &mix, &err), SQRL_E_INVALID);
    assert_non_null(strstr(err.message, "quota"));
    mix = new_mix(never, 2, 1, 0, false);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(sqrl_mix_next(mix), 0);
    assert_int_equal(sqrl_mix_set_weights(mix, bad[0], &err), SQRL_E_INVALID);
    assert_int_equal(sqrl_mix_next(mix), 0);
    sqrl_mix_free(mix);
}

int main(void) {
    sqrl_rng_init(&rng, 20);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_prefix), cmocka_unit_test(test_quota),
        cmocka_unit_test(test_seeds_differ), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_independent),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
