/* driver_sqrl.h - the driver of native shards: a file, or a directory with its commits.
 */
#ifndef SQRL_DRIVER_SQRL_H
#define SQRL_DRIVER_SQRL_H

#include "driver/driver.h"
#include "format/commit.h"

/* Opens a shard, or a directory: with commit files the union of its commits, counts known
 * without opening a shard; without them all files *.sqrl in byte order of their names. */
extern const struct sqrl_driver_ops sqrl_driver_native;

/* What its open() does with a directory whose commits are read already. */
SQRL_CHECK int sqrl_shard_list_commits(const struct sqrl_driver_args *args,
                                       const struct sqrl_commits *commits,
                                       struct sqrl_shard_list *out,
                                       struct sqrl_error *err);
/* The shard at `path` is there, by the listing or the file system, and as large as the
 * commit says. */
SQRL_CHECK int sqrl_commit_shard_check(const struct sqrl_driver_args *args,
                                       const char *path,
                                       const struct sqrl_listing *listing,
                                       const struct sqrl_commit *commit,
                                       const struct sqrl_commit_shard *shard,
                                       struct sqrl_error *err);

#endif
