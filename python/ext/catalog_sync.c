/* catalog_sync.c - what the objects of sources say goes into the library's catalog.
 *
 * Whoever holds a source's dicts may change them, and nothing tells that they were. So
 * they are looked at each time, but not encoded each time: a tuple in the source's
 * attribute `_seen` holds their leaves in order, and the type and size of each container
 * in front of what is in it. Leaves are immutable: the same objects in the same shape are
 * the same values. What holds anything else (an array, a dict of another class) has no
 * such tuple and is encoded. */
#include "catalog.h"

#define MAX_SEEN 64  /* leaves and containers of one source */
#define MAX_DEPTH 32 /* of containers */
#define MAX_SIZE 256 /* of a container: CPython has one object for each such number */

static int note_source(PyObject *name) {
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
    return -1;
}

int ext_sync_begin(struct ext_sync *sync) {
    static const char *const names[3] = {"driver_name", "driver_kwargs", "metadata"};
    memset(sync, 0, sizeof *sync);
    for (int i = 0; i < 3; i++)
        if ((sync->attribute[i] = PyUnicode_InternFromString(names[i])) == NULL)
            return -1;
    sync->seen = PyUnicode_InternFromString("_seen");
    return sync->seen == NULL ? -1 : 0;
}

void ext_sync_end(struct ext_sync *sync) {
    for (int i = 0; i < 3; i++)
        Py_XDECREF(sync->attribute[i]);
    Py_XDECREF(sync->seen);
    sqrl_bytes_reset(&sync->kwargs);
    sqrl_bytes_reset(&sync->metadata);
}

/* --- what was seen --- */

/* A walk over a source's parts; `item` are borrowed. */
struct walk {
    PyObject *item[MAX_SEEN];
    int count;
};

static bool walk_value(struct walk *walk, PyObject *value, int depth);

static bool push(struct walk *walk, PyObject *item) {
    if (walk->count == MAX_SEEN)
        return false;
    walk->item[walk->count++] = item;
    return true;
}

static bool is_leaf(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type ||
           type == &PyBool_Type || type == &PyBytes_Type || value == Py_None;
}

static bool walk_container(struct walk *walk, PyObject *value, int depth) {
    PyTypeObject *type = Py_TYPE(value);
    PyObject *key, *item, *number;
    Py_ssize_t at = 0;
    bool dict = type == &PyDict_Type, list = type == &PyList_Type;
    if (depth == MAX_DEPTH || (!dict && !list && type != &PyTuple_Type))
        return false;
    Py_ssize_t size = dict   ? PyDict_Size(value)
                      : list ? PyList_Size(value)
                             : PyTuple_Size(value);
    if (size > MAX_SIZE || !push(walk, (PyObject *)type))
        return false;
    number = PyLong_FromSsize_t(size);
    if (number == NULL) {
        PyErr_Clear();
        return false;
    }
    bool good = push(walk, number);
    Py_DECREF(number); /* a small number lives on */
    if (dict) {
        while (good && PyDict_Next(value, &at, &key, &item))
            good = is_leaf(key) && push(walk, key) && walk_value(walk, item, depth + 1);
        return good;
    }
    for (; good && at < size; at++)
        good = walk_value(walk,
                          list ? PyList_GetItem(value, at) : PyTuple_GetItem(value, at),
                          depth + 1);
    return good;
}

static bool walk_value(struct walk *walk, PyObject *value, int depth) {
    return is_leaf(value) ? push(walk, value) : walk_container(walk, value, depth);
}

static bool walk_parts(struct walk *walk, PyObject *const *part) {
    walk->count = 0;
    return walk_value(walk, part[0], 0) && walk_value(walk, part[1], 0) &&
           walk_value(walk, part[2], 0);
}

/* Is it what was seen the last time? */
static bool is_seen(const struct walk *walk, PyObject *source, PyObject *attribute) {
    PyObject *seen = PyObject_GenericGetAttr(source, attribute);
    if (seen == NULL) {
        PyErr_Clear();
        return false;
    }
    bool same = PyTuple_CheckExact(seen) && PyTuple_Size(seen) == walk->count;
    for (int i = 0; same && i < walk->count; i++)
        same = PyTuple_GetItem(seen, i) == walk->item[i];
    Py_DECREF(seen);
    return same;
}

