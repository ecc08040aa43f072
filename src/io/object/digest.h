/* digest.h - SHA-256 (FIPS 180-4), HMAC (RFC 2104), hex and Base64 (RFC 4648): what
 * signing requests needs. Nothing here allocates or fails. */
#ifndef SQRL_IO_OBJECT_DIGEST_H
#define SQRL_IO_OBJECT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OBJECT_SHA256_BYTES 32
#define OBJECT_HEX_BYTES (2 * OBJECT_SHA256_BYTES + 1) /* of a digest, with its NUL */
/* Room for the Base64 text of n bytes, with its NUL. */
#define OBJECT_BASE64_BYTES(n) (((n) + 2) / 3 * 4 + 1)

struct object_sha256 {
    uint32_t h[8];
    uint64_t size;
    uint8_t block[64];
};
void object_sha256_init(struct object_sha256 *s);
void object_sha256_add(struct object_sha256 *s, const void *data, size_t size);
void object_sha256_end(struct object_sha256 *s, uint8_t out[OBJECT_SHA256_BYTES]);
/* Of one piece, as lower-case hex. */
void object_sha256_hex(const void *data, size_t size, char out[OBJECT_HEX_BYTES]);

void object_hmac(const void *key, size_t key_size, const void *data, size_t size,
                 uint8_t out[OBJECT_SHA256_BYTES]);

void object_hex(const uint8_t *data, size_t size, char *out); /* 2 * size + 1 bytes */

/* `url`: with - and _ and without padding. Returns the length. */
size_t object_base64(const void *data, size_t size, bool url, char *out);
/* The standard alphabet, padded or not; white space is skipped. `out` has room for 3/4 of
 * `size` and 3 more. False for other characters. */
bool object_base64_decode(const char *text, size_t size, uint8_t *out, size_t *out_size);

#endif
