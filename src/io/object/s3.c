/* s3.c - Amazon's S3 and all servers that speak like it, Google's XML API among them
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/): requests, answers, the file system
 * "s3".
 *
 * Over TLS the body is not hashed (UNSIGNED-PAYLOAD), as Amazon's own tools do. */
#include "io/object/s3.h"

#include <stdio.h>
#include <stdlib.h>

#include "io/object/credentials.h"
#include "io/object/digest.h"
#include "io/object/sigv4.h"

/* --- URLs --- */

/* "https://host/bucket" or "https://bucket.host"; `region` is locked by the caller. */
static void add_host(struct obj_text *t, struct object_store *store, const char *bucket) {
    bool path = store->path_style || strchr(bucket, '.');
    struct obj_url url;
    if (store->own_endpoint && path) {
        obj_format(t, "%s/", store->endpoint);
        obj_escape(t, bucket, strlen(bucket), false);
    } else if (store->own_endpoint) {
        if (!obj_url_split(store->endpoint, &url)) /* was checked */
            return;
        obj_format(t, "%s://%s.%s", url.tls ? "https" : "http", bucket, url.host);
    } else {
        sqrl_lock_take(&store->lock);
        const char *tail = strncmp(store->region, "cn-", 3) == 0 ? ".cn" : "";
        if (path)
            obj_format(t, "https://s3.%s.amazonaws.com%s/%s", store->region, tail,
                       bucket);
        else
            obj_format(t, "https://%s.s3.%s.amazonaws.com%s", bucket, store->region,
                       tail);
        sqrl_lock_drop(&store->lock);
    }
}

static void add_list(struct obj_text *t, const struct object_call *call) {
    char most[16];
    obj_query(t, "list-type", "2");
    if (call->token)
        obj_query(t, "continuation-token", call->token);
    if (call->one_level)
        obj_query(t, "delimiter", "/");
    if (call->most) {
        snprintf(most, sizeof most, "%u", call->most);
        obj_query(t, "max-keys", most);
    }
    obj_query(t, "prefix", call->key);
}

static char *url_of(struct object_store *store, const struct object_call *call,
                    struct sqrl_error *err) {
    struct obj_text t = {.err = err};
    char number[16];
    add_host(&t, store, call->bucket);
    obj_add(&t, "/");
    switch (call->verb) {
    case OBJECT_LIST:
        add_list(&t, call);
        break;
    case OBJECT_UPLOADS:
        obj_query(&t, "uploads", "");
        obj_query(&t, "prefix", call->key);
        break;
    default:
        obj_escape(&t, call->key, strlen(call->key), true);
    }
    if (call->verb == OBJECT_BEGIN)
        obj_query(&t, "uploads", "");
    if (call->verb == OBJECT_PART) {
        snprintf(number, sizeof number, "%u", call->part + 1);
        obj_query(&t, "partNumber", number);
    }
    if (call->verb == OBJECT_PART || call->verb == OBJECT_END ||
        call->verb == OBJECT_ABORT)
        obj_query(&t, "uploadId", call->upload);
    return obj_take(&t);
}

/* --- requests --- */

static const char *method_of(enum object_verb verb) {
    switch (verb) {
    case OBJECT_HEAD:
        return "HEAD";
    case OBJECT_PUT:
    case OBJECT_PART:
        return "PUT";
    case OBJECT_BEGIN:
    case OBJECT_END:
        return "POST";
    case OBJECT_REMOVE:
    case OBJECT_ABORT:
        return "DELETE";
    default:
        return "GET";
    }
}

static char *end_body(const struct object_call *call, struct sqrl_error *err) {
    struct obj_text t = {.err = err};
    obj_add(&t, "<CompleteMultipartUpload>");
    for (unsigned i = 0; i < call->part_count; i++) {
        obj_format(&t, "<Part><PartNumber>%u</PartNumber><ETag>", i + 1);
        obj_add_xml(&t, call->tags[i]);
        obj_add(&t, "</ETag></Part>");
    }
    obj_add(&t, "</CompleteMultipartUpload>");
    return obj_take(&t);
}

