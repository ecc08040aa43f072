/* distribute.c - the stage, and who runs it: ranks from options or the environment. */
#include <stdlib.h>

#include "stream/deal.h"
#include "stream/plan.h"

/* Pairs of variables that launchers set, the first pair that is there counts. */
static const struct launcher {
    const char *rank, *world_size;
} LAUNCHERS[] = {{"RANK", "WORLD_SIZE"},
                 {"SLURM_PROCID", "SLURM_NTASKS"},
                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}};

static int number_of(const char *name, uint64_t *out, struct sqrl_error *err) {
    const char *text = getenv(name);
    char *end;
    *out = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : SQRL_UNKNOWN;
    if (*out != SQRL_UNKNOWN && !*end && *out < UINT32_MAX)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "the environment variable %s is \"%.40s\", not a number: set "
                          "it, or give distribute() rank and world_size",
                          name, text ? text : "");
}

static int from_environment(struct sqrl_topology *t, struct sqrl_error *err) {
    for (size_t i = 0; i < SQRL_COUNT_OF(LAUNCHERS); i++) {
        if (!getenv(LAUNCHERS[i].rank) || !getenv(LAUNCHERS[i].world_size))
            continue;
        int code = number_of(LAUNCHERS[i].rank, &t->rank, err);
        return code ? code : number_of(LAUNCHERS[i].world_size, &t->world_size, err);
    }
    t->rank = 0;
    t->world_size = 1;
    return SQRL_OK;
}

int sqrl_topology_find(struct sqrl_topology *t, struct sqrl_error *err) {
    int code = t->world_size ? SQRL_OK : from_environment(t, err);
    if (code)
        return code;
    if (!t->workers) {
        t->worker = 0;
        t->workers = 1;
    }
    if (t->rank >= t->world_size)
        return sqrl_error_set(
            err, SQRL_E_INVALID, "rank %llu does not exist among %llu ranks (world_size)",
            (unsigned long long)t->rank, (unsigned long long)t->world_size);
    if (t->worker >= t->workers)
        return sqrl_error_set(
            err, SQRL_E_INVALID, "worker %llu does not exist among %llu workers",
            (unsigned long long)t->worker, (unsigned long long)t->workers);
    if (t->world_size > SQRL_MAX_CONSUMERS ||
        t->workers > SQRL_MAX_CONSUMERS / t->world_size)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "%llu ranks of %llu workers: at most %u consumers",
                              (unsigned long long)t->world_size,
                              (unsigned long long)t->workers, SQRL_MAX_CONSUMERS);
    return SQRL_OK;
}

const struct sqrl_distribute_options *
sqrl_plan_distribution(const struct sqrl_plan *plan) {
    while (plan && plan->kind != SQRL_STAGE_DISTRIBUTE)
        plan = plan->before;
    return plan ? &plan->distribution : NULL;
}

int sqrl_plan_topology(const struct sqrl_distribute_options *stage,
                       struct sqrl_topology *out, struct sqrl_error *err) {
    *out = (struct sqrl_topology){0, 1, 0, 1};
    if (!stage)
        return SQRL_OK;
    *out = stage->topology;
    return sqrl_topology_find(out, err);
}

int sqrl_plan_check_owners(const struct sqrl_plan *plan, uint64_t shards,
                           const struct sqrl_distribute_options *stage,
                           uint64_t consumers, struct sqrl_error *err) {
    for (uint64_t s = 0; s < shards; s++) {
        const char *path = sqrl_source_shard(plan->source, s)->path;
        if (s >= stage->owners)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "split: shard %s has no owner: %llu are given", path,
                                  (unsigned long long)stage->owners);
        if (stage->owner[s] >= consumers)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "split: shard %s belongs to consumer %u, but there are "
                                  "%llu (0 to %llu)",
                                  path, stage->owner[s], (unsigned long long)consumers,
                                  (unsigned long long)consumers - 1);
    }
    return SQRL_OK;
}

