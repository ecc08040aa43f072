/* payload.c - the decompressed bytes of a file, in order, in pieces.
 *
 * A piece is a fresh buffer: blocks point into it and may outlive the reader. What a
 * piece leaves over (a sample that is cut by its end) is copied to the front of the next
 * one, so a sample's bytes are always in one run.
 *
 * A compressed file of a few MiB is unpacked at once, where its codec has a quick way to
 * do that: pieces are views into it then. Where that fails the bytes go on as a stream,
 * which tells what is wrong with them. */
#include <stdlib.h>

#include "codec/codec.h"
#include "format/payload.h"

enum { WHOLE_IN_BYTES = 8 << 20, WHOLE_OUT_BYTES = 32 << 20 };
enum { IN_BYTES = 256 << 10, MAGIC_BYTES = 6, STATE_ALIGN = 64, GZIP_LEVEL = 3 };

/* --- reading --- */
/* Reads the next `size` bytes of the file, or what is left. A file that is shorter than
 * it was when it was opened must not pass for one that ends here. */
static int read_file(struct sqrl_payload *payload, uint8_t *data, size_t size,
                     size_t *got, const struct sqrl_cancel *cancel,
                     struct sqrl_error *err) {
    struct sqrl_range range = {.offset = payload->file_at, .size = size, .data = data};
    uint64_t whole = sqrl_file_size(payload->file);
    int rc = sqrl_file_read(payload->file, &range, 1, cancel, err);
    if (rc)
        return rc;
    *got = range.got;
    payload->file_at += range.got;
    payload->io.in_end = range.got < size || payload->file_at >= whole;
    if (range.got < size && whole != SQRL_SIZE_UNKNOWN && payload->file_at < whole)
        return sqrl_error_set(
            err, SQRL_E_TRUNCATED,
            "the file had %llu bytes when it was opened, and ends at %llu "
            "now: it was changed while it was read",
            (unsigned long long)whole, (unsigned long long)payload->file_at);
    return SQRL_OK;
}

/* Reads the next stretch of the file into the empty input buffer. */
static int refill(struct sqrl_payload *payload, const struct sqrl_cancel *cancel,
                  struct sqrl_error *err) {
    size_t got = 0;
    int rc = read_file(payload, payload->in->data, IN_BYTES, &got, cancel, err);
    payload->io.in = payload->in->data;
    payload->io.in_size = got;
    return rc;
}

int sqrl_payload_codec(struct sqrl_file *file, const struct sqrl_codec_ops **out,
                       struct sqrl_error *err) {
    uint8_t magic[MAGIC_BYTES];
    struct sqrl_range range = {.size = sizeof magic, .data = magic};
    *out = NULL;
    int rc = sqrl_file_read(file, &range, 1, NULL, err);
    if (rc)
        return rc;
    const struct sqrl_codec_ops *codec = sqrl_codec_by_magic(magic, range.got);
    *out = codec && codec->decoder_size ? codec : NULL;
    return SQRL_OK;
}

