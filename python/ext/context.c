/* context.c - the process's default context and what hangs from it in Python. */
#include "ext.h"

struct sqrl_context *ext_context(struct ext_state *state) {
    if (EXT_LIKELY(state->context != NULL))
        return state->context;
    struct sqrl_config config = {.size = sizeof config, .log_level = SQRL_LOG_INFO};
    struct sqrl_error err;
    config.log = ext_log_sink;
    config.log_arg = state->log;
    if (sqrl_context_new(&config, &state->context, &err) != SQRL_OK) {
        state->context = NULL;
        ext_raise(state, &err);
        return NULL;
    }
    return state->context;
}

PyObject *ext_support(struct ext_state *state) {
    if (state->support == NULL)
        state->support = PyImport_ImportModule("squirrel._support");
    return state->support;
}

PyObject *ext_support_call(struct ext_state *state, const char *name, PyObject *a,
                           PyObject *b) {
    PyObject *support = ext_support(state);
    PyObject *function = support == NULL ? NULL : PyObject_GetAttrString(support, name);
    if (function == NULL)
        return NULL;
    PyObject *result = PyObject_CallFunctionObjArgs(function, a, b, NULL);
    Py_DECREF(function);
    return result;
}

/* torch is never imported for this: a DataLoader worker has imported it already. */
void ext_share_cores(struct ext_state *state) {
    PyObject *modules = PyImport_GetModuleDict();
    if (modules == NULL || PyDict_GetItemString(modules, "torch.utils.data") == NULL)
        return;
    PyObject *count = ext_support_call(state, "sibling_workers", NULL, NULL);
    unsigned long siblings = count == NULL ? 0 : PyLong_AsUnsignedLong(count);
    Py_XDECREF(count);
    if (PyErr_Occurred() != NULL) {
        PyErr_Clear();
        return;
    }
    struct sqrl_context *context = siblings > 1 ? ext_context(state) : NULL;
    if (context != NULL)
        sqrl_context_set_siblings(context, (unsigned)siblings);
    PyErr_Clear();
}
