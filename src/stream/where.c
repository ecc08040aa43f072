/* where.c - a subset by an expression over index columns: no sample is read. */
#include <stdlib.h>

#include "driver/fetch.h"
#include "driver/source.h"
#include "sqrl/stream.h"
#include "stream/expression.h"

struct columns {
    struct sqrl_values *values; /* [count] */
    struct sqrl_node *nodes;    /* [count], of the sample that is looked at */
    uint32_t *found, *map;
    uint32_t count;
    struct sqrl_bytes texts;
};

static void columns_reset(struct columns *c) {
    for (uint32_t i = 0; c->values && i < c->count; i++)
        sqrl_buffer_unref(c->values[i].memory);
    free(c->values);
    free(c->nodes);
    free(c->found);
    free(c->map);
    sqrl_bytes_reset(&c->texts);
}

static int columns_new(const struct sqrl_expression *expression, struct columns *c,
                       struct sqrl_error *err) {
    *c = (struct columns){.count = sqrl_expression_fields(expression)};
    size_t room = (size_t)c->count + 1;
    c->values = sqrl_calloc(room, sizeof *c->values, "columns", err);
    c->nodes = sqrl_calloc(room, sizeof *c->nodes, "columns", err);
    c->found = sqrl_calloc(room, sizeof *c->found, "columns", err);
    c->map = sqrl_calloc(room, sizeof *c->map, "columns", err);
    if (!c->values || !c->nodes || !c->found || !c->map)
        return SQRL_E_NO_MEMORY;
    for (uint32_t i = 0; i < c->count; i++)
        c->map[i] = i;
    return SQRL_OK;
}

static int load(struct sqrl_source *source, uint64_t shard,
                const struct sqrl_expression *expression, struct columns *c,
                struct sqrl_error *err) {
    for (uint32_t i = 0; i < c->count; i++) {
        sqrl_buffer_unref(c->values[i].memory);
        c->values[i] = (struct sqrl_values){0};
        int rc = sqrl_source_column(source, shard, sqrl_expression_field(expression, i),
                                    &c->values[i], err);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

/* The column's value of one sample as a node; texts are copied beside each other. */
static int set_node(struct columns *c, uint32_t i, uint64_t sample,
                    struct sqrl_error *err) {
    const struct sqrl_values *v = &c->values[i];
    struct sqrl_node *node = &c->nodes[i];
    if (sample >= v->count)
        return sqrl_error_set(
            err, SQRL_E_CORRUPT,
            "a shard changed since the source was opened: open it again");
    *node = (struct sqrl_node){.type = SQRL_NULL};
    c->found[i] = i;
    if (v->valid && !(v->valid[sample / 8] >> (sample % 8) & 1))
        return SQRL_OK;
    if (v->offsets) {
        uint64_t from = v->offsets[sample], size = v->offsets[sample + 1] - from;
        *node = (struct sqrl_node){
            .type = SQRL_STRING, .size = (uint32_t)size, .v.offset = c->texts.size};
        return sqrl_bytes_append(&c->texts, (const uint8_t *)v->data + from, size, err);
    }
    uint64_t bits = 0;
    size_t size = sqrl_dtype_size(v->dtype);
    memcpy(&bits, (const uint8_t *)v->data + sample * size, SQRL_MIN(size, sizeof bits));
    node->v.u = bits;
    switch (v->dtype) {
    case SQRL_DTYPE_BOOL:
        node->type = SQRL_BOOL;
        break;
    case SQRL_DTYPE_INT64:
        node->type = SQRL_INT;
        break;
    case SQRL_DTYPE_UINT64:
        node->type = bits > INT64_MAX ? SQRL_UINT : SQRL_INT;
        break;
    case SQRL_DTYPE_FLOAT64:
        node->type = SQRL_FLOAT;
        break;
    default:
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "a column of type %s can't be tested by this version",
                              sqrl_dtype_name(v->dtype));
    }
    return SQRL_OK;
}

/* Appends the positions of one shard's samples that pass. Columns hold all of the shard's
 * samples, of which a subset has some. */
static int test_shard(struct sqrl_source *source, uint64_t shard, uint64_t first,
                      const struct sqrl_expression *expression, struct columns *c,
                      uint64_t *samples, struct sqrl_bytes *out, struct sqrl_error *err) {
    bool subset = sqrl_source_subset_of(source);
    *samples = sqrl_source_shard(source, shard)->samples;
    if (subset && !*samples)
        return SQRL_OK;
    int rc = load(source, shard, expression, c, err);
    if (rc == SQRL_OK && c->count && !subset)
        *samples = c->values[0].count;
    for (uint64_t i = 0; rc == SQRL_OK && i < *samples; i++) {
        bool pass = false;
        uint64_t row = sqrl_source_row(source, shard, i);
        c->texts.size = 0;
        rc = sqrl_bytes_reserve(&c->texts, 1, err);
        for (uint32_t f = 0; rc == SQRL_OK && f < c->count; f++)
            rc = set_node(c, f, row, err);
        if (rc == SQRL_OK)
            rc = sqrl_expression_test(expression, c->nodes, c->texts.data, c->found,
                                      c->map, &pass, err);
        uint64_t position = first + i;
        if (rc == SQRL_OK && pass)
            rc = sqrl_bytes_append(out, &position, sizeof position, err);
    }
    return rc;
}

/* Of a source in groups only what has the columns. */
static int narrow(struct sqrl_source *source, const struct sqrl_expression *expression,
                  uint32_t count, struct sqrl_source **out, struct sqrl_error *err) {
    const char **name = sqrl_calloc(count + 1, sizeof *name, "columns", err);
    if (!name)
        return SQRL_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        name[i] = sqrl_expression_field(expression, i);
    int rc = sqrl_source_narrow_to(source, name, count, out, err);
    free(name);
    return rc;
}

int sqrl_source_where(struct sqrl_source *source, const char *text,
                      struct sqrl_source **out, struct sqrl_error *err) {
    struct sqrl_expression *expression = NULL;
    struct columns columns = {0};
    struct sqrl_bytes positions = {0};
    struct sqrl_source *read = NULL;
    uint64_t first = 0, samples;
    *out = NULL;
    int rc = sqrl_expression_parse(text, &expression, err);
    if (rc == SQRL_OK)
        rc = columns_new(expression, &columns, err);
    if (rc == SQRL_OK && !columns.count)
        rc = sqrl_error_set(err, SQRL_E_INVALID, "where: the expression names no field");
    if (rc == SQRL_OK)
        rc = narrow(source, expression, columns.count, &read, err);
    for (uint64_t i = 0; rc == SQRL_OK && i < sqrl_source_shards(source); i++) {
        rc = test_shard(read, i, first, expression, &columns, &samples, &positions, err);
        first += samples;
    }
    if (rc == SQRL_OK)
        rc = sqrl_source_subset(source, (const uint64_t *)(const void *)positions.data,
                                positions.size / sizeof(uint64_t), out, err);
    sqrl_source_unref(read);
    sqrl_bytes_reset(&positions);
    columns_reset(&columns);
    sqrl_expression_free(expression);
    return rc;
}
