/* Spells a tape's value in the notation of tests/golden/make_msgpack_vectors.py, so that
 * what C decodes is compared with what Python sees. Shared by the tests of this floor. */
#ifndef SQRL_TEST_DUMP_H
#define SQRL_TEST_DUMP_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqrl/value.h"

struct dump {
    char *text;
    size_t size, capacity;
};

static void dump_add(struct dump *d, const char *text, size_t size) {
    if (d->size + size + 1 > d->capacity) {
        d->capacity = (d->size + size + 1) * 2;
        d->text = realloc(d->text, d->capacity);
        if (!d->text)
            abort();
    }
    memcpy(d->text + d->size, text, size);
    d->size += size;
    d->text[d->size] = 0;
}

static void dump_print(struct dump *d, const char *format, ...) {
    char text[64];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dump_add(d, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void dump_hex(struct dump *d, const uint8_t *bytes, size_t size) {
    static const char DIGITS[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        char pair[2] = {DIGITS[bytes[i] >> 4], DIGITS[bytes[i] & 15]};
        dump_add(d, pair, 2);
    }
}

static void dump_value(struct dump *d, const struct sqrl_node *nodes, uint32_t node,
                       const uint8_t *bytes);

static void dump_array(struct dump *d, const struct sqrl_node *nodes, uint32_t node,
                       const uint8_t *bytes) {
    struct sqrl_ndarray a;
    sqrl_ndarray_view(nodes, node, bytes, &a);
    dump_print(d, "n:%s:%s%s:", sqrl_dtype_name(a.dtype), a.swapped ? ">" : "",
               a.scalar ? "s" : "");
    for (uint32_t k = 0; k < a.dims; k++)
        dump_print(d, "%s%" PRIu64, k ? "," : "", a.shape[k]);
    dump_add(d, ":", 1);
    dump_hex(d, a.data, a.data_bytes);
    if (a.description != SQRL_NO_NODE) {
        dump_add(d, ":", 1);
        dump_value(d, nodes, a.description, bytes);
    }
}

static void dump_container(struct dump *d, const struct sqrl_node *nodes, uint32_t node,
                           const uint8_t *bytes) {
    bool map = nodes[node].type == SQRL_MAP;
    uint32_t count = 0;
    dump_add(d, map ? "{" : "[", 1);
    for (uint32_t k = node + 1; k < nodes[node].v.next; k = sqrl_node_next(nodes, k)) {
        if (count)
            dump_add(d, map && count % 2 ? "=" : ",", 1);
        dump_value(d, nodes, k, bytes);
        count++;
    }
    dump_add(d, map ? "}" : "]", 1);
    if (count != nodes[node].size * (map ? 2u : 1u))
        dump_print(d, "<%u of %u>", count, nodes[node].size);
}

static void dump_value(struct dump *d, const struct sqrl_node *nodes, uint32_t node,
                       const uint8_t *bytes) {
    const struct sqrl_node *n = &nodes[node];
    switch (n->type) {
    case SQRL_NULL:
        dump_print(d, "null");
        break;
    case SQRL_BOOL:
        dump_print(d, n->v.u == 0 ? "false" : n->v.u == 1 ? "true" : "<bool>");
        break;
    case SQRL_INT:
        dump_print(d, "%" PRId64, n->v.i);
        break;
    case SQRL_UINT:
        dump_print(d, n->v.u > INT64_MAX ? "%" PRIu64 : "<uint>%" PRIu64, n->v.u);
        break;
    case SQRL_FLOAT:
        dump_print(d, "%c:%016" PRIx64, n->flags & SQRL_NODE_F32 ? 'F' : 'f', n->v.u);
        break;
    case SQRL_NUMBER:
        dump_add(d, (const char *)bytes + n->v.offset, n->size);
        break;
    case SQRL_STRING:
    case SQRL_BINARY:
        dump_print(d, n->type == SQRL_STRING ? "s:" : "b:");
        dump_hex(d, bytes + n->v.offset, n->size);
        break;
    case SQRL_EXT:
        dump_print(d, "e:%d:", n->aux - 128);
        dump_hex(d, bytes + n->v.offset, n->size);
        break;
    case SQRL_COMPLEX:
        dump_print(d, "c:");
        dump_add(d, (const char *)bytes + n->v.offset, n->size);
        break;
    case SQRL_NDARRAY:
        dump_array(d, nodes, node, bytes);
        break;
    default:
        dump_container(d, nodes, node, bytes);
    }
}

/* The spelling of one value; free() it. */
static inline char *dump_text(const struct sqrl_tape *tape, uint32_t node,
                              const uint8_t *bytes) {
    struct dump d = {0};
    dump_value(&d, tape->nodes, node, bytes);
    return d.text;
}

#endif
