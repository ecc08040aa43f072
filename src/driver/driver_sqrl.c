/* driver_sqrl.c - the driver of native shards.
 *
 * A directory with commits is what its commits say, nothing else: shards that no commit
 * names (of a run that was killed, or that still runs) are not part of it. Local
 * directories are compared with their commits on opening, by one listing; elsewhere, or
 * with check=false, a shard that is gone or changed is noticed when it is opened, and
 * on_error decides what becomes of its samples. */
#include <stdlib.h>

#include "driver/driver.h"
#include "driver/driver_sqrl.h"
#include "driver/family.h"
#include "format/commit.h"
#include "format/native.h"

#define LLU(x) ((unsigned long long)(x))

static const struct sqrl_option options[] = {
    {"check", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "true", NULL,
     "compare local shards with their commits when opening, not when read"},
    {0}};

static const struct sqrl_listed *find_listed(const struct sqrl_listing *listing,
                                             const char *name) {
    size_t from = 0, to = listing->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        int order = strcmp(listing->files[middle].name, name);
        if (order == 0)
            return &listing->files[middle];
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

int sqrl_commit_shard_check(const struct sqrl_driver_args *args, const char *path,
                            const struct sqrl_listing *listing,
                            const struct sqrl_commit *commit,
                            const struct sqrl_commit_shard *shard,
                            struct sqrl_error *err) {
    const struct sqrl_listed *listed = find_listed(listing, shard->name);
    struct sqrl_stat stat = {0};
    if (listed)
        stat.size = listed->bytes;
    else if (sqrl_fs_stat(args->fs, path, &stat, NULL) != SQRL_OK)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                              "shard \"%s\" of commit %s is missing: restore it, run "
                              "`squirrel index` to index the shards that are there, or "
                              "open with check=false and let on_error decide",
                              shard->name, commit->id);
    if (stat.size == shard->file_bytes)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "shard \"%s\" has %llu bytes, but %llu in commit %s: restore "
                          "it, run `squirrel index` to index the shards as they are, or "
                          "open with check=false and let on_error decide",
                          shard->name, LLU(stat.size), LLU(shard->file_bytes),
                          commit->id);
}

static int add_commit(const struct sqrl_driver_args *args,
                      const struct sqrl_listing *listing,
                      const struct sqrl_commit *commit, struct sqrl_shard_list *out,
                      struct sqrl_error *err) {
    int rc = SQRL_OK;
    for (uint64_t i = 0; rc == SQRL_OK && i < commit->shard_count; i++) {
        const struct sqrl_commit_shard *shard = &commit->shards[i];
        char *path = sqrl_path_join(args->path, shard->name, err);
        if (!path)
            return SQRL_E_NO_MEMORY;
        if (listing)
            rc = sqrl_commit_shard_check(args, path, listing, commit, shard, err);
        struct sqrl_shard known = {.file_bytes = shard->file_bytes,
                                   .samples = shard->samples,
                                   .blocks = shard->blocks,
                                   .raw_bytes = shard->raw_bytes,
                                   .checksum = shard->footer_checksum};
        if (rc == SQRL_OK)
            rc = sqrl_shard_list_add(out, path, &sqrl_format_native, &known, err);
        free(path);
    }
    return rc;
}

/* The commits' schemas as one, places counted over all shards; none when one has none. */
static int set_schema(const struct sqrl_commits *commits, struct sqrl_shard_list *out,
                      struct sqrl_error *err) {
    bool grouped = false; /* what a base lacks another group may have */
    for (size_t i = 0; i < commits->count; i++)
        grouped = grouped || commits->items[i].group_count;
    struct sqrl_schema all = {0};
    uint64_t shards = 0, samples = 0;
    bool known = true;
    int rc = SQRL_OK;
    for (size_t i = 0; rc == SQRL_OK && known && i < commits->count; i++) {
        struct sqrl_schema copy;
        known = commits->items[i].has_schema;
        if (!known)
            break;
        rc = sqrl_schema_copy(&commits->items[i].schema, &copy, err);
        for (uint32_t f = 0; f < copy.count; f++)
            copy.fields[f].first.shard += shards;
        if (rc == SQRL_OK)
            rc = sqrl_schema_unite(&all, &copy, err);
        sqrl_schema_reset(&copy);
        shards += commits->items[i].shard_count;
        samples += commits->items[i].samples;
    }
    all.samples = samples;
    if (!grouped)
        sqrl_schema_settle(&all);
    if (rc == SQRL_E_LIMIT) { /* together they have too many fields for a schema */
        sqrl_error_clear(err);
        known = false;
        rc = SQRL_OK;
    }
    if (rc == SQRL_OK && known)
        rc = sqrl_shard_list_set_schema(out, &all, err);
    sqrl_schema_reset(&all);
    return rc;
}

/* The commits' chunks, shards counted over all of them. */
static int set_chunks(const struct sqrl_commits *commits, struct sqrl_shard_list *out,
                      struct sqrl_error *err) {
    uint64_t count = 0, shards = 0, k = 0;
    for (size_t i = 0; i < commits->count; i++)
        count += commits->items[i].chunk_count;
    struct sqrl_shard_chunk *chunks =
        sqrl_calloc(count + 1, sizeof *chunks, "chunks", err);
    if (!chunks)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < commits->count; i++) {
        const struct sqrl_commit *commit = &commits->items[i];
        for (uint64_t c = 0; c < commit->chunk_count; c++) {
            const struct sqrl_commit_chunk *chunk = &commit->chunks[c];
            chunks[k++] = (struct sqrl_shard_chunk){(uint32_t)(shards + chunk->shard),
                                                    chunk->first_block, chunk->blocks,
                                                    chunk->samples};
        }
        shards += commit->shard_count;
    }
    int rc = SQRL_OK;
    if (shards <= UINT32_MAX)
        rc = sqrl_shard_list_set_chunks(out, chunks, count, err);
    free(chunks);
    return rc;
}

