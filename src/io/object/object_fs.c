/* object_fs.c - the operations of a file system on an object store, but for writing.
 *
 * stat() asks for the object and for something below it at once: one round trip either
 * way. Listings are read page by page; a recursive one is visited as it comes, one level
 * is gathered first, since stores give files and directories apart, and "a/" behind
 * "a-b". */
#include <stdlib.h>

#include "io/object/store.h"

#define HEAD_BYTES ((size_t)64 << 10) /* that come with opening */

/* --- looking up --- */

static struct object_call head_call(const struct object_path *path) {
    return (struct object_call){
        .verb = OBJECT_HEAD, .bucket = path->bucket, .key = path->key};
}

/* `prefix` is the caller's, with its slash. */
static struct object_call below_call(const struct object_path *path, const char *prefix) {
    return (struct object_call){
        .verb = OBJECT_LIST, .bucket = path->bucket, .key = prefix, .most = 2};
}

static char *prefix_of(const struct object_path *path, struct sqrl_error *err) {
    return sqrl_format(err, "%s%s", path->key, *path->key ? "/" : "");
}

static bool is_good(const struct sqrl_http_response *response) {
    return response->status >= 200 && response->status < 300;
}

static int not_found(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_NOT_FOUND, "nothing of that name is there");
}

/* Does the answer to below_call show a directory? */
static int judge_below(struct object_store *store, const struct object_call *call,
                       const struct sqrl_http_response *response, bool *found,
                       struct sqrl_error *err) {
    struct object_page page = {0};
    *found = false;
    if (!is_good(response))
        return object_failure(store, response, err);
    int rc = store->kind->read_page(call, response, &page, err);
    if (rc == SQRL_OK) /* an empty bucket is a directory, too */
        *found = page.count > 0 || page.token || !*call->key;
    object_page_free(&page);
    return rc;
}

/* A missing object may hide behind 403 where listing is not allowed. */
static int judge_head(struct object_store *store,
                      const struct sqrl_http_response *response, struct sqrl_stat *out,
                      struct sqrl_error *err) {
    if (is_good(response))
        return store->kind->read_stat(response, out, err);
    return object_failure(store, response, err);
}

static int find_parallel(struct object_store *store, const struct object_path *path,
                         const char *prefix, struct sqrl_stat *out,
                         struct sqrl_error *err) {
    const struct object_call calls[2] = {head_call(path), below_call(path, prefix)};
    struct sqrl_http_response responses[2];
    struct sqrl_error later = {0};
    bool below = false;
    int rc = object_perform(store, calls, responses, 2, NULL, err);
    if (rc == SQRL_OK) {
        rc = judge_head(store, &responses[0], out, err);
        int other = rc == SQRL_OK
                        ? rc
                        : judge_below(store, &calls[1], &responses[1], &below, &later);
        if (below) {
            sqrl_error_clear(err);
            memset(out, 0, sizeof *out);
            out->directory = true;
            rc = SQRL_OK;
        } else if (other && rc == SQRL_E_NOT_FOUND && other != SQRL_E_PERMISSION) {
            if (err)
                *err = later;
            rc = other;
        }
    }
    sqrl_http_response_free(&responses[0]);
    sqrl_http_response_free(&responses[1]);
    return rc;
}

static int find_below(struct object_store *store, const struct object_path *path,
                      const char *prefix, struct sqrl_stat *out, struct sqrl_error *err) {
    struct object_call call = below_call(path, prefix);
    struct sqrl_http_response response;
    bool below = false;
    int rc = object_perform(store, &call, &response, 1, NULL, err);
    if (rc == SQRL_OK)
        rc = judge_below(store, &call, &response, &below, err);
    sqrl_http_response_free(&response);
    memset(out, 0, sizeof *out);
    out->directory = below;
    return rc || below ? rc : not_found(err);
}

int object_find(struct object_store *store, const struct object_path *path, bool parallel,
                struct sqrl_stat *out, struct sqrl_error *err) {
    char *prefix = prefix_of(path, err);
    int rc = prefix ? SQRL_OK : SQRL_E_NO_MEMORY;
    memset(out, 0, sizeof *out);
    if (prefix && (!*path->key || path->slash)) {
        rc = find_below(store, path, prefix, out, err);
    } else if (prefix && parallel) {
        rc = find_parallel(store, path, prefix, out, err);
    } else if (prefix) {
        struct object_call call = head_call(path);
        struct sqrl_http_response response;
        rc = object_perform(store, &call, &response, 1, NULL, err);
        if (rc == SQRL_OK)
            rc = judge_head(store, &response, out, err);
        sqrl_http_response_free(&response);
        struct sqrl_error later = {0};
        if (rc == SQRL_E_NOT_FOUND &&
            find_below(store, path, prefix, out, &later) == SQRL_OK) {
            sqrl_error_clear(err);
            rc = SQRL_OK;
        }
    }
    free(prefix);
    return rc;
}

