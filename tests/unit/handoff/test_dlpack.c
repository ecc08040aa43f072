/* Columns as DLPack tensors. */
#include "handoff_test.h"

static int open_offsets(void **state) {
    return fixture_open(state, SQRL_RAGGED_OFFSETS);
}

static void expect_tensor(const struct sqrl_dl_tensor *t, int code, int bits,
                          int64_t length) {
    assert_int_equal(t->device.device_type, 1);
    assert_int_equal(t->dtype.code, code);
    assert_int_equal(t->dtype.bits, bits);
    assert_int_equal(t->dtype.lanes, 1);
    assert_int_equal(t->ndim, 1);
    assert_int_equal(t->shape[0], length);
    assert_int_equal(t->strides[0], 1);
    assert_int_equal(t->byte_offset, 0);
}

static void dense_columns(void **state) {
    static const struct {
        const char *name;
        int code, bits;
    } wanted[] = {{"i", 0, 64}, {"f", 2, 64}, {"b", 6, 8}};
    struct sqrl_batch *batch = first_batch(*state);
    struct sqrl_error err;
    for (size_t i = 0; i < 3; i++) {
        struct sqrl_dl_managed *tensor = NULL;
        uint32_t column = column_of(batch, wanted[i].name);
        assert_int_equal(sqrl_dlpack_export(batch, column, SQRL_PART_DATA, &tensor, &err),
                         0);
        expect_tensor(&tensor->tensor, wanted[i].code, wanted[i].bits, 2);
        assert_ptr_equal(tensor->tensor.data, batch->column[column].data);
        tensor->deleter(tensor);
    }
    sqrl_batch_unref(batch);
}

static void tensors_outlive_the_batch(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct sqrl_dl_managed_versioned *tensor = NULL;
    struct sqrl_error err;
    assert_int_equal(sqrl_dlpack_export_versioned(batch, column_of(batch, "i"),
                                                  SQRL_PART_DATA, &tensor, &err),
                     0);
    sqrl_batch_unref(batch);
    assert_int_equal(tensor->version.major, 1);
    assert_int_equal(tensor->flags, 0);
    expect_tensor(&tensor->tensor, 0, 64, 2);
    assert_int_equal(((int64_t *)tensor->tensor.data)[1], 2);
    tensor->deleter(tensor);
}

static void parts(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct sqrl_dl_managed *tensor = NULL;
    struct sqrl_error err;
    uint32_t r = column_of(batch, "r"), n = column_of(batch, "n"),
             i = column_of(batch, "i");
    assert_int_equal(sqrl_dlpack_export(batch, r, SQRL_PART_OFFSETS, &tensor, &err), 0);
    expect_tensor(&tensor->tensor, 0, 64, 3);
    assert_int_equal(((int64_t *)tensor->tensor.data)[1], 3);
    tensor->deleter(tensor);
    assert_int_equal(sqrl_dlpack_export(batch, r, SQRL_PART_DATA, &tensor, &err), 0);
    expect_tensor(&tensor->tensor, 0, 64, 3);
    tensor->deleter(tensor);
    assert_int_equal(sqrl_dlpack_export(batch, n, SQRL_PART_VALID, &tensor, &err), 0);
    expect_tensor(&tensor->tensor, 6, 8, 2);
    assert_int_equal(((uint8_t *)tensor->tensor.data)[0], 1);
    assert_int_equal(((uint8_t *)tensor->tensor.data)[1], 0);
    tensor->deleter(tensor);
    assert_int_equal(sqrl_dlpack_export(batch, i, SQRL_PART_OFFSETS, &tensor, &err),
                     SQRL_E_NOT_FOUND);
    assert_null(tensor);
    assert_int_equal(sqrl_dlpack_export(batch, 99, SQRL_PART_DATA, &tensor, &err),
                     SQRL_E_NOT_FOUND);
    sqrl_batch_unref(batch);
}

static void failing_allocation(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct sqrl_dl_managed *tensor = NULL;
    struct sqrl_error err;
    sqrl_fail_allocation(1);
    int rc = sqrl_dlpack_export(batch, 0, SQRL_PART_DATA, &tensor, &err);
    sqrl_fail_allocation(0);
    assert_int_equal(rc, SQRL_E_NO_MEMORY);
    assert_null(tensor);
    sqrl_batch_unref(batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(dense_columns, open_offsets, fixture_close),
        cmocka_unit_test_setup_teardown(tensors_outlive_the_batch, open_offsets,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(parts, open_offsets, fixture_close),
        cmocka_unit_test_setup_teardown(failing_allocation, open_offsets, fixture_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
