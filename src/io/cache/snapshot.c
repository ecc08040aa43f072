/* snapshot.c - which version of each file this shim has found current.
 *
 * A source is one state of its data: what was looked at once is not looked at again while
 * the source lives, so a second epoch asks the network for nothing. A table of hashes; a
 * full one starts anew, which only costs requests. */
#include "io/cache/cache.h"

#include <stdlib.h>

#define FIRST 64
#define MOST ((size_t)1 << 18)

struct item {
    struct cache_key place; /* all zeros: free */
    struct sqrl_stat stat;
};
struct cache_snapshots {
    struct sqrl_lock lock;
    struct item *items;
    size_t count, capacity; /* a power of two, or 0 */
};

struct cache_snapshots *cache_snapshots_new(struct sqrl_error *err) {
    struct cache_snapshots *s = sqrl_calloc(1, sizeof *s, "the cache's table", err);
    if (s)
        sqrl_lock_init(&s->lock);
    return s;
}

void cache_snapshots_free(struct cache_snapshots *s) {
    if (!s)
        return;
    sqrl_lock_reset(&s->lock);
    free(s->items);
    free(s);
}

/* A fork in the middle of a change leaves a child with a table that may be torn. */
static void take_lock(struct cache_snapshots *s) {
    if (sqrl_lock_take(&s->lock)) {
        s->items = NULL;
        s->count = s->capacity = 0;
    }
}

/* Where it is, or the free place where it would be; capacity is not 0. */
static struct item *find(const struct cache_snapshots *s, struct cache_key place) {
    size_t at = (size_t)place.a & (s->capacity - 1);
    for (;; at = (at + 1) & (s->capacity - 1)) {
        struct item *item = &s->items[at];
        if ((item->place.a == place.a && item->place.b == place.b) ||
            (item->place.a == 0 && item->place.b == 0))
            return item;
    }
}

static bool is_free(const struct item *item) {
    return item->place.a == 0 && item->place.b == 0;
}

static bool grow(struct cache_snapshots *s) {
    if (2 * (s->count + 1) <= s->capacity)
        return true;
    if (s->capacity == MOST) {
        memset(s->items, 0, s->capacity * sizeof *s->items);
        s->count = 0;
        return true;
    }
    struct cache_snapshots bigger = {.capacity = s->capacity ? 2 * s->capacity : FIRST};
    bigger.items = sqrl_calloc(bigger.capacity, sizeof *bigger.items, "a table", NULL);
    if (!bigger.items)
        return false;
    for (size_t i = 0; i < s->capacity; i++)
        if (!is_free(&s->items[i]))
            *find(&bigger, s->items[i].place) = s->items[i];
    free(s->items);
    s->items = bigger.items;
    s->capacity = bigger.capacity;
    return true;
}

bool cache_snapshot_get(struct cache_snapshots *s, struct cache_key place,
                        struct sqrl_stat *out) {
    take_lock(s);
    const struct item *item = s->capacity ? find(s, place) : NULL;
    bool found = item && !is_free(item) && item->stat.etag[0] != '\1';
    if (found)
        *out = item->stat;
    sqrl_lock_drop(&s->lock);
    return found;
}

void cache_snapshot_put(struct cache_snapshots *s, struct cache_key place,
                        const struct sqrl_stat *stat) {
    take_lock(s);
    if (grow(s)) {
        struct item *item = find(s, place);
        s->count += is_free(item);
        *item = (struct item){place, *stat};
    }
    sqrl_lock_drop(&s->lock);
}

/* It stays as a mark, so that those behind it are found still. */
void cache_snapshot_drop(struct cache_snapshots *s, struct cache_key place) {
    take_lock(s);
    struct item *item = s->capacity ? find(s, place) : NULL;
    if (item && !is_free(item))
        item->stat.etag[0] = '\1';
    sqrl_lock_drop(&s->lock);
}
