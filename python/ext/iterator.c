/* iterator.c - squirrel._native.Samples and Batches: running plans.
 *
 * A sample is made from the current run under the GIL alone: no lock, no release. When
 * the run is used up, the core's lock is taken (it may be held by another Python thread
 * that waits for the next run without the GIL), and the library is waited for in slices,
 * so that Ctrl-C is seen.
 *
 * While a sample is built, the garbage collector may run finalisers that close this
 * iterator or ask it for more: the run is held by a counter (guarded by the GIL) and
 * released by its last user. close() from another thread only cancels while a thread is
 * inside; that one closes.
 *
 * After a fork the child's copy refuses: its threads are gone.
 */
#include "ext.h"

#include <pythread.h>
#include <stdlib.h>
#include <time.h>

#define WAIT_SLICE_NS 50000000u
#define SWITCH_NS 5000000u /* the interpreter's own switch interval */

struct core {
    struct sqrl_iterator *iterator; /* NULL when closed */
    struct sqrl_source *source;     /* borrowed from the plan */
    struct sqrl_plan *plan;
    PyThread_type_lock lock;
    uint64_t released_ns; /* when the GIL was released last; 0: not yet */
    unsigned fork;
    bool closed, inside;
};

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

struct batches {
    PyObject_HEAD struct core core;
    struct sqrl_place place; /* first row of the batch that was delivered last */
    uint64_t delivered;
};

/* --- the core --- */

static int core_open(struct ext_state *state, struct core *core, struct sqrl_plan *plan,
                     const struct sqrl_iterator_options *options) {
    struct sqrl_error err;
    int rc;
    core->lock = PyThread_allocate_lock();
    if (core->lock == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    core->fork = state->forks;
    core->plan = sqrl_plan_ref(plan);
    core->source = sqrl_plan_get_source(plan);
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_iterator_start(plan, options, &core->iterator, &err);
    Py_END_ALLOW_THREADS
    if (rc == SQRL_OK)
        return 0;
    core->closed = true;
    ext_raise(state, &err);
    return -1;
}

static void core_shut(struct core *core) {
    struct sqrl_iterator *iterator = core->iterator;
    core->iterator = NULL;
    core->closed = true;
    Py_BEGIN_ALLOW_THREADS
    sqrl_iterator_close(iterator);
    Py_END_ALLOW_THREADS
}

static void core_close(struct core *core) {
    if (core->iterator == NULL)
        return;
    core->closed = true;
    sqrl_iterator_cancel(core->iterator);
    if (!core->inside)
        core_shut(core);
}

static void core_free(struct core *core) {
    core_close(core);
    sqrl_plan_unref(core->plan);
    if (core->lock != NULL)
        PyThread_free_lock(core->lock);
}

/* Makes this thread the one inside. -1 with an exception, 0 when closed, else 1. */
static int core_enter(struct ext_state *state, struct core *core) {
    if (core->fork != state->forks) {
        ext_raise_code(
            state, SQRL_E_STATE,
            "this iterator was started before a fork: start a new one from the "
            "stream in this process");
        return -1;
    }
    int taken = PyThread_acquire_lock(core->lock, NOWAIT_LOCK);
    while (!taken) {
        Py_BEGIN_ALLOW_THREADS
        taken = PyThread_acquire_lock_timed(core->lock, WAIT_SLICE_NS / 1000, 0) ==
                PY_LOCK_ACQUIRED;
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0) {
            if (taken)
                PyThread_release_lock(core->lock);
            return -1;
        }
    }
    if (core->closed) {
        PyThread_release_lock(core->lock);
        return 0;
    }
    core->inside = true;
    return 1;
}

static void core_leave(struct core *core) {
    core->inside = false;
    if (core->closed && core->iterator != NULL)
        core_shut(core);
    PyThread_release_lock(core->lock);
}

