/* projection.c - see projection.h.
 *
 * Two views of the same stages: on names alone (columns and filters are resolved once),
 * and on one sample (dict mode), where a map is taken apart only along the paths that are
 * asked for. Names that exist only in data and get a prefix are interned: they must live
 * as long as the plan. Their number is limited; beyond it a field keeps its bare key.
 */
#include "stream/projection.h"

#include <stdlib.h>

#define MAX_INTERNED (1u << 16)
#define LOCAL_FIELDS 64u

struct interned {
    struct interned *next;
    uint32_t size;
    char text[];
};

struct sqrl_projection {
    const struct sqrl_projection *before;
    enum sqrl_name_stage stage;
    size_t count;
    struct sqrl_path *path; /* [count] */
    char **to;              /* rename: [count] */
    struct sqrl_lock lock;  /* guards what follows */
    struct interned *bucket[256];
    uint32_t interned;
};

/* --- paths --- */

/* A backslash in front of a dot or a backslash. */
static bool is_escape(const char *s) {
    return *s == '\\' && (s[1] == '.' || s[1] == '\\');
}

int sqrl_path_parse(struct sqrl_path *path, const char *text, struct sqrl_error *err) {
    memset(path, 0, sizeof *path);
    size_t size = strlen(text), keys = 1;
    for (const char *s = text; *s; s++) {
        keys += *s == '.';
        s += is_escape(s);
    }
    if (!size || keys > SQRL_MAX_PATH_KEYS)
        return sqrl_error_set(err, size ? SQRL_E_LIMIT : SQRL_E_INVALID,
                              size ? "field name \"%.80s...\" has more than 64 parts"
                                   : "a field name is empty%s",
                              size ? text : "");
    path->text = sqrl_strdup(text, err);
    path->keys = sqrl_malloc(size + 1, "field name", err);
    path->key = sqrl_calloc(keys, sizeof *path->key, "field name", err);
    if (!path->text || !path->keys || !path->key) {
        sqrl_path_reset(path);
        return SQRL_E_NO_MEMORY;
    }
    char *to = path->keys, *begin = to;
    for (const char *s = text;; s++) {
        if (*s && *s != '.') {
            s += is_escape(s);
            *to++ = *s;
            continue;
        }
        path->key[path->count].name = begin;
        path->key[path->count++].size = (uint32_t)(to - begin);
        begin = to;
        if (!*s)
            return SQRL_OK;
    }
}

void sqrl_path_reset(struct sqrl_path *path) {
    free(path->text);
    free(path->keys);
    free(path->key);
    memset(path, 0, sizeof *path);
}

uint32_t sqrl_path_find(const struct sqrl_path *path, uint32_t from,
                        const struct sqrl_node *nodes, uint32_t node,
                        const uint8_t *bytes) {
    for (uint32_t k = from; k < path->count && node != SQRL_NO_NODE; k++)
        node = sqrl_map_find(nodes, node, bytes, path->key[k].name, path->key[k].size);
    return node;
}

bool sqrl_name_covers(const char *path, const char *name) {
    size_t size = strlen(path);
    return strncmp(path, name, size) == 0 && (!name[size] || name[size] == '.');
}

/* --- building --- */

static int check_names(enum sqrl_name_stage stage, const char *const *names,
                       const char *const *to, size_t count, struct sqrl_error *err) {
    static const char *const VERB[] = {"select", "drop", "rename"};
    if (!count || count > SQRL_MAX_FIELDS)
        return sqrl_error_set(err, count ? SQRL_E_LIMIT : SQRL_E_INVALID,
                              "%s: %zu names were given; 1 to %u are possible",
                              VERB[stage], count, SQRL_MAX_FIELDS);
    for (size_t i = 0; i < count; i++) {
        if (!names[i] || !*names[i] || (to && (!to[i] || !*to[i])))
            return sqrl_error_set(err, SQRL_E_INVALID, "%s: name %zu is empty",
                                  VERB[stage], i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0 || (to && strcmp(to[i], to[k]) == 0))
                return sqrl_error_set(err, SQRL_E_INVALID, "%s: \"%s\" is named twice",
                                      VERB[stage],
                                      strcmp(names[i], names[k]) ? to[i] : names[i]);
    }
    return SQRL_OK;
}

