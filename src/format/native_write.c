/* Writing a shard. encode() is pure and runs on many threads: it checks the samples by
 * decoding them, compresses or stores, and makes the block's sample sizes. append()
 * writes in order; finish() writes the frames behind the data and the footer.
 *
 * What doesn't shrink is stored: parts of a block are compressed at a quick level first,
 * so that pixels are packed at the speed of memory.
 */
#include "format/native_inner.h"
#include "value/schema.h"

#include <stdlib.h>

enum { PROBES = 3, PROBE_BYTES = 16 * 1024, NO_SCHEMA = 1 << 16 };

const struct sqrl_option native_write_options[] = {
    {"codec", SQRL_OPTION_CHOICE, SQRL_OPTION_PLAIN, "zstd", "zstd|lz4|none",
     "compression; none stores all blocks uncompressed"},
    {"level", SQRL_OPTION_INT, SQRL_OPTION_PLAIN, NULL, NULL,
     "compression level; default 1"},
    {"key", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "field whose value finds a sample: text, bytes or an integer"},
    {"index", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "fields, separated by commas, that where() tests without reading samples: numbers, "
     "booleans, texts"},
    {0}};

int native_create(void *state, const struct sqrl_writer_args *args,
                  struct sqrl_error *err) {
    struct native_writer *writer = state;
    writer->context = args->context;
    writer->file = args->file;
    writer->group = args->group;
    const char *name = sqrl_settings_text(args->settings, native_write_options, "codec");
    writer->store_all = strcmp(name, "none") == 0;
    writer->codec = sqrl_codec_by_name(writer->store_all ? "zstd" : name);
    if (!writer->codec)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED, "codec \"%s\" is not built in",
                              name);
    int rc = native_index_new(args->settings, &writer->index, err);
    if (rc)
        return rc;
    const struct sqrl_codec_ops *codec = writer->codec;
    /* On text, zstd's level 1 packs 1.6 times as fast as its level 3 and unpacks 1.15
     * times as fast, for files 1.1 times as large. */
    writer->fast_level = SQRL_MAX(codec->level_min, SQRL_MIN(1, codec->level_default));
    writer->level = writer->fast_level;
    if (!sqrl_settings_text(args->settings, native_write_options, "level"))
        return SQRL_OK;
    int64_t level;
    rc = sqrl_settings_int(args->settings, native_write_options, "level", &level, err);
    if (rc)
        return rc;
    if (level < codec->level_min || level > codec->level_max)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "option \"level\": %lld is not a level of %s: use %d to %d",
                              (long long)level, codec->name, codec->level_min,
                              codec->level_max);
    writer->level = (int)level;
    return SQRL_OK;
}

void native_dispose(void *state) {
    struct native_writer *writer = state;
    sqrl_bytes_reset(&writer->table);
    sqrl_bytes_reset(&writer->ends);
    sqrl_bytes_reset(&writer->sizes);
    sqrl_bytes_reset(&writer->frames);
    native_index_free(writer->index);
    sqrl_schema_reset(&writer->schema);
}

/* --- encode --- */

/* Decodes the samples: they are valid, as many as they are said to be, and have this
 * schema. */
static int examine(const struct native_writer *writer, const struct sqrl_raw_block *raw,
                   struct sqrl_coded_block *out, struct sqrl_error *err) {
    struct sqrl_block *block = NULL;
    int rc = sqrl_block_new(writer->context, &block, err);
    if (rc)
        return rc;
    rc = sqrl_buffer_wrap((uint8_t *)(uintptr_t)raw->bytes, raw->size, NULL, NULL,
                          &block->bytes, err);
    if (rc == SQRL_OK)
        rc = sqrl_block_parse_msgpack(block, 0, NULL, NULL, err);
    if (rc == SQRL_OK && block->count != raw->count)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "%u samples were given, but their bytes hold %u", raw->count,
                            block->count);
    if (rc == SQRL_OK) {
        rc = sqrl_schema_observe(&out->schema, block, err);
        if (rc == SQRL_E_LIMIT) { /* more fields than a schema holds: none is written */
            sqrl_schema_reset(&out->schema);
            sqrl_error_clear(err);
            out->flags |= NO_SCHEMA;
            rc = SQRL_OK;
        }
    }
    if (rc == SQRL_OK && writer->index) {
        uint8_t size[8] = {0}; /* of the index's part, before the sizes */
        rc = sqrl_bytes_append(&out->extra, size, sizeof size, err);
        if (rc == SQRL_OK)
            rc = native_index_encode(writer->index, block, &out->extra, err);
        if (rc == SQRL_OK)
            sqrl_store_le64(out->extra.data, out->extra.size - sizeof size);
    }
    sqrl_block_unref(block);
    return rc;
}

