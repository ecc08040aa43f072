/* Commits of shards that hold groups of fields.
 *
 * Footers tell which shards belong together: those of one family. The base's name is what
 * a commit says of the others ("of"); a shard that was written without groups is a base
 * whose family follows from its footer and its name.
 *
 * Adding a group to shards that are there must not happen twice. The id of such a commit
 * follows from the commits there are and from the group's name, so that of two that add
 * the same one file can't be made; what slips through since the two saw different commits
 * (somebody appended between them) is seen when the commits are read again, and who sees
 * it gives up: there are never two. */
#include "format/commit_inner.h"

#include <stdio.h>
#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

struct group_builder {
    struct sqrl_group group;
    char **of; /* borrowed names */
    uint64_t of_count;
    struct commit_builder set;
};

struct part {
    const char *name;
    struct sqrl_native_summary summary;
};

struct base {
    char family[SQRL_FAMILY_BYTES];
    const char *name;
    uint64_t samples;
    uint64_t has[4]; /* bits: which groups it has */
};

struct sorter {
    struct commit_builder *b;
    struct sqrl_context *context;
    size_t most;       /* shards */
    struct part *part; /* those that are joined to a base */
    size_t parts;
    struct base *base;
    size_t bases;
    struct group_builder *group;
    size_t groups;
};

/* Groups of one name and the same fields are one; of those that took whatever was left
 * over the fields are what was met, so these are united. */
static int group_of(struct sorter *s, const struct sqrl_group *group,
                    struct group_builder **out) {
    for (size_t i = 0; i < s->groups; i++) {
        struct sqrl_group *there = &s->group[i].group;
        bool rest = strcmp(group->name, SQRL_GROUP_REST) == 0;
        if (strcmp(there->name, group->name) != 0 || there->base != group->base ||
            there->added != group->added ||
            (!rest && !sqrl_names_equal(&there->fields, &group->fields)))
            continue;
        *out = &s->group[i];
        int rc = SQRL_OK;
        for (uint32_t f = 0; rc == SQRL_OK && f < group->fields.count; f++)
            rc = sqrl_names_add(&there->fields, group->fields.item[f],
                                strlen(group->fields.item[f]), s->b->err);
        return rc;
    }
    struct group_builder *grown =
        sqrl_realloc(s->group, (s->groups + 1) * sizeof *grown, "groups", s->b->err);
    if (!grown)
        return SQRL_E_NO_MEMORY;
    s->group = grown;
    *out = &grown[s->groups];
    **out = (struct group_builder){.of_count = 0};
    int rc = sqrl_group_copy(group, &(*out)->group, s->b->err);
    if (rc)
        return rc;
    s->groups++;
    (*out)->of = sqrl_calloc(s->most + 1, sizeof *(*out)->of, "shards", s->b->err);
    if (!(*out)->of)
        return SQRL_E_NO_MEMORY;
    return commit_builder_init(&(*out)->set, s->most, s->b->err);
}

/* A base goes to the commit at once; its name is kept in the commit. */
static int take_base(struct sorter *s, const char *name,
                     struct sqrl_native_summary *summary) {
    struct base *base = &s->base[s->bases++];
    const struct sqrl_group *group = &summary->group;
    struct group_builder *to = NULL;
    if (group->family[0])
        memcpy(base->family, group->family, sizeof base->family);
    else
        sqrl_family_of(summary->footer_checksum, name, base->family);
    base->name = name;
    base->samples = summary->samples;
    int rc = group->family[0] ? group_of(s, group, &to) : SQRL_OK;
    if (rc)
        return rc;
    if (to)
        to->of[to->of_count++] = (char *)(uintptr_t)name;
    return commit_take_summary(s->b, name, summary);
}

static int read_footers(struct sorter *s, struct sqrl_fs *fs, const char *directory,
                        const char *const *names, size_t count) {
    int rc = SQRL_OK;
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        struct sqrl_native_summary summary = {0};
        char *path = commit_path(directory, "", names[i], s->b->err);
        rc = path ? sqrl_native_summary_read(s->context, fs, path, &summary, s->b->err)
                  : SQRL_E_NO_MEMORY;
        if (rc == SQRL_OK && summary.group.family[0] && !summary.group.base) {
            s->part[s->parts++] = (struct part){names[i], summary};
            summary = (struct sqrl_native_summary){0};
        } else if (rc == SQRL_OK) {
            rc = take_base(s, names[i], &summary);
        }
        if (rc && path)
            sqrl_error_at(s->b->err, rc, "%s", path);
        sqrl_native_summary_reset(&summary);
        free(path);
    }
    return rc;
}

