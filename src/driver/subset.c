/* subset.c - a source of some of another's samples.
 *
 * It has the same shards, of which it sees some blocks, and of those some samples: a
 * block is loaded as ever and its list of samples thinned out. All else (counts, order,
 * random access) follows. Four bytes a sample. */
#include <stdlib.h>

#include "driver/source_inner.h"

void sqrl_subset_free(struct sqrl_subset *subset, uint64_t shards) {
    for (uint64_t i = 0; subset && i < shards; i++) {
        free(subset[i].block);
        free(subset[i].row);
    }
    free(subset);
}

void sqrl_subset_info(const struct sqrl_subset *subset, struct sqrl_shard_info *info) {
    info->samples = subset->samples;
    info->blocks = subset->blocks;
    info->raw_bytes = subset->raw_bytes;
}

void sqrl_subset_thin(const struct sqrl_subset *subset, uint64_t number,
                      struct sqrl_block *block) {
    const struct sqrl_subset_block *b = &subset->block[number];
    const uint32_t *row = subset->row + b->first;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->count; i++)
        if (row[i] < block->count) /* fewer there are where the block is damaged */
            block->begin[kept++] = block->begin[row[i]];
    block->count = kept;
    block->first = b->first;
    block->number = number;
}

/* --- numbers --- */
/* The block that holds the subset's row. */
static const struct sqrl_subset_block *block_of(const struct sqrl_subset *subset,
                                                uint64_t row) {
    uint64_t low = 0, high = subset->blocks;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        *(subset->block[middle].first <= row ? &low : &high) = middle;
    }
    return &subset->block[low];
}

uint64_t sqrl_source_row(const struct sqrl_source *source, uint64_t shard, uint64_t row) {
    const struct sqrl_subset *subset = source->subset ? &source->subset[shard] : NULL;
    if (!subset || row >= subset->samples)
        return row;
    return block_of(subset, row)->base + subset->row[row];
}

bool sqrl_subset_find(const struct sqrl_subset *subset, uint64_t number, uint64_t *row) {
    uint64_t low = 0, high = subset->samples;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t there = block_of(subset, middle)->base + subset->row[middle];
        if (there < number)
            low = middle + 1;
        else
            high = middle;
    }
    *row = low;
    return low < subset->samples &&
           block_of(subset, low)->base + subset->row[low] == number;
}

bool sqrl_source_row_find(const struct sqrl_source *source, uint64_t shard,
                          uint64_t number, uint64_t *row) {
    *row = number;
    return !source->subset || sqrl_subset_find(&source->subset[shard], number, row);
}

/* --- making one ---
 * Of a subset, too: its readers number samples and blocks as it sees them, from which
 * numbers within the whole shard are made. */
static int take_shard(struct sqrl_source *source, uint64_t shard, const uint64_t *rows,
                      uint64_t count, struct sqrl_subset *out, struct sqrl_error *err) {
    struct sqrl_shard_reader *reader = NULL;
    if (!count)
        return SQRL_OK;
    int rc = sqrl_shard_open(source, shard, &reader, err);
    if (rc)
        return rc;
    uint64_t blocks =
        sqrl_shard_reader_indexed(reader) ? sqrl_shard_reader_info(reader)->blocks : 0;
    out->row = sqrl_malloc(count * sizeof *out->row, "rows", err);
    out->block = sqrl_malloc((size_t)SQRL_MIN(count, blocks + 1) * sizeof *out->block,
                             "blocks", err);
    rc = out->row && out->block ? SQRL_OK : SQRL_E_NO_MEMORY;
    struct sqrl_block_info info = {0};
    uint64_t number = 0, at = 0;
    for (; rc == SQRL_OK && number < blocks && at < count; number++) {
        sqrl_shard_reader_block_info(reader, number, &info);
        uint64_t from = at;
        const struct sqrl_subset *whole = source->subset ? &source->subset[shard] : NULL;
        for (; at < count && rows[at] - info.first < info.samples; at++)
            out->row[at] =
                whole ? whole->row[rows[at]] : (uint32_t)(rows[at] - info.first);
        if (at == from)
            continue;
        out->block[out->blocks++] = (struct sqrl_subset_block){
            whole ? whole->block[number].number : number, from,
            whole ? whole->block[number].base : info.first, (uint32_t)(at - from)};
        out->raw_bytes += info.raw_bytes;
    }
    out->samples = at;
    if (rc == SQRL_OK && at < count)
        rc = sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                            "%s: samples are not counted or blocks not known: run "
                            "`squirrel index`",
                            source->shards[shard].path);
    sqrl_shard_reader_unref(reader);
    return rc;
}

static int copy_shards(struct sqrl_source *to, const struct sqrl_source *from,
                       struct sqrl_error *err) {
    to->shards = sqrl_calloc(from->count + 1, sizeof *to->shards, "shards", err);
    if (!to->shards)
        return SQRL_E_NO_MEMORY;
    for (uint64_t i = 0; i < from->count; i++) {
        to->shards[i] = from->shards[i];
        to->shards[i].path = sqrl_strdup(from->shards[i].path, err);
        if (!to->shards[i].path)
            return SQRL_E_NO_MEMORY;
        to->count = i + 1;
    }
    return SQRL_OK;
}

