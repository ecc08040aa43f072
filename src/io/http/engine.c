/* engine.c - the I/O thread: which transfers run, and when one has waited enough.
 *
 * Transfers queue in lanes, one a host. A lane lets more run at once as long as that
 * raises its throughput, and fewer when the host says so. Owner (the context) and thread
 * share the engine; whoever leaves last frees it. One lock guards all that both touch;
 * the queues and lists of running transfers belong to the thread.
 *
 * Outside contexts there is a list of the process's engines: a forked child gives up the
 * parent's sockets, or they would stay open as long as it lives, and the process's exit
 * stops the threads before libcurl's libraries take themselves down. */
#include "io/http/transfer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define TICK_NS (50 * MS)
#define IDLE_NS (25 * SECOND)
#define LEAVE_NS SECOND
#define FIRST_LIMIT 20u
#define LEAST_LIMIT 2u
#define MOST_LIMIT 64u
#define WINDOW_NS (400 * MS)
#define HOLD_WINDOWS 10u
#define SLOW_BYTES_PER_SECOND UINT64_C(4096) /* less than it is a stall */
#define BYTES_PER_EXTRA_SECOND UINT64_C(32768)

struct list {
    struct sqrl_transfer *first, *last;
};

struct sqrl_lane {
    struct sqrl_lane *next;
    struct sqrl_origin origin;
    struct list queue, running; /* the thread's */
    unsigned active;            /* the thread's */
    /* Under the lock: */
    unsigned limit, before; /* transfers at once; what it was before the last step */
    unsigned hold;          /* windows until the next step is tried */
    uint64_t slowed_ns;     /* when it was last asked to slow down */
    uint64_t landed;        /* bytes of transfers that ended */
    uint64_t window_ns, window_bytes, rate; /* when it began, with what; the last rate */
    uint64_t first_byte_ns, mebibyte_ns;    /* running means */
    bool proven;
};

struct sqrl_http {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct sqrl_context *context; /* NULL once the owner has left */
    uint32_t generation;
    unsigned shares;       /* owner, thread, and the process's exit while it waits */
    bool stop, over, gone; /* the thread: shall end, is past its loop, let go of curl */
    bool abandoned;        /* some transfer is to be looked for */
    struct list submitted;
    struct sqrl_lane *lanes;
    uint64_t requests, hedges;
    struct sqrl_curl *curl;
    struct sqrl_http *next; /* in the process's list */
    /* The thread's: */
    uint64_t looked_ns, busy_ns;
    uint64_t idle_ns; /* atomic: so long connections are kept that nobody uses */
    unsigned active, waiting;
};

/* --- the process's engines --- */

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sqrl_http *engines;
static pthread_once_t watching = PTHREAD_ONCE_INIT;

static void forked(void) {
    pthread_mutex_init(&engines_lock, NULL);
    for (struct sqrl_http *e = engines; e; e = e->next)
        sqrl_curl_forked(e->curl);
    engines = NULL;
}

/* Asks the thread to end; waits a little. */
static void stop(struct sqrl_http *http) {
    uint64_t until = sqrl_now_ns() + LEAVE_NS;
    struct timespec t = {(time_t)(until / SECOND), (long)(until % SECOND)};
    pthread_mutex_lock(&http->lock);
    http->stop = true;
    http->context = NULL;
    if (!http->over)
        sqrl_curl_wake(http->curl);
    int rc = 0;
    while (!http->gone && rc == 0)
        rc = pthread_cond_timedwait(&http->ended, &http->lock, &t);
    pthread_mutex_unlock(&http->lock);
}

static void leave(struct sqrl_http *http) {
    pthread_mutex_lock(&http->lock);
    bool last = --http->shares == 0;
    pthread_mutex_unlock(&http->lock);
    if (!last)
        return;
    while (http->lanes) {
        struct sqrl_lane *lane = http->lanes;
        http->lanes = lane->next;
        free(lane->origin.host);
        free(lane);
    }
    pthread_cond_destroy(&http->ended);
    pthread_mutex_destroy(&http->lock);
    free(http);
}

/* The next engine, kept from being freed: its owner may leave just now. */
static struct sqrl_http *take_engine(void) {
    pthread_mutex_lock(&engines_lock);
    struct sqrl_http *e = engines;
    if (e) {
        engines = e->next;
        pthread_mutex_lock(&e->lock);
        e->shares++;
        pthread_mutex_unlock(&e->lock);
    }
    pthread_mutex_unlock(&engines_lock);
    return e;
}

