/* Loops of the CPU provider: each body has scratch of its own, also in a parallel region of the application.
 */
#include "providers/cpu/cpu.h"

#include <criterion/criterion.h>

enum { THREADS = 2, PART_BYTES = 64, APPLICATION_THREADS = 4 };

typedef struct visit {
    const cpu_call *call;
    bool outside;
} visit;

static void note_scratch(void *arg, int64_t begin, int64_t end)
{
    visit *v = arg;
    const char *part = cpu_thread_scratch(v->call, PART_BYTES), *first = v->call->scratch;
    bool inside = part >= first && part < first + THREADS * PART_BYTES && (part - first) % PART_BYTES == 0;
    if (!inside)
        v->outside = true;
}

static void check_loops(bool *inout_outside)
{
    char scratch[THREADS * PART_BYTES];
    for (int threads = 1; threads <= THREADS; threads++)
        for (int64_t count = 1; count <= 3; count++) {
            cpu_call call = {.scratch = scratch, .threads = threads};
            visit v = {.call = &call};
            cpu_parallel(&call, count, 1, note_scratch, &v);
            if (v.outside)
                *inout_outside = true;
        }
}

Test(parallel, scratch_is_of_the_call)
{
    bool outside = false;
    check_loops(&outside);
#pragma omp parallel num_threads(APPLICATION_THREADS) reduction(|| : outside)
    check_loops(&outside);
    cr_assert_not(outside);
}
