/* plan.c - squirrel._native.Plan: the stages that run in the library. */
#include "ext.h"

#include <stdlib.h>

struct plan {
    PyObject_HEAD struct sqrl_plan *plan;
    bool tuples, counted;
};

PyObject *ext_plan_new(struct ext_state *state, struct sqrl_plan *plan, bool tuples) {
    struct plan *self = (struct plan *)ext_alloc(state->type[EXT_PLAN]);
    if (self == NULL) {
        sqrl_plan_unref(plan);
        return NULL;
    }
    self->plan = plan;
    self->tuples = tuples;
    return (PyObject *)self;
}

struct sqrl_plan *ext_plan_get(PyObject *self) {
    return ((struct plan *)self)->plan;
}

bool ext_plan_tuples(PyObject *self) {
    return ((struct plan *)self)->tuples;
}

bool *ext_plan_counted(PyObject *self) {
    return &((struct plan *)self)->counted;
}

static void plan_dealloc(PyObject *self) {
    sqrl_plan_unref(ext_plan_get(self));
    ext_free(self);
}

/* What every verb ends with. */
PyObject *ext_plan_result(PyObject *self, int rc, struct sqrl_plan **plan,
                          const struct sqrl_error *err) {
    struct ext_state *state = ext_state_of(self);
    return rc != SQRL_OK ? ext_raise(state, err)
                         : ext_plan_new(state, *plan, ((struct plan *)self)->tuples);
}

static PyObject *plan_filter(PyObject *self, PyObject *arg) {
    struct sqrl_plan *out = NULL;
    struct sqrl_error err;
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(arg, &size);
    if (text == NULL)
        return NULL;
    if (strlen(text) != (size_t)size) {
        PyErr_SetString(PyExc_ValueError,
                        "a filter expression can't hold a null character");
        return NULL;
    }
    return ext_plan_result(self, sqrl_plan_filter(ext_plan_get(self), text, &out, &err),
                           &out, &err);
}

static PyObject *plan_where(PyObject *self, PyObject *arg) {
    struct sqrl_plan *plan = ext_plan_get(self), *out = NULL;
    struct sqrl_source *source = NULL;
    struct sqrl_error err;
    Py_ssize_t size;
    int rc;
    if (!PyUnicode_Check(arg)) {
        PyErr_SetString(PyExc_TypeError,
                        "where() takes an expression as a str: \"label == 'a' and score "
                        "> 5\"; filter() takes callables, too");
        return NULL;
    }
    const char *text = PyUnicode_AsUTF8AndSize(arg, &size);
    if (text == NULL)
        return NULL;
    if (strlen(text) != (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "an expression can't hold a null character");
        return NULL;
    }
    if (!sqrl_plan_keeps_positions(plan) || sqrl_plan_projection(plan) != NULL) {
        PyErr_SetString(PyExc_TypeError, "where() stands in front of all other stages");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_source_where(sqrl_plan_get_source(plan), text, &source, &err);
    if (rc == SQRL_OK)
        rc = sqrl_plan_source(source, &out, &err);
    sqrl_source_unref(source);
    Py_END_ALLOW_THREADS
    return ext_plan_result(self, rc, &out, &err);
}

static PyObject *plan_part(PyObject *self, PyObject *args) {
    struct sqrl_plan *plan = ext_plan_get(self), *out = NULL;
    struct sqrl_source *source = NULL;
    struct sqrl_error err;
    unsigned long long seed;
    double from, to;
    int others, rc;
    if (!PyArg_ParseTuple(args, "Kddp:part", &seed, &from, &to, &others))
        return NULL;
    if (!sqrl_plan_keeps_positions(plan) || sqrl_plan_projection(plan) != NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "split() without by= stands in front of all other stages");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_source_part(sqrl_plan_get_source(plan), seed, from, to, others != 0,
                          &source, &err);
    if (rc == SQRL_OK)
        rc = sqrl_plan_source(source, &out, &err);
    sqrl_source_unref(source);
    Py_END_ALLOW_THREADS
    return ext_plan_result(self, rc, &out, &err);
}

/* --- names --- */

/* A sequence of str as an array of UTF-8 texts; free() it. They live as long as the
 * tuple. */
static const char **names_of(PyObject *tuple, size_t *count) {
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "names must be a tuple of str");
        return NULL;
    }
    *count = (size_t)PyTuple_Size(tuple);
    const char **names = calloc(*count + 1, sizeof *names);
    if (names == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (size_t i = 0; i < *count; i++) {
        PyObject *name = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        names[i] = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
        if (names[i] == NULL) {
            if (PyErr_Occurred() == NULL)
                PyErr_SetString(PyExc_TypeError, "a field's name must be a str");
            free(names);
            return NULL;
        }
    }
    return names;
}

