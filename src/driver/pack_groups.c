/* pack_groups.c - samples split into groups of fields.
 *
 * A sample's pairs are told apart by their keys, and their bytes copied as they are. The
 * last lane takes what is in no other group; where it never gets anything its shards go
 * away again. The base is the group that has the most bytes in the first block's worth of
 * samples: its blocks become those of whole samples, and should be the finest. */
#include <stdlib.h>

#include "driver/pack_inner.h"
#include "driver/source.h"
#include "value/value.h"

/* --- options --- */

static int bad_name(const char *name, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "a group's name has 1 to %u letters, digits, '_' and '-', and "
                          "is not \"" SQRL_GROUP_REST "\": \"%.80s\"",
                          SQRL_MAX_GROUP_NAME, name ? name : "");
}

static int check_group(const struct sqrl_packer *p, const struct sqrl_pack_group *group,
                       uint32_t lanes, struct sqrl_error *err) {
    if (!group->name || !sqrl_group_name_valid(group->name, strlen(group->name)) ||
        strcmp(group->name, SQRL_GROUP_REST) == 0)
        return bad_name(group->name, err);
    for (uint32_t i = 0; i < lanes; i++)
        if (strcmp(p->lane[i].group.name, group->name) == 0)
            return sqrl_error_set(err, SQRL_E_INVALID, "the group \"%s\" is named twice",
                                  group->name);
    if (!group->field_count)
        return sqrl_error_set(err, SQRL_E_INVALID, "the group \"%s\" has no fields",
                              group->name);
    return SQRL_OK;
}

/* Fields are keys of samples: a part of a map can't be in another group than the map. */
static int add_field(const struct sqrl_packer *p, struct sqrl_pack_lane *lane,
                     uint32_t lanes, const char *dotted, struct sqrl_error *err) {
    char *name = sqrl_top_field(dotted, err);
    if (!name)
        return SQRL_E_NO_MEMORY;
    size_t size = strlen(name), escapes = 0;
    for (const char *s = dotted; *s; s++)
        if (s[0] == '\\' && (s[1] == '.' || s[1] == '\\')) {
            escapes++;
            s++;
        }
    int rc = SQRL_OK;
    if (!size || size + escapes != strlen(dotted))
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "groups hold whole fields of samples: \"%.120s\" %s%.120s%s",
                            dotted, size ? "is a part of \"" : "is none", name,
                            size ? "\"" : "");
    for (uint32_t i = 0; rc == SQRL_OK && i < lanes; i++)
        if (sqrl_names_find(&p->lane[i].group.fields, name, size) >= 0)
            rc = sqrl_error_set(err, SQRL_E_INVALID,
                                "the field \"%.120s\" is in two groups, \"%s\" and "
                                "\"%s\"",
                                name, p->lane[i].group.name, lane->group.name);
    if (rc == SQRL_OK)
        rc = sqrl_names_add(&lane->group.fields, name, size, err);
    free(name);
    return rc;
}

/* The lane that takes a field; the last one takes what is left. */
static uint32_t lane_of(const struct sqrl_packer *p, const char *name, size_t size) {
    for (uint32_t i = 0; i + 1 < p->lanes; i++)
        if (sqrl_names_find(&p->lane[i].group.fields, name, size) >= 0)
            return i;
    return p->lanes - 1;
}

/* Those names of a list that are the lane's, separated by commas; NULL: none. */
static char *own_names(const struct sqrl_packer *p, uint32_t lane, const char *names,
                       bool list, struct sqrl_error *err) {
    char *out = sqrl_malloc(strlen(names) + 1, "settings", err), *to = out;
    for (const char *at = names; out && *at;) {
        size_t size = list ? strcspn(at, ",") : strlen(at);
        char *one = sqrl_format(err, "%.*s", (int)size, at);
        char *top = one ? sqrl_top_field(one, err) : NULL;
        if (top && lane_of(p, top, strlen(top)) == lane) {
            if (to > out)
                *to++ = ',';
            memcpy(to, at, size);
            to += size;
        }
        free(top);
        free(one);
        at += size + (at[size] == ',');
    }
    if (out)
        *to = 0;
    return out;
}

