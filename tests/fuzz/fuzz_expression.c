/* Parses the input as a filter expression and runs it on samples of every kind. */
#include <stdlib.h>

#include "stream/columns/locate.h"
#include "stream/expression.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const SAMPLES[] = {
    "{\"label\": 3, \"score\": 0.25, \"flagged\": false, \"path\": \"/api/x.png\"}",
    "{\"label\": \"three\", \"score\": null, \"flagged\": [1, \"a\"], \"meta\": "
    "{\"site\": \"b\"}}",
    "{\"label\": 123456789012345678901234567890, \"score\": -1e300, \"path\": \"\"}",
    "[]",
};

static void run(const struct sqrl_expression *x, const char *sample) {
    struct sqrl_tape tape = {0};
    struct sqrl_error err;
    uint32_t count = sqrl_expression_fields(x);
    char *json = strdup(sample);
    uint32_t *map = calloc(count + 1, sizeof *map),
             *found = calloc(count + 1, sizeof *found);
    struct sqrl_wants *wants = sqrl_wants_new(&err);
    size_t offset = 0;
    bool pass;
    if (!json || !map || !found || !wants ||
        sqrl_json_decode(&tape, (uint8_t *)json, strlen(json), &offset, 0, NULL, &err))
        abort();
    for (uint32_t i = 0; i < count; i++)
        if (sqrl_wants_add(wants, sqrl_expression_field(x, i), &map[i], &err))
            map[i] = SQRL_NO_NODE;
    struct sqrl_locator *locator = sqrl_locator_new(wants, &err);
    sqrl_locate(locator, tape.nodes, 0, (uint8_t *)json, found, NULL);
    int first =
        sqrl_expression_test(x, tape.nodes, (uint8_t *)json, found, map, &pass, &err);
    bool passed = pass;
    sqrl_locate(locator, tape.nodes, 0, (uint8_t *)json, found,
                NULL); /* learned by now */
    if (sqrl_expression_test(x, tape.nodes, (uint8_t *)json, found, map, &pass, &err) !=
            first ||
        pass != passed)
        abort();
    sqrl_locator_free(locator);
    sqrl_wants_free(wants);
    sqrl_tape_reset(&tape);
    free(map);
    free(found);
    free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sqrl_expression *x;
    struct sqrl_error err;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    if (sqrl_expression_parse(text, &x, &err) == SQRL_OK) {
        for (size_t i = 0; i < SQRL_COUNT_OF(SAMPLES); i++)
            run(x, SAMPLES[i]);
        sqrl_expression_free(x);
    } else if (err.code != SQRL_E_INVALID && err.code != SQRL_E_LIMIT) {
        abort();
    }
    free(text);
    return 0;
}
