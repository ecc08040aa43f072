/* index.c - sqrl_index: what makes any data set counted and readable by position. */
#include <stdlib.h>

#include "driver/access.h"
#include "driver/driver.h"
#include "driver/source.h"
#include "format/format.h"
#include "format/native.h"
#include "format/sidecar.h"
#include "sqrl/pack.h"

/* A directory of native shards: with commits, or with files of their name. */
static int is_native(struct sqrl_context *context, const char *url,
                     const struct sqrl_settings *settings, bool *native,
                     struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    char *path = NULL;
    struct sqrl_stat stat;
    struct sqrl_listing listing = {0};
    *native = false;
    int rc = sqrl_fs_for_settings(context, url, settings, &fs, &path, err);
    if (rc)
        return rc;
    if (sqrl_fs_stat(fs, path, &stat, NULL) == SQRL_OK && stat.directory) {
        rc = sqrl_listing_read(fs, path, &listing, err);
        *native = listing.native;
        for (size_t i = 0; i < listing.count && !*native; i++)
            *native = sqrl_suffix_fits(SQRL_NATIVE_SUFFIX, listing.files[i].name, NULL);
    }
    sqrl_listing_reset(&listing);
    free(path);
    sqrl_fs_unref(fs);
    return rc;
}

static int index_files(struct sqrl_context *context, struct sqrl_source *source,
                       struct sqrl_pack_report *report, struct sqrl_error *err) {
    size_t prefix;
    struct sqrl_fs *fs = sqrl_source_fs(source, &prefix);
    for (uint64_t i = 0; i < sqrl_source_shards(source); i++) {
        const struct sqrl_shard *shard = sqrl_source_shard(source, i);
        uint64_t samples = 0, blocks = 0;
        int rc = sqrl_sidecar_build(context, fs, shard->path + prefix, shard->format,
                                    sqrl_source_settings(source), &samples, &blocks, err);
        if (rc)
            return sqrl_error_at_path(err, rc, shard->path, shard->path + prefix);
        report->shards++;
        report->samples += samples;
        report->blocks += blocks;
        report->file_bytes += shard->file_bytes;
    }
    return SQRL_OK;
}

int sqrl_index(struct sqrl_context *context, const char *url,
               const struct sqrl_settings *settings, bool all,
               struct sqrl_pack_report *report, struct sqrl_error *err) {
    struct sqrl_pack_report own;
    struct sqrl_source *source = NULL;
    bool native = false;
    report = report ? report : &own;
    *report = (struct sqrl_pack_report){0};
    int rc = is_native(context, url, settings, &native, err);
    if (rc == SQRL_OK && native)
        return sqrl_pack_index(context, url, settings, all, report, err);
    if (rc == SQRL_OK)
        rc = sqrl_open(context, url, settings, &source, err);
    if (rc == SQRL_OK)
        rc = index_files(context, source, report, err);
    sqrl_source_unref(source);
    return rc;
}
