/* Finding and reading the commits of a directory. */
#include "format/commit_inner.h"

#include <stdlib.h>

enum { ATTEMPTS = 4 };

char *commit_path(const char *directory, const char *folder, const char *name,
                  struct sqrl_error *err) {
    size_t size = strlen(directory);
    const char *slash = size && directory[size - 1] != '/' ? "/" : "";
    return sqrl_format(err, "%s%s%s%s%s", directory, slash, folder, *folder ? "/" : "",
                       name);
}

/* --- ids --- */

void commit_ids_reset(struct commit_ids *ids) {
    free(ids->items);
    *ids = (struct commit_ids){0};
}

int commit_ids_add(struct commit_ids *ids, const char *id, size_t size, uint64_t bytes,
                   struct sqrl_error *err) {
    if (ids->count == ids->capacity) {
        size_t capacity = SQRL_MAX(16u, 2 * ids->capacity);
        void *items = sqrl_realloc(ids->items, capacity * sizeof *ids->items,
                                   "list of commits", err);
        if (!items)
            return SQRL_E_NO_MEMORY;
        ids->items = items;
        ids->capacity = capacity;
    }
    struct commit_id *item = &ids->items[ids->count++];
    *item = (struct commit_id){.bytes = bytes};
    memcpy(item->text, id, size);
    return SQRL_OK;
}

static int compare_ids(const void *a, const void *b) {
    return strcmp(a, b);
}

bool commit_ids_have(const struct commit_ids *ids, const char *id) {
    return ids->count &&
           bsearch(id, ids->items, ids->count, sizeof *ids->items, compare_ids);
}

/* A file name's id, or nothing when it is no commit file. */
static int add_name(struct commit_ids *ids, const char *name, size_t size, uint64_t bytes,
                    struct sqrl_error *err) {
    size_t suffix = strlen(SQRL_COMMIT_SUFFIX);
    if (size <= suffix || memcmp(name + size - suffix, SQRL_COMMIT_SUFFIX, suffix) != 0 ||
        !commit_id_valid(name, size - suffix))
        return SQRL_OK;
    return commit_ids_add(ids, name, size - suffix, bytes, err);
}

struct visit {
    struct commit_ids *ids;
    struct sqrl_error *err;
};

static int visit_name(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct visit *visit = arg;
    return stat->directory
               ? 0
               : add_name(visit->ids, name, strlen(name), stat->size, visit->err);
}

