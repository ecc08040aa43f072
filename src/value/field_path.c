/* field_path.c - a dotted name, taken apart once: where it leads to in each sample. */
#include <stdlib.h>

#include "value/value.h"

/* The parts lie one behind the other in `text`, without dots and escapes. */
int sqrl_field_path_parse(const char *name, struct sqrl_field_path *out,
                          struct sqrl_error *err) {
    size_t size = strlen(name), at = 0;
    *out = (struct sqrl_field_path){0};
    out->text = sqrl_malloc(size + 1, "field name", err);
    if (!out->text)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i <= size; i++) {
        if (name[i] == '.' || i == size) {
            if (out->parts == SQRL_FIELD_PATH_PARTS) {
                sqrl_field_path_reset(out);
                return sqrl_error_set(err, SQRL_E_LIMIT,
                                      "the name \"%.60s\" goes deeper than %d maps", name,
                                      SQRL_FIELD_PATH_PARTS);
            }
            out->end[out->parts++] = (uint32_t)at;
            continue;
        }
        if (name[i] == '\\' && (name[i + 1] == '.' || name[i + 1] == '\\'))
            i++;
        out->text[at++] = name[i];
    }
    return SQRL_OK;
}

void sqrl_field_path_reset(struct sqrl_field_path *path) {
    free(path->text);
    *path = (struct sqrl_field_path){0};
}

uint32_t sqrl_field_path_find(const struct sqrl_field_path *path,
                              const struct sqrl_node *nodes, uint32_t node,
                              const uint8_t *bytes) {
    uint32_t from = 0;
    for (uint32_t i = 0; i < path->parts && node != SQRL_NO_NODE; i++) {
        node = sqrl_map_find(nodes, node, bytes, path->text + from, path->end[i] - from);
        from = path->end[i];
    }
    return node;
}
