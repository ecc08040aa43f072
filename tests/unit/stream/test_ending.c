/* How streams end and what they leave: errors in their place, budgets, closing,
 * cancelling, forks, a lack of memory, many at once. */
#include <sys/wait.h>

#include "support/rounds.h"
#include "support/stream_model.h"

/* What is good before an error comes first, then the error, again and again. */
static void errors_in_place(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 31);
    for (unsigned round = 0; round < ROUNDS(60u); round++) {
        struct syn_shard table[8];
        size_t count = 1 + below(&rng, 7), bad = below(&rng, count);
        random_table(&rng, table, count);
        bool on_open = below(&rng, 4) == 0;
        for (size_t s = 0; s < count; s++)
            table[s].known = 0;
        if (on_open) {
            table[bad].fail_open = 1;
        } else {
            table[bad].blocks = 1 + (uint32_t)below(&rng, 7);
            table[bad].fail_block = 1 + (uint32_t)below(&rng, table[bad].blocks);
        }
        struct sqrl_context *context = syn_context(1 + (unsigned)below(&rng, 6), 0);
        struct sqrl_source *source = syn_source(context, table, count);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list expect = {0}, got = {0}, sizes = {0};
        model(table, bad, &expect);
        for (uint64_t i = 0;
             !on_open && i < syn_first(&table[bad], table[bad].fail_block - 1); i++)
            list_add(&expect, bad * 100000 + i);
        sqrl_error_clear(&err);
        int rc = drain_runs(plan, &got, &err);
        assert_int_equal(rc, on_open ? SQRL_E_FORMAT : SQRL_E_CORRUPT);
        assert_non_null(strstr(err.where, ".syn"));
        same(&got, &expect);
        got.count = 0;
        struct sqrl_batch_options o = {.size = sizeof o,
                                       .batch_size = 1 + below(&rng, 20),
                                       .drop_remainder = below(&rng, 2)};
        SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
        struct sqrl_iterator *it;
        rc = sqrl_iterator_open(plan, &it, &err);
        if (rc) { /* the schema of the first shard is asked for on opening */
            assert_true(on_open && bad == 0);
        } else {
            struct sqrl_batch *batch;
            while (!(rc = sqrl_iterator_next_batch(it, &batch, &err)) && batch) {
                for (uint64_t r = 0; r < batch->rows; r++)
                    list_add(&got,
                             batch->place[r].shard * 100000 + batch->place[r].sample);
                sqrl_batch_unref(batch);
            }
            uint64_t whole = expect.count;
            if (o.drop_remainder)
                whole -= whole % o.batch_size;
            assert_int_equal(got.count, whole);
            if (whole)
                assert_memory_equal(got.id, expect.id, whole * sizeof *got.id);
            for (int again = 0; again < 3; again++) {
                struct sqrl_error repeated;
                assert_int_equal(sqrl_iterator_next_batch(it, &batch, &repeated), rc);
                assert_null(batch);
                assert_string_equal(repeated.message, err.message);
            }
            sqrl_iterator_close(it);
        }
        free(expect.id);
        free(got.id);
        free(sizes.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* In a shuffled stream the error comes behind the good rest of its window. */
static void shuffled_error(void **state) {
    (void)state;
    struct syn_shard table[4];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 4; s++) {
        table[s].indexed = s % 2;
        table[s].blocks = 3;
        table[s].samples[0] = table[s].samples[1] = table[s].samples[2] = 20;
    }
    table[2].fail_block = 2;
    struct list first = {0};
    for (unsigned threads = 1; threads < 6; threads++) {
        struct sqrl_context *context = syn_context(threads, 0);
        struct sqrl_source *source = syn_source(context, table, 4);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list got = {0};
        SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 3, 4000, SYN_OUT));
        assert_int_equal(drain_runs(plan, &got, &err), SQRL_E_CORRUPT);
        if (threads == 1)
            first = got;
        else
            same(&got, &first);
        if (threads > 1)
            free(got.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
    sorted(&first);
    for (size_t i = 1; i < first.count; i++)
        assert_true(first.id[i - 1] < first.id[i]);
    free(first.id);
}

static void filter_error_names_sample(void **state) {
    (void)state;
    struct syn_shard table[2] = {{.blocks = 2, .samples = {10, 10}},
                                 {.blocks = 1, .samples = {10}}};
    struct sqrl_context *context = syn_context(2, 0);
    struct sqrl_source *source = syn_source(context, table, 2);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct list got = {0};
    SYN_STAGE(plan, sqrl_plan_filter(plan, "id < 15 or text > 5", SYN_OUT));
    assert_int_equal(drain_runs(plan, &got, &err), SQRL_E_TYPE);
    assert_int_equal(got.count, 15);
    assert_non_null(strstr(err.where, "000000.syn: sample 15"));
    got.count = 0;
    SYN_STAGE(plan, sqrl_plan_take(plan, 15, SYN_OUT)); /* ends before the bad sample */
    syn_must(drain_runs(plan, &got, &err), &err);
    assert_int_equal(got.count, 15);
    free(got.id);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* Blocks of 3 MiB under a budget of 1 MiB: slower, but it ends. */
static void larger_than_budget(void **state) {
    (void)state;
    struct syn_shard table[6];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 6; s++) {
        table[s].indexed = s % 2;
        table[s].blocks = 4;
        table[s].pad_bytes = 3 << 20;
        for (unsigned b = 0; b < 4; b++)
            table[s].samples[b] = 7;
    }
    for (unsigned mode = 0; mode < 4; mode++) {
        struct sqrl_context *context = syn_context(4, 1 << 20);
        struct sqrl_source *source = syn_source(context, table, 6);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct list got = {0}, expect = {0};
        model(table, 6, &expect);
        if (mode & 1)
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 8 << 20, SYN_OUT));
        if (mode & 2) {
            struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 50};
            SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
            syn_must(drain_batches(plan, &got, NULL, &err), &err);
        } else {
            syn_must(drain_runs(plan, &got, &err), &err);
        }
        sorted(&got);
        same(&got, &expect);
        free(got.id);
        free(expect.id);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* All that was charged comes back, also when the user keeps runs beyond the iterator. */
