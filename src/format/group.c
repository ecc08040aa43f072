/* Field groups as a footer and a commit tell of them. */
#include "format/group.h"

#include <stdio.h>
#include <stdlib.h>

#include "sqrl/codec.h"

/* --- names --- */

int sqrl_names_find(const struct sqrl_names *names, const char *name, size_t size) {
    for (uint32_t i = 0; i < names->count; i++)
        if (strncmp(names->item[i], name, size) == 0 && !names->item[i][size])
            return (int)i;
    return -1;
}

int sqrl_names_add(struct sqrl_names *names, const char *name, size_t size,
                   struct sqrl_error *err) {
    if (sqrl_names_find(names, name, size) >= 0)
        return SQRL_OK;
    if (names->count == SQRL_MAX_GROUP_FIELDS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a group of more than %u fields",
                              SQRL_MAX_GROUP_FIELDS);
    if (names->count == names->capacity) {
        uint32_t capacity = names->capacity ? 2 * names->capacity : 8;
        char **item = sqrl_realloc(names->item, capacity * sizeof *item, "fields", err);
        if (!item)
            return SQRL_E_NO_MEMORY;
        names->item = item;
        names->capacity = capacity;
    }
    char *copy = sqrl_format(err, "%.*s", (int)size, name);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    names->item[names->count++] = copy;
    return SQRL_OK;
}

int sqrl_names_copy(const struct sqrl_names *from, struct sqrl_names *to,
                    struct sqrl_error *err) {
    *to = (struct sqrl_names){0};
    int rc = SQRL_OK;
    for (uint32_t i = 0; rc == SQRL_OK && i < from->count; i++)
        rc = sqrl_names_add(to, from->item[i], strlen(from->item[i]), err);
    return rc;
}

bool sqrl_names_equal(const struct sqrl_names *a, const struct sqrl_names *b) {
    bool same = a->count == b->count;
    for (uint32_t i = 0; same && i < a->count; i++)
        same = sqrl_names_find(b, a->item[i], strlen(a->item[i])) >= 0;
    return same;
}

void sqrl_names_reset(struct sqrl_names *names) {
    for (uint32_t i = 0; i < names->count; i++)
        free(names->item[i]);
    free(names->item);
    *names = (struct sqrl_names){0};
}

int sqrl_names_encode(const struct sqrl_names *names, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    int rc = sqrl_msgpack_put_array(out, names->count, err);
    for (uint32_t i = 0; rc == SQRL_OK && i < names->count; i++)
        rc = sqrl_msgpack_put_string(out, names->item[i], strlen(names->item[i]), err);
    return rc;
}

static int bad(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "what it says of groups of fields is not valid: it was damaged "
                          "or written by a faulty program");
}

int sqrl_names_decode(struct sqrl_names *names, const struct sqrl_node *nodes,
                      uint32_t node, const uint8_t *bytes, struct sqrl_error *err) {
    *names = (struct sqrl_names){0};
    if (node == SQRL_NO_NODE || nodes[node].type != SQRL_ARRAY ||
        nodes[node].size > SQRL_MAX_GROUP_FIELDS)
        return bad(err);
    for (uint32_t i = 0; i < nodes[node].size; i++) {
        const struct sqrl_node *text = &nodes[node + 1 + i];
        if (text->type != SQRL_STRING || memchr(bytes + text->v.offset, 0, text->size))
            return bad(err);
        int rc =
            sqrl_names_add(names, (const char *)bytes + text->v.offset, text->size, err);
        if (rc)
            return rc;
        if (names->count != i + 1)
            return bad(err);
    }
    return SQRL_OK;
}

/* --- families --- */

bool sqrl_group_name_valid(const char *name, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!((name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'z') ||
              (name[i] >= 'A' && name[i] <= 'Z') || name[i] == '_' || name[i] == '-'))
            return false;
    return size > 0 && size <= SQRL_MAX_GROUP_NAME;
}

static void put_family(char out[SQRL_FAMILY_BYTES], uint64_t a, uint64_t b) {
    snprintf(out, SQRL_FAMILY_BYTES, "%016llx%016llx", (unsigned long long)a,
             (unsigned long long)b);
}

int sqrl_family_new(char out[SQRL_FAMILY_BYTES], struct sqrl_error *err) {
    uint64_t random[2];
    memset(out, 0, SQRL_FAMILY_BYTES);
    int rc = sqrl_random_bytes(random, sizeof random, err);
    if (rc == SQRL_OK)
        put_family(out, random[0], random[1]);
    return rc;
}