static int s3_build(struct object_store *store, const struct object_call *call,
                    struct object_request *out, struct sqrl_error *err) {
    bool google = store->kind == &object_google_xml;
    bool makes = call->verb == OBJECT_PUT || call->verb == OBJECT_END;
    bool names = call->verb == OBJECT_PUT || call->verb == OBJECT_BEGIN;
    int rc = SQRL_OK;
    out->http.method = method_of(call->verb);
    out->url = url_of(store, call, err);
    if (!out->url)
        return SQRL_E_NO_MEMORY;
    if (call->verb == OBJECT_END) {
        out->body = end_body(call, err);
        out->body_size = out->body ? strlen(out->body) : 0;
        rc = out->body ? SQRL_OK : SQRL_E_NO_MEMORY;
    } else if (call->verb == OBJECT_BEGIN) {
        out->body = sqrl_strdup("", err); /* POST without a body says so */
        rc = out->body ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    if (rc == SQRL_OK && makes && !call->replace)
        rc = google ? object_header(out, "x-goog-if-generation-match", "0", err)
                    : object_header(out, "If-None-Match", "*", err);
    if (rc == SQRL_OK && names && call->id)
        rc = object_header(out, google ? "x-goog-meta-sqrlid" : "x-amz-meta-sqrlid",
                           call->id, err);
    if (rc == SQRL_OK && store->requester_pays && !google)
        rc = object_header(out, "x-amz-request-payer", "requester", err);
    if (rc == SQRL_OK && store->user_project && google)
        rc = object_header(out, "x-goog-user-project", store->user_project, err);
    return rc;
}

/* --- answers --- */

static int s3_read_stat(const struct sqrl_http_response *response, struct sqrl_stat *out,
                        struct sqrl_error *err) {
    return object_stat_of_headers(response, out, err);
}

/* <Contents> and <CommonPrefixes>, or <Upload>: `name` is where the key stands. */
static int add_elements(const struct object_call *call, struct obj_xml in,
                        const char *element, const char *name, bool directory,
                        struct object_page *page, struct sqrl_error *err) {
    struct obj_xml item;
    int rc = SQRL_OK;
    while (rc == SQRL_OK && obj_xml_next(&in, element, &item)) {
        struct sqrl_stat stat = {.directory = directory};
        int64_t size = obj_xml_number(&item, "Size");
        char *key = obj_xml_text(&item, name, err), *etag = NULL, *time = NULL;
        if (!key)
            return sqrl_error_set(err, SQRL_E_CORRUPT, "an entry of a listing lacks %s",
                                  name);
        if (!directory) {
            etag = obj_xml_text(&item, "ETag", NULL);
            time = obj_xml_text(
                &item, call->verb == OBJECT_UPLOADS ? "Initiated" : "LastModified", NULL);
            stat.size = size < 0 ? 0 : (uint64_t)size;
            int64_t ns = time ? obj_time_of_iso(time, strlen(time)) : -1;
            stat.modified_ns = ns < 0 ? 0 : ns;
            if (etag && strlen(etag) < sizeof stat.etag)
                memcpy(stat.etag, etag, strlen(etag) + 1);
        }
        if (call->verb == OBJECT_UPLOADS) {
            char *upload = obj_xml_text(&item, "UploadId", err);
            char *both = upload ? sqrl_format(err, "%s\n%s", key, upload) : NULL;
            free(upload);
            free(key);
            key = both;
        }
        free(etag);
        free(time);
        rc = object_page_add(page, key, &stat, err);
    }
    return rc;
}

static int s3_read_page(const struct object_call *call,
                        const struct sqrl_http_response *response,
                        struct object_page *page, struct sqrl_error *err) {
    const char *root =
        call->verb == OBJECT_UPLOADS ? "ListMultipartUploadsResult" : "ListBucketResult";
    struct obj_xml all = {(const char *)response->body,
                          (const char *)response->body + response->body_size},
                   in;
    if (!response->body || !obj_xml_next(&all, root, &in))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "this is no listing of a bucket; is the endpoint that of "
                              "an S3 server?");
    if (call->verb == OBJECT_UPLOADS)
        return add_elements(call, in, "Upload", "Key", false, page, err);
    int rc = add_elements(call, in, "Contents", "Key", false, page, err);
    if (rc == SQRL_OK)
        rc = add_elements(call, in, "CommonPrefixes", "Prefix", true, page, err);
    char *more = rc ? NULL : obj_xml_text(&in, "IsTruncated", NULL);
    if (more && strcmp(more, "true") == 0) {
        page->token = obj_xml_text(&in, "NextContinuationToken", err);
        if (!page->token)
            rc = sqrl_error_set(err, SQRL_E_CORRUPT,
                                "a listing goes on, but does not say where");
    }
    free(more);
    return rc;
}

