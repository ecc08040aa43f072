/* driver_groups.c - the groups of fields that commits tell of. */
#include <stdlib.h>

#include "driver/driver_sqrl.h"
#include "driver/family.h"
#include "format/native.h"

#define LLU(x) ((unsigned long long)(x))
#define MAX_GROUPS 1024u

struct named {
    const char *name;
    uint64_t shard; /* of the source */
};

struct groups {
    const struct sqrl_driver_args *args;
    const struct sqrl_listing *listing; /* NULL: not looked at */
    struct sqrl_shard_list *list;
    struct sqrl_families *families;
    struct named *named; /* [shards], by name */
    struct sqrl_error *err;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* The source's number of a shard; SQRL_UNKNOWN when it was replaced. */
static uint64_t shard_of(const struct groups *g, const char *name) {
    struct named key = {name, 0}, *found = NULL;
    if (g->families->shards)
        found = bsearch(&key, g->named, g->families->shards, sizeof key, by_name);
    return found ? found->shard : SQRL_UNKNOWN;
}

static int name_shards(struct groups *g, const struct sqrl_commits *commits) {
    uint64_t n = 0;
    g->named = sqrl_calloc(g->families->shards + 1, sizeof *g->named, "shards", g->err);
    if (!g->named)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < commits->count; i++)
        for (uint64_t k = 0; k < commits->items[i].shard_count; k++, n++)
            g->named[n] = (struct named){commits->items[i].shards[k].name, n};
    if (n)
        qsort(g->named, n, sizeof *g->named, by_name);
    return SQRL_OK;
}

static struct sqrl_family_group *new_group(struct groups *g) {
    struct sqrl_families *f = g->families;
    if (f->groups == MAX_GROUPS) {
        sqrl_error_set(g->err, SQRL_E_LIMIT, "more than %u groups of fields", MAX_GROUPS);
        return NULL;
    }
    struct sqrl_family_group *grown =
        sqrl_realloc(f->group, (f->groups + 1) * sizeof *grown, "groups", g->err);
    if (!grown)
        return NULL;
    f->group = grown;
    struct sqrl_family_group *made = &grown[f->groups];
    *made = (struct sqrl_family_group){.has_schema = true};
    made->shard = sqrl_calloc(f->shards + 1, sizeof *made->shard, "shards", g->err);
    if (!made->shard)
        return NULL;
    f->groups++;
    return made;
}

/* The group of this name and these fields, which is new at first. */
static int find_group(struct groups *g, const struct sqrl_group *group, uint32_t *out) {
    struct sqrl_families *f = g->families;
    bool rest = strcmp(group->name, SQRL_GROUP_REST) == 0;
    int rc = SQRL_OK;
    for (*out = 1; *out < f->groups; ++*out) {
        struct sqrl_group *there = &f->group[*out].group;
        if (strcmp(there->name, group->name) != 0 || there->added != group->added ||
            (!rest && !sqrl_names_equal(&there->fields, &group->fields)))
            continue;
        for (uint32_t i = 0; rc == SQRL_OK && i < group->fields.count; i++)
            rc = sqrl_names_add(&there->fields, group->fields.item[i],
                                strlen(group->fields.item[i]), g->err);
        return rc;
    }
    struct sqrl_family_group *made = new_group(g);
    return made ? sqrl_group_copy(group, &made->group, g->err) : SQRL_E_NO_MEMORY;
}

static int take_base(struct groups *g, const struct sqrl_commit_group *from) {
    struct sqrl_families *f = g->families;
    struct sqrl_group *grown =
        sqrl_realloc(f->base, (f->bases + 1) * sizeof *grown, "groups", g->err);
    if (!grown)
        return SQRL_E_NO_MEMORY;
    f->base = grown;
    int rc = sqrl_group_copy(&from->group, &f->base[f->bases], g->err);
    if (rc)
        return rc;
    f->bases++;
    for (uint64_t k = 0; k < from->of_count; k++) {
        uint64_t shard = shard_of(g, from->of[k]);
        if (shard != SQRL_UNKNOWN)
            f->base_of[shard] = f->bases;
    }
    return SQRL_OK;
}

