/* remote.c - a file system whose calls go to a Python object: any fsspec URL.
 *
 * The object is a squirrel._remote.Files; it speaks to fsspec. Each operation takes the
 * GIL once, whatever the number of ranges, calls one method, and gives the GIL back.
 * Threads of the library come here, too: the only place where they ask for the GIL. None
 * of them holds a lock of the library's then, or a thread with the GIL that waits for
 * that lock would never let go.
 *
 * A thread that asks a dead interpreter for the GIL never returns. So every call goes
 * through a gate: the interpreter's exit closes it and waits for those inside.
 */
#include "ext.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define EXIT_WAIT_SECONDS 10

/* --- the gate --- */

struct ext_gate {
    pthread_mutex_t mutex;
    pthread_cond_t empty;
    unsigned inside;
    bool closed;
};

/* Lives until the process ends: library threads may come at any time. */
struct ext_gate *ext_gate_new(void) {
    struct ext_gate *gate = calloc(1, sizeof *gate);
    if (gate != NULL)
        ext_gate_forked(gate);
    return gate;
}

void ext_gate_forked(struct ext_gate *gate) {
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->empty, NULL);
    gate->inside = 0;
}

void ext_gate_close(struct ext_gate *gate) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += EXIT_WAIT_SECONDS;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&gate->mutex);
    gate->closed = true;
    int rc = 0;
    while (gate->inside > 0 && rc == 0)
        rc = pthread_cond_timedwait(&gate->empty, &gate->mutex, &end);
    pthread_mutex_unlock(&gate->mutex);
    Py_END_ALLOW_THREADS
}

bool ext_gate_enter(struct ext_gate *gate, PyGILState_STATE *gil) {
    pthread_mutex_lock(&gate->mutex);
    bool open = !gate->closed;
    if (open)
        gate->inside++;
    pthread_mutex_unlock(&gate->mutex);
    if (open)
        *gil = PyGILState_Ensure();
    return open;
}

void ext_gate_leave(struct ext_gate *gate, PyGILState_STATE gil) {
    PyGILState_Release(gil);
    pthread_mutex_lock(&gate->mutex);
    if (--gate->inside == 0)
        pthread_cond_broadcast(&gate->empty);
    pthread_mutex_unlock(&gate->mutex);
}

static int gate_closed(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CANCELLED, "the interpreter is ending");
}

/* --- errors --- */

/* The code that fits an exception best. */
static int code_of(PyObject *type) {
    static const struct {
        PyObject **type;
        int code;
    } table[] = {{&PyExc_FileNotFoundError, SQRL_E_NOT_FOUND},
                 {&PyExc_NotADirectoryError, SQRL_E_NOT_FOUND},
                 {&PyExc_PermissionError, SQRL_E_PERMISSION},
                 {&PyExc_FileExistsError, SQRL_E_EXISTS},
                 {&PyExc_MemoryError, SQRL_E_NO_MEMORY},
                 {&PyExc_NotImplementedError, SQRL_E_UNSUPPORTED},
                 {&PyExc_KeyboardInterrupt, SQRL_E_CANCELLED}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (PyErr_GivenExceptionMatches(type, *table[i].type))
            return table[i].code;
    return SQRL_E_IO;
}

static bool is_retryable(PyObject *type) {
    return PyErr_GivenExceptionMatches(type, PyExc_ConnectionError) ||
           PyErr_GivenExceptionMatches(type, PyExc_TimeoutError);
}

int ext_fail(struct sqrl_error *err) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *name = type == NULL ? NULL : PyObject_GetAttrString(type, "__name__");
    PyObject *text = value == NULL ? NULL : PyObject_Str(value);
    const char *name_text = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    const char *text_text = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    int code = type == NULL ? SQRL_E_IO : code_of(type);
    sqrl_error_set(err, code, "%s: %s", name_text != NULL ? name_text : "an exception",
                   text_text != NULL ? text_text : "");
    if (err != NULL && type != NULL)
        err->retryable = is_retryable(type);
    PyErr_Clear();
    Py_XDECREF(name);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return code;
}

/* --- the file system --- */

struct remote {
    struct ext_gate *gate;
    PyObject *files; /* owned */
};
struct remote_file {
    PyObject *file; /* owned: a squirrel._remote.File */
};

