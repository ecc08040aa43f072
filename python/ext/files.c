/* files.c - squirrel._native.FileSystem, File, FileWriter: the library's own file systems
 * for Python, which makes fsspec's of them (squirrel/fsspec/native.py).
 *
 * Calls give the GIL back while they wait. A writer serves one thread at a time. */
#include "ext.h"

#include <stdlib.h>

struct file_system {
    PyObject_HEAD struct sqrl_fs *fs;
};
struct file {
    PyObject_HEAD struct sqrl_file *file;
};
struct writer {
    PyObject_HEAD struct sqrl_file_writer *writer; /* NULL when it is over */
    bool busy;
};

static PyObject *stat_tuple(const struct sqrl_stat *stat) {
    long long size = stat->size == SQRL_SIZE_UNKNOWN ? -1 : (long long)stat->size;
    return Py_BuildValue("(LLOs)", size, (long long)stat->modified_ns,
                         stat->directory ? Py_True : Py_False, stat->etag);
}

/* --- the file system --- */

static PyObject *file_system_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"url", "options", NULL};
    struct ext_state *state = PyType_GetModuleState(type);
    struct ext_settings settings;
    struct sqrl_error err;
    PyObject *dict = Py_None;
    const char *url;
    char *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O:FileSystem", keys, &url, &dict))
        return NULL;
    struct sqrl_context *context = ext_context(state);
    if (context == NULL || ext_settings_init(&settings, dict) < 0)
        return NULL;
    struct file_system *self = (struct file_system *)ext_alloc(type);
    int rc = SQRL_OK;
    if (self != NULL) {
        Py_BEGIN_ALLOW_THREADS
        rc = sqrl_fs_for_url(context, url, &settings.settings, &self->fs, &path, &err);
        Py_END_ALLOW_THREADS
    }
    ext_settings_reset(&settings);
    free(path);
    if (rc != SQRL_OK) {
        ext_raise(state, &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void file_system_dealloc(PyObject *op) {
    sqrl_fs_unref(((struct file_system *)op)->fs);
    ext_free(op);
}

static PyObject *file_system_stat(PyObject *op, PyObject *args) {
    struct sqrl_fs *fs = ((struct file_system *)op)->fs;
    struct sqrl_error err;
    struct sqrl_stat stat;
    const char *path;
    int rc;
    if (!PyArg_ParseTuple(args, "s:stat", &path))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_fs_stat(fs, path, &stat, &err);
    Py_END_ALLOW_THREADS
    return rc != SQRL_OK ? ext_raise(ext_state_of(op), &err) : stat_tuple(&stat);
}

struct entry {
    char *name;
    struct sqrl_stat stat;
};
struct entries {
    struct entry *items;
    size_t count, capacity;
};

static int gather(void *arg, const char *name, const struct sqrl_stat *stat) {
    struct entries *all = arg;
    if (all->count == all->capacity) {
        size_t capacity = all->capacity != 0 ? 2 * all->capacity : 64;
        struct entry *items = realloc(all->items, capacity * sizeof *items);
        if (items == NULL)
            return SQRL_E_NO_MEMORY;
        all->items = items;
        all->capacity = capacity;
    }
    all->items[all->count].name = strdup(name);
    if (all->items[all->count].name == NULL)
        return SQRL_E_NO_MEMORY;
    all->items[all->count++].stat = *stat;
    return 0;
}

static PyObject *list_of(const struct entries *all) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < all->count; i++) {
        const char *name = all->items[i].name;
        PyObject *text =
            PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "surrogateescape");
        PyObject *stat = text == NULL ? NULL : stat_tuple(&all->items[i].stat);
        PyObject *item = stat == NULL ? NULL : PyTuple_Pack(2, text, stat);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
        Py_XDECREF(stat);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *file_system_list(PyObject *op, PyObject *args) {
    struct sqrl_fs *fs = ((struct file_system *)op)->fs;
    struct entries all = {NULL, 0, 0};
    struct sqrl_error err;
    const char *path;
    int recursive = 0, rc;
    if (!PyArg_ParseTuple(args, "s|p:list", &path, &recursive))
        return NULL;
    sqrl_error_clear(&err);
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_fs_list(fs, path, recursive != 0, gather, &all, NULL, &err);
    Py_END_ALLOW_THREADS
    PyObject *list = NULL;
    if (rc == SQRL_OK)
        list = list_of(&all);
    else if (err.code == SQRL_OK)
        PyErr_NoMemory();
    else
        ext_raise(ext_state_of(op), &err);
    for (size_t i = 0; i < all.count; i++)
        free(all.items[i].name);
    free(all.items);
    return list;
}

/* A call that takes a path and gives nothing. */
static PyObject *change(PyObject *op, PyObject *args,
                        int (*call)(struct sqrl_fs *, const char *,
                                    struct sqrl_error *)) {
    struct sqrl_fs *fs = ((struct file_system *)op)->fs;
    struct sqrl_error err;
    const char *path;
    int rc;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = call(fs, path, &err);
    Py_END_ALLOW_THREADS
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(op), &err);
    Py_RETURN_NONE;
}

