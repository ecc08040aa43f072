/* state_read.c - reading states, checking that they fit, going on there. */
#include <stdlib.h>

#include "stream/plan.h"
#include "stream/state.h"

/* --- parsing --- */

struct parse {
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    struct sqrl_error *err;
    int code;
};

static void bad(struct parse *p, const char *what) {
    if (!p->code)
        p->code = sqrl_error_set(p->err, SQRL_E_CORRUPT,
                                 "the state's %s is missing or wrong: it is no state of "
                                 "a stream, or was damaged",
                                 what);
}

static uint32_t find(struct parse *p, uint32_t map, const char *key,
                     enum sqrl_type type) {
    uint32_t node = SQRL_NO_NODE;
    if (!p->code && map != SQRL_NO_NODE && p->nodes[map].type == SQRL_MAP)
        node = sqrl_map_find(p->nodes, map, p->bytes, key, strlen(key));
    if (node == SQRL_NO_NODE || p->nodes[node].type != type) {
        bad(p, key);
        return SQRL_NO_NODE;
    }
    return node;
}

static bool value(const struct sqrl_node *node, uint64_t *out) {
    *out = node->type == SQRL_NULL ? SQRL_UNKNOWN : node->v.u;
    return node->type == SQRL_NULL || node->type == SQRL_UINT ||
           (node->type == SQRL_INT && node->v.i >= 0);
}

/* null is SQRL_UNKNOWN. */
static uint64_t number(struct parse *p, uint32_t map, const char *key) {
    uint64_t v = 0;
    uint32_t node = SQRL_NO_NODE;
    if (!p->code && map != SQRL_NO_NODE)
        node = sqrl_map_find(p->nodes, map, p->bytes, key, strlen(key));
    if (node == SQRL_NO_NODE || !value(&p->nodes[node], &v))
        bad(p, key);
    return v;
}

/* A list of rows of `width` numbers, malloc'd, at least one row large. */
static uint64_t *table(struct parse *p, uint32_t map, const char *key, size_t width,
                       size_t *rows) {
    uint32_t list = find(p, map, key, SQRL_ARRAY);
    *rows = 0;
    if (list == SQRL_NO_NODE)
        return NULL;
    size_t count = p->nodes[list].size;
    uint64_t *out = sqrl_calloc(count + 1, width * sizeof *out, "state", p->err);
    if (!out)
        p->code = SQRL_E_NO_MEMORY;
    uint32_t node = list + 1;
    for (size_t r = 0; r < count && out && !p->code; r++) {
        if (width > 1 &&
            (p->nodes[node].type != SQRL_ARRAY || p->nodes[node].size != width)) {
            bad(p, key);
            break;
        }
        node += width > 1;
        for (size_t i = 0; i < width && !p->code; i++, node++)
            if (!value(&p->nodes[node], &out[r * width + i]))
                bad(p, key);
    }
    *rows = count;
    return out;
}

static void read_share(struct parse *p, uint32_t map, struct sqrl_share *share) {
    _Static_assert(sizeof(struct sqrl_cut) == 3 * sizeof(uint64_t) &&
                       sizeof(struct sqrl_interval) == 5 * sizeof(uint64_t),
                   "tables of numbers are read as they are in memory");
    share->consumers = number(p, map, "consumers");
    share->consumer = number(p, map, "consumer");
    share->like = number(p, map, "like");
    share->window = number(p, map, "window");
    share->at = number(p, map, "at");
    share->quota = number(p, map, "quota");
    share->pass = number(p, map, "pass");
    share->cut = (struct sqrl_cut *)table(p, map, "cuts", 3, &share->cuts);
    share->left = (struct sqrl_interval *)table(p, map, "left", 5, &share->lefts);
}

static void read_data(struct parse *p, uint32_t root, struct sqrl_state *state) {
    uint32_t data = find(p, root, "data", SQRL_MAP);
    uint32_t hash = find(p, data, "fingerprint", SQRL_STRING);
    state->shards = number(p, data, "shards");
    state->nodes = number(p, data, "nodes");
    if (p->code)
        return;
    char text[17] = {0}, *end;
    if (p->nodes[hash].size == 16)
        memcpy(text, p->bytes + p->nodes[hash].v.offset, 16);
    state->fingerprint = strtoull(text, &end, 16);
    if (end != text + 16)
        bad(p, "fingerprint");
}

