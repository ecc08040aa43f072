/* plan_groups.c - which fields of its source a plan needs: a source that keeps them in
 * groups reads no others.
 *
 * A name is followed through select, drop and rename by itself. Where that can't tell (a
 * stage takes a map apart), the field counts as needed: too much is read then, never too
 * little. */
#include <stdlib.h>

#include "driver/source.h"
#include "format/group.h"
#include "stream/plan.h"

struct needs {
    struct sqrl_names read; /* top-level fields that filters and the like look at */
    const struct sqrl_projection *names; /* of what comes out */
    int code;
    struct sqrl_error *err;
};

static void add_top(struct needs *n, struct sqrl_names *to, const char *dotted) {
    char *top = n->code ? NULL : sqrl_top_field(dotted, n->err);
    if (!n->code)
        n->code = top ? sqrl_names_add(to, top, strlen(top), n->err) : SQRL_E_NO_MEMORY;
    free(top);
}

static void add_origin(struct needs *n, const struct sqrl_projection *names,
                       const char *name) {
    char *origin = NULL;
    if (!n->code)
        n->code = sqrl_projection_origin(names, name, &origin, n->err);
    if (!n->code && origin)
        add_top(n, &n->read, origin);
    free(origin);
}

/* What stages read besides what comes out. */
static void read_stages(struct needs *n, const struct sqrl_plan *plan) {
    for (const struct sqrl_plan *p = plan; p; p = p->before) {
        for (uint32_t i = 0;
             p->kind == SQRL_STAGE_FILTER && i < sqrl_expression_fields(p->expression);
             i++)
            add_origin(n, p->names, sqrl_expression_field(p->expression, i));
        if (p->kind == SQRL_STAGE_BATCH && p->batching.length_field)
            add_origin(n, p->names, p->batching.length_field);
    }
}

/* The first stage of names that is a select: what comes out lies below its names. */
static const struct sqrl_projection *first_select(const struct sqrl_plan *plan) {
    const struct sqrl_projection *found = NULL;
    for (const struct sqrl_plan *p = plan; p; p = p->before) {
        enum sqrl_name_stage stage;
        if (p->kind != SQRL_STAGE_NAMES)
            continue;
        sqrl_projection_names(p->projection, &stage);
        if (stage == SQRL_NAMES_SELECT)
            found = p->projection;
    }
    return found;
}

static bool wants(void *arg, const char *field) {
    struct needs *n = arg;
    bool keeps = true;
    if (sqrl_names_find(&n->read, field, strlen(field)) >= 0)
        return true;
    if (!n->code && n->names)
        n->code = sqrl_projection_keeps(n->names, field, &keeps, n->err);
    return keeps;
}

int sqrl_plan_narrow(const struct sqrl_plan *plan, struct sqrl_source **out,
                     struct sqrl_error *err) {
    struct needs n = {.names = plan->names, .err = err};
    struct sqrl_names all = {0};
    *out = NULL;
    if (!sqrl_source_groups(plan->source)) {
        *out = sqrl_source_ref(plan->source);
        return SQRL_OK;
    }
    read_stages(&n, plan);
    const struct sqrl_projection *select = first_select(plan);
    enum sqrl_name_stage stage;
    size_t count = select ? sqrl_projection_names(select, &stage) : 0;
    for (size_t i = 0; i < count && !n.code; i++) {
        char *origin = NULL;
        n.code =
            sqrl_projection_origin(sqrl_projection_before(select),
                                   sqrl_projection_name(select, i, false), &origin, err);
        if (!n.code && origin)
            add_top(&n, &all, origin);
        free(origin);
    }
    for (uint32_t i = 0; i < n.read.count && !n.code; i++)
        n.code = sqrl_names_add(&all, n.read.item[i], strlen(n.read.item[i]), err);
    struct sqrl_wanted wanted = {wants, &n, !select, (const char *const *)all.item,
                                 all.count};
    if (!n.code) {
        int code = sqrl_source_narrow(plan->source, &wanted, out, err);
        n.code = n.code ? n.code : code;
    }
    if (n.code) {
        sqrl_source_unref(*out);
        *out = NULL;
    }
    sqrl_names_reset(&n.read);
    sqrl_names_reset(&all);
    return n.code;
}

int sqrl_plan_get_many(struct sqrl_plan *plan, const uint64_t *indices, size_t count,
                       const struct sqrl_cancel *cancel, struct sqrl_samples **out,
                       struct sqrl_error *err) {
    *out = NULL;
    if (!sqrl_plan_keeps_positions(plan))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "samples have positions only behind select, drop and "
                              "rename");
    int rc = SQRL_OK;
    sqrl_lock_take(&plan->lock);
    if (!plan->needed && !(rc = sqrl_plan_check_selects(plan, err)))
        rc = sqrl_plan_narrow(plan, &plan->needed, err);
    sqrl_lock_drop(&plan->lock);
    return rc ? rc : sqrl_source_get_many(plan->needed, indices, count, cancel, out, err);
}
