/* store.h - object stores behind one file system: what S3, Google's two APIs and Azure
 * share, and where they differ (struct object_kind).
 *
 * A directory is there when something lies below it, or when it has a marker: an empty
 * object "a/b/" (Azure: "a/b" with the metadata hdi_isfolder). Objects appear whole, when
 * the last request of their upload is answered.
 */
#ifndef SQRL_IO_OBJECT_STORE_H
#define SQRL_IO_OBJECT_STORE_H

#include "io/http/ranges.h"
#include "io/object/text.h"

struct object_store;

/* --- one request --- */
enum object_verb {
    OBJECT_HEAD,
    OBJECT_READ, /* the pattern of ranged reads */
    OBJECT_LIST,
    OBJECT_PUT,
    OBJECT_REMOVE,
    OBJECT_BEGIN, /* an upload in parts */
    OBJECT_PART,
    OBJECT_END,
    OBJECT_ABORT,
    OBJECT_UPLOADS /* which uploads were begun and not ended */
};

struct object_call {
    enum object_verb verb;
    const char *bucket, *key; /* not escaped; of a listing: the prefix */
    /* listing */
    bool one_level;
    unsigned most; /* entries, 0: as many as the store gives */
    const char *token;
    /* writing */
    const uint8_t *body;
    size_t body_size;
    bool replace;
    bool directory;      /* a marker */
    const char *id;      /* metadata "sqrl-id": tells our object from another's */
    const char *upload;  /* what BEGIN's answer named */
    unsigned part;       /* from 0 */
    uint64_t offset;     /* of the part */
    bool last;           /* part */
    char *const *tags;   /* END: what PART's answers named */
    unsigned part_count; /* END */
};

struct object_request {
    struct sqrl_http_request http;
    char *url, *body; /* owned; http points to them */
    size_t body_size;
    bool unsigned_request;
    struct sqrl_http_policy patient; /* the store's, with more time for large bodies */
    struct sqrl_http_headers headers;
};
void object_request_free(struct object_request *request);
SQRL_CHECK int object_header(struct object_request *request, const char *name,
                             const char *value, struct sqrl_error *err);

/* --- listings --- */
struct object_entry {
    char *key; /* whole; of a directory: with its slash */
    struct sqrl_stat stat;
};
struct object_page {
    struct object_entry *items;
    size_t count, capacity;
    char *token; /* of the next page; NULL: this is the last */
};
void object_page_free(struct object_page *page);
/* Takes `key`, also on failure; NULL is a failure whose error is set. */
SQRL_CHECK int object_page_add(struct object_page *page, char *key,
                               const struct sqrl_stat *stat, struct sqrl_error *err);

/* --- what differs --- */
struct object_kind {
    const char *name; /* in messages: "S3" */
    bool sequential;  /* parts go one after another, the last one ends the upload */
    bool no_begin, no_abort;
    unsigned max_parts;
    /* Fills method, url, headers, body. */
    int (*build)(struct object_store *store, const struct object_call *call,
                 struct object_request *out, struct sqrl_error *err);
    int (*read_stat)(const struct sqrl_http_response *response, struct sqrl_stat *out,
                     struct sqrl_error *err);
    int (*read_page)(const struct object_call *call,
                     const struct sqrl_http_response *response, struct object_page *page,
                     struct sqrl_error *err);
    /* The upload's name out of BEGIN's answer; the part's tag out of PART's (NULL where
     * no_begin, and where tags are not needed). free() them. */
    char *(*read_upload)(const struct sqrl_http_response *response,
                         struct sqrl_error *err);
    char *(*read_tag)(const struct sqrl_http_response *response, struct sqrl_error *err);
    int (*sign)(void *store, const struct sqrl_http_request *request, int refused,
                struct sqrl_http_headers *out, struct sqrl_error *err);
    enum sqrl_http_verdict (*judge)(void *store, const struct sqrl_http_request *request,
                                    const struct sqrl_http_response *response);
    /* Frees store->own. */
    void (*close)(struct object_store *store);
};
extern const struct object_kind object_s3, object_google_xml, object_google_json,
    object_azure;

struct object_store {
    const struct object_kind *kind;
    struct sqrl_context *context; /* borrowed: the file system holds it */
    struct sqrl_http_policy policy;
    struct sqrl_fs_metrics metrics; /* relaxed atomics; lists are among the requests */
    char *endpoint;                 /* "https://host:port/base", no slash at its end */
    bool own_endpoint; /* as the user gave it: not to be made from a region */
    bool path_style;   /* bucket in the path, not in the host's name */
    bool anonymous;
    bool requester_pays;
    char *user_project;    /* Google: who pays, may be NULL */
    struct sqrl_lock lock; /* guards region */
    char *region;
    int64_t skew;       /* atomic: the server's clock minus ours, in seconds */
    uint64_t part_size; /* 0: grows with the object */
    void *own;          /* the kind's credentials */
};

/* Seconds since 1970 by the server's clock. */
int64_t object_now(const struct object_store *store);
/* Takes the clock's difference from an answer's Date; true when it has changed by more
 * than a minute, so that a refused request may be signed anew. */
bool object_take_skew(struct object_store *store,
                      const struct sqrl_http_response *response);
/* Is this word in the short text that came with an error? */
bool object_says(const struct sqrl_http_response *response, const char *word);