static int by_family(const void *a, const void *b) {
    return strcmp(((const struct base *)a)->family, ((const struct base *)b)->family);
}

static int no_base(struct sorter *s, const struct part *part) {
    sqrl_log(s->context, SQRL_LOG_WARNING,
             "shard \"%s\" holds the group \"%s\" of a shard that is not there: it is "
             "left out",
             part->name, part->summary.group.name);
    return SQRL_OK;
}

/* Finds a part's base; both must have as many samples. */
static int join_part(struct sorter *s, struct part *part) {
    struct sqrl_native_summary *summary = &part->summary;
    struct base key;
    memcpy(key.family, summary->group.family, sizeof key.family);
    struct base *base =
        s->bases ? bsearch(&key, s->base, s->bases, sizeof key, by_family) : NULL;
    if (!base)
        return no_base(s, part);
    if (base->samples != summary->samples)
        return sqrl_error_set(s->b->err, SQRL_E_CORRUPT,
                              "shard \"%s\" (group \"%s\") has %llu samples, but \"%s\" "
                              "of its family has %llu: restore one of them",
                              part->name, summary->group.name, LLU(summary->samples),
                              base->name, LLU(base->samples));
    struct group_builder *to;
    int rc = group_of(s, &summary->group, &to);
    if (rc)
        return rc;
    size_t number = (size_t)(to - s->group);
    if (number >= SQRL_COUNT_OF(base->has) * 64)
        return sqrl_error_set(s->b->err, SQRL_E_LIMIT, "more than %zu groups of fields",
                              SQRL_COUNT_OF(base->has) * 64);
    uint64_t bit = UINT64_C(1) << (number % 64), *has = &base->has[number / 64];
    if (*has & bit) {
        sqrl_log(
            s->context, SQRL_LOG_WARNING,
            "shard \"%s\" holds the group \"%s\" of \"%s\" once more: it is left out",
            part->name, summary->group.name, base->name);
        return SQRL_OK;
    }
    *has |= bit;
    to->of[to->of_count++] = (char *)(uintptr_t)base->name;
    rc = commit_take_summary(&to->set, part->name, summary);
    s->b->total.blocks += summary->blocks;
    s->b->total.raw_bytes += summary->raw_bytes;
    s->b->total.file_bytes += summary->file_bytes;
    return rc;
}

/* The groups become the commit's. */
static int give_groups(struct sorter *s) {
    struct sqrl_commit *commit = &s->b->commit;
    commit->groups =
        sqrl_calloc(s->groups + 1, sizeof *commit->groups, "groups", s->b->err);
    int rc = commit->groups ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; rc == SQRL_OK && i < s->groups; i++) {
        struct group_builder *from = &s->group[i];
        struct sqrl_commit_group *to = &commit->groups[commit->group_count++];
        *to = (struct sqrl_commit_group){.group = from->group, .set = from->set.commit};
        memset(to->group.family, 0, sizeof to->group.family); /* each shard has its own */
        from->group = (struct sqrl_group){0};
        from->set.commit = (struct sqrl_commit){0};
        to->of = sqrl_calloc(from->of_count + 1, sizeof *to->of, "shards", s->b->err);
        rc = to->of ? SQRL_OK : SQRL_E_NO_MEMORY;
        for (uint64_t k = 0; rc == SQRL_OK && k < from->of_count; k++) {
            to->of[k] = sqrl_strdup(from->of[k], s->b->err);
            to->of_count = k + 1;
            rc = to->of[k] ? SQRL_OK : SQRL_E_NO_MEMORY;
        }
    }
    return rc;
}

static void sorter_reset(struct sorter *s) {
    for (size_t i = 0; i < s->parts; i++)
        sqrl_native_summary_reset(&s->part[i].summary);
    for (size_t i = 0; i < s->groups; i++) {
        sqrl_group_reset(&s->group[i].group);
        free(s->group[i].of);
        sqrl_commit_reset(&s->group[i].set.commit);
    }
    free(s->part);
    free(s->base);
    free(s->group);
}

