/* index: a new commit of a native directory's shards, where it and its commits disagree;
 * for files of other formats an index beside each. */
#include "cli.h"

static int run_index(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_pack_report report;
    struct sqrl_setting room[MAX_OPTIONS];
    const struct sqrl_settings settings = cli_settings(args, args->word[0], room);
    bool all = cli_value(args, "all") != NULL;
    if (sqrl_index(args->context, args->word[0], &settings, all, &report, &err))
        return cli_fail(args, &err);
    if (args->json) {
        struct sqrl_bytes line = {0};
        cli_put_map(&line, 4);
        cli_put_number(&line, "shards", report.shards);
        cli_put_number(&line, "blocks", report.blocks);
        cli_put_number(&line, "samples", report.samples);
        cli_put_number(&line, "file_bytes", report.file_bytes);
        cli_print_json(&line, stdout);
        sqrl_bytes_reset(&line);
    } else {
        char size[32], text[2][48];
        printf("%s: %s in %s, %s\n", args->word[0],
               cli_count_text(report.samples, "sample", text[0]),
               cli_count_text(report.shards, "shard", text[1]),
               cli_size_text(report.file_bytes, size));
    }
    return EXIT_DONE;
}

static const struct cli_option index_options[] = {
    {"all", 0, NULL,
     "native: all shards in the directory, not only those that commits name"},
    {0}};

const struct cli_command cli_index = {
    "index",
    "URL",
    "count samples and note where they lie; a native directory: commit its shards anew",
    index_options,
    1,
    1,
    CLI_FILES,
    run_index};