static void budget_comes_back(void **state) {
    (void)state;
    struct syn_shard table[6];
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 5);
    for (unsigned round = 0; round < ROUNDS(20u); round++) {
        random_table(&rng, table, 6);
        struct sqrl_context *context = syn_context(3, 0);
        struct sqrl_source *source = syn_source(context, table, 6);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct sqrl_iterator *it;
        struct sqrl_run *kept[64];
        unsigned runs = 0;
        if (round % 2)
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 3000, SYN_OUT));
        syn_must(sqrl_iterator_open(plan, &it, &err), &err);
        unsigned most = (unsigned)below(&rng, 64);
        while (runs < most) {
            syn_must(sqrl_iterator_next_run(it, &kept[runs], &err), &err);
            if (!kept[runs])
                break;
            runs++;
        }
        sqrl_iterator_close(it);
        for (unsigned i = 0; i < runs; i++) {
            assert_true(kept[i]->samples[0].block->tape.count > 0);
            sqrl_run_release(kept[i]);
        }
        for (unsigned wait = 0; sqrl_budget_used(context) && wait < 2000; wait++)
            usleep(1000); /* workers are letting go */
        assert_int_equal(sqrl_budget_used(context), 0);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* A window that the budget has no room for widens it while the iterator is there. */
static void windows_widen_the_budget(void **state) {
    (void)state;
    struct syn_shard table[2];
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 6);
    random_table(&rng, table, 2);
    struct sqrl_context *context = syn_context(2, 1000);
    struct sqrl_source *source = syn_source(context, table, 2);
    for (uint64_t mib = 64; mib <= 1024; mib *= 16) {
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_iterator *it;
        struct sqrl_run *run;
        struct sqrl_error err;
        SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, mib << 20, SYN_OUT));
        syn_must(sqrl_iterator_open(plan, &it, &err), &err);
        uint64_t more = sqrl_budget_limit(context) - 1000;
        if (mib == 64)
            assert_int_equal(more, 0);
        else /* one window and at least a half, less what is there for small ones */
            assert_in_range(more, (mib / 2 * 3 - 128) << 20, (mib * 2 - 128) << 20);
        syn_must(sqrl_iterator_next_run(it, &run, &err), &err);
        sqrl_run_release(run);
        sqrl_iterator_close(it);
        for (unsigned wait = 0; sqrl_budget_limit(context) > 1000 && wait < 60000; wait++)
            usleep(1000); /* workers are letting go */
        assert_int_equal(sqrl_budget_limit(context), 1000);
        sqrl_plan_unref(plan);
    }
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* list(stream): batches that a user keeps do not stop the stream, whatever the budget. */
static void kept_batches(void **state) {
    (void)state;
    struct syn_shard table[4];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 4; s++) {
        table[s].blocks = 20;
        for (unsigned b = 0; b < 20; b++)
            table[s].samples[b] = 50;
    }
    struct sqrl_context *context = syn_context(2, 1 << 16);
    struct sqrl_source *source = syn_source(context, table, 4);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_batch *batch[200];
    unsigned count = 0;
    struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 20};
    SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    do
        syn_must(sqrl_iterator_next_batch(it, &batch[count], &err), &err);
    while (batch[count] && ++count < 200);
    assert_int_equal(count, 200);
    sqrl_iterator_close(it);
    for (unsigned i = 0; i < count; i++) {
        int64_t *id = sqrl_batch_column(batch[i], "id")->data;
        assert_int_equal(batch[i]->number, i);
        for (unsigned r = 0; r < 20; r++)
            assert_int_equal(id[r], i / 50 * 100000 + i % 50 * 20 + r);
        sqrl_batch_unref(batch[i]);
    }
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

