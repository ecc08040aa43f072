/* window.c - the blocks among which samples are shuffled. */
#include "stream/window.h"

#include <stdlib.h>

struct sqrl_window *sqrl_window_new(struct sqrl_error *err) {
    struct sqrl_window *window = sqrl_calloc(1, sizeof *window, "window", err);
    if (window)
        window->refs = 1;
    return window;
}

void sqrl_window_unref(struct sqrl_window *window) {
    if (!window || __atomic_sub_fetch(&window->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (uint32_t i = 0; i < window->count; i++)
        sqrl_loaded_unref(window->block[i]);
    free(window->block);
    free(window->first);
    free(window->guess);
    free(window);
}

int sqrl_window_add(struct sqrl_window *window, struct sqrl_loaded *loaded,
                    struct sqrl_error *err) {
    if (window->count == window->capacity) {
        uint32_t room = window->capacity ? 2 * window->capacity : 64;
        void *grown =
            sqrl_realloc(window->block, room * sizeof *window->block, "window", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        window->block = grown;
        window->capacity = room;
    }
    if (!window->count) {
        window->chunk = loaded->chunk;
        window->chunk_row = loaded->chunk_row + loaded->from;
    }
    window->block[window->count++] = loaded;
    window->bytes += loaded->bytes_held - (loaded->block ? loaded->block->added : 0);
    return SQRL_OK;
}

int sqrl_window_seal(struct sqrl_window *window, struct sqrl_error *err) {
    uint32_t count = window->count, block = 0;
    window->first = sqrl_malloc((count + 1) * sizeof *window->first, "window", err);
    window->guess = sqrl_malloc(WINDOW_GUESSES * sizeof *window->guess, "window", err);
    if (!window->first || !window->guess)
        return SQRL_E_NO_MEMORY;
    window->first[0] = 0;
    for (uint32_t i = 0; i < count; i++)
        window->first[i + 1] =
            window->first[i] + (window->block[i]->to - window->block[i]->from);
    uint64_t rows = window->first[count];
    window->shift = 0;
    while (rows >> window->shift >= WINDOW_GUESSES)
        window->shift++;
    for (uint32_t i = 0; i < WINDOW_GUESSES; i++) {
        while (block + 1 < count && window->first[block + 1] <= (uint64_t)i
                                                                    << window->shift)
            block++;
        window->guess[i] = block;
    }
    return SQRL_OK;
}
