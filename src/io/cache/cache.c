/* cache.c - the shim: what a file system over a file system and a cache does.
 *
 * What is true of a file is asked from the wrapped file system, once in a shim's life for
 * a file that is opened: a source is one state of its data. The answers are kept, too. So
 * where the network is down they are given from there, with their age in one warning, and
 * for some time it is not asked again: else each of ten thousand shards would wait for a
 * deadline of its own. Answers about what is not there are kept as well: opening a source
 * asks for much that need not be. */
#include "io/cache/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OFFLINE_NS (UINT64_C(30) * 1000000000)
#define LIMIT_LEAST (UINT64_C(1) << 20)

static const struct sqrl_option options[] = {
    {"limit", SQRL_OPTION_SIZE, SQRL_OPTION_PLAIN, NULL, NULL,
     "bytes that the cache may hold; default: all but a tenth of the disk"},
    {"unit", SQRL_OPTION_CHOICE, SQRL_OPTION_PLAIN, "block", "block|shard",
     "what is fetched when a file is read: what is needed, or all of it"},
    {"fresh", SQRL_OPTION_FLOAT, SQRL_OPTION_PLAIN, "0", NULL,
     "seconds for which listings and lookups are taken from the cache unasked"},
    {0}};

const struct sqrl_option *sqrl_cache_options(void) {
    return options;
}

/* --- keys --- */

static struct cache_key key_of(const struct sqrl_bytes *text) {
    struct cache_key key = {sqrl_xxh3(text->data, text->size), 0};
    struct sqrl_xxh3_state state;
    sqrl_xxh3_init(&state);
    sqrl_xxh3_update(&state, "second half", 11);
    sqrl_xxh3_update(&state, text->data, text->size);
    key.b = sqrl_xxh3_digest(&state);
    key.a += key.a == 0 && key.b == 0; /* no key is all zeros */
    return key;
}

/* A text with its end, so that no two lists of texts are the same bytes. */
static int add_text(struct sqrl_bytes *out, const char *text, struct sqrl_error *err) {
    return sqrl_bytes_append(out, text, strlen(text) + 1, err);
}

/* The working directory before a relative path of this machine, or nothing. */
static char *before_path(const struct cache *cache, const char *path) {
    bool relative = sqrl_fs_flags(cache->inner) & SQRL_FS_LOCAL && *path != '/' &&
                    !strstr(cache->base, "://");
    char *working = relative ? getcwd(NULL, 0) : NULL;
    char *before = working ? sqrl_format(NULL, "%s/", working) : sqrl_strdup("", NULL);
    free(working);
    return before;
}

