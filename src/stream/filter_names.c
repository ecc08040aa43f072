/* filter_names.c - filters and selects that ask for a field which no sample has: a
 * misspelt name would be false for ever, or missing, silently.
 *
 * Where the source's schema is known, that is an error before anything is read; else
 * every block notes which fields it has, and what was in none is told when the stream is
 * at its end. A field that the expression tests for null may be missing.
 */
#include "driver/source.h"
#include "stream/executor.h"
#include "value/schema.h"

#include <stdlib.h>

/* Footers that are read for a filter alone, before the first sample. */
#define MAX_SHARDS_LOOKED_AT 256u

struct sqrl_filter_names {
    uint32_t wants;
    char *near;     /* of the names in the first block that lacks one */
    bool looked;    /* atomic: a block was looked through for it */
    uint8_t seen[]; /* [wants], relaxed atomics */
};

static const struct sqrl_plan *plan_of(const struct sqrl_iterator *it, uint32_t filter) {
    const struct sqrl_plan *p = it->plan;
    while (p->expression != it->filter[filter].expression)
        p = p->before;
    return p;
}

static bool in_schema(const struct sqrl_schema *schema, const char *origin) {
    for (uint32_t i = 0; i < schema->count; i++) {
        const char *name = schema->fields[i].name;
        if (sqrl_name_covers(origin, name) ||
            (schema->fields[i].kind == SQRL_KIND_OTHER && sqrl_name_covers(name, origin)))
            return true;
    }
    return false;
}

/* The name most like `name` among the schema's, as the filter sees them; malloc'd. */
static char *nearest(const struct sqrl_plan *p, const struct sqrl_schema *schema,
                     const char *name) {
    struct sqrl_name_map map = {0};
    char *found = NULL;
    int code = SQRL_OK;
    for (uint32_t i = 0; i < schema->count && !code; i++)
        code = sqrl_name_map_add(&map, schema->fields[i].name, i, NULL);
    if (!code)
        code = sqrl_projection_map(p->names, &map, NULL);
    const char **known =
        code ? NULL : sqrl_calloc(map.count + 1, sizeof *known, "fields", NULL);
    for (size_t i = 0; known && i < map.count; i++)
        known[i] = map.pair[i].out;
    const char *near = known ? sqrl_nearest(name, known, map.count) : NULL;
    if (near)
        found = sqrl_strdup(near, NULL);
    free(known);
    sqrl_name_map_reset(&map);
    return found;
}

#define HINT                                                                             \
    "%s%.120s%s (if it may be missing everywhere, say so: \"%.120s is not null and "     \
    "...\")"

