/* read_format.h - feeds bytes to a format as a file in memory and walks over all that
 * comes out: every node must lie within its block. */
#ifndef SQRL_FUZZ_READ_FORMAT_H
#define SQRL_FUZZ_READ_FORMAT_H

#include <stdlib.h>

#include "base/base.h"
#include "sqrl/format.h"

#define FUZZ_MUST(x)                                                                     \
    do {                                                                                 \
        if (!(x))                                                                        \
            abort();                                                                     \
    } while (0)

static inline void fuzz_walk(const struct sqrl_block *block) {
    for (uint32_t i = 0; i < block->count; i++)
        FUZZ_MUST(block->begin[i] < block->tape.count);
    for (uint32_t i = 0; i < block->tape.count; i++) {
        const struct sqrl_node *node = &block->tape.nodes[i];
        bool text = node->type == SQRL_NUMBER || node->type == SQRL_STRING ||
                    node->type == SQRL_BINARY || node->type == SQRL_EXT ||
                    node->type == SQRL_COMPLEX;
        if (text)
            FUZZ_MUST(node->v.offset <= block->bytes->size &&
                      node->size <= block->bytes->size - node->v.offset);
        if (node->type >= SQRL_ARRAY)
            FUZZ_MUST(node->v.next > i && node->v.next <= block->tape.count);
    }
}

static inline struct sqrl_context *fuzz_context(void) {
    static struct sqrl_context *context;
    struct sqrl_config config = {.size = sizeof config, .cpu_threads = 1};
    if (!context)
        FUZZ_MUST(sqrl_context_new(&config, &context, NULL) == SQRL_OK);
    return context;
}

/* All blocks, until the end or the first error. */
static inline void fuzz_blocks(const struct sqrl_format_ops *format, void *reader,
                               uint64_t blocks) {
    bool indexed = (format->flags & SQRL_FORMAT_INDEXED) && blocks != SQRL_UNKNOWN;
    struct sqrl_error err;
    for (uint64_t i = 0; !indexed || i < blocks; i++) {
        struct sqrl_block *block = NULL;
        sqrl_error_clear(&err);
        int rc = indexed ? format->load(reader, i, NULL, &block, &err)
                         : format->next(reader, NULL, &block, &err);
        FUZZ_MUST(rc == (int)err.code);
        if (!indexed && !rc && block && format->parse)
            rc = format->parse(reader, block, &err);
        if (rc)
            FUZZ_MUST(err.message[0]);
        bool end = rc || !block;
        if (block)
            fuzz_walk(block);
        sqrl_block_unref(block);
        if (end)
            return;
    }
}

static inline int fuzz_format(const struct sqrl_format_ops *format, const uint8_t *data,
                              size_t size) {
    static const struct sqrl_settings none = {NULL, 0};
    struct sqrl_context *context = fuzz_context();
    struct sqrl_fs *fs = NULL;
    struct sqrl_file_writer *writer = NULL;
    struct sqrl_file *file = NULL;
    char *path = NULL;
    FUZZ_MUST(sqrl_fs_for_url(context, "mem://fuzz/input", NULL, &fs, &path, NULL) ==
              SQRL_OK);
    FUZZ_MUST(sqrl_file_create(fs, path, true, &writer, NULL) == SQRL_OK);
    FUZZ_MUST(sqrl_file_write(writer, data, size, NULL) == SQRL_OK);
    FUZZ_MUST(sqrl_file_commit(writer, NULL) == SQRL_OK);
    FUZZ_MUST(sqrl_file_open(fs, path, &file, NULL) == SQRL_OK);
    struct sqrl_probe probe = {path, data, SQRL_MIN(size, (size_t)4096), NULL, 0};
    int score = format->sniff(&probe);
    FUZZ_MUST(score >= 0 && score <= 100);
    void *reader = calloc(1, format->reader_size);
    FUZZ_MUST(reader);
    struct sqrl_reader_args args = {
        .context = context, .fs = fs, .file = file, .settings = &none};
    struct sqrl_shard_info info = {SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    if (format->open(reader, &args, &info, NULL) == SQRL_OK)
        fuzz_blocks(format, reader, info.blocks);
    format->close(reader);
    free(reader);
    sqrl_file_unref(file);
    free(path);
    sqrl_fs_unref(fs);
    return 0;
}

#endif
