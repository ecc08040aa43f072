/* error.c - from struct sqrl_error to exceptions.
 *
 * The classes live in squirrel/_errors.py; the extension finds them by code in its tuple
 * BY_CODE.
 */
#include "ext.h"

int ext_errors_import(struct ext_state *state) {
    PyObject *module = PyImport_ImportModule("squirrel._errors");
    if (module == NULL)
        return -1;
    state->errors = PyObject_GetAttrString(module, "BY_CODE");
    Py_DECREF(module);
    if (state->errors == NULL)
        return -1;
    if (PyTuple_Size(state->errors) != SQRL_E_USER + 1) {
        PyErr_SetString(PyExc_ImportError,
                        "squirrel._errors does not fit this extension module");
        return -1;
    }
    return 0;
}

static PyObject *text_of(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *error_call(PyObject *class, const struct sqrl_error *err) {
    PyObject *args = Py_BuildValue("(N)", text_of(err->message));
    PyObject *kwargs =
        Py_BuildValue("{s:N,s:i,s:O}", "where", text_of(err->where), "os_errno",
                      err->os_errno, "retryable", err->retryable ? Py_True : Py_False);
    PyObject *exception = NULL;
    if (args != NULL && kwargs != NULL)
        exception = PyObject_Call(class, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return exception;
}

PyObject *ext_raise(struct ext_state *state, const struct sqrl_error *err) {
    int code = err->code;
    if (code <= 0 || code > SQRL_E_USER)
        code = SQRL_E_STATE;
    PyObject *class = PyTuple_GetItem(state->errors, code);
    if (class == NULL)
        return NULL;
    PyObject *exception = error_call(class, err);
    if (exception == NULL)
        return NULL;
    PyErr_SetObject(class, exception);
    Py_DECREF(exception);
    return NULL;
}

PyObject *ext_raise_code(struct ext_state *state, int code, const char *text) {
    struct sqrl_error err;
    sqrl_error_clear(&err);
    sqrl_error_set(&err, code, "%s", text);
    return ext_raise(state, &err);
}
