/* Chunks, windows and permutations: bijections for every size, functions of the key
 * alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stream/order.h"

static void check_bijection(uint64_t n, uint64_t key) {
    struct sqrl_permutation p;
    sqrl_permutation_init(&p, n, key);
    uint8_t *seen = calloc(n + 1, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = sqrl_permutation_at(&p, i);
        assert_true(to < n);
        assert_int_equal(seen[to], 0);
        seen[to] = 1;
    }
    free(seen);
}

static void permutations_are_bijections(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 300; n++)
        check_bijection(n, n * 31 + 1);
    static const uint64_t SIZES[] = {511,   512,   513,    4095,   4097,
                                     65535, 65537, 100003, 1 << 20};
    for (size_t i = 0; i < SQRL_COUNT_OF(SIZES); i++)
        for (uint64_t key = 0; key < 3; key++)
            check_bijection(SIZES[i], key);
}

static void huge_domains_stay_in_range(void **state) {
    (void)state;
    static const uint64_t SIZES[] = {UINT64_C(1) << 32, (UINT64_C(1) << 40) + 1,
                                     UINT64_MAX / 2, UINT64_MAX};
    for (size_t i = 0; i < SQRL_COUNT_OF(SIZES); i++) {
        struct sqrl_permutation p;
        sqrl_permutation_init(&p, SIZES[i], 5);
        uint64_t a = sqrl_permutation_at(&p, 0), b = sqrl_permutation_at(&p, 1);
        assert_true(a < SIZES[i] && b < SIZES[i] && a != b);
    }
}

/* Where position i of n = 8 lands, over many keys: every place equally often. 8 x 8 cells
 * of 4000 expected each: chi square of 49 degrees of freedom stays below 100 (p < 1e-4).
 */
static void small_permutations_are_even(void **state) {
    (void)state;
    enum { N = 8, KEYS = 32000 };
    static unsigned hits[N][N];
    for (uint64_t key = 0; key < KEYS; key++) {
        struct sqrl_permutation p;
        sqrl_permutation_init(&p, N, sqrl_mix64(key));
        for (uint64_t i = 0; i < N; i++)
            hits[i][sqrl_permutation_at(&p, i)]++;
    }
    double chi = 0, expect = (double)KEYS / N;
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = 0; k < N; k++)
            chi += (hits[i][k] - expect) * (hits[i][k] - expect) / expect;
    assert_true(chi < 100);
}

/* Neighbours must not stay neighbours: in a random permutation of n about 2 of n - 1
 * pairs do. */
static void neighbours_part(void **state) {
    (void)state;
    struct sqrl_permutation p;
    sqrl_permutation_init(&p, 100000, 99);
    unsigned together = 0, rising = 0;
    uint64_t last = sqrl_permutation_at(&p, 0);
    for (uint64_t i = 1; i < 100000; i++) {
        uint64_t now = sqrl_permutation_at(&p, i);
        together += now == last + 1 || last == now + 1;
        rising += now > last;
        last = now;
    }
    assert_true(together < 20);
    assert_true(rising > 49000 && rising < 51000);
}

static struct sqrl_order *make(const struct sqrl_order_shard *shards, uint64_t count,
                               enum sqrl_order_kind kind, uint64_t seed, uint64_t epoch,
                               uint64_t window) {
    struct sqrl_order_args args = {shards, count, kind, seed, epoch, window};
    struct sqrl_order *order;
    struct sqrl_error err;
    assert_int_equal(sqrl_order_new(&args, &order, &err), SQRL_OK);
    return order;
}

