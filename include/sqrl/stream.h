/* sqrl/stream.h - plans and iterators: filter, select, shuffle, batch, take, prefetch.
 *
 * A plan is an immutable tree of stages over a source: each function makes a new plan on
 * top of an older one and leaves that as it was. Nothing is read before an iterator runs
 * it. Results do not depend on the number of threads: the same plan gives the same
 * samples in the same order.
 *
 *     source -> filter, select, rename, drop -> shuffle_all -> take, skip -> batch
 *
 * Threads: plans are free for all; an iterator belongs to one thread at a time, except
 * sqrl_iterator_cancel. After a fork plans live on; a running iterator gives
 * SQRL_E_STATE.
 */
#ifndef SQRL_STREAM_H
#define SQRL_STREAM_H

#include "batch.h"
#include "source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqrl_plan;
struct sqrl_iterator;

/* The samples for which an expression (see sqrl_plan_filter) holds, as a source: counted,
 * with positions, in the same order. Only index columns are read: each field that it
 * names must be one (the pack option "index"), else SQRL_E_NOT_FOUND. Of a subset: those
 * of its samples for which it holds, too. */
SQRL_CHECK int sqrl_source_where(struct sqrl_source *source, const char *expression,
                                 struct sqrl_source **out, struct sqrl_error *err);
/* A part of the samples by numbers of their own: those whose hash of the seed, their
 * shard's name and their number in it, from 0 to 1, is in [from, to), or all others. A
 * sample stays in its part when shards are appended. SQRL_E_UNSUPPORTED where samples are
 * not counted. 12 bytes a sample of the part while it is made, 4 then.
 */
SQRL_CHECK int sqrl_source_part(struct sqrl_source *source, uint64_t seed, double from,
                                double to, bool others, struct sqrl_source **out,
                                struct sqrl_error *err);

/* Every plan function takes a reference to `plan` of its own. */
SQRL_CHECK int sqrl_plan_source(struct sqrl_source *source, struct sqrl_plan **out,
                                struct sqrl_error *err);
SQRL_API struct sqrl_plan *sqrl_plan_ref(struct sqrl_plan *plan);
SQRL_API void sqrl_plan_unref(struct sqrl_plan *plan);

/* Keeps samples for which `expression` holds:
 *     label == 3 and (score < 0.5 or not flagged)      meta.site in ["a", "b"]
 *     path contains "/api/"   path startswith "/"   path endswith ".png"   note is null
 *     patient fold [7, 0.0, 0.8]       without a fifth of all patients, by hash, seed 7
 *
 * Literals: integers, floats, "..." or '...', true, false, null. A comparison with a
 * missing or null field is false (`is null` is true); numbers compare by value; comparing
 * a string with a number is false for == and an error that names the sample for <.
 * A field that no sample has is a misspelt one: SQRL_E_NOT_FOUND from sqrl_iterator_open
 * where the source knows its fields (native shards; without batch or shuffle_all only up
 * to 256 of them), or where a stage in front removes it; a warning in the log at the end
 * of the stream elsewhere. An expression that tests the field for null says that it may
 * be missing: "flagged is not null and flagged" is never an error. */
SQRL_CHECK int sqrl_plan_filter(struct sqrl_plan *plan, const char *expression,
                                struct sqrl_plan **out, struct sqrl_error *err);
/* Keeps only, or removes, fields; dotted names reach into maps. A selected field that a
 * sample lacks is left out of it; one that no sample has is SQRL_E_NOT_FOUND when the
 * plan is run, where that is known without reading (native shards with commits). Where a
 * name reaches into a map, the map comes apart: its fields go on one by one under their
 * dotted names. */
SQRL_CHECK int sqrl_plan_select(struct sqrl_plan *plan, const char *const *names,
                                size_t count, struct sqrl_plan **out,
                                struct sqrl_error *err);
