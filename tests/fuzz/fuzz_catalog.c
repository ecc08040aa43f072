/* Catalogs: what reads must be written, and read again to the same sources; writing them
 * once more must give the same text. As YAML, and as canonical JSON where that can hold
 * the values. */
#include <stdlib.h>
#include <string.h>

#include <sqrl/sqrl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sqrl_catalog *read_catalog(const void *text, size_t size,
                                         enum sqrl_catalog_form form) {
    struct sqrl_catalog *catalog;
    struct sqrl_error err;
    if (sqrl_catalog_new(&catalog, NULL))
        abort();
    if (sqrl_catalog_read(catalog, text, size, form, "input", &err) == SQRL_OK)
        return catalog;
    sqrl_catalog_free(catalog);
    return NULL;
}

static void round_trip(const struct sqrl_catalog *first, enum sqrl_catalog_form form) {
    struct sqrl_bytes text = {0}, again = {0};
    struct sqrl_catalog *second;
    int code = sqrl_catalog_write(first, form, &text, NULL);
    if (code == SQRL_E_UNSUPPORTED && form == SQRL_CATALOG_JSON) {
        sqrl_bytes_reset(&text);
        return;
    }
    if (code || !(second = read_catalog(text.data, text.size, form)) ||
        !sqrl_catalog_equal(first, second) ||
        sqrl_catalog_write(second, form, &again, NULL) || again.size != text.size ||
        memcmp(again.data, text.data, text.size) != 0)
        abort();
    sqrl_catalog_free(second);
    sqrl_bytes_reset(&text);
    sqrl_bytes_reset(&again);
}

/* A union with itself, and what is left without itself. */
static void combine(const struct sqrl_catalog *catalog) {
    struct sqrl_catalog *both, *none;
    if (sqrl_catalog_union(catalog, catalog, SQRL_CONFLICT_ERROR, &both, NULL) ||
        !sqrl_catalog_equal(catalog, both) ||
        sqrl_catalog_subtract(both, catalog, &none, NULL) || sqrl_catalog_count(none))
        abort();
    sqrl_catalog_free(both);
    sqrl_catalog_free(none);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int form = SQRL_CATALOG_YAML; form <= SQRL_CATALOG_JSON; form++) {
        struct sqrl_catalog *catalog =
            read_catalog(data, size, (enum sqrl_catalog_form)form);
        if (!catalog)
            continue;
        round_trip(catalog, SQRL_CATALOG_YAML);
        round_trip(catalog, SQRL_CATALOG_JSON);
        combine(catalog);
        sqrl_catalog_free(catalog);
    }
    return 0;
}
