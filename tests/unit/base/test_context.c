#include <unistd.h>

#include "base_test.h"

static void test_config(void **state) {
    struct sqrl_context *context;
    struct sqrl_error err;
    assert_int_equal(sqrl_context_new(NULL, &context, &err), SQRL_OK);
    assert_int_equal(sqrl_budget_limit(context), 201326592); /* 192 MiB */
    assert_int_equal(sqrl_context_io_threads(context), 32);
    assert_int_equal(sqrl_context_cpu_threads(context), sqrl_default_threads(1));
    sqrl_context_set_siblings(context, 100000);
    assert_int_equal(sqrl_context_cpu_threads(context), 1);
    sqrl_context_unref(context);

    struct sqrl_config config = {.size = sizeof config,
                                 .cpu_threads = 7,
                                 .io_threads = 3,
                                 .sibling_processes = 2,
                                 .memory_budget_bytes = 12345};
    assert_int_equal(sqrl_context_new(&config, &context, &err), SQRL_OK);
    assert_int_equal(sqrl_budget_limit(context), 12345);
    assert_int_equal(sqrl_context_io_threads(context), 3);
    assert_int_equal(sqrl_context_cpu_threads(context), 7);
    sqrl_context_unref(context);
    sqrl_context_unref(NULL);
}

static void test_config_of_another_size(void **state) {
    struct {
        struct sqrl_config config;
        char newer[64];
    } large = {.config = {.size = sizeof large, .cpu_threads = 5}};
    memset(large.newer, 0xff, sizeof large.newer);
    struct sqrl_context *context;
    assert_int_equal(sqrl_context_new(&large.config, &context, NULL), SQRL_OK);
    assert_int_equal(sqrl_context_cpu_threads(context), 5);
    sqrl_context_unref(context);
    /* A program built against a shorter struct: what lies behind is not read. */
    struct sqrl_config old = {.size = offsetof(struct sqrl_config, io_threads),
                              .cpu_threads = 4,
                              .io_threads = 99};
    assert_int_equal(sqrl_context_new(&old, &context, NULL), SQRL_OK);
    assert_int_equal(sqrl_context_cpu_threads(context), 4);
    assert_int_equal(sqrl_context_io_threads(context), 32);
    sqrl_context_unref(context);
}

static void test_bad_config(void **state) {
    struct sqrl_config config = {.size = 0};
    struct sqrl_context *context = (struct sqrl_context *)&config;
    struct sqrl_error err;
    assert_int_equal(sqrl_context_new(&config, &context, &err), SQRL_E_INVALID);
    assert_null(context);
    assert_string_equal(err.message, "config: set size to sizeof(struct sqrl_config)");
    config = (struct sqrl_config){.size = sizeof config, .cpu_threads = 1025};
    assert_int_equal(sqrl_context_new(&config, &context, &err), SQRL_E_INVALID);
    assert_string_equal(err.message, "config: at most 1024 threads");
    sqrl_fail_allocation(1);
    assert_int_equal(sqrl_context_new(NULL, &context, &err), SQRL_E_NO_MEMORY);
    assert_null(context);
}

static void test_version(void **state) {
    assert_string_equal(sqrl_version(), SQRL_VERSION);
}

/* --- budget --- */

static void test_budget(void **state) {
    struct sqrl_config config = {.size = sizeof config, .memory_budget_bytes = 1000};
    struct sqrl_context *context;
    assert_int_equal(sqrl_context_new(&config, &context, NULL), SQRL_OK);
    assert_true(sqrl_budget_take(context, 600, false));
    assert_false(sqrl_budget_take(context, 401, false));
    assert_true(sqrl_budget_take(context, 400, false));
    assert_false(sqrl_budget_take(context, UINT64_MAX, false));
    assert_true(sqrl_budget_take(context, 500, true));
    assert_int_equal(sqrl_budget_used(context), 1500);
    sqrl_budget_give(context, 1500);
    assert_int_equal(sqrl_budget_used(context), 0);
    sqrl_budget_widen(context, 200);
    assert_int_equal(sqrl_budget_limit(context), 1200);
    assert_true(sqrl_budget_take(context, 1200, false));
    assert_false(sqrl_budget_take(context, 1, false));
    sqrl_budget_narrow(context, 200);
    assert_int_equal(sqrl_budget_limit(context), 1000);
    sqrl_budget_give(context, 1200);
    assert_int_equal(metric(context, "budget.used_bytes"), 0);
    assert_int_equal(metric(context, "budget.peak_bytes"), 1500);
    sqrl_context_unref(context);
}

