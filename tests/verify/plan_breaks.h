/* Mistakes that a planner could make, made on purpose in plans that are right: the plan verifier has to see
 * them, and to say what is wrong. */
#ifndef GT_TESTS_VERIFY_PLAN_BREAKS_H
#define GT_TESTS_VERIFY_PLAN_BREAKS_H

#include "random_graph.h"

#include "core/session.h"

typedef enum plan_break {
    BREAK_NO_ORDER,       /* a queue does not go on after another one */
    BREAK_NO_EVENT_WAIT,  /* the host does not wait for an event */
    BREAK_NO_QUEUE_WAIT,  /* nor for a queue, in the middle of a plan */
    BREAK_NO_LAST_WAIT,   /* nor at its end */
    BREAK_LAST_FOR_EVENT, /* nobody asks a queue what failed */
    BREAK_EARLY_RECORD,   /* an event stands before the work that it marks */
    BREAK_NO_RECORD,      /* or is never recorded */
    BREAK_REUSED_SOURCE,  /* what another queue still reads is written over by programs */
    BREAK_EARLY_TARGET,   /* a copy goes where programs still read or write */
    BREAK_COUNT
} plan_break;

typedef struct plan_breaks {
    uint64_t made[BREAK_COUNT], refused[BREAK_COUNT], named[BREAK_COUNT]; /* named: in the rule's own words */
} plan_breaks;

extern const char *const plan_break_names[BREAK_COUNT];

/* Makes each mistake once in one of the plans, where there is room for it. plans are by segment, and right.
 */
void plan_breaks_make(plan_breaks *breaks, random_source *random, const gt_variant *variant,
                      const gt_plan *const *plans);

#endif
