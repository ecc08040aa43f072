/* credentials_file.c - ~/.aws/config and credentials, and the requests to services that
 * give credentials. */
#include <stdlib.h>
#include <strings.h>

#include "io/object/credentials.h"

/* --- INI files --- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static void trim(const char **text, size_t *size) {
    while (*size && is_blank((*text)[*size - 1]))
        --*size;
    while (*size && is_blank(**text))
        ++*text, --*size;
}

static bool same(const char *text, size_t size, const char *name) {
    return strlen(name) == size && memcmp(text, name, size) == 0;
}

char *aws_ini_value(const char *text, const char *section, const char *name,
                    struct sqrl_error *err) {
    bool inside = false;
    while (*text) {
        size_t line = strcspn(text, "\n"), size = line;
        const char *p = text;
        bool indented = is_blank(*p); /* a nested setting: not ours */
        text += line + (text[line] == '\n');
        trim(&p, &size);
        if (!size || *p == '#' || *p == ';')
            continue;
        if (*p == '[') {
            const char *close = memchr(p, ']', size);
            size_t n = close ? (size_t)(close - p) - 1 : 0;
            p++;
            trim(&p, &n);
            inside = same(p, n, section);
            continue;
        }
        const char *mark = memchr(p, '=', size);
        if (!inside || indented || !mark)
            continue;
        size_t n = (size_t)(mark - p), rest = size - n - 1;
        const char *value = mark + 1;
        trim(&p, &n);
        trim(&value, &rest);
        if (same(p, n, name) && rest)
            return sqrl_format(err, "%.*s", (int)rest, value);
    }
    return NULL;
}

static char *setting_of_file(const char *variable, const char *standard,
                             const char *section, const char *name,
                             struct sqrl_error *err) {
    const char *path = getenv(variable), *home = getenv("HOME");
    char *own = NULL;
    if (!path || !*path)
        path = own = home ? sqrl_format(err, "%s/.aws/%s", home, standard) : NULL;
    char *text = path ? object_read_file(path, err) : NULL;
    char *value = text ? aws_ini_value(text, section, name, err) : NULL;
    obj_secret_free(text);
    free(own);
    return value;
}

char *aws_profile_setting(const char *profile, const char *name, struct sqrl_error *err) {
    char *value =
        setting_of_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile, name, err);
    if (value)
        return value;
    bool standard = strcmp(profile, "default") == 0;
    char *section = sqrl_format(err, "%s%s", standard ? "" : "profile ", profile);
    if (section)
        value = setting_of_file("AWS_CONFIG_FILE", "config", section, name, err);
    free(section);
    return value;
}

char *aws_session_setting(const char *session, const char *name, struct sqrl_error *err) {
    char *section = sqrl_format(err, "sso-session %s", session), *value = NULL;
    if (section)
        value = setting_of_file("AWS_CONFIG_FILE", "config", section, name, err);
    free(section);
    return value;
}

/* --- requests --- */

int credentials_request(struct object_store *store, const char *method, const char *url,
                        const char *const *headers, const char *form, unsigned seconds,
                        char **body, struct sqrl_error *err) {
    struct sqrl_http_headers all = {0};
    struct sqrl_http_response response = {0};
    struct sqrl_http_policy policy = store->policy;
    struct sqrl_http *http;
    struct sqrl_error own = {0};
    *body = NULL;
    policy.deadline_ns = (uint64_t)seconds * 1000000000u;
    policy.attempts = 3;
    policy.public_only = false; /* these services are this machine's own */
    if (seconds < 5)
        policy.proxy = ""; /* an instance's metadata are never behind one */
    int rc = sqrl_http_of(store->context, &http, err);
    for (; rc == SQRL_OK && headers && headers[0]; headers += 2)
        rc = sqrl_http_headers_add(&all, headers[0], headers[1], err);
    struct sqrl_http_request request = {.method = method,
                                        .url = url,
                                        .headers = all.items,
                                        .header_count = all.count,
                                        .body = (const uint8_t *)(form ? form : ""),
                                        .body_size = form ? strlen(form) : 0,
                                        .max_body = 1 << 20,
                                        .idempotent = true,
                                        .policy = &policy};
    if (strcmp(method, "GET") == 0)
        request.body = NULL;
    if (rc == SQRL_OK)
        rc = sqrl_http_perform(http, &request, &response, 1, &own);
    if (rc == SQRL_OK && (response.status < 200 || response.status > 299))
        rc = sqrl_error_set(&own, SQRL_E_PERMISSION,
                            "the service that gives credentials answers %d; look at the "
                            "role, the token or the account that are configured",
                            response.status);
    if (rc == SQRL_OK && !response.body)
        rc = sqrl_error_set(&own, SQRL_E_PERMISSION,
                            "the service that gives credentials answers nothing");
    if (rc && err && own.code)
        *err = own;
    if (rc == SQRL_OK) {
        *body = (char *)response.body;
        response.body = NULL;
    }
    sqrl_http_response_free(&response);
    sqrl_http_headers_free(&all);
    return rc;
}
