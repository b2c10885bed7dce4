/* broken_plans COUNT SEED: random plans that are right get a mistake each, of every kind that a planner could
 * make with queues and events; the plan verifier has to refuse them in the words of the rule that each
 * breaks. And runs in which one wait is not believed: the clocks of the devices have to notice. */
#include "plan_breaks.h"
#include "plan_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_NODES 24

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 6000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    plan_breaks breaks = {{0}};
    uint64_t wrong = 0, noticed = 0;
    for (uint64_t k = 0; k < count; k++) {
        char text[PLAN_CASE_TEXT] = "";
        plan_tally counts = {.breaks = &breaks};
        if (!plan_case_check((random_source){.state = seed + k}, MAX_NODES, false, &counts, text))
            wrong += printf("FAILED broken_plans 1 %" PRIu64 ": %s\n", seed + k, text) > 0;
        plan_tally deaf = {.deaf_wait = 1 + k % 8};
        text[0] = 0;
        noticed += !plan_case_check((random_source){.state = seed + k}, MAX_NODES, false, &deaf, text) &&
                   strstr(text, "may still") != NULL;
    }
    for (int what = 0; what < BREAK_COUNT; what++) {
        printf("%s: made %" PRIu64 ", refused %" PRIu64 ", %" PRIu64 " in the rule's words\n",
               plan_break_names[what], breaks.made[what], breaks.refused[what], breaks.named[what]);
        wrong += breaks.named[what] == 0;
    }
    bool all = breaks.refused[BREAK_NO_LAST_WAIT] == breaks.made[BREAK_NO_LAST_WAIT] &&
               breaks.refused[BREAK_LAST_FOR_EVENT] == breaks.made[BREAK_LAST_FOR_EVENT];
    printf("a wait that is not believed: noticed in %" PRIu64 " of %" PRIu64 " runs\n", noticed, count);
    return wrong || !all || !noticed;
}
