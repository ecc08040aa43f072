/* locate.c - see locate.h.
 *
 * A layout is the list of keys of one sample, maps on the way to wanted fields entered.
 * It is used for a sample only when all its keys are equal, all of them, in order, so a
 * duplicate of a wanted key can't hide behind an unwanted one. Layouts with duplicate
 * keys, or keys that are no strings, are not learned: such samples are looked up by
 * sqrl_map_find.
 */
#include "stream/columns/locate.h"

#include <stdlib.h>

#define LAYOUTS 4u
#define MAX_STEPS 1024u
#define MAX_KEY_BYTES (1u << 20)
#define NO_WANT UINT32_MAX

/* A key on the way to wanted fields. */
struct want_node {
    char *key;
    uint32_t key_size;
    uint32_t want;  /* the field that ends here, or NO_WANT */
    uint32_t first; /* child, 0: none (the root is nobody's child) */
    uint32_t next;  /* sibling, 0: last */
};

struct sqrl_wants {
    struct want_node *node; /* [0] is the root */
    uint32_t nodes, capacity;
    uint32_t count;
    struct sqrl_path *path; /* [count] */
    sqrl_stranger_fn stranger;
    void *stranger_arg;
};

struct layout_step {
    uint32_t key_at, key_size; /* within the layout's key bytes */
    uint32_t want;             /* or NO_WANT */
    uint32_t pairs;            /* of the map that is entered here; NO_WANT: not entered */
    bool leads_on;             /* wanted fields lie below: a map here must be entered */
    bool guard;                /* only while the value is null or an empty map */
};

struct layout {
    struct layout_step *step;
    uint32_t steps, capacity;
    uint32_t pairs; /* of the sample itself */
    uint8_t *keys;
    uint32_t key_bytes, key_room;
    char *stranger; /* NULL: none */
};

struct sqrl_locator {
    const struct sqrl_wants *wants;
    struct layout layout[LAYOUTS];
    uint32_t used, last, victim;
};

/* --- wants --- */

struct sqrl_wants *sqrl_wants_new(struct sqrl_error *err) {
    struct sqrl_wants *wants = sqrl_calloc(1, sizeof *wants, "fields", err);
    if (!wants)
        return NULL;
    wants->capacity = 16;
    wants->node = sqrl_calloc(wants->capacity, sizeof *wants->node, "fields", err);
    if (!wants->node) {
        free(wants);
        return NULL;
    }
    wants->node[0].want = NO_WANT;
    wants->nodes = 1;
    return wants;
}

void sqrl_wants_free(struct sqrl_wants *wants) {
    if (!wants)
        return;
    for (uint32_t i = 0; i < wants->nodes; i++)
        free(wants->node[i].key);
    for (uint32_t i = 0; i < wants->count; i++)
        sqrl_path_reset(&wants->path[i]);
    free(wants->node);
    free(wants->path);
    free(wants);
}

uint32_t sqrl_wants_count(const struct sqrl_wants *wants) {
    return wants->count;
}

void sqrl_wants_set_stranger(struct sqrl_wants *wants, sqrl_stranger_fn stranger,
                             void *arg) {
    wants->stranger = stranger;
    wants->stranger_arg = arg;
}

static uint32_t child_of(const struct sqrl_wants *wants, uint32_t parent, const void *key,
                         uint32_t size) {
    uint32_t child = wants->node[parent].first;
    while (child && (wants->node[child].key_size != size ||
                     memcmp(wants->node[child].key, key, size) != 0))
        child = wants->node[child].next;
    return child;
}

