/* iter_mix.c - squirrel._native.Mixed: items of several iterators in the order of a
 * sqrl_mix. What follows when one of them ends is asked of Python.
 */
#include "iter.h"

#include <sqrl/mix.h>
#include <stdlib.h>

struct mix_source {
    struct iter_above above;
    uint64_t taken; /* items of the present pass */
};

struct mixed {
    PyObject_HEAD struct iter_gate gate;
    struct sqrl_mix *mix;
    PyObject *again;            /* owned */
    struct mix_source *sources; /* [count] */
    uint64_t delivered;
    uint32_t count, source, last; /* `last` gave the item that was delivered last */
    bool pending, ended;          /* `source` was drawn, and has not given its item yet */
};

/* A sequence of floats; free() it. */
static double *mixed_weights(PyObject *sequence, Py_ssize_t *count) {
    *count = PySequence_Size(sequence);
    if (*count < 0)
        return NULL;
    double *weights = calloc((size_t)*count + 1, sizeof *weights);
    if (weights == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        weights[i] = item == NULL ? -1 : PyFloat_AsDouble(item);
        Py_XDECREF(item);
        if (PyErr_Occurred() != NULL) {
            free(weights);
            return NULL;
        }
    }
    return weights;
}

static int mixed_begin(struct mixed *self, uint32_t i, PyObject *iterator) {
    struct mix_source *source = &self->sources[i];
    PyObject *old = source->above.object;
    source->above.object = NULL;
    source->taken = 0;
    Py_XDECREF(old);
    return iter_above_init(&source->above, iterator);
}

static PyObject *mixed_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"iterators", "weights",     "again", "seed",
                           "quota",     "independent", NULL};
    struct sqrl_mix_options options = {.size = sizeof options};
    struct sqrl_error err;
    PyObject *iterators, *weights, *again;
    unsigned long long seed = 0, quota = 0;
    int independent = 0;
    Py_ssize_t count;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|KKp:Mixed", keys, &PyTuple_Type,
                                     &iterators, &weights, &again, &seed, &quota,
                                     &independent))
        return NULL;
    double *weight = mixed_weights(weights, &count);
    if (weight == NULL)
        return NULL;
    struct mixed *self = NULL;
    if (count != PyTuple_Size(iterators))
        PyErr_SetString(PyExc_ValueError, "a weight for each iterator is needed");
    else
        self = (struct mixed *)ext_alloc(type);
    if (self == NULL) {
        free(weight);
        return NULL;
    }
    iter_gate_init(&self->gate);
    options.seed = seed;
    options.quota = quota;
    options.independent = independent != 0;
    int rc = sqrl_mix_new(weight, (size_t)count, &options, &self->mix, &err);
    free(weight);
    Py_INCREF(again);
    self->again = again;
    self->sources = calloc((size_t)count + 1, sizeof *self->sources);
    bool good = rc == SQRL_OK && self->sources != NULL;
    if (rc != SQRL_OK)
        ext_raise(PyType_GetModuleState(type), &err);
    else if (!good)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; good && i < count; i++) {
        self->count = (uint32_t)i + 1;
        good = mixed_begin(self, (uint32_t)i, PyTuple_GetItem(iterators, i)) == 0;
    }
    if (good)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int mixed_traverse(PyObject *op, visitproc visit, void *arg) {
    struct mixed *self = (struct mixed *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->again);
    for (uint32_t i = 0; i < self->count; i++)
        Py_VISIT(self->sources[i].above.object);
    return 0;
}

static int mixed_clear(PyObject *op) {
    struct mixed *self = (struct mixed *)op;
    Py_CLEAR(self->again);
    for (uint32_t i = 0; i < self->count; i++)
        Py_CLEAR(self->sources[i].above.object);
    return 0;
}

static void mixed_dealloc(PyObject *op) {
    struct mixed *self = (struct mixed *)op;
    PyObject_GC_UnTrack(op);
    mixed_clear(op);
    free(self->sources);
    sqrl_mix_free(self->mix);
    iter_gate_reset(&self->gate);
    ext_free(op);
}

/* Asks for the source's next pass: 1, 0 when the mix ends, -1 with an exception. */
static int mixed_again(struct mixed *self) {
    uint32_t i = self->source;
    PyObject *next = PyObject_CallFunction(self->again, "IK", (unsigned)i,
                                           (unsigned long long)self->sources[i].taken);
    if (next == NULL)
        return -1;
    int begun = next == Py_None ? 0 : mixed_begin(self, i, next) < 0 ? -1 : 1;
    Py_DECREF(next);
    return begun;
}

static PyObject *mixed_take(struct mixed *self) {
    if (self->ended || self->again == NULL)
        return NULL;
    if (!self->pending)
        self->source = sqrl_mix_next(self->mix);
    self->pending = true;
    for (;;) {
        struct mix_source *source = &self->sources[self->source];
        PyObject *item = iter_above_next(&source->above);
        if (EXT_LIKELY(item != NULL)) {
            source->taken++;
            self->delivered++;
            self->last = self->source;
            self->pending = false;
            return item;
        }
        if (PyErr_Occurred() != NULL) {
            if (!PyErr_ExceptionMatches(PyExc_StopIteration))
                return NULL;
            PyErr_Clear();
        }
        int begun = mixed_again(self);
        if (begun <= 0) {
            self->ended = begun == 0;
            return NULL;
        }
    }
}

static PyObject *mixed_next(PyObject *op) {
    struct mixed *self = (struct mixed *)op;
    if (iter_gate_enter(&self->gate) < 0)
        return NULL;
    PyObject *item = mixed_take(self);
    iter_gate_leave(&self->gate);
    return item;
}

