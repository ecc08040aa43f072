/* credentials_login.c - AWS keys that a profile gets from elsewhere: from a program
 * (credential_process), or by the token that `aws sso login` left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/object/credentials.h"

#define PROCESS_S 60 /* patience with a program, which may ask its user */
#define REQUEST_S 10 /* and with a service */
#define MOST_BYTES 65536u

/* --- a program --- */

extern char **environ;

/* Its standard output goes to *fd. */
static int start(const char *command, pid_t *child, int *fd, struct sqrl_error *err) {
    char *const words[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return sqrl_error_set_errno(err, errno, "a pipe can't be made");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    int failure = posix_spawn(child, "/bin/sh", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *fd = ends[0];
    if (failure)
        close(ends[0]);
    return failure ? sqrl_error_set_errno(err, failure, "/bin/sh can't be started")
                   : SQRL_OK;
}

/* All that it writes, until its end or the deadline; false: too late, or too much. */
static bool read_output(int fd, char *out) {
    uint64_t until = sqrl_now_ns() + PROCESS_S * UINT64_C(1000000000);
    size_t size = 0;
    bool ended = false;
    while (!ended && size < MOST_BYTES) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = sqrl_now_ns();
        int left = now < until ? (int)((until - now) / 1000000) + 1 : 0;
        if (left == 0 || poll(&p, 1, left) < 0) {
            if (left && errno == EINTR)
                continue;
            break;
        }
        ssize_t n = p.revents ? read(fd, out + size, MOST_BYTES - size) : -1;
        if (n < 0 && (!p.revents || errno == EINTR))
            continue;
        ended = n <= 0;
        size += n > 0 ? (size_t)n : 0;
    }
    out[size] = '\0';
    return ended;
}

int aws_by_process(const char *command, struct aws_keys *out, struct sqrl_error *err) {
    pid_t child;
    int fd = -1, status = 0;
    char *text = sqrl_malloc(MOST_BYTES + 1, "a program's answer", err);
    int rc = text ? start(command, &child, &fd, err) : SQRL_E_NO_MEMORY;
    if (rc) {
        free(text);
        return rc;
    }
    bool ended = read_output(fd, text);
    close(fd);
    if (!ended)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        rc =
            sqrl_error_set(err, SQRL_E_PERMISSION,
                           ended ? "the program of credential_process failed: run it by "
                                   "hand to see why"
                                 : "the program of credential_process did not end within "
                                   "a minute");
    else
        rc = aws_take_json(text, "SessionToken", out, err);
    obj_secret_free(text);
    return rc;
}

/* --- single sign-on --- */

struct login {
    char *account, *role, *start_url, *region;
    char *token;
    int64_t expires; /* the token's */
};

static void free_login(struct login *l) {
    free(l->account);
    free(l->role);
    free(l->start_url);
    free(l->region);
    obj_secret_free(l->token);
}

/* The token in one file of the cache, if it is of this login and lasts longer. */
static void look_at(struct login *l, const char *path) {
    char *text = object_read_file(path, NULL);
    struct obj_json j;
    if (text && obj_json_read(&j, text, strlen(text), NULL) == SQRL_OK) {
        char *url = obj_json_text(&j, 0, "startUrl", NULL);
        char *token = obj_json_text(&j, 0, "accessToken", NULL);
        char *until = obj_json_text(&j, 0, "expiresAt", NULL);
        int64_t ns = until ? obj_time_of_iso(until, strlen(until)) : -1;
        if (url && token && strcmp(url, l->start_url) == 0 &&
            ns / 1000000000 > l->expires) {
            obj_secret_free(l->token);
            l->token = token;
            l->expires = ns / 1000000000;
            token = NULL;
        }
        free(url);
        free(until);
        obj_secret_free(token);
        obj_json_reset(&j);
    }
    obj_secret_free(text);
}

/* What `aws sso login` keeps: one file a session, named by a hash of no interest. */
static void find_token(struct login *l) {
    const char *home = getenv("HOME");
    char *folder = sqrl_format(NULL, "%s/.aws/sso/cache", home ? home : "");
    DIR *dir = folder ? opendir(folder) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        size_t size = strlen(d->d_name);
        char *path = size > 5 && strcmp(d->d_name + size - 5, ".json") == 0
                         ? sqrl_format(NULL, "%s/%s", folder, d->d_name)
                         : NULL;
        if (path)
            look_at(l, path);
        free(path);
    }
    if (dir)
        closedir(dir);
    free(folder);
}

