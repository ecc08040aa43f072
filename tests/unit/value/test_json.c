/* JSON documents: the public suites, Python's view of them, both CPU twins, every cut,
 * mutations, limits, errors, failing allocations. */
#include "json_help.h"

#include <math.h>

#include <limits.h>
#include <unistd.h>

#include "golden/json/vectors.h"

static void reads_and_writes_as_python(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(VALUES); i++)
        check_json(VALUES[i].text, VALUES[i].size, VALUES[i].dump, VALUES[i].again,
                   VALUES[i].again_size);
}

/* The whole test data that Python accepts, written again as Python writes it. */
static void files_come_out_as_from_python(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(FILES); i++) {
        struct sqrl_tape tape = {0};
        struct sqrl_bytes out = {0};
        struct sqrl_error err = {0};
        size_t size;
        uint8_t *bytes = read_data(FILES[i].name, &size);
        if (decode_all(&tape, bytes, size, &err))
            fail_msg("%s: %s: %s", FILES[i].name, err.where, err.message);
        assert_int_equal(sqrl_json_encode(&out, tape.nodes, 0, bytes, &err), SQRL_OK);
        if (out.size != FILES[i].size || crc32_of(0, out.data, out.size) != FILES[i].crc)
            fail_msg("%s: encoded differently from Python", FILES[i].name);
        sqrl_bytes_reset(&out);
        sqrl_tape_reset(&tape);
        free(bytes);
    }
}

/* --- suites ---------------------------------------------------------------------------
 */
static void visit_suite(const char *name, uint8_t *bytes, size_t size, void *arg) {
    unsigned *counts = arg;
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    int code = decode_all(&tape, bytes, size, &err);
    bool yes = strncmp(name, "y_", 2) == 0, no = strncmp(name, "n_", 2) == 0;
    if (yes && code)
        fail_msg("%s: refused: %s: %s", name, err.where, err.message);
    if (no && !code)
        fail_msg("%s: accepted", name);
    if (code && (!err.message[0] || (int)err.code != code))
        fail_msg("%s: no message", name);
    if (code)
        assert_int_equal(tape.count, 0);
    counts[yes ? 0 : no ? 1 : 2]++;
    sqrl_tape_reset(&tape);
}

static void json_test_suite(void **state) {
    (void)state;
    unsigned counts[3] = {0};
    each_file("json/JSONTestSuite/test_parsing", visit_suite, counts);
    each_file("json/JSONTestSuite/test_transform", visit_suite, counts);
    assert_true(counts[0] > 40 && counts[1] > 100 && counts[2] > 20);
}

/* These are JSON by RFC 8259, whatever their names say: a string as document (fail01),
 * nesting of 20 (fail18), a duplicate key (fail39), an integer beyond 64 bits (fail41),
 * and numbers beyond the range of double (fail60, fail73), which are infinite as in
 * Python. */
static const char *const ALLOWED[] = {
    "fail01_EXCLUDE.json",  "fail18_EXCLUDE.json", "fail39_EXCLUDE.json",
    "fail41_toolarge.json", "fail60.json",         "fail73.json",
};

static void visit_checker(const char *name, uint8_t *bytes, size_t size, void *arg) {
    unsigned *refused = arg;
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    bool good = strncmp(name, "pass", 4) == 0;
    for (size_t i = 0; i < SQRL_COUNT_OF(ALLOWED); i++)
        good |= strcmp(name, ALLOWED[i]) == 0;
    int code = decode_all(&tape, bytes, size, &err);
    if (good != !code)
        fail_msg("%s: code %d: %s: %s", name, code, err.where, err.message);
    *refused += code != SQRL_OK;
    sqrl_tape_reset(&tape);
}

static void json_checker(void **state) {
    (void)state;
    unsigned refused = 0, n = each_file("json/jsonchecker", visit_checker, &refused);
    assert_true(n > 60 && refused > 45);
}

/* --- twins ----------------------------------------------------------------------------
 */
static const char *const FOLDERS[] = {
    "json/JSONTestSuite/test_parsing",
    "json/JSONTestSuite/test_transform",
    "json/jsonchecker",
    "json/fuzz",
    "tabular/json",
    "tabular/ndjson",
};

