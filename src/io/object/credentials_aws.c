/* credentials_aws.c - the chain that finds AWS keys.
 *
 * Order: options; environment; web identity (environment); profile (keys, or a role by
 * another profile or a web identity); container; instance (IMDSv2). A profile that was
 * asked for by option stands before the environment. Keys that run out are fetched anew
 * five minutes before; if that fails while they are still good, they are used. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/object/credentials.h"
#include "io/object/s3.h"
#include "io/object/sigv4.h"

#define EARLY_S 300     /* fetch anew so long before the end */
#define AGAIN_S 10      /* not more often than so when refused */
#define REQUEST_S 10    /* patience with a service of credentials */
#define INSTANCE_S 2    /* and with one that is there or not */
enum { MAX_ROLES = 4 }; /* profiles that lead to profiles */

void aws_keys_free(struct aws_keys *keys) {
    obj_secret_free(keys->key);
    obj_secret_free(keys->secret);
    obj_secret_free(keys->token);
    memset(keys, 0, sizeof *keys);
}

static int copy_text(char **to, const char *from, struct sqrl_error *err) {
    *to = from ? sqrl_strdup(from, err) : NULL;
    return from && !*to ? SQRL_E_NO_MEMORY : SQRL_OK;
}

int aws_keys_copy(const struct aws_keys *from, struct aws_keys *to,
                  struct sqrl_error *err) {
    memset(to, 0, sizeof *to);
    int rc = copy_text(&to->key, from->key, err);
    if (rc == SQRL_OK)
        rc = copy_text(&to->secret, from->secret, err);
    if (rc == SQRL_OK)
        rc = copy_text(&to->token, from->token, err);
    to->expires = from->expires;
    if (rc)
        aws_keys_free(to);
    return rc;
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *aws_profile_name(const struct aws_credentials *c) {
    const char *name = c->profile ? c->profile : variable("AWS_PROFILE");
    name = name ? name : variable("AWS_DEFAULT_PROFILE");
    return name ? name : "default";
}

/* Each of the sources below fills `out` and returns SQRL_OK; keys->key NULL: there is
 * nothing of that kind here. */

static int from_environment(struct aws_keys *out, struct sqrl_error *err) {
    struct aws_keys keys = {.key = getenv("AWS_ACCESS_KEY_ID"),
                            .secret = getenv("AWS_SECRET_ACCESS_KEY"),
                            .token = (char *)variable("AWS_SESSION_TOKEN")};
    bool there = keys.key && *keys.key && keys.secret && *keys.secret;
    return there ? aws_keys_copy(&keys, out, err) : SQRL_OK;
}

/* --- STS --- */

static char *sts_url(struct object_store *store, struct sqrl_error *err) {
    const char *own = variable("AWS_ENDPOINT_URL_STS");
    own = own ? own : variable("AWS_ENDPOINT_URL");
    if (own)
        return sqrl_strdup(own, err);
    sqrl_lock_take(&store->lock);
    char *url = sqrl_format(err, "https://sts.%s.amazonaws.com%s/", store->region,
                            strncmp(store->region, "cn-", 3) == 0 ? ".cn" : "");
    sqrl_lock_drop(&store->lock);
    return url;
}

static int take_sts(const char *body, struct aws_keys *out, struct sqrl_error *err) {
    struct obj_xml all = {body, body + strlen(body)}, in, result;
    if (!obj_xml_next(&all, "Credentials", &in))
        return sqrl_error_set(err, SQRL_E_PERMISSION, "STS gave no credentials");
    result = in;
    out->key = obj_xml_text(&in, "AccessKeyId", err);
    out->secret = obj_xml_text(&in, "SecretAccessKey", err);
    out->token = obj_xml_text(&in, "SessionToken", err);
    char *expires = obj_xml_text(&result, "Expiration", NULL);
    int64_t ns = expires ? obj_time_of_iso(expires, strlen(expires)) : -1;
    out->expires = ns < 0 ? 0 : ns / 1000000000;
    free(expires);
    if (out->key && out->secret && out->token)
        return SQRL_OK;
    aws_keys_free(out);
    return sqrl_error_set(err, SQRL_E_PERMISSION, "STS gave no whole credentials");
}

static void add_field(struct obj_text *t, const char *name, const char *value) {
    obj_format(t, "&%s=", name);
    obj_escape(t, value, strlen(value), false);
}

/* One call of STS; `keys` sign it, NULL: it is not signed. */
static int call_sts(struct object_store *store, const char *form,
                    const struct aws_keys *keys, struct aws_keys *out,
                    struct sqrl_error *err) {
    struct sqrl_http_headers headers = {0};
    char *url = sts_url(store, err), *body = NULL;
    const char *pairs[16] = {"Content-Type", "application/x-www-form-urlencoded"};
    int rc = url ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK && keys)
        rc = object_sign_form(store, keys, "sts", url, form, &headers, err);
    for (size_t i = 0; i < headers.count && i < 6; i++) {
        pairs[2 + 2 * i] = headers.items[i].name;
        pairs[3 + 2 * i] = headers.items[i].value;
    }
    if (rc == SQRL_OK)
        rc = credentials_request(store, "POST", url, pairs, form, REQUEST_S, &body, err);
    if (rc == SQRL_OK)
        rc = take_sts(body, out, err);
    obj_secret_free(body);
    sqrl_http_headers_free(&headers);
    free(url);
    return rc;
}

