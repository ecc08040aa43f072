/* completion: scripts for shells, made from the tables. */
#include "cli.h"

#include <string.h>

/* Prints one option's name; `value`: it wants one. */
typedef void (*print_name)(const char *command, const char *name, bool value);

struct names {
    const struct cli_command *command;
    print_name print;
    const char *seen[MAX_OPTIONS];
    size_t count;
};

static void take_name(struct names *names, const char *name, bool value) {
    char text[40];
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->seen[i], name) == 0)
            return;
    if (names->count < MAX_OPTIONS)
        names->seen[names->count++] = name;
    snprintf(text, sizeof text, "%s", name);
    for (char *c = text; *c; c++)
        *c = *c == '_' ? '-' : *c;
    names->print(names->command->name, text, value);
}

static int take_option(void *arg, const char *title, const struct sqrl_option *option) {
    take_name(arg, option->name, option->type != SQRL_OPTION_BOOL);
    return 0;
}

/* All options of a command: its own, the tables', --json and --help. */
static void each_name(const struct cli_args *args, const struct cli_command *command,
                      print_name print) {
    struct names names = {.command = command, .print = print};
    struct cli_args other = {.command = command, .context = args->context};
    for (const struct cli_option *option = command->options; option->name; option++)
        take_name(&names, option->name, option->value != NULL);
    cli_each_option(&other, take_option, &names);
    if (!command->no_json)
        take_name(&names, "json", false);
    take_name(&names, "help", false);
}

static void bash_name(const char *command, const char *name, bool value) {
    printf("--%s ", name);
}

static void complete_bash(const struct cli_args *args) {
    printf("_squirrel() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} words=\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then words='");
    for (size_t i = 0; cli_commands[i]; i++)
        printf("%s ", cli_commands[i]->name);
    printf("--help --version'\n    else case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("        %s) words='", cli_commands[i]->name);
        each_name(args, cli_commands[i], bash_name);
        printf("' ;;\n");
    }
    printf("    esac; fi\n"
           "    case $cur in\n"
           "        -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
           "        *) if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "            COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "        else COMPREPLY=($(compgen -f -- \"$cur\")); fi ;;\n"
           "    esac\n"
           "}\n"
           "complete -o filenames -F _squirrel squirrel\n");
}

static void zsh_name(const char *command, const char *name, bool value) {
    printf("'--%s%s' ", name, value ? ":value:" : "");
}

static void complete_zsh(const struct cli_args *args) {
    printf("#compdef squirrel\n_squirrel() {\n    if (( CURRENT == 2 )); then\n"
           "        local -a commands=(");
    for (size_t i = 0; cli_commands[i]; i++)
        printf("%s ", cli_commands[i]->name);
    printf(")\n        _describe command commands\n    else case $words[2] in\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("        %s) _arguments '*:file:_files' ", cli_commands[i]->name);
        each_name(args, cli_commands[i], zsh_name);
        printf(";;\n");
    }
    printf("    esac; fi\n}\ncompdef _squirrel squirrel\n");
}

static void fish_name(const char *command, const char *name, bool value) {
    printf("complete -c squirrel -n '__fish_seen_subcommand_from %s' -l %s%s\n", command,
           name, value ? " -r" : "");
}

static void complete_fish(const struct cli_args *args) {
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("complete -c squirrel -n __fish_use_subcommand -a %s\n",
               cli_commands[i]->name);
        each_name(args, cli_commands[i], fish_name);
    }
}

static int run_completion(struct cli_args *args) {
    static const struct {
        const char *name;
        void (*print)(const struct cli_args *args);
    } shells[] = {
        {"bash", complete_bash}, {"zsh", complete_zsh}, {"fish", complete_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, args->word[0]) == 0) {
            shells[i].print(args);
            return EXIT_DONE;
        }
    return cli_usage(args, "there is no completion for '%s'; bash, zsh or fish",
                     args->word[0]);
}

static const struct cli_option no_options[] = {{0}};

const struct cli_command cli_completion = {
    "completion",
    "bash|zsh|fish",
    "print a completion script: source <(squirrel completion bash)",
    no_options,
    1,
    1,
    0,
    run_completion,
    true};