static void add_tape(const char *name, uint8_t *bytes, size_t size, void *arg) {
    (void)name;
    uint32_t *crc = arg;
    struct sqrl_tape tape = {0};
    size_t offset = 0;
    int code = sqrl_json_decode(&tape, bytes, size, &offset, 0, NULL, NULL);
    uint64_t result[2] = {(uint64_t)code, offset};
    *crc = crc32_of(*crc, (const uint8_t *)result, sizeof result);
    *crc = crc32_of(*crc, (const uint8_t *)tape.nodes, tape.count * sizeof *tape.nodes);
    *crc = crc32_of(*crc, bytes, size);
    sqrl_tape_reset(&tape);
}

static uint32_t tapes_crc(void) {
    uint32_t crc = 0;
    for (size_t i = 0; i < SQRL_COUNT_OF(FOLDERS); i++)
        each_file(FOLDERS[i], add_tape, &crc);
    return crc;
}

/* Runs this program again under another SQRL_CPU; it prints name and checksum. */
static void run_twin(const char *program, const char *cpu, char name[16], unsigned *crc) {
    char command[PATH_MAX + 64];
    snprintf(command, sizeof command, "SQRL_CPU=%s SQRL_TEST_TAPES=1 '%s'", cpu, program);
    FILE *child = popen(command, "r");
    assert_non_null(child);
    assert_int_equal(fscanf(child, "%15s %x", name, crc), 2);
    assert_int_equal(pclose(child), 0);
}

static void twins_write_the_same_tapes(void **state) {
    (void)state;
    char program[PATH_MAX], name[2][16];
    unsigned crc[2];
    test_data();
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0)
        skip();
    program[n] = 0;
    run_twin(program, "scalar", name[0], &crc[0]);
    run_twin(program, "avx2", name[1], &crc[1]);
    assert_string_equal(name[0], "scalar");
    if (strcmp(name[1], "avx2") != 0) {
        print_message("skipped: this machine has no AVX2\n");
        skip();
    }
    assert_int_equal(crc[0], crc[1]);
}

/* The scanners alone, on random bytes of the characters that matter. */
static void twins_find_the_same_tokens(void **state) {
    (void)state;
    static const char BYTES[] = "\\\\\\\"\"{}[]:,  \n\t\r\x01\x1a\x0c\xc3\xa9 0aZ\x7f";
    struct sqrl_json_scan *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 3);
    for (int round = 0; round < 300; round++) {
        size_t size = (size_t)sqrl_rng_below(&rng, 2000);
        uint8_t *bytes = exact(BYTES, 0);
        bytes = realloc(bytes, size + 1);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)BYTES[sqrl_rng_below(&rng, sizeof BYTES)];
        memset(a, 0, sizeof *a);
        a->bytes = bytes;
        a->size = size;
        a->lines = round & 1;
        *b = *a;
        while (a->pos < size) {
            sqrl_json_scan_scalar(a, 512);
            sqrl_json_scan_kernel()(b, 512);
            size_t words = (a->pos - a->base + 63) / 64;
            assert_int_equal(a->pos, b->pos);
            assert_int_equal(a->string, b->string);
            assert_memory_equal(a->special, b->special, words * 8);
            assert_memory_equal(a->escape, b->escape, words * 8);
            assert_int_equal(a->count, b->count);
            assert_memory_equal(a->index, b->index, a->count * sizeof a->index[0]);
        }
        free(bytes);
    }
    free(a);
    free(b);
}

/* --- cuts and mutations ---------------------------------------------------------------
 */
/* A document cut short is never refused for good, is not written to, and is read when the
 * rest has come. */
