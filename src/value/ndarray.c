/* ndarray.c - NumPy arrays and scalars, as msgpack-numpy puts them into maps.
 *
 * The forms, keys in any order:
 *   array       nd: true, type, kind, shape, data    since version 0.4
 *   array       nd: true, type, shape, data          before
 *   scalar      nd: false, type, data
 *   complex     complex: true, data: "(1+2j)"
 * `type` is the array protocol's string ("<f4"), or the list of a structure's fields when
 * kind is b"V". kind b"O" marks a pickle.
 *
 * With use_bin_type keys, kind and data are binaries. Without it everything is a raw
 * string; a map of that kind is folded only where all of it fits, down to the number of
 * bytes, since plain text keys may be anybody's: a map with text keys that contradicts
 * itself is a map.
 */
#include "value/value.h"

/* --- the itemsize of dtypes that are described by text --- */

enum described { DESC_KNOWN, DESC_UNKNOWN, DESC_OBJECT, DESC_MALFORMED };

static enum described text_itemsize(const char *t, size_t n, uint64_t *itemsize) {
    enum sqrl_dtype dtype = sqrl_dtype_parse(t, n, NULL);
    *itemsize = sqrl_dtype_size(dtype);
    if (dtype)
        return DESC_KNOWN;
    size_t i = n && memchr("<>|=", t[0], 4) ? 1 : 0;
    char kind = i < n ? t[i++] : '\0';
    if (kind == 'O' || (n == 6 && memcmp(t, "object", 6) == 0))
        return DESC_OBJECT;
    uint64_t digits = 0;
    size_t first = i;
    for (; i < n && i - first < 10 && t[i] >= '0' && t[i] <= '9'; i++)
        digits = digits * 10 + (uint64_t)(t[i] - '0');
    bool dated = kind == 'M' || kind == 'm';
    if (i == first || (i < n && !(dated && t[i] == '[' && t[n - 1] == ']')))
        return DESC_UNKNOWN;
    *itemsize = kind == 'U' ? digits * 4 : digits;
    if (dated)
        return digits == 8 ? DESC_KNOWN : DESC_UNKNOWN;
    return kind && memchr("SaUVfciu", kind, 8) ? DESC_KNOWN : DESC_UNKNOWN;
}

static bool is_text(const struct sqrl_node *node) {
    return node->type == SQRL_STRING || node->type == SQRL_BINARY;
}

/* Multiplies by every dimension; false on overflow or a node that is no dimension. The
 * nodes are one INT, or an ARRAY of them. */
static bool multiply_shape(const struct sqrl_node *node, uint64_t *product) {
    uint32_t dims = node->type == SQRL_ARRAY ? node->size : 1;
    const struct sqrl_node *dim = node->type == SQRL_ARRAY ? node + 1 : node;
    for (uint32_t k = 0; k < dims; k++)
        if (dim[k].type != SQRL_INT || dim[k].v.i < 0 ||
            __builtin_mul_overflow(*product, dim[k].v.u, product))
            return false;
    return true;
}

/* One open structure: `left` fields from node `at` on. */
struct frame {
    uint32_t at, left;
    uint64_t sum, repeat;
};
#define MAX_STRUCTURES 32

/* Adds field `f` ([name, type] or [name, type, shape]; a name may be [title, name]) to
 * the frame; *inner is its type when that is a structure of its own, which is `repeat`
 * times there. */
static enum described add_field(const struct sqrl_node *nodes, const uint8_t *bytes,
                                struct frame *frame, uint32_t *inner, uint64_t *repeat) {
    uint32_t f = frame->at;
    *inner = SQRL_NO_NODE;
    *repeat = 1;
    if (nodes[f].type != SQRL_ARRAY || nodes[f].size < 2 || nodes[f].size > 3)
        return DESC_MALFORMED;
    frame->at = sqrl_node_next(nodes, f);
    frame->left--;
    const struct sqrl_node *name = &nodes[f + 1];
    bool titled = name->type == SQRL_ARRAY && name->size == 2 && is_text(name + 1) &&
                  is_text(name + 2);
    if (!is_text(name) && !titled)
        return DESC_MALFORMED;
    uint32_t type = sqrl_node_next(nodes, f + 1);
    if (nodes[f].size == 3 &&
        !multiply_shape(&nodes[sqrl_node_next(nodes, type)], repeat))
        return DESC_MALFORMED;
    if (nodes[type].type == SQRL_ARRAY) {
        *inner = type;
        return DESC_KNOWN;
    }
    if (!is_text(&nodes[type]))
        return DESC_MALFORMED;
    uint64_t size;
    enum described d = text_itemsize((const char *)bytes + nodes[type].v.offset,
                                     nodes[type].size, &size);
    if (d == DESC_KNOWN && (__builtin_mul_overflow(size, *repeat, &size) ||
                            __builtin_add_overflow(frame->sum, size, &frame->sum)))
        return DESC_MALFORMED;
    return d;
}

