/* groups.c - groups of fields: {"images": ["image"]} for a packer, and what a source has.
 */
#include "ext.h"

#include <stdlib.h>

int ext_names_init(struct ext_names *out, PyObject *names) {
    memset(out, 0, sizeof *out);
    if (names == NULL || names == Py_None)
        return 0;
    if (PyUnicode_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "fields must be a list of names, not one str");
        return -1;
    }
    out->kept = PySequence_List(names);
    Py_ssize_t count = out->kept == NULL ? -1 : PyList_Size(out->kept);
    out->item = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *out->item);
    if (out->item == NULL) {
        ext_names_reset(out);
        return count < 0 ? -1 : (PyErr_NoMemory(), -1);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(PyList_GetItem(out->kept, i), &size);
        if (text != NULL && strlen(text) != (size_t)size)
            PyErr_SetString(PyExc_ValueError,
                            "the name of a field holds a NUL character");
        if (text == NULL || strlen(text) != (size_t)size) {
            ext_names_reset(out);
            return -1;
        }
        out->item[out->count++] = text;
    }
    return 0;
}

void ext_names_reset(struct ext_names *names) {
    Py_CLEAR(names->kept);
    free((void *)names->item);
    memset(names, 0, sizeof *names);
}

int ext_groups_init(struct ext_groups *out, PyObject *groups) {
    memset(out, 0, sizeof *out);
    if (groups == NULL || groups == Py_None)
        return 0;
    if (!PyDict_Check(groups)) {
        PyErr_SetString(PyExc_TypeError,
                        "groups must be a dict: {\"images\": [\"image\"]}");
        return -1;
    }
    size_t room = (size_t)PyDict_Size(groups) + 1;
    out->item = calloc(room, sizeof *out->item);
    out->names = calloc(room, sizeof *out->names);
    if (out->item == NULL || out->names == NULL) {
        ext_groups_reset(out);
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(groups, &at, &key, &value)) {
        struct ext_names *names = &out->names[out->count];
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        if (name == NULL || ext_names_init(names, value) < 0) {
            ext_groups_reset(out);
            return -1;
        }
        out->item[out->count++] =
            (struct sqrl_pack_group){name, names->item, names->count};
    }
    return 0;
}

void ext_groups_reset(struct ext_groups *groups) {
    for (size_t i = 0; i < groups->count; i++)
        ext_names_reset(&groups->names[i]);
    free(groups->item);
    free(groups->names);
    memset(groups, 0, sizeof *groups);
}

static PyObject *names_list(const char *const *names, uint32_t count) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (name == NULL || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

PyObject *ext_source_groups(const struct sqrl_source *source) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < sqrl_source_groups(source); i++) {
        struct sqrl_source_group group;
        sqrl_source_group(source, i, &group);
        PyObject *one = Py_BuildValue(
            "{s:s,s:N,s:N,s:N,s:K,s:K,s:K,s:K}", "name", group.name, "fields",
            names_list(group.fields, group.field_count), "base",
            PyBool_FromLong(group.base), "added", PyBool_FromLong(group.added), "shards",
            (unsigned long long)group.shards, "samples",
            (unsigned long long)group.samples, "raw_bytes",
            (unsigned long long)group.raw_bytes, "file_bytes",
            (unsigned long long)group.file_bytes);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}
