/* MessagePack: what decodes must encode, and decode again to the same values; encoding
 * that once more must give the same bytes. */
#include <stdlib.h>
#include <string.h>

#include <sqrl/sqrl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX = 256 };

struct decoded {
    struct sqrl_tape tape;
    struct sqrl_bytes encoded;
    uint32_t begin[MAX], count;
};

static int decode(struct decoded *d, const uint8_t *data, size_t size) {
    size_t offset = 0;
    struct sqrl_error err;
    struct sqrl_limits limits = {.max_nodes = 1 << 20};
    int code = sqrl_msgpack_decode_many(&d->tape, data, size, &offset, d->begin, MAX,
                                        &d->count, &limits, &err);
    if (offset > size)
        abort();
    for (uint32_t i = 0; i < d->count; i++)
        if (sqrl_msgpack_encode(&d->encoded, d->tape.nodes, d->begin[i], data, &err))
            abort();
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct decoded first = {0}, second = {0};
    decode(&first, data, size);
    if (decode(&second, first.encoded.data, first.encoded.size) != SQRL_OK ||
        second.count != first.count || second.tape.count != first.tape.count ||
        second.encoded.size != first.encoded.size ||
        (first.encoded.size &&
         memcmp(first.encoded.data, second.encoded.data, first.encoded.size) != 0))
        abort();
    for (uint32_t i = 0; i < first.tape.count; i++) {
        const struct sqrl_node *a = &first.tape.nodes[i], *b = &second.tape.nodes[i];
        if (a->type != b->type || a->flags != b->flags || a->aux != b->aux ||
            a->size != b->size)
            abort();
    }
    sqrl_tape_reset(&first.tape);
    sqrl_tape_reset(&second.tape);
    sqrl_bytes_reset(&first.encoded);
    sqrl_bytes_reset(&second.encoded);
    return 0;
}
