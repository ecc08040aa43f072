/* job.c - what to do about each attempt's end: done, again, elsewhere, or an error. */
#include "io/http/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define DEADLINE_NS (60 * SECOND)
#define STALL_NS (10 * SECOND)
/* A first attempt is taken for stalled after FIRST_STALL_NS, sooner where answers usually
 * come much sooner; each further one has twice as long, up to the policy's time. */
#define FIRST_STALL_NS (2500 * MS)
#define LEAST_STALL_NS (750 * MS)
#define STALL_FACTOR 20u
#define BYTES_PER_EXTRA_SECOND UINT64_C(32768)
#define ATTEMPTS 8u
#define UNPROVEN_ATTEMPTS 4u /* to a host that has never answered */
#define CHANGED_ATTEMPTS 4u  /* servers behind one name may disagree for a moment */
#define WHOLE_ATTEMPTS 3u
#define MAX_REDIRECTS 10u
#define MAX_RESIGNS 2u
#define SMALL_BYTES (64u << 10) /* come with the first byte: they tell no bandwidth */
#define PROGRESS_BYTES (64u << 10)
#define DELAY_MS 100u /* before the second attempt, then twice as long ... */
#define MAX_DELAY_MS 10000u

static const struct sqrl_http_policy defaults;

static const struct sqrl_http_policy *policy_of(const struct sqrl_job *job) {
    return job->request->policy ? job->request->policy : &defaults;
}

static const char *url_of(const struct sqrl_job *job) {
    return job->url ? job->url : job->request->url;
}

static bool is_method(const struct sqrl_job *job, const char *method) {
    return strcmp(job->request->method, method) == 0;
}

static bool is_get(const struct sqrl_job *job) {
    return is_method(job, "GET") || is_method(job, "HEAD");
}

static bool safe(const struct sqrl_job *job) {
    return job->request->idempotent || is_get(job);
}

void sqrl_job_init(struct sqrl_job *job, struct sqrl_http *http,
                   struct sqrl_http_waiter *waiter,
                   const struct sqrl_http_request *request,
                   struct sqrl_http_response *response) {
    *job = (struct sqrl_job){.request = request,
                             .response = response,
                             .http = http,
                             .waiter = waiter,
                             .size = request->size};
    for (int i = 0; i < 2; i++)
        job->attempts[i].job = job;
}

static void empty(struct sqrl_attempt *a) {
    sqrl_http_headers_free(&a->lines);
    sqrl_transfer_reset(&a->transfer);
    free(a->body);
    a->body = NULL;
    a->body_size = a->body_room = 0;
    a->flaw = SQRL_FLAW_NONE;
    a->last = a->end = 0;
}

void sqrl_job_reset(struct sqrl_job *job) {
    empty(&job->attempts[0]);
    empty(&job->attempts[1]);
    free(job->url);
}

/* --- beginning an attempt --- */

/* The request as this attempt makes it. */
static struct sqrl_http_request as_made(const struct sqrl_job *job,
                                        const struct sqrl_attempt *a) {
    struct sqrl_http_request r = *job->request;
    if (r.size > 0) {
        r.offset += a->from;
        r.size -= a->from;
    }
    /* Weak ones never match (RFC 9110, 13.1.1); they are compared when they come back. */
    if (r.etag && strncmp(r.etag, "W/", 2) == 0)
        r.etag = NULL;
    return r;
}

static int add_headers(struct sqrl_job *job, struct sqrl_attempt *a,
                       struct sqrl_error *err) {
    struct sqrl_http_request r = as_made(job, a);
    char range[64];
    int rc = SQRL_OK;
    for (size_t i = 0; i < r.header_count && !job->foreign && rc == SQRL_OK; i++)
        rc = sqrl_http_headers_add(&a->lines, r.headers[i].name, r.headers[i].value, err);
    if (rc == SQRL_OK && is_get(job))
        rc = sqrl_http_headers_add(&a->lines, "Accept-Encoding", "identity", err);
    if (rc == SQRL_OK && r.size > 0) {
        snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, r.offset,
                 r.offset + r.size - 1);
        rc = sqrl_http_headers_add(&a->lines, "Range", range, err);
    }
    if (rc == SQRL_OK && r.etag)
        rc = sqrl_http_headers_add(&a->lines, "If-Match", r.etag, err);
    if (rc == SQRL_OK && r.sign && !job->foreign)
        rc = r.sign(r.arg, &r, job->refused, &a->lines, err);
    return rc;
}