static char *s3_read_upload(const struct sqrl_http_response *response,
                            struct sqrl_error *err) {
    struct obj_xml in = {(const char *)response->body,
                         (const char *)response->body + response->body_size};
    char *upload = response->body ? obj_xml_text(&in, "UploadId", err) : NULL;
    if (!upload)
        sqrl_error_set(err, SQRL_E_CORRUPT, "an upload was begun, but has no id");
    return upload;
}

static char *s3_read_tag(const struct sqrl_http_response *response,
                         struct sqrl_error *err) {
    const char *etag = sqrl_http_headers_get(&response->headers, "ETag");
    if (etag)
        return sqrl_strdup(etag, err);
    sqrl_error_set(err, SQRL_E_CORRUPT, "a part was sent, but has no ETag");
    return NULL;
}

/* --- signing --- */

int object_sign_v4(struct object_store *store, const struct sqrl_http_request *request,
                   const struct aws_keys *keys, bool google,
                   struct sqrl_http_headers *out, struct sqrl_error *err) {
    static const uint8_t nothing[1];
    char stamp[17], payload[OBJECT_HEX_BYTES];
    char region[48];
    struct sigv4 s = {.key = keys->key,
                      .secret = keys->secret,
                      .region = region,
                      .google = google,
                      .service = google ? "storage" : "s3",
                      .payload = payload,
                      .time = object_now(store)};
    if (request->body_size && strncmp(request->url, "https:", 6) == 0)
        strcpy(payload, SIGV4_UNSIGNED);
    else
        object_sha256_hex(request->body_size ? request->body : nothing,
                          request->body_size, payload);
    sqrl_lock_take(&store->lock);
    snprintf(region, sizeof region, "%s", store->region);
    sqrl_lock_drop(&store->lock);
    obj_time_basic(s.time, stamp);
    const char *const own[3][2] = {
        {google ? "x-goog-date" : "x-amz-date", stamp},
        {google ? "x-goog-content-sha256" : "x-amz-content-sha256", payload},
        {"x-amz-security-token", google ? NULL : keys->token}};
    const char *prefix = google ? "x-goog-" : "x-amz-";
    struct sqrl_http_headers all = {0}; /* that are signed */
    int rc = SQRL_OK;
    for (size_t i = 0; rc == SQRL_OK && i < 3 && own[i][1]; i++) {
        rc = sqrl_http_headers_add(&all, own[i][0], own[i][1], err);
        if (rc == SQRL_OK)
            rc = sqrl_http_headers_add(out, own[i][0], own[i][1], err);
    }
    for (size_t i = 0; rc == SQRL_OK && i < request->header_count; i++)
        if (strncmp(request->headers[i].name, prefix, strlen(prefix)) == 0)
            rc = sqrl_http_headers_add(&all, request->headers[i].name,
                                       request->headers[i].value, err);
    char *text =
        rc ? NULL
           : object_sigv4(&s, request->method, request->url, all.items, all.count, err);
    if (rc == SQRL_OK)
        rc = text ? sqrl_http_headers_add(out, "Authorization", text, err)
                  : SQRL_E_NO_MEMORY;
    obj_secret_free(text);
    sqrl_http_headers_free(&all);
    return rc;
}

int object_sign_form(struct object_store *store, const struct aws_keys *keys,
                     const char *service, const char *url, const char *form,
                     struct sqrl_http_headers *out, struct sqrl_error *err) {
    char stamp[17], payload[OBJECT_HEX_BYTES], region[48];
    struct sigv4 s = {.key = keys->key,
                      .secret = keys->secret,
                      .region = region,
                      .service = service,
                      .payload = payload,
                      .time = object_now(store)};
    object_sha256_hex(form, strlen(form), payload);
    sqrl_lock_take(&store->lock);
    snprintf(region, sizeof region, "%s", store->region);
    sqrl_lock_drop(&store->lock);
    obj_time_basic(s.time, stamp);
    int rc = sqrl_http_headers_add(out, "x-amz-date", stamp, err);
    if (rc == SQRL_OK && keys->token)
        rc = sqrl_http_headers_add(out, "x-amz-security-token", keys->token, err);
    char *text = rc ? NULL : object_sigv4(&s, "POST", url, out->items, out->count, err);
    if (rc == SQRL_OK)
        rc = text ? sqrl_http_headers_add(out, "Authorization", text, err)
                  : SQRL_E_NO_MEMORY;
    obj_secret_free(text);
    return rc;
}