SQRL_CHECK int sqrl_plan_drop(struct sqrl_plan *plan, const char *const *names,
                              size_t count, struct sqrl_plan **out,
                              struct sqrl_error *err);
SQRL_CHECK int sqrl_plan_rename(struct sqrl_plan *plan, const char *const *from,
                                const char *const *to, size_t count,
                                struct sqrl_plan **out, struct sqrl_error *err);
/* window_bytes of sqrl_plan_shuffle_all: single samples are permuted. */
#define SQRL_SINGLE_SAMPLES UINT64_MAX
/* Random order of all samples: chunks (runs of blocks) are permuted, and samples within
 * windows of about sixteen chunks, window_bytes in memory together (0: 64 MiB). A running
 * shuffle holds about two windows (of more than 64 MiB from local files one and a half):
 * one is handed out while the next is read; the context's memory budget grows by what it
 * lacks for that. A compressed file that is only read from its beginning is one chunk:
 * many small ones shuffle better. With SQRL_SINGLE_SAMPLES any sample may come next: each
 * is read for itself with the block it is in, which is slow but needs no window; the
 * samples of all shards must be counted (SQRL_E_UNSUPPORTED when the iterator is opened).
 * Another epoch (sqrl_iterator_options) gives another order of the same seed.
 * Must stand before take, skip and batch. */
SQRL_CHECK int sqrl_plan_shuffle_all(struct sqrl_plan *plan, uint64_t seed,
                                     uint64_t window_bytes, struct sqrl_plan **out,
                                     struct sqrl_error *err);
/* Who runs an iterator: one of world_size ranks, and there one of `workers`. All 0: found
 * when it is needed, from RANK and WORLD_SIZE, from SLURM's or OMPI's variables, else one
 * rank; one worker. */
struct sqrl_topology {
    uint64_t rank, world_size, worker, workers;
};

enum sqrl_tail {
    SQRL_TAIL_PAD,   /* equal numbers: some get one of their samples twice */
    SQRL_TAIL_DROP,  /* equal numbers: less than one sample a consumer is left out */
    SQRL_TAIL_UNEVEN /* each sample once: numbers differ by one at most */
};

/* Zero means the default. Set `size` to sizeof(struct sqrl_distribute_options). */
struct sqrl_distribute_options {
    size_t size;
    struct sqrl_topology topology;
    enum sqrl_tail tail;
    /* Not 0: each consumer gives exactly so many items (behind batch: batches), beginning
     * its samples anew where they do not suffice. For plans with filters, whose counts
     * nobody knows; replaces `tail`. */
    uint64_t steps;
    /* The order that so many consumers would have: then any number that divides
     * lcm(like, 48) gives the same global batches. 0: as many as there are. */
    uint64_t like;
    /* Not NULL: consumer owner[s] gets shard s (copied), instead of an equal part. With
     * SQRL_TAIL_PAD all then give as many as the one that has most, with SQRL_TAIL_DROP
     * as the one that has least. Each of the source's shards needs an owner. Such a run
     * goes on with the numbers of ranks and workers it had. */
    const uint32_t *owner;
    uint64_t owners;
};
/* Deals the samples among ranks and workers, on counts alone, before anything is read:
 * each sample to one of them (see sqrl_tail), and each reads its own part only. Sample
 * number p of the order goes to consumer p mod C of the C = world_size * workers
 * consumers; consumer = worker * world_size + rank. Must stand before take, skip and
 * batch, which count per consumer. The samples of all shards must be counted (native
 * shards, IDX): else SQRL_E_UNSUPPORTED when the iterator is opened.
 * Without shuffle_all the samples of each window of 64 MiB a consumer are dealt in turn.
 */
SQRL_CHECK int sqrl_plan_distribute(struct sqrl_plan *plan,
                                    const struct sqrl_distribute_options *options,
                                    struct sqrl_plan **out, struct sqrl_error *err);
