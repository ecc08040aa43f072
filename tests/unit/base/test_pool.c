#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "base_test.h"

static void nap(void) {
    usleep(1000);
}

/* Waits up to 20 s: a hang is a failure, not a stuck run. */
static void wait_for(const int *count, int wanted) {
    for (int i = 0; i < 20000 && __atomic_load_n(count, __ATOMIC_ACQUIRE) != wanted; i++)
        nap();
    assert_int_equal(__atomic_load_n(count, __ATOMIC_ACQUIRE), wanted);
}

static int process_threads(void) {
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void wait_for_threads(int wanted) {
    for (int i = 0; i < 20000 && process_threads() != wanted; i++)
        nap();
    assert_int_equal(process_threads(), wanted);
}

static int threads_at_start;

struct job {
    struct sqrl_task task;
    int *done;
    int *order;
    int number;
};

static void run_job(struct sqrl_task *task) {
    struct job *job = (struct job *)task;
    if (job->order != NULL)
        job->order[__atomic_load_n(job->done, __ATOMIC_ACQUIRE)] = job->number;
    __atomic_fetch_add(job->done, 1, __ATOMIC_ACQ_REL);
}

static void test_one_thread_runs_in_order(void **state) {
    enum { JOBS = 1000 };
    static struct job jobs[JOBS];
    static int order[JOBS];
    int done = 0;
    struct sqrl_context *context = new_context(1);
    struct sqrl_pool *pool = sqrl_context_pool(context, NULL);
    assert_int_equal(sqrl_pool_threads(pool), 1);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct job){{NULL, run_job}, &done, order, i};
        sqrl_pool_submit(pool, &jobs[i].task);
    }
    wait_for(&done, JOBS);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(order[i], i);
    assert_ptr_equal(sqrl_context_pool(context, NULL), pool);
    sqrl_context_unref(context);
}

struct producer {
    pthread_t thread;
    struct sqrl_context *context;
    struct job *jobs;
    int count;
};

static void *produce(void *arg) {
    struct producer *p = arg;
    for (int i = 0; i < p->count; i++)
        sqrl_pool_submit(sqrl_context_pool(p->context, NULL), &p->jobs[i].task);
    return NULL;
}

static void test_many_producers(void **state) {
    enum { PRODUCERS = 4, JOBS = 2000 };
    static struct job jobs[PRODUCERS][JOBS];
    struct producer producers[PRODUCERS];
    int done = 0;
    struct sqrl_context *context = new_context(3);
    for (int p = 0; p < PRODUCERS; p++) {
        for (int i = 0; i < JOBS; i++)
            jobs[p][i] = (struct job){{NULL, run_job}, &done, NULL, i};
        producers[p] = (struct producer){0, context, jobs[p], JOBS};
        assert_int_equal(
            pthread_create(&producers[p].thread, NULL, produce, &producers[p]), 0);
    }
    for (int p = 0; p < PRODUCERS; p++)
        pthread_join(producers[p].thread, NULL);
    wait_for(&done, PRODUCERS * JOBS);
    assert_int_equal(sqrl_context_cpu_threads(context), 3);
    assert_int_equal(metric(context, "pool.threads"), 3);
    sqrl_context_unref(context);
}

struct look {
    struct sqrl_task task;
    char name[16];
    sigset_t blocked;
    int done;
};

static void look_around(struct sqrl_task *task) {
    struct look *look = (struct look *)task;
    pthread_getname_np(pthread_self(), look->name, sizeof look->name);
    pthread_sigmask(SIG_SETMASK, NULL, &look->blocked);
    __atomic_store_n(&look->done, 1, __ATOMIC_RELEASE);
}

static void test_threads_are_named_and_take_no_signals(void **state) {
    static struct look look = {.task.run = look_around};
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct sqrl_context *context = new_context(1);
    sqrl_pool_submit(sqrl_context_pool(context, NULL), &look.task);
    wait_for(&look.done, 1);
    assert_string_equal(look.name, "sqrl-cpu-0");
    static const int asked[] = {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGALRM, SIGUSR1};
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (size_t i = 0; i < SQRL_COUNT_OF(asked); i++) {
        assert_true(sigismember(&look.blocked, asked[i]));
        assert_int_equal(sigismember(&after, asked[i]), sigismember(&before, asked[i]));
    }
    assert_false(sigismember(&look.blocked, SIGSEGV));
    sqrl_context_unref(context);
}

