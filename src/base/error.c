/* error.c - writing and joining error texts.
 *
 * Nothing here allocates, so that "no memory" can be told too. Texts come from file
 * names, data and servers: what reaches the struct is clean UTF-8 without control
 * characters.
 *
 * When `where` is full the innermost places stay whole, since they are what can't be
 * guessed; the outer place loses its front ("...00017.sqrl: block 4"), and when not even
 * a few bytes of it fit, it is left out. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "inner.h"

/* Longer than what can be shown: a cut here is never seen in the result. */
#define SCRATCH_BYTES 1024
#define WHERE_LEAST_BYTES 16

static const char *const code_names[] = {
    [SQRL_OK] = "ok",
    [SQRL_E_INVALID] = "invalid",
    [SQRL_E_NO_MEMORY] = "no_memory",
    [SQRL_E_IO] = "io",
    [SQRL_E_NOT_FOUND] = "not_found",
    [SQRL_E_PERMISSION] = "permission",
    [SQRL_E_EXISTS] = "exists",
    [SQRL_E_CORRUPT] = "corrupt",
    [SQRL_E_TRUNCATED] = "truncated",
    [SQRL_E_FORMAT] = "format",
    [SQRL_E_LIMIT] = "limit",
    [SQRL_E_UNSUPPORTED] = "unsupported",
    [SQRL_E_TYPE] = "type",
    [SQRL_E_STATE] = "state",
    [SQRL_E_CANCELLED] = "cancelled",
    [SQRL_E_NO_SPACE] = "no_space",
    [SQRL_E_USER] = "user",
};

struct errno_row {
    int os_errno;
    enum sqrl_code code;
    bool retryable;
    const char *advice; /* what to do, where that is the same for all calls */
};

/* Errors that are not listed are SQRL_E_IO and not worth another try. */
#define MAY_NOT "change the permissions, or run as a user who may"
static const struct errno_row errno_rows[] = {
    {ENOENT, SQRL_E_NOT_FOUND, false},
    {ENOTDIR, SQRL_E_NOT_FOUND, false},
    {EACCES, SQRL_E_PERMISSION, false, MAY_NOT},
    {EPERM, SQRL_E_PERMISSION, false, MAY_NOT},
    {EROFS, SQRL_E_PERMISSION, false, "choose another place"},
    {EEXIST, SQRL_E_EXISTS, false},
    {ENOTEMPTY, SQRL_E_EXISTS, false},
    {ENOSPC, SQRL_E_NO_SPACE, false},
    {EDQUOT, SQRL_E_NO_SPACE, false},
    {ENOMEM, SQRL_E_NO_MEMORY, false},
    {EMFILE, SQRL_E_LIMIT, false, "raise the limit (ulimit -n)"},
    {ENFILE, SQRL_E_LIMIT, false, "the whole system has no more; end others"},
    {EFBIG, SQRL_E_LIMIT, false},
    {EISDIR, SQRL_E_INVALID, false},
    {ENAMETOOLONG, SQRL_E_INVALID, false},
    {ELOOP, SQRL_E_INVALID, false},
    {ENOSYS, SQRL_E_UNSUPPORTED, false},
    {EOPNOTSUPP, SQRL_E_UNSUPPORTED, false},
    {ECANCELED, SQRL_E_CANCELLED, false},
    {EIO, SQRL_E_IO, false, "the disk may be failing: look at the system's log"},
    {EINTR, SQRL_E_IO, true},
    {EAGAIN, SQRL_E_IO, true},
    {EBUSY, SQRL_E_IO, true},
    {ESTALE, SQRL_E_IO, true},
    {ETIMEDOUT, SQRL_E_IO, true},
    {ECONNRESET, SQRL_E_IO, true},
    {ECONNREFUSED, SQRL_E_IO, true},
    {ECONNABORTED, SQRL_E_IO, true},
    {EPIPE, SQRL_E_IO, true},
    {ENETDOWN, SQRL_E_IO, true},
    {ENETUNREACH, SQRL_E_IO, true},
    {ENETRESET, SQRL_E_IO, true},
    {EHOSTUNREACH, SQRL_E_IO, true},
};

const char *sqrl_code_name(int code) {
    if (code < 0 || (size_t)code >= SQRL_COUNT_OF(code_names))
        return "unknown";
    return code_names[code];
}

/* Length of the UTF-8 character at p (Unicode 15, table 3-7), 0 when it is not valid. The
 * text ends with NUL, which is no continuation byte, so nothing behind it is read. */
static size_t utf8_length(const unsigned char *p, uint32_t *point) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = p[0] < 0x80   ? 1
                    : p[0] < 0xc2 ? 0
                    : p[0] < 0xe0 ? 2
                    : p[0] < 0xf0 ? 3
                                  : 4;
    if (length == 0 || p[0] > 0xf4)
        return 0;
    uint32_t value = length == 1 ? p[0] : p[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (p[i] & 0x3f);
    }
    if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *point = value;
    return length;
}

static bool is_printable(uint32_t point) {
    if (point < 0x20 || (point >= 0x7f && point < 0xa0))
        return false;
    if ((point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069))
        return false; /* line separators, and marks that turn the reading direction */
    return point != 0xfeff;
}

