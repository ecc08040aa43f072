/* access.c - samples by position.
 *
 * The wanted positions are sorted, so that every block is read once and neighbours in one
 * request. They are cut into slices of one shard each, which the caller and threads of
 * the pool work off. What is found in a block is copied out of it: a result holds its
 * samples and nothing else, and a call needs memory for its samples and one batch of
 * blocks a thread, however the positions are spread.
 *
 * A block that the kernel's page cache gives at the cost of a copy is not kept; others go
 * to the source's cache. */
#include <stdlib.h>

#include "driver/access.h"
#include "driver/driver.h"

#define LLU(x) ((unsigned long long)(x))

enum {
    SLICE = 128,             /* positions that are worth a thread */
    NEEDS = 1024,            /* blocks in one batch, at most */
    LOCAL_BATCH = 512 << 10, /* raw bytes of blocks in memory at a time: a core's cache */
    REMOTE_BATCH = 32 << 20, /* one round trip for many; of all threads together */
    CHEAP_BLOCK = 64 << 10
};

/* --- where samples lie --- */
void sqrl_access_init(struct sqrl_access *access, struct sqrl_context *context) {
    sqrl_lock_init(&access->lock);
    sqrl_block_cache_init(&access->cache, context);
}

void sqrl_access_reset(struct sqrl_access *access) {
    free(access->first);
    sqrl_block_cache_reset(&access->cache);
    sqrl_lock_reset(&access->lock);
}

static int shard_samples(struct sqrl_source *source, uint64_t shard, uint64_t *out,
                         struct sqrl_error *err) {
    *out = sqrl_source_shard(source, shard)->samples;
    if (*out != SQRL_UNKNOWN)
        return SQRL_OK;
    struct sqrl_shard_reader *reader = NULL;
    int rc = sqrl_shard_open(source, shard, &reader, err);
    if (rc)
        return rc;
    *out = sqrl_shard_reader_info(reader)->samples;
    sqrl_shard_reader_unref(reader);
    if (*out != SQRL_UNKNOWN)
        return SQRL_OK;
    sqrl_error_set(
        err, SQRL_E_UNSUPPORTED,
        "its samples are not counted, so none has a position: run "
        "`squirrel index` to count them, or convert the data to native shards");
    return sqrl_error_at(err, SQRL_E_UNSUPPORTED, "%s",
                         sqrl_source_shard(source, shard)->path);
}

/* [shards + 1]; belongs to the source. */
static int positions(struct sqrl_source *source, const uint64_t **out,
                     struct sqrl_error *err) {
    struct sqrl_access *access = sqrl_source_access(source);
    *out = __atomic_load_n(&access->first, __ATOMIC_ACQUIRE);
    if (*out)
        return SQRL_OK;
    uint64_t shards = sqrl_source_shards(source);
    uint64_t *first = sqrl_calloc(shards + 1, sizeof *first, "positions", err);
    int rc = first ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (uint64_t i = 0; rc == SQRL_OK && i < shards; i++) {
        uint64_t samples;
        if (i == 0 && sqrl_source_shard(source, i)->samples == SQRL_UNKNOWN)
            sqrl_source_open_ahead(source, 0, shards);
        rc = shard_samples(source, i, &samples, err);
        if (rc == SQRL_OK && __builtin_add_overflow(first[i], samples, &first[i + 1]))
            rc = sqrl_error_set(err, SQRL_E_LIMIT, "the shards claim 2^64 samples");
    }
    if (rc) {
        free(first);
        return rc;
    }
    sqrl_lock_take(&access->lock); /* two may have counted at once */
    if (access->first)
        free(first);
    else
        __atomic_store_n(&access->first, first, __ATOMIC_RELEASE);
    sqrl_lock_drop(&access->lock);
    *out = access->first;
    return SQRL_OK;
}

static int out_of_range(struct sqrl_source *source, uint64_t index, uint64_t samples,
                        struct sqrl_error *err) {
    if (samples)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "there is no sample %llu: %s has %llu, numbered 0 to %llu",
                              LLU(index), sqrl_source_url(source), LLU(samples),
                              LLU(samples - 1));
    return sqrl_error_set(err, SQRL_E_INVALID, "there is no sample %llu: %s has none",
                          LLU(index), sqrl_source_url(source));
}

