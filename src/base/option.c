/* option.c - reading and checking settings against their declarations.
 *
 * A name that is set twice means the last one, so that a caller can append overrides. The
 * value of a secret never enters a message. */
#include <errno.h>
#include <locale.h>
#include <stdlib.h>

#include "inner.h"

#define MAX_NAMES 128
#define SHOWN_BYTES 64 /* of a value, in messages */

__extension__ typedef unsigned __int128 wide;

static const struct {
    char name[4];
    uint64_t bytes;
} size_units[] = {
    {"B", 1},
    {"kB", 1000},
    {"KB", 1000},
    {"KiB", (uint64_t)1 << 10},
    {"MB", 1000000},
    {"MiB", (uint64_t)1 << 20},
    {"GB", 1000000000},
    {"GiB", (uint64_t)1 << 30},
    {"TB", 1000000000000},
    {"TiB", (uint64_t)1 << 40},
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The unit's bytes, 0 for an unknown one. Spaces before it are allowed, no unit is bytes.
 */
static uint64_t read_unit(const char *text) {
    if (*text == 0)
        return 1;
    while (*text == ' ')
        text++;
    for (size_t i = 0; i < SQRL_COUNT_OF(size_units); i++)
        if (strcmp(text, size_units[i].name) == 0)
            return size_units[i].bytes;
    return 0;
}

/* 0: read; -1: not a size; 1: too large. */
static int read_size(const char *text, uint64_t *bytes) {
    uint64_t whole = 0, part = 0, scale = 1;
    const char *p = text;
    bool large = false;
    if (!is_digit(*p))
        return -1;
    for (; is_digit(*p); p++)
        large |= __builtin_mul_overflow(whole, 10, &whole) ||
                 __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole);
    bool fraction = *p == '.';
    if (fraction && !is_digit(*++p))
        return -1;
    for (; fraction && is_digit(*p); p++) {
        if (scale <= UINT64_MAX / 100) { /* further digits weigh less than a byte */
            part = part * 10 + (uint64_t)(*p - '0');
            scale *= 10;
        }
    }
    uint64_t unit = read_unit(p);
    if (unit == 0 || (fraction && unit == 1))
        return -1;
    wide total = (wide)whole * unit + (wide)part * unit / scale;
    if (large || total > UINT64_MAX)
        return 1;
    *bytes = (uint64_t)total;
    return 0;
}

int sqrl_parse_size(const char *text, uint64_t *bytes, struct sqrl_error *err) {
    *bytes = 0;
    int failed = read_size(text, bytes);
    if (failed < 0)
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "\"%.*s\" is not a size: write bytes (4096) or a number with a "
            "unit (64 KiB, 1.5 GB)",
            SHOWN_BYTES, text);
    if (failed > 0)
        return sqrl_error_set(err, SQRL_E_LIMIT, "size \"%.*s\" is too large",
                              SHOWN_BYTES, text);
    return SQRL_OK;
}

static bool read_int(const char *text, int64_t *out) {
    const char *digits = text + (*text == '-' || *text == '+');
    if (!is_digit(*digits))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end != 0 || errno == ERANGE)
        return false;
    *out = value;
    return true;
}

/* The program's locale may write 1,5: values are read in the C locale. */
static bool read_float(const char *text, double *out) {
    if (!is_digit(*text) && strchr("+-.", *text) == NULL && strcmp(text, "inf") != 0 &&
        strcmp(text, "nan") != 0)
        return false;
    if (*text == 0)
        return false;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return false;
    char *end;
    *out = strtod_l(text, &end, plain);
    freelocale(plain);
    return end != text && *end == 0;
}

static bool read_bool(const char *text, bool *out) {
    static const char *const words[] = {"false", "true", "no", "yes",
                                        "off",   "on",   "0",  "1"};
    for (size_t i = 0; i < SQRL_COUNT_OF(words); i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = (i & 1) != 0;
            return true;
        }
    }
    return false;
}

