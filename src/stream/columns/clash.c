/* clash.c - telling about values that can't be together in a column: which samples, of
 * which types, and what to do.
 *
 * A schema that comes from shards' footers knows one sample of two. The other is found
 * here, by reading again: only after a failure, and not more than MAX_SEARCH bytes.
 */
#include "stream/columns/columns.h"
#include "value/schema.h"

#include <stdio.h>

#define MAX_SEARCH (UINT64_C(256) << 20)

int sqrl_error_at_sample(struct sqrl_error *err, int code, struct sqrl_source *source,
                         const struct sqrl_place *place) {
    const struct sqrl_shard *shard = sqrl_source_shard(source, place->shard);
    if (place->sample != SQRL_UNKNOWN)
        sqrl_error_at(
            err, code, "sample %llu",
            (unsigned long long)sqrl_source_row(source, place->shard, place->sample));
    return sqrl_error_at(err, code, "%s", shard ? shard->path : "?");
}

/* The type of one value as sqrl_field_type_text writes types. */
static void value_text(const struct sqrl_node *nodes, uint32_t node, char *out,
                       size_t size) {
    static const char *const NAMES[] = {
        [SQRL_NULL] = "null",        [SQRL_BOOL] = "bool",
        [SQRL_INT] = "an integer",   [SQRL_UINT] = "uint64",
        [SQRL_FLOAT] = "float64",    [SQRL_NUMBER] = "a huge integer",
        [SQRL_STRING] = "string",    [SQRL_BINARY] = "binary",
        [SQRL_EXT] = "an extension", [SQRL_COMPLEX] = "complex",
        [SQRL_ARRAY] = "a list",     [SQRL_MAP] = "a map",
        [SQRL_NDARRAY] = "an array"};
    struct sqrl_field field = {.kind = SQRL_KIND_DENSE};
    const struct sqrl_node *v = node == SQRL_NO_NODE ? NULL : &nodes[node];
    if (v && v->type == SQRL_NDARRAY && v->aux && v->size <= SQRL_MAX_DIMS) {
        field.dtype = (enum sqrl_dtype)v->aux;
        field.dims = v->size;
        for (uint32_t d = 0; d < v->size; d++)
            field.shape[d] = v[2 + d].v.u;
        sqrl_field_type_text(&field, out, size);
        return;
    }
    snprintf(out, size, "%s",
             !v                        ? "missing"
             : v->type <= SQRL_NDARRAY ? NAMES[v->type]
                                       : "?");
    if (v && v->type == SQRL_INT)
        snprintf(out, size, "the integer %lld", (long long)v->v.i);
    if (v && v->type == SQRL_ARRAY)
        snprintf(out, size, "a list of %u values", v->size);
}

static void column_text(const struct sqrl_column_plan *c, char *out, size_t size) {
    struct sqrl_field field = {.kind = c->kind, .dtype = c->dtype, .dims = c->dims};
    memcpy(field.shape, c->shape, sizeof field.shape);
    if (c->kind == SQRL_KIND_NULL)
        snprintf(out, size, "null");
    else
        sqrl_field_type_text(&field, out, size);
}

/* What to declare so that both values fit; NULL: nothing does. */
static const char *remedy(const struct sqrl_column_plan *c, const struct sqrl_node *value,
                          char *out, size_t size) {
    struct sqrl_field field = {
        .kind = SQRL_KIND_RAGGED, .dtype = c->dtype, .dims = c->dims};
    bool number = value && value->type >= SQRL_BOOL && value->type <= SQRL_FLOAT;
    if (!value && c->declared)
        snprintf(out, size, "add ? to the declared type to allow missing values");
    else if (value && c->kind == SQRL_KIND_DENSE && c->dims &&
             ((value->type == SQRL_NDARRAY && value->aux == c->dtype &&
               value->size == c->dims) ||
              (value->type == SQRL_ARRAY && c->dims == 1))) {
        char type[160];
        sqrl_field_type_text(&field, type, sizeof type);
        snprintf(out, size, "declare \"%s\" (ragged) for it", type);
    } else if (c->kind == SQRL_KIND_DENSE && !c->dims && value &&
               value->type == SQRL_FLOAT)
        snprintf(out, size, "declare \"float64\" for it");
    else if (c->kind == SQRL_KIND_NULL && !number)
        snprintf(out, size, "declare its type");
    else if (number)
        snprintf(out, size, "declare a type that holds both");
    else
        snprintf(out, size, "drop() the field, or make its values alike with map()");
    return out;
}

/* --- fields that are no column --- */

/* The search for the two values of a field. */
struct search {
    struct sqrl_source *source;
    struct sqrl_path path;
    const struct sqrl_field *field;
    const char *name;      /* in the batch */
    struct sqrl_field had; /* the type of all values so far */
    bool any;              /* there was one */
    const struct sqrl_place
        *until; /* the sample to be told about; NULL: the first clash */
    bool found; /* the error is set */
    struct sqrl_error *err;
};

