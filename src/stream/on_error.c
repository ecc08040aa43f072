/* on_error.c - bad samples that do not end the stream: left out or replaced, counted,
 * kept in a list.
 *
 * A block of an indexed shard that can't be read stands in the sequence as rows that all
 * fail: so orders, windows, ranks and states are what they were without the damage. It
 * counts as one failure, however many samples it held.
 */
#include "stream/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "stream/executor.h"

#define MAX_BAD 10000u /* remembered; beyond that they are only counted */
#define LOGGED 5u

int sqrl_plan_on_error(struct sqrl_plan *plan,
                       const struct sqrl_on_error_options *options,
                       struct sqrl_plan **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_on_error_options o = {.size = sizeof o};
    struct sqrl_plan *next = NULL;
    int code = SQRL_OK;
    if (options)
        memcpy(&o, options, SQRL_MIN(options->size, sizeof o));
    if ((unsigned)o.policy > SQRL_ON_ERROR_ASK ||
        (o.policy == SQRL_ON_ERROR_ASK && !o.ask))
        code = sqrl_error_set(err, SQRL_E_INVALID, "unknown policy for bad samples");
    else if (plan->batched)
        code = sqrl_error_set(err, SQRL_E_INVALID, "on_error must stand before batch");
    else if (!(next = sqrl_plan_stage(plan, SQRL_STAGE_ON_ERROR, err)))
        code = SQRL_E_NO_MEMORY;
    if (code) {
        if (o.release)
            o.release(o.arg);
        return code;
    }
    o.size = sizeof o;
    o.consecutive = o.consecutive ? o.consecutive : 100;
    o.total = o.total ? o.total : 10000;
    next->on_error = o;
    *out = next;
    return SQRL_OK;
}

/* What is wrong with the data, not with the program or the machine's memory. */
bool sqrl_on_error_covers(int code) {
    switch (code) {
    case SQRL_E_IO:
    case SQRL_E_NOT_FOUND:
    case SQRL_E_PERMISSION:
    case SQRL_E_CORRUPT:
    case SQRL_E_TRUNCATED:
    case SQRL_E_FORMAT:
    case SQRL_E_LIMIT:
    case SQRL_E_TYPE:
        return true;
    default:
        return false;
    }
}

static bool tolerant(const struct sqrl_iterator *it) {
    return it->on_error && it->on_error->policy != SQRL_ON_ERROR_RAISE;
}

bool sqrl_on_error_replaces(const struct sqrl_iterator *it) {
    return it->on_error && it->on_error->policy >= SQRL_ON_ERROR_SUBSTITUTE;
}

uint64_t sqrl_on_error_retries(const struct sqrl_iterator *it) {
    return it->on_error ? it->on_error->retries : 0;
}

struct sqrl_loaded *sqrl_on_error_block(struct sqrl_iterator *it, uint64_t shard,
                                        uint64_t block,
                                        const struct sqrl_block_info *info, int code,
                                        const struct sqrl_error *error) {
    if (!tolerant(it) || !sqrl_on_error_covers(code) || !info->samples ||
        info->samples == SQRL_NO_NODE)
        return NULL;
    struct sqrl_loaded *loaded = sqrl_loaded_new(NULL);
    if (!loaded)
        return NULL;
    loaded->count = info->samples;
    loaded->shard = shard;
    loaded->first = info->first;
    loaded->bad = true;
    loaded->bad_block = block;
    loaded->error = malloc(sizeof *loaded->error);
    if (!loaded->error ||
        sqrl_loaded_reserve(loaded, NULL, true, false, it->context, NULL)) {
        sqrl_loaded_unref(loaded);
        return NULL;
    }
    *loaded->error = *error;
    memset((uint8_t *)(uintptr_t)loaded->stage, SQRL_ROW_FAILS, loaded->count);
    return loaded;
}

static int spent(struct sqrl_assign *a, const char *which, uint64_t number,
                 const struct sqrl_error *error) {
    struct sqrl_error last = *error;
    sqrl_error_set(&a->error, last.code,
                   "%s; on_error: %llu bad samples or blocks %s are one too many: repair "
                   "the data, or raise the budget",
                   last.message, (unsigned long long)number, which);
    snprintf(a->error.where, sizeof a->error.where, "%s", last.where);
    return last.code;
}

