/* What is special about local files: kinds of files, temporaries, full disks, killed
 * writers. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/local.h"
#include "support/contract_fs.h"

struct env {
    struct sqrl_context *context;
    struct sqrl_fs *fs;
    char root[64];
};

static int set_up(void **state) {
    struct env *e = calloc(1, sizeof(*e));
    assert_non_null(e);
    strcpy(e->root, "/tmp/sqrl-local-XXXXXX");
    assert_non_null(mkdtemp(e->root));
    assert_int_equal(sqrl_context_new(NULL, &e->context, NULL), SQRL_OK);
    assert_int_equal(sqrl_fs_new(e->context, &sqrl_fs_local, NULL, &e->fs, NULL),
                     SQRL_OK);
    *state = e;
    return 0;
}

static int tear_down(void **state) {
    struct env *e = *state;
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", e->root);
    assert_int_equal(system(line), 0);
    sqrl_fs_unref(e->fs);
    sqrl_context_unref(e->context);
    free(e);
    return 0;
}

static const char *at(const struct env *e, const char *name) {
    static char buffers[4][600];
    static unsigned next;
    char *out = buffers[next++ % 4];
    snprintf(out, sizeof(buffers[0]), "%s/%s", e->root, name);
    return out;
}

static void assert_fails(int rc, const struct sqrl_error *err, int code,
                         const char *part) {
    if (rc != code || !strstr(err->message, part))
        print_error("code %d, message \"%s\"\n", rc, err->message);
    assert_int_equal(rc, code);
    assert_non_null(strstr(err->message, part));
}

static void open_fails(struct env *e, const char *path, int code, const char *part) {
    struct sqrl_file *file;
    struct sqrl_error err = {0};
    assert_fails(sqrl_file_open(e->fs, path, &file, &err), &err, code, part);
    assert_non_null(strstr(err.where, path));
}

static void create_fails(struct env *e, const char *path, int code, const char *part) {
    struct sqrl_file_writer *writer;
    struct sqrl_error err = {0};
    assert_fails(sqrl_file_create(e->fs, path, true, &writer, &err), &err, code, part);
}

/* None of these can be read at an offset, and none may block or be written over. */
static void test_kinds(void **state) {
    struct env *e = *state;
    assert_int_equal(mkfifo(at(e, "fifo"), 0666), 0);
    open_fails(e, at(e, "fifo"), SQRL_E_UNSUPPORTED, "FIFO");
    create_fails(e, at(e, "fifo"), SQRL_E_UNSUPPORTED, "FIFO");
    open_fails(e, "/dev/null", SQRL_E_UNSUPPORTED, "device");
    create_fails(e, "/dev/null", SQRL_E_UNSUPPORTED, "device");
    open_fails(e, e->root, SQRL_E_INVALID, "directory");
    create_fails(e, e->root, SQRL_E_INVALID, "directory");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", e->root);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    open_fails(e, at(e, "socket"), SQRL_E_UNSUPPORTED, "socket");
    close(fd);
    open_fails(e, at(e, "none"), SQRL_E_NOT_FOUND, "No such file");
    create_fails(e, at(e, "none/x"), SQRL_E_NOT_FOUND, "make it first");
    create_fails(e, at(e, "x/"), SQRL_E_INVALID, "names no file");
    create_fails(e, at(e, "fifo/"), SQRL_E_INVALID, "names no file");
    create_fails(e, at(e, ".."), SQRL_E_INVALID, "names no file");
    create_fails(e, "", SQRL_E_INVALID, "names no file");
    char longest[300];
    memset(longest, 'n', 256);
    longest[256] = '\0';
    create_fails(e, at(e, longest), SQRL_E_INVALID, "too long");
}

