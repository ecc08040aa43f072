/* catalog.c - catalogs as YAML, between lists of tuples and libsqrl. The mapping itself
 * is Python's (squirrel/catalog): here sources are (name, version, driver_name, kwargs,
 * metadata). */
#include "ext.h"

/* One source as a tuple, or NULL with an exception. */
static PyObject *source_tuple(struct ext_builder *builder,
                              const struct sqrl_catalog_source *source) {
    PyObject *kwargs = ext_build_node(builder, source->kwargs, 0, source->bytes, NULL);
    PyObject *metadata =
        kwargs ? ext_build_node(builder, source->metadata, 0, source->bytes, NULL) : NULL;
    if (!metadata) {
        Py_XDECREF(kwargs);
        return NULL;
    }
    return Py_BuildValue("(sKsNN)", source->name, (unsigned long long)source->version,
                         source->driver_name, kwargs, metadata);
}

static PyObject *source_list(struct ext_state *state, struct sqrl_catalog *catalog) {
    struct ext_builder builder;
    struct sqrl_error err = {0};
    size_t count = sqrl_catalog_count(catalog);
    PyObject *list = PyList_New(0);
    ext_builder_init(&builder, state, true, NULL);
    for (size_t i = 0; list && i < count; i++) {
        struct sqrl_catalog_source source;
        PyObject *item = NULL;
        if (sqrl_catalog_at(catalog, i, &source, &err) != SQRL_OK)
            ext_raise(state, &err);
        else
            item = source_tuple(&builder, &source);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    ext_builder_reset(&builder);
    return list;
}

PyObject *ext_catalog_read(PyObject *module, PyObject *args) {
    struct ext_state *state = PyModule_GetState(module);
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog = NULL;
    PyObject *list = NULL;
    const char *text, *where;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "s#s", &text, &size, &where))
        return NULL;
    int code = sqrl_catalog_new(&catalog, &err);
    if (code == SQRL_OK)
        code = sqrl_catalog_read(catalog, text, (size_t)size, where, &err);
    list = code ? ext_raise(state, &err) : source_list(state, catalog);
    sqrl_catalog_free(catalog);
    return list;
}

/* Adds one (name, version, driver_name, kwargs, metadata); -1 with an exception. */
static int add_source(struct ext_state *state, struct sqrl_catalog *catalog,
                      PyObject *item) {
    struct sqrl_error err = {0};
    struct sqrl_bytes kwargs = {0}, metadata = {0};
    const char *name, *driver;
    unsigned long long version;
    PyObject *kwargs_object, *metadata_object;
    int result = -1;
    if (!PyArg_ParseTuple(item, "sKsOO", &name, &version, &driver, &kwargs_object,
                          &metadata_object))
        return -1;
    if (ext_encode(state, &kwargs, kwargs_object) == 0 &&
        ext_encode(state, &metadata, metadata_object) == 0) {
        if (sqrl_catalog_add(catalog, name, version, driver, kwargs.data, kwargs.size,
                             metadata.data, metadata.size, &err) == SQRL_OK)
            result = 0;
        else
            ext_raise(state, &err);
    }
    sqrl_bytes_reset(&kwargs);
    sqrl_bytes_reset(&metadata);
    return result;
}

PyObject *ext_catalog_write(PyObject *module, PyObject *sources) {
    struct ext_state *state = PyModule_GetState(module);
    struct sqrl_error err = {0};
    struct sqrl_catalog *catalog = NULL;
    struct sqrl_bytes text = {0};
    PyObject *result = NULL, *item, *iterator = PyObject_GetIter(sources);
    if (!iterator)
        return NULL;
    if (sqrl_catalog_new(&catalog, &err) != SQRL_OK) {
        ext_raise(state, &err);
        goto done;
    }
    while ((item = PyIter_Next(iterator))) {
        int added = add_source(state, catalog, item);
        Py_DECREF(item);
        if (added < 0)
            goto done;
    }
    if (PyErr_Occurred())
        goto done;
    if (sqrl_catalog_write(catalog, &text, &err) != SQRL_OK)
        ext_raise(state, &err);
    else
        result =
            PyUnicode_FromStringAndSize((const char *)text.data, (Py_ssize_t)text.size);
done:
    sqrl_bytes_reset(&text);
    sqrl_catalog_free(catalog);
    Py_DECREF(iterator);
    return result;
}
