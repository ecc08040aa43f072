/* cells.c - what FILL will need of a row, found while its block is warm. */
#include "stream/columns/columns.h"

/* A value that is not of its column's usual type; false when it does not fit. */
static bool write_unusual(const struct sqrl_column_plan *column, uint32_t number,
                          struct sqrl_loaded *to, const struct sqrl_node *nodes,
                          uint32_t node, uint32_t row) {
    size_t at = (size_t)number * to->count + row;
    uint32_t length;
    if (node != SQRL_NO_NODE && nodes[node].type == SQRL_NULL)
        node = SQRL_NO_NODE;
    if (!sqrl_column_fits(column, nodes, node, &length))
        return false;
    to->cells[at] = node;
    if (column->lengths != SQRL_NO_NODE)
        to->lengths[(size_t)column->lengths * to->count + row] = length;
    if (node == SQRL_NO_NODE)
        ((uint8_t *)(uintptr_t)to->missing)[number] = 1;
    if (node == SQRL_NO_NODE ||
        !sqrl_column_direct(column, &nodes[node], &to->direct[at]))
        to->plain &= ~(UINT64_C(1) << SQRL_MIN(number, 63u));
    return true;
}

uint64_t sqrl_cells_write(const struct sqrl_columns *columns, struct sqrl_loaded *to,
                          const struct sqrl_node *nodes, const uint32_t *found,
                          uint32_t wants, uint32_t row, uint32_t count) {
    uint64_t bad = 0;
    for (uint32_t c = 0; c < columns->count; c++) {
        const struct sqrl_column_plan *column = &columns->column[c];
        const uint32_t *node = found + column->want;
        const unsigned usual = column->usual;
        size_t at = (size_t)c * to->count + row;
        uint32_t *cells = to->cells + at, unused[SQRL_CELL_ROWS], *lengths = unused;
        uint64_t *direct = to->direct + at;
        if (column->lengths != SQRL_NO_NODE)
            lengths = to->lengths + (size_t)column->lengths * to->count + row;
        for (uint32_t i = 0; i < count; i++, node += wants) {
            if (SQRL_LIKELY(*node != SQRL_NO_NODE && nodes[*node].type == usual)) {
                cells[i] = *node;
                lengths[i] = nodes[*node].size;
                direct[i] = nodes[*node].v.u;
            } else if (!write_unusual(column, c, to, nodes, *node, row + i)) {
                bad |= UINT64_C(1) << i;
            }
        }
    }
    return bad;
}
