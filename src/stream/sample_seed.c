/* sample_seed.c - random numbers that belong to a sample, and parts of a source by them.
 */
#include <stdlib.h>

#include "base/base.h"
#include "sqrl/codec.h"
#include "sqrl/stream.h"

#define PURPOSE_SAMPLE 5u /* see docs/order-and-resume.md: 1 to 4 are those of orders */

static uint64_t shard_key(uint64_t seed, uint64_t epoch, const char *shard) {
    const char *slash = strrchr(shard, '/');
    const char *name = slash ? slash + 1 : shard;
    uint64_t key = sqrl_mix64(seed ^ UINT64_C(0x5371756972726c21));
    key = sqrl_mix64(key ^ epoch);
    key = sqrl_mix64(key ^ PURPOSE_SAMPLE);
    return sqrl_mix64(key ^ sqrl_xxh3(name, strlen(name)));
}

uint64_t sqrl_sample_seed(uint64_t seed, uint64_t epoch, const char *shard,
                          uint64_t sample, uint64_t repeat) {
    return sqrl_mix64(sqrl_mix64(shard_key(seed, epoch, shard) ^ sample) ^ repeat);
}

/* Where in [0, 1) a sample falls. */
static double place_of(uint64_t key, uint64_t sample) {
    return (double)(sqrl_mix64(sqrl_mix64(key ^ sample)) >> 11) * 0x1p-53;
}

int sqrl_source_part(struct sqrl_source *source, uint64_t seed, double from, double to,
                     bool others, struct sqrl_source **out, struct sqrl_error *err) {
    struct sqrl_bytes positions = {0};
    uint64_t first = 0;
    int code = SQRL_OK;
    *out = NULL;
    if (sqrl_source_samples(source) == SQRL_UNKNOWN)
        code = sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "%s: its samples are not counted, so they have no numbers "
                              "to be split by: run `squirrel index`, or split by a field",
                              sqrl_source_url(source));
    for (uint64_t s = 0; s < sqrl_source_shards(source) && !code; s++) {
        const struct sqrl_shard *shard = sqrl_source_shard(source, s);
        uint64_t key = shard_key(seed, 0, shard->path), samples = shard->samples, next;
        if (samples == SQRL_UNKNOWN) { /* no commit tells: where the next shard begins */
            code = s + 1 < sqrl_source_shards(source)
                       ? sqrl_source_position(source, s + 1, 0, &next, err)
                       : SQRL_OK;
            if (s + 1 == sqrl_source_shards(source))
                next = sqrl_source_samples(source);
            samples = code ? 0 : next - first;
        }
        for (uint64_t i = 0; i < samples && !code; i++) {
            double place = place_of(key, sqrl_source_row(source, s, i));
            uint64_t position = first + i;
            if ((place >= from && place < to) != others)
                code = sqrl_bytes_append(&positions, &position, sizeof position, err);
        }
        first += samples;
    }
    if (!code)
        code = sqrl_source_subset(source, (const uint64_t *)(const void *)positions.data,
                                  positions.size / sizeof(uint64_t), out, err);
    sqrl_bytes_reset(&positions);
    return code;
}
