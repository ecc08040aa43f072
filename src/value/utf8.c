/* utf8.c - strict UTF-8 (RFC 3629): no surrogates, no overlong forms, nothing above
 * U+10FFFF.
 *
 * Two twins behind one pointer. Both run over leading ASCII in wide steps. The scalar one
 * then checks character by character. The AVX2 one finds faults 32 bytes at a time, by
 * the method of Keiser and Lemire (Validating UTF-8 In Less Than One Instruction Per
 * Byte, 2021): which faults a byte and the one before it may form together is looked up
 * three times, by nibbles that decide, and a fault is what all three lookups agree on.
 */
#include "value/value.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define HIGH_BITS UINT64_C(0x8080808080808080)

/* Bytes of the valid character at p (n >= 1 bytes remain), 0 when it is none. */
static inline size_t character_size(const uint8_t *p, size_t n) {
    uint8_t a = p[0];
    if (a < 0x80)
        return 1;
    if (a < 0xc2 || n < 2)
        return 0;
    if (a < 0xe0)
        return (p[1] & 0xc0) == 0x80 ? 2 : 0;
    if (n < 3 || (p[2] & 0xc0) != 0x80)
        return 0;
    if (a < 0xf0) {
        uint8_t low = a == 0xe0 ? 0xa0 : 0x80;
        uint8_t high = a == 0xed ? 0x9f : 0xbf;
        return p[1] >= low && p[1] <= high ? 3 : 0;
    }
    if (a > 0xf4 || n < 4 || (p[3] & 0xc0) != 0x80)
        return 0;
    uint8_t low = a == 0xf0 ? 0x90 : 0x80;
    uint8_t high = a == 0xf4 ? 0x8f : 0xbf;
    return p[1] >= low && p[1] <= high ? 4 : 0;
}

size_t sqrl_utf8_fault(const uint8_t *bytes, size_t size) {
    size_t i = 0;
    while (i < size) {
        size_t n = character_size(bytes + i, size - i);
        if (!n)
            return i;
        i += n;
    }
    return size;
}

static size_t ascii_scalar(const uint8_t *p, size_t size) {
    size_t i = 0;
    for (; size - i >= 8; i += 8)
        if (sqrl_load_le64(p + i) & HIGH_BITS)
            break;
    while (i < size && p[i] < 0x80)
        i++;
    return i;
}

/* The rest of a text from a character boundary on. */
static bool valid_from(const uint8_t *p, size_t size, size_t i) {
    while (i < size) {
        size_t n = character_size(p + i, size - i);
        if (!n)
            return false;
        i += n;
        if (n == 1)
            i += ascii_scalar(p + i, size - i);
    }
    return true;
}

bool sqrl_utf8_scalar(const uint8_t *p, size_t size, bool *ascii) {
    size_t i = ascii_scalar(p, size);
    *ascii = i == size;
    return valid_from(p, size, i);
}

