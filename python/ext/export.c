/* export.c - capsules: Arrow's C data and stream interface, DLPack. */
#include "ext.h"

#include <stdlib.h>

/* --- Arrow --- */

static void schema_destroy(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL)
        schema->release(schema);
    free(schema);
}

static void array_destroy(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release != NULL)
        array->release(array);
    free(array);
}

static void stream_destroy(PyObject *capsule) {
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream->release != NULL)
        stream->release(stream);
    free(stream);
}

/* The interface allows a child to be moved out of its parent: the parent's release then
 * passes it by, since the child's own release is NULL there. */
static void take_child(struct ArrowSchema *schema, struct ArrowArray *array, int column) {
    struct ArrowSchema child_schema = *schema->children[column];
    struct ArrowArray child_array = *array->children[column];
    schema->children[column]->release = NULL;
    array->children[column]->release = NULL;
    schema->release(schema);
    array->release(array);
    *schema = child_schema;
    *array = child_array;
}

PyObject *ext_arrow_batch(struct ext_state *state, struct sqrl_batch *batch, int column) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    struct ArrowArray *array = calloc(1, sizeof *array);
    PyObject *schema_capsule = NULL, *array_capsule = NULL;
    struct sqrl_error err;
    if (schema == NULL || array == NULL) {
        free(schema);
        free(array);
        return PyErr_NoMemory();
    }
    if (sqrl_arrow_export_batch(batch, schema, array, &err) != SQRL_OK) {
        free(schema);
        free(array);
        return ext_raise(state, &err);
    }
    if (column >= 0)
        take_child(schema, array, column);
    schema_capsule = PyCapsule_New(schema, "arrow_schema", schema_destroy);
    array_capsule = PyCapsule_New(array, "arrow_array", array_destroy);
    if (schema_capsule == NULL) {
        schema->release(schema);
        free(schema);
    }
    if (array_capsule == NULL) {
        array->release(array);
        free(array);
    }
    if (schema_capsule != NULL && array_capsule != NULL)
        return Py_BuildValue("(NN)", schema_capsule, array_capsule);
    Py_XDECREF(schema_capsule);
    Py_XDECREF(array_capsule);
    return NULL;
}

PyObject *ext_arrow_plan(struct ext_state *state, struct sqrl_plan *plan) {
    struct ArrowArrayStream *stream = calloc(1, sizeof *stream);
    struct sqrl_error err;
    int rc;
    if (stream == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_arrow_export_plan(plan, stream, &err);
    Py_END_ALLOW_THREADS
    if (rc != SQRL_OK) {
        free(stream);
        return ext_raise(state, &err);
    }
    PyObject *capsule = PyCapsule_New(stream, "arrow_array_stream", stream_destroy);
    if (capsule == NULL) {
        stream->release(stream);
        free(stream);
    }
    return capsule;
}

/* --- DLPack --- */

/* A consumer renames the capsule to "used_..." when it has taken the tensor over. */
static void dlpack_destroy(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct sqrl_dl_managed *tensor = PyCapsule_GetPointer(capsule, "dltensor");
        tensor->deleter(tensor);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct sqrl_dl_managed_versioned *tensor =
            PyCapsule_GetPointer(capsule, "dltensor_versioned");
        tensor->deleter(tensor);
    }
}

static PyObject *dlpack_versioned(struct ext_state *state, struct sqrl_batch *batch,
                                  uint32_t column, enum sqrl_part part) {
    struct sqrl_dl_managed_versioned *tensor = NULL;
    struct sqrl_error err;
    if (sqrl_dlpack_export_versioned(batch, column, part, &tensor, &err) != SQRL_OK)
        return ext_raise(state, &err);
    PyObject *capsule = PyCapsule_New(tensor, "dltensor_versioned", dlpack_destroy);
    if (capsule == NULL)
        tensor->deleter(tensor);
    return capsule;
}

PyObject *ext_dlpack(struct ext_state *state, struct sqrl_batch *batch, uint32_t column,
                     enum sqrl_part part, bool versioned) {
    if (versioned)
        return dlpack_versioned(state, batch, column, part);
    struct sqrl_dl_managed *tensor = NULL;
    struct sqrl_error err;
    if (sqrl_dlpack_export(batch, column, part, &tensor, &err) != SQRL_OK)
        return ext_raise(state, &err);
    PyObject *capsule = PyCapsule_New(tensor, "dltensor", dlpack_destroy);
    if (capsule == NULL)
        tensor->deleter(tensor);
    return capsule;
}
