/* family_join.c - whole samples from the parts of a family.
 *
 * The leading part's block is the unit. Blocks of the other parts have sizes of their
 * own: one of labels covers many of images. It is loaded once and kept for the blocks
 * beside it, in a small cache that all sources of the data set share; two threads that
 * need it at once load it once. A part's file is opened when the first block is joined,
 * so that who looks at counts or columns only opens nothing else. */
#include <stdlib.h>

#include "driver/family.h"
#include "driver/source_inner.h"
#include "value/value.h"

/* Pieces of blocks: of one part after another. */
struct rows {
    struct sqrl_block_rows *item;
    size_t count, capacity;
};

int sqrl_family_part(struct sqrl_source *source, struct sqrl_core *core, uint32_t group,
                     struct sqrl_core **out, struct sqrl_error *err) {
    const struct sqrl_shard *item = &source->families->group[group].shard[core->shard];
    int rc = SQRL_OK;
    sqrl_lock_take(&core->lock);
    if (!core->part) {
        core->part =
            sqrl_calloc(source->families->groups, sizeof *core->part, "groups", err);
        core->parts = core->part ? source->families->groups : 0;
        rc = core->part ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    if (rc == SQRL_OK && !core->part[group])
        rc = sqrl_core_open(source, core->shard, item, NULL, &core->part[group], err);
    *out = rc == SQRL_OK ? core->part[group] : NULL;
    sqrl_lock_drop(&core->lock);
    return rc ? sqrl_error_at_path(err, rc, item->path, item->path + source->prefix_size)
              : SQRL_OK;
}

/* The part's last block that begins at or before this row. */
static uint64_t block_of(const struct sqrl_core *part, uint64_t row,
                         struct sqrl_block_info *info) {
    uint64_t low = 0, high = part->info.blocks;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        part->format->block_info(part->state, middle, info);
        *(info->first <= row ? &low : &high) = middle;
    }
    part->format->block_info(part->state, low, info);
    return low;
}

static int load_part(struct sqrl_core *part, uint64_t key, uint64_t number, bool keep,
                     struct sqrl_families *families, const struct sqrl_cancel *cancel,
                     struct sqrl_block **out, struct sqrl_error *err) {
    int rc = part->format->load(part->state, number, cancel, out, err);
    if (rc) {
        sqrl_block_unref(*out);
        *out = NULL;
        return rc;
    }
    (*out)->shard = key;
    (*out)->number = number;
    if (keep)
        sqrl_block_cache_put(&families->blocks, *out);
    return SQRL_OK;
}

/* A block of a part; one that is not used up at once is kept. */
static int part_block(struct sqrl_source *source, struct sqrl_core *part, uint32_t group,
                      uint64_t number, bool keep, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, struct sqrl_error *err) {
    struct sqrl_families *f = source->families;
    uint64_t key = part->shard * f->groups + group;
    *out = NULL;
    if (!keep)
        return load_part(part, key, number, false, f, cancel, out, err);
    *out = sqrl_block_cache_get(&f->blocks, key, number);
    if (*out)
        return SQRL_OK;
    struct sqrl_lock *lock =
        &f->loading[sqrl_mix64(sqrl_mix64(key) ^ number) % SQRL_PART_LOCKS];
    sqrl_lock_take(lock);
    int rc = SQRL_OK;
    *out = sqrl_block_cache_get(&f->blocks, key, number);
    if (!*out)
        rc = load_part(part, key, number, true, f, cancel, out, err);
    sqrl_lock_drop(lock);
    return rc;
}

static int add_rows(struct rows *rows, struct sqrl_block_rows piece,
                    struct sqrl_error *err) {
    if (rows->count == rows->capacity) {
        size_t capacity = rows->capacity ? 2 * rows->capacity : 8;
        struct sqrl_block_rows *item =
            sqrl_realloc(rows->item, capacity * sizeof *item, "parts", err);
        if (!item) {
            sqrl_block_unref(piece.block);
            return SQRL_E_NO_MEMORY;
        }
        rows->item = item;
        rows->capacity = capacity;
    }
    rows->item[rows->count++] = piece;
    return SQRL_OK;
}

/* Rows [first, first + count) of one part. */
static int collect(struct sqrl_source *source, struct sqrl_core *core, uint32_t group,
                   uint64_t first, uint64_t count, const struct sqrl_cancel *cancel,
                   struct rows *rows, struct sqrl_error *err) {
    const struct sqrl_family_group *g = &source->families->group[group];
    struct sqrl_core *part;
    int rc = sqrl_family_part(source, core, group, &part, err);
    struct sqrl_block_info info;
    uint64_t end = first + count;
    uint64_t number = rc ? 0 : block_of(part, first, &info);
    for (; rc == SQRL_OK && first < end; number++) {
        struct sqrl_block_rows piece = {.added = g->group.added};
        part->format->block_info(part->state, number, &info);
        bool keep = info.first < first || info.first + info.samples > end;
        rc = part_block(source, part, group, number, keep, cancel, &piece.block, err);
        if (rc) {
            const char *path = g->shard[core->shard].path;
            return sqrl_error_at_path(err, rc, path, path + source->prefix_size);
        }
        piece.from = (uint32_t)(first - info.first);
        piece.count = (uint32_t)SQRL_MIN(info.samples - piece.from, end - first);
        first += piece.count;
        rc = add_rows(rows, piece, err);
    }
    return rc;
}

int sqrl_family_join(struct sqrl_source *source, struct sqrl_core *core, uint64_t first,
                     const struct sqrl_cancel *cancel, struct sqrl_block *block,
                     struct sqrl_error *err) {
    const struct sqrl_families *f = source->families;
    struct rows rows = {0};
    int rc = SQRL_OK;
    for (uint32_t g = 0; rc == SQRL_OK && g < f->groups; g++)
        if (sqrl_part_use(f, source->use, core->shard, g) == SQRL_PART_JOINED)
            rc = collect(source, core, g, first, block->count, cancel, &rows, err);
    if (rc == SQRL_OK && rows.count)
        rc = sqrl_block_join(block, rows.item, rows.count, err);
    for (size_t i = 0; i < rows.count; i++)
        sqrl_block_unref(rows.item[i].block);
    free(rows.item);
    return rc;
}

int sqrl_family_check(struct sqrl_source *source, struct sqrl_core *core,
                      const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    const struct sqrl_families *f = source->families;
    for (uint32_t g = 0; g < f->groups; g++) {
        struct sqrl_core *part;
        if (sqrl_part_use(f, source->use, core->shard, g) != SQRL_PART_JOINED)
            continue;
        int rc = sqrl_family_part(source, core, g, &part, err);
        if (rc)
            return rc;
        rc = part->format->check(part->state, cancel, err);
        const char *path = f->group[g].shard[core->shard].path;
        if (rc)
            return sqrl_error_at_path(err, rc, path, path + source->prefix_size);
    }
    return SQRL_OK;
}
