/* Sidecars from any bytes, as they are and with their checksum made right; what parses
 * is used to read a small file. */
#include <stdlib.h>

#include "format/sidecar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sqrl_context *context;
static struct sqrl_file *file;

static void start(void) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_file_writer *writer = NULL;
    const struct sqrl_codec_ops *gzip = sqrl_codec_by_name("gzip");
    uint8_t raw[4096], stored[8192];
    char *path = NULL;
    size_t size;
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (uint8_t)(i * i >> 3);
    if (sqrl_context_new(NULL, &context, NULL) ||
        sqrl_fs_for_url(context, "mem://fuzz", NULL, &fs, &path, NULL) ||
        gzip->compress(6, raw, sizeof raw, stored, sizeof stored, &size, NULL) ||
        sqrl_file_create(fs, "x.gz", true, &writer, NULL) ||
        sqrl_file_write(writer, stored, size, NULL) || sqrl_file_commit(writer, NULL) ||
        sqrl_file_open(fs, "x.gz", &file, NULL))
        abort();
    free(path);
    sqrl_fs_unref(fs);
}

static void use(const uint8_t *data, size_t size, bool seal) {
    struct sqrl_buffer *content = NULL;
    struct sqrl_sidecar *sidecar = NULL;
    if (sqrl_buffer_new(context, size + 1, &content, NULL))
        abort();
    if (size)
        memcpy(content->data, data, size);
    content->size = size;
    if (seal && size >= 8)
        sqrl_store_le64(content->data + size - 8, sqrl_xxh3(content->data, size - 8));
    if (sqrl_sidecar_parse(content, &sidecar, NULL) == SQRL_OK) {
        uint64_t samples = 0;
        for (uint64_t i = 0; i < sidecar->blocks; i++) {
            struct sqrl_block_info info;
            struct sqrl_buffer *bytes = NULL;
            sqrl_sidecar_block_info(sidecar, i, &info);
            samples += info.samples;
            if (i < 8 && info.raw_bytes < 1 << 20 &&
                sqrl_sidecar_load(sidecar, context, file, i, NULL, &bytes, NULL) ==
                    SQRL_OK &&
                bytes->size != info.raw_bytes)
                abort();
            sqrl_buffer_unref(bytes);
        }
        if (samples != sidecar->samples)
            abort();
    }
    sqrl_sidecar_free(sidecar);
    sqrl_buffer_unref(content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!context)
        start();
    use(data, size, false);
    use(data, size, true);
    return 0;
}
