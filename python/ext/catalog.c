/* catalog.c - squirrel._native.Catalog: sources by name and version, without Python
 * objects.
 *
 * squirrel/catalog/catalog.py makes a source's objects when it is asked for, and keeps
 * them: they may be changed by whoever holds them. sync() takes over what they say before
 * anything looks at the catalog as a whole. */
#include "catalog.h"

#include <stdlib.h>

struct catalog {
    PyObject_HEAD struct sqrl_catalog *catalog;
    struct ext_builder *builder; /* made when first needed; its keys are shared */
    PyObject *field[3];          /* names of attributes, made when first needed */
};

static struct sqrl_catalog *get(PyObject *self) {
    return ((struct catalog *)self)->catalog;
}

struct sqrl_catalog *ext_catalog_get(PyObject *self) {
    return get(self);
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
    for (int i = 0; i < 3; i++)
        Py_XDECREF(self->field[i]);
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
    int json, untrusted, code;
    if (!PyArg_ParseTuple(args, "s#spp", &text, &size, &where, &json, &untrusted))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    code = sqrl_catalog_new(&read, &err);
    if (code == SQRL_OK) {
        sqrl_catalog_distrust(read, untrusted);
        code =
            sqrl_catalog_read(read, text, (size_t)size,
                              json ? SQRL_CATALOG_JSON : SQRL_CATALOG_YAML, where, &err);
        sqrl_catalog_distrust(read, false);
    }
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

/* The names of the attributes that say who a source is (borrowed). */
static PyObject *field_name(struct catalog *self, int i) {
    static const char *const fields[3] = {"_catalog", "_identifier", "_version"};
    if (self->field[i] == NULL)
        self->field[i] = PyUnicode_InternFromString(fields[i]);
    return self->field[i];
}

/* An object of a source without its fields: only who it is. */
static PyObject *make_source(struct catalog *self, PyObject *type, PyObject *const *is) {
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)type, 0);
    for (int i = 0; made != NULL && i < 3; i++) {
        PyObject *name = field_name(self, i);
        if (name == NULL || PyObject_GenericSetAttr(made, name, is[i]) < 0)
            Py_CLEAR(made);
    }
    return made;
}

/* The object that is kept (borrowed), or NULL; then an exception may be set. One that has
 * become the latest moves over to `latest`. */
static PyObject *kept_source(PyObject *latest, PyObject *made, PyObject *name,
                             PyObject *key, bool is_latest) {
    PyObject *source = is_latest ? PyDict_GetItemWithError(latest, name) : NULL;
    if (source != NULL || PyErr_Occurred() != NULL)
        return source;
    source = PyDict_GetItemWithError(made, key);
    if (source == NULL || !is_latest)
        return source;
    if (PyDict_SetItem(latest, name, source) < 0 || PyDict_DelItem(made, key) < 0)
        return NULL;
    return source;
}

/* locate(owner, latest, made, type, name, version): the object of a source. `latest`
 * keeps the latest versions by name, `made` others by (name, version): objects that no
 * tuple stands beside are half the garbage collector's work. None where it is not there.
 */
static PyObject *catalog_locate(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    struct sqrl_catalog_source found, last;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "locate() takes 6 arguments");
        return NULL;
    }
    PyObject *owner = args[0], *latest = args[1], *made = args[2], *name = args[4];
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    long long version = text == NULL ? -1 : PyLong_AsLongLong(args[5]);
    if (text == NULL || (version == -1 && PyErr_Occurred() != NULL))
        return NULL;
    if (version == 0 ||
        sqrl_catalog_find(get(self), text, version, &found, NULL) != SQRL_OK)
        Py_RETURN_NONE;
    bool is_latest = version == -1 ||
                     (sqrl_catalog_find(get(self), text, -1, &last, NULL) == SQRL_OK &&
                      last.version == found.version);
    PyObject *number = PyLong_FromUnsignedLongLong(found.version);
    PyObject *key = number == NULL ? NULL : PyTuple_Pack(2, name, number);
    PyObject *source =
        key == NULL ? NULL : kept_source(latest, made, name, key, is_latest);
    Py_XINCREF(source);
    if (key != NULL && source == NULL && PyErr_Occurred() == NULL) {
        PyObject *const is[3] = {owner, name, number};
        source = make_source((struct catalog *)self, args[3], is);
        if (source != NULL &&
            PyDict_SetItem(is_latest ? latest : made, is_latest ? name : key, source) < 0)
            Py_CLEAR(source);
    }
    Py_XDECREF(key);
    Py_XDECREF(number);
    return source;
}

