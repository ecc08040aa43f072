/* Catalogs: what reads must be written, and read again to the same sources; writing them
 * once more must give the same text. */
#include <stdlib.h>
#include <string.h>

#include <sqrl/sqrl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sqrl_catalog *read_catalog(const void *text, size_t size) {
    struct sqrl_catalog *catalog;
    struct sqrl_error err;
    if (sqrl_catalog_new(&catalog, NULL))
        abort();
    if (sqrl_catalog_read(catalog, text, size, "input", &err) == SQRL_OK)
        return catalog;
    sqrl_catalog_free(catalog);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sqrl_catalog *first = read_catalog(data, size), *second;
    struct sqrl_bytes text = {0}, again = {0};
    if (!first)
        return 0;
    if (sqrl_catalog_write(first, &text, NULL) ||
        !(second = read_catalog(text.data, text.size)) ||
        sqrl_catalog_count(second) != sqrl_catalog_count(first) ||
        sqrl_catalog_write(second, &again, NULL) || again.size != text.size ||
        memcmp(again.data, text.data, text.size) != 0)
        abort();
    sqrl_catalog_free(first);
    sqrl_catalog_free(second);
    sqrl_bytes_reset(&text);
    sqrl_bytes_reset(&again);
    return 0;
}
