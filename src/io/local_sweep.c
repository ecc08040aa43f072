/* local_sweep.c - names of temporaries, and removing those of dead writers.
 *
 *     .NAME.MACHINE-PID-START-RANDOM.sqrl-tmp
 *
 * MACHINE is a hash of the boot and the PID namespace, so that a PID is only ever looked
 * up where it means something: other hosts and containers on a shared disk have other
 * hashes. START is the process's start time from /proc, which tells a reused PID. A
 * temporary of another machine is taken for dead when nothing was written to it for a
 * day. */
#include "io/local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FOREIGN_SECONDS (24 * 3600)
#define TAIL_MAX 80 /* what stands behind the name, at most */

/* The first bytes of a small file, "" if it can't be read. */
static void read_small(const char *path, char *out, size_t size) {
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    close(fd);
}

static uint32_t machine_hash(void) {
    char text[256];
    read_small("/proc/sys/kernel/random/boot_id", text, 128);
    size_t used = strlen(text);
    ssize_t n = readlink("/proc/self/ns/pid", text + used, sizeof(text) - used - 1);
    used += n > 0 ? (size_t)n : 0;
    uint64_t hash = 0;
    for (size_t i = 0; i < used; i++)
        hash = sqrl_mix64(hash ^ (uint8_t)text[i]);
    return (uint32_t)hash;
}

/* Field 22 of /proc/PID/stat: ticks since the boot. 0 when it can't be told. */
static unsigned long long start_time(long pid) {
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    read_small(path, text, sizeof(text));
    /* The second field is the program's name in parentheses, which may hold anything. */
    const char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++) {
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    return p ? strtoull(p, NULL, 10) : 0;
}

char *sqrl_local_temporary_name(const char *name, struct sqrl_error *err) {
    uint64_t random;
    if (sqrl_random_bytes(&random, sizeof(random), err) != SQRL_OK)
        return NULL;
    long pid = (long)getpid();
    int keep = (int)SQRL_MIN(strlen(name), (size_t)NAME_MAX - TAIL_MAX);
    return sqrl_format(err, ".%.*s.%08x-%ld-%llu-%016llx" SQRL_TEMPORARY_SUFFIX, keep,
                       name, machine_hash(), pid, start_time(pid),
                       (unsigned long long)random);
}

struct owner {
    uint32_t machine;
    long pid;
    unsigned long long start;
};

/* Reads a temporary's name; false: it is none of ours. */
static bool parse_name(const char *name, struct owner *owner) {
    size_t length = strlen(name), tail = sizeof(SQRL_TEMPORARY_SUFFIX) - 1;
    if (name[0] != '.' || length <= tail ||
        strcmp(name + length - tail, SQRL_TEMPORARY_SUFFIX) != 0)
        return false;
    const char *p = name + length - tail;
    while (p > name && p[-1] != '.')
        p--;
    unsigned long long random;
    int end = 0;
    int fields = sscanf(p, "%8x-%ld-%llu-%16llx%n", &owner->machine, &owner->pid,
                        &owner->start, &random, &end);
    return p > name + 1 && fields == 4 && p + end == name + length - tail &&
           owner->pid > 0;
}

static bool is_dead(const struct owner *owner, uint32_t machine, const struct stat *st) {
    if (owner->machine != machine)
        return time(NULL) - st->st_mtime > FOREIGN_SECONDS;
    if (kill((pid_t)owner->pid, 0) != 0 && errno == ESRCH)
        return true;
    unsigned long long now = start_time(owner->pid);
    return now != 0 && owner->start != 0 && now != owner->start;
}

int sqrl_local_sweep(void *fs, const char *directory, uint64_t *removed,
                     struct sqrl_error *err) {
    DIR *dir = opendir(*directory ? directory : ".");
    if (!dir)
        return sqrl_error_set_errno(err, errno, "can't open the directory");
    uint32_t machine = machine_hash();
    int rc = SQRL_OK;
    for (;;) {
        errno = 0;
        struct dirent *d = readdir(dir);
        if (!d && errno != 0)
            rc = sqrl_error_set_errno(err, errno, "can't list the directory");
        if (!d)
            break;
        struct owner owner;
        struct stat st;
        if (!parse_name(d->d_name, &owner) ||
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode) || !is_dead(&owner, machine, &st))
            continue;
        if (unlinkat(dirfd(dir), d->d_name, 0) == 0) {
            (*removed)++;
        } else if (errno != ENOENT) {
            rc = sqrl_error_set_errno(err, errno, "can't remove the temporary %.200s",
                                      d->d_name);
            break;
        }
    }
    closedir(dir);
    return rc;
}