int ext_wait(struct ext_state *state, struct sqrl_iterator *iterator) {
    for (;;) {
        bool ready;
        Py_BEGIN_ALLOW_THREADS
        ready = sqrl_iterator_wait(iterator, WAIT_SLICE_NS);
        Py_END_ALLOW_THREADS
        ext_log_drain(state);
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (ready)
            return 0;
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns when next() will not block. Data that are there already are taken without
 * giving up the GIL, which other threads would keep for a whole switch interval, but no
 * longer than one: list(iterator) runs no bytecode that would give it up. */
static int core_wait(struct ext_state *state, struct core *core) {
    if (core->released_ns != 0 && now_ns() - core->released_ns < SWITCH_NS &&
        sqrl_iterator_wait(core->iterator, 0))
        return PyErr_CheckSignals();
    int rc = ext_wait(state, core->iterator);
    core->released_ns = now_ns();
    return rc;
}

static PyObject *core_stats(struct core *core) {
    struct sqrl_stage_stats stats[16];
    PyObject *list = PyList_New(0);
    if (list == NULL || core->iterator == NULL)
        return list;
    size_t count = sqrl_iterator_stats(core->iterator, stats, 16);
    for (size_t i = 0; i < count && i < 16; i++) {
        PyObject *item = Py_BuildValue("{s:s,s:K,s:K,s:d,s:d,s:d}", "name", stats[i].name,
                                       "items", (unsigned long long)stats[i].items,
                                       "bytes", (unsigned long long)stats[i].bytes,
                                       "busy_seconds", (double)stats[i].busy_ns * 1e-9,
                                       "wait_seconds", (double)stats[i].wait_ns * 1e-9,
                                       "wait_share", stats[i].wait_share);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_XDECREF(item);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(item);
    }
    return list;
}

static PyObject *number_or_none(uint64_t number) {
    return number == SQRL_UNKNOWN ? Py_NewRef(Py_None)
                                  : PyLong_FromUnsignedLongLong(number);
}

static PyObject *core_bad(struct core *core) {
    PyObject *list = PyList_New(0);
    struct sqrl_bad *bad = malloc(sizeof *bad);
    if (bad == NULL) {
        Py_XDECREF(list);
        return PyErr_NoMemory();
    }
    size_t count =
        core->iterator == NULL ? 0 : sqrl_iterator_bad(core->iterator, NULL, 0, 0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        sqrl_iterator_bad(core->iterator, bad, i, 1);
        const struct sqrl_shard *file = sqrl_source_shard(core->source, bad->shard);
        PyObject *item = Py_BuildValue(
            "{s:N,s:N,s:N,s:N,s:s,s:s}", "file",
            file == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeFSDefault(file->path),
            "block", number_or_none(bad->block), "sample", number_or_none(bad->sample),
            "samples", number_or_none(bad->samples), "error", bad->error.message, "where",
            bad->error.where);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    free(bad);
    return list;
}

static PyObject *core_place(struct core *core, uint64_t delivered, uint64_t shard,
                            uint64_t sample) {
    if (delivered == 0)
        Py_RETURN_NONE;
    const struct sqrl_shard *file = sqrl_source_shard(core->source, shard);
    return Py_BuildValue("(NN)",
                         file == NULL ? PyUnicode_FromString("?")
                                      : PyUnicode_DecodeFSDefault(file->path),
                         sample == SQRL_UNKNOWN ? Py_NewRef(Py_None)
                                                : PyLong_FromUnsignedLongLong(sample));
}

/* --- states --- */

int ext_states_of(PyObject *sequence, const char ***states,
                  struct sqrl_iterator_options *options) {
    if (!PyTuple_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "states must be a tuple of str");
        return -1;
    }
    size_t count = (size_t)PyTuple_Size(sequence);
    *states = calloc(count + 1, sizeof **states);
    if (*states == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *text = PyTuple_GetItem(sequence, (Py_ssize_t)i);
        (*states)[i] = PyUnicode_AsUTF8AndSize(text, NULL);
        if ((*states)[i] == NULL) {
            free(*states);
            *states = NULL;
            return -1;
        }
    }
    options->state = *states;
    options->states = count;
    return 0;
}

/* squirrel._state.NAME(argument) */
static PyObject *call_state(const char *name, PyObject *argument) {
    PyObject *module = PyImport_ImportModule("squirrel._state"), *result = NULL;
    if (module != NULL && argument != NULL)
        result = PyObject_CallMethod(module, name, "O", argument);
    Py_XDECREF(module);
    return result;
}

static PyObject *core_state(struct ext_state *state, struct core *core, uint64_t unread) {
    struct sqrl_error err;
    char *text = NULL;
    int rc = sqrl_iterator_state(core->iterator, unread, &text, &err);
    if (rc != SQRL_OK)
        return ext_raise(state, &err);
    PyObject *string = PyUnicode_FromString(text);
    free(text);
    PyObject *dict = call_state("loads", string);
    Py_XDECREF(string);
    return dict;
}

/* Ends the run and begins one at the states. */
static int core_load(struct ext_state *state, struct core *core, PyObject *states) {
    struct sqrl_iterator_options options = {.size = sizeof options};
    struct sqrl_iterator *fresh = NULL;
    struct sqrl_error err;
    const char **list = NULL;
    PyObject *texts = call_state("texts", states);
    if (texts == NULL || ext_states_of(texts, &list, &options) < 0) {
        Py_XDECREF(texts);
        return -1;
    }
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_iterator_start(core->plan, &options, &fresh, &err);
    Py_END_ALLOW_THREADS
    free(list);
    Py_DECREF(texts);
    if (rc != SQRL_OK) {
        ext_raise(state, &err);
        return -1;
    }
    struct sqrl_iterator *old = core->iterator;
    core->iterator = fresh;
    Py_BEGIN_ALLOW_THREADS
    sqrl_iterator_close(old);
    Py_END_ALLOW_THREADS
    return 0;
}

static int core_enter_open(struct ext_state *state, struct core *core) {
    int rc = core_enter(state, core);
    if (rc == 0)
        ext_raise_code(state, SQRL_E_STATE, "this iterator was closed");
    return rc > 0 ? 0 : -1;
}

static int back_of(PyObject *args, PyObject *kwargs, unsigned long long *back) {
    static char *keys[] = {"back", NULL};
    *back = 0;
    return PyArg_ParseTupleAndKeywords(args, kwargs, "|K:state_dict", keys, back) ? 0
                                                                                  : -1;
}

/* --- samples --- */

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

/* Samples of a shuffled window lie all over memory: each would wait for half a dozen
 * lines in turn, then for its data. So what comes soon is fetched ahead, a step of the
 * way at a time: where it begins, its nodes, its bytes. Samples in a row need none of
 * this. */
enum { AHEAD_BEGIN = 12, AHEAD_NODES = 8, AHEAD_BYTES = 4, MOST_BYTES = 4096, LINE = 64 };
/* GCC takes a function that only fetches for one without effects, and drops the call. */
#define FETCHES static inline __attribute__((always_inline))

FETCHES void fetch_lines(const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const char *)from + at);
}