static void every_block_once(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 3);
    for (unsigned round = 0; round < 300; round++) {
        struct sqrl_order_shard shards[20];
        static uint8_t seen[20][512];
        memset(seen, 0, sizeof seen);
        uint64_t count = sqrl_rng_below(&rng, 20), total = 0, got = 0;
        bool shuffled = sqrl_rng_below(&rng, 2);
        enum sqrl_order_kind kind = shuffled ? SQRL_ORDER_WINDOWS : SQRL_ORDER_AS_IT_LIES;
        uint64_t window = 1 + sqrl_rng_below(&rng, 64 << 20);
        for (uint64_t s = 0; s < count; s++) {
            shards[s].blocks =
                sqrl_rng_below(&rng, 10) ? sqrl_rng_below(&rng, 512) : SQRL_UNKNOWN;
            shards[s].bytes = sqrl_rng_below(&rng, 4)
                                  ? sqrl_rng_below(&rng, UINT64_C(1) << 29)
                                  : SQRL_UNKNOWN;
            total += shards[s].blocks == SQRL_UNKNOWN ? 1 : shards[s].blocks;
        }
        struct sqrl_order *order = make(shards, count, kind, round, 0, window);
        struct sqrl_chunk chunk;
        uint64_t chunks = 0, last = 0;
        while (sqrl_order_next(order, &chunk)) {
            chunks++;
            if (!shuffled) {
                assert_true(chunk.shard >= last);
                last = chunk.shard;
            }
            uint64_t blocks = chunk.blocks == SQRL_UNKNOWN ? 1 : chunk.blocks;
            for (uint64_t b = 0; b < blocks; b++)
                assert_int_equal(seen[chunk.shard][chunk.first_block + b]++, 0);
            got += blocks;
        }
        assert_int_equal(got, total);
        assert_int_equal(chunks, sqrl_order_chunks(order));
        assert_false(sqrl_order_next(order, &chunk));
        sqrl_order_free(order);
    }
}

/* 100 shards of 40 MiB, windows of 96 MiB: 42 windows of equal size. */
static void windows_have_their_size(void **state) {
    (void)state;
    struct sqrl_order_shard shards[100];
    for (unsigned s = 0; s < 100; s++)
        shards[s] = (struct sqrl_order_shard){40, UINT64_C(40) << 20, SQRL_UNKNOWN};
    struct sqrl_order *order =
        make(shards, 100, SQRL_ORDER_WINDOWS, 1, 0, UINT64_C(96) << 20);
    struct sqrl_chunk chunk;
    unsigned windows = 0;
    uint64_t blocks = 0;
    while (sqrl_order_next(order, &chunk)) {
        assert_true(chunk.blocks <= 6);
        blocks += chunk.blocks;
        if (chunk.ends_window) {
            windows++;
            assert_true(blocks >= 80 && blocks <= 102);
            blocks = 0;
        }
    }
    assert_int_equal(blocks, 0); /* the last chunk ends a window */
    assert_in_range(windows, 41, 43);
    sqrl_order_free(order);
}

static void key_decides(void **state) {
    (void)state;
    struct sqrl_order_shard shard = {1000, UINT64_C(1000) << 20, SQRL_UNKNOWN};
    struct sqrl_order *a = make(&shard, 1, SQRL_ORDER_WINDOWS, 1, 0, 1 << 20),
                      *b = make(&shard, 1, SQRL_ORDER_WINDOWS, 1, 0, 1 << 20),
                      *seed = make(&shard, 1, SQRL_ORDER_WINDOWS, 2, 0, 1 << 20),
                      *epoch = make(&shard, 1, SQRL_ORDER_WINDOWS, 1, 1, 1 << 20);
    unsigned other_seed = 0, other_epoch = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        struct sqrl_chunk ca, cb, cs, ce;
        sqrl_order_chunk_at(a, i, &ca);
        sqrl_order_chunk_at(b, i, &cb);
        sqrl_order_chunk_at(seed, i, &cs);
        sqrl_order_chunk_at(epoch, i, &ce);
        assert_int_equal(ca.first_block, cb.first_block);
        other_seed += ca.first_block != cs.first_block;
        other_epoch += ca.first_block != ce.first_block;
    }
    assert_true(other_seed > 980 && other_epoch > 980);
    struct sqrl_permutation p, q;
    sqrl_order_window(a, 0, 1000, &p);
    sqrl_order_window(a, 1, 1000, &q);
    unsigned differ = 0;
    for (uint64_t i = 0; i < 1000; i++)
        differ += sqrl_permutation_at(&p, i) != sqrl_permutation_at(&q, i);
    assert_true(differ > 980);
    sqrl_order_free(a);
    sqrl_order_free(b);
    sqrl_order_free(seed);
    sqrl_order_free(epoch);
}