/* Fills in what is 0. SQRL_E_INVALID for values that can't be, here or in the
 * environment; the error names them. */
SQRL_CHECK int sqrl_topology_find(struct sqrl_topology *topology, struct sqrl_error *err);

/* The first n samples (behind batch: batches), or all but the first n. */
SQRL_CHECK int sqrl_plan_take(struct sqrl_plan *plan, uint64_t n, struct sqrl_plan **out,
                              struct sqrl_error *err);
SQRL_CHECK int sqrl_plan_skip(struct sqrl_plan *plan, uint64_t n, struct sqrl_plan **out,
                              struct sqrl_error *err);
enum sqrl_on_error {
    SQRL_ON_ERROR_RAISE,
    SQRL_ON_ERROR_SKIP,
    SQRL_ON_ERROR_SUBSTITUTE,
    SQRL_ON_ERROR_ASK
};

/* A bad sample, or the samples of a bad block, that on_error let pass. */
struct sqrl_bad {
    uint64_t shard;  /* index within the source */
    uint64_t block;  /* within the shard; SQRL_UNKNOWN: of the shard, or the rest of it */
    uint64_t sample; /* within the shard; SQRL_UNKNOWN: all of the block */
    uint64_t samples; /* how many were left out or replaced; SQRL_UNKNOWN: not known */
    struct sqrl_error error;
};

/* Zero means the default. Set `size` to sizeof(struct sqrl_on_error_options). */
struct sqrl_on_error_options {
    size_t size;
    enum sqrl_on_error policy;
    uint64_t retries; /* a block that can't be read is read so many times more first */
    /* So many failures in a row (0: 100), or in one run (0: 10,000; UINT64_MAX: no
     * limit), are one too many: the last one's error ends the stream. */
    uint64_t consecutive, total;
    /* With SQRL_ON_ERROR_ASK: what is to become of this one, RAISE, SKIP or SUBSTITUTE.
     * RAISE ends the stream with *err, which holds bad->error and may be changed. Called
     * on threads of the library, one at a time for each iterator, in the order of the
     * stream, ahead of the consumer. */
    enum sqrl_on_error (*ask)(void *arg, const struct sqrl_bad *bad,
                              struct sqrl_error *err);
    void *arg;
    void (*release)(void *arg); /* or NULL: when the plan and its iterators are gone, and
                                   on failure here; any thread */
};
/* What becomes of bad samples, wherever the stage stands: the data of a block can't be
 * read, or a sample does not fit a filter or a column. SKIP leaves them out; SUBSTITUTE
 * gives the last good sample again in their place (before the first good one: that), so
 * that numbers stay what they were, on every rank. A bad block of an indexed shard is one
 * failure with all its samples, and so is a shard that can't be opened, where it is known
 * how many samples it holds (native shards with commits, indexes beside the files); of a
 * shard that is only read from the front all that comes behind the damage is left out
 * under both. Errors of the program, of memory, or of the columns as a whole are raised.
 * Must stand before batch. */
SQRL_CHECK int sqrl_plan_on_error(struct sqrl_plan *plan,
                                  const struct sqrl_on_error_options *options,
                                  struct sqrl_plan **out, struct sqrl_error *err);

/* How far reading may run ahead of the consumer, in bytes of memory; 0: the whole budget.
 */
SQRL_CHECK int sqrl_plan_prefetch(struct sqrl_plan *plan, uint64_t bytes,
                                  struct sqrl_plan **out, struct sqrl_error *err);

enum sqrl_ragged { SQRL_RAGGED_OFFSETS, SQRL_RAGGED_PAD, SQRL_RAGGED_ERROR };

/* Zero means the default. Set `size` to sizeof(struct sqrl_batch_options). Exactly one of
 * batch_size, max_tokens and max_bytes is given; with length buckets batch_size counts
 * rows. */
