/* catalog.h - what catalog.c and catalog_sync.c share. */
#ifndef SQRL_EXT_CATALOG_H
#define SQRL_EXT_CATALOG_H

#include "ext.h"

#pragma GCC visibility push(hidden)

/* The library's catalog of a squirrel._native.Catalog (borrowed). */
struct sqrl_catalog *ext_catalog_get(PyObject *self);

/* What is kept from source to source while they are taken over. */
struct ext_sync {
    PyObject *attribute[3]; /* driver_name, driver_kwargs, metadata */
    PyObject *seen;         /* the name of the attribute with what was taken over */
    struct sqrl_bytes kwargs, metadata;
};
int ext_sync_begin(struct ext_sync *sync);
void ext_sync_end(struct ext_sync *sync);
/* Takes over what a source's object says, if that changed since the last time (not asked
 * of a new object); -1 with an exception. */
int ext_sync_source(PyObject *self, struct ext_sync *sync, const char *name,
                    uint64_t version, PyObject *source, bool new);
/* Catalog.sync(): all sources of a dict of (name, version) to Source. */
PyObject *ext_catalog_sync(PyObject *self, PyObject *live);

#pragma GCC visibility pop
#endif
