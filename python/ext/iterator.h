/* iterator.h - what Samples and Batches have in common: a running plan, the lock around
 * it, and how it is waited for (iterator_core.c says how).
 */
#ifndef SQRL_EXT_ITERATOR_H
#define SQRL_EXT_ITERATOR_H

#include "ext.h"

#include <pythread.h>

#pragma GCC visibility push(hidden)

struct core {
    struct sqrl_iterator *iterator; /* NULL when closed */
    struct sqrl_source *source;     /* borrowed from the plan */
    struct sqrl_plan *plan;
    PyThread_type_lock lock;
    uint64_t released_ns; /* when the GIL was released last; 0: not yet */
    unsigned fork;
    bool closed, inside;
};

int core_open(struct ext_state *state, struct core *core, struct sqrl_plan *plan,
              const struct sqrl_iterator_options *options);
void core_close(struct core *core);
void core_free(struct core *core);
/* Makes this thread the one inside. -1 with an exception, 0 when closed, else 1. */
int core_enter(struct ext_state *state, struct core *core);
/* The same; closed is an exception: -1, else 0. */
int core_enter_open(struct ext_state *state, struct core *core);
void core_leave(struct core *core);
/* Returns when next() will not block. */
int core_wait(struct ext_state *state, struct core *core);
PyObject *core_stats(struct core *core);
PyObject *core_bad(struct core *core);
PyObject *core_place(struct core *core, uint64_t delivered, uint64_t shard,
                     uint64_t sample);
/* `rows` of the last batch that were used, or SQRL_UNKNOWN. */
PyObject *core_state(struct ext_state *state, struct core *core, uint64_t unread,
                     uint64_t rows);
/* Ends the run and begins one at the states. */
int core_load(struct ext_state *state, struct core *core, PyObject *states);

#define DOC_CLOSE "close($self, /)\n--\n\nEnds the run; what was handed out stays valid."
#define DOC_PLACE                                                                        \
    "place($self, /)\n--\n\nShard path and sample number of what came last, or None.\n"  \
    "The number is None where it can't be told: plain JSON lines, shuffled."
#define DOC_STATS                                                                        \
    "stats($self, /)\n--\n\nWork and waiting of each stage, as a list of dicts."
#define DOC_BAD                                                                          \
    "quarantine($self, /)\n--\n\nWhat on_error let pass, as a list of dicts: file, "     \
    "block, "                                                                            \
    "sample, samples, error, where.\nNone: all of the block; the rest of the file."
#define DOC_STATE                                                                        \
    "state_dict($self, back=0)\n--\n\nWhere it stands, as a dict of a few hundred "      \
    "bytes; "                                                                            \
    "load_state_dict goes on there.\nback: 1 in front of what came last."
#define DOC_LOAD                                                                         \
    "load_state_dict($self, state, /)\n--\n\nGoes on where a state stood: one, or with " \
    "other ranks and workers all of them\nin a list or in any nesting of dicts and "     \
    "lists."
#define STATE_METHODS(state, load)                                                       \
    {"state_dict", (PyCFunction)(void (*)(void))state, METH_VARARGS | METH_KEYWORDS,     \
     DOC_STATE},                                                                         \
        {"load_state_dict", load, METH_O, DOC_LOAD},                                     \
        {"get_state", (PyCFunction)(void (*)(void))state, METH_VARARGS | METH_KEYWORDS,  \
         "get_state($self, back=0)\n--\n\nThe same as state_dict()."},                   \
    {                                                                                    \
        "set_state", load, METH_O,                                                       \
            "set_state($self, state, /)\n--\n\nThe same as load_state_dict()."           \
    }
#define DOC_ENTER "__enter__($self, /)\n--\n\n"
#define DOC_EXIT "__exit__($self, /, *args)\n--\n\n"

#pragma GCC visibility pop
#endif
