/* Where the command's samples come from: URLs, catalogs, standard input; and the plan
 * that the reading options make on top. */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool declares(const struct cli_args *args, const char *url, const char *name) {
    const struct sqrl_fs_ops *fs = sqrl_fs_ops_for_url(args->context, url);
    for (const struct sqrl_option *o = fs ? fs->options : NULL; o && o->name; o++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

/* What no word's file system declares stays: the library knows it, or refuses it. */
struct sqrl_settings cli_settings(const struct cli_args *args, const char *url,
                                  struct sqrl_setting room[MAX_OPTIONS]) {
    size_t count = 0;
    for (size_t i = 0; i < args->setting_count; i++) {
        bool others = false;
        for (size_t w = 0; w < args->words && !others; w++)
            others = declares(args, args->word[w], args->settings[i].name);
        if (!others || declares(args, url, args->settings[i].name))
            room[count++] = args->settings[i];
    }
    return (struct sqrl_settings){room, count};
}

bool cli_names_source(const char *url) {
    return *url == '#' || strstr(url, ".yaml#") || strstr(url, ".yml#") ||
           strstr(url, ".json#");
}

int cli_open(const struct cli_args *args, const char *url, struct sqrl_source **out,
             struct sqrl_error *err) {
    struct sqrl_setting room[MAX_OPTIONS];
    const struct sqrl_settings settings = cli_settings(args, url, room);
    if (cli_names_source(url))
        return sqrl_catalog_open(args->context, url, &settings, out, err);
    return sqrl_open(args->context, url, &settings, out, err);
}

enum { MAX_NAMES = 256 };

/* "a,b,c" in place into names; 0 when there are too many. */
static size_t split_names(char *text, const char **names) {
    size_t count = 0;
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        if (count == MAX_NAMES)
            return 0;
        names[count++] = name;
    }
    return count;
}

typedef int (*names_stage)(struct sqrl_plan *, const char *const *, size_t,
                           struct sqrl_plan **, struct sqrl_error *);

/* Replaces *plan by what a stage made of it. */
static int advance(struct sqrl_plan **plan, struct sqrl_plan *next, int code) {
    if (code == SQRL_OK) {
        sqrl_plan_unref(*plan);
        *plan = next;
    }
    return code;
}

static int add_names(const struct cli_args *args, const char *option, names_stage stage,
                     struct sqrl_plan **plan, struct sqrl_error *err) {
    const char *given = cli_value(args, option), *names[MAX_NAMES];
    if (!given)
        return SQRL_OK;
    char *text = strdup(given);
    if (!text)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "out of memory");
    size_t count = split_names(text, names);
    struct sqrl_plan *next = NULL;
    int code = count ? stage(*plan, names, count, &next, err)
                     : sqrl_error_set(err, SQRL_E_INVALID,
                                      "--%s wants 1 to %d names, separated by commas",
                                      option, MAX_NAMES);
    free(text);
    return advance(plan, next, code);
}

typedef int (*number_stage)(struct sqrl_plan *, uint64_t, struct sqrl_plan **,
                            struct sqrl_error *);

static int add_number(const struct cli_args *args, const char *option, number_stage stage,
                      struct sqrl_plan **plan, struct sqrl_error *err) {
    uint64_t number;
    struct sqrl_plan *next = NULL;
    if (!cli_value(args, option))
        return SQRL_OK;
    int code = cli_number(args, option, 0, &number, err);
    if (code == SQRL_OK)
        code = stage(*plan, number, &next, err);
    return advance(plan, next, code);
}

static int add_rank(const struct cli_args *args, struct sqrl_plan **plan,
                    struct sqrl_error *err) {
    static const char *const TAILS[] = {"pad", "drop", "uneven"};
    struct sqrl_distribute_options o = {.size = sizeof o, .tail = SQRL_TAIL_UNEVEN};
    const char *tail = cli_value(args, "tail");
    struct sqrl_plan *next = NULL;
    if (!cli_value(args, "rank") && !cli_value(args, "world-size"))
        return SQRL_OK;
    int code = cli_number(args, "rank", 0, &o.topology.rank, err);
    if (code == SQRL_OK)
        code = cli_number(args, "world-size", 0, &o.topology.world_size, err);
    if (code == SQRL_OK && !o.topology.world_size)
        code = sqrl_error_set(err, SQRL_E_INVALID,
                              "--rank and --world-size are given together");
    for (unsigned t = 0; code == SQRL_OK && tail && t <= 3; t++) {
        if (t == 3)
            code = sqrl_error_set(err, SQRL_E_INVALID,
                                  "--tail is pad, drop or uneven, not \"%.40s\"", tail);
        else if (strcmp(tail, TAILS[t]) == 0) {
            o.tail = (enum sqrl_tail)t;
            break;
        }
    }
    if (code == SQRL_OK)
        code = sqrl_plan_distribute(*plan, &o, &next, err);
    return advance(plan, next, code);
}

