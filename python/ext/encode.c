/* encode.c - from Python objects to MessagePack, byte for byte what
 * msgpack.packb(object, use_bin_type=True, default=msgpack_numpy.encode) gives.
 *
 * A failure deep inside writes its path on the way out, so that the exception names the
 * field. Depth is capped at what readers accept. Python code that runs meanwhile (NumPy
 * making a copy) may change a container: counts are checked, since a wrong one would
 * spoil all that follows.
 */
#include "ext.h"

#include <stdio.h>

#define MAX_DEPTH 511
#define PATH_BYTES 256

struct encoder {
    struct ext_state *state;
    struct sqrl_bytes *out;
    struct sqrl_error err;
    unsigned depth;
    const char *split;     /* the function of squirrel._support that knows extensions */
    char path[PATH_BYTES]; /* built from the inside out */
};

static int encode(struct encoder *encoder, PyObject *object);

static int put(struct encoder *encoder, int rc) {
    if (EXT_LIKELY(rc == SQRL_OK))
        return 0;
    ext_raise(encoder->state, &encoder->err);
    return -1;
}

static void path_prepend(struct encoder *encoder, const char *segment) {
    size_t size = strlen(segment), old = strlen(encoder->path);
    if (size + old >= PATH_BYTES)
        return;
    memmove(encoder->path + size, encoder->path, old + 1);
    memcpy(encoder->path, segment, size);
}

static void path_index(struct encoder *encoder, Py_ssize_t index) {
    char text[32];
    snprintf(text, sizeof text, "[%zd]", index);
    path_prepend(encoder, text);
}

static void path_key(struct encoder *encoder, PyObject *key) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text =
        PyUnicode_CheckExact(key) ? PyUnicode_FromObject(key) : PyObject_Repr(key);
    Py_ssize_t size;
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    if (utf8 != NULL) {
        char segment[PATH_BYTES];
        snprintf(segment, sizeof segment, ".%s", utf8);
        path_prepend(encoder, segment);
    }
    Py_XDECREF(text);
    PyErr_Restore(type, value, traceback);
}

/* --- containers --- */

/* A tuple would be written, but it would come back as a list, which can't be a key. */
static int encode_key(struct encoder *encoder, PyObject *key) {
    if (EXT_LIKELY(PyUnicode_CheckExact(key)))
        return encode(encoder, key);
    if (!PyTuple_Check(key))
        return encode(encoder, key);
    ext_raise_code(encoder->state, SQRL_E_TYPE,
                   "a tuple can't be a key: give text, bytes or a number");
    return -1;
}

static int encode_exact_dict(struct encoder *encoder, PyObject *dict) {
    Py_ssize_t count = PyDict_Size(dict), seen = 0, at = 0;
    PyObject *key, *value;
    if (put(encoder, sqrl_msgpack_put_map(encoder->out, (size_t)count, &encoder->err)) <
        0)
        return -1;
    while (PyDict_Next(dict, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        int rc = encode_key(encoder, key);
        if (rc == 0) {
            rc = encode(encoder, value);
            if (rc < 0)
                path_key(encoder, key);
        }
        Py_DECREF(key);
        Py_DECREF(value);
        if (rc < 0)
            return -1;
        seen++;
    }
    if (seen == count)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "a dict changed its size while it was packed");
    return -1;
}

static int encode_sequence(struct encoder *encoder, PyObject *items, bool list) {
    Py_ssize_t count = list ? PyList_Size(items) : PyTuple_Size(items);
    if (count < 0 || put(encoder, sqrl_msgpack_put_array(encoder->out, (size_t)count,
                                                         &encoder->err)) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
        if (item == NULL)
            return -1; /* the list became shorter */
        Py_INCREF(item);
        int rc = encode(encoder, item);
        Py_DECREF(item);
        if (rc < 0) {
            path_index(encoder, i);
            return -1;
        }
    }
    return 0;
}

