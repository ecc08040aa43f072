/* Committing shards. The order of steps makes every moment a whole data set: the new
 * commit appears in one step and supersedes what it replaces by name; only then are old
 * files removed, and whoever stops in between leaves files that no commit counts.
 */
#include "format/commit_inner.h"

#include <stdio.h>
#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

/* --- names --- */

static void put_base36(char *out, uint64_t number) {
    for (int i = 12; i >= 0; i--, number /= 36)
        out[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36];
}

int sqrl_shard_prefix(char out[SQRL_SHARD_PREFIX_BYTES], struct sqrl_error *err) {
    uint64_t random;
    memset(out, 0, SQRL_SHARD_PREFIX_BYTES);
    int rc = sqrl_random_bytes(&random, sizeof random, err);
    if (rc)
        return rc;
    put_base36(out, (uint64_t)sqrl_wall_ns());
    put_base36(out + 13, random);
    return SQRL_OK;
}

char *sqrl_shard_name(const char *prefix, uint64_t number, struct sqrl_error *err) {
    return sqrl_format(err, "%s-%06llu%s", prefix, LLU(number), SQRL_NATIVE_SUFFIX);
}

/* Later than now and than all ids there are, so that commits stay in the order they were
 * made in even where clocks were set back. */
static int make_id(const struct commit_ids *ids, char out[SQRL_COMMIT_ID_BYTES],
                   struct sqrl_error *err) {
    uint64_t random, time = (uint64_t)sqrl_wall_ns();
    int rc = sqrl_random_bytes(&random, sizeof random, err);
    if (rc)
        return rc;
    if (ids->count) {
        uint64_t last = strtoull(ids->items[ids->count - 1].text, NULL, 16);
        if (last >= time && last < UINT64_MAX)
            time = last + 1;
    }
    snprintf(out, SQRL_COMMIT_ID_BYTES, "%016llx-%016llx", LLU(time), LLU(random));
    return SQRL_OK;
}

/* --- shards --- */

static int add_chunk(struct commit_builder *b, struct sqrl_commit_chunk chunk) {
    struct sqrl_commit *commit = &b->commit;
    if (commit->chunk_count == b->chunk_capacity) {
        uint64_t capacity = SQRL_MAX(64u, 2 * b->chunk_capacity);
        struct sqrl_commit_chunk *chunks = sqrl_realloc(
            commit->chunks, capacity * sizeof *chunks, "table of chunks", b->err);
        if (!chunks)
            return SQRL_E_NO_MEMORY;
        commit->chunks = chunks;
        b->chunk_capacity = capacity;
    }
    commit->chunks[commit->chunk_count++] = chunk;
    return SQRL_OK;
}

/* Runs of blocks, as many as fit into SQRL_CHUNK_BYTES, at least one. */
static int add_chunks(struct commit_builder *b, uint32_t shard,
                      const struct sqrl_native_summary *summary) {
    struct sqrl_commit_chunk chunk = {.shard = shard};
    uint64_t raw = 0;
    int rc = SQRL_OK;
    for (uint64_t i = 0; rc == SQRL_OK && i < summary->blocks; i++) {
        const struct sqrl_block_info *block = &summary->block[i];
        uint64_t samples = (uint64_t)chunk.samples + block->samples;
        if (chunk.blocks &&
            (raw + block->raw_bytes > SQRL_CHUNK_BYTES || samples > UINT32_MAX)) {
            rc = add_chunk(b, chunk);
            chunk =
                (struct sqrl_commit_chunk){.shard = shard, .first_block = (uint32_t)i};
            raw = 0;
        }
        chunk.blocks++;
        chunk.samples += block->samples;
        raw += block->raw_bytes;
    }
    return rc == SQRL_OK && chunk.blocks ? add_chunk(b, chunk) : rc;
}

static int merge_schema(struct commit_builder *b, uint32_t shard,
                        struct sqrl_native_summary *summary) {
    struct sqrl_commit *commit = &b->commit;
    if (!commit->has_schema)
        return SQRL_OK;
    for (uint32_t i = 0; i < summary->schema.count; i++)
        summary->schema.fields[i].first.shard = shard;
    int rc = SQRL_E_LIMIT;
    if (summary->has_schema)
        rc = sqrl_schema_merge(&commit->schema, &summary->schema, b->err);
    if (rc == SQRL_E_LIMIT) { /* some shard, or all together, have too many fields */
        sqrl_error_clear(b->err);
        sqrl_schema_reset(&commit->schema);
        commit->has_schema = false;
        rc = SQRL_OK;
    }
    return rc;
}