static void *hammer_budget(void *arg) {
    struct sqrl_context *context = arg;
    uint64_t over = 0;
    for (int i = 0; i < 20000; i++) {
        if (sqrl_budget_take(context, 300, false)) {
            over += sqrl_budget_used(context) > 1000;
            sqrl_budget_give(context, 300);
        }
        sqrl_count(context, SQRL_COUNT_SAMPLES, 3);
    }
    return (void *)(uintptr_t)over;
}

static void test_threads_hammer_budget_and_counters(void **state) {
    enum { THREADS = 4 };
    struct sqrl_config config = {.size = sizeof config, .memory_budget_bytes = 1000};
    struct sqrl_context *context;
    assert_int_equal(sqrl_context_new(&config, &context, NULL), SQRL_OK);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_budget, context), 0);
    for (int i = 0; i < THREADS; i++) {
        void *over;
        pthread_join(threads[i], &over);
        assert_null(over);
    }
    assert_int_equal(sqrl_budget_used(context), 0);
    assert_in_range(metric(context, "budget.peak_bytes"), 300, 900);
    assert_int_equal(metric(context, "samples"), THREADS * 20000 * 3);
    sqrl_context_unref(context);
}

/* --- metrics --- */

struct names {
    const char *names[32];
    size_t count;
};

static void collect_name(void *arg, const struct sqrl_metric *found) {
    struct names *names = arg;
    names->names[names->count++] = found->name;
}

static void test_metric_names(void **state) {
    static const char *const expected[] = {
        "bytes_read",
        "reads",
        "bytes_decoded",
        "blocks",
        "samples",
        "batches",
        "wait_consumer_ns",
        "load_ns",
        "fill_ns",
        "retries",
        "http.requests",
        "http.bytes",
        "http.retries",
        "http.hedges",
        "http.first_byte_ns",
        "http.connections",
        "cache.hits",
        "cache.misses",
        "cache.bytes",
        "cache.bytes_fetched",
        "cache.evictions",
        "cache.bytes_evicted",
        "cache.damaged",
        "slab.bytes_mapped",
        "slab.bytes_idle",
        "budget.used_bytes",
        "budget.peak_bytes",
        "pool.threads",
    };
    struct sqrl_context *context = new_context(1);
    struct names names = {.count = 0};
    sqrl_context_metrics(context, collect_name, &names);
    assert_int_equal(names.count, SQRL_COUNT_OF(expected));
    for (size_t i = 0; i < names.count; i++)
        assert_string_equal(names.names[i], expected[i]);
    for (int i = 0; i < SQRL_COUNTERS; i++) {
        assert_string_equal(sqrl_counter_name((enum sqrl_counter)i), expected[i]);
        sqrl_count(context, (enum sqrl_counter)i, (uint64_t)i + 5);
        assert_int_equal(metric(context, expected[i]), i + 5);
    }
    sqrl_context_unref(context);
}

/* --- log --- */

struct heard {
    int lines, inside, clashes;
    enum sqrl_log_level level;
    char last[4096];
};

static void hear(void *arg, enum sqrl_log_level level, const char *line) {
    struct heard *heard = arg;
    heard->clashes += __atomic_fetch_add(&heard->inside, 1, __ATOMIC_RELAXED) != 0;
    heard->lines++; /* not atomic: one call at a time is the promise */
    heard->level = level;
    snprintf(heard->last, sizeof heard->last, "%s", line);
    __atomic_fetch_sub(&heard->inside, 1, __ATOMIC_RELAXED);
}

