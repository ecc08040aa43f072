/* access.c - samples by position: Plan.get and Plan.get_many. */
#include "ext.h"

#include <stdlib.h>

/* Positions as the library takes them; free() `items`. */
struct indices {
    uint64_t *items;
    size_t count;
};

static int index_error(const struct sqrl_source *source, PyObject *index,
                       uint64_t samples) {
    if (samples == 0)
        PyErr_Format(PyExc_IndexError, "there is no sample %S: %s has none", index,
                     sqrl_source_url(source));
    else
        PyErr_Format(
            PyExc_IndexError,
            "there is no sample %S: %s has %llu, numbered 0 to %llu (or -%llu to "
            "-1, from the end)",
            index, sqrl_source_url(source), (unsigned long long)samples,
            (unsigned long long)samples - 1, (unsigned long long)samples);
    return -1;
}

/* One position, counted from the end when it is negative. */
static int take_index(const struct sqrl_source *source, PyObject *object,
                      uint64_t samples, uint64_t *out) {
    PyObject *index = PyNumber_Index(object);
    if (index == NULL)
        return -1;
    int overflow = 0, rc = 0;
    long long value = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (value < 0 && !overflow)
        value += (long long)samples;
    if (overflow || value < 0 || (uint64_t)value >= samples)
        rc = index_error(source, index, samples);
    *out = (uint64_t)value;
    Py_DECREF(index);
    return rc;
}

static int take_int64(const struct sqrl_source *source, int64_t value, uint64_t samples,
                      uint64_t *out) {
    int64_t index = value < 0 ? value + (int64_t)samples : value;
    *out = (uint64_t)index;
    if (index >= 0 && (uint64_t)index < samples)
        return 0;
    PyObject *object = PyLong_FromLongLong(value);
    if (object != NULL)
        index_error(source, object, samples);
    Py_XDECREF(object);
    return -1;
}

