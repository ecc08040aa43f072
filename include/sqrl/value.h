/* sqrl/value.h - one sample's values: the tape, MessagePack, JSON and NumPy arrays.
 *
 * A decoder turns bytes into a tape: an array of 16-byte typed nodes that point into
 * those bytes (nothing is copied; escaped JSON strings are unescaped in place). A tape is
 * only meaningful beside its bytes. Nodes of a container follow it directly; `v.next` of
 * a container is the index of the node behind its last descendant, so that a reader skips
 * a whole subtree in one step. A map is key, value, key, value; keys are strings or
 * binaries (other key types are kept as they are).
 *
 * MessagePack: https://github.com/msgpack/msgpack/blob/master/spec.md. JSON: RFC 8259.
 * Strict UTF-8 in both (RFC 3629).
 *
 * Arrays in MessagePack, as msgpack-numpy 0.4.8 and the versions before write them: a map
 * with exactly the keys nd, type, kind, shape, data (before 0.4 without kind), of a
 * scalar nd, type, data, of a Python complex `complex`, data, in any order, becomes one
 * NDARRAY or COMPLEX node; a map with other keys or types of values stays a map.
 * - Binary keys are the usual form. Where size and shape contradict each other it is
 *   SQRL_E_CORRUPT; arrays of Python objects (dtype 'O') are pickles: SQRL_E_UNSUPPORTED.
 * - Text keys are what use_bin_type=False writes, or anybody's map. They are folded only
 *   where kind and data are texts too (raw ones, need not be UTF-8), nd is a bool and the
 *   data have the very size that type and shape ask for; else the map stays a map.
 * Encoding writes all of them in the usual form.
 * Threads: a tape belongs to one thread at a time; reading a finished one is free to all.
 */
#ifndef SQRL_VALUE_H
#define SQRL_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sqrl_type {
    SQRL_NULL = 0,
    SQRL_BOOL,   /* v.u is 0 or 1 */
    SQRL_INT,    /* v.i */
    SQRL_UINT,   /* v.u, only for values above INT64_MAX */
    SQRL_FLOAT,  /* v.f; SQRL_NODE_F32 when it was stored as 32 bits */
    SQRL_NUMBER, /* JSON's integer beyond 64 bits: decimal text at v.offset, size bytes */
    SQRL_STRING, /* UTF-8: v.offset, size bytes; SQRL_NODE_ASCII when all are < 128 */
    SQRL_BINARY, /* v.offset, size bytes */
    SQRL_EXT,    /* MessagePack extension: aux = type + 128, v.offset, size bytes */
    SQRL_COMPLEX, /* Python's complex of msgpack-numpy: text "(1+2j)" at v.offset, size */
    SQRL_ARRAY,   /* size items; v.next */
    SQRL_MAP,     /* size pairs; v.next */
    SQRL_NDARRAY  /* size = number of dimensions, aux = dtype; v.next. Its nodes: BINARY
                     with the data in C order, one INT for each dimension, and for
                     SQRL_DTYPE_OTHER the dtype's description (STRING "<U5", a BINARY of
                     the  same in old files, or the ARRAY of a structure's fields) */
};

enum sqrl_node_flag {
    SQRL_NODE_ASCII = 1,   /* STRING: pure ASCII */
    SQRL_NODE_F32 = 2,     /* FLOAT: stored as 32 bits */
    SQRL_NODE_SWAPPED = 4, /* NDARRAY: the data are big-endian */
    SQRL_NODE_SCALAR = 8,  /* NDARRAY of 0 dimensions that was a NumPy scalar */
    /* BINARY of an NDARRAY that was JSON: its data don't fit the text they come from;
     * they lie on the tape behind the NDARRAY's last child, up to its v.next; v.offset is
     * 0. So skip an NDARRAY by v.next, and take its data by sqrl_ndarray_view. */
    SQRL_NODE_ON_TAPE = 16
};

enum sqrl_dtype {
    SQRL_DTYPE_OTHER = 0, /* strings, dates, structures: described by text */
    SQRL_DTYPE_BOOL,
    SQRL_DTYPE_INT8,
    SQRL_DTYPE_INT16,
    SQRL_DTYPE_INT32,
    SQRL_DTYPE_INT64,
    SQRL_DTYPE_UINT8,
    SQRL_DTYPE_UINT16,
    SQRL_DTYPE_UINT32,
    SQRL_DTYPE_UINT64,
    SQRL_DTYPE_FLOAT16,
    SQRL_DTYPE_FLOAT32,
    SQRL_DTYPE_FLOAT64,
    SQRL_DTYPE_COMPLEX64,
    SQRL_DTYPE_COMPLEX128,
    SQRL_DTYPE_COUNT
};

