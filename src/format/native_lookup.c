/* Finding samples by the frames behind the data.
 *
 * Keys: the hashes are sorted and spread evenly, so where one lies is known to within a
 * few standard deviations of a binomial: one read of that window finds it, where the
 * fan-out table would take a read of its own first. What is read in part can't be
 * compared with the frame's checksum; the caller compares the key in the sample.
 *
 * Columns are read whole and checked. */
#include "format/native_inner.h"

#include <math.h>
#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

static int damaged(const struct native_frame *frame, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "the frame \"%s\" of field \"%.120s\" at offset %llu is not "
                          "valid: the file was damaged or written by a faulty program; "
                          "its samples may be good all the same",
                          frame->kind, frame->field, LLU(frame->offset));
}

/* --- keys --- */
enum {
    MOST_BYTES = 8 << 20, /* of windows in memory at a time */
    MOST_WINDOWS = 1024,
    GAP = 1024 /* records between windows that are read along */
};

struct window {
    uint64_t from, to; /* records */
    const uint8_t *bytes;
};

/* What is looked for in one shard. */
struct lookup {
    const struct native_reader *reader;
    const struct native_frame *frame;
    const struct sqrl_cancel *cancel;
    const uint64_t *hashes;
    struct sqrl_bytes *matches;
    uint64_t reach; /* records to both sides */
};

/* All windows in one batched read, into new memory. */
static int read_windows(const struct lookup *l, struct window *w, size_t count,
                        uint8_t **memory, struct sqrl_error *err) {
    uint64_t first = l->frame->offset + NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES +
                     8 * ((UINT64_C(1) << l->frame->bits) + 1);
    uint64_t records = 0;
    for (size_t i = 0; i < count; i++)
        records += w[i].to - w[i].from;
    *memory = sqrl_malloc((size_t)records * NATIVE_KEY_BYTES + 1, "keys", err);
    struct sqrl_range *range = sqrl_calloc(count, sizeof *range, "keys", err);
    int rc = *memory && range ? SQRL_OK : SQRL_E_NO_MEMORY;
    uint8_t *at = *memory;
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        size_t size = (size_t)(w[i].to - w[i].from) * NATIVE_KEY_BYTES;
        range[i] = (struct sqrl_range){
            .offset = first + w[i].from * NATIVE_KEY_BYTES, .data = at, .size = size};
        w[i].bytes = at;
        at += size;
    }
    if (rc == SQRL_OK)
        rc = sqrl_file_read(l->reader->file, range, count, l->cancel, err);
    for (size_t i = 0; rc == SQRL_OK && i < count; i++)
        if (range[i].got < range[i].size)
            rc = damaged(l->frame, err); /* it ends beyond the end of the file */
    free(range);
    return rc;
}

static uint64_t hash_at(const struct window *w, uint64_t record) {
    return sqrl_load_le64(w->bytes + (record - w->from) * NATIVE_KEY_BYTES);
}

/* The window reaches to both sides of the hash, or to an end of the keys. */
static bool holds(const struct window *w, uint64_t count, uint64_t hash) {
    return (w->from == 0 || hash_at(w, w->from) < hash) &&
           (w->to == count || hash_at(w, w->to - 1) > hash);
}

