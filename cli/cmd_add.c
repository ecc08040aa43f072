/* add-fields: fields that were computed later, beside the samples that are there. */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static uint64_t expected(const struct sqrl_packer *packer) {
    uint64_t first, count, total = 0;
    for (size_t i = 0; sqrl_packer_run(packer, i, &first, &count); i++)
        total += count;
    return total;
}

static void print_report(const struct cli_args *args, const char *group,
                         const struct sqrl_pack_report *report) {
    struct sqrl_bytes out = {0};
    char size[32], samples[48], shards[48];
    if (args->json) {
        cli_put_map(&out, 5);
        cli_put_text(&out, "destination", args->word[0]);
        cli_put_text(&out, "group", group);
        cli_put_number(&out, "samples", report->samples);
        cli_put_number(&out, "shards", report->shards);
        cli_put_number(&out, "file_bytes", report->file_bytes);
        cli_print_json(&out, stdout);
        sqrl_bytes_reset(&out);
        return;
    }
    fprintf(stderr, "%s: group %s, %s in %s, %s\n", args->word[0], group,
            cli_count_text(report->samples, "sample", samples),
            cli_count_text(report->shards, "shard", shards),
            cli_size_text(report->file_bytes, size));
}

enum { MAX_NAMES = 256 };

/* "a,b" as a list of names, cut apart in `text` (may be NULL). */
static int split_names(char *text, const char **names, size_t *count,
                       struct sqrl_error *err) {
    *count = 0;
    for (char *at = text; at; (*count)++) {
        if (*count == MAX_NAMES)
            return sqrl_error_set(err, SQRL_E_LIMIT,
                                  "--fields takes at most %d names; without it all "
                                  "fields are added",
                                  MAX_NAMES);
        names[*count] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = 0;
    }
    return SQRL_OK;
}

static int run_add(struct cli_args *args) {
    const char *names[MAX_NAMES];
    struct sqrl_setting writing[MAX_OPTIONS];
    struct sqrl_settings settings = {writing, 0};
    struct sqrl_add_options options = {.size = sizeof options, .settings = &settings};
    struct sqrl_pack_report report = {0};
    struct sqrl_error err = {0};
    struct cli_input input = {0};
    struct sqrl_packer *packer = NULL;
    const char *fields = cli_value(args, "fields");
    options.group = cli_value(args, "group");
    options.group = options.group ? options.group : "added";
    options.key = cli_value(args, "by");
    options.missing = cli_value(args, "missing") != NULL;
    char *copy = fields ? strdup(fields) : NULL;
    options.fields = names;
    int code = split_names(copy, names, &options.field_count, &err);
    if (code == SQRL_OK)
        code = cli_size(args, "block-size", &options.block_bytes, &err);
    cli_split_settings(args, args->word[0], writing, &settings.count);
    if (code == SQRL_OK)
        code = cli_input_open(args, args->word[1], &input, &err);
    signal(SIGPIPE, SIG_IGN); /* messages nobody reads must not end the work halfway */
    if (code == SQRL_OK)
        code =
            sqrl_packer_add_fields(args->context, args->word[0], &options, &packer, &err);
    if (code == SQRL_OK)
        code = cli_pack_inputs(args, &input, 1, packer, expected(packer), &report, &err);
    cli_input_close(&input);
    free(copy);
    if (code)
        return cli_fail(args, &err);
    print_report(args, options.group, &report);
    return EXIT_DONE;
}

static const struct cli_option add_options[] = {
    {"group", 'g', "NAME", "a name for the new fields; default: added"},
    {"fields", 0, "A,B", "the new fields; default: all that the samples have"},
    {"by", 0, "FIELD",
     "samples come in any order: FIELD holds the key of the one they belong to"},
    {"missing", 0, NULL, "add the group to the shards that lack it"},
    {"block-size", 0, "SIZE", "payload of a block (1 MiB)"},
    CLI_PLAN_OPTIONS,
    {0}};

const struct cli_command cli_add_fields = {
    "add-fields",
    "DESTINATION SOURCE",
    "add fields to the samples of native shards, one sample of SOURCE for each, in "
    "order; "
    "- reads JSON lines or MessagePack from standard input",
    add_options,
    2,
    2,
    CLI_READS | CLI_WRITES,
    run_add};
