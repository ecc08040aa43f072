/* msgpack_encode.c - values to MessagePack, byte for byte as msgpack-python's Packer with
 * use_bin_type=True writes them, arrays as msgpack-numpy does.
 *
 * A tape lists its nodes in the order of the encoded bytes, so that one pass over them is
 * enough: no stack, no recursion.
 */
#include "value/value.h"

#define MAX_HEADER 16 /* more than any header or number takes */

static inline void store_be16(uint8_t *p, uint16_t v) {
    v = __builtin_bswap16(v);
    memcpy(p, &v, 2);
}
static inline void store_be32(uint8_t *p, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}
static inline void store_be64(uint8_t *p, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(p, &v, 8);
}

/* --- writers: each fills p (MAX_HEADER bytes of room) and returns how many it wrote ---
 */

static size_t write_uint(uint8_t *p, uint64_t v) {
    if (v < 0x80) {
        p[0] = (uint8_t)v;
        return 1;
    }
    if (v <= UINT8_MAX) {
        p[0] = 0xcc;
        p[1] = (uint8_t)v;
        return 2;
    }
    if (v <= UINT16_MAX) {
        p[0] = 0xcd;
        store_be16(p + 1, (uint16_t)v);
        return 3;
    }
    if (v <= UINT32_MAX) {
        p[0] = 0xce;
        store_be32(p + 1, (uint32_t)v);
        return 5;
    }
    p[0] = 0xcf;
    store_be64(p + 1, v);
    return 9;
}

static size_t write_int(uint8_t *p, int64_t v) {
    if (v >= 0)
        return write_uint(p, (uint64_t)v);
    if (v >= -32) {
        p[0] = (uint8_t)v;
        return 1;
    }
    if (v >= INT8_MIN) {
        p[0] = 0xd0;
        p[1] = (uint8_t)v;
        return 2;
    }
    if (v >= INT16_MIN) {
        p[0] = 0xd1;
        store_be16(p + 1, (uint16_t)v);
        return 3;
    }
    if (v >= INT32_MIN) {
        p[0] = 0xd2;
        store_be32(p + 1, (uint32_t)v);
        return 5;
    }
    p[0] = 0xd3;
    store_be64(p + 1, (uint64_t)v);
    return 9;
}

static size_t write_double(uint8_t *p, uint64_t bits) {
    p[0] = 0xcb;
    store_be64(p + 1, bits);
    return 9;
}

/* A double that came from 32 bits, back into them; a NaN keeps its bits (see widen() in
 * msgpack_decode.c). */
static size_t write_float32(uint8_t *p, uint64_t bits) {
    uint32_t narrow;
    if ((bits & INT64_MAX) > UINT64_C(0x7ff0000000000000)) {
        narrow = (uint32_t)(bits >> 32 & 0x80000000u) | 0x7f800000u |
                 (uint32_t)(bits >> 29 & 0x007fffffu);
    } else {
        double d;
        memcpy(&d, &bits, 8);
        float f = (float)d;
        memcpy(&narrow, &f, 4);
    }
    p[0] = 0xca;
    store_be32(p + 1, narrow);
    return 5;
}

/* A length behind the shortest of three codes. */
static size_t write_sized(uint8_t *p, uint32_t n, int code8, int code16, int code32) {
    if (code8 && n <= UINT8_MAX) {
        p[0] = (uint8_t)code8;
        p[1] = (uint8_t)n;
        return 2;
    }
    if (n <= UINT16_MAX) {
        p[0] = (uint8_t)code16;
        store_be16(p + 1, (uint16_t)n);
        return 3;
    }
    p[0] = (uint8_t)code32;
    store_be32(p + 1, n);
    return 5;
}

static size_t write_string_header(uint8_t *p, uint32_t n) {
    if (n < 32) {
        p[0] = (uint8_t)(0xa0 | n);
        return 1;
    }
    return write_sized(p, n, 0xd9, 0xda, 0xdb);
}

static size_t write_binary_header(uint8_t *p, uint32_t n) {
    return write_sized(p, n, 0xc4, 0xc5, 0xc6);
}

static size_t write_array_header(uint8_t *p, uint32_t n) {
    if (n < 16) {
        p[0] = (uint8_t)(0x90 | n);
        return 1;
    }
    return write_sized(p, n, 0, 0xdc, 0xdd);
}

