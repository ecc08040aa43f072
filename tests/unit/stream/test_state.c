/* Stopping anywhere and going on: with other threads, batches, ranks; over every kind of
 * plan. The whole run without stops is the model. */
#include "sqrl/pack.h"
#include "support/rounds.h"
#include "support/stream_model.h"

static struct sqrl_rng rng;

static uint64_t any(uint64_t n) {
    return below(&rng, n);
}

static int open_at(struct sqrl_plan *plan, const char *const *states, size_t count,
                   uint64_t epoch, struct sqrl_iterator **out, struct sqrl_error *err) {
    struct sqrl_iterator_options options = {
        .size = sizeof options, .epoch = epoch, .state = states, .states = count};
    return sqrl_iterator_start(plan, &options, out, err);
}

/* Takes samples until there are `most` of them, then the state. */
static char *take_samples(struct sqrl_iterator *it, uint64_t most, struct list *out) {
    struct sqrl_error err;
    uint64_t unread = 0, got = 0;
    struct sqrl_run *run = NULL;
    char *state;
    while (got < most && !syn_must(sqrl_iterator_next_run(it, &run, &err), &err) && run) {
        uint32_t i = 0;
        for (; i < run->count && got < most; i++, got++) {
            const struct sqrl_block *block = run->samples[i].block;
            uint32_t node =
                sqrl_map_find(block->tape.nodes, block->begin[run->samples[i].index],
                              block->bytes->data, "id", 2);
            list_add(out, block->tape.nodes[node].v.u);
        }
        unread = run->count - i;
        sqrl_run_release(run);
    }
    syn_must(sqrl_iterator_state(it, unread, &state, &err), &err);
    return state;
}

/* Takes batches until there are `most` of them; of the last one perhaps only some rows.
 */
static char *take_batches(struct sqrl_iterator *it, uint64_t most, struct list *out) {
    struct sqrl_error err;
    struct sqrl_batch *batch = NULL;
    uint64_t rows = 0;
    char *state;
    for (uint64_t n = 0;
         n < most && !syn_must(sqrl_iterator_next_batch(it, &batch, &err), &err) && batch;
         n++) {
        const int64_t *id = sqrl_batch_column(batch, "id")->data;
        for (uint64_t r = 0; r < batch->rows; r++)
            list_add(out, (uint64_t)id[r]);
        rows = batch->rows;
        sqrl_batch_unref(batch);
    }
    uint64_t used = any(rows + 1);
    if (rows && batch && any(2) &&
        !sqrl_iterator_state_in_batch(it, used, &state, &err)) {
        out->count -= rows - used;
        return state;
    }
    assert_int_not_equal(sqrl_iterator_state_in_batch(it, rows + 1, &state, &err),
                         SQRL_OK);
    syn_must(sqrl_iterator_state(it, 0, &state, &err), &err);
    return state;
}

/* A random data set in a context of its own: states carry nothing over. */
struct data {
    struct syn_shard table[10];
    size_t count;
};

static void random_data(struct data *data, bool counted) {
    memset(data, 0, sizeof *data);
    data->count = 1 + any(9);
    random_table(&rng, data->table, data->count);
    for (size_t s = 0; s < data->count && counted; s++) {
        data->table[s].indexed = 1;
        data->table[s].hide_samples = 0;
    }
}

/* The stages of a random plan, made anew for each part of the run. */
struct recipe {
    bool shuffled, dealt;
    uint64_t seed, window, keep_above, take, skip;
    bool filtered, limited;
    enum sqrl_tail tail;
    uint64_t steps, like;
    unsigned buckets;
};

static void random_recipe(struct recipe *r, bool dealt) {
    memset(r, 0, sizeof *r);
    r->dealt = dealt;
    r->shuffled = any(4) > 0;
    r->seed = any(100);
    r->window = any(2) ? 1 + any(3000) : 1 + any(100000);
    if (dealt && !any(5))
        r->window = SQRL_SINGLE_SAMPLES;
    r->filtered = any(2);
    r->keep_above = any(30);
    r->limited = any(3) == 0;
    r->take = any(2) ? any(100) : any(3000);
    r->skip = any(60);
    r->tail = (enum sqrl_tail)any(3);
}

