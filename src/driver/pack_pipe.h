/* pack_pipe.h - from full blocks to synced files: what pack.c asks of pack_pipe.c.
 *
 * pack.c decides what is in which shard; the pipe encodes, writes, finishes and commits
 * in that order. One thread calls the functions; the pool's threads do the work. */
#ifndef SQRL_DRIVER_PACK_PIPE_H
#define SQRL_DRIVER_PACK_PIPE_H

#include "driver/pack.h"
#include "format/group.h"

struct sqrl_pack_pipe;

/* One file on its way. The packer makes it; once a job that ends it was submitted it is
 * the pipe's, which commits it, or drops it behind a failure. */
struct sqrl_pack_shard {
    struct sqrl_task task;
    struct sqrl_pack_pipe *pipe;
    char *name; /* within the directory; NULL: the destination itself */
    char *path;
    struct sqrl_file_writer *file; /* NULL once committed or aborted */
    void *writer;
    struct sqrl_shard_info info;
    uint64_t stored;         /* bytes of blocks */
    struct sqrl_group group; /* of its fields; name NULL: whole samples */
    bool counts; /* its samples and itself are the report's: one of each number */
};

/* One block, or the end of a shard. The packer fills bytes, begin, count and shard. */
struct sqrl_pack_job {
    struct sqrl_task task;
    struct sqrl_pack_job *next; /* in the queue, or in the list of free ones */
    struct sqrl_pack_pipe *pipe;
    struct sqrl_pack_shard *shard;
    bool ends_shard; /* no block: finish the shard */
    bool done;
    struct sqrl_bytes bytes;
    uint32_t *begin;
    uint32_t count, capacity;
    struct sqrl_coded_block coded;
    struct sqrl_error err;
};

struct sqrl_pack_pipe {
    struct sqrl_pool *pool;
    const struct sqrl_pack_target *target; /* the packer's */
    uint64_t block_bytes;
    unsigned limit;
    /* All below: under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct sqrl_pack_job *head, **tail;
    struct sqrl_pack_job *idle;
    unsigned in_flight; /* jobs in the queue or with the drainer */
    size_t in_flight_bytes;
    unsigned commits; /* shards between finish and commit */
    bool draining;
    bool stopped;
    int rc;
    struct sqrl_error err;
    struct sqrl_pack_report report;
};

/* The pipe stays where it is until reset, and `target` outlives it. With pool NULL it can
 * only be reset. */
void sqrl_pack_pipe_init(struct sqrl_pack_pipe *pipe, struct sqrl_pool *pool,
                         const struct sqrl_pack_target *target, uint64_t block_bytes);
/* No task may be left: settle first. */
void sqrl_pack_pipe_reset(struct sqrl_pack_pipe *pipe);

/* A job to fill; waits while too many are under way. */
SQRL_CHECK int sqrl_pack_pipe_take(struct sqrl_pack_pipe *pipe,
                                   struct sqrl_pack_job **out, struct sqrl_error *err);
/* Queues a filled job behind those that were submitted before. */
void sqrl_pack_pipe_submit(struct sqrl_pack_pipe *pipe, struct sqrl_pack_job *job);
/* The first failure, or SQRL_OK. */
SQRL_CHECK int sqrl_pack_pipe_status(struct sqrl_pack_pipe *pipe, struct sqrl_error *err);
/* What has been written so far; any thread. */
void sqrl_pack_pipe_report(struct sqrl_pack_pipe *pipe, struct sqrl_pack_report *out);
/* Drops whatever is not written yet. */
void sqrl_pack_pipe_stop(struct sqrl_pack_pipe *pipe);
/* Waits until no task of this pipe is left. */
void sqrl_pack_pipe_settle(struct sqrl_pack_pipe *pipe);

/* Drops a shard with its unfinished file; NULL is allowed. */
void sqrl_pack_shard_free(struct sqrl_pack_shard *shard);
void sqrl_pack_job_free(struct sqrl_pack_job *job); /* NULL is allowed */

#endif
