/* Threads: eight on one session with shapes of their own, asynchronous runs, cancelling, deadlines. A plain
 * program, so that ThreadSanitizer runs it. */
#include "../support/expect.h"
#include "../support/small_models.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8
#define TURNS 60

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- many threads on one session ------------------------------------------------------------- */

typedef struct worker {
    gantry_session *session;
    int number;
    pthread_t thread;
} worker;

static void run_shape(small_session *s, int number, int64_t rows)
{
    float a[64], b[64];
    for (int k = 0; k < rows * 4; k++) {
        a[k] = (float)(k * number);
        b[k] = (float)(number - k);
    }
    small_bind(s, 0, GANTRY_FLOAT32, 2, rows, 4, a);
    small_bind(s, 1, GANTRY_FLOAT32, 2, rows, 4, b);
    gantry_status status = gantry_run_execute(s->run, &s->err);
    EXPECT(status == GANTRY_OK, "%s", s->err.message);
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; status == GANTRY_OK && k < rows * 4; k++) {
        float want = a[k] + b[k] > 0 ? a[k] + b[k] : 0;
        EXPECT(small_floats_of(&y)[k] == want, "thread %d, element %d", number, k);
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    small_session s = {.session = w->session, .err = GANTRY_ERROR_INIT};
    EXPECT(gantry_run_create(w->session, &s.run, &s.err) == GANTRY_OK, "%s", s.err.message);
    for (int turn = 0; turn < TURNS; turn++)
        run_shape(&s, w->number, 1 + (turn * 7 + w->number) % 11);
    gantry_report *report = NULL;
    EXPECT(gantry_session_report(w->session, s.run, &report, &s.err) == GANTRY_OK, "%s", s.err.message);
    gantry_report_destroy(&report);
    gantry_run_destroy(&s.run);
    return NULL;
}

static void share_a_session(void)
{
    small_session s = small_open(small_add(-1), "plan_cache=4;threads=1");
    EXPECT(s.status == GANTRY_OK, "%s", s.err.message);
    worker workers[THREADS];
    for (int k = 0; k < THREADS; k++) {
        workers[k] = (worker){.session = s.session, .number = k};
        EXPECT(pthread_create(&workers[k].thread, NULL, work, &workers[k]) == 0, "thread %d", k);
    }
    for (int k = 0; k < THREADS; k++)
        pthread_join(workers[k].thread, NULL);
    small_close(&s);
    EXPECT(s.runtime == NULL, "something still uses the runtime");
}

/* ---- a run that would take for ever ---------------------------------------------------------- */

static float start[4];
static int64_t for_ever = INT64_MAX, few = 3;

static small_session open_loop(const char *options, int64_t *trips)
{
    small_session s = small_open(small_loop(), options);
    EXPECT(s.status == GANTRY_OK, "%s", s.err.message);
    small_bind(&s, 0, GANTRY_INT64, 0, 0, 0, trips);
    small_bind(&s, 1, GANTRY_FLOAT32, 1, 4, 0, start);
    return s;
}

static void expect_three(small_session *s)
{
    small_bind(s, 0, GANTRY_INT64, 0, 0, 0, &few);
    EXPECT(gantry_run_execute(s->run, &s->err) == GANTRY_OK, "after a stop: %s", s->err.message);
    gantry_tensor out = small_result(s, 0);
    EXPECT(small_floats_of(&out)[3] == 3, "%f", small_floats_of(&out)[3]);
}

static atomic_int done_status;

static void done(void *user, gantry_status status, const gantry_error *err)
{
    (void)user;
    (void)err;
    atomic_store(&done_status, (int)status + 1);
}

static void cancel_an_asynchronous_run(void)
{
    small_session s = open_loop("threads=1", &for_ever);
    int finished = 1;
    EXPECT(gantry_run_start(s.run, done, NULL, &s.err) == GANTRY_OK, "%s", s.err.message);
    EXPECT(gantry_run_start(s.run, NULL, NULL, &s.err) == GANTRY_INVALID_ARGUMENT, "a second start");
    EXPECT(gantry_run_execute(s.run, &s.err) == GANTRY_INVALID_ARGUMENT, "execute while it runs");
    EXPECT(gantry_run_wait(s.run, 20, &finished, &s.err) == GANTRY_DEADLINE && !finished, "it can't be done");
    double begin = now_ms();
    gantry_run_cancel(s.run);
    EXPECT(gantry_run_wait(s.run, -1, &finished, &s.err) == GANTRY_CANCELLED && finished, "%s",
           s.err.message);
    EXPECT(now_ms() - begin < 1000, "stopping took %.0f ms", now_ms() - begin);
    EXPECT(atomic_load(&done_status) == GANTRY_CANCELLED + 1, "callback: %d", atomic_load(&done_status));
    expect_three(&s);
    gantry_run_cancel(s.run);
    expect_three(&s);
    small_close(&s);
}

static void stop_at_a_deadline(void)
{
    small_session s = open_loop("threads=1;deadline_ms=60", &for_ever);
    double begin = now_ms();
    EXPECT(gantry_run_execute(s.run, &s.err) == GANTRY_DEADLINE, "%s", s.err.message);
    EXPECT(now_ms() - begin < 1060, "it took %.0f ms", now_ms() - begin);
    expect_three(&s);
    small_close(&s);
}

static void finish_asynchronously(void)
{
    small_session s = open_loop("threads=1", &few);
    for (int turn = 0; turn < 50; turn++) {
        int finished = 0;
        EXPECT(gantry_run_start(s.run, done, NULL, &s.err) == GANTRY_OK, "%s", s.err.message);
        EXPECT(gantry_run_wait(s.run, -1, &finished, &s.err) == GANTRY_OK && finished, "%s", s.err.message);
        gantry_tensor out = small_result(&s, 0);
        EXPECT(small_floats_of(&out)[0] == 3, "%f", small_floats_of(&out)[0]);
    }
    gantry_run_start(s.run, NULL, NULL, &s.err);
    small_close(&s); /* destroying waits for what was started */
}

int main(void)
{
    share_a_session();
    cancel_an_asynchronous_run();
    stop_at_a_deadline();
    finish_asynchronously();
    printf("%d passed, %d failed\n", 4 - (failures > 0), failures > 0);
    return failures > 0;
}
