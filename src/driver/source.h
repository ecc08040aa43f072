/* source.h - how sqrl_open hands its findings to source.c. */
#ifndef SQRL_DRIVER_SOURCE_PRIVATE_H
#define SQRL_DRIVER_SOURCE_PRIVATE_H

#include "driver/driver.h"

/* A source over the list's shards; takes them out of the list. `prefix_size`: of the
 * bytes before the path within fs in each shard's path. */
SQRL_CHECK int sqrl_source_new(const struct sqrl_driver_args *args,
                               const struct sqrl_driver_ops *driver,
                               struct sqrl_shard_list *list, size_t prefix_size,
                               struct sqrl_source **out, struct sqrl_error *err);

/* Puts `path` first in the error's place, once: if `where` begins with it, or with
 * `inner` (the path as the file system knows it; may be NULL), that is replaced. A place
 * below it
 * ("dir/file" for "dir") stays as it is. Returns the code. */
int sqrl_error_at_path(struct sqrl_error *err, int code, const char *path,
                       const char *inner);

#endif
