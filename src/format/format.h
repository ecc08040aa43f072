/* format.h - the table of built-in formats, for the format and driver floors. */
#ifndef SQRL_FORMAT_PRIVATE_H
#define SQRL_FORMAT_PRIVATE_H

#include "base/base.h"
#include "sqrl/format.h"

/* One line a format: X(symbol) for `const struct sqrl_format_ops sqrl_format_<symbol>`.
 * The order is that of listings and help; it decides nothing else. */
#define SQRL_BUILTIN_FORMATS(X) X(native) X(store) X(jsonl) X(idx)

#define SQRL_DECLARE_FORMAT(symbol)                                                      \
    extern const struct sqrl_format_ops sqrl_format_##symbol;
SQRL_BUILTIN_FORMATS(SQRL_DECLARE_FORMAT)

/* True when `name` ends in one of `suffixes` (".jsonl|.jsonl.gz"); *length (may be NULL)
 * receives the length of the longest that fits. */
bool sqrl_suffix_fits(const char *suffixes, const char *name, size_t *length);

/* The format of files of such a name, by the longest suffix, whether it can be written or
 * not; NULL when none fits. */
const struct sqrl_format_ops *sqrl_format_by_suffix(const char *name);

#endif
