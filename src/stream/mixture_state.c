/* mixture_state.c - states of mixtures: their text, and what those of all ranks and
 * workers are together.
 *
 * For each pass of a plan the states of all are brought together: whoever had begun the
 * next pass has nothing left of the one before, and who had not has all of its share of
 * the next. Those two are made of a state that somebody has in that pass. */
#include "stream/mixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "stream/state.h"

#define VERSION 2u
#define MOST_APART 10000u /* passes that ranks may be apart */
#define LLU(x) ((unsigned long long)(x))

static const char *const STOPS[] = {"first", "all", "forever"};

void sqrl_pass_reset(struct sqrl_pass *pass) {
    for (size_t i = 0; i < pass->states; i++)
        free(pass->state[i]);
    free(pass->state);
    memset(pass, 0, sizeof *pass);
}

void sqrl_mixture_saved_reset(struct sqrl_mixture_saved *saved) {
    for (uint32_t i = 0; saved->standing && i < saved->count; i++) {
        struct sqrl_standing *s = &saved->standing[i];
        sqrl_pass_reset(&s->now);
        for (size_t b = 0; b < s->passes; b++)
            sqrl_pass_reset(&s->begun[b]);
        free(s->begun);
    }
    free(saved->standing);
    free(saved->weight);
    free(saved->drawn);
    free(saved->before);
    memset(saved, 0, sizeof *saved);
}

/* --- writing --- */

struct writer {
    struct sqrl_bytes text;
    struct sqrl_error *err;
    int code;
};

static void put(struct writer *w, const char *text) {
    if (!w->code)
        w->code = sqrl_bytes_append(&w->text, text, strlen(text), w->err);
}

static void put_number(struct writer *w, const char *before, uint64_t v) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    put(w, before);
    put(w, text);
}

static void put_numbers(struct writer *w, const char *before, const uint64_t *v,
                        uint32_t count) {
    put(w, before);
    for (uint32_t i = 0; i < count; i++)
        put_number(w, i ? ", " : "[", v[i]);
    put(w, "]");
}

/* 17 digits read back as the same double; ".0" where it would be an integer. */
static void put_weights(struct writer *w, const double *weight, uint32_t count) {
    put(w, ", \"weights\": ");
    for (uint32_t i = 0; i < count; i++) {
        char text[40];
        snprintf(text, sizeof text, "%.17g", weight[i]);
        put(w, i ? ", " : "[");
        put(w, text);
        put(w, strpbrk(text, ".e") ? "" : ".0");
    }
    put(w, "]");
}

static void put_standing(struct writer *w, const struct sqrl_standing *s) {
    put_number(w, "{\"pass\": ", s->now.pass);
    put_number(w, ", \"taken\": ", s->taken);
    put(w, ", \"state\": ");
    put(w, s->now.state[0]);
    put(w, ", \"begun\": [");
    for (size_t i = 0; i < s->passes; i++) {
        put_number(w, i ? ", {\"pass\": " : "{\"pass\": ", s->begun[i].pass);
        put(w, ", \"state\": ");
        put(w, s->begun[i].state[0]);
        put(w, "}");
    }
    put(w, "]}");
}

int sqrl_mixture_write(const struct sqrl_mixture_plan *plan,
                       const struct sqrl_mixture_saved *saved, char **out,
                       struct sqrl_error *err) {
    struct writer w = {.err = err};
    put_number(&w, "{\"squirrel_several\": ", VERSION);
    put_number(&w, ", \"kind\": \"mix\", \"streams\": ", plan->count);
    put_number(&w, ", \"seed\": ", plan->options->seed);
    put_number(&w, ", \"quota\": ", plan->options->quota);
    put(&w, plan->options->independent ? ", \"independent\": true, \"stop\": \""
                                       : ", \"independent\": false, \"stop\": \"");
    put(&w, STOPS[plan->options->stop]);
    put_number(&w, "\", \"epoch\": ", saved->epoch);
    put(&w, saved->finished ? ", \"finished\": true" : ", \"finished\": false");
    put_weights(&w, saved->weight, plan->count);
    put_number(&w, ", \"changes\": ", saved->changes);
    put_numbers(&w, ", \"drawn\": ", saved->drawn, plan->count);
    put_numbers(&w, ", \"before\": ", saved->before, plan->count);
    for (uint32_t i = 0; i < plan->count; i++) {
        put(&w, i ? ", " : ", \"parts\": [");
        put_standing(&w, &saved->standing[i]);
    }
    put(&w, "]}");
    if (!w.code)
        w.code = sqrl_bytes_append(&w.text, "", 1, err);
    if (w.code)
        sqrl_bytes_reset(&w.text);
    *out = (char *)w.text.data;
    return w.code;
}

