/* json_decode.c - stage 2 of the JSON decoder: from tokens to the tape.
 *
 * Invariants:
 * - An open container keeps the index of its parent in v.next and counts in size, so that
 *   no stack is needed and depth costs nothing.
 * - Each token makes at most one node, and a window's tokens have room on the tape before
 *   its first token is used: pushing needs no check.
 * - The input is not written to before the value is complete, so that a caller who gets
 *   SQRL_E_TRUNCATED can come back with more bytes. Strings with escapes are chained
 *   meanwhile, the latest first: the link (index of the one before) lies in aux and in
 * the upper 16 bits of v.offset, which no address space needs.
 */
#include "value/json.h"

#include <stdio.h>

#define NO_NODE SQRL_NO_NODE
#define END_OF_INPUT (-1) /* of internal functions: no token is left */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define OFFSET_BITS 48
#define OFFSET_MASK ((UINT64_C(1) << OFFSET_BITS) - 1)

struct json {
    struct sqrl_tape *tape;
    uint8_t *bytes;
    size_t size;
    size_t start; /* of the value */
    size_t fault;
    uint32_t begin; /* the value's first node */
    uint32_t chain; /* last string with escapes, or NO_NODE */
    unsigned flags;
    int code; /* why there is no token: END_OF_INPUT or an error */
    struct sqrl_limits limits;
    struct sqrl_error *err;
    sqrl_json_scan_fn kernel;
    size_t window;      /* bytes of the next window */
    const uint16_t *at; /* the next token, between values and in slow paths */
    struct sqrl_json_scan scan;
};

static inline uint32_t chain_link(const struct sqrl_node *n) {
    return (uint32_t)(n->v.offset >> OFFSET_BITS << 16) | n->aux;
}

/* What stage 2 keeps in registers. */
struct cursor {
    const uint16_t *at, *end;
    const uint8_t *base;
    struct sqrl_node *nodes;
    uint32_t count;
    uint32_t parent;
    uint32_t depth;
    bool map;     /* the parent is one */
    bool special; /* a string of the window may need a look */
};

ALWAYS_INLINE void cursor_load(struct cursor *c, const struct json *d) {
    c->at = d->at;
    c->end = d->scan.index + d->scan.count;
    c->base = d->bytes + d->scan.base;
    c->special = d->scan.any_special;
    c->nodes = d->tape->nodes;
    c->count = d->tape->count;
}

ALWAYS_INLINE void cursor_save(const struct cursor *c, struct json *d) {
    d->at = c->at;
    d->tape->count = c->count;
}

/* --- errors --- */
NOINLINE int fault_at(struct json *d, int code, const uint8_t *at, const char *message) {
    d->fault = (size_t)(at - d->bytes);
    return d->code = sqrl_value_error(d->err, code, d->fault, "JSON: %s", message);
}

/* "expected X, found Y" at a byte of the input. */
NOINLINE int fault_expected(struct json *d, const uint8_t *at, const char *expected) {
    char found[32];
    d->fault = (size_t)(at - d->bytes);
    if (d->fault >= d->size)
        strcpy(found, "the end");
    else if (*at == '\n')
        strcpy(found, "the end of the line");
    else if (*at > 32 && *at < 127)
        snprintf(found, sizeof found, "'%c'", *at);
    else
        snprintf(found, sizeof found, "byte 0x%02x", *at);
    return d->code = sqrl_value_error(d->err, SQRL_E_CORRUPT, d->fault,
                                      "JSON: expected %s, found %s", expected, found);
}

NOINLINE int fault_limit(struct json *d, const uint8_t *at, const char *what,
                         uint64_t limit) {
    d->fault = (size_t)(at - d->bytes);
    return d->code = sqrl_value_error(d->err, SQRL_E_LIMIT, d->fault,
                                      "JSON: more than %llu %s in one value; raise the "
                                      "limit if the data are right",
                                      (unsigned long long)limit, what);
}

/* The input ended within a value. A string that never ends but holds a control character
 * is wrong whatever follows. */
