/* MessagePack to a tape, on one core, beside Debian's msgpack-c and beside memcpy.
 *
 * Prints one JSON object a line and work: nanoseconds a record, GB/s of encoded bytes,
 * the bandwidth of memcpy over the same bytes, and how many times as long msgpack-c takes
 * (the better of its two ways: msgpack_unpack into a zone that is cleared for each
 * record, and msgpack_unpack_next). Rounds of all are interleaved; figures are medians.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sqrl/sqrl.h>

#ifdef SQRL_BENCH_MSGPACK_C
#include <msgpack.h>
#endif

enum { ROUNDS = 21, PASSES = 8, BLOCK_BYTES = 1 << 20, MAX_RECORDS = 1 << 20 };

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

static void must(int code, const char *what) {
    if (code) {
        fprintf(stderr, "%s: %s\n", what, sqrl_code_name(code));
        exit(1);
    }
}

static void key(struct sqrl_bytes *b, const char *name) {
    must(sqrl_msgpack_put_string(b, name, strlen(name), NULL), "key");
}

/* --- works: each appends record `i` --- */

static uint64_t mix(uint64_t x) {
    x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 31);
}

static void put_numeric(struct sqrl_bytes *b, uint64_t i) {
    uint64_t r = mix(i);
    must(sqrl_msgpack_put_map(b, 8, NULL), "map");
    key(b, "id");
    must(sqrl_msgpack_put_int(b, (int64_t)i, NULL), "int");
    key(b, "user");
    must(sqrl_msgpack_put_int(b, (int64_t)(r >> 40), NULL), "int");
    key(b, "price");
    must(sqrl_msgpack_put_float(b, (double)(r & 0xffff) / 7, NULL), "float");
    key(b, "score");
    must(sqrl_msgpack_put_float(b, (double)(r >> 20) * 1e-9, NULL), "float");
    key(b, "label");
    must(sqrl_msgpack_put_int(b, (int64_t)(r % 10), NULL), "int");
    key(b, "delta");
    must(sqrl_msgpack_put_int(b, -(int64_t)(r % 40000), NULL), "int");
    key(b, "valid");
    must(sqrl_msgpack_put_bool(b, r & 1, NULL), "bool");
    key(b, "split");
    key(b, r % 10 ? "train" : "test");
}

static void put_floats(struct sqrl_bytes *b, uint64_t i) {
    must(sqrl_msgpack_put_array(b, 100, NULL), "array");
    for (unsigned k = 0; k < 100; k++)
        must(sqrl_msgpack_put_float(b, (double)(i + k) * 0.37, NULL), "float");
}

static void put_ints(struct sqrl_bytes *b, uint64_t i) {
    must(sqrl_msgpack_put_array(b, 100, NULL), "array");
    for (unsigned k = 0; k < 100; k++)
        must(sqrl_msgpack_put_int(b, (int64_t)(mix(i + k) >> (mix(k) % 60)), NULL),
             "int");
}

static uint8_t pixels[64 * 1024];

static void put_image(struct sqrl_bytes *b, uint64_t i) {
    static const uint64_t SHAPE[3] = {32, 32, 3};
    must(sqrl_msgpack_put_map(b, 2, NULL), "map");
    key(b, "image");
    must(sqrl_msgpack_put_ndarray(b, SQRL_DTYPE_UINT8, SHAPE, 3, pixels, NULL),
         "ndarray");
    key(b, "label");
    must(sqrl_msgpack_put_int(b, (int64_t)(i % 10), NULL), "int");
}

static void put_binary(struct sqrl_bytes *b, uint64_t i, size_t size) {
    must(sqrl_msgpack_put_map(b, 2, NULL), "map");
    key(b, "image");
    must(sqrl_msgpack_put_binary(b, pixels, size, NULL), "binary");
    key(b, "label");
    must(sqrl_msgpack_put_int(b, (int64_t)(i % 10), NULL), "int");
}
static void put_binary_3k(struct sqrl_bytes *b, uint64_t i) {
    put_binary(b, i, 3072);
}
static void put_binary_64k(struct sqrl_bytes *b, uint64_t i) {
    put_binary(b, i, 65536);
}

static void put_text(struct sqrl_bytes *b, uint64_t i, const char *words) {
    char text[256];
    size_t n = strlen(words);
    for (size_t k = 0; k < 130; k++)
        text[k] = words[k % n];
    must(sqrl_msgpack_put_map(b, 1, NULL), "map");
    key(b, "text");
    must(sqrl_msgpack_put_string(b, text, 130 / n * n, NULL), "string");
    (void)i;
}
static void put_ascii(struct sqrl_bytes *b, uint64_t i) {
    put_text(b, i, "the quick brown fox ");
}
static void put_utf8(struct sqrl_bytes *b, uint64_t i) {
    put_text(b, i, "\xd0\xb1\xd0\xb5\xd0\xbb\xd0\xba\xd0\xb0 ");
}

