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

/* What goes from block to block, in registers within a window. */
struct carry {
    uint64_t escaped, string, scalar, special;
    uint16_t *out; /* the next token's place */
};

struct block {
    uint64_t quote, backslash;
    uint64_t mark;  /* brackets, comma, colon */
    uint64_t space; /* the four kinds of white space */
    uint64_t newline;
    uint64_t odd; /* below 32 or above 127 */
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

/* What is shared by the twins: from class masks to the mask of tokens. `string` is the
 * inside of strings with their opening quotes. */
ALWAYS_INLINE uint64_t block_tokens(struct sqrl_json_scan *scan, struct carry *c,
                                    const struct block *b, uint64_t quote,
                                    uint64_t string, size_t word) {
    uint64_t scalar = ~(b->mark | b->space | quote);
    uint64_t start = scalar & ~(scalar << 1 | c->scalar);
    c->scalar = scalar >> 63;
    c->string = (uint64_t)((int64_t)string >> 63);
    uint64_t special = string & (b->backslash | b->odd);
    scan->special[word] = special;
    c->special |= special;
    scan->escape[word] = string & b->backslash;
    return ((b->mark | start | b->newline) & ~string) | quote;
}

/* --- scalar twin --- */
enum { QUOTE = 1, BACKSLASH = 2, MARK = 4, SPACE = 8, NEWLINE = 16 };

/* 0x0c and 0x1a as the other twin has them; see MARKS. */
static const uint8_t CLASS[256] = {
    ['\t'] = SPACE,     ['\n'] = SPACE | NEWLINE,
    ['\r'] = SPACE,     [' '] = SPACE,
    ['"'] = QUOTE,      ['{'] = MARK,
    ['}'] = MARK,       ['['] = MARK,
    ['\\'] = BACKSLASH, [']'] = MARK,
    [':'] = MARK,       [','] = MARK,
    [0x0c] = MARK,      [0x1a] = MARK,
};

/* One bit of each of eight bytes, side by side: the product moves bit 8k to 56 + k. */
ALWAYS_INLINE uint64_t gather(uint64_t v, unsigned bit) {
    return (v >> bit & UINT64_C(0x0101010101010101)) * UINT64_C(0x0102040810204080) >> 56;
}

ALWAYS_INLINE void load_scalar(const uint8_t *p, struct block *b, bool lines) {
    memset(b, 0, sizeof *b);
    for (unsigned i = 0; i < 64; i += 8) {
        uint64_t bytes = sqrl_load_le64(p + i), classes = 0;
        for (unsigned k = 0; k < 8; k++)
            classes |= (uint64_t)CLASS[p[i + k]] << (8 * k);
        /* Bit 7 of the sum is set where the lower seven are 32 or more. */
        uint64_t sum =
            (bytes & UINT64_C(0x7f7f7f7f7f7f7f7f)) + UINT64_C(0x6060606060606060);
        b->quote |= gather(classes, 0) << i;
        b->backslash |= gather(classes, 1) << i;
        b->mark |= gather(classes, 2) << i;
        b->space |= gather(classes, 3) << i;
        b->newline |= gather(classes, 4) << i;
        b->odd |= gather(~sum | bytes, 7) << i;
    }
    if (!lines)
        b->newline = 0;
}

ALWAYS_INLINE void block_scalar(struct sqrl_json_scan *scan, struct carry *c,
                                const uint8_t *p, size_t at) {
    struct block b;
    load_scalar(p, &b, scan->lines);
    uint64_t quote = b.quote & ~escaped_bytes(b.backslash, &c->escaped);
    uint64_t string = quote;
    for (unsigned shift = 1; shift < 64; shift *= 2)
        string ^= string << shift;
    string ^= c->string;
    uint64_t tokens = block_tokens(scan, c, &b, quote, string, at / 64);
    while (tokens) {
        *c->out++ = (uint16_t)(at + (size_t)__builtin_ctzll(tokens));
        tokens &= tokens - 1;
    }
}

typedef void (*block_fn)(struct sqrl_json_scan *scan, struct carry *c, const uint8_t *p,
                         size_t at);

ALWAYS_INLINE void scan_window(struct sqrl_json_scan *scan, size_t window,
                               block_fn block) {
    struct carry c = {scan->escaped, scan->string, scan->scalar, 0, scan->index};
    uint8_t padded[64];
    size_t used = SQRL_MIN(scan->size - scan->pos, window), at = 0;
    const uint8_t *p = scan->bytes + scan->pos;
    for (; at + 64 <= used; at += 64)
        block(scan, &c, p + at, at);
    if (at < used) { /* the last bytes of the input, filled up with spaces */
        memset(padded, ' ', sizeof padded);
        memcpy(padded, p + at, used - at);
        block(scan, &c, padded, at);
    }
    scan->escaped = c.escaped;
    scan->string = c.string;
    scan->scalar = c.scalar;
    scan->any_special = c.special != 0;
    scan->count = (uint32_t)(c.out - scan->index);
    scan->base = scan->pos;
    scan->pos += used;
}

void sqrl_json_scan_scalar(struct sqrl_json_scan *scan, size_t window) {
    scan_window(scan, window, block_scalar);
}

/* --- AVX2 twin --- */
#ifdef SQRL_AVX2
/* By low nibble, the one byte that may be a mark or white space. A mark is compared with
 * bit 5 set, which makes [ of { and ] of }; that 0x0c and 0x1a pass for , and : then does
 * no harm, since stage 2 looks at the byte. */
#define MARKS 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ':', '{', ',', '}', 0, 0
#define SPACES ' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t', '\n', 0, 0, '\r', 0, 0

SQRL_AVX2 ALWAYS_INLINE uint64_t mask_of(__m256i a, __m256i b) {
    return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b)
                                                   << 32;
}

