/* store.c - what all kinds of stores share below the file system's operations: requests,
 * pages, the clock, paths, settings. */
#include "io/object/s3.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define MAX_FILE_BYTES ((size_t)1 << 20) /* of credentials */
#define MAX_ENTRIES ((size_t)1 << 24)    /* of one page */
#define SLOW_BYTES 32768u                /* of a body, a second */
#define DEADLINE_S 60u
#define END_S 600u

/* --- requests --- */

void object_request_free(struct object_request *request) {
    free(request->url);
    free(request->body);
    sqrl_http_headers_free(&request->headers);
    memset(request, 0, sizeof *request);
}

int object_header(struct object_request *request, const char *name, const char *value,
                  struct sqrl_error *err) {
    return sqrl_http_headers_add(&request->headers, name, value, err);
}

/* Bodies take their time on slow links, and putting thousands of parts together takes a
 * store minutes. */
static void be_patient(const struct object_store *store, const struct object_call *call,
                       struct object_request *out) {
    uint64_t seconds = out->http.body_size / SLOW_BYTES;
    out->patient = store->policy;
    if (!out->patient.deadline_ns)
        out->patient.deadline_ns = DEADLINE_S * UINT64_C(1000000000);
    if (call->verb == OBJECT_END) {
        seconds += END_S;
        out->patient.stall_ns = END_S * UINT64_C(1000000000);
    }
    out->patient.deadline_ns += seconds * UINT64_C(1000000000);
    out->http.policy = &out->patient;
}

int object_build(struct object_store *store, const struct object_call *call,
                 struct object_request *out, struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    out->http.method = "GET";
    out->http.body = call->body;
    out->http.body_size = call->body_size;
    out->http.idempotent = true; /* but see BEGIN: a second one costs nothing much */
    int rc = store->kind->build(store, call, out, err);
    if (rc) {
        object_request_free(out);
        return rc;
    }
    out->http.url = out->url;
    out->http.headers = out->headers.items;
    out->http.header_count = out->headers.count;
    if (out->body) {
        out->http.body = (const uint8_t *)out->body;
        out->http.body_size = out->body_size;
    }
    if (!store->anonymous && !out->unsigned_request)
        out->http.sign = store->kind->sign;
    out->http.unnamed = true; /* queries hold signatures; the path is named above */
    out->http.judge = store->kind->judge;
    out->http.arg = store;
    out->http.policy = &store->policy;
    if (out->http.body_size)
        be_patient(store, call, out);
    return SQRL_OK;
}

/* S3 names the bucket's region in a header; the next request goes there. */
static bool move_region(struct object_store *store,
                        const struct sqrl_http_response *response) {
    const char *region = sqrl_http_headers_get(&response->headers, "x-amz-bucket-region");
    bool refused = response->status == 301 || response->status == 307 ||
                   response->status == 400 || response->status == 403;
    if (!region || !refused || strlen(region) > 40)
        return false;
    sqrl_lock_take(&store->lock);
    bool other = store->region && strcmp(store->region, region) != 0;
    char *copy = other ? sqrl_strdup(region, NULL) : NULL;
    if (copy) {
        free(store->region);
        store->region = copy;
    }
    sqrl_lock_drop(&store->lock);
    return copy != NULL;
}

static int perform_once(struct object_store *store, const struct object_call *calls,
                        struct sqrl_http_response *responses, size_t count,
                        const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_http *http;
    struct object_request *requests =
        sqrl_calloc(count, sizeof *requests, "requests", err);
    struct sqrl_http_request *list = sqrl_calloc(count, sizeof *list, "requests", err);
    int rc =
        requests && list ? sqrl_http_of(store->context, &http, err) : SQRL_E_NO_MEMORY;
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        rc = object_build(store, &calls[i], &requests[i], err);
        list[i] = requests[i].http;
        list[i].cancel = cancel;
        if (calls[i].verb == OBJECT_LIST)
            __atomic_fetch_add(&store->metrics.lists, 1, __ATOMIC_RELAXED);
    }
    if (rc == SQRL_OK)
        rc = sqrl_http_perform(http, list, responses, count, err);
    for (size_t i = 0; requests && i < count; i++)
        object_request_free(&requests[i]);
    free(requests);
    free(list);
    return rc;
}

