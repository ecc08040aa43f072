/* synthetic.h - a driver whose shards are made up: any number of blocks, indexed or
 * sequential, with counts known or not, slow or failing at a chosen block.
 *
 * A test describes shards in a table and writes samples with a function of its own; the
 * table travels in small files of mem://, so everything above the format is the library's
 * own path.
 */
#ifndef TESTS_SYNTHETIC_H
#define TESTS_SYNTHETIC_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "sqrl/stream.h"

#define SYN_MAX_BLOCKS 64

struct syn_shard {
    uint32_t indexed;      /* load() any block */
    uint32_t known;        /* samples and blocks are known before opening */
    uint32_t hide_samples; /* block_info does not tell counts */
    uint32_t blocks;
    uint32_t samples[SYN_MAX_BLOCKS];
    uint32_t fail_block; /* 1-based; 0: none */
    uint32_t fail_open;
    uint32_t slow_us;   /* a block */
    uint32_t pad_bytes; /* more bytes a block, that no sample uses */
};

/* Writes sample `sample` of shard `shard`; not 0: no memory. */
typedef int (*syn_write)(struct sqrl_bytes *out, uint64_t shard, uint64_t sample);
static syn_write syn_writer;
static int syn_loads; /* blocks loaded so far */
static int syn_opens;

struct syn_reader {
    struct syn_shard shard;
    struct sqrl_context *context;
    uint64_t next_block;
};

static uint64_t syn_first(const struct syn_shard *shard, uint64_t block) {
    uint64_t first = 0;
    for (uint64_t b = 0; b < block; b++)
        first += shard->samples[b];
    return first;
}

static int syn_make(struct syn_reader *r, uint64_t number, uint64_t shard,
                    const struct sqrl_cancel *cancel, struct sqrl_block **out,
                    struct sqrl_error *err) {
    struct sqrl_bytes bytes = {0};
    struct sqrl_block *block = NULL;
    *out = NULL;
    __atomic_add_fetch(&syn_loads, 1, __ATOMIC_RELAXED);
    if (r->shard.slow_us)
        usleep(r->shard.slow_us);
    if (sqrl_cancel_requested(cancel))
        return sqrl_error_set(err, SQRL_E_CANCELLED, "cancelled");
    if (r->shard.fail_block == number + 1)
        return sqrl_error_set(err, SQRL_E_CORRUPT, "made to fail");
    uint64_t first = syn_first(&r->shard, number);
    int rc = SQRL_OK;
    for (uint32_t i = 0; i < r->shard.samples[number] && !rc; i++)
        if (syn_writer(&bytes, shard, first + i))
            rc = sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for a sample");
    size_t used = bytes.size;
    if (!rc)
        rc = sqrl_block_new(r->context, &block, err);
    if (!rc)
        rc = sqrl_buffer_new(r->context, used + r->shard.pad_bytes + 1, &block->bytes,
                             err);
    if (!rc) {
        if (used)
            memcpy(block->bytes->data, bytes.data, used);
        block->bytes->size = used;
        rc = sqrl_block_parse_msgpack(block, 0, NULL, NULL, err);
        block->bytes->size = used + r->shard.pad_bytes;
    }
    sqrl_bytes_reset(&bytes);
    if (rc) {
        sqrl_block_unref(block);
        return rc;
    }
    block->first = first;
    block->number = number;
    block->shard = shard;
    *out = block;
    return SQRL_OK;
}

struct syn_state {
    struct syn_reader reader;
    uint64_t shard;
};

static int syn_open(void *state, const struct sqrl_reader_args *args,
                    struct sqrl_shard_info *info, struct sqrl_error *err) {
    struct syn_state *s = state;
    __atomic_add_fetch(&syn_opens, 1, __ATOMIC_RELAXED);
    int rc = sqrl_file_read_exact(args->file, 0, &s->reader.shard, sizeof s->reader.shard,
                                  NULL, err);
    if (rc)
        return rc;
    if (s->reader.shard.fail_open)
        return sqrl_error_set(err, SQRL_E_FORMAT, "made to fail on opening");
    s->reader.context = args->context;
    s->shard = args->shard;
    *info = (struct sqrl_shard_info){SQRL_UNKNOWN, SQRL_UNKNOWN, SQRL_UNKNOWN, NULL};
    if (s->reader.shard.indexed) {
        info->blocks = s->reader.shard.blocks;
        info->samples = syn_first(&s->reader.shard, s->reader.shard.blocks);
    }
    return SQRL_OK;
}

static void syn_block_info(const void *state, uint64_t block,
                           struct sqrl_block_info *out) {
    const struct syn_state *s = state;
    out->first = syn_first(&s->reader.shard, block);
    out->samples =
        s->reader.shard.hide_samples ? SQRL_NO_NODE : s->reader.shard.samples[block];
    out->raw_bytes = 64u * s->reader.shard.samples[block] + 1;
}

static int syn_load(void *state, uint64_t block, const struct sqrl_cancel *cancel,
                    struct sqrl_block **out, struct sqrl_error *err) {
    struct syn_state *s = state;
    return syn_make(&s->reader, block, s->shard, cancel, out, err);
}

static int syn_next(void *state, const struct sqrl_cancel *cancel,
                    struct sqrl_block **out, struct sqrl_error *err) {
    struct syn_state *s = state;
    *out = NULL;
    if (s->reader.next_block == s->reader.shard.blocks)
        return SQRL_OK;
    return syn_make(&s->reader, s->reader.next_block++, s->shard, cancel, out, err);
}

static void syn_close(void *state) {
    (void)state;
}
static int syn_sniff(const struct sqrl_probe *probe) {
    (void)probe;
    return 0;
}

