/* lookup.c - which field and which group has the keys; columns. */
#include <stdlib.h>

#include "driver/source_inner.h"
#include "sqrl/codec.h"
#include "value/value.h"

/* --- which group has the keys --- */
bool sqrl_format_finds(const struct sqrl_format_ops *format) {
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
    if (rc == SQRL_OK && sqrl_format_finds(core->format))
        rc = core->format->find(core->state, NULL, 0, NULL, &numbers, &name, err);
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

int sqrl_source_keyed(struct sqrl_source *source, struct sqrl_source **out,
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

static int key_field(struct sqrl_source *source, char **out, struct sqrl_error *err) {
    struct sqrl_core *core = NULL;
    struct sqrl_bytes numbers = {0};
    const char *field = NULL;
    int rc = source->count ? sqrl_core_get(source, 0, &core, err) : SQRL_OK;
    if (rc || !core)
        return rc;
    if (sqrl_format_finds(core->format))
        rc = core->format->find(core->state, NULL, 0, NULL, &numbers, &field, err);
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
    int rc = sqrl_source_keyed(source, &keyed, err);
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
