/* format.c - the table of built-in formats. */
#include "format/format.h"

#define ENTRY(symbol) &sqrl_format_##symbol,
static const struct sqrl_format_ops *const formats[] = {SQRL_BUILTIN_FORMATS(ENTRY)};

const struct sqrl_format_ops *sqrl_format_at(size_t i) {
    return i < SQRL_COUNT_OF(formats) ? formats[i] : NULL;
}

const struct sqrl_format_ops *sqrl_format_by_name(const char *name) {
    for (size_t i = 0; name && i < SQRL_COUNT_OF(formats); i++)
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    return NULL;
}

bool sqrl_suffix_fits(const char *suffixes, const char *name, size_t *length) {
    size_t best = 0, name_size = strlen(name);
    for (const char *at = suffixes; at && *at;) {
        size_t size = strcspn(at, "|");
        if (size > best && size <= name_size &&
            memcmp(name + name_size - size, at, size) == 0)
            best = size;
        at += size + (at[size] == '|');
    }
    if (length)
        *length = best;
    return best > 0;
}

const struct sqrl_format_ops *sqrl_format_by_suffix(const char *name) {
    const struct sqrl_format_ops *found = NULL;
    size_t best = 0;
    for (size_t i = 0; i < SQRL_COUNT_OF(formats); i++) {
        size_t length = 0;
        if (sqrl_suffix_fits(formats[i]->suffixes, name, &length) && length > best) {
            found = formats[i];
            best = length;
        }
    }
    return found;
}

void sqrl_coded_block_reset(struct sqrl_coded_block *block) {
    sqrl_buffer_unref(block->stored);
    sqrl_schema_reset(&block->schema);
    sqrl_bytes_reset(&block->extra);
    memset(block, 0, sizeof *block);
}
