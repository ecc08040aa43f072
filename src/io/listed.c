/* listed.c - listings as text.
 *
 * "sqrl-listed 1 HASH", then for each listing "@rf PATH" (r: 1 recursive; f: 1 found) and
 * its entries, "SIZE NANOSECONDS DIRECTORY =ETAG NAME": a line each, all but printable
 * ASCII written as %XX. HASH is the XXH3 of all lines behind the first. */
#include "io/listed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char mark[] = "sqrl-listed 1 ";
enum { HEAD_BYTES = sizeof mark - 1 + 16 + 1 };

struct sqrl_listed {
    struct sqrl_lock lock;
    char *given;             /* lines to answer from; '!' for '@': that one was given */
    struct sqrl_bytes lines; /* what was listed */
    bool full;               /* some of it is not there */
};

static void put_escaped(struct sqrl_bytes *to, const char *text, char end) {
    char code[4];
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c > ' ' && c < 0x7f && c != '%';
        int n = plain ? 1 : snprintf(code, sizeof code, "%%%02x", c);
        (void)!sqrl_bytes_append(to, plain ? text : code, (size_t)n, NULL);
    }
    (void)!sqrl_bytes_append(to, &end, 1, NULL);
}

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The word up to `end`, without escapes, into out[size]; NULL when it is none. */
static const char *take_escaped(const char *text, char end, char *out, size_t size) {
    size_t n = 0;
    for (; *text && *text != end; text++) {
        int c = (unsigned char)*text;
        if (c == '%') {
            int high = hex(text[1]), low = high < 0 ? -1 : hex(text[2]);
            c = low < 0 ? 0 : high << 4 | low;
            text += 2;
        }
        if (!c || n + 1 >= size)
            return NULL;
        out[n++] = (char)c;
    }
    out[n] = 0;
    return *text == end ? text + 1 : NULL;
}

void sqrl_listed_entry(struct sqrl_bytes *to, const char *name,
                       const struct sqrl_stat *stat) {
    char numbers[64];
    if (to->size > SQRL_LISTED_MAX_BYTES)
        return;
    int n = snprintf(numbers, sizeof numbers, "%" PRIu64 " %" PRId64 " %d =", stat->size,
                     stat->modified_ns, stat->directory);
    (void)!sqrl_bytes_append(to, numbers, (size_t)n, NULL);
    put_escaped(to, stat->etag, ' ');
    put_escaped(to, name, '\n');
}

static void put_head(struct sqrl_bytes *to, const char *path, bool recursive,
                     bool found) {
    char head[8];
    int n = snprintf(head, sizeof head, "@%d%d ", recursive, found);
    (void)!sqrl_bytes_append(to, head, (size_t)n, NULL);
    put_escaped(to, path, '\n');
}

void sqrl_listed_add(struct sqrl_listed *listed, const char *path, bool recursive,
                     bool found, const struct sqrl_bytes *entries) {
    sqrl_lock_take(&listed->lock);
    listed->full = listed->full || entries->size > SQRL_LISTED_MAX_BYTES ||
                   listed->lines.size + entries->size > SQRL_LISTED_MAX_BYTES;
    if (!listed->full) {
        put_head(&listed->lines, path, recursive, found);
        if (entries->size &&
            sqrl_bytes_append(&listed->lines, entries->data, entries->size, NULL))
            listed->full = true;
    }
    sqrl_lock_drop(&listed->lock);
}

/* The line of a listing in what is given, marked as given; NULL: there is none. */
static char *find_given(struct sqrl_listed *listed, const char *path, bool recursive,
                        bool *found) {
    char *hit = NULL;
    for (int f = 0; f < 2 && !hit && listed->given; f++) {
        struct sqrl_bytes head = {0};
        put_head(&head, path, recursive, f);
        for (char *at = listed->given; at && *at && head.size && !hit;) {
            if (strncmp(at, (const char *)head.data, head.size) == 0)
                hit = at;
            at = strchr(at, '\n');
            at = at ? at + 1 : NULL;
        }
        *found = f;
        sqrl_bytes_reset(&head);
    }
    if (hit)
        *hit = '!';
    return hit;
}

