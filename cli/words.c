/* words.c - reads the command line against the tables: the command's options, and the
 * options that drivers and formats declare. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *cli_value(const struct cli_args *args, const char *name) {
    for (size_t i = args->given_count; i-- > 0;)
        if (strcmp(args->given[i]->name, name) == 0)
            return args->value[i];
    return NULL;
}

int cli_usage(const struct cli_args *args, const char *format, ...) {
    va_list list;
    fprintf(stderr, "squirrel %s: ", args->command->name);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\nTry `squirrel %s --help`.\n", args->command->name);
    return EXIT_USAGE;
}

int cli_number(const struct cli_args *args, const char *name, uint64_t initial,
               uint64_t *out, struct sqrl_error *err) {
    const char *text = cli_value(args, name);
    char *end;
    *out = initial;
    if (!text)
        return SQRL_OK;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9')
        return sqrl_error_set(err, SQRL_E_INVALID, "--%s wants a whole number, not '%s'",
                              name, text);
    *out = number;
    return SQRL_OK;
}

int cli_size(const struct cli_args *args, const char *name, uint64_t *out,
             struct sqrl_error *err) {
    const char *text = cli_value(args, name);
    *out = 0;
    int code = text ? sqrl_parse_size(text, out, err) : SQRL_OK;
    return code ? sqrl_error_at(err, code, "--%s", name) : SQRL_OK;
}

/* --- the nearest name --- */
enum { MAX_NAME = 32 };

static unsigned edit_distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b);
    unsigned row[MAX_NAME + 1];
    if (na > MAX_NAME || nb > MAX_NAME)
        return MAX_NAME;
    for (size_t k = 0; k <= nb; k++)
        row[k] = (unsigned)k;
    for (size_t i = 1; i <= na; i++) {
        unsigned corner = row[0];
        row[0] = (unsigned)i;
        for (size_t k = 1; k <= nb; k++) {
            unsigned best = corner + (a[i - 1] != b[k - 1]);
            corner = row[k];
            best = best > corner + 1 ? corner + 1 : best;
            row[k] = best > row[k - 1] + 1 ? row[k - 1] + 1 : best;
        }
    }
    return row[nb];
}

void cli_nearest_try(struct cli_nearest *nearest, const char *candidate) {
    unsigned distance = edit_distance(nearest->name, candidate);
    if (distance <= 3 && distance * 2 <= strlen(nearest->name) + 1 &&
        (!nearest->found || distance < nearest->distance)) {
        nearest->found = candidate;
        nearest->distance = distance;
    }
}

/* --- options --- */
/* "max-line" of the command line is "max_line" in a table. */
static bool same_name(const char *word, size_t size, const char *name) {
    if (strlen(name) != size)
        return false;
    for (size_t i = 0; i < size; i++)
        if (word[i] != name[i] && !(word[i] == '-' && name[i] == '_'))
            return false;
    return true;
}

struct search {
    const char *word;
    size_t size;
    const struct sqrl_option *found;
    struct cli_nearest nearest;
};

static int search_table(void *arg, const char *title, const struct sqrl_option *option) {
    struct search *search = arg;
    if (same_name(search->word, search->size, option->name)) {
        search->found = option;
        return 1;
    }
    cli_nearest_try(&search->nearest, option->name);
    return 0;
}

static const struct cli_option *find_option(const struct cli_command *command,
                                            const char *word, size_t size, char letter) {
    for (const struct cli_option *option = command->options; option->name; option++)
        if (word ? same_name(word, size, option->name)
                 : option->letter && option->letter == letter)
            return option;
    return NULL;
}

static int no_option(const struct cli_args *args, struct search *search,
                     const char *shown) {
    for (const struct cli_option *option = args->command->options; option->name; option++)
        cli_nearest_try(&search->nearest, option->name);
    if (!args->command->no_json)
        cli_nearest_try(&search->nearest, "json");
    cli_nearest_try(&search->nearest, "help");
    if (search->nearest.found)
        return cli_usage(args, "there is no option %s; did you mean --%s?", shown,
                         search->nearest.found);
    return cli_usage(args, "there is no option %s", shown);
}

