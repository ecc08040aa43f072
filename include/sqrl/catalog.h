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
 * no unknown fields; aliases are expanded. Nothing in a catalog is executed. The same in
 * JSON is canonical: one catalog has one text (docs/catalog.md).
 *
 * A name with a version is one element of set algebra. What one catalog takes over from
 * another is shared between them and never changed: it costs no copy of arguments.
 * Threads: a catalog belongs to one thread at a time; reading a finished one is free for
 * all, and catalogs that share sources may be used by different threads.
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
/* A date or a time, as YAML has it unquoted (2024-01-31, 2024-01-31 12:00:00+02:00): an
 * extension of this type; its content is the text. */
#define SQRL_CATALOG_TIME_EXT 2

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
    bool untrusted; /* see sqrl_catalog_distrust */
};

/* YAML is what squirrel-core reads; JSON is canonical. Files whose name ends in .json are
 * JSON. */
enum sqrl_catalog_form { SQRL_CATALOG_YAML, SQRL_CATALOG_JSON };

SQRL_CHECK int sqrl_catalog_new(struct sqrl_catalog **out, struct sqrl_error *err);
SQRL_API void sqrl_catalog_free(struct sqrl_catalog *catalog);
/* A catalog of its own with the same sources. */
SQRL_CHECK int sqrl_catalog_copy(const struct sqrl_catalog *catalog,
                                 struct sqrl_catalog **out, struct sqrl_error *err);

/* --- reading and writing --- */
/* Reads text in UTF-8; `where` names it in messages. Sources are added; the same name and
 * version twice is SQRL_E_EXISTS. Errors name line and column, in JSON the source. On
 * failure the sources before the fault have been added: read into an empty catalog. */
SQRL_CHECK int sqrl_catalog_read(struct sqrl_catalog *catalog, const char *text,
                                 size_t size, enum sqrl_catalog_form form,
                                 const char *where, struct sqrl_error *err);
/* What is added while this is on comes from another machine: such sources, wherever they
 * are copied to, are opened with "public_only" (docs/remote.md), and stay so when they
 * are set again. For who fetches a catalog's text; sqrl_catalog_read_file does it where
 * the file's place has the option "public_only": HTTP and object stores. */
SQRL_API void sqrl_catalog_distrust(struct sqrl_catalog *catalog, bool on);
SQRL_CHECK int sqrl_catalog_read_file(struct sqrl_catalog *catalog,
                                      struct sqrl_context *context, const char *url,
                                      struct sqrl_error *err);
/* Appended to `out`. YAML: names in the order in which they came, the versions of one
 * name together, as squirrel-core writes it. JSON: everything sorted, nothing optional.
 * Values that the form can't hold (binaries, arrays; in JSON also keys that are no texts)
 * are SQRL_E_UNSUPPORTED that names the source. */
SQRL_CHECK int sqrl_catalog_write(const struct sqrl_catalog *catalog,
                                  enum sqrl_catalog_form form, struct sqrl_bytes *out,
                                  struct sqrl_error *err);
/* The same into a file: whole and synced under its name, or not at all. With `replace`
 * false a file that is there is SQRL_E_EXISTS. */
SQRL_CHECK int sqrl_catalog_write_file(const struct sqrl_catalog *catalog,
                                       struct sqrl_context *context, const char *url,
                                       bool replace, struct sqrl_error *err);

/* --- sources by name and version --- */
/* Adds a source; version 0: one above the latest of its name. kwargs and metadata are
 * MessagePack maps with texts as keys (NULL: empty). */
SQRL_CHECK int sqrl_catalog_add(struct sqrl_catalog *catalog, const char *name,
                                uint64_t version, const char *driver_name,
                                const uint8_t *kwargs, size_t kwargs_size,
                                const uint8_t *metadata, size_t metadata_size,
                                struct sqrl_error *err);
/* The same, but a version that is there is replaced, in its place. */
SQRL_CHECK int sqrl_catalog_set(struct sqrl_catalog *catalog, const char *name,
                                uint64_t version, const char *driver_name,
                                const uint8_t *kwargs, size_t kwargs_size,
                                const uint8_t *metadata, size_t metadata_size,
                                struct sqrl_error *err);
/* Removes a version (-1: the latest), or all versions of a name (0). Ends the life of
 * their views. */
