/* azure.c - Azure Blob Storage: block blobs, shared key or SAS, the file system "az"
 * (https://learn.microsoft.com/rest/api/storageservices/).
 *
 * A directory's marker is a blob of its own name with the metadata hdi_isfolder, as the
 * other tools make it and as hierarchical accounts show their directories. Blocks of an
 * upload carry the writer's id in their names, so that two writers of one name don't mix
 * theirs. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "io/object/azure.h"
#include "io/object/digest.h"
#include "io/object/s3.h"

#define VERSION "2021-08-06"
#define SUFFIX "core.windows.net"
/* Of the emulators, published by Microsoft: no secret. */
#define EMULATOR_ACCOUNT "devstoreaccount1"
#define EMULATOR_KEY                                                                     \
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/"         \
    "KBHBeksoGMGw=="
enum { MAX_PAIRS = 48 };

struct azure {
    char *account; /* may be NULL */
    char *sas;     /* "sv=...&sig=...", may be NULL */
    uint8_t *key;  /* shared key, may be NULL */
    size_t key_size;
};

/* --- shared key --- */

struct pair {
    const char *name, *value;
    size_t name_size, value_size;
};

static int by_name(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    int c = strncasecmp(x->name, y->name, SQRL_MIN(x->name_size, y->name_size));
    return c ? c : (x->name_size > y->name_size) - (x->name_size < y->name_size);
}

static const char *value_of(const struct sqrl_http_header *headers, size_t count,
                            const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(headers[i].name, name) == 0)
            return headers[i].value;
    return "";
}

static void add_lower(struct obj_text *t, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        char c = (char)tolower((unsigned char)text[i]);
        obj_add_n(t, &c, 1);
    }
}

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static void add_unescaped(struct obj_text *t, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '%' && i + 2 < size && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
            c = (char)(hex(text[i + 1]) << 4 | hex(text[i + 2]));
            i += 2;
        }
        obj_add_n(t, &c, 1);
    }
}

static void add_ms_headers(struct obj_text *t, const struct sqrl_http_header *headers,
                           size_t count) {
    struct pair pairs[MAX_PAIRS];
    size_t n = 0;
    for (size_t i = 0; i < count && n < MAX_PAIRS; i++)
        if (strncasecmp(headers[i].name, "x-ms-", 5) == 0)
            pairs[n++] = (struct pair){headers[i].name, headers[i].value,
                                       strlen(headers[i].name), 0};
    qsort(pairs, n, sizeof *pairs, by_name);
    for (size_t i = 0; i < n; i++) {
        add_lower(t, pairs[i].name, pairs[i].name_size);
        obj_format(t, ":%s\n", pairs[i].value);
    }
}

static void add_resource(struct obj_text *t, const char *account,
                         const struct obj_url *url) {
    struct pair pairs[MAX_PAIRS];
    size_t n = 0;
    const char *p = url->query, *end = p + url->query_size;
    obj_format(t, "/%s", account);
    obj_add_n(t, url->path, url->path_size);
    while (p < end && n < MAX_PAIRS) {
        size_t size = strcspn(p, "&#");
        const char *mark = memchr(p, '=', size);
        size_t name = mark ? (size_t)(mark - p) : size;
        pairs[n++] = (struct pair){p, mark ? mark + 1 : p + size, name,
                                   mark ? size - name - 1 : 0};
        p += size + 1;
    }
    qsort(pairs, n, sizeof *pairs, by_name);
    for (size_t i = 0; i < n; i++) {
        obj_add(t, "\n");
        add_lower(t, pairs[i].name, pairs[i].name_size);
        obj_add(t, ":");
        add_unescaped(t, pairs[i].value, pairs[i].value_size);
    }
}

char *azure_shared_key(const char *account, const uint8_t *key, size_t key_size,
                       const char *method, const char *url,
                       const struct sqrl_http_header *headers, size_t count,
                       uint64_t body_size, struct sqrl_error *err) {
    static const char *const plain[] = {
        "Content-MD5",   "Content-Type",        "Date", "If-Modified-Since", "If-Match",
        "If-None-Match", "If-Unmodified-Since", "Range"};
    struct obj_text t = {.err = err};
    struct obj_url parts;
    uint8_t mac[OBJECT_SHA256_BYTES];
    char signature[OBJECT_BASE64_BYTES(OBJECT_SHA256_BYTES)];
    if (!obj_url_split(url, &parts)) {
        sqrl_error_set(err, SQRL_E_INVALID, "this is no http or https URL");
        return NULL;
    }
    obj_format(&t, "%s\n%s\n%s\n", method, value_of(headers, count, "Content-Encoding"),
               value_of(headers, count, "Content-Language"));
    if (body_size)
        obj_format(&t, "%llu", (unsigned long long)body_size);
    obj_add(&t, "\n");
    for (size_t i = 0; i < SQRL_COUNT_OF(plain); i++)
        obj_format(&t, "%s\n", value_of(headers, count, plain[i]));
    add_ms_headers(&t, headers, count);
    add_resource(&t, account, &parts);
    char *out = NULL;
    if (t.rc == SQRL_OK) {
        object_hmac(key, key_size, t.bytes.data, t.bytes.size, mac);
        object_base64(mac, sizeof mac, false, signature);
        out = sqrl_format(err, "SharedKey %s:%s", account, signature);
    }
    obj_reset(&t);
    return out;
}

