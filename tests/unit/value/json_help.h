/* What the tests of JSON share: copies of exact size, files of the test data, CRC-32. */
#ifndef SQRL_TEST_JSON_HELP_H
#define SQRL_TEST_JSON_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>

#include "dump.h"
#include "value/json.h"

/* A copy of the exact size, so that a sanitizer sees a read behind it. */
static inline uint8_t *exact(const void *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    if (size)
        memcpy(copy, bytes, size);
    return copy;
}

/* CRC-32 of IEEE 802.3, as zlib.crc32 in Python. */
static inline uint32_t crc32_of(uint32_t crc, const uint8_t *bytes, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static inline const char *test_data(void) {
    const char *data = getenv("SQRL_TEST_DATA");
    if (data && *data)
        return data;
    print_message("skipped: SQRL_TEST_DATA names no test data\n");
    skip();
    return NULL;
}

/* A file's bytes at their exact size, or NULL. */
static inline uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    *size = 0;
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size ? *size : 1);
    if (!bytes || fread(bytes, 1, *size, file) != *size)
        abort();
    fclose(file);
    return bytes;
}

static inline uint8_t *read_data(const char *name, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", test_data(), name);
    uint8_t *bytes = read_file(path, size);
    if (!bytes)
        fail_msg("%s is missing", path);
    return bytes;
}

/* Calls `visit` for every file of a folder of the test data. Returns their number. */
static inline unsigned each_file(const char *folder,
                                 void (*visit)(const char *name, uint8_t *bytes,
                                               size_t size, void *arg),
                                 void *arg) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", test_data(), folder);
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);
    unsigned visited = 0;
    if (n < 0)
        fail_msg("%s is missing", path);
    for (int i = 0; i < n; i++) {
        size_t size;
        if (names[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/%s", test_data(), folder,
                     names[i]->d_name);
            uint8_t *bytes = read_file(path, &size);
            visit(names[i]->d_name, bytes, size, arg);
            free(bytes);
            visited++;
        }
        free(names[i]);
    }
    free(names);
    return visited;
}

/* Decodes all of the bytes as one value: trailing bytes are an error too. */
static inline int decode_all(struct sqrl_tape *tape, uint8_t *bytes, size_t size,
                             struct sqrl_error *err) {
    size_t offset = 0;
    tape->count = 0;
    int code = sqrl_json_decode(tape, bytes, size, &offset, 0, NULL, err);
    if (!code && offset != size) {
        tape->count = 0;
        code = sqrl_error_set(err, SQRL_E_CORRUPT, "something follows the value");
    }
    return code;
}

/* The dump of a document that must be good; free() it. */
static inline char *dump_json(const void *text, size_t size) {
    struct sqrl_tape tape = {0};
    struct sqrl_error err = {0};
    uint8_t *bytes = exact(text, size);
    if (decode_all(&tape, bytes, size, &err))
        fail_msg("%.*s: %s: %s", (int)SQRL_MIN(size, (size_t)200), (const char *)text,
                 err.where, err.message);
    assert_int_equal(sqrl_node_next(tape.nodes, 0), tape.count);
    char *dump = dump_text(&tape, 0, bytes);
    sqrl_tape_reset(&tape);
    free(bytes);
    return dump;
}

/* Compares decoding and encoding with what Python made of the same text. */
static inline void check_json(const char *text, size_t size, const char *dump,
                              const char *again, size_t again_size) {
    struct sqrl_tape tape = {0};
    struct sqrl_bytes out = {0};
    struct sqrl_error err = {0};
    uint8_t *bytes = exact(text, size);
    if (decode_all(&tape, bytes, size, &err))
        fail_msg("%s: %s: %s", text, err.where, err.message);
    char *found = dump_text(&tape, 0, bytes);
    if (strcmp(found, dump) != 0)
        fail_msg("%s:\n  %s\nbut Python\n  %s", text, found, dump);
    free(found);
    assert_int_equal(sqrl_json_encode(&out, tape.nodes, 0, bytes, &err), SQRL_OK);
    if (again && (out.size != again_size || memcmp(out.data, again, out.size) != 0))
        fail_msg("%s: encoded as %.*s, by Python as %s", text, (int)out.size,
                 (const char *)out.data, again);
    sqrl_bytes_reset(&out);
    sqrl_tape_reset(&tape);
    free(bytes);
}

#endif
