/* local_list.c - directories, in byte order of names.
 *
 * Recursion is a stack of sorted directories, so only the open path's entries are held.
 * Within a recursive listing a directory sorts as its name with a slash behind, which
 * gives the order of the full names, as object stores list them. */
#include "io/local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define MAX_DEPTH 64
#define MAX_ENTRIES ((size_t)1 << 26) /* of one directory */

struct entry {
    char *name;
    struct sqrl_stat stat;
};

struct level {
    struct entry *entries;
    size_t count, capacity, next;
    size_t path_length; /* of the walk's path, this directory's name included */
    dev_t device;
    ino_t inode;
};

struct walk {
    char *
        path; /* of what is looked at: the listed directory, a slash, the relative name */
    size_t path_capacity;
    size_t base; /* where the relative name begins */
    struct level levels[MAX_DEPTH];
    size_t depth;
    bool recursive;
    const struct sqrl_cancel *cancel;
};

static void free_level(struct level *level) {
    for (size_t i = 0; i < level->count; i++)
        free(level->entries[i].name);
    free(level->entries);
    memset(level, 0, sizeof(*level));
}

/* Cuts the path at `length` and appends a name. */
static int set_path(struct walk *w, size_t length, const char *name,
                    struct sqrl_error *err) {
    size_t n = strlen(name), need = length + n + 2;
    if (need > w->path_capacity) {
        char *grown = sqrl_realloc(w->path, need * 2, "a path", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        w->path = grown;
        w->path_capacity = need * 2;
    }
    memcpy(w->path + length, name, n + 1);
    return SQRL_OK;
}

static int add_entry(struct level *level, const char *name, const struct stat *st,
                     struct sqrl_error *err) {
    if (level->count == level->capacity) {
        size_t capacity = level->capacity ? level->capacity * 2 : 64;
        if (capacity > MAX_ENTRIES)
            return sqrl_error_set(err, SQRL_E_LIMIT, "a directory has over %zu entries",
                                  MAX_ENTRIES);
        struct entry *grown = sqrl_realloc(level->entries, capacity * sizeof(*grown),
                                           "a directory's entries", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        level->entries = grown;
        level->capacity = capacity;
    }
    struct entry *entry = &level->entries[level->count];
    entry->name = sqrl_strdup(name, err);
    if (!entry->name)
        return SQRL_E_NO_MEMORY;
    if (st) {
        sqrl_local_fill_stat(st, &entry->stat);
    } else {
        memset(&entry->stat, 0, sizeof(entry->stat));
        entry->stat.size = SQRL_SIZE_UNKNOWN;
    }
    level->count++;
    return SQRL_OK;
}

static int by_name(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_full_name(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    const unsigned char *p = (const unsigned char *)x->name;
    const unsigned char *q = (const unsigned char *)y->name;
    while (*p && *p == *q)
        p++, q++;
    int c = *p ? *p : x->stat.directory ? '/' : 0;
    int d = *q ? *q : y->stat.directory ? '/' : 0;
    return c - d;
}

static bool is_cancelled(const struct walk *w, size_t i) {
    return i % 256 == 0 && sqrl_cancel_requested(w->cancel);
}

/* Reads the names and stats of an open directory. */
static int read_entries(struct walk *w, DIR *dir, struct level *level,
                        struct sqrl_error *err) {
    for (size_t i = 0;; i++) {
        if (is_cancelled(w, i))
            return sqrl_error_set(err, SQRL_E_CANCELLED, "listing was cancelled");
        errno = 0;
        struct dirent *d = readdir(dir);
        if (!d && errno != 0)
            return sqrl_error_set_errno(err, errno, "can't list the directory");
        if (!d)
            return SQRL_OK;
        if (d->d_name[0] == '.')
            continue;
        struct stat st;
        bool known = fstatat(dirfd(dir), d->d_name, &st, 0) == 0;
        if (!known && errno == ENOENT &&
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue; /* removed meanwhile */
        int rc = add_entry(level, d->d_name, known ? &st : NULL, err);
        if (rc != SQRL_OK)
            return rc;
    }
}

/* A link to a directory that is being walked: its files are listed there already. */
static bool is_loop(const struct walk *w, const struct stat *st) {
    for (size_t i = 0; i < w->depth; i++) {
        if (w->levels[i].device == st->st_dev && w->levels[i].inode == st->st_ino)
            return true;
    }
    return false;
}

static int too_deep(const struct walk *w, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_LIMIT,
                          "directories are nested deeper than %d at %.200s", MAX_DEPTH,
                          w->path);
}

/* Enters the directory that the path names. */
static int push(struct walk *w, struct sqrl_error *err) {
    if (w->depth == MAX_DEPTH)
        return too_deep(w, err);
    DIR *dir = opendir(w->path);
    struct stat st;
    if (!dir && errno == ENOENT && w->depth > 0)
        return SQRL_OK; /* removed meanwhile */
    if (!dir && errno == ENOTDIR)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a file; a directory is expected here");
    if (!dir)
        return sqrl_error_set_errno(err, errno, "can't open the directory %.200s",
                                    w->path);
    int rc = SQRL_OK;
    struct level *level = &w->levels[w->depth];
    if (fstat(dirfd(dir), &st) != 0)
        rc = sqrl_error_set_errno(err, errno, "can't look up the directory");
    else if (!is_loop(w, &st)) {
        w->depth++;
        level->device = st.st_dev;
        level->inode = st.st_ino;
        rc = read_entries(w, dir, level, err);
        if (level->count > 0)
            qsort(level->entries, level->count, sizeof(*level->entries),
                  w->recursive ? by_full_name : by_name);
        level->path_length = strlen(w->path);
        if (rc == SQRL_OK && w->path[level->path_length - 1] != '/')
            rc = set_path(w, level->path_length++, "/", err);
    }
    closedir(dir);
    return rc;
}

static int walk_on(struct walk *w, sqrl_list_fn visit, void *arg,
                   struct sqrl_error *err) {
    for (size_t i = 0; w->depth > 0; i++) {
        struct level *level = &w->levels[w->depth - 1];
        if (is_cancelled(w, i))
            return sqrl_error_set(err, SQRL_E_CANCELLED, "listing was cancelled");
        if (level->next == level->count) {
            free_level(level);
            w->depth--;
            continue;
        }
        struct entry *entry = &level->entries[level->next++];
        int rc = set_path(w, level->path_length, entry->name, err);
        if (rc == SQRL_OK && w->recursive && entry->stat.directory)
            rc = push(w, err);
        else if (rc == SQRL_OK)
            rc = visit(arg, w->path + w->base, &entry->stat);
        if (rc != SQRL_OK)
            return rc;
    }
    return SQRL_OK;
}

int sqrl_local_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                    void *arg, const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    if (*path == '\0')
        path = ".";
    struct walk *w = sqrl_calloc(1, sizeof(*w), "a listing", err);
    if (!w)
        return SQRL_E_NO_MEMORY;
    w->recursive = recursive;
    w->cancel = cancel;
    int rc = set_path(w, 0, path, err);
    if (rc == SQRL_OK)
        rc = push(w, err);
    if (rc == SQRL_OK) {
        w->base = w->levels[0].path_length;
        rc = walk_on(w, visit, arg, err);
    }
    while (w->depth > 0)
        free_level(&w->levels[--w->depth]);
    free(w->path);
    free(w);
    return rc;
}
