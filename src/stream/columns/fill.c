/* fill.c - lays batches out in slots and copies rows into them.
 *
 * A slot is one buffer: the batch, its columns, their names, the places of its rows, then
 * each column's arrays, all aligned to 64 bytes. All sizes are known before a byte is
 * copied (LOAD has written the lengths of all values), so that rows can be filled in any
 * order.
 *
 * Everything was checked by LOAD: nothing here can fail but the allocation of the slot.
 */
#include "driver/fetch.h"
#include "stream/columns/columns.h"

#include <stdlib.h>

#define MAX_SLOT_BYTES (UINT64_C(16) << 30)
#define MIN_SLAB_USE (16u * 1024u)
/* Rows whose cell, node and data are fetched ahead. */
#define AHEAD_CELL 28u
#define AHEAD_NODE 16u
#define AHEAD_DATA 6u
#define FETCH_BYTES 512u

/* --- layout --- */

/* Hands out aligned pieces; with base NULL it only counts. */
struct layout {
    uint8_t *base;
    uint64_t size;
};

static void *piece(struct layout *layout, uint64_t count, uint64_t size) {
    uint64_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > MAX_SLOT_BYTES)
        bytes = MAX_SLOT_BYTES + 1;
    void *at = layout->base ? layout->base + layout->size : NULL;
    layout->size += (bytes + SQRL_BUFFER_ALIGN - 1) & ~(uint64_t)(SQRL_BUFFER_ALIGN - 1);
    return at;
}

/* What the rows say about one column. */
struct extent {
    uint64_t total;                  /* elements of all rows */
    uint64_t largest[SQRL_MAX_DIMS]; /* padded: of each dimension */
    bool missing;
};

static inline uint32_t cell_of(const struct sqrl_row *row, uint32_t column) {
    return row->from->cells[(size_t)column * row->from->count + row->index];
}
static inline uint32_t length_of(const struct sqrl_row *row,
                                 const struct sqrl_column_plan *c) {
    return row->from->lengths[(size_t)c->lengths * row->from->count + row->index];
}

static void measure(const struct sqrl_columns *columns, uint32_t column,
                    const struct sqrl_row *rows, uint32_t count, struct extent *out) {
    const struct sqrl_column_plan *c = &columns->column[column];
    memset(out, 0, sizeof *out);
    bool may_miss = false;
    const struct sqrl_loaded *last = NULL;
    for (uint32_t r = 0; r < count; r++) {
        if (rows[r].from != last) {
            last = rows[r].from;
            may_miss |= last->missing[column];
        }
        if (c->lengths != SQRL_NO_NODE)
            out->total += length_of(&rows[r], c);
    }
    for (uint32_t r = 0; r < count && may_miss && !out->missing; r++)
        out->missing = cell_of(&rows[r], column) == SQRL_NO_NODE;
    for (uint32_t r = 0; r < count && c->padded; r++) {
        uint32_t cell = cell_of(&rows[r], column);
        const struct sqrl_node *value = &rows[r].from->nodes[cell];
        if (cell == SQRL_NO_NODE)
            continue;
        for (uint32_t d = 0; d < c->dims; d++) {
            uint64_t n = value->type == SQRL_ARRAY ? value->size : value[2 + d].v.u;
            out->largest[d] = SQRL_MAX(out->largest[d], n);
        }
    }
}

/* The arrays of one column; run once to count, once to place. */
static void place_column(struct layout *layout, const struct sqrl_column_plan *c,
                         const struct extent *extent, uint32_t rows,
                         struct sqrl_column *out) {
    memset(out, 0, sizeof *out);
    out->kind = c->kind;
    out->dtype = c->dtype;
    out->dims = c->dims;
    if (c->kind == SQRL_KIND_DENSE) {
        memcpy(out->shape, c->shape, sizeof out->shape);
        out->data_bytes = (uint64_t)rows * c->row_bytes;
        out->data = piece(layout, rows, c->row_bytes);
    } else if (c->padded) {
        out->kind = SQRL_KIND_DENSE;
        out->padded = true;
        uint64_t elements = rows;
        for (uint32_t d = 0; d < c->dims; d++) {
            out->shape[d] = extent->largest[d];
            if (__builtin_mul_overflow(elements, out->shape[d], &elements))
                elements = MAX_SLOT_BYTES;
        }
        out->data_bytes = elements * c->item_bytes;
        out->data = piece(layout, elements, c->item_bytes);
    } else if (c->kind != SQRL_KIND_NULL) {
        out->data_bytes = extent->total * c->item_bytes;
        out->data = piece(layout, extent->total, c->item_bytes);
        out->offsets = piece(layout, (uint64_t)rows + 1, sizeof *out->offsets);
    }
    if (out->padded || (c->kind == SQRL_KIND_RAGGED && c->dims > 1))
        out->shapes = piece(layout, (uint64_t)rows * c->dims, sizeof *out->shapes);
    if (extent->missing || c->kind == SQRL_KIND_NULL)
        out->valid = piece(layout, rows, 1);
}

