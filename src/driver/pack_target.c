/* pack_target.c - what a destination means: a file or a directory, which format, which
 * codec, and what may be replaced. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/pack.h"
#include "driver/source.h"
#include "format/commit.h"
#include "sqrl/codec.h"

/* --- format and codec --- */
static const struct sqrl_option *option_of(const struct sqrl_option *list,
                                           const char *name) {
    for (; list && list->name; list++)
        if (strcmp(list->name, name) == 0)
            return list;
    return NULL;
}

static bool codec_of_suffix(const char *suffix, const char *codec) {
    const struct sqrl_codec_ops *found = NULL;
    char name[40];
    snprintf(name, sizeof name, "x%s", suffix); /* a name that is more than a suffix */
    found = sqrl_codec_by_suffix(name);
    return strcmp(found ? found->name : "none", codec) == 0;
}

/* Calls for each of "a|b|c"; the i-th in `out`. */
static bool suffix_at(const char *suffixes, size_t i, char out[32]) {
    for (; suffixes && *suffixes; i--) {
        size_t size = strcspn(suffixes, "|");
        if (i == 0) {
            snprintf(out, 32, "%.*s", (int)size, suffixes);
            return true;
        }
        suffixes += size + (suffixes[size] == '|');
    }
    return false;
}

/* The codec that a file of this name is written with: by the end of its suffix; "none"
 * for a suffix that has compressed siblings (".jsonl" beside ".jsonl.gz"); NULL: the
 * format's default. */
static const char *codec_of_name(const struct sqrl_format_ops *format, const char *name) {
    size_t length = 0;
    char other[32];
    const struct sqrl_codec_ops *codec = sqrl_codec_by_suffix(name);
    if (!sqrl_suffix_fits(format->suffixes, name, &length))
        return NULL;
    if (codec)
        return codec->name;
    const char *suffix = name + strlen(name) - length;
    for (size_t i = 0; suffix_at(format->suffixes, i, other); i++)
        if (strncmp(other, suffix, length) == 0 && other[length] == '.')
            return "none";
    return NULL;
}

static const char *setting_of(const struct sqrl_settings *settings, const char *name) {
    const char *value = NULL;
    for (size_t i = 0; settings && i < settings->count; i++)
        if (strcmp(settings->items[i].name, name) == 0)
            value = settings->items[i].value;
    return value;
}

/* Copies the format's settings, and adds the codec that the file's name asks for. */
static int copy_settings(struct sqrl_pack_target *target, struct sqrl_settings *settings,
                         struct sqrl_error *err) {
    const struct sqrl_format_ops *format = target->format;
    const char *codec = target->directory ? NULL : codec_of_name(format, target->path);
    const char *set = setting_of(settings, "codec");
    if (!codec || !option_of(format->write_options, "codec"))
        return sqrl_settings_copy(settings, &target->settings, err);
    if (set && strcmp(set, codec) != 0)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "codec=%s does not fit the name of the file, which asks "
                              "for %s",
                              set, codec);
    size_t count = settings->count;
    struct sqrl_setting *items = sqrl_calloc(count + 1, sizeof *items, "settings", err);
    if (!items)
        return SQRL_E_NO_MEMORY;
    if (count)
        memcpy(items, settings->items, count * sizeof *items);
    items[count++] = (struct sqrl_setting){"codec", codec};
    int rc =
        sqrl_settings_copy(&(struct sqrl_settings){items, count}, &target->settings, err);
    free(items);
    return rc;
}

/* Checks the settings; what the file system has taken already is not the format's. */
static int take_settings(struct sqrl_pack_target *target,
                         const struct sqrl_settings *settings, struct sqrl_error *err) {
    static const struct sqrl_option none[] = {{.name = NULL}};
    const struct sqrl_option *options = target->format->write_options;
    const struct sqrl_option *lists[] = {options ? options : none,
                                         sqrl_fs_options(target->fs), NULL};
    char who[64];
    struct sqrl_settings own;
    snprintf(who, sizeof who, "writing %s", target->format->name);
    int rc = sqrl_settings_check(settings, lists, who, err);
    if (rc)
        return rc;
    lists[1] = NULL;
    rc = sqrl_settings_pick(settings, lists, &own, err);
    if (!rc)
        rc = copy_settings(target, &own, err);
    free((void *)own.items);
    return rc;
}

/* The suffix of shards: the first of the format's that fits the codec. */
static void choose_suffix(struct sqrl_pack_target *target) {
    const char *codec =
        sqrl_settings_text(&target->settings, target->format->write_options, "codec");
    char suffix[32];
    suffix_at(target->format->suffixes, 0, target->suffix);
    for (size_t i = 0; codec && suffix_at(target->format->suffixes, i, suffix); i++) {
        if (codec_of_suffix(suffix, codec)) {
            memcpy(target->suffix, suffix, sizeof target->suffix);
            return;
        }
    }
}

