/* pack_resume.c - a pack goes on behind the shards that an earlier run of it left.
 *
 * Shards appear whole, under their final names and in order. So those with the pack's
 * prefix and numbers from 0 on, without a gap, are its beginning; their footers count
 * their samples. */
#include <stdlib.h>

#include "driver/pack_inner.h"
#include "format/commit.h"

static int by_name(const void *key, const void *listed) {
    return strcmp(key, ((const struct sqrl_listed *)listed)->name);
}

static int take_names(struct sqrl_packer *p, const struct sqrl_listing *listing,
                      struct sqrl_error *err) {
    for (;;) {
        char *name = sqrl_pack_target_name(&p->target, p->shards, err);
        if (!name)
            return SQRL_E_NO_MEMORY;
        bool there = listing->count && bsearch(name, listing->files, listing->count,
                                               sizeof *listing->files, by_name);
        int rc = there ? sqrl_pack_add_name(p, name, err) : SQRL_OK;
        free(name);
        if (rc || !there)
            return rc;
        p->shards++;
    }
}

/* Shards behind a gap begin at a sample that is not known: they are written again. */
static int drop_others(struct sqrl_packer *p, const struct sqrl_listing *listing,
                       struct sqrl_error *err) {
    int rc = SQRL_OK;
    for (size_t i = 0; rc == SQRL_OK && i < listing->count; i++) {
        const char *name = listing->files[i].name;
        size_t number = strlen(p->target.prefix) + 1;
        if (!sqrl_pack_target_owns(&p->target, name) ||
            strtoull(name + number, NULL, 10) < p->shards)
            continue;
        char *path = sqrl_path_join(p->target.path, name, err);
        rc = path ? sqrl_fs_remove(p->target.fs, path, err) : SQRL_E_NO_MEMORY;
        free(path);
    }
    return rc;
}

int sqrl_pack_resume(struct sqrl_packer *p, struct sqrl_error *err) {
    struct sqrl_listing listing;
    struct sqrl_commit_total total = {0};
    if (!p->target.native)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "only a directory of native shards can be packed in "
                              "several runs");
    int rc = sqrl_listing_read(p->target.fs, p->target.path, &listing, err);
    if (rc == SQRL_OK)
        rc = take_names(p, &listing, err);
    if (rc == SQRL_OK)
        rc = drop_others(p, &listing, err);
    sqrl_listing_reset(&listing);
    if (rc == SQRL_OK && p->name_count)
        rc = sqrl_commit_measure(p->context, p->target.fs, p->target.path,
                                 (const char *const *)p->names, p->name_count, &total,
                                 err);
    p->resumed = total.samples;
    p->pipe.report = (struct sqrl_pack_report){.samples = total.samples,
                                               .shards = total.shards,
                                               .blocks = total.blocks,
                                               .raw_bytes = total.raw_bytes,
                                               .file_bytes = total.file_bytes};
    return rc;
}

uint64_t sqrl_packer_resumed(const struct sqrl_packer *packer) {
    return packer->resumed;
}
