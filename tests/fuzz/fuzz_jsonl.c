/* The format in src/format/jsonl.c, fed with any bytes as a file. */
#include "format/format.h"
#include "read_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_format(&sqrl_format_jsonl, data, size);
}
