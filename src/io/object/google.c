/* google.c - Google Cloud Storage: tokens, and the file system "gs".
 *
 * Two APIs serve: XML (object_google_xml, in s3.c: it speaks like S3, with parallel
 * parts) by default, JSON (google_json.c) for emulators and on request. Requests carry a
 * bearer token, or are signed by an HMAC key (XML only), or are anonymous. */
#include <stdio.h>
#include <stdlib.h>

#include "io/object/digest.h"
#include "io/object/s3.h"

#define EARLY_S 300
#define AGAIN_S 10
#define REQUEST_S 10
#define METADATA_S 2
#define SCOPE "https://www.googleapis.com/auth/devstorage.read_write"
#define TOKEN_URL "https://oauth2.googleapis.com/token"

struct google {
    struct google_credentials bearer;
    struct aws_keys keys; /* HMAC; key NULL: none */
};

/* --- tokens --- */

static char *base64_url(const void *data, size_t size, struct sqrl_error *err) {
    char *out = sqrl_malloc(OBJECT_BASE64_BYTES(size), "a token", err);
    if (out)
        object_base64(data, size, true, out);
    return out;
}

/* {"alg": "RS256", ...}.{"iss": ...}, each in Base64 */
static char *unsigned_jwt(const char *email, const char *key_id, const char *audience,
                          int64_t now, struct sqrl_error *err) {
    struct obj_text head = {.err = err}, claims = {.err = err};
    obj_add(&head, "{\"alg\":\"RS256\",\"typ\":\"JWT\"");
    if (key_id) {
        obj_add(&head, ",\"kid\":");
        obj_add_json(&head, key_id);
    }
    obj_add(&head, "}");
    obj_add(&claims, "{\"iss\":");
    obj_add_json(&claims, email);
    obj_add(&claims, ",\"scope\":\"" SCOPE "\",\"aud\":");
    obj_add_json(&claims, audience);
    obj_format(&claims, ",\"iat\":%lld,\"exp\":%lld}", (long long)now,
               (long long)now + 3600);
    char *first = NULL, *second = NULL, *both = NULL;
    if (head.rc == SQRL_OK && claims.rc == SQRL_OK) {
        first = base64_url(head.bytes.data, head.bytes.size, err);
        second = first ? base64_url(claims.bytes.data, claims.bytes.size, err) : NULL;
        both = second ? sqrl_format(err, "%s.%s", first, second) : NULL;
    }
    free(first);
    free(second);
    obj_reset(&head);
    obj_reset(&claims);
    return both;
}

char *google_jwt(const char *email, const char *key_id, const char *private_key,
                 const char *audience, int64_t now, struct sqrl_error *err) {
    char *text = unsigned_jwt(email, key_id, audience, now, err), *out = NULL;
    uint8_t *signature = NULL;
    size_t size;
    if (text && object_rsa_sign(private_key, text, strlen(text), &signature, &size,
                                err) == SQRL_OK) {
        char *third = base64_url(signature, size, err);
        out = third ? sqrl_format(err, "%s.%s", text, third) : NULL;
        free(third);
    }
    free(signature);
    free(text);
    return out;
}

/* {"access_token": ..., "expires_in": 3599} */
static int take_token(struct google_credentials *c, struct object_store *store,
                      const char *body, struct sqrl_error *err) {
    struct obj_json j;
    char *token = NULL, *seconds = NULL;
    if (obj_json_read(&j, body, strlen(body), err) == SQRL_OK) {
        token = obj_json_text(&j, 0, "access_token", err);
        seconds = obj_json_text(&j, 0, "expires_in", NULL);
        obj_json_reset(&j);
    }
    if (!token) {
        free(seconds);
        return sqrl_error_set(err, SQRL_E_PERMISSION,
                              "the service that gives tokens gave none");
    }
    obj_secret_free(c->token);
    c->token = token;
    c->expires = seconds ? object_now(store) + strtoll(seconds, NULL, 10) : 0;
    free(seconds);
    return SQRL_OK;
}

static int ask_token(struct google_credentials *c, struct object_store *store,
                     const char *url, const char *form, struct sqrl_error *err) {
    static const char *const headers[] = {"Content-Type",
                                          "application/x-www-form-urlencoded", NULL};
    char *body;
    int rc =
        credentials_request(store, "POST", url, headers, form, REQUEST_S, &body, err);
    if (rc == SQRL_OK)
        rc = take_token(c, store, body, err);
    obj_secret_free(body);
    return rc;
}

