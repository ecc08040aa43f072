/* window.h - the blocks among which samples are shuffled. */
#ifndef SQRL_STREAM_WINDOW_H
#define SQRL_STREAM_WINDOW_H

#include "stream/executor.h"

struct sqrl_window *sqrl_window_new(struct sqrl_error *err);
/* Takes the reference of `loaded` over. */
SQRL_CHECK int sqrl_window_add(struct sqrl_window *window, struct sqrl_loaded *loaded,
                               struct sqrl_error *err);
/* Makes rows addressable. */
SQRL_CHECK int sqrl_window_seal(struct sqrl_window *window, struct sqrl_error *err);
static inline uint64_t sqrl_window_rows(const struct sqrl_window *window) {
    return window->first[window->count];
}
/* The block of a row of the window. */
static inline uint32_t sqrl_window_find(const struct sqrl_window *window, uint64_t row) {
    uint32_t block = window->guess[row >> window->shift];
    while (row >= window->first[block + 1])
        block++;
    return block;
}

#endif
