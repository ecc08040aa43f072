/* fault_server.c - a web server for tests and benchmarks: files with ranges and ETags
 * over HTTP/1.1, behind a link with latency and limited bandwidth, with faults on demand.
 *
 *   fault_server --root DIR [--port 0] [--latency-ms 30] [--per-connection 40000000]
 *                [--total 400000000] [--faults 503=0.01,stall=0.2] [--seed 1]
 *
 * Its directories are buckets of S3, too, with paths as /BUCKET/KEY: GET, HEAD and
 * listings (version 2); signatures are not looked at. With store=1 a directory itself
 * is not found, as in a store.
 *
 * Prints "port N" once it listens on 127.0.0.1. A thread a connection; bodies by
 * sendfile.
 *
 * GET /_control/set?faults=503=0.2,reset_body@7&latency-ms=0&match=.sqrl&seed=5 changes
 *     what is given: NAME=RATE picks requests at random (the draws depend on the seed and
 *     the request's number alone), NAME@N the N-th one from now on; match: only paths
 * that contain it; refuse-head=1, ranges=0, etags=0, lengths=0 (chunked), listing=0. GET
 * /_control/counters   JSON: requests, bytes of bodies, connections, open ones, most at a
 * time, requests with Authorization, of each method and status, of each fault. GET
 * /_control/requests   one line each: METHOD path range status bytes fault GET
 * /_control/reset      forgets both and begins to count requests anew. GET /_to/URL
 * redirects there (302); URL is everything behind the prefix.
 *
 * Faults: 503 429 500 flip (one byte of the body) reset_headers
 * reset_body stall (silence in mid-body) trickle (100 bytes a second) truncate (fewer
 * bytes than Content-Length says) truncate_length (and it says so) longer whole (200 for
 * a range) range (another one) etag (another one) gzip (by surprise) login (HTML, 200)
 * loop (redirects to itself) file (redirects to file:///) late (late-ms more to the first
 * byte). retry-after=S is what 503 and 429 say.
 *
 * Requests with a whole URL, as a proxy gets them, are answered by this server itself,
 * and counted as proxied. */
#include "fault_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_ROOM 16384
#define MAX_LOG 200000

static const char *const fault_names[FAULTS] = {"none",
                                                "503",
                                                "429",
                                                "500",
                                                "flip",
                                                "reset_headers",
                                                "reset_body",
                                                "stall",
                                                "trickle",
                                                "truncate",
                                                "truncate_length",
                                                "longer",
                                                "whole",
                                                "range",
                                                "etag",
                                                "gzip",
                                                "login",
                                                "loop",
                                                "file",
                                                "late"};

static struct settings settings = {.seed = 1,
                                   .late = 1,
                                   .ranges = true,
                                   .etags = true,
                                   .lengths = true,
                                   .listing = true};
static const char *root;
static uint64_t requests, bytes, connections, open_now, open_most, authorized, proxied,
    heads;
static uint64_t statuses[600], faults[FAULTS];
static char **log_lines;
static size_t log_count;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* --- settings --- */

static void set_faults(char *text) {
    memset(settings.rates, 0, sizeof settings.rates);
    memset(settings.at, 0, sizeof settings.at);
    for (char *save, *item = strtok_r(text, ",", &save); item;
         item = strtok_r(NULL, ",", &save)) {
        size_t size = strcspn(item, "=@");
        for (int i = 1; i < FAULTS; i++) {
            if (strlen(fault_names[i]) != size || strncmp(item, fault_names[i], size))
                continue;
            if (item[size] == '=')
                settings.rates[i] = atof(item + size + 1);
            else if (item[size] == '@')
                settings.at[i] = requests + strtoull(item + size + 1, NULL, 10);
        }
    }
}

