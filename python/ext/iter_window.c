/* iter_window.c - squirrel._native.Window and Ordered: a callable over many items at a
 * time, in threads of an executor, results in the order of the items.
 *
 * A window is a ring of slots, numbered without end: head <= claim <= tail. The consumer
 * (Ordered.next) fills at `tail` and takes results at `head`; workers (Window.work, run
 * by the executor's threads) claim slots in between. All of that happens under the GIL,
 * so that there is no lock an item; mutex and condition only serve those who sleep. A
 * worker with nothing to claim lingers for a moment before it hands its thread back, and
 * each claim wakes or starts at most one more: callbacks that wait get all threads soon,
 * while callbacks that compute keep one thread, which needs no switch between items.
 *
 * The consumer holds the window, workers too, but nothing holds the consumer: an iterator
 * that is dropped closes its window, and its workers end behind the item they are at.
 */
#include "iter.h"

#include <stdlib.h>
#include <time.h>

#define LINGER_MS 50

enum slot_state { SLOT_WAITS, SLOT_RUNS, SLOT_DONE, SLOT_FAILED };

struct slot {
    PyObject *value; /* owned: the item, then the result or the exception */
    PyObject *place; /* owned or NULL: what the consumer said about the item */
    enum slot_state state;
};

struct window {
    PyObject_HEAD PyObject *function, *spawn; /* owned */
    struct slot *ring;                        /* owned [capacity] */
    size_t capacity;
    uint64_t head, claim, tail;
    unsigned workers, most_workers; /* running or spawned */
    unsigned idle, waking; /* lingering; of those, woken or spawned and not at work yet */
    bool closed, awaited;  /* awaited: the consumer sleeps until `head` is done */
    uint64_t calls, answers; /* under mutex: what sleepers compare */
    pthread_mutex_t mutex;
    pthread_cond_t call, answer; /* to workers; to the consumer */
};

static struct slot *slot_at(struct window *self, uint64_t number) {
    return &self->ring[number % self->capacity];
}

static PyObject *window_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"function", "capacity", "workers", NULL};
    PyObject *function;
    Py_ssize_t capacity;
    unsigned int workers;
    pthread_condattr_t attributes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnI:Window", keys, &function,
                                     &capacity, &workers))
        return NULL;
    if (capacity < 1 || capacity > 1 << 24 || workers < 1)
        return PyErr_Format(PyExc_ValueError,
                            "a window holds 1 to 16777216 items, not %zd", capacity);
    struct window *self = (struct window *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self->call, &attributes);
    pthread_cond_init(&self->answer, &attributes);
    pthread_condattr_destroy(&attributes);
    self->function = Py_NewRef(function);
    self->capacity = (size_t)capacity;
    self->most_workers = workers;
    self->ring = calloc(self->capacity, sizeof *self->ring);
    if (self->ring != NULL)
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static int window_traverse(PyObject *op, visitproc visit, void *arg) {
    struct window *self = (struct window *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->function);
    Py_VISIT(self->spawn);
    for (uint64_t i = self->head; self->ring != NULL && i < self->tail; i++)
        Py_VISIT(slot_at(self, i)->value);
    return 0;
}

/* Forgets what was not begun and what nobody took; what runs stores into its slot no
 * more. */
static int window_clear(PyObject *op) {
    struct window *self = (struct window *)op;
    self->closed = true;
    while (self->ring != NULL && self->head < self->tail) {
        struct slot *slot = slot_at(self, self->head++);
        Py_CLEAR(slot->value);
        Py_CLEAR(slot->place);
    }
    self->claim = self->tail;
    Py_CLEAR(self->spawn);
    return 0;
}

static void window_dealloc(PyObject *op) {
    struct window *self = (struct window *)op;
    PyObject_GC_UnTrack(op);
    window_clear(op);
    Py_CLEAR(self->function);
    free(self->ring);
    pthread_cond_destroy(&self->answer);
    pthread_cond_destroy(&self->call);
    pthread_mutex_destroy(&self->mutex);
    ext_free(op);
}

/* --- waking --- */

static void wake(struct window *self, pthread_cond_t *cond, uint64_t *count, bool all) {
    pthread_mutex_lock(&self->mutex);
    ++*count;
    if (all)
        pthread_cond_broadcast(cond);
    else
        pthread_cond_signal(cond);
    pthread_mutex_unlock(&self->mutex);
}

/* Sleeps without the GIL until *count moves on or the time is over. */
static void sleep_until(struct window *self, pthread_cond_t *cond, uint64_t *count,
                        long ms) {
    pthread_mutex_lock(&self->mutex);
    uint64_t before = *count;
    pthread_mutex_unlock(&self->mutex);
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->mutex);
    if (*count == before)
        iter_wait_ms(cond, &self->mutex, ms);
    pthread_mutex_unlock(&self->mutex);
    Py_END_ALLOW_THREADS
}

