/* transfer.h - one attempt to send a request and receive its answer.
 *
 * curl.c is the only file that knows libcurl; engine.c runs its loop on the I/O thread.
 * The thread that submits a transfer owns its memory and gets it back when it is done.
 */
#ifndef SQRL_IO_HTTP_TRANSFER_H
#define SQRL_IO_HTTP_TRANSFER_H

#include "io/http/http.h"

enum sqrl_net {
    SQRL_NET_OK,        /* an answer came, whole as far as the server's lengths tell */
    SQRL_NET_CONNECT,   /* no connection: refused, unreachable, no answer in time */
    SQRL_NET_NAME,      /* the host's name is not known */
    SQRL_NET_TLS,       /* no secure connection */
    SQRL_NET_TRUST,     /* the server's certificate is not trusted */
    SQRL_NET_BROKEN,    /* the connection ended or broke in the middle */
    SQRL_NET_STALLED,   /* no bytes for too long */
    SQRL_NET_LATE,      /* the deadline is over */
    SQRL_NET_CANCELLED, /* by the token, or the engine ends */
    SQRL_NET_ABANDONED, /* by sqrl_http_abandon */
    SQRL_NET_UNWANTED,  /* on_headers or on_data did not want it */
    SQRL_NET_FORBIDDEN, /* an address that the policy refuses */
    SQRL_NET_INVALID,   /* the URL, the proxy or the certificates' file is no good */
    SQRL_NET_NO_MEMORY
};

struct sqrl_lane; /* engine.c: one host */
struct sqrl_transfer;
struct sqrl_http_waiter { /* of one thread; under the engine's lock */
    pthread_cond_t any;
    struct sqrl_transfer *done; /* those that were not taken yet */
};

struct sqrl_transfer {
    /* Set before sqrl_http_submit, borrowed until it is done. */
    const char *method, *url;
    const struct sqrl_http_headers *headers; /* all of them */
    const uint8_t *body;
    size_t body_size;
    const struct sqrl_http_policy *policy;
    const struct sqrl_cancel *cancel;
    uint64_t deadline_ns; /* from its start on (waiting in the queue is free); 0: none */
    uint64_t stall_ns;
    bool urgent;  /* before others that wait */
    bool listing; /* counted as a list */
    /* Called on the I/O thread: must not block. False: the transfer ends as UNWANTED. */
    bool (*on_headers)(struct sqrl_transfer *transfer); /* of the final answer */
    bool (*on_data)(struct sqrl_transfer *transfer, const uint8_t *data, size_t size);
    void *owner;
    struct sqrl_http_waiter *waiter;

    /* Results. Status and answer are there from on_headers on, all else when done. */
    int status;
    struct sqrl_http_headers answer;
    uint64_t got; /* bytes of the body so far (atomic) */
    enum sqrl_net end;
    char message[200];
    uint64_t started_ns; /* atomic; 0: waits in the queue */
    uint64_t first_byte_ns, ended_ns;
    bool new_connection;

    /* The engine's. */
    bool done, abandoned;                  /* under its lock */
    bool announced;                        /* on_headers was called */
    struct sqrl_transfer *next, *previous; /* in its queue or among the running */
    struct sqrl_lane *lane;
    void *easy, *lines; /* curl's */
    size_t sent;
    uint64_t watch_ns, watch_got; /* for stalls */
};

/* Frees what the results own; the transfer may be submitted again. */
void sqrl_transfer_reset(struct sqrl_transfer *transfer);

/* --- engine.c: to be called on any thread --- */
void sqrl_http_submit(struct sqrl_http *http, struct sqrl_transfer *transfer);
/* Asks for its end; it is done soon after. */
void sqrl_http_abandon(struct sqrl_http *http, struct sqrl_transfer *transfer);
/* One of the waiter's transfers that is done, or NULL when none is at that time (0: waits
 * for ever). */
struct sqrl_transfer *sqrl_http_next_done(struct sqrl_http *http,
                                          struct sqrl_http_waiter *waiter,
                                          uint64_t until_ns);
/* pthread_cond_destroy(&waiter->any) ends it, when no transfer is under way. */
void sqrl_http_waiter_init(struct sqrl_http_waiter *waiter);
/* What is usual at a URL's host, 0 while nothing is known. */
struct sqrl_lane_view {
    uint64_t first_byte_ns, mebibyte_ns; /* until the first byte, and for each MiB more */
    bool proven;                         /* an answer has come from there */
};
struct sqrl_lane_view sqrl_http_lane(struct sqrl_http *http, const char *url);
/* The host asks for fewer requests. */
void sqrl_http_slow_down(struct sqrl_http *http, const struct sqrl_transfer *transfer);
/* For tests: how long connections are kept that nobody uses (25 s). */
void sqrl_http_set_idle(struct sqrl_http *http, uint64_t ns);
/* One hedge more, unless they would be 2 % of all requests then. */
bool sqrl_http_may_hedge(struct sqrl_http *http, const struct sqrl_http_policy *policy);
/* Counts and logs that a request will be made again. */
void sqrl_http_note_retry(struct sqrl_http *http, const struct sqrl_http_policy *policy,
                          const char *url, const char *why, uint64_t delay_ns);

/* --- curl.c: on the I/O thread, except where it says otherwise --- */
struct sqrl_curl;
/* Loads the library: any thread, once. */
SQRL_CHECK int sqrl_curl_load(struct sqrl_error *err);
struct sqrl_curl *sqrl_curl_new(void (*finished)(void *arg, struct sqrl_transfer *),
                                void *arg, struct sqrl_error *err);
void sqrl_curl_free(struct sqrl_curl *curl);
/* Ends as `finished` like any other when it can't begin. */
void sqrl_curl_start(struct sqrl_curl *curl, struct sqrl_transfer *transfer);
/* Stops one that runs; `finished` is not called. */
void sqrl_curl_stop(struct sqrl_curl *curl, struct sqrl_transfer *transfer);
/* Moves bytes, then sleeps until there are more, at most for so long. */
void sqrl_curl_run(struct sqrl_curl *curl, unsigned milliseconds);
/* Any thread: ends the sleep. */
void sqrl_curl_wake(struct sqrl_curl *curl);
/* Closes all connections; no transfer may run. */
void sqrl_curl_hang_up(struct sqrl_curl *curl);
/* Sockets that are open now. */
unsigned sqrl_curl_sockets(const struct sqrl_curl *curl);
/* In a child after a fork, async-signal-safe: gives up the parent's sockets. */
void sqrl_curl_forked(struct sqrl_curl *curl);
/* Any thread: seconds since 1970 of an HTTP date, -1 when it is none. */
int64_t sqrl_curl_date(const char *text);
/* Any thread: `reference` resolved against the absolute `base` (RFC 3986). free() it;
 * NULL: not a URL. */
char *sqrl_curl_resolve(const char *base, const char *reference);
/* Any thread: scheme, host (lower case), port of a URL; free() the host. */
struct sqrl_origin {
    bool tls;
    char *host;
    unsigned port;
};
bool sqrl_curl_origin(const char *url, struct sqrl_origin *out);

/* --- address.c --- */
struct sockaddr;
/* Can anybody on the internet have this address? Not loopback, link-local, private,
 * multicast or reserved ones. */
bool sqrl_address_public(const struct sockaddr *address);
/* Of a host that is an address in text, or localhost: false where it is surely not
 * public. */
bool sqrl_host_public(const char *host);

#endif
