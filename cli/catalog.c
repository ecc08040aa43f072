/* catalog: what catalogs hold, compared, joined, checked, converted; and the user's own.
 */
#include "cli.h"

#include <string.h>

/* --- ls --- */

/* A source's "url" argument; *size is 0 where it has none. */
static const char *url_of(const struct sqrl_catalog_source *source, size_t *size) {
    uint32_t node = sqrl_map_find(source->kwargs, 0, source->bytes, "url", 3);
    bool text = node != SQRL_NO_NODE && source->kwargs[node].type == SQRL_STRING;
    *size = text ? source->kwargs[node].size : 0;
    return text ? (const char *)source->bytes + source->kwargs[node].v.offset : "";
}

void cli_list_catalog(const struct cli_args *args, const struct sqrl_catalog *catalog) {
    size_t count = sqrl_catalog_count(catalog), size;
    struct sqrl_bytes report = {0};
    struct sqrl_catalog_source source;
    cli_put_array(&report, count);
    for (uint64_t cursor = 0; sqrl_catalog_next(catalog, &cursor, &source);) {
        const char *url = url_of(&source, &size);
        cli_put_map(&report, 4);
        cli_put_text(&report, "name", source.name);
        cli_put_number(&report, "version", source.version);
        cli_put_text(&report, "driver", source.driver_name);
        cli_put_part(&report, "url", url, size);
        if (!args->json)
            printf("%s@%llu  %s  %.*s\n", source.name, (unsigned long long)source.version,
                   source.driver_name, (int)size, url);
    }
    if (args->json)
        cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

/* The catalogs in files, joined; without any, the default catalog. */
static int read_all(const struct cli_args *args, const char *const *files, size_t count,
                    enum sqrl_catalog_conflict conflict, struct sqrl_catalog **out,
                    struct sqrl_error *err) {
    int code = count ? sqrl_catalog_new(out, err)
                     : sqrl_catalog_default(args->context, out, err);
    for (size_t i = 0; i < count && code == SQRL_OK; i++) {
        struct sqrl_catalog *read = NULL, *joined = NULL;
        code = sqrl_catalog_new(&read, err);
        if (code == SQRL_OK)
            code = sqrl_catalog_read_file(read, args->context, files[i], err);
        if (code == SQRL_OK && (code = sqrl_catalog_union(*out, read, conflict, &joined,
                                                          err)) == SQRL_E_EXISTS)
            sqrl_error_at(err, code, "%s and those before it", files[i]);
        sqrl_catalog_free(read);
        if (code == SQRL_OK) {
            sqrl_catalog_free(*out);
            *out = joined;
        }
    }
    if (code) {
        sqrl_catalog_free(*out);
        *out = NULL;
    }
    return code;
}

static int run_list(struct cli_args *args, const char *const *words, size_t count) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog = NULL;
    if (read_all(args, words, count, SQRL_CONFLICT_ERROR, &catalog, &err) != SQRL_OK)
        return cli_fail(args, &err);
    cli_list_catalog(args, catalog);
    sqrl_catalog_free(catalog);
    return EXIT_DONE;
}

/* --- show, convert: a catalog as text --- */

static int print_catalog(const struct cli_args *args, const struct sqrl_catalog *catalog,
                         struct sqrl_error *err) {
    struct sqrl_bytes text = {0};
    int code = sqrl_catalog_write(
        catalog, args->json ? SQRL_CATALOG_JSON : SQRL_CATALOG_YAML, &text, err);
    if (code == SQRL_OK)
        code = cli_write(text.data, text.size, err);
    sqrl_bytes_reset(&text);
    return code;
}

/* A catalog with one version of one source. */
static int copy_source(const struct sqrl_catalog_source *source,
                       struct sqrl_catalog **out, struct sqrl_error *err) {
    int code = sqrl_catalog_new(out, err);
    if (code == SQRL_OK)
        code = sqrl_catalog_add(*out, source->name, source->version, source->driver_name,
                                source->bytes, source->kwargs_size,
                                source->bytes + source->kwargs_size,
                                source->metadata_size, err);
    return code;
}

static int run_show(struct cli_args *args, const char *const *words, size_t count) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog = NULL, *one = NULL;
    struct sqrl_catalog_source source;
    int code;
    if (strchr(words[0], '#')) {
        code = sqrl_catalog_refer(args->context, words[0], &catalog, &source, &err);
        if (code == SQRL_OK)
            code = copy_source(&source, &one, &err);
    } else {
        code = read_all(args, words, 1, SQRL_CONFLICT_ERROR, &one, &err);
    }
    if (code == SQRL_OK)
        code = print_catalog(args, one, &err);
    sqrl_catalog_free(one);
    sqrl_catalog_free(catalog);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

