/* A case of the plan verifier: a random model for random providers with random verdicts in 1 to 3 domains.
 * Its placement and every plan are checked by programs that know nothing of the planner, and it is run on
 * late queues against a plain evaluation of the graph. */
#ifndef GT_TESTS_VERIFY_PLAN_CASE_H
#define GT_TESTS_VERIFY_PLAN_CASE_H

#include "plan_breaks.h"
#include "random_model.h"

#include "core/run.h"

/* What the cases were, so that a run that checks nothing shows. */
typedef struct plan_tally {
    uint64_t compiled, unsupported, impossible, refused, plans, segments, runs, steps[GT_STEP_ORDER + 1],
        peers, copied_beside, event_waits, views, bounded, open;
    plan_breaks *breaks; /* NULL: plans stay as they are */
    uint64_t deaf_wait;  /* the wait of that number is not believed by the devices' clocks; 0: all are */
} plan_tally;

#define PLAN_CASE_TEXT 400

/* False: something is wrong, and out_text (PLAN_CASE_TEXT bytes, "" before) says what. print: plans on
 * stdout. */
bool plan_case_check(random_source random, uint32_t max_nodes, bool print, plan_tally *counts,
                     char *out_text);

#endif