size_t sqrl_text_clean(char *out, size_t size, const char *in, bool *whole) {
    static const char hex[] = "0123456789ABCDEF";
    const unsigned char *p = (const unsigned char *)in;
    size_t used = 0;
    while (*p != 0) {
        uint32_t point = 0;
        size_t length = utf8_length(p, &point);
        bool plain = length > 0 && is_printable(point);
        if (length == 0)
            length = 1;
        size_t need = plain ? length : 4 * length;
        if (need > size - 1 - used)
            break;
        if (plain) {
            memcpy(out + used, p, length);
        } else {
            for (size_t i = 0; i < length; i++) {
                char *at = out + used + 4 * i;
                at[0] = '\\', at[1] = 'x', at[2] = hex[p[i] >> 4], at[3] = hex[p[i] & 15];
            }
        }
        used += need;
        p += length;
    }
    out[used] = 0;
    if (whole != NULL)
        *whole = *p == 0;
    return used;
}

void sqrl_error_clear(struct sqrl_error *err) {
    if (err == NULL)
        return;
    err->code = SQRL_OK;
    err->os_errno = 0;
    err->retryable = false;
    err->message[0] = 0;
    err->where[0] = 0;
}

/* Writes the message into its first `size` bytes. */
static void SQRL_PRINTF(3, 0) format_message(struct sqrl_error *err, size_t size,
                                             const char *format, va_list args) {
    char scratch[SCRATCH_BYTES];
    if (vsnprintf(scratch, sizeof scratch, format, args) < 0)
        scratch[0] = 0;
    sqrl_text_clean(err->message, size, scratch, NULL);
}

int sqrl_error_set(struct sqrl_error *err, int code, const char *format, ...) {
    if (err == NULL)
        return code;
    int saved = errno;
    sqrl_error_clear(err);
    err->code = (enum sqrl_code)code;
    va_list args;
    va_start(args, format);
    format_message(err, sizeof err->message, format, args);
    va_end(args);
    errno = saved;
    return code;
}

static const struct errno_row *find_errno(int os_errno) {
    static const struct errno_row other = {0, SQRL_E_IO, false};
    for (size_t i = 0; i < SQRL_COUNT_OF(errno_rows); i++)
        if (errno_rows[i].os_errno == os_errno)
            return &errno_rows[i];
    return &other;
}

int sqrl_error_set_errno(struct sqrl_error *err, int os_errno, const char *format, ...) {
    const struct errno_row *row = find_errno(os_errno);
    if (err == NULL)
        return row->code;
    int saved = errno;
    sqrl_error_clear(err);
    err->code = row->code;
    err->os_errno = os_errno;
    err->retryable = row->retryable;
    char text[128], reason[240];
    size_t size =
        sqrl_text_clean(reason, 160, strerror_r(os_errno, text, sizeof text), NULL);
    if (row->advice)
        size +=
            (size_t)snprintf(reason + size, sizeof reason - size, "; %s", row->advice);
    va_list args; /* the system's text stays whole: the caller's part is cut for it */
    va_start(args, format);
    format_message(err, sizeof err->message - size - 2, format, args);
    va_end(args);
    size_t length = strlen(err->message);
    memcpy(err->message + length, ": ", 2);
    memcpy(err->message + length + 2, reason, size + 1);
    errno = saved;
    return row->code;
}

int sqrl_error_at(struct sqrl_error *err, int code, const char *format, ...) {
    if (err == NULL || err->code == SQRL_OK)
        return code;
    int saved = errno;
    char scratch[SCRATCH_BYTES], place[SCRATCH_BYTES];
    va_list args;
    va_start(args, format);
    if (vsnprintf(scratch, sizeof scratch, format, args) < 0)
        scratch[0] = 0;
    va_end(args);
    size_t length = sqrl_text_clean(place, sizeof place, scratch, NULL);
    size_t inner = strlen(err->where);
    size_t joint = inner > 0 ? 2 : 0;
    size_t room =
        sizeof err->where - 1 - inner - SQRL_MIN(joint, sizeof err->where - 1 - inner);
    const char *from = place;
    size_t dots = 0;
    if (length > room && room >= WHERE_LEAST_BYTES) {
        dots = 3;
        from = place + (length - (room - dots));
        while (((unsigned char)*from & 0xc0) == 0x80)
            from++;
        length = strlen(from);
    }
    if (dots + length <= room && length > 0) {
        memmove(err->where + dots + length + joint, err->where, inner + 1);
        memcpy(err->where, "...", dots);
        memcpy(err->where + dots, from, length);
        memcpy(err->where + dots + length, ": ", joint);
    }
    errno = saved;
    return err->code;
}

size_t sqrl_error_text(const struct sqrl_error *err, char *out, size_t size) {
    if (size == 0)
        return 0;
    out[0] = 0;
    if (err == NULL)
        return 0;
    char joined[SQRL_ERROR_WHERE_BYTES + SQRL_ERROR_MESSAGE_BYTES + 2];
    snprintf(joined, sizeof joined, "%s%s%s", err->where, err->where[0] ? ": " : "",
             err->message);
    return sqrl_text_clean(out, size, joined, NULL);
}