static PyObject *file_system_remove(PyObject *op, PyObject *args) {
    return change(op, args, sqrl_fs_remove);
}
static PyObject *file_system_make_directory(PyObject *op, PyObject *args) {
    return change(op, args, sqrl_fs_make_directory);
}
static PyObject *file_system_remove_directory(PyObject *op, PyObject *args) {
    return change(op, args, sqrl_fs_remove_directory);
}

static PyObject *file_system_open(PyObject *op, PyObject *args) {
    struct sqrl_fs *fs = ((struct file_system *)op)->fs;
    struct ext_state *state = ext_state_of(op);
    struct sqrl_error err;
    const char *path;
    int rc;
    if (!PyArg_ParseTuple(args, "s:open", &path))
        return NULL;
    struct file *self = (struct file *)ext_alloc(state->type[EXT_FILE]);
    if (self == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_file_open(fs, path, &self->file, &err);
    Py_END_ALLOW_THREADS
    if (rc == SQRL_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return ext_raise(state, &err);
}

static PyObject *file_system_create(PyObject *op, PyObject *args) {
    struct sqrl_fs *fs = ((struct file_system *)op)->fs;
    struct ext_state *state = ext_state_of(op);
    struct sqrl_error err;
    const char *path;
    int replace = 1, rc;
    if (!PyArg_ParseTuple(args, "s|p:create", &path, &replace))
        return NULL;
    struct writer *self = (struct writer *)ext_alloc(state->type[EXT_FILE_WRITER]);
    if (self == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_file_create(fs, path, replace != 0, &self->writer, &err);
    Py_END_ALLOW_THREADS
    if (rc == SQRL_OK)
        return (PyObject *)self;
    self->writer = NULL;
    Py_DECREF(self);
    return ext_raise(state, &err);
}

static PyMethodDef file_system_methods[] = {
    {"stat", file_system_stat, METH_VARARGS,
     "stat($self, path, /)\n--\n\n(size or -1, time of change in ns, directory, etag)."},
    {"list", file_system_list, METH_VARARGS,
     "list($self, path, recursive=False, /)\n--\n\n[(name, stat)], in order of names."},
    {"open", file_system_open, METH_VARARGS, "open($self, path, /)\n--\n\nFor reading."},
    {"create", file_system_create, METH_VARARGS,
     "create($self, path, replace=True, /)\n--\n\nA file that appears at its commit."},
    {"remove", file_system_remove, METH_VARARGS, "remove($self, path, /)\n--\n\n"},
    {"make_directory", file_system_make_directory, METH_VARARGS,
     "make_directory($self, path, /)\n--\n\nWith its parents."},
    {"remove_directory", file_system_remove_directory, METH_VARARGS,
     "remove_directory($self, path, /)\n--\n\nAn empty one."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot file_system_slots[] = {
    {Py_tp_new, file_system_new},
    {Py_tp_dealloc, file_system_dealloc},
    {Py_tp_methods, file_system_methods},
    {Py_tp_doc, "FileSystem(url, options=None)\n--\n\n"
                "The library's file system for a URL; paths are given as text."},
    {0, NULL}};
PyType_Spec ext_file_system_spec = {.name = "squirrel._native.FileSystem",
                                    .basicsize = sizeof(struct file_system),
                                    .flags = Py_TPFLAGS_DEFAULT,
                                    .slots = file_system_slots};

/* --- reading --- */

static void file_dealloc(PyObject *op) {
    struct sqrl_file *file = ((struct file *)op)->file;
    if (file != NULL) {
        Py_BEGIN_ALLOW_THREADS
        sqrl_file_unref(file);
        Py_END_ALLOW_THREADS
    }
    ext_free(op);
}

/* One bytes object a range, whose memory is read into. */
static int make_rooms(PyObject *starts, PyObject *ends, struct sqrl_range *ranges,
                      PyObject *rooms, size_t count) {
    for (size_t i = 0; i < count; i++) {
        unsigned long long start =
            PyLong_AsUnsignedLongLong(PyList_GetItem(starts, (Py_ssize_t)i));
        unsigned long long end =
            PyLong_AsUnsignedLongLong(PyList_GetItem(ends, (Py_ssize_t)i));
        if (PyErr_Occurred() != NULL)
            return -1;
        if (end < start || end - start > PY_SSIZE_T_MAX) {
            PyErr_SetString(PyExc_ValueError, "a range ends before it begins");
            return -1;
        }
        PyObject *room = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(end - start));
        if (room == NULL)
            return -1;
        ranges[i] = (struct sqrl_range){.offset = start,
                                        .size = (size_t)(end - start),
                                        .data = (uint8_t *)PyBytes_AsString(room)};
        PyList_SetItem(rooms, (Py_ssize_t)i, room);
    }
    return 0;
}

/* Rooms that were not filled are cut. */
static int cut_rooms(const struct sqrl_range *ranges, PyObject *rooms, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].got == ranges[i].size)
            continue;
        PyObject *cut = PyBytes_FromStringAndSize((const char *)ranges[i].data,
                                                  (Py_ssize_t)ranges[i].got);
        if (cut == NULL)
            return -1;
        PyList_SetItem(rooms, (Py_ssize_t)i, cut);
    }
    return 0;
}

static PyObject *file_read(PyObject *op, PyObject *args) {
    struct sqrl_file *file = ((struct file *)op)->file;
    PyObject *starts, *ends;
    struct sqrl_error err;
    if (!PyArg_ParseTuple(args, "O!O!:read", &PyList_Type, &starts, &PyList_Type, &ends))
        return NULL;
    size_t count = (size_t)PyList_Size(starts);
    if (PyList_Size(ends) != (Py_ssize_t)count) {
        PyErr_SetString(PyExc_ValueError, "as many ends as starts are needed");
        return NULL;
    }
    struct sqrl_range *ranges = calloc(count + 1, sizeof *ranges);
    PyObject *rooms = ranges == NULL ? PyErr_NoMemory() : PyList_New((Py_ssize_t)count);
    int rc = SQRL_OK;
    if (rooms != NULL && make_rooms(starts, ends, ranges, rooms, count) < 0)
        Py_CLEAR(rooms);
    if (rooms != NULL) {
        Py_BEGIN_ALLOW_THREADS
        rc = sqrl_file_read(file, ranges, count, NULL, &err);
        Py_END_ALLOW_THREADS
        if (rc != SQRL_OK)
            ext_raise(ext_state_of(op), &err);
        if (rc != SQRL_OK || cut_rooms(ranges, rooms, count) < 0)
            Py_CLEAR(rooms);
    }
    free(ranges);
    return rooms;
}

static PyObject *file_stat(PyObject *op, void *unused) {
    return stat_tuple(sqrl_file_stat(((struct file *)op)->file));
}

static PyMethodDef file_methods[] = {
    {"read", file_read, METH_VARARGS,
     "read($self, starts, ends, /)\n--\n\n"
     "The bytes of each range, in one call; less where the file ends."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef file_members[] = {
    {"stat", file_stat, NULL, "as FileSystem.stat says it", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot file_slots[] = {{Py_tp_dealloc, file_dealloc},
                                   {Py_tp_methods, file_methods},
                                   {Py_tp_getset, file_members},
                                   {Py_tp_doc, "A file open for reading."},
                                   {0, NULL}};
PyType_Spec ext_file_spec = {.name = "squirrel._native.File",
                             .basicsize = sizeof(struct file),
                             .flags =
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .slots = file_slots};

/* --- writing --- */

static PyObject *writer_over(PyObject *op) {
    struct writer *self = (struct writer *)op;
    return ext_raise_code(ext_state_of(op), SQRL_E_STATE,
                          self->busy ? "another thread uses this file"
                                     : "this file is committed or given up already");
}

static PyObject *writer_write(PyObject *op, PyObject *object) {
    struct writer *self = (struct writer *)op;
    struct sqrl_error err;
    Py_buffer view;
    int rc;
    if (self->writer == NULL || self->busy)
        return writer_over(op);
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_file_write(self->writer, view.buf, (size_t)view.len, &err);
    Py_END_ALLOW_THREADS
    self->busy = false;
    PyObject *size = PyLong_FromSsize_t(view.len);
    PyBuffer_Release(&view);
    if (rc == SQRL_OK)
        return size;
    Py_XDECREF(size);
    return ext_raise(ext_state_of(op), &err);
}

static PyObject *writer_commit(PyObject *op, PyObject *unused) {
    struct writer *self = (struct writer *)op;
    struct sqrl_file_writer *writer = self->writer;
    struct sqrl_error err;
    int rc;
    if (writer == NULL || self->busy)
        return writer_over(op);
    self->writer = NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_file_commit(writer, &err);
    Py_END_ALLOW_THREADS
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(op), &err);
    Py_RETURN_NONE;
}

static PyObject *writer_abort(PyObject *op, PyObject *unused) {
    struct writer *self = (struct writer *)op;
    struct sqrl_file_writer *writer = self->writer;
    if (self->busy)
        return writer_over(op);
    self->writer = NULL;
    Py_BEGIN_ALLOW_THREADS
    sqrl_file_abort(writer);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void writer_dealloc(PyObject *op) {
    struct sqrl_file_writer *writer = ((struct writer *)op)->writer;
    if (writer != NULL) {
        Py_BEGIN_ALLOW_THREADS
        sqrl_file_abort(writer);
        Py_END_ALLOW_THREADS
    }
    ext_free(op);
}

static PyMethodDef writer_methods[] = {
    {"write", writer_write, METH_O, "write($self, data, /)\n--\n\n"},
    {"commit", writer_commit, METH_NOARGS,
     "commit($self, /)\n--\n\nMakes the file appear, whole."},
    {"abort", writer_abort, METH_NOARGS, "abort($self, /)\n--\n\nLeaves nothing."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot writer_slots[] = {{Py_tp_dealloc, writer_dealloc},
                                     {Py_tp_methods, writer_methods},
                                     {Py_tp_doc, "A file that is being made."},
                                     {0, NULL}};
PyType_Spec ext_file_writer_spec = {.name = "squirrel._native.FileWriter",
                                    .basicsize = sizeof(struct writer),
                                    .flags = Py_TPFLAGS_DEFAULT |
                                             Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    .slots = writer_slots};
