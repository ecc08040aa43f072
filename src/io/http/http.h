/* http.h - HTTP requests: many at once, repeated where that is safe, checked.
 *
 * One engine a context, made by the first remote URL: one I/O thread with libcurl's multi
 * interface, kept-alive connections, a budget of parallel transfers that grows while
 * throughput grows. The I/O thread only moves bytes; everything that decides (signing,
 * redirects, retries, resuming, hedges) runs on the thread that called
 * sqrl_http_perform, so callbacks may block and may make requests themselves.
 *
 * After a fork the child makes an engine of its own at its first request.
 */
#ifndef SQRL_IO_HTTP_H
#define SQRL_IO_HTTP_H

#include "io/io.h"

struct sqrl_http; /* the engine */

/* The context's engine, started on first use and anew after a fork: ask again for each
 * operation. SQRL_E_UNSUPPORTED when libcurl is not installed, with its package's name.
 * Lives as long as the context. */
SQRL_CHECK int sqrl_http_of(struct sqrl_context *context, struct sqrl_http **out,
                            struct sqrl_error *err);

/* --- headers --- */
struct sqrl_http_header {
    char *name, *value;
};
struct sqrl_http_headers { /* zero-initialise; owns its texts */
    struct sqrl_http_header *items;
    size_t count, capacity;
};
/* Copies both. SQRL_E_INVALID for a line break or NUL in either. */
SQRL_CHECK int sqrl_http_headers_add(struct sqrl_http_headers *headers, const char *name,
                                     const char *value, struct sqrl_error *err);
/* The value of the first header of that name (any case), or NULL. */
const char *sqrl_http_headers_get(const struct sqrl_http_headers *headers,
                                  const char *name);
void sqrl_http_headers_free(struct sqrl_http_headers *headers); /* empties it, too */

/* --- how requests are made: one of these a file system --- */
/* Zero-initialised it holds the defaults. Borrowed by requests. */
struct sqrl_http_policy {
    const char *proxy;    /* "http://host:3128"; NULL: from the environment; "": none */
    const char *ca_file;  /* NULL: from the environment, else the system's */
    bool http2;           /* ask for HTTP/2 over TLS; HTTP/1.1 else */
    bool public_only;     /* refuse loopback, link-local and private addresses */
    unsigned parallel;    /* transfers at once at most; 0: 64 */
    unsigned attempts;    /* without progress; 0: 8 */
    uint64_t deadline_ns; /* for a request with all its attempts; 0: 60 s. Each 32 KiB
                             received buy one more second, so that slow links work. */
    uint64_t stall_ns;    /* an attempt without bytes for so long is ended; 0: 10 s */
    struct sqrl_fs_metrics *metrics; /* counted here, too (relaxed atomics), or NULL */
};
/* The options "proxy", "ca_file", "http_version", "timeout", "stall_timeout", "attempts",
 * "parallel", "public_only": for the option tables of file systems. */
#define SQRL_HTTP_OPTIONS                                                                \
    {"proxy",                                                                            \
     SQRL_OPTION_TEXT,                                                                   \
     SQRL_OPTION_SECRET,                                                                 \
     NULL,                                                                               \
     NULL,                                                                               \
     "proxy's URL, empty for none (default: from the environment)"},                     \
        {"ca_file",                                                                      \
         SQRL_OPTION_TEXT,                                                               \
         SQRL_OPTION_PATH,                                                               \
         NULL,                                                                           \
         NULL,                                                                           \
         "certificates to trust (default: the system's)"},                               \
        {"http_version",    SQRL_OPTION_CHOICE,                                          \
         SQRL_OPTION_PLAIN, "1.1",                                                       \
         "1.1|2",           "2 is for servers behind TLS that know it"},                 \
        {"timeout",                                                                      \
         SQRL_OPTION_FLOAT,                                                              \
         SQRL_OPTION_PLAIN,                                                              \
         "60",                                                                           \
         NULL,                                                                           \
         "seconds for a request with all its repetitions"},                              \
        {"stall_timeout",                                                                \
         SQRL_OPTION_FLOAT,                                                              \
         SQRL_OPTION_PLAIN,                                                              \
         "10",                                                                           \
         NULL,                                                                           \
         "seconds without a byte until a transfer is made anew"},                        \
        {"attempts",                                                                     \
         SQRL_OPTION_INT,                                                                \
         SQRL_OPTION_PLAIN,                                                              \
         "8",                                                                            \
         NULL,                                                                           \
         "how often a request without progress is made"},                                \
        {"parallel",                                                                     \
         SQRL_OPTION_INT,                                                                \
         SQRL_OPTION_PLAIN,                                                              \
         "64",                                                                           \
         NULL,                                                                           \
         "transfers at once at most"},                                                   \
    {                                                                                    \
        "public_only", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "false", NULL,               \
            "refuse loopback, link-local and private addresses"                          \
    }
/* Reads them; texts are copied into `policy`, free them by sqrl_http_policy_free. */
SQRL_CHECK int sqrl_http_policy_read(struct sqrl_http_policy *policy,
                                     const struct sqrl_settings *settings,
                                     const struct sqrl_option *options,
                                     struct sqrl_error *err);
void sqrl_http_policy_free(struct sqrl_http_policy *policy);