static PyObject *plan_names(PyObject *self, PyObject *arg, bool keep) {
    struct sqrl_plan *out = NULL, *plan = ext_plan_get(self);
    struct sqrl_error err;
    size_t count;
    const char **names = names_of(arg, &count);
    if (names == NULL)
        return NULL;
    int rc = keep ? sqrl_plan_select(plan, names, count, &out, &err)
                  : sqrl_plan_drop(plan, names, count, &out, &err);
    free(names);
    return ext_plan_result(self, rc, &out, &err);
}

static PyObject *plan_select(PyObject *self, PyObject *arg) {
    return plan_names(self, arg, true);
}
static PyObject *plan_drop(PyObject *self, PyObject *arg) {
    return plan_names(self, arg, false);
}

static PyObject *plan_rename(PyObject *self, PyObject *args) {
    struct sqrl_plan *out = NULL;
    struct sqrl_error err;
    PyObject *from, *to;
    size_t count = 0, others = 0;
    if (!PyArg_ParseTuple(args, "OO:rename", &from, &to))
        return NULL;
    const char **old = names_of(from, &count);
    const char **new = old == NULL ? NULL : names_of(to, &others);
    PyObject *result = NULL;
    if (new != NULL && count != others)
        PyErr_SetString(PyExc_ValueError, "as many new names as old ones are needed");
    else if (new != NULL)
        result = ext_plan_result(
            self, sqrl_plan_rename(ext_plan_get(self), old, new, count, &out, &err), &out,
            &err);
    free(new);
    free(old);
    return result;
}

/* --- distribute --- */

static PyObject *plan_distribute(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"rank",  "world_size", "worker", "workers", "tail",
                           "steps", "like",       "owners", NULL};
    static const char *const tail_names[] = {"pad", "drop", "uneven"};
    struct sqrl_distribute_options options = {.size = sizeof options};
    struct sqrl_plan *out = NULL;
    struct sqrl_error err;
    unsigned long long rank = 0, world_size = 0, worker = 0, workers = 0, steps = 0;
    unsigned long long like = 0;
    const char *tail = "pad", *owners = NULL;
    Py_ssize_t owner_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|KKKKsKKy#:distribute", keys, &rank,
                                     &world_size, &worker, &workers, &tail, &steps, &like,
                                     &owners, &owner_bytes))
        return NULL;
    int choice = 0;
    while (choice < 3 && strcmp(tail_names[choice], tail) != 0)
        choice++;
    if (choice == 3) {
        PyErr_SetString(PyExc_ValueError, "tail must be \"pad\", \"drop\" or \"uneven\"");
        return NULL;
    }
    options.topology = (struct sqrl_topology){rank, world_size, worker, workers};
    options.tail = (enum sqrl_tail)choice;
    options.steps = steps;
    options.like = like;
    uint32_t *owner = NULL; /* the bytes may lie anywhere */
    if (owners != NULL) {
        owner = calloc((size_t)owner_bytes / sizeof *owner + 1, sizeof *owner);
        if (owner == NULL)
            return PyErr_NoMemory();
        memcpy(owner, owners, (size_t)owner_bytes / sizeof *owner * sizeof *owner);
        options.owner = owner;
        options.owners = (uint64_t)owner_bytes / sizeof *owner;
    }
    int rc = sqrl_plan_distribute(ext_plan_get(self), &options, &out, &err);
    free(owner);
    return ext_plan_result(self, rc, &out, &err);
}