int object_fs_stat(void *fs, const char *path, struct sqrl_stat *out,
                   struct sqrl_error *err) {
    struct object_path where;
    int rc = object_path_read(fs, path, &where, err);
    if (rc == SQRL_OK)
        rc = object_find(fs, &where, true, out, err);
    object_path_free(&where);
    return rc;
}

/* --- listing --- */

struct listing {
    struct object_store *store;
    struct object_call call;
    char *prefix;
    const struct sqrl_cancel *cancel;
    struct sqrl_error *err;
    sqrl_list_fn visit; /* NULL: gather in `all` */
    void *arg;
    struct object_page all;
    bool seen; /* a marker, a hidden file: the directory is there */
};

/* The entry's name below the directory, or NULL where it is not shown. */
static const char *name_of(const struct listing *l, const struct object_entry *entry) {
    size_t size = strlen(l->prefix);
    const char *name = entry->key;
    if (strncmp(name, l->prefix, size) != 0)
        return NULL;
    name += size;
    bool hidden = name[0] == '.' || strstr(name, "/.") != NULL;
    bool marker = !*name || (!l->call.one_level && entry->stat.directory) ||
                  (!entry->stat.directory && name[strlen(name) - 1] == '/');
    return hidden || marker ? NULL : name;
}

/* Gathers what one level shows; directories lose their slash. */
static int take_entry(struct listing *l, struct object_entry *entry) {
    const char *name = name_of(l, entry);
    l->seen = true;
    if (!name)
        return SQRL_OK;
    if (l->visit)
        return l->visit(l->arg, name, &entry->stat);
    size_t size = strlen(name);
    if (size > 1 && name[size - 1] == '/')
        size--;
    return object_page_add(&l->all, sqrl_format(l->err, "%.*s", (int)size, name),
                           &entry->stat, l->err);
}

static int read_pages(struct listing *l) {
    struct object_page page = {0};
    int rc = SQRL_OK;
    do {
        struct sqrl_http_response response;
        char *token = page.token;
        page.token = NULL;
        object_page_free(&page);
        l->call.token = token;
        if (sqrl_cancel_requested(l->cancel))
            rc = sqrl_error_set(l->err, SQRL_E_CANCELLED, "listing was cancelled");
        else {
            rc = object_perform(l->store, &l->call, &response, 1, l->cancel, l->err);
            if (rc == SQRL_OK)
                rc = is_good(&response)
                         ? l->store->kind->read_page(&l->call, &response, &page, l->err)
                         : object_failure(l->store, &response, l->err);
            sqrl_http_response_free(&response);
        }
        if (rc == SQRL_OK && page.token && token && strcmp(page.token, token) == 0)
            rc = sqrl_error_set(l->err, SQRL_E_CORRUPT,
                                "the listing gives the same page again and again");
        for (size_t i = 0; rc == SQRL_OK && i < page.count; i++)
            rc = take_entry(l, &page.items[i]);
        free(token);
    } while (rc == SQRL_OK && page.token);
    object_page_free(&page);
    return rc;
}

static int by_key(const void *a, const void *b) {
    const struct object_entry *x = a, *y = b;
    int c = strcmp(x->key, y->key);
    return c ? c : (int)y->stat.directory - (int)x->stat.directory;
}

/* In order, each directory once; a file beside a directory of its name stays. */
static int visit_gathered(struct listing *l, sqrl_list_fn visit, void *arg) {
    int rc = SQRL_OK;
    if (l->all.count)
        qsort(l->all.items, l->all.count, sizeof *l->all.items, by_key);
    for (size_t i = 0; rc == SQRL_OK && i < l->all.count; i++) {
        const struct object_entry *entry = &l->all.items[i];
        bool again = i && entry->stat.directory && entry[-1].stat.directory &&
                     strcmp(entry[-1].key, entry->key) == 0;
        if (sqrl_cancel_requested(l->cancel))
            return sqrl_error_set(l->err, SQRL_E_CANCELLED, "listing was cancelled");
        if (!again)
            rc = visit(arg, entry->key, &entry->stat);
    }
    return rc;
}

/* Nothing was found below a path: a file, or nothing at all. */
static int nothing_below(struct object_store *store, const struct object_path *path,
                         struct sqrl_error *err) {
    struct sqrl_stat stat;
    if (!*path->key)
        return SQRL_OK;
    struct object_path file = {path->bucket, path->key, false};
    int rc = object_find(store, &file, false, &stat, err);
    if (rc == SQRL_OK && !stat.directory)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a file; a directory is expected here");
    return rc;
}

