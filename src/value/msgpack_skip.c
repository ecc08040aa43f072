/* Where a MessagePack value ends, and the pairs of a map: samples are split into groups
 * of fields without decoding what they hold. */
#include "value/value.h"

static uint64_t big_endian(const uint8_t *p, unsigned bytes) {
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

/* A value's head: its bytes with the content, and how many values follow within. */
struct head {
    uint64_t bytes, values;
};

/* By the first byte: bytes of the length that follows, and what it counts. */
static bool read_head(const uint8_t *p, uint64_t left, struct head *out) {
    uint8_t b = p[0];
    *out = (struct head){1, 0};
    if (b < 0x80 || b >= 0xe0 || (b >= 0xc0 && b <= 0xc3 && b != 0xc1))
        return true;
    if (b < 0x90)
        out->values = 2 * (uint64_t)(b & 15);
    else if (b < 0xa0)
        out->values = b & 15;
    else if (b < 0xc0)
        out->bytes += b & 31;
    else if (b >= 0xca && b <= 0xd3) { /* float32 and 64, uint8 to 64, int8 to 64 */
        static const uint8_t size[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8};
        out->bytes += size[b - 0xca];
    } else if (b >= 0xd4 && b <= 0xd8) { /* fixext 1 to 16 */
        out->bytes += 1 + (UINT64_C(1) << (b - 0xd4));
    } else {
        /* bin8-32, ext8-32, str8-32, array16-32, map16-32 */
        static const uint8_t width[] = {1, 2, 4, 1, 2, 4};
        static const uint8_t more[] = {1, 2, 4, 2, 4, 2, 4};
        unsigned n = b >= 0xd9 ? more[b - 0xd9] : b >= 0xc4 ? width[b - 0xc4] : 0;
        if (b == 0xc1 || left < 1 + (uint64_t)n)
            return false;
        uint64_t count = big_endian(p + 1, n);
        out->bytes += n;
        if (b >= 0xdc)
            out->values = count * (b >= 0xde ? 2 : 1);
        else
            out->bytes += count + (b >= 0xc7 && b <= 0xc9);
    }
    return true;
}

bool sqrl_msgpack_skip(const uint8_t *bytes, size_t size, size_t *offset) {
    uint64_t pending = 1, at = *offset;
    for (; pending; pending--) {
        struct head head;
        if (at >= size || !read_head(bytes + at, size - at, &head) ||
            head.bytes > size - at || head.values > size - at)
            return false;
        at += head.bytes;
        pending += head.values;
    }
    *offset = (size_t)at;
    return true;
}

bool sqrl_msgpack_map(const uint8_t *bytes, size_t size, size_t *offset,
                      uint32_t *pairs) {
    struct head head;
    size_t at = *offset;
    bool map = at < size && ((bytes[at] & 0xf0) == 0x80 || bytes[at] >= 0xde) &&
               bytes[at] < 0xe0 && read_head(bytes + at, size - at, &head);
    if (!map || head.values > size - at)
        return false;
    *offset += (size_t)head.bytes;
    *pairs = (uint32_t)(head.values / 2);
    return true;
}

bool sqrl_msgpack_text(const uint8_t *bytes, size_t size, size_t offset,
                       const char **text, size_t *text_size) {
    struct head head;
    if (offset >= size)
        return false;
    uint8_t b = bytes[offset];
    bool is_text = (b & 0xe0) == 0xa0 || (b >= 0xd9 && b <= 0xdb);
    bool is_binary = b >= 0xc4 && b <= 0xc6;
    if ((!is_text && !is_binary) || !read_head(bytes + offset, size - offset, &head) ||
        head.bytes > size - offset)
        return false;
    size_t width = (b & 0xe0) == 0xa0       ? 0
                   : b == 0xc4 || b == 0xd9 ? 1
                   : b == 0xc5 || b == 0xda ? 2
                                            : 4;
    *text = (const char *)bytes + offset + 1 + width;
    *text_size = (size_t)head.bytes - 1 - width;
    return true;
}