/* What is left of the time for all attempts; 0: nothing. */
static uint64_t time_left(const struct sqrl_job *job) {
    const struct sqrl_http_policy *p = policy_of(job);
    uint64_t all = p->deadline_ns ? p->deadline_ns : DEADLINE_NS;
    all += job->landed * SECOND / BYTES_PER_EXTRA_SECOND;
    uint64_t used = job->begun_ns ? sqrl_now_ns() - job->begun_ns : 0;
    return used < all ? all - used : 0;
}

static uint64_t stall_of(const struct sqrl_job *job) {
    const struct sqrl_http_policy *p = policy_of(job);
    uint64_t most = p->stall_ns ? p->stall_ns : STALL_NS, first = FIRST_STALL_NS;
    if (!is_get(job)) /* a server may take its time for what it has to do */
        return most;
    uint64_t usual = sqrl_http_lane(job->http, url_of(job)).first_byte_ns;
    if (usual > 0)
        first = SQRL_MIN(SQRL_MAX(STALL_FACTOR * usual, LEAST_STALL_NS), first);
    return SQRL_MIN(first << SQRL_MIN(job->tries, 8u), most);
}

static int late(const struct sqrl_job *job, struct sqrl_error *err) {
    const struct sqrl_http_policy *p = policy_of(job);
    double seconds = (double)(p->deadline_ns ? p->deadline_ns : DEADLINE_NS) / 1e9;
    int rc = sqrl_error_set(err, SQRL_E_IO,
                            "no complete answer within %g seconds (timeout=)", seconds);
    if (err)
        err->retryable = true;
    return rc;
}

/* Only http and https, and no name that is surely within, if that is refused. */
static int check_url(const struct sqrl_job *job, struct sqrl_error *err) {
    struct sqrl_origin origin;
    if (!sqrl_curl_origin(url_of(job), &origin))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "this is not a valid http:// or https:// URL");
    bool fine = !policy_of(job)->public_only || sqrl_host_public(origin.host);
    free(origin.host);
    return fine ? SQRL_OK
                : sqrl_error_set(err, SQRL_E_PERMISSION,
                                 "the host is not on the public internet, and this URL "
                                 "comes from a remote catalog: set "
                                 "SQRL_ALLOW_PRIVATE=1 if you trust it");
}

int sqrl_job_begin(struct sqrl_job *job, int which, struct sqrl_error *err) {
    struct sqrl_attempt *a = &job->attempts[which];
    uint64_t left = time_left(job);
    if (left == 0)
        return late(job, err);
    int rc = check_url(job, err);
    if (rc != SQRL_OK)
        return rc;
    empty(a);
    sqrl_answer_seek(
        a, which == 0 ? job->landed
                      : __atomic_load_n(&job->attempts[0].position, __ATOMIC_ACQUIRE));
    rc = add_headers(job, a, err);
    if (rc != SQRL_OK)
        return rc;
    a->transfer = (struct sqrl_transfer){.method = job->request->method,
                                         .url = url_of(job),
                                         .headers = &a->lines,
                                         .body = job->request->body,
                                         .body_size = job->request->body_size,
                                         .policy = policy_of(job),
                                         .cancel = job->request->cancel,
                                         .deadline_ns = left,
                                         .stall_ns = stall_of(job),
                                         .urgent = job->begun_ns != 0,
                                         .listing = job->request->listing,
                                         .on_headers = sqrl_answer_headers,
                                         .on_data = sqrl_answer_data,
                                         .owner = a,
                                         .waiter = job->waiter};
    a->live = true;
    job->state = SQRL_JOB_RUNS;
    sqrl_http_submit(job->http, &a->transfer);
    return SQRL_OK;
}

/* --- again --- */

/* Between half of the nominal delay and all of it, so that many don't march in step. */
static uint64_t backoff_ns(const struct sqrl_job *job) {
    uint64_t nominal = DELAY_MS;
    for (unsigned i = 1; i < job->tries && nominal < MAX_DELAY_MS; i++)
        nominal *= 2;
    nominal = SQRL_MIN(nominal, (uint64_t)MAX_DELAY_MS) * MS;
    uint64_t draw = sqrl_mix64(sqrl_now_ns() ^ (uint64_t)(uintptr_t)job);
    return nominal / 2 + draw % (nominal / 2 + 1);
}

