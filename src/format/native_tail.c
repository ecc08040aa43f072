/* The tail of a shard: trailer, footer, block table.
 *
 * Nothing that the file claims is believed before it is checked: the trailer by its magic
 * and checksum, the footer by the checksum in the trailer, and then, since a checksum
 * proves only that the bytes are as they were written, every number against its
 * neighbours and the size of the file. What follows may rely on it: blocks lie one behind
 * the other from offset 0, a block's raw size is one that its stored size can hold, and
 * counts and sizes add up.
 */
#include "format/native_inner.h"

#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

void native_tail_reset(struct native_tail *tail) {
    free(tail->block);
    for (uint32_t i = 0; tail->frame && i < tail->frames; i++)
        free(tail->frame[i].field);
    free(tail->frame);
    sqrl_schema_reset(&tail->schema);
    sqrl_group_reset(&tail->group);
    *tail = (struct native_tail){0};
}

/* --- the footer's map --- */

struct footer {
    struct sqrl_tape tape;
    const uint8_t *bytes;
    size_t size;
    uint32_t root;
    struct sqrl_error *err;
};

static int footer_bad(const struct footer *footer, const char *what) {
    return sqrl_error_set(footer->err, SQRL_E_CORRUPT,
                          "the footer's %s is not valid: the file was damaged or written "
                          "by a faulty program",
                          what);
}

static const struct sqrl_node *footer_get(const struct footer *footer, uint32_t map,
                                          const char *key) {
    uint32_t at = sqrl_map_find(footer->tape.nodes, map, footer->bytes, key, strlen(key));
    return at == SQRL_NO_NODE ? NULL : &footer->tape.nodes[at];
}

static bool get_count(const struct footer *footer, uint32_t map, const char *key,
                      uint64_t *out) {
    const struct sqrl_node *node = footer_get(footer, map, key);
    *out = node ? node->v.u : 0;
    return node &&
           (node->type == SQRL_UINT || (node->type == SQRL_INT && node->v.i >= 0));
}

static bool get_text(const struct footer *footer, uint32_t map, const char *key,
                     char *out, size_t size) {
    const struct sqrl_node *node = footer_get(footer, map, key);
    out[0] = '\0';
    if (!node || node->type != SQRL_STRING || node->size >= size)
        return false;
    memcpy(out, footer->bytes + node->v.offset, node->size);
    out[node->size] = '\0';
    return true;
}

/* --- block table --- */

/* The most that a frame of `stored` bytes can hold: a zstd block of 4 bytes (3 and one
 * repeated byte) makes 128 KiB, one byte of lz4 makes at most 255. */
static bool plausible(const struct sqrl_codec_ops *codec, uint64_t stored, uint64_t raw) {
    if (stored > SQRL_NATIVE_MAX_RAW + (SQRL_NATIVE_MAX_RAW >> 7))
        return false;
    uint64_t most =
        strcmp(codec->name, "zstd") == 0 ? (stored / 4 + 1) << 17 : (stored + 1) * 255;
    return raw <= most && raw <= SQRL_NATIVE_MAX_RAW;
}

static void record_read(const uint8_t *p, struct native_block *block) {
    block->offset = sqrl_load_le64(p);
    block->stored = sqrl_load_le64(p + 8);
    block->raw = sqrl_load_le64(p + 16);
    block->samples = sqrl_load_le32(p + 24);
    block->flags = sqrl_load_le32(p + 28);
    block->checksum = sqrl_load_le64(p + 32);
}

static int block_bad(struct sqrl_error *err, uint64_t i, const char *what) {
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "the footer's entry of block %llu is not valid (%s): the file "
                          "was damaged or written by a faulty program",
                          LLU(i), what);
}

static int check_block(const struct native_tail *tail, uint64_t i, uint64_t offset,
                       uint64_t limit, struct sqrl_error *err) {
    const struct native_block *block = &tail->block[i];
    if (block->offset != offset)
        return block_bad(err, i, "it does not follow the block before it");
    if (block->stored == 0 || block->stored > limit - offset)
        return block_bad(err, i, "it does not lie within the data");
    if (!plausible(tail->codec, block->stored, block->raw))
        return block_bad(err, i, "its size is not possible");
    if (block->samples == 0 || block->samples > block->raw)
        return block_bad(err, i, "its count is not possible");
    if ((block->flags & NATIVE_STORED) &&
        (!tail->codec->stored_framing ||
         tail->codec->stored_size(block->raw) != block->stored))
        return block_bad(err, i, "its size is not that of a stored frame");
    return SQRL_OK;
}

