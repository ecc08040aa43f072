/* driver_sqrl.h - the driver of native shards: a file, or a directory with its commits.
 */
#ifndef SQRL_DRIVER_SQRL_H
#define SQRL_DRIVER_SQRL_H

#include "sqrl/source.h"

/* Opens a shard, or a directory: with commit files the union of its commits, counts known
 * without opening a shard; without them all files *.sqrl in byte order of their names. */
extern const struct sqrl_driver_ops sqrl_driver_native;

struct sqrl_commits;
/* What its open() does with a directory whose commits are read already. */
SQRL_CHECK int sqrl_shard_list_commits(const struct sqrl_driver_args *args,
                                       const struct sqrl_commits *commits,
                                       struct sqrl_shard_list *out,
                                       struct sqrl_error *err);

#endif