int sqrl_projection_new(const struct sqrl_projection *before, enum sqrl_name_stage stage,
                        const char *const *names, const char *const *to, size_t count,
                        struct sqrl_projection **out, struct sqrl_error *err) {
    *out = NULL;
    int code = check_names(stage, names, to, count, err);
    if (code)
        return code;
    struct sqrl_projection *p = sqrl_calloc(1, sizeof *p, "projection", err);
    if (!p)
        return SQRL_E_NO_MEMORY;
    sqrl_lock_init(&p->lock);
    p->before = before;
    p->stage = stage;
    p->path = sqrl_calloc(count, sizeof *p->path, "projection", err);
    p->to = to ? sqrl_calloc(count, sizeof *p->to, "projection", err) : NULL;
    code = p->path && (p->to || !to) ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count && !code; i++) {
        code = sqrl_path_parse(&p->path[i], names[i], err);
        p->count = i + 1;
        if (!code && to && !(p->to[i] = sqrl_strdup(to[i], err)))
            code = SQRL_E_NO_MEMORY;
    }
    if (code)
        sqrl_projection_free(p);
    else
        *out = p;
    return code;
}

void sqrl_projection_free(struct sqrl_projection *p) {
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++) {
        sqrl_path_reset(&p->path[i]);
        if (p->to)
            free(p->to[i]);
    }
    for (size_t b = 0; b < SQRL_COUNT_OF(p->bucket); b++) {
        for (struct interned *e = p->bucket[b], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    }
    sqrl_lock_reset(&p->lock);
    free(p->path);
    free(p->to);
    free(p);
}

size_t sqrl_projection_names(const struct sqrl_projection *p,
                             enum sqrl_name_stage *stage) {
    *stage = p->stage;
    return p->count;
}
const char *sqrl_projection_name(const struct sqrl_projection *p, size_t i, bool to) {
    return to ? p->to[i] : p->path[i].text;
}

/* --- names alone --- */

/* What `name` was in front of one stage; NULL without an error when it can't be. */
static char *name_before(const struct sqrl_projection *p, const char *name, bool *failed,
                         struct sqrl_error *err) {
    char *result = NULL;
    bool covered = false;
    for (size_t i = 0; i < p->count; i++) {
        const char *from = p->path[i].text;
        if (p->stage == SQRL_NAMES_RENAME) {
            if (sqrl_name_covers(p->to[i], name)) {
                result = sqrl_format(err, "%s%s", from, name + strlen(p->to[i]));
                *failed = !result;
                return result;
            }
            covered |= sqrl_name_covers(from, name) || sqrl_name_covers(name, from);
        } else if (p->stage == SQRL_NAMES_SELECT) {
            covered |= sqrl_name_covers(from, name);
        } else { /* a dropped name, or a map that was taken apart for one */
            covered |= sqrl_name_covers(from, name) || sqrl_name_covers(name, from);
        }
    }
    if (covered == (p->stage == SQRL_NAMES_SELECT)) {
        result = sqrl_strdup(name, err);
        *failed = !result;
    }
    return result;
}

int sqrl_projection_origin(const struct sqrl_projection *projection, const char *name,
                           char **out, struct sqrl_error *err) {
    bool failed = false;
    *out = NULL;
    char *now = sqrl_strdup(name, err);
    if (!now)
        return SQRL_E_NO_MEMORY;
    for (const struct sqrl_projection *p = projection; p && now; p = p->before) {
        char *before = name_before(p, now, &failed, err);
        free(now);
        now = before;
    }
    *out = now;
    return failed ? SQRL_E_NO_MEMORY : SQRL_OK;
}

void sqrl_name_map_reset(struct sqrl_name_map *map) {
    for (size_t i = 0; i < map->count; i++) {
        free(map->pair[i].out);
        free(map->pair[i].origin);
    }
    free(map->pair);
    memset(map, 0, sizeof *map);
}