const uint64_t *mixed_count(PyObject *op) {
    return &((struct mixed *)op)->delivered;
}

/* --- weights and state --- */

static PyObject *mixed_set_weights(PyObject *op, PyObject *sequence) {
    struct mixed *self = (struct mixed *)op;
    struct sqrl_error err;
    Py_ssize_t count;
    double *weights = mixed_weights(sequence, &count);
    if (weights == NULL)
        return NULL;
    int rc = SQRL_OK;
    bool fits = count == (Py_ssize_t)self->count;
    if (fits)
        rc = sqrl_mix_set_weights(self->mix, weights, &err);
    free(weights);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "%u weights are needed, not %zd",
                            (unsigned)self->count, count);
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(op), &err);
    Py_RETURN_NONE;
}

static PyObject *mixed_state(PyObject *op, PyObject *unused) {
    struct mixed *self = (struct mixed *)op;
    uint64_t changes = 0, *drawn = calloc((size_t)self->count + 1, sizeof *drawn);
    PyObject *counts = PyTuple_New(self->count), *taken = PyTuple_New(self->count);
    bool good = drawn != NULL && counts != NULL && taken != NULL;
    if (drawn == NULL)
        PyErr_NoMemory();
    else
        sqrl_mix_state(self->mix, drawn, &changes);
    if (good && self->pending && drawn[self->source] > 0)
        drawn[self->source]--; /* it comes again */
    for (uint32_t i = 0; good && i < self->count; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(drawn[i]);
        PyObject *m = PyLong_FromUnsignedLongLong(self->sources[i].taken);
        good = n != NULL && m != NULL;
        PyTuple_SetItem(counts, i, n);
        PyTuple_SetItem(taken, i, m);
    }
    free(drawn);
    if (good)
        return Py_BuildValue("NNK", counts, taken, (unsigned long long)changes);
    Py_XDECREF(counts);
    Py_XDECREF(taken);
    return NULL;
}

/* Tuples of `count` integers into an array; -1 with an exception. */
static int mixed_numbers(const struct mixed *self, PyObject *tuple, uint64_t *out) {
    if (PyTuple_Size(tuple) != (Py_ssize_t)self->count) {
        PyErr_Format(PyExc_ValueError,
                     "the state is of another number of sources than %u",
                     (unsigned)self->count);
        return -1;
    }
    for (uint32_t i = 0; i < self->count; i++) {
        out[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
        if (PyErr_Occurred() != NULL)
            return -1;
    }
    return 0;
}

static PyObject *mixed_resume(PyObject *op, PyObject *args) {
    struct mixed *self = (struct mixed *)op;
    struct sqrl_error err;
    PyObject *drawn, *taken;
    unsigned long long changes;
    int ended;
    if (!PyArg_ParseTuple(args, "O!O!Kp:resume", &PyTuple_Type, &drawn, &PyTuple_Type,
                          &taken, &changes, &ended))
        return NULL;
    uint64_t *numbers = calloc(2 * ((size_t)self->count + 1), sizeof *numbers);
    if (numbers == NULL)
        return PyErr_NoMemory();
    uint64_t *positions = numbers + self->count + 1;
    int rc = SQRL_OK;
    bool good = mixed_numbers(self, drawn, numbers) == 0 &&
                mixed_numbers(self, taken, positions) == 0;
    if (good)
        rc = sqrl_mix_resume(self->mix, numbers, changes, &err);
    for (uint32_t i = 0; good && rc == SQRL_OK && i < self->count; i++)
        self->sources[i].taken = positions[i];
    self->pending = false;
    self->ended = ended != 0;
    free(numbers);
    if (!good)
        return NULL;
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(op), &err);
    Py_RETURN_NONE;
}

static PyObject *mixed_source(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLong(((struct mixed *)op)->last);
}
static PyObject *mixed_delivered(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct mixed *)op)->delivered);
}

static PyGetSetDef mixed_getset[] = {
    {"source", mixed_source, NULL, "Number of the source of the last item.", NULL},
    {"delivered", mixed_delivered, NULL, "How many items it gave so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef mixed_methods[] = {
    {"set_weights", mixed_set_weights, METH_O,
     "set_weights($self, weights, /)\n--\n\nFrom the next item on."},
    {"state", mixed_state, METH_NOARGS,
     "state($self, /)\n--\n\n"
     "(draws of each source since the weights were set, items of each one's present "
     "pass,\nhow often the weights were set anew)"},
    {"resume", mixed_resume, METH_VARARGS,
     "resume($self, drawn, taken, changes, ended, /)\n--\n\n"
     "Continues from a state; the iterators stand there already."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot mixed_slots[] = {
    {Py_tp_new, mixed_new},
    {Py_tp_dealloc, mixed_dealloc},
    {Py_tp_traverse, mixed_traverse},
    {Py_tp_clear, mixed_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, mixed_next},
    {Py_tp_getset, mixed_getset},
    {Py_tp_methods, mixed_methods},
    {Py_tp_doc,
     "Mixed(iterators, weights, again, seed=0, quota=0, independent=False)\n--\n\n"
     "Items of several iterators; ``again(i, items)`` gives the next pass of source i, "
     "or "
     "None\nfor the end. Threads may share it."},
    {0, NULL}};
PyType_Spec ext_mixed_spec = {.name = "squirrel._native.Mixed",
                              .basicsize = sizeof(struct mixed),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                              .slots = mixed_slots};
