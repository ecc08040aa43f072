/* codec.c - the table of built-in codecs, and "none". */
#include "codec/codec.h"

static const struct sqrl_codec_ops *const codecs[] = {
    &sqrl_codec_gzip,
    &sqrl_codec_zstd,
    &sqrl_codec_lz4,
    &sqrl_codec_none,
};

const struct sqrl_codec_ops *sqrl_codec_at(size_t i) {
    return i < SQRL_COUNT_OF(codecs) ? codecs[i] : NULL;
}

const struct sqrl_codec_ops *sqrl_codec_by_name(const char *name) {
    for (size_t i = 0; name && i < SQRL_COUNT_OF(codecs); i++) {
        if (strcmp(codecs[i]->name, name) == 0)
            return codecs[i];
    }
    return NULL;
}

const struct sqrl_codec_ops *sqrl_codec_by_magic(const uint8_t *magic, size_t size) {
    for (size_t i = 0; i < SQRL_COUNT_OF(codecs); i++) {
        if (codecs[i]->sniff && codecs[i]->sniff(magic, size))
            return codecs[i];
    }
    return NULL;
}

const struct sqrl_codec_ops *sqrl_codec_by_suffix(const char *path) {
    size_t length = path ? strlen(path) : 0;
    for (size_t i = 0; i < SQRL_COUNT_OF(codecs); i++) {
        size_t n = strlen(codecs[i]->suffix);
        if (n > 0 && length > n && strcmp(path + length - n, codecs[i]->suffix) == 0)
            return codecs[i];
    }
    return NULL;
}

const char *sqrl_codec_library(const struct sqrl_codec_ops *codec) {
    size_t end = offsetof(struct sqrl_codec_ops, library) + sizeof(codec->library);
    return codec->size >= end && codec->library ? codec->library : codec->name;
}

int sqrl_codec_check_level(const struct sqrl_codec_ops *codec, int level,
                           struct sqrl_error *err) {
    if (level >= codec->level_min && level <= codec->level_max)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_INVALID, "%s has no level %d: choose %d to %d",
                          codec->name, level, codec->level_min, codec->level_max);
}

int sqrl_codec_no_room(const char *codec, size_t capacity, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_LIMIT,
                          "%s: the frame does not fit in the %zu bytes of room given",
                          codec, capacity);
}

int sqrl_codec_cut(const char *codec, uint64_t offset, struct sqrl_error *err) {
    if (offset == 0) {
        return sqrl_error_set(
            err, SQRL_E_TRUNCATED,
            "%s: the data are empty (0 bytes): not even a header is there", codec);
    }
    return sqrl_error_set(
        err, SQRL_E_TRUNCATED,
        "%s: the data end at offset %llu before they are complete: the file "
        "is cut short; get it again",
        codec, (unsigned long long)offset);
}

/* --- none --- */

static size_t none_bound(size_t raw) {
    return raw;
}

static int none_store(const uint8_t *raw, size_t raw_size, uint8_t *out,
                      size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    *out_size = 0;
    if (raw_size > out_capacity)
        return sqrl_codec_no_room("none", out_capacity, err);
    if (raw_size > 0)
        memcpy(out, raw, raw_size);
    *out_size = raw_size;
    return SQRL_OK;
}

static int none_compress(int level, const uint8_t *raw, size_t raw_size, uint8_t *out,
                         size_t out_capacity, size_t *out_size, struct sqrl_error *err) {
    return none_store(raw, raw_size, out, out_capacity, out_size, err);
}

static int none_decompress(const uint8_t *in, size_t in_size, uint8_t *raw,
                           size_t raw_size, struct sqrl_error *err) {
    if (in_size < raw_size)
        return sqrl_codec_cut("none", in_size, err);
    if (in_size > raw_size) {
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "none: %zu bytes where %zu are expected", in_size,
                              raw_size);
    }
    if (raw_size > 0)
        memcpy(raw, in, raw_size);
    return SQRL_OK;
}

static bool none_sniff(const uint8_t *magic, size_t size) {
    return false;
}

static int none_decoder_open(void *state, struct sqrl_error *err) {
    return SQRL_OK;
}

static int none_decode(void *state, struct sqrl_codec_io *io, struct sqrl_error *err) {
    size_t n = SQRL_MIN(io->in_size, io->out_size);
    if (n > 0) {
        memcpy(io->out, io->in, n);
        io->out += n;
        io->out_size -= n;
    }
    sqrl_io_consume(io, n);
    io->out_end = io->in_end && io->in_size == 0;
    return SQRL_OK;
}

static void none_decoder_close(void *state) {}

static uint64_t none_stored_size(uint64_t raw_size) {
    return raw_size;
}

static bool none_stored_piece(uint64_t raw_size, uint64_t i,
                              struct sqrl_stored_piece *piece) {
    *piece = (struct sqrl_stored_piece){0, 0, 0};
    if (i > 0 || raw_size == 0)
        return false;
    piece->size = (size_t)raw_size;
    return true;
}

const struct sqrl_codec_ops sqrl_codec_none = {
    .size = sizeof(struct sqrl_codec_ops),
    .api = SQRL_CODEC_API,
    .name = "none",
    .doc = "bytes as they are",
    .suffix = "",
    .bound = none_bound,
    .compress = none_compress,
    .store = none_store,
    .decompress = none_decompress,
    .sniff = none_sniff,
    .decoder_size = 1,
    .decoder_open = none_decoder_open,
    .decode = none_decode,
    .decoder_close = none_decoder_close,
    .library = "none",
    .stored_size = none_stored_size,
    .stored_piece = none_stored_piece,
};