/* Writes a file; one that is there needs --overwrite. */
static int write_catalog(const struct cli_args *args, const struct sqrl_catalog *catalog,
                         const char *file, struct sqrl_error *err) {
    bool replace = cli_value(args, "overwrite") != NULL;
    if (strcmp(file, "-") == 0)
        return print_catalog(args, catalog, err);
    int code = sqrl_catalog_write_file(catalog, args->context, file, replace, err);
    if (code == SQRL_E_EXISTS)
        code = sqrl_error_set(err, SQRL_E_EXISTS,
                              "%.200s is there already; --overwrite replaces it", file);
    return code;
}

static int write_joined(struct cli_args *args, const char *const *words, size_t count,
                        enum sqrl_catalog_conflict conflict) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog = NULL;
    int code = read_all(args, words, count - 1, conflict, &catalog, &err);
    if (code == SQRL_OK)
        code = write_catalog(args, catalog, words[count - 1], &err);
    sqrl_catalog_free(catalog);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static int run_convert(struct cli_args *args, const char *const *words, size_t count) {
    return write_joined(args, words, count, SQRL_CONFLICT_ERROR);
}

static int run_merge(struct cli_args *args, const char *const *words, size_t count) {
    static const char *const names[] = {"error", "ours", "theirs"};
    const char *given = cli_value(args, "on-conflict");
    int conflict = SQRL_CONFLICT_ERROR;
    while (given && conflict <= SQRL_CONFLICT_THEIRS &&
           strcmp(given, names[conflict]) != 0)
        conflict++;
    if (conflict > SQRL_CONFLICT_THEIRS)
        return cli_usage(args, "--on-conflict is error, ours or theirs, not '%s'", given);
    return write_joined(args, words, count, (enum sqrl_catalog_conflict)conflict);
}

/* --- diff --- */

/* Which fields differ: "driver_name, metadata". */
static void fields_text(unsigned difference, char *out, size_t size) {
    snprintf(out, size, "%s%s%s", difference & SQRL_DIFFERS_DRIVER ? ", driver_name" : "",
             difference & SQRL_DIFFERS_KWARGS ? ", driver_kwargs" : "",
             difference & SQRL_DIFFERS_METADATA ? ", metadata" : "");
    memmove(out, out + 2, strlen(out + 2) + 1);
}

struct differences {
    const struct cli_args *args;
    struct sqrl_bytes rows;
    size_t count;
};

static void tell_difference(struct differences *d, char sign,
                            const struct sqrl_catalog_source *source,
                            const char *fields) {
    static const char *const words[] = {
        ['+'] = "added", ['-'] = "removed", ['!'] = "changed"};
    d->count++;
    if (!d->args->json) {
        printf("%c %s@%llu%s%s\n", sign, source->name,
               (unsigned long long)source->version, fields ? "  " : "",
               fields ? fields : "");
        return;
    }
    cli_put_map(&d->rows, 4);
    cli_put_text(&d->rows, "name", source->name);
    cli_put_number(&d->rows, "version", source->version);
    cli_put_text(&d->rows, "change", words[(int)sign]);
    cli_put_text(&d->rows, "fields", fields);
}

/* What `a` has and `b` has not; with `changed` also what differs. */
static void compare(struct differences *d, const struct sqrl_catalog *a,
                    const struct sqrl_catalog *b, char sign, bool changed) {
    struct sqrl_catalog_source x, y;
    char fields[64];
    for (uint64_t cursor = 0; sqrl_catalog_next(a, &cursor, &x);) {
        if (sqrl_catalog_find(b, x.name, (int64_t)x.version, &y, NULL) != SQRL_OK) {
            tell_difference(d, sign, &x, NULL);
        } else if (changed && sqrl_catalog_source_differs(&x, &y)) {
            fields_text(sqrl_catalog_source_differs(&x, &y), fields, sizeof fields);
            tell_difference(d, '!', &x, fields);
        }
    }
}

