/* piece.c - one file of data: a header that says what it is, checksums, bytes.
 *
 * A checksum covers 16 KiB. A read is one preadv per 256 KiB: the caller's memory between
 * the few bytes that fill up the first and the last checksum's span, so nothing is copied
 * and all of it is checked while it is warm. It is checked at every read: that costs some
 * per cent of the copy, and a file that is damaged after it was opened is noticed too.
 *
 * Pieces are not synced: after a loss of power one may be short or full of zeros, which
 * the checksums tell. */
#include "io/cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC "SQRLPCE1"
#define HEADER_MAX 4096
#define CALL_BYTES ((size_t)256 << 10)
#define WRITE_PIECES 256
#define READ_PIECES 64

struct header {
    char magic[8];
    uint64_t
        checksum; /* of the header with 0 here, and all that stands before the data */
    uint32_t header_bytes, check_bytes;
    struct cache_key place, key;
    uint64_t object_size, offset, size;
    int64_t fetched_ns;
    uint16_t version_size, url_size;
    uint32_t reserved;
    /* then a checksum (8 bytes) for each CACHE_CHECK bytes, version, url, zeros */
};
_Static_assert(sizeof(struct header) == 96, "it is a file's layout");
_Static_assert(sizeof(struct header) + CACHE_SLOT / CACHE_CHECK * 8 +
                       CACHE_VERSION_BYTES + CACHE_URL_BYTES <=
                   HEADER_MAX,
               "it is read with one call");

static size_t check_count(uint64_t size) {
    return (size_t)((size + CACHE_CHECK - 1) / CACHE_CHECK);
}

static size_t url_size(const struct cache_object *object) {
    return SQRL_MIN(strlen(object->url), (size_t)CACHE_URL_BYTES);
}

/* A page for large pieces, so that their bytes are aligned. */
static size_t header_size(const struct cache_object *object, uint64_t size) {
    size_t used = sizeof(struct header) + check_count(size) * 8 +
                  strlen(object->version) + url_size(object);
    return size >= CACHE_GRAIN ? HEADER_MAX : (used + 63) / 64 * 64;
}

uint64_t cache_piece_bytes(const struct cache_object *object,
                           struct cache_extent extent) {
    return header_size(object, extent.size) + extent.size;
}

/* --- writing --- */

/* Walks over the parts. */
struct cursor {
    const struct sqrl_range *parts;
    size_t count, at;
    uint64_t offset;
};

/* The next bytes in one place, at most `size`. */
static const uint8_t *take(struct cursor *c, size_t size, size_t *got) {
    while (c->at < c->count && c->parts[c->at].offset + c->parts[c->at].size <= c->offset)
        c->at++;
    const struct sqrl_range *part = &c->parts[c->at];
    size_t inside = (size_t)(c->offset - part->offset);
    *got = SQRL_MIN(size, part->size - inside);
    c->offset += *got;
    return part->data + inside;
}

static uint64_t next_checksum(struct cursor *c, size_t size) {
    size_t got;
    const uint8_t *data = take(c, size, &got);
    if (got == size)
        return sqrl_xxh3(data, size);
    struct sqrl_xxh3_state state;
    sqrl_xxh3_init(&state);
    for (;;) {
        sqrl_xxh3_update(&state, data, got);
        size -= got;
        if (size == 0)
            return sqrl_xxh3_digest(&state);
        data = take(c, size, &got);
    }
}

static size_t make_header(uint8_t room[HEADER_MAX], const struct cache_object *object,
                          struct cache_extent extent, struct cursor data) {
    struct header header = {.header_bytes = (uint32_t)header_size(object, extent.size),
                            .check_bytes = CACHE_CHECK,
                            .place = object->place,
                            .key = object->key,
                            .object_size = object->size,
                            .offset = extent.offset,
                            .size = extent.size,
                            .fetched_ns = sqrl_wall_ns(),
                            .version_size = (uint16_t)strlen(object->version),
                            .url_size = (uint16_t)url_size(object)};
    memcpy(header.magic, MAGIC, sizeof header.magic);
    memset(room, 0, HEADER_MAX);
    uint8_t *to = room + sizeof header;
    for (uint64_t done = 0; done < extent.size; done += CACHE_CHECK, to += 8)
        sqrl_store_le64(to, next_checksum(&data, (size_t)SQRL_MIN((uint64_t)CACHE_CHECK,
                                                                  extent.size - done)));
    memcpy(to, object->version, header.version_size);
    memcpy(to + header.version_size, object->url, header.url_size);
    memcpy(room, &header, sizeof header);
    header.checksum = sqrl_xxh3(room, header.header_bytes);
    memcpy(room, &header, sizeof header);
    return header.header_bytes;
}

