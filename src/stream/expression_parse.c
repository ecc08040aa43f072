/* expression_parse.c - from text to the program.
 *
 * Recursive descent over the text of the expression (never over data), at most
 * MAX_NESTING parentheses and "not"s deep.
 */
#include "stream/expression_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_NESTING 64u
#define MAX_TEXT (1024u * 1024u) /* what is longer is a list, and better a column */
#define MAX_FIELDS 1024u         /* each name is compared with all before */

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,
    TOKEN_NAME,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_SIGN
};

struct token {
    enum token_kind kind;
    const char *text;
    size_t size;
};

struct parser {
    struct sqrl_expression *out;
    const char *text, *at;
    struct token token;
    unsigned depth;
    struct sqrl_error *err;
};

static int parse_or(struct parser *p);

static int fail(struct parser *p, const char *where, const char *what) {
    sqrl_error_set(p->err, SQRL_E_INVALID, "%s in the filter expression \"%.120s\"", what,
                   p->text);
    return sqrl_error_at(p->err, SQRL_E_INVALID, "column %zu",
                         (size_t)(where - p->text) + 1);
}

static int expected(struct parser *p, const char *what) {
    char text[160];
    if (p->token.kind == TOKEN_END)
        snprintf(text, sizeof text, "expected %s, found the end", what);
    else
        snprintf(text, sizeof text, "expected %s, found '%.*s'", what,
                 (int)SQRL_MIN(p->token.size, (size_t)40), p->token.text);
    return fail(p, p->token.text, text);
}

static bool name_byte(unsigned char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80 ||
           (!first && c >= '0' && c <= '9');
}

static size_t scan_number(const char *s) {
    size_t n = *s == '-' || *s == '+';
    while ((s[n] >= '0' && s[n] <= '9') || s[n] == '.' || s[n] == 'e' || s[n] == 'E' ||
           ((s[n] == '-' || s[n] == '+') && n && (s[n - 1] == 'e' || s[n - 1] == 'E')))
        n++;
    return n;
}

/* A field: names and backticked names joined by dots. */
static int scan_name(struct parser *p, bool *ticks) {
    const char *s = p->at;
    *ticks = false;
    for (;;) {
        if (*s == '`') {
            const char *end = strchr(s + 1, '`');
            if (!end || end == s + 1)
                return fail(p, s,
                            end ? "an empty name" : "a backtick without its partner");
            *ticks = true;
            s = end + 1;
        } else if (name_byte((unsigned char)*s, true)) {
            while (name_byte((unsigned char)*s, false))
                s++;
        } else {
            return fail(p, s, "expected a name");
        }
        if (*s != '.')
            break;
        *ticks = true; /* dotted: no keyword */
        s++;
    }
    p->token.size = (size_t)(s - p->at);
    return SQRL_OK;
}

static int scan_string(struct parser *p) {
    const char *s = p->at + 1;
    while (*s && *s != *p->at)
        s += *s == '\\' && s[1] ? 2 : 1;
    if (!*s)
        return fail(p, p->at, "a string without its closing quote");
    p->token.kind = TOKEN_STRING;
    p->token.size = (size_t)(s + 1 - p->at);
    return SQRL_OK;
}

static int next_token(struct parser *p) {
    p->at = p->token.text + p->token.size;
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')
        p->at++;
    p->token = (struct token){TOKEN_SIGN, p->at, 1};
    char c = *p->at, d = c ? p->at[1] : 0;
    if (!c) {
        p->token.kind = TOKEN_END;
        p->token.size = 0;
    } else if (c == '`' || name_byte((unsigned char)c, true)) {
        bool ticks;
        int code = scan_name(p, &ticks);
        p->token.kind = ticks ? TOKEN_NAME : TOKEN_WORD;
        return code;
    } else if ((c >= '0' && c <= '9') || ((c == '-' || c == '+' || c == '.') &&
                                          ((d >= '0' && d <= '9') || d == '.'))) {
        p->token.kind = TOKEN_NUMBER;
        p->token.size = scan_number(p->at);
    } else if (c == '"' || c == '\'') {
        return scan_string(p);
    } else if ((c == '=' || c == '!' || c == '<' || c == '>') && d == '=') {
        p->token.size = 2;
    } else if (!strchr("()[],<>", c)) {
        return fail(p, p->at,
                    c == '=' ? "write == to compare; a lone '='"
                             : "a character that has no meaning here");
    }
    return SQRL_OK;
}

