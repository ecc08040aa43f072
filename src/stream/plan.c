/* plan.c - the immutable chain of stages: building, counting, describing. */
#include "stream/executor.h"
#include "stream/plan.h"
#include "stream/deal.h"

#include <stdio.h>
#include <stdlib.h>

static void batching_reset(struct sqrl_batching *b) {
    for (size_t i = 0; b->declared && i < b->options.field_count; i++)
        free(b->declared[i].name);
    free(b->declared);
    free(b->length_field);
    free(b->boundary);
}

static void plan_free(struct sqrl_plan *plan) {
    if (plan->kind == SQRL_STAGE_SOURCE)
        sqrl_source_unref(plan->source);
    sqrl_expression_free(plan->expression);
    sqrl_projection_free(plan->projection);
    batching_reset(&plan->batching);
    free(plan->text);
    sqrl_source_unref(plan->needed);
    free((void *)(uintptr_t)plan->distribution.owner);
    sqrl_lock_reset(&plan->lock);
    if (plan->on_error.release)
        plan->on_error.release(plan->on_error.arg);
    free(plan);
}

struct sqrl_plan *sqrl_plan_ref(struct sqrl_plan *plan) {
    __atomic_add_fetch(&plan->refs, 1, __ATOMIC_RELAXED);
    return plan;
}

void sqrl_plan_unref(struct sqrl_plan *plan) {
    while (plan && __atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        if (sqrl_follow_reset(plan))
            return;
        struct sqrl_plan *before = plan->before;
        plan_free(plan);
        plan = before;
    }
}

int sqrl_plan_source(struct sqrl_source *source, struct sqrl_plan **out,
                     struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_plan *plan = sqrl_calloc(1, sizeof *plan, "plan", err);
    if (!plan)
        return SQRL_E_NO_MEMORY;
    plan->refs = 1;
    sqrl_lock_init(&plan->lock);
    plan->kind = SQRL_STAGE_SOURCE;
    plan->source = sqrl_source_ref(source);
    *out = plan;
    return SQRL_OK;
}

struct sqrl_plan *sqrl_plan_stage(struct sqrl_plan *before, enum sqrl_stage_kind kind,
                                  struct sqrl_error *err) {
    struct sqrl_plan *plan = sqrl_calloc(1, sizeof *plan, "plan", err);
    if (!plan)
        return NULL;
    plan->refs = 1;
    sqrl_lock_init(&plan->lock);
    plan->kind = kind;
    plan->before = sqrl_plan_ref(before);
    plan->source = before->source;
    plan->batched = before->batched;
    plan->shuffled = before->shuffled;
    plan->distributed = before->distributed;
    plan->limited = before->limited;
    plan->filters = before->filters;
    plan->name_stages = before->name_stages;
    plan->names = before->names;
    return plan;
}

static int needs_samples(const struct sqrl_plan *plan, const char *what,
                         struct sqrl_error *err) {
    if (!plan->batched)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_INVALID, "%s must stand before batch", what);
}

int sqrl_plan_filter(struct sqrl_plan *plan, const char *expression,
                     struct sqrl_plan **out, struct sqrl_error *err) {
    *out = NULL;
    int code = needs_samples(plan, "filter", err);
    if (code)
        return code;
    if (plan->filters >= SQRL_MAX_FILTERS)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "more than %u filters; join them with 'and'",
                              SQRL_MAX_FILTERS);
    struct sqrl_plan *next = sqrl_plan_stage(plan, SQRL_STAGE_FILTER, err);
    if (!next)
        return SQRL_E_NO_MEMORY;
    next->filters++;
    code = sqrl_expression_parse(expression, &next->expression, err);
    if (!code && !(next->text = sqrl_strdup(expression, err)))
        code = SQRL_E_NO_MEMORY;
    if (code)
        sqrl_plan_unref(next);
    else
        *out = next;
    return code;
}

static int names_stage(struct sqrl_plan *plan, enum sqrl_name_stage stage,
                       const char *what, const char *const *names, const char *const *to,
                       size_t count, struct sqrl_plan **out, struct sqrl_error *err) {
    *out = NULL;
    int code = needs_samples(plan, what, err);
    if (code)
        return code;
    if (plan->name_stages >= SQRL_MAX_NAME_STAGES)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "more than %u select, drop and rename stages",
                              SQRL_MAX_NAME_STAGES);
    struct sqrl_plan *next = sqrl_plan_stage(plan, SQRL_STAGE_NAMES, err);
    if (!next)
        return SQRL_E_NO_MEMORY;
    next->name_stages++;
    code =
        sqrl_projection_new(plan->names, stage, names, to, count, &next->projection, err);
    if (code) {
        sqrl_plan_unref(next);
        return code;
    }
    next->names = next->projection;
    *out = next;
    return SQRL_OK;
}

