/* ranges.h - ranged reads of one object over HTTP, for plain HTTP and the stores.
 *
 * Ranges that lie near each other become one request, large ones several of 4 to 8 MiB in
 * parallel; bytes land in the callers' ranges without another copy. An object that
 * changes while it is open is an error, never a mix: every answer must have the ETag
 * (else Last-Modified and length) of the first.
 */
#ifndef SQRL_IO_HTTP_RANGES_H
#define SQRL_IO_HTTP_RANGES_H

#include "io/http/http.h"

/* Embedded in the state of an open file. Texts are owned. */
struct sqrl_http_object {
    struct sqrl_lock lock;            /* guards etag (set once), moved, foreign, whole */
    struct sqrl_http_request pattern; /* url, headers, sign, judge, arg, policy, unnamed;
                                         all but the url borrowed */
    char *etag, *last_modified;       /* of the first answer; NULL: none */
    char *encoding;                   /* Content-Encoding of the bytes as stored */
    uint64_t size;                    /* SQRL_SIZE_UNKNOWN: the server doesn't tell */
    int64_t modified_ns;
    char *moved;   /* where redirects led, used until it is refused; NULL: nowhere */
    bool foreign;  /* `moved` gets no headers and is not signed */
    uint8_t *head; /* the first bytes, where they came with opening */
    size_t head_size;
    struct sqrl_buffer *whole; /* all of it, where the server knows no ranges */
};

/* Looks the object up: its size and validators. `head` > 0: by a GET of its first `head`
 * bytes, which reads then find in memory: costs no more time than a HEAD and makes small
 * objects one request in all. `head` 0: by HEAD, or a GET of the first byte where HEAD is
 * refused. `pattern` gives url, headers, sign, judge, arg, policy, unnamed; its url is
 * copied, the rest borrowed until sqrl_http_object_close. What is not there is
 * SQRL_E_NOT_FOUND. After a failure nothing is to be closed; `*moved` (may be NULL) is
 * where redirects led all the same, NULL if nowhere: free() it. */
SQRL_CHECK int sqrl_http_object_open(struct sqrl_context *context,
                                     const struct sqrl_http_request *pattern, size_t head,
                                     struct sqrl_http_object *object, char **moved,
                                     struct sqrl_error *err);
/* The same without a request, by what a listing told: etag may be NULL or "" (then the
 * first answer's counts), size must be known. */
SQRL_CHECK int sqrl_http_object_known(const struct sqrl_http_request *pattern,
                                      uint64_t size, const char *etag,
                                      struct sqrl_http_object *object,
                                      struct sqrl_error *err);
/* As sqrl_file_read; any number of threads. */
SQRL_CHECK int sqrl_http_object_read(struct sqrl_context *context,
                                     struct sqrl_http_object *object,
                                     struct sqrl_range *ranges, size_t count,
                                     const struct sqrl_cancel *cancel,
                                     struct sqrl_error *err);
void sqrl_http_object_stat(const struct sqrl_http_object *object, struct sqrl_stat *out);
void sqrl_http_object_close(struct sqrl_http_object *object);

#endif
