/* s3.h - what Google's XML API takes over from S3, and what all kinds' open() share. */
#ifndef SQRL_IO_OBJECT_S3_H
#define SQRL_IO_OBJECT_S3_H

#include "io/object/credentials.h"

/* Adds the headers of a signature: Amazon's (AWS4), or Google's twin of it (GOOG4). */
SQRL_CHECK int object_sign_v4(struct object_store *store,
                              const struct sqrl_http_request *request,
                              const struct aws_keys *keys, bool google,
                              struct sqrl_http_headers *out, struct sqrl_error *err);
/* The same for a POST of a form to another service of AWS. */
SQRL_CHECK int object_sign_form(struct object_store *store, const struct aws_keys *keys,
                                const char *service, const char *url, const char *form,
                                struct sqrl_http_headers *out, struct sqrl_error *err);
/* Resigns after the clock was corrected or a token ran out; errors that come with status
 * 200 are repeated. */
enum sqrl_http_verdict object_judge(void *store, const struct sqrl_http_request *request,
                                    const struct sqrl_http_response *response);
/* Size, ETag, time of change out of an answer's headers. */
SQRL_CHECK int object_stat_of_headers(const struct sqrl_http_response *response,
                                      struct sqrl_stat *out, struct sqrl_error *err);
/* context, policy, anonymous, part_size. After a failure: object_fs_close. */
SQRL_CHECK int object_open_common(struct object_store *store,
                                  struct sqrl_context *context,
                                  const struct sqrl_settings *settings,
                                  const struct sqrl_option *options,
                                  struct sqrl_error *err);

/* Settings of an untrusted place (public_only) may name an endpoint, but this machine's
 * own credentials don't go there. For when none were given. */
void object_distrust(struct object_store *store, const struct sqrl_settings *settings,
                     const struct sqrl_option *options);

/* google.c */
int object_google_sign(void *store, const struct sqrl_http_request *request, int refused,
                       struct sqrl_http_headers *out, struct sqrl_error *err);
void object_google_close(struct object_store *store);

#endif
