/* The planner: a model, providers and their verdicts from the fuzzer's bytes; placement, plans and runs are
 * checked by the verifiers of tests/verify. */
#include "fuzz_tape.h"

#include "../verify/plan_case.h"

#define MAX_NODES 10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plan_tally counts = {0};
    char text[PLAN_CASE_TEXT] = "";
    random_source random = {.state = 1, .bytes = data, .count = size};
    if (!plan_case_check(random, MAX_NODES, false, &counts, text)) {
        fprintf(stderr, "%s\n", text);
        __builtin_trap();
    }
    return 0;
}