static void add_field(struct obj_text *t, const char *name, const char *value) {
    obj_format(t, "&%s=", name);
    obj_escape(t, value, strlen(value), false);
}

static char *account_form(struct object_store *store, const struct obj_json *j,
                          const char *url, struct sqrl_error *err) {
    char *email = obj_json_text(j, 0, "client_email", err);
    char *key = obj_json_text(j, 0, "private_key", err);
    char *key_id = obj_json_text(j, 0, "private_key_id", NULL);
    struct obj_text form = {.err = err};
    char *jwt = NULL;
    if (email && key)
        jwt = google_jwt(email, key_id, key, url, object_now(store), err);
    else
        sqrl_error_set(err, SQRL_E_PERMISSION,
                       "the service account's file lacks client_email or private_key");
    if (jwt) {
        obj_add(&form, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3A"
                       "jwt-bearer");
        add_field(&form, "assertion", jwt);
    }
    free(email);
    obj_secret_free(key);
    free(key_id);
    bool good = jwt != NULL;
    obj_secret_free(jwt);
    return good ? obj_take(&form) : NULL;
}

static char *user_form(const struct obj_json *j, struct sqrl_error *err) {
    static const char *const names[] = {"client_id", "client_secret", "refresh_token"};
    struct obj_text form = {.err = err};
    bool whole = true;
    obj_add(&form, "grant_type=refresh_token");
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        char *value = obj_json_text(j, 0, names[i], err);
        if (value)
            add_field(&form, names[i], value);
        whole = whole && value;
        obj_secret_free(value);
    }
    if (whole)
        return obj_take(&form);
    obj_reset(&form);
    sqrl_error_set(err, SQRL_E_PERMISSION,
                   "gcloud's file lacks client_id, client_secret or refresh_token; run "
                   "gcloud auth application-default login");
    return NULL;
}

/* From the text of a file of credentials. */
static int by_file(struct google_credentials *c, struct object_store *store,
                   const char *text, struct sqrl_error *err) {
    struct obj_json j;
    struct sqrl_error own = {0};
    err = err ? err : &own;
    if (obj_json_read(&j, text, strlen(text), NULL) != SQRL_OK)
        return sqrl_error_set(err, SQRL_E_PERMISSION,
                              "Google's credentials file holds no JSON object");
    char *type = obj_json_text(&j, 0, "type", err);
    char *url = obj_json_text(&j, 0, "token_uri", err), *form = NULL;
    const char *where = url ? url : TOKEN_URL;
    int rc = SQRL_OK;
    if (type && strcmp(type, "service_account") == 0)
        form = account_form(store, &j, where, err);
    else if (type && strcmp(type, "authorized_user") == 0)
        form = user_form(&j, err);
    else
        sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                       "Google's credentials are of type %.40s; service_account and "
                       "authorized_user are known: or give token=, as gcloud auth "
                       "print-access-token prints it",
                       type ? type : "(none)");
    rc = form ? ask_token(c, store, where, form, err)
              : (err->code ? (int)err->code : SQRL_E_NO_MEMORY);
    free(type);
    free(url);
    obj_secret_free(form);
    obj_json_reset(&j);
    return rc;
}

/* Where the file lies: option, variable, gcloud's place. *wanted: it must be there. */
static char *file_path(const struct google_credentials *c, bool *wanted,
                       struct sqrl_error *err) {
    const char *named = c->file ? c->file : getenv("GOOGLE_APPLICATION_CREDENTIALS");
    const char *config = getenv("CLOUDSDK_CONFIG"), *home = getenv("HOME");
    static const char name[] = "application_default_credentials.json";
    *wanted = named && *named;
    if (*wanted)
        return sqrl_strdup(named, err);
    if (config && *config)
        return sqrl_format(err, "%s/%s", config, name);
    return sqrl_format(err, "%s/.config/gcloud/%s", home ? home : "", name);
}

static int by_metadata(struct google_credentials *c, struct object_store *store,
                       struct sqrl_error *err) {
    static const char *const headers[] = {"Metadata-Flavor", "Google", NULL};
    const char *host = getenv("GCE_METADATA_HOST");
    char *body = NULL;
    char *url = sqrl_format(err,
                            "http://%s/computeMetadata/v1/instance/service-accounts/"
                            "default/token",
                            host && *host ? host : "metadata.google.internal");
    int rc = url ? credentials_request(store, "GET", url, headers, NULL, METADATA_S,
                                       &body, NULL)
                 : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = take_token(c, store, body, err);
    else
        rc = sqrl_error_set(
            err, SQRL_E_PERMISSION,
            "no Google credentials: no option, no GOOGLE_APPLICATION_CREDENTIALS, no "
            "gcloud login (gcloud auth application-default login), no metadata server; "
            "give one, or anonymous=true where the data are public");
    obj_secret_free(body);
    free(url);
    return rc;
}

