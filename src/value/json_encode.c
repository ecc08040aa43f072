/* json_encode.c - a tape to JSON text, as Python's json.dumps(..., ensure_ascii=False)
 * writes it: ", " and ": " between, floats as repr. */
#include "value/json.h"

#include <stdlib.h>

/* An open container: the node where it ends, and what it is. */
struct frame {
    uint32_t end;
    bool map;
    bool value; /* of a map: the next node is a value, not a key */
    bool first;
};

#define FIRST_FRAMES 32u

struct encoder {
    struct sqrl_bytes *out;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    struct frame *frames; /* `room`, or allocated when nesting is deep */
    uint32_t depth, capacity;
    struct sqrl_error *err;
    struct frame room[FIRST_FRAMES];
};

static int put_text(struct encoder *e, const char *text) {
    return sqrl_bytes_append(e->out, text, strlen(text), e->err);
}

static int put_unsigned(struct encoder *e, uint64_t v, bool negative) {
    char text[24];
    size_t at = sizeof text;
    do
        text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    if (negative)
        text[--at] = '-';
    return sqrl_bytes_append(e->out, text + at, sizeof text - at, e->err);
}

static int put_float(struct encoder *e, double f) {
    char text[SQRL_JSON_FLOAT_BYTES];
    return sqrl_bytes_append(e->out, text, sqrl_json_float_write(f, text), e->err);
}

/* Base64 with padding (RFC 4648, section 4), in quotes. */
static int put_base64(struct encoder *e, const uint8_t *p, size_t size) {
    static const char DIGITS[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t chars = (size / 3 + (size % 3 != 0)) * 4;
    int code = sqrl_bytes_room(e->out, chars + 2, e->err);
    if (code)
        return code;
    uint8_t *out = e->out->data + e->out->size;
    *out++ = '"';
    for (size_t i = 0; i < size; i += 3) {
        size_t n = SQRL_MIN(size - i, (size_t)3);
        uint32_t v = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                     (n > 2 ? (uint32_t)p[i + 2] : 0);
        *out++ = (uint8_t)DIGITS[v >> 18];
        *out++ = (uint8_t)DIGITS[v >> 12 & 63];
        *out++ = (uint8_t)(n > 1 ? DIGITS[v >> 6 & 63] : '=');
        *out++ = (uint8_t)(n > 2 ? DIGITS[v & 63] : '=');
    }
    *out = '"';
    e->out->size += chars + 2;
    return SQRL_OK;
}

static int push_frame(struct encoder *e, uint32_t node) {
    if (e->depth == e->capacity) {
        struct frame *old = e->frames == e->room ? NULL : e->frames;
        struct frame *more = sqrl_realloc(old, 2 * (size_t)e->capacity * sizeof *more,
                                          "nesting of JSON", e->err);
        if (!more)
            return SQRL_E_NO_MEMORY;
        if (!old)
            memcpy(more, e->room, sizeof e->room);
        e->frames = more;
        e->capacity *= 2;
    }
    const struct sqrl_node *n = &e->nodes[node];
    e->frames[e->depth++] =
        (struct frame){(uint32_t)n->v.next, n->type == SQRL_MAP, false, true};
    return put_text(e, n->type == SQRL_MAP ? "{" : "[");
}

static int put_node(struct encoder *e, uint32_t node) {
    const struct sqrl_node *n = &e->nodes[node];
    switch (n->type) {
    case SQRL_NULL:
        return put_text(e, "null");
    case SQRL_BOOL:
        return put_text(e, n->v.u ? "true" : "false");
    case SQRL_INT:
        return put_unsigned(e, n->v.i < 0 ? 0 - n->v.u : n->v.u, n->v.i < 0);
    case SQRL_UINT:
        return put_unsigned(e, n->v.u, false);
    case SQRL_FLOAT:
        return put_float(e, n->v.f);
    case SQRL_NUMBER:
        return sqrl_bytes_append(e->out, e->bytes + n->v.offset, n->size, e->err);
    case SQRL_STRING:
        return sqrl_json_string_encode(e->out, e->bytes + n->v.offset, n->size, e->err);
    case SQRL_BINARY:
        return put_base64(e, e->bytes + n->v.offset, n->size);
    case SQRL_ARRAY:
    case SQRL_MAP:
        return push_frame(e, node);
    case SQRL_NDARRAY:
        return sqrl_json_ndarray_encode(e->out, e->nodes, node, e->bytes, e->err);
    case SQRL_COMPLEX:
        return sqrl_error_set(e->err, SQRL_E_TYPE, "JSON has no complex numbers");
    default:
        return sqrl_error_set(e->err, SQRL_E_TYPE,
                              "JSON has no type for a MessagePack extension");
    }
}

/* Closes the containers that end at `node`. */
static int close_frames(struct encoder *e, uint32_t node) {
    while (e->depth && e->frames[e->depth - 1].end == node) {
        int code = put_text(e, e->frames[--e->depth].map ? "}" : "]");
        if (code)
            return code;
    }
    return SQRL_OK;
}

/* A number, boolean or null as a key: its text in quotes, as Python's json writes it. */
static int put_key(struct encoder *e, uint32_t node) {
    static const unsigned SCALARS = 1u << SQRL_NULL | 1u << SQRL_BOOL | 1u << SQRL_INT |
                                    1u << SQRL_UINT | 1u << SQRL_FLOAT |
                                    1u << SQRL_NUMBER;
    unsigned type = e->nodes[node].type;
    if (type >= 32 || !(SCALARS >> type & 1))
        return sqrl_error_set(e->err, SQRL_E_TYPE,
                              "JSON objects have strings as keys only");
    int code = put_text(e, "\"");
    if (!code)
        code = put_node(e, node);
    return code ? code : put_text(e, "\"");
}

/* What stands before a node in its container. */
static int put_separator(struct encoder *e, bool *is_key) {
    struct frame *f = &e->frames[e->depth - 1];
    bool is_value = f->map && f->value, is_first = f->first;
    f->value = f->map && !f->value;
    f->first = false;
    *is_key = f->map && !is_value;
    if (is_value)
        return put_text(e, ": ");
    return is_first ? SQRL_OK : put_text(e, ", ");
}

int sqrl_json_encode(struct sqrl_bytes *out, const struct sqrl_node *nodes, uint32_t node,
                     const uint8_t *bytes, struct sqrl_error *err) {
    struct encoder e = {
        .out = out, .nodes = nodes, .bytes = bytes, .capacity = FIRST_FRAMES, .err = err};
    size_t before = out->size;
    uint32_t end = sqrl_node_next(nodes, node);
    int code = SQRL_OK;
    e.frames = e.room;
    while (node < end && !code) {
        bool is_key = false;
        if (e.depth)
            code = put_separator(&e, &is_key);
        if (!code && is_key && nodes[node].type != SQRL_STRING)
            code = put_key(&e, node);
        else if (!code)
            code = put_node(&e, node);
        bool inside = nodes[node].type == SQRL_ARRAY || nodes[node].type == SQRL_MAP;
        node = inside ? node + 1 : sqrl_node_next(nodes, node);
        if (!code)
            code = close_frames(&e, node);
    }
    if (e.frames != e.room)
        free(e.frames);
    if (code)
        out->size = before;
    return code;
}
