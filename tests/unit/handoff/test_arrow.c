/* Batches and plans through the Arrow C interfaces, looked at as a consumer does. */
#include "handoff_test.h"

static int open_offsets(void **state) {
    return fixture_open(state, SQRL_RAGGED_OFFSETS);
}
static int open_padded(void **state) {
    return fixture_open(state, SQRL_RAGGED_PAD);
}

static void expect_format(const struct ArrowSchema *schema, const char *name,
                          const char *format) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (strcmp(schema->children[i]->name, name) == 0) {
            assert_string_equal(schema->children[i]->format, format);
            return;
        }
    }
    fail_msg("no column %s", name);
}

static void schema_names_every_column(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct ArrowSchema schema;
    struct sqrl_error err;
    assert_int_equal(sqrl_arrow_export_batch(batch, &schema, NULL, &err), SQRL_OK);
    assert_string_equal(schema.format, "+s");
    assert_int_equal(schema.n_children, 6);
    expect_format(&schema, "i", "l");
    expect_format(&schema, "f", "g");
    expect_format(&schema, "b", "C");
    expect_format(&schema, "s", "U");
    expect_format(&schema, "r", "+L");
    expect_format(&schema, "n", "l");
    schema.release(&schema);
    assert_null(schema.release);
    sqrl_batch_unref(batch);
}

static void bool_columns_say_so(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct ArrowSchema schema;
    struct sqrl_error err;
    assert_int_equal(sqrl_arrow_export_batch(batch, &schema, NULL, &err), SQRL_OK);
    /* one pair: int32 1, int32 10 "sqrl.dtype", int32 4 "bool" */
    const char wanted[] = "\1\0\0\0\12\0\0\0sqrl.dtype\4\0\0\0bool";
    const char *metadata = schema.children[column_of(batch, "b")]->metadata;
    assert_memory_equal(metadata, wanted, sizeof wanted - 1);
    schema.release(&schema);
    sqrl_batch_unref(batch);
}

static void arrays_point_into_the_batch(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct ArrowArray array;
    struct sqrl_error err;
    assert_int_equal(sqrl_arrow_export_batch(batch, NULL, &array, &err), SQRL_OK);
    const struct sqrl_column *column = batch->column;
    uint32_t i = column_of(batch, "i"), s = column_of(batch, "s"),
             r = column_of(batch, "r");
    assert_ptr_equal(array.children[i]->buffers[1], column[i].data);
    assert_ptr_equal(array.children[s]->buffers[1], column[s].offsets);
    assert_ptr_equal(array.children[s]->buffers[2], column[s].data);
    assert_ptr_equal(array.children[r]->children[0]->buffers[1], column[r].data);
    sqrl_batch_unref(batch); /* the array holds it */
    assert_int_equal(array.length, 2);
    const int64_t *numbers = array.children[i]->buffers[1];
    assert_int_equal(numbers[0], 1);
    assert_int_equal(numbers[1], 2);
    const int64_t *offsets = array.children[r]->buffers[1];
    assert_int_equal(offsets[1], 3);
    assert_int_equal(offsets[2], 3);
    assert_int_equal(array.children[r]->children[0]->length, 3);
    array.release(&array);
    assert_null(array.release);
}

static void validity_is_a_bitmap(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct ArrowArray array;
    struct sqrl_error err;
    assert_int_equal(sqrl_arrow_export_batch(batch, NULL, &array, &err), SQRL_OK);
    const struct ArrowArray *n = array.children[column_of(batch, "n")];
    assert_int_equal(n->null_count, 1);
    assert_int_equal(((const uint8_t *)n->buffers[0])[0], 1); /* row 0 yes, row 1 no */
    assert_null(array.children[column_of(batch, "i")]->buffers[0]);
    array.release(&array);
    sqrl_batch_unref(batch);
}

static void a_child_may_be_moved_out(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct ArrowSchema schema, moved_schema;
    struct ArrowArray array, moved;
    struct sqrl_error err;
    assert_int_equal(sqrl_arrow_export_batch(batch, &schema, &array, &err), SQRL_OK);
    uint32_t r = column_of(batch, "r");
    sqrl_batch_unref(batch);
    moved_schema = *schema.children[r];
    schema.children[r]->release = NULL;
    moved = *array.children[r];
    array.children[r]->release = NULL;
    schema.release(&schema);
    array.release(&array);
    assert_string_equal(moved_schema.format, "+L");
    assert_int_equal(((const int64_t *)moved.children[0]->buffers[1])[2], 3);
    moved_schema.release(&moved_schema);
    moved.release(&moved);
}