int sqrl_plan_select(struct sqrl_plan *plan, const char *const *names, size_t count,
                     struct sqrl_plan **out, struct sqrl_error *err) {
    return names_stage(plan, SQRL_NAMES_SELECT, "select", names, NULL, count, out, err);
}
int sqrl_plan_drop(struct sqrl_plan *plan, const char *const *names, size_t count,
                   struct sqrl_plan **out, struct sqrl_error *err) {
    return names_stage(plan, SQRL_NAMES_DROP, "drop", names, NULL, count, out, err);
}
int sqrl_plan_rename(struct sqrl_plan *plan, const char *const *from,
                     const char *const *to, size_t count, struct sqrl_plan **out,
                     struct sqrl_error *err) {
    return names_stage(plan, SQRL_NAMES_RENAME, "rename", from, to, count, out, err);
}

int sqrl_plan_shuffle_all(struct sqrl_plan *plan, uint64_t seed, uint64_t window_bytes,
                          struct sqrl_plan **out, struct sqrl_error *err) {
    *out = NULL;
    int code = needs_samples(plan, "shuffle_all", err);
    if (code)
        return code;
    if (plan->limited)
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "shuffle_all must stand before take and skip: it reorders all "
            "samples of the source");
    if (plan->shuffled)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "shuffle_all stands twice in the plan");
    struct sqrl_plan *next = sqrl_plan_stage(plan, SQRL_STAGE_SHUFFLE, err);
    if (!next)
        return SQRL_E_NO_MEMORY;
    next->shuffled = true;
    next->number = seed;
    next->window_bytes = window_bytes ? window_bytes : SQRL_DEFAULT_WINDOW_BYTES;
    *out = next;
    return SQRL_OK;
}

static int number_stage(struct sqrl_plan *plan, enum sqrl_stage_kind kind,
                        uint64_t number, struct sqrl_plan **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_plan *next = sqrl_plan_stage(plan, kind, err);
    if (!next)
        return SQRL_E_NO_MEMORY;
    next->limited |= kind != SQRL_STAGE_PREFETCH;
    next->number = number;
    *out = next;
    return SQRL_OK;
}

int sqrl_plan_take(struct sqrl_plan *plan, uint64_t n, struct sqrl_plan **out,
                   struct sqrl_error *err) {
    return number_stage(plan, SQRL_STAGE_TAKE, n, out, err);
}
int sqrl_plan_skip(struct sqrl_plan *plan, uint64_t n, struct sqrl_plan **out,
                   struct sqrl_error *err) {
    return number_stage(plan, SQRL_STAGE_SKIP, n, out, err);
}
int sqrl_plan_prefetch(struct sqrl_plan *plan, uint64_t bytes, struct sqrl_plan **out,
                       struct sqrl_error *err) {
    return number_stage(plan, SQRL_STAGE_PREFETCH, bytes, out, err);
}

static int check_batch_options(const struct sqrl_batch_options *o,
                               struct sqrl_error *err) {
    int given = !!o->batch_size + !!o->max_tokens + !!o->max_bytes;
    if (given != 1)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "batch needs exactly one of batch_size, max_tokens and "
                              "max_bytes; %d are given",
                              given);
    if (o->batch_size > UINT32_MAX)
        return sqrl_error_set(err, SQRL_E_LIMIT, "batch_size is above 2^32-1");
    if ((o->max_tokens || o->boundaries) && !(o->length_field && *o->length_field))
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "max_tokens and length buckets need length_field (Python: length_by)");
    if (o->boundaries > 4096)
        return sqrl_error_set(err, SQRL_E_LIMIT, "more than 4096 bucket boundaries");
    for (size_t i = 1; i < o->boundaries; i++)
        if (o->boundary[i - 1] >= o->boundary[i])
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "bucket boundaries must ascend; number %zu does not",
                                  i);
    if ((unsigned)o->ragged > SQRL_RAGGED_ERROR)
        return sqrl_error_set(err, SQRL_E_INVALID, "unknown choice for ragged fields");
    if (o->field_count > SQRL_MAX_FIELDS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "more than %u declared fields",
                              SQRL_MAX_FIELDS);
    return SQRL_OK;
}

