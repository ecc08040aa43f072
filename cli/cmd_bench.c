/* bench: how quickly a source is read here, and where the time goes. */
#include "cli.h"

#include <string.h>
#include <sys/resource.h>

struct round {
    uint64_t samples, bytes, ns;
    struct sqrl_stage_stats stats[16];
    size_t stages;
};

static int read_runs(struct sqrl_iterator *iterator, struct round *round,
                     struct sqrl_error *err) {
    for (;;) {
        struct sqrl_run *run;
        int code = sqrl_iterator_next_run(iterator, &run, err);
        if (code || !run || cli_interrupted()) {
            sqrl_run_release(run);
            return code;
        }
        round->samples += run->count;
        sqrl_run_release(run);
    }
}

static int read_batches(struct sqrl_iterator *iterator, struct round *round,
                        struct sqrl_error *err) {
    for (;;) {
        struct sqrl_batch *batch;
        int code = sqrl_iterator_next_batch(iterator, &batch, err);
        if (code || !batch || cli_interrupted()) {
            sqrl_batch_unref(batch);
            return code;
        }
        round->samples += batch->rows;
        for (uint32_t i = 0; i < batch->columns; i++)
            round->bytes += batch->column[i].data_bytes;
        sqrl_batch_unref(batch);
    }
}

static int run_round(struct sqrl_plan *plan, struct round *round,
                     struct sqrl_error *err) {
    struct sqrl_iterator *iterator = NULL;
    memset(round, 0, sizeof *round);
    uint64_t start = cli_now_ns();
    int code = sqrl_iterator_open(plan, &iterator, err);
    if (code == SQRL_OK)
        code = sqrl_plan_is_batched(plan) ? read_batches(iterator, round, err)
                                          : read_runs(iterator, round, err);
    round->ns = cli_now_ns() - start;
    if (code == SQRL_OK)
        round->stages = sqrl_iterator_stats(iterator, round->stats,
                                            sizeof round->stats / sizeof round->stats[0]);
    sqrl_iterator_close(iterator);
    return code;
}

static void print_round(const struct cli_args *args, const struct round *round) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    uint64_t peak = (uint64_t)usage.ru_maxrss * 1024;
    double seconds = (double)round->ns / 1e9, rate = (double)round->samples / seconds;
    char size[32];
    if (!args->json) {
        printf("%llu samples in %.3f s: %.0f samples/s",
               (unsigned long long)round->samples, seconds, rate);
        if (round->bytes)
            printf(", %s/s of columns",
                   cli_size_text((uint64_t)((double)round->bytes / seconds), size));
        printf("; peak memory %s\n", cli_size_text(peak, size));
        for (size_t i = 0; i < round->stages; i++)
            printf("  %-10s %10llu items  busy %7.3f s  waiting %5.1f %%\n",
                   round->stats[i].name, (unsigned long long)round->stats[i].items,
                   (double)round->stats[i].busy_ns / 1e9,
                   round->stats[i].wait_share * 100);
        return;
    }
    struct sqrl_bytes report = {0};
    cli_put_map(&report, 6);
    cli_put_number(&report, "samples", round->samples);
    cli_put_real(&report, "seconds", seconds);
    cli_put_real(&report, "samples_per_second", rate);
    cli_put_real(&report, "column_bytes_per_second", (double)round->bytes / seconds);
    cli_put_number(&report, "peak_bytes", peak);
    cli_put_key(&report, "stages");
    cli_put_array(&report, round->stages);
    for (size_t i = 0; i < round->stages; i++) {
        cli_put_map(&report, 4);
        cli_put_text(&report, "name", round->stats[i].name);
        cli_put_number(&report, "items", round->stats[i].items);
        cli_put_real(&report, "busy_seconds", (double)round->stats[i].busy_ns / 1e9);
        cli_put_real(&report, "wait_share", round->stats[i].wait_share);
    }
    cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static int run_bench(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_plan *plan = NULL, *batched = NULL;
    struct round round;
    uint64_t batch = 0, rounds = 0;
    int code = cli_number(args, "batch", 0, &batch, &err);
    if (code == SQRL_OK)
        code = cli_number(args, "rounds", 3, &rounds, &err);
    if (code == SQRL_OK)
        code = cli_plan(args, args->word[0], &plan, &err);
    if (code == SQRL_OK && batch) {
        struct sqrl_batch_options options = {.size = sizeof options, .batch_size = batch};
        code = sqrl_plan_batch(plan, &options, &batched, &err);
    }
    for (uint64_t i = 0; i < rounds && code == SQRL_OK && !cli_interrupted(); i++) {
        code = run_round(batched ? batched : plan, &round, &err);
        if (code == SQRL_OK && !cli_interrupted())
            print_round(args, &round);
    }
    sqrl_plan_unref(batched);
    sqrl_plan_unref(plan);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static const struct cli_option bench_options[] = {
    {"batch", 'b', "N", "deliver batches of N samples instead of single samples"},
    {"rounds", 'r', "N", "read it N times (3): the first may read from disk"},
    CLI_PLAN_OPTIONS,
    {0}};

const struct cli_command cli_bench = {
    "bench",
    "URL",
    "measure how quickly a source is read, and what it waits for",
    bench_options,
    1,
    1,
    CLI_READS,
    run_bench};
