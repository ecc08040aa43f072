/* Sources and packs on other file systems than the plain local one: behind shims, which
 * have the abilities of what they wrap, and on ones that fail on order. */
#include "opening.h"

#include "driver/driver.h"
#include "driver/driver_sqrl.h"
#include "format/commit.h"
#include "support/fault_fs.h"

/* "fault://<temporary directory>/<name>" */
static const char *fault_at(const char *name) {
    static char url[300];
    snprintf(url, sizeof url, "fault://%s", at(name));
    return url;
}

static int pack_numbers(const char *url, struct sqrl_pack_options options, uint64_t count,
                        struct sqrl_error *err) {
    struct sqrl_packer *packer = NULL;
    options.size = sizeof options;
    int rc = sqrl_packer_open(context, url, &options, &packer, err);
    if (rc)
        return rc;
    for (uint64_t i = 0; !rc && i < count; i++) {
        struct sqrl_bytes *bytes = sqrl_packer_bytes(packer);
        assert_int_equal(sqrl_msgpack_put_map(bytes, 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_string(bytes, "i", 1, NULL), SQRL_OK);
        assert_int_equal(sqrl_msgpack_put_uint(bytes, i, NULL), SQRL_OK);
        rc = sqrl_packer_accept(packer, err);
    }
    if (!rc)
        return sqrl_packer_finish(packer, NULL, err);
    sqrl_packer_abandon(packer);
    return rc;
}

static void expect_numbers(const char *url, uint64_t count) {
    struct reading r;
    if (read_source(url, NULL, false, &r))
        fail_msg("%s: %s", url, r.text);
    assert_int_equal(r.samples, count);
    const char *line = (const char *)r.lines.data;
    for (uint64_t i = 0; i < count; i++) {
        char want[40];
        int n = snprintf(want, sizeof want, "{\"i\": %llu}\n", (unsigned long long)i);
        if (strncmp(line, want, (size_t)n) != 0)
            fail_msg("%s: sample %llu is \"%.30s\"", url, (unsigned long long)i, line);
        line += n;
    }
    reading_reset(&r);
}

static struct sqrl_fs *retrying(const char *url, char **path) {
    struct sqrl_fs *inner = NULL, *fs = NULL;
    assert_int_equal(sqrl_fs_for_url(context, url, NULL, &inner, path, NULL), SQRL_OK);
    assert_int_equal(sqrl_fs_retry(inner, 3, 1, &fs, NULL), SQRL_OK);
    sqrl_fs_unref(inner);
    return fs;
}

/* Commits are listed where the wrapped file system can: `_sqrl/list` is not needed. */
static void test_retry_lists(void **state) {
    struct sqrl_pack_options options = {.samples_per_shard = 40};
    assert_int_equal(pack_numbers("mem://set", options, 100, NULL), SQRL_OK);
    char *path = NULL;
    struct sqrl_fs *fs = retrying("mem://set", &path);
    assert_int_equal(sqrl_fs_remove(fs, "set/_sqrl/list", NULL), SQRL_OK);
    struct sqrl_commits commits;
    assert_int_equal(sqrl_commits_read(context, fs, path, &commits, NULL), SQRL_OK);
    assert_int_equal(commits.count, 1);
    assert_int_equal(commits.items[0].samples, 100);
    assert_int_equal(commits.items[0].shard_count, 3);
    sqrl_commits_reset(&commits);
    sqrl_fs_unref(fs);
    free(path);
}

/* Local shards are compared with their commits behind a shim, too. */
static void test_retry_compares(void **state) {
    struct sqrl_pack_options options = {.samples_per_shard = 10, .prefix = "p"};
    assert_int_equal(pack_numbers(at("compared"), options, 30, NULL), SQRL_OK);
    char *path = NULL;
    struct sqrl_fs *fs = retrying(at("compared"), &path);
    static const struct sqrl_settings none = {NULL, 0};
    struct sqrl_driver_args args = {context, fs, path, path, {.directory = true}, &none};
    struct sqrl_shard_list list = {.fs = fs, .prefix = ""};
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_driver_native.open(&args, &list, &err), SQRL_OK);
    assert_int_equal(list.count, 3);
    sqrl_shard_list_reset(&list);
    assert_int_equal(remove(at("compared/p-000001.sqrl")), 0);
    list = (struct sqrl_shard_list){.fs = fs, .prefix = ""};
    assert_int_equal(sqrl_driver_native.open(&args, &list, &err), SQRL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "p-000001.sqrl"));
    sqrl_shard_list_reset(&list);
    sqrl_fs_unref(fs);
    free(path);
}