static void many_tiny_shards(void **state) {
    (void)state;
    enum { SHARDS = 10000 };
    struct syn_shard *table = calloc(SHARDS, sizeof *table);
    for (unsigned s = 0; s < SHARDS; s++) {
        table[s].indexed = s % 3 == 0;
        table[s].blocks = 1;
        table[s].samples[0] = s % 3;
    }
    struct sqrl_context *context = syn_context(4, 0);
    struct sqrl_source *source = syn_source(context, table, SHARDS);
    struct sqrl_error err;
    for (unsigned mode = 0; mode < 2; mode++) {
        struct sqrl_plan *plan = syn_plan(source);
        struct list got = {0}, expect = {0};
        model(table, SHARDS, &expect);
        if (mode)
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 1 << 20, SYN_OUT));
        syn_must(drain_runs(plan, &got, &err), &err);
        if (mode)
            sorted(&got);
        same(&got, &expect);
        free(got.id);
        free(expect.id);
        sqrl_plan_unref(plan);
    }
    sqrl_source_unref(source);
    sqrl_context_unref(context);
    free(table);
}

/* --- ending early --- */
struct canceller {
    struct sqrl_iterator *it;
    unsigned after_us;
};
static void *cancel_later(void *arg) {
    struct canceller *c = arg;
    usleep(c->after_us);
    sqrl_iterator_cancel(c->it);
    return NULL;
}