static void test_permission(void **state) {
    struct env *e = *state;
    contract_fs_put(e->fs, at(e, "locked"), "x", 1);
    assert_int_equal(chmod(at(e, "locked"), 0), 0);
    assert_int_equal(chmod(e->root, 0555), 0);
    /* Root may read everything: be somebody else meanwhile. */
    uid_t user = geteuid();
    if (user == 0 && seteuid(65534) != 0) {
        print_message("skipped: root here, and can't be anybody else\n");
        skip();
    }
    open_fails(e, at(e, "locked"), SQRL_E_PERMISSION, "Permission denied");
    create_fails(e, at(e, "new"), SQRL_E_PERMISSION, "Permission denied");
    struct sqrl_error err = {0};
    assert_fails(sqrl_fs_remove(e->fs, at(e, "locked"), &err), &err, SQRL_E_PERMISSION,
                 "");
    assert_fails(sqrl_fs_make_directory(e->fs, at(e, "d"), &err), &err, SQRL_E_PERMISSION,
                 "");
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(chmod(e->root, 0755), 0);
}

/* A file that loses its end while it is open is no clean end of file. */
static void test_shrinking(void **state) {
    struct env *e = *state;
    struct sqrl_file *file;
    struct sqrl_error err = {0};
    char data[8192] = {0};
    contract_fs_put(e->fs, at(e, "shrinks"), data, sizeof(data));
    assert_int_equal(sqrl_file_open(e->fs, at(e, "shrinks"), &file, &err), SQRL_OK);
    assert_int_equal(truncate(at(e, "shrinks"), 5000), 0);
    struct sqrl_range range = {4000, 2000, (uint8_t *)data, 0};
    int rc = sqrl_file_read(file, &range, 1, NULL, &err);
    assert_fails(rc, &err, SQRL_E_TRUNCATED, "8192 bytes when it was opened");
    sqrl_file_unref(file);
    /* One that vanishes can still be read to its end. */
    contract_fs_put(e->fs, at(e, "vanishes"), "still here", 10);
    assert_int_equal(sqrl_file_open(e->fs, at(e, "vanishes"), &file, &err), SQRL_OK);
    assert_int_equal(unlink(at(e, "vanishes")), 0);
    assert_int_equal(sqrl_file_read_exact(file, 0, data, 10, NULL, &err), SQRL_OK);
    assert_memory_equal(data, "still here", 10);
    sqrl_file_unref(file);
}

static void count_reads(void *arg, const struct sqrl_metric *metric) {
    if (strcmp(metric->name, "reads") == 0)
        *(uint64_t *)arg = metric->value;
}

static uint64_t reads(struct env *e) {
    uint64_t n = UINT64_MAX;
    sqrl_context_metrics(e->context, count_reads, &n);
    assert_true(n != UINT64_MAX);
    return n;
}

/* The ranges of a stored frame, framing apart from payload, cost one system call. */
static void test_one_call(void **state) {
    struct env *e = *state;
    enum { SIZE = 1 << 20, PIECE = 65536 };
    uint8_t *data = malloc(SIZE), *back = malloc(SIZE), scratch[64];
    struct sqrl_range ranges[32];
    struct sqrl_file *file;
    struct sqrl_error err = {0};
    assert_true(data && back);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 31 >> 3);
    contract_fs_put(e->fs, at(e, "frame"), data, SIZE);
    for (size_t i = 0; i < 16; i++) {
        ranges[2 * i] = (struct sqrl_range){i * PIECE, 3, scratch + 3 * i, 0};
        ranges[2 * i + 1] =
            (struct sqrl_range){i * PIECE + 3, PIECE - 3, back + i * (PIECE - 3), 0};
    }
    assert_int_equal(sqrl_file_open(e->fs, at(e, "frame"), &file, &err), SQRL_OK);
    uint64_t before = reads(e);
    assert_int_equal(sqrl_file_read(file, ranges, 32, NULL, &err), SQRL_OK);
    assert_true(reads(e) - before == 1);
    for (size_t i = 0; i < 16; i++) {
        assert_memory_equal(scratch + 3 * i, data + i * PIECE, 3);
        assert_memory_equal(back + i * (PIECE - 3), data + i * PIECE + 3, PIECE - 3);
    }
    sqrl_file_unref(file);
    free(data);
    free(back);
}

/* --- listing --- */

static int add_name(void *arg, const char *name, const struct sqrl_stat *stat) {
    char *text = arg;
    strcat(text, name);
    strcat(text, stat->size == SQRL_SIZE_UNKNOWN ? "? " : " ");
    return 0;
}