/* --- reading one --- */

struct parse {
    struct sqrl_tape tape;
    uint8_t *bytes;
    uint32_t root; /* the state's node */
    struct sqrl_error *err;
    int code;
};

static void parse_reset(struct parse *p) {
    sqrl_tape_reset(&p->tape);
    free(p->bytes);
}

static void parse_text(struct parse *p, const char *text, struct sqrl_error *err) {
    static const struct sqrl_limits LIMITS = {.max_depth = 16};
    size_t size = strlen(text), offset = 0;
    *p = (struct parse){.err = err};
    if (size > SQRL_MAX_STATE_BYTES) {
        p->code = sqrl_error_set(err, SQRL_E_LIMIT, "a state of more than 1 GiB");
        return;
    }
    p->bytes = sqrl_malloc(size + 1, "state", err);
    if (!p->bytes) {
        p->code = SQRL_E_NO_MEMORY;
        return;
    }
    memcpy(p->bytes, text, size + 1);
    p->code = sqrl_json_decode(&p->tape, p->bytes, size, &offset, SQRL_JSON_NO_ARRAYS,
                               &LIMITS, err);
    if (!p->code && (offset != size || p->tape.nodes[0].type != SQRL_MAP))
        p->code = sqrl_error_set(err, SQRL_E_CORRUPT, "is no JSON object");
    if (p->code)
        p->code = sqrl_error_at(err, p->code, "the state");
}

static void bad(struct parse *p, const char *what) {
    if (!p->code)
        p->code =
            sqrl_error_set(p->err, SQRL_E_CORRUPT,
                           "the state's %s is missing or wrong: it is no state of a "
                           "mixture, or was damaged",
                           what);
}

/* SQRL_NO_NODE with an error when it is not there. */
static uint32_t find(struct parse *p, uint32_t map, const char *key) {
    uint32_t node = SQRL_NO_NODE;
    if (!p->code && map != SQRL_NO_NODE && p->tape.nodes[map].type == SQRL_MAP)
        node = sqrl_map_find(p->tape.nodes, map, p->bytes, key, strlen(key));
    if (node == SQRL_NO_NODE)
        bad(p, key);
    return node;
}

static bool is_count(const struct sqrl_node *node) {
    return node->type == SQRL_UINT || (node->type == SQRL_INT && node->v.i >= 0);
}

static uint64_t number(struct parse *p, uint32_t map, const char *key) {
    uint32_t node = find(p, map, key);
    if (node == SQRL_NO_NODE || is_count(&p->tape.nodes[node]))
        return node == SQRL_NO_NODE ? 0 : p->tape.nodes[node].v.u;
    bad(p, key);
    return 0;
}

/* Python wraps a pass of a stream with or without stages behind. */
static void unwrap(struct parse *p) {
    const struct sqrl_node *nodes = p->tape.nodes;
    uint32_t chain = SQRL_NO_NODE;
    if (!p->code)
        chain =
            sqrl_map_find(nodes, 0, p->bytes, "squirrel_chain", strlen("squirrel_chain"));
    if (chain == SQRL_NO_NODE)
        return;
    uint32_t stages = find(p, 0, "stages"), native = find(p, 0, "native");
    if (p->code)
        return;
    if (number(p, 0, "skip") || nodes[stages].type != SQRL_ARRAY || nodes[stages].size)
        p->code = sqrl_error_set(p->err, SQRL_E_STATE,
                                 "the state is of a stream with stages behind the "
                                 "mixture, which only Python has");
    else if (nodes[native].type != SQRL_MAP)
        bad(p, "native");
    p->root = native;
}