/* Itemsize of the dtype described by node `desc`, a text or a list of fields. */
static enum described described_itemsize(const struct sqrl_node *nodes, uint32_t desc,
                                         const uint8_t *bytes, uint64_t *itemsize) {
    *itemsize = 0;
    if (is_text(&nodes[desc]))
        return text_itemsize((const char *)bytes + nodes[desc].v.offset, nodes[desc].size,
                             itemsize);
    struct frame stack[MAX_STRUCTURES];
    int top = 0;
    bool unknown = false;
    stack[0] = (struct frame){desc + 1, nodes[desc].size, 0, 1};
    for (;;) {
        struct frame *frame = &stack[top];
        if (frame->left == 0) {
            uint64_t size;
            if (__builtin_mul_overflow(frame->sum, frame->repeat, &size))
                return DESC_MALFORMED;
            if (top == 0) {
                *itemsize = size;
                return unknown ? DESC_UNKNOWN : DESC_KNOWN;
            }
            top--;
            if (__builtin_add_overflow(stack[top].sum, size, &stack[top].sum))
                return DESC_MALFORMED;
            continue;
        }
        uint32_t inner;
        uint64_t repeat;
        enum described d = add_field(nodes, bytes, frame, &inner, &repeat);
        if (d == DESC_OBJECT || d == DESC_MALFORMED)
            return d;
        unknown |= d == DESC_UNKNOWN;
        if (inner == SQRL_NO_NODE)
            continue;
        if (top + 1 == MAX_STRUCTURES)
            return DESC_MALFORMED;
        stack[++top] = (struct frame){inner + 1, nodes[inner].size, 0, repeat};
    }
}

/* --- folding a finished map --- */

enum { KEY_ND, KEY_TYPE, KEY_KIND, KEY_SHAPE, KEY_DATA, KEY_COMPLEX, KEYS };
#define BIT(key) (1u << (key))

struct parts {
    uint32_t at[KEYS]; /* nodes of the values */
    unsigned seen;     /* BIT(key) each */
    bool raw;          /* text keys: the old raw form, if any */
};

/* True when the map's keys are known ones, each at most once, all text or all binary. */
static bool collect(const struct sqrl_node *nodes, uint32_t map, const uint8_t *bytes,
                    struct parts *parts) {
    static const char NAMES[KEYS][8] = {"nd", "type", "kind", "shape", "data", "complex"};
    memset(parts, 0, sizeof *parts);
    parts->raw = nodes[map + 1].type == SQRL_STRING;
    uint32_t end = (uint32_t)nodes[map].v.next;
    for (uint32_t key = map + 1; key < end;) {
        const struct sqrl_node *k = &nodes[key];
        if (k->type != (parts->raw ? SQRL_STRING : SQRL_BINARY))
            return false;
        int name = 0;
        while (name < KEYS && (strlen(NAMES[name]) != k->size ||
                               memcmp(bytes + k->v.offset, NAMES[name], k->size) != 0))
            name++;
        if (name == KEYS || parts->seen & BIT(name))
            return false;
        parts->seen |= BIT(name);
        parts->at[name] = key + 1;
        key = sqrl_node_next(nodes, key + 1);
    }
    return true;
}

static size_t digits_at(const char *t, size_t n, size_t i) {
    size_t first = i;
    while (i < n && t[i] >= '0' && t[i] <= '9')
        i++;
    return i - first;
}

