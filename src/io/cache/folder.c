/* folder.c - the cache's directory: names, temporaries, giving a file its name. */
#include "io/cache/cache.h"
#include "io/local.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAKE_TRIES 64
#define ROOT_MAX 3500
#define TAG "CACHEDIR.TAG"

/* The signature that the Cache Directory Tagging Specification asks for. */
static const char tag_text[] =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# A cache of squirrel: everything in v1/ can be fetched again.\n"
    "# `squirrel cache ls|verify|prune` looks after it.\n";

static int make_directory(const char *path) {
    struct stat st;
    if (mkdir(path, 0777) == 0)
        return 0;
    int failure = errno;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0
           : failure == EEXIST                         ? ENOTDIR
                                                       : failure;
}

/* With parents. */
static int make_all(char *path) {
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        int failure = make_directory(path);
        *p = '/';
        if (failure)
            return failure;
    }
    return make_directory(path);
}

int cache_folder_make(const struct cache_folder *folder) {
    static const char *const inside[] = {"objects", "places", "working"};
    char path[CACHE_PATH_BYTES];
    snprintf(path, sizeof path, "%s", folder->root);
    int failure = make_all(path);
    for (size_t i = 0; i < SQRL_COUNT_OF(inside) && !failure; i++) {
        snprintf(path, sizeof path, "%s/%s", folder->root, inside[i]);
        failure = make_directory(path);
    }
    return failure;
}

/* A tag beside v1; it may be missing. */
static void put_tag(const struct cache_folder *folder) {
    char path[CACHE_PATH_BYTES];
    snprintf(path, sizeof path, "%.*s/" TAG, (int)(folder->root_size - 3), folder->root);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    ssize_t n = write(fd, tag_text, sizeof tag_text - 1);
    (void)n;
    close(fd);
}

/* Can files be made, renamed and removed here? */
static int try_writing(const struct cache_folder *folder) {
    char path[CACHE_PATH_BYTES];
    int fd = cache_temporary(folder, "try", path);
    if (fd < 0)
        return errno;
    close(fd);
    return unlink(path) == 0 ? 0 : errno;
}

static int make_whole(const struct cache_folder *folder, struct sqrl_error *err) {
    int failure = ENOENT;
    /* Whoever empties the cache may remove what was made just now. */
    for (int tries = 0; failure == ENOENT && tries < MAKE_TRIES; tries++) {
        failure = cache_folder_make(folder);
        if (!failure)
            failure = try_writing(folder);
    }
    if (failure)
        return sqrl_error_set_errno(err, failure,
                                    "the cache can't be written: make the directory "
                                    "writable, name another, or open without a cache");
    put_tag(folder);
    return SQRL_OK;
}

int cache_folder_open(const char *cache, bool make, struct cache_folder *out,
                      struct sqrl_error *err) {
    *out = (struct cache_folder){NULL, 0};
    const char *mark = strrchr(cache, '?');
    size_t size = mark ? (size_t)(mark - cache) : strlen(cache);
    while (size > 1 && cache[size - 1] == '/')
        size--;
    if (size == 0)
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "cache: names no directory; \"/scratch/cache?limit=200GiB\" "
            "is what it looks like");
    char *working = *cache == '/' ? NULL : getcwd(NULL, 0);
    if (*cache != '/' && !working)
        return sqrl_error_set_errno(err, errno, "the working directory can't be told");
    out->root = sqrl_format(err, "%s%s%.*s/v1", working ? working : "",
                            working ? "/" : "", (int)size, cache);
    free(working);
    if (!out->root)
        return SQRL_E_NO_MEMORY;
    out->root_size = strlen(out->root);
    struct stat st;
    int rc = SQRL_OK;
    if (out->root_size > ROOT_MAX)
        rc = sqrl_error_set(err, SQRL_E_LIMIT, "the path of the cache is too long");
    else if (make)
        rc = make_whole(out, err);
    else if (stat(out->root, &st) != 0)
        rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                            "there is no cache here; name the directory that was given "
                            "as cache=");
    if (rc != SQRL_OK) {
        sqrl_error_at(err, rc, "cache %.*s", (int)size, cache);
        cache_folder_reset(out);
    }
    return rc;
}

