/* order.c - chunks, windows and keyed permutations.
 *
 * The chunk permutation and the window permutations are functions of (seed, epoch,
 * number) and nothing else, so any position can be computed without those before it.
 * Chunks are about a sixteenth of a window, so that a window holds samples from about
 * sixteen places of the data. Where all sizes are known, windows are cut to equal sizes:
 * the last is no small rest in which a few samples would stay among themselves.
 */
#include "stream/order.h"

#include <stdlib.h>

#define CHUNKS_PER_WINDOW 16u
#define MAX_CHUNK_BYTES (UINT64_C(64) << 20)
#define BLOCK_BYTES (UINT64_C(1) << 20) /* where a shard does not tell its size */
#define FEISTEL_ROUNDS 6u

struct order_shard {
    uint64_t first_chunk;      /* of this shard, in the order they lie; SAMPLES: sample */
    uint32_t blocks_per_chunk; /* 0: one chunk, the whole shard */
    uint32_t chunk_kib;        /* of a full chunk, in memory; 0: not known */
};

struct sqrl_order {
    uint64_t shards, chunks;
    enum sqrl_order_kind kind;
    uint64_t seed, epoch;
    uint64_t target_kib; /* of a window */
    struct sqrl_permutation permutation;
    uint64_t position;         /* of the next chunk that next() gives */
    uint64_t passed_kib;       /* of the chunks given so far */
    uint64_t end_kib;          /* where the current window should end */
    struct order_shard *shard; /* [shards + 1] */
    uint64_t *blocks;          /* [shards] */
};

uint64_t sqrl_order_key(uint64_t seed, uint64_t epoch, enum sqrl_key_purpose purpose,
                        uint64_t number) {
    uint64_t key = sqrl_mix64(seed ^ UINT64_C(0x5371756972726c21));
    key = sqrl_mix64(key ^ epoch);
    key = sqrl_mix64(key ^ (uint64_t)purpose);
    return sqrl_mix64(key ^ number);
}

void sqrl_permutation_init(struct sqrl_permutation *p, uint64_t n, uint64_t key) {
    memset(p, 0, sizeof *p);
    p->n = n;
    unsigned bits = n > 4 ? 64u - (unsigned)__builtin_clzll(n - 1) : 2u;
    p->low_bits = bits / 2;
    p->high_bits = bits - bits / 2;
    p->low_mask = (UINT64_C(1) << p->low_bits) - 1;
    p->high_mask = (UINT64_C(1) << p->high_bits) - 1;
    for (unsigned i = 0; i < FEISTEL_ROUNDS; i++)
        p->key[i] = key = sqrl_mix64(key + i);
}

