/* columns.h - the fixed columns of batches: what they are, which values fit, how batches
 * are filled. */
#ifndef SQRL_STREAM_COLUMNS_H
#define SQRL_STREAM_COLUMNS_H

#include "sqrl/batch.h"
#include "stream/loaded.h"
#include "stream/plan.h"

struct sqrl_column_plan {
    char *name;    /* in the batch */
    char *origin;  /* dotted name in the source */
    uint32_t want; /* its number among the located fields */
    enum sqrl_kind kind;
    enum sqrl_dtype dtype;
    bool padded, declared, refuses_null;
    uint32_t dims;
    uint64_t shape[SQRL_MAX_DIMS]; /* DENSE: exact; declared RAGGED: 0 where it varies */
    size_t item_bytes;
    size_t row_bytes; /* DENSE */
    enum { DIRECT_NONE, DIRECT_WORD, DIRECT_BYTES, DIRECT_ARRAY } direct;
    unsigned usual; /* node type that always fits and is its own direct value: of numbers
                       as FILL copies them, of text and binaries; else USUAL_NONE */
    uint32_t lengths;        /* which array of lengths it has, or SQRL_NO_NODE */
    uint8_t pad[16];         /* pad_value as an element */
    struct sqrl_place first; /* the sample that fixed its type */
};

#define USUAL_NONE UINT32_MAX

struct sqrl_columns {
    struct sqrl_column_plan *column;
    uint32_t count, with_lengths;
    uint64_t row_bytes;   /* of all DENSE columns together */
    size_t header_bytes;  /* of a batch: structs and names */
    bool from_schema;     /* of the source; else from the first block */
    uint64_t needs_bytes; /* more than what is fixed: lengths x item size */
};

/* The block that fixes the columns, and where its rows that passed all filters begin. */
struct sqrl_seen_block {
    const struct sqrl_block *block;
    const uint32_t *begin; /* [count] */
    uint32_t count;
};

/* Fixes the columns: the fields of `schema` behind the plan's projection, declared ones
 * on top. `seen` is NULL when the schema is the source's. SQRL_E_TYPE names a field that
 * can't be one, two samples of it and their types. */
SQRL_CHECK int sqrl_columns_new(const struct sqrl_schema *schema,
                                const struct sqrl_seen_block *seen,
                                const struct sqrl_plan *batch, struct sqrl_columns **out,
                                struct sqrl_error *err);
void sqrl_columns_free(struct sqrl_columns *columns);
int sqrl_columns_find(const struct sqrl_columns *columns, const char *name);

/* True when the value at `node` (or SQRL_NO_NODE) fits; *length gets its elements or
 * bytes for columns with lengths. */
bool sqrl_column_fits(const struct sqrl_column_plan *column,
                      const struct sqrl_node *nodes, uint32_t node, uint32_t *length);
/* A value that FILL need not look at again: the number itself, or where its bytes begin
 * within those of the block. */
static inline bool sqrl_column_direct(const struct sqrl_column_plan *column,
                                      const struct sqrl_node *value, uint64_t *out) {
    switch (column->direct) {
    case DIRECT_WORD:
        *out = value->v.u;
        return value->type ==
               (column->dtype == SQRL_DTYPE_FLOAT64 ? SQRL_FLOAT : SQRL_INT);
    case DIRECT_BYTES:
        *out = value->v.offset;
        return true;
    case DIRECT_ARRAY:
        if (value->type != SQRL_NDARRAY || value->flags & SQRL_NODE_SWAPPED)
            return false;
        *out = value[1].v.offset;
        return !(value[1].flags & SQRL_NODE_ON_TAPE);
    case DIRECT_NONE:
        break;
    }
    return false;
}
#define SQRL_CELL_ROWS 64u
/* Writes the cells of `count` <= SQRL_CELL_ROWS rows from `row` on, whose fields were
 * found at found[i * wants + want]. Bit i is set when a value of row + i does not fit. */
uint64_t sqrl_cells_write(const struct sqrl_columns *columns, struct sqrl_loaded *to,
                          const struct sqrl_node *nodes, const uint32_t *found,
                          uint32_t wants, uint32_t row, uint32_t count);
/* The error for a value that does not fit, naming both samples. Returns SQRL_E_TYPE. */
int sqrl_column_clash(const struct sqrl_column_plan *column, struct sqrl_source *source,
                      const struct sqrl_node *nodes, uint32_t node,
                      const struct sqrl_place *place, struct sqrl_error *err);
/* The error for a field that can't be a column, called `name` in the batch. It looks for
 * two samples that show it. Returns SQRL_E_TYPE. */
int sqrl_field_clash(const struct sqrl_field *field, const char *name,
                     struct sqrl_source *source, const struct sqrl_seen_block *seen,
                     struct sqrl_error *err);
/* Puts "shard: sample n" in front of an error. Returns its code. */
int sqrl_error_at_sample(struct sqrl_error *err, int code, struct sqrl_source *source,
                         const struct sqrl_place *place);

/* Memory that lives as long as a block or a batch. Middle sizes come from slabs too,
 * rounded up: malloc would give their pages back, and a fresh page costs more than what
 * is done to it. */
SQRL_CHECK int sqrl_slot_new(struct sqrl_context *context, size_t size,
                             struct sqrl_buffer **out, struct sqrl_error *err);

/* --- numbers --- */
/* A plain number fits a dtype when it is in range; whole numbers in float types must be
 * exact. */
bool sqrl_number_fits(enum sqrl_dtype dtype, const struct sqrl_node *node);
/* Writes one that fits. */
void sqrl_number_write(enum sqrl_dtype dtype, const struct sqrl_node *node, void *out);
/* Converts a double; false when the dtype can't hold it. */
bool sqrl_pad_element(enum sqrl_dtype dtype, double value, uint8_t out[16]);
/* Copies `count` elements, reversing the bytes of each. */
void sqrl_copy_swapped(enum sqrl_dtype dtype, void *to, const void *from, size_t count);

/* --- filling --- */
/* Lays a batch of these rows out in a new slot and writes its offsets; the caller fills
 * the rows, in any order and on any threads, with sqrl_batch_fill. */
SQRL_CHECK int sqrl_batch_lay_out(struct sqrl_context *context,
                                  const struct sqrl_columns *columns,
                                  const struct sqrl_row *rows, uint32_t count,
                                  uint64_t number, struct sqrl_batch **out,
                                  struct sqrl_error *err);
void sqrl_batch_fill(struct sqrl_batch *batch, const struct sqrl_source *source,
                     const struct sqrl_columns *columns, const struct sqrl_row *rows,
                     uint32_t from, uint32_t to);

/* Copies what these rows need of their blocks into one small piece of memory, so that a
 * few rows do not pin many blocks. */
SQRL_CHECK int sqrl_rows_compact(struct sqrl_context *context,
                                 const struct sqrl_columns *columns,
                                 struct sqrl_row *rows, uint32_t count,
                                 struct sqrl_loaded **out, struct sqrl_error *err);

#endif