static void at_exit(void) {
    for (struct sqrl_http *e = take_engine(); e; e = take_engine()) {
        stop(e);
        leave(e);
    }
}

static void watch(void) {
    (void)pthread_atfork(NULL, NULL, forked);
    (void)atexit(at_exit); /* behind libcurl's own initialisation: runs before its end */
}

static void enlist(struct sqrl_http *http) {
    pthread_once(&watching, watch);
    pthread_mutex_lock(&engines_lock);
    http->next = engines;
    engines = http;
    pthread_mutex_unlock(&engines_lock);
}

static void delist(struct sqrl_http *http) {
    pthread_mutex_lock(&engines_lock);
    struct sqrl_http **at = &engines;
    while (*at && *at != http)
        at = &(*at)->next;
    if (*at)
        *at = http->next;
    pthread_mutex_unlock(&engines_lock);
}

/* --- lists --- */

static void put_last(struct list *list, struct sqrl_transfer *t) {
    t->next = NULL;
    t->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = t;
    list->last = t;
}

static void put_first(struct list *list, struct sqrl_transfer *t) {
    t->previous = NULL;
    t->next = list->first;
    *(list->first ? &list->first->previous : &list->last) = t;
    list->first = t;
}

static void take_out(struct list *list, struct sqrl_transfer *t) {
    *(t->previous ? &t->previous->next : &list->first) = t->next;
    *(t->next ? &t->next->previous : &list->last) = t->previous;
}

/* --- counting --- */

/* With the lock held. */
static void count(struct sqrl_http *http, enum sqrl_counter counter, uint64_t *own,
                  uint64_t add) {
    if (own && add)
        __atomic_fetch_add(own, add, __ATOMIC_RELAXED);
    if (http->context && add)
        sqrl_count(http->context, counter, add);
}

#define OWN(policy, what) ((policy)->metrics ? &(policy)->metrics->what : NULL)

static void learn(uint64_t *mean, uint64_t value) {
    *mean = *mean ? *mean - *mean / 8 + value / 8 : value;
}

/* With the lock held. */
static void account(struct sqrl_http *http, struct sqrl_transfer *t) {
    struct sqrl_lane *lane = t->lane;
    count(http, SQRL_COUNT_HTTP_BYTES, OWN(t->policy, bytes), t->got);
    count(http, SQRL_COUNT_HTTP_CONNECTIONS, NULL, t->new_connection);
    lane->landed += t->got + t->sent;
    if (t->first_byte_ns == 0)
        return;
    uint64_t first = t->first_byte_ns - t->started_ns;
    count(http, SQRL_COUNT_HTTP_FIRST_BYTE_NS, OWN(t->policy, first_byte_ns), first);
    if (t->policy->metrics)
        __atomic_fetch_add(&t->policy->metrics->first_bytes, 1, __ATOMIC_RELAXED);
    lane->proven = true;
    learn(&lane->first_byte_ns, first);
    if (t->end == SQRL_NET_OK && t->got >= (64u << 10)) {
        double each = (double)(t->ended_ns - t->first_byte_ns) / (double)t->got;
        learn(&lane->mebibyte_ns, (uint64_t)(each * (1 << 20)));
    }
}

/* --- the thread --- */

/* Hands a transfer back; its memory is no longer ours then. */
static void hand_back(struct sqrl_http *http, struct sqrl_transfer *t) {
    pthread_mutex_lock(&http->lock);
    t->ended_ns = sqrl_now_ns();
    if (t->started_ns)
        account(http, t);
    t->done = true;
    t->next = t->waiter->done;
    t->waiter->done = t;
    pthread_cond_signal(&t->waiter->any);
    pthread_mutex_unlock(&http->lock);
}

static void not_running(struct sqrl_http *http, struct sqrl_transfer *t) {
    take_out(&t->lane->running, t);
    t->lane->active--;
    http->active--;
    http->busy_ns = sqrl_now_ns();
}

static void finished(void *arg, struct sqrl_transfer *t) {
    struct sqrl_http *http = arg;
    not_running(http, t);
    hand_back(http, t);
}

