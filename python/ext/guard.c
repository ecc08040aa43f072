/* guard.c - squirrel._native.Guard: an iterator that lets everything pass and only acts
 * when an exception comes through: it calls note(exception), which adds stage, shard and
 * sample, and may give another exception to raise instead (a StopIteration that a
 * callback raised would end the stream silently).
 *
 * It costs one indirect call an item: the inner iterator's tp_iternext is looked up once.
 */
#include "iter.h"

struct guard {
    PyObject_HEAD PyObject *inner, *note, *on_close, *native; /* owned */
    iternextfunc next;
    const uint64_t *pulled; /* how many items `native` gave; NULL: there is none */
    uint64_t seen, since;   /* items given since it gave its last, that one included */
};

const uint64_t *ext_delivered(struct ext_state *state, PyObject *iterator) {
    static const uint64_t *(*const count[EXT_CLASSES])(PyObject *) = {
        [EXT_SAMPLES] = samples_count,
        [EXT_BATCHES] = batches_count,
        [EXT_MIXED] = mixed_count,
        [EXT_COUNTED] = counted_count};
    for (int i = 0; i < EXT_CLASSES; i++)
        if (count[i] != NULL && Py_TYPE(iterator) == state->type[i])
            return count[i](iterator);
    return NULL;
}

/* Subclasses made in Python have no module of their own. */
static struct ext_state *guard_state(PyTypeObject *type) {
    struct ext_state *state = NULL;
    for (; state == NULL && type != NULL; type = PyType_GetSlot(type, Py_tp_base)) {
        state = PyType_GetModuleState(type);
        if (state == NULL)
            PyErr_Clear();
    }
    return state;
}

static PyObject *guard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"inner", "note", "close", "native", NULL};
    PyObject *inner, *note, *on_close = Py_None, *native = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:Guard", keys, &inner, &note,
                                     &on_close, &native))
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
    self->native = Py_NewRef(native);
    self->pulled = ext_delivered(guard_state(type), native);
    self->next = (iternextfunc)PyType_GetSlot(Py_TYPE(inner), Py_tp_iternext);
    return (PyObject *)self;
}

static int guard_traverse(PyObject *op, visitproc visit, void *arg) {
    struct guard *self = (struct guard *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->inner);
    Py_VISIT(self->note);
    Py_VISIT(self->on_close);
    Py_VISIT(self->native);
    return 0;
}

static int guard_clear(PyObject *op) {
    struct guard *self = (struct guard *)op;
    Py_CLEAR(self->inner);
    Py_CLEAR(self->note);
    Py_CLEAR(self->on_close);
    self->pulled = NULL;
    Py_CLEAR(self->native);
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
    if (self->pulled != NULL && item != NULL) {
        self->since = *self->pulled == self->seen ? self->since + 1 : 1;
        self->seen = *self->pulled;
    }
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

/* Goes on with another iterator over another native one. */
static PyObject *guard_replace(PyObject *op, PyObject *args) {
    struct guard *self = (struct guard *)op;
    PyObject *inner, *native;
    if (!PyArg_ParseTuple(args, "OO:_replace", &inner, &native))
        return NULL;
    if (!PyIter_Check(inner)) {
        PyErr_SetString(PyExc_TypeError, "Guard needs an iterator");
        return NULL;
    }
    PyObject *old_inner = self->inner, *old_native = self->native;
    self->inner = Py_NewRef(inner);
    self->next = (iternextfunc)PyType_GetSlot(Py_TYPE(inner), Py_tp_iternext);
    self->native = Py_NewRef(native);
    self->pulled = ext_delivered(guard_state(Py_TYPE(op)), native);
    self->seen = self->since = 0;
    Py_XDECREF(old_inner);
    Py_XDECREF(old_native);
    Py_RETURN_NONE;
}

static PyObject *guard_since(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct guard *)op)->since);
}
static PyObject *guard_seen(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct guard *)op)->seen);
}
static PyObject *guard_native(PyObject *op, void *unused) {
    PyObject *native = ((struct guard *)op)->native;
    return Py_NewRef(native == NULL ? Py_None : native);
}

static PyGetSetDef guard_getset[] = {
    {"_since", guard_since, NULL,
     "Items given since the native iterator gave its last, that one included.", NULL},
    {"_seen", guard_seen, NULL,
     "Items the native iterator had given when the last one was given here.", NULL},
    {"_native", guard_native, NULL, "The native iterator at the bottom, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef guard_methods[] = {
    {"_replace", guard_replace, METH_VARARGS,
     "_replace($self, inner, native, /)\n--\n\nGoes on with other iterators."},
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
    {Py_tp_doc, "Guard(inner, note, close=None, native=None)\n--\n\n"
                "Passes items on; exceptions go through note(exception) first."},
    {Py_tp_methods, guard_methods},
    {Py_tp_getset, guard_getset},
    {0, NULL}};
PyType_Spec ext_guard_spec = {.name = "squirrel._native.Guard",
                              .basicsize = sizeof(struct guard),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                       Py_TPFLAGS_BASETYPE,
                              .slots = guard_slots};
