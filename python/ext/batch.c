/* batch.c - squirrel._native.Slot, the owner of a batch's memory, and what is made from
 * it.
 *
 * Every array of a batch points into its slot and names the Slot object as its base:
 * memory goes back when the last of them is gone. squirrel.Batch (a dict of arrays and
 * Columns) is made here for each batch; everything rarer (validity, places, exports) is
 * asked of the slot later.
 */
#include "ext.h"

struct slot {
    PyObject_HEAD struct sqrl_batch *batch;
};

static struct sqrl_batch *slot_get(PyObject *self) {
    return ((struct slot *)self)->batch;
}

static void slot_dealloc(PyObject *self) {
    sqrl_batch_unref(slot_get(self));
    ext_free(self);
}

static const char *const kind_names[] = {"null",   "dense",  "ragged",
                                         "string", "binary", "other"};

static PyObject *none(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

/* --- arrays --- */

static PyObject *data_array(struct ext_state *state, PyObject *slot,
                            const struct sqrl_batch *b,
                            const struct sqrl_column *column) {
    uint64_t shape[SQRL_MAX_DIMS + 1];
    size_t size = sqrl_dtype_size(column->dtype);
    if (column->kind != SQRL_KIND_DENSE) {
        shape[0] = size == 0 ? 0 : column->data_bytes / size;
        return ext_array_new(state, column->dtype, false, 1, shape, column->data, true,
                             slot);
    }
    if (column->dims >= SQRL_MAX_DIMS) /* NumPy 1 ends at 32 with the batch's own */
        return ext_raise_code(
            state, SQRL_E_LIMIT,
            "a batch of arrays with 32 dimensions has too many for NumPy");
    shape[0] = b->rows;
    memcpy(shape + 1, column->shape, column->dims * sizeof shape[0]);
    return ext_array_new(state, column->dtype, false, (int)column->dims + 1, shape,
                         column->data, true, slot);
}

static PyObject *part_array(struct ext_state *state, PyObject *slot,
                            const struct sqrl_batch *b, const struct sqrl_column *column,
                            enum sqrl_part part) {
    uint64_t shape[2] = {b->rows, column->dims};
    switch (part) {
    case SQRL_PART_DATA:
        return column->data == NULL ? none() : data_array(state, slot, b, column);
    case SQRL_PART_OFFSETS:
        shape[0]++;
        return column->offsets == NULL
                   ? none()
                   : ext_array_new(state, SQRL_DTYPE_INT64, false, 1, shape,
                                   column->offsets, true, slot);
    case SQRL_PART_SHAPES:
        return column->shapes == NULL ? none()
                                      : ext_array_new(state, SQRL_DTYPE_INT64, false, 2,
                                                      shape, column->shapes, true, slot);
    case SQRL_PART_VALID:
        return column->valid == NULL ? none()
                                     : ext_array_new(state, SQRL_DTYPE_BOOL, false, 1,
                                                     shape, column->valid, true, slot);
    }
    return none();
}

/* A dense column is its array, anything else a squirrel.Column. */
static PyObject *column_object(struct ext_state *state, PyObject *slot,
                               const struct sqrl_batch *batch, uint32_t index) {
    const struct sqrl_column *column = &batch->column[index];
    if (column->kind == SQRL_KIND_DENSE)
        return data_array(state, slot, batch, column);
    PyObject *number = PyLong_FromUnsignedLong(index);
    PyObject *object =
        number == NULL ? NULL : ext_support_call(state, "make_column", slot, number);
    Py_XDECREF(number);
    return object;
}

PyObject *ext_batch_new(struct ext_state *state, struct sqrl_batch *batch) {
    if (ext_numpy_need(state) < 0) {
        sqrl_batch_unref(batch);
        return NULL;
    }
    struct slot *slot = (struct slot *)ext_alloc(state->type[EXT_SLOT]);
    if (slot == NULL) {
        sqrl_batch_unref(batch);
        return NULL;
    }
    slot->batch = batch;
    PyObject *columns = PyDict_New(), *result = NULL;
    for (uint32_t i = 0; columns != NULL && i < batch->columns; i++) {
        PyObject *object = column_object(state, (PyObject *)slot, batch, i);
        if (object == NULL ||
            PyDict_SetItemString(columns, batch->column[i].name, object) < 0)
            Py_CLEAR(columns);
        Py_XDECREF(object);
    }
    if (columns != NULL)
        result = ext_support_call(state, "make_batch", columns, (PyObject *)slot);
    Py_XDECREF(columns);
    Py_DECREF(slot);
    return result;
}

/* --- methods --- */

static const struct sqrl_column *column_at(PyObject *self, unsigned long index) {
    struct sqrl_batch *batch = slot_get(self);
    if (index < batch->columns)
        return &batch->column[index];
    PyErr_SetString(PyExc_IndexError, "no such column");
    return NULL;
}

static PyObject *slot_part(PyObject *self, PyObject *args) {
    unsigned long index;
    int part;
    if (!PyArg_ParseTuple(args, "ki:part", &index, &part))
        return NULL;
    const struct sqrl_column *column = column_at(self, index);
    if (column == NULL)
        return NULL;
    return part_array(ext_state_of(self), self, slot_get(self), column,
                      (enum sqrl_part)part);
}

static PyObject *slot_column(PyObject *self, PyObject *arg) {
    unsigned long index = PyLong_AsUnsignedLong(arg);
    if (PyErr_Occurred() != NULL)
        return NULL;
    const struct sqrl_column *column = column_at(self, index);
    if (column == NULL)
        return NULL;
    return Py_BuildValue("(ssiOO)", column->name, kind_names[column->kind],
                         (int)column->dims, column->valid != NULL ? Py_True : Py_False,
                         column->padded ? Py_True : Py_False);
}

static PyObject *text_item(const struct sqrl_column *column, uint64_t row) {
    if (column->valid != NULL && column->valid[row] == 0)
        return none();
    const char *data = (const char *)column->data + column->offsets[row];
    Py_ssize_t size = (Py_ssize_t)(column->offsets[row + 1] - column->offsets[row]);
    return column->kind == SQRL_KIND_STRING ? PyUnicode_FromStringAndSize(data, size)
                                            : PyBytes_FromStringAndSize(data, size);
}

/* STRING and BINARY: one row, or all of them. */
static PyObject *slot_texts(PyObject *self, PyObject *args) {
    unsigned long index;
    Py_ssize_t row = -1;
    if (!PyArg_ParseTuple(args, "k|n:texts", &index, &row))
        return NULL;
    const struct sqrl_column *column = column_at(self, index);
    if (column == NULL)
        return NULL;
    uint64_t rows = slot_get(self)->rows;
    if (column->kind != SQRL_KIND_STRING && column->kind != SQRL_KIND_BINARY) {
        PyErr_SetString(PyExc_TypeError, "not a column of strings or bytes");
        return NULL;
    }
    if (row >= 0) {
        if ((uint64_t)row < rows)
            return text_item(column, (uint64_t)row);
        PyErr_SetString(PyExc_IndexError, "no such row");
        return NULL;
    }
    PyObject *list = PyList_New((Py_ssize_t)rows);
    for (uint64_t i = 0; list != NULL && i < rows; i++) {
        PyObject *text = text_item(column, i);
        if (text == NULL || PyList_SetItem(list, (Py_ssize_t)i, text) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *slot_places(PyObject *self, PyObject *unused) {
    struct sqrl_batch *batch = slot_get(self);
    uint64_t shape[2] = {batch->rows, 2};
    if (batch->place == NULL)
        return none();
    return ext_array_new(ext_state_of(self), SQRL_DTYPE_UINT64, false, 2, shape,
                         batch->place, false, self);
}

static PyObject *slot_dlpack(PyObject *self, PyObject *args) {
    unsigned long index;
    int part, versioned;
    if (!PyArg_ParseTuple(args, "kip:dlpack", &index, &part, &versioned))
        return NULL;
    if (column_at(self, index) == NULL)
        return NULL;
    return ext_dlpack(ext_state_of(self), slot_get(self), (uint32_t)index,
                      (enum sqrl_part)part, versioned != 0);
}

static PyObject *slot_arrow(PyObject *self, PyObject *arg) {
    long index = PyLong_AsLong(arg);
    if (PyErr_Occurred() != NULL ||
        (index >= 0 && column_at(self, (unsigned long)index) == NULL))
        return NULL;
    return ext_arrow_batch(ext_state_of(self), slot_get(self), (int)index);
}

static PyObject *slot_rows(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLongLong(slot_get(self)->rows);
}
static PyObject *slot_number(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLongLong(slot_get(self)->number);
}
static PyObject *slot_columns(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLong(slot_get(self)->columns);
}

static PyGetSetDef slot_getset[] = {
    {"rows", slot_rows, NULL, "Number of rows.", NULL},
    {"number", slot_number, NULL, "Position of the batch within its iterator.", NULL},
    {"columns", slot_columns, NULL, "Number of columns.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef slot_methods[] = {
    {"column", slot_column, METH_O,
     "column($self, index, /)\n--\n\n(name, kind, dims, has_valid, padded) of a column."},
    {"part", slot_part, METH_VARARGS,
     "part($self, index, part, /)\n--\n\n"
     "An array of a column: 0 data, 1 offsets, 2 shapes, 3 valid; None where it has "
     "none."},
    {"texts", slot_texts, METH_VARARGS,
     "texts($self, index, row=-1, /)\n--\n\nThe str or bytes of one row, or of all as a "
     "list."},
    {"places", slot_places, METH_NOARGS,
     "places($self, /)\n--\n\nuint64[rows, 2]: shard and sample number of each row."},
    {"dlpack", slot_dlpack, METH_VARARGS,
     "dlpack($self, index, part, versioned, /)\n--\n\nA DLPack capsule."},
    {"arrow", slot_arrow, METH_O,
     "arrow($self, index, /)\n--\n\n(schema, array) capsules of a column, or of all by "
     "-1."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slot_slots[] = {{Py_tp_dealloc, slot_dealloc},
                                   {Py_tp_doc, "Owns the memory of one batch."},
                                   {Py_tp_getset, slot_getset},
                                   {Py_tp_methods, slot_methods},
                                   {0, NULL}};
PyType_Spec ext_slot_spec = {.name = "squirrel._native.Slot",
                             .basicsize = sizeof(struct slot),
                             .flags =
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .slots = slot_slots};