struct sqrl_batch_options {
    size_t size;
    uint64_t batch_size;
    bool drop_remainder;     /* leave the last, smaller batch (of each bucket) out */
    enum sqrl_ragged ragged; /* RAGGED numeric fields; strings always have offsets */
    double pad_value;
    /* Batches of similar length: a sample whose length_field has length l goes to bucket
     * k with boundary[k-1] <= l < boundary[k] (ascending). The length is the first
     * dimension of an array, list or string (bytes), or the value of an integer field. */
    const char *length_field;
    const uint64_t *boundary;
    size_t boundaries;
    /* Budgets: a batch is closed before rows x longest length (max_tokens, needs
     * length_field) or the sum of the samples' data (max_bytes) would exceed it. One
     * sample that alone exceeds it makes a batch of its own. */
    uint64_t max_tokens;
    uint64_t max_bytes;
    /* Columns declared by the user: name and type as sqrl_field_parse reads them
     * ("float32", "int64?", "uint8[~,~,3]"). They win over what is inferred from the
     * first block. */
    const struct sqrl_setting *fields;
    size_t field_count;
};

/* Turns samples into batches of columns. The columns are fixed before the first batch:
 * from the source's schema where it is known, else from the first block read. A value
 * that does not fit is SQRL_E_TYPE and names both samples and what to declare; so is a
 * field that appears only later: nothing is lost silently. Missing and null values are no
 * clash, unless a declared type says so (by having no "?"). When an error ends the
 * stream, what was collected for the broken-off batches is given before it, unless
 * drop_remainder is set. */
SQRL_CHECK int sqrl_plan_batch(struct sqrl_plan *plan,
                               const struct sqrl_batch_options *options,
                               struct sqrl_plan **out, struct sqrl_error *err);

SQRL_API struct sqrl_source *sqrl_plan_get_source(const struct sqrl_plan *plan);
/* True while sample i of the plan is sample i of its source: no stage but select, drop,
 * rename and prefetch. Then sqrl_plan_get_many and sqrl_projection_apply give samples of
 * the plan by position. */
SQRL_API bool sqrl_plan_keeps_positions(const struct sqrl_plan *plan);
/* sqrl_source_get_many of the plan's source; where that keeps its fields in groups, of
 * those only that the plan needs. SQRL_E_INVALID where the plan does not keep positions,
 * SQRL_E_NOT_FOUND for a select of a field that no sample has. */
SQRL_CHECK int sqrl_plan_get_many(struct sqrl_plan *plan, const uint64_t *indices,
                                  size_t count, const struct sqrl_cancel *cancel,
                                  struct sqrl_samples **out, struct sqrl_error *err);
SQRL_API bool sqrl_plan_is_batched(const struct sqrl_plan *plan);
/* Samples (or batches) an iterator will give, or SQRL_UNKNOWN before a filter has run.
 * Behind distribute: of this rank and worker. */
SQRL_CHECK int sqrl_plan_count(struct sqrl_plan *plan, uint64_t *out,
                               struct sqrl_error *err);
/* "source('data/train') -> filter('label == 3') -> batch(256)"; free() it. NULL: no
 * memory. */
SQRL_API char *sqrl_plan_describe(const struct sqrl_plan *plan);

/* What became of the names: output fields of a sample under select, drop and rename. */
struct sqrl_projection;
struct sqrl_field_ref {
    const char *name; /* not NUL-ended; lives as long as the block and the plan */
    uint32_t name_size;
    uint32_t node;
};
/* NULL when samples pass unchanged. */
SQRL_API const struct sqrl_projection *sqrl_plan_projection(const struct sqrl_plan *plan);
/* Lists the output fields of a sample, in order; writes at most `capacity` and returns
 * how many there are (0 for a sample that is not a map). */
SQRL_API size_t sqrl_projection_apply(const struct sqrl_projection *projection,
                                      const struct sqrl_block *block, uint32_t index,
                                      struct sqrl_field_ref *out, size_t capacity);

