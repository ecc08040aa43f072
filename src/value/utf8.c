/* utf8.c - strict UTF-8 (RFC 3629): no surrogates, no overlong forms, nothing above
 * U+10FFFF.
 *
 * Two twins behind one pointer. Both run over ASCII in wide steps and fall into the same
 * character-wise check where a byte has its high bit set.
 */
#include "value/value.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define SQRL_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt")))
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

static bool utf8_scalar(const uint8_t *p, size_t size, bool *ascii) {
    size_t i = ascii_scalar(p, size);
    *ascii = i == size;
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

#ifdef SQRL_AVX2
SQRL_AVX2 static size_t ascii_avx2(const uint8_t *p, size_t size) {
    size_t i = 0;
    for (; size - i >= 32; i += 32) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(p + i));
        unsigned mask = (unsigned)_mm256_movemask_epi8(v);
        if (mask)
            return i + (size_t)__builtin_ctz(mask);
    }
    return i + ascii_scalar(p + i, size - i);
}

SQRL_AVX2 static bool utf8_avx2(const uint8_t *p, size_t size, bool *ascii) {
    size_t i = ascii_avx2(p, size);
    *ascii = i == size;
    while (i < size) {
        size_t n = character_size(p + i, size - i);
        if (!n)
            return false;
        i += n;
        if (n == 1)
            i += ascii_avx2(p + i, size - i);
    }
    return true;
}
#endif

typedef bool (*utf8_fn)(const uint8_t *p, size_t size, bool *ascii);
static bool utf8_first(const uint8_t *p, size_t size, bool *ascii);
static utf8_fn utf8_kernel = utf8_first;

/* The first call chooses; threads that race here store the same pointer. */
static bool utf8_first(const uint8_t *p, size_t size, bool *ascii) {
    utf8_fn kernel = utf8_scalar;
#ifdef SQRL_AVX2
    if (sqrl_cpu_avx2())
        kernel = utf8_avx2;
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
