/* numpy.c - NumPy through its C table, taken from its capsule when first needed.
 *
 * The limited API leaves only np.ndarray(...) and np.frombuffer(...), which cost more
 * than everything else about a sample. NumPy's own C table is stable: entries are never
 * moved, and the array's leading fields are public (its macros read them inline). Both
 * hold for 1.23 to 2.x; the table's ABI number is checked before the first use. Entries
 * used, by index:
 *
 *   0  unsigned PyArray_GetNDArrayCVersion(void)        0x01000009 (1.x), 0x02000000
 * (2.x) 2  PyArray_Type                8  PyBoolArrType_Type 10  PyGenericArrType_Type 11
 * PyNumberArrType_Type 45  PyArray_DescrFromType(int type_num) 57
 * PyArray_DescrFromScalar(scalar) 60  PyArray_Scalar(void *data, descr, base) 62  void
 * PyArray_ScalarAsCtype(scalar, void *out) 85  PyArray_NewCopy(array, order) order 0 is C
 *  94  PyArray_NewFromDescr(type, descr (stolen), dims, shape, strides, data, flags,
 * object) 106  PyArray_DescrNewByteorder(descr, char order) 211  unsigned
 * PyArray_GetNDArrayCFeatureVersion(void) at least 16 (1.23) 282
 * PyArray_SetBaseObject(array, base (stolen))
 */
#include "ext.h"

enum {
    TABLE_ABI = 0,
    TABLE_ARRAY = 2,
    TABLE_BOOL = 8,
    TABLE_GENERIC = 10,
    TABLE_NUMBER = 11,
    TABLE_DESCR_FROM_TYPE = 45,
    TABLE_DESCR_OF_SCALAR = 57,
    TABLE_SCALAR = 60,
    TABLE_SCALAR_AS_C = 62,
    TABLE_COPY = 85,
    TABLE_NEW = 94,
    TABLE_BYTEORDER = 106,
    TABLE_FEATURE = 211,
    TABLE_SET_BASE = 282
};

#define FLAG_C_CONTIGUOUS 0x0001
#define FLAG_ALIGNED 0x0100
#define FLAG_WRITEABLE 0x0400
#define MINIMUM_FEATURE 16u

/* The public leading fields of an array and of a dtype object. */
struct array_fields {
    PyObject_HEAD char *data;
    int dims;
    intptr_t *shape;
    intptr_t *strides;
    PyObject *base;
    PyObject *descr;
    int flags;
};
struct descr_fields {
    PyObject_HEAD PyTypeObject *scalar_type;
    char kind;
    char type;
    char byteorder;
    char former_flags;
    int type_num;
};

/* NumPy's type numbers on a 64-bit Unix (long is 64 bits), by our dtype. */
static const int type_number[SQRL_DTYPE_COUNT] = {
    [SQRL_DTYPE_OTHER] = -1,     [SQRL_DTYPE_BOOL] = 0,        [SQRL_DTYPE_INT8] = 1,
    [SQRL_DTYPE_UINT8] = 2,      [SQRL_DTYPE_INT16] = 3,       [SQRL_DTYPE_UINT16] = 4,
    [SQRL_DTYPE_INT32] = 5,      [SQRL_DTYPE_UINT32] = 6,      [SQRL_DTYPE_INT64] = 7,
    [SQRL_DTYPE_UINT64] = 8,     [SQRL_DTYPE_FLOAT32] = 11,    [SQRL_DTYPE_FLOAT64] = 12,
    [SQRL_DTYPE_COMPLEX64] = 14, [SQRL_DTYPE_COMPLEX128] = 15, [SQRL_DTYPE_FLOAT16] = 23};

static PyObject *numpy_capsule(void) {
    static const char *const names[] = {"numpy._core._multiarray_umath",
                                        "numpy.core._multiarray_umath"};
    for (size_t i = 0; i < 2; i++) {
        PyObject *module = PyImport_ImportModule(names[i]);
        if (module == NULL) {
            if (i == 0 && PyErr_ExceptionMatches(PyExc_ModuleNotFoundError)) {
                PyErr_Clear();
                continue;
            }
            return NULL;
        }
        PyObject *capsule = PyObject_GetAttrString(module, "_ARRAY_API");
        Py_DECREF(module);
        if (capsule != NULL || i == 1)
            return capsule;
        PyErr_Clear();
    }
    return NULL;
}

static int numpy_check(void **api) {
    unsigned abi = ((unsigned (*)(void))api[TABLE_ABI])();
    unsigned feature = ((unsigned (*)(void))api[TABLE_FEATURE])();
    if ((abi >> 24) == 0 || (abi >> 24) > 2 || feature < MINIMUM_FEATURE) {
        PyErr_Format(PyExc_ImportError,
                     "squirrel needs NumPy 1.23 to 2.x; this one has ABI %u, API %u",
                     abi >> 24, feature);
        return -1;
    }
    return 0;
}

int ext_numpy_need(struct ext_state *state) {
    if (EXT_LIKELY(state->numpy.api != NULL))
        return 0;
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL)
        return -1;
    Py_DECREF(numpy);
    PyObject *capsule = numpy_capsule();
    if (capsule == NULL)
        return -1;
    void **api = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    Py_DECREF(capsule); /* the module keeps the table for the life of the process */
    if (api == NULL || numpy_check(api) < 0)
        return -1;
    state->numpy.array_type = api[TABLE_ARRAY];
    state->numpy.bool_type = api[TABLE_BOOL];
    state->numpy.generic_type = api[TABLE_GENERIC];
    state->numpy.number_type = api[TABLE_NUMBER];
    state->numpy.api = api;
    return 0;
}

