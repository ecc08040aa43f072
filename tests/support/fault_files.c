/* fault_files.c - files with ranges and ETags, with the faults that change what is sent
 * of them; directories as pages of links. */
#include "fault_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECE ((size_t)128 << 10)

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

const char login_page[] = "<!DOCTYPE html><html><body><form>Please log in."
                          "</form></body></html>";

size_t login_size(void) {
    return sizeof login_page - 1;
}

/* The body of an answer, with the faults that change it. */
static void send_body(struct link *l, struct request *r, int file, uint64_t from,
                      uint64_t size) {
    uint64_t half = size / 2;
    char byte = 0;
    switch (r->fault) {
    case RESET_BODY:
        send_file(l, file, from, half, r);
        sleep_until(now() + 0.005); /* or the reset overtakes what was sent */
        reset_link(l);
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
        send_all(l, login_page, login_size());
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
        length += login_size();
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
        reset_link(l);
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

void serve_path(struct link *l, struct request *r, const char *root) {
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
        const char *inner = strchr(plain + 1, '/');
        bool bucket = !inner || !inner[1];
        if (strstr(r->path, "list-type=2"))
            serve_keys(l, r, path);
        else if (l->s.store && bucket && strcmp(r->method, "HEAD") == 0)
            say(l, r, 200, ""); /* there is such a bucket */
        else if (l->s.store)    /* it has no directories */
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
