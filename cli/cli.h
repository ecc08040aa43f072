/* cli.h - what the command's parts share. The command uses include/sqrl only.
 *
 * Exit codes: 0 done, 1 the data or the system failed (the message says where and what to
 * do), 2 the command line is wrong, 130 interrupted.
 */
#ifndef SQUIRREL_CLI_H
#define SQUIRREL_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <sqrl/sqrl.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* One option of a command: --name VALUE, or --name for a flag. */
struct cli_option {
    const char *name;  /* "where" */
    char letter;       /* 'n', or 0 */
    const char *value; /* what is shown for the value, "N"; NULL: a flag */
    const char *doc;
};

enum { MAX_OPTIONS = 64, MAX_WORDS = 4096 };

/* A parsed command line: options that the command declares, settings for drivers and
 * formats
 * (--set name=value, or --name value when a table declares it), and the other words. */
struct cli_args {
    const struct cli_command *command;
    const struct cli_option *given[MAX_OPTIONS];
    const char *value[MAX_OPTIONS];
    size_t given_count;
    struct sqrl_setting settings[MAX_OPTIONS];
    size_t setting_count;
    const char *word[MAX_WORDS];
    size_t words;
    bool json;
    struct sqrl_context *context;
};

/* A command. `run` returns an exit code and reports its own errors by cli_fail. */
struct cli_command {
    const char *name;
    const char *words; /* "URL", "SOURCE... DESTINATION" */
    const char *doc;
    const struct cli_option *options; /* ends with name NULL */
    size_t min_words, max_words;
    enum { CLI_READS = 1, CLI_WRITES = 2 } tables; /* which option tables --help shows */
    int (*run)(struct cli_args *args);
};

extern const struct cli_command *const cli_commands[]; /* ends with NULL */

extern const struct cli_command cli_pack, cli_convert, cli_info, cli_ls, cli_head,
    cli_cat, cli_verify, cli_index, cli_bench, cli_doctor, cli_completion;

/* The value of an option, NULL when it was not given ("" for a flag that was). */
const char *cli_value(const struct cli_args *args, const char *name);
/* A whole number; false (and a message) when the text is none. */
bool cli_number(const struct cli_args *args, const char *name, uint64_t initial,
                uint64_t *out);

/* Prints "squirrel COMMAND: message" (or, with --json, {"error": ...}) to standard error;
 * returns EXIT_FAILED, or EXIT_USAGE for SQRL_E_INVALID. */
int cli_fail(const struct cli_args *args, const struct sqrl_error *err);
int cli_usage(const struct cli_args *args, const char *format, ...) SQRL_PRINTF(2, 3);

/* Opens a URL, or what "catalog.yaml#name@version" names, with the settings given. */
SQRL_CHECK int cli_open(const struct cli_args *args, const char *url,
                        struct sqrl_source **out, struct sqrl_error *err);
/* The same, with --where, --select, --drop, --shuffle, --skip, --take on top. */
SQRL_CHECK int cli_plan(const struct cli_args *args, const char *url,
                        struct sqrl_plan **out, struct sqrl_error *err);
/* The options cli_plan reads, to be repeated in a command's table. */
#define CLI_PLAN_OPTIONS                                                                 \
    {"where", 'w', "EXPRESSION", "only samples for which it holds: 'label == 3'"},       \
        {"select", 's', "FIELDS", "only these fields, separated by commas"},             \
        {"drop", 0, "FIELDS", "all fields but these"},                                   \
        {"shuffle", 0, "SEED", "in a random order that the seed fixes"},                 \
        {"skip", 0, "N", "leave out the first N"}, {                                     \
        "take", 'n', "N", "at most N"                                                    \
    }

/* Calls `visit` for every sample of a plan, or of standard input (url "-": JSON lines or
 * MessagePack; --take only). A non-zero return of `visit` stops and is returned. */
typedef int (*cli_sample_fn)(void *arg, const struct sqrl_projection *projection,
                             const struct sqrl_block *block, uint32_t index,
                             struct sqrl_error *err);
SQRL_CHECK int cli_each_sample(const struct cli_args *args, const char *url,
                               cli_sample_fn visit, void *arg, struct sqrl_error *err);

/* A line that is drawn again and again on a terminal, and a plain line now and then
 * elsewhere; nothing with --json. total SQRL_UNKNOWN: no bar. Call cli_progress_end
 * before other output. */
struct cli_progress {
    const char *what;
    uint64_t total, next_ns, start_ns;
    bool terminal, shown, off;
};
void cli_progress_start(struct cli_progress *progress, const struct cli_args *args,
                        const char *what, uint64_t total);
void cli_progress_show(struct cli_progress *progress, uint64_t done, uint64_t bytes);
void cli_progress_end(struct cli_progress *progress);

/* "1.5 MiB"; writes into out[32]. */
const char *cli_size_text(uint64_t bytes, char *out);
uint64_t cli_now_ns(void);
/* Set by Ctrl-C. */
bool cli_interrupted(void);

/* Prints a value that was put together as MessagePack as one line of JSON. */
int cli_print_json(const struct sqrl_bytes *value);
/* One line of JSON for a sample, as the plan's projection shows it (NULL: whole). */
SQRL_CHECK int cli_sample_json(const struct sqrl_projection *projection,
                               const struct sqrl_block *block, uint32_t index,
                               struct sqrl_bytes *out, struct sqrl_error *err);

/* Short forms for putting reports together; they end the process when memory runs out. */
void cli_put_map(struct sqrl_bytes *out, size_t pairs);
void cli_put_array(struct sqrl_bytes *out, size_t items);
void cli_put_text(struct sqrl_bytes *out, const char *key, const char *value);
void cli_put_number(struct sqrl_bytes *out, const char *key, uint64_t value);
void cli_put_real(struct sqrl_bytes *out, const char *key, double value);
void cli_put_key(struct sqrl_bytes *out, const char *key);

#endif