static int map_push(struct sqrl_name_map *map, char *out, char *origin, uint32_t tag,
                    struct sqrl_error *err) {
    if (map->count == map->capacity) {
        size_t room = map->capacity ? map->capacity * 2 : 16;
        void *grown = sqrl_realloc(map->pair, room * sizeof *map->pair, "fields", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        map->pair = grown;
        map->capacity = room;
    }
    map->pair[map->count++] = (struct sqrl_name_pair){out, origin, tag};
    return SQRL_OK;
}

int sqrl_name_map_add(struct sqrl_name_map *map, const char *name, uint32_t tag,
                      struct sqrl_error *err) {
    char *out = sqrl_strdup(name, err), *origin = sqrl_strdup(name, err);
    int code = out && origin ? map_push(map, out, origin, tag, err) : SQRL_E_NO_MEMORY;
    if (code) {
        free(out);
        free(origin);
    }
    return code;
}

/* Moves an entry of `from` into `to`; its names belong to `to` then. */
static int map_move(struct sqrl_name_map *from, size_t i, struct sqrl_name_map *to,
                    struct sqrl_error *err) {
    struct sqrl_name_pair *e = &from->pair[i];
    int code = map_push(to, e->out, e->origin, e->tag, err);
    if (!code)
        e->out = e->origin = NULL;
    return code;
}

static int map_select(const struct sqrl_projection *p, struct sqrl_name_map *map,
                      struct sqrl_name_map *to, struct sqrl_error *err) {
    int code = SQRL_OK;
    for (size_t n = 0; n < p->count && !code; n++)
        for (size_t i = 0; i < map->count && !code; i++)
            if (map->pair[i].out && sqrl_name_covers(p->path[n].text, map->pair[i].out))
                code = map_move(map, i, to, err);
    return code;
}

static int map_change(const struct sqrl_projection *p, struct sqrl_name_map *map,
                      struct sqrl_name_map *to, struct sqrl_error *err) {
    int code = SQRL_OK;
    for (size_t i = 0; i < map->count && !code; i++) {
        struct sqrl_name_pair *e = &map->pair[i];
        size_t n = 0;
        while (n < p->count && !sqrl_name_covers(p->path[n].text, e->out))
            n++;
        if (n < p->count && p->stage == SQRL_NAMES_DROP)
            continue;
        if (n < p->count) {
            char *name =
                sqrl_format(err, "%s%s", p->to[n], e->out + strlen(p->path[n].text));
            if (!name)
                return SQRL_E_NO_MEMORY;
            free(e->out);
            e->out = name;
        }
        code = map_move(map, i, to, err);
    }
    return code;
}

int sqrl_projection_map(const struct sqrl_projection *projection,
                        struct sqrl_name_map *map, struct sqrl_error *err) {
    const struct sqrl_projection *chain[256];
    size_t stages = 0;
    for (const struct sqrl_projection *p = projection; p; p = p->before) {
        if (stages == SQRL_COUNT_OF(chain))
            return sqrl_error_set(err, SQRL_E_LIMIT,
                                  "more than 256 select, drop and rename stages");
        chain[stages++] = p;
    }
    int code = SQRL_OK;
    while (stages && !code) {
        const struct sqrl_projection *p = chain[--stages];
        struct sqrl_name_map to = {0};
        code = p->stage == SQRL_NAMES_SELECT ? map_select(p, map, &to, err)
                                             : map_change(p, map, &to, err);
        sqrl_name_map_reset(map);
        *map = to;
    }
    return code;
}

/* --- one sample --- */

/* A field on its way through the stages. A raw key is compared key by key, a dotted name
 * (made by an earlier stage) as text. */
struct live {
    struct sqrl_field_ref ref;
    bool dotted;
};
struct live_list {
    struct live *item;
    size_t count, capacity;
    struct live local[LOCAL_FIELDS];
};

static void list_init(struct live_list *list) {
    list->item = list->local;
    list->count = 0;
    list->capacity = LOCAL_FIELDS;
}
static void list_free(struct live_list *list) {
    if (list->item != list->local)
        free(list->item);
}
/* Out of memory drops the field: the caller sees fewer, as its interface has no error. */
static void list_add(struct live_list *list, const char *name, uint32_t size,
                     uint32_t node, bool dotted) {
    if (list->count == list->capacity) {
        struct live *grown = malloc(2 * list->capacity * sizeof *grown);
        if (!grown)
            return;
        memcpy(grown, list->item, list->count * sizeof *grown);
        list_free(list);
        list->item = grown;
        list->capacity *= 2;
    }
    list->item[list->count++] = (struct live){{name, size, node}, dotted};
}

/* How many keys of `path` the field's name takes up; 0 when it does not lead there. */
static uint32_t matched_keys(const struct live *field, const struct sqrl_path *path) {
    if (!field->dotted)
        return field->ref.name_size == path->key[0].size &&
               !memcmp(field->ref.name, path->key[0].name, path->key[0].size);
    size_t size = field->ref.name_size;
    if (strncmp(path->text, field->ref.name, size) ||
        (path->text[size] && path->text[size] != '.'))
        return 0;
    uint32_t keys = 1;
    for (size_t i = 0; i < size; i++) {
        keys += field->ref.name[i] == '.';
        i += is_escape(field->ref.name + i);
    }
    return keys;
}

static size_t put_key(char *out, size_t n, const char *key, uint32_t size, bool escape) {
    for (uint32_t i = 0; i < size; i++) {
        if (escape && (key[i] == '.' || key[i] == '\\'))
            out[n++] = '\\';
        out[n++] = key[i];
    }
    return n;
}

/* "meta" + "a.b" -> "meta.a\.b", kept as long as the projection. */
static const char *intern_child(const struct sqrl_projection *projection,
                                const struct live *parent, const char *key,
                                uint32_t key_size, uint32_t *size) {
    struct sqrl_projection *p = (struct sqrl_projection *)(uintptr_t)projection;
    size_t room = 2 * (size_t)parent->ref.name_size + 2 * (size_t)key_size + 2, n = 0;
    struct interned *made = malloc(sizeof *made + room);
    *size = key_size;
    if (!made)
        return key;
    n = put_key(made->text, n, parent->ref.name, parent->ref.name_size, !parent->dotted);
    made->text[n++] = '.';
    n = put_key(made->text, n, key, key_size, true);
    made->size = (uint32_t)n;
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)made->text[i]) * UINT64_C(0x100000001b3);
    struct interned **slot = &p->bucket[(hash ^ hash >> 32) % SQRL_COUNT_OF(p->bucket)],
                    *e;
    sqrl_lock_take(&p->lock);
    for (e = *slot; e && (e->size != n || memcmp(e->text, made->text, n)); e = e->next)
        ;
    if (!e && p->interned < MAX_INTERNED) {
        made->next = *slot;
        *slot = e = made;
        p->interned++;
        made = NULL;
    }
    sqrl_lock_drop(&p->lock);
    free(made);
    if (!e)
        return key;
    *size = e->size;
    return e->text;
}