static size_t write_map_header(uint8_t *p, uint32_t n) {
    if (n < 16) {
        p[0] = (uint8_t)(0x80 | n);
        return 1;
    }
    return write_sized(p, n, 0, 0xde, 0xdf);
}

static size_t write_ext_header(uint8_t *p, uint32_t n, uint8_t type) {
    size_t used = 1;
    if (n && n <= 16 && (n & (n - 1)) == 0)
        p[0] = (uint8_t)(0xd4 + __builtin_ctz(n));
    else
        used = write_sized(p, n, 0xc7, 0xc8, 0xc9);
    p[used] = type;
    return used + 1;
}

/* --- single values --- */

/* A header (`used` bytes at `header`) and `size` bytes behind it. */
static int put_both(struct sqrl_bytes *out, const uint8_t *header, size_t used,
                    const void *data, size_t size, struct sqrl_error *err) {
    int code = sqrl_bytes_room(out, used + size, err);
    if (code)
        return code;
    sqrl_bytes_put(out, header, used);
    if (size)
        sqrl_bytes_put(out, data, size);
    return SQRL_OK;
}

static int check_size(size_t size, const char *what, struct sqrl_error *err) {
    if (size > UINT32_MAX)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "MessagePack can't hold %s of %zu; at most 4294967295",
                              what, size);
    return SQRL_OK;
}

int sqrl_msgpack_put_null(struct sqrl_bytes *out, struct sqrl_error *err) {
    return sqrl_bytes_append(out, "\xc0", 1, err);
}

int sqrl_msgpack_put_bool(struct sqrl_bytes *out, bool v, struct sqrl_error *err) {
    return sqrl_bytes_append(out, v ? "\xc3" : "\xc2", 1, err);
}

int sqrl_msgpack_put_int(struct sqrl_bytes *out, int64_t v, struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    return sqrl_bytes_append(out, h, write_int(h, v), err);
}

int sqrl_msgpack_put_uint(struct sqrl_bytes *out, uint64_t v, struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    return sqrl_bytes_append(out, h, write_uint(h, v), err);
}

int sqrl_msgpack_put_float(struct sqrl_bytes *out, double v, struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    return sqrl_bytes_append(out, h, write_double(h, sqrl_double_bits(v)), err);
}

int sqrl_msgpack_put_string(struct sqrl_bytes *out, const char *text, size_t size,
                            struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    int code = check_size(size, "a string", err);
    return code ? code
                : put_both(out, h, write_string_header(h, (uint32_t)size), text, size,
                           err);
}

int sqrl_msgpack_put_binary(struct sqrl_bytes *out, const void *data, size_t size,
                            struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    int code = check_size(size, "a binary", err);
    return code ? code
                : put_both(out, h, write_binary_header(h, (uint32_t)size), data, size,
                           err);
}

int sqrl_msgpack_put_ext(struct sqrl_bytes *out, int type, const void *data, size_t size,
                         struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    int code = check_size(size, "an extension", err);
    if (code)
        return code;
    if (type < INT8_MIN || type > INT8_MAX)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "extension type %d is not in [-128, 127]", type);
    return put_both(out, h, write_ext_header(h, (uint32_t)size, (uint8_t)type), data,
                    size, err);
}

int sqrl_msgpack_put_array(struct sqrl_bytes *out, size_t items, struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    int code = check_size(items, "an array", err);
    return code ? code
                : sqrl_bytes_append(out, h, write_array_header(h, (uint32_t)items), err);
}

int sqrl_msgpack_put_map(struct sqrl_bytes *out, size_t pairs, struct sqrl_error *err) {
    uint8_t h[MAX_HEADER];
    int code = check_size(pairs, "a map", err);
    return code ? code
                : sqrl_bytes_append(out, h, write_map_header(h, (uint32_t)pairs), err);
}

/* --- NumPy arrays --- */

/* The parts of an array in front of its data: at most this many bytes without a
 * description. */
#define MAX_ARRAY_HEADER (64 + 9 * SQRL_MAX_DIMS)
#define PUT(p, literal)                                                                  \
    (memcpy(p, literal, sizeof(literal) - 1), (p) += sizeof(literal) - 1)

