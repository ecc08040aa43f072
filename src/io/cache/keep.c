/* keep.c - writing to the cache, which never fails a read: it warns once, and pauses. */
#include "io/cache/cache.h"

#include <errno.h>

#define PAUSE_NS (UINT64_C(60) * 1000000000)

void cache_count(struct cache *cache, enum sqrl_counter counter, uint64_t add) {
    if (cache->context && add)
        sqrl_count(cache->context, counter, add);
}

static bool is_offline(const struct cache *cache) {
    return sqrl_now_ns() < __atomic_load_n(&cache->offline_until, __ATOMIC_RELAXED);
}

bool cache_may_write(struct cache *cache) {
    return sqrl_now_ns() >= __atomic_load_n(&cache->full_until, __ATOMIC_RELAXED);
}

static void give_up(struct cache *cache, int failure) {
    __atomic_store_n(&cache->full_until, sqrl_now_ns() + PAUSE_NS, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&cache->warned_full, 1, __ATOMIC_RELAXED) || !cache->context)
        return;
    struct sqrl_error err;
    sqrl_error_set_errno(&err, failure, "cache %.*s: can't be written",
                         (int)(cache->folder.root_size - 3), cache->folder.root);
    sqrl_log(cache->context, SQRL_LOG_WARNING,
             "%s; reading goes on without keeping what is fetched%s", err.message,
             failure == ENOSPC || failure == EDQUOT
                 ? ": free some space, or give the cache a lower limit"
                 : "");
}

static void count_evicted(struct cache *cache, const struct cache_evicted *evicted) {
    cache_count(cache, SQRL_COUNT_CACHE_EVICTIONS, evicted->files);
    cache_count(cache, SQRL_COUNT_CACHE_BYTES_EVICTED, evicted->bytes);
}

void cache_enforce(struct cache *cache) {
    struct cache_evicted evicted;
    if (__atomic_exchange_n(&cache->enforced, 1, __ATOMIC_RELAXED))
        return;
    cache_room_enforce(&cache->room, &cache->folder, &evicted);
    count_evicted(cache, &evicted);
}

/* While the network is down nothing is evicted: it could not be fetched again. */
bool cache_take(struct cache *cache, uint64_t charge) {
    struct cache_evicted evicted;
    bool taken = cache_room_take(&cache->room, &cache->folder, charge, is_offline(cache),
                                 &evicted);
    count_evicted(cache, &evicted);
    if (!taken && evicted.failure)
        give_up(cache, evicted.failure);
    return taken;
}

void cache_done(struct cache *cache, uint64_t charge, int failure) {
    cache_room_done(&cache->room, charge);
    if (failure)
        give_up(cache, failure);
}
