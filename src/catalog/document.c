/* document.c - between a document, YAML or JSON, and a catalog.
 *
 * The fields of the document and of a source are two tables; everything else is an error
 * that names the nearest field. */
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog.h"
#include "catalog/yaml.h"

/* squirrel-core reads what says 0.4 and above, and only numbers between the dots. */
#define FORM_VERSION "0.20.2"

enum field { IDENTIFIER, DRIVER_NAME, DRIVER_KWARGS, VERSION, METADATA, FIELDS };
static const char *const field_names[FIELDS] = {"identifier", "driver_name",
                                                "driver_kwargs", "version", "metadata"};

enum { DOCUMENT_VERSION, SOURCES, DOCUMENT_FIELDS };
static const char *const document_names[DOCUMENT_FIELDS] = {"version", "sources"};

static bool node_is(const struct sqrl_yaml *yaml, uint32_t node, const char *text) {
    const struct sqrl_node *n = &yaml->tape.nodes[node];
    return n->type == SQRL_STRING && n->size == strlen(text) &&
           memcmp(yaml->text.data + n->v.offset, text, n->size) == 0;
}

static int unknown_field(const struct sqrl_yaml *yaml, uint32_t key, const char *of,
                         const char *const *names, size_t count, struct sqrl_error *err) {
    const struct sqrl_node *n = &yaml->tape.nodes[key];
    char name[64] = "(no text)";
    if (n->type == SQRL_STRING)
        snprintf(name, sizeof name, "%.*s", (int)SQRL_MIN(n->size, 60u),
                 (const char *)yaml->text.data + n->v.offset);
    const char *nearest = sqrl_nearest(name, names, count);
    if (nearest)
        return sqrl_yaml_error(yaml, key, err, SQRL_E_CORRUPT,
                               "a %s has no field %s; did you mean %s?", of, name,
                               nearest);
    char all[128] = "";
    for (size_t i = 0, at = 0; i < count; i++)
        at +=
            (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", names[i]);
    return sqrl_yaml_error(yaml, key, err, SQRL_E_CORRUPT,
                           "a %s has no field %s; it has %s", of, name, all);
}

/* The values of a map's fields; SQRL_NO_NODE where there is none. */
static int read_fields(const struct sqrl_yaml *yaml, uint32_t map, const char *of,
                       const char *const *names, size_t count, uint32_t *value,
                       struct sqrl_error *err) {
    const struct sqrl_node *nodes = yaml->tape.nodes;
    for (size_t i = 0; i < count; i++)
        value[i] = SQRL_NO_NODE;
    if (nodes[map].type != SQRL_MAP)
        return sqrl_yaml_error(yaml, map, err, SQRL_E_CORRUPT,
                               "a %s is a map with the fields %s and so on", of,
                               names[0]);
    uint32_t end = sqrl_node_next(nodes, map);
    for (uint32_t key = map + 1; key < end; key = sqrl_node_next(nodes, key + 1)) {
        size_t i = 0;
        while (i < count && !node_is(yaml, key, names[i]))
            i++;
        if (i == count)
            return unknown_field(yaml, key, of, names, count, err);
        value[i] = key + 1;
    }
    return SQRL_OK;
}

/* "0.20.2", "0.20.2-dev1": 0.4 and above. */
static int check_version(const struct sqrl_yaml *yaml, uint32_t node,
                         struct sqrl_error *err) {
    if (node == SQRL_NO_NODE)
        return SQRL_OK;
    const struct sqrl_node *n = &yaml->tape.nodes[node];
    char text[32] = "";
    unsigned major = 0, minor = 0;
    if (n->type == SQRL_FLOAT && n->v.f >= 0 && n->v.f < 1e6)
        snprintf(text, sizeof text, n->v.f == (unsigned)n->v.f ? "%.1f" : "%g", n->v.f);
    else if (n->type == SQRL_STRING)
        snprintf(text, sizeof text, "%.*s", (int)SQRL_MIN(n->size, 31u),
                 (const char *)yaml->text.data + n->v.offset);
    if (sscanf(text, "%u.%u", &major, &minor) != 2)
        return sqrl_yaml_error(yaml, node, err, SQRL_E_CORRUPT,
                               "the version of a catalog is a text as %s", FORM_VERSION);
    if (major == 0 && minor < 4)
        return sqrl_yaml_error(yaml, node, err, SQRL_E_UNSUPPORTED,
                               "a catalog of version %s; 0.4 and later are read", text);
    return SQRL_OK;
}

/* A field that is a text without NUL, copied; `what` names it. */
static int read_text(const struct sqrl_yaml *yaml, uint32_t source, uint32_t node,
                     const char *what, char **out, struct sqrl_error *err) {
    if (node == SQRL_NO_NODE)
        return sqrl_yaml_error(yaml, source, err, SQRL_E_CORRUPT, "a source without %s",
                               what);
    const struct sqrl_node *n = &yaml->tape.nodes[node];
    const char *text = (const char *)yaml->text.data + n->v.offset;
    bool time = n->type == SQRL_EXT && n->aux == SQRL_CATALOG_TIME_EXT + 128;
    if ((n->type != SQRL_STRING && !time) || !n->size || memchr(text, 0, n->size))
        return sqrl_yaml_error(yaml, node, err, SQRL_E_CORRUPT,
                               "%s is not a text; quote it where it looks like a number",
                               what);
    *out = sqrl_format(err, "%.*s", (int)n->size, text);
    return *out ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* A field that is a map or null, as MessagePack; nothing where it is not there. */
static int read_map(const struct sqrl_yaml *yaml, uint32_t node, const char *what,
                    struct sqrl_bytes *out, struct sqrl_error *err) {
    if (node == SQRL_NO_NODE || yaml->tape.nodes[node].type == SQRL_NULL)
        return SQRL_OK;
    const struct sqrl_node *nodes = yaml->tape.nodes;
    if (nodes[node].type != SQRL_MAP)
        return sqrl_yaml_error(yaml, node, err, SQRL_E_CORRUPT, "%s is not a map", what);
    uint32_t end = sqrl_node_next(nodes, node);
    for (uint32_t key = node + 1; key < end; key = sqrl_node_next(nodes, key + 1))
        if (nodes[key].type != SQRL_STRING)
            return sqrl_yaml_error(yaml, key, err, SQRL_E_CORRUPT,
                                   "a key of %s is not a text; quote it", what);
    return sqrl_msgpack_encode(out, nodes, node, yaml->text.data, err);
}

/* What one source needs while it is read; kept from source to source. */
struct parts {
    char *name, *driver;
    struct sqrl_bytes kwargs, metadata;
};

static void clear_parts(struct parts *parts) {
    free(parts->name);
    free(parts->driver);
    parts->name = parts->driver = NULL;
    parts->kwargs.size = parts->metadata.size = 0;
}

/* A map that says what msgpack-numpy says of an array is one from then on, and could not
 * be written again. */
static int check_arrays(const struct sqrl_catalog *catalog, const char *name,
                        uint64_t version, struct sqrl_error *err) {
    struct sqrl_catalog_source source;
    int code = sqrl_catalog_find(catalog, name, (int64_t)version, &source, err);
    if (code)
        return code;
    const struct sqrl_node *map[] = {source.kwargs, source.metadata};
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < map[k]->v.next; i++)
            if (map[k][i].type == SQRL_NDARRAY)
                return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                                      "a map of nd, type, kind, shape and data means an "
                                      "array; a catalog's file holds none");
    return SQRL_OK;
}

