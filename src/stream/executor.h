/* executor.h - a running plan: its state and the parts that work on it.
 *
 * LOAD (many threads) -> ASSIGN (one at a time, cheap) -> FILL (many threads) -> hand
 * off. There is one lock an iterator. It is held while jobs are chosen and results are
 * published, never while work is done and never per sample. Jobs run on the context's
 * pool: a worker takes one job after another and lets others on after a slice of time; it
 * never waits.
 *
 * A strand is a run of blocks that come in order: a chunk of an indexed shard, whose
 * blocks are loaded in parallel, or a whole sequential shard, which one task reads at a
 * time. Several strands are active; they are consumed strictly one after another.
 *
 * Memory: what is loaded is charged to the context's budget. Jobs are granted in
 * sequence, and the block at the head of the line is always granted, even when it alone
 * exceeds the budget, so that nothing can wait for ever.
 */
#ifndef SQRL_STREAM_EXECUTOR_H
#define SQRL_STREAM_EXECUTOR_H

#include "stream/columns/columns.h"
#include "stream/columns/locate.h"
#include "stream/deal.h"

#define STRAND_ROOM 64u   /* blocks a strand may be ahead of its consumer */
#define MAX_STRANDS 1024u /* live ones: most are finished and wait to be consumed */
#define RUN_ROWS 1024u    /* of a shuffled run, at most, */
#define RUN_BYTES (UINT64_C(1) << 20) /* and about so many bytes */

/* Of one piece that a strand fetches ahead. */
struct sqrl_piece_use {
    uint64_t charged; /* bytes taken from the budget */
    uint32_t blocks;  /* in it, not loaded yet; once they are counted */
    bool begun;
};

struct sqrl_strand {
    struct sqrl_strand *next;
    struct sqrl_chunk chunk;
    struct sqrl_shard_reader *reader; /* while there is something to load */
    enum { STRAND_NEW, STRAND_OPENING, STRAND_OPEN, STRAND_ENDED } state;
    bool indexed;
    bool busy;            /* sequential: a task reads its next block */
    uint64_t first_block; /* indexed: number within the shard of block 0 of the strand */
    uint64_t skip;        /* samples at its front that need not be read */
    uint64_t total;       /* blocks, once known (indexed: when open; else when ended) */
    uint64_t claimed;     /* blocks whose loading has begun */
    uint64_t taken;       /* blocks that ASSIGN has */
    uint64_t rows;        /* samples in them and before; SQRL_UNKNOWN: not counted */
    uint64_t passed;      /* the same, counted from the chunk's first sample */
    uint32_t loading;     /* tasks under way */
    struct sqrl_loaded *done[STRAND_ROOM];
    /* Remote, see fetch.c: */
    struct sqrl_ahead *ahead;   /* what is fetched of its file, or NULL */
    struct sqrl_piece_use *use; /* [pieces] */
    uint64_t next_piece, dropped;
    uint64_t charged;  /* in all */
    uint32_t fetching; /* I/O jobs under way */
    bool counted;      /* use[].blocks are known */
};

/* The blocks of one shuffled window. */
struct sqrl_window {
    int refs;
    struct sqrl_loaded **block;
    uint64_t *first; /* [count + 1] of each block's rows (from .. to) within the window */
    uint64_t chunk, chunk_row; /* where it begins in the sequence */
    uint32_t count, capacity;
    uint64_t bytes;
    uint32_t *guess; /* [WINDOW_GUESSES]: near which block row r << shift lies */
    unsigned shift;
};
#define WINDOW_GUESSES 1024u

/* What rows of an output point into. */
struct sqrl_hold {
    struct sqrl_loaded *loaded;
    struct sqrl_window *window;
};

/* A point in the stream: what was judged up to there. */
struct sqrl_mark {
    bool valid;
    uint64_t chunk, row;     /* undealt: where the block or window begins, ... */
    uint64_t window, at;     /* ... the window's number, and rows judged from there on */
    struct sqrl_point point; /* dealt: the same, as the deal counts */
    uint64_t given;          /* samples or batches */
    uint64_t batch_skip, batch_take; /* still to go, of the stages behind batch */
    uint64_t tick;                   /* rows judged in the block, window or hand */
};

/* Rows of a batch that were judged in one block, window or hand. */
struct sqrl_segment {
    uint32_t first;        /* row of the batch */
    struct sqrl_mark mark; /* in front of it; the rows' `at` count from there */
};

