/* json_ndarray.c - NumPy arrays in JSON, in squirrel-core's form:
 * {"data": nested lists, "type": "<f4", "shape": [2, 3]}.
 *
 * The elements don't fit the text they were written as ("0," is an int64), so they can't
 * be put into the input. They are put on the tape behind the array's nodes, where their
 * own nodes were: SQRL_NODE_ON_TAPE. Only an object of exactly these three keys, whose
 * type names a dtype that JSON can hold and whose shape is a list of sizes, is an array;
 * any other stays a map. An array with wrong contents is an error, as in squirrel-core.
 */
#include "value/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define OFFSET_MASK ((UINT64_C(1) << 48) - 1)
#define MAX_TEXT (UINT32_C(1) << 20) /* characters of one element of a text dtype */

enum kind { KIND_NUMBER, KIND_TEXT, KIND_TIME };

struct array {
    struct sqrl_tape *tape;
    const uint8_t *bytes;
    uint32_t map, data, type, shape; /* nodes */
    enum kind kind;
    enum sqrl_dtype dtype;
    bool swapped;
    size_t item;    /* bytes of one element */
    uint64_t count; /* elements the shape claims */
    uint32_t dims;
    uint64_t sizes[SQRL_MAX_DIMS];
    uint8_t *out; /* where the next element goes */
    size_t fault;
    struct sqrl_error *err;
};

static const uint8_t *text_of(const struct array *a, const struct sqrl_node *n) {
    return a->bytes + (n->v.offset & OFFSET_MASK);
}

/* Where the node's text is; good enough for containers, which have no place of their own.
 */
static void set_fault(struct array *a, const struct sqrl_node *n) {
    if (n->type == SQRL_STRING || n->type == SQRL_NUMBER)
        a->fault = n->v.offset & OFFSET_MASK;
}

static bool is_key(const struct array *a, uint32_t node, const char *name) {
    const struct sqrl_node *n = &a->tape->nodes[node];
    size_t size = strlen(name);
    return n->size == size && !(n->flags & SQRL_JSON_ESCAPED) &&
           memcmp(text_of(a, n), name, size) == 0;
}

/* Finds the three values. False when the keys are others. */
static bool find_parts(struct array *a) {
    const struct sqrl_node *nodes = a->tape->nodes;
    for (uint32_t key = a->map + 1; key < a->tape->count;) {
        if (is_key(a, key, "data"))
            a->data = key + 1;
        else if (is_key(a, key, "type"))
            a->type = key + 1;
        else if (is_key(a, key, "shape"))
            a->shape = key + 1;
        key = sqrl_node_next(nodes, key + 1);
    }
    return a->data && a->type && a->shape;
}

static bool find_shape(struct array *a) {
    const struct sqrl_node *n = &a->tape->nodes[a->shape];
    if (n->type != SQRL_ARRAY)
        return false;
    a->dims = n->size;
    a->count = 1;
    for (uint32_t i = 0; i < a->dims; i++) {
        const struct sqrl_node *size = n + 1 + i;
        if (size->type != SQRL_INT || size->v.i < 0)
            return false;
        if (i < SQRL_MAX_DIMS)
            a->sizes[i] = size->v.u;
        if (__builtin_mul_overflow(a->count, size->v.u, &a->count))
            a->count = UINT64_MAX;
    }
    return true;
}

/* "<U12": the characters of an element; 0 when it is another type. */
static uint32_t text_dtype(const char *type, size_t size) {
    uint32_t length = 0;
    if (size < 2 || type[0] != 'U')
        return 0;
    for (size_t i = 1; i < size; i++) {
        if (type[i] < '0' || type[i] > '9' || length > MAX_TEXT)
            return 0;
        length = length * 10 + (uint32_t)(type[i] - '0');
    }
    return length;
}

/* Times of these units are written as integers, all others by text that JSON has no type
 * for. */
static bool time_dtype(const char *type, size_t size) {
    return size == 6 && (type[0] == 'M' || type[0] == 'm') && type[1] == '8' &&
           type[2] == '[' && strchr("npfa", type[3]) && type[4] == 's' && type[5] == ']';
}

