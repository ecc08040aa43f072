/* sqrl/mixture.h - samples of several plans as one stream, in fixed proportions.
 *
 * The order is that of a sqrl_mix (sqrl/mix.h): of the first n samples, plan i gave more
 * than n * w[i] - 1 and less than n * w[i] + 1. Nothing is copied: each plan is run by an
 * iterator of its own, with its filters, shuffles and distribution. A plan that ends
 * before the others begins anew, as another epoch: pass p of epoch e of the mixture is
 * epoch e * 2^32 + p of the plan.
 *
 * States are those of Python's squirrel.mix: one of a C program goes on in Python, and
 * the reverse, where the plans are the same.
 *
 * Threads: a mixture belongs to one thread at a time. After a fork it gives SQRL_E_STATE.
 */
#ifndef SQRL_MIXTURE_H
#define SQRL_MIXTURE_H

#include "mix.h"
#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqrl_mixture;

enum sqrl_mixture_stop {
    SQRL_STOP_FIRST,  /* when a plan is drawn that is at its end */
    SQRL_STOP_ALL,    /* when each plan that has a weight came to its end once */
    SQRL_STOP_FOREVER /* never */
};

/* Zero means the default. Set `size` to sizeof(struct sqrl_mixture_options). */
struct sqrl_mixture_options {
    size_t size;
    uint64_t seed, quota; /* as of sqrl_mix_options */
    bool independent;
    enum sqrl_mixture_stop stop;
    uint64_t epoch; /* below 2^32 */
    /* Goes on where sqrl_mixture_state stood, in the state's epoch and with its weights:
     * `states` texts. One is enough where rank and worker are what they were. With other
     * numbers of ranks and workers the states of all of them are needed, in any order:
     * what each plan has left of its passes is dealt anew, the schedule goes on where the
     * rank stood that was furthest on. A plan without distribute must stand at the same
     * sample everywhere. */
    const char *const *state;
    size_t states;
};

/* A mixture of `count` plans, which must not be batched (references of its own), by
 * weights from 0 on, not all 0 (NULL: equal ones). SQRL_E_STATE: a state is of another
 * mixture, and what differs; SQRL_E_CORRUPT: it is damaged. */
SQRL_CHECK int sqrl_mixture_open(struct sqrl_plan *const *plans, const double *weights,
                                 size_t count, const struct sqrl_mixture_options *options,
                                 struct sqrl_mixture **out, struct sqrl_error *err);
/* A sample and the number of the plan that it is of. */
struct sqrl_mixed {
    struct sqrl_sample sample; /* block NULL: the end */
    uint32_t plan;
};
/* The next sample; its block is the mixture's and good until the next call. After an
 * error or the end every further call repeats it. SQRL_E_INVALID for a plan that is
 * empty. */
SQRL_CHECK int sqrl_mixture_next(struct sqrl_mixture *mixture, struct sqrl_mixed *out,
                                 struct sqrl_error *err);
/* As sqrl_iterator_wait. */
SQRL_API bool sqrl_mixture_wait(struct sqrl_mixture *mixture, uint64_t wait_ns);
/* From the next sample on; the promise counts anew from here. On failure the old ones
 * stay. */
SQRL_CHECK int sqrl_mixture_set_weights(struct sqrl_mixture *mixture,
                                        const double *weights, struct sqrl_error *err);
/* Of plan i: which pass it is in, from 0, and how many samples it gave in all passes. */
SQRL_API void sqrl_mixture_progress(const struct sqrl_mixture *mixture, uint32_t i,
                                    uint64_t *pass, uint64_t *given);
/* Where it stands, between two samples, as one JSON object: free() it. `unread`: in front
 * of the sample that was given last (SQRL_E_INVALID where weights or passes changed
 * behind it). */
SQRL_CHECK int sqrl_mixture_state(struct sqrl_mixture *mixture, bool unread, char **out,
                                  struct sqrl_error *err);
/* NULL is allowed. */
SQRL_API void sqrl_mixture_close(struct sqrl_mixture *mixture);

#ifdef __cplusplus
}
#endif
#endif
