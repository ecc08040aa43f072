/* listing.c - the files of a directory, and whether they are all of one format.
 *
 * Of a large directory not every file is opened: of each suffix MAX_SNIFFED files are,
 * and far away, where each costs a round trip, MAX_SNIFFED_FAR. The rest is taken for the
 * same; a reader that meets another format says so. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "driver/driver.h"
#include "format/format.h"
#include "format/sidecar.h"

enum { MAX_SNIFFED = 256, MAX_SNIFFED_FAR = 4, MAX_KINDS = 16 };
#define MAX_FILES (UINT64_C(1) << 24)

/* --- listing --- */
struct visit {
    struct sqrl_listing *listing;
    struct sqrl_error *err;
    int rc;
};

static int listing_add(struct sqrl_listing *listing, const char *name, uint64_t bytes,
                       struct sqrl_error *err) {
    if (listing->count == MAX_FILES)
        return sqrl_error_set(
            err, SQRL_E_LIMIT,
            "the directory holds more than %llu files; spread them over "
            "several",
            (unsigned long long)MAX_FILES);
    if (listing->count == listing->capacity) {
        size_t capacity = listing->capacity ? 2 * listing->capacity : 64;
        struct sqrl_listed *files =
            sqrl_realloc(listing->files, capacity * sizeof *files, "file list", err);
        if (!files)
            return SQRL_E_NO_MEMORY;
        listing->files = files;
        listing->capacity = capacity;
    }
    char *copy = sqrl_strdup(name, err);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    listing->files[listing->count++] = (struct sqrl_listed){copy, bytes};
    return SQRL_OK;
}

static int visit_entry(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct visit *visit = arg;
    struct sqrl_listing *listing = visit->listing;
    if (strcmp(name, "_sqrl") == 0)
        listing->native = true;
    if (strcmp(name, SQRL_SIDECAR_FOLDER) == 0)
        listing->indexed = true;
    if (name[0] == '.' || name[0] == '_')
        return 0;
    if (stat->directory) {
        listing->directories++;
        return 0;
    }
    visit->rc = listing_add(listing, name, stat->size, visit->err);
    return visit->rc;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct sqrl_listed *)a)->name,
                  ((const struct sqrl_listed *)b)->name);
}

int sqrl_listing_read(struct sqrl_fs *fs, const char *directory, struct sqrl_listing *out,
                      struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    struct visit visit = {out, err, SQRL_OK};
    int rc = sqrl_fs_list(fs, directory, false, visit_entry, &visit, NULL, err);
    rc = visit.rc ? visit.rc : rc;
    if (!rc && out->count)
        qsort(out->files, out->count, sizeof *out->files, by_name);
    return rc;
}

void sqrl_listing_reset(struct sqrl_listing *listing) {
    for (size_t i = 0; i < listing->count; i++)
        free(listing->files[i].name);
    free(listing->files);
    memset(listing, 0, sizeof *listing);
}

void sqrl_listing_drop(struct sqrl_listing *listing, size_t i) {
    free(listing->files[i].name);
    memmove(listing->files + i, listing->files + i + 1,
            (listing->count - i - 1) * sizeof *listing->files);
    listing->count--;
}

int sqrl_listing_empty(const struct sqrl_listing *listing, struct sqrl_error *err) {
    if (listing->directories)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                              "the directory holds no data files, only %zu director%s; "
                              "open one of them",
                              listing->directories,
                              listing->directories == 1 ? "y" : "ies");
    return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                          "the directory holds no data files; is it the right one?");
}

char *sqrl_url_prefix(struct sqrl_fs *fs, const char *url, const char *path,
                      struct sqrl_error *err) {
    size_t whole = strlen(url), tail = strlen(path);
    if ((sqrl_fs_flags(fs) & SQRL_FS_LOCAL) || tail > whole ||
        strcmp(url + whole - tail, path) != 0)
        return sqrl_strdup("", err);
    return sqrl_format(err, "%.*s", (int)(whole - tail), url);
}

char *sqrl_path_join(const char *directory, const char *name, struct sqrl_error *err) {
    size_t size = strlen(directory);
    const char *between = size == 0 || directory[size - 1] == '/' ? "" : "/";
    return sqrl_format(err, "%s%s%s", directory, between, name);
}