NOINLINE int fault_end(struct json *d) {
    d->fault = d->size;
    return d->code = sqrl_value_error(
               d->err, SQRL_E_TRUNCATED, d->size,
               "JSON: the value that begins at byte %zu is cut short", d->start);
}

/* --- tokens --- */
/* Scans on until there is a token, with room for its nodes. Sets code and returns it. */
NOINLINE int refill(struct json *d) {
    struct sqrl_json_scan *scan = &d->scan;
    if (d->tape->count - d->begin > d->limits.max_nodes)
        return fault_limit(d, d->bytes + scan->pos, "nodes", d->limits.max_nodes);
    do {
        if (scan->pos > d->start && scan->pos - d->start > d->limits.max_bytes)
            return fault_limit(d, d->bytes + scan->pos, "bytes", d->limits.max_bytes);
        if (scan->pos == scan->size)
            return d->code = END_OF_INPUT;
        d->kernel(scan, d->window);
        d->window = SQRL_MIN(d->window * 2, (size_t)SQRL_JSON_WINDOW);
        d->at = scan->index;
    } while (!scan->count && !scan->string);
    d->code = sqrl_tape_reserve(d->tape, scan->count, d->err);
    if (d->code)
        d->fault = scan->base;
    return d->code;
}

/* The next token, or NULL with d->code. */
ALWAYS_INLINE const uint8_t *next_token(struct json *d, struct cursor *c) {
    while (SQRL_UNLIKELY(c->at == c->end)) {
        cursor_save(c, d);
        int code = refill(d);
        cursor_load(c, d);
        if (code)
            return NULL;
    }
    return c->base + *c->at++;
}

/* --- strings --- */
/* Whether any of the bits a..b is set. */
ALWAYS_INLINE bool any_bit(const uint64_t *words, unsigned a, unsigned b) {
    unsigned i = a / 64, last = b / 64;
    uint64_t head = UINT64_MAX << (a & 63), tail = UINT64_MAX >> (63 - (b & 63));
    if (i == last)
        return words[i] & head & tail;
    uint64_t any = words[i] & head;
    while (++i < last)
        any |= words[i];
    return (any | (words[last] & tail)) != 0;
}

/* Index of the first byte below 32, or `size`. */
static size_t find_control(const uint8_t *text, size_t size) {
    size_t i = 0;
    for (; size - i >= 8; i += 8) {
        uint64_t v = sqrl_load_le64(text + i);
        /* A byte below 32 borrows from its high bit, or a lower byte did: look closely.
         */
        if (((v - UINT64_C(0x2020202020202020)) & ~v) & UINT64_C(0x8080808080808080))
            break;
    }
    while (i < size && text[i] >= 32)
        i++;
    return i;
}

/* Checks a string with control characters, bytes above 127 or escapes and makes its node
 * `index`. */
NOINLINE int put_special_string(struct json *d, struct sqrl_node *nodes, uint32_t index,
                                const uint8_t *text, size_t size, bool escapes) {
    bool ascii;
    size_t control = find_control(text, size);
    if (SQRL_UNLIKELY(control < size))
        return fault_expected(d, text + control, "an escape such as \\n within a string");
    if (!sqrl_utf8_valid(text, size, &ascii))
        return fault_at(d, SQRL_E_CORRUPT, text + sqrl_utf8_fault(text, size),
                        "a string is not UTF-8");
    unsigned flags = ascii ? SQRL_NODE_ASCII : 0, link = 0;
    uint64_t offset = (uint64_t)(text - d->bytes);
    if (escapes) {
        flags |= SQRL_JSON_ESCAPED;
        link = d->chain & 0xffff;
        offset |= (uint64_t)(d->chain >> 16) << OFFSET_BITS;
        d->chain = index;
    }
    sqrl_node_put(&nodes[index], SQRL_STRING, flags, link, (uint32_t)size, offset);
    return SQRL_OK;
}

