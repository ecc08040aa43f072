/* iter.c - the iterator above a stage, and the gate that lets threads share an iterator.
 */
#include "iter.h"

#include <time.h>

int iter_above_init(struct iter_above *above, PyObject *object) {
    if (!PyIter_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "an iterator is needed");
        return -1;
    }
    Py_INCREF(object);
    above->object = object;
    above->next = (iternextfunc)PyType_GetSlot(Py_TYPE(object), Py_tp_iternext);
    return 0;
}

PyObject *iter_take_exception(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

void iter_set_exception(PyObject *value) {
    PyObject *type = (PyObject *)Py_TYPE(value);
    Py_INCREF(type);
    PyErr_Restore(type, value, PyException_GetTraceback(value));
}

bool iter_above_end(struct iter_above *above, PyObject **end) {
    PyObject *error = PyErr_Occurred() != NULL ? iter_take_exception() : NULL;
    Py_CLEAR(above->object);
    if (error == NULL)
        return true;
    if (!PyErr_GivenExceptionMatches(error, PyExc_StopIteration)) {
        iter_set_exception(error);
        return false;
    }
    Py_XDECREF(*end);
    *end = error;
    return true;
}

PyObject *iter_raise_end(PyObject **end) {
    PyObject *error = *end;
    *end = NULL;
    if (error != NULL)
        iter_set_exception(error);
    return NULL;
}

void iter_gate_init(struct iter_gate *gate) {
    pthread_condattr_t attributes;
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&gate->cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

void iter_gate_reset(struct iter_gate *gate) {
    pthread_cond_destroy(&gate->cond);
    pthread_mutex_destroy(&gate->mutex);
}

void iter_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(cond, mutex, &until);
}

int iter_gate_wait(struct iter_gate *gate) {
    if (gate->owner == PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the iterator is running in this very thread: a callback of a "
                        "stream can't take items of the same pass");
        return -1;
    }
    gate->waiting++;
    while (gate->busy) {
        pthread_mutex_lock(&gate->mutex);
        uint64_t turns = gate->turns;
        pthread_mutex_unlock(&gate->mutex);
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&gate->mutex);
        if (gate->turns == turns)
            iter_wait_ms(&gate->cond, &gate->mutex, 100);
        pthread_mutex_unlock(&gate->mutex);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0) {
            gate->waiting--;
            return -1;
        }
    }
    gate->waiting--;
    gate->busy = true;
    gate->owner = PyThread_get_thread_ident();
    return 0;
}

void iter_gate_wake(struct iter_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->turns++;
    pthread_cond_signal(&gate->cond);
    pthread_mutex_unlock(&gate->mutex);
}
