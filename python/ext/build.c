/* build.c - from tape nodes to Python objects.
 *
 * Nested values are built with a stack of our own: the data's depth never becomes C
 * stack. The cursor walks the nodes in order; a finished value is put into the container
 * on top, and a full container becomes the finished value of the one below it. Keys
 * repeat from sample to sample: a direct-mapped cache turns their bytes into interned
 * objects whose hash is known.
 */
#include "ext.h"

#include <stdlib.h>

#define RELEASE_GIL_BYTES (1u << 20)

void ext_builder_init(struct ext_builder *builder, struct ext_state *state, bool copy,
                      const struct sqrl_projection *projection) {
    memset(builder, 0, sizeof *builder);
    builder->state = state;
    builder->copy = copy;
    builder->projection = projection;
}

void ext_builder_reset(struct ext_builder *builder) {
    for (unsigned i = 0; i < EXT_KEYS; i++)
        Py_CLEAR(builder->keys[i].object);
    free(builder->spare.frames);
    free(builder->fields);
    builder->spare = (struct ext_stack){0};
    builder->fields = NULL;
    builder->field_capacity = 0;
    builder->pinned = NULL;
    Py_CLEAR(builder->pin);
}

/* --- keys --- */

static unsigned key_slot(const uint8_t *text, uint32_t size) {
    uint32_t h = size * 0x9e3779b1u;
    if (size > 0)
        h ^= text[0] * 0x85ebca6bu ^ text[size - 1] * 0xc2b2ae35u ^
             text[size / 2] * 0x27d4eb2fu;
    return (h >> 16 ^ h) & (EXT_KEYS - 1);
}

/* A new reference to the str of these bytes. */
static PyObject *key_object(struct ext_builder *builder, const uint8_t *text,
                            uint32_t size) {
    struct ext_key *slot = &builder->keys[key_slot(text, size)];
    if (EXT_LIKELY(slot->object != NULL && slot->size == size &&
                   memcmp(slot->text, text, size) == 0)) {
        Py_INCREF(slot->object);
        return slot->object;
    }
    PyObject *object = PyUnicode_FromStringAndSize((const char *)text, size);
    if (object == NULL || size > 256)
        return object;
    PyUnicode_InternInPlace(&object);
    Py_ssize_t length;
    const char *copy = PyUnicode_AsUTF8AndSize(object, &length);
    if (copy == NULL) {
        Py_DECREF(object);
        return NULL;
    }
    PyObject *old = slot->object;
    Py_INCREF(object);
    slot->object = object;
    slot->text = copy;
    slot->size = size;
    Py_XDECREF(old);
    return object;
}

/* --- arrays --- */

/* A new reference to the object that holds `block` for views. */
static PyObject *pin_of(struct ext_builder *builder, struct sqrl_block *block) {
    if (builder->pinned != block) {
        PyObject *pin = ext_pin_new(builder->state, block), *old = builder->pin;
        if (pin == NULL)
            return NULL;
        builder->pin = pin;
        builder->pinned = block;
        Py_XDECREF(old);
    }
    Py_XINCREF(builder->pin);
    return builder->pin;
}