int commit_add_shards(struct commit_builder *b, struct sqrl_context *context,
                      struct sqrl_fs *fs, const char *directory, const char *const *names,
                      size_t count) {
    struct sorter s = {.b = b, .context = context, .most = count};
    int rc = commit_builder_init(b, count, b->err);
    if (rc)
        return rc;
    s.part = sqrl_calloc(count + 1, sizeof *s.part, "shards", b->err);
    s.base = sqrl_calloc(count + 1, sizeof *s.base, "shards", b->err);
    rc = s.part && s.base ? read_footers(&s, fs, directory, names, count)
                          : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK && s.bases)
        qsort(s.base, s.bases, sizeof *s.base, by_family);
    for (size_t i = 0; rc == SQRL_OK && i < s.parts; i++)
        rc = join_part(&s, &s.part[i]);
    if (rc == SQRL_OK && s.groups)
        rc = give_groups(&s);
    sorter_reset(&s);
    return rc;
}

/* --- a group for shards that are there --- */

struct addition {
    struct sqrl_context *context;
    struct sqrl_fs *fs;
    const char *directory;
    const char *const *names, *const *of;
    const char **sorted; /* of */
    size_t count;
    const char *group;
    struct sqrl_error *err;
};

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_ours(const struct addition *a, const char *name) {
    return bsearch(&name, a->sorted, a->count, sizeof *a->sorted, compare_texts) != NULL;
}

/* All shards are there, and none has the group; commit `own` (or NULL) does not count. */
static int check_free(const struct addition *a, const struct sqrl_commits *commits,
                      const char *own) {
    size_t there = 0;
    for (size_t i = 0; i < commits->count; i++) {
        const struct sqrl_commit *commit = &commits->items[i];
        for (uint64_t k = 0; k < commit->shard_count; k++)
            there += is_ours(a, commit->shards[k].name);
        for (uint64_t g = 0; g < commit->group_count; g++) {
            const struct sqrl_commit_group *group = &commit->groups[g];
            if (group->group.base || strcmp(group->group.name, a->group) != 0 ||
                (own && strcmp(own, commit->id) == 0))
                continue;
            for (uint64_t k = 0; k < group->of_count; k++)
                if (is_ours(a, group->of[k]))
                    return sqrl_error_set(
                        a->err, SQRL_E_EXISTS,
                        "the group \"%s\" was added to shard \"%s\" meanwhile (commit "
                        "%s): nothing was changed; open the data set again",
                        a->group, group->of[k], commit->id);
        }
    }
    if (there == a->count)
        return SQRL_OK;
    return sqrl_error_set(a->err, SQRL_E_STATE,
                          "%llu of the data set's shards were replaced while fields were "
                          "added to them: nothing was changed; add them anew",
                          LLU(a->count - there));
}

static int read_and_check(const struct addition *a, const char *own) {
    struct sqrl_commits commits;
    int rc = sqrl_commits_read(a->context, a->fs, a->directory, &commits, a->err);
    if (rc == SQRL_OK)
        rc = check_free(a, &commits, own);
    sqrl_commits_reset(&commits);
    return rc;
}

/* Just behind the last commit there is: of two who see the same ones, the same. */
static int next_id(const struct addition *a, char out[SQRL_COMMIT_ID_BYTES]) {
    struct commit_ids ids;
    int rc = commit_ids_read(a->context, a->fs, a->directory, &ids, a->err);
    if (rc)
        return rc;
    uint64_t last = ids.count ? strtoull(ids.items[ids.count - 1].text, NULL, 16) : 0;
    snprintf(out, SQRL_COMMIT_ID_BYTES, "%016llx-%016llx",
             LLU(last + (last < UINT64_MAX)), LLU(sqrl_xxh3(a->group, strlen(a->group))));
    commit_ids_reset(&ids);
    return SQRL_OK;
}

