/* google_json.c - Google Cloud Storage's JSON API, which emulators speak
 * (https://cloud.google.com/storage/docs/json_api/v1). Large objects are sent in one
 * resumable session, piece behind piece; its last piece makes the object. */
#include <stdio.h>
#include <stdlib.h>

#include "io/object/s3.h"

#define BOUNDARY "sqrl-boundary-of-two-parts"
#define FIELDS "name,size,updated,etag"

static void add_object(struct obj_text *t, const struct object_store *store,
                       const char *prefix, const struct object_call *call,
                       bool with_key) {
    obj_format(t, "%s%s/storage/v1/b/", store->endpoint, prefix);
    obj_escape(t, call->bucket, strlen(call->bucket), false);
    obj_add(t, "/o");
    if (with_key) {
        obj_add(t, "/");
        obj_escape(t, call->key, strlen(call->key), false);
    }
}

static void add_list(struct obj_text *t, const struct object_call *call) {
    char most[16];
    obj_query(t, "prefix", call->key);
    if (call->one_level)
        obj_query(t, "delimiter", "/");
    if (call->token)
        obj_query(t, "pageToken", call->token);
    if (call->most) {
        snprintf(most, sizeof most, "%u", call->most);
        obj_query(t, "maxResults", most);
    }
    obj_query(t, "fields", "items(" FIELDS "),prefixes,nextPageToken");
}

static char *url_of(const struct object_store *store, const struct object_call *call,
                    struct sqrl_error *err) {
    struct obj_text t = {.err = err};
    bool makes = call->verb == OBJECT_PUT || call->verb == OBJECT_BEGIN;
    switch (call->verb) {
    case OBJECT_PART:
        obj_add(&t, call->upload);
        return obj_take(&t);
    case OBJECT_LIST:
        add_object(&t, store, "", call, false);
        add_list(&t, call);
        break;
    case OBJECT_READ:
        add_object(&t, store, "/download", call, true);
        obj_query(&t, "alt", "media");
        break;
    case OBJECT_PUT:
    case OBJECT_BEGIN:
        add_object(&t, store, "/upload", call, false);
        obj_query(&t, "uploadType", call->verb == OBJECT_PUT ? "multipart" : "resumable");
        obj_query(&t, "name", call->key);
        break;
    default:
        add_object(&t, store, "", call, true);
    }
    if (makes && !call->replace)
        obj_query(&t, "ifGenerationMatch", "0");
    if (store->user_project)
        obj_query(&t, "userProject", store->user_project);
    return obj_take(&t);
}

/* The name is in the query; it comes here, too, for servers that look here only. */
static void add_meta(struct obj_text *t, const struct object_call *call) {
    obj_add(t, "{\"name\":");
    obj_add_json(t, call->key);
    if (call->id)
        obj_format(t, ",\"metadata\":{\"sqrlid\":\"%s\"}", call->id);
    obj_add(t, "}");
}

static int put_body(const struct object_call *call, struct object_request *out,
                    struct sqrl_error *err) {
    struct obj_text t = {.err = err};
    obj_add(&t,
            "--" BOUNDARY "\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n");
    add_meta(&t, call);
    obj_add(&t, "\r\n--" BOUNDARY "\r\nContent-Type: application/octet-stream\r\n\r\n");
    obj_add_n(&t, (const char *)call->body, call->body_size);
    obj_add(&t, "\r\n--" BOUNDARY "--\r\n");
    out->body_size = t.bytes.size;
    out->body = obj_take(&t);
    if (!out->body)
        return SQRL_E_NO_MEMORY;
    return object_header(out, "Content-Type", "multipart/related; boundary=" BOUNDARY,
                         err);
}

static int begin_body(const struct object_call *call, struct object_request *out,
                      struct sqrl_error *err) {
    struct obj_text t = {.err = err};
    add_meta(&t, call);
    out->body_size = t.bytes.size;
    out->body = obj_take(&t);
    if (!out->body)
        return SQRL_E_NO_MEMORY;
    int rc = object_header(out, "Content-Type", "application/json; charset=UTF-8", err);
    if (rc == SQRL_OK)
        rc = object_header(out, "X-Upload-Content-Type", "application/octet-stream", err);
    return rc;
}

static int part_header(const struct object_call *call, struct object_request *out,
                       struct sqrl_error *err) {
    char range[96], total[24] = "*";
    unsigned long long from = call->offset, behind = from + call->body_size;
    if (call->last)
        snprintf(total, sizeof total, "%llu", behind);
    snprintf(range, sizeof range, "bytes %llu-%llu/%s", from, behind - 1, total);
    return object_header(out, "Content-Range", range, err);
}

