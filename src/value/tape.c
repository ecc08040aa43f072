/* tape.c - the growing array of nodes, errors with offsets, and looking up keys. */
#include "value/value.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TAPE_FIRST_NODES 64u
#define TAPE_MAX_NODES (UINT32_MAX - 1)

void sqrl_tape_reset(struct sqrl_tape *tape) {
    free(tape->nodes);
    memset(tape, 0, sizeof *tape);
}

int sqrl_tape_grow(struct sqrl_tape *tape, uint32_t more, struct sqrl_error *err) {
    uint64_t need = (uint64_t)tape->count + more;
    if (need <= tape->capacity)
        return SQRL_OK;
    if (need > TAPE_MAX_NODES)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "more than %u values in one block; use smaller blocks",
                              TAPE_MAX_NODES);
    uint64_t capacity =
        SQRL_MAX((uint64_t)tape->capacity * 2, (uint64_t)TAPE_FIRST_NODES);
    capacity = SQRL_MIN(SQRL_MAX(capacity, need), (uint64_t)TAPE_MAX_NODES);
    struct sqrl_node *nodes =
        sqrl_realloc(tape->nodes, (size_t)capacity * sizeof *nodes, "tape", err);
    if (!nodes)
        return SQRL_E_NO_MEMORY;
    tape->nodes = nodes;
    tape->capacity = (uint32_t)capacity;
    return SQRL_OK;
}

int sqrl_value_error(struct sqrl_error *err, int code, size_t offset, const char *format,
                     ...) {
    char text[SQRL_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sqrl_error_set(err, code, "%s", text);
    return sqrl_error_at(err, code, "byte %zu", offset);
}

uint32_t sqrl_map_find(const struct sqrl_node *nodes, uint32_t node, const uint8_t *bytes,
                       const char *name, size_t name_size) {
    uint32_t found = SQRL_NO_NODE;
    if (nodes[node].type != SQRL_MAP)
        return found;
    uint32_t end = (uint32_t)nodes[node].v.next;
    for (uint32_t key = node + 1; key < end;) {
        const struct sqrl_node *k = &nodes[key];
        uint32_t value = sqrl_node_next(nodes, key);
        if ((k->type == SQRL_STRING || k->type == SQRL_BINARY) && k->size == name_size &&
            memcmp(bytes + k->v.offset, name, name_size) == 0)
            found = value;
        key = sqrl_node_next(nodes, value);
    }
    return found;
}
