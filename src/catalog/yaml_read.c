/* yaml_read.c - one YAML document to a tape, by libyaml's events.
 *
 * libyaml reads some things that YAML 1.2 forbids or means otherwise: those are refused
 * (check_edges). A last line of blanks without its newline is mended (feed).
 *
 * The tape grows in document order, as the decoders of the value floor do it: a container
 * is patched when it ends. An anchor is therefore a range of finished nodes, and an alias
 * a copy of that range with its links moved; an alias to a range that is not finished is
 * a cycle. Depth, nodes and bytes are capped before anything is stored. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <yaml.h>

#include "catalog/scalar.h"
#include "catalog/yaml.h"
#include "catalog/yaml_edges.h"
#include "sqrl/catalog.h"
#include "sqrl/codec.h"

#define NO_ANCHOR UINT32_MAX

struct frame {
    uint32_t node;
    uint32_t children; /* nodes right below; keys count too */
    uint32_t anchor;
    bool map, key, flow;
    size_t begin; /* the byte where it begins */
    int64_t
        column; /* of its entries; that of the one around it where it is in [] or {} */
};

struct anchor {
    char *name;
    uint32_t begin, end; /* of its nodes; end 0 while it is not finished */
};

struct reader {
    struct sqrl_yaml_edges edges;
    size_t size, fed;
    size_t begin, end; /* the bytes of the event */
    yaml_parser_t parser;
    yaml_event_t event;
    struct sqrl_yaml *out;
    struct frame frame[SQRL_YAML_MAX_DEPTH];
    uint32_t depth;
    struct anchor *anchor;
    uint32_t anchors, anchor_capacity;
    struct sqrl_table anchor_table;
    bool finished;
    struct sqrl_error *err;
};

void sqrl_yaml_reset(struct sqrl_yaml *yaml) {
    sqrl_tape_reset(&yaml->tape);
    sqrl_bytes_reset(&yaml->text);
    free(yaml->mark);
    *yaml = (struct sqrl_yaml){0};
}