static void test_links(void **state) {
    struct env *e = *state;
    char text[512] = "";
    struct sqrl_error err = {0};
    assert_int_equal(mkdir(at(e, "d"), 0777), 0);
    contract_fs_put(e->fs, at(e, "d/f"), "x", 1);
    assert_int_equal(symlink("..", at(e, "d/loop")), 0);
    assert_int_equal(symlink("d", at(e, "link")), 0);
    assert_int_equal(symlink("nowhere", at(e, "dangling")), 0);
    assert_int_equal(sqrl_fs_list(e->fs, e->root, true, add_name, text, NULL, &err),
                     SQRL_OK);
    assert_string_equal(text, "d/f dangling? link/f ");
    open_fails(e, at(e, "dangling"), SQRL_E_NOT_FOUND, "");
}

static void test_depth(void **state) {
    struct env *e = *state;
    char path[600] = "deep", text[64] = "";
    struct sqrl_error err = {0};
    for (int i = 0; i < 70; i++)
        strcat(path, "/d");
    assert_int_equal(sqrl_fs_make_directory(e->fs, at(e, path), &err), SQRL_OK);
    int rc = sqrl_fs_list(e->fs, e->root, true, add_name, text, NULL, &err);
    assert_fails(rc, &err, SQRL_E_LIMIT, "nested deeper than 64");
}

/* --- full disks --- */

static void *write_until(struct env *e, const char *path, size_t limit, int *rc,
                         struct sqrl_error *err) {
    struct sqrl_file_writer *writer;
    static char data[1 << 16];
    assert_int_equal(sqrl_file_create(e->fs, path, false, &writer, err), SQRL_OK);
    *rc = SQRL_OK;
    for (size_t done = 0; *rc == SQRL_OK && done < limit; done += sizeof(data))
        *rc = sqrl_file_write(writer, data, sizeof(data), err);
    return writer;
}

static int count_all(const char *path) {
    char line[256];
    snprintf(line, sizeof(line), "test $(find %s -type f | wc -l) -eq 0", path);
    return system(line);
}

/* After a failed write the commit fails too, with the first reason, and nothing is left.
 */
static void check_full(struct env *e, const char *path, const char *directory, int code,
                       const char *part) {
    int rc;
    struct sqrl_error err = {0};
    struct sqrl_file_writer *writer = write_until(e, path, 64 << 20, &rc, &err);
    assert_fails(rc, &err, code, part);
    assert_non_null(strstr(err.where, path));
    assert_int_equal(sqrl_file_write(writer, "x", 1, &err), SQRL_E_STATE);
    assert_int_equal(sqrl_file_commit(writer, &err), code);
    assert_int_equal(count_all(directory), 0);
}

static void test_full_disk(void **state) {
    struct env *e = *state;
    assert_int_equal(mkdir(at(e, "small"), 0777), 0);
    if (mount("tmpfs", at(e, "small"), "tmpfs", 0, "size=4m") != 0) {
        print_message("skipped: a small tmpfs can't be mounted here (%s)\n",
                      strerror(errno));
        skip();
    }
    char directory[128];
    snprintf(directory, sizeof(directory), "%s", at(e, "small"));
    check_full(e, at(e, "small/x"), directory, SQRL_E_NO_SPACE, "free some space");
    /* Small enough to be found out only at the commit. */
    struct sqrl_error err = {0};
    int rc;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct sqrl_file_writer *first = write_until(e, at(e, "small/a"), 3 << 20, &rc, &err);
    assert_int_equal(rc, SQRL_OK);
    struct sqrl_file_writer *second =
        write_until(e, at(e, "small/b"), 1 << 18, &rc, &err);
    struct sqrl_file_writer *third =
        write_until(e, at(e, "small/c"), 900 << 10, &rc, &err);
    assert_int_equal(sqrl_file_commit(first, &err), SQRL_OK);
    assert_int_equal(sqrl_file_commit(second, &err), SQRL_OK);
    assert_int_equal(sqrl_file_commit(third, &err), SQRL_E_NO_SPACE);
    assert_int_equal(access(at(e, "small/c"), F_OK), -1);
    assert_int_equal(umount(directory), 0);
}

