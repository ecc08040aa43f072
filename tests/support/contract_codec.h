/* contract_codec.h - what include/sqrl/codec.h promises, as tests for any codec's table.
 */
#ifndef TESTS_SUPPORT_CONTRACT_CODEC_H
#define TESTS_SUPPORT_CONTRACT_CODEC_H

#include <stdbool.h>

#include "sqrl/codec.h"

/* Runs every check; failures are cmocka's. `framed`: the format tells its own end, so
 * that cut and damaged data are noticed ("none" can't). */
void contract_codec(const struct sqrl_codec_ops *codec, bool framed);

/* Test content: kind 0 repeats itself, 1 is text-like, 2 does not shrink. */
void contract_codec_fill(uint8_t *out, size_t size, int kind);

/* Decodes a stream, `in_step` and `out_step` bytes at a time (0: all at once), into
 * `out`. Returns the code; *got is what came out. Fails when the decoder stands still. */
int contract_codec_stream(const struct sqrl_codec_ops *codec, const uint8_t *in,
                          size_t in_size, size_t in_step, uint8_t *out, size_t out_size,
                          size_t out_step, size_t *got, struct sqrl_error *err);

#endif
