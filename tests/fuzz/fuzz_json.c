/* JSON, single values and lines: whatever is accepted is written again and read back as
 * the same text; whatever is cut short is left as it was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "sqrl/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sqrl_limits LIMITS = {.max_depth = 600, .max_nodes = 1 << 22};

static uint8_t *copy_of(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    return copy;
}

/* Encodes the value, decodes and encodes that, and compares the two texts. */
static void check_again(const struct sqrl_tape *tape, uint32_t node,
                        const uint8_t *bytes) {
    struct sqrl_bytes first = {0}, second = {0};
    struct sqrl_tape again = {0};
    size_t offset = 0;
    if (sqrl_json_encode(&first, tape->nodes, node, bytes, NULL))
        abort();
    uint8_t *copy = copy_of(first.data, first.size);
    if (sqrl_json_decode(&again, copy, first.size, &offset, SQRL_JSON_NAN, &LIMITS,
                         NULL) ||
        offset != first.size || sqrl_json_encode(&second, again.nodes, 0, copy, NULL) ||
        first.size != second.size || memcmp(first.data, second.data, first.size) != 0)
        abort();
    free(copy);
    sqrl_tape_reset(&again);
    sqrl_bytes_reset(&first);
    sqrl_bytes_reset(&second);
}

static void one_value(const uint8_t *data, size_t size) {
    struct sqrl_tape tape = {0};
    struct sqrl_error err;
    size_t offset = 0;
    uint8_t *bytes = copy_of(data, size);
    int code =
        sqrl_json_decode(&tape, bytes, size, &offset, SQRL_JSON_NAN, &LIMITS, &err);
    if (offset > size || (code && tape.count))
        abort();
    if (code == SQRL_E_TRUNCATED && memcmp(bytes, data, size) != 0)
        abort();
    if (!code)
        check_again(&tape, 0, bytes);
    free(bytes);
    sqrl_tape_reset(&tape);
}

static void lines(const uint8_t *data, size_t size) {
    enum { MAX = 64 };
    struct sqrl_tape tape = {0};
    uint32_t begin[MAX], count;
    size_t offset = 0;
    uint8_t *bytes = copy_of(data, size);
    int code = sqrl_jsonl_decode_many(&tape, bytes, size, &offset, begin, MAX, &count, 0,
                                      &LIMITS, NULL);
    if (offset > size || count > MAX)
        abort();
    if (!code && memcmp(bytes + offset, data + offset, size - offset) != 0)
        abort();
    for (uint32_t i = 0; i < count; i++)
        check_again(&tape, begin[i], bytes);
    free(bytes);
    sqrl_tape_reset(&tape);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    one_value(data, size);
    lines(data, size);
    return 0;
}