static int start_decoder(struct sqrl_payload *payload, const struct sqrl_codec_ops *codec,
                         struct sqrl_error *err) {
    size_t size = (codec->decoder_size + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    payload->decoder = aligned_alloc(STATE_ALIGN, size);
    if (!payload->decoder)
        return sqrl_error_set(err, SQRL_E_NO_MEMORY,
                              "no memory for a %s decoder (%zu bytes)", codec->name,
                              size);
    memset(payload->decoder, 0, size);
    payload->codec = codec;
    return codec->decoder_open(payload->decoder, err);
}

int sqrl_payload_open(struct sqrl_payload *payload, struct sqrl_context *context,
                      struct sqrl_file *file, struct sqrl_error *err) {
    payload->context = context;
    payload->file = file;
    int rc = sqrl_buffer_new(context, IN_BYTES, &payload->in, err);
    if (!rc)
        rc = refill(payload, NULL, err);
    if (rc)
        return rc;
    const struct sqrl_codec_ops *codec = sqrl_codec_by_magic(
        payload->io.in, SQRL_MIN(payload->io.in_size, MAGIC_BYTES + 0u));
    if (!codec || !codec->decoder_size)
        return SQRL_OK;
    return start_decoder(payload, codec, err);
}

/* The window that a point within a gzip member needs. */
static int resume(struct sqrl_payload *payload, const struct sqrl_payload_point *point,
                  struct sqrl_error *err) {
    const struct sqrl_codec_ops *zstd = sqrl_codec_by_name("zstd");
    uint8_t *window = sqrl_malloc(SQRL_GZIP_WINDOW, "window", err);
    size_t size = point->window_raw;
    if (!window)
        return SQRL_E_NO_MEMORY;
    int rc = SQRL_OK;
    if (size > SQRL_GZIP_WINDOW || strcmp(payload->codec->name, "gzip") != 0)
        rc = sqrl_error_set(err, SQRL_E_CORRUPT,
                            "the index names a place that can't be gone on from; run "
                            "`squirrel index` again");
    if (rc == SQRL_OK && size)
        rc = zstd->decompress(point->window, point->window_bytes, window, size, err);
    if (rc == SQRL_OK)
        sqrl_gzip_resume(payload->decoder, point->bits, point->value, window, size);
    free(window);
    return rc;
}

int sqrl_payload_open_at(struct sqrl_payload *payload, struct sqrl_context *context,
                         struct sqrl_file *file, const struct sqrl_codec_ops *codec,
                         const struct sqrl_payload_point *point, struct sqrl_error *err) {
    payload->context = context;
    payload->file = file;
    payload->file_at = point->file_offset;
    int rc = sqrl_buffer_new(context, IN_BYTES, &payload->in, err);
    if (!rc)
        rc = refill(payload, NULL, err);
    if (!rc)
        rc = start_decoder(payload, codec, err);
    if (!rc && (point->window_raw || point->bits))
        rc = resume(payload, point, err);
    return rc;
}

void sqrl_payload_close(struct sqrl_payload *payload) {
    if (payload->codec)
        payload->codec->decoder_close(payload->decoder);
    free(payload->decoder);
    sqrl_buffer_unref(payload->in);
    sqrl_buffer_unref(payload->held);
    sqrl_buffer_unref(payload->whole);
    memset(payload, 0, sizeof *payload);
}

static int read_plain(struct sqrl_payload *payload, uint8_t *out, size_t size,
                      size_t *got, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    struct sqrl_codec_io *io = &payload->io;
    size_t ready = SQRL_MIN(io->in_size, size);
    if (ready) {
        memcpy(out, io->in, ready);
        io->in += ready;
        io->in_size -= ready;
        *got = ready;
    }
    int rc = SQRL_OK;
    if (*got < size && !io->in_end) {
        size_t more = 0;
        rc = read_file(payload, out + *got, size - *got, &more, cancel, err);
        *got += more;
    }
    payload->end = io->in_end && io->in_size == 0;
    return rc;
}

static int read_coded(struct sqrl_payload *payload, uint8_t *out, size_t size,
                      size_t *got, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    struct sqrl_codec_io *io = &payload->io;
    io->out = out;
    io->out_size = size;
    int rc = SQRL_OK;
    while (!rc && io->out_size > 0 && !io->out_end) {
        if (sqrl_cancel_requested(cancel))
            rc = sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
        else if (io->in_size == 0 && !io->in_end)
            rc = refill(payload, cancel, err);
        if (rc)
            break;
        size_t in_before = io->in_size, out_before = io->out_size;
        rc = payload->codec->decode(payload->decoder, io, err);
        if (rc)
            sqrl_error_at(err, rc, "decompressed byte %llu",
                          (unsigned long long)(payload->total + size - io->out_size));
        else if (in_before == io->in_size && out_before == io->out_size && !io->out_end &&
                 io->in_size > 0)
            rc = sqrl_error_set(err, SQRL_E_CORRUPT, "the %s decoder makes no progress",
                                payload->codec->name);
    }
    *got = size - io->out_size;
    payload->end = io->out_end;
    return rc;
}

int sqrl_payload_read(struct sqrl_payload *payload, uint8_t *out, size_t size,
                      size_t *got, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    *got = 0;
    if (payload->end || size == 0)
        return SQRL_OK;
    int rc = payload->codec ? read_coded(payload, out, size, got, cancel, err)
                            : read_plain(payload, out, size, got, cancel, err);
    payload->total += *got;
    if (payload->codec)
        sqrl_count(payload->context, SQRL_COUNT_BYTES_DECODED, *got);
    return rc;
}

/* --- a whole file at once --- */
/* Reads what is left of a small file behind what is there of it. */
static int read_all(struct sqrl_payload *payload, const struct sqrl_cancel *cancel,
                    struct sqrl_error *err) {
    struct sqrl_codec_io *io = &payload->io;
    size_t left = (size_t)(sqrl_file_size(payload->file) - payload->file_at), got = 0;
    struct sqrl_buffer *all = NULL;
    int rc = sqrl_buffer_new(payload->context, io->in_size + left, &all, err);
    if (rc)
        return rc;
    memcpy(all->data, io->in, io->in_size);
    rc = read_file(payload, all->data + io->in_size, left, &got, cancel, err);
    io->in = all->data;
    io->in_size += got;
    sqrl_buffer_unref(payload->in);
    payload->in = all;
    return rc;
}

/* Before the first piece: sets payload->whole where that can be done. */
static int try_whole(struct sqrl_payload *payload, const struct sqrl_cancel *cancel,
                     struct sqrl_error *err) {
    const struct sqrl_codec_ops *codec = payload->codec;
    if (payload->total || payload->io.in_total || !codec || !codec->whole ||
        sqrl_file_size(payload->file) > WHOLE_IN_BYTES)
        return SQRL_OK;
    if (!payload->io.in_end) {
        int rc = read_all(payload, cancel, err);
        if (rc)
            return rc;
    }
    const struct sqrl_codec_io *io = &payload->io;
    uint64_t size = codec->whole_size(io->in, io->in_size);
    if (!size || size > WHOLE_OUT_BYTES)
        return SQRL_OK;
    struct sqrl_buffer *whole = NULL;
    int rc = sqrl_buffer_new(payload->context, (size_t)size, &whole, err);
    if (rc)
        return rc;
    whole->size = (size_t)size;
    if (codec->whole(io->in, io->in_size, whole->data, whole->size)) {
        payload->whole = whole;
        sqrl_count(payload->context, SQRL_COUNT_BYTES_DECODED, size);
        sqrl_buffer_unref(payload->in);
        payload->in = NULL;
    } else {
        sqrl_buffer_unref(whole);
    }
    return SQRL_OK;
}

static void release_whole(void *whole) {
    sqrl_buffer_unref(whole);
}

/* whole[from, from + size), or up to its end. */
static int view_from(struct sqrl_payload *payload, size_t from, size_t size,
                     struct sqrl_buffer **out, struct sqrl_error *err) {
    struct sqrl_buffer *whole = payload->whole;
    size = SQRL_MIN(size, whole->size - from);
    *out = NULL;
    int rc = SQRL_OK;
    if (size)
        rc = sqrl_buffer_wrap(whole->data + from, size, release_whole,
                              sqrl_buffer_ref(whole), out, err);
    if (rc) {
        sqrl_buffer_unref(whole);
        return rc;
    }
    payload->total = from + size;
    payload->end = payload->total == whole->size;
    return SQRL_OK;
}

/* --- pieces --- */
static int piece_from(struct sqrl_payload *payload, const uint8_t *old, size_t old_size,
                      size_t size, struct sqrl_buffer **out,
                      const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_buffer *piece = NULL;
    int rc = sqrl_buffer_new(payload->context, size, &piece, err);
    if (rc)
        return rc;
    if (old_size)
        memcpy(piece->data, old, old_size);
    size_t got = 0;
    rc = sqrl_payload_read(payload, piece->data + old_size, size - old_size, &got, cancel,
                           err);
    piece->size = old_size + got;
    if (piece->size == 0) {
        sqrl_buffer_unref(piece);
        piece = NULL;
    }
    *out = piece;
    return rc;
}

int sqrl_payload_piece(struct sqrl_payload *payload, size_t size,
                       struct sqrl_buffer **out, const struct sqrl_cancel *cancel,
                       struct sqrl_error *err) {
    const uint8_t *old = NULL;
    size_t old_size = 0;
    *out = NULL;
    int rc = try_whole(payload, cancel, err);
    if (rc)
        return rc;
    if (payload->held) {
        old = payload->held->data + payload->held_from;
        old_size = payload->held_end - payload->held_from;
    }
    /* Room for something new besides what is left over. */
    while (size < 2 * old_size)
        size *= 2;
    if (payload->whole)
        rc = view_from(payload, (size_t)payload->total - old_size, size, out, err);
    else
        rc = piece_from(payload, old, old_size, size, out, cancel, err);
    if (*out || !rc) {
        sqrl_buffer_unref(payload->held);
        payload->held = NULL;
    }
    return rc;
}

int sqrl_payload_grow(struct sqrl_payload *payload, struct sqrl_buffer **piece,
                      size_t max, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err) {
    struct sqrl_buffer *old = *piece;
    if (old->size >= max)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "one sample takes more than %zu bytes, which is the limit",
                              max);
    struct sqrl_buffer *grown = NULL;
    size_t size = SQRL_MIN(2 * old->capacity, max);
    int rc =
        payload->whole
            ? view_from(payload, (size_t)payload->total - old->size, size, &grown, err)
            : piece_from(payload, old->data, old->size, size, &grown, cancel, err);
    if (grown) {
        sqrl_buffer_unref(old);
        *piece = grown;
    }
    return rc;
}

