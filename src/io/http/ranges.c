/* ranges.c - ranged reads of one object: from the callers' ranges to requests and back.
 *
 * Ranges are sorted; those with small gaps between them make one run, a run of more than
 * 8 MiB is cut. A run's bytes go to the ranges' own memory as a list of segments. */
#include "io/http/ranges.h"

#include "io/http/job.h"
#include "sqrl/codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE_BYTES (UINT64_C(8) << 20)
#define GAP_BYTES (UINT64_C(16) << 10)   /* cheaper to receive than to ask again */
#define WHOLE_BYTES (UINT64_C(64) << 20) /* what is kept where there are no ranges */

/* --- opening --- */

static int64_t modified_ns(const char *date) {
    int64_t seconds = date ? sqrl_curl_date(date) : -1;
    return seconds > 0 ? seconds * INT64_C(1000000000) : 0;
}

static int copy_header(const struct sqrl_http_headers *headers, const char *name,
                       char **out, struct sqrl_error *err) {
    const char *value = sqrl_http_headers_get(headers, name);
    if (!value || !*value)
        return SQRL_OK;
    free(*out);
    *out = sqrl_strdup(value, err);
    return *out ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static int begin_object(const struct sqrl_http_request *pattern,
                        struct sqrl_http_object *object, struct sqrl_error *err) {
    *object = (struct sqrl_http_object){.size = SQRL_SIZE_UNKNOWN};
    char *url = sqrl_strdup(pattern->url, err);
    if (!url)
        return SQRL_E_NO_MEMORY;
    object->pattern = (struct sqrl_http_request){.method = "GET",
                                                 .url = url,
                                                 .headers = pattern->headers,
                                                 .header_count = pattern->header_count,
                                                 .sign = pattern->sign,
                                                 .judge = pattern->judge,
                                                 .arg = pattern->arg,
                                                 .policy = pattern->policy,
                                                 .unnamed = pattern->unnamed};
    sqrl_lock_init(&object->lock);
    return SQRL_OK;
}

void sqrl_http_object_close(struct sqrl_http_object *object) {
    free((char *)object->pattern.url);
    free(object->etag);
    free(object->last_modified);
    free(object->encoding);
    free(object->moved);
    free(object->head);
    sqrl_buffer_unref(object->whole);
    sqrl_lock_reset(&object->lock);
    *object = (struct sqrl_http_object){0};
}

/* What an answer's headers tell of the object. */
static int learn(struct sqrl_http_object *object, struct sqrl_http_response *response,
                 struct sqrl_error *err) {
    const struct sqrl_http_headers *h = &response->headers;
    uint64_t first, last, total;
    const char *length = sqrl_http_headers_get(h, "Content-Length");
    if (sqrl_content_range(sqrl_http_headers_get(h, "Content-Range"), &first, &last,
                           &total))
        object->size = total;
    else if (length && response->status == 200)
        object->size = strtoull(length, NULL, 10);
    int rc = copy_header(h, "ETag", &object->etag, err);
    if (rc == SQRL_OK)
        rc = copy_header(h, "Last-Modified", &object->last_modified, err);
    if (rc == SQRL_OK)
        rc = copy_header(h, "Content-Encoding", &object->encoding, err);
    object->modified_ns = modified_ns(object->last_modified);
    free(object->moved);
    object->moved = response->url;
    object->foreign = response->foreign;
    response->url = NULL;
    return rc;
}

static int one_request(struct sqrl_context *context, struct sqrl_http_request *request,
                       struct sqrl_http_response *response, struct sqrl_error *err) {
    struct sqrl_http *http;
    *response = (struct sqrl_http_response){0};
    int rc = sqrl_http_of(context, &http, err);
    return rc ? rc : sqrl_http_perform(http, request, response, 1, err);
}

/* By its first bytes. A server that knows no ranges tells as much by its refusal. */
static int open_by_bytes(struct sqrl_context *context, size_t head,
                         struct sqrl_http_object *object,
                         struct sqrl_http_response *response, struct sqrl_error *err) {
    struct sqrl_http_request request = object->pattern;
    uint8_t *bytes = sqrl_malloc(head, "the beginning of a file", err);
    if (!bytes)
        return SQRL_E_NO_MEMORY;
    struct sqrl_http_segment segment = {bytes, head};
    request.size = head;
    request.until_end = true;
    request.segments = &segment;
    request.segment_count = 1;
    request.encoding = object->encoding;
    int rc = one_request(context, &request, response, err);
    const char *range = sqrl_http_headers_get(&response->headers, "Content-Range");
    bool empty = response->status == 416 && range && strcmp(range, "bytes */0") == 0;
    bool whole = rc == SQRL_E_UNSUPPORTED && response->status == 200;
    if (rc == SQRL_OK || whole)
        rc = learn(object, response, err);
    if (rc == SQRL_OK && !whole) {
        object->head = bytes;
        object->head_size = response->got;
        return SQRL_OK;
    }
    free(bytes);
    if (empty) {
        rc = learn(object, response, err);
        object->size = 0;
    }
    return rc;
}

static int open_by_head(struct sqrl_context *context, struct sqrl_http_object *object,
                        struct sqrl_http_response *response, struct sqrl_error *err) {
    struct sqrl_http_request request = object->pattern;
    request.method = "HEAD";
    int rc = one_request(context, &request, response, err);
    if (rc != SQRL_OK)
        return rc;
    int s = response->status;
    if (s == 404 || s == 410 || s == 401)
        return sqrl_http_status_error(response, err);
    bool good = s >= 200 && s < 300;
    if (good)
        rc = learn(object, response, err);
    if (rc != SQRL_OK || (good && object->size != SQRL_SIZE_UNKNOWN && !object->encoding))
        return rc;
    /* Refused, or without a length, or compressed (is it so as stored?): asks for it. */
    object->size = SQRL_SIZE_UNKNOWN;
    sqrl_http_response_free(response);
    return open_by_bytes(context, 1, object, response, err);
}

int sqrl_http_object_open(struct sqrl_context *context,
                          const struct sqrl_http_request *pattern, size_t head,
                          struct sqrl_http_object *object, char **moved,
                          struct sqrl_error *err) {
    struct sqrl_http_response response = {0};
    if (moved)
        *moved = NULL;
    int rc = begin_object(pattern, object, err);
    if (rc != SQRL_OK)
        return rc;
    rc = head > 0 ? open_by_bytes(context, head, object, &response, err)
                  : open_by_head(context, object, &response, err);
    if (moved && response.url)
        *moved = sqrl_strdup(response.url, NULL);
    else if (moved && object->moved)
        *moved = sqrl_strdup(object->moved, NULL);
    sqrl_http_response_free(&response);
    if (rc != SQRL_OK)
        sqrl_http_object_close(object);
    return rc;
}

int sqrl_http_object_known(const struct sqrl_http_request *pattern, uint64_t size,
                           const char *etag, struct sqrl_http_object *object,
                           struct sqrl_error *err) {
    int rc = begin_object(pattern, object, err);
    if (rc != SQRL_OK)
        return rc;
    object->size = size;
    if (etag && *etag && !(object->etag = sqrl_strdup(etag, err))) {
        sqrl_http_object_close(object);
        return SQRL_E_NO_MEMORY;
    }
    return SQRL_OK;
}

void sqrl_http_object_stat(const struct sqrl_http_object *object, struct sqrl_stat *out) {
    *out = (struct sqrl_stat){.size = object->size, .modified_ns = object->modified_ns};
    size_t length = object->etag ? strlen(object->etag) : 0;
    if (length > 0 && length < sizeof out->etag)
        memcpy(out->etag, object->etag, length + 1);
    else if (length > 0)
        snprintf(out->etag, sizeof out->etag, "xxh3-%016" PRIx64,
                 sqrl_xxh3(object->etag, length));
}

/* --- what is in memory --- */

static void copy_from(const uint8_t *bytes, uint64_t size, struct sqrl_range *ranges,
                      size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t from = SQRL_MIN(ranges[i].offset, size);
        ranges[i].got = (size_t)SQRL_MIN(ranges[i].size, size - from);
        if (ranges[i].got > 0)
            memcpy(ranges[i].data, bytes + from, ranges[i].got);
    }
}