int commit_take_summary(struct commit_builder *b, const char *name,
                        struct sqrl_native_summary *summary) {
    struct sqrl_commit *commit = &b->commit;
    uint32_t shard = (uint32_t)commit->shard_count;
    if (summary->blocks > UINT32_MAX)
        return sqrl_error_set(b->err, SQRL_E_LIMIT, "a shard has too many blocks");
    struct sqrl_commit_shard *to = &commit->shards[shard];
    *to = (struct sqrl_commit_shard){.name = sqrl_strdup(name, b->err),
                                     .file_bytes = summary->file_bytes,
                                     .samples = summary->samples,
                                     .blocks = summary->blocks,
                                     .raw_bytes = summary->raw_bytes,
                                     .footer_checksum = summary->footer_checksum};
    if (!to->name)
        return SQRL_E_NO_MEMORY;
    commit->shard_count++;
    commit->samples += summary->samples;
    commit->raw_bytes += summary->raw_bytes;
    b->total.shards++;
    b->total.blocks += summary->blocks;
    b->total.samples += summary->samples;
    b->total.raw_bytes += summary->raw_bytes;
    b->total.file_bytes += summary->file_bytes;
    int rc = add_chunks(b, shard, summary);
    return rc ? rc : merge_schema(b, shard, summary);
}

int commit_builder_init(struct commit_builder *b, size_t room, struct sqrl_error *err) {
    b->err = err;
    if (room >= UINT32_MAX)
        return sqrl_error_set(err, SQRL_E_LIMIT, "too many shards for one commit");
    b->commit.has_schema = true;
    b->commit.shards = sqrl_calloc(room + 1, sizeof *b->commit.shards, "shards", err);
    return b->commit.shards ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* --- what is there already --- */

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A sorted copy of `names`; free(). A name twice, or one that is no relative path, is an
 * error. */
static const char **sort_names(const char *const *names, size_t count,
                               struct sqrl_error *err) {
    const char **sorted = sqrl_calloc(count + 1, sizeof *sorted, "names of shards", err);
    if (!sorted)
        return NULL;
    for (size_t i = 0; i < count; i++)
        sorted[i] = names[i];
    qsort(sorted, count, sizeof *sorted, compare_texts);
    for (size_t i = 0; i < count; i++) {
        bool twice = i && strcmp(sorted[i - 1], sorted[i]) == 0;
        if (!twice && commit_name_valid(sorted[i], strlen(sorted[i])))
            continue;
        sqrl_error_set(err, SQRL_E_INVALID, "shard \"%s\" %s", sorted[i],
                       twice ? "is named twice" : "is no path within the directory");
        free(sorted);
        return NULL;
    }
    return sorted;
}

static bool has_name(const char *const *sorted, size_t count, const char *name) {
    return count && bsearch(&name, sorted, count, sizeof *sorted, compare_texts);
}

static const char *commit_shares(const struct sqrl_commit *commit,
                                 const char *const *sorted, size_t count) {
    for (uint64_t k = 0; k < commit->shard_count; k++)
        if (has_name(sorted, count, commit->shards[k].name))
            return commit->shards[k].name;
    for (uint64_t g = 0; g < commit->group_count; g++) {
        const char *name = commit_shares(&commit->groups[g].set, sorted, count);
        if (name)
            return name;
    }
    return NULL;
}

/* Adding to a data set: none of the shards may be part of it already. */
static int check_new(const struct sqrl_commits *commits, const char *const *sorted,
                     size_t count, struct sqrl_error *err) {
    for (size_t i = 0; i < commits->count; i++) {
        const struct sqrl_commit *commit = &commits->items[i];
        const char *there = commit_shares(commit, sorted, count);
        if (there)
            return sqrl_error_set(err, SQRL_E_EXISTS,
                                  "shard \"%s\" is part of commit %s already", there,
                                  commit->id);
    }
    return SQRL_OK;
}

static int set_supersedes(struct commit_builder *b, const struct commit_ids *ids) {
    b->commit.supersedes =
        sqrl_calloc(ids->count + 1, SQRL_COMMIT_ID_BYTES, "superseded commits", b->err);
    if (!b->commit.supersedes)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < ids->count; i++)
        memcpy(b->commit.supersedes[i], ids->items[i].text, SQRL_COMMIT_ID_BYTES);
    b->commit.supersedes_count = ids->count;
    return SQRL_OK;
}