/* Length of the unsigned float "12.5e-3", "inf" or "nan" at t, 0 when there is none. */
static size_t float_size(const char *t, size_t n) {
    if (n >= 3 && (memcmp(t, "inf", 3) == 0 || memcmp(t, "nan", 3) == 0))
        return 3;
    size_t whole = digits_at(t, n, 0), i = whole, part = 0;
    if (i < n && t[i] == '.') {
        part = digits_at(t, n, i + 1);
        i += 1 + part;
    }
    if (!whole && !part)
        return 0;
    if (i < n && (t[i] == 'e' || t[i] == 'E')) {
        size_t sign = i + 1 < n && (t[i + 1] == '+' || t[i + 1] == '-');
        size_t power = digits_at(t, n, i + 1 + sign);
        if (!power)
            return 0;
        i += 1 + sign + power;
    }
    return i;
}

/* "1j", "(-2.5e+16-nanj)": what repr() of a Python complex gives. */
static bool complex_text(const char *t, size_t n) {
    if (n >= 2 && t[0] == '(' && t[n - 1] == ')') {
        t++;
        n -= 2;
    }
    if (n < 2 || t[n - 1] != 'j')
        return false;
    n--;
    size_t i = t[0] == '+' || t[0] == '-';
    size_t real = float_size(t + i, n - i);
    i += real;
    if (!real || i == n)
        return real != 0;
    if (t[i] != '+' && t[i] != '-')
        return false;
    i++;
    size_t imaginary = float_size(t + i, n - i);
    return imaginary && i + imaginary == n;
}

struct fold {
    struct sqrl_tape *tape;
    const uint8_t *bytes;
    uint32_t map;
    struct parts parts;
    size_t *fault;
    struct sqrl_error *err;
};

static size_t offset_of(const struct fold *f, int key) {
    const struct sqrl_node *node = &f->tape->nodes[f->parts.at[key]];
    if (!is_text(node)) /* an array has no offset of its own: that of the key `data` */
        node = &f->tape->nodes[f->parts.at[KEY_DATA]];
    return (size_t)node->v.offset;
}

/* The map contradicts itself: an error, but with text keys just a map. */
#define REFUSE(f, key, code, ...)                                                        \
    ((f)->parts.raw ? SQRL_OK                                                            \
                    : sqrl_value_error((f)->err, code, *(f)->fault = offset_of(f, key),  \
                                       __VA_ARGS__))

static int refuse_object(struct fold *f) {
    *f->fault = offset_of(f, KEY_DATA);
    return sqrl_value_error(
        f->err, SQRL_E_UNSUPPORTED, *f->fault,
        "an array of Python objects (dtype object) is a pickle, which may run any code "
        "when "
        "it is loaded: it is refused; store it as a numeric array, strings or a list");
}

static int fold_complex(struct fold *f, bool *folded) {
    const struct sqrl_node *nodes = f->tape->nodes;
    struct sqrl_node data = nodes[f->parts.at[KEY_DATA]];
    const struct sqrl_node *flag = &nodes[f->parts.at[KEY_COMPLEX]];
    if (flag->type != SQRL_BOOL || !flag->v.u || !is_text(&data))
        return SQRL_OK;
    if (!complex_text((const char *)f->bytes + data.v.offset, data.size))
        return REFUSE(f, KEY_DATA, SQRL_E_CORRUPT,
                      "the text of a complex number is none");
    sqrl_node_put(&f->tape->nodes[f->map], SQRL_COMPLEX, 0, 0, data.size, data.v.offset);
    f->tape->count = f->map + 1;
    *folded = true;
    return SQRL_OK;
}

/* True when the values have the types that the form needs. */
static bool types_fit(const struct fold *f) {
    const struct sqrl_node *nodes = f->tape->nodes;
    const struct parts *p = &f->parts;
    unsigned text = p->raw ? SQRL_STRING : SQRL_BINARY;
    const struct sqrl_node *nd = &nodes[p->at[KEY_ND]], *type = &nodes[p->at[KEY_TYPE]];
    const struct sqrl_node *data = &nodes[p->at[KEY_DATA]];
    bool array = (p->seen & BIT(KEY_SHAPE)) != 0;
    if (nd->type != SQRL_BOOL || nd->v.u != array)
        return false;
    if (data->type != text && !(p->raw && data->flags & SQRL_NODE_RAW))
        return false;
    if (!is_text(type) && type->type != SQRL_ARRAY)
        return false;
    if (p->seen & BIT(KEY_KIND)) {
        const struct sqrl_node *kind = &nodes[p->at[KEY_KIND]];
        if (kind->type != text || kind->size > 1)
            return false;
        char letter = kind->size ? (char)f->bytes[kind->v.offset] : 'O';
        if (letter != 'O' && (letter != 'V' || type->type != SQRL_ARRAY))
            return false;
    }
    if (array) {
        const struct sqrl_node *shape = &nodes[p->at[KEY_SHAPE]];
        if (shape->type != SQRL_ARRAY)
            return false;
        for (uint32_t k = 1; k <= shape->size; k++)
            if (shape[k].type != SQRL_INT && shape[k].type != SQRL_UINT)
                return false;
    }
    return true;
}

