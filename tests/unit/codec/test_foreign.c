/* Files of others (SQRL_TEST_DATA), and the commands gzip, zstd, lz4 reading what we
 * write and the reverse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zstd.h>

#include "codec/codec.h"
#include "support/contract_codec.h"

#define OUT_MAX ((size_t)4 << 20)

static const char *data_directory(void) {
    const char *path = getenv("SQRL_TEST_DATA");
    if (!path || !*path) {
        print_message("skipped: SQRL_TEST_DATA names no test data\n");
        skip();
    }
    return path;
}

/* A file's bytes in memory of the exact size; free() them. */
static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file)
        print_error("can't open %s\n", path);
    assert_non_null(file);
    uint8_t *data = malloc(OUT_MAX);
    assert_non_null(data);
    *size = fread(data, 1, OUT_MAX, file);
    fclose(file);
    uint8_t *exact = malloc(*size ? *size : 1);
    assert_non_null(exact);
    memcpy(exact, data, *size);
    free(data);
    return exact;
}

/* --- EXPECT-deflate.tsv: what zlib makes of each file --- */

struct expected {
    char path[256], status[16];
    size_t out, behind;
};

static void check_gzip(const struct sqrl_codec_ops *codec, const struct expected *e,
                       const uint8_t *data, size_t size, uint8_t *out) {
    struct sqrl_error err = {0};
    size_t got;
    int rc = contract_codec_stream(codec, data, size, 0, out, OUT_MAX, 0, &got, &err);
    bool right;
    if (strcmp(e->status, "complete") == 0 && e->behind == 0)
        right = rc == SQRL_OK && got == e->out;
    else if (strcmp(e->status, "complete") == 0)
        right =
            rc != SQRL_OK || got >= e->out; /* what is behind may be a member, or none */
    else if (strcmp(e->status, "truncated") == 0)
        right = rc == SQRL_E_TRUNCATED || rc == SQRL_E_CORRUPT;
    else
        right = rc == SQRL_E_CORRUPT || rc == SQRL_E_FORMAT || rc == SQRL_E_TRUNCATED;
    if (!right) {
        print_error("%s by %s: zlib says %s, %zu bytes; we %d, %zu bytes: %s\n", e->path,
                    codec->library, e->status, e->out, rc, got, err.message);
    }
    assert_true(right);
}

static int inflate_all(const struct sqrl_deflate_engine *engine, const uint8_t *data,
                       size_t size, uint8_t *out, struct sqrl_inflate_step *step) {
    struct sqrl_error err;
    void *state = engine->inflate_open(&err);
    assert_non_null(state);
    *step = (struct sqrl_inflate_step){
        .in = data, .in_size = size, .out = out, .out_size = OUT_MAX};
    int rc;
    size_t in, room;
    do {
        in = step->in_size;
        room = step->out_size;
        rc = engine->inflate(state, step);
    } while (rc == SQRL_OK && !step->done &&
             (in != step->in_size || room != step->out_size));
    engine->inflate_close(state);
    return rc;
}

static void check_raw(const struct sqrl_deflate_engine *engine, const struct expected *e,
                      const uint8_t *data, size_t size, uint8_t *out) {
    struct sqrl_inflate_step step;
    int rc = inflate_all(engine, data, size, out, &step);
    bool complete = strcmp(e->status, "complete") == 0;
    bool right = rc == SQRL_OK && step.done;
    if (complete)
        right = right && OUT_MAX - step.out_size == e->out &&
                step.in_size + step.back_size == e->behind;
    else
        right = !right;
    if (!right)
        print_error("%s: zlib says %s, %zu bytes; code %d, done %d\n", e->path, e->status,
                    e->out, rc, step.done);
    assert_true(right);
}

