/* sqrl/error.h - how every function of the library reports failure.
 *
 * Functions that can fail return `int`: SQRL_OK (0) or one of enum sqrl_code, and take a
 * `struct sqrl_error *` as their last argument. The struct belongs to the caller, is
 * never allocated, and may be NULL when the caller only wants the code. It is written on
 * failure only; the first failing function writes the message, outer functions only
 * prepend where:
 *
 *     s3://bucket/train/00017.sqrl: block 4: sample 402: field "image": data is cut short
 */
#ifndef SQRL_ERROR_H
#define SQRL_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SQRL_CHECK __attribute__((warn_unused_result, visibility("default")))
#define SQRL_API __attribute__((visibility("default")))
#define SQRL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define SQRL_CHECK
#define SQRL_API
#define SQRL_PRINTF(f, a)
#endif

/* Stable numbers: they are exit reasons in programs' logs and never change their meaning.
 */
enum sqrl_code {
    SQRL_OK = 0,
    SQRL_E_INVALID = 1, /* the caller's argument or option is wrong */
    SQRL_E_NO_MEMORY =
        2,         /* the system refused memory, or the budget can't hold one item */
    SQRL_E_IO = 3, /* the operating system failed a read or write (os_errno) */
    SQRL_E_NOT_FOUND = 4,    /* no such file, field, source, driver */
    SQRL_E_PERMISSION = 5,   /* the operating system refuses access */
    SQRL_E_EXISTS = 6,       /* the destination is there already */
    SQRL_E_CORRUPT = 7,      /* the data contradict their format or checksum */
    SQRL_E_TRUNCATED = 8,    /* the data end before they are complete */
    SQRL_E_FORMAT = 9,       /* the format is not known, or not the one asked for */
    SQRL_E_LIMIT = 10,       /* a limit on depth, size, count or ratio is exceeded */
    SQRL_E_UNSUPPORTED = 11, /* valid, but not built in or refused on purpose */
    SQRL_E_TYPE = 12,        /* types, shapes or dtypes clash */
    SQRL_E_STATE = 13,       /* called at the wrong time: closed, forked, finished */
    SQRL_E_CANCELLED = 14,   /* closed or interrupted while the call ran */
    SQRL_E_NO_SPACE = 15,    /* disk or quota is full */
    SQRL_E_USER = 16         /* a callback of the caller failed */
};

#define SQRL_ERROR_MESSAGE_BYTES 384
#define SQRL_ERROR_WHERE_BYTES 640

struct sqrl_error {
    enum sqrl_code code;
    int os_errno;   /* errno of the failing system call, or 0 */
    bool retryable; /* the same call may succeed later (network, EINTR, EAGAIN ...) */
    char message[SQRL_ERROR_MESSAGE_BYTES]; /* what is wrong and what to do; UTF-8,
                                               NUL-ended */
    char where[SQRL_ERROR_WHERE_BYTES]; /* outermost first, "file: block 4", may be "" */
};

/* Empties `err` (NULL is allowed). */
SQRL_API void sqrl_error_clear(struct sqrl_error *err);

/* Writes code and message, empties `where`, and returns `code`, so that a function can
 * end with `return sqrl_error_set(err, SQRL_E_CORRUPT, "...")`. Too long a text is cut at
 * a character boundary; bytes that are not UTF-8 or not printable are shown as \xNN. */
SQRL_API int sqrl_error_set(struct sqrl_error *err, int code, const char *format, ...)
    SQRL_PRINTF(3, 4);

/* The same for a failed system call: chooses the code from `os_errno` (ENOENT, EACCES,
 * ENOSPC, EINTR ...), appends its text to the message and sets `retryable`. Returns the
 * code. */
SQRL_API int sqrl_error_set_errno(struct sqrl_error *err, int os_errno,
                                  const char *format, ...) SQRL_PRINTF(3, 4);

/* Prepends one place to `where`, the outermost first. Does nothing on NULL or an empty
 * error. When `where` is full the inner places stay whole: this one loses its front
 * ("...17.sqrl"), or is left out when fewer than 16 bytes remain.
 * Returns the error's code, so that `return sqrl_error_at(err, code, "block %u",
 * i)` works; `code` is what is returned when `err` is NULL. */
SQRL_API int sqrl_error_at(struct sqrl_error *err, int code, const char *format, ...)
    SQRL_PRINTF(3, 4);

/* Writes "where: message" into `out` (always NUL-ended when size > 0). Returns its
 * length. */
SQRL_API size_t sqrl_error_text(const struct sqrl_error *err, char *out, size_t size);

/* "corrupt", "not_found" ...: the stable name of a code; "unknown" for any other number.
 */
SQRL_API const char *sqrl_code_name(int code);

#ifdef __cplusplus
}
#endif
#endif
