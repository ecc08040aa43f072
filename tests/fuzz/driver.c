/* Runs a fuzz target over files without a fuzzing engine: `fuzz_x FILE|DIRECTORY...`.
 * Each file goes in whole, and cut short at up to 64 places, so that the corpus covers
 * truncation too. It prints how many inputs ran; a crash or a sanitizer's report is the
 * failure. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS = 64, MAX_BYTES = 4 << 20, MAX_DEPTH = 8 };
static unsigned long inputs;

/* A copy of the exact size, so that a sanitizer sees the first byte read behind it. */
static void run(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    inputs++;
}

static void run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return;
    uint8_t *data = malloc(MAX_BYTES);
    size_t size = data ? fread(data, 1, MAX_BYTES, file) : 0;
    fclose(file);
    run(data, size);
    size_t step = size / CUTS + 1;
    for (size_t cut = 0; cut < size; cut += step)
        run(data, cut);
    free(data);
}

static void run_path(const char *path, int depth) {
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "skipped: %s is not here\n", path);
        return;
    }
    if (S_ISREG(st.st_mode)) {
        run_file(path);
        return;
    }
    DIR *dir = S_ISDIR(st.st_mode) && depth < MAX_DEPTH ? opendir(path) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char below[4096];
        if (entry->d_name[0] != '.') {
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
            run_path(below, depth + 1);
        }
    }
    if (dir)
        closedir(dir);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        run_path(argv[i], 0);
    printf("%lu inputs ran\n", inputs);
    return inputs ? 0 : 1;
}
