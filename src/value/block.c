/* Blocks are recycled as shells: the tape and begin arrays keep their room from one life
 * to the next, since fresh pages would cost more than parsing (first touch). A context
 * keeps at most MAX_IDLE shells (a shuffled window gives about a hundred back at once) of
 * MAX_IDLE_BYTES together, and none whose arrays grew beyond MAX_KEPT_BYTES. A
 * shell on the free list holds no reference to its context; a live block does. */
#include <stdlib.h>

#include "base/base.h"
#include "sqrl/block.h"

enum { MAX_IDLE = 512, MAX_IDLE_BYTES = 48 << 20, MAX_KEPT_BYTES = 8 << 20 };

struct shells {
    struct sqrl_lock lock;
    struct sqrl_block *free;
    unsigned count;
    uint64_t bytes;
};

static void *shells_new(struct sqrl_context *context, struct sqrl_error *err) {
    struct shells *shells = sqrl_calloc(1, sizeof *shells, "block list", err);
    if (shells)
        sqrl_lock_init(&shells->lock);
    return shells;
}

static void shell_free(struct sqrl_block *block) {
    sqrl_tape_reset(&block->tape);
    free(block->begin);
    free(block);
}

static void shells_free(void *state) {
    struct shells *shells = state;
    while (shells->free) {
        struct sqrl_block *block = shells->free;
        shells->free = block->next_free;
        shell_free(block);
    }
    sqrl_lock_reset(&shells->lock);
    free(shells);
}

/* Takes the lock; a child of a fork forgets the list, which may have been half-changed.
 */
static void shells_lock(struct shells *shells) {
    if (sqrl_lock_take(&shells->lock)) {
        shells->free = NULL;
        shells->count = 0;
        shells->bytes = 0;
    }
}

static struct shells *shells_of(struct sqrl_context *context, struct sqrl_error *err) {
    return sqrl_context_slot(context, SQRL_SLOT_VALUE, shells_new, shells_free, err);
}

int sqrl_block_new(struct sqrl_context *context, struct sqrl_block **out,
                   struct sqrl_error *err) {
    *out = NULL;
    struct shells *shells = shells_of(context, err);
    if (!shells)
        return SQRL_E_NO_MEMORY;
    shells_lock(shells);
    struct sqrl_block *block = shells->free;
    if (block) {
        shells->free = block->next_free;
        shells->count--;
        shells->bytes -= sqrl_block_memory(block);
    }
    sqrl_lock_drop(&shells->lock);
    if (!block) {
        block = sqrl_calloc(1, sizeof *block, "block", err);
        if (!block)
            return SQRL_E_NO_MEMORY;
    }
    struct sqrl_tape tape = block->tape;
    tape.count = 0;
    *block = (struct sqrl_block){.tape = tape,
                                 .begin = block->begin,
                                 .begin_capacity = block->begin_capacity,
                                 .refs = 1,
                                 .context = sqrl_context_ref(context)};
    *out = block;
    return SQRL_OK;
}

struct sqrl_block *sqrl_block_ref(struct sqrl_block *block) {
    __atomic_fetch_add(&block->refs, 1, __ATOMIC_RELAXED);
    return block;
}