static void remember(struct sqrl_iterator *it, const struct sqrl_bad *bad) {
    pthread_mutex_lock(&it->bad_lock);
    if (it->bads == it->bad_room && it->bads < MAX_BAD) {
        uint64_t room = it->bad_room ? 2 * it->bad_room : 16;
        struct sqrl_bad *grown = realloc(it->bad, room * sizeof *grown);
        if (grown) {
            it->bad = grown;
            it->bad_room = room;
        }
    }
    if (it->bads < it->bad_room && it->bads < MAX_BAD)
        it->bad[it->bads++] = *bad;
    pthread_mutex_unlock(&it->bad_lock);
}

/* What the policy says of one failure. RAISE: a->error says why. */
static enum sqrl_on_error verdict_of(struct sqrl_iterator *it,
                                     const struct sqrl_bad *bad) {
    struct sqrl_assign *a = &it->assign;
    const struct sqrl_on_error_options *o = it->on_error;
    enum sqrl_on_error verdict = o->policy;
    a->error = bad->error;
    if (o->policy == SQRL_ON_ERROR_ASK)
        verdict = o->ask(o->arg, bad, &a->error);
    if (verdict != SQRL_ON_ERROR_SUBSTITUTE || !a->bucketed)
        return verdict == SQRL_ON_ERROR_ASK ? SQRL_ON_ERROR_RAISE : verdict;
    sqrl_error_set(&a->error, SQRL_E_INVALID,
                   "on_error: a bad sample has no length, so none can take its place in "
                   "length buckets; leave it out");
    return SQRL_ON_ERROR_RAISE;
}

/* Counts one failure; SQRL_OK when the policy lets it pass, else the code of a->error. */
static int count_failure(struct sqrl_iterator *it, const struct sqrl_bad *bad,
                         enum sqrl_on_error *verdict) {
    struct sqrl_assign *a = &it->assign;
    const struct sqrl_on_error_options *o = it->on_error;
    *verdict = verdict_of(it, bad);
    if (*verdict == SQRL_ON_ERROR_RAISE)
        return a->error.code ? a->error.code : SQRL_E_CORRUPT;
    remember(it, bad);
    a->failed++;
    a->failed_in_a_row++;
    if (a->failed_in_a_row >= o->consecutive)
        return spent(a, "in a row", a->failed_in_a_row, &bad->error);
    if (a->failed >= o->total)
        return spent(a, "in all", a->failed, &bad->error);
    if (a->failed <= LOGGED)
        sqrl_log(it->context, SQRL_LOG_WARNING, "%s%s%s (%s%s)", bad->error.where,
                 *bad->error.where ? ": " : "", bad->error.message,
                 *verdict == SQRL_ON_ERROR_SKIP ? "left out" : "replaced",
                 a->failed == LOGGED ? "; further ones are not logged" : "");
    return SQRL_OK;
}

/* Another part of a shard that can't be opened: it has failed already, as a whole. True
 * with what was said of it. */
static bool known_shard(struct sqrl_iterator *it, const struct sqrl_bad *bad,
                        enum sqrl_on_error *verdict) {
    bool known = false;
    pthread_mutex_lock(&it->bad_lock);
    for (uint64_t i = it->bads; i-- > 0 && !known && bad->block == SQRL_UNKNOWN;) {
        known = it->bad[i].shard == bad->shard && it->bad[i].block == SQRL_UNKNOWN &&
                it->bad[i].samples != SQRL_UNKNOWN;
        if (known)
            it->bad[i].samples += bad->samples;
    }
    pthread_mutex_unlock(&it->bad_lock);
    if (known && it->on_error->policy == SQRL_ON_ERROR_ASK) /* asked for each part */
        *verdict = verdict_of(it, bad);
    else
        *verdict = it->on_error->policy;
    return known;
}

int sqrl_on_error_row(struct sqrl_iterator *it, struct sqrl_loaded *from, uint32_t row,
                      bool *replace) {
    struct sqrl_assign *a = &it->assign;
    enum sqrl_on_error verdict;
    int code = SQRL_OK;
    if (from->bad && !from->bad_told) {
        struct sqrl_bad bad = {from->shard, from->bad_block, SQRL_UNKNOWN,
                               from->to - from->from, *from->error};
        if (known_shard(it, &bad, &verdict))
            code = verdict == SQRL_ON_ERROR_RAISE ? a->error.code : SQRL_OK;
        else
            code = count_failure(it, &bad, &verdict);
        from->bad_told = true;
        from->bad_replace = verdict == SQRL_ON_ERROR_SUBSTITUTE;
    }
    *replace = from->bad_replace;
    if (from->bad)
        return code;
    code = sqrl_load_explain(it, from, row, &a->error);
    if (!tolerant(it) || !sqrl_on_error_covers(code))
        return code;
    struct sqrl_place place = sqrl_row_place(from, row);
    struct sqrl_bad bad = {place.shard, from->block ? from->block->number : SQRL_UNKNOWN,
                           place.sample, 1, a->error};
    code = count_failure(it, &bad, &verdict);
    *replace = verdict == SQRL_ON_ERROR_SUBSTITUTE;
    return code;
}