/* One more worker for items that nobody claimed, unless one is on its way. */
static int window_call(struct window *self) {
    if (self->claim == self->tail || self->waking > 0 || self->closed)
        return 0;
    if (self->idle > 0) {
        self->waking++;
        wake(self, &self->call, &self->calls, false);
        return 0;
    }
    if (self->workers >= self->most_workers || self->spawn == NULL)
        return 0;
    self->workers++;
    self->waking++;
    PyObject *spawn = Py_NewRef(self->spawn);
    PyObject *done = PyObject_CallFunctionObjArgs(spawn, NULL);
    Py_DECREF(spawn);
    if (done == NULL) {
        self->workers--;
        self->waking--;
        return -1;
    }
    Py_DECREF(done);
    return 0;
}

/* --- workers --- */

/* Works at the next unclaimed slot. */
static void window_step(struct window *self) {
    uint64_t number = self->claim++;
    struct slot *slot = slot_at(self, number);
    PyObject *item = slot->value;
    slot->value = NULL;
    slot->state = SLOT_RUNS;
    if (window_call(self) < 0) {
        /* As while the interpreter ends. The work goes on with the threads that are
         * there. */
        PyErr_Clear();
        self->most_workers = self->workers;
    }
    PyObject *result = PyObject_CallFunctionObjArgs(self->function, item, NULL);
    Py_DECREF(item);
    bool failed = result == NULL;
    if (failed)
        result = iter_take_exception();
    if (self->closed || number < self->head) {
        Py_DECREF(result);
        return;
    }
    slot->value = result;
    slot->state = failed ? SLOT_FAILED : SLOT_DONE;
    if (self->awaited && number == self->head) {
        self->awaited = false;
        wake(self, &self->answer, &self->answers, false);
    }
}

static PyObject *window_work(PyObject *op, PyObject *unused) {
    struct window *self = (struct window *)op;
    if (self->waking > 0)
        self->waking--;
    while (!self->closed) {
        if (self->claim < self->tail) {
            window_step(self);
            continue;
        }
        self->idle++;
        sleep_until(self, &self->call, &self->calls, LINGER_MS);
        self->idle--;
        bool called = self->waking > 0;
        if (called)
            self->waking--;
        if (!called && self->claim == self->tail)
            break;
    }
    self->workers--;
    Py_RETURN_NONE;
}

static PyObject *window_close(PyObject *op, PyObject *unused) {
    struct window *self = (struct window *)op;
    window_clear(op);
    wake(self, &self->call, &self->calls, true);
    wake(self, &self->answer, &self->answers, true);
    Py_RETURN_NONE;
}

static PyObject *window_start(PyObject *op, PyObject *spawn) {
    struct window *self = (struct window *)op;
    Py_XDECREF(self->spawn);
    self->spawn = Py_NewRef(spawn);
    Py_RETURN_NONE;
}