/* A string whose end lies in a later window. Returns false with d->code. */
NOINLINE bool put_long_string(struct json *d, const uint8_t *open) {
    struct sqrl_json_scan *scan = &d->scan;
    bool special = false, escapes = false;
    const uint8_t *from = open;
    do {
        const uint8_t *base = d->bytes + scan->base;
        unsigned a = (unsigned)(from - base),
                 last = (unsigned)(scan->pos - scan->base) - 1;
        special |= any_bit(scan->special, a, last);
        escapes |= any_bit(scan->escape, a, last);
        from = d->bytes + scan->pos;
        if (refill(d)) {
            size_t size = (size_t)(d->bytes + d->size - open) - 1;
            size_t control = special ? find_control(open + 1, size) : size;
            if (d->code == END_OF_INPUT && control < size)
                fault_expected(d, open + 1 + control, "the end of the string");
            return false;
        }
    } while (!scan->count);
    unsigned b = *d->at++;
    special |= any_bit(scan->special, 0, b);
    escapes |= any_bit(scan->escape, 0, b);
    const uint8_t *text = open + 1;
    size_t size = (size_t)(d->bytes + scan->base + b - text);
    if (size > UINT32_MAX)
        return !fault_limit(d, open, "bytes", UINT32_MAX);
    uint32_t index = d->tape->count++;
    if (special)
        return !put_special_string(d, d->tape->nodes, index, text, size, escapes);
    sqrl_node_put(&d->tape->nodes[index], SQRL_STRING, SQRL_NODE_ASCII, 0, (uint32_t)size,
                  (uint64_t)(text - d->bytes));
    return true;
}

/* The string whose opening quote is the last token. */
ALWAYS_INLINE bool put_string(struct json *d, struct cursor *c, const uint8_t *open) {
    if (SQRL_UNLIKELY(c->at == c->end)) {
        cursor_save(c, d);
        bool good = put_long_string(d, open);
        cursor_load(c, d);
        return good;
    }
    unsigned a = (unsigned)(open - c->base), b = *c->at++;
    uint32_t index = c->count++;
    if (SQRL_UNLIKELY(c->special && any_bit(d->scan.special, a, b)))
        return !put_special_string(d, c->nodes, index, open + 1, b - a - 1,
                                   any_bit(d->scan.escape, a, b));
    sqrl_node_put(&c->nodes[index], SQRL_STRING, SQRL_NODE_ASCII, 0, b - a - 1,
                  (uint64_t)(open + 1 - d->bytes));
    return true;
}

/* Undoes the escapes of all chained strings. The first bad one of the text is reported.
 */
static int finish_strings(struct json *d) {
    struct sqrl_node *nodes = d->tape->nodes;
    int code = SQRL_OK;
    while (d->chain != NO_NODE) {
        struct sqrl_node *n = &nodes[d->chain];
        size_t offset = n->v.offset & OFFSET_MASK, size, fault;
        bool ascii = n->flags & SQRL_NODE_ASCII;
        d->chain = chain_link(n);
        int one = sqrl_json_unescape(d->bytes + offset, n->size, d->size - offset, &size,
                                     &ascii, &fault, NULL);
        if (one) {
            const uint8_t *at = d->bytes + offset + fault;
            code = fault_at(d, one, at,
                            sqrl_json_escape_fault(at, d->bytes + offset + n->size));
        }
        sqrl_node_put(n, SQRL_STRING, ascii ? SQRL_NODE_ASCII : 0, 0, (uint32_t)size,
                      offset);
    }
    return code;
}

/* --- numbers and names --- */
/* Bytes that may follow a number or name: white space and tokens. */
static const bool DELIMITER[256] = {
    ['\t'] = true, ['\n'] = true, ['\r'] = true, [' '] = true, [','] = true, [':'] = true,
    ['['] = true,  [']'] = true,  ['{'] = true,  ['}'] = true, ['"'] = true,
};

/* Returns 1 when `word` is at p, 0 when not, -1 when the input ends within it. */
static int match_word(const struct json *d, const uint8_t *p, const char *word) {
    size_t left = (size_t)(d->bytes + d->size - p), size = strlen(word);
    if (memcmp(p, word, SQRL_MIN(left, size)) != 0)
        return 0;
    return left < size ? -1 : 1;
}