static void test_threads_end_with_the_context(void **state) {
    int before = threads_at_start;
    wait_for_threads(before);
    struct sqrl_context *context = new_context(4);
    assert_int_equal(process_threads(), before); /* started on first use */
    assert_non_null(sqrl_context_pool(context, NULL));
    assert_int_equal(process_threads(), before + 4);
    sqrl_context_unref(context);
    wait_for_threads(before);
}

struct holder {
    struct sqrl_task task;
    struct sqrl_context *context;
    struct sqrl_buffer *buffer;
    int *gate, *done;
};

static void drop_everything(struct sqrl_task *task) {
    struct holder *holder = (struct holder *)task;
    while (__atomic_load_n(holder->gate, __ATOMIC_ACQUIRE) == 0)
        nap();
    sqrl_buffer_unref(holder->buffer);
    sqrl_context_unref(holder->context);
    __atomic_fetch_add(holder->done, 1, __ATOMIC_RELEASE);
}

static void test_last_release_on_a_pool_thread(void **state) {
    int before = threads_at_start;
    int gate = 0, done = 0;
    struct sqrl_context *context = new_context(2);
    struct holder holder = {.task.run = drop_everything, .gate = &gate, .done = &done};
    holder.context = context;
    assert_int_equal(sqrl_buffer_new(context, 3 << 20, &holder.buffer, NULL), SQRL_OK);
    sqrl_pool_submit(sqrl_context_pool(context, NULL), &holder.task);
    sqrl_context_ref(context);
    sqrl_context_unref(context);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    wait_for(&done, 1);
    wait_for_threads(before);
}

static void block_here(struct sqrl_task *task) {
    struct holder *holder = (struct holder *)task;
    while (__atomic_load_n(holder->gate, __ATOMIC_ACQUIRE) == 0)
        nap();
}

static void test_queued_tasks_run_before_the_end(void **state) {
    static struct job jobs[100];
    int gate = 0, done = 0;
    struct holder holder = {.task.run = block_here, .gate = &gate};
    struct sqrl_pool *pool = sqrl_pool_new(1, "cpu", NULL);
    assert_non_null(pool);
    sqrl_pool_submit(pool, &holder.task);
    for (int i = 0; i < 100; i++) {
        jobs[i] = (struct job){{NULL, run_job}, &done, NULL, i};
        sqrl_pool_submit(pool, &jobs[i].task);
    }
    sqrl_pool_release(pool);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    wait_for(&done, 100);
}

static void test_failing_start(void **state) {
    int before = threads_at_start;
    struct sqrl_error err;
    struct sqrl_context *context = new_context(2);
    sqrl_fail_allocation(1); /* the pool itself */
    assert_null(sqrl_context_pool(context, &err));
    assert_int_equal(err.code, SQRL_E_NO_MEMORY);
    sqrl_fail_allocation(2); /* the first thread */
    assert_null(sqrl_context_pool(context, &err));
    assert_int_equal(err.code, SQRL_E_IO);
    assert_true(err.retryable);
    assert_string_equal(err.message,
                        "can't start a thread: Resource temporarily unavailable");
    sqrl_fail_allocation(3); /* the second: one is enough to go on */
    struct sqrl_pool *pool = sqrl_context_pool(context, &err);
    sqrl_fail_allocation(0);
    assert_non_null(pool);
    assert_int_equal(sqrl_pool_threads(pool), 1);
    assert_int_equal(sqrl_context_cpu_threads(context), 1);
    sqrl_context_unref(context);
    sqrl_pool_release(NULL);
    wait_for_threads(before);
}

static void *do_nothing(void *arg) {
    return arg;
}

int main(void) {
    /* ThreadSanitizer adds a thread of its own with the first one. */
    pthread_t first;
    if (pthread_create(&first, NULL, do_nothing, NULL) != 0 ||
        pthread_join(first, NULL) != 0)
        return 1;
    threads_at_start = process_threads();
    for (int i = 0; i < 50; i++) { /* the joined one may be listed a little longer */
        nap();
        threads_at_start = SQRL_MIN(threads_at_start, process_threads());
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread_runs_in_order),
        cmocka_unit_test(test_many_producers),
        cmocka_unit_test(test_threads_are_named_and_take_no_signals),
        cmocka_unit_test(test_threads_end_with_the_context),
        cmocka_unit_test(test_last_release_on_a_pool_thread),
        cmocka_unit_test(test_queued_tasks_run_before_the_end),
        cmocka_unit_test(test_failing_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