static int child_add(struct sqrl_wants *wants, uint32_t parent, const char *key,
                     uint32_t size, uint32_t *out, struct sqrl_error *err) {
    if (wants->nodes == wants->capacity) {
        void *grown = sqrl_realloc(wants->node, 2 * wants->capacity * sizeof *wants->node,
                                   "fields", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        wants->node = grown;
        wants->capacity *= 2;
    }
    char *copy = sqrl_malloc((size_t)size + 1, "fields", err);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    memcpy(copy, key, size);
    copy[size] = 0;
    wants->node[wants->nodes] =
        (struct want_node){copy, size, NO_WANT, 0, wants->node[parent].first};
    wants->node[parent].first = wants->nodes;
    *out = wants->nodes++;
    return SQRL_OK;
}

int sqrl_wants_add(struct sqrl_wants *wants, const char *name, uint32_t *out,
                   struct sqrl_error *err) {
    struct sqrl_path path;
    *out = NO_WANT;
    int code = sqrl_path_parse(&path, name, err);
    if (code)
        return code;
    uint32_t at = 0;
    for (uint32_t k = 0; k < path.count && !code; k++) {
        uint32_t child = child_of(wants, at, path.key[k].name, path.key[k].size);
        if (!child)
            code = child_add(wants, at, path.key[k].name, path.key[k].size, &child, err);
        at = child;
    }
    if (code || wants->node[at].want != NO_WANT) {
        *out = code ? NO_WANT : wants->node[at].want;
        sqrl_path_reset(&path);
        return code;
    }
    void *grown = sqrl_realloc(wants->path, (wants->count + 1) * sizeof *wants->path,
                               "fields", err);
    if (!grown) {
        sqrl_path_reset(&path);
        return SQRL_E_NO_MEMORY;
    }
    wants->path = grown;
    wants->path[wants->count] = path;
    *out = wants->node[at].want = wants->count++;
    return SQRL_OK;
}

/* --- learning a layout --- */

struct learner {
    const struct sqrl_wants *wants;
    struct layout *layout;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    bool regular; /* no duplicates, only string keys, within limits, memory sufficed */
};

static inline bool is_nothing(const struct sqrl_node *value) {
    return value->type == SQRL_NULL || (value->type == SQRL_MAP && !value->size);
}

static struct layout_step *add_step(struct layout *layout, const void *key,
                                    uint32_t size) {
    if (layout->steps == layout->capacity) {
        uint32_t room = layout->capacity ? 2 * layout->capacity : 16;
        void *grown =
            sqrl_realloc(layout->step, room * sizeof *layout->step, "layout", NULL);
        if (!grown)
            return NULL;
        layout->step = grown;
        layout->capacity = room;
    }
    if (layout->key_room - layout->key_bytes < size) {
        uint32_t room = SQRL_MAX(2 * layout->key_room, layout->key_bytes + size + 256);
        void *grown = sqrl_realloc(layout->keys, room, "layout", NULL);
        if (!grown)
            return NULL;
        layout->keys = grown;
        layout->key_room = room;
    }
    if (size)
        memcpy(layout->keys + layout->key_bytes, key, size);
    struct layout_step *step = &layout->step[layout->steps++];
    *step = (struct layout_step){layout->key_bytes, size, NO_WANT, NO_WANT, false, false};
    layout->key_bytes += size;
    return step;
}

static char *child_name(const char *prefix, const void *key, uint32_t size) {
    char *name = malloc(strlen(prefix) + 2 * (size_t)size + 2), *to = name;
    if (!name)
        return NULL;
    if (*prefix) {
        size_t n = strlen(prefix);
        memcpy(to, prefix, n);
        to += n;
        *to++ = '.';
    }
    for (uint32_t i = 0; i < size; i++) {
        char c = ((const char *)key)[i];
        if (c == '.' || c == '\\')
            *to++ = '\\';
        *to++ = c;
    }
    *to = 0;
    return name;
}

#define STRANGER_DEPTH 16u /* names nested deeper are taken as they are */

/* Other keys live in samples, but no schema knows them. */
static bool can_name(const struct learner *l, uint32_t key) {
    const struct sqrl_node *k = &l->nodes[key];
    return k->type == SQRL_STRING && k->size &&
           !memchr(l->bytes + k->v.offset, 0, k->size);
}

/* Walks the unwanted subtree `value` for fields that must not be there. Takes `name`
 * over. */
static char *find_stranger(const struct learner *l, char *name, uint32_t value,
                           unsigned depth) {
    const struct sqrl_node *nodes = l->nodes;
    char *found = NULL;
    if (nodes[value].type != SQRL_MAP || depth == STRANGER_DEPTH) {
        if (l->wants->stranger(l->wants->stranger_arg, name))
            return name;
        free(name);
        return NULL;
    }
    uint32_t end = sqrl_node_next(nodes, value);
    for (uint32_t key = value + 1; key < end && !found;) {
        uint32_t at = sqrl_node_next(nodes, key);
        if (can_name(l, key)) {
            char *below =
                child_name(name, l->bytes + nodes[key].v.offset, nodes[key].size);
            found = below ? find_stranger(l, below, at, depth + 1) : NULL;
        }
        key = sqrl_node_next(nodes, at);
    }
    free(name);
    return found;
}

/* An unwanted field. Nothing may be lost silently: one that no stage dropped is a
 * stranger as soon as it has a value; until then the layout is good only while it has
 * none. */
static void judge(struct learner *l, struct layout_step *step, const char *name,
                  uint32_t value) {
    const struct sqrl_node *v = &l->nodes[value];
    if (l->layout->stranger || !l->wants->stranger(l->wants->stranger_arg, name))
        return;
    if (is_nothing(v)) {
        step->guard = true;
        return;
    }
    char *copy = sqrl_strdup(name, NULL);
    l->layout->stranger = copy ? find_stranger(l, copy, value, 0) : NULL;
    l->regular &= v->type != SQRL_MAP; /* it depends on what is in the map */
}

static bool seen_before(const struct learner *l, uint32_t map, uint32_t key) {
    const struct sqrl_node *nodes = l->nodes;
    for (uint32_t k = map + 1; k < key;
         k = sqrl_node_next(nodes, sqrl_node_next(nodes, k)))
        if (nodes[k].size == nodes[key].size &&
            !memcmp(l->bytes + nodes[k].v.offset, l->bytes + nodes[key].v.offset,
                    nodes[key].size))
            return true;
    return false;
}

/* One map; recursion is bounded by the depth of the wanted names. */
static void learn_map(struct learner *l, uint32_t map, uint32_t tree,
                      const char *prefix) {
    const struct sqrl_node *nodes = l->nodes;
    uint32_t end = sqrl_node_next(nodes, map);
    for (uint32_t key = map + 1; key < end && l->regular;) {
        uint32_t value = sqrl_node_next(nodes, key), size = nodes[key].size;
        bool text = nodes[key].type == SQRL_STRING || nodes[key].type == SQRL_BINARY;
        const uint8_t *name = l->bytes + nodes[key].v.offset;
        struct layout_step *step = NULL;
        if (text && l->layout->steps < MAX_STEPS && size < MAX_KEY_BYTES &&
            l->layout->key_bytes < MAX_KEY_BYTES && !seen_before(l, map, key))
            step = add_step(l->layout, name, size);
        if (!step) {
            l->regular = false;
            return;
        }
        uint32_t child = child_of(l->wants, tree, name, size);
        if (child) {
            step->want = l->wants->node[child].want;
            step->leads_on = l->wants->node[child].first != 0;
        }
        bool enter = step->leads_on && nodes[value].type == SQRL_MAP;
        if (enter)
            step->pairs = nodes[value].size;
        if (enter || (step->want == NO_WANT && l->wants->stranger && can_name(l, key))) {
            char *below = child_name(prefix, name, size);
            if (!below)
                l->regular = false;
            else if (enter)
                learn_map(l, value, child, below);
            else
                judge(l, step, below, value);
            free(below);
        }
        key = sqrl_node_next(nodes, value);
    }
}

static bool learn(struct sqrl_locator *locator, const struct sqrl_node *nodes,
                  uint32_t node, const uint8_t *bytes, uint32_t *out) {
    uint32_t slot = *out =
        locator->used < LAYOUTS ? locator->used : locator->victim++ % LAYOUTS;
    struct layout *layout = &locator->layout[slot];
    layout->steps = layout->key_bytes = 0;
    layout->pairs = nodes[node].size;
    free(layout->stranger);
    layout->stranger = NULL;
    struct learner l = {locator->wants, layout, nodes, bytes, true};
    learn_map(&l, node, 0, "");
    if (!l.regular) {
        layout->pairs = NO_WANT; /* fits no sample */
        return false;
    }
    if (slot == locator->used)
        locator->used++;
    locator->last = slot;
    return true;
}

/* --- using it --- */

static inline bool same_bytes(const uint8_t *a, const uint8_t *b, uint32_t size) {
    if (size >= 8 && size <= 16) {
        uint64_t d = sqrl_load_le64(a) ^ sqrl_load_le64(b);
        return !(d | (sqrl_load_le64(a + size - 8) ^ sqrl_load_le64(b + size - 8)));
    }
    if (size >= 4 && size < 8) {
        uint32_t d = sqrl_load_le32(a) ^ sqrl_load_le32(b);
        return !(d | (sqrl_load_le32(a + size - 4) ^ sqrl_load_le32(b + size - 4)));
    }
    return memcmp(a, b, size) == 0;
}

static bool walk(const struct layout *layout, const struct sqrl_node *nodes,
                 uint32_t node, const uint8_t *bytes, uint32_t *found) {
    if (nodes[node].size != layout->pairs)
        return false;
    uint32_t at = node + 1;
    for (const struct layout_step *step = layout->step, *end = step + layout->steps;
         step < end; step++) {
        const struct sqrl_node *key = &nodes[at], *value = key + 1;
        if (key->size != step->key_size ||
            (key->type != SQRL_STRING && key->type != SQRL_BINARY) ||
            !same_bytes(bytes + key->v.offset, layout->keys + step->key_at, key->size))
            return false;
        if (step->want != NO_WANT)
            found[step->want] = at + 1;
        if (step->pairs != NO_WANT) {
            if (value->type != SQRL_MAP || value->size != step->pairs)
                return false;
            at += 2;
            continue;
        }
        if ((step->leads_on && value->type == SQRL_MAP) ||
            (step->guard && !is_nothing(value)))
            return false;
        at = sqrl_node_next(nodes, at + 1);
    }
    return true;
}

static void look_up(const struct sqrl_wants *wants, const struct sqrl_node *nodes,
                    uint32_t node, const uint8_t *bytes, uint32_t *found) {
    for (uint32_t i = 0; i < wants->count; i++)
        found[i] = sqrl_path_find(&wants->path[i], 0, nodes, node, bytes);
}

void sqrl_locate(struct sqrl_locator *locator, const struct sqrl_node *nodes,
                 uint32_t node, const uint8_t *bytes, uint32_t *found,
                 const char **stranger) {
    uint32_t wanted = locator->wants->count;
    if (stranger)
        *stranger = NULL;
    memset(found, 0xff, wanted * sizeof *found);
    if (nodes[node].type != SQRL_MAP)
        return;
    for (uint32_t i = 0; i < locator->used; i++) {
        uint32_t slot = i == 0 ? locator->last : i <= locator->last ? i - 1 : i;
        if (i)
            memset(found, 0xff, wanted * sizeof *found);
        if (walk(&locator->layout[slot], nodes, node, bytes, found)) {
            locator->last = slot;
            if (stranger)
                *stranger = locator->layout[slot].stranger;
            return;
        }
    }
    uint32_t slot;
    bool learned = learn(locator, nodes, node, bytes, &slot);
    if (stranger)
        *stranger = locator->layout[slot].stranger;
    if (learned) {
        memset(found, 0xff, wanted * sizeof *found);
        if (walk(&locator->layout[locator->last], nodes, node, bytes, found))
            return;
    }
    look_up(locator->wants, nodes, node, bytes, found);
}

struct sqrl_locator *sqrl_locator_new(const struct sqrl_wants *wants,
                                      struct sqrl_error *err) {
    struct sqrl_locator *locator = sqrl_calloc(1, sizeof *locator, "layouts", err);
    if (locator)
        locator->wants = wants;
    return locator;
}

void sqrl_locator_free(struct sqrl_locator *locator) {
    if (!locator)
        return;
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        free(locator->layout[i].step);
        free(locator->layout[i].keys);
        free(locator->layout[i].stranger);
    }
    free(locator);
}
