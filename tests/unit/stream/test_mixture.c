/* Mixtures of plans: proportions of every prefix, ends, going on anywhere and on other
 * numbers of ranks. What a run without stops gives is the model of those that stop. */
#include "sqrl/mixture.h"
#include "support/rounds.h"
#include "support/stream_model.h"

enum { PLANS = 3 };
static struct sqrl_rng rng;

static uint64_t any(uint64_t n) {
    return below(&rng, n);
}

/* What every part of a run has in common. */
struct recipe {
    struct syn_shard table[PLANS][4];
    size_t shards[PLANS];
    uint64_t samples[PLANS];
    double weight[PLANS];
    struct sqrl_mixture_options options;
    bool dealt;
};

static void random_recipe(struct recipe *r, bool dealt) {
    memset(r, 0, sizeof *r);
    r->dealt = dealt;
    for (unsigned i = 0; i < PLANS; i++) {
        do {
            r->shards[i] = 1 + any(4);
            r->samples[i] = 0;
            random_table(&rng, r->table[i], r->shards[i]);
            for (size_t s = 0; s < r->shards[i]; s++) {
                r->table[i][s].indexed = 1;
                r->table[i][s].hide_samples = r->table[i][s].slow_us = 0;
                r->samples[i] += syn_first(&r->table[i][s], r->table[i][s].blocks);
            }
        } while (r->samples[i] < 20);
        r->weight[i] = (any(5) ? 1 : 0.7) * (double)(1 + any(4));
    }
    r->options = (struct sqrl_mixture_options){.size = sizeof r->options,
                                               .seed = any(100),
                                               .epoch = any(3),
                                               .independent = !any(5),
                                               .stop = (enum sqrl_mixture_stop)any(2)};
}

/* A context, sources and plans of one part of a run. */
struct opened {
    struct sqrl_context *context[PLANS]; /* each has a file system of its own */
    struct sqrl_source *source[PLANS];
    struct sqrl_plan *plan[PLANS];
    struct sqrl_mixture *mixture;
};

static int open_part(const struct recipe *r, uint64_t rank, uint64_t ranks,
                     const char *const *states, size_t count, struct opened *o,
                     struct sqrl_error *err) {
    struct sqrl_mixture_options options = r->options;
    options.state = states;
    options.states = count;
    for (unsigned i = 0; i < PLANS; i++) {
        struct sqrl_distribute_options d = {.size = sizeof d, .tail = SQRL_TAIL_UNEVEN};
        d.topology = (struct sqrl_topology){rank, ranks, 0, 1};
        o->context[i] = syn_context(1 + (unsigned)any(3), 0);
        o->source[i] = syn_source(o->context[i], r->table[i], r->shards[i]);
        o->plan[i] = syn_plan(o->source[i]);
        SYN_STAGE(o->plan[i], sqrl_plan_shuffle_all(o->plan[i], 5, 3000, SYN_OUT));
        if (r->dealt)
            SYN_STAGE(o->plan[i], sqrl_plan_distribute(o->plan[i], &d, SYN_OUT));
    }
    return sqrl_mixture_open(o->plan, r->weight, PLANS, &options, &o->mixture, err);
}

static void close_part(struct opened *o) {
    sqrl_mixture_close(o->mixture);
    for (unsigned i = 0; i < PLANS; i++) {
        sqrl_plan_unref(o->plan[i]);
        sqrl_source_unref(o->source[i]);
        sqrl_context_unref(o->context[i]);
    }
}

static uint64_t id_of(const struct sqrl_mixed *got) {
    const struct sqrl_block *block = got->sample.block;
    uint32_t node = sqrl_map_find(block->tape.nodes, block->begin[got->sample.index],
                                  block->bytes->data, "id", 2);
    return block->tape.nodes[node].v.u + got->plan * UINT64_C(10000000);
}

/* At most `most` samples from where the states stand; the state behind them. */
static char *part(const struct recipe *r, uint64_t rank, uint64_t ranks,
                  const char *const *states, size_t count, uint64_t most,
                  struct list *out) {
    struct sqrl_error err;
    struct opened o = {0};
    syn_must(open_part(r, rank, ranks, states, count, &o, &err), &err);
    struct sqrl_mixed got = {0};
    uint64_t n = 0;
    char *state;
    for (; n < most; n++) {
        syn_must(sqrl_mixture_next(o.mixture, &got, &err), &err);
        if (!got.sample.block)
            break;
        list_add(out, id_of(&got));
        if (!any(50))
            sqrl_mixture_wait(o.mixture, 0); /* draws ahead: no state may tell */
    }
    bool back = n && got.sample.block && any(2) &&
                !sqrl_mixture_state(o.mixture, true, &state, &err);
    if (back)
        out->count--;
    else
        syn_must(sqrl_mixture_state(o.mixture, false, &state, &err), &err);
    close_part(&o);
    return state;
}

