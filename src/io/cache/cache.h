/* cache.h - what the parts of the cache share.
 *
 *     DIR/CACHEDIR.TAG                       backup programs leave the directory out
 *     DIR/v1/objects/<key>/<offset>-<size>   pieces of one version of one object
 *     DIR/v1/places/<key>.<kind>             what lookups and listings of a URL gave
 *     DIR/v1/working/                        temporaries and reservations of room
 *
 * A key is a hash, in hexadecimal. Only mkdir, O_EXCL, rename, unlink, utimes and reading
 * of directories are used, which are atomic on NFS too; no locks, no mmap. */
#ifndef SQRL_IO_CACHE_H
#define SQRL_IO_CACHE_H

#include "io/io.h"
#include "sqrl/cache.h"
#include "sqrl/codec.h"
#include "sqrl/value.h"

#define CACHE_SLOT (UINT64_C(4) << 20)   /* no piece crosses a multiple of it */
#define CACHE_GRAIN (UINT64_C(64) << 10) /* pieces begin at multiples of it */
#define CACHE_CHECK ((size_t)16 << 10)   /* bytes of one checksum */
#define CACHE_BLOCK 4096u                /* files count in multiples of it */
#define CACHE_NAME 33                    /* a key's text and its NUL */
#define CACHE_VERSION_BYTES 128
#define CACHE_URL_BYTES 1536 /* of a URL, in a piece's header */
#define CACHE_TOUCH_NS (INT64_C(60) * 1000000000)

struct cache_key {
    uint64_t a, b;
};
struct cache_extent {
    uint64_t offset, size;
};

/* --- folder.c: the directory --- */
struct cache_folder {
    char *root; /* DIR/v1, absolute */
    size_t root_size;
};
#define CACHE_PATH_BYTES 4096
/* Of the cache's text before "?": an existing cache, or with `make` one that is made. */
int cache_folder_open(const char *cache, bool make, struct cache_folder *out,
                      struct sqrl_error *err);
void cache_folder_reset(struct cache_folder *folder);
/* Makes what is missing of it; 0 or an errno. */
int cache_folder_make(const struct cache_folder *folder);
/* Paths within; out is CACHE_PATH_BYTES. */
void cache_object_path(const struct cache_folder *folder, struct cache_key key,
                       char *out);
void cache_piece_path(const struct cache_folder *folder, struct cache_key key,
                      struct cache_extent extent, char *out);
void cache_place_path(const struct cache_folder *folder, struct cache_key key, char kind,
                      char *out);
void cache_working_path(const struct cache_folder *folder, const char *name, char *out);
void cache_key_text(struct cache_key key, char out[CACHE_NAME]);
bool cache_parse_key(const char *text, struct cache_key *out);
bool cache_parse_piece(const char *name, struct cache_extent *out);
/* A new file under a temporary name, to be renamed to `path`. -1: errno tells. */
int cache_temporary(const struct cache_folder *folder, const char *what, char *path);
/* Ends it: closes, gives it its name, with the folder where that is missing. 0 or an
 * errno; the temporary is gone then. */
int cache_publish(const struct cache_folder *folder, int fd, const char *temporary,
                  const char *path);
uint64_t cache_charge(uint64_t file_bytes); /* what a file counts */

/* --- piece.c: one file of data --- */
struct cache_object {
    struct cache_key place; /* of the URL */
    struct cache_key key;   /* of URL, version and length */
    uint64_t size;
    char version[CACHE_VERSION_BYTES];
    const char *url; /* as it may be shown */
};
struct cache_piece_info {
    struct cache_object object; /* url points into text */
    struct cache_extent extent;
    int64_t fetched_ns, used_ns;
    uint64_t file_bytes;
    char text[CACHE_URL_BYTES + 1];
};
enum cache_found { CACHE_HIT, CACHE_GONE, CACHE_DAMAGED };