/* Subclasses of dict decide on their own order. */
static int encode_mapping(struct encoder *encoder, PyObject *mapping) {
    PyObject *items = PyMapping_Items(mapping);
    if (items == NULL)
        return -1;
    Py_ssize_t count = PyList_Size(items);
    int rc =
        put(encoder, sqrl_msgpack_put_map(encoder->out, (size_t)count, &encoder->err));
    for (Py_ssize_t i = 0; rc == 0 && i < count; i++) {
        PyObject *pair = PyList_GetItem(items, i), *key = NULL, *value = NULL;
        if (pair != NULL && PyTuple_Check(pair) && PyTuple_Size(pair) == 2) {
            key = PyTuple_GetItem(pair, 0);
            value = PyTuple_GetItem(pair, 1);
        }
        if (value == NULL) {
            PyErr_SetString(PyExc_TypeError, "items() of a mapping must give pairs");
            rc = -1;
            break;
        }
        rc = encode_key(encoder, key);
        if (rc == 0 && (rc = encode(encoder, value)) < 0)
            path_key(encoder, key);
    }
    Py_DECREF(items);
    return rc;
}

/* --- NumPy --- */

/* The head of msgpack-numpy's map up to where the dtype's description goes. */
static int put_numpy_head(struct encoder *encoder, bool array, size_t pairs) {
    struct sqrl_bytes *out = encoder->out;
    struct sqrl_error *err = &encoder->err;
    if (put(encoder, sqrl_msgpack_put_map(out, pairs, err)) < 0 ||
        put(encoder, sqrl_msgpack_put_binary(out, "nd", 2, err)) < 0 ||
        put(encoder, sqrl_msgpack_put_bool(out, array, err)) < 0)
        return -1;
    return put(encoder, sqrl_msgpack_put_binary(out, "type", 4, err));
}

static int put_attribute(struct encoder *encoder, PyObject *object, const char *name) {
    PyObject *value = PyObject_GetAttrString(object, name);
    int rc = value == NULL ? -1 : encode(encoder, value);
    Py_XDECREF(value);
    return rc;
}

static int refuse_objects(struct encoder *encoder, PyObject *dtype, char kind) {
    PyObject *has = PyObject_GetAttrString(dtype, "hasobject");
    if (has == NULL)
        return -1;
    int objects = PyObject_IsTrue(has);
    Py_DECREF(has);
    if (objects == 0 && kind != 'T')
        return 0;
    if (objects >= 0)
        ext_raise_code(
            encoder->state, SQRL_E_TYPE,
            "arrays of Python objects can't be stored: that would be pickle, which "
            "runs code when it is read; give a list or an array of a plain dtype");
    return -1;
}

/* Any dtype and byte order: the description comes from the dtype object. */
static int encode_other_array(struct encoder *encoder, PyObject *array,
                              const struct ext_array_info *info) {
    struct sqrl_bytes *out = encoder->out;
    struct sqrl_error *err = &encoder->err;
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    PyObject *nbytes = NULL;
    int rc = -1;
    bool structured = info->kind == 'V';
    if (dtype == NULL || refuse_objects(encoder, dtype, info->kind) < 0)
        goto done;
    nbytes = PyObject_GetAttrString(array, "nbytes");
    size_t size = nbytes == NULL ? (size_t)-1 : PyLong_AsSize_t(nbytes);
    if (PyErr_Occurred() != NULL || put_numpy_head(encoder, true, 5) < 0 ||
        put_attribute(encoder, dtype, structured ? "descr" : "str") < 0 ||
        put(encoder, sqrl_msgpack_put_binary(out, "kind", 4, err)) < 0 ||
        put(encoder, sqrl_msgpack_put_binary(out, "V", structured ? 1 : 0, err)) < 0 ||
        put(encoder, sqrl_msgpack_put_binary(out, "shape", 5, err)) < 0 ||
        put(encoder, sqrl_msgpack_put_array(out, (size_t)info->dims, err)) < 0)
        goto done;
    for (int i = 0; i < info->dims; i++)
        if (put(encoder, sqrl_msgpack_put_int(out, info->shape[i], err)) < 0)
            goto done;
    if (put(encoder, sqrl_msgpack_put_binary(out, "data", 4, err)) < 0)
        goto done;
    rc = put(encoder, sqrl_msgpack_put_binary(out, info->data, size, err));
done:
    Py_XDECREF(nbytes);
    Py_XDECREF(dtype);
    return rc;
}

