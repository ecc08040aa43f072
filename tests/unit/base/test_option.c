#include <locale.h>

#include "base_test.h"

static const struct sqrl_option list[] = {
    {"level", SQRL_OPTION_INT, SQRL_OPTION_PLAIN, "3", NULL, "how hard to try"},
    {"codec", SQRL_OPTION_CHOICE, SQRL_OPTION_PLAIN, "zstd", "zstd|lz4|none",
     "compression"},
    {"block", SQRL_OPTION_SIZE, SQRL_OPTION_PLAIN, "1 MiB", NULL, "bytes a block"},
    {"ratio", SQRL_OPTION_FLOAT, SQRL_OPTION_PLAIN, NULL, NULL, "share to keep"},
    {"sync", SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, "true", NULL, "sync to disk"},
    {"prefix", SQRL_OPTION_TEXT, SQRL_OPTION_PLAIN, NULL, NULL, "of the names"},
    {NULL, SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, NULL, NULL, NULL},
};
static const struct sqrl_option remote[] = {
    {"token", SQRL_OPTION_INT, SQRL_OPTION_SECRET, NULL, NULL, "access"},
    {NULL, SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, NULL, NULL, NULL},
};
static const struct sqrl_option none[] = {
    {NULL, SQRL_OPTION_BOOL, SQRL_OPTION_PLAIN, NULL, NULL, NULL},
};
static const struct sqrl_option *const both[] = {list, remote, NULL};

static void test_parse_size(void **state) {
    static const struct {
        const char *text;
        int code;
        uint64_t bytes;
    } rows[] = {
        {"0", SQRL_OK, 0},
        {"4096", SQRL_OK, 4096},
        {"4096B", SQRL_OK, 4096},
        {"7 B", SQRL_OK, 7},
        {"64 KiB", SQRL_OK, 65536},
        {"64KiB", SQRL_OK, 65536},
        {"64  KiB", SQRL_OK, 65536},
        {"3 kB", SQRL_OK, 3000},
        {"3KB", SQRL_OK, 3000},
        {"2MB", SQRL_OK, 2000000},
        {"2 MiB", SQRL_OK, 2097152},
        {"1.5 GB", SQRL_OK, 1500000000},
        {"1.5GiB", SQRL_OK, 1610612736},
        {"2TB", SQRL_OK, 2000000000000},
        {"2 TiB", SQRL_OK, 2199023255552},
        {"0.1 KiB", SQRL_OK, 102}, /* 102.4 */
        {"0.333333333333333333333333333333 MB", SQRL_OK, 333333},
        {"18446744073709551615", SQRL_OK, UINT64_MAX},
        {"18446744073709551616", SQRL_E_LIMIT, 0},
        {"99999999999999999999999999", SQRL_E_LIMIT, 0},
        {"16777215.999999 TiB", SQRL_OK, 18446744073708452104u}, /* floor(x * 2^40) */
        {"16777216 TiB", SQRL_E_LIMIT, 0},
        {"", SQRL_E_INVALID, 0},
        {" 1", SQRL_E_INVALID, 0},
        {"1 ", SQRL_E_INVALID, 0},
        {"-1", SQRL_E_INVALID, 0},
        {"+1", SQRL_E_INVALID, 0},
        {"1.5", SQRL_E_INVALID, 0},
        {"1.5 B", SQRL_E_INVALID, 0},
        {"1.", SQRL_E_INVALID, 0},
        {".5 MB", SQRL_E_INVALID, 0},
        {"1..5 MB", SQRL_E_INVALID, 0},
        {"1,5 MB", SQRL_E_INVALID, 0},
        {"1e6", SQRL_E_INVALID, 0},
        {"0x10", SQRL_E_INVALID, 0},
        {"64 KiBs", SQRL_E_INVALID, 0},
        {"64 mb", SQRL_E_INVALID, 0},
        {"MiB", SQRL_E_INVALID, 0},
        {"1 MiB 2", SQRL_E_INVALID, 0},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        uint64_t bytes = 77;
        struct sqrl_error err;
        int code = sqrl_parse_size(rows[i].text, &bytes, &err);
        if (code != rows[i].code || bytes != rows[i].bytes)
            fail_msg("\"%s\": code %d, %llu bytes", rows[i].text, code,
                     (unsigned long long)bytes);
    }
}

