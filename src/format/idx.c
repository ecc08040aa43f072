/* idx.c - "idx": arrays in the format of the MNIST database
 * (http://yann.lecun.com/exdb/mnist/): two zero bytes, a type, the number of dimensions,
 * the dimensions as big-endian 32-bit numbers, then the elements, big-endian, in C order.
 * docs/formats/idx.md.
 *
 * Nothing is parsed: a block is the key strings, then the elements as they were read; the
 * nodes are made over them by arithmetic. A plain file is read at any place, a compressed
 * one in order. */
#include <ctype.h>
#include <stdlib.h>

#include "format/idx.h"
#include "format/sidecar.h"
#include "value/value.h"

enum {
    MAX_HEADER = 4 + 4 * SQRL_MAX_DIMS,
    MAX_KEY = 256,
    FRONT = 2 * MAX_KEY, /* room for the keys before the elements, aligned */
    MAX_BLOCK_SAMPLES = 32768,
    GZIP_MAX_RATIO = 1040 /* deflate: 258 bytes in 2 bits */
};
#define MAX_LABEL_BYTES (UINT64_C(1) << 30)

static const struct sqrl_option read_options[] = {
    {"labels", SQRL_OPTION_TEXT, SQRL_OPTION_PATH, "auto", NULL,
     "file of labels; auto: *-labels-idx1-* beside *-images-idx3-*; none: images only"},
    {"image", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, "image", NULL,
     "name of the array's field"},
    {"label", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, "label", NULL,
     "name of the label's field"},
    {0}};

/* --- the header --- */
struct header {
    enum sqrl_dtype dtype;
    size_t element;
    uint32_t dims; /* the first counts samples */
    uint64_t shape[SQRL_MAX_DIMS];
    size_t bytes;        /* of the header */
    size_t sample_bytes; /* elements of one sample */
    uint64_t data_bytes;
};

static const struct {
    uint8_t code;
    enum sqrl_dtype dtype;
} types[] = {{0x08, SQRL_DTYPE_UINT8},   {0x09, SQRL_DTYPE_INT8},
             {0x0b, SQRL_DTYPE_INT16},   {0x0c, SQRL_DTYPE_INT32},
             {0x0d, SQRL_DTYPE_FLOAT32}, {0x0e, SQRL_DTYPE_FLOAT64}};

static enum sqrl_dtype type_of(uint8_t code) {
    for (size_t i = 0; i < SQRL_COUNT_OF(types); i++)
        if (types[i].code == code)
            return types[i].dtype;
    return SQRL_DTYPE_OTHER;
}

static int check_magic(const uint8_t magic[4], struct sqrl_error *err) {
    if (magic[0] || magic[1] || type_of(magic[2]) == SQRL_DTYPE_OTHER || magic[3] == 0)
        return sqrl_error_set(
            err, SQRL_E_FORMAT,
            "this is no IDX file: it begins with %02x %02x %02x %02x, not "
            "with 00 00, a type (08, 09, 0b to 0e) and a number of "
            "dimensions",
            magic[0], magic[1], magic[2], magic[3]);
    if (magic[3] > SQRL_MAX_DIMS)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "the file has %u dimensions; the limit is %d", magic[3],
                              SQRL_MAX_DIMS);
    return SQRL_OK;
}

static int read_header(const uint8_t *bytes, struct header *h, struct sqrl_error *err) {
    h->dtype = type_of(bytes[2]);
    h->element = sqrl_dtype_size(h->dtype);
    h->dims = bytes[3];
    h->bytes = 4 + 4 * (size_t)h->dims;
    uint64_t sample = h->element;
    for (uint32_t i = 0; i < h->dims; i++) {
        h->shape[i] = sqrl_load_be32(bytes + 4 + 4 * i);
        if (i > 0 && h->shape[i] == 0)
            return sqrl_error_set(err, SQRL_E_CORRUPT, "dimension %u is 0", i);
        if (i > 0 && (__builtin_mul_overflow(sample, h->shape[i], &sample) ||
                      sample > SQRL_PAYLOAD_MAX - FRONT))
            return sqrl_error_set(err, SQRL_E_LIMIT,
                                  "one sample would take more than 2 GiB; the header is "
                                  "damaged");
    }
    h->sample_bytes = (size_t)sample;
    if (__builtin_mul_overflow(sample, h->shape[0], &h->data_bytes))
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "the header claims more than 2^64 bytes");
    return SQRL_OK;
}

