/* open.c - sqrl_open: from a URL to a source. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/driver.h"
#include "driver/driver_sqrl.h"
#include "driver/source.h"
#include "format/commit.h"
#include "format/format.h"
#include "io/listed.h"

static const struct sqrl_option open_options[] = {
    {"driver", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "the driver, by name; default: found from the content"},
    {"throttle", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "play a slow link: latency=30ms,bandwidth=40MB,total=400MB"},
    {"cache", SQRL_OPTION_TEXT, SQRL_OPTION_PATH, NULL, NULL,
     "keep what is read in a directory: /scratch/cache?limit=200GiB"},
    {"listed", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "what another opening listed far away; empty: keep it (sqrl_source_listed)"},
    {0}};

const struct sqrl_option *sqrl_open_options(void) {
    return open_options;
}

/* --- a path that is not there --- */
enum { MAX_SIBLINGS = 512 };
struct siblings {
    char *names[MAX_SIBLINGS];
    size_t count;
};

static int visit_sibling(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct siblings *siblings = arg;
    if (name[0] == '.')
        return 0;
    siblings->names[siblings->count] = sqrl_strdup(name, NULL);
    if (!siblings->names[siblings->count])
        return 1;
    return ++siblings->count == MAX_SIBLINGS;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int say_siblings(struct siblings *siblings, const char *parent, const char *name,
                        struct sqrl_error *err) {
    const char *nearest =
        sqrl_nearest(name, (const char *const *)siblings->names, siblings->count);
    if (nearest)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                              "there is no such file or directory; did you mean \"%s\"?",
                              nearest);
    if (!siblings->count)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                              "there is no such file or directory; \"%s\" is empty",
                              parent);
    qsort(siblings->names, siblings->count, sizeof siblings->names[0], by_text);
    char text[240];
    size_t at = 0, shown = SQRL_MIN(siblings->count, 5u);
    for (size_t i = 0; i < shown && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%.40s\"", i ? ", " : "",
                               siblings->names[i]);
    return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                          "there is no such file or directory; \"%s\" holds %s%s", parent,
                          text, shown < siblings->count ? " ..." : "");
}

/* Replaces the error by one that names what is there. */
static int not_found(struct sqrl_fs *fs, const char *path, struct sqrl_error *err) {
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    char *whole = sqrl_format(NULL, "%.*s", (int)size, path);
    if (!whole || !(sqrl_fs_flags(fs) & SQRL_FS_LISTABLE)) {
        free(whole);
        return SQRL_E_NOT_FOUND;
    }
    char *slash = strrchr(whole, '/');
    const char *name = slash ? slash + 1 : whole;
    const char *parent = ".";
    if (slash == whole)
        parent = "/";
    else if (slash) {
        *slash = 0;
        parent = whole;
    }
    struct siblings *siblings = sqrl_calloc(1, sizeof *siblings, "file list", NULL);
    struct sqrl_stat stat;
    if (sqrl_fs_stat(fs, parent, &stat, NULL) == SQRL_E_NOT_FOUND)
        sqrl_error_set(err, SQRL_E_NOT_FOUND,
                       "there is no such file or directory; \"%s\" does not exist either",
                       parent);
    else if (siblings && sqrl_fs_list(fs, parent, false, visit_sibling, siblings, NULL,
                                      NULL) == SQRL_OK)
        say_siblings(siblings, parent, name, err);
    for (size_t i = 0; siblings && i < siblings->count; i++)
        free(siblings->names[i]);
    free(siblings);
    free(whole);
    return SQRL_E_NOT_FOUND;
}

/* --- which driver --- */
static int named_driver(struct sqrl_context *context, const char *name,
                        const struct sqrl_driver_ops **out, struct sqrl_error *err) {
    *out = sqrl_driver_by_name(context, name);
    if (*out)
        return SQRL_OK;
    return sqrl_driver_unknown(context, name, err);
}

static int sniff_file(const struct sqrl_driver_args *args,
                      const struct sqrl_format_ops **format, struct sqrl_error *err) {
    struct sqrl_sniffed sniffed;
    char names[128];
    int rc = sqrl_sniff(args->context, args->fs, args->path, &sniffed, err);
    if (!rc && !sniffed.format)
        rc = sqrl_error_set(err, SQRL_E_FORMAT,
                            "no known format: the file begins with %s; known are %s, see "
                            "driver=",
                            sniffed.begins, sqrl_format_names(names, sizeof names));
    *format = sniffed.format;
    return rc;
}

