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

enum sqrl_dtype sqrl_dtype_of(char kind, unsigned size) {
    static const uint8_t SIGNED[9] = {[1] = SQRL_DTYPE_INT8,
                                      [2] = SQRL_DTYPE_INT16,
                                      [4] = SQRL_DTYPE_INT32,
                                      [8] = SQRL_DTYPE_INT64};
    static const uint8_t UNSIGNED[9] = {[1] = SQRL_DTYPE_UINT8,
                                        [2] = SQRL_DTYPE_UINT16,
                                        [4] = SQRL_DTYPE_UINT32,
                                        [8] = SQRL_DTYPE_UINT64};
    static const uint8_t FLOATS[9] = {
        [2] = SQRL_DTYPE_FLOAT16, [4] = SQRL_DTYPE_FLOAT32, [8] = SQRL_DTYPE_FLOAT64};
    if (kind == 'c' && size == 16)
        return SQRL_DTYPE_COMPLEX128;
    if (size > 8)
        return SQRL_DTYPE_OTHER;
    switch (kind) {
    case 'b':
        return size == 1 ? SQRL_DTYPE_BOOL : SQRL_DTYPE_OTHER;
    case 'i':
        return (enum sqrl_dtype)SIGNED[size];
    case 'u':
        return (enum sqrl_dtype)UNSIGNED[size];
    case 'f':
        return (enum sqrl_dtype)FLOATS[size];
    case 'c':
        return size == 8 ? SQRL_DTYPE_COMPLEX64 : SQRL_DTYPE_OTHER;
    default:
        return SQRL_DTYPE_OTHER;
    }
}

/* "f4" or "c16" behind the byte order. */
static enum sqrl_dtype parse_code(const char *text, size_t size) {
    if (size == 2 && text[1] >= '1' && text[1] <= '9')
        return sqrl_dtype_of(text[0], (unsigned)(text[1] - '0'));
    if (size == 3 && memcmp(text, "c16", 3) == 0)
        return SQRL_DTYPE_COMPLEX128;
    return SQRL_DTYPE_OTHER;
}

enum sqrl_dtype sqrl_dtype_parse(const char *text, size_t size, bool *swapped) {
    bool order =
        size && (text[0] == '<' || text[0] == '>' || text[0] == '|' || text[0] == '=');
    enum sqrl_dtype dtype = parse_code(text + order, size - order);
    if (swapped)
        *swapped = dtype && text[0] == '>' && DTYPES[dtype].size > 1;
    for (int i = 1; !dtype && i < SQRL_DTYPE_COUNT; i++)
        if (strlen(DTYPES[i].name) == size && memcmp(text, DTYPES[i].name, size) == 0)
            dtype = (enum sqrl_dtype)i;
    return dtype;
}
