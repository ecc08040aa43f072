/* Damaged and hostile shards: cut at every byte, every bit flipped, footers that lie with
 * their checksums made anew, reads that fail or are short, allocations that fail. What is
 * delivered at all is what was written. */
#include <errno.h>

#include "format/native_inner.h"
#include "shards.h"

static struct sqrl_context *context;
static struct sqrl_fs *fs; /* mem:// with faults */
static struct samples samples;
static struct sqrl_bytes shards[2]; /* the samples as zstd and as stored blocks */

/* --- faults --- */
static struct sqrl_fs_ops faulty_ops;
static int (*memory_read)(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                          const struct sqrl_cancel *cancel, struct sqrl_error *err);
static int fail_read, short_read; /* the n-th read from now, 0: none */

static int faulty_read(void *state, void *file, struct sqrl_range *ranges, size_t count,
                       const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    if (fail_read && --fail_read == 0)
        return sqrl_error_set_errno(err, EIO, "reading failed");
    int rc = memory_read(state, file, ranges, count, cancel, err);
    if (rc == 0 && short_read && --short_read == 0)
        ranges[count - 1].got /= 2;
    return rc;
}

static int (*memory_write)(void *fs, void *writer, const uint8_t *data, size_t size,
                           struct sqrl_error *err);
static int fail_write;

static int faulty_write(void *state, void *writer, const uint8_t *data, size_t size,
                        struct sqrl_error *err) {
    if (fail_write && --fail_write == 0)
        return sqrl_error_set_errno(err, ENOSPC, "writing failed");
    return memory_write(state, writer, data, size, err);
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    struct sqrl_file_writer *writer;
    assert_int_equal(sqrl_file_create(fs, path, true, &writer, NULL), 0);
    if (size)
        assert_int_equal(sqrl_file_write(writer, data, size, NULL), 0);
    assert_int_equal(sqrl_file_commit(writer, NULL), 0);
}

static struct sqrl_bytes read_file(const char *path) {
    struct sqrl_bytes bytes = {0};
    struct sqrl_file *file;
    assert_int_equal(sqrl_file_open(fs, path, &file, NULL), 0);
    size_t size = (size_t)sqrl_file_size(file);
    assert_int_equal(sqrl_bytes_reserve(&bytes, size, NULL), 0);
    assert_int_equal(sqrl_file_read_exact(file, 0, bytes.data, size, NULL, NULL), 0);
    bytes.size = size;
    sqrl_file_unref(file);
    return bytes;
}

static int setup(void **state) {
    static const struct sqrl_setting none[] = {{"codec", "none"}};
    struct sqrl_settings settings = {none, 1};
    struct sqrl_fs *memory;
    char *path;
    if (sqrl_context_new(NULL, &context, NULL) ||
        sqrl_fs_for_url(context, "mem://bad", NULL, &memory, &path, NULL))
        return 1;
    free(path);
    faulty_ops = *sqrl_fs_ops_of(memory);
    memory_read = faulty_ops.file_read;
    faulty_ops.file_read = faulty_read;
    memory_write = faulty_ops.writer_write;
    faulty_ops.writer_write = faulty_write;
    int rc = sqrl_fs_new(context, &faulty_ops, NULL, &fs, NULL);
    sqrl_fs_unref(memory);
    for (uint64_t i = 0; i < 12; i++)
        samples_text(&samples, i);
    if (rc || shard_write(context, fs, "zstd.sqrl", &samples, 5, NULL, NULL) ||
        shard_write(context, fs, "stored.sqrl", &samples, 5, &settings, NULL))
        return 1;
    shards[0] = read_file("zstd.sqrl");
    shards[1] = read_file("stored.sqrl");
    return 0;
}

static int teardown(void **state) {
    samples_reset(&samples);
    sqrl_bytes_reset(&shards[0]);
    sqrl_bytes_reset(&shards[1]);
    sqrl_fs_unref(fs);
    sqrl_context_unref(context);
    return 0;
}

/* Reads all of it; what came, if all came, must be the samples unless `other` allows any.
 */
static int try_bytes(const uint8_t *data, size_t size, bool other,
                     struct sqrl_error *err) {
    struct sqrl_bytes back = {0};
    struct sqrl_shard_info info;
    sqrl_error_clear(err);
    write_file("try.sqrl", data, size);
    int rc = shard_read(context, fs, "try.sqrl", &back, &info, err);
    if (rc == 0 && !other) {
        assert_int_equal(back.size, samples.bytes.size);
        assert_memory_equal(back.data, samples.bytes.data, back.size);
        assert_int_equal(info.samples, samples.count);
    }
    if (rc)
        assert_true(err->message[0] != '\0');
    sqrl_bytes_reset(&back);
    return rc;
}