static void sample_text(const struct search *s, const struct sqrl_place *place,
                        const char *shard_of, char *out, size_t size) {
    const struct sqrl_shard *shard = sqrl_source_shard(s->source, place->shard);
    const char *path = shard ? shard->path : "?";
    size_t n = strlen(path);
    const char *cut = n > 100 ? path + n - 100 : path, *dots = n > 100 ? "..." : "";
    if (place->sample == SQRL_UNKNOWN)
        snprintf(out, size, "a sample%s%s%s", shard_of, dots, cut);
    else
        snprintf(out, size, "sample %llu%s%s%s", (unsigned long long)place->sample,
                 shard_of, dots, cut);
}

static void report(struct search *s, const struct sqrl_block *block, uint32_t node,
                   const struct sqrl_field *now, const struct sqrl_place *place) {
    char value[100], type[100], other[180];
    bool ragged = s->field->kind == SQRL_KIND_RAGGED;
    value_text(block->tape.nodes, node, value, sizeof value);
    sqrl_field_type_text(&s->had, type, sizeof type);
    if (s->had.kind == SQRL_KIND_RAGGED && s->had.python_number)
        snprintf(type, sizeof type, "a list of %llu values",
                 (unsigned long long)s->had.shape[0]);
    sample_text(s, &s->had.first, " of ", other, sizeof other);
    if (ragged)
        sqrl_error_set(s->err, SQRL_E_TYPE,
                       "the value is %s, but %s has %s: shapes differ; choose offsets or "
                       "padding for ragged fields, or drop() it",
                       value, other, type);
    else if (now->kind == SQRL_KIND_OTHER)
        sqrl_error_set(s->err, SQRL_E_TYPE,
                       "can't be a column: the value is %s, which is no number, string "
                       "or array of one type; drop() it, or select() other fields",
                       value);
    else
        sqrl_error_set(s->err, SQRL_E_TYPE,
                       "can't be a column: the value is %s, but %s has %s, and no type "
                       "holds both; drop() or select() fields, declare a type for it, or "
                       "make its values alike with map()",
                       value, other, type);
    sqrl_error_at(s->err, SQRL_E_TYPE, "field \"%.120s\"", s->name);
    sqrl_error_at_sample(s->err, SQRL_E_TYPE, s->source, place);
    s->found = true;
}

static void search_sample(struct search *s, const struct sqrl_block *block,
                          uint32_t row) {
    struct sqrl_block one = *block;
    struct sqrl_schema schema = {0};
    uint32_t begin = block->begin[row];
    struct sqrl_error ignored;
    one.begin = &begin;
    one.count = 1;
    one.first = block->first == SQRL_UNKNOWN ? SQRL_UNKNOWN : block->first + row;
    int at = -1;
    if (sqrl_schema_observe(&schema, &one, &ignored) == SQRL_OK)
        at = sqrl_schema_find(&schema, s->field->name, strlen(s->field->name));
    if (at >= 0 && schema.fields[at].kind != SQRL_KIND_NULL) {
        const struct sqrl_field *now = &schema.fields[at];
        struct sqrl_value_type type = {now->kind,     now->dtype, now->python_number,
                                       now->negative, now->dims,  now->shape};
        struct sqrl_place place = {block->shard, one.first};
        struct sqrl_field both = s->had;
        sqrl_field_join(&both, &type, place);
        bool other = both.kind == SQRL_KIND_OTHER, differs = false;
        if (s->until)
            other = s->any && place.shard == s->until->shard &&
                    place.sample == s->until->sample;
        for (uint32_t d = 0; s->any && !other && !s->until && d < now->dims; d++)
            differs |= now->shape[d] != s->had.shape[d];
        if (other || (differs && s->field->kind == SQRL_KIND_RAGGED))
            report(
                s, block,
                sqrl_path_find(&s->path, 0, block->tape.nodes, begin, block->bytes->data),
                now, &place);
        s->had = both;
        s->any = true;
    }
    sqrl_schema_reset(&schema);
}

/* Shards in front of the one that has the clash: their footers are enough. */
static bool from_footer(struct search *s, struct sqrl_shard_reader *reader,
                        uint64_t shard) {
    const struct sqrl_schema *schema = sqrl_shard_reader_info(reader)->schema;
    if (!schema || shard >= s->field->first.shard || s->field->kind != SQRL_KIND_OTHER)
        return false;
    int at = sqrl_schema_find(schema, s->field->name, strlen(s->field->name));
    if (at < 0 || schema->fields[at].kind == SQRL_KIND_NULL)
        return true;
    const struct sqrl_field *f = &schema->fields[at];
    struct sqrl_value_type type = {f->kind,     f->dtype, f->python_number,
                                   f->negative, f->dims,  f->shape};
    sqrl_field_join(&s->had, &type, (struct sqrl_place){shard, f->first.sample});
    s->any = true;
    return true;
}