#ifdef SQRL_HAVE_AVX2
SQRL_TARGET_AVX2 static inline __m256i load(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

SQRL_TARGET_AVX2 static size_t ascii_avx2(const uint8_t *p, size_t size) {
    if (size < 32)
        return ascii_scalar(p, size);
    size_t i = 0;
    for (; size - i >= 32; i += 32) {
        unsigned mask = (unsigned)_mm256_movemask_epi8(load(p + i));
        if (mask)
            return i + (size_t)__builtin_ctz(mask);
    }
    unsigned mask = (unsigned)_mm256_movemask_epi8(load(p + size - 32)); /* some twice */
    return mask ? size - 32 + (size_t)__builtin_ctz(mask) : size;
}

/* What can be wrong with two bytes in a row. */
#define SHORT 0x01     /* a lead byte, then no continuation */
#define LONG 0x02      /* ASCII, then a continuation */
#define OVER3 0x04     /* E0, then 80..9F: an overlong form */
#define SURROGATE 0x08 /* ED, then A0..BF */
#define OVER2 0x10     /* C0 or C1 */
#define LARGE 0x20     /* F4, then 90..BF; or F5..FF, then 90..BF */
#define OVER4 0x40     /* F0, then 80..8F; or F5..FF, then 80..8F */
#define CONTS 0x80 /* two continuations: right only where a longer character wants it */

/* Whatever the first byte's low nibble is, these depend on other nibbles alone. */
#define ANY_LOW (SHORT | LONG | CONTS)
#define TWICE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)
#define B(x) ((char)(x))

/* Non-zero bytes where the 32 characters' bytes `now` are at fault; `back1` to `back3`
 * are the bytes 1 to 3 places before each. A character that goes on behind `now` is no
 * fault here. */
SQRL_TARGET_AVX2 static inline __m256i block_faults(__m256i now, __m256i back1,
                                                    __m256i back2, __m256i back3) {
    const __m256i first_high = TWICE(
        LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, B(CONTS), B(CONTS), B(CONTS),
        B(CONTS), SHORT | OVER2, SHORT, SHORT | OVER3 | SURROGATE, SHORT | LARGE | OVER4);
    const __m256i first_low =
        TWICE(B(ANY_LOW | OVER2 | OVER3 | OVER4), B(ANY_LOW | OVER2), B(ANY_LOW),
              B(ANY_LOW), B(ANY_LOW | LARGE), B(ANY_LOW | LARGE | OVER4),
              B(ANY_LOW | LARGE | OVER4), B(ANY_LOW | LARGE | OVER4),
              B(ANY_LOW | LARGE | OVER4), B(ANY_LOW | LARGE | OVER4),
              B(ANY_LOW | LARGE | OVER4), B(ANY_LOW | LARGE | OVER4),
              B(ANY_LOW | LARGE | OVER4), B(ANY_LOW | LARGE | OVER4 | SURROGATE),
              B(ANY_LOW | LARGE | OVER4), B(ANY_LOW | LARGE | OVER4));
    const __m256i second_high = TWICE(
        SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT,
        B(LONG | CONTS | OVER2 | OVER3 | OVER4), B(LONG | CONTS | OVER2 | OVER3 | LARGE),
        B(LONG | CONTS | OVER2 | SURROGATE | LARGE),
        B(LONG | CONTS | OVER2 | SURROGATE | LARGE), SHORT, SHORT, SHORT, SHORT);
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i high1 = _mm256_and_si256(_mm256_srli_epi16(back1, 4), nibble);
    __m256i low1 = _mm256_and_si256(back1, nibble);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(now, 4), nibble);
    __m256i pair =
        _mm256_and_si256(_mm256_and_si256(_mm256_shuffle_epi8(first_high, high1),
                                          _mm256_shuffle_epi8(first_low, low1)),
                         _mm256_shuffle_epi8(second_high, high));
    /* third bytes of E0.. and F0.., fourth of F0..: there CONTS must be, nowhere else */
    __m256i third = _mm256_subs_epu8(back2, _mm256_set1_epi8(0xe0 - 0x80));
    __m256i fourth = _mm256_subs_epu8(back3, _mm256_set1_epi8(0xf0 - 0x80));
    __m256i wanted =
        _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(B(0x80)));
    return _mm256_xor_si256(pair, wanted);
}

SQRL_TARGET_AVX2 static inline __m256i faults_at(const uint8_t *p) {
    return block_faults(load(p), load(p - 1), load(p - 2), load(p - 3));
}

/* The first block of a text: ASCII is taken to stand before it. */
SQRL_TARGET_AVX2 static inline __m256i faults_at_start(const uint8_t *p) {
    __m256i now = load(p);
    __m256i between = _mm256_permute2x128_si256(_mm256_setzero_si256(), now, 0x21);
    return block_faults(now, _mm256_alignr_epi8(now, between, 15),
                        _mm256_alignr_epi8(now, between, 14),
                        _mm256_alignr_epi8(now, between, 13));
}

SQRL_TARGET_AVX2 bool sqrl_utf8_avx2(const uint8_t *p, size_t size, bool *ascii) {
    size_t i = ascii_avx2(p, size);
    *ascii = i == size;
    if (*ascii)
        return true;
    if (size < 32 + 3)
        return valid_from(p, size, i);
    __m256i faults = _mm256_setzero_si256();
    if (i < 3) {
        faults = faults_at_start(p);
        i = 32;
    }
    for (; size - i >= 32; i += 32)
        faults = _mm256_or_si256(faults, faults_at(p + i));
    if (i < size) /* some bytes twice */
        faults = _mm256_or_si256(faults, faults_at(p + size - 32));
    bool cut = p[size - 1] >= 0xc0 || p[size - 2] >= 0xe0 || p[size - 3] >= 0xf0;
    return !cut && _mm256_testz_si256(faults, faults);
}
#endif

typedef bool (*utf8_fn)(const uint8_t *p, size_t size, bool *ascii);
static bool utf8_first(const uint8_t *p, size_t size, bool *ascii);
static utf8_fn utf8_kernel = utf8_first;

/* The first call chooses; threads that race here store the same pointer. */
static bool utf8_first(const uint8_t *p, size_t size, bool *ascii) {
    utf8_fn kernel = sqrl_utf8_scalar;
#ifdef SQRL_HAVE_AVX2
    if (sqrl_cpu_avx2())
        kernel = sqrl_utf8_avx2;
#endif
    __atomic_store_n(&utf8_kernel, kernel, __ATOMIC_RELAXED);
    return kernel(p, size, ascii);
}

bool sqrl_utf8_valid(const uint8_t *bytes, size_t size, bool *ascii) {
    bool all_ascii;
    bool valid = __atomic_load_n(&utf8_kernel, __ATOMIC_RELAXED)(bytes, size, &all_ascii);
    if (ascii)
        *ascii = all_ascii;
    return valid;
}
