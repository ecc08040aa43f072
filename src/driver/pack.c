/* pack.c - samples in order, blocks encoded in parallel, shards written in order.
 *
 * The caller's thread fills a raw block. A full one becomes a job: a task of the pool
 * encodes it. Jobs form a queue in the order of the samples; whichever task completes its
 * head becomes the drainer and appends encoded blocks to the file until the head is not
 * encoded yet. So one thread at a time writes, files are the same for any number of
 * threads, and writing overlaps with encoding. The end of a shard is a job too: the
 * drainer finishes the file, and a task of its own syncs and commits it beside the
 * further work.
 *
 * At most `limit` blocks are in flight, and no more than MAX_BYTES of them (but always
 * one), and MAX_COMMITS shards that are not synced yet: the caller waits there. The first
 * failure stops everything; the next call of the caller reports it. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/pack.h"
#include "driver/source.h"
#include "format/commit.h"

#define MAX_BYTES ((size_t)24 << 20)
#define MAX_IDLE_BYTES ((size_t)4 << 20) /* kept for reuse beyond two blocks */
#define MAX_SAMPLE ((size_t)1 << 31)
#define DEFAULT_SHARD_BYTES (UINT64_C(256) << 20)
enum { MAX_COMMITS = 8 };

/* One file on its way. Freed by the commit task, or by the drainer on failure. */
struct shard {
    struct sqrl_task task;
    struct sqrl_packer *packer;
    char *name; /* within the directory; NULL: the destination itself */
    char *path;
    struct sqrl_file_writer *file; /* NULL once committed or aborted */
    void *writer;
    struct sqrl_shard_info info;
    uint64_t stored; /* bytes of blocks */
};

struct job {
    struct sqrl_task task;
    struct job *next; /* in the queue, or in the list of free ones */
    struct sqrl_packer *packer;
    struct shard *shard;
    bool ends_shard; /* no block: finish the shard */
    bool done;
    struct sqrl_bytes bytes;
    uint32_t *begin;
    uint32_t count, capacity;
    struct sqrl_coded_block coded;
    int rc;
    struct sqrl_error err;
};

struct sqrl_packer {
    struct sqrl_context *context;
    struct sqrl_pool *pool;
    uint32_t generation; /* of forks: a child can't go on */
    struct sqrl_pack_target target;
    uint64_t samples_per_shard, shard_bytes, block_bytes;
    bool overwrite, hold_commit;
    unsigned limit;
    /* The caller's thread. */
    struct job *current;
    struct shard *shard;
    size_t accepted;         /* bytes of current that are whole samples */
    struct sqrl_bytes spare; /* lent where there is no current block */
    uint64_t shard_samples, shard_raw;
    uint64_t shard_number;
    char **names; /* of shards, in order */
    size_t name_count, name_capacity;
    /* All below: under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct job *head, **tail;
    struct job *idle;
    unsigned in_flight; /* jobs in the queue or with the drainer */
    size_t in_flight_bytes;
    unsigned commits; /* shards between finish and commit */
    bool draining;
    bool stopped;
    int rc;
    struct sqrl_error err;
    struct sqrl_pack_report report;
};

static void lock(struct sqrl_packer *p) {
    pthread_mutex_lock(&p->mutex);
}

static void unlock(struct sqrl_packer *p) {
    pthread_mutex_unlock(&p->mutex);
}

/* Keeps the first failure; everything behind it is dropped. Under the mutex. */
static void fail(struct sqrl_packer *p, int rc, const struct sqrl_error *err) {
    if (p->rc)
        return;
    p->rc = rc;
    p->err = *err;
    p->stopped = true;
}

/* --- shards --- */
static void shard_free(struct shard *shard) {
    if (!shard)
        return;
    if (shard->writer) {
        shard->packer->target.format->dispose(shard->writer);
        free(shard->writer);
    }
    if (shard->file)
        sqrl_file_abort(shard->file);
    free(shard->name);
    free(shard->path);
    free(shard);
}

static int add_name(struct sqrl_packer *p, const char *name, struct sqrl_error *err) {
    if (p->name_count == p->name_capacity) {
        size_t capacity = p->name_capacity ? 2 * p->name_capacity : 16;
        char **names =
            sqrl_realloc(p->names, capacity * sizeof *names, "shard names", err);
        if (!names)
            return SQRL_E_NO_MEMORY;
        p->names = names;
        p->name_capacity = capacity;
    }
    p->names[p->name_count] = sqrl_strdup(name, err);
    if (!p->names[p->name_count])
        return SQRL_E_NO_MEMORY;
    p->name_count++;
    return SQRL_OK;
}

