/* perform.c - many requests at once, until all have their answers or one has failed. */
#include "io/http/job.h"

#include <stdlib.h>

#define MS UINT64_C(1000000)
#define LOOK_NS (100 * MS)  /* how often slow ones are looked for */
#define CANCEL_NS (20 * MS) /* how soon a pause ends that is cancelled */
#define PAGE_BYTES 4096u

struct batch {
    struct sqrl_http *http;
    struct sqrl_job *jobs;
    size_t count, done, live; /* live: attempts under way */
    size_t waiting;           /* jobs that are to begin */
    struct sqrl_http_waiter waiter;
    uint64_t looked_ns; /* for slow ones */
};

/* Puts the URL before the error, and what redirects led to. */
static int name_job(const struct sqrl_job *job, int rc, struct sqrl_error *err) {
    char *url = sqrl_http_url_clean(job->request->url, NULL);
    char *moved = job->foreign ? sqrl_http_url_clean(job->url, NULL) : NULL;
    if (moved)
        sqrl_error_at(err, rc, "redirected to %s", moved);
    if (url && !job->request->unnamed)
        sqrl_error_at(err, rc, "%s", url);
    free(url);
    free(moved);
    return rc;
}

static int begin(struct batch *b, struct sqrl_job *job, int which,
                 struct sqrl_error *err) {
    int rc = sqrl_job_begin(job, which, err);
    if (rc == SQRL_OK)
        b->live++;
    return rc == SQRL_OK ? rc : name_job(job, rc, err);
}

/* Begins the jobs that are due; tells when the next one is. */
static int begin_due(struct batch *b, uint64_t *next, struct sqrl_error *err) {
    uint64_t now = sqrl_now_ns();
    int rc = SQRL_OK;
    *next = 0;
    for (size_t i = 0; i < b->count && b->waiting > 0 && rc == SQRL_OK; i++) {
        struct sqrl_job *job = &b->jobs[i];
        if (job->state != SQRL_JOB_WAITS)
            continue;
        if (job->due_ns <= now) {
            b->waiting--;
            rc = begin(b, job, 0, err);
        } else if (*next == 0 || job->due_ns < *next) {
            *next = job->due_ns;
        }
        if (rc == SQRL_OK && job->state == SQRL_JOB_WAITS &&
            sqrl_cancel_requested(job->request->cancel))
            rc = name_job(job,
                          sqrl_error_set(err, SQRL_E_CANCELLED,
                                         "cancelled while waiting to try again"),
                          err);
    }
    return rc;
}

static int settle(struct batch *b, struct sqrl_transfer *t, struct sqrl_error *err) {
    struct sqrl_attempt *a = t->owner;
    struct sqrl_job *job = a->job;
    b->live--;
    int rc = sqrl_job_settle(job, a, err);
    if (rc != SQRL_OK)
        return name_job(job, rc, err);
    b->done += job->state == SQRL_JOB_DONE;
    b->waiting += job->state == SQRL_JOB_WAITS;
    return SQRL_OK;
}

/* A second request for the first one that is slow. A hedge that can't begin is none. */
static void hedge(struct batch *b) {
    uint64_t now = sqrl_now_ns();
    if (now - b->looked_ns < LOOK_NS)
        return;
    b->looked_ns = now;
    for (size_t i = 0; i < b->count; i++) {
        struct sqrl_job *job = &b->jobs[i];
        if (job->state != SQRL_JOB_RUNS || !sqrl_job_slow(job, now))
            continue;
        if (sqrl_http_may_hedge(b->http, job->attempts[0].transfer.policy))
            (void)!begin(b, job, 1, NULL);
        return;
    }
}

static int go_on(struct batch *b, struct sqrl_error *err) {
    uint64_t next;
    int rc = begin_due(b, &next, err);
    if (rc != SQRL_OK)
        return rc;
    uint64_t now = sqrl_now_ns(), until = now + (next ? CANCEL_NS : LOOK_NS);
    if (next && next < until)
        until = next;
    struct sqrl_transfer *t = sqrl_http_next_done(b->http, &b->waiter, until);
    rc = t ? settle(b, t, err) : SQRL_OK;
    if (rc == SQRL_OK)
        hedge(b);
    return rc;
}

/* Nothing may write into the caller's memory any more. */
static void drain(struct batch *b) {
    for (size_t i = 0; i < b->count; i++)
        for (int k = 0; k < 2; k++)
            if (b->jobs[i].attempts[k].live)
                sqrl_http_abandon(b->http, &b->jobs[i].attempts[k].transfer);
    for (; b->live > 0; b->live--)
        ((struct sqrl_attempt *)sqrl_http_next_done(b->http, &b->waiter, 0)->owner)
            ->live = false;
}

/* First touch of fresh pages is dear, and the I/O thread would pay for all that wait:
 * here it is paid while the answers are on their way. Adding nothing changes no byte,
 * whoever else writes there. (madvise(MADV_POPULATE_WRITE) would block who maps memory.)
 */
__attribute__((no_sanitize("thread"))) static void
touch(const struct sqrl_http_request *requests, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < requests[i].segment_count; k++) {
            const struct sqrl_http_segment *s = &requests[i].segments[k];
            for (size_t at = 0; s->data && at < s->size; at += PAGE_BYTES)
                __atomic_fetch_or(&s->data[at], 0, __ATOMIC_RELAXED);
        }
    }
}

int sqrl_http_perform(struct sqrl_http *http, const struct sqrl_http_request *requests,
                      struct sqrl_http_response *responses, size_t count,
                      struct sqrl_error *err) {
    struct batch b = {
        .http = http, .count = count, .waiting = count, .looked_ns = sqrl_now_ns()};
    struct sqrl_error own;
    memset(responses, 0, count * sizeof *responses);
    b.jobs = sqrl_calloc(SQRL_MAX(count, 1u), sizeof *b.jobs, "requests", err);
    if (!b.jobs)
        return SQRL_E_NO_MEMORY;
    sqrl_http_waiter_init(&b.waiter);
    for (size_t i = 0; i < count; i++)
        sqrl_job_init(&b.jobs[i], http, &b.waiter, &requests[i], &responses[i]);
    uint64_t next;
    int rc = begin_due(&b, &next, &own);
    touch(requests, count);
    while (rc == SQRL_OK && b.done < count)
        rc = go_on(&b, &own);
    drain(&b);
    for (size_t i = 0; i < count; i++)
        sqrl_job_reset(&b.jobs[i]);
    pthread_cond_destroy(&b.waiter.any);
    free(b.jobs);
    if (rc != SQRL_OK && err)
        *err = own;
    return rc;
}
