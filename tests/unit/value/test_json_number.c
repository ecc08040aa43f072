/* JSON numbers: what Python's json reads and repr() writes, bit by bit; every cut;
 * numbers that are none. */
#include "json_help.h"

#include <locale.h>
#include <math.h>

#include "golden/json/vectors.h"

static void reads_and_writes_as_python(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(NUMBERS); i++)
        check_json(NUMBERS[i].text, strlen(NUMBERS[i].text), NUMBERS[i].dump,
                   NUMBERS[i].again, strlen(NUMBERS[i].again));
}

/* Within an array the decoder sees bytes behind the number, at the end it doesn't. */
static void reads_the_same_within_an_array(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(NUMBERS); i++) {
        struct dump text = {0}, want = {0};
        dump_add(&text, "[", 1);
        dump_add(&text, NUMBERS[i].text, strlen(NUMBERS[i].text));
        dump_print(&text, " ,\"%050d\",0]", 0);
        dump_add(&want, "[", 1);
        dump_add(&want, NUMBERS[i].dump, strlen(NUMBERS[i].dump));
        dump_add(&want, ",s:", 3);
        char *found = dump_json(text.text, text.size);
        assert_memory_equal(found, want.text, want.size);
        free(found);
        free(text.text);
        free(want.text);
    }
}

static void a_locale_with_a_comma_changes_nothing(void **state) {
    (void)state;
    const char *hard =
        "8.988465674311580536566680721305029496276241413130815897397134275615404"
        "5499999999999999999999999999999999999999999999999e307";
    char *before = dump_json(hard, strlen(hard));
    static const char *const NAMES[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < SQRL_COUNT_OF(NAMES); i++)
        setlocale(LC_ALL, NAMES[i]);
    char *after = dump_json(hard, strlen(hard));
    char out[SQRL_JSON_FLOAT_BYTES];
    size_t n = sqrl_json_float_write(2.5, out);
    setlocale(LC_ALL, "C");
    assert_string_equal(before, after);
    assert_int_equal(n, 3);
    assert_memory_equal(out, "2.5", 3);
    free(before);
    free(after);
}

static void refuses_what_is_no_number(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int code;
        size_t fault;
    } BAD[] = {
        {"01", SQRL_E_CORRUPT, 1},       {"-01", SQRL_E_CORRUPT, 2},
        {"00", SQRL_E_CORRUPT, 1},       {"1.", SQRL_E_TRUNCATED, 2},
        {"1. ", SQRL_E_CORRUPT, 2},      {"1.e1", SQRL_E_CORRUPT, 2},
        {"1e", SQRL_E_TRUNCATED, 2},     {"1e+", SQRL_E_TRUNCATED, 3},
        {"1e+ ", SQRL_E_CORRUPT, 3},     {"1e-x", SQRL_E_CORRUPT, 3},
        {"-", SQRL_E_TRUNCATED, 1},      {"- 1", SQRL_E_CORRUPT, 0},
        {"-a", SQRL_E_CORRUPT, 0},       {"+1", SQRL_E_CORRUPT, 0},
        {".5", SQRL_E_CORRUPT, 0},       {"0x10", SQRL_E_CORRUPT, 1},
        {"1_000", SQRL_E_CORRUPT, 1},    {"1.5.5", SQRL_E_CORRUPT, 3},
        {"1e5e", SQRL_E_CORRUPT, 3},     {"12a", SQRL_E_CORRUPT, 2},
        {"NaN", SQRL_E_CORRUPT, 0},      {"-Infinity", SQRL_E_CORRUPT, 0},
        {"Infinity", SQRL_E_CORRUPT, 0}, {"1\xc2\xa0", SQRL_E_CORRUPT, 1},
        {"[1.,2]", SQRL_E_CORRUPT, 3},   {"[-]", SQRL_E_CORRUPT, 1},
        {"[1 2]", SQRL_E_CORRUPT, 3},    {"[1e,2]", SQRL_E_CORRUPT, 3},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(BAD); i++) {
        struct sqrl_tape tape = {0};
        struct sqrl_error err = {0};
        size_t size = strlen(BAD[i].text), offset = 0;
        uint8_t *bytes = exact(BAD[i].text, size);
        int code = sqrl_json_decode(&tape, bytes, size, &offset, 0, NULL, &err);
        if (code != BAD[i].code || offset != BAD[i].fault)
            fail_msg("%s: code %d at %zu", BAD[i].text, code, offset);
        assert_int_equal(tape.count, 0);
        assert_true(strlen(err.message) > 10);
        sqrl_tape_reset(&tape);
        free(bytes);
    }
}

