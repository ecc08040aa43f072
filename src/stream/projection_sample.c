/* projection_sample.c - the stages run over one sample (dict mode).
 *
 * A map is taken apart only along the paths that are asked for. Names that exist only in
 * data and get a prefix are interned: they must live as long as the plan. Their number is
 * limited; beyond it a field keeps its bare key.
 */
#include "stream/projection_private.h"

#include <stdlib.h>

#define MAX_INTERNED (1u << 16)
#define LOCAL_FIELDS 64u

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

/* --- two fields of one name --- */

/* "a\.b" and "a.b" are two fields, but come out as one name. */
static bool selects_alike(const struct sqrl_projection *p) {
    for (size_t i = 0; i < p->count; i++) {
        const struct sqrl_path *key = &p->path[i];
        for (size_t k = 0; k < p->count && key->count == 1; k++)
            if (p->path[k].count > 1 && strlen(p->path[k].text) == key->key[0].size &&
                !memcmp(p->path[k].text, key->key[0].name, key->key[0].size))
                return true;
    }
    return false;
}

bool sqrl_projection_may_clash(const struct sqrl_projection *p) {
    for (; p; p = p->before) {
        if (p->stage == SQRL_NAMES_RENAME ||
            (p->stage == SQRL_NAMES_SELECT && selects_alike(p)))
            return true;
        for (size_t i = 0; i < p->count && p->stage == SQRL_NAMES_DROP; i++)
            if (p->path[i].count > 1) /* the fields beside it get dotted names */
                return true;
    }
    return false;
}

/* The name of a node in the sample itself; malloc'd, NULL without memory. */
static char *source_name(const struct sqrl_block *block, uint32_t map, uint32_t node) {
    const struct sqrl_node *nodes = block->tape.nodes;
    char *name = strdup("");
    while (map != node && name) {
        uint32_t key = map + 1, value = sqrl_node_next(nodes, key), size;
        while (node < value || node >= sqrl_node_next(nodes, value)) {
            key = sqrl_node_next(nodes, value);
            value = sqrl_node_next(nodes, key);
        }
        const char *text;
        size_t n = strlen(name);
        size = key_bytes(block, key, &text, &size) ? size : 0;
        char *longer = realloc(name, n + 2 * (size_t)size + 2);
        if (!longer)
            free(name);
        if ((name = longer)) {
            if (n)
                name[n++] = '.';
            name[put_key(name, n, text, size, true)] = 0;
        }
        map = value;
    }
    return name;
}

/* Equal keys of a sample are no clash: the last counts. */
static int judge_pair(const struct sqrl_block *block, uint32_t map,
                      const struct live *first, const struct live *second,
                      struct sqrl_error *err) {
    if (!first->dotted && !second->dotted)
        return SQRL_OK;
    char *a = source_name(block, map, first->ref.node),
         *b = source_name(block, map, second->ref.node);
    int code = SQRL_OK;
    if (!a || !b || strcmp(a, b))
        code = sqrl_error_set(err, SQRL_E_TYPE,
                              "two fields would be named \"%.*s\": \"%.120s\" and "
                              "\"%.120s\"; rename() or drop() one of them",
                              (int)SQRL_MIN(first->ref.name_size, 120u), first->ref.name,
                              a ? a : "?", b ? b : "?");
    free(a);
    free(b);
    return code;
}

/* No two fields of the list may have one name; before a select only those that it takes.
 */
static int check_list(const struct sqrl_block *block, uint32_t map,
                      const struct live_list *list, const struct sqrl_projection *next,
                      struct sqrl_error *err) {
    uint32_t local[4 * LOCAL_FIELDS], *slot = local;
    size_t room = SQRL_COUNT_OF(local);
    int code = SQRL_OK;
    while (room < 2 * list->count)
        room *= 2;
    if (room > SQRL_COUNT_OF(local) &&
        !(slot = sqrl_malloc(room * sizeof *slot, "names", err)))
        return SQRL_E_NO_MEMORY;
    memset(slot, 0, room * sizeof *slot);
    for (size_t i = 0; i < list->count && !code; i++) {
        const struct sqrl_field_ref *f = &list->item[i].ref;
        uint64_t at = f->name_size;
        bool taken = !next;
        for (size_t n = 0; next && n < next->count && !taken; n++)
            taken = matched_keys(&list->item[i], &next->path[n]) != 0;
        for (uint32_t c = 0; c < f->name_size; c++)
            at = (at ^ (uint8_t)f->name[c]) * UINT64_C(0x100000001b3);
        for (at = sqrl_mix64(at) & (room - 1); slot[at]; at = (at + 1) & (room - 1)) {
            const struct live *e = &list->item[slot[at] - 1];
            if (e->ref.name_size == f->name_size &&
                !memcmp(e->ref.name, f->name, f->name_size)) {
                code = taken ? judge_pair(block, map, e, &list->item[i], err) : SQRL_OK;
                break;
            }
        }
        if (!slot[at])
            slot[at] = (uint32_t)i + 1;
    }
    if (slot != local)
        free(slot);
    return code;
}

/* --- all stages --- */

/* Runs all stages over a map; which of the two lists holds the result. With `code` it
 * stops where two fields have one name. */
static unsigned run_stages(const struct sqrl_projection *projection,
                           const struct sqrl_block *block, uint32_t node,
                           struct live_list list[2], int *code, struct sqrl_error *err) {
    const struct sqrl_projection *chain[256];
    const struct sqrl_node *nodes = block->tape.nodes;
    unsigned stages = 0, now = 0;
    for (const struct sqrl_projection *p = projection; p && stages < 256; p = p->before)
        chain[stages++] = p;
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
    while (stages && !(code && *code)) {
        const struct sqrl_projection *p = chain[--stages];
        if (code && p->before && p->stage == SQRL_NAMES_SELECT)
            *code = check_list(block, node, &list[now], p, err);
        list[!now].count = 0;
        apply_stage(p, block, &list[now], &list[!now]);
        now = !now;
    }
    if (code && !*code)
        *code = check_list(block, node, &list[now], NULL, err);
    return now;
}

size_t sqrl_projection_apply(const struct sqrl_projection *projection,
                             const struct sqrl_block *block, uint32_t index,
                             struct sqrl_field_ref *out, size_t capacity) {
    uint32_t node = block->begin[index];
    if (block->tape.nodes[node].type != SQRL_MAP)
        return 0;
    if (projection->stage == SQRL_NAMES_SELECT && !projection->before)
        return select_only(projection, block, node, out, capacity);
    struct live_list list[2];
    unsigned now = run_stages(projection, block, node, list, NULL, NULL);
    size_t count = list[now].count;
    for (size_t i = 0; i < count && i < capacity; i++)
        out[i] = list[now].item[i].ref;
    list_free(&list[0]);
    list_free(&list[1]);
    return count;
}

int sqrl_projection_check(const struct sqrl_projection *projection,
                          const struct sqrl_block *block, uint32_t index,
                          struct sqrl_error *err) {
    struct live_list list[2];
    int code = SQRL_OK;
    if (block->tape.nodes[block->begin[index]].type != SQRL_MAP)
        return SQRL_OK;
    run_stages(projection, block, block->begin[index], list, &code, err);
    list_free(&list[0]);
    list_free(&list[1]);
    return code;
}
