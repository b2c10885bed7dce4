/* Checks plans by running them on symbols instead of numbers, knowing nothing of how they were made. */
#ifndef GT_TESTS_VERIFY_VERIFY_PLAN_H
#define GT_TESTS_VERIFY_VERIFY_PLAN_H

#include "core/session.h"

/* True when the plans of one run are right: plans[k] is the one of variant->segments[k], for sizes that
 * follow from one another. Else *out_text (of 400 bytes) says what is not. */
bool verify_plans(const gt_variant *variant, const gt_plan *const *plans, char *out_text);

#endif