static int add_shuffle(const struct cli_args *args, struct sqrl_plan **plan,
                       struct sqrl_error *err) {
    const char *given = cli_value(args, "window");
    uint64_t seed, window = 0;
    struct sqrl_plan *next = NULL;
    if (!cli_value(args, "shuffle"))
        return given ? sqrl_error_set(err, SQRL_E_INVALID, "--window is of --shuffle")
                     : SQRL_OK;
    int code = cli_number(args, "shuffle", 0, &seed, err);
    if (code == SQRL_OK && given && strcmp(given, "none") == 0)
        window = SQRL_SINGLE_SAMPLES;
    else if (code == SQRL_OK)
        code = cli_size(args, "window", &window, err);
    if (code == SQRL_OK)
        code = sqrl_plan_shuffle_all(*plan, seed, window, &next, err);
    return advance(plan, next, code);
}

int cli_plan(const struct cli_args *args, const char *url, struct sqrl_plan **out,
             struct sqrl_error *err) {
    struct sqrl_source *source = NULL;
    struct sqrl_plan *next = NULL;
    *out = NULL;
    int code = cli_open(args, url, &source, err);
    if (code == SQRL_OK)
        code = sqrl_plan_source(source, out, err);
    sqrl_source_unref(source);
    const char *where = cli_value(args, "where");
    if (code == SQRL_OK && where) {
        code = sqrl_plan_filter(*out, where, &next, err);
        code = advance(out, next, code);
    }
    if (code == SQRL_OK)
        code = add_shuffle(args, out, err);
    if (code == SQRL_OK)
        code = add_rank(args, out, err);
    if (code == SQRL_OK)
        code = add_number(args, "skip", sqrl_plan_skip, out, err);
    /* else of this call, not of all; or of the mixture */
    if (code == SQRL_OK && !cli_value(args, "state") && !cli_value(args, "mix"))
        code = add_number(args, "take", sqrl_plan_take, out, err);
    if (code == SQRL_OK)
        code = add_names(args, "select", sqrl_plan_select, out, err);
    if (code == SQRL_OK)
        code = add_names(args, "drop", sqrl_plan_drop, out, err);
    if (code) {
        sqrl_plan_unref(*out);
        *out = NULL;
    }
    return code;
}

/* --- standard input --- */
/* Read until a buffer is full or the input makes wait, cut behind the last whole sample,
 * parse, keep the rest for the next block. Doubles the buffer for a large sample. */
struct feed {
    struct sqrl_bytes rest;
    bool lines, known, end, waits;
    uint64_t line, origin; /* of the first byte of rest */
};

enum { FEED_BYTES = 1 << 20, POLL_MS = 100 };

/* Waits for input, so that Ctrl-C ends it even between two reads. */
static int wait_for_input(struct sqrl_error *err) {
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    while (!cli_interrupted() && poll(&input, 1, POLL_MS) == 0)
        ;
    return cli_interrupted() ? cli_cancelled(err) : SQRL_OK;
}

static bool input_is_ready(void) {
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, 0) != 0;
}

static int feed_fill(struct feed *feed, struct sqrl_error *err) {
    size_t want =
        feed->rest.size < FEED_BYTES ? FEED_BYTES - feed->rest.size : feed->rest.size;
    if (feed->rest.size > (UINT64_C(1) << 31))
        return sqrl_error_set(err, SQRL_E_LIMIT, "a sample of more than 2 GiB");
    int code = sqrl_bytes_reserve(&feed->rest, want, err);
    feed->waits = false;
    while (code == SQRL_OK && want && !feed->end && !feed->waits) {
        if ((code = wait_for_input(err)))
            break;
        ssize_t got = read(STDIN_FILENO, feed->rest.data + feed->rest.size, want);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sqrl_error_set_errno(err, errno, "can't be read");
        feed->end = got == 0;
        feed->rest.size += (size_t)got;
        want -= (size_t)got;
        feed->waits = !feed->end && !input_is_ready();
    }
    return code;
}