/* A run of consecutive samples of the stream, ready to be read. Holds its blocks. */
struct sqrl_run {
    uint32_t count;
    const struct sqrl_sample *samples; /* [count] */
    uint64_t first;                    /* position of samples[0] in the stream */
};

/* Starts a plan. Threads begin to read at the first next. */
SQRL_CHECK int sqrl_iterator_open(struct sqrl_plan *plan, struct sqrl_iterator **out,
                                  struct sqrl_error *err);
/* Whether another pass of the plan comes when this one ends, so that reads of far away
 * data can begin before: GUESS after two passes in a row; NONE: nothing is read in vain;
 * NEXT: the pass of epoch `next_epoch`. Where a NEXT does not come true once, the plan's
 * later ones are guesses. */
enum sqrl_follow { SQRL_FOLLOW_GUESS, SQRL_FOLLOW_NONE, SQRL_FOLLOW_NEXT };

/* Zero means the default; `size` is sizeof(struct sqrl_iterator_options). */
struct sqrl_iterator_options {
    size_t size;
    uint64_t epoch; /* of shuffle_all: another one, another order */
    /* Goes on where sqrl_iterator_state stood, in the state's epoch: `states` texts. One
     * is enough where rank and worker are what they were. With other numbers of ranks and
     * workers the states of all of them are needed, in any order; what they have left is
     * dealt anew. */
    const char *const *state;
    size_t states;
    enum sqrl_follow follow;
    uint64_t next_epoch;
};
SQRL_CHECK int sqrl_iterator_start(struct sqrl_plan *plan,
                                   const struct sqrl_iterator_options *options,
                                   struct sqrl_iterator **out, struct sqrl_error *err);
/* Where the iterator stands, between two samples, as one JSON object: free() it.
 * `unread`: samples of the run handed out last that the caller did not use; with batches
 * 0, or 1 when it did not use the last one. It fits every plan that gives the same
 * samples on any number of threads, with batches of any size, and data to which shards
 * were appended since (the epoch ends without them). With length buckets it says
 * which samples wait in them. A state of another plan (the first stage that differs is
 * named) or of replaced data is SQRL_E_STATE when it is loaded, a damaged one
 * SQRL_E_CORRUPT. */
SQRL_CHECK int sqrl_iterator_state(struct sqrl_iterator *iterator, uint64_t unread,
                                   char **out, struct sqrl_error *err);
/* The same between two rows of the batch that was handed out last: behind its first
 * `rows`. Such a state too fits batches of any size. SQRL_E_UNSUPPORTED with length
 * buckets, SQRL_E_INVALID when no batch of so many rows was handed out. */
SQRL_CHECK int sqrl_iterator_state_in_batch(struct sqrl_iterator *iterator, uint64_t rows,
                                            char **out, struct sqrl_error *err);
/* A number for the random choices made for one sample (augmentations), the same on every
 * rank, worker and thread, wherever the data lie: of the seed, the epoch, the last name
 * in `shard` (a path), the sample's number within the shard, and which result of that
 * sample it is for (0, 1, ...). Never changes from release to release. */
SQRL_API uint64_t sqrl_sample_seed(uint64_t seed, uint64_t epoch, const char *shard,
                                   uint64_t sample, uint64_t repeat);
/* The next run of samples; *out is NULL at the end. A run is the caller's until
 * sqrl_run_release. Errors take their place in the sequence: what was good before comes
 * first. After an error or the end every further call repeats it. */
SQRL_CHECK int sqrl_iterator_next_run(struct sqrl_iterator *iterator,
                                      struct sqrl_run **out, struct sqrl_error *err);
SQRL_API void sqrl_run_release(struct sqrl_run *run);
/* The next batch of a batched plan; *out is NULL at the end. One reference is the
 * caller's. */
SQRL_CHECK int sqrl_iterator_next_batch(struct sqrl_iterator *iterator,
                                        struct sqrl_batch **out, struct sqrl_error *err);
