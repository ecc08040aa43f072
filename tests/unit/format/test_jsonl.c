/* JSON lines: plain files by stretches on any thread, compressed ones in order; both give
 * the same samples, and errors name line and byte. */
#include "../driver/opening.h"

#include "golden/store/vectors.h"

static void check_text(const char *text, const char *want) {
    check_lines(put_text("a.jsonl", text), want, strlen(want));
    check_lines(put_coded("a.jsonl.gz", "gzip", text, strlen(text)), want, strlen(want));
    check_lines(put_coded("a.jsonl.zst", "zstd", text, strlen(text)), want, strlen(want));
}

static void test_lines(void **state) {
    check_text("{\"a\": 1}\n{\"a\": 2}\n", "{\"a\": 1}\n{\"a\": 2}\n");
    check_text("{\"a\":1}\r\n\r\n  {\"a\":2}", "{\"a\": 1}\n{\"a\": 2}\n");
    check_text("\n\n[1,2]\n\"x\"\nnull\n3.5\n", "[1, 2]\n\"x\"\nnull\n3.5\n");
    check_text("\xef\xbb\xbf{\"mark\": true}\n", "{\"mark\": true}\n");
    check_text("{\"u\": \"\\u00e9\\n\\ud83d\\udc3f\"}\n",
               "{\"u\": \"\xc3\xa9\\n\xf0\x9f\x90\xbf\"}\n");
    check_lines(put("s.jsonl", store_lines, sizeof store_lines), store_lines,
                sizeof store_lines);
}

/* Lines of many lengths, so that line ends meet the ends of stretches in all ways. */
static char *make_lines(uint32_t count, uint32_t seed, uint32_t longest, size_t *size) {
    char *text = malloc((size_t)count * (longest + 40)), *p = text;
    struct sqrl_rng rng;
    assert_non_null(text);
    sqrl_rng_init(&rng, seed);
    for (uint32_t k = 0; k < count; k++) {
        size_t pad = (size_t)sqrl_rng_below(&rng, longest + 1);
        p += sprintf(p, "{\"i\": %u, \"pad\": \"", k);
        memset(p, 'a' + (int)(k % 26), pad);
        p += pad;
        p += sprintf(p, "\"}\n");
    }
    *size = (size_t)(p - text);
    return text;
}

static void test_stretches(void **state) {
    static const struct {
        uint32_t count, longest;
    } shapes[] = {{60000, 90}, {3000, 3000}, {40, 900000}, {4, 9000000}, {1, 5000000}};
    for (uint32_t i = 0; i < SQRL_COUNT_OF(shapes); i++) {
        size_t size;
        char *text = make_lines(shapes[i].count, i, shapes[i].longest, &size);
        check_lines(put("big.jsonl", text, size), text, size);
        check_lines(put("open-end.jsonl", text, size - 1), text, size);
        check_lines(put_coded("big.jsonl.gz", "gzip", text, size), text, size);
        free(text);
    }
    /* A line ends exactly where a stretch does, and one byte to either side. */
    for (size_t length = 1015700; length < 1015900; length += length % 2 ? 13 : 1) {
        char *text = malloc(2 * length + 2);
        assert_non_null(text);
        memset(text, ' ', 2 * length);
        memcpy(text, "[1]", 3);
        memcpy(text + length, "\n[2]", 4);
        text[2 * length] = '\n';
        check_lines(put("edge.jsonl", text, 2 * length + 1), "[1]\n[2]\n", 8);
        free(text);
    }
}

/* The exact boundary is known from the ops table. */
static void test_boundary(void **state) {
    struct sqrl_source *source = NULL;
    struct sqrl_shard_reader *reader = NULL;
    size_t size;
    char *text = make_lines(30000, 3, 90, &size);
    put("big.jsonl", text, size);
    assert_int_equal(sqrl_open(context, at("big.jsonl"), NULL, &source, NULL), SQRL_OK);
    assert_int_equal(sqrl_shard_open(source, 0, &reader, NULL), SQRL_OK);
    struct sqrl_block_info info;
    sqrl_shard_reader_block_info(reader, 1, &info);
    assert_int_equal(info.first, SQRL_UNKNOWN);
    assert_int_equal(info.samples, SQRL_NO_NODE);
    assert_int_equal(sqrl_shard_reader_info(reader)->samples, SQRL_UNKNOWN);
    size_t stretch = (size_t)info.offset;
    sqrl_shard_reader_unref(reader);
    sqrl_source_unref(source);
    free(text);
    for (size_t end = stretch - 3; end <= stretch + 3; end++) {
        char *edge = malloc(2 * stretch);
        assert_non_null(edge);
        memset(edge, ' ', 2 * stretch);
        memcpy(edge, "[1]", 3);
        memcpy(edge + end, "\n[2]\n[3]", 8); /* the first line has `end` bytes */
        check_lines(put("edge.jsonl", edge, end + 8), "[1]\n[2]\n[3]\n", 12);
        free(edge);
    }
}

/* No lines: in a file of no bytes, too, where the name promises lines. */
static void test_no_lines(void **state) {
    check_lines(put("zero.jsonl", "", 0), "", 0);
    check_lines(put("zero.ndjson", "", 0), "", 0);
    check_text("", "");
    check_text("\n \n", "");
}

/* Pieces of a compressed file may be parsed in any order: here from the last to the
 * first. */