static struct sqrl_plan *plan_of(const struct recipe *r, struct sqrl_source *source,
                                 uint64_t rank, uint64_t ranks, uint64_t batch) {
    struct sqrl_plan *plan = syn_plan(source);
    if (r->shuffled)
        SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, r->seed, r->window, SYN_OUT));
    if (r->dealt) {
        struct sqrl_distribute_options o = {
            .size = sizeof o, .tail = r->tail, .steps = r->steps, .like = r->like};
        o.topology = (struct sqrl_topology){rank, ranks, 0, 1};
        SYN_STAGE(plan, sqrl_plan_distribute(plan, &o, SYN_OUT));
    }
    if (r->filtered) { /* the last digits of an id count samples within their shard */
        char text[400];
        size_t at = 0;
        for (uint64_t s = 0; s < 10; s++)
            at += (size_t)snprintf(text + at, sizeof text - at,
                                   "%sid > %llu and id < %llu", s ? " or " : "",
                                   (unsigned long long)(s * 100000 + r->keep_above),
                                   (unsigned long long)(s * 100000 + 99999));
        SYN_STAGE(plan, sqrl_plan_filter(plan, text, SYN_OUT));
    }
    if (r->limited) {
        SYN_STAGE(plan, sqrl_plan_skip(plan, r->skip, SYN_OUT));
        SYN_STAGE(plan, sqrl_plan_take(plan, r->take, SYN_OUT));
    }
    if (batch) {
        struct sqrl_batch_options o = {.size = sizeof o};
        static const uint64_t boundary[] = {2, 5, 9};
        if (r->buckets) { /* a text has as many bytes as its id's rest by 11 */
            o.length_field = "text";
            o.boundary = boundary;
            o.boundaries = r->buckets;
        }
        if (batch % 3)
            o.batch_size = batch;
        else
            o.max_bytes = 20 * batch; /* ends in front of what does not fit */
        SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
    }
    return plan;
}

/* One part of a run: opens everything anew, goes on at `state`, takes some. */
static char *part(const struct data *data, const struct recipe *r, uint64_t rank,
                  uint64_t ranks, const char *const *states, size_t count, uint64_t batch,
                  uint64_t most, uint64_t epoch, struct list *out) {
    struct sqrl_error err;
    struct sqrl_context *context = syn_context(1 + (unsigned)any(4), 0);
    struct sqrl_source *source = syn_source(context, data->table, data->count);
    struct sqrl_plan *plan = plan_of(r, source, rank, ranks, batch);
    struct sqrl_iterator *it;
    syn_must(open_at(plan, states, count, epoch, &it, &err), &err);
    char *state = batch ? take_batches(it, most, out) : take_samples(it, most, out);
    sqrl_iterator_close(it);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
    return state;
}

static void check_stops(const struct data *data, const struct recipe *r, uint64_t rank,
                        uint64_t ranks) {
    struct list whole = {0}, got = {0};
    uint64_t epoch = any(3);
    bool batches = any(2);
    uint64_t always = r->buckets ? 1 + any(20) : 0; /* then the batches are the order */
    free(part(data, r, rank, ranks, NULL, 0, always, UINT64_MAX, epoch, &whole));
    char *state = NULL;
    for (unsigned stop = 0; stop < 12 && (stop < 3 || got.count < whole.count); stop++) {
        uint64_t batch = batches || !any(3) ? 1 + any(40) : 0;
        batch = always ? always : batch;
        uint64_t most = batch ? any(6) : any(whole.count / 2 + 2);
        if (stop == 11)
            most = UINT64_MAX;
        const char *states[] = {state};
        char *next = part(data, r, rank, ranks, states, state != NULL, batch, most,
                          state ? 77 : epoch, &got); /* the state's epoch counts */
        free(state);
        state = next;
        assert_true(got.count <= whole.count);
        if (got.count)
            assert_memory_equal(got.id, whole.id, got.count * sizeof *got.id);
    }
    assert_int_equal(got.count, whole.count);
    free(state);
    free(whole.id);
    free(got.id);
}

static void one_consumer(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(250u); round++) {
        struct data data;
        struct recipe r;
        random_data(&data, false);
        random_recipe(&r, false);
        check_stops(&data, &r, 0, 1);
    }
}

