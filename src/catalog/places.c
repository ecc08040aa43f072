/* places.c - the user's catalogs: environment, configuration, known folders. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "catalog/catalog.h"
#include "sqrl/fs.h"

#define VARIABLE "SQUIRREL_CATALOGS"
#define PYTHON "SQUIRREL_PYTHON"

enum { MAX_CONFIG_BYTES = 1 << 20, MAX_PATH = 4096 };

/* --- paths --- */
/* $variable where it is an absolute path, else `fallback` in the home directory; "" when
 * there is neither (XDG Base Directory Specification 0.8). To be freed. */
static char *base_folder(const char *variable, const char *fallback,
                         struct sqrl_error *err) {
    const char *value = getenv(variable), *home = getenv("HOME");
    if (value && *value == '/')
        return sqrl_strdup(value, err);
    if (home && *home == '/')
        return sqrl_format(err, "%s/%s", home, fallback);
    return sqrl_strdup("", err);
}

static char *config_path(struct sqrl_error *err) {
    char *folder = base_folder("XDG_CONFIG_HOME", ".config", err), *path = NULL;
    if (folder && *folder)
        path = sqrl_format(err, "%s/squirrel/catalogs", folder);
    else if (folder)
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no home for a configuration: set HOME or "
                       "XDG_CONFIG_HOME to an absolute path");
    free(folder);
    return path;
}

/* "~/x" in the home directory, and with `absolute` a relative path from here. To be
 * freed. */
static char *full_path(const char *url, bool absolute, struct sqrl_error *err) {
    char here[MAX_PATH];
    const char *home = getenv("HOME");
    if (strncmp(url, "~/", 2) == 0 && home && *home == '/')
        return sqrl_format(err, "%s/%s", home, url + 2);
    if (!absolute || *url == '/' || strstr(url, "://"))
        return sqrl_strdup(url, err);
    if (!getcwd(here, sizeof here)) {
        sqrl_error_set_errno(err, errno, "the working directory has no name");
        return NULL;
    }
    return sqrl_format(err, "%s/%s", here, url);
}