/* "<f4" as a string. */
static uint8_t *write_type(uint8_t *p, enum sqrl_dtype dtype, bool swapped) {
    const char *code = sqrl_dtype_code(dtype);
    size_t n = strlen(code);
    *p++ = (uint8_t)(0xa0 | (n + 1));
    *p++ = sqrl_dtype_size(dtype) == 1 ? '|' : swapped ? '>' : '<';
    memcpy(p, code, n);
    return p + n;
}

/* From the shape to the data's header. */
static uint8_t *write_shape(uint8_t *p, const uint64_t *shape, uint32_t dims,
                            uint32_t size) {
    PUT(p, "\xc4\x05"
           "shape");
    p += write_array_header(p, dims);
    for (uint32_t k = 0; k < dims; k++)
        p += write_uint(p, shape[k]);
    PUT(p, "\xc4\x04"
           "data");
    return p + write_binary_header(p, size);
}

static int put_numeric(struct sqrl_bytes *out, const struct sqrl_ndarray *a,
                       struct sqrl_error *err) {
    uint8_t header[MAX_ARRAY_HEADER], *p = header;
    *p++ = a->scalar ? 0x83 : 0x85;
    PUT(p, "\xc4\x02nd");
    *p++ = a->scalar ? 0xc2 : 0xc3;
    PUT(p, "\xc4\x04"
           "type");
    p = write_type(p, a->dtype, a->swapped);
    if (a->scalar) {
        PUT(p, "\xc4\x04"
               "data");
        p += write_binary_header(p, (uint32_t)a->data_bytes);
    } else {
        PUT(p, "\xc4\x04kind\xc4\x00");
        p = write_shape(p, a->shape, a->dims, (uint32_t)a->data_bytes);
    }
    return put_both(out, header, (size_t)(p - header), a->data, a->data_bytes, err);
}

int sqrl_msgpack_put_ndarray(struct sqrl_bytes *out, enum sqrl_dtype dtype,
                             const uint64_t *shape, uint32_t dims, const void *data,
                             struct sqrl_error *err) {
    struct sqrl_ndarray a = {.dtype = dtype, .dims = dims, .data = data};
    a.data_bytes = sqrl_dtype_size(dtype);
    if (!a.data_bytes)
        return sqrl_error_set(err, SQRL_E_INVALID, "an array needs a numeric dtype");
    if (dims > SQRL_MAX_DIMS)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "an array has at most %d dimensions, not %u", SQRL_MAX_DIMS,
                              dims);
    for (uint32_t k = 0; k < dims; k++) {
        a.shape[k] = shape[k];
        if (__builtin_mul_overflow(a.data_bytes, shape[k], &a.data_bytes))
            return sqrl_error_set(err, SQRL_E_LIMIT, "an array's size passes 64 bits");
    }
    int code = check_size(a.data_bytes, "an array's data", err);
    return code ? code : put_numeric(out, &a, err);
}

/* --- nodes --- */

static int put_nodes(struct sqrl_bytes *out, const struct sqrl_node *nodes, uint32_t node,
                     uint32_t end, const uint8_t *bytes, struct sqrl_error *err);

/* An array whose dtype is described by a node: a text or a list of fields. The list holds
 * plain nodes only, so that put_nodes does not come back here. */
static int put_described(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                         const struct sqrl_ndarray *a, const uint8_t *bytes,
                         struct sqrl_error *err) {
    uint8_t header[MAX_ARRAY_HEADER], *p = header;
    *p++ = a->scalar ? 0x83 : 0x85;
    PUT(p, "\xc4\x02nd");
    *p++ = a->scalar ? 0xc2 : 0xc3;
    PUT(p, "\xc4\x04"
           "type");
    int code = sqrl_bytes_append(out, header, (size_t)(p - header), err);
    uint32_t end = sqrl_node_next(nodes, a->description);
    if (!code)
        code = put_nodes(out, nodes, a->description, end, bytes, err);
    if (code)
        return code;
    p = header;
    if (a->scalar) {
        PUT(p, "\xc4\x04"
               "data");
        p += write_binary_header(p, (uint32_t)a->data_bytes);
    } else {
        PUT(p, "\xc4\x04kind\xc4");
        bool fields = nodes[a->description].type == SQRL_ARRAY;
        *p++ = fields;
        if (fields)
            *p++ = 'V';
        p = write_shape(p, a->shape, a->dims, (uint32_t)a->data_bytes);
    }
    return put_both(out, header, (size_t)(p - header), a->data, a->data_bytes, err);
}