/* --- files --- */

static int write_whole(struct sqrl_fs *fs, const char *path, bool replace,
                       const struct sqrl_bytes *bytes, struct sqrl_error *err) {
    struct sqrl_file_writer *file = NULL;
    int rc = sqrl_file_create(fs, path, replace, &file, err);
    if (rc)
        return rc;
    rc = sqrl_file_write(file, bytes->data, bytes->size, err);
    if (rc == SQRL_OK)
        return sqrl_file_commit(file, err);
    sqrl_file_abort(file);
    return rc;
}

int commit_publish(struct commit_builder *b, struct sqrl_fs *fs, const char *directory) {
    struct sqrl_bytes bytes = {0};
    char name[SQRL_COMMIT_ID_BYTES + sizeof SQRL_COMMIT_SUFFIX];
    snprintf(name, sizeof name, "%s%s", b->commit.id, SQRL_COMMIT_SUFFIX);
    char *folder = commit_path(directory, "", SQRL_COMMIT_DIRECTORY, b->err);
    char *path =
        folder ? commit_path(directory, SQRL_COMMIT_DIRECTORY, name, b->err) : NULL;
    int rc = path ? commit_encode(&b->commit, &bytes, b->err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_fs_make_directory(fs, folder, b->err);
    if (rc == SQRL_OK)
        rc = write_whole(fs, path, false, &bytes, b->err);
    sqrl_bytes_reset(&bytes);
    free(path);
    free(folder);
    return rc;
}

int sqrl_commit_list_write(struct sqrl_context *context, struct sqrl_fs *fs,
                           const char *directory, struct sqrl_error *err) {
    struct sqrl_commits commits;
    struct sqrl_bytes text = {0};
    char *path = NULL;
    int rc = sqrl_commits_read(context, fs, directory, &commits, err);
    for (size_t i = 0; rc == SQRL_OK && i < commits.count; i++) {
        char line[SQRL_COMMIT_ID_BYTES + sizeof SQRL_COMMIT_SUFFIX + 1];
        int n = snprintf(line, sizeof line, "%s%s\n", commits.items[i].id,
                         SQRL_COMMIT_SUFFIX);
        rc = sqrl_bytes_append(&text, line, (size_t)n, err);
    }
    if (rc == SQRL_OK) {
        path = commit_path(directory, SQRL_COMMIT_DIRECTORY, SQRL_COMMIT_LIST, err);
        rc = path ? write_whole(fs, path, true, &text, err) : SQRL_E_NO_MEMORY;
    }
    free(path);
    sqrl_bytes_reset(&text);
    sqrl_commits_reset(&commits);
    return rc;
}

/* --- removing what was replaced --- */

void commit_remove_file(struct sqrl_context *context, struct sqrl_fs *fs,
                        const char *directory, const char *folder, const char *name) {
    struct sqrl_error err = {0};
    char *path = commit_path(directory, folder, name, &err);
    int rc = path ? sqrl_fs_remove(fs, path, &err) : SQRL_E_NO_MEMORY;
    if (rc && rc != SQRL_E_NOT_FOUND) {
        char text[SQRL_ERROR_MESSAGE_BYTES];
        sqrl_error_text(&err, text, sizeof text);
        sqrl_log(context, SQRL_LOG_WARNING,
                 "a replaced file is left behind and may be removed: %s", text);
    }
    free(path);
}

static void remove_shards(struct sqrl_context *context, struct sqrl_fs *fs,
                          const char *directory, const struct sqrl_commit *old,
                          const char *const *kept, size_t count) {
    for (uint64_t k = 0; k < old->shard_count; k++)
        if (!has_name(kept, count, old->shards[k].name))
            commit_remove_file(context, fs, directory, "", old->shards[k].name);
    for (uint64_t g = 0; g < old->group_count; g++)
        remove_shards(context, fs, directory, &old->groups[g].set, kept, count);
}

/* Removes replaced commits and their shards, but for the new commit's `kept` ones. A
 * commit that can't be read leaves its shards where they are. */
static void remove_replaced(struct sqrl_context *context, struct sqrl_fs *fs,
                            const char *directory, const struct commit_ids *ids,
                            const char *const *kept, size_t count) {
    for (size_t i = 0; i < ids->count; i++) {
        struct sqrl_commit old;
        char name[SQRL_COMMIT_ID_BYTES + sizeof SQRL_COMMIT_SUFFIX];
        snprintf(name, sizeof name, "%s%s", ids->items[i].text, SQRL_COMMIT_SUFFIX);
        int rc = commit_load(context, fs, directory, &ids->items[i], &old, NULL);
        if (rc && rc != SQRL_E_NOT_FOUND)
            sqrl_log(context, SQRL_LOG_WARNING,
                     "commit %s can't be read (%s): its shards are left behind",
                     ids->items[i].text, sqrl_code_name(rc));
        commit_remove_file(context, fs, directory, SQRL_COMMIT_DIRECTORY, name);
        if (rc == SQRL_OK)
            remove_shards(context, fs, directory, &old, kept, count);
        sqrl_commit_reset(&old);
    }
}

/* The commit is made, so nothing fails from here on. The list only helps places that
 * can't be listed, but those must know the new commit before the shards of old ones go.
 * It is tried again when an unreadable old commit stood in its way. */
static void after_commit(struct sqrl_context *context, struct sqrl_fs *fs,
                         const char *directory, const struct commit_ids *replaced,
                         const char *const *kept, size_t count) {
    struct sqrl_error err = {0};
    int rc = sqrl_commit_list_write(context, fs, directory, &err);
    if (replaced)
        remove_replaced(context, fs, directory, replaced, kept, count);
    if (rc && replaced)
        rc = sqrl_commit_list_write(context, fs, directory, &err);
    if (rc)
        sqrl_log(context, SQRL_LOG_WARNING, "%s/%s can't be written: %s",
                 SQRL_COMMIT_DIRECTORY, SQRL_COMMIT_LIST, err.message);
}

/* --- all together --- */

int sqrl_commit_write(struct sqrl_context *context, struct sqrl_fs *fs,
                      const char *directory, const char *const *names, size_t count,
                      bool replace_all, struct sqrl_commit_total *total,
                      struct sqrl_error *err) {
    struct commit_builder b = {.err = err};
    struct commit_ids ids = {0};
    struct sqrl_commits commits = {0};
    struct sqrl_error ignored = {0};
    if (total)
        *total = (struct sqrl_commit_total){0};
    const char **sorted = sort_names(names, count, err ? err : &ignored);
    if (!sorted)
        return err ? (int)err->code : (int)ignored.code;
    int rc = commit_ids_read(context, fs, directory, &ids, err);
    if (rc == SQRL_OK && replace_all)
        rc = set_supersedes(&b, &ids);
    if (rc == SQRL_OK && !replace_all)
        rc = sqrl_commits_read(context, fs, directory, &commits, err);
    if (rc == SQRL_OK)
        rc = check_new(&commits, sorted, count, err);
    if (rc == SQRL_OK)
        rc = commit_add_shards(&b, context, fs, directory, names, count);
    if (rc == SQRL_OK)
        rc = make_id(&ids, b.commit.id, err);
    if (rc == SQRL_OK)
        rc = commit_publish(&b, fs, directory);
    if (rc == SQRL_OK) {
        if (total)
            *total = b.total;
        after_commit(context, fs, directory, replace_all ? &ids : NULL, sorted, count);
    }
    sqrl_commits_reset(&commits);
    commit_ids_reset(&ids);
    sqrl_commit_reset(&b.commit);
    free(sorted);
    return rc;
}

int sqrl_commit_measure(struct sqrl_context *context, struct sqrl_fs *fs,
                        const char *directory, const char *const *names, size_t count,
                        struct sqrl_commit_total *total, struct sqrl_error *err) {
    struct commit_builder b = {.err = err};
    int rc = commit_add_shards(&b, context, fs, directory, names, count);
    *total = b.total;
    sqrl_commit_reset(&b.commit);
    return rc;
}
