/* What streams read where the file system is remote: how many requests and bytes, how
 * many at a time, in which order, with what in memory; errors in their place, damage on
 * the way, closing while requests hang. Counts are arithmetic on the files' sizes. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "io/io.h"
#include "sqrl/pack.h"
#include "sqrl/stream.h"
#include "support/fault_fs.h"

#define MIB (UINT64_C(1) << 20)
enum { SAMPLE_BYTES = 100000, SHARDS = 5, PER_SHARD = 130, SAMPLES = SHARDS * PER_SHARD };

static struct sqrl_context *context;
static struct sqrl_fs *memory;

/* --- a file system that lets reads go only when so many are under way --- */
struct gate {
    struct sqrl_fs *inner;
    unsigned want; /* 0: all pass */
    unsigned under_way, most, reads;
    int hold;       /* nobody passes before it is 0; a cancelled read does */
    unsigned flip;  /* this read comes with a flipped bit */
    unsigned alone; /* reads that waited for others in vain */
};
static struct gate gate;

static void pause_ms(void) {
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static unsigned get(const unsigned *at) {
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static int gate_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                     void *arg, const struct sqrl_cancel *cancel,
                     struct sqrl_error *err) {
    return sqrl_fs_list(gate.inner, path, recursive, visit, arg, cancel, err);
}

static int gate_stat(void *fs, const char *path, struct sqrl_stat *out,
                     struct sqrl_error *err) {
    return sqrl_fs_stat(gate.inner, path, out, err);
}

static int gate_open(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                     struct sqrl_error *err) {
    int rc = sqrl_file_open_known(gate.inner, path, stat, file, err);
    if (rc == SQRL_OK)
        *stat = *sqrl_file_stat(*(struct sqrl_file **)file);
    return rc;
}

static int gate_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                     const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    unsigned now = __atomic_add_fetch(&gate.under_way, 1, __ATOMIC_SEQ_CST);
    unsigned number = __atomic_add_fetch(&gate.reads, 1, __ATOMIC_SEQ_CST);
    unsigned most = get(&gate.most);
    while (now > most && !__atomic_compare_exchange_n(&gate.most, &most, now, false,
                                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
    uint64_t until = sqrl_now_ns() + UINT64_C(60000000000);
    while (get(&gate.most) < gate.want && sqrl_now_ns() < until)
        pause_ms();
    if (get(&gate.most) < gate.want)
        __atomic_add_fetch(&gate.alone, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&gate.hold, __ATOMIC_SEQ_CST) &&
           !sqrl_cancel_requested(cancel))
        pause_ms();
    int rc = sqrl_file_read(*(struct sqrl_file **)file, ranges, count, cancel, err);
    if (rc == SQRL_OK && number == gate.flip)
        ranges[0].data[ranges[0].got / 2] ^= 1;
    __atomic_sub_fetch(&gate.under_way, 1, __ATOMIC_SEQ_CST);
    return rc;
}

static void gate_close(void *fs, void *file) {
    sqrl_file_unref(*(struct sqrl_file **)file);
}

static const struct sqrl_fs_ops gate_ops = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "gate",
    .schemes = "gate",
    .doc = "",
    .flags = SQRL_FS_LISTABLE,
    .file_size = sizeof(struct sqrl_file *),
    .stat = gate_stat,
    .list = gate_list,
    .file_open = gate_open,
    .file_read = gate_read,
    .file_close = gate_close,
};