static struct sqrl_buffer *whole_of(struct sqrl_http_object *object) {
    sqrl_lock_take(&object->lock);
    struct sqrl_buffer *whole = object->whole ? sqrl_buffer_ref(object->whole) : NULL;
    sqrl_lock_drop(&object->lock);
    return whole;
}

/* --- from ranges to requests --- */

struct plan {
    struct sqrl_range **order; /* those that are not empty, by offset */
    size_t order_count;
    struct sqrl_http_segment *segments;
    size_t segment_count;
    struct sqrl_http_request *requests;
    struct sqrl_http_response *responses;
    size_t count;
};

static void plan_reset(struct plan *plan) {
    for (size_t i = 0; plan->responses && i < plan->count; i++)
        sqrl_http_response_free(&plan->responses[i]);
    free(plan->order);
    free(plan->segments);
    free(plan->requests);
    free(plan->responses);
}

static int by_offset(const void *a, const void *b) {
    const struct sqrl_range *one = *(struct sqrl_range *const *)a,
                            *two = *(struct sqrl_range *const *)b;
    return (one->offset > two->offset) - (one->offset < two->offset);
}

/* Cuts what lies behind the end; tells the bytes that are wanted. */
static uint64_t sort_ranges(struct plan *plan, uint64_t size, struct sqrl_range *ranges,
                            size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t from = SQRL_MIN(ranges[i].offset, size);
        ranges[i].got = (size_t)SQRL_MIN(ranges[i].size, size - from);
        sum += ranges[i].got;
        if (ranges[i].got > 0)
            plan->order[plan->order_count++] = &ranges[i];
    }
    qsort(plan->order, plan->order_count, sizeof *plan->order, by_offset);
    return sum;
}

