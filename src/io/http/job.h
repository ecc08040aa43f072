/* job.h - one request with all its attempts: what perform.c drives. */
#ifndef SQRL_IO_HTTP_JOB_H
#define SQRL_IO_HTTP_JOB_H

#include "io/http/transfer.h"

/* What is wrong with an answer that came. */
enum sqrl_flaw {
    SQRL_FLAW_NONE,
    SQRL_FLAW_WHOLE,   /* all of the object instead of a range */
    SQRL_FLAW_PAGE,    /* something else instead of the object */
    SQRL_FLAW_RANGE,   /* another range than the one asked for */
    SQRL_FLAW_LENGTH,  /* its lengths contradict each other */
    SQRL_FLAW_SHORT,   /* fewer bytes than asked for */
    SQRL_FLAW_LONG,    /* more of them */
    SQRL_FLAW_ENCODED, /* compressed by surprise */
    SQRL_FLAW_CHANGED, /* of another version of the object */
    SQRL_FLAW_LIMIT,   /* larger than max_body */
    SQRL_FLAW_MEMORY
};

struct sqrl_job;

struct sqrl_attempt {
    struct sqrl_transfer transfer;
    struct sqrl_job *job;
    struct sqrl_http_headers lines;
    bool live;          /* submitted, not taken back yet */
    uint64_t from;      /* where in the request's range it begins */
    uint64_t position;  /* where its next byte goes (atomic) */
    uint64_t last;      /* behind the last byte that the answer promised */
    uint64_t end;       /* where the object ends in the request's range; 0: behind it */
    size_t segment, at; /* the same as an index and an offset */
    enum sqrl_flaw flaw;
    uint8_t *body; /* NUL-ended */
    size_t body_size, body_room;
};

enum sqrl_job_state { SQRL_JOB_WAITS, SQRL_JOB_RUNS, SQRL_JOB_DONE };

struct sqrl_job {
    const struct sqrl_http_request *request;
    struct sqrl_http_response *response;
    struct sqrl_http *http;
    struct sqrl_http_waiter *waiter;
    enum sqrl_job_state state;
    uint64_t due_ns;   /* when it waits */
    uint64_t begun_ns; /* when its first attempt began; 0: not yet */
    uint64_t size;     /* bytes that are wanted: the request's, or fewer at the end */
    uint64_t landed;   /* bytes in place from the front */
    uint64_t counted;  /* what `landed` was when `tries` was last set back */
    char *url;         /* after redirects; NULL: the request's */
    bool foreign;      /* of another scheme, host or port than the request's */
    unsigned tries, redirects, resigns, changes, wholes;
    int refused;                     /* the status that the next sign() is told */
    struct sqrl_attempt attempts[2]; /* the second one: a hedge */
};

/* job.c, all on the caller's thread */
void sqrl_job_init(struct sqrl_job *job, struct sqrl_http *http,
                   struct sqrl_http_waiter *waiter,
                   const struct sqrl_http_request *request,
                   struct sqrl_http_response *response);
void sqrl_job_reset(struct sqrl_job *job);
/* Submits an attempt (1: a hedge of the one that runs). */
int sqrl_job_begin(struct sqrl_job *job, int which, struct sqrl_error *err);
/* Takes one back that is done: the job is done, waits for its next attempt, runs on by
 * its other one, or has failed for good. */
int sqrl_job_settle(struct sqrl_job *job, struct sqrl_attempt *attempt,
                    struct sqrl_error *err);
/* Is the running attempt so slow that a second one is worth while? */
bool sqrl_job_slow(const struct sqrl_job *job, uint64_t now);

/* answer.c: what comes in, on the I/O thread */
bool sqrl_answer_headers(struct sqrl_transfer *transfer);
bool sqrl_answer_data(struct sqrl_transfer *transfer, const uint8_t *data, size_t size);
/* The places of a byte of the request's range. */
void sqrl_answer_seek(struct sqrl_attempt *attempt, uint64_t from);
/* "bytes 0-99/1000" and "bytes 0-99/" + "*": total is SQRL_SIZE_UNKNOWN then. */
bool sqrl_content_range(const char *text, uint64_t *first, uint64_t *last,
                        uint64_t *total);
int sqrl_flaw_error(const struct sqrl_attempt *attempt, struct sqrl_error *err);

#endif
