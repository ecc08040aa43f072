/* json.h - what the files of the JSON decoder and encoder share. Private to src/value.
 *
 * Stage 1 (json_scan.c) finds the places where something begins: brackets, commas,
 * colons, both quotes of each string, the first byte of numbers and names. Stage 2
 * (json_decode.c) walks those places and writes the tape. The method is that of Langdale
 * and Lemire, "Parsing Gigabytes of JSON per Second" (2019), except that stage 1 runs
 * over one window at a time, so that its index stays in the first-level cache and needs
 * no allocation.
 */
#ifndef SQRL_JSON_PRIVATE_H
#define SQRL_JSON_PRIVATE_H

#include "value/value.h"

/* --- stage 1 --- */
#define SQRL_JSON_WINDOW 8192u /* bytes; a multiple of 64, and an index fits 16 bits */

struct sqrl_json_scan {
    const uint8_t *bytes;
    size_t size; /* of bytes */
    size_t base; /* where the window begins */
    size_t pos;  /* where the next window begins; base + window bytes, at most size */
    bool lines;  /* \n outside strings is a token too */
    /* carried from block to block */
    uint64_t escaped; /* 1: the next byte is escaped */
    uint64_t string;  /* all ones inside a string */
    uint64_t scalar;  /* 1: the last byte was part of a number or name */
    uint32_t count;   /* tokens of the window */
    bool any_special; /* there is a bit in `special` */
    uint16_t index[SQRL_JSON_WINDOW + 64]; /* their places in the window */
    /* One bit a byte: bytes in strings that need a look (escapes, control characters,
     * bytes above 127), and the backslashes among them. */
    uint64_t special[SQRL_JSON_WINDOW / 64];
    uint64_t escape[SQRL_JSON_WINDOW / 64];
};

/* Scans the window of at most `window` bytes (a multiple of 64) that begins at pos. */
typedef void (*sqrl_json_scan_fn)(struct sqrl_json_scan *scan, size_t window);
void sqrl_json_scan_scalar(struct sqrl_json_scan *scan, size_t window);
/* The fastest kernel that may be used. */
sqrl_json_scan_fn sqrl_json_scan_kernel(void);

/* --- numbers --- */
#define SQRL_JSON_MAX_DIGITS 4300 /* of an integer, as in CPython */
#define SQRL_JSON_POWER_MIN (-342)
#define SQRL_JSON_POWER_MAX 324
extern const uint64_t SQRL_JSON_POWERS[SQRL_JSON_POWER_MAX - SQRL_JSON_POWER_MIN + 1][2];

enum sqrl_json_number_status {
    SQRL_JSON_NUMBER_OK,
    SQRL_JSON_NUMBER_CUT,      /* `end` came where a digit must follow */
    SQRL_JSON_NUMBER_DIGIT,    /* a digit is missing at *stop */
    SQRL_JSON_NUMBER_ZERO,     /* a digit behind a leading zero, at *stop */
    SQRL_JSON_NUMBER_TOO_LONG, /* more than SQRL_JSON_MAX_DIGITS */
    SQRL_JSON_NUMBER_MEMORY
};
/* Reads the number at text (text < end, a digit or '-') into a node of INT, UINT, FLOAT
 * or NUMBER (its v.offset counts from `origin`); *stop is the byte behind it. */
enum sqrl_json_number_status
sqrl_json_number_read(const uint8_t *text, const uint8_t *end, const uint8_t *origin,
                      struct sqrl_node *node, const uint8_t **stop);
/* w * 10^q, correctly rounded. */
double sqrl_json_decimal(uint64_t w, int64_t q, bool negative);

static inline bool sqrl_json_is_digit(uint8_t c) {
    return (uint8_t)(c - '0') < 10;
}

/* True when all eight bytes are digits: neither adding 6 to the low nibbles nor looking
 * at the high ones leaves 0x3_. */
static inline bool sqrl_json_eight_digits(uint64_t v) {
    return ((v & UINT64_C(0xf0f0f0f0f0f0f0f0)) |
            (((v + UINT64_C(0x0606060606060606)) & UINT64_C(0xf0f0f0f0f0f0f0f0)) >> 4)) ==
           UINT64_C(0x3333333333333333);
}

/* The value of eight digits: pairs, then fours, then the whole, by multiplication. */
static inline uint64_t sqrl_json_eight_value(uint64_t v) {
    v -= UINT64_C(0x3030303030303030);
    v = v * 10 + (v >> 8);
    uint64_t low = (v & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x000f424000000064);
    uint64_t high =
        (v >> 16 & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x0000271000000001);
    return (low + high) >> 32;
}

#define SQRL_JSON_FLOAT_BYTES 32
/* Writes the shortest decimal that reads back equal, laid out as Python's repr does:
 * "1.0", "1e+16", "-0.0", "NaN", "Infinity". Returns its length; no NUL. */
size_t sqrl_json_float_write(double value, char out[SQRL_JSON_FLOAT_BYTES]);

/* --- strings --- */
/* A STRING node whose escapes are not undone yet; never seen by callers of the library.
 */
#define SQRL_JSON_ESCAPED 128u

/* Undoes the escapes of text[0, size) in place, which has no control characters and is
 * valid UTF-8. Gives the new size and whether all is ASCII. On failure *fault is the
 * place of the bad escape. `room` bytes may be read from text on. */
int sqrl_json_unescape(uint8_t *text, size_t size, size_t room, size_t *new_size,
                       bool *ascii, size_t *fault, struct sqrl_error *err);
/* The character at *p (< end) of such a text, escaped or not; -1 for a bad escape. */
int32_t sqrl_json_character(const uint8_t **p, const uint8_t *end);
/* Why the escape at p is bad. */
const char *sqrl_json_escape_fault(const uint8_t *p, const uint8_t *end);

/* --- arrays --- */
/* If the map `map`, the last value of the tape, is an array as squirrel-core's JSON
 * encoder writes it (keys data, type, shape), replaces it by an NDARRAY and sets
 * *changed. On failure *fault is an offset in `bytes`. */
int sqrl_json_ndarray_decode(struct sqrl_tape *tape, uint32_t map, const uint8_t *bytes,
                             bool *changed, size_t *fault, struct sqrl_error *err);
/* Appends the NDARRAY as a map of data, type and shape; a NumPy scalar as a number. */
int sqrl_json_ndarray_encode(struct sqrl_bytes *out, const struct sqrl_node *nodes,
                             uint32_t node, const uint8_t *bytes, struct sqrl_error *err);
/* Appends text[0, size) in quotes, with escapes. */
int sqrl_json_string_encode(struct sqrl_bytes *out, const uint8_t *text, size_t size,
                            struct sqrl_error *err);

#endif
