/* read.c - reading through the cache.
 *
 * A read is a list of parts. What known pieces hold is read from them. For the rest, the
 * grains (64 KiB) around it are fetched, with one call of the wrapped file system for all
 * of them, straight into the parts; only what lies around them needs memory. Then it is
 * kept, cut at slots (4 MiB). So a small read of a large file costs little, one that goes
 * on where the last one ended fetches its slot to the end, and an object has at most some
 * pieces a slot: where there are more, the slot is fetched whole and they go.
 *
 * Which pieces there are tells the directory; it is listed again before something is
 * fetched, since other processes may have been there. Nothing is locked while the disk or
 * the network work. */
#include "io/cache/cache.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BATCH (UINT64_C(32) << 20) /* fetched at once */
#define FLIGHTS 64
#define AHEAD_BELOW (UINT64_C(2) << 20) /* larger reads need nothing fetched ahead */
#define CROWD 8                         /* pieces of a slot, before it is made one */

/* --- lists of ranges --- */

struct parts {
    struct sqrl_range *items;
    size_t count, capacity;
};

static int parts_add(struct parts *p, uint64_t offset, uint64_t end, uint8_t *data,
                     struct sqrl_error *err) {
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 8;
        struct sqrl_range *items =
            sqrl_realloc(p->items, capacity * sizeof *items, "a list of ranges", err);
        if (!items)
            return SQRL_E_NO_MEMORY;
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count++] = (struct sqrl_range){offset, (size_t)(end - offset), data, 0};
    return SQRL_OK;
}