static bool find_dtype(struct array *a) {
    const struct sqrl_node *n = &a->tape->nodes[a->type];
    if (n->type != SQRL_STRING || !n->size || (n->flags & SQRL_JSON_ESCAPED))
        return false;
    const char *type = (const char *)text_of(a, n);
    size_t size = n->size;
    a->dtype = sqrl_dtype_parse(type, size, &a->swapped);
    a->item = sqrl_dtype_size(a->dtype);
    if (a->dtype != SQRL_DTYPE_OTHER)
        return true;
    if (memchr("<>|=", type[0], 4)) {
        a->swapped = type[0] == '>';
        type++;
        size--;
    }
    uint32_t length = text_dtype(type, size);
    a->kind = length ? KIND_TEXT : KIND_TIME;
    a->item = length ? (size_t)length * 4 : 8;
    return length || time_dtype(type, size);
}

static bool is_object_dtype(const struct array *a) {
    const struct sqrl_node *n = &a->tape->nodes[a->type];
    if (n->type != SQRL_STRING)
        return false;
    const char *type = (const char *)text_of(a, n);
    return (n->size == 1 && type[0] == 'O') ||
           (n->size == 2 && type[1] == 'O' && memchr("<>|=", type[0], 4)) ||
           (n->size == 6 && memcmp(type, "object", 6) == 0);
}

/* --- elements --- */
static int wrong_element(struct array *a, const struct sqrl_node *n, const char *what) {
    set_fault(a, n);
    const struct sqrl_node *type = &a->tape->nodes[a->type];
    return sqrl_value_error(a->err, SQRL_E_TYPE, a->fault,
                            "JSON array of type \"%.*s\": an element is %s",
                            (int)type->size, (const char *)text_of(a, type), what);
}

static void put_item(struct array *a, uint64_t bits) {
    if (a->swapped)
        bits = __builtin_bswap64(bits) >> (64 - 8 * a->item);
    memcpy(a->out, &bits, a->item);
    a->out += a->item;
}

/* Half precision, rounded to nearest, ties to even; overflow gives infinity. */
static uint16_t half_bits(double f) {
    uint64_t bits = sqrl_double_bits(f);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    bits &= UINT64_MAX >> 1;
    int exponent = (int)(bits >> 52) - 1023;
    if (exponent == 1024)
        return (uint16_t)(sign | 0x7c00 | (bits << 12 ? 0x200 : 0));
    if (exponent > 15)
        return sign | 0x7c00;
    if (exponent < -25)
        return sign;
    uint64_t mantissa = (bits & (UINT64_MAX >> 12)) | UINT64_C(1) << 52;
    int shift = exponent < -14 ? 42 - 14 - exponent : 42;
    uint64_t kept = mantissa >> shift, rest = mantissa << (64 - shift);
    kept += rest > UINT64_C(1) << 63 || (rest == UINT64_C(1) << 63 && (kept & 1));
    /* The hidden bit adds 1 to the exponent field; a carry does what it must. */
    return (uint16_t)(sign |
                      (kept + (exponent < -14 ? 0 : (uint64_t)(exponent + 14) << 10)));
}

static bool float_of(const struct array *a, const struct sqrl_node *n, double *f) {
    switch (n->type) {
    case SQRL_FLOAT:
        *f = n->v.f;
        return true;
    case SQRL_INT:
        *f = (double)n->v.i;
        return true;
    case SQRL_UINT:
    case SQRL_BOOL:
        *f = (double)n->v.u;
        return true;
    default:
        return false;
    }
}

static int put_float(struct array *a, const struct sqrl_node *n) {
    double f;
    uint64_t bits;
    if (!float_of(a, n, &f))
        return wrong_element(a, n, "no number");
    if (a->dtype == SQRL_DTYPE_FLOAT16) {
        bits = half_bits(f);
    } else if (a->dtype == SQRL_DTYPE_FLOAT32) {
        float narrow = (float)f;
        uint32_t bits32;
        memcpy(&bits32, &narrow, 4);
        bits = bits32;
    } else {
        bits = sqrl_double_bits(f);
    }
    put_item(a, bits);
    return SQRL_OK;
}

