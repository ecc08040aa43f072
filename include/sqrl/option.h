/* sqrl/option.h - options are declared once.
 *
 * Every ops table (codec, fs, format, driver, stage) lists its options here. From that
 * one list come the command's help, Python's keyword arguments, catalog validation and
 * the error on an unknown option. Values travel as text: "true", "3", "64 MiB", "label".
 */
#ifndef SQRL_OPTION_H
#define SQRL_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sqrl_option_type {
    SQRL_OPTION_BOOL,
    SQRL_OPTION_INT,
    SQRL_OPTION_FLOAT,
    SQRL_OPTION_SIZE, /* bytes: "4096", "64 KiB", "1.5 GB" */
    SQRL_OPTION_TEXT,
    SQRL_OPTION_CHOICE /* one of choices */
};
enum sqrl_option_class {
    SQRL_OPTION_PLAIN,
    SQRL_OPTION_PATH,
    SQRL_OPTION_URL,
    SQRL_OPTION_SECRET /* never logged, shown or saved */
};

struct sqrl_option {
    const char *name; /* "level"; a list ends with NULL */
    enum sqrl_option_type type;
    enum sqrl_option_class kind;
    const char *initial; /* the default as text, NULL: unset */
    const char *choices; /* "zstd|lz4|none" for SQRL_OPTION_CHOICE, else NULL */
    const char *doc;     /* one line */
};

/* A name = value list of the caller's; strings are borrowed for the call. */
struct sqrl_setting {
    const char *name;
    const char *value;
};
struct sqrl_settings {
    const struct sqrl_setting *items;
    size_t count;
};

/* Checks every setting against one or more option lists (NULL-ended array of lists): an
 * unknown name is SQRL_E_INVALID that names the nearest known one, an unreadable value
 * says what is expected. `who` names the owner in messages ("driver idx"). */
SQRL_CHECK int sqrl_settings_check(const struct sqrl_settings *settings,
                                   const struct sqrl_option *const *lists,
                                   const char *who, struct sqrl_error *err);

/* The value of one option: as set (the last one, when it is set twice), else its default,
 * else NULL. The typed forms below fail with SQRL_E_INVALID when there is no value or it
 * can't be read; booleans are true/false, yes/no, on/off, 1/0. */
SQRL_API const char *sqrl_settings_text(const struct sqrl_settings *settings,
                                        const struct sqrl_option *list, const char *name);
SQRL_CHECK int sqrl_settings_int(const struct sqrl_settings *settings,
                                 const struct sqrl_option *list, const char *name,
                                 int64_t *out, struct sqrl_error *err);
SQRL_CHECK int sqrl_settings_size(const struct sqrl_settings *settings,
                                  const struct sqrl_option *list, const char *name,
                                  uint64_t *out, struct sqrl_error *err);
SQRL_CHECK int sqrl_settings_bool(const struct sqrl_settings *settings,
                                  const struct sqrl_option *list, const char *name,
                                  bool *out, struct sqrl_error *err);

SQRL_CHECK int sqrl_settings_float(const struct sqrl_settings *settings,
                                   const struct sqrl_option *list, const char *name,
                                   double *out, struct sqrl_error *err);

/* "64 KiB", "1.5 GB", "4096" to bytes: a decimal number and B, kB, KB, KiB, MB, MiB, GB,
 * GiB, TB or TiB, with or without spaces between. A fraction needs a unit above B and is
 * rounded down to whole bytes. SQRL_E_INVALID for other texts, SQRL_E_LIMIT above 64
 * bits. */
SQRL_CHECK int sqrl_parse_size(const char *text, uint64_t *bytes, struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
