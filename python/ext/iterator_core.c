/* iterator_core.c - running plans, under Samples and Batches.
 *
 * For what comes next the core's lock is taken (it may be held by another Python thread
 * that waits without the GIL), and the library is waited for in slices, so that Ctrl-C is
 * seen. close() from another thread only cancels while a thread is inside; that one
 * closes.
 *
 * After a fork the child's copy refuses: its threads are gone.
 */
#include "iterator.h"

#include <stdlib.h>
#include <time.h>

#define WAIT_SLICE_NS 50000000u
#define SWITCH_NS 5000000u /* the interpreter's own switch interval */

int core_open(struct ext_state *state, struct core *core, struct sqrl_plan *plan,
              const struct sqrl_iterator_options *options) {
    struct sqrl_error err;
    int rc;
    core->lock = PyThread_allocate_lock();
    if (core->lock == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    core->fork = state->forks;
    core->plan = sqrl_plan_ref(plan);
    core->source = sqrl_plan_get_source(plan);
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_iterator_start(plan, options, &core->iterator, &err);
    Py_END_ALLOW_THREADS
    if (rc == SQRL_OK)
        return 0;
    core->closed = true;
    ext_raise(state, &err);
    return -1;
}

static void core_shut(struct core *core) {
    struct sqrl_iterator *iterator = core->iterator;
    core->iterator = NULL;
    core->closed = true;
    Py_BEGIN_ALLOW_THREADS
    sqrl_iterator_close(iterator);
    Py_END_ALLOW_THREADS
}

void core_close(struct core *core) {
    if (core->iterator == NULL)
        return;
    core->closed = true;
    sqrl_iterator_cancel(core->iterator);
    if (!core->inside)
        core_shut(core);
}

void core_free(struct core *core) {
    core_close(core);
    sqrl_plan_unref(core->plan);
    if (core->lock != NULL)
        PyThread_free_lock(core->lock);
}

int core_enter(struct ext_state *state, struct core *core) {
    if (core->fork != state->forks) {
        ext_raise_code(
            state, SQRL_E_STATE,
            "this iterator was started before a fork: start a new one from the "
            "stream in this process");
        return -1;
    }
    int taken = PyThread_acquire_lock(core->lock, NOWAIT_LOCK);
    while (!taken) {
        Py_BEGIN_ALLOW_THREADS
        taken = PyThread_acquire_lock_timed(core->lock, WAIT_SLICE_NS / 1000, 0) ==
                PY_LOCK_ACQUIRED;
        Py_END_ALLOW_THREADS
        if (ext_signals(state) < 0) {
            if (taken)
                PyThread_release_lock(core->lock);
            return -1;
        }
    }
    if (core->closed) {
        PyThread_release_lock(core->lock);
        return 0;
    }
    core->inside = true;
    return 1;
}

void core_leave(struct core *core) {
    core->inside = false;
    if (core->closed && core->iterator != NULL)
        core_shut(core);
    PyThread_release_lock(core->lock);
}

int ext_wait(struct ext_state *state, struct sqrl_iterator *iterator) {
    for (;;) {
        bool ready;
        Py_BEGIN_ALLOW_THREADS
        ready = sqrl_iterator_wait(iterator, WAIT_SLICE_NS);
        Py_END_ALLOW_THREADS
        if (ext_signals(state) < 0)
            return -1;
        if (ready)
            return 0;
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns when next() will not block. Data that are there already are taken without
 * giving up the GIL, which other threads would keep for a whole switch interval, but no
 * longer than one: list(iterator) runs no bytecode that would give it up. */
int core_wait(struct ext_state *state, struct core *core) {
    if (core->released_ns != 0 && now_ns() - core->released_ns < SWITCH_NS &&
        sqrl_iterator_wait(core->iterator, 0))
        return PyErr_CheckSignals();
    int rc = ext_wait(state, core->iterator);
    core->released_ns = now_ns();
    return rc;
}

PyObject *core_stats(struct core *core) {
    struct sqrl_stage_stats stats[16];
    PyObject *list = PyList_New(0);
    if (list == NULL || core->iterator == NULL)
        return list;
    size_t count = sqrl_iterator_stats(core->iterator, stats, 16);
    for (size_t i = 0; i < count && i < 16; i++) {
        PyObject *item = Py_BuildValue("{s:s,s:K,s:K,s:d,s:d,s:d}", "name", stats[i].name,
                                       "items", (unsigned long long)stats[i].items,
                                       "bytes", (unsigned long long)stats[i].bytes,
                                       "busy_seconds", (double)stats[i].busy_ns * 1e-9,
                                       "wait_seconds", (double)stats[i].wait_ns * 1e-9,
                                       "wait_share", stats[i].wait_share);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_XDECREF(item);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(item);
    }
    return list;
}

PyObject *core_bad(struct core *core) {
    PyObject *list = PyList_New(0);
    struct sqrl_bad *bad = malloc(sizeof *bad);
    if (bad == NULL) {
        Py_XDECREF(list);
        return PyErr_NoMemory();
    }
    size_t count =
        core->iterator == NULL ? 0 : sqrl_iterator_bad(core->iterator, NULL, 0, 0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        sqrl_iterator_bad(core->iterator, bad, i, 1);
        PyObject *item = ext_bad(core->source, bad);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    free(bad);
    return list;
}

PyObject *core_place(struct core *core, uint64_t delivered, uint64_t shard,
                     uint64_t sample) {
    if (delivered == 0)
        Py_RETURN_NONE;
    const struct sqrl_shard *file = sqrl_source_shard(core->source, shard);
    return Py_BuildValue("(NN)",
                         file == NULL ? PyUnicode_FromString("?")
                                      : PyUnicode_DecodeFSDefault(file->path),
                         sample == SQRL_UNKNOWN ? Py_NewRef(Py_None)
                                                : PyLong_FromUnsignedLongLong(sample));
}

/* --- states --- */

int ext_states_of(PyObject *sequence, const char ***states,
                  struct sqrl_iterator_options *options) {
    if (!PyTuple_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "states must be a tuple of str");
        return -1;
    }
    size_t count = (size_t)PyTuple_Size(sequence);
    *states = calloc(count + 1, sizeof **states);
    if (*states == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *text = PyTuple_GetItem(sequence, (Py_ssize_t)i);
        (*states)[i] = PyUnicode_AsUTF8AndSize(text, NULL);
        if ((*states)[i] == NULL) {
            free(*states);
            *states = NULL;
            return -1;
        }
    }
    options->state = *states;
    options->states = count;
    return 0;
}

/* squirrel._state.NAME(argument) */
static PyObject *call_state(const char *name, PyObject *argument) {
    PyObject *module = PyImport_ImportModule("squirrel._state"), *result = NULL;
    if (module != NULL && argument != NULL)
        result = PyObject_CallMethod(module, name, "O", argument);
    Py_XDECREF(module);
    return result;
}

PyObject *core_state(struct ext_state *state, struct core *core, uint64_t unread,
                     uint64_t rows) {
    struct sqrl_error err;
    char *text = NULL;
    int rc = rows == SQRL_UNKNOWN
                 ? sqrl_iterator_state(core->iterator, unread, &text, &err)
                 : sqrl_iterator_state_in_batch(core->iterator, rows, &text, &err);
    if (rc != SQRL_OK)
        return ext_raise(state, &err);
    PyObject *string = PyUnicode_FromString(text);
    free(text);
    PyObject *dict = call_state("loads", string);
    Py_XDECREF(string);
    return dict;
}

int core_load(struct ext_state *state, struct core *core, PyObject *states) {
    struct sqrl_iterator_options options = {.size = sizeof options};
    struct sqrl_iterator *fresh = NULL;
    struct sqrl_error err;
    const char **list = NULL;
    PyObject *texts = call_state("texts", states);
    if (texts == NULL || ext_states_of(texts, &list, &options) < 0) {
        Py_XDECREF(texts);
        return -1;
    }
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_iterator_start(core->plan, &options, &fresh, &err);
    Py_END_ALLOW_THREADS
    free(list);
    Py_DECREF(texts);
    if (rc != SQRL_OK) {
        ext_raise(state, &err);
        return -1;
    }
    struct sqrl_iterator *old = core->iterator;
    core->iterator = fresh;
    Py_BEGIN_ALLOW_THREADS
    sqrl_iterator_close(old);
    Py_END_ALLOW_THREADS
    return 0;
}

int core_enter_open(struct ext_state *state, struct core *core) {
    int rc = core_enter(state, core);
    if (rc == 0)
        ext_raise_code(state, SQRL_E_STATE, "this iterator was closed");
    return rc > 0 ? 0 : -1;
}