/* {"roleCredentials": {"accessKeyId": ..., "expiration": milliseconds}} */
static int take_role(const char *body, struct aws_keys *out, struct sqrl_error *err) {
    struct obj_json j;
    if (obj_json_read(&j, body, strlen(body), NULL))
        return sqrl_error_set(err, SQRL_E_PERMISSION, "single sign-on gave no keys");
    uint32_t map = obj_json_member(&j, 0, "roleCredentials");
    if (map) {
        out->key = obj_json_text(&j, map, "accessKeyId", NULL);
        out->secret = obj_json_text(&j, map, "secretAccessKey", NULL);
        out->token = obj_json_text(&j, map, "sessionToken", NULL);
        char *until = obj_json_text(&j, map, "expiration", NULL);
        out->expires = until ? strtoll(until, NULL, 10) / 1000 : 0;
        free(until);
    }
    obj_json_reset(&j);
    if (out->key && out->secret && out->token)
        return SQRL_OK;
    aws_keys_free(out);
    return sqrl_error_set(err, SQRL_E_PERMISSION, "single sign-on gave no whole keys");
}

static int ask_role(struct object_store *store, const struct login *l,
                    struct aws_keys *out, struct sqrl_error *err) {
    const char *base = getenv("AWS_ENDPOINT_URL_SSO");
    const char *headers[] = {"x-amz-sso_bearer_token", l->token, NULL};
    struct obj_text url = {.err = err};
    char *body = NULL;
    if (base && *base)
        obj_add(&url, base);
    else
        obj_format(&url, "https://portal.sso.%s.amazonaws.com", l->region);
    obj_add(&url, "/federation/credentials?role_name=");
    obj_escape(&url, l->role, strlen(l->role), false);
    obj_add(&url, "&account_id=");
    obj_escape(&url, l->account, strlen(l->account), false);
    char *text = obj_take(&url);
    int rc = text ? credentials_request(store, "GET", text, headers, NULL, REQUEST_S,
                                        &body, err)
                  : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = take_role(body, out, err);
    obj_secret_free(body);
    free(text);
    return rc;
}

/* In the profile, or (newer) in the section of a session that it names. */
static char *login_setting(const char *profile, const char *session, const char *name) {
    char *value = session ? aws_session_setting(session, name, NULL) : NULL;
    return value ? value : aws_profile_setting(profile, name, NULL);
}

int aws_by_login(struct object_store *store, const char *profile, struct aws_keys *out,
                 struct sqrl_error *err) {
    char *session = aws_profile_setting(profile, "sso_session", NULL);
    struct login l = {.account = aws_profile_setting(profile, "sso_account_id", NULL),
                      .role = aws_profile_setting(profile, "sso_role_name", NULL),
                      .start_url = login_setting(profile, session, "sso_start_url"),
                      .region = login_setting(profile, session, "sso_region")};
    int rc = SQRL_OK;
    if (!l.account || !l.role || !l.start_url || !l.region)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "profile %.60s lacks one of sso_account_id, sso_role_name, "
                            "sso_start_url, sso_region",
                            profile);
    else
        find_token(&l);
    if (rc == SQRL_OK && (!l.token || l.expires <= object_now(store)))
        rc = sqrl_error_set(err, SQRL_E_PERMISSION,
                            "the login of profile %.60s %s: aws sso login --profile "
                            "%.60s",
                            profile, l.token ? "ran out" : "was not made", profile);
    if (rc == SQRL_OK)
        rc = ask_role(store, &l, out, err);
    free(session);
    free_login(&l);
    return rc;
}
