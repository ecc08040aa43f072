/* shuffle-quality: what the order of a stream is worth. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Where samples came from, in the order of delivery. */
struct pass {
    uint64_t *order;
    uint32_t *group;
    size_t count, room;
};

static int add(struct pass *pass, uint64_t position, uint64_t shard,
               struct sqrl_error *err) {
    if (pass->count == pass->room) {
        size_t room = pass->room ? 2 * pass->room : 65536;
        void *order = realloc(pass->order, room * sizeof *pass->order);
        if (order)
            pass->order = order;
        void *group = order ? realloc(pass->group, room * sizeof *pass->group) : NULL;
        if (!group)
            return sqrl_error_set(err, SQRL_E_NO_MEMORY,
                                  "no memory for %zu positions; use --take", room);
        pass->group = group;
        pass->room = room;
    }
    pass->order[pass->count] = position;
    pass->group[pass->count++] = (uint32_t)shard;
    return SQRL_OK;
}

static int add_run(struct sqrl_source *source, const struct sqrl_run *run,
                   struct pass *pass, struct sqrl_error *err) {
    uint64_t shard = UINT64_MAX, base = 0;
    int code = SQRL_OK;
    for (uint32_t i = 0; i < run->count && !code; i++) {
        const struct sqrl_block *block = run->samples[i].block;
        struct sqrl_place place = sqrl_block_place(block, run->samples[i].index);
        if (place.sample == SQRL_UNKNOWN)
            return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                                  "the samples of %s don't tell their positions: index "
                                  "or pack them first",
                                  sqrl_source_url(source));
        if (place.shard != shard)
            code = sqrl_source_position(source, shard = place.shard, 0, &base, err);
        if (!code)
            code = add(pass, base + place.sample, shard, err);
    }
    return code;
}

static int read_pass(struct sqrl_plan *plan, uint64_t epoch, struct pass *pass,
                     struct sqrl_error *err) {
    struct sqrl_iterator_options options = {.size = sizeof options, .epoch = epoch};
    struct sqrl_iterator *iterator = NULL;
    int code = sqrl_iterator_start(plan, &options, &iterator, err);
    while (code == SQRL_OK) {
        struct sqrl_run *run;
        if (cli_interrupted()) {
            code = cli_cancelled(err);
            break;
        }
        code = sqrl_iterator_next_run(iterator, &run, err);
        if (code || !run)
            break;
        code = add_run(sqrl_plan_get_source(plan), run, pass, err);
        sqrl_run_release(run);
    }
    sqrl_iterator_close(iterator);
    return code;
}

static void print_quality(const struct cli_args *args, const struct pass *pass,
                          uint64_t batch, const struct sqrl_quality *q, double between) {
    if (!args->json) {
        printf("samples              %zu in batches of %llu\n", pass->count,
               (unsigned long long)batch);
        printf("kendall tau          %+.4f against the source's order, %+.4f between two "
               "epochs (random: 0)\n",
               q->tau, between);
        printf("displacement         mean %.4f, most %.4f of the whole (random: 0.3333, "
               "1)\n",
               q->mean_displacement, q->max_displacement);
        printf("shards in a batch    %.2f (random: %.2f)\n", q->batch_groups,
               q->random_batch_groups);
        printf("entropy of a batch   %.2f bits of shards (whole: %.2f)\n",
               q->batch_entropy, q->whole_entropy);
        return;
    }
    struct sqrl_bytes report = {0};
    cli_put_map(&report, 10);
    cli_put_number(&report, "samples", pass->count);
    cli_put_number(&report, "batch", batch);
    cli_put_real(&report, "tau", q->tau);
    cli_put_real(&report, "tau_between_epochs", between);
    cli_put_real(&report, "mean_displacement", q->mean_displacement);
    cli_put_real(&report, "max_displacement", q->max_displacement);
    cli_put_real(&report, "batch_shards", q->batch_groups);
    cli_put_real(&report, "random_batch_shards", q->random_batch_groups);
    cli_put_real(&report, "batch_entropy", q->batch_entropy);
    cli_put_real(&report, "whole_entropy", q->whole_entropy);
    cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static int run_quality(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_plan *plan = NULL;
    struct pass pass = {0}, other = {0};
    struct sqrl_quality quality;
    double between = 0;
    uint64_t batch = 256, epoch = 0;
    const char *plot = cli_value(args, "plot");
    size_t size = plot ? strlen(plot) : 0;
    if (plot && (size < 4 || strcasecmp(plot + size - 4, ".svg") != 0))
        return cli_usage(args,
                         "--plot writes SVG: %s must end in .svg (in Python "
                         "squirrel.benchmark.shuffle_quality.plot writes other kinds)",
                         plot);
    int code = cli_number(args, "batch", 256, &batch, &err);
    if (code == SQRL_OK)
        code = cli_number(args, "epoch", 0, &epoch, &err);
    if (code == SQRL_OK)
        code = cli_plan(args, args->word[0], &plan, &err);
    if (code == SQRL_OK)
        code = read_pass(plan, epoch, &pass, &err);
    if (code == SQRL_OK)
        code = sqrl_quality_measure(pass.order, pass.group, pass.count, batch, &quality,
                                    &err);
    if (code == SQRL_OK)
        code = read_pass(plan, epoch + 1, &other, &err);
    size_t common = pass.count < other.count ? pass.count : other.count;
    if (code == SQRL_OK)
        code = sqrl_kendall_tau(pass.order, other.order, common, &between, &err);
    if (code == SQRL_OK && plot) {
        char title[120];
        snprintf(title, sizeof title, "tau %+.3f, %.1f shards in a batch of %llu",
                 quality.tau, quality.batch_groups, (unsigned long long)batch);
        code = cli_plot_order(plot, title, pass.order, pass.count, &err);
    }
    if (code == SQRL_OK)
        print_quality(args, &pass, batch, &quality, between);
    sqrl_plan_unref(plan);
    free(pass.order);
    free(pass.group);
    free(other.order);
    free(other.group);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static const struct cli_option quality_options[] = {
    {"window", 0, "SIZE", "of --shuffle, in memory together (64 MiB); none: no window"},
    {"batch", 'b', "N", "samples of a batch (256)"},
    {"epoch", 0, "N", "which epoch's order (0); it is compared with the next one's"},
    {"plot", 0, "FILE", "write a picture (SVG) of positions in the source, as they come"},
    CLI_PLAN_OPTIONS,
    {0}};

const struct cli_command cli_quality = {
    "shuffle-quality",
    "URL",
    "measure what the order of --shuffle is worth: tau, displacement, shards in a batch",
    quality_options,
    1,
    1,
    CLI_READS,
    run_quality};
