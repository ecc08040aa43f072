/* yaml_edges.h - what YAML 1.2 forbids and libyaml reads, found in the text itself.
 *
 * The parser tells where its events stand, as numbers of characters in order; this looks
 * at the bytes there and between them. Every check returns NULL, or what is wrong. */
#ifndef SQRL_CATALOG_YAML_EDGES_H
#define SQRL_CATALOG_YAML_EDGES_H

#include "base/base.h"

struct sqrl_yaml_edges {
    const unsigned char *text;
    size_t size;
    size_t byte, character; /* the byte at which a character stands */
    size_t seen;            /* the byte behind the last event */
};

/* The byte at which a character stands; characters are asked for in order, one that lies
 * before the last one asked for gives that one's byte. */
size_t sqrl_yaml_byte_at(struct sqrl_yaml_edges *edges, size_t character);
/* Between the last event and `begin`: a comment needs a blank in front. */
const char *sqrl_yaml_check_gap(const struct sqrl_yaml_edges *edges, size_t begin);
/* A plain scalar within [] or {}. */
const char *sqrl_yaml_check_dash(const struct sqrl_yaml_edges *edges, size_t begin,
                                 size_t end);
/* A scalar: libyaml takes the ? right in front of it for that of a key. */
const char *sqrl_yaml_check_mark(const struct sqrl_yaml_edges *edges, size_t begin);
/* An anchor or an alias at a byte. */
const char *sqrl_yaml_check_name(const struct sqrl_yaml_edges *edges, size_t begin);
/* The lines of a quoted text, or of [] or {} with their comments: all but the first are
 * indented further than `column` (-1: need not be), by spaces. */
const char *sqrl_yaml_check_lines(const struct sqrl_yaml_edges *edges, size_t begin,
                                  size_t end, int64_t column, bool comments);

#endif
