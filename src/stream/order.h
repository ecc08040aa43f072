/* order.h - in which order blocks are read and samples are given.
 *
 * Input: how many blocks each shard has and how large it is in memory, a seed and an
 * epoch. Output: a sequence of chunks (runs of consecutive blocks of one shard), where
 * windows end, and a permutation of the samples within a window. Nothing here reads data,
 * allocates per sample or depends on threads.
 *
 * Memory: 24 bytes a shard. Chunk k is computed, not stored: a keyed permutation of [0,
 * chunks) gives its number, a search over the shards' first chunks its place.
 */
#ifndef SQRL_STREAM_ORDER_H
#define SQRL_STREAM_ORDER_H

#include "base/base.h"
#include "sqrl/block.h"

/* A bijection of [0, n) that a key chooses: a Feistel network over the smallest domain of
 * whole bits that holds n, walking the cycle until the result is below n. */
struct sqrl_permutation {
    uint64_t n;
    unsigned low_bits, high_bits;
    uint64_t low_mask, high_mask;
    uint64_t key[6];
};
/* n = 0 is allowed (then there is nothing to ask for). */
void sqrl_permutation_init(struct sqrl_permutation *permutation, uint64_t n,
                           uint64_t key);
/* Where position i < n goes; the results for 0 .. n-1 are 0 .. n-1 in another order. */
uint64_t sqrl_permutation_at(const struct sqrl_permutation *permutation, uint64_t i);

struct sqrl_order_shard {
    uint64_t blocks;  /* SQRL_UNKNOWN: only reading tells; the shard is one chunk */
    uint64_t bytes;   /* in memory, parsed, or SQRL_UNKNOWN */
    uint64_t samples; /* or SQRL_UNKNOWN */
};

/* The keys of permutations: functions of seed, epoch, purpose and a number. */
enum sqrl_key_purpose {
    SQRL_KEY_CHUNKS = 1,
    SQRL_KEY_WINDOW = 2,
    SQRL_KEY_SAMPLES = 3,
    SQRL_KEY_LANE = 4
};
uint64_t sqrl_order_key(uint64_t seed, uint64_t epoch, enum sqrl_key_purpose purpose,
                        uint64_t number);

enum sqrl_order_kind {
    SQRL_ORDER_AS_IT_LIES, /* shards and blocks as they lie, each shard one chunk */
    SQRL_ORDER_WINDOWS,    /* chunks permuted, samples within windows of them */
    SQRL_ORDER_SAMPLES     /* single samples permuted: each is a chunk */
};

struct sqrl_order_args {
    const struct sqrl_order_shard *shards; /* borrowed for the call */
    uint64_t count;
    enum sqrl_order_kind kind;
    uint64_t seed, epoch;
    uint64_t window_bytes; /* WINDOWS only */
};

struct sqrl_chunk {
    uint64_t shard;
    uint64_t first_block;
    uint64_t blocks;          /* SQRL_UNKNOWN: to the end of the shard */
    uint64_t first_row, rows; /* the part of its samples that counts; rows SQRL_UNKNOWN:
                                 all from first_row on */
    uint64_t number;          /* position in the sequence */
    bool ends_window; /* known beforehand; where sizes are not known, windows are cut
                         while loading, by the size of what was loaded */
};

struct sqrl_order;
/* SQRL_E_UNSUPPORTED when the order of single samples is asked for and a shard's samples
 * are not counted. */
SQRL_CHECK int sqrl_order_new(const struct sqrl_order_args *args, struct sqrl_order **out,
                              struct sqrl_error *err);
void sqrl_order_free(struct sqrl_order *order);
uint64_t sqrl_order_chunks(const struct sqrl_order *order);
/* Chunk number `position` of the sequence; ends_window is left false. */
void sqrl_order_chunk_at(const struct sqrl_order *order, uint64_t position,
                         struct sqrl_chunk *out);
/* The next chunk of the sequence; false behind the last. One thread at a time. */
bool sqrl_order_next(struct sqrl_order *order, struct sqrl_chunk *out);
/* Goes on with chunk `position`, as if those before had been given. */
void sqrl_order_seek(struct sqrl_order *order, uint64_t position);
/* The permutation of the n samples of window number `window`. */
void sqrl_order_window(const struct sqrl_order *order, uint64_t window, uint64_t n,
                       struct sqrl_permutation *out);

#endif