int sqrl_yaml_error(const struct sqrl_yaml *yaml, uint32_t node, struct sqrl_error *err,
                    int code, const char *format, ...) {
    char text[SQRL_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sqrl_error_set(err, code, "%s", text);
    if (!yaml->mark)
        return code;
    return sqrl_error_at(err, code, "line %u, column %u", yaml->mark[node].line,
                         yaml->mark[node].column);
}

/* The error at the event that is looked at. */
static int fail(struct reader *r, int code, const char *message) {
    sqrl_error_set(r->err, code, "%s", message);
    return sqrl_error_at(r->err, code, "line %zu, column %zu",
                         r->event.start_mark.line + 1, r->event.start_mark.column + 1);
}

static int fail_here(struct reader *r, int code) {
    return sqrl_error_at(r->err, code, "line %zu, column %zu",
                         r->event.start_mark.line + 1, r->event.start_mark.column + 1);
}

/* libyaml's own errors, which carry their place. */
static int parser_error(struct reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return sqrl_error_set(r->err, SQRL_E_NO_MEMORY, "no memory for reading YAML");
    const char *problem = p->problem ? p->problem : "this is no YAML";
    if (p->error == YAML_READER_ERROR) {
        sqrl_error_set(r->err, SQRL_E_CORRUPT, "%s", problem);
        return sqrl_error_at(r->err, SQRL_E_CORRUPT, "byte %zu", p->problem_offset);
    }
    sqrl_error_set(r->err, SQRL_E_CORRUPT, "%s%s%s", p->context ? p->context : "",
                   p->context ? ": " : "", problem);
    return sqrl_error_at(r->err, SQRL_E_CORRUPT, "line %zu, column %zu",
                         p->problem_mark.line + 1, p->problem_mark.column + 1);
}

static int next_event(struct reader *r) {
    yaml_event_delete(&r->event);
    return yaml_parser_parse(&r->parser, &r->event) ? SQRL_OK : parser_error(r);
}

/* Gives libyaml the text, with a newline behind the last line. */
static int feed(void *arg, unsigned char *out, size_t room, size_t *given) {
    struct reader *r = arg;
    size_t size = SQRL_MIN(room, r->size - r->fed);
    memcpy(out, r->edges.text + r->fed, size);
    r->fed += size;
    if (!size && room && r->fed == r->size && r->size &&
        r->edges.text[r->size - 1] != '\n') {
        out[size++] = '\n';
        r->size = r->fed = 0;
    }
    *given = size;
    return 1;
}

static int64_t column_around(const struct reader *r) {
    return r->depth ? r->frame[r->depth - 1].column : -1;
}

/* The event of a block ends where its first entry begins, but that of a sequence right
 * under its key behind the first "-". */
static int64_t column_of_block(const struct reader *r, bool map) {
    bool behind = !map && r->end < r->edges.size && r->edges.text[r->end] != '-';
    return (int64_t)r->event.end_mark.column - behind;
}

/* Refuses what libyaml would read as something else, or at all; see above. */
static int check_edges(struct reader *r) {
    struct sqrl_yaml_edges *edges = &r->edges;
    const yaml_event_t *event = &r->event;
    const char *wrong = NULL, *other = NULL; /* no YAML; read as another value */
    bool flow = r->depth && r->frame[r->depth - 1].flow;
    r->begin = sqrl_yaml_byte_at(edges, event->start_mark.index);
    r->end = sqrl_yaml_byte_at(edges, event->end_mark.index);
    /* A document's event begins before its directives. */
    wrong = sqrl_yaml_check_gap(
        edges, event->type == YAML_DOCUMENT_START_EVENT ? r->end : r->begin);
    edges->seen = SQRL_MAX(edges->seen, r->end);
    unsigned char first = r->begin < edges->size ? edges->text[r->begin] : 0;
    if (event->type >= YAML_ALIAS_EVENT &&
        (first == '&' || (first == '*' && event->type == YAML_ALIAS_EVENT)))
        other = sqrl_yaml_check_name(edges, r->begin);
    if (!wrong && !other && event->type == YAML_SCALAR_EVENT) {
        yaml_scalar_style_t style = event->data.scalar.style;
        other = sqrl_yaml_check_mark(edges, r->begin);
        if (style == YAML_PLAIN_SCALAR_STYLE && flow)
            wrong = sqrl_yaml_check_dash(edges, r->begin, r->end);
        else if (style != YAML_LITERAL_SCALAR_STYLE && style != YAML_FOLDED_SCALAR_STYLE)
            wrong =
                sqrl_yaml_check_lines(edges, r->begin, r->end, column_around(r), false);
    }
    if (wrong)
        return fail(r, SQRL_E_CORRUPT, wrong);
    return other ? fail(r, SQRL_E_UNSUPPORTED, other) : SQRL_OK;
}

/* Room for `more` nodes and their marks, within the cap. */
static int reserve(struct reader *r, uint32_t more) {
    struct sqrl_yaml *out = r->out;
    if (more > SQRL_YAML_MAX_NODES - out->tape.count) {
        sqrl_error_set(r->err, SQRL_E_LIMIT,
                       "more than %d values (aliases count as often as they stand)",
                       SQRL_YAML_MAX_NODES);
        return fail_here(r, SQRL_E_LIMIT);
    }
    int code = sqrl_tape_reserve(&out->tape, more, r->err);
    if (code || out->mark_capacity >= out->tape.capacity)
        return code;
    struct sqrl_yaml_mark *mark =
        sqrl_realloc(out->mark, (size_t)out->tape.capacity * sizeof *mark,
                     "the lines of YAML", r->err);
    if (!mark)
        return SQRL_E_NO_MEMORY;
    out->mark = mark;
    out->mark_capacity = out->tape.capacity;
    return SQRL_OK;
}

/* Behind reserve(). */
static uint32_t push(struct reader *r, struct sqrl_node node) {
    struct sqrl_yaml *out = r->out;
    uint32_t index = out->tape.count++;
    out->tape.nodes[index] = node;
    out->mark[index] = (struct sqrl_yaml_mark){(uint32_t)r->event.start_mark.line + 1,
                                               (uint32_t)r->event.start_mark.column + 1};
    return index;
}

/* --- anchors --- */
struct name_in {
    const struct reader *reader;
    const char *name;
};

static bool same_anchor(const void *arg, uint32_t index) {
    const struct name_in *in = arg;
    return strcmp(in->reader->anchor[index].name, in->name) == 0;
}

static uint32_t find_anchor(const struct reader *r, const char *name) {
    struct name_in in = {r, name};
    return sqrl_table_find(&r->anchor_table, sqrl_xxh3(name, strlen(name)), same_anchor,
                           &in);
}

/* Begins an anchor at `node`. A name that is used again means the new node from here on.
 */
static int begin_anchor(struct reader *r, const yaml_char_t *given, uint32_t node,
                        uint32_t *out) {
    const char *name = (const char *)given;
    *out = NO_ANCHOR;
    if (!name)
        return SQRL_OK;
    if (r->anchors == r->anchor_capacity) {
        uint32_t capacity = r->anchor_capacity ? 2 * r->anchor_capacity : 16;
        struct anchor *more =
            sqrl_realloc(r->anchor, capacity * sizeof *more, "anchors", r->err);
        if (!more)
            return SQRL_E_NO_MEMORY;
        r->anchor = more;
        r->anchor_capacity = capacity;
    }
    int code = sqrl_table_reserve(&r->anchor_table, 1, r->err);
    char *copy = code ? NULL : sqrl_strdup(name, r->err);
    if (!copy)
        return code ? code : SQRL_E_NO_MEMORY;
    uint64_t hash = sqrl_xxh3(name, strlen(name));
    uint32_t old = find_anchor(r, name);
    r->anchor[r->anchors] = (struct anchor){copy, node, 0};
    if (old == SQRL_TABLE_NONE)
        sqrl_table_add(&r->anchor_table, hash, r->anchors);
    else
        sqrl_table_replace(&r->anchor_table, hash, old, r->anchors);
    *out = r->anchors++;
    return SQRL_OK;
}

static void end_anchor(struct reader *r, uint32_t anchor) {
    if (anchor != NO_ANCHOR)
        r->anchor[anchor].end = r->out->tape.count;
}

static int copy_range(struct reader *r, const struct anchor *from) {
    struct sqrl_yaml *out = r->out;
    uint32_t begin = from->begin, size = from->end - begin, to = out->tape.count;
    int code = reserve(r, size);
    if (code)
        return code;
    memcpy(out->tape.nodes + to, out->tape.nodes + begin, size * sizeof *out->tape.nodes);
    memcpy(out->mark + to, out->mark + begin, size * sizeof *out->mark);
    for (uint32_t i = to; i < to + size; i++)
        if (out->tape.nodes[i].type >= SQRL_ARRAY)
            out->tape.nodes[i].v.next += to - begin;
    out->tape.count += size;
    return SQRL_OK;
}

/* --- the structure around a node --- */
static bool wants_key(const struct reader *r) {
    return r->depth && r->frame[r->depth - 1].map &&
           r->frame[r->depth - 1].children % 2 == 0;
}

static void node_done(struct reader *r) {
    if (r->depth)
        r->frame[r->depth - 1].children++;
    else
        r->finished = true;
}

static int on_alias(struct reader *r) {
    const char *name = (const char *)r->event.data.alias.anchor;
    uint32_t found = find_anchor(r, name);
    if (found == SQRL_TABLE_NONE) {
        sqrl_error_set(r->err, SQRL_E_CORRUPT, "there is no anchor &%.60s before this",
                       name);
        return fail_here(r, SQRL_E_CORRUPT);
    }
    const struct anchor *anchor = &r->anchor[found];
    if (!anchor->end) {
        sqrl_error_set(r->err, SQRL_E_UNSUPPORTED,
                       "*%.60s stands within its own anchor: a value can't hold itself",
                       name);
        return fail_here(r, SQRL_E_UNSUPPORTED);
    }
    if (wants_key(r) && r->out->tape.nodes[anchor->begin].type >= SQRL_ARRAY)
        return fail(r, SQRL_E_UNSUPPORTED, "a map or a sequence can't be a key");
    int code = copy_range(r, anchor);
    if (code == SQRL_OK)
        node_done(r);
    return code;
}

static int refuse_tag(struct reader *r, const yaml_char_t *tag) {
    sqrl_error_set(r->err, SQRL_E_UNSUPPORTED,
                   "the tag %.80s is not allowed here; a catalog has !YamlCatalog, "
                   "!YamlSource and !CatalogKey, each in its place",
                   (const char *)tag);
    return fail_here(r, SQRL_E_UNSUPPORTED);
}

static int put_text(struct reader *r, struct sqrl_node *node) {
    const void *text = r->event.data.scalar.value;
    size_t size = r->event.data.scalar.length;
    bool ascii = false;
    sqrl_utf8_valid(text, size, &ascii); /* valid it is: libyaml checks */
    *node = (struct sqrl_node){.type = SQRL_STRING,
                               .flags = ascii ? SQRL_NODE_ASCII : 0,
                               .size = (uint32_t)size,
                               .v.offset = r->out->text.size};
    return sqrl_bytes_append(&r->out->text, text, size, r->err);
}

static int on_scalar(struct reader *r) {
    const char *text = (const char *)r->event.data.scalar.value;
    size_t size = r->event.data.scalar.length;
    bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    struct sqrl_node node = {.type = SQRL_STRING};
    uint32_t anchor;
    int code = SQRL_OK;
    if (r->event.data.scalar.tag)
        return refuse_tag(r, r->event.data.scalar.tag);
    if (wants_key(r) && plain && size == 2 && memcmp(text, "<<", 2) == 0)
        return fail(r, SQRL_E_UNSUPPORTED,
                    "merge keys (<<) are not allowed; write the keys out");
    if (plain && (code = sqrl_yaml_resolve(text, size, &node, r->err)))
        return fail_here(r, code);
    bool time = node.type == SQRL_EXT;
    code = reserve(r, 1);
    if (code == SQRL_OK && (time || node.type == SQRL_STRING))
        code = put_text(r, &node);
    if (time && !wants_key(r)) { /* keys are texts */
        node.type = SQRL_EXT;
        node.aux = SQRL_CATALOG_TIME_EXT + 128;
    }
    if (code == SQRL_OK)
        code = begin_anchor(r, r->event.data.scalar.anchor, push(r, node), &anchor);
    if (code)
        return code;
    end_anchor(r, anchor);
    node_done(r);
    return SQRL_OK;
}

/* The tags that squirrel-core writes, where it writes them. */
static bool tag_allowed(const struct reader *r, const char *tag, bool map, bool *key) {
    *key = !map && strcmp(tag, "!CatalogKey") == 0;
    if (!map)
        return *key;
    return (r->depth == 0 && strcmp(tag, "!YamlCatalog") == 0) ||
           (r->depth == 2 && !r->frame[1].map && strcmp(tag, "!YamlSource") == 0);
}

static int on_container(struct reader *r, bool map) {
    const yaml_char_t *tag =
        map ? r->event.data.mapping_start.tag : r->event.data.sequence_start.tag;
    const yaml_char_t *name =
        map ? r->event.data.mapping_start.anchor : r->event.data.sequence_start.anchor;
    bool flow = map ? r->event.data.mapping_start.style == YAML_FLOW_MAPPING_STYLE
                    : r->event.data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    struct frame frame = {.map = map, .flow = flow, .begin = r->begin};
    frame.column = flow ? column_around(r) : column_of_block(r, map);
    if (wants_key(r))
        return fail(r, SQRL_E_UNSUPPORTED, "a map or a sequence can't be a key");
    if (tag && !tag_allowed(r, (const char *)tag, map, &frame.key))
        return refuse_tag(r, tag);
    if (r->depth == SQRL_YAML_MAX_DEPTH) {
        sqrl_error_set(r->err, SQRL_E_LIMIT, "nested deeper than %d levels",
                       SQRL_YAML_MAX_DEPTH);
        return fail_here(r, SQRL_E_LIMIT);
    }
    int code = reserve(r, 1);
    if (code)
        return code;
    frame.node =
        push(r, (struct sqrl_node){.type = (uint8_t)(map ? SQRL_MAP : SQRL_ARRAY)});
    code = begin_anchor(r, name, frame.node, &frame.anchor);
    if (code == SQRL_OK)
        r->frame[r->depth++] = frame;
    return code;
}

/* What is wrong with a map whose pairs are there: a key that stands in it twice. */
static int check_keys(struct reader *r, uint32_t map) {
    const struct sqrl_node *nodes = r->out->tape.nodes;
    const uint8_t *bytes = r->out->text.data;
    uint32_t found, first;
    int code = sqrl_keys_duplicate(nodes, map, r->out->tape.count, bytes, &found, &first,
                                   r->err);
    if (code || found == SQRL_TABLE_NONE)
        return code;
    struct sqrl_node n = nodes[found];
    const char *text =
        n.type == SQRL_STRING ? (const char *)bytes + n.v.offset : "(a number)";
    int size = n.type == SQRL_STRING ? (int)SQRL_MIN(n.size, 60u) : (int)strlen(text);
    return sqrl_yaml_error(r->out, found, r->err, SQRL_E_CORRUPT,
                           "the key %.*s stands in this map already, in line %u", size,
                           text, r->out->mark[first].line);
}

/* A finished !CatalogKey sequence becomes one EXT node. */
static int fold_key(struct reader *r, uint32_t node) {
    struct sqrl_yaml *out = r->out;
    const struct sqrl_node *n = out->tape.nodes + node;
    struct sqrl_bytes packed = {0};
    if (n->size != 2 || n[1].type != SQRL_STRING || n[2].type != SQRL_INT)
        return sqrl_yaml_error(out, node, r->err, SQRL_E_CORRUPT,
                               "a !CatalogKey is a name and a version: [name, 1]");
    int code =
        sqrl_msgpack_encode(&packed, out->tape.nodes, node, out->text.data, r->err);
    struct sqrl_node ext = {.type = SQRL_EXT,
                            .aux = SQRL_CATALOG_KEY_EXT + 128,
                            .size = (uint32_t)packed.size,
                            .v.offset = out->text.size};
    if (code == SQRL_OK)
        code = sqrl_bytes_append(&out->text, packed.data, packed.size, r->err);
    if (code == SQRL_OK) {
        out->tape.nodes[node] = ext;
        out->tape.count = node + 1;
    }
    sqrl_bytes_reset(&packed);
    return code;
}

static int on_end(struct reader *r) {
    struct frame frame = r->frame[--r->depth];
    struct sqrl_node *node = &r->out->tape.nodes[frame.node];
    int code = SQRL_OK;
    if (frame.flow && !(r->depth && r->frame[r->depth - 1].flow)) {
        const char *wrong =
            sqrl_yaml_check_lines(&r->edges, frame.begin, r->end, frame.column, true);
        if (wrong)
            return fail(r, SQRL_E_CORRUPT, wrong);
    }
    node->size = frame.map ? frame.children / 2 : frame.children;
    node->v.next = r->out->tape.count;
    if (frame.map)
        code = check_keys(r, frame.node);
    else if (frame.key)
        code = fold_key(r, frame.node);
    if (code)
        return code;
    end_anchor(r, frame.anchor);
    node_done(r);
    return SQRL_OK;
}

static int on_event(struct reader *r) {
    switch (r->event.type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->finished ? fail(r, SQRL_E_UNSUPPORTED,
                                  "a second document begins here; a file holds one")
                           : SQRL_OK;
    case YAML_ALIAS_EVENT:
        return on_alias(r);
    case YAML_SCALAR_EVENT:
        return on_scalar(r);
    case YAML_SEQUENCE_START_EVENT:
        return on_container(r, false);
    case YAML_MAPPING_START_EVENT:
        return on_container(r, true);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_end(r);
    default:
        return SQRL_OK;
    }
}

static int read_events(struct reader *r) {
    int code;
    do {
        code = next_event(r);
        if (code == SQRL_OK)
            code = check_edges(r);
        if (code == SQRL_OK)
            code = on_event(r);
    } while (code == SQRL_OK && r->event.type != YAML_STREAM_END_EVENT);
    if (code == SQRL_OK && !r->finished)
        code = sqrl_error_set(r->err, SQRL_E_TRUNCATED, "there is no document in it");
    return code;
}

int sqrl_yaml_read(struct sqrl_yaml *out, const char *text, size_t size,
                   struct sqrl_error *err) {
    sqrl_yaml_reset(out);
    if (size > SQRL_YAML_MAX_BYTES)
        return sqrl_error_set(err, SQRL_E_LIMIT, "%zu bytes of YAML; at most %d are read",
                              size, SQRL_YAML_MAX_BYTES);
    struct reader *r = sqrl_calloc(1, sizeof *r, "a YAML reader", err);
    if (!r)
        return SQRL_E_NO_MEMORY;
    r->edges =
        (struct sqrl_yaml_edges){.text = (const unsigned char *)text, .size = size};
    r->size = size;
    r->out = out;
    r->err = err;
    int code;
    if (yaml_parser_initialize(&r->parser)) {
        yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input(&r->parser, feed, r);
        code = read_events(r);
        yaml_event_delete(&r->event);
        yaml_parser_delete(&r->parser);
    } else {
        code = sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for reading YAML");
    }
    for (uint32_t i = 0; i < r->anchors; i++)
        free(r->anchor[i].name);
    free(r->anchor);
    sqrl_table_reset(&r->anchor_table);
    free(r);
    if (code)
        sqrl_yaml_reset(out);
    return code;
}
