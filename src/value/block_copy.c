/* block_copy.c - one sample out of a block, into another that holds nothing else of it.
 *
 * MessagePack's values lie one behind the other: their bytes are copied in one piece and
 * the nodes' offsets moved by one distance. Where they lie apart (keys of idx at the
 * front of a block), each value's bytes are copied for themselves. */
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
