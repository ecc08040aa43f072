/* expression_private.h - the program that the parser writes and the evaluator runs.
 *
 * One condition register and forward jumps are enough: "a and b" is a, JUMP_FALSE end, b.
 * So there is no stack, and a test costs what the operators in it cost.
 */
#ifndef SQRL_STREAM_EXPRESSION_PRIVATE_H
#define SQRL_STREAM_EXPRESSION_PRIVATE_H

#include "stream/expression.h"

enum expression_op {
    OP_TRUTH, /* condition = left */
    OP_IS_NULL,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,   /* left in operands [right, right + count) */
    OP_FOLD, /* the hash of left and the seed lies between two fractions: 3 operands */
    OP_CONTAINS,
    OP_STARTS,
    OP_ENDS,
    OP_NOT,
    OP_JUMP_FALSE, /* to instruction `left` when the condition is false */
    OP_JUMP_TRUE
};

enum value_kind {
    VALUE_NULL,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_UINT, /* above INT64_MAX */
    VALUE_FLOAT,
    VALUE_BIG,    /* decimal text beyond 64 bits */
    VALUE_STRING, /* or binary */
    VALUE_OTHER,  /* list, map, array */
    VALUE_FIELD   /* operands only: u is the number of the field */
};

struct expression_value {
    uint8_t kind;
    uint32_t size; /* of text */
    union {
        int64_t i;
        uint64_t u;
        double f;
        const uint8_t *text;
    } v;
};

struct instruction {
    uint8_t op;
    uint32_t left, right, count;
};

struct sqrl_expression {
    struct instruction *code;
    uint32_t codes, code_room;
    struct expression_value *operand;
    uint32_t operands, operand_room;
    char **field;
    uint32_t fields, field_room;
    uint8_t **text; /* string literals, unescaped */
    uint32_t texts, text_room;
};

#endif
