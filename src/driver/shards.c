/* shards.c - the list of shards that a driver's open() fills. */
#include <stdlib.h>

#include "driver/family.h"
#include "sqrl/codec.h"

int sqrl_shard_list_add(struct sqrl_shard_list *list, const char *path,
                        const struct sqrl_format_ops *format,
                        const struct sqrl_shard *known, struct sqrl_error *err) {
    struct sqrl_shard shard = {NULL, 0, SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, format};
    if (known) {
        shard = *known;
        shard.format = format;
    }
    if (!shard.file_bytes) {
        struct sqrl_stat stat;
        int rc = sqrl_fs_stat(list->fs, path, &stat, err);
        if (rc)
            return rc;
        shard.file_bytes = stat.size;
    }
    if (list->count == list->capacity) {
        uint64_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct sqrl_shard *items =
            sqrl_realloc(list->items, capacity * sizeof *items, "shards", err);
        if (!items)
            return SQRL_E_NO_MEMORY;
        list->items = items;
        list->capacity = capacity;
    }
    shard.path = sqrl_format(err, "%s%s", list->prefix, path);
    if (!shard.path)
        return SQRL_E_NO_MEMORY;
    list->items[list->count++] = shard;
    return SQRL_OK;
}

int sqrl_shard_list_set_schema(struct sqrl_shard_list *list,
                               const struct sqrl_schema *schema, struct sqrl_error *err) {
    sqrl_schema_reset(&list->schema);
    list->has_schema = false;
    int rc = sqrl_schema_copy(schema, &list->schema, err);
    list->has_schema = rc == SQRL_OK;
    return rc;
}

int sqrl_shard_list_set_chunks(struct sqrl_shard_list *list,
                               const struct sqrl_shard_chunk *chunks, uint64_t count,
                               struct sqrl_error *err) {
    free(list->chunks);
    list->chunk_count = 0;
    list->chunks = sqrl_calloc(count + 1, sizeof *chunks, "chunks", err);
    if (!list->chunks)
        return SQRL_E_NO_MEMORY;
    list->chunk_count = count;
    if (count)
        memcpy(list->chunks, chunks, count * sizeof *chunks);
    return SQRL_OK;
}

void sqrl_shard_list_set_fingerprint(struct sqrl_shard_list *list, uint64_t fingerprint) {
    list->fingerprint = fingerprint;
    list->has_fingerprint = true;
}

void sqrl_shard_list_reset(struct sqrl_shard_list *list) {
    for (uint64_t i = 0; i < list->count; i++)
        free((char *)list->items[i].path);
    free(list->items);
    free(list->chunks);
    sqrl_schema_reset(&list->schema);
    sqrl_families_unref(list->families);
    memset(list, 0, sizeof *list);
}

/* A file whose content is plainly another format's; what no format knows is left to the
 * parser, which can say more. */
static int check_file(const struct sqrl_driver_args *args,
                      const struct sqrl_format_ops *format, struct sqrl_error *err) {
    struct sqrl_sniffed sniffed;
    int rc = sqrl_sniff(args->context, args->fs, args->path, &sniffed, err);
    if (!rc && sniffed.format && sniffed.format != format && sniffed.certain)
        rc = sqrl_error_set(
            err, SQRL_E_FORMAT,
            "this is a file of format %s, not %s (it begins with %s); leave "
            "driver= out",
            sniffed.format->name, format->name, sniffed.begins);
    return rc;
}

static int add_listing(const struct sqrl_driver_args *args,
                       const struct sqrl_format_ops *format,
                       const struct sqrl_listing *listing, struct sqrl_shard_list *out,
                       struct sqrl_error *err) {
    for (size_t i = 0; i < listing->count; i++) {
        char *path = sqrl_path_join(args->path, listing->files[i].name, err);
        if (!path)
            return SQRL_E_NO_MEMORY;
        struct sqrl_shard known = {NULL,         listing->files[i].bytes,
                                   SQRL_UNKNOWN, SQRL_UNKNOWN,
                                   SQRL_UNKNOWN, format};
        int rc = sqrl_shard_list_add(out, path, format, &known, err);
        free(path);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

int sqrl_shard_list_files(const struct sqrl_driver_args *args,
                          const struct sqrl_format_ops *format,
                          struct sqrl_shard_list *out, struct sqrl_error *err) {
    if (!args->stat.directory) {
        int rc = check_file(args, format, err);
        out->sidecars = true; /* to be looked for */
        return rc ? rc : sqrl_shard_list_add(out, args->path, format, NULL, err);
    }
    struct sqrl_listing listing;
    int rc = sqrl_listing_read(args->fs, args->path, &listing, err);
    if (!rc)
        rc = sqrl_listing_classify(&listing, args->context, args->fs, args->path, format,
                                   NULL, err);
    if (!rc)
        rc = add_listing(args, format, &listing, out, err);
    out->sidecars = listing.indexed;
    sqrl_listing_reset(&listing);
    return rc;
}
