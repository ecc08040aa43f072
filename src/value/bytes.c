/* bytes.c - the growing byte string that encoders write into. */
#include "value/value.h"

#include <stdlib.h>

#define BYTES_FIRST 256u

void sqrl_bytes_reset(struct sqrl_bytes *bytes) {
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}

int sqrl_bytes_reserve(struct sqrl_bytes *bytes, size_t more, struct sqrl_error *err) {
    size_t need;
    if (sqrl_add_overflow(bytes->size, more, &need) || need > SIZE_MAX / 4)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "a byte string would pass the address space");
    if (need <= bytes->capacity && bytes->data)
        return SQRL_OK;
    size_t capacity = bytes->capacity + bytes->capacity / 2;
    capacity = SQRL_MAX(SQRL_MAX(capacity, need), (size_t)BYTES_FIRST);
    uint8_t *data = sqrl_realloc(bytes->data, capacity, "encoded bytes", err);
    if (!data)
        return SQRL_E_NO_MEMORY;
    bytes->data = data;
    bytes->capacity = capacity;
    return SQRL_OK;
}

int sqrl_bytes_append(struct sqrl_bytes *bytes, const void *data, size_t size,
                      struct sqrl_error *err) {
    int code = sqrl_bytes_reserve(bytes, size, err);
    if (code)
        return code;
    if (size)
        sqrl_bytes_put(bytes, data, size);
    return SQRL_OK;
}
