#include <errno.h>
#include <time.h>

#include "base_test.h"

static void test_overflow_helpers(void **state) {
    size_t out;
    assert_false(sqrl_add_overflow(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_true(sqrl_add_overflow(SIZE_MAX, 1, &out));
    assert_false(sqrl_mul_overflow(SIZE_MAX / 4, 4, &out));
    assert_true(sqrl_mul_overflow(SIZE_MAX / 4 + 1, 4, &out));
}

static void test_loads_and_stores(void **state) {
    static const uint8_t bytes[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(sqrl_load_le32(bytes + 1), 0x04030201);
    assert_true(sqrl_load_le64(bytes + 1) == 0x0807060504030201);
    assert_int_equal(sqrl_load_be16(bytes + 1), 0x0102);
    assert_int_equal(sqrl_load_be32(bytes + 1), 0x01020304);
    assert_true(sqrl_load_be64(bytes + 1) == 0x0102030405060708);
    uint8_t out[9] = {0};
    sqrl_store_le32(out + 1, 0x04030201);
    assert_memory_equal(out + 1, bytes + 1, 4);
    sqrl_store_le64(out + 1, 0x0807060504030201);
    assert_memory_equal(out + 1, bytes + 1, 8);
}

static void test_allocate(void **state) {
    struct sqrl_error err;
    uint8_t *p = sqrl_calloc(3, 5, "a thing", &err);
    static const uint8_t zeros[15];
    assert_memory_equal(p, zeros, 15);
    p = sqrl_realloc(p, 100000, "a thing", &err);
    assert_memory_equal(p, zeros, 15);
    p[99999] = 1;
    free(p);
    p = sqrl_malloc(0, "nothing", &err);
    assert_non_null(p);
    p = sqrl_realloc(p, 0, "nothing", &err);
    assert_non_null(p);
    free(p);
}

static void test_allocation_that_can_not_be(void **state) {
    struct sqrl_error err;
    assert_null(sqrl_calloc(SIZE_MAX / 2, 3, "a tape", &err));
    assert_int_equal(err.code, SQRL_E_NO_MEMORY);
    assert_string_equal(err.message,
                        "no memory for a tape (9223372036854775807 times 3 bytes)");
}

static void test_fault_countdown(void **state) {
    struct sqrl_error err;
    sqrl_fail_allocation(3);
    void *a = sqrl_malloc(1, "a", &err);
    void *b = sqrl_calloc(1, 1, "b", &err);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(sqrl_realloc(a, 10, "tape", &err)); /* the old block is still ours */
    assert_int_equal(err.code, SQRL_E_NO_MEMORY);
    assert_string_equal(err.message, "no memory for tape (10 bytes)");
    a = sqrl_realloc(a, 10, "tape", &err); /* fails once */
    assert_non_null(a);
    sqrl_fail_allocation(1);
    assert_null(sqrl_strdup("x", &err));
    sqrl_fail_allocation(1);
    assert_null(sqrl_format(&err, "%d", 1));
    sqrl_fail_allocation(1);
    sqrl_fail_allocation(0);
    void *c = sqrl_malloc(1, "c", &err);
    assert_non_null(c);
    free(a);
    free(b);
    free(c);
}

static void test_texts(void **state) {
    char *copy = sqrl_strdup("acorn", NULL);
    assert_string_equal(copy, "acorn");
    free(copy);
    char *text = sqrl_format(NULL, "%s-%05d", "shard", 17);
    assert_string_equal(text, "shard-00017");
    free(text);
    text = sqrl_format(NULL, "%*s", 100000, "x");
    assert_int_equal(strlen(text), 100000);
    free(text);
}

static void test_nearest(void **state) {
    static const char *const names[] = {"level", "codec", "seed", "batch_size",
                                        "drop_remainder"};
    static const struct {
        const char *name, *near;
    } rows[] = {
        {"level", "level"},
        {"levle", "level"}, /* a swap counts once */
        {"LEVEL", "level"},
        {"lvel", "level"},
        {"sed", "seed"},
        {"batchsize", "batch_size"},
        {"batch_szie_", "batch_size"},
        {"drop_reminder", "drop_remainder"},
        {"x", NULL},
        {"", NULL},
        {"zzzzz", NULL},
        {"drop", NULL}, /* 10 letters away */
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        const char *near = sqrl_nearest(rows[i].name, names, SQRL_COUNT_OF(names));
        if (rows[i].near == NULL)
            assert_null(near);
        else
            assert_string_equal(near, rows[i].near);
    }
    char huge[4096];
    memset(huge, 'l', sizeof huge - 1);
    huge[sizeof huge - 1] = 0;
    assert_null(sqrl_nearest(huge, names, SQRL_COUNT_OF(names)));
    const char *one = huge;
    assert_null(sqrl_nearest("level", &one, 1));
    assert_null(sqrl_nearest("level", NULL, 0));
}

static void test_clock(void **state) {
    uint64_t before = sqrl_now_ns();
    struct timespec nap = {0, 5000000};
    assert_int_equal(nanosleep(&nap, NULL), 0);
    assert_true(sqrl_now_ns() - before >= 5000000);
    int64_t wall = sqrl_wall_ns() / 1000000000 - (int64_t)time(NULL);
    assert_true(wall >= -1 && wall <= 1);
}

static void test_cpu(void **state) {
    assert_true(sqrl_cpu_choose(NULL, true));
    assert_true(sqrl_cpu_choose("", true));
    assert_true(sqrl_cpu_choose("avx2", true));
    assert_false(sqrl_cpu_choose("scalar", true));
    assert_false(sqrl_cpu_choose("avx512", true));
    assert_false(sqrl_cpu_choose(NULL, false));
    assert_false(sqrl_cpu_choose("avx2", false));
    /* Set before the first use, and asked once. */
    setenv("SQRL_CPU", "scalar", 1);
    assert_false(sqrl_cpu_avx2());
    setenv("SQRL_CPU", "avx2", 1);
    assert_string_equal(sqrl_cpu_name(), "scalar");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overflow_helpers),
        cmocka_unit_test(test_loads_and_stores),
        cmocka_unit_test(test_allocate),
        cmocka_unit_test(test_allocation_that_can_not_be),
        cmocka_unit_test(test_fault_countdown),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