static int s3_sign(void *arg, const struct sqrl_http_request *request, int refused,
                   struct sqrl_http_headers *out, struct sqrl_error *err) {
    struct object_store *store = arg;
    struct aws_keys keys = {0};
    int rc = aws_credentials_get(store->own, store, refused != 0, &keys, err);
    if (rc == SQRL_OK)
        rc = object_sign_v4(store, request, &keys, false, out, err);
    aws_keys_free(&keys);
    return rc;
}

enum sqrl_http_verdict object_judge(void *arg, const struct sqrl_http_request *request,
                                    const struct sqrl_http_response *response) {
    struct object_store *store = arg;
    int status = response->status;
    if (status >= 200 && status < 300)
        return object_says(response, "<Code>InternalError") ||
                       object_says(response, "<Code>SlowDown")
                   ? SQRL_HTTP_AGAIN
                   : SQRL_HTTP_DEFAULT;
    if (sqrl_http_headers_get(&response->headers, "x-amz-bucket-region") &&
        (status == 301 || status == 307 || status == 400))
        return SQRL_HTTP_FINAL; /* object_perform goes there */
    if ((status == 401 || status == 403) && object_take_skew(store, response))
        return SQRL_HTTP_RESIGN;
    if (status == 400 && (object_says(response, "ExpiredToken") ||
                          object_says(response, "TokenRefreshRequired")))
        return SQRL_HTTP_RESIGN;
    if (status == 403 && (object_says(response, "NoSuchBucket") ||
                          object_says(response, "SignatureDoesNotMatch") ||
                          object_says(response, "AccessDenied")))
        return SQRL_HTTP_FINAL; /* other keys of the same owner would not help */
    if (status == 409)
        return SQRL_HTTP_FINAL;
    return SQRL_HTTP_DEFAULT;
}

static void s3_close(struct object_store *store) {
    if (store->own)
        aws_credentials_reset(store->own);
    free(store->own);
}

const struct object_kind object_s3 = {
    .name = "S3",
    .max_parts = 10000,
    .build = s3_build,
    .read_stat = s3_read_stat,
    .read_page = s3_read_page,
    .read_upload = s3_read_upload,
    .read_tag = s3_read_tag,
    .sign = s3_sign,
    .judge = object_judge,
    .close = s3_close,
};

/* Google's: sign and close are google.c's. */
const struct object_kind object_google_xml = {
    .name = "Google Cloud Storage",
    .max_parts = 10000,
    .build = s3_build,
    .read_stat = s3_read_stat,
    .read_page = s3_read_page,
    .read_upload = s3_read_upload,
    .read_tag = s3_read_tag,
    .sign = object_google_sign,
    .judge = object_judge,
    .close = object_google_close,
};

/* --- the file system --- */

static const struct sqrl_option s3_options[] = {
    {"endpoint", SQRL_OPTION_TEXT, SQRL_OPTION_URL, NULL, NULL,
     "server that speaks S3 (default: AWS_ENDPOINT_URL_S3, else Amazon's of the region)"},
    {"region", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "region (default: AWS_REGION, the profile's, else us-east-1)"},
    {"path_style", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, NULL, NULL,
     "bucket in the path, not in the host's name (default: where endpoint is given)"},
    {"anonymous", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "false", NULL,
     "don't sign requests: public data"},
    {"requester_pays", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "false", NULL,
     "pay for requests to buckets of others"},
    {"profile", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "profile of ~/.aws/config and credentials (default: AWS_PROFILE)"},
    {"access_key_id", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL, "access key id"},
    {"secret_access_key", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "secret access key"},
    {"session_token", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL, "session token"},
    {"part_size", SQRL_OPTION_SIZE, SQRL_OPTION_PLAIN, NULL, NULL,
     "of parallel uploads (default: 8 MiB, growing with the object)"},
    SQRL_HTTP_OPTIONS,
    {.name = NULL}};