static int place_key(const struct cache *cache, const char *path, struct cache_key *out,
                     struct sqrl_error *err) {
    struct sqrl_bytes text = {0};
    char *before = before_path(cache, path);
    int rc = before ? add_text(&text, cache->place, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(&text, cache->base, strlen(cache->base), err);
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(&text, before, strlen(before), err);
    if (rc == SQRL_OK)
        rc = add_text(&text, path, err);
    if (rc == SQRL_OK)
        *out = key_of(&text);
    else if (!before)
        sqrl_error_set(err, rc, "not enough memory for a path");
    free(before);
    sqrl_bytes_reset(&text);
    return rc;
}

static int object_key(struct cache_object *object, struct sqrl_error *err) {
    struct sqrl_bytes text = {0};
    int rc = sqrl_bytes_append(&text, &object->place, sizeof object->place, err);
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(&text, &object->size, sizeof object->size, err);
    if (rc == SQRL_OK)
        rc = add_text(&text, object->version, err);
    if (rc == SQRL_OK)
        object->key = key_of(&text);
    sqrl_bytes_reset(&text);
    return rc;
}

/* The URL without what may be secret: a query, a fragment, a user's name and password. */
static char *shown_url(const struct cache *cache, const char *path,
                       struct sqrl_error *err) {
    char *before = before_path(cache, path);
    char *url = sqrl_format(err, "%s%s%s", cache->base, before ? before : "", path);
    free(before);
    char *host = url ? strstr(url, "://") : NULL;
    if (!host)
        return url;
    host += 3;
    size_t size = strcspn(host, "?#");
    size += host[size] == '?'; /* stays, to tell that there was one */
    host[size] = '\0';
    size_t authority = strcspn(host, "/");
    char *at = memrchr(host, '@', authority);
    if (at)
        memmove(host, at + 1, strlen(at + 1) + 1);
    return url;
}

/* Quotes and the mark of weak tags differ between answers of one server. */
bool cache_version(const struct sqrl_stat *stat, char out[CACHE_VERSION_BYTES]) {
    const char *etag = stat->etag;
    bool weak = strncmp(etag, "W/", 2) == 0;
    etag += weak ? 2 : 0;
    size_t size = strlen(etag);
    if (size >= 2 && etag[0] == '"' && etag[size - 1] == '"') {
        etag++;
        size -= 2;
    }
    if (size && !weak)
        snprintf(out, CACHE_VERSION_BYTES, "%.*s", (int)size, etag);
    else if (stat->modified_ns)
        snprintf(out, CACHE_VERSION_BYTES, "%.*s%smodified %lld", (int)size, etag,
                 size ? " " : "", (long long)stat->modified_ns);
    else
        return false;
    return !stat->directory && stat->size != SQRL_SIZE_UNKNOWN;
}

/* --- when the network is down --- */

static bool is_offline(const struct cache *cache) {
    return sqrl_now_ns() < __atomic_load_n(&cache->offline_until, __ATOMIC_RELAXED);
}

static bool means_offline(int rc, const struct sqrl_error *err) {
    return rc == SQRL_E_IO || (rc != SQRL_OK && err->retryable);
}

/* What a place is, rather than how the way there is. */
static bool is_answer(int rc) {
    return rc == SQRL_E_NOT_FOUND || rc == SQRL_E_INVALID;
}

static const char *age_text(int64_t age_ns, char out[48]) {
    static const struct {
        long long seconds;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}};
    long long seconds = (long long)(age_ns / 1000000000);
    size_t i = 0;
    while (i + 1 < SQRL_COUNT_OF(units) && seconds < 2 * units[i].seconds)
        i++;
    long long count = seconds / units[i].seconds;
    snprintf(out, 48, "%lld %s%s", count, units[i].name, count == 1 ? "" : "s");
    return out;
}

static void go_offline(struct cache *cache, const struct sqrl_error *why,
                       int64_t age_ns) {
    char age[48];
    __atomic_store_n(&cache->offline_until, sqrl_now_ns() + OFFLINE_NS, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&cache->warned_offline, 1, __ATOMIC_RELAXED) ||
        !cache->context)
        return;
    sqrl_log(cache->context, SQRL_LOG_WARNING,
             "%s: not reached (%s); reading what the cache %.*s holds, which was found "
             "current %s ago",
             why->where, why->message, (int)(cache->folder.root_size - 3),
             cache->folder.root, age_text(age_ns, age));
}

/* --- asking --- */

struct question {
    struct cache *cache;
    const char *path;
    char kind; /* CACHE_STAT ... */
    struct cache_key key;
    struct cache_place known; /* what the cache has; reset it */
    bool has;
};

/* True: the answer is in q->known, and the network is not to be asked. */
static bool known_already(struct question *q) {
    struct cache *cache = q->cache;
    bool offline = is_offline(cache);
    if (!offline && !cache->fresh_ns)
        return false;
    q->has = cache_place_read(&cache->folder, q->key, q->kind, &q->known);
    if (!q->has)
        cache_place_reset(&q->known);
    return q->has && (offline || (uint64_t)q->known.age_ns < cache->fresh_ns);
}

