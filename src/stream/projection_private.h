/* projection_private.h - the stages, shared by projection.c and projection_sample.c. */
#ifndef SQRL_STREAM_PROJECTION_PRIVATE_H
#define SQRL_STREAM_PROJECTION_PRIVATE_H

#include "stream/projection.h"

struct interned {
    struct interned *next;
    uint32_t size;
    char text[];
};

struct sqrl_projection {
    const struct sqrl_projection *before;
    enum sqrl_name_stage stage;
    size_t count;
    struct sqrl_path *path; /* [count] */
    char **to;              /* rename: [count] */
    struct sqrl_lock lock;  /* guards what follows */
    struct interned *bucket[256];
    uint32_t interned;
};

/* A backslash in front of a dot or a backslash. */
static inline bool is_escape(const char *s) {
    return *s == '\\' && (s[1] == '.' || s[1] == '\\');
}

#endif