/* --- numbers --- */

static PyObject *plan_shuffle_all(PyObject *self, PyObject *args) {
    struct sqrl_plan *out = NULL;
    struct sqrl_error err;
    unsigned long long seed, window;
    if (!PyArg_ParseTuple(args, "KK:shuffle_all", &seed, &window))
        return NULL;
    return ext_plan_result(
        self, sqrl_plan_shuffle_all(ext_plan_get(self), seed, window, &out, &err), &out,
        &err);
}

typedef int (*number_verb)(struct sqrl_plan *, uint64_t, struct sqrl_plan **,
                           struct sqrl_error *);

static PyObject *plan_number(PyObject *self, PyObject *arg, number_verb verb) {
    struct sqrl_plan *out = NULL;
    struct sqrl_error err;
    unsigned long long n = PyLong_AsUnsignedLongLong(arg);
    if (n == (unsigned long long)-1 && PyErr_Occurred() != NULL)
        return NULL;
    return ext_plan_result(self, verb(ext_plan_get(self), n, &out, &err), &out, &err);
}

static PyObject *plan_take(PyObject *self, PyObject *arg) {
    return plan_number(self, arg, sqrl_plan_take);
}
static PyObject *plan_skip(PyObject *self, PyObject *arg) {
    return plan_number(self, arg, sqrl_plan_skip);
}
static PyObject *plan_prefetch(PyObject *self, PyObject *arg) {
    return plan_number(self, arg, sqrl_plan_prefetch);
}

/* --- batch --- */

static int boundaries_of(PyObject *tuple, uint64_t **out, size_t *count) {
    *out = NULL;
    *count = 0;
    if (tuple == Py_None)
        return 0;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "boundaries must be a tuple of int");
        return -1;
    }
    *count = (size_t)PyTuple_Size(tuple);
    *out = calloc(*count + 1, sizeof **out);
    for (size_t i = 0; *out != NULL && i < *count; i++) {
        (*out)[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, (Py_ssize_t)i));
        if (PyErr_Occurred() != NULL) {
            free(*out);
            *out = NULL;
            return -1;
        }
    }
    if (*out == NULL)
        PyErr_NoMemory();
    return *out == NULL ? -1 : 0;
}

static PyObject *plan_batch(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {
        "batch_size", "drop_remainder", "ragged",    "pad_value", "length_by",
        "boundaries", "max_tokens",     "max_bytes", "fields",    NULL};
    static const char *const ragged_names[] = {"offsets", "pad", "error"};
    struct sqrl_batch_options options = {.size = sizeof options};
    struct sqrl_plan *out = NULL;
    struct sqrl_error err;
    struct ext_settings fields;
    unsigned long long batch_size = 0, max_tokens = 0, max_bytes = 0;
    int drop = 0;
    const char *ragged = "offsets";
    PyObject *boundaries = Py_None, *declared = Py_None;
    uint64_t *boundary = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|KpsdzOKKO:batch", keys, &batch_size,
                                     &drop, &ragged, &options.pad_value,
                                     &options.length_field, &boundaries, &max_tokens,
                                     &max_bytes, &declared))
        return NULL;
    int choice = 0;
    while (choice < 3 && strcmp(ragged_names[choice], ragged) != 0)
        choice++;
    if (choice == 3) {
        PyErr_SetString(PyExc_ValueError,
                        "ragged must be \"offsets\", \"pad\" or \"error\"");
        return NULL;
    }
    if (ext_settings_init(&fields, declared) < 0)
        return NULL;
    if (boundaries_of(boundaries, &boundary, &options.boundaries) < 0) {
        ext_settings_reset(&fields);
        return NULL;
    }
    options.batch_size = batch_size;
    options.drop_remainder = drop != 0;
    options.ragged = (enum sqrl_ragged)choice;
    options.boundary = boundary;
    options.max_tokens = max_tokens;
    options.max_bytes = max_bytes;
    options.fields = fields.settings.items;
    options.field_count = fields.settings.count;
    int rc = sqrl_plan_batch(ext_plan_get(self), &options, &out, &err);
    free(boundary);
    ext_settings_reset(&fields);
    return ext_plan_result(self, rc, &out, &err);
}