static void trim_end(char *text) {
    size_t size = strlen(text);
    while (size && strchr(" \t\r\n", text[size - 1]))
        text[--size] = '\0';
}

static int by_web_identity(struct object_store *store, const char *role,
                           const char *session, const char *file, struct aws_keys *out,
                           struct sqrl_error *err) {
    struct sqrl_error own = {0};
    char *token = object_read_file(file, &own);
    struct obj_text form = {.err = err};
    if (!token)
        return sqrl_error_set(err, SQRL_E_PERMISSION,
                              "the web identity's token can't be read from %.200s", file);
    trim_end(token);
    obj_add(&form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
    add_field(&form, "RoleArn", role);
    add_field(&form, "RoleSessionName", session ? session : "squirrel");
    add_field(&form, "WebIdentityToken", token);
    obj_secret_free(token);
    char *text = obj_take(&form);
    int rc = text ? call_sts(store, text, NULL, out, err) : SQRL_E_NO_MEMORY;
    obj_secret_free(text);
    return rc;
}

static int from_web_identity(struct object_store *store, struct aws_keys *out,
                             struct sqrl_error *err) {
    const char *file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role = variable("AWS_ROLE_ARN");
    if (!file || !role)
        return SQRL_OK;
    return by_web_identity(store, role, variable("AWS_ROLE_SESSION_NAME"), file, out,
                           err);
}

/* --- profiles --- */

static int from_profile(struct object_store *store, const char *profile, bool wanted,
                        unsigned depth, struct aws_keys *out, struct sqrl_error *err);

/* The role of a profile: by another profile's keys, or by a web identity. */
static int by_role(struct object_store *store, const char *profile, const char *role,
                   unsigned depth, struct aws_keys *out, struct sqrl_error *err) {
    char *source = aws_profile_setting(profile, "source_profile", NULL);
    char *file = aws_profile_setting(profile, "web_identity_token_file", NULL);
    char *session = aws_profile_setting(profile, "role_session_name", NULL);
    char *external = aws_profile_setting(profile, "external_id", NULL);
    struct aws_keys keys = {0};
    struct obj_text form = {.err = err};
    int rc;
    if (file) {
        rc = by_web_identity(store, role, session, file, out, err);
    } else if (!source || depth >= MAX_ROLES) {
        rc = sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                            "profile %.60s has a role, but no source_profile and no "
                            "web_identity_token_file that lead to it",
                            profile);
    } else if ((rc = from_profile(store, source, true, depth + 1, &keys, err)) ==
               SQRL_OK) {
        obj_add(&form, "Action=AssumeRole&Version=2011-06-15");
        add_field(&form, "RoleArn", role);
        add_field(&form, "RoleSessionName", session ? session : "squirrel");
        if (external)
            add_field(&form, "ExternalId", external);
        char *text = obj_take(&form);
        rc = text ? call_sts(store, text, &keys, out, err) : SQRL_E_NO_MEMORY;
        free(text);
    }
    aws_keys_free(&keys);
    obj_secret_free(source);
    obj_secret_free(file);
    obj_secret_free(session);
    obj_secret_free(external);
    return rc;
}

