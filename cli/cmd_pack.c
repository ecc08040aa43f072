/* pack and convert: samples from anywhere into shards, or into one file of any format. */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_GROUP_FIELDS = 1024 };

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

/* What tells a source from others, and from itself once it was changed: local files by
 * the time of that, far ones by names and sizes. */
static void hash_source(struct sqrl_xxh3_state *hash, const struct sqrl_source *source) {
    uint64_t number = sqrl_source_fingerprint(source);
    struct stat file;
    sqrl_xxh3_update(hash, &number, sizeof number);
    if (!sqrl_source_local(source))
        return;
    for (uint64_t i = 0; i < sqrl_source_shards(source); i++) {
        memset(&file, 0, sizeof file);
        if (stat(sqrl_source_shard(source, i)->path, &file) == 0)
            sqrl_xxh3_update(hash, &file.st_mtim, sizeof file.st_mtim);
    }
}

/* Of formats and drivers. How a store is reached makes no other samples, and its secrets
 * have no place in a name. */
static void hash_settings(struct sqrl_xxh3_state *hash, const struct cli_args *args,
                          const struct sqrl_setting *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (cli_is_of_files(args, items[i].name))
            continue;
        sqrl_xxh3_update(hash, items[i].name, strlen(items[i].name) + 1);
        sqrl_xxh3_update(hash, items[i].value, strlen(items[i].value) + 1);
    }
    sqrl_xxh3_update(hash, "", 1);
}

/* A prefix that only a pack of the same samples into the same shards has: of what the
 * command was told, and of the sources as they are. */
static int own_prefix(const struct cli_args *args, const struct cli_input *inputs,
                      const struct sqrl_pack_options *options, char prefix[24],
                      struct sqrl_error *err) {
    static const char *const told[] = {
        "samples-per-shard", "shard-size", "block-size", "where", "select", "drop",
        "shuffle",           "skip",       "take"};
    struct sqrl_xxh3_state hash;
    sqrl_xxh3_init(&hash);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        const char *value = cli_value(args, told[i]);
        if (value)
            sqrl_xxh3_update(&hash, value, strlen(value));
        sqrl_xxh3_update(&hash, "", 1);
    }
    hash_settings(&hash, args, options->settings->items, options->settings->count);
    hash_settings(&hash, args, args->settings, args->setting_count);
    for (size_t i = 0; i + 1 < args->words; i++) {
        if (!inputs[i].plan)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "--resume reads its sources again, which standard "
                                  "input can't be; write it to a file first");
        hash_source(&hash, sqrl_plan_get_source(inputs[i].plan));
    }
    snprintf(prefix, 24, "r%016llx", (unsigned long long)sqrl_xxh3_digest(&hash));
    return SQRL_OK;
}

static int pack_into(struct cli_args *args, const char *destination,
                     struct sqrl_pack_options *options) {
    struct sqrl_error err = {0};
    struct sqrl_pack_report report = {0};
    struct sqrl_packer *packer = NULL;
    char prefix[24];
    uint64_t start = cli_now_ns();
    struct cli_input *inputs = calloc(args->words, sizeof *inputs);
    int code = inputs ? open_inputs(args, inputs, &err)
                      : sqrl_error_set(&err, SQRL_E_NO_MEMORY, "out of memory");
    /* A reader of messages that goes away must not end the work halfway. */
    signal(SIGPIPE, SIG_IGN);
    if (code == SQRL_OK && options->resume) {
        code = own_prefix(args, inputs, options, prefix, &err);
        options->prefix = prefix;
    }
    if (code == SQRL_OK)
        code = sqrl_packer_open(args->context, destination, options, &packer, &err);
    if (code == SQRL_OK)
        code = cli_pack_inputs(args, inputs, args->words - 1, packer,
                               expected_samples(inputs, args->words - 1), &report, &err);
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
    options.resume = cli_value(args, "resume") != NULL;
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
        {"resume", 0, NULL,                                                              \
         "go on behind the shards that the same command left when it was killed"},       \
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
