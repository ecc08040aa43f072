/* bench: how quickly a source is read here, and where the time goes. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define SLICE_NS UINT64_C(50000000)

/* --price and --link: what requests cost, and how wide the link is. */
struct cli_prices {
    double per_thousand; /* negative: not given */
    uint64_t link_bytes; /* a second; 0: not given */
};

struct round {
    uint64_t samples, bytes, ns;
    struct sqrl_stage_stats stats[16];
    size_t stages;
    struct sqrl_fs_metrics link; /* of this round */
};

/* What came since `before`; the most at a time is of all rounds. */
static void subtract(struct sqrl_fs_metrics *link, const struct sqrl_fs_metrics *before) {
    link->requests -= before->requests;
    link->lists -= before->lists;
    link->bytes -= before->bytes;
    link->retries -= before->retries;
    link->hedges -= before->hedges;
    link->cache_hits -= before->cache_hits;
    link->cache_bytes -= before->cache_bytes;
    link->first_byte_ns -= before->first_byte_ns;
    link->first_bytes -= before->first_bytes;
}

static double first_byte_ms(const struct sqrl_fs_metrics *link) {
    return link->first_bytes
               ? (double)link->first_byte_ns / (double)link->first_bytes / 1e6
               : 0;
}

static double cost_of(const struct cli_prices *prices, const struct round *round) {
    return prices->per_thousand * (double)(round->link.requests + round->link.lists) /
           1000;
}

/* False: Ctrl-C came while a server was silent. */
static bool wait_for_more(struct sqrl_iterator *iterator) {
    while (!sqrl_iterator_wait(iterator, SLICE_NS))
        if (cli_interrupted())
            return false;
    return true;
}

static int read_runs(struct sqrl_iterator *iterator, struct round *round,
                     struct sqrl_error *err) {
    for (;;) {
        struct sqrl_run *run;
        if (!wait_for_more(iterator))
            return SQRL_OK;
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
        if (!wait_for_more(iterator))
            return SQRL_OK;
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

/* Nothing is begun for the next round in this one. */
static int run_round(struct sqrl_plan *plan, uint64_t number, struct round *round,
                     struct sqrl_error *err) {
    struct sqrl_iterator_options options = {
        .size = sizeof options, .epoch = 2 * number, .follow = SQRL_FOLLOW_NONE};
    struct sqrl_iterator *iterator = NULL;
    struct sqrl_fs_metrics before;
    memset(round, 0, sizeof *round);
    sqrl_source_metrics(sqrl_plan_get_source(plan), &before);
    uint64_t start = cli_now_ns();
    int code = sqrl_iterator_start(plan, &options, &iterator, err);
    if (code == SQRL_OK)
        code = sqrl_plan_is_batched(plan) ? read_batches(iterator, round, err)
                                          : read_runs(iterator, round, err);
    round->ns = cli_now_ns() - start;
    if (code == SQRL_OK)
        round->stages = sqrl_iterator_stats(iterator, round->stats,
                                            sizeof round->stats / sizeof round->stats[0]);
    sqrl_iterator_close(iterator);
    sqrl_source_metrics(sqrl_plan_get_source(plan), &round->link);
    subtract(&round->link, &before);
    return code;
}

static double link_share(const struct round *round, const struct cli_prices *prices) {
    double rate = (double)round->link.bytes / ((double)round->ns / 1e9);
    return prices->link_bytes ? rate / (double)prices->link_bytes : 0;
}

static void print_link(const struct round *round, const struct cli_prices *prices) {
    const struct sqrl_fs_metrics *m = &round->link;
    typedef unsigned long long number;
    char size[32], rate[32];
    double seconds = (double)round->ns / 1e9;
    printf("  %llu requests, %llu listings: %s, %s/s", (number)m->requests,
           (number)m->lists, cli_size_text(m->bytes, size),
           cli_size_text((uint64_t)((double)m->bytes / seconds), rate));
    if (prices->link_bytes)
        printf(", %.0f %% of the link", 100 * link_share(round, prices));
    printf("; first byte after %.1f ms; %llu retries, %llu hedges, %llu cache hits\n",
           first_byte_ms(m), (number)m->retries, (number)m->hedges,
           (number)m->cache_hits);
    if (prices->per_thousand >= 0)
        printf("  the requests cost %.6f\n", cost_of(prices, round));
}

static void put_link(struct sqrl_bytes *report, const struct round *round,
                     const struct cli_prices *prices) {
    const struct sqrl_fs_metrics *m = &round->link;
    bool share = prices->link_bytes > 0, cost = prices->per_thousand >= 0;
    cli_put_key(report, "link");
    cli_put_map(report, 9u + share + cost);
    cli_put_number(report, "requests", m->requests);
    cli_put_number(report, "lists", m->lists);
    cli_put_number(report, "bytes", m->bytes);
    cli_put_number(report, "retries", m->retries);
    cli_put_number(report, "hedges", m->hedges);
    cli_put_number(report, "cache_hits", m->cache_hits);
    cli_put_number(report, "cache_bytes", m->cache_bytes);
    cli_put_number(report, "parallel_most", m->parallel_most);
    cli_put_real(report, "first_byte_ms", first_byte_ms(m));
    if (share)
        cli_put_real(report, "share", link_share(round, prices));
    if (cost)
        cli_put_real(report, "cost", cost_of(prices, round));
}

static void print_round(const struct cli_args *args, const struct round *round,
                        const struct cli_prices *prices) {
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
        print_link(round, prices);
        return;
    }
    struct sqrl_bytes report = {0};
    cli_put_map(&report, 7);
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
    put_link(&report, round, prices);
    cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static int read_prices(const struct cli_args *args, struct cli_prices *out,
                       struct sqrl_error *err) {
    const char *price = cli_value(args, "price");
    char *rest = NULL;
    out->per_thousand = price ? strtod(price, &rest) : -1;
    if (price && (rest == price || *rest || !(out->per_thousand >= 0)))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "--price \"%.40s\" is no price of a thousand requests: "
                              "write it as 0.0004",
                              price);
    return cli_size(args, "link", &out->link_bytes, err);
}

static int run_bench(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_plan *plan = NULL, *batched = NULL;
    struct round round;
    uint64_t batch = 0, rounds = 0;
    struct cli_prices prices = {0};
    int code = read_prices(args, &prices, &err);
    if (code == SQRL_OK)
        code = cli_number(args, "batch", 0, &batch, &err);
    if (code == SQRL_OK)
        code = cli_number(args, "rounds", 3, &rounds, &err);
    if (code == SQRL_OK)
        code = cli_plan(args, args->word[0], &plan, &err);
    if (code == SQRL_OK && batch) {
        struct sqrl_batch_options options = {.size = sizeof options, .batch_size = batch};
        code = sqrl_plan_batch(plan, &options, &batched, &err);
    }
    for (uint64_t i = 0; i < rounds && code == SQRL_OK && !cli_interrupted(); i++) {
        code = run_round(batched ? batched : plan, i, &round, &err);
        if (code == SQRL_OK && !cli_interrupted())
            print_round(args, &round, &prices);
    }
    sqrl_plan_unref(batched);
    sqrl_plan_unref(plan);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static const struct cli_option bench_options[] = {
    {"batch", 'b', "N", "deliver batches of N samples instead of single samples"},
    {"rounds", 'r', "N", "read it N times (3): the first may read from disk"},
    {"price", 0, "P", "of a thousand requests: tells what they cost"},
    {"link", 0, "SIZE", "bytes a second of the link: tells the share of it"},
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