/* The first stage that differs is named. */
static void check_plan(struct parse *p, uint32_t root, const struct sqrl_plan *plan) {
    uint32_t list = find(p, root, "plan", SQRL_ARRAY);
    if (list == SQRL_NO_NODE)
        return;
    uint32_t node = list + 1;
    for (size_t i = 0; !p->code; i++) {
        char *text = sqrl_state_stage(plan, i, &p->code, p->err);
        bool more = i < p->nodes[list].size;
        if (!text && !more)
            return;
        const struct sqrl_node *n = more ? &p->nodes[node] : NULL;
        const char *saved = n ? (const char *)p->bytes + n->v.offset : "";
        if (n && n->type != SQRL_STRING)
            bad(p, "plan");
        else if (!p->code && (!text || !n || n->size != strlen(text) ||
                              memcmp(saved, text, n->size) != 0))
            p->code =
                sqrl_error_set(p->err, SQRL_E_STATE,
                               "the state belongs to another plan: its stage %zu was "
                               "%.*s, now it is %s; "
                               "build the stream as it was, or begin without the state",
                               i + 1, n ? (int)SQRL_MIN(n->size, 200u) : 4,
                               n ? saved : "none", text ? text : "none");
        free(text);
        node = more ? sqrl_node_next(p->nodes, node) : node;
    }
}

static void read_root(struct parse *p, const struct sqrl_plan *plan,
                      struct sqrl_state *state) {
    uint64_t version = number(p, 0, "squirrel_state");
    if (!p->code && version != SQRL_STATE_VERSION)
        p->code = sqrl_error_set(p->err, SQRL_E_UNSUPPORTED,
                                 "a state of version %llu; this squirrel knows version "
                                 "%u: use the one that saved it, or begin without it",
                                 (unsigned long long)version, SQRL_STATE_VERSION);
    if (p->code)
        return;
    check_plan(p, 0, plan);
    read_data(p, 0, state);
    state->epoch = number(p, 0, "epoch");
    state->mark.given = number(p, 0, "given");
    state->finished = number(p, 0, "finished") == 1;
    state->drop = number(p, 0, "drop");
    state->mark.batch_skip = number(p, 0, "batch_skip");
    state->mark.batch_take = number(p, 0, "batch_take");
    state->left = table(p, 0, "left", 1, &state->lefts);
    state->head = number(p, 0, "head");
    state->held = table(p, 0, "held", 1, &state->helds);
    if (p->code)
        return;
    uint32_t share = sqrl_map_find(p->nodes, 0, p->bytes, "share", 5);
    state->dealt = share != SQRL_NO_NODE && p->nodes[share].type == SQRL_MAP;
    if (state->dealt) {
        read_share(p, share, &state->share);
        return;
    }
    uint32_t position = find(p, 0, "position", SQRL_MAP);
    state->mark.chunk = number(p, position, "chunk");
    state->mark.row = number(p, position, "row");
    state->mark.window = number(p, position, "window");
    state->mark.at = number(p, position, "at");
}

static int read_state(const char *text, const struct sqrl_plan *plan,
                      struct sqrl_state *state, struct sqrl_error *err) {
    static const struct sqrl_limits LIMITS = {.max_depth = 8};
    struct sqrl_tape tape = {0};
    size_t size = strlen(text), offset = 0;
    if (size > SQRL_MAX_STATE_BYTES)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a state of more than 1 GiB");
    uint8_t *bytes = sqrl_malloc(size + 1, "state", err);
    if (!bytes)
        return SQRL_E_NO_MEMORY;
    memcpy(bytes, text, size + 1);
    int code = sqrl_json_decode(&tape, bytes, size, &offset, 0, &LIMITS, err);
    if (!code && (offset != size || tape.nodes[0].type != SQRL_MAP))
        code = sqrl_error_set(err, SQRL_E_CORRUPT, "is no JSON object");
    if (code)
        code = sqrl_error_at(err, code, "the state");
    if (!code) {
        struct parse p = {tape.nodes, bytes, err, SQRL_OK};
        read_root(&p, plan, state);
        code = p.code;
    }
    sqrl_tape_reset(&tape);
    free(bytes);
    return code;
}