static void copy_bytes(void *to, const void *from, size_t size) {
    if (size < RELEASE_GIL_BYTES) {
        memcpy(to, from, size);
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    memcpy(to, from, size);
    Py_END_ALLOW_THREADS
}

/* Above 64 KiB the bytes lie in a recycled slab, since fresh pages cost more than the
 * copy. */
static PyObject *array_in_slab(struct ext_builder *builder, PyObject *descr,
                               const struct sqrl_ndarray *view) {
    struct sqrl_context *context = ext_context(builder->state);
    struct sqrl_buffer *buffer = NULL;
    struct sqrl_error err;
    if (context == NULL)
        return NULL;
    if (sqrl_buffer_new(context, view->data_bytes, &buffer, &err) != SQRL_OK)
        return ext_raise(builder->state, &err);
    copy_bytes(buffer->data, view->data, view->data_bytes);
    uint8_t *data = buffer->data;
    PyObject *memory = ext_memory_new(builder->state, buffer);
    if (memory == NULL)
        return NULL;
    PyObject *array = ext_array_new_descr(builder->state, descr, (int)view->dims,
                                          view->shape, data, true, memory);
    Py_DECREF(memory);
    return array;
}

static PyObject *array_of(struct ext_builder *builder, PyObject *descr,
                          const struct sqrl_ndarray *view, struct sqrl_block *block) {
    if (view->scalar)
        return ext_scalar_new(builder->state, descr, view->data);
    if (!builder->copy && block != NULL) {
        PyObject *pin = pin_of(builder, block), *array = NULL;
        if (pin != NULL)
            array =
                ext_array_new_descr(builder->state, descr, (int)view->dims, view->shape,
                                    (void *)(uintptr_t)view->data, false, pin);
        Py_XDECREF(pin);
        return array;
    }
    if (view->data_bytes >= SQRL_SLAB_MIN_BYTES)
        return array_in_slab(builder, descr, view);
    PyObject *array = ext_array_new_descr(builder->state, descr, (int)view->dims,
                                          view->shape, NULL, true, NULL);
    if (EXT_LIKELY(array != NULL))
        memcpy(ext_array_data(array), view->data, view->data_bytes);
    return array;
}

/* A dtype that is described by text or a list: np.dtype(...) makes it. */
static PyObject *array_other(struct ext_builder *builder, const struct sqrl_node *nodes,
                             const struct sqrl_ndarray *view, const uint8_t *bytes,
                             struct sqrl_block *block) {
    bool tuples = builder->tuples;
    builder->tuples = false; /* a description's lists are np.dtype's, not the user's */
    PyObject *text = ext_build_node(builder, nodes, view->description, bytes, block);
    builder->tuples = tuples;
    if (text == NULL)
        return NULL;
    PyObject *count = PyLong_FromUnsignedLongLong(view->data_bytes);
    PyObject *pair = count == NULL ? NULL : PyTuple_Pack(2, text, count);
    PyObject *shape = PyTuple_New(view->scalar ? 0 : (Py_ssize_t)view->dims);
    PyObject *descr = NULL, *array = NULL;
    bool ready = pair != NULL && shape != NULL;
    for (uint32_t i = 0; ready && !view->scalar && i < view->dims; i++) {
        PyObject *length = PyLong_FromUnsignedLongLong(view->shape[i]);
        ready = length != NULL && PyTuple_SetItem(shape, (Py_ssize_t)i, length) == 0;
    }
    if (ready)
        descr = ext_support_call(builder->state, "dtype_from_description", pair, shape);
    if (descr != NULL)
        array = array_of(builder, descr, view, block);
    Py_XDECREF(descr);
    Py_XDECREF(shape);
    Py_XDECREF(pair);
    Py_XDECREF(count);
    Py_DECREF(text);
    return array;
}

static PyObject *build_array(struct ext_builder *builder, const struct sqrl_node *nodes,
                             uint32_t node, const uint8_t *bytes,
                             struct sqrl_block *block) {
    struct sqrl_ndarray view;
    sqrl_ndarray_view(nodes, node, bytes, &view);
    if (view.dtype == SQRL_DTYPE_OTHER)
        return ext_numpy_need(builder->state) < 0
                   ? NULL
                   : array_other(builder, nodes, &view, bytes, block);
    PyObject *descr = ext_descr(builder->state, view.dtype, view.swapped);
    return descr == NULL ? NULL : array_of(builder, descr, &view, block);
}

/* --- leaves --- */

static PyObject *build_number(const struct sqrl_node *node, const uint8_t *bytes) {
    PyObject *text =
        PyBytes_FromStringAndSize((const char *)bytes + node->v.offset, node->size);
    const char *digits = text == NULL ? NULL : PyBytes_AsString(text);
    PyObject *number = digits == NULL ? NULL : PyLong_FromString(digits, NULL, 10);
    Py_XDECREF(text);
    return number;
}

static PyObject *build_rare(struct ext_builder *builder, const struct sqrl_node *node,
                            const uint8_t *bytes) {
    const char *data = (const char *)bytes + node->v.offset;
    PyObject *value = NULL, *text;
    switch (node->type) {
    case SQRL_NUMBER:
        return build_number(node, bytes);
    case SQRL_COMPLEX:
        text = PyUnicode_FromStringAndSize(data, node->size);
        if (text != NULL)
            value = PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, text, NULL);
        Py_XDECREF(text);
        return value;
    case SQRL_EXT:
        text = PyBytes_FromStringAndSize(data, node->size);
        PyObject *type = PyLong_FromLong((long)node->aux - 128);
        if (text != NULL && type != NULL)
            value = ext_support_call(
                builder->state, builder->catalog_keys ? "make_catalog_key" : "make_ext",
                type, text);
        Py_XDECREF(type);
        Py_XDECREF(text);
        return value;
    default:
        PyErr_Format(PyExc_SystemError, "tape node of unknown type %d", node->type);
        return NULL;
    }
}

