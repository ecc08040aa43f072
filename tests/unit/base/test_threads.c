#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_test.h"

/* Files of a pretended machine; paths are below its root. */
struct fixture_file {
    const char *path, *text;
};
struct fixture {
    const char *name;
    uint64_t millis;
    struct fixture_file files[10];
};

#define OWN "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define V2_MOUNT                                                                         \
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"                                              \
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNTS                                                                        \
    "31 23 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n"                  \
    "32 31 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                  \
    "33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"

static const struct fixture fixtures[] = {
    {"nothing to read", 0, {{NULL, NULL}}},
    {"v2 without a quota",
     0,
     {{OWN, "0::/user.slice\n"},
      {MOUNTS, V2_MOUNT},
      {"/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"}}},
    {"v2 half a CPU",
     500,
     {{OWN, "0::/user.slice\n"},
      {MOUNTS, V2_MOUNT},
      {"/sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n"}}},
    {"v2 an ancestor grants less",
     1500,
     {{OWN, "0::/a/b/c\n"},
      {MOUNTS, V2_MOUNT},
      {"/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n"},
      {"/sys/fs/cgroup/a/cpu.max", "150000 100000\n"}}},
    {"v2 in a container with its own namespace",
     2000,
     {{OWN, "0::/\n"},
      {MOUNTS, V2_MOUNT},
      {"/sys/fs/cgroup/cpu.max", "200000 100000\n"}}},
    {"v2 outside the mounted part",
     2500,
     {{OWN, "0::/../other\n"},
      {MOUNTS, V2_MOUNT},
      {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}}},
    {"v1",
     3000,
     {{OWN, "5:cpuset:/x\n4:cpu,cpuacct:/job\n0::/\n"},
      {MOUNTS, V1_MOUNTS},
      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}}},
    {"v1 without a quota",
     0,
     {{OWN, "4:cpu,cpuacct:/job\n"},
      {MOUNTS, V1_MOUNTS},
      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}}},
    {"v1 in a container: the mount shows its own part at the top",
     750,
     {{OWN, "4:cpu,cpuacct:/docker/abc\n"},
      {MOUNTS,
       "33 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "75000\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}},
    {"both: the lesser one",
     1000,
     {{OWN, "4:cpu:/j\n0::/k\n"},
      {MOUNTS, V2_MOUNT "33 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n"},
      {"/sys/fs/cgroup/k/cpu.max", "200000 100000\n"},
      {"/cg/cpu/j/cpu.cfs_quota_us", "100000\n"},
      {"/cg/cpu/j/cpu.cfs_period_us", "100000\n"}}},
    {"a mount point with a space",
     1250,
     {{OWN, "0::/\n"},
      {MOUNTS, "30 23 0:26 / /my\\040cg rw - cgroup2 none rw\n"},
      {"/my cg/cpu.max", "125000 100000\n"}}},
    {"nonsense",
     0,
     {{OWN, "no colons\n::\n0:\n0::/x\n"},
      {MOUNTS, "short\n - \n - cgroup2\n1 - cgroup2 a b\n" V2_MOUNT},
      {"/sys/fs/cgroup/x/cpu.max", "12 0\n"},
      {"/sys/fs/cgroup/cpu.max", "many 5\n"}}},
    {"less than a thousandth",
     1,
     {{OWN, "0::/\n"}, {MOUNTS, V2_MOUNT}, {"/sys/fs/cgroup/cpu.max", "1 1000000\n"}}},
};

static void write_file(const char *root, const struct fixture_file *file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, file->path);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(file->text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *ftw) {
    return remove(path);
}

static void test_cgroup_fixtures(void **state) {
    for (size_t i = 0; i < SQRL_COUNT_OF(fixtures); i++) {
        char root[] = "/tmp/sqrl-test-XXXXXX";
        assert_non_null(mkdtemp(root));
        for (const struct fixture_file *f = fixtures[i].files; f->path != NULL; f++)
            write_file(root, f);
        uint64_t millis = sqrl_cgroup_quota(root);
        assert_int_equal(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
        if (millis != fixtures[i].millis)
            fail_msg("%s: %llu", fixtures[i].name, (unsigned long long)millis);
    }
}

static void test_threads_from(void **state) {
    assert_int_equal(sqrl_threads_from(8, 0, 1), 8);
    assert_int_equal(sqrl_threads_from(8, 0, 0), 8);
    assert_int_equal(sqrl_threads_from(8, 2000, 1), 2);
    assert_int_equal(sqrl_threads_from(8, 1500, 1), 2);
    assert_int_equal(sqrl_threads_from(8, 1, 1), 1);
    assert_int_equal(sqrl_threads_from(8, 64000, 1), 8);
    assert_int_equal(sqrl_threads_from(8, 0, 3), 2);
    assert_int_equal(sqrl_threads_from(2, 0, 16), 1);
    assert_int_equal(sqrl_threads_from(0, 0, 1), 1);
    assert_int_equal(sqrl_threads_from(8, UINT64_MAX, 1), 8);
}

static void test_default_follows_the_affinity(void **state) {
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_in_range(sqrl_default_threads(1), 1, CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    unsigned threads = sqrl_default_threads(1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(threads, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cgroup_fixtures),
        cmocka_unit_test(test_threads_from),
        cmocka_unit_test(test_default_follows_the_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
