/* Dealing samples to consumers, and what they have left to others: thousands of random
 * layouts, topologies and stops against the plain rule that every sample comes once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stream/deal.h"

enum { MAX_UNITS = 40, MAX_SAMPLES = 4000, MAX_TEAM = 40 };

/* A random data set; sample k of the units as they lie is number k. */
struct layout {
    struct sqrl_unit unit[MAX_UNITS];
    uint64_t first[MAX_UNITS], count, samples;
    uint64_t block_bytes[4];
    struct sqrl_deal_args args;
};

static struct sqrl_rng rng;

static uint64_t below(uint64_t n) {
    return sqrl_rng_below(&rng, n);
}

static void random_layout(struct layout *l) {
    uint32_t block = 0, shard = 0, most = below(3) ? 60 : 3;
    memset(l, 0, sizeof *l);
    l->count = below(MAX_UNITS);
    for (uint64_t u = 0; u < l->count; u++) {
        if (shard < 3 && !below(8)) {
            shard++;
            block = 0;
        }
        uint32_t blocks = 1 + (uint32_t)below(4);
        l->unit[u] = (struct sqrl_unit){shard, block, blocks, 1 + (uint32_t)below(most)};
        block += blocks;
        l->first[u] = l->samples;
        l->samples += l->unit[u].samples;
    }
    for (unsigned s = 0; s < 4; s++)
        l->block_bytes[s] = 1024 * (1 + below(20));
    l->args = (struct sqrl_deal_args){
        .count = l->count,
        .shard_bytes = l->block_bytes,
        .kind = below(4) ? SQRL_ORDER_WINDOWS : (enum sqrl_order_kind)below(3),
        .seed = below(1000),
        .epoch = below(3),
        .window_bytes = 1024 * (1 + below(below(2) ? 20 : 400)),
    };
}

static struct sqrl_deal *new_deal(const struct layout *l, uint64_t like) {
    struct sqrl_deal_args args = l->args;
    struct sqrl_deal *deal;
    struct sqrl_error err;
    args.like = like;
    args.units = calloc(l->count + 1, sizeof *args.units);
    assert_non_null(args.units);
    memcpy(args.units, l->unit, l->count * sizeof *args.units);
    assert_int_equal(sqrl_deal_new(&args, &deal, &err), SQRL_OK);
    assert_int_equal(sqrl_deal_samples(deal), l->samples);
    return deal;
}

static uint64_t number_of(const struct layout *l, const struct sqrl_chunk *chunk) {
    for (uint64_t u = 0; u < l->count; u++)
        if (l->unit[u].shard == chunk->shard &&
            l->unit[u].first_block == chunk->first_block) {
            assert_true(chunk->first_row + chunk->rows <= l->unit[u].samples);
            assert_int_equal(l->unit[u].blocks, chunk->blocks);
            return l->first[u] + chunk->first_row;
        }
    fail();
    return 0;
}

struct run {
    uint64_t id[2 * MAX_SAMPLES + 100];
    size_t count;
    uint64_t loaded; /* samples of the chunks that were asked for */
    struct sqrl_share left;
};

