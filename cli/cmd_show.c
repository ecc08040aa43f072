/* head, cat, ls, info: looking at data. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* --- head and cat --- */

/* Lines go out in large pieces, or when standard input makes wait. */
struct printer {
    struct sqrl_bytes lines;
    const struct cli_input *input; /* says which URL */
};

static int flush_lines(struct printer *printer, struct sqrl_error *err) {
    size_t size = printer->lines.size;
    printer->lines.size = 0;
    return cli_write(printer->lines.data, size, err);
}

static int print_sample(void *arg, const struct sqrl_projection *projection,
                        const struct sqrl_block *block, uint32_t index,
                        struct sqrl_error *err) {
    enum { FLUSH_BYTES = 64 << 10 };
    struct printer *printer = arg;
    if (!block)
        return flush_lines(printer, err);
    size_t before = printer->lines.size;
    int code = cli_sample_json(projection, block, index, &printer->lines, err);
    if (code) {
        printer->lines.size = before;
        struct sqrl_place place = sqrl_block_place(block, index);
        if (place.sample != SQRL_UNKNOWN)
            sqrl_error_at(err, code, "sample %llu", (unsigned long long)place.sample);
        const char *url = printer->input->url;
        return strcmp(url, "-") == 0 ? code : sqrl_error_at(err, code, "%s", url);
    }
    code = sqrl_bytes_append(&printer->lines, "\n", 1, err);
    if (code == SQRL_OK && printer->lines.size >= FLUSH_BYTES)
        code = flush_lines(printer, err);
    return code;
}

