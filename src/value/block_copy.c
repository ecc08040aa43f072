/* block_copy.c - one sample out of a block, into another that holds nothing else of it.
 *
 * MessagePack's values lie one behind the other: their bytes are copied in one piece and
 * the nodes' offsets moved by one distance. Where they lie apart (keys of idx at the
 * front of a block), each value's bytes are copied for themselves. */
#include <stdlib.h>

#include "sqrl/block.h"
#include "value/value.h"

/* Where a sample's values lie in its block. */
struct extent {
    uint64_t low, high, sum;
};

static bool has_bytes(const struct sqrl_node *node) {
    return (node->type == SQRL_STRING || node->type == SQRL_BINARY ||
            node->type == SQRL_NUMBER || node->type == SQRL_EXT ||
            node->type == SQRL_COMPLEX) &&
           !(node->flags & SQRL_NODE_ON_TAPE);
}

/* An array that was JSON has its data on the tape: nodes that are none. */
static bool on_tape(const struct sqrl_node *nodes, uint32_t i) {
    return nodes[i].type == SQRL_NDARRAY && (nodes[i + 1].flags & SQRL_NODE_ON_TAPE);
}

static uint32_t step(const struct sqrl_node *nodes, uint32_t i) {
    return on_tape(nodes, i) ? (uint32_t)nodes[i].v.next : i + 1;
}

static struct extent measure(const struct sqrl_node *nodes, uint32_t from, uint32_t to) {
    struct extent e = {UINT64_MAX, 0, 0};
    for (uint32_t i = from; i < to; i = step(nodes, i)) {
        if (!has_bytes(&nodes[i]))
            continue;
        e.low = SQRL_MIN(e.low, nodes[i].v.offset);
        e.high = SQRL_MAX(e.high, nodes[i].v.offset + nodes[i].size);
        e.sum += nodes[i].size;
    }
    if (e.low == UINT64_MAX)
        e.low = 0;
    return e;
}

/* Room for `more` bytes; grows by doubling. */
static int make_room(struct sqrl_block *to, uint64_t more, struct sqrl_error *err) {
    struct sqrl_buffer *old = to->bytes, *grown = NULL;
    size_t used = old ? old->size : 0;
    if (old && more <= old->capacity - used)
        return SQRL_OK;
    uint64_t capacity = SQRL_MAX(used + more, (uint64_t)(old ? 2 * old->capacity : 4096));
    int rc = sqrl_buffer_new(to->context, (size_t)capacity, &grown, err);
    if (rc)
        return rc;
    if (used)
        memcpy(grown->data, old->data, used);
    grown->size = used;
    sqrl_buffer_unref(old);
    to->bytes = grown;
    return SQRL_OK;
}

/* Moves offsets and links; `bytes` is what the nodes' offsets count from until now. */
static void rebase(struct sqrl_block *to, uint32_t from, const uint8_t *bytes,
                   const struct extent *extent, bool dense, uint32_t old_from) {
    struct sqrl_node *nodes = to->tape.nodes;
    struct sqrl_buffer *out = to->bytes;
    uint64_t delta = out->size - extent->low;
    uint32_t links = from - old_from; /* may wrap: the sum does not */
    if (dense && extent->high > extent->low) {
        memcpy(out->data + out->size, bytes + extent->low, extent->high - extent->low);
        out->size += extent->high - extent->low;
    }
    for (uint32_t i = from; i < to->tape.count; i = step(nodes, i)) {
        struct sqrl_node *node = &nodes[i];
        if (node->type >= SQRL_ARRAY) {
            node->v.next = (uint32_t)node->v.next + links;
        } else if (has_bytes(node) && dense) {
            node->v.offset += delta;
        } else if (has_bytes(node)) {
            memcpy(out->data + out->size, bytes + node->v.offset, node->size);
            node->v.offset = out->size;
            out->size += node->size;
        }
    }
}

