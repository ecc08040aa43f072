/* yaml_write.c - values as block-style YAML, laid out as squirrel-core lays it out.
 *
 * Texts stand plain only where YAML 1.1 and 1.2 readers alike take them as texts; all
 * others are double-quoted, in one line. */
#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "catalog/yaml.h"
#include "sqrl/catalog.h"

enum { MAX_SIMPLE_KEY = 100 };

struct writer {
    struct sqrl_bytes *out;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    struct sqrl_error *err;
};

/* A container that is being written. */
struct level {
    uint32_t end;
    unsigned indent; /* of its lines */
    bool map, value; /* in a map: a value comes next */
    bool behind;     /* its first line continues the line of a "-" */
    bool long_key;   /* the key before was written as "? key" */
};

static int put(struct writer *w, const char *text) {
    return sqrl_bytes_append(w->out, text, strlen(text), w->err);
}

static int put_indent(struct writer *w, unsigned indent) {
    int code = sqrl_bytes_reserve(w->out, indent, w->err);
    if (code)
        return code;
    memset(w->out->data + w->out->size, ' ', indent);
    w->out->size += indent;
    return SQRL_OK;
}

/* --- texts --- */
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Words that some version of YAML takes for something else. */
static bool is_word(const char *text, size_t size) {
    static const char *const words[] = {"y",  "n",   "yes",  "no",   "true",
                                        "on", "off", "null", "false"};
    for (size_t i = 0; i < SQRL_COUNT_OF(words); i++)
        if (strlen(words[i]) == size && strncasecmp(words[i], text, size) == 0)
            return true;
    return false;
}

static bool is_plain(const char *text, size_t size) {
    if (!size || !(is_letter(*text) || *text == '/' || *text == '_') ||
        is_word(text, size))
        return false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i], next = i + 1 < size ? text[i + 1] : ' ';
        bool safe = is_letter(c) || (c >= '0' && c <= '9') ||
                    (c && strchr("_./-+@%=~()$;", c)) ||
                    ((c == ':' || c == ' ') && next != ' ');
        if (!safe)
            return false;
    }
    return true;
}

/* How many bytes at `p` go into a quoted text as they are; 0: the character has to be
 * escaped, *code is its number and *used its size. `p` is valid UTF-8. */
static size_t literal(const uint8_t *p, uint32_t *code, size_t *used) {
    uint32_t c = *p;
    size_t size = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (size > 1) {
        c &= 0x7fu >> size;
        for (size_t i = 1; i < size; i++)
            c = c << 6 | (p[i] & 0x3f);
    }
    *code = c;
    *used = size;
    bool escape = c < 0x20 || c == '"' || c == '\\' || (c >= 0x7f && c < 0xa0) ||
                  c == 0x2028 || c == 0x2029 || c == 0xfeff || (c & 0xfffe) == 0xfffe;
    return escape ? 0 : size;
}

static int put_escape(struct sqrl_bytes *out, uint32_t c, struct sqrl_error *err) {
    char text[16];
    if (c == '"' || c == '\\')
        snprintf(text, sizeof text, "\\%c", (char)c);
    else if (c == '\n' || c == '\t')
        snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : 't');
    else if (c < 0x100)
        snprintf(text, sizeof text, "\\x%02X", (unsigned)c);
    else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04X", (unsigned)c);
    else
        snprintf(text, sizeof text, "\\U%08X", (unsigned)c);
    return sqrl_bytes_append(out, text, strlen(text), err);
}

int sqrl_yaml_write_text(struct sqrl_bytes *out, const char *text, size_t size,
                         struct sqrl_error *err) {
    if (is_plain(text, size))
        return sqrl_bytes_append(out, text, size, err);
    const uint8_t *p = (const uint8_t *)text;
    if (!sqrl_utf8_valid(p, size, NULL))
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED, "a text that is not UTF-8");
    int code = sqrl_bytes_append(out, "\"", 1, err);
    for (size_t at = 0, used; at < size && code == SQRL_OK;) {
        size_t begin = at;
        uint32_t c = 0;
        while (at < size && literal(p + at, &c, &used))
            at += used;
        code = sqrl_bytes_append(out, p + begin, at - begin, err);
        if (code == SQRL_OK && at < size) {
            code = put_escape(out, c, err);
            at += used;
        }
    }
    return code ? code : sqrl_bytes_append(out, "\"", 1, err);
}