static void integers_end_at_4300_digits(void **state) {
    (void)state;
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    char text[4400];
    memset(text, '7', sizeof text);
    for (size_t digits = 4299; digits <= 4302; digits++) {
        uint8_t *bytes = exact(text, digits);
        int code = decode_all(&tape, bytes, digits, &err);
        assert_int_equal(code, digits <= 4300 ? SQRL_OK : SQRL_E_LIMIT);
        if (!code) {
            assert_int_equal(tape.nodes[0].type, SQRL_NUMBER);
            assert_int_equal(tape.nodes[0].size, digits);
        }
        free(bytes);
    }
    sqrl_tape_reset(&tape);
}

static void nan_only_where_it_is_allowed(void **state) {
    (void)state;
    char text[] = "[NaN, Infinity, -Infinity, -1]";
    struct sqrl_tape tape = {0};
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    size_t size = strlen(text), offset = 0;
    uint8_t *bytes = exact(text, size);
    assert_int_equal(
        sqrl_json_decode(&tape, bytes, size, &offset, SQRL_JSON_NAN, NULL, &err),
        SQRL_OK);
    assert_true(isnan(tape.nodes[1].v.f));
    assert_true(isinf(tape.nodes[2].v.f) && tape.nodes[2].v.f > 0);
    assert_true(isinf(tape.nodes[3].v.f) && tape.nodes[3].v.f < 0);
    assert_int_equal(sqrl_json_encode(&out, tape.nodes, 0, bytes, &err), SQRL_OK);
    assert_int_equal(out.size, size);
    assert_memory_equal(out.data, text, size);
    offset = 0;
    tape.count = 0;
    assert_int_equal(sqrl_json_decode(&tape, bytes, size, &offset, 0, NULL, &err),
                     SQRL_E_CORRUPT);
    assert_int_equal(offset, 1);
    for (size_t cut = 28; cut > 18; cut--) { /* "-Infinity" cut short */
        uint8_t *part = exact(text, cut - 3);
        offset = 0;
        assert_int_equal(
            sqrl_json_decode(&tape, part, cut - 3, &offset, SQRL_JSON_NAN, NULL, &err),
            SQRL_E_TRUNCATED);
        free(part);
    }
    sqrl_bytes_reset(&out);
    sqrl_tape_reset(&tape);
    free(bytes);
}

/* Random bit patterns: what is written reads back equal by the C library and by us. */
static void random_doubles_survive(void **state) {
    (void)state;
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = sqrl_rng_next(&rng);
        double f, g;
        char text[SQRL_JSON_FLOAT_BYTES + 1], *end;
        memcpy(&f, &bits, 8);
        if (!isfinite(f))
            continue;
        size_t n = sqrl_json_float_write(f, text);
        assert_in_range(n, 3, 24);
        text[n] = 0;
        g = strtod(text, &end);
        assert_ptr_equal(end, text + n);
        assert_memory_equal(&f, &g, 8);
        struct sqrl_node node;
        const uint8_t *stop, *p = (const uint8_t *)text;
        assert_int_equal(sqrl_json_number_read(p, p + n, p, &node, &stop),
                         SQRL_JSON_NUMBER_OK);
        assert_int_equal(node.v.u, bits);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_as_python),
        cmocka_unit_test(reads_the_same_within_an_array),
        cmocka_unit_test(a_locale_with_a_comma_changes_nothing),
        cmocka_unit_test(refuses_what_is_no_number),
        cmocka_unit_test(integers_end_at_4300_digits),
        cmocka_unit_test(nan_only_where_it_is_allowed),
        cmocka_unit_test(random_doubles_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
