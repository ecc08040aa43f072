/* compact.c - a few rows of many blocks, copied into memory of their own. */
#include "stream/columns/columns.h"

#include <stdlib.h>

struct sizes {
    uint64_t nodes, bytes;
};

static bool has_bytes(const struct sqrl_node *node) {
    return node->type >= SQRL_NUMBER && node->type <= SQRL_COMPLEX;
}

/* The end of a value's nodes: an array that was JSON has its data behind them. */
static uint32_t nodes_end(const struct sqrl_loaded *from, uint32_t cell) {
    const struct sqrl_node *node = &from->nodes[cell];
    if (node->type == SQRL_NDARRAY && node[1].flags & SQRL_NODE_ON_TAPE)
        return cell + 2 + node->size;
    return sqrl_node_next(from->nodes, cell);
}

static void count_value(const struct sqrl_loaded *from, uint32_t cell,
                        struct sizes *sizes) {
    uint32_t end = nodes_end(from, cell);
    sizes->nodes += end - cell;
    for (uint32_t n = cell; n < end; n++)
        if (has_bytes(&from->nodes[n]))
            sizes->bytes += from->nodes[n].size;
}

/* Copies one value behind what is there and returns its new node. */
static uint32_t copy_value(const struct sqrl_loaded *from, uint32_t cell,
                           struct sqrl_node *nodes, uint8_t *bytes, struct sizes *used) {
    uint32_t end = nodes_end(from, cell), begin = (uint32_t)used->nodes;
    for (uint32_t n = cell; n < end; n++) {
        struct sqrl_node *node = &nodes[used->nodes++];
        *node = from->nodes[n];
        if (has_bytes(node)) {
            const uint8_t *data = node->flags & SQRL_NODE_ON_TAPE
                                      ? sqrl_ndarray_data(from->nodes, cell, from->bytes)
                                      : from->bytes + node->v.offset;
            if (node->size)
                memcpy(bytes + used->bytes, data, node->size);
            node->flags &= (uint8_t)~SQRL_NODE_ON_TAPE;
            node->v.offset = used->bytes;
            used->bytes += node->size;
        } else if (node->type >= SQRL_ARRAY) {
            node->v.next = (n == cell ? end : node->v.next) - cell + begin;
        }
    }
    return begin;
}

/* nodes | places | cells | lengths | missing | bytes, in one piece of memory. */
static void place(struct sqrl_loaded *loaded, const struct sqrl_columns *columns,
                  const struct sizes *sizes, uint32_t count, uint8_t *memory) {
    size_t at = 0;
    loaded->nodes = (struct sqrl_node *)(void *)memory;
    at += sizes->nodes * sizeof(struct sqrl_node);
    loaded->places = (struct sqrl_place *)(void *)(memory + at);
    at += (size_t)count * sizeof(struct sqrl_place);
    loaded->cells = (uint32_t *)(void *)(memory + at);
    at += (size_t)count * columns->count * sizeof(uint32_t);
    loaded->lengths = (uint32_t *)(void *)(memory + at);
    at += (size_t)count * columns->with_lengths * sizeof(uint32_t);
    loaded->missing = memory + at;
    at += columns->count;
    loaded->bytes = memory + at;
}

static size_t total_bytes(const struct sqrl_columns *columns, const struct sizes *sizes,
                          uint32_t count) {
    return sizes->nodes * sizeof(struct sqrl_node) +
           (size_t)count * sizeof(struct sqrl_place) +
           (size_t)count * (columns->count + columns->with_lengths) * sizeof(uint32_t) +
           columns->count + sizes->bytes;
}

static void copy_row(const struct sqrl_columns *columns, const struct sqrl_row *row,
                     uint32_t at, struct sqrl_loaded *to, struct sizes *used) {
    const struct sqrl_loaded *from = row->from;
    ((struct sqrl_place *)(uintptr_t)to->places)[at] = sqrl_row_place(from, row->index);
    for (uint32_t c = 0; c < columns->count; c++) {
        uint32_t cell = from->cells[(size_t)c * from->count + row->index];
        if (cell == SQRL_NO_NODE)
            ((uint8_t *)(uintptr_t)to->missing)[c] = 1;
        else
            cell = copy_value(from, cell, (struct sqrl_node *)(uintptr_t)to->nodes,
                              (uint8_t *)(uintptr_t)to->bytes, used);
        to->cells[(size_t)c * to->count + at] = cell;
    }
    for (uint32_t v = 0; v < columns->with_lengths; v++)
        to->lengths[(size_t)v * to->count + at] =
            from->lengths[(size_t)v * from->count + row->index];
}

int sqrl_rows_compact(struct sqrl_context *context, const struct sqrl_columns *columns,
                      struct sqrl_row *rows, uint32_t count, struct sqrl_loaded **out,
                      struct sqrl_error *err) {
    struct sizes sizes = {0, 0}, used = {0, 0};
    *out = NULL;
    for (uint32_t r = 0; r < count; r++) {
        const struct sqrl_loaded *from = rows[r].from;
        for (uint32_t c = 0; c < columns->count; c++) {
            uint32_t cell = from->cells[(size_t)c * from->count + rows[r].index];
            if (cell != SQRL_NO_NODE)
                count_value(from, cell, &sizes);
        }
    }
    if (sizes.nodes >= SQRL_NO_NODE)
        return SQRL_OK; /* too much to be worth it: the rows keep their blocks */
    struct sqrl_loaded *loaded = sqrl_loaded_new(err);
    if (!loaded)
        return SQRL_E_NO_MEMORY;
    size_t bytes = total_bytes(columns, &sizes, count);
    int code = sqrl_slot_new(context, bytes, &loaded->memory, err);
    if (code) {
        sqrl_loaded_unref(loaded);
        return code;
    }
    place(loaded, columns, &sizes, count, loaded->memory->data);
    loaded->count = count;
    memset((uint8_t *)(uintptr_t)loaded->missing, 0, columns->count);
    for (uint32_t r = 0; r < count; r++)
        copy_row(columns, &rows[r], r, loaded, &used);
    *out = loaded;
    return SQRL_OK;
}
