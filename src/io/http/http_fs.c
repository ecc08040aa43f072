/* http_fs.c - http:// and https://: files on web servers, for reading.
 *
 * A path is a URL without its scheme, escaped as URLs are; characters that may not stand
 * there are escaped. What was learned when a file was looked at serves when it is opened
 * soon after: looking costs one request, which brings the beginning of the file, too.
 *
 * Nothing can be listed over HTTP. A data set's directory is one that has `_sqrl/list`;
 * of others the server's index page is read, or the option `keys` names the files. */
#include "io/http/index_page.h"
#include "io/http/ranges.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define HEAD_BYTES ((size_t)64 << 10) /* comes with opening */
#define FRESH_NS UINT64_C(10000000000)
#define KNOWN 64u
#define MAX_DEPTH 16
#define LIST "_sqrl/list"

/* A file that was looked at; immutable but for the object's own lock. */
struct entry {
    int refs;
    bool stale; /* atomic: it changed */
    uint64_t fresh_until_ns;
    char *path;
    struct sqrl_http_object object;
};

struct http_fs {
    struct sqrl_context *context; /* borrowed: the fs holds it */
    const char *scheme;
    struct sqrl_http_policy policy;
    struct sqrl_fs_metrics metrics;
    struct sqrl_http_headers headers;
    char *keys;            /* one a line or comma; NULL: not given */
    struct sqrl_lock lock; /* guards what follows */
    struct entry *known[KNOWN];
    unsigned next;
    char *no_list; /* where there is no LIST, as was found at that time */
    uint64_t no_list_until_ns;
};

static const struct sqrl_option options[] = {
    SQRL_HTTP_OPTIONS,
    {"headers", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "sent with each request, \"Name: value\", one a line"},
    {"token", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "sent as \"Authorization: Bearer ...\""},
    {"keys", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "the directory's files, comma-separated, where the server can't tell"},
    {0}};

/* --- opening the file system --- */

static int add_line(struct sqrl_http_headers *headers, const char *line, size_t size,
                    struct sqrl_error *err) {
    const char *colon = memchr(line, ':', size);
    if (!colon)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "headers: each line must be \"Name: value\"");
    const char *value = colon + 1, *end = line + size;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\r'))
        end--;
    char *name = sqrl_format(err, "%.*s", (int)(colon - line), line);
    char *text = name ? sqrl_format(err, "%.*s", (int)(end - value), value) : NULL;
    int rc = text ? sqrl_http_headers_add(headers, name, text, err) : SQRL_E_NO_MEMORY;
    free(name);
    free(text);
    return rc;
}

static int read_headers(struct http_fs *fs, const struct sqrl_settings *settings,
                        struct sqrl_error *err) {
    const char *text = sqrl_settings_text(settings, options, "headers");
    const char *token = sqrl_settings_text(settings, options, "token");
    int rc = SQRL_OK;
    while (text && *text && rc == SQRL_OK) {
        size_t size = strcspn(text, "\n");
        if (size > 0)
            rc = add_line(&fs->headers, text, size, err);
        text += size + (text[size] == '\n');
    }
    if (rc == SQRL_OK && token && *token) {
        char *value = sqrl_format(err, "Bearer %s", token);
        rc = value ? sqrl_http_headers_add(&fs->headers, "Authorization", value, err)
                   : SQRL_E_NO_MEMORY;
        free(value);
    }
    return rc;
}

static void close_fs(void *state);

static int open_fs(struct http_fs *fs, const char *scheme, struct sqrl_context *context,
                   const struct sqrl_settings *settings, struct sqrl_error *err) {
    if (!context)
        return sqrl_error_set(err, SQRL_E_INVALID, "%s:// needs a context", scheme);
    fs->context = context;
    fs->scheme = scheme;
    sqrl_lock_init(&fs->lock);
    int rc = sqrl_http_policy_read(&fs->policy, settings, options, err);
    fs->policy.metrics = &fs->metrics;
    if (rc == SQRL_OK)
        rc = read_headers(fs, settings, err);
    const char *keys = sqrl_settings_text(settings, options, "keys");
    if (rc == SQRL_OK && keys && !(fs->keys = sqrl_strdup(keys, err)))
        rc = SQRL_E_NO_MEMORY;
    if (rc != SQRL_OK)
        close_fs(fs);
    return rc;
}