static bool truth(struct parse *p, const char *key) {
    uint32_t node = find(p, p->root, key);
    if (node != SQRL_NO_NODE && p->tape.nodes[node].type != SQRL_BOOL)
        bad(p, key);
    return !p->code && p->tape.nodes[node].v.u;
}

static bool is_text(struct parse *p, const char *key, const char *wanted) {
    uint32_t node = find(p, p->root, key);
    if (p->code)
        return false;
    const struct sqrl_node *n = &p->tape.nodes[node];
    return n->type == SQRL_STRING && n->size == strlen(wanted) &&
           memcmp(p->bytes + n->v.offset, wanted, n->size) == 0;
}

/* The first item of a list of `count` (or, where that is SQRL_UNKNOWN, any number of). */
static uint32_t list(struct parse *p, uint32_t map, const char *key, uint64_t count,
                     uint32_t *items) {
    uint32_t node = find(p, map, key);
    *items = 0;
    if (node == SQRL_NO_NODE)
        return 0;
    const struct sqrl_node *n = &p->tape.nodes[node];
    if (n->type != SQRL_ARRAY || (count != SQRL_UNKNOWN && n->size != count))
        bad(p, key);
    else
        *items = n->size;
    return node + 1;
}

static void read_counts(struct parse *p, const char *key, uint64_t *out, uint32_t count) {
    uint32_t items, node = list(p, p->root, key, count, &items);
    for (uint32_t i = 0; i < items && !p->code; i++, node++) {
        if (!is_count(&p->tape.nodes[node]))
            bad(p, key);
        out[i] = p->tape.nodes[node].v.u;
    }
}

static void read_weights(struct parse *p, double *out, uint32_t count) {
    uint32_t items, node = list(p, p->root, "weights", count, &items);
    for (uint32_t i = 0; i < items && !p->code; i++, node++) {
        const struct sqrl_node *n = &p->tape.nodes[node];
        if (n->type != SQRL_FLOAT && !is_count(n))
            bad(p, "weights");
        out[i] = n->type == SQRL_FLOAT ? n->v.f : (double)n->v.u;
    }
}

/* The text of a node, as the only state of a pass; null: none. */
static void read_state(struct parse *p, uint32_t map, struct sqrl_pass *out) {
    struct sqrl_bytes text = {0};
    uint32_t node = find(p, map, "state");
    out->pass = number(p, map, "pass");
    if (p->code || p->tape.nodes[node].type == SQRL_NULL)
        return;
    if (p->tape.nodes[node].type != SQRL_MAP) {
        bad(p, "state");
        return;
    }
    p->code = sqrl_json_encode(&text, p->tape.nodes, node, p->bytes, p->err);
    if (!p->code)
        p->code = sqrl_bytes_append(&text, "", 1, p->err);
    out->state = p->code ? NULL : sqrl_calloc(1, sizeof *out->state, "state", p->err);
    if (!out->state) {
        sqrl_bytes_reset(&text);
        p->code = p->code ? p->code : SQRL_E_NO_MEMORY;
        return;
    }
    out->state[0] = (char *)text.data;
    out->states = 1;
}

static void read_standing(struct parse *p, uint32_t map, struct sqrl_standing *out) {
    uint32_t items, node = list(p, map, "begun", SQRL_UNKNOWN, &items);
    out->taken = number(p, map, "taken");
    read_state(p, map, &out->now);
    if (items > MOST_APART)
        bad(p, "begun");
    if (p->code)
        return;
    out->begun = sqrl_calloc((size_t)items + 1, sizeof *out->begun, "state", p->err);
    if (!out->begun)
        p->code = SQRL_E_NO_MEMORY;
    for (uint32_t i = 0; i < items && !p->code; i++) {
        out->passes = i + 1;
        read_state(p, node, &out->begun[i]);
        if (!p->code && (!out->begun[i].states ||
                         out->begun[i].pass <= (i ? out->begun[i - 1] : out->now).pass))
            bad(p, "begun");
        node = p->code ? 0 : sqrl_node_next(p->tape.nodes, node);
    }
}

