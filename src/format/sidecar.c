/* sidecar.c - reading a sidecar, and a file by it.
 *
 * Nothing that it claims is believed before it is checked against its neighbours, and a
 * block's bytes are compared with the checksum that was taken when the file was indexed:
 * a file that changed since is noticed when it is read. */
#include "format/sidecar.h"

#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

enum { BLOCK_RECORD = 40, POINT_RECORD = 40, SKIP_BYTES = 64 << 10 };
#define MAX_BYTES (UINT64_C(1) << 30)

char *sqrl_sidecar_path(const char *path, struct sqrl_error *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return sqrl_format(err, "%.*s" SQRL_SIDECAR_FOLDER "/%s" SQRL_SIDECAR_SUFFIX,
                       (int)(name - path), path, name);
}

void sqrl_sidecar_free(struct sqrl_sidecar *sidecar) {
    if (!sidecar)
        return;
    sqrl_buffer_unref(sidecar->content);
    sqrl_schema_reset(&sidecar->schema);
    free(sidecar->block);
    free(sidecar->point);
    free(sidecar);
}

/* --- parsing --- */
struct parser {
    struct sqrl_sidecar *out;
    struct sqrl_tape tape;
    const uint8_t *bytes;
    struct sqrl_error *err;
};

static int bad(const struct parser *p, const char *what) {
    return sqrl_error_set(p->err, SQRL_E_CORRUPT,
                          "the index's %s is not valid: it was damaged or written by a "
                          "faulty program; run `squirrel index` again",
                          what);
}

static const struct sqrl_node *get(const struct parser *p, const char *key) {
    uint32_t at = sqrl_map_find(p->tape.nodes, 0, p->bytes, key, strlen(key));
    return at == SQRL_NO_NODE ? NULL : &p->tape.nodes[at];
}

static bool get_count(const struct parser *p, const char *key, uint64_t *out) {
    const struct sqrl_node *node = get(p, key);
    *out = node ? node->v.u : 0;
    return node &&
           (node->type == SQRL_UINT || (node->type == SQRL_INT && node->v.i >= 0));
}

static bool get_text(const struct parser *p, const char *key, char *out, size_t size) {
    const struct sqrl_node *node = get(p, key);
    if (!node || node->type != SQRL_STRING || node->size >= size)
        return false;
    memcpy(out, p->bytes + node->v.offset, node->size);
    out[node->size] = 0;
    return true;
}

static bool get_records(const struct parser *p, const char *key, size_t record,
                        const uint8_t **at, uint64_t *count) {
    const struct sqrl_node *node = get(p, key);
    if (!node || node->type != SQRL_BINARY || node->size % record)
        return false;
    *at = p->bytes + node->v.offset;
    *count = node->size / record;
    return true;
}

static int read_points(struct parser *p) {
    struct sqrl_sidecar *s = p->out;
    const uint8_t *at, *windows;
    uint64_t window_bytes;
    if (!get_records(p, "points", POINT_RECORD, &at, &s->points) ||
        !get_records(p, "windows", 1, &windows, &window_bytes))
        return bad(p, "list of places");
    s->point = sqrl_calloc(s->points + 1, sizeof *s->point, "places", p->err);
    if (!s->point)
        return SQRL_E_NO_MEMORY;
    for (uint64_t i = 0; i < s->points; i++, at += POINT_RECORD) {
        struct sqrl_payload_point *point = &s->point[i];
        uint64_t offset = sqrl_load_le64(at + 16), size = sqrl_load_le32(at + 24);
        point->file_offset = sqrl_load_le64(at);
        point->raw_offset = sqrl_load_le64(at + 8);
        point->bits = at[32];
        point->value = at[33];
        point->window = windows + offset;
        point->window_bytes = (size_t)size;
        point->window_raw = sqrl_load_le32(at + 28);
        if (point->file_offset > s->file_bytes || point->bits > 7 ||
            offset > window_bytes || size > window_bytes - offset ||
            (i && point->raw_offset < point[-1].raw_offset))
            return bad(p, "list of places");
    }
    return SQRL_OK;
}

/* No codec of ours makes more of a file: a zstd block of 4 bytes 128 KiB. */
static bool plausible(uint64_t file_bytes, uint64_t raw_bytes) {
    return raw_bytes / (UINT64_C(1) << 17) <= file_bytes / 4 + 1;
}