/* The library has no way to hand an object to open(): ext_remote_fs fills the state. */
static void remote_close(void *state) {
    struct remote *self = state;
    PyGILState_STATE gil;
    if (self->files == NULL || !ext_gate_enter(self->gate, &gil))
        return;
    Py_CLEAR(self->files);
    ext_gate_leave(self->gate, gil);
}

/* (size, modified_ns, directory, etag) */
static int stat_of(PyObject *tuple, struct sqrl_stat *out) {
    long long size, modified;
    int directory;
    const char *etag;
    if (!PyArg_ParseTuple(tuple, "LLps", &size, &modified, &directory, &etag))
        return -1;
    out->size = size < 0 ? SQRL_SIZE_UNKNOWN : (uint64_t)size;
    out->modified_ns = modified;
    out->directory = directory != 0;
    size_t length = strlen(etag);
    if (length < sizeof out->etag)
        memcpy(out->etag, etag, length + 1);
    return 0;
}

static int remote_stat(void *fs, const char *path, struct sqrl_stat *out,
                       struct sqrl_error *err) {
    struct remote *self = fs;
    PyGILState_STATE gil;
    if (!ext_gate_enter(self->gate, &gil))
        return gate_closed(err);
    PyObject *tuple = PyObject_CallMethod(self->files, "stat", "s", path);
    int rc = tuple == NULL || stat_of(tuple, out) < 0 ? ext_fail(err) : SQRL_OK;
    Py_XDECREF(tuple);
    ext_gate_leave(self->gate, gil);
    return rc;
}

/* A list of (name, size, modified_ns, directory, etag), copied, so that the visitor runs
 * without the GIL: it may read files. */
struct entry {
    char *name;
    struct sqrl_stat stat;
};

static void entries_free(struct entry *entries, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(entries[i].name);
    free(entries);
}

static int entry_of(PyObject *item, struct entry *out) {
    PyObject *name = PyTuple_GetItem(item, 0);
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    PyObject *rest = text == NULL ? NULL : PyTuple_GetSlice(item, 1, PyTuple_Size(item));
    int rc = rest == NULL ? -1 : stat_of(rest, &out->stat);
    Py_XDECREF(rest);
    out->name = rc < 0 ? NULL : strdup(text);
    if (rc == 0 && out->name == NULL)
        PyErr_NoMemory();
    return out->name == NULL ? -1 : 0;
}

static int entries_of(PyObject *list, struct entry **out, size_t *count) {
    Py_ssize_t size = PyList_Size(list);
    *count = 0;
    if (size < 0)
        return -1;
    *out = calloc((size_t)size + 1, sizeof **out);
    if (*out == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; *count < (size_t)size; ++*count)
        if (entry_of(PyList_GetItem(list, (Py_ssize_t)*count), &(*out)[*count]) < 0)
            return -1;
    return 0;
}

static int remote_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                       void *arg, const struct sqrl_cancel *cancel,
                       struct sqrl_error *err) {
    struct remote *self = fs;
    struct entry *entries = NULL;
    size_t count = 0;
    PyGILState_STATE gil;
    if (!ext_gate_enter(self->gate, &gil))
        return gate_closed(err);
    PyObject *list =
        PyObject_CallMethod(self->files, "list", "si", path, recursive ? 1 : 0);
    int rc =
        list == NULL || entries_of(list, &entries, &count) < 0 ? ext_fail(err) : SQRL_OK;
    Py_XDECREF(list);
    ext_gate_leave(self->gate, gil);
    for (size_t i = 0; i < count && rc == SQRL_OK; i++)
        rc = sqrl_cancel_requested(cancel)
                 ? sqrl_error_set(err, SQRL_E_CANCELLED, "listing was cancelled")
                 : visit(arg, entries[i].name, &entries[i].stat);
    entries_free(entries, count);
    return rc;
}

/* --- reading --- */

static int remote_file_open(void *fs, const char *path, void *file,
                            struct sqrl_stat *stat, struct sqrl_error *err) {
    struct remote *self = fs;
    struct remote_file *opened = file;
    PyGILState_STATE gil;
    if (!ext_gate_enter(self->gate, &gil))
        return gate_closed(err);
    opened->file = PyObject_CallMethod(self->files, "open", "s", path);
    PyObject *tuple =
        opened->file == NULL ? NULL : PyObject_GetAttrString(opened->file, "stat");
    int rc = tuple == NULL || stat_of(tuple, stat) < 0 ? ext_fail(err) : SQRL_OK;
    Py_XDECREF(tuple);
    if (rc != SQRL_OK)
        Py_CLEAR(opened->file);
    ext_gate_leave(self->gate, gil);
    return rc;
}

