/* sqrl/catalog.h - versioned sources under names.
 *
 * A catalog maps (name, version) to a source's description: driver, arguments, metadata.
 * It is read from and written as YAML in the form that squirrel-core uses (tags
 * !YamlCatalog, !YamlSource). Nothing in a catalog is executed. Threads: a catalog
 * belongs to one thread at a time; reading a finished one is free for all.
 */
#ifndef SQRL_CATALOG_H
#define SQRL_CATALOG_H

#include "source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqrl_catalog;

/* One version of one source. Nested values (driver_kwargs, metadata) are tapes of maps:
 * node 0 is the root. Lives as long as the catalog is not changed. */
struct sqrl_catalog_source {
    const char *name;
    uint64_t version; /* 1, 2, 3 ... */
    const char *driver_name;
    const struct sqrl_node *kwargs;
    const struct sqrl_node *metadata;
    const uint8_t *bytes; /* what the nodes point into */
};

SQRL_CHECK int sqrl_catalog_new(struct sqrl_catalog **out, struct sqrl_error *err);
SQRL_API void sqrl_catalog_free(struct sqrl_catalog *catalog);

/* Reads YAML text; `where` names it in messages. Sources are added; the same name and
 * version twice is SQRL_E_EXISTS. Errors name line and column. */
SQRL_CHECK int sqrl_catalog_read(struct sqrl_catalog *catalog, const char *yaml,
                                 size_t size, const char *where, struct sqrl_error *err);
SQRL_CHECK int sqrl_catalog_read_file(struct sqrl_catalog *catalog,
                                      struct sqrl_context *context, const char *url,
                                      struct sqrl_error *err);
/* As YAML, appended to `out`. */
SQRL_CHECK int sqrl_catalog_write(const struct sqrl_catalog *catalog,
                                  struct sqrl_bytes *out, struct sqrl_error *err);

/* Adds a source; version 0: one above the latest. kwargs and metadata are MessagePack
 * maps (may be NULL: empty). */
SQRL_CHECK int sqrl_catalog_add(struct sqrl_catalog *catalog, const char *name,
                                uint64_t version, const char *driver_name,
                                const uint8_t *kwargs, size_t kwargs_size,
                                const uint8_t *metadata, size_t metadata_size,
                                struct sqrl_error *err);

/* Sources in order of name, then version. */
SQRL_API size_t sqrl_catalog_count(const struct sqrl_catalog *catalog);
SQRL_CHECK int sqrl_catalog_at(const struct sqrl_catalog *catalog, size_t i,
                               struct sqrl_catalog_source *out, struct sqrl_error *err);
/* Version 0 or -1: the latest. A name that is not there is SQRL_E_NOT_FOUND with the
 * nearest. */
SQRL_CHECK int sqrl_catalog_find(const struct sqrl_catalog *catalog, const char *name,
                                 int64_t version, struct sqrl_catalog_source *out,
                                 struct sqrl_error *err);

/* Opens what "catalog.yaml#name" or "catalog.yaml#name@version" names: its driver with
 * its arguments (url and the driver's options). */
SQRL_CHECK int sqrl_catalog_open(struct sqrl_context *context, const char *reference,
                                 struct sqrl_source **out, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
