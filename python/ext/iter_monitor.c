/* iter_monitor.c - squirrel._native.Monitored: tells a callback the rates of the items
 * that pass.
 *
 * A window of w items spans w - 1 intervals: the rates are those of the w - 1 items that
 * came after the oldest one, over the time since that one. A window of 1 item means the
 * interval since the item before. Rates are rounded to 2 decimals.
 */
#include "iter.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

struct monitored {
    PyObject_HEAD struct iter_above above;
    struct iter_gate gate;
    PyObject *callback, *kwargs, *getsize; /* owned; kwargs and getsize may be NULL */
    PyObject *items_key, *bytes_key;       /* owned */
    bool count_items;
    double unit_bytes;
    uint64_t seen;
    size_t window;
    double bytes_sum; /* of the items in the window but the oldest */
    struct {
        int64_t time_ns;
        double bytes;
    } * ring; /* owned [window] */
};

static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static PyObject *monitored_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"iterator",  "callback",    "kwargs",    "window",
                           "items_key", "count_items", "bytes_key", "unit_bytes",
                           "getsize",   NULL};
    PyObject *iterator, *callback, *options, *items_key, *bytes_key, *getsize;
    Py_ssize_t window;
    double unit_bytes;
    int count_items;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOnOpOdO:Monitored", keys, &iterator,
                                     &callback, &options, &window, &items_key,
                                     &count_items, &bytes_key, &unit_bytes, &getsize))
        return NULL;
    if (window < 1 || window > 1 << 24)
        return PyErr_Format(PyExc_ValueError,
                            "a window holds 1 to 16777216 items, not %zd", window);
    struct monitored *self = (struct monitored *)ext_alloc(type);
    if (self == NULL)
        return NULL;
    iter_gate_init(&self->gate);
    self->window = window < 2 ? 2 : (size_t)window;
    self->ring = calloc(self->window, sizeof *self->ring);
    self->count_items = count_items;
    self->unit_bytes = unit_bytes;
    self->callback = Py_NewRef(callback);
    self->kwargs = options != Py_None ? Py_NewRef(options) : NULL;
    self->getsize = getsize != Py_None ? Py_NewRef(getsize) : NULL;
    self->items_key = Py_NewRef(items_key);
    self->bytes_key = Py_NewRef(bytes_key);
    if (self->ring == NULL)
        PyErr_NoMemory();
    if (self->ring == NULL || iter_above_init(&self->above, iterator) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int monitored_traverse(PyObject *op, visitproc visit, void *arg) {
    struct monitored *self = (struct monitored *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->above.object);
    Py_VISIT(self->callback);
    Py_VISIT(self->kwargs);
    Py_VISIT(self->getsize);
    return 0;
}

static int monitored_clear(PyObject *op) {
    struct monitored *self = (struct monitored *)op;
    Py_CLEAR(self->above.object);
    Py_CLEAR(self->callback);
    Py_CLEAR(self->kwargs);
    Py_CLEAR(self->getsize);
    return 0;
}

static void monitored_dealloc(PyObject *op) {
    struct monitored *self = (struct monitored *)op;
    PyObject_GC_UnTrack(op);
    monitored_clear(op);
    Py_CLEAR(self->items_key);
    Py_CLEAR(self->bytes_key);
    free(self->ring);
    iter_gate_reset(&self->gate);
    ext_free(op);
}

/* --- how large an item is --- */

/* Bytes of a pickle (protocol 4) whose only object has an opcode of `bytes` bytes:
 * header, end, and a frame from 4 bytes on. */
static double pickle_bytes(double bytes) {
    return 2 + bytes + 1 + (bytes + 1 >= 4 ? 9 : 0);
}

static double pickled_text(Py_ssize_t length) {
    return pickle_bytes((length < 256 ? 2.0 : 5.0) + (double)length + 1);
}

/* The size that pickle.dumps() would give, for plain scalars; -1 for all others. */
static double scalar_bytes(PyObject *item) {
    Py_ssize_t length;
    if (item == Py_None || item == Py_True || item == Py_False)
        return pickle_bytes(1);
    if (PyLong_CheckExact(item)) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow != 0 || value > INT32_MAX || value < INT32_MIN)
            return -1;
        return pickle_bytes(value >= 0 && value < 256     ? 2
                            : value >= 0 && value < 65536 ? 3
                                                          : 5);
    }
    if (PyFloat_CheckExact(item))
        return pickle_bytes(9);
    if (PyUnicode_CheckExact(item)) {
        if (PyUnicode_AsUTF8AndSize(item, &length) == NULL) {
            PyErr_Clear();
            return -1;
        }
        return length < 60000 ? pickled_text(length) : -1;
    }
    if (PyBytes_CheckExact(item) && (length = PyBytes_Size(item)) < 60000)
        return pickled_text(length);
    return -1;
}

