/* stream_bench.c - samples/s of runs and batches, straight from C.
 *
 *     stream_bench make-a DIR [samples]      image uint8[32,32,3] (noise) and label
 *     stream_bench make-p DIR [samples]      image uint8[224,224,3] (noise) and label
 *     stream_bench make-b DIR [samples]      {"text": about 130 bytes}
 *     stream_bench runs|batches PATH [epochs] [batch_size] [shuffle_seed]
 *
 * Prints one JSON line an epoch, the stages' busy and waiting times in it.
 * SQRL_BENCH_THREADS sets the number of threads, SQRL_BENCH_FILTER a filter expression.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "sqrl/context.h"
#include "sqrl/pack.h"
#include "sqrl/stream.h"

static void must(int code, const struct sqrl_error *err) {
    char text[1100];
    if (!code)
        return;
    sqrl_error_text(err, text, sizeof text);
    fprintf(stderr, "stream_bench: %s\n", text);
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t noise(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int put_image(struct sqrl_bytes *out, uint64_t *state, uint64_t side,
                     struct sqrl_error *err) {
    static uint64_t image[224 * 224 * 3 / 8];
    uint64_t shape[3] = {side, side, 3};
    for (unsigned i = 0; i < side * side * 3 / 8; i++)
        image[i] = noise(state);
    int rc = sqrl_msgpack_put_map(out, 2, err);
    if (!rc)
        rc = sqrl_msgpack_put_string(out, "image", 5, err);
    if (!rc)
        rc = sqrl_msgpack_put_ndarray(out, SQRL_DTYPE_UINT8, shape, 3, image, err);
    if (!rc)
        rc = sqrl_msgpack_put_string(out, "label", 5, err);
    return rc ? rc : sqrl_msgpack_put_int(out, (int64_t)(noise(state) % 10), err);
}

static int put_b(struct sqrl_bytes *out, uint64_t *state, struct sqrl_error *err) {
    static const char *const WORDS[] = {"the ",   "data ",     "of ",   "a ",   "stream ",
                                        "batch ", "squirrel ", "fast ", "and ", "order "};
    char text[256];
    size_t n = 0, want = 100 + noise(state) % 60;
    while (n < want)
        n += (size_t)(stpcpy(text + n, WORDS[noise(state) % 10]) - (text + n));
    n += (size_t)sprintf(text + n, "%llu", (unsigned long long)(noise(state) % 100000));
    int rc = sqrl_msgpack_put_map(out, 1, err);
    if (!rc)
        rc = sqrl_msgpack_put_string(out, "text", 4, err);
    return rc ? rc : sqrl_msgpack_put_string(out, text, n, err);
}

static void make(struct sqrl_context *context, const char *what, const char *path,
                 uint64_t samples) {
    struct sqrl_error err;
    struct sqrl_packer *packer;
    struct sqrl_pack_options options = {.size = sizeof options, .overwrite = true};
    uint64_t state = 88172645463325252u;
    if (!strcmp(what, "make-a"))
        options.samples_per_shard = 1000;
    must(sqrl_packer_open(context, path, &options, &packer, &err), &err);
    for (uint64_t i = 0; i < samples; i++) {
        struct sqrl_bytes *out = sqrl_packer_bytes(packer);
        int rc = !strcmp(what, "make-b")
                     ? put_b(out, &state, &err)
                     : put_image(out, &state, !strcmp(what, "make-p") ? 224 : 32, &err);
        must(rc, &err);
        must(sqrl_packer_accept(packer, &err), &err);
    }
    must(sqrl_packer_finish(packer, NULL, &err), &err);
}

static uint64_t drain(struct sqrl_iterator *it, int batches, uint64_t *outputs) {
    struct sqrl_error err;
    uint64_t samples = 0;
    for (*outputs = 0;; ++*outputs) {
        struct sqrl_batch *batch = NULL;
        struct sqrl_run *run = NULL;
        if (batches)
            must(sqrl_iterator_next_batch(it, &batch, &err), &err);
        else
            must(sqrl_iterator_next_run(it, &run, &err), &err);
        if (!batch && !run)
            return samples;
        samples += batch ? batch->rows : run->count;
        sqrl_batch_unref(batch);
        sqrl_run_release(run);
    }
}

static void report(const struct sqrl_iterator *it, const char *what, unsigned threads,
                   uint64_t samples, uint64_t outputs, double s) {
    struct sqrl_stage_stats stats[8];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    size_t n = sqrl_iterator_stats(it, stats, 8);
    printf("{\"what\": \"%s\", \"threads\": %u, \"samples\": %llu, \"outputs\": %llu, "
           "\"seconds\": %.4f, \"samples_per_second\": %.0f, \"peak_rss_mib\": %ld",
           what, threads, (unsigned long long)samples, (unsigned long long)outputs, s,
           (double)samples / s, usage.ru_maxrss / 1024);
    for (size_t i = 0; i < n; i++)
        printf(", \"%s\": {\"busy_ms\": %.2f, \"wait_ms\": %.2f, \"wait_share\": %.3f, "
               "\"mib\": %.1f}",
               stats[i].name, 1e-6 * (double)stats[i].busy_ns,
               1e-6 * (double)stats[i].wait_ns, stats[i].wait_share,
               (double)stats[i].bytes / 1048576.0);
    puts("}");
}

static struct sqrl_plan *replace(struct sqrl_plan *old, struct sqrl_plan *plan) {
    sqrl_plan_unref(old);
    return plan;
}

static void measure(struct sqrl_context *context, int argc, char **argv) {
    struct sqrl_error err;
    struct sqrl_source *source;
    struct sqrl_plan *plan, *next;
    int batches = !strcmp(argv[1], "batches"), epochs = argc > 3 ? atoi(argv[3]) : 5;
    must(sqrl_open(context, argv[2], NULL, &source, &err), &err);
    must(sqrl_plan_source(source, &plan, &err), &err);
    const char *filter = getenv("SQRL_BENCH_FILTER");
    if (filter) {
        must(sqrl_plan_filter(plan, filter, &next, &err), &err);
        plan = replace(plan, next);
    }
    if (argc > 5) {
        must(sqrl_plan_shuffle_all(plan, strtoull(argv[5], NULL, 10), 0, &next, &err),
             &err);
        plan = replace(plan, next);
    }
    if (batches) {
        struct sqrl_batch_options options = {
            .size = sizeof options,
            .batch_size = argc > 4 ? strtoull(argv[4], NULL, 10) : 256};
        must(sqrl_plan_batch(plan, &options, &next, &err), &err);
        plan = replace(plan, next);
    }
    for (int epoch = 0; epoch < epochs; epoch++) {
        struct sqrl_iterator *it;
        uint64_t outputs;
        double begin = seconds();
        must(sqrl_iterator_open(plan, &it, &err), &err);
        uint64_t samples = drain(it, batches, &outputs);
        report(it, argv[1], sqrl_context_cpu_threads(context), samples, outputs,
               seconds() - begin);
        sqrl_iterator_close(it);
    }
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
}

int main(int argc, char **argv) {
    struct sqrl_error err;
    struct sqrl_context *context;
    const char *threads = getenv("SQRL_BENCH_THREADS");
    struct sqrl_config config = {.size = sizeof config,
                                 .cpu_threads = threads ? (unsigned)atoi(threads) : 0};
    if (argc < 3) {
        fprintf(stderr,
                "usage: stream_bench make-a|make-p|make-b DIR [samples]\n"
                "       stream_bench runs|batches PATH [epochs] [batch_size] [seed]\n");
        return 2;
    }
    must(sqrl_context_new(&config, &context, &err), &err);
    if (!strncmp(argv[1], "make-", 5))
        make(context, argv[1], argv[2], argc > 3 ? strtoull(argv[3], NULL, 10) : 60000);
    else
        measure(context, argc, argv);
    sqrl_context_unref(context);
    return 0;
}