static int put_sizes(const struct sqrl_raw_block *raw, struct sqrl_bytes *out,
                     struct sqrl_error *err) {
    int rc = sqrl_bytes_reserve(out, (size_t)raw->count * 5, err);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < raw->count; i++) {
        size_t end = i + 1 < raw->count ? raw->begin[i + 1] : raw->size;
        if (end <= raw->begin[i] || end > raw->size)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "sample %u of a block to be written has no bytes", i);
        uint32_t n = (uint32_t)(end - raw->begin[i]);
        for (; n >= 0x80; n >>= 7)
            out->data[out->size++] = (uint8_t)(n | 0x80);
        out->data[out->size++] = (uint8_t)n;
    }
    return SQRL_OK;
}

static bool shrinks(uint64_t before, uint64_t after) {
    return after * 10 <= before * 9;
}

/* Guesses from some parts whether compressing is worth its time. */
static int probe(const struct native_writer *writer, const struct sqrl_raw_block *raw,
                 uint8_t *scratch, size_t room, bool *worth, struct sqrl_error *err) {
    *worth = true;
    if (raw->size < 2 * PROBES * PROBE_BYTES)
        return SQRL_OK;
    size_t total = 0, step = (raw->size - PROBE_BYTES) / (PROBES - 1);
    for (size_t i = 0; i < PROBES; i++) {
        size_t size;
        int rc = writer->codec->compress(writer->fast_level, raw->bytes + i * step,
                                         PROBE_BYTES, scratch, room, &size, err);
        if (rc)
            return rc;
        total += size;
    }
    *worth = shrinks((uint64_t)PROBES * PROBE_BYTES, total);
    return SQRL_OK;
}

static int squeeze(const struct native_writer *writer, const struct sqrl_raw_block *raw,
                   struct sqrl_coded_block *out, struct sqrl_error *err) {
    const struct sqrl_codec_ops *codec = writer->codec;
    size_t room = codec->bound(raw->size), size = 0;
    int rc = sqrl_buffer_new(writer->context, room, &out->stored, err);
    if (rc)
        return rc;
    uint8_t *to = out->stored->data;
    bool worth = !writer->store_all;
    if (worth)
        rc = probe(writer, raw, to, room, &worth, err);
    if (rc == SQRL_OK && worth)
        rc = codec->compress(writer->level, raw->bytes, raw->size, to, room, &size, err);
    if (rc == SQRL_OK && (!worth || !shrinks(raw->size, size))) {
        rc = codec->store(raw->bytes, raw->size, to, room, &size, err);
        out->flags |= NATIVE_STORED;
    }
    out->stored->size = size;
    return rc;
}

int native_encode(const void *state, const struct sqrl_raw_block *raw,
                  struct sqrl_coded_block *out, struct sqrl_error *err) {
    const struct native_writer *writer = state;
    *out = (struct sqrl_coded_block){0};
    if (raw->count == 0 || raw->size > SQRL_NATIVE_MAX_RAW)
        return sqrl_error_set(err, raw->count ? SQRL_E_LIMIT : SQRL_E_INVALID,
                              "a block holds 1 or more samples and at most %llu bytes",
                              (unsigned long long)SQRL_NATIVE_MAX_RAW);
    out->raw_bytes = raw->size;
    out->count = raw->count;
    int rc = examine(writer, raw, out, err);
    if (rc == SQRL_OK)
        rc = put_sizes(raw, &out->extra, err);
    if (rc == SQRL_OK)
        rc = squeeze(writer, raw, out, err);
    if (rc == SQRL_OK)
        out->checksum = sqrl_xxh3(out->stored->data, out->stored->size);
    else
        sqrl_coded_block_reset(out);
    return rc;
}

/* --- append --- */

static int put_record(struct native_writer *writer, const struct sqrl_coded_block *block,
                      struct sqrl_error *err) {
    uint8_t record[NATIVE_RECORD_BYTES];
    sqrl_store_le64(record, writer->offset);
    sqrl_store_le64(record + 8, block->stored->size);
    sqrl_store_le64(record + 16, block->raw_bytes);
    sqrl_store_le32(record + 24, block->count);
    sqrl_store_le32(record + 28, block->flags & NATIVE_STORED);
    sqrl_store_le64(record + 32, block->checksum);
    return sqrl_bytes_append(&writer->table, record, sizeof record, err);
}

