/* squirrel-core's stores: its own files are read, damage is told where it is, and what
 * comes before the damage is delivered. */
#include "../driver/opening.h"

#include "golden/store/vectors.h"

static void test_golden(void **state) {
    check_lines(put("key.gz", store_messagepack, sizeof store_messagepack), store_lines,
                sizeof store_lines);
    check_lines(put("json.gz", store_json, sizeof store_json), store_lines,
                sizeof store_lines);
    check_lines(put("plain.msgpack", store_payload, sizeof store_payload), store_lines,
                sizeof store_lines);
    check_lines(put_coded("x.msgpack.zst", "zstd", store_payload, sizeof store_payload),
                store_lines, sizeof store_lines);
    check_lines(put_coded("x.msgpack.lz4", "lz4", store_payload, sizeof store_payload),
                store_lines, sizeof store_lines);
    check_lines(put("empty.gz", store_empty, sizeof store_empty), "", 0);
}

/* Writes golden samples with the packer; the payload is what squirrel-core's was. */
static void pack_golden(const char *destination, const struct sqrl_settings *settings) {
    struct sqrl_pack_options options = {.size = sizeof options, .settings = settings};
    struct sqrl_packer *packer = NULL;
    struct sqrl_error err = {0};
    if (sqrl_packer_open(context, destination, &options, &packer, &err))
        fail_msg("%s: %s", err.where, err.message);
    struct sqrl_source *source = NULL;
    struct sqrl_shard_reader *reader = NULL;
    struct sqrl_block *block = NULL;
    assert_int_equal(sqrl_open(context, at("key.gz"), NULL, &source, NULL), SQRL_OK);
    assert_int_equal(sqrl_shard_open(source, 0, &reader, NULL), SQRL_OK);
    assert_int_equal(sqrl_shard_reader_next(reader, NULL, &block, NULL), SQRL_OK);
    assert_int_equal(block->count, STORE_SAMPLES);
    for (uint32_t i = 0; i < block->count; i++)
        assert_int_equal(sqrl_packer_append_sample(packer, block, i, &err), SQRL_OK);
    sqrl_block_unref(block);
    sqrl_shard_reader_unref(reader);
    sqrl_source_unref(source);
    struct sqrl_pack_report report;
    if (sqrl_packer_finish(packer, &report, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(report.samples, STORE_SAMPLES);
    assert_int_equal(report.raw_bytes, sizeof store_payload);
}

static void check_file(const char *path, const void *want, size_t want_size) {
    size_t size;
    char *data = slurp(path, &size);
    assert_int_equal(size, want_size);
    assert_memory_equal(data, want, size);
    free(data);
}

static void test_payload_is_identical(void **state) {
    put("key.gz", store_messagepack, sizeof store_messagepack);
    pack_golden(at("out.msgpack"), NULL);
    check_file(at("out.msgpack"), store_payload, sizeof store_payload);
    pack_golden(at("out.gz"), NULL);
    assert_int_equal(run("gzip -dc %s/out.gz > %s/out.raw", directory, directory), 0);
    check_file(at("out.raw"), store_payload, sizeof store_payload);
}

/* `count` maps {"i": k, "pad": binary of `pad` bytes}, by hand from the specification. */
static uint8_t *make_samples(uint32_t count, uint32_t pad, size_t *size) {
    uint8_t *bytes = malloc((size_t)count * (pad + 24)), *p = bytes;
    assert_non_null(bytes);
    for (uint32_t k = 0; k < count; k++) {
        static const uint8_t head[] = {0x82, 0xa1, 'i', 0xce},
                             key[] = {0xa3, 'p', 'a', 'd'};
        memcpy(p, head, 4);
        uint8_t number[4] = {(uint8_t)(k >> 24), (uint8_t)(k >> 16), (uint8_t)(k >> 8),
                             (uint8_t)k};
        memcpy(p + 4, number, 4);
        memcpy(p + 8, key, 4);
        uint8_t length[5] = {0xc6, (uint8_t)(pad >> 24), (uint8_t)(pad >> 16),
                             (uint8_t)(pad >> 8), (uint8_t)pad};
        memcpy(p + 12, length, 5);
        memset(p + 17, (int)(k & 0xff), pad);
        p += 17 + pad;
    }
    *size = (size_t)(p - bytes);
    return bytes;
}

/* Samples cut by the ends of pieces, and one larger than many pieces. */
static void test_pieces(void **state) {
    static const struct {
        uint32_t count, pad;
    } shapes[] = {{100000, 100}, {700, 5000}, {5, 3000000}, {2, 40000000}};
    for (size_t i = 0; i < SQRL_COUNT_OF(shapes); i++) {
        size_t size;
        uint8_t *bytes = make_samples(shapes[i].count, shapes[i].pad, &size);
        put_coded("pieces.gz", "gzip", bytes, size);
        struct reading r;
        if (read_all(at("pieces.gz"), NULL, NULL, &r))
            fail_msg("%s", r.text);
        assert_int_equal(r.samples, shapes[i].count);
        /* Each line holds {"i": k, "pad": "<base64>"}: the numbers come in order. */
        const char *line = (const char *)r.lines.data;
        for (uint32_t k = 0; k < shapes[i].count; k++) {
            char want[40];
            int n = snprintf(want, sizeof want, "{\"i\": %u, \"pad\": ", k);
            assert_memory_equal(line, want, (size_t)n);
            line = (const char *)memchr(line, '\n', 60000000) + 1;
        }
        reading_reset(&r);
        free(bytes);
    }
}

/* A file that ends early: the whole samples come, then the error. */
static void test_cut(void **state) {
    size_t size;
    uint8_t *bytes = make_samples(1000, 2000, &size);
    size_t sample = size / 1000;
    put("cut.msgpack", bytes, 700 * sample + 11);
    struct reading r;
    assert_int_equal(read_all(at("cut.msgpack"), NULL, NULL, &r), SQRL_E_TRUNCATED);
    assert_int_equal(r.samples, 700);
    char want[64];
    snprintf(want, sizeof want, "sample 700: byte %zu", 700 * sample);
    if (!strstr(r.text, want))
        fail_msg("%s lacks %s", r.text, want);
    reading_reset(&r);
    /* The gzip stream itself is cut, in the middle of its bytes. */
    put_coded("cut.gz", "gzip", bytes, size);
    size_t stored;
    char *file = slurp(at("cut.gz"), &stored);
    put("cut.gz", file, stored / 2);
    assert_int_equal(read_all(at("cut.gz"), NULL, NULL, &r), SQRL_E_TRUNCATED);
    assert_in_range(r.samples, 1, 999);
    assert_non_null(strstr(r.text, "cut.gz: block "));
    assert_non_null(strstr(r.text, "decompressed byte "));
    reading_reset(&r);
    /* A flipped byte of the content breaks gzip's checksum, at the latest at the end. */
    file[stored / 2] ^= 0x10;
    put("flip.gz", file, stored);
    assert_int_equal(read_all(at("flip.gz"), NULL, NULL, &r), SQRL_E_CORRUPT);
    assert_in_range(r.samples, 0, 1000);
    reading_reset(&r);
    free(file);
    free(bytes);
}

static void test_wrong(void **state) {
    static const uint8_t never[] = {0x81, 0xa1, 'a', 0x01, 0x81, 0xa1, 'a', 0xc1};
    static const uint8_t utf8[] = {0x81, 0xa1, 'a', 0xa2, 0xc3, 0x28};
    static const uint8_t claims[] = {0x81, 0xa1, 'a', 0xc6, 0xff, 0xff, 0xff, 0xff, 0};
    uint8_t deep[100000];
    memset(deep, 0x91, sizeof deep);
    check_error(put("never.msgpack", never, sizeof never), NULL, NULL, SQRL_E_CORRUPT,
                "sample 1: byte 7", "c1");
    check_error(put("utf8.msgpack", utf8, sizeof utf8), NULL, NULL, SQRL_E_CORRUPT,
                "UTF-8", "sample 0");
    check_error(put("claims.msgpack", claims, sizeof claims), "driver", "messagepack",
                SQRL_E_LIMIT, "sample 0", NULL);
    check_error(put("deep.msgpack", deep, sizeof deep), "driver", "messagepack",
                SQRL_E_LIMIT, "sample 0", NULL);
    check_error(put_coded("deep.gz", "gzip", deep, sizeof deep), "driver", "messagepack",
                SQRL_E_LIMIT, "decompressed", NULL);
    check_error(put_coded("text.gz", "gzip", "name,age\nann,3\n", 15), NULL, NULL,
                SQRL_E_FORMAT, "text", NULL);
    check_error(put_coded("lines.gz", "gzip", "{\"a\": 1}\n", 9), "driver", "messagepack",
                SQRL_E_FORMAT, "jsonl", "driver=");
    check_error(put("zero.gz", "", 0), NULL, NULL, SQRL_E_FORMAT, "empty", NULL);
}

/* Every allocation on the way fails once; nothing leaks and no sample is lost silently.
 */
static void test_no_memory(void **state) {
    put("key.gz", store_messagepack, sizeof store_messagepack);
    for (uint64_t n = 1;; n++) {
        struct reading r;
        memset(&r, 0, sizeof r);
        sqrl_fail_allocation(n);
        struct sqrl_source *source = NULL;
        struct sqrl_shard_reader *reader = NULL;
        struct sqrl_block *block = NULL;
        int rc = sqrl_open(context, at("key.gz"), NULL, &source, &r.err);
        if (!rc)
            rc = sqrl_shard_open(source, 0, &reader, &r.err);
        if (!rc)
            rc = sqrl_shard_reader_next(reader, NULL, &block, &r.err);
        sqrl_fail_allocation(0);
        if (!rc) {
            assert_non_null(block);
            assert_int_equal(block->count, STORE_SAMPLES);
        }
        sqrl_block_unref(block);
        sqrl_shard_reader_unref(reader);
        sqrl_source_unref(source);
        if (!rc) {
            assert_true(n > 3);
            return;
        }
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_payload_is_identical),
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_wrong),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, opening_setup, opening_teardown);
}