static void check_cuts(const char *text, size_t size) {
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    char *whole = dump_json(text, size);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = exact(text, cut);
        size_t offset = 0;
        tape.count = 0;
        int code = sqrl_json_decode(&tape, part, cut, &offset, 0, NULL, &err);
        if (code) {
            if (code != SQRL_E_TRUNCATED || tape.count || memcmp(part, text, cut) != 0)
                fail_msg("%.60s cut at %zu: code %d: %s", text, cut, code, err.message);
            part = realloc(part, size);
            memcpy(part + cut, text + cut, size - cut);
            assert_int_equal(decode_all(&tape, part, size, &err), SQRL_OK);
            char *dump = dump_text(&tape, 0, part);
            assert_string_equal(dump, whole);
            free(dump);
        } else { /* only white space or more digits may follow */
            assert_int_equal(offset, cut);
            assert_true(strspn(text + cut, " \t\r\n0123456789.eE+-") == size - cut);
        }
        free(part);
    }
    free(whole);
    sqrl_tape_reset(&tape);
}

static void every_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(VALUES); i++)
        if (VALUES[i].size < 3000)
            check_cuts(VALUES[i].text, VALUES[i].size);
    for (size_t i = 0; i < SQRL_COUNT_OF(ARRAYS); i++)
        if (strlen(ARRAYS[i].text) < 3000)
            check_cuts(ARRAYS[i].text, strlen(ARRAYS[i].text));
}

/* Whatever is accepted is written, and read again, as the same value. */
static bool check_again(uint8_t *bytes, size_t size) {
    struct sqrl_tape tape = {0};
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    size_t offset = 0;
    int code = sqrl_json_decode(&tape, bytes, size, &offset, SQRL_JSON_NAN, NULL, &err);
    assert_true(offset <= size);
    if (!code) {
        char *before = dump_text(&tape, 0, bytes);
        assert_int_equal(sqrl_json_encode(&out, tape.nodes, 0, bytes, &err), SQRL_OK);
        offset = tape.count = 0;
        assert_int_equal(sqrl_json_decode(&tape, out.data, out.size, &offset,
                                          SQRL_JSON_NAN, NULL, &err),
                         SQRL_OK);
        char *after = dump_text(&tape, 0, out.data);
        assert_string_equal(before, after);
        free(before);
        free(after);
    }
    sqrl_bytes_reset(&out);
    sqrl_tape_reset(&tape);
    return !code;
}

static void mutations(void **state) {
    (void)state;
    static const char BYTES[] = "\"\\{}[]:,0123456789eE+-.tfnu \n\x80\xc3";
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 11);
    unsigned accepted = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        size_t i =
            (size_t)sqrl_rng_below(&rng, SQRL_COUNT_OF(VALUES) + SQRL_COUNT_OF(ARRAYS));
        bool array = i >= SQRL_COUNT_OF(VALUES);
        const char *text =
            array ? ARRAYS[i - SQRL_COUNT_OF(VALUES)].text : VALUES[i].text;
        size_t size = array ? strlen(text) : VALUES[i].size;
        if (size > 2000)
            continue;
        uint8_t *bytes = exact(text, size);
        for (uint64_t n = 1 + sqrl_rng_below(&rng, 3); n > 0; n--) {
            size_t at = (size_t)sqrl_rng_below(&rng, size);
            bytes[at] = round & 1
                            ? (uint8_t)sqrl_rng_next(&rng)
                            : (uint8_t)BYTES[sqrl_rng_below(&rng, sizeof BYTES - 1)];
        }
        if (check_again(bytes, size))
            accepted++;
        else
            refused++;
        free(bytes);
    }
    assert_true(accepted > 1000 && refused > 5000);
}

/* --- errors and limits ----------------------------------------------------------------
 */