int sqrl_block_append_sample(struct sqrl_block *to, const struct sqrl_block *block,
                             uint32_t index, struct sqrl_error *err) {
    const struct sqrl_node *nodes = block->tape.nodes;
    uint32_t begin = block->begin[index], end = sqrl_node_next(nodes, begin);
    struct extent extent = measure(nodes, begin, end);
    uint64_t span = extent.high - extent.low;
    bool dense = span <= 2 * extent.sum + 256;
    int rc = sqrl_block_reserve(to, to->count + 1, err);
    if (rc == SQRL_OK)
        rc = sqrl_tape_reserve(&to->tape, end - begin, err);
    if (rc == SQRL_OK)
        rc = make_room(to, dense ? span : extent.sum, err);
    if (rc)
        return rc;
    uint32_t at = to->tape.count;
    memcpy(to->tape.nodes + at, nodes + begin, (size_t)(end - begin) * sizeof *nodes);
    to->tape.count += end - begin;
    rebase(to, at, block->bytes->data, &extent, dense, begin);
    to->begin[to->count++] = at;
    return SQRL_OK;
}

/* --- joining --- */

/* Nodes [from, to) go to the end of the tape; their bytes have moved by `delta`. */
static void append_nodes(struct sqrl_tape *tape, const struct sqrl_node *nodes,
                         uint32_t from, uint32_t to, uint64_t delta) {
    struct sqrl_node *out = tape->nodes;
    uint32_t at = tape->count, links = at - from; /* may wrap: the sum does not */
    memcpy(out + at, nodes + from, (size_t)(to - from) * sizeof *nodes);
    tape->count += to - from;
    for (uint32_t i = at; i < tape->count; i = step(out, i)) {
        if (out[i].type >= SQRL_ARRAY)
            out[i].v.next = (uint32_t)out[i].v.next + links;
        else if (delta && has_bytes(&out[i]))
            out[i].v.offset += delta;
    }
}

/* One row after another of a part's pieces. */
struct cursor {
    const struct sqrl_block_rows *piece;
    const uint64_t *delta; /* of the piece's bytes */
    uint32_t row;          /* within the piece */
};

static int no_map(struct sqrl_error *err, uint32_t row) {
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "sample %u of the block is no map, so that no fields can be "
                          "joined to it: the file was written by a faulty program",
                          row);
}

static uint32_t rows_end(const struct sqrl_block_rows *rows) {
    const struct sqrl_block *block = rows->block;
    return sqrl_node_next(block->tape.nodes, block->begin[rows->from + rows->count - 1]);
}

/* Brings the bytes of all pieces together behind the block's own: delta[], and how many
 * nodes there will be. */
static int gather(struct sqrl_block *block, const struct sqrl_block_rows *rows,
                  size_t count, struct extent *extent, uint64_t *delta, uint64_t *nodes,
                  struct sqrl_error *err) {
    uint64_t more = 0;
    *nodes = block->tape.count;
    for (size_t i = 0; i < count; i++) {
        const struct sqrl_block *from = rows[i].block;
        uint32_t begin = from->begin[rows[i].from], end = rows_end(&rows[i]);
        extent[i] = measure(from->tape.nodes, begin, end);
        uint64_t span = extent[i].high - extent[i].low;
        more += span;
        *nodes += end - begin;
        if (rows[i].added)
            block->added += span + (uint64_t)(end - begin) * sizeof(struct sqrl_node);
    }
    if (*nodes >= UINT32_MAX)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a block of more than 2^32-2 values");
    int rc = make_room(block, more, err);
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        uint64_t span = extent[i].high - extent[i].low;
        struct sqrl_buffer *to = block->bytes;
        delta[i] = to->size - extent[i].low;
        if (span)
            memcpy(to->data + to->size, rows[i].block->bytes->data + extent[i].low, span);
        to->size += span;
    }
    return rc;
}

