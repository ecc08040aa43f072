/* Tapes grow and empty, byte strings grow, keys are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "value/value.h"

static void tape_grows_and_keeps_its_nodes(void **state) {
    (void)state;
    struct sqrl_tape tape = {0};
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(sqrl_tape_reserve(&tape, 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_tape_push(&tape, SQRL_EXT, 0xa5, 0xbeef, 0xfeedface, i), i);
    }
    assert_int_equal(tape.count, 10000);
    assert_true(tape.capacity < 20000);
    for (uint32_t i = 0; i < 10000; i++) {
        const struct sqrl_node *n = &tape.nodes[i];
        assert_int_equal(n->type, SQRL_EXT);
        assert_int_equal(n->flags, 0xa5);
        assert_int_equal(n->aux, 0xbeef);
        assert_int_equal(n->size, 0xfeedface);
        assert_int_equal(n->v.u, i);
    }
    struct sqrl_error err;
    assert_int_equal(sqrl_tape_grow(&tape, UINT32_MAX, &err), SQRL_E_LIMIT);
    assert_int_equal(tape.count, 10000);
    sqrl_fail_allocation(1);
    assert_int_equal(sqrl_tape_grow(&tape, 1u << 20, &err), SQRL_E_NO_MEMORY);
    sqrl_fail_allocation(0);
    assert_int_equal(tape.nodes[9999].v.u, 9999);
    sqrl_tape_reset(&tape);
    assert_null(tape.nodes);
    assert_int_equal(tape.count, 0);
    assert_int_equal(tape.capacity, 0);
    sqrl_tape_reset(&tape);
}

static void byte_strings_grow(void **state) {
    (void)state;
    struct sqrl_bytes b = {0};
    struct sqrl_error err;
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(sqrl_bytes_append(&b, "0123456", 7, &err), SQRL_OK);
    assert_int_equal(b.size, 7000);
    for (unsigned i = 0; i < 7000; i++)
        assert_int_equal(b.data[i], '0' + i % 7);
    assert_int_equal(sqrl_bytes_append(&b, NULL, 0, &err), SQRL_OK);
    assert_int_equal(sqrl_bytes_reserve(&b, SIZE_MAX, &err), SQRL_E_LIMIT);
    assert_int_equal(sqrl_bytes_reserve(&b, SIZE_MAX / 2, &err), SQRL_E_LIMIT);
    sqrl_fail_allocation(1);
    assert_int_equal(sqrl_bytes_reserve(&b, 1 << 20, &err), SQRL_E_NO_MEMORY);
    sqrl_fail_allocation(0);
    assert_int_equal(b.size, 7000);
    sqrl_bytes_reset(&b);
    assert_null(b.data);
    sqrl_bytes_reset(&b);
}

static void keys_are_found_and_the_last_counts(void **state) {
    (void)state;
    /* {"a": 1, "bc": [2, {"a": 3}], 7: 4, b"d": 5, "a": {"x": 6}, "": 8} */
    static const char BYTES[] = "\x86\xa1"
                                "a\x01\xa2"
                                "bc\x92\x02\x81\xa1"
                                "a\x03\x07\x04"
                                "\xc4\x01"
                                "d\x05\xa1"
                                "a\x81\xa1x\x06\xa0\x08";
    const uint8_t *bytes = (const uint8_t *)BYTES;
    struct sqrl_tape tape = {0};
    size_t offset = 0;
    assert_int_equal(
        sqrl_msgpack_decode(&tape, bytes, sizeof BYTES - 1, &offset, NULL, NULL),
        SQRL_OK);
    uint32_t a = sqrl_map_find(tape.nodes, 0, bytes, "a", 1);
    assert_int_equal(tape.nodes[a].type, SQRL_MAP);
    uint32_t x = sqrl_map_find(tape.nodes, a, bytes, "x", 1);
    assert_int_equal(tape.nodes[x].v.i, 6);
    uint32_t list = sqrl_map_find(tape.nodes, 0, bytes, "bc", 2);
    assert_int_equal(tape.nodes[list].type, SQRL_ARRAY);
    assert_int_equal(tape.nodes[list].size, 2);
    assert_int_equal(tape.nodes[sqrl_map_find(tape.nodes, 0, bytes, "d", 1)].v.i, 5);
    assert_int_equal(tape.nodes[sqrl_map_find(tape.nodes, 0, bytes, "", 0)].v.i, 8);
    assert_int_equal(sqrl_map_find(tape.nodes, 0, bytes, "b", 1), SQRL_NO_NODE);
    assert_int_equal(sqrl_map_find(tape.nodes, 0, bytes, "x", 1), SQRL_NO_NODE);
    assert_int_equal(sqrl_map_find(tape.nodes, list, bytes, "a", 1), SQRL_NO_NODE);
    sqrl_tape_reset(&tape);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tape_grows_and_keeps_its_nodes),
        cmocka_unit_test(byte_strings_grow),
        cmocka_unit_test(keys_are_found_and_the_last_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