enum sqrl_output_state { OUTPUT_OPEN, OUTPUT_QUEUED, OUTPUT_FILLING, OUTPUT_READY };

/* A run or a batch on its way to the consumer. */
struct sqrl_output {
    struct sqrl_output *next;      /* in the sequence */
    struct sqrl_output *next_work; /* in the list of those to fill */
    enum sqrl_output_state state;
    struct sqrl_row *rows;
    uint32_t count, capacity;
    struct sqrl_hold *holds;
    uint32_t held, hold_room;
    uint64_t pinned; /* bytes of the blocks that it holds */
    uint32_t compacted,
        compact_holds;            /* rows and holds that pin nothing but themselves */
    uint64_t bytes;               /* of its rows: exact with budgets, else an estimate */
    uint64_t longest;             /* length_field: of its rows */
    struct sqrl_mark mark;        /* runs: in front of it; batches: behind it */
    struct sqrl_segment *segment; /* [segments] of a batch, without length buckets */
    uint32_t segments, segment_room;
    uint64_t stretch; /* of the last segment */
    uint64_t base;    /* length buckets: rows that had passed at the mark; ... */
    uint64_t head;    /* ... of the rows from there on, how many are decided: */
    uint32_t *kept;   /* all are given but these [kepts], which wait in buckets */
    uint32_t kepts;
    uint64_t *left;  /* with take and skip: [ops] of the stages, there; or NULL */
    uint64_t number; /* batches: position among batches; runs: of the first sample */
    uint32_t parts, next_part, parts_done;
    struct sqrl_batch *batch;
    uint64_t slot_bytes; /* charged */
    struct sqrl_run *run;
    int code;
    struct sqrl_error *error;
};

enum sqrl_op_kind { OP_FILTER, OP_TAKE, OP_SKIP };
struct sqrl_op {
    enum sqrl_op_kind kind;
    uint64_t left; /* TAKE, SKIP */
};

/* State of ASSIGN; belongs to whoever holds assign_busy. */
struct sqrl_assign {
    struct sqrl_op *op;
    uint32_t ops;
    struct sqrl_loaded
        *current; /* not shuffled: the block that is handed out, from `row` on */
    uint32_t row;
    struct sqrl_window *window; /* shuffled: the window that is handed out */
    struct sqrl_permutation permutation;
    uint64_t position;
    struct sqrl_window *next;  /* the one that is being collected */
    uint64_t windows;          /* begun so far */
    struct sqrl_dealer dealer; /* dealt: instead of the permutation, the hand of this */
    struct sqrl_hand hand;     /* window; `given` of its samples were judged */
    uint64_t given;
    uint64_t pass, pass_rows;  /* the pass it is in, and rows_passed where it began */
    struct sqrl_output **open; /* batches being collected, one a bucket; runs: [1] */
    uint32_t buckets;
    uint64_t numbered;               /* outputs (runs: samples) so far */
    uint64_t batch_skip, batch_take; /* stages behind batch */
    struct sqrl_output *spare;       /* empty ones for reuse */
    struct sqrl_output *emitted, **emitted_end;
    uint32_t emitted_count;
    uint64_t emitted_bytes;
    bool ended;    /* no more input is wanted */
    bool complete; /* a take() is satisfied: what is collected is still given */
    bool cut;      /* a take() behind batch is: it is not */
    int code;      /* how the stream ends */
    struct sqrl_error error;
    uint64_t rows_passed;
    bool counts;          /* there are take or skip stages in front of batch */
    bool bucketed;        /* samples wait in length buckets */
    bool in_row;          /* a row is being appended: rows_passed does not count it yet */
    uint64_t replay_head; /* of the first rows of this run, those that an earlier run */
    const uint64_t *replay; /* had in buckets, in rising order; the others are given */
    size_t replays, replay_at;
    uint64_t failed, failed_in_a_row; /* on_error */
    struct sqrl_loaded *good;         /* the last good row, to be given again */
    uint32_t good_row;
    uint64_t owed;           /* rows to be replaced by the first good one */
    bool budgeted;           /* batches end in front of a row that does not fit */
    struct sqrl_mark before; /* in front of the row that is judged, where it is needed */
    uint64_t *before_left;   /* [ops] */
    struct sqrl_mark past;   /* behind the last block or window */
    uint64_t stretch;        /* number of blocks or windows that were left */
    uint64_t drop;           /* samples that come out and were given by an earlier run */
    uint64_t resume_at;      /* rows of the first window that an earlier run has given */
};

