/* iter_random.c - MT19937 with the draws of CPython's random.Random and of NumPy's
 * RandomState, without a Python call a number.
 *
 * The generator is Matsumoto and Nishimura's (1998); what becomes of its words is
 * specified by the documentation of both packages and frozen there:
 * random.Random.getrandbits and randrange, RandomState.random_sample, randint and choice.
 */
#include "iter.h"

#include <stdlib.h>

struct twister_object {
    PyObject_HEAD struct iter_twister twister;
};

static void twister_turn(struct iter_twister *twister) {
    uint32_t *key = twister->key;
    for (int i = 0; i < 624; i++) {
        uint32_t y = (key[i] & 0x80000000u) | (key[(i + 1) % 624] & 0x7fffffffu);
        key[i] = key[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    twister->position = 0;
}

uint32_t iter_twister_next(struct iter_twister *twister) {
    if (EXT_UNLIKELY(twister->position >= 624))
        twister_turn(twister);
    uint32_t y = twister->key[twister->position++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* A random word's upper bits, as many as n has, until they are below n. */
uint32_t iter_twister_below(struct iter_twister *twister, uint32_t n) {
    int shift = __builtin_clz(n);
    uint32_t value;
    do
        value = iter_twister_next(twister) >> shift;
    while (value >= n);
    return value;
}

/* RandomState.randint(0, n): a word's lower bits under a mask; nothing is drawn for n
 * = 1. */
static uint32_t twister_masked(struct iter_twister *twister, uint32_t n) {
    if (n <= 1)
        return 0;
    uint32_t mask = UINT32_MAX >> __builtin_clz(n - 1), value;
    do
        value = iter_twister_next(twister) & mask;
    while (value >= n);
    return value;
}

/* Uniform in [0, 1) with 53 bits, as both packages make it. */
static double twister_uniform(struct iter_twister *twister) {
    uint32_t high = iter_twister_next(twister) >> 5,
             low = iter_twister_next(twister) >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

struct iter_twister *iter_twister_of(struct ext_state *state, PyObject *object) {
    if (Py_TYPE(object) != state->type[EXT_TWISTER])
        return NULL;
    return &((struct twister_object *)object)->twister;
}

static PyObject *twister_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"key", "position", NULL};
    const char *key;
    Py_ssize_t length;
    unsigned int position;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y#I:MersenneTwister", keys, &key,
                                     &length, &position))
        return NULL;
    if (length != sizeof(uint32_t[624]) || position > 624) {
        PyErr_SetString(PyExc_ValueError,
                        "a state has 624 words of 32 bits and a position of 0 to 624");
        return NULL;
    }
    struct twister_object *self = (struct twister_object *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    memcpy(self->twister.key, key, sizeof self->twister.key);
    self->twister.position = position;
    return (PyObject *)self;
}

static void twister_dealloc(PyObject *op) {
    ext_free(op);
}

static PyObject *twister_state(PyObject *op, PyObject *unused) {
    struct iter_twister *twister = &((struct twister_object *)op)->twister;
    return Py_BuildValue("(y#I)", (const char *)twister->key,
                         (Py_ssize_t)sizeof twister->key, twister->position);
}

static PyObject *twister_reduce(PyObject *op, PyObject *unused) {
    return Py_BuildValue("(ON)", (PyObject *)Py_TYPE(op), twister_state(op, NULL));
}

static PyMethodDef twister_methods[] = {
    {"state", twister_state, METH_NOARGS,
     "state($self, /)\n--\n\n(624 words in native byte order, position)"},
    {"__reduce__", twister_reduce, METH_NOARGS, "__reduce__($self, /)\n--\n\n"},
    {NULL, NULL, 0, NULL}};

static PyType_Slot twister_slots[] = {
    {Py_tp_new, twister_new},
    {Py_tp_dealloc, twister_dealloc},
    {Py_tp_doc, "MersenneTwister(key, position)\n--\n\n"
                "MT19937 in the state of a random.Random or a RandomState."},
    {Py_tp_methods, twister_methods},
    {0, NULL}};
PyType_Spec ext_twister_spec = {.name = "squirrel._native.MersenneTwister",
                                .basicsize = sizeof(struct twister_object),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = twister_slots};

/* --- RandomState.choice, number by number --- */

struct choices {
    PyObject_HEAD PyObject *twister; /* owned */
    uint32_t count;
    double *cumulative; /* owned [count]; NULL when all are equally likely */
    PyObject **numbers; /* owned [count]: 0, 1, ... */
};

/* A sequence of ascending floats into an array. */
static int choices_read(struct choices *self, PyObject *cumulative) {
    self->cumulative = calloc(self->count, sizeof *self->cumulative);
    if (self->cumulative == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < self->count; i++) {
        PyObject *item = PySequence_GetItem(cumulative, i);
        if (item == NULL)
            return -1;
        self->cumulative[i] = PyFloat_AsDouble(item);
        Py_DECREF(item);
        if (PyErr_Occurred() != NULL)
            return -1;
    }
    return 0;
}

static PyObject *choices_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"twister", "count", "cumulative", NULL};
    struct ext_state *state = PyType_GetModuleState(type);
    PyObject *twister, *cumulative = Py_None;
    unsigned int count;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OI|O:Choices", keys, &twister, &count,
                                     &cumulative))
        return NULL;
    if (iter_twister_of(state, twister) == NULL || count == 0) {
        PyErr_SetString(PyExc_ValueError, "Choices needs a MersenneTwister and a count");
        return NULL;
    }
    struct choices *self = (struct choices *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    Py_INCREF(twister);
    self->twister = twister;
    self->count = count;
    self->numbers = calloc(count, sizeof(PyObject *));
    bool good = self->numbers != NULL;
    if (!good)
        PyErr_NoMemory();
    for (uint32_t i = 0; good && i < count; i++)
        good = (self->numbers[i] = PyLong_FromUnsignedLong(i)) != NULL;
    if (!good || (cumulative != Py_None && choices_read(self, cumulative) < 0)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void choices_dealloc(PyObject *op) {
    struct choices *self = (struct choices *)op;
    for (uint32_t i = 0; self->numbers != NULL && i < self->count; i++)
        Py_XDECREF(self->numbers[i]);
    free(self->numbers);
    free(self->cumulative);
    Py_XDECREF(self->twister);
    ext_free(op);
}

static PyObject *choices_next(PyObject *op) {
    struct choices *self = (struct choices *)op;
    struct iter_twister *twister = &((struct twister_object *)self->twister)->twister;
    uint32_t at = 0;
    if (self->cumulative == NULL) {
        at = twister_masked(twister, self->count);
    } else { /* the first whose cumulative probability lies above the number drawn */
        double drawn = twister_uniform(twister);
        uint32_t left = self->count - 1;
        while (left > 0) {
            uint32_t half = left / 2;
            bool below = self->cumulative[at + half] <= drawn;
            at = below ? at + half + 1 : at;
            left = below ? left - half - 1 : half;
        }
    }
    PyObject *number = self->numbers[at];
    Py_INCREF(number);
    return number;
}

static PyType_Slot choices_slots[] = {
    {Py_tp_new, choices_new},
    {Py_tp_dealloc, choices_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, choices_next},
    {Py_tp_doc,
     "Choices(twister, count, cumulative=None)\n--\n\n"
     "Endless indexes 0 to count - 1, drawn as RandomState.choice(count, 1, p=p) does."},
    {0, NULL}};
PyType_Spec ext_choices_spec = {.name = "squirrel._native.Choices",
                                .basicsize = sizeof(struct choices),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = choices_slots};