static int read_blocks(struct parser *p) {
    struct sqrl_sidecar *s = p->out;
    const uint8_t *at;
    if (!get_records(p, "blocks", BLOCK_RECORD, &at, &s->blocks))
        return bad(p, "block table");
    s->block = sqrl_calloc(s->blocks + 1, sizeof *s->block, "block table", p->err);
    if (!s->block)
        return SQRL_E_NO_MEMORY;
    uint64_t samples = 0, end = 0;
    for (uint64_t i = 0; i < s->blocks; i++, at += BLOCK_RECORD) {
        struct sqrl_sidecar_block *block = &s->block[i];
        *block = (struct sqrl_sidecar_block){
            .raw_offset = sqrl_load_le64(at),
            .raw_bytes = sqrl_load_le64(at + 8),
            .checksum = sqrl_load_le64(at + 16),
            .first = samples,
            .samples = sqrl_load_le32(at + 24),
            .point = sqrl_load_le32(at + 28),
        };
        if (block->raw_offset < end || block->raw_offset > s->raw_bytes ||
            block->raw_bytes > s->raw_bytes - block->raw_offset ||
            block->raw_bytes > SQRL_PAYLOAD_MAX || !block->samples ||
            block->samples > block->raw_bytes ||
            (s->codec && (block->point >= s->points ||
                          s->point[block->point].raw_offset > block->raw_offset)))
            return bad(p, "block table");
        end = block->raw_offset + block->raw_bytes;
        samples += block->samples;
    }
    return samples == s->samples ? SQRL_OK : bad(p, "total of its blocks");
}

static int read_schema(struct parser *p) {
    const struct sqrl_node *node = get(p, "schema");
    if (!node || node->type == SQRL_NULL)
        return SQRL_OK;
    int rc = sqrl_schema_decode(&p->out->schema, p->tape.nodes,
                                (uint32_t)(node - p->tape.nodes), p->bytes, p->err);
    p->out->has_schema = rc == SQRL_OK;
    p->out->schema.samples = p->out->samples;
    return rc;
}

static int read_map(struct parser *p) {
    struct sqrl_sidecar *s = p->out;
    uint64_t version;
    char codec[16];
    if (!get_count(p, "version", &version))
        return bad(p, "version");
    if (version != SQRL_SIDECAR_VERSION)
        return sqrl_error_set(
            p->err, SQRL_E_UNSUPPORTED,
            "the index has version %llu; this library reads version %u: "
            "update it, or run `squirrel index` again",
            LLU(version), SQRL_SIDECAR_VERSION);
    if (!get_text(p, "format", s->format, sizeof s->format) ||
        !get_text(p, "codec", codec, sizeof codec))
        return bad(p, "format");
    s->codec = strcmp(codec, "none") == 0 ? NULL : sqrl_codec_by_name(codec);
    if (strcmp(codec, "none") != 0 && (!s->codec || !s->codec->decoder_size))
        return bad(p, "codec");
    if (!get_count(p, "file_bytes", &s->file_bytes) ||
        !get_count(p, "samples", &s->samples) ||
        !get_count(p, "raw_bytes", &s->raw_bytes) ||
        !plausible(s->file_bytes, s->raw_bytes))
        return bad(p, "total");
    int rc = read_points(p);
    if (rc == SQRL_OK)
        rc = read_blocks(p);
    return rc ? rc : read_schema(p);
}

int sqrl_sidecar_parse(struct sqrl_buffer *content, struct sqrl_sidecar **out,
                       struct sqrl_error *err) {
    const uint8_t *bytes = content->data;
    size_t size = content->size, end = size - 8, at = 8;
    *out = NULL;
    if (size < 16 || memcmp(bytes, SQRL_SIDECAR_MAGIC, 8) != 0)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "this is no index, or what is left of one: run `squirrel "
                              "index` again");
    if (sqrl_xxh3(bytes, end) != sqrl_load_le64(bytes + end))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the index's checksum differs: it was damaged; run "
                              "`squirrel index` again");
    struct parser p = {.bytes = bytes, .err = err};
    struct sqrl_limits limits = {.max_depth = 16, .max_nodes = 1u << 20};
    p.out = sqrl_calloc(1, sizeof *p.out, "index", err);
    if (!p.out)
        return SQRL_E_NO_MEMORY;
    p.out->content = sqrl_buffer_ref(content);
    int rc = sqrl_msgpack_decode(&p.tape, bytes, end, &at, &limits, err);
    if (rc == SQRL_OK && (at != end || p.tape.nodes[0].type != SQRL_MAP))
        rc = bad(&p, "content");
    if (rc == SQRL_OK)
        rc = read_map(&p);
    sqrl_tape_reset(&p.tape);
    if (rc) {
        sqrl_sidecar_free(p.out);
        return rc;
    }
    *out = p.out;
    return SQRL_OK;
}

