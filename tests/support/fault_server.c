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
 * Faults: 503 429 (Retry-After: 0) 500 flip (one byte of the body) reset_headers
 * reset_body stall (silence in mid-body) trickle (100 bytes a second) truncate (fewer
 * bytes than Content-Length says) truncate_length (and it says so) longer whole (200 for
 * a range) range (another one) etag (another one) gzip (by surprise) login (HTML, 200)
 * loop (redirects to itself) file (redirects to file:///). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD_ROOM 16384
#define PIECE ((size_t)128 << 10)
#define MAX_LOG 200000

enum fault {
    NONE,
    F503,
    F429,
    F500,
    FLIP,
    RESET_HEADERS,
    RESET_BODY,
    STALL,
    TRICKLE,
    TRUNCATE,
    TRUNCATE_LENGTH,
    LONGER,
    WHOLE,
    RANGE,
    ETAG,
    GZIP,
    LOGIN,
    LOOP,
    TO_FILE,
    FAULTS
};
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
                                                "file"};

/* What /_control/set changes; read by every request, under the lock. */
struct settings {
    double rates[FAULTS];
    uint64_t at[FAULTS]; /* 0: none */
    double latency, per_connection, total;
    uint64_t seed;
    bool refuse_head, ranges, etags, lengths, listing, store;
    char match[128];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct settings settings = {
    .seed = 1, .ranges = true, .etags = true, .lengths = true, .listing = true};
static const char *root;
static double link_free; /* when the shared link is free again */
static uint64_t requests, bytes, connections, open_now, open_most, authorized, heads;
static uint64_t statuses[600], faults[FAULTS];
static char **log_lines;
static size_t log_count;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_until(double when) {
    struct timespec t = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

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

/* --- one connection --- */

struct link { /* a connection and what it may send */
    int fd;
    double free_at;
    bool broken, close;
    struct settings s;
};

struct request {
    char method[8], path[2048], range[64], if_match[128];
    bool authorized, keep;
    uint64_t number;
    enum fault fault;
    uint64_t sent;
    int status;
};

static void send_all(struct link *l, const char *data, size_t size) {
    while (size > 0 && !l->broken) {
        ssize_t n = send(l->fd, data, size, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR)
            l->broken = true;
        else if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
    }
}

/* Waits until the link takes so many bytes more. */
static void pace(struct link *l, size_t size) {
    double t = now(), until = t;
    if (l->s.per_connection > 0) {
        l->free_at =
            (l->free_at > t ? l->free_at : t) + (double)size / l->s.per_connection;
        until = l->free_at;
    }
    if (l->s.total > 0) {
        pthread_mutex_lock(&lock);
        link_free = (link_free > t ? link_free : t) + (double)size / l->s.total;
        if (link_free > until)
            until = link_free;
        pthread_mutex_unlock(&lock);
    }
    if (until > t)
        sleep_until(until);
}

static void send_file(struct link *l, int file, uint64_t from, uint64_t size,
                      struct request *r) {
    off_t at = (off_t)from;
    while (size > 0 && !l->broken) {
        size_t piece = size < PIECE ? (size_t)size : PIECE;
        pace(l, piece);
        for (size_t left = piece; left > 0 && !l->broken;) {
            ssize_t n = sendfile(l->fd, file, &at, left);
            if (n <= 0 && errno != EINTR)
                l->broken = true;
            else if (n > 0)
                left -= (size_t)n;
        }
        size -= piece;
        r->sent += piece;
    }
}

static void reset(struct link *l) {
    struct linger linger = {1, 0};
    setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    l->broken = true;
}

/* Silence until the other side gives up. */
static void stall(struct link *l) {
    struct pollfd p = {.fd = l->fd, .events = POLLIN | POLLRDHUP};
    poll(&p, 1, 120000);
    l->broken = true;
}

static void trickle(struct link *l, int file, uint64_t from, uint64_t size,
                    struct request *r) {
    char piece[10];
    while (size > 0 && !l->broken) {
        ssize_t n = pread(file, piece, sizeof piece, (off_t)from);
        if (n <= 0 || (uint64_t)n > size)
            n = (ssize_t)(size < sizeof piece ? size : sizeof piece);
        send_all(l, piece, (size_t)n);
        from += (uint64_t)n;
        size -= (uint64_t)n;
        r->sent += (uint64_t)n;
        sleep_until(now() + 0.1);
    }
}

static const char *reason(int status) {
    switch (status) {
    case 200:
        return "OK";
    case 206:
        return "Partial Content";
    case 301:
        return "Moved Permanently";
    case 302:
        return "Found";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 412:
        return "Precondition Failed";
    case 416:
        return "Range Not Satisfiable";
    case 429:
        return "Too Many Requests";
    case 503:
        return "Service Unavailable";
    default:
        return "Something";
    }
}

/* Head and a short body. */
static void answer(struct link *l, struct request *r, int status, const char *headers,
                   const char *body, size_t size) {
    char head[4096];
    int n =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\n%sConnection: %s\r\n\r\n",
                 status, reason(status), size, headers, r->keep ? "keep-alive" : "close");
    r->status = status;
    send_all(l, head, (size_t)n);
    if (strcmp(r->method, "HEAD") != 0 && size > 0) {
        send_all(l, body, size);
        r->sent += size;
    }
}

static void say(struct link *l, struct request *r, int status, const char *text) {
    answer(l, r, status, "Content-Type: text/plain\r\n", text, strlen(text));
}

/* --- files --- */

static bool parse_range(const char *text, uint64_t size, uint64_t *from, uint64_t *to) {
    char *end;
    if (strncmp(text, "bytes=", 6) != 0)
        return false;
    text += 6;
    if (*text == '-') {
        uint64_t n = strtoull(text + 1, &end, 10);
        *from = n < size ? size - n : 0;
        *to = size;
        return *end == 0 && n > 0 && size > 0;
    }
    *from = strtoull(text, &end, 10);
    if (end == text || *end != '-')
        return false;
    text = end + 1;
    *to = *text ? strtoull(text, &end, 10) + 1 : size;
    if (*to > size)
        *to = size;
    return *from < *to;
}

static const char login[] = "<!DOCTYPE html><html><body><form>Please log in."
                            "</form></body></html>";

/* The body of an answer, with the faults that change it. */
static void send_body(struct link *l, struct request *r, int file, uint64_t from,
                      uint64_t size) {
    uint64_t half = size / 2;
    char byte = 0;
    switch (r->fault) {
    case RESET_BODY:
        send_file(l, file, from, half, r);
        sleep_until(now() + 0.005); /* or the reset overtakes what was sent */
        reset(l);
        return;
    case STALL:
        send_file(l, file, from, half, r);
        stall(l);
        return;
    case TRICKLE:
        send_file(l, file, from, half, r);
        trickle(l, file, from + half, size - half, r);
        return;
    case TRUNCATE:
        send_file(l, file, from, half, r);
        l->close = true;
        return;
    case FLIP:
        send_file(l, file, from, half, r);
        if (size > half && pread(file, &byte, 1, (off_t)(from + half)) == 1) {
            byte ^= 1;
            send_all(l, &byte, 1);
            r->sent++;
            send_file(l, file, from + half + 1, size - half - 1, r);
        }
        return;
    case LONGER:
        send_file(l, file, from, size, r);
        send_all(l, login, sizeof login - 1);
        l->close = true;
        return;
    default:
        send_file(l, file, from, size, r);
    }
}

static void send_chunked(struct link *l, struct request *r, int file, uint64_t size) {
    char head[64];
    for (uint64_t at = 0; at < size && !l->broken; at += PIECE) {
        uint64_t n = size - at < PIECE ? size - at : PIECE;
        send_all(l, head,
                 (size_t)snprintf(head, sizeof head, "%llx\r\n", (unsigned long long)n));
        send_file(l, file, at, n, r);
        send_all(l, "\r\n", 2);
    }
    send_all(l, "0\r\n\r\n", 5);
}

static void serve_file(struct link *l, struct request *r, int file,
                       const struct stat *st) {
    uint64_t size = (uint64_t)st->st_size, from = 0, to = size;
    char etag[64], head[2048], date[64], lines[512] = "";
    struct tm tm;
    snprintf(etag, sizeof etag, "\"%llx-%llx%s\"", (unsigned long long)st->st_mtime,
             (unsigned long long)size, r->fault == ETAG ? "-other" : "");
    if (l->s.etags && *r->if_match && strcmp(r->if_match, etag) != 0 &&
        r->fault != ETAG) {
        say(l, r, 412, "changed\n");
        return;
    }
    bool ranged = *r->range && l->s.ranges && l->s.lengths && r->fault != WHOLE;
    if (ranged && !parse_range(r->range, size, &from, &to)) {
        snprintf(lines, sizeof lines, "Content-Range: bytes */%llu\r\n",
                 (unsigned long long)size);
        answer(l, r, 416, lines, "", 0);
        return;
    }
    if (ranged && r->fault == RANGE && to < size) {
        from++;
        to++;
    }
    uint64_t length = to - from;
    bool body = strcmp(r->method, "HEAD") != 0;
    if (body && r->fault == TRUNCATE_LENGTH)
        length /= 2;
    if (body && r->fault == LONGER)
        length += sizeof login - 1;
    gmtime_r(&st->st_mtime, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    r->status = ranged ? 206 : 200;
    int n =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %d %s\r\nContent-Type: application/octet-stream\r\n"
                 "Last-Modified: %s\r\nConnection: %s\r\n",
                 r->status, reason(r->status), date, r->keep ? "keep-alive" : "close");
    if (l->s.lengths)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Length: %llu\r\n",
                      (unsigned long long)length);
    else
        n +=
            snprintf(head + n, sizeof head - (size_t)n, "Transfer-Encoding: chunked\r\n");
    if (l->s.ranges)
        n += snprintf(head + n, sizeof head - (size_t)n, "Accept-Ranges: bytes\r\n");
    if (l->s.etags)
        n += snprintf(head + n, sizeof head - (size_t)n, "ETag: %s\r\n", etag);
    if (ranged)
        n += snprintf(head + n, sizeof head - (size_t)n,
                      "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)from,
                      (unsigned long long)to - 1, (unsigned long long)size);
    if (r->fault == GZIP)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Encoding: gzip\r\n");
    n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    if (r->fault == RESET_HEADERS) {
        send_all(l, head, (size_t)n / 2);
        sleep_until(now() + 0.005);
        reset(l);
        return;
    }
    send_all(l, head, (size_t)n);
    if (strcmp(r->method, "HEAD") == 0)
        return;
    if (!l->s.lengths)
        send_chunked(l, r, file, size);
    else
        send_body(l, r, file, from, r->fault == TRUNCATE_LENGTH ? length : to - from);
}