/* Which consumer the state of a native iterator is of; 0 consumers: of none. */
static void read_share(struct parse *p, uint32_t state, uint64_t *consumers,
                       uint64_t *consumer) {
    *consumers = *consumer = 0;
    uint32_t share =
        p->code || p->tape.nodes[state].type != SQRL_MAP
            ? SQRL_NO_NODE
            : sqrl_map_find(p->tape.nodes, state, p->bytes, "share", strlen("share"));
    if (share == SQRL_NO_NODE)
        return;
    *consumers = number(p, share, "consumers");
    *consumer = number(p, share, "consumer");
}

static void differs(struct parse *p, const char *what) {
    if (!p->code)
        p->code = sqrl_error_set(p->err, SQRL_E_STATE,
                                 "the state is of a mixture with other %s: open it as it "
                                 "was, or begin without the state",
                                 what);
}

static void check_plan(struct parse *p, const struct sqrl_mixture_plan *plan) {
    uint64_t version = number(p, p->root, "squirrel_several");
    if (!p->code && version != VERSION)
        p->code = sqrl_error_set(p->err, SQRL_E_UNSUPPORTED,
                                 "a state of several streams of version %llu; this "
                                 "squirrel knows version %u",
                                 LLU(version), VERSION);
    if (!is_text(p, "kind", "mix"))
        differs(p, "ways of drawing (it is no mix)");
    if (number(p, p->root, "streams") != plan->count)
        differs(p, "numbers of plans");
    if (number(p, p->root, "seed") != plan->options->seed)
        differs(p, "seeds");
    if (number(p, p->root, "quota") != plan->options->quota)
        differs(p, "quotas");
    if (truth(p, "independent") != plan->options->independent)
        differs(p, "ways of drawing (independent)");
    if (!is_text(p, "stop", STOPS[plan->options->stop]))
        differs(p, "stops");
}

static void read_parts(struct parse *p, struct sqrl_mixture_saved *out) {
    uint32_t items, node = list(p, p->root, "parts", out->count, &items);
    for (uint32_t i = 0; i < items && !p->code; i++) {
        read_standing(p, node, &out->standing[i]);
        uint32_t state = find(p, node, "state");
        if (!out->consumers)
            read_share(p, state, &out->consumers, &out->consumer);
        node = p->code ? 0 : sqrl_node_next(p->tape.nodes, node);
    }
}

static int read_one(const struct sqrl_mixture_plan *plan, const char *text,
                    struct sqrl_mixture_saved *out, struct sqrl_error *err) {
    struct parse p;
    parse_text(&p, text, err);
    unwrap(&p);
    if (!p.code)
        check_plan(&p, plan);
    out->count = plan->count;
    out->weight = sqrl_calloc(plan->count, sizeof *out->weight, "state", err);
    out->drawn = sqrl_calloc(plan->count, sizeof *out->drawn, "state", err);
    out->before = sqrl_calloc(plan->count, sizeof *out->before, "state", err);
    out->standing = sqrl_calloc(plan->count, sizeof *out->standing, "state", err);
    if (!p.code && !(out->weight && out->drawn && out->before && out->standing))
        p.code = SQRL_E_NO_MEMORY;
    if (!p.code) {
        out->epoch = number(&p, p.root, "epoch");
        out->changes = number(&p, p.root, "changes");
        out->finished = truth(&p, "finished");
        read_weights(&p, out->weight, plan->count);
        read_counts(&p, "drawn", out->drawn, plan->count);
        read_counts(&p, "before", out->before, plan->count);
        read_parts(&p, out);
    }
    for (uint32_t i = 0; i < plan->count && !p.code; i++)
        if (__builtin_add_overflow(out->sum, out->drawn[i], &out->sum))
            bad(&p, "drawn");
    if (!p.code && out->epoch >> 32)
        bad(&p, "epoch");
    parse_reset(&p);
    return p.code;
}

