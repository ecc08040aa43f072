/* yaml_edges.c - the places where libyaml is more lenient than YAML 1.2, or reads
 * something else: "?x" in [] and {} as a key x, and the anchor &a:b as &a. */
#include "catalog/yaml_edges.h"

size_t sqrl_yaml_byte_at(struct sqrl_yaml_edges *edges, size_t character) {
    size_t at = edges->byte;
    for (; edges->character < character && at < edges->size; edges->character++)
        for (at++; at < edges->size && (edges->text[at] & 0xc0) == 0x80;)
            at++;
    edges->byte = at;
    return at;
}

static bool is_blank(unsigned char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

const char *sqrl_yaml_check_gap(const struct sqrl_yaml_edges *edges, size_t begin) {
    const unsigned char *text = edges->text;
    for (size_t at = edges->seen; at < begin; at++) {
        if (text[at] != '#')
            continue;
        if (at && !is_blank(text[at - 1]))
            return "a blank is missing before the # of a comment";
        while (at < begin && text[at] != '\n')
            at++;
    }
    return NULL;
}

const char *sqrl_yaml_check_dash(const struct sqrl_yaml_edges *edges, size_t begin,
                                 size_t end) {
    if (end == begin + 1 && edges->text[begin] == '-')
        return "a single - is no value within [] or {}; quote it";
    return NULL;
}

const char *sqrl_yaml_check_mark(const struct sqrl_yaml_edges *edges, size_t begin) {
    if (begin && edges->text[begin - 1] == '?')
        return "a blank is missing behind the \"?\"; quote a text that begins with it";
    return NULL;
}

const char *sqrl_yaml_check_name(const struct sqrl_yaml_edges *edges, size_t begin) {
    const unsigned char *text = edges->text;
    size_t at = begin + 1;
    while (at < edges->size &&
           (text[at] == '-' || text[at] == '_' || (text[at] >= '0' && text[at] <= '9') ||
            ((text[at] | 32) >= 'a' && (text[at] | 32) <= 'z')))
        at++;
    if (at < edges->size && !memchr(" \t\r\n,[]{}", text[at], 10))
        return "the name of an anchor has letters, digits, - and _ only";
    return NULL;
}

const char *sqrl_yaml_check_lines(const struct sqrl_yaml_edges *edges, size_t begin,
                                  size_t end, int64_t column, bool comments) {
    const unsigned char *text = edges->text;
    for (size_t at = begin; column >= 0 && at < end; at++) {
        if (text[at] != '\n')
            continue;
        size_t first = at + 1, next;
        while (first < end && text[first] == ' ')
            first++;
        for (next = first; next < end && is_blank(text[next]) && text[next] != '\n';)
            next++;
        if (next == end || text[next] == '\n' || (comments && text[next] == '#'))
            continue;
        if ((int64_t)(first - at - 1) <= column)
            return "a line in it is indented no further than what it belongs to; indent "
                   "it by spaces";
    }
    return NULL;
}
