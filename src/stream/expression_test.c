/* expression_test.c - runs the program on one sample. */
#include "sqrl/codec.h"
#include "stream/expression_private.h"

#include <stdlib.h>

static void read_scalar(enum sqrl_dtype dtype, bool swapped, const uint8_t *data,
                        struct expression_value *out);

static void value_of_node(const struct sqrl_node *nodes, uint32_t at,
                          const uint8_t *bytes, struct expression_value *out) {
    const struct sqrl_node *node = &nodes[at];
    out->size = node->size;
    out->v.u = node->v.u;
    switch (node->type) {
    case SQRL_NULL:
        out->kind = VALUE_NULL;
        break;
    case SQRL_BOOL:
        out->kind = VALUE_BOOL;
        break;
    case SQRL_INT:
        out->kind = VALUE_INT;
        break;
    case SQRL_UINT:
        out->kind = VALUE_UINT;
        break;
    case SQRL_FLOAT:
        out->kind = VALUE_FLOAT;
        break;
    case SQRL_NUMBER:
    case SQRL_STRING:
    case SQRL_BINARY:
        out->kind = node->type == SQRL_NUMBER ? VALUE_BIG : VALUE_STRING;
        out->v.text = bytes + node->v.offset;
        break;
    case SQRL_NDARRAY:
        out->kind = VALUE_OTHER;
        if (node->size == 0)
            read_scalar((enum sqrl_dtype)node->aux, node->flags & SQRL_NODE_SWAPPED,
                        sqrl_ndarray_data(nodes, at, bytes), out);
        break;
    default:
        out->kind = VALUE_OTHER;
        break;
    }
}

static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31;
    double mantissa = h & 1023;
    double v = exponent == 31 ? (mantissa != 0 ? __builtin_nan("") : __builtin_inf())
               : exponent     ? __builtin_ldexp(mantissa + 1024, exponent - 25)
                              : __builtin_ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v;
}

/* A NumPy scalar counts as the number that it is. */
static void read_scalar(enum sqrl_dtype dtype, bool swapped, const uint8_t *data,
                        struct expression_value *out) {
    uint8_t raw[8] = {0};
    size_t size = sqrl_dtype_size(dtype);
    if (size == 0 || size > 8 || dtype == SQRL_DTYPE_COMPLEX64)
        return;
    for (size_t i = 0; i < size; i++)
        raw[i] = data[swapped ? size - 1 - i : i];
    uint64_t u = sqrl_load_le64(raw);
    float f;
    memcpy(&f, raw, sizeof f);
    unsigned unused = 64 - 8 * (unsigned)size;
    out->kind = VALUE_INT;
    switch (dtype) {
    case SQRL_DTYPE_BOOL:
        out->kind = VALUE_BOOL;
        out->v.u = u != 0;
        break;
    case SQRL_DTYPE_INT8:
    case SQRL_DTYPE_INT16:
    case SQRL_DTYPE_INT32:
    case SQRL_DTYPE_INT64:
        out->v.i = (int64_t)(u << unused) >> unused;
        break;
    case SQRL_DTYPE_FLOAT16:
        out->kind = VALUE_FLOAT;
        out->v.f = half_value((uint16_t)u);
        break;
    case SQRL_DTYPE_FLOAT32:
        out->kind = VALUE_FLOAT;
        out->v.f = (double)f;
        break;
    case SQRL_DTYPE_FLOAT64:
        out->kind = VALUE_FLOAT;
        memcpy(&out->v.f, raw, 8);
        break;
    default:
        out->kind = u > INT64_MAX ? VALUE_UINT : VALUE_INT;
        out->v.u = u;
        break;
    }
}

static bool is_number(const struct expression_value *v) {
    return v->kind >= VALUE_INT && v->kind <= VALUE_BIG;
}

/* Sign of an integer minus a double, without rounding either. INT8_MIN: not comparable.
 */
static int compare_integer(const struct expression_value *a, double f) {
    if (f != f)
        return INT8_MIN;
    if (a->kind == VALUE_UINT) {
        if (f >= 18446744073709551616.0)
            return -1;
        if (f < 9223372036854775808.0)
            return 1;
        uint64_t whole = (uint64_t)f; /* doubles this large have no fraction */
        return a->v.u < whole ? -1 : a->v.u > whole;
    }
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)f;
    if (a->v.i != whole)
        return a->v.i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

/* Integers beyond 64 bits are rare: their sign decides against 64-bit ones, length and
 * digits against each other, their nearest double against floats. */