static bool is_choice(const char *choices, const char *value) {
    size_t length = strlen(value);
    for (const char *at = choices; at != NULL && *at != 0;) {
        size_t word = strcspn(at, "|");
        if (word == length && memcmp(at, value, length) == 0)
            return true;
        at += word;
        at += *at == '|';
    }
    return false;
}

static bool is_readable(const struct sqrl_option *option, const char *value) {
    int64_t number;
    uint64_t bytes;
    double real;
    bool flag;
    switch (option->type) {
    case SQRL_OPTION_BOOL:
        return read_bool(value, &flag);
    case SQRL_OPTION_INT:
        return read_int(value, &number);
    case SQRL_OPTION_FLOAT:
        return read_float(value, &real);
    case SQRL_OPTION_SIZE:
        return read_size(value, &bytes) == 0;
    case SQRL_OPTION_CHOICE:
        return is_choice(option->choices, value);
    case SQRL_OPTION_TEXT:
        break;
    }
    return true;
}

static const char *expected(enum sqrl_option_type type) {
    switch (type) {
    case SQRL_OPTION_BOOL:
        return "true or false";
    case SQRL_OPTION_INT:
        return "a whole number";
    case SQRL_OPTION_FLOAT:
        return "a number";
    case SQRL_OPTION_SIZE:
        return "a size (4096, 64 KiB, 1.5 GB)";
    case SQRL_OPTION_CHOICE:
    case SQRL_OPTION_TEXT:
        break;
    }
    return "a text";
}

static int bad_value(const struct sqrl_option *option, const char *value,
                     struct sqrl_error *err) {
    bool choice = option->type == SQRL_OPTION_CHOICE;
    const char *wish = choice ? option->choices : expected(option->type);
    const char *of = choice ? "one of " : "";
    if (value == NULL)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "option \"%s\" has no value: expected %s%s", option->name,
                              of, wish);
    if (option->kind == SQRL_OPTION_SECRET)
        return sqrl_error_set(err, SQRL_E_INVALID, "option \"%s\": expected %s%s",
                              option->name, of, wish);
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "option \"%s\": expected %s%s, not \"%.*s\"", option->name, of,
                          wish, SHOWN_BYTES, value);
}

static const struct sqrl_option *find_option(const struct sqrl_option *list,
                                             const char *name) {
    for (; list != NULL && list->name != NULL; list++)
        if (strcmp(list->name, name) == 0)
            return list;
    return NULL;
}

static int unknown_option(const struct sqrl_option *const *lists, const char *name,
                          const char *who, struct sqrl_error *err) {
    const char *names[MAX_NAMES];
    size_t count = 0;
    for (; *lists != NULL; lists++)
        for (const struct sqrl_option *o = *lists; o->name != NULL && count < MAX_NAMES;
             o++)
            names[count++] = o->name;
    if (count == 0)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "%s has no option \"%.*s\": it takes none", who,
                              SHOWN_BYTES, name);
    const char *near = sqrl_nearest(name, names, count);
    if (near != NULL)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "%s has no option \"%.*s\"; did you mean \"%s\"?", who,
                              SHOWN_BYTES, name, near);
    char known[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        if (used + length + 6 > sizeof known) {
            memcpy(known + used, ", ...", 6);
            break;
        }
        if (used > 0) {
            memcpy(known + used, ", ", 2);
            used += 2;
        }
        memcpy(known + used, names[i], length + 1);
        used += length;
    }
    return sqrl_error_set(err, SQRL_E_INVALID, "%s has no option \"%.*s\"; it knows %s",
                          who, SHOWN_BYTES, name, known);
}

int sqrl_settings_check(const struct sqrl_settings *settings,
                        const struct sqrl_option *const *lists, const char *who,
                        struct sqrl_error *err) {
    for (size_t i = 0; settings != NULL && i < settings->count; i++) {
        const struct sqrl_setting *item = &settings->items[i];
        const struct sqrl_option *option = NULL;
        for (const struct sqrl_option *const *list = lists;
             *list != NULL && option == NULL; list++)
            option = find_option(*list, item->name);
        if (option == NULL)
            return unknown_option(lists, item->name, who, err);
        if (item->value == NULL || !is_readable(option, item->value))
            return sqrl_error_at(err, bad_value(option, item->value, err), "%s", who);
    }
    return SQRL_OK;
}

