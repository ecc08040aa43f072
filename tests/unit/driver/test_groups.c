/* Fields in groups of shards: what is read where only some fields are asked for, counted
 * where the file system is called; what is added later, and what happens to it when
 * something fails. */
#include "opening.h"

#include "format/commit.h"
#include "sqrl/stream.h"
#include "support/fault_fs.h"

enum { SAMPLES = 600, PER_SHARD = 200, IMAGE = 2000 };

static const char *const IMAGES[] = {"image"}, *const LABELS[] = {"label", "name"};
static const struct sqrl_pack_group GROUPS[] = {{"labels", LABELS, 2},
                                                {"images", IMAGES, 1}};

static const char *fault_at(const char *name) {
    static char url[300];
    snprintf(url, sizeof url, "fault://%s", at(name));
    return url;
}

static void put_text_pair(struct sqrl_bytes *b, const char *key, const char *text) {
    assert_int_equal(sqrl_msgpack_put_string(b, key, strlen(key), NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(b, text, strlen(text), NULL), 0);
}

/* {"label": i % 10, "image": IMAGE bytes, "name": "n<i>"} */
static int put_sample(struct sqrl_packer *p, uint64_t i, struct sqrl_error *err) {
    struct sqrl_bytes *b = sqrl_packer_bytes(p);
    uint8_t image[IMAGE];
    char name[32];
    for (size_t k = 0; k < sizeof image; k++)
        image[k] = (uint8_t)(sqrl_mix64(i * IMAGE + k));
    snprintf(name, sizeof name, "n%llu", (unsigned long long)i);
    assert_int_equal(sqrl_msgpack_put_map(b, 3, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(b, "label", 5, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_uint(b, i % 10, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(b, "image", 5, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_binary(b, image, sizeof image, NULL), 0);
    put_text_pair(b, "name", name);
    return sqrl_packer_accept(p, err);
}

static void pack(const char *url) {
    struct sqrl_setting setting[] = {{"key", "name"}, {"index", "label"}};
    struct sqrl_settings settings = {setting, 2};
    struct sqrl_pack_options options = {.size = sizeof options,
                                        .samples_per_shard = PER_SHARD,
                                        .block_bytes = 16 << 10,
                                        .prefix = "p",
                                        .settings = &settings,
                                        .groups = GROUPS,
                                        .group_count = 2};
    struct sqrl_packer *packer = NULL;
    struct sqrl_pack_report report;
    assert_int_equal(sqrl_packer_open(context, url, &options, &packer, NULL), 0);
    for (uint64_t i = 0; i < SAMPLES; i++)
        assert_int_equal(put_sample(packer, i, NULL), 0);
    assert_int_equal(sqrl_packer_finish(packer, &report, NULL), 0);
    assert_int_equal(report.samples, SAMPLES);
    assert_int_equal(report.shards, SAMPLES / PER_SHARD);
}

static struct sqrl_source *open_source(const char *url) {
    struct sqrl_source *source = NULL;
    struct sqrl_error err = {0};
    if (sqrl_open(context, url, NULL, &source, &err))
        fail_msg("%s: %s: %s", url, err.where, err.message);
    return source;
}

/* Samples of a plan that has at most two stages; fails with what the iterator fails. */
static int count_plan(struct sqrl_plan *plan, uint64_t *samples, uint64_t *fields,
                      struct sqrl_error *err) {
    struct sqrl_iterator *it = NULL;
    struct sqrl_run *run = NULL;
    *samples = *fields = 0;
    int rc = sqrl_iterator_open(plan, &it, err);
    while (rc == 0) {
        rc = sqrl_iterator_next_run(it, &run, err);
        if (rc || !run)
            break;
        *samples += run->count;
        for (uint32_t i = 0; i < run->count; i++) {
            const struct sqrl_block *block = run->samples[i].block;
            *fields += block->tape.nodes[block->begin[run->samples[i].index]].size;
        }
        sqrl_run_release(run);
    }
    sqrl_iterator_close(it);
    return rc;
}

/* The fault plan's counts of a stream that selects `field` (NULL: whole samples). */
static void read_fields(const char *url, const char *field, uint64_t *fields) {
    struct sqrl_plan *all = NULL, *some = NULL;
    struct sqrl_source *source = open_source(url);
    uint64_t samples;
    assert_int_equal(sqrl_plan_source(source, &all, NULL), 0);
    some = field ? NULL : sqrl_plan_ref(all);
    if (field)
        assert_int_equal(sqrl_plan_select(all, &field, 1, &some, NULL), 0);
    memset(&fault_fs_shared, 0, sizeof fault_fs_shared);
    struct sqrl_error err = {0};
    if (count_plan(some, &samples, fields, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(samples, SAMPLES);
    sqrl_plan_unref(some);
    sqrl_plan_unref(all);
    sqrl_source_unref(source);
}

/* Per shard: opened once, its tail read once, each of its blocks once. */
static void selects_read_only_their_groups(void **state) {
    uint64_t fields, shards = SAMPLES / PER_SHARD;
    pack(fault_at("counted"));
    read_fields(fault_at("counted"), "label", &fields);
    assert_int_equal(fault_fs_shared.opens, shards);
    /* 200 x 16 bytes: the labels of a shard fit into one block */
    assert_int_equal(fault_fs_shared.reads, 2 * shards);
    assert_int_equal(fields, 2 * SAMPLES); /* the group's two fields are in the blocks */
    read_fields(fault_at("counted"), "image", &fields);
    assert_int_equal(fault_fs_shared.opens, shards);
    /* 200 / 8 = 25 blocks: nine samples of 2,009 bytes would pass 16 KiB */
    assert_int_equal(fault_fs_shared.reads, (1 + 25) * shards);
    read_fields(fault_at("counted"), NULL, &fields);
    assert_int_equal(fault_fs_shared.opens, 2 * shards);
    /* The one block of labels is loaded once for all 25 of images. */
    assert_int_equal(fault_fs_shared.reads, (1 + 25 + 1 + 1) * shards);
    assert_int_equal(fields, 3 * SAMPLES);
}

static void columns_and_keys_leave_images_alone(void **state) {
    pack(fault_at("asked"));
    struct sqrl_source *source = open_source(fault_at("asked")), *view = NULL;
    struct sqrl_key key = {.bytes = "n417", .size = 4};
    uint64_t index = 0;
    memset(&fault_fs_shared, 0, sizeof fault_fs_shared);
    assert_int_equal(sqrl_source_find(source, &key, &index, NULL), 0);
    assert_int_equal(index, 417);
    /* The group with keys is found in shard 0; then each shard's until it is there. */
    assert_int_equal(fault_fs_shared.opens, 1 + 3);
    assert_int_equal(sqrl_source_where(source, "label == 3", &view, NULL), 0);
    assert_int_equal(sqrl_source_samples(view), SAMPLES / 10);
    sqrl_source_unref(view);
    sqrl_source_unref(source);
}

/* --- adding --- */

static int open_add(const char *url, const char *group, struct sqrl_packer **out,
                    struct sqrl_error *err) {
    const struct sqrl_add_options options = {.size = sizeof options, .group = group};
    return sqrl_packer_add_fields(context, url, &options, out, err);
}

static int put_score(struct sqrl_packer *p, const char *field, uint64_t i,
                     struct sqrl_error *err) {
    struct sqrl_bytes *b = sqrl_packer_bytes(p);
    assert_int_equal(sqrl_msgpack_put_map(b, 1, NULL), 0);
    assert_int_equal(sqrl_msgpack_put_string(b, field, strlen(field), NULL), 0);
    assert_int_equal(sqrl_msgpack_put_uint(b, i, NULL), 0);
    return sqrl_packer_accept(p, err);
}

static int add(const char *url, const char *group, const char *field,
               struct sqrl_error *err) {
    struct sqrl_packer *packer = NULL;
    int rc = open_add(url, group, &packer, err);
    for (uint64_t i = 0; rc == 0 && i < SAMPLES; i++)
        rc = put_score(packer, field, i, err);
    if (rc) {
        sqrl_packer_abandon(packer);
        return rc;
    }
    return sqrl_packer_finish(packer, NULL, err);
}

/* Files of a directory; temporaries and folders count too. */
static int files_in(const char *name) {
    char command[400];
    snprintf(command, sizeof command, "find %s | wc -l", at(name));
    FILE *pipe = popen(command, "r");
    int count = -1;
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

static void check_whole(const char *url, uint64_t per_sample) {
    struct sqrl_source *source = open_source(url);
    struct sqrl_plan *plan = NULL;
    uint64_t samples, fields;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_plan_source(source, &plan, NULL), 0);
    if (count_plan(plan, &samples, &fields, &err))
        fail_msg("%s: %s", err.where, err.message);
    assert_int_equal(samples, SAMPLES);
    assert_int_equal(fields, per_sample * SAMPLES);
    sqrl_plan_unref(plan);
    sqrl_source_unref(source);
}

/* Every call of a kind fails in turn: then nothing has changed; until all goes well. */
static void each_call_fails(unsigned *which, const char *name) {
    memset(&fault_fs_shared, 0, sizeof fault_fs_shared);
    pack(at(name));
    int before = files_in(name);
    unsigned failed = 0;
    for (unsigned n = 1;; n++) {
        struct sqrl_error err = {0};
        memset(&fault_fs_shared, 0, sizeof fault_fs_shared);
        *which = n;
        fault_fs_shared.code = SQRL_E_NO_SPACE;
        int rc = add(fault_at(name), "scores", "score", &err);
        *which = 0;
        if (rc == 0)
            break;
        assert_true(n < 200);
        assert_int_equal(rc, SQRL_E_NO_SPACE);
        assert_int_equal(files_in(name), before);
        failed++;
    }
    assert_true(failed >= SAMPLES / PER_SHARD);
    memset(&fault_fs_shared, 0, sizeof fault_fs_shared);
    check_whole(at(name), 4);
}

static void failing_writes_change_nothing(void **state) {
    each_call_fails(&fault_fs_shared.fail_write, "writes");
    each_call_fails(&fault_fs_shared.fail_create, "creates");
}

/* Fields of all samples, read by this thread alone: the fault plan is changed afterwards.
 */
static int count_fields(struct sqrl_source *source, uint64_t *fields,
                        struct sqrl_error *err) {
    int rc = 0;
    for (uint64_t s = 0; rc == 0 && s < sqrl_source_shards(source); s++) {
        struct sqrl_shard_reader *reader = NULL;
        struct sqrl_block *block = NULL;
        rc = sqrl_shard_open(source, s, &reader, err);
        while (rc == 0) {
            rc = sqrl_shard_reader_next(reader, NULL, &block, err);
            if (rc || !block)
                break;
            for (uint32_t i = 0; i < block->count; i++)
                *fields += block->tape.nodes[block->begin[i]].size;
            sqrl_block_unref(block);
        }
        sqrl_shard_reader_unref(reader);
    }
    return rc;
}

/* Reading fails: an error, not other samples. */
static void failing_reads_are_errors(void **state) {
    pack(at("reads"));
    for (unsigned n = 1;; n++) {
        struct sqrl_source *source = NULL;
        struct sqrl_error err = {0};
        uint64_t fields = 0;
        memset(&fault_fs_shared, 0, sizeof fault_fs_shared);
        fault_fs_shared.fail_read = n;
        int rc = sqrl_open(context, fault_at("reads"), NULL, &source, &err);
        if (rc == 0)
            rc = count_fields(source, &fields, &err);
        sqrl_source_unref(source);
        if (rc == 0) {
            assert_int_equal(fields, 3 * SAMPLES);
            break;
        }
        assert_int_equal(rc, SQRL_E_IO);
        assert_true(n < 300);
    }
    memset(&fault_fs_shared, 0, sizeof fault_fs_shared);
}

/* Both began when the group was not there. */
static void two_add_the_same(void **state) {
    struct sqrl_packer *one = NULL, *two = NULL;
    struct sqrl_error err = {0};
    pack(at("twice"));
    assert_int_equal(open_add(at("twice"), "scores", &one, NULL), 0);
    assert_int_equal(open_add(at("twice"), "scores", &two, NULL), 0);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        assert_int_equal(put_score(one, "score", i, NULL), 0);
        assert_int_equal(put_score(two, "score", i + 1, NULL), 0);
    }
    assert_int_equal(sqrl_packer_finish(one, NULL, NULL), 0);
    int files = files_in("twice");
    assert_int_equal(sqrl_packer_finish(two, NULL, &err), SQRL_E_EXISTS);
    assert_non_null(strstr(err.message, "\"scores\" was added"));
    assert_true(files_in("twice") < files); /* the loser's shards are gone */
    check_whole(at("twice"), 4);
    assert_int_equal(add(at("twice"), "scores", "score", &err), SQRL_E_EXISTS);
    assert_int_equal(add(at("twice"), "others", "score", &err), SQRL_E_EXISTS);
    assert_non_null(strstr(err.message, "field \"score\" already"));
    assert_int_equal(add(at("twice"), "others", "other", &err), 0);
    check_whole(at("twice"), 5);
}

static void wrong_counts_name_the_sample(void **state) {
    struct sqrl_packer *packer = NULL;
    struct sqrl_error err = {0};
    pack(at("short"));
    assert_int_equal(open_add(at("short"), "scores", &packer, NULL), 0);
    for (uint64_t i = 0; i < PER_SHARD + 7; i++)
        assert_int_equal(put_score(packer, "score", i, NULL), 0);
    assert_int_equal(sqrl_packer_finish(packer, NULL, &err), SQRL_E_INVALID);
    assert_non_null(strstr(err.message, "sample 7 of shard \"p-000001.sqrl\""));
    assert_non_null(strstr(err.message, "position 207"));
    assert_int_equal(open_add(at("short"), "scores", &packer, NULL), 0);
    for (uint64_t i = 0; i < SAMPLES; i++)
        assert_int_equal(put_score(packer, "score", i, NULL), 0);
    assert_int_equal(put_score(packer, "score", 0, &err), SQRL_E_INVALID);
    assert_non_null(strstr(err.message, "more samples"));
    sqrl_packer_abandon(packer);
    check_whole(at("short"), 3);
}

/* --- disagreements --- */

static void expect_open(const char *name, int code, const char *words) {
    struct sqrl_source *source = NULL;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_open(context, at(name), NULL, &source, &err), code);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
}

static void missing_and_wrong_parts(void **state) {
    struct sqrl_pack_report report;
    pack(at("parts"));
    run("cp -r %s %s", at("parts"), at("lost"));
    run("rm %s/p-000001.labels.sqrl", at("lost"));
    expect_open("lost", SQRL_E_NOT_FOUND, "p-000001.labels.sqrl");
    expect_open("lost", SQRL_E_NOT_FOUND, "squirrel index");
    /* `squirrel index`: its samples lack these fields now. */
    assert_int_equal(sqrl_pack_index(context, at("lost"), NULL, false, &report, NULL), 0);
    assert_int_equal(report.samples, SAMPLES);
    struct sqrl_source *source = open_source(at("lost"));
    struct sqrl_source_group group;
    assert_int_equal(sqrl_source_groups(source), 2);
    sqrl_source_group(source, 1, &group);
    assert_string_equal(group.name, "labels");
    assert_int_equal(group.shards, 2);
    assert_null(sqrl_source_group_shard(source, 1, 1));
    sqrl_source_unref(source);
    /* A part of another shard in its place, of another size. */
    run("cp -r %s %s", at("parts"), at("wrong"));
    run("cp %s/p-000000.sqrl %s/p-000001.labels.sqrl", at("parts"), at("wrong"));
    expect_open("wrong", SQRL_E_CORRUPT, "p-000001.labels.sqrl");
    /* Without commits nobody knows what belongs together. */
    run("cp -r %s %s; rm -r %s/_sqrl", at("parts"), at("bare"), at("bare"));
    expect_open("bare", SQRL_E_STATE, "squirrel index");
    assert_int_equal(sqrl_pack_index(context, at("bare"), NULL, false, &report, NULL), 0);
    check_whole(at("bare"), 3);
}

/* Any cut and any flipped byte of a commit with groups is an error. */
static void damaged_commits(void **state) {
    struct sqrl_commit commit;
    size_t size;
    char command[300], path[300] = "";
    pack(at("hurt"));
    assert_int_equal(add(at("hurt"), "scores", "score", NULL), 0);
    snprintf(command, sizeof command, "ls %s/_sqrl/*.idx", at("hurt"));
    FILE *list = popen(command, "r");
    for (int files = 0; fscanf(list, "%299s", path) == 1; files++) {
        char *bytes = slurp(path, &size);
        static const char id[] = "0123456789abcdef-0123456789abcdef";
        assert_int_equal(sqrl_commit_parse(id, (uint8_t *)bytes, size, &commit, NULL), 0);
        assert_int_equal(commit.group_count, files ? 1 : 2);
        sqrl_commit_reset(&commit);
        for (size_t n = 0; n < size; n++) {
            assert_int_not_equal(
                sqrl_commit_parse(id, (uint8_t *)bytes, n, &commit, NULL), 0);
            sqrl_commit_reset(&commit);
            bytes[n] ^= 1;
            assert_int_not_equal(
                sqrl_commit_parse(id, (uint8_t *)bytes, size, &commit, NULL), 0);
            sqrl_commit_reset(&commit);
            if (n + 8 < size) { /* the same with a hash that fits: no crash */
                uint64_t hash = sqrl_xxh3(bytes, size - 8), old;
                memcpy(&old, bytes + size - 8, 8);
                memcpy(bytes + size - 8, &hash, 8);
                (void)!sqrl_commit_parse(id, (uint8_t *)bytes, size, &commit, NULL);
                sqrl_commit_reset(&commit);
                memcpy(bytes + size - 8, &old, 8);
            }
            bytes[n] ^= 1;
        }
        free(bytes);
    }
    pclose(list);
}

static int setup(void **state) {
    return opening_setup(state) || fault_fs_register(context, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selects_read_only_their_groups),
        cmocka_unit_test(columns_and_keys_leave_images_alone),
        cmocka_unit_test(failing_writes_change_nothing),
        cmocka_unit_test(failing_reads_are_errors),
        cmocka_unit_test(two_add_the_same),
        cmocka_unit_test(wrong_counts_name_the_sample),
        cmocka_unit_test(missing_and_wrong_parts),
        cmocka_unit_test(damaged_commits),
    };
    return cmocka_run_group_tests(tests, setup, opening_teardown);
}
