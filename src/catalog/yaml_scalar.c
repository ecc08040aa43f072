/* yaml_scalar.c - what a plain scalar means.
 *
 * YAML 1.2's core schema, widened by what ruamel.yaml takes in 1.2 and squirrel-core's
 * users may have written: 0b101, and underscores between digits. Everything else is text:
 * "yes" and "1:30" are no boolean and no number, as in squirrel-core. */
#include <math.h>

#include "catalog/yaml.h"
#include "sqrl/catalog.h"

enum { MAX_NUMBER_BYTES = 400 };

static bool is_one_of(const char *text, size_t size, const char *const *words) {
    for (; *words; words++)
        if (strlen(*words) == size && memcmp(*words, text, size) == 0)
            return true;
    return false;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static unsigned digit_of(char c) {
    if (is_digit(c))
        return (unsigned)(c - '0');
    if ((c | 32) >= 'a' && (c | 32) <= 'f')
        return (unsigned)((c | 32) - 'a') + 10;
    return 99;
}

static int too_large(const char *text, size_t size, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_LIMIT,
                          "the integer %.*s%s is beyond 64 bits; quote it to keep it as "
                          "a text",
                          (int)SQRL_MIN(size, 40u), text, size > 40 ? "..." : "");
}

/* Sign and magnitude as INT or UINT; false when it does not fit. */
static bool put_integer(struct sqrl_node *node, bool minus, uint64_t magnitude) {
    if (magnitude > (uint64_t)INT64_MAX + (minus ? 1 : 0)) {
        if (minus)
            return false;
        *node = (struct sqrl_node){.type = SQRL_UINT, .v.u = magnitude};
        return true;
    }
    *node =
        (struct sqrl_node){.type = SQRL_INT, .v.u = minus ? 0 - magnitude : magnitude};
    return true;
}

/* Digits of a base with underscores between; *found is false where it is no number. */
static int read_integer(const char *text, size_t size, struct sqrl_node *node,
                        bool *found, struct sqrl_error *err) {
    size_t at = size && (*text == '-' || *text == '+');
    bool minus = at && *text == '-', fits = true;
    unsigned base = 10;
    *found = false;
    if (size - at > 2 && text[at] == '0' && strchr("xob", text[at + 1])) {
        base = text[at + 1] == 'x' ? 16 : text[at + 1] == 'o' ? 8 : 2;
        at += 2;
    }
    if (at == size || text[at] == '_')
        return SQRL_OK;
    uint64_t magnitude = 0;
    for (; at < size; at++) {
        if (text[at] == '_')
            continue;
        unsigned digit = digit_of(text[at]);
        if (digit >= base)
            return SQRL_OK;
        fits = fits && !__builtin_mul_overflow(magnitude, base, &magnitude) &&
               !__builtin_add_overflow(magnitude, digit, &magnitude);
    }
    *found = true;
    return fits && put_integer(node, minus, magnitude) ? SQRL_OK
                                                       : too_large(text, size, err);
}

/* Copies digits without underscores; returns where they end, *count tells how many. */
static size_t copy_digits(const char *text, size_t size, size_t at, char *out,
                          size_t *used, size_t *count) {
    for (*count = 0; at < size && (is_digit(text[at]) || (*count && text[at] == '_'));
         at++)
        if (text[at] != '_') {
            out[(*used)++] = text[at];
            ++*count;
        }
    return at;
}

/* The text as a JSON number: "+.5" becomes "0.5", "5." becomes "5.0". Returns its size,
 * or 0 where it is no float. */
static size_t json_form(const char *text, size_t size, char *out) {
    size_t used = 0, at = 0, whole = 0, part = 0, exponent = 0;
    if (!size || size > MAX_NUMBER_BYTES)
        return 0;
    if (*text == '-' || *text == '+') {
        if (*text == '-')
            out[used++] = '-';
        at = 1;
    }
    while (at + 1 < size && text[at] == '0' && is_digit(text[at + 1]))
        at++;
    at = copy_digits(text, size, at, out, &used, &whole);
    if (!whole)
        out[used++] = '0';
    bool point = at < size && text[at] == '.';
    if (point) {
        out[used++] = '.';
        at = copy_digits(text, size, at + 1, out, &used, &part);
        if (!part)
            out[used++] = '0';
    }
    bool power = at < size && (text[at] == 'e' || text[at] == 'E');
    if (power) {
        out[used++] = 'e';
        at++;
        if (at < size && (text[at] == '-' || text[at] == '+'))
            out[used++] = text[at++];
        at = copy_digits(text, size, at, out, &used, &exponent);
    }
    bool good = at == size && whole + part && (point || power) && (!power || exponent);
    return good ? used : 0;
}

static int read_float(const char *text, size_t size, struct sqrl_node *node, bool *found,
                      struct sqrl_error *err) {
    static const char *const nans[] = {".nan", ".NaN", ".NAN", NULL};
    static const char *const infinities[] = {".inf", ".Inf", ".INF", NULL};
    size_t sign = size && (*text == '-' || *text == '+');
    char number[MAX_NUMBER_BYTES + 8];
    struct sqrl_tape tape = {0};
    *found = true;
    *node = (struct sqrl_node){.type = SQRL_FLOAT};
    if (is_one_of(text, size, nans)) {
        node->v.f = NAN;
        return SQRL_OK;
    }
    if (is_one_of(text + sign, size - sign, infinities)) {
        node->v.f = *text == '-' ? -INFINITY : INFINITY;
        return SQRL_OK;
    }
    size_t used = json_form(text, size, number), offset = 0;
    *found = used != 0;
    if (!used)
        return SQRL_OK;
    int code = sqrl_json_decode(&tape, (uint8_t *)number, used, &offset, 0, NULL, err);
    if (code == SQRL_OK)
        *node = tape.nodes[0];
    sqrl_tape_reset(&tape);
    return code;
}

int sqrl_yaml_resolve(const char *text, size_t size, struct sqrl_node *node,
                      struct sqrl_error *err) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    bool found = false;
    *node = (struct sqrl_node){.type = SQRL_NULL};
    if (is_one_of(text, size, nulls))
        return SQRL_OK;
    *node = (struct sqrl_node){.type = SQRL_BOOL, .v.u = 1};
    if (is_one_of(text, size, trues))
        return SQRL_OK;
    node->v.u = 0;
    if (is_one_of(text, size, falses))
        return SQRL_OK;
    int code = SQRL_OK;
    if (is_digit(*text) || *text == '-' || *text == '+' || *text == '.') {
        code = read_integer(text, size, node, &found, err);
        if (code == SQRL_OK && !found)
            code = read_float(text, size, node, &found, err);
    }
    char time[SQRL_CATALOG_TIME_BYTES];
    if (found)
        return code;
    *node = (struct sqrl_node){.type = SQRL_STRING, .size = (uint32_t)size};
    if (is_digit(*text) && sqrl_catalog_time(text, size, time)) {
        node->type = SQRL_EXT;
        node->aux = SQRL_CATALOG_TIME_EXT + 128;
    }
    return code;
}