/* --- classification --- */
/* Files that lie beside data everywhere and are never data. */
static bool is_companion(const char *name) {
    static const char *const stems[] = {"README",  "LICENSE",   "LICENCE",
                                        "COPYING", "CHANGELOG", "NOTICE"};
    for (size_t i = 0; i < SQRL_COUNT_OF(stems); i++)
        if (strncasecmp(name, stems[i], strlen(stems[i])) == 0)
            return true;
    size_t size = strlen(name);
    return size > 3 && strcasecmp(name + size - 3, ".md") == 0;
}

struct kind {
    const struct sqrl_format_ops *format; /* NULL: unknown */
    const char *example;
    size_t files;
};
struct suffix {
    const char *text;
    size_t sniffed;
    const struct sqrl_format_ops *format; /* of the last one that was sniffed */
};
/* What was found so far. Suffixes beyond the table's room are sniffed always. */
struct survey {
    struct kind kinds[MAX_KINDS];
    size_t kind_count;
    struct suffix suffixes[MAX_KINDS];
    size_t suffix_count;
    char begins[80];                      /* of the first unknown file */
    const struct sqrl_format_ops *chosen; /* NULL: found from the files */
};

static struct suffix *suffix_of(struct survey *survey, const char *name) {
    const char *dot = strrchr(name, '.');
    const char *text = dot ? dot : "";
    for (size_t i = 0; i < survey->suffix_count; i++)
        if (strcmp(survey->suffixes[i].text, text) == 0)
            return &survey->suffixes[i];
    if (survey->suffix_count == MAX_KINDS)
        return NULL;
    struct suffix *suffix = &survey->suffixes[survey->suffix_count++];
    *suffix = (struct suffix){.text = text};
    return suffix;
}

static void survey_add(struct survey *survey, const struct sqrl_format_ops *format,
                       const char *name) {
    for (size_t i = 0; i < survey->kind_count; i++) {
        if (survey->kinds[i].format == format) {
            survey->kinds[i].files++;
            return;
        }
    }
    if (survey->kind_count < MAX_KINDS)
        survey->kinds[survey->kind_count++] = (struct kind){format, name, 1};
}

/* Whether the name ends as those of the format do, be it in a codec's suffix alone:
 * ".gz". */
static bool may_be_of(const struct sqrl_format_ops *format, const char *name) {
    const char *dot = strrchr(name, '.');
    for (const char *at = dot ? strstr(format->suffixes, dot) : NULL; at;
         at = strstr(at + 1, dot))
        if (at[strlen(dot)] == '|' || !at[strlen(dot)])
            return true;
    return false;
}

/* The format of one file; *any is set when it fits every format. */
static int format_of(struct survey *survey, struct sqrl_context *context,
                     struct sqrl_fs *fs, const char *directory, const char *name,
                     const struct sqrl_format_ops **format, bool *any,
                     struct sqrl_error *err) {
    struct suffix *suffix = suffix_of(survey, name);
    bool far = !(sqrl_fs_flags(fs) & SQRL_FS_LOCAL);
    *any = false;
    if (suffix && suffix->sniffed >= (far ? MAX_SNIFFED_FAR : MAX_SNIFFED)) {
        *format = suffix->format;
        return SQRL_OK;
    }
    char *path = sqrl_path_join(directory, name, err);
    if (!path)
        return SQRL_E_NO_MEMORY;
    struct sqrl_sniffed sniffed;
    int rc = sqrl_sniff(context, fs, path, &sniffed, err);
    free(path);
    if (rc)
        return rc;
    *format = sniffed.format;
    /* A damaged file must not vanish: reading it says what is wrong. */
    if (survey->chosen && sniffed.weak && may_be_of(survey->chosen, name))
        *format = survey->chosen;
    *any = sniffed.empty_payload;
    if (!sniffed.format && !survey->begins[0])
        memcpy(survey->begins, sniffed.begins, sizeof survey->begins);
    if (suffix && !*any) {
        suffix->format = *format;
        suffix->sniffed++;
    }
    return SQRL_OK;
}

