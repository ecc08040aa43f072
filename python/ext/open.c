/* open.c - squirrel.open: a source from a URL, a Python file system or a catalog. */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

/* One opening. What it needs is its own: a signal handler may leave it behind. */
struct opening {
    struct ext_call call;
    struct sqrl_context *context;
    char *url;
    struct sqrl_setting *items; /* settings, with `texts` */
    char *texts;
    struct sqrl_settings settings;
    struct sqrl_source *source;
    int rc;
    struct sqrl_error err;
};

static void opening_drop(struct ext_call *call) {
    struct opening *opening = (struct opening *)call;
    sqrl_source_unref(opening->source);
    sqrl_context_unref(opening->context);
    free(opening->url);
    free(opening->items);
    free(opening->texts);
    free(opening);
}

static int copy_settings(struct opening *to, const struct sqrl_settings *from) {
    size_t bytes = 0;
    for (size_t i = 0; i < from->count; i++)
        bytes += strlen(from->items[i].name) + strlen(from->items[i].value) + 2;
    to->items = calloc(from->count + 1, sizeof *to->items);
    char *at = to->texts = malloc(bytes + 1);
    if (to->items == NULL || at == NULL)
        return -1;
    for (size_t i = 0; i < from->count; i++) {
        to->items[i].name = at;
        at = stpcpy(at, from->items[i].name) + 1;
        to->items[i].value = at;
        at = stpcpy(at, from->items[i].value) + 1;
    }
    to->settings = (struct sqrl_settings){to->items, from->count};
    return 0;
}

static struct opening *opening_new(struct sqrl_context *context, const char *url,
                                   const struct sqrl_settings *settings,
                                   void (*run)(struct ext_call *call)) {
    struct opening *opening = calloc(1, sizeof *opening);
    if (opening == NULL)
        return (void *)PyErr_NoMemory();
    opening->call = (struct ext_call){.run = run, .drop = opening_drop};
    opening->context = sqrl_context_ref(context);
    opening->url = strdup(url);
    if (opening->url != NULL && copy_settings(opening, settings) == 0)
        return opening;
    opening_drop(&opening->call);
    return (void *)PyErr_NoMemory();
}

static void run_open(struct ext_call *call) {
    struct opening *o = (struct opening *)call;
    o->rc = sqrl_open(o->context, o->url, &o->settings, &o->source, &o->err);
}

static void run_open_catalog(struct ext_call *call) {
    struct opening *o = (struct opening *)call;
    o->rc = sqrl_catalog_open(o->context, o->url, NULL, &o->source, &o->err);
}

/* Ends the opening, which may be NULL: an exception is set then. */
static PyObject *open_run(struct ext_state *state, struct opening *opening, bool quick,
                          bool tuples) {
    if (opening == NULL || ext_call(state, &opening->call, quick) < 0)
        return NULL;
    ext_log_drain(state);
    struct sqrl_source *source = opening->source;
    opening->source = NULL;
    PyObject *result = opening->rc != SQRL_OK ? ext_raise(state, &opening->err)
                                              : ext_source_new(state, source, tuples);
    ext_call_end(&opening->call);
    return result;
}

/* Takes use_list out of the options, which is this extension's and not a driver's. The
 * new reference in *options is the caller's to drop. */
static int take_use_list(PyObject **options, bool *tuples) {
    *tuples = false;
    if (*options == Py_None || !PyDict_Check(*options) ||
        PyDict_GetItemString(*options, "use_list") == NULL) {
        Py_INCREF(*options);
        return 0;
    }
    int lists = PyObject_IsTrue(PyDict_GetItemString(*options, "use_list"));
    PyObject *rest = lists < 0 ? NULL : PyDict_Copy(*options);
    if (rest == NULL || PyDict_DelItemString(rest, "use_list") < 0) {
        Py_XDECREF(rest);
        return -1;
    }
    *tuples = lists == 0;
    *options = rest;
    return 0;
}

static int take_options(PyObject *options, struct ext_settings *settings, bool *tuples) {
    if (take_use_list(&options, tuples) < 0)
        return -1;
    int rc = ext_settings_init(settings, options);
    Py_DECREF(options);
    return rc;
}

PyObject *ext_open(PyObject *module, PyObject *args) {
    struct ext_state *state = PyModule_GetState(module);
    PyObject *path, *options = Py_None, *source = NULL;
    struct ext_settings settings;
    bool tuples;
    if (!PyArg_ParseTuple(args, "O&|O:open", PyUnicode_FSConverter, &path, &options))
        return NULL;
    const char *url = PyBytes_AsString(path);
    struct sqrl_context *context = url == NULL ? NULL : ext_context(state);
    if (context != NULL && take_options(options, &settings, &tuples) == 0) {
        bool quick = strstr(url, "://") == NULL;
        source = open_run(state, opening_new(context, url, &settings.settings, run_open),
                          quick, tuples);
        ext_settings_reset(&settings);
    }
    Py_DECREF(path);
    return source;
}

/* Runs on this thread: the file system is Python's, and so sees signals itself. */
PyObject *ext_open_in(PyObject *module, PyObject *args) {
    struct ext_state *state = PyModule_GetState(module);
    struct sqrl_context *context = ext_context(state);
    PyObject *files, *options = Py_None;
    const char *url, *path;
    struct sqrl_fs *fs;
    struct ext_settings settings;
    struct sqrl_source *source = NULL;
    struct sqrl_error err;
    bool tuples;
    int rc;
    if (context == NULL ||
        !PyArg_ParseTuple(args, "Oss|O:open_in", &files, &url, &path, &options) ||
        take_options(options, &settings, &tuples) < 0)
        return NULL;
    if (ext_remote_fs(state, files, &fs) < 0) {
        ext_settings_reset(&settings);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_open_in(context, fs, url, path, &settings.settings, &source, &err);
    sqrl_fs_unref(fs);
    Py_END_ALLOW_THREADS
    ext_log_drain(state);
    ext_settings_reset(&settings);
    return rc != SQRL_OK ? ext_raise(state, &err) : ext_source_new(state, source, tuples);
}

PyObject *ext_open_catalog(PyObject *module, PyObject *arg) {
    static const struct sqrl_settings none = {NULL, 0};
    struct ext_state *state = PyModule_GetState(module);
    PyObject *path;
    if (!PyUnicode_FSConverter(arg, &path))
        return NULL;
    const char *reference = PyBytes_AsString(path);
    struct sqrl_context *context = reference == NULL ? NULL : ext_context(state);
    PyObject *source = NULL;
    if (context != NULL)
        source = open_run(state, opening_new(context, reference, &none, run_open_catalog),
                          false, false);
    Py_DECREF(path);
    return source;
}