static void padded_columns_bring_their_shapes(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct sqrl_error err;
    assert_int_equal(sqrl_arrow_export_batch(batch, &schema, &array, &err), SQRL_OK);
    expect_format(&schema, "r", "+w:3");
    assert_int_equal(schema.n_children, 7);
    assert_string_equal(schema.children[6]->name, "r.shape");
    const int64_t *shapes = array.children[6]->children[0]->buffers[1];
    assert_int_equal(shapes[0], 3);
    assert_int_equal(shapes[1], 0);
    schema.release(&schema);
    array.release(&array);
    sqrl_batch_unref(batch);
}

static void a_plan_is_a_stream(void **state) {
    struct fixture *f = *state;
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct sqrl_error err;
    int64_t rows = 0, sum = 0;
    assert_int_equal(sqrl_arrow_export_plan(f->plan, &stream, &err), SQRL_OK);
    for (int i = 0; i < 2; i++) { /* the schema may be asked for at any time */
        assert_int_equal(stream.get_schema(&stream, &schema), 0);
        expect_format(&schema, "i", "l");
        schema.release(&schema);
    }
    for (;;) {
        assert_int_equal(stream.get_next(&stream, &array), 0);
        if (array.release == NULL)
            break;
        const int64_t *numbers = array.children[0]->buffers[1];
        for (int64_t i = 0; i < array.length; i++)
            sum += numbers[i];
        rows += array.length;
        array.release(&array);
    }
    assert_int_equal(rows, 3);
    assert_int_equal(sum, 1 + 2 + 3);
    assert_int_equal(stream.get_next(&stream, &array), 0);
    assert_null(array.release);
    stream.release(&stream);
    assert_null(stream.release);
}

static void a_stream_reports_a_file_that_went(void **state) {
    struct fixture *f = *state;
    struct ArrowArrayStream stream;
    struct ArrowArray array;
    struct sqrl_error err;
    unlink(f->path);
    int code = sqrl_arrow_export_plan(f->plan, &stream, &err);
    if (code == SQRL_OK) {
        assert_int_not_equal(stream.get_next(&stream, &array), 0);
        assert_non_null(strstr(stream.get_last_error(&stream), "rows.jsonl"));
        stream.release(&stream);
    } else {
        assert_int_equal(code, SQRL_E_NOT_FOUND);
    }
}

static void samples_are_no_stream(void **state) {
    struct fixture *f = *state;
    struct ArrowArrayStream stream;
    struct sqrl_plan *plan = NULL;
    struct sqrl_error err;
    assert_int_equal(sqrl_plan_source(f->source, &plan, &err), SQRL_OK);
    assert_int_equal(sqrl_arrow_export_plan(plan, &stream, &err), SQRL_E_INVALID);
    assert_null(stream.release);
    sqrl_plan_unref(plan);
}

/* Every allocation fails once; nothing leaks (the sanitizer looks), nothing is half made.
 */
static void failing_allocations(void **state) {
    struct sqrl_batch *batch = first_batch(*state);
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        struct ArrowSchema schema;
        struct ArrowArray array;
        struct sqrl_error err;
        sqrl_fail_allocation(n);
        int rc = sqrl_arrow_export_batch(batch, &schema, &array, &err);
        sqrl_fail_allocation(0);
        if (rc == SQRL_OK) {
            schema.release(&schema);
            array.release(&array);
            break;
        }
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
        assert_null(schema.release);
        assert_null(array.release);
        failures++;
    }
    assert_true(failures > 20);
    sqrl_batch_unref(batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(schema_names_every_column, open_offsets,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(bool_columns_say_so, open_offsets, fixture_close),
        cmocka_unit_test_setup_teardown(arrays_point_into_the_batch, open_offsets,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(validity_is_a_bitmap, open_offsets,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_child_may_be_moved_out, open_offsets,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(padded_columns_bring_their_shapes, open_padded,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_plan_is_a_stream, open_offsets, fixture_close),
        cmocka_unit_test_setup_teardown(a_stream_reports_a_file_that_went, open_offsets,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(samples_are_no_stream, open_offsets,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(failing_allocations, open_offsets,
                                        fixture_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
