/* value.h - the private half of the value floor: pushing nodes, limits, errors with
 * offsets.
 *
 * A decoder of either format pushes nodes through the inline functions here and lets
 * sqrl_tape_grow do the rare work. Containers are patched in place when they are
 * complete.
 */
#ifndef SQRL_VALUE_PRIVATE_H
#define SQRL_VALUE_PRIVATE_H

#include "base/base.h"
#include "sqrl/value.h"

#define SQRL_DEFAULT_MAX_DEPTH 512u
#define SQRL_DEFAULT_MAX_NODES (UINT32_C(1) << 28)
#define SQRL_DEFAULT_MAX_BYTES (UINT64_C(1) << 31)

/* A copy of `limits` (NULL is allowed) with defaults in place of zeros. */
static inline struct sqrl_limits sqrl_limits_resolve(const struct sqrl_limits *limits) {
    struct sqrl_limits l = {0, 0, 0};
    if (limits)
        l = *limits;
    if (!l.max_depth)
        l.max_depth = SQRL_DEFAULT_MAX_DEPTH;
    if (!l.max_nodes)
        l.max_nodes = SQRL_DEFAULT_MAX_NODES;
    if (!l.max_bytes)
        l.max_bytes = SQRL_DEFAULT_MAX_BYTES;
    return l;
}

/* Writes the error and puts "byte <offset>" in front of it. Returns `code`. */
int sqrl_value_error(struct sqrl_error *err, int code, size_t offset, const char *format,
                     ...) SQRL_PRINTF(4, 5);

/* Makes room for at least `more` (>= 1) nodes behind count. Fails with SQRL_E_LIMIT when
 * the tape would pass 2^32-2 nodes. The tape is as before on failure. */
SQRL_CHECK int sqrl_tape_grow(struct sqrl_tape *tape, uint32_t more,
                              struct sqrl_error *err);

static inline int sqrl_tape_reserve(struct sqrl_tape *tape, uint32_t more,
                                    struct sqrl_error *err) {
    if (SQRL_LIKELY(tape->capacity - tape->count >= more))
        return SQRL_OK;
    return sqrl_tape_grow(tape, more, err);
}

/* Fills one node; `bits` is v.u (v.i, v.offset, v.next alike). Two stores of 8 bytes,
 * since compilers do not join the four small ones. */
static inline void sqrl_node_put(struct sqrl_node *node, unsigned type, unsigned flags,
                                 unsigned aux, uint32_t size, uint64_t bits) {
    uint64_t head = (uint64_t)size << 32 | (uint32_t)(aux << 16 | flags << 8 | type);
    memcpy(node, &head, 8);
    node->v.u = bits;
}

/* Appends one node behind a reserve. Returns its index. */
static inline uint32_t sqrl_tape_push(struct sqrl_tape *tape, unsigned type,
                                      unsigned flags, unsigned aux, uint32_t size,
                                      uint64_t bits) {
    uint32_t index = tape->count++;
    sqrl_node_put(&tape->nodes[index], type, flags, aux, size, bits);
    return index;
}

static inline uint64_t sqrl_double_bits(double f) {
    uint64_t u;
    memcpy(&u, &f, 8);
    return u;
}

/* Appends without a check for room: call sqrl_bytes_reserve first. */
static inline void sqrl_bytes_put(struct sqrl_bytes *out, const void *data, size_t size) {
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

/* Room for `more` bytes; the common case inline. */
static inline int sqrl_bytes_room(struct sqrl_bytes *out, size_t more,
                                  struct sqrl_error *err) {
    if (SQRL_LIKELY(out->capacity - out->size >= more))
        return SQRL_OK;
    return sqrl_bytes_reserve(out, more, err);
}

/* Private flag of a node that holds a raw string until its map is known to be an array.
 */
#define SQRL_NODE_RAW 0x80u

/* From the array protocol's kind and size: ('f', 4). */
enum sqrl_dtype sqrl_dtype_of(char kind, unsigned size);

/* msgpack-numpy's arrays (ndarray.c).
 * Reads a map at p, of `size` bytes that remain, that is written as msgpack-numpy writes
 * an array or scalar of a numeric dtype: keys in the usual order, everything in its
 * place. Writes its nodes to `out` (room for SQRL_NDARRAY_READ_NODES), which is node
 * `index` of its tape; `offset` is p's. Returns the bytes taken, or 0 when the map is
 * anything else or not whole. */
#define SQRL_NDARRAY_READ_NODES (2 + SQRL_MAX_DIMS)
size_t sqrl_ndarray_read(const uint8_t *p, size_t size, uint64_t offset, uint32_t index,
                         struct sqrl_node *out, uint32_t *made);

/* Looks at the map `map`, the last container of the tape, just completed. Turns it into
 * an NDARRAY or COMPLEX node where it has exactly that form, else leaves it. Fails where
 * it has the form and contradicts itself; *fault is the offset then. */
SQRL_CHECK int sqrl_ndarray_fold(struct sqrl_tape *tape, uint32_t map,
                                 const uint8_t *bytes, bool *folded, size_t *fault,
                                 struct sqrl_error *err);

/* NumPy's kind and size without the byte order: "f4"; "" for SQRL_DTYPE_OTHER. */
const char *sqrl_dtype_code(enum sqrl_dtype dtype);

/* Appends JSON text in valid UTF-8 so that it is ASCII: every character from DEL on,
 * which can only stand in a string, as \uXXXX or a pair of them, as Python's json.dumps
 * does. */
SQRL_CHECK int sqrl_json_append_ascii(struct sqrl_bytes *out, const uint8_t *text,
                                      size_t size, struct sqrl_error *err);

/* Index of the first byte that is no part of a valid character; `size` when there is
 * none. */
size_t sqrl_utf8_fault(const uint8_t *bytes, size_t size);

/* --- field_path.c: one field by its dotted name; a dot or backslash of a key is written
 * behind a backslash --- */
#define SQRL_FIELD_PATH_PARTS 32
struct sqrl_field_path {
    char *text;
    uint32_t parts, end[SQRL_FIELD_PATH_PARTS];
};
SQRL_CHECK int sqrl_field_path_parse(const char *name, struct sqrl_field_path *out,
                                     struct sqrl_error *err);
void sqrl_field_path_reset(struct sqrl_field_path *path);
/* Its node in the sample `node`, or SQRL_NO_NODE. */
uint32_t sqrl_field_path_find(const struct sqrl_field_path *path,
                              const struct sqrl_node *nodes, uint32_t node,
                              const uint8_t *bytes);

/* The twins behind sqrl_utf8_valid; `ascii` is not NULL. */
bool sqrl_utf8_scalar(const uint8_t *p, size_t size, bool *ascii);
#if defined(__x86_64__)
#define SQRL_HAVE_AVX2 1
#define SQRL_TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt")))
SQRL_TARGET_AVX2 bool sqrl_utf8_avx2(const uint8_t *p, size_t size, bool *ascii);
#endif

/* --- msgpack_skip.c: MessagePack without a tape. False: no valid value there. --- */
/* Moves *offset behind the value. */
bool sqrl_msgpack_skip(const uint8_t *bytes, size_t size, size_t *offset);
/* A map's head: its pairs, and *offset moves to the first key. */
bool sqrl_msgpack_map(const uint8_t *bytes, size_t size, size_t *offset, uint32_t *pairs);
/* The content of a string or binary. */
bool sqrl_msgpack_text(const uint8_t *bytes, size_t size, size_t offset,
                       const char **text, size_t *text_size);

#endif
