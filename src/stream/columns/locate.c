/* locate.c - see locate.h.
 *
 * Two ways lead to the fields of a sample. A layout is the list of keys of one sample,
 * maps on the way to wanted fields entered; it is used for a sample whose keys are the
 * same, all of them, in order. Any other sample is walked key by key through the tree of
 * wanted names, with a guess at which comes next; and its layout is learned, unless
 * layouts turn out not to come back (records with many optional fields), when walking
 * alone is cheaper for a while.
 *
 * A layout is only learned from a sample without strangers, and keeps on guard over
 * fields that would be one if they had a value: so a match tells that there is none. The
 * last of equal keys counts, with all that was found below the earlier one forgotten;
 * such samples are not learned.
 */
#include "stream/columns/wants.h"

#include <stdio.h>
#include <stdlib.h>

#define LAYOUTS 4u
#define MAX_STEPS 1024u
#define MAX_KEY_BYTES (1u << 20)
#define TRIAL 16u          /* layouts learned before they are judged ... */
#define WORTH 8u           /* ... by how many samples each must have served */
#define WALK_ON 4096u      /* samples that are only walked when they were not */
#define STRANGER_DEPTH 16u /* names nested deeper are taken as they are */
#define KNOWN_NAMES 256u   /* keys that may be ignored, remembered */
#define MAX_KNOWN_BYTES 256u

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
    bool complete;  /* all that is wanted is in it */
    uint8_t *keys;
    uint32_t key_bytes, key_room;
};

/* A key below a node of the tree that may be ignored whatever its value. */
struct known_name {
    char *key;
    uint32_t size, tree;
};

struct sqrl_locator {
    const struct sqrl_wants *wants;
    struct layout layout[LAYOUTS];
    uint32_t used, last, victim;
    uint32_t learned;
    uint64_t served;
    uint32_t walk_on;
    uint32_t *stamp; /* [nodes of the tree]: the walk that last passed it */
    uint32_t walks;
    struct known_name known[KNOWN_NAMES]; /* open addressing */
    uint32_t known_count;
    char *stranger; /* of the last sample */
    bool nameless;  /* it is a key that can't name a field */
};

/* One walk over a sample. */
struct walk {
    struct sqrl_locator *locator;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    uint32_t *found;
    struct layout *layout; /* learned on the way; NULL: no more */
};

static inline bool is_nothing(const struct sqrl_node *value) {
    return value->type == SQRL_NULL || (value->type == SQRL_MAP && !value->size);
}
static inline bool is_text(const struct sqrl_node *key) {
    return key->type == SQRL_STRING || key->type == SQRL_BINARY;
}

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

/* --- strangers --- */

/* "prefix" and a key, escaped; malloc'd. */
static char *child_name(const char *prefix, const void *key, uint32_t size) {
    size_t n = strlen(prefix);
    char *name = malloc(n + 2 * (size_t)size + 2), *to = name;
    if (!name)
        return NULL;
    memcpy(to, prefix, n);
    to += n;
    if (n)
        *to++ = '.';
    for (uint32_t i = 0; i < size; i++) {
        char c = ((const char *)key)[i];
        if (c == '.' || c == '\\')
            *to++ = '\\';
        *to++ = c;
    }
    *to = 0;
    return name;
}

/* The dotted name of a node of the tree; malloc'd. */
static char *tree_name(const struct sqrl_wants *wants, uint32_t tree) {
    char *name = NULL;
    uint32_t chain[SQRL_MAX_PATH_KEYS + 1], depth = 0;
    for (uint32_t at = tree; at && depth < SQRL_COUNT_OF(chain);
         at = wants->node[at].parent)
        chain[depth++] = at;
    name = strdup("");
    while (depth && name) {
        const struct want_node *node = &wants->node[chain[--depth]];
        char *longer = child_name(name, node->key, node->key_size);
        free(name);
        name = longer;
    }
    return name;
}

/* Other keys live in samples, but no schema knows them. The empty name is that of samples
 * which are no maps. */
static bool can_name(const struct walk *w, uint32_t key, bool top) {
    const struct sqrl_node *k = &w->nodes[key];
    return k->type == SQRL_STRING && (k->size || !top) &&
           !memchr(w->bytes + k->v.offset, 0, k->size);
}

/* What the stages in front call a key: those of bytes are dropped by their text, others
 * are out of reach. malloc'd. */
static char *reach_name(const struct walk *w, const char *above, uint32_t key) {
    const struct sqrl_node *k = &w->nodes[key];
    const void *text = w->bytes + k->v.offset;
    if (is_text(k) && !memchr(text, 0, k->size))
        return child_name(above, text, k->size);
    return child_name(above, "\x01", 1);
}

