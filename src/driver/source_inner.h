/* source_inner.h - what a source and its readers are made of: source.c, reader.c. */
#ifndef SQRL_DRIVER_SOURCE_INNER_H
#define SQRL_DRIVER_SOURCE_INNER_H

#include "driver/access.h"
#include "driver/family.h"
#include "driver/source.h"
#include "format/format.h"
#include "format/sidecar.h"

/* Open files of one source, and memory for their indexes (but of MIN_OPEN of any size).
 * Remote ones are no files of this machine, and a request each to open again. */
enum {
    MAX_OPEN_LOCAL = 256,
    MAX_OPEN = 4096,
    MIN_OPEN = 8,
    MAX_OPEN_BYTES = 128 << 20,
    BYTES_PER_BLOCK = 64
};

/* What a subset sees of one shard: subset.c. */
struct sqrl_subset_block {
    uint64_t number; /* of the block in the shard */
    uint64_t first;  /* of its samples within the subset's shard */
    uint64_t base;   /* number of its first sample in the shard */
    uint32_t count;
};
struct sqrl_subset {
    struct sqrl_subset_block *block; /* [blocks] */
    uint32_t *row;                   /* [samples]: which one of its block each is */
    uint64_t samples, blocks, raw_bytes;
    uint64_t of_samples, of_blocks; /* the shard's own, as known before */
};
void sqrl_subset_free(struct sqrl_subset *subset, uint64_t shards);
void sqrl_subset_info(const struct sqrl_subset *subset, struct sqrl_shard_info *info);
/* The subset's number of sample `number` of the shard; false when it is not in it. */
bool sqrl_subset_find(const struct sqrl_subset *subset, uint64_t number, uint64_t *row);
/* Leaves block->begin the samples that are in the subset, whose block this is. */
void sqrl_subset_thin(const struct sqrl_subset *subset, uint64_t number,
                      struct sqrl_block *block);

struct sqrl_core {
    int refs;
    const struct sqrl_format_ops *format;
    struct sqrl_file *file;
    void *state;
    struct sqrl_shard_info info;
    struct sqrl_sidecar *sidecar;     /* or NULL */
    const struct sqrl_subset *subset; /* or NULL; its source's */
    uint64_t shard;
    bool indexed;
    bool joined;             /* other parts are joined to it */
    struct sqrl_lock lock;   /* of `part` */
    struct sqrl_core **part; /* [parts]: opened when first needed; NULL: none */
    uint32_t parts;
};

struct sqrl_source {
    int refs;
    struct sqrl_context *context;
    struct sqrl_fs *fs;
    char *url;
    char *listed; /* what opening it listed, or NULL */
    const struct sqrl_driver_ops *driver;
    struct sqrl_settings settings; /* one allocation, owned */
    struct sqrl_shard *shards;
    uint64_t count;
    struct sqrl_shard_chunk *chunks; /* or NULL */
    uint64_t chunk_count;
    size_t prefix_size;
    uint64_t fingerprint;
    struct sqrl_lock lock;            /* all below */
    struct sqrl_core *open[MAX_OPEN]; /* most recently used first */
    uint64_t open_bytes;              /* of their indexes */
    size_t open_count;
    uint64_t samples; /* valid when samples_known */
    bool samples_known;
    struct sqrl_schema schema;
    enum { SCHEMA_UNSEEN, SCHEMA_NONE, SCHEMA_READ } schema_state;
    struct sqrl_access access;
    bool sidecars;                  /* there may be some */
    struct sqrl_subset *subset;     /* [count], or NULL: all samples */
    struct sqrl_families *families; /* groups of fields, or NULL */
    uint8_t *use;                   /* [count][groups], or NULL: whole samples */
    struct sqrl_source *keyed; /* under `lock`: the group that has the keys, or NULL */
};

struct sqrl_shard_reader {
    int refs;
    struct sqrl_source *source;
    struct sqrl_core *core;
    uint64_t block, first;    /* of the next block */
    int failed;               /* code of the error that ended next() */
    struct sqrl_error *fault; /* that error, or NULL when there was no memory for it */
};

/* The shard's open half, from the cache or opened now; a reference of the caller's. */
SQRL_CHECK int sqrl_core_get(struct sqrl_source *source, uint64_t shard,
                             struct sqrl_core **out, struct sqrl_error *err);
/* The same from the cache only, or NULL; and opened now, in `file` if that is not NULL.
 */
struct sqrl_core *sqrl_core_kept(struct sqrl_source *source, uint64_t shard);
SQRL_CHECK int sqrl_core_make(struct sqrl_source *source, uint64_t shard,
                              struct sqrl_file *file, struct sqrl_core **out,
                              struct sqrl_error *err);
/* One file of it, whatever else belongs to it. */
SQRL_CHECK int sqrl_core_open(struct sqrl_source *source, uint64_t shard,
                              const struct sqrl_shard *item, struct sqrl_file *file,
                              struct sqrl_core **out, struct sqrl_error *err);
/* NULL is allowed. */
void sqrl_core_unref(struct sqrl_core *core);

bool sqrl_format_finds(const struct sqrl_format_ops *format);
/* The source to look keys up in: with groups, one that reads the keys' group alone. A
 * reference of the caller's. */
SQRL_CHECK int sqrl_source_keyed(struct sqrl_source *source, struct sqrl_source **out,
                                 struct sqrl_error *err);

/* Calls each() for shards [from, to): those of far sources on threads of the I/O pool,
 * too, many at a time; returns when all are done. */
void sqrl_source_each(struct sqrl_source *source, uint64_t from, uint64_t to,
                      void (*each)(struct sqrl_source *source, uint64_t shard, void *arg),
                      void *arg);

/* Takes "path" and the ": " behind it off the front of the error's place. */
bool sqrl_error_strip(struct sqrl_error *err, const char *path);

#endif