/* The network gave `rc`, with its error in *mine: can the cache answer instead? */
static bool answer_instead(struct question *q, int rc, const struct sqrl_error *mine) {
    if (!means_offline(rc, mine))
        return false;
    if (!q->has) {
        cache_place_reset(&q->known);
        q->has = cache_place_read(&q->cache->folder, q->key, q->kind, &q->known);
    }
    if (q->has)
        go_offline(q->cache, mine, q->known.age_ns);
    return q->has;
}

static int give_error(const struct question *q, struct sqrl_error *err) {
    char *url = shown_url(q->cache, q->path, NULL);
    int rc = sqrl_error_set(err, q->known.code, "%s", q->known.message);
    rc = sqrl_error_at(err, rc, "%s", url ? url : q->path);
    free(url);
    return rc;
}

/* Keeps what the network said, where it is an answer. */
static void keep_answer(struct question *q, int rc, const struct sqrl_stat *stat,
                        const struct sqrl_error *mine, struct sqrl_bytes *entries) {
    struct cache_place place = {.code = rc};
    if (rc != SQRL_OK && !is_answer(rc))
        return;
    __atomic_store_n(&q->cache->offline_until, 0, __ATOMIC_RELAXED);
    cache_enforce(q->cache);
    if (rc == SQRL_OK && stat)
        place.stat = *stat;
    if (rc != SQRL_OK)
        memcpy(place.message, mine->message, sizeof place.message);
    if (entries)
        place.entries = *entries;
    cache_place_keep(q->cache, q->key, q->kind, &place);
}

static int ask(struct question *q, struct cache *cache, const char *path, char kind,
               struct sqrl_error *err) {
    *q = (struct question){.cache = cache, .path = path, .kind = kind};
    return place_key(cache, path, &q->key, err);
}

static void hand_on(const struct sqrl_error *mine, struct sqrl_error *err) {
    if (err)
        *err = *mine;
}

/* --- looking up and listing --- */

static int cache_stat(void *fs, const char *path, struct sqrl_stat *out,
                      struct sqrl_error *err) {
    struct cache *cache = fs;
    struct question q;
    struct sqrl_error mine = {0};
    int rc = ask(&q, cache, path, CACHE_STAT, err);
    if (rc != SQRL_OK)
        return rc;
    bool known = known_already(&q);
    if (!known) {
        rc = sqrl_fs_stat(cache->inner, path, out, &mine);
        keep_answer(&q, rc, out, &mine, NULL);
        known = answer_instead(&q, rc, &mine);
    }
    if (known) {
        *out = q.known.stat;
        rc = q.known.code == SQRL_OK ? SQRL_OK : give_error(&q, err);
    } else if (rc != SQRL_OK) {
        hand_on(&mine, err);
    }
    if (rc == SQRL_OK && !out->directory)
        cache_snapshot_put(cache->snapshots, q.key, out);
    cache_place_reset(&q.known);
    return rc;
}

/* Passes entries on, and notes them. */
struct note {
    sqrl_list_fn visit;
    void *arg;
    struct sqrl_bytes entries;
    bool whole; /* all were noted */
    bool stopped;
    uint64_t passed;
};

static int note_entry(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct note *note = arg;
    note->whole =
        note->whole && cache_entries_add(&note->entries, name, stat, NULL) == SQRL_OK;
    note->passed++;
    int rc = note->visit(note->arg, name, stat);
    note->stopped = rc != 0;
    return rc;
}