enum sqrl_job_kind {
    JOB_NONE,
    JOB_OPEN,
    JOB_LOAD,
    JOB_ASSIGN,
    JOB_FILL,
    JOB_PART,
    JOB_FETCH
};
struct sqrl_job {
    enum sqrl_job_kind kind;
    struct sqrl_strand *strand;
    uint64_t block;             /* of the strand; FETCH: piece */
    uint64_t estimate;          /* bytes charged beforehand */
    struct sqrl_output *output; /* FILL: a list by next_work */
    uint32_t part;
};

struct sqrl_worker {
    struct sqrl_task task; /* first: a task is its worker */
    struct sqrl_iterator *iterator;
    struct sqrl_worker *next_idle;
    uint64_t idle_since;
    struct sqrl_locator *locator; /* of iterator->wants; NULL until needed */
    uint32_t *found;
};

enum { STAT_LOAD, STAT_ASSIGN, STAT_FILL, STAT_CONSUMER, STATS };
struct sqrl_stat_counts {
    uint64_t items, bytes, busy_ns, wait_ns; /* relaxed atomics */
};

struct sqrl_filter {
    const struct sqrl_expression *expression;
    uint32_t *map; /* from its fields to wants */
};

struct sqrl_iterator {
    int refs; /* the user's, and one a submitted worker */
    uint32_t generation;
    struct sqrl_plan *plan;
    const struct sqrl_plan *batch; /* the batch stage, or NULL */
    struct sqrl_source *source;
    struct sqrl_context *context; /* held by the source */
    struct sqrl_cancel cancel;

    struct sqrl_filter *filter;
    uint32_t filters;
    struct sqrl_filter_names *filter_names; /* NULL: no filter */
    struct sqrl_wants *filter_wants;
    struct sqrl_wants
        *wants; /* of filters and columns; numbers of filters are the same */
    struct sqrl_columns *columns; /* NULL until they are fixed */
    bool check_names;      /* runs: two fields of a sample may come out under one name */
    uint32_t measure_want; /* length_field, or SQRL_NO_NODE */
    enum sqrl_order_kind kind;
    uint64_t seed, epoch;
    uint64_t window_bytes;
    size_t slabs_held; /* sqrl_slab_hold: a window gives back what the next one takes */
    uint64_t budget_widened; /* sqrl_budget_widen: windows that it has no room for */
    bool gathers;            /* runs: samples come from all over a window */
    bool windowed; /* ASSIGN collects windows and hands out samples from all over them */
    uint64_t window_cut; /* bytes loaded that end a window, whatever the order foresaw */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ready;
    struct sqrl_pool *pool; /* NULL: not started */
    struct sqrl_worker *worker;
    unsigned workers;
    struct sqrl_worker *idle;
    bool remote; /* shards are opened, and their bytes fetched, by I/O threads: */
    struct sqrl_pool *io_pool;
    struct sqrl_worker *io_worker, *io_idle;
    struct sqrl_strand *fetch_from; /* the first that may have something to fetch */
    struct sqrl_account *fetching;  /* what is fetched and not loaded */
    uint64_t fetch_limit;           /* how much that may be now, ... */
    uint64_t fetch_most;            /* ... and ever */
    bool parked;                    /* it fetches only: see follow.c */
    bool followed;                  /* its successor was opened, or is not expected */
    enum sqrl_follow follow;        /* what was said of it */
    uint64_t next_epoch;
    struct sqrl_order *order; /* or, dealt: */
    struct sqrl_deal *deal;
    struct sqrl_share share;
    struct sqrl_deal_walk walk;
    uint64_t shards; /* the first ones of the source, that take part */
    uint64_t nodes;  /* estimate of a sample's nodes */
    uint64_t resume_chunk;
    uint64_t resume_row; /* samples of the first chunk that an earlier run has given */
    uint8_t *indexes;    /* [shards]: 1 where it was read for the order; NULL: none was */
    bool order_ended;
    bool order_failed; /* no memory for a strand: the end is an error */
    bool order_short;  /* a chunk has less samples than its index says: the same */
    struct sqrl_strand *head, **tail, *load_from;
    uint32_t strands;
    uint32_t loading;             /* LOAD jobs under way */
    uint64_t limit_bytes;         /* how much may be loaded and not used up */
    struct sqrl_account *account; /* what is */
    uint64_t block_estimate;
    uint32_t ratio_percent;         /* memory of a block in per cent of its raw bytes */
    uint64_t skip_first, skip_done; /* to pass to the first strand; samples */
    bool assign_busy;
    uint64_t starved_since; /* ASSIGN waits for the head of the line; 0: it does not */
    struct sqrl_assign assign;
    struct sqrl_output *out_head, **out_tail;
    struct sqrl_output *fill_head, **fill_tail; /* to be laid out and filled, in order */
    struct sqrl_output *part_head;              /* with parts to be claimed */
    uint32_t queued, fill_queued, finished_outputs; /* of those queued: READY ones */
    uint64_t queued_bytes;
    struct sqrl_output *spare; /* empty ones for reuse */
    uint32_t spares;
    bool stopped;  /* no more work: cancelled or closed */
    bool finished; /* ASSIGN is done: what follows the queue is `final` */
    bool consumer_waits;
    int final_code;
    struct sqrl_error final;
    struct sqrl_output *last, *last_but_one; /* handed out last, for their marks */
    struct sqrl_mark first;                  /* where this run began */
    uint64_t *first_left;                    /* [ops] */
    uint64_t first_drop, first_head;
    const struct sqrl_on_error_options *on_error; /* NULL: raise */
    pthread_mutex_t bad_lock;                     /* guards what on_error let pass: */
    struct sqrl_bad *bad;
    uint64_t bads, bad_room;
    uint64_t handed_at; /* when the consumer got its last output */
    struct sqrl_stat_counts stat[STATS];
};

