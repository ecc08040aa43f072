/* commit_pack.c - the end of a pack by many processes: one commit of what they wrote. */
#include <stdlib.h>

#include "driver/driver.h"
#include "format/commit.h"
#include "format/native.h"
#include "sqrl/pack.h"

/* Shards to be committed: where each stands in the order, and its name. */
struct found {
    size_t prefix; /* the first of the prefixes that fits */
    const char *name;
};

/* Prefixes in their order; of one prefix, shorter names first, so that number 1000000
 * comes behind 999999. */
static int compare_found(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->prefix != y->prefix)
        return x->prefix < y->prefix ? -1 : 1;
    size_t n = strlen(x->name), m = strlen(y->name);
    if (n != m)
        return n < m ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool fits(const char *name, const char *const *prefixes, size_t count,
                 size_t *which) {
    size_t size = strlen(name), suffix = strlen(SQRL_NATIVE_SUFFIX);
    if (size <= suffix || strcmp(name + size - suffix, SQRL_NATIVE_SUFFIX) != 0)
        return false;
    for (*which = 0; *which < count; ++*which)
        if (strncmp(name, prefixes[*which], strlen(prefixes[*which])) == 0)
            return true;
    return false;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t count_names(const struct sqrl_commit *commit) {
    size_t count = commit->shard_count;
    for (uint64_t g = 0; g < commit->group_count; g++)
        count += commit->groups[g].set.shard_count;
    return count;
}

static void add_names(const struct sqrl_commit *commit, const char **names,
                      size_t *count) {
    for (uint64_t k = 0; k < commit->shard_count; k++)
        names[(*count)++] = commit->shards[k].name;
    for (uint64_t g = 0; g < commit->group_count; g++)
        add_names(&commit->groups[g].set, names, count);
}

/* The names that commits hold already, sorted; free() the list only. */
static const char **committed(const struct sqrl_commits *commits, size_t *count,
                              struct sqrl_error *err) {
    size_t total = 0;
    for (size_t i = 0; i < commits->count; i++)
        total += count_names(&commits->items[i]);
    const char **names = sqrl_calloc(total + 1, sizeof *names, "names of shards", err);
    *count = 0;
    if (!names)
        return NULL;
    for (size_t i = 0; i < commits->count; i++)
        add_names(&commits->items[i], names, count);
    if (total)
        qsort(names, total, sizeof *names, compare_texts);
    return names;
}

static bool is_in(const char *const *sorted, size_t count, const char *name) {
    return count && bsearch(&name, sorted, count, sizeof *sorted, compare_texts);
}

/* Names of `listing` that fit and are not committed, in order; `*matched` counts all that
 * fit. free() the list only. */
static const char **choose(const struct sqrl_listing *listing,
                           const struct sqrl_commits *commits,
                           const char *const *prefixes, size_t prefix_count,
                           size_t *count, size_t *matched, struct sqrl_error *err) {
    size_t held = 0;
    *count = *matched = 0;
    const char **there = committed(commits, &held, err);
    struct found *found =
        sqrl_calloc(listing->count + 1, sizeof *found, "names of shards", err);
    const char **names =
        sqrl_calloc(listing->count + 1, sizeof *names, "names of shards", err);
    if (!there || !found || !names) {
        free(names);
        names = NULL;
        goto done;
    }
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        size_t which;
        if (!fits(name, prefixes, prefix_count, &which))
            continue;
        ++*matched;
        if (!is_in(there, held, name))
            found[(*count)++] = (struct found){which, name};
    }
    if (*count)
        qsort(found, *count, sizeof *found, compare_found);
    for (size_t i = 0; i < *count; i++)
        names[i] = found[i].name;
done:
    free(found);
    free(there);
    return names;
}

static int commit_names(struct sqrl_context *context, struct sqrl_fs *fs,
                        const char *path, const char *const *names, size_t count,
                        bool overwrite, struct sqrl_pack_report *report,
                        struct sqrl_error *err) {
    struct sqrl_commit_total total;
    int rc = sqrl_commit_write(context, fs, path, names, count, overwrite, &total, err);
    if (rc == SQRL_OK && report)
        *report = (struct sqrl_pack_report){.samples = total.samples,
                                            .shards = total.shards,
                                            .blocks = total.blocks,
                                            .raw_bytes = total.raw_bytes,
                                            .file_bytes = total.file_bytes};
    return rc;
}

int sqrl_pack_commit(struct sqrl_context *context, const char *destination,
                     const struct sqrl_settings *settings, const char *const *prefixes,
                     size_t count, bool overwrite, struct sqrl_pack_report *report,
                     struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    char *path = NULL;
    struct sqrl_commits commits = {0};
    struct sqrl_listing listing = {0};
    const char **names = NULL;
    size_t chosen = 0, matched = 0;
    if (report)
        *report = (struct sqrl_pack_report){0};
    int rc = sqrl_fs_for_settings(context, destination, settings, &fs, &path, err);
    if (rc == SQRL_OK)
        rc = sqrl_listing_read(fs, path, &listing, err);
    if (rc == SQRL_OK)
        rc = sqrl_commits_read(context, fs, path, &commits, err);
    if (rc)
        goto done;
    names = choose(&listing, &commits, prefixes, count, &chosen, &matched, err);
    if (!names)
        rc = SQRL_E_NO_MEMORY;
    else if (matched == 0)
        rc = sqrl_error_at(err,
                           sqrl_error_set(err, SQRL_E_NOT_FOUND,
                                          "there is no shard to commit: no file's name "
                                          "begins with a given prefix and ends in " //
                                          SQRL_NATIVE_SUFFIX),
                           "%s", destination);
    else if (chosen)
        rc = commit_names(context, fs, path, names, chosen, overwrite, report, err);
done:
    free(names);
    sqrl_listing_reset(&listing);
    sqrl_commits_reset(&commits);
    free(path);
    sqrl_fs_unref(fs);
    return rc;
}