static int by_service(struct google_credentials *c, struct object_store *store,
                      const char *path, const char *text, struct sqrl_error *err) {
    int rc = text ? by_file(c, store, text, err) : by_metadata(c, store, err);
    if (rc && text)
        sqrl_error_at(err, rc, "%s", path);
    return rc;
}

/* What another file system of this context has fetched since, or fetched now. */
static int fetch_shared(struct google_credentials *c, struct object_store *store,
                        const char *path, const char *text, struct sqrl_error *err) {
    struct object_identity identity;
    struct aws_keys keys = {0}; /* the token is its key */
    int64_t now = object_now(store), after = c->token ? c->fetched : -1;
    object_identity_begin(&identity, text ? "google" : "google's machine");
    object_identity_add(&identity, text ? text : getenv("GCE_METADATA_HOST"));
    struct object_kept *kept = object_kept_of(store, &identity);
    int rc = SQRL_OK;
    object_kept_lock(kept);
    if (object_kept_take(kept, after, now + EARLY_S, &keys, &c->fetched)) {
        obj_secret_free(c->token);
        c->token = keys.key;
        c->expires = keys.expires;
    } else {
        rc = by_service(c, store, path, text, err);
        c->fetched = now;
        keys = (struct aws_keys){.key = c->token, .expires = c->expires};
        if (rc == SQRL_OK)
            object_kept_put(kept, &keys, now);
    }
    object_kept_unlock(kept);
    return rc;
}

static int fetch(struct google_credentials *c, struct object_store *store,
                 struct sqrl_error *err) {
    bool wanted;
    struct sqrl_error own = {0};
    err = err ? err : &own;
    char *path = file_path(c, &wanted, err);
    char *text = path ? object_read_file(path, err) : NULL;
    int rc = path ? (int)err->code : SQRL_E_NO_MEMORY;
    if (!text && rc == SQRL_OK && wanted)
        rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                            "Google's credentials file is not there: %.200s", path);
    else if (rc == SQRL_OK)
        rc = fetch_shared(c, store, path, text, err);
    obj_secret_free(text);
    free(path);
    return rc;
}

char *google_credentials_get(struct google_credentials *c, struct object_store *store,
                             bool refused, struct sqrl_error *err) {
    int rc = SQRL_OK;
    sqrl_lock_take(&c->lock);
    int64_t now = object_now(store);
    bool late = c->expires && now > c->expires - EARLY_S;
    if (c->given && !c->token)
        c->token = sqrl_strdup(c->given, err);
    else if (!c->given && (!c->token || late || refused)) {
        struct sqrl_error own = {0};
        rc = fetch(c, store, &own);
        if (rc && c->token && !refused && now < c->expires)
            rc = SQRL_OK;
        if (rc && err)
            *err = own;
    }
    char *value =
        rc == SQRL_OK && c->token ? sqrl_format(err, "Bearer %s", c->token) : NULL;
    sqrl_lock_drop(&c->lock);
    return value;
}

void google_credentials_reset(struct google_credentials *c) {
    obj_secret_free(c->given);
    obj_secret_free(c->token);
    free(c->file);
    sqrl_lock_reset(&c->lock);
    memset(c, 0, sizeof *c);
}

/* --- signing --- */

int object_google_sign(void *arg, const struct sqrl_http_request *request, int refused,
                       struct sqrl_http_headers *out, struct sqrl_error *err) {
    struct object_store *store = arg;
    struct google *google = store->own;
    struct sqrl_error own = {0};
    err = err ? err : &own;
    if (google->keys.key)
        return object_sign_v4(store, request, &google->keys, true, out, err);
    char *value = google_credentials_get(&google->bearer, store, refused != 0, err);
    int rc = value ? sqrl_http_headers_add(out, "Authorization", value, err)
                   : (err->code ? (int)err->code : SQRL_E_NO_MEMORY);
    obj_secret_free(value);
    return rc;
}

void object_google_close(struct object_store *store) {
    struct google *google = store->own;
    if (google) {
        google_credentials_reset(&google->bearer);
        aws_keys_free(&google->keys);
    }
    free(google);
}

/* --- the file system --- */

