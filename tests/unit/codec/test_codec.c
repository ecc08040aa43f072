/* The contract on every codec, the registry, and frames that others wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "support/contract_codec.h"
#include "vectors.h"

static void test_gzip(void **unused) {
    contract_codec(&sqrl_codec_gzip, true);
}
static void test_zstd(void **unused) {
    contract_codec(&sqrl_codec_zstd, true);
}
static void test_lz4(void **unused) {
    contract_codec(&sqrl_codec_lz4, true);
}
static void test_none(void **unused) {
    contract_codec(&sqrl_codec_none, false);
}
static void test_gzip_zlib(void **unused) {
#if SQRL_HAVE_ISAL
    contract_codec(&sqrl_codec_gzip_zlib, true);
#else
    print_message("skipped: ISA-L is not built in, gzip is zlib already\n");
    skip();
#endif
}

static void test_registry(void **unused) {
    static const uint8_t gz[] = {0x1F, 0x8B, 8, 0, 0, 0};
    static const uint8_t zst[] = {0x28, 0xB5, 0x2F, 0xFD, 0, 0};
    static const uint8_t lz4[] = {0x04, 0x22, 0x4D, 0x18, 0, 0};
    assert_ptr_equal(sqrl_codec_by_name("gzip"), &sqrl_codec_gzip);
    assert_ptr_equal(sqrl_codec_by_name("none"), &sqrl_codec_none);
    assert_null(sqrl_codec_by_name("brotli"));
    assert_null(sqrl_codec_by_name(""));
    assert_null(sqrl_codec_by_name(NULL));
    assert_ptr_equal(sqrl_codec_by_magic(gz, 6), &sqrl_codec_gzip);
    assert_ptr_equal(sqrl_codec_by_magic(zst, 6), &sqrl_codec_zstd);
    assert_ptr_equal(sqrl_codec_by_magic(lz4, 4), &sqrl_codec_lz4);
    assert_null(sqrl_codec_by_magic(lz4, 3));
    assert_null(sqrl_codec_by_magic(gz, 0));
    assert_null(sqrl_codec_by_magic((const uint8_t *)"{\"a\":1", 6));
    assert_ptr_equal(sqrl_codec_by_suffix("a/b.jsonl.gz"), &sqrl_codec_gzip);
    assert_ptr_equal(sqrl_codec_by_suffix("x.zst"), &sqrl_codec_zstd);
    assert_ptr_equal(sqrl_codec_by_suffix("x.lz4"), &sqrl_codec_lz4);
    assert_null(sqrl_codec_by_suffix(".gz"));
    assert_null(sqrl_codec_by_suffix("x.json"));
    assert_null(sqrl_codec_by_suffix(""));
    size_t count = 0;
    while (sqrl_codec_at(count))
        count++;
    assert_true(count == 4);
    /* A table of an older build, which ends before the library's name. */
    struct sqrl_codec_ops old = sqrl_codec_zstd;
    old.size = offsetof(struct sqrl_codec_ops, library);
    assert_string_equal(sqrl_codec_library(&old), "zstd");
    assert_non_null(strstr(sqrl_codec_library(&sqrl_codec_zstd), "zstd 1."));
}

static uint8_t *squirrels(size_t size) {
    uint8_t *out = malloc(size + 32);
    assert_non_null(out);
    size_t at = 0;
    for (int i = 0; at < size; i = (i + 1) % 40)
        at += (size_t)snprintf((char *)out + at, 32, "%d squirrels\n", i);
    return out;
}

static void check_vector(const struct sqrl_codec_ops *codec, const struct vector *v) {
    uint8_t *expected = squirrels(v->raw_size), *back = malloc(v->raw_size + 1);
    struct sqrl_error err = {0};
    size_t got;
    assert_non_null(back);
    for (size_t step = 0; step < 3; step++) {
        int rc = contract_codec_stream(codec, v->data, v->size, step, back,
                                       v->raw_size + 1, step * 2, &got, &err);
        if (rc != v->code)
            print_error("%s as a stream: code %d, %s\n", v->name, rc, err.message);
        assert_int_equal(rc, v->code);
        assert_true(rc != SQRL_OK || got == v->raw_size);
        assert_memory_equal(back, expected, SQRL_MIN(got, v->raw_size));
        if (rc != SQRL_OK)
            assert_non_null(strstr(err.message, "offset"));
    }
    int rc = codec->decompress(v->data, v->size, back, v->raw_size, &err);
    /* Padding belongs to files, not to frames; gzip's reader takes it all the same. */
    if (rc != v->code)
        print_error("%s as a frame: code %d, %s\n", v->name, rc, err.message);
    assert_int_equal(rc, v->code);
    if (rc == SQRL_OK)
        assert_memory_equal(back, expected, v->raw_size);
    free(expected);
    free(back);
}

static void test_vectors(void **unused) {
    for (size_t i = 0; i < SQRL_COUNT_OF(vectors); i++) {
        check_vector(sqrl_codec_by_name(vectors[i].codec), &vectors[i]);
#if SQRL_HAVE_ISAL
        if (strcmp(vectors[i].codec, "gzip") == 0)
            check_vector(&sqrl_codec_gzip_zlib, &vectors[i]);
#endif
    }
}

/* The bytes of a stored zstd frame after RFC 8878, 3.1.1, and of an lz4 one after the LZ4
 * frame format 1.6.x, worked out by hand. */
