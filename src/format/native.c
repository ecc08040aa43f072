/* The native shard's ops table, its sniffing and its summary for commits. */
#include "format/native_inner.h"

#include <stdlib.h>

/* A positive sign is the suffix with a frame's magic; without the suffix, a frame whose
 * content begins with a MessagePack map. */
static int native_sniff(const struct sqrl_probe *probe) {
    if (probe->head_size < 4)
        return 0;
    if (probe->head_size >= NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES &&
        sqrl_load_le32(probe->head) == NATIVE_SKIP_MAGIC &&
        memcmp(probe->head + NATIVE_SKIP_BYTES, NATIVE_TAG_FOOTER, NATIVE_TAG_BYTES) == 0)
        return 100; /* an empty shard */
    const struct sqrl_codec_ops *codec =
        sqrl_codec_by_magic(probe->head, probe->head_size);
    if (!codec || (strcmp(codec->name, "zstd") != 0 && strcmp(codec->name, "lz4") != 0))
        return 0;
    size_t n = probe->path ? strlen(probe->path) : 0, s = strlen(SQRL_NATIVE_SUFFIX);
    if (n >= s && strcmp(probe->path + n - s, SQRL_NATIVE_SUFFIX) == 0)
        return 95;
    if (!probe->inner || probe->inner_size == 0)
        return 0;
    uint8_t first = probe->inner[0];
    return (first & 0xf0) == 0x80 || first == 0xde || first == 0xdf ? 40 : 0;
}

static const struct sqrl_option native_options[] = {{0}};

const struct sqrl_format_ops sqrl_format_native = {
    .size = sizeof(struct sqrl_format_ops),
    .api = SQRL_FORMAT_API,
    .name = "sqrl",
    .doc = "native shards: MessagePack samples in zstd or lz4 frames, with a footer",
    .suffixes = SQRL_NATIVE_SUFFIX,
    .flags = SQRL_FORMAT_INDEXED | SQRL_FORMAT_WRITES | SQRL_FORMAT_TAIL,
    .options = native_options,
    .write_options = native_write_options,
    .sniff = native_sniff,
    .reader_size = sizeof(struct native_reader),
    .open = native_open,
    .block_info = native_block_info,
    .load = native_load,
    .close = native_close,
    .writer_size = sizeof(struct native_writer),
    .create = native_create,
    .encode = native_encode,
    .append = native_append,
    .finish = native_finish,
    .dispose = native_dispose,
    .check = native_check,
    .load_many = native_load_many,
    .find = native_find,
    .column = native_column,
};

void sqrl_native_summary_reset(struct sqrl_native_summary *summary) {
    sqrl_schema_reset(&summary->schema);
    sqrl_group_reset(&summary->group);
    free(summary->block);
    *summary = (struct sqrl_native_summary){0};
}

static void block_describe(const struct native_block *block,
                           struct sqrl_block_info *out) {
    *out = (struct sqrl_block_info){.first = block->first,
                                    .samples = block->samples,
                                    .offset = block->offset,
                                    .stored_bytes = block->stored,
                                    .raw_bytes = block->raw};
}

static int summary_take(struct native_tail *tail, struct sqrl_native_summary *out,
                        struct sqrl_error *err) {
    out->block = sqrl_calloc(tail->blocks + 1, sizeof *out->block, "block table", err);
    if (!out->block)
        return SQRL_E_NO_MEMORY;
    for (uint64_t i = 0; i < tail->blocks; i++)
        block_describe(&tail->block[i], &out->block[i]);
    out->file_bytes = tail->file_bytes;
    out->samples = tail->samples;
    out->raw_bytes = tail->raw_bytes;
    out->blocks = tail->blocks;
    out->footer_checksum = tail->footer_checksum;
    out->has_schema = tail->has_schema;
    out->schema = tail->schema;
    tail->schema = (struct sqrl_schema){0};
    out->group = tail->group;
    tail->group = (struct sqrl_group){0};
    return SQRL_OK;
}

int sqrl_native_summary_read(struct sqrl_context *context, struct sqrl_fs *fs,
                             const char *path, struct sqrl_native_summary *out,
                             struct sqrl_error *err) {
    *out = (struct sqrl_native_summary){0};
    struct sqrl_file *file = NULL;
    int rc = sqrl_file_open(fs, path, &file, err);
    if (rc)
        return rc;
    struct native_tail tail;
    rc = native_tail_read(context, file, &tail, err);
    if (rc == SQRL_OK)
        rc = summary_take(&tail, out, err);
    native_tail_reset(&tail);
    sqrl_file_unref(file);
    return rc;
}

void native_block_info(const void *state, uint64_t block, struct sqrl_block_info *out) {
    const struct native_reader *reader = state;
    *out = (struct sqrl_block_info){0};
    if (block < reader->tail.blocks)
        block_describe(&reader->tail.block[block], out);
}
