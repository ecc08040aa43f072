/* Reads that fail or come short at any point: always an error, never fewer samples in
 * silence, and nothing leaks. */
#include <errno.h>

#include "../driver/opening.h"
#include "support/rounds.h"

/* A file system of one file, "bad://file", whose n-th read goes wrong. */
static uint8_t *content;
static size_t content_size;
static unsigned reads, bad_read; /* bad_read 0: none */
static enum { FAIL, SHORT } fault;

static int bad_open(void *fs, struct sqrl_context *in,
                    const struct sqrl_settings *settings, struct sqrl_error *err) {
    return SQRL_OK;
}

static int bad_stat(void *fs, const char *path, struct sqrl_stat *out,
                    struct sqrl_error *err) {
    *out = (struct sqrl_stat){.size = content_size};
    bool absent = strstr(path, "labels") || strstr(path, "_index");
    return absent ? sqrl_error_set(err, SQRL_E_NOT_FOUND, "no such file") : SQRL_OK;
}

static int bad_file_open(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                         struct sqrl_error *err) {
    return bad_stat(fs, path, stat, err);
}

static int bad_read_ranges(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                           const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    bool now = bad_read && ++reads >= bad_read;
    if (now && fault == FAIL)
        return sqrl_error_set_errno(err, EIO, "the disk is broken");
    for (size_t i = 0; i < count; i++) {
        struct sqrl_range *r = &ranges[i];
        size_t end = now ? content_size / 2 : content_size; /* the file has shrunk */
        r->got = r->offset < end ? SQRL_MIN(r->size, end - (size_t)r->offset) : 0;
        memcpy(r->data, content + r->offset, r->got);
    }
    return SQRL_OK;
}

static void bad_close(void *fs, void *file) {}
static void bad_fs_close(void *fs) {}

static const struct sqrl_fs_ops bad_fs = {
    .size = sizeof bad_fs,
    .api = SQRL_FS_API,
    .name = "bad",
    .schemes = "bad",
    .fs_size = 1,
    .file_size = 1,
    .open = bad_open,
    .close = bad_fs_close,
    .stat = bad_stat,
    .file_open = bad_file_open,
    .file_read = bad_read_ranges,
    .file_close = bad_close,
};

static void load_content(const char *path) {
    free(content);
    content = (uint8_t *)slurp(path, &content_size);
}

/* Lets each read go wrong in turn (under ThreadSanitizer some), until none does. */
static void check_faults(const char *url, uint64_t samples) {
    for (fault = FAIL; fault <= SHORT; fault++) {
        unsigned n = 1;
        for (;; n += EVERY) {
            for (int load = 0; load < 2; load++) {
                struct reading r;
                reads = 0;
                bad_read = n;
                int rc = read_source(url, NULL, load, &r);
                if (rc == SQRL_OK)
                    assert_int_equal(r.samples, samples);
                else if (fault == FAIL && !strstr(r.text, "the disk is broken"))
                    fail_msg("read %u: %s", n, r.text);
                if (rc && r.samples > samples)
                    fail_msg("read %u: %llu samples", n, (unsigned long long)r.samples);
                reading_reset(&r);
            }
            if (reads < n)
                break;
        }
        assert_true(n > 3); /* it did read, and each read was tried */
    }
}

static void test_store(void **state) {
    struct sqrl_bytes bytes = {0};
    for (int i = 0; i < 3000; i++) {
        uint8_t noise[300];
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)(sqrl_mix64((uint64_t)i * 300 + k) >> 7);
        assert_int_equal(sqrl_msgpack_put_map(&bytes, 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(&bytes, "noise", 5, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_binary(&bytes, noise, sizeof noise, NULL),
                         SQRL_OK);
    }
    load_content(put_coded("x.gz", "gzip", bytes.data, bytes.size));
    check_faults("bad://file.gz", 3000);
    load_content(put("x.msgpack", bytes.data, bytes.size));
    check_faults("bad://file.msgpack", 3000);
    sqrl_bytes_reset(&bytes);
}

static void test_lines(void **state) {
    char *text = malloc(3100000), *p = text;
    assert_non_null(text);
    for (int i = 0; i < 30000; i++)
        p += sprintf(p, "{\"i\": %d, \"x\": \"%016llx%016llx%016llx\"}\n", i,
                     (unsigned long long)sqrl_mix64((uint64_t)i),
                     (unsigned long long)sqrl_mix64((uint64_t)i + 1),
                     (unsigned long long)sqrl_mix64((uint64_t)i + 2));
    load_content(put("x.jsonl", text, (size_t)(p - text)));
    check_faults("bad://file.jsonl", 30000);
    load_content(put_coded("x.jsonl.gz", "gzip", text, (size_t)(p - text)));
    check_faults("bad://file.jsonl.gz", 30000);
    free(text);
}

static void test_idx(void **state) {
    size_t size = 16 + 3000 * 784;
    uint8_t *bytes = malloc(size);
    static const uint8_t head[] = {0, 0, 8, 3, 0, 0, 0xb, 0xb8, 0, 0, 0, 28, 0, 0, 0, 28};
    assert_non_null(bytes);
    memcpy(bytes, head, sizeof head);
    for (size_t i = 16; i < size; i++)
        bytes[i] = (uint8_t)(sqrl_mix64(i) >> 9);
    load_content(put("x.idx", bytes, size));
    check_faults("bad://file.idx", 3000);
    load_content(put_coded("x.idx.gz", "gzip", bytes, size));
    check_faults("bad://file.idx.gz", 3000);
    free(bytes);
}

static int setup(void **state) {
    return opening_setup(state) || sqrl_fs_register(context, &bad_fs, NULL);
}

static int teardown(void **state) {
    free(content);
    return opening_teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_idx),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
