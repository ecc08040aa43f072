/* mixture.c - running several plans as one stream. Which comes next is mix.c's; where a
 * pass goes on is each iterator's own state. */
#include "stream/mixture.h"

#include <stdlib.h>

#include "stream/plan.h"

struct part {
    struct sqrl_plan *plan;
    struct sqrl_iterator *iterator;
    struct sqrl_run *run;
    uint32_t at; /* samples of the run that were given */
    uint64_t pass, taken, before;
    bool resumed;            /* it may give nothing: an earlier run gave it all */
    struct sqrl_pass *begun; /* [passes]: states of later passes, by number */
    size_t passes, used;
};

struct sqrl_mixture {
    struct sqrl_mixture_options options;
    struct sqrl_mix *mix;
    double *weight; /* [count] */
    uint32_t count, source, last;
    bool pending;           /* `source` was drawn and has not given its sample yet */
    bool finished, changed; /* changed: weights or passes, since the last sample */
    int failed;
    struct sqrl_error error;
    uint64_t consumers, consumer;
    struct part *part; /* [count] */
};

/* --- passes --- */

static void part_close(struct part *part) {
    sqrl_run_release(part->run);
    sqrl_iterator_close(part->iterator);
    part->run = NULL;
    part->iterator = NULL;
    part->at = 0;
}

static int part_begin(const struct sqrl_mixture *m, struct part *part,
                      const struct sqrl_pass *from, struct sqrl_error *err) {
    struct sqrl_iterator_options options = {
        .size = sizeof options, .epoch = (m->options.epoch << 32) + part->pass};
    if (from && from->states) {
        options.state = (const char *const *)from->state;
        options.states = from->states;
    }
    part_close(part);
    return sqrl_iterator_start(part->plan, &options, &part->iterator, err);
}

static int part_again(struct sqrl_mixture *m, struct part *part, struct sqrl_error *err) {
    struct sqrl_pass *from = NULL;
    part->before += part->taken;
    part->taken = 0;
    part->pass++;
    if (part->used < part->passes && part->begun[part->used].pass == part->pass)
        from = &part->begun[part->used++];
    part->resumed = from != NULL;
    m->changed = true;
    return part_begin(m, part, from, err);
}

static int empty_plan(const struct sqrl_mixture *m, uint32_t i, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "plan %u of the mixture (%s) gave nothing in its pass %llu: "
                          "leave it out",
                          i, sqrl_source_url(sqrl_plan_get_source(m->part[i].plan)),
                          (unsigned long long)m->part[i].pass);
}

/* The part that was drawn is at its end: its next pass, or that of the mixture's. */
static int at_end(struct sqrl_mixture *m, struct sqrl_error *err) {
    struct part *part = &m->part[m->source];
    if (m->options.stop == SQRL_STOP_FIRST) {
        m->finished = true;
        return SQRL_OK;
    }
    if (!part->taken && !part->resumed)
        return empty_plan(m, m->source, err);
    bool all = m->options.stop == SQRL_STOP_ALL;
    for (uint32_t i = 0; i < m->count && all; i++)
        all = !(m->weight[i] > 0) || m->part[i].pass || i == m->source;
    if (all) {
        part->pass++;
        m->finished = m->changed = true;
        return SQRL_OK;
    }
    return part_again(m, part, err);
}

static int take(struct sqrl_mixture *m, struct sqrl_mixed *out, struct sqrl_error *err) {
    if (!m->pending)
        m->source = sqrl_mix_next(m->mix);
    m->pending = true;
    int code = SQRL_OK;
    while (!code && !m->finished) {
        struct part *part = &m->part[m->source];
        if (part->run && part->at < part->run->count) {
            out->sample = part->run->samples[part->at++];
            out->plan = m->last = m->source;
            part->taken++;
            m->pending = m->changed = false;
            return SQRL_OK;
        }
        sqrl_run_release(part->run);
        part->run = NULL;
        part->at = 0;
        code = sqrl_iterator_next_run(part->iterator, &part->run, err);
        if (!code && !part->run)
            code = at_end(m, err);
    }
    return code;
}

int sqrl_mixture_next(struct sqrl_mixture *m, struct sqrl_mixed *out,
                      struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    if (m->finished)
        return SQRL_OK;
    if (!m->failed) {
        struct sqrl_error fault;
        sqrl_error_clear(&fault);
        m->failed = take(m, out, &fault);
        m->error = fault;
    }
    if (m->failed && err)
        *err = m->error;
    return m->failed;
}