static int too_many(const struct cli_args *args) {
    return cli_usage(args, "more than %d options", MAX_OPTIONS);
}

/* The value of the option at argv[*at]: behind "=" or the letter, else the next word. */
static const char *value_word(int argc, char **argv, int *at, const char *equals) {
    if (equals)
        return equals + 1;
    return *at + 1 < argc ? argv[++*at] : NULL;
}

/* A driver's or format's option: its value is checked by the library when it is used. A
 * boolean alone means true. */
static int add_setting(struct cli_args *args, const struct sqrl_option *option, int argc,
                       char **argv, int *at, const char *equals) {
    const char *word = argv[*at];
    bool flag = option->type == SQRL_OPTION_BOOL && !equals;
    const char *value = flag ? "true" : value_word(argc, argv, at, equals);
    if (!value)
        return cli_usage(args, "%s wants a value", word);
    if (args->setting_count == MAX_OPTIONS)
        return too_many(args);
    args->settings[args->setting_count++] = (struct sqrl_setting){option->name, value};
    return EXIT_DONE;
}

static int add_option(struct cli_args *args, const struct cli_option *option, int argc,
                      char **argv, int *at, const char *equals) {
    const char *word = argv[*at];
    if (!option->value && equals)
        return cli_usage(args, "--%s takes no value", option->name);
    const char *value = option->value ? value_word(argc, argv, at, equals) : "";
    if (!value)
        return cli_usage(args, "%s wants a value", word);
    if (args->given_count == MAX_OPTIONS)
        return too_many(args);
    args->given[args->given_count] = option;
    args->value[args->given_count++] = value;
    return EXIT_DONE;
}

/* "-n 1", "-n1", and flags together: "-an1". */
static int read_letters(struct cli_args *args, int argc, char **argv, int *at) {
    int code = EXIT_DONE;
    for (const char *letter = argv[*at] + 1; *letter && code == EXIT_DONE; letter++) {
        const struct cli_option *option = find_option(args->command, NULL, 0, *letter);
        if (!option)
            return cli_usage(args, "there is no option -%c", *letter);
        bool attached = option->value && letter[1];
        code = add_option(args, option, argc, argv, at, attached ? letter : NULL);
        if (option->value)
            break;
    }
    return code;
}

/* argv[*at] begins with "-"; moves *at to its last word. Returns an exit code. */
static int read_option(struct cli_args *args, int argc, char **argv, int *at) {
    const char *word = argv[*at];
    if (word[1] != '-')
        return read_letters(args, argc, argv, at);
    const char *equals = strchr(word, '=');
    char name[MAX_NAME + 1];
    struct search search = {.word = word + 2, .nearest = {.name = name}};
    search.size = equals ? (size_t)(equals - word) - 2 : strlen(search.word);
    snprintf(name, sizeof name, "%.*s", (int)search.size, search.word);
    if (strcmp(name, "json") == 0 && !args->command->no_json) {
        if (equals)
            return cli_usage(args, "--json takes no value");
        args->json = true;
        return EXIT_DONE;
    }
    const struct cli_option *option =
        find_option(args->command, search.word, search.size, 0);
    if (option)
        return add_option(args, option, argc, argv, at, equals);
    cli_each_option(args, search_table, &search);
    if (search.found)
        return add_setting(args, search.found, argc, argv, at, equals);
    return no_option(args, &search, word);
}

int cli_read_words(struct cli_args *args, int argc, char **argv) {
    bool only_words = false;
    for (int i = 0; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = true;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            int code = read_option(args, argc, argv, &i);
            if (code)
                return code;
        } else if (args->words == MAX_WORDS) {
            return cli_usage(args, "more than %d words", MAX_WORDS);
        } else {
            args->word[args->words++] = argv[i];
        }
    }
    const struct cli_command *command = args->command;
    if (args->words > command->max_words)
        return command->max_words
                   ? cli_usage(args, "wants %s only: '%s' is too many", command->words,
                               args->word[command->max_words])
                   : cli_usage(args, "takes no words, only options: '%s' is too many",
                               args->word[0]);
    if (args->words < command->min_words)
        return cli_usage(args, "wants %s", command->words);
    return EXIT_DONE;
}