/* `bytes`: its size where that is known, else 0. */
static int read_whole(struct sqrl_context *context, struct sqrl_fs *fs, const char *path,
                      uint64_t bytes, struct sqrl_buffer **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_file *file = NULL;
    struct sqrl_stat known = {.size = bytes};
    int rc = sqrl_file_open_known(fs, path, &known, &file, err);
    if (rc)
        return rc;
    uint64_t size = sqrl_file_size(file);
    if (size > COMMIT_MAX_BYTES)
        rc = sqrl_error_at(err,
                           sqrl_error_set(err, SQRL_E_LIMIT,
                                          "%llu bytes are too many for a commit",
                                          (unsigned long long)size),
                           "%s", path);
    if (rc == SQRL_OK)
        rc = sqrl_buffer_new(context, size, out, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_read_exact(file, 0, (*out)->data, size, NULL, err);
    if (rc == SQRL_OK)
        (*out)->size = size;
    sqrl_file_unref(file);
    return rc;
}

/* The derived list: one file name a line. */
static int read_list(struct sqrl_context *context, struct sqrl_fs *fs,
                     const char *directory, struct commit_ids *out,
                     struct sqrl_error *err) {
    char *path = commit_path(directory, SQRL_COMMIT_DIRECTORY, SQRL_COMMIT_LIST, err);
    if (!path)
        return SQRL_E_NO_MEMORY;
    struct sqrl_buffer *buffer = NULL;
    int rc = read_whole(context, fs, path, 0, &buffer, err);
    free(path);
    if (rc)
        return rc;
    const char *text = (const char *)buffer->data;
    for (size_t from = 0; rc == SQRL_OK && from < buffer->size;) {
        const char *line = text + from;
        const char *end = memchr(line, '\n', buffer->size - from);
        size_t size = end ? (size_t)(end - line) : buffer->size - from;
        rc = add_name(out, line, size, 0, err);
        from += size + 1;
    }
    sqrl_buffer_unref(buffer);
    return rc;
}

static int list_folder(struct sqrl_fs *fs, const char *directory, struct commit_ids *out,
                       struct sqrl_error *err) {
    char *path = commit_path(directory, "", SQRL_COMMIT_DIRECTORY, err);
    if (!path)
        return SQRL_E_NO_MEMORY;
    struct visit visit = {out, err};
    int rc = sqrl_fs_list(fs, path, false, visit_name, &visit, NULL, err);
    free(path);
    return rc;
}

int commit_ids_read(struct sqrl_context *context, struct sqrl_fs *fs,
                    const char *directory, struct commit_ids *out,
                    struct sqrl_error *err) {
    *out = (struct commit_ids){0};
    struct sqrl_error found = {0};
    bool listable = sqrl_fs_flags(fs) & SQRL_FS_LISTABLE;
    int rc = listable ? list_folder(fs, directory, out, &found)
                      : read_list(context, fs, directory, out, &found);
    if (rc == SQRL_E_NOT_FOUND) {
        commit_ids_reset(out);
        return SQRL_OK;
    }
    if (rc) {
        commit_ids_reset(out);
        if (err)
            *err = found;
        return rc;
    }
    if (out->count)
        qsort(out->items, out->count, sizeof *out->items, compare_ids);
    return SQRL_OK;
}

/* --- commits --- */

int commit_load(struct sqrl_context *context, struct sqrl_fs *fs, const char *directory,
                const struct commit_id *id, struct sqrl_commit *out,
                struct sqrl_error *err) {
    *out = (struct sqrl_commit){0};
    struct sqrl_buffer *buffer = NULL;
    char *name = sqrl_format(err, "%s%s", id->text, SQRL_COMMIT_SUFFIX);
    char *path = name ? commit_path(directory, SQRL_COMMIT_DIRECTORY, name, err) : NULL;
    int rc =
        path ? read_whole(context, fs, path, id->bytes, &buffer, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK) {
        rc = sqrl_commit_parse(id->text, buffer->data, buffer->size, out, err);
        if (rc)
            rc = sqrl_error_at(err, rc, "%s", path);
    }
    sqrl_buffer_unref(buffer);
    free(path);
    free(name);
    return rc;
}

void sqrl_commits_reset(struct sqrl_commits *commits) {
    for (size_t i = 0; i < commits->count; i++)
        sqrl_commit_reset(&commits->items[i]);
    free(commits->items);
    *commits = (struct sqrl_commits){0};
}

/* Takes out what another commit supersedes. A superseded commit counts here too: what it
 * replaced stays replaced. */
static int drop_superseded(struct sqrl_commits *commits, struct sqrl_error *err) {
    struct commit_ids gone = {0};
    int rc = SQRL_OK;
    for (size_t i = 0; i < commits->count; i++) {
        const struct sqrl_commit *commit = &commits->items[i];
        for (uint64_t k = 0; rc == SQRL_OK && k < commit->supersedes_count; k++)
            rc = commit_ids_add(&gone, commit->supersedes[k],
                                strlen(commit->supersedes[k]), 0, err);
    }
    if (rc == SQRL_OK && gone.count) {
        qsort(gone.items, gone.count, sizeof *gone.items, compare_ids);
        size_t kept = 0;
        for (size_t i = 0; i < commits->count; i++) {
            if (commit_ids_have(&gone, commits->items[i].id))
                sqrl_commit_reset(&commits->items[i]);
            else
                commits->items[kept++] = commits->items[i];
        }
        commits->count = kept;
    }
    commit_ids_reset(&gone);
    return rc;
}

static void make_fingerprint(struct sqrl_commits *commits) {
    struct sqrl_xxh3_state state;
    sqrl_xxh3_init(&state);
    for (size_t i = 0; i < commits->count; i++)
        sqrl_xxh3_update(&state, &commits->items[i].hash, sizeof commits->items[i].hash);
    commits->fingerprint = sqrl_xxh3_digest(&state);
}

static int read_once(struct sqrl_context *context, struct sqrl_fs *fs,
                     const char *directory, struct sqrl_commits *out,
                     struct sqrl_error *err) {
    struct commit_ids ids;
    int rc = commit_ids_read(context, fs, directory, &ids, err);
    if (rc)
        return rc;
    out->items = sqrl_calloc(ids.count + 1, sizeof *out->items, "commits", err);
    rc = out->items ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; rc == SQRL_OK && i < ids.count; i++)
        rc = commit_load(context, fs, directory, &ids.items[i], &out->items[out->count++],
                         err);
    if (rc == SQRL_OK)
        rc = drop_superseded(out, err);
    if (rc == SQRL_OK)
        make_fingerprint(out);
    commit_ids_reset(&ids);
    return rc;
}

int sqrl_commits_read(struct sqrl_context *context, struct sqrl_fs *fs,
                      const char *directory, struct sqrl_commits *out,
                      struct sqrl_error *err) {
    /* A commit that goes between listing and reading was superseded meanwhile: look
     * again. */
    for (int attempt = 1;; attempt++) {
        *out = (struct sqrl_commits){0};
        int rc = read_once(context, fs, directory, out, err);
        if (rc != SQRL_E_NOT_FOUND || attempt == ATTEMPTS)
            return rc;
        sqrl_commits_reset(out);
        sqrl_error_clear(err);
    }
}

int sqrl_commits_read_one(struct sqrl_context *context, struct sqrl_fs *fs,
                          const char *directory, const char *id, struct sqrl_commits *out,
                          struct sqrl_error *err) {
    struct commit_id one = {.bytes = 0};
    memcpy(one.text, id, SQRL_MIN(strlen(id), sizeof one.text - 1));
    *out = (struct sqrl_commits){0};
    out->items = sqrl_calloc(1, sizeof *out->items, "a commit", err);
    if (!out->items)
        return SQRL_E_NO_MEMORY;
    out->count = 1;
    int rc = commit_load(context, fs, directory, &one, &out->items[0], err);
    if (rc == SQRL_OK)
        make_fingerprint(out);
    return rc;
}

size_t sqrl_commit_path(const char *path, char id[SQRL_COMMIT_ID_BYTES]) {
    static const char folder[] = "/" SQRL_COMMIT_DIRECTORY "/";
    size_t suffix = strlen(SQRL_COMMIT_SUFFIX), inner = sizeof folder - 1;
    const char *name = strrchr(path, '/');
    size_t before = name ? (size_t)(name + 1 - path) : 0,
           size = name ? strlen(name + 1) : 0;
    if (before <= inner || strncmp(name + 1 - inner, folder, inner) != 0 ||
        size <= suffix || strcmp(name + 1 + size - suffix, SQRL_COMMIT_SUFFIX) != 0 ||
        !commit_id_valid(name + 1, size - suffix) ||
        size - suffix >= SQRL_COMMIT_ID_BYTES)
        return 0;
    memcpy(id, name + 1, size - suffix);
    id[size - suffix] = 0;
    return before - inner;
}
