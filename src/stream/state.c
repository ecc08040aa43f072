/* state.c - writing a state. */
#include "stream/state.h"

#include <stdio.h>
#include <stdlib.h>

#include "sqrl/codec.h"
#include "stream/plan.h"

uint64_t sqrl_state_fingerprint(const struct sqrl_source *source, uint64_t shards) {
    uint64_t hash = sqrl_mix64(shards);
    for (uint64_t s = 0; s < shards; s++) {
        const struct sqrl_shard *shard = sqrl_source_shard(source, s);
        const char *slash = strrchr(shard->path, '/');
        const char *name = slash ? slash + 1 : shard->path;
        hash = sqrl_mix64(hash ^ sqrl_xxh3(name, strlen(name)));
        hash = sqrl_mix64(hash ^ shard->file_bytes);
        hash = sqrl_mix64(hash ^ shard->samples);
        hash = sqrl_mix64(hash ^ shard->checksum);
    }
    return hash;
}

/* Stages that change what comes, or count it. Sizes of batches may change between runs,
 * unless something counts batches. */
static bool decides(const struct sqrl_plan *p, bool counted) {
    switch (p->kind) {
    case SQRL_STAGE_SOURCE:
    case SQRL_STAGE_PREFETCH:
    case SQRL_STAGE_ON_ERROR: /* a run that failed may go on without the bad ones */
        return false;
    case SQRL_STAGE_BATCH:
        return counted;
    default:
        return true;
    }
}

/* Numbers of ranks may change, but for a split of the user's own. */
static char *distribution_text(const struct sqrl_distribute_options *o,
                               struct sqrl_error *err) {
    static const char *const TAIL[] = {"", "(tail='drop')", "(tail='uneven')"};
    struct sqrl_topology t;
    if (o->steps && !o->owner)
        return sqrl_format(err, "distribute(steps=%llu)", (unsigned long long)o->steps);
    if (!o->owner || sqrl_plan_topology(o, &t, NULL))
        return sqrl_format(err, "distribute%s", o->steps ? "" : TAIL[o->tail]);
    return sqrl_format(err,
                       "distribute(split)%s of rank %llu of %llu, worker %llu of %llu",
                       o->steps ? "" : TAIL[o->tail], (unsigned long long)t.rank,
                       (unsigned long long)t.world_size, (unsigned long long)t.worker,
                       (unsigned long long)t.workers);
}

char *sqrl_state_stage(const struct sqrl_plan *plan, size_t i, int *code,
                       struct sqrl_error *err) {
    size_t stages = 0;
    bool counted = plan->kind != SQRL_STAGE_BATCH && plan->batched && plan->limited;
    const struct sqrl_plan *found = NULL;
    *code = SQRL_OK;
    for (const struct sqrl_plan *p = plan; p; p = p->before)
        stages += decides(p, counted);
    if (i >= stages)
        return NULL;
    size_t at = stages;
    for (const struct sqrl_plan *p = plan; p && !found; p = p->before)
        if (decides(p, counted) && --at == i)
            found = p;
    char *text = found->kind == SQRL_STAGE_DISTRIBUTE
                     ? distribution_text(&found->distribution, err)
                     : sqrl_plan_stage_text(found);
    if (!text)
        *code = sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for a state");
    return text;
}

/* --- MessagePack, which then becomes JSON --- */

struct writer {
    struct sqrl_bytes bytes;
    struct sqrl_error *err;
    int code;
};

static void put_key(struct writer *w, const char *key) {
    if (!w->code)
        w->code = sqrl_msgpack_put_string(&w->bytes, key, strlen(key), w->err);
}
static void put_value(struct writer *w, uint64_t v) {
    if (!w->code)
        w->code = v == SQRL_UNKNOWN ? sqrl_msgpack_put_null(&w->bytes, w->err)
                                    : sqrl_msgpack_put_uint(&w->bytes, v, w->err);
}
static void put_number(struct writer *w, const char *key, uint64_t v) {
    put_key(w, key);
    put_value(w, v);
}
static void put_map(struct writer *w, const char *key, size_t pairs) {
    if (key)
        put_key(w, key);
    if (!w->code)
        w->code = sqrl_msgpack_put_map(&w->bytes, pairs, w->err);
}
static void put_list(struct writer *w, const char *key, size_t items) {
    if (key)
        put_key(w, key);
    if (!w->code)
        w->code = sqrl_msgpack_put_array(&w->bytes, items, w->err);
}

