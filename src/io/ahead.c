/* ahead.c - see ahead.h.
 *
 * A file has a list of stretches, under a lock of its own (fs.c). A reader takes a
 * reference to the stretch it needs, and to the bytes of a piece while it copies: whoever
 * drops one meanwhile only lets go of its own. */
#include "io/ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define POLL_NS 20000000 /* a cancelled wait ends within this */

enum piece_state { PIECE_WAITS, PIECE_UNDER_WAY, PIECE_HELD, PIECE_FAILED, PIECE_GONE };

struct piece {
    enum piece_state state;
    struct sqrl_buffer *bytes; /* HELD */
    size_t got;
    int code; /* FAILED */
    struct sqrl_error *error;
};

struct sqrl_ahead {
    int refs;
    struct sqrl_ahead *next; /* in the file's list */
    struct sqrl_file *file;
    uint64_t begin, end, pieces;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t settled;
    uint64_t reached;
    struct piece piece[];
};

uint64_t sqrl_piece_count(uint64_t begin, uint64_t end) {
    return (end - begin + SQRL_PIECE_BYTES - 1) / SQRL_PIECE_BYTES;
}

/* Multiples of the size, so that neighbours differ by less than the rest. */
uint64_t sqrl_piece_begin(uint64_t begin, uint64_t end, uint64_t i) {
    uint64_t count = sqrl_piece_count(begin, end);
    uint64_t each = count ? (end - begin) / count : 0,
             more = (end - begin) - each * count;
    return begin + each * i + SQRL_MIN(i, more);
}

uint64_t sqrl_ahead_pieces(const struct sqrl_ahead *ahead) {
    return ahead->pieces;
}

uint64_t sqrl_ahead_begin(const struct sqrl_ahead *ahead, uint64_t piece) {
    return sqrl_piece_begin(ahead->begin, ahead->end, piece);
}

uint64_t sqrl_ahead_find(const struct sqrl_ahead *ahead, uint64_t offset) {
    uint64_t each = (ahead->end - ahead->begin) / ahead->pieces;
    uint64_t piece = offset > ahead->begin ? (offset - ahead->begin) / (each + 1) : 0;
    piece = SQRL_MIN(piece, ahead->pieces - 1);
    while (piece + 1 < ahead->pieces && sqrl_ahead_begin(ahead, piece + 1) <= offset)
        piece++;
    return piece;
}

static void unref(struct sqrl_ahead *ahead) {
    if (__atomic_sub_fetch(&ahead->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (uint64_t i = 0; i < ahead->pieces; i++) {
        sqrl_buffer_unref(ahead->piece[i].bytes);
        free(ahead->piece[i].error);
    }
    pthread_cond_destroy(&ahead->settled);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead);
}

int sqrl_ahead_new(struct sqrl_file *file, uint64_t begin, uint64_t end,
                   struct sqrl_ahead **out, struct sqrl_error *err) {
    uint64_t pieces = sqrl_piece_count(begin, end);
    size_t bytes;
    *out = NULL;
    if (!pieces)
        return sqrl_error_set(err, SQRL_E_INVALID, "nothing to read ahead");
    if (sqrl_mul_overflow(pieces, sizeof(struct piece), &bytes) ||
        sqrl_add_overflow(bytes, sizeof(struct sqrl_ahead), &bytes))
        return sqrl_error_set(err, SQRL_E_LIMIT, "a file too large to be read ahead");
    struct sqrl_ahead *ahead = sqrl_calloc(1, bytes, "reading ahead", err);
    if (!ahead)
        return SQRL_E_NO_MEMORY;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&ahead->mutex, NULL);
    pthread_cond_init(&ahead->settled, &attributes);
    pthread_condattr_destroy(&attributes);
    ahead->refs = 1;
    ahead->file = sqrl_file_ref(file);
    ahead->begin = ahead->reached = begin;
    ahead->end = end;
    ahead->pieces = pieces;
    struct sqrl_lock *lock;
    struct sqrl_ahead **list = sqrl_file_ahead(file, &lock);
    if (sqrl_lock_take(lock))
        *list = NULL;
    ahead->next = *list;
    __atomic_store_n(list, ahead, __ATOMIC_RELEASE);
    sqrl_lock_drop(lock);
    *out = ahead;
    return SQRL_OK;
}

