/* handoff.h - the private half of the handoff floor. */
#ifndef SQRL_HANDOFF_H
#define SQRL_HANDOFF_H

#include "sqrl/arrow.h"

/* One column as schema and array; either out may be NULL. */
int sqrl_arrow_column_schema(const struct sqrl_column *column, struct ArrowSchema *out,
                             struct sqrl_error *err);
int sqrl_arrow_column_array(struct sqrl_batch *batch, const struct sqrl_column *column,
                            struct ArrowArray *out, struct sqrl_error *err);
/* The true shapes of a padded column, a column of its own behind all others. */
int sqrl_arrow_shapes_schema(const struct sqrl_column *column, struct ArrowSchema *out,
                             struct sqrl_error *err);
int sqrl_arrow_shapes_array(struct sqrl_batch *batch, const struct sqrl_column *column,
                            struct ArrowArray *out, struct sqrl_error *err);

/* Fills one node with `children` empty children (allocated, released with it). On failure
 * the node is released already. */
int sqrl_arrow_schema_node(struct ArrowSchema *out, const char *name, const char *format,
                           size_t children, struct sqrl_error *err);
/* Sets key = value pairs (NULL-ended list of alternating texts) as the node's metadata.
 */
int sqrl_arrow_schema_metadata(struct ArrowSchema *schema, const char *const *pairs,
                               struct sqrl_error *err);
/* `valid` (may be NULL) becomes a bitmap of the node's own; the node holds a reference to
 * the batch. Buffer 0 is the validity. */
int sqrl_arrow_array_node(struct ArrowArray *out, struct sqrl_batch *batch,
                          uint64_t length, const uint8_t *valid, size_t buffers,
                          size_t children, struct sqrl_error *err);
/* Sets buffer `i` (1, 2). */
void sqrl_arrow_array_buffer(struct ArrowArray *array, size_t i, const void *data);

#endif