static int shard_paths(struct sqrl_packer *p, struct shard *shard,
                       struct sqrl_error *err) {
    const struct sqrl_pack_target *target = &p->target;
    if (!target->directory) {
        shard->path = sqrl_strdup(target->path, err);
        return shard->path ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    shard->name = sqrl_pack_target_name(target, p->shard_number++, err);
    if (shard->name)
        shard->path = sqrl_path_join(target->path, shard->name, err);
    return shard->path ? add_name(p, shard->name, err) : SQRL_E_NO_MEMORY;
}

static int shard_start(struct sqrl_packer *p, struct sqrl_error *err) {
    const struct sqrl_format_ops *format = p->target.format;
    struct shard *shard = sqrl_calloc(1, sizeof *shard, "shard", err);
    if (!shard)
        return SQRL_E_NO_MEMORY;
    shard->packer = p;
    int rc = shard_paths(p, shard, err);
    if (!rc)
        rc = sqrl_file_create(p->target.fs, shard->path,
                              p->overwrite && !p->target.directory, &shard->file, err);
    if (!rc) {
        shard->writer = sqrl_calloc(1, SQRL_MAX(format->writer_size, 1u), "writer", err);
        rc = shard->writer ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    if (!rc) {
        struct sqrl_writer_args args = {p->context, shard->file, &p->target.settings};
        rc = format->create(shard->writer, &args, err);
        if (rc)
            sqrl_error_at_path(err, rc, shard->path, NULL);
    }
    if (rc) {
        shard_free(shard);
        return rc;
    }
    p->shard = shard; /* its counts run since end_shard(): the first block is in them */
    return SQRL_OK;
}

static void run_commit(struct sqrl_task *task) {
    struct shard *shard = (struct shard *)((char *)task - offsetof(struct shard, task));
    struct sqrl_packer *p = shard->packer;
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
            (void)!sqrl_fs_stat(p->target.fs, shard->path, &stat, NULL);
        else
            sqrl_error_at_path(&err, rc, shard->path, NULL);
    }
    shard->file = NULL; /* commit and abort free it */
    uint64_t behind = stat.size - shard->stored;
    shard_free(shard); /* while the packer is surely there */
    lock(p);
    if (rc)
        fail(p, rc, &err);
    p->report.file_bytes += behind;
    p->report.shards += !rc && !stopped;
    p->commits--;
    pthread_cond_broadcast(&p->changed);
    unlock(p);
}

/* --- the queue --- */
/* Finishes the file and hands it to a task that syncs it. Not under the mutex. */
static int finish_shard(struct shard *shard, struct sqrl_error *err) {
    struct sqrl_packer *p = shard->packer;
    int rc = p->target.format->finish(shard->writer, &shard->info, err);
    if (rc)
        return sqrl_error_at_path(err, rc, shard->path, NULL);
    lock(p);
    p->commits++;
    unlock(p);
    shard->task = (struct sqrl_task){.run = run_commit};
    sqrl_pool_submit(p->pool, &shard->task);
    return SQRL_OK;
}

/* One job at the head of the queue, encoded: to the file. Not under the mutex. */
static int write_job(struct job *job, struct sqrl_error *err) {
    struct shard *shard = job->shard;
    struct sqrl_packer *p = job->packer;
    if (job->ends_shard)
        return finish_shard(shard, err);
    int rc = p->target.format->append(shard->writer, &job->coded, err);
    if (rc)
        return sqrl_error_at_path(err, rc, shard->path, NULL);
    shard->stored += job->coded.stored->size;
    lock(p);
    p->report.blocks++;
    p->report.samples += job->count;
    p->report.raw_bytes += job->bytes.size;
    p->report.file_bytes += job->coded.stored->size;
    unlock(p);
    return SQRL_OK;
}

static size_t job_bytes(const struct job *job) {
    return job->bytes.size;
}

/* Takes the job off the books and keeps it for reuse. Under the mutex. */
static void retire(struct sqrl_packer *p, struct job *job) {
    p->in_flight--;
    p->in_flight_bytes -= job_bytes(job);
    job->next = p->idle;
    p->idle = job;
    pthread_cond_broadcast(&p->changed);
}

/* Writes what is encoded at the head of the queue, unless another thread does. */
static void drain(struct sqrl_packer *p) {
    lock(p);
    while (!p->draining && p->head && p->head->done) {
        struct job *job = p->head;
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
            shard_free(job->shard);
        lock(p);
        p->draining = false;
        if (rc)
            fail(p, rc, &err);
        retire(p, job);
    }
    unlock(p);
}

static void run_job(struct sqrl_task *task) {
    struct job *job = (struct job *)((char *)task - offsetof(struct job, task));
    struct sqrl_packer *p = job->packer;
    lock(p);
    bool stopped = p->stopped;
    unlock(p);
    int rc = SQRL_OK;
    if (!stopped && !job->ends_shard) {
        struct sqrl_raw_block raw = {job->bytes.data, job->bytes.size, job->begin,
                                     job->count};
        rc = p->target.format->encode(job->shard->writer, &raw, &job->coded, &job->err);
        if (rc)
            sqrl_error_at_path(&job->err, rc, job->shard->path, NULL);
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
static int check_state(struct sqrl_packer *p, struct sqrl_error *err) {
    if (p->generation != sqrl_fork_generation())
        return sqrl_error_set(
            err, SQRL_E_STATE,
            "this packer belongs to the process that opened it, not to a "
            "child of a fork: open one there");
    lock(p);
    int rc = p->rc;
    if (rc && err)
        *err = p->err;
    unlock(p);
    return rc;
}

/* A job of its own for the caller to fill; waits while too many are under way. */
static int take_job(struct sqrl_packer *p, struct job **out, struct sqrl_error *err) {
    *out = NULL;
    lock(p);
    while (!p->stopped && (p->in_flight >= p->limit || p->commits >= MAX_COMMITS ||
                           (p->in_flight > 0 && p->in_flight_bytes >= MAX_BYTES)))
        pthread_cond_wait(&p->changed, &p->mutex);
    struct job *job = p->idle;
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
    job->packer = p;
    job->next = NULL;
    job->shard = NULL;
    job->ends_shard = job->done = false;
    job->bytes.size = 0;
    job->count = 0;
    job->rc = SQRL_OK;
    sqrl_error_clear(&job->err);
    *out = job;
    return SQRL_OK;
}

static void submit(struct sqrl_packer *p, struct job *job) {
    job->task = (struct sqrl_task){.run = run_job};
    lock(p);
    *p->tail = job;
    p->tail = &job->next;
    p->in_flight++;
    p->in_flight_bytes += job_bytes(job);
    unlock(p);
    sqrl_pool_submit(p->pool, &job->task);
}

/* Sends off the current block, if there is something in it. The bytes behind the last
 * accepted sample (a sample in the making) are dropped. */
static int flush(struct sqrl_packer *p, struct sqrl_error *err) {
    struct job *job = p->current;
    if (!job || !job->count)
        return SQRL_OK;
    if (!p->shard) {
        int rc = shard_start(p, err);
        if (rc)
            return rc;
    }
    job->bytes.size = p->accepted;
    job->shard = p->shard;
    p->current = NULL;
    p->accepted = 0;
    submit(p, job);
    return SQRL_OK;
}

static int end_shard(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = flush(p, err);
    if (rc || !p->shard)
        return rc;
    struct job *job = NULL;
    rc = take_job(p, &job, err);
    if (rc)
        return rc;
    job->shard = p->shard;
    job->ends_shard = true;
    p->shard = NULL;
    p->shard_samples = p->shard_raw = 0;
    submit(p, job);
    return SQRL_OK;
}

/* Room for one more sample in the current block. */
static int make_room(struct sqrl_packer *p, struct sqrl_error *err) {
    if (!p->current) {
        int rc = take_job(p, &p->current, err);
        if (rc)
            return rc;
    }
    struct job *job = p->current;
    if (job->count < job->capacity)
        return SQRL_OK;
    uint32_t capacity = job->capacity ? 2 * job->capacity : 256;
    uint32_t *begin = sqrl_realloc(job->begin, capacity * sizeof *begin, "samples", err);
    if (!begin)
        return SQRL_E_NO_MEMORY;
    job->begin = begin;
    job->capacity = capacity;
    return SQRL_OK;
}

struct sqrl_bytes *sqrl_packer_bytes(struct sqrl_packer *p) {
    if (p->generation == sqrl_fork_generation() && make_room(p, NULL) == SQRL_OK)
        return &p->current->bytes;
    return &p->spare; /* accept() says what is wrong, or moves it */
}

void sqrl_packer_reject(struct sqrl_packer *p) {
    p->spare.size = 0;
    if (p->current)
        p->current->bytes.size = p->accepted;
}

int sqrl_packer_accept(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = check_state(p, err);
    if (!rc)
        rc = make_room(p, err);
    if (!rc && p->spare.size)
        rc = sqrl_bytes_append(&p->current->bytes, p->spare.data, p->spare.size, err);
    if (rc)
        goto reject;
    p->spare.size = 0;
    struct job *job = p->current;
    size_t size = job->bytes.size - p->accepted;
    if (size == 0 || size > MAX_SAMPLE) {
        rc = size ? sqrl_error_set(err, SQRL_E_LIMIT,
                                   "a sample of %zu bytes: the limit is 2 GiB", size)
                  : sqrl_error_set(err, SQRL_E_INVALID, "a sample has no bytes");
        goto reject;
    }
    job->begin[job->count++] = (uint32_t)p->accepted;
    p->accepted = job->bytes.size;
    p->shard_samples++;
    p->shard_raw += size;
    if (p->shard_samples >= p->samples_per_shard || p->shard_raw >= p->shard_bytes)
        return end_shard(p, err);
    return p->accepted >= p->block_bytes ? flush(p, err) : SQRL_OK;
reject:
    sqrl_packer_reject(p);
    return rc;
}

int sqrl_packer_append(struct sqrl_packer *p, const uint8_t *sample, size_t size,
                       struct sqrl_error *err) {
    int rc = check_state(p, err);
    if (!rc)
        rc = make_room(p, err);
    if (!rc)
        rc = sqrl_bytes_append(&p->current->bytes, sample, size, err);
    return rc ? rc : sqrl_packer_accept(p, err);
}

int sqrl_packer_append_sample(struct sqrl_packer *p, const struct sqrl_block *block,
                              uint32_t index, struct sqrl_error *err) {
    int rc = check_state(p, err);
    if (!rc)
        rc = make_room(p, err);
    if (rc)
        return rc;
    rc = sqrl_msgpack_encode(&p->current->bytes, block->tape.nodes, block->begin[index],
                             block->bytes->data, err);
    if (rc) {
        sqrl_packer_reject(p);
        return rc;
    }
    return sqrl_packer_accept(p, err);
}

int sqrl_packer_cut(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = check_state(p, err);
    sqrl_packer_reject(p);
    if (!rc && !p->target.directory)
        rc = sqrl_error_set(err, SQRL_E_INVALID, "one file can't be cut into shards");
    return rc ? rc : end_shard(p, err);
}

void sqrl_packer_progress(const struct sqrl_packer *fixed, struct sqrl_pack_report *out) {
    struct sqrl_packer *p = (struct sqrl_packer *)fixed; /* for its mutex */
    lock(p);
    *out = p->report;
    unlock(p);
}

/* --- opening and ending --- */
static void job_free(struct job *job) {
    if (!job)
        return;
    sqrl_bytes_reset(&job->bytes);
    free(job->begin);
    free(job);
}

/* Waits until no task of this packer is left. */
static void settle(struct sqrl_packer *p) {
    lock(p);
    while (p->in_flight > 0 || p->commits > 0)
        pthread_cond_wait(&p->changed, &p->mutex);
    unlock(p);
}

static void packer_free(struct sqrl_packer *p) {
    shard_free(p->shard);
    job_free(p->current);
    while (p->idle) {
        struct job *job = p->idle;
        p->idle = job->next;
        job_free(job);
    }
    for (size_t i = 0; i < p->name_count; i++)
        free(p->names[i]);
    free(p->names);
    sqrl_bytes_reset(&p->spare);
    sqrl_pack_target_reset(&p->target);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    sqrl_context_unref(p->context);
    free(p);
}

static int check_options(const struct sqrl_pack_options *options,
                         struct sqrl_error *err) {
    if (options->size != sizeof *options)
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "sqrl_pack_options.size is %zu, not %zu: set it to sizeof, and "
            "build against this library's headers",
            options->size, sizeof *options);
    if (options->overwrite && options->append)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "overwrite and append exclude each other");
    if (options->block_bytes > (UINT64_C(1) << 30))
        return sqrl_error_set(err, SQRL_E_LIMIT, "a block aims at 1 GiB at most");
    return SQRL_OK;
}

int sqrl_packer_open(struct sqrl_context *context, const char *destination,
                     const struct sqrl_pack_options *options, struct sqrl_packer **out,
                     struct sqrl_error *err) {
    static const struct sqrl_pack_options defaults = {.size = sizeof defaults};
    *out = NULL;
    options = options ? options : &defaults;
    int rc = check_options(options, err);
    if (rc)
        return sqrl_error_at_path(err, rc, destination, NULL);
    struct sqrl_packer *p = sqrl_calloc(1, sizeof *p, "packer", err);
    if (!p)
        return SQRL_E_NO_MEMORY;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->context = sqrl_context_ref(context);
    p->generation = sqrl_fork_generation();
    p->tail = &p->head;
    p->samples_per_shard =
        options->samples_per_shard ? options->samples_per_shard : UINT64_MAX;
    p->shard_bytes = options->shard_bytes ? options->shard_bytes : DEFAULT_SHARD_BYTES;
    p->block_bytes = options->block_bytes ? options->block_bytes : SQRL_BLOCK_BYTES;
    p->overwrite = options->overwrite;
    p->hold_commit = options->hold_commit;
    p->pool = sqrl_context_pool(context, err);
    rc = p->pool ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!rc)
        rc = sqrl_pack_target_open(context, destination, options, &p->target, err);
    if (!rc && !p->target.directory && options->samples_per_shard)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "samples_per_shard needs a directory as destination");
    if (rc) {
        sqrl_error_at_path(err, rc, destination, p->target.path);
        packer_free(p);
        return rc;
    }
    if (!p->target.directory) /* one file holds it all */
        p->shard_bytes = UINT64_MAX;
    p->limit = sqrl_pool_threads(p->pool) + 2;
    *out = p;
    return SQRL_OK;
}