/* JSON lines are texts; a MessagePack map or list begins with a byte above 127. */
static int feed_sniff(struct feed *feed, struct sqrl_error *err) {
    static const struct {
        const char *magic, *program;
    } packed[] = {
        {"\x1f\x8b", "gzip"}, {"\x28\xb5\x2f\xfd", "zstd"}, {"\x04\x22\x4d\x18", "lz4"}};
    if (feed->known || feed->rest.size < 4)
        return SQRL_OK;
    feed->known = true;
    feed->lines = feed->rest.data[0] < 128;
    feed->line = 1;
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (memcmp(feed->rest.data, packed[i].magic, strlen(packed[i].magic)) == 0)
            return sqrl_error_set(err, SQRL_E_FORMAT,
                                  "it is compressed; unpack it before: %s -dc FILE | "
                                  "squirrel ... -",
                                  packed[i].program);
    return SQRL_OK;
}

/* How much of the rest can be parsed: all of it, or the whole lines. */
static size_t feed_whole(const struct feed *feed) {
    if (feed->end || !feed->lines)
        return feed->rest.size;
    const uint8_t *last = memrchr(feed->rest.data, '\n', feed->rest.size);
    return last ? (size_t)(last - feed->rest.data) + 1 : 0;
}

/* *out may be set on failure: the samples before the fault. */
static int feed_parse(struct feed *feed, struct sqrl_context *context,
                      struct sqrl_block **out, size_t *used, struct sqrl_error *err) {
    size_t size = feed_whole(feed);
    *used = 0;
    int code = sqrl_block_new(context, out, err);
    if (code == SQRL_OK)
        code = sqrl_buffer_new(context, size ? size : 1, &(*out)->bytes, err);
    if (code)
        return code;
    memcpy((*out)->bytes->data, feed->rest.data, size);
    (*out)->bytes->size = size;
    (*out)->line = feed->lines ? feed->line : 0;
    (*out)->origin = feed->origin;
    *used = size;
    if (!feed->lines)
        return sqrl_block_parse_msgpack(*out, 0, feed->end ? NULL : used, NULL, err);
    for (size_t i = 0; i < size; i++)
        feed->line += feed->rest.data[i] == '\n';
    return sqrl_block_parse_jsonl(*out, 0, SQRL_JSON_NAN, NULL, err);
}

static void feed_advance(struct feed *feed, size_t used) {
    memmove(feed->rest.data, feed->rest.data + used, feed->rest.size - used);
    feed->rest.size -= used;
    feed->origin += used;
}

static int visit_block(const struct sqrl_block *block, cli_sample_fn visit, void *arg,
                       uint64_t *left, struct sqrl_error *err) {
    int code = SQRL_OK;
    for (uint32_t i = 0; i < block->count && *left && code == SQRL_OK; i++, (*left)--)
        code = visit(arg, NULL, block, i, err);
    return code;
}

/* One step: what is there now goes to `visit`, then the fault, if there is one. */
static int feed_step(struct feed *feed, struct sqrl_context *context, cli_sample_fn visit,
                     void *arg, uint64_t *left, struct sqrl_error *err) {
    struct sqrl_block *block = NULL;
    struct sqrl_error fault = {0};
    size_t used = 0;
    int code = feed_fill(feed, err);
    if (code == SQRL_OK)
        code = feed_sniff(feed, err);
    if (code || !feed->rest.size || (!feed->known && !feed->end))
        return code;
    if (!feed->known)
        feed->lines = feed->rest.data[0] < 128;
    int parsed = feed_parse(feed, context, &block, &used, &fault);
    if (block)
        code = visit_block(block, visit, arg, left, err);
    sqrl_block_unref(block);
    if (code == SQRL_OK && parsed && *left) {
        if (err)
            *err = fault;
        return parsed;
    }
    feed_advance(feed, used);
    if (code == SQRL_OK && feed->waits)
        code = visit(arg, NULL, NULL, 0, err);
    return code;
}

