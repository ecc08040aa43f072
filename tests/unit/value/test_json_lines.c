/* JSON lines: Python's view of the test data, blank lines, \r\n, huge lines, every cut,
 * and errors with the values before them. */
#include "json_help.h"

#include "golden/json/vectors.h"

struct lines {
    struct sqrl_tape tape;
    struct sqrl_error err;
    uint8_t *bytes;
    size_t size, offset;
    uint32_t begin[2000], count;
    int code;
};

static void lines_decode(struct lines *l, const void *text, size_t size, uint32_t max) {
    memset(l, 0, sizeof *l);
    l->bytes = exact(text, size);
    l->size = size;
    l->code = sqrl_jsonl_decode_many(&l->tape, l->bytes, size, &l->offset, l->begin, max,
                                     &l->count, 0, NULL, &l->err);
}

static void lines_reset(struct lines *l) {
    sqrl_tape_reset(&l->tape);
    free(l->bytes);
}

/* The dumps of all values, one a line. */
static char *lines_dump(const struct lines *l) {
    struct dump d = {0};
    for (uint32_t i = 0; i < l->count; i++) {
        dump_value(&d, l->tape.nodes, l->begin[i], l->bytes);
        dump_add(&d, "\n", 1);
    }
    dump_add(&d, "", 0);
    return d.text;
}

static void check_lines(const char *text, int code, uint32_t count, size_t offset,
                        const char *dump) {
    struct lines l;
    lines_decode(&l, text, strlen(text), 2000);
    char *found = lines_dump(&l);
    if (l.code != code || l.count != count || l.offset != offset ||
        strcmp(found, dump) != 0)
        fail_msg("%s: code %d (%s), %u values, offset %zu:\n%s", text, l.code,
                 l.err.message, l.count, l.offset, found);
    free(found);
    lines_reset(&l);
}

static void files_come_out_as_from_python(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(LINES); i++) {
        struct lines l;
        struct sqrl_bytes out = {0};
        size_t size = 0;
        uint8_t *bytes = read_data(LINES[i].name, &size);
        lines_decode(&l, bytes, size, 2000);
        if (l.code)
            fail_msg("%s: %s: %s", LINES[i].name, l.err.where, l.err.message);
        assert_int_equal(l.offset, size);
        assert_int_equal(l.count, LINES[i].count);
        for (uint32_t k = 0; k < l.count; k++) {
            assert_int_equal(
                sqrl_json_encode(&out, l.tape.nodes, l.begin[k], l.bytes, &l.err),
                SQRL_OK);
            assert_int_equal(sqrl_bytes_append(&out, "\n", 1, &l.err), SQRL_OK);
        }
        assert_int_equal(out.size, LINES[i].size);
        assert_int_equal(crc32_of(0, out.data, out.size), LINES[i].crc);
        sqrl_bytes_reset(&out);
        lines_reset(&l);
        free(bytes);
    }
}

static void separators(void **state) {
    (void)state;
    check_lines("", SQRL_OK, 0, 0, "");
    check_lines("\n\n \n", SQRL_OK, 0, 4, "");
    check_lines("1\n2\n3", SQRL_OK, 3, 5, "1\n2\n3\n");
    check_lines("1\r\n2\r\n", SQRL_OK, 2, 6, "1\n2\n");
    check_lines("\n\r\n {\"a\":\"\\n\"} \n\n[]\t\r\n\n", SQRL_OK, 2, 23,
                "{s:61=s:0a}\n[]\n");
    check_lines("\xef\xbb\xbf"
                "1\n2",
                SQRL_OK, 2, 6, "1\n2\n");
    check_lines("\"a\"", SQRL_OK, 1, 3, "s:61\n");
    check_lines("true\nnull\nfalse", SQRL_OK, 3, 15, "true\nnull\nfalse\n");
}

static void the_last_line_may_be_cut(void **state) {
    (void)state;
    check_lines("1\n {\"a\": ", SQRL_OK, 1, 3, "1\n");
    check_lines("1\n\"abc", SQRL_OK, 1, 2, "1\n");
    check_lines("1\n\"abc\\", SQRL_OK, 1, 2, "1\n");
    check_lines("1\ntru", SQRL_OK, 1, 2, "1\n");
    check_lines("1\n-", SQRL_OK, 1, 2, "1\n");
    check_lines("1\n[1,2]\n[", SQRL_OK, 2, 8, "1\n[1,2]\n");
}

static void errors_keep_what_was_good(void **state) {
    (void)state;
    check_lines("1\n[1,\n2]\n", SQRL_E_CORRUPT, 1, 5, "1\n");
    check_lines("1\n{\"a\"\n:2}\n", SQRL_E_CORRUPT, 1, 6, "1\n");
    check_lines("1\n2 3\n", SQRL_E_CORRUPT, 1, 4, "1\n");
    check_lines("1\n2,3\n", SQRL_E_CORRUPT, 1, 3, "1\n");
    check_lines("[1]\n[2]x\n", SQRL_E_CORRUPT, 1, 7, "[1]\n");
    check_lines("[1]\n\"ab\ncd\"\n", SQRL_E_CORRUPT, 1, 7, "[1]\n");
    check_lines("[1]\n\"ab\n", SQRL_E_CORRUPT, 1, 7, "[1]\n");
    check_lines("{}\ntru\n1", SQRL_E_CORRUPT, 1, 3, "{}\n");
    check_lines("[1]\n[\"\\x\"]\n", SQRL_E_CORRUPT, 1, 6, "[1]\n");
    check_lines("[1]\n1.\n", SQRL_E_CORRUPT, 1, 6, "[1]\n");
}

