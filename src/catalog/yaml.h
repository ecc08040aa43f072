/* yaml.h - one document, YAML or JSON, as a tape, and back.
 *
 * The strict subset that catalogs need: maps with scalar keys, sequences, and scalars
 * with the meaning that squirrel-core's reader (ruamel.yaml, YAML 1.2) gives them. No
 * tags but squirrel-core's three, no merge keys, no duplicate keys, one document. Aliases
 * are expanded under the node cap. Dates stay texts. */
#ifndef SQRL_CATALOG_YAML_H
#define SQRL_CATALOG_YAML_H

#include "value/value.h"

enum {
    SQRL_YAML_MAX_DEPTH = 100,
    SQRL_YAML_MAX_NODES = 4 << 20,
    SQRL_YAML_MAX_BYTES = 256 << 20
};

/* Where a node began; both from 1. */
struct sqrl_yaml_mark {
    uint32_t line, column;
};

/* What was read: node 0 is the document. Zero-initialise. */
struct sqrl_yaml {
    struct sqrl_tape tape;
    struct sqrl_bytes text;      /* what the nodes point into */
    struct sqrl_yaml_mark *mark; /* [tape.capacity], beside the nodes; JSON: NULL */
    uint32_t mark_capacity;
};
void sqrl_yaml_reset(struct sqrl_yaml *yaml);

/* Reads one document. Tags: !YamlCatalog on the document, !YamlSource on maps in a
 * sequence in it, !CatalogKey on a sequence anywhere, which becomes an EXT node of type
 * SQRL_CATALOG_KEY_EXT with the sequence as MessagePack. Errors name line and column. */
SQRL_CHECK int sqrl_yaml_read(struct sqrl_yaml *out, const char *text, size_t size,
                              struct sqrl_error *err);
/* The same for JSON, which has {"!CatalogKey": [name, version]} for the tagged sequence;
 * no map holds a key twice. NaN, Infinity and -Infinity are read. */
SQRL_CHECK int sqrl_catalog_json_read(struct sqrl_yaml *out, const char *text,
                                      size_t size, struct sqrl_error *err);
/* Writes the error with the node's line and column in front. Returns `code`. */
int sqrl_yaml_error(const struct sqrl_yaml *yaml, uint32_t node, struct sqrl_error *err,
                    int code, const char *format, ...) SQRL_PRINTF(5, 6);

/* A plain (unquoted) scalar's meaning: fills `node` with NULL, BOOL, INT, UINT or FLOAT,
 * or with STRING (v and flags unset) where it is just a text, EXT (v unset) where that is
 * a date or time. An integer beyond 64 bits is SQRL_E_LIMIT. */
SQRL_CHECK int sqrl_yaml_resolve(const char *text, size_t size, struct sqrl_node *node,
                                 struct sqrl_error *err);

/* A date or time in its one form, 2024-01-31 or 2024-01-31 12:00:00.500000+02:00, into
 * `out` of SQRL_CATALOG_TIME_BYTES; its size. 0: the text is none. */
enum { SQRL_CATALOG_TIME_BYTES = 48 };
size_t sqrl_catalog_time(const char *text, size_t size, char *out);

/* Appends a value in block style as it stands behind "key:" at `indent` spaces, the
 * newline included: " 3\n", or "\n" and the lines of a map or sequence. */
SQRL_CHECK int sqrl_yaml_write(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                               uint32_t node, const uint8_t *bytes, unsigned indent,
                               struct sqrl_error *err);
/* Appends a text as a scalar: plain where every reader takes it as a text, else quoted.
 */
SQRL_CHECK int sqrl_yaml_write_text(struct sqrl_bytes *out, const char *text, size_t size,
                                    struct sqrl_error *err);

/* Appends a value as canonical JSON: no blanks, keys in the order of their UTF-8 bytes,
 * integers in decimal, floats in the shortest form that reads back equal, NaN and
 * infinities as Python's json has them, texts with no escapes but those JSON demands. */
SQRL_CHECK int sqrl_catalog_json_write(struct sqrl_bytes *out,
                                       const struct sqrl_node *nodes, uint32_t node,
                                       const uint8_t *bytes, struct sqrl_error *err);
/* A !CatalogKey's name and version out of its EXT node; `tape` is scratch that holds
 * them: node 1 is the name with its offset from *packed, node 2 the version. */
SQRL_CHECK int sqrl_catalog_key_decode(const struct sqrl_node *ext, const uint8_t *bytes,
                                       struct sqrl_tape *tape, const uint8_t **packed,
                                       struct sqrl_error *err);

#endif