/* Writes the NDARRAY over the map. `desc` is the description's node or SQRL_NO_NODE. */
static void write_array(struct fold *f, enum sqrl_dtype dtype, unsigned flags,
                        uint32_t dims, uint32_t desc) {
    struct sqrl_node *nodes = f->tape->nodes;
    struct sqrl_node shape[SQRL_MAX_DIMS];
    struct sqrl_node data = nodes[f->parts.at[KEY_DATA]];
    if (dims)
        memcpy(shape, &nodes[f->parts.at[KEY_SHAPE] + 1], dims * sizeof shape[0]);
    uint32_t to = f->map + 2 + dims, count = 0;
    if (desc != SQRL_NO_NODE) {
        /* The result is shorter than the map, so that the description fits; links within
         * it move along. */
        count = sqrl_node_next(nodes, desc) - desc;
        memmove(&nodes[to], &nodes[desc], count * sizeof *nodes);
        for (uint32_t k = to; k < to + count; k++)
            if (nodes[k].type >= SQRL_ARRAY)
                nodes[k].v.next = nodes[k].v.next - desc + to;
    }
    sqrl_node_put(&nodes[f->map], SQRL_NDARRAY, flags, dtype, dims, to + count);
    sqrl_node_put(&nodes[f->map + 1], SQRL_BINARY, 0, 0, data.size, data.v.offset);
    if (dims)
        memcpy(&nodes[f->map + 2], shape, dims * sizeof shape[0]);
    f->tape->count = to + count;
}

/* Checks dtype, shape and bytes against each other. SQRL_OK without *fits: stays a map.
 */
static int check_array(struct fold *f, uint64_t itemsize, enum described d, bool *fits) {
    const struct sqrl_node *nodes = f->tape->nodes;
    uint32_t bytes = nodes[f->parts.at[KEY_DATA]].size;
    uint64_t items = 1, need;
    if (f->parts.seen & BIT(KEY_SHAPE)) {
        const struct sqrl_node *shape = &nodes[f->parts.at[KEY_SHAPE]];
        if (shape->size > SQRL_MAX_DIMS)
            return REFUSE(f, KEY_DATA, SQRL_E_LIMIT,
                          "an array has %u dimensions; at most %d are supported",
                          shape->size, SQRL_MAX_DIMS);
        if (!multiply_shape(shape, &items))
            return REFUSE(f, KEY_DATA, SQRL_E_CORRUPT,
                          "an array's shape is negative or its size passes 64 bits");
    }
    if (d == DESC_UNKNOWN) {
        *fits = items ? bytes % items == 0 : bytes == 0;
        if (!*fits)
            return REFUSE(
                f, KEY_DATA, SQRL_E_CORRUPT,
                "an array of %llu items has %u bytes of data, no multiple of it",
                (unsigned long long)items, bytes);
        return SQRL_OK;
    }
    *fits = !__builtin_mul_overflow(items, itemsize, &need) && need == bytes;
    if (!*fits)
        return REFUSE(f, KEY_DATA, SQRL_E_CORRUPT,
                      "an array of %llu items of %llu bytes has %u bytes of data",
                      (unsigned long long)items, (unsigned long long)itemsize, bytes);
    return SQRL_OK;
}