int object_open_common(struct object_store *store, struct sqrl_context *context,
                       const struct sqrl_settings *settings,
                       const struct sqrl_option *options, struct sqrl_error *err) {
    if (!context)
        return sqrl_error_set(err, SQRL_E_INVALID, "object stores need a context");
    store->context = context;
    sqrl_lock_init(&store->lock);
    int rc = sqrl_http_policy_read(&store->policy, settings, options, err);
    store->policy.metrics = &store->metrics; /* which reading it has cleared */
    if (rc == SQRL_OK)
        rc = sqrl_settings_bool(settings, options, "anonymous", &store->anonymous, err);
    if (rc == SQRL_OK && sqrl_settings_text(settings, options, "part_size")) {
        rc = sqrl_settings_size(settings, options, "part_size", &store->part_size, err);
        if (rc == SQRL_OK &&
            (store->part_size < (5u << 20) || store->part_size > (1u << 30)))
            rc = sqrl_error_set(err, SQRL_E_INVALID,
                                "part_size is between 5 MiB and 1 GiB");
    }
    return rc;
}

void object_distrust(struct object_store *store, const struct sqrl_settings *settings,
                     const struct sqrl_option *options) {
    if (store->policy.public_only && sqrl_settings_text(settings, options, "endpoint"))
        store->anonymous = true;
}

static int s3_take_keys(struct object_store *store, const struct sqrl_settings *settings,
                        struct sqrl_error *err) {
    static const char *const names[] = {"access_key_id", "secret_access_key",
                                        "session_token", "profile"};
    struct aws_credentials *c = sqrl_calloc(1, sizeof *c, "credentials", err);
    if (!c)
        return SQRL_E_NO_MEMORY;
    store->own = c;
    sqrl_lock_init(&c->lock);
    char **const fields[] = {&c->given.key, &c->given.secret, &c->given.token,
                             &c->profile};
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        const char *value = sqrl_settings_text(settings, s3_options, names[i]);
        *fields[i] = value && *value ? sqrl_strdup(value, err) : NULL;
        if (value && *value && !*fields[i])
            return SQRL_E_NO_MEMORY;
    }
    if (!c->given.key != !c->given.secret)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "access_key_id and secret_access_key belong together: give "
                              "both or neither");
    return SQRL_OK;
}

static int s3_take_place(struct object_store *store, const struct sqrl_settings *settings,
                         struct sqrl_error *err) {
    const struct aws_credentials *c = store->own;
    const char *profile = aws_profile_name(c);
    const char *region =
        object_setting(settings, s3_options, "region", "AWS_REGION|AWS_DEFAULT_REGION");
    const char *endpoint = object_setting(settings, s3_options, "endpoint",
                                          "AWS_ENDPOINT_URL_S3|AWS_ENDPOINT_URL");
    store->region =
        region ? sqrl_strdup(region, err) : aws_profile_setting(profile, "region", NULL);
    if (!store->region && !region)
        store->region = sqrl_strdup("us-east-1", err);
    if (!store->region)
        return SQRL_E_NO_MEMORY;
    if (strspn(store->region, "abcdefghijklmnopqrstuvwxyz0123456789-_") !=
            strlen(store->region) ||
        strlen(store->region) > 40)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "region is no name of one, such as eu-central-1");
    char *from_profile =
        endpoint ? NULL : aws_profile_setting(profile, "endpoint_url", NULL);
    int rc = SQRL_OK;
    if (endpoint || from_profile) {
        store->own_endpoint = store->path_style = true;
        rc = object_set_endpoint(store, endpoint ? endpoint : from_profile, err);
    }
    free(from_profile);
    if (rc == SQRL_OK && sqrl_settings_text(settings, s3_options, "path_style"))
        rc = sqrl_settings_bool(settings, s3_options, "path_style", &store->path_style,
                                err);
    return rc;
}

static int s3_open(void *fs, struct sqrl_context *context,
                   const struct sqrl_settings *settings, struct sqrl_error *err) {
    struct object_store *store = fs;
    store->kind = &object_s3;
    int rc = object_open_common(store, context, settings, s3_options, err);
    if (rc == SQRL_OK)
        rc = sqrl_settings_bool(settings, s3_options, "requester_pays",
                                &store->requester_pays, err);
    if (rc == SQRL_OK)
        rc = s3_take_keys(store, settings, err);
    if (rc == SQRL_OK)
        rc = s3_take_place(store, settings, err);
    const struct aws_credentials *c = store->own;
    if (rc == SQRL_OK && !c->given.key)
        object_distrust(store, settings, s3_options);
    if (rc)
        object_fs_close(store);
    return rc;
}

const struct sqrl_fs_ops sqrl_fs_s3 = {
    .name = "s3",
    .schemes = "s3|s3a",
    .doc = "Amazon S3 and servers that speak like it",
    .options = s3_options,
    .open = s3_open,
    OBJECT_FS_OPS,
};