/* Removes the shards that were written under their final names. */
static void remove_shards(struct sqrl_packer *p) {
    for (size_t i = 0; i < p->name_count; i++) {
        char *path = sqrl_path_join(p->target.path, p->names[i], NULL);
        int rc = path ? sqrl_fs_remove(p->target.fs, path, NULL) : SQRL_E_NO_MEMORY;
        if (rc && rc != SQRL_E_NOT_FOUND)
            sqrl_log(p->context, SQRL_LOG_WARNING,
                     "%s/%s: left over by a pack that failed; it could not be removed",
                     p->target.path, p->names[i]);
        free(path);
    }
}

static int commit(struct sqrl_packer *p, struct sqrl_error *err) {
    if (p->hold_commit || !p->target.directory)
        return SQRL_OK;
    const char *const *names = (const char *const *)p->names;
    int rc = SQRL_OK;
    if (p->target.native)
        rc = sqrl_commit_write(p->context, p->target.fs, p->target.path, names,
                               p->name_count, p->overwrite, NULL, err);
    return rc ? rc : sqrl_pack_target_replace(&p->target, names, p->name_count, err);
}

/* Nothing was packed: a file, or a data set, of no samples all the same. */
static int start_empty(struct sqrl_packer *p, struct sqrl_error *err) {
    bool nothing =
        !p->shard && p->shard_number == 0 && !(p->current && p->current->count);
    bool owed = !p->target.directory || !p->hold_commit;
    if (!nothing || !owed)
        return SQRL_OK;
    lock(p);
    bool any = p->report.blocks > 0 || p->in_flight > 0 || p->commits > 0 ||
               p->report.shards > 0;
    unlock(p);
    return any ? SQRL_OK : shard_start(p, err);
}

int sqrl_packer_finish(struct sqrl_packer *p, struct sqrl_pack_report *report,
                       struct sqrl_error *err) {
    if (report)
        memset(report, 0, sizeof *report);
    int rc = check_state(p, err);
    if (rc) {
        sqrl_packer_abandon(p);
        return rc;
    }
    sqrl_packer_reject(p);
    rc = start_empty(p, err);
    if (!rc)
        rc = end_shard(p, err);
    if (rc) {
        sqrl_packer_abandon(p);
        return rc;
    }
    settle(p);
    rc = check_state(p, err);
    if (!rc) {
        rc = commit(p, err);
        if (rc)
            sqrl_error_at_path(err, rc, p->target.path, NULL);
    }
    if (!rc && report)
        *report = p->report;
    if (rc)
        remove_shards(p);
    packer_free(p);
    return rc;
}

void sqrl_packer_abandon(struct sqrl_packer *p) {
    if (!p || p->generation != sqrl_fork_generation())
        return; /* a child leaves its parent's packer alone */
    lock(p);
    p->stopped = true;
    unlock(p);
    settle(p);
    remove_shards(p);
    packer_free(p);
}