int object_perform(struct object_store *store, const struct object_call *calls,
                   struct sqrl_http_response *responses, size_t count,
                   const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    memset(responses, 0, count * sizeof *responses);
    int rc = perform_once(store, calls, responses, count, cancel, err);
    bool moved = false;
    for (size_t i = 0; i < count && !moved; i++)
        moved = move_region(store, &responses[i]);
    if (!moved)
        return rc;
    for (size_t i = 0; i < count; i++)
        sqrl_http_response_free(&responses[i]);
    memset(responses, 0, count * sizeof *responses);
    sqrl_error_clear(err);
    return perform_once(store, calls, responses, count, cancel, err);
}

bool object_says(const struct sqrl_http_response *response, const char *word) {
    size_t size = strlen(word), all = response->body ? response->body_size : 0;
    return all >= size && all < 65536 && memmem(response->body, all, word, size);
}

/* "NoSuchBucket": the text of <Code>; free() it. */
static char *code_of(const struct sqrl_http_response *response) {
    struct obj_xml in = {(const char *)response->body,
                         (const char *)response->body + response->body_size};
    return response->body && response->body_size < 65536 ? obj_xml_text(&in, "Code", NULL)
                                                         : NULL;
}

int object_failure(const struct object_store *store,
                   const struct sqrl_http_response *response, struct sqrl_error *err) {
    const char *named = sqrl_http_headers_get(&response->headers, "x-ms-error-code");
    char *code = named ? sqrl_strdup(named, NULL) : code_of(response);
    int rc = sqrl_http_status_error(response, err);
    bool retryable = err && err->retryable;
    if (response->status == 401 || response->status == 403)
        rc = sqrl_error_set(err, SQRL_E_PERMISSION,
                            "%s refuses access (%d%s%.60s); give credentials that may, "
                            "or anonymous=true where the data are public",
                            store->kind->name, response->status, code ? " " : "",
                            code ? code : "");
    else if (response->status == 404 && code &&
             (strstr(code, "NoSuchBucket") || strstr(code, "ContainerNotFound")))
        rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                            "there is no bucket of that name; make it first");
    else if (response->status == 404)
        rc = sqrl_error_set(err, SQRL_E_NOT_FOUND, "nothing of that name is there");
    else if (code)
        rc = sqrl_error_set(err, rc, "%s answers %d %.60s", store->kind->name,
                            response->status, code);
    if (err && retryable)
        err->retryable = true;
    free(code);
    return rc;
}

/* --- the clock --- */

int64_t object_now(const struct object_store *store) {
    return sqrl_wall_ns() / 1000000000 + __atomic_load_n(&store->skew, __ATOMIC_RELAXED);
}

bool object_take_skew(struct object_store *store,
                      const struct sqrl_http_response *response) {
    int64_t theirs = obj_time_of_http(sqrl_http_headers_get(&response->headers, "Date"));
    if (theirs < 0)
        return false;
    int64_t skew = theirs - sqrl_wall_ns() / 1000000000;
    int64_t old = __atomic_exchange_n(&store->skew, skew, __ATOMIC_RELAXED);
    bool changed = skew > old + 60 || skew < old - 60;
    if (!changed)
        __atomic_store_n(&store->skew, old, __ATOMIC_RELAXED);
    else
        sqrl_log(store->context, SQRL_LOG_WARNING,
                 "this machine's clock differs from the %s server's by %lld seconds; "
                 "requests are signed with the server's time",
                 store->kind->name, (long long)skew);
    return changed;
}

/* --- pages --- */

void object_page_free(struct object_page *page) {
    for (size_t i = 0; i < page->count; i++)
        free(page->items[i].key);
    free(page->items);
    free(page->token);
    memset(page, 0, sizeof *page);
}

int object_page_add(struct object_page *page, char *key, const struct sqrl_stat *stat,
                    struct sqrl_error *err) {
    if (!key)
        return SQRL_E_NO_MEMORY;
    if (page->count == page->capacity) {
        size_t capacity = page->capacity ? 2 * page->capacity : 64;
        struct object_entry *items = NULL;
        if (capacity > MAX_ENTRIES)
            sqrl_error_set(err, SQRL_E_LIMIT, "too many entries in one answer");
        else
            items = sqrl_realloc(page->items, capacity * sizeof *items, "a listing", err);
        if (!items) {
            free(key);
            return capacity > MAX_ENTRIES ? SQRL_E_LIMIT : SQRL_E_NO_MEMORY;
        }
        page->items = items;
        page->capacity = capacity;
    }
    page->items[page->count].key = key;
    page->items[page->count++].stat = *stat;
    return SQRL_OK;
}

/* --- paths --- */

