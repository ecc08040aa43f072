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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_small),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
