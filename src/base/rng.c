#include <errno.h>
#include <sys/random.h>

#include "base.h"

__extension__ typedef unsigned __int128 wide;

static uint64_t rotate_left(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

void sqrl_rng_init(struct sqrl_rng *rng, uint64_t seed) {
    /* splitmix64 adds its odd constant before each output; sqrl_mix64 adds it once. */
    for (unsigned i = 0; i < 4; i++)
        rng->s[i] = sqrl_mix64(seed + i * 0x9e3779b97f4a7c15u);
}

uint64_t sqrl_rng_next(struct sqrl_rng *rng) {
    uint64_t *s = rng->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t sqrl_rng_below(struct sqrl_rng *rng, uint64_t n) {
    wide product = (wide)sqrl_rng_next(rng) * n;
    if ((uint64_t)product < n) {
        uint64_t threshold = -n % n;
        while ((uint64_t)product < threshold)
            product = (wide)sqrl_rng_next(rng) * n;
    }
    return (uint64_t)(product >> 64);
}

int sqrl_random_bytes(void *out, size_t size, struct sqrl_error *err) {
    uint8_t *p = out;
    while (size > 0) {
        ssize_t got = getrandom(p, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return sqrl_error_set_errno(err, errno,
                                        "can't get random bytes from the system");
        p += got;
        size -= (size_t)got;
    }
    return SQRL_OK;
}
