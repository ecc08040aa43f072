/* pool.c - threads that run tasks in the order of submission.
 *
 * The pool is shared by its owner (the context) and its threads; whoever leaves last
 * frees it. Threads are detached and hold no reference to the context, so the last
 * release of a context may happen on one of them and nothing is ever joined. Tasks that
 * are still queued when the owner leaves are run first, since somebody waits for them.
 * After a fork the threads are gone and the mutex may be held by one of them: the child
 * leaves the old pool alone (its few hundred bytes are lost on purpose) and its context
 * makes another. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "inner.h"

struct sqrl_pool {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct sqrl_task *head;
    struct sqrl_task **tail;
    unsigned threads; /* fixed once the pool is handed out */
    unsigned named;   /* threads that have taken their number */
    unsigned idle;
    unsigned shares; /* threads, and the owner while it is there */
    bool stopped;
    const char *name;
    uint32_t generation;
};

static void leave(struct sqrl_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    bool last = --pool->shares == 0;
    pthread_mutex_unlock(&pool->mutex);
    if (!last)
        return;
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

static struct sqrl_task *next_task(struct sqrl_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    while (pool->head == NULL && !pool->stopped) {
        pool->idle++;
        pthread_cond_wait(&pool->wake, &pool->mutex);
        pool->idle--;
    }
    struct sqrl_task *task = pool->head;
    if (task != NULL) {
        pool->head = task->next;
        if (pool->head == NULL)
            pool->tail = &pool->head;
    }
    pthread_mutex_unlock(&pool->mutex);
    return task;
}

static void name_thread(struct sqrl_pool *pool) {
    char name[16]; /* the kernel's limit */
    pthread_mutex_lock(&pool->mutex);
    unsigned number = pool->named++;
    pthread_mutex_unlock(&pool->mutex);
    snprintf(name, sizeof name, "sqrl-%.3s-%u", pool->name, number % 1000000);
    pthread_setname_np(pthread_self(), name);
}

static void *run_tasks(void *arg) {
    struct sqrl_pool *pool = arg;
    name_thread(pool);
    struct sqrl_task *task;
    while ((task = next_task(pool)) != NULL) {
        task->next = NULL;
        task->run(task);
    }
    leave(pool);
    return NULL;
}

/* Signals go to the program's own threads. Those that a fault of the running thread
 * itself raises stay open: blocked, they would end the process without a word. */
void sqrl_block_signals(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    for (size_t i = 0; i < SQRL_COUNT_OF(faults); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static int start_threads(struct sqrl_pool *pool, unsigned threads) {
    pthread_attr_t attr;
    int failed = pthread_attr_init(&attr);
    if (failed != 0)
        return failed;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigset_t before;
    sqrl_block_signals(&before);
    /* The lock keeps the started ones from seeing `shares` change under them. */
    pthread_mutex_lock(&pool->mutex);
    while (pool->threads < threads && failed == 0) {
        pthread_t thread;
        failed = sqrl_allocation_fails()
                     ? EAGAIN
                     : pthread_create(&thread, &attr, run_tasks, pool);
        if (failed == 0) {
            pool->threads++;
            pool->shares++;
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return failed;
}

struct sqrl_pool *sqrl_pool_new(unsigned threads, const char *name,
                                struct sqrl_error *err) {
    struct sqrl_pool *pool = sqrl_calloc(1, sizeof *pool, "a thread pool", err);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->tail = &pool->head;
    pool->shares = 1;
    pool->name = name;
    pool->generation = sqrl_fork_generation();
    int failed = start_threads(pool, threads);
    if (pool->threads > 0)
        return pool; /* fewer than wished are enough to go on */
    sqrl_error_set_errno(err, failed, "can't start a thread");
    leave(pool);
    return NULL;
}

void sqrl_pool_release(struct sqrl_pool *pool) {
    if (pool == NULL || pool->generation != sqrl_fork_generation())
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->stopped = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    leave(pool);
}

void sqrl_pool_submit(struct sqrl_pool *pool, struct sqrl_task *task) {
    task->next = NULL;
    pthread_mutex_lock(&pool->mutex);
    *pool->tail = task;
    pool->tail = &task->next;
    if (pool->idle > 0)
        pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

unsigned sqrl_pool_threads(const struct sqrl_pool *pool) {
    return pool->threads;
}

uint32_t sqrl_pool_generation(const struct sqrl_pool *pool) {
    return pool->generation;
}
