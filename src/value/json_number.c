/* json_number.c - decimal text to integers and correctly rounded doubles.
 *
 * A decimal is read as w * 10^q with w of at most 19 digits. Three ways from there:
 * 1. w and 10^|q| are exact doubles: one multiplication or division rounds once (Clinger,
 *    "How to read floating point numbers accurately", 1990).
 * 2. The 64x128-bit product of w and a table entry decides (Lemire, "Number Parsing at a
 *    Gigabyte per Second", 2021; that it always does for w < 2^64 is shown by Mushtak and
 *    Lemire, "Fast Number Parsing Without Fallback", 2022).
 * 3. More than 19 digits: if w and w + 1 give the same double, that is it; else the C
 *    library reads the text, in the C locale.
 */
#include "value/json.h"

#include <locale.h>
#include <stdlib.h>

#define MAX_EXACT_DIGITS 19

__extension__ typedef unsigned __int128 u128;

/* Reads digits into *w (which may wrap: the caller counts). Returns the byte behind. */
static inline const uint8_t *read_digits(const uint8_t *p, const uint8_t *end,
                                         uint64_t *w) {
    uint64_t value = *w;
    while (end - p >= 8) {
        uint64_t v = sqrl_load_le64(p);
        if (!sqrl_json_eight_digits(v))
            break;
        value = value * 100000000 + sqrl_json_eight_value(v);
        p += 8;
    }
    for (; p < end && sqrl_json_is_digit(*p); p++)
        value = value * 10 + (uint64_t)(*p - '0');
    *w = value;
    return p;
}

static inline double double_of(uint64_t bits, bool negative) {
    double f;
    bits |= (uint64_t)negative << 63;
    memcpy(&f, &bits, 8);
    return f;
}

#define INFINITY_BITS (UINT64_C(0x7ff) << 52)

/* The bits of w * 10^q, correctly rounded; w != 0. The product's upper word holds the
 * mantissa, two bits for rounding, and below them bits that tell whether it is exact. */
static uint64_t eisel_lemire(uint64_t w, int64_t q) {
    if (q < SQRL_JSON_POWER_MIN)
        return 0;
    if (q > 308)
        return INFINITY_BITS;
    int zeros = __builtin_clzll(w);
    w <<= zeros;
    const uint64_t *power = SQRL_JSON_POWERS[q - SQRL_JSON_POWER_MIN];
    u128 product = (u128)w * power[0];
    if (((uint64_t)(product >> 64) & 0x1ff) == 0x1ff)
        product += (uint64_t)((u128)w * power[1] >> 64);
    uint64_t upper = (uint64_t)(product >> 64), lower = (uint64_t)product;
    int top = (int)(upper >> 63);
    uint64_t mantissa = upper >> (top + 9);
    /* 217706 / 2^16 is log2(10) closely enough in this range. */
    int exponent = (int)((217706 * q) >> 16) + 63 + 1023 + top - zeros;
    if (exponent <= 0) { /* subnormal or zero */
        if (1 - exponent >= 64)
            return 0;
        mantissa >>= 1 - exponent;
        mantissa = (mantissa + (mantissa & 1)) >> 1;
        return mantissa; /* a carry into bit 52 makes the smallest normal number */
    }
    /* A tie goes to even; it can occur only where 5^q or 5^-q fits a word. */
    if (lower <= 1 && q >= -4 && q <= 23 && (mantissa & 3) == 1 &&
        mantissa << (top + 9) == upper)
        mantissa &= ~UINT64_C(1);
    mantissa = (mantissa + (mantissa & 1)) >> 1;
    if (mantissa >= UINT64_C(1) << 53) {
        mantissa = UINT64_C(1) << 52;
        exponent++;
    }
    if (exponent >= 0x7ff)
        return INFINITY_BITS;
    return (mantissa & ~(UINT64_C(1) << 52)) | (uint64_t)exponent << 52;
}

static const double EXACT_POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

double sqrl_json_decimal(uint64_t w, int64_t q, bool negative) {
    if (w <= UINT64_C(1) << 53 && q >= -22 && q <= 22) {
        double f = (double)w;
        f = q < 0 ? f / EXACT_POWERS[-q] : f * EXACT_POWERS[q];
        return negative ? -f : f;
    }
    return double_of(w ? eisel_lemire(w, q) : 0, negative);
}

/* The C library's reading, for the few decimals that neither way above decides. */
static bool convert_slowly(const uint8_t *text, size_t size, double *out) {
    char room[512];
    char *copy = size < sizeof room ? room : sqrl_malloc(size + 1, "number", NULL);
    locale_t c_locale = copy ? newlocale(LC_ALL_MASK, "C", (locale_t)0) : (locale_t)0;
    if (c_locale) {
        memcpy(copy, text, size);
        copy[size] = 0;
        *out = strtod_l(copy, NULL, c_locale);
        freelocale(c_locale);
    }
    if (copy != room)
        free(copy);
    return c_locale != (locale_t)0;
}

/* A decimal taken apart: digits [digits, point), fraction [point + 1, fraction_end). */
struct decimal {
    const uint8_t *text, *digits, *point, *fraction_end, *stop;
    uint64_t w; /* of all digits, wrapped when there are more than 19 */
    int64_t exponent;
    bool negative;
};

/* More than 19 digits: the first 19 that count, and how many of them lie behind the
 * point. */