/* --- sniffing --- */
static int idx_sniff(const struct sqrl_probe *probe) {
    const uint8_t *bytes = probe->inner ? probe->inner : probe->head;
    size_t size = probe->inner ? probe->inner_size : probe->head_size;
    struct header h;
    if (size < 4 || check_magic(bytes, NULL) != SQRL_OK)
        return 0;
    if (size < 4 + 4 * (size_t)bytes[3])
        return 40; /* cut within its header */
    return read_header(bytes, &h, NULL) == SQRL_OK ? 90 : 0;
}

/* --- reading a file's elements --- */
struct elements {
    struct header h;
    struct sqrl_file *file;
    bool compressed;
    struct sqrl_payload payload;
    const struct sqrl_sidecar *sidecar; /* compressed: reads any block */
};

static int short_header(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_TRUNCATED,
                          "the file ends within its header: get it again");
}

/* Reads the header; the payload then stands behind it. */
static int elements_open(struct elements *e, struct sqrl_context *context,
                         struct sqrl_file *file, struct sqrl_error *err) {
    uint8_t bytes[MAX_HEADER];
    const struct sqrl_codec_ops *codec = NULL;
    size_t got = 0, more = 0;
    e->file = file;
    int rc = sqrl_payload_codec(file, &codec, err);
    if (!rc)
        rc = sqrl_payload_open(&e->payload, context, file, err);
    if (!rc)
        rc = sqrl_payload_read(&e->payload, bytes, 4, &got, NULL, err);
    if (!rc && got < 4)
        rc = short_header(err);
    if (!rc)
        rc = check_magic(bytes, err);
    if (!rc)
        rc = sqrl_payload_read(&e->payload, bytes + 4, 4 * (size_t)bytes[3], &more, NULL,
                               err);
    if (!rc && more < 4 * (size_t)bytes[3])
        rc = short_header(err);
    if (!rc)
        rc = read_header(bytes, &e->h, err);
    e->compressed = codec != NULL || sqrl_file_size(file) == SQRL_SIZE_UNKNOWN;
    if (!rc && codec && strcmp(codec->name, "gzip") == 0 &&
        e->h.data_bytes / GZIP_MAX_RATIO > sqrl_file_size(file))
        rc = sqrl_error_set(
            err, SQRL_E_CORRUPT,
            "the header tells %llu samples of %zu bytes, more than gzip can "
            "hold in a file of %llu bytes",
            (unsigned long long)e->h.shape[0], e->h.sample_bytes,
            (unsigned long long)sqrl_file_size(file));
    if (rc || e->compressed)
        return rc;
    sqrl_payload_close(&e->payload);
    uint64_t size = sqrl_file_size(file), want = e->h.bytes + e->h.data_bytes;
    if (size != want)
        rc = sqrl_error_set(
            err, size < want ? SQRL_E_TRUNCATED : SQRL_E_CORRUPT,
            "the header tells %llu samples, %llu bytes in all; the file has "
            "%llu bytes: get it again",
            (unsigned long long)e->h.shape[0], (unsigned long long)want,
            (unsigned long long)size);
    return rc;
}

static void swap_elements(uint8_t *data, size_t bytes, size_t element) {
    if (element == 2)
        for (size_t i = 0; i < bytes; i += 2) {
            uint16_t v = sqrl_load_be16(data + i);
            memcpy(data + i, &v, 2);
        }
    else if (element == 4)
        for (size_t i = 0; i < bytes; i += 4)
            sqrl_store_le32(data + i, sqrl_load_be32(data + i));
    else if (element == 8)
        for (size_t i = 0; i < bytes; i += 8)
            sqrl_store_le64(data + i, sqrl_load_be64(data + i));
}

