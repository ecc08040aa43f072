/* Keys and columns of a shard that is written. encode() takes the values out of a block's
 * samples, on any thread; append() gathers them in order; at the end the keys are sorted
 * and each column gets the type that holds all its values. */
#include "format/native_inner.h"
#include "value/value.h"

#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

enum { MAX_COLUMNS = 256, BUCKET = 64 /* keys of one entry of the fan-out table */ };

/* How a value is kept until the type is known. */
enum tag { TAG_NULL, TAG_FALSE, TAG_TRUE, TAG_INT, TAG_UINT, TAG_FLOAT, TAG_TEXT };

struct column {
    char *name;
    struct sqrl_field_path path;
    struct sqrl_bytes values; /* tags, each with its 8 bytes, or u32 size and text */
    bool met[TAG_TEXT + 1];
    bool negative;
};

struct native_index {
    char *key; /* name, or NULL */
    struct sqrl_field_path key_path;
    struct sqrl_bytes keys; /* records */
    struct column *column;
    uint32_t columns;
    uint64_t samples;
};

void native_index_free(struct native_index *index) {
    if (!index)
        return;
    for (uint32_t i = 0; i < index->columns; i++) {
        free(index->column[i].name);
        sqrl_field_path_reset(&index->column[i].path);
        sqrl_bytes_reset(&index->column[i].values);
    }
    free(index->column);
    free(index->key);
    sqrl_field_path_reset(&index->key_path);
    sqrl_bytes_reset(&index->keys);
    free(index);
}

/* --- which --- */
static int add_column(struct native_index *index, const char *name, size_t size,
                      struct sqrl_error *err) {
    struct column *column = &index->column[index->columns];
    if (!size || size > 1024)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "index: give names of fields, separated by commas");
    column->name = sqrl_format(err, "%.*s", (int)size, name);
    if (!column->name)
        return SQRL_E_NO_MEMORY;
    index->columns++;
    for (uint32_t i = 0; i + 1 < index->columns; i++)
        if (strcmp(index->column[i].name, column->name) == 0)
            return sqrl_error_set(err, SQRL_E_INVALID,
                                  "index: the field \"%s\" is named twice", column->name);
    return sqrl_field_path_parse(column->name, &column->path, err);
}

static int add_columns(struct native_index *index, const char *names,
                       struct sqrl_error *err) {
    size_t count = 1;
    for (const char *at = names; *at; at++)
        count += *at == ',';
    if (count > MAX_COLUMNS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "index: at most %d fields", MAX_COLUMNS);
    index->column = sqrl_calloc(count, sizeof *index->column, "columns", err);
    if (!index->column)
        return SQRL_E_NO_MEMORY;
    for (const char *at = names;;) {
        size_t size = strcspn(at, ",");
        int rc = add_column(index, at, size, err);
        if (rc || !at[size])
            return rc;
        at += size + 1;
    }
}

int native_index_new(const struct sqrl_settings *settings, struct native_index **out,
                     struct sqrl_error *err) {
    const char *key = sqrl_settings_text(settings, native_write_options, "key");
    const char *names = sqrl_settings_text(settings, native_write_options, "index");
    *out = NULL;
    if (!key && !names)
        return SQRL_OK;
    struct native_index *index = sqrl_calloc(1, sizeof *index, "index", err);
    if (!index)
        return SQRL_E_NO_MEMORY;
    int rc = SQRL_OK;
    if (key && (!*key || strlen(key) > 1024))
        rc = sqrl_error_set(err, SQRL_E_INVALID, "key: give the name of a field");
    if (rc == SQRL_OK && key)
        rc = (index->key = sqrl_strdup(key, err)) ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK && key)
        rc = sqrl_field_path_parse(key, &index->key_path, err);
    if (rc == SQRL_OK && names)
        rc = add_columns(index, names, err);
    if (rc) {
        native_index_free(index);
        return rc;
    }
    *out = index;
    return SQRL_OK;
}

