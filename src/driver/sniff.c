/* sniff.c - which format a file has: first bytes before names.
 *
 * Every format of the context's drivers scores the first 4 KiB, raw and decompressed. The
 * highest score wins, a fitting suffix breaks ties. Where no content fits, a fitting
 * suffix decides all the same: then the parser says what is wrong, and at which byte. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/driver.h"
#include "format/format.h"
#include "sqrl/codec.h"

enum {
    SCORE_WEAK = 10,   /* below it the name must fit too */
    SCORE_LIKELY = 30, /* below it damaged data of another format may be meant */
    SCORE_CERTAIN = 50 /* from it on driver= is contradicted */
};

/* Decompresses the beginning of a file. What comes before damage is good for sniffing. */
static size_t inner_bytes(const struct sqrl_codec_ops *codec, const uint8_t *head,
                          size_t head_size, bool whole, uint8_t *inner, bool *damaged) {
    *damaged = true;
    void *state = aligned_alloc(64, (codec->decoder_size + 63) / 64 * 64);
    if (!state)
        return 0;
    memset(state, 0, codec->decoder_size);
    struct sqrl_codec_io io = {.in = head,
                               .in_size = head_size,
                               .out = inner,
                               .out_size = SQRL_SNIFF_BYTES,
                               .in_end = whole};
    if (codec->decoder_open(state, NULL) == SQRL_OK) {
        *damaged = false;
        while (!io.out_end && io.out_size > 0) {
            size_t in_before = io.in_size, out_before = io.out_size;
            if (codec->decode(state, &io, NULL) != SQRL_OK) {
                *damaged = true;
                break;
            }
            if (in_before == io.in_size && out_before == io.out_size)
                break; /* it wants more than was read */
        }
    }
    codec->decoder_close(state);
    free(state);
    return SQRL_SNIFF_BYTES - io.out_size;
}

static void describe(const struct sqrl_probe *probe, char *out, size_t size) {
    const uint8_t *bytes = probe->inner ? probe->inner : probe->head;
    size_t count = SQRL_MIN(probe->inner ? probe->inner_size : probe->head_size, 12u);
    char text[13], hex[3 * 12 + 1] = "";
    for (size_t i = 0; i < count; i++) {
        text[i] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? (char)bytes[i] : '.';
        snprintf(hex + 3 * i, 4, "%02x ", bytes[i]);
    }
    text[count] = 0;
    snprintf(out, size, "%s\"%s\" (%.*s)", probe->inner ? "decompressed " : "", text,
             (int)(count ? 3 * count - 1 : 0), hex);
}

static void choose(struct sqrl_context *context, const struct sqrl_probe *probe,
                   bool damaged, struct sqrl_sniffed *out) {
    const struct sqrl_driver_ops *driver;
    const struct sqrl_format_ops *named = NULL;
    int best = 0;
    size_t best_suffix = 0, named_suffix = 0;
    for (size_t i = 0; (driver = sqrl_driver_at(context, i)); i++) {
        const struct sqrl_format_ops *format = driver->format;
        size_t suffix = 0;
        sqrl_suffix_fits(format->suffixes, probe->path, &suffix);
        if (suffix > named_suffix) {
            named = format;
            named_suffix = suffix;
        }
        int score = format->sniff ? format->sniff(probe) : 0;
        if (score < SCORE_WEAK && suffix == 0)
            score = 0;
        if (score > best || (score > 0 && score == best && suffix > best_suffix)) {
            out->format = format;
            best = score;
            best_suffix = suffix;
        }
    }
    out->certain = best >= SCORE_CERTAIN;
    out->weak = best < SCORE_LIKELY;
    out->empty_payload = probe->inner && probe->inner_size == 0 && !damaged;
    if (!out->format && named) {
        out->format = named;
        out->by_name = true;
    }
}

/* A name that promises compression over bytes that are none, and no format's either: the
 * formats' own messages would be about their first byte. */
static int check_compressed(const struct sqrl_probe *probe,
                            const struct sqrl_sniffed *found, const char *begins,
                            struct sqrl_error *err) {
    const struct sqrl_codec_ops *named = sqrl_codec_by_suffix(probe->path);
    if (!named || probe->inner || found->certain)
        return SQRL_OK;
    sqrl_error_set(
        err, SQRL_E_FORMAT,
        "the name says %s, but the file begins with %s: it is damaged, or named "
        "wrongly",
        named->name, begins);
    return sqrl_error_at(err, SQRL_E_FORMAT, "%s", probe->path);
}

static int read_head(struct sqrl_file *file, uint8_t *head, size_t *size,
                     struct sqrl_error *err) {
    struct sqrl_range range = {.size = SQRL_SNIFF_BYTES, .data = head};
    int rc = sqrl_file_read(file, &range, 1, NULL, err);
    *size = range.got;
    return rc;
}

int sqrl_sniff(struct sqrl_context *context, struct sqrl_fs *fs, const char *path,
               struct sqrl_sniffed *out, struct sqrl_error *err) {
    memset(out, 0, sizeof *out);
    uint8_t head[SQRL_SNIFF_BYTES], inner[SQRL_SNIFF_BYTES];
    struct sqrl_file *file = NULL;
    int rc = sqrl_file_open(fs, path, &file, err);
    if (rc)
        return rc;
    struct sqrl_probe probe = {.path = path, .head = head};
    bool damaged = false;
    out->file_bytes = sqrl_file_size(file);
    rc = read_head(file, head, &probe.head_size, err);
    if (rc)
        goto done;
    if (probe.head_size == 0)
        choose(context, &probe, damaged, out);
    if (probe.head_size == 0 && !out->certain) {
        sqrl_error_set(
            err, SQRL_E_FORMAT,
            "the file is empty (0 bytes); remove it, or write it again: it may be "
            "what is left of a copy that failed");
        rc = sqrl_error_at(err, SQRL_E_FORMAT, "%s", path);
    }
    if (probe.head_size == 0)
        goto done;
    const struct sqrl_codec_ops *codec = sqrl_codec_by_magic(head, probe.head_size);
    if (codec && codec->decoder_size) {
        probe.inner_size =
            inner_bytes(codec, head, probe.head_size, probe.head_size == out->file_bytes,
                        inner, &damaged);
        probe.inner = inner;
    }
    choose(context, &probe, damaged, out);
    describe(&probe, out->begins, sizeof out->begins);
    rc = check_compressed(&probe, out, out->begins, err);
done:
    sqrl_file_unref(file);
    return rc;
}

const char *sqrl_format_names(char *out, size_t size) {
    const struct sqrl_format_ops *format;
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; (format = sqrl_format_at(i)) && at < size; i++) {
        const char *between = i == 0 ? "" : sqrl_format_at(i + 1) ? ", " : " and ";
        at += (size_t)snprintf(out + at, size - at, "%s%s", between, format->name);
    }
    return out;
}