static int cache_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                      void *arg, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    struct cache *cache = fs;
    struct question q;
    struct sqrl_error mine = {0};
    struct note note = {.visit = visit, .arg = arg, .whole = true};
    int rc = ask(&q, cache, path, recursive ? CACHE_LIST_ALL : CACHE_LIST, err);
    if (rc != SQRL_OK)
        return rc;
    bool known = known_already(&q);
    if (!known) {
        rc =
            sqrl_fs_list(cache->inner, path, recursive, note_entry, &note, cancel, &mine);
        if (!note.stopped && note.whole)
            keep_answer(&q, rc, NULL, &mine, rc == SQRL_OK ? &note.entries : NULL);
        /* One that broke off in the middle can't be begun anew. */
        known = !note.stopped && !note.passed && answer_instead(&q, rc, &mine);
    }
    if (known)
        rc = q.known.code == SQRL_OK
                 ? cache_entries_visit(&q.known.entries, visit, arg, cancel, err)
                 : give_error(&q, err);
    else if (rc != SQRL_OK && !note.stopped)
        hand_on(&mine, err);
    sqrl_bytes_reset(&note.entries);
    cache_place_reset(&q.known);
    return rc;
}

/* --- files --- */

static void file_reset(struct cache_file *f) {
    sqrl_file_unref(f->inner);
    free(f->path);
    free(f->url);
    free(f->known);
    sqrl_lock_reset(&f->lock);
}

/* What the file is: from the caller, whose listing gave an ETag, from this shim's memory,
 * from the network (which opens it), or from the cache. A size alone tells no version. */
static int find_file(struct cache *cache, struct cache_file *f, struct question *q,
                     const struct sqrl_stat *known_stat, struct sqrl_error *err) {
    struct sqrl_error mine = {0};
    f->stat = *known_stat;
    if (known_stat->size && known_stat->etag[0])
        return SQRL_OK;
    if (cache_snapshot_get(cache->snapshots, q->key, &f->stat))
        return SQRL_OK;
    bool known = known_already(q);
    int rc = SQRL_OK;
    if (!known) {
        rc = sqrl_file_open(cache->inner, f->path, &f->inner, &mine);
        if (rc == SQRL_OK)
            f->stat = *sqrl_file_stat(f->inner);
        keep_answer(q, rc, &f->stat, &mine, NULL);
        known = answer_instead(q, rc, &mine);
    }
    if (known && q->known.code != SQRL_OK)
        return give_error(q, err);
    if (!known && rc != SQRL_OK) {
        hand_on(&mine, err);
        return rc;
    }
    if (known)
        f->stat = q->known.stat;
    if (f->stat.directory) {
        q->known.code = SQRL_E_INVALID;
        snprintf(q->known.message, sizeof q->known.message,
                 "is a directory; a file is expected here");
        return give_error(q, err);
    }
    cache_snapshot_put(cache->snapshots, q->key, &f->stat);
    return SQRL_OK;
}

static int cache_file_open(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                           struct sqrl_error *err) {
    struct cache *cache = fs;
    struct cache_file *f = file;
    struct question q = {.cache = cache};
    sqrl_lock_init(&f->lock);
    f->path = sqrl_strdup(path, err);
    f->url = f->path ? shown_url(cache, path, err) : NULL;
    int rc = f->url ? ask(&q, cache, path, CACHE_STAT, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = find_file(cache, f, &q, stat, err);
    cache_place_reset(&q.known);
    if (rc == SQRL_OK) {
        f->object =
            (struct cache_object){.place = q.key, .size = f->stat.size, .url = f->url};
        f->direct = !cache_version(&f->stat, f->object.version);
        rc = f->direct ? SQRL_OK : object_key(&f->object, err);
    }
    if (rc == SQRL_OK && f->direct && !f->inner)
        rc = sqrl_file_open(cache->inner, path, &f->inner, err);
    if (rc == SQRL_OK && cache->whole && cache->room.limit / 2 < f->stat.size &&
        cache->room.limit)
        f->no_rest = 1;
    *stat = f->stat;
    if (rc != SQRL_OK)
        file_reset(f);
    return rc;
}

static int cache_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                           const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct cache_file *f = file;
    if (f->direct)
        return sqrl_file_read(f->inner, ranges, count, cancel, err);
    return cache_read(fs, f, ranges, count, cancel, err);
}

static void cache_file_close(void *fs, void *file) {
    file_reset(file);
}