#define SQRL_MAX_DIMS                                                                    \
    32 /* NumPy 1's limit; NumPy 2 has 64, which is refused with LIMIT */

struct sqrl_node {
    uint8_t type;  /* enum sqrl_type */
    uint8_t flags; /* enum sqrl_node_flag */
    uint16_t aux;  /* dtype or extension type */
    uint32_t size; /* bytes, items, pairs or dimensions */
    union {
        int64_t i;
        uint64_t u;
        double f;
        uint64_t offset; /* from the start of the bytes the tape belongs to */
        uint64_t next;   /* index of the node behind the container (fits 32 bits) */
    } v;
};

/* A growing array of nodes. Zero-initialise it; sqrl_tape_reset frees it. */
struct sqrl_tape {
    struct sqrl_node *nodes;
    uint32_t count;
    uint32_t capacity;
};

/* Frees the nodes and empties the tape. */
SQRL_API void sqrl_tape_reset(struct sqrl_tape *tape);

/* What a decoder accepts. 0 means the default. */
struct sqrl_limits {
    uint32_t max_depth; /* nesting of arrays and maps; default 512 */
    uint32_t max_nodes; /* of one value; default 2^28 */
    uint64_t max_bytes; /* of one value; default 2^31 */
};

/* Size in bytes of one element; 0 for SQRL_DTYPE_OTHER. */
SQRL_API size_t sqrl_dtype_size(enum sqrl_dtype dtype);
/* "uint8", "float32" ...: NumPy's name; "other". */
SQRL_API const char *sqrl_dtype_name(enum sqrl_dtype dtype);
/* From a NumPy name ("uint8") or type string ("<f4", "|u1", ">i2"); `swapped` (may be
 * NULL) tells big-endian. SQRL_DTYPE_OTHER when it is none of the numeric ones. */
SQRL_API enum sqrl_dtype sqrl_dtype_parse(const char *text, size_t size, bool *swapped);

/* --- decoding ---
 * Each
 * decodes one value that begins at bytes[*offset], appends its nodes to `tape` and moves
 * *offset behind it. On failure the tape is as before and *offset is where the fault is.
 * SQRL_E_TRUNCATED: the value may be fine, but its end is not here yet. Node offsets
 * count from `bytes`. Nothing is allocated by a size that the data claim: at most 16
 * bytes a byte. */
SQRL_CHECK int sqrl_msgpack_decode(struct sqrl_tape *tape, const uint8_t *bytes,
                                   size_t size, size_t *offset,
                                   const struct sqrl_limits *limits,
                                   struct sqrl_error *err);
/* JSON: writes into `bytes` where a string has escapes. Behind the value only white space
 * is consumed; *offset then is the next non-space byte or `size`. Duplicate keys are
 * kept. NaN, Infinity and -Infinity are refused unless SQRL_JSON_NAN is in `flags`; with
 * SQRL_JSON_NO_ARRAYS every object is a map, also one that looks like an array. */
enum { SQRL_JSON_NAN = 1, SQRL_JSON_NO_ARRAYS = 2 };
SQRL_CHECK int sqrl_json_decode(struct sqrl_tape *tape, uint8_t *bytes, size_t size,
                                size_t *offset, unsigned flags,
                                const struct sqrl_limits *limits, struct sqrl_error *err);

/* Many values in one call, as a block needs it. `begin[k]` receives the node index of
 * value k; stops after `max` values or at `size`. Returns SQRL_OK with *count and *offset
 * set also when the last value is cut short (*offset is its start then): the caller
 * decides what that means. For JSON lines, values are separated by \n (\r\n is accepted,
 * blank lines are skipped), and a value never continues on the next line; the last line
 * needs no \n. On failure *count values were decoded well, *offset is the fault. */
SQRL_CHECK int sqrl_msgpack_decode_many(struct sqrl_tape *tape, const uint8_t *bytes,
                                        size_t size, size_t *offset, uint32_t *begin,
                                        uint32_t max, uint32_t *count,
                                        const struct sqrl_limits *limits,
                                        struct sqrl_error *err);
SQRL_CHECK int sqrl_jsonl_decode_many(struct sqrl_tape *tape, uint8_t *bytes, size_t size,
                                      size_t *offset, uint32_t *begin, uint32_t max,
                                      uint32_t *count, unsigned flags,
                                      const struct sqrl_limits *limits,
                                      struct sqrl_error *err);

/* --- encoding ---
 * A
 * growing byte string for encoders. Zero-initialise it; sqrl_bytes_reset frees it. */
