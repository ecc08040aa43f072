/* arrow.c - a batch as a struct array, and a batched plan as an Arrow stream. */
#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "handoff.h"

/* Padded columns have their true shapes in columns of their own, behind all others. */
static size_t padded_columns(const struct sqrl_batch *batch) {
    size_t count = 0;
    for (uint32_t i = 0; i < batch->columns; i++)
        count += batch->column[i].padded && batch->column[i].shapes != NULL;
    return count;
}

static int batch_schema(const struct sqrl_batch *batch, struct ArrowSchema *out,
                        struct sqrl_error *err) {
    size_t next = batch->columns;
    int rc = sqrl_arrow_schema_node(out, "", "+s", next + padded_columns(batch), err);
    if (rc != SQRL_OK)
        return rc;
    out->flags = 0;
    for (uint32_t i = 0; rc == SQRL_OK && i < batch->columns; i++) {
        const struct sqrl_column *column = &batch->column[i];
        rc = sqrl_arrow_column_schema(column, out->children[i], err);
        if (rc == SQRL_OK && column->padded && column->shapes != NULL)
            rc = sqrl_arrow_shapes_schema(column, out->children[next++], err);
    }
    if (rc != SQRL_OK)
        out->release(out);
    return rc;
}

static int batch_array(struct sqrl_batch *batch, struct ArrowArray *out,
                       struct sqrl_error *err) {
    size_t next = batch->columns;
    int rc = sqrl_arrow_array_node(out, batch, batch->rows, NULL, 1,
                                   next + padded_columns(batch), err);
    if (rc != SQRL_OK)
        return rc;
    for (uint32_t i = 0; rc == SQRL_OK && i < batch->columns; i++) {
        const struct sqrl_column *column = &batch->column[i];
        rc = sqrl_arrow_column_array(batch, column, out->children[i], err);
        if (rc == SQRL_OK && column->padded && column->shapes != NULL)
            rc = sqrl_arrow_shapes_array(batch, column, out->children[next++], err);
    }
    if (rc != SQRL_OK)
        out->release(out);
    return rc;
}

int sqrl_arrow_export_batch(struct sqrl_batch *batch, struct ArrowSchema *schema,
                            struct ArrowArray *array, struct sqrl_error *err) {
    if (schema != NULL)
        memset(schema, 0, sizeof *schema);
    if (array != NULL)
        memset(array, 0, sizeof *array);
    int rc = schema == NULL ? SQRL_OK : batch_schema(batch, schema, err);
    if (rc != SQRL_OK || array == NULL)
        return rc;
    rc = batch_array(batch, array, err);
    if (rc != SQRL_OK && schema != NULL)
        schema->release(schema);
    return rc;
}

/* --- streams --- */

/* The schema comes from the first batch, which is kept for the first get_next. */
struct stream {
    struct sqrl_iterator *iterator;
    struct sqrl_batch *first;
    bool started;
    struct sqrl_error err;
    char text[SQRL_ERROR_MESSAGE_BYTES + SQRL_ERROR_WHERE_BYTES];
};

static int stream_fail(struct stream *stream, int code) {
    sqrl_error_text(&stream->err, stream->text, sizeof stream->text);
    switch (code) {
    case SQRL_E_NO_MEMORY:
        return ENOMEM;
    case SQRL_E_INVALID:
    case SQRL_E_TYPE:
        return EINVAL;
    case SQRL_E_CANCELLED:
        return ECANCELED;
    default:
        return EIO;
    }
}

static int stream_start(struct stream *stream) {
    if (stream->started)
        return SQRL_OK;
    int rc = sqrl_iterator_next_batch(stream->iterator, &stream->first, &stream->err);
    stream->started = rc == SQRL_OK;
    return rc;
}

static int stream_schema(struct ArrowArrayStream *arrow, struct ArrowSchema *out) {
    struct stream *stream = arrow->private_data;
    int rc = stream_start(stream);
    memset(out, 0, sizeof *out);
    if (rc == SQRL_OK)
        rc = stream->first != NULL
                 ? batch_schema(stream->first, out, &stream->err)
                 : sqrl_arrow_schema_node(out, "", "+s", 0, &stream->err);
    return rc == SQRL_OK ? 0 : stream_fail(stream, rc);
}

static int stream_next(struct ArrowArrayStream *arrow, struct ArrowArray *out) {
    struct stream *stream = arrow->private_data;
    int rc = stream_start(stream);
    memset(out, 0, sizeof *out);
    struct sqrl_batch *batch = stream->first;
    stream->first = NULL;
    if (rc == SQRL_OK && batch == NULL)
        rc = sqrl_iterator_next_batch(stream->iterator, &batch, &stream->err);
    if (rc == SQRL_OK && batch != NULL)
        rc = batch_array(batch, out, &stream->err);
    sqrl_batch_unref(batch);
    return rc == SQRL_OK ? 0 : stream_fail(stream, rc);
}

static const char *stream_error(struct ArrowArrayStream *arrow) {
    struct stream *stream = arrow->private_data;
    return stream->text[0] == '\0' ? NULL : stream->text;
}

static void stream_release(struct ArrowArrayStream *arrow) {
    struct stream *stream = arrow->private_data;
    sqrl_batch_unref(stream->first);
    sqrl_iterator_close(stream->iterator);
    free(stream);
    arrow->release = NULL;
}

int sqrl_arrow_export_plan(struct sqrl_plan *plan, struct ArrowArrayStream *out,
                           struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    if (!sqrl_plan_is_batched(plan))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "an Arrow stream needs a plan that ends in batch");
    struct stream *stream = sqrl_calloc(1, sizeof *stream, "an Arrow stream", err);
    if (stream == NULL)
        return SQRL_E_NO_MEMORY;
    int rc = sqrl_iterator_open(plan, &stream->iterator, err);
    if (rc != SQRL_OK) {
        free(stream);
        return rc;
    }
    out->get_schema = stream_schema;
    out->get_next = stream_next;
    out->get_last_error = stream_error;
    out->release = stream_release;
    out->private_data = stream;
    return SQRL_OK;
}
