/* pack_pipe.c - the block pipeline of a pack: encoded in parallel, written in order.
 *
 * A full block is a job: a task of the pool encodes it. Jobs form a queue in the order of
 * the samples; whichever task completes its head becomes the drainer and appends encoded
 * blocks to the file until the head is not encoded yet. So one thread at a time writes,
 * files are the same for any number of threads, and writing overlaps with encoding. The
 * end of a shard is a job too: the drainer finishes the file, and a task of its own syncs
 * and commits it beside the further work.
 *
 * At most `limit` blocks are in flight, and no more than MAX_BYTES of them (but always
 * one), and MAX_COMMITS shards that are not synced yet: sqrl_pack_pipe_take() waits
 * there. The first failure stops everything; what is behind it is dropped unwritten. */
#include <stdlib.h>

#include "driver/pack_pipe.h"

#define MAX_BYTES ((size_t)24 << 20)
#define MAX_IDLE_BYTES ((size_t)4 << 20) /* kept for reuse beyond two blocks */
enum { MAX_COMMITS = 8 };

static void lock(struct sqrl_pack_pipe *p) {
    pthread_mutex_lock(&p->mutex);
}

static void unlock(struct sqrl_pack_pipe *p) {
    pthread_mutex_unlock(&p->mutex);
}

/* Keeps the first failure; everything behind it is dropped. Under the mutex. */
static void fail(struct sqrl_pack_pipe *p, int rc, const struct sqrl_error *err) {
    if (p->rc)
        return;
    p->rc = rc;
    p->err = *err;
    p->stopped = true;
}

/* --- shards --- */
void sqrl_pack_shard_free(struct sqrl_pack_shard *shard) {
    if (!shard)
        return;
    if (shard->writer) {
        shard->pipe->target->format->dispose(shard->writer);
        free(shard->writer);
    }
    if (shard->file)
        sqrl_file_abort(shard->file);
    sqrl_group_reset(&shard->group);
    free(shard->name);
    free(shard->path);
    free(shard);
}

static void run_commit(struct sqrl_task *task) {
    struct sqrl_pack_shard *shard =
        (struct sqrl_pack_shard *)((char *)task - offsetof(struct sqrl_pack_shard, task));
    struct sqrl_pack_pipe *p = shard->pipe;
    struct sqrl_error err;
    struct sqrl_stat stat = {.size = shard->stored};
    sqrl_error_clear(&err);
    lock(p);
    bool stopped = p->stopped;
    unlock(p);
    int rc = SQRL_OK;
    if (stopped) {
        sqrl_file_abort(shard->file);
    } else {
        rc = sqrl_file_commit(shard->file, &err);
        if (!rc)
            (void)!sqrl_fs_stat(p->target->fs, shard->path, &stat, NULL);
        else
            sqrl_pack_target_error(p->target, rc, shard->path, &err);
    }
    shard->file = NULL; /* commit and abort free it */
    uint64_t behind = stat.size - shard->stored;
    bool counts = shard->counts;
    sqrl_pack_shard_free(shard); /* while the packer is surely there */
    lock(p);
    if (rc)
        fail(p, rc, &err);
    p->report.file_bytes += behind;
    p->report.shards += !rc && !stopped && counts;
    p->commits--;
    pthread_cond_broadcast(&p->changed);
    unlock(p);
}

/* --- the queue --- */
/* Finishes the file and hands it to a task that syncs it. Not under the mutex. */
static int finish_shard(struct sqrl_pack_shard *shard, struct sqrl_error *err) {
    struct sqrl_pack_pipe *p = shard->pipe;
    int rc = p->target->format->finish(shard->writer, &shard->info, err);
    if (rc)
        return sqrl_pack_target_error(p->target, rc, shard->path, err);
    lock(p);
    p->commits++;
    unlock(p);
    shard->task = (struct sqrl_task){.run = run_commit};
    sqrl_pool_submit(p->pool, &shard->task);
    return SQRL_OK;
}

/* One job at the head of the queue, encoded: to the file. Not under the mutex. */
static int write_job(struct sqrl_pack_job *job, struct sqrl_error *err) {
    struct sqrl_pack_shard *shard = job->shard;
    struct sqrl_pack_pipe *p = job->pipe;
    if (job->ends_shard)
        return finish_shard(shard, err);
    int rc = p->target->format->append(shard->writer, &job->coded, err);
    if (rc)
        return sqrl_pack_target_error(p->target, rc, shard->path, err);
    shard->stored += job->coded.stored->size;
    lock(p);
    p->report.blocks++;
    p->report.samples += shard->counts ? job->count : 0;
    p->report.raw_bytes += job->bytes.size;
    p->report.file_bytes += job->coded.stored->size;
    unlock(p);
    return SQRL_OK;
}

static size_t job_bytes(const struct sqrl_pack_job *job) {
    return job->bytes.size;
}

/* Takes the job off the books and keeps it for reuse. Under the mutex. */
static void retire(struct sqrl_pack_pipe *p, struct sqrl_pack_job *job) {
    p->in_flight--;
    p->in_flight_bytes -= job_bytes(job);
    job->next = p->idle;
    p->idle = job;
    pthread_cond_broadcast(&p->changed);
}

