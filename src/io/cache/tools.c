/* tools.c - looking after a cache: what it holds, whether it is whole, making it smaller.
 */
#include "io/cache/cache.h"
#include "io/local.h"

#include <stdlib.h>
#include <unistd.h>

static int64_t place_checked(const struct cache_folder *folder, struct cache_key place) {
    char path[CACHE_PATH_BYTES];
    int64_t checked;
    cache_place_path(folder, place, CACHE_STAT, path);
    return cache_place_inspect(path, &checked) ? checked : 0;
}

/* --- listing: pieces of one object come one after another --- */

struct lister {
    const struct cache_folder *folder;
    sqrl_cache_fn visit;
    void *arg;
    struct cache_key key;
    struct cache_piece_info first; /* of the object */
    struct sqrl_cache_object object;
    struct cache_extent *extents;
    size_t count, capacity;
    bool stopped;
};

static int by_offset(const void *a, const void *b) {
    const struct cache_extent *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Bytes that one piece at least holds. */
static uint64_t covered(struct lister *l) {
    uint64_t sum = 0, reached = 0;
    if (l->count)
        qsort(l->extents, l->count, sizeof *l->extents, by_offset);
    for (size_t i = 0; i < l->count; i++) {
        uint64_t end = l->extents[i].offset + l->extents[i].size;
        uint64_t begin = SQRL_MAX(l->extents[i].offset, reached);
        sum += end > begin ? end - begin : 0;
        reached = SQRL_MAX(reached, end);
    }
    return sum;
}

static int lister_end(struct lister *l) {
    if (!l->count)
        return 0;
    l->object.url = l->first.text;
    l->object.version = l->first.object.version;
    l->object.object_bytes = l->first.object.size;
    l->object.cached_bytes = covered(l);
    l->object.pieces = l->count;
    l->object.checked_ns = place_checked(l->folder, l->first.object.place);
    l->count = 0;
    int rc = l->visit(l->arg, &l->object);
    l->stopped = rc != 0;
    return rc;
}

static int lister_add(void *arg, const struct cache_file_seen *seen) {
    struct lister *l = arg;
    struct cache_piece_info info;
    char path[CACHE_PATH_BYTES];
    if (seen->kind == 'd' || seen->kind) {
        int rc = lister_end(l);
        l->object = (struct sqrl_cache_object){.disk_bytes = CACHE_BLOCK};
        return rc;
    }
    cache_piece_path(l->folder, seen->key, seen->extent, path);
    if (cache_piece_inspect(path, false, &info) != CACHE_HIT)
        return 0;
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        struct cache_extent *extents =
            sqrl_realloc(l->extents, capacity * sizeof *extents, "pieces", NULL);
        if (!extents)
            return -1;
        l->extents = extents;
        l->capacity = capacity;
    }
    if (l->count == 0 || info.fetched_ns < l->object.fetched_ns)
        l->object.fetched_ns = info.fetched_ns;
    if (l->count == 0) {
        l->first = info;
        l->first.object.url = l->first.text;
    }
    l->object.used_ns = SQRL_MAX(l->object.used_ns, info.used_ns);
    l->object.disk_bytes += cache_charge(info.file_bytes);
    l->extents[l->count++] = seen->extent;
    return 0;
}

int sqrl_cache_list(const char *directory, sqrl_cache_fn visit, void *arg,
                    struct sqrl_error *err) {
    struct cache_folder folder;
    int rc = cache_folder_open(directory, false, &folder, err);
    if (rc != SQRL_OK)
        return rc;
    struct lister *l = sqrl_calloc(1, sizeof *l, "a list", err);
    if (l) {
        l->folder = &folder;
        l->visit = visit;
        l->arg = arg;
        rc = cache_scan(&folder, lister_add, l);
        if (rc == 0)
            rc = lister_end(l);
        if (rc != 0 && !l->stopped)
            rc = sqrl_error_set(err, SQRL_E_IO, "the cache can't be looked through");
        free(l->extents);
    } else {
        rc = SQRL_E_NO_MEMORY;
    }
    free(l);
    cache_folder_reset(&folder);
    return rc;
}

/* --- verifying --- */

struct verifier {
    const struct cache_folder *folder;
    int (*progress)(void *arg, const struct sqrl_cache_report *so_far);
    void *arg;
    struct sqrl_cache_report report;
    bool stopped;
};

static bool piece_good(const struct cache_file_seen *seen, const char *path) {
    struct cache_piece_info info;
    enum cache_found found = cache_piece_inspect(path, true, &info);
    if (found == CACHE_GONE && access(path, F_OK) != 0)
        return true; /* evicted meanwhile */
    return found == CACHE_HIT && info.object.key.a == seen->key.a &&
           info.object.key.b == seen->key.b &&
           info.extent.offset == seen->extent.offset &&
           info.extent.size == seen->extent.size;
}

static int verify_one(void *arg, const struct cache_file_seen *seen) {
    struct verifier *v = arg;
    char path[CACHE_PATH_BYTES];
    int64_t checked;
    if (seen->kind == 'd')
        return 0;
    if (seen->kind)
        cache_place_path(v->folder, seen->key, seen->kind, path);
    else
        cache_piece_path(v->folder, seen->key, seen->extent, path);
    bool good = seen->kind
                    ? cache_place_inspect(path, &checked) || access(path, F_OK) != 0
                    : piece_good(seen, path);
    uint64_t bytes = cache_charge(seen->file_bytes);
    v->report.files++;
    v->report.bytes += bytes;
    if (!good && unlink(path) == 0) {
        v->report.removed_files++;
        v->report.removed_bytes += bytes;
    }
    int rc = v->progress ? v->progress(v->arg, &v->report) : 0;
    v->stopped = rc != 0;
    return rc;
}

/* Removes temporaries of the dead. */
static int sweep(const struct cache_folder *folder, struct sqrl_error *err) {
    char path[CACHE_PATH_BYTES];
    uint64_t removed = 0;
    cache_working_path(folder, "", path);
    return sqrl_local_sweep(NULL, path, &removed, err);
}

int sqrl_cache_verify(const char *directory,
                      int (*progress)(void *arg, const struct sqrl_cache_report *so_far),
                      void *arg, struct sqrl_cache_report *out, struct sqrl_error *err) {
    struct cache_folder folder;
    memset(out, 0, sizeof *out);
    int rc = cache_folder_open(directory, false, &folder, err);
    if (rc != SQRL_OK)
        return rc;
    struct verifier v = {.folder = &folder, .progress = progress, .arg = arg};
    rc = sweep(&folder, err);
    if (rc == SQRL_OK) {
        rc = cache_scan(&folder, verify_one, &v);
        if (rc != 0 && !v.stopped)
            rc = sqrl_error_set_errno(err, -rc, "the cache can't be looked through");
    }
    *out = v.report;
    cache_folder_reset(&folder);
    return rc;
}

int sqrl_cache_prune(const char *directory, uint64_t keep_bytes, uint64_t unused_ns,
                     struct sqrl_cache_report *out, struct sqrl_error *err) {
    struct cache_folder folder;
    memset(out, 0, sizeof *out);
    int rc = cache_folder_open(directory, false, &folder, err);
    if (rc != SQRL_OK)
        return rc;
    rc = sweep(&folder, err);
    if (rc == SQRL_OK)
        rc = cache_room_prune(&folder, keep_bytes, unused_ns, out, err);
    cache_folder_reset(&folder);
    return rc;
}