void sqrl_payload_keep(struct sqrl_payload *payload, struct sqrl_buffer *piece,
                       size_t from) {
    sqrl_buffer_unref(payload->held);
    payload->held = from < piece->size ? sqrl_buffer_ref(piece) : NULL;
    payload->held_from = from;
    payload->held_end = piece->size;
}

uint64_t sqrl_payload_at(const struct sqrl_payload *payload) {
    size_t held = payload->held ? payload->held_end - payload->held_from : 0;
    return payload->total - held;
}

/* --- blocks --- */
/* Parses the piece, and larger ones until one holds a whole sample or the end is there.
 */
static int parse_piece(struct sqrl_payload *payload, sqrl_payload_parse parse,
                       void *reader, struct sqrl_block *block, struct sqrl_buffer **piece,
                       int *read_rc, const struct sqrl_cancel *cancel,
                       struct sqrl_error *read_err, struct sqrl_error *err) {
    for (;;) {
        size_t tail = 0;
        sqrl_buffer_unref(block->bytes);
        block->bytes = sqrl_buffer_ref(*piece);
        block->front = 0;
        int rc = parse(reader, block, &tail, err);
        if (rc)
            return rc;
        if (*read_rc || payload->end || block->count > 0) {
            sqrl_payload_keep(payload, *piece, tail);
            return SQRL_OK;
        }
        *read_rc = sqrl_payload_grow(payload, piece, SQRL_PAYLOAD_MAX, cancel, read_err);
    }
}

