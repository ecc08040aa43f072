/* threads.c - how many threads this process should use.
 *
 * A container's quota is seldom visible in the number of processors. The process's cgroup
 * comes from /proc/self/cgroup, where it is mounted from /proc/self/mountinfo; the quota
 * of every ancestor counts too, so the walk goes up to the mount point and takes the
 * least. Whatever can't be read means no quota. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "inner.h"

#define LINE_BYTES 4096
#define MAX_CPUS 65536

enum hierarchy { CGROUP_V1, CGROUP_V2 };

/* True when `word` is one of the comma-separated words of `list`. */
static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == list || at[-1] == ',';
        bool ends = at[length] == ',' || at[length] == 0;
        if (begins && ends)
            return true;
    }
    return false;
}

/* Opens root + path for reading, or NULL. */
static FILE *open_below(const char *root, const char *path) {
    char name[PATH_MAX];
    int length = snprintf(name, sizeof name, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof name)
        return NULL;
    return fopen(name, "re");
}

/* The process's path in a hierarchy: lines "4:cpu,cpuacct:/path" (v1) and "0::/path"
 * (v2). */
static bool read_own_path(const char *root, enum hierarchy kind, char *out) {
    FILE *file = open_below(root, "/proc/self/cgroup");
    if (file == NULL)
        return false;
    char line[LINE_BYTES];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *controllers++ = 0;
        *path++ = 0;
        found = kind == CGROUP_V2 ? strcmp(line, "0") == 0 && controllers[0] == 0
                                  : has_word(controllers, "cpu");
        if (found)
            memcpy(out, path, strlen(path) + 1);
    }
    fclose(file);
    return found;
}

/* Spaces and backslashes of a path stand in mountinfo as \040 and so on. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != 0; to++) {
        bool octal = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' &&
                     from[2] >= '0' && from[2] <= '7' && from[3] >= '0' && from[3] <= '7';
        *to = octal
                  ? (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'))
                  : *from;
        from += octal ? 4 : 1;
    }
    *to = 0;
}

/* One line: "36 35 98:0 ROOT POINT options [tags] - TYPE SOURCE SUPER". Splits it in
 * place. */
static bool match_mount(char *line, enum hierarchy kind, char **top, char **point) {
    char *tail = strstr(line, " - ");
    if (tail == NULL)
        return false;
    *tail = 0;
    char *save = NULL;
    char *type = strtok_r(tail + 3, " \n", &save);
    strtok_r(NULL, " \n", &save);
    char *super = strtok_r(NULL, " \n", &save);
    if (type == NULL || strcmp(type, kind == CGROUP_V2 ? "cgroup2" : "cgroup") != 0)
        return false;
    if (kind == CGROUP_V1 && (super == NULL || !has_word(super, "cpu")))
        return false;
    char *field = strtok_r(line, " ", &save);
    for (int i = 0; i < 3 && field != NULL; i++)
        field = strtok_r(NULL, " ", &save);
    *top = field;
    *point = strtok_r(NULL, " ", &save);
    if (*point == NULL)
        return false;
    unescape(*top);
    unescape(*point);
    return true;
}

/* The directory of `path` below the hierarchy's mount point, `*base` the mount point's
 * length. A path outside what is mounted (a container that sees only its own part) is the
 * mount point. */
static bool find_directory(const char *root, enum hierarchy kind, const char *path,
                           char *out, size_t *base) {
    FILE *file = open_below(root, "/proc/self/mountinfo");
    if (file == NULL)
        return false;
    char line[LINE_BYTES];
    char *top = NULL, *point = NULL;
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = match_mount(line, kind, &top, &point);
    fclose(file);
    if (!found)
        return false;
    size_t cut = strcmp(top, "/") == 0 ? 0 : strlen(top);
    bool below = strncmp(path, top, cut) == 0 && (path[cut] == '/' || path[cut] == 0) &&
                 strstr(path, "/..") == NULL;
    int length = snprintf(out, PATH_MAX, "%s%s", point, below ? path + cut : "");
    *base = strlen(point);
    return length > 0 && length < PATH_MAX;
}

static bool read_line(const char *root, const char *directory, const char *name,
                      char *line) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = open_below(root, path);
    if (file == NULL)
        return false;
    bool read = fgets(line, LINE_BYTES, file) != NULL;
    fclose(file);
    return read;
}

/* Thousandths of a CPU that one directory grants, 0 for no quota. */
static uint64_t directory_quota(const char *root, enum hierarchy kind,
                                const char *directory) {
    char line[LINE_BYTES];
    long long quota = 0, period = 0;
    if (kind == CGROUP_V2) {
        if (!read_line(root, directory, "cpu.max", line) ||
            sscanf(line, "%lld %lld", &quota, &period) != 2)
            return 0; /* "max 100000" */
    } else {
        if (!read_line(root, directory, "cpu.cfs_quota_us", line) ||
            sscanf(line, "%lld", &quota) != 1 ||
            !read_line(root, directory, "cpu.cfs_period_us", line) ||
            sscanf(line, "%lld", &period) != 1)
            return 0;
    }
    if (quota <= 0 || period <= 0 || quota > LLONG_MAX / 1000)
        return 0;
    uint64_t millis = (uint64_t)(quota * 1000 / period);
    return SQRL_MAX(millis, (uint64_t)1);
}

static uint64_t least_quota(uint64_t a, uint64_t b) {
    return a == 0 ? b : b == 0 ? a : SQRL_MIN(a, b);
}

static uint64_t hierarchy_quota(const char *root, enum hierarchy kind) {
    char path[LINE_BYTES], directory[PATH_MAX];
    size_t base;
    if (!read_own_path(root, kind, path) ||
        !find_directory(root, kind, path, directory, &base))
        return 0;
    uint64_t least = 0;
    for (;;) {
        least = least_quota(least, directory_quota(root, kind, directory));
        char *slash = strrchr(directory + base, '/');
        if (slash == NULL)
            return least;
        *slash = 0;
    }
}

uint64_t sqrl_cgroup_quota(const char *root) {
    return least_quota(hierarchy_quota(root, CGROUP_V2),
                       hierarchy_quota(root, CGROUP_V1));
}

/* The kernel refuses a mask shorter than its own: try larger ones. */
static unsigned affinity_cpus(void) {
    for (int cpus = 1024; cpus <= MAX_CPUS; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (set == NULL)
            return 1;
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        int failed = sched_getaffinity(0, size, set) == 0 ? 0 : errno;
        unsigned count = failed ? 0 : (unsigned)CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (count > 0)
            return count;
        if (failed != EINVAL)
            return 1;
    }
    return 1;
}

unsigned sqrl_threads_from(unsigned cpus, uint64_t quota_millis, unsigned siblings) {
    uint64_t threads = cpus;
    if (quota_millis > 0)
        threads = SQRL_MIN(threads, quota_millis / 1000 + (quota_millis % 1000 != 0));
    threads /= SQRL_MAX(siblings, 1u);
    return (unsigned)SQRL_MAX(threads, (uint64_t)1);
}

unsigned sqrl_default_threads(unsigned siblings) {
    return sqrl_threads_from(affinity_cpus(), sqrl_cgroup_quota(""), siblings);
}