/* --- those of all ranks and workers --- */

/* How an edge differs from the state that it is made of. */
struct edge {
    uint64_t back; /* epochs */
    uint64_t consumer;
    bool ended; /* all of the pass was given; else nothing yet */
};

static bool key_is(const struct parse *p, uint32_t node, const char *key) {
    const struct sqrl_node *n = &p->tape.nodes[node];
    return n->type == SQRL_STRING && n->size == strlen(key) &&
           memcmp(p->bytes + n->v.offset, key, n->size) == 0;
}

static void put_node(struct writer *w, const struct parse *p, uint32_t node) {
    if (!w->code)
        w->code = sqrl_json_encode(&w->text, p->tape.nodes, node, p->bytes, w->err);
}

/* A map with some of its values replaced by those of `value`, or by `sub`. */
static void put_changed(struct writer *w, struct parse *p, uint32_t map,
                        const struct edge *edge, bool share) {
    char epoch[24], consumer[24];
    const struct {
        const char *key, *value;
    } change[] = {{"consumer", consumer},
                  {"left", "[]"},
                  {"at", "0"},
                  {"window", edge->ended ? "null" : "0"},
                  {"pass", "0"},
                  {"quota", "null"},
                  {"epoch", epoch}};
    enum { OF_SHARE = 6, CHANGES = 7 };
    uint64_t was = share ? edge->back : number(p, map, "epoch");
    if (was < edge->back)
        bad(p, "epoch");
    snprintf(epoch, sizeof epoch, "%" PRIu64, was - edge->back);
    snprintf(consumer, sizeof consumer, "%" PRIu64, edge->consumer);
    uint32_t node = map + 1, pairs = p->tape.nodes[map].size;
    for (uint32_t i = 0; i < pairs && !p->code; i++) {
        uint32_t key = node, value = node + 1;
        const char *text = NULL;
        for (unsigned c = share ? 0 : OF_SHARE; c < (share ? OF_SHARE : CHANGES); c++)
            if (key_is(p, key, change[c].key))
                text = change[c].value;
        put(w, i ? ", " : "{");
        put_node(w, p, key);
        put(w, ": ");
        if (text)
            put(w, text);
        else if (!share && key_is(p, key, "share") &&
                 p->tape.nodes[value].type == SQRL_MAP)
            put_changed(w, p, value, edge, true);
        else
            put_node(w, p, value);
        node = sqrl_node_next(p->tape.nodes, value);
    }
    put(w, "}");
}

static int make_edge(const char *pattern, const struct edge *edge, char **out,
                     struct sqrl_error *err) {
    struct writer w = {.err = err};
    struct parse p;
    *out = NULL;
    parse_text(&p, pattern, err);
    if (!p.code)
        put_changed(&w, &p, 0, edge, false);
    if (!p.code && !w.code)
        w.code = sqrl_bytes_append(&w.text, "", 1, err);
    int code = p.code ? p.code : w.code;
    parse_reset(&p);
    if (code)
        sqrl_bytes_reset(&w.text);
    *out = (char *)w.text.data;
    return code;
}

/* The state that one of them has in a pass; NULL: none. */
static const char *standing_in(const struct sqrl_standing *s, uint64_t pass) {
    if (s->now.pass == pass)
        return s->now.states ? s->now.state[0] : NULL;
    for (size_t i = 0; i < s->passes; i++)
        if (s->begun[i].pass == pass)
            return s->begun[i].state[0];
    return NULL;
}