static void test_cut_and_parse(void **state) {
    struct sqrl_source *source = NULL;
    struct sqrl_shard_reader *reader = NULL;
    struct sqrl_block *block[40], *none = NULL;
    size_t size;
    uint32_t count = 0;
    char *text = make_lines(60000, 7, 90, &size);
    const char *url = put_coded("cut.jsonl.gz", "gzip", text, size);
    assert_int_equal(sqrl_open(context, url, NULL, &source, NULL), SQRL_OK);
    assert_int_equal(sqrl_shard_open(source, 0, &reader, NULL), SQRL_OK);
    assert_true(sqrl_shard_reader_cuts(reader));
    do {
        assert_int_equal(sqrl_shard_reader_cut(reader, NULL, &block[count], NULL),
                         SQRL_OK);
        assert_int_equal(block[count] ? block[count]->count : 0, 0);
    } while (block[count] && ++count < SQRL_COUNT_OF(block));
    assert_in_range(count, size >> 20, (size >> 20) + 1);
    assert_int_equal(sqrl_shard_reader_cut(reader, NULL, &none, NULL), SQRL_OK);
    assert_null(none);
    for (uint32_t i = count; i-- > 0;)
        assert_int_equal(sqrl_shard_reader_parse(reader, block[i], NULL), SQRL_OK);
    struct reading r = {0};
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(block[i]->number, i);
        take_block(&r, block[i]);
    }
    assert_int_equal(r.lines.size, size);
    assert_memory_equal(r.lines.data, text, size);
    reading_reset(&r);
    sqrl_shard_reader_unref(reader);
    sqrl_source_unref(source);
    free(text);
}

static void test_errors(void **state) {
    size_t size;
    char *text = make_lines(60000, 1, 90, &size);
    /* Break the 45,001st line: its number and byte are known by counting. */
    char *line = text;
    for (int i = 0; i < 45000; i++)
        line = strchr(line, '\n') + 1;
    line[1] = '#';
    char byte[40];
    snprintf(byte, sizeof byte, "byte %zu", (size_t)(line - text) + 1);
    put("bad.jsonl", text, size);
    put_coded("bad.jsonl.gz", "gzip", text, size);
    check_error(at("bad.jsonl"), NULL, NULL, SQRL_E_CORRUPT, "line 45001", byte);
    check_error(at("bad.jsonl.gz"), NULL, NULL, SQRL_E_CORRUPT, "line 45001", byte);
    struct reading r;
    for (int gz = 0; gz < 2; gz++) {
        read_all(gz ? at("bad.jsonl.gz") : at("bad.jsonl"), NULL, NULL, &r);
        assert_int_equal(r.samples, 45000); /* all before the fault */
        reading_reset(&r);
    }
    free(text);
    check_error(put_text("cut.jsonl", "{\"a\": 1}\n{\"a\": [1, 2"), NULL, NULL,
                SQRL_E_TRUNCATED, "line 2", NULL);
    check_error(put_text("pretty.json", "{\n  \"a\": 1\n}\n"), NULL, NULL, SQRL_E_CORRUPT,
                "line 1", NULL);
    check_error(put_text("two.jsonl", "{\"a\": 1} {\"a\": 2}\n"), NULL, NULL,
                SQRL_E_CORRUPT, "line 1", NULL);
    check_error(put_text("utf8.jsonl", "{\"a\": 1}\n{\"a\": \"\xc3\x28\"}\n"), NULL, NULL,
                SQRL_E_CORRUPT, "line 2", "UTF-8");
    static const char *const not_lines[] = {"zero.jsonl.gz", "zero.jsonl.zst",
                                            "zero.json", "zero"};
    for (size_t i = 0; i < SQRL_COUNT_OF(not_lines); i++)
        check_error(put(not_lines[i], "", 0), NULL, NULL, SQRL_E_FORMAT, "empty", NULL);
    char deep[4001];
    memset(deep, '[', 4000);
    deep[4000] = '\n';
    check_error(put("deep.jsonl", deep, sizeof deep), "driver", "jsonl", SQRL_E_LIMIT,
                "line 1", NULL);
}

static void test_options(void **state) {
    put_text("nan.jsonl", "{\"a\": NaN}\n");
    struct reading r;
    assert_int_equal(read_all(at("nan.jsonl"), NULL, NULL, &r), SQRL_OK);
    assert_int_equal(r.samples, 1);
    reading_reset(&r);
    check_error(at("nan.jsonl"), "nan", "false", SQRL_E_CORRUPT, "line 1", NULL);
    char *text = malloc(4000001);
    assert_non_null(text);
    memset(text, ' ', 4000000);
    memcpy(text, "{\"a\": 1", 7);
    memcpy(text + 3999998, "}\n", 2);
    put("long.jsonl", text, 4000000);
    put_coded("long.jsonl.gz", "gzip", text, 4000000);
    free(text);
    assert_int_equal(read_all(at("long.jsonl"), "max_line", "4 MiB", &r), SQRL_OK);
    reading_reset(&r);
    check_error(at("long.jsonl"), "max_line", "2 MiB", SQRL_E_LIMIT, "2097152", NULL);
    check_error(at("long.jsonl.gz"), "max_line", "2 MiB", SQRL_E_LIMIT, "2097152", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),         cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_boundary),      cmocka_unit_test(test_errors),
        cmocka_unit_test(test_options),       cmocka_unit_test(test_no_lines),
        cmocka_unit_test(test_cut_and_parse),
    };
    return cmocka_run_group_tests(tests, opening_setup, opening_teardown);
}
