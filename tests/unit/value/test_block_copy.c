/* Samples copied out of a block are the same, whatever lies around them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "sqrl/block.h"
#include "value/value.h"

static struct sqrl_context *context;

static struct sqrl_block *block_of(const void *bytes, size_t size) {
    struct sqrl_block *block = NULL;
    assert_int_equal(sqrl_block_new(context, &block, NULL), SQRL_OK);
    assert_int_equal(sqrl_buffer_new(context, size, &block->bytes, NULL), SQRL_OK);
    memcpy(block->bytes->data, bytes, size);
    block->bytes->size = size;
    return block;
}

static void expect_same(const struct sqrl_block *a, uint32_t i,
                        const struct sqrl_block *b, uint32_t k) {
    struct sqrl_bytes x = {0}, y = {0};
    assert_int_equal(
        sqrl_json_encode(&x, a->tape.nodes, a->begin[i], a->bytes->data, NULL), SQRL_OK);
    assert_int_equal(
        sqrl_json_encode(&y, b->tape.nodes, b->begin[k], b->bytes->data, NULL), SQRL_OK);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    sqrl_bytes_reset(&x);
    sqrl_bytes_reset(&y);
}

/* Copies samples in a scrambled order, some twice. */
static void check(struct sqrl_block *block) {
    struct sqrl_block *copy = NULL;
    assert_int_equal(sqrl_block_new(context, &copy, NULL), SQRL_OK);
    uint32_t count = 3 * block->count;
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(
            sqrl_block_append_sample(copy, block, i * 7 % block->count, NULL), SQRL_OK);
    assert_int_equal(copy->count, count);
    for (uint32_t i = 0; i < count; i++)
        expect_same(copy, i, block, i * 7 % block->count);
    sqrl_block_unref(copy);
    sqrl_block_unref(block);
}

static void test_msgpack(void **state) {
    struct sqrl_bytes b = {0};
    static const uint8_t pixels[12] = {1, 2, 3, 250};
    const uint64_t shape[] = {3, 4};
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(sqrl_msgpack_put_map(&b, 6, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(&b, "n", 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_uint(&b, i, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(&b, "list", 4, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_array(&b, i % 5, NULL), SQRL_OK);
        for (unsigned k = 0; k < i % 5; k++)
            assert_int_equal(sqrl_msgpack_put_string(&b, "item", k, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(&b, "image", 5, NULL), SQRL_OK);
        assert_int_equal(
            sqrl_msgpack_put_ndarray(&b, SQRL_DTYPE_UINT8, shape, 2, pixels, NULL),
            SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(&b, "none", 4, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_null(&b, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(&b, "bin", 3, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_binary(&b, "abcdefg", 7, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(&b, "map", 3, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_map(&b, 0, NULL), SQRL_OK);
    }
    assert_int_equal(sqrl_msgpack_put_int(&b, -5, NULL),
                     SQRL_OK); /* samples need not be
                                  maps, or have bytes */
    assert_int_equal(sqrl_msgpack_put_array(&b, 0, NULL), SQRL_OK);
    struct sqrl_block *block = block_of(b.data, b.size);
    sqrl_bytes_reset(&b);
    assert_int_equal(sqrl_block_parse_msgpack(block, 0, NULL, NULL, NULL), SQRL_OK);
    assert_int_equal(block->count, 42);
    check(block);
}

/* Arrays whose data lie on the tape, numbers beyond 64 bits, escapes. */
static void test_json(void **state) {
    static const char lines[] =
        "{\"a\": 1, \"t\": \"x\\n\\u00e9\", \"x\": {\"__ndarray__\": \"AQIDBA==\", "
        "\"dtype\": \"uint8\", \"shape\": [4]}}\n"
        "[1, 2.5, [[]], {\"k\": 123456789012345678901234567890}]\n"
        "{\"x\": [[1, 2], [3, 4]], \"empty\": \"\"}\n\"text\"\nnull\n";
    struct sqrl_block *block = block_of(lines, sizeof lines - 1);
    assert_int_equal(sqrl_block_parse_jsonl(block, 0, 0, NULL, NULL), SQRL_OK);
    assert_int_equal(block->count, 5);
    check(block);
}

/* Key texts at the front of a block, as idx has them, are copied, not all between. */
static void test_far_keys(void **state) {
    enum { SAMPLES = 100, BYTES = 1000 };
    uint8_t *bytes = calloc(1, 3 + SAMPLES * BYTES);
    memcpy(bytes, "key", 3);
    for (unsigned i = 0; i < SAMPLES; i++)
        memset(bytes + 3 + i * BYTES, (int)i, BYTES);
    struct sqrl_block *block = block_of(bytes, 3 + SAMPLES * BYTES), *copy = NULL;
    free(bytes);
    assert_int_equal(sqrl_block_reserve(block, SAMPLES, NULL), SQRL_OK);
    assert_int_equal(sqrl_tape_reserve(&block->tape, 3 * SAMPLES, NULL), SQRL_OK);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        block->begin[block->count++] =
            sqrl_tape_push(&block->tape, SQRL_MAP, 0, 0, 1, 3 * i + 3);
        sqrl_tape_push(&block->tape, SQRL_STRING, SQRL_NODE_ASCII, 0, 3, 0);
        sqrl_tape_push(&block->tape, SQRL_BINARY, 0, 0, BYTES, 3 + i * BYTES);
    }
    assert_int_equal(sqrl_block_new(context, &copy, NULL), SQRL_OK);
    assert_int_equal(sqrl_block_append_sample(copy, block, 99, NULL), SQRL_OK);
    expect_same(copy, 0, block, 99);
    assert_int_equal(copy->bytes->size, 3 + BYTES);
    sqrl_block_unref(copy);
    check(block);
}

static void test_allocations(void **state) {
    static const char lines[] = "{\"a\": \"bcd\"}\n";
    struct sqrl_block *block = block_of(lines, sizeof lines - 1);
    assert_int_equal(sqrl_block_parse_jsonl(block, 0, 0, NULL, NULL), SQRL_OK);
    for (uint64_t n = 1;; n++) {
        struct sqrl_block *copy = calloc(1, sizeof *copy); /* no recycled room */
        copy->context = context;
        sqrl_fail_allocation(n);
        int rc = sqrl_block_append_sample(copy, block, 0, NULL);
        sqrl_fail_allocation(0);
        assert_int_equal(copy->count, rc == SQRL_OK);
        if (rc == SQRL_OK)
            expect_same(copy, 0, block, 0);
        sqrl_buffer_unref(copy->bytes);
        sqrl_tape_reset(&copy->tape);
        free(copy->begin);
        free(copy);
        if (rc == SQRL_OK)
            break;
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        assert_true(n < 10);
    }
    sqrl_block_unref(block);
}

static int setup(void **state) {
    struct sqrl_config config = {.size = sizeof config};
    return sqrl_context_new(&config, &context, NULL);
}

static int teardown(void **state) {
    sqrl_context_unref(context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_msgpack),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_far_keys),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
