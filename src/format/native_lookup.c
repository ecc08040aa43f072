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
struct window {
    uint64_t from, to; /* records */
    uint8_t *bytes;
};

static int read_window(const struct native_reader *reader,
                       const struct native_frame *frame, struct window *w,
                       const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    uint64_t first = frame->offset + NATIVE_SKIP_BYTES + NATIVE_TAG_BYTES +
                     8 * ((UINT64_C(1) << frame->bits) + 1);
    size_t size = (size_t)(w->to - w->from) * NATIVE_KEY_BYTES;
    free(w->bytes);
    w->bytes = sqrl_malloc(size + 1, "keys", err);
    if (!w->bytes)
        return SQRL_E_NO_MEMORY;
    return sqrl_file_read_exact(reader->file, first + w->from * NATIVE_KEY_BYTES,
                                w->bytes, size, cancel, err);
}

static uint64_t hash_at(const struct window *w, uint64_t record) {
    return sqrl_load_le64(w->bytes + (record - w->from) * NATIVE_KEY_BYTES);
}

/* The window reaches to both sides of the hash, or to an end of the keys. */
static bool holds(const struct window *w, uint64_t count, uint64_t hash) {
    return (w->from == 0 || hash_at(w, w->from) < hash) &&
           (w->to == count || hash_at(w, w->to - 1) > hash);
}

static int take_numbers(const struct native_reader *reader,
                        const struct native_frame *frame, const struct window *w,
                        uint64_t hash, struct sqrl_bytes *numbers,
                        struct sqrl_error *err) {
    uint64_t low = w->from, high = w->to;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (hash_at(w, middle) < hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < w->to && hash_at(w, low) == hash; low++) {
        const uint8_t *record = w->bytes + (low - w->from) * NATIVE_KEY_BYTES;
        uint64_t number = sqrl_load_le64(record + 8);
        if (number >= reader->tail.samples)
            return damaged(frame, err);
        int rc = sqrl_bytes_append(numbers, &number, sizeof number, err);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

int native_find(void *state, uint64_t hash, const struct sqrl_cancel *cancel,
                struct sqrl_bytes *numbers, const char **field, struct sqrl_error *err) {
    struct native_reader *reader = state;
    const struct native_frame *frame = NULL;
    *field = NULL;
    for (uint32_t i = 0; i < reader->tail.frames && !frame; i++)
        if (strcmp(reader->tail.frame[i].kind, "keys") == 0)
            frame = &reader->tail.frame[i];
    if (!frame)
        return SQRL_OK;
    *field = frame->field;
    uint64_t count = frame->count;
    if (!count)
        return SQRL_OK;
    /* 6 standard deviations of sqrt(n p (1 - p)) <= sqrt(n) / 2. */
    uint64_t reach = 3 * (uint64_t)sqrt((double)count) + 8;
    uint64_t middle = SQRL_MIN(
        (uint64_t)((double)hash / 18446744073709551616.0 * (double)count), count);
    struct window w = {0, 0, NULL};
    int rc = SQRL_OK;
    for (bool first = true; rc == SQRL_OK && (first || !holds(&w, count, hash));
         reach = SQRL_MIN(8 * reach, count), first = false) {
        w.from = middle > reach ? middle - reach : 0;
        w.to = count - middle > reach ? middle + reach : count;
        rc = read_window(reader, frame, &w, cancel, err);
    }
    if (rc == SQRL_OK)
        rc = take_numbers(reader, frame, &w, hash, numbers, err);
    free(w.bytes);
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
