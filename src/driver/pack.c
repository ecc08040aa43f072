/* pack.c - samples in order: which go into which block, and which blocks into which
 * shard.
 *
 * The caller's thread fills one raw block and gives it to the pipe (pack_pipe.c), which
 * encodes and writes behind the caller's back. A shard begins with the first block that
 * goes into it, and is cut where the caller asks or where it has its samples or bytes.
 * Nothing counts before the commit that finish() writes: until then the names of all
 * shards are kept, so that a failure can take them away again. A failure of the pipe is
 * reported by the next call. */
#include <stdlib.h>

#include "driver/pack_pipe.h"
#include "driver/source.h"
#include "format/commit.h"

#define MAX_SAMPLE ((size_t)1 << 31)
#define DEFAULT_SHARD_BYTES (UINT64_C(256) << 20)

struct sqrl_packer {
    struct sqrl_context *context;
    uint32_t generation; /* of forks: a child can't go on */
    struct sqrl_pack_target target;
    uint64_t samples_per_shard, shard_bytes, block_bytes;
    bool overwrite, hold_commit;
    struct sqrl_pack_job *current;
    struct sqrl_pack_shard *shard;
    size_t accepted;         /* bytes of current that are whole samples */
    struct sqrl_bytes spare; /* lent where there is no current block */
    uint64_t shard_samples, shard_raw;
    uint64_t shards; /* begun */
    char **names;    /* of shards, in order */
    size_t name_count, name_capacity;
    struct sqrl_pack_pipe pipe;
};

/* --- shards --- */
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