static void cancel_and_close(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 77);
    for (unsigned round = 0; round < ROUNDS(120u); round++) {
        struct syn_shard table[8];
        random_table(&rng, table, 8);
        struct sqrl_context *context = syn_context(1 + (unsigned)below(&rng, 6), 0);
        struct sqrl_source *source = syn_source(context, table, 8);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct sqrl_iterator *it;
        bool batches = below(&rng, 2), cancel = below(&rng, 2);
        if (below(&rng, 2))
            SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, round, 2000, SYN_OUT));
        struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 8};
        if (batches)
            SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
        syn_must(sqrl_iterator_open(plan, &it, &err), &err);
        sqrl_plan_unref(plan); /* the iterator has its own references */
        sqrl_source_unref(source);
        struct canceller canceller = {it, (unsigned)below(&rng, 1500)};
        pthread_t thread;
        if (cancel)
            assert_int_equal(pthread_create(&thread, NULL, cancel_later, &canceller), 0);
        unsigned most = (unsigned)below(&rng, 40);
        int rc = SQRL_OK;
        for (unsigned i = 0; i < most && !rc; i++) {
            struct sqrl_batch *batch = NULL;
            struct sqrl_run *run = NULL;
            rc = batches ? sqrl_iterator_next_batch(it, &batch, &err)
                         : sqrl_iterator_next_run(it, &run, &err);
            sqrl_batch_unref(batch);
            sqrl_run_release(run);
            if (!rc && !batch && !run)
                break;
        }
        if (rc) {
            assert_true(cancel);
            assert_int_equal(rc, SQRL_E_CANCELLED);
        }
        if (cancel)
            pthread_join(thread, NULL);
        sqrl_iterator_close(it);
        sqrl_context_unref(context);
    }
}