/* All headers of an attempt: the request's, what the engine adds, x-ms-date. */
static int gather(const struct sqrl_http_request *request, const char *date,
                  struct sqrl_http_headers *all, struct sqrl_error *err) {
    char range[64];
    int rc = sqrl_http_headers_add(all, "x-ms-date", date, err);
    for (size_t i = 0; rc == SQRL_OK && i < request->header_count; i++)
        rc = sqrl_http_headers_add(all, request->headers[i].name,
                                   request->headers[i].value, err);
    if (rc == SQRL_OK && request->size) {
        snprintf(range, sizeof range, "bytes=%llu-%llu",
                 (unsigned long long)request->offset,
                 (unsigned long long)(request->offset + request->size - 1));
        rc = sqrl_http_headers_add(all, "Range", range, err);
    }
    if (rc == SQRL_OK && request->etag)
        rc = sqrl_http_headers_add(all, "If-Match", request->etag, err);
    return rc;
}

static int azure_sign(void *arg, const struct sqrl_http_request *request, int refused,
                      struct sqrl_http_headers *out, struct sqrl_error *err) {
    struct object_store *store = arg;
    const struct azure *a = store->own;
    struct sqrl_http_headers all = {0};
    char date[30];
    if (a->sas)
        return SQRL_OK;
    if (!a->key || !a->account)
        return sqrl_error_set(
            err, SQRL_E_PERMISSION,
            "no Azure credentials: give account_name and account_key, or sas_token, or "
            "AZURE_STORAGE_CONNECTION_STRING, or anonymous=true where the data are "
            "public");
    obj_time_http(object_now(store), date);
    int rc = gather(request, date, &all, err);
    char *text = rc ? NULL
                    : azure_shared_key(a->account, a->key, a->key_size, request->method,
                                       request->url, all.items, all.count,
                                       request->body_size, err);
    if (rc == SQRL_OK)
        rc = text ? sqrl_http_headers_add(out, "x-ms-date", date, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = sqrl_http_headers_add(out, "Authorization", text, err);
    obj_secret_free(text);
    sqrl_http_headers_free(&all);
    return rc;
}

/* --- requests --- */

static bool is_account(const char *text, size_t size) {
    if (size < 3 || size > 24)
        return false;
    for (size_t i = 0; i < size; i++)
        if (!islower((unsigned char)text[i]) && !isdigit((unsigned char)text[i]))
            return false;
    return true;
}

/* The container's URL. "container@account.dfs.core.windows.net" names its account; only
 * the account's name is taken of it, never the host. */
static int add_container(struct obj_text *t, const struct object_store *store,
                         const char *bucket) {
    const struct azure *a = store->own;
    const char *mark = strchr(bucket, '@'), *account = a->account;
    size_t size = account ? strlen(account) : 0;
    if (mark && !store->own_endpoint) {
        account = mark + 1;
        size = strcspn(account, ".");
        if (!is_account(account, size) ||
            (a->account &&
             (strlen(a->account) != size || memcmp(a->account, account, size) != 0)))
            return sqrl_error_set(t->err, SQRL_E_INVALID,
                                  "the account in the URL is none, or is not the one "
                                  "that the credentials belong to");
    }
    if (store->own_endpoint)
        obj_add(t, store->endpoint);
    else if (account)
        obj_format(t, "https://%.*s.blob." SUFFIX, (int)size, account);
    else
        return sqrl_error_set(t->err, SQRL_E_INVALID,
                              "which storage account? give account_name=, "
                              "AZURE_STORAGE_ACCOUNT, or endpoint=");
    obj_add(t, "/");
    obj_escape(t, bucket, mark ? (size_t)(mark - bucket) : strlen(bucket), false);
    return t->rc;
}

static void block_id(const struct object_call *call, unsigned part, char out[64]) {
    char name[48];
    snprintf(name, sizeof name, "%.32s%08u", call->upload, part % 100000000u);
    object_base64(name, strlen(name), false, out);
}

static void add_list(struct obj_text *t, const struct object_call *call) {
    char most[16];
    obj_query(t, "restype", "container");
    obj_query(t, "comp", "list");
    obj_query(t, "include", "metadata");
    obj_query(t, "prefix", call->key);
    if (call->one_level)
        obj_query(t, "delimiter", "/");
    if (call->token)
        obj_query(t, "marker", call->token);
    if (call->most) {
        snprintf(most, sizeof most, "%u", call->most);
        obj_query(t, "maxresults", most);
    }
}

static int azure_url(struct object_store *store, const struct object_call *call,
                     char **out, struct sqrl_error *err) {
    const struct azure *a = store->own;
    struct obj_text t = {.err = err};
    char id[64];
    size_t size = strlen(call->key);
    int rc = add_container(&t, store, call->bucket);
    if (rc) {
        obj_reset(&t);
        return rc;
    }
    if (call->verb == OBJECT_LIST) {
        add_list(&t, call);
    } else {
        if (call->directory && size && call->key[size - 1] == '/')
            size--;
        obj_add(&t, "/");
        obj_escape(&t, call->key, size, true);
    }
    if (call->verb == OBJECT_PART) {
        block_id(call, call->part, id);
        obj_query(&t, "comp", "block");
        obj_query(&t, "blockid", id);
    } else if (call->verb == OBJECT_END) {
        obj_query(&t, "comp", "blocklist");
    }
    if (a->sas) {
        bool first = call->verb != OBJECT_LIST && call->verb != OBJECT_PART &&
                     call->verb != OBJECT_END;
        obj_format(&t, "%s%s", first ? "?" : "&", a->sas);
    }
    *out = obj_take(&t);
    return *out ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static int end_body(const struct object_call *call, struct object_request *out,
                    struct sqrl_error *err) {
    struct obj_text t = {.err = err};
    char id[64];
    obj_add(&t, "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for (unsigned i = 0; i < call->part_count; i++) {
        block_id(call, i, id);
        obj_format(&t, "<Latest>%s</Latest>", id);
    }
    obj_add(&t, "</BlockList>");
    out->body_size = t.bytes.size;
    out->body = obj_take(&t);
    return out->body ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static int azure_build(struct object_store *store, const struct object_call *call,
                       struct object_request *out, struct sqrl_error *err) {
    bool makes = call->verb == OBJECT_PUT || call->verb == OBJECT_END;
    bool sends = makes || call->verb == OBJECT_PART;
    int rc = azure_url(store, call, &out->url, err);
    if (rc == SQRL_OK)
        rc = object_header(out, "x-ms-version", VERSION, err);
    out->http.method = call->verb == OBJECT_HEAD     ? "HEAD"
                       : call->verb == OBJECT_REMOVE ? "DELETE"
                       : sends                       ? "PUT"
                                                     : "GET";
    if (rc == SQRL_OK && sends)
        rc = object_header(out, "Content-Type", "application/octet-stream", err);
    if (rc == SQRL_OK && call->verb == OBJECT_PUT)
        rc = object_header(out, "x-ms-blob-type", "BlockBlob", err);
    if (rc == SQRL_OK && call->verb == OBJECT_PUT && call->directory)
        rc = object_header(out, "x-ms-meta-hdi_isfolder", "true", err);
    if (rc == SQRL_OK && makes && call->id)
        rc = object_header(out, "x-ms-meta-sqrlid", call->id, err);
    if (rc == SQRL_OK && makes && !call->replace)
        rc = object_header(out, "If-None-Match", "*", err);
    if (rc == SQRL_OK && call->verb == OBJECT_END)
        rc = end_body(call, out, err);
    return rc;
}

/* --- answers --- */

static int azure_read_stat(const struct sqrl_http_response *response,
                           struct sqrl_stat *out, struct sqrl_error *err) {
    int rc = object_stat_of_headers(response, out, err);
    const char *folder =
        sqrl_http_headers_get(&response->headers, "x-ms-meta-hdi_isfolder");
    if (rc == SQRL_OK && folder && strcasecmp(folder, "true") == 0)
        out->directory = true;
    return rc;
}

static int add_blob(struct object_page *page, const struct obj_xml *item, bool prefix,
                    struct sqrl_error *err) {
    struct sqrl_stat stat = {.directory = prefix};
    char *name = obj_xml_text(item, "Name", err);
    if (!name)
        return sqrl_error_set(err, SQRL_E_CORRUPT, "an entry of a listing lacks Name");
    if (!prefix) {
        int64_t size = obj_xml_number(item, "Content-Length");
        char *time = obj_xml_text(item, "Last-Modified", NULL);
        char *etag = obj_xml_text(item, "Etag", NULL);
        char *folder = obj_xml_text(item, "hdi_isfolder", NULL);
        int64_t seconds = obj_time_of_http(time);
        stat.size = size < 0 ? 0 : (uint64_t)size;
        stat.modified_ns = seconds < 0 ? 0 : seconds * 1000000000;
        if (etag && strlen(etag) + 3 <= sizeof stat.etag) /* here without its quotes */
            snprintf(stat.etag, sizeof stat.etag, *etag == '"' ? "%s" : "\"%s\"", etag);
        stat.directory = folder && strcasecmp(folder, "true") == 0;
        free(time);
        free(etag);
        free(folder);
    }
    if (stat.directory)
        stat = (struct sqrl_stat){.directory = true};
    return object_page_add(page, name, &stat, err);
}

static int azure_read_page(const struct object_call *call,
                           const struct sqrl_http_response *response,
                           struct object_page *page, struct sqrl_error *err) {
    struct obj_xml all = {(const char *)response->body,
                          (const char *)response->body + response->body_size},
                   in, item, rest;
    if (!response->body || !obj_xml_next(&all, "EnumerationResults", &in))
        return sqrl_error_set(err, SQRL_E_CORRUPT,
                              "this is no listing of a container; is the endpoint that "
                              "of Azure Blob Storage?");
    int rc = SQRL_OK;
    for (rest = in; rc == SQRL_OK && obj_xml_next(&rest, "Blob", &item);)
        rc = add_blob(page, &item, false, err);
    for (rest = in; rc == SQRL_OK && obj_xml_next(&rest, "BlobPrefix", &item);)
        rc = add_blob(page, &item, true, err);
    if (rc == SQRL_OK)
        page->token = obj_xml_text(&in, "NextMarker", NULL);
    if (page->token && !*page->token) {
        free(page->token);
        page->token = NULL;
    }
    return rc;
}

static void azure_close(struct object_store *store) {
    struct azure *a = store->own;
    if (!a)
        return;
    if (a->key)
        explicit_bzero(a->key, a->key_size);
    free(a->key);
    free(a->account);
    obj_secret_free(a->sas);
    free(a);
}

const struct object_kind object_azure = {
    .name = "Azure Blob Storage",
    .no_begin = true,
    .no_abort = true, /* blocks that no list names go within a week, unseen */
    .max_parts = 50000,
    .build = azure_build,
    .read_stat = azure_read_stat,
    .read_page = azure_read_page,
    .sign = azure_sign,
    .judge = object_judge,
    .close = azure_close,
};

/* --- the file system --- */

static const struct sqrl_option az_options[] = {
    {"account_name", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL,
     "storage account (default: AZURE_STORAGE_ACCOUNT)"},
    {"account_key", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "the account's key (default: AZURE_STORAGE_KEY)"},
    {"sas_token", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "shared access signature (default: AZURE_STORAGE_SAS_TOKEN)"},
    {"connection_string", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL,
     "account, key or SAS, and endpoint (default: AZURE_STORAGE_CONNECTION_STRING)"},
    {"endpoint", SQRL_OPTION_TEXT, SQRL_OPTION_URL, NULL, NULL,
     "of another server, an emulator's ends in /devstoreaccount1"},
    {"anonymous", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "false", NULL,
     "don't sign requests: public data"},
    {"part_size", SQRL_OPTION_SIZE, SQRL_OPTION_PLAIN, NULL, NULL,
     "of parallel uploads (default: 8 MiB, growing with the object)"},
    SQRL_HTTP_OPTIONS,
    {.name = NULL}};

/* The value of "Name" in "Name=value;Name=value"; free() it. */
static char *connection_value(const char *text, const char *name,
                              struct sqrl_error *err) {
    size_t size = strlen(name);
    while (text && *text) {
        size_t item = strcspn(text, ";");
        if (item > size && strncasecmp(text, name, size) == 0 && text[size] == '=')
            return sqrl_format(err, "%.*s", (int)(item - size - 1), text + size + 1);
        text += item + (text[item] == ';');
    }
    return NULL;
}

static int take_key(struct azure *a, const char *text, struct sqrl_error *err) {
    size_t size = strlen(text);
    a->key = sqrl_malloc(size + 3, "a key", err);
    if (!a->key)
        return SQRL_E_NO_MEMORY;
    if (object_base64_decode(text, size, a->key, &a->key_size))
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "the account's key is no Base64 text, as the portal shows it");
}

/* What a name has in the options, the connection string, the environment; free() it. */
static char *find(const struct sqrl_settings *settings, const char *option,
                  const char *connection, const char *name, const char *variables,
                  struct sqrl_error *err) {
    const char *value = sqrl_settings_text(settings, az_options, option);
    char *found = value ? NULL : connection_value(connection, name, err);
    if (found)
        return found;
    if (!value && !connection)
        value = object_setting(settings, az_options, option, variables);
    return value && *value ? sqrl_strdup(value, err) : NULL;
}

static int take_endpoint(struct object_store *store, const char *connection,
                         const struct sqrl_settings *settings, struct sqrl_error *err) {
    const struct azure *a = store->own;
    char *url = find(settings, "endpoint", connection, "BlobEndpoint", NULL, err);
    char *suffix = connection_value(connection, "EndpointSuffix", err);
    if (!url && suffix && a->account && strcmp(suffix, SUFFIX) != 0)
        url = sqrl_format(err, "https://%s.blob.%s", a->account, suffix);
    if (!url && connection && strstr(connection, "UseDevelopmentStorage=true"))
        url = sqrl_strdup("http://127.0.0.1:10000/" EMULATOR_ACCOUNT, err);
    store->own_endpoint = url != NULL;
    int rc = url ? object_set_endpoint(store, url, err) : SQRL_OK;
    free(url);
    free(suffix);
    return rc;
}

static int take_settings(struct object_store *store, const struct sqrl_settings *settings,
                         struct sqrl_error *err) {
    struct azure *a = store->own;
    const char *connection =
        object_setting(settings, az_options, "connection_string", NULL);
    bool own = sqrl_settings_text(settings, az_options, "account_name") ||
               sqrl_settings_text(settings, az_options, "sas_token");
    if (!connection && !own)
        connection = object_setting(settings, az_options, "connection_string",
                                    "AZURE_STORAGE_CONNECTION_STRING");
    bool emulator = connection && strstr(connection, "UseDevelopmentStorage=true");
    a->account = find(settings, "account_name", connection, "AccountName",
                      "AZURE_STORAGE_ACCOUNT|AZURE_STORAGE_ACCOUNT_NAME", err);
    char *key = find(settings, "account_key", connection, "AccountKey",
                     "AZURE_STORAGE_KEY|AZURE_STORAGE_ACCOUNT_KEY", err);
    a->sas = find(settings, "sas_token", connection, "SharedAccessSignature",
                  "AZURE_STORAGE_SAS_TOKEN", err);
    if (emulator && !a->account)
        a->account = sqrl_strdup(EMULATOR_ACCOUNT, err);
    if (a->sas && *a->sas == '?')
        memmove(a->sas, a->sas + 1, strlen(a->sas));
    int rc = SQRL_OK;
    if (key || (emulator && !a->sas))
        rc = take_key(a, key ? key : EMULATOR_KEY, err);
    obj_secret_free(key);
    if (rc == SQRL_OK && a->account && !is_account(a->account, strlen(a->account)))
        rc = sqrl_error_set(
            err, SQRL_E_INVALID,
            "account_name is no name of one: 3 to 24 small letters and digits");
    return rc ? rc : take_endpoint(store, connection, settings, err);
}

static int az_open(void *fs, struct sqrl_context *context,
                   const struct sqrl_settings *settings, struct sqrl_error *err) {
    struct object_store *store = fs;
    store->kind = &object_azure;
    store->own = sqrl_calloc(1, sizeof(struct azure), "credentials", err);
    int rc = store->own ? object_open_common(store, context, settings, az_options, err)
                        : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = take_settings(store, settings, err);
    if (rc == SQRL_OK && !sqrl_settings_text(settings, az_options, "account_key") &&
        !sqrl_settings_text(settings, az_options, "sas_token") &&
        !sqrl_settings_text(settings, az_options, "connection_string")) {
        struct azure *a = store->own;
        object_distrust(store, settings, az_options);
        if (store->anonymous) { /* a SAS is part of URLs: it must go, too */
            obj_secret_free(a->sas);
            a->sas = NULL;
        }
    }
    if (rc)
        object_fs_close(store);
    return rc;
}

const struct sqrl_fs_ops sqrl_fs_az = {
    .name = "az",
    .schemes = "az|abfs|abfss",
    .doc = "Azure Blob Storage",
    .options = az_options,
    .open = az_open,
    OBJECT_FS_OPS,
};
