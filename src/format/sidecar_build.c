/* sidecar_build.c - making a sidecar.
 *
 * The first pass reads the file as any reader does: it is valid, and this is how many
 * samples lie where in its payload. The second decompresses it again, takes the checksum
 * of each block and finds places to go on from: in gzip by zlib, which can stop between
 * blocks of a member; in zstd where frames begin; other files only have their beginning.
 */
#include <stdlib.h>

#include "codec/codec.h"
#include "format/sidecar.h"
#include "value/schema.h"

#define LLU(x) ((unsigned long long)(x))

enum {
    IN_BYTES = 256 << 10,
    OUT_BYTES = 128 << 10,
    SPACING = 1 << 20,        /* between places with a window, in the payload */
    CLEAN_SPACING = 128 << 10 /* between places that need none */
};

struct build {
    struct sqrl_context *context;
    struct sqrl_file *file;
    const struct sqrl_format_ops *format;
    const struct sqrl_codec_ops *codec; /* NULL: not compressed */
    struct sqrl_sidecar_block *block;
    uint64_t blocks, capacity, samples;
    struct sqrl_schema schema;
    bool no_schema;
    /* second pass */
    struct sqrl_bytes points, windows;
    uint64_t point_count, last_point; /* where the last one lies in the payload */
    uint64_t at;                      /* in the payload */
    uint64_t current;                 /* block */
    struct sqrl_xxh3_state hash;
};

static void build_reset(struct build *b) {
    free(b->block);
    sqrl_schema_reset(&b->schema);
    sqrl_bytes_reset(&b->points);
    sqrl_bytes_reset(&b->windows);
    sqrl_file_unref(b->file);
}