/* Of two commits that add the same group to one shard the first counts. */
static bool has_name(const struct sqrl_families *f, uint64_t shard, const char *name) {
    for (uint32_t i = 1; i < f->groups; i++)
        if (f->group[i].shard[shard].path && strcmp(f->group[i].group.name, name) == 0)
            return true;
    return false;
}

static int take_shard(struct groups *g, const struct sqrl_commit *commit,
                      const struct sqrl_commit_group *from, uint64_t k, uint64_t shard,
                      struct sqrl_shard *out) {
    const struct sqrl_commit_shard *part = &from->set.shards[k];
    const struct sqrl_shard *base = &g->list->items[shard];
    if (part->samples != base->samples)
        return sqrl_error_set(g->err, SQRL_E_CORRUPT,
                              "shard \"%s\" of the group \"%s\" has %llu samples, but "
                              "\"%s\", to which it belongs, has %llu: run `squirrel "
                              "index`, or pack the data again",
                              part->name, from->group.name, LLU(part->samples),
                              from->of[k], LLU(base->samples));
    char *path = sqrl_path_join(g->args->path, part->name, g->err);
    if (!path)
        return SQRL_E_NO_MEMORY;
    int rc = SQRL_OK;
    if (g->listing)
        rc = sqrl_commit_shard_check(g->args, path, g->listing, commit, part, g->err);
    if (rc == SQRL_OK) {
        *out = (struct sqrl_shard){.file_bytes = part->file_bytes,
                                   .samples = part->samples,
                                   .blocks = part->blocks,
                                   .raw_bytes = part->raw_bytes,
                                   .format = &sqrl_format_native,
                                   .checksum = part->footer_checksum};
        out->path = sqrl_format(g->err, "%s%s", g->list->prefix, path);
        rc = out->path ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    free(path);
    return rc;
}

static int take_chunks(struct groups *g, const struct sqrl_commit *set,
                       const uint64_t *taken, struct sqrl_family_group *to) {
    uint64_t room = to->chunks + set->chunk_count + 1;
    struct sqrl_shard_chunk *grown =
        sqrl_realloc(to->chunk, room * sizeof *grown, "chunks", g->err);
    if (!grown)
        return SQRL_E_NO_MEMORY;
    to->chunk = grown;
    for (uint64_t c = 0; c < set->chunk_count; c++) {
        const struct sqrl_commit_chunk *chunk = &set->chunks[c];
        if (taken[chunk->shard] != SQRL_UNKNOWN)
            grown[to->chunks++] = (struct sqrl_shard_chunk){
                (uint32_t)taken[chunk->shard], chunk->first_block, chunk->blocks,
                chunk->samples};
    }
    return SQRL_OK;
}

static int take_schema(struct sqrl_family_group *to, const struct sqrl_commit *set,
                       struct sqrl_error *err) {
    int rc = SQRL_OK;
    to->has_schema = to->has_schema && set->has_schema;
    if (to->has_schema)
        rc = sqrl_schema_unite(&to->schema, &set->schema, err);
    if (rc == SQRL_E_LIMIT) {
        sqrl_error_clear(err);
        to->has_schema = false;
        rc = SQRL_OK;
    }
    return rc;
}

static int take_group(struct groups *g, const struct sqrl_commit *commit,
                      const struct sqrl_commit_group *from) {
    if (from->group.base)
        return take_base(g, from);
    uint64_t *taken =
        sqrl_calloc(from->of_count + 1, sizeof *taken, "shards of a group", g->err);
    if (!taken)
        return SQRL_E_NO_MEMORY;
    uint32_t number = 0;
    bool any = false;
    for (uint64_t k = 0; k < from->of_count; k++) {
        taken[k] = shard_of(g, from->of[k]);
        if (taken[k] != SQRL_UNKNOWN && has_name(g->families, taken[k], from->group.name))
            taken[k] = SQRL_UNKNOWN;
        any = any || taken[k] != SQRL_UNKNOWN;
    }
    int rc = any ? find_group(g, &from->group, &number) : SQRL_OK;
    for (uint64_t k = 0; rc == SQRL_OK && k < from->of_count; k++)
        if (taken[k] != SQRL_UNKNOWN)
            rc = take_shard(g, commit, from, k, taken[k],
                            &g->families->group[number].shard[taken[k]]);
    if (rc == SQRL_OK && any)
        rc = take_chunks(g, &from->set, taken, &g->families->group[number]);
    if (rc == SQRL_OK && any)
        rc = take_schema(&g->families->group[number], &from->set, g->err);
    free(taken);
    return rc;
}

/* Group 0: the shards of the list, all with their own schema and chunks. */
static int take_bases(struct groups *g) {
    struct sqrl_family_group *to = new_group(g);
    struct sqrl_shard_list *list = g->list;
    if (!to)
        return SQRL_E_NO_MEMORY;
    for (uint64_t s = 0; s < list->count; s++) {
        to->shard[s] = list->items[s];
        to->shard[s].path = sqrl_strdup(list->items[s].path, g->err);
        if (!to->shard[s].path)
            return SQRL_E_NO_MEMORY;
    }
    to->chunk = sqrl_calloc(list->chunk_count + 1, sizeof *to->chunk, "chunks", g->err);
    if (!to->chunk)
        return SQRL_E_NO_MEMORY;
    if (list->chunk_count)
        memcpy(to->chunk, list->chunks, list->chunk_count * sizeof *to->chunk);
    to->chunks = list->chunk_count;
    to->has_schema = list->has_schema;
    return list->has_schema ? sqrl_schema_copy(&list->schema, &to->schema, g->err)
                            : SQRL_OK;
}

static int by_shard(const void *a, const void *b) {
    const struct sqrl_shard_chunk *x = a, *y = b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->first_block < y->first_block ? -1 : x->first_block > y->first_block;
}

/* All groups together: what the list tells of whole samples. */
static int finish(struct groups *g) {
    struct sqrl_families *f = g->families;
    struct sqrl_schema all = {0};
    bool known = true;
    uint64_t samples = 0;
    int rc = SQRL_OK;
    for (uint32_t i = 0; i < f->groups && rc == SQRL_OK; i++) {
        struct sqrl_family_group *group = &f->group[i];
        if (i && group->chunks)
            qsort(group->chunk, group->chunks, sizeof *group->chunk, by_shard);
        known = known && group->has_schema;
        if (known)
            rc = sqrl_schema_unite(&all, &group->schema, g->err);
    }
    if (rc == SQRL_E_LIMIT) {
        sqrl_error_clear(g->err);
        known = false;
        rc = SQRL_OK;
    }
    for (uint64_t s = 0; s < f->shards; s++) {
        samples += g->list->items[s].samples;
        g->list->items[s].raw_bytes = sqrl_families_raw_bytes(f, NULL, s);
    }
    all.samples = samples;
    sqrl_schema_settle(&all);
    sqrl_schema_reset(&g->list->schema);
    g->list->has_schema = false;
    if (rc == SQRL_OK && known)
        rc = sqrl_shard_list_set_schema(g->list, &all, g->err);
    sqrl_schema_reset(&all);
    return rc;
}

int sqrl_families_read(const struct sqrl_driver_args *args,
                       const struct sqrl_listing *listing,
                       const struct sqrl_commits *commits, struct sqrl_shard_list *list,
                       struct sqrl_error *err) {
    struct groups g = {.args = args, .listing = listing, .list = list, .err = err};
    bool any = false;
    for (size_t i = 0; i < commits->count; i++)
        any = any || commits->items[i].group_count;
    if (!any)
        return SQRL_OK;
    g.families = sqrl_families_new(args->context, list->count, err);
    if (!g.families)
        return SQRL_E_NO_MEMORY;
    int rc = name_shards(&g, commits);
    if (rc == SQRL_OK)
        rc = take_bases(&g);
    for (size_t i = 0; rc == SQRL_OK && i < commits->count; i++)
        for (uint64_t k = 0; rc == SQRL_OK && k < commits->items[i].group_count; k++)
            rc = take_group(&g, &commits->items[i], &commits->items[i].groups[k]);
    if (rc == SQRL_OK)
        rc = finish(&g);
    free(g.named);
    if (rc == SQRL_OK)
        list->families = g.families;
    else
        sqrl_families_unref(g.families);
    return rc;
}