/* --- looking and running --- */

static PyObject *plan_count(PyObject *self, PyObject *unused) {
    uint64_t count = 0;
    struct sqrl_error err;
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_plan_count(ext_plan_get(self), &count, &err);
    Py_END_ALLOW_THREADS
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    if (count == SQRL_UNKNOWN)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(count);
}

static PyObject *plan_forecast(PyObject *self, PyObject *args) {
    struct sqrl_forecast f;
    struct sqrl_error err;
    unsigned long long epoch = 0;
    int rc;
    if (!PyArg_ParseTuple(args, "|K:forecast", &epoch))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_plan_forecast(ext_plan_get(self), epoch, &f, &err);
    Py_END_ALLOW_THREADS
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    typedef unsigned long long number;
    return Py_BuildValue(
        "{s:N,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "items",
        f.items == SQRL_UNKNOWN ? Py_NewRef(Py_None)
                                : PyLong_FromUnsignedLongLong(f.items),
        "chunks", (number)f.chunks, "shards", (number)f.shards, "blocks",
        (number)f.blocks, "block_bytes", (number)f.block_bytes, "decoded_bytes",
        (number)f.decoded_bytes, "first_blocks", (number)f.first_blocks, "first_bytes",
        (number)f.first_bytes, "window_bytes", (number)f.window_bytes, "requests",
        (number)f.requests, "request_bytes", (number)f.request_bytes, "first_requests",
        (number)f.first_requests, "first_request_bytes", (number)f.first_request_bytes,
        "first_rounds", (number)f.first_rounds);
}

static PyObject *plan_describe(PyObject *self, PyObject *unused) {
    char *text = sqrl_plan_describe(ext_plan_get(self));
    if (text == NULL)
        return PyErr_NoMemory();
    PyObject *object = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    free(text);
    return object;
}

static PyObject *plan_batched(PyObject *self, void *unused) {
    return PyBool_FromLong(sqrl_plan_is_batched(ext_plan_get(self)));
}

/* None: nobody knows; False: no pass follows this one; else the epoch of the next. */
static int read_following(PyObject *following, struct sqrl_iterator_options *options) {
    if (following == Py_None)
        return 0;
    options->follow = following == Py_False ? SQRL_FOLLOW_NONE : SQRL_FOLLOW_NEXT;
    options->next_epoch = PyLong_AsUnsignedLongLong(following);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *plan_iterate(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"copy", "epoch", "states", "following", NULL};
    struct sqrl_iterator_options options = {.size = sizeof options};
    unsigned long long epoch = 0;
    const char **states = NULL;
    PyObject *texts = Py_None, *following = Py_None;
    int copy = 1;
    struct ext_state *state = ext_state_of(self);
    struct sqrl_plan *plan = ext_plan_get(self);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pKOO:iterate", keys, &copy, &epoch,
                                     &texts, &following))
        return NULL;
    options.epoch = epoch;
    if (read_following(following, &options) < 0)
        return NULL;
    if (texts != Py_None && ext_states_of(texts, &states, &options) < 0)
        return NULL;
    ext_share_cores(state);
    PyObject *iterator = sqrl_plan_is_batched(plan)
                             ? ext_batches_open(state, plan, &options)
                             : ext_samples_open(state, plan, &options, copy != 0,
                                                ((struct plan *)self)->tuples);
    free(states);
    return iterator;
}

static PyObject *plan_arrow_stream(PyObject *self, PyObject *unused) {
    return ext_arrow_plan(ext_state_of(self), ext_plan_get(self));
}