static int open_http(void *fs, struct sqrl_context *context,
                     const struct sqrl_settings *settings, struct sqrl_error *err) {
    return open_fs(fs, "http", context, settings, err);
}

static int open_https(void *fs, struct sqrl_context *context,
                      const struct sqrl_settings *settings, struct sqrl_error *err) {
    return open_fs(fs, "https", context, settings, err);
}

static void drop_entry(struct entry *e) {
    if (!e || __atomic_fetch_sub(&e->refs, 1, __ATOMIC_ACQ_REL) != 1)
        return;
    sqrl_http_object_close(&e->object);
    free(e->path);
    free(e);
}

static void close_fs(void *state) {
    struct http_fs *fs = state;
    for (unsigned i = 0; i < KNOWN; i++)
        drop_entry(fs->known[i]);
    sqrl_http_policy_free(&fs->policy);
    sqrl_http_headers_free(&fs->headers);
    free(fs->keys);
    free(fs->no_list);
    sqrl_lock_reset(&fs->lock);
}

/* --- URLs --- */

/* scheme://path with what may not stand in a URL escaped; the rest is the caller's. */
static char *url_of(const struct http_fs *fs, const char *path, struct sqrl_error *err) {
    static const char digits[] = "0123456789ABCDEF";
    size_t scheme = strlen(fs->scheme);
    char *url = sqrl_malloc(scheme + 4 + 3 * strlen(path), "a URL", err);
    if (!url)
        return NULL;
    char *to = url + sprintf(url, "%s://", fs->scheme);
    for (const unsigned char *c = (const unsigned char *)path; *c; c++) {
        if (*c > 0x20 && *c < 0x7f && !strchr("\"<>\\^`{|}", *c)) {
            *to++ = (char)*c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[*c >> 4];
        *to++ = digits[*c & 15];
    }
    *to = 0;
    return url;
}

static struct sqrl_http_request pattern_of(const struct http_fs *fs, const char *url) {
    return (struct sqrl_http_request){.method = "GET",
                                      .url = url,
                                      .headers = fs->headers.items,
                                      .header_count = fs->headers.count,
                                      .policy = &fs->policy,
                                      .unnamed = true};
}

/* --- files that were looked at --- */

static struct entry *find_entry(struct http_fs *fs, const char *path) {
    struct entry *found = NULL;
    uint64_t now = sqrl_now_ns();
    sqrl_lock_take(&fs->lock);
    for (unsigned i = 0; i < KNOWN && !found; i++) {
        struct entry *e = fs->known[i];
        if (e && now < e->fresh_until_ns && strcmp(e->path, path) == 0 &&
            !__atomic_load_n(&e->stale, __ATOMIC_RELAXED)) {
            __atomic_fetch_add(&e->refs, 1, __ATOMIC_RELAXED);
            found = e;
        }
    }
    sqrl_lock_drop(&fs->lock);
    return found;
}

static void keep_entry(struct http_fs *fs, struct entry *e) {
    __atomic_fetch_add(&e->refs, 1, __ATOMIC_RELAXED);
    e->fresh_until_ns = sqrl_now_ns() + FRESH_NS;
    sqrl_lock_take(&fs->lock);
    struct entry *old = fs->known[fs->next];
    fs->known[fs->next] = e;
    fs->next = (fs->next + 1) % KNOWN;
    sqrl_lock_drop(&fs->lock);
    drop_entry(old);
}

/* `known`: its size is known, nothing is asked. *moved as sqrl_http_object_open. */
static int make_entry(struct http_fs *fs, const char *path, const struct sqrl_stat *known,
                      struct entry **out, char **moved, struct sqrl_error *err) {
    *out = NULL;
    struct entry *e = sqrl_calloc(1, sizeof *e, "a file", err);
    char *url = e ? url_of(fs, path, err) : NULL;
    int rc = url && (e->path = sqrl_strdup(path, err)) ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK) {
        struct sqrl_http_request pattern = pattern_of(fs, url);
        e->refs = 1;
        rc = known ? sqrl_http_object_known(&pattern, known->size, known->etag,
                                            &e->object, err)
                   : sqrl_http_object_open(fs->context, &pattern, HEAD_BYTES, &e->object,
                                           moved, err);
    }
    free(url);
    if (rc != SQRL_OK) {
        free(e ? e->path : NULL);
        free(e);
        return rc;
    }
    *out = e;
    return SQRL_OK;
}