static int too_short(const struct elements *e, uint64_t have, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_TRUNCATED,
                          "the header tells %llu samples, but the data end within sample "
                          "%llu: the file was cut short; get it again",
                          (unsigned long long)e->h.shape[0], (unsigned long long)have);
}

/* Reads samples [first, first + *count) to `data`, in native byte order. Of a compressed
 * file `first` is where reading stands. On damage *count is lowered to the whole ones. */
static int elements_read(struct elements *e, uint64_t first, uint32_t *count,
                         uint8_t *data, const struct sqrl_cancel *cancel,
                         struct sqrl_error *err) {
    size_t want = *count * e->h.sample_bytes, got = want;
    int rc;
    if (!e->compressed) {
        rc = sqrl_file_read_exact(e->file, e->h.bytes + first * e->h.sample_bytes, data,
                                  want, cancel, err);
        got = rc ? 0 : want;
    } else {
        rc = sqrl_payload_read(&e->payload, data, want, &got, cancel, err);
        if (!rc && got < want)
            rc = too_short(e, first + got / e->h.sample_bytes, err);
    }
    *count = (uint32_t)(got / e->h.sample_bytes);
    swap_elements(data, *count * e->h.sample_bytes, e->h.element);
    return rc;
}

/* Behind the last sample nothing may follow. */
static int elements_end(struct elements *e, const struct sqrl_cancel *cancel,
                        struct sqrl_error *err) {
    uint8_t byte;
    size_t got = 0;
    if (!e->compressed)
        return SQRL_OK;
    int rc = sqrl_payload_read(&e->payload, &byte, 1, &got, cancel, err);
    if (!rc && got)
        rc = sqrl_error_set(err, SQRL_E_CORRUPT,
                            "more bytes follow the %llu samples that the header tells",
                            (unsigned long long)e->h.shape[0]);
    return rc;
}

