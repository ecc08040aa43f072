/* mixed.c - --mix: several URLs as one stream. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sqrl/mixture.h>

struct mixed {
    struct sqrl_plan *plan[MAX_WORDS];
    double weight[MAX_WORDS];
    struct sqrl_mixture *mixture;
};

/* "0.8,0.2": one for each URL. */
static int read_weights(const struct cli_args *args, double *out,
                        struct sqrl_error *err) {
    const char *at = cli_value(args, "mix");
    size_t count = 0;
    for (bool more = true; more; at++) {
        char *end;
        errno = 0;
        double weight = strtod(at, &end);
        bool good = end > at && !errno && (*end == ',' || !*end);
        if (!good || count == args->words)
            break;
        out[count++] = weight;
        more = *end == ',';
        at = end;
        if (!more && count == args->words)
            return SQRL_OK;
    }
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "--mix wants a weight for each of the %zu URLs, separated by "
                          "commas: 0.8,0.2",
                          args->words);
}

static int read_options(const struct cli_args *args, struct sqrl_mixture_options *o,
                        struct sqrl_error *err) {
    static const char *const STOPS[] = {"first", "all", "forever"};
    const char *stop = cli_value(args, "stop");
    if (cli_value(args, "skip"))
        return sqrl_error_set(err, SQRL_E_INVALID, "--skip does not go with --mix");
    int code = cli_number(args, "mix-seed", 0, &o->seed, err);
    if (code == SQRL_OK)
        code = cli_number(args, "quota", 0, &o->quota, err);
    for (unsigned i = 0; code == SQRL_OK && stop; i++) {
        if (i == 3)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "--stop is first, all or forever, not \"%.40s\"", stop);
        o->stop = (enum sqrl_mixture_stop)i;
        if (strcmp(stop, STOPS[i]) == 0)
            break;
    }
    return code;
}

static int open_plans(const struct cli_args *args, struct mixed *mixed,
                      struct sqrl_error *err) {
    int code = SQRL_OK;
    for (size_t i = 0; i < args->words && code == SQRL_OK; i++) {
        if (strcmp(args->word[i], "-") == 0)
            return sqrl_error_set(
                err, SQRL_E_INVALID,
                "--mix needs files; standard input is taken as it comes");
        code = cli_plan(args, args->word[i], &mixed->plan[i], err);
    }
    return code;
}

static int run(const struct cli_args *args, struct mixed *mixed, struct cli_input *input,
               cli_sample_fn visit, void *arg, struct sqrl_error *err) {
    enum { SLICE_NS = 50 * 1000 * 1000 };
    bool unread = false;
    int code = SQRL_OK;
    while (code == SQRL_OK && input->take) {
        struct sqrl_mixed got = {0};
        while (!sqrl_mixture_wait(mixed->mixture, SLICE_NS) && !cli_interrupted())
            ;
        code = cli_interrupted() ? cli_cancelled(err)
                                 : sqrl_mixture_next(mixed->mixture, &got, err);
        if (code || !got.sample.block)
            break;
        input->url = args->word[got.plan];
        code = visit(arg, sqrl_plan_projection(mixed->plan[got.plan]), got.sample.block,
                     got.sample.index, err);
        unread = code != SQRL_OK;
        input->take--;
    }
    if (input->state_file) {
        int known =
            sqrl_mixture_state(mixed->mixture, unread, &input->state, code ? NULL : err);
        code = code ? code : known;
    }
    return code;
}

int cli_mix_each(const struct cli_args *args, struct cli_input *input,
                 cli_sample_fn visit, void *arg, struct sqrl_error *err) {
    struct sqrl_mixture_options options = {.size = sizeof options};
    *input = (struct cli_input){.url = args->word[0], .take = UINT64_MAX};
    struct mixed *mixed = calloc(1, sizeof *mixed);
    int code = mixed ? SQRL_OK : sqrl_error_set(err, SQRL_E_NO_MEMORY, "out of memory");
    if (code == SQRL_OK)
        code = read_weights(args, mixed->weight, err);
    if (code == SQRL_OK)
        code = read_options(args, &options, err);
    if (code == SQRL_OK)
        code = cli_number(args, "take", UINT64_MAX, &input->take, err);
    if (code == SQRL_OK)
        code = cli_number(args, "epoch", 0, &options.epoch, err);
    if (code == SQRL_OK)
        code = open_plans(args, mixed, err);
    if (code == SQRL_OK)
        code = cli_states_read(args, input, err);
    options.state = (const char *const *)input->from;
    options.states = input->from_count;
    if (code == SQRL_OK)
        code = sqrl_mixture_open(mixed->plan, mixed->weight, args->words, &options,
                                 &mixed->mixture, err);
    if (code == SQRL_OK)
        code = run(args, mixed, input, visit, arg, err);
    if (mixed)
        sqrl_mixture_close(mixed->mixture);
    for (size_t i = 0; mixed && i < args->words; i++)
        sqrl_plan_unref(mixed->plan[i]);
    free(mixed);
    return code;
}