static int writable_format(const char *name, const struct sqrl_format_ops **out,
                           struct sqrl_error *err) {
    char names[128] = "";
    const struct sqrl_format_ops *format;
    size_t at = 0;
    *out = sqrl_format_by_name(name);
    if (*out && ((*out)->flags & SQRL_FORMAT_WRITES))
        return SQRL_OK;
    for (size_t i = 0; (format = sqrl_format_at(i)) && at < sizeof names; i++)
        if (format->flags & SQRL_FORMAT_WRITES)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   format->name);
    return sqrl_error_set(err, *out ? SQRL_E_UNSUPPORTED : SQRL_E_NOT_FOUND,
                          "%s \"%.60s\"; formats that can be written: %s",
                          *out ? "nothing writes format" : "there is no format", name,
                          names);
}

/* A name with a known suffix is a file, unless it is a directory already or ends in '/'.
 */
static int choose_format(struct sqrl_pack_target *target, const char *named,
                         bool is_there, bool is_directory, bool slash,
                         struct sqrl_error *err) {
    const struct sqrl_format_ops *by_suffix = sqrl_format_by_suffix(target->path);
    int rc = SQRL_OK;
    target->directory = is_there ? is_directory : slash || !by_suffix;
    if (named)
        rc = writable_format(named, &target->format, err);
    else if (!target->directory && by_suffix)
        rc = writable_format(by_suffix->name, &target->format, err);
    else if (target->directory)
        rc = writable_format("sqrl", &target->format, err);
    if (rc || target->directory)
        return rc;
    if (!target->format)
        return sqrl_error_set(err, SQRL_E_EXISTS,
                              "this is a file, and its name tells no format that can be "
                              "written; give the name of a directory, or format=");
    size_t length = 0;
    if (by_suffix && by_suffix != target->format &&
        !sqrl_suffix_fits(target->format->suffixes, target->path, &length))
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "the name of the file asks for format %s, but format=%s was "
            "given",
            by_suffix->name, named);
    return SQRL_OK;
}

/* --- what is there --- */
static int holds_data(const char *what, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_EXISTS,
                          "the directory holds data already (%s); choose overwrite to "
                          "replace it, append to add to it, or another directory",
                          what);
}

/* Keeps those of the old files that are to be replaced: the format's. Other formats than
 * the native one count by what lies in the directory, so nothing else may be there. */
static int choose_old(struct sqrl_pack_target *target, struct sqrl_error *err) {
    for (size_t i = target->old.count; i-- > 0;) {
        const char *name = target->old.files[i].name;
        if (sqrl_suffix_fits(target->format->suffixes, name, NULL))
            continue;
        if (!target->native)
            return sqrl_error_set(err, SQRL_E_EXISTS,
                                  "the directory holds files of another kind (%s), which "
                                  "overwrite does not remove; choose another directory",
                                  name);
        sqrl_listing_drop(&target->old, i);
    }
    return SQRL_OK;
}

static int visit_commit(void *arg, const char *name, const struct sqrl_stat *stat) {
    bool *found = arg;
    *found = sqrl_suffix_fits(SQRL_COMMIT_SUFFIX, name, NULL);
    return *found;
}

static bool has_commit(const struct sqrl_pack_target *target) {
    bool found = false;
    char *path = sqrl_path_join(target->path, SQRL_COMMIT_DIRECTORY, NULL);
    if (path)
        (void)!sqrl_fs_list(target->fs, path, false, visit_commit, &found, NULL, NULL);
    free(path);
    return found;
}

bool sqrl_pack_target_owns(const struct sqrl_pack_target *target, const char *name) {
    size_t size = strlen(target->prefix);
    return strncmp(name, target->prefix, size) == 0 && name[size] == '-';
}

static int check_directory(struct sqrl_pack_target *target,
                           const struct sqrl_pack_options *options,
                           struct sqrl_error *err) {
    int rc = sqrl_listing_read(target->fs, target->path, &target->old, err);
    if (!rc && options->overwrite && !options->hold_commit)
        return choose_old(target, err);
    if (!rc && !options->append && !options->hold_commit) {
        if (target->old.native && has_commit(target))
            rc = holds_data("with a commit in _sqrl", err);
        for (size_t i = 0; !rc && i < target->old.count; i++)
            if (!options->resume ||
                !sqrl_pack_target_owns(target, target->old.files[i].name))
                rc = holds_data(target->old.files[i].name, err);
    }
    sqrl_listing_reset(&target->old); /* not ours to remove */
    return rc;
}