static int gather_pass(const struct sqrl_mixture_saved *saved, size_t count, uint32_t i,
                       uint64_t pass, uint64_t high, struct sqrl_pass *out,
                       struct sqrl_error *err) {
    const char *pattern = NULL;
    struct edge edge = {0};
    for (size_t n = 0; n < count && !pattern; n++)
        pattern = standing_in(&saved[n].standing[i], pass);
    for (size_t n = 0; n < count && !pattern; n++) {
        pattern = standing_in(&saved[n].standing[i], high);
        edge.back = high - pass;
    }
    out->pass = pass;
    out->state = sqrl_calloc(count, sizeof *out->state, "states", err);
    int code = out->state ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t n = 0; n < count && !code; n++) {
        const char *own = standing_in(&saved[n].standing[i], pass);
        edge.consumer = saved[n].consumer;
        edge.ended = saved[n].standing[i].now.pass > pass;
        out->states = n + 1;
        if (!own)
            code = make_edge(pattern, &edge, &out->state[n], err);
        else if (!(out->state[n] = sqrl_strdup(own, err)))
            code = SQRL_E_NO_MEMORY;
    }
    return code;
}

static int plan_apart(uint32_t i, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_STATE,
                          "plan %u of the mixture is not distributed, and its ranks and "
                          "workers stand at different samples: such a plan goes on with "
                          "the numbers of ranks and workers it had",
                          i);
}

/* Whether this plan's states are of a distributed one: then passes may differ. */
static bool is_shared(const struct sqrl_mixture_saved *saved, size_t count, uint32_t i) {
    for (size_t n = 0; n < count; n++) {
        const struct sqrl_standing *s = &saved[n].standing[i];
        if (!s->now.states || !strstr(s->now.state[0], "\"share\""))
            return false;
    }
    return true;
}

/* One plan's standings as one; out->standing[i] is the first one's until now. */
static int gather_plan(const struct sqrl_mixture_saved *saved, size_t count, uint32_t i,
                       struct sqrl_standing *out, struct sqrl_error *err) {
    uint64_t low = UINT64_MAX, high = 0;
    const struct sqrl_standing *first = &saved[0].standing[i];
    bool shared = is_shared(saved, count, i);
    for (size_t n = 0; n < count; n++) {
        const struct sqrl_standing *s = &saved[n].standing[i];
        if (!shared && (s->now.pass != first->now.pass || s->taken != first->taken))
            return plan_apart(i, err);
        uint64_t last = s->passes ? s->begun[s->passes - 1].pass : s->now.pass;
        low = SQRL_MIN(low, s->now.pass);
        high = SQRL_MAX(high, last);
    }
    out->taken = first->taken;
    if (!shared)
        return gather_pass(saved, 1, i, first->now.pass, first->now.pass, &out->now, err);
    if (high - low > MOST_APART)
        return sqrl_error_set(err, SQRL_E_STATE,
                              "the states stand %llu passes of plan %u apart: they are "
                              "damaged",
                              LLU(high - low), i);
    int code = gather_pass(saved, count, i, low, high, &out->now, err);
    out->begun = sqrl_calloc(high - low + 1, sizeof *out->begun, "states", err);
    if (!code && !out->begun)
        code = SQRL_E_NO_MEMORY;
    for (uint64_t pass = low + 1; pass <= high && !code; pass++) {
        code = gather_pass(saved, count, i, pass, high, &out->begun[out->passes], err);
        out->passes++;
    }
    return code;
}

/* Which one's schedule goes on: the one that was furthest. */
static size_t furthest(const struct sqrl_mixture_saved *saved, size_t count) {
    size_t best = 0;
    for (size_t n = 1; n < count; n++)
        if (saved[n].changes > saved[best].changes ||
            (saved[n].changes == saved[best].changes && saved[n].sum > saved[best].sum))
            best = n;
    return best;
}