static bool is_text(const struct parser *p, enum token_kind kind, const char *text) {
    return p->token.kind == kind && strlen(text) == p->token.size &&
           memcmp(p->token.text, text, p->token.size) == 0;
}
static bool is_word(const struct parser *p, const char *word) {
    return is_text(p, TOKEN_WORD, word);
}
static bool is_sign(const struct parser *p, const char *sign) {
    return is_text(p, TOKEN_SIGN, sign);
}

/* Room for one more in a growing array. */
static int grow(void *array, uint32_t count, uint32_t *room, size_t size,
                struct sqrl_error *err) {
    if (count < *room)
        return SQRL_OK;
    uint32_t more = *room ? *room * 2 : 8;
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown = sqrl_realloc(old, more * size, "filter expression", err);
    if (!grown)
        return SQRL_E_NO_MEMORY;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return SQRL_OK;
}

static int emit(struct parser *p, unsigned op, uint32_t left, uint32_t right,
                uint32_t count) {
    struct sqrl_expression *x = p->out;
    int code = grow(&x->code, x->codes, &x->code_room, sizeof *x->code, p->err);
    if (!code)
        x->code[x->codes++] = (struct instruction){(uint8_t)op, left, right, count};
    return code;
}

static int add_operand(struct parser *p, const struct expression_value *value,
                       uint32_t *out) {
    struct sqrl_expression *x = p->out;
    int code =
        grow(&x->operand, x->operands, &x->operand_room, sizeof *x->operand, p->err);
    if (code)
        return code;
    *out = x->operands;
    x->operand[x->operands++] = *value;
    return SQRL_OK;
}

/* The dotted name of a field token, each part's dots escaped; malloc'd. */
static char *field_name(struct parser *p) {
    char *name = sqrl_malloc(2 * p->token.size + 1, "filter expression", p->err);
    if (!name)
        return NULL;
    size_t n = 0;
    bool quoted = false;
    for (size_t i = 0; i < p->token.size; i++) {
        char c = p->token.text[i];
        if (c == '`') {
            quoted = !quoted;
            continue;
        }
        if (quoted && (c == '.' || c == '\\'))
            name[n++] = '\\';
        name[n++] = c;
    }
    name[n] = 0;
    return name;
}

static int parse_field(struct parser *p, struct expression_value *out) {
    struct sqrl_expression *x = p->out;
    char *name = field_name(p);
    if (!name)
        return SQRL_E_NO_MEMORY;
    out->kind = VALUE_FIELD;
    for (uint32_t i = 0; i < x->fields; i++) {
        if (strcmp(x->field[i], name) == 0) {
            free(name);
            out->v.u = i;
            return SQRL_OK;
        }
    }
    int code = x->fields == MAX_FIELDS
                   ? sqrl_error_set(p->err, SQRL_E_LIMIT,
                                    "the filter expression names more than %u fields",
                                    MAX_FIELDS)
                   : grow(&x->field, x->fields, &x->field_room, sizeof *x->field, p->err);
    if (code) {
        free(name);
        return code;
    }
    out->v.u = x->fields;
    x->field[x->fields++] = name;
    return SQRL_OK;
}

static int parse_number(struct parser *p, struct expression_value *out) {
    char text[64];
    if (p->token.size >= sizeof text)
        return fail(p, p->token.text, "too long a number");
    memcpy(text, p->token.text, p->token.size);
    text[p->token.size] = 0;
    char *end;
    if (!strpbrk(text, ".eE")) {
        errno = 0;
        out->kind = VALUE_INT;
        out->v.i = strtoll(text, &end, 10);
        if (errno && text[0] != '-') {
            errno = 0;
            out->kind = VALUE_UINT;
            out->v.u = strtoull(text, &end, 10);
        }
        if (errno)
            return fail(p, p->token.text, "an integer beyond 64 bits");
    } else {
        out->kind = VALUE_FLOAT;
        out->v.f = strtod(text, &end);
    }
    return *end || end == text ? fail(p, p->token.text, "an unreadable number") : SQRL_OK;
}

