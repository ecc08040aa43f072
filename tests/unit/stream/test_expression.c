/* The filter language: what parses, what it gives, what it refuses. Expected values
 * follow the language's description in sqrl/stream.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stream/columns/locate.h"
#include "stream/expression.h"

static char SAMPLE[] =
    "{\"i\": 3, \"neg\": -7, \"big\": 18446744073709551615, \"huge\": "
    "100000000000000000000,"
    " \"f\": 0.5, \"whole\": 3.0, \"s\": \"/api/users.png\", \"e\": \"\", \"t\": true,"
    " \"b\": false, \"n\": null, \"l\": [1, 2.0, \"x\", null], \"m\": {\"site\": \"b\","
    " \"deep\": {\"k\": 5}}, \"and\": 1, \"a.b\": 9, \"with space\": 2, \"exact\":"
    " 9007199254740993, \"u\": \"gr\xc3\xbc\xc3\x9f\", \"nan\": NaN}";

/* 0, 1, or -1 for an error of evaluation, -2 for one of parsing. */
static int run(const char *text, struct sqrl_error *err) {
    struct sqrl_expression *x;
    struct sqrl_tape tape = {0};
    char *json = strdup(SAMPLE);
    size_t offset = 0;
    uint32_t map[64], found[64];
    bool pass = false;
    if (sqrl_expression_parse(text, &x, err)) {
        free(json);
        return -2;
    }
    assert_int_equal(sqrl_json_decode(&tape, (uint8_t *)json, strlen(json), &offset,
                                      SQRL_JSON_NAN, NULL, err),
                     SQRL_OK);
    struct sqrl_wants *wants = sqrl_wants_new(err);
    for (uint32_t i = 0; i < sqrl_expression_fields(x); i++)
        assert_int_equal(sqrl_wants_add(wants, sqrl_expression_field(x, i), &map[i], err),
                         0);
    struct sqrl_locator *locator = sqrl_locator_new(wants, err);
    sqrl_locate(locator, tape.nodes, 0, (uint8_t *)json, found, NULL);
    int rc = sqrl_expression_test(x, tape.nodes, (uint8_t *)json, found, map, &pass, err);
    sqrl_locator_free(locator);
    sqrl_wants_free(wants);
    sqrl_expression_free(x);
    sqrl_tape_reset(&tape);
    free(json);
    return rc ? -1 : pass;
}

