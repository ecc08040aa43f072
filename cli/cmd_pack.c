/* pack and convert: samples from anywhere into shards, or into one file of any format. */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GROUP_FIELDS = 1024 };

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

int cli_pack_sample(struct sqrl_packer *packer, const struct sqrl_projection *projection,
                    const struct sqrl_block *block, uint32_t index,
                    struct sqrl_error *err) {
    return projection ? put_projected(packer, projection, block, index, err)
                      : sqrl_packer_append_sample(packer, block, index, err);
}

static int pack_sample(void *arg, const struct sqrl_projection *projection,
                       const struct sqrl_block *block, uint32_t index,
                       struct sqrl_error *err) {
    struct job *job = arg;
    if (!block)
        return SQRL_OK;
    int code = cli_pack_sample(job->packer, projection, block, index, err);
    if ((++job->done & 1023) == 0) {
        struct sqrl_pack_report report;
        sqrl_packer_progress(job->packer, &report);
        cli_progress_show(&job->progress, job->done, report.raw_bytes);
        if (cli_interrupted())
            return sqrl_error_set(err, SQRL_E_CANCELLED, "interrupted");
    }
    return code;
}

/* Opens all sources before anything is written. */
static int open_inputs(const struct cli_args *args, struct cli_input *inputs,
                       struct sqrl_error *err) {
    int code = SQRL_OK;
    for (size_t i = 0; i + 1 < args->words && code == SQRL_OK; i++)
        code = cli_input_open(args, args->word[i], &inputs[i], err);
    return code;
}

/* How many samples the inputs have, where all know; for the progress bar. */
static uint64_t expected_samples(const struct cli_input *inputs, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t samples = SQRL_UNKNOWN;
        if (!inputs[i].plan ||
            sqrl_plan_count(inputs[i].plan, &samples, NULL) != SQRL_OK ||
            samples == SQRL_UNKNOWN)
            return SQRL_UNKNOWN;
        total += samples;
    }
    return total;
}

static bool declares(const struct sqrl_option *options, const char *name) {
    for (; options && options->name; options++)
        if (strcmp(options->name, name) == 0)
            return true;
    return false;
}

void cli_split_settings(struct cli_args *args, const char *destination,
                        struct sqrl_setting writing[MAX_OPTIONS], size_t *count) {
    const struct sqrl_fs_ops *fs = sqrl_fs_ops_for_url(args->context, destination);
    size_t kept = 0;
    *count = 0;
    for (size_t i = 0; i < args->setting_count; i++) {
        bool writes = false;
        for (size_t k = 0; sqrl_format_at(k); k++)
            writes = writes ||
                     declares(sqrl_format_at(k)->write_options, args->settings[i].name);
        bool files = fs && declares(fs->options, args->settings[i].name);
        if (writes || files)
            writing[(*count)++] = args->settings[i];
        if (!writes)
            args->settings[kept++] = args->settings[i];
    }
    args->setting_count = kept;
}

static void print_report(const struct cli_args *args,
                         const struct sqrl_pack_report *report, const char *destination,
                         double seconds) {
    struct sqrl_bytes out = {0};
    char raw[32], file[32], samples[48], shards[48];
    if (args->json) {
        cli_put_map(&out, 6);
        cli_put_text(&out, "destination", destination);
        cli_put_number(&out, "samples", report->samples);
        cli_put_number(&out, "shards", report->shards);
        cli_put_number(&out, "raw_bytes", report->raw_bytes);
        cli_put_number(&out, "file_bytes", report->file_bytes);
        cli_put_real(&out, "seconds", seconds);
        cli_print_json(&out, stdout);
        sqrl_bytes_reset(&out);
        return;
    }
    fprintf(stderr, "%s: %s in %s, %s (%s of samples), %.1f s\n", destination,
            cli_count_text(report->samples, "sample", samples),
            cli_count_text(report->shards, "shard", shards),
            cli_size_text(report->file_bytes, file),
            cli_size_text(report->raw_bytes, raw), seconds);
}

/* Reads all inputs into the packer, and ends it: commits, or removes what was written. */
static int copy_inputs(struct cli_args *args, struct cli_input *inputs, struct job *job,
                       struct sqrl_pack_report *report, struct sqrl_error *err) {
    size_t count = args->words - 1;
    int code = SQRL_OK;
    cli_progress_start(&job->progress, args, args->command->name,
                       expected_samples(inputs, count));
    for (size_t i = 0; i < count && code == SQRL_OK; i++)
        code = cli_input_each(args, &inputs[i], pack_sample, job, err);
    if (code == SQRL_OK && cli_interrupted())
        code = cli_cancelled(err);
    if (code)
        sqrl_packer_abandon(job->packer);
    else
        code = sqrl_packer_finish(job->packer, report, err);
    if (code == SQRL_OK)
        cli_committed();
    cli_progress_end(&job->progress);
    return code;
}