static int check_filter(struct sqrl_iterator *it, uint32_t f,
                        const struct sqrl_schema *schema, struct sqrl_error *err) {
    const struct sqrl_plan *p = plan_of(it, f);
    uint32_t fields = sqrl_expression_fields(p->expression);
    for (uint32_t i = 0; i < fields; i++) {
        const char *name = sqrl_expression_field(p->expression, i);
        char *origin;
        if (sqrl_expression_may_lack(p->expression, i))
            continue;
        int code = sqrl_projection_origin(p->names, name, &origin, err);
        bool known = origin && (!schema || in_schema(schema, origin));
        free(origin);
        if (known || code) {
            if (code)
                return code;
            continue;
        }
        if (it->filter[f].map[i] == SQRL_NO_NODE)
            return sqrl_error_set(
                err, SQRL_E_NOT_FOUND,
                "filter: field \"%.120s\" is removed by select, drop or "
                "rename in front of the filter",
                name);
        char *near = nearest(p, schema, name);
        code = sqrl_error_set(
            err, SQRL_E_NOT_FOUND, "filter: no sample has a field \"%.120s\"" HINT, name,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", name);
        free(near);
        return code;
    }
    return SQRL_OK;
}

static int check_select(const struct sqrl_plan *p, const struct sqrl_schema *schema,
                        struct sqrl_error *err) {
    enum sqrl_name_stage stage;
    size_t count = sqrl_projection_names(p->projection, &stage);
    for (size_t i = 0; i < count && stage == SQRL_NAMES_SELECT; i++) {
        const char *name = sqrl_projection_name(p->projection, i, false);
        char *origin;
        int code = sqrl_projection_origin(p->before->names, name, &origin, err);
        bool known = code || (origin && in_schema(schema, origin));
        free(origin);
        if (code)
            return code;
        if (known)
            continue;
        char *near = nearest(p->before, schema, name);
        code = sqrl_error_set(
            err, SQRL_E_NOT_FOUND, "select: no sample has a field \"%.120s\"%s%.120s%s",
            name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
        free(near);
        return code;
    }
    return SQRL_OK;
}

int sqrl_plan_check_selects(const struct sqrl_plan *plan, struct sqrl_error *err) {
    const struct sqrl_schema *schema = sqrl_source_schema_known(plan->source);
    int code = SQRL_OK;
    for (const struct sqrl_plan *p = plan; schema && schema->samples && p && !code;
         p = p->before)
        if (p->kind == SQRL_STAGE_NAMES)
            code = check_select(p, schema, err);
    return code;
}

int sqrl_filters_check(struct sqrl_iterator *it, const struct sqrl_schema *schema,
                       struct sqrl_error *err) {
    uint32_t wants = sqrl_wants_count(it->filter_wants);
    if (!it->filters)
        return SQRL_OK;
    it->filter_names = sqrl_calloc(1, sizeof *it->filter_names + wants, "filter", err);
    if (!it->filter_names)
        return SQRL_E_NO_MEMORY;
    it->filter_names->wants = wants;
    int code = SQRL_OK;
    if (it->source != it->plan->source) /* names of all groups, for the message */
        schema = NULL;
    if (!schema && sqrl_source_shards(it->source) <= MAX_SHARDS_LOOKED_AT)
        code = sqrl_source_schema(it->plan->source, &schema, err);
    if (schema && !schema->samples)
        schema = NULL;
    for (uint32_t f = 0; f < it->filters && !code; f++)
        code = check_filter(it, f, schema, err);
    return code;
}

void sqrl_filters_free(struct sqrl_filter_names *names) {
    if (names)
        free(names->near);
    free(names);
}

bool sqrl_filters_lack(const struct sqrl_iterator *it) {
    const struct sqrl_filter_names *n = it->filter_names;
    for (uint32_t i = 0; n && i < n->wants; i++)
        if (!__atomic_load_n(&n->seen[i], __ATOMIC_RELAXED))
            return true;
    return false;
}

bool sqrl_filters_see(struct sqrl_iterator *it, const uint32_t *found) {
    struct sqrl_filter_names *n = it->filter_names;
    bool lack = false;
    for (uint32_t i = 0; i < n->wants; i++) {
        if (found[i] != SQRL_NO_NODE)
            __atomic_store_n(&n->seen[i], 1, __ATOMIC_RELAXED);
        lack |= !__atomic_load_n(&n->seen[i], __ATOMIC_RELAXED);
    }
    return lack;
}

/* The first field that no sample had; NULL: none. */
static const char *never_seen(const struct sqrl_iterator *it,
                              const struct sqrl_plan **plan) {
    for (uint32_t f = 0; f < it->filters; f++) {
        const struct sqrl_filter *filter = &it->filter[f];
        for (uint32_t i = 0; i < sqrl_expression_fields(filter->expression); i++) {
            uint32_t want = filter->map[i];
            if (want == SQRL_NO_NODE || sqrl_expression_may_lack(filter->expression, i) ||
                __atomic_load_n(&it->filter_names->seen[want], __ATOMIC_RELAXED))
                continue;
            *plan = plan_of(it, f);
            return sqrl_expression_field(filter->expression, i);
        }
    }
    return NULL;
}

void sqrl_filters_look(struct sqrl_iterator *it, const struct sqrl_block *block) {
    struct sqrl_filter_names *n = it->filter_names;
    const struct sqrl_plan *plan;
    const char *name = never_seen(it, &plan);
    struct sqrl_schema schema = {0};
    struct sqrl_block one = *block;
    if (!name || !block->count || __atomic_exchange_n(&n->looked, true, __ATOMIC_ACQ_REL))
        return;
    one.count = 1;
    if (sqrl_schema_observe(&schema, &one, NULL) == SQRL_OK)
        n->near = nearest(plan, &schema, name);
    sqrl_schema_reset(&schema);
}

void sqrl_filters_tell(struct sqrl_iterator *it) {
    const struct sqrl_plan *plan;
    const char *name = it->filter_names ? never_seen(it, &plan) : NULL;
    if (!name || !sqrl_stat_get(&it->stat[STAT_LOAD].items))
        return;
    const char *near = it->filter_names->near;
    sqrl_log(it->context, SQRL_LOG_WARNING,
             "filter: no sample of the stream had a field \"%.120s\"" HINT, name,
             near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", name);
}