/* Whether a source came from another machine; false where it is not there. */
static PyObject *catalog_untrusted(PyObject *self, PyObject *args) {
    struct sqrl_catalog_source source;
    const char *name;
    long long version;
    if (!PyArg_ParseTuple(args, "sL", &name, &version))
        return NULL;
    return PyBool_FromLong(sqrl_catalog_find(get(self), name, version, &source, NULL) ==
                               SQRL_OK &&
                           source.untrusted);
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

static PyObject *catalog_put(PyObject *self, PyObject *args) {
    struct sqrl_catalog_source added;
    struct sqrl_error err = {0};
    struct ext_sync sync;
    const char *name;
    unsigned long long version;
    PyObject *source;
    int untrusted;
    if (!PyArg_ParseTuple(args, "sKOp", &name, &version, &source, &untrusted))
        return NULL;
    sqrl_catalog_distrust(get(self), untrusted);
    int code = sqrl_catalog_set(get(self), name, version, "-", NULL, 0, NULL, 0, &err);
    sqrl_catalog_distrust(get(self), false);
    if (code != SQRL_OK)
        return ext_raise(ext_state_of(self), &err);
    /* 0 was the one above the latest: it is the latest now. */
    if (version == 0 && sqrl_catalog_find(get(self), name, -1, &added, NULL) == SQRL_OK)
        version = added.version;
    /* What can't be taken over may still be changed: sync() says it if it is not. */
    if (ext_sync_begin(&sync) < 0 ||
        ext_sync_source(self, &sync, name, version, source, true) < 0)
        PyErr_Clear();
    ext_sync_end(&sync);
    return PyLong_FromUnsignedLongLong(version);
}

/* An object with the fields of `source`, and who it is. */
static PyObject *make_like(struct catalog *self, PyObject *type, PyObject *const *is,
                           PyObject *source) {
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)type, 0);
    PyObject *from = made == NULL ? NULL : PyObject_GenericGetDict(source, NULL);
    PyObject *to = from == NULL ? NULL : PyObject_GenericGetDict(made, NULL);
    int rc = to == NULL ? -1 : PyDict_Update(to, from);
    for (int i = 0; rc == 0 && i < 3; i++) {
        PyObject *name = field_name(self, i);
        rc = name == NULL ? -1 : PyDict_SetItem(to, name, is[i]);
    }
    if (rc < 0)
        Py_CLEAR(made);
    Py_XDECREF(to);
    Py_XDECREF(from);
    return made;
}

/* What the source says is taken over by the next sync(). */
static int adopt_source(PyObject *self, PyObject *const *args, PyObject *key,
                        PyObject *source) {
    struct sqrl_error err = {0};
    PyObject *const is[3] = {args[0], PyTuple_GetItem(key, 0), PyTuple_GetItem(key, 1)};
    const char *name = is[1] == NULL ? NULL : PyUnicode_AsUTF8AndSize(is[1], NULL);
    unsigned long long version =
        name == NULL || is[2] == NULL ? 0 : PyLong_AsUnsignedLongLong(is[2]);
    if (PyErr_Occurred() != NULL)
        return -1;
    if (sqrl_catalog_add(get(self), name, version, "-", NULL, 0, NULL, 0, &err) !=
        SQRL_OK) {
        ext_raise(ext_state_of(self), &err);
        return -1;
    }
    PyObject *made = make_like((struct catalog *)self, args[3], is, source);
    int rc = made != NULL && PyDict_SetItem(args[1], key, made) == 0 &&
                     PyDict_SetItem(args[2], key, made) == 0
                 ? 0
                 : -1;
    Py_XDECREF(made);
    return rc;
}

/* adopt(owner, made, live, type, sources): adds many sources, as (name, version) and a
 * Source with nothing but its fields; none of them is there. */