static uint64_t end_of(const struct sqrl_range *range) {
    return range->offset + range->got;
}

/* One piece of a run: [from, to), whose ranges begin at order[first]. */
static void add_piece(struct plan *plan, const struct sqrl_http_request *base,
                      uint64_t from, uint64_t to, size_t *first, size_t last) {
    struct sqrl_http_request *r = &plan->requests[plan->count++];
    *r = *base;
    r->offset = from;
    r->size = to - from;
    r->segments = &plan->segments[plan->segment_count];
    for (size_t i = *first; i < last && from < to; i++) {
        const struct sqrl_range *range = plan->order[i];
        if (range->offset > from) { /* a gap */
            uint64_t n = SQRL_MIN(range->offset, to) - from;
            plan->segments[plan->segment_count++] =
                (struct sqrl_http_segment){NULL, (size_t)n};
            from += n;
        }
        if (from >= to)
            break;
        uint64_t n = SQRL_MIN(end_of(range), to) - from;
        plan->segments[plan->segment_count++] =
            (struct sqrl_http_segment){range->data + (from - range->offset), (size_t)n};
        from += n;
        if (from == end_of(range))
            *first = i + 1;
    }
    r->segment_count = (size_t)(&plan->segments[plan->segment_count] - r->segments);
}

/* order[first, last) without large gaps and without overlaps. */
static void add_run(struct plan *plan, const struct sqrl_http_request *base, size_t first,
                    size_t last) {
    uint64_t from = plan->order[first]->offset, to = end_of(plan->order[last - 1]);
    uint64_t pieces = (to - from + PIECE_BYTES - 1) / PIECE_BYTES;
    for (uint64_t left = pieces; left > 0; left--) {
        uint64_t end = from + (to - from) / left;
        add_piece(plan, base, from, end, &first, last);
        from = end;
    }
}

