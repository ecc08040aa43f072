/* json_string.c - undoing the escapes of JSON strings, and writing them.
 *
 * Text grows nowhere when escapes are undone (\uXXXX, 6 bytes, becomes at most 3; a pair,
 * 12 bytes, becomes 4), so that it is done in place. Escapes of lone surrogates have no
 * UTF-8 form and are refused.
 */
#include "value/json.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* What \c stands for; 0 when it is no escape (and for \u). */
static const uint8_t SIMPLE[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

static inline int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits behind \u at p, or -1. */
static int32_t hex_unit(const uint8_t *p, const uint8_t *end) {
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    int32_t unit = 0;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* The character of the escape at *p, which is moved behind it; -1 when it is bad. */
static int32_t read_escape(const uint8_t **p, const uint8_t *end) {
    const uint8_t *s = *p;
    if (end - s >= 2 && SIMPLE[s[1]]) {
        *p = s + 2;
        return SIMPLE[s[1]];
    }
    int32_t unit = hex_unit(s, end);
    if (unit < 0)
        return -1;
    if (unit >= 0xd800 && unit < 0xe000) {
        int32_t low = hex_unit(s + 6, end);
        if (unit >= 0xdc00 || low < 0xdc00 || low >= 0xe000)
            return -1;
        *p = s + 12;
        return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
    *p = s + 6;
    return unit;
}

const char *sqrl_json_escape_fault(const uint8_t *p, const uint8_t *end) {
    if (end - p >= 2 && p[1] != 'u')
        return "unknown escape in a string: expected one of \\\" \\\\ \\/ \\b \\f \\n "
               "\\r "
               "\\t \\u";
    if (hex_unit(p, end) < 0)
        return "expected 4 hexadecimal digits behind \\u in a string";
    return "escape of half a surrogate pair: it stands for no character and has no UTF-8 "
           "form";
}

static uint8_t *put_character(uint8_t *out, int32_t c) {
    if (c < 0x80) {
        *out++ = (uint8_t)c;
    } else if (c < 0x800) {
        *out++ = (uint8_t)(0xc0 | c >> 6);
        *out++ = (uint8_t)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (uint8_t)(0xe0 | c >> 12);
        *out++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *out++ = (uint8_t)(0x80 | (c & 0x3f));
    } else {
        *out++ = (uint8_t)(0xf0 | c >> 18);
        *out++ = (uint8_t)(0x80 | (c >> 12 & 0x3f));
        *out++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *out++ = (uint8_t)(0x80 | (c & 0x3f));
    }
    return out;
}

int32_t sqrl_json_character(const uint8_t **p, const uint8_t *end) {
    const uint8_t *s = *p;
    uint8_t a = *s;
    if (a == '\\')
        return read_escape(p, end);
    if (a < 0x80) {
        *p = s + 1;
        return a;
    }
    if (a < 0xe0) {
        *p = s + 2;
        return (a & 0x1f) << 6 | (s[1] & 0x3f);
    }
    if (a < 0xf0) {
        *p = s + 3;
        return (a & 0x0f) << 12 | (s[1] & 0x3f) << 6 | (s[2] & 0x3f);
    }
    *p = s + 4;
    return (a & 0x07) << 18 | (s[1] & 0x3f) << 12 | (s[2] & 0x3f) << 6 | (s[3] & 0x3f);
}

/* Copies exactly n < 16 bytes down; the places may overlap, so that all is loaded first.
 */
static inline void copy_short(uint8_t *to, const uint8_t *from, size_t n) {
    if (n >= 8) {
        uint64_t a = sqrl_load_le64(from), b = sqrl_load_le64(from + n - 8);
        sqrl_store_le64(to, a);
        sqrl_store_le64(to + n - 8, b);
    } else if (n >= 4) {
        uint32_t a = sqrl_load_le32(from), b = sqrl_load_le32(from + n - 4);
        sqrl_store_le32(to, a);
        sqrl_store_le32(to + n - 4, b);
    } else if (n) {
        uint8_t a = from[0], b = from[n / 2], c = from[n - 1];
        to[0] = a;
        to[n / 2] = b;
        to[n - 1] = c;
    }
}

/* Moves bytes from *from to *to, which is not above it, up to a backslash or `end`. Bytes
 * below `readable` may be read. */
static void move_plain(uint8_t **to, const uint8_t **from, const uint8_t *end,
                       const uint8_t *readable) {
    uint8_t *out = *to;
    const uint8_t *in = *from;
#if defined(__SSE2__)
    const __m128i backslash = _mm_set1_epi8('\\');
    while (readable - in >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)in);
        unsigned mask = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, backslash));
        size_t n = mask ? (size_t)__builtin_ctz(mask) : 16;
        n = SQRL_MIN(n, (size_t)(end - in));
        if (n < 16) {
            copy_short(out, in, n);
            *to = out + n;
            *from = in + n;
            return;
        }
        _mm_storeu_si128((__m128i *)out, v);
        in += 16;
        out += 16;
    }
#endif
    while (in < end && *in != '\\')
        *out++ = *in++;
    *to = out;
    *from = in;
}

