/* yaml_time.c - dates and times: YAML 1.1's timestamps, as PyYAML and ruamel.yaml take
 * them. */
#include <stdio.h>

#include "catalog/yaml.h"

struct cursor {
    const char *at, *end;
};

static bool is_digit(const struct cursor *c) {
    return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

static bool skip(struct cursor *c, char wanted) {
    bool found = c->at < c->end && *c->at == wanted;
    c->at += found;
    return found;
}

static bool skip_blanks(struct cursor *c) {
    const char *begin = c->at;
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
    return c->at != begin;
}

/* Digits, at least `least` and at most `most` of them. */
static bool number(struct cursor *c, int least, int most, unsigned *out) {
    int count = 0;
    *out = 0;
    for (; count < most && is_digit(c); count++)
        *out = *out * 10 + (unsigned)(*c->at++ - '0');
    return count >= least;
}

/* Microseconds; more than six digits are none. */
static bool fraction(struct cursor *c, unsigned *out) {
    const char *begin = c->at;
    if (!number(c, 0, 6, out) || is_digit(c))
        return false;
    for (long digits = c->at - begin; digits < 6; digits++)
        *out *= 10;
    return true;
}

/* "Z", "+2", "-03:30" or nothing, up to the end. */
static bool zone(struct cursor *c, char *out, size_t size) {
    unsigned hours, minutes = 0;
    bool blank = skip_blanks(c);
    *out = '\0';
    if (c->at == c->end)
        return !blank;
    if (skip(c, 'Z')) {
        snprintf(out, size, "+00:00");
        return c->at == c->end;
    }
    bool minus = skip(c, '-');
    if ((!minus && !skip(c, '+')) || !number(c, 1, 2, &hours))
        return false;
    if (skip(c, ':') && !number(c, 2, 2, &minutes))
        return false;
    minus = minus && (hours || minutes); /* -00:00 is no other time than +00:00 */
    snprintf(out, size, "%c%02u:%02u", minus ? '-' : '+', hours, minutes);
    return c->at == c->end && hours < 24 && minutes < 60;
}

static unsigned days_of(unsigned year, unsigned month) {
    static const unsigned char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap);
}

size_t sqrl_catalog_time(const char *text, size_t size, char *out) {
    struct cursor c = {text, text + size};
    unsigned year, month, day, hour, minute, second, micros = 0;
    char part[8] = "", offset[16];
    if (!number(&c, 4, 4, &year) || !skip(&c, '-') || !number(&c, 1, 2, &month) ||
        !skip(&c, '-') || !number(&c, 1, 2, &day))
        return 0;
    if (!year || month < 1 || month > 12 || day < 1 || day > days_of(year, month))
        return 0;
    int used = snprintf(out, SQRL_CATALOG_TIME_BYTES, "%04u-%02u-%02u", year, month, day);
    if (c.at == c.end)
        return size == 10 ? (size_t)used : 0; /* a date has all its digits */
    if (!skip(&c, 'T') && !skip(&c, 't') && !skip_blanks(&c))
        return 0;
    if (!number(&c, 1, 2, &hour) || !skip(&c, ':') || !number(&c, 2, 2, &minute) ||
        !skip(&c, ':') || !number(&c, 2, 2, &second))
        return 0;
    if (hour > 23 || minute > 59 || second > 59 ||
        (skip(&c, '.') && !fraction(&c, &micros)) || !zone(&c, offset, sizeof offset))
        return 0;
    if (micros)
        snprintf(part, sizeof part, ".%06u", micros % 1000000);
    used += snprintf(out + used, SQRL_CATALOG_TIME_BYTES - (size_t)used,
                     " %02u:%02u:%02u%s%s", hour, minute, second, part, offset);
    return (size_t)used;
}
