/* on_error.c - Plan.on_error: what becomes of bad samples, asked of Python where wanted.
 *
 * The library asks on its own threads, without any lock that a thread with the GIL may
 * wait for.
 */
#include "ext.h"

#include <stdlib.h>

struct asker {
    struct ext_state *state;
    struct sqrl_source *source; /* of the plan that holds this */
    PyObject *ask;              /* owned */
};

static PyObject *number_or_none(uint64_t number) {
    return number == SQRL_UNKNOWN ? Py_NewRef(Py_None)
                                  : PyLong_FromUnsignedLongLong(number);
}

PyObject *ext_bad(struct sqrl_source *source, const struct sqrl_bad *bad) {
    const struct sqrl_shard *file = sqrl_source_shard(source, bad->shard);
    return Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:s,s:s}", "file",
        file == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeFSDefault(file->path),
        "block", number_or_none(bad->block), "sample", number_or_none(bad->sample),
        "samples", number_or_none(bad->samples), "error", bad->error.message, "where",
        bad->error.where);
}

/* The exception that an error would be raised as. */
static PyObject *exception_of(struct ext_state *state, const struct sqrl_error *err) {
    PyObject *type, *value, *traceback;
    ext_raise(state, err);
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static enum sqrl_on_error ask(void *arg, const struct sqrl_bad *bad,
                              struct sqrl_error *err) {
    struct asker *self = arg;
    PyGILState_STATE gil;
    if (!ext_gate_enter(self->state->gate, &gil))
        return SQRL_ON_ERROR_RAISE;
    PyObject *exception = exception_of(self->state, &bad->error);
    PyObject *told = ext_bad(self->source, bad), *answer = NULL;
    if (exception != NULL && told != NULL)
        answer = PyObject_CallFunctionObjArgs(self->ask, exception, told, NULL);
    long verdict = answer == NULL ? -1 : PyLong_AsLong(answer);
    if (PyErr_Occurred() != NULL) {
        ext_fail(err);
        verdict = SQRL_ON_ERROR_RAISE;
    }
    Py_XDECREF(answer);
    Py_XDECREF(told);
    Py_XDECREF(exception);
    ext_gate_leave(self->state->gate, gil);
    return verdict == SQRL_ON_ERROR_SKIP || verdict == SQRL_ON_ERROR_SUBSTITUTE
               ? (enum sqrl_on_error)verdict
               : SQRL_ON_ERROR_RAISE;
}

/* Where the interpreter has ended there is nothing to let go of. */
static void asker_free(void *arg) {
    struct asker *self = arg;
    PyGILState_STATE gil;
    if (ext_gate_enter(self->state->gate, &gil)) {
        Py_DECREF(self->ask);
        ext_gate_leave(self->state->gate, gil);
    }
    free(self);
}

PyObject *ext_plan_on_error(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"policy", "retries", "consecutive", "total", "ask", NULL};
    static const char *const names[] = {"raise", "skip", "substitute", "ask"};
    struct sqrl_on_error_options options = {.size = sizeof options};
    struct sqrl_plan *out = NULL;
    struct sqrl_error err;
    const char *policy;
    PyObject *function = Py_None;
    unsigned long long retries = 0, consecutive = 0, total = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|KKKO:on_error", keys, &policy,
                                     &retries, &consecutive, &total, &function))
        return NULL;
    int choice = 0;
    while (choice < 4 && strcmp(names[choice], policy) != 0)
        choice++;
    if (choice == 4 || (choice == SQRL_ON_ERROR_ASK) != (function != Py_None)) {
        PyErr_SetString(PyExc_ValueError, "the policy must be \"raise\", \"skip\", "
                                          "\"substitute\", or \"ask\" with `ask`");
        return NULL;
    }
    options.policy = (enum sqrl_on_error)choice;
    options.retries = retries;
    options.consecutive = consecutive;
    options.total = total;
    if (function != Py_None) {
        struct asker *asker = malloc(sizeof *asker);
        if (asker == NULL)
            return PyErr_NoMemory();
        *asker =
            (struct asker){ext_state_of(self), sqrl_plan_get_source(ext_plan_get(self)),
                           Py_NewRef(function)};
        options.ask = ask;
        options.arg = asker;
        options.release = asker_free;
    }
    int rc = sqrl_plan_on_error(ext_plan_get(self), &options, &out, &err);
    return ext_plan_result(self, rc, &out, &err);
}