static int from_profile(struct object_store *store, const char *profile, bool wanted,
                        unsigned depth, struct aws_keys *out, struct sqrl_error *err) {
    struct aws_keys keys = {0};
    struct sqrl_error own = {0};
    err = err ? err : &own;
    keys.key = aws_profile_setting(profile, "aws_access_key_id", err);
    keys.secret = aws_profile_setting(profile, "aws_secret_access_key", err);
    keys.token = aws_profile_setting(profile, "aws_session_token", err);
    char *role = aws_profile_setting(profile, "role_arn", err);
    char *process = aws_profile_setting(profile, "credential_process", NULL);
    char *sso = aws_profile_setting(profile, "sso_account_id", NULL);
    int rc = (int)err->code;
    if (rc == SQRL_OK && role && !(depth > 0 && keys.key)) {
        rc = by_role(store, profile, role, depth, out, err);
    } else if (rc == SQRL_OK && keys.key && keys.secret) {
        rc = aws_keys_copy(&keys, out, err);
    } else if (rc == SQRL_OK && sso) {
        rc = aws_by_login(store, profile, out, err);
    } else if (rc == SQRL_OK && process) {
        rc = aws_by_process(process, out, err);
        if (rc)
            sqrl_error_at(err, rc, "profile %.60s", profile);
    } else if (rc == SQRL_OK && wanted) {
        rc = sqrl_error_set(err, SQRL_E_PERMISSION,
                            "profile %.60s holds no keys in ~/.aws/credentials and "
                            "~/.aws/config",
                            profile);
    }
    aws_keys_free(&keys);
    obj_secret_free(role);
    obj_secret_free(process);
    obj_secret_free(sso);
    return rc;
}

/* --- containers and instances --- */

int aws_take_json(const char *body, const char *token, struct aws_keys *out,
                  struct sqrl_error *err) {
    struct obj_json j;
    int rc = obj_json_read(&j, body, strlen(body), err);
    if (rc)
        return sqrl_error_set(err, SQRL_E_PERMISSION,
                              "what gives credentials gave none: no JSON came");
    out->key = obj_json_text(&j, 0, "AccessKeyId", err);
    out->secret = obj_json_text(&j, 0, "SecretAccessKey", err);
    out->token = obj_json_text(&j, 0, token, err);
    char *expires = obj_json_text(&j, 0, "Expiration", NULL);
    int64_t ns = expires ? obj_time_of_iso(expires, strlen(expires)) : -1;
    out->expires = ns < 0 ? 0 : ns / 1000000000;
    free(expires);
    obj_json_reset(&j);
    if (out->key && out->secret)
        return SQRL_OK;
    aws_keys_free(out);
    return sqrl_error_set(err, SQRL_E_PERMISSION,
                          "what gives credentials gave no whole ones: AccessKeyId or "
                          "SecretAccessKey is missing");
}

