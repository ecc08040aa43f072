/* follow.c - the reads of the epoch that follows, begun while this one is consumed.
 *
 * Whoever starts a pass may say what follows it. Where nothing is said, the plan
 * remembers its passes: when two followed each other (the same epoch again, or the next
 * one) a third is expected. As soon as everything of a far away pass is asked for, its
 * successor is opened and parked in the plan, where it fetches a part of the budget and
 * loads nothing. The pass that is started next, if it is the one that was expected, takes
 * it over.
 *
 * A parked iterator holds no reference to its plan, or neither would ever go: the plan's
 * last reference becomes the iterator's, which is closed then. */
#include "stream/executor.h"
#include "stream/plan.h"

#define PARKED_PART 4u /* of the budget */

static void lock(struct sqrl_plan *plan) {
    if (sqrl_lock_take(&plan->lock)) { /* a child has none of its parent's threads */
        plan->parked = NULL;
        plan->parking = plan->unwanted = false;
    }
}

struct sqrl_iterator *sqrl_follow_take(struct sqrl_plan *plan,
                                       const struct sqrl_iterator_options *options) {
    uint64_t epoch = options->epoch;
    lock(plan);
    struct sqrl_iterator *it = plan->parked, *other = NULL;
    plan->parked = NULL;
    plan->unwanted = plan->parking;
    if (it && it->epoch != epoch) {
        other = it;
        it = NULL;
        plan->misled = true;
    }
    uint64_t step = epoch - plan->last_epoch;
    bool again = plan->passes && step <= 1;
    plan->passes = again ? plan->passes + 1 : 1;
    plan->step = step;
    plan->last_epoch = epoch;
    sqrl_lock_drop(&plan->lock);
    if (it || other)
        sqrl_plan_ref(plan); /* the iterator's own again */
    sqrl_iterator_close(other);
    if (!it)
        return NULL;
    pthread_mutex_lock(&it->lock);
    it->parked = false;
    it->follow = options->follow;
    it->next_epoch = options->next_epoch;
    it->fetch_limit = it->plan->limited ? it->fetch_limit : it->fetch_most;
    sqrl_executor_kick(it);
    pthread_mutex_unlock(&it->lock);
    return it;
}

/* Everything is asked for, and another pass is expected. Lock of the iterator held. */
bool sqrl_follow_due(const struct sqrl_iterator *it) {
    return it->order_ended && !it->fetch_from && !it->followed && !it->parked &&
           !it->stopped && !it->order_failed && it->follow != SQRL_FOLLOW_NONE;
}

/* Which pass comes next, if one is expected. Lock of the plan held. */
static bool expected(const struct sqrl_plan *plan, const struct sqrl_iterator *it,
                     uint64_t *epoch) {
    bool told = it->follow == SQRL_FOLLOW_NEXT && !plan->misled;
    *epoch = told ? it->next_epoch : it->epoch + plan->step;
    return !plan->parked && !plan->parking &&
           (told || (plan->passes >= 2 && plan->last_epoch == it->epoch));
}

/* On an I/O thread, without locks. */
void sqrl_follow_begin(struct sqrl_iterator *it) {
    struct sqrl_plan *plan = it->plan;
    struct sqrl_iterator_options options = {.size = sizeof options};
    struct sqrl_iterator *next = NULL;
    lock(plan);
    bool due = expected(plan, it, &options.epoch);
    plan->parking = due;
    plan->unwanted = false;
    sqrl_lock_drop(&plan->lock);
    if (!due)
        return;
    int code = sqrl_iterator_make(plan, &options, &next, NULL);
    if (!code && next->remote && !next->finished) {
        next->parked = true;
        next->fetch_limit =
            SQRL_MIN(next->fetch_limit, sqrl_budget_limit(next->context) / PARKED_PART);
        code = sqrl_executor_start(next, NULL);
    }
    lock(plan);
    bool keep = !code && next && next->parked && !plan->unwanted;
    plan->parking = false;
    if (keep)
        plan->parked = next;
    sqrl_lock_drop(&plan->lock);
    if (keep)
        sqrl_plan_unref(plan); /* `it` has one, too: it does not go here */
    else
        sqrl_iterator_close(next);
}

bool sqrl_follow_reset(struct sqrl_plan *plan) {
    struct sqrl_iterator *it = plan->parked;
    plan->parked = NULL;
    if (!it || it->generation != sqrl_fork_generation())
        return false;
    __atomic_store_n(&plan->refs, 1, __ATOMIC_RELEASE); /* the iterator's */
    sqrl_iterator_close(it);
    return true;
}
