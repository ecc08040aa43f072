#include "base_test.h"

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)

static void test_classes(void **state) {
    static const struct {
        size_t size, capacity;
        unsigned index;
    } rows[] = {
        {0, 64 * KIB, 0},
        {64 * KIB, 64 * KIB, 0},
        {64 * KIB + 1, 96 * KIB, 2},
        {96 * KIB, 96 * KIB, 2},
        {96 * KIB + 1, 128 * KIB, 3},
        {128 * KIB + 1, 144 * KIB, 4},
        {144 * KIB + 1, 192 * KIB, 5},
        {MIB, MIB, 12},
        {MIB + 1, 1168 * KIB, 13},
        {1168 * KIB + 1, 1536 * KIB, 14},
        {2 * MIB - 1, 2 * MIB, 15},
        {2 * MIB + 1, 3 * MIB, 17},
        {100 * MIB, 128 * MIB, 33},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(rows); i++) {
        unsigned index;
        size_t capacity;
        assert_true(sqrl_slab_class(rows[i].size, &index, &capacity));
        assert_int_equal(capacity, rows[i].capacity);
        assert_int_equal(index, rows[i].index);
    }
    unsigned index;
    size_t capacity;
    assert_false(sqrl_slab_class(SIZE_MAX, &index, &capacity));
    assert_false(sqrl_slab_class((size_t)1 << 50, &index, &capacity));
}

/* Every slab of a full region is there, apart from the others, aligned, and writable. */
static void test_slabs_do_not_overlap(void **state) {
    enum { SLABS = 70 };
    static const size_t sizes[] = {64 * KIB,  96 * KIB,   144 * KIB,  192 * KIB,
                                   768 * KIB, 1168 * KIB, 1536 * KIB, 2 * MIB};
    struct sqrl_context *context = new_context(1);
    for (size_t s = 0; s < SQRL_COUNT_OF(sizes); s++) {
        int count = sizes[s] > MIB ? 6 : SLABS;
        uint8_t *slabs[SLABS];
        size_t capacity;
        for (int i = 0; i < count; i++) {
            slabs[i] = sqrl_slab_take(context, sizes[s], &capacity, NULL);
            assert_non_null(slabs[i]);
            assert_int_equal(capacity, sizes[s]);
            assert_int_equal((uintptr_t)slabs[i] % SQRL_BUFFER_ALIGN, 0);
            if (capacity >= 2 * MIB)
                assert_int_equal((uintptr_t)slabs[i] % (2 * MIB), 0);
            slabs[i][0] = slabs[i][capacity - 1] = (uint8_t)i;
        }
        for (int i = 0; i < count; i++) {
            assert_int_equal(slabs[i][0], i);
            assert_int_equal(slabs[i][capacity - 1], i);
            for (int j = 0; j < i; j++)
                assert_true(slabs[i] >= slabs[j] + capacity ||
                            slabs[j] >= slabs[i] + capacity);
        }
        for (int i = 0; i < count; i++)
            sqrl_slab_give(context, slabs[(i * 29) % count],
                           capacity); /* 29: coprime to all */
    }
    assert_int_equal(metric(context, "slab.bytes_mapped"),
                     metric(context, "slab.bytes_idle"));
    sqrl_context_unref(context);
}

static void test_slabs_are_recycled(void **state) {
    struct sqrl_context *context = new_context(1);
    size_t capacity;
    void *first = sqrl_slab_take(context, 5 * MIB, &capacity, NULL);
    assert_int_equal(capacity, 6 * MIB);
    assert_int_equal(metric(context, "slab.bytes_mapped"), 6 * MIB);
    assert_int_equal(metric(context, "slab.bytes_idle"), 0);
    sqrl_slab_give(context, first, capacity);
    assert_int_equal(metric(context, "slab.bytes_idle"), 6 * MIB);
    assert_ptr_equal(sqrl_slab_take(context, 6 * MIB, &capacity, NULL), first);
    assert_int_equal(metric(context, "slab.bytes_idle"), 0);
    assert_int_equal(metric(context, "slab.bytes_mapped"), 6 * MIB);
    sqrl_slab_give(context, first, capacity);

    void *small = sqrl_slab_take(context, 64 * KIB, &capacity, NULL);
    void *other = sqrl_slab_take(context, 64 * KIB, &capacity, NULL);
    assert_int_equal(metric(context, "slab.bytes_mapped"),
                     8 * MIB); /* one region for both */
    sqrl_slab_give(context, small, capacity);
    assert_ptr_equal(sqrl_slab_take(context, 1, &capacity, NULL), small);
    sqrl_slab_give(context, small, capacity);
    sqrl_slab_give(context, other, capacity);
    assert_int_equal(metric(context, "slab.bytes_idle"), 8 * MIB);
    sqrl_context_unref(context);
}