static void serve_directory(struct link *l, struct request *r, const char *path) {
    char line[1200];
    size_t room = 4096, n;
    DIR *directory = opendir(path);
    char *page = malloc(room);
    if (!l->s.listing || !directory || !page) {
        say(l, r, 403, "no listing\n");
    } else {
        n = (size_t)snprintf(page, room,
                             "<html><head><title>Index of %s</title></head>"
                             "<body><pre><a href=\"../\">../</a>\n",
                             r->path);
        for (struct dirent *e; (e = readdir(directory)) != NULL;) {
            if (e->d_name[0] == '.')
                continue;
            const char *slash = e->d_type == DT_DIR ? "/" : "";
            int size = snprintf(line, sizeof line, "<a href=\"%s%s\">%s%s</a>\n",
                                e->d_name, slash, e->d_name, slash);
            if (n + (size_t)size + 64 > room)
                page = realloc(page, room *= 2);
            memcpy(page + n, line, (size_t)size);
            n += (size_t)size;
        }
        n += (size_t)sprintf(page + n, "</pre></body></html>\n");
        answer(l, r, 200, "Content-Type: text/html\r\n", page, n);
    }
    free(page);
    if (directory)
        closedir(directory);
}

/* --- S3: listings (version 2) of the directories that are buckets --- */