static const struct {
    const char *text;
    int expect;
} CASES[] = {
    {"i == 3", 1},
    {"i != 3", 0},
    {"i < 4", 1},
    {"i <= 3", 1},
    {"i > 3", 0},
    {"i >= 3", 1},
    {"3 == i", 1},
    {"4 > i", 1},
    {"i == 3.0", 1},
    {"whole == 3", 1},
    {"f < 1", 1},
    {"neg < 0", 1},
    {"neg == -7", 1},
    {"-8 < neg", 1},
    {"f == .5", 1},
    {"f == 5e-1", 1},
    /* numbers compare by value, beyond 53 and 64 bits too */
    {"exact == 9007199254740993", 1},
    {"exact == 9007199254740992", 0},
    {"exact > 9007199254740992.0", 1},
    {"big == 18446744073709551615", 1},
    {"big > neg", 1},
    {"big > 18446744073709551614", 1},
    {"huge > big", 1},
    {"huge > 1e19", 1},
    {"huge < 1e21", 1},
    {"huge == huge", 1},
    {"neg < huge", 1},
    {"big < 1e20", 1},
    {"i < 1e300", 1},
    {"nan == `nan`", 0},
    {"t == True", -2},
    {"b != False", -2},
    {"n == None", -2},
    {"f == nan", -2},
    {"f < NaN", -2},
    {"t in [True]", -2},
    {"t == `True`", 0},
    {"nan != 1", 1},
    {"nan < 1", 0},
    {"nan > 1", 0},
    /* null and missing */
    {"n is null", 1},
    {"n is not null", 0},
    {"gone is null", 1},
    {"i is null", 0},
    {"gone == 3", 0},
    {"gone != 3", 0},
    {"gone < 3", 0},
    {"not gone == 3", 1},
    {"n == null", 1},
    {"gone == null", 1},
    {"n != null", 0},
    {"i == null", 0},
    {"i != null", 1},
    {"gone in [1, null]", 0},
    {"gone contains \"x\"", 0},
    {"gone", 0},
    {"not n", 1},
    {"i is not null", 1},
    /* strings */
    {"s == \"/api/users.png\"", 1},
    {"s startswith '/api'", 1},
    {"s endswith \".png\"", 1},
    {"s contains 'users'", 1},
    {"s contains 'user '", 0},
    {"s startswith ''", 1},
    {"e == ''", 1},
    {"e contains 'x'", 0},
    {"s > '/a'", 1},
    {"s < '/b'", 1},
    {"e < s", 1},
    {"s == 3", 0},
    {"s != 3", 1},
    {"u == \"gr\\u00fc\\u00df\"", 1},
    {"u startswith 'gr\xc3\xbc'", 1},
    {"'users' in s", 1},
    /* lists, maps, names */
    {"i in [1, 2, 3]", 1},
    {"i not in [1, 2, 3]", 0},
    {"i in []", 0},
    {"i in [3.0]", 1},
    {"s in ['a', '/api/users.png']", 1},
    {"l contains 2", 1},
    {"l contains 'x'", 1},
    {"l contains 'y'", 0},
    {"2 in l", 1},
    {"m.site in [\"a\", \"b\"]", 1},
    {"m.deep.k == 5", 1},
    {"m.deep.gone is null", 1},
    {"m is null", 0},
    {"i.x is null", 1},
    {"`and` == 1", 1},
    {"`a.b` == 9", 1},
    {"a.b is null", 1},
    {"`with space` == 2", 1},
    {"m.`site` == 'b'", 1},
    /* conditions and logic */
    {"t", 1},
    {"b", 0},
    {"not b", 1},
    {"not not t", 1},
    {"t == true", 1},
    {"b == false", 1},
    {"t == 1", 0},
    {"i", 1},
    {"t and b", 0},
    {"t or b", 1},
    {"b or b or t", 1},
    {"t and t and b", 0},
    {"b and gone < 'x' or t", 1},
    {"t or b and b", 1},
    {"(t or b) and b", 0},
    {"i == 3 and (f < 0.25 or not b)", 1},
    {"not (i == 3 or t)", 0},
    {"((((t))))", 1},
    {"not i == 4", 1},
    {"\ti\n==\r3 ", 1},
    {"true", 1},
    {"false or t", 1},
    /* short circuit: the other side is not looked at */
    {"b and s < 3", 0},
    {"t or s < 3", 1},
    /* kinds without an order */
    {"s < 3", -1},
    {"i > 'a'", -1},
    {"l < 3", -1},
    {"t < 1", -1},
    {"i contains 'x'", -1},
    {"s contains 3", -1},
    {"m contains 'x'", -1},
    {"l startswith 'x'", -1},
    {"s", -1},
    {"l", -1},
    /* mistakes */
    {"", -2},
    {"i ==", -2},
    {"== 3", -2},
    {"i = 3", -2},
    {"i == 3 and", -2},
    {"(i == 3", -2},
    {"i == 3)", -2},
    {"i == 'x", -2},
    {"i & 3", -2},
    {"i in [1,", -2},
    {"i in [1 2]", -2},
    {"i in [x]", -2},
    {"i is 3", -2},
    {"i not 3", -2},
    {"0 < i < 5", -2},
    {"i == 1.2.3", -2},
    {"i == 99999999999999999999", -2},
    {"i. == 3", -2},
    {".x == 3", -2},
    {"``==1", -2},
    {"`x == 1", -2},
    {"s == '\\q'", -2},
    {"s == '\\u12'", -2},
    {"s == '\\ud800'", -2},
    {"and == 1", -2},
    {"i == not", -2},
    {"i 3", -2},
    {"[1] == i", -2},
    {"i in [,]", -2},
    {"1e == i", -2},
    {"- 3 == i", -2},
};

static void table(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(CASES); i++) {
        struct sqrl_error err;
        int got = run(CASES[i].text, &err);
        if (got != CASES[i].expect)
            print_error("%s: got %d, expected %d\n", CASES[i].text, got, CASES[i].expect);
        assert_int_equal(got, CASES[i].expect);
        if (got == -1)
            assert_int_equal(err.code, SQRL_E_TYPE);
        if (got == -2)
            assert_int_equal(err.code, SQRL_E_INVALID);
    }
}