static void end_running(struct sqrl_http *http, struct sqrl_transfer *t,
                        enum sqrl_net end) {
    sqrl_curl_stop(http->curl, t);
    t->end = end;
    not_running(http, t);
    hand_back(http, t);
}

static void end_waiting(struct sqrl_http *http, struct sqrl_transfer *t,
                        enum sqrl_net end) {
    take_out(&t->lane->queue, t);
    http->waiting--;
    t->end = end;
    hand_back(http, t);
}

/* With the lock held, as the next one. */
static struct sqrl_lane *find_lane(struct sqrl_http *http,
                                   const struct sqrl_origin *origin) {
    struct sqrl_lane *lane = http->lanes;
    while (lane &&
           (lane->origin.tls != origin->tls || lane->origin.port != origin->port ||
            strcmp(lane->origin.host, origin->host) != 0))
        lane = lane->next;
    return lane;
}

static struct sqrl_lane *lane_of(struct sqrl_http *http, const char *url) {
    struct sqrl_origin origin;
    if (!sqrl_curl_origin(url, &origin))
        return NULL;
    struct sqrl_lane *lane = find_lane(http, &origin);
    if (lane || !(lane = sqrl_calloc(1, sizeof *lane, "a host", NULL))) {
        free(origin.host);
        return lane;
    }
    lane->origin = origin;
    lane->limit = lane->before = FIRST_LIMIT;
    lane->next = http->lanes;
    http->lanes = lane;
    return lane;
}

/* With the lock held: what was submitted goes to its lanes. Returns those without one. */
static struct list sort_in(struct sqrl_http *http) {
    struct list bad = {NULL, NULL};
    struct sqrl_transfer *t = http->submitted.first, *next;
    for (; t; t = next) {
        next = t->next;
        t->lane = lane_of(http, t->url);
        if (!t->lane) {
            put_last(&bad, t);
            continue;
        }
        (t->urgent ? put_first : put_last)(&t->lane->queue, t);
        http->waiting++;
    }
    http->submitted = (struct list){NULL, NULL};
    return bad;
}

static unsigned room(const struct sqrl_lane *lane) {
    const struct sqrl_http_policy *policy = lane->queue.first->policy;
    unsigned most = policy->parallel ? policy->parallel : MOST_LIMIT;
    unsigned limit = SQRL_MIN(lane->limit, most);
    return limit > lane->active ? limit - lane->active : 0;
}

static void start(struct sqrl_http *http, struct sqrl_lane *lane) {
    struct sqrl_transfer *t = lane->queue.first;
    take_out(&lane->queue, t);
    put_last(&lane->running, t);
    http->waiting--;
    http->active++;
    lane->active++;
    uint64_t now = sqrl_now_ns();
    t->watch_ns = now;
    t->watch_got = 0;
    __atomic_store_n(&t->started_ns, now, __ATOMIC_RELEASE);
    pthread_mutex_lock(&http->lock);
    http->requests++;
    count(http, SQRL_COUNT_HTTP_REQUESTS,
          t->listing ? OWN(t->policy, lists) : OWN(t->policy, requests), 1);
    if (t->policy->metrics && http->active > t->policy->metrics->parallel_most)
        __atomic_store_n(&t->policy->metrics->parallel_most, http->active,
                         __ATOMIC_RELAXED);
    pthread_mutex_unlock(&http->lock);
    sqrl_curl_start(http->curl, t);
}

static void start_all(struct sqrl_http *http) {
    for (struct sqrl_lane *lane = http->lanes; lane; lane = lane->next) {
        while (lane->queue.first) {
            pthread_mutex_lock(&http->lock);
            unsigned n = room(lane);
            pthread_mutex_unlock(&http->lock);
            if (n == 0)
                break;
            start(http, lane);
        }
    }
}

/* --- what has waited enough --- */

static bool stalled(struct sqrl_transfer *t, uint64_t now) {
    uint64_t moved = t->got + t->sent;
    if (now - t->watch_ns < t->stall_ns)
        return false;
    bool slow = moved - t->watch_got < t->stall_ns / MS * SLOW_BYTES_PER_SECOND / 1000 ||
                moved == t->watch_got;
    t->watch_ns = now;
    t->watch_got = moved;
    return slow;
}