struct word {
    const char *text;
    uint8_t type;
    bool nan; /* only with SQRL_JSON_NAN */
    uint64_t bits;
};

NOINLINE int put_word(struct json *d, const uint8_t *p, struct sqrl_node *node) {
    static const struct word WORDS[] = {
        {"true", SQRL_BOOL, false, 1},
        {"false", SQRL_BOOL, false, 0},
        {"null", SQRL_NULL, false, 0},
        {"NaN", SQRL_FLOAT, true, UINT64_C(0x7ff8) << 48},
        {"Infinity", SQRL_FLOAT, true, UINT64_C(0x7ff0) << 48},
        {"-Infinity", SQRL_FLOAT, true, UINT64_C(0xfff0) << 48},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(WORDS); i++) {
        const struct word *w = &WORDS[i];
        int match = match_word(d, p, w->text);
        if (!match)
            continue;
        if (w->nan && !(d->flags & SQRL_JSON_NAN))
            return fault_at(d, SQRL_E_CORRUPT, p,
                            "NaN and Infinity are no JSON numbers; allow them by the "
                            "option for NaN");
        if (match < 0)
            return d->code = END_OF_INPUT;
        const uint8_t *stop = p + strlen(w->text);
        if (stop < d->bytes + d->size && !DELIMITER[*stop])
            return fault_expected(d, stop, "a comma or the end behind a value");
        sqrl_node_put(node, w->type, 0, 0, 0, w->bits);
        return SQRL_OK;
    }
    return fault_expected(d, p, *p == '-' ? "a digit behind '-'" : "a value");
}

NOINLINE int fault_number(struct json *d, enum sqrl_json_number_status status,
                          const uint8_t *text, const uint8_t *stop,
                          struct sqrl_node *node) {
    switch (status) {
    case SQRL_JSON_NUMBER_CUT:
        return d->code = END_OF_INPUT;
    case SQRL_JSON_NUMBER_ZERO:
        return fault_at(d, SQRL_E_CORRUPT, stop, "a digit behind a leading zero");
    case SQRL_JSON_NUMBER_TOO_LONG:
        return fault_at(d, SQRL_E_LIMIT, text, "an integer of more than 4300 digits");
    case SQRL_JSON_NUMBER_MEMORY:
        return fault_at(d, SQRL_E_NO_MEMORY, text, "no memory to read a number");
    default:
        if (stop == text + 1 && *text == '-')
            return put_word(d, text, node);
        return fault_expected(d, stop, "a digit");
    }
}

/* true, false and null, where at least 8 bytes follow: one comparison each. */
ALWAYS_INLINE int put_common_word(struct json *d, const uint8_t *p,
                                  struct sqrl_node *node) {
    if (SQRL_LIKELY(d->bytes + d->size - p >= 8)) {
        uint32_t word = sqrl_load_le32(p);
        bool is_false = word == 0x736c6166 && p[4] == 'e'; /* "fals" */
        bool is_true = word == 0x65757274, is_null = word == 0x6c6c756e;
        if ((is_true || is_null || is_false) && DELIMITER[p[4 + is_false]]) {
            sqrl_node_put(node, is_null ? SQRL_NULL : SQRL_BOOL, 0, 0, 0, is_true);
            return SQRL_OK;
        }
    }
    return put_word(d, p, node);
}

#define MAX_DIGITS 19 /* that surely fit 64 bits */
#define SHORT_NUMBER_BYTES (1 + MAX_DIGITS + 1 + 1 + MAX_DIGITS + 8)

/* Digits into *value, at most one more than MAX_DIGITS. Returns the byte behind. */
ALWAYS_INLINE const uint8_t *short_digits(const uint8_t *p, uint64_t *value) {
    const uint8_t *stop = p + MAX_DIGITS + 1;
    uint64_t v = *value;
    for (unsigned digit; p < stop && (digit = (unsigned)(*p - '0')) < 10; p++)
        v = v * 10 + digit;
    *value = v;
    return p;
}

