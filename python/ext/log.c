/* log.c - the library's log lines in Python's logging.
 *
 * A library thread may log while it holds locks that a thread with the GIL waits for, so
 * the sink must never ask for the GIL. It pushes the line on a list instead (one
 * compare-and-swap, no lock, so that a fork can't leave one behind) and asks the
 * interpreter for a pending call, which takes the whole list on the main thread; the
 * iterators empty it too after each wait. Lines beyond the bound are counted and
 * reported.
 *
 * Logging is Python code: a signal handler may run and raise in it. An exception that is
 * an Exception is a fault of logging, reported and dropped; KeyboardInterrupt and the
 * like are meant for the program, and are kept until they can be raised there.
 */
#include "ext.h"

#include <stdatomic.h>
#include <stdlib.h>

#define LOG_LINES 1024

struct log_line {
    struct log_line *next;
    enum sqrl_log_level level;
    char text[];
};

struct ext_log {
    _Atomic(struct log_line *) head; /* newest first */
    atomic_uint lines, lost;
    atomic_bool asked, stopped;
    PyObject *kept[3]; /* an exception for the program; under the GIL */
};

/* Lives until the process ends: library threads may hold it at any time. */
struct ext_log *ext_log_new(void) {
    return calloc(1, sizeof(struct ext_log));
}

static int log_raise(void *arg) {
    struct ext_log *log = arg;
    if (log->kept[0] == NULL)
        return 0;
    PyErr_Restore(log->kept[0], log->kept[1], log->kept[2]);
    memset(log->kept, 0, sizeof log->kept);
    return -1;
}

/* Of the exception that is set. */
static void log_failed(struct ext_log *log, PyObject *what) {
    if (PyErr_ExceptionMatches(PyExc_Exception) || log->kept[0] != NULL) {
        PyErr_WriteUnraisable(what);
        return;
    }
    PyErr_Fetch(&log->kept[0], &log->kept[1], &log->kept[2]);
    (void)Py_AddPendingCall(log_raise, log); /* if that is full, ext_signals raises it */
}

static void log_emit(struct ext_log *log, PyObject *logger, int level, const char *text) {
    PyObject *line = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    PyObject *done = line == NULL
                         ? NULL
                         : PyObject_CallMethod(logger, "log", "isO", level, "%s", line);
    if (done == NULL)
        log_failed(log, logger);
    Py_XDECREF(done);
    Py_XDECREF(line);
}

/* Takes everything, oldest first. */
static struct log_line *log_take(struct ext_log *log) {
    struct log_line *line = atomic_exchange(&log->head, NULL), *oldest = NULL;
    while (line != NULL) {
        struct log_line *next = line->next;
        line->next = oldest;
        oldest = line;
        line = next;
    }
    return oldest;
}

static void log_deliver(struct ext_log *log) {
    static const int python_level[] = {10, 20, 30, 40};
    atomic_store(&log->asked, false);
    struct log_line *line = log_take(log);
    if (line == NULL)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging == NULL
                           ? NULL
                           : PyObject_CallMethod(logging, "getLogger", "s", "squirrel");
    if (logger == NULL)
        log_failed(log, logging);
    while (line != NULL) {
        struct log_line *next = line->next;
        if (logger != NULL)
            log_emit(log, logger, python_level[line->level & 3], line->text);
        free(line);
        atomic_fetch_sub(&log->lines, 1);
        line = next;
    }
    if (logger != NULL && atomic_exchange(&log->lost, 0) > 0)
        log_emit(log, logger, 30, "some log lines were lost: too many at once");
    Py_XDECREF(logger);
    Py_XDECREF(logging);
    PyErr_Restore(type, value, traceback);
}

static int log_pending(void *arg) {
    log_deliver(arg);
    return log_raise(arg);
}

void ext_log_sink(void *arg, enum sqrl_log_level level, const char *text) {
    struct ext_log *log = arg;
    if (atomic_load(&log->stopped))
        return;
    size_t size = strlen(text) + 1;
    struct log_line *line = malloc(sizeof *line + size);
    if (line == NULL || atomic_fetch_add(&log->lines, 1) >= LOG_LINES) {
        if (line != NULL)
            atomic_fetch_sub(&log->lines, 1);
        free(line);
        atomic_fetch_add(&log->lost, 1);
        return;
    }
    line->level = level;
    memcpy(line->text, text, size);
    line->next = atomic_load(&log->head);
    while (!atomic_compare_exchange_weak(&log->head, &line->next, line))
        ;
    if (!atomic_exchange(&log->asked, true) && Py_AddPendingCall(log_pending, log) != 0)
        atomic_store(&log->asked,
                     false); /* its queue is full: the next line asks again */
}

void ext_log_drain(struct ext_state *state) {
    struct ext_log *log = state->log;
    if (log != NULL && atomic_load(&log->head) != NULL)
        log_deliver(log);
}

int ext_signals(struct ext_state *state) {
    ext_log_drain(state);
    if (state->log != NULL && log_raise(state->log) < 0)
        return -1;
    return PyErr_CheckSignals();
}

/* At the interpreter's exit: what is queued is delivered, later lines are dropped. */
void ext_log_stop(struct ext_log *log) {
    if (log == NULL)
        return;
    atomic_store(&log->stopped, true);
    log_deliver(log);
}