int sqrl_shard_list_commits(const struct sqrl_driver_args *args,
                            const struct sqrl_commits *commits,
                            struct sqrl_shard_list *out, struct sqrl_error *err) {
    struct sqrl_listing listing = {0};
    bool local = sqrl_fs_flags(args->fs) & SQRL_FS_LOCAL, check = true;
    int rc = sqrl_settings_bool(args->settings, options, "check", &check, err);
    local = local && check;
    if (rc == SQRL_OK && local)
        rc = sqrl_listing_read(args->fs, args->path, &listing, err);
    for (size_t i = 0; rc == SQRL_OK && i < commits->count; i++)
        rc = add_commit(args, local ? &listing : NULL, &commits->items[i], out, err);
    if (rc == SQRL_OK)
        rc = set_schema(commits, out, err);
    if (rc == SQRL_OK)
        rc = set_chunks(commits, out, err);
    if (rc == SQRL_OK)
        rc = sqrl_families_read(args, local ? &listing : NULL, commits, out, err);
    if (rc == SQRL_OK)
        sqrl_shard_list_set_fingerprint(out, commits->fingerprint);
    sqrl_listing_reset(&listing);
    return rc;
}

static bool is_shard_name(const char *name) {
    size_t size = strlen(name), suffix = strlen(SQRL_NATIVE_SUFFIX);
    return size > suffix && strcmp(name + size - suffix, SQRL_NATIVE_SUFFIX) == 0;
}

/* Without commits nobody says which shards belong together: one that holds a part of
 * samples would be taken for whole ones. Those have names with a group's in them. */
static int check_whole(const struct sqrl_driver_args *args, const char *name,
                       const char *path, struct sqrl_error *err) {
    const char *dot = strchr(name, '.');
    if (!dot || strcmp(dot, SQRL_NATIVE_SUFFIX) == 0)
        return SQRL_OK;
    struct sqrl_native_summary summary = {0};
    int rc = sqrl_native_summary_read(args->context, args->fs, path, &summary, err);
    if (rc == SQRL_OK && summary.group.family[0] && !summary.group.base)
        rc = sqrl_error_set(err, SQRL_E_STATE,
                            "shard \"%s\" holds a group of fields (\"%s\") of another, "
                            "and no commit says of which: run `squirrel index`",
                            name, summary.group.name);
    sqrl_native_summary_reset(&summary);
    return rc;
}

/* No commit, nor the directory for it that a packer makes: all files *.sqrl. Without any
 * the general way says what is there instead. */
static int add_files(const struct sqrl_driver_args *args, struct sqrl_shard_list *out,
                     struct sqrl_error *err) {
    struct sqrl_listing listing;
    int rc = sqrl_listing_read(args->fs, args->path, &listing, err);
    size_t found = 0;
    for (size_t i = 0; rc == SQRL_OK && i < listing.count; i++) {
        if (!is_shard_name(listing.files[i].name))
            continue;
        struct sqrl_shard known = {.file_bytes = listing.files[i].bytes,
                                   .samples = SQRL_UNKNOWN,
                                   .blocks = SQRL_UNKNOWN,
                                   .raw_bytes = SQRL_UNKNOWN};
        char *path = sqrl_path_join(args->path, listing.files[i].name, err);
        rc =
            path ? check_whole(args, listing.files[i].name, path, err) : SQRL_E_NO_MEMORY;
        if (rc == SQRL_OK)
            rc = sqrl_shard_list_add(out, path, &sqrl_format_native, &known, err);
        free(path);
        found++;
    }
    if (rc == SQRL_OK && found && listing.native)
        rc = sqrl_error_set(
            err, SQRL_E_STATE,
            "the %zu shards here belong to no commit: a pack was stopped, or "
            "is still running; pack again with overwrite, or run `squirrel "
            "index` to take the shards as they are",
            found);
    sqrl_listing_reset(&listing);
    if (rc == SQRL_OK && found == 0)
        rc = sqrl_shard_list_files(args, &sqrl_format_native, out, err);
    return rc;
}

static int open_sqrl(const struct sqrl_driver_args *args, struct sqrl_shard_list *out,
                     struct sqrl_error *err) {
    if (!args->stat.directory)
        return sqrl_shard_list_files(args, &sqrl_format_native, out, err);
    struct sqrl_commits commits;
    int rc = sqrl_commits_read(args->context, args->fs, args->path, &commits, err);
    if (rc == SQRL_OK)
        rc = commits.count ? sqrl_shard_list_commits(args, &commits, out, err)
                           : add_files(args, out, err);
    sqrl_commits_reset(&commits);
    return rc;
}

const struct sqrl_driver_ops sqrl_driver_native = {
    .size = sizeof(struct sqrl_driver_ops),
    .api = SQRL_DRIVER_API,
    .name = "sqrl",
    .doc = "native shards: one file, or a directory with its commits",
    .format = &sqrl_format_native,
    .options = options,
    .open = open_sqrl,
};