static int run_diff(struct cli_args *args, const char *const *words, size_t count) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *a = NULL, *b = NULL;
    struct differences d = {.args = args};
    int code = read_all(args, words, 1, SQRL_CONFLICT_ERROR, &a, &err);
    if (code == SQRL_OK)
        code = read_all(args, words + 1, 1, SQRL_CONFLICT_ERROR, &b, &err);
    if (code == SQRL_OK) {
        compare(&d, a, b, '-', true);
        compare(&d, b, a, '+', false);
        if (args->json) {
            struct sqrl_bytes report = {0};
            cli_put_array(&report, d.count);
            if (sqrl_bytes_append(&report, d.rows.data, d.rows.size, &err) == SQRL_OK)
                cli_print_json(&report, stdout);
            sqrl_bytes_reset(&report);
        }
    }
    sqrl_bytes_reset(&d.rows);
    sqrl_catalog_free(a);
    sqrl_catalog_free(b);
    return code ? cli_fail(args, &err) : d.count ? EXIT_FAILED : EXIT_DONE;
}

/* --- validate --- */

static int check_source(const struct cli_args *args,
                        const struct sqrl_catalog_source *source,
                        struct sqrl_error *err) {
    if (!cli_value(args, "open"))
        return sqrl_catalog_source_check(args->context, source, err);
    struct sqrl_source *opened = NULL;
    int code = sqrl_catalog_source_open(args->context, source, NULL, &opened, err);
    sqrl_source_unref(opened);
    return code;
}

struct findings {
    size_t good, unchecked, bad;
    struct sqrl_bytes rows;
};

static void check_catalog(const struct cli_args *args, const char *file,
                          const struct sqrl_catalog *catalog, struct findings *found) {
    struct sqrl_catalog_source source;
    char text[1024];
    for (uint64_t cursor = 0;
         !cli_interrupted() && sqrl_catalog_next(catalog, &cursor, &source);) {
        struct sqrl_error err = {0};
        int code = check_source(args, &source, &err);
        bool unchecked = code == SQRL_E_UNSUPPORTED;
        *(code == SQRL_OK ? &found->good
          : unchecked     ? &found->unchecked
                          : &found->bad) += 1;
        if (code == SQRL_OK)
            continue;
        sqrl_error_text(&err, text, sizeof text);
        if (!args->json) {
            printf("%s: %s@%llu: %s: %s\n", file, source.name,
                   (unsigned long long)source.version,
                   unchecked ? "not checked" : "wrong", text);
            continue;
        }
        cli_put_map(&found->rows, 5);
        cli_put_text(&found->rows, "file", file);
        cli_put_text(&found->rows, "name", source.name);
        cli_put_number(&found->rows, "version", source.version);
        cli_put_text(&found->rows, "finding", unchecked ? "not checked" : "wrong");
        cli_put_text(&found->rows, "message", text);
    }
}

