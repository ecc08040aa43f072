/* source.c - what sqrl_open gives: shards and their readers.
 *
 * An open shard has two halves. The core (file, format state, info) is shared: of indexed
 * formats a few cores stay open in the source, least recently used first to go, since
 * many loads of one shard follow each other. The reader is a handle of its own with a
 * cursor. A core never refers to its source, so that the source may hold it; a reader
 * holds both.
 *
 * The cache is guarded by a lock that a fork may cut off at any point; a child forgets
 * its entries (their files stay open) and opens shards anew. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/access.h"
#include "driver/source.h"
#include "format/format.h"
#include "format/sidecar.h"
#include "sqrl/codec.h"

/* Open files of one source, and memory for their indexes (but of MIN_OPEN of any size).
 */
enum { MAX_OPEN = 256, MIN_OPEN = 8, MAX_OPEN_BYTES = 128 << 20, BYTES_PER_BLOCK = 64 };

struct core {
    int refs;
    const struct sqrl_format_ops *format;
    struct sqrl_file *file;
    void *state;
    struct sqrl_shard_info info;
    struct sqrl_sidecar *sidecar; /* or NULL */
    uint64_t shard;
    bool indexed;
};

struct sqrl_source {
    int refs;
    struct sqrl_context *context;
    struct sqrl_fs *fs;
    char *url;
    const struct sqrl_driver_ops *driver;
    struct sqrl_settings settings; /* one allocation, owned */
    struct sqrl_shard *shards;
    uint64_t count;
    struct sqrl_shard_chunk *chunks; /* or NULL */
    uint64_t chunk_count;
    size_t prefix_size;
    uint64_t fingerprint;
    struct sqrl_lock lock;       /* all below */
    struct core *open[MAX_OPEN]; /* most recently used first */
    uint64_t open_bytes;         /* of their indexes */
    size_t open_count;
    uint64_t samples; /* valid when samples_known */
    bool samples_known;
    struct sqrl_schema schema;
    enum { SCHEMA_UNSEEN, SCHEMA_NONE, SCHEMA_READ } schema_state;
    struct sqrl_access access;
    bool sidecars; /* there may be some */
};

struct sqrl_shard_reader {
    int refs;
    struct sqrl_source *source;
    struct core *core;
    uint64_t block, first;    /* of the next block */
    int failed;               /* code of the error that ended next() */
    struct sqrl_error *fault; /* that error, or NULL when there was no memory for it */
};

/* --- places in errors --- */
/* Takes "path" and the ": " behind it off the front of `where`. */
static bool strip(struct sqrl_error *err, const char *path) {
    size_t size = strlen(path);
    if (!size || strncmp(err->where, path, size) != 0)
        return false;
    const char *rest = err->where + size;
    if (*rest == ':' && rest[1] == ' ')
        rest += 2;
    else if (*rest)
        return false;
    memmove(err->where, rest, strlen(rest) + 1);
    return true;
}

/* True when `where` names a file below the directory `path`. */
static bool below(const struct sqrl_error *err, const char *path) {
    size_t size = strlen(path);
    while (size > 0 && path[size - 1] == '/')
        size--;
    return size && strncmp(err->where, path, size) == 0 && err->where[size] == '/';
}

int sqrl_error_at_path(struct sqrl_error *err, int code, const char *path,
                       const char *inner) {
    if (!err)
        return code;
    if (inner && strcmp(inner, path) != 0) {
        if (below(err, inner))
            return code;
        strip(err, inner);
    }
    if (below(err, path))
        return code;
    strip(err, path);
    return sqrl_error_at(err, code, "%s", path);
}

/* A file that has become shorter since the source was opened was emptied, cut or written
 * anew: what is left of it may well look whole. One that grew (a log) is read as it is.
 */
static int check_size(const struct sqrl_shard *item, const struct sqrl_file *file,
                      struct sqrl_error *err) {
    uint64_t now = sqrl_file_size(file), then = item->file_bytes;
    if (now == SQRL_SIZE_UNKNOWN || then == SQRL_SIZE_UNKNOWN || now >= then)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_TRUNCATED,
                          "the file has %llu bytes now, and had %llu when the source was "
                          "opened: it was cut or rewritten meanwhile; open it again",
                          (unsigned long long)now, (unsigned long long)then);
}

