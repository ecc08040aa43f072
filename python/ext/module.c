/* module.c - squirrel._native: module functions, types and state. */
#include "ext.h"

#include <stdlib.h>

static struct ext_state *state_of(PyObject *module) {
    return PyModule_GetState(module);
}

/* --- committing --- */

/* A sequence of str as C strings that live as long as the tuple; free() the array. */
static const char **prefixes_of(PyObject *tuple, size_t *count) {
    *count = (size_t)PyTuple_Size(tuple);
    const char **texts = calloc(*count + 1, sizeof *texts);
    for (size_t i = 0; texts != NULL && i < *count; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, (Py_ssize_t)i), NULL);
        if (texts[i] == NULL) {
            free(texts);
            return NULL;
        }
    }
    if (texts == NULL)
        PyErr_NoMemory();
    return texts;
}

static PyObject *native_index(PyObject *module, PyObject *args) {
    struct ext_state *state = state_of(module);
    PyObject *path, *dict = Py_None;
    int all = 0, rc;
    struct ext_settings settings;
    struct sqrl_pack_report report;
    struct sqrl_error err;
    if (!PyArg_ParseTuple(args, "O&|pO:index", PyUnicode_FSConverter, &path, &all, &dict))
        return NULL;
    struct sqrl_context *context = ext_context(state);
    const char *url = PyBytes_AsString(path);
    if (context == NULL || url == NULL || ext_settings_init(&settings, dict) < 0) {
        Py_DECREF(path);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_index(context, url, &settings.settings, all != 0, &report, &err);
    Py_END_ALLOW_THREADS
    ext_settings_reset(&settings);
    Py_DECREF(path);
    return rc != SQRL_OK ? ext_raise(state, &err) : ext_report(&report);
}

static PyObject *native_commit(PyObject *module, PyObject *args) {
    struct ext_state *state = state_of(module);
    PyObject *path, *prefixes, *dict = Py_None;
    int overwrite = 0, rc;
    struct ext_settings settings;
    struct sqrl_pack_report report;
    struct sqrl_error err;
    if (!PyArg_ParseTuple(args, "O&O!|pO:commit", PyUnicode_FSConverter, &path,
                          &PyTuple_Type, &prefixes, &overwrite, &dict))
        return NULL;
    if (ext_settings_init(&settings, dict) < 0) {
        Py_DECREF(path);
        return NULL;
    }
    size_t count;
    const char **texts = prefixes_of(prefixes, &count);
    const char *destination = PyBytes_AsString(path);
    struct sqrl_context *context = ext_context(state);
    if (texts == NULL || destination == NULL || context == NULL) {
        free(texts);
        ext_settings_reset(&settings);
        Py_DECREF(path);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_pack_commit(context, destination, &settings.settings, texts, count,
                          overwrite != 0, &report, &err);
    Py_END_ALLOW_THREADS
    free(texts);
    ext_settings_reset(&settings);
    Py_DECREF(path);
    return rc != SQRL_OK ? ext_raise(state, &err) : ext_report(&report);
}

/* --- single values --- */

static PyObject *native_encode(PyObject *module, PyObject *object) {
    struct sqrl_bytes bytes = {0};
    PyObject *result = NULL;
    if (ext_encode(state_of(module), &bytes, object) == 0)
        result =
            PyBytes_FromStringAndSize((const char *)bytes.data, (Py_ssize_t)bytes.size);
    sqrl_bytes_reset(&bytes);
    return result;
}

static PyObject *native_decode(PyObject *module, PyObject *object) {
    struct ext_state *state = state_of(module);
    struct sqrl_tape tape = {0};
    struct sqrl_error err;
    Py_buffer view;
    size_t offset = 0;
    PyObject *result = NULL;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int rc = sqrl_msgpack_decode(&tape, view.buf, (size_t)view.len, &offset, NULL, &err);
    if (rc == SQRL_OK && offset != (size_t)view.len)
        rc = sqrl_error_set(&err, SQRL_E_CORRUPT, "%zu bytes follow the value",
                            (size_t)view.len - offset);
    if (rc != SQRL_OK) {
        ext_raise(state, &err);
    } else {
        struct ext_builder *builder = malloc(sizeof *builder);
        if (builder == NULL) {
            PyErr_NoMemory();
        } else {
            ext_builder_init(builder, state, true, NULL);
            result = ext_build_node(builder, tape.nodes, 0, view.buf, NULL);
            ext_builder_reset(builder);
            free(builder);
        }
    }
    sqrl_tape_reset(&tape);
    PyBuffer_Release(&view);
    return result;
}

/* --- what there is --- */

static PyObject *option_list(const struct sqrl_option *option) {
    static const char *const types[] = {"bool", "int", "float", "size", "text", "choice"};
    static const char *const kinds[] = {"plain", "path", "url", "secret"};
    PyObject *list = PyList_New(0);
    for (; list != NULL && option != NULL && option->name != NULL; option++) {
        PyObject *item = Py_BuildValue("{s:s,s:s,s:s,s:z,s:z,s:s}", "name", option->name,
                                       "type", types[option->type], "kind",
                                       kinds[option->kind], "default", option->initial,
                                       "choices", option->choices, "doc", option->doc);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *native_formats(PyObject *module, PyObject *unused) {
    PyObject *list = PyList_New(0);
    const struct sqrl_format_ops *format;
    for (size_t i = 0; list != NULL && (format = sqrl_format_at(i)) != NULL; i++) {
        PyObject *item = Py_BuildValue(
            "{s:s,s:s,s:s,s:O,s:N,s:N}", "name", format->name, "doc", format->doc,
            "suffixes", format->suffixes == NULL ? "" : format->suffixes, "writes",
            (format->flags & SQRL_FORMAT_WRITES) != 0 ? Py_True : Py_False, "options",
            option_list(format->options), "write_options",
            option_list(format->write_options));
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *native_file_systems(PyObject *module, PyObject *unused) {
    struct sqrl_context *context = ext_context(state_of(module));
    PyObject *list = context == NULL ? NULL : PyList_New(0);
    const struct sqrl_fs_ops *fs;
    for (size_t i = 0; list != NULL && (fs = sqrl_fs_registered(context, i)) != NULL;
         i++) {
        PyObject *item =
            Py_BuildValue("{s:s,s:s,s:s,s:N}", "name", fs->name, "doc", fs->doc,
                          "schemes", fs->schemes, "options", option_list(fs->options));
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *native_drivers(PyObject *module, PyObject *unused) {
    struct sqrl_context *context = ext_context(state_of(module));
    PyObject *list = context == NULL ? NULL : PyList_New(0);
    const struct sqrl_driver_ops *driver;
    for (size_t i = 0; list != NULL && (driver = sqrl_driver_at(context, i)) != NULL;
         i++) {
        PyObject *item =
            Py_BuildValue("{s:s,s:s,s:N}", "name", driver->name, "doc", driver->doc,
                          "options", option_list(driver->options));
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static void metric_visit(void *arg, const struct sqrl_metric *metric) {
    PyObject *value = PyLong_FromUnsignedLongLong(metric->value);
    if (value == NULL || PyDict_SetItemString(arg, metric->name, value) < 0)
        PyErr_Clear();
    Py_XDECREF(value);
}

static PyObject *native_metrics(PyObject *module, PyObject *unused) {
    struct sqrl_context *context = ext_context(state_of(module));
    PyObject *dict = context == NULL ? NULL : PyDict_New();
    if (dict != NULL)
        sqrl_context_metrics(context, metric_visit, dict);
    return dict;
}

static PyObject *native_info(PyObject *module, PyObject *unused) {
    struct sqrl_context *context = ext_context(state_of(module));
    if (context == NULL)
        return NULL;
    return Py_BuildValue("{s:s,s:s,s:I}", "version", sqrl_version(), "cpu",
                         sqrl_cpu_name(), "threads", sqrl_context_cpu_threads(context));
}

static PyObject *native_configure(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"threads", "memory_budget", NULL};
    struct ext_state *state = state_of(module);
    struct sqrl_config config = {.size = sizeof config, .log_level = SQRL_LOG_INFO};
    struct sqrl_context *context = NULL, *old = state->context;
    struct sqrl_error err;
    unsigned long long budget = 0;
    unsigned int threads = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|IK:configure", keys, &threads,
                                     &budget))
        return NULL;
    config.cpu_threads = threads;
    config.memory_budget_bytes = budget;
    config.log = ext_log_sink;
    config.log_arg = state->log;
    if (sqrl_context_new(&config, &context, &err) != SQRL_OK)
        return ext_raise(state, &err);
    state->context = context;
    sqrl_context_unref(old);
    Py_RETURN_NONE;
}

/* --- life --- */

static PyObject *native_after_fork(PyObject *module, PyObject *unused) {
    state_of(module)->forks++;
    ext_gate_forked(state_of(module)->gate);
    Py_RETURN_NONE;
}

static PyObject *native_at_exit(PyObject *module, PyObject *unused) {
    struct ext_state *state = state_of(module);
    ext_gate_close(state->gate);
    ext_log_stop(state->log);
    Py_RETURN_NONE;
}

/* Has the interpreter call `name` of this module: os.register_at_fork, atexit.register.
 */
static int native_hook(PyObject *module, const char *where, const char *hook,
                       const char *keyword, const char *name) {
    PyObject *owner = PyImport_ImportModule(where);
    PyObject *call = owner == NULL ? NULL : PyObject_GetAttrString(owner, hook);
    PyObject *function = call == NULL ? NULL : PyObject_GetAttrString(module, name);
    PyObject *args = NULL, *kwargs = NULL, *done = NULL;
    if (function != NULL) {
        args = keyword != NULL ? PyTuple_New(0) : PyTuple_Pack(1, function);
        kwargs = keyword != NULL ? Py_BuildValue("{s:O}", keyword, function) : NULL;
        if (args != NULL && (keyword == NULL || kwargs != NULL))
            done = PyObject_Call(call, args, kwargs);
    }
    Py_XDECREF(done);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(function);
    Py_XDECREF(call);
    Py_XDECREF(owner);
    return done == NULL ? -1 : 0;
}

static int native_exec(PyObject *module) {
    static PyType_Spec *const specs[EXT_CLASSES] = {
        [EXT_SOURCE] = &ext_source_spec,
        [EXT_PLAN] = &ext_plan_spec,
        [EXT_SAMPLES] = &ext_samples_spec,
        [EXT_BATCHES] = &ext_batches_spec,
        [EXT_SLOT] = &ext_slot_spec,
        [EXT_PIN] = &ext_pin_spec,
        [EXT_MEMORY] = &ext_memory_spec,
        [EXT_PACKER] = &ext_packer_spec,
        [EXT_GUARD] = &ext_guard_spec,
        [EXT_CATALOG] = &ext_catalog_spec,
        [EXT_TWISTER] = &ext_twister_spec,
        [EXT_CHOICES] = &ext_choices_spec,
        [EXT_BATCHED] = &ext_batched_spec,
        [EXT_SHUFFLED] = &ext_shuffled_spec,
        [EXT_MONITORED] = &ext_monitored_spec,
        [EXT_WINDOW] = &ext_window_spec,
        [EXT_ORDERED] = &ext_ordered_spec,
        [EXT_MIXED] = &ext_mixed_spec,
        [EXT_FILE_SYSTEM] = &ext_file_system_spec,
        [EXT_FILE] = &ext_file_spec,
        [EXT_FILE_WRITER] = &ext_file_writer_spec,
        [EXT_COUNTED] = &ext_counted_spec};
    struct ext_state *state = state_of(module);
    state->module = module;
    state->log = ext_log_new();
    state->gate = ext_gate_new();
    if (state->log == NULL || state->gate == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (ext_errors_import(state) < 0)
        return -1;
    for (int i = 0; i < EXT_CLASSES; i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[i], NULL);
        if (type == NULL)
            return -1;
        state->type[i] = (PyTypeObject *)type;
        if (PyModule_AddType(module, (PyTypeObject *)type) < 0)
            return -1;
    }
    if (PyModule_AddStringConstant(module, "__version__", sqrl_version()) < 0 ||
        native_hook(module, "os", "register_at_fork", "after_in_child", "_after_fork") <
            0)
        return -1;
    return native_hook(module, "atexit", "register", NULL, "_at_exit");
}

static int native_traverse(PyObject *module, visitproc visit, void *arg) {
    struct ext_state *state = state_of(module);
    Py_VISIT(state->errors);
    Py_VISIT(state->support);
    for (int i = 0; i < EXT_CLASSES; i++)
        Py_VISIT(state->type[i]);
    return 0;
}

static int native_clear(PyObject *module) {
    struct ext_state *state = state_of(module);
    Py_CLEAR(state->errors);
    Py_CLEAR(state->support);
    for (int i = 0; i < EXT_CLASSES; i++)
        Py_CLEAR(state->type[i]);
    ext_numpy_clear(state);
    return 0;
}

static void native_free(void *module) {
    struct ext_state *state = state_of(module);
    native_clear(module);
    sqrl_context_unref(state->context);
    state->context = NULL;
}

/* Who this process is; what is 0 is found. */
static PyObject *native_topology(PyObject *module, PyObject *args) {
    unsigned long long rank, world_size, worker, workers;
    struct sqrl_error err;
    if (!PyArg_ParseTuple(args, "KKKK:topology", &rank, &world_size, &worker, &workers))
        return NULL;
    struct sqrl_topology t = {rank, world_size, worker, workers};
    if (sqrl_topology_find(&t, &err) != SQRL_OK)
        return ext_raise(PyModule_GetState(module), &err);
    return Py_BuildValue("(KKKK)", (unsigned long long)t.rank,
                         (unsigned long long)t.world_size, (unsigned long long)t.worker,
                         (unsigned long long)t.workers);
}

static PyObject *native_sample_seed(PyObject *module, PyObject *args) {
    unsigned long long seed, epoch, sample, repeat;
    PyObject *shard;
    if (!PyArg_ParseTuple(args, "KKO&KK:sample_seed", &seed, &epoch,
                          PyUnicode_FSConverter, &shard, &sample, &repeat))
        return NULL;
    uint64_t number =
        sqrl_sample_seed(seed, epoch, PyBytes_AsString(shard), sample, repeat);
    Py_DECREF(shard);
    return PyLong_FromUnsignedLongLong(number);
}

static PyMethodDef native_methods[] = {
    {"sample_seed", native_sample_seed, METH_VARARGS,
     "sample_seed($module, seed, epoch, shard, sample, repeat, /)\n--\n\n"
     "64 bits of random choices for one sample."},
    {"topology", native_topology, METH_VARARGS,
     "topology($module, rank, world_size, worker, workers, /)\n--\n\n"
     "Those; numbers of ranks and workers that are 0 are found, and whose they are."},
    {"open", ext_open, METH_VARARGS,
     "open($module, url, options=None, /)\n--\n\nOpens a file or directory: a Source."},
    {"open_in", ext_open_in, METH_VARARGS,
     "open_in($module, files, url, path, options=None, /)\n--\n\n"
     "Opens what `files`, a squirrel._remote.Files, has at `path`: a Source."},
    {"open_catalog", ext_open_catalog, METH_O,
     "open_catalog($module, reference, /)\n--\n\nOpens \"catalog.yaml#name@version\"."},
    {"catalog_places", ext_catalog_places, METH_NOARGS,
     "catalog_places($module, /)\n--\n\n"
     "The user's catalogs as a list of (url, origin, line)."},
    {"catalog_subscribe", ext_catalog_subscribe, METH_VARARGS,
     "catalog_subscribe($module, url, add, /)\n--\n\n"
     "Adds a catalog to the user's configuration or removes it; whether that changed "
     "it."},
    {"commit", native_commit, METH_VARARGS,
     "commit($module, destination, prefixes, overwrite=False, options=None, /)\n--\n\n"
     "Commits the shards whose names begin with one of the prefixes; returns a report."},
    {"index", native_index, METH_VARARGS,
     "index($module, url, all=False, options=None, /)\n--\n\n"
     "Indexes a data set of any format; returns a report."},
    {"encode", native_encode, METH_O,
     "encode($module, sample, /)\n--\n\nA sample as MessagePack bytes."},
    {"decode", native_decode, METH_O,
     "decode($module, data, /)\n--\n\nMessagePack bytes as a sample."},
    {"kendall_tau", ext_kendall_tau, METH_VARARGS,
     "kendall_tau($module, a, b, /)\n--\n\nTau-b of two buffers of uint64."},
    {"order_quality", ext_order_quality, METH_VARARGS,
     "order_quality($module, order, groups, batch_size, /)\n--\n\n"
     "The fields of sqrl_quality of an order (uint64) and its groups (uint32)."},
    {"formats", native_formats, METH_NOARGS,
     "formats($module, /)\n--\n\nThe built-in formats with their options."},
    {"drivers", native_drivers, METH_NOARGS,
     "drivers($module, /)\n--\n\nThe registered drivers with their options."},
    {"file_systems", native_file_systems, METH_NOARGS,
     "file_systems($module, /)\n--\n\n"
     "The registered file systems with their URL schemes and options."},
    {"metrics", native_metrics, METH_NOARGS,
     "metrics($module, /)\n--\n\nThe default context's counters."},
    {"info", native_info, METH_NOARGS, "info($module, /)\n--\n\nVersion, CPU, threads."},
    {"configure", (PyCFunction)(void (*)(void))native_configure,
     METH_VARARGS | METH_KEYWORDS,
     "configure($module, threads=0, memory_budget=0)\n--\n\n"
     "Replaces the default context; what is open keeps the old one."},
    {"_after_fork", native_after_fork, METH_NOARGS, "_after_fork($module, /)\n--\n\n"},
    {"_at_exit", native_at_exit, METH_NOARGS, "_at_exit($module, /)\n--\n\n"},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot native_slots[] = {{Py_mod_exec, native_exec}, {0, NULL}};

static PyModuleDef native_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "squirrel._native",
    .m_doc = "The library behind squirrel; use the package, not this module.",
    .m_size = sizeof(struct ext_state),
    .m_methods = native_methods,
    .m_slots = native_slots,
    .m_traverse = native_traverse,
    .m_clear = native_clear,
    .m_free = native_free};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) {
    return PyModuleDef_Init(&native_module);
}
