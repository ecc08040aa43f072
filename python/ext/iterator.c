/* iterator.c - squirrel._native.Samples: a running plan that gives samples.
 *
 * A sample is made from the current run under the GIL alone: no lock, no release. While
 * it is built, the garbage collector may run finalisers that close this iterator or ask
 * it for more: the run is held by a counter (guarded by the GIL) and released by its last
 * user.
 */
#include "iterator.h"

#include <stdlib.h>

struct held_run {
    struct sqrl_run *run;
    unsigned users;
};

struct samples {
    PyObject_HEAD struct core core;
    struct held_run *held;
    uint32_t at, end;
    uint64_t shard, sample; /* of the sample that was delivered last */
    uint64_t delivered;
    struct ext_builder builder;
};

static void run_drop(struct held_run *held) {
    if (held != NULL && --held->users == 0) {
        sqrl_run_release(held->run);
        free(held);
    }
}

PyObject *ext_samples_open(struct ext_state *state, struct sqrl_plan *plan,
                           const struct sqrl_iterator_options *options, bool copy,
                           bool tuples) {
    struct samples *self = (struct samples *)ext_alloc(state->type[EXT_SAMPLES]);
    if (self == NULL)
        return NULL;
    ext_builder_init(&self->builder, state, copy, sqrl_plan_projection(plan));
    self->builder.tuples = tuples;
    if (core_open(state, &self->core, plan, options) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void samples_stop(struct samples *self) {
    struct held_run *held = self->held;
    self->held = NULL;
    self->at = self->end = 0;
    core_close(&self->core);
    run_drop(held);
}

static void samples_dealloc(PyObject *op) {
    struct samples *self = (struct samples *)op;
    samples_stop(self);
    core_free(&self->core);
    ext_builder_reset(&self->builder);
    ext_free(op);
}

/* Asks the library for the next run. 1, 0 at the end, -1 with an exception. */
static int samples_pull(struct ext_state *state, struct samples *self) {
    struct sqrl_run *run = NULL;
    struct sqrl_error err;
    int rc;
    if (core_wait(state, &self->core) < 0)
        return -1;
    rc = sqrl_iterator_next_run(self->core.iterator, &run, &err);
    ext_log_drain(state);
    if (self->core.closed) { /* closed meanwhile by another thread */
        sqrl_run_release(run);
        return 0;
    }
    if (rc != SQRL_OK) {
        ext_raise(state, &err);
        return -1;
    }
    if (run == NULL)
        return 0;
    struct held_run *held = malloc(sizeof *held);
    if (held == NULL) {
        sqrl_run_release(run);
        PyErr_NoMemory();
        return -1;
    }
    *held = (struct held_run){.run = run, .users = 1};
    self->held = held;
    self->at = 0;
    self->end = run->count;
    return 1;
}

/* The same for callers that hold no lock; another thread may have refilled meanwhile. */
static int samples_refill(struct ext_state *state, struct samples *self) {
    int rc = core_enter(state, &self->core);
    if (rc <= 0)
        return rc;
    while (rc > 0 && self->at >= self->end) {
        struct held_run *held = self->held;
        self->held = NULL;
        run_drop(held);
        rc = samples_pull(state, self);
    }
    core_leave(&self->core);
    return rc;
}

static void note_place(struct samples *self) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    const struct sqrl_shard *file = sqrl_source_shard(self->core.source, self->shard);
    const char *path = file == NULL ? "?" : file->path;
    PyObject *done = PyObject_CallMethod(
        value, "add_note", "N",
        self->sample == SQRL_UNKNOWN
            ? PyUnicode_FromFormat(
                  "while a sample of shard %s was turned into Python objects", path)
            : PyUnicode_FromFormat(
                  "while sample %llu of shard %s was turned into Python objects",
                  (unsigned long long)self->sample, path));
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}

static PyObject *samples_next(PyObject *op) {
    struct samples *self = (struct samples *)op;
    struct ext_state *state = self->builder.state;
    while (EXT_UNLIKELY(self->at >= self->end || self->core.fork != state->forks))
        if (samples_refill(state, self) <= 0)
            return NULL;
    struct held_run *held = self->held;
    struct sqrl_sample sample = held->run->samples[self->at++];
    held->users++;
    struct sqrl_place place = sqrl_block_place(sample.block, sample.index);
    self->shard = place.shard;
    self->sample = place.sample;
    self->delivered++;
    PyObject *object = ext_build_sample(&self->builder, sample.block, sample.index);
    if (EXT_UNLIKELY(object == NULL))
        note_place(self);
    run_drop(held);
    return object;
}

static PyObject *samples_state(PyObject *op, PyObject *args, PyObject *kwargs) {
    struct samples *self = (struct samples *)op;
    static char *keys[] = {"back", NULL};
    unsigned long long back = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|K:state_dict", keys, &back) ||
        core_enter_open(self->builder.state, &self->core) < 0)
        return NULL;
    PyObject *dict = core_state(self->builder.state, &self->core,
                                self->end - self->at + back, SQRL_UNKNOWN);
    core_leave(&self->core);
    return dict;
}