/* All of it; 0 or an errno. */
static int write_all(int fd, struct iovec *iov, int count) {
    while (count > 0) {
        ssize_t n = writev(fd, iov, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        size_t left = (size_t)n;
        while (count > 0 && left >= iov->iov_len) {
            left -= iov->iov_len;
            iov++;
            count--;
        }
        if (count > 0) {
            iov->iov_base = (char *)iov->iov_base + left;
            iov->iov_len -= left;
        }
    }
    return 0;
}

static int write_piece(int fd, uint8_t *header, size_t header_bytes, struct cursor data,
                       uint64_t size) {
    struct iovec iov[WRITE_PIECES] = {{header, header_bytes}};
    int count = 1, failure = 0;
    while (size > 0 && failure == 0) {
        size_t got;
        iov[count].iov_base = (void *)(uintptr_t)take(&data, (size_t)size, &got);
        iov[count++].iov_len = got;
        size -= got;
        if (count == WRITE_PIECES || size == 0) {
            failure = write_all(fd, iov, count);
            count = 0;
        }
    }
    return failure;
}

int cache_piece_write(const struct cache_folder *folder,
                      const struct cache_object *object, struct cache_extent extent,
                      const struct sqrl_range *parts, size_t count) {
    uint8_t header[HEADER_MAX];
    char temporary[CACHE_PATH_BYTES], path[CACHE_PATH_BYTES];
    const struct cursor data = {parts, count, 0, extent.offset};
    size_t header_bytes = make_header(header, object, extent, data);
    cache_piece_path(folder, object->key, extent, path);
    int fd = cache_temporary(folder, "piece", temporary);
    if (fd < 0)
        return errno;
    int failure = write_piece(fd, header, header_bytes, data, extent.size);
    if (failure == 0)
        return cache_publish(folder, fd, temporary, path);
    close(fd);
    unlink(temporary);
    return failure;
}

/* --- reading --- */

/* Exactly so many bytes. */
static enum cache_found read_all(int fd, struct iovec *iov, int count, uint64_t offset,
                                 size_t size) {
    while (size > 0) {
        ssize_t n = preadv(fd, iov, count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return CACHE_GONE; /* ESTALE, EIO: whatever it is, it can be fetched again */
        if (n == 0)
            return CACHE_DAMAGED;
        size -= (size_t)n;
        offset += (uint64_t)n;
        size_t left = (size_t)n;
        while (count > 0 && left >= iov->iov_len) {
            left -= iov->iov_len;
            iov++;
            count--;
        }
        if (count > 0) {
            iov->iov_base = (char *)iov->iov_base + left;
            iov->iov_len -= left;
        }
    }
    return CACHE_HIT;
}

/* Reads the header and checks it against itself and the file's size. */
static enum cache_found read_header(int fd, uint64_t file_bytes,
                                    uint8_t room[HEADER_MAX]) {
    struct header header;
    size_t size = (size_t)SQRL_MIN((uint64_t)HEADER_MAX, file_bytes);
    struct iovec iov = {room, size};
    if (size < sizeof header)
        return CACHE_DAMAGED;
    enum cache_found found = read_all(fd, &iov, 1, 0, size);
    if (found != CACHE_HIT)
        return found;
    memcpy(&header, room, sizeof header);
    if (memcmp(header.magic, MAGIC, sizeof header.magic) != 0 ||
        header.header_bytes < sizeof header || header.header_bytes > size ||
        header.check_bytes != CACHE_CHECK || header.size == 0 ||
        header.size > CACHE_SLOT || header.size + header.header_bytes != file_bytes ||
        header.version_size >= CACHE_VERSION_BYTES || header.url_size > CACHE_URL_BYTES ||
        sizeof header + check_count(header.size) * 8 + header.version_size +
                header.url_size >
            header.header_bytes)
        return CACHE_DAMAGED;
    memset(room + offsetof(struct header, checksum), 0, sizeof header.checksum);
    return sqrl_xxh3(room, header.header_bytes) == header.checksum ? CACHE_HIT
                                                                   : CACHE_DAMAGED;
}

/* Bytes [low, high) of the piece, which lie in iov, against their checksums. */
static bool spans_good(const uint8_t *checks, const struct iovec *iov, int count,
                       uint64_t low, uint64_t high) {
    struct sqrl_range parts[READ_PIECES];
    uint64_t at = low;
    for (int i = 0; i < count; i++) {
        parts[i] = (struct sqrl_range){at, iov[i].iov_len, iov[i].iov_base, 0};
        at += iov[i].iov_len;
    }
    struct cursor data = {parts, (size_t)count, 0, low};
    for (; low < high; low += CACHE_CHECK)
        if (next_checksum(&data, (size_t)SQRL_MIN((uint64_t)CACHE_CHECK, high - low)) !=
            sqrl_load_le64(checks + low / CACHE_CHECK * 8))
            return false;
    return true;
}

static uint64_t span_end(uint64_t at, uint64_t size) {
    return SQRL_MIN((at + CACHE_CHECK - 1) / CACHE_CHECK * CACHE_CHECK, size);
}

/* One call's worth of [at, end) of the piece to where `to` stands; moves *at on. */
static enum cache_found read_some(int fd, const uint8_t *header, uint64_t *at,
                                  uint64_t end, struct cursor *to) {
    struct header h;
    uint8_t before[CACHE_CHECK], behind[CACHE_CHECK];
    struct iovec iov[READ_PIECES], used[READ_PIECES];
    memcpy(&h, header, sizeof h);
    uint64_t low = *at / CACHE_CHECK * CACHE_CHECK;
    uint64_t stop = SQRL_MIN(span_end(low + CALL_BYTES, h.size), end);
    int count = 0;
    iov[count++] = (struct iovec){before, (size_t)(*at - low)};
    while (*at < stop && count < READ_PIECES - 1) {
        size_t got;
        uint8_t *data = (uint8_t *)(uintptr_t)take(to, (size_t)(stop - *at), &got);
        iov[count++] = (struct iovec){data, got};
        *at += got;
    }
    uint64_t high = span_end(*at, h.size);
    iov[count++] = (struct iovec){behind, (size_t)(high - *at)};
    memcpy(used, iov, sizeof iov);
    enum cache_found found =
        read_all(fd, used, count, h.header_bytes + low, (size_t)(high - low));
    if (found == CACHE_HIT && !spans_good(header + sizeof h, iov, count, low, high))
        found = CACHE_DAMAGED;
    return found;
}

/* The time of change tells the last use, to a minute. */
static void touch(int fd, const struct stat *st) {
    int64_t used = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    int64_t age = sqrl_wall_ns() - used;
    if (age > CACHE_TOUCH_NS || age < -CACHE_TOUCH_NS)
        (void)futimens(fd, NULL);
}

enum cache_found cache_piece_read(const struct cache_folder *folder,
                                  const struct cache_object *object,
                                  struct cache_extent extent, uint64_t offset,
                                  uint64_t end, const struct sqrl_range *parts,
                                  size_t count) {
    uint8_t room[HEADER_MAX];
    char path[CACHE_PATH_BYTES];
    struct header header;
    struct stat st;
    cache_piece_path(folder, object->key, extent, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return CACHE_GONE;
    enum cache_found found = CACHE_GONE;
    if (fstat(fd, &st) == 0)
        found = S_ISREG(st.st_mode) ? read_header(fd, (uint64_t)st.st_size, room)
                                    : CACHE_DAMAGED;
    memcpy(&header, room, sizeof header);
    if (found == CACHE_HIT &&
        (header.key.a != object->key.a || header.key.b != object->key.b ||
         header.object_size != object->size || header.offset != extent.offset ||
         header.size != extent.size))
        found = CACHE_DAMAGED; /* whole, but not under its own name */
    struct cursor to = {parts, count, 0, offset};
    uint64_t at = offset - extent.offset;
    while (found == CACHE_HIT && at < end - extent.offset)
        found = read_some(fd, room, &at, end - extent.offset, &to);
    if (found == CACHE_HIT)
        touch(fd, &st);
    close(fd);
    return found;
}

/* --- for the tools --- */

static void tell(const uint8_t *room, const struct stat *st,
                 struct cache_piece_info *out) {
    struct header h;
    memcpy(&h, room, sizeof h);
    const char *text = (const char *)room + sizeof h + check_count(h.size) * 8;
    out->object = (struct cache_object){
        .place = h.place, .key = h.key, .size = h.object_size, .url = out->text};
    memcpy(out->object.version, text, h.version_size);
    memcpy(out->text, text + h.version_size, h.url_size);
    out->text[h.url_size] = '\0';
    out->extent = (struct cache_extent){h.offset, h.size};
    out->fetched_ns = h.fetched_ns;
    out->used_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    out->file_bytes = (uint64_t)st->st_size;
}

enum cache_found cache_piece_inspect(const char *path, bool data,
                                     struct cache_piece_info *out) {
    uint8_t room[HEADER_MAX];
    struct stat st;
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return CACHE_GONE;
    enum cache_found found = CACHE_GONE;
    if (fstat(fd, &st) == 0)
        found = S_ISREG(st.st_mode) ? read_header(fd, (uint64_t)st.st_size, room)
                                    : CACHE_DAMAGED;
    if (found == CACHE_HIT)
        tell(room, &st, out);
    uint8_t *into = data && found == CACHE_HIT ? malloc(CALL_BYTES) : NULL;
    for (uint64_t at = 0; into && found == CACHE_HIT && at < out->extent.size;) {
        struct sqrl_range part = {at, CALL_BYTES, into, 0};
        struct cursor to = {&part, 1, 0, at};
        found =
            read_some(fd, room, &at, SQRL_MIN(at + CALL_BYTES, out->extent.size), &to);
    }
    free(into);
    close(fd);
    return found;
}