void sqrl_block_unref(struct sqrl_block *block) {
    if (!block || __atomic_sub_fetch(&block->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    struct sqrl_context *context = block->context;
    sqrl_buffer_unref(block->bytes);
    block->bytes = NULL;
    free((void *)(uintptr_t)block->places);
    block->places = NULL;
    block->context = NULL;
    struct shells *shells = shells_of(context, NULL);
    uint64_t bytes = sqrl_block_memory(block);
    bool keep = bytes <= MAX_KEPT_BYTES;
    if (shells && keep) {
        shells_lock(shells);
        keep = shells->count < MAX_IDLE && shells->bytes + bytes <= MAX_IDLE_BYTES;
        if (keep) {
            block->next_free = shells->free;
            shells->free = block;
            shells->count++;
            shells->bytes += bytes;
        }
        sqrl_lock_drop(&shells->lock);
    }
    if (!shells || !keep)
        shell_free(block);
    sqrl_context_unref(context);
}

int sqrl_block_reserve(struct sqrl_block *block, uint32_t count, struct sqrl_error *err) {
    if (count <= block->begin_capacity)
        return SQRL_OK;
    uint64_t grown =
        SQRL_MIN(SQRL_MAX(2ull * block->begin_capacity, count), UINT32_MAX - 1ull);
    if (grown < count)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a block holds at most 2^32-2 samples");
    uint32_t *begin = sqrl_realloc(block->begin, grown * sizeof *begin, "samples", err);
    if (!begin)
        return SQRL_E_NO_MEMORY;
    block->begin = begin;
    block->begin_capacity = (uint32_t)grown;
    return SQRL_OK;
}

uint64_t sqrl_block_memory(const struct sqrl_block *block) {
    return (block->bytes ? block->bytes->capacity : 0) +
           (uint64_t)block->tape.capacity * sizeof(struct sqrl_node) +
           (uint64_t)block->begin_capacity * sizeof *block->begin;
}

/* The decoder names the byte within the block; says where in the payload that is. */
static int at_byte(const struct sqrl_block *block, size_t offset, int code,
                   struct sqrl_error *err) {
    if (err)
        err->where[0] = 0;
    return sqrl_error_at(err, code, "byte %llu",
                         (unsigned long long)(block->origin + offset));
}

/* The number within the shard, where it is known. */
static int at_sample(const struct sqrl_block *block, int code, struct sqrl_error *err) {
    if (block->first == SQRL_UNKNOWN)
        return sqrl_error_at(err, code, "sample %u of the block", block->count);
    return sqrl_error_at(err, code, "sample %llu",
                         (unsigned long long)(block->first + block->count));
}

/* Samples decoded per call; begin grows between calls, by what really was there. */
enum { STEP = 1024 };

int sqrl_block_parse_msgpack(struct sqrl_block *block, size_t from, size_t *tail,
                             const struct sqrl_limits *limits, struct sqrl_error *err) {
    const uint8_t *bytes = block->bytes->data;
    size_t size = block->bytes->size, offset = from;
    block->count = 0;
    block->tape.count = 0;
    for (;;) {
        int rc = sqrl_block_reserve(block, block->count + STEP, err);
        if (rc)
            return rc;
        uint32_t got = 0;
        rc = sqrl_msgpack_decode_many(&block->tape, bytes, size, &offset,
                                      block->begin + block->count, STEP, &got, limits,
                                      err);
        block->count += got;
        if (rc) {
            at_byte(block, offset, rc, err);
            return at_sample(block, rc, err);
        }
        if (got < STEP)
            break;
    }
    if (tail) {
        *tail = offset;
    } else if (offset < size) {
        sqrl_error_set(
            err, SQRL_E_TRUNCATED,
            "the sample that begins here needs more bytes than the %zu that are "
            "left; the data were cut short",
            size - offset);
        at_byte(block, offset, SQRL_E_TRUNCATED, err);
        return at_sample(block, SQRL_E_TRUNCATED, err);
    }
    return SQRL_OK;
}

/* How many lines end in bytes[from, to). */
static uint64_t count_newlines(const uint8_t *bytes, size_t from, size_t to) {
    uint64_t lines = 0;
    for (size_t i = from; i < to; i++)
        lines += bytes[i] == '\n';
    return lines;
}

/* Says on which line of the file (or, where that is not known, of the block) `offset` is.
 */
static int at_line(const struct sqrl_block *block, size_t from, size_t offset, int code,
                   struct sqrl_error *err) {
    uint64_t line = count_newlines(block->bytes->data, from, offset);
    at_byte(block, offset, code, err);
    if (block->line)
        return sqrl_error_at(err, code, "line %llu",
                             (unsigned long long)(block->line + line));
    return sqrl_error_at(err, code, "line %llu of the block",
                         (unsigned long long)(line + 1));
}

int sqrl_block_parse_jsonl(struct sqrl_block *block, size_t from, unsigned flags,
                           const struct sqrl_limits *limits, struct sqrl_error *err) {
    uint8_t *bytes = block->bytes->data;
    size_t size = block->bytes->size, offset = from;
    block->count = 0;
    block->tape.count = 0;
    /* All lines in one call: the decoder's first pass goes over everything it is given.
     */
    uint64_t lines = count_newlines(bytes, from, size) + 1;
    if (lines > UINT32_MAX - 2)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a block holds at most 2^32-3 lines");
    int rc = sqrl_block_reserve(block, (uint32_t)lines, err);
    if (rc)
        return rc;
    rc = sqrl_jsonl_decode_many(&block->tape, bytes, size, &offset, block->begin,
                                (uint32_t)lines, &block->count, flags, limits, err);
    if (rc)
        return at_line(block, from, offset, rc, err);
    if (offset < size) {
        sqrl_error_set(err, SQRL_E_TRUNCATED,
                       "the data end within a JSON value: they were cut short, get "
                       "them again");
        return at_line(block, from, offset, SQRL_E_TRUNCATED, err);
    }
    return SQRL_OK;
}
