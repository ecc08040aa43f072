/* reader.c - readers of one shard: blocks in order or at any place, with errors that name
 * the shard and the block. source.c says what they hold. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/fetch.h"
#include "driver/source_inner.h"
#include "sqrl/codec.h"

static int no_shard(const struct sqrl_source *source, uint64_t shard,
                    struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_INVALID, "there is no shard %llu: %s has %llu",
                          (unsigned long long)shard, source->url,
                          (unsigned long long)source->count);
}

/* Takes the core over, also on failure. */
static int new_reader(struct sqrl_source *source, struct sqrl_core *core,
                      struct sqrl_shard_reader **out, struct sqrl_error *err) {
    struct sqrl_shard_reader *reader = sqrl_calloc(1, sizeof *reader, "reader", err);
    if (!reader) {
        sqrl_core_unref(core);
        return SQRL_E_NO_MEMORY;
    }
    reader->refs = 1;
    reader->core = core;
    reader->source = sqrl_source_ref(source);
    *out = reader;
    return SQRL_OK;
}

int sqrl_shard_open(struct sqrl_source *source, uint64_t shard,
                    struct sqrl_shard_reader **out, struct sqrl_error *err) {
    struct sqrl_core *core;
    *out = NULL;
    if (shard >= source->count)
        return no_shard(source, shard, err);
    int rc = sqrl_core_get(source, shard, &core, err);
    return rc ? rc : new_reader(source, core, out, err);
}

int sqrl_shard_open_kept(struct sqrl_source *source, uint64_t shard,
                         struct sqrl_shard_reader **out, struct sqrl_error *err) {
    *out = NULL;
    if (shard >= source->count)
        return no_shard(source, shard, err);
    struct sqrl_core *core = sqrl_core_kept(source, shard);
    return core ? new_reader(source, core, out, err) : SQRL_OK;
}

int sqrl_shard_open_in(struct sqrl_source *source, uint64_t shard, struct sqrl_file *file,
                       struct sqrl_shard_reader **out, struct sqrl_error *err) {
    struct sqrl_core *core;
    *out = NULL;
    int rc = sqrl_core_make(source, shard, file, &core, err);
    return rc ? rc : new_reader(source, core, out, err);
}

struct sqrl_file *sqrl_shard_reader_file(const struct sqrl_shard_reader *reader) {
    return reader->core->file;
}

struct sqrl_shard_reader *sqrl_shard_reader_ref(struct sqrl_shard_reader *reader) {
    __atomic_fetch_add(&reader->refs, 1, __ATOMIC_RELAXED);
    return reader;
}