/* Was that list looked for, in vain, a moment ago? */
static bool is_missing(struct http_fs *fs, const char *list) {
    sqrl_lock_take(&fs->lock);
    bool missing = fs->no_list && sqrl_now_ns() < fs->no_list_until_ns &&
                   strcmp(fs->no_list, list) == 0;
    sqrl_lock_drop(&fs->lock);
    return missing;
}

/* Takes `list`. */
static void keep_missing(struct http_fs *fs, char *list) {
    sqrl_lock_take(&fs->lock);
    char *old = fs->no_list;
    fs->no_list = list;
    fs->no_list_until_ns = sqrl_now_ns() + FRESH_NS;
    sqrl_lock_drop(&fs->lock);
    free(old);
}

static bool is_list(const char *path) {
    size_t size = strlen(path), n = strlen(LIST);
    return size > n && path[size - n - 1] == '/' && strcmp(path + size - n, LIST) == 0;
}

static int look_up(struct http_fs *fs, const char *path, struct entry **out, char **moved,
                   struct sqrl_error *err) {
    if (moved)
        *moved = NULL;
    *out = find_entry(fs, path);
    if (*out)
        return SQRL_OK;
    if (is_list(path) && is_missing(fs, path))
        return sqrl_error_set(err, SQRL_E_NOT_FOUND, "there is no such file");
    int rc = make_entry(fs, path, NULL, out, moved, err);
    char *copy = NULL;
    if (rc == SQRL_OK)
        keep_entry(fs, *out);
    else if (rc == SQRL_E_NOT_FOUND && is_list(path) && (copy = sqrl_strdup(path, NULL)))
        keep_missing(fs, copy);
    return rc;
}

static char *below(const char *directory, const char *name, struct sqrl_error *err) {
    size_t size = strlen(directory);
    return sqrl_format(err, "%s%s%s", directory,
                       size > 0 && directory[size - 1] == '/' ? "" : "/", name);
}

