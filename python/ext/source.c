/* source.c - squirrel._native.Source: what a driver opened. */
#include "ext.h"

#include <stdlib.h>

struct source {
    PyObject_HEAD struct sqrl_source *source;
    bool tuples;
};

PyObject *ext_source_new(struct ext_state *state, struct sqrl_source *source,
                         bool tuples) {
    struct source *self = (struct source *)ext_alloc(state->type[EXT_SOURCE]);
    if (self == NULL) {
        sqrl_source_unref(source);
        return NULL;
    }
    self->source = source;
    self->tuples = tuples;
    return (PyObject *)self;
}

static struct sqrl_source *source_get(PyObject *self) {
    return ((struct source *)self)->source;
}

static void source_dealloc(PyObject *self) {
    sqrl_source_unref(source_get(self));
    ext_free(self);
}

static PyObject *count_or_none(uint64_t count) {
    if (count == SQRL_UNKNOWN)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(count);
}

static PyObject *source_url(PyObject *self, void *unused) {
    return PyUnicode_DecodeFSDefault(sqrl_source_url(source_get(self)));
}
static PyObject *source_driver(PyObject *self, void *unused) {
    return PyUnicode_FromString(sqrl_source_driver(source_get(self)));
}
static PyObject *source_listed(PyObject *self, void *unused) {
    const char *listed = sqrl_source_listed(source_get(self));
    if (listed == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(listed);
}
static PyObject *source_shards(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLongLong(sqrl_source_shards(source_get(self)));
}
static PyObject *source_samples(PyObject *self, void *unused) {
    uint64_t samples;
    return ext_source_count(ext_state_of(self), source_get(self), &samples) < 0
               ? NULL
               : count_or_none(samples);
}

static PyObject *source_shard(PyObject *self, PyObject *arg) {
    unsigned long long index = PyLong_AsUnsignedLongLong(arg);
    if (index == (unsigned long long)-1 && PyErr_Occurred() != NULL)
        return NULL;
    const struct sqrl_shard *shard = sqrl_source_shard(source_get(self), index);
    if (shard == NULL) {
        PyErr_SetString(PyExc_IndexError, "no such shard");
        return NULL;
    }
    return Py_BuildValue("{s:N,s:K,s:N,s:N,s:s}", "path",
                         PyUnicode_DecodeFSDefault(shard->path), "file_bytes",
                         (unsigned long long)shard->file_bytes, "samples",
                         count_or_none(shard->samples), "raw_bytes",
                         count_or_none(shard->raw_bytes), "format", shard->format->name);
}

static PyObject *source_groups(PyObject *self, PyObject *unused) {
    return ext_source_groups(source_get(self));
}

static PyObject *shape_tuple(const struct sqrl_field *field) {
    PyObject *shape = PyTuple_New((Py_ssize_t)field->dims);
    for (uint32_t i = 0; shape != NULL && i < field->dims; i++) {
        PyObject *length;
        if (field->kind == SQRL_KIND_DENSE) {
            length = PyLong_FromUnsignedLongLong(field->shape[i]);
        } else {
            length = Py_None;
            Py_INCREF(length);
        }
        if (length == NULL || PyTuple_SetItem(shape, (Py_ssize_t)i, length) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *field_dict(const struct sqrl_field *field) {
    static const char *const kinds[] = {"null",   "dense",  "ragged",
                                        "string", "binary", "other"};
    char type[256];
    sqrl_field_type_text(field, type, sizeof type);
    bool array = field->kind == SQRL_KIND_DENSE || field->kind == SQRL_KIND_RAGGED;
    return Py_BuildValue(
        "{s:s,s:s,s:s,s:z,s:N,s:N}", "name", field->name, "type", type, "kind",
        kinds[field->kind], "dtype", array ? sqrl_dtype_name(field->dtype) : NULL,
        "shape", shape_tuple(field), "nullable", PyBool_FromLong(field->nullable));
}

static PyObject *source_schema(PyObject *self, PyObject *unused) {
    const struct sqrl_schema *schema = NULL;
    struct sqrl_error err;
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_source_schema(source_get(self), &schema, &err);
    Py_END_ALLOW_THREADS
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    if (schema == NULL)
        Py_RETURN_NONE;
    PyObject *fields = PyList_New(0);
    for (uint32_t i = 0; fields != NULL && i < schema->count; i++) {
        PyObject *field = field_dict(&schema->fields[i]);
        if (field == NULL || PyList_Append(fields, field) < 0)
            Py_CLEAR(fields);
        Py_XDECREF(field);
    }
    return fields;
}

static PyObject *source_metrics(PyObject *self, PyObject *unused) {
    typedef unsigned long long number;
    struct sqrl_fs_metrics m;
    sqrl_source_metrics(source_get(self), &m);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "requests", (number)m.requests,
        "lists", (number)m.lists, "bytes", (number)m.bytes, "retries", (number)m.retries,
        "hedges", (number)m.hedges, "cache_hits", (number)m.cache_hits, "cache_bytes",
        (number)m.cache_bytes, "first_byte_ns", (number)m.first_byte_ns, "first_bytes",
        (number)m.first_bytes, "parallel_most", (number)m.parallel_most);
}

static PyObject *source_plan(PyObject *self, PyObject *unused) {
    struct ext_state *state = ext_state_of(self);
    struct sqrl_plan *plan = NULL;
    struct sqrl_error err;
    if (sqrl_plan_source(source_get(self), &plan, &err) != SQRL_OK)
        return ext_raise(state, &err);
    return ext_plan_new(state, plan, ((struct source *)self)->tuples);
}

static PyObject *source_key_field(PyObject *self, void *unused) {
    char *field = NULL;
    struct sqrl_error err;
    if (sqrl_source_key_field(source_get(self), &field, &err) != SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    if (field == NULL)
        Py_RETURN_NONE;
    PyObject *text = PyUnicode_FromString(field);
    free(field);
    return text;
}

static PyGetSetDef source_getset[] = {
    {"key_field", source_key_field, NULL,
     "The field that is the key, or None for shards without keys.", NULL},
    {"url", source_url, NULL, "What was opened.", NULL},
    {"listed", source_listed, NULL,
     "What opening it listed far away, for another opening's option of that name; or "
     "None.",
     NULL},
    {"driver", source_driver, NULL, "Name of the driver that opened it.", NULL},
    {"shards", source_shards, NULL, "Number of shards.", NULL},
    {"samples", source_samples, NULL,
     "Number of samples, or None when only reading tells.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef source_methods[] = {
    {"shard", source_shard, METH_O,
     "shard($self, index, /)\n--\n\nOne shard: path, file_bytes, samples, raw_bytes, "
     "format."},
    {"schema", source_schema, METH_NOARGS,
     "schema($self, /)\n--\n\nThe fields as a list of dicts, or None when only reading "
     "tells."},
    {"groups", source_groups, METH_NOARGS,
     "groups($self, /)\n--\n\nThe groups of fields as a list of dicts, the base first; "
     "empty when samples are kept whole."},
    {"metrics", source_metrics, METH_NOARGS,
     "metrics($self, /)\n--\n\nThe fields of sqrl_fs_metrics, as a dict."},
    {"plan", source_plan, METH_NOARGS,
     "plan($self, /)\n--\n\nA plan that reads all samples."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot source_slots[] = {
    {Py_tp_dealloc, source_dealloc},
    {Py_tp_doc, "Shards that a driver opened; immutable."},
    {Py_tp_getset, source_getset},
    {Py_tp_methods, source_methods},
    {0, NULL}};
PyType_Spec ext_source_spec = {.name = "squirrel._native.Source",
                               .basicsize = sizeof(struct source),
                               .flags =
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = source_slots};
