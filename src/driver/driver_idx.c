/* driver_idx.c - the driver of IDX files.
 *
 * A directory may hold several sets (train and t10k of MNIST): they are never mixed; the
 * error tells how to choose one. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/driver.h"
#include "driver/driver_idx.h"
#include "format/idx.h"

static const struct sqrl_option options[] = {
    {"stem", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "of a directory's files, those whose names begin with it: \"train\""},
    {0}};

static bool has_file(const struct sqrl_listing *listing, const char *name, size_t *at) {
    for (size_t i = 0; i < listing->count; i++) {
        if (strcmp(listing->files[i].name, name) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

static void keep_stem(struct sqrl_listing *listing, const char *stem) {
    for (size_t i = listing->count; i-- > 0;)
        if (strncmp(listing->files[i].name, stem, strlen(stem)) != 0)
            sqrl_listing_drop(listing, i);
}

/* Drops the labels of all images in the list. */
static int drop_labels(struct sqrl_listing *listing, struct sqrl_error *err) {
    for (size_t i = 0; i < listing->count; i++) {
        for (int gz = 0; gz < 2; gz++) {
            char *labels = NULL;
            size_t at;
            int rc = sqrl_idx_labels_name(listing->files[i].name, gz, &labels, NULL, err);
            if (rc)
                return rc;
            if (labels && has_file(listing, labels, &at)) {
                sqrl_listing_drop(listing, at);
                i -= at < i;
            }
            free(labels);
        }
    }
    return SQRL_OK;
}

/* What stands before "-images" in a name, or all of the name. */
static int stem_size(const char *name) {
    size_t size = 0;
    char *labels = NULL;
    if (sqrl_idx_labels_name(name, false, &labels, &size, NULL) != SQRL_OK || !labels)
        size = strlen(name);
    free(labels);
    while (size > 1 && (name[size - 1] == '-' || name[size - 1] == '_'))
        size--;
    return (int)size;
}

/* More than one set, or one file twice, is an error. */
static int check_sets(const struct sqrl_listing *listing, struct sqrl_error *err) {
    char text[240] = "";
    size_t at = 0, sets = 0;
    bool named = false; /* as MNIST's files; others are shards of one set */
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        char *twin = sqrl_format(err, "%s.gz", name);
        size_t other;
        bool twice = twin && has_file(listing, twin, &other);
        free(twin);
        if (!twin)
            return SQRL_E_NO_MEMORY;
        if (twice)
            return sqrl_error_set(
                err, SQRL_E_FORMAT,
                "the directory holds %s and %s.gz, the same data twice; "
                "open one of the files",
                name, name);
        int size = stem_size(name);
        if (i > 0 && stem_size(listing->files[i - 1].name) == size &&
            strncmp(listing->files[i - 1].name, name, (size_t)size) == 0)
            continue;
        named = named || strstr(name, "images") || strstr(name, "labels");
        sets++;
        if (at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%.*s\"",
                                   at ? ", " : "", size, name);
    }
    if (sets < 2 || !named)
        return SQRL_OK;
    return sqrl_error_set(
        err, SQRL_E_FORMAT,
        "the directory holds %zu sets of IDX files: %s; choose one with "
        "stem=, or open one of its files, such as %s",
        sets, text, listing->files[0].name);
}

static int add_files(const struct sqrl_driver_args *args,
                     const struct sqrl_listing *listing, struct sqrl_shard_list *out,
                     struct sqrl_error *err) {
    for (size_t i = 0; i < listing->count; i++) {
        char *path = sqrl_path_join(args->path, listing->files[i].name, err);
        if (!path)
            return SQRL_E_NO_MEMORY;
        int rc = sqrl_shard_list_add(out, path, &sqrl_format_idx, NULL, err);
        free(path);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

static int idx_driver_open(const struct sqrl_driver_args *args,
                           struct sqrl_shard_list *out, struct sqrl_error *err) {
    if (!args->stat.directory)
        return sqrl_shard_list_files(args, &sqrl_format_idx, out, err);
    const char *stem = sqrl_settings_text(args->settings, options, "stem");
    struct sqrl_listing listing;
    int rc = sqrl_listing_read(args->fs, args->path, &listing, err);
    if (!rc && stem) {
        keep_stem(&listing, stem);
        if (!listing.count)
            rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                                "no file's name begins with \"%.80s\" (stem=)", stem);
    }
    if (!rc)
        rc = sqrl_listing_classify(&listing, args->context, args->fs, args->path,
                                   &sqrl_format_idx, NULL, err);
    if (!rc)
        rc = drop_labels(&listing, err);
    if (!rc)
        rc = check_sets(&listing, err);
    if (!rc)
        rc = add_files(args, &listing, out, err);
    out->sidecars = listing.indexed;
    sqrl_listing_reset(&listing);
    return rc;
}

const struct sqrl_driver_ops sqrl_driver_idx = {
    .size = sizeof sqrl_driver_idx,
    .api = SQRL_DRIVER_API,
    .name = "idx",
    .doc = "IDX files, images with their labels",
    .format = &sqrl_format_idx,
    .options = options,
    .open = idx_driver_open,
};
