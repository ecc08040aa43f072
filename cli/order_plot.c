/* order_plot.c - a picture of an order as SVG: position in the source against place in
 * the stream. A random order is an even cloud, the source's own a diagonal, a window a
 * band.
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 600, EDGE = 70, MOST_DOTS = 20000 };

static void put_axes(FILE *to, const char *title, size_t count, uint64_t source) {
    const int whole = SIDE + 2 * EDGE;
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"14\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n"
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
            "stroke=\"#888888\"/>\n",
            whole, whole, whole, whole, whole, whole, EDGE, EDGE, SIDE, SIDE);
    fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", whole / 2,
            EDGE / 2, title);
    fprintf(to,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">place in the stream, 0 to "
            "%zu</text>\n",
            whole / 2, whole - EDGE / 3, count);
    fprintf(to,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 %d "
            "%d)\">position in the source, 0 to %" PRIu64 "</text>\n",
            EDGE / 2, whole / 2, EDGE / 2, whole / 2, source);
}

/* All samples, or so many of them at equal distances. */
static void put_dots(FILE *to, const uint64_t *order, size_t count, uint64_t source) {
    size_t dots = count < MOST_DOTS ? count : MOST_DOTS;
    fputs("<path stroke=\"#1f5fa8\" stroke-width=\"1.6\" stroke-linecap=\"round\" d=\"",
          to);
    for (size_t i = 0; i < dots; i++) {
        size_t place = (size_t)((double)i * (double)count / (double)dots);
        double x = EDGE + SIDE * ((double)place + 0.5) / (double)count;
        double y = EDGE + SIDE * (1 - ((double)order[place] + 0.5) / (double)source);
        fprintf(to, "M%.1f %.1fh0", x, y);
    }
    fputs("\"/>\n</svg>\n", to);
}

int cli_plot_order(const char *path, const char *title, const uint64_t *order,
                   size_t count, struct sqrl_error *err) {
    uint64_t source = 1;
    for (size_t i = 0; i < count; i++)
        if (order[i] >= source)
            source = order[i] + 1;
    FILE *to = fopen(path, "w");
    if (to) {
        put_axes(to, title, count, source);
        put_dots(to, order, count, source);
    }
    bool failed = !to || ferror(to);
    int reason = errno;
    if (to && fclose(to)) {
        failed = true;
        reason = errno;
    }
    if (!failed)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_IO, "--plot: %s can't be written: %s", path,
                          strerror(reason));
}