static void errors_say_what_and_where(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int code;
        size_t fault;
        const char *says;
    } BAD[] = {
        {"", SQRL_E_TRUNCATED, 0, "cut short"},
        {"  ", SQRL_E_TRUNCATED, 2, "cut short"},
        {"\xef\xbb\xbf", SQRL_E_TRUNCATED, 3, "cut short"},
        {"[1,2", SQRL_E_TRUNCATED, 4, "begins at byte 0"},
        {"[1 2]", SQRL_E_CORRUPT, 3, "expected ',' or ']' in an array, found '2'"},
        {"[1}", SQRL_E_CORRUPT, 2, "expected ',' or ']' in an array, found '}'"},
        {"{\"a\":1]", SQRL_E_CORRUPT, 6, "expected ',' or '}' in an object, found ']'"},
        {"{\"a\" 1}", SQRL_E_CORRUPT, 5, "expected ':' behind a key, found '1'"},
        {"{1:2}", SQRL_E_CORRUPT, 1, "expected a key in quotes, found '1'"},
        {"{\"a\":1,}", SQRL_E_CORRUPT, 7, "expected a key in quotes, found '}'"},
        {"[1,]", SQRL_E_CORRUPT, 3, "expected a value, found ']'"},
        {"[,1]", SQRL_E_CORRUPT, 1, "expected a value, found ','"},
        {"[\xe9]", SQRL_E_CORRUPT, 1, "found byte 0xe9"},
        {"[tru]", SQRL_E_CORRUPT, 1, "expected a value, found 't'"},
        {"[truex]", SQRL_E_CORRUPT, 5, "found 'x'"},
        {"]", SQRL_E_CORRUPT, 0, "expected a value"},
        {"\"a\tb\"", SQRL_E_CORRUPT, 2, "escape"},
        {"\"a\n", SQRL_E_CORRUPT, 2, "found the end of the line"},
        {"[\"ab\\q\"]", SQRL_E_CORRUPT, 4, "unknown escape"},
        {"[\"ab\\u12g4\"]", SQRL_E_CORRUPT, 4, "4 hexadecimal digits"},
        {"[\"\\ud800\"]", SQRL_E_CORRUPT, 2, "half a surrogate pair"},
        {"[\"\\udc00\\ud800\"]", SQRL_E_CORRUPT, 2, "half a surrogate pair"},
        {"[\"\\ud800\\u0041\"]", SQRL_E_CORRUPT, 2, "half a surrogate pair"},
        {"[\"\\q\",\"\\x\"]", SQRL_E_CORRUPT, 2, "unknown escape"},
        {"[\"ok\xff\"]", SQRL_E_CORRUPT, 4, "not UTF-8"},
        {"[\"\xed\xa0\x80\"]", SQRL_E_CORRUPT, 2, "not UTF-8"},
        {"[\"\xc0\x80\"]", SQRL_E_CORRUPT, 2, "not UTF-8"},
        {"[1]\x0c", SQRL_OK, 3, ""},
        {"[1] x", SQRL_OK, 4, ""},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(BAD); i++) {
        struct sqrl_tape tape = {0};
        struct sqrl_error err = {0};
        size_t size = strlen(BAD[i].text), offset = 0;
        uint8_t *bytes = exact(BAD[i].text, size);
        int code = sqrl_json_decode(&tape, bytes, size, &offset, 0, NULL, &err);
        if (code != BAD[i].code || offset != BAD[i].fault ||
            !strstr(err.message, BAD[i].says))
            fail_msg("%s: code %d at %zu: %s", BAD[i].text, code, offset, err.message);
        char where[32];
        snprintf(where, sizeof where, "byte %zu", offset);
        if (code)
            assert_string_equal(err.where, where);
        sqrl_tape_reset(&tape);
        free(bytes);
    }
}

/* Offsets count from `bytes`, whatever comes before the value. */
static void decodes_one_value_after_another(void **state) {
    (void)state;
    const char *text = "  1 {\"a\": \"\\n\"}[2]\"x\"null ";
    static const size_t ENDS[] = {4, 15, 18, 21, 26};
    size_t size = strlen(text), offset = 0;
    uint8_t *bytes = exact(text, size);
    struct sqrl_tape tape = {0};
    for (size_t i = 0; i < SQRL_COUNT_OF(ENDS); i++) {
        assert_int_equal(sqrl_json_decode(&tape, bytes, size, &offset, 0, NULL, NULL),
                         SQRL_OK);
        assert_int_equal(offset, ENDS[i]);
    }
    assert_int_equal(tape.count, 8);
    char *dump = dump_text(&tape, 1, bytes);
    assert_string_equal(dump, "{s:61=s:0a}");
    free(dump);
    assert_int_equal(tape.nodes[1].v.next, 4);
    assert_int_equal(sqrl_json_decode(&tape, bytes, size, &offset, 0, NULL, NULL),
                     SQRL_E_TRUNCATED);
    assert_int_equal(tape.count, 8);
    sqrl_tape_reset(&tape);
    free(bytes);
}

