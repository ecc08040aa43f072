/* group.h - field groups: what a shard's footer says of the fields that it holds.
 *
 * A data set may keep its fields in several shards of one family: all have the same
 * samples, and each holds some of their fields. One of them, the base, gives the
 * numbering and the blocks in which whole samples are read; the others are joined to it.
 * docs/formats/native-shard.md, section 6.
 */
#ifndef SQRL_FORMAT_GROUP_H
#define SQRL_FORMAT_GROUP_H

#include "base/base.h"
#include "sqrl/value.h"

#define SQRL_FAMILY_BYTES 33 /* 32 hexadecimal digits and NUL */
#define SQRL_MAX_GROUP_NAME 64u
#define SQRL_MAX_GROUP_FIELDS 4096u
#define SQRL_GROUP_REST "rest" /* the group of fields that were given to no other */

/* Names of fields (keys of a sample, not escaped), each once, in the order they came. */
struct sqrl_names {
    char **item;
    uint32_t count, capacity;
};
/* Position, or -1. */
int sqrl_names_find(const struct sqrl_names *names, const char *name, size_t size);
/* Adds it unless it is there. SQRL_E_LIMIT above SQRL_MAX_GROUP_FIELDS. */
SQRL_CHECK int sqrl_names_add(struct sqrl_names *names, const char *name, size_t size,
                              struct sqrl_error *err);
SQRL_CHECK int sqrl_names_copy(const struct sqrl_names *from, struct sqrl_names *to,
                               struct sqrl_error *err);
bool sqrl_names_equal(const struct sqrl_names *a, const struct sqrl_names *b);
void sqrl_names_reset(struct sqrl_names *names);

/* Zero-initialise; family[0] == 0: the shard holds whole samples. */
struct sqrl_group {
    char family[SQRL_FAMILY_BYTES];
    char *name; /* "" is a base, too */
    bool base;  /* the one that the others are joined to */
    bool added; /* written later than the base */
    struct sqrl_names fields;
};
void sqrl_group_reset(struct sqrl_group *group);
SQRL_CHECK int sqrl_group_copy(const struct sqrl_group *from, struct sqrl_group *to,
                               struct sqrl_error *err);
/* True for 1 to 64 letters, digits, '_' and '-': it becomes part of files' names. */
bool sqrl_group_name_valid(const char *name, size_t size);
/* A family that no other shard has. */
SQRL_CHECK int sqrl_family_new(char out[SQRL_FAMILY_BYTES], struct sqrl_error *err);
/* The family of a shard that was written without groups. */
void sqrl_family_of(uint64_t footer_checksum, const char *name,
                    char out[SQRL_FAMILY_BYTES]);

/* As the value of "group" in a footer, or in a commit, which tells no family, and back;
 * SQRL_E_CORRUPT. Reset also on failure. */
SQRL_CHECK int sqrl_group_encode(const struct sqrl_group *group, struct sqrl_bytes *out,
                                 struct sqrl_error *err);
SQRL_CHECK int sqrl_group_decode(struct sqrl_group *group, const struct sqrl_node *nodes,
                                 uint32_t node, const uint8_t *bytes,
                                 struct sqrl_error *err);
/* The list of names alone. */
SQRL_CHECK int sqrl_names_encode(const struct sqrl_names *names, struct sqrl_bytes *out,
                                 struct sqrl_error *err);
SQRL_CHECK int sqrl_names_decode(struct sqrl_names *names, const struct sqrl_node *nodes,
                                 uint32_t node, const uint8_t *bytes,
                                 struct sqrl_error *err);

#endif