static void one_of_many(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(250u); round++) {
        struct data data;
        struct recipe r;
        uint64_t ranks = 1 + any(6);
        random_data(&data, true);
        random_recipe(&r, true);
        check_stops(&data, &r, any(ranks), ranks);
    }
}

/* Single samples of counted shards without distribute. */
static void single_samples(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(40u); round++) {
        struct data data;
        struct recipe r;
        random_data(&data, true);
        random_recipe(&r, false);
        r.shuffled = true;
        r.window = SQRL_SINGLE_SAMPLES;
        check_stops(&data, &r, 0, 1);
    }
}

enum { MAX_RANKS = 9 };

/* Ranks that come and go, each stopped anywhere: every sample that passes, once. */
static void ranks_change(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(120u); round++) {
        struct data data;
        struct recipe r;
        struct list expect = {0}, got = {0};
        char *state[MAX_RANKS] = {NULL}, *next[MAX_RANKS] = {NULL};
        uint64_t ranks = 0, epoch = any(3);
        random_data(&data, true);
        random_recipe(&r, true);
        r.limited = false;
        r.tail = SQRL_TAIL_UNEVEN;
        free(part(&data, &r, 0, 1, NULL, 0, 0, UINT64_MAX, epoch, &expect));
        unsigned changes = 1 + (unsigned)any(4);
        for (unsigned k = 0; k <= changes; k++) {
            uint64_t count = ranks, now = 1 + any(MAX_RANKS - 1);
            for (uint64_t rank = 0; rank < now; rank++) {
                uint64_t batch = any(2) ? 1 + any(30) : 0;
                uint64_t most = any(expect.count / now + 2) / (batch ? batch : 1);
                if (k == changes)
                    most = UINT64_MAX;
                next[rank] = part(&data, &r, rank, now, (const char *const *)state, count,
                                  batch, most, epoch, &got);
            }
            for (uint64_t i = 0; i < count; i++)
                free(state[i]);
            memcpy(state, next, sizeof next);
            ranks = now;
        }
        for (uint64_t i = 0; i < ranks; i++)
            free(state[i]);
        sorted(&expect);
        sorted(&got);
        same(&got, &expect);
        free(expect.id);
        free(got.id);
    }
}

static void steps_go_on(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(60u); round++) {
        struct data data;
        struct recipe r;
        uint64_t ranks = 1 + any(3), rank = any(ranks), samples = 0;
        random_data(&data, true);
        for (size_t s = 0; s < data.count; s++)
            samples += syn_first(&data.table[s], data.table[s].blocks);
        if (samples < 40)
            continue;
        random_recipe(&r, true);
        r.limited = r.filtered = false;
        r.steps = 1 + any(3 * samples);
        struct list whole = {0}, got = {0};
        char *state = part(&data, &r, rank, ranks, NULL, 0, 0, UINT64_MAX, 0, &whole);
        assert_int_equal(whole.count, r.steps);
        free(state);
        state = part(&data, &r, rank, ranks, NULL, 0, 0, any(r.steps), 0, &got);
        const char *states[] = {state};
        free(part(&data, &r, rank, ranks, states, 1, 0, UINT64_MAX, 0, &got));
        same(&got, &whole);
        free(state);
        free(whole.id);
        free(got.id);
    }
}

/* --- what must be refused --- */

static void expect_refusal(struct sqrl_plan *plan, const char *state, int code,
                           const char *says) {
    struct sqrl_iterator *it;
    struct sqrl_error err;
    char text[1100];
    assert_int_equal(open_at(plan, &state, 1, 0, &it, &err), code);
    sqrl_error_text(&err, text, sizeof text);
    if (!strstr(text, says))
        print_error("%s\n", text);
    assert_non_null(strstr(text, says));
}

