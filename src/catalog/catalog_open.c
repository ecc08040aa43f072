/* catalog_open.c - from a source's description to an open source.
 *
 * Arguments become settings: "url" is the place, every scalar else an option as text. */
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog.h"
#include "driver/driver.h"

/* Names that others use for drivers of ours. */
static const struct {
    const char *name, *ours;
} aliases[] = {{"native", "sqrl"}, {"squirrel", "sqrl"}, {"msgpack", "messagepack"}};

/* squirrel-core's drivers that only Python has. */
static const char *const python_only[] = {
    "csv",  "excel",   "feather",         "file",
    "zarr", "parquet", "source_combiner", "store_driver"};

static const char *our_driver(const char *name) {
    for (size_t i = 0; i < SQRL_COUNT_OF(aliases); i++)
        if (strcmp(aliases[i].name, name) == 0)
            return aliases[i].ours;
    return name;
}

static int check_driver(struct sqrl_context *context, const char *name,
                        struct sqrl_error *err) {
    if (sqrl_driver_by_name(context, our_driver(name)))
        return SQRL_OK;
    for (size_t i = 0; i < SQRL_COUNT_OF(python_only); i++)
        if (strcmp(python_only[i], name) == 0)
            return sqrl_error_set(
                err, SQRL_E_UNSUPPORTED,
                "driver \"%s\" is one of the Python package's; open this "
                "source from Python",
                name);
    return sqrl_driver_unknown(context, name, err);
}

/* The settings that a source's arguments make, with the texts they point into. */
struct arguments {
    struct sqrl_setting *setting;
    size_t count;
    char *url;
};

static void reset_arguments(struct arguments *arguments) {
    for (size_t i = 0; i < arguments->count; i++) {
        free((char *)arguments->setting[i].name);
        free((char *)arguments->setting[i].value);
    }
    free(arguments->setting);
    free(arguments->url);
}

static bool is_time(const struct sqrl_node *n) {
    return n->type == SQRL_EXT && n->aux == SQRL_CATALOG_TIME_EXT + 128;
}

/* A text is itself, and a date as it is written; other scalars as JSON writes them: true,
 * 3, 0.5. */
static char *scalar_text(const struct sqrl_catalog_source *source, uint32_t node,
                         struct sqrl_error *err) {
    const struct sqrl_node *n = &source->kwargs[node];
    bool text_like = n->type == SQRL_STRING || is_time(n);
    if (text_like && memchr(source->bytes + n->v.offset, 0, n->size)) {
        sqrl_error_set(err, SQRL_E_UNSUPPORTED, "an argument has a NUL in it");
        return NULL;
    }
    if (text_like)
        return sqrl_format(err, "%.*s", (int)n->size,
                           (const char *)source->bytes + n->v.offset);
    struct sqrl_bytes json = {0};
    char *text = NULL;
    if (sqrl_json_encode(&json, source->kwargs, node, source->bytes, err) == SQRL_OK)
        text = sqrl_format(err, "%.*s", (int)json.size, (const char *)json.data);
    sqrl_bytes_reset(&json);
    return text;
}

/* Arguments of squirrel-core's drivers that concern remote places only. */
static bool is_ignored(const char *name, const struct sqrl_node *value) {
    return value->type == SQRL_NULL ||
           (value->type == SQRL_MAP && strcmp(name, "storage_options") == 0);
}

static int add_argument(const struct sqrl_catalog_source *source, uint32_t key,
                        struct arguments *out, struct sqrl_error *err) {
    const struct sqrl_node *n = &source->kwargs[key], *value = n + 1;
    char *name =
        sqrl_format(err, "%.*s", (int)n->size, (const char *)source->bytes + n->v.offset);
    char *text = NULL;
    int code = name ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!code && is_ignored(name, value))
        goto done;
    if (!code && value->type > SQRL_STRING && !is_time(value))
        code = sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "the argument \"%.60s\" is no text, number or boolean; the "
                              "library's drivers take no others",
                              name);
    if (!code && !(text = scalar_text(source, key + 1, err)))
        code = err ? err->code : SQRL_E_NO_MEMORY;
    if (code)
        goto done;
    if (strcmp(name, "url") == 0) {
        free(out->url);
        out->url = text;
    } else {
        out->setting[out->count++] = (struct sqrl_setting){name, text};
        return SQRL_OK;
    }
done:
    free(name);
    return code;
}

