/* answer.c - an answer is looked at before a byte of it lands.
 *
 * Runs on the I/O thread. The request does not change while its attempts run; what is
 * found is left in the attempt for the caller's thread. */
#include "io/http/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>

#define MAX_ERROR_BODY ((size_t)64 << 10)
#define MAX_BODY ((size_t)16 << 20)

static bool number(const char **text, uint64_t *out) {
    if (**text < '0' || **text > '9')
        return false;
    char *end;
    errno = 0;
    *out = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && *out <= INT64_MAX;
}

bool sqrl_content_range(const char *text, uint64_t *first, uint64_t *last,
                        uint64_t *total) {
    if (!text || strncasecmp(text, "bytes ", 6) != 0)
        return false;
    text += 6;
    while (*text == ' ')
        text++;
    if (!number(&text, first) || *text++ != '-' || !number(&text, last) || *text++ != '/')
        return false;
    *total = SQRL_SIZE_UNKNOWN;
    if (strcmp(text, "*") == 0)
        return *first <= *last;
    return number(&text, total) && *text == 0 && *first <= *last && *last < *total;
}

static const char *header(const struct sqrl_attempt *a, const char *name) {
    return sqrl_http_headers_get(&a->transfer.answer, name);
}

static uint64_t length_of(const struct sqrl_attempt *a) {
    const char *text = header(a, "Content-Length");
    uint64_t n;
    return text && number(&text, &n) && *text == 0 ? n : SQRL_SIZE_UNKNOWN;
}

/* Of the version that the request is about, as far as the answer tells? */
static bool same_version(const struct sqrl_attempt *a) {
    const struct sqrl_http_request *r = a->job->request;
    const char *etag = header(a, "ETag"), *date = header(a, "Last-Modified");
    if (r->etag)
        return !etag || strcmp(etag, r->etag) == 0;
    return !r->last_modified || !date || strcmp(date, r->last_modified) == 0;
}

static bool same_encoding(const struct sqrl_attempt *a) {
    const char *wanted = a->job->request->encoding, *came = header(a, "Content-Encoding");
    if (!came || !*came || strcasecmp(came, "identity") == 0)
        return true;
    return wanted && strcasecmp(came, wanted) == 0;
}

static enum sqrl_flaw whole_answer(struct sqrl_attempt *a) {
    const struct sqrl_http_request *r = a->job->request;
    uint64_t length = length_of(a);
    if (r->total && length != SQRL_SIZE_UNKNOWN && length != r->total)
        return SQRL_FLAW_PAGE;
    if (!same_version(a))
        return SQRL_FLAW_CHANGED;
    /* All that there is was asked for: then it is the range. */
    bool all = r->offset == 0 && a->from == 0 && r->total == r->size && length == r->size;
    a->last = r->size;
    return all ? SQRL_FLAW_NONE : SQRL_FLAW_WHOLE;
}

static enum sqrl_flaw ranged_answer(struct sqrl_attempt *a) {
    const struct sqrl_http_request *r = a->job->request;
    uint64_t first, last, total, length = length_of(a);
    if (!same_encoding(a))
        return SQRL_FLAW_ENCODED;
    if (a->transfer.status == 200)
        return whole_answer(a);
    if (a->transfer.status != 206 ||
        !sqrl_content_range(header(a, "Content-Range"), &first, &last, &total))
        return SQRL_FLAW_RANGE;
    if (first != r->offset + a->from || last >= r->offset + r->size)
        return SQRL_FLAW_RANGE;
    if (!same_version(a) || (r->total && total != SQRL_SIZE_UNKNOWN && total != r->total))
        return SQRL_FLAW_CHANGED;
    if (length != SQRL_SIZE_UNKNOWN && length != last - first + 1)
        return SQRL_FLAW_LENGTH;
    a->last = last + 1 - r->offset;
    if (r->until_end && total < r->offset + r->size)
        a->end = total - r->offset;
    return SQRL_FLAW_NONE;
}

bool sqrl_answer_headers(struct sqrl_transfer *transfer) {
    struct sqrl_attempt *a = transfer->owner;
    bool good = transfer->status >= 200 && transfer->status < 300;
    if (good && a->job->request->size > 0)
        a->flaw = ranged_answer(a);
    else if (good && strcmp(a->job->request->method, "GET") == 0 && !same_encoding(a))
        a->flaw = SQRL_FLAW_ENCODED;
    return a->flaw == SQRL_FLAW_NONE;
}

/* --- bytes --- */

void sqrl_answer_seek(struct sqrl_attempt *a, uint64_t from) {
    const struct sqrl_http_request *r = a->job->request;
    a->from = a->position = from;
    a->segment = 0;
    a->at = 0;
    while (a->segment < r->segment_count && from >= r->segments[a->segment].size)
        from -= r->segments[a->segment++].size;
    a->at = (size_t)from;
}