static int put_complex(struct sqrl_bytes *out, const struct sqrl_node *n,
                       const uint8_t *bytes, struct sqrl_error *err) {
    uint8_t header[48], *p = header;
    PUT(p, "\x82\xc4\x07"
           "complex\xc3\xc4\x04"
           "data");
    p += write_string_header(p, n->size);
    return put_both(out, header, (size_t)(p - header), bytes + n->v.offset, n->size, err);
}

/* Writes one node's own bytes; *payload tells how many of the tape's bytes follow. */
static size_t write_node(uint8_t *p, const struct sqrl_node *n, size_t *payload) {
    *payload = 0;
    switch (n->type) {
    case SQRL_NULL:
        p[0] = 0xc0;
        return 1;
    case SQRL_BOOL:
        p[0] = n->v.u ? 0xc3 : 0xc2;
        return 1;
    case SQRL_INT:
        return write_int(p, n->v.i);
    case SQRL_UINT:
        return write_uint(p, n->v.u);
    case SQRL_FLOAT:
        return n->flags & SQRL_NODE_F32 ? write_float32(p, n->v.u)
                                        : write_double(p, n->v.u);
    case SQRL_STRING:
        *payload = n->size;
        return write_string_header(p, n->size);
    case SQRL_BINARY:
        *payload = n->size;
        return write_binary_header(p, n->size);
    case SQRL_EXT:
        *payload = n->size;
        return write_ext_header(p, n->size, (uint8_t)(n->aux - 128));
    case SQRL_ARRAY:
        return write_array_header(p, n->size);
    case SQRL_MAP:
        return write_map_header(p, n->size);
    default:
        return 0;
    }
}

/* What write_node can't do alone. */
static int put_special(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                       uint32_t node, const uint8_t *bytes, struct sqrl_error *err) {
    const struct sqrl_node *n = &nodes[node];
    if (n->type == SQRL_COMPLEX)
        return put_complex(out, n, bytes, err);
    if (n->type == SQRL_NUMBER)
        return sqrl_error_set(
            err, SQRL_E_UNSUPPORTED, "MessagePack has no integers beyond 64 bits: %.*s%s",
            (int)SQRL_MIN(n->size, 40u), (const char *)bytes + n->v.offset,
            n->size > 40 ? "..." : "");
    if (n->type != SQRL_NDARRAY)
        return sqrl_error_set(err, SQRL_E_INVALID, "node %u is of no known type (%u)",
                              node, n->type);
    struct sqrl_ndarray a;
    sqrl_ndarray_view(nodes, node, bytes, &a);
    return a.dtype ? put_numeric(out, &a, err)
                   : put_described(out, nodes, &a, bytes, err);
}

static int put_nodes(struct sqrl_bytes *out, const struct sqrl_node *nodes, uint32_t node,
                     uint32_t end, const uint8_t *bytes, struct sqrl_error *err) {
    int code = SQRL_OK;
    while (node < end) {
        const struct sqrl_node *n = &nodes[node];
        code = sqrl_bytes_room(out, MAX_HEADER, err);
        if (code)
            return code;
        size_t payload;
        size_t used = write_node(out->data + out->size, n, &payload);
        out->size += used;
        if (payload)
            code = sqrl_bytes_append(out, bytes + n->v.offset, payload, err);
        else if (!used)
            code = put_special(out, nodes, node, bytes, err);
        if (code)
            return code;
        node = n->type == SQRL_NDARRAY ? sqrl_node_next(nodes, node) : node + 1;
    }
    return SQRL_OK;
}

int sqrl_msgpack_encode(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                        uint32_t node, const uint8_t *bytes, struct sqrl_error *err) {
    size_t before = out->size;
    int code = put_nodes(out, nodes, node, sqrl_node_next(nodes, node), bytes, err);
    if (code)
        out->size = before;
    return code;
}