void sqrl_family_of(uint64_t footer_checksum, const char *name,
                    char out[SQRL_FAMILY_BYTES]) {
    put_family(out, footer_checksum, sqrl_xxh3(name, strlen(name)));
}

/* --- groups --- */

void sqrl_group_reset(struct sqrl_group *group) {
    free(group->name);
    sqrl_names_reset(&group->fields);
    *group = (struct sqrl_group){0};
}

int sqrl_group_copy(const struct sqrl_group *from, struct sqrl_group *to,
                    struct sqrl_error *err) {
    *to = *from;
    to->fields = (struct sqrl_names){0};
    to->name = from->name ? sqrl_strdup(from->name, err) : NULL;
    int rc = from->name && !to->name ? SQRL_E_NO_MEMORY
                                     : sqrl_names_copy(&from->fields, &to->fields, err);
    if (rc)
        sqrl_group_reset(to);
    return rc;
}

static int put_text(struct sqrl_bytes *out, const char *text, struct sqrl_error *err) {
    return sqrl_msgpack_put_string(out, text, strlen(text), err);
}

static int put_flag(struct sqrl_bytes *out, const char *key, bool value,
                    struct sqrl_error *err) {
    if (!value)
        return SQRL_OK;
    int rc = put_text(out, key, err);
    return rc ? rc : sqrl_msgpack_put_bool(out, true, err);
}

int sqrl_group_encode(const struct sqrl_group *group, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    bool family = group->family[0] != 0;
    int rc = sqrl_msgpack_put_map(out, 2u + family + group->base + group->added, err);
    if (rc == SQRL_OK && family)
        rc = put_text(out, "family", err);
    if (rc == SQRL_OK && family)
        rc = put_text(out, group->family, err);
    if (rc == SQRL_OK)
        rc = put_text(out, "name", err);
    if (rc == SQRL_OK)
        rc = put_text(out, group->name, err);
    if (rc == SQRL_OK)
        rc = put_flag(out, "base", group->base, err);
    if (rc == SQRL_OK)
        rc = put_flag(out, "added", group->added, err);
    if (rc == SQRL_OK)
        rc = put_text(out, "fields", err);
    return rc ? rc : sqrl_names_encode(&group->fields, out, err);
}

static const struct sqrl_node *get(const struct sqrl_node *nodes, uint32_t map,
                                   const uint8_t *bytes, const char *key) {
    uint32_t at = sqrl_map_find(nodes, map, bytes, key, strlen(key));
    return at == SQRL_NO_NODE ? NULL : &nodes[at];
}

static bool get_flag(const struct sqrl_node *node, bool *out) {
    *out = node && node->type == SQRL_BOOL && node->v.u;
    return !node || node->type == SQRL_BOOL;
}

int sqrl_group_decode(struct sqrl_group *group, const struct sqrl_node *nodes,
                      uint32_t node, const uint8_t *bytes, struct sqrl_error *err) {
    *group = (struct sqrl_group){0};
    if (nodes[node].type != SQRL_MAP)
        return bad(err);
    const struct sqrl_node *family = get(nodes, node, bytes, "family");
    const struct sqrl_node *name = get(nodes, node, bytes, "name");
    if ((family &&
         (family->type != SQRL_STRING || family->size != SQRL_FAMILY_BYTES - 1)) ||
        !name || name->type != SQRL_STRING ||
        (name->size &&
         !sqrl_group_name_valid((const char *)bytes + name->v.offset, name->size)) ||
        !get_flag(get(nodes, node, bytes, "base"), &group->base) ||
        !get_flag(get(nodes, node, bytes, "added"), &group->added))
        return bad(err);
    group->base = group->base || !name->size;
    for (uint32_t i = 0; family && i < family->size; i++) {
        char c = (char)bytes[family->v.offset + i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return bad(err);
        group->family[i] = c;
    }
    group->name =
        sqrl_format(err, "%.*s", (int)name->size, (const char *)bytes + name->v.offset);
    if (!group->name)
        return SQRL_E_NO_MEMORY;
    return sqrl_names_decode(&group->fields, nodes,
                             sqrl_map_find(nodes, node, bytes, "fields", 6), bytes, err);
}