int sqrl_json_unescape(uint8_t *text, size_t size, size_t room, size_t *new_size,
                       bool *ascii, size_t *fault, struct sqrl_error *err) {
    const uint8_t *p = text, *end = text + size, *readable = text + room;
    uint8_t *out = text;
    *new_size = 0;
    for (;;) {
        move_plain(&out, &p, end, readable);
        if (p == end)
            break;
        const uint8_t *escape = p;
        int32_t c = read_escape(&p, end);
        if (c < 0) {
            *fault = (size_t)(escape - text);
            return sqrl_error_set(err, SQRL_E_CORRUPT, "JSON: %s",
                                  sqrl_json_escape_fault(escape, end));
        }
        *ascii &= c < 0x80;
        out = put_character(out, c);
    }
    *new_size = (size_t)(out - text);
    return SQRL_OK;
}

/* --- writing --- */
/* The number of leading bytes that need no escape. */
static size_t plain_bytes(const uint8_t *p, size_t size) {
    size_t i = 0;
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'),
                  last = _mm_set1_epi8(31);
    for (; size - i >= 16; i += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(p + i));
        __m128i m = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, backslash));
        m = _mm_or_si128(m, _mm_cmpeq_epi8(_mm_min_epu8(v, last), v));
        unsigned mask = (unsigned)_mm_movemask_epi8(m);
        if (mask)
            return i + (size_t)__builtin_ctz(mask);
    }
#endif
    while (i < size && p[i] >= 32 && p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

static size_t put_escape(uint8_t out[6], uint8_t c) {
    static const char LETTERS[] = "\"\"\\\\b\bf\fn\nr\rt\t"; /* letter, character */
    out[0] = '\\';
    for (size_t i = 0; i + 1 < sizeof LETTERS; i += 2)
        if (LETTERS[i + 1] == (char)c) {
            out[1] = (uint8_t)LETTERS[i];
            return 2;
        }
    memcpy(out + 1, "u00", 3);
    out[4] = (uint8_t)('0' + (c >> 4));
    out[5] = (uint8_t) "0123456789abcdef"[c & 15];
    return 6;
}

int sqrl_json_string_encode(struct sqrl_bytes *out, const uint8_t *text, size_t size,
                            struct sqrl_error *err) {
    uint8_t escape[6];
    int code = sqrl_bytes_room(out, size + 2, err);
    if (code)
        return code;
    sqrl_bytes_put(out, "\"", 1);
    for (size_t i = 0;;) {
        size_t n = plain_bytes(text + i, size - i);
        if ((code = sqrl_bytes_room(out, size - i + 1, err)))
            return code;
        sqrl_bytes_put(out, text + i, n);
        i += n;
        if (i == size)
            break;
        n = put_escape(escape, text[i++]);
        if ((code = sqrl_bytes_append(out, escape, n, err)))
            return code;
    }
    return sqrl_bytes_append(out, "\"", 1, err);
}

/* --- only ASCII ----------------------------------------------------------------------
 */
/* The number of leading bytes between NUL and ~. */
static size_t below_delete(const uint8_t *p, size_t size) {
    size_t i = 0;
#if defined(__SSE2__)
    const __m128i delete = _mm_set1_epi8(0x7f);
    for (; size - i >= 16; i += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(p + i));
        int mask = _mm_movemask_epi8(_mm_or_si128(v, _mm_cmpeq_epi8(v, delete)));
        if (mask)
            return i + (size_t)__builtin_ctz((unsigned)mask);
    }
#endif
    while (i < size && p[i] < 0x7f)
        i++;
    return i;
}

static uint8_t *put_unit(uint8_t *out, uint32_t unit) {
    static const char DIGITS[] = "0123456789abcdef";
    *out++ = '\\';
    *out++ = 'u';
    for (int shift = 12; shift >= 0; shift -= 4)
        *out++ = (uint8_t)DIGITS[unit >> shift & 15];
    return out;
}

/* The valid character at *p, which is moved behind it. */
static uint32_t read_utf8(const uint8_t **p) {
    const uint8_t *s = *p;
    if (s[0] < 0x80) {
        *p = s + 1;
        return s[0];
    }
    unsigned size = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t c = s[0] & (0x7fu >> size);
    for (unsigned i = 1; i < size; i++)
        c = c << 6 | (s[i] & 0x3fu);
    *p = s + size;
    return c;
}

int sqrl_json_append_ascii(struct sqrl_bytes *out, const uint8_t *text, size_t size,
                           struct sqrl_error *err) {
    const uint8_t *p = text, *end = text + size;
    size_t before = out->size;
    while (p < end) {
        size_t plain = below_delete(p, (size_t)(end - p));
        int code = sqrl_bytes_room(out, plain + 12, err);
        if (code) {
            out->size = before;
            return code;
        }
        sqrl_bytes_put(out, p, plain);
        p += plain;
        if (p == end)
            break;
        uint32_t c = read_utf8(&p);
        uint8_t *to = out->data + out->size;
        if (c >= 0x10000) {
            to = put_unit(to, 0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + (c & 0x3ff);
        }
        to = put_unit(to, c);
        out->size = (size_t)(to - out->data);
    }
    return SQRL_OK;
}
