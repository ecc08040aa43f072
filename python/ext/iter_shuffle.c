/* iter_shuffle.c - squirrel._native.Shuffled: random order within a buffer.
 *
 * The buffer grows by two items for each that leaves until it is full, then one for one;
 * the place of one that leaves is taken by the last. Numbers come from a MersenneTwister,
 * from a callable getrandbits(bits), or, for generators of the user's own kind, from
 * randint.
 */
#include "iter.h"

#include <stdlib.h>

enum draws { DRAWS_TWISTER, DRAWS_BITS, DRAWS_RANDINT };

struct shuffled {
    PyObject_HEAD struct iter_above above;
    struct iter_gate gate;
    PyObject *rng, *end; /* owned */
    enum draws draws;
    struct iter_twister *twister; /* inside rng */
    PyObject **held;              /* owned */
    size_t count, room, size;
    Py_ssize_t initial;
    uint64_t given;
};

static PyObject *shuffled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"iterator", "size", "initial", "rng", "bits", NULL};
    struct ext_state *state = PyType_GetModuleState(type);
    PyObject *iterator, *rng;
    Py_ssize_t size, initial;
    int bits = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnnO|p:Shuffled", keys, &iterator,
                                     &size, &initial, &rng, &bits))
        return NULL;
    struct shuffled *self = (struct shuffled *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    iter_gate_init(&self->gate);
    Py_INCREF(rng);
    self->rng = rng;
    self->twister = iter_twister_of(state, rng);
    self->draws = self->twister != NULL ? DRAWS_TWISTER
                  : bits                ? DRAWS_BITS
                                        : DRAWS_RANDINT;
    self->size = size < 1 ? 1 : (size_t)size;
    self->initial = initial;
    if (self->size > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a shuffle buffer holds less than 2**32 items");
    } else if (iter_above_init(&self->above, iterator) == 0) {
        return (PyObject *)self;
    }
    Py_DECREF(self);
    return NULL;
}

static int shuffled_traverse(PyObject *op, visitproc visit, void *arg) {
    struct shuffled *self = (struct shuffled *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->above.object);
    Py_VISIT(self->rng);
    Py_VISIT(self->end);
    for (size_t i = 0; i < self->count; i++)
        Py_VISIT(self->held[i]);
    return 0;
}

static int shuffled_clear(PyObject *op) {
    struct shuffled *self = (struct shuffled *)op;
    Py_CLEAR(self->above.object);
    Py_CLEAR(self->end);
    while (self->count > 0) {
        PyObject *item = self->held[--self->count];
        Py_DECREF(item);
    }
    return 0;
}

static void shuffled_dealloc(PyObject *op) {
    struct shuffled *self = (struct shuffled *)op;
    PyObject_GC_UnTrack(op);
    shuffled_clear(op);
    Py_CLEAR(self->rng);
    free(self->held);
    iter_gate_reset(&self->gate);
    ext_free(op);
}

/* randint(0, n - 1) of Python objects; -1 with an exception. */
static Py_ssize_t shuffled_call(struct shuffled *self, uint32_t n) {
    int bits = 32 - __builtin_clz(n);
    for (;;) {
        PyObject *number =
            self->draws == DRAWS_BITS
                ? PyObject_CallFunction(self->rng, "i", bits)
                : PyObject_CallMethod(self->rng, "randint", "iI", 0, n - 1);
        if (number == NULL)
            return -1;
        Py_ssize_t value = PyLong_AsSsize_t(number);
        Py_DECREF(number);
        if (value == -1 && PyErr_Occurred() != NULL)
            return -1;
        if (value >= 0 && value < (Py_ssize_t)n)
            return value;
        if (self->draws == DRAWS_RANDINT) {
            PyErr_Format(PyExc_ValueError, "randint(0, %u) of the given rng gave %zd",
                         n - 1, value);
            return -1;
        }
    }
}

static PyObject *shuffled_pick(struct shuffled *self) {
    uint32_t n = (uint32_t)self->count;
    Py_ssize_t at = self->draws == DRAWS_TWISTER ? iter_twister_below(self->twister, n)
                                                 : shuffled_call(self, n);
    if (at < 0 || (size_t)at >= self->count)
        return NULL;
    PyObject *item = self->held[at];
    self->held[at] = self->held[--self->count];
    self->given++;
    return item;
}

static int shuffled_grow(struct shuffled *self) {
    size_t room = self->room == 0 ? 64 : self->room * 2;
    if (room > self->size)
        room = self->size;
    PyObject **held = realloc(self->held, room * sizeof *held);
    if (held == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->held = held;
    self->room = room;
    return 0;
}

/* One item more: 1, or 0 at the end, or -1 with an exception. */
static int shuffled_take(struct shuffled *self) {
    if (EXT_UNLIKELY(self->count == self->room) && shuffled_grow(self) < 0)
        return -1;
    PyObject *item = iter_above_next(&self->above);
    if (EXT_UNLIKELY(item == NULL)) {
        if (self->above.object == NULL || iter_above_end(&self->above, &self->end))
            return 0;
        shuffled_clear((PyObject *)self);
        return -1;
    }
    self->held[self->count++] = item;
    return 1;
}

static PyObject *shuffled_step(struct shuffled *self) {
    while (self->above.object != NULL) {
        int got = shuffled_take(self);
        if (got > 0 && self->count < self->size)
            got = shuffled_take(self) < 0 ? -1 : 1;
        if (got < 0)
            return NULL;
        if (got > 0 && (Py_ssize_t)self->count >= self->initial)
            return shuffled_pick(self);
    }
    return self->count > 0 ? shuffled_pick(self) : iter_raise_end(&self->end);
}

static PyObject *shuffled_next(PyObject *op) {
    struct shuffled *self = (struct shuffled *)op;
    if (iter_gate_enter(&self->gate) < 0)
        return NULL;
    PyObject *item = shuffled_step(self);
    iter_gate_leave(&self->gate);
    return item;
}

static PyObject *shuffled_given(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct shuffled *)op)->given);
}
static PyObject *shuffled_held(PyObject *op, void *unused) {
    return PyLong_FromSize_t(((struct shuffled *)op)->count);
}

static PyGetSetDef shuffled_getset[] = {
    {"given", shuffled_given, NULL, "How many items it gave.", NULL},
    {"held", shuffled_held, NULL, "How many items wait in the buffer.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot shuffled_slots[] = {
    {Py_tp_new, shuffled_new},
    {Py_tp_dealloc, shuffled_dealloc},
    {Py_tp_traverse, shuffled_traverse},
    {Py_tp_clear, shuffled_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, shuffled_next},
    {Py_tp_getset, shuffled_getset},
    {Py_tp_doc,
     "Shuffled(iterator, size, initial, rng, bits=False)\n--\n\n"
     "Random order within a buffer. `rng` is a MersenneTwister, with `bits` a\n"
     "callable getrandbits(k), or an object with randint(a, b)."},
    {0, NULL}};
PyType_Spec ext_shuffled_spec = {.name = "squirrel._native.Shuffled",
                                 .basicsize = sizeof(struct shuffled),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                 .slots = shuffled_slots};
