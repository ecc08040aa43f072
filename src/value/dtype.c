/* dtype.c - NumPy's numeric element types: sizes, names, type strings. */
#include "value/value.h"

struct dtype_row {
    const char *name;
    const char *code; /* the array protocol's kind and size, without the byte order */
    uint8_t size;
};

static const struct dtype_row DTYPES[SQRL_DTYPE_COUNT] = {
    [SQRL_DTYPE_OTHER] = {"other", "", 0},
    [SQRL_DTYPE_BOOL] = {"bool", "b1", 1},
    [SQRL_DTYPE_INT8] = {"int8", "i1", 1},
    [SQRL_DTYPE_INT16] = {"int16", "i2", 2},
    [SQRL_DTYPE_INT32] = {"int32", "i4", 4},
    [SQRL_DTYPE_INT64] = {"int64", "i8", 8},
    [SQRL_DTYPE_UINT8] = {"uint8", "u1", 1},
    [SQRL_DTYPE_UINT16] = {"uint16", "u2", 2},
    [SQRL_DTYPE_UINT32] = {"uint32", "u4", 4},
    [SQRL_DTYPE_UINT64] = {"uint64", "u8", 8},
    [SQRL_DTYPE_FLOAT16] = {"float16", "f2", 2},
    [SQRL_DTYPE_FLOAT32] = {"float32", "f4", 4},
    [SQRL_DTYPE_FLOAT64] = {"float64", "f8", 8},
    [SQRL_DTYPE_COMPLEX64] = {"complex64", "c8", 8},
    [SQRL_DTYPE_COMPLEX128] = {"complex128", "c16", 16},
};

size_t sqrl_dtype_size(enum sqrl_dtype dtype) {
    return (unsigned)dtype < SQRL_DTYPE_COUNT ? DTYPES[dtype].size : 0;
}

const char *sqrl_dtype_name(enum sqrl_dtype dtype) {
    return DTYPES[(unsigned)dtype < SQRL_DTYPE_COUNT ? dtype : SQRL_DTYPE_OTHER].name;
}

const char *sqrl_dtype_code(enum sqrl_dtype dtype) {
    return DTYPES[(unsigned)dtype < SQRL_DTYPE_COUNT ? dtype : SQRL_DTYPE_OTHER].code;
}

static bool same(const char *text, size_t size, const char *name) {
    return strlen(name) == size && memcmp(text, name, size) == 0;
}

enum sqrl_dtype sqrl_dtype_parse(const char *text, size_t size, bool *swapped) {
    bool big = false;
    if (swapped)
        *swapped = false;
    for (int i = 1; i < SQRL_DTYPE_COUNT; i++)
        if (same(text, size, DTYPES[i].name))
            return (enum sqrl_dtype)i;
    if (size && memchr("<>|=", text[0], 4)) {
        big = text[0] == '>';
        text++;
        size--;
    }
    for (int i = 1; i < SQRL_DTYPE_COUNT; i++) {
        if (!same(text, size, DTYPES[i].code))
            continue;
        if (swapped)
            *swapped = big && DTYPES[i].size > 1;
        return (enum sqrl_dtype)i;
    }
    return SQRL_DTYPE_OTHER;
}
