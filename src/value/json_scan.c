/* json_scan.c - stage 1 of the JSON decoder: the places of all tokens, 64 bytes at a
 * time.
 *
 * Each block of 64 bytes becomes one 64-bit mask per class of bytes; the rest is
 * arithmetic on masks. A twin makes the masks (scalar by table, AVX2 by two nibble
 * lookups), what is behind is shared. Escaped bytes are found by a subtraction that
 * carries through runs of backslashes, the inside of strings by a prefix XOR over
 * unescaped quotes.
 */
#include "value/json.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define SQRL_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt,pclmul")))
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define ODD_BITS UINT64_C(0xaaaaaaaaaaaaaaaa)

struct block {
    uint64_t quote, backslash;
    uint64_t mark;  /* brackets, comma, colon */
    uint64_t space; /* the four kinds of white space */
    uint64_t newline;
    uint64_t control; /* below 32 */
    uint64_t high;    /* above 127 */
};

/* Bytes that follow an odd run of backslashes. A run that begins at an odd (even) place
 * and ends behind one of the same kind has even length; adding the starts to the run lets
 * a carry find its end. */
ALWAYS_INLINE uint64_t escaped_bytes(uint64_t backslash, uint64_t *carry) {
    if (!backslash) {
        uint64_t escaped = *carry;
        *carry = 0;
        return escaped;
    }
    uint64_t escape = backslash & ~*carry; /* the first byte may itself be escaped */
    uint64_t maybe = escape << 1;
    uint64_t odd = ((maybe | ODD_BITS) - escape) ^ ODD_BITS;
    uint64_t escaped = odd ^ (backslash | *carry);
    *carry = (odd & backslash) >> 63;
    return escaped;
}

/* What is shared by the twins: from class masks to the mask of tokens. */
ALWAYS_INLINE uint64_t block_tokens(struct sqrl_json_scan *scan, const struct block *b,
                                    uint64_t quote, uint64_t string, size_t word) {
    uint64_t scalar = ~(b->mark | b->space | quote);
    uint64_t start = scalar & ~(scalar << 1 | scan->scalar);
    scan->scalar = scalar >> 63;
    uint64_t special = string & (b->backslash | b->control | b->high);
    scan->special[word] = special;
    scan->escape[word] = string & b->backslash;
    scan->control |= (string & b->control) != 0;
    uint64_t tokens = b->mark | start;
    if (scan->lines)
        tokens |= b->newline;
    return (tokens & ~string) | quote;
}

/* --- scalar twin -------------------------------------------------------------------- */
enum { QUOTE = 1, BACKSLASH = 2, MARK = 4, SPACE = 8, NEWLINE = 16 };

static const uint8_t CLASS[256] = {
    ['\t'] = SPACE,     ['\n'] = SPACE | NEWLINE,
    ['\r'] = SPACE,     [' '] = SPACE,
    ['"'] = QUOTE,      ['{'] = MARK,
    ['}'] = MARK,       ['['] = MARK,
    ['\\'] = BACKSLASH, [']'] = MARK,
    [':'] = MARK,       [','] = MARK,
};

static void load_scalar(const uint8_t *p, struct block *b) {
    memset(b, 0, sizeof *b);
    for (unsigned i = 0; i < 64; i++) {
        uint64_t c = CLASS[p[i]];
        b->quote |= (c & 1) << i;
        b->backslash |= (c >> 1 & 1) << i;
        b->mark |= (c >> 2 & 1) << i;
        b->space |= (c >> 3 & 1) << i;
        b->newline |= (c >> 4 & 1) << i;
        b->control |= (uint64_t)(p[i] < 32) << i;
        b->high |= (uint64_t)(p[i] >> 7) << i;
    }
}

static void block_scalar(struct sqrl_json_scan *scan, const uint8_t *p, size_t at) {
    struct block b;
    load_scalar(p, &b);
    uint64_t quote = b.quote & ~escaped_bytes(b.backslash, &scan->escaped);
    uint64_t string = quote;
    for (unsigned shift = 1; shift < 64; shift *= 2)
        string ^= string << shift;
    string ^= scan->string;
    scan->string = (uint64_t)((int64_t)string >> 63);
    uint64_t tokens = block_tokens(scan, &b, quote, string, at / 64);
    while (tokens) {
        scan->index[scan->count++] = (uint16_t)(at + (size_t)__builtin_ctzll(tokens));
        tokens &= tokens - 1;
    }
}

typedef void (*block_fn)(struct sqrl_json_scan *scan, const uint8_t *p, size_t at);

/* The last bytes of the input, filled up with spaces. */
ALWAYS_INLINE void scan_tail(struct sqrl_json_scan *scan, size_t at, block_fn block) {
    uint8_t padded[64];
    size_t rest = scan->size - (scan->base + at);
    memset(padded, ' ', sizeof padded);
    memcpy(padded, scan->bytes + scan->base + at, rest);
    block(scan, padded, at);
}

ALWAYS_INLINE void scan_window(struct sqrl_json_scan *scan, size_t window,
                               block_fn block) {
    size_t left = scan->size - scan->pos;
    size_t used = SQRL_MIN(left, window);
    scan->base = scan->pos;
    scan->count = 0;
    const uint8_t *p = scan->bytes + scan->base;
    size_t at = 0;
    for (; at + 64 <= used; at += 64)
        block(scan, p + at, at);
    if (at < used)
        scan_tail(scan, at, block);
    scan->pos = scan->base + used;
}