static PyMethodDef window_methods[] = {
    {"work", window_work, METH_NOARGS,
     "work($self, /)\n--\n\nWorks until nothing is left; for an executor's thread."},
    {"start", window_start, METH_O,
     "start($self, spawn, /)\n--\n\nHow to have one more thread call work()."},
    {"close", window_close, METH_NOARGS,
     "close($self, /)\n--\n\nForgets all; workers end."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot window_slots[] = {
    {Py_tp_new, window_new},
    {Py_tp_dealloc, window_dealloc},
    {Py_tp_traverse, window_traverse},
    {Py_tp_clear, window_clear},
    {Py_tp_doc,
     "Window(function, capacity, workers)\n--\n\n"
     "At most `capacity` items that wait, run or are done, on `workers` threads."},
    {Py_tp_methods, window_methods},
    {0, NULL}};
PyType_Spec ext_window_spec = {.name = "squirrel._native.Window",
                               .basicsize = sizeof(struct window),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                               .slots = window_slots};

/* --- the consumer --- */

struct ordered {
    PyObject_HEAD struct iter_above above;
    struct iter_gate gate;
    struct window *window; /* owned */
    PyObject *place,
        *note; /* owned or NULL: where an item comes from; told of failures */
    unsigned forks;
    PyObject *failure; /* owned or NULL: of the iterator above, to raise at its turn */
};

static PyObject *ordered_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"iterator", "window", "place", "note", NULL};
    struct ext_state *state = PyType_GetModuleState(type);
    PyObject *iterator, *window, *place, *note;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO:Ordered", keys, &iterator,
                                     &window, &place, &note))
        return NULL;
    if (Py_TYPE(window) != state->type[EXT_WINDOW]) {
        PyErr_SetString(PyExc_TypeError, "Ordered needs a Window");
        return NULL;
    }
    struct ordered *self = (struct ordered *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    iter_gate_init(&self->gate);
    self->forks = state->forks;
    self->window = (struct window *)Py_NewRef(window);
    self->place = place != Py_None ? Py_NewRef(place) : NULL;
    self->note = Py_NewRef(note);
    if (iter_above_init(&self->above, iterator) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int ordered_traverse(PyObject *op, visitproc visit, void *arg) {
    struct ordered *self = (struct ordered *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->above.object);
    Py_VISIT(self->window);
    Py_VISIT(self->place);
    Py_VISIT(self->note);
    Py_VISIT(self->failure);
    return 0;
}

static int ordered_clear(PyObject *op) {
    struct ordered *self = (struct ordered *)op;
    if (self->window != NULL) {
        PyObject *done = window_close((PyObject *)self->window, NULL);
        Py_XDECREF(done);
    }
    Py_CLEAR(self->window);
    Py_CLEAR(self->above.object);
    Py_CLEAR(self->place);
    Py_CLEAR(self->note);
    Py_CLEAR(self->failure);
    return 0;
}

static void ordered_dealloc(PyObject *op) {
    struct ordered *self = (struct ordered *)op;
    PyObject_GC_UnTrack(op);
    ordered_clear(op);
    iter_gate_reset(&self->gate);
    ext_free(op);
}

/* Takes items from above until the window is full. An error there takes its place behind
 * what was good before it. */
static int ordered_fill(struct ordered *self, struct window *window) {
    while (self->above.object != NULL && !window->closed &&
           window->tail - window->head < window->capacity) {
        PyObject *item = iter_above_next(&self->above), *place = NULL;
        if (item != NULL && self->place != NULL) {
            place = PyObject_CallFunctionObjArgs(self->place, NULL);
            if (place == NULL)
                PyErr_Clear();
        }
        if (item == NULL) {
            if (!iter_above_end(&self->above, &self->failure))
                self->failure = iter_take_exception();
            break;
        }
        if (window->closed) {
            Py_DECREF(item);
            Py_XDECREF(place);
            break;
        }
        struct slot *slot = slot_at(window, window->tail);
        *slot = (struct slot){.value = item, .place = place, .state = SLOT_WAITS};
        window->tail++;
        if (window_call(window) < 0)
            return -1;
    }
    return 0;
}

/* The result at the head, which is done. */
static PyObject *ordered_take(struct ordered *self, struct window *window) {
    struct slot *slot = slot_at(window, window->head);
    PyObject *value = slot->value, *place = slot->place;
    bool failed = slot->state == SLOT_FAILED;
    slot->value = slot->place = NULL;
    window->head++;
    if (!failed) {
        Py_XDECREF(place);
        return value;
    }
    PyObject *done = PyObject_CallFunctionObjArgs(self->note, value,
                                                  place != NULL ? place : Py_None, NULL);
    if (done == NULL)
        PyErr_WriteUnraisable(self->note);
    if (done != NULL && PyExceptionInstance_Check(done)) { /* to be raised instead */
        Py_DECREF(value);
        value = Py_NewRef(done);
    }
    Py_XDECREF(done);
    Py_XDECREF(place);
    iter_set_exception(value);
    return NULL;
}

static PyObject *ordered_step(struct ordered *self, struct window *window) {
    if (ordered_fill(self, window) < 0)
        return NULL;
    while (!window->closed && window->head < window->tail) {
        if (slot_at(window, window->head)->state >= SLOT_DONE)
            return ordered_take(self, window);
        window->awaited = true;
        sleep_until(window, &window->answer, &window->answers, 100);
        window->awaited = false;
        if (PyErr_CheckSignals() < 0 || window_call(window) < 0)
            return NULL;
    }
    Py_XDECREF(window_close((PyObject *)window, NULL));
    return iter_raise_end(&self->failure);
}

static PyObject *ordered_next(PyObject *op) {
    struct ordered *self = (struct ordered *)op;
    struct ext_state *state = ext_state_of(op);
    if (self->forks != state->forks)
        return ext_raise_code(
            state, SQRL_E_STATE,
            "this pass belongs to the process that began it: its threads "
            "are not here; iterate the stream again");
    if (self->window == NULL || iter_gate_enter(&self->gate) < 0)
        return NULL;
    struct window *window = (struct window *)Py_NewRef((PyObject *)self->window);
    PyObject *value = ordered_step(self, window);
    Py_DECREF(window);
    iter_gate_leave(&self->gate);
    return value;
}

static PyType_Slot ordered_slots[] = {
    {Py_tp_new, ordered_new},
    {Py_tp_dealloc, ordered_dealloc},
    {Py_tp_traverse, ordered_traverse},
    {Py_tp_clear, ordered_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ordered_next},
    {Py_tp_doc,
     "Ordered(iterator, window, place, note)\n--\n\n"
     "The window's results in order; place() is kept with each item and given to\n"
     "note(exception, place) when it fails. Dropping it closes the window."},
    {0, NULL}};
PyType_Spec ext_ordered_spec = {.name = "squirrel._native.Ordered",
                                .basicsize = sizeof(struct ordered),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                .slots = ordered_slots};