/* --- values --- */
/* A NumPy scalar as the node of the number that it is; others stay. */
static struct sqrl_node plain(const struct sqrl_node *nodes, uint32_t at,
                              const uint8_t *bytes) {
    struct sqrl_node node = nodes[at];
    if (node.type != SQRL_NDARRAY || node.size || (node.flags & SQRL_NODE_SWAPPED))
        return node;
    const uint8_t *data = sqrl_ndarray_data(nodes, at, bytes);
    size_t size = sqrl_dtype_size((enum sqrl_dtype)node.aux);
    uint64_t raw = 0;
    float single;
    if (size && size <= 8)
        memcpy(&raw, data, size);
    unsigned shift = 64 - 8 * (unsigned)size;
    struct sqrl_node out = {.type = SQRL_INT, .v.u = raw};
    switch (node.aux) {
    case SQRL_DTYPE_BOOL:
        out.type = SQRL_BOOL;
        return out;
    case SQRL_DTYPE_INT8:
    case SQRL_DTYPE_INT16:
    case SQRL_DTYPE_INT32:
    case SQRL_DTYPE_INT64:
        out.v.i = (int64_t)(raw << shift) >> shift;
        return out;
    case SQRL_DTYPE_UINT8:
    case SQRL_DTYPE_UINT16:
    case SQRL_DTYPE_UINT32:
    case SQRL_DTYPE_UINT64:
        out.type = raw > INT64_MAX ? SQRL_UINT : SQRL_INT;
        return out;
    case SQRL_DTYPE_FLOAT32:
        memcpy(&single, data, 4);
        out.type = SQRL_FLOAT;
        out.v.f = (double)single;
        return out;
    case SQRL_DTYPE_FLOAT64:
        out.type = SQRL_FLOAT;
        return out;
    default:
        return node;
    }
}

bool sqrl_key_hash(const struct sqrl_node *nodes, uint32_t node, const uint8_t *bytes,
                   uint64_t *out) {
    if (node == SQRL_NO_NODE)
        return false;
    struct sqrl_node value = plain(nodes, node, bytes);
    if (value.type == SQRL_STRING || value.type == SQRL_BINARY)
        *out = sqrl_xxh3(bytes + value.v.offset, value.size);
    else if (value.type == SQRL_INT || value.type == SQRL_UINT)
        *out = sqrl_xxh3(&value.v.u, sizeof value.v.u);
    else
        return false;
    return true;
}

static int put_value(const struct column *column, const struct sqrl_node *nodes,
                     uint32_t at, const uint8_t *bytes, struct sqrl_bytes *out,
                     struct sqrl_error *err) {
    struct sqrl_node node = {.type = SQRL_NULL};
    if (at != SQRL_NO_NODE)
        node = plain(nodes, at, bytes);
    uint8_t record[9];
    size_t size = 9;
    memcpy(record + 1, &node.v.u, 8);
    switch (node.type) {
    case SQRL_NULL:
        record[0] = TAG_NULL;
        size = 1;
        break;
    case SQRL_BOOL:
        record[0] = node.v.u ? TAG_TRUE : TAG_FALSE;
        size = 1;
        break;
    case SQRL_INT:
        record[0] = TAG_INT;
        break;
    case SQRL_UINT:
        record[0] = TAG_UINT;
        break;
    case SQRL_FLOAT:
        record[0] = TAG_FLOAT;
        break;
    case SQRL_STRING:
        record[0] = TAG_TEXT;
        sqrl_store_le32(record + 1, node.size);
        size = 5;
        break;
    default:
        return sqrl_error_set(
            err, SQRL_E_TYPE,
            "index: the field \"%.120s\" is no number, boolean or text: "
            "leave it out of index=",
            column->name);
    }
    int rc = sqrl_bytes_append(out, record, size, err);
    if (rc == SQRL_OK && node.type == SQRL_STRING)
        rc = sqrl_bytes_append(out, bytes + node.v.offset, node.size, err);
    return rc;
}

int native_index_encode(const struct native_index *index, const struct sqrl_block *block,
                        struct sqrl_bytes *out, struct sqrl_error *err) {
    const struct sqrl_node *nodes = block->tape.nodes;
    const uint8_t *bytes = block->bytes->data;
    int rc = SQRL_OK;
    for (uint32_t i = 0; rc == SQRL_OK && index->key && i < block->count; i++) {
        uint64_t hash;
        uint32_t at =
            sqrl_field_path_find(&index->key_path, nodes, block->begin[i], bytes);
        if (sqrl_key_hash(nodes, at, bytes, &hash))
            rc = sqrl_bytes_append(out, &hash, sizeof hash, err);
        else
            rc =
                sqrl_error_set(err, SQRL_E_TYPE,
                               "key: sample %u of the block has no field \"%.120s\" that "
                               "is a text, bytes or an integer",
                               i, index->key);
    }
    for (uint32_t c = 0; rc == SQRL_OK && c < index->columns; c++) {
        const struct column *column = &index->column[c];
        size_t from = out->size;
        uint64_t size = 0;
        rc = sqrl_bytes_append(out, &size, sizeof size, err);
        for (uint32_t i = 0; rc == SQRL_OK && i < block->count; i++)
            rc = put_value(
                column, nodes,
                sqrl_field_path_find(&column->path, nodes, block->begin[i], bytes), bytes,
                out, err);
        if (rc == SQRL_OK)
            sqrl_store_le64(out->data + from, out->size - from - sizeof size);
    }
    return rc;
}