bool sqrl_on_error_rest(struct sqrl_iterator *it, const struct sqrl_loaded *loaded,
                        int *code) {
    enum sqrl_on_error verdict;
    *code = SQRL_OK;
    if (!tolerant(it) || !sqrl_on_error_covers(loaded->code) || !loaded->error)
        return false;
    struct sqrl_bad bad = {loaded->shard, SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN,
                           *loaded->error};
    *code = count_failure(it, &bad, &verdict);
    return true;
}

/* --- shards that can't be opened --- */

/* How many samples lie in front of a block of the shard, as far as its chunks tell:
 * within one they are taken to lie evenly, so that parts of a shard add up to the whole.
 */
static uint64_t samples_before(const struct sqrl_iterator *it, uint64_t shard,
                               uint64_t block) {
    uint64_t count, samples = 0, low = 0;
    const struct sqrl_shard_chunk *chunk = sqrl_source_chunks(it->source, &count);
    for (uint64_t high = count; low < high;) {
        uint64_t middle = low + (high - low) / 2;
        if (chunk[middle].shard < shard)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && chunk[low].shard == shard; low++) {
        uint64_t blocks = SQRL_MAX(chunk[low].blocks, 1u), from = chunk[low].first_block;
        if (from >= block)
            break;
        samples += chunk[low].samples * SQRL_MIN(block - from, blocks) / blocks;
    }
    return samples;
}

/* Samples of a chunk behind its first_row; SQRL_UNKNOWN: nobody knows. */
static uint64_t rows_of(const struct sqrl_iterator *it, const struct sqrl_chunk *chunk) {
    const struct sqrl_shard *shard = sqrl_source_shard(it->source, chunk->shard);
    uint64_t count, end = UINT64_MAX;
    if (chunk->rows != SQRL_UNKNOWN || !shard || shard->samples == SQRL_UNKNOWN)
        return chunk->rows;
    if (chunk->blocks != SQRL_UNKNOWN)
        end = chunk->first_block + chunk->blocks;
    bool whole = !chunk->first_block && (end == UINT64_MAX || end == shard->blocks);
    uint64_t rows = shard->samples;
    if (!whole && !sqrl_source_chunks(it->source, &count))
        return SQRL_UNKNOWN;
    if (!whole)
        rows = samples_before(it, chunk->shard, end) -
               samples_before(it, chunk->shard, chunk->first_block);
    return rows - SQRL_MIN(rows, chunk->first_row);
}

struct sqrl_loaded *sqrl_on_error_chunk(struct sqrl_iterator *it,
                                        const struct sqrl_chunk *chunk, int code,
                                        const struct sqrl_error *error) {
    uint64_t rows = tolerant(it) ? rows_of(it, chunk) : SQRL_UNKNOWN;
    if (rows >= SQRL_NO_NODE)
        return NULL;
    struct sqrl_block_info info = {.samples = (uint32_t)rows, .first = SQRL_UNKNOWN};
    return sqrl_on_error_block(it, chunk->shard, SQRL_UNKNOWN, &info, code, error);
}

void sqrl_on_error_good(struct sqrl_iterator *it, struct sqrl_loaded *from,
                        uint32_t row) {
    struct sqrl_assign *a = &it->assign;
    a->failed_in_a_row = 0;
    if (!sqrl_on_error_replaces(it))
        return;
    if (a->good != from) {
        sqrl_loaded_unref(a->good);
        a->good = sqrl_loaded_ref(from);
    }
    a->good_row = row;
}

size_t sqrl_iterator_bad(struct sqrl_iterator *it, struct sqrl_bad *out, size_t first,
                         size_t capacity) {
    pthread_mutex_lock(&it->bad_lock);
    for (size_t i = 0; i < capacity && first + i < it->bads; i++)
        out[i] = it->bad[first + i];
    size_t count = it->bads;
    pthread_mutex_unlock(&it->bad_lock);
    return count;
}