static int fold_array(struct fold *f, bool *folded) {
    if (!types_fit(f))
        return SQRL_OK;
    const struct sqrl_node *nodes = f->tape->nodes;
    const struct parts *p = &f->parts;
    uint32_t type = p->at[KEY_TYPE];
    uint64_t itemsize = 0;
    enum described d = described_itemsize(nodes, type, f->bytes, &itemsize);
    if (d == DESC_MALFORMED || (p->raw && d == DESC_UNKNOWN))
        return SQRL_OK;
    const struct sqrl_node *kind = &nodes[p->at[KEY_KIND]];
    bool pickle =
        p->seen & BIT(KEY_KIND) && kind->size && f->bytes[kind->v.offset] == 'O';
    if (p->raw && d == DESC_OBJECT && !pickle)
        return SQRL_OK;
    if (pickle || d == DESC_OBJECT)
        return refuse_object(f);

    enum sqrl_dtype dtype = SQRL_DTYPE_OTHER;
    bool swapped = false;
    if (is_text(&nodes[type])) {
        const char *text = (const char *)f->bytes + nodes[type].v.offset;
        dtype = sqrl_dtype_parse(text, nodes[type].size, &swapped);
        if (!dtype)
            swapped = nodes[type].size && text[0] == '>';
    }
    bool fits = false;
    int code = check_array(f, itemsize, d, &fits);
    if (code || !fits)
        return code;
    bool array = (p->seen & BIT(KEY_SHAPE)) != 0;
    unsigned flags = (swapped ? SQRL_NODE_SWAPPED : 0u) | (array ? 0u : SQRL_NODE_SCALAR);
    uint32_t dims = array ? nodes[p->at[KEY_SHAPE]].size : 0;
    write_array(f, dtype, flags, dims, dtype ? SQRL_NO_NODE : type);
    *folded = true;
    return SQRL_OK;
}

int sqrl_ndarray_fold(struct sqrl_tape *tape, uint32_t map, const uint8_t *bytes,
                      bool *folded, size_t *fault, struct sqrl_error *err) {
    *folded = false;
    *fault = 0;
    struct fold f = {
        .tape = tape, .bytes = bytes, .map = map, .fault = fault, .err = err};
    uint32_t size = tape->nodes[map].size;
    if (size < 2 || size > 5 || !collect(tape->nodes, map, bytes, &f.parts))
        return SQRL_OK;
    unsigned scalar = BIT(KEY_ND) | BIT(KEY_TYPE) | BIT(KEY_DATA);
    unsigned old = scalar | BIT(KEY_SHAPE);
    unsigned seen = f.parts.seen;
    if (seen == (BIT(KEY_COMPLEX) | BIT(KEY_DATA)))
        return fold_complex(&f, folded);
    if (seen == scalar || seen == old || seen == (old | BIT(KEY_KIND)))
        return fold_array(&f, folded);
    return SQRL_OK;
}

/* --- the usual form in one step --- */

static inline bool expect(const uint8_t **p, const uint8_t *end, const char *text,
                          size_t n) {
    if ((size_t)(end - *p) < n || memcmp(*p, text, n) != 0)
        return false;
    *p += n;
    return true;
}
#define EXPECT(p, end, literal) expect(&(p), end, literal, sizeof(literal) - 1)

/* An unsigned integer as a packer writes a dimension. */
static inline bool read_dim(const uint8_t **at, const uint8_t *end, uint64_t *dim) {
    const uint8_t *p = *at;
    if (p < end && *p < 0x80) {
        *dim = *p;
        *at = p + 1;
        return true;
    }
    if (end - p < 9) /* data follow a shape: this is never a whole array's last bytes */
        return false;
    unsigned width = *p - 0xccu;
    if (width > 3)
        return false;
    *dim = width == 0   ? p[1]
           : width == 1 ? sqrl_load_be16(p + 1)
           : width == 2 ? sqrl_load_be32(p + 1)
                        : sqrl_load_be64(p + 1);
    *at = p + 1 + ((size_t)1 << width);
    return true;
}

/* The string "<f4", "|u1", "<c16". */
static inline enum sqrl_dtype read_type(const uint8_t **at, const uint8_t *end,
                                        bool *swapped) {
    const uint8_t *p = *at;
    if (end - p < 5 || (p[0] != 0xa3 && p[0] != 0xa4))
        return SQRL_DTYPE_OTHER;
    if (p[1] != '<' && p[1] != '|' && p[1] != '>')
        return SQRL_DTYPE_OTHER;
    size_t n = p[0] - 0xa0u;
    unsigned size = p[3] - (unsigned)'0';
    if (n == 4)
        size = p[3] == '1' && p[4] == '6' ? 16 : 0;
    *at = p + 1 + n;
    *swapped = p[1] == '>' && size > 1;
    return size > 16 ? SQRL_DTYPE_OTHER : sqrl_dtype_of((char)p[2], size);
}

