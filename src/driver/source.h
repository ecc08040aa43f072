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

/* Which fields are needed: names of top-level fields, not escaped. */
struct sqrl_wanted {
    bool (*wants)(void *arg, const char *field);
    void *arg;
    bool open;               /* also fields whose names nobody knows */
    const char *const *name; /* all that are wanted, unless open */
    size_t count;
};
/* The same samples with at least these fields, from the groups that have them: the source
 * itself when that is all, or when it has no groups. Positions are the same; shards,
 * blocks and chunks are those of the first group that is needed. */
SQRL_CHECK int sqrl_source_narrow(struct sqrl_source *source,
                                  const struct sqrl_wanted *wanted,
                                  struct sqrl_source **out, struct sqrl_error *err);
/* The schema where it is known without opening a shard, or has been read before; else
 * NULL. The source's. */
const struct sqrl_schema *sqrl_source_schema_known(struct sqrl_source *source);
/* The key of a sample that begins a dotted name, unescaped; free() it. */
char *sqrl_top_field(const char *dotted, struct sqrl_error *err);
/* The same for a list of dotted names. */
SQRL_CHECK int sqrl_source_narrow_to(struct sqrl_source *source, const char *const *names,
                                     size_t count, struct sqrl_source **out,
                                     struct sqrl_error *err);

#endif
