/* checksum.c - xxh3, xxh32 and CRC32C; gzip's CRC32 from the deflate library at hand.
 *
 * xxHash is compiled in from its header, here for the baseline CPU and in checksum_avx2.c
 * for AVX2. The two share the layout of the streaming state. */
#include "codec/codec.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct sqrl_xxh3_state), "xxh3 state");

static bool use_avx2(void) {
#if defined(__x86_64__)
    return sqrl_cpu_avx2();
#else
    return false;
#endif
}

#if !defined(__x86_64__)
#define sqrl_xxh3_avx2(data, size) 0
#define sqrl_xxh3_update_avx2(state, data, size) (void)0
#endif

uint64_t sqrl_xxh3(const void *data, size_t size) {
    /* Up to 240 bytes xxh3 uses no vectors. */
    return size > 240 && use_avx2() ? sqrl_xxh3_avx2(data, size)
                                    : XXH3_64bits(data, size);
}

void sqrl_xxh3_init(struct sqrl_xxh3_state *state) {
    XXH3_64bits_reset((XXH3_state_t *)state->opaque);
}

void sqrl_xxh3_update(struct sqrl_xxh3_state *state, const void *data, size_t size) {
    if (size == 0)
        return;
    if (use_avx2())
        sqrl_xxh3_update_avx2(state->opaque, data, size);
    else
        (void)XXH3_64bits_update((XXH3_state_t *)state->opaque, data, size);
}

uint64_t sqrl_xxh3_digest(const struct sqrl_xxh3_state *state) {
    return XXH3_64bits_digest((const XXH3_state_t *)state->opaque);
}

uint32_t sqrl_xxh32(const void *data, size_t size) {
    return XXH32(data, size, 0);
}

uint32_t sqrl_crc32(uint32_t crc, const void *data, size_t size) {
#if SQRL_HAVE_ISAL
    return sqrl_isal_crc32(crc, data, size);
#else
    return sqrl_zlib_crc32(crc, data, size);
#endif
}

/* --- CRC32C (polynomial 0x1EDC6F41, reflected), as in RFC 3720 --- */

/* The remainders of all 4-bit values: small enough to stay cached, and only the fallback.
 */
static const uint32_t nibbles[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                     0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                     0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                     0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t sqrl_crc32c_table(uint32_t crc, const void *data, size_t size) {
    const uint8_t *p = data;
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibbles[crc & 15];
        crc = crc >> 4 ^ nibbles[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc32c_sse42(uint32_t crc, const void *data, size_t size) {
    const uint8_t *p = data;
    uint64_t c = ~crc;
    for (; size >= 8; p += 8, size -= 8)
        c = __builtin_ia32_crc32di(c, sqrl_load_le64(p));
    uint32_t c32 = (uint32_t)c;
    for (; size > 0; p++, size--)
        c32 = __builtin_ia32_crc32qi(c32, *p);
    return ~c32;
}
#endif

uint32_t sqrl_crc32c(uint32_t crc, const void *data, size_t size) {
#if defined(__x86_64__)
    if (sqrl_cpu_avx2()) /* which brings SSE4.2 */
        return crc32c_sse42(crc, data, size);
#endif
    return sqrl_crc32c_table(crc, data, size);
}