static int give_up(const struct sqrl_job *job, int rc, const char *why,
                   struct sqrl_error *err) {
    char message[SQRL_ERROR_MESSAGE_BYTES];
    if (!err)
        return rc;
    bool retryable = err->retryable;
    memcpy(message, err->message, sizeof message);
    if (job->tries > 1)
        sqrl_error_set(err, rc, "%s (%s %u attempts)", message, why, job->tries);
    err->retryable = retryable;
    return rc;
}

/* The job waits for its next attempt, or `rc` with what `err` says stands. `wait`: what
 * the server asked for, below 0: nothing. */
static int again(struct sqrl_job *job, int rc, unsigned limit, double wait,
                 struct sqrl_error *err) {
    if (job->landed - job->counted >= PROGRESS_BYTES) {
        job->counted = job->landed;
        job->tries = 0;
    }
    if (++job->tries >= limit)
        return give_up(job, rc, "the last of", err);
    uint64_t delay = backoff_ns(job);
    if (wait >= 0)
        delay += (uint64_t)(SQRL_MIN(wait, 86400.0) * 1e9);
    if (delay >= time_left(job))
        return give_up(job, rc, "no time is left after", err);
    sqrl_http_note_retry(job->http, policy_of(job), url_of(job), err ? err->message : "",
                         delay);
    job->state = SQRL_JOB_WAITS;
    job->due_ns = sqrl_now_ns() + delay;
    return SQRL_OK;
}

static unsigned attempts_of(const struct sqrl_job *job) {
    unsigned n = policy_of(job)->attempts;
    return n ? n : ATTEMPTS;
}

/* --- failures on the way --- */

static int net_error(const struct sqrl_job *job, const struct sqrl_transfer *t,
                     struct sqrl_error *err) {
    const char *m = t->message;
    switch (t->end) {
    case SQRL_NET_CONNECT:
        return sqrl_error_set(err, SQRL_E_IO, "can't connect: %s", m);
    case SQRL_NET_NAME:
        return sqrl_error_set(err, SQRL_E_IO, "the host's name can't be resolved: %s", m);
    case SQRL_NET_TLS:
        return sqrl_error_set(err, SQRL_E_IO, "no secure connection: %s", m);
    case SQRL_NET_TRUST:
        return sqrl_error_set(err, SQRL_E_IO,
                              "the server's certificate is not trusted (%s); if it is "
                              "yours, name its authority with ca_file= or SSL_CERT_FILE",
                              m);
    case SQRL_NET_STALLED:
        return sqrl_error_set(err, SQRL_E_IO,
                              "the transfer stalled: less than 4 KiB/s for %g seconds",
                              (double)t->stall_ns / 1e9);
    case SQRL_NET_LATE:
        return late(job, err);
    case SQRL_NET_CANCELLED:
        return sqrl_error_set(err, SQRL_E_CANCELLED, "the request was cancelled");
    case SQRL_NET_FORBIDDEN:
        return sqrl_error_set(
            err, SQRL_E_PERMISSION,
            "the host's address is not on the public internet, and this "
            "URL comes from a remote catalog: set SQRL_ALLOW_PRIVATE=1 "
            "if you trust it");
    case SQRL_NET_INVALID:
        return sqrl_error_set(err, SQRL_E_INVALID, "no request can be made: %s", m);
    case SQRL_NET_NO_MEMORY:
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for a request");
    default:
        return sqrl_error_set(err, SQRL_E_IO, "the connection broke: %s", m);
    }
}

static int failed(struct sqrl_job *job, const struct sqrl_transfer *t,
                  struct sqrl_error *err) {
    int rc = net_error(job, t, err);
    bool unsent =
        t->end == SQRL_NET_CONNECT || t->end == SQRL_NET_NAME || t->end == SQRL_NET_TLS;
    bool repeat = t->end == SQRL_NET_BROKEN || t->end == SQRL_NET_STALLED || unsent;
    if (err)
        err->retryable = repeat || t->end == SQRL_NET_LATE;
    if (!repeat || !(safe(job) || unsent))
        return rc;
    bool proven = sqrl_http_lane(job->http, url_of(job)).proven;
    return again(job, rc,
                 unsent && !proven ? SQRL_MIN(UNPROVEN_ATTEMPTS, attempts_of(job))
                                   : attempts_of(job),
                 -1, err);
}