/* --- labels --- */
int sqrl_idx_labels_name(const char *path, bool gz, char **out, size_t *stem,
                         struct sqrl_error *err) {
    *out = NULL;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *found = NULL;
    for (const char *at = base; (at = strstr(at, "images")); at++)
        found = at;
    if (stem)
        *stem = found ? (size_t)(found - base) : strlen(base);
    if (!found)
        return SQRL_OK;
    const char *rest = found + strlen("images"); /* "-idx3-ubyte.gz" */
    if ((*rest != '-' && *rest != '.') || strncmp(rest + 1, "idx", 3) != 0 ||
        !isdigit((unsigned char)rest[4]))
        return SQRL_OK;
    size_t tail = strlen(rest + 5);
    if (tail >= 3 && strcmp(rest + 5 + tail - 3, ".gz") == 0)
        tail -= 3;
    *out = sqrl_format(err, "%.*slabels%cidx1%.*s%s", (int)(found - path), path, *rest,
                       (int)tail, rest + 5, gz ? ".gz" : "");
    return *out ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* Finds the labels' path beside the images; *path stays NULL when there are none. */
static int find_labels(struct sqrl_fs *fs, const char *images, char **path,
                       struct sqrl_error *err) {
    size_t size = strlen(images);
    bool gz = size > 3 && strcmp(images + size - 3, ".gz") == 0;
    for (int turn = 0; turn < 2; turn++) {
        int rc = sqrl_idx_labels_name(images, turn ? !gz : gz, path, NULL, err);
        if (rc || !*path)
            return rc;
        struct sqrl_stat stat;
        rc = sqrl_fs_stat(fs, *path, &stat, NULL);
        if (rc == SQRL_OK)
            return SQRL_OK;
        free(*path);
        *path = NULL;
    }
    return SQRL_OK;
}

struct labels {
    uint8_t *data; /* count elements in native byte order, or NULL: no labels */
    enum sqrl_dtype dtype;
    uint64_t count;
};

static int check_labels(const struct header *h, const char *images, uint64_t count,
                        struct sqrl_error *err) {
    if (h->dims != 1)
        return sqrl_error_set(err, SQRL_E_TYPE,
                              "a file of labels has one dimension; this one has %u",
                              h->dims);
    if (h->shape[0] != count)
        return sqrl_error_set(
            err, SQRL_E_CORRUPT,
            "%llu labels for the %llu images of %s; one of the two is not "
            "what it should be (labels=none leaves them out)",
            (unsigned long long)h->shape[0], (unsigned long long)count, images);
    if (h->data_bytes > MAX_LABEL_BYTES)
        return sqrl_error_set(err, SQRL_E_LIMIT, "the labels take more than 1 GiB");
    return SQRL_OK;
}

/* Reads in steps, so that no memory is taken for what a header only claims. */
static int read_labels(struct elements *e, struct labels *labels,
                       struct sqrl_error *err) {
    size_t capacity = 0, element = e->h.element;
    for (uint64_t at = 0; at < e->h.shape[0];) {
        uint32_t count = (uint32_t)SQRL_MIN(e->h.shape[0] - at, (uint64_t)1 << 20);
        if (capacity < (at + count) * element) {
            capacity = SQRL_MAX(2 * capacity, (size_t)(at + count) * element);
            uint8_t *data = sqrl_realloc(labels->data, capacity, "labels", err);
            if (!data)
                return SQRL_E_NO_MEMORY;
            labels->data = data;
        }
        int rc = elements_read(e, at, &count, labels->data + at * element, NULL, err);
        if (rc)
            return rc;
        at += count;
    }
    labels->dtype = e->h.dtype;
    labels->count = e->h.shape[0];
    return elements_end(e, NULL, err);
}

static int load_labels(struct labels *labels, const struct sqrl_reader_args *args,
                       const char *path, uint64_t count, struct sqrl_error *err) {
    struct elements e = {.file = NULL};
    struct sqrl_file *file = NULL;
    int rc = sqrl_file_open(args->fs, path, &file, err);
    if (rc)
        return rc;
    rc = elements_open(&e, args->context, file, err);
    if (!rc)
        rc = check_labels(&e.h, sqrl_file_path(args->file), count, err);
    if (!rc)
        rc = read_labels(&e, labels, err);
    sqrl_payload_close(&e.payload);
    sqrl_file_unref(file);
    return rc ? sqrl_error_at(err, rc, "labels %s", path) : SQRL_OK;
}

/* --- the reader --- */
struct idx_reader {
    struct sqrl_context *context;
    struct elements images;
    struct labels labels;
    char keys[FRONT]; /* image's key, then label's */
    size_t image_key, label_key;
    uint32_t per_block;
    uint64_t at; /* compressed: of the next sample */
    struct sqrl_schema schema;
};

static bool is_float(enum sqrl_dtype dtype) {
    return dtype == SQRL_DTYPE_FLOAT32 || dtype == SQRL_DTYPE_FLOAT64;
}

/* One element as a node: INT or FLOAT. */
static struct sqrl_node scalar_node(enum sqrl_dtype dtype, const uint8_t *at) {
    struct sqrl_node node = {.type = is_float(dtype) ? SQRL_FLOAT : SQRL_INT};
    int16_t i16;
    int32_t i32;
    float f32;
    switch (dtype) {
    case SQRL_DTYPE_UINT8:
        node.v.i = *at;
        break;
    case SQRL_DTYPE_INT8:
        node.v.i = (int8_t)*at;
        break;
    case SQRL_DTYPE_INT16:
        memcpy(&i16, at, 2);
        node.v.i = i16;
        break;
    case SQRL_DTYPE_INT32:
        memcpy(&i32, at, 4);
        node.v.i = i32;
        break;
    case SQRL_DTYPE_FLOAT32:
        memcpy(&f32, at, 4);
        node.v.f = (double)f32;
        node.flags = SQRL_NODE_F32;
        break;
    default:
        memcpy(&node.v.f, at, 8);
        break;
    }
    return node;
}

static struct sqrl_node *put_key(const struct idx_reader *r, struct sqrl_node *node,
                                 bool label) {
    const char *key = r->keys + (label ? r->image_key : 0);
    size_t size = label ? r->label_key : r->image_key;
    bool ascii = true;
    for (size_t i = 0; i < size; i++)
        ascii = ascii && !(key[i] & 0x80);
    *node = (struct sqrl_node){.type = SQRL_STRING,
                               .flags = ascii ? SQRL_NODE_ASCII : 0,
                               .size = (uint32_t)size,
                               .v.offset = label ? r->image_key : 0};
    return node + 1;
}

/* Nodes a sample takes. */
static uint32_t nodes_per_sample(const struct idx_reader *r) {
    uint32_t dims = r->images.h.dims;
    if (dims == 1)
        return 3; /* map, key, number */
    return 1 + 1 + (1 + 1 + dims - 1) + (r->labels.data ? 2 : 0);
}

/* Writes the nodes of sample `first + i`, whose elements lie at FRONT + i * sample_bytes.
 */
static void put_sample(const struct idx_reader *r, struct sqrl_block *block,
                       uint64_t first, uint32_t i) {
    const struct header *h = &r->images.h;
    uint32_t begin = block->tape.count;
    struct sqrl_node *node = block->tape.nodes + begin;
    uint64_t offset = FRONT + (uint64_t)i * h->sample_bytes;
    block->tape.count += nodes_per_sample(r);
    *node++ = (struct sqrl_node){.type = SQRL_MAP,
                                 .size = r->labels.data && h->dims > 1 ? 2 : 1,
                                 .v.next = block->tape.count};
    if (h->dims == 1) {
        node = put_key(r, node, true);
        *node = scalar_node(h->dtype, block->bytes->data + offset);
    } else {
        node = put_key(r, node, false);
        uint64_t behind = (uint64_t)(node - block->tape.nodes) + 1 + h->dims;
        *node++ = (struct sqrl_node){.type = SQRL_NDARRAY,
                                     .aux = (uint16_t)h->dtype,
                                     .size = h->dims - 1,
                                     .v.next = behind};
        *node++ = (struct sqrl_node){
            .type = SQRL_BINARY, .size = (uint32_t)h->sample_bytes, .v.offset = offset};
        for (uint32_t d = 1; d < h->dims; d++)
            *node++ = (struct sqrl_node){.type = SQRL_INT, .v.u = h->shape[d]};
        if (r->labels.data) {
            node = put_key(r, node, true);
            size_t element = sqrl_dtype_size(r->labels.dtype);
            *node = scalar_node(r->labels.dtype, r->labels.data + (first + i) * element);
        }
    }
    block->begin[i] = begin;
    block->count = i + 1;
}

/* A block with room for the elements and nodes of `count` samples. */
static int new_block(const struct idx_reader *r, uint32_t count, struct sqrl_block **out,
                     struct sqrl_error *err) {
    int rc = sqrl_block_new(r->context, out, err);
    if (rc)
        return rc;
    size_t size = FRONT + count * r->images.h.sample_bytes;
    rc = sqrl_buffer_new(r->context, size, &(*out)->bytes, err);
    if (!rc)
        rc = sqrl_block_reserve(*out, SQRL_MAX(count, 1u), err);
    if (!rc)
        rc = sqrl_tape_reserve(&(*out)->tape, SQRL_MAX(count, 1u) * nodes_per_sample(r),
                               err);
    if (rc) {
        sqrl_block_unref(*out);
        *out = NULL;
        return rc;
    }
    memcpy((*out)->bytes->data, r->keys, FRONT);
    (*out)->front = FRONT;
    (*out)->bytes->size = size;
    return SQRL_OK;
}

/* Reads and lays out up to `count` samples from `first`. On damage *out has the whole
 * ones. */
static int make_block(struct idx_reader *r, uint64_t first, uint32_t count,
                      const struct sqrl_cancel *cancel, struct sqrl_block **out,
                      struct sqrl_error *err) {
    struct sqrl_block *block = NULL;
    *out = NULL;
    int rc = new_block(r, count, &block, err);
    if (rc)
        return rc;
    rc =
        elements_read(&r->images, first, &count, block->bytes->data + FRONT, cancel, err);
    if (rc)
        sqrl_error_at(err, rc, "sample %llu", (unsigned long long)(first + count));
    for (uint32_t i = 0; i < count; i++)
        put_sample(r, block, first, i);
    block->origin = r->images.h.bytes + first * r->images.h.sample_bytes;
    *out = block;
    return rc;
}

/* The schema is known from the header: observed on one sample. */
static int make_schema(struct idx_reader *r, struct sqrl_error *err) {
    uint64_t samples = r->images.h.shape[0];
    struct sqrl_block *block = NULL;
    if (samples == 0)
        return SQRL_OK;
    bool scalar = r->images.h.dims == 1; /* an array's elements are not looked at */
    int rc = new_block(r, scalar ? 1 : 0, &block, err);
    if (rc)
        return rc;
    if (scalar)
        memset(block->bytes->data + FRONT, 0, r->images.h.sample_bytes);
    put_sample(r, block, 0, 0);
    rc = sqrl_schema_observe(&r->schema, block, err);
    sqrl_block_unref(block);
    r->schema.samples = samples;
    for (uint32_t i = 0; !rc && i < r->schema.count; i++)
        r->schema.fields[i].seen = samples;
    return rc;
}

static int read_keys(struct idx_reader *r, const struct sqrl_settings *settings,
                     struct sqrl_error *err) {
    const char *image = sqrl_settings_text(settings, read_options, "image");
    const char *label = sqrl_settings_text(settings, read_options, "label");
    r->image_key = strlen(image);
    r->label_key = strlen(label);
    if (r->image_key > MAX_KEY || r->label_key > MAX_KEY || strcmp(image, label) == 0)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "image= and label= need two different names of at most %d "
                              "bytes",
                              MAX_KEY);
    memcpy(r->keys, image, r->image_key);
    memcpy(r->keys + r->image_key, label, r->label_key);
    if (!sqrl_utf8_valid((const uint8_t *)r->keys, r->image_key + r->label_key, NULL))
        return sqrl_error_set(err, SQRL_E_INVALID, "image= and label= are not UTF-8");
    return SQRL_OK;
}

