/* buffer.c - reference-counted bytes: one malloc below 64 KiB, a slab of the context
 * above. */
#include <stdlib.h>

#include "inner.h"

struct wrapped {
    struct sqrl_buffer buffer;
    void (*release)(void *owner);
};

/* Small buffers: the struct stands before its bytes. */
#define HEADER_BYTES SQRL_BUFFER_ALIGN
_Static_assert(sizeof(struct sqrl_buffer) <= HEADER_BYTES,
               "a buffer's struct is too large");

static void release_plain(struct sqrl_buffer *buffer) {
    struct sqrl_context *context = buffer->owner;
    free(buffer);
    sqrl_context_unref(context);
}

static void release_slab(struct sqrl_buffer *buffer) {
    struct sqrl_context *context = buffer->owner;
    sqrl_slab_give(context, buffer->data, buffer->capacity);
    free(buffer);
    sqrl_context_unref(context);
}

static void release_wrapped(struct sqrl_buffer *buffer) {
    struct wrapped *wrapped = (struct wrapped *)buffer;
    void (*release)(void *owner) = wrapped->release;
    void *owner = buffer->owner;
    free(wrapped);
    if (release != NULL)
        release(owner);
}

static struct sqrl_buffer *new_plain(size_t capacity, struct sqrl_error *err) {
    size_t total;
    if (capacity == 0)
        capacity = 1;
    if (sqrl_add_overflow(capacity, HEADER_BYTES + SQRL_BUFFER_ALIGN - 1, &total) ||
        total > PTRDIFF_MAX) {
        sqrl_no_memory(err, "a buffer", capacity);
        return NULL;
    }
    total &= ~(size_t)(SQRL_BUFFER_ALIGN - 1);
    struct sqrl_buffer *buffer =
        sqrl_allocation_fails() ? NULL : aligned_alloc(SQRL_BUFFER_ALIGN, total);
    if (buffer == NULL) {
        sqrl_no_memory(err, "a buffer", capacity);
        return NULL;
    }
    buffer->data = (uint8_t *)buffer + HEADER_BYTES;
    buffer->capacity = total - HEADER_BYTES;
    buffer->release = release_plain;
    return buffer;
}

static struct sqrl_buffer *new_slab(struct sqrl_context *context, size_t capacity,
                                    struct sqrl_error *err) {
    struct sqrl_buffer *buffer = sqrl_malloc(sizeof *buffer, "a buffer", err);
    if (buffer == NULL)
        return NULL;
    buffer->data = sqrl_slab_take(context, capacity, &buffer->capacity, err);
    if (buffer->data == NULL) {
        free(buffer);
        return NULL;
    }
    buffer->release = release_slab;
    return buffer;
}

int sqrl_buffer_new(struct sqrl_context *context, size_t capacity,
                    struct sqrl_buffer **out, struct sqrl_error *err) {
    *out = NULL;
    bool slab = context != NULL && capacity >= SQRL_SLAB_MIN_BYTES;
    struct sqrl_buffer *buffer =
        slab ? new_slab(context, capacity, err) : new_plain(capacity, err);
    if (buffer == NULL)
        return SQRL_E_NO_MEMORY;
    buffer->size = 0;
    buffer->refs = 1;
    buffer->owner = context != NULL ? sqrl_context_ref(context) : NULL;
    *out = buffer;
    return SQRL_OK;
}

int sqrl_buffer_wrap(void *data, size_t size, void (*release)(void *owner), void *owner,
                     struct sqrl_buffer **out, struct sqrl_error *err) {
    *out = NULL;
    struct wrapped *wrapped = sqrl_malloc(sizeof *wrapped, "a buffer", err);
    if (wrapped == NULL)
        return SQRL_E_NO_MEMORY;
    wrapped->buffer = (struct sqrl_buffer){.data = data,
                                           .size = size,
                                           .capacity = size,
                                           .refs = 1,
                                           .release = release_wrapped,
                                           .owner = owner};
    wrapped->release = release;
    *out = &wrapped->buffer;
    return SQRL_OK;
}

struct sqrl_buffer *sqrl_buffer_ref(struct sqrl_buffer *buffer) {
    __atomic_fetch_add(&buffer->refs, 1, __ATOMIC_RELAXED);
    return buffer;
}

void sqrl_buffer_unref(struct sqrl_buffer *buffer) {
    if (buffer != NULL && __atomic_fetch_sub(&buffer->refs, 1, __ATOMIC_ACQ_REL) == 1)
        buffer->release(buffer);
}
