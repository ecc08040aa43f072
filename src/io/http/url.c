/* url.c - URLs as text: what may be shown of them, and escapes. */
#include "io/http/http.h"

#include <stdlib.h>

char *sqrl_http_url_clean(const char *url, struct sqrl_error *err) {
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    size_t authority = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', authority);
    const char *rest = at ? at + 1 : host;
    return sqrl_format(err, "%.*s%.*s", (int)(host - url), url, (int)strcspn(rest, "?#"),
                       rest);
}

/* Unreserved characters of RFC 3986. */
static bool unreserved(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '.' || c == '_' || c == '~';
}

static char *escape(const char *text, const char *keep, struct sqrl_error *err) {
    static const char digits[] = "0123456789ABCDEF";
    char *out = sqrl_malloc(3 * strlen(text) + 1, "a URL", err), *to = out;
    if (!out)
        return NULL;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (unreserved(*c) || strchr(keep, *c)) {
            *to++ = (char)*c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[*c >> 4];
        *to++ = digits[*c & 15];
    }
    *to = 0;
    return out;
}

char *sqrl_http_path_escape(const char *path, struct sqrl_error *err) {
    return escape(path, "/", err);
}

char *sqrl_http_component_escape(const char *text, struct sqrl_error *err) {
    return escape(text, "", err);
}