/* Everything but ARRAY and MAP. */
static inline PyObject *build_leaf(struct ext_builder *builder,
                                   const struct sqrl_node *nodes, uint32_t at,
                                   const uint8_t *bytes, struct sqrl_block *block) {
    const struct sqrl_node *node = &nodes[at];
    switch (node->type) {
    case SQRL_STRING:
        return PyUnicode_FromStringAndSize((const char *)bytes + node->v.offset,
                                           node->size);
    case SQRL_INT:
        return PyLong_FromLongLong(node->v.i);
    case SQRL_NDARRAY:
        return build_array(builder, nodes, at, bytes, block);
    case SQRL_FLOAT:
        return PyFloat_FromDouble(node->v.f);
    case SQRL_BINARY:
        return PyBytes_FromStringAndSize((const char *)bytes + node->v.offset,
                                         node->size);
    case SQRL_NULL:
        Py_INCREF(Py_None);
        return Py_None;
    case SQRL_BOOL:
        return PyBool_FromLong(node->v.u != 0);
    case SQRL_UINT:
        return PyLong_FromUnsignedLongLong(node->v.u);
    default:
        return build_rare(builder, node, bytes);
    }
}

static PyObject *build_key(struct ext_builder *builder, const struct sqrl_node *nodes,
                           uint32_t at, const uint8_t *bytes, struct sqrl_block *block) {
    const struct sqrl_node *node = &nodes[at];
    if (EXT_LIKELY(node->type == SQRL_STRING))
        return key_object(builder, bytes + node->v.offset, node->size);
    if (node->type == SQRL_ARRAY || node->type == SQRL_MAP || node->type == SQRL_NDARRAY)
        return ext_raise_code(
            builder->state, SQRL_E_TYPE,
            "a map has a list, map or array as a key: Python can't hold it");
    return build_leaf(builder, nodes, at, bytes, block);
}

/* --- containers --- */

/* Steals `container`. */
static int push(struct ext_stack *stack, PyObject *container, uint32_t left, bool map) {
    if (stack->used == stack->capacity) {
        uint32_t capacity = stack->capacity ? stack->capacity * 2 : 32;
        struct ext_frame *frames = realloc(stack->frames, capacity * sizeof *frames);
        if (frames == NULL) {
            Py_DECREF(container);
            PyErr_NoMemory();
            return -1;
        }
        stack->frames = frames;
        stack->capacity = capacity;
    }
    stack->frames[stack->used++] =
        (struct ext_frame){.container = container, .left = left, .map = map};
    return 0;
}

/* Puts a value (stolen) into the top container; returns that when it is full now, else
 * NULL, with *failed set on an exception. */
static PyObject *attach(struct ext_stack *stack, PyObject *value, bool tuples,
                        bool *failed) {
    struct ext_frame *top = &stack->frames[stack->used - 1];
    int rc;
    if (top->map) {
        PyObject *key = top->key;
        top->key = NULL;
        rc = PyDict_SetItem(top->container, key, value);
        Py_DECREF(key);
        Py_DECREF(value);
    } else if (tuples) {
        rc = PyTuple_SetItem(top->container, (Py_ssize_t)top->at, value);
    } else {
        rc = PyList_SetItem(top->container, (Py_ssize_t)top->at, value);
    }
    *failed = rc < 0;
    if (rc < 0 || ++top->at < top->left)
        return NULL;
    stack->used--;
    return top->container;
}

static void unwind(struct ext_stack *stack) {
    while (stack->used > 0) {
        struct ext_frame *top = &stack->frames[--stack->used];
        Py_XDECREF(top->key);
        Py_DECREF(top->container);
    }
}

/* Starts a container, or makes a leaf. *value is NULL for a container that is to be
 * filled. */
static int build_step(struct ext_builder *builder, struct ext_stack *stack,
                      const struct sqrl_node *nodes, uint32_t *node, const uint8_t *bytes,
                      struct sqrl_block *block, PyObject **value) {
    const struct sqrl_node *n = &nodes[*node];
    if (n->type != SQRL_ARRAY && n->type != SQRL_MAP) {
        *value = build_leaf(builder, nodes, *node, bytes, block);
        *node = sqrl_node_next(nodes, *node);
        return *value == NULL ? -1 : 0;
    }
    bool map = n->type == SQRL_MAP;
    *value = map               ? PyDict_New()
             : builder->tuples ? PyTuple_New((Py_ssize_t)n->size)
                               : PyList_New((Py_ssize_t)n->size);
    ++*node;
    if (*value == NULL)
        return -1;
    if (n->size == 0)
        return 0;
    PyObject *container = *value;
    *value = NULL;
    return push(stack, container, n->size, map);
}