static void test_parse_size_messages(void **state) {
    uint64_t bytes;
    struct sqrl_error err;
    assert_int_equal(sqrl_parse_size("64 mb", &bytes, &err), SQRL_E_INVALID);
    assert_string_equal(err.message,
                        "\"64 mb\" is not a size: write bytes (4096) or a number "
                        "with a unit (64 KiB, 1.5 GB)");
    assert_int_equal(sqrl_parse_size("16777216 TiB", &bytes, &err), SQRL_E_LIMIT);
    assert_string_equal(err.message, "size \"16777216 TiB\" is too large");
}

static int check(const char *name, const char *value, struct sqrl_error *err) {
    struct sqrl_setting item = {name, value};
    struct sqrl_settings settings = {&item, 1};
    return sqrl_settings_check(&settings, both, "driver x", err);
}

static void test_check_table(void **state) {
    static const struct {
        const char *name, *value;
        bool good;
    } rows[] = {
        {"level", "3", true},
        {"level", "-9223372036854775808", true},
        {"level", "9223372036854775808", false},
        {"level", "+7", true},
        {"level", "3.0", false},
        {"level", " 3", false},
        {"level", "3 ", false},
        {"level", "", false},
        {"level", "-", false},
        {"level", NULL, false},
        {"codec", "lz4", true},
        {"codec", "zst", false},
        {"codec", "zstd|lz4", false},
        {"codec", "", false},
        {"block", "64 KiB", true},
        {"block", "64 KB s", false},
        {"ratio", "0.5", true},
        {"ratio", "1e-3", true},
        {"ratio", "-.5", true},
        {"ratio", "inf", true},
        {"ratio", "0,5", false},
        {"ratio", "half", false},
        {"ratio", "", false},
        {"ratio", "1 ", false},
        {"ratio", " 1", false},
        {"sync", "true", true},
        {"sync", "off", true},
        {"sync", "1", true},
        {"sync", "TRUE", false},
        {"sync", "2", false},
        {"prefix", "", true},
        {"prefix", "anything at all", true},
        {"token", "12", true},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        struct sqrl_error err;
        int code = check(rows[i].name, rows[i].value, &err);
        if (code != (rows[i].good ? SQRL_OK : SQRL_E_INVALID))
            fail_msg("%s = %s: code %d", rows[i].name, rows[i].value, code);
    }
    assert_int_equal(sqrl_settings_check(NULL, both, "x", NULL), SQRL_OK);
}

static void test_check_messages(void **state) {
    struct sqrl_error err;
    check("levle", "3", &err);
    assert_string_equal(err.message,
                        "driver x has no option \"levle\"; did you mean \"level\"?");
    check("tokens", "3", &err);
    assert_string_equal(err.message,
                        "driver x has no option \"tokens\"; did you mean \"token\"?");
    check("quality", "3", &err);
    assert_string_equal(err.message,
                        "driver x has no option \"quality\"; it knows level, codec, "
                        "block, ratio, sync, prefix, token");
    check("level", "x", &err);
    assert_string_equal(err.where, "driver x");
    assert_string_equal(err.message,
                        "option \"level\": expected a whole number, not \"x\"");
    check("codec", "gz", &err);
    assert_string_equal(err.message,
                        "option \"codec\": expected one of zstd|lz4|none, not \"gz\"");
    check("sync", NULL, &err);
    assert_string_equal(err.message,
                        "option \"sync\" has no value: expected true or false");
    check("token", "hunter2", &err);
    assert_string_equal(err.message, "option \"token\": expected a whole number");

    const struct sqrl_option *const empty[] = {none, NULL};
    struct sqrl_setting item = {"level", "3"};
    struct sqrl_settings settings = {&item, 1};
    assert_int_equal(sqrl_settings_check(&settings, empty, "codec none", &err),
                     SQRL_E_INVALID);
    assert_string_equal(err.message, "codec none has no option \"level\": it takes none");
}

static void test_many_names_are_cut(void **state) {
    static char names[100][16];
    static struct sqrl_option many[101];
    for (int i = 0; i < 100; i++) {
        snprintf(names[i], sizeof names[i], "option_%06d", i * 7919);
        many[i].name = names[i];
    }
    const struct sqrl_option *const lists[] = {many, NULL};
    struct sqrl_setting item = {"quality", "3"};
    struct sqrl_settings settings = {&item, 1};
    struct sqrl_error err;
    assert_int_equal(sqrl_settings_check(&settings, lists, "x", &err), SQRL_E_INVALID);
    size_t length = strlen(err.message);
    assert_true(length < 300);
    assert_string_equal(err.message + length - 5, ", ...");
}