static void test_idle_limit_drops_the_oldest(void **state) {
    struct sqrl_context *context = new_context(1);
    context->slabs.idle_limit = 10 * MIB;
    void *slabs[4];
    size_t capacity;
    for (int i = 0; i < 4; i++)
        slabs[i] = sqrl_slab_take(context, 4 * MIB, &capacity, NULL);
    for (int i = 0; i < 4; i++)
        sqrl_slab_give(context, slabs[i], capacity);
    assert_int_equal(metric(context, "slab.bytes_idle"), 8 * MIB);
    assert_int_equal(metric(context, "slab.bytes_mapped"), 8 * MIB);
    assert_ptr_equal(sqrl_slab_take(context, 4 * MIB, &capacity, NULL), slabs[3]);
    assert_ptr_equal(sqrl_slab_take(context, 4 * MIB, &capacity, NULL), slabs[2]);
    sqrl_slab_give(context, slabs[2], capacity);
    sqrl_slab_give(context, slabs[3], capacity);
    void *large =
        sqrl_slab_take(context, 12 * MIB, &capacity, NULL); /* above the limit */
    sqrl_slab_give(context, large, capacity);
    assert_true(metric(context, "slab.bytes_idle") <= 10 * MIB);
    assert_int_equal(metric(context, "slab.bytes_mapped"),
                     metric(context, "slab.bytes_idle"));
    sqrl_context_unref(context);
}

/* What is held is not given back to the system before it is dropped. */
static void test_hold_raises_the_idle_limit(void **state) {
    struct sqrl_context *context = new_context(1);
    context->slabs.idle_limit = 10 * MIB;
    sqrl_slab_hold(context, 8 * MIB);
    sqrl_slab_hold(context, 16 * MIB);
    void *slabs[8];
    size_t capacity;
    for (int i = 0; i < 8; i++)
        slabs[i] = sqrl_slab_take(context, 4 * MIB, &capacity, NULL);
    for (int i = 0; i < 8; i++)
        sqrl_slab_give(context, slabs[i], capacity);
    assert_int_equal(metric(context, "slab.bytes_idle"), 24 * MIB);
    sqrl_slab_drop(context, 8 * MIB);
    assert_int_equal(metric(context, "slab.bytes_idle"), 16 * MIB);
    sqrl_slab_drop(context, 16 * MIB);
    assert_int_equal(metric(context, "slab.bytes_idle"), 8 * MIB);
    assert_int_equal(metric(context, "slab.bytes_mapped"), 8 * MIB);
    sqrl_context_unref(context);
}

static void test_too_large(void **state) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 62};
    struct sqrl_context *context = new_context(1);
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        struct sqrl_error err;
        size_t capacity = 9;
        struct sqrl_buffer *buffer = (struct sqrl_buffer *)context;
        assert_null(sqrl_slab_take(context, sizes[i], &capacity, &err));
        assert_int_equal(capacity, 0);
        assert_int_equal(err.code, SQRL_E_NO_MEMORY);
        assert_int_equal(sqrl_buffer_new(context, sizes[i], &buffer, &err),
                         SQRL_E_NO_MEMORY);
        assert_null(buffer);
    }
    assert_int_equal(metric(context, "slab.bytes_mapped"), 0);
    struct sqrl_buffer *buffer;
    assert_int_equal(sqrl_buffer_new(NULL, SIZE_MAX - 10, &buffer, NULL),
                     SQRL_E_NO_MEMORY);
    assert_int_equal(sqrl_buffer_new(NULL, SIZE_MAX / 2, &buffer, NULL),
                     SQRL_E_NO_MEMORY);
    sqrl_context_unref(context);
}

