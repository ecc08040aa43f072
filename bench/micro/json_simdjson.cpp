// json_simdjson.cpp - simdjson's DOM over the same documents as bench_json_decode.
//
//     bench_json_simdjson [FILE...]
//
// Built only where libsimdjson and a C++ compiler are found.
#include <chrono>
#include <simdjson.h>

#include "json_lines.h"

static double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static size_t parse(simdjson::dom::parser &parser, const simdjson::padded_string &text,
                    bool lines) {
    size_t values = 0;
    if (!lines) {
        simdjson::dom::element root = parser.parse(text);
        return root.type() == simdjson::dom::element_type::OBJECT ? 1 : 2;
    }
    simdjson::dom::document_stream stream = parser.parse_many(text);
    for (auto value : stream)
        values += value.error() == simdjson::SUCCESS;
    return values;
}

static int run(const char *name) {
    size_t size = 0, values = 0;
    uint8_t *bytes = json_document(name, &size);
    if (!bytes) {
        fprintf(stderr, "%s: cannot be read\n", name);
        return 1;
    }
    simdjson::padded_string text(reinterpret_cast<const char *>(bytes), size);
    simdjson::dom::parser parser;
    double best = 1e9, stop = now() + 0.5;
    do {
        double t = now();
        values = parse(parser, text, json_is_lines(name));
        t = now() - t;
        best = t < best ? t : best;
    } while (now() < stop);
    printf("{\"bench\": \"json_decode\", \"document\": \"%s\", \"bytes\": %zu, "
           "\"values\": %zu, \"kernel\": \"%s\", \"simdjson_gb_s\": %.3f}\n",
           name ? name : "made-up lines", size, values,
           simdjson::get_active_implementation()->name().c_str(),
           double(size) / best * 1e-9);
    free(bytes);
    return 0;
}

int main(int argc, char **argv) {
    int bad = argc < 2 ? run(nullptr) : 0;
    for (int i = 1; i < argc; i++)
        bad |= run(argv[i]);
    return bad;
}