static void test_cut(void **state) {
    struct sqrl_error err = {0};
    for (int which = 0; which < 2; which++) {
        for (size_t cut = 0; cut < shards[which].size; cut++) {
            int rc = try_bytes(shards[which].data, cut, false, &err);
            /* Less than a magic number may be anything. */
            if (rc != SQRL_E_TRUNCATED && !(cut < 4 && rc == SQRL_E_FORMAT))
                fail_msg("cut at %zu: %s: %s", cut, sqrl_code_name(rc), err.message);
        }
    }
}

static void test_flips(void **state) {
    struct sqrl_error err = {0};
    for (int which = 0; which < 2; which++) {
        uint64_t accepted = 0;
        for (size_t i = 0; i < shards[which].size; i++) {
            for (unsigned bit = 1; bit < 256; bit <<= 1) {
                shards[which].data[i] ^= (uint8_t)bit;
                accepted +=
                    !try_bytes(shards[which].data, shards[which].size, false, &err);
                shards[which].data[i] ^= (uint8_t)bit;
            }
        }
        /* Only the frame of sample offsets isn't needed here and so not read. */
        assert_true(accepted > 0);
        struct sqrl_native_summary summary;
        write_file("try.sqrl", shards[which].data, shards[which].size);
        assert_int_equal(
            sqrl_native_summary_read(context, fs, "try.sqrl", &summary, NULL), 0);
        uint64_t data = 0,
                 footer_at = sqrl_load_le64(shards[which].data + shards[which].size - 40);
        for (uint64_t b = 0; b < summary.blocks; b++)
            data += summary.block[b].stored_bytes;
        assert_int_equal(accepted, 8 * (footer_at - data));
        sqrl_native_summary_reset(&summary);
    }
}

static void test_damaged_block_is_named(void **state) {
    struct sqrl_error err = {0};
    for (int which = 0; which < 2; which++) {
        struct sqrl_native_summary summary;
        write_file("try.sqrl", shards[which].data, shards[which].size);
        assert_int_equal(
            sqrl_native_summary_read(context, fs, "try.sqrl", &summary, NULL), 0);
        assert_int_equal(summary.blocks, 3);
        uint64_t at = summary.block[1].offset;
        sqrl_native_summary_reset(&summary);
        shards[which].data[at + 20] ^= 4;
        assert_int_equal(try_bytes(shards[which].data, shards[which].size, false, &err),
                         SQRL_E_CORRUPT);
        shards[which].data[at + 20] ^= 4;
        char offset[40];
        snprintf(offset, sizeof offset, "at offset %llu ", (unsigned long long)at);
        assert_string_equal(err.where, "block 1");
        assert_non_null(strstr(err.message, offset));
        assert_non_null(strstr(err.message, "squirrel verify"));
    }
}

static void test_other_files(void **state) {
    struct sqrl_error err = {0};
    static const uint8_t text[] =
        "this is a text file of more than forty bytes, no shard";
    assert_int_equal(try_bytes(text, sizeof text, false, &err), SQRL_E_FORMAT);
    assert_int_equal(try_bytes(text, 10, false, &err), SQRL_E_FORMAT);
    assert_int_equal(try_bytes(text, 0, false, &err), SQRL_E_TRUNCATED);
    /* Two shards one behind the other, and one with something in front. */
    struct sqrl_bytes two = {0};
    assert_int_equal(sqrl_bytes_append(&two, shards[0].data, shards[0].size, NULL), 0);
    assert_int_equal(sqrl_bytes_append(&two, shards[0].data, shards[0].size, NULL), 0);
    assert_int_equal(try_bytes(two.data, two.size, false, &err), SQRL_E_CORRUPT);
    sqrl_bytes_reset(&two);
}

/* --- lying footers --- */

/* Makes the checksums of footer and trailer anew. */
static void seal(struct sqrl_bytes *b) {
    uint8_t *trailer = b->data + b->size - NATIVE_TRAILER_BYTES;
    uint64_t at = sqrl_load_le64(trailer);
    uint64_t size = sqrl_load_le64(trailer + 8);
    if (at <= b->size && size <= b->size - at)
        sqrl_store_le64(trailer + 16, sqrl_xxh3(b->data + at, size));
    sqrl_store_le32(trailer + 28, (uint32_t)sqrl_xxh3(trailer, 28));
}

static struct sqrl_bytes copy_of(const struct sqrl_bytes *from) {
    struct sqrl_bytes copy = {0};
    assert_int_equal(sqrl_bytes_append(&copy, from->data, from->size, NULL), 0);
    return copy;
}

/* Where record i of the block table is. */
static uint8_t *record(struct sqrl_bytes *b, size_t i) {
    /* The table is the last value of the map, before the trailer. */
    return b->data + b->size - NATIVE_TRAILER_BYTES - 3 * NATIVE_RECORD_BYTES +
           i * NATIVE_RECORD_BYTES;
}