/* Each sample of each shard is one chunk; a shard that isn't counted is refused. */
static void single_samples(void **state) {
    (void)state;
    struct sqrl_order_shard shards[4] = {{3, SQRL_UNKNOWN, 70},
                                         {0, SQRL_UNKNOWN, 0},
                                         {SQRL_UNKNOWN, SQRL_UNKNOWN, 1},
                                         {9, 100, 29}};
    struct sqrl_order *order = make(shards, 4, SQRL_ORDER_SAMPLES, 4, 2, 0);
    static uint8_t seen[4][70];
    memset(seen, 0, sizeof seen);
    struct sqrl_chunk chunk;
    unsigned got = 0;
    while (sqrl_order_next(order, &chunk)) {
        assert_int_equal(chunk.rows, 1);
        assert_int_equal(chunk.number, got++);
        assert_true(chunk.first_row < shards[chunk.shard].samples);
        assert_int_equal(seen[chunk.shard][chunk.first_row]++, 0);
    }
    assert_int_equal(got, 100);
    sqrl_order_free(order);
    shards[2].samples = SQRL_UNKNOWN;
    struct sqrl_order_args args = {
        .shards = shards, .count = 4, .kind = SQRL_ORDER_SAMPLES};
    assert_int_equal(sqrl_order_new(&args, &order, NULL), SQRL_E_UNSUPPORTED);
    assert_null(order);
}

/* From any chunk on, chunks and ends of windows are those of the whole sequence. */
static void seeking(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 8);
    for (unsigned round = 0; round < 60; round++) {
        struct sqrl_order_shard shards[6];
        enum sqrl_order_kind kind = (enum sqrl_order_kind)sqrl_rng_below(&rng, 3);
        for (unsigned s = 0; s < 6; s++)
            shards[s] = (struct sqrl_order_shard){sqrl_rng_below(&rng, 40),
                                                  sqrl_rng_below(&rng, 40 << 20),
                                                  sqrl_rng_below(&rng, 40)};
        struct sqrl_order *order = make(shards, 6, kind, round, 1, 4 << 20);
        struct sqrl_chunk all[400];
        size_t count = 0;
        while (sqrl_order_next(order, &all[count]))
            count++;
        for (unsigned k = 0; k < 10; k++) {
            uint64_t at = sqrl_rng_below(&rng, count + 1);
            struct sqrl_chunk chunk;
            sqrl_order_seek(order, at);
            for (; sqrl_order_next(order, &chunk); at++) {
                assert_int_equal(chunk.shard, all[at].shard);
                assert_int_equal(chunk.first_block, all[at].first_block);
                assert_int_equal(chunk.first_row, all[at].first_row);
                assert_int_equal(chunk.number, at);
                assert_int_equal(chunk.ends_window, all[at].ends_window);
            }
            assert_int_equal(at, count);
        }
        sqrl_order_free(order);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutations_are_bijections),
        cmocka_unit_test(huge_domains_stay_in_range),
        cmocka_unit_test(small_permutations_are_even),
        cmocka_unit_test(neighbours_part),
        cmocka_unit_test(every_block_once),
        cmocka_unit_test(windows_have_their_size),
        cmocka_unit_test(key_decides),
        cmocka_unit_test(single_samples),
        cmocka_unit_test(seeking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
