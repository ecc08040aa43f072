/* listed.h - what a file system listed, as text that another process may go on from.
 *
 * Opening a data set lists directories. The workers of a job are given what their parent
 * listed: each of those listings is then answered once, without asking; a second one of
 * the same directory asks, so that what changed meanwhile is found.
 */
#ifndef SQRL_IO_LISTED_H
#define SQRL_IO_LISTED_H

#include "base/base.h"
#include "sqrl/codec.h"
#include "sqrl/fs.h"
#include "sqrl/value.h"

#define SQRL_LISTED_MAX_BYTES ((size_t)1 << 20) /* more is not kept */

/* Keeps what is listed from now on, as long as the file system lives; listings that
 * `text` has ("": none) are answered from it. One thread, before others list.
 * SQRL_E_CORRUPT where it is no such text. A second call does nothing. */
SQRL_CHECK int sqrl_fs_keep_listings(struct sqrl_fs *fs, const char *text,
                                     struct sqrl_error *err);
/* What was listed so far, to be freed, printable ASCII; NULL: nothing, or too much. */
char *sqrl_fs_listings(struct sqrl_fs *fs);

/* --- for fs.c --- */
struct sqrl_listed;
void sqrl_listed_free(struct sqrl_listed *listed); /* NULL is allowed */
struct sqrl_listed **sqrl_fs_listed_place(struct sqrl_fs *fs);
/* True when it was answered: *rc is the listing's. */
bool sqrl_listed_answer(struct sqrl_listed *listed, const char *path, bool recursive,
                        sqrl_list_fn visit, void *arg, int *rc, struct sqrl_error *err);
/* Adds an entry of a listing that is under way. */
void sqrl_listed_entry(struct sqrl_bytes *to, const char *name,
                       const struct sqrl_stat *stat);
/* The listing is whole; `found` false: there is no such directory. */
void sqrl_listed_add(struct sqrl_listed *listed, const char *path, bool recursive,
                     bool found, const struct sqrl_bytes *entries);

#endif
