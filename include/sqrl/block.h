/* sqrl/block.h - the unit of reading: about 1 MiB of samples, decompressed and parsed
 * once.
 *
 * A block is bytes, a tape whose nodes point into them, and where each sample begins. A
 * sample is (block, index): nothing is allocated per sample. Finished blocks are
 * read-only and may be read by any number of threads; reference counting is thread-safe.
 * The memory of the last reference goes back to its context for the next block.
 */
#ifndef SQRL_BLOCK_H
#define SQRL_BLOCK_H

#include "buffer.h"
#include "value.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SQRL_UNKNOWN UINT64_MAX

/* Where a sample is, for messages and provenance. */
struct sqrl_place {
    uint64_t shard;  /* index within the source */
    uint64_t sample; /* number within the shard; UINT64_MAX when it can't be told: plain
                        JSON lines that are not read from the front */
};

struct sqrl_block {
    struct sqrl_buffer *bytes; /* what the nodes' offsets count from */
    struct sqrl_tape tape;
    uint32_t *begin; /* [count]: node of each sample's value, usually a MAP */
    uint32_t count;  /* samples */
    uint32_t begin_capacity;
    uint64_t shard;  /* index of the shard within its source */
    uint64_t number; /* of this block within its shard */
    uint64_t first;  /* sample number, within the shard, of sample 0 */
    uint64_t line;   /* line formats: 1-based line of sample 0, else 0 */
    uint64_t origin; /* where bytes[0] lies in the shard's payload; for messages */
    uint32_t front;  /* bytes of them that are no payload: keys that a format adds */
    uint64_t added;  /* bytes of fields that were added to the data later: they do not
                        count where a shuffled window ends */
    const struct sqrl_place *places; /* [count] where its samples come from all over the
                                        source; else NULL: see sqrl_block_place */
    /* private */
    int refs;
    struct sqrl_context *context;
    struct sqrl_block *next_free;
};

/* One sample of a block; it holds no reference of its own. */
struct sqrl_sample {
    struct sqrl_block *block;
    uint32_t index;
};

/* An empty block with one reference, from the context's recycled ones; bytes is NULL. The
 * tape and begin keep the room they had in their last life. */
SQRL_CHECK int sqrl_block_new(struct sqrl_context *context, struct sqrl_block **out,
                              struct sqrl_error *err);
SQRL_API struct sqrl_block *sqrl_block_ref(struct sqrl_block *block);
/* Drops one reference; NULL is allowed. The last gives bytes and memory back. */
SQRL_API void sqrl_block_unref(struct sqrl_block *block);

/* Where its sample `index` is. */
static inline struct sqrl_place sqrl_block_place(const struct sqrl_block *block,
                                                 uint32_t index) {
    if (block->places)
        return block->places[index];
    struct sqrl_place place = {block->shard, block->first};
    if (block->first != SQRL_UNKNOWN)
        place.sample += index;
    return place;
}

/* Makes room for `count` entries in begin. */
SQRL_CHECK int sqrl_block_reserve(struct sqrl_block *block, uint32_t count,
                                  struct sqrl_error *err);

/* Decodes all of bytes[from, size) as MessagePack samples (or JSON lines), filling tape,
 * begin and count. A value that is cut short: SQRL_E_TRUNCATED, unless `tail` is not
 * NULL; then *tail receives where it begins (bytes->size when nothing is left over).
 * Errors name the sample (or line) and its offset. At most 2^32-1 nodes a block. */
SQRL_CHECK int sqrl_block_parse_msgpack(struct sqrl_block *block, size_t from,
                                        size_t *tail, const struct sqrl_limits *limits,
                                        struct sqrl_error *err);
SQRL_CHECK int sqrl_block_parse_jsonl(struct sqrl_block *block, size_t from,
                                      unsigned flags, const struct sqrl_limits *limits,
                                      struct sqrl_error *err);

/* Adds a copy of sample `index` of another block at the end of `to`, a block of one's
 * own: its nodes, and of the bytes those they point to. `to` grows as needed and may be
 * empty at first (sqrl_block_new); nothing is added on failure. */
SQRL_CHECK int sqrl_block_append_sample(struct sqrl_block *to,
                                        const struct sqrl_block *block, uint32_t index,
                                        struct sqrl_error *err);

/* Rows of another block, whose fields are added to a block's samples. */
struct sqrl_block_rows {
    struct sqrl_block *block;
    uint32_t from, count;
    bool added; /* these bytes count as `added` */
};
/* Adds the pairs of other blocks' samples to the block's: rows[] are, one part after the
 * other, so many that each part has as many as the block. All samples must be maps
 * (SQRL_E_CORRUPT). On failure the block is only good for sqrl_block_unref. */
SQRL_CHECK int sqrl_block_join(struct sqrl_block *block,
                               const struct sqrl_block_rows *rows, size_t count,
                               struct sqrl_error *err);

/* Bytes this block holds in memory: bytes, tape and begin. For budgets. */
SQRL_API uint64_t sqrl_block_memory(const struct sqrl_block *block);

#ifdef __cplusplus
}
#endif
#endif