/* Nearly all numbers: at most 18 digits, perhaps with a point, no exponent, enough bytes
 * behind. False leaves the number to sqrl_json_number_read. */
ALWAYS_INLINE bool put_short_number(const struct json *d, const uint8_t *p,
                                    struct sqrl_node *node) {
    if (SQRL_UNLIKELY(d->bytes + d->size - p < SHORT_NUMBER_BYTES))
        return false;
    bool negative = *p == '-';
    const uint8_t *digits = p += negative;
    uint64_t value = 0;
    p = short_digits(p, &value);
    ptrdiff_t whole = p - digits, fraction = 0;
    if (whole == 0 || whole >= MAX_DIGITS || (*digits == '0' && whole > 1))
        return false;
    if (*p == '.') {
        digits = ++p;
        if (sqrl_json_eight_digits(sqrl_load_le64(p))) {
            value = value * 100000000 + sqrl_json_eight_value(sqrl_load_le64(p));
            p += 8;
        }
        p = short_digits(p, &value);
        fraction = p - digits;
        if (fraction == 0 || whole + fraction > MAX_DIGITS || !DELIMITER[*p])
            return false;
        double f = sqrl_json_decimal(value, -fraction, negative);
        sqrl_node_put(node, SQRL_FLOAT, 0, 0, 0, sqrl_double_bits(f));
        return true;
    }
    sqrl_node_put(node, SQRL_INT, 0, 0, 0, negative ? 0 - value : value);
    return DELIMITER[*p];
}

ALWAYS_INLINE int put_scalar(struct json *d, const uint8_t *p, struct sqrl_node *node) {
    if (SQRL_LIKELY((uint8_t)(*p - '0') < 10 || *p == '-')) {
        if (SQRL_LIKELY(put_short_number(d, p, node)))
            return SQRL_OK;
        const uint8_t *end = d->bytes + d->size, *stop;
        enum sqrl_json_number_status status =
            sqrl_json_number_read(p, end, d->bytes, node, &stop);
        if (SQRL_UNLIKELY(status != SQRL_JSON_NUMBER_OK))
            return fault_number(d, status, p, stop, node);
        if (SQRL_UNLIKELY(stop < end && !DELIMITER[*stop]))
            return fault_expected(d, stop, "a comma or the end behind a number");
        return SQRL_OK;
    }
    return put_common_word(d, p, node);
}

/* --- containers --- */
ALWAYS_INLINE bool open_container(struct json *d, struct cursor *c, const uint8_t *t,
                                  bool map) {
    if (SQRL_UNLIKELY(c->depth == d->limits.max_depth)) {
        fault_limit(d, t, "levels of nesting", d->limits.max_depth);
        return false;
    }
    c->depth++;
    sqrl_node_put(&c->nodes[c->count], map ? SQRL_MAP : SQRL_ARRAY, 0, 0, 0, c->parent);
    c->parent = c->count++;
    c->map = map;
    return true;
}

/* A map of three keys of which the first may be data, type or shape. */
ALWAYS_INLINE bool maybe_ndarray(const struct json *d, const struct cursor *c,
                                 uint32_t map) {
    const struct sqrl_node *key = &c->nodes[map + 1];
    if (c->nodes[map].size != 3 || key->size - 4 > 1)
        return false;
    uint8_t first = d->bytes[key->v.offset & OFFSET_MASK];
    return first == 'd' || first == 't' || first == 's';
}

/* Maps of the keys data, type and shape may be arrays. Sets d->code. */
NOINLINE int try_ndarray(struct json *d, uint32_t map) {
    bool changed;
    if (d->flags & SQRL_JSON_NO_ARRAYS)
        return SQRL_OK;
    uint32_t chain = d->chain; /* without the strings of the map, whose nodes may go */
    while (chain != NO_NODE && chain > map)
        chain = chain_link(&d->tape->nodes[chain]);
    d->code =
        sqrl_json_ndarray_decode(d->tape, map, d->bytes, &changed, &d->fault, d->err);
    if (d->code || !changed)
        return d->code;
    d->chain = chain;
    uint32_t tokens = (uint32_t)(d->scan.index + d->scan.count - d->at);
    return d->code = sqrl_tape_reserve(d->tape, tokens, d->err);
}