int object_path_read(const struct object_store *store, const char *path,
                     struct object_path *out, struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    size_t size = strlen(path), bucket = strcspn(path, "/");
    if (bucket == 0 || bucket > 222)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "a bucket's name is missing; URLs are scheme://bucket/key");
    if (size - bucket > 1025)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "a key has at most 1024 bytes, this one has %zu",
                              size - bucket - 1);
    out->bucket = sqrl_strdup(path, err);
    if (!out->bucket)
        return SQRL_E_NO_MEMORY;
    out->key = out->bucket + bucket;
    if (*out->key)
        *out->key++ = '\0';
    size = strlen(out->key);
    while (size && out->key[size - 1] == '/') {
        out->key[--size] = '\0';
        out->slash = true;
    }
    return SQRL_OK;
}

void object_path_free(struct object_path *path) {
    free(path->bucket);
    memset(path, 0, sizeof *path);
}

/* --- settings --- */

const char *object_setting(const struct sqrl_settings *settings,
                           const struct sqrl_option *options, const char *name,
                           const char *variables) {
    const char *value = sqrl_settings_text(settings, options, name);
    char variable[64];
    for (; !value && variables && *variables;) {
        size_t size = strcspn(variables, "|");
        snprintf(variable, sizeof variable, "%.*s", (int)size, variables);
        value = getenv(variable);
        value = value && *value ? value : NULL;
        variables += size + (variables[size] == '|');
    }
    return value;
}

int object_set_endpoint(struct object_store *store, const char *url,
                        struct sqrl_error *err) {
    struct obj_url parts;
    char *whole =
        strstr(url, "://") ? sqrl_strdup(url, err) : sqrl_format(err, "https://%s", url);
    if (!whole)
        return SQRL_E_NO_MEMORY;
    if (!obj_url_split(whole, &parts) || parts.query_size) {
        free(whole);
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "endpoint is no URL of a server; give one like "
                              "http://127.0.0.1:9000, without user and password");
    }
    const char *port = parts.tls ? ":443" : ":80";
    size_t host = parts.host_size, n = strlen(port);
    if (host > n && memcmp(parts.host + host - n, port, n) == 0)
        host -= n; /* clients leave it out of Host, which is signed */
    while (parts.path_size && parts.path[parts.path_size - 1] == '/')
        parts.path_size--;
    free(store->endpoint);
    store->endpoint =
        sqrl_format(err, "%s://%.*s%.*s", parts.tls ? "https" : "http", (int)host,
                    parts.host, (int)parts.path_size, parts.path);
    free(whole);
    return store->endpoint ? SQRL_OK : SQRL_E_NO_MEMORY;
}

char *object_read_file(const char *path, struct sqrl_error *err) {
    FILE *file = fopen(path, "rbe");
    if (!file) {
        if (errno != ENOENT && errno != ENOTDIR) {
            int code = sqrl_error_set_errno(err, errno, "can't be read");
            sqrl_error_at(err, code, "%s", path);
        }
        return NULL;
    }
    char *text = sqrl_malloc(MAX_FILE_BYTES + 1, "a file of credentials", err);
    size_t size = text ? fread(text, 1, MAX_FILE_BYTES + 1, file) : 0;
    bool failed = text && (ferror(file) || size > MAX_FILE_BYTES);
    fclose(file);
    if (failed) {
        free(text);
        int code = sqrl_error_set(err, SQRL_E_IO, "can't be read, or is too large");
        sqrl_error_at(err, code, "%s", path);
        return NULL;
    }
    if (text)
        text[size] = '\0';
    return text;
}

/* --- answers --- */

int object_stat_of_headers(const struct sqrl_http_response *response,
                           struct sqrl_stat *out, struct sqrl_error *err) {
    const char *size = sqrl_http_headers_get(&response->headers, "Content-Length");
    const char *etag = sqrl_http_headers_get(&response->headers, "ETag");
    int64_t time =
        obj_time_of_http(sqrl_http_headers_get(&response->headers, "Last-Modified"));
    char *end = NULL;
    memset(out, 0, sizeof *out);
    out->size = size ? strtoull(size, &end, 10) : 0;
    if (!size || end == size || *end || out->size > INT64_MAX)
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "the server does not say how large the object is");
    out->modified_ns = time < 0 ? 0 : time * 1000000000;
    if (etag && strlen(etag) < sizeof out->etag)
        memcpy(out->etag, etag, strlen(etag) + 1);
    return SQRL_OK;
}