static bool key_bytes(const struct sqrl_block *block, uint32_t key, const char **name,
                      uint32_t *size) {
    const struct sqrl_node *k = &block->tape.nodes[key];
    if (k->type != SQRL_STRING && k->type != SQRL_BINARY)
        return false;
    *name = (const char *)block->bytes->data + k->v.offset;
    *size = k->size;
    return true;
}

static void apply_select(const struct sqrl_projection *p, const struct sqrl_block *block,
                         const struct live_list *in, struct live_list *out) {
    for (size_t n = 0; n < p->count; n++) {
        const struct sqrl_path *path = &p->path[n];
        uint32_t node = SQRL_NO_NODE;
        for (size_t i = 0; i < in->count; i++) { /* of equal keys the last counts */
            uint32_t keys = matched_keys(&in->item[i], path);
            if (!keys)
                continue;
            uint32_t found = sqrl_path_find(path, keys, block->tape.nodes,
                                            in->item[i].ref.node, block->bytes->data);
            node = found == SQRL_NO_NODE ? node : found;
        }
        if (node != SQRL_NO_NODE && path->count == 1)
            list_add(out, path->key[0].name, path->key[0].size, node, false);
        else if (node != SQRL_NO_NODE)
            list_add(out, path->text, (uint32_t)strlen(path->text), node, true);
        else /* fields below a dotted name that an earlier stage took apart */
            for (size_t i = 0; i < in->count; i++)
                if (in->item[i].dotted &&
                    in->item[i].ref.name_size > strlen(path->text) &&
                    !strncmp(path->text, in->item[i].ref.name, strlen(path->text)) &&
                    in->item[i].ref.name[strlen(path->text)] == '.')
                    list_add(out, in->item[i].ref.name, in->item[i].ref.name_size,
                             in->item[i].ref.node, true);
    }
}

