/* msgpack_decode.c - MessagePack bytes to a tape.
 *
 * One loop, no recursion. An open container's node holds, where v.next will stand, what
 * its parent needs when it closes: the parent's index and how many items the parent still
 * waits for. So the stack of open containers lies in the tape itself, and a depth counter
 * caps it.
 *
 * Nothing grows by what the data claim: a container whose items can't fit into the bytes
 * that remain (each takes at least one) is refused before it is opened, and nodes are
 * added one by one as bytes are consumed.
 *
 * Arrays of msgpack-numpy are maps. In the usual order of keys sqrl_ndarray_read takes
 * the whole map in one step. Otherwise it is decoded as a map; keys named "nd" or
 * "complex" leave a hint, and a small map that closes over a hint is offered to
 * sqrl_ndarray_fold.
 *
 * Raw strings: packers of the old specification wrote an array's bytes as a string. A
 * string that is not UTF-8 is let through as the value of a key "data" only (d->pending),
 * and the map that holds it must fold into an array.
 */
#include "value/value.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define HOT static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, cold))

/* Results of one step beside error codes, which are positive. */
enum { STEP_NEXT = 0, STEP_OPENED = -1, STEP_DONE = -2 };

struct cursor {
    const uint8_t *p, *end;
    struct sqrl_node *nodes, *n,
        *room;     /* n is the next node to write, room the last + 1 */
    uint32_t top;  /* the innermost open container */
    uint32_t left; /* items it waits for; a pair counts 2 */
    uint32_t depth;
    uint32_t hint; /* the latest key that may make its map an array; 0 is none */
};

struct decoder {
    struct sqrl_tape *tape;
    const uint8_t *bytes; /* node offsets count from here */
    const uint8_t *size_end;
    const uint8_t *start; /* of this value */
    uint32_t first;       /* this value's first node */
    uint32_t pending;     /* a raw string that only an array may hold; 0 is none */
    struct sqrl_limits limits;
    struct sqrl_error *err;
    /* the failure */
    const uint8_t *fault;
    const char *text; /* NULL: err is written already */
    uint64_t number;
};

COLD int fail(struct decoder *d, int code, const uint8_t *at, const char *text,
              uint64_t number) {
    d->fault = at;
    d->text = text;
    d->number = number;
    return code;
}

/* The value at `at` needs `need` bytes, and they are not there. */
COLD int cut_short(struct decoder *d, const uint8_t *at, uint64_t need) {
    if (need > d->limits.max_bytes - (uint64_t)(at - d->start))
        return fail(
            d, SQRL_E_LIMIT, at,
            "a value claims more bytes than the limit, so the data are damaged: the "
            "limit is",
            d->limits.max_bytes);
    return fail(d, SQRL_E_TRUNCATED, at,
                "the data end within a value; bytes missing at least:",
                need - (uint64_t)(d->size_end - at));
}

HOT void put(struct cursor *c, unsigned type, unsigned flags, unsigned aux, uint32_t size,
             uint64_t bits) {
    sqrl_node_put(c->n, type, flags, aux, size, bits);
    c->n++;
}

/* Room for `more` nodes, or the limit. */
COLD int grow(struct cursor *c, struct decoder *d, uint32_t more) {
    uint32_t count = (uint32_t)(c->n - c->nodes);
    uint32_t used = count - d->first;
    if (used >= d->limits.max_nodes || d->limits.max_nodes - used < more)
        return fail(d, SQRL_E_LIMIT, c->p, "a value has more nodes than the limit of",
                    d->limits.max_nodes);
    d->tape->count = count;
    int code = sqrl_tape_grow(d->tape, more, d->err);
    if (code)
        return fail(d, code, c->p, NULL, 0);
    c->nodes = d->tape->nodes;
    c->n = c->nodes + count;
    uint64_t room = (uint64_t)d->first + d->limits.max_nodes;
    c->room = c->nodes + SQRL_MIN(room, (uint64_t)d->tape->capacity);
    return SQRL_OK;
}

/* The hot path keeps its cursor in registers: whoever needs its address works on a copy.
 */
#define ON_COPY(c, call)                                                                 \
    do {                                                                                 \
        struct cursor copy = *(c);                                                       \
        int result = call;                                                               \
        *(c) = copy;                                                                     \
        return result;                                                                   \
    } while (0)

HOT int grow_one(struct cursor *c, struct decoder *d) {
    ON_COPY(c, grow(&copy, d, 1));
}

/* --- strings ---------------------------------------------------------------------------
 */