/* A small file's text, to be freed. One that is not there is "". */
static int read_text(struct sqrl_context *context, const char *path, char **out,
                     struct sqrl_error *err) {
    struct sqrl_error own = {0};
    struct sqrl_fs *fs = NULL;
    struct sqrl_file *file = NULL;
    char *inner = NULL;
    *out = NULL;
    int code = sqrl_fs_for_url(context, path, NULL, &fs, &inner, &own);
    if (!code)
        code = sqrl_file_open(fs, inner, &file, &own);
    uint64_t size = code ? 0 : sqrl_file_size(file);
    if (!code && size > MAX_CONFIG_BYTES) {
        sqrl_error_set(&own, SQRL_E_LIMIT, "more than %d bytes", MAX_CONFIG_BYTES);
        code = sqrl_error_at(&own, SQRL_E_LIMIT, "%s", path);
    }
    if (!code && !(*out = sqrl_calloc(1, (size_t)size + 1, "a configuration", &own)))
        code = SQRL_E_NO_MEMORY;
    if (!code)
        code = sqrl_file_read_exact(file, 0, *out, (size_t)size, NULL, &own);
    if (code == SQRL_E_NOT_FOUND && !*out) {
        *out = sqrl_calloc(1, 1, "a configuration", &own);
        code = *out ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    if (code) {
        free(*out);
        *out = NULL;
        if (err)
            *err = own;
    }
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    free(inner);
    return code;
}

/* --- entries of a list --- */
struct visitor {
    sqrl_catalog_place_fn visit;
    void *arg;
};

static char *trim(char *text) {
    size_t size = strlen(text);
    while (size && strchr(" \t\r", text[size - 1]))
        text[--size] = '\0';
    return text + strspn(text, " \t\r");
}

static int visit_entry(const struct visitor *visitor, char *entry, const char *origin,
                       uint32_t line, struct sqrl_error *err) {
    entry = trim(entry);
    if (!*entry || *entry == '#')
        return SQRL_OK;
    char *url = full_path(entry, false, err);
    if (!url)
        return SQRL_E_NO_MEMORY;
    struct sqrl_catalog_place place = {url, origin, line};
    int code = visitor->visit(visitor->arg, &place, err);
    free(url);
    return code;
}

/* The entries of a text that one character separates; it is cut into pieces. */
static int visit_list(const struct visitor *visitor, char *text, char separator,
                      const char *origin, struct sqrl_error *err) {
    int code = SQRL_OK;
    for (uint32_t line = 1; text && !code; line++) {
        char *end = strchr(text, separator);
        if (end)
            *end = '\0';
        code = visit_entry(visitor, text, origin, separator == '\n' ? line : 0, err);
        text = end ? end + 1 : NULL;
    }
    return code;
}

static int visit_environment(const struct visitor *visitor, struct sqrl_error *err) {
    const char *value = getenv(VARIABLE);
    char *text = value ? sqrl_strdup(value, err) : NULL;
    if (!value)
        return SQRL_OK;
    int code = text ? visit_list(visitor, text, ';', VARIABLE, err) : SQRL_E_NO_MEMORY;
    free(text);
    return code;
}

static int visit_config(struct sqrl_context *context, const struct visitor *visitor,
                        struct sqrl_error *err) {
    struct sqrl_error own = {0};
    char *path = config_path(&own), *text = NULL;
    if (!path && own.code == SQRL_E_NOT_FOUND)
        return SQRL_OK; /* no home: nothing can have been subscribed to */
    if (!path) {
        if (err)
            *err = own;
        return (int)own.code;
    }
    int code = read_text(context, path, &text, err);
    if (!code)
        code = visit_list(visitor, text, '\n', path, err);
    free(text);
    free(path);
    return code;
}

/* --- folders --- */
struct folder {
    const struct visitor *visitor;
    const char *path;
    struct sqrl_error *err;
};

static int visit_file(void *arg, const char *name, const struct sqrl_stat *stat) {
    const struct folder *folder = arg;
    size_t size = strlen(name);
    if (stat->directory || size < 5 || strcmp(name + size - 5, ".yaml") != 0)
        return 0;
    char *path = sqrl_format(folder->err, "%s/%s", folder->path, name);
    if (!path)
        return SQRL_E_NO_MEMORY;
    struct sqrl_catalog_place place = {path, folder->path, 0};
    int code = folder->visitor->visit(folder->visitor->arg, &place, folder->err);
    free(path);
    return code;
}

/* The catalogs in `base`/squirrel/catalogs, which need not be there. */
static int visit_folder(struct sqrl_context *context, const struct visitor *visitor,
                        const char *base, struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_error own = {0}, inner_error = {0};
    char *inner = NULL, *path = sqrl_format(err, "%s/squirrel/catalogs", base);
    if (!path)
        return SQRL_E_NO_MEMORY;
    struct folder folder = {visitor, path, &inner_error};
    int code = sqrl_fs_for_url(context, path, NULL, &fs, &inner, &own);
    if (!code)
        code = sqrl_fs_list(fs, inner, false, visit_file, &folder, NULL, &own);
    if (inner_error.code)
        own = inner_error;
    else if (code == SQRL_E_NOT_FOUND)
        code = SQRL_OK;
    if (code && err && own.code)
        *err = own;
    sqrl_fs_unref(fs);
    free(inner);
    free(path);
    return code;
}

static int visit_folders(struct sqrl_context *context, const struct visitor *visitor,
                         struct sqrl_error *err) {
    const char *value = getenv("XDG_DATA_DIRS");
    char *home = base_folder("XDG_DATA_HOME", ".local/share", err);
    char *text =
        sqrl_strdup(value && *value ? value : "/usr/local/share:/usr/share", err);
    int code = home && text ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!code && *home)
        code = visit_folder(context, visitor, home, err);
    for (char *at = text, *next; at && !code; at = next) {
        next = strchr(at, ':');
        if (next)
            *next++ = '\0';
        if (*at == '/')
            code = visit_folder(context, visitor, at, err);
    }
    free(text);
    free(home);
    return code;
}

