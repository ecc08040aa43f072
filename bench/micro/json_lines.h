/* json_lines.h - the documents of the JSON benchmarks, for C and C++. */
#ifndef JSON_LINES_H
#define JSON_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* True for NULL (the made-up lines) and names that end in .ndjson or .jsonl. */
static inline bool json_is_lines(const char *name) {
    const char *dot = name ? strrchr(name, '.') : NULL;
    return !name || (dot && (strcmp(dot, ".ndjson") == 0 || strcmp(dot, ".jsonl") == 0));
}

/* 8,000 lines of {"text": "..."}, 80 to 180 bytes each, from a fixed random sequence. */
static inline uint8_t *json_made_up(size_t *size) {
    static const char WORDS[] =
        "the model reads every sample once an epoch and none waits ";
    uint8_t *out = (uint8_t *)malloc(8000 * 200), *p = out;
    uint64_t state = 1;
    for (int line = 0; out && line < 8000; line++) {
        memcpy(p, "{\"text\": \"", 10);
        p += 10;
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t length = 68 + (size_t)(state >> 33) % 100,
               from = (size_t)(state >> 40) % 58;
        for (size_t i = 0; i < length; i++)
            *p++ = (uint8_t)WORDS[(from + i) % 58];
        memcpy(p, "\"}\n", 3);
        p += 3;
    }
    *size = out ? (size_t)(p - out) : 0;
    return out;
}

/* The bytes of a file, or the made-up lines for NULL; NULL when it can't be read. */
static inline uint8_t *json_document(const char *name, size_t *size) {
    if (!name)
        return json_made_up(size);
    FILE *file = fopen(name, "rb");
    if (!file)
        return NULL;
    long end = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    rewind(file);
    uint8_t *bytes = end > 0 ? (uint8_t *)malloc((size_t)end) : NULL;
    *size = end > 0 ? (size_t)end : 0;
    if (bytes && fread(bytes, 1, *size, file) != *size) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    return bytes;
}

#endif
