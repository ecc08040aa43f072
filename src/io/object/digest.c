/* digest.c - SHA-256 as FIPS 180-4 has it, HMAC on top, hex, Base64. */
#include "io/object/digest.h"

#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t turn(uint32_t x, unsigned n) {
    return x >> n | x << (32 - n);
}

static uint32_t load_be(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static void mix_block(uint32_t h[8], const uint8_t *p) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = load_be(p + 4 * (size_t)i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t t1 = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                      ((e & s[5]) ^ (~e & s[6])) + K[i] + w[i];
        uint32_t t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                      ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

void object_sha256_init(struct object_sha256 *s) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, initial, sizeof initial);
    s->size = 0;
}

void object_sha256_add(struct object_sha256 *s, const void *data, size_t size) {
    const uint8_t *p = data;
    size_t held = s->size % 64;
    s->size += size;
    if (held) {
        size_t n = size < 64 - held ? size : 64 - held;
        memcpy(s->block + held, p, n);
        p += n;
        size -= n;
        if (held + n < 64)
            return;
        mix_block(s->h, s->block);
    }
    for (; size >= 64; p += 64, size -= 64)
        mix_block(s->h, p);
    if (size)
        memcpy(s->block, p, size);
}

void object_sha256_end(struct object_sha256 *s, uint8_t out[OBJECT_SHA256_BYTES]) {
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = __builtin_bswap64(s->size * 8);
    size_t held = s->size % 64;
    object_sha256_add(s, padding, held < 56 ? 56 - held : 120 - held);
    object_sha256_add(s, &bits, 8);
    for (int i = 0; i < 8; i++) {
        uint32_t v = __builtin_bswap32(s->h[i]);
        memcpy(out + 4 * (size_t)i, &v, 4);
    }
}

void object_hex(const uint8_t *data, size_t size, char *out) {
    for (size_t i = 0; i < size; i++) {
        *out++ = "0123456789abcdef"[data[i] >> 4];
        *out++ = "0123456789abcdef"[data[i] & 15];
    }
    *out = '\0';
}

void object_sha256_hex(const void *data, size_t size, char out[OBJECT_HEX_BYTES]) {
    struct object_sha256 s;
    uint8_t digest[OBJECT_SHA256_BYTES];
    object_sha256_init(&s);
    if (size)
        object_sha256_add(&s, data, size);
    object_sha256_end(&s, digest);
    object_hex(digest, sizeof digest, out);
}

void object_hmac(const void *key, size_t key_size, const void *data, size_t size,
                 uint8_t out[OBJECT_SHA256_BYTES]) {
    uint8_t pad[64] = {0}, inner[OBJECT_SHA256_BYTES];
    struct object_sha256 s;
    if (key_size > sizeof pad) {
        object_sha256_init(&s);
        object_sha256_add(&s, key, key_size);
        object_sha256_end(&s, pad);
    } else if (key_size) {
        memcpy(pad, key, key_size);
    }
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36;
    object_sha256_init(&s);
    object_sha256_add(&s, pad, sizeof pad);
    if (size)
        object_sha256_add(&s, data, size);
    object_sha256_end(&s, inner);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    object_sha256_init(&s);
    object_sha256_add(&s, pad, sizeof pad);
    object_sha256_add(&s, inner, sizeof inner);
    object_sha256_end(&s, out);
}

size_t object_base64(const void *data, size_t size, bool url, char *out) {
    const char *digits =
        url ? "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
            : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = data;
    char *to = out;
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t v = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                     (n > 2 ? p[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            if (k <= n)
                *to++ = digits[v >> (18 - 6 * k) & 63];
            else if (!url)
                *to++ = '=';
    }
    *to = '\0';
    return (size_t)(to - out);
}

static int digit_value(char c) {
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool object_base64_decode(const char *text, size_t size, uint8_t *out, size_t *out_size) {
    uint32_t bits = 0;
    unsigned held = 0;
    size_t n = 0, i = 0;
    for (; i < size && text[i] != '='; i++) {
        if (strchr(" \t\r\n", text[i]) && text[i])
            continue;
        int value = digit_value(text[i]);
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[n++] = (uint8_t)(bits >> held);
        }
    }
    for (; i < size; i++)
        if (!strchr("= \t\r\n", text[i]) || !text[i])
            return false;
    *out_size = n;
    return held < 6;
}