static int compare_big(const struct expression_value *a,
                       const struct expression_value *b) {
    bool negative = a->v.text[0] == '-';
    if (b->kind == VALUE_INT || b->kind == VALUE_UINT)
        return negative ? -1 : 1;
    if (b->kind == VALUE_FLOAT) {
        char digits[400];
        if (b->v.f != b->v.f)
            return INT8_MIN;
        if (a->size >= sizeof digits) /* beyond every finite double */
            return negative ? -1 : 1;
        memcpy(digits, a->v.text, a->size);
        digits[a->size] = 0;
        double f = strtod(digits, NULL);
        return f < b->v.f ? -1 : f > b->v.f;
    }
    if (negative != (b->v.text[0] == '-'))
        return negative ? -1 : 1;
    int by_size = a->size < b->size ? -1 : a->size > b->size;
    int order = by_size ? by_size : memcmp(a->v.text, b->v.text, a->size);
    order = order < 0 ? -1 : order > 0;
    return negative ? -order : order;
}

static int compare_numbers(const struct expression_value *a,
                           const struct expression_value *b) {
    if (a->kind == VALUE_BIG)
        return compare_big(a, b);
    if (b->kind == VALUE_BIG) {
        int order = compare_big(b, a);
        return order == INT8_MIN ? order : -order;
    }
    if (a->kind == VALUE_FLOAT && b->kind == VALUE_FLOAT) {
        if (a->v.f != a->v.f || b->v.f != b->v.f)
            return INT8_MIN;
        return a->v.f < b->v.f ? -1 : a->v.f > b->v.f;
    }
    if (b->kind == VALUE_FLOAT)
        return compare_integer(a, b->v.f);
    if (a->kind == VALUE_FLOAT) {
        int order = compare_integer(b, a->v.f);
        return order == INT8_MIN ? order : -order;
    }
    if (a->kind != b->kind) /* UINT is above every INT */
        return a->kind == VALUE_UINT ? 1 : -1;
    if (a->kind == VALUE_UINT)
        return a->v.u < b->v.u ? -1 : a->v.u > b->v.u;
    return a->v.i < b->v.i ? -1 : a->v.i > b->v.i;
}

static int compare_text(const struct expression_value *a,
                        const struct expression_value *b) {
    size_t n = SQRL_MIN(a->size, b->size);
    int order = n ? memcmp(a->v.text, b->v.text, n) : 0;
    if (order)
        return order < 0 ? -1 : 1;
    return a->size < b->size ? -1 : a->size > b->size;
}

static bool equal(const struct expression_value *a, const struct expression_value *b) {
    if (is_number(a) && is_number(b))
        return compare_numbers(a, b) == 0;
    if (a->kind != b->kind)
        return false;
    if (a->kind == VALUE_BOOL)
        return a->v.u == b->v.u;
    if (a->kind == VALUE_STRING)
        return a->size == b->size && (!a->size || !memcmp(a->v.text, b->v.text, a->size));
    return a->kind == VALUE_NULL;
}

static const char *kind_name(const struct expression_value *v) {
    switch (v->kind) {
    case VALUE_NULL:
        return "null";
    case VALUE_BOOL:
        return "a boolean";
    case VALUE_STRING:
        return "a string";
    case VALUE_OTHER:
        return "a list, map or array";
    default:
        return "a number";
    }
}

static const char *operand_name(const struct sqrl_expression *x, uint32_t operand) {
    const struct expression_value *o = &x->operand[operand];
    return o->kind == VALUE_FIELD ? x->field[o->v.u] : "a value of the filter";
}

static int type_error(const struct sqrl_expression *x, const struct instruction *in,
                      const struct expression_value *a, const struct expression_value *b,
                      const char *verb, struct sqrl_error *err) {
    if (!b)
        return sqrl_error_set(err, SQRL_E_TYPE, "filter: \"%s\" is %s, which %s",
                              operand_name(x, in->left), kind_name(a), verb);
    return sqrl_error_set(
        err, SQRL_E_TYPE,
        "filter: \"%s\" is %s and can't be %s %s (\"%s\"); filter by type "
        "first, or compare with a value of its own kind",
        operand_name(x, in->left), kind_name(a), verb, kind_name(b),
        operand_name(x, in->right));
}

