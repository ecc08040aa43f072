/* catalog.c - squirrel._native.Catalog: sources by name and version, without Python
 * objects.
 *
 * squirrel/catalog/catalog.py makes a source's objects when it is asked for, and keeps
 * them: they may be changed by whoever holds them. sync() takes over what they say before
 * anything looks at the catalog as a whole. */
#include "ext.h"

#include <stdlib.h>

struct catalog {
    PyObject_HEAD struct sqrl_catalog *catalog;
    struct ext_builder *builder; /* made when first needed; its keys are shared */
};

static struct sqrl_catalog *get(PyObject *self) {
    return ((struct catalog *)self)->catalog;
}

/* A new object; steals the catalog. */
static PyObject *wrap(PyTypeObject *type, struct sqrl_catalog *catalog) {
    struct catalog *self = (struct catalog *)ext_alloc(type);
    if (self == NULL)
        sqrl_catalog_free(catalog);
    else
        self->catalog = catalog;
    return (PyObject *)self;
}

static PyObject *catalog_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    struct ext_state *state = PyType_GetModuleState(type);
    struct sqrl_catalog *catalog;
    struct sqrl_error err;
    if (!PyArg_ParseTuple(args, ""))
        return NULL;
    if (sqrl_catalog_new(&catalog, &err) != SQRL_OK)
        return ext_raise(state, &err);
    return wrap(type, catalog);
}

static void catalog_dealloc(PyObject *op) {
    struct catalog *self = (struct catalog *)op;
    sqrl_catalog_free(self->catalog);
    if (self->builder != NULL)
        ext_builder_reset(self->builder);
    free(self->builder);
    ext_free(op);
}

/* --- files --- */

/* Reads into a catalog of its own, so that other threads may go on meanwhile, and puts it
 * in place of the empty one. */
static PyObject *take_read(PyObject *self, struct sqrl_catalog *read, int code,
                           struct sqrl_error *err) {
    struct catalog *catalog = (struct catalog *)self;
    if (code != SQRL_OK) {
        sqrl_catalog_free(read);
        return ext_raise(ext_state_of(self), err);
    }
    sqrl_catalog_free(catalog->catalog);
    catalog->catalog = read;
    Py_RETURN_NONE;
}

static PyObject *catalog_read(PyObject *self, PyObject *args) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *read = NULL;
    const char *text, *where;
    Py_ssize_t size;
    int json, code;
    if (!PyArg_ParseTuple(args, "s#sp", &text, &size, &where, &json))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    code = sqrl_catalog_new(&read, &err);
    if (code == SQRL_OK)
        code =
            sqrl_catalog_read(read, text, (size_t)size,
                              json ? SQRL_CATALOG_JSON : SQRL_CATALOG_YAML, where, &err);
    Py_END_ALLOW_THREADS
    return take_read(self, read, code, &err);
}

static PyObject *catalog_read_file(PyObject *self, PyObject *args) {
    struct sqrl_context *context = ext_context(ext_state_of(self));
    struct sqrl_error err = {0};
    struct sqrl_catalog *read = NULL;
    const char *path;
    int code;
    if (context == NULL || !PyArg_ParseTuple(args, "s", &path))
        return NULL;
    sqrl_context_ref(context);
    Py_BEGIN_ALLOW_THREADS
    code = sqrl_catalog_new(&read, &err);
    if (code == SQRL_OK)
        code = sqrl_catalog_read_file(read, context, path, &err);
    sqrl_context_unref(context);
    Py_END_ALLOW_THREADS
    return take_read(self, read, code, &err);
}

static PyObject *catalog_write(PyObject *self, PyObject *args) {
    struct sqrl_error err = {0};
    struct sqrl_bytes text = {0};
    PyObject *result = NULL;
    int json;
    if (!PyArg_ParseTuple(args, "p", &json))
        return NULL;
    if (sqrl_catalog_write(get(self), json ? SQRL_CATALOG_JSON : SQRL_CATALOG_YAML, &text,
                           &err) != SQRL_OK)
        ext_raise(ext_state_of(self), &err);
    else
        result =
            PyUnicode_FromStringAndSize((const char *)text.data, (Py_ssize_t)text.size);
    sqrl_bytes_reset(&text);
    return result;
}