static int sniff_directory(const struct sqrl_driver_args *args,
                           const struct sqrl_format_ops **format,
                           struct sqrl_error *err) {
    struct sqrl_listing listing;
    int rc = sqrl_listing_read(args->fs, args->path, &listing, err);
    if (!rc && listing.native && (*format = sqrl_format_by_name("sqrl")))
        goto done;
    if (!rc)
        rc = sqrl_listing_classify(&listing, args->context, args->fs, args->path, NULL,
                                   format, err);
done:
    sqrl_listing_reset(&listing);
    return rc;
}

static int find_driver(const struct sqrl_driver_args *args, const char *name,
                       const struct sqrl_driver_ops **out, struct sqrl_error *err) {
    *out = NULL;
    if (name)
        return named_driver(args->context, name, out, err);
    const struct sqrl_format_ops *format = NULL;
    int rc = args->stat.directory ? sniff_directory(args, &format, err)
                                  : sniff_file(args, &format, err);
    if (!rc && !(*out = sqrl_driver_of_format(args->context, format)))
        rc =
            sqrl_error_set(err, SQRL_E_FORMAT, "no driver opens format %s", format->name);
    return rc;
}

/* Checks the settings and keeps those of sqrl_open and the driver: in *out. */
static int check_settings(const struct sqrl_driver_ops *driver, struct sqrl_fs *fs,
                          const struct sqrl_settings *settings, struct sqrl_settings *out,
                          struct sqrl_error *err) {
    const struct sqrl_option *lists[5] = {open_options};
    size_t count = 1;
    char who[64];
    if (driver->format->options)
        lists[count++] = driver->format->options;
    if (driver->options)
        lists[count++] = driver->options;
    lists[count] = sqrl_fs_options(fs);
    snprintf(who, sizeof who, "driver %s", driver->name);
    int rc = sqrl_settings_check(settings, lists, who, err);
    lists[count] = NULL;
    return rc ? rc : sqrl_settings_pick(settings, lists, out, err);
}

/* --- opening --- */
static int list_shards(const struct sqrl_driver_args *args,
                       const struct sqrl_driver_ops *driver, struct sqrl_shard_list *list,
                       struct sqrl_error *err) {
    bool own =
        driver->size >= offsetof(struct sqrl_driver_ops, open) + sizeof driver->open &&
        driver->open;
    int rc = own ? driver->open(args, list, err)
                 : sqrl_shard_list_files(args, driver->format, list, err);
    return rc;
}

static int look_up(struct sqrl_driver_args *args, const char *name,
                   const struct sqrl_driver_ops **driver, struct sqrl_error *err) {
    int rc = sqrl_fs_stat(args->fs, args->path, &args->stat, err);
    if (rc == SQRL_E_NOT_FOUND)
        rc = not_found(args->fs, args->path, err);
    return rc ? rc : find_driver(args, name, driver, err);
}

/* Far away every question costs a round trip, and listing thousands of shards several:
 * where a directory's commits may answer all of them they are asked for first. */
/* `pin`: it is this commit alone that was named. */
static int ask_commits(const struct sqrl_driver_args *args, const char *driver,
                       const char *pin, struct sqrl_commits *out,
                       struct sqrl_error *err) {
    const struct sqrl_format_ops *format;
    *out = (struct sqrl_commits){NULL, 0, 0};
    if (pin)
        return sqrl_commits_read_one(args->context, args->fs, args->path, pin, out, err);
    if (sqrl_fs_flags(args->fs) & SQRL_FS_LOCAL ||
        (driver && strcmp(driver, sqrl_driver_native.name) != 0))
        return SQRL_OK;
    for (size_t i = 0; (format = sqrl_format_at(i)); i++)
        if (sqrl_suffix_fits(format->suffixes, args->path, NULL))
            return SQRL_OK; /* it is named like a file */
    int rc = sqrl_commits_read(args->context, args->fs, args->path, out, err);
    if (rc == SQRL_E_UNSUPPORTED ||
        rc == SQRL_E_PERMISSION) { /* of listing only, maybe */
        sqrl_commits_reset(out);
        sqrl_error_clear(err);
        rc = SQRL_OK;
    }
    return rc;
}

