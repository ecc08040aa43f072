/* fault_server.h - what the parts of the server for tests share; fault_server.c tells
 * what it does. */
#ifndef FAULT_SERVER_H
#define FAULT_SERVER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum fault {
    NONE,
    F503,
    F429,
    F500,
    FLIP,
    RESET_HEADERS,
    RESET_BODY,
    STALL,
    TRICKLE,
    TRUNCATE,
    TRUNCATE_LENGTH,
    LONGER,
    WHOLE,
    RANGE,
    ETAG,
    GZIP,
    LOGIN,
    LOOP,
    TO_FILE,
    LATE,
    FAULTS
};

/* What /_control/set changes; read by every request, under the lock. */
struct settings {
    double rates[FAULTS];
    uint64_t at[FAULTS]; /* 0: none */
    double latency, per_connection, total, late;
    unsigned retry_after;
    uint64_t seed;
    bool refuse_head, ranges, etags, lengths, listing, store;
    char match[128];
};

struct link { /* a connection and what it may send */
    int fd;
    double free_at;
    bool broken, close;
    struct settings s;
};

struct request {
    char method[8], path[2048], range[64], if_match[128];
    bool authorized, proxied, keep;
    uint64_t number;
    enum fault fault;
    uint64_t sent;
    int status;
};

/* --- fault_link.c: a connection whose bandwidth is limited --- */
extern pthread_mutex_t
    fault_lock;   /* guards the settings, the counters and the shared link */
double now(void); /* monotonic seconds */
void sleep_until(double when);
/* Each sets `broken` when the other side is gone. */
void send_all(struct link *l, const char *data, size_t size);
/* So many bytes of a file, counted in r->sent. */
void send_file(struct link *l, int file, uint64_t from, uint64_t size, struct request *r);
void reset_link(struct link *l);
/* Silence, for so long or until the other side gives up. */
void wait_for(struct link *l, double seconds);
void stall(struct link *l);
void trickle(struct link *l, int file, uint64_t from, uint64_t size, struct request *r);
const char *reason(int status);
/* Head and a short body; `headers` are whole lines. */
void answer(struct link *l, struct request *r, int status, const char *headers,
            const char *body, size_t size);
void say(struct link *l, struct request *r, int status, const char *text);

/* --- fault_files.c: files and directories below a root --- */
void serve_path(struct link *l, struct request *r, const char *root);
extern const char login_page[];
size_t login_size(void);

/* --- fault_keys.c: listings of S3 --- */
void serve_keys(struct link *l, struct request *r, const char *bucket);

#endif
