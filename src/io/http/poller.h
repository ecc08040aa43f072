/* poller.h - sleeps until one of many sockets can be used.
 *
 * Sockets are asked about in one call, so that whoever owns them only turns to those that
 * have something. Threads: one, except where it says otherwise.
 */
#ifndef SQRL_IO_HTTP_POLLER_H
#define SQRL_IO_HTTP_POLLER_H

#include <poll.h>

#include "base/base.h"

struct sqrl_poller {
    int wake[2];          /* a pipe: its reading and its writing end; -1: none */
    struct pollfd *asked; /* asked[0] is the pipe */
    struct pollfd *ready; /* what the last wait found */
    size_t count, room, ready_count;
};

SQRL_CHECK int sqrl_poller_init(struct sqrl_poller *poller, struct sqrl_error *err);
void sqrl_poller_reset(struct sqrl_poller *poller);
/* From now on waits end when `fd` has one of `events` (POLLIN, POLLOUT); 0: no longer
 * asked about. False: no memory. */
bool sqrl_poller_want(struct sqrl_poller *poller, int fd, short events);
/* Waits until a socket is ready, at most for so long; those that are stand in `ready`. */
void sqrl_poller_wait(struct sqrl_poller *poller, unsigned milliseconds);
/* Any thread, while the poller exists: ends a wait, or the next one. */
void sqrl_poller_wake(struct sqrl_poller *poller);
/* In a child after a fork, async-signal-safe: gives up the parent's pipe. */
void sqrl_poller_forked(struct sqrl_poller *poller);

#endif