bool sqrl_mixture_wait(struct sqrl_mixture *m, uint64_t wait_ns) {
    if (m->finished || m->failed)
        return true;
    if (!m->pending)
        m->source = sqrl_mix_next(m->mix);
    m->pending = true;
    const struct part *part = &m->part[m->source];
    return (part->run && part->at < part->run->count) ||
           sqrl_iterator_wait(part->iterator, wait_ns);
}

/* --- opening --- */

static int check_options(const struct sqrl_mixture *m, struct sqrl_plan *const *plans,
                         struct sqrl_error *err) {
    for (uint32_t i = 0; i < m->count; i++)
        if (sqrl_plan_is_batched(plans[i]))
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "plan %u of the mixture makes batches: mix samples", i);
    if (m->options.epoch >> 32)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "a mixture's epoch is below 2^32, not %llu",
                              (unsigned long long)m->options.epoch);
    if (m->options.stop > SQRL_STOP_FOREVER)
        return sqrl_error_set(err, SQRL_E_INVALID, "there is no such stop");
    return SQRL_OK;
}

/* Which consumer this process is, of the first plan that is distributed. */
static int find_consumer(struct sqrl_mixture *m, struct sqrl_error *err) {
    for (uint32_t i = 0; i < m->count; i++) {
        const struct sqrl_distribute_options *o = sqrl_plan_distribution(m->part[i].plan);
        struct sqrl_topology t;
        if (!o)
            continue;
        int code = sqrl_plan_topology(o, &t, err);
        m->consumers = t.world_size * t.workers;
        m->consumer = t.worker * t.world_size + t.rank;
        return code;
    }
    return SQRL_OK;
}

/* Of all ranks' states of a later pass this one's share. */
static int settle_begun(struct sqrl_mixture *m, struct part *part,
                        struct sqrl_pass *later, struct sqrl_error *err) {
    uint64_t now = part->pass;
    if (later->states < 2)
        return SQRL_OK;
    part->pass = later->pass;
    int code = part_begin(m, part, later, err);
    char *own = NULL;
    if (!code)
        code = sqrl_iterator_state(part->iterator, 0, &own, err);
    part->pass = now;
    for (size_t i = 0; !code && i < later->states; i++) {
        free(later->state[i]);
        later->state[i] = i ? NULL : own;
    }
    if (!code)
        later->states = 1;
    return code;
}

static int go_on(struct sqrl_mixture *m, struct sqrl_mixture_saved *saved,
                 struct sqrl_error *err) {
    int code = SQRL_OK;
    m->options.epoch = saved->epoch;
    m->finished = saved->finished;
    memcpy(m->weight, saved->weight, m->count * sizeof *m->weight);
    for (uint32_t i = 0; i < m->count && !code; i++) {
        struct part *part = &m->part[i];
        struct sqrl_standing *s = &saved->standing[i];
        part->pass = s->now.pass;
        part->taken = s->taken;
        part->before = saved->before[i];
        part->resumed = s->now.states || s->taken;
        part->begun = s->begun;
        part->passes = s->passes;
        s->begun = NULL;
        s->passes = 0;
        for (size_t b = 0; b < part->passes && !code; b++)
            code = settle_begun(m, part, &part->begun[b], err);
        if (!code)
            code = part_begin(m, part, &s->now, err);
        if (code)
            sqrl_error_at(err, code, "plan %u of the mixture", i);
    }
    return code;
}

static int start(struct sqrl_mixture *m, struct sqrl_error *err) {
    struct sqrl_mixture_plan plan = {m->count, &m->options, m->consumers, m->consumer};
    struct sqrl_mix_options mix = {.size = sizeof mix,
                                   .seed = m->options.seed,
                                   .quota = m->options.quota,
                                   .independent = m->options.independent};
    struct sqrl_mixture_saved saved = {0};
    int code = m->options.states ? sqrl_mixture_read(&plan, &saved, err) : SQRL_OK;
    if (!code && m->options.states)
        code = go_on(m, &saved, err);
    for (uint32_t i = 0; i < m->count && !code && !m->options.states; i++)
        code = part_begin(m, &m->part[i], NULL, err);
    if (!code)
        code = sqrl_mix_new(m->weight, m->count, &mix, &m->mix, err);
    if (!code && m->options.states)
        code = sqrl_mix_resume(m->mix, saved.drawn, saved.changes, err);
    m->options.state = NULL; /* the caller's */
    m->options.states = 0;
    sqrl_mixture_saved_reset(&saved);
    return code;
}

