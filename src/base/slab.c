/* slab.c - recycled large memory.
 *
 * Fresh pages are dear, so a slab that is given back stays mapped for the next taker of
 * its class, the most recently used first, up to the idle limit; the oldest idle ones go
 * first. Slabs of 2 MiB and more are maps of their own, aligned and asked to be huge
 * pages. Smaller ones come from malloc, which recycles below our limit too and does not
 * spend a map (the system has 65,530 of them a process) on every kept sample. The list's
 * links stand in the idle slabs themselves: their first page is touched anyway. In the
 * child of a fork the lists may be cut off midway: they are dropped, not walked. */
#include <stdlib.h>
#include <sys/mman.h>

#include "inner.h"

#if defined(__SANITIZE_ADDRESS__)
#define SLAB_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_ASAN 1
#endif
#endif
#ifdef SLAB_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

#define HUGE_BYTES ((size_t)2 << 20)
#define CLASS_SHIFT 16 /* the smallest class is 64 KiB */

struct sqrl_slab_idle {
    struct sqrl_slab_idle *newer, *older; /* among all idle slabs */
    struct sqrl_slab_idle *next, *prev;   /* in its class, newest first */
    size_t capacity;
    unsigned index;
};

bool sqrl_slab_class(size_t size, unsigned *index, size_t *capacity) {
    size_t base = (size_t)1 << CLASS_SHIFT;
    for (unsigned i = 0; i < SQRL_SLAB_CLASSES; i += 2, base <<= 1) {
        if (size <= base + base / 2) {
            *index = i + (size > base);
            *capacity = size > base ? base + base / 2 : base;
            return true;
        }
    }
    return false;
}

/* --- memory from the system
 * --------------------------------------------------------------- */

static void *map_aligned(size_t capacity) {
    size_t length = capacity + HUGE_BYTES;
    uint8_t *raw =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t head = -(uintptr_t)raw & (HUGE_BYTES - 1);
    if (head > 0)
        munmap(raw, head);
    if (length - head > capacity)
        munmap(raw + head + capacity, length - head - capacity);
    madvise(raw + head, capacity, MADV_HUGEPAGE); /* a wish: kernels without them go on */
    return raw + head;
}

static void *grow(size_t capacity) {
    if (sqrl_allocation_fails())
        return NULL;
    if (capacity >= HUGE_BYTES)
        return map_aligned(capacity);
    return aligned_alloc(SQRL_BUFFER_ALIGN, capacity);
}

static void shrink(void *slab, size_t capacity) {
    UNPOISON(slab, capacity);
    if (capacity >= HUGE_BYTES)
        munmap(slab, capacity);
    else
        free(slab);
}

/* --- idle lists, under the lock
 * -------------------------------------------------------------- */

static void unlink_idle(struct sqrl_slabs *slabs, struct sqrl_slab_idle *idle) {
    if (idle->prev != NULL)
        idle->prev->next = idle->next;
    else
        slabs->classes[idle->index] = idle->next;
    if (idle->next != NULL)
        idle->next->prev = idle->prev;
    if (idle->newer != NULL)
        idle->newer->older = idle->older;
    else
        slabs->newest = idle->older;
    if (idle->older != NULL)
        idle->older->newer = idle->newer;
    else
        slabs->oldest = idle->newer;
    slabs->idle_bytes -= idle->capacity;
}

static void link_idle(struct sqrl_slabs *slabs, struct sqrl_slab_idle *idle) {
    idle->prev = NULL;
    idle->next = slabs->classes[idle->index];
    if (idle->next != NULL)
        idle->next->prev = idle;
    slabs->classes[idle->index] = idle;
    idle->newer = NULL;
    idle->older = slabs->newest;
    if (idle->older != NULL)
        idle->older->newer = idle;
    else
        slabs->oldest = idle;
    slabs->newest = idle;
    slabs->idle_bytes += idle->capacity;
}

static void drop_lists(struct sqrl_slabs *slabs) {
    memset(slabs->classes, 0, sizeof slabs->classes);
    slabs->newest = slabs->oldest = NULL;
    slabs->idle_bytes = 0;
}

static void take_lock(struct sqrl_slabs *slabs) {
    if (sqrl_lock_take(&slabs->lock))
        drop_lists(slabs);
}

/* Unlinks the oldest until at most `keep` bytes are idle; the chain is linked by `next`.
 */
static struct sqrl_slab_idle *evict(struct sqrl_slabs *slabs, size_t keep) {
    struct sqrl_slab_idle *chain = NULL;
    while (slabs->idle_bytes > keep && slabs->oldest != NULL) {
        struct sqrl_slab_idle *oldest = slabs->oldest;
        unlink_idle(slabs, oldest);
        oldest->next = chain;
        chain = oldest;
    }
    return chain;
}

/* Outside the lock: handing pages back takes the system long. */
static void shrink_chain(struct sqrl_slab_idle *chain) {
    while (chain != NULL) {
        struct sqrl_slab_idle *next = chain->next;
        shrink(chain, chain->capacity);
        chain = next;
    }
}

static bool release_idle(struct sqrl_slabs *slabs) {
    take_lock(slabs);
    struct sqrl_slab_idle *chain = evict(slabs, 0);
    sqrl_lock_drop(&slabs->lock);
    shrink_chain(chain);
    return chain != NULL;
}

/* --- for the context
 * ------------------------------------------------------------------------- */

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

void *sqrl_slab_take(struct sqrl_context *context, size_t size, size_t *capacity,
                     struct sqrl_error *err) {
    *capacity = 0;
    unsigned index;
    size_t bytes;
    if (!sqrl_slab_class(size, &index, &bytes)) {
        sqrl_no_memory(err, "a buffer", size);
        return NULL;
    }
    struct sqrl_slabs *slabs = &context->slabs;
    take_lock(slabs);
    struct sqrl_slab_idle *idle = slabs->classes[index];
    if (idle != NULL)
        unlink_idle(slabs, idle);
    sqrl_lock_drop(&slabs->lock);
    void *slab = idle;
    if (slab != NULL)
        UNPOISON(slab, bytes);
    else
        slab = grow(bytes);
    if (slab == NULL && release_idle(slabs))
        slab = grow(bytes);
    if (slab == NULL) {
        sqrl_no_memory(err, "a buffer", bytes);
        return NULL;
    }
    __atomic_fetch_add(&slabs->used_bytes, bytes, __ATOMIC_RELAXED);
    *capacity = bytes;
    return slab;
}

void sqrl_slab_give(struct sqrl_context *context, void *slab, size_t capacity) {
    struct sqrl_slabs *slabs = &context->slabs;
    if (slab == NULL)
        return;
    __atomic_fetch_sub(&slabs->used_bytes, capacity, __ATOMIC_RELAXED);
    unsigned index;
    size_t bytes;
    if (capacity > slabs->idle_limit || !sqrl_slab_class(capacity, &index, &bytes)) {
        shrink(slab, capacity);
        return;
    }
    struct sqrl_slab_idle *idle = slab;
    idle->capacity = capacity;
    idle->index = index;
    POISON(idle + 1, capacity - sizeof *idle);
    take_lock(slabs);
    link_idle(slabs, idle);
    struct sqrl_slab_idle *chain = evict(slabs, slabs->idle_limit);
    sqrl_lock_drop(&slabs->lock);
    shrink_chain(chain);
}