static PyGetSetDef plan_getset[] = {
    {"batched", plan_batched, NULL, "Whether it gives batches.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef plan_methods[] = {
    {"filter", plan_filter, METH_O,
     "filter($self, expression, /)\n--\n\nKeeps samples for which the expression holds."},
    {"where", plan_where, METH_O,
     "where($self, expression, /)\n--\n\nA source of the samples for which the "
     "expression holds."},
    {"part", plan_part, METH_VARARGS,
     "part($self, seed, begin, end, others, /)\n--\n\n"
     "A source of the samples whose numbers' hash is in [begin, end), or of the others."},
    {"select", plan_select, METH_O,
     "select($self, names, /)\n--\n\nKeeps only these fields."},
    {"drop", plan_drop, METH_O, "drop($self, names, /)\n--\n\nRemoves these fields."},
    {"rename", plan_rename, METH_VARARGS,
     "rename($self, old, new, /)\n--\n\nGives fields new names."},
    {"shuffle_all", plan_shuffle_all, METH_VARARGS,
     "shuffle_all($self, seed, window_bytes, /)\n--\n\nRandom order of all samples."},
    {"distribute", (PyCFunction)(void (*)(void))plan_distribute,
     METH_VARARGS | METH_KEYWORDS,
     "distribute($self, rank=0, world_size=0, worker=0, workers=0, tail='pad', steps=0,\n"
     "           like=0, owners=None)\n--\n\n"
     "Deals the samples among ranks and workers; 0: found."},
    {"on_error", (PyCFunction)(void (*)(void))ext_plan_on_error,
     METH_VARARGS | METH_KEYWORDS,
     "on_error($self, policy, retries=0, consecutive=0, total=0, ask=None)\n--\n\n"
     "What becomes of bad samples; 0: the default."},
    {"take", plan_take, METH_O, "take($self, n, /)\n--\n\nThe first n."},
    {"skip", plan_skip, METH_O, "skip($self, n, /)\n--\n\nAll but the first n."},
    {"prefetch", plan_prefetch, METH_O,
     "prefetch($self, bytes, /)\n--\n\nHow far reading may run ahead."},
    {"batch", (PyCFunction)(void (*)(void))plan_batch, METH_VARARGS | METH_KEYWORDS,
     "batch($self, batch_size=0, drop_remainder=False, ragged='offsets', pad_value=0.0,\n"
     "      length_by=None, boundaries=None, max_tokens=0, max_bytes=0, "
     "fields=None)\n--\n\n"
     "Samples as columns."},
    {"count", plan_count, METH_NOARGS,
     "count($self, /)\n--\n\nHow many samples or batches it gives, or None when "
     "unknown."},
    {"forecast", plan_forecast, METH_VARARGS,
     "forecast($self, epoch=0, /)\n--\n\nThe fields of sqrl_forecast, as a dict."},
    {"describe", plan_describe, METH_NOARGS,
     "describe($self, /)\n--\n\nThe stages as text."},
    {"iterate", (PyCFunction)(void (*)(void))plan_iterate, METH_VARARGS | METH_KEYWORDS,
     "iterate($self, copy=True, epoch=0, states=None, following=None)\n--\n\n"
     "Starts the plan. following: the epoch of the next pass; False: there is none."},
    {"get", ext_plan_get_one, METH_O,
     "get($self, index, /)\n--\n\nThe sample at a position."},
    {"find", ext_plan_find, METH_O,
     "find($self, keys, /)\n--\n\nThe positions of the first samples with these keys."},
    {"locate", ext_plan_locate, METH_O,
     "locate($self, index, /)\n--\n\nShard path and number within the shard of a "
     "position."},
    {"get_many", (PyCFunction)(void (*)(void))ext_plan_get_many,
     METH_VARARGS | METH_KEYWORDS,
     "get_many($self, indices, copy=True)\n--\n\nThe samples at these positions, as a "
     "list."},
    {"arrow_stream", plan_arrow_stream, METH_NOARGS,
     "arrow_stream($self, /)\n--\n\nA capsule of the Arrow C stream interface."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot plan_slots[] = {
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_doc, "An immutable tree of stages over a source."},
    {Py_tp_getset, plan_getset},
    {Py_tp_methods, plan_methods},
    {0, NULL}};
PyType_Spec ext_plan_spec = {.name = "squirrel._native.Plan",
                             .basicsize = sizeof(struct plan),
                             .flags =
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .slots = plan_slots};