void cache_folder_reset(struct cache_folder *folder) {
    free(folder->root);
    *folder = (struct cache_folder){NULL, 0};
}

/* --- names --- */

void cache_key_text(struct cache_key key, char out[CACHE_NAME]) {
    snprintf(out, CACHE_NAME, "%016llx%016llx", (unsigned long long)key.a,
             (unsigned long long)key.b);
}

static bool parse_hex(const char *text, size_t digits, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = text[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit == 16)
            return false;
        *out = *out << 4 | digit;
    }
    return true;
}

bool cache_parse_key(const char *text, struct cache_key *out) {
    return strlen(text) >= CACHE_NAME - 1 && parse_hex(text, 16, &out->a) &&
           parse_hex(text + 16, 16, &out->b);
}

/* "00000000012c0000-00400000" */
bool cache_parse_piece(const char *name, struct cache_extent *out) {
    return strlen(name) == 25 && name[16] == '-' && parse_hex(name, 16, &out->offset) &&
           parse_hex(name + 17, 8, &out->size) && out->size > 0 &&
           out->size <= CACHE_SLOT && out->offset <= INT64_MAX &&
           out->offset % CACHE_GRAIN == 0;
}

void cache_object_path(const struct cache_folder *folder, struct cache_key key,
                       char *out) {
    char name[CACHE_NAME];
    cache_key_text(key, name);
    snprintf(out, CACHE_PATH_BYTES, "%s/objects/%s", folder->root, name);
}

void cache_piece_path(const struct cache_folder *folder, struct cache_key key,
                      struct cache_extent extent, char *out) {
    char name[CACHE_NAME];
    cache_key_text(key, name);
    snprintf(out, CACHE_PATH_BYTES, "%s/objects/%s/%016llx-%08llx", folder->root, name,
             (unsigned long long)extent.offset, (unsigned long long)extent.size);
}

void cache_place_path(const struct cache_folder *folder, struct cache_key key, char kind,
                      char *out) {
    char name[CACHE_NAME];
    cache_key_text(key, name);
    snprintf(out, CACHE_PATH_BYTES, "%s/places/%s.%c", folder->root, name, kind);
}

void cache_working_path(const struct cache_folder *folder, const char *name, char *out) {
    snprintf(out, CACHE_PATH_BYTES, "%s/working/%s", folder->root, name);
}

uint64_t cache_charge(uint64_t file_bytes) {
    return (file_bytes + CACHE_BLOCK - 1) / CACHE_BLOCK * CACHE_BLOCK;
}

/* --- temporaries --- */

int cache_temporary(const struct cache_folder *folder, const char *what, char *path) {
    for (int i = 0; i < 3; i++) {
        char *name = sqrl_local_temporary_name(what, NULL);
        if (!name) {
            errno = ENOMEM;
            return -1;
        }
        cache_working_path(folder, name, path);
        free(name);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            return fd;
        /* The whole directory may have been removed beneath us. */
        if (errno == ENOENT && (errno = cache_folder_make(folder)) != 0)
            return -1;
        if (errno != 0 && errno != EEXIST)
            return -1;
    }
    errno = EEXIST;
    return -1;
}

int cache_publish(const struct cache_folder *folder, int fd, const char *temporary,
                  const char *path) {
    int failure = close(fd) == 0 || errno == EINTR ? 0 : errno;
    for (int i = 0; i < 3 && !failure; i++) {
        if (rename(temporary, path) == 0)
            return 0;
        failure = errno;
        if (failure != ENOENT)
            break;
        /* The object's folder is not there yet, or was just removed as empty. */
        char parent[CACHE_PATH_BYTES];
        snprintf(parent, sizeof parent, "%s", path);
        *strrchr(parent, '/') = '\0';
        int made = cache_folder_make(folder);
        failure = made ? made : make_directory(parent);
        if (failure == 0 && i == 2)
            failure = ENOENT;
    }
    unlink(temporary);
    return failure;
}