static int publish_once(const struct addition *a, struct commit_builder *b) {
    char file[SQRL_COMMIT_ID_BYTES + sizeof SQRL_COMMIT_SUFFIX];
    int rc = next_id(a, b->commit.id);
    if (rc == SQRL_OK) /* behind the id: what came before it is seen */
        rc = read_and_check(a, NULL);
    if (rc)
        return rc;
    rc = commit_publish(b, a->fs, a->directory);
    if (rc == SQRL_E_EXISTS) {
        sqrl_error_clear(a->err);
        rc = read_and_check(a, NULL);
        return rc ? rc
                  : sqrl_error_set(a->err, SQRL_E_EXISTS,
                                   "the group \"%s\" was added by somebody else at the "
                                   "same moment: nothing was changed",
                                   a->group);
    }
    if (rc)
        return rc;
    rc = read_and_check(a, b->commit.id);
    snprintf(file, sizeof file, "%s%s", b->commit.id, SQRL_COMMIT_SUFFIX);
    if (rc)
        commit_remove_file(a->context, a->fs, a->directory, SQRL_COMMIT_DIRECTORY, file);
    return rc;
}

/* The commit of nothing but one group. */
static int build(const struct addition *a, struct commit_builder *b) {
    struct commit_builder set = {.err = a->err};
    int rc = commit_builder_init(b, 0, a->err);
    if (rc == SQRL_OK)
        rc = commit_builder_init(&set, a->count, a->err);
    b->commit.groups = sqrl_calloc(1, sizeof *b->commit.groups, "groups", a->err);
    if (rc == SQRL_OK && !b->commit.groups)
        rc = SQRL_E_NO_MEMORY;
    if (rc)
        goto done;
    b->commit.group_count = 1;
    struct sqrl_commit_group *to = &b->commit.groups[0];
    to->of = sqrl_calloc(a->count + 1, sizeof *to->of, "shards", a->err);
    rc = to->of ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; rc == SQRL_OK && i < a->count; i++) {
        struct sqrl_native_summary summary = {0};
        char *path = commit_path(a->directory, "", a->names[i], a->err);
        rc = path ? sqrl_native_summary_read(a->context, a->fs, path, &summary, a->err)
                  : SQRL_E_NO_MEMORY;
        if (rc == SQRL_OK && !to->group.name)
            rc = sqrl_group_copy(&summary.group, &to->group, a->err);
        memset(to->group.family, 0, sizeof to->group.family);
        for (uint32_t f = 0; rc == SQRL_OK && f < summary.group.fields.count; f++)
            rc = sqrl_names_add(&to->group.fields, summary.group.fields.item[f],
                                strlen(summary.group.fields.item[f]), a->err);
        if (rc == SQRL_OK)
            rc = commit_take_summary(&set, a->names[i], &summary);
        if (rc == SQRL_OK) {
            to->of[i] = sqrl_strdup(a->of[i], a->err);
            rc = to->of[i] ? SQRL_OK : SQRL_E_NO_MEMORY;
            to->of_count = i + 1;
        }
        sqrl_native_summary_reset(&summary);
        free(path);
    }
    to->set = set.commit;
    b->total = set.total;
    set.commit = (struct sqrl_commit){0};
done:
    sqrl_commit_reset(&set.commit);
    return rc;
}

int sqrl_commit_add_group(struct sqrl_context *context, struct sqrl_fs *fs,
                          const char *directory, const char *const *names,
                          const char *const *of, size_t count,
                          struct sqrl_commit_total *total, struct sqrl_error *err) {
    struct sqrl_error ignored = {0};
    struct addition a = {.context = context,
                         .fs = fs,
                         .directory = directory,
                         .names = names,
                         .of = of,
                         .count = count,
                         .err = err ? err : &ignored};
    struct commit_builder b = {.err = a.err};
    if (total)
        *total = (struct sqrl_commit_total){0};
    a.sorted = sqrl_calloc(count + 1, sizeof *a.sorted, "shards", a.err);
    int rc = a.sorted && count ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; rc == SQRL_OK && i < count; i++)
        a.sorted[i] = of[i];
    if (rc == SQRL_OK) {
        qsort(a.sorted, count, sizeof *a.sorted, compare_texts);
        rc = build(&a, &b);
    }
    if (rc == SQRL_OK) {
        a.group = b.commit.groups[0].group.name;
        rc = publish_once(&a, &b);
    }
    if (rc == SQRL_OK && total)
        *total = b.total;
    if (rc == SQRL_OK && sqrl_commit_list_write(context, fs, directory, &ignored))
        sqrl_log(context, SQRL_LOG_WARNING, "%s/%s can't be written: %s",
                 SQRL_COMMIT_DIRECTORY, SQRL_COMMIT_LIST, ignored.message);
    sqrl_commit_reset(&b.commit);
    free(a.sorted);
    return rc;
}