void sqrl_ahead_free(struct sqrl_ahead *ahead) {
    if (!ahead)
        return;
    struct sqrl_file *file = ahead->file;
    struct sqrl_lock *lock;
    struct sqrl_ahead **list = sqrl_file_ahead(file, &lock), **at = list;
    if (sqrl_lock_take(lock))
        *list = NULL;
    while (*at && *at != ahead)
        at = &(*at)->next;
    if (*at)
        __atomic_store_n(at, ahead->next, __ATOMIC_RELEASE);
    sqrl_lock_drop(lock);
    unref(ahead);
    sqrl_file_unref(file);
}

/* --- reading a piece --- */
/* The mutex is held, and given up while it reads. */
static void read_piece(struct sqrl_ahead *ahead, uint64_t number,
                       const struct sqrl_cancel *cancel) {
    struct piece *piece = &ahead->piece[number];
    struct sqrl_error error;
    struct sqrl_buffer *bytes = NULL;
    uint64_t begin = sqrl_ahead_begin(ahead, number);
    struct sqrl_range range = {
        .offset = begin, .size = (size_t)(sqrl_ahead_begin(ahead, number + 1) - begin)};
    piece->state = PIECE_UNDER_WAY;
    pthread_mutex_unlock(&ahead->mutex);
    sqrl_error_clear(&error);
    int rc = sqrl_buffer_new(sqrl_file_context(ahead->file), range.size, &bytes, &error);
    range.data = bytes ? bytes->data : NULL;
    if (!rc)
        rc = sqrl_file_read_past(ahead->file, &range, 1, cancel, &error);
    pthread_mutex_lock(&ahead->mutex);
    if (rc) {
        sqrl_buffer_unref(bytes);
        piece->code = rc;
        piece->error = malloc(sizeof error);
        if (piece->error)
            *piece->error = error;
    } else {
        piece->bytes = bytes;
        piece->got = range.got;
    }
    piece->state = rc ? PIECE_FAILED : PIECE_HELD;
    pthread_cond_broadcast(&ahead->settled);
}

static void wait_piece(struct sqrl_ahead *ahead, const struct piece *piece,
                       const struct sqrl_cancel *cancel) {
    while (piece->state == PIECE_UNDER_WAY && !sqrl_cancel_requested(cancel)) {
        uint64_t at = sqrl_now_ns() + POLL_NS;
        struct timespec t = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
        pthread_cond_timedwait(&ahead->settled, &ahead->mutex, &t);
    }
}

void sqrl_ahead_read(struct sqrl_ahead *ahead, uint64_t piece,
                     const struct sqrl_cancel *cancel) {
    pthread_mutex_lock(&ahead->mutex);
    if (ahead->piece[piece].state == PIECE_WAITS)
        read_piece(ahead, piece, cancel);
    else
        wait_piece(ahead, &ahead->piece[piece], cancel);
    pthread_mutex_unlock(&ahead->mutex);
}

bool sqrl_ahead_settled(struct sqrl_ahead *ahead, uint64_t offset, uint64_t size) {
    bool settled = true;
    if (offset >= ahead->end || offset + size <= ahead->begin)
        return true;
    uint64_t last = sqrl_ahead_find(ahead, offset + SQRL_MAX(size, 1u) - 1);
    pthread_mutex_lock(&ahead->mutex);
    for (uint64_t i = sqrl_ahead_find(ahead, offset); i <= last && settled; i++)
        settled = ahead->piece[i].state > PIECE_UNDER_WAY;
    pthread_mutex_unlock(&ahead->mutex);
    return settled;
}

void sqrl_ahead_drop(struct sqrl_ahead *ahead, uint64_t number) {
    struct piece *piece = &ahead->piece[number];
    pthread_mutex_lock(&ahead->mutex);
    struct sqrl_buffer *bytes = piece->bytes;
    struct sqrl_error *error = piece->error;
    if (piece->state != PIECE_UNDER_WAY) {
        piece->state = PIECE_GONE;
        piece->bytes = NULL;
        piece->error = NULL;
    } else {
        bytes = NULL;
        error = NULL;
    }
    pthread_mutex_unlock(&ahead->mutex);
    sqrl_buffer_unref(bytes);
    free(error);
}

uint64_t sqrl_ahead_reached(struct sqrl_ahead *ahead) {
    pthread_mutex_lock(&ahead->mutex);
    uint64_t reached = ahead->reached;
    pthread_mutex_unlock(&ahead->mutex);
    return reached;
}

/* --- answering reads --- */
enum answer { ANSWER_DONE, ANSWER_NOT_HERE, ANSWER_ERROR };