FETCHES void fetch_bytes(const struct sqrl_sample *sample) {
    const struct sqrl_block *block = sample->block;
    const struct sqrl_node *nodes = block->tape.nodes;
    uint32_t begin = block->begin[sample->index];
    if (block->bytes == NULL || begin + 1 >= block->tape.count)
        return;
    size_t size = block->bytes->size, from = nodes[begin + 1].v.offset, to = size;
    if (sample->index + 1 < block->count) {
        uint32_t next = block->begin[sample->index + 1];
        to = next + 1 < block->tape.count ? nodes[next + 1].v.offset : size;
    }
    if (from < to && to <= size)
        fetch_lines(block->bytes->data + from,
                    to - from < MOST_BYTES ? to - from : MOST_BYTES);
}

FETCHES void fetch_ahead(const struct sqrl_run *run, uint32_t at) {
    if (at + AHEAD_BEGIN >= run->count)
        return;
    const struct sqrl_sample *s = &run->samples[at];
    const struct sqrl_sample *far = &s[AHEAD_BEGIN], *near = &s[AHEAD_NODES];
    if (far->block == far[-1].block && far->index == far[-1].index + 1)
        return;
    __builtin_prefetch(&far->block->begin[far->index]);
    fetch_lines(&near->block->tape.nodes[near->block->begin[near->index]], 4 * LINE);
    fetch_bytes(&s[AHEAD_BYTES]);
}

static PyObject *samples_next(PyObject *op) {
    struct samples *self = (struct samples *)op;
    struct ext_state *state = self->builder.state;
    while (EXT_UNLIKELY(self->at >= self->end || self->core.fork != state->forks))
        if (samples_refill(state, self) <= 0)
            return NULL;
    struct held_run *held = self->held;
    fetch_ahead(held->run, (uint32_t)self->at);
    struct sqrl_sample sample = held->run->samples[self->at++];
    held->users++;
    self->shard = sample.block->shard;
    self->sample = sample.block->first == SQRL_UNKNOWN
                       ? SQRL_UNKNOWN
                       : sample.block->first + sample.index;
    self->delivered++;
    PyObject *object = ext_build_sample(&self->builder, sample.block, sample.index);
    if (EXT_UNLIKELY(object == NULL))
        note_place(self);
    run_drop(held);
    return object;
}