/* A key that can't name a field and what is wrong with it, for messages; malloc'd. */
static char *key_fault(const struct walk *w, const char *above, uint32_t key) {
    const struct sqrl_node *k = &w->nodes[key];
    char shown[176];
    size_t n = 0;
    const char *why = k->type == SQRL_BINARY ? "is binary" : "is no text";
    if (k->type == SQRL_STRING)
        why = k->size ? "has a NUL in it" : "is empty";
    if (k->type == SQRL_INT || k->type == SQRL_UINT) {
        const char *form = k->type == SQRL_INT ? "%lld" : "%llu";
        n = (size_t)snprintf(shown, sizeof shown, form, (unsigned long long)k->v.u);
        why = "is an integer";
    } else if (is_text(k)) {
        const uint8_t *text = w->bytes + k->v.offset;
        shown[n++] = '"';
        for (uint32_t i = 0; i < SQRL_MIN(k->size, 40u); i++)
            n += (size_t)snprintf(shown + n, sizeof shown - n,
                                  text[i] < ' ' || text[i] == 127 ? "\\x%02x" : "%c",
                                  text[i]);
        shown[n++] = '"';
    }
    shown[n] = 0;
    return sqrl_format(NULL, "%s%s%.120s%s%s%s", shown,
                       !*above ? ""
                       : n     ? " in \""
                               : "in \"",
                       above, *above ? "\"" : "", n || *above ? " " : "", why);
}

/* Sets the stranger: a key that can't name a field. */
static void refuse_key(struct walk *w, const char *above, uint32_t key) {
    w->locator->stranger = key_fault(w, above, key);
    w->locator->nameless = true;
}

static struct known_name *known_slot(struct sqrl_locator *l, uint32_t tree,
                                     const void *key, uint32_t size) {
    uint64_t hash = tree + ((uint64_t)size << 32);
    for (uint32_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)key)[i]) * UINT64_C(0x100000001b3);
    for (uint32_t i = (uint32_t)sqrl_mix64(hash);; i++) {
        struct known_name *k = &l->known[i % KNOWN_NAMES];
        if (!k->key || (k->tree == tree && k->size == size && !memcmp(k->key, key, size)))
            return k;
    }
}

static void remember(struct sqrl_locator *l, struct known_name *slot, uint32_t tree,
                     const void *key, uint32_t size) {
    if (l->known_count >= KNOWN_NAMES / 2 || size > MAX_KNOWN_BYTES)
        return;
    char *copy = malloc((size_t)size + 1);
    if (!copy)
        return;
    memcpy(copy, key, size);
    *slot = (struct known_name){copy, size, tree};
    l->known_count++;
}

/* Walks an unwanted value for fields that must not be there. Takes `name` over. */
static void find_stranger(struct walk *w, char *name, uint32_t value, unsigned depth) {
    const struct sqrl_node *nodes = w->nodes;
    const struct sqrl_wants *wants = w->locator->wants;
    if (nodes[value].type != SQRL_MAP || depth == STRANGER_DEPTH ||
        is_nothing(&nodes[value])) {
        if (!is_nothing(&nodes[value]) && wants->stranger(wants->stranger_arg, name))
            w->locator->stranger = name;
        else
            free(name);
        return;
    }
    uint32_t end = sqrl_node_next(nodes, value);
    for (uint32_t key = value + 1; key < end && !w->locator->stranger;) {
        uint32_t at = sqrl_node_next(nodes, key);
        char *below = reach_name(w, name, key);
        if (below && can_name(w, key, false)) {
            find_stranger(w, below, at, depth + 1);
        } else if (below) {
            if (!is_nothing(&nodes[at]) && wants->stranger(wants->stranger_arg, below))
                refuse_key(w, name, key);
            free(below);
        }
        key = sqrl_node_next(nodes, at);
    }
    free(name);
}

/* An unwanted field. Nothing may be lost silently: one that no stage dropped is a
 * stranger as soon as it has a value. True when a layout must stay on guard over it. */
