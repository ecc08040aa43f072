/* The native shard and commits from any bytes. The input is read as a shard as it is,
 * again with the checksums of its footer and trailer made right, so that the engine gets
 * behind them, and as a commit with its hash made right. */
#include <stdlib.h>

#include "base/base.h"
#include "format/commit.h"
#include "format/native_inner.h"
#include "sqrl/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sqrl_context *context;
static struct sqrl_fs *fs;

static void start(void) {
    char *path = NULL;
    if (sqrl_context_new(NULL, &context, NULL) ||
        sqrl_fs_for_url(context, "mem://fuzz", NULL, &fs, &path, NULL))
        abort();
    free(path);
}

static void write_file(const uint8_t *data, size_t size) {
    struct sqrl_file_writer *writer;
    if (sqrl_file_create(fs, "fuzz.sqrl", true, &writer, NULL) ||
        (size && sqrl_file_write(writer, data, size, NULL)) ||
        sqrl_file_commit(writer, NULL))
        abort();
}

static void read_shard(void) {
    const struct sqrl_format_ops *ops = &sqrl_format_native;
    static const struct sqrl_settings none = {NULL, 0};
    struct native_reader reader = {0};
    struct sqrl_shard_info info;
    struct sqrl_file *file;
    if (sqrl_file_open(fs, "fuzz.sqrl", &file, NULL))
        abort();
    struct sqrl_reader_args args = {
        .context = context, .fs = fs, .file = file, .settings = &none};
    int rc = ops->open(&reader, &args, &info, NULL);
    uint64_t samples = 0, loaded = 0;
    for (uint64_t b = 0; rc == 0 && b < info.blocks; b++) {
        struct sqrl_block *block = NULL;
        if (ops->load(&reader, b, NULL, &block, NULL) == 0) {
            samples += block->count;
            loaded++;
        }
        sqrl_block_unref(block);
    }
    const char *field = NULL;
    struct sqrl_bytes numbers = {0};
    struct sqrl_values values = {0};
    static const uint64_t wanted[] = {1, UINT64_C(1) << 62, (UINT64_C(1) << 62) + 1};
    if (rc == 0 && ops->find(&reader, wanted, 3, NULL, &numbers, &field, NULL) == 0) {
        const struct sqrl_key_match *match = (const void *)numbers.data;
        for (size_t i = 0; i < numbers.size / sizeof *match; i++)
            if (match[i].number >= info.samples || match[i].which > 2)
                abort();
    }
    sqrl_bytes_reset(&numbers);
    for (uint32_t i = 0; rc == 0 && i < reader.tail.frames; i++) {
        const char *name = reader.tail.frame[i].field;
        if (name && ops->column(&reader, name, NULL, &values, NULL) == 0 &&
            values.offsets && values.offsets[values.count] > values.memory->size)
            abort();
        sqrl_buffer_unref(values.memory);
        values.memory = NULL;
    }
    if (rc == 0 && loaded == info.blocks && samples != info.samples)
        abort();
    ops->close(&reader);
    sqrl_file_unref(file);
}

/* Makes the checksums right, where there is a trailer. */
static void seal(uint8_t *data, size_t size) {
    if (size < NATIVE_TRAILER_BYTES)
        return;
    uint8_t *trailer = data + size - NATIVE_TRAILER_BYTES;
    uint64_t at = sqrl_load_le64(trailer), length = sqrl_load_le64(trailer + 8);
    if (at <= size && length <= size - at)
        sqrl_store_le64(trailer + 16, sqrl_xxh3(data + at, length));
    sqrl_store_le32(trailer + 28, (uint32_t)sqrl_xxh3(trailer, 28));
}

static void parse_commit(uint8_t *data, size_t size) {
    struct sqrl_commit commit;
    if (size < 8)
        return;
    sqrl_store_le64(data + size - 8, sqrl_xxh3(data, size - 8));
    int rc =
        sqrl_commit_parse("0123456789abcdef-0123456789abcdef", data, size, &commit, NULL);
    if (rc == 0 && commit.hash != sqrl_load_le64(data + size - 8))
        abort();
    sqrl_commit_reset(&commit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!context)
        start();
    write_file(data, size);
    read_shard();
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    seal(copy, size);
    write_file(copy, size);
    read_shard();
    memcpy(copy, data, size);
    parse_commit(copy, size);
    free(copy);
    return 0;
}