/* The directory that a file lies in, allocated. */
static char *parent_of(const char *path, struct sqrl_error *err) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return sqrl_strdup(".", err);
    return sqrl_format(err, "%.*s", (int)(slash == path ? 1 : slash - path), path);
}

/* --- directories ---
 * A pack that gives up takes away the directories it made. Others may have come there
 * meanwhile: with a file in it, a temporary or a whole one, the directory stays, and
 * `_sqrl` is put back if it went first. One that has opened but written nothing yet makes
 * its directory again before its next file. In a directory that was there before, `_sqrl`
 * stays: without it shards of others, that no commit names yet, would seem to count. */

static bool is_missing(const struct sqrl_pack_target *target, const char *path) {
    struct sqrl_stat stat;
    return sqrl_fs_stat(target->fs, path, &stat, NULL) == SQRL_E_NOT_FOUND;
}

/* Makes a directory with its parents and notes which of them are new. */
static int make_noted(struct sqrl_pack_target *target, const char *path,
                      struct sqrl_error *err) {
    char *part = sqrl_strdup(path, err);
    target->made = sqrl_strdup(path, err);
    int rc = part && target->made ? SQRL_OK : SQRL_E_NO_MEMORY;
    while (!rc && *part && is_missing(target, part)) {
        target->made_top = strlen(part);
        char *slash = strrchr(part, '/');
        *(slash ? slash : part) = 0;
    }
    free(part);
    return rc ? rc : sqrl_fs_make_directory(target->fs, path, err);
}

int sqrl_pack_target_make(const struct sqrl_pack_target *target, struct sqrl_error *err) {
    if (!target->native)
        return sqrl_fs_make_directory(target->fs, target->path, err);
    char *commits = sqrl_path_join(target->path, SQRL_COMMIT_DIRECTORY, err);
    int rc =
        commits ? sqrl_fs_make_directory(target->fs, commits, err) : SQRL_E_NO_MEMORY;
    free(commits);
    return rc;
}

static int open_directory(struct sqrl_pack_target *target, bool is_there,
                          const struct sqrl_pack_options *options,
                          struct sqrl_error *err) {
    int rc = is_there ? check_directory(target, options, err)
                      : make_noted(target, target->path, err);
    /* A reader that comes too early, or after a crash, sees that shards here count only
     * when a commit names them. */
    return rc ? rc : sqrl_pack_target_make(target, err);
}

/* Removes `_sqrl` from a directory without shards. */
static bool remove_commits(const struct sqrl_pack_target *target) {
    struct sqrl_listing listing = {0};
    char *commits = sqrl_path_join(target->path, SQRL_COMMIT_DIRECTORY, NULL);
    bool gone = commits &&
                sqrl_listing_read(target->fs, target->path, &listing, NULL) == SQRL_OK &&
                listing.count == 0 && listing.directories == 0 &&
                sqrl_fs_remove_directory(target->fs, commits, NULL) == SQRL_OK;
    sqrl_listing_reset(&listing);
    free(commits);
    return gone;
}

void sqrl_pack_target_undo(const struct sqrl_pack_target *target) {
    if (!target->made_top || (target->native && !remove_commits(target)))
        return;
    char *part = sqrl_strdup(target->made, NULL);
    bool empty = part && sqrl_fs_remove_directory(target->fs, part, NULL) == SQRL_OK;
    if (!empty && target->native)
        (void)!sqrl_pack_target_make(target, NULL);
    while (empty) {
        char *slash = strrchr(part, '/');
        *(slash ? slash : part) = 0;
        empty = strlen(part) >= target->made_top &&
                sqrl_fs_remove_directory(target->fs, part, NULL) == SQRL_OK;
    }
    free(part);
}

static int open_file(struct sqrl_pack_target *target, bool is_there,
                     const struct sqrl_pack_options *options, struct sqrl_error *err) {
    if (options->append)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "samples can be appended to a directory, not to a file");
    if (is_there && !options->overwrite)
        return sqrl_error_set(
            err, SQRL_E_EXISTS,
            "the file is there already; choose overwrite to replace it");
    if (!strchr(target->path, '/'))
        return SQRL_OK;
    char *parent = parent_of(target->path, err);
    int rc = parent ? make_noted(target, parent, err) : SQRL_E_NO_MEMORY;
    free(parent);
    return rc;
}