/* A string that is not UTF-8: an error unless it is an array's data in the old raw form.
 */
COLD int put_raw(struct cursor *c, struct decoder *d, const uint8_t *s, uint32_t size) {
    const struct sqrl_node *key = c->n - 1;
    bool value = c->depth && c->nodes[c->top].type == SQRL_MAP && c->left % 2 == 1;
    if (!value || d->pending || key->type != SQRL_STRING || key->size != 4 ||
        memcmp(d->bytes + key->v.offset, "data", 4) != 0)
        return fail(d, SQRL_E_CORRUPT, s + sqrl_utf8_fault(s, size),
                    "a string is not valid UTF-8 here; bytes must be packed as binary",
                    0);
    d->pending = (uint32_t)(c->n - c->nodes);
    c->hint = d->pending;
    put(c, SQRL_BINARY, SQRL_NODE_RAW, 0, size, (uint64_t)(s - d->bytes));
    c->p = s + size;
    return STEP_NEXT;
}

HOT int raw_string(struct cursor *c, struct decoder *d, const uint8_t *s, uint32_t size) {
    ON_COPY(c, put_raw(&copy, d, s, size));
}

HOT void note_key(struct cursor *c, const uint8_t *s, uint32_t size) {
    if (size == 2 ? memcmp(s, "nd", 2) == 0 : memcmp(s, "complex", 7) == 0)
        c->hint = (uint32_t)(c->n - c->nodes);
}

/* True when the n <= 31 bytes at s are known to be ASCII. Reads 32 bytes that lie within
 * the data, behind or before s; says no when there are none. */
HOT bool short_ascii(const struct decoder *d, const uint8_t *s, uint32_t n,
                     const uint8_t *end) {
#if defined(__SSE2__)
    unsigned shift = 0;
    if (SQRL_UNLIKELY(end - s < 32)) {
        if (s + n - d->bytes < 32)
            return false;
        s = s + n - 32;
        shift = 32 - n;
    }
    unsigned low = (unsigned)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)s));
    unsigned high =
        (unsigned)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(s + 16)));
    unsigned mask = low | high << 16;
    return shift ? (uint64_t)mask >> shift == 0 : (mask & ((1u << n) - 1)) == 0;
#else
    bool ascii;
    return sqrl_utf8_valid(s, n, &ascii) && ascii;
#endif
}

HOT int put_string(struct cursor *c, struct decoder *d, unsigned header, uint32_t size) {
    const uint8_t *s = c->p + header;
    if (SQRL_UNLIKELY((size_t)(c->end - s) < size))
        return cut_short(d, c->p, (uint64_t)header + size);
    bool ascii = true;
    if (header > 1 || !short_ascii(d, s, size, c->end)) {
        if (SQRL_UNLIKELY(!sqrl_utf8_valid(s, size, &ascii)))
            return raw_string(c, d, s, size);
    }
    if (header == 1 && SQRL_UNLIKELY(size == 2 || size == 7))
        note_key(c, s, size);
    put(c, SQRL_STRING, ascii ? SQRL_NODE_ASCII : 0, 0, size, (uint64_t)(s - d->bytes));
    c->p = s + size;
    return STEP_NEXT;
}

/* --- everything else -------------------------------------------------------------------
 */

HOT int put_bytes(struct cursor *c, struct decoder *d, unsigned type, unsigned aux,
                  unsigned header, uint32_t size) {
    const uint8_t *s = c->p + header;
    if (SQRL_UNLIKELY(c->end - c->p < header || (size_t)(c->end - s) < size))
        return cut_short(d, c->p, (uint64_t)header + size);
    if (type == SQRL_BINARY && (size == 2 || size == 7))
        note_key(c, s, size);
    put(c, type, 0, aux, size, (uint64_t)(s - d->bytes));
    c->p = s + size;
    return STEP_NEXT;
}

/* A value of one byte. */
HOT int put_simple(struct cursor *c, unsigned type, uint64_t bits) {
    put(c, type, 0, 0, 0, bits);
    c->p++;
    return STEP_NEXT;
}

HOT int put_int(struct cursor *c, int8_t i) {
    return put_simple(c, SQRL_INT, (uint64_t)(int64_t)i);
}

/* A float of 32 bits as a double with the same value; of a NaN all bits are kept, where
 * the machine's conversion would set the quiet bit. */
HOT uint64_t widen(uint32_t bits) {
    if (SQRL_UNLIKELY((bits & 0x7fffffffu) > 0x7f800000u))
        return (uint64_t)(bits & 0x80000000u) << 32 | UINT64_C(0x7ff0000000000000) |
               (uint64_t)(bits & 0x007fffffu) << 29;
    float f;
    memcpy(&f, &bits, 4);
    return sqrl_double_bits((double)f);
}