static PyObject *catalog_adopt(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "adopt() takes 5 arguments");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(args[4]); i++) {
        PyObject *pair = PyList_GetItem(args[4], i), *key, *source;
        if (!PyArg_ParseTuple(pair, "O!O", &PyTuple_Type, &key, &source) ||
            adopt_source(self, args, key, source) < 0)
            return NULL;
    }
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

/* open(name, version): what a source names, opened by one of the library's drivers. */
static PyObject *catalog_open(PyObject *self, PyObject *args) {
    struct ext_state *state = ext_state_of(self);
    struct sqrl_context *context = ext_context(state);
    struct sqrl_catalog_source found;
    struct sqrl_source *source = NULL;
    struct sqrl_error err = {0};
    const char *name;
    long long version;
    if (context == NULL || !PyArg_ParseTuple(args, "sL", &name, &version))
        return NULL;
    int code = sqrl_catalog_find(get(self), name, version, &found, &err);
    if (code == SQRL_OK) {
        Py_BEGIN_ALLOW_THREADS
        code = sqrl_catalog_source_open(context, &found, NULL, &source, &err);
        Py_END_ALLOW_THREADS
    }
    return code != SQRL_OK ? ext_raise(state, &err)
                           : ext_source_new(state, source, false);
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
    int add, code;
    bool changed;
    if (context == NULL || !PyArg_ParseTuple(args, "sp", &url, &add))
        return NULL;
    Py_BEGIN_ALLOW_THREADS /* another process may be at it */
    code = (add ? sqrl_catalog_subscribe : sqrl_catalog_unsubscribe)(context, url,
                                                                     &changed, &err);
    Py_END_ALLOW_THREADS
    return code != SQRL_OK ? ext_raise(state, &err) : PyBool_FromLong(changed);
}

#define METHOD(name, flags, signature, doc)                                              \
    { #name, (PyCFunction)catalog_##name, flags, #name signature "\n--\n\n" doc }

static PyMethodDef catalog_methods[] = {
    METHOD(read, METH_VARARGS, "($self, text, where, json, untrusted, /)",
           "Reads text in place of what is there."),
    METHOD(read_file, METH_VARARGS, "($self, path, /)",
           "Reads a file in place of what is there."),
    METHOD(write, METH_VARARGS, "($self, json, /)", "The text."),
    METHOD(write_file, METH_VARARGS, "($self, path, /)", "Writes a file, whole."),
    METHOD(find, METH_VARARGS, "($self, name, version, /)",
           "(version, driver_name, driver_kwargs, metadata) or None; -1: the latest."),
    METHOD(resolve, METH_VARARGS, "($self, name, version, /)",
           "The version (-1: the latest), 0 where it is not there."),
    {"adopt", (PyCFunction)(void (*)(void))catalog_adopt, METH_FASTCALL,
     "adopt($self, owner, made, live, type, sources, /)\n--\n\n"
     "Adds many that are not there."},
    {"locate", (PyCFunction)(void (*)(void))catalog_locate, METH_FASTCALL,
     "locate($self, owner, latest, made, type, name, version, /)\n--\n\n"
     "The object of a source, kept in one of the two dicts; None: not there."},
    METHOD(missing, METH_VARARGS, "($self, name, version, /)",
           "What there is instead; None when it is there."),
    METHOD(versions, METH_VARARGS, "($self, name, /)", "As they were added."),
    METHOD(names, METH_NOARGS, "($self, /)", "As they were added."),
    METHOD(put, METH_VARARGS, "($self, name, version, source, untrusted, /)",
           "Sets a version (0: the next one) and returns which one."),
    METHOD(untrusted, METH_VARARGS, "($self, name, version, /)",
           "Whether the source came from another machine."),
    {"sync", ext_catalog_sync, METH_O,
     "sync($self, live, /)\n--\n\n"
     "Takes over sources from a dict of (name, version) to Source."},
    METHOD(remove, METH_VARARGS, "($self, name, version, /)",
           "Removes a version; 0: all of the name."),
    METHOD(open, METH_VARARGS, "($self, name, version, /)",
           "Opens a source, which must not change meanwhile."),
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