static int ordered(const struct sqrl_expression *x, const struct instruction *in,
                   const struct expression_value *a, const struct expression_value *b,
                   bool *out, struct sqrl_error *err) {
    int order;
    if (is_number(a) && is_number(b))
        order = compare_numbers(a, b);
    else if (a->kind == VALUE_STRING && b->kind == VALUE_STRING)
        order = compare_text(a, b);
    else
        return type_error(x, in, a, b, "ordered against", err);
    if (order == INT8_MIN) /* NaN */
        *out = false;
    else if (in->op == OP_LESS || in->op == OP_LESS_EQUAL)
        *out = order < 0 || (order == 0 && in->op == OP_LESS_EQUAL);
    else
        *out = order > 0 || (order == 0 && in->op == OP_GREATER_EQUAL);
    return SQRL_OK;
}

static int text_test(const struct sqrl_expression *x, const struct instruction *in,
                     const struct expression_value *a, const struct expression_value *b,
                     bool *out, struct sqrl_error *err) {
    if (a->kind != VALUE_STRING || b->kind != VALUE_STRING)
        return type_error(x, in, a, b, "searched for", err);
    if (b->size > a->size)
        *out = false;
    else if (!b->size)
        *out = true;
    else if (in->op == OP_CONTAINS)
        *out = memmem(a->v.text, a->size, b->v.text, b->size) != NULL;
    else
        *out = !memcmp(a->v.text + (in->op == OP_ENDS ? a->size - b->size : 0), b->v.text,
                       b->size);
    return SQRL_OK;
}

/* A list that holds the value. */
static bool list_contains(const struct sqrl_node *nodes, uint32_t list,
                          const uint8_t *bytes, const struct expression_value *b) {
    uint32_t end = sqrl_node_next(nodes, list);
    for (uint32_t at = list + 1; at < end; at = sqrl_node_next(nodes, at)) {
        struct expression_value item;
        value_of_node(nodes, at, bytes, &item);
        if (equal(&item, b))
            return true;
    }
    return false;
}

struct sample_view {
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    const uint32_t *found, *map;
};

/* The node of an operand that is a field of the sample, else SQRL_NO_NODE. */
static uint32_t operand_node(const struct sqrl_expression *x, const struct sample_view *s,
                             uint32_t operand) {
    if (x->operand[operand].kind != VALUE_FIELD)
        return SQRL_NO_NODE;
    uint32_t at = s->map[x->operand[operand].v.u];
    return at == SQRL_NO_NODE ? at : s->found[at];
}

static void load(const struct sqrl_expression *x, const struct sample_view *s,
                 uint32_t operand, struct expression_value *out) {
    *out = x->operand[operand];
    if (out->kind != VALUE_FIELD)
        return;
    uint32_t node = operand_node(x, s, operand);
    out->kind = VALUE_NULL;
    if (node != SQRL_NO_NODE)
        value_of_node(s->nodes, node, s->bytes, out);
}

static int truth(const struct sqrl_expression *x, const struct instruction *in,
                 const struct expression_value *a, bool *out, struct sqrl_error *err) {
    struct expression_value zero = {VALUE_INT, 0, {0}};
    if (is_number(a))
        *out = compare_numbers(a, &zero) != 0;
    else if (a->kind == VALUE_BOOL || a->kind == VALUE_NULL)
        *out = a->kind == VALUE_BOOL && a->v.u;
    else
        return type_error(x, in, a, NULL, "is no condition; compare it with something",
                          err);
    return SQRL_OK;
}

static int binary(const struct sqrl_expression *x, const struct instruction *in,
                  const struct sample_view *s, bool *out, struct sqrl_error *err) {
    struct expression_value a, b;
    load(x, s, in->left, &a);
    load(x, s, in->right, &b);
    *out = false;
    /* null as a literal asks for null; a field that is null or missing compares as false.
     */
    bool asked = (x->operand[in->left].kind == VALUE_NULL ||
                  x->operand[in->right].kind == VALUE_NULL) &&
                 (in->op == OP_EQUAL || in->op == OP_UNEQUAL);
    if (!asked && (a.kind == VALUE_NULL || b.kind == VALUE_NULL))
        return SQRL_OK;
    switch (in->op) {
    case OP_EQUAL:
        *out = equal(&a, &b);
        return SQRL_OK;
    case OP_UNEQUAL:
        *out = !equal(&a, &b);
        return SQRL_OK;
    case OP_CONTAINS:
        if (a.kind == VALUE_OTHER) {
            uint32_t list = operand_node(x, s, in->left);
            if (s->nodes[list].type != SQRL_ARRAY)
                return type_error(x, in, &a, &b, "searched for", err);
            *out = list_contains(s->nodes, list, s->bytes, &b);
            return SQRL_OK;
        }
        return text_test(x, in, &a, &b, out, err);
    case OP_STARTS:
    case OP_ENDS:
        return text_test(x, in, &a, &b, out, err);
    default:
        return ordered(x, in, &a, &b, out, err);
    }
}