struct keys {
    char **name;
    struct stat *stat;
    size_t count, room;
};

/* %XX and + of a query's value. */
static void unescape(const char *from, size_t size, char *to, size_t room) {
    size_t n = 0;
    for (size_t i = 0; i < size && n + 1 < room; i++) {
        char digits[3] = {0};
        if (from[i] == '%' && i + 2 < size) {
            memcpy(digits, from + i + 1, 2);
            to[n++] = (char)strtol(digits, NULL, 16);
            i += 2;
        } else {
            to[n++] = from[i] == '+' ? ' ' : from[i];
        }
    }
    to[n] = 0;
}

static void query_value(const char *path, const char *name, char *out, size_t room) {
    const char *at = strchr(path, '?');
    size_t size = strlen(name);
    *out = 0;
    while (at) {
        at++;
        size_t n = strcspn(at, "&");
        if (n > size && strncmp(at, name, size) == 0 && at[size] == '=') {
            unescape(at + size + 1, n - size - 1, out, room);
            return;
        }
        at = strchr(at, '&');
    }
}

static void add_key(struct keys *keys, const char *name, const struct stat *st) {
    if (keys->count == keys->room) {
        keys->room = keys->room ? 2 * keys->room : 256;
        keys->name = realloc(keys->name, keys->room * sizeof *keys->name);
        keys->stat = realloc(keys->stat, keys->room * sizeof *keys->stat);
    }
    keys->stat[keys->count] = *st;
    keys->name[keys->count++] = strdup(name);
}