static bool judge(struct walk *w, uint32_t tree, uint32_t key, uint32_t value) {
    struct sqrl_locator *l = w->locator;
    const struct sqrl_node *k = &w->nodes[key], *v = &w->nodes[value];
    const uint8_t *text = w->bytes + k->v.offset;
    if (!l->wants->stranger || l->stranger)
        return false;
    struct known_name *slot = is_text(k) ? known_slot(l, tree, text, k->size) : NULL;
    if (slot && slot->key)
        return false;
    char *above = tree_name(l->wants, tree);
    char *name = above ? reach_name(w, above, key) : NULL;
    bool strange = name && l->wants->stranger(l->wants->stranger_arg, name);
    bool guard = strange && is_nothing(v);
    if (name && !strange && slot)
        remember(l, slot, tree, text, k->size);
    if (strange && !guard) {
        w->layout = NULL; /* it depends on what is in the map */
        if (can_name(w, key, tree == 0)) {
            find_stranger(w, name, value, 0);
            name = NULL;
        } else {
            refuse_key(w, above, key);
        }
    }
    free(above);
    free(name);
    return guard;
}

/* --- walking the tree, learning a layout --- */

static struct layout_step *add_step(struct layout *layout, const void *key,
                                    uint32_t size) {
    if (layout->steps == MAX_STEPS || size > MAX_KEY_BYTES - layout->key_bytes)
        return NULL;
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

/* Forgets what was found at and below a node: an equal key comes again. Recursion is
 * bounded by the depth of the wanted names. */
static void forget(struct walk *w, uint32_t tree) {
    const struct want_node *node = w->locator->wants->node;
    if (node[tree].want != NO_WANT)
        w->found[node[tree].want] = SQRL_NO_NODE;
    for (uint32_t child = node[tree].first; child; child = node[child].next)
        forget(w, child);
}

/* One key of a map: what is found, and the step of the layout. True: its map is entered.
 */
static bool visit(struct walk *w, uint32_t tree, uint32_t child, uint32_t key,
                  uint32_t value) {
    struct sqrl_locator *l = w->locator;
    const struct sqrl_node *k = &w->nodes[key], *v = &w->nodes[value];
    const struct want_node *node = &l->wants->node[child];
    bool wanted = child && node->want != NO_WANT;
    bool enter = child && node->first && v->type == SQRL_MAP;
    struct layout_step *step = NULL;
    if (child && l->stamp[child] == l->walks) {
        forget(w, child);
        w->layout = NULL;
    }
    if (w->layout) {
        step = is_text(k) ? add_step(w->layout, w->bytes + k->v.offset, k->size) : NULL;
        if (!step)
            w->layout = NULL;
    }
    if (step && child) {
        step->want = node->want;
        step->leads_on = node->first != 0;
        step->pairs = enter ? v->size : NO_WANT;
    }
    if (child)
        l->stamp[child] = l->walks;
    if (wanted)
        w->found[node->want] = value;
    if (!wanted && !enter && judge(w, tree, key, value) && step)
        step->guard = true;
    return enter;
}

struct level {
    uint32_t end, tree, guess;
};

static void walk_tree(struct walk *w, uint32_t sample) {
    const struct sqrl_node *nodes = w->nodes;
    const struct sqrl_wants *wants = w->locator->wants;
    struct level level[SQRL_MAX_PATH_KEYS + 1];
    uint32_t depth = 0, key = sample + 1;
    level[0] = (struct level){sqrl_node_next(nodes, sample), 0, wants->node[0].first};
    for (;;) {
        struct level *here = &level[depth];
        if (key == here->end) {
            if (!depth--)
                return;
            continue;
        }
        const struct sqrl_node *k = &nodes[key];
        uint32_t value = sqrl_node_next(nodes, key), child = here->guess;
        const uint8_t *text = w->bytes + k->v.offset;
        if (!is_text(k))
            child = 0;
        else if (!child || wants->node[child].key_size != k->size ||
                 !same_bytes((const uint8_t *)wants->node[child].key, text, k->size))
            child = sqrl_wants_child(wants, here->tree, text, k->size);
        if (child)
            here->guess = wants->node[child].next;
        uint32_t next = sqrl_node_next(nodes, value);
        if (visit(w, here->tree, child, key, value)) {
            level[++depth] = (struct level){next, child, wants->node[child].first};
            next = value + 1;
        }
        key = next;
    }
}

/* Whether to learn the layout of this sample; NULL: no. */
static struct layout *next_layout(struct sqrl_locator *l) {
    if (l->walk_on)
        return NULL;
    if (l->learned >= TRIAL && l->served < (uint64_t)WORTH * l->learned) {
        l->walk_on = WALK_ON;
        l->learned = 0;
        l->served = 0;
        return NULL;
    }
    return &l->layout[l->used < LAYOUTS ? l->used : l->victim % LAYOUTS];
}

/* The wanted steps of a layout are all different. */
static bool is_complete(const struct layout *layout, uint32_t wants) {
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < layout->steps; i++)
        wanted += layout->step[i].want != NO_WANT;
    return wanted == wants;
}