ALWAYS_INLINE bool close_container(struct json *d, struct cursor *c) {
    struct sqrl_node *n = &c->nodes[c->parent];
    uint32_t index = c->parent;
    bool is_map = c->map;
    c->parent = (uint32_t)n->v.next;
    n->v.next = c->count;
    c->depth--;
    c->map = c->parent != NO_NODE && c->nodes[c->parent].type == SQRL_MAP;
    if (SQRL_LIKELY(!is_map || !maybe_ndarray(d, c, index)))
        return true;
    cursor_save(c, d);
    int code = try_ndarray(d, index);
    cursor_load(c, d);
    return !code;
}

/* --- values --- */
/* One value that begins with token t; *last is its last token (but for a string's end).
 * Returns END_OF_INPUT when the input ends within it. */
static int read_value(struct json *d, const uint8_t *t, const uint8_t **last) {
    struct cursor c = {.parent = NO_NODE};
    cursor_load(&c, d);
value:
    if (*t == '"') {
        if (!put_string(d, &c, t))
            goto fail;
    } else if (*t == '{') {
        if (!open_container(d, &c, t, true) || !(t = next_token(d, &c)))
            goto fail;
        if (*t == '}')
            goto close;
        goto key;
    } else if (*t == '[') {
        if (!open_container(d, &c, t, false) || !(t = next_token(d, &c)))
            goto fail;
        if (*t == ']')
            goto close;
        goto value;
    } else if (put_scalar(d, t, &c.nodes[c.count])) {
        goto fail;
    } else {
        c.count++;
    }
behind:
    if (SQRL_UNLIKELY(c.parent == NO_NODE))
        goto done;
    c.nodes[c.parent].size++;
    if (!(t = next_token(d, &c)))
        goto fail;
    if (*t == ',') {
        if (!(t = next_token(d, &c)))
            goto fail;
        if (!c.map)
            goto value;
        goto key;
    }
    if (SQRL_LIKELY(*t == (c.map ? '}' : ']')))
        goto close;
    fault_expected(d, t, c.map ? "',' or '}' in an object" : "',' or ']' in an array");
    goto fail;
key:
    if (SQRL_UNLIKELY(*t != '"')) {
        fault_expected(d, t, "a key in quotes");
        goto fail;
    }
    if (!put_string(d, &c, t) || !(t = next_token(d, &c)))
        goto fail;
    if (SQRL_UNLIKELY(*t != ':')) {
        fault_expected(d, t, "':' behind a key");
        goto fail;
    }
    if (!(t = next_token(d, &c)))
        goto fail;
    goto value;
close:
    if (!close_container(d, &c))
        goto fail;
    goto behind;
done:
    cursor_save(&c, d);
    *last = t;
    return SQRL_OK;
fail:
    cursor_save(&c, d);
    return d->code;
}

/* The byte behind the value. */
static const uint8_t *value_end(const struct json *d, const uint8_t *last) {
    const struct sqrl_node *n = &d->tape->nodes[d->begin];
    const uint8_t *end = d->bytes + d->size;
    if (*last == ']' || *last == '}')
        return last + 1;
    if (n->type == SQRL_STRING)
        return d->bytes + (n->v.offset & OFFSET_MASK) + n->size + 1;
    while (last < end && !DELIMITER[*last])
        last++;
    return last;
}

/* Reads the value that begins with t, checks limits and undoes escapes. */
static int decode_value(struct json *d, const uint8_t *t, const uint8_t **end) {
    const uint8_t *last = t;
    d->begin = d->tape->count;
    d->chain = NO_NODE;
    d->start = (size_t)(t - d->bytes);
    int code = read_value(d, t, &last);
    if (code)
        return code;
    *end = value_end(d, last);
    if (d->tape->count - d->begin > d->limits.max_nodes)
        return fault_limit(d, *end, "nodes", d->limits.max_nodes);
    if ((uint64_t)(*end - t) > d->limits.max_bytes)
        return fault_limit(d, *end, "bytes", d->limits.max_bytes);
    return d->chain == NO_NODE ? SQRL_OK : finish_strings(d);
}

