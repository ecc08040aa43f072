#include <errno.h>

#include "base_test.h"

static void test_set_writes_and_returns(void **state) {
    struct sqrl_error err;
    memset(&err, 0x5a, sizeof err);
    assert_int_equal(sqrl_error_set(&err, SQRL_E_CORRUPT, "bad byte %d", 7),
                     SQRL_E_CORRUPT);
    assert_int_equal(err.code, 7);
    assert_int_equal(err.os_errno, 0);
    assert_false(err.retryable);
    assert_string_equal(err.message, "bad byte 7");
    assert_string_equal(err.where, "");
    sqrl_error_clear(&err);
    assert_int_equal(err.code, 0);
    assert_string_equal(err.message, "");
}

static void test_null_is_allowed(void **state) {
    sqrl_error_clear(NULL);
    assert_int_equal(sqrl_error_set(NULL, SQRL_E_TYPE, "x"), SQRL_E_TYPE);
    assert_int_equal(sqrl_error_set_errno(NULL, ENOENT, "x"), SQRL_E_NOT_FOUND);
    assert_int_equal(sqrl_error_at(NULL, SQRL_E_LIMIT, "x"), SQRL_E_LIMIT);
    char out[8] = "old";
    assert_int_equal(sqrl_error_text(NULL, out, sizeof out), 0);
    assert_string_equal(out, "");
}

static void test_errno_is_kept(void **state) {
    struct sqrl_error err;
    errno = EDOM;
    sqrl_error_set_errno(&err, ENOENT, "x");
    sqrl_error_set(&err, SQRL_E_IO, "x");
    sqrl_error_at(&err, SQRL_E_IO, "y");
    assert_int_equal(errno, EDOM);
}

static void test_errno_table(void **state) {
    static const struct {
        int os_errno, code;
        bool retryable;
        const char *text; /* as POSIX and glibc word it */
    } rows[] = {
        {ENOENT, SQRL_E_NOT_FOUND, false, "open: No such file or directory"},
        {EACCES, SQRL_E_PERMISSION, false,
         "open: Permission denied; change the permissions, or run as a user who "
         "may"},
        {EROFS, SQRL_E_PERMISSION, false,
         "open: Read-only file system; choose another place"},
        {EEXIST, SQRL_E_EXISTS, false, "open: File exists"},
        {ENOSPC, SQRL_E_NO_SPACE, false, "open: No space left on device"},
        {EDQUOT, SQRL_E_NO_SPACE, false, "open: Disk quota exceeded"},
        {ENOMEM, SQRL_E_NO_MEMORY, false, "open: Cannot allocate memory"},
        {EMFILE, SQRL_E_LIMIT, false,
         "open: Too many open files; raise the limit (ulimit -n)"},
        {EISDIR, SQRL_E_INVALID, false, "open: Is a directory"},
        {EINTR, SQRL_E_IO, true, "open: Interrupted system call"},
        {EAGAIN, SQRL_E_IO, true, "open: Resource temporarily unavailable"},
        {ECONNRESET, SQRL_E_IO, true, "open: Connection reset by peer"},
        {EIO, SQRL_E_IO, false,
         "open: Input/output error; the disk may be failing: look at the "
         "system's log"},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        struct sqrl_error err;
        assert_int_equal(sqrl_error_set_errno(&err, rows[i].os_errno, "open"),
                         rows[i].code);
        assert_int_equal(err.os_errno, rows[i].os_errno);
        assert_int_equal(err.retryable, rows[i].retryable);
        assert_string_equal(err.message, rows[i].text);
    }
}

static void test_errno_reason_survives_a_long_message(void **state) {
    char name[600];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct sqrl_error err;
    sqrl_error_set_errno(&err, ENOENT, "%s", name);
    assert_int_equal(strlen(err.message), SQRL_ERROR_MESSAGE_BYTES - 1);
    static const char tail[] = "nnn: No such file or directory";
    assert_string_equal(err.message + strlen(err.message) - (sizeof tail - 1), tail);
}

static void test_code_names(void **state) {
    static const char *const names[] = {
        "ok",     "invalid", "no_memory", "io",       "not_found", "permission",
        "exists", "corrupt", "truncated", "format",   "limit",     "unsupported",
        "type",   "state",   "cancelled", "no_space", "user",
    };
    for (int i = 0; i < 17; i++)
        assert_string_equal(sqrl_code_name(i), names[i]);
    assert_string_equal(sqrl_code_name(17), "unknown");
    assert_string_equal(sqrl_code_name(-1), "unknown");
}

static void test_where_is_joined_outermost_first(void **state) {
    struct sqrl_error err;
    int code = sqrl_error_set(&err, SQRL_E_TRUNCATED, "data is cut short");
    code = sqrl_error_at(&err, code, "field \"%s\"", "image");
    code = sqrl_error_at(&err, code, "sample %d", 402);
    code = sqrl_error_at(&err, code, "block %d", 4);
    code = sqrl_error_at(&err, code, "s3://b/train/00017.sqrl");
    assert_int_equal(code, SQRL_E_TRUNCATED);
    char out[256];
    static const char expected[] = "s3://b/train/00017.sqrl: block 4: sample 402: "
                                   "field \"image\": data is cut short";
    assert_int_equal(sqrl_error_text(&err, out, sizeof out), sizeof expected - 1);
    assert_string_equal(out, expected);
    char small[12];
    assert_int_equal(sqrl_error_text(&err, small, sizeof small), 11);
    assert_string_equal(small, "s3://b/trai");
    assert_int_equal(sqrl_error_text(&err, small, 0), 0);
}

