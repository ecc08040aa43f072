/* place.c - what is known of a URL: what its lookup gave, or its listing.
 *
 * One small file each, written whole and renamed. Its time of change is when it was last
 * found current, so confirming it is one utimes. Reading trusts nothing: a file that
 * doesn't fit is as good as none. */
#include "io/cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "SQRLPLC1"
#define FILE_MAX ((size_t)64 << 20)

struct header {
    char magic[8];
    uint64_t checksum; /* of all behind this field */
    struct cache_key key;
    uint32_t kind, code;
    uint64_t size;
    int64_t modified_ns;
    uint64_t entries_size;
    uint32_t message_size, directory;
    char etag[72];
};
_Static_assert(sizeof(struct header) == 144, "it is a file's layout");
#define CHECKED offsetof(struct header, key)

/* --- entries of listings --- */

struct entry {
    uint64_t size;
    int64_t modified_ns;
    uint32_t name_size;
    uint16_t directory, etag_size;
};

int cache_entries_add(struct sqrl_bytes *out, const char *name,
                      const struct sqrl_stat *stat, struct sqrl_error *err) {
    size_t name_size = strlen(name);
    if (out->size + name_size + sizeof(struct entry) + 80 > FILE_MAX - 4096)
        return sqrl_error_set(err, SQRL_E_LIMIT, "too large a listing for the cache");
    struct entry entry = {stat->size, stat->modified_ns, (uint32_t)name_size,
                          stat->directory, (uint16_t)strlen(stat->etag)};
    int rc = sqrl_bytes_append(out, &entry, sizeof entry, err);
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(out, name, name_size + 1, err);
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(out, stat->etag, entry.etag_size, err);
    return rc;
}

/* The entry at *at; false: no whole one is there. */
static bool next_entry(const struct sqrl_bytes *entries, size_t *at, const char **name,
                       struct sqrl_stat *stat) {
    struct entry entry;
    size_t left = entries->size - *at;
    if (left < sizeof entry)
        return false;
    memcpy(&entry, entries->data + *at, sizeof entry);
    left -= sizeof entry;
    if (entry.etag_size >= sizeof stat->etag ||
        left < (uint64_t)entry.name_size + 1 + entry.etag_size)
        return false;
    *name = (const char *)entries->data + *at + sizeof entry;
    if ((*name)[entry.name_size] != '\0')
        return false;
    memset(stat, 0, sizeof *stat);
    stat->size = entry.size;
    stat->modified_ns = entry.modified_ns;
    stat->directory = entry.directory != 0;
    memcpy(stat->etag, *name + entry.name_size + 1, entry.etag_size);
    *at += sizeof entry + entry.name_size + 1 + entry.etag_size;
    return true;
}

int cache_entries_visit(const struct sqrl_bytes *entries, sqrl_list_fn visit, void *arg,
                        const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_stat stat;
    const char *name;
    int rc = SQRL_OK;
    for (size_t at = 0; rc == SQRL_OK && next_entry(entries, &at, &name, &stat);)
        rc = sqrl_cancel_requested(cancel)
                 ? sqrl_error_set(err, SQRL_E_CANCELLED, "listing was cancelled")
                 : visit(arg, name, &stat);
    return rc;
}

/* --- files --- */

static int encode(struct sqrl_bytes *out, struct cache_key key, char kind,
                  const struct cache_place *place) {
    struct header header = {.key = key,
                            .kind = (uint32_t)kind,
                            .code = (uint32_t)place->code,
                            .size = place->stat.size,
                            .modified_ns = place->stat.modified_ns,
                            .entries_size = place->entries.size,
                            .message_size = (uint32_t)strlen(place->message),
                            .directory = place->stat.directory};
    memcpy(header.magic, MAGIC, sizeof header.magic);
    memcpy(header.etag, place->stat.etag, strlen(place->stat.etag));
    int rc = sqrl_bytes_append(out, &header, sizeof header, NULL);
    if (rc == SQRL_OK)
        rc = sqrl_bytes_append(out, place->message, header.message_size, NULL);
    if (rc == SQRL_OK && place->entries.size)
        rc = sqrl_bytes_append(out, place->entries.data, place->entries.size, NULL);
    if (rc == SQRL_OK)
        sqrl_store_le64(out->data + offsetof(struct header, checksum),
                        sqrl_xxh3(out->data + CHECKED, out->size - CHECKED));
    return rc;
}