static const struct sqrl_option gs_options[] = {
    {"endpoint", SQRL_OPTION_TEXT, SQRL_OPTION_URL, NULL, NULL,
     "server (default: STORAGE_EMULATOR_HOST, else Google's)"},
    {"api", SQRL_OPTION_CHOICE, SQRL_OPTION_PLAIN, NULL, "xml|json",
     "which of Google's two interfaces (default: xml; json where endpoint is given)"},
    {"anonymous", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "false", NULL,
     "don't sign requests: public data"},
    {"token", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL, "access token (OAuth 2)"},
    {"credentials", SQRL_OPTION_TEXT, SQRL_OPTION_PATH, NULL, NULL,
     "file of a service account or of gcloud (default: GOOGLE_APPLICATION_CREDENTIALS)"},
    {"access_key_id", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "HMAC key's access id"},
    {"secret_access_key", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "HMAC key's secret"},
    {"user_project", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "project that pays for requests to buckets of others"},
    {"part_size", SQRL_OPTION_SIZE, SQRL_OPTION_PLAIN, NULL, NULL,
     "of parallel uploads (default: 8 MiB, growing with the object)"},
    SQRL_HTTP_OPTIONS,
    {.name = NULL}};

static int copy_setting(const struct sqrl_settings *settings, const char *name, char **to,
                        struct sqrl_error *err) {
    const char *value = sqrl_settings_text(settings, gs_options, name);
    *to = value && *value ? sqrl_strdup(value, err) : NULL;
    return value && *value && !*to ? SQRL_E_NO_MEMORY : SQRL_OK;
}

static int take_place(struct object_store *store, const struct sqrl_settings *settings,
                      bool explicit, struct sqrl_error *err) {
    const char *endpoint = sqrl_settings_text(settings, gs_options, "endpoint");
    const char *emulator = endpoint ? NULL : getenv("STORAGE_EMULATOR_HOST");
    const char *api = sqrl_settings_text(settings, gs_options, "api");
    char *plain = NULL;
    if (emulator && *emulator) {
        if (!strstr(emulator, "://")) /* its clients take it for plain HTTP */
            plain = sqrl_format(err, "http://%s", emulator);
        endpoint = plain ? plain : emulator;
        store->anonymous = store->anonymous || !explicit;
    }
    bool json = api ? strcmp(api, "json") == 0 : endpoint != NULL;
    store->kind = json ? &object_google_json : &object_google_xml;
    store->own_endpoint = store->path_style = true;
    store->region = sqrl_strdup("auto", err);
    int rc = store->region
                 ? object_set_endpoint(
                       store, endpoint ? endpoint : "storage.googleapis.com", err)
                 : SQRL_E_NO_MEMORY;
    free(plain);
    return rc;
}

static int gs_open(void *fs, struct sqrl_context *context,
                   const struct sqrl_settings *settings, struct sqrl_error *err) {
    struct object_store *store = fs;
    struct google *google = sqrl_calloc(1, sizeof *google, "credentials", err);
    store->kind = &object_google_xml;
    store->own = google;
    int rc = google ? object_open_common(store, context, settings, gs_options, err)
                    : SQRL_E_NO_MEMORY;
    if (google)
        sqrl_lock_init(&google->bearer.lock);
    if (rc == SQRL_OK)
        rc = copy_setting(settings, "token", &google->bearer.given, err);
    if (rc == SQRL_OK)
        rc = copy_setting(settings, "credentials", &google->bearer.file, err);
    if (rc == SQRL_OK)
        rc = copy_setting(settings, "access_key_id", &google->keys.key, err);
    if (rc == SQRL_OK)
        rc = copy_setting(settings, "secret_access_key", &google->keys.secret, err);
    if (rc == SQRL_OK)
        rc = copy_setting(settings, "user_project", &store->user_project, err);
    if (rc == SQRL_OK && !google->keys.key != !google->keys.secret)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "access_key_id and secret_access_key belong together: give "
                            "both or neither");
    bool given =
        google && (google->bearer.given || google->bearer.file || google->keys.key);
    if (rc == SQRL_OK && !given)
        object_distrust(store, settings, gs_options);
    if (rc == SQRL_OK)
        rc = take_place(store, settings, given, err);
    if (rc == SQRL_OK && google->keys.key && store->kind == &object_google_json)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "HMAC keys sign the XML API's requests only: give api=xml");
    if (rc)
        object_fs_close(store);
    return rc;
}

const struct sqrl_fs_ops sqrl_fs_gs = {
    .name = "gs",
    .schemes = "gs|gcs",
    .doc = "Google Cloud Storage",
    .options = gs_options,
    .open = gs_open,
    OBJECT_FS_OPS,
};
