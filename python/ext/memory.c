/* memory.c - small owners that NumPy arrays name as their base: a block, a buffer. */
#include "ext.h"

struct pin {
    PyObject_HEAD struct sqrl_block *block;
};

struct memory {
    PyObject_HEAD struct sqrl_buffer *buffer;
};

PyObject *ext_pin_new(struct ext_state *state, struct sqrl_block *block) {
    struct pin *self = (struct pin *)ext_alloc(state->type[EXT_PIN]);
    if (self != NULL)
        self->block = sqrl_block_ref(block);
    return (PyObject *)self;
}

static void pin_dealloc(PyObject *self) {
    sqrl_block_unref(((struct pin *)self)->block);
    ext_free(self);
}

PyObject *ext_memory_new(struct ext_state *state, struct sqrl_buffer *buffer) {
    struct memory *self = (struct memory *)ext_alloc(state->type[EXT_MEMORY]);
    if (self == NULL)
        sqrl_buffer_unref(buffer);
    else
        self->buffer = buffer;
    return (PyObject *)self;
}

static void memory_dealloc(PyObject *self) {
    sqrl_buffer_unref(((struct memory *)self)->buffer);
    ext_free(self);
}

static PyType_Slot pin_slots[] = {
    {Py_tp_dealloc, pin_dealloc},
    {Py_tp_doc, "Keeps a block alive for read-only views into it."},
    {0, NULL}};
PyType_Spec ext_pin_spec = {.name = "squirrel._native.Pin",
                            .basicsize = sizeof(struct pin),
                            .flags =
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            .slots = pin_slots};

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_doc, "Owns the recycled memory of a large array."},
    {0, NULL}};
PyType_Spec ext_memory_spec = {.name = "squirrel._native.Memory",
                               .basicsize = sizeof(struct memory),
                               .flags =
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = memory_slots};