static int by_offset(const void *a, const void *b) {
    const struct sqrl_range *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

struct reading {
    struct cache *cache;
    struct cache_file *file;
    const struct sqrl_cancel *cancel;
    struct parts missing; /* in order of offsets; may overlap */
    uint64_t from;        /* where the read began */
};

static int cancelled(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
}

/* --- known pieces --- */

static bool extent_equal(struct cache_extent a, struct cache_extent b) {
    return a.offset == b.offset && a.size == b.size;
}

/* The first known piece that begins behind `at`. */
static size_t known_behind(const struct cache_file *f, uint64_t at) {
    size_t low = 0, high = f->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (f->known[middle].offset <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Not knowing one only costs a request. */
static void known_add_locked(struct cache_file *f, struct cache_extent extent) {
    size_t at = known_behind(f, extent.offset);
    for (size_t i = at; i-- > 0 && f->known[i].offset == extent.offset;)
        if (extent_equal(f->known[i], extent))
            return;
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 16;
        struct cache_extent *known =
            sqrl_realloc(f->known, capacity * sizeof *known, "known pieces", NULL);
        if (!known)
            return;
        f->known = known;
        f->capacity = capacity;
    }
    memmove(f->known + at + 1, f->known + at, (f->count - at) * sizeof *f->known);
    f->known[at] = extent;
    f->count++;
}

static void known_drop(struct cache_file *f, struct cache_extent extent) {
    sqrl_lock_take(&f->lock);
    for (size_t i = known_behind(f, extent.offset);
         i-- > 0 && f->known[i].offset == extent.offset;) {
        if (!extent_equal(f->known[i], extent))
            continue;
        memmove(f->known + i, f->known + i + 1, (f->count - i - 1) * sizeof *f->known);
        f->count--;
        break;
    }
    sqrl_lock_drop(&f->lock);
}

/* The piece that holds byte `at` and reaches farthest; else *next is where one begins. */
static bool known_find(struct cache_file *f, uint64_t at, struct cache_extent *out,
                       uint64_t *next) {
    bool found = false;
    sqrl_lock_take(&f->lock);
    size_t behind = known_behind(f, at);
    *next = behind < f->count ? f->known[behind].offset : UINT64_MAX;
    for (size_t i = behind; i-- > 0 && at - f->known[i].offset < CACHE_SLOT;) {
        struct cache_extent k = f->known[i];
        if (k.offset + k.size <= at ||
            (found && k.offset + k.size <= out->offset + out->size))
            continue;
        *out = k;
        found = true;
    }
    sqrl_lock_drop(&f->lock);
    return found;
}

/* Adds what the directory holds now; what is gone is found out by reading it. */
static void known_list(const struct cache *cache, struct cache_file *f) {
    char path[CACHE_PATH_BYTES];
    cache_object_path(&cache->folder, f->object.key, path);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct cache_extent extent;
        if (!cache_parse_piece(d->d_name, &extent) ||
            extent.offset + extent.size > f->object.size)
            continue;
        sqrl_lock_take(&f->lock);
        known_add_locked(f, extent);
        sqrl_lock_drop(&f->lock);
    }
    if (dir)
        closedir(dir);
}

/* --- reading pieces --- */

static void drop_damaged(struct cache *cache, struct cache_file *f,
                         struct cache_extent extent) {
    char path[CACHE_PATH_BYTES];
    cache_piece_path(&cache->folder, f->object.key, extent, path);
    unlink(path);
    cache_count(cache, SQRL_COUNT_CACHE_DAMAGED, 1);
    if (cache->context &&
        !__atomic_exchange_n(&cache->warned_damage, 1, __ATOMIC_RELAXED))
        sqrl_log(cache->context, SQRL_LOG_WARNING,
                 "%s: the cache's copy of %llu bytes at %llu was damaged; it is fetched "
                 "again (`squirrel cache verify` looks for more)",
                 f->url, (unsigned long long)extent.size,
                 (unsigned long long)extent.offset);
}

/* Bytes [at, end) of a run of touching parts: from pieces, and the rest to `left`. */
static int serve_run(struct reading *r, const struct sqrl_range *run, size_t count,
                     struct parts *left, uint64_t *served, struct sqrl_error *err) {
    struct cache *cache = r->cache;
    struct cache_file *f = r->file;
    uint64_t at = run->offset, end = run[count - 1].offset + run[count - 1].size;
    while (at < end) {
        struct cache_extent extent;
        uint64_t next;
        if (sqrl_cancel_requested(r->cancel))
            return cancelled(err);
        if (known_find(f, at, &extent, &next)) {
            uint64_t stop = SQRL_MIN(end, extent.offset + extent.size);
            enum cache_found found = cache_piece_read(&cache->folder, &f->object, extent,
                                                      at, stop, run, count);
            if (found == CACHE_HIT) {
                *served += stop - at;
                at = stop;
                continue;
            }
            known_drop(f, extent);
            if (found == CACHE_DAMAGED)
                drop_damaged(cache, f, extent);
            continue;
        }
        uint64_t stop = SQRL_MIN(end, next);
        for (size_t i = 0; i < count; i++) {
            uint64_t low = SQRL_MAX(at, run[i].offset);
            uint64_t high = SQRL_MIN(stop, run[i].offset + run[i].size);
            if (low < high &&
                parts_add(left, low, high, run[i].data + (low - run[i].offset), err))
                return SQRL_E_NO_MEMORY;
        }
        at = stop;
    }
    return SQRL_OK;
}

/* What is missing, from the pieces that are known. */
static int serve(struct reading *r, struct sqrl_error *err) {
    struct parts left = {0};
    const struct sqrl_range *items = r->missing.items;
    size_t count = r->missing.count;
    uint64_t served = 0;
    int rc = SQRL_OK;
    for (size_t i = 0, j; i < count && rc == SQRL_OK; i = j) {
        for (j = i + 1; j < count; j++)
            if (items[j].offset != items[j - 1].offset + items[j - 1].size)
                break;
        rc = serve_run(r, items + i, j - i, &left, &served, err);
    }
    free(r->missing.items);
    r->missing = left;
    cache_count(r->cache, SQRL_COUNT_CACHE_BYTES, served);
    __atomic_fetch_add(&r->cache->hit_bytes, served, __ATOMIC_RELAXED);
    if (left.count == 0)
        cache_count(r->cache, SQRL_COUNT_READS, served > 0);
    cache_count(r->cache, SQRL_COUNT_BYTES_READ, served);
    return rc;
}

/* --- fetching --- */

static bool is_versioned(const struct cache *cache) {
    return sqrl_fs_flags(cache->inner) & SQRL_FS_VERSIONED;
}

/* What was known of it is forgotten, here and on the disk. */
static int changed(struct cache *cache, struct cache_file *f, struct sqrl_error *err) {
    char path[CACHE_PATH_BYTES];
    cache_snapshot_drop(cache->snapshots, f->object.place);
    cache_place_path(&cache->folder, f->object.place, CACHE_STAT, path);
    unlink(path);
    int rc = sqrl_error_set(err, SQRL_E_CORRUPT,
                            "it changed since it was opened (then: %s, %llu bytes); open "
                            "the source again to read it as it is now",
                            f->object.version, (unsigned long long)f->object.size);
    return sqrl_error_at(err, rc, "%s", f->url);
}

static bool same_version(const struct cache_file *f, const struct sqrl_stat *stat) {
    char version[CACHE_VERSION_BYTES];
    return stat->size == f->object.size && cache_version(stat, version) &&
           strcmp(version, f->object.version) == 0;
}

int cache_open_inner(struct cache *cache, struct cache_file *f, struct sqrl_error *err) {
    struct sqrl_file *opened;
    sqrl_lock_take(&f->lock);
    bool there = f->inner != NULL;
    sqrl_lock_drop(&f->lock);
    if (there)
        return SQRL_OK;
    int rc = sqrl_file_open(cache->inner, f->path, &opened, err);
    if (rc != SQRL_OK)
        return rc;
    if (!same_version(f, sqrl_file_stat(opened))) {
        sqrl_file_unref(opened);
        return changed(cache, f, err);
    }
    sqrl_lock_take(&f->lock);
    if (!f->inner) {
        f->inner = opened;
        opened = NULL;
    }
    sqrl_lock_drop(&f->lock);
    sqrl_file_unref(opened);
    return SQRL_OK;
}

struct fetch {
    struct cache_flight flights[FLIGHTS]; /* in order */
    size_t count;
    uint64_t bytes;
    bool again;         /* some of it is known, and fetched nevertheless */
    struct parts parts; /* all bytes of the flights, in order */
    struct sqrl_buffer *around;
};

/* Books what nobody fetches of [begin, end) and, unless it is to be fetched again, no
 * known piece holds. */
static int book(struct reading *r, struct fetch *fetch, uint64_t begin, uint64_t end,
                bool again, struct sqrl_error *err) {
    while (begin < end && fetch->count < FLIGHTS && fetch->bytes < BATCH) {
        struct cache_extent extent;
        uint64_t next = UINT64_MAX, stop;
        if (!again && known_find(r->file, begin, &extent, &next)) {
            begin = extent.offset + extent.size;
            continue;
        }
        stop = SQRL_MIN(SQRL_MIN(end, next), begin + (BATCH - fetch->bytes));
        struct cache_flight *flight = &fetch->flights[fetch->count];
        bool booked;
        int rc = cache_flight_begin(&r->cache->flights, r->file->object.key, begin, stop,
                                    flight, &booked, err);
        if (rc != SQRL_OK)
            return rc;
        if (booked) {
            fetch->count++;
            fetch->bytes += flight->end - flight->begin;
            stop = flight->end;
        }
        begin = stop;
    }
    return SQRL_OK;
}

static uint64_t round_up(uint64_t at, uint64_t unit, uint64_t size) {
    return SQRL_MIN((at + unit - 1) / unit * unit, size);
}

/* Has the slot so many pieces that it should become one? */
static bool crowded(struct cache_file *f, uint64_t slot_begin, uint64_t slot) {
    sqrl_lock_take(&f->lock);
    size_t low = slot_begin ? known_behind(f, slot_begin - 1) : 0;
    size_t high = known_behind(f, slot_begin + slot - 1);
    sqrl_lock_drop(&f->lock);
    return high - low >= CROWD;
}

/* Books for all that is missing. */
static int book_missing(struct reading *r, struct fetch *fetch, struct sqrl_error *err) {
    const struct parts *missing = &r->missing;
    uint64_t size = r->file->object.size, slot = r->cache->slot, done = 0;
    uint64_t next = __atomic_load_n(&r->file->next, __ATOMIC_RELAXED);
    int rc = SQRL_OK;
    for (size_t i = 0; i < missing->count && rc == SQRL_OK;) {
        uint64_t begin = missing->items[i].offset / CACHE_GRAIN * CACHE_GRAIN, end = 0;
        for (; i < missing->count && (!end || missing->items[i].offset <= end); i++)
            end =
                SQRL_MAX(end, round_up(missing->items[i].offset + missing->items[i].size,
                                       CACHE_GRAIN, size));
        begin = SQRL_MAX(begin, done);
        bool again = crowded(r->file, begin / slot * slot, slot);
        if (again)
            begin = SQRL_MAX(begin / slot * slot, done);
        fetch->again |= again;
        bool on = r->from <= next && next - r->from <= CACHE_GRAIN && next > 0;
        if (again || (on && i == missing->count && end - begin < AHEAD_BELOW))
            end = round_up(end, slot, size);
        rc = book(r, fetch, begin, end, again, err);
        done = end;
    }
    return rc;
}

/* Where each byte of the flights goes: to a missing part, else to memory of ours. */
static int compose(struct reading *r, struct fetch *fetch, struct sqrl_error *err) {
    const struct sqrl_range *want = r->missing.items, *last = want + r->missing.count;
    uint64_t around = 0;
    int rc = SQRL_OK;
    for (size_t i = 0; i < fetch->count; i++) {
        uint64_t at = fetch->flights[i].begin, end = fetch->flights[i].end;
        while (at < end && rc == SQRL_OK) {
            while (want < last && want->offset + want->size <= at)
                want++;
            bool wanted = want < last && want->offset <= at;
            uint64_t stop = want == last ? end
                            : wanted     ? SQRL_MIN(end, want->offset + want->size)
                                         : SQRL_MIN(end, want->offset);
            rc = parts_add(&fetch->parts, at, stop,
                           wanted ? want->data + (at - want->offset) : NULL, err);
            around += wanted ? 0 : stop - at;
            at = stop;
        }
    }
    if (rc == SQRL_OK && around)
        rc = sqrl_buffer_new(r->cache->context, (size_t)around, &fetch->around, err);
    for (size_t i = 0, used = 0; i < fetch->parts.count && rc == SQRL_OK; i++) {
        struct sqrl_range *part = &fetch->parts.items[i];
        if (part->data)
            continue;
        part->data = fetch->around->data + used;
        used += part->size;
    }
    return rc;
}

static int fetch_parts(struct reading *r, struct fetch *fetch, struct sqrl_error *err) {
    struct cache_file *f = r->file;
    int rc = cache_open_inner(r->cache, f, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_read(f->inner, fetch->parts.items, fetch->parts.count, r->cancel,
                            err);
    struct sqrl_stat now;
    if (rc == SQRL_OK && !is_versioned(r->cache) &&
        (sqrl_fs_stat(r->cache->inner, f->path, &now, NULL) != SQRL_OK ||
         !same_version(f, &now)))
        rc = changed(r->cache, f, err); /* nothing else would tell */
    for (size_t i = 0; i < fetch->parts.count && rc == SQRL_OK; i++) {
        const struct sqrl_range *part = &fetch->parts.items[i];
        if (part->got == part->size)
            continue;
        rc = sqrl_error_set(err, SQRL_E_TRUNCATED,
                            "of %zu bytes at offset %llu only %zu came, but it has %llu "
                            "bytes in all: it was cut, or its server is faulty",
                            part->size, (unsigned long long)part->offset, part->got,
                            (unsigned long long)f->object.size);
        rc = sqrl_error_at(err, rc, "%s", f->url);
    }
    cache_count(r->cache, SQRL_COUNT_CACHE_BYTES_FETCHED, rc ? 0 : fetch->bytes);
    return rc;
}

/* Fills parts that overlap others, and keeps as missing what was not fetched. */
static int deliver(struct reading *r, const struct fetch *fetch, struct sqrl_error *err) {
    struct parts left = {0};
    int rc = SQRL_OK;
    size_t first = 0;
    for (size_t i = 0; i < r->missing.count && rc == SQRL_OK; i++) {
        const struct sqrl_range want = r->missing.items[i];
        uint64_t at = want.offset, end = at + want.size;
        while (first < fetch->parts.count &&
               fetch->parts.items[first].offset + fetch->parts.items[first].size <= at)
            first++;
        for (size_t k = first; at < end && rc == SQRL_OK; k++) {
            const struct sqrl_range *part =
                k < fetch->parts.count ? &fetch->parts.items[k] : NULL;
            uint64_t begin = part ? SQRL_MIN(part->offset, end) : end;
            if (at < begin) {
                rc = parts_add(&left, at, begin, want.data + (at - want.offset), err);
                at = begin;
            }
            if (!part || at >= end)
                break;
            uint64_t stop = SQRL_MIN(end, part->offset + part->size);
            uint8_t *to = want.data + (at - want.offset);
            const uint8_t *from = part->data + (at - part->offset);
            if (to != from)
                memcpy(to, from, (size_t)(stop - at));
            at = stop;
        }
    }
    free(r->missing.items);
    r->missing = left;
    return rc;
}

/* The pieces that a new, larger one makes needless. */
static void drop_covered(struct cache *cache, struct cache_file *f,
                         struct cache_extent whole) {
    char path[CACHE_PATH_BYTES];
    for (;;) {
        struct cache_extent found = {0, 0};
        sqrl_lock_take(&f->lock);
        for (size_t i = 0; i < f->count && !found.size; i++)
            if (f->known[i].offset >= whole.offset &&
                f->known[i].offset + f->known[i].size <= whole.offset + whole.size &&
                !extent_equal(f->known[i], whole))
                found = f->known[i];
        sqrl_lock_drop(&f->lock);
        if (!found.size)
            return;
        known_drop(f, found);
        cache_piece_path(&cache->folder, f->object.key, found, path);
        unlink(path);
    }
}

/* Puts what was fetched into the cache. */
static void keep(struct reading *r, const struct fetch *fetch) {
    struct cache *cache = r->cache;
    struct cache_file *f = r->file;
    for (size_t i = 0; i < fetch->count; i++) {
        uint64_t at = fetch->flights[i].begin, end = fetch->flights[i].end, stop;
        for (; at < end && cache_may_write(cache); at = stop) {
            stop = SQRL_MIN(end, (at / cache->slot + 1) * cache->slot);
            struct cache_extent extent = {at, stop - at};
            uint64_t charge =
                cache_charge(cache_piece_bytes(&f->object, extent)) + CACHE_BLOCK;
            if (!cache_take(cache, charge)) {
                __atomic_store_n(&f->no_rest, 1, __ATOMIC_RELAXED);
                return;
            }
            int failure = cache_piece_write(&cache->folder, &f->object, extent,
                                            fetch->parts.items, fetch->parts.count);
            cache_done(cache, charge, failure);
            if (failure)
                return;
            sqrl_lock_take(&f->lock);
            known_add_locked(f, extent);
            sqrl_lock_drop(&f->lock);
            if (extent.size == cache->slot)
                drop_covered(cache, f, extent);
        }
    }
}

static void fetch_end(struct reading *r, struct fetch *fetch) {
    for (size_t i = 0; i < fetch->count; i++)
        cache_flight_end(&r->cache->flights, &fetch->flights[i]);
    free(fetch->parts.items);
    sqrl_buffer_unref(fetch->around);
}

/* Did others fetch, after this thread looked and before it booked, what it booked? Then
 * the booking is given back. */
static bool overtaken(struct reading *r, struct fetch *fetch) {
    bool found = false;
    if (!fetch->count || fetch->again)
        return false;
    known_list(r->cache, r->file);
    for (size_t i = 0; i < fetch->count && !found; i++) {
        struct cache_extent extent;
        uint64_t next;
        found = known_find(r->file, fetch->flights[i].begin, &extent, &next) ||
                next < fetch->flights[i].end;
    }
    if (found) {
        fetch_end(r, fetch);
        *fetch = (struct fetch){.count = 0};
    }
    return found;
}

/* Fetches some of what is missing, or waits for others who do; with `end`, what is
 * missing in [begin, end) of the object. */
static int fill(struct reading *r, uint64_t begin, uint64_t end, bool *fetched,
                struct sqrl_error *err) {
    struct fetch fetch = {.count = 0};
    int rc;
    do
        rc = end ? book(r, &fetch, begin, end, false, err) : book_missing(r, &fetch, err);
    while (rc == SQRL_OK && overtaken(r, &fetch));
    *fetched = fetch.count > 0;
    if (rc == SQRL_OK && fetch.count) {
        cache_count(r->cache, SQRL_COUNT_CACHE_MISSES, fetch.count);
        rc = compose(r, &fetch, err);
        if (rc == SQRL_OK)
            rc = fetch_parts(r, &fetch, err);
        if (rc == SQRL_OK)
            rc = deliver(r, &fetch, err);
        if (rc == SQRL_OK)
            keep(r, &fetch);
    }
    fetch_end(r, &fetch);
    return rc;
}

static bool no_room_for_rest(const struct cache_file *f) {
    return __atomic_load_n(&f->no_rest, __ATOMIC_RELAXED) != 0;
}

/* The rest of the object, where all of it is to be kept. */
static int fill_rest(struct reading *r, struct sqrl_error *err) {
    uint64_t size = r->file->object.size;
    int rc = SQRL_OK;
    for (uint64_t at = 0; at < size && rc == SQRL_OK && cache_may_write(r->cache) &&
                          !no_room_for_rest(r->file);
         at += BATCH) {
        bool fetched;
        rc = sqrl_cancel_requested(r->cancel)
                 ? cancelled(err)
                 : fill(r, at, SQRL_MIN(at + BATCH, size), &fetched, err);
    }
    return rc;
}

static int read_rounds(struct reading *r, bool *missed, struct sqrl_error *err) {
    int rc = serve(r, err);
    while (rc == SQRL_OK && r->missing.count) {
        bool fetched;
        known_list(r->cache, r->file);
        rc = serve(r, err);
        if (rc != SQRL_OK || !r->missing.count)
            break;
        *missed = true;
        rc = fill(r, 0, 0, &fetched, err);
        if (rc == SQRL_OK && r->missing.count && !fetched)
            rc = cache_flight_wait(
                &r->cache->flights, r->file->object.key, r->missing.items[0].offset,
                r->missing.items[0].offset + r->missing.items[0].size, r->cancel, err);
    }
    return rc;
}

/* The parts of the ranges that lie within the object, in order. */
static int begin_reading(struct reading *r, struct sqrl_range *ranges, size_t count,
                         uint64_t *end, struct sqrl_error *err) {
    uint64_t size = r->file->object.size;
    bool sorted = true;
    *end = 0;
    r->from = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        struct sqrl_range *range = &ranges[i];
        range->got = range->offset < size
                         ? (size_t)SQRL_MIN((uint64_t)range->size, size - range->offset)
                         : 0;
        if (range->got == 0)
            continue;
        sorted =
            sorted && (!r->missing.count ||
                       r->missing.items[r->missing.count - 1].offset <= range->offset);
        if (parts_add(&r->missing, range->offset, range->offset + range->got, range->data,
                      err))
            return SQRL_E_NO_MEMORY;
        *end = SQRL_MAX(*end, range->offset + range->got);
        r->from = SQRL_MIN(r->from, range->offset);
    }
    if (!sorted)
        qsort(r->missing.items, r->missing.count, sizeof *r->missing.items, by_offset);
    return SQRL_OK;
}

int cache_read(struct cache *cache, struct cache_file *file, struct sqrl_range *ranges,
               size_t count, const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct reading r = {.cache = cache, .file = file, .cancel = cancel};
    bool missed = false;
    uint64_t end;
    int rc = begin_reading(&r, ranges, count, &end, err);
    if (rc == SQRL_OK && r.missing.count) {
        rc = read_rounds(&r, &missed, err);
        cache_count(cache, SQRL_COUNT_CACHE_HITS, rc == SQRL_OK && !missed);
        __atomic_fetch_add(&cache->hits, rc == SQRL_OK && !missed, __ATOMIC_RELAXED);
        __atomic_store_n(&file->next, end, __ATOMIC_RELAXED);
        if (rc == SQRL_OK && missed && cache->whole && !no_room_for_rest(file))
            rc = fill_rest(&r, err);
    }
    free(r.missing.items);
    for (size_t i = 0; i < count && rc != SQRL_OK; i++)
        ranges[i].got = 0;
    return rc;
}