static void proportions(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(60u); round++) {
        struct recipe r;
        struct list got = {0};
        double sum = 0;
        uint64_t drawn[PLANS] = {0};
        random_recipe(&r, false);
        r.options.independent = false;
        for (unsigned i = 0; i < PLANS; i++)
            sum += r.weight[i];
        free(part(&r, 0, 1, NULL, 0, UINT64_MAX, &got));
        for (size_t n = 0; n < got.count; n++) {
            drawn[got.id[n] / 10000000]++;
            for (unsigned i = 0; i < PLANS; i++) {
                double owed = (double)(n + 1) * r.weight[i] / sum;
                assert_true((double)drawn[i] > owed - 1 - 1e-6);
                assert_true((double)drawn[i] < owed + 1 + 1e-6);
            }
        }
        for (unsigned i = 0; i < PLANS && r.options.stop == SQRL_STOP_ALL; i++)
            assert_true(drawn[i] >= r.samples[i]);
        free(got.id);
    }
}

static void goes_on_anywhere(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(60u); round++) {
        struct recipe r;
        struct list whole = {0}, got = {0};
        random_recipe(&r, any(2));
        free(part(&r, 0, 1, NULL, 0, UINT64_MAX, &whole));
        char *state = NULL;
        for (unsigned stop = 0; stop < 12; stop++) {
            const char *states[] = {state};
            uint64_t most = stop == 11 ? UINT64_MAX : any(whole.count / 3 + 2);
            char *next = part(&r, 0, 1, states, state != NULL, most, &got);
            free(state);
            state = next;
            assert_true(got.count <= whole.count);
            if (got.count)
                assert_memory_equal(got.id, whole.id, got.count * sizeof *got.id);
        }
        const char *states[] = {state};
        free(part(&r, 0, 1, states, 1, UINT64_MAX, &got)); /* the last may be unread */
        assert_int_equal(got.count, whole.count);
        free(state);
        free(whole.id);
        free(got.id);
    }
}

/* Old ranks stop anywhere, new ones go on: of each plan, a pass that all are through with
 * came once, and no sample more often than passes were begun. */
static void ranks_change(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(40u); round++) {
        struct recipe r;
        char *states[4] = {NULL};
        uint64_t old = 1 + any(4), now = 1 + any(4);
        struct list got = {0};
        random_recipe(&r, true);
        r.options.stop = SQRL_STOP_ALL;
        for (uint64_t k = 0; k < old; k++)
            states[k] = part(&r, k, old, NULL, 0, any(150), &got);
        for (uint64_t k = 0; k < now; k++)
            free(part(&r, k, now, (const char *const *)states, old, UINT64_MAX, &got));
        for (unsigned i = 0; i < PLANS; i++) {
            uint64_t *times = calloc(400000, sizeof *times), least = UINT64_MAX, most = 0;
            for (size_t n = 0; n < got.count; n++)
                if (got.id[n] / 10000000 == i)
                    times[got.id[n] % 10000000]++;
            for (size_t s = 0; s < r.shards[i]; s++)
                for (uint64_t k = 0; k < syn_first(&r.table[i][s], r.table[i][s].blocks);
                     k++) {
                    least = least < times[s * 100000 + k] ? least : times[s * 100000 + k];
                    most = most > times[s * 100000 + k] ? most : times[s * 100000 + k];
                }
            assert_true(least >= 1); /* stop "all": each came to its end once */
            assert_true(most >= least);
            free(times);
        }
        for (uint64_t k = 0; k < old; k++)
            free(states[k]);
        free(got.id);
    }
}

static void weights_change(void **unused) {
    (void)unused;
    struct recipe r;
    struct sqrl_error err;
    struct opened o = {0};
    struct sqrl_mixed got;
    uint64_t count[PLANS] = {0}, pass, given;
    const double other[] = {1, 0, 3}, wrong[] = {1, -1, 0};
    char *state;
    random_recipe(&r, false);
    r.options.stop = SQRL_STOP_FOREVER;
    r.options.independent = false;
    syn_must(open_part(&r, 0, 1, NULL, 0, &o, &err), &err);
    for (unsigned n = 0; n < 50; n++)
        syn_must(sqrl_mixture_next(o.mixture, &got, &err), &err);
    assert_int_equal(sqrl_mixture_set_weights(o.mixture, wrong, &err), SQRL_E_INVALID);
    syn_must(sqrl_mixture_set_weights(o.mixture, other, &err), &err);
    assert_int_equal(sqrl_mixture_state(o.mixture, true, &state, &err), SQRL_E_INVALID);
    for (unsigned n = 0; n < 400; n++) {
        syn_must(sqrl_mixture_next(o.mixture, &got, &err), &err);
        count[got.plan]++;
    }
    assert_int_equal(count[0], 100);
    assert_int_equal(count[2], 300);
    sqrl_mixture_progress(o.mixture, 2, &pass, &given);
    assert_true(given >= 300 && pass == (given - 1) / r.samples[2]);
    /* the state has them: no need to set them again */
    syn_must(sqrl_mixture_state(o.mixture, false, &state, &err), &err);
    close_part(&o);
    memset(&o, 0, sizeof o);
    const char *states[] = {state};
    syn_must(open_part(&r, 0, 1, states, 1, &o, &err), &err);
    memset(count, 0, sizeof count);
    for (unsigned n = 0; n < 400; n++) {
        syn_must(sqrl_mixture_next(o.mixture, &got, &err), &err);
        count[got.plan]++;
    }
    assert_true(count[0] == 100 && count[1] == 0 && count[2] == 300);
    close_part(&o);
    free(state);
}