static uint8_t *nested(size_t depth, bool closed) {
    uint8_t *bytes = malloc(depth * 2);
    memset(bytes, '[', depth);
    memset(bytes + depth, closed ? ']' : '[', depth);
    return bytes;
}

static void depth_is_limited(void **state) {
    (void)state;
    struct sqrl_tape tape = {0};
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    for (size_t depth = 511; depth <= 513; depth++) {
        uint8_t *bytes = nested(depth, true);
        assert_int_equal(decode_all(&tape, bytes, 2 * depth, &err),
                         depth <= 512 ? SQRL_OK : SQRL_E_LIMIT);
        free(bytes);
    }
    uint8_t *bomb = nested(1000000, false);
    assert_int_equal(decode_all(&tape, bomb, 2000000, &err), SQRL_E_LIMIT);
    assert_true(tape.capacity < 100000); /* it stopped early */
    free(bomb);
    struct sqrl_limits deep = {.max_depth = 200000};
    uint8_t *bytes = nested(200000, true);
    size_t offset = 0;
    tape.count = 0;
    assert_int_equal(sqrl_json_decode(&tape, bytes, 400000, &offset, 0, &deep, &err),
                     SQRL_OK);
    assert_int_equal(tape.count, 200000);
    assert_int_equal(sqrl_json_encode(&out, tape.nodes, 0, bytes, &err), SQRL_OK);
    assert_int_equal(out.size, 400000);
    assert_memory_equal(out.data, bytes, out.size);
    free(bytes);
    sqrl_bytes_reset(&out);
    sqrl_tape_reset(&tape);
}

static void nodes_and_bytes_are_limited(void **state) {
    (void)state;
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    size_t n = 100000, offset = 0;
    uint8_t *bytes = malloc(2 * n + 1);
    for (size_t i = 0; i < n; i++)
        memcpy(bytes + 1 + 2 * i, "1,", 2);
    bytes[0] = '[';
    bytes[2 * n] = ']';
    struct sqrl_limits limits = {.max_nodes = 100001};
    assert_int_equal(sqrl_json_decode(&tape, bytes, 2 * n + 1, &offset, 0, &limits, &err),
                     SQRL_OK);
    limits.max_nodes = 100000;
    tape.count = 0;
    offset = 0;
    assert_int_equal(sqrl_json_decode(&tape, bytes, 2 * n + 1, &offset, 0, &limits, &err),
                     SQRL_E_LIMIT);
    assert_int_equal(tape.count, 0);
    limits = (struct sqrl_limits){.max_bytes = 2 * n + 1};
    offset = 0;
    assert_int_equal(sqrl_json_decode(&tape, bytes, 2 * n + 1, &offset, 0, &limits, &err),
                     SQRL_OK);
    limits.max_bytes = 2 * n;
    tape.count = 0;
    offset = 0;
    assert_int_equal(sqrl_json_decode(&tape, bytes, 2 * n + 1, &offset, 0, &limits, &err),
                     SQRL_E_LIMIT);
    free(bytes);
    sqrl_tape_reset(&tape);
}

/* Strings of every length at every place around the ends of blocks and windows. */
static void strings_across_blocks(void **state) {
    (void)state;
    static const char *const INNER[] = {"", "\\n", "\xc3\xa9", "\\\\", "\\\""};
    static const char *const HEX[] = {"", "0a", "c3a9", "5c", "22"};
    for (size_t length = 0; length < 200; length++) {
        for (size_t pad = 950; pad < 1090; pad += 7) {
            size_t kind = (length + pad) % 5;
            struct dump text = {0}, want = {0};
            dump_add(&text, "[", 1);
            for (size_t i = 0; i < pad; i++)
                dump_add(&text, " ", 1);
            dump_add(&text, "\"", 1);
            dump_add(&want, "[s:", 3);
            for (size_t i = 0; i < length; i++) {
                dump_add(&text, "x", 1);
                dump_add(&want, "78", 2);
            }
            dump_add(&text, INNER[kind], strlen(INNER[kind]));
            dump_add(&want, HEX[kind], strlen(HEX[kind]));
            dump_add(&text, "\",1]", 4);
            dump_add(&want, ",1]", 3);
            char *dump = dump_json(text.text, text.size);
            assert_string_equal(dump, want.text);
            free(dump);
            free(text.text);
            free(want.text);
        }
    }
}