static void write_offsets(const struct sqrl_column_plan *c, const struct sqrl_row *rows,
                          uint32_t count, int64_t *offsets) {
    int64_t at = 0;
    for (uint32_t r = 0; r < count; r++) {
        offsets[r] = at;
        at += length_of(&rows[r], c);
    }
    offsets[count] = at;
}

/* Places everything in a slot (or counts, with layout->base NULL). */
static struct sqrl_batch *place_all(struct layout *layout,
                                    const struct sqrl_columns *columns,
                                    const struct extent *extents, uint32_t rows) {
    uint8_t *header = piece(layout, 1, columns->header_bytes);
    struct sqrl_place *places = piece(layout, rows, sizeof *places);
    struct sqrl_batch *batch = (struct sqrl_batch *)(void *)header, counted;
    struct sqrl_column *column =
        header ? (struct sqrl_column *)(void *)(header + sizeof counted) : NULL;
    char *names = (char *)(column + columns->count);
    if (header) {
        memset(batch, 0, sizeof *batch);
        batch->rows = rows;
        batch->columns = columns->count;
        batch->column = column;
        batch->place = places;
        batch->refs = 1;
    }
    for (uint32_t i = 0; i < columns->count; i++) {
        struct sqrl_column scratch;
        place_column(layout, &columns->column[i], &extents[i], rows,
                     column ? &column[i] : &scratch);
        if (column) {
            column[i].name = names;
            names = stpcpy(names, columns->column[i].name) + 1;
        }
    }
    return header ? batch : NULL;
}

int sqrl_slot_new(struct sqrl_context *context, size_t size, struct sqrl_buffer **out,
                  struct sqrl_error *err) {
    size_t capacity = size;
    if (size >= MIN_SLAB_USE && size < SQRL_SLAB_MIN_BYTES)
        capacity = SQRL_SLAB_MIN_BYTES;
    int code = sqrl_buffer_new(context, capacity, out, err);
    if (!code)
        (*out)->size = size;
    return code;
}

int sqrl_batch_lay_out(struct sqrl_context *context, const struct sqrl_columns *columns,
                       const struct sqrl_row *rows, uint32_t count, uint64_t number,
                       struct sqrl_batch **out, struct sqrl_error *err) {
    struct extent local[8], *extents = local;
    *out = NULL;
    if (columns->count > SQRL_COUNT_OF(local)) {
        extents = sqrl_malloc(columns->count * sizeof *extents, "batch", err);
        if (!extents)
            return SQRL_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < columns->count; i++)
        measure(columns, i, rows, count, &extents[i]);
    struct layout layout = {NULL, 0};
    place_all(&layout, columns, extents, count);
    struct sqrl_buffer *slot = NULL;
    int code;
    if (layout.size > MAX_SLOT_BYTES)
        code =
            sqrl_error_set(err, SQRL_E_LIMIT,
                           "a batch of %u rows would need more than 16 GiB; make batches "
                           "smaller, or give max_bytes or length buckets",
                           count);
    else
        code = sqrl_slot_new(context, (size_t)layout.size, &slot, err);
    if (!code) {
        layout = (struct layout){slot->data, 0};
        struct sqrl_batch *batch = place_all(&layout, columns, extents, count);
        batch->slot = slot;
        batch->number = number;
        for (uint32_t i = 0; i < columns->count; i++)
            if (batch->column[i].offsets)
                write_offsets(&columns->column[i], rows, count, batch->column[i].offsets);
        *out = batch;
    }
    if (extents != local)
        free(extents);
    return code;
}