static void test_stored_bytes(void **unused) {
    static const uint8_t zstd_abc[] = {0x28, 0xB5, 0x2F, 0xFD, 0x80, 0x38, 3,   0,
                                       0,    0,    0x19, 0,    0,    'a',  'b', 'c'};
    uint8_t out[64];
    size_t size;
    struct sqrl_error err;
    assert_int_equal(
        sqrl_codec_zstd.store((const uint8_t *)"abc", 3, out, sizeof(out), &size, &err),
        0);
    assert_true(size == sizeof(zstd_abc));
    assert_memory_equal(out, zstd_abc, size);
    static const uint8_t lz4_abc[] = {0x04, 0x22, 0x4D, 0x18, 0x68, 0x70, 3,
                                      0,    0,    0,    0,    0,    0,    0};
    assert_int_equal(
        sqrl_codec_lz4.store((const uint8_t *)"abc", 3, out, sizeof(out), &size, &err),
        0);
    assert_true(size == 15 + 4 + 3 + 4);
    assert_memory_equal(out, lz4_abc, sizeof(lz4_abc));
    assert_memory_equal(out + 15,
                        "\3\0\0\x80"
                        "abc\0\0\0",
                        11);
    /* From 4 GiB on the content size needs 8 bytes: 14 of header, 32,768 blocks. */
    uint64_t big = (uint64_t)1 << 32;
    struct sqrl_stored_piece piece;
    assert_true(sqrl_codec_zstd.stored_size(big) == big + 14 + 32768 * 3);
    assert_true(sqrl_codec_zstd.stored_size(big - 1) == big - 1 + 10 + 32768 * 3);
    assert_true(sqrl_codec_zstd.stored_piece(big, 32767, &piece));
    assert_true(piece.offset == 14 + 32767ull * 131075 + 3 && piece.size == 131072);
    assert_false(sqrl_codec_zstd.stored_piece(big, 32768, &piece));
    assert_true(piece.size == 0);
}

/* A small frame that claims or holds much: nothing beyond the room is written or
 * allocated. */
static void test_bombs(void **unused) {
    size_t n = (size_t)64 << 20, room = 1000, size, got;
    uint8_t *raw = calloc(1, n), back[1001] = {0};
    struct sqrl_error err;
    assert_non_null(raw);
    for (size_t i = 0; i < 3; i++) {
        const struct sqrl_codec_ops *codec = sqrl_codec_at(i);
        uint8_t *out = malloc(codec->bound(n));
        assert_non_null(out);
        assert_int_equal(codec->compress(1, raw, n, out, codec->bound(n), &size, &err),
                         0);
        assert_true(size < n / 100);
        back[room] = 0xEE;
        assert_int_equal(codec->decompress(out, size, back, room, &err), SQRL_E_CORRUPT);
        assert_int_equal(back[room], 0xEE);
        assert_int_equal(
            contract_codec_stream(codec, out, size, 0, back, room, 0, &got, &err),
            SQRL_E_LIMIT);
        assert_true(got == room);
        free(out);
    }
    free(raw);
    /* A zstd header that asks for a window of 2 GiB; only the header is read. */
    static const uint8_t window[] = {0x28,    0xB5, 0x2F, 0xFD, 0x00,
                                     21 << 3, 0x01, 0x00, 0x00};
    assert_int_equal(contract_codec_stream(&sqrl_codec_zstd, window, sizeof(window), 0,
                                           back, room, 0, &got, &err),
                     SQRL_E_LIMIT);
    assert_non_null(strstr(err.message, "window"));
    /* An lz4 header that claims 2^60 bytes of content. */
    uint8_t claim[32];
    assert_int_equal(sqrl_codec_lz4.store(NULL, 0, claim, sizeof(claim), &size, &err), 0);
    sqrl_store_le64(claim + 6, (uint64_t)1 << 60);
    claim[14] = (uint8_t)(sqrl_xxh32(claim + 4, 10) >> 8);
    assert_int_equal(sqrl_codec_lz4.decompress(claim, size, back, room, &err),
                     SQRL_E_CORRUPT);
}

static void test_wrong_format(void **unused) {
    uint8_t back[64];
    size_t got;
    struct sqrl_error err;
    for (size_t i = 0; i < 3; i++) {
        const struct sqrl_codec_ops *codec = sqrl_codec_at(i);
        const uint8_t *text = (const uint8_t *)"{\"label\": 1}\n";
        assert_int_equal(
            contract_codec_stream(codec, text, 13, 0, back, sizeof(back), 0, &got, &err),
            SQRL_E_FORMAT);
        assert_non_null(strstr(err.message, codec->name));
        assert_int_equal(codec->decompress(text, 13, back, sizeof(back), &err),
                         SQRL_E_CORRUPT);
        assert_int_equal(contract_codec_stream(codec, text, 0, 0, back, 1, 0, &got, &err),
                         SQRL_E_TRUNCATED);
        assert_non_null(strstr(err.message, "empty"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gzip),    cmocka_unit_test(test_gzip_zlib),
        cmocka_unit_test(test_zstd),    cmocka_unit_test(test_lz4),
        cmocka_unit_test(test_none),    cmocka_unit_test(test_registry),
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_stored_bytes),
        cmocka_unit_test(test_bombs),   cmocka_unit_test(test_wrong_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
