/* simulate: what each rank of a topology will read, from the shards' indexes alone. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Samples whose order is looked at, over all ranks: what their measures cost has a bound.
 */
#define MEASURED (UINT64_C(1) << 23)

struct topology {
    uint64_t ranks, workers, latency_us, parallel, batch;
    uint64_t bytes_per_second; /* of a rank's link; 0: not given */
};

/* Sums of one rank over its workers; the largest of any worker for what is a maximum. */
struct rank {
    struct sqrl_forecast sum;
    double first_seconds;
    uint64_t measured; /* samples, from its first on, whose order `quality` is of */
    struct sqrl_quality quality;
};

struct places {
    uint64_t *position;
    uint32_t *shard;
    size_t count;
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

static void places_reset(struct places *places) {
    free(places->position);
    free(places->shard);
    memset(places, 0, sizeof *places);
}

static int places_make(struct places *places, uint64_t room, struct sqrl_error *err) {
    places->position = malloc((room + 1) * sizeof *places->position);
    places->shard = malloc((room + 1) * sizeof *places->shard);
    if (places->position && places->shard)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for %llu positions",
                          (unsigned long long)room);
}

/* What one worker reads and, of its first `room` samples, in which order. */
static int forecast(struct sqrl_plan *plan, const struct topology *t, uint64_t rank,
                    uint64_t worker, uint64_t epoch, uint64_t room,
                    struct sqrl_forecast *out, struct places *places,
                    struct sqrl_error *err) {
    struct sqrl_distribute_options o = {.size = sizeof o};
    struct sqrl_plan *mine = NULL;
    o.topology = (struct sqrl_topology){rank, t->ranks, worker, t->workers};
    int code = sqrl_plan_distribute(plan, &o, &mine, err);
    if (code == SQRL_OK)
        code = sqrl_plan_forecast_first(mine, epoch, t->batch, out, err);
    room = code == SQRL_OK && room > out->items ? out->items : room;
    if (code == SQRL_OK)
        code = places_make(places, room, err);
    if (code == SQRL_OK)
        code = sqrl_plan_positions(mine, epoch, places->position, places->shard,
                                   (size_t)room, &places->count, err);
    sqrl_plan_unref(mine);
    return code;
}

/* A rank takes a batch of each of its workers in turn; what makes no whole batch comes
 * last. */