/* Opens an array or map of `count` items or pairs. */
HOT int open_container(struct cursor *c, struct decoder *d, unsigned type,
                       unsigned header, uint32_t count) {
    uint64_t items = type == SQRL_MAP ? (uint64_t)count * 2 : count;
    if (SQRL_UNLIKELY(items > (uint64_t)(c->end - c->p - header)))
        return cut_short(d, c->p, header + items);
    if (SQRL_UNLIKELY(items >= UINT32_MAX))
        return fail(d, SQRL_E_LIMIT, c->p, "a value has more nodes than the limit of",
                    d->limits.max_nodes);
    if (SQRL_UNLIKELY(c->depth >= d->limits.max_depth))
        return fail(d, SQRL_E_LIMIT, c->p,
                    "arrays and maps are nested deeper than the limit of",
                    d->limits.max_depth);
    uint32_t index = (uint32_t)(c->n - c->nodes);
    c->p += header;
    if (!count) {
        put(c, type, 0, 0, 0, (uint64_t)index + 1);
        return STEP_NEXT;
    }
    put(c, type, 0, 0, count, (uint64_t)c->top << 32 | c->left);
    c->top = index;
    c->left = (uint32_t)items;
    c->depth++;
    return STEP_OPENED;
}

/* A map that begins as msgpack-numpy's arrays do. */
static __attribute__((noinline)) int open_array_map(struct cursor *c, struct decoder *d) {
    uint32_t used = (uint32_t)(c->n - c->nodes) - d->first;
    bool fits = c->depth + 2 <= d->limits.max_depth &&
                d->limits.max_nodes - used >= SQRL_NDARRAY_READ_NODES;
    if (fits && c->room - c->n < SQRL_NDARRAY_READ_NODES) {
        int code = grow(c, d, SQRL_NDARRAY_READ_NODES);
        if (code)
            return code;
    }
    uint32_t made = 0;
    size_t taken = 0;
    if (fits)
        taken =
            sqrl_ndarray_read(c->p, (size_t)(c->end - c->p), (uint64_t)(c->p - d->bytes),
                              (uint32_t)(c->n - c->nodes), c->n, &made);
    if (!taken)
        return open_container(c, d, SQRL_MAP, 1, *c->p & 15);
    c->n += made;
    c->p += taken;
    return STEP_NEXT;
}

HOT int array_map(struct cursor *c, struct decoder *d) {
    ON_COPY(c, open_array_map(&copy, d));
}

HOT int open_fixmap(struct cursor *c, struct decoder *d, unsigned count) {
    if (count - 3 <= 2 && c->end - c->p >= 8 && sqrl_load_le32(c->p + 1) == 0x646e02c4)
        return array_map(c, d); /* the key is b"nd" */
    return open_container(c, d, SQRL_MAP, 1, count);
}

/* 0xca to 0xd3, of which 9 bytes may be read: the widths of integers differ from one to
 * the next, so that they are told apart by shifts instead of jumps. */
HOT int put_number(struct cursor *c, unsigned byte) {
    uint64_t bits = sqrl_load_be64(c->p + 1);
    if (byte == 0xcb) {
        put(c, SQRL_FLOAT, 0, 0, 0, bits);
        c->p += 9;
        return STEP_NEXT;
    }
    if (byte == 0xca) {
        put(c, SQRL_FLOAT, SQRL_NODE_F32, 0, 0, widen((uint32_t)(bits >> 32)));
        c->p += 5;
        return STEP_NEXT;
    }
    unsigned width = 1u << (byte & 3), shift = 64 - 8 * width;
    uint64_t plain = bits >> shift, extended = (uint64_t)((int64_t)bits >> shift);
    uint64_t value = byte >= 0xd0 ? extended : plain;
    unsigned type = byte == 0xcf && plain > INT64_MAX ? SQRL_UINT : SQRL_INT;
    put(c, type, 0, 0, 0, value);
    c->p += 1 + width;
    return STEP_NEXT;
}

/* 0xca to 0xd3 so near the end that put_number could read behind it. */
COLD int put_last_number(struct cursor *c, struct decoder *d, unsigned byte) {
    size_t width = byte < 0xcc ? (size_t)4 << (byte - 0xca) : (size_t)1 << (byte & 3);
    if ((size_t)(c->end - c->p) < 1 + width)
        return cut_short(d, c->p, 1 + width);
    uint8_t padded[9] = {0};
    memcpy(padded, c->p, 1 + width);
    struct cursor t = *c;
    t.p = padded;
    put_number(&t, byte);
    c->n = t.n;
    c->p += 1 + width;
    return STEP_NEXT;
}