/* SQRL_OK: there is `_sqrl/list`; SQRL_E_NOT_FOUND: there is none. */
static int look_for_list(struct http_fs *fs, const char *path, struct sqrl_error *err) {
    struct entry *e;
    char *list = below(path, LIST, err);
    int rc = list ? look_up(fs, list, &e, NULL, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        drop_entry(e);
    free(list);
    return rc == SQRL_E_PERMISSION ? SQRL_E_NOT_FOUND : rc;
}

/* --- stat --- */

static bool ends_with_slash(const char *url) {
    size_t size = strcspn(url, "?#");
    return size > 0 && url[size - 1] == '/';
}

/* "host", "host/a" and "host/a/b": is there a name like those that files have? */
static bool looks_like_file(const char *path) {
    const char *slash = memrchr(path, '/', strcspn(path, "?#"));
    return slash && (strchr(slash, '.') || strchr(slash, '?'));
}

static int set_directory(struct sqrl_stat *out) {
    *out = (struct sqrl_stat){.directory = true};
    return SQRL_OK;
}

static int stat_fs(void *state, const char *path, struct sqrl_stat *out,
                   struct sqrl_error *err) {
    struct http_fs *fs = state;
    struct entry *e = NULL;
    char *moved = NULL;
    bool file = looks_like_file(path);
    if (ends_with_slash(path) || !strchr(path, '/') || fs->keys)
        return set_directory(out);
    int rc = file ? SQRL_E_NOT_FOUND : look_for_list(fs, path, err);
    if (rc != SQRL_E_NOT_FOUND)
        return rc == SQRL_OK ? set_directory(out) : rc;
    rc = look_up(fs, path, &e, &moved, err);
    bool directory = moved && ends_with_slash(moved);
    if (rc == SQRL_OK && !directory)
        sqrl_http_object_stat(&e->object, out);
    if (rc == SQRL_E_NOT_FOUND && file && !directory)
        directory = look_for_list(fs, path, NULL) == SQRL_OK;
    free(moved);
    drop_entry(e);
    return directory ? set_directory(out) : rc;
}

/* --- listing --- */

struct walk {
    struct http_fs *fs;
    sqrl_list_fn visit;
    void *arg;
    const struct sqrl_cancel *cancel;
    bool recursive;
};

static int visit_name(const struct walk *w, const char *name, bool directory) {
    struct sqrl_stat stat = {.size = directory ? 0 : SQRL_SIZE_UNKNOWN,
                             .directory = directory};
    return w->visit(w->arg, name, &stat);
}

static int list_keys(const struct walk *w, struct sqrl_error *err) {
    int rc = SQRL_OK;
    for (const char *p = w->fs->keys; *p && rc == SQRL_OK;) {
        p += strspn(p, ", \n\r\t");
        size_t size = strcspn(p, ",\n\r");
        char *name = size > 0 ? sqrl_format(err, "%.*s", (int)size, p) : NULL;
        if (name)
            rc = visit_name(w, name, false);
        else if (size > 0)
            rc = SQRL_E_NO_MEMORY;
        free(name);
        p += size;
    }
    return rc;
}

static int no_listing(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                          "this directory can't be listed over HTTP: it has no " LIST
                          " of a native data set and the server sends no index page; "
                          "name a file, or the files by keys=");
}

static int get_page(const struct walk *w, const char *path,
                    struct sqrl_http_response *response, struct sqrl_error *err) {
    char *slashed = below(path, "", err);
    char *url = slashed ? url_of(w->fs, slashed, err) : NULL;
    struct sqrl_http *http;
    *response = (struct sqrl_http_response){0};
    int rc = url ? sqrl_http_of(w->fs->context, &http, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK) {
        struct sqrl_http_request request = pattern_of(w->fs, url);
        request.cancel = w->cancel;
        request.listing = true;
        rc = sqrl_http_perform(http, &request, response, 1, err);
    }
    if (rc == SQRL_OK && response->status == 403)
        rc = no_listing(err);
    else if (rc == SQRL_OK && response->status != 200)
        rc = sqrl_http_status_error(response, err);
    const char *type = sqrl_http_headers_get(&response->headers, "Content-Type");
    if (rc == SQRL_OK && (!response->body || !type || !strcasestr(type, "html")))
        rc = no_listing(err);
    if (rc == SQRL_OK && !response->url) {
        response->url = url;
        url = NULL;
    }
    free(slashed);
    free(url);
    return rc;
}

static int list_page(const struct walk *w, const char *path, const char *prefix,
                     int depth, struct sqrl_error *err);

static int list_entry(const struct walk *w, const char *path, const char *prefix,
                      const char *name, int depth, struct sqrl_error *err) {
    size_t size = strlen(name);
    bool directory = name[size - 1] == '/';
    char *full = sqrl_format(err, "%s%.*s", prefix, (int)(size - directory), name);
    char *inner = full ? below(path, name, err) : NULL;
    char *deeper = inner ? sqrl_format(err, "%s/", full) : NULL;
    int rc = deeper ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK && directory && w->recursive)
        rc = depth < MAX_DEPTH ? list_page(w, inner, deeper, depth + 1, err) : SQRL_OK;
    else if (rc == SQRL_OK)
        rc = visit_name(w, full, directory);
    free(full);
    free(inner);
    free(deeper);
    return rc;
}