/* Samples of each consumer become how many this one gives. */
uint64_t sqrl_split_quota(const uint64_t *samples, uint64_t consumers, uint64_t consumer,
                          enum sqrl_tail tail) {
    uint64_t most = 0, least = UINT64_MAX;
    for (uint64_t c = 0; c < consumers; c++) {
        most = SQRL_MAX(most, samples[c]);
        least = SQRL_MIN(least, samples[c]);
    }
    if (tail == SQRL_TAIL_UNEVEN)
        return samples[consumer];
    return tail == SQRL_TAIL_PAD ? most : least;
}

int sqrl_plan_split_count(const struct sqrl_plan *plan,
                          const struct sqrl_distribute_options *stage,
                          const struct sqrl_topology *t, uint64_t *out,
                          struct sqrl_error *err) {
    uint64_t consumers = t->world_size * t->workers;
    uint64_t shards = sqrl_source_shards(plan->source);
    int code = sqrl_plan_check_owners(plan, shards, stage, consumers, err);
    uint64_t *samples = sqrl_calloc(consumers, sizeof *samples, "plan", err);
    *out = SQRL_UNKNOWN;
    if (!code && !samples)
        code = SQRL_E_NO_MEMORY;
    bool known = true;
    for (uint64_t s = 0; s < shards && !code && known; s++) {
        uint64_t n = sqrl_source_shard(plan->source, s)->samples;
        known = n != SQRL_UNKNOWN;
        samples[stage->owner[s]] += n;
    }
    if (!code && known)
        *out = sqrl_split_quota(samples, consumers, t->worker * t->world_size + t->rank,
                                stage->tail);
    free(samples);
    return code;
}

static int check_options(const struct sqrl_plan *plan,
                         const struct sqrl_distribute_options *o,
                         struct sqrl_error *err) {
    if (plan->batched)
        return sqrl_error_set(err, SQRL_E_INVALID, "distribute must stand before batch");
    if (plan->limited)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "distribute must stand before take and skip, which count "
                              "per rank and worker");
    if (plan->distributed)
        return sqrl_error_set(err, SQRL_E_INVALID, "distribute stands twice in the plan");
    if ((unsigned)o->tail > SQRL_TAIL_UNEVEN)
        return sqrl_error_set(err, SQRL_E_INVALID, "unknown choice for the tail");
    if (o->like > SQRL_MAX_CONSUMERS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "like: at most %u consumers",
                              SQRL_MAX_CONSUMERS);
    struct sqrl_topology topology = o->topology;
    return o->topology.world_size ? sqrl_topology_find(&topology, err) : SQRL_OK;
}

int sqrl_plan_distribute(struct sqrl_plan *plan,
                         const struct sqrl_distribute_options *options,
                         struct sqrl_plan **out, struct sqrl_error *err) {
    struct sqrl_distribute_options o = {.size = sizeof o};
    *out = NULL;
    if (options && options->size < sizeof(size_t))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "the size of the distribute options is not set");
    if (options)
        memcpy(&o, options, SQRL_MIN(options->size, sizeof o));
    int code = check_options(plan, &o, err);
    if (code)
        return code;
    struct sqrl_plan *next = sqrl_plan_stage(plan, SQRL_STAGE_DISTRIBUTE, err);
    if (!next)
        return SQRL_E_NO_MEMORY;
    next->distributed = true;
    next->distribution = o;
    next->distribution.owner = NULL;
    if (o.owner) {
        uint32_t *owner = sqrl_calloc(o.owners + 1, sizeof *owner, "plan", err);
        if (!owner) {
            sqrl_plan_unref(next);
            return SQRL_E_NO_MEMORY;
        }
        memcpy(owner, o.owner, o.owners * sizeof *owner);
        next->distribution.owner = owner;
    }
    *out = next;
    return SQRL_OK;
}