/* What was good before a fault is printed before the error. */
static int print_samples(struct cli_args *args) {
    struct printer printer = {0};
    struct sqrl_error err = {0};
    int code = SQRL_OK;
    bool mixed = cli_value(args, "mix");
    if ((cli_value(args, "state") || cli_value(args, "from")) && args->words > 1 &&
        !mixed) {
        code = sqrl_error_set(&err, SQRL_E_INVALID,
                              "--state and --from go with one URL, or with --mix");
        return cli_fail(args, &err);
    }
    for (size_t i = 0; i < (mixed ? 1 : args->words) && code == SQRL_OK; i++) {
        struct cli_input input = {0};
        printer.input = &input;
        if (!mixed)
            code = cli_input_open(args, args->word[i], &input, &err);
        if (code == SQRL_OK)
            code = mixed ? cli_mix_each(args, &input, print_sample, &printer, &err)
                         : cli_input_each(args, &input, print_sample, &printer, &err);
        if (input.state) { /* only what went out counts as given */
            int saved = flush_lines(&printer, code ? NULL : &err);
            if (saved == SQRL_OK)
                saved = cli_input_save(args, &input, code ? NULL : &err);
            code = code ? code : saved;
        }
        cli_input_close(&input);
    }
    if (!cli_interrupted()) {
        int flushed = flush_lines(&printer, code ? NULL : &err);
        code = code ? code : flushed;
    }
    sqrl_bytes_reset(&printer.lines);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static const struct cli_option head_options[] = {
    CLI_PLAN_OPTIONS, CLI_ORDER_OPTIONS, {0}};
static const struct cli_option cat_options[] = {
    CLI_PLAN_OPTIONS,
    CLI_ORDER_OPTIONS,
    {"state", 0, "FILE", "goes on where FILE says, and writes there how far it came"},
    {"from", 0, "FILES",
     "begins where these states stand: of all ranks, separated by commas"},
    {"mix", 0, "WEIGHTS", "all URLs mixed in these proportions: 0.8,0.2"},
    {"mix-seed", 0, "SEED", "of --mix: another order of it"},
    {"quota", 0, "N", "of --mix: each N samples hold exactly as many of each URL"},
    {"stop", 0, "WHEN", "of --mix: first, all (came to their end once) or forever"},
    {0}};

static int run_head(struct cli_args *args) {
    if (!cli_value(args, "take")) {
        static const struct cli_option take = {"take", 'n', "N", ""};
        args->given[args->given_count] = &take;
        args->value[args->given_count++] = "10";
    }
    return print_samples(args);
}

const struct cli_command cli_head = {
    "head",       "URL...", "print the first samples (10, or -n N) as JSON lines",
    head_options, 1,        MAX_WORDS,
    CLI_READS,    run_head};

const struct cli_command cli_cat = {"cat",
                                    "URL...",
                                    "print samples as JSON lines; - reads standard input",
                                    cat_options,
                                    1,
                                    MAX_WORDS,
                                    CLI_READS,
                                    print_samples};

/* --- ls --- */

/* `group`: NULL where samples are kept whole. */
static void list_shard(const struct cli_args *args, const struct sqrl_shard *shard,
                       const char *group, struct sqrl_bytes *report) {
    char size[32];
    cli_put_map(report, group ? 5 : 4);
    cli_put_text(report, "path", shard->path);
    cli_put_text(report, "format", shard->format->name);
    cli_put_number(report, "bytes", shard->file_bytes);
    cli_put_number(report, "samples", shard->samples);
    if (group)
        cli_put_text(report, "group", group);
    if (args->json)
        return;
    if (shard->samples == SQRL_UNKNOWN)
        printf("%10s", "?");
    else
        printf("%10llu", (unsigned long long)shard->samples);
    printf("  %10s  %s%s%s%s\n", cli_size_text(shard->file_bytes, size), shard->path,
           group && *group ? " (" : "", group ? group : "", group && *group ? ")" : "");
}

static uint64_t count_files(const struct sqrl_source *source) {
    uint64_t count = sqrl_source_shards(source);
    for (uint32_t g = 1; g < sqrl_source_groups(source); g++) {
        struct sqrl_source_group group;
        sqrl_source_group(source, g, &group);
        count += group.shards;
    }
    return count;
}

static void list_shards(const struct cli_args *args, struct sqrl_source *source) {
    uint64_t count = sqrl_source_shards(source);
    uint32_t groups = sqrl_source_groups(source);
    struct sqrl_bytes report = {0};
    cli_put_array(&report, count_files(source));
    for (uint64_t i = 0; i < count; i++) {
        if (!groups)
            list_shard(args, sqrl_source_shard(source, i), NULL, &report);
        for (uint32_t g = 0; g < groups; g++) {
            struct sqrl_source_group group;
            const struct sqrl_shard *shard = sqrl_source_group_shard(source, g, i);
            sqrl_source_group(source, g, &group);
            if (shard)
                list_shard(args, shard, group.name, &report);
        }
    }
    if (args->json)
        cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static bool has_suffix(const char *text, const char *suffix) {
    size_t size = strlen(text), tail = strlen(suffix);
    return size >= tail && strcmp(text + size - tail, suffix) == 0;
}

static int run_ls(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog = NULL;
    struct sqrl_source *source = NULL;
    const char *url = args->word[0];
    int code;
    if (has_suffix(url, ".yaml") || has_suffix(url, ".yml")) {
        code = sqrl_catalog_new(&catalog, &err);
        if (code == SQRL_OK)
            code = sqrl_catalog_read_file(catalog, args->context, url, &err);
        if (code == SQRL_OK)
            cli_list_catalog(args, catalog);
        sqrl_catalog_free(catalog);
    } else {
        code = cli_open(args, url, &source, &err);
        if (code == SQRL_OK) {
            sqrl_source_samples(source); /* opens footers, so that counts are known */
            list_shards(args, source);
        }
        sqrl_source_unref(source);
    }
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static const struct cli_option no_options[] = {{0}};

const struct cli_command cli_ls = {
    "ls",       "URL", "list shards with samples and bytes, or a catalog's sources",
    no_options, 1,     1,
    CLI_READS,  run_ls};

/* --- info --- */

static uint64_t file_bytes_of(const struct sqrl_source *source) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < sqrl_source_shards(source); i++)
        bytes += sqrl_source_shard(source, i)->file_bytes;
    for (uint32_t g = 1; g < sqrl_source_groups(source); g++) {
        struct sqrl_source_group group;
        sqrl_source_group(source, g, &group);
        bytes += group.file_bytes;
    }
    return bytes;
}

static uint64_t raw_bytes_of(const struct sqrl_source *source) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < sqrl_source_shards(source); i++) {
        uint64_t raw = sqrl_source_shard(source, i)->raw_bytes;
        if (raw == SQRL_UNKNOWN)
            return SQRL_UNKNOWN;
        bytes += raw;
    }
    return bytes;
}

static int observe_sample(void *arg, const struct sqrl_projection *projection,
                          const struct sqrl_block *block, uint32_t index,
                          struct sqrl_error *err) {
    struct sqrl_block one = *block;
    one.begin = block->begin + index;
    one.count = 1;
    return sqrl_schema_observe(arg, &one, err);
}

/* The source's schema; where only reading tells, that of the first samples. */
static int schema_of(const struct cli_args *args, struct sqrl_source *source,
                     struct sqrl_schema *schema, bool *sampled, struct sqrl_error *err) {
    enum { SAMPLES = 1000 };
    const struct sqrl_schema *known = NULL;
    struct sqrl_plan *all = NULL, *some = NULL;
    struct sqrl_iterator *iterator = NULL;
    struct sqrl_run *run = NULL;
    int code = sqrl_source_schema(source, &known, err);
    *sampled = !known;
    if (code || known)
        return code ? code : sqrl_schema_copy(known, schema, err);
    code = sqrl_plan_source(source, &all, err);
    if (code == SQRL_OK)
        code = sqrl_plan_take(all, SAMPLES, &some, err);
    if (code == SQRL_OK)
        code = sqrl_iterator_open(some, &iterator, err);
    while (code == SQRL_OK) {
        code = sqrl_iterator_next_run(iterator, &run, err);
        if (code || !run)
            break;
        for (uint32_t i = 0; i < run->count && code == SQRL_OK; i++)
            code = observe_sample(schema, NULL, run->samples[i].block,
                                  run->samples[i].index, err);
        sqrl_run_release(run);
    }
    sqrl_iterator_close(iterator);
    sqrl_plan_unref(some);
    sqrl_plan_unref(all);
    return code;
}