static int encode_array(struct encoder *encoder, PyObject *array) {
    struct ext_array_info info;
    PyObject *copy = NULL;
    int rc;
    ext_array_look(array, &info);
    if (info.dims > SQRL_MAX_DIMS) {
        ext_raise_code(encoder->state, SQRL_E_LIMIT,
                       "an array has more than 32 dimensions");
        return -1;
    }
    if (!info.contiguous) {
        if (info.kind == 'O' || info.kind == 'T')
            return encode_other_array(encoder, array, &info); /* refuses them */
        copy = ext_array_contiguous(encoder->state, array);
        if (copy == NULL)
            return -1;
        ext_array_look(copy, &info);
        array = copy;
    }
    if (info.dtype == SQRL_DTYPE_OTHER || info.swapped) {
        rc = encode_other_array(encoder, array, &info);
    } else {
        uint64_t shape[SQRL_MAX_DIMS];
        for (int i = 0; i < info.dims; i++)
            shape[i] = (uint64_t)info.shape[i];
        rc = put(encoder,
                 sqrl_msgpack_put_ndarray(encoder->out, info.dtype, shape,
                                          (uint32_t)info.dims, info.data, &encoder->err));
    }
    Py_XDECREF(copy);
    return rc;
}

static int encode_scalar(struct encoder *encoder, PyObject *scalar) {
    struct sqrl_bytes *out = encoder->out;
    struct sqrl_error *err = &encoder->err;
    _Alignas(16) char data[32];
    enum sqrl_dtype dtype = ext_scalar_look(encoder->state, scalar, data);
    PyObject *descr = PyObject_GetAttrString(scalar, "dtype"), *bytes = NULL;
    if (descr == NULL || put_numpy_head(encoder, false, 3) < 0 ||
        put_attribute(encoder, descr, "str") < 0 ||
        put(encoder, sqrl_msgpack_put_binary(out, "data", 4, err)) < 0) {
        Py_XDECREF(descr);
        return -1;
    }
    Py_DECREF(descr);
    if (dtype != SQRL_DTYPE_OTHER)
        return put(encoder,
                   sqrl_msgpack_put_binary(out, data, sqrl_dtype_size(dtype), err));
    bytes = PyObject_CallMethod(scalar, "tobytes", NULL); /* long double */
    int rc = bytes == NULL ? -1 : encode(encoder, bytes);
    Py_XDECREF(bytes);
    return rc;
}

/* --- leaves --- */

/* Text that has no UTF-8; other failures, such as of memory, stay what they are. */
static int refuse_surrogate(struct encoder *encoder) {
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        ext_raise_code(encoder->state, SQRL_E_TYPE,
                       "text holds half of a surrogate pair, which UTF-8 can't write: "
                       "store it as bytes, text.encode(\"utf-8\", \"surrogatepass\")");
    }
    return -1;
}

static int encode_string(struct encoder *encoder, PyObject *text) {
    Py_ssize_t size;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    if (EXT_UNLIKELY(utf8 == NULL))
        return refuse_surrogate(encoder);
    return put(encoder,
               sqrl_msgpack_put_string(encoder->out, utf8, (size_t)size, &encoder->err));
}

static int encode_int(struct encoder *encoder, PyObject *number) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (EXT_LIKELY(overflow == 0)) {
        if (value == -1 && PyErr_Occurred() != NULL)
            return -1;
        return put(encoder, sqrl_msgpack_put_int(encoder->out, value, &encoder->err));
    }
    unsigned long long big = overflow > 0 ? PyLong_AsUnsignedLongLong(number) : 0;
    if (overflow < 0 || (big == (unsigned long long)-1 && PyErr_Occurred() != NULL)) {
        PyErr_Clear();
        ext_raise_code(encoder->state, SQRL_E_TYPE,
                       "an integer is outside of -2**63 .. 2**64-1: store it as text");
        return -1;
    }
    return put(encoder, sqrl_msgpack_put_uint(encoder->out, big, &encoder->err));
}

