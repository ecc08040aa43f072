/* projection.c - the stages, and what they make of names alone: columns and filters are
 * resolved once. What they make of a sample: projection_sample.c.
 */
#include "stream/projection_private.h"

#include <stdlib.h>

#define SQRL_MAX_CHAIN 256u

/* --- paths --- */

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

const struct sqrl_projection *sqrl_projection_before(const struct sqrl_projection *p) {
    return p->before;
}

/* --- names alone --- */

/* The names under which parts of a field go on. */
struct alive {
    char **name;
    size_t count, capacity;
};

static int alive_add(struct alive *alive, const char *name, struct sqrl_error *err) {
    if (alive->count == alive->capacity) {
        size_t room = alive->capacity ? 2 * alive->capacity : 4;
        char **grown = sqrl_realloc(alive->name, room * sizeof *grown, "names", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        alive->name = grown;
        alive->capacity = room;
    }
    char *copy = sqrl_strdup(name, err);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    alive->name[alive->count++] = copy;
    return SQRL_OK;
}

static void alive_reset(struct alive *alive) {
    for (size_t i = 0; i < alive->count; i++)
        free(alive->name[i]);
    free(alive->name);
    *alive = (struct alive){0};
}

/* One name through one stage. */
static int alive_step(const struct sqrl_projection *p, const char *name, struct alive *to,
                      struct sqrl_error *err) {
    bool stays = p->stage != SQRL_NAMES_SELECT;
    int code = SQRL_OK;
    for (size_t i = 0; i < p->count && !code; i++) {
        const char *path = p->path[i].text;
        bool whole = sqrl_name_covers(path, name), part = sqrl_name_covers(name, path);
        if (p->stage == SQRL_NAMES_SELECT) {
            if (whole || part)
                code = alive_add(to, whole ? name : path, err);
        } else if (p->stage == SQRL_NAMES_DROP) {
            stays = stays && !whole;
        } else if (whole || part) {
            char *now =
                sqrl_format(err, "%s%s", p->to[i], whole ? name + strlen(path) : "");
            code = now ? alive_add(to, now, err) : SQRL_E_NO_MEMORY;
            free(now);
            stays = stays && !whole;
        }
    }
    return code || !stays ? code : alive_add(to, name, err);
}

static char *escape(const char *field, struct sqrl_error *err) {
    char *out = sqrl_malloc(2 * strlen(field) + 1, "name", err), *to = out;
    for (const char *s = field; out && *s; s++) {
        if (*s == '.' || *s == '\\')
            *to++ = '\\';
        *to++ = *s;
    }
    if (out)
        *to = 0;
    return out;
}

int sqrl_projection_keeps(const struct sqrl_projection *projection, const char *field,
                          bool *out, struct sqrl_error *err) {
    const struct sqrl_projection *chain[SQRL_MAX_CHAIN];
    struct alive alive = {0};
    size_t stages = 0;
    *out = true;
    for (const struct sqrl_projection *p = projection; p; p = p->before) {
        if (stages == SQRL_MAX_CHAIN)
            return SQRL_OK; /* opening the plan says what is wrong */
        chain[stages++] = p;
    }
    char *name = escape(field, err);
    int code = name ? alive_add(&alive, name, err) : SQRL_E_NO_MEMORY;
    free(name);
    while (stages && !code) {
        const struct sqrl_projection *p = chain[--stages];
        struct alive to = {0};
        for (size_t i = 0; i < alive.count && !code; i++)
            code = alive_step(p, alive.name[i], &to, err);
        alive_reset(&alive);
        alive = to;
    }
    *out = code || alive.count > 0;
    alive_reset(&alive);
    return code;
}

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
    const struct sqrl_projection *chain[SQRL_MAX_CHAIN];
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