/* The last shard from `from` on that begins at or before `index`: the one that holds it,
 * since empty shards begin where their successors do. */
static uint64_t shard_of(const uint64_t *first, uint64_t from, uint64_t shards,
                         uint64_t index) {
    uint64_t low = from, high = shards;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        *(first[middle] <= index ? &low : &high) = middle;
    }
    return low;
}

int sqrl_source_locate(struct sqrl_source *source, uint64_t index, uint64_t *shard,
                       uint64_t *row, struct sqrl_error *err) {
    const uint64_t *first;
    uint64_t shards = sqrl_source_shards(source);
    *shard = *row = 0;
    int rc = positions(source, &first, err);
    if (rc)
        return rc;
    if (index >= first[shards])
        return out_of_range(source, index, first[shards], err);
    *shard = shard_of(first, 0, shards, index);
    *row = sqrl_source_row(source, *shard, index - first[*shard]);
    return SQRL_OK;
}

int sqrl_source_position(struct sqrl_source *source, uint64_t shard, uint64_t row,
                         uint64_t *index, struct sqrl_error *err) {
    const uint64_t *first;
    *index = 0;
    int rc = positions(source, &first, err);
    if (rc)
        return rc;
    if (shard >= sqrl_source_shards(source) ||
        !sqrl_source_row_find(source, shard, row, &row) ||
        row >= first[shard + 1] - first[shard])
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "there is no sample %llu in shard %llu", LLU(row),
                              LLU(shard));
    *index = first[shard] + row;
    return SQRL_OK;
}

/* --- one call --- */
struct want {
    uint64_t index;
    size_t slot; /* in the result */
};

struct slice {
    uint64_t shard;
    size_t from, to; /* wants */
};

struct worker {
    struct sqrl_task task;
    struct call *call;
    struct sqrl_block *part; /* of the result; NULL until something is in it */
};

struct call {
    int refs; /* the caller's, and each worker's that was not entered yet */
    struct sqrl_source *source; /* borrowed: while slices are left, the caller waits */
    const struct sqrl_cancel *cancel;
    const uint64_t *first;
    struct want *want;
    struct sqrl_sample *sample;
    struct slice *slice;
    size_t slices, cursor;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t finished;
    size_t done, failed; /* the first slice that failed; SIZE_MAX: none */
    int code;
    struct sqrl_error error;
    unsigned workers;
    struct worker worker[];
};