static int merge_schema(struct native_writer *writer,
                        const struct sqrl_coded_block *block, struct sqrl_error *err) {
    if (writer->no_schema)
        return SQRL_OK;
    int rc = SQRL_E_LIMIT;
    if (!(block->flags & NO_SCHEMA))
        rc = sqrl_schema_merge_at(&writer->schema, &block->schema, writer->samples, err);
    if (rc == SQRL_E_LIMIT) {
        sqrl_error_clear(err);
        sqrl_schema_reset(&writer->schema);
        writer->no_schema = true;
        rc = SQRL_OK;
    }
    return rc;
}

int native_append(void *state, const struct sqrl_coded_block *block,
                  struct sqrl_error *err) {
    struct native_writer *writer = state;
    int rc = merge_schema(writer, block, err);
    if (rc == SQRL_OK)
        rc = put_record(writer, block, err);
    const struct sqrl_bytes *extra = &block->extra;
    size_t skip = writer->index ? 8 + (size_t)sqrl_load_le64(extra->data) : 0;
    if (rc == SQRL_OK && writer->index)
        rc = native_index_append(writer->index, extra->data + 8, skip - 8,
                                 writer->samples, block->count, err);
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(&writer->sizes, extra->data + skip, extra->size - skip,
                               err);
    uint64_t end = writer->sizes.size;
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(&writer->ends, &end, sizeof end, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_write(writer->file, block->stored->data, block->stored->size, err);
    if (rc)
        return rc;
    writer->offset += block->stored->size;
    writer->samples += block->count;
    writer->raw_bytes += block->raw_bytes;
    writer->blocks++;
    return SQRL_OK;
}

/* --- finish --- */

static int put_text(struct sqrl_bytes *out, const char *text, struct sqrl_error *err) {
    return sqrl_msgpack_put_string(out, text, strlen(text), err);
}

static int put_pair(struct sqrl_bytes *out, const char *key, uint64_t value,
                    struct sqrl_error *err) {
    int rc = put_text(out, key, err);
    return rc ? rc : sqrl_msgpack_put_uint(out, value, err);
}

static int put_text_pair(struct sqrl_bytes *out, const char *key, const char *value,
                         struct sqrl_error *err) {
    int rc = put_text(out, key, err);
    return rc ? rc : put_text(out, value, err);
}

static void frame_head(uint8_t head[16], uint64_t payload, const char *tag) {
    sqrl_store_le32(head, NATIVE_SKIP_MAGIC);
    sqrl_store_le32(head + 4, (uint32_t)(payload + NATIVE_TAG_BYTES));
    memcpy(head + 8, tag, NATIVE_TAG_BYTES);
}

int native_write_frame(struct native_writer *writer, const char *kind, const char *tag,
                       const struct sqrl_bytes *parts, size_t count,
                       const struct sqrl_bytes *more, uint32_t pairs,
                       struct sqrl_error *err) {
    uint64_t payload = 0;
    for (size_t i = 0; i < count; i++)
        payload += parts[i].size;
    if (payload > UINT32_MAX - NATIVE_TAG_BYTES)
        return SQRL_OK; /* these frames only help: a shard without one is whole */
    uint8_t head[NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES];
    frame_head(head, payload, tag);
    struct sqrl_xxh3_state state;
    sqrl_xxh3_init(&state);
    sqrl_xxh3_update(&state, head, sizeof head);
    int rc = sqrl_file_write(writer->file, head, sizeof head, err);
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        sqrl_xxh3_update(&state, parts[i].data, parts[i].size);
        rc = sqrl_file_write(writer->file, parts[i].data, parts[i].size, err);
    }
    struct sqrl_bytes *list = &writer->frames;
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_map(list, 4 + pairs, err);
    if (rc == SQRL_OK)
        rc = put_text_pair(list, "kind", kind, err);
    if (rc == SQRL_OK)
        rc = put_pair(list, "offset", writer->offset, err);
    if (rc == SQRL_OK)
        rc = put_pair(list, "size", sizeof head + payload, err);
    if (rc == SQRL_OK)
        rc = put_pair(list, "checksum", sqrl_xxh3_digest(&state), err);
    if (rc == SQRL_OK && pairs)
        rc = sqrl_bytes_append(list, more->data, more->size, err);
    writer->offset += sizeof head + payload;
    writer->frame_count++;
    return rc;
}