/* --- executor.c --- */
/* Starts idle workers while there is work. Lock held. */
void sqrl_executor_kick(struct sqrl_iterator *it);
int sqrl_executor_start(struct sqrl_iterator *it, struct sqrl_error *err);
void sqrl_executor_unref(struct sqrl_iterator *it);
/* Wakes a consumer that waits, when it is worth it. Lock held. */
void sqrl_executor_wake(struct sqrl_iterator *it);
/* Ends the work; the consumer gets final_code from now on. Lock held. */
void sqrl_executor_stop(struct sqrl_iterator *it);
/* Empties an output that was handed on and keeps it for the next. Lock held. */
void sqrl_executor_recycle(struct sqrl_iterator *it, struct sqrl_output *output);
static inline void sqrl_stat_add(uint64_t *counter, uint64_t add) {
    __atomic_add_fetch(counter, add, __ATOMIC_RELAXED);
}
static inline uint64_t sqrl_stat_get(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

struct sqrl_states;

/* --- iterator.c --- */
/* sqrl_iterator_start without starting anything. */
SQRL_CHECK int sqrl_iterator_make(struct sqrl_plan *plan,
                                  const struct sqrl_iterator_options *options,
                                  struct sqrl_iterator **out, struct sqrl_error *err);

/* --- follow.c --- */
/* Notes that a pass begins; what was parked for it, or NULL. */
struct sqrl_iterator *sqrl_follow_take(struct sqrl_plan *plan,
                                       const struct sqrl_iterator_options *options);
bool sqrl_follow_due(const struct sqrl_iterator *it);
void sqrl_follow_begin(struct sqrl_iterator *it);
/* The plan's last reference goes: true when it went to a parked iterator. */
bool sqrl_follow_reset(struct sqrl_plan *plan);

/* --- units.c --- */
/* Counted chunks of about `want_bytes` of the shards that take part; free() them. */
SQRL_CHECK int sqrl_units_collect(struct sqrl_iterator *it, const uint64_t *block_bytes,
                                  uint64_t want_bytes, struct sqrl_unit **out,
                                  uint64_t *count, struct sqrl_error *err);

/* --- sequence.c --- */
/* sqrl_shard_open for what the order needs to know of it; noted in it->indexes. */
SQRL_CHECK int sqrl_index_open(struct sqrl_iterator *it, uint64_t shard,
                               struct sqrl_shard_reader **out, struct sqrl_error *err);
SQRL_CHECK int sqrl_sequence_open(struct sqrl_iterator *it,
                                  const struct sqrl_schema *schema,
                                  struct sqrl_states *states, struct sqrl_error *err);

/* --- strand.c: all with the lock held --- */
bool sqrl_strand_claim(struct sqrl_iterator *it, struct sqrl_job *job, bool only_look);
enum sqrl_take { TAKE_BLOCK, TAKE_WINDOW_END, TAKE_LATER, TAKE_END };
enum sqrl_take sqrl_strand_take(struct sqrl_iterator *it, struct sqrl_loaded **out);
bool sqrl_strand_ready(const struct sqrl_iterator *it);
/* Lets go of what is loaded: nobody will take it any more. */
void sqrl_strands_drop(struct sqrl_iterator *it);
void sqrl_strands_free(struct sqrl_iterator *it);
/* The next strand of the order, or NULL. */
struct sqrl_strand *sqrl_strand_add(struct sqrl_iterator *it);

/* --- fetch.c: remote shards; the first ones with the lock held --- */
bool sqrl_fetch_claim(struct sqrl_iterator *it, struct sqrl_job *job, bool only_look);
/* Starts an idle I/O worker when there is work. */
void sqrl_fetch_kick(struct sqrl_iterator *it);
/* The bytes of the strand's next block are there, or it is known why not. */
bool sqrl_fetch_there(struct sqrl_strand *strand);
/* A block was loaded: its pieces may be let go. */
void sqrl_fetch_used(struct sqrl_iterator *it, struct sqrl_strand *strand,
                     uint64_t block);
/* What is fetched, when nothing of the strand is under way or to come, to be freed
 * without the lock; detach: in any case. */
struct sqrl_ahead *sqrl_fetch_end(struct sqrl_iterator *it, struct sqrl_strand *strand);
struct sqrl_ahead *sqrl_fetch_detach(struct sqrl_iterator *it,
                                     struct sqrl_strand *strand);
/* Without it: */
void sqrl_fetch_limits(struct sqrl_iterator *it);
SQRL_CHECK int sqrl_fetch_start(struct sqrl_iterator *it, struct sqrl_error *err);
SQRL_CHECK int sqrl_fetch_open(struct sqrl_iterator *it, const struct sqrl_job *job,
                               struct sqrl_shard_reader **reader, struct sqrl_error *err);
/* The strand will load blocks [from, to) of the shard. */
SQRL_CHECK int sqrl_fetch_plan(struct sqrl_iterator *it, struct sqrl_strand *strand,
                               struct sqrl_shard_reader *reader, uint64_t from,
                               uint64_t to, struct sqrl_error *err);
void sqrl_fetch_piece(struct sqrl_iterator *it, const struct sqrl_job *job);
/* The next read of the block asks the network again. */
void sqrl_fetch_forget(struct sqrl_strand *strand, uint64_t block);
/* The chunk is all of a shard whose size is known. */
bool sqrl_chunk_whole(const struct sqrl_source *source, const struct sqrl_chunk *chunk);

/* --- filter_names.c: a field that no sample has --- */
/* SQRL_E_NOT_FOUND when that is known before reading; `schema`: the source's, if known.
 */
SQRL_CHECK int sqrl_filters_check(struct sqrl_iterator *it,
                                  const struct sqrl_schema *schema,
                                  struct sqrl_error *err);
void sqrl_filters_free(struct sqrl_filter_names *names);
/* True while a field was in no sample; _see notes what was found in one more and says the
 * same. Any thread. */
bool sqrl_filters_lack(const struct sqrl_iterator *it);
bool sqrl_filters_see(struct sqrl_iterator *it, const uint32_t *found);
/* Looks through a block that lacks one, once, for what may have been meant. */
void sqrl_filters_look(struct sqrl_iterator *it, const struct sqrl_block *block);
/* The end: logs a warning about a field that no sample had. */
void sqrl_filters_tell(struct sqrl_iterator *it);

/* --- load.c --- */
/* Which of a chunk's *blocks hold the part of it that counts: *blocks is cut behind that,
 * and the result is how many in front of it are not read, with *rows samples. */
uint64_t sqrl_chunk_cut(struct sqrl_shard_reader *reader, const struct sqrl_chunk *chunk,
                        uint64_t *blocks, uint64_t *rows);
void sqrl_load_open(struct sqrl_iterator *it, const struct sqrl_job *job);
void sqrl_load_block(struct sqrl_iterator *it, struct sqrl_worker *worker,
                     const struct sqrl_job *job);
/* Fixes the columns and what is looked for in samples; `seen` as in sqrl_columns_new.
 * Runs before any block is located.
 */
SQRL_CHECK int sqrl_load_fix_columns(struct sqrl_iterator *it,
                                     const struct sqrl_schema *schema,
                                     const struct sqrl_seen_block *seen,
                                     struct sqrl_error *err);
/* The error of a row whose stage says that it fails. Returns its code. */
int sqrl_load_explain(struct sqrl_iterator *it, const struct sqrl_loaded *loaded,
                      uint32_t row, struct sqrl_error *err);

/* --- on_error.c --- */
bool sqrl_on_error_covers(int code);
uint64_t sqrl_on_error_retries(const struct sqrl_iterator *it);
/* What stands for a block that can't be read: rows that fail. NULL: it is an error. */
struct sqrl_loaded *sqrl_on_error_block(struct sqrl_iterator *it, uint64_t shard,
                                        uint64_t block,
                                        const struct sqrl_block_info *info, int code,
                                        const struct sqrl_error *error);
/* The same for a chunk of a shard that can't be opened; its rows begin at first_row. */
struct sqrl_loaded *sqrl_on_error_chunk(struct sqrl_iterator *it,
                                        const struct sqrl_chunk *chunk, int code,
                                        const struct sqrl_error *error);
/* A row that fails: SQRL_OK when it is to be left out, or replaced. */
int sqrl_on_error_row(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t row,
                      bool *replace);
/* Whether the last good row may be needed again. */
bool sqrl_on_error_replaces(const struct sqrl_iterator *it);
/* The rest of a shard, behind damage: true when the stream goes on without it, or ends
 * with *code since the budget is spent. */
bool sqrl_on_error_rest(struct sqrl_iterator *it, const struct sqrl_loaded *loaded,
                        int *code);
/* A row that passed; only with a policy. */
void sqrl_on_error_good(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t row);

/* --- assign.c --- */
/* Works until the queue is full, input is missing or the stream ends. */
void sqrl_assign_run(struct sqrl_iterator *it);
bool sqrl_assign_has_room(const struct sqrl_iterator *it); /* lock held */
void sqrl_assign_reset(struct sqrl_iterator *it);
void sqrl_output_free(struct sqrl_output *output);
/* Lets go of the blocks. */
void sqrl_output_release(struct sqrl_output *output);
void sqrl_window_unref(struct sqrl_window *window);

/* --- mark.c --- */
/* Where ASSIGN is, `back` rows ago (0 or 1). */
void sqrl_mark_set(const struct sqrl_iterator *it, uint64_t back, struct sqrl_mark *mark);
/* The same in front of the row that is judged next, with the counts of take and skip. */
void sqrl_mark_before(struct sqrl_iterator *it);
/* Batches without buckets: begins a segment where the next row is the first of its block
 * or window; `back` as above. Returns the tick that rows count from, through *tick. */
SQRL_CHECK int sqrl_mark_segment(struct sqrl_iterator *it, uint64_t back,
                                 struct sqrl_output *output, uint64_t *tick,
                                 struct sqrl_error *err);
/* Length buckets: the mark of a batch that goes is that of the oldest row that waits. */
void sqrl_mark_bucket(struct sqrl_iterator *it, struct sqrl_output *output, bool before);
/* Puts a mark on an output: the one in front of the row, or where ASSIGN is now. */
void sqrl_mark_output(struct sqrl_iterator *it, struct sqrl_output *output, bool before);

/* --- state.c, state_read.c --- */
/* Where the states say: sets epoch and shards. Before the order is made. */
SQRL_CHECK int sqrl_states_read(struct sqrl_iterator *it,
                                const struct sqrl_iterator_options *options,
                                struct sqrl_states **out, struct sqrl_error *err);
/* Behind it: the order goes on there. */
SQRL_CHECK int sqrl_states_apply(struct sqrl_iterator *it, struct sqrl_states *states,
                                 uint64_t consumers, uint64_t consumer,
                                 struct sqrl_error *err);
void sqrl_states_free(struct sqrl_states *states);

/* --- run.c --- */
SQRL_CHECK int sqrl_run_new(struct sqrl_context *context, struct sqrl_output *output,
                            struct sqrl_error *err);
/* Copies samples that lie all over a window into a block of the run's own, so that the
 * consumer finds them warm and in a row; large ones stay. A lack of memory only leaves
 * them where they are. */
void sqrl_run_gather(struct sqrl_context *context, struct sqrl_output *output);
void sqrl_run_uncharge(struct sqrl_run *run);

#endif