/* The next token between values, or NULL with d->code. */
static const uint8_t *outer_token(struct json *d) {
    struct cursor c = {.parent = NO_NODE};
    cursor_load(&c, d);
    const uint8_t *t = next_token(d, &c);
    cursor_save(&c, d);
    return t;
}

static void json_begin(struct json *d, struct sqrl_tape *tape, uint8_t *bytes,
                       size_t size, size_t offset, const struct sqrl_limits *limits) {
    static const uint8_t BYTE_ORDER_MARK[3] = {0xef, 0xbb, 0xbf};
    struct sqrl_json_scan *scan = &d->scan;
    if (offset == 0 && size >= 3 && memcmp(bytes, BYTE_ORDER_MARK, 3) == 0)
        offset = 3;
    d->tape = tape;
    d->bytes = bytes;
    d->size = size;
    d->start = d->fault = offset;
    d->begin = tape->count;
    d->chain = NO_NODE;
    d->code = SQRL_OK;
    d->limits = sqrl_limits_resolve(limits);
    d->kernel = sqrl_json_scan_kernel();
    d->at = scan->index;
    scan->bytes = bytes;
    scan->size = size;
    scan->base = scan->pos = offset;
    scan->escaped = scan->string = scan->scalar = 0;
    scan->count = 0;
    scan->any_special = false;
}

int sqrl_json_decode(struct sqrl_tape *tape, uint8_t *bytes, size_t size, size_t *offset,
                     unsigned flags, const struct sqrl_limits *limits,
                     struct sqrl_error *err) {
    struct json d;
    uint32_t before = tape->count;
    const uint8_t *end = NULL;
    json_begin(&d, tape, bytes, size, *offset, limits);
    d.flags = flags;
    d.err = err;
    d.window = 1024; /* little is lost when the value is small and others follow it */
    d.scan.lines = false;
    const uint8_t *t = outer_token(&d);
    int code = t ? decode_value(&d, t, &end) : d.code;
    if (code == END_OF_INPUT)
        code = fault_end(&d);
    if (code) {
        tape->count = before;
        *offset = d.fault;
        return code;
    }
    const uint8_t *p = end;
    while (p < bytes + size && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    *offset = (size_t)(p - bytes);
    return SQRL_OK;
}

/* One line that begins with token t. *next is the place behind it. */
static int decode_line(struct json *d, const uint8_t *t, size_t *next) {
    const uint8_t *end = NULL;
    int code = decode_value(d, t, &end);
    if (code)
        return code;
    t = outer_token(d);
    if (!t && d->code != END_OF_INPUT)
        return d->code;
    if (t && *t != '\n')
        return fault_expected(d, t, "the end of the line behind a value");
    *next = t ? (size_t)(t + 1 - d->bytes) : d->size;
    return SQRL_OK;
}

int sqrl_jsonl_decode_many(struct sqrl_tape *tape, uint8_t *bytes, size_t size,
                           size_t *offset, uint32_t *begin, uint32_t max, uint32_t *count,
                           unsigned flags, const struct sqrl_limits *limits,
                           struct sqrl_error *err) {
    struct json d;
    *count = 0;
    json_begin(&d, tape, bytes, size, *offset, limits);
    d.flags = flags;
    d.err = err;
    d.window = SQRL_JSON_WINDOW;
    d.scan.lines = true;
    int code = SQRL_OK;
    while (*count < max) {
        const uint8_t *t = outer_token(&d);
        if (!t) {
            code = d.code;
            d.start = size;
            d.begin = tape->count;
            break;
        }
        if (*t == '\n')
            continue;
        code = decode_line(&d, t, offset);
        if (code)
            break;
        begin[(*count)++] = d.begin;
    }
    if (code) {
        tape->count = d.begin;
        *offset = code == END_OF_INPUT ? d.start : d.fault;
    }
    return code == END_OF_INPUT ? SQRL_OK : code;
}