/* --- first pass --- */
static int add_block(struct build *b, const struct sqrl_block *block,
                     struct sqrl_error *err) {
    if (b->blocks == b->capacity) {
        uint64_t capacity = b->capacity ? 2 * b->capacity : 64;
        struct sqrl_sidecar_block *grown =
            sqrl_realloc(b->block, capacity * sizeof *grown, "block table", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        b->block = grown;
        b->capacity = capacity;
    }
    b->block[b->blocks++] = (struct sqrl_sidecar_block){
        .raw_offset = block->origin, .first = b->samples, .samples = block->count};
    struct sqrl_schema schema = {0};
    int rc = b->no_schema ? SQRL_OK : sqrl_schema_observe(&schema, block, err);
    if (rc == SQRL_OK && !b->no_schema)
        rc = sqrl_schema_merge_at(&b->schema, &schema, b->samples, err);
    if (rc == SQRL_E_LIMIT) { /* too many fields for a schema */
        sqrl_error_clear(err);
        b->no_schema = true;
        rc = SQRL_OK;
    }
    sqrl_schema_reset(&schema);
    b->samples += block->count;
    return rc;
}

static int next_block(const struct build *b, void *reader, struct sqrl_block **out,
                      struct sqrl_error *err) {
    int rc = b->format->next(reader, NULL, out, err);
    if (rc || !*out)
        return rc;
    (*out)->first = b->samples;
    return b->format->parse ? b->format->parse(reader, *out, err) : SQRL_OK;
}

static int find_blocks(struct build *b, void *reader, struct sqrl_error *err) {
    for (uint64_t number = 0;; number++) {
        struct sqrl_block *block = NULL;
        int rc = next_block(b, reader, &block, err);
        if (rc == SQRL_OK && block && block->count)
            rc = add_block(b, block, err);
        bool end = !block;
        sqrl_block_unref(block);
        if (rc || end)
            return rc;
    }
}

/* --- second pass: checksums --- */
static uint64_t end_of(const struct build *b, uint64_t block) {
    return block + 1 < b->blocks ? b->block[block + 1].raw_offset : UINT64_MAX;
}

static void end_block(struct build *b) {
    struct sqrl_sidecar_block *block = &b->block[b->current++];
    block->checksum = sqrl_xxh3_digest(&b->hash);
    block->raw_bytes = b->at - block->raw_offset;
    sqrl_xxh3_init(&b->hash);
}

/* The next bytes of the payload. */
static void feed(struct build *b, const uint8_t *data, size_t size) {
    while (size && b->current < b->blocks) {
        uint64_t begin = b->block[b->current].raw_offset, end = end_of(b, b->current);
        uint64_t want = b->at < begin ? begin - b->at : end - b->at;
        size_t take = (size_t)SQRL_MIN((uint64_t)size, want);
        if (b->at >= begin)
            sqrl_xxh3_update(&b->hash, data, take);
        b->at += take;
        data += take;
        size -= take;
        if (b->at == end)
            end_block(b);
    }
    b->at += size;
}

static int add_point(struct build *b, uint64_t file_offset, uint64_t raw_offset,
                     const struct sqrl_gzip_place *place, const uint8_t *window,
                     size_t size, struct sqrl_error *err) {
    const struct sqrl_codec_ops *zstd = sqrl_codec_by_name("zstd");
    uint8_t record[40] = {0};
    size_t room = zstd->bound(size), stored = 0, from = b->windows.size;
    int rc = SQRL_OK;
    if (size)
        rc = sqrl_bytes_reserve(&b->windows, room, err);
    if (rc == SQRL_OK && size)
        rc = zstd->compress(1, window, size, b->windows.data + from, room, &stored, err);
    if (rc)
        return rc;
    b->windows.size += stored;
    sqrl_store_le64(record, file_offset);
    sqrl_store_le64(record + 8, raw_offset);
    sqrl_store_le64(record + 16, from);
    sqrl_store_le32(record + 24, (uint32_t)stored);
    sqrl_store_le32(record + 28, (uint32_t)size);
    record[32] = (uint8_t)(place ? place->bits : 0);
    record[33] = (uint8_t)(place ? place->value : 0);
    b->last_point = raw_offset;
    b->point_count++;
    return sqrl_bytes_append(&b->points, record, sizeof record, err);
}

/* --- gzip --- */
struct unzip {
    struct sqrl_gzip_scan *scan;
    struct sqrl_codec_io io;
    uint64_t file_at;
    uint8_t *in;    /* [IN_BYTES] */
    uint8_t *out;   /* [SQRL_GZIP_WINDOW + OUT_BYTES] */
    size_t filled;  /* of out */
    size_t history; /* of them from this member */
};

static int unzip_refill(struct build *b, struct unzip *u, struct sqrl_error *err) {
    struct sqrl_range range = {.offset = u->file_at, .size = IN_BYTES, .data = u->in};
    int rc = sqrl_file_read(b->file, &range, 1, NULL, err);
    u->file_at += range.got;
    u->io.in = u->in;
    u->io.in_size = range.got;
    u->io.in_end = range.got < IN_BYTES || u->file_at >= sqrl_file_size(b->file);
    return rc;
}

static int unzip_step(struct build *b, struct unzip *u, struct sqrl_error *err) {
    struct sqrl_gzip_place place;
    if (!u->io.in_size && !u->io.in_end) {
        int rc = unzip_refill(b, u, err);
        if (rc)
            return rc;
    }
    if (u->filled == SQRL_GZIP_WINDOW + OUT_BYTES) {
        memmove(u->out, u->out + OUT_BYTES, SQRL_GZIP_WINDOW);
        u->filled = SQRL_GZIP_WINDOW;
    }
    u->io.out = u->out + u->filled;
    u->io.out_size = SQRL_GZIP_WINDOW + OUT_BYTES - u->filled;
    int rc = sqrl_gzip_scan_step(u->scan, &u->io, &place, err);
    if (rc)
        return rc;
    size_t made = (size_t)(u->io.out - (u->out + u->filled));
    feed(b, u->out + u->filled, made);
    u->filled += made;
    u->history = SQRL_MIN(u->history + made, SQRL_GZIP_WINDOW + 0ul);
    if (place.member) {
        u->history = 0;
        if (b->at - b->last_point >= CLEAN_SPACING)
            return add_point(b, u->io.in_total, b->at, NULL, NULL, 0, err);
    } else if (place.block && b->at - b->last_point >= SPACING) {
        return add_point(b, u->io.in_total, b->at, &place,
                         u->out + u->filled - u->history, u->history, err);
    }
    return SQRL_OK;
}

static int scan_gzip(struct build *b, struct sqrl_error *err) {
    struct unzip u = {.scan = sqrl_gzip_scan_open(err)};
    int rc = u.scan ? SQRL_OK : SQRL_E_NO_MEMORY;
    u.in = sqrl_malloc(IN_BYTES, "bytes to index", err);
    u.out = sqrl_malloc(SQRL_GZIP_WINDOW + OUT_BYTES, "bytes to index", err);
    if (!u.in || !u.out)
        rc = SQRL_E_NO_MEMORY;
    while (rc == SQRL_OK && !u.io.out_end)
        rc = unzip_step(b, &u, err);
    sqrl_gzip_scan_close(u.scan);
    free(u.in);
    free(u.out);
    return rc;
}

/* --- zstd: RFC 8878, section 3.1.1 --- */
/* Where the frame at `offset` ends, and how large its content is: UINT64_MAX when it does
 * not say so. The content is not looked at. */
static int zstd_frame(struct build *b, uint64_t offset, uint64_t *end, uint64_t *content,
                      struct sqrl_error *err) {
    static const uint8_t id_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
    uint8_t head[18] = {0};
    struct sqrl_range range = {.offset = offset, .size = sizeof head, .data = head};
    int rc = sqrl_file_read(b->file, &range, 1, NULL, err);
    if (rc)
        return rc;
    *content = 0;
    if ((sqrl_load_le32(head) & ~15u) == 0x184D2A50u) { /* skippable */
        *end = offset + 8 + sqrl_load_le32(head + 4);
        return SQRL_OK;
    }
    unsigned descriptor = head[4], single = descriptor >> 5 & 1;
    unsigned size = size_bytes[descriptor >> 6] + (single && !(descriptor >> 6));
    unsigned header = 5 + !single + id_bytes[descriptor & 3];
    memcpy(content, head + header, size);
    *content = size == 0 ? UINT64_MAX : *content + (size == 2 ? 256 : 0);
    uint64_t at = offset + header + size;
    for (bool last = false; !last;) {
        rc = sqrl_file_read_exact(b->file, at, head, 3, NULL, err);
        if (rc)
            return rc;
        uint32_t block = head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16;
        last = block & 1;
        at += 3 + ((block >> 1 & 3) == 1 ? 1 : block >> 3); /* RLE: one byte */
    }
    *end = at + (descriptor & 4 ? 4 : 0); /* checksum */
    return SQRL_OK;
}

/* Frames that say how large they are, up to the first that doesn't. */
static int find_frames(struct build *b, struct sqrl_error *err) {
    uint64_t size = sqrl_file_size(b->file), end = 0, content = 0;
    uint64_t at = 0, raw = 0;
    while (at + 8 < size) {
        int rc = zstd_frame(b, at, &end, &content, err);
        if (rc)
            return rc;
        if (content == UINT64_MAX)
            return SQRL_OK;
        raw += content;
        at = end;
        if (at + 8 < size && raw - b->last_point >= CLEAN_SPACING)
            rc = add_point(b, at, raw, NULL, NULL, 0, err);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

/* --- everything else --- */
static int scan_through(struct build *b, struct sqrl_error *err) {
    struct sqrl_payload payload = {0};
    uint8_t *room = sqrl_malloc(OUT_BYTES, "bytes to index", err);
    int rc = room ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_payload_open(&payload, b->context, b->file, err);
    while (rc == SQRL_OK && !payload.end) {
        size_t got = 0;
        rc = sqrl_payload_read(&payload, room, OUT_BYTES, &got, NULL, err);
        feed(b, room, got);
    }
    sqrl_payload_close(&payload);
    free(room);
    return rc;
}

static int scan(struct build *b, struct sqrl_error *err) {
    sqrl_xxh3_init(&b->hash);
    int rc = b->codec ? add_point(b, 0, 0, NULL, NULL, 0, err) : SQRL_OK;
    if (rc == SQRL_OK && b->codec && strcmp(b->codec->name, "zstd") == 0)
        rc = find_frames(b, err);
    if (rc)
        return rc;
    rc = b->codec && strcmp(b->codec->name, "gzip") == 0 ? scan_gzip(b, err)
                                                         : scan_through(b, err);
    if (rc == SQRL_OK && b->current < b->blocks)
        end_block(b);
    if (rc == SQRL_OK && b->current < b->blocks)
        rc = sqrl_error_set(err, SQRL_E_STATE,
                            "the file changed while it was indexed: index it again");
    return rc;
}

/* --- writing --- */
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

static int put_binary(struct sqrl_bytes *out, const char *key,
                      const struct sqrl_bytes *bytes, struct sqrl_error *err) {
    int rc = put_text(out, key, err);
    return rc ? rc : sqrl_msgpack_put_binary(out, bytes->data, bytes->size, err);
}

/* The last point at or before the block. */
static uint32_t point_of(const struct build *b, const struct sqrl_sidecar_block *block) {
    uint64_t low = 0, high = b->point_count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t raw = sqrl_load_le64(b->points.data + 40 * middle + 8);
        *(raw <= block->raw_offset ? &low : &high) = middle;
    }
    return (uint32_t)low;
}

static int put_blocks(const struct build *b, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    struct sqrl_bytes table = {0};
    int rc = sqrl_bytes_reserve(&table, 40 * (size_t)b->blocks + 1, err);
    for (uint64_t i = 0; rc == SQRL_OK && i < b->blocks; i++) {
        const struct sqrl_sidecar_block *block = &b->block[i];
        uint8_t record[40] = {0};
        sqrl_store_le64(record, block->raw_offset);
        sqrl_store_le64(record + 8, block->raw_bytes);
        sqrl_store_le64(record + 16, block->checksum);
        sqrl_store_le32(record + 24, block->samples);
        sqrl_store_le32(record + 28, b->codec ? point_of(b, block) : 0);
        rc = sqrl_bytes_append(&table, record, sizeof record, err);
    }
    if (rc == SQRL_OK)
        rc = put_binary(out, "blocks", &table, err);
    sqrl_bytes_reset(&table);
    return rc;
}

static int put_content(struct build *b, struct sqrl_bytes *out, struct sqrl_error *err) {
    int rc = sqrl_bytes_append(out, SQRL_SIDECAR_MAGIC, 8, err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_map(out, 11, err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "version", SQRL_SIDECAR_VERSION, err);
    if (rc == SQRL_OK)
        rc = put_text_pair(out, "writer", "libsqrl " SQRL_VERSION, err);
    if (rc == SQRL_OK)
        rc = put_text_pair(out, "format", b->format->name, err);
    if (rc == SQRL_OK)
        rc = put_text_pair(out, "codec", b->codec ? b->codec->name : "none", err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "file_bytes", sqrl_file_size(b->file), err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "samples", b->samples, err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "raw_bytes", b->at, err);
    if (rc == SQRL_OK)
        rc = put_text(out, "schema", err);
    if (rc == SQRL_OK)
        rc = b->no_schema ? sqrl_msgpack_put_null(out, err)
                          : sqrl_schema_encode(&b->schema, out, err);
    if (rc == SQRL_OK)
        rc = put_blocks(b, out, err);
    if (rc == SQRL_OK)
        rc = put_binary(out, "points", &b->points, err);
    if (rc == SQRL_OK)
        rc = put_binary(out, "windows", &b->windows, err);
    uint8_t check[8];
    if (rc)
        return rc;
    sqrl_store_le64(check, sqrl_xxh3(out->data, out->size));
    return sqrl_bytes_append(out, check, sizeof check, err);
}

static int write_sidecar(struct build *b, struct sqrl_fs *fs, const char *path,
                         struct sqrl_error *err) {
    struct sqrl_bytes content = {0};
    struct sqrl_file_writer *writer = NULL;
    char *name = sqrl_sidecar_path(path, err);
    char *folder = name ? sqrl_strdup(name, err) : NULL;
    int rc = folder ? put_content(b, &content, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK) {
        *strrchr(folder, '/') = 0;
        rc = sqrl_fs_make_directory(fs, folder, err);
    }
    if (rc == SQRL_OK)
        rc = sqrl_file_create(fs, name, true, &writer, err);
    if (rc == SQRL_OK) {
        rc = sqrl_file_write(writer, content.data, content.size, err);
        if (rc == SQRL_OK)
            rc = sqrl_file_commit(writer, err);
        else
            sqrl_file_abort(writer);
    }
    sqrl_bytes_reset(&content);
    free(folder);
    free(name);
    return rc;
}

/* --- all of it --- */
static int build(struct build *b, struct sqrl_fs *fs, const char *path, void *reader,
                 struct sqrl_shard_info *info, struct sqrl_error *err) {
    if (info->blocks != SQRL_UNKNOWN && info->samples != SQRL_UNKNOWN) {
        b->samples = info->samples;
        b->blocks = info->blocks;
        return SQRL_OK; /* it needs none */
    }
    if (!(b->format->flags & SQRL_FORMAT_SIDECAR) || !b->format->next)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "files of format %s can't be indexed: convert them to "
                              "native shards",
                              b->format->name);
    int rc = find_blocks(b, reader, err);
    if (rc == SQRL_OK)
        rc = sqrl_payload_codec(b->file, &b->codec, err);
    if (rc == SQRL_OK)
        rc = scan(b, err);
    return rc ? rc : write_sidecar(b, fs, path, err);
}

int sqrl_sidecar_build(struct sqrl_context *context, struct sqrl_fs *fs, const char *path,
                       const struct sqrl_format_ops *format,
                       const struct sqrl_settings *settings, uint64_t *samples,
                       uint64_t *blocks, struct sqrl_error *err) {
    struct build b = {.context = context, .format = format};
    struct sqrl_shard_info info = {SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    *samples = *blocks = 0;
    void *reader = sqrl_calloc(1, SQRL_MAX(format->reader_size, 1u), "reader", err);
    if (!reader)
        return SQRL_E_NO_MEMORY;
    int rc = sqrl_file_open(fs, path, &b.file, err);
    if (rc == SQRL_OK) {
        struct sqrl_reader_args args = {.context = context,
                                        .fs = fs,
                                        .file = b.file,
                                        .settings = settings,
                                        .in_order = true};
        rc = format->open(reader, &args, &info, err);
        if (rc == SQRL_OK)
            rc = build(&b, fs, path, reader, &info, err);
        format->close(reader);
        *samples = b.samples;
        *blocks = b.blocks;
    }
    free(reader);
    build_reset(&b);
    return rc;
}
