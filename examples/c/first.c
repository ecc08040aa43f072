/* Packs ten thousand samples, reads them back in batches, and sums a column: the first
 * program.
 *
 *     cc first.c -o first $(pkg-config --cflags --libs sqrl) && ./first
 */
#include <sqrl/sqrl.h>
#include <stdio.h>
#include <stdlib.h>

static struct sqrl_error err;

static void check(int code) {
    char text[1024];
    if (code == SQRL_OK)
        return;
    sqrl_error_text(&err, text, sizeof text);
    fprintf(stderr, "first: %s\n", text);
    exit(1);
}

/* Samples {"x": i, "y": uint8[4]}, written into the packer's own bytes. */
static void pack(struct sqrl_context *context, const char *folder) {
    struct sqrl_pack_options options = {.size = sizeof options, .overwrite = true};
    struct sqrl_packer *packer;
    check(sqrl_packer_open(context, folder, &options, &packer, &err));
    for (int i = 0; i < 10000; i++) {
        struct sqrl_bytes *out = sqrl_packer_bytes(packer);
        const uint8_t pixels[4] = {1, 2, 3, (uint8_t)i};
        const uint64_t shape[1] = {4};
        check(sqrl_msgpack_put_map(out, 2, &err));
        check(sqrl_msgpack_put_string(out, "x", 1, &err));
        check(sqrl_msgpack_put_int(out, i, &err));
        check(sqrl_msgpack_put_string(out, "y", 1, &err));
        check(sqrl_msgpack_put_ndarray(out, SQRL_DTYPE_UINT8, shape, 1, pixels, &err));
        check(sqrl_packer_accept(packer, &err));
    }
    struct sqrl_pack_report report;
    check(sqrl_packer_finish(packer, &report, &err));
    printf("packed %llu samples into %llu shards\n", (unsigned long long)report.samples,
           (unsigned long long)report.shards);
}

static int64_t sum(struct sqrl_context *context, const char *folder) {
    struct sqrl_source *source;
    struct sqrl_plan *all, *batches;
    struct sqrl_iterator *iterator;
    struct sqrl_batch_options options = {.size = sizeof options, .batch_size = 256};
    check(sqrl_open(context, folder, NULL, &source, &err));
    check(sqrl_plan_source(source, &all, &err));
    check(sqrl_plan_batch(all, &options, &batches, &err));
    check(sqrl_iterator_open(batches, &iterator, &err));
    int64_t total = 0;
    for (;;) {
        struct sqrl_batch *batch;
        check(sqrl_iterator_next_batch(iterator, &batch, &err));
        if (!batch)
            break;
        const int64_t *x = sqrl_batch_column(batch, "x")->data;
        for (uint64_t row = 0; row < batch->rows; row++)
            total += x[row];
        sqrl_batch_unref(batch);
    }
    sqrl_iterator_close(iterator);
    sqrl_plan_unref(batches);
    sqrl_plan_unref(all);
    sqrl_source_unref(source);
    return total;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "first-numbers";
    struct sqrl_context *context;
    check(sqrl_context_new(NULL, &context, &err));
    pack(context, folder);
    int64_t total = sum(context, folder);
    printf("the sum of x is %lld\n", (long long)total);
    sqrl_context_unref(context);
    return total == 49995000 ? 0 : 1; /* 0 + 1 + ... + 9999 */
}