/* --- scalars --- */
/* The shortest form that reads back equal; YAML 1.1 wants a point in a power of ten. */
static int put_float(struct writer *w, double f) {
    if (isnan(f))
        return put(w, ".nan");
    if (isinf(f))
        return put(w, f < 0 ? "-.inf" : ".inf");
    struct sqrl_node node = {.type = SQRL_FLOAT, .v.f = f};
    struct sqrl_bytes text = {0};
    int code = sqrl_json_encode(&text, &node, 0, NULL, w->err);
    const uint8_t *e = text.size ? memchr(text.data, 'e', text.size) : NULL;
    bool point = text.size && memchr(text.data, '.', text.size);
    size_t head = e ? (size_t)(e - text.data) : text.size;
    if (code == SQRL_OK)
        code = sqrl_bytes_append(w->out, text.data, head, w->err);
    if (code == SQRL_OK && !point)
        code = put(w, ".0");
    if (code == SQRL_OK)
        code = sqrl_bytes_append(w->out, text.data + head, text.size - head, w->err);
    sqrl_bytes_reset(&text);
    return code;
}

int sqrl_catalog_key_decode(const struct sqrl_node *ext, const uint8_t *bytes,
                            struct sqrl_tape *tape, const uint8_t **packed,
                            struct sqrl_error *err) {
    size_t offset = 0;
    *packed = bytes + ext->v.offset;
    int code = sqrl_msgpack_decode(tape, *packed, ext->size, &offset, NULL, err);
    if (code == SQRL_OK &&
        (tape->count != 3 || tape->nodes[0].type != SQRL_ARRAY ||
         tape->nodes[1].type != SQRL_STRING || tape->nodes[2].type != SQRL_INT))
        code =
            sqrl_error_set(err, SQRL_E_CORRUPT, "a catalog key is not [name, version]");
    return code;
}

static int put_key(struct writer *w, const struct sqrl_node *n) {
    struct sqrl_tape tape = {0};
    const uint8_t *packed;
    char version[32];
    int code = sqrl_catalog_key_decode(n, w->bytes, &tape, &packed, w->err);
    if (code == SQRL_OK)
        code = put(w, "!CatalogKey [");
    if (code == SQRL_OK)
        code = sqrl_yaml_write_text(w->out, (const char *)packed + tape.nodes[1].v.offset,
                                    tape.nodes[1].size, w->err);
    if (code == SQRL_OK) {
        snprintf(version, sizeof version, ", %lld]", (long long)tape.nodes[2].v.i);
        code = put(w, version);
    }
    sqrl_tape_reset(&tape);
    return code;
}

static int put_time(struct writer *w, const struct sqrl_node *n) {
    char text[SQRL_CATALOG_TIME_BYTES];
    size_t size = sqrl_catalog_time((const char *)w->bytes + n->v.offset, n->size, text);
    return size ? sqrl_bytes_append(w->out, text, size, w->err)
                : sqrl_error_set(w->err, SQRL_E_UNSUPPORTED,
                                 "a date or time that YAML does not know");
}

static int put_scalar(struct writer *w, const struct sqrl_node *n) {
    char number[32];
    switch (n->type) {
    case SQRL_NULL:
        return put(w, "null");
    case SQRL_BOOL:
        return put(w, n->v.u ? "true" : "false");
    case SQRL_INT:
        snprintf(number, sizeof number, "%lld", (long long)n->v.i);
        return put(w, number);
    case SQRL_UINT:
        snprintf(number, sizeof number, "%llu", (unsigned long long)n->v.u);
        return put(w, number);
    case SQRL_FLOAT:
        return put_float(w, n->v.f);
    case SQRL_STRING:
        return sqrl_yaml_write_text(w->out, (const char *)w->bytes + n->v.offset, n->size,
                                    w->err);
    case SQRL_ARRAY:
        return put(w, "[]");
    case SQRL_MAP:
        return put(w, "{}");
    case SQRL_EXT:
        if (n->aux == SQRL_CATALOG_KEY_EXT + 128)
            return put_key(w, n);
        if (n->aux == SQRL_CATALOG_TIME_EXT + 128)
            return put_time(w, n);
        break;
    default:
        break;
    }
    return sqrl_error_set(w->err, SQRL_E_UNSUPPORTED,
                          "a catalog holds texts, numbers, booleans, nulls, lists and "
                          "maps; no binaries, arrays or extensions");
}