/* The children of the sample that the cursor stands at; the pairs are returned. */
static int join_row(struct sqrl_tape *tape, struct cursor *c, uint32_t *pairs) {
    if (c->row == c->piece->count) {
        c->piece++;
        c->delta++;
        c->row = 0;
    }
    const struct sqrl_block *from = c->piece->block;
    uint32_t map = from->begin[c->piece->from + c->row++];
    const struct sqrl_node *nodes = from->tape.nodes;
    if (nodes[map].type != SQRL_MAP)
        return SQRL_E_CORRUPT;
    append_nodes(tape, nodes, map + 1, (uint32_t)nodes[map].v.next, *c->delta);
    *pairs += nodes[map].size;
    return SQRL_OK;
}

/* Where each part's pieces begin: as many cursors as parts. */
static size_t set_cursors(const struct sqrl_block *block,
                          const struct sqrl_block_rows *rows, size_t count,
                          const uint64_t *delta, struct cursor *cursor) {
    size_t parts = 0;
    uint32_t there = 0;
    for (size_t i = 0; i < count; i++) {
        if (there == 0)
            cursor[parts++] = (struct cursor){&rows[i], &delta[i], 0};
        there += rows[i].count;
        there = there == block->count ? 0 : there;
    }
    return parts;
}

static int join_rows(struct sqrl_block *to, const struct sqrl_block *block,
                     struct cursor *cursor, size_t parts, struct sqrl_error *err) {
    const struct sqrl_node *nodes = block->tape.nodes;
    struct sqrl_tape *tape = &to->tape;
    for (uint32_t row = 0; row < block->count; row++) {
        uint32_t map = block->begin[row], at = tape->count, pairs;
        if (nodes[map].type != SQRL_MAP)
            return no_map(err, row);
        tape->nodes[tape->count++] = nodes[map];
        pairs = nodes[map].size;
        append_nodes(tape, nodes, map + 1, (uint32_t)nodes[map].v.next, 0);
        for (size_t p = 0; p < parts; p++)
            if (join_row(tape, &cursor[p], &pairs))
                return no_map(err, row);
        tape->nodes[at].size = pairs;
        tape->nodes[at].v.next = tape->count;
        to->begin[row] = at;
    }
    return SQRL_OK;
}

int sqrl_block_join(struct sqrl_block *block, const struct sqrl_block_rows *rows,
                    size_t count, struct sqrl_error *err) {
    struct sqrl_block *shell = NULL; /* lends its tape and its list of samples */
    uint64_t nodes = 0;
    size_t each = sizeof(struct cursor) + sizeof(struct extent) + sizeof(uint64_t);
    struct cursor *cursor = sqrl_malloc(count * each + 1, "parts of a block", err);
    if (!cursor)
        return SQRL_E_NO_MEMORY;
    struct extent *extent = (struct extent *)(cursor + count);
    uint64_t *delta = (uint64_t *)(extent + count);
    int rc = gather(block, rows, count, extent, delta, &nodes, err);
    if (rc == SQRL_OK)
        rc = sqrl_block_new(block->context, &shell, err);
    if (rc == SQRL_OK)
        rc = sqrl_tape_reserve(&shell->tape, (uint32_t)nodes, err);
    if (rc == SQRL_OK)
        rc = sqrl_block_reserve(shell, block->count, err);
    if (rc == SQRL_OK) {
        size_t parts = set_cursors(block, rows, count, delta, cursor);
        rc = join_rows(shell, block, cursor, parts, err);
    }
    if (rc == SQRL_OK) {
        struct sqrl_block old = *block;
        block->tape = shell->tape;
        block->begin = shell->begin;
        block->begin_capacity = shell->begin_capacity;
        shell->tape = old.tape;
        shell->begin = old.begin;
        shell->begin_capacity = old.begin_capacity;
    }
    sqrl_block_unref(shell);
    free(cursor);
    return rc;
}
