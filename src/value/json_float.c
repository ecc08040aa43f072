/* json_float.c - the shortest decimal of a double that reads back equal.
 *
 * Schubfach (R. Giulietti, "The Schubfach way to render doubles", 2020): the interval of
 * all reals that round to v is scaled by a power of ten so that it is between 1 and 20
 * long; then the interval holds a multiple of ten (one digit fewer) or at most a few
 * integers, and the one nearest to v is the answer. All is decided on integers that are
 * rounded to odd, which keeps comparisons exact.
 */
#include "value/json.h"

#include <math.h>

__extension__ typedef unsigned __int128 u128;

struct decimal {
    uint64_t digits;
    int exponent;
};

/* c * g / 2^128, its last bit set when something was cut off. */
static uint64_t scale(const uint64_t g[2], uint64_t c) {
    u128 low = (u128)g[1] * c, high = (u128)g[0] * c;
    high += (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

static inline int floor_log2_pow10(int e) {
    return (e * 1741647) >> 19;
}

/* The least 128-bit significand not below 10^k. The table is cut off where it is not
 * exact or already rounded up (see its generator). */
static void power_above(int k, uint64_t g[2]) {
    const uint64_t *t = SQRL_JSON_POWERS[k - SQRL_JSON_POWER_MIN];
    u128 v = (u128)t[0] << 64 | t[1];
    v += k < -27 || k > 55;
    g[0] = (uint64_t)(v >> 64);
    g[1] = (uint64_t)v;
}

static struct decimal shortest(uint64_t fraction, int biased) {
    uint64_t c = biased ? fraction | UINT64_C(1) << 52 : fraction;
    int q = (biased ? biased : 1) - 1075;
    bool even = !(c & 1);
    bool closer = fraction == 0 && biased > 1; /* the lower neighbour is half as far */
    int k = (q * 1262611 - (closer ? 524031 : 0)) >> 22;
    int h = q + floor_log2_pow10(-k) + 1;
    uint64_t g[2];
    power_above(-k, g);
    uint64_t lower = scale(g, (4 * c - 2 + closer) << h) + !even;
    uint64_t value = scale(g, 4 * c << h);
    uint64_t upper = scale(g, (4 * c + 2) << h) - !even;
    uint64_t s = value / 4;
    if (s >= 10) {
        uint64_t tens = s / 10;
        bool below = lower <= 40 * tens, above = 40 * tens + 40 <= upper;
        if (below != above)
            return (struct decimal){tens + above, k + 1};
    }
    bool below = lower <= 4 * s, above = 4 * s + 4 <= upper;
    if (below != above)
        return (struct decimal){s + above, k};
    uint64_t middle = 4 * s + 2;
    bool up = value > middle || (value == middle && (s & 1));
    return (struct decimal){s + up, k};
}

/* Python's repr: positional for 1e-4 <= v < 1e16, else one digit, point, rest, e, sign
 * and at least two digits. `point` is where the decimal point lies, from the first digit.
 */
static char *lay_out(char *out, const char *digits, int size, int point) {
    if (point > 16 || point < -3) {
        int e = point - 1;
        *out++ = digits[0];
        if (size > 1) {
            *out++ = '.';
            memcpy(out, digits + 1, (size_t)size - 1);
            out += size - 1;
        }
        *out++ = 'e';
        *out++ = e < 0 ? '-' : '+';
        e = e < 0 ? -e : e;
        if (e >= 100)
            *out++ = (char)('0' + e / 100);
        *out++ = (char)('0' + e / 10 % 10);
        *out++ = (char)('0' + e % 10);
        return out;
    }
    if (point <= 0) {
        *out++ = '0';
        *out++ = '.';
        for (int i = point; i < 0; i++)
            *out++ = '0';
    }
    for (int i = 0; i < size || i < point; i++) {
        if (i == point && i > 0)
            *out++ = '.';
        *out++ = i < size ? digits[i] : '0';
    }
    if (point >= size) {
        *out++ = '.';
        *out++ = '0';
    }
    return out;
}

static size_t put_name(char *out, const char *name) {
    size_t n = strlen(name);
    memcpy(out, name, n);
    return n;
}

size_t sqrl_json_float_write(double value, char out[SQRL_JSON_FLOAT_BYTES]) {
    if (isnan(value))
        return put_name(out, "NaN");
    if (isinf(value))
        return put_name(out, value < 0 ? "-Infinity" : "Infinity");
    uint64_t bits = sqrl_double_bits(value);
    char *p = out;
    if (bits >> 63)
        *p++ = '-';
    bits &= ~(UINT64_C(1) << 63);
    if (!bits) {
        memcpy(p, "0.0", 3);
        return (size_t)(p + 3 - out);
    }
    struct decimal d = shortest(bits & ((UINT64_C(1) << 52) - 1), (int)(bits >> 52));
    char digits[20];
    int begin = 20;
    while (d.digits % 10 == 0) { /* at least one digit is not 0 */
        d.digits /= 10;
        d.exponent++;
    }
    for (; d.digits; d.digits /= 10)
        digits[--begin] = (char)('0' + d.digits % 10);
    int size = 20 - begin;
    return (size_t)(lay_out(p, digits + begin, size, size + d.exponent) - out);
}
