/* slab.c - recycled large memory.
 *
 * First touch of fresh pages is dear, several times less so for huge pages. Slabs are cut
 * from regions: maps that are asked to be huge pages and stay mapped for the next taker.
 * A region serves one class. It holds 2 MiB of slabs, or 6 MiB where a slab is 1.5 times
 * a power of two and 8 MiB where it is 8/7 of one, so that nothing is left over; a slab
 * of 2 MiB and more is a region of its own. The 8/7 are for blocks: they aim at 1 MiB and
 * are a sample larger.
 *
 *     | header page | slab 0 | slab 1 | ...        the header is found from a slab's
 * address: ^ a multiple of 8 MiB          no region that is shared is longer
 *
 * A region is full (in no list), partial (in its class's list: taken from first) or idle
 * (all its slabs are free). Idle regions are kept newest first up to the idle limit;
 * beyond it the oldest are unmapped. The slabs that a few long-lived takers leave free in
 * partial regions wait for their class.
 *
 * In the child of a fork the lists may be cut off midway: they are dropped, not walked,
 * and slabs of the parent's shared regions are not reused when they are given back. */
#include <sys/mman.h>

#include "inner.h"

#ifdef SQRL_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#define ROOT_ADD(p, n) __lsan_register_root_region(p, n)
#define ROOT_DROP(p, n) __lsan_unregister_root_region(p, n)
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#define ROOT_ADD(p, n) ((void)0)
#define ROOT_DROP(p, n) ((void)0)
#endif

#define HUGE_BYTES ((size_t)2 << 20)
#define REGION_ALIGN ((size_t)8 << 20)
#define HEADER_BYTES ((size_t)4096)

struct sqrl_region {
    struct sqrl_region *next, *prev; /* in its class's partial list or in the idle list */
    size_t length;                   /* of the slabs together */
    size_t slab_bytes;
    uint64_t free; /* a bit a slab */
    uint64_t all;
    unsigned index;
    uint32_t generation;
};

/* 8/7 of it in whole pages, where a region's bits are enough for it; else nothing more.
 */
static size_t seventh_more(size_t base) {
    if (base == SQRL_SLAB_MIN_BYTES || base >= HUGE_BYTES)
        return base;
    return base / 7 * 8 & ~(HEADER_BYTES - 1);
}

bool sqrl_slab_class(size_t size, unsigned *index, size_t *capacity) {
    size_t base = SQRL_SLAB_MIN_BYTES;
    for (unsigned i = 0; i < SQRL_SLAB_CLASSES; i += 3, base <<= 1) {
        const size_t sizes[] = {base, seventh_more(base), base + base / 2};
        for (unsigned k = 0; k < 3; k++) {
            if (size > sizes[k])
                continue;
            *index = i + k;
            *capacity = sizes[k];
            return true;
        }
    }
    return false;
}

static uint8_t *region_base(struct sqrl_region *region) {
    return (uint8_t *)region + HEADER_BYTES;
}

static struct sqrl_region *region_of(void *slab, size_t capacity) {
    uint8_t *base = slab;
    if (capacity < HUGE_BYTES)
        base -= (uintptr_t)slab & (REGION_ALIGN - 1);
    return (struct sqrl_region *)(base - HEADER_BYTES);
}

/* --- memory from the system --- */

static size_t region_length(unsigned index, size_t slab_bytes) {
    if (slab_bytes >= HUGE_BYTES)
        return slab_bytes;
    static const size_t lengths[] = {HUGE_BYTES, REGION_ALIGN, 3 * HUGE_BYTES};
    return lengths[index % 3];
}

static struct sqrl_region *map_region(struct sqrl_slabs *slabs, unsigned index,
                                      size_t slab_bytes) {
    size_t length = region_length(index, slab_bytes);
    size_t total = HEADER_BYTES + REGION_ALIGN + length;
    if (sqrl_allocation_fails())
        return NULL;
    uint8_t *raw =
        mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t head = -((uintptr_t)raw + HEADER_BYTES) & (REGION_ALIGN - 1);
    struct sqrl_region *region = (struct sqrl_region *)(raw + head);
    if (head > 0)
        munmap(raw, head);
    munmap(region_base(region) + length, REGION_ALIGN - head);
    madvise(region_base(region), length, MADV_HUGEPAGE); /* a wish: kernels may refuse */
    ROOT_ADD(region_base(region), length);
    size_t count = length / slab_bytes;
    *region = (struct sqrl_region){.length = length,
                                   .slab_bytes = slab_bytes,
                                   .all = count == 64 ? ~(uint64_t)0
                                                      : ((uint64_t)1 << count) - 1,
                                   .index = index,
                                   .generation = sqrl_fork_generation()};
    region->free = region->all;
    __atomic_fetch_add(&slabs->mapped_bytes, length, __ATOMIC_RELAXED);
    return region;
}