static void ascii_is_told(void **state) {
    (void)state;
    char text[] = "[\"abc\",\"\xc3\xa9\",\"\\u00e9\",\"\\u0041\",\"\\n\"]";
    struct sqrl_tape tape = {0};
    assert_int_equal(decode_all(&tape, (uint8_t *)text, strlen(text), NULL), SQRL_OK);
    static const unsigned FLAGS[] = {SQRL_NODE_ASCII, 0, 0, SQRL_NODE_ASCII,
                                     SQRL_NODE_ASCII};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(tape.nodes[1 + i].flags, FLAGS[i]);
    sqrl_tape_reset(&tape);
}

static void writes_binaries_and_refuses_the_rest(void **state) {
    (void)state;
    static const struct {
        size_t size;
        const char *text;
    } BASE64[] = {/* RFC 4648, section 10 */
                  {0, "\"\""},        {1, "\"Zg==\""},     {2, "\"Zm8=\""},
                  {3, "\"Zm9v\""},    {4, "\"Zm9vYg==\""}, {5, "\"Zm9vYmE=\""},
                  {6, "\"Zm9vYmFy\""}};
    const uint8_t bytes[] = "foobar";
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    for (size_t i = 0; i < SQRL_COUNT_OF(BASE64); i++) {
        struct sqrl_node node = {.type = SQRL_BINARY, .size = (uint32_t)BASE64[i].size};
        out.size = 0;
        assert_int_equal(sqrl_json_encode(&out, &node, 0, bytes, &err), SQRL_OK);
        assert_int_equal(out.size, strlen(BASE64[i].text));
        assert_memory_equal(out.data, BASE64[i].text, out.size);
    }
    struct sqrl_node map[] = {{.type = SQRL_MAP, .size = 1, .v.next = 3},
                              {.type = SQRL_BINARY, .size = 1},
                              {.type = SQRL_NULL}};
    out.size = 0;
    assert_int_equal(sqrl_json_encode(&out, map, 0, bytes, &err), SQRL_E_TYPE);
    assert_non_null(strstr(err.message, "strings as keys"));
    static const uint8_t TYPES[] = {SQRL_EXT, SQRL_COMPLEX, 99};
    for (size_t i = 0; i < SQRL_COUNT_OF(TYPES); i++) {
        struct sqrl_node node = {.type = TYPES[i], .v.next = 1};
        assert_int_equal(sqrl_json_encode(&out, &node, 0, bytes, &err), SQRL_E_TYPE);
    }
    assert_int_equal(out.size, 0);
    sqrl_bytes_reset(&out);
}

/* json.dumps({1: None, -2: 0, 18446744073709551615: 0, 0.5: 0, 1e16: 0, float("nan"): 0,
 * True: 0, None: {"s": 0}}) */
static void keys_that_are_no_strings(void **state) {
    (void)state;
    const char *want = "{\"1\": null, \"-2\": 0, \"18446744073709551615\": 0, "
                       "\"0.5\": 0, \"1e+16\": 0, \"NaN\": 0, \"true\": 0, "
                       "\"null\": {\"s\": 0}}";
    const uint8_t bytes[] = "s";
    const struct sqrl_node zero = {.type = SQRL_INT};
    struct sqrl_node map[] = {{.type = SQRL_MAP, .size = 8, .v.next = 19},
                              {.type = SQRL_INT, .v.i = 1},
                              {.type = SQRL_NULL},
                              {.type = SQRL_INT, .v.i = -2},
                              zero,
                              {.type = SQRL_UINT, .v.u = UINT64_MAX},
                              zero,
                              {.type = SQRL_FLOAT, .v.f = 0.5},
                              zero,
                              {.type = SQRL_FLOAT, .v.f = 1e16},
                              zero,
                              {.type = SQRL_FLOAT, .v.f = (double)NAN},
                              zero,
                              {.type = SQRL_BOOL, .v.u = 1},
                              zero,
                              {.type = SQRL_NULL},
                              {.type = SQRL_MAP, .size = 1, .v.next = 19},
                              {.type = SQRL_STRING, .size = 1},
                              zero};
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_json_encode(&out, map, 0, bytes, &err), SQRL_OK);
    assert_int_equal(out.size, strlen(want));
    assert_memory_equal(out.data, want, out.size);
    sqrl_bytes_reset(&out);
}