/* --- copying --- */

struct filler {
    const struct sqrl_column_plan *plan;
    struct sqrl_column *column;
    uint32_t number; /* of the column */
    const struct sqrl_row *rows;
    uint32_t from, to;
    bool scattered; /* the rows lie all over a window */
};

/* Values of the row's block need not be looked at: see direct_of. */
static inline bool is_plain(const struct filler *f, const struct sqrl_loaded *from) {
    return f->number < 63 && from->plain >> f->number & 1;
}
static inline const uint64_t *direct_of(const struct filler *f,
                                        const struct sqrl_row *row) {
    return &row->from->direct[(size_t)f->number * row->from->count + row->index];
}

/* Where the rows end that follow row r in its own block. */
static inline uint32_t neighbours(const struct filler *f, uint32_t r) {
    const struct sqrl_row *first = &f->rows[r];
    uint32_t n = 1, most = f->to - r;
    while (n < most && first[n].from == first->from && first[n].index == first->index + n)
        n++;
    return r + n;
}

/* Fetching is inlined, since GCC takes a function that only fetches for one without
 * effects and drops it. */
#define FETCHES static inline __attribute__((always_inline))

FETCHES void fetch_bytes(const uint8_t *data, uint64_t size) {
    for (uint64_t at = 0; at < size && at < FETCH_BYTES; at += 64)
        __builtin_prefetch(data + at);
}

FETCHES void fetch_plain(const struct filler *f, uint32_t r) {
    if (r + AHEAD_CELL < f->to)
        __builtin_prefetch(direct_of(f, &f->rows[r + AHEAD_CELL]));
    if (r + AHEAD_DATA < f->to && f->plan->direct != DIRECT_WORD) {
        const struct sqrl_row *row = &f->rows[r + AHEAD_DATA];
        if (is_plain(f, row->from))
            fetch_bytes(row->from->bytes + *direct_of(f, row),
                        f->plan->row_bytes ? f->plan->row_bytes
                                           : length_of(row, f->plan));
    }
}

/* Rows of a shuffled window lie all over memory: fetch what will be needed soon. */
FETCHES void fetch_ahead(const struct filler *f, uint32_t r) {
    if (!f->scattered)
        return;
    if (is_plain(f, f->rows[r].from)) {
        fetch_plain(f, r);
        return;
    }
    if (r + AHEAD_NODE < f->to) {
        const struct sqrl_row *row = &f->rows[r + AHEAD_NODE];
        uint32_t cell = cell_of(row, f->number);
        if (cell != SQRL_NO_NODE)
            __builtin_prefetch(&row->from->nodes[cell]);
    }
    if (r + AHEAD_DATA < f->to) {
        const struct sqrl_row *row = &f->rows[r + AHEAD_DATA];
        uint32_t cell = cell_of(row, f->number);
        if (cell == SQRL_NO_NODE)
            return;
        const struct sqrl_node *value = &row->from->nodes[cell];
        if (value->type == SQRL_NDARRAY)
            value++;
        if (value->type == SQRL_BINARY || value->type == SQRL_STRING)
            fetch_bytes(row->from->bytes + value->v.offset, value->size);
    }
}

/* The elements of one value, in its own shape. */
static void copy_value(const struct sqrl_column_plan *c, const struct sqrl_loaded *from,
                       uint32_t cell, uint8_t *to) {
    const struct sqrl_node *value = &from->nodes[cell];
    if (value->type == SQRL_NDARRAY) {
        const uint8_t *data = sqrl_ndarray_data(from->nodes, cell, from->bytes);
        if (value->flags & SQRL_NODE_SWAPPED)
            sqrl_copy_swapped(c->dtype, to, data, value[1].size / c->item_bytes);
        else if (value[1].size)
            memcpy(to, data, value[1].size);
    } else if (value->type == SQRL_ARRAY) {
        for (uint32_t i = 0; i < value->size; i++)
            sqrl_number_write(c->dtype, value + 1 + i, to + i * c->item_bytes);
    } else {
        sqrl_number_write(c->dtype, value, to);
    }
}

