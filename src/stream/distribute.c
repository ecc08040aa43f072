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
    *out = next;
    return SQRL_OK;
}
