/* indexes.c - many far shards at a time.
 *
 * Calls that need something of all shards ask one after another; far away each is a round
 * trip or two. So the I/O pool's threads ask beside the caller. Indexes are opened before
 * they are needed, and found in the source's cache then; errors are left for those who
 * ask. */
#include <stdlib.h>

#include "driver/source_inner.h"

struct round;
/* Like the caller it takes what is left; one that comes too late does nothing. */
struct helper {
    struct sqrl_task task; /* first: a task is its helper */
    struct round *round;
};

struct round {
    int refs;                   /* the caller's, and each helper's */
    struct sqrl_source *source; /* borrowed: the caller waits for those who entered */
    uint64_t next, end;         /* atomic: the next shard */
    void (*each)(struct sqrl_source *source, uint64_t shard, void *arg);
    void *arg;
    pthread_mutex_t mutex; /* below */
    pthread_cond_t finished;
    unsigned inside;
    bool over; /* nobody enters any more */
    struct helper helper[];
};

static void round_unref(struct round *round) {
    if (__atomic_sub_fetch(&round->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    pthread_cond_destroy(&round->finished);
    pthread_mutex_destroy(&round->mutex);
    free(round);
}

static void take_some(struct round *round) {
    for (;;) {
        uint64_t shard = __atomic_fetch_add(&round->next, 1, __ATOMIC_RELAXED);
        if (shard >= round->end)
            return;
        round->each(round->source, shard, round->arg);
    }
}

static void run_helper(struct sqrl_task *task) {
    struct round *round = ((struct helper *)(void *)task)->round;
    pthread_mutex_lock(&round->mutex);
    bool enter = !round->over;
    round->inside += enter;
    pthread_mutex_unlock(&round->mutex);
    if (enter) {
        take_some(round);
        pthread_mutex_lock(&round->mutex);
        round->inside--;
        pthread_cond_signal(&round->finished);
        pthread_mutex_unlock(&round->mutex);
    }
    round_unref(round);
}

void sqrl_source_each(struct sqrl_source *source, uint64_t from, uint64_t to,
                      void (*each)(struct sqrl_source *source, uint64_t shard, void *arg),
                      void *arg) {
    struct sqrl_pool *pool = NULL;
    if (!sqrl_source_local(source) && from < to && to - from > 1)
        pool = sqrl_context_io_pool(source->context, NULL);
    unsigned threads =
        pool ? (unsigned)SQRL_MIN((uint64_t)sqrl_pool_threads(pool), to - from - 1) : 0;
    struct round *round =
        threads ? sqrl_calloc(1, sizeof *round + threads * sizeof round->helper[0],
                              "shards", NULL)
                : NULL;
    if (!round) { /* alone */
        for (uint64_t i = from; i < to; i++)
            each(source, i, arg);
        return;
    }
    round->refs = 1 + (int)threads;
    round->source = source;
    round->next = from;
    round->end = to;
    round->each = each;
    round->arg = arg;
    pthread_mutex_init(&round->mutex, NULL);
    pthread_cond_init(&round->finished, NULL);
    for (unsigned i = 0; i < threads; i++) {
        round->helper[i].round = round;
        round->helper[i].task.run = run_helper;
        sqrl_pool_submit(pool, &round->helper[i].task);
    }
    take_some(round);
    pthread_mutex_lock(&round->mutex);
    round->over = true;
    while (round->inside)
        pthread_cond_wait(&round->finished, &round->mutex);
    pthread_mutex_unlock(&round->mutex);
    round_unref(round);
}

static void open_one(struct sqrl_source *source, uint64_t shard, void *unused) {
    (void)unused;
    const struct sqrl_format_ops *format = source->shards[shard].format;
    struct sqrl_core *core = NULL;
    if (format && format->flags & SQRL_FORMAT_INDEXED &&
        sqrl_core_get(source, shard, &core, NULL) == SQRL_OK)
        sqrl_core_unref(core);
}

void sqrl_source_open_ahead(struct sqrl_source *source, uint64_t from, uint64_t to) {
    to = SQRL_MIN(to, from + MAX_OPEN); /* more are not kept */
    if (!sqrl_source_local(source) && from < to && to - from > 1)
        sqrl_source_each(source, from, to, open_one, NULL);
}