uint64_t cache_piece_bytes(const struct cache_object *object, struct cache_extent extent);
/* Writes a piece whose bytes lie in `parts`, which are in order and leave no gap in it. 0
 * or an errno. */
int cache_piece_write(const struct cache_folder *folder,
                      const struct cache_object *object, struct cache_extent extent,
                      const struct sqrl_range *parts, size_t count);
/* Bytes [offset, end) of the object, which lie in the piece, into `parts`, which are in
 * order and leave no gap there. What is in them after a failure is not defined. */
enum cache_found cache_piece_read(const struct cache_folder *folder,
                                  const struct cache_object *object,
                                  struct cache_extent extent, uint64_t offset,
                                  uint64_t end, const struct sqrl_range *parts,
                                  size_t count);
/* For the tools: the header alone, or with all of the data. */
enum cache_found cache_piece_inspect(const char *path, bool data,
                                     struct cache_piece_info *out);

/* --- place.c: what is known of a URL --- */
enum { CACHE_STAT = 's', CACHE_LIST = 'l', CACHE_LIST_ALL = 'r' };
struct cache_place {
    int code; /* SQRL_OK, or what looking it up fails with */
    struct sqrl_stat stat;
    char message[SQRL_ERROR_MESSAGE_BYTES];
    struct sqrl_bytes entries; /* of a listing, encoded; reset it */
    int64_t age_ns;            /* since it was last found current */
};
int cache_entries_add(struct sqrl_bytes *out, const char *name,
                      const struct sqrl_stat *stat, struct sqrl_error *err);
int cache_entries_visit(const struct sqrl_bytes *entries, sqrl_list_fn visit, void *arg,
                        const struct sqrl_cancel *cancel, struct sqrl_error *err);
bool cache_place_read(const struct cache_folder *folder, struct cache_key key, char kind,
                      struct cache_place *out);
void cache_place_reset(struct cache_place *place);
/* Is the file at `path` whole? *age_ns as above. */
bool cache_place_inspect(const char *path, int64_t *checked_ns);

/* --- room.c: the limit --- */
struct cache_room {
    struct sqrl_lock lock;
    uint64_t limit;         /* 0: nine tenths of the disk */
    uint64_t left;          /* of the reservation */
    uint64_t writing;       /* taken, not yet given back by cache_room_done */
    uint64_t taken_ns;      /* when it was made */
    uint64_t refused_until; /* no room was found: not tried again before */
    char *reservation;      /* its path, NULL: none */
};
void cache_room_init(struct cache_room *room, uint64_t limit);
void cache_room_reset(struct cache_room *room);
struct cache_evicted {
    uint64_t files, bytes;
    int failure; /* errno, where not even a reservation could be written */
};
/* Room for a file of `charge` bytes, by eviction if need be (not with keep). False: there
 * is none. Give it back by cache_room_done when the file is in place, or will not be. */
bool cache_room_take(struct cache_room *room, const struct cache_folder *folder,
                     uint64_t charge, bool keep, struct cache_evicted *evicted);
void cache_room_done(struct cache_room *room, uint64_t charge);
/* Evicts down to a limit that is lower than the one enforced before. */
void cache_room_enforce(struct cache_room *room, const struct cache_folder *folder,
                        struct cache_evicted *evicted);
/* The tools' half: removes as sqrl_cache_prune says. */
int cache_room_prune(const struct cache_folder *folder, uint64_t keep_bytes,
                     uint64_t unused_ns, struct sqrl_cache_report *out,
                     struct sqrl_error *err);
/* Calls visit for each file of pieces (key, extent) and places (key, kind). Returns 0, an
 * errno negated, or what visit returned. */
struct cache_file_seen {
    struct cache_key key;
    struct cache_extent extent;
    char kind; /* 0: a piece */
    int64_t used_ns;
    uint64_t file_bytes;
};
int cache_scan(const struct cache_folder *folder,
               int (*visit)(void *arg, const struct cache_file_seen *seen), void *arg);