static int open_labels(struct idx_reader *r, const struct sqrl_reader_args *args,
                       struct sqrl_error *err) {
    const char *setting = sqrl_settings_text(args->settings, read_options, "labels");
    char *path = NULL;
    int rc = SQRL_OK;
    if (r->images.h.dims == 1 || strcmp(setting, "none") == 0)
        return SQRL_OK;
    if (strcmp(setting, "auto") == 0)
        rc = find_labels(args->fs, sqrl_file_path(args->file), &path, err);
    else if (!(path = sqrl_strdup(setting, err)))
        rc = SQRL_E_NO_MEMORY;
    if (!rc && path)
        rc = load_labels(&r->labels, args, path, r->images.h.shape[0], err);
    free(path);
    return rc;
}

static int idx_open(void *reader, const struct sqrl_reader_args *args,
                    struct sqrl_shard_info *info, struct sqrl_error *err) {
    struct idx_reader *r = reader;
    r->context = args->context;
    int rc = read_keys(r, args->settings, err);
    if (!rc)
        rc = elements_open(&r->images, args->context, args->file, err);
    if (!rc)
        rc = open_labels(r, args, err);
    if (rc)
        return rc;
    const struct header *h = &r->images.h;
    size_t fit = (SQRL_BLOCK_BYTES - FRONT) / h->sample_bytes;
    r->per_block = (uint32_t)SQRL_MIN(SQRL_MAX(fit, 1u), (size_t)MAX_BLOCK_SAMPLES);
    *info =
        (struct sqrl_shard_info){h->shape[0], SQRL_UNKNOWN, h->data_bytes, &r->schema};
    uint64_t blocks = (h->shape[0] + r->per_block - 1) / r->per_block;
    if (args->sidecar &&
        (args->sidecar->samples != h->shape[0] || args->sidecar->blocks != blocks))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the file's index is of other data: run `squirrel index` "
                              "again");
    r->images.sidecar = args->sidecar;
    if (!r->images.compressed || args->sidecar)
        info->blocks = blocks;
    return make_schema(r, err);
}