static int piece_error(const struct piece *piece, struct sqrl_error *err) {
    if (piece->error && err)
        *err = *piece->error;
    else
        sqrl_error_set(err, piece->code, "reading ahead failed");
    return piece->code;
}

/* The bytes of a piece, with a reference, once it is there. */
static enum answer take_piece(struct sqrl_ahead *ahead, uint64_t number,
                              struct sqrl_buffer **bytes, size_t *got,
                              const struct sqrl_cancel *cancel, int *code,
                              struct sqrl_error *err) {
    struct piece *piece = &ahead->piece[number];
    enum answer answer = ANSWER_NOT_HERE;
    pthread_mutex_lock(&ahead->mutex);
    if (piece->state == PIECE_WAITS)
        read_piece(ahead, number, cancel);
    wait_piece(ahead, piece, cancel);
    if (piece->state == PIECE_HELD) {
        *bytes = sqrl_buffer_ref(piece->bytes);
        *got = piece->got;
        answer = ANSWER_DONE;
    } else if (piece->state == PIECE_FAILED && piece->code != SQRL_E_CANCELLED) {
        *code = piece_error(piece, err);
        answer = ANSWER_ERROR;
    } /* else another reader's cancel, or our own: the read past it says so */
    pthread_mutex_unlock(&ahead->mutex);
    return answer;
}

static void copy(const struct sqrl_buffer *bytes, size_t got, uint64_t begin,
                 struct sqrl_range *range) {
    uint64_t at = range->offset + range->got - begin;
    if (at >= got)
        return;
    size_t size = (size_t)SQRL_MIN(range->size - range->got, (uint64_t)got - at);
    memcpy(range->data + range->got, bytes->data + at, size);
    range->got += size;
}

/* A range that lies within the stretch. */
static enum answer answer_range(struct sqrl_ahead *ahead, struct sqrl_range *range,
                                const struct sqrl_cancel *cancel, int *code,
                                struct sqrl_error *err) {
    uint64_t end = range->offset + range->size;
    enum answer answer = ANSWER_DONE;
    range->got = 0;
    for (uint64_t i = sqrl_ahead_find(ahead, range->offset);
         answer == ANSWER_DONE && i < ahead->pieces && sqrl_ahead_begin(ahead, i) < end;
         i++) {
        struct sqrl_buffer *bytes = NULL;
        size_t got = 0;
        answer = take_piece(ahead, i, &bytes, &got, cancel, code, err);
        if (answer == ANSWER_DONE)
            copy(bytes, got, sqrl_ahead_begin(ahead, i), range);
        sqrl_buffer_unref(bytes);
    }
    pthread_mutex_lock(&ahead->mutex);
    if (answer != ANSWER_NOT_HERE)
        ahead->reached = SQRL_MAX(ahead->reached, end);
    pthread_mutex_unlock(&ahead->mutex);
    return answer;
}

/* The stretch that has all of the range, with a reference. Beyond the end of the file
 * there is nothing: the last stretch answers for it. */
static struct sqrl_ahead *find(struct sqrl_ahead **list, struct sqrl_lock *lock,
                               const struct sqrl_range *range, uint64_t file_size) {
    struct sqrl_ahead *found = NULL;
    if (sqrl_lock_take(lock)) /* in a child: what the parent had is not there */
        *list = NULL;
    uint64_t end = SQRL_MIN(range->offset + range->size, file_size);
    for (struct sqrl_ahead *a = *list; a && !found; a = a->next)
        if (a->begin <= range->offset && end <= a->end && range->offset < a->end)
            found = a;
    if (found)
        __atomic_add_fetch(&found->refs, 1, __ATOMIC_RELAXED);
    sqrl_lock_drop(lock);
    return found;
}

int sqrl_ahead_serve(struct sqrl_file *file, struct sqrl_range *ranges, size_t count,
                     size_t *rest, size_t *left, const struct sqrl_cancel *cancel,
                     struct sqrl_error *err) {
    struct sqrl_lock *lock;
    struct sqrl_ahead **list = sqrl_file_ahead(file, &lock);
    int code = SQRL_OK;
    *left = 0;
    for (size_t i = 0; i < count && code == SQRL_OK; i++) {
        struct sqrl_ahead *ahead = find(list, lock, &ranges[i], sqrl_file_size(file));
        enum answer answer = ANSWER_NOT_HERE;
        if (ahead) {
            answer = answer_range(ahead, &ranges[i], cancel, &code, err);
            unref(ahead);
        }
        if (answer == ANSWER_NOT_HERE)
            rest[(*left)++] = i;
    }
    return code;
}
