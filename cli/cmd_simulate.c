/* simulate: what each rank of a topology will read, from the shards' indexes alone. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

struct topology {
    uint64_t ranks, workers, latency_us, parallel;
    uint64_t bytes_per_second; /* of a rank's link; 0: not given */
};

/* Sums of one rank over its workers; the largest of any worker for what is a maximum. */
struct rank {
    struct sqrl_forecast sum;
    double first_seconds;
};

/* Requests wait for the link's latency, `parallel` at a time, and share its width; what
 * an index tells of is asked for when it is there. */
static double first_seconds(const struct topology *t, const struct sqrl_forecast *f) {
    uint64_t rounds = (f->first_requests + t->parallel - 1) / t->parallel;
    rounds = rounds > f->first_rounds ? rounds : f->first_rounds;
    double wide = t->bytes_per_second
                      ? (double)f->first_request_bytes / (double)t->bytes_per_second
                      : 0;
    return (double)rounds * (double)t->latency_us / 1e6 + wide;
}

static int forecast(struct sqrl_plan *plan, const struct topology *t, uint64_t rank,
                    uint64_t worker, uint64_t epoch, struct sqrl_forecast *out,
                    struct sqrl_error *err) {
    struct sqrl_distribute_options o = {.size = sizeof o};
    struct sqrl_plan *mine = NULL;
    o.topology = (struct sqrl_topology){rank, t->ranks, worker, t->workers};
    int code = sqrl_plan_distribute(plan, &o, &mine, err);
    if (code == SQRL_OK)
        code = sqrl_plan_forecast(mine, epoch, out, err);
    sqrl_plan_unref(mine);
    return code;
}

static void add(struct rank *to, const struct sqrl_forecast *f) {
    struct sqrl_forecast *sum = &to->sum;
    sum->items += f->items;
    sum->chunks += f->chunks;
    sum->shards += f->shards;
    sum->blocks += f->blocks;
    sum->block_bytes += f->block_bytes;
    sum->decoded_bytes += f->decoded_bytes;
    sum->first_blocks += f->first_blocks;
    sum->first_bytes += f->first_bytes;
    sum->window_bytes += 2 * f->window_bytes;
    sum->requests += f->requests;
    sum->request_bytes += f->request_bytes;
    sum->first_requests += f->first_requests;
    sum->first_request_bytes += f->first_request_bytes;
    if (f->first_rounds > sum->first_rounds)
        sum->first_rounds = f->first_rounds;
}

static int each_rank(struct sqrl_plan *plan, const struct topology *t, uint64_t epoch,
                     struct rank *ranks, struct sqrl_error *err) {
    int code = SQRL_OK;
    for (uint64_t r = 0; r < t->ranks && !code; r++) {
        for (uint64_t w = 0; w < t->workers && !code; w++) {
            struct sqrl_forecast f;
            if (cli_interrupted())
                return cli_cancelled(err);
            code = forecast(plan, t, r, w, epoch, &f, err);
            if (code == SQRL_OK)
                add(&ranks[r], &f);
        }
        ranks[r].first_seconds = first_seconds(t, &ranks[r].sum);
    }
    return code;
}