static bool is_in(const struct sqrl_expression *x, const struct instruction *in,
                  const struct expression_value *a) {
    if (a->kind == VALUE_NULL)
        return false;
    for (uint32_t i = 0; i < in->count; i++)
        if (equal(a, &x->operand[in->right + i]))
            return true;
    return false;
}

static double number_of(const struct expression_value *v) {
    return v->kind == VALUE_FLOAT ? v->v.f : (double)v->v.i;
}

/* Numbers that are equal have one hash, whatever they were stored as. */
static int fold(const struct sqrl_expression *x, const struct instruction *in,
                const struct expression_value *a, bool *out, struct sqrl_error *err) {
    const struct expression_value *list = &x->operand[in->right];
    uint64_t hash = 0, kind = a->kind, seed = list->v.u;
    if (a->kind == VALUE_OTHER)
        return type_error(x, in, a, NULL, "can't be hashed: take a number or a text",
                          err);
    if (a->kind == VALUE_STRING || a->kind == VALUE_BIG) {
        hash = sqrl_xxh3(a->v.text, a->size);
    } else if (a->kind == VALUE_FLOAT && a->v.f >= -0x1p63 && a->v.f < 0x1p63 &&
               (double)(int64_t)a->v.f == a->v.f) {
        hash = (uint64_t)(int64_t)a->v.f;
        kind = VALUE_INT;
    } else if (a->kind == VALUE_FLOAT) {
        memcpy(&hash, &a->v.f, sizeof hash);
    } else if (a->kind != VALUE_NULL) {
        hash = a->v.u;
    }
    hash = sqrl_mix64(sqrl_mix64(sqrl_mix64(seed) ^ kind) ^ hash);
    double place = (double)(hash >> 11) * 0x1p-53;
    *out = place >= number_of(&list[1]) && place < number_of(&list[2]);
    return SQRL_OK;
}

int sqrl_expression_test(const struct sqrl_expression *x, const struct sqrl_node *nodes,
                         const uint8_t *bytes, const uint32_t *found, const uint32_t *map,
                         bool *out, struct sqrl_error *err) {
    struct sample_view s = {nodes, bytes, found, map};
    struct expression_value a;
    bool condition = false;
    int code = SQRL_OK;
    *out = false;
    for (uint32_t i = 0; i < x->codes && !code; i++) {
        const struct instruction *in = &x->code[i];
        switch (in->op) {
        case OP_TRUTH:
            load(x, &s, in->left, &a);
            code = truth(x, in, &a, &condition, err);
            break;
        case OP_IS_NULL:
            load(x, &s, in->left, &a);
            condition = a.kind == VALUE_NULL;
            break;
        case OP_IN:
            load(x, &s, in->left, &a);
            condition = is_in(x, in, &a);
            break;
        case OP_FOLD:
            load(x, &s, in->left, &a);
            code = fold(x, in, &a, &condition, err);
            break;
        case OP_NOT:
            condition = !condition;
            break;
        case OP_JUMP_FALSE:
            i = condition ? i : in->left - 1;
            break;
        case OP_JUMP_TRUE:
            i = condition ? in->left - 1 : i;
            break;
        default:
            code = binary(x, in, &s, &condition, err);
            break;
        }
    }
    *out = !code && condition;
    return code;
}

static bool is_field(const struct sqrl_expression *x, uint32_t operand, uint32_t field) {
    return x->operand[operand].kind == VALUE_FIELD && x->operand[operand].v.u == field;
}

bool sqrl_expression_may_lack(const struct sqrl_expression *x, uint32_t field) {
    for (uint32_t i = 0; i < x->codes; i++) {
        const struct instruction *in = &x->code[i];
        if (in->op == OP_IS_NULL && is_field(x, in->left, field))
            return true;
        if (in->op != OP_EQUAL && in->op != OP_UNEQUAL)
            continue;
        if ((is_field(x, in->left, field) && x->operand[in->right].kind == VALUE_NULL) ||
            (is_field(x, in->right, field) && x->operand[in->left].kind == VALUE_NULL))
            return true;
    }
    return false;
}
