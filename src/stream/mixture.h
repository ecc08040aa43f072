/* mixture.h - what a mixture is made of, and what its states say (mixture_state.c). */
#ifndef SQRL_STREAM_MIXTURE_H
#define SQRL_STREAM_MIXTURE_H

#include "base/base.h"
#include "sqrl/mixture.h"

/* States of native iterators in one pass of a plan, as texts: none, one's own, or those
 * of all ranks and workers. */
struct sqrl_pass {
    uint64_t pass;
    size_t states;
    char **state; /* [states] */
};

/* Where one plan of a mixture stands. */
struct sqrl_standing {
    uint64_t taken;          /* samples of the present pass */
    struct sqrl_pass now;    /* without states: at the beginning of the pass */
    struct sqrl_pass *begun; /* [passes]: later ones that others had begun, by number */
    size_t passes;
};

/* A state of a mixture, or what is made of several. */
struct sqrl_mixture_saved {
    uint64_t epoch, changes, sum; /* sum: of drawn */
    bool finished;
    uint64_t consumers, consumer; /* of its plans; 0: not distributed */
    uint32_t count;
    double *weight;                 /* [count] */
    uint64_t *drawn, *before;       /* [count] */
    struct sqrl_standing *standing; /* [count] */
};
void sqrl_mixture_saved_reset(struct sqrl_mixture_saved *saved);
void sqrl_pass_reset(struct sqrl_pass *pass);

/* What of the options and plans must be what it was. */
struct sqrl_mixture_plan {
    uint32_t count;
    const struct sqrl_mixture_options *options;
    uint64_t consumers, consumer; /* of this process; 0: not distributed */
};
/* The states of the options as one: where this process goes on. */
SQRL_CHECK int sqrl_mixture_read(const struct sqrl_mixture_plan *plan,
                                 struct sqrl_mixture_saved *out, struct sqrl_error *err);
/* The text of a state whose standings have one state each. */
SQRL_CHECK int sqrl_mixture_write(const struct sqrl_mixture_plan *plan,
                                  const struct sqrl_mixture_saved *saved, char **out,
                                  struct sqrl_error *err);

#endif
