/* jsonl.c - "jsonl": one JSON value a line. docs/formats/json-lines.md.
 *
 * A compressed file is cut into whole lines in order, and the pieces are parsed on any
 * thread. A plain one is cut into stretches of STRETCH bytes
 * that any thread may load: block k holds the lines that begin in stretch k, found by the
 * first line end at or behind the byte before it. How many lines there are before a block
 * is not known then; when a line is faulty, the lines before it are counted to name it,
 * and the block is parsed again (parsing changes strings in place, so it is read again
 * too). */
#include <stdlib.h>

#include "format/format.h"
#include "format/sidecar.h"
#include "value/value.h"

enum {
    AHEAD = 32 << 10, /* read behind a stretch, for the end of its last line */
    STRETCH = SQRL_BLOCK_BYTES - AHEAD - 64
};
#define MAX_COUNTED                                                                      \
    (UINT64_C(4) << 30) /* bytes that are counted through for a line number */

static const struct sqrl_option read_options[] = {
    {"nan", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "true", NULL,
     "accept NaN, Infinity and -Infinity, as Python's json writes them"},
    {"max_line", SQRL_OPTION_SIZE, SQRL_OPTION_PLAIN, "1 GiB", NULL,
     "a line that grows beyond this and 1 MiB is refused"},
    {0}};
static const struct sqrl_option write_options[] = {
    {"codec", SQRL_OPTION_CHOICE, SQRL_OPTION_PLAIN, "none", SQRL_PRESS_CHOICES,
     "compression; default by the file's suffix"},
    {"level", SQRL_OPTION_INT, SQRL_OPTION_PLAIN, NULL, NULL,
     "compression level; default: 3 for gzip, else the codec's"},
    {"ascii", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "true", NULL,
     "characters beyond ASCII as \\uXXXX, as Python's json writes them; false: UTF-8"},
    {0}};

