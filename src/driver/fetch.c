/* fetch.c - the bytes of a shard, for what keeps them: see sqrl/cache.h. */
#include "driver/source_inner.h"

#define STRETCH ((size_t)16 << 20)

static int fetch_file(struct sqrl_source *source, struct sqrl_file *file,
                      int (*step)(void *arg, uint64_t bytes), void *arg,
                      const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_buffer *room;
    int rc = sqrl_buffer_new(source->context, STRETCH, &room, err);
    for (uint64_t at = 0; rc == SQRL_OK;) {
        struct sqrl_range range = {at, STRETCH, room->data, 0};
        rc = sqrl_file_read(file, &range, 1, cancel, err);
        if (rc == SQRL_OK && range.got == 0)
            break;
        at += range.got;
        if (rc == SQRL_OK && step)
            rc = step(arg, range.got);
    }
    sqrl_buffer_unref(room);
    return rc;
}

int sqrl_source_fetch(struct sqrl_source *source, uint64_t shard,
                      int (*step)(void *arg, uint64_t bytes), void *arg,
                      const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_file *file;
    if (shard >= source->count)
        return sqrl_error_set(err, SQRL_E_INVALID, "there is no shard %llu",
                              (unsigned long long)shard);
    const char *path = source->shards[shard].path + source->prefix_size;
    int rc = sqrl_file_open(source->fs, path, &file, err);
    if (rc != SQRL_OK)
        return rc;
    rc = fetch_file(source, file, step, arg, cancel, err);
    sqrl_file_unref(file);
    return rc;
}