HOT int number(struct cursor *c, struct decoder *d, unsigned byte) {
    if (SQRL_LIKELY(c->end - c->p >= 9))
        return put_number(c, byte);
    ON_COPY(c, put_last_number(&copy, d, byte));
}

/* 0xc4 to 0xdf, those that carry a length of 1, 2 or 4 bytes, and fixext. */
HOT int put_counted(struct cursor *c, struct decoder *d, unsigned byte) {
    const uint8_t *p = c->p;
    if (byte - 0xd4 <= 4) { /* fixext 1, 2, 4, 8, 16 */
        if (c->end - p < 2)
            return cut_short(d, p, 2 + (UINT64_C(1) << (byte - 0xd4)));
        return put_bytes(c, d, SQRL_EXT, (unsigned)((int8_t)p[1] + 128), 2,
                         1u << (byte - 0xd4));
    }
    static const uint8_t WIDTHS[32] = {
        [0x04] = 1, [0x05] = 2, [0x06] = 4, [0x07] = 1, [0x08] = 2,
        [0x09] = 4, [0x19] = 1, [0x1a] = 2, [0x1b] = 4, [0x1c] = 2,
        [0x1d] = 4, [0x1e] = 2, [0x1f] = 4};
    unsigned width = WIDTHS[byte & 31];
    if (SQRL_UNLIKELY(c->end - p < 1 + width))
        return cut_short(d, p, 1 + width);
    uint32_t size = width == 1   ? p[1]
                    : width == 2 ? sqrl_load_be16(p + 1)
                                 : sqrl_load_be32(p + 1);
    if (byte <= 0xc6)
        return put_bytes(c, d, SQRL_BINARY, 0, 1 + width, size);
    if (byte >= 0xde)
        return open_container(c, d, SQRL_MAP, 1 + width, size);
    if (byte >= 0xdc)
        return open_container(c, d, SQRL_ARRAY, 1 + width, size);
    if (byte >= 0xd9)
        return put_string(c, d, 1 + width, size);
    if (c->end - p < 2 + width)
        return cut_short(d, p, 2 + width + (uint64_t)size);
    return put_bytes(c, d, SQRL_EXT, (unsigned)((int8_t)p[1 + width] + 128), 2 + width,
                     size);
}

/* A map has closed over a hint: an array, or a plain map that must hold no raw string. */
COLD int close_special(struct cursor *c, struct decoder *d, uint32_t map) {
    bool folded = false;
    size_t fault = 0;
    d->tape->count = (uint32_t)(c->n - c->nodes);
    int code = sqrl_ndarray_fold(d->tape, map, d->bytes, &folded, &fault, d->err);
    if (code)
        return fail(d, code, d->bytes + fault, NULL, 0);
    c->n = c->nodes + d->tape->count;
    if (folded) {
        c->hint = 0;
        if (d->pending > map)
            d->pending = 0;
        else if (d->pending)
            c->hint = d->pending;
    } else if (d->pending > map) {
        const struct sqrl_node *raw = &c->nodes[d->pending];
        const uint8_t *s = d->bytes + raw->v.offset;
        return fail(d, SQRL_E_CORRUPT, s + sqrl_utf8_fault(s, raw->size),
                    "a string is not valid UTF-8 here; bytes must be packed as binary",
                    0);
    }
    return STEP_NEXT;
}

HOT int special(struct cursor *c, struct decoder *d, uint32_t map) {
    ON_COPY(c, close_special(&copy, d, map));
}

/* A value is complete: closes the containers that end with it. */
HOT int finish(struct cursor *c, struct decoder *d) {
    while (--c->left == 0) {
        if (c->depth == 0)
            return STEP_DONE;
        uint32_t index = c->top;
        struct sqrl_node *node = &c->nodes[index];
        uint64_t saved = node->v.u;
        node->v.next = (uint64_t)(c->n - c->nodes);
        c->top = (uint32_t)(saved >> 32);
        c->left = (uint32_t)saved;
        c->depth--;
        if (SQRL_UNLIKELY(c->hint > index) && node->type == SQRL_MAP) {
            int code = special(c, d, index);
            if (code)
                return code;
        }
    }
    return STEP_NEXT;
}