/* --- calls --- */
/* Makes the calls in parallel. Statuses are the caller's; responses are to be freed in
 * any case. A bucket in another region is followed there. */
SQRL_CHECK int object_perform(struct object_store *store, const struct object_call *calls,
                              struct sqrl_http_response *responses, size_t count,
                              const struct sqrl_cancel *cancel, struct sqrl_error *err);
/* The error of an answer that is not 2xx, in the store's words. */
int object_failure(const struct object_store *store,
                   const struct sqrl_http_response *response, struct sqrl_error *err);
SQRL_CHECK int object_build(struct object_store *store, const struct object_call *call,
                            struct object_request *out, struct sqrl_error *err);

/* --- paths --- */
/* "bucket/key" taken apart; `key` points into `bucket`'s copy, "" for a bucket itself. */
struct object_path {
    char *bucket; /* owned */
    char *key;
    bool slash; /* ended in one; it is cut off */
};
SQRL_CHECK int object_path_read(const struct object_store *store, const char *path,
                                struct object_path *out, struct sqrl_error *err);
void object_path_free(struct object_path *path);

/* --- file system operations, state is struct object_store --- */
int object_fs_stat(void *fs, const char *path, struct sqrl_stat *out,
                   struct sqrl_error *err);
int object_fs_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                   void *arg, const struct sqrl_cancel *cancel, struct sqrl_error *err);
int object_fs_file_open(void *fs, const char *path, void *file, struct sqrl_stat *stat,
                        struct sqrl_error *err);
int object_fs_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                        const struct sqrl_cancel *cancel, struct sqrl_error *err);
void object_fs_file_close(void *fs, void *file);
int object_fs_remove(void *fs, const char *path, struct sqrl_error *err);
int object_fs_make_directory(void *fs, const char *path, struct sqrl_error *err);
int object_fs_remove_directory(void *fs, const char *path, struct sqrl_error *err);
int object_fs_writer_open(void *fs, const char *path, bool replace, void *writer,
                          struct sqrl_error *err);
int object_fs_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                           struct sqrl_error *err);
int object_fs_writer_commit(void *fs, void *writer, struct sqrl_error *err);
void object_fs_writer_abort(void *fs, void *writer);
int object_fs_sweep(void *fs, const char *directory, uint64_t *removed,
                    struct sqrl_error *err);
void object_fs_metrics(void *fs, struct sqrl_fs_metrics *out);
void object_fs_close(void *fs);

/* What is at a path: SQRL_OK and *out, or SQRL_E_NOT_FOUND. `parallel`: both questions,
 * object or directory, are asked at once. */
SQRL_CHECK int object_find(struct object_store *store, const struct object_path *path,
                           bool parallel, struct sqrl_stat *out, struct sqrl_error *err);

/* The ops table's common part. */
#define OBJECT_FS_OPS                                                                    \
    .size = sizeof(struct sqrl_fs_ops), .api = SQRL_FS_API,                              \
    .flags = SQRL_FS_WRITABLE | SQRL_FS_LISTABLE | SQRL_FS_VERSIONED,                    \
    .fs_size = sizeof(struct object_store), .file_size = OBJECT_FILE_BYTES,              \
    .writer_size = OBJECT_WRITER_BYTES, .close = object_fs_close,                        \
    .stat = object_fs_stat, .list = object_fs_list, .file_open = object_fs_file_open,    \
    .file_read = object_fs_file_read, .file_close = object_fs_file_close,                \
    .writer_open = object_fs_writer_open, .writer_write = object_fs_writer_write,        \
    .writer_commit = object_fs_writer_commit, .writer_abort = object_fs_writer_abort,    \
    .remove = object_fs_remove, .make_directory = object_fs_make_directory,              \
    .remove_directory = object_fs_remove_directory, .sweep = object_fs_sweep,            \
    .metrics = object_fs_metrics

/* --- open files and writers --- */
struct object_file {
    struct object_request request; /* the pattern: url, headers */
    struct sqrl_http_object object;
};

struct object_writer {
    struct object_path path;
    char id[33]; /* of this writer's object */
    bool replace;
    char *upload;  /* begun, NULL: all is in the buffer yet */
    uint8_t *data; /* a slab */
    size_t size, capacity;
    uint64_t offset; /* bytes that are uploaded */
    char **tags;
    unsigned parts, tag_capacity;
};
#define OBJECT_FILE_BYTES sizeof(struct object_file)
#define OBJECT_WRITER_BYTES sizeof(struct object_writer)

/* --- settings, shared by the kinds' open() --- */
/* The value of an option, else of the first of these environment variables ("A|B") that
 * is set and not empty, else NULL. Borrowed. */
const char *object_setting(const struct sqrl_settings *settings,
                           const struct sqrl_option *options, const char *name,
                           const char *variables);
/* Puts a checked copy of an endpoint's URL into the store: "host:9000" gets a scheme,
 * default ports and slashes at the end go. */
SQRL_CHECK int object_set_endpoint(struct object_store *store, const char *url,
                                   struct sqrl_error *err);
/* A small file whole (credentials, tokens): NUL-ended; free it by obj_secret_free. NULL
 * and no error when it is not there; NULL and an error when it can't be read. */
char *object_read_file(const char *path, struct sqrl_error *err);

#endif