/* With the lock held. False: no such setting. */
static bool set(const char *name, char *value) {
    if (strcmp(name, "faults") == 0)
        set_faults(value);
    else if (strcmp(name, "latency-ms") == 0)
        settings.latency = atof(value) / 1000;
    else if (strcmp(name, "per-connection") == 0)
        settings.per_connection = atof(value);
    else if (strcmp(name, "total") == 0)
        settings.total = atof(value);
    else if (strcmp(name, "late-ms") == 0)
        settings.late = atof(value) / 1000;
    else if (strcmp(name, "retry-after") == 0)
        settings.retry_after = (unsigned)atoi(value);
    else if (strcmp(name, "seed") == 0)
        settings.seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "refuse-head") == 0)
        settings.refuse_head = atoi(value);
    else if (strcmp(name, "ranges") == 0)
        settings.ranges = atoi(value);
    else if (strcmp(name, "etags") == 0)
        settings.etags = atoi(value);
    else if (strcmp(name, "lengths") == 0)
        settings.lengths = atoi(value);
    else if (strcmp(name, "store") == 0)
        settings.store = atoi(value);
    else if (strcmp(name, "listing") == 0)
        settings.listing = atoi(value);
    else if (strcmp(name, "match") == 0)
        snprintf(settings.match, sizeof settings.match, "%s", value);
    else
        return false;
    return true;
}

/* --- control --- */

static void append(char *out, size_t room, size_t *n, const char *name, uint64_t value) {
    *n += (size_t)snprintf(out + *n, room - *n, "%s\"%s\": %llu",
                           *n > 1 && out[*n - 1] != '{' ? ", " : "", name,
                           (unsigned long long)value);
}

static void counters(struct link *l, struct request *r) {
    char out[8192], name[16];
    size_t n = 1;
    out[0] = '{';
    pthread_mutex_lock(&fault_lock);
    append(out, sizeof out, &n, "requests", requests);
    append(out, sizeof out, &n, "bytes", bytes);
    append(out, sizeof out, &n, "connections", connections);
    append(out, sizeof out, &n, "open", open_now - 1); /* without this one */
    append(out, sizeof out, &n, "open_most", open_most);
    append(out, sizeof out, &n, "authorized", authorized);
    append(out, sizeof out, &n, "proxied", proxied);
    append(out, sizeof out, &n, "heads", heads);
    n += (size_t)snprintf(out + n, sizeof out - n, ", \"statuses\": {");
    for (int i = 100; i < 600; i++) {
        snprintf(name, sizeof name, "%d", i);
        if (statuses[i])
            append(out, sizeof out, &n, name, statuses[i]);
    }
    n += (size_t)snprintf(out + n, sizeof out - n, "}, \"faults\": {");
    for (int i = 1; i < FAULTS; i++)
        append(out, sizeof out, &n, fault_names[i], faults[i]);
    n += (size_t)snprintf(out + n, sizeof out - n, "}}\n");
    pthread_mutex_unlock(&fault_lock);
    answer(l, r, 200, "Content-Type: application/json\r\n", out, n);
}

static void log_page(struct link *l, struct request *r) {
    pthread_mutex_lock(&fault_lock);
    size_t size = 1, n = 0;
    for (size_t i = 0; i < log_count; i++)
        size += strlen(log_lines[i]);
    char *text = malloc(size);
    for (size_t i = 0; i < log_count && text; i++)
        n += (size_t)sprintf(text + n, "%s", log_lines[i]);
    pthread_mutex_unlock(&fault_lock);
    answer(l, r, 200, "Content-Type: text/plain\r\n", text, n);
    free(text);
}

static void forget(void) {
    requests = bytes = connections = authorized = proxied = heads = open_most = 0;
    memset(statuses, 0, sizeof statuses);
    memset(faults, 0, sizeof faults);
    while (log_count > 0)
        free(log_lines[--log_count]);
}