static const struct sqrl_option syn_options[] = {{NULL}};

static const struct sqrl_format_ops syn_indexed = {.size = sizeof(struct sqrl_format_ops),
                                                   .api = SQRL_FORMAT_API,
                                                   .name = "synthetic",
                                                   .doc = "made up",
                                                   .suffixes = ".syn",
                                                   .flags = SQRL_FORMAT_INDEXED,
                                                   .options = syn_options,
                                                   .sniff = syn_sniff,
                                                   .reader_size =
                                                       sizeof(struct syn_state),
                                                   .open = syn_open,
                                                   .block_info = syn_block_info,
                                                   .load = syn_load,
                                                   .next = syn_next,
                                                   .close = syn_close};
static const struct sqrl_format_ops syn_sequential = {
    .size = sizeof(struct sqrl_format_ops),
    .api = SQRL_FORMAT_API,
    .name = "synthetic-seq",
    .doc = "made up",
    .suffixes = ".syn",
    .options = syn_options,
    .sniff = syn_sniff,
    .reader_size = sizeof(struct syn_state),
    .open = syn_open,
    .next = syn_next,
    .close = syn_close};

static const struct syn_shard *syn_table;
static size_t syn_count;

static int syn_list(const struct sqrl_driver_args *args, struct sqrl_shard_list *out,
                    struct sqrl_error *err) {
    (void)args;
    for (size_t i = 0; i < syn_count; i++) {
        char path[64];
        const struct syn_shard *s = &syn_table[i];
        snprintf(path, sizeof path, "syn/%06zu.syn", i);
        struct sqrl_shard known = {.file_bytes = sizeof *s,
                                   .samples = SQRL_UNKNOWN,
                                   .blocks = SQRL_UNKNOWN,
                                   .raw_bytes = SQRL_UNKNOWN};
        if (s->indexed && s->known) {
            known.samples = syn_first(s, s->blocks);
            known.blocks = s->blocks;
            known.raw_bytes = 64 * known.samples + 1;
        }
        int rc = sqrl_shard_list_add(
            out, path, s->indexed ? &syn_indexed : &syn_sequential, &known, err);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

static const struct sqrl_driver_ops syn_driver = {.size = sizeof(struct sqrl_driver_ops),
                                                  .api = SQRL_DRIVER_API,
                                                  .name = "synthetic",
                                                  .doc = "made up",
                                                  .format = &syn_indexed,
                                                  .options = syn_options,
                                                  .open = syn_list};

static int syn_must(int rc, const struct sqrl_error *err) {
    if (rc) {
        char text[1100];
        sqrl_error_text(err, text, sizeof text);
        print_error("unexpected: %s\n", text);
    }
    assert_int_equal(rc, SQRL_OK);
    return rc;
}

/* A context with this many threads that knows the driver. */
static struct sqrl_context *syn_context(unsigned threads, uint64_t budget) {
    struct sqrl_error err;
    struct sqrl_context *context;
    struct sqrl_config config = {
        .size = sizeof config, .cpu_threads = threads, .memory_budget_bytes = budget};
    syn_must(sqrl_context_new(&config, &context, &err), &err);
    syn_must(sqrl_driver_register(context, &syn_driver, &err), &err);
    return context;
}

/* A source over the table. */
static struct sqrl_source *syn_source(struct sqrl_context *context,
                                      const struct syn_shard *table, size_t count) {
    struct sqrl_error err;
    struct sqrl_fs *fs;
    char *path;
    struct sqrl_source *source;
    syn_must(sqrl_fs_for_url(context, "mem://syn", NULL, &fs, &path, &err), &err);
    syn_must(sqrl_fs_make_directory(fs, path, &err), &err);
    free(path);
    for (size_t i = 0; i < count; i++) {
        struct sqrl_file_writer *writer;
        char name[64];
        snprintf(name, sizeof name, "syn/%06zu.syn", i);
        syn_must(sqrl_file_create(fs, name, true, &writer, &err), &err);
        syn_must(sqrl_file_write(writer, &table[i], sizeof table[i], &err), &err);
        syn_must(sqrl_file_commit(writer, &err), &err);
    }
    sqrl_fs_unref(fs);
    syn_table = table;
    syn_count = count;
    struct sqrl_setting setting = {"driver", "synthetic"};
    struct sqrl_settings settings = {&setting, 1};
    syn_must(sqrl_open(context, "mem://syn", &settings, &source, &err), &err);
    return source;
}

/* Pools end their threads without waiting for them; a leak checker must. Group teardown.
 */
static inline int syn_settle(void **state) {
    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        unsigned threads = 0;
        DIR *tasks = opendir("/proc/self/task");
        while (tasks && readdir(tasks))
            threads++;
        if (!tasks)
            return 0;
        closedir(tasks);
        if (threads <= 3) /* ".", ".." and this one */
            return 0;
        usleep(1000);
    }
    return 0;
}

static struct sqrl_plan *syn_plan(struct sqrl_source *source) {
    struct sqrl_error err;
    struct sqrl_plan *plan;
    syn_must(sqrl_plan_source(source, &plan, &err), &err);
    return plan;
}

/* Replaces *plan by its successor. */
#define SYN_STAGE(plan, call)                                                            \
    do {                                                                                 \
        struct sqrl_error syn_err;                                                       \
        struct sqrl_plan *syn_next_plan;                                                 \
        syn_must(call, &syn_err);                                                        \
        sqrl_plan_unref(plan);                                                           \
        plan = syn_next_plan;                                                            \
    } while (0)
#define SYN_OUT &syn_next_plan, &syn_err

#endif