const char *sqrl_settings_text(const struct sqrl_settings *settings,
                               const struct sqrl_option *list, const char *name) {
    for (size_t i = settings != NULL ? settings->count : 0; i > 0; i--) {
        const struct sqrl_setting *item = &settings->items[i - 1];
        if (item->value != NULL && strcmp(item->name, name) == 0)
            return item->value;
    }
    const struct sqrl_option *option = find_option(list, name);
    return option != NULL ? option->initial : NULL;
}

int sqrl_settings_copy(const struct sqrl_settings *from, struct sqrl_settings *to,
                       struct sqrl_error *err) {
    size_t size = from->count * sizeof(struct sqrl_setting);
    for (size_t i = 0; i < from->count; i++)
        size += strlen(from->items[i].name) + strlen(from->items[i].value) + 2;
    struct sqrl_setting *items = sqrl_calloc(1, SQRL_MAX(size, 1u), "settings", err);
    if (!items)
        return SQRL_E_NO_MEMORY;
    char *text = (char *)(items + from->count);
    for (size_t i = 0; i < from->count; i++) {
        items[i].name = strcpy(text, from->items[i].name);
        text += strlen(text) + 1;
        items[i].value = strcpy(text, from->items[i].value);
        text += strlen(text) + 1;
    }
    *to = (struct sqrl_settings){items, from->count};
    return SQRL_OK;
}

/* The text of an option that must have a value of the asked kind. */
static int get_text(const struct sqrl_settings *settings, const struct sqrl_option *list,
                    const char *name, const char **text, struct sqrl_error *err) {
    *text = sqrl_settings_text(settings, list, name);
    if (*text == NULL)
        return sqrl_error_set(err, SQRL_E_INVALID, "option \"%s\" is not set", name);
    return SQRL_OK;
}

static int unreadable(const struct sqrl_option *list, const char *name,
                      enum sqrl_option_type type, const char *text,
                      struct sqrl_error *err) {
    const struct sqrl_option *found = find_option(list, name);
    struct sqrl_option option = {.name = name, .type = type};
    if (found != NULL)
        option.kind = found->kind;
    return bad_value(&option, text, err);
}

int sqrl_settings_int(const struct sqrl_settings *settings,
                      const struct sqrl_option *list, const char *name, int64_t *out,
                      struct sqrl_error *err) {
    const char *text;
    *out = 0;
    int code = get_text(settings, list, name, &text, err);
    if (code == SQRL_OK && !read_int(text, out))
        code = unreadable(list, name, SQRL_OPTION_INT, text, err);
    return code;
}

int sqrl_settings_size(const struct sqrl_settings *settings,
                       const struct sqrl_option *list, const char *name, uint64_t *out,
                       struct sqrl_error *err) {
    const char *text;
    *out = 0;
    int code = get_text(settings, list, name, &text, err);
    if (code == SQRL_OK && read_size(text, out) != 0)
        code = unreadable(list, name, SQRL_OPTION_SIZE, text, err);
    return code;
}

int sqrl_settings_float(const struct sqrl_settings *settings,
                        const struct sqrl_option *list, const char *name, double *out,
                        struct sqrl_error *err) {
    const char *text;
    *out = 0;
    int code = get_text(settings, list, name, &text, err);
    if (code == SQRL_OK && !read_float(text, out))
        code = unreadable(list, name, SQRL_OPTION_FLOAT, text, err);
    return code;
}

int sqrl_settings_bool(const struct sqrl_settings *settings,
                       const struct sqrl_option *list, const char *name, bool *out,
                       struct sqrl_error *err) {
    const char *text;
    *out = false;
    int code = get_text(settings, list, name, &text, err);
    if (code == SQRL_OK && !read_bool(text, out))
        code = unreadable(list, name, SQRL_OPTION_BOOL, text, err);
    return code;
}
