/* lookup.c - samples by key, and columns. */
#include <stdlib.h>

#include "driver/source_inner.h"
#include "sqrl/codec.h"
#include "value/value.h"

/* The sample has this very key: other keys may have the same hash. */
static int compare(struct sqrl_source *source, const struct sqrl_key *key,
                   const struct sqrl_field_path *path, uint64_t hash, uint64_t index,
                   bool *same, struct sqrl_error *err) {
    struct sqrl_samples *samples = NULL;
    int rc = sqrl_source_get_many(source, &index, 1, NULL, &samples, err);
    if (rc)
        return rc;
    const struct sqrl_block *block = samples->samples[0].block;
    const struct sqrl_node *nodes = block->tape.nodes;
    const uint8_t *bytes = block->bytes->data;
    uint32_t at =
        sqrl_field_path_find(path, nodes, block->begin[samples->samples[0].index], bytes);
    uint64_t found;
    bool text = at != SQRL_NO_NODE &&
                (nodes[at].type == SQRL_STRING || nodes[at].type == SQRL_BINARY);
    *same = text == (key->bytes != NULL) && sqrl_key_hash(nodes, at, bytes, &found) &&
            found == hash;
    if (*same && text)
        *same = nodes[at].size == key->size &&
                memcmp(bytes + nodes[at].v.offset, key->bytes, key->size) == 0;
    sqrl_samples_release(samples);
    return SQRL_OK;
}

static int no_keys(const struct sqrl_source *source, uint64_t shard,
                   struct sqrl_error *err) {
    sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                   "its samples have no keys: pack them with key=, the name of the field "
                   "that finds a sample");
    return sqrl_error_at(err, SQRL_E_UNSUPPORTED, "%s", source->shards[shard].path);
}

/* Looks into one shard; *index stays SQRL_UNKNOWN when the key is not there. */
static int find_in(struct sqrl_source *source, uint64_t shard, const struct sqrl_key *key,
                   uint64_t hash, uint64_t *index, struct sqrl_error *err) {
    struct sqrl_core *core = NULL;
    struct sqrl_bytes numbers = {0};
    struct sqrl_field_path path = {0};
    const char *field = NULL;
    int rc = sqrl_core_get(source, shard, &core, err);
    if (rc)
        return rc;
    const struct sqrl_format_ops *format = core->format;
    if (format->size >= offsetof(struct sqrl_format_ops, find) + sizeof format->find &&
        format->find) {
        rc = format->find(core->state, hash, NULL, &numbers, &field, err);
        if (rc)
            sqrl_error_at_path(err, rc, source->shards[shard].path,
                               source->shards[shard].path + source->prefix_size);
    }
    if (rc == SQRL_OK && !field)
        rc = no_keys(source, shard, err);
    if (rc == SQRL_OK)
        rc = sqrl_field_path_parse(field, &path, err);
    for (size_t at = 0; rc == SQRL_OK && *index == SQRL_UNKNOWN && at < numbers.size;
         at += 8) {
        uint64_t position, row;
        bool same = false;
        if (!sqrl_source_row_find(source, shard, sqrl_load_le64(numbers.data + at), &row))
            continue;
        rc = sqrl_source_position(source, shard, sqrl_load_le64(numbers.data + at),
                                  &position, err);
        if (rc == SQRL_OK && !*field)
            same = true; /* the samples don't hold it: the hash has to do */
        else if (rc == SQRL_OK)
            rc = compare(source, key, &path, hash, position, &same, err);
        if (same)
            *index = position;
    }
    sqrl_field_path_reset(&path);
    sqrl_bytes_reset(&numbers);
    sqrl_core_unref(core);
    return rc;
}

static int not_there(const struct sqrl_source *source, const struct sqrl_key *key,
                     struct sqrl_error *err) {
    if (key->bytes)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                              "%s has no sample with the key \"%.*s\"", source->url,
                              (int)SQRL_MIN(key->size, 120u), (const char *)key->bytes);
    return sqrl_error_set(err, SQRL_E_NOT_FOUND, "%s has no sample with the key %lld",
                          source->url, (long long)key->number);
}

/* --- which group has the keys --- */
static bool has_find(const struct sqrl_format_ops *format) {
    return format->size >= offsetof(struct sqrl_format_ops, find) + sizeof format->find &&
           format->find;
}

/* The name of the key that a part of shard 0 has; NULL: none. */
static int part_key(struct sqrl_source *source, const struct sqrl_shard *item,
                    char **field, struct sqrl_error *err) {
    struct sqrl_core *core = NULL;
    struct sqrl_bytes numbers = {0};
    const char *name = NULL;
    *field = NULL;
    int rc = sqrl_core_open(source, 0, item, NULL, &core, err);
    if (rc == SQRL_OK && has_find(core->format))
        rc = core->format->find(core->state, 0, NULL, &numbers, &name, err);
    if (rc)
        sqrl_error_at_path(err, rc, item->path, item->path + source->prefix_size);
    if (rc == SQRL_OK && name && !(*field = sqrl_strdup(name, err)))
        rc = SQRL_E_NO_MEMORY;
    sqrl_bytes_reset(&numbers);
    sqrl_core_unref(core);
    return rc;
}