/* What the executor does: chunks fill a hand's rows, the hand says which comes next. */
static void consume(const struct layout *l, const struct sqrl_deal *deal,
                    const struct sqrl_share *share, uint64_t most, struct run *out) {
    struct sqrl_deal_walk walk;
    struct sqrl_dealer dealer;
    struct sqrl_hand hand = {0};
    struct sqrl_error err;
    struct sqrl_point point;
    static uint64_t row[MAX_SAMPLES];
    bool more = true, single = l->args.kind == SQRL_ORDER_SAMPLES;
    out->count = 0;
    out->loaded = 0;
    sqrl_deal_walk_init(&walk, deal, share);
    sqrl_dealer_init(&dealer, deal, share);
    point = dealer.point;
    while (out->count < most) {
        sqrl_hand_reset(&hand);
        assert_int_equal(sqrl_dealer_next(&dealer, &hand, &err), SQRL_OK);
        if (!hand.give)
            break;
        uint64_t rows = 0, given = 0;
        for (bool end = false; !end && !single;) {
            struct sqrl_chunk chunk;
            assert_int_equal(sqrl_deal_walk_next(&walk, &chunk, &more, &err), SQRL_OK);
            assert_true(more && chunk.rows);
            uint64_t number = number_of(l, &chunk);
            for (uint64_t r = 0; r < chunk.rows; r++)
                row[rows++] = number + r;
            end = chunk.ends_window;
        }
        assert_true(single || rows == hand.rows);
        out->loaded += rows;
        for (uint64_t g = hand.give; g && out->count < most; g--) {
            struct sqrl_chunk chunk;
            uint64_t at = sqrl_hand_next(&hand);
            assert_true(single || at < rows);
            if (single)
                assert_int_equal(sqrl_deal_walk_next(&walk, &chunk, &more, &err),
                                 SQRL_OK);
            out->id[out->count++] = single ? number_of(l, &chunk) : row[at];
            given++;
        }
        point = sqrl_hand_point(&hand, given);
    }
    if (out->count < most) {
        struct sqrl_chunk chunk;
        assert_int_equal(sqrl_deal_walk_next(&walk, &chunk, &more, &err), SQRL_OK);
        assert_false(more);
    }
    sqrl_hand_reset(&hand);
    sqrl_deal_walk_reset(&walk);
    assert_int_equal(sqrl_share_at(share, &point, &out->left, &err), SQRL_OK);
    assert_int_equal(sqrl_deal_check(deal, &out->left, &err), SQRL_OK);
}

static struct run run[MAX_TEAM], again[MAX_TEAM];

static void share_of(const struct sqrl_deal *deal, uint64_t consumers, uint64_t consumer,
                     enum sqrl_tail tail, struct sqrl_share *out) {
    struct sqrl_error err;
    assert_int_equal(sqrl_deal_share(deal, consumers, consumer, tail, false, out, &err),
                     SQRL_OK);
}

static uint64_t random_team(void) {
    return below(3) ? 1 + below(8) : 1 + below(MAX_TEAM - 1);
}

/* Each sample once with an uneven tail; equal numbers with pad and drop. */
static void every_sample_once(void **state) {
    (void)state;
    for (unsigned round = 0; round < 1500; round++) {
        static uint8_t seen[MAX_SAMPLES];
        struct layout l;
        random_layout(&l);
        uint64_t team = random_team(), total = 0;
        struct sqrl_deal *deal = new_deal(&l, team);
        enum sqrl_tail tail = (enum sqrl_tail)below(3);
        memset(seen, 0, sizeof seen);
        for (uint64_t c = 0; c < team; c++) {
            struct sqrl_share share;
            share_of(deal, team, c, tail, &share);
            consume(&l, deal, &share, UINT64_MAX, &run[c]);
            total += run[c].count;
            for (size_t i = 0; i < run[c].count; i++)
                seen[run[c].id[i]]++;
            if (tail == SQRL_TAIL_PAD)
                assert_int_equal(run[c].count, (l.samples + team - 1) / team);
            if (tail == SQRL_TAIL_DROP)
                assert_int_equal(run[c].count, l.samples / team);
            assert_int_equal(run[c].left.quota, 0); /* nothing is left */
            sqrl_share_reset(&share);
            sqrl_share_reset(&run[c].left);
        }
        unsigned missing = 0, more = 0;
        for (uint64_t i = 0; i < l.samples; i++) {
            missing += !seen[i];
            more += seen[i] ? seen[i] - 1u : 0;
        }
        assert_int_equal(missing, tail == SQRL_TAIL_DROP ? l.samples % team : 0);
        assert_int_equal(more, total - (l.samples - missing));
        assert_true(tail == SQRL_TAIL_PAD || !more);
        sqrl_deal_free(deal);
    }
}