/* `limit`: where the data end at the latest. */
static int read_table(const struct footer *footer, uint64_t limit,
                      struct native_tail *out) {
    const struct sqrl_node *node = footer_get(footer, footer->root, "blocks");
    if (!node || node->type != SQRL_BINARY || node->size % NATIVE_RECORD_BYTES)
        return footer_bad(footer, "block table");
    uint64_t blocks = node->size / NATIVE_RECORD_BYTES;
    out->block = sqrl_calloc(blocks + 1, sizeof *out->block, "block table", footer->err);
    if (!out->block)
        return SQRL_E_NO_MEMORY;
    out->blocks = blocks;
    uint64_t offset = 0, samples = 0, raw = 0;
    for (uint64_t i = 0; i < blocks; i++) {
        struct native_block *block = &out->block[i];
        record_read(footer->bytes + node->v.offset + i * NATIVE_RECORD_BYTES, block);
        int rc = check_block(out, i, offset, limit, footer->err);
        if (rc)
            return rc;
        block->first = samples;
        offset += block->stored;
        samples += block->samples;
        raw += block->raw; /* can't overflow: at most 2^17 times the size of the file */
    }
    out->data_bytes = offset;
    if (samples != out->samples || raw != out->raw_bytes)
        return footer_bad(footer, "total of its blocks");
    return SQRL_OK;
}

/* --- list of frames --- */