/* Group 0 comes last: it is usually the largest. */
static int make_keyed(struct sqrl_source *source, struct sqrl_source **out,
                      struct sqrl_error *err) {
    const struct sqrl_families *f = source->families;
    int rc = SQRL_OK;
    for (uint32_t i = 1; rc == SQRL_OK && i <= f->groups && source->count; i++) {
        const struct sqrl_shard *item = &f->group[i % f->groups].shard[0];
        char *field = NULL;
        if (!item->path)
            continue;
        rc = part_key(source, item, &field, err);
        const char *const names[] = {field};
        if (rc == SQRL_OK && field) {
            rc = sqrl_source_narrow_to(source, names, 1, out, err);
            free(field);
            return rc;
        }
    }
    if (rc == SQRL_OK)
        *out = sqrl_source_ref(source);
    return rc;
}

/* The source to look keys up in: with groups, one that reads the keys' group alone. A
 * reference of the caller's. */
static int keyed_source(struct sqrl_source *source, struct sqrl_source **out,
                        struct sqrl_error *err) {
    struct sqrl_source *made = NULL;
    *out = NULL;
    if (!source->families || source->use) {
        *out = sqrl_source_ref(source);
        return SQRL_OK;
    }
    sqrl_lock_take(&source->access.lock);
    if (source->keyed)
        *out = sqrl_source_ref(source->keyed);
    sqrl_lock_drop(&source->access.lock);
    if (*out)
        return SQRL_OK;
    int rc = make_keyed(source, &made, err);
    if (rc)
        return rc;
    *out = made;
    if (made == source) /* it must not hold itself */
        return SQRL_OK;
    sqrl_lock_take(&source->access.lock);
    if (!source->keyed)
        source->keyed = sqrl_source_ref(made);
    sqrl_lock_drop(&source->access.lock);
    return SQRL_OK;
}

int sqrl_source_find(struct sqrl_source *source, const struct sqrl_key *key,
                     uint64_t *index, struct sqrl_error *err) {
    struct sqrl_source *keyed;
    uint64_t hash = key->bytes ? sqrl_xxh3(key->bytes, key->size)
                               : sqrl_xxh3(&key->number, sizeof key->number);
    *index = SQRL_UNKNOWN;
    int rc = keyed_source(source, &keyed, err);
    for (uint64_t i = 0; rc == SQRL_OK && i < source->count && *index == SQRL_UNKNOWN;
         i++)
        rc = find_in(keyed, i, key, hash, index, err);
    sqrl_source_unref(keyed);
    if (rc)
        return rc;
    return *index == SQRL_UNKNOWN ? not_there(source, key, err) : SQRL_OK;
}

static int key_field(struct sqrl_source *source, char **out, struct sqrl_error *err) {
    struct sqrl_core *core = NULL;
    struct sqrl_bytes numbers = {0};
    const char *field = NULL;
    int rc = source->count ? sqrl_core_get(source, 0, &core, err) : SQRL_OK;
    if (rc || !core)
        return rc;
    if (has_find(core->format))
        rc = core->format->find(core->state, 0, NULL, &numbers, &field, err);
    if (rc == SQRL_OK && field && !(*out = sqrl_strdup(field, err)))
        rc = SQRL_E_NO_MEMORY;
    sqrl_bytes_reset(&numbers);
    sqrl_core_unref(core);
    return rc;
}

int sqrl_source_key_field(struct sqrl_source *source, char **out,
                          struct sqrl_error *err) {
    struct sqrl_source *keyed;
    *out = NULL;
    int rc = keyed_source(source, &keyed, err);
    if (rc == SQRL_OK)
        rc = key_field(keyed, out, err);
    sqrl_source_unref(keyed);
    return rc;
}

/* --- columns --- */
/* Of a shard in groups, the group that has the field. */
static int column_core(struct sqrl_source *source, struct sqrl_core *core,
                       const char *field, struct sqrl_core **out,
                       struct sqrl_error *err) {
    const struct sqrl_families *f = source->families;
    *out = core;
    char *top = f ? sqrl_top_field(field, err) : NULL;
    if (!top)
        return f ? SQRL_E_NO_MEMORY : SQRL_OK;
    int rc = SQRL_OK;
    for (uint32_t g = 1; rc == SQRL_OK && g < f->groups; g++)
        if (sqrl_part_use(f, source->use, core->shard, g) == SQRL_PART_JOINED &&
            sqrl_names_find(&f->group[g].group.fields, top, strlen(top)) >= 0)
            rc = sqrl_family_part(source, core, g, out, err);
    free(top);
    return rc;
}

int sqrl_source_column(struct sqrl_source *source, uint64_t shard, const char *field,
                       struct sqrl_values *out, struct sqrl_error *err) {
    struct sqrl_core *core = NULL, *part = NULL;
    memset(out, 0, sizeof *out);
    int rc = sqrl_core_get(source, shard, &core, err);
    if (rc)
        return rc;
    const struct sqrl_format_ops *format = core->format;
    const char *path = source->shards[shard].path;
    rc = column_core(source, core, field, &part, err);
    if (rc == SQRL_OK &&
        format->size >=
            offsetof(struct sqrl_format_ops, column) + sizeof format->column &&
        format->column)
        rc = format->column(part->state, field, NULL, out, err);
    if (rc == SQRL_OK && !out->memory)
        rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                            "the field \"%.120s\" has no column here: pack the data with "
                            "index=, a list of fields, or use filter(), which reads the "
                            "samples",
                            field);
    if (rc)
        sqrl_error_at_path(err, rc, path, path + source->prefix_size);
    sqrl_core_unref(core);
    return rc;
}
