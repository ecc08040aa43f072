/* python_names.c - which Python packages own the import name "squirrel".
 *
 * squirrel-core and this package install into the same folder: pip lays one over the
 * other without a word. Each leaves its metadata beside it, which tell. */
#include "cli.h"

#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_prefix(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool has_suffix(const char *name, const char *suffix) {
    size_t size = strlen(name), tail = strlen(suffix);
    return size >= tail && strcmp(name + size - tail, suffix) == 0;
}

/* Whether a folder of packages holds the metadata of both. */
static bool holds_both(const char *folder) {
    bool ours = false, theirs = false;
    DIR *directory = opendir(folder);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (!has_suffix(entry->d_name, ".dist-info"))
            continue;
        ours |= has_prefix(entry->d_name, "squirrel_c-");
        theirs |= has_prefix(entry->d_name, "squirrel_core-");
    }
    if (directory)
        closedir(directory);
    return ours && theirs;
}

/* Looks into PREFIX/lib/python3.NN/site-packages, dist-packages too. */
static bool look_below(const char *prefix, char *out, size_t size) {
    static const char *const kinds[] = {"site-packages", "dist-packages"};
    char path[PATH_MAX];
    bool found = false;
    snprintf(path, sizeof path, "%s/lib", prefix);
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory && !found && (entry = readdir(directory))) {
        if (!has_prefix(entry->d_name, "python3"))
            continue;
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !found; i++) {
            int length =
                snprintf(out, size, "%s/lib/%s/%s", prefix, entry->d_name, kinds[i]);
            found = length > 0 && (size_t)length < size && holds_both(out);
        }
    }
    if (directory)
        closedir(directory);
    return found;
}

bool cli_python_names_clash(char *out, size_t size) {
    char self[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *prefixes[] = {getenv("VIRTUAL_ENV"), NULL, getenv("CONDA_PREFIX")};
    if (length > 0) {
        self[length] = '\0';
        prefixes[1] = dirname(dirname(self)); /* PREFIX/bin/squirrel */
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (prefixes[i] && look_below(prefixes[i], out, size))
            return true;
    return false;
}
