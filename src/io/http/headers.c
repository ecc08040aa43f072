/* headers.c - lists of header lines, responses, and what a status means. */
#include "io/http/transfer.h"

#include <stdlib.h>
#include <strings.h>

#define WORDS_BYTES 160

int sqrl_http_headers_add(struct sqrl_http_headers *headers, const char *name,
                          const char *value, struct sqrl_error *err) {
    if (!*name || strpbrk(name, "\r\n: ") || strpbrk(value, "\r\n"))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "not a header: \"%.40s\" must be a name without spaces and "
                              "colons, its value one line",
                              name);
    if (headers->count == headers->capacity) {
        size_t capacity = headers->capacity ? 2 * headers->capacity : 16;
        void *items = sqrl_realloc(headers->items, capacity * sizeof *headers->items,
                                   "headers", err);
        if (!items)
            return SQRL_E_NO_MEMORY;
        headers->items = items;
        headers->capacity = capacity;
    }
    struct sqrl_http_header *h = &headers->items[headers->count];
    h->name = sqrl_strdup(name, err);
    h->value = h->name ? sqrl_strdup(value, err) : NULL;
    if (!h->value) {
        free(h->name);
        return SQRL_E_NO_MEMORY;
    }
    headers->count++;
    return SQRL_OK;
}

const char *sqrl_http_headers_get(const struct sqrl_http_headers *headers,
                                  const char *name) {
    for (size_t i = 0; i < headers->count; i++)
        if (strcasecmp(headers->items[i].name, name) == 0)
            return headers->items[i].value;
    return NULL;
}

void sqrl_http_headers_free(struct sqrl_http_headers *headers) {
    for (size_t i = 0; i < headers->count; i++) {
        free(headers->items[i].name);
        free(headers->items[i].value);
    }
    free(headers->items);
    *headers = (struct sqrl_http_headers){0};
}

void sqrl_http_response_free(struct sqrl_http_response *response) {
    sqrl_http_headers_free(&response->headers);
    free(response->body);
    free(response->url);
    *response = (struct sqrl_http_response){0};
}

void sqrl_transfer_reset(struct sqrl_transfer *transfer) {
    sqrl_http_headers_free(&transfer->answer);
    *transfer = (struct sqrl_transfer){0};
}

double sqrl_http_retry_after(const struct sqrl_http_response *response) {
    const char *value = sqrl_http_headers_get(&response->headers, "Retry-After");
    if (!value)
        return -1;
    char *end;
    long seconds = strtol(value, &end, 10);
    if (end != value && *end == 0)
        return seconds < 0 ? -1 : (double)seconds;
    int64_t date = sqrl_curl_date(value);
    if (date < 0)
        return -1;
    double wait = (double)date - (double)sqrl_wall_ns() / 1e9;
    return wait > 0 ? wait : 0;
}

/* What a server says in text, XML or JSON; pages are left out. */
static void words(const struct sqrl_http_response *response, char *out) {
    const char *type = sqrl_http_headers_get(&response->headers, "Content-Type");
    *out = 0;
    if (!response->body || (type && strstr(type, "html")))
        return;
    const char *text = (const char *)response->body, *inner = strstr(text, "<Code>");
    size_t n = 0;
    bool gap = false;
    for (text = inner ? inner : text; *text && n + 4 < WORDS_BYTES; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<') { /* tags are gaps */
            gap = n > 0;
            text += strcspn(text, ">");
            if (!*text)
                break;
        } else if (c <= ' ') {
            gap = n > 0;
        } else {
            if (gap)
                out[n++] = ' ';
            gap = false;
            out[n++] = (char)c;
        }
    }
    out[n] = 0;
}

static int code_of(int status) {
    switch (status) {
    case 401:
    case 403:
    case 407:
        return SQRL_E_PERMISSION;
    case 404:
    case 410:
        return SQRL_E_NOT_FOUND;
    case 412:
        return SQRL_E_STATE;
    case 507:
        return SQRL_E_NO_SPACE;
    default:
        return SQRL_E_IO;
    }
}

static const char *meaning(int status) {
    switch (status) {
    case 401:
        return "it wants credentials";
    case 403:
        return "access is refused";
    case 404:
        return "there is no such file";
    case 407:
        return "the proxy wants credentials";
    case 410:
        return "the file is gone";
    case 412:
        return "the file changed since it was opened: open it again";
    case 416:
        return "there is no such range: the file is shorter than it was";
    case 429:
        return "too many requests";
    case 503:
        return "it is overloaded";
    default:
        return status >= 500 ? "it failed" : "it refused the request";
    }
}

int sqrl_http_status_error(const struct sqrl_http_response *response,
                           struct sqrl_error *err) {
    int s = response->status;
    char text[WORDS_BYTES];
    words(response, text);
    int rc = sqrl_error_set(err, code_of(s), "the server answered %d: %s%s%s%s", s,
                            meaning(s), *text ? " (" : "", text, *text ? ")" : "");
    if (err)
        err->retryable = s == 408 || s == 429 || (s >= 500 && s != 501 && s != 507);
    return rc;
}