/* The caller sees status and headers of what was refused, too. */
static void answer(struct sqrl_job *job, struct sqrl_attempt *a) {
    struct sqrl_http_response *r = job->response;
    sqrl_http_response_free(r);
    r->status = a->transfer.status;
    r->headers = a->transfer.answer;
    a->transfer.answer = (struct sqrl_http_headers){0};
    r->body = a->body;
    r->body_size = a->body_size;
    a->body = NULL;
    a->body_size = a->body_room = 0;
    if (job->url)
        r->url = sqrl_strdup(job->url, NULL);
    r->foreign = job->foreign;
}

static int flawed(struct sqrl_job *job, struct sqrl_attempt *a, struct sqrl_error *err) {
    int rc = sqrl_flaw_error(a, err);
    unsigned limit = attempts_of(job);
    bool once = a->flaw == SQRL_FLAW_LIMIT || a->flaw == SQRL_FLAW_MEMORY;
    const char *ranges = sqrl_http_headers_get(&a->transfer.answer, "Accept-Ranges");
    bool able = ranges && strcmp(ranges, "bytes") == 0; /* it was a slip, perhaps */
    if (a->flaw == SQRL_FLAW_WHOLE && (++job->wholes >= WHOLE_ATTEMPTS || !able))
        once = true;
    if (a->flaw == SQRL_FLAW_CHANGED && ++job->changes >= CHANGED_ATTEMPTS)
        once = true;
    if (err)
        err->retryable = rc == SQRL_E_IO || rc == SQRL_E_TRUNCATED;
    if (once || !safe(job)) {
        answer(job, a);
        return rc;
    }
    rc = again(job, rc, limit, -1, err);
    if (rc != SQRL_OK)
        answer(job, a);
    return rc;
}

/* --- answers --- */

static bool same_origin(const char *a, const char *b, bool *downgraded) {
    struct sqrl_origin one, two;
    bool first = sqrl_curl_origin(a, &one), second = sqrl_curl_origin(b, &two);
    bool same = first && second && one.tls == two.tls && one.port == two.port &&
                strcmp(one.host, two.host) == 0;
    *downgraded = first && second && one.tls && !two.tls;
    free(first ? one.host : NULL);
    free(second ? two.host : NULL);
    return same;
}

/* Where a redirect leads: only to http and https, and not from TLS to none. */
static int redirected(struct sqrl_job *job, const struct sqrl_transfer *t,
                      struct sqrl_error *err) {
    const char *location = sqrl_http_headers_get(&t->answer, "Location");
    if (++job->redirects > MAX_REDIRECTS)
        return sqrl_error_set(
            err, SQRL_E_IO, "redirected more than %u times: the server sends in circles",
            MAX_REDIRECTS);
    char *url = sqrl_curl_resolve(url_of(job), location);
    struct sqrl_origin origin = {0};
    bool known = url && sqrl_curl_origin(url, &origin);
    free(origin.host);
    bool downgraded = false;
    if (!known) {
        free(url);
        return sqrl_error_set(err, SQRL_E_PERMISSION,
                              "the server redirects to something that is not http:// or "
                              "https://, which is not followed");
    }
    job->foreign = !same_origin(job->request->url, url, &downgraded);
    if (downgraded) {
        free(url);
        return sqrl_error_set(err, SQRL_E_PERMISSION,
                              "the server redirects from https:// to http://, which is "
                              "not followed: open that URL itself if you trust the way");
    }
    free(job->url);
    job->url = url;
    job->state = SQRL_JOB_WAITS;
    job->due_ns = 0;
    return SQRL_OK;
}

static bool is_redirect(const struct sqrl_job *job, const struct sqrl_transfer *t) {
    int s = t->status;
    bool kept = s == 307 || s == 308, any = s == 301 || s == 302 || s == 303 || kept;
    return any && !job->request->keep_redirect && (kept || is_get(job)) &&
           sqrl_http_headers_get(&t->answer, "Location");
}

static enum sqrl_http_verdict default_verdict(const struct sqrl_job *job) {
    int s = job->response->status;
    if (s == 408 || s == 429 || s == 500 || s == 502 || s == 503 || s == 504)
        return SQRL_HTTP_AGAIN;
    bool refused = (s == 401 || s == 403) && job->request->sign && !job->foreign;
    return refused && job->resigns == 0 ? SQRL_HTTP_RESIGN : SQRL_HTTP_FINAL;
}