int object_fs_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                   void *arg, const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct object_path where;
    int rc = object_path_read(fs, path, &where, err);
    if (rc)
        return rc;
    struct listing l = {.store = fs,
                        .prefix = prefix_of(&where, err),
                        .cancel = cancel,
                        .err = err,
                        .visit = recursive ? visit : NULL,
                        .arg = arg};
    l.call = (struct object_call){.verb = OBJECT_LIST,
                                  .bucket = where.bucket,
                                  .key = l.prefix,
                                  .one_level = !recursive};
    rc = l.prefix ? read_pages(&l) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK && !l.seen)
        rc = nothing_below(fs, &where, err);
    if (rc == SQRL_OK && !recursive)
        rc = visit_gathered(&l, visit, arg);
    object_page_free(&l.all);
    free(l.prefix);
    object_path_free(&where);
    return rc;
}

/* --- reading --- */

/* One request: the first bytes, with the size. Whatever is odd about the answer is left
 * to object_find, which follows buckets to their regions and knows directories. */
static bool open_by_head(struct object_store *store, struct object_file *f,
                         struct sqrl_stat *stat) {
    int rc = sqrl_http_object_open(store->context, &f->request.http, HEAD_BYTES,
                                   &f->object, NULL, NULL);
    if (rc == SQRL_OK && f->object.size && f->object.size != SQRL_SIZE_UNKNOWN) {
        sqrl_http_object_stat(&f->object, stat);
        return true;
    }
    if (rc == SQRL_OK)
        sqrl_http_object_close(&f->object);
    memset(&f->object, 0, sizeof f->object);
    return false;
}

static int open_known(struct object_store *store, const struct object_path *where,
                      struct object_file *f, struct sqrl_stat *stat,
                      struct sqrl_error *err) {
    struct object_call call = {
        .verb = OBJECT_READ, .bucket = where->bucket, .key = where->key};
    int rc = object_build(store, &call, &f->request, err);
    if (rc == SQRL_OK && stat->size == 0) { /* else the caller knows it */
        if (open_by_head(store, f, stat))
            return SQRL_OK;
        rc = object_find(store, where, false, stat, err);
        if (rc == SQRL_OK && stat->directory)
            rc = sqrl_error_set(err, SQRL_E_INVALID,
                                "is a directory; a file is expected here");
        object_request_free(&f->request);
        if (rc == SQRL_OK)
            rc = object_build(store, &call, &f->request, err);
    }
    if (rc == SQRL_OK)
        rc = sqrl_http_object_known(&f->request.http, stat->size, stat->etag, &f->object,
                                    err);
    if (rc)
        object_request_free(&f->request);
    return rc;
}

int object_fs_file_open(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                        struct sqrl_error *err) {
    struct object_path where;
    int rc = object_path_read(fs, path, &where, err);
    if (rc == SQRL_OK && !*where.key)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "is a directory; a file is expected here");
    if (rc == SQRL_OK)
        rc = open_known(fs, &where, file, stat, err);
    object_path_free(&where);
    return rc;
}

int object_fs_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                        const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct object_store *store = fs;
    struct object_file *f = file;
    return sqrl_http_object_read(store->context, &f->object, ranges, count, cancel, err);
}

void object_fs_file_close(void *fs, void *file) {
    struct object_file *f = file;
    sqrl_http_object_close(&f->object);
    object_request_free(&f->request);
}

/* --- removing, directories --- */

static int perform_simple(struct object_store *store, const struct object_call *call,
                          struct sqrl_error *err) {
    struct sqrl_http_response response;
    int rc = object_perform(store, call, &response, 1, NULL, err);
    if (rc == SQRL_OK && !is_good(&response))
        rc = object_failure(store, &response, err);
    sqrl_http_response_free(&response);
    return rc;
}

int object_fs_remove(void *fs, const char *path, struct sqrl_error *err) {
    struct object_path where;
    struct sqrl_stat stat;
    int rc = object_path_read(fs, path, &where, err);
    if (rc == SQRL_OK)
        rc = object_find(fs, &where, false, &stat, err);
    if (rc == SQRL_OK && stat.directory)
        rc =
            sqrl_error_set(err, SQRL_E_INVALID, "is a directory; only files are removed");
    if (rc == SQRL_OK) {
        struct object_call call = {
            .verb = OBJECT_REMOVE, .bucket = where.bucket, .key = where.key};
        rc = perform_simple(fs, &call, err);
    }
    object_path_free(&where);
    return rc;
}

static int put_marker(struct object_store *store, const struct object_path *path,
                      struct sqrl_error *err) {
    char *key = sqrl_format(err, "%s/", path->key);
    if (!key)
        return SQRL_E_NO_MEMORY;
    struct object_call call = {.verb = OBJECT_PUT,
                               .bucket = path->bucket,
                               .key = key,
                               .body = (const uint8_t *)"",
                               .replace = true,
                               .directory = true};
    int rc = perform_simple(store, &call, err);
    free(key);
    return rc;
}

