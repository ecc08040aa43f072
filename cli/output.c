/* What the command prints: JSON reports, sizes, progress. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t cli_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *cli_count_text(uint64_t count, const char *what, char *out) {
    snprintf(out, 48, "%llu %s%s", (unsigned long long)count, what,
             count == 1 ? "" : "s");
    return out;
}

const char *cli_size_text(uint64_t bytes, char *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double size = (double)bytes;
    size_t unit = 0;
    while (size >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        size /= 1024;
        unit++;
    }
    snprintf(out, 32, unit ? "%.1f %s" : "%.0f %s", size, units[unit]);
    return out;
}

void cli_progress_start(struct cli_progress *progress, const struct cli_args *args,
                        const char *what, uint64_t total) {
    *progress = (struct cli_progress){.what = what,
                                      .total = total,
                                      .start_ns = cli_now_ns(),
                                      .terminal = isatty(STDERR_FILENO),
                                      .off = args->json};
    /* On a terminal from the start, elsewhere only for work that takes a while. */
    progress->next_ns = progress->start_ns + (progress->terminal ? 0 : 10000000000u);
}

static void draw_bar(const struct cli_progress *progress, uint64_t done) {
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    double share = progress->total ? (double)done / (double)progress->total : 1;
    int full = share > 1 ? WIDTH : (int)(share * WIDTH);
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)full);
    bar[WIDTH] = '\0';
    fprintf(stderr, "[%s] %3.0f%% ", bar, share > 1 ? 100 : share * 100);
}

void cli_progress_show(struct cli_progress *progress, uint64_t done, uint64_t bytes) {
    uint64_t now = cli_now_ns();
    if (progress->off || now < progress->next_ns)
        return;
    double seconds = (double)(now - progress->start_ns) / 1e9;
    char size[32];
    progress->next_ns = now + (progress->terminal ? 100000000u : 10000000000u);
    progress->shown = true;
    if (progress->terminal)
        fprintf(stderr, "\r\033[K");
    if (progress->total != SQRL_UNKNOWN && progress->terminal)
        draw_bar(progress, done);
    double rate = seconds > 0 ? (double)done / seconds : 0;
    if (progress->of_bytes)
        fprintf(stderr, "%s: %s, %.1f MB/s", progress->what, cli_size_text(bytes, size),
                rate / 1e6);
    else
        fprintf(stderr, "%s: %llu samples, %s, %.0f samples/s", progress->what,
                (unsigned long long)done, cli_size_text(bytes, size), rate);
    if (!progress->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

void cli_progress_end(struct cli_progress *progress) {
    if (progress->shown && progress->terminal)
        fprintf(stderr, "\r\033[K");
    progress->shown = false;
}

static void must(int code) {
    if (code != SQRL_OK) {
        fputs("squirrel: out of memory\n", stderr);
        exit(EXIT_FAILED);
    }
}

void cli_put_map(struct sqrl_bytes *out, size_t pairs) {
    must(sqrl_msgpack_put_map(out, pairs, NULL));
}

void cli_put_array(struct sqrl_bytes *out, size_t items) {
    must(sqrl_msgpack_put_array(out, items, NULL));
}

void cli_put_key(struct sqrl_bytes *out, const char *key) {
    if (key)
        must(sqrl_msgpack_put_string(out, key, strlen(key), NULL));
}

void cli_put_text(struct sqrl_bytes *out, const char *key, const char *value) {
    cli_put_key(out, key);
    if (value)
        must(sqrl_msgpack_put_string(out, value, strlen(value), NULL));
    else
        must(sqrl_msgpack_put_null(out, NULL));
}

void cli_put_part(struct sqrl_bytes *out, const char *key, const char *value,
                  size_t size) {
    cli_put_key(out, key);
    if (size)
        must(sqrl_msgpack_put_string(out, value, size, NULL));
    else
        must(sqrl_msgpack_put_null(out, NULL));
}

void cli_put_number(struct sqrl_bytes *out, const char *key, uint64_t value) {
    cli_put_key(out, key);
    if (value == SQRL_UNKNOWN)
        must(sqrl_msgpack_put_null(out, NULL));
    else
        must(sqrl_msgpack_put_uint(out, value, NULL));
}

void cli_put_real(struct sqrl_bytes *out, const char *key, double value) {
    cli_put_key(out, key);
    must(sqrl_msgpack_put_float(out, value, NULL));
}

int cli_print_json(const struct sqrl_bytes *value, FILE *file) {
    struct sqrl_tape tape = {0};
    struct sqrl_bytes text = {0};
    size_t offset = 0;
    must(sqrl_msgpack_decode(&tape, value->data, value->size, &offset, NULL, NULL));
    must(sqrl_json_encode(&text, tape.nodes, 0, value->data, NULL));
    bool written =
        fwrite(text.data, 1, text.size, file) == text.size && fputc('\n', file) != EOF;
    sqrl_bytes_reset(&text);
    sqrl_tape_reset(&tape);
    return written ? EXIT_DONE : EXIT_FAILED;
}

int cli_write(const void *data, size_t size, struct sqrl_error *err) {
    while (size) {
        if (cli_interrupted())
            return cli_cancelled(err);
        ssize_t done = write(STDOUT_FILENO, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return sqrl_error_set_errno(err, errno, "standard output can't be written");
        data = (const char *)data + done;
        size -= (size_t)done;
    }
    return SQRL_OK;
}

/* A sample under a projection is a map of fields at the top. */
enum { MAX_FIELDS = 1024 };

int cli_sample_json(const struct sqrl_projection *projection,
                    const struct sqrl_block *block, uint32_t index,
                    struct sqrl_bytes *out, struct sqrl_error *err) {
    static struct sqrl_field_ref field[MAX_FIELDS];
    const struct sqrl_node *nodes = block->tape.nodes;
    const uint8_t *bytes = block->bytes->data;
    if (!projection)
        return sqrl_json_encode(out, nodes, block->begin[index], bytes, err);
    size_t count = sqrl_projection_apply(projection, block, index, field, MAX_FIELDS);
    if (count > MAX_FIELDS)
        return sqrl_error_set(err, SQRL_E_LIMIT,
                              "a sample has %zu fields; %d can be shown", count,
                              MAX_FIELDS);
    int code = sqrl_bytes_append(out, "{", 1, err);
    for (size_t i = 0; i < count && code == SQRL_OK; i++) {
        const struct sqrl_node name = {.type = SQRL_STRING, .size = field[i].name_size};
        code = sqrl_bytes_append(out, ", ", i ? 2 : 0, err);
        if (code == SQRL_OK)
            code = sqrl_json_encode(out, &name, 0, (const uint8_t *)field[i].name, err);
        if (code == SQRL_OK)
            code = sqrl_bytes_append(out, ": ", 2, err);
        if (code == SQRL_OK)
            code = sqrl_json_encode(out, nodes, field[i].node, bytes, err);
    }
    return code ? code : sqrl_bytes_append(out, "}", 1, err);
}