static int make_plan(struct plan *plan, const struct sqrl_http_request *base,
                     uint64_t size, struct sqrl_range *ranges, size_t count,
                     struct sqrl_error *err) {
    plan->order = sqrl_calloc(count, sizeof *plan->order, "ranges", err);
    if (!plan->order)
        return SQRL_E_NO_MEMORY;
    uint64_t bytes = sort_ranges(plan, size, ranges, count);
    /* Gaps add to the bytes, at most one for each range. */
    size_t most = count + (size_t)((bytes + count * GAP_BYTES) / PIECE_BYTES);
    plan->requests = sqrl_calloc(most, sizeof *plan->requests, "ranges", err);
    plan->responses = sqrl_calloc(most, sizeof *plan->responses, "ranges", err);
    plan->segments =
        sqrl_calloc(2 * (most + count), sizeof *plan->segments, "ranges", err);
    if (!plan->requests || !plan->responses || !plan->segments)
        return SQRL_E_NO_MEMORY;
    for (size_t first = 0, last; first < plan->order_count; first = last) {
        for (last = first + 1; last < plan->order_count; last++) {
            uint64_t end = end_of(plan->order[last - 1]);
            uint64_t next = plan->order[last]->offset;
            if (next < end || next - end > GAP_BYTES)
                break;
        }
        add_run(plan, base, first, last);
    }
    return SQRL_OK;
}

/* --- reading --- */

/* The object as the next requests see it: copies, since other threads may change it. */
struct view {
    char *moved, *etag;
    bool foreign;
};

static int take_view(struct sqrl_http_object *object, struct view *view,
                     struct sqrl_error *err) {
    *view = (struct view){0};
    sqrl_lock_take(&object->lock);
    view->foreign = object->foreign;
    bool good = !object->moved || (view->moved = sqrl_strdup(object->moved, err));
    good = good && (!object->etag || (view->etag = sqrl_strdup(object->etag, err)));
    sqrl_lock_drop(&object->lock);
    return good ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static void view_reset(struct view *view) {
    free(view->moved);
    free(view->etag);
}

static struct sqrl_http_request base_of(const struct sqrl_http_object *object,
                                        const struct view *view,
                                        const struct sqrl_cancel *cancel) {
    struct sqrl_http_request base = object->pattern;
    base.cancel = cancel;
    base.etag = view->etag;
    base.last_modified = object->last_modified;
    base.encoding = object->encoding;
    base.total = object->size == SQRL_SIZE_UNKNOWN ? 0 : object->size;
    if (view->moved) {
        base.url = view->moved;
        if (view->foreign) { /* no credentials for it */
            base.headers = NULL;
            base.header_count = 0;
            base.sign = NULL;
            base.judge = NULL;
        }
    }
    return base;
}

/* An object that was opened without a request is what its first answer says. */
static int adopt(struct sqrl_http_object *object, const struct plan *plan,
                 struct sqrl_error *err) {
    int rc = SQRL_OK;
    for (size_t i = 0; i < plan->count && rc == SQRL_OK; i++) {
        const char *etag = sqrl_http_headers_get(&plan->responses[i].headers, "ETag");
        if (!etag)
            continue;
        sqrl_lock_take(&object->lock);
        if (!object->etag)
            object->etag = sqrl_strdup(etag, NULL);
        bool same = object->etag && strcmp(object->etag, etag) == 0;
        sqrl_lock_drop(&object->lock);
        if (!same)
            rc = sqrl_error_set(err, SQRL_E_STATE,
                                "the file changed while it was read (its ETag is "
                                "another one): open it again");
    }
    return rc;
}

static void forget_moved(struct sqrl_http_object *object, const char *moved) {
    sqrl_lock_take(&object->lock);
    if (object->moved && strcmp(object->moved, moved) == 0) {
        free(object->moved);
        object->moved = NULL;
        object->foreign = false;
    }
    sqrl_lock_drop(&object->lock);
}

/* The server knows no ranges: all of it, once. */
static int read_whole(struct sqrl_context *context, struct sqrl_http_object *object,
                      const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    bool known = object->size != SQRL_SIZE_UNKNOWN;
    if (known && object->size > WHOLE_BYTES)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                              "the server sends whole files only, no ranges, and this "
                              "one has %" PRIu64 " bytes: download it first, or use a "
                              "server that knows ranges",
                              object->size);
    struct sqrl_http_request request = object->pattern;
    struct sqrl_http_response response;
    struct sqrl_buffer *whole = NULL;
    request.cancel = cancel;
    request.encoding = object->encoding;
    request.max_body = known ? object->size + 1 : WHOLE_BYTES;
    int rc = one_request(context, &request, &response, err);
    if (rc == SQRL_OK && response.status != 200)
        rc = sqrl_http_status_error(&response, err);
    const char *etag = sqrl_http_headers_get(&response.headers, "ETag");
    if (rc == SQRL_OK && ((known && response.body_size != object->size) ||
                          (object->etag && etag && strcmp(object->etag, etag) != 0)))
        rc = sqrl_error_set(err, SQRL_E_STATE,
                            "the file changed while it was read: open it again");
    if (rc == SQRL_OK)
        rc = sqrl_buffer_wrap(response.body, response.body_size, free, response.body,
                              &whole, err);
    if (rc == SQRL_OK) {
        response.body = NULL;
        sqrl_lock_take(&object->lock);
        bool first = !object->whole;
        if (first)
            object->whole = whole;
        sqrl_lock_drop(&object->lock);
        if (!first)
            sqrl_buffer_unref(whole);
    }
    sqrl_http_response_free(&response);
    return rc;
}