static void print_findings(const struct cli_args *args, const struct findings *found) {
    struct sqrl_bytes report = {0};
    if (!args->json) {
        printf("%zu good, %zu not checked, %zu wrong\n", found->good, found->unchecked,
               found->bad);
        return;
    }
    cli_put_map(&report, 4);
    cli_put_number(&report, "good", found->good);
    cli_put_number(&report, "not_checked", found->unchecked);
    cli_put_number(&report, "wrong", found->bad);
    cli_put_key(&report, "findings");
    cli_put_array(&report, found->unchecked + found->bad);
    if (sqrl_bytes_append(&report, found->rows.data, found->rows.size, NULL) == SQRL_OK)
        cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

/* A file that is no catalog ends it; sources are all looked at. */
static int run_validate(struct cli_args *args, const char *const *words, size_t count) {
    struct sqrl_error err = {0};
    struct findings found = {0};
    int code = SQRL_OK;
    for (size_t i = 0; i < (count ? count : 1) && code == SQRL_OK; i++) {
        struct sqrl_catalog *catalog = NULL;
        code =
            read_all(args, words + i, count ? 1 : 0, SQRL_CONFLICT_ERROR, &catalog, &err);
        if (code == SQRL_OK)
            check_catalog(args, count ? words[i] : "the default catalog", catalog,
                          &found);
        sqrl_catalog_free(catalog);
    }
    if (code == SQRL_OK)
        print_findings(args, &found);
    sqrl_bytes_reset(&found.rows);
    return code ? cli_fail(args, &err) : found.bad ? EXIT_FAILED : EXIT_DONE;
}

/* --- subscribe --- */

struct listing {
    const struct cli_args *args;
    struct sqrl_bytes rows;
    size_t count;
};

static int list_place(void *arg, const struct sqrl_catalog_place *place,
                      struct sqrl_error *err) {
    struct listing *listing = arg;
    listing->count++;
    if (!listing->args->json) {
        printf("%s  (%s)\n", place->url, place->origin);
        return SQRL_OK;
    }
    cli_put_map(&listing->rows, 2);
    cli_put_text(&listing->rows, "url", place->url);
    cli_put_text(&listing->rows, "origin", place->origin);
    return SQRL_OK;
}

static int list_places(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct listing listing = {.args = args};
    struct sqrl_bytes report = {0};
    int code = sqrl_catalog_places(args->context, list_place, &listing, &err);
    if (code == SQRL_OK && args->json) {
        cli_put_array(&report, listing.count);
        code = sqrl_bytes_append(&report, listing.rows.data, listing.rows.size, &err);
        if (code == SQRL_OK)
            cli_print_json(&report, stdout);
    } else if (code == SQRL_OK && !listing.count) {
        printf("no catalogs; `squirrel catalog subscribe FILE` adds one\n");
    }
    sqrl_bytes_reset(&report);
    sqrl_bytes_reset(&listing.rows);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

static int run_subscribe(struct cli_args *args, const char *const *words, size_t count) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog = NULL;
    bool remove = cli_value(args, "remove") != NULL, changed = false;
    if (!count)
        return remove ? cli_usage(args, "--remove wants the catalog's path or URL")
                      : list_places(args);
    int code = SQRL_OK;
    /* What can't be read is of no use. Python may have file systems that are not here. */
    if (!remove && sqrl_fs_ops_for_url(args->context, words[0]))
        code = read_all(args, words, 1, SQRL_CONFLICT_ERROR, &catalog, &err);
    sqrl_catalog_free(catalog);
    if (code == SQRL_OK)
        code = (remove ? sqrl_catalog_unsubscribe
                       : sqrl_catalog_subscribe)(args->context, words[0], &changed, &err);
    if (code)
        return cli_fail(args, &err);
    if (!changed)
        fprintf(stderr, "squirrel catalog: %s: %s\n", words[0],
                remove ? "it was not subscribed to" : "it is subscribed to already");
    return remove && !changed ? EXIT_FAILED : EXIT_DONE;
}

/* --- the sub-commands --- */

static const struct {
    const char *name, *words;
    size_t min_words, max_words;
    int (*run)(struct cli_args *args, const char *const *words, size_t count);
} actions[] = {
    {"ls", "[CATALOG...]", 0, MAX_WORDS, run_list},
    {"show", "CATALOG or CATALOG#NAME@VERSION", 1, 1, run_show},
    {"diff", "CATALOG CATALOG", 2, 2, run_diff},
    {"merge", "CATALOG... OUTPUT", 2, MAX_WORDS, run_merge},
    {"validate", "[CATALOG...]", 0, MAX_WORDS, run_validate},
    {"convert", "CATALOG OUTPUT", 2, 2, run_convert},
    {"subscribe", "[CATALOG]", 0, 1, run_subscribe},
};

static int run_catalog(struct cli_args *args) {
    struct cli_nearest nearest = {.name = args->word[0]};
    size_t count = args->words - 1;
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        cli_nearest_try(&nearest, actions[i].name);
        if (strcmp(actions[i].name, args->word[0]) != 0)
            continue;
        if (count < actions[i].min_words || count > actions[i].max_words)
            return cli_usage(args, "%s wants %s", actions[i].name, actions[i].words);
        return actions[i].run(args, args->word + 1, count);
    }
    if (nearest.found)
        return cli_usage(args, "there is no '%s'; did you mean '%s'?", args->word[0],
                         nearest.found);
    return cli_usage(args,
                     "there is no '%s'; there are ls, show, diff, merge, validate, "
                     "convert and subscribe",
                     args->word[0]);
}

static const struct cli_option options[] = {
    {"on-conflict", 0, "WHICH",
     "merge: which one counts where sources differ: error (default), ours, theirs"},
    {"overwrite", 0, NULL, "merge, convert: replace an output that is there"},
    {"open", 0, NULL, "validate: open each source, too"},
    {"remove", 0, NULL, "subscribe: take the catalog away again"},
    {0}};

const struct cli_command cli_catalog = {
    "catalog",
    "ls|show|diff|merge|validate|convert|subscribe [CATALOG...]",
    "list, show, compare, join, check and convert catalogs; the user's own",
    options,
    1,
    MAX_WORDS,
    0,
    run_catalog};