static int read_source(struct sqrl_catalog *catalog, const struct sqrl_yaml *yaml,
                       uint32_t node, struct parts *parts, struct sqrl_error *err) {
    uint32_t value[FIELDS];
    uint64_t version = 1;
    int code = read_fields(yaml, node, "source", field_names, FIELDS, value, err);
    if (!code)
        code = read_text(yaml, node, value[IDENTIFIER], "identifier", &parts->name, err);
    if (!code)
        code =
            read_text(yaml, node, value[DRIVER_NAME], "driver_name", &parts->driver, err);
    if (!code)
        code = read_map(yaml, value[DRIVER_KWARGS], "driver_kwargs", &parts->kwargs, err);
    if (!code)
        code = read_map(yaml, value[METADATA], "metadata", &parts->metadata, err);
    if (!code && value[VERSION] != SQRL_NO_NODE) {
        const struct sqrl_node *n = &yaml->tape.nodes[value[VERSION]];
        version = n->v.u;
        if (n->type != SQRL_INT || n->v.i < 1)
            code = sqrl_yaml_error(yaml, value[VERSION], err, SQRL_E_CORRUPT,
                                   "the version of a source is a whole number from 1");
    }
    if (code)
        return code;
    code = sqrl_catalog_add(
        catalog, parts->name, version, parts->driver,
        parts->kwargs.size ? parts->kwargs.data : NULL, parts->kwargs.size,
        parts->metadata.size ? parts->metadata.data : NULL, parts->metadata.size, err);
    if (!code)
        code = check_arrays(catalog, parts->name, version, err);
    if (code && yaml->mark)
        sqrl_error_at(err, code, "line %u", yaml->mark[node].line);
    return code;
}