/* args: context, fs, url and path. */
static int open_in(struct sqrl_driver_args *args, const char *pin,
                   const struct sqrl_settings *settings, struct sqrl_source **out,
                   struct sqrl_error *err) {
    struct sqrl_settings own = {NULL, 0}; /* without the file system's */
    const struct sqrl_driver_ops *driver = NULL;
    struct sqrl_shard_list list = {.fs = NULL};
    args->settings = &own;
    char *prefix = sqrl_url_prefix(args->fs, args->url, args->path, err);
    if (!prefix)
        return SQRL_E_NO_MEMORY;
    const char *name = sqrl_settings_text(settings, open_options, "driver");
    const char *listed = sqrl_settings_text(settings, open_options, "listed");
    struct sqrl_commits commits = {NULL, 0, 0};
    int rc = SQRL_OK;
    if (listed && !(sqrl_fs_flags(args->fs) & SQRL_FS_LOCAL))
        rc = sqrl_fs_keep_listings(args->fs, listed, err);
    if (!rc)
        rc = ask_commits(args, name, pin, &commits, err);
    if (!rc && commits.count) {
        args->stat.directory = true;
        driver = &sqrl_driver_native;
    } else if (!rc) {
        rc = look_up(args, name, &driver, err);
    }
    if (!rc)
        rc = check_settings(driver, args->fs, settings, &own, err);
    list = (struct sqrl_shard_list){.fs = args->fs, .prefix = prefix};
    if (!rc)
        rc = commits.count ? sqrl_shard_list_commits(args, &commits, &list, err)
                           : list_shards(args, driver, &list, err);
    sqrl_commits_reset(&commits);
    if (!rc)
        rc = sqrl_source_new(args, driver, &list, strlen(prefix), out, err);
    if (rc)
        sqrl_error_at_path(err, rc, args->url, args->path);
    sqrl_shard_list_reset(&list);
    free((void *)own.items);
    free(prefix);
    return rc;
}

static const struct sqrl_settings no_settings = {NULL, 0};

/* "DIRECTORY/_sqrl/ID.idx" names that commit alone; all else is opened as it is named. */
static int open_named(struct sqrl_driver_args *args, const struct sqrl_settings *settings,
                      struct sqrl_source **out, struct sqrl_error *err) {
    char id[SQRL_COMMIT_ID_BYTES], other[SQRL_COMMIT_ID_BYTES];
    size_t in_path = sqrl_commit_path(args->path, id);
    size_t in_url = sqrl_commit_path(args->url, other);
    if (!in_path || !in_url)
        return open_in(args, NULL, settings, out, err);
    char *path = sqrl_format(err, "%.*s", (int)in_path, args->path);
    char *url = path ? sqrl_format(err, "%.*s", (int)in_url, args->url) : NULL;
    args->path = path;
    args->url = url;
    int rc = url ? open_in(args, id, settings, out, err) : SQRL_E_NO_MEMORY;
    free(path);
    free(url);
    return rc;
}

int sqrl_open_in(struct sqrl_context *context, struct sqrl_fs *fs, const char *url,
                 const char *path, const struct sqrl_settings *settings,
                 struct sqrl_source **out, struct sqrl_error *err) {
    struct sqrl_driver_args args = {
        .context = context, .fs = sqrl_fs_ref(fs), .url = url, .path = path};
    *out = NULL;
    settings = settings ? settings : &no_settings;
    int rc = sqrl_fs_add_cache(settings, url, path, &args.fs, err);
    if (!rc)
        rc = open_named(&args, settings, out, err);
    sqrl_fs_unref(args.fs);
    return rc;
}

int sqrl_open(struct sqrl_context *context, const char *url,
              const struct sqrl_settings *settings, struct sqrl_source **out,
              struct sqrl_error *err) {
    struct sqrl_driver_args args = {.context = context, .url = url};
    char *path = NULL;
    *out = NULL;
    settings = settings ? settings : &no_settings;
    int rc = sqrl_fs_for_settings(context, url, settings, &args.fs, &path, err);
    if (rc)
        return rc;
    args.path = path;
    rc = open_named(&args, settings, out, err);
    free(path);
    sqrl_fs_unref(args.fs);
    return rc;
}