static int take_numbers(const struct lookup *l, const struct window *w, uint64_t which,
                        struct sqrl_error *err) {
    uint64_t low = w->from, high = w->to, hash = l->hashes[which];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (hash_at(w, middle) < hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < w->to && hash_at(w, low) == hash; low++) {
        const uint8_t *record = w->bytes + (low - w->from) * NATIVE_KEY_BYTES;
        struct sqrl_key_match match = {which, sqrl_load_le64(record + 8)};
        if (match.number >= l->reader->tail.samples)
            return damaged(l->frame, err);
        int rc = sqrl_bytes_append(l->matches, &match, sizeof match, err);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

/* Where a hash should be. */
static struct window window_of(const struct lookup *l, uint64_t hash, uint64_t reach) {
    uint64_t count = l->frame->count;
    uint64_t middle = SQRL_MIN(
        (uint64_t)((double)hash / 18446744073709551616.0 * (double)count), count);
    return (struct window){middle > reach ? middle - reach : 0,
                           count - middle > reach ? middle + reach : count, NULL};
}

/* One that is not where it should be: in larger and larger windows. */
static int find_far(const struct lookup *l, uint64_t which, struct sqrl_error *err) {
    int rc = SQRL_OK;
    bool there = false;
    for (uint64_t reach = l->reach; rc == SQRL_OK && !there;) {
        reach = SQRL_MIN(8 * reach, l->frame->count);
        uint8_t *memory = NULL;
        struct window w = window_of(l, l->hashes[which], reach);
        rc = read_windows(l, &w, 1, &memory, err);
        there = rc == SQRL_OK && holds(&w, l->frame->count, l->hashes[which]);
        if (there)
            rc = take_numbers(l, &w, which, err);
        free(memory);
    }
    return rc;
}

/* Looks for hashes [from, *to), as many as one read should bring. */
static int find_some(const struct lookup *l, uint64_t from, uint64_t *to, uint64_t end,
                     struct sqrl_error *err) {
    struct window *w = sqrl_malloc(MOST_WINDOWS * sizeof *w, "keys", err);
    uint8_t *memory = NULL;
    size_t windows = 0, at = 0;
    uint64_t records = 0;
    if (!w)
        return SQRL_E_NO_MEMORY;
    for (*to = from; *to < end; ++*to) {
        struct window next = window_of(l, l->hashes[*to], l->reach);
        bool joins = windows && next.from <= w[windows - 1].to + GAP;
        uint64_t more = next.to - (joins ? w[windows - 1].to : next.from);
        if (windows && (records + more) * NATIVE_KEY_BYTES > MOST_BYTES)
            break;
        if (!joins && windows == MOST_WINDOWS)
            break;
        records += more;
        if (joins)
            w[windows - 1].to = next.to;
        else
            w[windows++] = next;
    }
    int rc = read_windows(l, w, windows, &memory, err);
    for (uint64_t i = from; rc == SQRL_OK && i < *to; i++) {
        struct window own = window_of(l, l->hashes[i], l->reach);
        while (w[at].to < own.to)
            at++;
        rc = holds(&w[at], l->frame->count, l->hashes[i])
                 ? take_numbers(l, &w[at], i, err)
                 : find_far(l, i, err);
    }
    free(memory);
    free(w);
    return rc;
}

int native_find(void *state, const uint64_t *hashes, size_t count,
                const struct sqrl_cancel *cancel, struct sqrl_bytes *matches,
                const char **field, struct sqrl_error *err) {
    struct native_reader *reader = state;
    struct lookup l = {reader, NULL, cancel, hashes, matches, 0};
    *field = NULL;
    for (uint32_t i = 0; i < reader->tail.frames && !l.frame; i++)
        if (strcmp(reader->tail.frame[i].kind, "keys") == 0)
            l.frame = &reader->tail.frame[i];
    if (!l.frame)
        return SQRL_OK;
    *field = l.frame->field;
    /* 6 standard deviations of sqrt(n p (1 - p)) <= sqrt(n) / 2. */
    l.reach = 3 * (uint64_t)sqrt((double)l.frame->count) + 8;
    int rc = SQRL_OK;
    for (uint64_t at = 0; rc == SQRL_OK && l.frame->count && at < count;)
        rc = find_some(&l, at, &at, count, err);
    return rc;
}

/* --- columns --- */
static int read_frame(const struct native_reader *reader,
                      const struct native_frame *frame, const struct sqrl_cancel *cancel,
                      struct sqrl_buffer **out, struct sqrl_error *err) {
    size_t size = (size_t)frame->size;
    int rc = sqrl_buffer_new(reader->context, size, out, err);
    if (rc == SQRL_OK)
        rc = sqrl_file_read_exact(reader->file, frame->offset, (*out)->data, size, cancel,
                                  err);
    if (rc == SQRL_OK)
        (*out)->size = size;
    if (rc == SQRL_OK && sqrl_xxh3((*out)->data, size) != frame->checksum)
        rc = damaged(frame, err);
    return rc;
}

static bool offsets_rise(const uint64_t *offsets, uint64_t count, uint64_t size) {
    if (offsets[0] != 0)
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (offsets[i + 1] < offsets[i] || offsets[i + 1] > size)
            return false;
    return true;
}

/* Finds the parts of the body; it is as long as they say. */
static int take_parts(const struct native_frame *frame, uint64_t samples,
                      struct sqrl_values *out, struct sqrl_error *err) {
    const uint8_t *at = out->memory->data + NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES;
    uint64_t left = frame->size - NATIVE_SKIP_BYTES - NATIVE_TAG_BYTES;
    uint64_t valid = frame->valid ? (samples + 63) / 64 * 8 : 0;
    bool texts = strcmp(frame->dtype, "string") == 0;
    out->dtype = texts ? SQRL_DTYPE_OTHER
                       : sqrl_dtype_parse(frame->dtype, strlen(frame->dtype), NULL);
    size_t element = sqrl_dtype_size(out->dtype);
    if ((!texts && !element) || valid > left || samples > left)
        return damaged(frame, err);
    out->valid = valid ? at : NULL;
    at += valid;
    left -= valid;
    out->data = at;
    if (!texts)
        return left == samples * element ? SQRL_OK : damaged(frame, err);
    if (left / 8 < samples + 1)
        return damaged(frame, err);
    out->offsets = (const uint64_t *)(const void *)at; /* 8-aligned: all before are */
    out->data = at + 8 * (samples + 1);
    left -= 8 * (samples + 1);
    return offsets_rise(out->offsets, samples, left) ? SQRL_OK : damaged(frame, err);
}

int native_column(void *state, const char *field, const struct sqrl_cancel *cancel,
                  struct sqrl_values *out, struct sqrl_error *err) {
    struct native_reader *reader = state;
    *out = (struct sqrl_values){.count = reader->tail.samples};
    for (uint32_t i = 0; i < reader->tail.frames; i++) {
        const struct native_frame *frame = &reader->tail.frame[i];
        if (strcmp(frame->kind, "column") != 0 || strcmp(frame->field, field) != 0)
            continue;
        int rc = read_frame(reader, frame, cancel, &out->memory, err);
        if (rc == SQRL_OK)
            rc = take_parts(frame, reader->tail.samples, out, err);
        if (rc) {
            sqrl_buffer_unref(out->memory);
            *out = (struct sqrl_values){0};
        }
        return rc;
    }
    return SQRL_OK;
}