SQRL_AVX2 ALWAYS_INLINE uint64_t equal_to(__m256i a, __m256i b, char c) {
    __m256i v = _mm256_set1_epi8(c);
    return mask_of(_mm256_cmpeq_epi8(a, v), _mm256_cmpeq_epi8(b, v));
}

SQRL_AVX2 ALWAYS_INLINE uint64_t marks(__m256i a, __m256i b) {
    const __m256i table = _mm256_setr_epi8(MARKS, MARKS), bit = _mm256_set1_epi8(0x20);
    return mask_of(
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, a), _mm256_or_si256(a, bit)),
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, b), _mm256_or_si256(b, bit)));
}

SQRL_AVX2 ALWAYS_INLINE uint64_t spaces(__m256i a, __m256i b) {
    const __m256i table = _mm256_setr_epi8(SPACES, SPACES);
    return mask_of(_mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, a), a),
                   _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, b), b));
}

/* Bytes below 32 or above 127: as signed numbers they are all below 32. */
SQRL_AVX2 ALWAYS_INLINE uint64_t not_printable(__m256i a, __m256i b) {
    __m256i limit = _mm256_set1_epi8(32);
    return mask_of(_mm256_cmpgt_epi8(limit, a), _mm256_cmpgt_epi8(limit, b));
}

/* Writes eight places without a branch; what is too much is overwritten later. */
SQRL_AVX2 ALWAYS_INLINE uint64_t put_eight(uint16_t *out, uint64_t tokens, size_t at) {
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (uint16_t)(at + _tzcnt_u64(tokens));
        /* Or compilers gather eight places in a vector, which is slower. */
        __asm__("" : "+m"(out[i]));
        tokens = _blsr_u64(tokens);
    }
    return tokens;
}

SQRL_AVX2 ALWAYS_INLINE void put_tokens(struct carry *c, uint64_t tokens, size_t at) {
    uint16_t *out = c->out;
    unsigned n = (unsigned)__builtin_popcountll(tokens);
    tokens = put_eight(out, tokens, at);
    if (SQRL_UNLIKELY(n > 8)) {
        tokens = put_eight(out + 8, tokens, at);
        if (SQRL_UNLIKELY(n > 16))
            for (unsigned done = 16; done < n; done += 8)
                tokens = put_eight(out + done, tokens, at);
    }
    c->out = out + n;
}

SQRL_AVX2 ALWAYS_INLINE void block_avx2(struct sqrl_json_scan *scan, struct carry *c,
                                        const uint8_t *p, size_t at) {
    __m256i v0 = _mm256_loadu_si256((const __m256i *)p);
    __m256i v1 = _mm256_loadu_si256((const __m256i *)(p + 32));
    struct block b = {.quote = equal_to(v0, v1, '"'),
                      .backslash = equal_to(v0, v1, '\\'),
                      .mark = marks(v0, v1),
                      .space = spaces(v0, v1),
                      .newline = scan->lines ? equal_to(v0, v1, '\n') : 0,
                      .odd = not_printable(v0, v1)};
    uint64_t quote = b.quote & ~escaped_bytes(b.backslash, &c->escaped);
    __m128i product = _mm_clmulepi64_si128(_mm_set_epi64x(0, (int64_t)quote),
                                           _mm_set1_epi8((char)0xff), 0);
    uint64_t string = (uint64_t)_mm_cvtsi128_si64(product) ^ c->string;
    put_tokens(c, block_tokens(scan, c, &b, quote, string, at / 64), at);
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