static int cut_short(const struct sqrl_payload *payload, struct sqrl_error *err) {
    sqrl_error_set(
        err, SQRL_E_TRUNCATED,
        "the file ends within a sample, after %zu bytes of it; it was cut short: "
        "get it again",
        payload->held_end - payload->held_from);
    sqrl_error_at(err, SQRL_E_TRUNCATED, "byte %llu",
                  (unsigned long long)sqrl_payload_at(payload));
    return sqrl_error_at(err, SQRL_E_TRUNCATED, "sample %llu",
                         (unsigned long long)payload->samples);
}

int sqrl_payload_next(struct sqrl_payload *payload, sqrl_payload_parse parse,
                      void *reader, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, struct sqrl_error *err) {
    struct sqrl_block *block = NULL;
    struct sqrl_buffer *piece = NULL;
    struct sqrl_error read_err;
    *out = NULL;
    sqrl_error_clear(&read_err);
    if (payload->end && !payload->held)
        return SQRL_OK;
    int rc = sqrl_block_new(payload->context, &block, err);
    if (rc)
        return rc;
    block->origin = sqrl_payload_at(payload);
    block->first = payload->samples;
    int read_rc =
        sqrl_payload_piece(payload, SQRL_BLOCK_BYTES, &piece, cancel, &read_err);
    if (piece)
        rc = parse_piece(payload, parse, reader, block, &piece, &read_rc, cancel,
                         &read_err, err);
    sqrl_buffer_unref(piece);
    payload->samples += block->count;
    bool of_content = rc != SQRL_OK;
    if (!rc && read_rc) {
        rc = read_rc;
        if (err)
            *err = read_err;
    } else if (!rc && payload->end && payload->held) {
        rc = cut_short(payload, err);
        of_content = true;
    }
    if (of_content && payload->codec)
        sqrl_error_at(err, rc, "decompressed");
    if (block->count > 0)
        *out = block;
    else
        sqrl_block_unref(block);
    return rc;
}