SQRL_CHECK int sqrl_catalog_remove(struct sqrl_catalog *catalog, const char *name,
                                   int64_t version, struct sqrl_error *err);

/* Sources (each version counts), and names. */
SQRL_API size_t sqrl_catalog_count(const struct sqrl_catalog *catalog);
SQRL_API size_t sqrl_catalog_names(const struct sqrl_catalog *catalog);
/* The next source, or false behind the last: names in the order in which they were added,
 * the versions of each together, in the order in which those were added. *cursor is 0
 * before the first. The catalog must not change meanwhile. */
SQRL_API bool sqrl_catalog_next(const struct sqrl_catalog *catalog, uint64_t *cursor,
                                struct sqrl_catalog_source *out);
/* Sets the cursor in front of a name's first version. */
SQRL_CHECK int sqrl_catalog_seek(const struct sqrl_catalog *catalog, const char *name,
                                 uint64_t *cursor, struct sqrl_error *err);
/* Version 0 or -1: the latest. A name or version that is not there is SQRL_E_NOT_FOUND
 * that says which there are; pass no `err` to skip that work. */
SQRL_CHECK int sqrl_catalog_find(const struct sqrl_catalog *catalog, const char *name,
                                 int64_t version, struct sqrl_catalog_source *out,
                                 struct sqrl_error *err);

/* --- set algebra: each makes a new catalog, the first one's sources in front --- */
/* Which source stands in a union where both catalogs have the version and the sources
 * differ; ERROR: SQRL_E_EXISTS that names it. */
enum sqrl_catalog_conflict {
    SQRL_CONFLICT_ERROR,
    SQRL_CONFLICT_OURS,
    SQRL_CONFLICT_THEIRS
};
SQRL_CHECK int sqrl_catalog_union(const struct sqrl_catalog *ours,
                                  const struct sqrl_catalog *theirs,
                                  enum sqrl_catalog_conflict conflict,
                                  struct sqrl_catalog **out, struct sqrl_error *err);
/* A union of catalogs that have no version in common; else SQRL_E_EXISTS. */
SQRL_CHECK int sqrl_catalog_join(const struct sqrl_catalog *a,
                                 const struct sqrl_catalog *b, struct sqrl_catalog **out,
                                 struct sqrl_error *err);
/* The versions that are in both; SQRL_E_EXISTS where the sources differ. */
SQRL_CHECK int sqrl_catalog_intersection(const struct sqrl_catalog *a,
                                         const struct sqrl_catalog *b,
                                         struct sqrl_catalog **out,
                                         struct sqrl_error *err);
/* The versions that are in one of the two only, whatever the sources are. */
SQRL_CHECK int sqrl_catalog_symmetric_difference(const struct sqrl_catalog *a,
                                                 const struct sqrl_catalog *b,
                                                 struct sqrl_catalog **out,
                                                 struct sqrl_error *err);
/* The versions of `a` that are not in `b`. */
SQRL_CHECK int sqrl_catalog_subtract(const struct sqrl_catalog *a,
                                     const struct sqrl_catalog *b,
                                     struct sqrl_catalog **out, struct sqrl_error *err);
/* All versions of some names, in their order; takes time by these alone. */
SQRL_CHECK int sqrl_catalog_slice(const struct sqrl_catalog *catalog,
                                  const char *const *names, size_t count,
                                  struct sqrl_catalog **out, struct sqrl_error *err);
/* What a predicate says of a source: 0 leave out, 1 keep; a negative number ends the
 * filter with SQRL_E_USER. */
typedef int (*sqrl_catalog_predicate)(void *arg,
                                      const struct sqrl_catalog_source *source);
SQRL_CHECK int sqrl_catalog_filter(const struct sqrl_catalog *catalog,
                                   sqrl_catalog_predicate predicate, void *arg,
                                   struct sqrl_catalog **out, struct sqrl_error *err);
/* The same names, versions, drivers, arguments and metadata, in any order; numbers are
 * equal as in Python: 1, 1.0 and true. */
SQRL_API bool sqrl_catalog_equal(const struct sqrl_catalog *a,
                                 const struct sqrl_catalog *b);
/* In what two sources differ, by that equality; names and versions do not count. 0: in
 * nothing. */
