/* driver_idx.h - the driver of IDX files: images with their labels. */
#ifndef SQRL_DRIVER_IDX_H
#define SQRL_DRIVER_IDX_H

#include "sqrl/source.h"

/* Opens a file or a directory; in a directory, files of images are the shards, and the
 * labels beside them are no shards of their own. */
extern const struct sqrl_driver_ops sqrl_driver_idx;

#endif