static void check_listed(const char *directory, const struct expected *e, uint8_t *out) {
    char path[1024];
    size_t size;
    snprintf(path, sizeof(path), "%s/%s", directory, e->path);
    uint8_t *data = read_file(path, &size);
    if (strstr(e->path, "fuzz-gzip")) {
        check_gzip(&sqrl_codec_gzip, e, data, size, out);
#if SQRL_HAVE_ISAL
        check_gzip(&sqrl_codec_gzip_zlib, e, data, size, out);
#endif
    } else if (strstr(e->path, "fuzz-deflate")) {
        check_raw(&sqrl_engine_zlib, e, data, size, out);
#if SQRL_HAVE_ISAL
        check_raw(&sqrl_engine_isal, e, data, size, out);
#endif
    } else if (size > 2) { /* zlib streams: two bytes of header, then deflate */
        struct sqrl_inflate_step step;
        (void)inflate_all(&sqrl_engine_zlib, data + 2, size - 2, out, &step);
#if SQRL_HAVE_ISAL
        (void)inflate_all(&sqrl_engine_isal, data + 2, size - 2, out, &step);
#endif
    }
    free(data);
}

static void test_deflate_suite(void **unused) {
    const char *directory = data_directory();
    char path[1024], line[1024];
    snprintf(path, sizeof(path), "%s/EXPECT-deflate.tsv", directory);
    FILE *list = fopen(path, "r");
    assert_non_null(list);
    uint8_t *out = malloc(OUT_MAX);
    assert_non_null(out);
    int files = 0;
    while (fgets(line, sizeof(line), list)) {
        struct expected e;
        if (sscanf(line, "%255[^\t]\t%15[^\t]\t%zu\t%zu", e.path, e.status, &e.out,
                   &e.behind) == 4) {
            check_listed(directory, &e, out);
            files++;
        }
    }
    fclose(list);
    free(out);
    assert_int_equal(files, 386);
}

/* --- zstd's golden files, libarchive's tiny ones --- */

static int decode_file(const char *name, uint8_t *out, size_t *got,
                       struct sqrl_error *err) {
    char path[1024];
    size_t size;
    snprintf(path, sizeof(path), "%s/compress/%s", data_directory(), name);
    uint8_t *data = read_file(path, &size);
    const struct sqrl_codec_ops *codec = sqrl_codec_by_suffix(name);
    assert_non_null(codec);
    int rc = contract_codec_stream(codec, data, size, 0, out, OUT_MAX, 0, got, err);
    struct sqrl_error second;
    size_t got_slow;
    /* One byte a step must come to the same. */
    if (rc == SQRL_OK)
        assert_int_equal(contract_codec_stream(codec, data, size, 1, out, OUT_MAX, 1,
                                               &got_slow, &second),
                         SQRL_OK);
    else
        assert_int_not_equal(contract_codec_stream(codec, data, size, 1, out, OUT_MAX, 1,
                                                   &got_slow, &second),
                             SQRL_OK);
    free(data);
    return rc;
}

static void test_golden(void **unused) {
    static const struct {
        const char *name, *content;
    } good[] = {{"libarchive-cat/test_empty.gz", ""},
                {"libarchive-cat/test_empty.zst", ""},
                {"libarchive-cat/test_empty.lz4", ""},
                {"libarchive-cat/test_expand.zst", "contents of test_expand.zst.\n"}};
    data_directory();
    uint8_t *out = malloc(OUT_MAX);
    struct sqrl_error err = {0};
    size_t got;
    assert_non_null(out);
    for (size_t i = 0; i < SQRL_COUNT_OF(good); i++) {
        assert_int_equal(decode_file(good[i].name, out, &got, &err), SQRL_OK);
        assert_true(got == strlen(good[i].content));
        assert_memory_equal(out, good[i].content, got);
    }
    assert_int_equal(decode_file("zstd-golden/golden-decompression/rle-first-block.zst",
                                 out, &got, &err),
                     SQRL_OK);
    assert_true(got == (size_t)1 << 20);
    free(out);
}

/* libzstd before 1.5.5 accepts these two damaged files: a sequences section with
 * extraneous bytes, and an offset code of 0 bits that its own format document rules out.
 * Nothing above libzstd can notice; the exception ends with the version. */
