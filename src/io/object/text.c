/* text.c - building and taking apart the texts of requests and answers.
 *
 * The XML reader knows what stores send: elements, attributes that are skipped, entities.
 * It looks for names, so unknown elements, orders and white space do not matter to it. */
#include "io/object/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

/* --- building --- */

void obj_add_n(struct obj_text *t, const char *text, size_t size) {
    if (t->rc == SQRL_OK && size)
        t->rc = sqrl_bytes_append(&t->bytes, text, size, t->err);
}

void obj_add(struct obj_text *t, const char *text) {
    obj_add_n(t, text, strlen(text));
}

void obj_format(struct obj_text *t, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (t->rc == SQRL_OK && length > 0)
        t->rc = sqrl_bytes_reserve(&t->bytes, (size_t)length + 1, t->err);
    if (t->rc == SQRL_OK && length > 0) {
        vsnprintf((char *)t->bytes.data + t->bytes.size, (size_t)length + 1, format,
                  again);
        t->bytes.size += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

static bool is_unreserved(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '.' || c == '_' || c == '~';
}

void obj_escape(struct obj_text *t, const char *text, size_t size, bool slashes) {
    for (size_t i = 0; i < size; i++) {
        char hex[4] = {'%', "0123456789ABCDEF"[(uint8_t)text[i] >> 4],
                       "0123456789ABCDEF"[(uint8_t)text[i] & 15], 0};
        if (is_unreserved(text[i]) || (slashes && text[i] == '/'))
            obj_add_n(t, text + i, 1);
        else
            obj_add_n(t, hex, 3);
    }
}

void obj_query(struct obj_text *t, const char *name, const char *value) {
    bool first = !t->bytes.size || !memchr(t->bytes.data, '?', t->bytes.size);
    obj_add(t, first ? "?" : "&");
    obj_escape(t, name, strlen(name), false);
    if (value) {
        obj_add(t, "=");
        obj_escape(t, value, strlen(value), false);
    }
}

char *obj_take(struct obj_text *t) {
    if (t->rc == SQRL_OK)
        t->rc = sqrl_bytes_append(&t->bytes, "", 1, t->err);
    if (t->rc != SQRL_OK) {
        obj_reset(t);
        return NULL;
    }
    char *text = (char *)t->bytes.data;
    memset(&t->bytes, 0, sizeof t->bytes);
    return text;
}

void obj_reset(struct obj_text *t) {
    sqrl_bytes_reset(&t->bytes);
}

/* --- URLs --- */

bool obj_url_split(const char *url, struct obj_url *out) {
    memset(out, 0, sizeof *out);
    const char *mark = strstr(url, "://");
    if (!mark)
        return false;
    out->scheme_size = (size_t)(mark - url);
    out->tls = out->scheme_size == 5 && strncasecmp(url, "https", 5) == 0;
    if (!out->tls && !(out->scheme_size == 4 && strncasecmp(url, "http", 4) == 0))
        return false;
    out->host = mark + 3;
    out->host_size = strcspn(out->host, "/?#");
    out->path = out->host + out->host_size;
    out->path_size = strcspn(out->path, "?#");
    const char *rest = out->path + out->path_size;
    out->query = *rest == '?' ? rest + 1 : rest;
    out->query_size = *rest == '?' ? strcspn(out->query, "#") : 0;
    return out->host_size > 0 && !memchr(out->host, '@', out->host_size);
}

/* --- dates --- */

static const char MONTHS[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

void obj_time_basic(int64_t seconds, char out[17]) {
    struct tm tm;
    time_t t = (time_t)seconds;
    gmtime_r(&t, &tm);
    strftime(out, 17, "%Y%m%dT%H%M%SZ", &tm);
}

void obj_time_http(int64_t seconds, char out[30]) {
    struct tm tm;
    time_t t = (time_t)seconds;
    gmtime_r(&t, &tm);
    snprintf(out, 30, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT",
             &"SunMonTueWedThuFriSat"[3 * tm.tm_wday], (unsigned)tm.tm_mday % 100u,
             &MONTHS[3 * tm.tm_mon], ((unsigned)tm.tm_year + 1900u) % 10000u,
             (unsigned)tm.tm_hour % 100u, (unsigned)tm.tm_min % 100u,
             (unsigned)tm.tm_sec % 100u);
}

int64_t obj_time_of_http(const char *text) {
    struct tm tm = {0};
    char month[4] = "";
    if (!text || sscanf(text, "%*3s, %2d %3s %4d %2d:%2d:%2d GMT", &tm.tm_mday, month,
                        &tm.tm_year, &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6)
        return -1;
    const char *found = strstr(MONTHS, month);
    if (!found || strlen(month) != 3 || (found - MONTHS) % 3 || tm.tm_year < 1970)
        return -1;
    tm.tm_mon = (int)(found - MONTHS) / 3;
    tm.tm_year -= 1900;
    return (int64_t)timegm(&tm);
}

int64_t obj_time_of_iso(const char *text, size_t size) {
    struct tm tm = {0};
    char copy[40] = "";
    int used = 0, hours = 0, minutes = 0;
    if (!text || size >= sizeof copy)
        return -1;
    memcpy(copy, text, size);
    if (sscanf(copy, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &used) != 6 ||
        tm.tm_year < 1970 || tm.tm_year > 2200 || tm.tm_mon < 1 || tm.tm_mon > 12)
        return -1;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    int64_t ns = (int64_t)timegm(&tm) * 1000000000;
    const char *p = copy + used;
    if (*p == '.') {
        int64_t unit = 100000000;
        for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
            ns += (*p - '0') * unit;
    }
    if ((*p == '+' || *p == '-') && sscanf(p + 1, "%2d:%2d", &hours, &minutes) == 2)
        ns += (*p == '+' ? -1 : 1) * (int64_t)(hours * 60 + minutes) * 60000000000;
    return ns;
}

/* --- XML --- */

/* Is this the begin tag of `name`? Then `*after` is behind its '>', `*empty` tells of
 * "<name/>". */
static bool begins(const char *p, const char *end, const char *name, size_t size,
                   const char **after, bool *empty) {
    if ((size_t)(end - p) < size + 2 || *p != '<' || memcmp(p + 1, name, size) != 0 ||
        !strchr("> \t\r\n/", p[size + 1]) || !p[size + 1])
        return false;
    const char *close = memchr(p, '>', (size_t)(end - p));
    if (!close)
        return false;
    *empty = close[-1] == '/';
    *after = close + 1;
    return true;
}

bool obj_xml_next(struct obj_xml *in, const char *name, struct obj_xml *content) {
    size_t size = strlen(name);
    const char *p = in->at, *after;
    bool empty;
    for (; p < in->end; p++) {
        p = memchr(p, '<', (size_t)(in->end - p));
        if (!p)
            return false;
        if (begins(p, in->end, name, size, &after, &empty))
            break;
    }
    if (p >= in->end)
        return false;
    content->at = content->end = in->at = after;
    for (p = after; !empty; p++) {
        p = memchr(p, '<', (size_t)(in->end - p));
        if (!p || (size_t)(in->end - p) < size + 3)
            return false;
        if (p[1] == '/' && memcmp(p + 2, name, size) == 0 && p[2 + size] == '>') {
            content->end = p;
            in->at = p + size + 3;
            return true;
        }
    }
    return true;
}

static char *put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    }
    return out;
}

/* Writes what the entity at `p` ("&amp;") means, never longer than itself; returns what
 * is behind it, or NULL when it is none. */
static const char *entity(const char *p, const char *end, char **out) {
    static const struct {
        const char *name;
        char means;
    } names[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        size_t size = strlen(names[i].name);
        if ((size_t)(end - p) >= size && memcmp(p, names[i].name, size) == 0) {
            *(*out)++ = names[i].means;
            return p + size;
        }
    }
    if (end - p < 4 || p[1] != '#')
        return NULL;
    bool hex = p[2] == 'x';
    uint32_t c = 0;
    const char *q = p + 2 + hex;
    for (; q < end && *q != ';' && c <= 0x10ffff; q++) {
        char d = *q | 0x20;
        if (*q >= '0' && *q <= '9')
            c = c * (hex ? 16 : 10) + (uint32_t)(*q - '0');
        else if (hex && d >= 'a' && d <= 'f')
            c = c * 16 + (uint32_t)(d - 'a') + 10;
        else
            return NULL;
    }
    if (q >= end || *q != ';' || c == 0 || c > 0x10ffff)
        return NULL;
    *out = put_utf8(*out, c); /* "&#1;" is longer than any character it can name */
    return q + 1;
}

char *obj_xml_text(const struct obj_xml *in, const char *name, struct sqrl_error *err) {
    struct obj_xml rest = *in, content;
    if (!obj_xml_next(&rest, name, &content))
        return NULL;
    size_t size = (size_t)(content.end - content.at);
    char *text = sqrl_malloc(size + 1, "a text of a listing", err), *out = text;
    for (const char *p = content.at; text && p < content.end;) {
        const char *behind = *p == '&' ? entity(p, content.end, &out) : NULL;
        if (behind)
            p = behind;
        else
            *out++ = *p++;
    }
    if (text)
        *out = '\0';
    return text;
}

int64_t obj_xml_number(const struct obj_xml *in, const char *name) {
    struct obj_xml rest = *in, content;
    int64_t value = 0;
    if (!obj_xml_next(&rest, name, &content) || content.at == content.end ||
        content.end - content.at > 18)
        return -1;
    for (const char *p = content.at; p < content.end; p++) {
        if (*p < '0' || *p > '9')
            return -1;
        value = value * 10 + (*p - '0');
    }
    return value;
}

void obj_add_xml(struct obj_text *t, const char *text) {
    for (; *text; text++) {
        if (*text == '&')
            obj_add(t, "&amp;");
        else if (*text == '<')
            obj_add(t, "&lt;");
        else if (*text == '>')
            obj_add(t, "&gt;");
        else if (*text == '"')
            obj_add(t, "&quot;");
        else
            obj_add_n(t, text, 1);
    }
}

/* --- JSON --- */

int obj_json_read(struct obj_json *j, const char *text, size_t size,
                  struct sqrl_error *err) {
    static const struct sqrl_limits limits = {.max_depth = 32};
    size_t offset = 0;
    memset(j, 0, sizeof *j);
    j->size = size;
    j->bytes = sqrl_malloc(size + 1, "an answer", err);
    if (!j->bytes)
        return SQRL_E_NO_MEMORY;
    memcpy(j->bytes, text, size);
    int rc = sqrl_json_decode(&j->tape, j->bytes, size, &offset, SQRL_JSON_NO_ARRAYS,
                              &limits, err);
    if (rc == SQRL_OK && (offset != size || j->tape.nodes[0].type != SQRL_MAP))
        rc = sqrl_error_set(err, SQRL_E_CORRUPT, "a JSON object was expected");
    if (rc)
        obj_json_reset(j);
    return rc;
}

void obj_json_reset(struct obj_json *j) {
    if (j->bytes)
        explicit_bzero(j->bytes, j->size); /* answers hold tokens */
    free(j->bytes);
    sqrl_tape_reset(&j->tape);
    memset(j, 0, sizeof *j);
}

uint32_t obj_json_behind(const struct obj_json *j, uint32_t node) {
    uint8_t type = j->tape.nodes[node].type;
    bool container = type == SQRL_MAP || type == SQRL_ARRAY;
    return container ? (uint32_t)j->tape.nodes[node].v.next : node + 1;
}

uint32_t obj_json_member(const struct obj_json *j, uint32_t map, const char *name) {
    const struct sqrl_node *nodes = j->tape.nodes;
    size_t size = strlen(name);
    uint32_t at = map + 1;
    if (nodes[map].type != SQRL_MAP)
        return 0;
    for (uint32_t i = 0; i < nodes[map].size; i++) {
        if (nodes[at].type == SQRL_STRING && nodes[at].size == size &&
            memcmp(j->bytes + nodes[at].v.offset, name, size) == 0)
            return at + 1;
        at = obj_json_behind(j, at + 1);
    }
    return 0;
}

char *obj_json_text(const struct obj_json *j, uint32_t map, const char *name,
                    struct sqrl_error *err) {
    uint32_t at = obj_json_member(j, map, name);
    const struct sqrl_node *node = j->tape.nodes + at;
    if (!at)
        return NULL;
    if (node->type == SQRL_INT)
        return sqrl_format(err, "%lld", (long long)node->v.i);
    if (node->type != SQRL_STRING)
        return NULL;
    return sqrl_format(err, "%.*s", (int)node->size,
                       (const char *)j->bytes + node->v.offset);
}

void obj_add_json(struct obj_text *t, const char *text) {
    obj_add(t, "\"");
    for (; *text; text++)
        if (*text == '"' || *text == '\\' || (uint8_t)*text < 0x20)
            obj_format(t, "\\u%04x", (unsigned)(uint8_t)*text);
        else
            obj_add_n(t, text, 1);
    obj_add(t, "\"");
}

/* --- secrets --- */

void obj_secret_free(char *text) {
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}