/* Keys and columns go to the lane that has their field. */
static int lane_settings(struct sqrl_packer *p, uint32_t number, struct sqrl_error *err) {
    const struct sqrl_settings *all = &p->target.settings;
    struct sqrl_setting *items =
        sqrl_calloc(all->count + 1, sizeof *items, "settings", err);
    char *owned[2] = {NULL, NULL};
    size_t count = 0, made = 0;
    int rc = items ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; rc == SQRL_OK && i < all->count; i++) {
        struct sqrl_setting item = all->items[i];
        bool key = strcmp(item.name, "key") == 0, index = strcmp(item.name, "index") == 0;
        if ((key || index) && made < 2) {
            owned[made] = own_names(p, number, item.value, index, err);
            item.value = owned[made++];
            rc = item.value ? SQRL_OK : SQRL_E_NO_MEMORY;
        }
        if (rc == SQRL_OK && (*item.value || !(key || index)))
            items[count++] = item;
    }
    if (rc == SQRL_OK)
        rc = sqrl_settings_copy(&(struct sqrl_settings){items, count},
                                &p->lane[number].settings, err);
    free(owned[0]);
    free(owned[1]);
    free(items);
    return rc;
}

int sqrl_pack_groups_open(struct sqrl_packer *p, const struct sqrl_pack_options *options,
                          struct sqrl_error *err) {
    int rc = SQRL_OK;
    p->base = SQRL_NO_BASE;
    if (!p->target.native)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "groups of fields need a directory of native shards as "
                              "destination");
    for (uint32_t i = 0; rc == SQRL_OK && i + 1 < p->lanes; i++) {
        const struct sqrl_pack_group *from = &options->groups[i];
        rc = check_group(p, from, i, err);
        if (rc == SQRL_OK)
            p->lane[i].group.name = sqrl_strdup(from->name, err);
        if (rc == SQRL_OK && !p->lane[i].group.name)
            rc = SQRL_E_NO_MEMORY;
        for (size_t f = 0; rc == SQRL_OK && f < from->field_count; f++)
            rc = add_field(p, &p->lane[i], i + 1, from->fields[f], err);
        if (rc == SQRL_OK) {
            p->lane[i].met =
                sqrl_calloc(from->field_count, sizeof *p->lane[i].met, "groups", err);
            rc = p->lane[i].met ? SQRL_OK : SQRL_E_NO_MEMORY;
        }
    }
    struct sqrl_pack_lane *rest = &p->lane[p->lanes - 1];
    if (rc == SQRL_OK) {
        rest->grows = true;
        rest->group.name = sqrl_strdup(SQRL_GROUP_REST, err);
        rc = rest->group.name ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    for (uint32_t i = 0; rc == SQRL_OK && i < p->lanes; i++)
        rc = lane_settings(p, i, err);
    return rc;
}

void sqrl_pack_choose_base(struct sqrl_packer *p) {
    p->base = 0;
    for (uint32_t i = 1; i < p->lanes; i++)
        if (p->lane[i].total > p->lane[p->base].total)
            p->base = i;
}

int sqrl_pack_check_names(const struct sqrl_packer *p, struct sqrl_error *err) {
    const struct sqrl_names *rest = &p->lane[p->lanes - 1].group.fields;
    bool any = false;
    for (uint32_t i = 0; i + 1 < p->lanes; i++)
        for (uint32_t f = 0; f < p->lane[i].group.fields.count; f++)
            any = any || p->lane[i].met[f];
    for (uint32_t i = 0; i + 1 < p->lanes && (any || rest->count); i++) {
        const struct sqrl_group *group = &p->lane[i].group;
        for (uint32_t f = 0; f < group->fields.count; f++) {
            const char *name = group->fields.item[f];
            if (p->lane[i].met[f])
                continue;
            const char *near =
                sqrl_nearest(name, (const char *const *)rest->item, rest->count);
            if (near)
                return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                                      "no sample has the field \"%.120s\" of the group "
                                      "\"%s\"; did you mean \"%.120s\", which is in no "
                                      "group?",
                                      name, group->name, near);
            sqrl_log(p->context, SQRL_LOG_WARNING,
                     "no sample has the field \"%.120s\" of the group \"%s\"", name,
                     group->name);
        }
    }
    return SQRL_OK;
}

