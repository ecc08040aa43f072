/* iter_counted.c - squirrel._native.Counted: passes items on and counts them. */
#include "iter.h"

struct counted {
    PyObject_HEAD struct iter_above above;
    uint64_t delivered;
};

static PyObject *counted_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"iterator", NULL};
    PyObject *iterator;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Counted", keys, &iterator))
        return NULL;
    struct counted *self = (struct counted *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    if (iter_above_init(&self->above, iterator) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int counted_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((struct counted *)op)->above.object);
    return 0;
}

static int counted_clear(PyObject *op) {
    Py_CLEAR(((struct counted *)op)->above.object);
    return 0;
}

static void counted_dealloc(PyObject *op) {
    PyObject_GC_UnTrack(op);
    counted_clear(op);
    ext_free(op);
}

static PyObject *counted_next(PyObject *op) {
    struct counted *self = (struct counted *)op;
    PyObject *item = iter_above_next(&self->above);
    self->delivered += item != NULL;
    return item;
}

static PyObject *counted_delivered(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct counted *)op)->delivered);
}

const uint64_t *counted_count(PyObject *op) {
    return &((struct counted *)op)->delivered;
}

static PyGetSetDef counted_getset[] = {
    {"delivered", counted_delivered, NULL, "How many items it gave so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot counted_slots[] = {
    {Py_tp_new, counted_new},
    {Py_tp_dealloc, counted_dealloc},
    {Py_tp_traverse, counted_traverse},
    {Py_tp_clear, counted_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, counted_next},
    {Py_tp_getset, counted_getset},
    {Py_tp_doc, "Counted(iterator)\n--\n\nPasses items on and counts them."},
    {0, NULL}};
PyType_Spec ext_counted_spec = {.name = "squirrel._native.Counted",
                                .basicsize = sizeof(struct counted),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                .slots = counted_slots};