static void test_lying_table(void **state) {
    static const uint64_t lies[] = {0,
                                    1,
                                    2,
                                    39,
                                    1u << 20,
                                    UINT32_MAX,
                                    UINT64_C(1) << 32,
                                    UINT64_C(1) << 33,
                                    INT64_MAX,
                                    UINT64_MAX - 1,
                                    UINT64_MAX};
    static const struct {
        size_t at;
        bool wide;
    } fields[] = {{0, true}, {8, true}, {16, true}, {24, false}};
    struct sqrl_error err = {0};
    for (int which = 0; which < 2; which++) {
        for (size_t r = 0; r < 3; r++) {
            for (size_t f = 0; f < SQRL_COUNT_OF(fields); f++) {
                for (size_t l = 0; l < SQRL_COUNT_OF(lies); l++) {
                    struct sqrl_bytes b = copy_of(&shards[which]);
                    uint8_t *p = record(&b, r) + fields[f].at;
                    bool same = fields[f].wide ? sqrl_load_le64(p) == lies[l]
                                               : sqrl_load_le32(p) == (uint32_t)lies[l];
                    if (fields[f].wide)
                        sqrl_store_le64(p, lies[l]);
                    else
                        sqrl_store_le32(p, (uint32_t)lies[l]);
                    seal(&b);
                    int rc = try_bytes(b.data, b.size, false, &err);
                    assert_int_equal(rc, same ? SQRL_OK : SQRL_E_CORRUPT);
                    sqrl_bytes_reset(&b);
                }
            }
        }
    }
}

/* Counts and sizes that add up, and yet are not those of the blocks. */
static void test_lying_together(void **state) {
    struct sqrl_error err = {0};
    for (int which = 0; which < 2; which++) {
        struct sqrl_bytes b = copy_of(&shards[which]);
        sqrl_store_le32(record(&b, 0) + 24, 4);
        sqrl_store_le32(record(&b, 1) + 24, 6);
        seal(&b);
        assert_int_equal(try_bytes(b.data, b.size, false, &err), SQRL_E_CORRUPT);
        assert_string_equal(err.where, "block 0");
        sqrl_bytes_reset(&b);

        b = copy_of(&shards[which]);
        uint64_t raw0 = sqrl_load_le64(record(&b, 0) + 16);
        uint64_t raw1 = sqrl_load_le64(record(&b, 1) + 16);
        sqrl_store_le64(record(&b, 0) + 16, raw0 + 1);
        sqrl_store_le64(record(&b, 1) + 16, raw1 - 1);
        seal(&b);
        assert_int_equal(try_bytes(b.data, b.size, false, &err), SQRL_E_CORRUPT);
        sqrl_bytes_reset(&b);

        /* Two blocks that change places in the table: offsets go backwards. */
        b = copy_of(&shards[which]);
        uint8_t swap[NATIVE_RECORD_BYTES];
        memcpy(swap, record(&b, 0), sizeof swap);
        memcpy(record(&b, 0), record(&b, 1), sizeof swap);
        memcpy(record(&b, 1), swap, sizeof swap);
        seal(&b);
        assert_int_equal(try_bytes(b.data, b.size, false, &err), SQRL_E_CORRUPT);
        sqrl_bytes_reset(&b);
    }
}

/* A block that is said to be a stored one, and the reverse. */
static void test_lying_flags(void **state) {
    struct sqrl_error err = {0};
    struct sqrl_bytes b = copy_of(&shards[0]);
    sqrl_store_le32(record(&b, 1) + 28, NATIVE_STORED);
    seal(&b);
    assert_int_equal(try_bytes(b.data, b.size, false, &err), SQRL_E_CORRUPT);
    sqrl_bytes_reset(&b);
    b = copy_of(&shards[1]);
    sqrl_store_le32(record(&b, 1) + 28, 0);
    seal(&b);
    assert_int_equal(try_bytes(b.data, b.size, false, &err), SQRL_OK);
    sqrl_bytes_reset(&b);
}

/* A stored frame whose framing differs, with the checksum made right: what zstd decodes
 * and what is read straight to its place would differ. */
static void test_lying_framing(void **state) {
    struct sqrl_error err = {0};
    for (size_t i = 0; i < 13; i++) {
        struct sqrl_bytes b = copy_of(&shards[1]);
        uint64_t size = sqrl_load_le64(record(&b, 0) + 8);
        b.data[i] ^= 8;
        sqrl_store_le64(record(&b, 0) + 32, sqrl_xxh3(b.data, size));
        seal(&b);
        assert_int_equal(try_bytes(b.data, b.size, false, &err), SQRL_E_CORRUPT);
        assert_string_equal(err.where, "block 0");
        sqrl_bytes_reset(&b);
    }
}