static int encode_buffer(struct encoder *encoder, PyObject *object) {
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) < 0)
        return -1;
    int rc = -1;
    if (PyBuffer_IsContiguous(&view, 'C')) {
        rc = put(encoder, sqrl_msgpack_put_binary(encoder->out, view.buf,
                                                  (size_t)view.len, &encoder->err));
    } else {
        PyObject *copy = PyBytes_FromObject(object);
        if (copy != NULL)
            rc = encode(encoder, copy);
        Py_XDECREF(copy);
    }
    PyBuffer_Release(&view);
    return rc;
}

static int encode_complex(struct encoder *encoder, PyObject *number) {
    PyObject *text = PyObject_Repr(number);
    if (text == NULL ||
        put(encoder, sqrl_msgpack_put_map(encoder->out, 2, &encoder->err)) < 0 ||
        put(encoder, sqrl_msgpack_put_binary(encoder->out, "complex", 7, &encoder->err)) <
            0 ||
        put(encoder, sqrl_msgpack_put_bool(encoder->out, true, &encoder->err)) < 0 ||
        put(encoder, sqrl_msgpack_put_binary(encoder->out, "data", 4, &encoder->err)) <
            0) {
        Py_XDECREF(text);
        return -1;
    }
    int rc = encode_string(encoder, text);
    Py_DECREF(text);
    return rc;
}

/* MessagePack extensions: msgpack.ExtType and Timestamp, or our own. 1 when it was none.
 */
static int encode_extension(struct encoder *encoder, PyObject *object) {
    PyObject *pair = ext_support_call(encoder->state, encoder->split, object, NULL);
    if (pair == NULL)
        return -1;
    if (pair == Py_None) {
        Py_DECREF(pair);
        return 1;
    }
    int rc = -1;
    char *data;
    Py_ssize_t size;
    long type = PyLong_AsLong(PyTuple_GetItem(pair, 0));
    if (PyErr_Occurred() == NULL &&
        PyBytes_AsStringAndSize(PyTuple_GetItem(pair, 1), &data, &size) == 0)
        rc = put(encoder, sqrl_msgpack_put_ext(encoder->out, (int)type, data,
                                               (size_t)size, &encoder->err));
    Py_DECREF(pair);
    return rc;
}

static int refuse(struct encoder *encoder, PyObject *object) {
    char text[SQRL_ERROR_MESSAGE_BYTES];
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__qualname__");
    Py_ssize_t size;
    const char *utf8 = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, &size);
    PyErr_Clear();
    snprintf(text, sizeof text,
             "a value of type %.100s can't be stored: give dict, list, tuple, str, "
             "bytes, int, "
             "float, bool, None, complex or a NumPy array or scalar",
             utf8 == NULL ? "?" : utf8);
    Py_XDECREF(name);
    ext_raise_code(encoder->state, SQRL_E_TYPE, text);
    return -1;
}

static int encode_rare(struct encoder *encoder, PyObject *object) {
    if (PyByteArray_Check(object) || PyMemoryView_Check(object))
        return encode_buffer(encoder, object);
    int numpy = ext_numpy_present(encoder->state);
    if (numpy < 0)
        return -1;
    if (numpy) {
        const struct ext_numpy *np = &encoder->state->numpy;
        if (PyObject_TypeCheck(object, np->array_type)) {
            if (PyObject_HasAttrString(object, "_mask")) {
                ext_raise_code(encoder->state, SQRL_E_TYPE,
                               "a masked array would lose its mask: give its filled(), "
                               "and the mask as a field of its own");
                return -1;
            }
            return encode_array(encoder, object);
        }
        if (PyObject_TypeCheck(object, np->number_type) ||
            PyObject_TypeCheck(object, np->bool_type))
            return encode_scalar(encoder, object);
    }
    if (PyComplex_Check(object))
        return encode_complex(encoder, object);
    int rc = encode_extension(encoder, object);
    return rc <= 0 ? rc : refuse(encoder, object);
}

