/* expression.h - the filter language, compiled to a short program with jumps.
 *
 *     or    := and { "or" and }          and  := not { "and" not }
 *     not   := { "not" } test            test := "(" or ")" | value [ comparison ]
 *     comparison := ("==" | "!=" | "<" | "<=" | ">" | ">=") value
 *                 | "is" ["not"] "null" | ["not"] "in" ( list | field )
 *                 | ("contains" | "startswith" | "endswith") value
 *                 | "fold" "[" seed "," from "," to "]"
 *     value := field | integer | float | string | true | false | null
 *     field := name { "." name }         list := "[" [ literal { "," literal } ] "]"
 *
 * `fold`: a value's place in [0, 1), which its hash and the seed decide, is at least
 * `from` and below `to`; values that are equal have one place, missing ones too.
 *
 * A name is letters, digits, _ and bytes above 127, or anything between backticks. A
 * value that stands alone is a condition: a boolean, or a number other than 0.
 */
#ifndef SQRL_STREAM_EXPRESSION_H
#define SQRL_STREAM_EXPRESSION_H

#include "base/base.h"
#include "sqrl/value.h"

struct sqrl_expression;

/* Parses `text`. A mistake is SQRL_E_INVALID with its column; nesting beyond 64, more
 * than 1 MiB of text or 1,024 fields is SQRL_E_LIMIT. */
SQRL_CHECK int sqrl_expression_parse(const char *text, struct sqrl_expression **out,
                                     struct sqrl_error *err);
void sqrl_expression_free(struct sqrl_expression *expression);

/* The fields that it reads, as dotted names (a dot within a name is "\."). */
uint32_t sqrl_expression_fields(const struct sqrl_expression *expression);
const char *sqrl_expression_field(const struct sqrl_expression *expression, uint32_t i);

/* True for a field that the expression tests for null: it may be missing everywhere. */
bool sqrl_expression_may_lack(const struct sqrl_expression *expression, uint32_t field);

/* Tests one sample. found[map[i]] is the node of field i, or SQRL_NO_NODE where the
 * sample lacks it; map[i] is SQRL_NO_NODE for a field that no sample can have. Any
 * thread. SQRL_E_TYPE when values of kinds that have no order are compared. */
SQRL_CHECK int sqrl_expression_test(const struct sqrl_expression *expression,
                                    const struct sqrl_node *nodes, const uint8_t *bytes,
                                    const uint32_t *found, const uint32_t *map, bool *out,
                                    struct sqrl_error *err);

#endif