static int pack_into(struct cli_args *args, const char *destination,
                     struct sqrl_pack_options *options) {
    struct sqrl_error err = {0};
    struct sqrl_pack_report report = {0};
    struct job job = {0};
    uint64_t start = cli_now_ns();
    struct cli_input *inputs = calloc(args->words, sizeof *inputs);
    int code = inputs ? open_inputs(args, inputs, &err)
                      : sqrl_error_set(&err, SQRL_E_NO_MEMORY, "out of memory");
    /* A reader of messages that goes away must not end the work halfway. */
    signal(SIGPIPE, SIG_IGN);
    if (code == SQRL_OK)
        code = sqrl_packer_open(args->context, destination, options, &job.packer, &err);
    if (code == SQRL_OK)
        code = copy_inputs(args, inputs, &job, &report, &err);
    for (size_t i = 0; inputs && i + 1 < args->words; i++)
        cli_input_close(&inputs[i]);
    free(inputs);
    if (code)
        return cli_fail(args, &err);
    print_report(args, &report, destination, (double)(cli_now_ns() - start) / 1e9);
    return EXIT_DONE;
}

/* X -: JSON lines to standard output. */
static int convert_to_output(struct cli_args *args) {
    args->words--;
    return cli_cat.run(args);
}

/* "images=image;labels=label,patient": cut apart in `text`. */
struct groups {
    struct sqrl_pack_group item[MAX_OPTIONS];
    const char *field[MAX_GROUP_FIELDS];
    size_t count, fields;
};

static int bad_groups(const char *text, struct sqrl_error *err) {
    return sqrl_error_set(
        err, SQRL_E_INVALID,
        "--groups takes \"images=image;labels=label,patient\": names of "
        "groups and their fields, at most %d and %d; not \"%.80s\"",
        MAX_OPTIONS, MAX_GROUP_FIELDS, text);
}

static int read_groups(const char *given, char *text, struct groups *out,
                       struct sqrl_error *err) {
    out->count = out->fields = 0;
    for (char *at = text, *next; at; at = next) {
        next = strchr(at, ';');
        if (next)
            *next++ = 0;
        char *fields = strchr(at, '=');
        if (!fields || out->count == MAX_OPTIONS)
            return bad_groups(given, err);
        *fields++ = 0;
        struct sqrl_pack_group *group = &out->item[out->count++];
        *group = (struct sqrl_pack_group){.name = at, .fields = out->field + out->fields};
        for (char *comma; fields; fields = comma) {
            if (out->fields == MAX_GROUP_FIELDS)
                return bad_groups(given, err);
            comma = strchr(fields, ',');
            if (comma)
                *comma++ = 0;
            out->field[out->fields++] = fields;
            group->field_count++;
        }
    }
    return SQRL_OK;
}

static int run_pack(struct cli_args *args) {
    static struct groups groups;
    struct sqrl_setting writing[MAX_OPTIONS];
    struct sqrl_settings settings = {writing, 0};
    struct sqrl_pack_options options = {.size = sizeof options, .settings = &settings};
    struct sqrl_error err = {0};
    const char *destination = args->word[args->words - 1];
    options.format = cli_value(args, "format");
    options.overwrite = cli_value(args, "overwrite") != NULL;
    options.append = cli_value(args, "append") != NULL;
    int code = cli_number(args, "samples-per-shard", 0, &options.samples_per_shard, &err);
    if (code == SQRL_OK)
        code = cli_size(args, "shard-size", &options.shard_bytes, &err);
    if (code == SQRL_OK)
        code = cli_size(args, "block-size", &options.block_bytes, &err);
    const char *given = cli_value(args, "groups");
    char *text = given ? strdup(given) : NULL; /* lives as long as the process */
    if (code == SQRL_OK && text)
        code = read_groups(given, text, &groups, &err);
    options.groups = groups.item;
    options.group_count = groups.count;
    if (code)
        return cli_fail(args, &err);
    cli_split_settings(args, destination, writing, &settings.count);
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
        {"append", 'a', NULL, "add to a data set that is there"},                        \
        {"groups", 0, "G=F,F;G=F",                                                       \
         "keep these fields in shards of their own: 'images=image;labels=label'"},       \
    {                                                                                    \
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
