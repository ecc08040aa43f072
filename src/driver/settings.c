/* settings.c - one list of settings, several owners.
 *
 * A caller of sqrl_open or of a packer gives one list; its items belong to the file
 * system, to the driver with its format, or to sqrl_open itself. Each owner gets its own
 * only: file systems refuse what they don't know, and a store's secret is no business of
 * a format. A name that two owners declare goes to both. A name that none declares is
 * refused when all owners are known. */
#include <stdlib.h>

#include "driver/driver.h"

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
    if (rc) {
        sqrl_fs_unref(*out);
        free(*path);
        *out = NULL;
        *path = NULL;
    }
    return rc;
}
