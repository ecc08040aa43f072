/* poller.c - see poller.h. poll(), not epoll: some dozens of sockets, and it is known
 * everywhere. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include "io/http/poller.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_ROOM 32u

static bool grow(struct sqrl_poller *poller) {
    size_t room = poller->room ? 2 * poller->room : FIRST_ROOM;
    struct pollfd *asked =
        sqrl_realloc(poller->asked, room * sizeof *asked, "sockets", NULL);
    if (!asked)
        return false;
    poller->asked = asked;
    struct pollfd *ready =
        sqrl_realloc(poller->ready, room * sizeof *ready, "sockets", NULL);
    if (!ready)
        return false;
    poller->ready = ready;
    poller->room = room;
    return true;
}

int sqrl_poller_init(struct sqrl_poller *poller, struct sqrl_error *err) {
    *poller = (struct sqrl_poller){.wake = {-1, -1}};
    if (pipe2(poller->wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return sqrl_error_set_errno(err, errno, "can't make a pipe");
    if (sqrl_poller_want(poller, poller->wake[0], POLLIN))
        return SQRL_OK;
    sqrl_poller_reset(poller);
    return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for sockets");
}

void sqrl_poller_reset(struct sqrl_poller *poller) {
    sqrl_poller_forked(poller);
    free(poller->asked);
    free(poller->ready);
    *poller = (struct sqrl_poller){.wake = {-1, -1}};
}

bool sqrl_poller_want(struct sqrl_poller *poller, int fd, short events) {
    size_t i = 0;
    while (i < poller->count && poller->asked[i].fd != fd)
        i++;
    if (events == 0) {
        if (i < poller->count)
            poller->asked[i] = poller->asked[--poller->count];
        return true;
    }
    if (i == poller->room && !grow(poller))
        return false;
    poller->asked[i] = (struct pollfd){.fd = fd, .events = events};
    poller->count = SQRL_MAX(poller->count, i + 1);
    return true;
}

/* Several wakes are one. */
static void drain(const struct sqrl_poller *poller) {
    char bytes[64];
    while (read(poller->wake[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes)
        ;
}

void sqrl_poller_wait(struct sqrl_poller *poller, unsigned milliseconds) {
    int left = poll(poller->asked, (nfds_t)poller->count, (int)milliseconds);
    poller->ready_count = 0;
    for (size_t i = 0; i < poller->count && left > 0; i++) {
        if (!poller->asked[i].revents)
            continue;
        left--;
        if (poller->asked[i].fd == poller->wake[0])
            drain(poller);
        else
            poller->ready[poller->ready_count++] = poller->asked[i];
    }
}

void sqrl_poller_wake(struct sqrl_poller *poller) {
    ssize_t n = write(poller->wake[1], "", 1); /* a full pipe wakes, too */
    (void)n;
}

void sqrl_poller_forked(struct sqrl_poller *poller) {
    for (int i = 0; i < 2; i++) {
        if (poller->wake[i] >= 0)
            close(poller->wake[i]);
        poller->wake[i] = -1;
    }
}