static PyObject *build_with(struct ext_builder *builder, struct ext_stack *stack,
                            const struct sqrl_node *nodes, uint32_t node,
                            const uint8_t *bytes, struct sqrl_block *block) {
    for (;;) {
        PyObject *value = NULL;
        bool failed = false;
        if (build_step(builder, stack, nodes, &node, bytes, block, &value) < 0)
            return NULL;
        while (value != NULL && stack->used > 0)
            value = attach(stack, value, builder->tuples, &failed);
        if (failed || value != NULL)
            return value;
        struct ext_frame *top = &stack->frames[stack->used - 1];
        if (top->map) {
            top->key = build_key(builder, nodes, node, bytes, block);
            if (top->key == NULL)
                return NULL;
            node = sqrl_node_next(nodes, node);
        }
    }
}

/* The stack is taken out of the builder meanwhile: another thread may build from the same
 * iterator while a large array is copied without the GIL. */
PyObject *ext_build_node(struct ext_builder *builder, const struct sqrl_node *nodes,
                         uint32_t node, const uint8_t *bytes, struct sqrl_block *block) {
    struct ext_stack stack = builder->spare;
    builder->spare = (struct ext_stack){0};
    PyObject *value = build_with(builder, &stack, nodes, node, bytes, block);
    unwind(&stack);
    free(builder->spare.frames);
    builder->spare = stack;
    return value;
}

/* --- samples --- */

static int set_field(struct ext_builder *builder, PyObject *dict, PyObject *key,
                     const struct sqrl_node *nodes, uint32_t node, const uint8_t *bytes,
                     struct sqrl_block *block) {
    if (key == NULL)
        return -1;
    uint8_t type = nodes[node].type;
    PyObject *value = type == SQRL_ARRAY || type == SQRL_MAP
                          ? ext_build_node(builder, nodes, node, bytes, block)
                          : build_leaf(builder, nodes, node, bytes, block);
    int rc = value == NULL ? -1 : PyDict_SetItem(dict, key, value);
    Py_XDECREF(value);
    Py_DECREF(key);
    return rc;
}

/* The list of fields is taken out of the builder meanwhile: the garbage collector may run
 * a finaliser that asks the same iterator for its next sample. */
static PyObject *build_projected(struct ext_builder *builder, struct sqrl_block *block,
                                 uint32_t index) {
    struct sqrl_field_ref *fields = builder->fields;
    size_t capacity = fields == NULL ? 0 : builder->field_capacity;
    builder->fields = NULL;
    size_t count =
        sqrl_projection_apply(builder->projection, block, index, fields, capacity);
    if (count > capacity) {
        free(fields);
        fields = malloc(count * sizeof *fields);
        if (fields == NULL)
            return PyErr_NoMemory();
        capacity = count;
        sqrl_projection_apply(builder->projection, block, index, fields, count);
    }
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++) {
        PyObject *key =
            key_object(builder, (const uint8_t *)fields[i].name, fields[i].name_size);
        if (set_field(builder, dict, key, block->tape.nodes, fields[i].node,
                      block->bytes->data, block) < 0)
            Py_CLEAR(dict);
    }
    free(builder->fields);
    builder->fields = fields;
    builder->field_capacity = capacity;
    return dict;
}

PyObject *ext_build_sample(struct ext_builder *builder, struct sqrl_block *block,
                           uint32_t index) {
    const struct sqrl_node *nodes = block->tape.nodes;
    const uint8_t *bytes = block->bytes->data;
    uint32_t node = block->begin[index];
    if (nodes[node].type != SQRL_MAP)
        return ext_build_node(builder, nodes, node, bytes, block);
    if (builder->projection != NULL)
        return build_projected(builder, block, index);
    PyObject *dict = PyDict_New();
    uint32_t pairs = nodes[node].size;
    node++;
    for (uint32_t i = 0; dict != NULL && i < pairs; i++) {
        PyObject *key = build_key(builder, nodes, node, bytes, block);
        uint32_t value = sqrl_node_next(nodes, node);
        if (set_field(builder, dict, key, nodes, value, bytes, block) < 0)
            Py_CLEAR(dict);
        node = sqrl_node_next(nodes, value);
    }
    return dict;
}