/* Two files of the test data: one with a bad second line, one whose first value is spread
 * over lines, which JSON lines don't allow. */
static void broken_files(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t count;
        size_t fault;
        const char *says;
    } BROKEN[] = {
        {"tabular/ndjson/fail01.ndjson", 1, 35, "found '}'"},
        {"tabular/ndjson/pass01.ndjson", 0, 1, "found the end of the line"},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(BROKEN); i++) {
        struct lines l;
        size_t size = 0;
        uint8_t *bytes = read_data(BROKEN[i].name, &size);
        lines_decode(&l, bytes, size, 2000);
        assert_int_equal(l.code, SQRL_E_CORRUPT);
        assert_int_equal(l.count, BROKEN[i].count);
        assert_int_equal(l.offset, BROKEN[i].fault);
        assert_non_null(strstr(l.err.message, BROKEN[i].says));
        lines_reset(&l);
        free(bytes);
    }
}

/* Any block size gives the same values when the rest is carried over. */
static void every_cut(void **state) {
    (void)state;
    const char *text = "{\"a\": \"x\\u00e9\\\\\", \"b\": [1, 2.5e3]}\n\n\"\\n\"\r\n"
                       "{\"data\": [1, 2], \"type\": \"<i2\", \"shape\": [2]}\n[true]\n";
    struct lines whole, part;
    size_t size = strlen(text);
    lines_decode(&whole, text, size, 2000);
    assert_int_equal(whole.count, 4);
    char *want = lines_dump(&whole);
    for (size_t cut = 0; cut < size; cut++) {
        lines_decode(&part, text, cut, 2000);
        assert_int_equal(part.code, SQRL_OK);
        assert_true(part.offset <= cut);
        uint8_t *rest = realloc(part.bytes, size);
        memcpy(rest + cut, text + cut, size - cut);
        part.bytes = rest;
        assert_memory_equal(rest + part.offset, text + part.offset, size - part.offset);
        uint32_t more;
        assert_int_equal(sqrl_jsonl_decode_many(&part.tape, rest, size, &part.offset,
                                                part.begin + part.count, 100, &more, 0,
                                                NULL, &part.err),
                         SQRL_OK);
        part.count += more;
        char *found = lines_dump(&part);
        assert_string_equal(found, want);
        free(found);
        lines_reset(&part);
    }
    free(want);
    lines_reset(&whole);
}

static void stops_after_max_values(void **state) {
    (void)state;
    const char *text = "1\n\n2\n3\n";
    struct lines l;
    lines_decode(&l, text, strlen(text), 2);
    assert_int_equal(l.code, SQRL_OK);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.offset, 5);
    assert_int_equal(sqrl_jsonl_decode_many(&l.tape, l.bytes, l.size, &l.offset, l.begin,
                                            2, &l.count, 0, NULL, NULL),
                     SQRL_OK);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.begin[0], 2);
    assert_int_equal(l.offset, 7);
    lines_reset(&l);
}

static void a_huge_line(void **state) {
    (void)state;
    size_t n = 5 << 20, size = n + 40;
    char *text = malloc(size + 1);
    memcpy(text, "1\n{\"k\": \"", 9);
    memset(text + 9, 'x', n);
    memcpy(text + 9 + 1000, "\\n", 2);
    memcpy(text + 9 + n, "\"}\n[2]\n", 8);
    size = 9 + n + 7;
    struct lines l;
    lines_decode(&l, text, size, 2000);
    assert_int_equal(l.code, SQRL_OK);
    assert_int_equal(l.count, 3);
    assert_int_equal(l.offset, size);
    assert_int_equal(l.tape.nodes[3].size, n - 1);
    assert_int_equal(l.bytes[l.tape.nodes[3].v.offset + 1000], '\n');
    assert_true(l.tape.capacity < 10000);
    lines_reset(&l);
    struct sqrl_limits limits = {.max_bytes = 1 << 20};
    lines_decode(&l, "", 0, 0);
    free(l.bytes);
    l.bytes = exact(text, size);
    l.offset = 0;
    assert_int_equal(sqrl_jsonl_decode_many(&l.tape, l.bytes, size, &l.offset, l.begin, 9,
                                            &l.count, 0, &limits, &l.err),
                     SQRL_E_LIMIT);
    assert_int_equal(l.count, 1);
    lines_reset(&l);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_come_out_as_from_python),
        cmocka_unit_test(separators),
        cmocka_unit_test(the_last_line_may_be_cut),
        cmocka_unit_test(errors_keep_what_was_good),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(stops_after_max_values),
        cmocka_unit_test(a_huge_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
