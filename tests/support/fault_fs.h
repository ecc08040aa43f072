/* fault_fs.h - a file system that wraps another and fails on order.
 *
 * Counts are 1-based: fail_read = 3 makes the third read fail, and with times = 2 the
 * fourth too. 0 means never. The plan belongs to the caller, outlives the file system and
 * may be changed between calls; the counters are atomic, so that many threads may read.
 */
#ifndef TESTS_SUPPORT_FAULT_FS_H
#define TESTS_SUPPORT_FAULT_FS_H

#include "sqrl/fs.h"

struct fault_plan {
    unsigned fail_stat, fail_list, fail_open, fail_read; /* which call fails */
    unsigned fail_create, fail_write, fail_commit;
    unsigned times;      /* how many in a row; 0: one, UINT_MAX: all from there on */
    int code;            /* what they fail with; 0: SQRL_E_IO */
    bool retryable;      /* a network that is down for a moment */
    unsigned list_after; /* a failing listing delivers so many entries first */
    uint64_t cut_at;     /* reads behind this offset are SQRL_E_TRUNCATED; 0: none */
    bool vanish;         /* opens say SQRL_E_NOT_FOUND (removed since it was listed) */
    bool refuse;         /* opens say SQRL_E_PERMISSION */
    unsigned slow_ms;    /* each read takes this long; cancel ends it */
    /* what happened */
    unsigned stats, lists, opens, reads, creates, writes, commits;
    unsigned ranges; /* of all reads */
};

/* Wraps `inner` (takes a reference). */
int fault_fs_new(struct sqrl_fs *inner, struct fault_plan *plan, struct sqrl_fs **out,
                 struct sqrl_error *err);

/* Registers "fault://PATH": the local file PATH (absolute, as in fault:///tmp/x) behind
 * fault_fs_shared, for tests of floors that open things by URL. */
int fault_fs_register(struct sqrl_context *context, struct sqrl_error *err);
extern struct fault_plan fault_fs_shared;

#endif