/* Places of the sample's values for seed 7, times 2^53, computed by a program of its own
 * from the description of fold() in expression_test.c, with the package xxhash of PyPI.
 * Splits of data sets rest on them: they hold for ever. */
static const struct {
    const char *field;
    uint64_t place;
} PLACES[] = {
    {"i", UINT64_C(6016986313889447)},       {"neg", UINT64_C(4382781765367461)},
    {"big", UINT64_C(978728456577312)},      {"huge", UINT64_C(1257140332361870)},
    {"f", UINT64_C(266488827644361)},        {"whole", UINT64_C(6016986313889447)},
    {"s", UINT64_C(3031730143207447)},       {"e", UINT64_C(6496702792230463)},
    {"t", UINT64_C(7116649149189062)},       {"b", UINT64_C(3942955559692228)},
    {"n", UINT64_C(5488937907533707)},       {"u", UINT64_C(3852541432222552)},
    {"missing", UINT64_C(5488937907533707)},
};

static void folds_never_change(void **state) {
    (void)state;
    for (size_t i = 0; i < SQRL_COUNT_OF(PLACES); i++) {
        struct sqrl_error err;
        char text[200];
        double place = (double)PLACES[i].place * 0x1p-53;
        snprintf(text, sizeof text, "%s fold [7, %.17g, %.17g]", PLACES[i].field, place,
                 place + 0x1p-53);
        if (run(text, &err) != 1)
            fail_msg("%s", text);
        snprintf(text, sizeof text, "%s fold [7, 0.0, %.17g]", PLACES[i].field, place);
        assert_int_equal(run(text, &err), 0);
    }
}

static void errors_say_where(void **state) {
    (void)state;
    struct sqrl_error err;
    assert_int_equal(run("label == 3 and (score < ", &err), -2);
    assert_string_equal(err.where, "column 25");
    assert_non_null(strstr(err.message, "label == 3 and (score < "));
    assert_int_equal(run("i == $", &err), -2);
    assert_string_equal(err.where, "column 6");
    assert_int_equal(run("s < 3", &err), -1);
    assert_non_null(strstr(err.message, "\"s\""));
}

static void nesting_is_limited(void **state) {
    (void)state;
    struct sqrl_error err;
    char text[400];
    memset(text, '(', 65);
    strcpy(text + 65, "t");
    memset(text + 66, ')', 65);
    text[131] = 0;
    assert_int_equal(run(text, &err), -2);
    assert_int_equal(err.code, SQRL_E_LIMIT);
    assert_int_equal(run(text + 1, &err), -2); /* 64 open, 65 close */
    text[130] = 0;
    assert_int_equal(run(text + 1, &err), 1);
    char *nots = malloc(80001);
    for (int i = 0; i < 16000; i++)
        memcpy(nots + 4 * i, "not ", 5);
    strcat(nots, "t");
    assert_int_equal(run(nots, &err), 1);
    free(nots);
}

/* A list of 1 MiB, to the byte; and the 1,025th field. */
static void length_is_limited(void **state) {
    (void)state;
    enum { MIB = 1 << 20 };
    struct sqrl_error err;
    struct sqrl_expression *x;
    char *text = malloc(MIB + 2);
    size_t at = (size_t)sprintf(text, "i in [");
    while (at < MIB - 20)
        at += (size_t)sprintf(text + at, "9%06zu,", at % 999983);
    at += (size_t)sprintf(text + at, "-4]");
    memset(text + at, ' ', MIB + 1 - at);
    text[MIB] = 0;
    assert_int_equal(run(text, &err), 0);
    text[MIB] = ' ';
    text[MIB + 1] = 0;
    assert_int_equal(run(text, &err), -2);
    assert_int_equal(err.code, SQRL_E_LIMIT);
    at = 0;
    for (unsigned i = 0; i < 1025; i++)
        at += (size_t)sprintf(text + at, "f%u or ", i);
    strcpy(text + at, "f3");
    assert_int_equal(sqrl_expression_parse(text, &x, &err), SQRL_E_LIMIT);
    strcpy(strstr(text, "f1024"), "f3");
    assert_int_equal(sqrl_expression_parse(text, &x, &err), SQRL_OK);
    assert_int_equal(sqrl_expression_fields(x), 1024);
    sqrl_expression_free(x);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(folds_never_change),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(nesting_is_limited),
        cmocka_unit_test(length_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