static const char *take_entry(const char *line, char *name, size_t size,
                              struct sqrl_stat *stat) {
    char *rest;
    *stat = (struct sqrl_stat){.size = strtoull(line, &rest, 10)};
    stat->modified_ns = *rest == ' ' ? strtoll(rest + 1, &rest, 10) : 0;
    stat->directory = *rest == ' ' && rest[1] == '1';
    if (strncmp(rest, " 1 =", 4) != 0 && strncmp(rest, " 0 =", 4) != 0)
        return NULL;
    const char *next = take_escaped(rest + 4, ' ', stat->etag, sizeof stat->etag);
    return next ? take_escaped(next, '\n', name, size) : NULL;
}

bool sqrl_listed_answer(struct sqrl_listed *listed, const char *path, bool recursive,
                        sqrl_list_fn visit, void *arg, int *rc, struct sqrl_error *err) {
    enum { NAME_BYTES = 4096 };
    bool found = false;
    sqrl_lock_take(&listed->lock);
    const char *line = find_given(listed, path, recursive, &found);
    sqrl_lock_drop(&listed->lock);
    struct sqrl_bytes entries = {0};
    char *name = line ? sqrl_malloc(NAME_BYTES, "a listing", NULL) : NULL;
    if (!name)
        return false;
    *rc = found ? SQRL_OK
                : sqrl_error_set(err, SQRL_E_NOT_FOUND,
                                 "there was no such directory when this data set was "
                                 "listed: open it anew");
    for (line = strchr(line, '\n') + 1; *rc == SQRL_OK && *line >= '0' && *line <= '9';) {
        struct sqrl_stat stat;
        line = take_entry(line, name, NAME_BYTES, &stat);
        if (!line) {
            *rc = sqrl_error_set(err, SQRL_E_CORRUPT,
                                 "what was listed elsewhere can't be read: open the data "
                                 "set anew");
            break;
        }
        sqrl_listed_entry(&entries, name, &stat);
        *rc = visit(arg, name, &stat);
    }
    if (*rc == SQRL_OK || !found)
        sqrl_listed_add(listed, path, recursive, found, &entries);
    free(name);
    sqrl_bytes_reset(&entries);
    return true;
}

static int take_text(struct sqrl_listed *listed, const char *text,
                     struct sqrl_error *err) {
    size_t size = strlen(text);
    char hash[17];
    const char *lines = text + HEAD_BYTES;
    if (size >= HEAD_BYTES && size <= HEAD_BYTES + 2 * SQRL_LISTED_MAX_BYTES &&
        strncmp(text, mark, sizeof mark - 1) == 0) {
        snprintf(hash, sizeof hash, "%016" PRIx64, sqrl_xxh3(lines, size - HEAD_BYTES));
        if (strncmp(text + sizeof mark - 1, hash, 16) == 0 && lines[-1] == '\n' &&
            (!*lines || text[size - 1] == '\n')) {
            listed->given = sqrl_strdup(lines, err);
            return listed->given ? SQRL_OK : SQRL_E_NO_MEMORY;
        }
    }
    return sqrl_error_set(err, SQRL_E_CORRUPT,
                          "listed: not what another opening of a data set listed (made "
                          "by another version, or damaged): open it anew");
}

void sqrl_listed_free(struct sqrl_listed *listed) {
    if (!listed)
        return;
    sqrl_lock_reset(&listed->lock);
    sqrl_bytes_reset(&listed->lines);
    free(listed->given);
    free(listed);
}

int sqrl_fs_keep_listings(struct sqrl_fs *fs, const char *text, struct sqrl_error *err) {
    if (*sqrl_fs_listed_place(fs))
        return SQRL_OK;
    struct sqrl_listed *listed = sqrl_calloc(1, sizeof *listed, "listings", err);
    if (!listed)
        return SQRL_E_NO_MEMORY;
    sqrl_lock_init(&listed->lock);
    int rc = *text ? take_text(listed, text, err) : SQRL_OK;
    if (rc)
        sqrl_listed_free(listed);
    else
        *sqrl_fs_listed_place(fs) = listed;
    return rc;
}

char *sqrl_fs_listings(struct sqrl_fs *fs) {
    struct sqrl_listed *listed = *sqrl_fs_listed_place(fs);
    char *text = NULL;
    if (!listed)
        return NULL;
    sqrl_lock_take(&listed->lock);
    if (!listed->full && listed->lines.size)
        text = sqrl_format(NULL, "%s%016" PRIx64 "\n%.*s", mark,
                           sqrl_xxh3(listed->lines.data, listed->lines.size),
                           (int)listed->lines.size, (const char *)listed->lines.data);
    sqrl_lock_drop(&listed->lock);
    return text;
}