void sqrl_shard_reader_unref(struct sqrl_shard_reader *reader) {
    if (!reader || __atomic_sub_fetch(&reader->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    sqrl_core_unref(reader->core);
    sqrl_source_unref(reader->source);
    free(reader->fault);
    free(reader);
}

const struct sqrl_shard_info *
sqrl_shard_reader_info(const struct sqrl_shard_reader *reader) {
    return &reader->core->info;
}

bool sqrl_shard_reader_indexed(const struct sqrl_shard_reader *reader) {
    return reader->core->indexed;
}

/* The block of the file behind a block of the source. */
static uint64_t base_block(const struct sqrl_shard_reader *reader, uint64_t block) {
    const struct sqrl_subset *subset = reader->core->subset;
    return subset ? subset->block[block].number : block;
}

/* What the library fills in of a block that was loaded. */
static void finish_block(const struct sqrl_core *core, uint64_t number, uint64_t base,
                         struct sqrl_block *block) {
    struct sqrl_block_info info = {.first = SQRL_UNKNOWN};
    core->format->block_info(core->state, base, &info);
    block->shard = core->shard;
    block->number = number;
    block->first = info.first;
    if (core->subset)
        sqrl_subset_thin(core->subset, number, block);
}

void sqrl_shard_reader_block_info(const struct sqrl_shard_reader *reader, uint64_t block,
                                  struct sqrl_block_info *out) {
    const struct sqrl_core *core = reader->core;
    memset(out, 0, sizeof *out);
    if (!core->indexed || block >= core->info.blocks)
        return;
    core->format->block_info(core->state, base_block(reader, block), out);
    if (core->subset) {
        out->first = core->subset->block[block].first;
        out->samples = core->subset->block[block].count;
    }
}

uint64_t sqrl_shard_reader_block_cost(const struct sqrl_shard_reader *reader,
                                      const struct sqrl_block_info *info) {
    const struct sqrl_core *core = reader->core;
    if (!core->joined)
        return info->raw_bytes;
    return (uint64_t)((double)info->raw_bytes *
                      sqrl_family_ratio(reader->source, core->shard));
}

/* "path: block 4: ..."; SQRL_UNKNOWN: no block. */
static int at_block(const struct sqrl_shard_reader *reader, uint64_t block, int code,
                    struct sqrl_error *err) {
    if (!err)
        return code;
    const char *path = reader->source->shards[reader->core->shard].path;
    const char *inner = path + reader->source->prefix_size;
    char label[40] = "";
    if (block != SQRL_UNKNOWN)
        snprintf(label, sizeof label, "block %llu", (unsigned long long)block);
    sqrl_error_strip(err, label); /* a format that names the block itself, */
    sqrl_error_strip(err, path);  /* and a file that names its path */
    sqrl_error_strip(err, inner);
    if (code != SQRL_E_CANCELLED && block != SQRL_UNKNOWN)
        sqrl_error_at(err, code, "%s", label);
    return sqrl_error_at(err, code, "%s", path);
}

int sqrl_shard_reader_check(struct sqrl_shard_reader *reader,
                            const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_core *core = reader->core;
    const struct sqrl_format_ops *format = core->format;
    bool has =
        format->size >= offsetof(struct sqrl_format_ops, check) + sizeof format->check &&
        format->check;
    int rc = has ? format->check(core->state, cancel, err) : SQRL_OK;
    if (rc == SQRL_OK && core->joined)
        rc = sqrl_family_check(reader->source, core, cancel, err);
    return rc ? at_block(reader, SQRL_UNKNOWN, rc, err) : SQRL_OK;
}

/* With the fields of the other parts; none on failure. */
static int join_block(struct sqrl_shard_reader *reader, uint64_t base,
                      const struct sqrl_cancel *cancel, struct sqrl_block **block,
                      struct sqrl_error *err) {
    struct sqrl_core *core = reader->core;
    struct sqrl_block_info info = {0};
    core->format->block_info(core->state, base, &info);
    int rc = sqrl_family_join(reader->source, core, info.first, cancel, *block, err);
    if (rc) {
        sqrl_block_unref(*block);
        *block = NULL;
    }
    return rc;
}

int sqrl_shard_reader_load(struct sqrl_shard_reader *reader, uint64_t block,
                           const struct sqrl_cancel *cancel, struct sqrl_block **out,
                           struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_core *core = reader->core;
    if (!core->indexed)
        return at_block(
            reader, block,
            sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                           "a file of format %s that is compressed as a whole "
                           "is read from its beginning only",
                           core->format->name),
            err);
    if (block >= core->info.blocks)
        return at_block(reader, block,
                        sqrl_error_set(err, SQRL_E_INVALID, "the shard has %llu blocks",
                                       (unsigned long long)core->info.blocks),
                        err);
    uint64_t base = base_block(reader, block);
    int rc = core->format->load(core->state, base, cancel, out, err);
    if (rc == SQRL_OK && core->joined)
        rc = join_block(reader, base, cancel, out, err);
    if (*out)
        finish_block(core, block, base, *out);
    if (rc && *out && !(*out)->count) {
        sqrl_block_unref(*out);
        *out = NULL;
    }
    return rc ? at_block(reader, base, rc, err) : SQRL_OK;
}

/* The blocks of the file behind these blocks, in one batched read, with the fields of all
 * parts. On failure *loaded are whole; none where a part failed. */
static int load_bases(struct sqrl_shard_reader *reader, const uint64_t *blocks,
                      size_t count, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, size_t *loaded, struct sqrl_error *err) {
    struct sqrl_core *core = reader->core;
    uint64_t *base = sqrl_malloc(2 * count * sizeof *base, "blocks to read", err);
    uint64_t *first = base + count;
    if (!base)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        struct sqrl_block_info info = {0};
        base[i] = base_block(reader, blocks[i]);
        core->format->block_info(core->state, base[i], &info);
        first[i] = info.first;
    }
    int rc = core->format->load_many(core->state, base, count, cancel, out, loaded, err);
    if (rc) {
        rc = at_block(reader, *loaded < count ? base[*loaded] : SQRL_UNKNOWN, rc, err);
    } else if (core->joined) {
        rc = sqrl_family_join_many(reader->source, core, first, out, count, cancel, err);
        rc = rc ? at_block(reader, SQRL_UNKNOWN, rc, err) : SQRL_OK;
        for (; rc && *loaded; --*loaded)
            sqrl_block_unref(out[*loaded - 1]);
    }
    for (size_t i = 0; i < *loaded; i++)
        finish_block(core, blocks[i], base[i], out[i]);
    free(base);
    return rc;
}

