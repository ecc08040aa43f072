/* commit_index.c - a new commit of what is in a directory. */
#include <stdlib.h>

#include "driver/driver.h"
#include "format/commit.h"
#include "format/native.h"
#include "sqrl/pack.h"

/* Names of shards in their order; borrowed from commits and listing. */
struct names {
    const char **items;
    size_t count;
};

static bool is_shard(const char *name) {
    size_t size = strlen(name), suffix = strlen(SQRL_NATIVE_SUFFIX);
    return size > suffix && strcmp(name + size - suffix, SQRL_NATIVE_SUFFIX) == 0;
}

static int compare_listed(const void *a, const void *b) {
    return strcmp(((const struct sqrl_listed *)a)->name,
                  ((const struct sqrl_listed *)b)->name);
}

static bool is_there(struct sqrl_fs *fs, const char *path,
                     const struct sqrl_listing *listing, const char *name) {
    struct sqrl_listed key = {(char *)(uintptr_t)name, 0};
    if (listing->count && bsearch(&key, listing->files, listing->count,
                                  sizeof *listing->files, compare_listed))
        return true;
    struct sqrl_stat stat; /* in a folder below, or hidden from listings */
    char *whole = sqrl_path_join(path, name, NULL);
    bool there = whole && sqrl_fs_stat(fs, whole, &stat, NULL) == SQRL_OK;
    free(whole);
    return there;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int add_rest(const struct sqrl_listing *listing, struct names *names,
                    struct sqrl_error *err) {
    size_t before = names->count;
    const char **taken = sqrl_calloc(before + 1, sizeof *taken, "names of shards", err);
    if (!taken)
        return SQRL_E_NO_MEMORY;
    if (before) {
        memcpy(taken, names->items, before * sizeof *taken);
        qsort(taken, before, sizeof *taken, compare_texts);
    }
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        if (is_shard(name) &&
            !(before && bsearch(&name, taken, before, sizeof *taken, compare_texts)))
            names->items[names->count++] = name;
    }
    free(taken);
    return SQRL_OK;
}

static size_t count_names(const struct sqrl_commit *commit) {
    size_t count = commit->shard_count;
    for (uint64_t g = 0; g < commit->group_count; g++)
        count += commit->groups[g].set.shard_count;
    return count;
}

/* The shards of a commit, and of its groups, that are still there. */
static void add_there(struct sqrl_fs *fs, const char *path,
                      const struct sqrl_listing *listing,
                      const struct sqrl_commit *commit, struct names *names) {
    for (uint64_t k = 0; k < commit->shard_count; k++)
        if (is_there(fs, path, listing, commit->shards[k].name))
            names->items[names->count++] = commit->shards[k].name;
    for (uint64_t g = 0; g < commit->group_count; g++)
        add_there(fs, path, listing, &commit->groups[g].set, names);
}

static int choose(struct sqrl_fs *fs, const char *path,
                  const struct sqrl_listing *listing, const struct sqrl_commits *commits,
                  bool all, struct names *names, struct sqrl_error *err) {
    size_t most = listing->count;
    for (size_t i = 0; i < commits->count; i++)
        most += count_names(&commits->items[i]);
    names->items = sqrl_calloc(most + 1, sizeof *names->items, "names of shards", err);
    if (!names->items)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < commits->count; i++)
        add_there(fs, path, listing, &commits->items[i], names);
    return all || commits->count == 0 ? add_rest(listing, names, err) : SQRL_OK;
}

/* Without a commit that can be read, only `all` helps. */
static int read_commits(struct sqrl_context *context, struct sqrl_fs *fs,
                        const char *path, bool all, struct sqrl_commits *out,
                        struct sqrl_error *err) {
    int rc = sqrl_commits_read(context, fs, path, out, err);
    if (rc != SQRL_E_CORRUPT && rc != SQRL_E_TRUNCATED)
        return rc;
    sqrl_commits_reset(out);
    if (!all)
        return sqrl_error_set(err, rc,
                              "a commit is damaged, so which shards it named is not "
                              "known; `squirrel index --all` takes all shards in the "
                              "directory");
    sqrl_error_clear(err);
    return SQRL_OK;
}

int sqrl_pack_index(struct sqrl_context *context, const char *destination,
                    const struct sqrl_settings *settings, bool all,
                    struct sqrl_pack_report *report, struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    char *path = NULL;
    struct sqrl_commits commits = {0};
    struct sqrl_listing listing = {0};
    struct names names = {0};
    struct sqrl_commit_total total = {0};
    if (report)
        *report = (struct sqrl_pack_report){0};
    int rc = sqrl_fs_for_settings(context, destination, settings, &fs, &path, err);
    if (rc == SQRL_OK)
        rc = sqrl_listing_read(fs, path, &listing, err);
    if (rc == SQRL_OK)
        rc = read_commits(context, fs, path, all, &commits, err);
    if (rc == SQRL_OK)
        rc = choose(fs, path, &listing, &commits, all, &names, err);
    if (rc == SQRL_OK && names.count == 0)
        rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                            "the directory holds no shards (files *" SQRL_NATIVE_SUFFIX
                            ")");
    if (rc == SQRL_OK)
        rc = sqrl_commit_write(context, fs, path, names.items, names.count, true, &total,
                               err);
    if (rc == SQRL_OK && report)
        *report = (struct sqrl_pack_report){.samples = total.samples,
                                            .shards = total.shards,
                                            .blocks = total.blocks,
                                            .raw_bytes = total.raw_bytes,
                                            .file_bytes = total.file_bytes};
    if (rc && err && !err->where[0])
        rc = sqrl_error_at(err, rc, "%s", destination);
    free(names.items);
    sqrl_listing_reset(&listing);
    sqrl_commits_reset(&commits);
    free(path);
    sqrl_fs_unref(fs);
    return rc;
}
