/* contract_fs.h - what include/sqrl/fs.h promises, as tests for any file system. */
#ifndef TESTS_SUPPORT_CONTRACT_FS_H
#define TESTS_SUPPORT_CONTRACT_FS_H

#include "sqrl/fs.h"

/* Runs every check below `root`, an existing empty directory of `fs`. */
void contract_fs(struct sqrl_fs *fs, const char *root);

/* The same for a file system whose calls are requests to a server: fewer of them, and no
 * allocation is made to fail (each of the hundreds would repeat them all). */
void contract_fs_remote(struct sqrl_fs *fs, const char *root);

/* Writes a file in one piece; failures are cmocka's. */
void contract_fs_put(struct sqrl_fs *fs, const char *path, const void *data, size_t size);

#endif