/* Moves *at behind one value. */
static enum tag next_value(const uint8_t **at, uint64_t *bits, const uint8_t **text) {
    enum tag tag = (enum tag) * *at;
    ++*at;
    *bits = 0;
    if (tag == TAG_TEXT) {
        *bits = sqrl_load_le32(*at);
        *text = *at + 4;
        *at += 4 + *bits;
    } else if (tag >= TAG_INT) {
        *bits = sqrl_load_le64(*at);
        *at += 8;
    }
    return tag;
}

int native_index_append(struct native_index *index, const uint8_t *coded, size_t size,
                        uint64_t first, uint32_t count, struct sqrl_error *err) {
    const uint8_t *at = coded;
    int rc = SQRL_OK;
    for (uint32_t i = 0; rc == SQRL_OK && index->key && i < count; i++, at += 8) {
        uint64_t record[2] = {sqrl_load_le64(at), first + i};
        rc = sqrl_bytes_append(&index->keys, record, sizeof record, err);
    }
    for (uint32_t c = 0; rc == SQRL_OK && c < index->columns; c++) {
        size_t bytes = (size_t)sqrl_load_le64(at);
        rc = sqrl_bytes_append(&index->column[c].values, at + 8, bytes, err);
        at += 8 + bytes;
    }
    index->samples += count;
    (void)size;
    return rc;
}