static int read_document(struct sqrl_catalog *catalog, const struct sqrl_yaml *yaml,
                         struct sqrl_error *err) {
    const struct sqrl_node *nodes = yaml->tape.nodes;
    uint32_t value[DOCUMENT_FIELDS];
    struct parts parts = {0};
    unsigned number = 0;
    int code =
        read_fields(yaml, 0, "catalog", document_names, DOCUMENT_FIELDS, value, err);
    if (!code)
        code = check_version(yaml, value[DOCUMENT_VERSION], err);
    if (code || value[SOURCES] == SQRL_NO_NODE || nodes[value[SOURCES]].type == SQRL_NULL)
        return code;
    if (nodes[value[SOURCES]].type != SQRL_ARRAY)
        return sqrl_yaml_error(yaml, value[SOURCES], err, SQRL_E_CORRUPT,
                               "sources is not a list");
    uint32_t end = sqrl_node_next(nodes, value[SOURCES]);
    for (uint32_t i = value[SOURCES] + 1; i < end && !code;
         i = sqrl_node_next(nodes, i)) {
        code = read_source(catalog, yaml, i, &parts, err);
        if (code && !yaml->mark)
            sqrl_error_at(err, code, "source %u", number);
        number++;
        clear_parts(&parts);
    }
    sqrl_bytes_reset(&parts.kwargs);
    sqrl_bytes_reset(&parts.metadata);
    return code;
}

int sqrl_catalog_read(struct sqrl_catalog *catalog, const char *text, size_t size,
                      enum sqrl_catalog_form form, const char *where,
                      struct sqrl_error *err) {
    struct sqrl_yaml document = {0};
    int code = form == SQRL_CATALOG_JSON
                   ? sqrl_catalog_json_read(&document, text, size, err)
                   : sqrl_yaml_read(&document, text, size, err);
    if (!code)
        code = read_document(catalog, &document, err);
    sqrl_yaml_reset(&document);
    return code && where ? sqrl_error_at(err, code, "%s", where) : code;
}

static enum sqrl_catalog_form form_of(const char *url) {
    size_t size = strlen(url);
    return size > 5 && strcmp(url + size - 5, ".json") == 0 ? SQRL_CATALOG_JSON
                                                            : SQRL_CATALOG_YAML;
}

int sqrl_catalog_read_file(struct sqrl_catalog *catalog, struct sqrl_context *context,
                           const char *url, struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_file *file = NULL;
    char *path = NULL, *text = NULL;
    int code = sqrl_fs_for_url(context, url, NULL, &fs, &path, err);
    if (code)
        return code;
    code = sqrl_file_open(fs, path, &file, err);
    uint64_t size = code ? 0 : sqrl_file_size(file);
    if (!code && size > SQRL_YAML_MAX_BYTES) {
        sqrl_error_set(err, SQRL_E_LIMIT, "%llu bytes; a catalog has at most %d",
                       (unsigned long long)size, SQRL_YAML_MAX_BYTES);
        code = sqrl_error_at(err, SQRL_E_LIMIT, "%s", path);
    }
    if (!code && !(text = sqrl_malloc((size_t)size + 1, "a catalog's text", err)))
        code = SQRL_E_NO_MEMORY;
    if (!code)
        code = sqrl_file_read_exact(file, 0, text, (size_t)size, NULL, err);
    bool before = catalog->distrusts;
    catalog->distrusts =
        before || sqrl_catalog_reaches_out(sqrl_fs_ops_for_url(context, url));
    if (!code)
        code = sqrl_catalog_read(catalog, text, (size_t)size, form_of(url), url, err);
    catalog->distrusts = before;
    free(text);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    free(path);
    return code;
}

/* --- writing --- */
static int put_field(struct sqrl_bytes *out, const char *name, const char *text,
                     struct sqrl_error *err) {
    int code = sqrl_bytes_append(out, name, strlen(name), err);
    if (!code)
        code = sqrl_yaml_write_text(out, text, strlen(text), err);
    return code ? code : sqrl_bytes_append(out, "\n", 1, err);
}

static int put_map(struct sqrl_bytes *out, const char *name,
                   const struct sqrl_node *nodes, const uint8_t *bytes,
                   struct sqrl_error *err) {
    int code = sqrl_bytes_append(out, name, strlen(name), err);
    return code ? code : sqrl_yaml_write(out, nodes, 0, bytes, 4, err);
}

static int write_source(const struct sqrl_catalog_source *source, struct sqrl_bytes *out,
                        struct sqrl_error *err) {
    char version[48];
    snprintf(version, sizeof version, "  version: %llu\n",
             (unsigned long long)source->version);
    int code = put_field(out, "- !YamlSource\n  identifier: ", source->name, err);
    if (!code)
        code = put_field(out, "  driver_name: ", source->driver_name, err);
    if (!code)
        code = put_map(out, "  driver_kwargs:", source->kwargs, source->bytes, err);
    if (!code)
        code = sqrl_bytes_append(out, version, strlen(version), err);
    if (!code)
        code = put_map(out, "  metadata:", source->metadata, source->bytes, err);
    return code ? sqrl_error_at(err, code, "source \"%.80s\"", source->name) : SQRL_OK;
}

