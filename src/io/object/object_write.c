/* object_write.c - writing objects: small ones in one request, large ones in parts.
 *
 * A writer holds one buffer of a few parts. When more comes than it holds, its parts are
 * sent in parallel; what is left at commit is the end. The object appears with the last
 * request, and not at all if that never comes: a killed writer leaves an upload that
 * nobody sees (sweep removes those that are a day old, and buckets have rules for it).
 *
 * Whether a commit without an answer took place is told by the object's metadata: each
 * writer's object carries an id of its own. */
#include <stdlib.h>

#include "io/object/digest.h"
#include "io/object/store.h"

#define PART_BYTES ((size_t)8 << 20)
#define BATCH_BYTES ((size_t)32 << 20)  /* of parts in flight, but always one part */
#define SINGLE_BYTES ((size_t)16 << 20) /* up to this, one request */
#define FIRST_BYTES ((size_t)256 << 10) /* of the buffer */
#define PARTS_A_SIZE 2500u              /* then parts double */
#define STALE_NS (INT64_C(86400) * 1000000000)
enum { MAX_BATCH = 8, CONFLICTS = 4 };

static bool is_good(const struct sqrl_http_response *response) {
    return response->status >= 200 && response->status < 300;
}

/* The size of the next part. Stores take 10,000 parts: without a wish they grow. */
static size_t part_bytes(const struct object_store *store,
                         const struct object_writer *w) {
    if (store->part_size)
        return (size_t)store->part_size;
    return PART_BYTES << SQRL_MIN(w->parts / PARTS_A_SIZE, 3u);
}

static size_t batch_bytes(const struct object_store *store,
                          const struct object_writer *w) {
    size_t part = part_bytes(store, w);
    size_t count = BATCH_BYTES / part;
    count = count < 1 ? 1 : SQRL_MIN(count, (size_t)MAX_BATCH);
    return part * count;
}

static struct object_call call_of(const struct object_writer *w, enum object_verb verb) {
    return (struct object_call){.verb = verb,
                                .bucket = w->path.bucket,
                                .key = w->path.key,
                                .replace = w->replace,
                                .id = w->id,
                                .upload = w->upload,
                                .offset = w->offset};
}

/* --- opening --- */

static int taken(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_EXISTS,
                          "is there already; choose another name or ask to replace it");
}

/* What may be seen of the name; credentials that may only write see nothing. */
static int check_target(struct object_store *store, const struct object_writer *w,
                        struct sqrl_error *err) {
    struct sqrl_stat stat;
    int rc = object_find(store, &w->path, true, &stat, err);
    if (rc == SQRL_E_NOT_FOUND && err && strstr(err->message, "bucket"))
        return rc;
    if (rc == SQRL_E_NOT_FOUND || rc == SQRL_E_PERMISSION) {
        sqrl_error_clear(err);
        return SQRL_OK;
    }
    if (rc == SQRL_OK && stat.directory)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a directory; choose another name for the file");
    return rc == SQRL_OK && !w->replace ? taken(err) : rc;
}

static void writer_reset(struct object_store *store, struct object_writer *w) {
    if (w->data)
        sqrl_slab_give(store->context, w->data, w->capacity);
    for (unsigned i = 0; w->tags && i < w->parts; i++)
        free(w->tags[i]);
    free(w->tags);
    free(w->upload);
    object_path_free(&w->path);
    memset(w, 0, sizeof *w);
}

int object_fs_writer_open(void *fs, const char *path, bool replace, void *writer,
                          struct sqrl_error *err) {
    struct object_store *store = fs;
    struct object_writer *w = writer;
    struct sqrl_error own = {0};
    uint8_t random[16];
    w->replace = replace;
    err = err ? err : &own;
    int rc = object_path_read(store, path, &w->path, err);
    if (rc == SQRL_OK && (!*w->path.key || w->path.slash))
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "is a directory; choose another name for the file");
    if (rc == SQRL_OK)
        rc = sqrl_random_bytes(random, sizeof random, err);
    if (rc == SQRL_OK) {
        object_hex(random, sizeof random, w->id);
        rc = check_target(store, w, err);
    }
    if (rc)
        writer_reset(store, w);
    return rc;
}

/* --- parts --- */

static int begin(struct object_store *store, struct object_writer *w,
                 struct sqrl_error *err) {
    struct object_call call = call_of(w, OBJECT_BEGIN);
    struct sqrl_http_response response;
    if (store->kind->no_begin) {
        w->upload = sqrl_strdup(w->id, err);
        return w->upload ? SQRL_OK : SQRL_E_NO_MEMORY;
    }
    struct sqrl_error own = {0};
    err = err ? err : &own;
    int rc = object_perform(store, &call, &response, 1, NULL, err);
    if (rc == SQRL_OK && !is_good(&response))
        rc = object_failure(store, &response, err);
    else if (rc == SQRL_OK) {
        w->upload = store->kind->read_upload(&response, err);
        rc = w->upload ? SQRL_OK : (int)err->code;
    }
    sqrl_http_response_free(&response);
    return rc;
}