static void look_after_one(struct sqrl_http *http, struct sqrl_transfer *t,
                           uint64_t now) {
    uint64_t extra = t->got * SECOND / BYTES_PER_EXTRA_SECOND;
    if (sqrl_cancel_requested(t->cancel))
        end_running(http, t, SQRL_NET_CANCELLED);
    else if (t->deadline_ns && now - t->started_ns > t->deadline_ns + extra)
        end_running(http, t, SQRL_NET_LATE);
    else if (t->stall_ns && stalled(t, now))
        end_running(http, t, SQRL_NET_STALLED);
}

static uint64_t bytes_of(const struct sqrl_lane *lane) {
    uint64_t sum = 0;
    for (const struct sqrl_transfer *t = lane->running.first; t; t = t->next)
        sum += t->got + t->sent;
    return sum;
}

/* A window is over: did the last step pay? With the lock held. */
static void step(struct sqrl_lane *lane, uint64_t rate) {
    bool up = lane->limit > lane->before;
    if (up && rate < lane->rate + lane->rate / 12) { /* it did not */
        lane->limit = lane->before;
        lane->hold = HOLD_WINDOWS;
    } else if (up) {
        lane->before = lane->limit;
    }
    lane->rate = up && lane->hold == 0 ? SQRL_MAX(rate, lane->rate) : rate;
    if (lane->hold > 0)
        lane->hold--;
    else if (lane->limit < MOST_LIMIT)
        lane->limit = SQRL_MIN(lane->limit + SQRL_MAX(lane->limit / 4, 1u), MOST_LIMIT);
}

/* Only windows in which transfers waited all the time tell what the limit costs. */
static void adapt(struct sqrl_http *http, struct sqrl_lane *lane, uint64_t now) {
    uint64_t bytes = 0;
    pthread_mutex_lock(&http->lock);
    bool full = lane->queue.first && lane->active >= lane->limit;
    if (!full) {
        lane->window_ns = 0;
    } else if (lane->window_ns == 0) {
        lane->window_ns = now;
        lane->window_bytes = lane->landed + bytes_of(lane);
    } else if (now - lane->window_ns >= WINDOW_NS) {
        bytes = lane->landed + bytes_of(lane);
        double seconds = (double)(now - lane->window_ns) / (double)SECOND;
        step(lane, (uint64_t)((double)(bytes - lane->window_bytes) / seconds));
        lane->window_ns = now;
        lane->window_bytes = bytes;
    }
    pthread_mutex_unlock(&http->lock);
}

static void look_after(struct sqrl_http *http) {
    uint64_t now = sqrl_now_ns();
    if (now - http->looked_ns < TICK_NS / 2)
        return;
    http->looked_ns = now;
    struct sqrl_transfer *next;
    for (struct sqrl_lane *lane = http->lanes; lane; lane = lane->next) {
        for (struct sqrl_transfer *t = lane->queue.first; t; t = next) {
            next = t->next;
            if (sqrl_cancel_requested(t->cancel))
                end_waiting(http, t, SQRL_NET_CANCELLED);
        }
        for (struct sqrl_transfer *t = lane->running.first; t; t = next) {
            next = t->next;
            look_after_one(http, t, now);
        }
        adapt(http, lane, now);
    }
}

/* All that are abandoned, or all that there are. */
static void end_some(struct sqrl_http *http, bool all) {
    enum sqrl_net end = all ? SQRL_NET_CANCELLED : SQRL_NET_ABANDONED;
    struct sqrl_transfer *next;
    for (struct sqrl_lane *lane = http->lanes; lane; lane = lane->next) {
        for (struct sqrl_transfer *t = lane->queue.first; t; t = next) {
            next = t->next;
            if (all || __atomic_load_n(&t->abandoned, __ATOMIC_RELAXED))
                end_waiting(http, t, end);
        }
        for (struct sqrl_transfer *t = lane->running.first; t; t = next) {
            next = t->next;
            if (all || __atomic_load_n(&t->abandoned, __ATOMIC_RELAXED))
                end_running(http, t, end);
        }
    }
}

static unsigned pause_ms(const struct sqrl_http *http) {
    if (http->active || http->waiting)
        return TICK_NS / MS;
    if (sqrl_curl_sockets(http->curl) == 0)
        return 3600 * 1000;
    uint64_t idle = sqrl_now_ns() - http->busy_ns;
    uint64_t most = __atomic_load_n(&http->idle_ns, __ATOMIC_RELAXED);
    return idle >= most ? 0 : (unsigned)((most - idle) / MS + 1);
}