static int put_integer(struct array *a, const struct sqrl_node *n) {
    bool is_unsigned = a->dtype >= SQRL_DTYPE_UINT8 && a->dtype <= SQRL_DTYPE_UINT64;
    unsigned bits = (unsigned)a->item * 8;
    bool good;
    if (n->type != SQRL_INT && n->type != SQRL_UINT && n->type != SQRL_BOOL)
        return wrong_element(a, n, n->type == SQRL_NUMBER ? "too large" : "no integer");
    if (a->dtype == SQRL_DTYPE_BOOL) {
        good = n->v.u <= 1;
    } else if (is_unsigned) {
        good =
            (n->type != SQRL_INT || n->v.i >= 0) && (bits == 64 || n->v.u >> bits == 0);
    } else {
        int64_t top = n->v.i >> (bits - 1);
        good = n->type != SQRL_UINT && (top == 0 || top == -1);
    }
    if (!good)
        return wrong_element(a, n, "out of range");
    put_item(a, n->v.u);
    return SQRL_OK;
}

/* UTF-32 of fixed length, filled up with zeros, as NumPy stores text. */
static int put_text(struct array *a, const struct sqrl_node *n) {
    if (n->type != SQRL_STRING)
        return wrong_element(a, n, "no string");
    const uint8_t *p = text_of(a, n), *end = p + n->size;
    uint8_t *out = a->out, *out_end = a->out + a->item;
    while (p < end) {
        int32_t c = sqrl_json_character(&p, end);
        if (c < 0 || out == out_end) {
            a->fault = (size_t)(p - a->bytes);
            if (c < 0)
                return sqrl_value_error(a->err, SQRL_E_CORRUPT, a->fault, "JSON: %s",
                                        sqrl_json_escape_fault(p, end));
            return wrong_element(a, n, "longer than the type says");
        }
        uint32_t unit = a->swapped ? __builtin_bswap32((uint32_t)c) : (uint32_t)c;
        sqrl_store_le32(out, unit);
        out += 4;
    }
    memset(out, 0, (size_t)(out_end - out));
    a->out = out_end;
    return SQRL_OK;
}

static int put_element(struct array *a, const struct sqrl_node *n) {
    if (a->kind == KIND_TEXT)
        return put_text(a, n);
    if (a->kind == KIND_NUMBER && a->dtype >= SQRL_DTYPE_FLOAT16)
        return put_float(a, n);
    return put_integer(a, n);
}

static int wrong_count(struct array *a, const char *what) {
    return sqrl_value_error(a->err, SQRL_E_CORRUPT, a->fault, "JSON array: %s", what);
}

/* Walks the nested lists of `data`, which must be rectangular. `depth` lists are open,
 * each with a size that all others of its depth share. */
static int put_elements(struct array *a) {
    uint32_t ends[SQRL_MAX_DIMS], sizes[SQRL_MAX_DIMS], depth = 0, leaf = UINT32_MAX;
    uint32_t known = 0;
    uint64_t found = 0;
    const struct sqrl_node *nodes = a->tape->nodes;
    uint32_t end = sqrl_node_next(nodes, a->data);
    for (uint32_t i = a->data; i < end;) {
        const struct sqrl_node *n = &nodes[i];
        while (depth && i == ends[depth - 1])
            depth--;
        if (n->type == SQRL_ARRAY) {
            if (depth == SQRL_MAX_DIMS || depth == leaf)
                return wrong_count(a, "its lists are not nested evenly");
            if (depth < known && sizes[depth] != n->size)
                return wrong_count(a, "its lists differ in length");
            known = SQRL_MAX(known, depth + 1);
            sizes[depth] = n->size;
            ends[depth++] = (uint32_t)n->v.next;
            i++;
            continue;
        }
        if ((leaf != UINT32_MAX && leaf != depth) || depth < known)
            return wrong_count(a, "its lists are not nested evenly");
        leaf = depth;
        if (found++ == a->count)
            break;
        int code = put_element(a, n);
        if (code)
            return code;
        i = sqrl_node_next(nodes, i);
    }
    return found == a->count ? SQRL_OK
                             : wrong_count(a, "its shape and data differ in size");
}

