/* guard.c - squirrel._native.Guard: an iterator that lets everything pass and only acts
 * when an exception comes through: it calls note(exception), which adds stage, shard and
 * sample, and may give another exception to raise instead (a StopIteration that a
 * callback raised would end the stream silently).
 *
 * It costs one indirect call an item: the inner iterator's tp_iternext is looked up once.
 */
#include "iter.h"

struct guard {
    PyObject_HEAD PyObject *inner, *note, *on_close; /* owned */
    iternextfunc next;
};

static PyObject *guard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"inner", "note", "close", NULL};
    PyObject *inner, *note, *on_close = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:Guard", keys, &inner, &note,
                                     &on_close))
        return NULL;
    if (!PyIter_Check(inner)) {
        PyErr_SetString(PyExc_TypeError, "Guard needs an iterator");
        return NULL;
    }
    struct guard *self = (struct guard *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    Py_INCREF(inner);
    Py_INCREF(note);
    Py_INCREF(on_close);
    self->inner = inner;
    self->note = note;
    self->on_close = on_close;
    self->next = (iternextfunc)PyType_GetSlot(Py_TYPE(inner), Py_tp_iternext);
    return (PyObject *)self;
}

static int guard_traverse(PyObject *op, visitproc visit, void *arg) {
    struct guard *self = (struct guard *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->inner);
    Py_VISIT(self->note);
    Py_VISIT(self->on_close);
    return 0;
}

static int guard_clear(PyObject *op) {
    struct guard *self = (struct guard *)op;
    Py_CLEAR(self->inner);
    Py_CLEAR(self->note);
    Py_CLEAR(self->on_close);
    return 0;
}

static void guard_dealloc(PyObject *op) {
    PyObject_GC_UnTrack(op);
    guard_clear(op);
    ext_free(op);
}

/* Tells note() about the exception that is set, and sets that or what note() made of it.
 */
static void guard_annotate(struct guard *self) {
    PyObject *error = iter_take_exception();
    PyObject *done = PyObject_CallFunctionObjArgs(self->note, error, NULL);
    if (done == NULL)
        PyErr_WriteUnraisable(self->note);
    if (done != NULL && PyExceptionInstance_Check(done)) {
        Py_DECREF(error);
        iter_set_exception(done);
    } else {
        Py_XDECREF(done);
        iter_set_exception(error);
    }
}

static PyObject *guard_next(PyObject *op) {
    struct guard *self = (struct guard *)op;
    PyObject *inner = self->inner;
    if (EXT_UNLIKELY(inner == NULL))
        return NULL;
    Py_INCREF(inner); /* close() may come in between */
    PyObject *item = self->next(inner);
    Py_DECREF(inner);
    if (EXT_UNLIKELY(item == NULL) && PyErr_Occurred() != NULL)
        guard_annotate(self);
    return item;
}

static PyObject *guard_close(PyObject *op, PyObject *unused) {
    struct guard *self = (struct guard *)op;
    PyObject *on_close = self->on_close, *inner = self->inner, *done = Py_None;
    if (inner == NULL)
        Py_RETURN_NONE;
    self->inner = NULL;
    if (on_close != NULL && on_close != Py_None) {
        Py_INCREF(on_close);
        done = PyObject_CallFunctionObjArgs(on_close, NULL);
        Py_DECREF(on_close);
    } else {
        Py_INCREF(done);
    }
    Py_DECREF(inner);
    return done;
}

static PyObject *guard_enter(PyObject *op, PyObject *unused) {
    Py_INCREF(op);
    return op;
}
static PyObject *guard_exit(PyObject *op, PyObject *args) {
    PyObject *done = guard_close(op, NULL);
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    Py_RETURN_NONE;
}

static PyMethodDef guard_methods[] = {
    {"close", guard_close, METH_NOARGS, "close($self, /)\n--\n\nEnds the run."},
    {"__enter__", guard_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
    {"__exit__", guard_exit, METH_VARARGS, "__exit__($self, /, *args)\n--\n\n"},
    {NULL, NULL, 0, NULL}};

static PyType_Slot guard_slots[] = {
    {Py_tp_new, guard_new},
    {Py_tp_dealloc, guard_dealloc},
    {Py_tp_traverse, guard_traverse},
    {Py_tp_clear, guard_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, guard_next},
    {Py_tp_doc, "Guard(inner, note, close=None)\n--\n\n"
                "Passes items on; exceptions go through note(exception) first."},
    {Py_tp_methods, guard_methods},
    {0, NULL}};
PyType_Spec ext_guard_spec = {.name = "squirrel._native.Guard",
                              .basicsize = sizeof(struct guard),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                              .slots = guard_slots};