static void print_json(const struct topology *t, const struct rank *ranks) {
    struct sqrl_bytes report = {0};
    cli_put_array(&report, t->ranks);
    for (uint64_t r = 0; r < t->ranks; r++) {
        const struct sqrl_forecast *f = &ranks[r].sum;
        cli_put_map(&report, 14);
        cli_put_number(&report, "rank", r);
        cli_put_number(&report, "samples", f->items);
        cli_put_number(&report, "shards", f->shards);
        cli_put_number(&report, "block_requests", f->blocks);
        cli_put_number(&report, "block_bytes", f->block_bytes);
        cli_put_number(&report, "decoded_bytes", f->decoded_bytes);
        cli_put_number(&report, "first_blocks", f->first_blocks);
        cli_put_number(&report, "first_bytes", f->first_bytes);
        cli_put_number(&report, "window_bytes", f->window_bytes);
        cli_put_number(&report, "requests", f->requests);
        cli_put_number(&report, "request_bytes", f->request_bytes);
        cli_put_number(&report, "first_requests", f->first_requests);
        cli_put_number(&report, "first_request_bytes", f->first_request_bytes);
        cli_put_real(&report, "first_seconds", ranks[r].first_seconds);
    }
    cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static void print_text(const struct topology *t, const struct rank *ranks) {
    uint64_t total = 0, most = 0;
    double slowest = 0;
    char size[32], first[32], window[32];
    printf("%6s %12s %10s %12s %14s %14s %12s\n", "rank", "samples", "requests", "bytes",
           "first bytes", "windows", "first");
    for (uint64_t r = 0; r < t->ranks; r++) {
        const struct sqrl_forecast *f = &ranks[r].sum;
        printf("%6llu %12llu %10llu %12s %14s %14s %10.3f s\n", (unsigned long long)r,
               (unsigned long long)f->items, (unsigned long long)f->requests,
               cli_size_text(f->request_bytes, size),
               cli_size_text(f->first_request_bytes, first),
               cli_size_text(f->window_bytes, window), ranks[r].first_seconds);
        total += f->request_bytes;
        most = f->request_bytes > most ? f->request_bytes : most;
        slowest = ranks[r].first_seconds > slowest ? ranks[r].first_seconds : slowest;
    }
    printf(
        "all ranks read %s; a cache that keeps a rank's part takes up to %s; the first "
        "sample comes after %.3f s\n",
        cli_size_text(total, size), cli_size_text(most, first), slowest);
}

static int read_topology(const struct cli_args *args, struct topology *t,
                         struct sqrl_error *err) {
    int code = cli_number(args, "ranks", 1, &t->ranks, err);
    if (code == SQRL_OK)
        code = cli_number(args, "workers", 1, &t->workers, err);
    if (code == SQRL_OK)
        code = cli_number(args, "latency", 0, &t->latency_us, err);
    if (code == SQRL_OK)
        code = cli_number(args, "parallel", 16, &t->parallel, err);
    if (code == SQRL_OK)
        code = cli_size(args, "bandwidth", &t->bytes_per_second, err);
    if (code == SQRL_OK && (!t->ranks || !t->workers || !t->parallel || t->ranks > 65536))
        code =
            sqrl_error_set(err, SQRL_E_INVALID,
                           "--ranks is 1 to 65536, --workers and --parallel at least 1");
    return code;
}

static int run_simulate(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_plan *plan = NULL;
    struct topology t = {0};
    struct rank *ranks = NULL;
    uint64_t epoch = 0;
    int code = read_topology(args, &t, &err);
    if (code == SQRL_OK)
        code = cli_number(args, "epoch", 0, &epoch, &err);
    if (code == SQRL_OK)
        code = cli_plan(args, args->word[0], &plan, &err);
    if (code == SQRL_OK && !(ranks = calloc(t.ranks, sizeof *ranks)))
        code = sqrl_error_set(&err, SQRL_E_NO_MEMORY, "out of memory");
    if (code == SQRL_OK)
        code = each_rank(plan, &t, epoch, ranks, &err);
    if (code == SQRL_OK && args->json)
        print_json(&t, ranks);
    else if (code == SQRL_OK)
        print_text(&t, ranks);
    sqrl_plan_unref(plan);
    free(ranks);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static const struct cli_option simulate_options[] = {
    {"ranks", 0, "N", "ranks of the job (1)"},
    {"workers", 0, "N", "workers of each rank (1)"},
    {"epoch", 0, "N", "which epoch (0)"},
    {"shuffle", 0, "SEED", "in a random order that the seed fixes"},
    {"window", 0, "SIZE", "of --shuffle, in memory together (64 MiB); none: no window"},
    {"bandwidth", 0, "SIZE", "bytes a second of a rank's link"},
    {"latency", 0, "US", "microseconds until a request's first byte (0)"},
    {"parallel", 0, "N", "requests under way at a time (16, as streams have)"},
    {0}};

const struct cli_command cli_simulate = {
    "simulate",
    "URL",
    "tell what each rank of a job will read, without reading the data",
    simulate_options,
    1,
    1,
    CLI_READS,
    run_simulate};
