/* settings.c - one list of settings, several owners.
 *
 * A caller of sqrl_open or of a packer gives one list; its items belong to the file
 * system, to the driver with its format, or to sqrl_open itself. Each owner gets its own
 * only: file systems refuse what they don't know, and a store's secret is no business of
 * a format. A name that two owners declare goes to both. A name that none declares is
 * refused when all owners are known. */
#include <stdlib.h>

#include "driver/driver.h"
#include "sqrl/cache.h"

static bool declared(const struct sqrl_option *const *lists, const char *name) {
    for (; *lists; lists++)
        for (const struct sqrl_option *option = *lists; option->name; option++)
            if (strcmp(option->name, name) == 0)
                return true;
    return false;
}

int sqrl_settings_pick(const struct sqrl_settings *settings,
                       const struct sqrl_option *const *lists, struct sqrl_settings *out,
                       struct sqrl_error *err) {
    *out = (struct sqrl_settings){NULL, 0};
    size_t count = settings ? settings->count : 0;
    struct sqrl_setting *items = sqrl_calloc(count + 1, sizeof *items, "settings", err);
    if (!items)
        return SQRL_E_NO_MEMORY;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (declared(lists, settings->items[i].name))
            items[kept++] = settings->items[i];
    *out = (struct sqrl_settings){items, kept};
    return SQRL_OK;
}

/* Puts the shim of the setting "throttle" around the file system. */
static int add_throttle(const struct sqrl_settings *settings, struct sqrl_fs **fs,
                        struct sqrl_error *err) {
    const char *text =
        settings ? sqrl_settings_text(settings, sqrl_open_options(), "throttle") : NULL;
    struct sqrl_link link;
    struct sqrl_fs *slow = NULL;
    if (!text)
        return SQRL_OK;
    int rc = sqrl_link_parse(text, &link, err);
    if (!rc)
        rc = sqrl_fs_throttle(*fs, &link, &slow, err);
    if (!rc) {
        sqrl_fs_unref(*fs);
        *fs = slow;
    }
    return rc;
}

/* The settings that tell apart places with the same URLs (endpoints), as one text. */
static char *place_of(const struct sqrl_settings *settings,
                      const struct sqrl_option *options, struct sqrl_error *err) {
    char *place = sqrl_strdup("", err);
    for (; place && options && options->name; options++) {
        const char *value = options->kind == SQRL_OPTION_URL
                                ? sqrl_settings_text(settings, options, options->name)
                                : NULL;
        if (!value)
            continue;
        char *longer = sqrl_format(err, "%s%s=%s\n", place, options->name, value);
        free(place);
        place = longer;
    }
    return place;
}

int sqrl_fs_add_cache(const struct sqrl_settings *settings, const char *url,
                      const char *path, struct sqrl_fs **fs, struct sqrl_error *err) {
    const char *text =
        settings ? sqrl_settings_text(settings, sqrl_open_options(), "cache") : NULL;
    size_t whole = strlen(url), tail = strlen(path);
    bool ends = tail <= whole && strcmp(url + whole - tail, path) == 0;
    struct sqrl_fs *kept = NULL;
    if (!text)
        return SQRL_OK;
    char *base = sqrl_format(err, "%.*s", ends ? (int)(whole - tail) : 0, url);
    char *place = base ? place_of(settings, sqrl_fs_options(*fs), err) : NULL;
    int rc = place ? sqrl_fs_cache(*fs, text, base, place, &kept, err) : SQRL_E_NO_MEMORY;
    free(base);
    free(place);
    if (!rc) {
        sqrl_fs_unref(*fs);
        *fs = kept;
    }
    return rc;
}

int sqrl_fs_for_settings(struct sqrl_context *context, const char *url,
                         const struct sqrl_settings *settings, struct sqrl_fs **out,
                         char **path, struct sqrl_error *err) {
    const struct sqrl_fs_ops *ops = sqrl_fs_ops_for_url(context, url);
    const struct sqrl_option *lists[] = {ops ? ops->options : NULL, NULL};
    struct sqrl_settings own;
    *out = NULL;
    *path = NULL;
    int rc = sqrl_settings_pick(settings, lists, &own, err);
    if (!rc)
        rc = sqrl_fs_for_url(context, url, &own, out, path, err);
    free((void *)own.items);
    if (!rc)
        rc = add_throttle(settings, out, err);
    if (!rc)
        rc = sqrl_fs_add_cache(settings, url, *path, out, err);
    if (rc) {
        sqrl_fs_unref(*out);
        free(*path);
        *out = NULL;
        *path = NULL;
    }
    return rc;
}
