/* Where the command's samples come from: URLs, catalogs, standard input; and the plan
 * that the reading options make on top. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_open(const struct cli_args *args, const char *url, struct sqrl_source **out,
             struct sqrl_error *err) {
    const struct sqrl_settings settings = {args->settings, args->setting_count};
    if (strchr(url, '#'))
        return sqrl_catalog_open(args->context, url, out, err);
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

static int shuffle(struct sqrl_plan *plan, uint64_t seed, struct sqrl_plan **out,
                   struct sqrl_error *err) {
    return sqrl_plan_shuffle_all(plan, seed, 0, out, err);
}

static int add_number(const struct cli_args *args, const char *option, number_stage stage,
                      struct sqrl_plan **plan, struct sqrl_error *err) {
    uint64_t number;
    struct sqrl_plan *next = NULL;
    if (!cli_value(args, option))
        return SQRL_OK;
    if (!cli_number(args, option, 0, &number))
        return sqrl_error_set(err, SQRL_E_INVALID, "--%s is not usable", option);
    int code = stage(*plan, number, &next, err);
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
        code = add_number(args, "shuffle", shuffle, out, err);
    if (code == SQRL_OK)
        code = add_number(args, "skip", sqrl_plan_skip, out, err);
    if (code == SQRL_OK)
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

static int cancelled(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CANCELLED, "interrupted");
}

static int visit_block(const struct sqrl_block *block, cli_sample_fn visit, void *arg,
                       uint64_t *left, struct sqrl_error *err) {
    int code = SQRL_OK;
    for (uint32_t i = 0; i < block->count && *left && code == SQRL_OK; i++, (*left)--)
        code = visit(arg, NULL, block, i, err);
    return code;
}

/* Standard input: read until a buffer is full or the input ends, cut behind the last
 * whole sample, parse, keep the rest for the next block. Doubles the buffer for a large
 * sample. */
struct feed {
    struct sqrl_bytes rest;
    bool lines, known, end;
    uint64_t line;
};

enum { FEED_BYTES = 1 << 20 };

static int feed_fill(struct feed *feed, struct sqrl_error *err) {
    size_t want =
        feed->rest.size < FEED_BYTES ? FEED_BYTES - feed->rest.size : feed->rest.size;
    if (feed->rest.size > (UINT64_C(1) << 31))
        return sqrl_error_set(err, SQRL_E_LIMIT, "a sample of more than 2 GiB");
    int code = sqrl_bytes_reserve(&feed->rest, want, err);
    while (code == SQRL_OK && want && !feed->end) {
        ssize_t got = read(STDIN_FILENO, feed->rest.data + feed->rest.size, want);
        if (got < 0 && errno == EINTR && !cli_interrupted())
            continue;
        if (got < 0)
            return cli_interrupted() ? cancelled(err)
                                     : sqrl_error_set_errno(err, errno, "reading");
        feed->end = got == 0;
        feed->rest.size += (size_t)got;
        want -= (size_t)got;
    }
    return code;
}

/* JSON when the first byte can begin a JSON text and no MessagePack map. */
static void feed_sniff(struct feed *feed) {
    if (feed->known || !feed->rest.size)
        return;
    feed->known = true;
    feed->lines = strchr("{[\" \t\r\n", feed->rest.data[0]) != NULL;
    feed->line = 1;
}

static int feed_parse(struct feed *feed, struct sqrl_context *context,
                      struct sqrl_block **out, size_t *used, struct sqrl_error *err) {
    size_t size = feed->rest.size;
    *used = 0;
    if (feed->lines && !feed->end) {
        const uint8_t *last = memrchr(feed->rest.data, '\n', size);
        size = last ? (size_t)(last - feed->rest.data) + 1 : 0;
    }
    int code = sqrl_block_new(context, out, err);
    if (code == SQRL_OK)
        code = sqrl_buffer_new(context, size ? size : 1, &(*out)->bytes, err);
    if (code)
        return code;
    memcpy((*out)->bytes->data, feed->rest.data, size);
    (*out)->bytes->size = size;
    (*out)->line = feed->lines ? feed->line : 0;
    if (!feed->lines)
        return sqrl_block_parse_msgpack(*out, 0, feed->end ? NULL : used, NULL, err);
    *used = size;
    for (size_t i = 0; i < size; i++)
        feed->line += feed->rest.data[i] == '\n';
    return sqrl_block_parse_jsonl(*out, 0, SQRL_JSON_NAN, NULL, err);
}

static int each_of_input(struct sqrl_context *context, uint64_t left, cli_sample_fn visit,
                         void *arg, struct sqrl_error *err) {
    struct feed feed = {0};
    int code = SQRL_OK;
    while (code == SQRL_OK && !feed.end && left) {
        struct sqrl_block *block = NULL;
        size_t used = 0;
        code = feed_fill(&feed, err);
        feed_sniff(&feed);
        if (code == SQRL_OK && feed.rest.size)
            code = feed_parse(&feed, context, &block, &used, err);
        if (block && (code == SQRL_OK || block->count)) {
            int visited = visit_block(block, visit, arg, &left, code ? NULL : err);
            code = code ? code : visited;
        }
        sqrl_block_unref(block);
        if (code == SQRL_OK && !feed.end) {
            memmove(feed.rest.data, feed.rest.data + used, feed.rest.size - used);
            feed.rest.size -= used;
        }
        if (code == SQRL_OK && cli_interrupted())
            code = cancelled(err);
    }
    sqrl_bytes_reset(&feed.rest);
    return code ? sqrl_error_at(err, code, "standard input") : SQRL_OK;
}

static int each_of_plan(struct sqrl_plan *plan, cli_sample_fn visit, void *arg,
                        struct sqrl_error *err) {
    enum { SLICE_NS = 50 * 1000 * 1000 };
    struct sqrl_iterator *iterator = NULL;
    struct sqrl_run *run;
    int code = sqrl_iterator_open(plan, &iterator, err);
    while (code == SQRL_OK) {
        while (!sqrl_iterator_wait(iterator, SLICE_NS) && !cli_interrupted())
            ;
        if (cli_interrupted())
            code = cancelled(err);
        if (code == SQRL_OK)
            code = sqrl_iterator_next_run(iterator, &run, err);
        if (code || !run)
            break;
        for (uint32_t i = 0; i < run->count && code == SQRL_OK; i++)
            code = visit(arg, sqrl_plan_projection(plan), run->samples[i].block,
                         run->samples[i].index, err);
        sqrl_run_release(run);
    }
    sqrl_iterator_close(iterator);
    return code;
}

int cli_each_sample(const struct cli_args *args, const char *url, cli_sample_fn visit,
                    void *arg, struct sqrl_error *err) {
    struct sqrl_plan *plan = NULL;
    if (strcmp(url, "-") == 0) {
        static const char *const stages[] = {"where", "select", "drop", "shuffle",
                                             "skip"};
        for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
            if (cli_value(args, stages[i]))
                return sqrl_error_set(
                    err, SQRL_E_INVALID,
                    "--%s needs a file; standard input is read as it comes", stages[i]);
        uint64_t take;
        if (!cli_number(args, "take", UINT64_MAX, &take))
            return sqrl_error_set(err, SQRL_E_INVALID, "--take is not usable");
        return each_of_input(args->context, take, visit, arg, err);
    }
    int code = cli_plan(args, url, &plan, err);
    if (code == SQRL_OK)
        code = each_of_plan(plan, visit, arg, err);
    sqrl_plan_unref(plan);
    return code;
}
