/* Loading many blocks at once, for random access: all their frames in one batched read,
 * in which neighbours are one range, into one buffer; then each is checked and decoded
 * from there as if it had been read alone. */
#include "format/native_inner.h"

#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

/* One range for each run of neighbours; *count receives how many. */
static struct sqrl_range *make_ranges(const struct native_tail *tail,
                                      const uint64_t *blocks, size_t wanted,
                                      uint8_t *data, size_t *count,
                                      struct sqrl_error *err) {
    struct sqrl_range *ranges =
        sqrl_calloc(wanted, sizeof *ranges, "ranges to read", err);
    *count = 0;
    for (size_t i = 0; ranges && i < wanted; i++) {
        const struct native_block *block = &tail->block[blocks[i]];
        struct sqrl_range *last = *count ? &ranges[*count - 1] : NULL;
        if (last && last->offset + last->size == block->offset)
            last->size += (size_t)block->stored;
        else
            ranges[(*count)++] = (struct sqrl_range){
                .offset = block->offset, .size = (size_t)block->stored, .data = data};
        data += block->stored;
    }
    return ranges;
}

static int check_ranges(const struct sqrl_range *ranges, size_t count,
                        struct sqrl_error *err) {
    for (size_t i = 0; i < count; i++)
        if (ranges[i].got < ranges[i].size)
            return sqrl_error_set(err, SQRL_E_TRUNCATED,
                                  "the file ends at offset %llu, within a block: it was "
                                  "cut while it was read",
                                  LLU(ranges[i].offset + ranges[i].got));
    return SQRL_OK;
}

/* The content of a stored frame in memory; what is around its pieces must be as store()
 * makes it. */
static int unpack_stored(const struct sqrl_codec_ops *codec,
                         const struct native_block *block, const uint8_t *stored,
                         uint8_t *raw, struct sqrl_error *err) {
    uint8_t few[512], *framing = few;
    size_t size = (size_t)(block->stored - block->raw);
    if (size > sizeof few && !(framing = sqrl_malloc(size, "framing", err)))
        return SQRL_E_NO_MEMORY;
    codec->stored_framing(block->raw, framing);
    struct sqrl_stored_piece piece;
    uint64_t at = 0, used = 0;
    bool same = true;
    for (uint64_t i = 0; codec->stored_piece(block->raw, i, &piece); i++) {
        same = same && memcmp(stored + at, framing + used, piece.offset - at) == 0;
        used += piece.offset - at;
        memcpy(raw + piece.raw_offset, stored + piece.offset, piece.size);
        at = piece.offset + piece.size;
    }
    same = same && memcmp(stored + at, framing + used, block->stored - at) == 0;
    if (framing != few)
        free(framing);
    if (same)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "the frame at offset %llu is no stored one, as the footer "
                          "says: the file was written by a faulty program",
                          LLU(block->offset));
}

static int decode(struct native_reader *reader, uint64_t number, const uint8_t *stored,
                  struct sqrl_block **out, struct sqrl_error *err) {
    const struct native_block *from = &reader->tail.block[number];
    const struct sqrl_codec_ops *codec = reader->tail.codec;
    int rc = native_block_begin(reader, number, out, err);
    if (rc == SQRL_OK)
        rc = sqrl_buffer_new(reader->context, (size_t)from->raw, &(*out)->bytes, err);
    if (rc == SQRL_OK && sqrl_xxh3(stored, (size_t)from->stored) != from->checksum)
        rc = native_checksum_differs(from, err);
    if (rc == SQRL_OK)
        rc = from->flags & NATIVE_STORED
                 ? unpack_stored(codec, from, stored, (*out)->bytes->data, err)
                 : codec->decompress(stored, (size_t)from->stored, (*out)->bytes->data,
                                     (size_t)from->raw, err);
    if (rc == SQRL_OK)
        rc = native_block_parse(reader, from, *out, err);
    if (rc) {
        sqrl_block_unref(*out);
        *out = NULL;
    }
    return rc;
}

int native_load_many(void *state, const uint64_t *blocks, size_t count,
                     const struct sqrl_cancel *cancel, struct sqrl_block **out,
                     size_t *loaded, struct sqrl_error *err) {
    struct native_reader *reader = state;
    struct sqrl_buffer *stored = NULL;
    uint64_t bytes = 0;
    size_t range_count = 0;
    *loaded = 0;
    for (size_t i = 0; i < count; i++) {
        if (blocks[i] >= reader->tail.blocks)
            return native_block_begin(reader, blocks[i], &out[0], err);
        bytes += reader->tail.block[blocks[i]].stored;
    }
    int rc = sqrl_buffer_new(reader->context, (size_t)bytes, &stored, err);
    if (rc)
        return rc;
    struct sqrl_range *ranges =
        make_ranges(&reader->tail, blocks, count, stored->data, &range_count, err);
    rc = ranges ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_file_read(reader->file, ranges, range_count, cancel, err);
    if (rc == SQRL_OK)
        rc = check_ranges(ranges, range_count, err);
    const uint8_t *at = stored->data;
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        rc = decode(reader, blocks[i], at, &out[i], err);
        *loaded += rc == SQRL_OK;
        at += reader->tail.block[blocks[i]].stored;
    }
    free(ranges);
    sqrl_buffer_unref(stored);
    return rc;
}