/* --- decoding --- */
/* The elements go behind the tape's end first, then down behind the new nodes. */
static int convert(struct array *a) {
    struct sqrl_tape *tape = a->tape;
    uint32_t had = tape->count - a->map, extra = a->dims + 3;
    uint64_t bytes;
    if (__builtin_mul_overflow(a->count, a->item, &bytes))
        bytes = UINT64_MAX;
    /* The text was at least 2 bytes a node: 16 bytes of tape for each of them is the
     * rule. */
    if (bytes / 32 > had || bytes > UINT32_MAX)
        return a->kind == KIND_TEXT
                   ? sqrl_value_error(
                         a->err, SQRL_E_LIMIT, a->fault,
                         "JSON array: its type asks for %llu bytes, far more "
                         "than its text has",
                         (unsigned long long)bytes)
                   : wrong_count(a, "its shape and data differ in size");
    uint32_t data_nodes =
        (uint32_t)((bytes + sizeof *tape->nodes - 1) / sizeof *tape->nodes);
    int code = sqrl_tape_reserve(tape, data_nodes + extra, a->err);
    if (code)
        return code;
    struct sqrl_node *nodes = tape->nodes;
    struct sqrl_node description = nodes[a->type];
    a->out = (uint8_t *)(nodes + tape->count);
    const uint8_t *begin = a->out;
    if ((code = put_elements(a)))
        return code;
    struct sqrl_node *n = nodes + a->map, *child = n + 1;
    sqrl_node_put(n, SQRL_NDARRAY, a->swapped ? SQRL_NODE_SWAPPED : 0, a->dtype, a->dims,
                  0);
    uint32_t header = 2 + a->dims + (a->dtype == SQRL_DTYPE_OTHER);
    memmove(n + header, begin, (size_t)bytes);
    memset((uint8_t *)(n + header) + bytes, 0, data_nodes * sizeof *n - (size_t)bytes);
    sqrl_node_put(child++, SQRL_BINARY, SQRL_NODE_ON_TAPE, 0, (uint32_t)bytes, 0);
    for (uint32_t i = 0; i < a->dims; i++)
        sqrl_node_put(child++, SQRL_INT, 0, 0, 0, a->sizes[i]);
    if (a->dtype == SQRL_DTYPE_OTHER)
        *child = description;
    tape->count = a->map + header + data_nodes;
    n->v.next = tape->count;
    return SQRL_OK;
}

int sqrl_json_ndarray_decode(struct sqrl_tape *tape, uint32_t map, const uint8_t *bytes,
                             bool *changed, size_t *fault, struct sqrl_error *err) {
    struct array a = {.tape = tape, .bytes = bytes, .map = map, .err = err};
    *changed = false;
    if (!find_parts(&a) || !find_shape(&a))
        return SQRL_OK;
    a.fault = (size_t)(text_of(&a, &tape->nodes[map + 1]) - bytes);
    int code = SQRL_OK;
    if (is_object_dtype(&a))
        code =
            sqrl_value_error(err, SQRL_E_UNSUPPORTED, a.fault,
                             "JSON array of type object: its elements could be anything; "
                             "store a list instead");
    else if (!find_dtype(&a))
        return SQRL_OK;
    else if (a.dims > SQRL_MAX_DIMS)
        code = sqrl_value_error(err, SQRL_E_LIMIT, a.fault,
                                "JSON array: more than %d dimensions", SQRL_MAX_DIMS);
    else if (a.dtype == SQRL_DTYPE_COMPLEX64 || a.dtype == SQRL_DTYPE_COMPLEX128)
        code = sqrl_value_error(err, SQRL_E_UNSUPPORTED, a.fault,
                                "JSON array: JSON has no complex numbers");
    else
        code = convert(&a);
    *changed = code == SQRL_OK;
    *fault = a.fault;
    return code;
}

