/* Sessions of one runtime that are created, run and destroyed by several threads at once share constants: the
 * results are those of a session alone, and nothing is left. A plain program, so that ThreadSanitizer runs
 * it. */
#include "../support/expect.h"
#include "../support/heavy_model.h"
#include "core/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#define THREADS 4
#define TURNS 4

typedef struct worker {
    gantry_runtime *runtime;
    const float *expected;
    pthread_barrier_t *start;
    int number;
    pthread_t thread;
} worker;

/* All threads create at once, then some destroy while others run. */
static void *live(void *arg)
{
    worker *w = arg;
    for (int turn = 0; turn < TURNS; turn++) {
        small_session s = {.runtime = w->runtime, .err = GANTRY_ERROR_INIT};
        pthread_barrier_wait(w->start);
        small_create(&s, heavy_model(0), "threads=1");
        EXPECT(s.status == GANTRY_OK, "%s", s.err.message);
        for (int k = 0; s.status == GANTRY_OK && k <= (w->number + turn) % THREADS; k++) {
            float *y = heavy_run(&s);
            EXPECT(y && heavy_equal(y, w->expected), "thread %d, run %d: %s", w->number, k, s.err.message);
            free(y);
        }
        gantry_run_destroy(&s.run);
        gantry_report_destroy(&s.report);
        EXPECT(!s.session || gantry_session_destroy(&s.session, &s.err) == GANTRY_OK, "%s", s.err.message);
    }
    return NULL;
}

int main(void)
{
    small_session alone = small_open(heavy_model(0), "threads=1");
    EXPECT(alone.status == GANTRY_OK, "%s", alone.err.message);
    float *expected = alone.status == GANTRY_OK ? heavy_run(&alone) : NULL;
    small_close(&alone);
    if (!expected)
        return 1;
    gantry_runtime *runtime = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    pthread_barrier_t start;
    worker workers[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    EXPECT(gantry_runtime_create(NULL, &runtime, &err) == GANTRY_OK, "%s", err.message);
    for (int k = 0; k < THREADS; k++) {
        workers[k] = (worker){runtime, expected, &start, k, 0};
        EXPECT(pthread_create(&workers[k].thread, NULL, live, &workers[k]) == 0, "thread %d", k);
    }
    for (int k = 0; k < THREADS; k++)
        pthread_join(workers[k].thread, NULL);
    gt_packed_total left = gt_packed_count(runtime, &runtime->host);
    EXPECT(left.forms == 0 && left.bytes == 0, "%llu packed constants are left",
           (unsigned long long)left.forms);
    EXPECT(gantry_runtime_destroy(&runtime, &err) == GANTRY_OK, "%s", err.message);
    pthread_barrier_destroy(&start);
    free(expected);
    return atomic_load(&failures) != 0;
}