struct sqrl_bytes {
    uint8_t *data;
    size_t size;
    size_t capacity;
};
SQRL_API void sqrl_bytes_reset(struct sqrl_bytes *bytes);
/* Makes room for `more` bytes behind size. */
SQRL_CHECK int sqrl_bytes_reserve(struct sqrl_bytes *bytes, size_t more,
                                  struct sqrl_error *err);
SQRL_CHECK int sqrl_bytes_append(struct sqrl_bytes *bytes, const void *data, size_t size,
                                 struct sqrl_error *err);

/* Appends node `node` of a tape (with its subtree). MessagePack uses the shortest
 * encoding of every value, as msgpack-python does with use_bin_type=True, and
 * msgpack-numpy's form for arrays. JSON: UTF-8 unescaped but for control characters,
 * quotes and backslash, floats in the shortest form that reads back equal, binaries as
 * base64 text, arrays as squirrel-core's SquirrelJsonEncoder writes them; NaN and
 * infinities as NaN, Infinity, and numbers, booleans and null as keys in quotes (Python's
 * choices). */
SQRL_CHECK int sqrl_msgpack_encode(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                                   uint32_t node, const uint8_t *bytes,
                                   struct sqrl_error *err);
SQRL_CHECK int sqrl_json_encode(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                                uint32_t node, const uint8_t *bytes,
                                struct sqrl_error *err);

/* Single values, for programs that make samples without a tape. Sizes above 2^32-1 give
 * SQRL_E_LIMIT. An ndarray is written as msgpack-numpy does; data in C order,
 * little-endian. */
SQRL_CHECK int sqrl_msgpack_put_null(struct sqrl_bytes *out, struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_bool(struct sqrl_bytes *out, bool v,
                                     struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_int(struct sqrl_bytes *out, int64_t v,
                                    struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_uint(struct sqrl_bytes *out, uint64_t v,
                                     struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_float(struct sqrl_bytes *out, double v,
                                      struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_string(struct sqrl_bytes *out, const char *text,
                                       size_t size, struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_binary(struct sqrl_bytes *out, const void *data,
                                       size_t size, struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_ext(struct sqrl_bytes *out, int type, const void *data,
                                    size_t size, struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_array(struct sqrl_bytes *out, size_t items,
                                      struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_map(struct sqrl_bytes *out, size_t pairs,
                                    struct sqrl_error *err);
SQRL_CHECK int sqrl_msgpack_put_ndarray(struct sqrl_bytes *out, enum sqrl_dtype dtype,
                                        const uint64_t *shape, uint32_t dims,
                                        const void *data, struct sqrl_error *err);

/* --- looking into a tape --- */
#define SQRL_NO_NODE UINT32_MAX

/* The node behind `node` and all its descendants. */
static inline uint32_t sqrl_node_next(const struct sqrl_node *nodes, uint32_t node) {
    return nodes[node].type >= SQRL_ARRAY ? (uint32_t)nodes[node].v.next : node + 1;
}

/* The value of key `name`, a string or a binary, in the map `node`, or SQRL_NO_NODE. Of
 * duplicate keys the last counts, as in Python. */
SQRL_API uint32_t sqrl_map_find(const struct sqrl_node *nodes, uint32_t node,
                                const uint8_t *bytes, const char *name, size_t name_size);

/* An NDARRAY node taken apart. `data` points into `bytes`, or into the tape when the
 * array was JSON (SQRL_NODE_ON_TAPE). */
struct sqrl_ndarray {
    enum sqrl_dtype dtype;
    bool swapped, scalar;
    uint32_t dims;
    uint64_t shape[SQRL_MAX_DIMS];
    const uint8_t *data;
    size_t data_bytes;
    uint32_t description; /* node of the dtype's description, or SQRL_NO_NODE */
};
SQRL_API void sqrl_ndarray_view(const struct sqrl_node *nodes, uint32_t node,
                                const uint8_t *bytes, struct sqrl_ndarray *out);

/* Only the data of an NDARRAY node whose dtype is not SQRL_DTYPE_OTHER. */
static inline const uint8_t *sqrl_ndarray_data(const struct sqrl_node *nodes,
                                               uint32_t node, const uint8_t *bytes) {
    const struct sqrl_node *n = &nodes[node];
    return n[1].flags & SQRL_NODE_ON_TAPE ? (const uint8_t *)&n[2 + n->size]
                                          : bytes + n[1].v.offset;
}

/* True when the bytes are valid UTF-8 (no surrogates, no overlong forms); `ascii` (may be
 * NULL) tells whether all are below 128. */
SQRL_API bool sqrl_utf8_valid(const uint8_t *bytes, size_t size, bool *ascii);

#ifdef __cplusplus
}
#endif
#endif