static void test_get_values(void **state) {
    static const struct sqrl_setting items[] = {
        {"level", "5"},  {"block", "2 KiB"}, {"sync", "off"},
        {"level", "-6"}, {"ratio", "0.25"},
    };
    struct sqrl_settings settings = {items, SQRL_COUNT_OF(items)};
    int64_t number;
    uint64_t bytes;
    bool flag;
    double real;
    assert_int_equal(sqrl_settings_int(&settings, list, "level", &number, NULL), SQRL_OK);
    assert_int_equal(number, -6); /* the last one */
    assert_int_equal(sqrl_settings_size(&settings, list, "block", &bytes, NULL), SQRL_OK);
    assert_int_equal(bytes, 2048);
    assert_int_equal(sqrl_settings_bool(&settings, list, "sync", &flag, NULL), SQRL_OK);
    assert_false(flag);
    assert_int_equal(sqrl_settings_float(&settings, list, "ratio", &real, NULL), SQRL_OK);
    assert_true(real == 0.25);
    assert_string_equal(sqrl_settings_text(&settings, list, "codec"), "zstd");
    assert_null(sqrl_settings_text(&settings, list, "prefix"));
    assert_null(sqrl_settings_text(&settings, list, "nowhere"));
}

static void test_get_defaults(void **state) {
    int64_t number;
    uint64_t bytes;
    bool flag;
    assert_int_equal(sqrl_settings_int(NULL, list, "level", &number, NULL), SQRL_OK);
    assert_int_equal(number, 3);
    assert_int_equal(sqrl_settings_size(NULL, list, "block", &bytes, NULL), SQRL_OK);
    assert_int_equal(bytes, 1048576);
    assert_int_equal(sqrl_settings_bool(NULL, list, "sync", &flag, NULL), SQRL_OK);
    assert_true(flag);
}

static void test_get_failures(void **state) {
    struct sqrl_error err;
    static const struct sqrl_setting items[] = {{"level", "five"},
                                                {"block", "2 q"},
                                                {"sync", "maybe"},
                                                {"ratio", "half"},
                                                {"token", "s"}};
    struct sqrl_settings settings = {items, SQRL_COUNT_OF(items)};
    int64_t number = 9;
    uint64_t bytes = 9;
    bool flag = true;
    double real = 9;
    assert_int_equal(sqrl_settings_int(&settings, list, "level", &number, &err),
                     SQRL_E_INVALID);
    assert_string_equal(err.message,
                        "option \"level\": expected a whole number, not \"five\"");
    assert_int_equal(number, 0);
    assert_int_equal(sqrl_settings_size(&settings, list, "block", &bytes, &err),
                     SQRL_E_INVALID);
    assert_int_equal(bytes, 0);
    assert_int_equal(sqrl_settings_bool(&settings, list, "sync", &flag, &err),
                     SQRL_E_INVALID);
    assert_false(flag);
    assert_int_equal(sqrl_settings_float(&settings, list, "ratio", &real, &err),
                     SQRL_E_INVALID);
    assert_true(real == 0);
    assert_int_equal(sqrl_settings_int(&settings, remote, "token", &number, &err),
                     SQRL_E_INVALID);
    assert_string_equal(err.message, "option \"token\": expected a whole number");
    assert_int_equal(sqrl_settings_float(NULL, list, "ratio", &real, &err),
                     SQRL_E_INVALID);
    assert_string_equal(err.message, "option \"ratio\" is not set");
}

/* With a locale that writes 0,5 (where one is installed) values still read 0.5. */
static void test_float_ignores_the_locale(void **state) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    const char *set = NULL;
    for (size_t i = 0; i < SQRL_COUNT_OF(names) && set == NULL; i++)
        set = setlocale(LC_NUMERIC, names[i]);
    if (set == NULL) {
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    struct sqrl_error err;
    int good = check("ratio", "0.5", &err), bad = check("ratio", "0,5", &err);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(good, SQRL_OK);
    assert_int_equal(bad, SQRL_E_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_size),
        cmocka_unit_test(test_parse_size_messages),
        cmocka_unit_test(test_check_table),
        cmocka_unit_test(test_check_messages),
        cmocka_unit_test(test_many_names_are_cut),
        cmocka_unit_test(test_get_values),
        cmocka_unit_test(test_get_defaults),
        cmocka_unit_test(test_get_failures),
        cmocka_unit_test(test_float_ignores_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
