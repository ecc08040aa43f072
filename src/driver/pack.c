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

#include "driver/pack_inner.h"
#include "driver/source.h"
#include "format/commit.h"

#define MAX_SAMPLE ((size_t)1 << 31)
#define DEFAULT_SHARD_BYTES (UINT64_C(256) << 20)
/* Blocks of whole samples that one block of a group covers at most: of the base, so that
 * a block of whole samples has a bound, and of the others, which are loaded for one. */
enum { BASE_COVERS = 4, OTHER_COVERS = 32 };

/* --- shards --- */
int sqrl_pack_add_name(struct sqrl_packer *p, const char *name, struct sqrl_error *err) {
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

/* "p-000003.sqrl", of a group that is not the base "p-000003.labels.sqrl". */
static char *lane_name(const struct sqrl_packer *p, const struct sqrl_pack_lane *lane,
                       struct sqrl_error *err) {
    char *name = sqrl_pack_target_name(&p->target, p->shards, err);
    if (!name || !lane->group.name || (lane == &p->lane[p->base] && !p->add))
        return name;
    size_t stem = strlen(name) - strlen(p->target.suffix);
    char *longer = sqrl_format(err, "%.*s.%s%s", (int)stem, name, lane->group.name,
                               p->target.suffix);
    free(name);
    return longer;
}

static int shard_paths(struct sqrl_packer *p, const struct sqrl_pack_lane *lane,
                       struct sqrl_pack_shard *shard, struct sqrl_error *err) {
    const struct sqrl_pack_target *target = &p->target;
    if (!target->directory) {
        shard->path = sqrl_strdup(target->path, err);
        return shard->path ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    shard->name = lane_name(p, lane, err);
    if (shard->name)
        shard->path = sqrl_path_join(target->path, shard->name, err);
    return shard->path ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* The first lane of a shard's number begins. */
static int begin_number(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = SQRL_OK;
    if (p->open)
        return rc;
    if (p->add)
        rc = sqrl_pack_add_begin(p, err);
    else if (p->lane[0].group.name)
        rc = sqrl_family_new(p->family, err);
    if (rc == SQRL_OK && p->base == SQRL_NO_BASE)
        sqrl_pack_choose_base(p);
    p->open = rc == SQRL_OK;
    return rc;
}

static int shard_group(struct sqrl_packer *p, const struct sqrl_pack_lane *lane,
                       struct sqrl_pack_shard *shard, struct sqrl_error *err) {
    shard->counts = lane == &p->lane[p->base];
    if (!lane->group.name)
        return SQRL_OK;
    int rc = sqrl_group_copy(&lane->group, &shard->group, err);
    memcpy(shard->group.family, p->family, sizeof p->family);
    shard->group.base = shard->counts && !p->add;
    shard->group.added = p->add != NULL;
    return rc;
}

static int shard_start(struct sqrl_packer *p, struct sqrl_pack_lane *lane,
                       struct sqrl_error *err) {
    const struct sqrl_format_ops *format = p->target.format;
    int rc = begin_number(p, err);
    struct sqrl_pack_shard *shard =
        rc ? NULL : sqrl_calloc(1, sizeof *shard, "shard", err);
    if (!shard)
        return rc ? rc : SQRL_E_NO_MEMORY;
    shard->pipe = &p->pipe;
    rc = shard_group(p, lane, shard, err);
    if (!rc)
        rc = shard_paths(p, lane, shard, err);
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
        struct sqrl_writer_args args = {p->context, shard->file, &lane->settings,
                                        shard->group.name ? &shard->group : NULL};
        rc = format->create(shard->writer, &args, err);
        if (rc)
            sqrl_pack_target_error(&p->target, rc, shard->path, err);
    }
    if (!rc && shard->name) /* not before: a shard that did not begin has no name */
        rc = sqrl_pack_add_name(p, shard->name, err);
    if (rc) {
        sqrl_pack_shard_free(shard);
        return rc;
    }
    lane->shard =
        shard; /* its counts run since end_shard(): the first block is in them */
    return SQRL_OK;
}

/* --- the caller's side --- */
int sqrl_pack_check_state(struct sqrl_packer *p, struct sqrl_error *err) {
    if (p->generation != sqrl_fork_generation())
        return sqrl_error_set(
            err, SQRL_E_STATE,
            "this packer belongs to the process that opened it, not to a "
            "child of a fork: open one there");
    return sqrl_pack_pipe_status(&p->pipe, err);
}

/* Sends off a lane's block, if there is something in it. The bytes behind the last
 * accepted sample (a sample in the making) are dropped. */
static int flush(struct sqrl_packer *p, struct sqrl_pack_lane *lane,
                 struct sqrl_error *err) {
    struct sqrl_pack_job *job = lane->current;
    if (!job || !job->count)
        return SQRL_OK;
    if (!lane->shard) {
        int rc = shard_start(p, lane, err);
        if (rc)
            return rc;
    }
    job->bytes.size = lane->accepted;
    job->shard = lane->shard;
    lane->current = NULL;
    lane->accepted = 0;
    lane->covered = 0;
    sqrl_pack_pipe_submit(&p->pipe, job);
    return SQRL_OK;
}

static int end_lane(struct sqrl_packer *p, struct sqrl_pack_lane *lane,
                    struct sqrl_error *err) {
    int rc = flush(p, lane, err);
    if (rc || !lane->shard)
        return rc;
    if (lane->grows) { /* what was met up to here */
        struct sqrl_names fields;
        rc = sqrl_names_copy(&lane->group.fields, &fields, err);
        sqrl_names_reset(rc ? &fields : &lane->shard->group.fields);
        if (rc)
            return rc;
        lane->shard->group.fields = fields;
    }
    struct sqrl_pack_job *job = NULL;
    rc = sqrl_pack_pipe_take(&p->pipe, &job, err);
    if (rc)
        return rc;
    job->shard = lane->shard;
    job->ends_shard = true;
    lane->shard = NULL;
    sqrl_pack_pipe_submit(&p->pipe, job);
    return SQRL_OK;
}

int sqrl_pack_end_shard(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = SQRL_OK;
    for (uint32_t i = 0; rc == SQRL_OK && i < p->lanes; i++)
        rc = end_lane(p, &p->lane[i], err);
    if (rc)
        return rc;
    p->shards += p->open;
    if (p->open && p->add)
        sqrl_pack_add_end(p);
    p->open = false;
    p->shard_samples = p->shard_raw = 0;
    return SQRL_OK;
}

/* Room for one more sample in the lane's block. */
int sqrl_pack_make_room(struct sqrl_packer *p, struct sqrl_pack_lane *lane,
                        struct sqrl_error *err) {
    if (!lane->current) {
        int rc = sqrl_pack_pipe_take(&p->pipe, &lane->current, err);
        if (rc)
            return rc;
    }
    struct sqrl_pack_job *job = lane->current;
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

/* Samples in groups are made beside, and then split. */
static bool splits(const struct sqrl_packer *p) {
    return p->lane[0].group.name != NULL;
}

/* Where the next sample is put; NULL with an error. */
static struct sqrl_bytes *sample_bytes(struct sqrl_packer *p, struct sqrl_error *err) {
    if (splits(p))
        return &p->spare;
    return sqrl_pack_make_room(p, &p->lane[0], err) == SQRL_OK
               ? &p->lane[0].current->bytes
               : NULL;
}

struct sqrl_bytes *sqrl_packer_bytes(struct sqrl_packer *p) {
    struct sqrl_bytes *bytes = NULL;
    if (p->generation == sqrl_fork_generation())
        bytes = sample_bytes(p, NULL);
    return bytes ? bytes : &p->spare; /* accept() says what is wrong, or moves it */
}

void sqrl_packer_reject(struct sqrl_packer *p) {
    p->spare.size = 0;
    for (uint32_t i = 0; i < p->lanes; i++)
        if (p->lane[i].current)
            p->lane[i].current->bytes.size = p->lane[i].accepted;
}

static int check_sample(size_t size, struct sqrl_error *err) {
    if (size && size <= MAX_SAMPLE)
        return SQRL_OK;
    return size ? sqrl_error_set(err, SQRL_E_LIMIT,
                                 "a sample of %zu bytes: the limit is 2 GiB", size)
                : sqrl_error_set(err, SQRL_E_INVALID, "a sample has no bytes");
}

/* A lane's block is full: of its own bytes, or covers as much as it may. */
static bool is_full(const struct sqrl_packer *p, const struct sqrl_pack_lane *lane) {
    uint64_t covers = lane == &p->lane[p->base] && !p->add ? BASE_COVERS : OTHER_COVERS;
    return lane->accepted >= p->block_bytes ||
           (lane->group.name && lane->covered / covers >= p->block_bytes);
}

/* The sample behind the lane's block would make it too large: the block goes, and the
 * sample is the first of the next one. */
static int flush_before(struct sqrl_packer *p, struct sqrl_pack_lane *lane,
                        struct sqrl_error *err) {
    struct sqrl_pack_job *next = NULL;
    const struct sqrl_bytes *bytes = &lane->current->bytes;
    int rc = sqrl_pack_pipe_take(&p->pipe, &next, err);
    if (!rc)
        rc = sqrl_bytes_append(&next->bytes, bytes->data + lane->accepted,
                               bytes->size - lane->accepted, err);
    if (!rc)
        rc = flush(p, lane, err);
    if (rc) {
        sqrl_pack_job_free(next);
        return rc;
    }
    lane->current = next;
    return sqrl_pack_make_room(p, lane, err);
}

/* Ends blocks that the sample behind them would make larger than they may be. */
static int end_before(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = SQRL_OK;
    for (uint32_t i = 0; rc == SQRL_OK && i < p->lanes; i++) {
        struct sqrl_pack_lane *lane = &p->lane[i];
        if (!lane->current->count || lane->current->bytes.size <= p->block_bytes)
            continue;
        if (p->base == SQRL_NO_BASE)
            sqrl_pack_choose_base(p);
        rc = flush_before(p, lane, err);
    }
    return rc;
}

int sqrl_pack_take_sample(struct sqrl_packer *p, size_t size, struct sqrl_error *err) {
    int rc = end_before(p, err);
    if (rc) {
        sqrl_packer_reject(p);
        return rc;
    }
    for (uint32_t i = 0; i < p->lanes; i++) {
        struct sqrl_pack_lane *lane = &p->lane[i];
        struct sqrl_pack_job *job = lane->current;
        lane->total += job->bytes.size - lane->accepted;
        lane->covered += size + lane->covers_each;
        job->begin[job->count++] = (uint32_t)lane->accepted;
        lane->accepted = job->bytes.size;
    }
    p->shard_samples++;
    p->shard_raw += size;
    if (p->shard_samples >= p->samples_per_shard || p->shard_raw >= p->shard_bytes)
        return sqrl_pack_end_shard(p, err);
    bool full = false;
    for (uint32_t i = 0; i < p->lanes; i++)
        full = full || p->lane[i].accepted >= p->block_bytes;
    if (p->base == SQRL_NO_BASE && (full || p->shard_raw >= p->block_bytes))
        sqrl_pack_choose_base(p);
    for (uint32_t i = 0; rc == SQRL_OK && p->base != SQRL_NO_BASE && i < p->lanes; i++)
        if (is_full(p, &p->lane[i]))
            rc = flush(p, &p->lane[i], err);
    return rc;
}

static int accept_split(struct sqrl_packer *p, struct sqrl_error *err) {
    bool kept = false;
    int rc = check_sample(p->spare.size, err);
    if (rc == SQRL_OK && p->add)
        rc = sqrl_pack_add_accept(p, &kept, err);
    if (rc == SQRL_OK && !kept)
        rc = sqrl_pack_split(p, err);
    size_t size = p->spare.size;
    if (rc)
        sqrl_packer_reject(p);
    p->spare.size = 0;
    return rc || kept ? rc : sqrl_pack_take_sample(p, size, err);
}

int sqrl_packer_accept(struct sqrl_packer *p, struct sqrl_error *err) {
    struct sqrl_pack_lane *lane = &p->lane[0];
    int rc = sqrl_pack_check_state(p, err);
    if (!rc && splits(p))
        return accept_split(p, err);
    if (!rc)
        rc = sqrl_pack_make_room(p, lane, err);
    if (!rc && p->spare.size)
        rc = sqrl_bytes_append(&lane->current->bytes, p->spare.data, p->spare.size, err);
    if (!rc)
        rc = check_sample(lane->current->bytes.size - lane->accepted, err);
    if (rc) {
        sqrl_packer_reject(p);
        return rc;
    }
    p->spare.size = 0;
    return sqrl_pack_take_sample(p, lane->current->bytes.size - lane->accepted, err);
}

int sqrl_packer_append(struct sqrl_packer *p, const uint8_t *sample, size_t size,
                       struct sqrl_error *err) {
    int rc = sqrl_pack_check_state(p, err);
    struct sqrl_bytes *to = rc ? NULL : sample_bytes(p, err);
    if (!to)
        return rc ? rc : SQRL_E_NO_MEMORY;
    rc = sqrl_bytes_append(to, sample, size, err);
    return rc ? rc : sqrl_packer_accept(p, err);
}

int sqrl_packer_append_sample(struct sqrl_packer *p, const struct sqrl_block *block,
                              uint32_t index, struct sqrl_error *err) {
    int rc = sqrl_pack_check_state(p, err);
    struct sqrl_bytes *to = rc ? NULL : sample_bytes(p, err);
    if (!to)
        return rc ? rc : SQRL_E_NO_MEMORY;
    rc = sqrl_msgpack_encode(to, block->tape.nodes, block->begin[index],
                             block->bytes->data, err);
    if (rc) {
        sqrl_packer_reject(p);
        return rc;
    }
    return sqrl_packer_accept(p, err);
}

int sqrl_packer_cut(struct sqrl_packer *p, struct sqrl_error *err) {
    int rc = sqrl_pack_check_state(p, err);
    sqrl_packer_reject(p);
    if (!rc && !p->target.directory)
        rc = sqrl_error_set(err, SQRL_E_INVALID, "one file can't be cut into shards");
    if (!rc && p->add)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "fields are added to shards as they are: they can't be cut");
    return rc ? rc : sqrl_pack_end_shard(p, err);
}

void sqrl_packer_progress(const struct sqrl_packer *fixed, struct sqrl_pack_report *out) {
    struct sqrl_packer *p = (struct sqrl_packer *)fixed; /* for its mutex */
    sqrl_pack_pipe_report(&p->pipe, out);
}

/* --- opening and ending --- */
static void packer_free(struct sqrl_packer *p) {
    for (uint32_t i = 0; i < p->lanes; i++) {
        struct sqrl_pack_lane *lane = &p->lane[i];
        sqrl_pack_shard_free(lane->shard);
        sqrl_pack_job_free(lane->current);
        sqrl_group_reset(&lane->group);
        free(lane->met);
        free((void *)lane->settings.items);
    }
    free(p->lane);
    sqrl_pack_addition_free(p->add);
    sqrl_bytes_reset(&p->pieces);
    sqrl_pack_pipe_reset(&p->pipe);
    for (size_t i = 0; i < p->name_count; i++)
        free(p->names[i]);
    free(p->names);
    sqrl_bytes_reset(&p->spare);
    sqrl_pack_target_reset(&p->target);
    sqrl_context_unref(p->context);
    free(p);
}

void sqrl_pack_drop_name(struct sqrl_packer *p, size_t i) {
    char *path = sqrl_path_join(p->target.path, p->names[i], NULL);
    int rc = path ? sqrl_fs_remove(p->target.fs, path, NULL) : SQRL_E_NO_MEMORY;
    if (rc && rc != SQRL_E_NOT_FOUND)
        sqrl_log(p->context, SQRL_LOG_WARNING,
                 "%s/%s: belongs to no data set; it could not be removed", p->target.path,
                 p->names[i]);
    free(path);
    free(p->names[i]);
    memmove(p->names + i, p->names + i + 1, (p->name_count - i - 1) * sizeof *p->names);
    p->name_count--;
}

/* Removes the shards that were written under their final names, unless a later run goes
 * on behind them, and what else is new. */
static void take_back(struct sqrl_packer *p) {
    for (uint32_t i = 0; i < p->lanes; i++) {
        sqrl_pack_shard_free(p->lane[i].shard); /* with its temporary */
        p->lane[i].shard = NULL;
    }
    while (p->name_count && !p->resume)
        sqrl_pack_drop_name(p, p->name_count - 1);
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
    if (options->resume && (options->overwrite || options->append ||
                            options->group_count || !options->prefix))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "resume needs a prefix and goes with none of overwrite, "
                              "append and groups");
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
    return sqrl_pack_open(context, destination, options, out, err);
}

int sqrl_pack_open(struct sqrl_context *context, const char *destination,
                   const struct sqrl_pack_options *options, struct sqrl_packer **out,
                   struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_packer *p = sqrl_calloc(1, sizeof *p, "packer", err);
    if (!p)
        return SQRL_E_NO_MEMORY;
    p->lanes = (uint32_t)(options->group_count ? options->group_count + 1 : 1);
    p->lane = sqrl_calloc(p->lanes, sizeof *p->lane, "packer", err);
    if (!p->lane) {
        free(p);
        return SQRL_E_NO_MEMORY;
    }
    p->context = sqrl_context_ref(context);
    p->generation = sqrl_fork_generation();
    p->samples_per_shard =
        options->samples_per_shard ? options->samples_per_shard : UINT64_MAX;
    p->shard_bytes = options->shard_bytes ? options->shard_bytes : DEFAULT_SHARD_BYTES;
    p->block_bytes = options->block_bytes ? options->block_bytes : SQRL_BLOCK_BYTES;
    p->overwrite = options->overwrite;
    p->hold_commit = options->hold_commit;
    p->resume = options->resume;
    struct sqrl_pool *pool = sqrl_context_pool(context, err);
    sqrl_pack_pipe_init(&p->pipe, pool, &p->target, p->block_bytes);
    int rc = pool ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (!rc)
        rc = sqrl_pack_target_open(context, destination, options, &p->target, err);
    if (!rc && !p->target.directory && options->samples_per_shard)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "samples_per_shard needs a directory as destination");
    if (!rc && options->group_count)
        rc = sqrl_pack_groups_open(p, options, err);
    else if (!rc)
        rc = sqrl_settings_copy(&p->target.settings, &p->lane[0].settings, err);
    if (!rc && options->resume)
        rc = sqrl_pack_resume(p, err);
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
    if (p->add)
        return sqrl_pack_add_commit(p, err);
    sqrl_pack_drop_rest(p);
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
    struct sqrl_pack_lane *lane = &p->lane[0];
    bool nothing = p->shards == 0 && !p->open && !(lane->current && lane->current->count);
    bool owed = !p->target.directory || !p->hold_commit;
    return nothing && owed && !p->add ? shard_start(p, lane, err) : SQRL_OK;
}

int sqrl_packer_finish(struct sqrl_packer *p, struct sqrl_pack_report *report,
                       struct sqrl_error *err) {
    if (report)
        memset(report, 0, sizeof *report);
    int rc = sqrl_pack_check_state(p, err);
    if (rc) {
        sqrl_packer_abandon(p);
        return rc;
    }
    sqrl_packer_reject(p);
    if (p->add)
        rc = sqrl_pack_add_finish(p, err);
    else
        rc = sqrl_pack_check_names(p, err);
    if (!rc)
        rc = start_empty(p, err);
    if (!rc)
        rc = sqrl_pack_end_shard(p, err);
    if (rc) {
        sqrl_packer_abandon(p);
        return rc;
    }
    sqrl_pack_pipe_settle(&p->pipe);
    rc = sqrl_pack_check_state(p, err);
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