static void test_golden_errors(void **unused) {
    static const char *const names[] = {
        "zstd-golden/golden-decompression-errors/off0.bin.zst",
        "zstd-golden/golden-decompression-errors/zeroSeq_extraneous.zst"};
    data_directory();
    uint8_t *out = malloc(OUT_MAX);
    struct sqrl_error err = {0};
    size_t got;
    assert_non_null(out);
    for (size_t i = 0; i < SQRL_COUNT_OF(names); i++) {
        int rc = decode_file(names[i], out, &got, &err);
        if (rc == SQRL_OK && ZSTD_versionNumber() < 10505)
            print_message("known: libzstd %s accepts %s\n", ZSTD_versionString(),
                          names[i]);
        else
            assert_int_equal(rc, SQRL_E_CORRUPT);
    }
    free(out);
}

/* --- the commands --- */

static bool have_command(const char *name) {
    char line[128];
    snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", name);
    return system(line) == 0;
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fwrite(data, 1, size, file) == size);
    assert_int_equal(fclose(file), 0);
}

static void run(const char *directory, const char *format, ...) {
    char line[512], whole[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    snprintf(whole, sizeof(whole), "cd %s && %s", directory, line);
    assert_int_equal(system(whole), 0);
}

/* They read ours: compressed and stored, in one file. */
static void check_theirs_reads(const struct sqrl_codec_ops *codec, const char *directory,
                               size_t n, int kind) {
    size_t bound = codec->bound(n), first, second, back_size;
    uint8_t *raw = malloc(n + 1), *out = malloc(2 * bound);
    struct sqrl_error err;
    char path[256];
    assert_true(raw && out);
    contract_codec_fill(raw, n, kind);
    assert_int_equal(
        codec->compress(codec->level_default, raw, n, out, bound, &first, &err), 0);
    assert_int_equal(codec->store(raw, n, out + first, bound, &second, &err), 0);
    snprintf(path, sizeof(path), "%s/ours%s", directory, codec->suffix);
    write_file(path, out, first + second);
    run(directory, "%s -dc ours%s > back 2>/dev/null", codec->name, codec->suffix);
    snprintf(path, sizeof(path), "%s/back", directory);
    uint8_t *back = read_file(path, &back_size);
    assert_true(back_size == 2 * n);
    if (n > 0) {
        assert_memory_equal(back, raw, n);
        assert_memory_equal(back + n, raw, n);
    }
    free(back);
    free(raw);
    free(out);
}

static void check_command(const char *name) {
    static const size_t sizes[] = {0, 1, 65535, 131072, 131073, 1000003};
    char directory[] = "/tmp/sqrl-codec-XXXXXX";
    if (!have_command(name)) {
        print_message("skipped: the command %s is not installed\n", name);
        skip();
    }
    assert_non_null(mkdtemp(directory));
    const struct sqrl_codec_ops *codec = sqrl_codec_by_name(name);
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        for (int kind = 1; kind < 3; kind++) {
            size_t n = sizes[i], size, got;
            uint8_t *raw = malloc(n + 1), *back = malloc(n + 1);
            struct sqrl_error err;
            char path[256];
            assert_true(raw && back);
            check_theirs_reads(codec, directory, n, kind);
            /* We read theirs. */
            contract_codec_fill(raw, n, kind);
            snprintf(path, sizeof(path), "%s/raw", directory);
            write_file(path, raw, n);
            run(directory, "%s -qc raw > theirs 2>/dev/null", name);
            snprintf(path, sizeof(path), "%s/theirs", directory);
            uint8_t *theirs = read_file(path, &size);
            assert_int_equal(codec->decompress(theirs, size, back, n, &err), SQRL_OK);
            assert_int_equal(contract_codec_stream(codec, theirs, size, 999, back, n + 1,
                                                   7777, &got, &err),
                             SQRL_OK);
            assert_true(got == n);
            if (n > 0)
                assert_memory_equal(back, raw, n);
            free(theirs);
            free(raw);
            free(back);
        }
    }
    run("/tmp", "rm -r %s", directory);
}

static void test_gzip_command(void **unused) {
    check_command("gzip");
}
static void test_zstd_command(void **unused) {
    check_command("zstd");
}
static void test_lz4_command(void **unused) {
    check_command("lz4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deflate_suite), cmocka_unit_test(test_golden),
        cmocka_unit_test(test_golden_errors), cmocka_unit_test(test_gzip_command),
        cmocka_unit_test(test_zstd_command),  cmocka_unit_test(test_lz4_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
