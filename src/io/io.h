/* io.h - the private half of the io floor: what shims and the registry need. */
#ifndef SQRL_IO_PRIVATE_H
#define SQRL_IO_PRIVATE_H

#include "base/base.h"
#include "sqrl/fs.h"

extern const struct sqrl_fs_ops sqrl_fs_local;
extern const struct sqrl_fs_ops sqrl_fs_memory;
extern const struct sqrl_fs_ops sqrl_fs_http;
extern const struct sqrl_fs_ops sqrl_fs_https;
extern const struct sqrl_fs_ops sqrl_fs_s3, sqrl_fs_gs, sqrl_fs_az;

/* A file system whose state is zeroed and whose open() is not called: for shims, which
 * fill the state themselves. `inner`, if any, gives its flags (and is not kept). */
int sqrl_fs_make(struct sqrl_context *context, const struct sqrl_fs_ops *ops,
                 const struct sqrl_fs *inner, struct sqrl_fs **out,
                 struct sqrl_error *err);
struct sqrl_context *sqrl_fs_context(const struct sqrl_fs *fs); /* may be NULL */
void sqrl_fs_set_flags(struct sqrl_fs *fs, uint32_t flags); /* before anybody has it */

/* What of the file is read ahead: ahead.c. */
struct sqrl_ahead;
struct sqrl_ahead **sqrl_file_ahead(struct sqrl_file *file, struct sqrl_lock **lock);
/* sqrl_file_read, past what is read ahead. */
SQRL_CHECK int sqrl_file_read_past(struct sqrl_file *file, struct sqrl_range *ranges,
                                   size_t count, const struct sqrl_cancel *cancel,
                                   struct sqrl_error *err);
struct sqrl_context *sqrl_file_context(const struct sqrl_file *file);

/* memory.c: what mem:// of one context holds; owned by the registry. */
struct sqrl_memory_store;
struct sqrl_memory_store *sqrl_memory_store_new(struct sqrl_error *err);
void sqrl_memory_store_free(struct sqrl_memory_store *store);
struct sqrl_memory_store *sqrl_io_memory(struct sqrl_context *context,
                                         struct sqrl_error *err);

/* Where the HTTP engine of one context is kept (http/engine.c); owned by the registry. */
struct sqrl_http;
struct sqrl_http_place {
    struct sqrl_lock lock;
    struct sqrl_http *http; /* NULL until the first remote URL */
};
struct sqrl_http_place *sqrl_io_http(struct sqrl_context *context,
                                     struct sqrl_error *err);
/* Credentials that one context's object stores share (object/kept.c); owned by the
 * registry. */
struct object_kept;
struct sqrl_kept_place {
    struct sqrl_lock lock;
    struct object_kept *first;
};
struct sqrl_kept_place *sqrl_io_kept(struct sqrl_context *context,
                                     struct sqrl_error *err);
void sqrl_kept_release(struct object_kept *first);

/* The context goes: connections are closed at once, nothing is waited for that another
 * machine has to do. NULL is allowed. */
void sqrl_http_release(struct sqrl_http *http);

#endif