/* Any thread: a next() that waits returns SQRL_E_CANCELLED at once, work under way stops
 * at its next step. */
SQRL_API void sqrl_iterator_cancel(struct sqrl_iterator *iterator);
/* Waits at most `wait_ns` for data, for callers that must look at signals between:
 * returns true when next() will not block. */
SQRL_API bool sqrl_iterator_wait(struct sqrl_iterator *iterator, uint64_t wait_ns);
/* Ends the run: cancels, lets go of blocks and slots. Does not wait for threads that are
 * in the middle of a step; they clean up behind themselves. Runs and batches that were
 * handed out stay valid. NULL is allowed. */
SQRL_API void sqrl_iterator_close(struct sqrl_iterator *iterator);

/* What a run of a plan reads, for one rank and worker. */
struct sqrl_forecast {
    uint64_t items;                     /* as sqrl_plan_count says */
    uint64_t chunks, shards;            /* runs of blocks; different shards they lie in */
    uint64_t blocks, block_bytes;       /* read, as they are stored: a request each */
    uint64_t decoded_bytes;             /* what they become */
    uint64_t first_blocks, first_bytes; /* of those, before the first sample comes */
    uint64_t window_bytes;              /* shuffle_all: in memory together, twice */
    /* Where the file system is remote: blocks are fetched in pieces of up to 6 MiB, whole
     * shards with their indexes in them. Of a run that has read nothing before: */
    uint64_t requests, request_bytes; /* all of them, indexes included */
    uint64_t first_requests;          /* before the first sample (or batch) can come */
    uint64_t first_request_bytes;
    uint64_t first_rounds; /* that wait for each other: an index, then what it tells of */
};
/* From the indexes of the shards, without reading data: exactly the requests and bytes of
 * data of a whole run; a run of local files also reads the index of each shard, unless it
 * is kept from before. SQRL_E_INVALID behind take, skip and distribute(steps=);
 * SQRL_E_UNSUPPORTED where a shard has no index of blocks. */
SQRL_CHECK int sqrl_plan_forecast(struct sqrl_plan *plan, uint64_t epoch,
                                  struct sqrl_forecast *out, struct sqrl_error *err);
/* The same; its first_ numbers are of what comes before the first `first` samples. */
SQRL_CHECK int sqrl_plan_forecast_first(struct sqrl_plan *plan, uint64_t epoch,
                                        uint64_t first, struct sqrl_forecast *out,
                                        struct sqrl_error *err);

/* Positions in the source and shards of the samples that a run of a distributed plan
 * gives, in order, from counts alone: the first `capacity` of them. Memory: 8 bytes a
 * chunk. SQRL_E_UNSUPPORTED where the plan is not distributed, or by shards' owners;
 * SQRL_E_INVALID behind filters, take, skip and distribute(steps=). */
SQRL_CHECK int sqrl_plan_positions(struct sqrl_plan *plan, uint64_t epoch,
                                   uint64_t *position, uint32_t *shard, size_t capacity,
                                   size_t *count, struct sqrl_error *err);

/* Copies what on_error let pass, from number `first` on, into out[capacity]; returns how
 * many there are: the first 10,000 are kept. Any thread, until the iterator is closed. */
SQRL_API size_t sqrl_iterator_bad(struct sqrl_iterator *iterator, struct sqrl_bad *out,
                                  size_t first, size_t capacity);

/* How a run went: counts and where time was spent. */
struct sqrl_stage_stats {
    const char *name; /* "load", "assign", "fill", "consumer" */
    uint64_t items, bytes;
    uint64_t busy_ns; /* over all threads */
    uint64_t wait_ns;
    double wait_share; /* of all waiting; they sum to 1 */
};
SQRL_API size_t sqrl_iterator_stats(const struct sqrl_iterator *iterator,
                                    struct sqrl_stage_stats *out, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