static void test_file_size_limit(void **state) {
    struct env *e = *state;
    struct rlimit old, low = {2 << 20, 2 << 20};
    assert_int_equal(mkdir(at(e, "limited"), 0777), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_max = old.rlim_max;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    char directory[128];
    snprintf(directory, sizeof(directory), "%s", at(e, "limited"));
    int rc;
    struct sqrl_error err = {0};
    struct sqrl_file_writer *writer =
        write_until(e, at(e, "limited/x"), 64 << 20, &rc, &err);
    int limited = setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, before);
    assert_int_equal(limited, 0);
    assert_fails(rc, &err, SQRL_E_LIMIT, "ulimit -f");
    assert_int_equal(sqrl_file_commit(writer, &err), SQRL_E_LIMIT);
    assert_int_equal(count_all(directory), 0);
}

/* --- killed writers --- */

static int count_temporaries(struct env *e) {
    char line[256];
    snprintf(line, sizeof(line), "exit $(ls -A %s | grep -c 'sqrl-tmp$')", e->root);
    int rc = system(line);
    assert_true(WIFEXITED(rc));
    return WEXITSTATUS(rc);
}

static uint64_t sweep(struct env *e) {
    uint64_t removed = 99;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_fs_sweep(e->fs, e->root, &removed, &err), SQRL_OK);
    return removed;
}