void sqrl_json_scan_scalar(struct sqrl_json_scan *scan, size_t window) {
    scan_window(scan, window, block_scalar);
}

/* --- AVX2 twin ---------------------------------------------------------------------- */
#ifdef SQRL_AVX2
/* Classes by the product of two lookups, of the low and the high nibble of each byte:
 * 1 comma, 2 colon, 4 brackets, 8 tab, newline, return, 16 space. */
#define LOW_NIBBLES                                                                      \
    16, 0, 0, 0, 0, 0, 0, 0, 0, 8, 8 | 2, 4, 1, 4 | 8, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, \
        8, 8 | 2, 4, 1, 4 | 8, 0, 0
#define HIGH_NIBBLES                                                                     \
    8, 0, 16 | 1, 2, 0, 4, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 16 | 1, 2, 0, 4, 0, 4, 0, \
        0, 0, 0, 0, 0, 0, 0

SQRL_AVX2 ALWAYS_INLINE uint64_t mask_of(__m256i a, __m256i b) {
    return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b)
                                                   << 32;
}

SQRL_AVX2 ALWAYS_INLINE uint64_t equal_to(__m256i a, __m256i b, char c) {
    __m256i v = _mm256_set1_epi8(c);
    return mask_of(_mm256_cmpeq_epi8(a, v), _mm256_cmpeq_epi8(b, v));
}

SQRL_AVX2 ALWAYS_INLINE uint64_t below_32(__m256i a, __m256i b) {
    __m256i v = _mm256_set1_epi8(31);
    return mask_of(_mm256_cmpeq_epi8(_mm256_min_epu8(a, v), a),
                   _mm256_cmpeq_epi8(_mm256_min_epu8(b, v), b));
}

SQRL_AVX2 ALWAYS_INLINE __m256i classes_of(__m256i v) {
    const __m256i low = _mm256_setr_epi8(LOW_NIBBLES),
                  high = _mm256_setr_epi8(HIGH_NIBBLES);
    __m256i upper = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
    return _mm256_and_si256(_mm256_shuffle_epi8(low, v),
                            _mm256_shuffle_epi8(high, upper));
}

/* The bytes whose class has one of the bits. */
SQRL_AVX2 ALWAYS_INLINE uint64_t in_class(__m256i a, __m256i b, char bits) {
    __m256i m = _mm256_set1_epi8(bits), zero = _mm256_setzero_si256();
    return ~mask_of(_mm256_cmpeq_epi8(_mm256_and_si256(a, m), zero),
                    _mm256_cmpeq_epi8(_mm256_and_si256(b, m), zero));
}

SQRL_AVX2 ALWAYS_INLINE void put_tokens(struct sqrl_json_scan *scan, uint64_t tokens,
                                        size_t at) {
    uint16_t *out = scan->index + scan->count;
    unsigned n = (unsigned)__builtin_popcountll(tokens);
    scan->count += n;
    /* Eight at a time without a branch; what is too much is overwritten by the next
     * block. */
    for (unsigned done = 0; done < n; done += 8) {
        for (unsigned i = 0; i < 8; i++) {
            out[done + i] = (uint16_t)(at + _tzcnt_u64(tokens));
            tokens = _blsr_u64(tokens);
        }
    }
}

SQRL_AVX2 ALWAYS_INLINE void block_avx2(struct sqrl_json_scan *scan, const uint8_t *p,
                                        size_t at) {
    __m256i v0 = _mm256_loadu_si256((const __m256i *)p);
    __m256i v1 = _mm256_loadu_si256((const __m256i *)(p + 32));
    __m256i c0 = classes_of(v0), c1 = classes_of(v1);
    struct block b = {.quote = equal_to(v0, v1, '"'),
                      .backslash = equal_to(v0, v1, '\\'),
                      .mark = in_class(c0, c1, 1 | 2 | 4),
                      .space = in_class(c0, c1, 8 | 16),
                      .newline = scan->lines ? equal_to(v0, v1, '\n') : 0,
                      .control = below_32(v0, v1),
                      .high = mask_of(v0, v1)};
    uint64_t quote = b.quote & ~escaped_bytes(b.backslash, &scan->escaped);
    __m128i product = _mm_clmulepi64_si128(_mm_set_epi64x(0, (int64_t)quote),
                                           _mm_set1_epi8((char)0xff), 0);
    uint64_t string = (uint64_t)_mm_cvtsi128_si64(product) ^ scan->string;
    scan->string = (uint64_t)((int64_t)string >> 63);
    put_tokens(scan, block_tokens(scan, &b, quote, string, at / 64), at);
}

SQRL_AVX2 static void scan_avx2(struct sqrl_json_scan *scan, size_t window) {
    scan_window(scan, window, block_avx2);
}
#endif

sqrl_json_scan_fn sqrl_json_scan_kernel(void) {
#ifdef SQRL_AVX2
    if (sqrl_cpu_avx2() && __builtin_cpu_supports("pclmul"))
        return scan_avx2;
#endif
    return sqrl_json_scan_scalar;
}
