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

#include "driver/source_inner.h"
#include "format/format.h"
#include "io/http/http.h"
#include "io/listed.h"
#include "sqrl/codec.h"

/* --- places in errors --- */
/* Takes "path" and the ": " behind it off the front of `where`. */
bool sqrl_error_strip(struct sqrl_error *err, const char *path) {
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

/* Of a web server's URL only what may be shown: queries hold signatures. */
static int error_at_url(struct sqrl_error *err, int code, const char *url) {
    char *shown = sqrl_http_url_clean(url, NULL);
    if (below(err, shown ? shown : url)) {
        free(shown);
        return code;
    }
    sqrl_error_strip(err, shown ? shown : url);
    sqrl_error_at(err, code, "%s", shown ? shown : "a URL");
    free(shown);
    return code;
}

int sqrl_error_at_path(struct sqrl_error *err, int code, const char *path,
                       const char *inner) {
    if (!err)
        return code;
    if (strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0)
        return error_at_url(err, code, path);
    if (inner && strcmp(inner, path) != 0) {
        if (below(err, inner))
            return code;
        sqrl_error_strip(err, inner);
    }
    if (below(err, path))
        return code;
    sqrl_error_strip(err, path);
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
void sqrl_core_unref(struct sqrl_core *core) {
    if (!core || __atomic_sub_fetch(&core->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (uint32_t i = 0; i < core->parts; i++)
        sqrl_core_unref(core->part[i]);
    free(core->part);
    sqrl_lock_reset(&core->lock);
    if (core->state)
        core->format->close(core->state);
    free(core->state);
    sqrl_sidecar_free(core->sidecar);
    sqrl_file_unref(core->file);
    free(core);
}

static struct sqrl_core *core_ref(struct sqrl_core *core) {
    __atomic_fetch_add(&core->refs, 1, __ATOMIC_RELAXED);
    return core;
}

/* A shard whose counts were known before it was opened must have them. */
static int core_check(const struct sqrl_core *core, const struct sqrl_shard *known,
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
                        struct sqrl_core *core, struct sqrl_error *err) {
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

static int file_open(struct sqrl_source *source, const struct sqrl_shard *item,
                     struct sqrl_file **out, struct sqrl_error *err) {
    struct sqrl_stat known = {.size = item->file_bytes};
    int rc = sqrl_file_open_known(source->fs, item->path + source->prefix_size, &known,
                                  out, err);
    if (rc == SQRL_OK && (rc = check_size(item, *out, err))) {
        sqrl_file_unref(*out);
        *out = NULL;
    }
    return rc;
}

int sqrl_core_open(struct sqrl_source *source, uint64_t shard,
                   const struct sqrl_shard *item, struct sqrl_file *file,
                   struct sqrl_core **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_core *core = sqrl_calloc(1, sizeof *core, "shard", err);
    if (!core)
        return SQRL_E_NO_MEMORY;
    core->refs = 1;
    sqrl_lock_init(&core->lock);
    core->format = item->format;
    core->shard = shard;
    core->info = (struct sqrl_shard_info){SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    int rc = SQRL_OK;
    if (file)
        core->file = sqrl_file_ref(file);
    else
        rc = file_open(source, item, &core->file, err);
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
        sqrl_core_unref(core);
        core = NULL;
    }
    *out = core;
    return rc;
}

/* The shard as the source sees it: some of its samples, with other parts joined. `file`:
 * that of the shard, NULL: it is opened. */
static int core_open(struct sqrl_source *source, uint64_t shard, struct sqrl_file *file,
                     struct sqrl_core **out, struct sqrl_error *err) {
    struct sqrl_shard known = source->shards[shard];
    const struct sqrl_subset *subset = source->subset ? &source->subset[shard] : NULL;
    if (subset) {
        known.samples = subset->of_samples;
        known.blocks = subset->of_blocks;
    }
    int rc = sqrl_core_open(source, shard, &known, file, out, err);
    if (rc)
        return rc;
    struct sqrl_core *core = *out;
    core->subset = subset;
    if (subset)
        sqrl_subset_info(subset, &core->info);
    for (uint32_t g = 0; source->families && g < source->families->groups; g++)
        core->joined |=
            sqrl_part_use(source->families, source->use, shard, g) == SQRL_PART_JOINED;
    if (core->joined) /* of its own fields only */
        core->info.schema = NULL;
    return SQRL_OK;
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
    struct sqrl_core *core = source->open[i];
    memmove(source->open + 1, source->open, i * sizeof core);
    source->open[0] = core;
}

struct sqrl_core *sqrl_core_kept(struct sqrl_source *source, uint64_t shard) {
    struct sqrl_core *core = NULL;
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

static uint64_t index_bytes(const struct sqrl_core *core) {
    uint64_t sidecar = core->sidecar ? core->sidecar->content->capacity : 0;
    return BYTES_PER_BLOCK * core->info.blocks + sidecar;
}

/* Makes room for one more; those that have to go are put into gone[]. */
static size_t cache_evict(struct sqrl_source *source, uint64_t bytes,
                          struct sqrl_core *gone[MAX_OPEN]) {
    size_t count = 0, most = sqrl_source_local(source) ? MAX_OPEN_LOCAL : MAX_OPEN;
    while (source->open_count == most || (source->open_count >= MIN_OPEN &&
                                          source->open_bytes + bytes > MAX_OPEN_BYTES)) {
        gone[count] = source->open[--source->open_count];
        source->open_bytes -= index_bytes(gone[count++]);
    }
    return count;
}

static void cache_put(struct sqrl_source *source, struct sqrl_core *core) {
    struct sqrl_core *gone[MAX_OPEN];
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
        sqrl_core_unref(gone[--going]);
}

int sqrl_core_get(struct sqrl_source *source, uint64_t shard, struct sqrl_core **out,
                  struct sqrl_error *err) {
    *out = sqrl_core_kept(source, shard);
    return *out ? SQRL_OK : sqrl_core_make(source, shard, NULL, out, err);
}

static int at_shard(const struct sqrl_source *source, uint64_t shard, int rc,
                    struct sqrl_error *err) {
    const char *path = source->shards[shard].path;
    return rc ? sqrl_error_at_path(err, rc, path, path + source->prefix_size) : SQRL_OK;
}

int sqrl_core_make(struct sqrl_source *source, uint64_t shard, struct sqrl_file *file,
                   struct sqrl_core **out, struct sqrl_error *err) {
    int rc = core_open(source, shard, file, out, err);
    if (rc == SQRL_OK && (*out)->indexed)
        cache_put(source, *out);
    return at_shard(source, shard, rc, err);
}

int sqrl_shard_open_file(struct sqrl_source *source, uint64_t shard,
                         struct sqrl_file **out, struct sqrl_error *err) {
    *out = NULL;
    return at_shard(source, shard, file_open(source, &source->shards[shard], out, err),
                    err);
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
    source->listed = sqrl_fs_listings(args->fs);
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
    source->families = list->families;
    list->families = NULL;
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
        sqrl_core_unref(source->open[i]);
    for (uint64_t i = 0; i < source->count; i++)
        free((char *)source->shards[i].path);
    free(source->shards);
    free(source->chunks);
    sqrl_subset_free(source->subset, source->count);
    sqrl_source_unref(source->keyed);
    sqrl_families_unref(source->families);
    free(source->use);
    free((void *)source->settings.items);
    free(source->url);
    free(source->listed);
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

bool sqrl_source_subset_of(const struct sqrl_source *source) {
    return source->subset != NULL;
}

void sqrl_source_metrics(struct sqrl_source *source, struct sqrl_fs_metrics *out) {
    sqrl_fs_metrics(source->fs, out);
}

const char *sqrl_source_url(const struct sqrl_source *source) {
    return source->url;
}
const char *sqrl_source_listed(const struct sqrl_source *source) {
    return source->listed;
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
        if (samples == SQRL_UNKNOWN && i % MAX_OPEN == 0)
            sqrl_source_open_ahead(source, i, source->count);
        if (samples == SQRL_UNKNOWN) {
            struct sqrl_core *core = NULL;
            if (sqrl_core_get(source, i, &core, NULL) == SQRL_OK)
                samples = core->info.samples;
            sqrl_core_unref(core);
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
        struct sqrl_core *core = NULL;
        if (i % MAX_OPEN == 0)
            sqrl_source_open_ahead(source, i, source->count);
        int rc = sqrl_core_get(source, i, &core, err);
        if (!rc && core->info.schema)
            rc = sqrl_schema_merge(out, core->info.schema, err);
        else if (!rc)
            *whole = false;
        sqrl_core_unref(core);
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

const struct sqrl_schema *sqrl_source_schema_known(struct sqrl_source *source) {
    source_lock(source);
    bool known = source->schema_state == SCHEMA_READ;
    sqrl_lock_drop(&source->lock);
    return known ? &source->schema : NULL;
}