static int mixed(const struct survey *survey, struct sqrl_error *err) {
    char text[320];
    size_t at = 0;
    for (size_t i = 0; i < survey->kind_count && at < sizeof text; i++) {
        const struct kind *kind = &survey->kinds[i];
        at += (size_t)snprintf(
            text + at, sizeof text - at, "%s%zu %s (%s)", i ? ", " : "", kind->files,
            kind->format ? kind->format->name : "unknown", kind->example);
    }
    return sqrl_error_set(
        err, SQRL_E_FORMAT,
        "the directory mixes formats: %s; name one with driver=, or open "
        "a narrower path",
        text);
}

static int unknown(const struct survey *survey, struct sqrl_error *err) {
    char names[128];
    return sqrl_error_set(
        err, SQRL_E_FORMAT, "no known format: %s begins with %s; known are %s",
        survey->kinds[0].example, survey->begins, sqrl_format_names(names, sizeof names));
}

/* Finds each file's format in formats[]; NULL there is unknown. */
static int survey_files(struct survey *survey, struct sqrl_listing *listing,
                        struct sqrl_context *context, struct sqrl_fs *fs,
                        const char *directory, const struct sqrl_format_ops **formats,
                        bool *any, struct sqrl_error *err) {
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        int rc =
            format_of(survey, context, fs, directory, name, &formats[i], &any[i], err);
        if (rc)
            return rc;
        if (!any[i])
            survey_add(survey, formats[i], name);
    }
    return SQRL_OK;
}

static void drop_companions(struct sqrl_listing *listing) {
    size_t kept = 0;
    for (size_t i = 0; i < listing->count; i++) {
        if (is_companion(listing->files[i].name))
            free(listing->files[i].name);
        else
            listing->files[kept++] = listing->files[i];
    }
    listing->count = kept;
}

/* Fails when no file is of `format`; files with nothing in them do not count, unless
 * there are no others. */
static int check_kept(const struct survey *survey, const struct sqrl_format_ops *format,
                      struct sqrl_error *err) {
    for (size_t i = 0; i < survey->kind_count; i++)
        if (survey->kinds[i].format == format)
            return SQRL_OK;
    if (survey->kind_count == 0)
        return SQRL_OK;
    const struct kind *first = &survey->kinds[0];
    return sqrl_error_set(
        err, SQRL_E_FORMAT,
        "the directory holds no file of format %s; the first one, %s, is %s",
        format->name, first->example,
        first->format ? first->format->name : "of no known format");
}

/* Keeps the files of `format` and those that fit any. */
static void keep_format(struct sqrl_listing *listing,
                        const struct sqrl_format_ops *format,
                        const struct sqrl_format_ops *const *formats, const bool *any) {
    size_t kept = 0;
    for (size_t i = 0; i < listing->count; i++) {
        if (formats[i] == format || any[i])
            listing->files[kept++] = listing->files[i];
        else
            free(listing->files[i].name);
    }
    listing->count = kept;
}

int sqrl_listing_classify(struct sqrl_listing *listing, struct sqrl_context *context,
                          struct sqrl_fs *fs, const char *directory,
                          const struct sqrl_format_ops *format,
                          const struct sqrl_format_ops **found, struct sqrl_error *err) {
    if (found)
        *found = NULL;
    drop_companions(listing);
    if (!listing->count)
        return sqrl_listing_empty(listing, err);
    struct survey survey = {.chosen = format};
    const struct sqrl_format_ops **formats =
        sqrl_calloc(listing->count, sizeof *formats, "file list", err);
    bool *any = sqrl_calloc(listing->count, sizeof *any, "file list", err);
    int rc = formats && any ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!rc)
        rc = survey_files(&survey, listing, context, fs, directory, formats, any, err);
    if (rc)
        goto done;
    if (!format && survey.kind_count > 1) {
        rc = mixed(&survey, err);
    } else if (!format && survey.kind_count == 1) {
        format = survey.kinds[0].format;
        if (!format)
            rc = unknown(&survey, err);
    } else if (!format) {
        format = formats[0]; /* nothing but empty payloads: by their names */
    }
    if (rc)
        goto done;
    rc = check_kept(&survey, format, err);
    if (rc)
        goto done;
    keep_format(listing, format, formats, any);
    if (found)
        *found = format;
done:
    free(formats);
    free(any);
    return rc;
}