static int copy_use(struct sqrl_source *to, const struct sqrl_source *from,
                    struct sqrl_error *err) {
    size_t size = from->use ? from->count * from->families->groups : 0;
    if (!size)
        return SQRL_OK;
    to->use = sqrl_malloc(size, "groups", err);
    if (!to->use)
        return SQRL_E_NO_MEMORY;
    memcpy(to->use, from->use, size);
    return SQRL_OK;
}

static int copy_source(struct sqrl_source *from, struct sqrl_source **out,
                       struct sqrl_error *err) {
    struct sqrl_source *to = sqrl_calloc(1, sizeof *to, "source", err);
    *out = to;
    if (!to)
        return SQRL_E_NO_MEMORY;
    to->refs = 1;
    sqrl_lock_init(&to->lock);
    to->context = sqrl_context_ref(from->context);
    sqrl_access_init(&to->access, from->context);
    to->fs = sqrl_fs_ref(from->fs);
    to->driver = from->driver;
    to->prefix_size = from->prefix_size;
    to->sidecars = from->sidecars;
    to->families = sqrl_families_ref(from->families);
    to->url = sqrl_strdup(from->url, err);
    const struct sqrl_schema *schema = NULL;
    int rc = to->url ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_settings_copy(&from->settings, &to->settings, err);
    if (rc == SQRL_OK)
        rc = copy_use(to, from, err);
    if (rc == SQRL_OK)
        rc = copy_shards(to, from, err);
    if (rc == SQRL_OK)
        rc = sqrl_source_schema(from, &schema, err);
    if (rc == SQRL_OK && schema)
        rc = sqrl_schema_copy(schema, &to->schema, err);
    to->schema_state = schema ? SCHEMA_READ : SCHEMA_NONE;
    return rc;
}

static int take_all(struct sqrl_source *source, struct sqrl_source *out,
                    const uint64_t *positions, uint64_t count, struct sqrl_error *err) {
    uint64_t at = 0, first = 0, hash = source->fingerprint;
    uint64_t *rows = sqrl_malloc(count * sizeof *rows + 1, "rows", err);
    int rc = rows ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (uint64_t i = 0; rc == SQRL_OK && i < out->count; i++) {
        struct sqrl_shard_reader *reader = NULL;
        struct sqrl_subset *subset = &out->subset[i];
        uint64_t samples = out->shards[i].samples, from = at, chosen = 0;
        if (samples == SQRL_UNKNOWN) {
            rc = sqrl_shard_open(source, i, &reader, err);
            samples = rc ? 0 : sqrl_shard_reader_info(reader)->samples;
            sqrl_shard_reader_unref(reader);
        }
        for (; at < count && positions[at] - first < samples; at++) {
            rows[at - from] = positions[at] - first;
            hash = sqrl_mix64(hash ^ positions[at]);
            chosen = sqrl_mix64(chosen ^ rows[at - from]);
        }
        if (rc == SQRL_OK)
            rc = take_shard(source, i, rows, at - from, subset, err);
        bool again = source->subset != NULL;
        subset->of_samples =
            again ? source->subset[i].of_samples : out->shards[i].samples;
        subset->of_blocks = again ? source->subset[i].of_blocks : out->shards[i].blocks;
        out->shards[i].samples = subset->samples;
        out->shards[i].blocks = subset->blocks;
        out->shards[i].raw_bytes = subset->raw_bytes;
        out->shards[i].checksum = sqrl_mix64(out->shards[i].checksum ^ chosen);
        first += samples;
    }
    if (rc == SQRL_OK && at < count)
        rc =
            sqrl_error_set(err, SQRL_E_INVALID,
                           "positions of a subset must rise, and lie within the source's "
                           "%llu samples",
                           (unsigned long long)first);
    out->fingerprint = hash;
    free(rows);
    return rc;
}

int sqrl_source_subset(struct sqrl_source *source, const uint64_t *positions,
                       uint64_t count, struct sqrl_source **out, struct sqrl_error *err) {
    *out = NULL;
    for (uint64_t i = 1; i < count; i++)
        if (positions[i] <= positions[i - 1])
            return sqrl_error_set(err, SQRL_E_INVALID, "positions of a subset must rise");
    uint64_t shard, row;
    int rc = sqrl_source_samples(source) == SQRL_UNKNOWN
                 ? sqrl_source_locate(source, 0, &shard, &row, err) /* says why */
                 : SQRL_OK;
    struct sqrl_source *made = NULL;
    if (rc == SQRL_OK)
        rc = copy_source(source, &made, err);
    if (rc == SQRL_OK) {
        made->subset = sqrl_calloc(made->count + 1, sizeof *made->subset, "subset", err);
        rc = made->subset ? take_all(source, made, positions, count, err)
                          : SQRL_E_NO_MEMORY;
    }
    if (rc)
        sqrl_source_unref(made);
    else
        *out = made;
    return rc;
}
