/* fetch.h - opening shards whose bytes are read ahead (source.c, reader.c). */
#ifndef SQRL_DRIVER_FETCH_H
#define SQRL_DRIVER_FETCH_H

#include "sqrl/source.h"

/* A reader of a shard that is open already; *out is NULL when it is not. */
SQRL_CHECK int sqrl_shard_open_kept(struct sqrl_source *source, uint64_t shard,
                                    struct sqrl_shard_reader **out,
                                    struct sqrl_error *err);
/* The shard's file, by the size that is known of it. */
SQRL_CHECK int sqrl_shard_open_file(struct sqrl_source *source, uint64_t shard,
                                    struct sqrl_file **out, struct sqrl_error *err);
/* sqrl_shard_open within that file; takes a reference of its own. */
SQRL_CHECK int sqrl_shard_open_in(struct sqrl_source *source, uint64_t shard,
                                  struct sqrl_file *file, struct sqrl_shard_reader **out,
                                  struct sqrl_error *err);
/* Reads the indexes of far shards [from, to), many at a time, so that opening those finds
 * them; does nothing for local ones. */
void sqrl_source_open_ahead(struct sqrl_source *source, uint64_t from, uint64_t to);
/* Borrowed. */
struct sqrl_file *sqrl_shard_reader_file(const struct sqrl_shard_reader *reader);
/* It leaves out samples of its shards. */
bool sqrl_source_subset_of(const struct sqrl_source *source);

#endif
