/* state.h - where an iterator stands, as text and back.
 *
 * A state is one JSON object of a few hundred bytes: version, what the plan is (the text
 * of each stage that decides which samples come), the data (number of shards and a hash
 * of their names, sizes and counts), the epoch, and the position, never any sample.
 * Nothing in it is executed, every number is checked before it is used.
 */
#ifndef SQRL_STREAM_STATE_H
#define SQRL_STREAM_STATE_H

#include "stream/executor.h"

#define SQRL_STATE_VERSION 1u
#define SQRL_MAX_STATE_BYTES (UINT64_C(1) << 30)

struct sqrl_state {
    uint64_t epoch, shards, fingerprint;
    uint64_t nodes; /* estimate of a sample's nodes, which sizes windows */
    bool finished, dealt;
    struct sqrl_mark mark; /* undealt: chunk, row, window, at; both: given, batch_ */
    struct sqrl_share share;
    uint64_t drop;  /* samples that come out from there on and were given already */
    uint64_t *left; /* [lefts]: to go, of take, skip and filter (0) stages */
    size_t lefts;
    uint64_t
        head; /* length buckets: of the rows from there on, so many are decided, and */
    uint64_t *held; /* all of those were given but these [helds] */
    size_t helds;
};

struct sqrl_states {
    size_t count;
    struct sqrl_state state[];
};

/* The hash of the first `shards` shards. */
uint64_t sqrl_state_fingerprint(const struct sqrl_source *source, uint64_t shards);
/* The text of the plan's stage number `i` of those that decide which samples come; NULL
 * behind the last, or without memory (then *code is set). free() it. */
char *sqrl_state_stage(const struct sqrl_plan *plan, size_t i, int *code,
                       struct sqrl_error *err);

#endif