static void walk_and_learn(struct sqrl_locator *l, const struct sqrl_node *nodes,
                           uint32_t node, const uint8_t *bytes, uint32_t *found) {
    struct walk w = {l, nodes, bytes, found, next_layout(l)};
    struct layout *layout = w.layout;
    if (++l->walks == 0) {
        memset(l->stamp, 0, l->wants->nodes * sizeof *l->stamp);
        l->walks = 1;
    }
    if (layout) {
        layout->steps = layout->key_bytes = 0;
        layout->pairs = nodes[node].size;
    }
    walk_tree(&w, node);
    if (layout && !w.layout) {
        layout->pairs = NO_WANT; /* fits no sample */
    } else if (layout) {
        layout->complete = is_complete(layout, l->wants->count);
        l->last = (uint32_t)(layout - l->layout);
        if (l->used < LAYOUTS)
            l->used++;
        else
            l->victim++;
        l->learned++;
    }
}

/* --- using layouts --- */

static inline __attribute__((always_inline)) bool
match(const struct layout *layout, const struct sqrl_node *nodes, uint32_t node,
      const uint8_t *bytes, uint32_t *found) {
    if (nodes[node].size != layout->pairs)
        return false;
    uint32_t at = node + 1;
    for (const struct layout_step *step = layout->step, *end = step + layout->steps;
         step < end; step++) {
        const struct sqrl_node *key = &nodes[at], *value = key + 1;
        if (key->size != step->key_size || !is_text(key) ||
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

static inline void find_nothing(const struct sqrl_locator *l, uint32_t *found) {
    memset(found, 0xff, l->wants->count * sizeof *found);
}

static bool match_any(struct sqrl_locator *l, const struct sqrl_node *nodes,
                      uint32_t node, const uint8_t *bytes, uint32_t *found) {
    for (uint32_t i = 0; i < l->used; i++) {
        uint32_t slot = i == 0 ? l->last : i <= l->last ? i - 1 : i;
        if (match(&l->layout[slot], nodes, node, bytes, found)) {
            l->last = slot;
            l->served++;
            return true;
        }
        find_nothing(l, found);
    }
    return false;
}

/* A complete layout writes all of found[]. */
uint32_t sqrl_locate_run(struct sqrl_locator *l, const struct sqrl_node *nodes,
                         const uint32_t *begin, uint32_t count, const uint8_t *bytes,
                         uint32_t *found) {
    const struct layout *layout = &l->layout[l->last];
    uint32_t wants = l->wants->count, n = 0;
    if (l->walk_on || !l->used || !layout->complete)
        return 0;
    while (n < count && nodes[begin[n]].type == SQRL_MAP &&
           match(layout, nodes, begin[n], bytes, found + (size_t)n * wants))
        n++;
    l->served += n;
    return n;
}

void sqrl_locate(struct sqrl_locator *l, const struct sqrl_node *nodes, uint32_t node,
                 const uint8_t *bytes, uint32_t *found, const char **stranger) {
    if (stranger)
        *stranger = NULL;
    find_nothing(l, found);
    if (nodes[node].type != SQRL_MAP)
        return;
    if (l->walk_on)
        l->walk_on--;
    else if (SQRL_LIKELY(match_any(l, nodes, node, bytes, found)))
        return;
    free(l->stranger);
    l->stranger = NULL;
    l->nameless = false;
    walk_and_learn(l, nodes, node, bytes, found);
    if (stranger)
        *stranger = l->stranger;
}

bool sqrl_locator_nameless(const struct sqrl_locator *l) {
    return l->stranger && l->nameless;
}

struct sqrl_locator *sqrl_locator_new(const struct sqrl_wants *wants,
                                      struct sqrl_error *err) {
    struct sqrl_locator *l = sqrl_calloc(1, sizeof *l, "layouts", err);
    if (!l)
        return NULL;
    l->wants = wants;
    l->stamp = sqrl_calloc(wants->nodes, sizeof *l->stamp, "layouts", err);
    if (l->stamp)
        return l;
    free(l);
    return NULL;
}

void sqrl_locator_free(struct sqrl_locator *l) {
    if (!l)
        return;
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        free(l->layout[i].step);
        free(l->layout[i].keys);
    }
    for (uint32_t i = 0; i < KNOWN_NAMES; i++)
        free(l->known[i].key);
    free(l->stamp);
    free(l->stranger);
    free(l);
}
