/* ask_python.c - the default catalog with what Python's plug-ins offer.
 *
 * Plug-ins are Python code, so a Python interpreter is asked, in a process of its own:
 * `PYTHON -m squirrel.catalog` prints what Catalog.default() is there, behind a line of
 * its own what of it came from other machines. Its last line says that the text is whole;
 * else the first one says what went wrong. What plug-ins print goes to standard error. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "catalog/catalog.h"

#define WHOLE "# whole\n"
#define ELSEWHERE "\n# from elsewhere\n"
#define WHERE "SQUIRREL_PYTHON"

enum { PIECE = 1 << 16, MAX_BYTES = 256 << 20 };

extern char **environ;

/* Starts it; *from is what it prints. */
static int start(const char *python, pid_t *process, int *from, struct sqrl_error *err) {
    char option[] = "-m", module[] = "squirrel.catalog";
    char *argv[] = {(char *)(uintptr_t)python, option, module, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return sqrl_error_set_errno(err, errno, "there is no pipe");
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (!failed)
            failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                                      O_RDONLY, 0);
        if (!failed)
            failed = posix_spawnp(process, python, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    *from = ends[0];
    if (!failed)
        return SQRL_OK;
    close(ends[0]);
    return sqrl_error_set_errno(err, failed,
                                "%.200s can't be started: name a Python interpreter, or "
                                "unset the variable to go without plug-ins",
                                python);
}

static int read_all(int from, struct sqrl_bytes *out, struct sqrl_error *err) {
    char *piece = sqrl_malloc(PIECE, "a catalog's text", err);
    int code = piece ? SQRL_OK : SQRL_E_NO_MEMORY;
    while (!code) {
        ssize_t size = read(from, piece, PIECE);
        if (size == 0 || (size < 0 && errno != EINTR))
            break;
        if (size > 0)
            code = sqrl_bytes_append(out, piece, (size_t)size, err);
        if (!code && out->size > MAX_BYTES)
            code = sqrl_error_set(err, SQRL_E_LIMIT, "a catalog of more than %d bytes",
                                  MAX_BYTES);
    }
    free(piece);
    return code;
}

static bool is_whole(const struct sqrl_bytes *text) {
    size_t size = sizeof WHOLE - 1;
    return text->size >= size && memcmp(text->data + text->size - size, WHOLE, size) == 0;
}

/* What it says instead of a catalog: "exists: two catalogs have ...". */
static int tell_failure(const char *python, const struct sqrl_bytes *text,
                        struct sqrl_error *err) {
    const char *data = (const char *)text->data;
    size_t size = 0, name = 0;
    while (size < text->size && data[size] != '\n')
        size++;
    while (name < size && data[name] != ':')
        name++;
    for (int code = SQRL_E_INVALID; code <= SQRL_E_USER && name < size; code++)
        if (strlen(sqrl_code_name(code)) == name &&
            memcmp(sqrl_code_name(code), data, name) == 0)
            return sqrl_error_set(err, code, "%.*s", (int)SQRL_MIN(size - name - 2, 350u),
                                  data + name + 2);
    return sqrl_error_set(err, SQRL_E_USER,
                          "`%.100s -m squirrel.catalog` failed: install squirrel-c for "
                          "this Python, or unset the variable to go without plug-ins",
                          python);
}

/* Two catalogs, of which the second is not trusted. */
static int read_both(struct sqrl_catalog *catalog, const struct sqrl_bytes *text,
                     const char *python, struct sqrl_error *err) {
    const char *all = (const char *)text->data;
    const char *mark = memmem(all, text->size, ELSEWHERE, sizeof ELSEWHERE - 1);
    size_t own = mark ? (size_t)(mark - all) + 1 : text->size;
    int code = sqrl_catalog_read(catalog, all, own, SQRL_CATALOG_YAML, python, err);
    if (code || !mark)
        return code;
    sqrl_catalog_distrust(catalog, true);
    code = sqrl_catalog_read(catalog, all + own, text->size - own, SQRL_CATALOG_YAML,
                             python, err);
    sqrl_catalog_distrust(catalog, false);
    return code;
}

int sqrl_catalog_ask_python(const char *python, struct sqrl_catalog **out,
                            struct sqrl_error *err) {
    struct sqrl_bytes text = {0};
    pid_t process = -1;
    int from = -1;
    *out = NULL;
    int code = start(python, &process, &from, err);
    if (code)
        return sqrl_error_at(err, code, WHERE);
    code = read_all(from, &text, err);
    close(from); /* it ends when it can't print any more */
    while (waitpid(process, NULL, 0) < 0 && errno == EINTR)
        ;
    if (!code && !is_whole(&text))
        code = tell_failure(python, &text, err);
    if (!code)
        code = sqrl_catalog_new(out, err);
    if (!code)
        code = read_both(*out, &text, python, err);
    if (code) {
        sqrl_catalog_free(*out);
        *out = NULL;
        sqrl_error_at(err, code, WHERE);
    }
    sqrl_bytes_reset(&text);
    return code;
}