static int copy_batch_options(const struct sqrl_batch_options *given,
                              struct sqrl_batching *b, struct sqrl_error *err) {
    memcpy(&b->options, given, SQRL_MIN(given->size, sizeof b->options));
    struct sqrl_batch_options *o = &b->options;
    int code = check_batch_options(o, err);
    if (!code && o->length_field && *o->length_field) {
        b->length_field = sqrl_strdup(o->length_field, err);
        code = b->length_field ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    if (!code && o->boundaries) {
        b->boundary = sqrl_calloc(o->boundaries, sizeof *b->boundary, "buckets", err);
        if (b->boundary)
            memcpy(b->boundary, o->boundary, o->boundaries * sizeof *b->boundary);
        else
            code = SQRL_E_NO_MEMORY;
    }
    size_t fields = o->field_count;
    if (!code && fields) {
        b->declared = sqrl_calloc(fields, sizeof *b->declared, "declared fields", err);
        code = b->declared ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    o->field_count = 0;
    for (size_t i = 0; i < fields && !code; i++) {
        code =
            sqrl_field_parse(o->fields[i].name, o->fields[i].value, &b->declared[i], err);
        o->field_count = code ? i : i + 1;
    }
    o->length_field = b->length_field;
    o->boundary = b->boundary;
    o->fields = NULL;
    return code;
}

int sqrl_plan_batch(struct sqrl_plan *plan, const struct sqrl_batch_options *options,
                    struct sqrl_plan **out, struct sqrl_error *err) {
    *out = NULL;
    int code = needs_samples(plan, "a second batch", err);
    if (code)
        return code;
    if (!options || options->size < sizeof(size_t))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "batch options are missing or their size is not set");
    struct sqrl_plan *next = sqrl_plan_stage(plan, SQRL_STAGE_BATCH, err);
    if (!next)
        return SQRL_E_NO_MEMORY;
    next->batched = true;
    code = copy_batch_options(options, &next->batching, err);
    if (code)
        sqrl_plan_unref(next);
    else
        *out = next;
    return code;
}

struct sqrl_source *sqrl_plan_get_source(const struct sqrl_plan *plan) {
    return plan->source;
}
bool sqrl_plan_keeps_positions(const struct sqrl_plan *plan) {
    return !plan->batched && !plan->shuffled && !plan->limited && !plan->filters &&
           !plan->distributed;
}

bool sqrl_plan_is_batched(const struct sqrl_plan *plan) {
    return plan->batched;
}
const struct sqrl_projection *sqrl_plan_projection(const struct sqrl_plan *plan) {
    return plan->names;
}

/* The stages from the source on; *count of them, malloc'd. */
static const struct sqrl_plan **chain_of(const struct sqrl_plan *plan, size_t *count,
                                         struct sqrl_error *err) {
    size_t n = 0;
    for (const struct sqrl_plan *p = plan; p; p = p->before)
        n++;
    const struct sqrl_plan **chain = sqrl_malloc(n * sizeof *chain, "plan", err);
    *count = n;
    for (const struct sqrl_plan *p = plan; chain && p; p = p->before)
        chain[--n] = p;
    return chain;
}

static uint64_t batches_of(uint64_t samples, const struct sqrl_batch_options *o) {
    if (samples == SQRL_UNKNOWN || !o->batch_size || o->boundaries)
        return samples ? SQRL_UNKNOWN : 0;
    uint64_t full = samples / o->batch_size;
    return full + (!o->drop_remainder && samples % o->batch_size);
}

int sqrl_plan_count(struct sqrl_plan *plan, uint64_t *out, struct sqrl_error *err) {
    *out = SQRL_UNKNOWN;
    size_t stages;
    const struct sqrl_plan **chain = chain_of(plan, &stages, err);
    if (!chain)
        return SQRL_E_NO_MEMORY;
    uint64_t n = sqrl_source_samples(plan->source);
    const struct sqrl_distribute_options *distribution = sqrl_plan_distribution(plan);
    struct sqrl_topology t;
    int code = sqrl_plan_topology(distribution, &t, err);
    if (!code && distribution && distribution->owner)
        code = sqrl_plan_split_count(plan, distribution, &t, &n, err);
    else if (!code && distribution && n != SQRL_UNKNOWN)
        n = sqrl_deal_quota(n, t.world_size * t.workers, t.worker * t.world_size + t.rank,
                            distribution->tail);
    uint64_t steps = distribution ? distribution->steps : 0;
    for (size_t i = 1; i < stages && steps; i++)
        if (chain[i]->kind == SQRL_STAGE_TAKE)
            steps = 0; /* it may end earlier */
    for (size_t i = 1; i < stages; i++) {
        const struct sqrl_plan *p = chain[i];
        if (p->kind == SQRL_STAGE_FILTER)
            n = n ? SQRL_UNKNOWN : 0;
        else if (p->kind == SQRL_STAGE_TAKE && (n != SQRL_UNKNOWN || !p->number))
            n = SQRL_MIN(n, p->number);
        else if (p->kind == SQRL_STAGE_SKIP && n != SQRL_UNKNOWN)
            n -= SQRL_MIN(n, p->number);
        else if (p->kind == SQRL_STAGE_BATCH)
            n = batches_of(n, &p->batching.options);
    }
    free(chain);
    if (distribution && distribution->steps)
        n = steps ? steps : SQRL_UNKNOWN;
    *out = n;
    return code;
}

static void describe_names(const struct sqrl_projection *projection, FILE *to) {
    static const char *const VERB[] = {"select", "drop", "rename"};
    enum sqrl_name_stage stage;
    size_t count = sqrl_projection_names(projection, &stage);
    fprintf(to, "%s(", VERB[stage]);
    for (size_t i = 0; i < count; i++) {
        fprintf(to, "%s'%s'", i ? ", " : "", sqrl_projection_name(projection, i, false));
        if (stage == SQRL_NAMES_RENAME)
            fprintf(to, ": '%s'", sqrl_projection_name(projection, i, true));
    }
    fputc(')', to);
}

static void describe_batch(const struct sqrl_batch_options *o, FILE *to) {
    if (o->batch_size)
        fprintf(to, "batch(%llu", (unsigned long long)o->batch_size);
    else if (o->max_tokens)
        fprintf(to, "batch(max_tokens=%llu", (unsigned long long)o->max_tokens);
    else
        fprintf(to, "batch(max_bytes=%llu", (unsigned long long)o->max_bytes);
    if (o->length_field)
        fprintf(to, ", length_field='%s'", o->length_field);
    if (o->boundaries)
        fprintf(to, ", %zu buckets", o->boundaries + 1);
    if (o->ragged)
        fprintf(to, ", ragged='%s'", o->ragged == SQRL_RAGGED_PAD ? "pad" : "error");
    fprintf(to, "%s)", o->drop_remainder ? ", drop_remainder=True" : "");
}

static void describe_distribution(const struct sqrl_distribute_options *o, FILE *to) {
    static const char *const TAIL[] = {"pad", "drop", "uneven"};
    fprintf(to, "distribute(");
    if (o->steps)
        fprintf(to, "steps=%llu", (unsigned long long)o->steps);
    else
        fprintf(to, "tail='%s'", TAIL[o->tail]);
    if (o->like)
        fprintf(to, ", like=%llu", (unsigned long long)o->like);
    if (o->owner)
        fputs(", split", to);
    fputc(')', to);
}

static void describe_stage(const struct sqrl_plan *p, FILE *to) {
    unsigned long long n = p->number;
    switch (p->kind) {
    case SQRL_STAGE_SOURCE:
        fprintf(to, "source('%s')", sqrl_source_url(p->source));
        break;
    case SQRL_STAGE_FILTER:
        fprintf(to, "filter('%s')", p->text);
        break;
    case SQRL_STAGE_NAMES:
        describe_names(p->projection, to);
        break;
    case SQRL_STAGE_SHUFFLE:
        fprintf(to, "shuffle_all(seed=%llu", n);
        if (p->window_bytes == SQRL_SINGLE_SAMPLES)
            fputs(", window=None", to);
        else if (p->window_bytes != SQRL_DEFAULT_WINDOW_BYTES)
            fprintf(to, ", window=%llu", (unsigned long long)p->window_bytes);
        fputc(')', to);
        break;
    case SQRL_STAGE_DISTRIBUTE:
        describe_distribution(&p->distribution, to);
        break;
    case SQRL_STAGE_TAKE:
        fprintf(to, "take(%llu)", n);
        break;
    case SQRL_STAGE_SKIP:
        fprintf(to, "skip(%llu)", n);
        break;
    case SQRL_STAGE_ON_ERROR:
        fprintf(to, "on_error('%s')",
                (const char *const[]){"raise", "skip", "substitute",
                                      "ask"}[p->on_error.policy]);
        break;
    case SQRL_STAGE_PREFETCH:
        fprintf(to, "prefetch(%llu bytes)", n);
        break;
    case SQRL_STAGE_BATCH:
        describe_batch(&p->batching.options, to);
        break;
    }
}

char *sqrl_plan_stage_text(const struct sqrl_plan *stage) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (to)
        describe_stage(stage, to);
    if (to && fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

char *sqrl_plan_describe(const struct sqrl_plan *plan) {
    size_t stages, size;
    char *text = NULL;
    const struct sqrl_plan **chain = chain_of(plan, &stages, NULL);
    if (!chain)
        return NULL;
    FILE *to = open_memstream(&text, &size);
    for (size_t i = 0; to && i < stages; i++) {
        if (i)
            fputs(" -> ", to);
        describe_stage(chain[i], to);
    }
    free(chain);
    if (to && fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}