static void refuse(struct recipe *r, const char *state, int code, const char *part_of) {
    struct sqrl_error err;
    struct opened o = {0};
    const char *states[] = {state};
    assert_int_equal(open_part(r, 0, 1, states, 1, &o, &err), code);
    assert_non_null(strstr(err.message, part_of));
    close_part(&o);
}

static void refusals(void **unused) {
    (void)unused;
    struct recipe r;
    struct list got = {0};
    random_recipe(&r, false);
    char *state = part(&r, 0, 1, NULL, 0, 10, &got);
    refuse(&r, "{}", SQRL_E_CORRUPT, "squirrel_several");
    refuse(&r, "{\"squirrel_several\": 9}", SQRL_E_UNSUPPORTED, "version 9");
    r.options.seed++;
    refuse(&r, state, SQRL_E_STATE, "other seeds");
    r.options.seed--;
    r.options.quota = 10;
    refuse(&r, state, SQRL_E_STATE, "other quotas");
    r.options.quota = 0;
    struct opened o = {0};
    struct sqrl_error err;
    const char *states[] = {state, state};
    assert_int_equal(open_part(&r, 0, 1, states, 2, &o, &err), SQRL_E_STATE);
    close_part(&o);
    memset(&r.table[1], 0, sizeof r.table[1]); /* an empty plan */
    r.options.stop = SQRL_STOP_ALL;
    memset(&o, 0, sizeof o);
    syn_must(open_part(&r, 0, 1, NULL, 0, &o, &err), &err);
    struct sqrl_mixed mixed;
    int code = SQRL_OK;
    for (unsigned n = 0; n < 10000 && !code; n++)
        code = sqrl_mixture_next(o.mixture, &mixed, &err);
    assert_int_equal(code, SQRL_E_INVALID);
    assert_non_null(strstr(err.message, "plan 1"));
    assert_int_equal(sqrl_mixture_next(o.mixture, &mixed, &err), SQRL_E_INVALID);
    close_part(&o);
    free(state);
    free(got.id);
}

/* Every byte changed, every cut: one error, or a state that was as good. */
static void damaged_states(void **unused) {
    (void)unused;
    struct recipe r;
    struct list got = {0};
    char *good[2];
    random_recipe(&r, true);
    r.options.stop = SQRL_STOP_FIRST;
    for (uint64_t k = 0; k < 2; k++)
        good[k] = part(&r, k, 2, NULL, 0, 15, &got);
    size_t size = strlen(good[1]);
    for (size_t i = 0; i < 2 * size; i += 1 + any(3)) {
        char *changed = strdup(good[1]);
        const char *states[] = {good[0], changed};
        struct opened o = {0};
        struct sqrl_error err;
        struct sqrl_mixed mixed;
        if (i < size)
            changed[i] = "0129-,]}x"[any(9)];
        else
            changed[i - size] = 0;
        int code = open_part(&r, 0, 3, states, 2, &o, &err);
        for (unsigned n = 0; n < 300 && !code; n++)
            code = sqrl_mixture_next(o.mixture, &mixed, &err);
        close_part(&o);
        free(changed);
    }
    free(good[0]);
    free(good[1]);
    free(got.id);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proportions),  cmocka_unit_test(goes_on_anywhere),
        cmocka_unit_test(ranks_change), cmocka_unit_test(weights_change),
        cmocka_unit_test(refusals),     cmocka_unit_test(damaged_states),
    };
    const char *seed = getenv("SQRL_TEST_SEED"); /* another one, other runs */
    sqrl_rng_init(&rng, seed ? strtoull(seed, NULL, 10) : 20);
    syn_writer = write_sample;
    return cmocka_run_group_tests(tests, NULL, syn_settle);
}