static void refusals(void **unused) {
    (void)unused;
    struct data data;
    struct recipe r = {.shuffled = true, .seed = 5, .window = 9000, .filtered = true};
    struct list got = {0};
    do
        random_data(&data, true);
    while (data.count < 3);
    char *state = part(&data, &r, 0, 1, NULL, 0, 0, 3, 0, &got);
    struct sqrl_context *context = syn_context(1, 0);
    struct sqrl_source *source = syn_source(context, data.table, data.count);
    struct sqrl_plan *plan = plan_of(&r, source, 0, 1, 0);
    expect_refusal(plan, "{}", SQRL_E_CORRUPT, "squirrel_state");
    expect_refusal(plan, "[1, 2", SQRL_E_TRUNCATED, "state");
    expect_refusal(plan, "{\"squirrel_state\": 9}", SQRL_E_UNSUPPORTED, "version 9");
    sqrl_plan_unref(plan);
    r.seed = 6;
    plan = plan_of(&r, source, 0, 1, 0);
    expect_refusal(plan, state, SQRL_E_STATE,
                   "stage 1 was shuffle_all(seed=5, window=9000), now it is "
                   "shuffle_all(seed=6, window=9000)");
    sqrl_plan_unref(plan);
    r.seed = 5;
    r.keep_above++;
    plan = plan_of(&r, source, 0, 1, 0);
    expect_refusal(plan, state, SQRL_E_STATE, "stage 2 was filter(");
    sqrl_plan_unref(plan);
    r.filtered = false;
    plan = plan_of(&r, source, 0, 1, 0);
    expect_refusal(plan, state, SQRL_E_STATE, "now it is none");
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    /* one shard is larger: replaced; one more behind the others: appended */
    r.filtered = true;
    r.keep_above--;
    source = syn_source(context, data.table, data.count - 1);
    plan = plan_of(&r, source, 0, 1, 0);
    expect_refusal(plan, state, SQRL_E_STATE, "replaced or removed");
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
    free(state);
    free(got.id);
}

/* Every byte changed, every cut: one error, or a state that was as good. */
static void damaged_states(void **unused) {
    (void)unused;
    for (unsigned dealt = 0; dealt < 2; dealt++) {
        struct data data;
        struct recipe r;
        struct list got = {0};
        random_data(&data, true);
        random_recipe(&r, dealt);
        r.window = 2000;
        char *state = part(&data, &r, 0, 1 + dealt, NULL, 0, 0, 20, 0, &got);
        struct sqrl_context *context = syn_context(1, 0);
        struct sqrl_source *source = syn_source(context, data.table, data.count);
        struct sqrl_plan *plan = plan_of(&r, source, 0, 1 + dealt, 0);
        size_t size = strlen(state);
        for (size_t i = 0; i < 2 * size; i++) {
            char *changed = strdup(state);
            const char *states[] = {changed};
            struct sqrl_iterator *it;
            struct sqrl_error err;
            if (i < size)
                changed[i] = "0129-,]}x"[any(9)];
            else
                changed[i - size] = 0;
            int code = open_at(plan, states, 1, 0, &it, &err);
            for (struct sqrl_run *run = NULL;
                 !code && !sqrl_iterator_next_run(it, &run, &err) && run;)
                sqrl_run_release(run);
            assert_true(code || it);
            sqrl_iterator_close(it);
            free(changed);
        }
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
        free(state);
        free(got.id);
    }
}

/* Length buckets hold samples back: they are read again. */
static void length_buckets(void **unused) {
    (void)unused;
    for (unsigned round = 0; round < ROUNDS(250u); round++) {
        struct data data;
        struct recipe r;
        bool dealt = any(2);
        uint64_t ranks = dealt ? 1 + any(3) : 1;
        random_data(&data, dealt);
        random_recipe(&r, dealt);
        r.buckets = 1 + (unsigned)any(3);
        check_stops(&data, &r, any(ranks), ranks);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_consumer),   cmocka_unit_test(one_of_many),
        cmocka_unit_test(single_samples), cmocka_unit_test(ranks_change),
        cmocka_unit_test(steps_go_on),    cmocka_unit_test(refusals),
        cmocka_unit_test(damaged_states), cmocka_unit_test(length_buckets),
    };
    const char *seed = getenv("SQRL_TEST_SEED"); /* another one, other runs */
    sqrl_rng_init(&rng, seed ? strtoull(seed, NULL, 10) : 31);
    syn_writer = write_sample;
    return cmocka_run_group_tests(tests, NULL, syn_settle);
}
