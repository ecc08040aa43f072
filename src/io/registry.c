/* registry.c - from URL schemes to file systems, one table a context. */
#include "io/io.h"

#include <stdlib.h>

#define MAX_FILE_SYSTEMS 32

struct registry {
    struct sqrl_lock lock; /* guards entries and count; entries are only ever added */
    const struct sqrl_fs_ops *entries[MAX_FILE_SYSTEMS];
    size_t count;
    struct sqrl_memory_store *memory;
    struct sqrl_http_place http;
    struct sqrl_kept_place kept;
};

static void free_registry(void *state) {
    struct registry *r = state;
    sqrl_http_release(r->http.http);
    sqrl_memory_store_free(r->memory);
    sqrl_kept_release(r->kept.first);
    sqrl_lock_reset(&r->kept.lock);
    sqrl_lock_reset(&r->http.lock);
    sqrl_lock_reset(&r->lock);
    free(r);
}

static void *make_registry(struct sqrl_context *context, struct sqrl_error *err) {
    struct registry *r = sqrl_calloc(1, sizeof(*r), "the file systems' registry", err);
    if (!r)
        return NULL;
    sqrl_lock_init(&r->lock);
    sqrl_lock_init(&r->http.lock);
    sqrl_lock_init(&r->kept.lock);
    r->memory = sqrl_memory_store_new(err);
    if (!r->memory) {
        free_registry(r);
        return NULL;
    }
    r->entries[r->count++] = &sqrl_fs_local;
    r->entries[r->count++] = &sqrl_fs_memory;
    r->entries[r->count++] = &sqrl_fs_http;
    r->entries[r->count++] = &sqrl_fs_https;
    r->entries[r->count++] = &sqrl_fs_s3;
    r->entries[r->count++] = &sqrl_fs_gs;
    r->entries[r->count++] = &sqrl_fs_az;
    return r;
}

static struct registry *registry_of(struct sqrl_context *context,
                                    struct sqrl_error *err) {
    return sqrl_context_slot(context, SQRL_SLOT_IO, make_registry, free_registry, err);
}

struct sqrl_memory_store *sqrl_io_memory(struct sqrl_context *context,
                                         struct sqrl_error *err) {
    struct registry *r = registry_of(context, err);
    return r ? r->memory : NULL;
}

struct sqrl_http_place *sqrl_io_http(struct sqrl_context *context,
                                     struct sqrl_error *err) {
    struct registry *r = registry_of(context, err);
    return r ? &r->http : NULL;
}

struct sqrl_kept_place *sqrl_io_kept(struct sqrl_context *context,
                                     struct sqrl_error *err) {
    struct registry *r = registry_of(context, err);
    return r ? &r->kept : NULL;
}

/* Is `scheme` one of the |-separated list? The empty one too. */
static bool has_scheme(const char *list, const char *scheme, size_t length) {
    for (;;) {
        size_t n = strcspn(list, "|");
        if (n == length && memcmp(list, scheme, n) == 0)
            return true;
        if (list[n] == '\0')
            return false;
        list += n + 1;
    }
}

static const struct sqrl_fs_ops *find(struct registry *r, const char *scheme,
                                      size_t length) {
    const struct sqrl_fs_ops *found = NULL;
    sqrl_lock_take(&r->lock);
    for (size_t i = 0; i < r->count && !found; i++) {
        if (has_scheme(r->entries[i]->schemes, scheme, length))
            found = r->entries[i];
    }
    sqrl_lock_drop(&r->lock);
    return found;
}

int sqrl_fs_register(struct sqrl_context *context, const struct sqrl_fs_ops *ops,
                     struct sqrl_error *err) {
    struct registry *r = registry_of(context, err);
    if (!r)
        return SQRL_E_NO_MEMORY;
    const char *scheme = ops->schemes;
    for (;;) {
        size_t n = strcspn(scheme, "|");
        if (find(r, scheme, n)) {
            return sqrl_error_set(err, SQRL_E_EXISTS,
                                  "file system \"%s\": the scheme \"%.*s\" is taken",
                                  ops->name, (int)n, scheme);
        }
        if (scheme[n] == '\0')
            break;
        scheme += n + 1;
    }
    sqrl_lock_take(&r->lock);
    bool room = r->count < MAX_FILE_SYSTEMS;
    if (room)
        r->entries[r->count++] = ops;
    sqrl_lock_drop(&r->lock);
    if (room)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_LIMIT, "at most %d file systems can be registered",
                          MAX_FILE_SYSTEMS);
}