void sqrl_pack_drop_rest(struct sqrl_packer *p) {
    const struct sqrl_pack_lane *rest = &p->lane[p->lanes - 1];
    if (!rest->grows || rest->group.fields.count || p->base == p->lanes - 1)
        return;
    char *end = sqrl_format(NULL, ".%s%s", SQRL_GROUP_REST, p->target.suffix);
    for (size_t i = p->name_count; end && i-- > 0;)
        if (sqrl_suffix_fits(end, p->names[i], NULL))
            sqrl_pack_drop_name(p, i);
    free(end);
}

/* --- splitting --- */

/* One pair of the sample: where it lies, and whose it is. */
struct piece {
    size_t from, to;
    uint32_t lane;
};

static int no_sample(struct sqrl_error *err, bool map) {
    if (!map)
        return sqrl_error_set(err, SQRL_E_TYPE,
                              "the sample is no map of named fields, so it can't be kept "
                              "in groups of fields");
    return sqrl_error_set(err, SQRL_E_CORRUPT, "the sample is no whole MessagePack map");
}

/* Whose a pair is; SQRL_NO_NODE: nobody's. */
static int take_key(struct sqrl_packer *p, size_t at, uint32_t *lane,
                    struct sqrl_error *err) {
    const char *name = "";
    size_t size = 0;
    bool text = sqrl_msgpack_text(p->spare.data, p->spare.size, at, &name, &size) &&
                !memchr(name, 0, size);
    *lane = p->add ? 0 : text ? lane_of(p, name, size) : p->lanes - 1;
    struct sqrl_pack_lane *to = &p->lane[*lane];
    if (p->add && !text)
        return sqrl_error_set(err, SQRL_E_TYPE,
                              "a key of the sample is no text, so it can't be a field");
    if (p->add && sqrl_pack_add_skips(p, name, size)) {
        *lane = SQRL_NO_NODE;
        return SQRL_OK;
    }
    int known = sqrl_names_find(&to->group.fields, name, size);
    if (known >= 0 && to->met)
        to->met[known] = true;
    if (known >= 0)
        return SQRL_OK;
    if (!to->grows)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "the sample has the field \"%.*s\", which is none of the "
                              "group \"%s\"",
                              (int)SQRL_MIN(size, 120u), name, to->group.name);
    int rc = p->add ? sqrl_pack_add_field(p, name, size, err) : SQRL_OK;
    return rc ? rc : sqrl_names_add(&to->group.fields, name, size, err);
}

static int find_pieces(struct sqrl_packer *p, struct sqrl_error *err) {
    const uint8_t *bytes = p->spare.data;
    size_t size = p->spare.size, at = 0;
    uint32_t pairs = 0;
    p->pieces.size = 0;
    if (!sqrl_msgpack_map(bytes, size, &at, &pairs))
        return no_sample(err, false);
    for (uint32_t i = 0; i < pairs; i++) {
        struct piece piece = {.from = at};
        if (!sqrl_msgpack_skip(bytes, size, &at) || !sqrl_msgpack_skip(bytes, size, &at))
            return no_sample(err, true);
        piece.to = at;
        int rc = take_key(p, piece.from, &piece.lane, err);
        if (rc == SQRL_OK && piece.lane != SQRL_NO_NODE) {
            rc = sqrl_bytes_append(&p->pieces, &piece, sizeof piece, err);
            p->lane[piece.lane].pairs++;
        }
        if (rc)
            return rc;
    }
    return at == size ? SQRL_OK : no_sample(err, true);
}

int sqrl_pack_split(struct sqrl_packer *p, struct sqrl_error *err) {
    for (uint32_t i = 0; i < p->lanes; i++)
        p->lane[i].pairs = 0;
    int rc = find_pieces(p, err);
    for (uint32_t i = 0; rc == SQRL_OK && i < p->lanes; i++) {
        struct sqrl_pack_lane *lane = &p->lane[i];
        rc = sqrl_pack_make_room(p, lane, err);
        if (rc == SQRL_OK)
            rc = sqrl_msgpack_put_map(&lane->current->bytes, lane->pairs, err);
    }
    size_t count = p->pieces.size / sizeof(struct piece);
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        struct piece piece;
        memcpy(&piece, p->pieces.data + i * sizeof piece, sizeof piece);
        rc = sqrl_bytes_append(&p->lane[piece.lane].current->bytes,
                               p->spare.data + piece.from, piece.to - piece.from, err);
    }
    return rc;
}