/* Over plain HTTP, tokens go to this machine and to the agents' addresses only. */
static bool may_be_asked(const char *url) {
    static const char *const hosts[] = {
        "127.0.0.1",      "localhost",      "[::1]",          "169.254.170.2",
        "169.254.170.23", "[fd00:ec2::23]", "169.254.169.254"};
    struct obj_url parts;
    if (!obj_url_split(url, &parts))
        return false;
    for (size_t i = 0; i < SQRL_COUNT_OF(hosts); i++) {
        size_t size = strlen(hosts[i]);
        if (parts.host_size >= size && memcmp(parts.host, hosts[i], size) == 0 &&
            (parts.host_size == size || parts.host[size] == ':'))
            return true;
    }
    return parts.tls;
}

static int from_container(struct object_store *store, struct aws_keys *out,
                          struct sqrl_error *err) {
    const char *relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *given = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (!relative && !full)
        return SQRL_OK;
    if (!relative && !may_be_asked(full))
        return sqrl_error_set(err, SQRL_E_PERMISSION,
                              "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor "
                              "this machine: credentials are not asked for there");
    char *url = sqrl_format(err, "%s%s", relative ? "http://169.254.170.2" : full,
                            relative ? relative : "");
    char *token = file ? object_read_file(file, NULL) : NULL, *body = NULL;
    if (token)
        trim_end(token);
    const char *authorization = token ? token : given;
    const char *headers[] = {authorization ? "Authorization" : NULL, authorization, NULL};
    int rc =
        url ? credentials_request(store, "GET", url, headers, NULL, REQUEST_S, &body, err)
            : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = aws_take_json(body, "Token", out, err);
    obj_secret_free(token);
    obj_secret_free(body);
    free(url);
    return rc;
}

static int from_instance(struct object_store *store, struct aws_keys *out,
                         struct sqrl_error *err) {
    const char *off = variable("AWS_EC2_METADATA_DISABLED");
    const char *base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    static const char path[] = "latest/meta-data/iam/security-credentials/";
    char *token = NULL, *role = NULL, *body = NULL;
    if (off && strcmp(off, "true") == 0)
        return SQRL_OK;
    base = base ? base : "http://169.254.169.254";
    size_t size = strlen(base);
    const char *slash = size && base[size - 1] == '/' ? "" : "/";
    char *url = sqrl_format(err, "%s%slatest/api/token", base, slash);
    const char *asking[] = {"X-aws-ec2-metadata-token-ttl-seconds", "21600", NULL};
    /* No answer is no error: this is no instance. */
    int rc = url && credentials_request(store, "PUT", url, asking, NULL, INSTANCE_S,
                                        &token, NULL) == SQRL_OK
                 ? SQRL_OK
                 : SQRL_E_NOT_FOUND;
    const char *headers[] = {"X-aws-ec2-metadata-token", token, NULL};
    free(url);
    url = rc ? NULL : sqrl_format(err, "%s%s%s", base, slash, path);
    if (url)
        rc = credentials_request(store, "GET", url, headers, NULL, INSTANCE_S, &role,
                                 NULL);
    free(url);
    url = NULL;
    if (rc == SQRL_OK && role) {
        role[strcspn(role, "\r\n")] = '\0';
        url = sqrl_format(err, "%s%s%s%s", base, slash, path, role);
    }
    if (url)
        rc =
            credentials_request(store, "GET", url, headers, NULL, INSTANCE_S, &body, err);
    bool asked = url != NULL;
    free(url);
    if (rc == SQRL_OK && body)
        rc = aws_take_json(body, "Token", out, err);
    obj_secret_free(token);
    free(role);
    obj_secret_free(body);
    return asked ? rc : SQRL_OK;
}

/* --- the chain --- */

static int fetch(struct aws_credentials *c, struct object_store *store,
                 struct aws_keys *out, struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    if (c->given.key)
        return aws_keys_copy(&c->given, out, err);
    const char *profile = aws_profile_name(c);
    bool wanted = c->profile || variable("AWS_PROFILE");
    int rc = c->profile ? from_profile(store, profile, true, 0, out, err)
                        : from_environment(out, err);
    if (rc == SQRL_OK && !out->key)
        rc = from_web_identity(store, out, err);
    if (rc == SQRL_OK && !out->key)
        rc = from_profile(store, profile, wanted, 0, out, err);
    if (rc == SQRL_OK && !out->key)
        rc = from_container(store, out, err);
    if (rc == SQRL_OK && !out->key)
        rc = from_instance(store, out, err);
    if (rc == SQRL_OK && !out->key)
        rc = sqrl_error_set(
            err, SQRL_E_PERMISSION,
            "no AWS credentials: none in the options, the environment, ~/.aws, and no "
            "service that gives any; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or anonymous=true where the data are public");
    return rc;
}

