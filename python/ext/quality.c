/* quality.c - squirrel._native.kendall_tau and order_quality: sqrl/quality.h on buffers.
 */
#include "ext.h"

#include <sqrl/quality.h>

/* Two contiguous buffers of `count` elements each; -1 with a ValueError. */
static int same_count(const Py_buffer *a, size_t a_size, const Py_buffer *b,
                      size_t b_size, size_t *count) {
    *count = (size_t)a->len / a_size;
    if ((size_t)a->len % a_size == 0 && (size_t)b->len == *count * b_size)
        return 0;
    PyErr_SetString(PyExc_ValueError, "two arrays of the same length are needed");
    return -1;
}

PyObject *ext_kendall_tau(PyObject *module, PyObject *args) {
    Py_buffer a, b;
    double tau = 0;
    size_t count;
    struct sqrl_error err;
    int rc = SQRL_OK;
    if (!PyArg_ParseTuple(args, "y*y*:kendall_tau", &a, &b))
        return NULL;
    bool good = same_count(&a, 8, &b, 8, &count) == 0;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        rc = sqrl_kendall_tau(a.buf, b.buf, count, &tau, &err);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    if (!good)
        return NULL;
    return rc != SQRL_OK ? ext_raise(PyModule_GetState(module), &err)
                         : PyFloat_FromDouble(tau);
}

PyObject *ext_order_quality(PyObject *module, PyObject *args) {
    Py_buffer order, group;
    Py_ssize_t batch;
    size_t count;
    struct sqrl_quality q = {0};
    struct sqrl_error err;
    int rc = SQRL_OK;
    if (!PyArg_ParseTuple(args, "y*y*n:order_quality", &order, &group, &batch))
        return NULL;
    bool good = same_count(&order, 8, &group, 4, &count) == 0;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        rc = sqrl_quality_measure(order.buf, group.buf, count,
                                  batch > 0 ? (size_t)batch : 0, &q, &err);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&order);
    PyBuffer_Release(&group);
    if (!good)
        return NULL;
    if (rc != SQRL_OK)
        return ext_raise(PyModule_GetState(module), &err);
    return Py_BuildValue("dddddddK", q.tau, q.mean_displacement, q.max_displacement,
                         q.batch_groups, q.random_batch_groups, q.batch_entropy,
                         q.whole_entropy, (unsigned long long)q.batches);
}