/* Writes what is encoded at the head of the queue, unless another thread does. */
static void drain(struct sqrl_pack_pipe *p) {
    lock(p);
    while (!p->draining && p->head && p->head->done) {
        struct sqrl_pack_job *job = p->head;
        struct sqrl_error err;
        p->head = job->next;
        if (!p->head)
            p->tail = &p->head;
        bool drop = p->stopped;
        p->draining = true;
        unlock(p);
        sqrl_error_clear(&err);
        int rc = drop ? SQRL_OK : write_job(job, &err);
        sqrl_coded_block_reset(&job->coded);
        if (job->ends_shard && (drop || rc))
            sqrl_pack_shard_free(job->shard);
        lock(p);
        p->draining = false;
        if (rc)
            fail(p, rc, &err);
        retire(p, job);
    }
    unlock(p);
}

static void run_job(struct sqrl_task *task) {
    struct sqrl_pack_job *job =
        (struct sqrl_pack_job *)((char *)task - offsetof(struct sqrl_pack_job, task));
    struct sqrl_pack_pipe *p = job->pipe;
    lock(p);
    bool stopped = p->stopped;
    unlock(p);
    int rc = SQRL_OK;
    if (!stopped && !job->ends_shard) {
        struct sqrl_raw_block raw = {job->bytes.data, job->bytes.size, job->begin,
                                     job->count};
        rc = p->target->format->encode(job->shard->writer, &raw, &job->coded, &job->err);
        if (rc)
            sqrl_pack_target_error(p->target, rc, job->shard->path, &job->err);
    }
    lock(p);
    if (rc)
        fail(p, rc, &job->err);
    job->done = true;
    /* The packer may be freed as soon as the last job is retired: count this task in. */
    p->in_flight++;
    unlock(p);
    drain(p);
    lock(p);
    p->in_flight--;
    pthread_cond_broadcast(&p->changed);
    unlock(p);
}

/* --- the caller's side --- */
/* A job of its own for the caller to fill; waits while too many are under way. */
int sqrl_pack_pipe_take(struct sqrl_pack_pipe *p, struct sqrl_pack_job **out,
                        struct sqrl_error *err) {
    *out = NULL;
    lock(p);
    while (!p->stopped && (p->in_flight >= p->limit || p->commits >= MAX_COMMITS ||
                           (p->in_flight > 0 && p->in_flight_bytes >= MAX_BYTES)))
        pthread_cond_wait(&p->changed, &p->mutex);
    struct sqrl_pack_job *job = p->idle;
    if (job)
        p->idle = job->next;
    unlock(p);
    if (!job) {
        job = sqrl_calloc(1, sizeof *job, "block to pack", err);
        if (!job)
            return SQRL_E_NO_MEMORY;
    }
    if (job->bytes.capacity > MAX_IDLE_BYTES + 2 * p->block_bytes)
        sqrl_bytes_reset(&job->bytes);
    job->pipe = p;
    job->next = NULL;
    job->shard = NULL;
    job->ends_shard = job->done = false;
    job->bytes.size = 0;
    job->count = 0;
    sqrl_error_clear(&job->err);
    *out = job;
    return SQRL_OK;
}

void sqrl_pack_pipe_submit(struct sqrl_pack_pipe *p, struct sqrl_pack_job *job) {
    job->task = (struct sqrl_task){.run = run_job};
    lock(p);
    *p->tail = job;
    p->tail = &job->next;
    p->in_flight++;
    p->in_flight_bytes += job_bytes(job);
    unlock(p);
    sqrl_pool_submit(p->pool, &job->task);
}

/* --- making and ending --- */
void sqrl_pack_pipe_init(struct sqrl_pack_pipe *p, struct sqrl_pool *pool,
                         const struct sqrl_pack_target *target, uint64_t block_bytes) {
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->pool = pool;
    p->target = target;
    p->block_bytes = block_bytes;
    p->limit = pool ? sqrl_pool_threads(pool) + 2 : 0;
    p->tail = &p->head;
}

void sqrl_pack_job_free(struct sqrl_pack_job *job) {
    if (!job)
        return;
    sqrl_bytes_reset(&job->bytes);
    free(job->begin);
    free(job);
}

/* Waits until no task of this packer is left. */
void sqrl_pack_pipe_settle(struct sqrl_pack_pipe *p) {
    lock(p);
    while (p->in_flight > 0 || p->commits > 0)
        pthread_cond_wait(&p->changed, &p->mutex);
    unlock(p);
}

void sqrl_pack_pipe_stop(struct sqrl_pack_pipe *p) {
    lock(p);
    p->stopped = true;
    unlock(p);
}

int sqrl_pack_pipe_status(struct sqrl_pack_pipe *p, struct sqrl_error *err) {
    lock(p);
    int rc = p->rc;
    if (rc && err)
        *err = p->err;
    unlock(p);
    return rc;
}

void sqrl_pack_pipe_report(struct sqrl_pack_pipe *p, struct sqrl_pack_report *out) {
    lock(p);
    *out = p->report;
    unlock(p);
}

void sqrl_pack_pipe_reset(struct sqrl_pack_pipe *p) {
    while (p->idle) {
        struct sqrl_pack_job *job = p->idle;
        p->idle = job->next;
        sqrl_pack_job_free(job);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
}