/* A consumer reads its own part and little more: the pieces' neighbours in a chunk count
 * with their blocks, not with samples, and here not at all. */
static void nobody_reads_for_others(void **state) {
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        struct layout l;
        random_layout(&l);
        if (l.args.kind == SQRL_ORDER_SAMPLES)
            continue;
        uint64_t team = random_team();
        struct sqrl_deal *deal = new_deal(&l, team);
        for (uint64_t c = 0; c < team; c++) {
            struct sqrl_share share;
            share_of(deal, team, c, SQRL_TAIL_UNEVEN, &share);
            consume(&l, deal, &share, UINT64_MAX, &run[c]);
            assert_int_equal(run[c].loaded, run[c].count);
            sqrl_share_reset(&share);
            sqrl_share_reset(&run[c].left);
        }
        sqrl_deal_free(deal);
    }
}

/* Sample number p of the order goes to consumer p mod C, for each C that divides the
 * lanes: so global batches are the same. */
static void one_order_for_all_divisors(void **state) {
    (void)state;
    static const uint64_t TEAM[] = {1, 2, 3, 4, 6, 8, 12, 16, 24};
    for (unsigned round = 0; round < 200; round++) {
        static uint64_t order[MAX_SAMPLES];
        struct layout l;
        random_layout(&l);
        uint64_t like = TEAM[below(SQRL_COUNT_OF(TEAM))];
        struct sqrl_deal *deal = new_deal(&l, like);
        for (size_t k = 0; k < SQRL_COUNT_OF(TEAM); k++) {
            uint64_t team = TEAM[k];
            for (uint64_t c = 0; c < team; c++) {
                struct sqrl_share share;
                share_of(deal, team, c, SQRL_TAIL_UNEVEN, &share);
                consume(&l, deal, &share, UINT64_MAX, &run[0]);
                for (size_t i = 0; i < run[0].count; i++) {
                    if (team == 1)
                        order[i] = run[0].id[i];
                    assert_int_equal(run[0].id[i], order[i * team + c]);
                }
                sqrl_share_reset(&share);
                sqrl_share_reset(&run[0].left);
            }
        }
        sqrl_deal_free(deal);
    }
}

/* One consumer stops anywhere, any number of times: the sequence is what it was. */
static void stops_change_nothing(void **state) {
    (void)state;
    for (unsigned round = 0; round < 600; round++) {
        struct layout l;
        random_layout(&l);
        uint64_t team = random_team(), c = below(team);
        struct sqrl_deal *deal = new_deal(&l, team);
        struct sqrl_share share;
        share_of(deal, team, c, (enum sqrl_tail)below(3), &share);
        consume(&l, deal, &share, UINT64_MAX, &run[0]);
        sqrl_share_reset(&run[0].left);
        size_t at = 0;
        for (unsigned stop = 0; at < run[0].count || stop < 3; stop++) {
            uint64_t most = below(8) ? below(run[0].count / 2 + 2) : UINT64_MAX;
            consume(&l, deal, &share, most, &run[1]);
            assert_true(at + run[1].count <= run[0].count);
            assert_memory_equal(run[0].id + at, run[1].id,
                                run[1].count * sizeof(uint64_t));
            at += run[1].count;
            sqrl_share_reset(&share);
            share = run[1].left;
        }
        assert_int_equal(at, run[0].count);
        sqrl_share_reset(&share);
        sqrl_deal_free(deal);
    }
}

struct team {
    uint64_t count;
    struct sqrl_share share[MAX_TEAM];
};