/* --- the layout --- */
/* "key:" in a line of its own level; a long one as "? key" and ":". */
static int write_key(struct writer *w, struct level *level, uint32_t node) {
    const struct sqrl_node *n = &w->nodes[node];
    if (n->type >= SQRL_BINARY)
        return sqrl_error_set(
            w->err, SQRL_E_UNSUPPORTED,
            "a key of a catalog is a text, a number, a boolean or null");
    level->long_key = n->type == SQRL_STRING && n->size > MAX_SIMPLE_KEY;
    int code = level->behind ? SQRL_OK : put_indent(w, level->indent);
    level->behind = false;
    if (code == SQRL_OK && level->long_key)
        code = put(w, "? ");
    if (code == SQRL_OK)
        code = put_scalar(w, n);
    if (code == SQRL_OK && level->long_key && (code = put(w, "\n")) == SQRL_OK)
        code = put_indent(w, level->indent);
    return code ? code : put(w, ":");
}

static bool opens(const struct sqrl_node *n) {
    return (n->type == SQRL_ARRAY || n->type == SQRL_MAP) && n->size;
}

/* The value behind a key or a "-": a scalar ends the line; a container begins lines. */
static int write_value(struct writer *w, struct level *level, uint32_t node) {
    int code = SQRL_OK;
    if (!level->map) {
        code = level->behind ? SQRL_OK : put_indent(w, level->indent);
        level->behind = false;
        if (code == SQRL_OK)
            code = put(w, "-");
    }
    if (code)
        return code;
    if (opens(&w->nodes[node]))
        return put(w, level->map ? "\n" : " ");
    code = put(w, " ");
    if (code == SQRL_OK)
        code = put_scalar(w, &w->nodes[node]);
    return code ? code : put(w, "\n");
}

/* A container's lines: those of a sequence stand right under its key. */
static struct level level_of(const struct writer *w, const struct level *outer,
                             uint32_t node) {
    const struct sqrl_node *n = &w->nodes[node];
    bool flush = outer->map && n->type == SQRL_ARRAY && !outer->long_key;
    return (struct level){.end = (uint32_t)n->v.next,
                          .indent = outer->indent + (flush ? 0 : 2),
                          .map = n->type == SQRL_MAP,
                          .behind = !outer->map};
}

static int write_nodes(struct writer *w, uint32_t node, struct level *stack) {
    uint32_t depth = 1, end = stack[0].end;
    while (node < end) {
        struct level *level = &stack[depth - 1];
        bool key = level->map && !level->value;
        int code = key ? write_key(w, level, node) : write_value(w, level, node);
        if (code)
            return code;
        if (level->map)
            level->value = key;
        if (!key && opens(&w->nodes[node])) {
            if (depth == SQRL_YAML_MAX_DEPTH)
                return sqrl_error_set(w->err, SQRL_E_LIMIT,
                                      "nested deeper than %d levels",
                                      SQRL_YAML_MAX_DEPTH);
            stack[depth++] = level_of(w, level, node);
            node++;
        } else {
            node = sqrl_node_next(w->nodes, node);
        }
        while (depth && stack[depth - 1].end == node)
            depth--;
    }
    return SQRL_OK;
}

int sqrl_yaml_write(struct sqrl_bytes *out, const struct sqrl_node *nodes, uint32_t node,
                    const uint8_t *bytes, unsigned indent, struct sqrl_error *err) {
    struct writer w = {out, nodes, bytes, err};
    struct level stack[SQRL_YAML_MAX_DEPTH];
    const struct sqrl_node *n = &nodes[node];
    int code = put(&w, opens(n) ? "\n" : " ");
    if (code)
        return code;
    if (!opens(n)) {
        code = put_scalar(&w, n);
        return code ? code : put(&w, "\n");
    }
    stack[0] = (struct level){
        .end = (uint32_t)n->v.next, .indent = indent, .map = n->type == SQRL_MAP};
    return write_nodes(&w, node + 1, stack);
}