/* json.dumps of each text, at places around the width of a vector. */
static void only_ascii(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } ROWS[] = {{"~", "~"},
                {"\x7f", "\\u007f"},
                {"\xc2\x80", "\\u0080"},
                {"\xc3\xa9", "\\u00e9"},
                {"\xdf\xbf", "\\u07ff"},
                {"\xe0\xa0\x80", "\\u0800"},
                {"\xe2\x82\xac", "\\u20ac"},
                {"\xef\xbf\xbf", "\\uffff"},
                {"\xf0\x90\x80\x80", "\\ud800\\udc00"},
                {"\xf0\x9f\x98\x80", "\\ud83d\\ude00"},
                {"\xf4\x8f\xbf\xbf", "\\udbff\\udfff"}};
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    for (size_t i = 0; i < SQRL_COUNT_OF(ROWS); i++)
        for (size_t lead = 0; lead < 40; lead++) {
            size_t size = strlen(ROWS[i].text), want = strlen(ROWS[i].want);
            char *text = malloc(2 * lead + size); /* its exact size, for ASan */
            memset(text, 'x', 2 * lead + size);
            memcpy(text + lead, ROWS[i].text, size);
            out.size = 0;
            assert_int_equal(sqrl_json_append_ascii(&out, (const uint8_t *)text,
                                                    2 * lead + size, &err),
                             SQRL_OK);
            assert_int_equal(out.size, 2 * lead + want);
            assert_memory_equal(out.data, text, lead);
            assert_memory_equal(out.data + lead, ROWS[i].want, want);
            assert_memory_equal(out.data + lead + want, text + lead + size, lead);
            free(text);
        }
    sqrl_bytes_reset(&out);
}

/* Each allocation fails once: an error, nothing lost, and success in the end. */
static void allocations_fail(void **state) {
    (void)state;
    const char *text =
        "[{\"data\":[\"\\u00e9\"],\"type\":\"<U1\",\"shape\":[1]},"
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1.000000000000000055511151231257827"
        "02118158340454101562500e0]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]";
    size_t size = strlen(text);
    bool done = false;
    for (unsigned n = 1; !done; n++) {
        struct sqrl_tape tape = {0};
        struct sqrl_bytes out = {0};
        struct sqrl_error err = {0};
        uint8_t *bytes = exact(text, size);
        sqrl_fail_allocation(n);
        int code = decode_all(&tape, bytes, size, &err);
        if (!code)
            code = sqrl_json_encode(&out, tape.nodes, 0, bytes, &err);
        sqrl_fail_allocation(0);
        assert_true(code == SQRL_OK || code == SQRL_E_NO_MEMORY);
        done = code == SQRL_OK;
        assert_true(n > 1 || !done);
        assert_true(n < 50);
        sqrl_tape_reset(&tape);
        sqrl_bytes_reset(&out);
        free(bytes);
    }
}

int main(void) {
    if (getenv("SQRL_TEST_TAPES"))
        return printf("%s %x\n", sqrl_cpu_name(), tapes_crc()) < 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_as_python),
        cmocka_unit_test(files_come_out_as_from_python),
        cmocka_unit_test(json_test_suite),
        cmocka_unit_test(json_checker),
        cmocka_unit_test(twins_write_the_same_tapes),
        cmocka_unit_test(twins_find_the_same_tokens),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(mutations),
        cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(decodes_one_value_after_another),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(nodes_and_bytes_are_limited),
        cmocka_unit_test(strings_across_blocks),
        cmocka_unit_test(ascii_is_told),
        cmocka_unit_test(keys_that_are_no_strings),
        cmocka_unit_test(only_ascii),
        cmocka_unit_test(writes_binaries_and_refuses_the_rest),
        cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