/* The first refusal is answered by handing idle memory back and asking again. */
static void test_growth_that_fails(void **state) {
    struct sqrl_context *context = new_context(1);
    struct sqrl_error err;
    size_t capacity;
    sqrl_fail_allocation(1);
    assert_null(sqrl_slab_take(context, 4 * MIB, &capacity, &err));
    assert_string_equal(err.message, "no memory for a buffer (4194304 bytes)");
    void *slab = sqrl_slab_take(context, 4 * MIB, &capacity, &err);
    sqrl_slab_give(context, slab, capacity);
    assert_int_equal(metric(context, "slab.bytes_idle"), 4 * MIB);
    sqrl_fail_allocation(1);
    slab = sqrl_slab_take(context, 8 * MIB, &capacity, &err);
    assert_non_null(slab);
    assert_int_equal(metric(context, "slab.bytes_idle"), 0);
    sqrl_slab_give(context, slab, capacity);
    sqrl_slab_give(context, NULL, 0);
    sqrl_context_unref(context);
}

/* --- buffers --- */

static void test_buffer_sizes(void **state) {
    static const size_t sizes[] = {0,        1,         64,     100, 64 * KIB - 1,
                                   64 * KIB, 100 * KIB, 3 * MIB};
    struct sqrl_context *context = new_context(1);
    for (size_t i = 0; i < 2 * SQRL_COUNT_OF(sizes); i++) {
        struct sqrl_buffer *buffer;
        size_t size = sizes[i / 2];
        struct sqrl_context *owner = i % 2 == 0 ? context : NULL;
        assert_int_equal(sqrl_buffer_new(owner, size, &buffer, NULL), SQRL_OK);
        assert_int_equal(buffer->size, 0);
        assert_true(buffer->capacity >= size);
        assert_int_equal((uintptr_t)buffer->data % 64, 0);
        memset(buffer->data, 7, buffer->capacity);
        assert_ptr_equal(sqrl_buffer_ref(buffer), buffer);
        sqrl_buffer_unref(buffer);
        buffer->data[0] = 1; /* one reference is left */
        sqrl_buffer_unref(buffer);
    }
    sqrl_buffer_unref(NULL);
    sqrl_context_unref(context);
}

static void test_buffer_keeps_its_context(void **state) {
    static const size_t sizes[] = {10, 100 * KIB, 4 * MIB};
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        struct sqrl_context *context = new_context(1);
        struct sqrl_buffer *buffer;
        assert_int_equal(sqrl_buffer_new(context, sizes[i], &buffer, NULL), SQRL_OK);
        assert_int_equal(context->refs, 2);
        sqrl_context_unref(context);
        assert_int_equal(context->refs, 1);
        memset(buffer->data, 1, buffer->capacity);
        sqrl_buffer_unref(buffer);
    }
}

static void count_release(void *owner) {
    ++*(int *)owner;
}

static void test_wrap(void **state) {
    int released = 0;
    char text[] = "acorns";
    struct sqrl_buffer *buffer;
    assert_int_equal(sqrl_buffer_wrap(text, 6, count_release, &released, &buffer, NULL),
                     SQRL_OK);
    assert_ptr_equal(buffer->data, text);
    assert_int_equal(buffer->size, 6);
    assert_int_equal(buffer->capacity, 6);
    sqrl_buffer_ref(buffer);
    sqrl_buffer_unref(buffer);
    assert_int_equal(released, 0);
    sqrl_buffer_unref(buffer);
    assert_int_equal(released, 1);
    assert_int_equal(sqrl_buffer_wrap(text, 6, NULL, NULL, &buffer, NULL), SQRL_OK);
    sqrl_buffer_unref(buffer);
    sqrl_fail_allocation(1);
    assert_int_equal(sqrl_buffer_wrap(text, 6, count_release, &released, &buffer, NULL),
                     SQRL_E_NO_MEMORY);
    assert_null(buffer);
    assert_int_equal(released, 1); /* the memory is still the caller's */
}