static int make_tags(struct object_store *store, struct object_writer *w, size_t more,
                     struct sqrl_error *err) {
    if (store->kind->max_parts && w->parts + more > store->kind->max_parts)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "an object has at most %u parts; give a larger part_size",
                              store->kind->max_parts);
    if (w->parts + more <= w->tag_capacity)
        return SQRL_OK;
    unsigned capacity = SQRL_MAX(2 * w->tag_capacity, w->parts + (unsigned)more + 16);
    char **tags = sqrl_realloc(w->tags, capacity * sizeof *tags, "parts", err);
    if (!tags)
        return SQRL_E_NO_MEMORY;
    w->tags = tags;
    w->tag_capacity = capacity;
    return SQRL_OK;
}

/* Takes the answers to `count` parts, in order. */
static int take_tags(struct object_store *store, struct object_writer *w,
                     const struct sqrl_http_response *responses, size_t count,
                     struct sqrl_error *err) {
    for (size_t i = 0; i < count; i++) {
        if (responses[i].status == 412)
            return taken(err);
        if (!is_good(&responses[i]) &&
            !(store->kind->sequential && responses[i].status == 308))
            return object_failure(store, &responses[i], err);
        char *tag = NULL;
        if (store->kind->read_tag) {
            tag = store->kind->read_tag(&responses[i], err);
            if (!tag)
                return err->code ? (int)err->code : SQRL_E_IO;
        }
        w->tags[w->parts++] = tag;
    }
    return SQRL_OK;
}

/* Sends what the buffer holds, in parts. */
static int send_parts(struct object_store *store, struct object_writer *w, bool last,
                      struct sqrl_error *err) {
    struct object_call calls[MAX_BATCH];
    struct sqrl_http_response responses[MAX_BATCH];
    struct sqrl_error own = {0};
    err = err ? err : &own;
    size_t part = store->kind->sequential ? w->size : part_bytes(store, w), count = 0;
    int rc = w->upload ? SQRL_OK : begin(store, w, err);
    for (size_t at = 0; at < w->size && count < MAX_BATCH; at += part) {
        struct object_call *call = &calls[count];
        *call = call_of(w, OBJECT_PART);
        call->body = w->data + at;
        call->body_size = SQRL_MIN(part, w->size - at);
        call->offset = w->offset + at;
        call->part = w->parts + (unsigned)count++;
        call->last = last && at + call->body_size == w->size;
    }
    if (rc == SQRL_OK)
        rc = make_tags(store, w, count, err);
    if (rc)
        return rc;
    rc = object_perform(store, calls, responses, count, NULL, err);
    if (rc == SQRL_OK)
        rc = take_tags(store, w, responses, count, err);
    for (size_t i = 0; i < count; i++)
        sqrl_http_response_free(&responses[i]);
    w->offset += w->size;
    w->size = 0;
    return rc;
}

/* Makes the buffer larger, up to a batch. */
static int grow(struct object_store *store, struct object_writer *w, size_t wanted,
                size_t most, struct sqrl_error *err) {
    size_t capacity = SQRL_MAX(w->capacity * 2, FIRST_BYTES);
    while (capacity < wanted)
        capacity *= 2;
    capacity = SQRL_MIN(capacity, most);
    if (capacity <= w->capacity)
        return SQRL_OK;
    size_t real;
    uint8_t *data = sqrl_slab_take(store->context, capacity, &real, err);
    if (!data)
        return SQRL_E_NO_MEMORY;
    if (w->data) {
        memcpy(data, w->data, w->size);
        sqrl_slab_give(store->context, w->data, w->capacity);
    }
    w->data = data;
    w->capacity = real;
    return SQRL_OK;
}

int object_fs_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                           struct sqrl_error *err) {
    struct object_store *store = fs;
    struct object_writer *w = writer;
    while (size > 0) {
        size_t most = batch_bytes(store, w);
        int rc = SQRL_OK;
        if (w->size >= most) /* not before more comes: the end is the commit's */
            rc = send_parts(store, w, false, err);
        size_t n = SQRL_MIN(size, most - w->size);
        if (rc == SQRL_OK && w->size + n > w->capacity)
            rc = grow(store, w, w->size + n, most, err);
        if (rc)
            return rc;
        memcpy(w->data + w->size, data, n);
        w->size += n;
        data += n;
        size -= n;
    }
    return SQRL_OK;
}

/* --- commit --- */

/* Whose object is there: 1 ours, 0 another's, -1 none or not known. */
static int whose(struct object_store *store, const struct object_writer *w) {
    struct object_call call = call_of(w, OBJECT_HEAD);
    struct sqrl_http_response response;
    int found = -1;
    if (object_perform(store, &call, &response, 1, NULL, NULL) == SQRL_OK &&
        is_good(&response)) {
        found = object_says(&response, w->id);
        for (size_t i = 0; i < response.headers.count; i++)
            found = found || strcmp(response.headers.items[i].value, w->id) == 0;
    }
    sqrl_http_response_free(&response);
    return found;
}