static int shard_paths(struct sqrl_packer *p, struct sqrl_pack_shard *shard,
                       struct sqrl_error *err) {
    const struct sqrl_pack_target *target = &p->target;
    if (!target->directory) {
        shard->path = sqrl_strdup(target->path, err);
        return shard->path ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    shard->name = sqrl_pack_target_name(target, p->shards, err);
    if (shard->name)
        shard->path = sqrl_path_join(target->path, shard->name, err);
    return shard->path ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static int shard_start(struct sqrl_packer *p, struct sqrl_error *err) {
    const struct sqrl_format_ops *format = p->target.format;
    struct sqrl_pack_shard *shard = sqrl_calloc(1, sizeof *shard, "shard", err);
    if (!shard)
        return SQRL_E_NO_MEMORY;
    shard->pipe = &p->pipe;
    int rc = shard_paths(p, shard, err);
    if (!rc && p->target.directory)
        rc = sqrl_pack_target_make(&p->target, err);
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
            sqrl_pack_target_error(&p->target, rc, shard->path, err);
    }
    if (!rc && shard->name) /* not before: a shard that did not begin has no name */
        rc = add_name(p, shard->name, err);
    if (rc) {
        sqrl_pack_shard_free(shard);
        return rc;
    }
    p->shards++;
    p->shard = shard; /* its counts run since end_shard(): the first block is in them */
    return SQRL_OK;
}

/* --- the caller's side --- */
static int check_state(struct sqrl_packer *p, struct sqrl_error *err) {
    if (p->generation != sqrl_fork_generation())
        return sqrl_error_set(
            err, SQRL_E_STATE,
            "this packer belongs to the process that opened it, not to a "
            "child of a fork: open one there");
    return sqrl_pack_pipe_status(&p->pipe, err);
}

/* Sends off the current block, if there is something in it. The bytes behind the last
 * accepted sample (a sample in the making) are dropped. */
static int flush(struct sqrl_packer *p, struct sqrl_error *err) {
    struct sqrl_pack_job *job = p->current;
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
    sqrl_pack_pipe_submit(&p->pipe, job);
    return SQRL_OK;
}

static int end_shard(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = flush(p, err);
    if (rc || !p->shard)
        return rc;
    struct sqrl_pack_job *job = NULL;
    rc = sqrl_pack_pipe_take(&p->pipe, &job, err);
    if (rc)
        return rc;
    job->shard = p->shard;
    job->ends_shard = true;
    p->shard = NULL;
    p->shard_samples = p->shard_raw = 0;
    sqrl_pack_pipe_submit(&p->pipe, job);
    return SQRL_OK;
}

/* Room for one more sample in the current block. */
static int make_room(struct sqrl_packer *p, struct sqrl_error *err) {
    if (!p->current) {
        int rc = sqrl_pack_pipe_take(&p->pipe, &p->current, err);
        if (rc)
            return rc;
    }
    struct sqrl_pack_job *job = p->current;
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
    struct sqrl_pack_job *job = p->current;
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
    sqrl_pack_pipe_report(&p->pipe, out);
}

/* --- opening and ending --- */
static void packer_free(struct sqrl_packer *p) {
    sqrl_pack_shard_free(p->shard);
    sqrl_pack_job_free(p->current);
    sqrl_pack_pipe_reset(&p->pipe);
    for (size_t i = 0; i < p->name_count; i++)
        free(p->names[i]);
    free(p->names);
    sqrl_bytes_reset(&p->spare);
    sqrl_pack_target_reset(&p->target);
    sqrl_context_unref(p->context);
    free(p);
}

/* Removes the shards that were written under their final names, and what else is new. */
static void take_back(struct sqrl_packer *p) {
    sqrl_pack_shard_free(p->shard); /* with its temporary */
    p->shard = NULL;
    for (size_t i = 0; i < p->name_count; i++) {
        char *path = sqrl_path_join(p->target.path, p->names[i], NULL);
        int rc = path ? sqrl_fs_remove(p->target.fs, path, NULL) : SQRL_E_NO_MEMORY;
        if (rc && rc != SQRL_E_NOT_FOUND)
            sqrl_log(p->context, SQRL_LOG_WARNING,
                     "%s/%s: left over by a pack that failed; it could not be removed",
                     p->target.path, p->names[i]);
        free(path);
    }
    sqrl_pack_target_undo(&p->target);
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
    p->context = sqrl_context_ref(context);
    p->generation = sqrl_fork_generation();
    p->samples_per_shard =
        options->samples_per_shard ? options->samples_per_shard : UINT64_MAX;
    p->shard_bytes = options->shard_bytes ? options->shard_bytes : DEFAULT_SHARD_BYTES;
    p->block_bytes = options->block_bytes ? options->block_bytes : SQRL_BLOCK_BYTES;
    p->overwrite = options->overwrite;
    p->hold_commit = options->hold_commit;
    struct sqrl_pool *pool = sqrl_context_pool(context, err);
    sqrl_pack_pipe_init(&p->pipe, pool, &p->target, p->block_bytes);
    rc = pool ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!rc)
        rc = sqrl_pack_target_open(context, destination, options, &p->target, err);
    if (!rc && !p->target.directory && options->samples_per_shard)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "samples_per_shard needs a directory as destination");
    if (rc) {
        sqrl_error_at_path(err, rc, destination, p->target.path);
        take_back(p);
        packer_free(p);
        return rc;
    }
    if (!p->target.directory) /* one file holds it all */
        p->shard_bytes = UINT64_MAX;
    *out = p;
    return SQRL_OK;
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
    bool nothing = p->shards == 0 && !(p->current && p->current->count);
    bool owed = !p->target.directory || !p->hold_commit;
    return nothing && owed ? shard_start(p, err) : SQRL_OK;
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
    sqrl_pack_pipe_settle(&p->pipe);
    rc = check_state(p, err);
    if (!rc) {
        rc = commit(p, err);
        if (rc)
            sqrl_pack_target_error(&p->target, rc, p->target.path, err);
    }
    if (!rc && report)
        sqrl_pack_pipe_report(&p->pipe, report);
    if (rc)
        take_back(p);
    packer_free(p);
    return rc;
}

void sqrl_packer_abandon(struct sqrl_packer *p) {
    if (!p || p->generation != sqrl_fork_generation())
        return; /* a child leaves its parent's packer alone */
    sqrl_pack_pipe_stop(&p->pipe);
    sqrl_pack_pipe_settle(&p->pipe);
    take_back(p);
    packer_free(p);
}
