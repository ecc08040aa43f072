/* call.c - calls of the library that may take long, on a thread of their own.
 *
 * Python handles signals on its main thread only, between two steps of it. So the caller
 * waits in slices and looks at signals; when a handler raises, it asks the call to stop
 * and leaves it behind. The thread ends as soon as the library notices, at worst when a
 * file system gives up by itself, and then frees what the call held. */
#include "ext.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

enum { SLICE_NS = 50000000 };

static void call_leave(struct ext_call *call) {
    pthread_mutex_lock(&call->mutex);
    bool last = --call->shares == 0;
    pthread_mutex_unlock(&call->mutex);
    if (!last)
        return;
    pthread_cond_destroy(&call->finished);
    pthread_mutex_destroy(&call->mutex);
    call->drop(call);
}

static void *call_thread(void *arg) {
    struct ext_call *call = arg;
    call->run(call);
    pthread_mutex_lock(&call->mutex);
    call->done = true;
    pthread_cond_signal(&call->finished);
    pthread_mutex_unlock(&call->mutex);
    call_leave(call);
    return NULL;
}

static int call_start(struct ext_call *call) {
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int failed = pthread_attr_init(&attr);
    if (failed)
        return failed;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals go to the program's own threads, */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]); /* but for those that a thread raises itself */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attr, call_thread, call);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return failed;
}

/* Whether it has come to its end, after a slice of waiting at most. */
static bool call_wait(struct ext_call *call) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SLICE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int rc = 0;
    pthread_mutex_lock(&call->mutex);
    while (!call->done && rc == 0)
        rc = pthread_cond_timedwait(&call->finished, &call->mutex, &until);
    bool done = call->done;
    pthread_mutex_unlock(&call->mutex);
    return done;
}

static void call_init(struct ext_call *call) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&call->finished, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&call->mutex, NULL);
    call->shares = 2;
}

int ext_call(struct ext_state *state, struct ext_call *call, bool quick) {
    call_init(call);
    bool done = false, raised = false, started = false;
    Py_BEGIN_ALLOW_THREADS
    started = !quick && call_start(call) == 0;
    if (!started) { /* without a thread it is not to be interrupted, but runs */
        call->run(call);
        call->shares = 1;
        done = true;
    }
    Py_END_ALLOW_THREADS
    while (!done && !raised) {
        Py_BEGIN_ALLOW_THREADS
        done = call_wait(call);
        Py_END_ALLOW_THREADS
        raised = ext_signals(state) < 0;
    }
    if (!raised)
        return 0;
    sqrl_cancel_request(&call->cancel);
    call_leave(call);
    return -1;
}

void ext_call_end(struct ext_call *call) {
    call_leave(call);
}