/* Replaces a map by its fields, as often as a path reaches below one of the list. */
static void take_apart(const struct sqrl_projection *p, const struct sqrl_block *block,
                       struct live_list *list) {
    for (size_t i = 0; i < list->count;) {
        struct live field = list->item[i];
        bool reached = false;
        for (size_t n = 0; n < p->count && !reached; n++) {
            uint32_t keys = matched_keys(&field, &p->path[n]);
            reached = keys && keys < p->path[n].count &&
                      sqrl_path_find(&p->path[n], keys, block->tape.nodes, field.ref.node,
                                     block->bytes->data) != SQRL_NO_NODE;
        }
        if (!reached) {
            i++;
            continue;
        }
        struct live_list rest;
        list_init(&rest);
        for (size_t k = i + 1; k < list->count; k++)
            list_add(&rest, list->item[k].ref.name, list->item[k].ref.name_size,
                     list->item[k].ref.node, list->item[k].dotted);
        list->count = i;
        const struct sqrl_node *nodes = block->tape.nodes;
        uint32_t end = sqrl_node_next(nodes, field.ref.node);
        for (uint32_t key = field.ref.node + 1; key < end;) {
            uint32_t value = sqrl_node_next(nodes, key), size;
            const char *name;
            if (key_bytes(block, key, &name, &size)) {
                name = intern_child(p, &field, name, size, &size);
                list_add(list, name, size, value, true);
            }
            key = sqrl_node_next(nodes, value);
        }
        for (size_t k = 0; k < rest.count; k++)
            list_add(list, rest.item[k].ref.name, rest.item[k].ref.name_size,
                     rest.item[k].ref.node, rest.item[k].dotted);
        list_free(&rest);
    }
}

static void apply_change(const struct sqrl_projection *p, const struct sqrl_block *block,
                         struct live_list *in, struct live_list *out) {
    take_apart(p, block, in);
    for (size_t i = 0; i < in->count; i++) {
        const struct live *field = &in->item[i];
        size_t n = 0;
        while (n < p->count) {
            uint32_t keys = matched_keys(field, &p->path[n]);
            if (keys && keys == p->path[n].count)
                break;
            n++;
        }
        if (n == p->count)
            list_add(out, field->ref.name, field->ref.name_size, field->ref.node,
                     field->dotted);
        else if (p->stage == SQRL_NAMES_RENAME)
            list_add(out, p->to[n], (uint32_t)strlen(p->to[n]), field->ref.node, true);
    }
}

static void apply_stage(const struct sqrl_projection *p, const struct sqrl_block *block,
                        struct live_list *in, struct live_list *out) {
    if (p->stage == SQRL_NAMES_SELECT)
        apply_select(p, block, in, out);
    else
        apply_change(p, block, in, out);
}

/* The common case: one select over the fields as they are. */
static size_t select_only(const struct sqrl_projection *p, const struct sqrl_block *block,
                          uint32_t node, struct sqrl_field_ref *out, size_t capacity) {
    size_t count = 0;
    for (size_t n = 0; n < p->count; n++) {
        const struct sqrl_path *path = &p->path[n];
        uint32_t found =
            sqrl_path_find(path, 0, block->tape.nodes, node, block->bytes->data);
        if (found == SQRL_NO_NODE)
            continue;
        if (count < capacity) {
            bool whole = path->count == 1;
            out[count].name = whole ? path->key[0].name : path->text;
            out[count].name_size =
                whole ? path->key[0].size : (uint32_t)strlen(path->text);
            out[count].node = found;
        }
        count++;
    }
    return count;
}

size_t sqrl_projection_apply(const struct sqrl_projection *projection,
                             const struct sqrl_block *block, uint32_t index,
                             struct sqrl_field_ref *out, size_t capacity) {
    const struct sqrl_projection *chain[256];
    size_t stages = 0;
    const struct sqrl_node *nodes = block->tape.nodes;
    uint32_t node = block->begin[index];
    if (nodes[node].type != SQRL_MAP)
        return 0;
    if (projection->stage == SQRL_NAMES_SELECT && !projection->before)
        return select_only(projection, block, node, out, capacity);
    for (const struct sqrl_projection *p = projection; p && stages < 256; p = p->before)
        chain[stages++] = p;
    struct live_list list[2];
    list_init(&list[0]);
    list_init(&list[1]);
    uint32_t end = sqrl_node_next(nodes, node);
    for (uint32_t key = node + 1; key < end;) {
        uint32_t value = sqrl_node_next(nodes, key), size;
        const char *name;
        if (key_bytes(block, key, &name, &size))
            list_add(&list[0], name, size, value, false);
        key = sqrl_node_next(nodes, value);
    }
    unsigned now = 0;
    while (stages) {
        list[!now].count = 0;
        apply_stage(chain[--stages], block, &list[now], &list[!now]);
        now = !now;
    }
    size_t count = list[now].count;
    for (size_t i = 0; i < count && i < capacity; i++)
        out[i] = list[now].item[i].ref;
    list_free(&list[0]);
    list_free(&list[1]);
    return count;
}
