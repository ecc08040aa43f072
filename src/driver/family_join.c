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

/* Blocks of a part that were read ahead, in rising order. */
enum { HELD_BYTES = 32 << 20 };
struct held {
    struct held_block {
        uint64_t number;
        struct sqrl_block *block; /* NULL: not read yet */
        bool keep;                /* the rows of it are not used up */
    } * item;
    size_t count;
};

static struct sqrl_block *find_held(const struct held *held, uint64_t number) {
    size_t low = 0, high = held ? held->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (held->item[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = held && low < held->count && held->item[low].number == number;
    return found ? sqrl_block_ref(held->item[low].block) : NULL;
}

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
                   const struct held *held, struct rows *rows, struct sqrl_error *err) {
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
        piece.block = find_held(held, number);
        if (!piece.block)
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

static int join(struct sqrl_source *source, struct sqrl_core *core, uint64_t first,
                const struct sqrl_cancel *cancel, const struct held *held,
                struct sqrl_block *block, struct sqrl_error *err) {
    const struct sqrl_families *f = source->families;
    struct rows rows = {0};
    int rc = SQRL_OK;
    for (uint32_t g = 0; rc == SQRL_OK && g < f->groups; g++)
        if (sqrl_part_use(f, source->use, core->shard, g) == SQRL_PART_JOINED)
            rc = collect(source, core, g, first, block->count, cancel,
                         held ? &held[g] : NULL, &rows, err);
    if (rc == SQRL_OK && rows.count)
        rc = sqrl_block_join(block, rows.item, rows.count, err);
    for (size_t i = 0; i < rows.count; i++)
        sqrl_block_unref(rows.item[i].block);
    free(rows.item);
    return rc;
}

int sqrl_family_join(struct sqrl_source *source, struct sqrl_core *core, uint64_t first,
                     const struct sqrl_cancel *cancel, struct sqrl_block *block,
                     struct sqrl_error *err) {
    return join(source, core, first, cancel, NULL, block, err);
}

/* --- many blocks at once --- */

/* Which blocks of the part cover the rows of these blocks, in rising order; those that
 * the cache has are held already. Not more than HELD_BYTES: others are read one by one.
 */
static int list_held(struct sqrl_source *source, const struct sqrl_core *part,
                     uint32_t group, const uint64_t *first,
                     struct sqrl_block *const *block, size_t count, struct held *held,
                     struct sqrl_error *err) {
    struct sqrl_families *f = source->families;
    uint64_t key = part->shard * f->groups + group, bytes = 0, next = 0;
    size_t room = 0;
    for (size_t i = 0; i < count; i++) {
        struct sqrl_block_info info;
        uint64_t end = first[i] + block[i]->count;
        for (uint64_t n = block_of(part, first[i], &info); n < part->info.blocks; n++) {
            part->format->block_info(part->state, n, &info);
            if (info.first >= end || bytes + info.raw_bytes > HELD_BYTES)
                break;
            if (n < next)
                continue;
            next = n + 1;
            bytes += info.raw_bytes;
            if (held->count == room) {
                room = room ? 2 * room : 16;
                struct held_block *grown =
                    sqrl_realloc(held->item, room * sizeof *grown, "parts", err);
                if (!grown)
                    return SQRL_E_NO_MEMORY;
                held->item = grown;
            }
            held->item[held->count++] = (struct held_block){
                n, sqrl_block_cache_get(&f->blocks, key, n),
                info.first < first[i] || info.first + info.samples > end};
        }
    }
    return SQRL_OK;
}

/* Those that nobody has yet, in one batched read. */
static int load_held(struct sqrl_source *source, struct sqrl_core *part, uint32_t group,
                     const struct sqrl_cancel *cancel, struct held *held,
                     struct sqrl_error *err) {
    struct sqrl_families *f = source->families;
    size_t wanted = 0, loaded = 0;
    uint64_t *number = sqrl_malloc(held->count * sizeof *number + 1, "parts", err);
    struct sqrl_block **block = sqrl_calloc(held->count + 1, sizeof *block, "parts", err);
    int rc = number && block ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; rc == SQRL_OK && i < held->count; i++)
        if (!held->item[i].block)
            number[wanted++] = held->item[i].number;
    if (rc == SQRL_OK && wanted)
        rc = part->format->load_many(part->state, number, wanted, cancel, block, &loaded,
                                     err);
    for (size_t i = 0, at = 0; i < held->count && at < loaded; i++) {
        if (held->item[i].block)
            continue;
        held->item[i].block = block[at++];
        held->item[i].block->shard = part->shard * f->groups + group;
        held->item[i].block->number = held->item[i].number;
        if (held->item[i].keep)
            sqrl_block_cache_put(&f->blocks, held->item[i].block);
    }
    free(number);
    free(block);
    if (rc) {
        const char *path = f->group[group].shard[part->shard].path;
        return sqrl_error_at_path(err, rc, path, path + source->prefix_size);
    }
    return SQRL_OK;
}

int sqrl_family_join_many(struct sqrl_source *source, struct sqrl_core *core,
                          const uint64_t *first, struct sqrl_block *const *block,
                          size_t count, const struct sqrl_cancel *cancel,
                          struct sqrl_error *err) {
    const struct sqrl_families *f = source->families;
    struct held *held = sqrl_calloc(f->groups, sizeof *held, "parts", err);
    int rc = held ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (uint32_t g = 0; rc == SQRL_OK && g < f->groups; g++) {
        struct sqrl_core *part;
        if (sqrl_part_use(f, source->use, core->shard, g) != SQRL_PART_JOINED)
            continue;
        rc = sqrl_family_part(source, core, g, &part, err);
        if (rc == SQRL_OK)
            rc = list_held(source, part, g, first, block, count, &held[g], err);
        if (rc == SQRL_OK)
            rc = load_held(source, part, g, cancel, &held[g], err);
    }
    for (size_t i = 0; rc == SQRL_OK && i < count; i++)
        rc = join(source, core, first[i], cancel, held, block[i], err);
    for (uint32_t g = 0; held && g < f->groups; g++) {
        for (size_t i = 0; i < held[g].count; i++)
            sqrl_block_unref(held[g].item[i].block);
        free(held[g].item);
    }
    free(held);
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
