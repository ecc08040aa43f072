/* output.h - runs and batches while they are collected. */
#ifndef SQRL_STREAM_OUTPUT_H
#define SQRL_STREAM_OUTPUT_H

#include "stream/executor.h"

struct sqrl_output *sqrl_output_new(struct sqrl_error *err);
/* Empties it for reuse: rows, holds, batch and error go. */
void sqrl_output_clear(struct sqrl_output *output);
SQRL_CHECK int sqrl_output_reserve(struct sqrl_output *output, uint32_t more,
                                   struct sqrl_error *err);
/* Keeps the block, or the window that it is in, alive as long as the rows. */
SQRL_CHECK int sqrl_output_hold(struct sqrl_output *output, struct sqrl_loaded *loaded,
                                struct sqrl_window *window, struct sqrl_error *err);
/* Copies its rows out of the blocks that it pins; those that were, stay. A lack of memory
 * only leaves it as it is. */
void sqrl_output_compact(struct sqrl_output *output, struct sqrl_context *context,
                         const struct sqrl_columns *columns);

#endif