/* One round of requests; `*whole`: the server knows no ranges. */
static int read_round(struct sqrl_context *context, struct sqrl_http_object *object,
                      const struct view *view, struct sqrl_range *ranges, size_t count,
                      const struct sqrl_cancel *cancel, bool *whole,
                      struct sqrl_error *err) {
    struct sqrl_http *http;
    struct plan plan = {0};
    struct sqrl_http_request base = base_of(object, view, cancel);
    int rc = sqrl_http_of(context, &http, err);
    if (rc == SQRL_OK)
        rc = make_plan(&plan, &base, object->size, ranges, count, err);
    if (rc == SQRL_OK && plan.count > 0)
        rc = sqrl_http_perform(http, plan.requests, plan.responses, plan.count, err);
    if (rc == SQRL_OK)
        rc = adopt(object, &plan, err);
    for (size_t i = 0; plan.responses && i < plan.count; i++)
        *whole = *whole || (rc == SQRL_E_UNSUPPORTED && plan.responses[i].status == 200);
    plan_reset(&plan);
    return rc;
}

static int read_remote(struct sqrl_context *context, struct sqrl_http_object *object,
                       struct sqrl_range *ranges, size_t count,
                       const struct sqrl_cancel *cancel, bool *whole,
                       struct sqrl_error *err) {
    struct view view;
    int rc = take_view(object, &view, err);
    if (rc == SQRL_OK)
        rc = read_round(context, object, &view, ranges, count, cancel, whole, err);
    bool stale = view.moved && (rc == SQRL_E_PERMISSION || rc == SQRL_E_NOT_FOUND ||
                                rc == SQRL_E_IO || rc == SQRL_E_STATE);
    if (stale) { /* where it led is no longer good: the way from the beginning */
        forget_moved(object, view.moved);
        free(view.moved);
        view.moved = NULL;
        rc = read_round(context, object, &view, ranges, count, cancel, whole, err);
    }
    view_reset(&view);
    return rc;
}

int sqrl_http_object_read(struct sqrl_context *context, struct sqrl_http_object *object,
                          struct sqrl_range *ranges, size_t count,
                          const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct sqrl_buffer *whole = whole_of(object);
    bool unknown = object->size == SQRL_SIZE_UNKNOWN, all = unknown, near = !unknown;
    for (size_t i = 0; i < count && near; i++)
        near = SQRL_MIN(ranges[i].offset + ranges[i].size, object->size) <=
               object->head_size;
    if (near) {
        copy_from(object->head, SQRL_MIN(object->head_size, object->size), ranges, count);
        sqrl_buffer_unref(whole);
        return SQRL_OK;
    }
    int rc = SQRL_OK;
    if (!whole && !unknown)
        rc = read_remote(context, object, ranges, count, cancel, &all, err);
    if (!whole && all) {
        rc = read_whole(context, object, cancel, err);
        whole = rc == SQRL_OK ? whole_of(object) : NULL;
    }
    if (whole)
        copy_from(whole->data, whole->size, ranges, count);
    sqrl_buffer_unref(whole);
    return rc;
}
