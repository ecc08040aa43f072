/* The native shard: what is written is read back, and other programs read it too: the
 * zstd and lz4 commands give the bare payload and find nothing wrong. */
#include <unistd.h>

#include "format/native_inner.h"
#include "shards.h"

static struct sqrl_context *context;
static struct sqrl_fs *fs;
static char directory[] = "/tmp/sqrl-native-XXXXXX";

static int setup(void **state) {
    char *path;
    if (!mkdtemp(directory) || sqrl_context_new(NULL, &context, NULL))
        return 1;
    int rc = sqrl_fs_for_url(context, directory, NULL, &fs, &path, NULL);
    free(path);
    return rc;
}

static int run(const char *format, ...) {
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

static int teardown(void **state) {
    sqrl_fs_unref(fs);
    sqrl_context_unref(context);
    return run("rm -r %s", directory);
}

static char *at(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void check_round_trip(const struct samples *s, uint32_t per_block,
                             const struct sqrl_settings *settings, const char *tool) {
    struct sqrl_error err = {0};
    struct sqrl_bytes back = {0};
    struct sqrl_shard_info info;
    if (shard_write(context, fs, at("a.sqrl"), s, per_block, settings, &err) ||
        shard_read(context, fs, at("a.sqrl"), &back, &info, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(info.samples, s->count);
    assert_int_equal(info.blocks, (s->count + per_block - 1) / per_block);
    assert_int_equal(info.raw_bytes, s->bytes.size);
    assert_int_equal(back.size, s->bytes.size);
    if (back.size)
        assert_memory_equal(back.data, s->bytes.data, back.size);
    sqrl_bytes_reset(&back);
    if (run("command -v %s >/dev/null", tool) != 0) {
        print_message("skipped: there is no command %s\n", tool);
        return;
    }
    FILE *raw = fopen(at("raw"), "wb");
    assert_non_null(raw);
    if (s->bytes.size)
        assert_int_equal(fwrite(s->bytes.data, s->bytes.size, 1, raw), 1);
    fclose(raw);
    assert_int_equal(run("%s -q -t < %s/a.sqrl", tool, directory), 0);
    assert_int_equal(
        run("%s -q -dc < %s/a.sqrl | cmp - %s/raw", tool, directory, directory), 0);
}

static const struct sqrl_setting lz4[] = {{"codec", "lz4"}}, none[] = {{"codec", "none"}},
                                 best[] = {{"codec", "zstd"}, {"level", "19"}};
static const struct {
    struct sqrl_settings settings;
    const char *tool;
} modes[] = {
    {{NULL, 0}, "zstd"}, {{lz4, 1}, "lz4"}, {{none, 1}, "zstd"}, {{best, 2}, "zstd"}};

static void test_text(void **state) {
    struct samples s = {0};
    for (uint64_t i = 0; i < 3000; i++)
        samples_text(&s, i);
    for (size_t m = 0; m < SQRL_COUNT_OF(modes); m++) {
        check_round_trip(&s, 3000, &modes[m].settings, modes[m].tool);
        check_round_trip(&s, 700, &modes[m].settings, modes[m].tool);
    }
    samples_reset(&s);
}

static void test_noise(void **state) {
    struct samples s = {0};
    for (uint64_t i = 0; i < 600; i++)
        samples_noise(&s, i, 32);
    samples_noise(&s, 600, 2300); /* more pieces than fit on the stack */
    for (size_t m = 0; m < SQRL_COUNT_OF(modes); m++) {
        check_round_trip(&s, 300, &modes[m].settings, modes[m].tool);
        check_round_trip(&s, 7, &modes[m].settings, modes[m].tool);
    }
    samples_reset(&s);
}

static void test_small(void **state) {
    struct samples s = {0};
    for (size_t m = 0; m < SQRL_COUNT_OF(modes); m++)
        check_round_trip(&s, 1, &modes[m].settings, modes[m].tool);
    samples_text(&s, 1);
    for (size_t m = 0; m < SQRL_COUNT_OF(modes); m++)
        check_round_trip(&s, 1, &modes[m].settings, modes[m].tool);
    samples_text(&s, 2);
    for (size_t m = 0; m < SQRL_COUNT_OF(modes); m++)
        check_round_trip(&s, 1, &modes[m].settings, modes[m].tool);
    samples_reset(&s);
}

/* --- many threads load from one reader --- */

struct loader {
    pthread_t thread;
    void *reader;
    uint64_t blocks, start;
    uint64_t sum; /* of the blocks' checksums */
};

static void *load_all(void *arg) {
    struct loader *loader = arg;
    for (uint64_t i = 0; i < loader->blocks; i++) {
        struct sqrl_block *block;
        uint64_t b = (loader->start + i * 3) % loader->blocks;
        if (sqrl_format_native.load(loader->reader, b, NULL, &block, NULL))
            return NULL;
        loader->sum += sqrl_xxh3(block->bytes->data, block->bytes->size) * (b + 1);
        sqrl_block_unref(block);
    }
    return NULL;
}

static void test_threads(void **state) {
    enum { THREADS = 4 };
    const struct sqrl_format_ops *ops = &sqrl_format_native;
    static const struct sqrl_settings nothing = {NULL, 0};
    struct samples s = {0};
    for (uint64_t i = 0; i < 300; i++)
        i % 2 ? samples_text(&s, i) : samples_noise(&s, i, 40);
    assert_int_equal(shard_write(context, fs, at("t.sqrl"), &s, 8, NULL, NULL), 0);
    uint64_t expected = 0;
    for (uint32_t b = 0; b * 8 < s.count; b++) {
        size_t from = s.begin[b * 8];
        size_t to = b * 8 + 8 < s.count ? s.begin[b * 8 + 8] : s.bytes.size;
        expected += sqrl_xxh3(s.bytes.data + from, to - from) * (b + 1);
    }
    struct sqrl_file *file;
    assert_int_equal(sqrl_file_open(fs, at("t.sqrl"), &file, NULL), 0);
    struct sqrl_reader_args args = {
        .context = context, .fs = fs, .file = file, .settings = &nothing};
    struct sqrl_shard_info info;
    void *reader = calloc(1, ops->reader_size);
    assert_int_equal(ops->open(reader, &args, &info, NULL), 0);
    assert_int_equal(info.blocks, 38); /* not a multiple of 3 */
    struct loader loaders[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        loaders[i] = (struct loader){.reader = reader, .blocks = info.blocks, .start = i};
        assert_int_equal(pthread_create(&loaders[i].thread, NULL, load_all, &loaders[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(loaders[i].thread, NULL), 0);
        assert_int_equal(loaders[i].sum, expected);
    }
    ops->close(reader);
    free(reader);
    sqrl_file_unref(file);
    samples_reset(&s);
}

/* What is compressed and what is stored, by what shrinks. */
static void test_choice(void **state) {
    struct samples s = {0};
    struct sqrl_native_summary summary;
    for (uint64_t i = 0; i < 700; i++)
        samples_noise(&s, i, 32);
    assert_int_equal(shard_write(context, fs, at("n.sqrl"), &s, 350, NULL, NULL), 0);
    assert_int_equal(sqrl_native_summary_read(context, fs, at("n.sqrl"), &summary, NULL),
                     0);
    for (uint64_t b = 0; b < summary.blocks; b++) /* a header, and 3 bytes each 128 KiB */
        assert_in_range(summary.block[b].stored_bytes - summary.block[b].raw_bytes, 13,
                        40);
    sqrl_native_summary_reset(&summary);
    samples_reset(&s);
    for (uint64_t i = 0; i < 3000; i++)
        samples_text(&s, i);
    assert_int_equal(shard_write(context, fs, at("n.sqrl"), &s, 3000, NULL, NULL), 0);
    assert_int_equal(sqrl_native_summary_read(context, fs, at("n.sqrl"), &summary, NULL),
                     0);
    assert_true(summary.file_bytes < s.bytes.size / 2);
    assert_true(summary.has_schema);
    assert_int_equal(summary.schema.count, 2);
    sqrl_native_summary_reset(&summary);
    samples_reset(&s);
}

/* Too many fields for a schema: the shard is written all the same, without one. */
static void test_many_fields(void **state) {
    struct samples s = {0};
    for (uint32_t i = 0; i < SQRL_MAX_FIELDS + 10; i++) {
        char name[16];
        int n = snprintf(name, sizeof name, "f%u", i);
        samples_mark(&s);
        assert_int_equal(sqrl_msgpack_put_map(&s.bytes, 1, NULL), 0);
        assert_int_equal(sqrl_msgpack_put_string(&s.bytes, name, (size_t)n, NULL), 0);
        assert_int_equal(sqrl_msgpack_put_int(&s.bytes, i, NULL), 0);
    }
    struct sqrl_native_summary summary;
    check_round_trip(&s, 1000, NULL, "zstd");
    assert_int_equal(sqrl_native_summary_read(context, fs, at("a.sqrl"), &summary, NULL),
                     0);
    assert_false(summary.has_schema);
    assert_int_equal(summary.samples, SQRL_MAX_FIELDS + 10);
    sqrl_native_summary_reset(&summary);
    samples_reset(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),   cmocka_unit_test(test_noise),
        cmocka_unit_test(test_small),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_choice), cmocka_unit_test(test_many_fields),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