static size_t put_utf8(uint8_t *out, unsigned c) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xc0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3f));
        return 2;
    }
    out[0] = (uint8_t)(0xe0 | c >> 12);
    out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    out[2] = (uint8_t)(0x80 | (c & 0x3f));
    return 3;
}

/* One escape behind a backslash at s; moves *s behind it. Returns bytes written, 0:
 * unknown. */
static size_t unescape(const char **s, const char *end, uint8_t *out) {
    static const char FROM[] = "\"'\\/ntr", TO[] = "\"'\\/\n\t\r";
    const char *known = **s ? strchr(FROM, **s) : NULL;
    if (known) {
        *out = (uint8_t)TO[known - FROM];
        (*s)++;
        return 1;
    }
    char digits[5] = {0};
    if (**s != 'u' || end - *s < 5)
        return 0;
    memcpy(digits, *s + 1, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4)
        return 0;
    unsigned c = (unsigned)strtoul(digits, NULL, 16);
    if (c >= 0xd800 && c < 0xe000)
        return 0;
    *s += 5;
    return put_utf8(out, c);
}

static int parse_string(struct parser *p, struct expression_value *out) {
    struct sqrl_expression *x = p->out;
    int code = grow(&x->text, x->texts, &x->text_room, sizeof *x->text, p->err);
    if (code)
        return code;
    uint8_t *text = sqrl_malloc(p->token.size, "filter expression", p->err);
    if (!text)
        return SQRL_E_NO_MEMORY;
    x->text[x->texts++] = text;
    const char *s = p->token.text + 1, *end = p->token.text + p->token.size - 1;
    size_t n = 0;
    while (s < end) {
        if (*s != '\\') {
            text[n++] = (uint8_t)*s++;
            continue;
        }
        s++;
        size_t written = unescape(&s, end, text + n);
        if (!written)
            return fail(p, s - 1, "an unknown escape");
        n += written;
    }
    out->kind = VALUE_STRING;
    out->v.text = text;
    out->size = (uint32_t)n;
    return SQRL_OK;
}

static const char *const WORDS[] = {"and", "or",       "not",        "in",
                                    "is",  "contains", "startswith", "endswith"};

/* A literal or a field, without adding it. */
static int parse_value(struct parser *p, bool literal_only,
                       struct expression_value *value) {
    memset(value, 0, sizeof *value);
    int code = SQRL_OK;
    for (size_t i = 0; i < SQRL_COUNT_OF(WORDS); i++)
        if (is_word(p, WORDS[i]))
            return expected(p,
                            "a field or a value (put a field of that name in backticks)");
    if (p->token.kind == TOKEN_NUMBER) {
        code = parse_number(p, value);
    } else if (p->token.kind == TOKEN_STRING) {
        code = parse_string(p, value);
    } else if (is_word(p, "true") || is_word(p, "false")) {
        value->kind = VALUE_BOOL;
        value->v.u = is_word(p, "true");
    } else if (is_word(p, "null")) {
        value->kind = VALUE_NULL;
    } else if (!literal_only &&
               (p->token.kind == TOKEN_WORD || p->token.kind == TOKEN_NAME)) {
        code = parse_field(p, value);
    } else {
        code = expected(p, literal_only ? "a literal value" : "a field or a value");
    }
    return code ? code : next_token(p);
}

/* Other languages' constants, which would silently be fields that no sample has. */
static int check_constant(struct parser *p) {
    static const char *const FOREIGN[][2] = {
        {"True", "write true"},
        {"False", "write false"},
        {"None", "write null, or \"is null\""},
        {"nan", "no literal stands for not-a-number; write a number"},
        {"NaN", "no literal stands for not-a-number; write a number"}};
    for (size_t i = 0; i < SQRL_COUNT_OF(FOREIGN); i++) {
        char text[120];
        if (!is_word(p, FOREIGN[i][0]))
            continue;
        snprintf(text, sizeof text, "%s instead of %s", FOREIGN[i][1], FOREIGN[i][0]);
        return fail(p, p->token.text, text);
    }
    return SQRL_OK;
}

