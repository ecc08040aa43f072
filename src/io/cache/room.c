/* room.c - the limit, which holds over all processes, without a lock between them.
 *
 * A process that is going to write makes a reservation first: a file whose name says how
 * many bytes. Only then it adds up all reservations and all files of the cache, in this
 * order, and evicts until the sum is within the limit. So whoever reserved last has seen
 * all that others may still write, and what they wrote meanwhile was reserved: the limit
 * holds at any time. What it wrote counts twice until the reservation is used up, and
 * makes room for the next, so one pass over the directory pays for many files.
 *
 * Reservations are named like temporaries: those of dead processes are swept, and those
 * of other machines count for an hour. A living process makes its own anew long before.
 */
#include "io/cache/cache.h"
#include "io/local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RESERVE_MAX (UINT64_C(256) << 20)
#define RENEW_NS (UINT64_C(600) * 1000000000)
#define REFUSED_NS (UINT64_C(2) * 1000000000)
#define FOREIGN_SECONDS 3600
#define SEEN_MAX ((size_t)1 << 24)

void cache_room_init(struct cache_room *room, uint64_t limit) {
    memset(room, 0, sizeof *room);
    sqrl_lock_init(&room->lock);
    room->limit = limit;
}

static void release(struct cache_room *room) {
    if (room->reservation)
        unlink(room->reservation);
    free(room->reservation);
    room->reservation = NULL;
    room->left = 0;
}

static void take_lock(struct cache_room *room) {
    if (sqrl_lock_take(&room->lock)) { /* after a fork: it is the parent's */
        room->reservation = NULL;
        room->left = room->writing = 0;
    }
}

void cache_room_reset(struct cache_room *room) {
    take_lock(room);
    release(room);
    sqrl_lock_drop(&room->lock);
    sqrl_lock_reset(&room->lock);
}

/* --- looking through the directory --- */

