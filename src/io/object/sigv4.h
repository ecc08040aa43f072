/* sigv4.h - AWS Signature Version 4, in the Authorization header. Pure: no clock, no
 * store. https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html */
#ifndef SQRL_IO_OBJECT_SIGV4_H
#define SQRL_IO_OBJECT_SIGV4_H

#include "io/http/http.h"
#include "io/object/text.h"

#define SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"

struct sigv4 {
    const char *key, *secret; /* access key id and secret access key */
    const char *region, *service;
    const char *payload; /* hex SHA-256 of the body, or SIGV4_UNSIGNED */
    int64_t time;        /* seconds since 1970, as the server counts */
    bool google;         /* GOOG4-HMAC-SHA256, Google's twin of it */
};

/* The value of Authorization for a request of these headers, which must hold all that is
 * to be signed but Host: x-amz-date etc. Their names may be in any case; URL as it is
 * sent (escaped once). free() it by obj_secret_free. */
char *object_sigv4(const struct sigv4 *s, const char *method, const char *url,
                   const struct sqrl_http_header *headers, size_t count,
                   struct sqrl_error *err);

#endif
