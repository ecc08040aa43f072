/* driver.h - the private half of the driver floor: sniffing, listing, shard lists. */
#ifndef SQRL_DRIVER_PRIVATE_H
#define SQRL_DRIVER_PRIVATE_H

#include "base/base.h"
#include "sqrl/source.h"

#define SQRL_SNIFF_BYTES 4096

/* --- sniff.c: what a file is --- */
struct sqrl_sniffed {
    const struct sqrl_format_ops *format; /* NULL: none of the known ones */
    bool by_name;       /* the content told nothing; the suffix decided */
    bool certain;       /* the content fits well */
    bool weak;          /* perhaps damaged data of another format */
    bool empty_payload; /* a compressed file with nothing in it: any format's */
    uint64_t file_bytes;
    char begins[80]; /* how the file begins, printable, for messages */
};
/* Reads the first bytes of a file and asks every format. A file of no bytes is
 * SQRL_E_FORMAT. Errors name the path. */
SQRL_CHECK int sqrl_sniff(struct sqrl_context *context, struct sqrl_fs *fs,
                          const char *path, struct sqrl_sniffed *out,
                          struct sqrl_error *err);
/* Writes the names of all formats, "a, b and c", into out. Returns out. */
const char *sqrl_format_names(char *out, size_t size);

/* --- listing.c: the files of a directory --- */
struct sqrl_listed {
    char *name; /* relative to the directory */
    uint64_t bytes;
};
struct sqrl_listing {
    struct sqrl_listed
        *files; /* in byte order; hidden ones ('.' or '_' first) left out */
    size_t count, capacity;
    size_t directories; /* how many there are, hidden ones left out */
    bool native;        /* there is a directory `_sqrl` */
    bool indexed;       /* there is a directory `_index` */
};
/* One level of a directory. Reset also on failure. */
SQRL_CHECK int sqrl_listing_read(struct sqrl_fs *fs, const char *directory,
                                 struct sqrl_listing *out, struct sqrl_error *err);
void sqrl_listing_reset(struct sqrl_listing *listing);
/* SQRL_E_NOT_FOUND for a directory without files: says what is there instead. */
int sqrl_listing_empty(const struct sqrl_listing *listing, struct sqrl_error *err);
/* "<directory>/<name>", allocated: free with free(). */
char *sqrl_path_join(const char *directory, const char *name, struct sqrl_error *err);
/* What stands before `path` of fs in its URL: "s3://"; "" for local files. Allocated. */
char *sqrl_url_prefix(struct sqrl_fs *fs, const char *url, const char *path,
                      struct sqrl_error *err);

/* Drops the files that are not of `format`, sniffing them. With format NULL finds the one
 * format that all files have (*found), or fails with SQRL_E_FORMAT that lists what was
 * found and what to do. README, LICENSE and the like are no shards. */
SQRL_CHECK int sqrl_listing_classify(struct sqrl_listing *listing,
                                     struct sqrl_context *context, struct sqrl_fs *fs,
                                     const char *directory,
                                     const struct sqrl_format_ops *format,
                                     const struct sqrl_format_ops **found,
                                     struct sqrl_error *err);
/* Drops file i, keeping the order. */
void sqrl_listing_drop(struct sqrl_listing *listing, size_t i);

/* --- shards.c: the list that a driver's open() fills --- */
struct sqrl_families;
struct sqrl_shard_list {
    struct sqrl_fs *fs;
    const char *prefix; /* what stands before a path of fs in messages: "s3://", "" */
    struct sqrl_shard *items; /* path: prefix and path in fs, owned */
    uint64_t count, capacity;
    struct sqrl_schema schema;
    struct sqrl_shard_chunk *chunks;
    uint64_t chunk_count;
    bool has_schema, has_fingerprint;
    uint64_t fingerprint;
    bool sidecars;                  /* files may have some: see format/sidecar.h */
    struct sqrl_families *families; /* groups of fields, or NULL */
};
void sqrl_shard_list_reset(struct sqrl_shard_list *list);
/* What a driver without open() does: the file, or all files of the directory that are of
 * its format. */
SQRL_CHECK int sqrl_shard_list_files(const struct sqrl_driver_args *args,
                                     const struct sqrl_format_ops *format,
                                     struct sqrl_shard_list *out, struct sqrl_error *err);

/* --- settings.c: which of a caller's settings are whose --- */
/* Those that one of the lists (NULL-ended) declares. The strings are borrowed; free the
 * array: free((void *)out->items). */
SQRL_CHECK int sqrl_settings_pick(const struct sqrl_settings *settings,
                                  const struct sqrl_option *const *lists,
                                  struct sqrl_settings *out, struct sqrl_error *err);
/* sqrl_fs_for_url with those of the settings (may be NULL) that are the file system's. */
SQRL_CHECK int sqrl_fs_for_settings(struct sqrl_context *context, const char *url,
                                    const struct sqrl_settings *settings,
                                    struct sqrl_fs **out, char **path,
                                    struct sqrl_error *err);

/* Puts the shim of the setting "cache" around *fs, if there is one; `path` is what `url`
 * names within it. */
SQRL_CHECK int sqrl_fs_add_cache(const struct sqrl_settings *settings, const char *url,
                                 const char *path, struct sqrl_fs **fs,
                                 struct sqrl_error *err);

/* --- registry.c --- */
/* The driver of a format: the first registered one that has it. */
const struct sqrl_driver_ops *sqrl_driver_of_format(struct sqrl_context *context,
                                                    const struct sqrl_format_ops *format);
/* SQRL_E_NOT_FOUND for a name that no driver has: says which one is meant, or all. */
int sqrl_driver_unknown(struct sqrl_context *context, const char *name,
                        struct sqrl_error *err);

#endif
