/* help.c - what --help prints: the command's own options, then those that the library's
 * tables declare. */
#include "cli.h"

#include <string.h>

static int each_in(const struct sqrl_option *options, const char *title,
                   cli_option_fn visit, void *arg) {
    int stop = 0;
    for (; options && options->name && !stop; options++)
        stop = visit(arg, title, options);
    return stop;
}

static int each_reading(const struct cli_args *args, cli_option_fn visit, void *arg) {
    char title[160];
    const struct sqrl_driver_ops *driver;
    int stop = each_in(sqrl_open_options(), "reading", visit, arg);
    for (size_t i = 0; !stop && (driver = sqrl_driver_at(args->context, i)); i++) {
        snprintf(title, sizeof title, "reading, driver %s (%s)", driver->name,
                 driver->doc);
        stop = each_in(driver->options, title, visit, arg);
        if (!stop && driver->format)
            stop = each_in(driver->format->options, title, visit, arg);
    }
    return stop;
}

static int each_writing(cli_option_fn visit, void *arg) {
    char title[160];
    const struct sqrl_format_ops *format;
    int stop = 0;
    for (size_t i = 0; !stop && (format = sqrl_format_at(i)); i++) {
        snprintf(title, sizeof title, "writing, format %s (%s)", format->name,
                 format->doc);
        stop = each_in(format->write_options, title, visit, arg);
    }
    return stop;
}

static int each_of_files(const struct cli_args *args, cli_option_fn visit, void *arg) {
    char title[160];
    const struct sqrl_fs_ops *fs;
    int stop = 0;
    for (size_t i = 0; !stop && (fs = sqrl_fs_registered(args->context, i)); i++) {
        snprintf(title, sizeof title, "files, %s (%s)", fs->name, fs->doc);
        stop = each_in(fs->options, title, visit, arg);
    }
    return stop;
}

int cli_each_option(const struct cli_args *args, cli_option_fn visit, void *arg) {
    int stop = 0;
    if (args->command->tables & CLI_READS)
        stop = each_reading(args, visit, arg);
    if (!stop && args->command->tables & CLI_WRITES)
        stop = each_writing(visit, arg);
    if (!stop && args->command->tables)
        stop = each_of_files(args, visit, arg);
    return stop;
}

void cli_print_help(void) {
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

/* What a table's option looks like on the command line: "--max-line SIZE". */
static void option_text(const struct sqrl_option *option, char *out, size_t size) {
    static const char *const value[] = {
        [SQRL_OPTION_BOOL] = "[=false]", [SQRL_OPTION_INT] = " N",
        [SQRL_OPTION_FLOAT] = " X",      [SQRL_OPTION_SIZE] = " SIZE",
        [SQRL_OPTION_TEXT] = " TEXT",    [SQRL_OPTION_CHOICE] = " "};
    snprintf(out, size, "--%s%s%s", option->name, value[option->type],
             option->type == SQRL_OPTION_CHOICE ? option->choices : "");
    for (char *c = out + 2; *c && *c != ' ' && *c != '['; c++)
        *c = *c == '_' ? '-' : *c;
}

struct printer {
    char title[160]; /* of the table before */
};

static int print_option(void *arg, const char *title, const struct sqrl_option *option) {
    struct printer *printer = arg;
    char left[80];
    if (strcmp(printer->title, title) != 0)
        printf("\n%s:\n", title);
    snprintf(printer->title, sizeof printer->title, "%s", title);
    option_text(option, left, sizeof left);
    printf("      %-26s %s", left, option->doc);
    if (option->initial && !strstr(option->doc, "default"))
        printf(" (default %s)", option->initial);
    putchar('\n');
    return 0;
}

void cli_print_command_help(const struct cli_args *args) {
    const struct cli_command *command = args->command;
    struct printer printer = {""};
    printf("usage: squirrel %s [OPTION...] %s\n\n%s\n\noptions:\n", command->name,
           command->words, command->doc);
    for (const struct cli_option *option = command->options; option->name; option++) {
        char left[64], letter[8] = "    ";
        if (option->letter)
            snprintf(letter, sizeof letter, "-%c, ", option->letter);
        snprintf(left, sizeof left, "%s--%s %s", letter, option->name,
                 option->value ? option->value : "");
        printf("  %-30s %s\n", left, option->doc);
    }
    if (!command->no_json)
        printf("  %-30s %s\n", "    --json", "output for programs");
    printf("  %-30s %s\n", "-h, --help", "this text");
    cli_each_option(args, print_option, &printer);
}