static void replace_team(const struct sqrl_deal *deal, struct team *team, uint64_t count,
                         enum sqrl_tail tail) {
    struct sqrl_share next[MAX_TEAM];
    struct sqrl_error err;
    for (uint64_t i = team->count; i > 1; i--) { /* in any order */
        uint64_t k = below(i);
        struct sqrl_share other = team->share[k];
        team->share[k] = team->share[i - 1];
        team->share[i - 1] = other;
    }
    for (uint64_t c = 0; c < count; c++) {
        assert_int_equal(sqrl_deal_again(deal, team->share, team->count, count, c, tail,
                                         false, &next[c], &err),
                         SQRL_OK);
        assert_int_equal(sqrl_deal_check(deal, &next[c], &err), SQRL_OK);
    }
    for (uint64_t c = 0; c < team->count; c++)
        sqrl_share_reset(&team->share[c]);
    memcpy(team->share, next, count * sizeof *next);
    team->count = count;
}

/* Teams of changing size, each member stopped anywhere: what was given before and what
 * comes after is the epoch, each sample once; the last team's numbers are as its tail
 * says. */
static void teams_change(void **state) {
    (void)state;
    for (unsigned round = 0; round < 1500; round++) {
        static uint8_t seen[MAX_SAMPLES];
        struct layout l;
        struct team team;
        random_layout(&l);
        team.count = random_team();
        struct sqrl_deal *deal = new_deal(&l, team.count);
        enum sqrl_tail tail = (enum sqrl_tail)below(3);
        memset(seen, 0, sizeof seen);
        for (uint64_t c = 0; c < team.count; c++)
            share_of(deal, team.count, c, SQRL_TAIL_UNEVEN, &team.share[c]);
        uint64_t changes = 1 + below(4), given = 0;
        for (uint64_t k = 0; k < changes; k++) {
            bool in_step = below(2);
            uint64_t step = below(l.samples / team.count / 2 + 2);
            for (uint64_t c = 0; c < team.count; c++) {
                uint64_t most = in_step ? step : below(l.samples / team.count + 2);
                consume(&l, deal, &team.share[c], most, &run[c]);
                for (size_t i = 0; i < run[c].count; i++)
                    assert_int_equal(seen[run[c].id[i]]++, 0);
                given += run[c].count;
                sqrl_share_reset(&team.share[c]);
                team.share[c] = run[c].left;
            }
            replace_team(deal, &team, random_team(),
                         k + 1 < changes ? SQRL_TAIL_UNEVEN : tail);
        }
        uint64_t rest = l.samples - given, equal = rest / team.count, missing = 0;
        equal += tail == SQRL_TAIL_PAD && rest % team.count;
        for (uint64_t c = 0; c < team.count; c++) {
            consume(&l, deal, &team.share[c], UINT64_MAX, &run[c]);
            if (tail != SQRL_TAIL_UNEVEN)
                assert_int_equal(run[c].count, equal);
            else
                assert_in_range(run[c].count, equal, equal + (rest % team.count > 0));
            for (size_t i = 0; i < run[c].count; i++)
                seen[run[c].id[i]]++;
            sqrl_share_reset(&team.share[c]);
            sqrl_share_reset(&run[c].left);
        }
        for (uint64_t i = 0; i < l.samples; i++) {
            missing += !seen[i];
            assert_true(tail == SQRL_TAIL_PAD || seen[i] <= 1);
        }
        assert_int_equal(missing, tail == SQRL_TAIL_DROP ? rest % team.count : 0);
        sqrl_deal_free(deal);
    }
}