int sqrl_shard_reader_load_many(struct sqrl_shard_reader *reader, const uint64_t *blocks,
                                size_t count, const struct sqrl_cancel *cancel,
                                struct sqrl_block **out, size_t *loaded,
                                struct sqrl_error *err) {
    const struct sqrl_format_ops *format = reader->core->format;
    bool has = format->size >= offsetof(struct sqrl_format_ops, load_many) +
                                   sizeof format->load_many &&
               format->load_many;
    *loaded = 0;
    if (has && count > 1)
        return load_bases(reader, blocks, count, cancel, out, loaded, err);
    for (; *loaded < count; ++*loaded) {
        int rc =
            sqrl_shard_reader_load(reader, blocks[*loaded], cancel, &out[*loaded], err);
        if (rc) { /* the samples before the fault are nobody's here */
            sqrl_block_unref(out[*loaded]);
            return rc;
        }
    }
    return SQRL_OK;
}

bool sqrl_shard_reader_cuts(const struct sqrl_shard_reader *reader) {
    const struct sqrl_format_ops *format = reader->core->format;
    return !reader->core->indexed &&
           format->size >=
               offsetof(struct sqrl_format_ops, parse) + sizeof format->parse &&
           format->parse;
}

int sqrl_shard_reader_parse(struct sqrl_shard_reader *reader, struct sqrl_block *block,
                            struct sqrl_error *err) {
    int rc = reader->core->format->parse(reader->core->state, block, err);
    return rc ? at_block(reader, block->number, rc, err) : SQRL_OK;
}

static int next_block(struct sqrl_shard_reader *reader, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, struct sqrl_error *err) {
    struct sqrl_core *core = reader->core;
    if (core->indexed) {
        if (reader->block == core->info.blocks)
            return SQRL_OK;
        return sqrl_shard_reader_load(reader, reader->block, cancel, out, err);
    }
    int rc = core->format->next(core->state, cancel, out, err);
    if (*out) {
        (*out)->shard = core->shard;
        (*out)->number = reader->block;
    }
    if (*out && sqrl_shard_reader_cuts(reader)) {
        struct sqrl_error fault;
        sqrl_error_clear(&fault);
        int parsed = sqrl_shard_reader_parse(reader, *out, &fault);
        if (parsed) { /* it lies in front of what ended the reading */
            if (err)
                *err = fault;
            return parsed;
        }
    }
    return rc ? at_block(reader, reader->block, rc, err) : SQRL_OK;
}

/* Remembers the error for the calls to come. */
static void keep_fault(struct sqrl_shard_reader *reader, int code,
                       const struct sqrl_error *fault) {
    reader->failed = code;
    reader->fault = sqrl_malloc(sizeof *fault, "error", NULL);
    if (reader->fault)
        *reader->fault = *fault;
}

static int repeat_fault(const struct sqrl_shard_reader *reader, struct sqrl_error *err) {
    if (reader->fault && err)
        *err = *reader->fault;
    else
        sqrl_error_set(err, reader->failed, "reading this shard failed before");
    return reader->failed;
}

int sqrl_shard_reader_cut(struct sqrl_shard_reader *reader,
                          const struct sqrl_cancel *cancel, struct sqrl_block **out,
                          struct sqrl_error *err) {
    *out = NULL;
    if (reader->failed)
        return repeat_fault(reader, err);
    struct sqrl_error fault;
    sqrl_error_clear(&fault);
    int rc = reader->core->format->next(reader->core->state, cancel, out, &fault);
    if (rc) {
        at_block(reader, reader->block, rc, &fault);
        keep_fault(reader, rc, &fault);
        if (err)
            *err = fault;
    }
    if (*out) {
        (*out)->shard = reader->core->shard;
        (*out)->first = reader->block ? SQRL_UNKNOWN : 0;
        (*out)->number = reader->block++;
    }
    return rc;
}

int sqrl_shard_reader_next(struct sqrl_shard_reader *reader,
                           const struct sqrl_cancel *cancel, struct sqrl_block **out,
                           struct sqrl_error *err) {
    *out = NULL;
    if (reader->failed)
        return repeat_fault(reader, err);
    struct sqrl_error fault;
    sqrl_error_clear(&fault);
    for (;;) {
        int rc = next_block(reader, cancel, out, &fault);
        struct sqrl_block *block = *out;
        if (rc)
            keep_fault(reader, rc, &fault);
        if (block) {
            block->first = reader->first; /* blocks come in order: counting is enough */
            reader->first += block->count;
            reader->block++;
            if (block->count) /* also the samples before a fault; the next call has it */
                return SQRL_OK;
            sqrl_block_unref(block); /* a stretch in which no line begins */
            *out = NULL;
        }
        if (rc)
            return repeat_fault(reader, err);
        if (!block)
            return SQRL_OK;
    }
}