/* --- keys --- */
static int by_hash(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

static int put_name(struct sqrl_bytes *out, const char *key, const char *value,
                    struct sqrl_error *err) {
    int rc = sqrl_msgpack_put_string(out, key, strlen(key), err);
    return rc ? rc : sqrl_msgpack_put_string(out, value, strlen(value), err);
}

static int put_count(struct sqrl_bytes *out, const char *key, uint64_t value,
                     struct sqrl_error *err) {
    int rc = sqrl_msgpack_put_string(out, key, strlen(key), err);
    return rc ? rc : sqrl_msgpack_put_uint(out, value, err);
}

static int make_fanout(const struct sqrl_bytes *keys, unsigned bits,
                       struct sqrl_bytes *out, struct sqrl_error *err) {
    uint64_t count = keys->size / NATIVE_KEY_BYTES, at = 0;
    uint64_t entries = (UINT64_C(1) << bits) + 1;
    int rc = sqrl_bytes_reserve(out, 8 * entries, err);
    for (uint64_t i = 0; rc == SQRL_OK && i < entries; i++) {
        while (at < count && bits &&
               sqrl_load_le64(keys->data + NATIVE_KEY_BYTES * at) >> (64 - bits) < i)
            at++;
        if (i + 1 == entries)
            at = count;
        rc = sqrl_bytes_append(out, &at, sizeof at, err);
    }
    return rc;
}

static int write_keys(struct native_writer *writer, struct native_index *index,
                      struct sqrl_error *err) {
    uint64_t count = index->keys.size / NATIVE_KEY_BYTES;
    struct sqrl_bytes fanout = {0}, more = {0};
    unsigned bits = 0;
    while (bits < NATIVE_MAX_BITS && count >> bits > BUCKET)
        bits++;
    if (count)
        qsort(index->keys.data, count, NATIVE_KEY_BYTES, by_hash);
    int rc = make_fanout(&index->keys, bits, &fanout, err);
    if (rc == SQRL_OK)
        rc = put_name(&more, "field", index->key, err);
    if (rc == SQRL_OK)
        rc = put_count(&more, "count", count, err);
    if (rc == SQRL_OK)
        rc = put_count(&more, "bits", bits, err);
    struct sqrl_bytes parts[] = {fanout, index->keys};
    if (rc == SQRL_OK)
        rc = native_write_frame(writer, "keys", NATIVE_TAG_KEYS, parts, 2, &more, 3, err);
    sqrl_bytes_reset(&fanout);
    sqrl_bytes_reset(&more);
    return rc;
}

/* --- columns --- */
static void look(struct column *column) {
    const uint8_t *at = column->values.data, *end = at + column->values.size, *text;
    while (at < end) {
        uint64_t bits;
        enum tag tag = next_value(&at, &bits, &text);
        column->met[tag] = true;
        column->negative |= tag == TAG_INT && (int64_t)bits < 0;
    }
}

/* The type that holds all values, as the schema's rules have it. */
static int choose_type(const struct column *column, enum sqrl_dtype *out,
                       struct sqrl_error *err) {
    const bool *met = column->met;
    bool truth = met[TAG_FALSE] || met[TAG_TRUE], whole = met[TAG_INT] || met[TAG_UINT];
    if ((met[TAG_TEXT] && (truth || whole || met[TAG_FLOAT])) ||
        (truth && (whole || met[TAG_FLOAT])))
        return sqrl_error_set(err, SQRL_E_TYPE,
                              "index: the field \"%.120s\" has values of several kinds "
                              "(numbers, booleans, texts): a column holds one kind",
                              column->name);
    if (met[TAG_TEXT])
        *out = SQRL_DTYPE_OTHER;
    else if (truth)
        *out = SQRL_DTYPE_BOOL;
    else if (met[TAG_FLOAT] || (met[TAG_UINT] && column->negative))
        *out = SQRL_DTYPE_FLOAT64;
    else
        *out = met[TAG_UINT] ? SQRL_DTYPE_UINT64 : SQRL_DTYPE_INT64;
    return SQRL_OK;
}

struct body {
    struct sqrl_bytes valid, values, texts;
};

static int put_number(struct body *body, enum sqrl_dtype dtype, enum tag tag,
                      uint64_t bits, struct sqrl_error *err) {
    double number = tag == TAG_FLOAT ? 0
                    : tag == TAG_INT ? (double)(int64_t)bits
                                     : (double)bits;
    if (tag == TAG_FLOAT)
        memcpy(&number, &bits, 8);
    if (dtype == SQRL_DTYPE_FLOAT64)
        memcpy(&bits, &number, 8);
    if (dtype == SQRL_DTYPE_BOOL)
        bits = tag == TAG_TRUE;
    return sqrl_bytes_append(&body->values, &bits, sqrl_dtype_size(dtype), err);
}

static int make_body(const struct column *column, enum sqrl_dtype dtype, uint64_t samples,
                     struct body *body, struct sqrl_error *err) {
    const uint8_t *at = column->values.data, *text = NULL;
    size_t valid = column->met[TAG_NULL] ? (size_t)((samples + 63) / 64 * 8) : 0;
    uint64_t zero = 0;
    int rc = sqrl_bytes_reserve(&body->valid, valid + 1, err);
    if (rc)
        return rc;
    memset(body->valid.data, 0, valid);
    body->valid.size = valid;
    if (dtype == SQRL_DTYPE_OTHER)
        rc = sqrl_bytes_append(&body->values, &zero, sizeof zero, err);
    for (uint64_t i = 0; rc == SQRL_OK && i < samples; i++) {
        uint64_t bits;
        enum tag tag = next_value(&at, &bits, &text);
        if (valid && tag != TAG_NULL)
            body->valid.data[i / 8] |= (uint8_t)(1u << (i % 8));
        if (dtype != SQRL_DTYPE_OTHER) {
            rc = put_number(body, dtype, tag, bits, err);
            continue;
        }
        if (tag == TAG_TEXT)
            rc = sqrl_bytes_append(&body->texts, text, (size_t)bits, err);
        uint64_t end = body->texts.size;
        if (rc == SQRL_OK)
            rc = sqrl_bytes_append(&body->values, &end, sizeof end, err);
    }
    return rc;
}

static int write_column(struct native_writer *writer, struct column *column,
                        uint64_t samples, struct sqrl_error *err) {
    enum sqrl_dtype dtype = SQRL_DTYPE_INT64;
    struct body body = {{0}, {0}, {0}};
    struct sqrl_bytes more = {0};
    look(column);
    int rc = choose_type(column, &dtype, err);
    if (rc == SQRL_OK)
        rc = make_body(column, dtype, samples, &body, err);
    if (rc == SQRL_OK)
        rc = put_name(&more, "field", column->name, err);
    if (rc == SQRL_OK)
        rc = put_name(&more, "dtype",
                      dtype == SQRL_DTYPE_OTHER ? "string" : sqrl_dtype_name(dtype), err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_string(&more, "valid", 5, err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_bool(&more, body.valid.size > 0, err);
    struct sqrl_bytes parts[] = {body.valid, body.values, body.texts};
    if (rc == SQRL_OK)
        rc = native_write_frame(writer, "column", NATIVE_TAG_COLUMN, parts, 3, &more, 3,
                                err);
    sqrl_bytes_reset(&body.valid);
    sqrl_bytes_reset(&body.values);
    sqrl_bytes_reset(&body.texts);
    sqrl_bytes_reset(&more);
    return rc;
}

int native_index_write(struct native_writer *writer, struct sqrl_error *err) {
    struct native_index *index = writer->index;
    int rc = index->key ? write_keys(writer, index, err) : SQRL_OK;
    for (uint32_t c = 0; rc == SQRL_OK && c < index->columns; c++)
        rc = write_column(writer, &index->column[c], index->samples, err);
    return rc;
}