static void test_fault_well(void **state) {
    fault_fs_shared = (struct fault_plan){0};
    struct sqrl_pack_options options = {.samples_per_shard = 100};
    assert_int_equal(pack_numbers(fault_at("well"), options, 1000, NULL), SQRL_OK);
    expect_numbers(fault_at("well"), 1000);
    expect_numbers(at("well"), 1000);
    assert_int_equal(fault_fs_shared.commits, 10 + 1 + 1); /* shards, commit, list */
    options = (struct sqrl_pack_options){.format = "jsonl"};
    assert_int_equal(pack_numbers(fault_at("well.jsonl"), options, 77, NULL), SQRL_OK);
    expect_numbers(at("well.jsonl"), 77);
    /* What is there is named through the shim. */
    struct reading r;
    assert_int_equal(read_all(fault_at("wel"), NULL, NULL, &r), SQRL_E_NOT_FOUND);
    assert_non_null(strstr(r.text, "did you mean \"well\"?"));
    reading_reset(&r);
}

/* Whichever call fails: the error is told, and the old data stay as they are. */
static void test_fault_packing(void **state) {
    unsigned *const calls[] = {&fault_fs_shared.fail_create, &fault_fs_shared.fail_write,
                               &fault_fs_shared.fail_commit, &fault_fs_shared.fail_stat,
                               &fault_fs_shared.fail_list};
    struct sqrl_pack_options old = {.samples_per_shard = 50};
    fault_fs_shared = (struct fault_plan){0};
    assert_int_equal(pack_numbers(fault_at("kept"), old, 200, NULL), SQRL_OK);
    unsigned failures = 0;
    for (size_t i = 0; i < SQRL_COUNT_OF(calls); i++) {
        for (unsigned n = 1; n <= 3; n++) {
            struct sqrl_pack_options options = {
                .samples_per_shard = 100, .append = true, .overwrite = false};
            struct sqrl_error err = {0};
            fault_fs_shared = (struct fault_plan){0};
            *calls[i] = n;
            int rc = pack_numbers(fault_at("kept"), options, 300, &err);
            fault_fs_shared = (struct fault_plan){0};
            if (rc == SQRL_OK) { /* a call that packing can do without: start anew */
                assert_int_equal(run("rm -r %s", at("kept")), 0);
                assert_int_equal(pack_numbers(fault_at("kept"), old, 200, NULL), SQRL_OK);
                continue;
            }
            failures++;
            assert_int_equal(rc, SQRL_E_IO);
            assert_non_null(strstr(err.message, "failed on order"));
            if (!strstr(err.where, at("kept")))
                fail_msg("call %zu, %u: %s: %s", i, n, err.where, err.message);
            expect_numbers(at("kept"), 200);
        }
    }
    assert_true(failures >= 8);
}

/* Errors name a file by its URL, once. */
static void test_places(void **state) {
    struct sqrl_pack_options options = {.prefix = "p", .append = true};
    struct sqrl_error err = {0};
    assert_int_equal(pack_numbers("mem://placed", options, 10, NULL), SQRL_OK);
    assert_int_equal(pack_numbers("mem://placed", options, 10, &err), SQRL_E_EXISTS);
    assert_string_equal(err.where, "mem://placed/p-000000.sqrl");
    options = (struct sqrl_pack_options){0};
    assert_int_equal(pack_numbers("mem://placed", options, 10, &err), SQRL_E_EXISTS);
    assert_string_equal(err.where, "mem://placed");
    struct reading r;
    assert_int_equal(read_all("mem://placed/none", NULL, NULL, &r), SQRL_E_NOT_FOUND);
    assert_string_equal(r.err.where, "mem://placed/none");
    reading_reset(&r);
}