static void print_group(const struct sqrl_source *source, uint32_t number) {
    struct sqrl_source_group group;
    char size[32], shards[48];
    uint64_t all = sqrl_source_shards(source);
    sqrl_source_group(source, number, &group);
    printf("group    %-16s %s, %s", *group.name ? group.name : "(base)",
           cli_count_text(group.shards, "shard", shards),
           cli_size_text(group.file_bytes, size));
    if (group.shards < all)
        printf(", missing in %llu", (unsigned long long)(all - group.shards));
    printf("%s", group.field_count ? ": " : "");
    for (uint32_t i = 0; i < group.field_count; i++)
        printf("%s%s", i ? ", " : "", group.fields[i]);
    printf("\n");
}

static void put_groups(struct sqrl_bytes *report, const struct sqrl_source *source) {
    uint32_t count = sqrl_source_groups(source);
    cli_put_key(report, "groups");
    cli_put_array(report, count);
    for (uint32_t i = 0; i < count; i++) {
        struct sqrl_source_group group;
        sqrl_source_group(source, i, &group);
        cli_put_map(report, 6);
        cli_put_text(report, "name", group.name);
        cli_put_text(report, "kind",
                     group.base    ? "base"
                     : group.added ? "added"
                                   : "packed");
        cli_put_number(report, "shards", group.shards);
        cli_put_number(report, "samples", group.samples);
        cli_put_number(report, "file_bytes", group.file_bytes);
        cli_put_key(report, "fields");
        cli_put_array(report, group.field_count);
        for (uint32_t f = 0; f < group.field_count; f++)
            cli_put_text(report, NULL, group.fields[f]);
    }
}

static void print_info(struct sqrl_source *source, const struct sqrl_schema *schema,
                       bool sampled) {
    char text[128], size[32];
    uint64_t samples = sqrl_source_samples(source), raw = raw_bytes_of(source);
    printf("url      %s\ndriver   %s\nshards   %llu\n", sqrl_source_url(source),
           sqrl_source_driver(source), (unsigned long long)sqrl_source_shards(source));
    if (samples == SQRL_UNKNOWN)
        printf("samples  known after reading\n");
    else
        printf("samples  %llu\n", (unsigned long long)samples);
    printf("files    %s\n", cli_size_text(file_bytes_of(source), size));
    if (raw != SQRL_UNKNOWN)
        printf("payload  %s\n", cli_size_text(raw, size));
    for (uint32_t i = 0; i < sqrl_source_groups(source); i++)
        print_group(source, i);
    printf("fields%s\n", sampled ? " (of the first samples)" : "");
    for (uint32_t i = 0; i < schema->count; i++) {
        sqrl_field_type_text(&schema->fields[i], text, sizeof text);
        printf("  %-24s %s\n", schema->fields[i].name, text);
    }
}

static void print_info_json(struct sqrl_source *source, const struct sqrl_schema *schema,
                            bool sampled) {
    struct sqrl_bytes report = {0};
    char text[128];
    cli_put_map(&report, sqrl_source_groups(source) ? 9 : 8);
    cli_put_text(&report, "url", sqrl_source_url(source));
    cli_put_text(&report, "driver", sqrl_source_driver(source));
    cli_put_number(&report, "shards", sqrl_source_shards(source));
    cli_put_number(&report, "samples", sqrl_source_samples(source));
    cli_put_number(&report, "file_bytes", file_bytes_of(source));
    cli_put_number(&report, "raw_bytes", raw_bytes_of(source));
    cli_put_text(&report, "fields_from", sampled ? "first samples" : "schema");
    cli_put_key(&report, "fields");
    cli_put_map(&report, schema->count);
    for (uint32_t i = 0; i < schema->count; i++) {
        sqrl_field_type_text(&schema->fields[i], text, sizeof text);
        cli_put_text(&report, schema->fields[i].name, text);
    }
    if (sqrl_source_groups(source))
        put_groups(&report, source);
    cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static int run_info(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_source *source = NULL;
    struct sqrl_schema schema = {0};
    bool sampled = false;
    int code = cli_open(args, args->word[0], &source, &err);
    if (code == SQRL_OK)
        code = schema_of(args, source, &schema, &sampled, &err);
    if (code == SQRL_OK)
        (args->json ? print_info_json : print_info)(source, &schema, sampled);
    sqrl_schema_reset(&schema);
    sqrl_source_unref(source);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

const struct cli_command cli_info = {
    "info",     "URL",   "what a source is: driver, shards, samples, bytes, fields",
    no_options, 1,       1,
    CLI_READS,  run_info};
