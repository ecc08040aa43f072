/* iterator_batches.c - squirrel._native.Batches: a running plan that gives batches. */
#include "iterator.h"

struct batches {
    PyObject_HEAD struct core core;
    struct sqrl_place place; /* first row of the batch that was delivered last */
    uint64_t delivered;
};

PyObject *ext_batches_open(struct ext_state *state, struct sqrl_plan *plan,
                           const struct sqrl_iterator_options *options) {
    struct batches *self = (struct batches *)ext_alloc(state->type[EXT_BATCHES]);
    if (self == NULL)
        return NULL;
    if (core_open(state, &self->core, plan, options) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void batches_dealloc(PyObject *op) {
    core_free(&((struct batches *)op)->core);
    ext_free(op);
}

static int batches_pull(struct ext_state *state, struct batches *self,
                        struct sqrl_batch **batch) {
    struct sqrl_error err;
    int rc;
    if (core_wait(state, &self->core) < 0)
        return -1;
    rc = sqrl_iterator_next_batch(self->core.iterator, batch, &err);
    ext_log_drain(state);
    if (self->core.closed) {
        sqrl_batch_unref(*batch);
        *batch = NULL;
        return 0;
    }
    if (rc == SQRL_OK)
        return 0;
    ext_raise(state, &err);
    return -1;
}

static PyObject *batches_next(PyObject *op) {
    struct batches *self = (struct batches *)op;
    struct ext_state *state = ext_state_of(op);
    struct sqrl_batch *batch = NULL;
    if (core_enter(state, &self->core) <= 0)
        return NULL;
    int rc = batches_pull(state, self, &batch);
    if (rc == 0 && batch != NULL) {
        self->delivered++;
        if (batch->rows > 0 && batch->place != NULL)
            self->place = batch->place[0];
    }
    core_leave(&self->core);
    return rc < 0 || batch == NULL ? NULL : ext_batch_new(state, batch);
}

static PyObject *batches_state(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"back", "rows", NULL};
    struct batches *self = (struct batches *)op;
    struct ext_state *state = ext_state_of(op);
    unsigned long long back = 0, used = 0;
    PyObject *rows = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|KO:state_dict", keys, &back, &rows))
        return NULL;
    if (rows != Py_None)
        used = PyLong_AsUnsignedLongLong(rows);
    if (PyErr_Occurred() != NULL || core_enter_open(state, &self->core) < 0)
        return NULL;
    PyObject *dict =
        core_state(state, &self->core, back, rows == Py_None ? SQRL_UNKNOWN : used);
    core_leave(&self->core);
    return dict;
}

static PyObject *batches_load(PyObject *op, PyObject *states) {
    struct batches *self = (struct batches *)op;
    struct ext_state *state = ext_state_of(op);
    if (core_enter_open(state, &self->core) < 0)
        return NULL;
    int rc = core_load(state, &self->core, states);
    core_leave(&self->core);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *batches_close(PyObject *op, PyObject *unused) {
    core_close(&((struct batches *)op)->core);
    Py_RETURN_NONE;
}
static PyObject *batches_exit(PyObject *op, PyObject *args) {
    core_close(&((struct batches *)op)->core);
    Py_RETURN_NONE;
}
static PyObject *batches_place(PyObject *op, PyObject *unused) {
    struct batches *self = (struct batches *)op;
    return core_place(&self->core, self->delivered, self->place.shard,
                      self->place.sample);
}
static PyObject *batches_stats(PyObject *op, PyObject *unused) {
    return core_stats(&((struct batches *)op)->core);
}
static PyObject *batches_bad(PyObject *op, PyObject *unused) {
    return core_bad(&((struct batches *)op)->core);
}
static PyObject *batches_delivered(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct batches *)op)->delivered);
}
static PyObject *batches_enter(PyObject *op, PyObject *unused) {
    Py_INCREF(op);
    return op;
}

const uint64_t *batches_count(PyObject *op) {
    return &((struct batches *)op)->delivered;
}

static PyMethodDef batches_methods[] = {
    {"close", batches_close, METH_NOARGS, DOC_CLOSE},
    {"place", batches_place, METH_NOARGS, DOC_PLACE},
    {"stats", batches_stats, METH_NOARGS, DOC_STATS},
    {"quarantine", batches_bad, METH_NOARGS, DOC_BAD},
    STATE_METHODS(batches_state, batches_load),
    {"__enter__", batches_enter, METH_NOARGS, DOC_ENTER},
    {"__exit__", batches_exit, METH_VARARGS, DOC_EXIT},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef batches_getset[] = {
    {"delivered", batches_delivered, NULL, "How many batches it gave so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot batches_slots[] = {{Py_tp_dealloc, batches_dealloc},
                                      {Py_tp_iter, PyObject_SelfIter},
                                      {Py_tp_iternext, batches_next},
                                      {Py_tp_doc, "A running plan that gives batches."},
                                      {Py_tp_methods, batches_methods},
                                      {Py_tp_getset, batches_getset},
                                      {0, NULL}};
PyType_Spec ext_batches_spec = {.name = "squirrel._native.Batches",
                                .basicsize = sizeof(struct batches),
                                .flags = Py_TPFLAGS_DEFAULT |
                                         Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = batches_slots};