/* --- writing: through, and what was known is forgotten --- */

struct cache_writer {
    struct sqrl_file_writer *inner;
    struct cache_key place;
};

static void forget(struct cache *cache, const char *path) {
    struct cache_key key;
    if (place_key(cache, path, &key, NULL) == SQRL_OK)
        cache_snapshot_drop(cache->snapshots, key);
}

static int cache_writer_open(void *fs, const char *path, bool replace, void *writer,
                             struct sqrl_error *err) {
    struct cache *cache = fs;
    struct cache_writer *w = writer;
    int rc = place_key(cache, path, &w->place, err);
    return rc ? rc : sqrl_file_create(cache->inner, path, replace, &w->inner, err);
}

static int cache_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                              struct sqrl_error *err) {
    return sqrl_file_write(((struct cache_writer *)writer)->inner, data, size, err);
}

static int cache_writer_commit(void *fs, void *writer, struct sqrl_error *err) {
    struct cache *cache = fs;
    struct cache_writer *w = writer;
    int rc = sqrl_file_commit(w->inner, err);
    cache_snapshot_drop(cache->snapshots, w->place);
    return rc;
}

static void cache_writer_abort(void *fs, void *writer) {
    sqrl_file_abort(((struct cache_writer *)writer)->inner);
}

static int cache_remove(void *fs, const char *path, struct sqrl_error *err) {
    struct cache *cache = fs;
    int rc = sqrl_fs_remove(cache->inner, path, err);
    forget(cache, path);
    return rc;
}

static int cache_make_directory(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_make_directory(((struct cache *)fs)->inner, path, err);
}

static int cache_remove_directory(void *fs, const char *path, struct sqrl_error *err) {
    return sqrl_fs_remove_directory(((struct cache *)fs)->inner, path, err);
}

static int cache_sweep(void *fs, const char *directory, uint64_t *removed,
                       struct sqrl_error *err) {
    return sqrl_fs_sweep(((struct cache *)fs)->inner, directory, removed, err);
}

static void cache_close(void *fs) {
    struct cache *cache = fs;
    if (cache->folder.root)
        cache_room_reset(&cache->room);
    cache_snapshots_free(cache->snapshots);
    sqrl_lock_reset(&cache->flights.lock);
    free(cache->flights.items);
    cache_folder_reset(&cache->folder);
    free(cache->base);
    free(cache->place);
    sqrl_fs_unref(cache->inner);
}

static void cache_metrics(void *fs, struct sqrl_fs_metrics *out) {
    struct cache *cache = fs;
    sqrl_fs_metrics(cache->inner, out);
    out->cache_hits += __atomic_load_n(&cache->hits, __ATOMIC_RELAXED);
    out->cache_bytes += __atomic_load_n(&cache->hit_bytes, __ATOMIC_RELAXED);
}

static const struct sqrl_fs_ops cache_ops = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "cache",
    .schemes = "",
    .doc = "keeps what is read on a local disk",
    .flags = SQRL_FS_SHIM,
    .fs_size = sizeof(struct cache),
    .file_size = sizeof(struct cache_file),
    .writer_size = sizeof(struct cache_writer),
    .close = cache_close,
    .stat = cache_stat,
    .list = cache_list,
    .file_open = cache_file_open,
    .file_read = cache_file_read,
    .file_close = cache_file_close,
    .writer_open = cache_writer_open,
    .writer_write = cache_writer_write,
    .writer_commit = cache_writer_commit,
    .writer_abort = cache_writer_abort,
    .remove = cache_remove,
    .make_directory = cache_make_directory,
    .sweep = cache_sweep,
    .remove_directory = cache_remove_directory,
    .metrics = cache_metrics,
};

/* --- making one --- */