/* All that decides who gives which keys. */
static void identify(const struct aws_credentials *c, struct object_store *store,
                     struct object_identity *out) {
    static const char *const names[] = {"HOME",
                                        "AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_STS",
                                        "AWS_ENDPOINT_URL_SSO",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_ROLE_SESSION_NAME",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_CONFIG_FILE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT"};
    object_identity_begin(out, "aws");
    object_identity_add(out, aws_profile_name(c));
    object_identity_add(out, c->profile);
    sqrl_lock_take(&store->lock);
    object_identity_add(out, store->region);
    sqrl_lock_drop(&store->lock);
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++)
        object_identity_add(out, variable(names[i]));
}

/* What another file system of this context has fetched since, or fetched now. */
static int fetch_shared(struct aws_credentials *c, struct object_store *store,
                        int64_t now, struct aws_keys *out, int64_t *fetched,
                        struct sqrl_error *err) {
    struct object_identity identity;
    struct object_kept *kept = NULL;
    int rc = SQRL_OK;
    if (!c->given.key) {
        identify(c, store, &identity);
        kept = object_kept_of(store, &identity);
    }
    object_kept_lock(kept);
    *fetched = now;
    if (!object_kept_take(kept, c->fetched ? c->fetched : -1, now + EARLY_S, out,
                          fetched)) {
        rc = fetch(c, store, out, err);
        if (rc == SQRL_OK)
            object_kept_put(kept, out, now);
    }
    object_kept_unlock(kept);
    return rc;
}

/* Under the lock: makes c->now good, if it is not. */
static int renew(struct aws_credentials *c, struct object_store *store, bool refused,
                 struct sqrl_error *err) {
    int64_t now = object_now(store);
    bool fixed = c->now.key && !c->now.expires && c->given.key;
    bool late = c->now.expires && now > c->now.expires - EARLY_S;
    bool again = refused && !fixed && now > c->fetched + AGAIN_S;
    if (c->now.key && !again && !(late && now > c->fetched + AGAIN_S))
        return SQRL_OK;
    struct aws_keys keys;
    struct sqrl_error own = {0};
    int64_t fetched;
    int rc = fetch_shared(c, store, now, &keys, &fetched, &own);
    if (rc == SQRL_OK) {
        aws_keys_free(&c->now);
        c->now = keys;
        c->fetched = fetched;
        return SQRL_OK;
    }
    bool still_good = c->now.key && !refused && (!c->now.expires || now < c->now.expires);
    if (still_good) {
        c->fetched = now; /* not at each request */
        sqrl_log(store->context, SQRL_LOG_WARNING,
                 "AWS credentials could not be renewed yet: %s", own.message);
        return SQRL_OK;
    }
    if (err)
        *err = own;
    return rc;
}

int aws_credentials_get(struct aws_credentials *c, struct object_store *store,
                        bool refused, struct aws_keys *out, struct sqrl_error *err) {
    sqrl_lock_take(&c->lock);
    int rc = renew(c, store, refused, err);
    if (rc == SQRL_OK)
        rc = aws_keys_copy(&c->now, out, err);
    sqrl_lock_drop(&c->lock);
    return rc;
}

void aws_credentials_reset(struct aws_credentials *c) {
    aws_keys_free(&c->given);
    aws_keys_free(&c->now);
    free(c->profile);
    sqrl_lock_reset(&c->lock);
    memset(c, 0, sizeof *c);
}
