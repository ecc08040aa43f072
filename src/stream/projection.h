/* projection.h - what becomes of field names under select, drop and rename.
 *
 * Names are dotted paths ("meta.site"; a dot or backslash within a key has a
 * backslash before it). As long as no stage reaches
 * into a map, the map passes whole; a stage that does takes it apart: its fields go on
 * one by one under their dotted names.
 */
#ifndef SQRL_STREAM_PROJECTION_H
#define SQRL_STREAM_PROJECTION_H

#include "base/base.h"
#include "sqrl/stream.h"

/* A dotted name cut into keys, unescaped. */
struct sqrl_path {
    char *text; /* as written */
    char *keys; /* unescaped keys, one after another */
    uint32_t count;
    struct sqrl_path_key {
        const char *name;
        uint32_t size;
    } * key; /* [count] */
};
#define SQRL_MAX_PATH_KEYS 64u
SQRL_CHECK int sqrl_path_parse(struct sqrl_path *path, const char *text,
                               struct sqrl_error *err);
void sqrl_path_reset(struct sqrl_path *path);
/* The node that a path leads to from `node`, skipping its first `from` keys. */
uint32_t sqrl_path_find(const struct sqrl_path *path, uint32_t from,
                        const struct sqrl_node *nodes, uint32_t node,
                        const uint8_t *bytes);
/* True when `name` is `path` or lies below it ("meta" covers "meta.site"). */
bool sqrl_name_covers(const char *path, const char *name);

enum sqrl_name_stage { SQRL_NAMES_SELECT, SQRL_NAMES_DROP, SQRL_NAMES_RENAME };

/* One more stage behind `before` (NULL: none yet), which must outlive the new one. */
SQRL_CHECK int sqrl_projection_new(const struct sqrl_projection *before,
                                   enum sqrl_name_stage stage, const char *const *names,
                                   const char *const *to, size_t count,
                                   struct sqrl_projection **out, struct sqrl_error *err);
void sqrl_projection_free(struct sqrl_projection *projection);
/* The names of the last stage, for descriptions. */
size_t sqrl_projection_names(const struct sqrl_projection *projection,
                             enum sqrl_name_stage *stage);
const char *sqrl_projection_name(const struct sqrl_projection *projection, size_t i,
                                 bool to);

const struct sqrl_projection *
sqrl_projection_before(const struct sqrl_projection *projection);

/* Whether something of this field of the source comes out (a key of samples, not
 * escaped): surely not, or perhaps. */
SQRL_CHECK int sqrl_projection_keeps(const struct sqrl_projection *projection,
                                     const char *field, bool *out,
                                     struct sqrl_error *err);

/* Which name of the source `name` was before these stages; *out is malloc'd, or NULL when
 * no sample can have it any more. `projection` may be NULL. */
SQRL_CHECK int sqrl_projection_origin(const struct sqrl_projection *projection,
                                      const char *name, char **out,
                                      struct sqrl_error *err);

/* True when samples are possible whose fields come out under one name. */
bool sqrl_projection_may_clash(const struct sqrl_projection *projection);
/* SQRL_E_TYPE when two fields of this sample come out under one name; the error names
 * both. */
SQRL_CHECK int sqrl_projection_check(const struct sqrl_projection *projection,
                                     const struct sqrl_block *block, uint32_t index,
                                     struct sqrl_error *err);

/* A list of fields of a source as they come out. */
struct sqrl_name_map {
    struct sqrl_name_pair {
        char *out;
        char *origin;
        uint32_t tag; /* the caller's number of the source's field */
    } * pair;
    size_t count, capacity;
};
void sqrl_name_map_reset(struct sqrl_name_map *map);
SQRL_CHECK int sqrl_name_map_add(struct sqrl_name_map *map, const char *name,
                                 uint32_t tag, struct sqrl_error *err);
/* Runs all stages over the list: out names and their order change, fields vanish. */
SQRL_CHECK int sqrl_projection_map(const struct sqrl_projection *projection,
                                   struct sqrl_name_map *map, struct sqrl_error *err);

#endif