const struct sqrl_fs_ops *sqrl_fs_registered(struct sqrl_context *context, size_t i) {
    struct registry *r = registry_of(context, NULL);
    if (!r)
        return NULL;
    sqrl_lock_take(&r->lock);
    const struct sqrl_fs_ops *ops = i < r->count ? r->entries[i] : NULL;
    sqrl_lock_drop(&r->lock);
    return ops;
}

/* --- URLs --- */

/* Length of the scheme of "scheme://...", 0 when it is a plain path. */
static size_t scheme_length(const char *url) {
    const char *mark = strstr(url, "://");
    if (!mark || mark == url)
        return 0;
    size_t n = (size_t)(mark - url);
    return memchr(url, '/', n) ? 0 : n;
}

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes %XX in place. */
static int unescape(char *path, struct sqrl_error *err) {
    char *out = path;
    for (const char *p = path; *p; p++) {
        if (*p != '%') {
            *out++ = *p;
            continue;
        }
        int high = hex(p[1]), low = high < 0 ? -1 : hex(p[2]);
        if (low < 0 || (high | low) == 0) {
            return sqrl_error_set(
                err, SQRL_E_INVALID,
                "\"%%\" begins no valid escape here: write %%25 for a per "
                "cent sign in a file:// URL, or give a plain path");
        }
        *out++ = (char)(high << 4 | low);
        p += 2;
    }
    *out = '\0';
    return SQRL_OK;
}

/* "file://" + rest: the host must be empty or localhost (RFC 8089). */
static int file_url_path(const char *rest, char **path, struct sqrl_error *err) {
    if (strncmp(rest, "localhost/", 10) == 0)
        rest += 9;
    if (*rest != '/') {
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "a file:// URL needs an absolute path, as in file:///data/x; "
            "give a plain path for a relative one");
    }
    *path = sqrl_strdup(rest, err);
    if (!*path)
        return SQRL_E_NO_MEMORY;
    int rc = unescape(*path, err);
    if (rc != SQRL_OK) {
        free(*path);
        *path = NULL;
    }
    return rc;
}

static int unknown_scheme(struct registry *r, const char *url, size_t n,
                          struct sqrl_error *err) {
    char known[160] = "";
    sqrl_lock_take(&r->lock);
    for (size_t i = 0; i < r->count; i++) {
        size_t used = strlen(known), length = strcspn(r->entries[i]->schemes, "|");
        if (length > 0 && used + length + 6 < sizeof(known)) {
            memcpy(known + used, used ? ", " : "", used ? 3 : 1);
            strncat(known, r->entries[i]->schemes, length);
            strcat(known, "://");
        }
    }
    sqrl_lock_drop(&r->lock);
    return sqrl_error_set(
        err, SQRL_E_UNSUPPORTED,
        "no file system for \"%.*s://\" is built in; there are %s and plain "
        "paths",
        (int)SQRL_MIN(n, (size_t)40), url, known);
}

static int resolve(struct registry *r, const char *url, const struct sqrl_fs_ops **ops,
                   char **path, struct sqrl_error *err) {
    size_t n = scheme_length(url);
    *ops = find(r, url, n);
    if (!*ops)
        return unknown_scheme(r, url, n, err);
    if (n == 4 && memcmp(url, "file", 4) == 0)
        return file_url_path(url + 7, path, err);
    const char *rest = n ? url + n + 3 : url;
    if (*rest == '\0' && n == 0)
        return sqrl_error_set(err, SQRL_E_INVALID, "the path is empty");
    *path = sqrl_strdup(rest, err);
    return *path ? SQRL_OK : SQRL_E_NO_MEMORY;
}

const struct sqrl_fs_ops *sqrl_fs_ops_for_url(struct sqrl_context *context,
                                              const char *url) {
    struct registry *r = registry_of(context, NULL);
    return r ? find(r, url, scheme_length(url)) : NULL;
}

int sqrl_fs_for_url(struct sqrl_context *context, const char *url,
                    const struct sqrl_settings *settings, struct sqrl_fs **out,
                    char **path, struct sqrl_error *err) {
    *out = NULL;
    *path = NULL;
    struct registry *r = registry_of(context, err);
    if (!r)
        return SQRL_E_NO_MEMORY;
    const struct sqrl_fs_ops *ops;
    int rc = resolve(r, url, &ops, path, err);
    if (rc == SQRL_OK)
        rc = sqrl_fs_new(context, ops, settings, out, err);
    if (rc != SQRL_OK) {
        free(*path);
        *path = NULL;
        return sqrl_error_at(err, rc, "%s", url);
    }
    return SQRL_OK;
}