/* --- cores --- */
static void core_unref(struct core *core) {
    if (!core || __atomic_sub_fetch(&core->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    if (core->state)
        core->format->close(core->state);
    free(core->state);
    sqrl_sidecar_free(core->sidecar);
    sqrl_file_unref(core->file);
    free(core);
}

static struct core *core_ref(struct core *core) {
    __atomic_fetch_add(&core->refs, 1, __ATOMIC_RELAXED);
    return core;
}

/* A shard whose counts were known before it was opened must have them. */
static int core_check(const struct core *core, const struct sqrl_shard *known,
                      struct sqrl_error *err) {
    if (known->samples == SQRL_UNKNOWN || core->info.samples == SQRL_UNKNOWN ||
        (known->samples == core->info.samples && known->blocks == core->info.blocks &&
         known->file_bytes == sqrl_file_size(core->file)))
        return SQRL_OK;
    return sqrl_error_set(
        err, SQRL_E_CORRUPT,
        "has %llu samples in %llu bytes, but the data set's index says %llu in %llu: "
        "restore it, or run `squirrel index` to index the shards as they are",
        (unsigned long long)core->info.samples,
        (unsigned long long)sqrl_file_size(core->file),
        (unsigned long long)known->samples, (unsigned long long)known->file_bytes);
}

/* What `squirrel index` wrote of the file, where its format makes use of it. */
static int sidecar_find(struct sqrl_source *source, const struct sqrl_shard *item,
                        struct core *core, struct sqrl_error *err) {
    if (!source->sidecars || !(item->format->flags & SQRL_FORMAT_SIDECAR))
        return SQRL_OK;
    int rc = sqrl_sidecar_read(source->context, source->fs,
                               item->path + source->prefix_size, &core->sidecar, err);
    const struct sqrl_sidecar *sidecar = core->sidecar;
    if (rc || !sidecar)
        return rc;
    if (sidecar->file_bytes == sqrl_file_size(core->file) &&
        strcmp(sidecar->format, item->format->name) == 0)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "has %llu bytes, but its index is of a file of %llu bytes "
                          "(format %s): restore it, or run `squirrel index` again",
                          (unsigned long long)sqrl_file_size(core->file),
                          (unsigned long long)sidecar->file_bytes, sidecar->format);
}

static int core_open(struct sqrl_source *source, uint64_t shard, struct core **out,
                     struct sqrl_error *err) {
    *out = NULL;
    const struct sqrl_shard *item = &source->shards[shard];
    struct core *core = sqrl_calloc(1, sizeof *core, "shard", err);
    if (!core)
        return SQRL_E_NO_MEMORY;
    core->refs = 1;
    core->format = item->format;
    core->shard = shard;
    core->info = (struct sqrl_shard_info){SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    int rc =
        sqrl_file_open(source->fs, item->path + source->prefix_size, &core->file, err);
    if (rc == SQRL_OK)
        rc = check_size(item, core->file, err);
    if (rc)
        goto done;
    core->state = sqrl_calloc(1, SQRL_MAX(item->format->reader_size, 1u), "reader", err);
    rc = core->state ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sidecar_find(source, item, core, err);
    if (rc)
        goto done;
    struct sqrl_reader_args args = {.context = source->context,
                                    .fs = source->fs,
                                    .file = core->file,
                                    .shard = shard,
                                    .settings = &source->settings,
                                    .sidecar = core->sidecar};
    rc = item->format->open(core->state, &args, &core->info, err);
    if (rc == SQRL_OK)
        rc = core_check(core, item, err);
    core->indexed = (item->format->flags & SQRL_FORMAT_INDEXED) != 0 &&
                    core->info.blocks != SQRL_UNKNOWN;
done:
    if (rc) {
        core_unref(core);
        core = NULL;
    }
    *out = core;
    return rc;
}

/* A child of a fork forgets the cache: it may have been half-changed. */
static void source_lock(struct sqrl_source *source) {
    if (sqrl_lock_take(&source->lock)) {
        source->open_count = 0;
        source->open_bytes = 0;
        memset(source->open, 0, sizeof source->open);
    }
}

/* Moves entry i to the front. */
static void cache_touch(struct sqrl_source *source, size_t i) {
    struct core *core = source->open[i];
    memmove(source->open + 1, source->open, i * sizeof core);
    source->open[0] = core;
}

static struct core *cache_get(struct sqrl_source *source, uint64_t shard) {
    struct core *core = NULL;
    source_lock(source);
    for (size_t i = 0; i < source->open_count && !core; i++) {
        if (source->open[i]->shard == shard) {
            core = core_ref(source->open[i]);
            cache_touch(source, i);
        }
    }
    sqrl_lock_drop(&source->lock);
    return core;
}

static uint64_t index_bytes(const struct core *core) {
    uint64_t sidecar = core->sidecar ? core->sidecar->content->capacity : 0;
    return BYTES_PER_BLOCK * core->info.blocks + sidecar;
}

/* Makes room for one more; those that have to go are put into gone[]. */
static size_t cache_evict(struct sqrl_source *source, uint64_t bytes,
                          struct core *gone[MAX_OPEN]) {
    size_t count = 0;
    while (
        source->open_count == MAX_OPEN ||
        (source->open_count >= MIN_OPEN && source->open_bytes + bytes > MAX_OPEN_BYTES)) {
        gone[count] = source->open[--source->open_count];
        source->open_bytes -= index_bytes(gone[count++]);
    }
    return count;
}

static void cache_put(struct sqrl_source *source, struct core *core) {
    struct core *gone[MAX_OPEN];
    size_t going = 0;
    bool there = false;
    source_lock(source);
    for (size_t i = 0; i < source->open_count; i++)
        there = there || source->open[i]->shard == core->shard;
    if (!there) {
        going = cache_evict(source, index_bytes(core), gone);
        source->open_bytes += index_bytes(core);
        memmove(source->open + 1, source->open, source->open_count * sizeof core);
        source->open[0] = core_ref(core);
        source->open_count++;
    }
    sqrl_lock_drop(&source->lock);
    while (going)
        core_unref(gone[--going]);
}

static int core_get(struct sqrl_source *source, uint64_t shard, struct core **out,
                    struct sqrl_error *err) {
    *out = cache_get(source, shard);
    if (*out)
        return SQRL_OK;
    int rc = core_open(source, shard, out, err);
    if (rc) {
        const char *path = source->shards[shard].path;
        return sqrl_error_at_path(err, rc, path, path + source->prefix_size);
    }
    if ((*out)->indexed)
        cache_put(source, *out);
    return SQRL_OK;
}

/* --- the source --- */
static uint64_t make_fingerprint(const struct sqrl_shard_list *list) {
    uint64_t hash = sqrl_mix64(list->count);
    for (uint64_t i = 0; i < list->count; i++) {
        const char *path = list->items[i].path, *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        hash = sqrl_mix64(hash ^ sqrl_xxh3(name, strlen(name)));
        hash = sqrl_mix64(hash ^ list->items[i].file_bytes);
    }
    return hash;
}

int sqrl_source_new(const struct sqrl_driver_args *args,
                    const struct sqrl_driver_ops *driver, struct sqrl_shard_list *list,
                    size_t prefix_size, struct sqrl_source **out,
                    struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_source *source = sqrl_calloc(1, sizeof *source, "source", err);
    if (!source)
        return SQRL_E_NO_MEMORY;
    source->refs = 1;
    sqrl_lock_init(&source->lock);
    source->context = sqrl_context_ref(args->context);
    sqrl_access_init(&source->access, args->context);
    source->fs = sqrl_fs_ref(args->fs);
    source->driver = driver;
    source->prefix_size = prefix_size;
    source->url = sqrl_strdup(args->url, err);
    int rc = source->url ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!rc)
        rc = sqrl_settings_copy(args->settings, &source->settings, err);
    if (rc) {
        sqrl_source_unref(source);
        return rc;
    }
    source->fingerprint =
        list->has_fingerprint ? list->fingerprint : make_fingerprint(list);
    source->sidecars = list->sidecars;
    source->shards = list->items;
    source->count = list->count;
    list->items = NULL;
    list->count = list->capacity = 0;
    source->chunks = list->chunks;
    source->chunk_count = list->chunk_count;
    list->chunks = NULL;
    list->chunk_count = 0;
    if (list->has_schema) {
        source->schema = list->schema;
        source->schema_state = SCHEMA_READ;
        memset(&list->schema, 0, sizeof list->schema);
        list->has_schema = false;
    }
    *out = source;
    return SQRL_OK;
}

struct sqrl_source *sqrl_source_ref(struct sqrl_source *source) {
    __atomic_fetch_add(&source->refs, 1, __ATOMIC_RELAXED);
    return source;
}

void sqrl_source_unref(struct sqrl_source *source) {
    if (!source || __atomic_sub_fetch(&source->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (size_t i = 0; i < source->open_count; i++)
        core_unref(source->open[i]);
    for (uint64_t i = 0; i < source->count; i++)
        free((char *)source->shards[i].path);
    free(source->shards);
    free(source->chunks);
    free((void *)source->settings.items);
    free(source->url);
    sqrl_schema_reset(&source->schema);
    sqrl_access_reset(&source->access);
    sqrl_lock_reset(&source->lock);
    sqrl_fs_unref(source->fs);
    sqrl_context_unref(source->context);
    free(source);
}

struct sqrl_context *sqrl_source_context(const struct sqrl_source *source) {
    return source->context;
}

struct sqrl_access *sqrl_source_access(struct sqrl_source *source) {
    return &source->access;
}

struct sqrl_fs *sqrl_source_fs(const struct sqrl_source *source, size_t *prefix_size) {
    *prefix_size = source->prefix_size;
    return source->fs;
}

const struct sqrl_settings *sqrl_source_settings(const struct sqrl_source *source) {
    return &source->settings;
}

bool sqrl_source_local(const struct sqrl_source *source) {
    return sqrl_fs_flags(source->fs) & SQRL_FS_LOCAL;
}

const char *sqrl_source_url(const struct sqrl_source *source) {
    return source->url;
}

const char *sqrl_source_driver(const struct sqrl_source *source) {
    return source->driver->name;
}

uint64_t sqrl_source_shards(const struct sqrl_source *source) {
    return source->count;
}

const struct sqrl_shard *sqrl_source_shard(const struct sqrl_source *source,
                                           uint64_t shard) {
    return shard < source->count ? &source->shards[shard] : NULL;
}

const struct sqrl_shard_chunk *sqrl_source_chunks(const struct sqrl_source *source,
                                                  uint64_t *count) {
    *count = source->chunk_count;
    return source->chunks;
}

uint64_t sqrl_source_fingerprint(const struct sqrl_source *source) {
    return source->fingerprint;
}

/* Adds up; SQRL_UNKNOWN as soon as one shard's count is not known (unreadable: the same).
 */
static uint64_t count_samples(struct sqrl_source *source) {
    uint64_t total = 0;
    for (uint64_t i = 0; i < source->count; i++) {
        uint64_t samples = source->shards[i].samples;
        if (samples == SQRL_UNKNOWN) {
            struct core *core = NULL;
            if (core_get(source, i, &core, NULL) == SQRL_OK)
                samples = core->info.samples;
            core_unref(core);
        }
        if (samples == SQRL_UNKNOWN || __builtin_add_overflow(total, samples, &total))
            return SQRL_UNKNOWN;
    }
    return total;
}

uint64_t sqrl_source_samples(const struct sqrl_source *fixed) {
    struct sqrl_source *source = (struct sqrl_source *)fixed; /* only its cache changes */
    source_lock(source);
    bool known = source->samples_known;
    uint64_t samples = source->samples;
    sqrl_lock_drop(&source->lock);
    if (known)
        return samples;
    samples = count_samples(source);
    source_lock(source);
    source->samples = samples;
    source->samples_known = true;
    sqrl_lock_drop(&source->lock);
    return samples;
}

/* The union of all shards' schemas; *whole is false when one has none. */
static int read_schema(struct sqrl_source *source, struct sqrl_schema *out, bool *whole,
                       struct sqrl_error *err) {
    *whole = true;
    for (uint64_t i = 0; i < source->count && *whole; i++) {
        struct core *core = NULL;
        int rc = core_get(source, i, &core, err);
        if (!rc && core->info.schema)
            rc = sqrl_schema_merge(out, core->info.schema, err);
        else if (!rc)
            *whole = false;
        core_unref(core);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

int sqrl_source_schema(struct sqrl_source *source, const struct sqrl_schema **out,
                       struct sqrl_error *err) {
    *out = NULL;
    source_lock(source);
    int state = (int)source->schema_state;
    sqrl_lock_drop(&source->lock);
    if (state == SCHEMA_UNSEEN) {
        struct sqrl_schema schema = {NULL, 0, 0, 0};
        bool whole = false;
        int rc = read_schema(source, &schema, &whole, err);
        if (rc) {
            sqrl_schema_reset(&schema);
            return rc;
        }
        source_lock(source);
        if (source->schema_state == SCHEMA_UNSEEN) {
            if (whole) {
                source->schema = schema;
                memset(&schema, 0, sizeof schema);
            }
            source->schema_state = whole ? SCHEMA_READ : SCHEMA_NONE;
        }
        state = (int)source->schema_state;
        sqrl_lock_drop(&source->lock);
        sqrl_schema_reset(&schema);
    }
    if (state == SCHEMA_READ)
        *out = &source->schema;
    return SQRL_OK;
}

/* --- readers --- */
int sqrl_shard_open(struct sqrl_source *source, uint64_t shard,
                    struct sqrl_shard_reader **out, struct sqrl_error *err) {
    *out = NULL;
    if (shard >= source->count)
        return sqrl_error_set(err, SQRL_E_INVALID, "there is no shard %llu: %s has %llu",
                              (unsigned long long)shard, source->url,
                              (unsigned long long)source->count);
    struct sqrl_shard_reader *reader = sqrl_calloc(1, sizeof *reader, "reader", err);
    if (!reader)
        return SQRL_E_NO_MEMORY;
    int rc = core_get(source, shard, &reader->core, err);
    if (rc) {
        free(reader);
        return rc;
    }
    reader->refs = 1;
    reader->source = sqrl_source_ref(source);
    *out = reader;
    return SQRL_OK;
}

struct sqrl_shard_reader *sqrl_shard_reader_ref(struct sqrl_shard_reader *reader) {
    __atomic_fetch_add(&reader->refs, 1, __ATOMIC_RELAXED);
    return reader;
}

void sqrl_shard_reader_unref(struct sqrl_shard_reader *reader) {
    if (!reader || __atomic_sub_fetch(&reader->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    core_unref(reader->core);
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

void sqrl_shard_reader_block_info(const struct sqrl_shard_reader *reader, uint64_t block,
                                  struct sqrl_block_info *out) {
    memset(out, 0, sizeof *out);
    if (reader->core->indexed && block < reader->core->info.blocks)
        reader->core->format->block_info(reader->core->state, block, out);
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
    strip(err, label); /* a format that names the block itself, */
    strip(err, path);  /* and a file that names its path */
    strip(err, inner);
    if (code != SQRL_E_CANCELLED && block != SQRL_UNKNOWN)
        sqrl_error_at(err, code, "%s", label);
    return sqrl_error_at(err, code, "%s", path);
}

int sqrl_shard_reader_check(struct sqrl_shard_reader *reader,
                            const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct core *core = reader->core;
    const struct sqrl_format_ops *format = core->format;
    bool has =
        format->size >= offsetof(struct sqrl_format_ops, check) + sizeof format->check &&
        format->check;
    int rc = has ? format->check(core->state, cancel, err) : SQRL_OK;
    return rc ? at_block(reader, SQRL_UNKNOWN, rc, err) : SQRL_OK;
}

int sqrl_shard_reader_load(struct sqrl_shard_reader *reader, uint64_t block,
                           const struct sqrl_cancel *cancel, struct sqrl_block **out,
                           struct sqrl_error *err) {
    *out = NULL;
    struct core *core = reader->core;
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
    int rc = core->format->load(core->state, block, cancel, out, err);
    if (*out) {
        struct sqrl_block_info info = {.first = SQRL_UNKNOWN};
        core->format->block_info(core->state, block, &info);
        (*out)->shard = core->shard;
        (*out)->number = block;
        (*out)->first = info.first;
    }
    if (rc && *out && !(*out)->count) {
        sqrl_block_unref(*out);
        *out = NULL;
    }
    return rc ? at_block(reader, block, rc, err) : SQRL_OK;
}

int sqrl_shard_reader_load_many(struct sqrl_shard_reader *reader, const uint64_t *blocks,
                                size_t count, const struct sqrl_cancel *cancel,
                                struct sqrl_block **out, size_t *loaded,
                                struct sqrl_error *err) {
    struct core *core = reader->core;
    const struct sqrl_format_ops *format = core->format;
    bool has = format->size >= offsetof(struct sqrl_format_ops, load_many) +
                                   sizeof format->load_many &&
               format->load_many && count > 1;
    int rc = SQRL_OK;
    *loaded = 0;
    if (has)
        rc = format->load_many(core->state, blocks, count, cancel, out, loaded, err);
    for (size_t i = 0; has && i < *loaded; i++) {
        struct sqrl_block_info info = {.first = SQRL_UNKNOWN};
        format->block_info(core->state, blocks[i], &info);
        out[i]->shard = core->shard;
        out[i]->number = blocks[i];
        out[i]->first = info.first;
    }
    if (rc)
        return at_block(reader, *loaded < count ? blocks[*loaded] : SQRL_UNKNOWN, rc,
                        err);
    for (; *loaded < count; ++*loaded) {
        rc = sqrl_shard_reader_load(reader, blocks[*loaded], cancel, &out[*loaded], err);
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
    struct core *core = reader->core;
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