static void call_unref(struct call *call) {
    if (__atomic_sub_fetch(&call->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    pthread_cond_destroy(&call->finished);
    pthread_mutex_destroy(&call->mutex);
    free(call->want);
    free(call->slice);
    free(call);
}

/* The block that holds row `row`, which is not before block `from`; *info describes it.
 * Blocks hold about as many samples each: guessed by proportion, halved where that does
 * not lead on. */
static uint64_t block_of(const struct sqrl_shard_reader *reader, uint64_t from,
                         uint64_t row, struct sqrl_block_info *info) {
    const struct sqrl_shard_info *shard = sqrl_shard_reader_info(reader);
    uint64_t low = from, high = shard->blocks;
    sqrl_shard_reader_block_info(reader, from, info);
    uint64_t low_row = info->first, high_row = shard->samples;
    for (unsigned turn = 0;; turn++) {
        uint64_t at = low + (high - low) / 2;
        if (turn < 6 && high_row > low_row)
            at = low + (uint64_t)((double)(row - low_row) / (double)(high_row - low_row) *
                                  (double)(high - low));
        at = SQRL_MIN(at, high - 1);
        sqrl_shard_reader_block_info(reader, at, info);
        if (row < info->first) {
            high = at;
            high_row = info->first;
        } else if (row - info->first >= info->samples && at + 1 < high) {
            low = at + 1;
            low_row = info->first + info->samples;
        } else {
            return at;
        }
    }
}

/* Copies the samples of want[from, to) out of their block. */
static int take_samples(struct worker *worker, const struct sqrl_block *block,
                        uint64_t base, size_t from, size_t to, struct sqrl_error *err) {
    struct call *call = worker->call;
    struct sqrl_context *context = sqrl_source_context(call->source);
    int rc = worker->part ? SQRL_OK : sqrl_block_new(context, &worker->part, err);
    for (size_t i = from; rc == SQRL_OK && i < to; i++) {
        uint32_t row = (uint32_t)(call->want[i].index - base - block->first);
        call->sample[call->want[i].slot] =
            (struct sqrl_sample){worker->part, worker->part->count};
        rc = sqrl_block_append_sample(worker->part, block, row, err);
    }
    return rc;
}

/* Blocks of one shard that must be read, and whose wants end where. */
struct batch {
    size_t count;
    uint64_t bytes;
    uint64_t block[NEEDS];
    size_t from[NEEDS], to[NEEDS];
    bool keep[NEEDS];
    struct sqrl_block *loaded[NEEDS];
};

static int batch_run(struct worker *worker, struct sqrl_shard_reader *reader,
                     struct batch *batch, uint64_t base, struct sqrl_error *err) {
    struct call *call = worker->call;
    size_t loaded = 0;
    int taken = SQRL_OK;
    int rc = sqrl_shard_reader_load_many(reader, batch->block, batch->count, call->cancel,
                                         batch->loaded, &loaded, err);
    for (size_t i = 0; i < loaded; i++) {
        struct sqrl_block *block = batch->loaded[i];
        if (rc == SQRL_OK && taken == SQRL_OK)
            taken = take_samples(worker, block, base, batch->from[i], batch->to[i], err);
        if (batch->keep[i])
            sqrl_block_cache_put(&sqrl_source_access(call->source)->cache, block);
        sqrl_block_unref(block);
    }
    batch->count = 0;
    batch->bytes = 0;
    return rc ? rc : taken;
}

static int not_indexed(const struct call *call, uint64_t shard, struct sqrl_error *err) {
    const struct sqrl_shard *item = sqrl_source_shard(call->source, shard);
    sqrl_error_set(
        err, SQRL_E_UNSUPPORTED,
        "a file of format %s that is compressed as a whole is read from its "
        "beginning only: run `squirrel index` to index it, or convert the data "
        "to native shards",
        item->format->name);
    return sqrl_error_at(err, SQRL_E_UNSUPPORTED, "%s", item->path);
}

static int slice_read(struct worker *worker, const struct slice *slice,
                      struct sqrl_shard_reader *reader, struct batch *batch,
                      struct sqrl_error *err) {
    struct call *call = worker->call;
    struct sqrl_access *access = sqrl_source_access(call->source);
    bool local = sqrl_source_local(call->source);
    size_t at_once = SQRL_MIN((size_t)SQRL_MIN(call->workers, 16u), call->slices);
    uint64_t most = local ? LOCAL_BATCH : REMOTE_BATCH / at_once;
    uint64_t base = call->first[slice->shard], block = 0;
    batch->count = 0;
    batch->bytes = 0;
    int rc = SQRL_OK;
    for (size_t i = slice->from, end; rc == SQRL_OK && i < slice->to; i = end) {
        struct sqrl_block_info info;
        block = block_of(reader, block, call->want[i].index - base, &info);
        uint64_t last = base + info.first + info.samples;
        for (end = i + 1; end < slice->to && call->want[end].index < last; end++)
            continue;
        bool cheap =
            local && info.stored_bytes >= info.raw_bytes && info.raw_bytes <= CHEAP_BLOCK;
        struct sqrl_block *there =
            cheap ? NULL : sqrl_block_cache_get(&access->cache, slice->shard, block);
        if (there) {
            rc = take_samples(worker, there, base, i, end, err);
            sqrl_block_unref(there);
            continue;
        }
        uint64_t cost = sqrl_shard_reader_block_cost(reader, &info);
        if (batch->count && (batch->count == NEEDS || batch->bytes + cost > most))
            rc = batch_run(worker, reader, batch, base, err);
        size_t n = batch->count++;
        batch->block[n] = block;
        batch->from[n] = i;
        batch->to[n] = end;
        batch->keep[n] = !cheap;
        batch->bytes += cost;
    }
    if (rc == SQRL_OK && batch->count)
        rc = batch_run(worker, reader, batch, base, err);
    return rc;
}

static int slice_run(struct worker *worker, const struct slice *slice,
                     struct batch *batch, struct sqrl_error *err) {
    struct call *call = worker->call;
    struct sqrl_shard_reader *reader = NULL;
    int rc = sqrl_shard_open(call->source, slice->shard, &reader, err);
    if (rc)
        return rc;
    const struct sqrl_shard_info *info = sqrl_shard_reader_info(reader);
    uint64_t count = call->first[slice->shard + 1] - call->first[slice->shard];
    if (!sqrl_shard_reader_indexed(reader))
        rc = not_indexed(call, slice->shard, err);
    else if (info->samples != count || !info->blocks)
        rc =
            sqrl_error_at(err,
                          sqrl_error_set(err, SQRL_E_CORRUPT,
                                         "the shard changed since the source was opened: "
                                         "open it again"),
                          "%s", sqrl_source_shard(call->source, slice->shard)->path);
    else
        rc = slice_read(worker, slice, reader, batch, err);
    sqrl_shard_reader_unref(reader);
    return rc;
}

static void call_done(struct call *call, size_t slice, int rc,
                      const struct sqrl_error *error) {
    pthread_mutex_lock(&call->mutex);
    if (rc && slice < call->failed) {
        __atomic_store_n(&call->failed, slice, __ATOMIC_RELAXED); /* work() looks at it */
        call->code = rc;
        call->error = *error;
    }
    if (++call->done == call->slices)
        pthread_cond_signal(&call->finished);
    pthread_mutex_unlock(&call->mutex);
}

/* Works off slices until there are none. What lies behind a failure is left out. */
static void work(struct worker *worker) {
    struct call *call = worker->call;
    struct batch *batch = NULL;
    for (;;) {
        size_t i = __atomic_fetch_add(&call->cursor, 1, __ATOMIC_RELAXED);
        if (i >= call->slices)
            break;
        struct sqrl_error error;
        sqrl_error_clear(&error);
        int rc = SQRL_OK;
        if (!batch)
            batch = sqrl_malloc(sizeof *batch, "blocks to read", &error);
        if (!batch)
            rc = SQRL_E_NO_MEMORY;
        else if (i < __atomic_load_n(&call->failed, __ATOMIC_RELAXED))
            rc = slice_run(worker, &call->slice[i], batch, &error);
        call_done(call, i, rc, &error);
    }
    free(batch);
}

static void worker_run(struct sqrl_task *task) {
    struct worker *worker = (struct worker *)task; /* its first member */
    work(worker);
    call_unref(worker->call);
}

static int by_index(const void *a, const void *b) {
    const struct want *x = a, *y = b;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* Sorts what is wanted. */
static int list_wants(struct call *call, const uint64_t *indices, size_t count,
                      struct sqrl_error *err) {
    uint64_t samples = call->first[sqrl_source_shards(call->source)];
    bool sorted = true;
    call->want = sqrl_calloc(count, sizeof *call->want, "positions", err);
    if (!call->want)
        return SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (indices[i] >= samples)
            return out_of_range(call->source, indices[i], samples, err);
        call->want[i] = (struct want){indices[i], i};
        sorted = sorted && (i == 0 || indices[i - 1] <= indices[i]);
    }
    if (!sorted)
        qsort(call->want, count, sizeof *call->want, by_index);
    return SQRL_OK;
}

/* Runs of wants in one shard, cut further where several threads can share them. */
static int cut_slices(struct call *call, size_t count, unsigned threads,
                      struct sqrl_error *err) {
    uint64_t shards = sqrl_source_shards(call->source), shard = 0;
    size_t most = SIZE_MAX, room = 16;
    if (sqrl_source_local(call->source) && threads > 1)
        most = SQRL_MAX((size_t)SLICE, count / (4 * (size_t)threads));
    call->slice = sqrl_malloc(room * sizeof *call->slice, "slices", err);
    for (size_t i = 0, end; call->slice && i < count; i = end) {
        shard = shard_of(call->first, shard, shards, call->want[i].index);
        uint64_t last = call->first[shard + 1];
        for (end = i + 1; end < count && end - i < most && call->want[end].index < last;
             end++)
            continue;
        if (call->slices == room) {
            room *= 2;
            struct slice *grown =
                sqrl_realloc(call->slice, room * sizeof *grown, "slices", err);
            if (!grown)
                return SQRL_E_NO_MEMORY;
            call->slice = grown;
        }
        call->slice[call->slices++] = (struct slice){shard, i, end};
    }
    return call->slice ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* --- the result --- */
struct samples {
    struct sqrl_samples head; /* first: what the user sees */
    unsigned parts;
    struct sqrl_block **part;
    struct sqrl_sample sample[];
};

void sqrl_samples_release(struct sqrl_samples *handle) {
    struct samples *samples = (struct samples *)handle;
    if (!samples)
        return;
    for (unsigned i = 0; i < samples->parts; i++)
        sqrl_block_unref(samples->part[i]);
    free(samples->part);
    free(samples);
}

static struct samples *samples_new(size_t count, unsigned parts, struct sqrl_error *err) {
    size_t bytes;
    if (sqrl_mul_overflow(count, sizeof(struct sqrl_sample), &bytes) ||
        sqrl_add_overflow(bytes, sizeof(struct samples), &bytes)) {
        sqrl_error_set(err, SQRL_E_LIMIT, "%zu samples are too many for one call", count);
        return NULL;
    }
    struct samples *samples = sqrl_calloc(1, bytes, "samples", err);
    if (!samples)
        return NULL;
    samples->part = sqrl_calloc(parts, sizeof *samples->part, "samples", err);
    if (!samples->part) {
        free(samples);
        return NULL;
    }
    samples->parts = parts;
    samples->head.count = count;
    samples->head.samples = samples->sample;
    return samples;
}

static struct call *call_new(struct sqrl_source *source, unsigned workers,
                             struct sqrl_error *err) {
    struct call *call =
        sqrl_calloc(1, sizeof *call + workers * sizeof call->worker[0], "a call", err);
    if (!call)
        return NULL;
    call->refs = 1;
    call->source = source;
    call->failed = SIZE_MAX;
    call->workers = workers;
    pthread_mutex_init(&call->mutex, NULL);
    pthread_cond_init(&call->finished, NULL);
    for (unsigned i = 0; i < workers; i++) {
        call->worker[i].task.run = worker_run;
        call->worker[i].call = call;
    }
    return call;
}

/* The caller is worker 0; the others come from the pool, and are not waited for unless
 * they have taken a slice. */
static int call_run(struct call *call, struct sqrl_pool *pool, struct samples *samples,
                    struct sqrl_error *err) {
    unsigned helpers = (unsigned)SQRL_MIN((size_t)call->workers, call->slices) - 1;
    for (unsigned i = 1; i <= helpers; i++) {
        __atomic_fetch_add(&call->refs, 1, __ATOMIC_RELAXED);
        sqrl_pool_submit(pool, &call->worker[i].task);
    }
    work(&call->worker[0]);
    pthread_mutex_lock(&call->mutex);
    while (call->done < call->slices)
        pthread_cond_wait(&call->finished, &call->mutex);
    pthread_mutex_unlock(&call->mutex);
    for (unsigned i = 0; i < call->workers; i++)
        samples->part[i] = call->worker[i].part;
    if (call->code && err)
        *err = call->error;
    return call->code;
}

int sqrl_source_get_many(struct sqrl_source *source, const uint64_t *indices,
                         size_t count, const struct sqrl_cancel *cancel,
                         struct sqrl_samples **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_context *context = sqrl_source_context(source);
    struct sqrl_pool *pool = NULL;
    bool local = sqrl_source_local(source);
    if (count > (local ? SLICE : 1)) {
        pool =
            local ? sqrl_context_pool(context, err) : sqrl_context_io_pool(context, err);
        if (!pool)
            return SQRL_E_NO_MEMORY;
    }
    unsigned threads = pool ? SQRL_MAX(sqrl_pool_threads(pool), 1u) : 1;
    struct call *call = call_new(source, threads, err);
    struct samples *samples = call ? samples_new(count, threads, err) : NULL;
    int rc = samples ? SQRL_OK : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK && count) {
        call->cancel = cancel;
        call->sample = samples->sample;
        rc = positions(source, &call->first, err);
        if (rc == SQRL_OK)
            rc = list_wants(call, indices, count, err);
        if (rc == SQRL_OK)
            rc = cut_slices(call, count, threads, err);
        if (rc == SQRL_OK)
            rc = call_run(call, pool, samples, err);
    }
    if (call)
        call_unref(call);
    if (rc) {
        if (samples)
            sqrl_samples_release(&samples->head);
        return rc;
    }
    *out = &samples->head;
    return SQRL_OK;
}