static int remember(const struct walk *walk, PyObject *source, PyObject *attribute) {
    PyObject *seen = PyTuple_New(walk->count);
    for (int i = 0; seen != NULL && i < walk->count; i++) {
        Py_INCREF(walk->item[i]);
        PyTuple_SetItem(seen, i, walk->item[i]);
    }
    int rc = seen == NULL ? -1 : PyObject_GenericSetAttr(source, attribute, seen);
    Py_XDECREF(seen);
    return rc;
}

/* --- taking over --- */

/* A dict as MessagePack; None is nothing. */
static int encode_part(struct ext_state *state, struct sqrl_bytes *out, PyObject *value) {
    out->size = 0;
    return value == Py_None ? 0 : ext_encode_catalog(state, out, value);
}

static bool is_same(const struct sqrl_catalog_source *old, const struct ext_sync *sync,
                    const char *driver) {
    const struct sqrl_bytes *kwargs = &sync->kwargs, *metadata = &sync->metadata;
    return kwargs->size && metadata->size && kwargs->size == old->kwargs_size &&
           metadata->size == old->metadata_size &&
           memcmp(kwargs->data, old->bytes, kwargs->size) == 0 &&
           memcmp(metadata->data, old->bytes + kwargs->size, metadata->size) == 0 &&
           strcmp(old->driver_name, driver) == 0;
}

static int take_parts(PyObject *self, struct ext_sync *sync, const char *name,
                      uint64_t version, PyObject *const *part) {
    struct ext_state *state = ext_state_of(self);
    struct sqrl_catalog *catalog = ext_catalog_get(self);
    struct sqrl_bytes *kwargs = &sync->kwargs, *metadata = &sync->metadata;
    struct sqrl_catalog_source old;
    struct sqrl_error err = {0};
    const char *driver = PyUnicode_AsUTF8AndSize(part[0], NULL);
    if (driver == NULL || encode_part(state, kwargs, part[1]) < 0 ||
        encode_part(state, metadata, part[2]) < 0)
        return -1;
    if (sqrl_catalog_find(catalog, name, (int64_t)version, &old, NULL) == SQRL_OK &&
        is_same(&old, sync, driver))
        return 0;
    if (sqrl_catalog_set(catalog, name, version, driver,
                         kwargs->size ? kwargs->data : NULL, kwargs->size,
                         metadata->size ? metadata->data : NULL, metadata->size,
                         &err) == SQRL_OK)
        return 0;
    ext_raise(state, &err);
    return -1;
}

int ext_sync_source(PyObject *self, struct ext_sync *sync, const char *name,
                    uint64_t version, PyObject *source, bool new) {
    PyObject *part[3] = {NULL, NULL, NULL};
    struct walk walk;
    int rc = 0;
    /* A source that is kept has its fields: its __getattr__ is not asked. */
    for (int i = 0; i < 3 && rc == 0; i++) {
        part[i] = PyObject_GenericGetAttr(source, sync->attribute[i]);
        rc = part[i] == NULL ? -1 : 0;
    }
    bool plain = rc == 0 && walk_parts(&walk, part);
    if (rc == 0 && !(plain && !new &&is_seen(&walk, source, sync->seen))) {
        rc = take_parts(self, sync, name, version, part);
        if (rc == 0 && plain)
            rc = remember(&walk, source, sync->seen);
    }
    for (int i = 0; i < 3; i++)
        Py_XDECREF(part[i]);
    return rc;
}

static int sync_pair(PyObject *self, struct ext_sync *sync, PyObject *key,
                     PyObject *source) {
    PyObject *name = PyTuple_GetItem(key, 0), *version = PyTuple_GetItem(key, 1);
    const char *text =
        name == NULL || version == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL)
        return -1;
    int rc = ext_sync_source(self, sync, text, PyLong_AsUnsignedLongLong(version), source,
                             false);
    return rc < 0 ? note_source(name) : 0;
}

/* No list of the items: so many new tuples would set off a full garbage collection. The
 * dict may grow meanwhile, by Python code that odd values run: what is new in it was just
 * made from the catalog. */
PyObject *ext_catalog_sync(PyObject *self, PyObject *live) {
    struct ext_sync sync;
    PyObject *key, *source;
    Py_ssize_t at = 0;
    int rc = ext_sync_begin(&sync);
    while (rc == 0 && PyDict_Next(live, &at, &key, &source)) {
        Py_INCREF(key);
        Py_INCREF(source);
        rc = sync_pair(self, &sync, key, source);
        Py_DECREF(source);
        Py_DECREF(key);
    }
    ext_sync_end(&sync);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}