/* --- requests --- */
/* Where a part of a body goes, in order; data NULL: it is dropped (a gap). */
struct sqrl_http_segment {
    uint8_t *data;
    size_t size;
};

struct sqrl_http_response {
    int status; /* 0: none came */
    struct sqrl_http_headers headers;
    uint8_t *body; /* NUL-ended; what did not go to segments */
    size_t body_size;
    char *url;    /* after redirects, NULL: as asked for */
    uint64_t got; /* bytes in the segments */
    bool foreign; /* `url` has another scheme, host or port: no credentials for it */
};
void sqrl_http_response_free(struct sqrl_http_response *response);

struct sqrl_http_request;

enum sqrl_http_verdict {
    SQRL_HTTP_DEFAULT, /* as without judge() */
    SQRL_HTTP_FINAL,   /* hand it to the caller */
    SQRL_HTTP_AGAIN,   /* after a pause, as after a 503 */
    SQRL_HTTP_RESIGN   /* at once, sign() is told that it was refused; at most twice */
};

struct sqrl_http_request {
    const char *method; /* "GET" */
    const char *url;    /* absolute, escaped; http or https */
    const struct sqrl_http_header *headers;
    size_t header_count;
    const uint8_t *body; /* sent, may be NULL */
    size_t body_size;

    /* size > 0: exactly these bytes (Range), or an error; they go to `segments`, whose
     * sizes sum up to `size`. `total` (0: not known) and the two validators, where they
     * are not NULL, must be those of each answer: else SQRL_E_STATE, "changed while it
     * is read". ETags are sent as If-Match. */
    uint64_t offset, size, total;
    const struct sqrl_http_segment *segments;
    size_t segment_count;
    const char *etag, *last_modified;
    const char *encoding; /* the Content-Encoding that the stored bytes have; NULL: none.
                             Another one is refused: it was put on by surprise. */

    size_t max_body; /* of response.body; 0: 16 MiB. More is SQRL_E_LIMIT. */
    bool idempotent; /* may be sent again after the server may have acted on it; GET and
                        HEAD always are */
    bool until_end;  /* where size > 0: the object may end before; response.got tells */
    bool keep_redirect; /* 3xx are answers, not followed */
    bool listing;       /* counted as a list */
    bool unnamed;       /* errors don't name the URL: the caller's will */

    /* Called before each attempt, redirects within the same scheme, host and port
     * included (others get neither these headers nor `headers`): adds Authorization etc.
     * `refused`: the status on which credentials were refused (0: they were not). Runs on
     * the caller's thread; may block and make requests. `request` is a copy whose offset
     * and size are those of this attempt (Range: bytes=offset-(offset + size - 1), only
     * where size > 0) and whose etag is NULL where no If-Match is sent. */
    int (*sign)(void *arg, const struct sqrl_http_request *request, int refused,
                struct sqrl_http_headers *out, struct sqrl_error *err);
    /* What to do about a response that is not 2xx (or 2xx with a body in memory: an error
     * that comes with status 200). Optional. Without it 408, 429, 500, 502, 503 and 504
     * are repeated, 401 and 403 are signed anew once when there is sign(). */
    enum sqrl_http_verdict (*judge)(void *arg, const struct sqrl_http_request *request,
                                    const struct sqrl_http_response *response);
    void *arg;                             /* of both */
    const struct sqrl_http_policy *policy; /* NULL: the defaults */
    const struct sqrl_cancel *cancel;      /* may be NULL */
};

/* Makes all requests, in parallel, and waits. SQRL_OK: each has its final response,
 * whatever its status (not so where size > 0: there all bytes are in place). On failure
 * nothing is under way any more; err says which URL (without user, password and query)
 * and what came, `responses` may be partly filled: free them all in any case. A status
 * that was repeated until the attempts or the time were over is an error, its response is
 * there. Where size > 0 and the server sends the whole object instead, that is
 * SQRL_E_UNSUPPORTED with response status 200. Statuses are turned into errors by
 * sqrl_http_status_error. */
SQRL_CHECK int sqrl_http_perform(struct sqrl_http *http,
                                 const struct sqrl_http_request *requests,
                                 struct sqrl_http_response *responses, size_t count,
                                 struct sqrl_error *err);

/* The error of a status that is not 2xx: 404 and 410 SQRL_E_NOT_FOUND, 401 and 403
 * SQRL_E_PERMISSION, 412 SQRL_E_STATE, 507 SQRL_E_NO_SPACE, else SQRL_E_IO; retryable
 * where repeating helps. The message has the server's words, if they are short text. */
int sqrl_http_status_error(const struct sqrl_http_response *response,
                           struct sqrl_error *err);
/* Seconds to wait by a response's Retry-After (a number or a date); -1: it has none. */
double sqrl_http_retry_after(const struct sqrl_http_response *response);

/* --- URLs --- */
/* The URL as it may be shown: no user, password, query, fragment. free() it. */
char *sqrl_http_url_clean(const char *url, struct sqrl_error *err);
/* Escapes what may not stand in a path (slashes stay): "a b/ä" -> "a%20b/%C3%A4". */
char *sqrl_http_path_escape(const char *path, struct sqrl_error *err);
/* For one component of a query or path: slashes are escaped, too (RFC 3986 unreserved
 * stay). */
char *sqrl_http_component_escape(const char *text, struct sqrl_error *err);

#endif