static int64_t changed_ns(const struct stat *st) {
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

typedef int (*scan_fn)(void *arg, const struct cache_file_seen *seen);

static int scan_object(int objects, const char *name, struct cache_key key, scan_fn visit,
                       void *arg) {
    int fd = openat(objects, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) { /* evicted meanwhile, or none of ours */
        if (fd >= 0)
            close(fd);
        return 0;
    }
    struct cache_file_seen seen = {.key = key, .kind = 'd', .file_bytes = CACHE_BLOCK};
    int rc = visit(arg, &seen);
    for (struct dirent *d; rc == 0 && (d = readdir(dir));) {
        struct stat st;
        seen = (struct cache_file_seen){.key = key};
        if (!cache_parse_piece(d->d_name, &seen.extent) ||
            fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        seen.used_ns = changed_ns(&st);
        seen.file_bytes = (uint64_t)st.st_size;
        rc = visit(arg, &seen);
    }
    closedir(dir);
    return rc;
}

static int scan_place(int places, const char *name, struct cache_key key, scan_fn visit,
                      void *arg) {
    struct stat st;
    if (strlen(name) != CACHE_NAME + 1 || name[CACHE_NAME - 1] != '.' ||
        fstatat(places, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return 0;
    struct cache_file_seen seen = {.key = key,
                                   .kind = name[CACHE_NAME],
                                   .used_ns = changed_ns(&st),
                                   .file_bytes = (uint64_t)st.st_size};
    return visit(arg, &seen);
}

static int scan_folder(const struct cache_folder *folder, const char *inside,
                       scan_fn visit, void *arg) {
    char path[CACHE_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder->root, inside);
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    int rc = 0;
    for (struct dirent *d; rc == 0 && (d = readdir(dir));) {
        struct cache_key key;
        if (!cache_parse_key(d->d_name, &key))
            continue;
        rc = *inside == 'p' ? scan_place(dirfd(dir), d->d_name, key, visit, arg)
             : d->d_name[CACHE_NAME - 1] == '\0'
                 ? scan_object(dirfd(dir), d->d_name, key, visit, arg)
                 : 0;
    }
    closedir(dir);
    return rc;
}

int cache_scan(const struct cache_folder *folder, scan_fn visit, void *arg) {
    int rc = scan_folder(folder, "objects", visit, arg);
    return rc ? rc : scan_folder(folder, "places", visit, arg);
}

/* --- eviction --- */

struct census {
    struct cache_file_seen *files; /* without folders */
    size_t count, capacity;
    uint64_t bytes; /* with folders */
};

static int census_add(void *arg, const struct cache_file_seen *seen) {
    struct census *census = arg;
    census->bytes += cache_charge(seen->file_bytes);
    if (seen->kind == 'd' || census->count == SEEN_MAX)
        return 0;
    if (census->count == census->capacity) {
        size_t capacity = census->capacity ? 2 * census->capacity : 1024;
        struct cache_file_seen *files = sqrl_realloc(
            census->files, capacity * sizeof *files, "the cache's files", NULL);
        if (!files)
            return -ENOMEM;
        census->files = files;
        census->capacity = capacity;
    }
    census->files[census->count++] = *seen;
    return 0;
}

/* What is known of places is little, and all that finds pieces when the network is down:
 * it goes a day later. */
static int64_t due(const struct cache_file_seen *file) {
    return file->used_ns + (file->kind ? INT64_C(86400) * 1000000000 : 0);
}

static int by_use(const void *a, const void *b) {
    int64_t x = due(a), y = due(b);
    return x < y ? -1 : x > y;
}

/* Bytes that are gone afterwards: also when somebody else was quicker. */
static uint64_t evict_one(const struct cache_folder *folder,
                          const struct cache_file_seen *file,
                          struct cache_evicted *evicted) {
    char path[CACHE_PATH_BYTES];
    if (file->kind)
        cache_place_path(folder, file->key, file->kind, path);
    else
        cache_piece_path(folder, file->key, file->extent, path);
    uint64_t bytes = cache_charge(file->file_bytes);
    if (unlink(path) == 0) {
        evicted->files++;
        evicted->bytes += bytes;
    } else if (errno != ENOENT) {
        return 0;
    }
    if (!file->kind) {
        cache_object_path(folder, file->key, path);
        if (rmdir(path) == 0) /* fails while there are others in it */
            bytes += CACHE_BLOCK;
    }
    return bytes;
}

/* The least recently used first, until `over` bytes are gone; returns what is missing. */
static uint64_t evict(const struct cache_folder *folder, struct census *census,
                      uint64_t over, struct cache_evicted *evicted) {
    if (census->count)
        qsort(census->files, census->count, sizeof *census->files, by_use);
    for (size_t i = 0; i < census->count && over > 0; i++) {
        uint64_t gone = evict_one(folder, &census->files[i], evicted);
        over -= SQRL_MIN(over, gone);
    }
    return over;
}

/* --- reservations --- */

/* The sum of all that count, and how many there are. */
static uint64_t reserved(const struct cache_folder *folder, uint64_t *count) {
    static const char begin[] = ".reserve-";
    char path[CACHE_PATH_BYTES];
    uint64_t sum = 0;
    *count = 0;
    cache_working_path(folder, "", path);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct stat st;
        if (strncmp(d->d_name, begin, sizeof begin - 1) != 0 ||
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            time(NULL) - st.st_mtime > FOREIGN_SECONDS)
            continue;
        sum += strtoull(d->d_name + sizeof begin - 1, NULL, 10);
        ++*count;
    }
    if (dir)
        closedir(dir);
    return sum;
}

static bool reserve(struct cache_room *room, const struct cache_folder *folder,
                    uint64_t bytes, int *failure) {
    char what[40], path[CACHE_PATH_BYTES];
    snprintf(what, sizeof what, "reserve-%llu", (unsigned long long)bytes);
    int fd = cache_temporary(folder, what, path);
    *failure = fd < 0 ? errno : 0;
    if (fd < 0)
        return false;
    close(fd);
    room->reservation = sqrl_strdup(path, NULL);
    if (!room->reservation)
        unlink(path);
    return room->reservation != NULL;
}

/* Without a limit: what leaves a tenth of the disk free. */
static uint64_t limit_now(const struct cache_room *room,
                          const struct cache_folder *folder, uint64_t used) {
    struct statvfs disk;
    if (room->limit)
        return room->limit;
    if (statvfs(folder->root, &disk) != 0)
        return 0;
    uint64_t unit = disk.f_frsize ? disk.f_frsize : disk.f_bsize;
    uint64_t free_bytes = disk.f_bavail * unit, spare = disk.f_blocks * unit / 10;
    return used + (free_bytes > spare ? free_bytes - spare : 0);
}

/* Reserves `want` bytes; false: there is no room even after eviction. */
static bool try_renew(struct cache_room *room, const struct cache_folder *folder,
                      uint64_t want, bool keep, struct cache_evicted *evicted) {
    struct census census = {0};
    uint64_t count, over = 1;
    if (!reserve(room, folder, want + room->writing, &evicted->failure))
        return false;
    uint64_t promised = reserved(folder, &count);
    if (cache_scan(folder, census_add, &census) == 0) {
        uint64_t limit = limit_now(room, folder, census.bytes);
        over = census.bytes + promised > limit ? census.bytes + promised - limit : 0;
        if (over && !keep)
            over = evict(folder, &census, over, evicted);
    }
    free(census.files);
    if (over) {
        release(room);
        return false;
    }
    room->left = want;
    room->taken_ns = sqrl_now_ns();
    return true;
}

static bool renew(struct cache_room *room, const struct cache_folder *folder,
                  uint64_t need, bool keep, struct cache_evicted *evicted) {
    char path[CACHE_PATH_BYTES];
    uint64_t others, removed;
    release(room);
    cache_working_path(folder, "", path);
    (void)!sqrl_local_sweep(NULL, path, &removed, NULL);
    reserved(folder, &others);
    uint64_t want = room->limit ? room->limit / 8 / (others + 1) : RESERVE_MAX;
    want = SQRL_MAX(SQRL_MIN(want, RESERVE_MAX), need);
    return try_renew(room, folder, want, keep, evicted) ||
           (want > need && try_renew(room, folder, need, keep, evicted));
}

bool cache_room_take(struct cache_room *room, const struct cache_folder *folder,
                     uint64_t charge, bool keep, struct cache_evicted *evicted) {
    *evicted = (struct cache_evicted){0, 0, 0};
    take_lock(room);
    uint64_t now = sqrl_now_ns();
    bool current = room->reservation && now - room->taken_ns < RENEW_NS;
    bool taken = current && room->left >= charge;
    if (!taken && now >= room->refused_until) {
        taken = renew(room, folder, charge, keep, evicted);
        room->refused_until = taken ? 0 : sqrl_now_ns() + REFUSED_NS;
    }
    if (taken) {
        room->left -= charge;
        room->writing += charge;
    }
    sqrl_lock_drop(&room->lock);
    return taken;
}

void cache_room_done(struct cache_room *room, uint64_t charge) {
    take_lock(room);
    room->writing -= SQRL_MIN(room->writing, charge);
    sqrl_lock_drop(&room->lock);
}

/* --- a limit that is lower than the one before --- */

/* v1/limit holds the limit that was last enforced. */
static uint64_t last_limit(const struct cache_folder *folder) {
    char path[CACHE_PATH_BYTES], text[32] = "";
    snprintf(path, sizeof path, "%s/limit", folder->root);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 ? strtoull(text, NULL, 10) : UINT64_MAX;
}

static void note_limit(const struct cache_folder *folder, uint64_t limit) {
    char temporary[CACHE_PATH_BYTES], path[CACHE_PATH_BYTES], text[32];
    int size = snprintf(text, sizeof text, "%llu\n", (unsigned long long)limit);
    snprintf(path, sizeof path, "%s/limit", folder->root);
    int fd = cache_temporary(folder, "limit", temporary);
    if (fd < 0)
        return;
    if (write(fd, text, (size_t)size) == size) {
        (void)!cache_publish(folder, fd, temporary, path);
    } else {
        close(fd);
        unlink(temporary);
    }
}

void cache_room_enforce(struct cache_room *room, const struct cache_folder *folder,
                        struct cache_evicted *evicted) {
    *evicted = (struct cache_evicted){0, 0, 0};
    uint64_t last = last_limit(folder);
    if (!room->limit || last == room->limit)
        return;
    if (last > room->limit) {
        take_lock(room);
        release(room);
        (void)!try_renew(room, folder, 0, false, evicted);
        sqrl_lock_drop(&room->lock);
    }
    note_limit(folder, room->limit);
}

/* --- for the tools --- */

int cache_room_prune(const struct cache_folder *folder, uint64_t keep_bytes,
                     uint64_t unused_ns, struct sqrl_cache_report *out,
                     struct sqrl_error *err) {
    struct census census = {0};
    struct cache_evicted evicted = {0, 0, 0};
    int rc = cache_scan(folder, census_add, &census);
    if (rc) {
        free(census.files);
        return sqrl_error_set_errno(err, -rc, "the cache can't be looked through");
    }
    if (census.count)
        qsort(census.files, census.count, sizeof *census.files, by_use);
    int64_t now = sqrl_wall_ns();
    uint64_t left = census.bytes;
    for (size_t i = 0; i < census.count; i++) {
        uint64_t idle = (uint64_t)SQRL_MAX(now - census.files[i].used_ns, 0);
        if (idle <= unused_ns && left <= keep_bytes)
            continue;
        left -= SQRL_MIN(left, evict_one(folder, &census.files[i], &evicted));
    }
    out->files = census.count;
    out->bytes = census.bytes;
    out->removed_files = evicted.files;
    out->removed_bytes = evicted.bytes;
    free(census.files);
    return SQRL_OK;
}