int sqrl_catalog_places(struct sqrl_context *context, sqrl_catalog_place_fn visit,
                        void *arg, struct sqrl_error *err) {
    struct visitor visitor = {visit, arg};
    int code = visit_environment(&visitor, err);
    if (!code)
        code = visit_config(context, &visitor, err);
    return code ? code : visit_folders(context, &visitor, err);
}

/* --- the default catalog --- */
struct loaded {
    struct sqrl_catalog *catalog;
    char *url;
};
struct loading {
    struct sqrl_context *context;
    struct loaded *loaded;
    size_t count;
    struct sqrl_catalog *all;
};

/* Names the two places that have different sources of one version. */
static int name_conflict(const struct loading *loading, const struct loaded *added,
                         struct sqrl_error *err) {
    struct sqrl_catalog_source a, b;
    for (size_t i = 0; i < loading->count; i++)
        for (uint64_t cursor = 0; sqrl_catalog_next(added->catalog, &cursor, &a);)
            if (sqrl_catalog_find(loading->loaded[i].catalog, a.name, (int64_t)a.version,
                                  &b, NULL) == SQRL_OK &&
                sqrl_catalog_source_differs(&a, &b))
                return sqrl_error_set(
                    err, SQRL_E_EXISTS,
                    "version %llu of source \"%.60s\" is another in %.140s; give one of "
                    "them another version, or unsubscribe from one of the catalogs",
                    (unsigned long long)a.version, a.name, loading->loaded[i].url);
    return SQRL_E_EXISTS;
}

static int load_place(void *arg, const struct sqrl_catalog_place *place,
                      struct sqrl_error *err) {
    struct loading *loading = arg;
    struct sqrl_catalog *joined = NULL;
    struct loaded *more =
        sqrl_realloc(loading->loaded, (loading->count + 1) * sizeof *more, "places", err);
    if (!more)
        return SQRL_E_NO_MEMORY;
    loading->loaded = more;
    struct loaded *added = &more[loading->count];
    *added = (struct loaded){.url = sqrl_strdup(place->url, err)};
    int code = added->url ? sqrl_catalog_new(&added->catalog, err) : SQRL_E_NO_MEMORY;
    if (!code) {
        code = sqrl_catalog_read_file(added->catalog, loading->context, place->url, err);
        if (!code)
            code = sqrl_catalog_union(loading->all, added->catalog, SQRL_CONFLICT_ERROR,
                                      &joined, err);
        if (code == SQRL_E_EXISTS) {
            name_conflict(loading, added, err);
            sqrl_error_at(err, code, "%s", place->url);
        }
        if (code && place->line)
            sqrl_error_at(err, code, "%s: line %u", place->origin, place->line);
        else if (code && strcmp(place->origin, VARIABLE) == 0)
            sqrl_error_at(err, code, "%s", place->origin);
    }
    if (code) {
        sqrl_catalog_free(added->catalog);
        free(added->url);
        return code;
    }
    loading->count++;
    sqrl_catalog_free(loading->all);
    loading->all = joined;
    return SQRL_OK;
}

int sqrl_catalog_default(struct sqrl_context *context, struct sqrl_catalog **out,
                         struct sqrl_error *err) {
    struct loading loading = {.context = context};
    const char *python = getenv(PYTHON);
    *out = NULL;
    if (python && *python)
        return sqrl_catalog_ask_python(python, out, err);
    int code = sqrl_catalog_new(&loading.all, err);
    if (!code)
        code = sqrl_catalog_places(context, load_place, &loading, err);
    for (size_t i = 0; i < loading.count; i++) {
        sqrl_catalog_free(loading.loaded[i].catalog);
        free(loading.loaded[i].url);
    }
    free(loading.loaded);
    if (code)
        sqrl_catalog_free(loading.all);
    else
        *out = loading.all;
    return code;
}