int sqrl_mixture_open(struct sqrl_plan *const *plans, const double *weights, size_t count,
                      const struct sqrl_mixture_options *options,
                      struct sqrl_mixture **out, struct sqrl_error *err) {
    *out = NULL;
    if (!count || count > SQRL_MAX_MIX)
        return sqrl_error_set(err, SQRL_E_INVALID, "a mixture has 1 to %u plans, not %zu",
                              SQRL_MAX_MIX, count);
    struct sqrl_mixture *m = sqrl_calloc(1, sizeof *m, "mixture", err);
    if (!m)
        return SQRL_E_NO_MEMORY;
    if (options)
        memcpy(&m->options, options, SQRL_MIN(options->size, sizeof m->options));
    m->weight = sqrl_calloc(count, sizeof *m->weight, "mixture", err);
    m->part = sqrl_calloc(count, sizeof *m->part, "mixture", err);
    int code = m->weight && m->part ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count && !code; i++) {
        m->weight[i] = weights ? weights[i] : 1;
        m->part[i].plan = sqrl_plan_ref(plans[i]);
        m->count = (uint32_t)i + 1;
    }
    if (!code)
        code = check_options(m, plans, err);
    if (!code)
        code = find_consumer(m, err);
    if (!code)
        code = start(m, err);
    if (code)
        sqrl_mixture_close(m);
    else
        *out = m;
    return code;
}

void sqrl_mixture_close(struct sqrl_mixture *m) {
    if (!m)
        return;
    for (uint32_t i = 0; i < m->count; i++) {
        struct part *part = &m->part[i];
        part_close(part);
        sqrl_plan_unref(part->plan);
        for (size_t b = 0; b < part->passes; b++)
            sqrl_pass_reset(&part->begun[b]);
        free(part->begun);
    }
    sqrl_mix_free(m->mix);
    free(m->weight);
    free(m->part);
    free(m);
}

/* --- while it runs --- */

int sqrl_mixture_set_weights(struct sqrl_mixture *m, const double *weights,
                             struct sqrl_error *err) {
    int code = sqrl_mix_set_weights(m->mix, weights, err);
    if (code)
        return code;
    memcpy(m->weight, weights, m->count * sizeof *weights);
    m->pending = false; /* what was drawn by the old ones is drawn anew */
    m->changed = true;
    return SQRL_OK;
}

void sqrl_mixture_progress(const struct sqrl_mixture *m, uint32_t i, uint64_t *pass,
                           uint64_t *given) {
    *pass = m->part[i].pass;
    *given = m->part[i].before + m->part[i].taken;
}

/* What of a part's later passes is still to come, borrowed. */
static void list_begun(const struct part *part, struct sqrl_standing *s) {
    s->begun = part->begun + part->used;
    s->passes = part->passes - part->used;
}

int sqrl_mixture_state(struct sqrl_mixture *m, bool unread, char **out,
                       struct sqrl_error *err) {
    struct sqrl_mixture_plan plan = {m->count, &m->options, m->consumers, m->consumer};
    struct sqrl_mixture_saved saved = {.epoch = m->options.epoch,
                                       .finished = m->finished && !unread,
                                       .count = m->count,
                                       .weight = m->weight};
    *out = NULL;
    saved.drawn = sqrl_calloc(2 * (size_t)m->count, sizeof *saved.drawn, "state", err);
    saved.standing = sqrl_calloc(m->count, sizeof *saved.standing, "state", err);
    char **text = sqrl_calloc(m->count, sizeof *text, "state", err);
    int code = saved.drawn && saved.standing && text ? SQRL_OK : SQRL_E_NO_MEMORY;
    saved.before = saved.drawn ? saved.drawn + m->count : NULL;
    if (!code)
        sqrl_mix_state(m->mix, saved.drawn, &saved.changes);
    if (!code && m->pending && saved.drawn[m->source])
        saved.drawn[m->source]--; /* it comes again */
    if (!code && unread &&
        (m->changed || !m->part[m->last].taken || !saved.drawn[m->last]))
        code = sqrl_error_set(err, SQRL_E_INVALID,
                              "there is no state in front of a sample behind which "
                              "weights or passes changed");
    for (uint32_t i = 0; i < m->count && !code; i++) {
        const struct part *part = &m->part[i];
        bool back = unread && i == m->last;
        uint64_t ahead = part->run ? part->run->count - part->at : 0;
        saved.drawn[i] -= back;
        saved.before[i] = part->before;
        saved.standing[i].taken = part->taken - back;
        saved.standing[i].now = (struct sqrl_pass){part->pass, 1, &text[i]};
        list_begun(part, &saved.standing[i]);
        code = sqrl_iterator_state(part->iterator, ahead + back, &text[i], err);
    }
    if (!code)
        code = sqrl_mixture_write(&plan, &saved, out, err);
    for (uint32_t i = 0; text && i < m->count; i++)
        free(text[i]);
    free(text);
    free(saved.drawn);
    free(saved.standing);
    return code;
}