static void control(struct link *l, struct request *r) {
    char *name = r->path + strlen("/_control/"), *query = strchr(name, '?');
    bool good = true;
    if (strcmp(name, "counters") == 0) {
        counters(l, r);
        return;
    }
    if (strcmp(name, "requests") == 0) {
        log_page(l, r);
        return;
    }
    pthread_mutex_lock(&fault_lock);
    if (strcmp(name, "reset") == 0) {
        forget();
    } else if (query) {
        for (char *save, *item = strtok_r(query + 1, "&", &save); item;
             item = strtok_r(NULL, "&", &save)) {
            char *value = strchr(item, '=');
            if (value)
                *value++ = 0;
            good = value && set(item, value) && good;
        }
    }
    pthread_mutex_unlock(&fault_lock);
    say(l, r, good ? 200 : 400, good ? "done\n" : "no such setting\n");
}

/* --- requests --- */

static enum fault choose(const struct link *l, const struct request *r) {
    if (*l->s.match && !strstr(r->path, l->s.match))
        return NONE;
    for (int i = 1; i < FAULTS; i++)
        if (l->s.at[i] == r->number)
            return (enum fault)i;
    double draw = (double)(mix(l->s.seed ^ mix(r->number)) >> 11) / 9007199254740992.0;
    for (int i = 1; i < FAULTS; i++) {
        if (draw < l->s.rates[i])
            return (enum fault)i;
        draw -= l->s.rates[i];
    }
    return NONE;
}

static void respond(struct link *l, struct request *r) {
    char line[2100];
    if (strcmp(r->method, "HEAD") == 0 && l->s.refuse_head) {
        say(l, r, 405, "");
        return;
    }
    if (strncmp(r->path, "/_to/", 5) == 0) {
        snprintf(line, sizeof line, "Location: %s\r\n", r->path + 5);
        answer(l, r, 302, line, "", 0);
        return;
    }
    switch (r->fault) {
    case F503:
    case F429:
        snprintf(line, sizeof line, "Retry-After: %u\r\n", l->s.retry_after);
        answer(l, r, r->fault == F503 ? 503 : 429, line, "slow down\n", 10);
        return;
    case F500:
        say(l, r, 500, "a fault\n");
        return;
    case LOGIN: /* a HEAD tells the truth */
        if (strcmp(r->method, "HEAD") == 0)
            serve_path(l, r, root);
        else
            answer(l, r, 200, "Content-Type: text/html\r\n", login_page, login_size());
        return;
    case LOOP:
        snprintf(line, sizeof line, "Location: %s\r\n", r->path);
        answer(l, r, 302, line, "", 0);
        return;
    case TO_FILE:
        answer(l, r, 302, "Location: file:///etc/passwd\r\n", "", 0);
        return;
    default:
        serve_path(l, r, root);
    }
}

static void note(const struct request *r) {
    char *line = NULL;
    pthread_mutex_lock(&fault_lock);
    bytes += r->sent;
    faults[r->fault]++;
    if (r->status >= 0 && r->status < 600)
        statuses[r->status]++;
    if (log_count < MAX_LOG &&
        asprintf(&line, "%s %s %s %d %llu %s\n", r->method, r->path,
                 *r->range ? r->range : "-", r->status, (unsigned long long)r->sent,
                 fault_names[r->fault]) > 0)
        log_lines[log_count++] = line;
    pthread_mutex_unlock(&fault_lock);
}

static void header_value(const char *line, const char *name, char *out, size_t room) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) == 0 && line[n] == ':')
        snprintf(out, room, "%s", line + n + 1 + strspn(line + n + 1, " "));
}