/* -1 with an exception. */
static double item_bytes(struct monitored *self, PyObject *item) {
    double bytes = scalar_bytes(item);
    if (bytes >= 0)
        return bytes;
    PyObject *size = PyObject_CallFunctionObjArgs(self->getsize, item, NULL);
    if (size == NULL)
        return -1;
    bytes = PyFloat_AsDouble(size);
    Py_DECREF(size);
    return bytes;
}

/* --- reports --- */

/* round(value, 2): a number of hundredths that is not close to a half needs no decimal
 * arithmetic, since its hundredth part is rounded correctly by the division. */
static PyObject *rounded(double value) {
    double hundredths = value * 100, whole = nearbyint(hundredths);
    if (fabs(hundredths) < 1e12 && fabs(fabs(hundredths - whole) - 0.5) > 1e-3)
        return PyFloat_FromDouble(whole / 100);
    PyObject *number = PyFloat_FromDouble(value);
    PyObject *result =
        number == NULL ? NULL : PyObject_CallMethod(number, "__round__", "i", 2);
    Py_XDECREF(number);
    return result;
}

static int report(struct monitored *self, double seconds) {
    double items = (double)(self->window - 1);
    PyObject *rate = self->count_items ? rounded(items / seconds) : PyLong_FromLong(0);
    PyObject *bytes = rounded(self->bytes_sum / self->unit_bytes / seconds);
    PyObject *metrics = rate == NULL || bytes == NULL ? NULL : PyDict_New();
    PyObject *args = NULL, *done = NULL;
    if (metrics != NULL && PyDict_SetItem(metrics, self->items_key, rate) == 0 &&
        PyDict_SetItem(metrics, self->bytes_key, bytes) == 0) {
        if (self->kwargs == NULL)
            done = PyObject_CallFunctionObjArgs(self->callback, metrics, NULL);
        else if ((args = PyTuple_Pack(1, metrics)) != NULL)
            done = PyObject_Call(self->callback, args, self->kwargs);
    }
    int rc = done == NULL ? -1 : 0;
    Py_XDECREF(done);
    Py_XDECREF(args);
    Py_XDECREF(metrics);
    Py_XDECREF(bytes);
    Py_XDECREF(rate);
    return rc;
}

static int monitored_count(struct monitored *self, PyObject *item) {
    double bytes = self->getsize != NULL ? item_bytes(self, item) : 0;
    if (bytes < 0)
        return -1;
    int64_t now = clock_ns();
    size_t at = self->seen % self->window;
    self->ring[at].time_ns = now;
    self->ring[at].bytes = bytes;
    self->bytes_sum += bytes;
    if (++self->seen < self->window)
        return 0;
    size_t oldest = self->seen % self->window;
    int64_t passed = now - self->ring[oldest].time_ns;
    self->bytes_sum -= self->ring[oldest].bytes;
    return report(self, (double)(passed > 0 ? passed : 1) / 1e9);
}

static PyObject *monitored_next(PyObject *op) {
    struct monitored *self = (struct monitored *)op;
    if (iter_gate_enter(&self->gate) < 0)
        return NULL;
    PyObject *item = iter_above_next(&self->above);
    if (item != NULL && monitored_count(self, item) < 0)
        Py_CLEAR(item);
    iter_gate_leave(&self->gate);
    return item;
}

static PyType_Slot monitored_slots[] = {
    {Py_tp_new, monitored_new},
    {Py_tp_dealloc, monitored_dealloc},
    {Py_tp_traverse, monitored_traverse},
    {Py_tp_clear, monitored_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, monitored_next},
    {Py_tp_doc, "Monitored(iterator, callback, kwargs, window, items_key, count_items, "
                "bytes_key, unit_bytes, getsize)\n--\n\n"
                "Passes items on and calls callback({items_key: items/s, bytes_key: "
                "units/s}, **kwargs)."},
    {0, NULL}};
PyType_Spec ext_monitored_spec = {.name = "squirrel._native.Monitored",
                                  .basicsize = sizeof(struct monitored),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                  .slots = monitored_slots};
