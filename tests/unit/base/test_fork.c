/* Children of a busy parent must be able to use everything the context offers: locks that
 * were held, lists that were cut off midway and threads that are gone must not matter. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_test.h"

#define MIB ((size_t)1024 * 1024)
#define CHILD_SECONDS 60 /* a hang ends as SIGALRM */

/* ThreadSanitizer: a child of a process with threads may start threads of its own. */
SQRL_API const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}

/* The sanitizers' own runtimes (gcc 12) do not survive a fork that cuts off another
 * thread inside of them. There, and only there, the busy threads pause between two
 * rounds. */
static pthread_rwlock_t pause_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
#if defined(SQRL_ASAN) || defined(SQRL_TSAN)
static const bool pauses = true;
#else
static const bool pauses = false;
#endif

/* Runs `body` in a child; true when it returned true and nothing hung or crashed. */
static bool in_child(bool (*body)(void *arg), void *arg) {
    fflush(NULL);
    if (pauses)
        pthread_rwlock_wrlock(&pause_lock);
    pid_t pid = fork();
    if (pauses && pid != 0)
        pthread_rwlock_unlock(&pause_lock);
    assert_true(pid >= 0);
    if (pid == 0) {
        if (pauses)
            pthread_rwlock_init(&pause_lock, NULL);
        alarm(CHILD_SECONDS);
        _exit(body(arg) ? 0 : 1);
    }
    int status;
    while (waitpid(pid, &status, 0) != pid)
        continue;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool grandchild_generation(void *arg) {
    return sqrl_fork_generation() == 2;
}

static bool child_generation(void *arg) {
    if (sqrl_fork_generation() != 1)
        return false;
    return in_child(grandchild_generation, NULL) && sqrl_fork_generation() == 1;
}

static void test_generation(void **state) {
    assert_int_equal(sqrl_fork_generation(), 0);
    assert_true(in_child(child_generation, NULL));
    assert_int_equal(sqrl_fork_generation(), 0);
}

/* --- a lock that another thread holds at the fork --- */

struct held {
    struct sqrl_lock lock;
    int taken, let_go;
};

static void *hold(void *arg) {
    struct held *held = arg;
    sqrl_lock_take(&held->lock);
    __atomic_store_n(&held->taken, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&held->let_go, __ATOMIC_ACQUIRE))
        usleep(1000);
    sqrl_lock_drop(&held->lock);
    return NULL;
}

static bool take_held(void *arg) {
    struct held *held = arg;
    bool first = sqrl_lock_take(&held->lock);
    sqrl_lock_drop(&held->lock);
    bool second = sqrl_lock_take(&held->lock);
    sqrl_lock_drop(&held->lock);
    sqrl_lock_reset(&held->lock);
    return first && !second;
}

static void test_lock_held_at_the_fork(void **state) {
    struct held held = {.taken = 0};
    sqrl_lock_init(&held.lock);
    assert_false(sqrl_lock_take(&held.lock)); /* new, but no fork has passed */
    sqrl_lock_drop(&held.lock);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hold, &held), 0);
    while (!__atomic_load_n(&held.taken, __ATOMIC_ACQUIRE))
        usleep(1000);
    assert_true(in_child(take_held, &held));
    __atomic_store_n(&held.let_go, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    sqrl_lock_reset(&held.lock);
}

/* --- a busy context --- */

struct busy {
    struct sqrl_context *context;
    struct sqrl_buffer *large, *small; /* made before the fork */
    int stop, rounds;
};

struct job {
    struct sqrl_task task;
    int done;
};

static void run_job(struct sqrl_task *task) {
    __atomic_store_n(&((struct job *)task)->done, 1, __ATOMIC_RELEASE);
}

static bool run_one(struct sqrl_context *context) {
    struct sqrl_pool *pool = sqrl_context_pool(context, NULL);
    if (pool == NULL)
        return false;
    struct job job = {{NULL, run_job}, 0};
    sqrl_pool_submit(pool, &job.task);
    while (!__atomic_load_n(&job.done, __ATOMIC_ACQUIRE))
        usleep(100);
    return true;
}

static bool use_buffers(struct sqrl_context *context, uint64_t seed) {
    static const size_t sizes[] = {100, 64 * 1024, 200 * 1024, MIB, 3 * MIB};
    struct sqrl_buffer *buffers[SQRL_COUNT_OF(sizes)];
    bool good = true;
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        size_t size = sizes[(i + seed) % SQRL_COUNT_OF(sizes)];
        good = good && sqrl_buffer_new(context, size, &buffers[i], NULL) == SQRL_OK;
        if (!good)
            return false;
        buffers[i]->data[0] = buffers[i]->data[size - 1] = (uint8_t)i;
    }
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        good = good && buffers[i]->data[0] == i;
        sqrl_buffer_unref(buffers[i]);
    }
    return good;
}