static void idx_close(void *reader) {
    struct idx_reader *r = reader;
    sqrl_payload_close(&r->images.payload);
    sqrl_schema_reset(&r->schema);
    free(r->labels.data);
}

static void idx_block_info(const void *reader, uint64_t block,
                           struct sqrl_block_info *out) {
    const struct idx_reader *r = reader;
    const struct header *h = &r->images.h;
    out->first = block * r->per_block;
    out->samples = (uint32_t)SQRL_MIN((uint64_t)r->per_block, h->shape[0] - out->first);
    out->offset = h->bytes + out->first * h->sample_bytes;
    out->stored_bytes = out->raw_bytes = (uint64_t)out->samples * h->sample_bytes;
}

/* A block of a compressed file, by its sidecar. */
static int load_indexed(struct idx_reader *r, uint64_t number,
                        const struct sqrl_block_info *info,
                        const struct sqrl_cancel *cancel, struct sqrl_block **out,
                        struct sqrl_error *err) {
    const struct elements *e = &r->images;
    struct sqrl_buffer *bytes = NULL;
    struct sqrl_block *block = NULL;
    *out = NULL;
    int rc =
        sqrl_sidecar_load(e->sidecar, r->context, e->file, number, cancel, &bytes, err);
    if (!rc && bytes->size != info->raw_bytes)
        rc = sqrl_sidecar_count(e->sidecar, number, 0, err);
    if (!rc)
        rc = new_block(r, info->samples, &block, err);
    if (!rc) {
        memcpy(block->bytes->data + FRONT, bytes->data, bytes->size);
        swap_elements(block->bytes->data + FRONT, bytes->size, e->h.element);
        for (uint32_t i = 0; i < info->samples; i++)
            put_sample(r, block, info->first, i);
    }
    sqrl_buffer_unref(bytes);
    *out = block;
    return rc;
}

