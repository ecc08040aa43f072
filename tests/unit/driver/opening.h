/* opening.h - for tests of formats and drivers: files in a temporary directory, and
 * reading all that a source holds, as JSON lines. */
#ifndef SQRL_TEST_OPENING_H
#define SQRL_TEST_OPENING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "sqrl/codec.h"
#include "sqrl/pack.h"
#include "sqrl/source.h"

static struct sqrl_context *context;
static char directory[] = "/tmp/sqrl-test-XXXXXX";

static inline int run(const char *format, ...) {
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

static inline int opening_setup(void **state) {
    struct sqrl_config config = {.size = sizeof config, .log_level = SQRL_LOG_ERROR};
    return !mkdtemp(directory) || sqrl_context_new(&config, &context, NULL);
}

static inline int opening_teardown(void **state) {
    sqrl_context_unref(context);
    return run("chmod -R u+rwx %s; rm -rf %s", directory, directory);
}

/* "<temporary directory>/<name>": one of a few rotating buffers. */
static inline const char *at(const char *name) {
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, 256, "%s/%s", directory, name);
    return path;
}

static inline const char *put(const char *name, const void *data, size_t size) {
    const char *path = at(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *put_text(const char *name, const char *text) {
    return put(name, text, strlen(text));
}

/* The same, compressed. */
static inline const char *put_coded(const char *name, const char *codec, const void *data,
                                    size_t size) {
    const struct sqrl_codec_ops *ops = sqrl_codec_by_name(codec);
    assert_non_null(ops);
    size_t room = ops->bound(size), got = 0;
    uint8_t *out = malloc(room + 1);
    assert_non_null(out);
    assert_int_equal(ops->compress(ops->level_default, data, size, out, room, &got, NULL),
                     SQRL_OK);
    const char *path = put(name, out, got);
    free(out);
    return path;
}

static inline char *slurp(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    data[*size] = 0;
    fclose(file);
    return data;
}

/* What came out of a source. Free `lines` with sqrl_bytes_reset. */
struct reading {
    int rc;
    struct sqrl_error err;
    char text[1200]; /* "where: message" */
    uint64_t samples, blocks, shards, known;
    bool indexed;
    struct sqrl_bytes lines; /* samples as JSON lines, those before an error too */
};

static inline void take_block(struct reading *r, struct sqrl_block *block) {
    for (uint32_t i = 0; i < block->count; i++) {
        assert_int_equal(sqrl_json_encode(&r->lines, block->tape.nodes, block->begin[i],
                                          block->bytes->data, NULL),
                         SQRL_OK);
        assert_int_equal(sqrl_bytes_append(&r->lines, "\n", 1, NULL), SQRL_OK);
    }
    r->samples += block->count;
    r->blocks++;
    sqrl_block_unref(block);
}

/* One shard in order, or (`load`) block by block. */
static inline int read_shard(struct sqrl_source *source, uint64_t shard, bool load,
                             struct reading *r) {
    struct sqrl_shard_reader *reader = NULL;
    int rc = sqrl_shard_open(source, shard, &reader, &r->err);
    if (rc)
        return rc;
    r->indexed = sqrl_shard_reader_indexed(reader);
    uint64_t blocks = sqrl_shard_reader_info(reader)->blocks;
    for (uint64_t i = 0; !rc; i++) {
        struct sqrl_block *block = NULL;
        if (load && r->indexed) {
            if (i == blocks)
                break;
            rc = sqrl_shard_reader_load(reader, i, NULL, &block, &r->err);
        } else {
            uint64_t before = r->samples;
            rc = sqrl_shard_reader_next(reader, NULL, &block, &r->err);
            if (!rc && !block)
                break;
            if (block && sqrl_source_shards(source) == 1)
                assert_int_equal(block->first, before);
        }
        if (block)
            take_block(r, block);
    }
    sqrl_shard_reader_unref(reader);
    return rc;
}

static inline void reading_reset(struct reading *r) {
    sqrl_bytes_reset(&r->lines);
    memset(r, 0, sizeof *r);
}

static inline int read_source(const char *url, const struct sqrl_settings *settings,
                              bool load, struct reading *r) {
    memset(r, 0, sizeof *r);
    struct sqrl_source *source = NULL;
    r->rc = sqrl_open(context, url, settings, &source, &r->err);
    if (!r->rc) {
        r->shards = sqrl_source_shards(source);
        r->known = sqrl_source_samples(source);
    }
    for (uint64_t i = 0; !r->rc && i < r->shards; i++)
        r->rc = read_shard(source, i, load, r);
    assert_int_equal(sqrl_bytes_reserve(&r->lines, 1, NULL), SQRL_OK);
    r->lines.data[r->lines.size] = 0; /* so that it is a string, too */
    sqrl_source_unref(source);
    sqrl_error_text(&r->err, r->text, sizeof r->text);
    return r->rc;
}

/* Reads with no more than one setting. */
static inline int read_all(const char *url, const char *name, const char *value,
                           struct reading *r) {
    struct sqrl_setting setting = {name, value};
    struct sqrl_settings settings = {&setting, name != NULL};
    return read_source(url, &settings, false, r);
}

/* Opening or reading fails with this code, and the text names all of these. */
static inline void check_error(const char *url, const char *name, const char *value,
                               int code, const char *first, const char *second) {
    struct reading r;
    read_all(url, name, value, &r);
    if (r.rc != code || !strstr(r.text, first) || (second && !strstr(r.text, second)))
        fail_msg("%s: got %s: \"%s\", expected %s with \"%s\" and \"%s\"", url,
                 sqrl_code_name(r.rc), r.text, sqrl_code_name(code), first,
                 second ? second : "");
    assert_int_equal(strncmp(r.text, url, strlen(url)), 0); /* the path comes first */
    reading_reset(&r);
}

static inline void check_lines(const char *url, const void *lines, size_t size) {
    for (int load = 0; load < 2; load++) {
        struct reading r;
        if (read_source(url, NULL, load, &r))
            fail_msg("%s: %s", url, r.text);
        if (r.lines.size != size || memcmp(r.lines.data, lines, size) != 0)
            fail_msg("%s: %zu bytes of JSON, expected %zu: \"%.200s\"", url, r.lines.size,
                     size, (const char *)r.lines.data);
        reading_reset(&r);
    }
}

#endif
