/* store.c - "messagepack": samples as MessagePack, one after another, usually gzipped:
 * the shards that squirrel-core's MessagepackSerializer writes (<key>.gz). docs/formats/
 * squirrel-store.md.
 *
 * Read in order, by sqrl_payload_next, or with a sidecar block by block. */
#include <stdlib.h>

#include "format/format.h"
#include "format/sidecar.h"

static const struct sqrl_option write_options[] = {
    {"codec", SQRL_OPTION_CHOICE, SQRL_OPTION_PLAIN, "gzip", SQRL_PRESS_CHOICES,
     "compression; squirrel-core reads gzip only"},
    {"level", SQRL_OPTION_INT, SQRL_OPTION_PLAIN, NULL, NULL,
     "compression level; default: 3 for gzip, else the codec's"},
    {0}};

/* --- sniffing --- */
static bool is_text(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if ((bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\r' &&
             bytes[i] != '\t') ||
            bytes[i] == 0x7f)
            return false;
    return sqrl_utf8_valid(bytes, size - SQRL_MIN(size, 3u), NULL);
}

static bool begins_container(uint8_t byte) {
    return (byte >= 0x80 && byte <= 0x9f) || (byte >= 0xdc && byte <= 0xdf);
}

/* Decodes what is there of the first sample: 1 whole, 0 cut short, -1 no MessagePack. The
 * magic numbers of PNG and npy are maps and lists of small integers; what follows them is
 * no container. */
static int try_sample(const uint8_t *bytes, size_t size) {
    struct sqrl_tape tape = {NULL, 0, 0};
    size_t offset = 0;
    int rc = sqrl_msgpack_decode(&tape, bytes, size, &offset, NULL, NULL);
    sqrl_tape_reset(&tape);
    if (rc == SQRL_OK && offset < size &&
        begins_container(bytes[0]) != begins_container(bytes[offset]))
        return -1;
    return rc == SQRL_OK ? 1 : rc == SQRL_E_TRUNCATED ? 0 : -1;
}

static int store_sniff(const struct sqrl_probe *probe) {
    const uint8_t *bytes = probe->inner ? probe->inner : probe->head;
    size_t size = probe->inner ? probe->inner_size : probe->head_size;
    if (size == 0)
        return probe->inner ? 1 : 0; /* an empty shard: the suffix decides */
    int sample = try_sample(bytes, size);
    if (sample < 0)
        return 0;
    if (begins_container(bytes[0]))
        return sample > 0 ? 70 : 50;
    if (is_text(bytes, size))
        return 0;
    return probe->inner ? 20 : 2; /* any bytes below 0x80 are MessagePack integers */
}

/* --- reading --- */
struct store_reader {
    struct sqrl_payload payload;
    struct sqrl_limits limits;
    struct sqrl_context *context;
    struct sqrl_file *file;
    const struct sqrl_sidecar *sidecar; /* reads any block; NULL: in order */
};

static int store_open(void *reader, const struct sqrl_reader_args *args,
                      struct sqrl_shard_info *info, struct sqrl_error *err) {
    struct store_reader *r = reader;
    if (args->limits)
        r->limits = *args->limits;
    *info = (struct sqrl_shard_info){SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    r->context = args->context;
    r->file = args->file;
    r->sidecar = args->sidecar;
    if (r->sidecar) {
        sqrl_sidecar_info(r->sidecar, info);
        return SQRL_OK;
    }
    return sqrl_payload_open(&r->payload, args->context, args->file, err);
}

static void store_close(void *reader) {
    sqrl_payload_close(&((struct store_reader *)reader)->payload);
}

/* Text is valid MessagePack: a row of small integers. It must not pass as samples. */
static int refuse_text(const struct store_reader *r, const struct sqrl_block *block,
                       struct sqrl_error *err) {
    const uint8_t *bytes = block->bytes->data;
    size_t size = SQRL_MIN(block->bytes->size, 512u);
    if (r->payload.samples > 0 || size < 2 || begins_container(bytes[0]) ||
        !is_text(bytes, size))
        return SQRL_OK;
    return sqrl_error_set(
        err, SQRL_E_FORMAT,
        "this is text, not MessagePack: it begins with \"%.*s\"; if it is "
        "JSON lines, open it with driver=jsonl",
        (int)SQRL_MIN(size, 24u), (const char *)bytes);
}

static int parse_piece(void *reader, struct sqrl_block *block, size_t *tail,
                       struct sqrl_error *err) {
    struct store_reader *r = reader;
    int rc = refuse_text(r, block, err);
    return rc ? rc : sqrl_block_parse_msgpack(block, 0, tail, &r->limits, err);
}

static int store_next(void *reader, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, struct sqrl_error *err) {
    struct store_reader *r = reader;
    return sqrl_payload_next(&r->payload, parse_piece, r, cancel, out, err);
}

/* --- with a sidecar: any block --- */
static void store_block_info(const void *reader, uint64_t block,
                             struct sqrl_block_info *out) {
    sqrl_sidecar_block_info(((const struct store_reader *)reader)->sidecar, block, out);
}

static int store_load(void *reader, uint64_t number, const struct sqrl_cancel *cancel,
                      struct sqrl_block **out, struct sqrl_error *err) {
    const struct store_reader *r = reader;
    const struct sqrl_sidecar_block *from = &r->sidecar->block[number];
    struct sqrl_block *block = NULL;
    *out = NULL;
    int rc = sqrl_block_new(r->context, &block, err);
    if (rc)
        return rc;
    block->origin = from->raw_offset;
    block->first = from->first;
    rc = sqrl_sidecar_load(r->sidecar, r->context, r->file, number, cancel, &block->bytes,
                           err);
    if (!rc)
        rc = sqrl_block_parse_msgpack(block, 0, NULL, &r->limits, err);
    if (!rc)
        rc = sqrl_sidecar_count(r->sidecar, number, block->count, err);
    if (rc)
        sqrl_block_unref(block);
    else
        *out = block;
    return rc;
}

/* --- writing --- */
static int store_create(void *writer, const struct sqrl_writer_args *args,
                        struct sqrl_error *err) {
    struct sqrl_plain_writer *w = writer;
    w->context = args->context;
    w->file = args->file;
    return sqrl_pressing_read(&w->pressing, args->settings, write_options, err);
}

static int store_encode(const void *writer, const struct sqrl_raw_block *raw,
                        struct sqrl_coded_block *out, struct sqrl_error *err) {
    const struct sqrl_plain_writer *w = writer;
    out->count = raw->count;
    out->raw_bytes = raw->size;
    return sqrl_press(&w->pressing, w->context, raw->bytes, raw->size, &out->stored, err);
}

const struct sqrl_format_ops sqrl_format_store = {
    .size = sizeof sqrl_format_store,
    .api = SQRL_FORMAT_API,
    .name = "messagepack",
    .doc = "MessagePack samples one after another, as squirrel-core stores them",
    .suffixes = ".gz|.msgpack|.msgpack.gz|.msgpack.zst|.msgpack.lz4|.mpk|.mp",
    .flags = SQRL_FORMAT_INDEXED | SQRL_FORMAT_WRITES | SQRL_FORMAT_SIDECAR,
    .write_options = write_options,
    .sniff = store_sniff,
    .reader_size = sizeof(struct store_reader),
    .open = store_open,
    .block_info = store_block_info,
    .load = store_load,
    .next = store_next,
    .close = store_close,
    .writer_size = sizeof(struct sqrl_plain_writer),
    .create = store_create,
    .encode = store_encode,
    .append = sqrl_plain_append,
    .finish = sqrl_plain_finish,
    .dispose = sqrl_plain_dispose,
};