/* Keys below `key` (which ends in a slash, or is empty) that begin with the prefix. */
static void find_keys(const char *bucket, const char *key, const char *prefix,
                      bool delimited, struct keys *keys) {
    char path[4096], name[2048];
    snprintf(path, sizeof path, "%s/%s", bucket, key);
    DIR *directory = opendir(path);
    for (struct dirent *e; directory && (e = readdir(directory)) != NULL;) {
        struct stat st;
        int n = snprintf(name, sizeof name - 1, "%s%s", key, e->d_name);
        snprintf(path, sizeof path, "%s/%s", bucket, name);
        if (e->d_name[0] == '.' || n < 0 || stat(path, &st) != 0)
            continue;
        bool inner = S_ISDIR(st.st_mode);
        if (inner)
            strcat(name, "/");
        size_t size = strlen(name), want = strlen(prefix);
        bool fits = strncmp(name, prefix, size < want ? size : want) == 0;
        if (inner && fits && (!delimited || size <= want))
            find_keys(bucket, name, prefix, delimited, keys);
        else if (fits && size >= want)
            add_key(keys, name, &st);
    }
    if (directory)
        closedir(directory);
}

static int by_name(const void *a, const void *b) {
    return strcmp(**(char ***)a, **(char ***)b);
}

static void put_xml(FILE *to, const char *text) {
    for (; *text; text++) {
        if (*text == '&' || *text == '<' || *text == '>')
            fprintf(to, "&#%d;", *text);
        else
            fputc(*text, to);
    }
}

static void put_key(FILE *to, const char *name, const struct stat *st) {
    char date[64];
    struct tm tm;
    size_t size = strlen(name);
    if (name[size - 1] == '/') {
        fputs("<CommonPrefixes><Prefix>", to);
        put_xml(to, name);
        fputs("</Prefix></CommonPrefixes>", to);
        return;
    }
    gmtime_r(&st->st_mtime, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
    fputs("<Contents><Key>", to);
    put_xml(to, name);
    fprintf(to,
            "</Key><LastModified>%s</LastModified><ETag>\"%llx-%llx\"</ETag>"
            "<Size>%lld</Size><StorageClass>STANDARD</StorageClass></Contents>",
            date, (unsigned long long)st->st_mtime, (unsigned long long)st->st_size,
            (long long)st->st_size);
}

/* ?list-type=2 with prefix, delimiter, start-after, max-keys and continuation-token (the
 * last key of the page before). */
static void serve_keys(struct link *l, struct request *r, const char *bucket) {
    char prefix[1024], delimiter[8], after[1024], token[1024], most[16];
    struct keys keys = {0};
    char *page = NULL;
    size_t size = 0, given = 0, last = 0;
    query_value(r->path, "prefix", prefix, sizeof prefix);
    query_value(r->path, "delimiter", delimiter, sizeof delimiter);
    query_value(r->path, "start-after", after, sizeof after);
    query_value(r->path, "continuation-token", token, sizeof token);
    query_value(r->path, "max-keys", most, sizeof most);
    size_t limit = *most ? strtoul(most, NULL, 10) : 1000;
    limit = limit < 1000 ? limit : 1000;
    if (*token)
        memcpy(after, token, sizeof after);
    find_keys(bucket, "", prefix, *delimiter != 0, &keys);
    char ***order = calloc(keys.count + 1, sizeof *order);
    for (size_t i = 0; i < keys.count; i++)
        order[i] = &keys.name[i];
    qsort(order, keys.count, sizeof *order, by_name);
    FILE *to = open_memstream(&page, &size);
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult "
          "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Prefix>",
          to);
    put_xml(to, prefix);
    fprintf(to, "</Prefix><MaxKeys>%zu</MaxKeys>", limit);
    for (size_t i = 0; i < keys.count && given < limit; i++) {
        if (strcmp(*order[i], after) <= 0)
            continue;
        put_key(to, *order[i], &keys.stat[order[i] - keys.name]);
        given++;
        last = i;
    }
    bool more = given && last + 1 < keys.count;
    if (more) {
        fputs("<NextContinuationToken>", to);
        put_xml(to, *order[last]);
        fputs("</NextContinuationToken>", to);
    }
    fprintf(to,
            "<KeyCount>%zu</KeyCount><IsTruncated>%s</IsTruncated></ListBucketResult>",
            given, more ? "true" : "false");
    fclose(to);
    answer(l, r, 200, "Content-Type: application/xml\r\n", page, size);
    for (size_t i = 0; i < keys.count; i++)
        free(keys.name[i]);
    free(keys.name);
    free(keys.stat);
    free(order);
    free(page);
}