static void hang_up(struct sqrl_http *http) {
    if (http->active || http->waiting || sqrl_curl_sockets(http->curl) == 0 ||
        sqrl_now_ns() - http->busy_ns < __atomic_load_n(&http->idle_ns, __ATOMIC_RELAXED))
        return;
    sqrl_curl_hang_up(http->curl);
}

static void *run(void *arg) {
    struct sqrl_http *http = arg;
    pthread_setname_np(pthread_self(), "sqrl-http");
    bool going = true;
    while (going) {
        pthread_mutex_lock(&http->lock);
        struct list bad = sort_in(http);
        bool look = http->abandoned;
        http->abandoned = false;
        going = !http->stop;
        pthread_mutex_unlock(&http->lock);
        for (struct sqrl_transfer *t = bad.first, *next; t; t = next) {
            next = t->next;
            t->end = SQRL_NET_INVALID;
            hand_back(http, t);
        }
        if (look || !going)
            end_some(http, !going);
        if (!going)
            break;
        start_all(http);
        sqrl_curl_run(http->curl, pause_ms(http));
        look_after(http);
        hang_up(http);
    }
    pthread_mutex_lock(&http->lock);
    struct sqrl_curl *curl = http->curl;
    http->over = true;
    pthread_mutex_unlock(&http->lock);
    sqrl_curl_free(curl);
    pthread_mutex_lock(&http->lock);
    http->gone = true;
    pthread_cond_broadcast(&http->ended);
    pthread_mutex_unlock(&http->lock);
    leave(http);
    return NULL;
}

/* --- starting --- */

static int start_thread(struct sqrl_http *http, struct sqrl_error *err) {
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t before;
    int failed = pthread_attr_init(&attr);
    if (failed == 0) {
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        sqrl_block_signals(&before);
        failed = pthread_create(&thread, &attr, run, http);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attr);
    }
    return failed ? sqrl_error_set_errno(err, failed, "can't start the HTTP thread")
                  : SQRL_OK;
}

static int make(struct sqrl_context *context, struct sqrl_http **out,
                struct sqrl_error *err) {
    int rc = sqrl_curl_load(err);
    if (rc != SQRL_OK)
        return rc;
    struct sqrl_http *http = sqrl_calloc(1, sizeof *http, "the HTTP engine", err);
    if (!http)
        return SQRL_E_NO_MEMORY;
    http->curl = sqrl_curl_new(finished, http, err);
    if (!http->curl) {
        free(http);
        return SQRL_E_NO_MEMORY;
    }
    http->context = context;
    http->generation = sqrl_fork_generation();
    http->idle_ns = IDLE_NS;
    http->shares = 2;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&http->ended, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&http->lock, NULL);
    rc = start_thread(http, err);
    if (rc != SQRL_OK) {
        sqrl_curl_free(http->curl);
        http->shares = 1;
        leave(http);
        return rc;
    }
    enlist(http);
    *out = http;
    return SQRL_OK;
}

int sqrl_http_of(struct sqrl_context *context, struct sqrl_http **out,
                 struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_http_place *place = sqrl_io_http(context, err);
    if (!place)
        return SQRL_E_NO_MEMORY;
    int rc = SQRL_OK;
    sqrl_lock_take(&place->lock);
    /* A parent's engine stays as it is: its thread and connections are not here. */
    if (!place->http || place->http->generation != sqrl_fork_generation())
        rc = make(context, &place->http, err);
    if (rc == SQRL_OK)
        *out = place->http;
    sqrl_lock_drop(&place->lock);
    return rc;
}

void sqrl_http_release(struct sqrl_http *http) {
    if (!http || http->generation != sqrl_fork_generation())
        return;
    delist(http);
    stop(http);
    leave(http);
}

/* --- for those who submit --- */

void sqrl_http_submit(struct sqrl_http *http, struct sqrl_transfer *t) {
    t->done = t->abandoned = t->announced = t->new_connection = false;
    t->got = t->first_byte_ns = t->started_ns = 0;
    t->status = 0;
    *t->message = 0;
    pthread_mutex_lock(&http->lock);
    bool over = http->stop;
    if (over) {
        t->end = SQRL_NET_CANCELLED;
        t->done = true;
        t->next = t->waiter->done;
        t->waiter->done = t;
    } else {
        put_last(&http->submitted, t);
        sqrl_curl_wake(http->curl);
    }
    pthread_mutex_unlock(&http->lock);
}