static bool parse(char *head, struct request *r) {
    char *save, *line = strtok_r(head, "\r\n", &save), other[128] = "";
    memset(r, 0, sizeof *r);
    r->keep = true;
    if (!line || sscanf(line, "%7s %2047s", r->method, r->path) != 2)
        return false;
    while ((line = strtok_r(NULL, "\r\n", &save)) != NULL) {
        header_value(line, "Range", r->range, sizeof r->range);
        header_value(line, "If-Match", r->if_match, sizeof r->if_match);
        if (strncasecmp(line, "Authorization:", 14) == 0)
            r->authorized = true;
        header_value(line, "Connection", other, sizeof other);
    }
    r->keep = strcasecmp(other, "close") != 0;
    r->proxied = strncmp(r->path, "http://", 7) == 0;
    if (r->proxied) { /* it is asked as a proxy, and is itself the server behind it */
        const char *path = strchr(r->path + 7, '/');
        memmove(r->path, path ? path : "/", path ? strlen(path) + 1 : 2);
    }
    return true;
}

static void handle(struct link *l, char *head) {
    struct request r;
    if (!parse(head, &r)) {
        l->broken = true;
        return;
    }
    double began = now();
    bool controls = strncmp(r.path, "/_control/", 10) == 0;
    pthread_mutex_lock(&fault_lock);
    r.number = controls ? 0 : ++requests;
    if (!controls) {
        authorized += r.authorized;
        proxied += r.proxied;
        heads += strcmp(r.method, "HEAD") == 0;
    }
    l->s = settings;
    pthread_mutex_unlock(&fault_lock);
    if (controls) {
        control(l, &r);
    } else {
        r.fault = choose(l, &r);
        if (l->s.latency > 0)
            sleep_until(began + l->s.latency);
        if (r.fault == LATE)
            wait_for(l, l->s.late);
        respond(l, &r);
        note(&r);
    }
    if (!r.keep)
        l->close = true;
}

static void *serve(void *arg) {
    struct link l = {.fd = (int)(intptr_t)arg};
    char *head = malloc(HEAD_ROOM + 1), *end;
    size_t have = 0;
    int one = 1;
    setsockopt(l.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    while (head && !l.broken && !l.close) {
        head[have] = 0;
        end = strstr(head, "\r\n\r\n");
        if (end) {
            size_t used = (size_t)(end - head) + 4;
            char rest[HEAD_ROOM + 1];
            memcpy(rest, head + used, have - used);
            handle(&l, head);
            have -= used;
            memcpy(head, rest, have);
            continue;
        }
        ssize_t n = have < HEAD_ROOM ? recv(l.fd, head + have, HEAD_ROOM - have, 0) : 0;
        if (n <= 0 && errno == EINTR && have < HEAD_ROOM)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(l.fd);
    free(head);
    pthread_mutex_lock(&fault_lock);
    open_now--;
    pthread_mutex_unlock(&fault_lock);
    return NULL;
}

static int listen_on(int *port) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)*port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, size) != 0 || listen(fd, 512) != 0)
        return -1;
    getsockname(fd, (struct sockaddr *)&a, &size);
    *port = ntohs(a.sin_port);
    return fd;
}

int main(int argc, char **argv) {
    int port = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i] + (strncmp(argv[i], "--", 2) == 0 ? 2 : 0);
        if (strcmp(name, "root") == 0)
            root = argv[i + 1];
        else if (strcmp(name, "port") == 0)
            port = atoi(argv[i + 1]);
        else if (!set(name, argv[i + 1]))
            root = NULL, i = argc;
    }
    int fd = root ? listen_on(&port) : -1;
    log_lines = calloc(MAX_LOG, sizeof *log_lines);
    if (fd < 0 || !log_lines) {
        fprintf(stderr, "usage: fault_server --root DIR [--port N] [--NAME VALUE ...]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    printf("port %d\n", port);
    fflush(stdout);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 256 << 10);
    for (;;) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;
        if (client < 0)
            continue;
        pthread_mutex_lock(&fault_lock);
        connections++;
        open_now++;
        open_most = open_now > open_most ? open_now : open_most;
        pthread_mutex_unlock(&fault_lock);
        if (pthread_create(&thread, &attr, serve, (void *)(intptr_t)client) != 0)
            close(client);
    }
}
