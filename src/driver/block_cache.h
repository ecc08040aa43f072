/* block_cache.h - blocks that were read for single samples, least recently used first to
 * go. Its bytes are taken from the context's memory budget, at most a quarter of it, and
 * never by force: where streams need all of it, less is kept. All threads. */
#ifndef SQRL_DRIVER_BLOCK_CACHE_H
#define SQRL_DRIVER_BLOCK_CACHE_H

#include "base/base.h"
#include "sqrl/block.h"

#define SQRL_CACHE_BUCKETS 1024u

struct sqrl_cached;
struct sqrl_block_cache {
    struct sqrl_context *context; /* borrowed */
    struct sqrl_lock lock;
    struct sqrl_cached *bucket[SQRL_CACHE_BUCKETS];
    struct sqrl_cached *newest, *oldest;
    uint64_t bytes;
    uint64_t most; /* besides a quarter of the budget; 0: no other limit */
};

void sqrl_block_cache_init(struct sqrl_block_cache *cache, struct sqrl_context *context);
void sqrl_block_cache_reset(struct sqrl_block_cache *cache);
/* A reference of the caller's, or NULL. */
struct sqrl_block *sqrl_block_cache_get(struct sqrl_block_cache *cache, uint64_t shard,
                                        uint64_t number);
/* Keeps a reference of its own, or none where there is no room. */
void sqrl_block_cache_put(struct sqrl_block_cache *cache, struct sqrl_block *block);

#endif