/* --- encoding --- */
struct writer {
    struct sqrl_bytes *out;
    struct sqrl_ndarray view;
    enum kind kind;
    size_t item;
    const uint8_t *at; /* the next element */
    struct sqrl_error *err;
};

static double half_value(uint16_t bits) {
    double magnitude = (bits & 0x3ff) / 1024.0;
    int exponent = bits >> 10 & 31;
    if (exponent == 31)
        magnitude = magnitude != 0 ? (double)NAN : (double)INFINITY;
    else
        magnitude = ldexp(magnitude + (exponent != 0), (exponent ? exponent : 1) - 15);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static int write_float(struct writer *w, uint64_t bits) {
    char text[SQRL_JSON_FLOAT_BYTES];
    double f;
    float narrow;
    uint32_t bits32 = (uint32_t)bits;
    if (w->view.dtype == SQRL_DTYPE_FLOAT16) {
        f = half_value((uint16_t)bits);
    } else if (w->view.dtype == SQRL_DTYPE_FLOAT32) {
        memcpy(&narrow, &bits32, 4);
        f = (double)narrow;
    } else {
        memcpy(&f, &bits, 8);
    }
    return sqrl_bytes_append(w->out, text, sqrl_json_float_write(f, text), w->err);
}

static int write_integer(struct writer *w, uint64_t bits) {
    struct sqrl_node n = {.type = SQRL_UINT, .v.u = bits};
    enum sqrl_dtype dtype = w->view.dtype;
    unsigned shift = 64 - 8 * (unsigned)w->item;
    if (dtype == SQRL_DTYPE_BOOL) {
        n.type = SQRL_BOOL;
    } else if (dtype < SQRL_DTYPE_UINT8) { /* signed, or a time */
        n.type = SQRL_INT;
        n.v.i = (int64_t)(bits << shift) >> shift;
    }
    return sqrl_json_encode(w->out, &n, 0, NULL, w->err);
}

static size_t put_utf8(uint8_t *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(0xf00 >> n | c);
    return n;
}

static int write_text(struct writer *w) {
    size_t length = w->item / 4, size = 0;
    uint8_t *text = sqrl_malloc(w->item + 1, "text of an array", w->err);
    if (!text)
        return SQRL_E_NO_MEMORY;
    int code = SQRL_OK;
    for (size_t i = 0; i < length && !code; i++) {
        uint32_t c = sqrl_load_le32(w->at + 4 * i);
        c = w->view.swapped ? __builtin_bswap32(c) : c;
        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            code =
                sqrl_error_set(w->err, SQRL_E_CORRUPT,
                               "text of an array holds 0x%x, which is no character", c);
        else
            size += put_utf8(text + size, c);
    }
    while (size && !text[size - 1]) /* NumPy fills up with zeros */
        size--;
    if (!code)
        code = sqrl_json_string_encode(w->out, text, size, w->err);
    free(text);
    return code;
}

static int write_element(struct writer *w) {
    int code;
    if (w->kind == KIND_TEXT) {
        code = write_text(w);
    } else {
        uint64_t bits = 0;
        memcpy(&bits, w->at, w->item);
        if (w->view.swapped)
            bits = __builtin_bswap64(bits) >> (64 - 8 * w->item);
        bool is_float = w->kind == KIND_NUMBER && w->view.dtype >= SQRL_DTYPE_FLOAT16;
        code = is_float ? write_float(w, bits) : write_integer(w, bits);
    }
    w->at += w->item;
    return code;
}

static int write_literal(struct writer *w, const char *text) {
    return sqrl_bytes_append(w->out, text, strlen(text), w->err);
}

/* The nested lists. place[d] counts the items of the open list of depth d. */
static int write_lists(struct writer *w) {
    uint64_t place[SQRL_MAX_DIMS];
    uint32_t dims = w->view.dims, depth = 0;
    int code = SQRL_OK;
    if (!dims)
        return write_element(w);
    place[0] = 0;
    if ((code = write_literal(w, "[")))
        return code;
    for (;;) {
        if (place[depth] == w->view.shape[depth]) {
            if ((code = write_literal(w, "]")) || !depth)
                return code;
            place[--depth]++;
            continue;
        }
        if (place[depth] && (code = write_literal(w, ", ")))
            return code;
        if (depth + 1 < dims) {
            code = write_literal(w, "[");
            place[++depth] = 0;
        } else {
            code = write_element(w);
            place[depth]++;
        }
        if (code)
            return code;
    }
}

/* Finds kind and item size, or says why JSON can't hold the dtype. */
static int check_dtype(struct writer *w, const struct sqrl_node *description,
                       const uint8_t *bytes) {
    enum sqrl_dtype dtype = w->view.dtype;
    w->item = sqrl_dtype_size(dtype);
    if (dtype != SQRL_DTYPE_OTHER && dtype < SQRL_DTYPE_COMPLEX64)
        return SQRL_OK;
    if (dtype == SQRL_DTYPE_OTHER && description->type == SQRL_STRING &&
        description->size) {
        const char *type = (const char *)bytes + description->v.offset;
        size_t size = description->size, skip = memchr("<>|=", type[0], 4) != NULL;
        uint32_t length = text_dtype(type + skip, size - skip);
        w->view.swapped = type[0] == '>';
        w->kind = length ? KIND_TEXT : KIND_TIME;
        w->item = length ? (size_t)length * 4 : 8;
        if (length || time_dtype(type + skip, size - skip))
            return SQRL_OK;
        return sqrl_error_set(w->err, SQRL_E_TYPE,
                              "JSON can't hold an array of type \"%.*s\"", (int)size,
                              type);
    }
    return sqrl_error_set(w->err, SQRL_E_TYPE, "JSON can't hold an array of %s",
                          dtype == SQRL_DTYPE_OTHER ? "structures" : "complex numbers");
}

/* `, "type": "<f4", "shape": [2, 3]}` */
static int write_tail(struct writer *w, const struct sqrl_node *description,
                      const uint8_t *bytes) {
    char text[32];
    int code = write_literal(w, ", \"type\": ");
    if (!code && w->kind != KIND_NUMBER) {
        code = sqrl_json_string_encode(w->out, bytes + description->v.offset,
                                       description->size, w->err);
    } else if (!code) {
        char order = w->item == 1 ? '|' : w->view.swapped ? '>' : '<';
        snprintf(text, sizeof text, "\"%c%s\"", order, sqrl_dtype_code(w->view.dtype));
        code = write_literal(w, text);
    }
    if (!code)
        code = write_literal(w, ", \"shape\": [");
    for (uint32_t i = 0; i < w->view.dims && !code; i++) {
        snprintf(text, sizeof text, "%s%llu", i ? ", " : "",
                 (unsigned long long)w->view.shape[i]);
        code = write_literal(w, text);
    }
    return code ? code : write_literal(w, "]}");
}

int sqrl_json_ndarray_encode(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                             uint32_t node, const uint8_t *bytes,
                             struct sqrl_error *err) {
    struct writer w = {.out = out, .err = err};
    sqrl_ndarray_view(nodes, node, bytes, &w.view);
    const struct sqrl_node *description =
        w.view.description == SQRL_NO_NODE ? NULL : &nodes[w.view.description];
    int code = check_dtype(&w, description, bytes);
    if (code)
        return code;
    uint64_t need = w.item;
    for (uint32_t i = 0; i < w.view.dims; i++)
        if (__builtin_mul_overflow(need, w.view.shape[i], &need))
            need = UINT64_MAX;
    if (need != w.view.data_bytes)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "an array's shape asks for %llu bytes, its data have %zu",
                              (unsigned long long)need, w.view.data_bytes);
    w.at = w.view.data;
    if (w.view.scalar && w.view.dims == 0)
        return write_element(&w);
    if ((code = write_literal(&w, "{\"data\": ")) || (code = write_lists(&w)))
        return code;
    return write_tail(&w, description, bytes);
}
