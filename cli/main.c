/* The command: finds the sub-command, reads its words against the tables, runs it. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct cli_command *const cli_commands[] = {
    &cli_pack,   &cli_convert, &cli_info,  &cli_ls,     &cli_head,       &cli_cat,
    &cli_verify, &cli_index,   &cli_bench, &cli_doctor, &cli_completion, NULL,
};

static volatile sig_atomic_t interrupted;

bool cli_interrupted(void) {
    return interrupted != 0;
}

/* The second Ctrl-C ends the process at once. */
static void on_interrupt(int signal_number) {
    if (interrupted)
        _exit(EXIT_INTERRUPTED);
    interrupted = 1;
}

static void set_signals(void) {
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    /* `squirrel cat x | head` ends quietly: the default action, whatever the parent
     * chose. */
    signal(SIGPIPE, SIG_DFL);
}

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

bool cli_number(const struct cli_args *args, const char *name, uint64_t initial,
                uint64_t *out) {
    const char *text = cli_value(args, name);
    char *end;
    *out = initial;
    if (!text)
        return true;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-') {
        cli_usage(args, "--%s wants a whole number, not '%s'", name, text);
        return false;
    }
    *out = number;
    return true;
}

int cli_fail(const struct cli_args *args, const struct sqrl_error *err) {
    char text[2048];
    sqrl_error_text(err, text, sizeof text);
    fflush(stdout);
    if (args->json) {
        struct sqrl_bytes report = {0};
        cli_put_map(&report, 1);
        cli_put_key(&report, "error");
        cli_put_map(&report, 3);
        cli_put_text(&report, "code", sqrl_code_name(err->code));
        cli_put_text(&report, "where", err->where);
        cli_put_text(&report, "message", err->message);
        cli_print_json(&report);
        sqrl_bytes_reset(&report);
    } else {
        fprintf(stderr, "squirrel %s: %s\n", args->command->name, text);
    }
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    return err->code == SQRL_E_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

static void print_tool_help(void) {
    printf("squirrel %s: share, load and transform data for large-scale deep learning\n\n"
           "usage: squirrel COMMAND [OPTION...] [WORD...]\n\ncommands:\n",
           sqrl_version());
    for (size_t i = 0; cli_commands[i]; i++)
        printf("  %-11s %s\n", cli_commands[i]->name, cli_commands[i]->doc);
    printf("\n`squirrel COMMAND --help` tells its options. --json: output for programs.\n"
           "A URL is a file or a directory of any known format, or "
           "catalog.yaml#name@version.\n"
           "Exit codes: 0 done, 1 failed, 2 wrong command line, 130 interrupted.\n");
}

static void print_table(const char *title, const struct sqrl_option *options) {
    if (!options || !options->name)
        return;
    printf("\n%s:\n", title);
    for (; options->name; options++) {
        char left[64];
        snprintf(left, sizeof left, "--%s %s", options->name,
                 options->choices ? options->choices : "VALUE");
        printf("  %-28s %s", left, options->doc);
        if (options->initial)
            printf(" (default %s)", options->initial);
        putchar('\n');
    }
}

static void print_command_help(struct cli_args *args) {
    const struct cli_command *command = args->command;
    char title[96];
    printf("usage: squirrel %s [OPTION...] %s\n\n%s\n\noptions:\n", command->name,
           command->words, command->doc);
    for (const struct cli_option *option = command->options; option->name; option++) {
        char left[64], letter[8] = "    ";
        if (option->letter)
            snprintf(letter, sizeof letter, "-%c, ", option->letter);
        snprintf(left, sizeof left, "%s--%s %s", letter, option->name,
                 option->value ? option->value : "");
        printf("  %-28s %s\n", left, option->doc);
    }
    printf("  %-28s %s\n  %-28s %s\n", "    --json", "output for programs", "-h, --help",
           "this text");
    if (command->tables & CLI_READS)
        printf("  %-28s %s\n", "    --driver NAME",
               "instead of finding it from the content");
    for (size_t i = 0; (command->tables & CLI_READS) && sqrl_driver_at(args->context, i);
         i++) {
        const struct sqrl_driver_ops *driver = sqrl_driver_at(args->context, i);
        snprintf(title, sizeof title, "reading, driver %s (%s)", driver->name,
                 driver->doc);
        print_table(title, driver->options);
        if (driver->format)
            print_table(driver->options && driver->options->name ? "and" : title,
                        driver->format->options);
    }
    for (size_t i = 0; (command->tables & CLI_WRITES) && sqrl_format_at(i); i++) {
        const struct sqrl_format_ops *format = sqrl_format_at(i);
        snprintf(title, sizeof title, "writing, format %s (%s)", format->name,
                 format->doc);
        print_table(title, format->write_options);
    }
}

static const struct cli_option *find_option(const struct cli_command *command,
                                            const char *name, size_t size, char letter) {
    for (const struct cli_option *option = command->options; option->name; option++)
        if (name ? strlen(option->name) == size && memcmp(option->name, name, size) == 0
                 : option->letter && option->letter == letter)
            return option;
    return NULL;
}

/* A driver's or format's option: its value is checked by the library when it is used. */
static int add_setting(struct cli_args *args, char *name, char *value) {
    if (args->setting_count == MAX_OPTIONS)
        return cli_usage(args, "more than %d options", MAX_OPTIONS);
    args->settings[args->setting_count++] = (struct sqrl_setting){name, value};
    return EXIT_DONE;
}

/* argv[*at] begins with "-"; moves *at to its last word. Returns an exit code. */
static int read_option(struct cli_args *args, int argc, char **argv, int *at) {
    char *word = argv[*at], *equals = strchr(word, '=');
    bool is_long = word[1] == '-';
    size_t size = equals && is_long ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    const struct cli_option *option =
        is_long ? find_option(args->command, word + 2, size, 0)
                : find_option(args->command, NULL, 0, word[2] ? 0 : word[1]);
    if (is_long && strcmp(word, "--json") == 0) {
        args->json = true;
        return EXIT_DONE;
    }
    if (option && !option->value) {
        if (args->given_count == MAX_OPTIONS)
            return cli_usage(args, "more than %d options", MAX_OPTIONS);
        args->given[args->given_count] = option;
        args->value[args->given_count++] = "";
        return EXIT_DONE;
    }
    if (!option && (!is_long || !args->command->tables))
        return cli_usage(args, "there is no option %s", word);
    char *value = is_long && equals ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    if (!value)
        return cli_usage(args, "%s wants a value", word);
    if (!option) {
        if (equals)
            *equals = '\0';
        for (char *c = word + 2; *c; c++)
            *c = *c == '-' ? '_' : *c;
        return add_setting(args, word + 2, value);
    }
    if (args->given_count == MAX_OPTIONS)
        return cli_usage(args, "more than %d options", MAX_OPTIONS);
    args->given[args->given_count] = option;
    args->value[args->given_count++] = value;
    return EXIT_DONE;
}

static int read_words(struct cli_args *args, int argc, char **argv) {
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
    if (args->words < args->command->min_words || args->words > args->command->max_words)
        return cli_usage(args, "wants %s", args->command->words);
    return EXIT_DONE;
}

static bool wants_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int run_command(const struct cli_command *command, int argc, char **argv) {
    static struct cli_args args;
    struct sqrl_error err = {0};
    args.command = command;
    if (sqrl_context_new(NULL, &args.context, &err) != SQRL_OK)
        return cli_fail(&args, &err);
    int code = EXIT_DONE;
    if (wants_help(argc, argv))
        print_command_help(&args);
    else if ((code = read_words(&args, argc, argv)) == EXIT_DONE)
        code = command->run(&args);
    if (code == EXIT_DONE && (fflush(stdout) != 0 || ferror(stdout))) {
        sqrl_error_set_errno(&err, errno, "writing to standard output");
        code = cli_fail(&args, &err);
    }
    sqrl_context_unref(args.context);
    return cli_interrupted() ? EXIT_INTERRUPTED : code;
}

int main(int argc, char **argv) {
    set_signals();
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        strcmp(name, "help") == 0) {
        print_tool_help();
        return argc > 1 ? EXIT_DONE : EXIT_USAGE;
    }
    if (strcmp(name, "--version") == 0) {
        printf("squirrel %s\n", sqrl_version());
        return EXIT_DONE;
    }
    for (size_t i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return run_command(cli_commands[i], argc - 2, argv + 2);
    fprintf(stderr, "squirrel: there is no command '%s'; `squirrel --help` lists them\n",
            name);
    return EXIT_USAGE;
}
