/* fork.c - the fork generation, and mutexes that survive a fork.
 *
 * A child has one thread: the one that called fork. A mutex that another thread held at
 * that moment stays locked for ever in the child, so each sqrl_lock is made anew on its
 * first take in a new generation. Several threads of the child may come there at once:
 * they are ordered by `renewal`, which the fork handler itself makes anew while the child
 * has still one thread. fork() must not be called by a thread that holds a sqrl_lock. */
#include "base.h"

static uint32_t generation;
static pthread_mutex_t renewal = PTHREAD_MUTEX_INITIALIZER;

static void after_fork_in_child(void) {
    pthread_mutex_init(&renewal, NULL);
    __atomic_fetch_add(&generation, 1, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void watch_forks(void) {
    /* It fails only when the process has no memory at its start; nothing could be told
     * then. */
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

uint32_t sqrl_fork_generation(void) {
    return __atomic_load_n(&generation, __ATOMIC_RELAXED);
}

void sqrl_lock_init(struct sqrl_lock *lock) {
    pthread_mutex_init(&lock->mutex, NULL);
    lock->generation = sqrl_fork_generation();
    lock->fresh = 0;
}

static void renew(struct sqrl_lock *lock, uint32_t now) {
    pthread_mutex_lock(&renewal);
    if (__atomic_load_n(&lock->generation, __ATOMIC_RELAXED) != now) {
        pthread_mutex_init(&lock->mutex, NULL);
        lock->fresh = 1;
        __atomic_store_n(&lock->generation, now, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&renewal);
}

bool sqrl_lock_take(struct sqrl_lock *lock) {
    uint32_t now = sqrl_fork_generation();
    if (SQRL_UNLIKELY(__atomic_load_n(&lock->generation, __ATOMIC_ACQUIRE) != now))
        renew(lock, now);
    pthread_mutex_lock(&lock->mutex);
    bool fresh = lock->fresh != 0;
    lock->fresh = 0;
    return fresh;
}

void sqrl_lock_drop(struct sqrl_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}

void sqrl_lock_reset(struct sqrl_lock *lock) {
    /* A mutex of an older generation may look held: it is not destroyed, which is
     * undefined. */
    if (__atomic_load_n(&lock->generation, __ATOMIC_ACQUIRE) == sqrl_fork_generation())
        pthread_mutex_destroy(&lock->mutex);
}