static void test_log_lines(void **state) {
    struct heard heard = {0}, other = {0};
    struct sqrl_config config = {.size = sizeof config, .log = hear, .log_arg = &heard};
    struct sqrl_context *context;
    assert_int_equal(sqrl_context_new(&config, &context, NULL), SQRL_OK);
    sqrl_log(context, SQRL_LOG_DEBUG, "read %d bytes of %s", 5, "a\nb");
    assert_string_equal(heard.last, "read 5 bytes of a\\x0Ab");
    assert_int_equal(heard.level, SQRL_LOG_DEBUG);
    sqrl_log(context, SQRL_LOG_ERROR, "%*s", 100000, "x");
    assert_int_equal(strlen(heard.last), 2047);
    sqrl_context_set_log(context, hear, &other, SQRL_LOG_WARNING);
    sqrl_log(context, SQRL_LOG_INFO, "unheard");
    sqrl_log(context, SQRL_LOG_WARNING, "heard");
    assert_int_equal(heard.lines, 2);
    assert_int_equal(other.lines, 1);
    assert_string_equal(other.last, "heard");
    sqrl_context_unref(context);
}

static void *hammer_log(void *arg) {
    for (int i = 0; i < 500; i++)
        sqrl_log(arg, SQRL_LOG_INFO, "line %d", i);
    return NULL;
}

static void test_threads_log_one_at_a_time(void **state) {
    enum { THREADS = 4 };
    struct heard heard = {0}, late = {0};
    struct sqrl_config config = {.size = sizeof config, .log = hear, .log_arg = &heard};
    struct sqrl_context *context;
    assert_int_equal(sqrl_context_new(&config, &context, NULL), SQRL_OK);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_log, context), 0);
    sqrl_context_set_log(context, hear, &late, SQRL_LOG_DEBUG);
    int before = heard.lines; /* the old sink is quiet once it is replaced */
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(heard.lines, before);
    assert_int_equal(heard.lines + late.lines, THREADS * 500);
    assert_int_equal(heard.clashes + late.clashes, 0);
    sqrl_context_unref(context);
}

static void test_default_sink(void **state) {
    struct sqrl_context *context = new_context(1);
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int saved = dup(2);
    assert_true(dup2(fileno(file), 2) == 2);
    sqrl_log(context, SQRL_LOG_DEBUG, "no");
    sqrl_log(context, SQRL_LOG_INFO, "no");
    sqrl_log(context, SQRL_LOG_WARNING, "slow");
    sqrl_log(context, SQRL_LOG_ERROR, "broken");
    sqrl_context_set_log(context, NULL, NULL, SQRL_LOG_ERROR);
    sqrl_log(context, SQRL_LOG_WARNING, "slow");
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    char text[256] = {0};
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, "squirrel: warning: slow\nsquirrel: broken\n");
    sqrl_context_unref(context);
}

/* --- slots --- */

static int made, freed;
static char order[8];

static void *make_lower(struct sqrl_context *context, struct sqrl_error *err) {
    made++;
    return sqrl_strdup("io", err);
}

static void free_lower(void *slot) {
    order[freed++] = 'l';
    free(slot);
}

static void *make_upper(struct sqrl_context *context, struct sqrl_error *err) {
    if (sqrl_context_slot(context, SQRL_SLOT_IO, make_lower, free_lower, err) == NULL)
        return NULL;
    made++;
    return sqrl_strdup("driver", err);
}

static void free_upper(void *slot) {
    order[freed++] = 'u';
    free(slot);
}

static void *get_slot(void *context) {
    return sqrl_context_slot(context, SQRL_SLOT_DRIVER, make_upper, free_upper, NULL);
}

static void test_slots(void **state) {
    enum { THREADS = 4 };
    made = freed = 0;
    struct sqrl_context *context = new_context(1);
    struct sqrl_error err;
    sqrl_fail_allocation(1);
    assert_null(
        sqrl_context_slot(context, SQRL_SLOT_DRIVER, make_upper, free_upper, &err));
    assert_int_equal(err.code, SQRL_E_NO_MEMORY);
    made = 0;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_slot, context), 0);
    void *first = get_slot(context);
    assert_string_equal(first, "driver");
    for (int i = 0; i < THREADS; i++) {
        void *got;
        pthread_join(threads[i], &got);
        assert_ptr_equal(got, first);
    }
    assert_int_equal(made, 2);
    sqrl_context_unref(context);
    assert_int_equal(freed, 2);
    assert_memory_equal(order, "ul", 2); /* upper floors first */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_config_of_another_size),
        cmocka_unit_test(test_bad_config),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_threads_hammer_budget_and_counters),
        cmocka_unit_test(test_metric_names),
        cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_threads_log_one_at_a_time),
        cmocka_unit_test(test_default_sink),
        cmocka_unit_test(test_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