/* Stopped at one step, another divisor of the lanes goes on with the same order. */
static void in_step_the_order_goes_on(void **state) {
    (void)state;
    static const uint64_t TEAM[] = {1, 2, 3, 4, 6, 8, 12, 16, 24};
    for (unsigned round = 0; round < 300; round++) {
        struct layout l;
        struct team team;
        random_layout(&l);
        team.count = TEAM[below(SQRL_COUNT_OF(TEAM))];
        struct sqrl_deal *deal = new_deal(&l, team.count);
        struct sqrl_share whole;
        share_of(deal, 1, 0, SQRL_TAIL_UNEVEN, &whole);
        consume(&l, deal, &whole, UINT64_MAX, &again[0]);
        sqrl_share_reset(&whole);
        sqrl_share_reset(&again[0].left);
        for (uint64_t c = 0; c < team.count; c++)
            share_of(deal, team.count, c, SQRL_TAIL_UNEVEN, &team.share[c]);
        uint64_t done = 0;
        for (unsigned k = 0; k < 4; k++) {
            uint64_t step = below((l.samples - done) / team.count + 1);
            if (k == 3)
                step = (l.samples - done) / team.count;
            for (uint64_t c = 0; c < team.count; c++) {
                consume(&l, deal, &team.share[c], step, &run[c]);
                sqrl_share_reset(&team.share[c]);
                team.share[c] = run[c].left;
                assert_int_equal(run[c].count, step);
            }
            for (uint64_t i = 0; i < step; i++) /* a step's samples, as a set, sorted */
                for (uint64_t c = 0; c < team.count; c++) {
                    bool found = false;
                    for (uint64_t j = 0; j < team.count && !found; j++)
                        found = again[0].id[done + i * team.count + j] == run[c].id[i];
                    assert_true(found);
                }
            done += step * team.count;
            replace_team(deal, &team, TEAM[below(SQRL_COUNT_OF(TEAM))], SQRL_TAIL_UNEVEN);
        }
        for (uint64_t c = 0; c < team.count; c++)
            sqrl_share_reset(&team.share[c]);
        sqrl_deal_free(deal);
    }
}

static void wrong_shares(void **state) {
    (void)state;
    struct layout l;
    struct sqrl_error err;
    struct sqrl_share share, out, pair[2];
    do
        random_layout(&l);
    while (l.samples < 20);
    struct sqrl_deal *deal = new_deal(&l, 2);
    share_of(deal, 2, 0, SQRL_TAIL_PAD, &share);
    assert_int_equal(sqrl_deal_check(deal, &share, &err), SQRL_OK);
    uint64_t *field[] = {&share.consumers,  &share.like,       &share.window,
                         &share.at,         &share.consumer,   &share.cut->lanes,
                         &share.cut->basis, &share.cut->origin};
    for (size_t i = 0; i < SQRL_COUNT_OF(field); i++) {
        uint64_t good = *field[i];
        *field[i] = UINT64_MAX - 5;
        assert_int_equal(sqrl_deal_check(deal, &share, &err), SQRL_E_CORRUPT);
        *field[i] = good;
    }
    share.cut->lanes = 0;
    assert_int_equal(sqrl_deal_check(deal, &share, &err), SQRL_E_CORRUPT);
    share.cut->lanes = 48;
    pair[0] = pair[1] = share; /* twice the same consumer */
    assert_int_equal(
        sqrl_deal_again(deal, pair, 2, 3, 0, SQRL_TAIL_PAD, false, &out, &err),
        SQRL_E_STATE);
    assert_int_equal(/* one of two */
                     sqrl_deal_again(deal, pair, 1, 3, 0, SQRL_TAIL_PAD, false, &out,
                                     &err),
                     SQRL_E_STATE);
    sqrl_share_reset(&share);
    sqrl_deal_free(deal);
}

/* Around once more, as distribute(steps=) wants: the same samples in the same order. */
static void repeating(void **state) {
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        struct layout l;
        struct sqrl_error err;
        struct sqrl_share share;
        random_layout(&l);
        uint64_t team = 1 + below(6), c = below(team);
        struct sqrl_deal *deal = new_deal(&l, team);
        share_of(deal, team, c, SQRL_TAIL_UNEVEN, &share);
        consume(&l, deal, &share, UINT64_MAX, &run[0]);
        sqrl_share_reset(&share);
        sqrl_share_reset(&run[0].left);
        assert_int_equal(
            sqrl_deal_share(deal, team, c, SQRL_TAIL_PAD, true, &share, &err), SQRL_OK);
        uint64_t want = run[0].count * 2 + 3, most = below(want);
        if (run[0].count) {
            consume(&l, deal, &share, most, &run[1]);
            sqrl_share_reset(&share);
            consume(&l, deal, &run[1].left, want - most, &run[2]);
            sqrl_share_reset(&run[1].left);
            sqrl_share_reset(&run[2].left);
            for (uint64_t i = 0; i < want; i++)
                assert_int_equal(i < most ? run[1].id[i] : run[2].id[i - most],
                                 run[0].id[i % run[0].count]);
        }
        sqrl_share_reset(&share);
        sqrl_deal_free(deal);
    }
}