static int write_file(const struct cache_folder *folder, const struct sqrl_bytes *text,
                      const char *path) {
    char temporary[CACHE_PATH_BYTES];
    int fd = cache_temporary(folder, "place", temporary);
    if (fd < 0)
        return errno;
    for (size_t done = 0; done < text->size;) {
        ssize_t n = write(fd, text->data + done, text->size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int failure = errno;
            close(fd);
            unlink(temporary);
            return failure;
        }
        done += (size_t)n;
    }
    return cache_publish(folder, fd, temporary, path);
}

/* The whole file; false: it is not there, or not as it should be. */
static bool read_file(const char *path, struct sqrl_bytes *out, struct stat *st) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool good = fd >= 0 && fstat(fd, st) == 0 && S_ISREG(st->st_mode) &&
                (size_t)st->st_size >= sizeof(struct header) &&
                (size_t)st->st_size <= FILE_MAX;
    if (good)
        good = sqrl_bytes_reserve(out, (size_t)st->st_size, NULL) == SQRL_OK;
    while (good && out->size < (size_t)st->st_size) {
        ssize_t n = read(fd, out->data + out->size, (size_t)st->st_size - out->size);
        if (n < 0 && errno == EINTR)
            continue;
        good = n > 0;
        out->size += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    struct header header;
    if (good) {
        memcpy(&header, out->data, sizeof header);
        good = memcmp(header.magic, MAGIC, sizeof header.magic) == 0 &&
               header.message_size < SQRL_ERROR_MESSAGE_BYTES &&
               header.etag[sizeof header.etag - 1] == '\0' &&
               header.entries_size <= FILE_MAX &&
               sizeof header + header.message_size + header.entries_size == out->size &&
               header.checksum == sqrl_xxh3(out->data + CHECKED, out->size - CHECKED);
    }
    return good;
}

static int64_t changed_ns(const struct stat *st) {
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

bool cache_place_read(const struct cache_folder *folder, struct cache_key key, char kind,
                      struct cache_place *out) {
    struct sqrl_bytes text = {0};
    struct header header;
    struct stat st;
    char path[CACHE_PATH_BYTES];
    memset(out, 0, sizeof *out);
    cache_place_path(folder, key, kind, path);
    bool good = read_file(path, &text, &st);
    if (good) {
        memcpy(&header, text.data, sizeof header);
        good = header.key.a == key.a && header.key.b == key.b &&
               header.kind == (uint32_t)kind;
    }
    if (good) {
        out->code = (int)header.code;
        out->stat = (struct sqrl_stat){
            header.size, header.modified_ns, header.directory != 0, {0}};
        memcpy(out->stat.etag, header.etag, sizeof out->stat.etag);
        memcpy(out->message, text.data + sizeof header, header.message_size);
        out->age_ns = SQRL_MAX(sqrl_wall_ns() - changed_ns(&st), 0);
        good = sqrl_bytes_append(&out->entries,
                                 text.data + sizeof header + header.message_size,
                                 header.entries_size, NULL) == SQRL_OK;
    }
    sqrl_bytes_reset(&text);
    return good;
}

void cache_place_reset(struct cache_place *place) {
    sqrl_bytes_reset(&place->entries);
}

bool cache_place_inspect(const char *path, int64_t *checked_ns) {
    struct sqrl_bytes text = {0};
    struct stat st;
    bool good = read_file(path, &text, &st);
    *checked_ns = good ? changed_ns(&st) : 0;
    sqrl_bytes_reset(&text);
    return good;
}

static bool same(const struct cache_place *a, const struct cache_place *b) {
    return a->code == b->code && a->stat.size == b->stat.size &&
           a->stat.modified_ns == b->stat.modified_ns &&
           a->stat.directory == b->stat.directory &&
           strcmp(a->stat.etag, b->stat.etag) == 0 &&
           strcmp(a->message, b->message) == 0 && a->entries.size == b->entries.size &&
           (a->entries.size == 0 ||
            memcmp(a->entries.data, b->entries.data, a->entries.size) == 0);
}

void cache_place_keep(struct cache *cache, struct cache_key key, char kind,
                      const struct cache_place *place) {
    struct cache_place old;
    char path[CACHE_PATH_BYTES];
    if (!cache_may_write(cache))
        return;
    cache_place_path(&cache->folder, key, kind, path);
    bool confirmed =
        cache_place_read(&cache->folder, key, kind, &old) && same(&old, place);
    cache_place_reset(&old);
    if (confirmed && (old.age_ns < 1000000000 || utimensat(AT_FDCWD, path, NULL, 0) == 0))
        return;
    struct sqrl_bytes text = {0};
    if (encode(&text, key, kind, place) == SQRL_OK) {
        uint64_t charge = cache_charge(text.size);
        if (cache_take(cache, charge))
            cache_done(cache, charge, write_file(&cache->folder, &text, path));
    }
    sqrl_bytes_reset(&text);
}