/* --- checking --- */

static int check_data(const struct sqrl_iterator *it, const struct sqrl_state *state,
                      struct sqrl_error *err) {
    uint64_t shards = sqrl_source_shards(it->source);
    if (state->shards <= shards &&
        sqrl_state_fingerprint(it->source, state->shards) == state->fingerprint)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_STATE,
                          "%s is not what it was when the state was saved: some of its "
                          "%llu shards of then were replaced or removed (there are %llu "
                          "now), or where() chose other samples; restore them, or begin "
                          "without the state",
                          sqrl_source_url(it->source), (unsigned long long)state->shards,
                          (unsigned long long)shards);
}

static int check_states(struct sqrl_iterator *it, const struct sqrl_states *states,
                        struct sqrl_error *err) {
    const struct sqrl_state *first = states->state;
    for (size_t i = 0; i < states->count; i++) {
        const struct sqrl_state *s = &states->state[i];
        if (s->dealt != first->dealt || s->epoch != first->epoch ||
            s->shards != first->shards || s->fingerprint != first->fingerprint ||
            s->nodes != first->nodes)
            return sqrl_error_set(err, SQRL_E_STATE,
                                  "states 1 and %zu are of different runs or epochs",
                                  i + 1);
        if (s->lefts != it->assign.ops)
            return sqrl_error_set(err, SQRL_E_CORRUPT,
                                  "the state's counts do not fit its plan");
    }
    for (size_t i = 0; i < states->count; i++) {
        const struct sqrl_state *s = &states->state[i];
        if (s->head && !it->assign.bucketed)
            return sqrl_error_set(err, SQRL_E_STATE,
                                  "the state was saved with length buckets, in which "
                                  "samples wait: go on with length buckets");
        for (size_t k = 0; k < s->helds; k++)
            if (s->held[k] >= s->head || (k && s->held[k] <= s->held[k - 1]))
                return sqrl_error_set(err, SQRL_E_CORRUPT,
                                      "the state's list of waiting samples is damaged");
    }
    if (first->dealt != it->plan->distributed && !first->finished)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the state's position does not fit its plan");
    if (!first->dealt && states->count > 1)
        return sqrl_error_set(err, SQRL_E_STATE,
                              "%zu states of a stream without distribute: give the one "
                              "of this process",
                              states->count);
    return check_data(it, first, err);
}

int sqrl_states_read(struct sqrl_iterator *it,
                     const struct sqrl_iterator_options *options,
                     struct sqrl_states **out, struct sqrl_error *err) {
    size_t count = options && options->size >= sizeof *options ? options->states : 0;
    *out = NULL;
    if (!count)
        return SQRL_OK;
    if (count > SQRL_MAX_CONSUMERS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "more than %u states",
                              SQRL_MAX_CONSUMERS);
    struct sqrl_states *states =
        sqrl_calloc(1, sizeof *states + count * sizeof *states->state, "states", err);
    if (!states)
        return SQRL_E_NO_MEMORY;
    states->count = count;
    int code = SQRL_OK;
    for (size_t i = 0; i < count && !code; i++)
        code = read_state(options->state[i], it->plan, &states->state[i], err);
    if (!code)
        code = check_states(it, states, err);
    if (code) {
        sqrl_states_free(states);
        return code;
    }
    it->epoch = states->state->epoch;
    it->shards = states->state->shards;
    *out = states;
    return SQRL_OK;
}

void sqrl_states_free(struct sqrl_states *states) {
    for (size_t i = 0; states && i < states->count; i++) {
        sqrl_share_reset(&states->state[i].share);
        free(states->state[i].left);
        free(states->state[i].held);
    }
    free(states);
}

/* --- going on --- */

/* Counts of stages, and how many samples to leave out. */
static void apply_counts(struct sqrl_iterator *it, struct sqrl_state *state) {
    struct sqrl_assign *a = &it->assign;
    for (uint32_t i = 0; i < a->ops; i++)
        if (a->op[i].kind != OP_FILTER)
            a->op[i].left = state->left[i];
    a->numbered = state->mark.given;
    a->drop = it->first_drop = state->drop;
    a->batch_skip = state->mark.batch_skip;
    a->batch_take = state->mark.batch_take;
    if (state->finished)
        it->finished = true;
    a->replay_head = it->first_head = state->head;
    a->replay = state->held;
    a->replays = state->helds;
    state->held = NULL; /* the iterator's now */
    state->helds = 0;
}

