/* Strict UTF-8, by RFC 3629's own arithmetic, in both twins and at every place of a
 * block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "value/value.h"

typedef bool (*utf8_fn)(const uint8_t *p, size_t size, bool *ascii);

/* The standard, read plainly: decode by the table of section 3, then ask whether the
 * number may stand there in that many bytes. Returns the bytes of the first character, or
 * 0. */
static size_t first_by_rfc(const uint8_t *p, size_t n) {
    static const uint32_t LEAST[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = p[0] < 0x80             ? 1
                  : (p[0] & 0xe0) == 0xc0 ? 2
                  : (p[0] & 0xf0) == 0xe0 ? 3
                  : (p[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
    if (!size || size > n)
        return 0;
    uint32_t c = size == 1 ? p[0] : p[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < LEAST[size] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    return size;
}

static bool valid_by_rfc(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t size = first_by_rfc(p + i, n - i);
        if (!size)
            return false;
        i += size;
    }
    return true;
}

static utf8_fn twins[2] = {sqrl_utf8_scalar, NULL};

static int choose_twins(void **state) {
    (void)state;
#ifdef SQRL_HAVE_AVX2
    if (sqrl_cpu_avx2())
        twins[1] = sqrl_utf8_avx2;
    else
        print_message("skipped: the AVX2 twin, which this machine can't run\n");
#endif
    return 0;
}

/* The 4 bytes of `four` at place `at` of `size` bytes of filler; all twins must agree. */
static void check(const uint8_t *four, size_t at, size_t size, const char *filler) {
    uint8_t bytes[160];
    size_t unit = strlen(filler);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)filler[i % unit];
    size_t n = size - at < 4 ? size - at : 4;
    memcpy(bytes + at, four, n);
    bool want = valid_by_rfc(bytes, size);
    for (int t = 0; t < 2; t++) {
        bool ascii = true;
        if (twins[t] && twins[t](bytes, size, &ascii) != want)
            fail_msg("%02x %02x %02x %02x at %zu of %zu: twin %d says %d", four[0],
                     four[1], four[2], four[3], at, size, t, !want);
    }
}

static void both_twins_follow_the_rfc(void **state) {
    (void)state;
    static const uint8_t EDGES[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                    0xc0, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xff};
    enum { N = sizeof EDGES };
    static const size_t PLACES[][2] = {{0, 4},   {0, 40},  {2, 40},  {29, 70}, {30, 70},
                                       {31, 70}, {32, 70}, {36, 40}, {37, 40}, {38, 40},
                                       {61, 96}, {63, 96}, {95, 96}, {64, 100}};
    for (unsigned a = 0; a < 256; a++)
        for (unsigned k = 0; k < N * N * N; k++) {
            uint8_t four[4] = {(uint8_t)a, EDGES[k % N], EDGES[k / N % N],
                               EDGES[k / N / N]};
            size_t place = (a + k) % SQRL_COUNT_OF(PLACES);
            check(four, PLACES[place][0], PLACES[place][1], "x");
            if (k < N * N)
                for (size_t p = 0; p < SQRL_COUNT_OF(PLACES); p++) {
                    check(four, PLACES[p][0], PLACES[p][1], "x");
                    check(four, PLACES[p][0], PLACES[p][1], "\xc3\xa9");
                }
        }
}

static void every_character_is_accepted_and_no_surrogate(void **state) {
    (void)state;
    for (uint32_t c = 0x80; c < 0x110000; c++) {
        uint8_t text[64];
        memset(text, 'x', sizeof text);
        size_t at = c % 60;
        if (c < 0x800) {
            text[at] = (uint8_t)(0xc0 | c >> 6);
            text[at + 1] = (uint8_t)(0x80 | (c & 63));
        } else if (c < 0x10000) {
            text[at] = (uint8_t)(0xe0 | c >> 12);
            text[at + 1] = (uint8_t)(0x80 | (c >> 6 & 63));
            text[at + 2] = (uint8_t)(0x80 | (c & 63));
        } else {
            text[at] = (uint8_t)(0xf0 | c >> 18);
            text[at + 1] = (uint8_t)(0x80 | (c >> 12 & 63));
            text[at + 2] = (uint8_t)(0x80 | (c >> 6 & 63));
            text[at + 3] = (uint8_t)(0x80 | (c & 63));
        }
        bool want = c < 0xd800 || c > 0xdfff;
        for (int t = 0; t < 2; t++) {
            bool ascii = true;
            if (twins[t] && (twins[t](text, 64, &ascii) != want || ascii))
                fail_msg("U+%04X at %zu: twin %d", c, at, t);
        }
    }
}

static void ascii_is_told_at_every_length(void **state) {
    (void)state;
    for (size_t size = 0; size < 140; size++)
        for (size_t at = 0; at <= size; at++) {
            uint8_t *text = malloc(size + 1);
            assert_non_null(text);
            memset(text, 'a', size);
            if (at < size)
                text[at] = 0xe9;
            uint8_t *exact = realloc(text, size ? size : 1);
            assert_non_null(exact);
            for (int t = 0; t < 2; t++) {
                bool ascii = at < size;
                if (!twins[t])
                    continue;
                assert_int_equal(twins[t](exact, size, &ascii), at == size);
                assert_int_equal(ascii, at == size);
            }
            assert_int_equal(sqrl_utf8_valid(exact, size, NULL), at == size);
            assert_int_equal(sqrl_utf8_fault(exact, size), at);
            free(exact);
        }
}

static void faults_are_found_where_they_are(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t size, fault;
    } CASES[] = {{"", 0, 0},
                 {"abc", 3, 3},
                 {"ab\xc3\xa9\x80", 5, 4},
                 {"\xe2\x82\xac\xe2\x82", 5, 3},
                 {"\xf0\x9f\x90\xbf\xed\xa0\x80", 7, 4},
                 {"\xc0\x80", 2, 0},
                 {"x\xf4\x90\x80\x80", 5, 1}};
    for (size_t i = 0; i < SQRL_COUNT_OF(CASES); i++)
        assert_int_equal(sqrl_utf8_fault((const uint8_t *)CASES[i].text, CASES[i].size),
                         CASES[i].fault);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_twins_follow_the_rfc),
        cmocka_unit_test(every_character_is_accepted_and_no_surrogate),
        cmocka_unit_test(ascii_is_told_at_every_length),
        cmocka_unit_test(faults_are_found_where_they_are),
    };
    return cmocka_run_group_tests(tests, choose_twins, NULL);
}