static int read_arguments(const struct sqrl_catalog_source *source,
                          const struct sqrl_settings *more, struct arguments *out,
                          struct sqrl_error *err) {
    size_t extra = more ? more->count : 0, room = source->kwargs[0].size + extra + 2;
    *out = (struct arguments){0};
    out->setting = sqrl_calloc(room, sizeof *out->setting, "arguments", err);
    if (!out->setting)
        return SQRL_E_NO_MEMORY;
    out->setting[out->count++] = (struct sqrl_setting){
        sqrl_strdup("driver", err), sqrl_strdup(our_driver(source->driver_name), err)};
    int code = out->setting[0].name && out->setting[0].value ? SQRL_OK : SQRL_E_NO_MEMORY;
    uint32_t end = sqrl_node_next(source->kwargs, 0);
    for (uint32_t key = 1; key < end && !code;
         key = sqrl_node_next(source->kwargs, key + 1))
        code = add_argument(source, key, out, err);
    for (size_t i = 0; i < extra && !code; i++) {
        struct sqrl_setting *added = &out->setting[out->count++];
        *added = (struct sqrl_setting){sqrl_strdup(more->items[i].name, err),
                                       sqrl_strdup(more->items[i].value, err)};
        code = added->name && added->value ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    if (!code && !out->url)
        code =
            sqrl_error_set(err, SQRL_E_NOT_FOUND,
                           "its driver_kwargs have no url, so there is nothing to open");
    return code;
}

bool sqrl_catalog_reaches_out(const struct sqrl_fs_ops *fs) {
    const struct sqrl_option *option = fs ? fs->options : NULL;
    while (option && option->name && strcmp(option->name, "public_only") != 0)
        option++;
    return option && option->name;
}

/* Says "public_only", behind all else: the last word counts. */
static int add_public_only(struct arguments *arguments, struct sqrl_error *err) {
    struct sqrl_setting *added = &arguments->setting[arguments->count++];
    *added =
        (struct sqrl_setting){sqrl_strdup("public_only", err), sqrl_strdup("true", err)};
    return added->name && added->value ? SQRL_OK : SQRL_E_NO_MEMORY;
}

int sqrl_catalog_source_open(struct sqrl_context *context,
                             const struct sqrl_catalog_source *source,
                             const struct sqrl_settings *more, struct sqrl_source **out,
                             struct sqrl_error *err) {
    struct arguments arguments = {0};
    *out = NULL;
    int code = check_driver(context, source->driver_name, err);
    if (!code)
        code = read_arguments(source, more, &arguments, err);
    if (!code && source->untrusted &&
        sqrl_catalog_reaches_out(sqrl_fs_ops_for_url(context, arguments.url)))
        code = add_public_only(&arguments, err);
    if (!code) {
        struct sqrl_settings settings = {arguments.setting, arguments.count};
        code = sqrl_open(context, arguments.url, &settings, out, err);
    }
    reset_arguments(&arguments);
    return code ? sqrl_error_at(err, code, "source \"%.80s\"", source->name) : SQRL_OK;
}

int sqrl_catalog_source_check(struct sqrl_context *context,
                              const struct sqrl_catalog_source *source,
                              struct sqrl_error *err) {
    struct arguments arguments = {0};
    char who[80];
    int code = check_driver(context, source->driver_name, err);
    if (!code)
        code = read_arguments(source, NULL, &arguments, err);
    if (!code) {
        const struct sqrl_driver_ops *driver =
            sqrl_driver_by_name(context, our_driver(source->driver_name));
        const struct sqrl_fs_ops *fs = sqrl_fs_ops_for_url(context, arguments.url);
        const struct sqrl_option *lists[5] = {sqrl_open_options()};
        size_t count = 1;
        if (driver->format && driver->format->options)
            lists[count++] = driver->format->options;
        if (driver->options)
            lists[count++] = driver->options;
        if (fs)
            lists[count++] = fs->options;
        struct sqrl_settings settings = {arguments.setting, arguments.count};
        snprintf(who, sizeof who, "driver %s", driver->name);
        code = sqrl_settings_check(&settings, lists, who, err);
    }
    reset_arguments(&arguments);
    return code ? sqrl_error_at(err, code, "source \"%.80s\"", source->name) : SQRL_OK;
}

/* "name@12" and "name@-1" in place into name and version. */
static int64_t split_version(char *name) {
    char *at = strrchr(name, '@');
    char *end;
    if (!at || at == name || !((at[1] >= '0' && at[1] <= '9') || strcmp(at, "@-1") == 0))
        return -1;
    long long version = strtoll(at + 1, &end, 10);
    if (*end)
        return -1;
    *at = '\0';
    return version;
}

int sqrl_catalog_refer(struct sqrl_context *context, const char *reference,
                       struct sqrl_catalog **catalog, struct sqrl_catalog_source *source,
                       struct sqrl_error *err) {
    *catalog = NULL;
    *source = (struct sqrl_catalog_source){0};
    const char *hash = strrchr(reference, '#');
    if (!hash || !hash[1])
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "\"%.200s\" names no source; it is written "
                              "catalog.yaml#name or catalog.yaml#name@version, or "
                              "#name of the default catalog",
                              reference);
    char *file = sqrl_format(err, "%.*s", (int)(hash - reference), reference);
    char *name = file ? sqrl_strdup(hash + 1, err) : NULL;
    int code = name ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!code)
        code = *file ? sqrl_catalog_new(catalog, err)
                     : sqrl_catalog_default(context, catalog, err);
    if (!code && *file)
        code = sqrl_catalog_read_file(*catalog, context, file, err);
    if (!code) {
        int64_t version = split_version(name);
        code = sqrl_catalog_find(*catalog, name, version, source, err);
        if (code)
            sqrl_error_at(err, code, "%s", *file ? file : "the default catalog");
    }
    if (code) {
        sqrl_catalog_free(*catalog);
        *catalog = NULL;
    }
    free(name);
    free(file);
    return code;
}

int sqrl_catalog_open(struct sqrl_context *context, const char *reference,
                      const struct sqrl_settings *more, struct sqrl_source **out,
                      struct sqrl_error *err) {
    struct sqrl_catalog *catalog;
    struct sqrl_catalog_source source;
    *out = NULL;
    int code = sqrl_catalog_refer(context, reference, &catalog, &source, err);
    if (code)
        return code;
    code = sqrl_catalog_source_open(context, &source, more, out, err);
    if (code) {
        size_t size = (size_t)(strrchr(reference, '#') - reference);
        sqrl_error_at(err, code, "%.*s", (int)(size ? size : 19),
                      size ? reference : "the default catalog");
    }
    sqrl_catalog_free(catalog);
    return code;
}
