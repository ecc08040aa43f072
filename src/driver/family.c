/* family.c - the groups of a source's shards; sources of some of them. */
#include "driver/family.h"

#include <stdlib.h>

#include "driver/source_inner.h"
#include "format/native.h"

#define MAX_KEPT_BYTES (UINT64_C(64) << 20)

struct sqrl_families *sqrl_families_new(struct sqrl_context *context, uint64_t shards,
                                        struct sqrl_error *err) {
    struct sqrl_families *families = sqrl_calloc(1, sizeof *families, "groups", err);
    if (!families)
        return NULL;
    families->refs = 1;
    families->shards = shards;
    sqrl_block_cache_init(&families->blocks, context);
    families->blocks.most = MAX_KEPT_BYTES;
    for (size_t i = 0; i < SQRL_PART_LOCKS; i++)
        sqrl_lock_init(&families->loading[i]);
    families->base_of = sqrl_calloc(shards + 1, sizeof(uint32_t), "groups", err);
    if (families->base_of)
        return families;
    sqrl_families_unref(families);
    return NULL;
}

struct sqrl_families *sqrl_families_ref(struct sqrl_families *families) {
    if (families)
        __atomic_fetch_add(&families->refs, 1, __ATOMIC_RELAXED);
    return families;
}

void sqrl_families_unref(struct sqrl_families *families) {
    if (!families || __atomic_sub_fetch(&families->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (uint32_t g = 0; g < families->groups; g++) {
        struct sqrl_family_group *group = &families->group[g];
        for (uint64_t s = 0; group->shard && s < families->shards; s++)
            free((char *)(uintptr_t)group->shard[s].path);
        free(group->shard);
        free(group->chunk);
        sqrl_group_reset(&group->group);
        sqrl_schema_reset(&group->schema);
    }
    for (uint32_t b = 0; b < families->bases; b++)
        sqrl_group_reset(&families->base[b]);
    sqrl_block_cache_reset(&families->blocks);
    for (size_t i = 0; i < SQRL_PART_LOCKS; i++)
        sqrl_lock_reset(&families->loading[i]);
    free(families->group);
    free(families->base);
    free(families->base_of);
    free(families);
}

int sqrl_schema_unite(struct sqrl_schema *to, const struct sqrl_schema *more,
                      struct sqrl_error *err) {
    struct sqrl_schema copy;
    int rc = sqrl_schema_copy(more, &copy, err);
    copy.samples = 0;
    if (rc == SQRL_OK)
        rc = sqrl_schema_merge(to, &copy, err);
    sqrl_schema_reset(&copy);
    return rc;
}

uint64_t sqrl_families_raw_bytes(const struct sqrl_families *families, const uint8_t *use,
                                 uint64_t shard) {
    uint64_t raw = 0;
    for (uint32_t g = 0; g < families->groups; g++) {
        enum sqrl_part_use part = sqrl_part_use(families, use, shard, g);
        if (part == SQRL_PART_LEADS ||
            (part == SQRL_PART_JOINED && !families->group[g].group.added))
            raw += families->group[g].shard[shard].raw_bytes;
    }
    return raw;
}

double sqrl_family_ratio(const struct sqrl_source *source, uint64_t shard) {
    const struct sqrl_families *f = source->families;
    double all = 0, lead = 0;
    for (uint32_t g = 0; g < f->groups; g++) {
        enum sqrl_part_use part = sqrl_part_use(f, source->use, shard, g);
        if (part == SQRL_PART_NOT)
            continue;
        all += (double)f->group[g].shard[shard].raw_bytes;
        if (part == SQRL_PART_LEADS)
            lead = (double)f->group[g].shard[shard].raw_bytes;
    }
    return lead > 0 ? all / lead : 1;
}

/* --- what is there, for users --- */

uint32_t sqrl_source_groups(const struct sqrl_source *source) {
    return source->families ? source->families->groups : 0;
}

void sqrl_source_group(const struct sqrl_source *source, uint32_t number,
                       struct sqrl_source_group *out) {
    const struct sqrl_families *f = source->families;
    memset(out, 0, sizeof *out);
    if (!f || number >= f->groups)
        return;
    const struct sqrl_group *group = &f->group[number].group;
    if (number == 0) /* what the first shard that was packed in groups says */
        group = f->bases ? &f->base[0] : NULL;
    out->name = group && group->name ? group->name : "";
    out->fields = group ? (const char *const *)group->fields.item : NULL;
    out->field_count = group ? group->fields.count : 0;
    out->base = number == 0;
    out->added = group && group->added;
    for (uint64_t s = 0; s < f->shards; s++) {
        const struct sqrl_shard *shard = &f->group[number].shard[s];
        if (!shard->path)
            continue;
        out->shards++;
        out->samples += shard->samples;
        out->raw_bytes += shard->raw_bytes;
        out->file_bytes += shard->file_bytes;
    }
}

const struct sqrl_shard *sqrl_source_group_shard(const struct sqrl_source *source,
                                                 uint32_t group, uint64_t shard) {
    const struct sqrl_families *f = source->families;
    if (!f || group >= f->groups || shard >= f->shards ||
        !f->group[group].shard[shard].path)
        return NULL;
    return &f->group[group].shard[shard];
}

/* --- a source of some groups --- */

struct narrow {
    const struct sqrl_families *families;
    const struct sqrl_wanted *wanted;
    bool *member; /* [groups]: one of its fields is wanted */
    bool *base;   /* [bases] */
    uint8_t *use; /* [shards][groups] */
    bool whole;   /* so far it is the source itself */
};

static bool wants_any(const struct sqrl_wanted *wanted, const struct sqrl_group *group) {
    for (uint32_t i = 0; i < group->fields.count; i++)
        if (wanted->wants(wanted->arg, group->fields.item[i]))
            return true;
    return false;
}

/* A name that none of the shard's parts has may be in a base that tells no fields. */
static bool wants_others(const struct narrow *n, uint64_t shard) {
    const struct sqrl_wanted *wanted = n->wanted;
    for (size_t i = 0; i < wanted->count; i++) {
        bool known = false;
        for (uint32_t g = 1; g < n->families->groups && !known; g++)
            known = n->families->group[g].shard[shard].path &&
                    sqrl_names_find(&n->families->group[g].group.fields, wanted->name[i],
                                    strlen(wanted->name[i])) >= 0;
        if (!known)
            return true;
    }
    return wanted->open;
}

/* Of no use at all is none: the smallest part tells how many samples there are. */
static uint32_t smallest(const struct sqrl_families *f, uint64_t shard) {
    uint32_t best = 0;
    for (uint32_t g = 1; g < f->groups; g++)
        if (f->group[g].shard[shard].path &&
            f->group[g].shard[shard].raw_bytes < f->group[best].shard[shard].raw_bytes)
            best = g;
    return best;
}

static void choose_parts(struct narrow *n, uint64_t shard) {
    const struct sqrl_families *f = n->families;
    uint8_t *use = n->use + shard * f->groups;
    uint32_t info = f->base_of[shard];
    bool led = false, all = true;
    for (uint32_t g = 0; g < f->groups; g++) {
        if (!f->group[g].shard[shard].path)
            continue;
        bool needed = g          ? n->member[g]
                      : info > 0 ? n->base[info - 1]
                                 : wants_others(n, shard);
        all = all && needed;
        if (!needed)
            continue;
        use[g] = led ? SQRL_PART_JOINED : SQRL_PART_LEADS;
        led = true;
    }
    if (!led)
        use[smallest(f, shard)] = SQRL_PART_LEADS;
    n->whole = n->whole && all;
}

static int narrow_choose(struct narrow *n, struct sqrl_error *err) {
    const struct sqrl_families *f = n->families;
    n->member = sqrl_calloc(f->groups + f->bases + 1, sizeof *n->member, "groups", err);
    n->use = sqrl_calloc(f->shards * f->groups + 1, 1, "groups", err);
    if (!n->member || !n->use)
        return SQRL_E_NO_MEMORY;
    n->base = n->member + f->groups;
    for (uint32_t g = 1; g < f->groups; g++)
        n->member[g] = wants_any(n->wanted, &f->group[g].group);
    for (uint32_t b = 0; b < f->bases; b++)
        n->base[b] = wants_any(n->wanted, &f->base[b]);
    n->whole = true;
    for (uint64_t s = 0; s < f->shards; s++)
        choose_parts(n, s);
    return SQRL_OK;
}

static uint32_t lead_of(const struct narrow *n, uint64_t shard) {
    uint32_t g = 0;
    while (sqrl_part_use(n->families, n->use, shard, g) != SQRL_PART_LEADS)
        g++;
    return g;
}

/* The first chunk of a shard, or where it would be. */
static uint64_t chunk_of(const struct sqrl_family_group *group, uint64_t shard) {
    uint64_t low = 0, high = group->chunks;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (group->chunk[middle].shard < shard)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int narrow_schema(const struct narrow *n, struct sqrl_shard_list *list,
                         struct sqrl_error *err) {
    const struct sqrl_families *f = n->families;
    struct sqrl_schema all = {0};
    int rc = SQRL_OK;
    bool known = true;
    uint64_t samples = 0;
    for (uint64_t s = 0; s < f->shards; s++)
        samples += f->group[0].shard[s].samples;
    for (uint32_t g = 0; g < f->groups && known && rc == SQRL_OK; g++) {
        bool used = false;
        for (uint64_t s = 0; s < f->shards && !used; s++)
            used = sqrl_part_use(f, n->use, s, g) != SQRL_PART_NOT;
        if (!used)
            continue;
        known = f->group[g].has_schema;
        if (known)
            rc = sqrl_schema_unite(&all, &f->group[g].schema, err);
    }
    if (rc == SQRL_E_LIMIT) {
        sqrl_error_clear(err);
        known = false;
        rc = SQRL_OK;
    }
    all.samples = samples;
    sqrl_schema_settle(&all);
    if (rc == SQRL_OK && known)
        rc = sqrl_shard_list_set_schema(list, &all, err);
    sqrl_schema_reset(&all);
    return rc;
}

/* The leading parts as a list of shards, with their chunks. */
static int narrow_list(const struct narrow *n, struct sqrl_shard_list *list,
                       struct sqrl_error *err) {
    const struct sqrl_families *f = n->families;
    struct sqrl_shard_chunk *chunk = NULL;
    uint64_t chunks = 0, room = 0;
    int rc = narrow_schema(n, list, err);
    for (uint64_t s = 0; s < f->shards && rc == SQRL_OK; s++) {
        const struct sqrl_family_group *lead = &f->group[lead_of(n, s)];
        struct sqrl_shard known = lead->shard[s];
        known.raw_bytes = sqrl_families_raw_bytes(f, n->use, s);
        rc = sqrl_shard_list_add(list, lead->shard[s].path, &sqrl_format_native, &known,
                                 err);
        uint64_t from = chunk_of(lead, s), to = chunk_of(lead, s + 1);
        if (rc == SQRL_OK && chunks + (to - from) > room) {
            room = 2 * (chunks + (to - from));
            void *grown = sqrl_realloc(chunk, room * sizeof *chunk, "chunks", err);
            rc = grown ? SQRL_OK : SQRL_E_NO_MEMORY;
            chunk = grown ? grown : chunk;
        }
        if (rc == SQRL_OK && to > from)
            memcpy(chunk + chunks, lead->chunk + from, (to - from) * sizeof *chunk);
        chunks += to - from;
    }
    if (rc == SQRL_OK && chunk)
        rc = sqrl_shard_list_set_chunks(list, chunk, chunks, err);
    free(chunk);
    return rc;
}

/* A source of the same fs whose shards are these. */
static int narrow_make(struct sqrl_source *source, struct narrow *n,
                       struct sqrl_source **out, struct sqrl_error *err) {
    struct sqrl_driver_args args = {.context = source->context,
                                    .fs = source->fs,
                                    .url = source->url,
                                    .settings = &source->settings};
    struct sqrl_shard_list list = {.fs = source->fs, .prefix = ""};
    int rc = narrow_list(n, &list, err);
    sqrl_shard_list_set_fingerprint(&list, source->fingerprint);
    if (rc == SQRL_OK)
        rc = sqrl_source_new(&args, source->driver, &list, source->prefix_size, out, err);
    if (rc == SQRL_OK) {
        (*out)->families = sqrl_families_ref(source->families);
        (*out)->use = n->use;
        n->use = NULL;
    }
    sqrl_shard_list_reset(&list);
    return rc;
}

/* The samples of a subset, by position in the whole source. */
static int narrow_subset(struct sqrl_source *source, struct sqrl_source *made,
                         struct sqrl_source **out, struct sqrl_error *err) {
    uint64_t count = sqrl_source_samples(source), at = 0, first = 0;
    uint64_t *position = sqrl_malloc(count * sizeof *position + 1, "positions", err);
    if (!position)
        return SQRL_E_NO_MEMORY;
    for (uint64_t s = 0; s < source->count; s++) {
        for (uint64_t row = 0; row < source->subset[s].samples; row++)
            position[at++] = first + sqrl_source_row(source, s, row);
        first += made->shards[s].samples;
    }
    int rc = sqrl_source_subset(made, position, at, out, err);
    free(position);
    return rc;
}

int sqrl_source_narrow(struct sqrl_source *source, const struct sqrl_wanted *wanted,
                       struct sqrl_source **out, struct sqrl_error *err) {
    struct narrow n = {.families = source->families, .wanted = wanted};
    struct sqrl_source *made = NULL;
    *out = NULL;
    int rc = source->families && !source->use ? narrow_choose(&n, err) : SQRL_OK;
    if (rc == SQRL_OK && (!n.use || n.whole))
        *out = sqrl_source_ref(source);
    else if (rc == SQRL_OK)
        rc = narrow_make(source, &n, &made, err);
    if (made && source->subset) {
        rc = narrow_subset(source, made, out, err);
        sqrl_source_unref(made);
    } else if (made) {
        *out = made;
    }
    free(n.member);
    free(n.use);
    return rc;
}

char *sqrl_top_field(const char *dotted, struct sqrl_error *err) {
    char *top = sqrl_strdup(dotted, err), *to = top;
    for (const char *s = dotted; top && *s && *s != '.'; s++) {
        s += s[0] == '\\' && (s[1] == '.' || s[1] == '\\');
        *to++ = *s;
    }
    if (top)
        *to = 0;
    return top;
}

struct listed {
    char **name;
    size_t count;
};

static bool is_listed(void *arg, const char *field) {
    const struct listed *listed = arg;
    for (size_t i = 0; i < listed->count; i++)
        if (strcmp(listed->name[i], field) == 0)
            return true;
    return false;
}

int sqrl_source_narrow_to(struct sqrl_source *source, const char *const *names,
                          size_t count, struct sqrl_source **out,
                          struct sqrl_error *err) {
    struct listed listed = {.count = 0};
    *out = NULL;
    listed.name = sqrl_calloc(count + 1, sizeof *listed.name, "fields", err);
    int rc = listed.name ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (; rc == SQRL_OK && listed.count < count; listed.count++) {
        listed.name[listed.count] = sqrl_top_field(names[listed.count], err);
        if (!listed.name[listed.count])
            rc = SQRL_E_NO_MEMORY;
    }
    struct sqrl_wanted wanted = {is_listed, &listed, false,
                                 (const char *const *)listed.name, listed.count};
    if (rc == SQRL_OK)
        rc = sqrl_source_narrow(source, &wanted, out, err);
    for (size_t i = 0; i < listed.count; i++)
        free(listed.name[i]);
    free(listed.name);
    return rc;
}