static void test_buffer_faults(void **state) {
    static const size_t sizes[] = {10, 100 * KIB, 4 * MIB};
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        struct sqrl_context *context = new_context(1);
        struct sqrl_buffer *buffer = NULL;
        uint64_t n = 1;
        for (; n < 10 && buffer == NULL; n++) {
            struct sqrl_error err;
            sqrl_fail_allocation(n);
            int code = sqrl_buffer_new(context, sizes[i], &buffer, &err);
            if (code != SQRL_OK)
                assert_int_equal(err.code, SQRL_E_NO_MEMORY);
        }
        sqrl_fail_allocation(0);
        assert_int_equal(n, i == 0 ? 3 : 4); /* one allocation, or a struct and a slab */
        assert_int_equal(context->refs, 2);
        sqrl_buffer_unref(buffer);
        uint64_t mapped = metric(context, "slab.bytes_mapped");
        assert_int_equal(metric(context, "slab.bytes_idle"), mapped);
        sqrl_context_unref(context);
    }
}

/* --- threads --- */

struct hammer {
    pthread_t thread;
    struct sqrl_context *context;
    struct sqrl_buffer *shared;
    uint64_t seed;
    int bad;
};

static void *hammer_slabs(void *arg) {
    enum { HELD = 12, ROUNDS = 3000 };
    static const size_t sizes[] = {64 * KIB,   96 * KIB, 500 * KIB, MIB,
                                   1400 * KIB, 3 * MIB,  100};
    struct hammer *hammer = arg;
    struct sqrl_buffer *held[HELD] = {NULL};
    struct sqrl_rng rng;
    sqrl_rng_init(&rng, hammer->seed);
    for (int i = 0; i < ROUNDS; i++) {
        size_t at = (size_t)sqrl_rng_below(&rng, HELD);
        uint8_t mark = (uint8_t)(hammer->seed * 16 + at);
        struct sqrl_buffer *old = held[at];
        if (old != NULL)
            hammer->bad += old->data[0] != mark || old->data[old->capacity - 1] != mark;
        sqrl_buffer_unref(old);
        size_t size = sizes[sqrl_rng_below(&rng, SQRL_COUNT_OF(sizes))];
        if (sqrl_buffer_new(hammer->context, size, &held[at], NULL) == SQRL_OK)
            held[at]->data[0] = held[at]->data[held[at]->capacity - 1] = mark;
        sqrl_buffer_ref(hammer->shared);
        hammer->bad += hammer->shared->data[0] != 0xaa;
        sqrl_buffer_unref(hammer->shared);
    }
    for (int i = 0; i < HELD; i++)
        sqrl_buffer_unref(held[i]);
    sqrl_buffer_unref(hammer->shared);
    return NULL;
}

static void test_threads_hammer_slabs(void **state) {
    enum { THREADS = 4 };
    struct hammer hammers[THREADS];
    struct sqrl_context *context = new_context(1);
    context->slabs.idle_limit = 8 * MIB; /* eviction runs too */
    struct sqrl_buffer *shared;
    assert_int_equal(sqrl_buffer_new(context, MIB, &shared, NULL), SQRL_OK);
    shared->data[0] = 0xaa;
    for (int i = 0; i < THREADS; i++) {
        hammers[i] = (struct hammer){0, context, sqrl_buffer_ref(shared), (uint64_t)i, 0};
        assert_int_equal(
            pthread_create(&hammers[i].thread, NULL, hammer_slabs, &hammers[i]), 0);
    }
    sqrl_buffer_unref(shared);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(hammers[i].thread, NULL);
        assert_int_equal(hammers[i].bad, 0);
    }
    assert_int_equal(metric(context, "slab.bytes_mapped"),
                     metric(context, "slab.bytes_idle"));
    assert_true(metric(context, "slab.bytes_idle") <= 8 * MIB);
    assert_int_equal(context->refs, 1);
    sqrl_context_unref(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_slabs_do_not_overlap),
        cmocka_unit_test(test_slabs_are_recycled),
        cmocka_unit_test(test_idle_limit_drops_the_oldest),
        cmocka_unit_test(test_hold_raises_the_idle_limit),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_growth_that_fails),
        cmocka_unit_test(test_buffer_sizes),
        cmocka_unit_test(test_buffer_keeps_its_context),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_buffer_faults),
        cmocka_unit_test(test_threads_hammer_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
