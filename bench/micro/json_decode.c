/* json_decode.c - JSON to tape: GB/s of the decoder, and of memcpy over the same bytes.
 *
 *     bench_json_decode [FILE...]
 *
 * A FILE that ends in .ndjson or .jsonl is read as JSON lines. Without one, JSON lines
 * like {"text": "..."} of about 130 bytes are made up. Prints one JSON line a document;
 * the figure is the best of many runs, on bytes that were just copied (the decoder undoes
 * escapes in place). bench_json_simdjson measures simdjson's DOM the same way.
 */
#include <sqrl/context.h>
#include <sqrl/value.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json_lines.h"

#define RUN_SECONDS 0.5

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct document {
    const char *name;
    uint8_t *bytes, *copy;
    size_t size;
    bool lines;
    uint32_t *begin;
    struct sqrl_tape tape;
};

static int decode(struct document *d) {
    struct sqrl_error err = {0};
    size_t offset = 0;
    uint32_t count;
    char text[1024];
    d->tape.count = 0;
    int code = d->lines
                   ? sqrl_jsonl_decode_many(&d->tape, d->copy, d->size, &offset, d->begin,
                                            (uint32_t)d->size, &count, 0, NULL, &err)
                   : sqrl_json_decode(&d->tape, d->copy, d->size, &offset, 0, NULL, &err);
    if (code || offset != d->size) {
        sqrl_error_text(&err, text, sizeof text);
        fprintf(stderr, "%s: %s\n", d->name, text);
        return 1;
    }
    return 0;
}

static int measure(struct document *d) {
    double best = 1e9, best_copy = 1e9, stop = now() + RUN_SECONDS;
    do {
        double t0 = now();
        memcpy(d->copy, d->bytes, d->size);
        double t1 = now();
        if (decode(d))
            return 1;
        double t2 = now();
        best = t2 - t1 < best ? t2 - t1 : best;
        best_copy = t1 - t0 < best_copy ? t1 - t0 : best_copy;
    } while (now() < stop);
    printf(
        "{\"bench\": \"json_decode\", \"document\": \"%s\", \"bytes\": %zu, "
        "\"nodes\": %u, \"cpu\": \"%s\", \"sqrl_gb_s\": %.3f, \"memcpy_gb_s\": %.1f}\n",
        d->name, d->size, d->tape.count, sqrl_cpu_name(), (double)d->size / best * 1e-9,
        (double)d->size / best_copy * 1e-9);
    return 0;
}

static int run(const char *name) {
    struct document d = {.name = name ? name : "made-up lines"};
    d.lines = json_is_lines(name);
    d.bytes = json_document(name, &d.size);
    d.copy = d.bytes ? malloc(d.size + 1) : NULL;
    d.begin = d.lines ? malloc((d.size + 1) * sizeof *d.begin) : NULL;
    int bad = !d.copy || (d.lines && !d.begin);
    if (bad)
        fprintf(stderr, "%s: cannot be read\n", d.name);
    else
        bad = measure(&d);
    sqrl_tape_reset(&d.tape);
    free(d.begin);
    free(d.copy);
    free(d.bytes);
    return bad;
}

int main(int argc, char **argv) {
    int bad = argc < 2 ? run(NULL) : 0;
    for (int i = 1; i < argc; i++)
        bad |= run(argv[i]);
    return bad;
}