static int read_content(struct sqrl_context *context, struct sqrl_file *file,
                        struct sqrl_buffer **out, struct sqrl_error *err) {
    uint64_t size = sqrl_file_size(file);
    if (size > MAX_BYTES) /* of unknown size, too */
        return sqrl_error_set(err, SQRL_E_LIMIT, "an index has at most 1 GiB");
    int rc = sqrl_buffer_new(context, (size_t)size, out, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_read_exact(file, 0, (*out)->data, (size_t)size, NULL, err);
    if (rc == SQRL_OK)
        (*out)->size = (size_t)size;
    return rc;
}

int sqrl_sidecar_read(struct sqrl_context *context, struct sqrl_fs *fs, const char *path,
                      struct sqrl_sidecar **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_file *file = NULL;
    struct sqrl_buffer *content = NULL;
    struct sqrl_error missing;
    char *name = sqrl_sidecar_path(path, err);
    if (!name)
        return SQRL_E_NO_MEMORY;
    int rc = sqrl_file_open(fs, name, &file, &missing);
    if (rc) {
        free(name);
        if (rc != SQRL_E_NOT_FOUND && err)
            *err = missing;
        return rc == SQRL_E_NOT_FOUND ? SQRL_OK : rc;
    }
    rc = read_content(context, file, &content, err);
    if (rc == SQRL_OK)
        rc = sqrl_sidecar_parse(content, out, err);
    if (rc)
        sqrl_error_at(err, rc, "%s", name);
    sqrl_buffer_unref(content);
    sqrl_file_unref(file);
    free(name);
    return rc;
}

/* --- for formats --- */
void sqrl_sidecar_info(const struct sqrl_sidecar *sidecar, struct sqrl_shard_info *out) {
    *out =
        (struct sqrl_shard_info){.samples = sidecar->samples,
                                 .blocks = sidecar->blocks,
                                 .raw_bytes = sidecar->raw_bytes,
                                 .schema = sidecar->has_schema ? &sidecar->schema : NULL};
}

void sqrl_sidecar_block_info(const struct sqrl_sidecar *sidecar, uint64_t block,
                             struct sqrl_block_info *out) {
    const struct sqrl_sidecar_block *b = &sidecar->block[block];
    *out = (struct sqrl_block_info){.first = b->first,
                                    .samples = b->samples,
                                    .offset = b->raw_offset,
                                    .stored_bytes = b->raw_bytes,
                                    .raw_bytes = b->raw_bytes};
    if (!sidecar->codec)
        return;
    out->offset = sidecar->point[b->point].file_offset; /* where reading begins */
    uint64_t next = b->point + UINT64_C(1);
    uint64_t end =
        next < sidecar->points ? sidecar->point[next].file_offset : sidecar->file_bytes;
    out->stored_bytes = end > out->offset ? end - out->offset : 1;
}

int sqrl_sidecar_count(const struct sqrl_sidecar *sidecar, uint64_t block,
                       uint32_t samples, struct sqrl_error *err) {
    if (samples == sidecar->block[block].samples)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "holds %u samples where the index says %u: run `squirrel "
                          "index` again",
                          samples, sidecar->block[block].samples);
}

/* Decompresses from the block's point on. */
static int unpack(const struct sqrl_sidecar *sidecar,
                  const struct sqrl_sidecar_block *block, struct sqrl_context *context,
                  struct sqrl_file *file, const struct sqrl_cancel *cancel, uint8_t *data,
                  size_t *got, struct sqrl_error *err) {
    const struct sqrl_payload_point *point = &sidecar->point[block->point];
    struct sqrl_payload payload = {0};
    uint64_t skip = block->raw_offset - point->raw_offset;
    uint8_t *room = sqrl_malloc(SKIP_BYTES, "bytes to pass over", err);
    int rc = room ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_payload_open_at(&payload, context, file, sidecar->codec, point, err);
    while (rc == SQRL_OK && skip) {
        size_t passed = 0;
        rc = sqrl_payload_read(&payload, room, (size_t)SQRL_MIN(skip, SKIP_BYTES + 0ull),
                               &passed, cancel, err);
        if (!passed)
            break;
        skip -= passed;
    }
    if (rc == SQRL_OK && !skip)
        rc =
            sqrl_payload_read(&payload, data, (size_t)block->raw_bytes, got, cancel, err);
    sqrl_payload_close(&payload);
    free(room);
    return rc;
}

int sqrl_sidecar_load(const struct sqrl_sidecar *sidecar, struct sqrl_context *context,
                      struct sqrl_file *file, uint64_t number,
                      const struct sqrl_cancel *cancel, struct sqrl_buffer **out,
                      struct sqrl_error *err) {
    const struct sqrl_sidecar_block *block = &sidecar->block[number];
    size_t size = (size_t)block->raw_bytes, got = 0;
    *out = NULL;
    int rc = sqrl_buffer_new(context, size, out, err);
    if (rc)
        return rc;
    if (sidecar->codec)
        rc = unpack(sidecar, block, context, file, cancel, (*out)->data, &got, err);
    else if (!(rc = sqrl_file_read_exact(file, block->raw_offset, (*out)->data, size,
                                         cancel, err)))
        got = size;
    if (rc == SQRL_OK && (got < size || sqrl_xxh3((*out)->data, size) != block->checksum))
        rc = sqrl_error_set(err, SQRL_E_CORRUPT,
                            "the bytes differ from those that were indexed: the file was "
                            "damaged or changed; restore it, or run `squirrel index` "
                            "again");
    if (rc) {
        sqrl_buffer_unref(*out);
        *out = NULL;
        return rc;
    }
    (*out)->size = size;
    return SQRL_OK;
}
