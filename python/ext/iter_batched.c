/* iter_batched.c - squirrel._native.Batched: lists of `size` items each.
 *
 * Items wait in an array of C until a list is full, so that no half-filled list can be
 * seen by the garbage collector's visitors.
 */
#include "iter.h"

#include <stdlib.h>

struct batched {
    PyObject_HEAD struct iter_above above;
    struct iter_gate gate;
    PyObject *end;    /* owned; a StopIteration to raise behind the last batch */
    PyObject **items; /* owned; those of the batch in the making */
    size_t count, room, size;
    bool drop; /* a last batch that is not full */
};

static PyObject *batched_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"iterator", "size", "drop_last", NULL};
    PyObject *iterator;
    Py_ssize_t size;
    int drop = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On|p:Batched", keys, &iterator, &size,
                                     &drop))
        return NULL;
    if (size < 1)
        return PyErr_Format(PyExc_ValueError, "a batch has at least 1 item, not %zd",
                            size);
    struct batched *self = (struct batched *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    iter_gate_init(&self->gate);
    self->size = (size_t)size;
    self->drop = drop;
    if (iter_above_init(&self->above, iterator) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int batched_traverse(PyObject *op, visitproc visit, void *arg) {
    struct batched *self = (struct batched *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->above.object);
    Py_VISIT(self->end);
    for (size_t i = 0; i < self->count; i++)
        Py_VISIT(self->items[i]);
    return 0;
}

static int batched_clear(PyObject *op) {
    struct batched *self = (struct batched *)op;
    Py_CLEAR(self->above.object);
    Py_CLEAR(self->end);
    while (self->count > 0) {
        PyObject *item = self->items[--self->count];
        Py_DECREF(item);
    }
    return 0;
}

static void batched_dealloc(PyObject *op) {
    struct batched *self = (struct batched *)op;
    PyObject_GC_UnTrack(op);
    batched_clear(op);
    free(self->items);
    iter_gate_reset(&self->gate);
    ext_free(op);
}

static int batched_grow(struct batched *self) {
    size_t room = self->room == 0 ? 64 : self->room * 2;
    if (room > self->size)
        room = self->size;
    PyObject **items = realloc(self->items, room * sizeof *items);
    if (items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->items = items;
    self->room = room;
    return 0;
}

/* The collected items as a list. */
static PyObject *batched_list(struct batched *self) {
    PyObject *list = PyList_New((Py_ssize_t)self->count);
    if (list == NULL)
        return NULL;
    size_t count = self->count;
    self->count = 0;
    for (size_t i = 0; i < count; i++)
        PyList_SetItem(list, (Py_ssize_t)i, self->items[i]);
    return list;
}

static PyObject *batched_fill(struct batched *self) {
    while (self->count < self->size) {
        if (EXT_UNLIKELY(self->count == self->room) && batched_grow(self) < 0)
            return NULL;
        PyObject *item = iter_above_next(&self->above);
        if (EXT_UNLIKELY(item == NULL)) {
            if (!iter_above_end(&self->above, &self->end))
                return NULL;
            if (self->drop || self->count == 0)
                return iter_raise_end(&self->end);
            return batched_list(self);
        }
        self->items[self->count++] = item;
    }
    return batched_list(self);
}

static PyObject *batched_next(PyObject *op) {
    struct batched *self = (struct batched *)op;
    if (iter_gate_enter(&self->gate) < 0)
        return NULL;
    PyObject *list = batched_fill(self);
    iter_gate_leave(&self->gate);
    return list;
}

static PyType_Slot batched_slots[] = {
    {Py_tp_new, batched_new},
    {Py_tp_dealloc, batched_dealloc},
    {Py_tp_traverse, batched_traverse},
    {Py_tp_clear, batched_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, batched_next},
    {Py_tp_doc, "Batched(iterator, size, drop_last=False)\n--\n\n"
                "Lists of `size` items each; threads may share it."},
    {0, NULL}};
PyType_Spec ext_batched_spec = {.name = "squirrel._native.Batched",
                                .basicsize = sizeof(struct batched),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                .slots = batched_slots};