static void fill_dense(const struct filler *f) {
    const struct sqrl_column_plan *c = f->plan;
    size_t row_bytes = c->row_bytes;
    uint8_t *to = (uint8_t *)f->column->data + f->from * row_bytes;
    for (uint32_t r = f->from; r < f->to; r++, to += row_bytes) {
        const struct sqrl_loaded *from = f->rows[r].from;
        fetch_ahead(f, r);
        if (c->direct == DIRECT_ARRAY && is_plain(f, from)) {
            if (row_bytes)
                memcpy(to, from->bytes + *direct_of(f, &f->rows[r]), row_bytes);
            continue;
        }
        uint32_t cell = cell_of(&f->rows[r], f->number);
        if (SQRL_UNLIKELY(cell == SQRL_NO_NODE)) {
            if (row_bytes)
                memset(to, 0, row_bytes);
            continue;
        }
        copy_value(c, from, cell, to);
    }
}

/* int64 and float64 scalars from plain numbers: a node's value as it is. */
static void fill_words(const struct filler *f) {
    uint64_t *to = f->column->data;
    for (uint32_t r = f->from; r < f->to; r++) {
        fetch_ahead(f, r);
        if (is_plain(f, f->rows[r].from)) {
            uint32_t end = f->scattered ? r + 1 : neighbours(f, r);
            memcpy(to + r, direct_of(f, &f->rows[r]), (end - r) * sizeof *to);
            r = end - 1;
            continue;
        }
        uint32_t cell = cell_of(&f->rows[r], f->number);
        const struct sqrl_node *value = &f->rows[r].from->nodes[cell];
        if (SQRL_UNLIKELY(cell == SQRL_NO_NODE))
            to[r] = 0;
        else if (!sqrl_column_direct(f->plan, value, &to[r]))
            copy_value(f->plan, f->rows[r].from, cell, (uint8_t *)&to[r]);
    }
}

static void fill_bytes(const struct filler *f) {
    uint8_t *to = f->column->data;
    const int64_t *offsets = f->column->offsets;
    for (uint32_t r = f->from; r < f->to; r++) {
        const struct sqrl_loaded *from = f->rows[r].from;
        size_t size = (size_t)(offsets[r + 1] - offsets[r]);
        fetch_ahead(f, r);
        if (!size)
            continue;
        uint64_t at = is_plain(f, from)
                          ? *direct_of(f, &f->rows[r])
                          : from->nodes[cell_of(&f->rows[r], f->number)].v.offset;
        memcpy(to + offsets[r], from->bytes + at, size);
    }
}

static void write_shape(const struct filler *f, uint32_t r, uint32_t cell) {
    uint32_t dims = f->plan->dims;
    int64_t *shape = f->column->shapes ? f->column->shapes + (size_t)r * dims : NULL;
    if (!shape)
        return;
    const struct sqrl_node *value =
        cell == SQRL_NO_NODE ? NULL : &f->rows[r].from->nodes[cell];
    for (uint32_t d = 0; d < dims; d++)
        shape[d] = !value                      ? 0
                   : value->type == SQRL_ARRAY ? (int64_t)value->size
                                               : (int64_t)value[2 + d].v.u;
}

static void fill_ragged(const struct filler *f) {
    uint8_t *to = f->column->data;
    const int64_t *offsets = f->column->offsets;
    size_t item = f->plan->item_bytes;
    for (uint32_t r = f->from; r < f->to; r++) {
        uint32_t cell = cell_of(&f->rows[r], f->number);
        fetch_ahead(f, r);
        write_shape(f, r, cell);
        if (cell != SQRL_NO_NODE)
            copy_value(f->plan, f->rows[r].from, cell, to + (size_t)offsets[r] * item);
    }
}

