/* pack and convert: samples from anywhere into shards, or into one file of any format. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job {
    struct sqrl_packer *packer;
    struct cli_progress progress;
    uint64_t done;
};

/* A sample as the projection shows it, encoded into the packer's own bytes. */
static int put_projected(struct sqrl_packer *packer,
                         const struct sqrl_projection *projection,
                         const struct sqrl_block *block, uint32_t index,
                         struct sqrl_error *err) {
    enum { MAX_FIELDS = 1024 };
    static struct sqrl_field_ref field[MAX_FIELDS];
    struct sqrl_bytes *out = sqrl_packer_bytes(packer);
    size_t count = sqrl_projection_apply(projection, block, index, field, MAX_FIELDS);
    if (count > MAX_FIELDS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a sample has more than %d fields",
                              MAX_FIELDS);
    int code = sqrl_msgpack_put_map(out, count, err);
    for (size_t i = 0; i < count && code == SQRL_OK; i++) {
        code = sqrl_msgpack_put_string(out, field[i].name, field[i].name_size, err);
        if (code == SQRL_OK)
            code = sqrl_msgpack_encode(out, block->tape.nodes, field[i].node,
                                       block->bytes->data, err);
    }
    return code ? code : sqrl_packer_accept(packer, err);
}

static int pack_sample(void *arg, const struct sqrl_projection *projection,
                       const struct sqrl_block *block, uint32_t index,
                       struct sqrl_error *err) {
    struct job *job = arg;
    int code = projection ? put_projected(job->packer, projection, block, index, err)
                          : sqrl_packer_append_sample(job->packer, block, index, err);
    if ((++job->done & 1023) == 0) {
        struct sqrl_pack_report report;
        sqrl_packer_progress(job->packer, &report);
        cli_progress_show(&job->progress, job->done, report.raw_bytes);
        if (cli_interrupted())
            return sqrl_error_set(err, SQRL_E_CANCELLED, "interrupted");
    }
    return code;
}

/* How many samples the inputs have, where all know; for the progress bar. */
static uint64_t expected_samples(const struct cli_args *args) {
    uint64_t total = 0;
    for (size_t i = 0; i + 1 < args->words; i++) {
        struct sqrl_plan *plan = NULL;
        uint64_t count = SQRL_UNKNOWN;
        if (strcmp(args->word[i], "-") == 0 ||
            cli_plan(args, args->word[i], &plan, NULL) != SQRL_OK ||
            sqrl_plan_count(plan, &count, NULL) != SQRL_OK)
            count = SQRL_UNKNOWN;
        sqrl_plan_unref(plan);
        if (count == SQRL_UNKNOWN)
            return SQRL_UNKNOWN;
        total += count;
    }
    return total;
}

static bool declares(const struct sqrl_option *options, const char *name) {
    for (; options && options->name; options++)
        if (strcmp(options->name, name) == 0)
            return true;
    return false;
}

/* Settings that a writing format declares go to the packer, the others to the reader. */
static void split_settings(struct cli_args *args, struct sqrl_setting *writing,
                           size_t *count) {
    size_t kept = 0;
    *count = 0;
    for (size_t i = 0; i < args->setting_count; i++) {
        bool writes = false;
        for (size_t k = 0; sqrl_format_at(k); k++)
            writes = writes ||
                     declares(sqrl_format_at(k)->write_options, args->settings[i].name);
        if (writes)
            writing[(*count)++] = args->settings[i];
        else
            args->settings[kept++] = args->settings[i];
    }
    args->setting_count = kept;
}

static bool size_value(const struct cli_args *args, const char *name, uint64_t *out) {
    struct sqrl_error err = {0};
    const char *text = cli_value(args, name);
    *out = 0;
    if (!text || sqrl_parse_size(text, out, &err) == SQRL_OK)
        return true;
    cli_usage(args, "--%s: %s", name, err.message);
    return false;
}