static int json_build(struct object_store *store, const struct object_call *call,
                      struct object_request *out, struct sqrl_error *err) {
    out->url = url_of(store, call, err);
    if (!out->url)
        return SQRL_E_NO_MEMORY;
    switch (call->verb) {
    case OBJECT_REMOVE:
        out->http.method = "DELETE";
        return SQRL_OK;
    case OBJECT_PUT:
        out->http.method = "POST";
        return put_body(call, out, err);
    case OBJECT_BEGIN:
        out->http.method = "POST";
        return begin_body(call, out, err);
    case OBJECT_PART: /* the session's URL is its own credential */
        out->http.method = "PUT";
        out->http.keep_redirect = true; /* 308: go on */
        out->unsigned_request = true;
        return part_header(call, out, err);
    default:
        return SQRL_OK;
    }
}

/* --- answers --- */

static int stat_of(const struct obj_json *j, uint32_t map, struct sqrl_stat *out,
                   struct sqrl_error *err) {
    char *size = obj_json_text(j, map, "size", err), *end = NULL;
    char *time = obj_json_text(j, map, "updated", NULL);
    memset(out, 0, sizeof *out);
    out->size = size ? strtoull(size, &end, 10) : 0;
    bool good = size && end != size && !*end && out->size <= INT64_MAX;
    int64_t ns = time ? obj_time_of_iso(time, strlen(time)) : -1;
    out->modified_ns = ns < 0 ? 0 : ns;
    free(size);
    free(time);
    if (good)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "the server does not say how large the object is");
}

static int read_body(const struct sqrl_http_response *response, struct obj_json *j,
                     struct sqrl_error *err) {
    const char *body = response->body ? (const char *)response->body : "";
    if (obj_json_read(j, body, response->body_size, NULL) == SQRL_OK)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "the answer is no JSON object; is the endpoint that of Google "
                          "Cloud Storage or of an emulator?");
}

static int json_read_stat(const struct sqrl_http_response *response,
                          struct sqrl_stat *out, struct sqrl_error *err) {
    struct obj_json j;
    int rc = read_body(response, &j, err);
    if (rc == SQRL_OK)
        rc = stat_of(&j, 0, out, err);
    obj_json_reset(&j);
    return rc;
}

static int json_read_page(const struct object_call *call,
                          const struct sqrl_http_response *response,
                          struct object_page *page, struct sqrl_error *err) {
    struct obj_json j;
    struct sqrl_stat stat;
    int rc = read_body(response, &j, err);
    if (rc)
        return rc;
    const struct sqrl_node *nodes = j.tape.nodes;
    uint32_t items = obj_json_member(&j, 0, "items"), at = items + 1;
    for (uint32_t i = 0; rc == SQRL_OK && items && nodes[items].type == SQRL_ARRAY &&
                         i < nodes[items].size;
         i++) {
        rc = stat_of(&j, at, &stat, err);
        char *name = rc ? NULL : obj_json_text(&j, at, "name", err);
        if (rc == SQRL_OK)
            rc = name ? object_page_add(page, name, &stat, err)
                      : sqrl_error_set(err, SQRL_E_CORRUPT,
                                       "an entry of a listing lacks name");
        at = obj_json_behind(&j, at);
    }
    uint32_t prefixes = obj_json_member(&j, 0, "prefixes");
    at = prefixes + 1;
    for (uint32_t i = 0; rc == SQRL_OK && prefixes &&
                         nodes[prefixes].type == SQRL_ARRAY && i < nodes[prefixes].size;
         i++, at = obj_json_behind(&j, at)) {
        if (nodes[at].type != SQRL_STRING)
            continue;
        stat = (struct sqrl_stat){.directory = true};
        rc = object_page_add(page,
                             sqrl_format(err, "%.*s", (int)nodes[at].size,
                                         (const char *)j.bytes + nodes[at].v.offset),
                             &stat, err);
    }
    if (rc == SQRL_OK)
        page->token = obj_json_text(&j, 0, "nextPageToken", err);
    obj_json_reset(&j);
    return rc;
}

static char *json_read_upload(const struct sqrl_http_response *response,
                              struct sqrl_error *err) {
    const char *url = sqrl_http_headers_get(&response->headers, "Location");
    if (url)
        return sqrl_strdup(url, err);
    sqrl_error_set(err, SQRL_E_CORRUPT, "an upload was begun, but has no Location");
    return NULL;
}

static enum sqrl_http_verdict json_judge(void *store,
                                         const struct sqrl_http_request *request,
                                         const struct sqrl_http_response *response) {
    return response->status == 308 ? SQRL_HTTP_FINAL
                                   : object_judge(store, request, response);
}

const struct object_kind object_google_json = {
    .name = "Google Cloud Storage",
    .sequential = true,
    .no_abort = true, /* sessions end by themselves, unseen, within a week */
    .build = json_build,
    .read_stat = json_read_stat,
    .read_page = json_read_page,
    .read_upload = json_read_upload,
    .sign = object_google_sign,
    .judge = json_judge,
    .close = object_google_close,
};
