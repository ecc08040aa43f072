/* sigv4.c - canonical request, string to sign, derived key, signature. */
#include "io/object/sigv4.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/object/digest.h"

enum { MAX_SIGNED = 32, MAX_PARAMETERS = 64 };

struct pair {
    const char *name, *value;
    size_t name_size, value_size;
};

static int compare_bytes(const char *a, size_t n, const char *b, size_t m) {
    int c = memcmp(a, b, SQRL_MIN(n, m));
    return c ? c : (n > m) - (n < m);
}

static int by_name_and_value(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    int c = compare_bytes(x->name, x->name_size, y->name, y->name_size);
    return c ? c : compare_bytes(x->value, x->value_size, y->value, y->value_size);
}

/* The query, sorted; each name has its "=". */
static void add_query(struct obj_text *t, const struct obj_url *url) {
    struct pair pairs[MAX_PARAMETERS];
    size_t count = 0;
    const char *p = url->query, *end = p + url->query_size;
    while (p < end && count < MAX_PARAMETERS) {
        size_t size = strcspn(p, "&#");
        const char *mark = memchr(p, '=', size);
        size_t name = mark ? (size_t)(mark - p) : size;
        pairs[count++] = (struct pair){p, mark ? mark + 1 : p + size, name,
                                       mark ? size - name - 1 : 0};
        p += size + 1;
    }
    qsort(pairs, count, sizeof *pairs, by_name_and_value);
    for (size_t i = 0; i < count; i++) {
        obj_add(t, i ? "&" : "");
        obj_add_n(t, pairs[i].name, pairs[i].name_size);
        obj_add(t, "=");
        obj_add_n(t, pairs[i].value, pairs[i].value_size);
    }
}

static int by_header(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    return strcasecmp(x->name, y->name);
}

static void add_lower(struct obj_text *t, const char *text) {
    for (; *text; text++) {
        char c = (char)tolower((unsigned char)*text);
        obj_add_n(t, &c, 1);
    }
}

/* Without spaces around, runs of spaces as one. */
static void add_trimmed(struct obj_text *t, const char *text, size_t size) {
    while (size && text[size - 1] == ' ')
        size--;
    while (size && *text == ' ')
        text++, size--;
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ' || text[i - 1] != ' ')
            obj_add_n(t, text + i, 1);
}

struct canonical {
    struct obj_text request, names; /* the whole text; "host;x-amz-date" */
};

static void build(struct canonical *c, const struct sigv4 *s, const char *method,
                  const struct obj_url *url, const struct sqrl_http_header *headers,
                  size_t count) {
    struct pair all[MAX_SIGNED];
    size_t n = 0;
    all[n++] = (struct pair){"host", url->host, 4, url->host_size};
    for (size_t i = 0; i < count && n < MAX_SIGNED; i++)
        all[n++] =
            (struct pair){headers[i].name, headers[i].value, 0, strlen(headers[i].value)};
    qsort(all, n, sizeof *all, by_header);
    obj_format(&c->request, "%s\n", method);
    if (url->path_size)
        obj_add_n(&c->request, url->path, url->path_size);
    else
        obj_add(&c->request, "/");
    obj_add(&c->request, "\n");
    add_query(&c->request, url);
    obj_add(&c->request, "\n");
    for (size_t i = 0; i < n; i++) {
        add_lower(&c->request, all[i].name);
        obj_add(&c->request, ":");
        add_trimmed(&c->request, all[i].value, all[i].value_size);
        obj_add(&c->request, "\n");
        obj_add(&c->names, i ? ";" : "");
        add_lower(&c->names, all[i].name);
    }
    obj_add(&c->names, "");
    obj_add(&c->request, "\n");
    obj_add_n(&c->request, (const char *)c->names.bytes.data, c->names.bytes.size);
    obj_format(&c->request, "\n%s", s->payload);
}

/* HMAC(HMAC(HMAC(HMAC("AWS4" + secret, date), region), service), "aws4_request") */
static int signing_key(const struct sigv4 *s, const char date[9], uint8_t key[32],
                       struct sqrl_error *err) {
    char *first = sqrl_format(err, "%s4%s", s->google ? "GOOG" : "AWS", s->secret);
    if (!first)
        return SQRL_E_NO_MEMORY;
    object_hmac(first, strlen(first), date, 8, key);
    obj_secret_free(first);
    object_hmac(key, 32, s->region, strlen(s->region), key);
    object_hmac(key, 32, s->service, strlen(s->service), key);
    const char *end = s->google ? "goog4_request" : "aws4_request";
    object_hmac(key, 32, end, strlen(end), key);
    return SQRL_OK;
}

static char *authorization(const struct sigv4 *s, const struct canonical *c,
                           struct sqrl_error *err) {
    char stamp[17], date[9] = "", hash[OBJECT_HEX_BYTES], signature[OBJECT_HEX_BYTES];
    uint8_t key[32], mac[32];
    struct obj_text scope = {.err = err}, to_sign = {.err = err}, out = {.err = err};
    obj_time_basic(s->time, stamp);
    memcpy(date, stamp, 8);
    object_sha256_hex(c->request.bytes.data, c->request.bytes.size, hash);
    const char *scheme = s->google ? "GOOG4" : "AWS4";
    obj_format(&scope, "%s/%s/%s/%s_request", date, s->region, s->service,
               s->google ? "goog4" : "aws4");
    char *where = obj_take(&scope);
    if (!where)
        return NULL;
    obj_format(&to_sign, "%s-HMAC-SHA256\n%s\n%s\n%s", scheme, stamp, where, hash);
    if (to_sign.rc == SQRL_OK)
        to_sign.rc = signing_key(s, date, key, err);
    if (to_sign.rc == SQRL_OK) {
        object_hmac(key, 32, to_sign.bytes.data, to_sign.bytes.size, mac);
        object_hex(mac, 32, signature);
        obj_format(&out, "%s-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%.*s, ", scheme,
                   s->key, where, (int)c->names.bytes.size,
                   (const char *)c->names.bytes.data);
        obj_format(&out, "Signature=%s", signature);
    }
    bool good = to_sign.rc == SQRL_OK;
    explicit_bzero(key, sizeof key);
    obj_reset(&to_sign);
    free(where);
    return good ? obj_take(&out) : NULL;
}

char *object_sigv4(const struct sigv4 *s, const char *method, const char *url,
                   const struct sqrl_http_header *headers, size_t count,
                   struct sqrl_error *err) {
    struct canonical c = {.request.err = err, .names.err = err};
    struct obj_url parts;
    char *out = NULL;
    if (!obj_url_split(url, &parts)) {
        sqrl_error_set(err, SQRL_E_INVALID, "this is no http or https URL");
        return NULL;
    }
    build(&c, s, method, &parts, headers, count);
    if (c.request.rc == SQRL_OK && c.names.rc == SQRL_OK)
        out = authorization(s, &c, err);
    obj_reset(&c.request);
    obj_reset(&c.names);
    return out;
}