static void test_fault_reading(void **state) {
    struct sqrl_pack_options options = {.samples_per_shard = 50};
    fault_fs_shared = (struct fault_plan){0};
    assert_int_equal(pack_numbers(fault_at("read"), options, 100, NULL), SQRL_OK);
    unsigned *const calls[] = {&fault_fs_shared.fail_stat, &fault_fs_shared.fail_list,
                               &fault_fs_shared.fail_open, &fault_fs_shared.fail_read};
    for (size_t i = 0; i < SQRL_COUNT_OF(calls); i++) {
        struct reading r;
        fault_fs_shared = (struct fault_plan){0};
        *calls[i] = 1;
        assert_int_equal(read_all(fault_at("read"), NULL, NULL, &r), SQRL_E_IO);
        assert_non_null(strstr(r.text, "failed on order"));
        assert_non_null(strstr(r.text, at("read")));
        reading_reset(&r);
    }
    fault_fs_shared = (struct fault_plan){0};
}

/* --- a file system with options: local files under "vault://" --- */
static const struct sqrl_option vault_options[] = {
    {"token", SQRL_OPTION_TEXT, SQRL_OPTION_SECRET, NULL, NULL, "who asks"},
    {"depth", SQRL_OPTION_INT, SQRL_OPTION_PLAIN, "3", NULL, "requests at once"},
    {0}};
static struct {
    unsigned opened;
    size_t settings;
    int64_t depth;
    char token[40];
} vault;
static const struct sqrl_fs_ops *local_ops;
static struct sqrl_fs_ops vault_ops;

static int vault_open(void *fs, struct sqrl_context *in,
                      const struct sqrl_settings *settings, struct sqrl_error *err) {
    static const struct sqrl_settings none = {NULL, 0};
    const char *token = sqrl_settings_text(settings, vault_options, "token");
    vault.opened++;
    vault.settings = settings->count;
    if (!token)
        return sqrl_error_set(err, SQRL_E_PERMISSION, "a vault needs a token");
    snprintf(vault.token, sizeof vault.token, "%s", token);
    int rc = sqrl_settings_int(settings, vault_options, "depth", &vault.depth, err);
    return rc ? rc : local_ops->open(fs, in, &none, err);
}

static const char *vault_at(const char *name) {
    static char url[300];
    snprintf(url, sizeof url, "vault://%s", at(name));
    return url;
}