static PyObject *samples_state(PyObject *op, PyObject *args, PyObject *kwargs) {
    struct samples *self = (struct samples *)op;
    unsigned long long back;
    if (back_of(args, kwargs, &back) < 0 ||
        core_enter_open(self->builder.state, &self->core) < 0)
        return NULL;
    PyObject *dict =
        core_state(self->builder.state, &self->core, self->end - self->at + back);
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

static PyObject *iterator_enter(PyObject *op, PyObject *unused) {
    Py_INCREF(op);
    return op;
}
static PyObject *samples_exit(PyObject *op, PyObject *args) {
    samples_stop((struct samples *)op);
    Py_RETURN_NONE;
}

/* --- batches --- */

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
    struct batches *self = (struct batches *)op;
    struct ext_state *state = ext_state_of(op);
    unsigned long long back;
    if (back_of(args, kwargs, &back) < 0 || core_enter_open(state, &self->core) < 0)
        return NULL;
    PyObject *dict = core_state(state, &self->core, back);
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

const uint64_t *ext_delivered(struct ext_state *state, PyObject *iterator) {
    if (Py_TYPE(iterator) == state->type[EXT_SAMPLES])
        return &((struct samples *)iterator)->delivered;
    if (Py_TYPE(iterator) == state->type[EXT_BATCHES])
        return &((struct batches *)iterator)->delivered;
    return NULL;
}

/* --- types --- */

#define DOC_CLOSE "close($self, /)\n--\n\nEnds the run; what was handed out stays valid."
#define DOC_PLACE                                                                        \
    "place($self, /)\n--\n\nShard path and sample number of what came last, or None.\n"  \
    "The number is None where it can't be told: plain JSON lines, shuffled."
#define DOC_STATS                                                                        \
    "stats($self, /)\n--\n\nWork and waiting of each stage, as a list of dicts."
#define DOC_BAD                                                                          \
    "quarantine($self, /)\n--\n\nWhat on_error let pass, as a list of dicts: file, "     \
    "block, "                                                                            \
    "sample, samples, error, where.\nNone: all of the block; the rest of the file."
#define DOC_STATE                                                                        \
    "state_dict($self, back=0)\n--\n\nWhere it stands, as a dict of a few hundred "      \
    "bytes; "                                                                            \
    "load_state_dict goes on there.\nback: 1 in front of what came last."
#define DOC_LOAD                                                                         \
    "load_state_dict($self, state, /)\n--\n\nGoes on where a state stood: one, or with " \
    "other ranks and workers all of them\nin a list or in any nesting of dicts and "     \
    "lists."
#define STATE_METHODS(state, load)                                                       \
    {"state_dict", (PyCFunction)(void (*)(void))state, METH_VARARGS | METH_KEYWORDS,     \
     DOC_STATE},                                                                         \
        {"load_state_dict", load, METH_O, DOC_LOAD},                                     \
        {"get_state", (PyCFunction)(void (*)(void))state, METH_VARARGS | METH_KEYWORDS,  \
         "get_state($self, back=0)\n--\n\nThe same as state_dict()."},                   \
    {                                                                                    \
        "set_state", load, METH_O,                                                       \
            "set_state($self, state, /)\n--\n\nThe same as load_state_dict()."           \
    }
#define DOC_ENTER "__enter__($self, /)\n--\n\n"
#define DOC_EXIT "__exit__($self, /, *args)\n--\n\n"

static PyMethodDef samples_methods[] = {
    {"close", samples_close, METH_NOARGS, DOC_CLOSE},
    {"place", samples_place, METH_NOARGS, DOC_PLACE},
    {"stats", samples_stats, METH_NOARGS, DOC_STATS},
    {"quarantine", samples_bad, METH_NOARGS, DOC_BAD},
    STATE_METHODS(samples_state, samples_load),
    {"__enter__", iterator_enter, METH_NOARGS, DOC_ENTER},
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

static PyMethodDef batches_methods[] = {
    {"close", batches_close, METH_NOARGS, DOC_CLOSE},
    {"place", batches_place, METH_NOARGS, DOC_PLACE},
    {"stats", batches_stats, METH_NOARGS, DOC_STATS},
    {"quarantine", batches_bad, METH_NOARGS, DOC_BAD},
    STATE_METHODS(batches_state, batches_load),
    {"__enter__", iterator_enter, METH_NOARGS, DOC_ENTER},
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
