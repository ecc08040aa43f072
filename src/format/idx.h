/* idx.h - what the driver of IDX files needs beside the ops table. */
#ifndef SQRL_FORMAT_IDX_H
#define SQRL_FORMAT_IDX_H

#include "format/format.h"

/* The name of the labels that belong to a file of images, as MNIST names them
 * ("train-images-idx3-ubyte.gz": "train-labels-idx1-ubyte.gz"), allocated; *stem (may be
 * NULL) receives the length of what stands before "images". *out is NULL when `path` is
 * not named so. `gz`: with or without .gz at its end. */
SQRL_CHECK int sqrl_idx_labels_name(const char *path, bool gz, char **out, size_t *stem,
                                    struct sqrl_error *err);

#endif