/* Temporaries of writers that died; what can't be swept is no reason to fail. */
static void sweep(struct sqrl_context *context, const struct sqrl_pack_target *target) {
    uint64_t removed = 0;
    char *directory = target->directory ? sqrl_strdup(target->path, NULL)
                                        : parent_of(target->path, NULL);
    if (directory && sqrl_fs_sweep(target->fs, directory, &removed, NULL) == SQRL_OK &&
        removed)
        sqrl_log(context, SQRL_LOG_INFO,
                 "%s: removed %llu temporar%s of writers that are gone", directory,
                 (unsigned long long)removed, removed == 1 ? "y" : "ies");
    free(directory);
}

static int take_prefix(struct sqrl_pack_target *target, const char *given,
                       struct sqrl_error *err) {
    char made[SQRL_SHARD_PREFIX_BYTES];
    if (given && (!*given || strchr(given, '/') || *given == '.' || *given == '_'))
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "a prefix of shard names has no '/' and begins with neither "
            "'.' nor '_': \"%.60s\"",
            given);
    if (!given) {
        int rc = sqrl_shard_prefix(made, err);
        if (rc)
            return rc;
    }
    target->prefix = sqrl_strdup(given ? given : made, err);
    return target->prefix ? SQRL_OK : SQRL_E_NO_MEMORY;
}

int sqrl_pack_target_open(struct sqrl_context *context, const char *destination,
                          const struct sqrl_pack_options *options,
                          struct sqrl_pack_target *out, struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    struct sqrl_stat stat = {.size = 0};
    int rc = sqrl_fs_for_settings(context, destination, options->settings, &out->fs,
                                  &out->path, err);
    if (rc)
        return rc;
    if (!(sqrl_fs_flags(out->fs) & SQRL_FS_WRITABLE))
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "file system %s can't be written to",
                              sqrl_fs_ops_of(out->fs)->name);
    out->url_head = sqrl_url_prefix(out->fs, destination, out->path, err);
    if (!out->url_head)
        return SQRL_E_NO_MEMORY;
    size_t size = strlen(out->path);
    bool slash = size > 1 && out->path[size - 1] == '/';
    while (size > 1 && out->path[size - 1] == '/')
        out->path[--size] = 0;
    rc = sqrl_fs_stat(out->fs, out->path, &stat, err);
    bool is_there = rc == SQRL_OK;
    if (rc && rc != SQRL_E_NOT_FOUND)
        return rc;
    sqrl_error_clear(err);
    rc = choose_format(out, options->format, is_there, stat.directory, slash, err);
    if (rc)
        return rc;
    out->native = out->directory && strcmp(out->format->name, "sqrl") == 0;
    rc = take_settings(out, options->settings, err);
    if (!rc)
        rc = take_prefix(out, options->prefix, err);
    if (rc)
        return rc;
    choose_suffix(out);
    rc = out->directory ? open_directory(out, is_there, options, err)
                        : open_file(out, is_there, options, err);
    if (!rc)
        sweep(context, out);
    return rc;
}

void sqrl_pack_target_reset(struct sqrl_pack_target *target) {
    sqrl_listing_reset(&target->old);
    free((void *)target->settings.items);
    free(target->prefix);
    free(target->made);
    free(target->url_head);
    free(target->path);
    sqrl_fs_unref(target->fs);
    memset(target, 0, sizeof *target);
}

int sqrl_pack_target_error(const struct sqrl_pack_target *target, int code,
                           const char *path, struct sqrl_error *err) {
    char url[sizeof err->where];
    snprintf(url, sizeof url, "%s%s", target->url_head, path);
    return sqrl_error_at_path(err, code, url, path);
}

char *sqrl_pack_target_name(const struct sqrl_pack_target *target, uint64_t number,
                            struct sqrl_error *err) {
    if (target->native)
        return sqrl_shard_name(target->prefix, number, err);
    return sqrl_format(err, "%s-%06llu%s", target->prefix, (unsigned long long)number,
                       target->suffix);
}

int sqrl_pack_target_replace(const struct sqrl_pack_target *target,
                             const char *const *keep, size_t count,
                             struct sqrl_error *err) {
    for (size_t i = 0; i < target->old.count; i++) {
        const char *name = target->old.files[i].name;
        bool kept = false;
        for (size_t k = 0; k < count && !kept; k++)
            kept = strcmp(keep[k], name) == 0;
        if (kept)
            continue;
        char *path = sqrl_path_join(target->path, name, err);
        if (!path)
            return SQRL_E_NO_MEMORY;
        int rc = sqrl_fs_remove(target->fs, path, err);
        free(path);
        if (rc && rc != SQRL_E_NOT_FOUND)
            return rc;
    }
    return SQRL_OK;
}