static int parse_operand(struct parser *p, uint32_t *out) {
    struct expression_value value;
    int code = parse_value(p, false, &value);
    return code ? code : add_operand(p, &value, out);
}

static int parse_in(struct parser *p, uint32_t left) {
    uint32_t right = p->out->operands, count = 0, at;
    int code;
    if (!is_sign(p, "[")) {
        code = check_constant(p);
        if (!code)
            code = parse_operand(p, &right);
        return code ? code : emit(p, OP_CONTAINS, right, left, 0);
    }
    if ((code = next_token(p)))
        return code;
    while (!is_sign(p, "]")) {
        struct expression_value value;
        if ((code = check_constant(p)) || (code = parse_value(p, true, &value)) ||
            (code = add_operand(p, &value, &at)))
            return code;
        count++;
        if (is_sign(p, "]"))
            break;
        if (!is_sign(p, ","))
            return expected(p, "',' or ']'");
        if ((code = next_token(p)))
            return code;
    }
    code = next_token(p);
    return code ? code : emit(p, OP_IN, left, right, count);
}

static const struct {
    const char *text;
    enum token_kind kind;
    enum expression_op op;
} COMPARISONS[] = {
    {"==", TOKEN_SIGN, OP_EQUAL},
    {"!=", TOKEN_SIGN, OP_UNEQUAL},
    {"<", TOKEN_SIGN, OP_LESS},
    {"<=", TOKEN_SIGN, OP_LESS_EQUAL},
    {">", TOKEN_SIGN, OP_GREATER},
    {">=", TOKEN_SIGN, OP_GREATER_EQUAL},
    {"contains", TOKEN_WORD, OP_CONTAINS},
    {"startswith", TOKEN_WORD, OP_STARTS},
    {"endswith", TOKEN_WORD, OP_ENDS},
};

static int parse_is(struct parser *p, uint32_t left) {
    int code = next_token(p);
    bool negated = !code && is_word(p, "not");
    if (negated)
        code = next_token(p);
    if (code)
        return code;
    if (!is_word(p, "null"))
        return expected(p, "'null' behind 'is'");
    if ((code = next_token(p)) || (code = emit(p, OP_IS_NULL, left, 0, 0)))
        return code;
    return negated ? emit(p, OP_NOT, 0, 0, 0) : SQRL_OK;
}

/* The list that parse_in added is a seed and two fractions. */
static int parse_fold(struct parser *p, uint32_t left) {
    int code = next_token(p);
    if (!code && !is_sign(p, "["))
        code = expected(p, "'[' behind 'fold'");
    if (!code)
        code = parse_in(p, left);
    if (code)
        return code;
    struct sqrl_expression *x = p->out;
    struct instruction *in = &x->code[x->codes - 1];
    const struct expression_value *seed = &x->operand[in->right];
    in->op = OP_FOLD;
    bool good = in->count == 3 && (seed->kind == VALUE_INT || seed->kind == VALUE_UINT);
    for (uint32_t i = 1; i < in->count && good; i++)
        good = seed[i].kind == VALUE_FLOAT ||
               (seed[i].kind == VALUE_INT && (seed[i].v.i == 0 || seed[i].v.i == 1));
    return good ? SQRL_OK
                : sqrl_error_set(p->err, SQRL_E_INVALID,
                                 "filter: fold wants [seed, from, to]: an integer and "
                                 "two fractions from 0 to 1");
}

/* What stands behind a value: a comparison, or nothing. */
static int parse_comparison(struct parser *p, uint32_t left) {
    int code;
    if (is_word(p, "is"))
        return parse_is(p, left);
    if (is_word(p, "fold"))
        return parse_fold(p, left);
    bool negated = is_word(p, "not");
    if (negated && (code = next_token(p)))
        return code;
    if (is_word(p, "in")) {
        if ((code = next_token(p)) || (code = parse_in(p, left)))
            return code;
        return negated ? emit(p, OP_NOT, 0, 0, 0) : SQRL_OK;
    }
    if (negated)
        return expected(p, "'in' behind 'not'");
    for (size_t i = 0; i < SQRL_COUNT_OF(COMPARISONS); i++) {
        uint32_t right;
        if (!is_text(p, COMPARISONS[i].kind, COMPARISONS[i].text))
            continue;
        if ((code = next_token(p)) || (code = check_constant(p)) ||
            (code = parse_operand(p, &right)))
            return code;
        return emit(p, COMPARISONS[i].op, left, right, 0);
    }
    return emit(p, OP_TRUTH, left, 0, 0);
}