/* int64[n], as NumPy makes it. 1: taken, 0: it is something else, -1: an exception. */
static int take_buffer(const struct sqrl_source *source, PyObject *object,
                       uint64_t samples, struct indices *out) {
    Py_buffer view;
    if (PyBytes_Check(object) || !PyObject_CheckBuffer(object))
        return 0;
    if (PyObject_GetBuffer(object, &view, PyBUF_ND | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    int rc = 0;
    const char *format = view.format == NULL ? "B" : view.format;
    if (view.ndim == 1 && view.itemsize == 8 &&
        (strcmp(format, "l") == 0 || strcmp(format, "q") == 0)) {
        const int64_t *values = view.buf;
        out->count = (size_t)view.shape[0];
        out->items = malloc(out->count * sizeof *out->items + 1);
        rc = out->items == NULL ? -1 : 1;
        if (rc < 0)
            PyErr_NoMemory();
        for (size_t i = 0; rc > 0 && i < out->count; i++)
            if (take_int64(source, values[i], samples, &out->items[i]) < 0)
                rc = -1;
    }
    PyBuffer_Release(&view);
    return rc;
}

/* Before it becomes a list: a range with good ends is no longer than the data allow. */
static int check_range(const struct sqrl_source *source, PyObject *range,
                       uint64_t samples) {
    int rc = 0;
    uint64_t unused;
    for (Py_ssize_t end = 0; end >= -1 && rc == 0 && PyObject_IsTrue(range) == 1; end--) {
        PyObject *index = PySequence_GetItem(range, end);
        rc = index == NULL ? -1 : take_index(source, index, samples, &unused);
        Py_XDECREF(index);
    }
    return rc;
}

static int take_indices(const struct sqrl_source *source, PyObject *object,
                        uint64_t samples, struct indices *out) {
    int rc = take_buffer(source, object, samples, out);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (PyObject_TypeCheck(object, &PyRange_Type) &&
        check_range(source, object, samples) < 0)
        return -1;
    PyObject *list = PySequence_List(object);
    if (list == NULL)
        return -1;
    out->count = (size_t)PyList_Size(list);
    out->items = malloc(out->count * sizeof *out->items + 1);
    rc = out->items == NULL ? -1 : 0;
    if (rc < 0)
        PyErr_NoMemory();
    for (size_t i = 0; rc == 0 && i < out->count; i++)
        rc = take_index(source, PyList_GetItem(list, (Py_ssize_t)i), samples,
                        &out->items[i]);
    Py_DECREF(list);
    return rc;
}

/* --- calls --- */
enum { QUICK_BYTES = 16 << 20 }; /* read from local files in some ten milliseconds */

/* One call of the library; `what` says which. */
struct access {
    struct ext_call call;
    struct sqrl_source *source;
    struct sqrl_plan *plan; /* of run_read */
    uint64_t *indices;      /* [count], owned */
    size_t count;
    struct sqrl_key *keys; /* [count], owned, with `texts`; or NULL */
    char *texts;
    uint64_t samples;
    struct sqrl_samples *got;
    int rc;
    struct sqrl_error err;
};

static void access_drop(struct ext_call *call) {
    struct access *access = (struct access *)call;
    sqrl_samples_release(access->got);
    sqrl_source_unref(access->source);
    sqrl_plan_unref(access->plan);
    free(access->indices);
    free(access->keys);
    free(access->texts);
    free(access);
}

static struct access *access_new(struct sqrl_source *source,
                                 void (*run)(struct ext_call *call)) {
    struct access *access = calloc(1, sizeof *access);
    if (access == NULL)
        PyErr_NoMemory();
    else
        *access = (struct access){.call = {.run = run, .drop = access_drop},
                                  .source = sqrl_source_ref(source)};
    return access;
}

static void run_count(struct ext_call *call) {
    struct access *access = (struct access *)call;
    access->samples = sqrl_source_samples(access->source);
    if (access->samples == SQRL_UNKNOWN) { /* says why */
        uint64_t shard, row;
        access->rc = sqrl_source_locate(access->source, 0, &shard, &row, &access->err);
    }
}

static void run_read(struct ext_call *call) {
    struct access *access = (struct access *)call;
    access->rc = sqrl_plan_get_many(access->plan, access->indices, access->count,
                                    &call->cancel, &access->got, &access->err);
}

static void run_find(struct ext_call *call) {
    struct access *access = (struct access *)call;
    access->rc = sqrl_source_find_many(access->source, access->keys, access->count,
                                       &call->cancel, access->indices, &access->err);
}

/* Raises what went wrong, and ends the call then; -1. */
static int access_run(struct ext_state *state, struct access *access, bool quick) {
    if (ext_call(state, &access->call, quick) < 0)
        return -1;
    if (access->rc == SQRL_OK)
        return 0;
    if (access->rc == SQRL_E_NOT_FOUND && access->call.run == run_find)
        PyErr_SetString(PyExc_KeyError, access->err.message);
    else
        ext_raise(state, &access->err);
    ext_call_end(&access->call);
    return -1;
}

/* Whether so many samples come in no time, as far as the sizes of the first shard tell.
 */
static bool is_quick(const struct sqrl_source *source, size_t count) {
    const struct sqrl_shard *shard = sqrl_source_shard(source, 0);
    if (!sqrl_source_local(source) || shard == NULL)
        return shard == NULL;
    uint64_t bytes =
        shard->raw_bytes == SQRL_UNKNOWN ? shard->file_bytes : shard->raw_bytes;
    if (shard->samples == 0 || shard->samples == SQRL_UNKNOWN)
        return count == 1;
    return count == 1 || count <= QUICK_BYTES / (bytes / shard->samples + 64);
}

/* Whether sample i of the plan is sample i of its source, and how many there are. */
static int check_plan(struct ext_state *state, PyObject *self, uint64_t *samples) {
    const struct sqrl_plan *plan = ext_plan_get(self);
    struct sqrl_source *source = sqrl_plan_get_source(plan);
    if (!sqrl_plan_keeps_positions(plan)) {
        PyErr_SetString(
            PyExc_TypeError,
            "samples have positions only behind select, drop and rename: take "
            "them from the stream in front of filter, shuffle_all, take, skip "
            "and batch");
        return -1;
    }
    if (*ext_plan_counted(self)) {
        *samples = sqrl_source_samples(source);
        return 0;
    }
    struct access *access = access_new(source, run_count);
    if (access == NULL || access_run(state, access, false) < 0)
        return -1;
    *samples = access->samples;
    *ext_plan_counted(self) = true;
    ext_call_end(&access->call);
    return 0;
}

int ext_source_count(struct ext_state *state, struct sqrl_source *source,
                     uint64_t *samples) {
    struct access *access = access_new(source, run_count);
    if (access == NULL || ext_call(state, &access->call, false) < 0)
        return -1;
    *samples = access->samples;
    ext_call_end(&access->call);
    return 0;
}

/* Takes the indices over; NULL with an exception. End the call behind the samples' use.
 */
static struct access *read_samples(struct ext_state *state, struct sqrl_plan *plan,
                                   struct indices *indices) {
    struct sqrl_source *source = sqrl_plan_get_source(plan);
    struct access *access = access_new(source, run_read);
    if (access != NULL) {
        access->plan = sqrl_plan_ref(plan);
        access->indices = indices->items;
        access->count = indices->count;
        indices->items = NULL;
        if (access_run(state, access, is_quick(source, access->count)) == 0)
            return access;
    }
    return NULL;
}

PyObject *ext_plan_get_one(PyObject *self, PyObject *index) {
    struct ext_state *state = ext_state_of(self);
    struct sqrl_plan *plan = ext_plan_get(self);
    struct indices one = {NULL, 1};
    uint64_t samples;
    if (check_plan(state, self, &samples) < 0)
        return NULL;
    one.items = malloc(sizeof *one.items);
    if (one.items == NULL)
        return PyErr_NoMemory();
    struct access *access = NULL;
    if (take_index(sqrl_plan_get_source(plan), index, samples, one.items) == 0)
        access = read_samples(state, plan, &one);
    free(one.items);
    if (access == NULL)
        return NULL;
    const struct sqrl_sample *got = access->got->samples;
    struct ext_builder builder;
    ext_builder_init(&builder, state, true, sqrl_plan_projection(plan));
    builder.tuples = ext_plan_tuples(self);
    PyObject *sample = ext_build_sample(&builder, got->block, got->index);
    ext_builder_reset(&builder);
    ext_call_end(&access->call);
    return sample;
}

/* str and bytes are taken as they are, integers as 64 bits. */
static int take_key(PyObject *object, struct sqrl_key *key) {
    *key = (struct sqrl_key){NULL, 0, 0};
    Py_ssize_t size;
    if (PyUnicode_Check(object)) {
        key->bytes = PyUnicode_AsUTF8AndSize(object, &size);
        key->size = (size_t)size;
        return key->bytes == NULL ? -1 : 0;
    }
    if (PyBytes_Check(object)) {
        key->bytes = PyBytes_AsString(object);
        key->size = (size_t)PyBytes_Size(object);
        return 0;
    }
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) {
        PyErr_Format(PyExc_TypeError, "a key is a text, bytes or an integer, not %R",
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    int overflow = 0;
    key->number = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow > 0)
        key->number = (int64_t)PyLong_AsUnsignedLongLong(number);
    if (overflow < 0 || PyErr_Occurred() != NULL) /* so no sample can have it */
        PyErr_SetString(PyExc_KeyError, "no sample has a key of more than 64 bits");
    Py_DECREF(number);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* Copies of the list's keys: the call may outlive the objects. */
static int take_keys(PyObject *list, struct access *access) {
    size_t count = (size_t)PyList_Size(list), bytes = 0, at = 0;
    access->count = count;
    access->keys = malloc((count + 1) * sizeof *access->keys);
    access->indices = malloc((count + 1) * sizeof *access->indices);
    if (access->keys == NULL || access->indices == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (take_key(PyList_GetItem(list, (Py_ssize_t)i), &access->keys[i]) < 0)
            return -1;
        bytes += access->keys[i].size;
    }
    access->texts = malloc(bytes + 1);
    if (access->texts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        struct sqrl_key *key = &access->keys[i];
        if (key->bytes == NULL)
            continue;
        memcpy(access->texts + at, key->bytes, key->size);
        key->bytes = access->texts + at;
        at += key->size;
    }
    return 0;
}

PyObject *ext_plan_find(PyObject *self, PyObject *object) {
    struct ext_state *state = ext_state_of(self);
    struct sqrl_source *source = sqrl_plan_get_source(ext_plan_get(self));
    uint64_t samples;
    if (check_plan(state, self, &samples) < 0)
        return NULL;
    PyObject *list = PySequence_List(object);
    if (list == NULL)
        return NULL;
    struct access *access = access_new(source, run_find);
    if (access != NULL && take_keys(list, access) < 0) {
        access_drop(&access->call);
        access = NULL;
    }
    Py_DECREF(list);
    bool quick = sqrl_source_local(source) && access != NULL && access->count == 1;
    if (access == NULL || access_run(state, access, quick) < 0)
        return NULL;
    PyObject *indices = PyList_New((Py_ssize_t)access->count);
    for (size_t i = 0; indices != NULL && i < access->count; i++) {
        PyObject *index = PyLong_FromUnsignedLongLong(access->indices[i]);
        if (index == NULL || PyList_SetItem(indices, (Py_ssize_t)i, index) < 0)
            Py_CLEAR(indices);
    }
    ext_call_end(&access->call);
    return indices;
}

PyObject *ext_plan_locate(PyObject *self, PyObject *object) {
    struct ext_state *state = ext_state_of(self);
    struct sqrl_plan *plan = ext_plan_get(self);
    struct sqrl_source *source = sqrl_plan_get_source(plan);
    struct sqrl_error err;
    uint64_t samples, index, shard, row;
    if (check_plan(state, self, &samples) < 0 ||
        take_index(source, object, samples, &index) < 0)
        return NULL;
    if (sqrl_source_locate(source, index, &shard, &row, &err) != SQRL_OK)
        return ext_raise(state, &err);
    return Py_BuildValue(
        "(NK)", PyUnicode_DecodeFSDefault(sqrl_source_shard(source, shard)->path),
        (unsigned long long)row);
}

PyObject *ext_plan_get_many(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"indices", "copy", NULL};
    struct ext_state *state = ext_state_of(self);
    struct sqrl_plan *plan = ext_plan_get(self);
    struct indices indices = {NULL, 0};
    struct access *access = NULL;
    PyObject *object, *list = NULL;
    uint64_t samples;
    int copy = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:get_many", keys, &object, &copy))
        return NULL;
    ext_share_cores(state);
    if (check_plan(state, self, &samples) == 0 &&
        take_indices(sqrl_plan_get_source(plan), object, samples, &indices) == 0)
        access = read_samples(state, plan, &indices);
    free(indices.items);
    if (access == NULL)
        return NULL;
    const struct sqrl_samples *got = access->got;
    struct ext_builder builder;
    ext_builder_init(&builder, state, copy != 0, sqrl_plan_projection(plan));
    builder.tuples = ext_plan_tuples(self);
    list = PyList_New((Py_ssize_t)got->count);
    for (size_t i = 0; list != NULL && i < got->count; i++) {
        PyObject *sample =
            ext_build_sample(&builder, got->samples[i].block, got->samples[i].index);
        if (sample == NULL || PyList_SetItem(list, (Py_ssize_t)i, sample) < 0)
            Py_CLEAR(list);
    }
    ext_builder_reset(&builder);
    ext_call_end(&access->call);
    return list;
}
