/* Loading blocks. A compressed block is read into a recycled buffer, checked and
 * decompressed. A stored block is read straight to its place in one batched read (from
 * this machine's files in a few), the framing between its pieces into a scratch, and the
 * checksum goes over both in the order of the file: its only copy is the one from the
 * page cache.
 */
#include "format/native_inner.h"

#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

int native_open(void *state, const struct sqrl_reader_args *args,
                struct sqrl_shard_info *info, struct sqrl_error *err) {
    struct native_reader *reader = state;
    reader->context = args->context;
    reader->file = args->file;
    reader->shard = args->shard;
    if (args->limits)
        reader->limits = *args->limits;
    *info = (struct sqrl_shard_info){SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    int rc = native_tail_read(args->context, args->file, &reader->tail, err);
    if (rc)
        return rc;
    struct native_tail *tail = &reader->tail;
    for (uint32_t i = 0; i < tail->schema.count; i++)
        tail->schema.fields[i].first.shard = args->shard;
    *info = (struct sqrl_shard_info){.samples = tail->samples,
                                     .blocks = tail->blocks,
                                     .raw_bytes = tail->raw_bytes,
                                     .schema = tail->has_schema ? &tail->schema : NULL};
    return SQRL_OK;
}

void native_close(void *state) {
    struct native_reader *reader = state;
    native_tail_reset(&reader->tail);
}

int native_checksum_differs(const struct native_block *block, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "checksum differs at offset %llu (%llu bytes): the file was "
                          "damaged or changed after it was written; restore it, or run "
                          "`squirrel verify` to see which blocks are good",
                          LLU(block->offset), LLU(block->stored));
}

static int load_compressed(struct native_reader *reader, const struct native_block *block,
                           const struct sqrl_cancel *cancel, struct sqrl_buffer *raw,
                           struct sqrl_error *err) {
    struct sqrl_buffer *stored = NULL;
    size_t size = (size_t)block->stored;
    int rc = sqrl_buffer_new(reader->context, size, &stored, err);
    if (rc)
        return rc;
    rc = sqrl_file_read_exact(reader->file, block->offset, stored->data, size, cancel,
                              err);
    if (rc == SQRL_OK && sqrl_xxh3(stored->data, size) != block->checksum)
        rc = native_checksum_differs(block, err);
    if (rc == SQRL_OK)
        rc = reader->tail.codec->decompress(stored->data, size, raw->data,
                                            (size_t)block->raw, err);
    sqrl_buffer_unref(stored);
    return rc;
}

/* Pieces and framing that fit on the stack: blocks up to 4 MiB. */
enum { FEW_PIECES = 32, FEW_FRAMING = 512 };
enum { LOCAL_RANGES = 4 }; /* two pieces, 256 KiB */

/* The batched read of a stored block: framing, piece, framing, piece ... [framing]. */
struct stored_plan {
    struct sqrl_range *ranges;
    size_t count, framing_size;
    uint8_t *framing; /* as read; behind it, as it must be */
    struct sqrl_range few[2 * FEW_PIECES + 1];
    uint8_t few_framing[2 * FEW_FRAMING];
};

static void plan_add(struct stored_plan *plan, uint64_t offset, uint64_t size,
                     uint8_t *data) {
    if (size)
        plan->ranges[plan->count++] =
            (struct sqrl_range){.offset = offset, .size = (size_t)size, .data = data};
}

static int plan_make(const struct sqrl_codec_ops *codec, const struct native_block *block,
                     uint8_t *raw, struct stored_plan *plan, struct sqrl_error *err) {
    size_t framing = (size_t)(block->stored - block->raw), pieces = 0;
    struct sqrl_stored_piece piece;
    while (codec->stored_piece(block->raw, pieces, &piece))
        pieces++;
    plan->count = 0;
    plan->ranges = plan->few;
    plan->framing = plan->few_framing;
    plan->framing_size = framing;
    if (pieces > FEW_PIECES || framing > FEW_FRAMING) {
        size_t table = (2 * pieces + 1) * sizeof *plan->ranges;
        plan->ranges = sqrl_malloc(table + 2 * framing, "ranges to read", err);
        if (!plan->ranges)
            return SQRL_E_NO_MEMORY;
        plan->framing = (uint8_t *)plan->ranges + table;
    }
    uint64_t at = 0, used = 0;
    for (size_t i = 0; i < pieces; i++) {
        codec->stored_piece(block->raw, i, &piece);
        plan_add(plan, block->offset + at, piece.offset - at, plan->framing + used);
        used += piece.offset - at;
        plan_add(plan, block->offset + piece.offset, piece.size, raw + piece.raw_offset);
        at = piece.offset + piece.size;
    }
    plan_add(plan, block->offset + at, block->stored - at, plan->framing + used);
    return SQRL_OK;
}

/* Checks what was read of ranges [from, to) and adds it to the checksum. */
static int plan_sum(const struct stored_plan *plan, size_t from, size_t to,
                    struct sqrl_xxh3_state *state, struct sqrl_error *err) {
    for (size_t i = from; i < to; i++) {
        const struct sqrl_range *range = &plan->ranges[i];
        if (range->got < range->size)
            return sqrl_error_set(
                err, SQRL_E_TRUNCATED,
                "the file ends at offset %llu, within the block: it was "
                "cut while it was read",
                LLU(range->offset + range->got));
        sqrl_xxh3_update(state, range->data, range->size);
    }
    return SQRL_OK;
}