/* Lists of the ranges' begins and ends. */
static int range_lists(const struct sqrl_range *ranges, size_t count, PyObject **starts,
                       PyObject **ends) {
    *starts = PyList_New((Py_ssize_t)count);
    *ends = PyList_New((Py_ssize_t)count);
    bool good = *starts != NULL && *ends != NULL;
    for (size_t i = 0; i < count && good; i++) {
        PyObject *start = PyLong_FromUnsignedLongLong(ranges[i].offset);
        PyObject *end = PyLong_FromUnsignedLongLong(ranges[i].offset + ranges[i].size);
        good = start != NULL && end != NULL;
        if (good) {
            PyList_SetItem(*starts, (Py_ssize_t)i, start);
            PyList_SetItem(*ends, (Py_ssize_t)i, end);
        } else {
            Py_XDECREF(start);
            Py_XDECREF(end);
        }
    }
    return good ? 0 : -1;
}

static int copy_piece(PyObject *piece, struct sqrl_range *range) {
    Py_buffer view;
    if (piece == NULL || PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE) < 0)
        return -1;
    size_t got = (size_t)view.len;
    bool fits = got <= range->size;
    if (fits) {
        memcpy(range->data, view.buf, got);
        range->got = got;
    } else {
        PyErr_Format(PyExc_OSError, "asked for %zu bytes at %llu, it gave %zu",
                     range->size, (unsigned long long)range->offset, got);
    }
    PyBuffer_Release(&view);
    return fits ? 0 : -1;
}

static int remote_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                            const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct remote *self = fs;
    struct remote_file *opened = file;
    PyObject *starts = NULL, *ends = NULL, *pieces = NULL;
    PyGILState_STATE gil;
    if (sqrl_cancel_requested(cancel))
        return sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
    if (!ext_gate_enter(self->gate, &gil))
        return gate_closed(err);
    bool good = range_lists(ranges, count, &starts, &ends) == 0;
    if (good)
        pieces = PyObject_CallMethod(opened->file, "read", "OO", starts, ends);
    good = pieces != NULL && PyList_Size(pieces) == (Py_ssize_t)count;
    for (size_t i = 0; i < count && good; i++)
        good = copy_piece(PyList_GetItem(pieces, (Py_ssize_t)i), &ranges[i]) == 0;
    if (!good && PyErr_Occurred() == NULL)
        PyErr_SetString(PyExc_OSError, "it gave another number of ranges than asked for");
    int rc = good ? SQRL_OK : ext_fail(err);
    Py_XDECREF(starts);
    Py_XDECREF(ends);
    Py_XDECREF(pieces);
    ext_gate_leave(self->gate, gil);
    return rc;
}

static void remote_file_close(void *fs, void *file) {
    struct remote *self = fs;
    struct remote_file *opened = file;
    PyGILState_STATE gil;
    if (!ext_gate_enter(self->gate, &gil))
        return;
    Py_CLEAR(opened->file);
    ext_gate_leave(self->gate, gil);
}

static const struct sqrl_fs_ops remote_ops = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "fsspec",
    .schemes = "",
    .doc = "whatever fsspec reads",
    .flags = SQRL_FS_LISTABLE,
    .fs_size = sizeof(struct remote),
    .file_size = sizeof(struct remote_file),
    .close = remote_close,
    .stat = remote_stat,
    .list = remote_list,
    .file_open = remote_file_open,
    .file_read = remote_file_read,
    .file_close = remote_file_close,
};

int ext_remote_fs(struct ext_state *state, PyObject *files, struct sqrl_fs **out) {
    struct sqrl_context *context = ext_context(state);
    struct sqrl_error err;
    *out = NULL;
    if (context == NULL)
        return -1;
    if (sqrl_fs_new(context, &remote_ops, NULL, out, &err) != SQRL_OK) {
        ext_raise(state, &err);
        return -1;
    }
    struct remote *self = sqrl_fs_state(*out);
    Py_INCREF(files);
    self->files = files;
    self->gate = state->gate;
    return 0;
}