static int gather_all(struct sqrl_mixture_saved *saved, size_t count,
                      struct sqrl_mixture_saved *out, struct sqrl_error *err) {
    struct sqrl_standing *standing =
        sqrl_calloc(saved[0].count, sizeof *standing, "states", err);
    int code = standing ? SQRL_OK : SQRL_E_NO_MEMORY;
    bool finished = true;
    for (size_t n = 0; n < count && !code; n++) {
        finished = finished && saved[n].finished;
        if (saved[n].epoch != saved[0].epoch)
            code = sqrl_error_set(err, SQRL_E_STATE,
                                  "states 1 and %zu are of different epochs", n + 1);
    }
    for (uint32_t i = 0; i < saved[0].count && !code; i++)
        code = gather_plan(saved, count, i, &standing[i], err);
    size_t lead = furthest(saved, count);
    struct sqrl_standing *old = saved[lead].standing; /* changes places with it */
    *out = saved[lead];
    out->standing = standing;
    out->finished = finished;
    memset(&saved[lead], 0, sizeof *saved);
    saved[lead].count = out->count;
    saved[lead].standing = old;
    return code;
}

/* Of passes that others had begun one's own share, too: shards that were appended since
 * are not theirs. */
static int add_begun(struct sqrl_mixture_saved *saved, size_t count, size_t own,
                     struct sqrl_error *err) {
    int code = SQRL_OK;
    for (uint32_t i = 0; i < saved[own].count && !code; i++) {
        struct sqrl_standing all = {0}, *mine = &saved[own].standing[i];
        if (!is_shared(saved, count, i) ||
            strstr(mine->now.state[0], "distribute(split)"))
            continue;
        code = gather_plan(saved, count, i, &all, err);
        for (size_t b = 0; b < mine->passes; b++)
            sqrl_pass_reset(&mine->begun[b]);
        free(mine->begun);
        mine->passes = 0;
        mine->begun = sqrl_calloc(all.passes + 1, sizeof *mine->begun, "states", err);
        code = code || mine->begun ? code : SQRL_E_NO_MEMORY;
        for (size_t b = 0; b < all.passes && !code; b++) {
            struct sqrl_pass *pass = &all.begun[b];
            if (pass->pass <= mine->now.pass)
                continue;
            char *text = pass->state[own]; /* changes places with the first */
            pass->state[own] = pass->state[0];
            pass->state[0] = text;
            for (size_t n = 1; n < pass->states; n++)
                free(pass->state[n]);
            pass->states = 1;
            mine->begun[mine->passes++] = *pass;
            memset(pass, 0, sizeof *pass);
        }
        sqrl_pass_reset(&all.now);
        for (size_t b = 0; b < all.passes; b++)
            sqrl_pass_reset(&all.begun[b]);
        free(all.begun);
    }
    return code;
}

int sqrl_mixture_read(const struct sqrl_mixture_plan *plan,
                      struct sqrl_mixture_saved *out, struct sqrl_error *err) {
    size_t count = plan->options->states, own = count == 1 ? 0 : count;
    memset(out, 0, sizeof *out);
    if (count > SQRL_MAX_CONSUMERS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "more than %u states",
                              SQRL_MAX_CONSUMERS);
    struct sqrl_mixture_saved *saved = sqrl_calloc(count, sizeof *saved, "states", err);
    int code = saved ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t n = 0; n < count && !code; n++) {
        code = read_one(plan, plan->options->state[n], &saved[n], err);
        if (!code && own == count && saved[n].consumers &&
            saved[n].consumers == plan->consumers && saved[n].consumer == plan->consumer)
            own = n;
    }
    if (!code && own == count && !plan->consumers)
        code = sqrl_error_set(err, SQRL_E_STATE,
                              "%zu states of a mixture without distribute: give the one "
                              "of this process",
                              count);
    if (!code && own < count) {
        code = count > 1 ? add_begun(saved, count, own, err) : SQRL_OK;
        *out = saved[own];
        memset(&saved[own], 0, sizeof *saved);
    } else if (!code) {
        code = gather_all(saved, count, out, err);
    }
    for (size_t n = 0; saved && n < count; n++)
        sqrl_mixture_saved_reset(&saved[n]);
    free(saved);
    return code;
}