static void print_report(const struct cli_args *args,
                         const struct sqrl_pack_report *report, const char *destination,
                         double seconds) {
    struct sqrl_bytes out = {0};
    char raw[32], file[32];
    if (args->json) {
        cli_put_map(&out, 6);
        cli_put_text(&out, "destination", destination);
        cli_put_number(&out, "samples", report->samples);
        cli_put_number(&out, "shards", report->shards);
        cli_put_number(&out, "raw_bytes", report->raw_bytes);
        cli_put_number(&out, "file_bytes", report->file_bytes);
        cli_put_real(&out, "seconds", seconds);
        cli_print_json(&out);
        sqrl_bytes_reset(&out);
        return;
    }
    fprintf(stderr, "%s: %llu samples in %llu %s, %s (%s of samples), %.1f s\n",
            destination, (unsigned long long)report->samples,
            (unsigned long long)report->shards, report->shards == 1 ? "shard" : "shards",
            cli_size_text(report->file_bytes, file),
            cli_size_text(report->raw_bytes, raw), seconds);
}

static int pack_into(struct cli_args *args, const char *destination,
                     struct sqrl_pack_options *options) {
    struct sqrl_error err = {0};
    struct sqrl_pack_report report = {0};
    struct job job = {0};
    uint64_t start = cli_now_ns(), total = expected_samples(args);
    int code = sqrl_packer_open(args->context, destination, options, &job.packer, &err);
    cli_progress_start(&job.progress, args, args->command->name, total);
    for (size_t i = 0; i + 1 < args->words && code == SQRL_OK; i++)
        code = cli_each_sample(args, args->word[i], pack_sample, &job, &err);
    cli_progress_end(&job.progress);
    if (code) {
        sqrl_packer_abandon(job.packer);
        return cli_fail(args, &err);
    }
    code = sqrl_packer_finish(job.packer, &report, &err);
    if (code)
        return cli_fail(args, &err);
    print_report(args, &report, destination, (double)(cli_now_ns() - start) / 1e9);
    return EXIT_DONE;
}

/* convert X -: JSON lines to standard output. */
static int convert_to_output(struct cli_args *args) {
    args->words--;
    return cli_cat.run(args);
}

static int run_pack(struct cli_args *args) {
    struct sqrl_setting writing[MAX_OPTIONS];
    struct sqrl_settings settings = {writing, 0};
    struct sqrl_pack_options options = {.size = sizeof options, .settings = &settings};
    const char *destination = args->word[args->words - 1];
    options.format = cli_value(args, "format");
    options.overwrite = cli_value(args, "overwrite") != NULL;
    options.append = cli_value(args, "append") != NULL;
    if (!cli_number(args, "samples-per-shard", 0, &options.samples_per_shard) ||
        !size_value(args, "shard-size", &options.shard_bytes) ||
        !size_value(args, "block-size", &options.block_bytes))
        return EXIT_USAGE;
    split_settings(args, writing, &settings.count);
    if (strcmp(destination, "-") == 0)
        return convert_to_output(args);
    return pack_into(args, destination, &options);
}

#define PACK_OPTIONS                                                                     \
    {"format", 'f', "NAME", "of the destination; default from its suffix, else sqrl"},   \
        {"samples-per-shard", 0, "N", "begin a new shard after N samples"},              \
        {"shard-size", 0, "SIZE",                                                        \
         "begin a new shard after that much payload (256 MiB)"},                         \
        {"block-size", 0, "SIZE", "payload of a block (1 MiB)"},                         \
        {"append", 'a', NULL, "add to a data set that is there"}, {                      \
        "overwrite", 0, NULL, "replace what is there"                                    \
    }

static const struct cli_option pack_options[] = {PACK_OPTIONS, CLI_PLAN_OPTIONS, {0}};

const struct cli_command cli_pack = {"pack",
                                     "SOURCE... DESTINATION",
                                     "write samples into native shards; - reads JSON "
                                     "lines or MessagePack from standard input",
                                     pack_options,
                                     2,
                                     MAX_WORDS,
                                     CLI_READS | CLI_WRITES,
                                     run_pack};

const struct cli_command cli_convert = {"convert",
                                        "SOURCE... DESTINATION",
                                        "write samples in another format (by the suffix "
                                        "or --format); - is standard input or output",
                                        pack_options,
                                        2,
                                        MAX_WORDS,
                                        CLI_READS | CLI_WRITES,
                                        run_pack};
