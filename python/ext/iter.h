/* iter.h - what the files iter_*.c share: the iterator above, a gate for threads, and
 * random numbers that CPython and NumPy draw too.
 */
#ifndef SQRL_EXT_ITER_H
#define SQRL_EXT_ITER_H

#include "ext.h"

#include <pthread.h>

#pragma GCC visibility push(hidden)

/* --- the iterator that items come from --- */

struct iter_above {
    PyObject *object; /* owned; NULL when it ended or was closed */
    iternextfunc next;
};

/* Takes a reference to `object`; -1 with a TypeError when it is no iterator. */
int iter_above_init(struct iter_above *above, PyObject *object);

/* The next item; NULL at the end or with an exception. */
static inline PyObject *iter_above_next(struct iter_above *above) {
    PyObject *object = above->object;
    if (EXT_UNLIKELY(object == NULL))
        return NULL;
    Py_INCREF(object); /* another thread may close the stream meanwhile */
    PyObject *item = above->next(object);
    Py_DECREF(object);
    return item;
}

/* To be called when there was no next item: lets go of the iterator. True at its end (a
 * StopIteration that Python code raised is kept in *end, since a callback's is an error
 * that somebody above has to see), false when an exception is set. */
bool iter_above_end(struct iter_above *above, PyObject **end);
/* Raises what iter_above_end() kept, if anything; always NULL. */
PyObject *iter_raise_end(PyObject **end);
/* The exception that is set as a normalized object with its traceback (a new reference);
 * none is set afterwards. */
PyObject *iter_take_exception(void);
/* Sets such an exception again; steals the reference. */
void iter_set_exception(PyObject *value);

/* --- one thread at a time --- */

/* Guarded by the GIL; mutex and condition serve those who wait without it. Upstream code
 * may release the GIL in the middle of a next(): other threads then wait here. */
struct iter_gate {
    bool busy;
    unsigned long owner;
    unsigned waiting;
    uint64_t turns; /* under mutex */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
};

void iter_gate_init(struct iter_gate *gate);
void iter_gate_reset(struct iter_gate *gate);
int iter_gate_wait(struct iter_gate *gate);
void iter_gate_wake(struct iter_gate *gate);
/* Waits for at most `milliseconds` on a condition whose mutex is held. */
void iter_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, long milliseconds);

/* 0, or -1 with an exception: a signal, or the same thread is inside already. */
static inline int iter_gate_enter(struct iter_gate *gate) {
    if (EXT_UNLIKELY(gate->busy))
        return iter_gate_wait(gate);
    gate->busy = true;
    gate->owner = PyThread_get_thread_ident();
    return 0;
}

static inline void iter_gate_leave(struct iter_gate *gate) {
    gate->busy = false;
    if (EXT_UNLIKELY(gate->waiting > 0))
        iter_gate_wake(gate);
}

/* --- random numbers --- */

/* MT19937 as random.Random and numpy.random.RandomState hold it. */
struct iter_twister {
    uint32_t key[624];
    uint32_t position; /* 0 to 624 */
};

uint32_t iter_twister_next(struct iter_twister *twister);
/* random.Random.randint(0, n - 1) for 1 <= n < 2^32. */
uint32_t iter_twister_below(struct iter_twister *twister, uint32_t n);
/* The state inside a squirrel._native.MersenneTwister; NULL when `object` is none. */
struct iter_twister *iter_twister_of(struct ext_state *state, PyObject *object);

#pragma GCC visibility pop
#endif