/* --- flight.c: what threads of this process fetch now --- */
struct cache_flight {
    struct cache_key key;
    uint64_t begin, end;
};
struct cache_flights {
    struct sqrl_lock lock;
    struct cache_flight *items;
    size_t count, capacity;
};
/* Books the first part of [begin, end) that nobody fetches; false: others fetch all. */
int cache_flight_begin(struct cache_flights *flights, struct cache_key key,
                       uint64_t begin, uint64_t end, struct cache_flight *out,
                       bool *booked, struct sqrl_error *err);
void cache_flight_end(struct cache_flights *flights, const struct cache_flight *flight);
/* Waits until nobody fetches anything of [begin, end). */
int cache_flight_wait(struct cache_flights *flights, struct cache_key key, uint64_t begin,
                      uint64_t end, const struct sqrl_cancel *cancel,
                      struct sqrl_error *err);

/* --- the shim --- */
struct cache_snapshots; /* snapshot.c: what this shim found current */
struct cache {
    struct sqrl_fs *inner;
    struct sqrl_context *context; /* borrowed, may be NULL */
    char *base, *place;
    struct cache_folder folder;
    struct cache_room room;
    struct cache_flights flights;
    struct cache_snapshots *snapshots;
    uint64_t slot;     /* at most CACHE_SLOT, less with a small limit */
    uint64_t fresh_ns; /* what is known is taken for true so long */
    bool whole;
    uint64_t hits, hit_bytes; /* for sqrl_fs_metrics; atomic */
    int enforced;             /* the limit, when the network was first reached; atomic */
    int warned_full, warned_offline, warned_damage; /* once each */
    uint64_t full_until, offline_until;             /* atomic */
};

/* snapshot.c */
struct cache_snapshots *cache_snapshots_new(struct sqrl_error *err);
void cache_snapshots_free(struct cache_snapshots *snapshots);
bool cache_snapshot_get(struct cache_snapshots *snapshots, struct cache_key place,
                        struct sqrl_stat *out);
void cache_snapshot_put(struct cache_snapshots *snapshots, struct cache_key place,
                        const struct sqrl_stat *stat);
void cache_snapshot_drop(struct cache_snapshots *snapshots, struct cache_key place);

/* read.c: an open file */
struct cache_file {
    struct sqrl_lock lock;   /* inner, known */
    struct sqrl_file *inner; /* NULL: not needed so far */
    char *path, *url;
    struct sqrl_stat stat;
    struct cache_object object;
    bool direct; /* nothing tells its versions apart: not cached */
    struct cache_extent *known;
    size_t count, capacity;
    uint64_t next; /* where the last read ended; atomic */
    int no_rest;   /* there is no room for all of it; atomic */
};
int cache_read(struct cache *cache, struct cache_file *file, struct sqrl_range *ranges,
               size_t count, const struct sqrl_cancel *cancel, struct sqrl_error *err);
/* Opens the file of the wrapped file system, and checks that it is the same still. */
int cache_open_inner(struct cache *cache, struct cache_file *file,
                     struct sqrl_error *err);

/* keep.c: writing to the cache, which never fails a read */
/* The network answered: what a lower limit asks for may go now, since it can be fetched
 * again. */
void cache_enforce(struct cache *cache);
/* May something be written now? */
bool cache_may_write(struct cache *cache);
/* Room for `charge` bytes; false: not now. */
bool cache_take(struct cache *cache, uint64_t charge);
void cache_done(struct cache *cache, uint64_t charge, int failure);
void cache_place_keep(struct cache *cache, struct cache_key key, char kind,
                      const struct cache_place *place);
void cache_count(struct cache *cache, enum sqrl_counter counter, uint64_t add);

/* cache.c */
/* What tells this version of a file from others; false: nothing does. */
bool cache_version(const struct sqrl_stat *stat, char out[CACHE_VERSION_BYTES]);

#endif
