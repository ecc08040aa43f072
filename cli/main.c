/* The command: finds the sub-command, reads its words against the tables, runs it. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

const struct cli_command *const cli_commands[] = {
    &cli_pack,    &cli_add_fields, &cli_convert, &cli_info,
    &cli_ls,      &cli_head,       &cli_cat,     &cli_verify,
    &cli_index,   &cli_bench,      &cli_doctor,  &cli_catalog,
    &cli_quality, &cli_simulate,   &cli_cache,   &cli_completion,
    NULL,
};

static volatile sig_atomic_t interrupted;
static bool committed; /* by the main thread */

int cli_interrupted(void) {
    return committed ? 0 : interrupted;
}

void cli_committed(void) {
    committed = true;
}

int cli_cancelled(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CANCELLED, "interrupted");
}

/* The second Ctrl-C ends the process at once. */
static void on_interrupt(int signal_number) {
    if (interrupted)
        _exit(EXIT_SIGNAL + signal_number);
    interrupted = signal_number;
}

/* Without SA_RESTART: reads and writes that wait end with EINTR. */
static void set_signals(void) {
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* `squirrel cat x | head` ends quietly: the default action, whatever the parent
     * chose. */
    signal(SIGPIPE, SIG_DFL);
}

static void print_error_json(const struct sqrl_error *err) {
    struct sqrl_bytes report = {0};
    cli_put_map(&report, 1);
    cli_put_key(&report, "error");
    cli_put_map(&report, 3);
    cli_put_text(&report, "code", sqrl_code_name((int)err->code));
    cli_put_text(&report, "where", err->where);
    cli_put_text(&report, "message", err->message);
    cli_print_json(&report, stderr);
    sqrl_bytes_reset(&report);
}

int cli_fail(const struct cli_args *args, const struct sqrl_error *err) {
    char text[2048];
    sqrl_error_text(err, text, sizeof text);
    if (cli_interrupted())
        fprintf(stderr, "squirrel %s: interrupted\n", args->command->name);
    else if (args->json)
        print_error_json(err);
    else
        fprintf(stderr, "squirrel %s: %s\n", args->command->name, text);
    return err->code == SQRL_E_INVALID ? EXIT_USAGE : EXIT_FAILED;
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
        cli_print_command_help(&args);
    else if ((code = cli_read_words(&args, argc, argv)) == EXIT_DONE)
        code = command->run(&args);
    /* What is left in stdout's buffer may not find a reader. */
    if (cli_interrupted())
        _exit(EXIT_SIGNAL + cli_interrupted());
    errno = 0;
    if (code == EXIT_DONE && (fflush(stdout) != 0 || ferror(stdout))) {
        sqrl_error_set_errno(&err, errno, "standard output can't be written");
        code = cli_fail(&args, &err);
    }
    sqrl_context_unref(args.context);
    return code;
}

static int no_command(const char *name) {
    struct cli_nearest nearest = {.name = name};
    for (size_t i = 0; cli_commands[i]; i++)
        cli_nearest_try(&nearest, cli_commands[i]->name);
    fprintf(stderr, "squirrel: there is no command '%s'; ", name);
    if (nearest.found)
        fprintf(stderr, "did you mean '%s'?\n", nearest.found);
    else
        fprintf(stderr, "`squirrel --help` lists them\n");
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    set_signals();
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        strcmp(name, "help") == 0) {
        cli_print_help();
        return argc > 1 ? EXIT_DONE : EXIT_USAGE;
    }
    if (strcmp(name, "--version") == 0) {
        printf("squirrel %s\n", sqrl_version());
        return EXIT_DONE;
    }
    for (size_t i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return run_command(cli_commands[i], argc - 2, argv + 2);
    return no_command(name);
}
