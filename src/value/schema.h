/* schema.h - the private half of schemas: one value's type, and how types join.
 *
 * Joining is commutative and associative (up to `first`, which tells the sample that
 * fixed the type), so that a schema doesn't depend on how samples were cut into blocks
 * and shards.
 */
#ifndef SQRL_VALUE_SCHEMA_H
#define SQRL_VALUE_SCHEMA_H

#include "base/base.h"
#include "sqrl/schema.h"

/* The type of one value, or of all values of a field so far. `shape` is borrowed. */
struct sqrl_value_type {
    enum sqrl_kind kind;
    enum sqrl_dtype dtype;
    bool python_number, negative;
    uint32_t dims;
    const uint64_t *shape;
};

/* Widens `field` so that it holds `type` too. `place` is where the value was seen. */
void sqrl_field_join(struct sqrl_field *field, const struct sqrl_value_type *type,
                     struct sqrl_place place);

/* The type of two plain numbers, or of plain numbers and array elements, together; false
 * when they clash. The parts of `a` are updated. */
bool sqrl_dtype_join(enum sqrl_dtype *a, bool *a_python, bool *a_negative,
                     enum sqrl_dtype b, bool b_python, bool b_negative);

/* Appends an empty field (SQRL_KIND_NULL, never seen). */
SQRL_CHECK int sqrl_schema_add(struct sqrl_schema *schema, const char *name, size_t size,
                               struct sqrl_error *err);

/* sqrl_schema_observe without the fields whose names `keep` refuses. Of a name that is
 * too long it sees the first SQRL_MAX_FIELD_NAME bytes. */
SQRL_CHECK int sqrl_schema_observe_only(struct sqrl_schema *schema,
                                        const struct sqrl_block *block,
                                        bool (*keep)(void *arg, const char *name),
                                        void *arg, struct sqrl_error *err);

/* sqrl_schema_merge where the other schema's samples begin at sample `begin` of ours:
 * places are moved by it. */
SQRL_CHECK int sqrl_schema_merge_at(struct sqrl_schema *schema,
                                    const struct sqrl_schema *other, uint64_t begin,
                                    struct sqrl_error *err);

/* Fields that not every sample had are nullable: to be called when counts have changed.
 */
void sqrl_schema_settle(struct sqrl_schema *schema);

#endif
