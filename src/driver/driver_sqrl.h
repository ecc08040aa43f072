/* driver_sqrl.h - the driver of native shards: a file, or a directory with its commits.
 */
#ifndef SQRL_DRIVER_SQRL_H
#define SQRL_DRIVER_SQRL_H

#include "sqrl/source.h"

/* Opens a shard, or a directory: with commit files the union of its commits, counts known
 * without opening a shard; without them all files *.sqrl in byte order of their names. */
extern const struct sqrl_driver_ops sqrl_driver_native;

#endif