static bool convert_long(const struct decimal *d, double *out) {
    uint64_t w = 0;
    int64_t q = d->exponent;
    int kept = 0;
    bool cut = false;
    for (const uint8_t *p = d->digits; p < d->fraction_end; p++) {
        if (p == d->point)
            continue;
        bool fraction = p > d->point;
        if (kept < MAX_EXACT_DIGITS) {
            w = w * 10 + (uint64_t)(*p - '0');
            kept += w != 0;
            q -= fraction;
        } else {
            cut |= *p != '0';
            q += !fraction;
        }
    }
    *out = sqrl_json_decimal(w, q, d->negative);
    if (!cut)
        return true;
    double above = sqrl_json_decimal(w + 1, q, d->negative);
    if (memcmp(out, &above, sizeof above) == 0)
        return true;
    return convert_slowly(d->text, (size_t)(d->stop - d->text), out);
}

static enum sqrl_json_number_status read_exponent(struct decimal *d, const uint8_t *p,
                                                  const uint8_t *end) {
    bool negative = false;
    int64_t e = 0;
    if (p < end && (*p == '+' || *p == '-'))
        negative = *p++ == '-';
    d->stop = p;
    if (p == end)
        return SQRL_JSON_NUMBER_CUT;
    if (!sqrl_json_is_digit(*p))
        return SQRL_JSON_NUMBER_DIGIT;
    for (; p < end && sqrl_json_is_digit(*p); p++)
        e = e < INT64_C(1) << 40 ? e * 10 + (*p - '0') : e;
    d->stop = p;
    d->exponent = negative ? -e : e;
    return SQRL_JSON_NUMBER_OK;
}

/* The part from the point or the e on. */
static enum sqrl_json_number_status read_float(struct decimal *d, const uint8_t *p,
                                               const uint8_t *end, double *out) {
    d->point = p;
    d->fraction_end = p;
    d->exponent = 0;
    if (*p == '.') {
        const uint8_t *behind = read_digits(p + 1, end, &d->w);
        d->stop = d->fraction_end = behind;
        if (behind == p + 1)
            return behind == end ? SQRL_JSON_NUMBER_CUT : SQRL_JSON_NUMBER_DIGIT;
        p = behind;
    }
    d->stop = p;
    if (p < end && (*p | 0x20) == 'e') {
        enum sqrl_json_number_status status = read_exponent(d, p + 1, end);
        if (status != SQRL_JSON_NUMBER_OK)
            return status;
    }
    ptrdiff_t digits =
        d->fraction_end - d->digits; /* the point counts as one: no matter */
    if (digits <= MAX_EXACT_DIGITS) {
        ptrdiff_t fraction = d->fraction_end - d->point;
        *out = sqrl_json_decimal(d->w, d->exponent - (fraction ? fraction - 1 : 0),
                                 d->negative);
        return SQRL_JSON_NUMBER_OK;
    }
    return convert_long(d, out) ? SQRL_JSON_NUMBER_OK : SQRL_JSON_NUMBER_MEMORY;
}

/* True when the integer of `size` digits, which gave w modulo 2^64, is below 2^64: of 20
 * digits those are the ones with a leading 1 that did not wrap. */
static inline bool fits_64_bits(const uint8_t *digits, ptrdiff_t size, uint64_t w) {
    return size <= 19 ||
           (size == 20 && digits[0] == '1' && w >= UINT64_C(10000000000000000000));
}

static enum sqrl_json_number_status
put_integer(const struct decimal *d, const uint8_t *origin, struct sqrl_node *node) {
    ptrdiff_t digits = d->stop - d->digits;
    uint64_t limit = (uint64_t)INT64_MAX + d->negative;
    if (SQRL_LIKELY(fits_64_bits(d->digits, digits, d->w))) {
        if (SQRL_LIKELY(d->w <= limit)) {
            sqrl_node_put(node, SQRL_INT, 0, 0, 0, d->negative ? 0 - d->w : d->w);
            return SQRL_JSON_NUMBER_OK;
        }
        if (!d->negative) {
            sqrl_node_put(node, SQRL_UINT, 0, 0, 0, d->w);
            return SQRL_JSON_NUMBER_OK;
        }
    }
    if (digits > SQRL_JSON_MAX_DIGITS)
        return SQRL_JSON_NUMBER_TOO_LONG;
    sqrl_node_put(node, SQRL_NUMBER, 0, 0, (uint32_t)(d->stop - d->text),
                  (uint64_t)(d->text - origin));
    return SQRL_JSON_NUMBER_OK;
}

enum sqrl_json_number_status
sqrl_json_number_read(const uint8_t *text, const uint8_t *end, const uint8_t *origin,
                      struct sqrl_node *node, const uint8_t **stop) {
    struct decimal d = {.text = text, .digits = text, .negative = *text == '-'};
    d.digits += d.negative;
    *stop = d.digits;
    if (d.digits == end)
        return SQRL_JSON_NUMBER_CUT;
    const uint8_t *p = d.digits; /* mostly few digits: one at a time */
    for (; p < end && sqrl_json_is_digit(*p); p++)
        d.w = d.w * 10 + (uint64_t)(*p - '0');
    *stop = d.stop = p;
    if (SQRL_UNLIKELY(p == d.digits))
        return SQRL_JSON_NUMBER_DIGIT;
    if (SQRL_UNLIKELY(*d.digits == '0' && p > d.digits + 1)) {
        *stop = d.digits + 1;
        return SQRL_JSON_NUMBER_ZERO;
    }
    if (p == end || (*p != '.' && (*p | 0x20) != 'e'))
        return put_integer(&d, origin, node);
    double value = 0;
    enum sqrl_json_number_status status = read_float(&d, p, end, &value);
    *stop = d.stop;
    if (status == SQRL_JSON_NUMBER_OK)
        sqrl_node_put(node, SQRL_FLOAT, 0, 0, 0, sqrl_double_bits(value));
    return status;
}