static inline uint64_t feistel_round(uint64_t half, uint64_t key) {
    uint64_t h = (half + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ key;
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ (h >> 32);
}

uint64_t sqrl_permutation_at(const struct sqrl_permutation *p, uint64_t i) {
    do {
        uint64_t low = i & p->low_mask, high = i >> p->low_bits;
        for (unsigned r = 0; r < FEISTEL_ROUNDS; r += 2) {
            low ^= feistel_round(high, p->key[r]) & p->low_mask;
            high ^= feistel_round(low, p->key[r + 1]) & p->high_mask;
        }
        i = high << p->low_bits | low;
    } while (i >= p->n);
    return i;
}

static uint32_t clamp_kib(uint64_t bytes) {
    uint64_t kib = (bytes + 1023) / 1024;
    return kib > UINT32_MAX ? UINT32_MAX : (uint32_t)kib;
}

/* How many consecutive blocks of a shard stay together. */
static void cut_shard(const struct sqrl_order_args *args,
                      const struct sqrl_order_shard *shard, struct order_shard *out) {
    out->blocks_per_chunk = 0;
    out->chunk_kib =
        shard->bytes == SQRL_UNKNOWN ? 0 : clamp_kib(SQRL_MAX(shard->bytes, 1u));
    if (args->kind != SQRL_ORDER_WINDOWS || shard->blocks == SQRL_UNKNOWN ||
        shard->blocks <= 1)
        return;
    uint64_t want = SQRL_MIN(args->window_bytes / CHUNKS_PER_WINDOW, MAX_CHUNK_BYTES);
    uint64_t block_bytes = BLOCK_BYTES;
    if (shard->bytes != SQRL_UNKNOWN)
        block_bytes = SQRL_MAX(shard->bytes / shard->blocks, 1u);
    uint64_t per_chunk = SQRL_MAX(want / block_bytes, 1u);
    if (per_chunk >= shard->blocks)
        return;
    out->blocks_per_chunk = (uint32_t)SQRL_MIN(per_chunk, UINT32_MAX);
    if (shard->bytes != SQRL_UNKNOWN)
        out->chunk_kib = clamp_kib(block_bytes * out->blocks_per_chunk);
}

static uint64_t chunks_of(const struct order_shard *cut, uint64_t blocks) {
    if (!cut->blocks_per_chunk)
        return blocks == 0 ? 0 : 1; /* an empty shard gives nothing */
    return (blocks + cut->blocks_per_chunk - 1) / cut->blocks_per_chunk;
}

/* Equal windows where the sizes are known; else as large as asked for. */
static uint64_t window_target(const struct sqrl_order_args *args) {
    uint64_t window = SQRL_MAX(args->window_bytes / 1024, 1u), total = 0;
    for (uint64_t s = 0; s < args->count; s++) {
        if (args->shards[s].bytes == SQRL_UNKNOWN)
            return window;
        total += args->shards[s].bytes / 1024;
    }
    uint64_t windows = (total + window - 1) / window;
    return windows ? (total + windows - 1) / windows : window;
}

int sqrl_order_new(const struct sqrl_order_args *args, struct sqrl_order **out,
                   struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_order *order = sqrl_calloc(1, sizeof *order, "order", err);
    if (!order)
        return SQRL_E_NO_MEMORY;
    order->shards = args->count;
    order->kind = args->kind;
    order->seed = args->seed;
    order->epoch = args->epoch;
    order->end_kib = order->target_kib = window_target(args);
    order->shard = sqrl_calloc(args->count + 1, sizeof *order->shard, "order", err);
    order->blocks = sqrl_calloc(args->count + 1, sizeof *order->blocks, "order", err);
    if (!order->shard || !order->blocks) {
        sqrl_order_free(order);
        return SQRL_E_NO_MEMORY;
    }
    for (uint64_t s = 0; s < args->count; s++) {
        order->shard[s].first_chunk = order->chunks;
        order->blocks[s] = args->shards[s].blocks;
        cut_shard(args, &args->shards[s], &order->shard[s]);
        uint64_t chunks = args->kind == SQRL_ORDER_SAMPLES
                              ? args->shards[s].samples
                              : chunks_of(&order->shard[s], args->shards[s].blocks);
        if (chunks == SQRL_UNKNOWN ||
            __builtin_add_overflow(order->chunks, chunks, &order->chunks)) {
            sqrl_order_free(order);
            return sqrl_error_set(
                err, SQRL_E_UNSUPPORTED,
                "single samples can't be put in random order, since the samples of "
                "shard %llu are not counted: give shuffle_all a window, or convert the "
                "data to native shards with `squirrel convert`",
                (unsigned long long)s);
        }
    }
    order->shard[args->count].first_chunk = order->chunks;
    enum sqrl_key_purpose purpose =
        args->kind == SQRL_ORDER_SAMPLES ? SQRL_KEY_SAMPLES : SQRL_KEY_CHUNKS;
    if (args->kind != SQRL_ORDER_AS_IT_LIES)
        sqrl_permutation_init(&order->permutation, order->chunks,
                              sqrl_order_key(args->seed, args->epoch, purpose, 0));
    *out = order;
    return SQRL_OK;
}

void sqrl_order_free(struct sqrl_order *order) {
    if (!order)
        return;
    free(order->shard);
    free(order->blocks);
    free(order);
}

uint64_t sqrl_order_chunks(const struct sqrl_order *order) {
    return order->chunks;
}

/* The last shard whose first chunk is <= chunk; empty shards share their successor's. */
static uint64_t shard_of_chunk(const struct sqrl_order *order, uint64_t chunk) {
    uint64_t low = 0, high = order->shards;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (order->shard[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void sqrl_order_chunk_at(const struct sqrl_order *order, uint64_t position,
                         struct sqrl_chunk *out) {
    uint64_t number = position;
    if (order->kind != SQRL_ORDER_AS_IT_LIES)
        number = sqrl_permutation_at(&order->permutation, position);
    uint64_t s = shard_of_chunk(order, number);
    const struct order_shard *shard = &order->shard[s];
    memset(out, 0, sizeof *out);
    out->shard = s;
    out->blocks = order->blocks[s];
    out->rows = SQRL_UNKNOWN;
    out->number = position;
    if (order->kind == SQRL_ORDER_SAMPLES) {
        out->first_row = number - shard->first_chunk;
        out->rows = 1;
        return;
    }
    if (shard->blocks_per_chunk) {
        out->first_block = (number - shard->first_chunk) * shard->blocks_per_chunk;
        out->blocks = SQRL_MIN(shard->blocks_per_chunk, out->blocks - out->first_block);
    }
}

/* A short last chunk of a shard counts in proportion. */
static uint64_t chunk_kib(const struct sqrl_order *order,
                          const struct sqrl_chunk *chunk) {
    const struct order_shard *shard = &order->shard[chunk->shard];
    if (!shard->blocks_per_chunk)
        return shard->chunk_kib;
    return SQRL_MAX((uint64_t)shard->chunk_kib * chunk->blocks / shard->blocks_per_chunk,
                    1u);
}

bool sqrl_order_next(struct sqrl_order *order, struct sqrl_chunk *out) {
    if (order->position >= order->chunks) {
        memset(out, 0, sizeof *out);
        return false;
    }
    sqrl_order_chunk_at(order, order->position++, out);
    if (order->kind != SQRL_ORDER_WINDOWS)
        return true;
    order->passed_kib += chunk_kib(order, out);
    if (order->position >= order->chunks) {
        out->ends_window = true;
        return true;
    }
    struct sqrl_chunk following;
    sqrl_order_chunk_at(order, order->position, &following);
    /* Ends where its end is nearer without the next chunk than with it. Ends are counted
     * from the beginning, so that differences do not add up. */
    if (order->passed_kib + chunk_kib(order, &following) / 2 >= order->end_kib) {
        out->ends_window = true;
        while (order->end_kib <= order->passed_kib + chunk_kib(order, &following) / 2)
            order->end_kib += order->target_kib;
    }
    return true;
}

/* Where windows end depends on the chunks before: they are walked. */
void sqrl_order_seek(struct sqrl_order *order, uint64_t position) {
    struct sqrl_chunk passed;
    if (order->kind != SQRL_ORDER_WINDOWS) {
        order->position = SQRL_MIN(position, order->chunks);
        return;
    }
    order->position = 0;
    order->passed_kib = 0;
    order->end_kib = order->target_kib;
    while (order->position < position && sqrl_order_next(order, &passed))
        ;
}

void sqrl_order_window(const struct sqrl_order *order, uint64_t window, uint64_t n,
                       struct sqrl_permutation *out) {
    sqrl_permutation_init(
        out, n, sqrl_order_key(order->seed, order->epoch, SQRL_KEY_WINDOW, window));
}