/* The child writes until it is killed; what it committed before is whole. */
static void write_and_wait(struct env *e, int ready) {
    struct sqrl_file_writer *writer;
    static char data[1 << 21];
    contract_fs_put(e->fs, at(e, "whole"), "whole", 5);
    if (sqrl_file_create(e->fs, at(e, "cut"), true, &writer, NULL) != SQRL_OK ||
        sqrl_file_write(writer, data, sizeof(data), NULL) != SQRL_OK)
        _exit(1);
    if (write(ready, "r", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static void test_killed(void **state) {
    struct env *e = *state;
    int ready[2], status;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        write_and_wait(e, ready[1]);
    close(ready[1]);
    assert_true(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    /* It lives: its temporary stays. */
    assert_true(sweep(e) == 0);
    assert_int_equal(count_temporaries(e), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_true(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    char text[256] = "";
    struct sqrl_error err;
    assert_int_equal(sqrl_fs_list(e->fs, e->root, true, add_name, text, NULL, &err),
                     SQRL_OK);
    assert_string_equal(text, "whole ");
    assert_true(sweep(e) == 1);
    assert_int_equal(count_temporaries(e), 0);
}

/* Makes a file under a temporary's name with one field changed. */
static void plant(struct env *e, unsigned field, const char *value, long age_seconds) {
    char *name = sqrl_local_temporary_name("planted", NULL), changed[256] = ".planted.";
    assert_non_null(name);
    char *p = name + strlen(changed), *save;
    unsigned i = 0;
    *strstr(p, SQRL_TEMPORARY_SUFFIX) = '\0';
    for (char *part = strtok_r(p, "-", &save); part;
         part = strtok_r(NULL, "-", &save), i++) {
        strcat(changed, i ? "-" : "");
        strcat(changed, i == field ? value : part);
    }
    assert_int_equal(i, 4);
    strcat(changed, SQRL_TEMPORARY_SUFFIX);
    free(name);
    int fd = open(at(e, changed), O_CREAT | O_WRONLY, 0666);
    assert_true(fd >= 0);
    struct timespec now, times[2];
    clock_gettime(CLOCK_REALTIME, &now);
    times[0] = times[1] = (struct timespec){now.tv_sec - age_seconds, 0};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void test_sweep_rules(void **state) {
    struct env *e = *state;
    plant(e, 99, "", 0); /* our own */
    assert_true(sweep(e) == 0);
    plant(e, 2, "1", 0); /* our PID, but of a process that started at another time */
    assert_true(sweep(e) == 1);
    plant(e, 0, "00c0ffee", 60); /* of another machine, a minute ago */
    assert_true(sweep(e) == 0);
    plant(e, 0, "00c0fff0", 2 * 24 * 3600); /* of another machine, two days ago */
    assert_true(sweep(e) == 1);
    assert_int_equal(count_temporaries(e), 2);
    /* Names that only look alike are nobody's business. */
    static const char *const others[] = {".x.sqrl-tmp", "x.0-1-1-1.sqrl-tmp",
                                         ".x.0-0-1-1.sqrl-tmp",
                                         ".x.00c0ffee-1-1-zz.sqrl-tmp", ".sqrl-tmp"};
    for (size_t i = 0; i < SQRL_COUNT_OF(others); i++)
        contract_fs_put(e->fs, at(e, others[i]), "x", 1);
    assert_true(sweep(e) == 0);
    assert_int_equal(count_temporaries(e), 7);
    uint64_t removed;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_fs_sweep(e->fs, at(e, "none"), &removed, &err),
                     SQRL_E_NOT_FOUND);
}

/* The temporary of a name of any length is a valid name. */
static void test_temporary_names(void **state) {
    char name[256];
    for (size_t n = 1; n < 256; n++) {
        memset(name, 'x', n);
        name[n] = '\0';
        char *temporary = sqrl_local_temporary_name(name, NULL);
        assert_non_null(temporary);
        assert_true(strlen(temporary) <= 255);
        free(temporary);
    }
}

/* A chdir between create and commit changes nothing for a relative path. */
static void test_relative(void **state) {
    struct env *e = *state;
    struct sqrl_file_writer *writer;
    struct sqrl_error err = {0};
    char old[600];
    assert_non_null(getcwd(old, sizeof(old)));
    assert_int_equal(chdir(e->root), 0);
    assert_int_equal(sqrl_file_create(e->fs, "relative", false, &writer, &err), SQRL_OK);
    assert_int_equal(sqrl_file_write(writer, "r", 1, &err), SQRL_OK);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(sqrl_file_commit(writer, &err), SQRL_OK);
    assert_int_equal(chdir(old), 0);
    assert_int_equal(access(at(e, "relative"), R_OK), 0);
}

static void replace(struct env *e, const char *name, const char *text) {
    struct sqrl_file_writer *writer;
    struct sqrl_error err = {0};
    assert_int_equal(sqrl_file_create(e->fs, at(e, name), true, &writer, &err), SQRL_OK);
    assert_int_equal(sqrl_file_write(writer, text, strlen(text), &err), SQRL_OK);
    assert_int_equal(sqrl_file_commit(writer, &err), SQRL_OK);
}

/* What a link leads to is replaced, and keeps who may read it; the link stays. */
static void test_replacing_through_links(void **state) {
    struct env *e = *state;
    struct sqrl_file_writer *writer;
    struct sqrl_error err = {0};
    struct stat st;
    char inner[600], text[8] = "";
    assert_int_equal(mkdir(at(e, "sub"), 0700), 0);
    replace(e, "sub/file", "old");
    assert_int_equal(chmod(at(e, "sub/file"), 0640), 0);
    assert_int_equal(symlink("sub/second", at(e, "first")), 0);
    assert_int_equal(symlink("file", at(e, "sub/second")), 0);
    replace(e, "first", "new");
    assert_int_equal(lstat(at(e, "first"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(at(e, "sub/second"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(at(e, "sub/file"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    FILE *file = fopen(at(e, "sub/file"), "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 3);
    fclose(file);
    assert_string_equal(text, "new");

    /* To nowhere yet, and in a circle. */
    snprintf(inner, sizeof inner, "%s", at(e, "sub/later"));
    assert_int_equal(symlink(inner, at(e, "dangling")), 0);
    replace(e, "dangling", "made");
    assert_int_equal(access(inner, R_OK), 0);
    assert_int_equal(symlink("circle", at(e, "circle")), 0);
    assert_int_not_equal(sqrl_file_create(e->fs, at(e, "circle"), true, &writer, &err),
                         SQRL_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_kinds),
        TEST(test_permission),
        TEST(test_shrinking),
        TEST(test_one_call),
        TEST(test_links),
        TEST(test_depth),
        TEST(test_full_disk),
        TEST(test_file_size_limit),
        TEST(test_killed),
        TEST(test_sweep_rules),
        TEST(test_temporary_names),
        TEST(test_relative),
        TEST(test_replacing_through_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