int sqrl_payload_add_text(struct sqrl_block *block, const char *text, size_t size,
                          uint64_t *offset, struct sqrl_error *err) {
    struct sqrl_buffer *old = block->bytes, *bytes = NULL;
    int rc = sqrl_buffer_new(block->context, old->size + size, &bytes, err);
    if (rc)
        return rc;
    memcpy(bytes->data, old->data, old->size);
    memcpy(bytes->data + old->size, text, size);
    bytes->size = old->size + size;
    *offset = old->size;
    block->front += (uint32_t)size;
    block->bytes = bytes;
    sqrl_buffer_unref(old);
    return SQRL_OK;
}

/* --- writing --- */
int sqrl_pressing_read(struct sqrl_pressing *pressing,
                       const struct sqrl_settings *settings,
                       const struct sqrl_option *list, struct sqrl_error *err) {
    const char *name = sqrl_settings_text(settings, list, "codec");
    *pressing = (struct sqrl_pressing){NULL, 0};
    if (strcmp(name, "none") == 0)
        return SQRL_OK;
    pressing->codec = sqrl_codec_by_name(name);
    if (!pressing->codec)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED, "codec %s is not built in", name);
    /* ISA-L's levels end at 3: several times quicker than zlib's 6, and about as small.
     */
    bool gzip = strcmp(name, "gzip") == 0;
    pressing->level = gzip ? GZIP_LEVEL : pressing->codec->level_default;
    if (!sqrl_settings_text(settings, list, "level"))
        return SQRL_OK;
    int64_t level = 0;
    int rc = sqrl_settings_int(settings, list, "level", &level, err);
    if (!rc && (level < pressing->codec->level_min || level > pressing->codec->level_max))
        rc = sqrl_error_set(err, SQRL_E_INVALID, "%s has levels %d to %d, not %lld", name,
                            pressing->codec->level_min, pressing->codec->level_max,
                            (long long)level);
    pressing->level = (int)level;
    return rc;
}

int sqrl_press(const struct sqrl_pressing *pressing, struct sqrl_context *context,
               const uint8_t *raw, size_t size, struct sqrl_buffer **out,
               struct sqrl_error *err) {
    size_t room = pressing->codec ? pressing->codec->bound(size) : size;
    int rc = sqrl_buffer_new(context, room, out, err);
    if (rc)
        return rc;
    if (!pressing->codec) {
        memcpy((*out)->data, raw, size);
        (*out)->size = size;
        return SQRL_OK;
    }
    rc = pressing->codec->compress(pressing->level, raw, size, (*out)->data,
                                   (*out)->capacity, &(*out)->size, err);
    if (rc) {
        sqrl_buffer_unref(*out);
        *out = NULL;
    }
    return rc;
}

int sqrl_plain_append(void *writer, const struct sqrl_coded_block *block,
                      struct sqrl_error *err) {
    struct sqrl_plain_writer *w = writer;
    int rc = sqrl_file_write(w->file, block->stored->data, block->stored->size, err);
    if (rc)
        return rc;
    w->samples += block->count;
    w->raw_bytes += block->raw_bytes;
    w->blocks++;
    return SQRL_OK;
}

int sqrl_plain_finish(void *writer, struct sqrl_shard_info *info,
                      struct sqrl_error *err) {
    struct sqrl_plain_writer *w = writer;
    *info = (struct sqrl_shard_info){w->samples, w->blocks, w->raw_bytes, NULL};
    if (w->blocks)
        return SQRL_OK;
    /* A file of no samples is one empty member, so that it is no file of zero bytes. */
    struct sqrl_buffer *empty = NULL;
    static const uint8_t nothing[1];
    int rc = sqrl_press(&w->pressing, w->context, nothing, 0, &empty, err);
    if (!rc)
        rc = sqrl_file_write(w->file, empty->data, empty->size, err);
    sqrl_buffer_unref(empty);
    return rc;
}

void sqrl_plain_dispose(void *writer) {
    (void)writer; /* it owns nothing */
}