static int final(struct sqrl_job *job, struct sqrl_error *err) {
    int s = job->response->status;
    if (job->request->size > 0 && (s < 200 || s >= 300))
        return sqrl_http_status_error(job->response, err);
    job->state = SQRL_JOB_DONE;
    return SQRL_OK;
}

static int answered(struct sqrl_job *job, struct sqrl_attempt *a,
                    struct sqrl_error *err) {
    if (is_redirect(job, &a->transfer))
        return redirected(job, &a->transfer, err);
    answer(job, a);
    const struct sqrl_http_request *r = job->request;
    int s = job->response->status;
    bool good = s >= 200 && s < 300;
    enum sqrl_http_verdict v = good ? SQRL_HTTP_FINAL : SQRL_HTTP_DEFAULT;
    if (r->judge && !job->foreign && (!good || job->response->body_size > 0))
        v = r->judge(r->arg, r, job->response);
    if (v == SQRL_HTTP_DEFAULT)
        v = good ? SQRL_HTTP_FINAL : default_verdict(job);
    if (s == 412 && r->etag && ++job->changes < CHANGED_ATTEMPTS && safe(job))
        v = SQRL_HTTP_AGAIN;
    if (v == SQRL_HTTP_RESIGN && ++job->resigns <= MAX_RESIGNS) {
        job->refused = s;
        job->state = SQRL_JOB_WAITS;
        job->due_ns = 0;
        return SQRL_OK;
    }
    if (v != SQRL_HTTP_AGAIN || !(safe(job) || s == 429 || s == 503))
        return final(job, err);
    if (s == 429 || s == 503)
        sqrl_http_slow_down(job->http, &a->transfer);
    int rc = sqrl_http_status_error(job->response, err);
    return again(job, rc, attempts_of(job), sqrl_http_retry_after(job->response), err);
}

int sqrl_job_settle(struct sqrl_job *job, struct sqrl_attempt *a,
                    struct sqrl_error *err) {
    struct sqrl_attempt *other = &job->attempts[a == &job->attempts[0]];
    struct sqrl_transfer *t = &a->transfer;
    bool was_complete = job->size > 0 && job->landed == job->size;
    a->live = false;
    if (a->end > 0)
        job->size = a->end;
    uint64_t size = job->size;
    if (!job->begun_ns)
        job->begun_ns = t->started_ns ? t->started_ns : sqrl_now_ns();
    job->landed = SQRL_MAX(job->landed, a->position);
    if (size > 0 && job->landed == size) {
        if (!was_complete)
            answer(job, a);
        job->response->got = size;
        if (other->live)
            sqrl_http_abandon(job->http, &other->transfer);
        else
            job->state = SQRL_JOB_DONE;
        return SQRL_OK;
    }
    if (other->live || t->end == SQRL_NET_ABANDONED)
        return SQRL_OK;
    if (t->end == SQRL_NET_OK && size > 0 && t->status >= 200 && t->status < 300)
        a->flaw = SQRL_FLAW_SHORT;
    if (a->flaw != SQRL_FLAW_NONE)
        return flawed(job, a, err);
    return t->end == SQRL_NET_OK ? answered(job, a, err) : failed(job, t, err);
}

bool sqrl_job_slow(const struct sqrl_job *job, uint64_t now) {
    const struct sqrl_attempt *a = &job->attempts[0];
    uint64_t started = __atomic_load_n(&a->transfer.started_ns, __ATOMIC_ACQUIRE);
    if (job->request->size == 0 || !is_get(job) || !a->live || job->attempts[1].live ||
        started == 0)
        return false;
    struct sqrl_lane_view lane = sqrl_http_lane(job->http, url_of(job));
    uint64_t left = job->request->size - a->from;
    if (!lane.first_byte_ns || (!lane.mebibyte_ns && left >= SMALL_BYTES))
        return false;
    double size = (double)left / (1 << 20);
    double usual = (double)lane.first_byte_ns + size * (double)lane.mebibyte_ns;
    return (double)(now - started) > 3 * usual + 50e6 &&
           __atomic_load_n(&a->position, __ATOMIC_ACQUIRE) < job->request->size;
}