static void test_at_leaves_an_empty_error_alone(void **state) {
    struct sqrl_error err;
    sqrl_error_clear(&err);
    assert_int_equal(sqrl_error_at(&err, SQRL_E_IO, "block 1"), SQRL_E_IO);
    assert_string_equal(err.where, "");
}

static void test_full_where_keeps_the_innermost(void **state) {
    struct sqrl_error err;
    char place[401];
    memset(place, 'a', 400);
    place[400] = 0;
    sqrl_error_set(&err, SQRL_E_IO, "m");
    sqrl_error_at(&err, SQRL_E_IO, "%s", place);
    /* 640 - 1 - 400 - 2 = 237 bytes are left for the next one: "..." and its last 234. */
    char outer[301];
    memset(outer, 'b', 300);
    memcpy(outer + 290, "0123456789", 11);
    sqrl_error_at(&err, SQRL_E_IO, "%s", outer);
    assert_int_equal(strlen(err.where), 639);
    assert_memory_equal(err.where, "...bbb", 6);
    assert_memory_equal(err.where + 227, "0123456789: aaa", 15);
    assert_string_equal(err.where + 239, place);
    /* Nothing more fits: left out. */
    char before[SQRL_ERROR_WHERE_BYTES];
    memcpy(before, err.where, sizeof before);
    sqrl_error_at(&err, SQRL_E_IO, "outermost");
    assert_string_equal(err.where, before);
}

static void test_cut_where_keeps_characters_whole(void **state) {
    struct sqrl_error err;
    char inner[601], outer[101];
    memset(inner, 'a', 600);
    inner[600] = 0;
    for (int i = 0; i < 50; i++)
        memcpy(outer + 2 * i, "\xc3\xa9", 2);
    outer[100] = 0;
    sqrl_error_set(&err, SQRL_E_IO, "m");
    sqrl_error_at(&err, SQRL_E_IO, "%s", inner);
    sqrl_error_at(&err, SQRL_E_IO, "%s", outer);
    /* 37 bytes: "..." and 34 of the text, 17 whole characters. */
    assert_memory_equal(err.where, "...\xc3\xa9", 5);
    assert_int_equal(strlen(err.where), 639);
    sqrl_error_set(&err, SQRL_E_IO, "m");
    sqrl_error_at(&err, SQRL_E_IO, "%sa", inner); /* an odd number is left: 33 -> 32 */
    sqrl_error_at(&err, SQRL_E_IO, "%s", outer);
    assert_memory_equal(err.where, "...\xc3\xa9", 5);
    assert_int_equal(strlen(err.where), 638);
}

/* Expected texts by Python: bytes that .decode() refuses, or that are in unicodedata's
 * categories Cc, Zl, Zp and the bidirectional controls, as "\\x%02X". */
static void test_clean_text(void **state) {
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"plain ~", "plain ~"},
        {"tab\tline\n\x1b[31m\x7f", "tab\\x09line\\x0A\\x1B[31m\\x7F"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xbf", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xbf"},
        {"\xff\xfe", "\\xFF\\xFE"},
        {"\xc0\xaf", "\\xC0\\xAF"},                   /* overlong */
        {"\xe0\x9f\xbf", "\\xE0\\x9F\\xBF"},          /* overlong */
        {"\xed\xa0\x80", "\\xED\\xA0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", "\\xF4\\x90\\x80\\x80"}, /* above U+10FFFF */
        {"\xe2\x82", "\\xE2\\x82"},                   /* cut short */
        {"\xe2\x82x", "\\xE2\\x82x"},
        {"\xc2\x85", "\\xC2\\x85"},          /* NEL, a C1 control */
        {"\xe2\x80\xae", "\\xE2\\x80\\xAE"}, /* right-to-left override */
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        char out[64];
        bool whole;
        size_t length = sqrl_text_clean(out, sizeof out, rows[i].in, &whole);
        assert_string_equal(out, rows[i].out);
        assert_int_equal(length, strlen(rows[i].out));
        assert_true(whole);
    }
}

static void test_clean_never_cuts_a_character(void **state) {
    char out[16];
    bool whole;
    assert_int_equal(sqrl_text_clean(out, 4, "ab\xe2\x82\xac", &whole), 2);
    assert_string_equal(out, "ab");
    assert_false(whole);
    assert_int_equal(sqrl_text_clean(out, 6, "ab\xe2\x82\xac", &whole), 5);
    assert_true(whole);
    assert_int_equal(sqrl_text_clean(out, 5, "a\x01", &whole), 1);
    assert_int_equal(sqrl_text_clean(out, 6, "a\x01", &whole), 5);
    assert_int_equal(sqrl_text_clean(out, 1, "a", &whole), 0);
}

static void test_long_message_is_cut(void **state) {
    char text[3000];
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 4);
    struct sqrl_error err;
    sqrl_error_set(&err, SQRL_E_USER, "%s", text);
    assert_int_equal(strlen(err.message), 381); /* 127 whole characters of 3 bytes */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_writes_and_returns),
        cmocka_unit_test(test_null_is_allowed),
        cmocka_unit_test(test_errno_is_kept),
        cmocka_unit_test(test_errno_table),
        cmocka_unit_test(test_errno_reason_survives_a_long_message),
        cmocka_unit_test(test_code_names),
        cmocka_unit_test(test_where_is_joined_outermost_first),
        cmocka_unit_test(test_at_leaves_an_empty_error_alone),
        cmocka_unit_test(test_full_where_keeps_the_innermost),
        cmocka_unit_test(test_cut_where_keeps_characters_whole),
        cmocka_unit_test(test_clean_text),
        cmocka_unit_test(test_clean_never_cuts_a_character),
        cmocka_unit_test(test_long_message_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
