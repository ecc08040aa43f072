/* arrow_node.c - nodes of the Arrow C data interface: allocation, metadata and release.
 *
 * Each node owns its strings, its array of children and, for arrays, a reference to the
 * batch. A consumer may move a child out (it sets the child's release to NULL in place),
 * so that every node must be releasable on its own, and a parent frees its children's
 * structs in any case.
 */
#include "handoff.h"

#include <stdlib.h>

#include "base/base.h"

struct schema_private {
    char *format, *name, *metadata;
    size_t children;
    struct ArrowSchema *child[];
};

struct array_private {
    struct sqrl_batch *batch;
    uint8_t *bitmap;
    const void *buffer[3];
    size_t children;
    struct ArrowArray *child[];
};

static void schema_release(struct ArrowSchema *schema) {
    struct schema_private *own = schema->private_data;
    for (size_t i = 0; i < own->children; i++) {
        struct ArrowSchema *child = own->child[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        free(child);
    }
    free(own->format);
    free(own->name);
    free(own->metadata);
    free(own);
    schema->release = NULL;
}

int sqrl_arrow_schema_node(struct ArrowSchema *out, const char *name, const char *format,
                           size_t children, struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    struct schema_private *own = sqrl_calloc(
        1, sizeof *own + children * sizeof own->child[0], "an Arrow schema", err);
    if (own == NULL)
        return SQRL_E_NO_MEMORY;
    own->children = children;
    out->private_data = own;
    out->release = schema_release;
    out->flags = ARROW_FLAG_NULLABLE;
    own->format = sqrl_strdup(format, err);
    own->name = sqrl_strdup(name, err);
    bool whole = own->format != NULL && own->name != NULL;
    for (size_t i = 0; whole && i < children; i++) {
        own->child[i] = sqrl_calloc(1, sizeof *own->child[i], "an Arrow schema", err);
        whole = own->child[i] != NULL;
    }
    if (!whole) {
        schema_release(out);
        return SQRL_E_NO_MEMORY;
    }
    out->format = own->format;
    out->name = own->name;
    out->n_children = (int64_t)children;
    out->children = children > 0 ? own->child : NULL;
    return SQRL_OK;
}

/* int32 count, then for each pair int32 length and bytes of key and value (native order).
 */
int sqrl_arrow_schema_metadata(struct ArrowSchema *schema, const char *const *pairs,
                               struct sqrl_error *err) {
    struct schema_private *own = schema->private_data;
    size_t size = 4, texts = 0;
    for (; pairs[texts] != NULL; texts++)
        size += 4 + strlen(pairs[texts]);
    char *metadata = sqrl_malloc(size, "Arrow metadata", err);
    if (metadata == NULL)
        return SQRL_E_NO_MEMORY;
    int32_t number = (int32_t)(texts / 2);
    char *at = metadata;
    memcpy(at, &number, 4);
    at += 4;
    for (size_t i = 0; i < texts; i++) {
        number = (int32_t)strlen(pairs[i]);
        memcpy(at, &number, 4);
        memcpy(at + 4, pairs[i], (size_t)number);
        at += 4 + number;
    }
    free(own->metadata);
    own->metadata = metadata;
    schema->metadata = metadata;
    return SQRL_OK;
}

static void array_release(struct ArrowArray *array) {
    struct array_private *own = array->private_data;
    for (size_t i = 0; i < own->children; i++) {
        struct ArrowArray *child = own->child[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        free(child);
    }
    sqrl_batch_unref(own->batch);
    free(own->bitmap);
    free(own);
    array->release = NULL;
}

/* Bits, least significant first, from bytes; counts the nulls. */
static uint8_t *bitmap_make(const uint8_t *valid, uint64_t length, int64_t *nulls,
                            struct sqrl_error *err) {
    uint8_t *bits =
        sqrl_calloc((length + 511) / 512 + 1, 64, "an Arrow validity bitmap", err);
    if (bits == NULL)
        return NULL;
    int64_t missing = 0;
    for (uint64_t i = 0; i < length; i++) {
        bits[i >> 3] |= (uint8_t)((valid[i] != 0) << (i & 7));
        missing += valid[i] == 0;
    }
    *nulls = missing;
    return bits;
}

int sqrl_arrow_array_node(struct ArrowArray *out, struct sqrl_batch *batch,
                          uint64_t length, const uint8_t *valid, size_t buffers,
                          size_t children, struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    struct array_private *own = sqrl_calloc(
        1, sizeof *own + children * sizeof own->child[0], "an Arrow array", err);
    if (own == NULL)
        return SQRL_E_NO_MEMORY;
    own->children = children;
    own->batch = sqrl_batch_ref(batch);
    out->private_data = own;
    out->release = array_release;
    out->length = (int64_t)length;
    out->n_buffers = (int64_t)buffers;
    out->n_children = (int64_t)children;
    out->buffers = own->buffer;
    out->children = children > 0 ? own->child : NULL;
    bool whole = true;
    if (valid != NULL) {
        own->bitmap = bitmap_make(valid, length, &out->null_count, err);
        own->buffer[0] = own->bitmap;
        whole = own->bitmap != NULL;
    }
    for (size_t i = 0; whole && i < children; i++) {
        own->child[i] = sqrl_calloc(1, sizeof *own->child[i], "an Arrow array", err);
        whole = own->child[i] != NULL;
    }
    if (!whole) {
        array_release(out);
        return SQRL_E_NO_MEMORY;
    }
    return SQRL_OK;
}

void sqrl_arrow_array_buffer(struct ArrowArray *array, size_t i, const void *data) {
    struct array_private *own = array->private_data;
    own->buffer[i] = data;
}
