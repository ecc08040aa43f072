#include "driver/block_cache.h"

#include <stdlib.h>

struct sqrl_cached {
    struct sqrl_block *block;
    uint64_t bytes;           /* charged */
    struct sqrl_cached *next; /* in the bucket */
    struct sqrl_cached *newer, *older;
};

void sqrl_block_cache_init(struct sqrl_block_cache *cache, struct sqrl_context *context) {
    cache->context = context;
    sqrl_lock_init(&cache->lock);
}

static struct sqrl_cached **bucket_of(struct sqrl_block_cache *cache, uint64_t shard,
                                      uint64_t number) {
    uint64_t hash = sqrl_mix64(sqrl_mix64(shard) ^ number);
    return &cache->bucket[hash % SQRL_CACHE_BUCKETS];
}

/* A child of a fork forgets what may have been half-changed. */
static void cache_lock(struct sqrl_block_cache *cache) {
    if (!sqrl_lock_take(&cache->lock))
        return;
    memset(cache->bucket, 0, sizeof cache->bucket);
    cache->newest = cache->oldest = NULL;
    sqrl_budget_give(cache->context, cache->bytes);
    cache->bytes = 0;
}

static void unlink_entry(struct sqrl_block_cache *cache, struct sqrl_cached *entry) {
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void link_newest(struct sqrl_block_cache *cache, struct sqrl_cached *entry) {
    entry->newer = NULL;
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

/* Takes the oldest out of the cache. */
static struct sqrl_cached *evict(struct sqrl_block_cache *cache) {
    struct sqrl_cached *entry = cache->oldest;
    struct sqrl_cached **at = bucket_of(cache, entry->block->shard, entry->block->number);
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    unlink_entry(cache, entry);
    cache->bytes -= entry->bytes;
    sqrl_budget_give(cache->context, entry->bytes);
    return entry;
}

static void free_all(struct sqrl_cached *entry) {
    while (entry) {
        struct sqrl_cached *next = entry->next;
        sqrl_block_unref(entry->block);
        free(entry);
        entry = next;
    }
}

void sqrl_block_cache_reset(struct sqrl_block_cache *cache) {
    cache_lock(cache);
    struct sqrl_cached *gone = NULL;
    while (cache->oldest) {
        struct sqrl_cached *entry = evict(cache);
        entry->next = gone;
        gone = entry;
    }
    sqrl_lock_drop(&cache->lock);
    free_all(gone);
    sqrl_lock_reset(&cache->lock);
}

static struct sqrl_cached *find(struct sqrl_block_cache *cache, uint64_t shard,
                                uint64_t number) {
    struct sqrl_cached *entry = *bucket_of(cache, shard, number);
    while (entry && (entry->block->shard != shard || entry->block->number != number))
        entry = entry->next;
    return entry;
}

struct sqrl_block *sqrl_block_cache_get(struct sqrl_block_cache *cache, uint64_t shard,
                                        uint64_t number) {
    struct sqrl_block *block = NULL;
    cache_lock(cache);
    struct sqrl_cached *entry = find(cache, shard, number);
    if (entry) {
        unlink_entry(cache, entry);
        link_newest(cache, entry);
        block = sqrl_block_ref(entry->block);
    }
    sqrl_lock_drop(&cache->lock);
    return block;
}

void sqrl_block_cache_put(struct sqrl_block_cache *cache, struct sqrl_block *block) {
    uint64_t bytes = sqrl_block_memory(block);
    uint64_t most = sqrl_budget_limit(cache->context) / 4;
    if (cache->most)
        most = SQRL_MIN(most, cache->most);
    struct sqrl_cached *entry = bytes <= most ? malloc(sizeof *entry) : NULL;
    struct sqrl_cached *gone = NULL;
    if (!entry)
        return;
    cache_lock(cache);
    bool room = !find(cache, block->shard, block->number);
    while (room && (cache->bytes + bytes > most ||
                    !sqrl_budget_take(cache->context, bytes, false))) {
        if (!(room = cache->oldest != NULL))
            break;
        struct sqrl_cached *old = evict(cache);
        old->next = gone;
        gone = old;
    }
    if (room) {
        struct sqrl_cached **at = bucket_of(cache, block->shard, block->number);
        *entry = (struct sqrl_cached){.block = sqrl_block_ref(block), .bytes = bytes};
        entry->next = *at;
        *at = entry;
        link_newest(cache, entry);
        cache->bytes += bytes;
        entry = NULL;
    }
    sqrl_lock_drop(&cache->lock);
    free(entry);
    free_all(gone);
}