/* A consumer that waits for a slow block is woken at once. */
static void cancel_wakes(void **state) {
    (void)state;
    struct syn_shard table[1] = {{.blocks = 1, .samples = {3}, .slow_us = 400000}};
    struct sqrl_context *context = syn_context(1, 0);
    struct sqrl_source *source = syn_source(context, table, 1);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_run *run;
    pthread_t thread;
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    uint64_t begin = sqrl_now_ns();
    assert_false(sqrl_iterator_wait(it, 20000000));
    assert_true(sqrl_now_ns() - begin >= 19000000);
    struct canceller canceller = {it, 20000};
    assert_int_equal(pthread_create(&thread, NULL, cancel_later, &canceller), 0);
    assert_int_equal(sqrl_iterator_next_run(it, &run, &err), SQRL_E_CANCELLED);
    assert_true(sqrl_now_ns() - begin < 350000000);
    assert_int_equal(sqrl_iterator_next_run(it, &run, &err), SQRL_E_CANCELLED);
    assert_true(sqrl_iterator_wait(it, UINT64_MAX));
    pthread_join(thread, NULL);
    begin = sqrl_now_ns();
    sqrl_iterator_close(it); /* does not wait for the block */
    assert_true(sqrl_now_ns() - begin < 100000000);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

static void wrong_calls(void **state) {
    (void)state;
    struct syn_shard table[1] = {{.blocks = 1, .samples = {3}}};
    struct sqrl_context *context = syn_context(1, 0);
    struct sqrl_source *source = syn_source(context, table, 1);
    struct sqrl_plan *plan = syn_plan(source), *bad = NULL;
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_batch *batch;
    struct sqrl_run *run;
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    assert_int_equal(sqrl_iterator_next_batch(it, &batch, &err), SQRL_E_STATE);
    sqrl_iterator_close(it);
    sqrl_iterator_close(NULL);
    struct sqrl_batch_options o = {.size = sizeof o};
    assert_int_equal(sqrl_plan_batch(plan, &o, &bad, &err), SQRL_E_INVALID);
    o.batch_size = 2;
    o.max_bytes = 3;
    assert_int_equal(sqrl_plan_batch(plan, &o, &bad, &err), SQRL_E_INVALID);
    o.max_bytes = 0;
    SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
    assert_int_equal(sqrl_plan_batch(plan, &o, &bad, &err), SQRL_E_INVALID);
    assert_int_equal(sqrl_plan_filter(plan, "id == 1", &bad, &err), SQRL_E_INVALID);
    assert_int_equal(sqrl_plan_shuffle_all(plan, 1, 0, &bad, &err), SQRL_E_INVALID);
    const char *name = "id";
    assert_int_equal(sqrl_plan_select(plan, &name, 1, &bad, &err), SQRL_E_INVALID);
    assert_null(bad);
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    assert_int_equal(sqrl_iterator_next_run(it, &run, &err), SQRL_E_STATE);
    sqrl_iterator_close(it);
    sqrl_plan_unref(plan);
    plan = syn_plan(source);
    SYN_STAGE(plan, sqrl_plan_take(plan, 1, SYN_OUT));
    assert_int_equal(sqrl_plan_shuffle_all(plan, 1, 0, &bad, &err), SQRL_E_INVALID);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

/* Plans go on in a child; an iterator that was running says what to do. */
static void after_fork(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    print_message("skipped: ThreadSanitizer starts no threads in a child of a fork\n");
    skip();
#endif
    struct syn_shard table[4];
    memset(table, 0, sizeof table);
    for (unsigned s = 0; s < 4; s++) {
        table[s].blocks = 10;
        for (unsigned b = 0; b < 10; b++)
            table[s].samples[b] = 20;
    }
    for (unsigned round = 0; round < 5; round++) {
        struct sqrl_context *context = syn_context(2, 0);
        struct sqrl_source *source = syn_source(context, table, 4);
        struct sqrl_plan *plan = syn_plan(source);
        struct sqrl_error err;
        struct sqrl_iterator *it;
        struct sqrl_run *run;
        syn_must(sqrl_iterator_open(plan, &it, &err), &err);
        syn_must(sqrl_iterator_next_run(it, &run, &err), &err);
        sqrl_run_release(run);
#if defined(__SANITIZE_ADDRESS__)
        usleep(
            200000); /* its allocator's locks do not survive a fork: let threads rest */
#endif
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct sqrl_stage_stats stats[4];
            struct list got = {0};
            bool good = sqrl_iterator_next_run(it, &run, &err) == SQRL_E_STATE && !run &&
                        sqrl_iterator_wait(it, 1000) &&
                        sqrl_iterator_stats(it, stats, 4) == 4;
            sqrl_iterator_cancel(it);
            sqrl_iterator_close(it);
            alarm(20);
            good = good && drain_runs(plan, &got, &err) == SQRL_OK && got.count == 800;
            _exit(good ? 0 : 1);
        }
        int status = 1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        uint64_t rest = 20;
        for (;;) {
            syn_must(sqrl_iterator_next_run(it, &run, &err), &err);
            if (!run)
                break;
            rest += run->count;
            sqrl_run_release(run);
        }
        assert_int_equal(rest, 800);
        sqrl_iterator_close(it);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_context_unref(context);
    }
}

/* Allocation n fails, for n = 1, 2, ... until all is well: an error, nothing lost, no
 * crash. */
static void allocation_faults(void **state) {
    (void)state;
    struct syn_shard table[3] = {{.indexed = 1, .blocks = 2, .samples = {5, 9}},
                                 {.blocks = 2, .samples = {4, 3}},
                                 {.indexed = 1, .known = 1, .blocks = 1, .samples = {6}}};
    for (unsigned mode = 0; mode < 4; mode++) {
        bool whole = false;
        for (uint64_t n = 1; !whole && n < 3000; n++) {
            struct sqrl_context *context = syn_context(2, 0);
            struct sqrl_source *source = syn_source(context, table, 3);
            struct sqrl_plan *plan = syn_plan(source);
            struct sqrl_error err;
            struct list got = {0};
            SYN_STAGE(plan, sqrl_plan_filter(plan, "id != 100001", SYN_OUT));
            if (mode & 1)
                SYN_STAGE(plan, sqrl_plan_shuffle_all(plan, 1, 600, SYN_OUT));
            struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 4};
            if (mode & 2)
                SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
            sqrl_error_clear(&err);
            sqrl_fail_allocation(n);
            int rc = mode & 2 ? drain_batches(plan, &got, NULL, &err)
                              : drain_runs(plan, &got, &err);
            sqrl_fail_allocation(0);
            if (rc)
                assert_int_equal(rc, SQRL_E_NO_MEMORY);
            else
                assert_int_equal(got.count, 26);
            whole = rc == SQRL_OK && n > 400;
            free(got.id);
            sqrl_plan_unref(plan);
            sqrl_source_unref(source);
            sqrl_context_unref(context);
        }
        assert_true(whole);
    }
}

