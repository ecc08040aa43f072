/* local.h - what the parts of the local file system share. */
#ifndef SQRL_IO_LOCAL_H
#define SQRL_IO_LOCAL_H

#include "io/io.h"

#include <sys/stat.h>

#define SQRL_TEMPORARY_SUFFIX ".sqrl-tmp"

struct sqrl_local {
    struct sqrl_context *context; /* borrowed from the fs; may be NULL */
};

/* local.c */
void sqrl_local_fill_stat(const struct stat *st, struct sqrl_stat *out);
/* "a FIFO", "a directory": what a path is that is no regular file. */
const char *sqrl_local_kind(mode_t mode);

/* local_list.c */
int sqrl_local_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                    void *arg, const struct sqrl_cancel *cancel, struct sqrl_error *err);

/* local_write.c */
struct sqrl_local_writer {
    int fd, directory; /* -1: closed */
    char *temporary;   /* name in directory, NULL: none exists */
    char *name;        /* final name in directory */
    bool replace;
    struct sqrl_buffer *buffer; /* small writes are gathered here */
    uint64_t written;           /* bytes given to the system */
    uint64_t started;           /* of these, bytes it was told to write back */
};
int sqrl_local_writer_open(void *fs, const char *path, bool replace, void *writer,
                           struct sqrl_error *err);
int sqrl_local_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                            struct sqrl_error *err);
int sqrl_local_writer_commit(void *fs, void *writer, struct sqrl_error *err);
void sqrl_local_writer_abort(void *fs, void *writer);

/* local_sweep.c: names of temporaries, and which of them are dead. */
/* The name of a new temporary for `name` (at most NAME_MAX bytes). free() it. */
char *sqrl_local_temporary_name(const char *name, struct sqrl_error *err);
int sqrl_local_sweep(void *fs, const char *directory, uint64_t *removed,
                     struct sqrl_error *err);

#endif