static bool land(struct sqrl_attempt *a, const uint8_t *data, size_t size) {
    const struct sqrl_http_segment *segments = a->job->request->segments;
    if (size > a->last - a->position) {
        a->flaw = SQRL_FLAW_LONG;
        return false;
    }
    uint64_t position = a->position + size;
    while (size > 0) {
        const struct sqrl_http_segment *s = &segments[a->segment];
        size_t n = SQRL_MIN(size, s->size - a->at);
        if (s->data && n > 0)
            memcpy(s->data + a->at, data, n);
        data += n;
        size -= n;
        a->at += n;
        if (a->at == s->size) {
            a->segment++;
            a->at = 0;
        }
    }
    __atomic_store_n(&a->position, position, __ATOMIC_RELEASE);
    return true;
}

/* Room for `size` bytes more and a NUL, at once for all that is announced. */
static bool make_room(struct sqrl_attempt *a, size_t size, size_t most) {
    size_t need = a->body_size + size + 1;
    if (need <= a->body_room)
        return true;
    uint64_t length = length_of(a);
    size_t room = SQRL_MAX(2 * a->body_room, need);
    if (a->body_size == 0 && length <= most)
        room = SQRL_MAX(room, (size_t)length + 1);
    uint8_t *body = sqrl_realloc(a->body, room, "an answer", NULL);
    if (!body)
        return false;
    a->body = body;
    a->body_room = room;
    return true;
}

static bool keep(struct sqrl_attempt *a, const uint8_t *data, size_t size) {
    const struct sqrl_http_request *r = a->job->request;
    bool good = a->transfer.status < 300;
    size_t most = !good ? MAX_ERROR_BODY : r->max_body ? r->max_body : MAX_BODY;
    if (size > most - a->body_size && good) {
        a->flaw = SQRL_FLAW_LIMIT;
        return false;
    }
    size = SQRL_MIN(size, most - a->body_size); /* the rest of an error is left out */
    if (!make_room(a, size, most)) {
        a->flaw = SQRL_FLAW_MEMORY;
        return false;
    }
    memcpy(a->body + a->body_size, data, size);
    a->body_size += size;
    a->body[a->body_size] = 0;
    return true;
}

bool sqrl_answer_data(struct sqrl_transfer *transfer, const uint8_t *data, size_t size) {
    struct sqrl_attempt *a = transfer->owner;
    bool lands = a->job->request->size > 0 && transfer->status < 300;
    return lands ? land(a, data, size) : keep(a, data, size);
}

/* --- what was wrong --- */

int sqrl_flaw_error(const struct sqrl_attempt *a, struct sqrl_error *err) {
    const struct sqrl_http_request *r = a->job->request;
    const char *type = header(a, "Content-Type"), *range = header(a, "Content-Range");
    const char *etag = header(a, "ETag"), *encoding = header(a, "Content-Encoding");
    uint64_t end = r->offset + r->size - 1, length = length_of(a);
    switch (a->flaw) {
    case SQRL_FLAW_WHOLE:
        return sqrl_error_set(
            err, SQRL_E_UNSUPPORTED,
            "the server sends the whole file instead of the range that was asked for");
    case SQRL_FLAW_PAGE:
        return sqrl_error_set(err, SQRL_E_IO,
                              "the server sends something else (%.60s, %" PRIu64
                              " bytes) instead of the file of %" PRIu64
                              " bytes: is it a page that asks for a login?",
                              type ? type : "of no type", length, r->total);
    case SQRL_FLAW_RANGE:
        return sqrl_error_set(err, SQRL_E_IO,
                              "asked for bytes %" PRIu64 " to %" PRIu64
                              ", the server sends %.60s%s",
                              r->offset + a->from, end, range ? range : "no range",
                              range ? "" : " that can be told");
    case SQRL_FLAW_LENGTH:
        return sqrl_error_set(err, SQRL_E_IO,
                              "the lengths of the server's answer contradict each other: "
                              "Content-Range %.60s, Content-Length %" PRIu64,
                              range ? range : "", length);
    case SQRL_FLAW_SHORT:
        return sqrl_error_set(err, SQRL_E_TRUNCATED,
                              "the server's answer ends at byte %" PRIu64
                              ", asked for were those up to %" PRIu64,
                              r->offset + a->position, end);
    case SQRL_FLAW_LONG:
        return sqrl_error_set(err, SQRL_E_IO, "the server sends more than it announced");
    case SQRL_FLAW_ENCODED:
        return sqrl_error_set(err, SQRL_E_IO,
                              "the server compresses the file on the way "
                              "(Content-Encoding %.40s), which was not asked for",
                              encoding ? encoding : "");
    case SQRL_FLAW_CHANGED:
        return sqrl_error_set(err, SQRL_E_STATE,
                              "the file changed while it was read (%.60s, ETag %.60s; it "
                              "had %" PRIu64 " bytes, ETag %.60s): open it again",
                              range ? range : "no range", etag ? etag : "none", r->total,
                              r->etag ? r->etag : "none");
    case SQRL_FLAW_LIMIT:
        return sqrl_error_set(err, SQRL_E_LIMIT, "the answer is larger than %zu bytes",
                              r->max_body ? r->max_body : MAX_BODY);
    default:
        return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for the answer");
    }
}