static int idx_load(void *reader, uint64_t block, const struct sqrl_cancel *cancel,
                    struct sqrl_block **out, struct sqrl_error *err) {
    struct idx_reader *r = reader;
    struct sqrl_block_info info;
    idx_block_info(reader, block, &info);
    if (r->images.sidecar)
        return load_indexed(r, block, &info, cancel, out, err);
    return make_block(r, info.first, info.samples, cancel, out, err);
}

static int idx_next(void *reader, const struct sqrl_cancel *cancel,
                    struct sqrl_block **out, struct sqrl_error *err) {
    struct idx_reader *r = reader;
    uint64_t left = r->images.h.shape[0] - r->at;
    *out = NULL;
    if (left == 0)
        return elements_end(&r->images, cancel, err);
    int rc = make_block(r, r->at, (uint32_t)SQRL_MIN(left, (uint64_t)r->per_block),
                        cancel, out, err);
    r->at += *out ? (*out)->count : 0;
    return rc;
}

const struct sqrl_format_ops sqrl_format_idx = {
    .size = sizeof sqrl_format_idx,
    .api = SQRL_FORMAT_API,
    .name = "idx",
    .doc = "IDX arrays, as MNIST and Fashion-MNIST come",
    .suffixes = "-ubyte|-ubyte.gz|.idx|.idx.gz",
    .flags = SQRL_FORMAT_INDEXED | SQRL_FORMAT_SIDECAR,
    .options = read_options,
    .sniff = idx_sniff,
    .reader_size = sizeof(struct idx_reader),
    .open = idx_open,
    .block_info = idx_block_info,
    .load = idx_load,
    .next = idx_next,
    .close = idx_close,
};