static const struct work {
    const char *name;
    void (*put)(struct sqrl_bytes *b, uint64_t i);
} WORKS[] = {{"numeric", put_numeric},     {"floats", put_floats},
             {"ints", put_ints},           {"image", put_image},
             {"binary_3k", put_binary_3k}, {"binary_64k", put_binary_64k},
             {"text_ascii", put_ascii},    {"text_utf8", put_utf8}};

/* --- measuring --- */

struct block {
    struct sqrl_bytes bytes;
    uint32_t records;
    struct sqrl_tape tape;
    uint32_t *begin;
    uint8_t *copy;
};

static double time_sqrl(struct block *b) {
    double start = seconds();
    for (int pass = 0; pass < PASSES; pass++) {
        size_t offset = 0;
        uint32_t count;
        b->tape.count = 0;
        must(sqrl_msgpack_decode_many(&b->tape, b->bytes.data, b->bytes.size, &offset,
                                      b->begin, b->records, &count, NULL, NULL),
             "decode");
        if (count != b->records)
            must(SQRL_E_CORRUPT, "count");
    }
    return (seconds() - start) / PASSES;
}

static double time_memcpy(struct block *b) {
    double start = seconds();
    for (int pass = 0; pass < PASSES; pass++) {
        memcpy(b->copy, b->bytes.data, b->bytes.size);
        __asm__ volatile("" : : "r"(b->copy) : "memory");
    }
    return (seconds() - start) / PASSES;
}

#ifdef SQRL_BENCH_MSGPACK_C
static double time_zone(struct block *b) {
    msgpack_zone zone;
    if (!msgpack_zone_init(&zone, MSGPACK_ZONE_CHUNK_SIZE))
        exit(1);
    double start = seconds();
    for (int pass = 0; pass < PASSES; pass++) {
        size_t offset = 0;
        uint32_t count = 0;
        for (; count < b->records; count++) {
            msgpack_object object;
            int code = msgpack_unpack((const char *)b->bytes.data, b->bytes.size, &offset,
                                      &zone, &object);
            if (code != MSGPACK_UNPACK_SUCCESS && code != MSGPACK_UNPACK_EXTRA_BYTES)
                exit(1);
            msgpack_zone_clear(&zone);
        }
    }
    double taken = (seconds() - start) / PASSES;
    msgpack_zone_destroy(&zone);
    return taken;
}

static double time_next(struct block *b) {
    msgpack_unpacked result;
    msgpack_unpacked_init(&result);
    double start = seconds();
    for (int pass = 0; pass < PASSES; pass++) {
        size_t offset = 0;
        for (uint32_t count = 0; count < b->records; count++)
            if (msgpack_unpack_next(&result, (const char *)b->bytes.data, b->bytes.size,
                                    &offset) != MSGPACK_UNPACK_SUCCESS)
                exit(1);
    }
    double taken = (seconds() - start) / PASSES;
    msgpack_unpacked_destroy(&result);
    return taken;
}
#endif

static void measure(const struct work *work) {
    struct block b = {0};
    while (b.bytes.size < BLOCK_BYTES)
        work->put(&b.bytes, b.records++);
    b.begin = malloc(b.records * sizeof *b.begin);
    b.copy = malloc(b.bytes.size);
    if (!b.begin || !b.copy)
        exit(1);
    double ours[ROUNDS], copies[ROUNDS], zones[ROUNDS], nexts[ROUNDS];
    time_sqrl(&b);
    time_memcpy(&b);
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = time_sqrl(&b);
        copies[i] = time_memcpy(&b);
#ifdef SQRL_BENCH_MSGPACK_C
        zones[i] = time_zone(&b);
        nexts[i] = time_next(&b);
#else
        zones[i] = nexts[i] = 0;
#endif
    }
    double t = median(ours, ROUNDS), copy = median(copies, ROUNDS);
    double zone = median(zones, ROUNDS), next = median(nexts, ROUNDS);
    double theirs = zone < next ? zone : next, size = (double)b.bytes.size;
    printf("{\"bench\": \"msgpack_decode\", \"work\": \"%s\", \"records\": %u, "
           "\"bytes\": %zu, \"nodes\": %u, \"ns_per_record\": %.1f, \"gb_per_s\": %.2f, "
           "\"memcpy_gb_per_s\": %.2f",
           work->name, b.records, b.bytes.size, b.tape.count, t * 1e9 / b.records,
           size / t * 1e-9, size / copy * 1e-9);
    if (theirs > 0)
        printf(", \"msgpack_c_ns_per_record\": %.1f, \"msgpack_c_next_ns_per_record\": "
               "%.1f, "
               "\"times_msgpack_c\": %.2f",
               zone * 1e9 / b.records, next * 1e9 / b.records, theirs / t);
    printf("}\n");
    fflush(stdout);
    sqrl_bytes_reset(&b.bytes);
    sqrl_tape_reset(&b.tape);
    free(b.begin);
    free(b.copy);
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)mix(i);
    for (size_t i = 0; i < sizeof WORKS / sizeof WORKS[0]; i++)
        if (argc < 2 || strcmp(argv[1], WORKS[i].name) == 0)
            measure(&WORKS[i]);
    return 0;
}