static int list_page(const struct walk *w, const char *path, const char *prefix,
                     int depth, struct sqrl_error *err) {
    struct sqrl_http_response response;
    struct sqrl_index_page page = {0};
    int rc = get_page(w, path, &response, err);
    if (rc == SQRL_OK)
        rc = sqrl_index_page_read((const char *)response.body, response.url, &page, err);
    sqrl_http_response_free(&response);
    for (size_t i = 0; i < page.count && rc == SQRL_OK; i++)
        rc = list_entry(w, path, prefix, page.names[i], depth, err);
    sqrl_index_page_reset(&page);
    return rc;
}

static int list_fs(void *state, const char *path, bool recursive, sqrl_list_fn visit,
                   void *arg, const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct walk w = {state, visit, arg, cancel, recursive};
    if (w.fs->keys)
        return list_keys(&w, err);
    int rc = look_for_list(w.fs, path, err);
    if (rc == SQRL_OK)
        return visit_name(&w, recursive ? LIST : "_sqrl", !recursive);
    if (rc != SQRL_E_NOT_FOUND)
        return rc;
    return list_page(&w, path, "", 0, err);
}

/* --- reading --- */

struct http_file {
    struct entry *entry;
};

static int file_open(void *state, const char *path, void *file, struct sqrl_stat *stat,
                     struct sqrl_error *err) {
    struct http_fs *fs = state;
    struct http_file *f = file;
    f->entry = find_entry(fs, path);
    int rc = SQRL_OK;
    if (!f->entry && stat->size > 0)
        rc = make_entry(fs, path, stat, &f->entry, NULL, err);
    else if (!f->entry)
        rc = look_up(fs, path, &f->entry, NULL, err);
    if (rc == SQRL_OK)
        sqrl_http_object_stat(&f->entry->object, stat);
    return rc;
}

static int file_read(void *state, void *file, struct sqrl_range *ranges, size_t count,
                     const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct http_fs *fs = state;
    struct entry *e = ((struct http_file *)file)->entry;
    int rc = sqrl_http_object_read(fs->context, &e->object, ranges, count, cancel, err);
    if (rc == SQRL_E_STATE)
        __atomic_store_n(&e->stale, true, __ATOMIC_RELAXED);
    return rc;
}

static void file_close(void *state, void *file) {
    drop_entry(((struct http_file *)file)->entry);
}

static void metrics_fs(void *state, struct sqrl_fs_metrics *out) {
    const struct http_fs *fs = state;
    const uint64_t *from = (const uint64_t *)&fs->metrics;
    uint64_t *to = (uint64_t *)out;
    for (size_t i = 0; i < sizeof *out / sizeof *to; i++)
        to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

#define HTTP_FS(scheme_, open_)                                                          \
    {                                                                                    \
        .size = sizeof(struct sqrl_fs_ops), .api = SQRL_FS_API, .name = scheme_,         \
        .schemes = scheme_, .doc = "files on web servers",                               \
        .flags = SQRL_FS_URL | SQRL_FS_VERSIONED, .options = options,                    \
        .fs_size = sizeof(struct http_fs), .file_size = sizeof(struct http_file),        \
        .open = open_, .close = close_fs, .stat = stat_fs, .list = list_fs,              \
        .file_open = file_open, .file_read = file_read, .file_close = file_close,        \
        .metrics = metrics_fs                                                            \
    }

const struct sqrl_fs_ops sqrl_fs_http = HTTP_FS("http", open_http);
const struct sqrl_fs_ops sqrl_fs_https = HTTP_FS("https", open_https);