/* A billion samples of 1 KB, 1,024 ranks of 8 workers, and then 1,000 of 7: parts of
 * equal size, found without a list of samples. */
static void a_billion_samples(void **state) {
    (void)state;
    enum { UNITS = 244141, BEFORE = 1024 * 8, AFTER = 1000 * 7 };
    struct sqrl_error err;
    struct sqrl_deal *deal;
    struct sqrl_hand hand;
    struct sqrl_dealer dealer;
    struct sqrl_deal_args args = {.count = UNITS,
                                  .kind = SQRL_ORDER_WINDOWS,
                                  .seed = 1,
                                  .window_bytes = 64 << 20,
                                  .like = BEFORE};
    struct sqrl_share *shares = calloc(BEFORE, sizeof *shares), next;
    uint64_t *block_bytes = calloc(1000, sizeof *block_bytes), left = 0;
    args.shard_bytes = block_bytes;
    args.units = calloc(UNITS, sizeof *args.units);
    assert_true(shares && block_bytes && args.units);
    for (uint32_t u = 0; u < UNITS; u++)
        args.units[u] = (struct sqrl_unit){u / 256, u % 256 * 4, 4, 4096};
    for (unsigned s = 0; s < 1000; s++)
        block_bytes[s] = 1 << 20;
    assert_int_equal(sqrl_deal_new(&args, &deal, &err), SQRL_OK);
    uint64_t samples = sqrl_deal_samples(deal);
    assert_int_equal(samples, UINT64_C(1000001536));
    for (uint64_t c = 0; c < BEFORE;
         c++) { /* each stopped somewhere in its first window */
        share_of(deal, BEFORE, c, SQRL_TAIL_PAD, &shares[c]);
        assert_int_equal(shares[c].quota, (samples + BEFORE - 1) / BEFORE);
        shares[c].at = below(60000);
        left += shares[c].at;
    }
    left = samples - left;
    for (unsigned k = 0; k < 5; k++) {
        uint64_t c = below(AFTER);
        assert_int_equal(sqrl_deal_again(deal, shares, BEFORE, AFTER, c, SQRL_TAIL_PAD,
                                         false, &next, &err),
                         SQRL_OK);
        assert_int_equal(next.quota, (left + AFTER - 1) / AFTER);
        sqrl_dealer_init(&dealer, deal, &next);
        assert_int_equal(sqrl_dealer_next(&dealer, &hand, &err), SQRL_OK);
        assert_true(hand.give > 0 && hand.give <= next.quota);
        sqrl_hand_reset(&hand);
        sqrl_share_reset(&next);
    }
    for (uint64_t c = 0; c < BEFORE; c++)
        sqrl_share_reset(&shares[c]);
    free(shares);
    free(block_bytes);
    sqrl_deal_free(deal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_billion_samples),
        cmocka_unit_test(every_sample_once),
        cmocka_unit_test(nobody_reads_for_others),
        cmocka_unit_test(one_order_for_all_divisors),
        cmocka_unit_test(stops_change_nothing),
        cmocka_unit_test(teams_change),
        cmocka_unit_test(in_step_the_order_goes_on),
        cmocka_unit_test(wrong_shares),
        cmocka_unit_test(repeating),
    };
    sqrl_rng_init(&rng, 17);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
