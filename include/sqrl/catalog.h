/* sqrl/catalog.h - versioned sources under names.
 *
 * A catalog maps (name, version) to a source's description: driver, arguments, metadata.
 * It is read from and written as YAML in squirrel-core's form, so that each package reads
 * what the other wrote:
 *
 *     !YamlCatalog
 *     version: 0.20.2
 *     sources:
 *     - !YamlSource
 *       identifier: train
 *       driver_name: messagepack
 *       driver_kwargs:
 *         url: data/train
 *       version: 1
 *       metadata: {}
 *
 * The reader is strict: no tags but squirrel-core's three, no merge or duplicate keys,
 * no unknown fields; aliases are expanded. Nothing in a catalog is executed. Threads: a
 * catalog belongs to one thread at a time; reading a finished one is free for all.
 */
#ifndef SQRL_CATALOG_H
#define SQRL_CATALOG_H

#include "source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqrl_catalog;

/* A value that was tagged !CatalogKey (a reference to another source, as
 * source_combiner's arguments hold it) is a MessagePack extension of this type; its
 * content is the MessagePack array [name, version]. */
#define SQRL_CATALOG_KEY_EXT 1

/* One version of one source. kwargs and metadata are tapes of a map each: node 0 is the
 * root, all nodes point into `bytes`. The same two maps stand in `bytes` as MessagePack,
 * for programs that decode it themselves. Lives as long as the catalog. */
struct sqrl_catalog_source {
    const char *name;
    uint64_t version; /* 1, 2, 3 ... */
    const char *driver_name;
    const struct sqrl_node *kwargs;
    const struct sqrl_node *metadata;
    const uint8_t *bytes; /* kwargs, then metadata */
    size_t kwargs_size, metadata_size;
};

SQRL_CHECK int sqrl_catalog_new(struct sqrl_catalog **out, struct sqrl_error *err);
SQRL_API void sqrl_catalog_free(struct sqrl_catalog *catalog);

/* Reads YAML text (UTF-8 or UTF-16); `where` names it in messages. Sources are added; the
 * same name and version twice is SQRL_E_EXISTS. Errors name line and column. On failure
 * the sources before the fault have been added: read into an empty catalog. */
SQRL_CHECK int sqrl_catalog_read(struct sqrl_catalog *catalog, const char *yaml,
                                 size_t size, const char *where, struct sqrl_error *err);
SQRL_CHECK int sqrl_catalog_read_file(struct sqrl_catalog *catalog,
                                      struct sqrl_context *context, const char *url,
                                      struct sqrl_error *err);
/* As YAML, appended to `out`: names in the order in which they came, the versions of one
 * name together, as squirrel-core writes it. Values that YAML can't hold (binaries,
 * arrays) are SQRL_E_UNSUPPORTED that names the source. */
SQRL_CHECK int sqrl_catalog_write(const struct sqrl_catalog *catalog,
                                  struct sqrl_bytes *out, struct sqrl_error *err);
/* The same into a file: whole and synced under its name, or not at all. With `replace`
 * false a file that is there is SQRL_E_EXISTS. */
SQRL_CHECK int sqrl_catalog_write_file(const struct sqrl_catalog *catalog,
                                       struct sqrl_context *context, const char *url,
                                       bool replace, struct sqrl_error *err);

/* Adds a source; version 0: one above the latest of its name. kwargs and metadata are
 * MessagePack maps with texts as keys (NULL: empty). */
SQRL_CHECK int sqrl_catalog_add(struct sqrl_catalog *catalog, const char *name,
                                uint64_t version, const char *driver_name,
                                const uint8_t *kwargs, size_t kwargs_size,
                                const uint8_t *metadata, size_t metadata_size,
                                struct sqrl_error *err);

/* Sources (each version counts), in the order in which they were added; SQRL_E_NOT_FOUND
 * behind the last. */
SQRL_API size_t sqrl_catalog_count(const struct sqrl_catalog *catalog);
SQRL_CHECK int sqrl_catalog_at(const struct sqrl_catalog *catalog, size_t i,
                               struct sqrl_catalog_source *out, struct sqrl_error *err);
/* Version 0 or -1: the latest. A name or version that is not there is SQRL_E_NOT_FOUND
 * that says which there are; pass no `err` to skip that work. */
SQRL_CHECK int sqrl_catalog_find(const struct sqrl_catalog *catalog, const char *name,
                                 int64_t version, struct sqrl_catalog_source *out,
                                 struct sqrl_error *err);

/* Opens a source: its driver with its arguments as settings, `more` (may be NULL) behind
 * them. The driver's name is one of ours or squirrel-core's for the same format. A
 * relative url is relative to the working directory, as in squirrel-core, not to the
 * catalog's file. Arguments that are maps or lists have no meaning for our drivers and
 * are errors, but for storage_options, which local files do not need. */
SQRL_CHECK int sqrl_catalog_source_open(struct sqrl_context *context,
                                        const struct sqrl_catalog_source *source,
                                        const struct sqrl_settings *more,
                                        struct sqrl_source **out, struct sqrl_error *err);
/* Opens what "catalog.yaml#name" or "catalog.yaml#name@version" names; `more` as above.
 * The last # counts, and an @ only where digits (or -1) follow to the end. */
SQRL_CHECK int sqrl_catalog_open(struct sqrl_context *context, const char *reference,
                                 const struct sqrl_settings *more,
                                 struct sqrl_source **out, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
