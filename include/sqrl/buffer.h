/* sqrl/buffer.h - reference-counted bytes.
 *
 * A buffer is the owner of memory that others point into: a block's bytes, a batch's
 * slot, a file's content. Reference counting is thread-safe; the bytes themselves are not
 * guarded. Buffers of SQRL_SLAB_MIN_BYTES and more come from recycled, huge-page backed
 * slabs of their context (src/base/slab.c); smaller ones from malloc. Data is aligned to
 * 64 bytes.
 */
#ifndef SQRL_BUFFER_H
#define SQRL_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SQRL_BUFFER_ALIGN 64
#define SQRL_SLAB_MIN_BYTES (64u * 1024u)

struct sqrl_context;

struct sqrl_buffer {
    uint8_t *data;   /* aligned to 64 bytes unless wrapped */
    size_t size;     /* bytes in use; the owner may change it up to capacity */
    size_t capacity; /* bytes available at data */
    /* private */
    int refs;
    void (*release)(struct sqrl_buffer *buffer);
    void *owner;
};

/* A new buffer of at least `capacity` bytes, size 0, content undefined, one reference.
 * `context` may be NULL: then it is plain memory. The buffer keeps its context alive. */
SQRL_CHECK int sqrl_buffer_new(struct sqrl_context *context, size_t capacity,
                               struct sqrl_buffer **out, struct sqrl_error *err);

/* Wraps memory of the caller's; `release(owner)` is called once, on whichever thread
 * drops the last reference (it must not block). `release` may be NULL for memory that
 * outlives all. */
SQRL_CHECK int sqrl_buffer_wrap(void *data, size_t size, void (*release)(void *owner),
                                void *owner, struct sqrl_buffer **out,
                                struct sqrl_error *err);

/* One more reference; returns its argument. Thread-safe. */
SQRL_API struct sqrl_buffer *sqrl_buffer_ref(struct sqrl_buffer *buffer);

/* Drops one reference; NULL is allowed. The last one only hands memory back: no join, no
 * callback but `release`. Thread-safe. */
SQRL_API void sqrl_buffer_unref(struct sqrl_buffer *buffer);

#ifdef __cplusplus
}
#endif
#endif