int ext_numpy_present(struct ext_state *state) {
    if (EXT_LIKELY(state->numpy.api != NULL))
        return 1;
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *numpy = modules == NULL ? NULL : PyDict_GetItemString(modules, "numpy");
    if (numpy == NULL)
        return 0;
    return ext_numpy_need(state) < 0 ? -1 : 1;
}

PyObject *ext_descr(struct ext_state *state, enum sqrl_dtype dtype, bool swapped) {
    PyObject **slot = &state->numpy.descr[swapped][dtype];
    if (EXT_LIKELY(*slot != NULL))
        return *slot;
    if (ext_numpy_need(state) < 0)
        return NULL;
    if (dtype <= SQRL_DTYPE_OTHER || dtype >= SQRL_DTYPE_COUNT) {
        PyErr_SetString(PyExc_SystemError, "dtype without a number");
        return NULL;
    }
    void **api = state->numpy.api;
    PyObject *descr =
        ((PyObject * (*)(int)) api[TABLE_DESCR_FROM_TYPE])(type_number[dtype]);
    if (descr != NULL && swapped) {
        PyObject *native = descr;
        descr = ((PyObject * (*)(PyObject *, char)) api[TABLE_BYTEORDER])(native, '>');
        Py_DECREF(native);
    }
    *slot = descr;
    return descr;
}

PyObject *ext_array_new_descr(struct ext_state *state, PyObject *descr, int dims,
                              const uint64_t *shape, void *data, bool writable,
                              PyObject *base) {
    typedef PyObject *(*new_fn)(PyTypeObject *, PyObject *, int, const intptr_t *,
                                const intptr_t *, void *, int, PyObject *);
    void **api = state->numpy.api;
    intptr_t lengths[SQRL_MAX_DIMS];
    for (int i = 0; i < dims; i++)
        lengths[i] = (intptr_t)shape[i];
    int flags = data == NULL
                    ? 0
                    : FLAG_C_CONTIGUOUS | FLAG_ALIGNED | (writable ? FLAG_WRITEABLE : 0);
    Py_INCREF(descr);
    PyObject *array = ((new_fn)api[TABLE_NEW])(state->numpy.array_type, descr, dims,
                                               lengths, NULL, data, flags, NULL);
    if (array == NULL || base == NULL)
        return array;
    Py_INCREF(base);
    if (((int (*)(PyObject *, PyObject *))api[TABLE_SET_BASE])(array, base) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

PyObject *ext_array_new(struct ext_state *state, enum sqrl_dtype dtype, bool swapped,
                        int dims, const uint64_t *shape, void *data, bool writable,
                        PyObject *base) {
    PyObject *descr = ext_descr(state, dtype, swapped);
    return descr == NULL
               ? NULL
               : ext_array_new_descr(state, descr, dims, shape, data, writable, base);
}

void *ext_array_data(PyObject *array) {
    return ((struct array_fields *)array)->data;
}

PyObject *ext_scalar_new(struct ext_state *state, PyObject *descr, const void *data) {
    typedef PyObject *(*scalar_fn)(const void *, PyObject *, PyObject *);
    return ((scalar_fn)state->numpy.api[TABLE_SCALAR])(data, descr, NULL);
}

static enum sqrl_dtype dtype_of(const struct descr_fields *descr) {
    for (int i = 1; i < SQRL_DTYPE_COUNT; i++)
        if (type_number[i] == descr->type_num)
            return (enum sqrl_dtype)i;
    if (descr->type_num == 9) /* long long, where long is 64 bits too */
        return SQRL_DTYPE_INT64;
    return descr->type_num == 10 ? SQRL_DTYPE_UINT64 : SQRL_DTYPE_OTHER;
}

enum sqrl_dtype ext_scalar_look(struct ext_state *state, PyObject *scalar, void *out) {
    void **api = state->numpy.api;
    PyObject *descr = ((PyObject * (*)(PyObject *)) api[TABLE_DESCR_OF_SCALAR])(scalar);
    if (descr == NULL) {
        PyErr_Clear();
        return SQRL_DTYPE_OTHER;
    }
    enum sqrl_dtype dtype = dtype_of((const struct descr_fields *)descr);
    Py_DECREF(descr);
    if (dtype != SQRL_DTYPE_OTHER)
        ((void (*)(PyObject *, void *))api[TABLE_SCALAR_AS_C])(scalar, out);
    return dtype;
}

PyObject *ext_array_contiguous(struct ext_state *state, PyObject *array) {
    void **api = state->numpy.api;
    return ((PyObject * (*)(PyObject *, int)) api[TABLE_COPY])(array, 0);
}

void ext_array_look(PyObject *array, struct ext_array_info *out) {
    const struct array_fields *fields = (const struct array_fields *)array;
    const struct descr_fields *descr = (const struct descr_fields *)fields->descr;
    out->dtype = dtype_of(descr);
    out->swapped = descr->byteorder == '>';
    out->kind = descr->kind;
    out->contiguous = (fields->flags & FLAG_C_CONTIGUOUS) != 0;
    out->dims = fields->dims;
    out->shape = fields->shape;
    out->data = fields->data;
}

void ext_numpy_clear(struct ext_state *state) {
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < SQRL_DTYPE_COUNT; i++)
            Py_CLEAR(state->numpy.descr[s][i]);
}
