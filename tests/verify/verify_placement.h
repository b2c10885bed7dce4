/* Checks a placement by brute force, knowing nothing of how it was made. */
#ifndef GT_TESTS_VERIFY_VERIFY_PLACEMENT_H
#define GT_TESTS_VERIFY_VERIFY_PLACEMENT_H

#include "graph/place.h"

/* What was asked for, and what the providers answer. */
typedef struct placement_question {
    gt_graph *graph;
    const gt_place_provider *providers;
    uint32_t provider_count;
    const gt_place_domain *domains;
    uint32_t domain_count;
    const gt_place_options *options;
} placement_question;

/* True when all is right; else *out_text (of 400 bytes) says what is not. status is what gt_place returned.
 */
bool verify_placement(const placement_question *question, gantry_status status, const gt_placement *placement,
                      char *out_text);

#endif
