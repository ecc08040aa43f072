/* units.c - the chunks that are dealt, with their samples counted: from the driver's
 * table where it is fine enough, else from the shards' own tables of blocks.
 */
#include <stdlib.h>

#include "driver/fetch.h"
#include "stream/deal.h"
#include "stream/executor.h"

struct units {
    struct sqrl_unit *item;
    uint64_t count, room;
    struct sqrl_unit open; /* being collected; blocks 0: none */
};

static int close_unit(struct units *units, struct sqrl_error *err) {
    if (units->open.samples) {
        if (units->count == units->room) {
            uint64_t room = units->room ? 2 * units->room : 64;
            void *grown =
                sqrl_realloc(units->item, room * sizeof *units->item, "chunks", err);
            if (!grown)
                return SQRL_E_NO_MEMORY;
            units->item = grown;
            units->room = room;
        }
        units->item[units->count++] = units->open;
    }
    units->open.blocks = units->open.samples = 0;
    return SQRL_OK;
}

/* Adds blocks that follow the last ones; what is together has at most `most` blocks, or
 * is one piece. */
static int add_blocks(struct units *units, struct sqrl_unit piece, uint64_t most,
                      struct sqrl_error *err) {
    struct sqrl_unit *open = &units->open;
    int code = SQRL_OK;
    if (open->blocks &&
        (open->shard != piece.shard || (uint64_t)open->blocks + piece.blocks > most ||
         (uint64_t)open->samples + piece.samples > UINT32_MAX))
        code = close_unit(units, err);
    if (!open->blocks) {
        *open = piece;
        return code;
    }
    open->blocks += piece.blocks;
    open->samples += piece.samples;
    return code;
}

static int not_counted(const struct sqrl_shard *shard, struct sqrl_error *err) {
    sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                   "its samples are not counted, so they can't be dealt among ranks and "
                   "workers: convert the data to native shards with `squirrel convert`");
    return sqrl_error_at(err, SQRL_E_UNSUPPORTED, "%s", shard->path);
}

static int units_of_footer(struct sqrl_iterator *it, uint64_t s, uint64_t most,
                           struct units *units, struct sqrl_error *err) {
    struct sqrl_shard_reader *reader;
    const struct sqrl_shard *shard = sqrl_source_shard(it->source, s);
    int code = sqrl_index_open(it, s, &reader, err);
    if (code)
        return code;
    uint64_t blocks = sqrl_shard_reader_info(reader)->blocks;
    if (!sqrl_shard_reader_indexed(reader) || blocks > UINT32_MAX)
        code = not_counted(shard, err);
    for (uint64_t b = 0; b < blocks && !code; b++) {
        struct sqrl_block_info info;
        sqrl_shard_reader_block_info(reader, b, &info);
        if (info.samples == SQRL_NO_NODE || info.first == SQRL_UNKNOWN)
            code = not_counted(shard, err);
        else
            code = add_blocks(
                units, (struct sqrl_unit){(uint32_t)s, (uint32_t)b, 1, info.samples},
                most, err);
    }
    sqrl_shard_reader_unref(reader);
    return code;
}

/* A shard that can't be opened, of which on_error decides: its chunks stay in one piece,
 * so that all ranks that can't open it agree. */
static bool is_on_error(const struct sqrl_iterator *it,
                        const struct sqrl_shard_chunk *chunk, int code,
                        struct sqrl_error *err) {
    if (!chunk || !it->on_error || it->on_error->policy == SQRL_ON_ERROR_RAISE ||
        !sqrl_on_error_covers(code))
        return false;
    sqrl_error_clear(err);
    return true;
}

int sqrl_units_collect(struct sqrl_iterator *it, const uint64_t *block_bytes,
                       uint64_t want_bytes, struct sqrl_unit **out, uint64_t *count,
                       struct sqrl_error *err) {
    struct units units = {0};
    uint64_t chunks, at = 0, shards = sqrl_source_shards(it->source);
    const struct sqrl_shard_chunk *chunk = sqrl_source_chunks(it->source, &chunks);
    int code = SQRL_OK;
    if (shards > UINT32_MAX)
        code = sqrl_error_set(err, SQRL_E_LIMIT, "more than 2^32-1 shards");
    for (uint64_t s = 0; s < it->shards && !code; s++) {
        uint64_t most = SQRL_MAX(want_bytes / SQRL_MAX(block_bytes[s], 1u), 1u);
        uint64_t end = at;
        bool fine = chunk != NULL;
        for (; end < chunks && chunk[end].shard == s; end++)
            fine = fine && (chunk[end].blocks == 1 || chunk[end].blocks <= 2 * most);
        if (!fine && !it->indexes)
            sqrl_source_open_ahead(it->source, s, it->shards);
        if (!fine)
            code = units_of_footer(it, s, most, &units, err);
        if (code && is_on_error(it, chunk, code, err)) {
            fine = true;
            code = SQRL_OK;
        }
        for (; at < end && !code && fine; at++)
            code = add_blocks(&units,
                              (struct sqrl_unit){(uint32_t)s, chunk[at].first_block,
                                                 chunk[at].blocks, chunk[at].samples},
                              most, err);
        at = end;
        if (!code)
            code = close_unit(&units, err);
    }
    if (code) {
        free(units.item);
        units = (struct units){0};
    }
    *out = units.item;
    *count = units.count;
    return code;
}