static int each_of_input(struct sqrl_context *context, uint64_t left, cli_sample_fn visit,
                         void *arg, struct sqrl_error *err) {
    struct feed feed = {.line = 1};
    int code = SQRL_OK;
    while (code == SQRL_OK && !feed.end && left) {
        code = feed_step(&feed, context, visit, arg, &left, err);
        if (code == SQRL_OK && cli_interrupted())
            code = cli_cancelled(err);
    }
    sqrl_bytes_reset(&feed.rest);
    return code ? sqrl_error_at(err, code, "standard input") : SQRL_OK;
}

/* --- plans --- */
/* Visits samples of a run, at most input->take; *unread of it are left. */
static int visit_run(struct cli_input *input, const struct sqrl_projection *projection,
                     const struct sqrl_run *run, cli_sample_fn visit, void *arg,
                     uint64_t *unread, struct sqrl_error *err) {
    int code = SQRL_OK;
    uint32_t i = 0;
    for (; i < run->count && input->take && code == SQRL_OK; i++, input->take--)
        code = visit(arg, projection, run->samples[i].block, run->samples[i].index, err);
    *unread = run->count - i;
    return code;
}

static int each_of_plan(struct cli_input *input, cli_sample_fn visit, void *arg,
                        struct sqrl_error *err) {
    enum { SLICE_NS = 50 * 1000 * 1000 };
    const struct sqrl_projection *projection = sqrl_plan_projection(input->plan);
    struct sqrl_iterator_options options = {.size = sizeof options,
                                            .epoch = input->epoch,
                                            .state = (const char *const *)input->from,
                                            .states = input->from_count};
    struct sqrl_iterator *iterator = NULL;
    uint64_t unread = 0;
    int code = sqrl_iterator_start(input->plan, &options, &iterator, err);
    while (code == SQRL_OK && input->take) {
        struct sqrl_run *run = NULL;
        while (!sqrl_iterator_wait(iterator, SLICE_NS) && !cli_interrupted())
            ;
        code = cli_interrupted() ? cli_cancelled(err)
                                 : sqrl_iterator_next_run(iterator, &run, err);
        if (code || !run)
            break;
        code = visit_run(input, projection, run, visit, arg, &unread, err);
        sqrl_run_release(run);
    }
    if (input->state_file && iterator) {
        int known =
            sqrl_iterator_state(iterator, unread, &input->state, code ? NULL : err);
        code = code ? code : known;
    }
    sqrl_iterator_close(iterator);
    return code;
}

/* --- both --- */
static int open_standard_input(const struct cli_args *args, struct cli_input *out,
                               struct sqrl_error *err) {
    static const char *const stages[] = {"where", "select", "drop",       "shuffle",
                                         "skip",  "rank",   "world-size", "state",
                                         "from",  "mix"};
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        if (cli_value(args, stages[i]))
            return sqrl_error_set(
                err, SQRL_E_INVALID,
                "--%s needs a file; standard input is taken as it comes", stages[i]);
    if (args->setting_count)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "--%s needs a file; standard input is JSON lines or "
                              "MessagePack",
                              args->settings[0].name);
    return cli_number(args, "take", UINT64_MAX, &out->take, err);
}

int cli_input_open(const struct cli_args *args, const char *url, struct cli_input *out,
                   struct sqrl_error *err) {
    *out = (struct cli_input){.url = url, .take = UINT64_MAX};
    if (strcmp(url, "-") == 0)
        return open_standard_input(args, out, err);
    out->state_file = cli_value(args, "state");
    int code = cli_plan(args, url, &out->plan, err);
    if (code == SQRL_OK)
        code = cli_number(args, "epoch", 0, &out->epoch, err);
    if (code == SQRL_OK && out->state_file)
        code = cli_number(args, "take", UINT64_MAX, &out->take, err);
    if (code == SQRL_OK)
        code = cli_states_read(args, out, err);
    return code;
}

void cli_input_close(struct cli_input *input) {
    sqrl_plan_unref(input->plan);
    input->plan = NULL;
    cli_states_free(input);
}

int cli_input_each(const struct cli_args *args, struct cli_input *input,
                   cli_sample_fn visit, void *arg, struct sqrl_error *err) {
    return input->plan ? each_of_plan(input, visit, arg, err)
                       : each_of_input(args->context, input->take, visit, arg, err);
}