/* --- several iterators at once, on one pool --- */
struct consumer {
    struct sqrl_plan *plan;
    struct list got;
    int rc;
};
static void *consume(void *arg) {
    struct consumer *c = arg;
    c->rc = drain_runs(c->plan, &c->got, NULL);
    return NULL;
}

static void many_iterators(void **state) {
    (void)state;
    struct syn_shard table[10];
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 3);
    random_table(&rng, table, 10);
    struct sqrl_context *context = syn_context(3, 0);
    struct sqrl_source *source = syn_source(context, table, 10);
    struct sqrl_plan *plan = syn_plan(source), *shuffled = syn_plan(source);
    SYN_STAGE(shuffled, sqrl_plan_shuffle_all(shuffled, 9, 2000, SYN_OUT));
    struct consumer consumer[12];
    pthread_t thread[12];
    struct list expect = {0};
    model(table, 10, &expect);
    for (unsigned i = 0; i < 12; i++) {
        consumer[i] = (struct consumer){i % 2 ? shuffled : plan, {0}, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, consume, &consumer[i]), 0);
    }
    for (unsigned i = 0; i < 12; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(consumer[i].rc, SQRL_OK);
        same(&consumer[i].got, i % 2 ? &consumer[1].got : &expect);
    }
    for (unsigned i = 0; i < 12; i++)
        free(consumer[i].got.id);
    free(expect.id);
    sqrl_plan_unref(plan);
    sqrl_plan_unref(shuffled);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

static void stats_add_up(void **state) {
    (void)state;
    struct syn_shard table[2] = {{.blocks = 3, .samples = {5, 9, 2}, .slow_us = 2000},
                                 {.blocks = 2, .samples = {4, 3}}};
    struct sqrl_context *context = syn_context(2, 0);
    struct sqrl_source *source = syn_source(context, table, 2);
    struct sqrl_plan *plan = syn_plan(source);
    struct sqrl_error err;
    struct sqrl_iterator *it;
    struct sqrl_batch *batch;
    struct sqrl_batch_options o = {.size = sizeof o, .batch_size = 4};
    SYN_STAGE(plan, sqrl_plan_batch(plan, &o, SYN_OUT));
    syn_must(sqrl_iterator_open(plan, &it, &err), &err);
    for (;;) {
        syn_must(sqrl_iterator_next_batch(it, &batch, &err), &err);
        if (!batch)
            break;
        sqrl_batch_unref(batch);
    }
    struct sqrl_stage_stats stats[4];
    assert_int_equal(sqrl_iterator_stats(it, stats, 4), 4);
    assert_string_equal(stats[0].name, "load");
    assert_int_equal(stats[0].items, 23);
    assert_int_equal(stats[2].items, 23);
    assert_int_equal(stats[3].items, 6);
    assert_true(stats[0].busy_ns > 6000000); /* three blocks of 2 ms */
    assert_true(stats[3].wait_ns > 1000000); /* the consumer was faster */
    double sum = 0;
    for (unsigned i = 0; i < 4; i++)
        sum += stats[i].wait_share;
    assert_true(sum > 0.999 && sum < 1.001);
    sqrl_iterator_close(it);
    char *text = sqrl_plan_describe(plan);
    assert_string_equal(text, "source('mem://syn') -> batch(4)");
    free(text);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_in_place),
        cmocka_unit_test(shuffled_error),
        cmocka_unit_test(filter_error_names_sample),
        cmocka_unit_test(larger_than_budget),
        cmocka_unit_test(budget_comes_back),
        cmocka_unit_test(kept_batches),
        cmocka_unit_test(many_tiny_shards),
        cmocka_unit_test(cancel_and_close),
        cmocka_unit_test(cancel_wakes),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(windows_widen_the_budget),
        cmocka_unit_test(after_fork),
        cmocka_unit_test(allocation_faults),
        cmocka_unit_test(many_iterators),
        cmocka_unit_test(stats_add_up),
    };
    syn_writer = write_sample;
    return cmocka_run_group_tests(tests, NULL, syn_settle);
}