/* Repeats the pad value over `count` elements. */
static void pad_elements(const struct sqrl_column_plan *c, uint8_t *to, uint64_t count) {
    bool zero = true;
    for (size_t i = 0; i < c->item_bytes; i++)
        zero = zero && c->pad[i] == 0;
    if (zero || c->item_bytes == 1) {
        if (count)
            memset(to, c->pad[0], count * c->item_bytes);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        memcpy(to + i * c->item_bytes, c->pad, c->item_bytes);
}

/* One line (last dimension) of a value into its padded place. */
static void copy_line(const struct filler *f, const struct sqrl_loaded *from,
                      uint32_t cell, uint64_t first, uint64_t count, uint8_t *to) {
    const struct sqrl_column_plan *c = f->plan;
    const struct sqrl_node *value = &from->nodes[cell];
    if (value->type == SQRL_ARRAY) {
        copy_value(c, from, cell, to); /* one dimension: all of it */
        return;
    }
    const uint8_t *data =
        sqrl_ndarray_data(from->nodes, cell, from->bytes) + first * c->item_bytes;
    if (value->flags & SQRL_NODE_SWAPPED)
        sqrl_copy_swapped(c->dtype, to, data, count);
    else if (count)
        memcpy(to, data, count * c->item_bytes);
}

/* Copies a value line by line, counting through its outer dimensions. */
static void copy_padded(const struct filler *f, uint32_t r, uint32_t cell, uint8_t *to) {
    const struct sqrl_column_plan *c = f->plan;
    const int64_t *shape = f->column->shapes + (size_t)r * c->dims;
    const uint64_t *room = f->column->shape;
    uint64_t index[SQRL_MAX_DIMS] = {0}, first = 0;
    uint32_t last = c->dims - 1;
    for (uint32_t d = 0; d < c->dims; d++)
        if (!shape[d])
            return;
    for (;;) {
        uint64_t at = 0;
        for (uint32_t d = 0; d < c->dims; d++)
            at = at * room[d] + index[d];
        copy_line(f, f->rows[r].from, cell, first, (uint64_t)shape[last],
                  to + at * c->item_bytes);
        first += (uint64_t)shape[last];
        uint32_t d = last;
        while (d && ++index[d - 1] == (uint64_t)shape[d - 1])
            index[--d] = 0;
        if (!d)
            return;
    }
}

static void fill_padded(const struct filler *f) {
    const struct sqrl_column_plan *c = f->plan;
    uint64_t elements = 1;
    for (uint32_t d = 0; d < c->dims; d++)
        elements *= f->column->shape[d];
    uint8_t *to = (uint8_t *)f->column->data + f->from * elements * c->item_bytes;
    for (uint32_t r = f->from; r < f->to; r++, to += elements * c->item_bytes) {
        uint32_t cell = cell_of(&f->rows[r], f->number);
        fetch_ahead(f, r);
        write_shape(f, r, cell);
        if (cell == SQRL_NO_NODE || length_of(&f->rows[r], c) != elements)
            pad_elements(c, to, elements);
        if (cell != SQRL_NO_NODE)
            copy_padded(f, r, cell, to);
    }
}

static void fill_column(const struct filler *f) {
    const struct sqrl_column_plan *c = f->plan;
    if (f->column->valid)
        for (uint32_t r = f->from; r < f->to; r++)
            f->column->valid[r] = cell_of(&f->rows[r], f->number) != SQRL_NO_NODE;
    if (c->padded)
        fill_padded(f);
    else if (c->kind == SQRL_KIND_RAGGED)
        fill_ragged(f);
    else if (c->kind == SQRL_KIND_STRING || c->kind == SQRL_KIND_BINARY)
        fill_bytes(f);
    else if (c->kind == SQRL_KIND_DENSE && !c->dims &&
             (c->dtype == SQRL_DTYPE_INT64 || c->dtype == SQRL_DTYPE_FLOAT64))
        fill_words(f);
    else if (c->kind == SQRL_KIND_DENSE)
        fill_dense(f);
}

void sqrl_batch_fill(struct sqrl_batch *batch, const struct sqrl_source *source,
                     const struct sqrl_columns *columns, const struct sqrl_row *rows,
                     uint32_t from, uint32_t to) {
    bool subset = sqrl_source_subset_of(source);
    for (uint32_t r = from; r < to; r++) {
        struct sqrl_place place = sqrl_row_place(rows[r].from, rows[r].index);
        if (subset && place.sample != SQRL_UNKNOWN)
            place.sample = sqrl_source_row(source, place.shard, place.sample);
        batch->place[r] = place;
    }
    bool scattered = to - from > 2 && (rows[from + 1].from != rows[from].from ||
                                       rows[from + 1].index != rows[from].index + 1 ||
                                       rows[to - 1].index != rows[to - 2].index + 1);
    for (uint32_t i = 0; i < columns->count; i++) {
        struct filler f = {
            &columns->column[i], &batch->column[i], i, rows, from, to, scattered};
        fill_column(&f);
    }
}
