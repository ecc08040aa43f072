/* access.h - what a source keeps for random access: access.c. */
#ifndef SQRL_DRIVER_ACCESS_H
#define SQRL_DRIVER_ACCESS_H

#include "driver/block_cache.h"
#include "driver/fetch.h"
#include "sqrl/source.h"

struct sqrl_access {
    struct sqrl_lock lock;
    uint64_t *first; /* [shards + 1]: samples before each shard; NULL until needed */
    struct sqrl_block_cache cache;
};

void sqrl_access_init(struct sqrl_access *access, struct sqrl_context *context);
void sqrl_access_reset(struct sqrl_access *access);

/* Blocks of one shard by their rising numbers, with as few requests as the format knows
 * to make (source.c). On failure out[0, *loaded) are set all the same. */
SQRL_CHECK int sqrl_shard_reader_load_many(struct sqrl_shard_reader *reader,
                                           const uint64_t *blocks, size_t count,
                                           const struct sqrl_cancel *cancel,
                                           struct sqrl_block **out, size_t *loaded,
                                           struct sqrl_error *err);
/* What a block is in memory, with what is joined to it, as far as averages tell. */
uint64_t sqrl_shard_reader_block_cost(const struct sqrl_shard_reader *reader,
                                      const struct sqrl_block_info *info);
/* A row of a subset's shard as the number in the shard (subset.c); and back. */
bool sqrl_source_row_find(const struct sqrl_source *source, uint64_t shard,
                          uint64_t number, uint64_t *row);
/* source.c */
struct sqrl_access *sqrl_source_access(struct sqrl_source *source);
struct sqrl_fs *sqrl_source_fs(const struct sqrl_source *source, size_t *prefix_size);
const struct sqrl_settings *sqrl_source_settings(const struct sqrl_source *source);

#endif
