/* settings.c - a dict of options as the library's name = value texts. */
#include "ext.h"

#include <stdlib.h>

/* The text of an option's value (new reference): True is "true", paths are their text. */
static PyObject *setting_text(PyObject *value) {
    if (PyBool_Check(value))
        return PyUnicode_FromString(value == Py_True ? "true" : "false");
    if (PyUnicode_Check(value) || PyLong_Check(value) || PyFloat_Check(value))
        return PyObject_Str(value);
    PyObject *path = PyOS_FSPath(value);
    if (path == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "an option must be str, bool, int, float or a path, not %R",
                     (PyObject *)Py_TYPE(value));
    }
    return path;
}

/* Keeps `text` (stolen) in the list and returns its UTF-8. */
static const char *setting_keep(struct ext_settings *out, PyObject *text) {
    if (text == NULL)
        return NULL;
    int rc = PyList_Append(out->texts, text);
    Py_ssize_t size;
    const char *utf8 = rc < 0 ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    Py_DECREF(text);
    if (utf8 != NULL && strlen(utf8) != (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "an option holds a NUL character");
        return NULL;
    }
    return utf8;
}

int ext_settings_init(struct ext_settings *out, PyObject *options) {
    memset(out, 0, sizeof *out);
    if (options == NULL || options == Py_None)
        return 0;
    if (!PyDict_Check(options)) {
        PyErr_SetString(PyExc_TypeError, "options must be a dict");
        return -1;
    }
    out->texts = PyList_New(0);
    out->items = calloc((size_t)PyDict_Size(options) + 1, sizeof *out->items);
    if (out->texts == NULL || out->items == NULL) {
        ext_settings_reset(out);
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(options, &at, &key, &value)) {
        if (value == Py_None) /* not given */
            continue;
        struct sqrl_setting *item = &out->items[out->settings.count];
        item->name = setting_keep(out, PyObject_Str(key));
        item->value = item->name == NULL ? NULL : setting_keep(out, setting_text(value));
        if (item->value == NULL) {
            ext_settings_reset(out);
            return -1;
        }
        out->settings.count++;
    }
    out->settings.items = out->items;
    return 0;
}

void ext_settings_reset(struct ext_settings *settings) {
    Py_CLEAR(settings->texts);
    free(settings->items);
    memset(settings, 0, sizeof *settings);
}