/* Every byte of footer and trailer, any value, sealed: no crash, no harm. */
static void test_any_footer(void **state) {
    struct sqrl_error err = {0};
    uint64_t at = sqrl_load_le64(shards[0].data + shards[0].size - NATIVE_TRAILER_BYTES);
    for (size_t i = at; i < shards[0].size; i++) {
        for (unsigned value = 0; value < 256; value += 1 + i % 3) {
            struct sqrl_bytes b = copy_of(&shards[0]);
            b.data[i] = (uint8_t)value;
            seal(&b);
            int rc = try_bytes(b.data, b.size, true, &err);
            assert_int_not_equal(rc, SQRL_E_NO_MEMORY);
            sqrl_bytes_reset(&b);
        }
    }
}

static void test_versions(void **state) {
    struct sqrl_error err = {0};
    struct sqrl_bytes b = copy_of(&shards[0]);
    sqrl_store_le32(b.data + b.size - 16, 2);
    seal(&b);
    assert_int_equal(try_bytes(b.data, b.size, false, &err), SQRL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "version 2"));
    sqrl_bytes_reset(&b);
}

/* --- failing reads and allocations --- */

static void test_failing_reads(void **state) {
    struct sqrl_error err = {0};
    for (int which = 0; which < 2; which++) {
        for (int n = 1;; n++) {
            fail_read = n;
            int rc = try_bytes(shards[which].data, shards[which].size, false, &err);
            fail_read = 0;
            if (rc == 0) {
                assert_int_equal(n, 5); /* one for the tail, one a block */
                break;
            }
            assert_int_equal(rc, SQRL_E_IO);
            assert_int_equal(err.os_errno, EIO);
        }
        for (int n = 1;; n++) {
            short_read = n;
            int rc = try_bytes(shards[which].data, shards[which].size, false, &err);
            short_read = 0;
            if (rc == 0)
                break;
            assert_int_equal(rc, SQRL_E_TRUNCATED);
        }
    }
}

static void test_failing_writes(void **state) {
    struct sqrl_stat stat;
    for (int n = 1;; n++) {
        struct sqrl_error err = {0};
        fail_write = n;
        int rc = shard_write(context, fs, "full.sqrl", &samples, 5, NULL, &err);
        fail_write = 0;
        if (rc == 0) {
            assert_true(n > 5); /* blocks, offsets, footer */
            break;
        }
        assert_int_equal(rc, SQRL_E_NO_SPACE);
        assert_int_equal(sqrl_fs_stat(fs, "full.sqrl", &stat, NULL), SQRL_E_NOT_FOUND);
    }
}

static void test_failing_allocations(void **state) {
    for (int which = 0; which < 2; which++) {
        write_file("try.sqrl", shards[which].data, shards[which].size);
        for (uint64_t n = 1;; n++) {
            struct sqrl_bytes back = {0};
            struct sqrl_shard_info info;
            struct sqrl_error err = {0};
            sqrl_fail_allocation(n);
            int rc = shard_read(context, fs, "try.sqrl", &back, &info, &err);
            sqrl_fail_allocation(0);
            sqrl_bytes_reset(&back);
            if (rc == 0)
                break;
            assert_int_equal(rc, SQRL_E_NO_MEMORY);
        }
    }
    for (uint64_t n = 1;; n++) {
        struct sqrl_error err = {0};
        sqrl_fail_allocation(n);
        int rc = shard_write(context, fs, "w.sqrl", &samples, 5, NULL, &err);
        sqrl_fail_allocation(0);
        if (rc == 0)
            break;
        assert_int_equal(rc, SQRL_E_NO_MEMORY);
    }
}

static void test_bad_samples(void **state) {
    struct sqrl_error err = {0};
    struct samples s = {0};
    samples_text(&s, 1);
    s.bytes.size--; /* cut */
    assert_int_equal(shard_write(context, fs, "w.sqrl", &s, 5, NULL, &err),
                     SQRL_E_TRUNCATED);
    s.bytes.data[0] = 0xc1; /* never used by MessagePack */
    assert_int_equal(shard_write(context, fs, "w.sqrl", &s, 5, NULL, &err),
                     SQRL_E_CORRUPT);
    samples_reset(&s);
    samples_text(&s, 1);
    samples_mark(&s); /* one more than there are */
    assert_int_equal(shard_write(context, fs, "w.sqrl", &s, 5, NULL, &err),
                     SQRL_E_INVALID);
    samples_reset(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_damaged_block_is_named),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_lying_table),
        cmocka_unit_test(test_lying_together),
        cmocka_unit_test(test_lying_flags),
        cmocka_unit_test(test_lying_framing),
        cmocka_unit_test(test_any_footer),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_failing_writes),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_bad_samples),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