/* --- sniffing --- */
static size_t skip_mark(const uint8_t *bytes, size_t size) {
    return size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static bool is_space(uint8_t byte) {
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* Lines with something wrong in the first one, rather than MessagePack's integers 123
 * and 34. */
static bool begins_object(const uint8_t *bytes, size_t size) {
    size_t i = 1;
    while (i < size && is_space(bytes[i]))
        i++;
    return bytes[0] == '{' && i < size && bytes[i] == '"';
}

/* A JSON value in bytes[0, size), which is one line; `whole`: with its end. */
static int score_line(const uint8_t *bytes, size_t size, bool whole) {
    uint8_t copy[4096];
    struct sqrl_tape tape = {NULL, 0, 0};
    size_t offset = 0;
    size = SQRL_MIN(size, sizeof copy);
    memcpy(copy, bytes, size);
    int rc = sqrl_json_decode(&tape, copy, size, &offset, SQRL_JSON_NAN, NULL, NULL);
    sqrl_tape_reset(&tape);
    bool container = bytes[0] == '{' || bytes[0] == '[';
    if (rc == SQRL_OK && offset == size)
        return bytes[0] == '{' ? 80 : container ? 60 : 30;
    if (rc == SQRL_E_TRUNCATED && container)
        return whole ? 10 : 60; /* one document over many lines is not JSON lines */
    return begins_object(bytes, size) ? 25 : 0;
}

/* No lines at all: a file of no bytes, where the name promises lines. */
static bool named_lines(const char *path) {
    size_t size = strlen(path);
    return (size > 6 && strcmp(path + size - 6, ".jsonl") == 0) ||
           (size > 7 && strcmp(path + size - 7, ".ndjson") == 0);
}

static int jsonl_sniff(const struct sqrl_probe *probe) {
    const uint8_t *bytes = probe->inner ? probe->inner : probe->head;
    size_t size = probe->inner ? probe->inner_size : probe->head_size;
    if (size == 0)
        return probe->inner ? 1 : named_lines(probe->path) ? 60 : 0;
    size_t from = skip_mark(bytes, size);
    while (from < size && is_space(bytes[from]))
        from++;
    if (from == size)
        return 1;
    const uint8_t *end = memchr(bytes + from, '\n', size - from);
    return score_line(bytes + from, end ? (size_t)(end - bytes) - from : size - from,
                      end != NULL);
}

/* --- reading --- */
struct jsonl_reader {
    struct sqrl_context *context;
    struct sqrl_file *file;
    struct sqrl_limits limits;
    unsigned flags;
    size_t max_line;
    bool compressed;
    uint64_t size;               /* plain: of the file */
    struct sqrl_payload payload; /* compressed */
    uint64_t line;               /* compressed: of the next block */
    const struct sqrl_sidecar *sidecar;
};

static int jsonl_open(void *reader, const struct sqrl_reader_args *args,
                      struct sqrl_shard_info *info, struct sqrl_error *err) {
    struct jsonl_reader *r = reader;
    r->context = args->context;
    r->file = args->file;
    r->size = sqrl_file_size(args->file);
    r->line = 1;
    if (args->limits)
        r->limits = *args->limits;
    bool nan = true;
    uint64_t max_line = 0;
    int rc = sqrl_settings_bool(args->settings, read_options, "nan", &nan, err);
    if (!rc)
        rc = sqrl_settings_size(args->settings, read_options, "max_line", &max_line, err);
    if (rc)
        return rc;
    r->flags = nan ? SQRL_JSON_NAN : 0;
    r->max_line = (size_t)SQRL_MIN(SQRL_MAX(max_line, 1u), SQRL_PAYLOAD_MAX);
    r->sidecar = args->sidecar;
    if (r->sidecar) {
        sqrl_sidecar_info(r->sidecar, info);
        return SQRL_OK;
    }
    const struct sqrl_codec_ops *codec = NULL;
    rc = sqrl_payload_codec(args->file, &codec, err);
    if (rc)
        return rc;
    r->compressed = codec != NULL;
    *info = (struct sqrl_shard_info){SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    if (r->compressed)
        return sqrl_payload_open(&r->payload, args->context, args->file, err);
    if (r->size != SQRL_SIZE_UNKNOWN && !args->in_order) {
        info->blocks = (r->size + STRETCH - 1) / STRETCH;
        info->raw_bytes = r->size;
        return SQRL_OK;
    }
    r->compressed = true; /* of unknown size, or wanted so: in order, too */
    return sqrl_payload_open(&r->payload, args->context, args->file, err);
}

static void jsonl_close(void *reader) {
    sqrl_payload_close(&((struct jsonl_reader *)reader)->payload);
}

/* --- compressed: in order --- */
static uint64_t count_lines(const uint8_t *bytes, size_t size) {
    uint64_t lines = 0;
    const uint8_t *end = bytes + size;
    while (bytes < end && (bytes = memchr(bytes, '\n', (size_t)(end - bytes)))) {
        lines++;
        bytes++;
    }
    return lines;
}

/* How much of the piece is whole lines; reads on until there is one, or until the end. */
static size_t whole_lines(struct jsonl_reader *r, struct sqrl_buffer **piece,
                          int *read_rc, const struct sqrl_cancel *cancel,
                          struct sqrl_error *read_err) {
    for (;;) {
        struct sqrl_buffer *b = *piece;
        if (r->payload.end && !*read_rc)
            return b->size;
        const uint8_t *last = memrchr(b->data, '\n', b->size);
        if (last)
            return (size_t)(last - b->data) + 1;
        if (*read_rc)
            return 0;
        *read_rc = sqrl_payload_grow(&r->payload, piece, r->max_line, cancel, read_err);
    }
}

static int jsonl_next(void *reader, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, struct sqrl_error *err) {
    struct jsonl_reader *r = reader;
    struct sqrl_block *block = NULL;
    struct sqrl_buffer *piece = NULL;
    struct sqrl_error read_err;
    *out = NULL;
    sqrl_error_clear(&read_err);
    if (r->payload.end && !r->payload.held)
        return SQRL_OK;
    int rc = sqrl_block_new(r->context, &block, err);
    if (rc)
        return rc;
    block->origin = sqrl_payload_at(&r->payload);
    block->line = r->line;
    int read_rc =
        sqrl_payload_piece(&r->payload, SQRL_BLOCK_BYTES, &piece, cancel, &read_err);
    if (piece) {
        size_t end = whole_lines(r, &piece, &read_rc, cancel, &read_err);
        r->line += count_lines(piece->data, end);
        sqrl_payload_keep(&r->payload, piece, end);
        block->bytes = piece;
        piece->size = end;
    }
    if (read_rc && err)
        *err = read_err;
    *out = block;
    return read_rc;
}

static int jsonl_parse(const void *reader, struct sqrl_block *block,
                       struct sqrl_error *err) {
    const struct jsonl_reader *r = reader;
    if (!block->bytes)
        return SQRL_OK;
    const struct sqrl_buffer *b = block->bytes;
    size_t from = block->origin == 0 ? skip_mark(b->data, b->size) : 0;
    int rc = sqrl_block_parse_jsonl(block, from, r->flags, &r->limits, err);
    return rc && r->payload.codec ? sqrl_error_at(err, rc, "decompressed") : rc;
}

/* --- plain: any stretch on any thread --- */
static void jsonl_block_info(const void *reader, uint64_t block,
                             struct sqrl_block_info *out) {
    const struct jsonl_reader *r = reader;
    if (r->sidecar) {
        sqrl_sidecar_block_info(r->sidecar, block, out);
        return;
    }
    out->first = block ? SQRL_UNKNOWN : 0;
    out->samples = SQRL_NO_NODE;
    out->offset = block * STRETCH;
    out->stored_bytes = SQRL_MIN((uint64_t)STRETCH, r->size - out->offset);
    out->raw_bytes = out->stored_bytes;
}

/* Reads bytes->size.. up to `want` bytes in all, growing the buffer; fewer at the file's
 * end. */
static int read_up_to(const struct jsonl_reader *r, uint64_t origin, size_t want,
                      struct sqrl_buffer **bytes, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    struct sqrl_buffer *old = *bytes;
    want = (size_t)SQRL_MIN((uint64_t)want, r->size - origin);
    size_t have = old ? old->size : 0;
    if (!old || old->capacity < want) {
        struct sqrl_buffer *grown = NULL;
        int rc = sqrl_buffer_new(r->context, SQRL_MAX(want, 1u), &grown, err);
        if (rc)
            return rc;
        if (have)
            memcpy(grown->data, old->data, have);
        sqrl_buffer_unref(old);
        *bytes = grown;
    }
    int rc = sqrl_file_read_exact(r->file, origin + have, (*bytes)->data + have,
                                  want - have, cancel, err);
    (*bytes)->size = rc ? have : want;
    return rc;
}

/* The line in which `last` lies (the stretch's last byte) is read to its end, and the
 * buffer cut there. */
static int read_line_end(const struct jsonl_reader *r, uint64_t origin, size_t from,
                         size_t last, struct sqrl_buffer **bytes,
                         const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    const uint8_t *before =
        last > from ? memrchr((*bytes)->data + from, '\n', last - from) : NULL;
    size_t line = before ? (size_t)(before - (*bytes)->data) + 1 : from;
    for (size_t searched = last;;) {
        struct sqrl_buffer *b = *bytes;
        const uint8_t *end = searched < b->size
                                 ? memchr(b->data + searched, '\n', b->size - searched)
                                 : NULL;
        size_t line_end = end ? (size_t)(end - b->data) + 1 : b->size;
        if (line_end > line && line_end - line > r->max_line) {
            sqrl_error_set(err, SQRL_E_LIMIT,
                           "the line that begins here is longer than %zu bytes (see "
                           "max_line)",
                           r->max_line);
            return sqrl_error_at(err, SQRL_E_LIMIT, "byte %llu",
                                 (unsigned long long)(origin + line));
        }
        if (end || origin + b->size == r->size) {
            b->size = line_end;
            return SQRL_OK;
        }
        searched = b->size;
        int rc = read_up_to(r, origin, 2 * b->size, bytes, cancel, err);
        if (rc)
            return rc;
    }
}

/* The stretch's lines: [*from, bytes->size) of the buffer; the buffer begins at `origin`.
 */
static int read_lines(const struct jsonl_reader *r, uint64_t number, uint64_t *origin,
                      struct sqrl_buffer **bytes, size_t *from,
                      const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    uint64_t start = number * STRETCH;
    size_t lead = number > 0; /* the byte before tells whether a line begins at `start` */
    size_t stretch = (size_t)SQRL_MIN((uint64_t)STRETCH, r->size - start);
    *origin = start - lead;
    *from = 0;
    int rc = read_up_to(r, *origin, lead + stretch + AHEAD, bytes, cancel, err);
    if (rc)
        return rc;
    if (lead) {
        const uint8_t *end = memchr((*bytes)->data, '\n', stretch);
        if (!end) { /* a line that began before reaches over all of the stretch */
            (*bytes)->size = 0;
            return SQRL_OK;
        }
        *from = (size_t)(end - (*bytes)->data) + 1;
    } else {
        *from = skip_mark((*bytes)->data, (*bytes)->size);
    }
    return read_line_end(r, *origin, *from, lead + stretch - 1, bytes, cancel, err);
}

/* Which line begins at `offset`; 0 when that can't be told (too far, or unreadable). */
static uint64_t line_at(const struct jsonl_reader *r, uint64_t offset,
                        const struct sqrl_cancel *cancel) {
    struct sqrl_buffer *bytes = NULL;
    uint64_t lines = 1, at = 0;
    if (offset > MAX_COUNTED ||
        sqrl_buffer_new(r->context, SQRL_BLOCK_BYTES, &bytes, NULL) != SQRL_OK)
        return 0;
    while (at < offset && lines) {
        size_t size = (size_t)SQRL_MIN(offset - at, (uint64_t)SQRL_BLOCK_BYTES);
        if (sqrl_cancel_requested(cancel) ||
            sqrl_file_read_exact(r->file, at, bytes->data, size, cancel, NULL) != SQRL_OK)
            lines = 0;
        else
            lines += count_lines(bytes->data, size);
        at += size;
    }
    sqrl_buffer_unref(bytes);
    return lines;
}

static int load_lines(const struct jsonl_reader *r, uint64_t number, uint64_t *line,
                      struct sqrl_block *block, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    size_t from = 0;
    block->first = number ? SQRL_UNKNOWN : 0;
    int rc = read_lines(r, number, &block->origin, &block->bytes, &from, cancel, err);
    if (rc || block->bytes->size <= from) {
        if (!rc)
            block->bytes->size = 0;
        return rc;
    }
    if (line)
        block->line = *line ? *line : line_at(r, block->origin + from, cancel);
    return sqrl_block_parse_jsonl(block, from, r->flags, &r->limits, err);
}

static bool is_fault_of_data(int rc) {
    return rc == SQRL_E_CORRUPT || rc == SQRL_E_TRUNCATED || rc == SQRL_E_LIMIT ||
           rc == SQRL_E_UNSUPPORTED;
}

static int load_indexed(const struct jsonl_reader *r, uint64_t number,
                        const struct sqrl_cancel *cancel, struct sqrl_block **out,
                        struct sqrl_error *err) {
    struct sqrl_block *block = NULL;
    int rc = sqrl_block_new(r->context, &block, err);
    if (rc)
        return rc;
    block->origin = r->sidecar->block[number].raw_offset;
    block->first = r->sidecar->block[number].first;
    rc = sqrl_sidecar_load(r->sidecar, r->context, r->file, number, cancel, &block->bytes,
                           err);
    if (!rc) {
        const struct sqrl_buffer *b = block->bytes;
        size_t from = block->origin == 0 ? skip_mark(b->data, b->size) : 0;
        rc = sqrl_block_parse_jsonl(block, from, r->flags, &r->limits, err);
    }
    if (!rc)
        rc = sqrl_sidecar_count(r->sidecar, number, block->count, err);
    if (rc)
        sqrl_block_unref(block);
    else
        *out = block;
    return rc;
}

static int jsonl_load(void *reader, uint64_t number, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, struct sqrl_error *err) {
    struct jsonl_reader *r = reader;
    *out = NULL;
    if (r->sidecar)
        return load_indexed(r, number, cancel, out, err);
    struct sqrl_block *block = NULL;
    int rc = sqrl_block_new(r->context, &block, err);
    if (rc)
        return rc;
    uint64_t first = 1;
    rc = load_lines(r, number, number == 0 ? &first : NULL, block, cancel, err);
    if (is_fault_of_data(rc) && number > 0 && block->bytes && block->bytes->size > 0) {
        uint64_t unknown = 0;
        sqrl_block_unref(block);
        rc = sqrl_block_new(r->context, &block, err);
        if (rc)
            return rc;
        rc = load_lines(r, number, &unknown, block, cancel, err);
    }
    if (rc && block->count == 0) {
        sqrl_block_unref(block);
        block = NULL;
    }
    *out = block;
    return rc;
}

/* --- writing --- */
struct jsonl_writer {
    struct sqrl_plain_writer plain; /* first: its functions take this struct */
    bool ascii;
};

static int jsonl_create(void *writer, const struct sqrl_writer_args *args,
                        struct sqrl_error *err) {
    struct jsonl_writer *w = writer;
    w->plain.context = args->context;
    w->plain.file = args->file;
    int rc = sqrl_settings_bool(args->settings, write_options, "ascii", &w->ascii, err);
    if (rc)
        return rc;
    return sqrl_pressing_read(&w->plain.pressing, args->settings, write_options, err);
}

static int encode_lines(const struct sqrl_raw_block *raw, struct sqrl_tape *tape,
                        struct sqrl_bytes *text, struct sqrl_error *err) {
    for (uint32_t i = 0; i < raw->count; i++) {
        size_t offset = raw->begin[i];
        tape->count = 0;
        int rc = sqrl_msgpack_decode(tape, raw->bytes, raw->size, &offset, NULL, err);
        if (!rc)
            rc = sqrl_json_encode(text, tape->nodes, 0, raw->bytes, err);
        if (!rc)
            rc = sqrl_bytes_append(text, "\n", 1, err);
        if (rc)
            return sqrl_error_at(err, rc, "sample %u of the block", i);
    }
    return SQRL_OK;
}

static int make_ascii(struct sqrl_bytes *text, struct sqrl_error *err) {
    struct sqrl_bytes escaped = {NULL, 0, 0};
    int rc = sqrl_bytes_reserve(&escaped, text->size + text->size / 8, err);
    if (!rc)
        rc = sqrl_json_append_ascii(&escaped, text->data, text->size, err);
    if (rc) {
        sqrl_bytes_reset(&escaped);
        return rc;
    }
    sqrl_bytes_reset(text);
    *text = escaped;
    return SQRL_OK;
}

static int jsonl_encode(const void *writer, const struct sqrl_raw_block *raw,
                        struct sqrl_coded_block *out, struct sqrl_error *err) {
    const struct jsonl_writer *w = writer;
    struct sqrl_tape tape = {NULL, 0, 0};
    struct sqrl_bytes text = {NULL, 0, 0};
    int rc = sqrl_bytes_reserve(&text, raw->size + raw->size / 4 + 1, err);
    if (!rc)
        rc = encode_lines(raw, &tape, &text, err);
    if (!rc && w->ascii)
        rc = make_ascii(&text, err);
    if (!rc)
        rc = sqrl_press(&w->plain.pressing, w->plain.context, text.data, text.size,
                        &out->stored, err);
    out->count = raw->count;
    out->raw_bytes = text.size;
    sqrl_tape_reset(&tape);
    sqrl_bytes_reset(&text);
    return rc;
}

const struct sqrl_format_ops sqrl_format_jsonl = {
    .size = sizeof sqrl_format_jsonl,
    .api = SQRL_FORMAT_API,
    .name = "jsonl",
    .doc = "JSON lines: one JSON value a line, plain or compressed; bytes become base64 "
           "text and do not come back as bytes",
    .suffixes =
        ".jsonl|.jsonl.gz|.jsonl.zst|.jsonl.lz4|.ndjson|.ndjson.gz|.ndjson.zst|.json|"
        ".json.gz|.json.zst",
    .flags = SQRL_FORMAT_INDEXED | SQRL_FORMAT_WRITES | SQRL_FORMAT_SIDECAR,
    .options = read_options,
    .write_options = write_options,
    .sniff = jsonl_sniff,
    .reader_size = sizeof(struct jsonl_reader),
    .open = jsonl_open,
    .block_info = jsonl_block_info,
    .load = jsonl_load,
    .next = jsonl_next,
    .close = jsonl_close,
    .writer_size = sizeof(struct jsonl_writer),
    .create = jsonl_create,
    .encode = jsonl_encode,
    .append = sqrl_plain_append,
    .finish = sqrl_plain_finish,
    .dispose = sqrl_plain_dispose,
    .parse = jsonl_parse,
};
