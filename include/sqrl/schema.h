/* sqrl/schema.h - the columns that samples make: names, kinds, dtypes, shapes.
 *
 * A shard's schema is fixed when it is written and kept in its footer; a batch has the
 * same columns and dtypes whatever samples it happens to hold. Nested maps become dotted
 * names ("meta.label"; a dot within a key is written "\.", a backslash "\\"). Lists of
 * numbers of one type are 1-D arrays of varying length.
 *
 * How values become fields: bool -> bool; int -> int64 (uint64 when a value is above
 * INT64_MAX and none is negative); float -> float64; int and float mixed -> float64;
 * integers both below 0 and above INT64_MAX -> float64, as NumPy does; string; binary;
 * ndarray -> its dtype and shape; null or a missing key -> nullable. Everything else
 * (mixed lists, lists of maps, dtypes without a number type) is SQRL_KIND_OTHER: it lives
 * in samples, but can't be a column. A sample that is no map is one field named "". Keys
 * that are no text, or hold a NUL, have no field. Of a list that was always empty only
 * "one dimension" is known: RAGGED int64 with shape[0] == 0 and python_number, which any
 * 1-D type replaces.
 */
#ifndef SQRL_SCHEMA_H
#define SQRL_SCHEMA_H

#include "block.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sqrl_kind {
    SQRL_KIND_NULL = 0, /* only null was seen so far */
    SQRL_KIND_DENSE,    /* every value has the same shape (dims 0: a scalar) */
    SQRL_KIND_RAGGED,   /* same dtype and number of dimensions, shapes vary */
    SQRL_KIND_STRING,   /* UTF-8 */
    SQRL_KIND_BINARY,
    SQRL_KIND_OTHER
};

struct sqrl_field {
    char *name;
    enum sqrl_kind kind;
    enum sqrl_dtype dtype; /* DENSE and RAGGED */
    bool python_number; /* came from plain numbers, not from arrays: int and float may mix
                         */
    bool nullable;
    bool negative; /* a plain integer below 0 was seen: int64 does not become uint64 */
    uint32_t dims;
    uint64_t
        shape[SQRL_MAX_DIMS]; /* DENSE: exact; RAGGED: the largest of each dimension */
    uint64_t seen;            /* samples that had the field, null or not */
    struct sqrl_place first;  /* the sample that fixed kind and dtype */
};

/* A growing list of fields. Zero-initialise it; sqrl_schema_reset frees it. */
struct sqrl_schema {
    struct sqrl_field *fields;
    uint32_t count, capacity;
    uint64_t samples; /* observed */
};

#define SQRL_MAX_FIELDS 4096
#define SQRL_MAX_FIELD_NAME 1024 /* bytes of a dotted name */
#define SQRL_MAX_FIELD_DEPTH 32  /* maps nested deeper are SQRL_KIND_OTHER */

SQRL_API void sqrl_schema_reset(struct sqrl_schema *schema);
SQRL_CHECK int sqrl_schema_copy(const struct sqrl_schema *from, struct sqrl_schema *to,
                                struct sqrl_error *err);
/* Index of a field or -1. */
SQRL_API int sqrl_schema_find(const struct sqrl_schema *schema, const char *name,
                              size_t size);
/* Widens the schema by all samples of a block. Never fails on clashing types: the field
 * becomes SQRL_KIND_OTHER (dtype or dims clash) or RAGGED (shapes clash). Fails with
 * SQRL_E_LIMIT above SQRL_MAX_FIELDS fields or on too long a name; only good for
 * sqrl_schema_reset then. */
SQRL_CHECK int sqrl_schema_observe(struct sqrl_schema *schema,
                                   const struct sqrl_block *block,
                                   struct sqrl_error *err);
/* The same for another schema (of another shard). */
SQRL_CHECK int sqrl_schema_merge(struct sqrl_schema *schema,
                                 const struct sqrl_schema *other, struct sqrl_error *err);
/* As a MessagePack array of maps {name, kind, dtype, shape, nullable, ...}, and back
 * (docs/formats/native-shard.md). Decoding sets `samples` to the most that a field was
 * seen: set it to the true count where that is known. */
SQRL_CHECK int sqrl_schema_encode(const struct sqrl_schema *schema,
                                  struct sqrl_bytes *out, struct sqrl_error *err);
SQRL_CHECK int sqrl_schema_decode(struct sqrl_schema *schema,
                                  const struct sqrl_node *nodes, uint32_t node,
                                  const uint8_t *bytes, struct sqrl_error *err);
/* "uint8[32,32,3]", "string", "int64?" (nullable), "float32[~,~]" (ragged). Returns
 * length. */
SQRL_API size_t sqrl_field_type_text(const struct sqrl_field *field, char *out,
                                     size_t size);
/* Reads such a text: for columns that the user declares. */
SQRL_CHECK int sqrl_field_parse(const char *name, const char *type,
                                struct sqrl_field *out, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
