/* states.c - --state and --from: where the command goes on, and how far it came. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STATE_BYTES (UINT64_C(1) << 30) /* what sqrl_iterator_options takes */

/* One more text of input->from. Through the file system, which refuses devices: those
 * have no end. */
static int read_file(const struct cli_args *args, const char *url,
                     struct cli_input *input, struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_file *file = NULL;
    char *path = NULL, *text = NULL;
    int code = sqrl_fs_for_url(args->context, url, NULL, &fs, &path, err);
    if (code == SQRL_OK)
        code = sqrl_file_open(fs, path, &file, err);
    uint64_t size = code ? 0 : sqrl_file_size(file);
    if (code == SQRL_OK && size > MAX_STATE_BYTES)
        code = sqrl_error_set(err, SQRL_E_LIMIT,
                              "%s: %llu bytes are no state: give the file that --state "
                              "made",
                              url, (unsigned long long)size);
    if (code == SQRL_OK && !(text = malloc((size_t)size + 1)))
        code = sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for %llu bytes of state",
                              (unsigned long long)size);
    if (code == SQRL_OK) {
        text[size] = 0;
        code = sqrl_file_read_exact(file, 0, text, (size_t)size, NULL, err);
    }
    if (code == SQRL_OK)
        input->from[input->from_count++] = text;
    else
        free(text);
    sqrl_file_unref(file);
    free(path);
    sqrl_fs_unref(fs);
    return code;
}

/* Said before samples go out, not behind them. */
static int check_writable(const struct cli_args *args, const struct cli_input *input,
                          struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_file_writer *writer = NULL;
    char *path = NULL;
    int code = sqrl_fs_for_url(args->context, input->state_file, NULL, &fs, &path, err);
    if (code == SQRL_OK)
        code = sqrl_file_create(fs, path, true, &writer, err);
    if (code == SQRL_OK)
        sqrl_file_abort(writer);
    free(path);
    sqrl_fs_unref(fs);
    return code ? sqrl_error_at(err, code, "the state can't be written") : SQRL_OK;
}

/* The state's own file wins; the first call goes on from others', or from the beginning.
 */
static int read_all(const struct cli_args *args, struct cli_input *input, char *others,
                    struct sqrl_error *err) {
    int code = SQRL_E_NOT_FOUND;
    if (input->state_file) {
        code = read_file(args, input->state_file, input, err);
        if (code != SQRL_E_NOT_FOUND)
            return code;
        sqrl_error_clear(err);
    }
    code = SQRL_OK;
    for (char *url = others ? strtok(others, ",") : NULL; url && code == SQRL_OK;
         url = strtok(NULL, ","))
        code = read_file(args, url, input, err);
    return code;
}

int cli_states_read(const struct cli_args *args, struct cli_input *input,
                    struct sqrl_error *err) {
    const char *given = cli_value(args, "from");
    size_t room = 1;
    input->state_file = cli_value(args, "state");
    for (const char *c = given; c && *c; c++)
        room += *c == ',';
    char *others = given ? strdup(given) : NULL;
    input->from = calloc(room + 1, sizeof *input->from);
    int code = input->from && (others || !given)
                   ? SQRL_OK
                   : sqrl_error_set(err, SQRL_E_NO_MEMORY, "out of memory");
    if (code == SQRL_OK)
        code = read_all(args, input, others, err);
    free(others);
    if (code == SQRL_OK && input->state_file)
        code = check_writable(args, input, err);
    return code;
}

void cli_states_free(struct cli_input *input) {
    for (size_t i = 0; i < input->from_count; i++)
        free(input->from[i]);
    free(input->from);
    free(input->state);
    input->from = NULL;
    input->from_count = 0;
    input->state = NULL;
}

int cli_input_save(const struct cli_args *args, const struct cli_input *input,
                   struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    struct sqrl_file_writer *writer = NULL;
    char *path = NULL;
    if (!input->state_file || !input->state)
        return SQRL_OK;
    int code = sqrl_fs_for_url(args->context, input->state_file, NULL, &fs, &path, err);
    if (code == SQRL_OK)
        code = sqrl_file_create(fs, path, true, &writer, err);
    if (code == SQRL_OK)
        code = sqrl_file_write(writer, input->state, strlen(input->state), err);
    if (code == SQRL_OK)
        code = sqrl_file_write(writer, "\n", 1, err);
    if (code == SQRL_OK)
        code = sqrl_file_commit(writer, err);
    else if (writer)
        sqrl_file_abort(writer);
    free(path);
    sqrl_fs_unref(fs);
    return code;
}