static void put_plan(struct writer *w, const struct sqrl_plan *plan) {
    size_t count = 0;
    int code = SQRL_OK;
    for (char *text; (text = sqrl_state_stage(plan, count, &code, w->err)); count++)
        free(text);
    put_list(w, "plan", count);
    for (size_t i = 0; i < count && !code; i++) {
        char *text = sqrl_state_stage(plan, i, &code, w->err);
        if (text)
            put_key(w, text);
        free(text);
    }
    w->code = w->code ? w->code : code;
}

static void put_data(struct writer *w, const struct sqrl_iterator *it) {
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)sqrl_state_fingerprint(it->source, it->shards));
    put_map(w, "data", 3);
    put_number(w, "shards", it->shards);
    put_key(w, "fingerprint");
    put_key(w, hash);
    put_number(w, "nodes", it->nodes);
}

static void put_share(struct writer *w, const struct sqrl_share *share) {
    put_map(w, "share", 9);
    put_number(w, "consumers", share->consumers);
    put_number(w, "consumer", share->consumer);
    put_number(w, "like", share->like);
    put_number(w, "window", share->window);
    put_number(w, "at", share->at);
    put_number(w, "quota", share->quota);
    put_number(w, "pass", share->pass);
    put_list(w, "cuts", share->cuts);
    for (size_t i = 0; i < share->cuts; i++) {
        put_list(w, NULL, 3);
        put_value(w, share->cut[i].lanes);
        put_value(w, share->cut[i].basis);
        put_value(w, share->cut[i].origin);
    }
    put_list(w, "left", share->lefts);
    for (size_t i = 0; i < share->lefts; i++) {
        const struct sqrl_interval *interval = &share->left[i];
        put_list(w, NULL, 5);
        put_value(w, interval->cut);
        put_value(w, interval->window);
        put_value(w, interval->lane);
        put_value(w, interval->from);
        put_value(w, interval->to);
    }
}

static void put_position(struct writer *w, const struct sqrl_mark *mark) {
    put_map(w, "position", 4);
    put_number(w, "chunk", mark->chunk);
    put_number(w, "row", mark->row);
    put_number(w, "window", mark->window);
    put_number(w, "at", mark->at);
}

/* What a state says beside plan and data. */
struct point {
    struct sqrl_mark mark;
    const uint64_t *left; /* [ops] */
    uint64_t drop;
    bool finished;
    uint64_t head;  /* see struct sqrl_output */
    uint64_t *held; /* [helds], in rising order; malloc'd */
    size_t helds;
};

static void put_state(struct writer *w, const struct sqrl_iterator *it,
                      const struct point *p) {
    const struct sqrl_assign *a = &it->assign;
    struct sqrl_share share;
    put_map(w, NULL, 13);
    put_number(w, "squirrel_state", SQRL_STATE_VERSION);
    put_plan(w, it->plan);
    put_data(w, it);
    put_number(w, "epoch", it->epoch);
    put_number(w, "given", p->mark.given);
    put_number(w, "finished", p->finished);
    put_number(w, "drop", p->drop);
    put_number(w, "batch_skip", p->mark.batch_skip);
    put_number(w, "batch_take", p->mark.batch_take);
    put_number(w, "head", p->head);
    put_list(w, "held", p->helds);
    for (size_t i = 0; i < p->helds; i++)
        put_value(w, p->held[i]);
    put_list(w, "left", a->ops);
    for (uint32_t i = 0; i < a->ops; i++)
        put_value(w, p->left ? p->left[i] : 0);
    if (!it->deal) {
        put_position(w, &p->mark);
    } else if (!w->code &&
               !(w->code = sqrl_share_at(&it->share, &p->mark.point, &share, w->err))) {
        put_share(w, &share);
        sqrl_share_reset(&share);
    }
}

static int as_json(struct writer *w, char **out) {
    struct sqrl_tape tape = {0};
    struct sqrl_bytes text = {0};
    size_t offset = 0;
    int code =
        sqrl_msgpack_decode(&tape, w->bytes.data, w->bytes.size, &offset, NULL, w->err);
    if (!code)
        code = sqrl_json_encode(&text, tape.nodes, 0, w->bytes.data, w->err);
    if (!code)
        code = sqrl_bytes_append(&text, "", 1, w->err);
    sqrl_tape_reset(&tape);
    if (code)
        sqrl_bytes_reset(&text);
    *out = (char *)text.data;
    return code;
}

/* --- where it stands --- */