/* "limit=200GiB&fresh=60" in place; at most three of them. */
static int split_options(char *text, struct sqrl_settings *out,
                         struct sqrl_setting items[8], struct sqrl_error *err) {
    size_t count = 0;
    for (char *save = NULL, *item = strtok_r(text, "&", &save); item;
         item = strtok_r(NULL, "&", &save)) {
        char *equals = strchr(item, '=');
        if (!equals || count == 8)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "wants NAME=VALUE pairs with & between, as in "
                                  "\"/scratch/cache?limit=200GiB&unit=shard\"");
        *equals = '\0';
        items[count++] = (struct sqrl_setting){item, equals + 1};
    }
    *out = (struct sqrl_settings){items, count};
    return SQRL_OK;
}

static int read_options(struct cache *cache, const char *text, uint64_t *limit,
                        struct sqrl_error *err) {
    const struct sqrl_option *lists[] = {options, NULL};
    struct sqrl_setting items[8];
    struct sqrl_settings settings = {NULL, 0};
    double fresh = 0;
    const char *mark = strrchr(text, '?');
    char *copy = sqrl_strdup(mark ? mark + 1 : "", err);
    int rc = copy ? split_options(copy, &settings, items, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_settings_check(&settings, lists, "the cache", err);
    *limit = 0;
    if (rc == SQRL_OK && sqrl_settings_text(&settings, options, "limit")) {
        rc = sqrl_settings_size(&settings, options, "limit", limit, err);
        if (rc == SQRL_OK && *limit < LIMIT_LEAST)
            rc = sqrl_error_set(err, SQRL_E_INVALID,
                                "limit=: a cache of less than 1 MiB keeps nothing");
    }
    if (rc == SQRL_OK)
        rc = sqrl_settings_float(&settings, options, "fresh", &fresh, err);
    if (rc == SQRL_OK && !(fresh >= 0 && fresh <= 1e9))
        rc = sqrl_error_set(err, SQRL_E_INVALID, "fresh=: 0 to 1e9 seconds");
    cache->fresh_ns = (uint64_t)(fresh * 1e9);
    if (rc == SQRL_OK)
        cache->whole =
            strcmp(sqrl_settings_text(&settings, options, "unit"), "shard") == 0;
    free(copy);
    return rc ? sqrl_error_at(err, rc, "cache") : SQRL_OK;
}

/* A limit holds at least some sixteen pieces. */
static uint64_t slot_for(uint64_t limit) {
    uint64_t slot = CACHE_SLOT;
    while (limit && slot > CACHE_GRAIN && slot > limit / 16)
        slot /= 2;
    return slot;
}

static int fill_cache(struct cache *cache, const char *text, const char *base,
                      const char *place, struct sqrl_error *err) {
    uint64_t limit;
    int rc = read_options(cache, text, &limit, err);
    cache->slot = slot_for(limit);
    cache->base = rc == SQRL_OK ? sqrl_strdup(base, err) : NULL;
    cache->place = cache->base ? sqrl_strdup(place ? place : "", err) : NULL;
    cache->snapshots = cache->place ? cache_snapshots_new(err) : NULL;
    if (rc == SQRL_OK && !cache->snapshots)
        rc = SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = cache_folder_open(text, true, &cache->folder, err);
    if (rc == SQRL_OK)
        cache_room_init(&cache->room, limit);
    return rc;
}

int sqrl_fs_cache(struct sqrl_fs *inner, const char *cache_text, const char *base,
                  const char *place, struct sqrl_fs **out, struct sqrl_error *err) {
    struct sqrl_context *context = sqrl_fs_context(inner);
    int rc = sqrl_fs_make(context, &cache_ops, inner, out, err);
    if (rc != SQRL_OK)
        return rc;
    struct cache *cache = sqrl_fs_state(*out);
    cache->inner = sqrl_fs_ref(inner);
    cache->context = context;
    sqrl_lock_init(&cache->flights.lock);
    rc = fill_cache(cache, cache_text, base, place, err);
    if (rc != SQRL_OK) {
        sqrl_fs_unref(*out);
        *out = NULL;
    }
    return rc;
}
