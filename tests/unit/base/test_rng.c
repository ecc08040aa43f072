/* The tables come from a transcription of the authors' C code into Python integers:
 *
 *     def splitmix64(x):                          def xoshiro(s):  # s: four words
 *         x = x + 0x9e3779b97f4a7c15 & M              r = rotl(s[1] * 5 & M, 7) * 9 & M
 *         z = x                                       t = s[1] << 17 & M
 *         z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & M  s[2] ^= s[0]; s[3] ^= s[1]
 *         z = (z ^ z >> 27) * 0x94d049bb133111eb & M  s[1] ^= s[2]; s[0] ^= s[3]
 *         return x, z ^ z >> 31                       s[2] ^= t; s[3] = rotl(s[3], 45)
 *
 *     def below(n):                               # Lemire 2019
 *         m = next() * n
 *         while m & M < (2**64 - n) % n: m = next() * n
 *         return m >> 64
 *
 * The rows for splitmix64 of 1234567 and for the state 1, 2, 3, 4 are also the published
 * ones. */
#include "base_test.h"

static void test_mix_is_splitmix64(void **state) {
    static const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u,
                                        9817491932198370423u, 4593380528125082431u,
                                        16408922859458223821u};
    uint64_t x = 1234567;
    for (size_t i = 0; i < SQRL_COUNT_OF(expected); i++) {
        assert_true(sqrl_mix64(x) == expected[i]);
        x += 0x9e3779b97f4a7c15u;
    }
}

static void test_next_is_xoshiro(void **state) {
    static const uint64_t expected[] = {
        11520u,
        0u,
        1509978240u,
        1215971899390074240u,
        1216172134540287360u,
        607988272756665600u,
        16172922978634559625u,
        8476171486693032832u,
        10595114339597558777u,
        2904607092377533576u,
    };
    struct sqrl_rng rng = {{1, 2, 3, 4}};
    for (size_t i = 0; i < SQRL_COUNT_OF(expected); i++)
        assert_true(sqrl_rng_next(&rng) == expected[i]);
}

static void test_seeded(void **state) {
    static const struct {
        uint64_t seed, values[4];
    } rows[] = {
        {0,
         {0x99ec5f36cb75f2b4, 0xbf6e1f784956452a, 0x1a5f849d4933e6e0,
          0x6aa594f1262d2d2c}},
        {42,
         {0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1,
          0xecb8ad4703b360a1}},
        {UINT64_MAX,
         {0x8f5520d52a7ead08, 0xc476a018caa1802d, 0x81de31c0d260469e,
          0xbf658d7e065f3c2f}},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        struct sqrl_rng rng;
        sqrl_rng_init(&rng, rows[i].seed);
        for (size_t j = 0; j < 4; j++)
            assert_true(sqrl_rng_next(&rng) == rows[i].values[j]);
    }
}

static void test_below(void **state) {
    static const struct {
        uint64_t n, values[6];
    } rows[] = {
        {10, {7, 2, 8, 9, 9, 8}},
        {1000003, {700578, 278752, 839629, 981100, 990863, 872776}},
        /* nearly half of the draws are refused */
        {((uint64_t)1 << 63) + 1,
         {6461677535414237997u, 7744196453246319819u, 9049029322324588832u,
          9139072988219048332u, 1400256439129669809u, 6750200521807187948u}},
        {(uint64_t)3 << 62,
         {9692516303121356995u, 3856539442751087005u, 11616294679869479728u,
          12074878111676180790u, 2100384658694504714u, 7489852155027228977u}},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        struct sqrl_rng rng;
        sqrl_rng_init(&rng, 7);
        for (size_t j = 0; j < 6; j++)
            assert_true(sqrl_rng_below(&rng, rows[i].n) == rows[i].values[j]);
    }
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 1);
    for (int i = 0; i < 100; i++)
        assert_int_equal(sqrl_rng_below(&rng, 1), 0);
}

/* Chi-square with 9 degrees of freedom: below 27.88 with probability 0.999; the seed is
 * fixed. */
static void test_below_is_even(void **state) {
    enum { DRAWS = 100000, BINS = 10 };
    unsigned counts[BINS] = {0};
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 20);
    for (int i = 0; i < DRAWS; i++)
        counts[sqrl_rng_below(&rng, BINS)]++;
    double chi = 0;
    for (int i = 0; i < BINS; i++) {
        double off = counts[i] - (double)DRAWS / BINS;
        chi += off * off / ((double)DRAWS / BINS);
    }
    assert_true(chi < 27.88);
}

static void test_random_bytes(void **state) {
    static uint8_t a[70000], b[70000];
    assert_int_equal(sqrl_random_bytes(a, sizeof a, NULL), SQRL_OK);
    assert_int_equal(sqrl_random_bytes(b, sizeof b, NULL), SQRL_OK);
    assert_memory_not_equal(a, b, 32);
    assert_memory_not_equal(a + sizeof a - 32, b + sizeof b - 32, 32);
    unsigned counts[256] = {0};
    for (size_t i = 0; i < sizeof a; i++)
        counts[a[i]]++;
    for (int i = 0; i < 256; i++) /* expected 273, standard deviation 16.5 */
        assert_in_range(counts[i], 273 - 165, 273 + 165);
    assert_int_equal(sqrl_random_bytes(a, 0, NULL), SQRL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mix_is_splitmix64),
        cmocka_unit_test(test_next_is_xoshiro),
        cmocka_unit_test(test_seeded),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_below_is_even),
        cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
