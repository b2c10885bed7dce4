/* random_plans COUNT SEED [NODES [print]]: compiles random models for random providers with random verdicts
 * in 1 to 3 domains, has the placement and every plan checked by programs that know nothing of the planner,
 * and runs them on late queues against a plain evaluation of the graph. Prints one line that reproduces each
 * failure; the exit status is 0 when there is none. */
#include "plan_case.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ENOUGH 100 /* of so many graphs some have results */

static char crash_line[100];
static size_t crash_length;

/* A plan that is wrong enough crashes whoever runs it: say which one it was. Runs of bodies are not checked
 * before. */
static void crashed(int number)
{
    _exit(write(STDOUT_FILENO, crash_line, crash_length) < 0 ? 2 : 1);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint32_t max_nodes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 24;
    uint64_t failures = 0;
    plan_tally counts = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    for (uint64_t k = 0; k < count; k++) {
        char text[PLAN_CASE_TEXT] = "";
        crash_length =
            (size_t)snprintf(crash_line, sizeof crash_line, "FAILED random_plans 1 %" PRIu64 " %u: crashed\n",
                             seed + k, max_nodes);
        if (plan_case_check((random_source){.state = seed + k}, max_nodes, argc > 4, &counts, text))
            continue;
        failures++;
        printf("FAILED random_plans 1 %" PRIu64 " %u: %s\n", seed + k, max_nodes, text);
    }
    printf("%" PRIu64 " graphs: %" PRIu64 " compiled (%" PRIu64 " with open sizes), %" PRIu64
           " unsupported, %" PRIu64 " with impossible sizes, %" PRIu64 " shapes refused; %" PRIu64
           " plans in %" PRIu64 " segments: %" PRIu64 " runs of programs, %" PRIu64 " copies (%" PRIu64
           " from peers, %" PRIu64 " on a second queue, %" PRIu64 " ordered), %" PRIu64
           " conversions, %" PRIu64 " waits (%" PRIu64 " for events), %" PRIu64 " control steps, %" PRIu64
           " views, %" PRIu64 " bounded values; %" PRIu64 " executions; %" PRIu64 " failed\n",
           count, counts.compiled, counts.open, counts.unsupported, counts.impossible, counts.refused,
           counts.plans, counts.segments, counts.steps[GT_STEP_RUN], counts.steps[GT_STEP_TRANSFER],
           counts.peers, counts.copied_beside, counts.steps[GT_STEP_ORDER], counts.steps[GT_STEP_CONVERT],
           counts.steps[GT_STEP_WAIT], counts.event_waits, counts.steps[GT_STEP_CONTROL], counts.views,
           counts.bounded, counts.runs, failures);
    bool checked_nothing = count >= ENOUGH && counts.runs == 0;
    return failures != 0 || checked_nothing;
}
