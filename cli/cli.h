/* cli.h - what the command's parts share. The command uses include/sqrl only.
 *
 * Exit codes: 0 done, 1 the data or the system failed (the message says where and what to
 * do), 2 the command line is wrong, 130 interrupted (143 by SIGTERM).
 */
#ifndef SQUIRREL_CLI_H
#define SQUIRREL_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <sqrl/sqrl.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SIGNAL = 128 };

/* One option of a command: --name VALUE, or --name for a flag. */
struct cli_option {
    const char *name;  /* "where" */
    char letter;       /* 'n', or 0 */
    const char *value; /* what is shown for the value, "N"; NULL: a flag */
    const char *doc;
};

enum { MAX_OPTIONS = 64, MAX_WORDS = 4096 };

/* A parsed command line: options that the command declares, settings that a table of the
 * library declares (--name value), and the other words. */
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
    enum {
        CLI_READS = 1,
        CLI_WRITES = 2,
        CLI_FILES = 4 /* file systems: also with each of the others */
    } tables;         /* which option tables --help shows */
    int (*run)(struct cli_args *args);
    bool no_json; /* its output has a form of its own, and --json is refused */
};

extern const struct cli_command *const cli_commands[]; /* ends with NULL */

extern const struct cli_command cli_pack, cli_convert, cli_info, cli_ls, cli_head,
    cli_cat, cli_verify, cli_index, cli_bench, cli_doctor, cli_completion, cli_catalog,
    cli_quality, cli_simulate, cli_add_fields, cli_cache;

/* Prints a line for each source, or the JSON of all. */
void cli_list_catalog(const struct cli_args *args, const struct sqrl_catalog *catalog);

/* The value of an option, NULL when it was not given ("" for a flag that was). */
const char *cli_value(const struct cli_args *args, const char *name);
/* A whole number, or a size ("64 MiB"); `initial` when it was not given. */
SQRL_CHECK int cli_number(const struct cli_args *args, const char *name, uint64_t initial,
                          uint64_t *out, struct sqrl_error *err);
SQRL_CHECK int cli_size(const struct cli_args *args, const char *name, uint64_t *out,
                        struct sqrl_error *err);

/* The candidate that is nearest to a name that is not there; found NULL: none is near. */
struct cli_nearest {
    const char *name, *found;
    unsigned distance;
};
void cli_nearest_try(struct cli_nearest *nearest, const char *candidate);

/* Fills `args` from the words behind the command; an exit code, EXIT_DONE to go on. */
int cli_read_words(struct cli_args *args, int argc, char **argv);
void cli_print_help(void);
void cli_print_command_help(const struct cli_args *args);

/* Prints "squirrel COMMAND: message" (or, with --json, {"error": ...}) to standard error;
 * returns EXIT_FAILED, or EXIT_USAGE for SQRL_E_INVALID. After Ctrl-C it only says so. */
int cli_fail(const struct cli_args *args, const struct sqrl_error *err);
int cli_usage(const struct cli_args *args, const char *format, ...) SQRL_PRINTF(2, 3);

/* Whether it is "catalog.yaml#name@version" or "#name" of the default catalog. */
bool cli_names_source(const char *url);
/* Opens a URL, or what names a source in a catalog, with the settings given. */
SQRL_CHECK int cli_open(const struct cli_args *args, const char *url,
                        struct sqrl_source **out, struct sqrl_error *err);
/* The settings for one URL among the words: without those of other words' file systems.
 */
struct sqrl_settings cli_settings(const struct cli_args *args, const char *url,
                                  struct sqrl_setting room[MAX_OPTIONS]);
/* The same as cli_open, with --where, --select, --drop, --shuffle, --skip, --take on top.
 */
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

/* Where samples come from: a URL's plan, or standard input ("-": JSON lines or
 * MessagePack, with --take only). */
struct cli_input {
    const char *url;
    struct sqrl_plan *plan; /* NULL: standard input */
    uint64_t take;          /* what is counted outside of the plan */
    uint64_t epoch;
    const char *state_file; /* --state: where to write how far it came; or NULL */
    char **from;            /* [from_count]: states to go on from */
    size_t from_count;
    char *state; /* the new one, afterwards */
};
SQRL_CHECK int cli_input_open(const struct cli_args *args, const char *url,
                              struct cli_input *out, struct sqrl_error *err);
void cli_input_close(struct cli_input *input);
/* Writes the state that cli_input_each left, if there is one. */
SQRL_CHECK int cli_input_save(const struct cli_args *args, const struct cli_input *input,
                              struct sqrl_error *err);
/* Options of order that cat and head take beside those of plans. */
/* states.c: input->from of --state and --from; an error where --state can't be written.
 */
SQRL_CHECK int cli_states_read(const struct cli_args *args, struct cli_input *input,
                               struct sqrl_error *err);
void cli_states_free(struct cli_input *input);
#define CLI_ORDER_OPTIONS                                                                \
    {"epoch", 0, "N", "with --shuffle: another order of the same seed"},                 \
        {"window", 0, "SIZE", "of --shuffle, in memory together; none: no window"},      \
        {"rank", 0, "R", "only the part of rank R (with --world-size)"},                 \
        {"world-size", 0, "N", "of N ranks"}, {                                          \
        "tail", 0, "HOW", "of ranks' parts: uneven, pad (equally long) or drop"          \
    }