static void unmap_region(struct sqrl_slabs *slabs, struct sqrl_region *region) {
    size_t length = region->length;
    UNPOISON(region_base(region), length);
    ROOT_DROP(region_base(region), length);
    munmap(region, HEADER_BYTES + length);
    __atomic_fetch_sub(&slabs->mapped_bytes, length, __ATOMIC_RELAXED);
}

/* --- lists, under the lock --- */

static void push_front(struct sqrl_region_list *list, struct sqrl_region *region) {
    region->prev = NULL;
    region->next = list->first;
    if (list->first != NULL)
        list->first->prev = region;
    else
        list->last = region;
    list->first = region;
}

static void unlink_region(struct sqrl_region_list *list, struct sqrl_region *region) {
    if (region->prev != NULL)
        region->prev->next = region->next;
    else
        list->first = region->next;
    if (region->next != NULL)
        region->next->prev = region->prev;
    else
        list->last = region->prev;
}

static size_t idle_limit(const struct sqrl_slabs *slabs) {
    return SQRL_MAX(slabs->idle_limit, slabs->held);
}

static void take_lock(struct sqrl_slabs *slabs) {
    if (sqrl_lock_take(&slabs->lock)) {
        memset(slabs->partial, 0, sizeof slabs->partial);
        slabs->idle = (struct sqrl_region_list){NULL, NULL};
        slabs->idle_bytes = 0;
    }
}

static void unlink_idle(struct sqrl_slabs *slabs, struct sqrl_region *region) {
    unlink_region(&slabs->idle, region);
    slabs->idle_bytes -= region->length;
}

/* The newest idle region of a class becomes a partial one. The idle limit keeps this
 * short. */
static struct sqrl_region *wake_idle(struct sqrl_slabs *slabs, unsigned index) {
    struct sqrl_region *region = slabs->idle.first;
    while (region != NULL && region->index != index)
        region = region->next;
    if (region != NULL) {
        unlink_idle(slabs, region);
        push_front(&slabs->partial[index], region);
    }
    return region;
}

/* The lowest slab first: it has been touched before the higher ones. */
static void *take_slab(struct sqrl_slabs *slabs, struct sqrl_region *region) {
    unsigned bit = (unsigned)__builtin_ctzll(region->free);
    region->free &= region->free - 1;
    if (region->free == 0)
        unlink_region(&slabs->partial[region->index], region);
    void *slab = region_base(region) + bit * region->slab_bytes;
    UNPOISON(slab, region->slab_bytes);
    return slab;
}

static void give_slab(struct sqrl_slabs *slabs, struct sqrl_region *region, void *slab) {
    size_t bit = (size_t)((uint8_t *)slab - region_base(region)) / region->slab_bytes;
    struct sqrl_region_list *partial = &slabs->partial[region->index];
    bool was_full = region->free == 0;
    POISON(slab, region->slab_bytes);
    region->free |= (uint64_t)1 << bit;
    if (region->free == region->all) {
        if (!was_full)
            unlink_region(partial, region);
        push_front(&slabs->idle, region);
        slabs->idle_bytes += region->length;
    } else if (was_full) {
        push_front(partial, region);
    }
}

/* Unlinks the oldest idle regions until at most `keep` bytes are idle. */
static struct sqrl_region *evict(struct sqrl_slabs *slabs, size_t keep) {
    struct sqrl_region *chain = NULL;
    while (slabs->idle_bytes > keep) {
        struct sqrl_region *oldest = slabs->idle.last;
        unlink_idle(slabs, oldest);
        oldest->next = chain;
        chain = oldest;
    }
    return chain;
}

/* --- outside the lock: handing pages back takes the system long --- */

