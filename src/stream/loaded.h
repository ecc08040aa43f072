/* loaded.h - a block behind LOAD: parsed, its filters tested, its columns located.
 *
 * Written by the task that loads it, read-only afterwards and shared by reference.
 */
#ifndef SQRL_STREAM_LOADED_H
#define SQRL_STREAM_LOADED_H

#include "base/base.h"
#include "sqrl/schema.h"

struct sqrl_columns;

/* How far a row came: the number of filters it passed, and whether what comes next fails.
 */
#define SQRL_ROW_FAILS 0x80u
#define SQRL_ROW_PASSED(stage) ((stage)&0x7fu)

struct sqrl_loaded {
    int refs;
    struct sqrl_block *block; /* NULL: compacted rows, or an error */
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    uint32_t count;
    uint32_t from, to; /* the rows that take part; the others belong to somebody else */
    uint64_t shard, first;
    uint64_t chunk, chunk_row; /* sequence number of its chunk, and row 0's place in it */
    const struct sqrl_place *places; /* [count]; NULL: (shard, first + row) */

    const uint8_t *stage; /* [count], or NULL: every row passes everything */
    uint32_t *cells;   /* [columns][count]: value node, SQRL_NO_NODE: missing or null */
    uint32_t *lengths; /* [columns with lengths][count]: elements or bytes */
    uint64_t *direct;  /* [columns][count]: what FILL copies, found without the nodes */
    uint64_t plain; /* bit c of the first 64 columns: `direct` holds for all its rows */
    uint64_t *measure;          /* [count]: what length_field says, or NULL */
    const uint8_t *missing;     /* [columns]: 1 where a row may lack a value */
    struct sqrl_buffer *memory; /* of the arrays above */

    uint64_t bytes_held;          /* the same on every run: decides where windows end */
    uint64_t charged;             /* taken from the budget and not given back yet */
    uint64_t ahead;               /* of that, what counts as reading ahead */
    struct sqrl_account *account; /* held while charged is not 0 */
    int code;                 /* not SQRL_OK: loading failed behind these rows, if any */
    bool bad, bad_told;       /* the block can't be read: its rows all fail, and ... */
    bool bad_replace;         /* ... are replaced */
    uint64_t bad_block;       /* its number; SQRL_UNKNOWN: the shard can't be opened */
    struct sqrl_error *error; /* why; NULL when there was no memory for it */
};

struct sqrl_row {
    struct sqrl_loaded *from;
    uint32_t index;
    uint32_t at; /* rows judged from the output's mark to behind this one; 0: its place */
};

static inline struct sqrl_place sqrl_row_place(const struct sqrl_loaded *loaded,
                                               uint32_t index) {
    if (loaded->places)
        return loaded->places[index];
    return (struct sqrl_place){loaded->shard, loaded->first == SQRL_UNKNOWN
                                                  ? SQRL_UNKNOWN
                                                  : loaded->first + index};
}

/* What one iterator has taken from its context's budget. Blocks that a user keeps may
 * outlive the iterator, so it has references of its own. */
struct sqrl_account {
    int refs;
    struct sqrl_context *context;
    uint64_t ahead; /* loaded or being loaded, and not used yet; atomic */
};
struct sqrl_account *sqrl_account_new(struct sqrl_context *context,
                                      struct sqrl_error *err);
void sqrl_account_unref(struct sqrl_account *account);
/* False when the context's budget refuses; never with force. */
bool sqrl_account_charge(struct sqrl_account *account, uint64_t bytes, bool force);
void sqrl_account_uncharge(struct sqrl_account *account, uint64_t bytes);
static inline uint64_t sqrl_account_ahead(const struct sqrl_account *account) {
    return __atomic_load_n(&account->ahead, __ATOMIC_RELAXED);
}

struct sqrl_loaded *sqrl_loaded_new(struct sqrl_error *err);
static inline struct sqrl_loaded *sqrl_loaded_ref(struct sqrl_loaded *loaded) {
    __atomic_add_fetch(&loaded->refs, 1, __ATOMIC_RELAXED);
    return loaded;
}
/* From now on the block counts for `bytes`, which were charged before. */
void sqrl_loaded_charge(struct sqrl_loaded *loaded, struct sqrl_account *account,
                        uint64_t bytes);
/* It is in use now: what comes behind it may be read. It stays in the budget. */
void sqrl_loaded_taken(struct sqrl_loaded *loaded);
/* It leaves the budget: used up, or in a user's hands. */
void sqrl_loaded_uncharge(struct sqrl_loaded *loaded);
/* NULL is allowed. */
void sqrl_loaded_unref(struct sqrl_loaded *loaded);
/* Arrays for `count` rows; what they hold is undefined. */
SQRL_CHECK int sqrl_loaded_reserve(struct sqrl_loaded *loaded,
                                   const struct sqrl_columns *columns, bool stages,
                                   bool measure, struct sqrl_context *context,
                                   struct sqrl_error *err);

#endif
