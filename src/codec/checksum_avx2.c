/* checksum_avx2.c - xxHash compiled for AVX2; called only where sqrl_cpu_avx2() says so.
 */
#if defined(__x86_64__)
/* Before the pragma: these headers' inline functions must stay callable everywhere. */
#include "codec/codec.h"

#include <stdlib.h>
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_INLINE_ALL
#define XXH_VECTOR 2 /* XXH_AVX2 */
#include <xxhash.h>

uint64_t sqrl_xxh3_avx2(const void *data, size_t size) {
    return XXH3_64bits(data, size);
}

void sqrl_xxh3_update_avx2(void *state, const void *data, size_t size) {
    (void)XXH3_64bits_update(state, data, size);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int sqrl_no_avx2;
#endif
