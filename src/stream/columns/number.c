/* number.c - plain numbers (from MessagePack and JSON) as elements of columns. */
#include "stream/columns/columns.h"

#include <math.h>

/* Whole numbers up to this are exact in a float type; 0: not a float type. */
static int64_t exact_limit(enum sqrl_dtype dtype) {
    switch (dtype) {
    case SQRL_DTYPE_FLOAT16:
        return INT64_C(1) << 11;
    case SQRL_DTYPE_FLOAT32:
        return INT64_C(1) << 24;
    case SQRL_DTYPE_FLOAT64:
        return INT64_C(1) << 53;
    default:
        return 0;
    }
}

static bool integer_fits(enum sqrl_dtype dtype, int64_t i) {
    switch (dtype) {
    case SQRL_DTYPE_INT8:
        return i == (int8_t)i;
    case SQRL_DTYPE_INT16:
        return i == (int16_t)i;
    case SQRL_DTYPE_INT32:
        return i == (int32_t)i;
    case SQRL_DTYPE_INT64:
        return true;
    case SQRL_DTYPE_UINT8:
        return i == (uint8_t)i;
    case SQRL_DTYPE_UINT16:
        return i == (uint16_t)i;
    case SQRL_DTYPE_UINT32:
        return i == (uint32_t)i;
    case SQRL_DTYPE_UINT64:
        return i >= 0;
    default:
        return i <= exact_limit(dtype) && i >= -exact_limit(dtype) && exact_limit(dtype);
    }
}

static bool float_fits(enum sqrl_dtype dtype, double f) {
    if (dtype == SQRL_DTYPE_FLOAT64)
        return true;
    if (dtype == SQRL_DTYPE_FLOAT32)
        return !isfinite(f) || isfinite((float)f);
    return dtype == SQRL_DTYPE_FLOAT16 && (!isfinite(f) || fabs(f) < 65520.0);
}

bool sqrl_number_fits(enum sqrl_dtype dtype, const struct sqrl_node *node) {
    switch (node->type) {
    case SQRL_BOOL:
        return dtype == SQRL_DTYPE_BOOL;
    case SQRL_INT:
        return integer_fits(dtype, node->v.i);
    case SQRL_UINT:
        return dtype == SQRL_DTYPE_UINT64;
    case SQRL_FLOAT:
        return float_fits(dtype, node->v.f);
    default:
        return false;
    }
}

/* Rounds to the nearest half, ties to even (IEEE 754). |f| < 65520 or not finite. */
static uint16_t to_half(double f) {
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    double a = fabs(f);
    if (isnan(f))
        return sign | 0x7e00;
    if (isinf(f))
        return sign | 0x7c00;
    if (a < 6.103515625e-05) /* 2^-14: subnormal, steps of 2^-24 */
        return sign | (uint16_t)nearbyint(a * 16777216.0);
    int exponent;
    double mantissa = frexp(a, &exponent); /* [0.5, 1) */
    long m = lrint(mantissa * 2048.0);     /* [1024, 2048] */
    return sign | (uint16_t)(((exponent + 14) << 10) + (m - 1024));
}

static void float_write(enum sqrl_dtype dtype, double f, void *out) {
    float single = (float)f;
    uint16_t half;
    switch (dtype) {
    case SQRL_DTYPE_FLOAT64:
        memcpy(out, &f, 8);
        break;
    case SQRL_DTYPE_FLOAT32:
        memcpy(out, &single, 4);
        break;
    default:
        half = to_half(f);
        memcpy(out, &half, 2);
        break;
    }
}

void sqrl_number_write(enum sqrl_dtype dtype, const struct sqrl_node *node, void *out) {
    if (node->type == SQRL_FLOAT)
        float_write(dtype, node->v.f, out);
    else if (exact_limit(dtype))
        float_write(dtype, (double)node->v.i, out);
    else
        memcpy(out, &node->v.u, sqrl_dtype_size(dtype)); /* little-endian */
}

bool sqrl_pad_element(enum sqrl_dtype dtype, double value, uint8_t out[16]) {
    memset(out, 0, 16);
    if (dtype == SQRL_DTYPE_COMPLEX64 || dtype == SQRL_DTYPE_COMPLEX128) {
        dtype = dtype == SQRL_DTYPE_COMPLEX64 ? SQRL_DTYPE_FLOAT32 : SQRL_DTYPE_FLOAT64;
    }
    struct sqrl_node node = {.type = SQRL_FLOAT, .v.f = value};
    if (!exact_limit(dtype)) { /* a whole number */
        bool bits = dtype == SQRL_DTYPE_BOOL;
        if (value != floor(value) || value < -9223372036854775808.0 ||
            value >= 18446744073709551616.0 || (bits && value != 0 && value != 1))
            return false;
        node.type = bits                             ? SQRL_BOOL
                    : value >= 9223372036854775808.0 ? SQRL_UINT
                                                     : SQRL_INT;
        if (value < 0)
            node.v.i = (int64_t)value;
        else
            node.v.u = (uint64_t)value;
    }
    if (!sqrl_number_fits(dtype, &node))
        return false;
    sqrl_number_write(dtype, &node, out);
    return true;
}

void sqrl_copy_swapped(enum sqrl_dtype dtype, void *to, const void *from, size_t count) {
    size_t size = sqrl_dtype_size(dtype);
    if (dtype == SQRL_DTYPE_COMPLEX64 || dtype == SQRL_DTYPE_COMPLEX128) {
        size /= 2; /* both parts on their own */
        count *= 2;
    }
    const uint8_t *in = from;
    uint8_t *out = to;
    for (size_t i = 0; i < count; i++, in += size, out += size) {
        uint64_t v = 0;
        memcpy(&v, in, size);
        v = __builtin_bswap64(v) >> (64 - 8 * size);
        memcpy(out, &v, size);
    }
}