/* What is said of keys and columns beside their place. */
static int read_index_entry(const struct footer *footer, uint32_t map,
                            struct native_frame *frame) {
    bool keys = strcmp(frame->kind, "keys") == 0;
    char field[1025];
    uint64_t bits;
    if (!keys && strcmp(frame->kind, "column") != 0)
        return SQRL_OK;
    const struct sqrl_node *valid = footer_get(footer, map, "valid");
    if (!get_text(footer, map, "field", field, sizeof field) ||
        (keys && (!get_count(footer, map, "count", &frame->count) ||
                  !get_count(footer, map, "bits", &bits) || bits > NATIVE_MAX_BITS)) ||
        (!keys && (!get_text(footer, map, "dtype", frame->dtype, sizeof frame->dtype) ||
                   !valid || valid->type != SQRL_BOOL)))
        return footer_bad(footer, "entry of keys or a column");
    frame->bits = keys ? (uint32_t)bits : 0;
    frame->valid = !keys && valid->v.u;
    uint64_t head = NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES;
    if (keys && (frame->count > frame->size / NATIVE_KEY_BYTES ||
                 frame->size != head + 8 * ((UINT64_C(1) << bits) + 1) +
                                    NATIVE_KEY_BYTES * frame->count))
        return footer_bad(footer, "size of its keys");
    frame->field = sqrl_strdup(field, footer->err);
    return frame->field ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* Frames lie one behind the other between the data and the footer at `end`. Which kinds
 * they are doesn't matter here: unknown ones are left alone. */
static int read_frames(const struct footer *footer, uint64_t end,
                       struct native_tail *out) {
    const struct sqrl_node *list = footer_get(footer, footer->root, "frames");
    if (!list || list->type != SQRL_ARRAY)
        return footer_bad(footer, "list of frames");
    const struct sqrl_node *nodes = footer->tape.nodes;
    out->frame = sqrl_calloc((size_t)list->size + 1, sizeof *out->frame, "list of frames",
                             footer->err);
    if (!out->frame)
        return SQRL_E_NO_MEMORY;
    uint64_t offset = out->data_bytes;
    uint32_t n = (uint32_t)(list - nodes) + 1;
    for (uint32_t i = 0; i < list->size; i++, n = sqrl_node_next(nodes, n)) {
        struct native_frame *frame = &out->frame[i];
        if (nodes[n].type != SQRL_MAP ||
            !get_text(footer, n, "kind", frame->kind, sizeof frame->kind) ||
            !get_count(footer, n, "offset", &frame->offset) ||
            !get_count(footer, n, "size", &frame->size) ||
            !get_count(footer, n, "checksum", &frame->checksum) ||
            frame->offset != offset ||
            frame->size < NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES ||
            frame->size > end - offset)
            return footer_bad(footer, "list of frames");
        offset += frame->size;
        out->frames = i + 1;
        int rc = read_index_entry(footer, n, frame);
        if (rc)
            return rc;
    }
    return offset == end ? SQRL_OK : footer_bad(footer, "list of frames");
}

/* --- all of the footer --- */

/* A later minor version may add what a reader must know about; it says so by name. */
static int check_required(const struct footer *footer) {
    const struct sqrl_node *list = footer_get(footer, footer->root, "requires");
    if (!list || (list->type == SQRL_ARRAY && list->size == 0))
        return SQRL_OK;
    if (list->type != SQRL_ARRAY || list[1].type != SQRL_STRING)
        return footer_bad(footer, "list of requirements");
    return sqrl_error_set(
        footer->err, SQRL_E_UNSUPPORTED,
        "the shard needs \"%.*s\", which this version of the library does not know: "
        "update it",
        (int)SQRL_MIN(list[1].size, 64u), (const char *)footer->bytes + list[1].v.offset);
}

static int read_schema(const struct footer *footer, struct native_tail *out) {
    const struct sqrl_node *node = footer_get(footer, footer->root, "schema");
    if (!node || node->type == SQRL_NULL)
        return SQRL_OK;
    int rc = sqrl_schema_decode(&out->schema, footer->tape.nodes,
                                (uint32_t)(node - footer->tape.nodes), footer->bytes,
                                footer->err);
    if (rc)
        return sqrl_error_at(footer->err, rc, "footer");
    out->has_schema = true;
    out->schema.samples = out->samples;
    return SQRL_OK;
}

static int read_group(const struct footer *footer, struct native_tail *out) {
    const struct sqrl_node *node = footer_get(footer, footer->root, "group");
    if (!node)
        return SQRL_OK;
    int rc = sqrl_group_decode(&out->group, footer->tape.nodes,
                               (uint32_t)(node - footer->tape.nodes), footer->bytes,
                               footer->err);
    if (rc == SQRL_OK && !out->group.family[0])
        rc = footer_bad(footer, "group of fields");
    return rc ? sqrl_error_at(footer->err, rc, "footer") : SQRL_OK;
}

static int read_map(const struct footer *footer, uint64_t offset,
                    struct native_tail *out) {
    int rc = check_required(footer);
    if (rc)
        return rc;
    char codec[16];
    if (!get_text(footer, footer->root, "codec", codec, sizeof codec))
        return footer_bad(footer, "codec");
    out->codec = sqrl_codec_by_name(codec);
    if (!out->codec || (strcmp(codec, "zstd") != 0 && strcmp(codec, "lz4") != 0))
        return sqrl_error_set(
            footer->err, SQRL_E_UNSUPPORTED,
            "the shard is compressed with \"%s\", which is not built in", codec);
    if (!get_count(footer, footer->root, "samples", &out->samples) ||
        !get_count(footer, footer->root, "raw_bytes", &out->raw_bytes))
        return footer_bad(footer, "total");
    rc = read_table(footer, offset, out);
    if (rc == SQRL_OK)
        rc = read_frames(footer, offset, out);
    if (rc == SQRL_OK)
        rc = read_schema(footer, out);
    if (rc == SQRL_OK)
        rc = read_group(footer, out);
    return rc;
}

int native_footer_parse(const uint8_t *frame, size_t size, uint64_t offset,
                        struct native_tail *out, struct sqrl_error *err) {
    size_t head = NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES;
    if (size < head || sqrl_load_le32(frame) != NATIVE_SKIP_MAGIC ||
        sqrl_load_le32(frame + 4) != size + NATIVE_TRAILER_BYTES - NATIVE_SKIP_BYTES ||
        memcmp(frame + NATIVE_SKIP_BYTES, NATIVE_TAG_FOOTER, NATIVE_TAG_BYTES) != 0)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "offset %llu: the footer's frame is not valid",
                              LLU(offset));
    struct footer footer = {.bytes = frame, .size = size, .err = err};
    struct sqrl_limits limits = {.max_depth = 16, .max_nodes = 1u << 20};
    size_t at = head;
    int rc = sqrl_msgpack_decode(&footer.tape, frame, size, &at, &limits, err);
    if (rc)
        rc = sqrl_error_at(err, rc, "footer at offset %llu", LLU(offset));
    else if (at != size || footer.tape.nodes[0].type != SQRL_MAP)
        rc = footer_bad(&footer, "content");
    else
        rc = read_map(&footer, offset, out);
    sqrl_tape_reset(&footer.tape);
    return rc;
}

/* --- the trailer --- */

static bool begins_like_data(const uint8_t *head, size_t size) {
    const struct sqrl_codec_ops *codec = sqrl_codec_by_magic(head, size);
    return (size >= 4 && sqrl_load_le32(head) == NATIVE_SKIP_MAGIC) ||
           (codec &&
            (strcmp(codec->name, "zstd") == 0 || strcmp(codec->name, "lz4") == 0));
}