static int write_yaml(const struct sqrl_catalog *catalog, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    static const char head[] = "!YamlCatalog\nversion: " FORM_VERSION "\nsources:";
    bool any = sqrl_catalog_count(catalog) > 0;
    uint64_t cursor = 0;
    struct sqrl_catalog_source source;
    int code = sqrl_bytes_append(out, head, sizeof head - 1, err);
    if (!code)
        code = sqrl_bytes_append(out, any ? "\n" : " []\n", any ? 1 : 4, err);
    while (!code && sqrl_catalog_next(catalog, &cursor, &source))
        code = write_source(&source, out, err);
    return code;
}

/* --- canonical JSON: sources by name and version, fields in the order of their names ---
 */
static int by_name(const void *x, const void *y) {
    const struct sqrl_catalog_source *a = x, *b = y;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->version > b->version) - (a->version < b->version);
}

static int put_text(struct sqrl_bytes *out, const char *key, const char *text,
                    struct sqrl_error *err) {
    struct sqrl_node node = {.type = SQRL_STRING, .size = (uint32_t)strlen(text)};
    int code = sqrl_bytes_append(out, key, strlen(key), err);
    return code ? code : sqrl_json_encode(out, &node, 0, (const uint8_t *)text, err);
}

static int put_json(struct sqrl_bytes *out, const char *key,
                    const struct sqrl_node *nodes, const uint8_t *bytes,
                    struct sqrl_error *err) {
    int code = sqrl_bytes_append(out, key, strlen(key), err);
    if (!code)
        code = sqrl_catalog_json_write(out, nodes, 0, bytes, err);
    return code;
}

static int write_json_source(const struct sqrl_catalog_source *source,
                             struct sqrl_bytes *out, struct sqrl_error *err) {
    char version[48];
    snprintf(version, sizeof version, ",\"version\":%llu}",
             (unsigned long long)source->version);
    int code = put_json(out, "{\"driver_kwargs\":", source->kwargs, source->bytes, err);
    if (!code)
        code = put_text(out, ",\"driver_name\":", source->driver_name, err);
    if (!code)
        code = put_text(out, ",\"identifier\":", source->name, err);
    if (!code)
        code = put_json(out, ",\"metadata\":", source->metadata, source->bytes, err);
    if (!code)
        code = sqrl_bytes_append(out, version, strlen(version), err);
    return code ? sqrl_error_at(err, code, "source \"%.80s\"", source->name) : SQRL_OK;
}

static int write_json(const struct sqrl_catalog *catalog, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    static const char head[] = "{\"sources\":[",
                      tail[] = "],\"version\":\"" FORM_VERSION "\"}\n";
    size_t count = sqrl_catalog_count(catalog), n = 0;
    struct sqrl_catalog_source *all =
        sqrl_calloc(count + 1, sizeof *all, "the sources of a catalog", err);
    if (!all)
        return SQRL_E_NO_MEMORY;
    for (uint64_t cursor = 0; sqrl_catalog_next(catalog, &cursor, &all[n]);)
        n++;
    qsort(all, n, sizeof *all, by_name);
    int code = sqrl_bytes_append(out, head, sizeof head - 1, err);
    for (size_t i = 0; i < n && !code; i++) {
        code = sqrl_bytes_append(out, ",", i ? 1 : 0, err);
        if (!code)
            code = write_json_source(&all[i], out, err);
    }
    free(all);
    return code ? code : sqrl_bytes_append(out, tail, sizeof tail - 1, err);
}

int sqrl_catalog_write(const struct sqrl_catalog *catalog, enum sqrl_catalog_form form,
                       struct sqrl_bytes *out, struct sqrl_error *err) {
    size_t before = out->size;
    int code = (form == SQRL_CATALOG_JSON ? write_json : write_yaml)(catalog, out, err);
    if (code)
        out->size = before;
    return code;
}

int sqrl_catalog_write_file(const struct sqrl_catalog *catalog,
                            struct sqrl_context *context, const char *url, bool replace,
                            struct sqrl_error *err) {
    struct sqrl_bytes text = {0};
    struct sqrl_fs *fs = NULL;
    struct sqrl_file_writer *file = NULL;
    char *path = NULL;
    int code = sqrl_catalog_write(catalog, form_of(url), &text, err);
    if (!code)
        code = sqrl_fs_for_url(context, url, NULL, &fs, &path, err);
    if (!code)
        code = sqrl_file_create(fs, path, replace, &file, err);
    if (!code)
        code = sqrl_file_write(file, text.data, text.size, err);
    if (!code)
        code = sqrl_file_commit(file, err);
    else if (file)
        sqrl_file_abort(file);
    sqrl_fs_unref(fs);
    free(path);
    sqrl_bytes_reset(&text);
    return code;
}