static PyObject *catalog_write_file(PyObject *self, PyObject *args) {
    struct sqrl_context *context = ext_context(ext_state_of(self));
    struct sqrl_error err = {0};
    const char *path;
    if (context == NULL || !PyArg_ParseTuple(args, "s", &path))
        return NULL;
    if (sqrl_catalog_write_file(get(self), context, path, true, &err) != SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    Py_RETURN_NONE;
}

/* --- sources --- */

static PyObject *catalog_find(PyObject *op, PyObject *args) {
    struct catalog *self = (struct catalog *)op;
    struct sqrl_catalog_source source;
    const char *name;
    long long version;
    if (!PyArg_ParseTuple(args, "sL", &name, &version))
        return NULL;
    if (sqrl_catalog_find(self->catalog, name, version, &source, NULL) != SQRL_OK)
        Py_RETURN_NONE;
    if (self->builder == NULL) {
        self->builder = malloc(sizeof *self->builder);
        if (self->builder == NULL)
            return PyErr_NoMemory();
        ext_builder_init(self->builder, ext_state_of(op), true, NULL);
        self->builder->catalog_keys = true;
    }
    PyObject *kwargs =
        ext_build_node(self->builder, source.kwargs, 0, source.bytes, NULL);
    PyObject *metadata = kwargs == NULL ? NULL
                                        : ext_build_node(self->builder, source.metadata,
                                                         0, source.bytes, NULL);
    if (metadata == NULL) {
        Py_XDECREF(kwargs);
        return NULL;
    }
    return Py_BuildValue("(KsNN)", (unsigned long long)source.version, source.driver_name,
                         kwargs, metadata);
}

/* The version, -1 for the latest; 0 where it is not there. */
static PyObject *catalog_resolve(PyObject *self, PyObject *args) {
    struct sqrl_catalog_source source;
    const char *name;
    long long version;
    if (!PyArg_ParseTuple(args, "sL", &name, &version))
        return NULL;
    if (version == 0 ||
        sqrl_catalog_find(get(self), name, version, &source, NULL) != SQRL_OK)
        return PyLong_FromLong(0);
    return PyLong_FromUnsignedLongLong(source.version);
}

static PyObject *catalog_missing(PyObject *self, PyObject *args) {
    struct sqrl_catalog_source source;
    struct sqrl_error err = {0};
    const char *name;
    long long version;
    if (!PyArg_ParseTuple(args, "sL", &name, &version))
        return NULL;
    if (sqrl_catalog_find(get(self), name, version, &source, &err) == SQRL_OK)
        /* The library takes 0 for the latest version; Python's catalogs do not. */
        return PyUnicode_FromFormat(
            "source \"%s\" has no version %lld: versions begin with 1", name, version);
    return PyUnicode_DecodeUTF8(err.message, (Py_ssize_t)strlen(err.message), "replace");
}

static PyObject *catalog_versions(PyObject *self, PyObject *args) {
    struct sqrl_catalog_source source;
    const char *name, *first = NULL;
    uint64_t cursor;
    PyObject *list = NULL;
    if (!PyArg_ParseTuple(args, "s", &name) || (list = PyList_New(0)) == NULL)
        return NULL;
    if (sqrl_catalog_seek(get(self), name, &cursor, NULL) != SQRL_OK)
        return list;
    while (sqrl_catalog_next(get(self), &cursor, &source)) {
        first = first == NULL ? source.name : first;
        if (source.name != first)
            break;
        PyObject *version = PyLong_FromUnsignedLongLong(source.version);
        int rc = version == NULL ? -1 : PyList_Append(list, version);
        Py_XDECREF(version);
        if (rc < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *catalog_names(PyObject *self, PyObject *unused) {
    struct sqrl_catalog_source source;
    const char *before = NULL;
    PyObject *list = PyList_New((Py_ssize_t)sqrl_catalog_names(get(self)));
    Py_ssize_t at = 0;
    for (uint64_t cursor = 0;
         list != NULL && sqrl_catalog_next(get(self), &cursor, &source);) {
        if (source.name == before)
            continue;
        before = source.name;
        PyObject *name = PyUnicode_FromString(source.name);
        if (name == NULL || PyList_SetItem(list, at++, name) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static Py_ssize_t catalog_length(PyObject *self) {
    return (Py_ssize_t)sqrl_catalog_names(get(self));
}

/* A note with the source's name on the exception that is set. */
static void note_source(PyObject *name) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *done = PyObject_CallMethod(
        value, "add_note", "N",
        PyUnicode_FromFormat(
            "in source %R; a catalog as a whole holds what YAML can hold", name));
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}

/* What is kept from source to source. */
struct sync {
    PyObject *attribute[3]; /* driver_name, driver_kwargs, metadata */
    struct sqrl_bytes kwargs, metadata;
};

static int begin_sync(struct sync *sync) {
    static const char *const names[3] = {"driver_name", "driver_kwargs", "metadata"};
    memset(sync, 0, sizeof *sync);
    for (int i = 0; i < 3; i++)
        if ((sync->attribute[i] = PyUnicode_InternFromString(names[i])) == NULL)
            return -1;
    return 0;
}

static void end_sync(struct sync *sync) {
    for (int i = 0; i < 3; i++)
        Py_XDECREF(sync->attribute[i]);
    sqrl_bytes_reset(&sync->kwargs);
    sqrl_bytes_reset(&sync->metadata);
}

/* A dict as MessagePack; None is nothing. */
static int encode_part(struct ext_state *state, struct sqrl_bytes *out, PyObject *value) {
    out->size = 0;
    return value == Py_None ? 0 : ext_encode_catalog(state, out, value);
}

static bool is_same(const struct sqrl_catalog_source *old, const struct sync *sync,
                    const char *driver) {
    const struct sqrl_bytes *kwargs = &sync->kwargs, *metadata = &sync->metadata;
    return kwargs->size && metadata->size && kwargs->size == old->kwargs_size &&
           metadata->size == old->metadata_size &&
           memcmp(kwargs->data, old->bytes, kwargs->size) == 0 &&
           memcmp(metadata->data, old->bytes + kwargs->size, metadata->size) == 0 &&
           strcmp(old->driver_name, driver) == 0;
}

static int take_parts(PyObject *self, struct sync *sync, const char *name,
                      uint64_t version, PyObject *const *part) {
    struct ext_state *state = ext_state_of(self);
    struct sqrl_bytes *kwargs = &sync->kwargs, *metadata = &sync->metadata;
    struct sqrl_catalog_source old;
    struct sqrl_error err = {0};
    const char *driver = PyUnicode_AsUTF8AndSize(part[0], NULL);
    if (driver == NULL || encode_part(state, kwargs, part[1]) < 0 ||
        encode_part(state, metadata, part[2]) < 0)
        return -1;
    if (sqrl_catalog_find(get(self), name, (int64_t)version, &old, NULL) == SQRL_OK &&
        is_same(&old, sync, driver))
        return 0;
    if (sqrl_catalog_set(get(self), name, version, driver,
                         kwargs->size ? kwargs->data : NULL, kwargs->size,
                         metadata->size ? metadata->data : NULL, metadata->size,
                         &err) == SQRL_OK)
        return 0;
    ext_raise(state, &err);
    return -1;
}

static int take_source(PyObject *self, struct sync *sync, const char *name,
                       uint64_t version, PyObject *source) {
    PyObject *part[3] = {NULL, NULL, NULL};
    int rc = 0;
    /* A source that is kept has its fields: its __getattr__ is not asked. */
    for (int i = 0; i < 3 && rc == 0; i++) {
        part[i] = PyObject_GenericGetAttr(source, sync->attribute[i]);
        rc = part[i] == NULL ? -1 : 0;
    }
    if (rc == 0)
        rc = take_parts(self, sync, name, version, part);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(part[i]);
    return rc;
}

static PyObject *catalog_put(PyObject *self, PyObject *args) {
    struct sqrl_catalog_source added;
    struct sqrl_error err = {0};
    struct sync sync;
    const char *name;
    unsigned long long version;
    PyObject *source;
    if (!PyArg_ParseTuple(args, "sKO", &name, &version, &source))
        return NULL;
    if (sqrl_catalog_set(get(self), name, version, "-", NULL, 0, NULL, 0, &err) !=
        SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    /* 0 was the one above the latest: it is the latest now. */
    if (version == 0 && sqrl_catalog_find(get(self), name, -1, &added, NULL) == SQRL_OK)
        version = added.version;
    /* What can't be taken over may still be changed: sync() says it if it is not. */
    if (begin_sync(&sync) < 0 || take_source(self, &sync, name, version, source) < 0)
        PyErr_Clear();
    end_sync(&sync);
    return PyLong_FromUnsignedLongLong(version);
}

static int sync_pair(PyObject *self, struct sync *sync, PyObject *key, PyObject *source) {
    PyObject *name = PyTuple_GetItem(key, 0), *version = PyTuple_GetItem(key, 1);
    const char *text =
        name == NULL || version == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL)
        return -1;
    int rc = take_source(self, sync, text, PyLong_AsUnsignedLongLong(version), source);
    if (rc < 0)
        note_source(name);
    return rc;
}

/* No list of the items: so many new tuples would set off a full garbage collection. The
 * dict may grow meanwhile, by Python code that odd values run: what is new in it was just
 * made from the catalog. */
static PyObject *catalog_sync(PyObject *self, PyObject *live) {
    struct sync sync;
    PyObject *key, *source;
    Py_ssize_t at = 0;
    int rc = begin_sync(&sync);
    while (rc == 0 && PyDict_Next(live, &at, &key, &source)) {
        Py_INCREF(key);
        Py_INCREF(source);
        rc = sync_pair(self, &sync, key, source);
        Py_DECREF(source);
        Py_DECREF(key);
    }
    end_sync(&sync);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *catalog_remove(PyObject *self, PyObject *args) {
    struct sqrl_error err = {0};
    const char *name;
    long long version;
    if (!PyArg_ParseTuple(args, "sL", &name, &version))
        return NULL;
    if (sqrl_catalog_remove(get(self), name, version, &err) != SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    Py_RETURN_NONE;
}

/* --- set algebra --- */

typedef int (*combine_fn)(const struct sqrl_catalog *, const struct sqrl_catalog *,
                          struct sqrl_catalog **, struct sqrl_error *);

static PyObject *result(PyObject *self, struct sqrl_catalog *made, int code,
                        struct sqrl_error *err) {
    return code != SQRL_OK ? ext_raise(ext_state_of(self), err)
                           : wrap(Py_TYPE(self), made);
}

static bool check_other(PyObject *self, PyObject *other) {
    if (PyObject_TypeCheck(other, Py_TYPE(self)))
        return true;
    PyErr_SetString(PyExc_TypeError, "the other one is no catalog");
    return false;
}

static PyObject *combine(PyObject *self, PyObject *other, combine_fn with) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *made = NULL;
    if (!check_other(self, other))
        return NULL;
    int code = with(get(self), get(other), &made, &err);
    return result(self, made, code, &err);
}

static PyObject *catalog_union(PyObject *self, PyObject *args) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *made = NULL;
    PyObject *other;
    int conflict;
    if (!PyArg_ParseTuple(args, "Oi", &other, &conflict) || !check_other(self, other))
        return NULL;
    int code = sqrl_catalog_union(get(self), get(other),
                                  (enum sqrl_catalog_conflict)conflict, &made, &err);
    return result(self, made, code, &err);
}

static PyObject *catalog_join(PyObject *self, PyObject *other) {
    return combine(self, other, sqrl_catalog_join);
}
static PyObject *catalog_intersection(PyObject *self, PyObject *other) {
    return combine(self, other, sqrl_catalog_intersection);
}
static PyObject *catalog_symmetric_difference(PyObject *self, PyObject *other) {
    return combine(self, other, sqrl_catalog_symmetric_difference);
}
static PyObject *catalog_subtract(PyObject *self, PyObject *other) {
    return combine(self, other, sqrl_catalog_subtract);
}

static PyObject *catalog_copy(PyObject *self, PyObject *unused) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *made = NULL;
    int code = sqrl_catalog_copy(get(self), &made, &err);
    return result(self, made, code, &err);
}

static PyObject *catalog_equal(PyObject *self, PyObject *other) {
    if (!check_other(self, other))
        return NULL;
    return PyBool_FromLong(sqrl_catalog_equal(get(self), get(other)));
}

static PyObject *catalog_slice(PyObject *self, PyObject *names) {
    struct sqrl_error err = {0};
    struct sqrl_catalog *made = NULL;
    Py_ssize_t count = PyList_Size(names);
    const char **texts = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *texts);
    if (texts == NULL)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++)
        if ((texts[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(names, i), NULL)) ==
            NULL) {
            free(texts);
            return NULL;
        }
    int code = sqrl_catalog_slice(get(self), texts, (size_t)count, &made, &err);
    free(texts);
    if (code == SQRL_E_NOT_FOUND) {
        PyErr_SetString(PyExc_KeyError, err.message);
        return NULL;
    }
    return result(self, made, code, &err);
}

/* --- the user's catalogs: functions of the module --- */

static int add_place(void *arg, const struct sqrl_catalog_place *place,
                     struct sqrl_error *err) {
    PyObject *item =
        Py_BuildValue("(NNI)", PyUnicode_DecodeFSDefault(place->url),
                      PyUnicode_DecodeFSDefault(place->origin), (unsigned)place->line);
    int rc = item == NULL ? -1 : PyList_Append(arg, item);
    Py_XDECREF(item);
    return rc < 0 ? sqrl_error_set(err, SQRL_E_USER, "a list can't grow") : SQRL_OK;
}

PyObject *ext_catalog_places(PyObject *module, PyObject *unused) {
    struct ext_state *state = PyModule_GetState(module);
    struct sqrl_context *context = ext_context(state);
    struct sqrl_error err = {0};
    PyObject *list = context == NULL ? NULL : PyList_New(0);
    if (list == NULL)
        return NULL;
    if (sqrl_catalog_places(context, add_place, list, &err) == SQRL_OK)
        return list;
    Py_DECREF(list);
    return PyErr_Occurred() ? NULL : ext_raise(state, &err);
}

PyObject *ext_catalog_subscribe(PyObject *module, PyObject *args) {
    struct ext_state *state = PyModule_GetState(module);
    struct sqrl_context *context = ext_context(state);
    struct sqrl_error err = {0};
    const char *url;
    int add;
    bool changed;
    if (context == NULL || !PyArg_ParseTuple(args, "sp", &url, &add))
        return NULL;
    int code = (add ? sqrl_catalog_subscribe : sqrl_catalog_unsubscribe)(context, url,
                                                                         &changed, &err);
    return code != SQRL_OK ? ext_raise(state, &err) : PyBool_FromLong(changed);
}

#define METHOD(name, flags, signature, doc)                                              \
    { #name, (PyCFunction)catalog_##name, flags, #name signature "\n--\n\n" doc }

static PyMethodDef catalog_methods[] = {
    METHOD(read, METH_VARARGS, "($self, text, where, json, /)",
           "Reads text in place of what is there."),
    METHOD(read_file, METH_VARARGS, "($self, path, /)",
           "Reads a file in place of what is there."),
    METHOD(write, METH_VARARGS, "($self, json, /)", "The text."),
    METHOD(write_file, METH_VARARGS, "($self, path, /)", "Writes a file, whole."),
    METHOD(find, METH_VARARGS, "($self, name, version, /)",
           "(version, driver_name, driver_kwargs, metadata) or None; -1: the latest."),
    METHOD(resolve, METH_VARARGS, "($self, name, version, /)",
           "The version (-1: the latest), 0 where it is not there."),
    METHOD(missing, METH_VARARGS, "($self, name, version, /)",
           "What there is instead; None when it is there."),
    METHOD(versions, METH_VARARGS, "($self, name, /)", "As they were added."),
    METHOD(names, METH_NOARGS, "($self, /)", "As they were added."),
    METHOD(put, METH_VARARGS, "($self, name, version, source, /)",
           "Sets a version (0: the next one) and returns which one."),
    METHOD(sync, METH_O, "($self, live, /)",
           "Takes over sources from a dict of (name, version) to Source."),
    METHOD(remove, METH_VARARGS, "($self, name, version, /)",
           "Removes a version; 0: all of the name."),
    METHOD(union, METH_VARARGS, "($self, other, conflict, /)",
           "conflict: 0 error, 1 ours, 2 theirs."),
    METHOD(join, METH_O, "($self, other, /)", "A union of what has none in common."),
    METHOD(intersection, METH_O, "($self, other, /)", "What is in both."),
    METHOD(symmetric_difference, METH_O, "($self, other, /)", "What is in one only."),
    METHOD(subtract, METH_O, "($self, other, /)", "What is not in the other."),
    METHOD(copy, METH_NOARGS, "($self, /)", "A catalog of its own."),
    METHOD(equal, METH_O, "($self, other, /)", "Whether both hold the same."),
    METHOD(slice, METH_O, "($self, names, /)", "All versions of a list of names."),
    {NULL, NULL, 0, NULL}};

static PyType_Slot catalog_slots[] = {
    {Py_tp_new, catalog_new},
    {Py_tp_dealloc, catalog_dealloc},
    {Py_tp_doc, "Catalog()\n--\n\nSources by name and version."},
    {Py_mp_length, catalog_length},
    {Py_tp_methods, catalog_methods},
    {0, NULL}};
PyType_Spec ext_catalog_spec = {.name = "squirrel._native.Catalog",
                                .basicsize = sizeof(struct catalog),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = catalog_slots};