void sqrl_http_abandon(struct sqrl_http *http, struct sqrl_transfer *t) {
    pthread_mutex_lock(&http->lock);
    if (!t->done) {
        __atomic_store_n(&t->abandoned, true, __ATOMIC_RELAXED);
        http->abandoned = true;
        if (!http->over)
            sqrl_curl_wake(http->curl);
    }
    pthread_mutex_unlock(&http->lock);
}

struct sqrl_transfer *sqrl_http_next_done(struct sqrl_http *http,
                                          struct sqrl_http_waiter *waiter,
                                          uint64_t until_ns) {
    struct timespec t = {(time_t)(until_ns / SECOND), (long)(until_ns % SECOND)};
    int rc = 0;
    pthread_mutex_lock(&http->lock);
    while (!waiter->done && rc == 0)
        rc = until_ns ? pthread_cond_timedwait(&waiter->any, &http->lock, &t)
                      : pthread_cond_wait(&waiter->any, &http->lock);
    struct sqrl_transfer *done = waiter->done;
    if (done)
        waiter->done = done->next;
    pthread_mutex_unlock(&http->lock);
    return done;
}

struct sqrl_lane_view sqrl_http_lane(struct sqrl_http *http, const char *url) {
    struct sqrl_lane_view view = {0};
    struct sqrl_origin origin;
    if (!sqrl_curl_origin(url, &origin))
        return view;
    pthread_mutex_lock(&http->lock);
    const struct sqrl_lane *lane = find_lane(http, &origin);
    if (lane)
        view =
            (struct sqrl_lane_view){lane->first_byte_ns, lane->mebibyte_ns, lane->proven};
    pthread_mutex_unlock(&http->lock);
    free(origin.host);
    return view;
}

void sqrl_http_slow_down(struct sqrl_http *http, const struct sqrl_transfer *t) {
    struct sqrl_lane *lane = t->lane;
    uint64_t now = sqrl_now_ns();
    pthread_mutex_lock(&http->lock);
    if (lane && now - lane->slowed_ns > SECOND) {
        lane->slowed_ns = now;
        lane->limit = lane->before = SQRL_MAX(lane->limit * 3 / 4, LEAST_LIMIT);
        lane->hold = HOLD_WINDOWS;
    }
    pthread_mutex_unlock(&http->lock);
}

void sqrl_http_set_idle(struct sqrl_http *http, uint64_t ns) {
    __atomic_store_n(&http->idle_ns, ns, __ATOMIC_RELAXED);
    pthread_mutex_lock(&http->lock);
    if (!http->over)
        sqrl_curl_wake(http->curl);
    pthread_mutex_unlock(&http->lock);
}

bool sqrl_http_may_hedge(struct sqrl_http *http, const struct sqrl_http_policy *policy) {
    pthread_mutex_lock(&http->lock);
    bool may = (http->hedges + 1) * 50 < http->requests;
    if (may) {
        http->hedges++;
        count(http, SQRL_COUNT_HTTP_HEDGES, OWN(policy, hedges), 1);
    }
    pthread_mutex_unlock(&http->lock);
    return may;
}

void sqrl_http_waiter_init(struct sqrl_http_waiter *waiter) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter->any, &clock);
    pthread_condattr_destroy(&clock);
    waiter->done = NULL;
}

void sqrl_http_note_retry(struct sqrl_http *http, const struct sqrl_http_policy *policy,
                          const char *url, const char *why, uint64_t delay_ns) {
    char *clean = sqrl_http_url_clean(url, NULL);
    pthread_mutex_lock(&http->lock);
    struct sqrl_context *context = http->context;
    count(http, SQRL_COUNT_HTTP_RETRIES, OWN(policy, retries), 1);
    pthread_mutex_unlock(&http->lock);
    if (context) { /* whoever makes requests keeps it alive */
        sqrl_count(context, SQRL_COUNT_RETRIES, 1);
        sqrl_log(context, SQRL_LOG_INFO, "%s: %s; trying again in %u ms",
                 clean ? clean : "a request", why, (unsigned)(delay_ns / MS));
    }
    free(clean);
}