/* --- the data --- */
static void put_sample(struct sqrl_packer *packer, uint64_t i) {
    static uint8_t noise[SAMPLE_BYTES];
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, i);
    for (size_t k = 0; k + 8 <= sizeof noise; k += 8)
        sqrl_store_le64(noise + k, sqrl_rng_next(&rng));
    struct sqrl_bytes *bytes = sqrl_packer_bytes(packer);
    assert_int_equal(sqrl_msgpack_put_map(bytes, 2, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(bytes, "i", 1, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_uint(bytes, i, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_string(bytes, "x", 1, NULL), SQRL_OK);
    assert_int_equal(sqrl_msgpack_put_binary(bytes, noise, sizeof noise, NULL), SQRL_OK);
    assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
}

static void pack(const char *url, const char *format, const char *codec) {
    struct sqrl_setting setting = {"codec", codec};
    struct sqrl_settings settings = {&setting, 1};
    struct sqrl_pack_options options = {.size = sizeof options,
                                        .format = format,
                                        .samples_per_shard = PER_SHARD,
                                        .prefix = "p",
                                        .settings = &settings};
    struct sqrl_packer *packer = NULL;
    struct sqrl_error err = {0};
    if (sqrl_packer_open(context, url, &options, &packer, &err))
        fail_msg("%s: %s", err.where, err.message);
    for (uint64_t i = 0; i < SAMPLES; i++)
        put_sample(packer, i);
    assert_int_equal(sqrl_packer_finish(packer, NULL, NULL), SQRL_OK);
}

static int set_up(void **state) {
    struct sqrl_config config = {.size = sizeof config, .log_level = SQRL_LOG_ERROR};
    char *path = NULL;
    if (sqrl_context_new(&config, &context, NULL) ||
        sqrl_fs_for_url(context, "mem://", NULL, &memory, &path, NULL))
        return 1;
    free(path);
    pack("mem://native", "sqrl", "none");
    pack("mem://lines", "messagepack", "gzip");
    return 0;
}

static int tear_down(void **state) {
    sqrl_fs_unref(memory);
    sqrl_context_unref(context);
    return 0;
}

static struct sqrl_source *open_in(struct sqrl_fs *fs, const char *path) {
    struct sqrl_source *source = NULL;
    struct sqrl_error err = {0};
    if (sqrl_open_in(context, fs, path, path, NULL, &source, &err))
        fail_msg("%s: %s", err.where, err.message);
    return source;
}

static struct sqrl_fs *throttled(void) {
    struct sqrl_link link = {.size = sizeof link, .latency_us = 1000};
    struct sqrl_fs *fs = NULL;
    assert_int_equal(sqrl_fs_throttle(memory, &link, &fs, NULL), SQRL_OK);
    return fs;
}

static struct sqrl_fs *gated(void) {
    struct sqrl_fs *fs = NULL;
    memset(&gate, 0, sizeof gate);
    gate.inner = memory;
    assert_int_equal(sqrl_fs_new(context, &gate_ops, NULL, &fs, NULL), SQRL_OK);
    return fs;
}

static struct sqrl_plan *plan_of(struct sqrl_source *source, bool shuffled) {
    struct sqrl_plan *plan = NULL, *after = NULL;
    assert_int_equal(sqrl_plan_source(source, &plan, NULL), SQRL_OK);
    if (!shuffled)
        return plan;
    assert_int_equal(sqrl_plan_shuffle_all(plan, 7, 32 * MIB, &after, NULL), SQRL_OK);
    sqrl_plan_unref(plan);
    return after;
}

static uint64_t id_of(const struct sqrl_sample *sample) {
    const struct sqrl_node *nodes = sample->block->tape.nodes;
    uint32_t at = sqrl_map_find(nodes, sample->block->begin[sample->index],
                                sample->block->bytes->data, "i", 1);
    return nodes[at].v.u;
}

/* Reads on: ids[0, *count). Returns the code at the end. */
static int drain(struct sqrl_iterator *it, uint64_t *ids, uint64_t *count,
                 struct sqrl_error *err) {
    struct sqrl_run *run = NULL;
    int rc;
    *count = 0;
    while (!(rc = sqrl_iterator_next_run(it, &run, err)) && run) {
        for (uint64_t i = 0; i < run->count; i++) {
            assert_true(*count < SAMPLES);
            ids[(*count)++] = id_of(&run->samples[i]);
        }
        sqrl_run_release(run);
    }
    return rc;
}

static void drain_all(struct sqrl_plan *plan, uint64_t *ids) {
    struct sqrl_iterator *it = NULL;
    struct sqrl_error err = {0};
    uint64_t count = 0;
    assert_int_equal(sqrl_iterator_open(plan, &it, NULL), SQRL_OK);
    if (drain(it, ids, &count, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(count, SAMPLES);
    sqrl_iterator_close(it);
}

static void check_ordered(const uint64_t *ids) {
    for (uint64_t i = 0; i < SAMPLES; i++)
        assert_int_equal(ids[i], i);
}

static uint64_t pieces(uint64_t bytes) {
    return (bytes + 4 * MIB - 1) / (4 * MIB);
}

static uint64_t ids[SAMPLES];

/* Requests, and bytes, of all blocks once the indexes are known. */
static uint64_t data_of(struct sqrl_source *source, uint64_t *bytes) {
    uint64_t requests = 0, sum = 0;
    for (uint64_t s = 0; s < SHARDS; s++) {
        struct sqrl_shard_reader *reader = NULL;
        struct sqrl_block_info last;
        assert_int_equal(sqrl_shard_open(source, s, &reader, NULL), SQRL_OK);
        sqrl_shard_reader_block_info(reader, sqrl_shard_reader_info(reader)->blocks - 1,
                                     &last);
        sum += last.offset + last.stored_bytes;
        requests += pieces(last.offset + last.stored_bytes);
        sqrl_shard_reader_unref(reader);
    }
    if (bytes)
        *bytes = sum;
    return requests;
}

/* A cold epoch in order: each shard once, in pieces of at most 4 MiB, its index in one of
 * them; the next one without the index. */
static void counts_in_order(void **state) {
    struct sqrl_fs *fs = throttled();
    struct sqrl_source *source = open_in(fs, "native");
    struct sqrl_plan *plan = plan_of(source, false);
    struct sqrl_fs_metrics before, after;
    uint64_t requests = 0, bytes = 0, limit = 0;
    assert_int_equal(sqrl_source_shards(source), SHARDS);
    for (uint64_t s = 0; s < SHARDS; s++) {
        const struct sqrl_shard *shard = sqrl_source_shard(source, s);
        requests += pieces(shard->file_bytes);
        bytes += shard->file_bytes;
        limit += shard->file_bytes / (4 * MIB) + 2;
    }
    assert_true(requests >= 3 * SHARDS && requests <= limit);
    sqrl_fs_metrics(fs, &before);
    drain_all(plan, ids);
    sqrl_fs_metrics(fs, &after);
    check_ordered(ids);
    assert_int_equal(after.requests - before.requests, requests);
    assert_int_equal(after.bytes - before.bytes, bytes);
    assert_int_equal(after.lists, before.lists);
    uint64_t data, data_requests = data_of(source, &data);
    sqrl_plan_unref(plan); /* of one plan, a third pass would be begun */
    plan = plan_of(source, false);
    before = after;
    drain_all(plan, ids);
    sqrl_fs_metrics(fs, &after);
    assert_int_equal(after.requests - before.requests, data_requests);
    assert_int_equal(after.bytes - before.bytes, data);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
}

/* Compressed as a whole: all the same. */
static void counts_sequential(void **state) {
    struct sqrl_fs *fs = throttled();
    struct sqrl_source *source = open_in(fs, "lines");
    struct sqrl_plan *plan = plan_of(source, false);
    struct sqrl_fs_metrics before, after;
    uint64_t requests = 0, bytes = 0;
    for (uint64_t s = 0; s < sqrl_source_shards(source); s++) {
        requests += pieces(sqrl_source_shard(source, s)->file_bytes);
        bytes += sqrl_source_shard(source, s)->file_bytes;
    }
    for (unsigned epoch = 0; epoch < 2; epoch++) {
        sqrl_fs_metrics(fs, &before);
        drain_all(plan, ids);
        sqrl_plan_unref(plan); /* as above */
        plan = plan_of(source, false);
        sqrl_fs_metrics(fs, &after);
        check_ordered(ids);
        assert_int_equal(after.requests - before.requests, requests);
        assert_int_equal(after.bytes - before.bytes, bytes);
    }
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
}

/* The order of a shuffled stream is that of the link-free one; every byte comes once. */
static void shuffled(void **state) {
    struct sqrl_fs *fs = throttled();
    struct sqrl_source *source = open_in(fs, "native"), *near = open_in(memory, "native");
    struct sqrl_plan *plan = plan_of(source, true), *near_plan = plan_of(near, true);
    struct sqrl_fs_metrics before, after;
    static uint64_t expected[SAMPLES];
    uint64_t bytes = 0;
    drain_all(near_plan, expected);
    sqrl_fs_metrics(fs, &before);
    drain_all(plan, ids);
    sqrl_fs_metrics(fs, &after);
    assert_memory_equal(ids, expected, sizeof ids);
    for (uint64_t s = 0; s < SHARDS; s++)
        bytes += sqrl_source_shard(source, s)->file_bytes;
    assert_true(after.bytes - before.bytes <= bytes + SHARDS * 48 * 1024);
    assert_true(after.bytes - before.bytes >= bytes - SHARDS * 48 * 1024);
    sqrl_plan_unref(plan);
    sqrl_plan_unref(near_plan);
    sqrl_source_unref(source);
    sqrl_source_unref(near);
    sqrl_fs_unref(fs);
}

/* Nothing passes before eight are under way: one after another it would never end. */
static void many_at_a_time(void **state) {
    for (unsigned kind = 0; kind < 3; kind++) {
        struct sqrl_fs *fs = gated();
        struct sqrl_source *source = open_in(fs, kind == 2 ? "lines" : "native");
        struct sqrl_plan *plan = plan_of(source, kind == 1);
        struct sqrl_iterator *it = NULL;
        struct sqrl_error err = {0};
        uint64_t count;
        gate.want =
            kind == 1 ? 2 : 8; /* shuffled: the indexes of some shards come first */
        gate.most = 0;
        assert_int_equal(sqrl_iterator_open(plan, &it, NULL), SQRL_OK);
        assert_int_equal(drain(it, ids, &count, &err), SQRL_OK);
        assert_int_equal(count, SAMPLES);
        if (gate.alone)
            fail_msg("%u: %u at a time, %u waited", kind, gate.most, gate.alone);
        sqrl_iterator_close(it);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_fs_unref(fs);
    }
}

/* Closing waits for nobody; what hangs ends by its cancel token. */
static void closes_at_once(void **state) {
    struct sqrl_fs *fs = gated();
    struct sqrl_source *source = open_in(fs, "native");
    struct sqrl_plan *plan = plan_of(source, false);
    struct sqrl_iterator *it = NULL;
    __atomic_store_n(&gate.hold, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(sqrl_iterator_open(plan, &it, NULL), SQRL_OK);
    uint64_t until = sqrl_now_ns() + UINT64_C(60000000000);
    while (get(&gate.under_way) < 2 && sqrl_now_ns() < until)
        pause_ms();
    assert_true(get(&gate.under_way) >= 2);
    sqrl_iterator_close(it); /* the gate is shut all the while */
    while (get(&gate.under_way) > 0 && sqrl_now_ns() < until)
        pause_ms();
    assert_int_equal(get(&gate.under_way), 0);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
}

/* What is good before a failed request comes first, then its error. */
static void errors_in_place(void **state) {
    for (unsigned read = 1; read < 15; read += 2) {
        static struct fault_plan plans[8]; /* reads may go on behind close */
        struct fault_plan *faults = &plans[read / 2];
        struct sqrl_fs *fs = NULL;
        assert_int_equal(fault_fs_new(memory, faults, &fs, NULL), SQRL_OK);
        sqrl_fs_set_flags(fs, sqrl_fs_flags(fs) & ~(uint32_t)SQRL_FS_LOCAL);
        struct sqrl_source *source = open_in(fs, "native");
        struct sqrl_plan *plan = plan_of(source, false);
        struct sqrl_iterator *it = NULL;
        struct sqrl_error err = {0};
        uint64_t count;
        faults->fail_read = faults->reads + read;
        faults->times = UINT_MAX;
        assert_int_equal(sqrl_iterator_open(plan, &it, NULL), SQRL_OK);
        assert_int_equal(drain(it, ids, &count, &err), SQRL_E_IO);
        assert_true(count < SAMPLES);
        assert_non_null(strstr(err.where, ".sqrl"));
        for (uint64_t i = 0; i < count; i++)
            assert_int_equal(ids[i], i);
        sqrl_iterator_close(it);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_fs_unref(fs);
    }
}

/* A bit that was flipped on the way: the block is read once more, and is good. */
static void damage_on_the_way(void **state) {
    struct sqrl_fs *fs = gated();
    struct sqrl_source *source = open_in(fs, "native");
    struct sqrl_plan *plan = plan_of(source, true);
    struct sqrl_iterator *it = NULL;
    struct sqrl_error err = {0};
    uint64_t count;
    drain_all(plan, ids); /* the indexes are read, so that data come next */
    gate.flip = gate.reads + 3;
    unsigned before = gate.reads;
    assert_int_equal(sqrl_iterator_open(plan, &it, NULL), SQRL_OK);
    if (drain(it, ids, &count, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(count, SAMPLES);
    assert_true(gate.reads > before + 3);
    sqrl_iterator_close(it);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
}

static void note_peak(void *arg, const struct sqrl_metric *metric) {
    if (strcmp(metric->name, "budget.peak_bytes") == 0)
        *(uint64_t *)arg = metric->value;
}

/* All that is on the way and in memory stays within the budget, but for what the head of
 * the line is always given: a piece and a block. */
static void within_the_budget(void **state) {
    for (unsigned kind = 0; kind < 3; kind++) {
        struct sqrl_context *outer = context;
        struct sqrl_config config = {.size = sizeof config,
                                     .memory_budget_bytes = 40 * MIB,
                                     .log_level = SQRL_LOG_ERROR};
        struct sqrl_context *small = NULL;
        assert_int_equal(sqrl_context_new(&config, &small, NULL), SQRL_OK);
        context = small;
        struct sqrl_fs *fs = gated();
        struct sqrl_source *source = open_in(fs, kind == 2 ? "lines" : "native");
        struct sqrl_plan *plan = plan_of(source, kind == 1);
        uint64_t peak = 0;
        drain_all(plan, ids);
        sqrl_context_metrics(small, note_peak, &peak);
        uint64_t most = kind == 1 ? 80 * MIB : 40 * MIB; /* two windows are asked for */
        if (peak > most + 12 * MIB)
            fail_msg("kind %u: %llu bytes", kind, (unsigned long long)peak);
        assert_true(peak > 6 * MIB);
        sqrl_plan_unref(plan);
        sqrl_source_unref(source);
        sqrl_fs_unref(fs);
        context = outer;
        sqrl_context_unref(small);
    }
}

/* Only what a plan takes is asked for: the tail of one shard, and a bounded part ahead.
 */
static void taking_few(void **state) {
    struct sqrl_fs *fs = throttled();
    struct sqrl_source *source = open_in(fs, "native");
    struct sqrl_plan *all = plan_of(source, false), *plan = NULL;
    struct sqrl_iterator *it = NULL;
    struct sqrl_fs_metrics before, after;
    uint64_t count;
    assert_int_equal(sqrl_plan_take(all, 3, &plan, NULL), SQRL_OK);
    sqrl_fs_metrics(fs, &before);
    assert_int_equal(sqrl_iterator_open(plan, &it, NULL), SQRL_OK);
    assert_int_equal(drain(it, ids, &count, NULL), SQRL_OK);
    assert_int_equal(count, 3);
    sqrl_iterator_close(it);
    sqrl_fs_metrics(fs, &after);
    assert_true(after.bytes - before.bytes <= 24 * MIB);
    sqrl_plan_unref(plan);
    sqrl_plan_unref(all);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
}

/* One sample: its shard's index and its block, together below 1.1 MB; its block; nothing.
 * Samples of several shards: all at the same time. */
static void by_position(void **state) {
    struct sqrl_fs *fs = throttled();
    struct sqrl_source *source = open_in(fs, "native");
    static const struct {
        uint64_t index, requests;
    } steps[] = {{400, 2}, {SAMPLES - 200, 1}, {400, 0}, {SAMPLES - 200, 0}, {3, 2}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct sqrl_fs_metrics before, after;
        struct sqrl_samples *samples = NULL;
        sqrl_fs_metrics(fs, &before);
        assert_int_equal(
            sqrl_source_get_many(source, &steps[i].index, 1, NULL, &samples, NULL), 0);
        sqrl_fs_metrics(fs, &after);
        assert_int_equal(id_of(&samples->samples[0]), steps[i].index);
        assert_int_equal(after.requests - before.requests, steps[i].requests);
        uint64_t shard, row, stored = 0;
        struct sqrl_shard_reader *reader = NULL;
        struct sqrl_block_info info = {0};
        assert_int_equal(sqrl_source_locate(source, steps[i].index, &shard, &row, NULL),
                         0);
        assert_int_equal(sqrl_shard_open(source, shard, &reader, NULL), SQRL_OK);
        for (uint64_t b = 0; info.first + info.samples <= row; b++)
            sqrl_shard_reader_block_info(reader, b, &info);
        sqrl_shard_reader_unref(reader);
        stored = steps[i].requests > 0 ? info.stored_bytes : 0;
        assert_int_equal(after.bytes - before.bytes,
                         stored + (steps[i].requests > 1 ? 48 * 1024 : 0));
        assert_int_equal(after.lists, before.lists);
        sqrl_samples_release(samples);
    }
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
    fs = gated();
    source = open_in(fs, "native");
    gate.want = SHARDS;
    gate.most = 0;
    uint64_t indices[SHARDS];
    struct sqrl_samples *samples = NULL;
    for (uint64_t s = 0; s < SHARDS; s++)
        indices[s] = (SHARDS - 1 - s) * PER_SHARD + 7;
    assert_int_equal(sqrl_source_get_many(source, indices, SHARDS, NULL, &samples, NULL),
                     0);
    for (uint64_t s = 0; s < SHARDS; s++)
        assert_int_equal(id_of(&samples->samples[s]), indices[s]);
    assert_int_equal(gate.alone, 0);
    sqrl_samples_release(samples);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
}

/* A data set of very many shards: its commits are listed and read, and nothing else; the
 * first sample takes one more round trip. */
static void opening_many_shards(void **state) {
    enum { MANY = 10000 };
    struct sqrl_pack_options options = {
        .size = sizeof options, .samples_per_shard = 1, .prefix = "p"};
    struct sqrl_packer *packer = NULL;
    struct sqrl_fs *fs = throttled();
    struct sqrl_fs_metrics metrics;
    assert_int_equal(sqrl_packer_open(context, "mem://many", &options, &packer, NULL), 0);
    for (uint64_t i = 0; i < MANY; i++) {
        struct sqrl_bytes *bytes = sqrl_packer_bytes(packer);
        assert_int_equal(sqrl_msgpack_put_map(bytes, 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(bytes, "i", 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_uint(bytes, i, NULL), SQRL_OK);
        assert_int_equal(sqrl_packer_accept(packer, NULL), SQRL_OK);
    }
    assert_int_equal(sqrl_packer_finish(packer, NULL, NULL), SQRL_OK);
    struct sqrl_source *source = open_in(fs, "many");
    assert_int_equal(sqrl_source_shards(source), MANY);
    assert_int_equal(sqrl_source_samples(source), MANY);
    sqrl_fs_metrics(fs, &metrics);
    assert_int_equal(metrics.lists, 1);
    assert_int_equal(metrics.requests, 1);
    uint64_t index = 7777;
    struct sqrl_samples *samples = NULL;
    assert_int_equal(sqrl_source_get_many(source, &index, 1, NULL, &samples, NULL), 0);
    assert_int_equal(id_of(&samples->samples[0]), index);
    sqrl_samples_release(samples);
    sqrl_fs_metrics(fs, &metrics);
    assert_int_equal(metrics.lists + metrics.requests, 4);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
}

/* Passes that follow each other: the next one's reads begin before it is started, and are
 * not made again; what was begun in vain goes with the plan. */
static void epochs_overlap(void **state) {
    struct sqrl_fs *fs = gated();
    struct sqrl_source *source = open_in(fs, "native");
    struct sqrl_plan *plan = plan_of(source, false);
    uint64_t until = sqrl_now_ns() + UINT64_C(60000000000);
    uint64_t requests = data_of(source, NULL);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        struct sqrl_iterator_options options = {.size = sizeof options, .epoch = epoch};
        struct sqrl_iterator *it = NULL;
        uint64_t count;
        unsigned before = get(&gate.reads);
        assert_int_equal(sqrl_iterator_start(plan, &options, &it, NULL), SQRL_OK);
        assert_int_equal(drain(it, ids, &count, NULL), SQRL_OK);
        assert_int_equal(count, SAMPLES);
        check_ordered(ids);
        sqrl_iterator_close(it);
        /* Nobody has asked for epoch 2, and its reads come. */
        while (epoch == 1 && get(&gate.reads) - before <= requests &&
               sqrl_now_ns() < until)
            pause_ms();
        assert_true(epoch != 1 || get(&gate.reads) - before > requests);
    }
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
    while (get(&gate.under_way) > 0 && sqrl_now_ns() < until)
        pause_ms();
    assert_int_equal(get(&gate.under_way), 0);
}

/* A pass of which somebody says what follows it; returns how many reads it took. */
static unsigned pass(struct sqrl_plan *plan, uint64_t epoch, enum sqrl_follow follow,
                     uint64_t next_epoch) {
    struct sqrl_iterator_options options = {.size = sizeof options,
                                            .epoch = epoch,
                                            .follow = follow,
                                            .next_epoch = next_epoch};
    struct sqrl_iterator *it = NULL;
    uint64_t count;
    unsigned before = get(&gate.reads);
    assert_int_equal(sqrl_iterator_start(plan, &options, &it, NULL), SQRL_OK);
    assert_int_equal(drain(it, ids, &count, NULL), SQRL_OK);
    assert_int_equal(count, SAMPLES);
    sqrl_iterator_close(it);
    return get(&gate.reads) - before;
}

/* What is said counts: the first pass's successor is begun; nothing is, behind the last;
 * and where another one comes than was said, nobody is believed again. */
static void epochs_are_told(void **state) {
    struct sqrl_fs *fs = gated();
    struct sqrl_source *source = open_in(fs, "native");
    struct sqrl_plan *plan = plan_of(source, true);
    uint64_t until = sqrl_now_ns() + UINT64_C(60000000000);
    pass(plan, 2, SQRL_FOLLOW_NONE, 0); /* indexes are kept from now on */
    unsigned before, each = pass(plan, 4, SQRL_FOLLOW_NONE, 0);
    sqrl_plan_unref(plan);
    assert_true(each > 1);
    plan = plan_of(source, true);
    before = get(&gate.reads);
    pass(plan, 0, SQRL_FOLLOW_NEXT, 7);
    while (get(&gate.reads) - before <= each && sqrl_now_ns() < until)
        pause_ms();
    assert_true(get(&gate.reads) - before > each);
    pass(plan, 7, SQRL_FOLLOW_NONE, 0);
    pass(plan, 8, SQRL_FOLLOW_NONE, 0);
    pass(plan, 9, SQRL_FOLLOW_NONE, 0);
    assert_int_equal(get(&gate.reads) - before, 4 * each);
    pass(plan, 20, SQRL_FOLLOW_NEXT, 21);
    while (get(&gate.reads) - before <= 5 * each && sqrl_now_ns() < until)
        pause_ms();
    unsigned in_vain = get(&gate.reads);
    pass(plan, 30, SQRL_FOLLOW_NEXT, 31);
    while (get(&gate.under_way) > 0 && sqrl_now_ns() < until)
        pause_ms();
    assert_true(get(&gate.reads) - in_vain <= 2 * each);
    in_vain = get(&gate.reads);
    assert_int_equal(pass(plan, 40, SQRL_FOLLOW_NEXT, 41), each);
    assert_int_equal(get(&gate.reads) - in_vain, each);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
    sqrl_fs_unref(fs);
    while (get(&gate.under_way) > 0 && sqrl_now_ns() < until)
        pause_ms();
}

/* What is forecast is what a cold run asks for, of whole shards, of windows of them, of
 * one rank's part. */
static void forecast_is_a_run(void **state) {
    for (unsigned kind = 0; kind < 6; kind++) {
        struct sqrl_fs *fs = throttled();
        struct sqrl_forecast forecast;
        struct sqrl_fs_metrics before, after;
        for (unsigned run = 0; run < 2; run++) { /* each of a source of its own */
            struct sqrl_source *source = open_in(run ? fs : memory, "native");
            struct sqrl_plan *plan = plan_of(source, kind % 2), *part = NULL;
            struct sqrl_iterator *it = NULL;
            uint64_t count;
            if (kind >= 2) {
                struct sqrl_distribute_options o = {.size = sizeof o};
                o.topology = (struct sqrl_topology){kind / 2 - 1, 3, 0, 1};
                assert_int_equal(sqrl_plan_distribute(plan, &o, &part, NULL), SQRL_OK);
                sqrl_plan_unref(plan);
                plan = part;
            }
            if (!run) {
                assert_int_equal(sqrl_plan_forecast(plan, 0, &forecast, NULL), SQRL_OK);
            } else {
                sqrl_fs_metrics(fs, &before);
                assert_int_equal(sqrl_iterator_open(plan, &it, NULL), SQRL_OK);
                assert_int_equal(drain(it, ids, &count, NULL), SQRL_OK);
                sqrl_iterator_close(it);
                sqrl_fs_metrics(fs, &after);
                assert_int_equal(count, forecast.items);
                assert_int_equal(after.bytes - before.bytes, forecast.request_bytes);
                assert_int_equal(after.requests - before.requests, forecast.requests);
                assert_true(forecast.first_requests <= forecast.requests);
                assert_true(forecast.first_requests > 0);
                assert_int_equal(forecast.first_rounds, kind == 0 ? 1 : 2);
            }
            sqrl_plan_unref(plan);
            sqrl_source_unref(source);
        }
        sqrl_fs_unref(fs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_in_order),
        cmocka_unit_test(counts_sequential),
        cmocka_unit_test(shuffled),
        cmocka_unit_test(many_at_a_time),
        cmocka_unit_test(closes_at_once),
        cmocka_unit_test(errors_in_place),
        cmocka_unit_test(damage_on_the_way),
        cmocka_unit_test(within_the_budget),
        cmocka_unit_test(taking_few),
        cmocka_unit_test(by_position),
        cmocka_unit_test(opening_many_shards),
        cmocka_unit_test(epochs_overlap),
        cmocka_unit_test(epochs_are_told),
        cmocka_unit_test(forecast_is_a_run),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