static void drop_line(void *arg, enum sqrl_log_level level, const char *line) {
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
}

static int guests_in, guests_out;

static void meet(struct sqrl_task *task) {
    __atomic_fetch_add(&guests_in, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&guests_in, __ATOMIC_ACQUIRE) < 2)
        usleep(100);
    __atomic_fetch_add(&guests_out, 1, __ATOMIC_ACQ_REL);
}

/* Returns once both threads of the pool have been seen at work. */
static void start_pool(struct sqrl_context *context) {
    static struct sqrl_task guests[2] = {{NULL, meet}, {NULL, meet}};
    struct sqrl_pool *pool = sqrl_context_pool(context, NULL);
    assert_non_null(pool);
    for (int i = 0; i < 2; i++)
        sqrl_pool_submit(pool, &guests[i]);
    while (__atomic_load_n(&guests_out, __ATOMIC_ACQUIRE) < 2)
        usleep(1000);
}

static void *keep_busy(void *arg) {
    struct busy *busy = arg;
    for (uint64_t i = 0; !__atomic_load_n(&busy->stop, __ATOMIC_ACQUIRE); i++) {
        if (pauses)
            pthread_rwlock_rdlock(&pause_lock);
        use_buffers(busy->context, i);
        run_one(busy->context);
        sqrl_log(busy->context, SQRL_LOG_INFO, "round %d", (int)i);
        if (pauses)
            pthread_rwlock_unlock(&pause_lock);
        __atomic_fetch_add(&busy->rounds, i == 0, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void *make_slot(struct sqrl_context *context, struct sqrl_error *err) {
    return sqrl_strdup("io", err);
}

static bool use_all_in_child(void *arg) {
    struct busy *busy = arg;
    struct sqrl_context *context = busy->context;
    bool good = metric(context, "pool.threads") == 0;
    for (uint64_t i = 0; i < 10; i++)
        good = good && use_buffers(context, i) && run_one(context);
    good = good && metric(context, "pool.threads") == 2;
    sqrl_log(context, SQRL_LOG_ERROR, "from the child");
    good = good && busy->large->data[5] == 55 && busy->small->data[5] == 66;
    sqrl_buffer_unref(busy->large);
    sqrl_buffer_unref(busy->small);
    void *slot = sqrl_context_slot(context, SQRL_SLOT_IO, make_slot, free, NULL);
    return good && use_buffers(context, 3) && strcmp(slot, "io") == 0;
}

static void test_busy_context(void **state) {
    enum { THREADS = 2, FORKS = 15 };
    int lines = 0;
    struct sqrl_config config = {
        .size = sizeof config, .cpu_threads = 2, .log = drop_line, .log_arg = &lines};
    struct busy busy = {.stop = 0};
    assert_int_equal(sqrl_context_new(&config, &busy.context, NULL), SQRL_OK);
    busy.context->slabs.idle_limit = 8 * MIB;
    assert_int_equal(sqrl_buffer_new(busy.context, 5 * MIB, &busy.large, NULL), SQRL_OK);
    assert_int_equal(sqrl_buffer_new(busy.context, 70000, &busy.small, NULL), SQRL_OK);
    busy.large->data[5] = 55;
    busy.small->data[5] = 66;
    start_pool(busy.context);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &busy), 0);
    while (__atomic_load_n(&busy.rounds, __ATOMIC_ACQUIRE) < THREADS)
        usleep(1000);
    int good = 0;
    for (int i = 0; i < FORKS; i++)
        good += in_child(use_all_in_child, &busy);
    __atomic_store_n(&busy.stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(good, FORKS);
    assert_true(lines > 0);
    assert_int_equal(busy.large->data[5], 55);
    sqrl_buffer_unref(busy.large);
    sqrl_buffer_unref(busy.small);
    sqrl_context_unref(busy.context);
}

/* --- the last release in a child --- */

static bool release_in_child(void *arg) {
    sqrl_context_unref(arg);
    struct sqrl_context *other = NULL;
    if (sqrl_context_new(NULL, &other, NULL) != SQRL_OK)
        return false;
    bool good = use_buffers(other, 1) && run_one(other);
    sqrl_context_unref(other);
    return good;
}

static void test_release_in_child(void **state) {
    struct sqrl_context *context = new_context(2);
    assert_true(use_buffers(context, 0));
    assert_true(run_one(context));
    assert_true(in_child(release_in_child, context));
    assert_true(run_one(context));
    sqrl_context_unref(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_lock_held_at_the_fork),
        cmocka_unit_test(test_busy_context),
        cmocka_unit_test(test_release_in_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