static int by_number(const void *x, const void *y) {
    const uint64_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static int copy_held(struct point *p, const uint32_t *held, const uint64_t *first,
                     size_t count, struct sqrl_error *err) {
    if (!count)
        return SQRL_OK;
    p->held = sqrl_calloc(count, sizeof *p->held, "state", err);
    if (!p->held)
        return SQRL_E_NO_MEMORY;
    p->helds = count;
    for (size_t i = 0; i < count; i++)
        p->held[i] = held ? held[i] : first[i];
    qsort(p->held, count, sizeof *p->held, by_number);
    return SQRL_OK;
}

static void pass_rows(struct point *p, uint64_t judged) {
    p->mark.at += judged;
    p->mark.point = sqrl_point_behind(&p->mark.point, judged);
}

/* Behind all but `unread` samples of the run that was handed out last. Lock held. */
static int find_point(struct sqrl_iterator *it, uint64_t unread, struct point *p,
                      struct sqrl_error *err) {
    const struct sqrl_output *o = it->batch && unread ? it->last_but_one : it->last;
    const struct sqrl_assign *a = &it->assign;
    *p = (struct point){.mark = it->first,
                        .left = it->first_left,
                        .drop = it->first_drop,
                        .head = it->first_head};
    if (it->batch && unread > (it->last != NULL))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "only the batch that was handed out last can be unread");
    p->finished = it->finished && !it->out_head && !it->final_code && !unread;
    if (!o)
        return copy_held(p, NULL, a->replay, a->replays, err);
    p->head = o->head;
    p->mark = o->mark;
    p->drop = 0;
    p->left = it->assign.counts ? o->left : NULL;
    if (!p->mark.valid)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for a state");
    if (it->batch)
        return copy_held(p, o->kept, NULL, o->kepts, err);
    if (unread > o->count)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "the run had %u samples, of which %llu can't be unread",
                              o->count, (unsigned long long)unread);
    uint64_t used = o->count - unread;
    p->mark.given = o->number + used;
    if (it->assign.counts)
        p->drop = used;
    else
        pass_rows(p, used ? o->rows[used - 1].at : 0);
    return SQRL_OK;
}

/* Behind the first `rows` rows of the batch that was handed out last. Lock held. */
static int find_row(struct sqrl_iterator *it, uint64_t rows, struct point *p,
                    struct sqrl_error *err) {
    const struct sqrl_output *o = it->batch ? it->last : NULL;
    if (!o || rows > o->count)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "the batch that was handed out last has no %llu rows",
                              (unsigned long long)rows);
    if (rows == 0 || rows == o->count)
        return find_point(it, rows == 0, p, err);
    if (it->assign.bucketed)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "samples wait in length buckets: there is no state "
                              "between the rows of a batch");
    if (it->assign.counts) {
        int code = find_point(it, 1, p, err);
        p->drop += rows;
        return code;
    }
    const struct sqrl_segment *s = o->segment + o->segments - 1;
    while (s->first >= rows)
        s--;
    *p = (struct point){.mark = s->mark, .left = it->first_left};
    p->mark.given = o->number;
    pass_rows(p, o->rows[rows - 1].at);
    return SQRL_OK;
}

/* `rows`: of the last batch that were used, or SQRL_UNKNOWN. */
static int state_at(struct sqrl_iterator *it, uint64_t unread, uint64_t rows, char **out,
                    struct sqrl_error *err) {
    struct writer w = {.err = err};
    struct point p = {.held = NULL};
    *out = NULL;
    if (it->generation != sqrl_fork_generation())
        return sqrl_error_set(err, SQRL_E_STATE,
                              "this iterator was started before a fork; open a new one "
                              "in the child process");
    pthread_mutex_lock(&it->lock);
    int code = rows == SQRL_UNKNOWN ? find_point(it, unread, &p, err)
                                    : find_row(it, rows, &p, err);
    if (!code) {
        put_state(&w, it, &p);
        code = w.code;
    }
    pthread_mutex_unlock(&it->lock);
    if (!code)
        code = as_json(&w, out);
    sqrl_bytes_reset(&w.bytes);
    free(p.held);
    return code;
}

int sqrl_iterator_state(struct sqrl_iterator *it, uint64_t unread, char **out,
                        struct sqrl_error *err) {
    return state_at(it, unread, SQRL_UNKNOWN, out, err);
}

int sqrl_iterator_state_in_batch(struct sqrl_iterator *it, uint64_t rows, char **out,
                                 struct sqrl_error *err) {
    return state_at(it, 0, rows, out, err);
}