/* The last request, which makes the object. */
static int conclude(struct object_store *store, struct object_writer *w,
                    struct object_call *call, struct sqrl_error *err) {
    struct sqrl_error own = {0};
    err = err ? err : &own;
    for (unsigned attempt = 0;; attempt++) {
        struct sqrl_http_response response;
        int rc = object_perform(store, call, &response, 1, NULL, err);
        int status = response.status;
        if (rc == SQRL_OK && (!is_good(&response) || object_says(&response, "<Error>")))
            rc = object_failure(store, &response, err);
        sqrl_http_response_free(&response);
        if (rc == SQRL_OK)
            return rc;
        /* It may be there all the same: the answer to an earlier attempt was lost. */
        int there = whose(store, w);
        if (there == 1) {
            sqrl_error_clear(err);
            return SQRL_OK;
        }
        if (status == 412 || (there == 0 && !w->replace))
            return taken(err);
        if (status != 409 || attempt + 1 >= CONFLICTS)
            return rc;
        sqrl_error_clear(err); /* others write the same name just now */
    }
}

static void abort_upload(struct object_store *store, struct object_writer *w) {
    struct object_call call = call_of(w, OBJECT_ABORT);
    struct sqrl_http_response response;
    struct sqrl_error err = {0};
    if (!w->upload || store->kind->no_abort)
        return;
    int rc = object_perform(store, &call, &response, 1, NULL, &err);
    if (rc || (!is_good(&response) && response.status != 404))
        sqrl_log(store->context, SQRL_LOG_WARNING,
                 "%s: an unfinished upload could not be removed (%s); its parts are "
                 "stored, unseen, until the bucket's rules remove them",
                 w->path.key, rc ? err.message : "refused");
    sqrl_http_response_free(&response);
}

static int commit_parts(struct object_store *store, struct object_writer *w,
                        struct sqrl_error *err) {
    int rc = send_parts(store, w, true, err);
    if (rc || store->kind->sequential)
        return rc;
    struct object_call call = call_of(w, OBJECT_END);
    call.tags = w->tags;
    call.part_count = w->parts;
    return conclude(store, w, &call, err);
}

int object_fs_writer_commit(void *fs, void *writer, struct sqrl_error *err) {
    struct object_store *store = fs;
    struct object_writer *w = writer;
    int rc = SQRL_OK;
    /* Not every server knows If-None-Match. */
    if (!w->replace && whose(store, w) == 0)
        rc = taken(err);
    if (rc == SQRL_OK && !w->upload && w->size <= SINGLE_BYTES) {
        struct object_call call = call_of(w, OBJECT_PUT);
        call.body = w->data ? w->data : (const uint8_t *)"";
        call.body_size = w->size;
        rc = conclude(store, w, &call, err);
    } else if (rc == SQRL_OK) {
        rc = commit_parts(store, w, err);
    }
    if (rc)
        abort_upload(store, w);
    writer_reset(store, w);
    return rc;
}

void object_fs_writer_abort(void *fs, void *writer) {
    abort_upload(fs, writer);
    writer_reset(fs, writer);
}

/* --- sweeping --- */

/* Uploads below the directory that nobody ended within a day. */
int object_fs_sweep(void *fs, const char *directory, uint64_t *removed,
                    struct sqrl_error *err) {
    struct object_store *store = fs;
    struct object_path where;
    struct object_page page = {0};
    struct sqrl_http_response response = {0};
    if (store->kind->no_abort || store->kind->sequential)
        return SQRL_OK;
    int rc = object_path_read(store, directory, &where, err);
    char *prefix = rc ? NULL : sqrl_format(err, "%s%s", where.key, *where.key ? "/" : "");
    struct object_call call = {
        .verb = OBJECT_UPLOADS, .bucket = where.bucket, .key = prefix};
    if (rc == SQRL_OK)
        rc = prefix ? object_perform(store, &call, &response, 1, NULL, err)
                    : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = is_good(&response) ? store->kind->read_page(&call, &response, &page, err)
                                : object_failure(store, &response, err);
    sqrl_http_response_free(&response);
    int64_t stale = object_now(store) * 1000000000 - STALE_NS;
    for (size_t i = 0; rc == SQRL_OK && i < page.count; i++) {
        const struct object_entry *entry = &page.items[i]; /* "key\nupload" */
        char *mark = strchr(entry->key, '\n');
        if (!mark || entry->stat.modified_ns >= stale)
            continue;
        *mark = '\0';
        struct object_call end = {.verb = OBJECT_ABORT,
                                  .bucket = where.bucket,
                                  .key = entry->key,
                                  .upload = mark + 1};
        rc = object_perform(store, &end, &response, 1, NULL, err);
        *removed += rc == SQRL_OK && is_good(&response);
        sqrl_http_response_free(&response);
    }
    object_page_free(&page);
    free(prefix);
    object_path_free(&where);
    return rc;
}