static int measure(const struct topology *t, const struct places *worker,
                   struct rank *rank, struct sqrl_error *err) {
    struct places all = {0};
    uint64_t sum = 0, most = 0;
    for (uint64_t w = 0; w < t->workers; w++) {
        sum += worker[w].count;
        most = worker[w].count > most ? worker[w].count : most;
    }
    if (!sum)
        return SQRL_OK;
    int code = places_make(&all, sum, err);
    for (int rest = 0; rest < 2 && code == SQRL_OK; rest++) {
        for (uint64_t at = 0; at < most; at += t->batch) {
            for (uint64_t w = 0; w < t->workers; w++) {
                uint64_t count = worker[w].count, n = count > at ? count - at : 0;
                n = n < t->batch ? n : t->batch;
                if (!n || (n < t->batch) != rest)
                    continue;
                memcpy(all.position + all.count, worker[w].position + at,
                       n * sizeof *all.position);
                memcpy(all.shard + all.count, worker[w].shard + at,
                       n * sizeof *all.shard);
                all.count += n;
            }
        }
    }
    rank->measured = all.count;
    if (code == SQRL_OK)
        code = sqrl_quality_measure(all.position, all.shard, all.count, t->batch,
                                    &rank->quality, err);
    places_reset(&all);
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

static int one_rank(struct sqrl_plan *plan, const struct topology *t, uint64_t r,
                    uint64_t epoch, struct places *worker, struct rank *rank,
                    struct sqrl_error *err) {
    uint64_t room = MEASURED / t->ranks / t->workers / t->batch * t->batch;
    int code = SQRL_OK;
    room = room > t->batch ? room : t->batch;
    for (uint64_t w = 0; w < t->workers && !code; w++) {
        struct sqrl_forecast f;
        if (cli_interrupted())
            return cli_cancelled(err);
        code = forecast(plan, t, r, w, epoch, room, &f, &worker[w], err);
        if (code == SQRL_OK)
            add(rank, &f);
    }
    if (code == SQRL_OK)
        code = measure(t, worker, rank, err);
    rank->first_seconds = first_seconds(t, &rank->sum);
    return code;
}

static int each_rank(struct sqrl_plan *plan, const struct topology *t, uint64_t epoch,
                     struct rank *ranks, struct sqrl_error *err) {
    struct places *worker = calloc(t->workers, sizeof *worker);
    int code = worker ? SQRL_OK : sqrl_error_set(err, SQRL_E_NO_MEMORY, "out of memory");
    for (uint64_t r = 0; r < t->ranks && !code; r++) {
        code = one_rank(plan, t, r, epoch, worker, &ranks[r], err);
        for (uint64_t w = 0; w < t->workers; w++)
            places_reset(&worker[w]);
    }
    free(worker);
    return code;
}

static void put_quality(struct sqrl_bytes *report, const struct topology *t,
                        const struct rank *rank) {
    const struct sqrl_quality *q = &rank->quality;
    cli_put_number(report, "measured_samples", rank->measured);
    cli_put_number(report, "batch", t->batch);
    cli_put_real(report, "tau", isnan(q->tau) ? 0 : q->tau); /* of one sample */
    cli_put_real(report, "mean_displacement", q->mean_displacement);
    cli_put_real(report, "max_displacement", q->max_displacement);
    cli_put_real(report, "batch_shards", q->batch_groups);
    cli_put_real(report, "random_batch_shards", q->random_batch_groups);
    cli_put_real(report, "batch_entropy", q->batch_entropy);
    cli_put_real(report, "whole_entropy", q->whole_entropy);
}

static void print_json(const struct topology *t, const struct rank *ranks) {
    struct sqrl_bytes report = {0};
    cli_put_array(&report, t->ranks);
    for (uint64_t r = 0; r < t->ranks; r++) {
        const struct sqrl_forecast *f = &ranks[r].sum;
        cli_put_map(&report, 23);
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
        put_quality(&report, t, &ranks[r]);
    }
    cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static void print_sums(const struct topology *t, const struct rank *ranks) {
    uint64_t total = 0, most = 0;
    double slowest = 0;
    char size[32], cache[32];
    for (uint64_t r = 0; r < t->ranks; r++) {
        uint64_t bytes = ranks[r].sum.request_bytes;
        total += bytes;
        most = bytes > most ? bytes : most;
        slowest = ranks[r].first_seconds > slowest ? ranks[r].first_seconds : slowest;
    }
    printf(
        "all ranks read %s; a cache that keeps a rank's part takes up to %s; the first "
        "sample comes after %.3f s\n",
        cli_size_text(total, size), cli_size_text(most, cache), slowest);
}

/* The mean over ranks that have something, and the least mixed one. */
static void print_quality(const struct topology *t, const struct rank *ranks) {
    struct sqrl_quality mean = {0};
    double least = 0, count = 0;
    for (uint64_t r = 0; r < t->ranks; r++) {
        const struct sqrl_quality *q = &ranks[r].quality;
        if (!ranks[r].measured)
            continue;
        mean.tau += isnan(q->tau) ? 0 : q->tau;
        mean.mean_displacement += q->mean_displacement;
        mean.batch_groups += q->batch_groups;
        mean.random_batch_groups += q->random_batch_groups;
        mean.batch_entropy += q->batch_entropy;
        mean.whole_entropy += q->whole_entropy;
        least = !count || q->batch_groups < least ? q->batch_groups : least;
        count++;
    }
    if (count == 0)
        return;
    printf("shuffle quality of a rank: tau %+.4f (random: 0), mean displacement %.4f "
           "(0.3333); in a batch of %llu %.2f shards (%.2f; the least mixed rank %.2f), "
           "entropy %.2f bits (whole: %.2f)\n",
           mean.tau / count, mean.mean_displacement / count, (unsigned long long)t->batch,
           mean.batch_groups / count, mean.random_batch_groups / count, least,
           mean.batch_entropy / count, mean.whole_entropy / count);
}

static void print_text(const struct topology *t, const struct rank *ranks) {
    char size[32], first[32], window[32];
    printf("%6s %12s %10s %12s %14s %14s %12s %13s\n", "rank", "samples", "requests",
           "bytes", "first bytes", "windows", "first", "batch shards");
    for (uint64_t r = 0; r < t->ranks; r++) {
        const struct sqrl_forecast *f = &ranks[r].sum;
        printf("%6llu %12llu %10llu %12s %14s %14s %10.3f s %13.2f\n",
               (unsigned long long)r, (unsigned long long)f->items,
               (unsigned long long)f->requests, cli_size_text(f->request_bytes, size),
               cli_size_text(f->first_request_bytes, first),
               cli_size_text(f->window_bytes, window), ranks[r].first_seconds,
               ranks[r].quality.batch_groups);
    }
    print_sums(t, ranks);
    print_quality(t, ranks);
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
        code = cli_number(args, "batch", 256, &t->batch, err);
    if (code == SQRL_OK)
        code = cli_size(args, "bandwidth", &t->bytes_per_second, err);
    if (code == SQRL_OK && (!t->ranks || !t->workers || !t->parallel || !t->batch ||
                            t->ranks > 65536 || t->workers > 65536))
        code = sqrl_error_set(
            err, SQRL_E_INVALID,
            "--ranks and --workers are 1 to 65536, --parallel and --batch at "
            "least 1");
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
    {"batch", 'b', "N", "samples of a worker's batch (256)"},
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
