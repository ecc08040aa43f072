/* shards.h - for tests: makes samples and native shards, loads them back. */
#ifndef SQRL_TEST_SHARDS_H
#define SQRL_TEST_SHARDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "format/native.h"

/* Samples, one after another, and where each begins. */
struct samples {
    struct sqrl_bytes bytes;
    uint32_t *begin;
    uint32_t count, capacity;
};

static inline void samples_reset(struct samples *s) {
    sqrl_bytes_reset(&s->bytes);
    free(s->begin);
    *s = (struct samples){0};
}

static inline void samples_mark(struct samples *s) {
    if (s->count == s->capacity) {
        s->capacity = SQRL_MAX(64u, 2 * s->capacity);
        s->begin = realloc(s->begin, s->capacity * sizeof *s->begin);
        assert_non_null(s->begin);
    }
    s->begin[s->count++] = (uint32_t)s->bytes.size;
}

/* {"id": <number>, "text": <words that compress>} */
static inline void samples_text(struct samples *s, uint64_t number) {
    static const char *const words[] = {"shard",  "sample", "block", "frame",
                                        "footer", "offset", "codec", "batch"};
    char text[400];
    size_t n = 0, count = 5 + sqrl_mix64(number) % 20;
    for (size_t i = 0; i < count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s ",
                              words[sqrl_mix64(number * 31 + i) % 8]);
    samples_mark(s);
    assert_int_equal(sqrl_msgpack_put_map(&s->bytes, 2, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(&s->bytes, "id", 2, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_uint(&s->bytes, number, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(&s->bytes, "text", 4, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(&s->bytes, text, n, NULL), 0);
}

/* {"image": <noise, uint8[side,side]>, "label": number % 10} */
static inline void samples_noise(struct samples *s, uint64_t number, uint64_t side) {
    uint8_t *pixels = malloc(side * side + 8);
    assert_non_null(pixels);
    for (size_t i = 0; i < side * side; i += 8)
        sqrl_store_le64(pixels + i, sqrl_mix64(number << 32 | i));
    uint64_t shape[] = {side, side};
    samples_mark(s);
    assert_int_equal(sqrl_msgpack_put_map(&s->bytes, 2, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(&s->bytes, "image", 5, NULL), 0);
    assert_int_equal(
        sqrl_msgpack_put_ndarray(&s->bytes, SQRL_DTYPE_UINT8, shape, 2, pixels, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(&s->bytes, "label", 5, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_uint(&s->bytes, number % 10, NULL), 0);
    free(pixels);
}

/* Writes samples [0, count) in blocks of `per_block`, without a commit of the file. */
static inline int shard_write_open(struct sqrl_context *context,
                                   struct sqrl_file_writer *file, const struct samples *s,
                                   uint32_t per_block,
                                   const struct sqrl_settings *settings,
                                   struct sqrl_error *err) {
    const struct sqrl_format_ops *ops = &sqrl_format_native;
    static const struct sqrl_settings none = {NULL, 0};
    void *writer = calloc(1, ops->writer_size);
    assert_non_null(writer);
    struct sqrl_writer_args args = {context, file, settings ? settings : &none, NULL};
    int rc = ops->create(writer, &args, err);
    for (uint32_t from = 0; rc == 0 && from < s->count; from += per_block) {
        uint32_t count = SQRL_MIN(per_block, s->count - from), begin[4096];
        assert_true(count <= 4096);
        size_t start = s->begin[from];
        size_t end = from + count < s->count ? s->begin[from + count] : s->bytes.size;
        for (uint32_t i = 0; i < count; i++)
            begin[i] = s->begin[from + i] - (uint32_t)start;
        struct sqrl_raw_block raw = {s->bytes.data + start, end - start, begin, count};
        struct sqrl_coded_block coded;
        rc = ops->encode(writer, &raw, &coded, err);
        if (rc == 0)
            rc = ops->append(writer, &coded, err);
        sqrl_coded_block_reset(&coded);
    }
    struct sqrl_shard_info info;
    if (rc == 0)
        rc = ops->finish(writer, &info, err);
    if (rc == 0) {
        assert_int_equal(info.samples, s->count);
        assert_int_equal(info.raw_bytes, s->bytes.size);
    }
    ops->dispose(writer);
    free(writer);
    return rc;
}

static inline int shard_write(struct sqrl_context *context, struct sqrl_fs *fs,
                              const char *path, const struct samples *s,
                              uint32_t per_block, const struct sqrl_settings *settings,
                              struct sqrl_error *err) {
    struct sqrl_file_writer *file = NULL;
    int rc = sqrl_file_create(fs, path, true, &file, err);
    if (rc)
        return rc;
    rc = shard_write_open(context, file, s, per_block, settings, err);
    if (rc)
        sqrl_file_abort(file);
    else
        rc = sqrl_file_commit(file, err);
    return rc;
}

/* Opens a shard, loads all blocks and appends their payload to `out`. */
static inline int shard_read(struct sqrl_context *context, struct sqrl_fs *fs,
                             const char *path, struct sqrl_bytes *out,
                             struct sqrl_shard_info *info, struct sqrl_error *err) {
    const struct sqrl_format_ops *ops = &sqrl_format_native;
    static const struct sqrl_settings none = {NULL, 0};
    struct sqrl_file *file = NULL;
    int rc = sqrl_file_open(fs, path, &file, err);
    if (rc)
        return rc;
    void *reader = calloc(1, ops->reader_size);
    assert_non_null(reader);
    struct sqrl_reader_args args = {
        .context = context, .fs = fs, .file = file, .shard = 3, .settings = &none};
    rc = ops->open(reader, &args, info, err);
    uint64_t samples = 0;
    for (uint64_t b = 0; rc == 0 && b < info->blocks; b++) {
        struct sqrl_block *block;
        rc = ops->load(reader, b, NULL, &block, err);
        if (rc)
            break;
        assert_int_equal(block->number, b);
        assert_int_equal(block->shard, 3);
        assert_int_equal(block->first, samples);
        samples += block->count;
        rc = sqrl_bytes_append(out, block->bytes->data, block->bytes->size, err);
        sqrl_block_unref(block);
    }
    if (rc == 0)
        assert_int_equal(samples, info->samples);
    info->schema = NULL; /* ends with close() */
    ops->close(reader);
    free(reader);
    sqrl_file_unref(file);
    return rc;
}

#endif