static void search_source(struct search *s) {
    uint64_t shards = sqrl_source_shards(s->source), read = 0;
    struct sqrl_error ignored;
    for (uint64_t i = 0; i < shards && !s->found && read < MAX_SEARCH; i++) {
        struct sqrl_shard_reader *reader;
        struct sqrl_block *block = NULL;
        if (sqrl_shard_open(s->source, i, &reader, &ignored))
            return;
        bool known = from_footer(s, reader, i);
        while (!known && !s->found && read < MAX_SEARCH &&
               sqrl_shard_reader_next(reader, NULL, &block, &ignored) == SQRL_OK &&
               block) {
            for (uint32_t r = 0; r < block->count && !s->found; r++)
                search_sample(s, block, r);
            read += block->bytes->size + 1;
            sqrl_block_unref(block);
        }
        sqrl_shard_reader_unref(reader);
    }
}

/* A value that widened its column itself: the sample that had the type before. False:
 * there is none, or it can't be read. */
static bool tell_widening(const struct sqrl_column_plan *c, struct sqrl_source *source,
                          const struct sqrl_place *place, struct sqrl_error *err) {
    struct sqrl_field field = {.name = c->origin, .kind = c->kind, .dtype = c->dtype};
    struct search s = {
        .source = source, .field = &field, .name = c->name, .until = place, .err = err};
    if (sqrl_path_parse(&s.path, c->origin, NULL) == SQRL_OK)
        search_source(&s);
    sqrl_path_reset(&s.path);
    return s.found;
}

/* --- values that don't fit their column --- */

int sqrl_column_clash(const struct sqrl_column_plan *c, struct sqrl_source *source,
                      const struct sqrl_node *nodes, uint32_t node,
                      const struct sqrl_place *place, struct sqrl_error *err) {
    char value[100], type[100], advice[220];
    if (node != SQRL_NO_NODE && nodes[node].type == SQRL_NULL)
        node = SQRL_NO_NODE;
    value_text(nodes, node, value, sizeof value);
    column_text(c, type, sizeof type);
    remedy(c, node == SQRL_NO_NODE ? NULL : &nodes[node], advice, sizeof advice);
    const struct sqrl_shard *shard = sqrl_source_shard(source, c->first.shard);
    const char *path = shard ? shard->path : "?";
    size_t size = strlen(path);
    char since[40] = "a sample";
    if (c->first.sample != SQRL_UNKNOWN)
        snprintf(since, sizeof since, "sample %llu", (unsigned long long)c->first.sample);
    if (c->declared)
        sqrl_error_set(err, SQRL_E_TYPE, "the value is %s, but %s was declared; %s",
                       value, type, advice);
    else if (c->first.shard == place->shard && c->first.sample == place->sample &&
             c->first.sample != SQRL_UNKNOWN) {
        if (tell_widening(c, source, place, err))
            return SQRL_E_TYPE;
        sqrl_error_set(err, SQRL_E_TYPE,
                       "the value is %s, which %s can't hold exactly: the type that it "
                       "and the values of other samples have in common; %s",
                       value, type, advice);
    } else
        sqrl_error_set(err, SQRL_E_TYPE,
                       "the value is %s, but the column is %s since %s of %s%s; %s",
                       value, type, since, size > 100 ? "..." : "",
                       size > 100 ? path + size - 100 : path, advice);
    sqrl_error_at(err, SQRL_E_TYPE, "field \"%.120s\"", c->name);
    return sqrl_error_at_sample(err, SQRL_E_TYPE, source, place);
}

int sqrl_field_clash(const struct sqrl_field *field, const char *name,
                     struct sqrl_source *source, const struct sqrl_seen_block *seen,
                     struct sqrl_error *err) {
    struct search s = {.source = source, .field = field, .name = name, .err = err};
    if (!*name) {
        sqrl_error_set(err, SQRL_E_TYPE,
                       "the sample is no map of named fields, so it can't be a row of a "
                       "batch; stream samples one by one instead");
        return sqrl_error_at_sample(err, SQRL_E_TYPE, source, &field->first);
    }
    int code = sqrl_path_parse(&s.path, field->name, err);
    if (code)
        return code;
    for (uint32_t i = 0, r = 0; seen && i < seen->count && !s.found; i++, r++) {
        while (seen->block->begin[r] != seen->begin[i])
            r++;
        search_sample(&s, seen->block, r);
    }
    if (!seen)
        search_source(&s);
    sqrl_path_reset(&s.path);
    if (s.found)
        return SQRL_E_TYPE;
    if (field->kind == SQRL_KIND_RAGGED)
        sqrl_error_set(
            err, SQRL_E_TYPE,
            "its lists may vary in length; choose offsets or padding for ragged "
            "fields, or drop() it");
    else
        sqrl_error_set(err, SQRL_E_TYPE,
                       "can't be a column: its values have no common number type, string "
                       "or array type; drop() or select() fields, or declare a type for "
                       "it");
    sqrl_error_at(err, SQRL_E_TYPE, "field \"%.120s\"", name);
    return sqrl_error_at_sample(err, SQRL_E_TYPE, source, &field->first);
}
