/* credentials.h - whose requests these are: AWS keys and Google tokens, from where their
 * own tools look for them, fetched anew ahead of their expiry.
 *
 * Threads: any number; one fetches, others that need it wait. Nothing here logs a secret
 * or puts one in an error. */
#ifndef SQRL_IO_OBJECT_CREDENTIALS_H
#define SQRL_IO_OBJECT_CREDENTIALS_H

#include "io/object/digest.h"
#include "io/object/store.h"

/* --- AWS --- */
struct aws_keys {
    char *key, *secret, *token; /* token may be NULL */
    int64_t expires;            /* seconds since 1970, 0: never */
};
void aws_keys_free(struct aws_keys *keys);
SQRL_CHECK int aws_keys_copy(const struct aws_keys *from, struct aws_keys *to,
                             struct sqrl_error *err);
/* {"AccessKeyId": ..., "SecretAccessKey": ..., "Expiration": ...}, the session's token
 * under the name `token`. */
SQRL_CHECK int aws_take_json(const char *body, const char *token, struct aws_keys *out,
                             struct sqrl_error *err);

/* Zero-initialise; texts are owned. */
struct aws_credentials {
    struct sqrl_lock lock;
    struct aws_keys given; /* by options; key NULL: not */
    char *profile;         /* option; NULL: the environment's */
    struct aws_keys now;   /* what is in use; key NULL: nothing yet */
    int64_t fetched;       /* when, 0: never */
};
/* credentials_login.c: what a program prints, which ends within a minute; what single
 * sign-on gives for the token that `aws sso login` left in ~/.aws/sso/cache. */
SQRL_CHECK int aws_by_process(const char *command, struct aws_keys *out,
                              struct sqrl_error *err);
SQRL_CHECK int aws_by_login(struct object_store *store, const char *profile,
                            struct aws_keys *out, struct sqrl_error *err);
/* Copies the keys that are to be used: given, from the environment, web identity,
 * profile, container or instance, in this order. `refused`: the last ones were, fetch
 * others if they can change. SQRL_E_PERMISSION says where it looked. */
SQRL_CHECK int aws_credentials_get(struct aws_credentials *c, struct object_store *store,
                                   bool refused, struct aws_keys *out,
                                   struct sqrl_error *err);
void aws_credentials_reset(struct aws_credentials *c);
/* Both in credentials_aws.c's files: the text of a profile's setting, from
 * ~/.aws/config and ~/.aws/credentials; NULL: not there. free() by obj_secret_free. */
char *aws_profile_setting(const char *profile, const char *name, struct sqrl_error *err);
/* The same of a section [sso-session NAME]. */
char *aws_session_setting(const char *session, const char *name, struct sqrl_error *err);
/* Out of the text of such a file: `section` is "default" or "profile x". */
char *aws_ini_value(const char *text, const char *section, const char *name,
                    struct sqrl_error *err);
/* The profile in use: option, AWS_PROFILE, "default". */
const char *aws_profile_name(const struct aws_credentials *c);

/* --- shared by a context's file systems: kept.c --- */
/* Whose credentials they are: all texts that decide who gives which. */
struct object_identity {
    struct object_sha256 sum;
};
void object_identity_begin(struct object_identity *identity, const char *kind);
void object_identity_add(struct object_identity *identity, const char *text);
/* NULL: they are not shared, which all of these allow. It lives as long as the context.
 */
struct object_kept *object_kept_of(struct object_store *store,
                                   struct object_identity *identity);
/* Held while they are fetched: others of this identity wait for them. */
void object_kept_lock(struct object_kept *kept);
void object_kept_unlock(struct object_kept *kept);
/* A copy, if they were fetched later than `after` and are good at `now`. Lock held. */
bool object_kept_take(const struct object_kept *kept, int64_t after, int64_t now,
                      struct aws_keys *out, int64_t *fetched);
/* Keeps a copy of those that run out once. Lock held. */
void object_kept_put(struct object_kept *kept, const struct aws_keys *keys,
                     int64_t fetched);

/* --- Google --- */
struct google_credentials {
    struct sqrl_lock lock;
    char *given; /* a bearer token by option; NULL: not */
    char *file;  /* a JSON file by option; NULL: the environment's, gcloud's */
    char *token; /* in use */
    int64_t expires, fetched;
};
/* The value of Authorization, "Bearer ...": given, of a service account, of gcloud's user
 * or of the metadata server. free() by obj_secret_free. */
char *google_credentials_get(struct google_credentials *c, struct object_store *store,
                             bool refused, struct sqrl_error *err);
void google_credentials_reset(struct google_credentials *c);
/* "header.claims.signature" for a service account (RFC 7523), signed by its key (PEM). */
char *google_jwt(const char *email, const char *key_id, const char *private_key,
                 const char *audience, int64_t now, struct sqrl_error *err);

/* --- requests of credentials --- */
/* One small request without retries of days: GET or POST of a form; the answer's body
 * goes to *body (by obj_secret_free). `headers` are NULL-ended name, value pairs. */
SQRL_CHECK int credentials_request(struct object_store *store, const char *method,
                                   const char *url, const char *const *headers,
                                   const char *form, unsigned seconds, char **body,
                                   struct sqrl_error *err);

/* rsa.c: the RSASSA-PKCS1-v1_5 signature with SHA-256 of `text`, by libcrypto, which is
 * opened when it is first needed. *out is malloc'ed. */
SQRL_CHECK int object_rsa_sign(const char *pem, const char *text, size_t size,
                               uint8_t **out, size_t *out_size, struct sqrl_error *err);

#endif