/* Removes doubled slashes in place. */
static void squeeze(char *key) {
    char *out = key;
    for (const char *p = key; *p; p++)
        if (*p != '/' || (out > key && out[-1] != '/'))
            *out++ = *p;
    *out = '\0';
}

/* Markers for the directory and for its parents that are not there yet. */
int object_fs_make_directory(void *fs, const char *path, struct sqrl_error *err) {
    struct object_store *store = fs;
    struct object_path where;
    struct sqrl_stat stat;
    int rc = object_path_read(store, path, &where, err);
    if (rc)
        return rc;
    squeeze(where.key);
    size_t whole = strlen(where.key);
    for (;;) { /* upwards, to the first that is there */
        rc = object_find(store, &where, true, &stat, err);
        char *slash = strrchr(where.key, '/');
        if (rc != SQRL_E_NOT_FOUND || !*where.key)
            break;
        sqrl_error_clear(err);
        *(slash ? slash : where.key) = '\0';
    }
    if (rc == SQRL_OK && !stat.directory)
        rc = sqrl_error_set(
            err, SQRL_E_EXISTS,
            "can't make the directory: a file of the name %.200s is in the way",
            where.key);
    /* Downwards: the slashes that became NULs come back. A cut at the very first name
     * left an empty key, whose first byte is lost: it is taken from `path`. */
    size_t length = strlen(where.key);
    while (rc == SQRL_OK && length < whole) {
        if (length == 0) {
            const char *from = strchr(path, '/');
            from += strspn(from, "/");
            where.key[0] = *from;
        } else {
            where.key[length] = '/';
        }
        length = strlen(where.key);
        rc = put_marker(store, &where, err);
    }
    object_path_free(&where);
    return rc;
}

int object_fs_remove_directory(void *fs, const char *path, struct sqrl_error *err) {
    struct object_store *store = fs;
    struct object_path where;
    struct object_page page = {0};
    struct sqrl_http_response response = {0};
    int rc = object_path_read(store, path, &where, err);
    char *prefix = rc ? NULL : prefix_of(&where, err);
    if (rc || !prefix || !*where.key) {
        rc = rc        ? rc
             : !prefix ? SQRL_E_NO_MEMORY
                       : sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                                        "buckets are not removed by this library");
        goto done;
    }
    struct object_call call = below_call(&where, prefix);
    rc = object_perform(store, &call, &response, 1, NULL, err);
    if (rc == SQRL_OK)
        rc = is_good(&response) ? store->kind->read_page(&call, &response, &page, err)
                                : object_failure(store, &response, err);
    bool others = page.token != NULL, marker = false;
    for (size_t i = 0; i < page.count; i++) {
        bool own = strcmp(page.items[i].key, prefix) == 0;
        marker = marker || own;
        others = others || !own;
    }
    if (rc == SQRL_OK && others)
        rc = sqrl_error_set(err, SQRL_E_STATE, "the directory is not empty");
    else if (rc == SQRL_OK && !marker) /* Azure's markers lie beside, not below */
        rc = nothing_below(store, &where, err);
    if (rc == SQRL_OK) {
        struct object_call removal = {.verb = OBJECT_REMOVE,
                                      .bucket = where.bucket,
                                      .key = prefix,
                                      .directory = true};
        rc = perform_simple(store, &removal, err);
    }
done:
    sqrl_http_response_free(&response);
    object_page_free(&page);
    free(prefix);
    object_path_free(&where);
    return rc;
}

void object_fs_metrics(void *fs, struct sqrl_fs_metrics *out) {
    struct object_store *store = fs;
    struct sqrl_fs_metrics m;
    uint64_t *const from = (uint64_t *)&store->metrics, *const to = (uint64_t *)&m;
    for (size_t i = 0; i < sizeof m / sizeof *to; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    out->lists += m.lists;
    out->requests += m.requests > m.lists ? m.requests - m.lists : 0;
    out->bytes += m.bytes;
    out->retries += m.retries;
    out->hedges += m.hedges;
    out->first_byte_ns += m.first_byte_ns;
    out->first_bytes += m.first_bytes;
    out->parallel_most = SQRL_MAX(out->parallel_most, m.parallel_most);
}

void object_fs_close(void *fs) {
    struct object_store *store = fs;
    if (store->kind && store->kind->close)
        store->kind->close(store);
    sqrl_http_policy_free(&store->policy);
    sqrl_lock_reset(&store->lock);
    free(store->endpoint);
    free(store->region);
    free(store->user_project);
    memset(store, 0, sizeof *store);
}