static bool unmap_chain(struct sqrl_slabs *slabs, struct sqrl_region *chain) {
    bool any = chain != NULL;
    while (chain != NULL) {
        struct sqrl_region *next = chain->next;
        unmap_region(slabs, chain);
        chain = next;
    }
    return any;
}

static bool release_idle(struct sqrl_slabs *slabs) {
    take_lock(slabs);
    struct sqrl_region *chain = evict(slabs, 0);
    sqrl_lock_drop(&slabs->lock);
    return unmap_chain(slabs, chain);
}

void sqrl_slabs_init(struct sqrl_slabs *slabs) {
    sqrl_lock_init(&slabs->lock);
    slabs->idle_limit = SQRL_SLAB_IDLE_LIMIT;
}

void sqrl_slabs_reset(struct sqrl_slabs *slabs) {
    release_idle(slabs);
    sqrl_lock_reset(&slabs->lock);
}

size_t sqrl_slabs_idle(struct sqrl_slabs *slabs) {
    take_lock(slabs);
    size_t idle = slabs->idle_bytes;
    sqrl_lock_drop(&slabs->lock);
    return idle;
}

static void *take_known(struct sqrl_slabs *slabs, unsigned index) {
    void *slab = NULL;
    take_lock(slabs);
    struct sqrl_region *region = slabs->partial[index].first;
    if (region == NULL)
        region = wake_idle(slabs, index);
    if (region != NULL)
        slab = take_slab(slabs, region);
    sqrl_lock_drop(&slabs->lock);
    return slab;
}

static void *take_new(struct sqrl_slabs *slabs, unsigned index, size_t slab_bytes) {
    struct sqrl_region *region = map_region(slabs, index, slab_bytes);
    if (region == NULL && release_idle(slabs))
        region = map_region(slabs, index, slab_bytes);
    if (region == NULL)
        return NULL;
    POISON(region_base(region), region->length);
    take_lock(slabs);
    push_front(&slabs->partial[index], region);
    void *slab = take_slab(slabs, region);
    sqrl_lock_drop(&slabs->lock);
    return slab;
}

void *sqrl_slab_take(struct sqrl_context *context, size_t size, size_t *capacity,
                     struct sqrl_error *err) {
    struct sqrl_slabs *slabs = &context->slabs;
    void *slab = NULL;
    unsigned index;
    size_t bytes = size;
    *capacity = 0;
    if (sqrl_slab_class(size, &index, &bytes)) {
        slab = take_known(slabs, index);
        if (slab == NULL)
            slab = take_new(slabs, index, bytes);
    }
    if (slab == NULL)
        sqrl_no_memory(err, "a buffer", bytes);
    else
        *capacity = bytes;
    return slab;
}

void sqrl_slab_give(struct sqrl_context *context, void *slab, size_t capacity) {
    struct sqrl_slabs *slabs = &context->slabs;
    if (slab == NULL)
        return;
    struct sqrl_region *region = region_of(slab, capacity);
    if (region->generation != sqrl_fork_generation()) {
        if (capacity >= HUGE_BYTES) /* nobody else's: it needs no list */
            unmap_region(slabs, region);
        return;
    }
    take_lock(slabs);
    give_slab(slabs, region, slab);
    struct sqrl_region *chain = evict(slabs, idle_limit(slabs));
    sqrl_lock_drop(&slabs->lock);
    unmap_chain(slabs, chain);
}

void sqrl_slab_keep(struct sqrl_context *context, size_t bytes) {
    struct sqrl_slabs *slabs = &context->slabs;
    take_lock(slabs);
    slabs->idle_limit = SQRL_MAX(slabs->idle_limit, bytes);
    sqrl_lock_drop(&slabs->lock);
}

void sqrl_slab_hold(struct sqrl_context *context, size_t bytes) {
    take_lock(&context->slabs);
    context->slabs.held += bytes;
    sqrl_lock_drop(&context->slabs.lock);
}

void sqrl_slab_drop(struct sqrl_context *context, size_t bytes) {
    struct sqrl_slabs *slabs = &context->slabs;
    take_lock(slabs);
    slabs->held -= bytes;
    struct sqrl_region *chain = evict(slabs, idle_limit(slabs));
    sqrl_lock_drop(&slabs->lock);
    unmap_chain(slabs, chain);
}