static int encode_subclass(struct encoder *encoder, PyObject *object) {
    if (PyLong_Check(object))
        return encode_int(encoder, object);
    if (PyFloat_Check(object))
        return put(encoder, sqrl_msgpack_put_float(encoder->out, PyFloat_AsDouble(object),
                                                   &encoder->err));
    if (PyUnicode_Check(object))
        return encode_string(encoder, object);
    if (PyBytes_Check(object))
        return encode_buffer(encoder, object);
    if (PyDict_Check(object))
        return encode_mapping(encoder, object);
    if (PyList_Check(object))
        return encode_sequence(encoder, object, true);
    if (PyTuple_Check(object)) {
        int rc = encode_extension(encoder, object); /* ExtType is a named tuple */
        return rc <= 0 ? rc : encode_sequence(encoder, object, false);
    }
    return encode_rare(encoder, object);
}

static int encode_container(struct encoder *encoder, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (encoder->depth >= MAX_DEPTH) {
        ext_raise_code(
            encoder->state, SQRL_E_LIMIT,
            "a sample is nested deeper than 511 levels (does it contain itself?)");
        return -1;
    }
    if (Py_EnterRecursiveCall(" while packing a sample") != 0)
        return -1;
    encoder->depth++;
    int rc = type == &PyDict_Type    ? encode_exact_dict(encoder, object)
             : type == &PyList_Type  ? encode_sequence(encoder, object, true)
             : type == &PyTuple_Type ? encode_sequence(encoder, object, false)
                                     : encode_subclass(encoder, object);
    encoder->depth--;
    Py_LeaveRecursiveCall();
    return rc;
}

static int encode(struct encoder *encoder, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (type == &PyUnicode_Type)
        return encode_string(encoder, object);
    if (type == &PyLong_Type)
        return encode_int(encoder, object);
    if (type == encoder->state->numpy.array_type && type != NULL)
        return encode_array(encoder, object);
    if (type == &PyFloat_Type)
        return put(encoder, sqrl_msgpack_put_float(encoder->out, PyFloat_AsDouble(object),
                                                   &encoder->err));
    if (object == Py_None)
        return put(encoder, sqrl_msgpack_put_null(encoder->out, &encoder->err));
    if (type == &PyBool_Type)
        return put(encoder,
                   sqrl_msgpack_put_bool(encoder->out, object == Py_True, &encoder->err));
    if (type == &PyBytes_Type) {
        char *data;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(object, &data, &size) < 0)
            return -1;
        return put(encoder, sqrl_msgpack_put_binary(encoder->out, data, (size_t)size,
                                                    &encoder->err));
    }
    return encode_container(encoder, object);
}

static int encode_whole(struct ext_state *state, struct sqrl_bytes *out, PyObject *object,
                        const char *split, const char *of) {
    struct encoder encoder;
    encoder.split = split;
    encoder.state = state;
    encoder.out = out;
    encoder.depth = 0;
    encoder.path[0] = '\0';
    if (EXT_LIKELY(encode(&encoder, object) == 0))
        return 0;
    if (encoder.path[0] != '\0') {
        const char *path = encoder.path + (encoder.path[0] == '.');
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        PyObject *done = PyObject_CallMethod(
            value, "add_note", "N",
            PyUnicode_FromFormat("in field \"%s\" of the %s", path, of));
        if (done == NULL)
            PyErr_Clear();
        Py_XDECREF(done);
        PyErr_Restore(type, value, traceback);
    }
    return -1;
}

int ext_encode(struct ext_state *state, struct sqrl_bytes *out, PyObject *object) {
    return encode_whole(state, out, object, "split_ext", "sample");
}

int ext_encode_catalog(struct ext_state *state, struct sqrl_bytes *out,
                       PyObject *object) {
    return encode_whole(state, out, object, "split_catalog_key", "arguments or metadata");
}
