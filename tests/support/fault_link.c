/* fault_link.c - what one connection may send, and when. */
#include "fault_server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PIECE ((size_t)128 << 10)

pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static double link_free; /* when the shared link is free again */

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void sleep_until(double when) {
    struct timespec t = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

void send_all(struct link *l, const char *data, size_t size) {
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
        pthread_mutex_lock(&fault_lock);
        link_free = (link_free > t ? link_free : t) + (double)size / l->s.total;
        if (link_free > until)
            until = link_free;
        pthread_mutex_unlock(&fault_lock);
    }
    if (until > t)
        sleep_until(until);
}

void send_file(struct link *l, int file, uint64_t from, uint64_t size,
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

void reset_link(struct link *l) {
    struct linger linger = {1, 0};
    setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    l->broken = true;
}

void wait_for(struct link *l, double seconds) {
    struct pollfd p = {.fd = l->fd, .events = POLLIN | POLLRDHUP};
    l->broken = poll(&p, 1, (int)(seconds * 1000)) != 0;
}

void stall(struct link *l) {
    wait_for(l, 120);
    l->broken = true;
}

void trickle(struct link *l, int file, uint64_t from, uint64_t size, struct request *r) {
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

const char *reason(int status) {
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
void answer(struct link *l, struct request *r, int status, const char *headers,
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

void say(struct link *l, struct request *r, int status, const char *text) {
    answer(l, r, status, "Content-Type: text/plain\r\n", text, strlen(text));
}