HOT int step(struct cursor *c, struct decoder *d) {
    unsigned byte = *c->p;
    if ((byte & 0xe0) == 0xa0)
        return put_string(c, d, 1, byte & 31);
    if ((int8_t)byte >= -32)
        return put_int(c, (int8_t)byte);
    if (byte - 0xca < 10)
        return number(c, d, byte);
    if (byte < 0x90)
        return open_fixmap(c, d, byte & 15);
    if (byte < 0xa0)
        return open_container(c, d, SQRL_ARRAY, 1, byte & 15);
    if (byte == 0xc2 || byte == 0xc3)
        return put_simple(c, SQRL_BOOL, byte & 1);
    if (byte == 0xc0)
        return put_simple(c, SQRL_NULL, 0);
    if (byte != 0xc1)
        return put_counted(c, d, byte);
    return fail(d, SQRL_E_CORRUPT, c->p, "0xc1 begins no MessagePack value", 0);
}

/* Decodes the value at *at and moves *at behind it. On failure the tape is as before and
 * d->fault is set. */
static int decode_one(struct decoder *d, const uint8_t **at) {
    struct sqrl_tape *tape = d->tape;
    d->start = *at;
    d->first = tape->count;
    d->pending = 0;
    size_t size = (size_t)(d->size_end - *at);
    struct cursor c = {.p = *at, .nodes = tape->nodes, .left = 1};
    c.end = c.p + SQRL_MIN((uint64_t)size, d->limits.max_bytes);
    c.n = c.nodes + tape->count;
    c.room = c.nodes +
             SQRL_MIN((uint64_t)d->first + d->limits.max_nodes, (uint64_t)tape->capacity);
    int code = STEP_NEXT;
    while (code <= 0) {
        if (SQRL_UNLIKELY(c.p == c.end)) {
            code = cut_short(d, c.p, 1);
            break;
        }
        if (SQRL_UNLIKELY(c.n == c.room) && (code = grow_one(&c, d)) != 0)
            break;
        code = step(&c, d);
        if (code == STEP_NEXT && (code = finish(&c, d)) == STEP_DONE) {
            tape->count = (uint32_t)(c.n - c.nodes);
            *at = c.p;
            return SQRL_OK;
        }
    }
    tape->count = d->first;
    return code;
}

static int report(const struct decoder *d, int code, size_t *offset) {
    *offset = (size_t)(d->fault - d->bytes);
    if (!d->text)
        return code;
    if (d->number)
        return sqrl_value_error(d->err, code, *offset, "%s %llu", d->text,
                                (unsigned long long)d->number);
    return sqrl_value_error(d->err, code, *offset, "%s", d->text);
}

static int begin_decoder(struct decoder *d, struct sqrl_tape *tape, const uint8_t *bytes,
                         size_t size, size_t offset, const struct sqrl_limits *limits,
                         struct sqrl_error *err) {
    if (offset > size)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "offset %zu is behind the %zu bytes given", offset, size);
    d->tape = tape;
    d->bytes = bytes ? bytes : (const uint8_t *)""; /* NULL with a size of 0 */
    d->size_end = d->bytes + size;
    d->limits = sqrl_limits_resolve(limits);
    d->err = err;
    return sqrl_tape_reserve(tape, 1, err);
}

int sqrl_msgpack_decode(struct sqrl_tape *tape, const uint8_t *bytes, size_t size,
                        size_t *offset, const struct sqrl_limits *limits,
                        struct sqrl_error *err) {
    struct decoder d;
    int code = begin_decoder(&d, tape, bytes, size, *offset, limits, err);
    if (code)
        return code;
    const uint8_t *at = d.bytes + *offset;
    code = decode_one(&d, &at);
    if (code)
        return report(&d, code, offset);
    *offset = (size_t)(at - d.bytes);
    return SQRL_OK;
}

int sqrl_msgpack_decode_many(struct sqrl_tape *tape, const uint8_t *bytes, size_t size,
                             size_t *offset, uint32_t *begin, uint32_t max,
                             uint32_t *count, const struct sqrl_limits *limits,
                             struct sqrl_error *err) {
    *count = 0;
    struct decoder d;
    int code = begin_decoder(&d, tape, bytes, size, *offset, limits, err);
    if (code)
        return code;
    const uint8_t *at = d.bytes + *offset;
    while (*count < max && at < d.size_end) {
        begin[*count] = tape->count;
        code = decode_one(&d, &at);
        if (code)
            break;
        ++*count;
    }
    if (code && code != SQRL_E_TRUNCATED)
        return report(&d, code, offset);
    *offset = (size_t)(at - d.bytes);
    return SQRL_OK;
}