static void serve_path(struct link *l, struct request *r) {
    char path[4096], plain[2048], location[2100];
    size_t n = 0;
    for (const char *p = r->path; *p && *p != '?' && n + 1 < sizeof plain; p++) {
        char digits[3] = {p[1], p[1] ? p[2] : 0, 0};
        bool escaped = *p == '%' && digits[0] && digits[1];
        plain[n++] = escaped ? (char)strtol(digits, NULL, 16) : *p;
        p += escaped ? 2 : 0;
    }
    plain[n] = 0;
    struct stat st;
    snprintf(path, sizeof path, "%s%s", root, plain);
    if (strstr(plain, "..") || stat(path, &st) != 0) {
        say(l, r, 404, "no such file\n");
        return;
    }
    if (S_ISDIR(st.st_mode)) {
        snprintf(location, sizeof location, "Location: %s/\r\n", r->path);
        if (strstr(r->path, "list-type=2"))
            serve_keys(l, r, path);
        else if (l->s.store) /* it has no directories */
            say(l, r, 404, "no such key\n");
        else if (plain[n - 1] == '/')
            serve_directory(l, r, path);
        else
            answer(l, r, 301, location, "", 0);
        return;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        say(l, r, 403, "can't be opened\n");
    else
        serve_file(l, r, file, &st);
    if (file >= 0)
        close(file);
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
    pthread_mutex_lock(&lock);
    append(out, sizeof out, &n, "requests", requests);
    append(out, sizeof out, &n, "bytes", bytes);
    append(out, sizeof out, &n, "connections", connections);
    append(out, sizeof out, &n, "open", open_now - 1); /* without this one */
    append(out, sizeof out, &n, "open_most", open_most);
    append(out, sizeof out, &n, "authorized", authorized);
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
    pthread_mutex_unlock(&lock);
    answer(l, r, 200, "Content-Type: application/json\r\n", out, n);
}

static void log_page(struct link *l, struct request *r) {
    pthread_mutex_lock(&lock);
    size_t size = 1, n = 0;
    for (size_t i = 0; i < log_count; i++)
        size += strlen(log_lines[i]);
    char *text = malloc(size);
    for (size_t i = 0; i < log_count && text; i++)
        n += (size_t)sprintf(text + n, "%s", log_lines[i]);
    pthread_mutex_unlock(&lock);
    answer(l, r, 200, "Content-Type: text/plain\r\n", text, n);
    free(text);
}

static void forget(void) {
    requests = bytes = connections = authorized = heads = open_most = 0;
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
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
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
        answer(l, r, 503, "Retry-After: 0\r\n", "slow down\n", 10);
        return;
    case F429:
        answer(l, r, 429, "Retry-After: 0\r\n", "slow down\n", 10);
        return;
    case F500:
        say(l, r, 500, "a fault\n");
        return;
    case LOGIN: /* a HEAD tells the truth */
        if (strcmp(r->method, "HEAD") == 0)
            serve_path(l, r);
        else
            answer(l, r, 200, "Content-Type: text/html\r\n", login, sizeof login - 1);
        return;
    case LOOP:
        snprintf(line, sizeof line, "Location: %s\r\n", r->path);
        answer(l, r, 302, line, "", 0);
        return;
    case TO_FILE:
        answer(l, r, 302, "Location: file:///etc/passwd\r\n", "", 0);
        return;
    default:
        serve_path(l, r);
    }
}

static void note(const struct request *r) {
    char *line = NULL;
    pthread_mutex_lock(&lock);
    bytes += r->sent;
    faults[r->fault]++;
    authorized += r->authorized;
    heads += strcmp(r->method, "HEAD") == 0;
    if (r->status >= 0 && r->status < 600)
        statuses[r->status]++;
    if (log_count < MAX_LOG &&
        asprintf(&line, "%s %s %s %d %llu %s\n", r->method, r->path,
                 *r->range ? r->range : "-", r->status, (unsigned long long)r->sent,
                 fault_names[r->fault]) > 0)
        log_lines[log_count++] = line;
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    r.number = controls ? 0 : ++requests;
    l->s = settings;
    pthread_mutex_unlock(&lock);
    if (controls) {
        control(l, &r);
    } else {
        r.fault = choose(l, &r);
        if (l->s.latency > 0)
            sleep_until(began + l->s.latency);
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
    pthread_mutex_lock(&lock);
    open_now--;
    pthread_mutex_unlock(&lock);
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
        pthread_mutex_lock(&lock);
        connections++;
        open_now++;
        open_most = open_now > open_most ? open_now : open_most;
        pthread_mutex_unlock(&lock);
        if (pthread_create(&thread, &attr, serve, (void *)(intptr_t)client) != 0)
            close(client);
    }
}