/* Sample offsets: where each block's sizes end, then the sizes. */
static int write_offsets(struct native_writer *writer, struct sqrl_error *err) {
    if (writer->blocks == 0)
        return SQRL_OK;
    struct sqrl_bytes parts[] = {writer->ends, writer->sizes};
    return native_write_frame(writer, "offsets", NATIVE_TAG_OFFSETS, parts, 2, NULL, 0,
                              err);
}

static int put_schema(struct native_writer *writer, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    int rc = put_text(out, "schema", err);
    if (rc)
        return rc;
    return writer->no_schema ? sqrl_msgpack_put_null(out, err)
                             : sqrl_schema_encode(&writer->schema, out, err);
}

static int put_footer(struct native_writer *writer, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    int rc = sqrl_msgpack_put_map(out, writer->group ? 9 : 8, err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "version", SQRL_NATIVE_VERSION, err);
    if (rc == SQRL_OK)
        rc = put_text_pair(out, "writer", "libsqrl " SQRL_VERSION, err);
    if (rc == SQRL_OK)
        rc = put_text_pair(out, "codec", writer->codec->name, err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "samples", writer->samples, err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "raw_bytes", writer->raw_bytes, err);
    if (rc == SQRL_OK)
        rc = put_schema(writer, out, err);
    if (rc == SQRL_OK)
        rc = put_text(out, "frames", err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_array(out, writer->frame_count, err);
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(out, writer->frames.data, writer->frames.size, err);
    if (rc == SQRL_OK)
        rc = put_text(out, "blocks", err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_binary(out, writer->table.data, writer->table.size, err);
    if (rc == SQRL_OK && writer->group)
        rc = put_text(out, "group", err);
    if (rc == SQRL_OK && writer->group)
        rc = sqrl_group_encode(writer->group, out, err);
    return rc;
}

static void put_trailer(uint8_t out[NATIVE_TRAILER_BYTES], uint64_t offset,
                        const struct sqrl_bytes *footer) {
    sqrl_store_le64(out, offset);
    sqrl_store_le64(out + 8, footer->size);
    sqrl_store_le64(out + 16, sqrl_xxh3(footer->data, footer->size));
    sqrl_store_le32(out + 24, SQRL_NATIVE_VERSION);
    sqrl_store_le32(out + 28, (uint32_t)sqrl_xxh3(out, 28));
    memcpy(out + 32, NATIVE_MAGIC, 8);
}

static int write_footer(struct native_writer *writer, struct sqrl_error *err) {
    struct sqrl_bytes footer = {0};
    uint8_t head[NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES] = {0};
    uint8_t trailer[NATIVE_TRAILER_BYTES];
    int rc = sqrl_bytes_append(&footer, head, sizeof head, err);
    if (rc == SQRL_OK)
        rc = put_footer(writer, &footer, err);
    if (rc == SQRL_OK && footer.size > NATIVE_MAX_FOOTER)
        rc = sqrl_error_set(err, SQRL_E_LIMIT,
                            "%llu blocks are too many for one shard: make smaller shards",
                            (unsigned long long)writer->blocks);
    if (rc == SQRL_OK) {
        frame_head(footer.data, footer.size - sizeof head + sizeof trailer,
                   NATIVE_TAG_FOOTER);
        put_trailer(trailer, writer->offset, &footer);
        rc = sqrl_file_write(writer->file, footer.data, footer.size, err);
    }
    if (rc == SQRL_OK)
        rc = sqrl_file_write(writer->file, trailer, sizeof trailer, err);
    sqrl_bytes_reset(&footer);
    return rc;
}

int native_finish(void *state, struct sqrl_shard_info *info, struct sqrl_error *err) {
    struct native_writer *writer = state;
    *info = (struct sqrl_shard_info){SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    int rc = write_offsets(writer, err);
    if (rc == SQRL_OK && writer->index)
        rc = native_index_write(writer, err);
    if (rc == SQRL_OK)
        rc = write_footer(writer, err);
    if (rc)
        return rc;
    *info =
        (struct sqrl_shard_info){.samples = writer->samples,
                                 .blocks = writer->blocks,
                                 .raw_bytes = writer->raw_bytes,
                                 .schema = writer->no_schema ? NULL : &writer->schema};
    return SQRL_OK;
}
