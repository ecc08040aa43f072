/* sqrl_payload_next and sqrl_payload_add_text, by a format of the test's own: a length
 * (32 bits, little-endian) and as many bytes are a sample {"b": binary}. */
#include "../driver/opening.h"

#include "format/payload.h"
#include "value/value.h"

static int parse_records(void *reader, struct sqrl_block *block, size_t *tail,
                         struct sqrl_error *err) {
    unsigned *calls = reader;
    size_t end = block->bytes->size, at = 0;
    uint64_t key = 0;
    ++*calls;
    int rc = sqrl_payload_add_text(block, "b", 1, &key, err);
    while (!rc && end - at >= 4) {
        uint32_t size = sqrl_load_le32(block->bytes->data + at);
        if (size == UINT32_MAX)
            return sqrl_error_set(err, SQRL_E_CORRUPT, "no length");
        if (end - at - 4 < size)
            break;
        assert_int_equal(sqrl_tape_reserve(&block->tape, 3, NULL), SQRL_OK);
        assert_int_equal(sqrl_block_reserve(block, block->count + 1, NULL), SQRL_OK);
        uint32_t map =
            sqrl_tape_push(&block->tape, SQRL_MAP, 0, 0, 1, block->tape.count + 3);
        sqrl_tape_push(&block->tape, SQRL_STRING, SQRL_NODE_ASCII, 0, 1, key);
        sqrl_tape_push(&block->tape, SQRL_BINARY, 0, 0, size, at + 4);
        block->begin[block->count++] = map;
        at += 4 + size;
    }
    *tail = at;
    return rc;
}

/* Sizes of a file's records; every byte of record i is i. */
static const uint32_t sizes[] = {3, 0, 700000, 700000, 5000000, 1, 1 << 20, 2};

static void make_content(struct sqrl_bytes *content) {
    for (size_t i = 0; i < SQRL_COUNT_OF(sizes); i++) {
        uint8_t head[4];
        sqrl_store_le32(head, sizes[i]);
        assert_int_equal(sqrl_bytes_append(content, head, 4, NULL), SQRL_OK);
        assert_int_equal(sqrl_bytes_reserve(content, sizes[i] + 1, NULL), SQRL_OK);
        memset(content->data + content->size, (int)i, sizes[i]);
        content->size += sizes[i];
    }
}

static void check_block(const struct sqrl_block *block, uint64_t first) {
    const struct sqrl_node *nodes = block->tape.nodes;
    const uint8_t *bytes = block->bytes->data;
    assert_int_equal(block->first, first);
    assert_int_equal(block->front, 1);
    for (uint32_t i = 0; i < block->count; i++) {
        uint32_t at = sqrl_map_find(nodes, block->begin[i], bytes, "b", 1);
        assert_int_not_equal(at, SQRL_NO_NODE);
        assert_int_equal(nodes[at].size, sizes[first + i]);
        for (uint32_t k = 0; k < nodes[at].size; k++)
            assert_int_equal(bytes[nodes[at].v.offset + k], first + i);
    }
}

/* Reads all; the code it ended with. */
static int read_records(const char *path, uint64_t *samples, struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_file *file = NULL;
    struct sqrl_payload payload = {0};
    struct sqrl_block *block = NULL;
    unsigned calls = 0;
    char *within = NULL;
    assert_int_equal(sqrl_fs_for_url(context, path, NULL, &fs, &within, NULL), SQRL_OK);
    assert_int_equal(sqrl_file_open(fs, within, &file, NULL), SQRL_OK);
    free(within);
    int rc = sqrl_payload_open(&payload, context, file, err);
    *samples = 0;
    do {
        if (!rc)
            rc = sqrl_payload_next(&payload, parse_records, &calls, NULL, &block, err);
        if (block) {
            check_block(block, *samples);
            *samples += block->count;
        }
        sqrl_block_unref(block);
    } while (!rc && block);
    assert_true(calls > 3 || rc); /* pieces, and larger ones for large records */
    sqrl_payload_close(&payload);
    sqrl_file_unref(file);
    sqrl_fs_unref(fs);
    return rc;
}

static void test_records(void **state) {
    struct sqrl_bytes content = {0};
    struct sqrl_error err = {0};
    uint64_t samples;
    make_content(&content);
    const char *path = put("records", content.data, content.size);
    assert_int_equal(read_records(path, &samples, &err), SQRL_OK);
    assert_int_equal(samples, SQRL_COUNT_OF(sizes));
    path = put_coded("records.zst", "zstd", content.data, content.size);
    assert_int_equal(read_records(path, &samples, &err), SQRL_OK);
    assert_int_equal(samples, SQRL_COUNT_OF(sizes));
    sqrl_bytes_reset(&content);
}

static void test_cut(void **state) {
    struct sqrl_bytes content = {0};
    char text[512];
    make_content(&content);
    for (size_t less = 1; less < 8; less++) { /* within the last two records */
        struct sqrl_error err = {0};
        uint64_t samples;
        const char *path = put("cut", content.data, content.size - less);
        int rc = read_records(path, &samples, &err);
        sqrl_error_text(&err, text, sizeof text);
        assert_int_equal(rc, less == 6 ? SQRL_OK : SQRL_E_TRUNCATED);
        assert_int_equal(samples, SQRL_COUNT_OF(sizes) - 1 - (less > 6));
        if (rc)
            assert_non_null(strstr(text, less < 6 ? "sample 7: byte 7448608: "
                                                  : "sample 6: byte 6400028: "));
    }
    sqrl_bytes_reset(&content);
}

static void test_fault(void **state) {
    static const uint8_t bad[] = {3, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
    struct sqrl_error err = {0};
    uint64_t samples;
    const char *path = put("bad", bad, sizeof bad);
    assert_int_equal(read_records(path, &samples, &err), SQRL_E_CORRUPT);
    assert_int_equal(samples, 1); /* the one before the fault */
    assert_string_equal(err.message, "no length");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_fault),
    };
    return cmocka_run_group_tests(tests, opening_setup, opening_teardown);
}