enum sqrl_catalog_difference {
    SQRL_DIFFERS_DRIVER = 1,
    SQRL_DIFFERS_KWARGS = 2,
    SQRL_DIFFERS_METADATA = 4
};
SQRL_API unsigned sqrl_catalog_source_differs(const struct sqrl_catalog_source *a,
                                              const struct sqrl_catalog_source *b);

/* --- opening --- */
/* Opens a source: its driver with its arguments as settings, `more` (may be NULL) behind
 * them. The driver's name is one of ours or squirrel-core's for the same format. A
 * relative url is relative to the working directory, as in squirrel-core, not to the
 * catalog's file. Arguments that are maps or lists have no meaning for our drivers and
 * are errors, but for storage_options, which local files do not need. */
SQRL_CHECK int sqrl_catalog_source_open(struct sqrl_context *context,
                                        const struct sqrl_catalog_source *source,
                                        const struct sqrl_settings *more,
                                        struct sqrl_source **out, struct sqrl_error *err);
/* Whether it could be opened as far as its description tells: the driver is known, its
 * arguments are options of the driver with readable values. What only Python can open is
 * SQRL_E_UNSUPPORTED. Nothing is looked for at the url. */
SQRL_CHECK int sqrl_catalog_source_check(struct sqrl_context *context,
                                         const struct sqrl_catalog_source *source,
                                         struct sqrl_error *err);
/* Finds what a reference names (see sqrl_catalog_open); the catalog is the caller's, and
 * *source a view of it. */
SQRL_CHECK int sqrl_catalog_refer(struct sqrl_context *context, const char *reference,
                                  struct sqrl_catalog **catalog,
                                  struct sqrl_catalog_source *source,
                                  struct sqrl_error *err);
/* Opens what "catalog.yaml#name" or "catalog.yaml#name@version" names; `more` as above.
 * The last # counts, and an @ only where digits (or -1) follow to the end. With nothing
 * in front of the #, the name is looked up in the default catalog. */
SQRL_CHECK int sqrl_catalog_open(struct sqrl_context *context, const char *reference,
                                 const struct sqrl_settings *more,
                                 struct sqrl_source **out, struct sqrl_error *err);

/* --- the user's catalogs ---
 * In this order: the catalogs that the environment variable SQUIRREL_CATALOGS names
 * (paths and URLs, separated by ";"), those that the user subscribed to (one a line of
 * $XDG_CONFIG_HOME/squirrel/catalogs; # begins a comment), and all .yaml files of the
 * folder squirrel/catalogs in $XDG_DATA_HOME and in each of $XDG_DATA_DIRS. */
struct sqrl_catalog_place {
    const char *url;    /* as it is written there; a file of a folder with its path */
    const char *origin; /* "SQUIRREL_CATALOGS", or the file or folder that led to it */
    uint32_t line;      /* of the file; 0: none */
};
/* Calls `visit` for each; non-zero ends it and is returned. A configuration that can't be
 * read is an error; one that is not there has no catalogs. */
typedef int (*sqrl_catalog_place_fn)(void *arg, const struct sqrl_catalog_place *place,
                                     struct sqrl_error *err);
SQRL_CHECK int sqrl_catalog_places(struct sqrl_context *context,
                                   sqrl_catalog_place_fn visit, void *arg,
                                   struct sqrl_error *err);
/* The union of all of them. A file that can't be read, and a version that two have with
 * different contents, are errors that name the places.
 * Python packages offer sources, too. Where the environment variable SQUIRREL_PYTHON
 * names an interpreter that has this package (a path, or a name on the PATH), it is asked
 * in a process of its own, and the catalog is its Catalog.default(): all of the above,
 * with URLs that its file systems know, and what its plug-ins offer. That runs the
 * plug-ins' code, so only the user's environment can ask for it. */
SQRL_CHECK int sqrl_catalog_default(struct sqrl_context *context,
                                    struct sqrl_catalog **out, struct sqrl_error *err);
/* Adds a catalog to the user's configuration, or takes it away again; a relative path is
 * made absolute. *changed (may be NULL) is false where there was nothing to do. The
 * configuration's other lines stay as they are. */
SQRL_CHECK int sqrl_catalog_subscribe(struct sqrl_context *context, const char *url,
                                      bool *changed, struct sqrl_error *err);
SQRL_CHECK int sqrl_catalog_unsubscribe(struct sqrl_context *context, const char *url,
                                        bool *changed, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