/* Calls `visit` for every sample, and with block NULL when standard input makes wait:
 * what was held back should go out then. A non-zero return of `visit` stops and is
 * returned. */
typedef int (*cli_sample_fn)(void *arg, const struct sqrl_projection *projection,
                             const struct sqrl_block *block, uint32_t index,
                             struct sqrl_error *err);
SQRL_CHECK int cli_input_each(const struct cli_args *args, struct cli_input *input,
                              cli_sample_fn visit, void *arg, struct sqrl_error *err);

/* mixed.c: the same of all URLs mixed by --mix; fills in *input, which cli_input_save and
 * cli_input_close take afterwards. input->url is that of the sample. */
SQRL_CHECK int cli_mix_each(const struct cli_args *args, struct cli_input *input,
                            cli_sample_fn visit, void *arg, struct sqrl_error *err);

/* --- packing.c --- */
/* Reads all inputs into the packer, whose end this is: it is finished, or abandoned on
 * failure. `expected`: samples, for the progress bar, or SQRL_UNKNOWN. */
SQRL_CHECK int cli_pack_inputs(const struct cli_args *args, struct cli_input *inputs,
                               size_t count, struct sqrl_packer *packer,
                               uint64_t expected, struct sqrl_pack_report *report,
                               struct sqrl_error *err);
/* Whether it says how the files of one of the words are reached, not what is in them. */
bool cli_is_of_files(const struct cli_args *args, const char *setting);
/* Settings that a writing format declares go to `writing`, those of the destination's
 * file system too; the others stay with args, for the reader. */
void cli_split_settings(struct cli_args *args, const char *destination,
                        struct sqrl_setting writing[MAX_OPTIONS], size_t *count);

/* A line that is drawn again and again on a terminal, and a plain line now and then
 * elsewhere; nothing with --json. total SQRL_UNKNOWN: no bar. Call cli_progress_end
 * before other output. */
struct cli_progress {
    const char *what;
    uint64_t total, next_ns, start_ns;
    bool terminal, shown, off;
    bool of_bytes; /* what is done is bytes, not samples */
};
void cli_progress_start(struct cli_progress *progress, const struct cli_args *args,
                        const char *what, uint64_t total);
void cli_progress_show(struct cli_progress *progress, uint64_t done, uint64_t bytes);
void cli_progress_end(struct cli_progress *progress);

/* --- order_plot.c --- */
/* Writes an SVG file: order[i] is the position in the source of what came as number i. */
int cli_plot_order(const char *path, const char *title, const uint64_t *order,
                   size_t count, struct sqrl_error *err);

/* "1 shard", "2 shards"; writes into out[48]. */
const char *cli_count_text(uint64_t count, const char *what, char *out);
/* "1.5 MiB"; writes into out[32]. */
const char *cli_size_text(uint64_t bytes, char *out);
uint64_t cli_now_ns(void);
/* The signal that asked to end (SIGINT, SIGTERM), or 0; 0 behind cli_committed(). */
int cli_interrupted(void);
/* What was asked for is done and stands: a signal that comes now changes nothing. */
void cli_committed(void);

/* --- python_names.c --- */

/* Whether squirrel-core's and this package's Python halves lie in one folder of packages:
 * of the active virtual environment, or of the one that this command is in. Its path goes
 * to `out`. */
bool cli_python_names_clash(char *out, size_t size);
int cli_cancelled(struct sqrl_error *err);
/* Writes all of it to standard output; a signal ends it. */
SQRL_CHECK int cli_write(const void *data, size_t size, struct sqrl_error *err);

/* Prints a value that was put together as MessagePack as one line of JSON. */
int cli_print_json(const struct sqrl_bytes *value, FILE *file);

/* Calls `visit` for each option that a driver's or format's table declares, with a title
 * for its table: "reading, driver idx (IDX files ...)". A non-zero return stops. */
typedef int (*cli_option_fn)(void *arg, const char *title,
                             const struct sqrl_option *option);
int cli_each_option(const struct cli_args *args, cli_option_fn visit, void *arg);
/* One line of JSON for a sample, as the plan's projection shows it (NULL: whole). */
SQRL_CHECK int cli_sample_json(const struct sqrl_projection *projection,
                               const struct sqrl_block *block, uint32_t index,
                               struct sqrl_bytes *out, struct sqrl_error *err);

/* Short forms for putting reports together; they end the process when memory runs out. */
void cli_put_map(struct sqrl_bytes *out, size_t pairs);
void cli_put_array(struct sqrl_bytes *out, size_t items);
void cli_put_text(struct sqrl_bytes *out, const char *key, const char *value);
/* The first `size` bytes of `value`; null when there are none. */
void cli_put_part(struct sqrl_bytes *out, const char *key, const char *value,
                  size_t size);
void cli_put_number(struct sqrl_bytes *out, const char *key, uint64_t value);
void cli_put_real(struct sqrl_bytes *out, const char *key, double value);
void cli_put_key(struct sqrl_bytes *out, const char *key);

#endif
