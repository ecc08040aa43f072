/* plan.h - the private half of plans: the chain of stages that an iterator compiles. */
#ifndef SQRL_STREAM_PLAN_H
#define SQRL_STREAM_PLAN_H

#include "sqrl/stream.h"
#include "stream/expression.h"
#include "stream/projection.h"

#define SQRL_DEFAULT_WINDOW_BYTES (UINT64_C(64) << 20)
#define SQRL_MAX_FILTERS 100u
#define SQRL_MAX_NAME_STAGES 256u

enum sqrl_stage_kind {
    SQRL_STAGE_SOURCE,
    SQRL_STAGE_FILTER,
    SQRL_STAGE_NAMES, /* select, drop, rename */
    SQRL_STAGE_SHUFFLE,
    SQRL_STAGE_DISTRIBUTE,
    SQRL_STAGE_TAKE,
    SQRL_STAGE_SKIP,
    SQRL_STAGE_PREFETCH,
    SQRL_STAGE_ON_ERROR,
    SQRL_STAGE_BATCH
};

/* Options of batch(), copied. */
struct sqrl_batching {
    struct sqrl_batch_options options; /* pointers below point into this copy */
    char *length_field;
    uint64_t *boundary;
    struct sqrl_field *declared; /* [options.field_count] */
};

struct sqrl_plan {
    int refs;
    enum sqrl_stage_kind kind;
    struct sqrl_plan *before;   /* NULL for the source */
    struct sqrl_source *source; /* borrowed from the source stage, which holds it */
    bool batched, shuffled, distributed,
        limited;                         /* which stages stand at or before this one */
    uint32_t filters, name_stages;       /* so far */
    const struct sqrl_projection *names; /* the nearest at or before this one, or NULL */

    struct sqrl_expression *expression; /* FILTER */
    char *text;
    struct sqrl_projection *projection; /* NAMES */
    uint64_t number; /* TAKE, SKIP: samples; SHUFFLE: the seed; PREFETCH: bytes */
    uint64_t window_bytes;
    struct sqrl_distribute_options distribution; /* DISTRIBUTE */
    struct sqrl_on_error_options on_error;       /* ON_ERROR */
    struct sqrl_batching batching;               /* BATCH */

    struct sqrl_source *needed; /* sqrl_plan_get_many's, or NULL; under the lock below */

    /* follow.c: its passes, and the one that is expected next. */
    struct sqrl_lock lock; /* all below */
    uint64_t passes;       /* that followed each other, up to last_epoch */
    uint64_t last_epoch, step;
    struct sqrl_iterator *parked; /* holds no reference to the plan */
    bool parking, unwanted;       /* it is being opened; it came too late */
    bool misled;                  /* a pass that was foretold did not come */
};

/* The plan's source with the fields that it needs (plan_groups.c): a reference of the
 * caller's. Shards and positions are the same, blocks and chunks need not be. */
SQRL_CHECK int sqrl_plan_narrow(const struct sqrl_plan *plan, struct sqrl_source **out,
                                struct sqrl_error *err);
/* SQRL_E_NOT_FOUND when a select names a field that no sample of the source can have
 * (filter_names.c), as far as its schema is known without opening anything. */
SQRL_CHECK int sqrl_plan_check_selects(const struct sqrl_plan *plan,
                                       struct sqrl_error *err);
/* What one stage is, as in sqrl_plan_describe; free() it. NULL: no memory. */
char *sqrl_plan_stage_text(const struct sqrl_plan *stage);
/* A new stage behind `before`; NULL with an error. */
struct sqrl_plan *sqrl_plan_stage(struct sqrl_plan *before, enum sqrl_stage_kind kind,
                                  struct sqrl_error *err);
/* The plan's distribute stage's options, or NULL. */
const struct sqrl_distribute_options *
sqrl_plan_distribution(const struct sqrl_plan *plan);
/* With owners: how many samples the consumer gives. */
SQRL_CHECK int sqrl_plan_split_count(const struct sqrl_plan *plan,
                                     const struct sqrl_distribute_options *stage,
                                     const struct sqrl_topology *topology, uint64_t *out,
                                     struct sqrl_error *err);
/* SQRL_E_INVALID when a shard has no owner among the consumers. */
SQRL_CHECK int sqrl_plan_check_owners(const struct sqrl_plan *plan, uint64_t shards,
                                      const struct sqrl_distribute_options *stage,
                                      uint64_t consumers, struct sqrl_error *err);
/* The topology that counts for it; NULL: one consumer. */
SQRL_CHECK int sqrl_plan_topology(const struct sqrl_distribute_options *stage,
                                  struct sqrl_topology *out, struct sqrl_error *err);

#endif