/* The last bytes are no trailer: tells a file that was cut from one that is no shard. */
static int no_trailer(struct sqrl_file *file, struct sqrl_error *err) {
    uint8_t head[8];
    uint64_t bytes = sqrl_file_size(file);
    size_t size = (size_t)SQRL_MIN(bytes, sizeof head);
    if (bytes == 0)
        return sqrl_error_set(err, SQRL_E_TRUNCATED,
                              "the file is empty: it was not written or copied whole");
    int rc = sqrl_file_read_exact(file, 0, head, size, NULL, err);
    if (rc)
        return rc;
    if (!begins_like_data(head, size))
        return sqrl_error_set(
            err, SQRL_E_FORMAT,
            "this is not a native shard: neither its beginning nor its end "
            "is one's; is it named wrongly?");
    return sqrl_error_set(err, SQRL_E_TRUNCATED,
                          "there is no footer at the end (offset %llu): the file was not "
                          "written or copied whole; copy or pack it again",
                          LLU(bytes));
}

struct trailer {
    uint64_t offset, size, checksum;
};

static int check_trailer(const uint8_t *p, uint64_t file_bytes, struct trailer *out,
                         struct sqrl_error *err) {
    uint64_t at = file_bytes - NATIVE_TRAILER_BYTES;
    *out = (struct trailer){sqrl_load_le64(p), sqrl_load_le64(p + 8),
                            sqrl_load_le64(p + 16)};
    uint32_t version = sqrl_load_le32(p + 24);
    if (sqrl_load_le32(p + 28) != (uint32_t)sqrl_xxh3(p, 28))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "trailer at offset %llu: checksum differs: the file was "
                              "damaged or changed after it was written; restore it",
                              LLU(at));
    if (version != SQRL_NATIVE_VERSION)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "the shard has format version %u; this library reads "
                              "version %u: update it",
                              version, SQRL_NATIVE_VERSION);
    if (out->offset > at || out->size != at - out->offset)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the trailer names a footer at offset %llu of %llu bytes, "
                              "but the file has %llu: it was joined or cut after it was "
                              "written",
                              LLU(out->offset), LLU(out->size), LLU(file_bytes));
    if (out->size > NATIVE_MAX_FOOTER)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "the footer has %llu bytes; at most %llu are read",
                              LLU(out->size), LLU(NATIVE_MAX_FOOTER));
    return SQRL_OK;
}

static int parse_footer(const uint8_t *footer, const struct trailer *trailer,
                        struct native_tail *out, struct sqrl_error *err) {
    out->footer_checksum = trailer->checksum;
    if (sqrl_xxh3(footer, trailer->size) != trailer->checksum)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "footer at offset %llu: checksum differs: the file was "
                              "damaged or changed after it was written; restore it",
                              LLU(trailer->offset));
    return native_footer_parse(footer, trailer->size, trailer->offset, out, err);
}

int native_tail_read(struct sqrl_context *context, struct sqrl_file *file,
                     struct native_tail *out, struct sqrl_error *err) {
    *out = (struct native_tail){.file_bytes = sqrl_file_size(file)};
    uint64_t bytes = out->file_bytes;
    if (bytes < NATIVE_TRAILER_BYTES)
        return no_trailer(file, err);
    size_t got = (size_t)SQRL_MIN(bytes, (uint64_t)SQRL_NATIVE_TAIL_BYTES);
    struct sqrl_buffer *tail = NULL, *footer = NULL;
    struct trailer trailer;
    int rc = sqrl_buffer_new(context, got, &tail, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_read_exact(file, bytes - got, tail->data, got, NULL, err);
    if (rc)
        goto done;
    const uint8_t *last = tail->data + got - NATIVE_TRAILER_BYTES;
    if (memcmp(last + 32, NATIVE_MAGIC, 8) != 0) {
        rc = no_trailer(file, err);
        goto done;
    }
    rc = check_trailer(last, bytes, &trailer, err);
    if (rc)
        goto done;
    if (trailer.size + NATIVE_TRAILER_BYTES <= got) {
        rc = parse_footer(last - trailer.size, &trailer, out, err);
        goto done;
    }
    rc = sqrl_buffer_new(context, trailer.size, &footer, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_read_exact(file, trailer.offset, footer->data, trailer.size, NULL,
                                  err);
    if (rc == SQRL_OK)
        rc = parse_footer(footer->data, &trailer, out, err);
done:
    sqrl_buffer_unref(footer);
    sqrl_buffer_unref(tail);
    return rc;
}
