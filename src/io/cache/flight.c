/* flight.c - what threads of this process fetch now, so that none fetches it again.
 *
 * A thread books what it will fetch, and waits only while it holds nothing booked: no two
 * can wait for each other. After a fork the child begins with an empty list. Waiting is
 * looking again every few milliseconds: little beside a request, and a fork or a cancel
 * can't lose a wake-up. */
#include "io/cache/cache.h"

#include <stdlib.h>
#include <time.h>

#define LOOK_NS 2000000

static void take_lock(struct cache_flights *flights) {
    if (sqrl_lock_take(&flights->lock))
        flights->count = 0;
}

static int make_room(struct cache_flights *flights, struct sqrl_error *err) {
    if (flights->count < flights->capacity)
        return SQRL_OK;
    size_t capacity = flights->capacity ? 2 * flights->capacity : 16;
    struct cache_flight *items = sqrl_realloc(flights->items, capacity * sizeof *items,
                                              "what is fetched now", err);
    if (!items)
        return SQRL_E_NO_MEMORY;
    flights->items = items;
    flights->capacity = capacity;
    return SQRL_OK;
}

static bool same_key(struct cache_key a, struct cache_key b) {
    return a.a == b.a && a.b == b.b;
}

/* Moves *begin behind what others fetch and *end before it. */
static void clear_part(const struct cache_flights *flights, struct cache_key key,
                       uint64_t *begin, uint64_t *end) {
    for (size_t i = 0; i < flights->count && *begin < *end; i++) {
        const struct cache_flight *other = &flights->items[i];
        if (!same_key(other->key, key) || other->end <= *begin || other->begin >= *end)
            continue;
        if (other->begin <= *begin) {
            *begin = SQRL_MIN(other->end, *end);
            i = (size_t)-1; /* what was passed by may begin here */
        } else {
            *end = other->begin;
        }
    }
}

int cache_flight_begin(struct cache_flights *flights, struct cache_key key,
                       uint64_t begin, uint64_t end, struct cache_flight *out,
                       bool *booked, struct sqrl_error *err) {
    take_lock(flights);
    int rc = make_room(flights, err);
    clear_part(flights, key, &begin, &end);
    *booked = rc == SQRL_OK && begin < end;
    *out = (struct cache_flight){key, begin, end};
    if (*booked)
        flights->items[flights->count++] = *out;
    sqrl_lock_drop(&flights->lock);
    return rc;
}

void cache_flight_end(struct cache_flights *flights, const struct cache_flight *flight) {
    take_lock(flights);
    for (size_t i = 0; i < flights->count; i++) {
        struct cache_flight *item = &flights->items[i];
        if (same_key(item->key, flight->key) && item->begin == flight->begin &&
            item->end == flight->end) {
            *item = flights->items[--flights->count];
            break;
        }
    }
    sqrl_lock_drop(&flights->lock);
}

static bool in_flight(struct cache_flights *flights, struct cache_key key, uint64_t begin,
                      uint64_t end) {
    bool found = false;
    take_lock(flights);
    for (size_t i = 0; i < flights->count && !found; i++)
        found = same_key(flights->items[i].key, key) && flights->items[i].begin < end &&
                flights->items[i].end > begin;
    sqrl_lock_drop(&flights->lock);
    return found;
}

int cache_flight_wait(struct cache_flights *flights, struct cache_key key, uint64_t begin,
                      uint64_t end, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    while (in_flight(flights, key, begin, end)) {
        struct timespec pause = {0, LOOK_NS};
        if (sqrl_cancel_requested(cancel))
            return sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
        nanosleep(&pause, NULL);
    }
    return SQRL_OK;
}