static int apply_position(struct sqrl_iterator *it, const struct sqrl_state *state,
                          struct sqrl_error *err) {
    struct sqrl_assign *a = &it->assign;
    uint64_t row = state->mark.row;
    if (state->mark.chunk > sqrl_order_chunks(it->order) ||
        (!it->windowed && state->mark.window) ||
        __builtin_add_overflow(row, it->windowed ? 0 : state->mark.at, &row))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the state's positions do not fit the data: it was "
                              "changed or belongs to other data");
    bool single = it->kind == SQRL_ORDER_SAMPLES; /* each a chunk: `at` counts them */
    it->resume_chunk = state->mark.chunk + (single ? state->mark.at : 0);
    it->resume_row = single ? 0 : row;
    a->windows = state->mark.window;
    a->resume_at = it->windowed ? state->mark.at : 0;
    sqrl_order_seek(it->order, it->resume_chunk);
    return SQRL_OK;
}

/* Of a pass that others had begun: see mixture_state.c. Its quota is that of the whole.
 */
static bool is_start(const struct sqrl_share *share) {
    return share->cuts == 1 && !share->lefts && !share->window && !share->at &&
           !share->pass;
}

/* The consumer's own state goes on as it is; without it all are dealt anew. */
static int apply_share(struct sqrl_iterator *it, struct sqrl_states *states,
                       uint64_t consumers, uint64_t consumer, struct sqrl_error *err) {
    const struct sqrl_distribute_options *o = sqrl_plan_distribution(it->plan);
    struct sqrl_share *shares;
    int code;
    for (size_t i = 0; i < states->count; i++) {
        struct sqrl_share *share = &states->state[i].share;
        if (share->window == SQRL_UNKNOWN) { /* said of one that is at the end */
            share->window = sqrl_deal_windows(it->deal);
            share->at = 0;
        }
    }
    for (size_t i = 0; i < states->count; i++) {
        struct sqrl_state *s = &states->state[i];
        if (s->share.consumers != consumers || s->share.consumer != consumer)
            continue;
        code = sqrl_deal_check(it->deal, &s->share, err);
        if (s->share.quota == SQRL_UNKNOWN && !o->steps && is_start(&s->share))
            s->share.quota = sqrl_deal_quota(sqrl_deal_samples(it->deal), consumers,
                                             consumer, o->tail);
        if (!code && !o->steps && s->share.quota > sqrl_source_samples(it->source))
            code = sqrl_error_set(err, SQRL_E_CORRUPT,
                                  "the state's quota is more than the data hold: it was "
                                  "changed or belongs to other data");
        apply_counts(it, s);
        return code ? code : sqrl_share_copy(&s->share, &it->share, err);
    }
    for (size_t i = 0; i < states->count; i++)
        if (states->state[i].head)
            return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                                  "samples wait in length buckets: such a plan goes on "
                                  "with the numbers of ranks and workers it had");
    uint32_t counting = 0;
    for (uint32_t i = 0; i < it->assign.ops; i++)
        counting += it->assign.op[i].kind != OP_FILTER;
    counting -= !it->batch && o->steps;
    if (counting ||
        (it->plan->batched && it->plan->limited && it->plan->kind != SQRL_STAGE_BATCH))
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "take and skip count per rank and worker: a plan with them "
                              "goes on with the numbers of ranks and workers it had");
    shares = sqrl_calloc(states->count, sizeof *shares, "states", err);
    if (!shares)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < states->count; i++)
        shares[i] = states->state[i].share; /* borrowed */
    code = sqrl_deal_again(it->deal, shares, states->count, consumers, consumer, o->tail,
                           o->steps > 0, &it->share, err);
    free(shares);
    return code;
}

int sqrl_states_apply(struct sqrl_iterator *it, struct sqrl_states *states,
                      uint64_t consumers, uint64_t consumer, struct sqrl_error *err) {
    if (it->deal)
        return apply_share(it, states, consumers, consumer, err);
    apply_counts(it, states->state);
    return apply_position(it, states->state, err);
}