static PyObject *samples_load(PyObject *op, PyObject *states) {
    struct samples *self = (struct samples *)op;
    if (core_enter_open(self->builder.state, &self->core) < 0)
        return NULL;
    int rc = core_load(self->builder.state, &self->core, states);
    if (rc == 0) {
        struct held_run *held = self->held;
        self->held = NULL;
        self->at = self->end = 0;
        run_drop(held);
    }
    core_leave(&self->core);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *samples_close(PyObject *op, PyObject *unused) {
    samples_stop((struct samples *)op);
    Py_RETURN_NONE;
}
static PyObject *samples_place(PyObject *op, PyObject *unused) {
    struct samples *self = (struct samples *)op;
    uint64_t sample = self->sample;
    if (sample != SQRL_UNKNOWN)
        sample = sqrl_source_row(self->core.source, self->shard, sample);
    return core_place(&self->core, self->delivered, self->shard, sample);
}
static PyObject *samples_stats(PyObject *op, PyObject *unused) {
    return core_stats(&((struct samples *)op)->core);
}
static PyObject *samples_bad(PyObject *op, PyObject *unused) {
    return core_bad(&((struct samples *)op)->core);
}
static PyObject *samples_delivered(PyObject *op, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct samples *)op)->delivered);
}

static PyObject *samples_enter(PyObject *op, PyObject *unused) {
    Py_INCREF(op);
    return op;
}
static PyObject *samples_exit(PyObject *op, PyObject *args) {
    samples_stop((struct samples *)op);
    Py_RETURN_NONE;
}

const uint64_t *samples_count(PyObject *op) {
    return &((struct samples *)op)->delivered;
}

static PyMethodDef samples_methods[] = {
    {"close", samples_close, METH_NOARGS, DOC_CLOSE},
    {"place", samples_place, METH_NOARGS, DOC_PLACE},
    {"stats", samples_stats, METH_NOARGS, DOC_STATS},
    {"quarantine", samples_bad, METH_NOARGS, DOC_BAD},
    STATE_METHODS(samples_state, samples_load),
    {"__enter__", samples_enter, METH_NOARGS, DOC_ENTER},
    {"__exit__", samples_exit, METH_VARARGS, DOC_EXIT},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef samples_getset[] = {
    {"delivered", samples_delivered, NULL, "How many samples it gave so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot samples_slots[] = {{Py_tp_dealloc, samples_dealloc},
                                      {Py_tp_iter, PyObject_SelfIter},
                                      {Py_tp_iternext, samples_next},
                                      {Py_tp_doc, "A running plan that gives samples."},
                                      {Py_tp_methods, samples_methods},
                                      {Py_tp_getset, samples_getset},
                                      {0, NULL}};
PyType_Spec ext_samples_spec = {.name = "squirrel._native.Samples",
                                .basicsize = sizeof(struct samples),
                                .flags = Py_TPFLAGS_DEFAULT |
                                         Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = samples_slots};