static int parse_test(struct parser *p) {
    int code;
    if (!is_sign(p, "(")) {
        uint32_t left;
        code = parse_operand(p, &left);
        return code ? code : parse_comparison(p, left);
    }
    if (++p->depth > MAX_NESTING)
        return sqrl_error_set(p->err, SQRL_E_LIMIT,
                              "the filter expression is nested more than %u deep",
                              MAX_NESTING);
    if ((code = next_token(p)) || (code = parse_or(p)))
        return code;
    if (!is_sign(p, ")"))
        return expected(p, "')'");
    p->depth--;
    return next_token(p);
}

static int parse_not(struct parser *p) {
    bool negated = false;
    int code;
    while (is_word(p, "not")) {
        negated = !negated;
        if ((code = next_token(p)))
            return code;
    }
    if ((code = parse_test(p)))
        return code;
    return negated ? emit(p, OP_NOT, 0, 0, 0) : SQRL_OK;
}

/* One operand level: all parts jump to its end as soon as the result is known. */
static int parse_chain(struct parser *p, const char *word, unsigned jump,
                       int (*part)(struct parser *)) {
    uint32_t last = SQRL_NO_NODE; /* a chain of jumps to patch, linked by `left` */
    int code = part(p);
    while (!code && is_word(p, word)) {
        uint32_t at = p->out->codes;
        if ((code = emit(p, jump, last, 0, 0)))
            break;
        last = at;
        code = next_token(p);
        if (!code)
            code = part(p);
    }
    while (!code && last != SQRL_NO_NODE) {
        uint32_t before = p->out->code[last].left;
        p->out->code[last].left = p->out->codes;
        last = before;
    }
    return code;
}

static int parse_and(struct parser *p) {
    return parse_chain(p, "and", OP_JUMP_FALSE, parse_not);
}
static int parse_or(struct parser *p) {
    return parse_chain(p, "or", OP_JUMP_TRUE, parse_and);
}

int sqrl_expression_parse(const char *text, struct sqrl_expression **out,
                          struct sqrl_error *err) {
    *out = NULL;
    if (!text)
        return sqrl_error_set(err, SQRL_E_INVALID, "the filter expression is missing");
    if (strnlen(text, MAX_TEXT + 1) > MAX_TEXT)
        return sqrl_error_set(
            err, SQRL_E_LIMIT,
            "the filter expression is longer than %u bytes: give what its "
            "lists hold as a column, or filter by a callable",
            MAX_TEXT);
    struct sqrl_expression *x = sqrl_calloc(1, sizeof *x, "filter expression", err);
    if (!x)
        return SQRL_E_NO_MEMORY;
    struct parser p = {x, text, text, {TOKEN_SIGN, text, 0}, 0, err};
    int code = next_token(&p);
    if (!code)
        code = parse_or(&p);
    if (!code && p.token.kind != TOKEN_END)
        code = expected(&p, "'and', 'or' or the end");
    if (code)
        sqrl_expression_free(x);
    else
        *out = x;
    return code;
}

void sqrl_expression_free(struct sqrl_expression *x) {
    if (!x)
        return;
    for (uint32_t i = 0; i < x->fields; i++)
        free(x->field[i]);
    for (uint32_t i = 0; i < x->texts; i++)
        free(x->text[i]);
    free(x->field);
    free(x->text);
    free(x->code);
    free(x->operand);
    free(x);
}

uint32_t sqrl_expression_fields(const struct sqrl_expression *x) {
    return x->fields;
}
const char *sqrl_expression_field(const struct sqrl_expression *x, uint32_t i) {
    return x->field[i];
}