static int plan_check(const struct stored_plan *plan, const struct sqrl_codec_ops *codec,
                      const struct native_block *block, struct sqrl_xxh3_state *state,
                      struct sqrl_error *err) {
    if (sqrl_xxh3_digest(state) != block->checksum)
        return native_checksum_differs(block, err);
    uint8_t *expected = plan->framing + plan->framing_size;
    codec->stored_framing(block->raw, expected);
    if (memcmp(plan->framing, expected, plan->framing_size) != 0)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the frame at offset %llu is no stored one, as the footer "
                              "says: the file was written by a faulty program",
                              LLU(block->offset));
    return SQRL_OK;
}

/* From this machine's files a few pieces a call: their checksum is taken while they are
 * in the cache. From elsewhere all in one batch. */
static int load_stored(struct native_reader *reader, const struct native_block *block,
                       const struct sqrl_cancel *cancel, struct sqrl_buffer *raw,
                       struct sqrl_error *err) {
    struct stored_plan plan;
    struct sqrl_xxh3_state state;
    int rc = plan_make(reader->tail.codec, block, raw->data, &plan, err);
    if (rc)
        return rc;
    sqrl_xxh3_init(&state);
    bool local = sqrl_file_flags(reader->file) & SQRL_FS_LOCAL;
    size_t step = local ? LOCAL_RANGES : plan.count;
    for (size_t i = 0; i < plan.count && rc == SQRL_OK; i += step) {
        size_t n = SQRL_MIN(step, plan.count - i);
        rc = sqrl_file_read(reader->file, plan.ranges + i, n, cancel, err);
        if (rc == SQRL_OK)
            rc = plan_sum(&plan, i, i + n, &state, err);
    }
    if (rc == SQRL_OK)
        rc = plan_check(&plan, reader->tail.codec, block, &state, err);
    if (plan.ranges != plan.few)
        free(plan.ranges);
    return rc;
}

int native_block_parse(struct native_reader *reader, const struct native_block *from,
                       struct sqrl_block *block, struct sqrl_error *err) {
    block->bytes->size = (size_t)from->raw;
    sqrl_count(reader->context, SQRL_COUNT_BYTES_DECODED, from->raw);
    int rc = sqrl_block_parse_msgpack(block, 0, NULL, &reader->limits, err);
    if (rc == SQRL_OK && block->count != from->samples)
        rc = sqrl_error_set(err, SQRL_E_CORRUPT,
                            "holds %u samples where the footer says %u: the file was "
                            "written by a faulty program",
                            block->count, from->samples);
    return rc;
}

static int load_bytes(struct native_reader *reader, const struct native_block *from,
                      const struct sqrl_cancel *cancel, struct sqrl_block *block,
                      struct sqrl_error *err) {
    int rc = sqrl_buffer_new(reader->context, (size_t)from->raw, &block->bytes, err);
    if (rc)
        return rc;
    rc = from->flags & NATIVE_STORED
             ? load_stored(reader, from, cancel, block->bytes, err)
             : load_compressed(reader, from, cancel, block->bytes, err);
    return rc ? rc : native_block_parse(reader, from, block, err);
}

int native_block_begin(struct native_reader *reader, uint64_t number,
                       struct sqrl_block **out, struct sqrl_error *err) {
    *out = NULL;
    if (number >= reader->tail.blocks)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "there is no block %llu: the shard has %llu", LLU(number),
                              LLU(reader->tail.blocks));
    int rc = sqrl_block_new(reader->context, out, err);
    if (rc)
        return rc;
    (*out)->shard = reader->shard;
    (*out)->number = number;
    (*out)->first = reader->tail.block[number].first;
    return SQRL_OK;
}

int native_load(void *state, uint64_t number, const struct sqrl_cancel *cancel,
                struct sqrl_block **out, struct sqrl_error *err) {
    struct native_reader *reader = state;
    *out = NULL;
    struct sqrl_block *block = NULL;
    int rc = native_block_begin(reader, number, &block, err);
    if (rc)
        return rc;
    const struct native_block *from = &reader->tail.block[number];
    rc = load_bytes(reader, from, cancel, block, err);
    if (rc) {
        sqrl_block_unref(block);
        return sqrl_error_at(err, rc, "block %llu", LLU(number));
    }
    *out = block;
    return SQRL_OK;
}

/* --- the frames behind the data --- */
static int check_frame(struct native_reader *reader, const struct native_frame *frame,
                       uint8_t *room, size_t room_size, const struct sqrl_cancel *cancel,
                       struct sqrl_error *err) {
    struct sqrl_xxh3_state state;
    sqrl_xxh3_init(&state);
    for (uint64_t at = 0; at < frame->size; at += room_size) {
        size_t size = (size_t)SQRL_MIN(frame->size - at, (uint64_t)room_size);
        int rc = sqrl_file_read_exact(reader->file, frame->offset + at, room, size,
                                      cancel, err);
        if (rc)
            return rc;
        sqrl_xxh3_update(&state, room, size);
    }
    if (sqrl_xxh3_digest(&state) == frame->checksum)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "checksum of the frame \"%s\" differs at offset %llu (%llu "
                          "bytes): the file was damaged or changed after it was written; "
                          "its samples may be good all the same",
                          frame->kind, LLU(frame->offset), LLU(frame->size));
}

int native_check(void *state, const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct native_reader *reader = state;
    struct sqrl_buffer *room = NULL;
    int rc = sqrl_buffer_new(reader->context, SQRL_BLOCK_BYTES, &room, err);
    for (uint32_t i = 0; i < reader->tail.frames && rc == SQRL_OK; i++)
        rc = check_frame(reader, &reader->tail.frame[i], room->data, SQRL_BLOCK_BYTES,
                         cancel, err);
    sqrl_buffer_unref(room);
    return rc;
}