/* Each owner gets its own: the file system token and depth, the format the others. */
static void test_fs_options(void **state) {
    struct sqrl_setting writing[] = {{"codec", "lz4"}, {"token", "abc"}, {"depth", "7"}};
    struct sqrl_settings settings = {writing, 3};
    struct sqrl_pack_options options = {
        .settings = &settings, .samples_per_shard = 30, .prefix = "v"};
    struct sqrl_error err = {0};
    memset(&vault, 0, sizeof vault);
    if (pack_numbers(vault_at("vault"), options, 100, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(vault.opened, 1);
    assert_int_equal(vault.settings, 2);
    assert_int_equal(vault.depth, 7);
    assert_string_equal(vault.token, "abc");
    size_t size = 0;
    char *shard = slurp(at("vault/v-000000.sqrl"), &size);
    assert_memory_equal(shard, "\x04\x22\x4d\x18", 4); /* an LZ4 frame, no zstd one */
    free(shard);
    struct sqrl_setting reading[] = {{"driver", "sqrl"}, {"token", "xyz"}};
    struct reading r;
    settings = (struct sqrl_settings){reading, 2};
    memset(&vault, 0, sizeof vault);
    if (read_source(vault_at("vault"), &settings, false, &r))
        fail_msg("%s", r.text);
    assert_int_equal(r.samples, 100);
    assert_int_equal(vault.settings, 1);
    assert_int_equal(vault.depth, 3);
    assert_string_equal(vault.token, "xyz");
    reading_reset(&r);
    expect_numbers(at("vault"), 100);
    /* The same for a commit by itself, and for a new index. */
    const char *const prefixes[] = {"held"};
    struct sqrl_pack_report report;
    settings = (struct sqrl_settings){writing, 3};
    options.prefix = "held";
    options.hold_commit = options.append = true;
    assert_int_equal(pack_numbers(vault_at("vault"), options, 50, NULL), SQRL_OK);
    assert_int_equal(sqrl_pack_commit(context, vault_at("vault"), NULL, prefixes, 1,
                                      false, &report, &err),
                     SQRL_E_PERMISSION);
    assert_int_equal(sqrl_pack_commit(context, vault_at("vault"), &settings, prefixes, 1,
                                      false, &report, NULL),
                     SQRL_OK);
    assert_int_equal(report.samples, 50);
    assert_int_equal(
        sqrl_pack_index(context, vault_at("vault"), NULL, false, &report, &err),
        SQRL_E_PERMISSION);
    assert_int_equal(
        sqrl_pack_index(context, vault_at("vault"), &settings, false, &report, NULL),
        SQRL_OK);
    assert_int_equal(report.samples, 150);
}

/* Refusals: unknown names know those of the file system, too, and secrets aren't shown.
 */
static void test_fs_options_bad(void **state) {
    static const struct {
        const char *url, *name, *value;
        int code;
        const char *part;
    } bad[] = {
        {"vault", "driver", "sqrl", SQRL_E_PERMISSION, "needs a token"},
        {"vault", "depth", "deep", SQRL_E_INVALID, "a whole number, not \"deep\""},
        {"plain", "token", "hush", SQRL_E_INVALID, "has no option \"token\""},
        {"vault-more", "tokem", "hush", SQRL_E_INVALID, "did you mean \"token\""},
    };
    struct sqrl_pack_options options = {0};
    assert_int_equal(pack_numbers(at("plain"), options, 10, NULL), SQRL_OK);
    for (size_t i = 0; i < SQRL_COUNT_OF(bad); i++) {
        struct sqrl_setting items[] = {{bad[i].name, bad[i].value}, {"token", "t"}};
        struct sqrl_settings settings = {items, strcmp(bad[i].url, "vault-more") ? 1 : 2};
        bool plain = strcmp(bad[i].url, "plain") == 0;
        struct reading r;
        int rc =
            read_source(plain ? at("plain") : vault_at("vault"), &settings, false, &r);
        if (rc != bad[i].code || !strstr(r.text, bad[i].part))
            fail_msg("%s=%s: %s", bad[i].name, bad[i].value, r.text);
        assert_null(strstr(r.text, "hush"));
        reading_reset(&r);
    }
    struct sqrl_setting items[] = {{"token", "t"}, {"level", "1"}, {"kodec", "lz4"}};
    struct sqrl_settings settings = {items, 3};
    struct sqrl_error err = {0};
    options.settings = &settings;
    assert_int_equal(pack_numbers(vault_at("refused"), options, 1, &err), SQRL_E_INVALID);
    assert_non_null(strstr(err.message, "did you mean \"codec\""));
    assert_int_equal(access(at("refused"), F_OK), -1);
}

static int setup(void **state) {
    if (opening_setup(state))
        return 1;
    local_ops = sqrl_fs_registered(context, 0);
    vault_ops = *local_ops;
    vault_ops.name = "vault";
    vault_ops.schemes = "vault";
    vault_ops.options = vault_options;
    vault_ops.open = vault_open;
    return fault_fs_register(context, NULL) ||
           sqrl_fs_register(context, &vault_ops, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retry_lists),   cmocka_unit_test(test_retry_compares),
        cmocka_unit_test(test_fault_well),    cmocka_unit_test(test_fault_packing),
        cmocka_unit_test(test_fault_reading), cmocka_unit_test(test_places),
        cmocka_unit_test(test_fs_options),    cmocka_unit_test(test_fs_options_bad),
    };
    return cmocka_run_group_tests(tests, setup, opening_teardown);
}