/* --- subscribing --- */
static int write_text(struct sqrl_context *context, const char *path,
                      const struct sqrl_bytes *text, struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_file_writer *file = NULL;
    char *inner = NULL;
    int code = sqrl_fs_for_url(context, path, NULL, &fs, &inner, err);
    if (!code)
        code = sqrl_file_create(fs, inner, true, &file, err);
    if (!code)
        code = sqrl_file_write(file, text->data, text->size, err);
    if (!code)
        code = sqrl_file_commit(file, err);
    else if (file)
        sqrl_file_abort(file);
    sqrl_fs_unref(fs);
    free(inner);
    return code;
}

/* Makes the configuration's folder and locks it, so that nobody's line is lost where
 * several subscribe at once; *lock is to be closed. A file system without locks (-1) goes
 * without. */
static int lock_folder(struct sqrl_context *context, const char *path, int *lock,
                       struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    char *inner = NULL;
    char *folder = sqrl_format(err, "%.*s", (int)(strrchr(path, '/') - path), path);
    *lock = -1;
    int code = folder ? sqrl_fs_for_url(context, folder, NULL, &fs, &inner, err)
                      : SQRL_E_NO_MEMORY;
    if (!code)
        code = sqrl_fs_make_directory(fs, inner, err);
    if (!code)
        *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (*lock >= 0 && flock(*lock, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(*lock);
            *lock = -1;
        }
    sqrl_fs_unref(fs);
    free(inner);
    free(folder);
    return code;
}

/* Is this line of the configuration the URL? */
static int is_line(const char *line, size_t size, const char *url, bool *same,
                   struct sqrl_error *err) {
    char *copy = sqrl_calloc(1, size + 1, "a line", err), *full = NULL;
    if (copy) {
        memcpy(copy, line, size);
        full = full_path(trim(copy), false, err);
    }
    *same = full && strcmp(full, url) == 0;
    int code = full ? SQRL_OK : SQRL_E_NO_MEMORY;
    free(full);
    free(copy);
    return code;
}

/* The configuration without the lines that are the URL; *found tells whether there are.
 */
static int without(const char *text, const char *url, struct sqrl_bytes *out, bool *found,
                   struct sqrl_error *err) {
    int code = SQRL_OK;
    *found = false;
    while (*text && !code) {
        size_t size = strcspn(text, "\n");
        bool same;
        code = is_line(text, size, url, &same, err);
        *found = *found || same;
        if (!code && !same) {
            code = sqrl_bytes_append(out, text, size, err);
            if (!code)
                code = sqrl_bytes_append(out, "\n", 1, err);
        }
        text += size + (text[size] == '\n');
    }
    return code;
}

static int change(struct sqrl_context *context, const char *url, bool add, bool *changed,
                  struct sqrl_error *err) {
    struct sqrl_bytes kept = {0};
    char *path = NULL, *text = NULL, *full = NULL;
    bool found = false;
    int lock = -1;
    if (changed)
        *changed = false;
    if (!*url || strpbrk(url, "\n;") || *url == '#')
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "\"%.200s\" can't be subscribed to: give the path or URL "
                              "of a catalog, without line ends or ;",
                              url);
    int code = (path = config_path(err)) && (full = full_path(url, true, err))
                   ? lock_folder(context, path, &lock, err)
               : err && err->code ? (int)err->code
                                  : SQRL_E_NOT_FOUND;
    if (!code)
        code = read_text(context, path, &text, err);
    if (!code)
        code = without(text, full, &kept, &found, err);
    if (!code && add && !found) {
        code = sqrl_bytes_append(&kept, full, strlen(full), err);
        if (!code)
            code = sqrl_bytes_append(&kept, "\n", 1, err);
    }
    if (!code && add != found) {
        code = write_text(context, path, &kept, err);
        if (!code && changed)
            *changed = true;
    }
    if (lock >= 0)
        close(lock);
    sqrl_bytes_reset(&kept);
    free(full);
    free(text);
    free(path);
    return code;
}

int sqrl_catalog_subscribe(struct sqrl_context *context, const char *url, bool *changed,
                           struct sqrl_error *err) {
    return change(context, url, true, changed, err);
}

int sqrl_catalog_unsubscribe(struct sqrl_context *context, const char *url, bool *changed,
                             struct sqrl_error *err) {
    return change(context, url, false, changed, err);
}
