/* util.c - allocation with an error and an armed fault, and the nearest name. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "inner.h"

#define NEAREST_MAX_BYTES 64
#define NEAREST_MAX_DISTANCE 3

/* Counts down to the allocation that fails; 0 is off. Only tests arm it. */
static uint64_t fault_countdown;

void sqrl_fail_allocation(uint64_t countdown) {
    __atomic_store_n(&fault_countdown, countdown, __ATOMIC_RELAXED);
}

bool sqrl_allocation_fails(void) {
    uint64_t left = __atomic_load_n(&fault_countdown, __ATOMIC_RELAXED);
    while (SQRL_UNLIKELY(left != 0)) {
        if (__atomic_compare_exchange_n(&fault_countdown, &left, left - 1, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return left == 1;
    }
    return false;
}

int sqrl_no_memory(struct sqrl_error *err, const char *what, size_t size) {
    return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for %s (%zu bytes)", what,
                          size);
}

void *sqrl_malloc(size_t size, const char *what, struct sqrl_error *err) {
    void *p = sqrl_allocation_fails() ? NULL : malloc(size > 0 ? size : 1);
    if (p == NULL)
        sqrl_no_memory(err, what, size);
    return p;
}

void *sqrl_calloc(size_t count, size_t size, const char *what, struct sqrl_error *err) {
    size_t total;
    if (sqrl_mul_overflow(count, size, &total)) {
        sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for %s (%zu times %zu bytes)",
                       what, count, size);
        return NULL;
    }
    void *p = sqrl_allocation_fails() ? NULL : calloc(1, total > 0 ? total : 1);
    if (p == NULL)
        sqrl_no_memory(err, what, total);
    return p;
}

void *sqrl_realloc(void *old, size_t size, const char *what, struct sqrl_error *err) {
    void *p = sqrl_allocation_fails() ? NULL : realloc(old, size > 0 ? size : 1);
    if (p == NULL)
        sqrl_no_memory(err, what, size);
    return p;
}

char *sqrl_strdup(const char *text, struct sqrl_error *err) {
    size_t size = strlen(text) + 1;
    char *copy = sqrl_malloc(size, "a text", err);
    if (copy != NULL)
        memcpy(copy, text, size);
    return copy;
}

char *sqrl_format(struct sqrl_error *err, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = NULL;
    if (length < 0)
        sqrl_error_set(err, SQRL_E_INVALID, "a text can't be formatted");
    else
        text = sqrl_malloc((size_t)length + 1, "a text", err);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

static bool same_letter(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Edit distance where a swap of neighbours counts once; letters' case is ignored. */
static unsigned edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    unsigned rows[3][NEAREST_MAX_BYTES + 1];
    unsigned *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++)
        above[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned swap = above[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = SQRL_MIN(swap, SQRL_MIN(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = SQRL_MIN(row[j], before[j - 2] + 1);
        }
        unsigned *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[nb];
}

const char *sqrl_nearest(const char *name, const char *const *names, size_t count) {
    size_t length = strlen(name);
    if (length == 0 || length > NEAREST_MAX_BYTES)
        return NULL;
    /* Half of a short name may be wrong, else everything would be near to it. */
    unsigned best =
        (unsigned)SQRL_MIN((length + 1) / 2, (size_t)NEAREST_MAX_DISTANCE) + 1;
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(names[i]);
        if (other > NEAREST_MAX_BYTES)
            continue;
        unsigned distance = edit_distance(name, length, names[i], other);
        if (distance < best) {
            best = distance;
            found = names[i];
        }
    }
    return found;
}