/* The binary behind the key `data`. */
static inline bool read_data(const uint8_t **at, const uint8_t *end, const uint8_t **data,
                             uint32_t *size) {
    const uint8_t *p = *at;
    if (!EXPECT(p, end,
                "\xc4\x04"
                "data") ||
        p == end || *p < 0xc4 || *p > 0xc6)
        return false;
    size_t width = (size_t)1 << (*p - 0xc4);
    if ((size_t)(end - p) < 1 + width)
        return false;
    *size = width == 1   ? p[1]
            : width == 2 ? sqrl_load_be16(p + 1)
                         : sqrl_load_be32(p + 1);
    *data = p + 1 + width;
    if ((size_t)(end - *data) < *size)
        return false;
    *at = *data + *size;
    return true;
}

size_t sqrl_ndarray_read(const uint8_t *p, size_t size, uint64_t offset, uint32_t index,
                         struct sqrl_node *out, uint32_t *made) {
    const uint8_t *start = p, *end = p + size;
    unsigned pairs = *p++ & 15;
    if (!EXPECT(p, end, "\xc4\x02nd") || end - p < 8)
        return 0;
    bool array = *p == 0xc3, swapped = false;
    if ((!array && *p != 0xc2) || array != (pairs > 3))
        return 0;
    p++;
    if (!EXPECT(p, end,
                "\xc4\x04"
                "type"))
        return 0;
    enum sqrl_dtype dtype = read_type(&p, end, &swapped);
    if (!dtype || (pairs == 5 && !EXPECT(p, end,
                                         "\xc4\x04"
                                         "kind\xc4\x00")))
        return 0;
    uint64_t need = sqrl_dtype_size(dtype), dim;
    unsigned dims = 0;
    if (array) {
        if (!EXPECT(p, end,
                    "\xc4\x05"
                    "shape") ||
            p == end || (*p & 0xf0) != 0x90)
            return 0;
        dims = *p++ & 15;
    }
    for (unsigned k = 0; k < dims; k++) {
        if (!read_dim(&p, end, &dim) || dim > INT64_MAX ||
            __builtin_mul_overflow(need, dim, &need))
            return 0;
        sqrl_node_put(&out[2 + k], SQRL_INT, 0, 0, 0, dim);
    }
    const uint8_t *data;
    uint32_t data_size;
    if (!read_data(&p, end, &data, &data_size) || need != data_size)
        return 0;
    unsigned flags = (swapped ? SQRL_NODE_SWAPPED : 0u) | (array ? 0u : SQRL_NODE_SCALAR);
    *made = 2 + dims;
    sqrl_node_put(&out[0], SQRL_NDARRAY, flags, dtype, dims, (uint64_t)index + *made);
    sqrl_node_put(&out[1], SQRL_BINARY, 0, 0, data_size,
                  offset + (uint64_t)(data - start));
    return (size_t)(p - start);
}

/* --- taking one apart --- */

void sqrl_ndarray_view(const struct sqrl_node *nodes, uint32_t node, const uint8_t *bytes,
                       struct sqrl_ndarray *out) {
    memset(out, 0, sizeof *out);
    out->description = SQRL_NO_NODE;
    const struct sqrl_node *n = &nodes[node];
    if (n->type != SQRL_NDARRAY)
        return;
    out->dtype = (enum sqrl_dtype)n->aux;
    out->swapped = (n->flags & SQRL_NODE_SWAPPED) != 0;
    out->scalar = (n->flags & SQRL_NODE_SCALAR) != 0;
    out->dims = n->size;
    for (uint32_t k = 0; k < n->size; k++)
        out->shape[k] = n[2 + k].v.u;
    out->data = bytes + n[1].v.offset;
    out->data_bytes = n[1].size;
    if (out->dtype == SQRL_DTYPE_OTHER)
        out->description = node + 2 + n->size;
    if (n[1].flags & SQRL_NODE_ON_TAPE) {
        uint32_t behind = node + 2 + n->size;
        if (out->dtype == SQRL_DTYPE_OTHER)
            behind = sqrl_node_next(nodes, behind);
        out->data = (const uint8_t *)&nodes[behind];
    }
}
