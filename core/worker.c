/* Threads of one run: the one that executes for gantry_run_start, and the one that watches the deadline. Both
 * are made when first needed. */
#include "run.h"

#include "base/clock.h"

#include <errno.h>
#include <time.h>

typedef enum job_state { JOB_NONE, JOB_WAITING, JOB_RUNNING, JOB_DONE } job_state;

struct gt_worker {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t executor, watcher;
    bool has_executor, has_watcher, leaving;
    gantry_run *run;
    job_state job;
    gantry_done_fn done;
    void *user;
    gantry_status status;
    gantry_error error;
    uint64_t deadline_ns; /* 0: not armed */
};

static gantry_status get_worker(gantry_run *run, gt_worker **out_worker, gantry_error *err)
{
    if (!run->worker) {
        gt_worker *worker = GT_NEW(run->session->allocator, gt_worker);
        if (!worker)
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
        worker->run = run;
        pthread_mutex_init(&worker->lock, NULL);
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&worker->changed, &attributes);
        pthread_condattr_destroy(&attributes);
        run->worker = worker;
    }
    *out_worker = run->worker;
    return GANTRY_OK;
}

void gt_worker_destroy(gt_worker **inout_worker, gt_allocator *allocator)
{
    gt_worker *worker = *inout_worker;
    if (!worker)
        return;
    pthread_mutex_lock(&worker->lock);
    worker->leaving = true;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    if (worker->has_executor)
        pthread_join(worker->executor, NULL);
    if (worker->has_watcher)
        pthread_join(worker->watcher, NULL);
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->lock);
    gt_free(allocator, worker);
    *inout_worker = NULL;
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void *watch(void *arg)
{
    gt_worker *worker = arg;
    pthread_mutex_lock(&worker->lock);
    while (!worker->leaving) {
        if (!worker->deadline_ns) {
            pthread_cond_wait(&worker->changed, &worker->lock);
            continue;
        }
        struct timespec until = time_of(worker->deadline_ns);
        pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
        if (worker->deadline_ns && gt_now_ns() >= worker->deadline_ns) {
            worker->deadline_ns = 0;
            atomic_store(&worker->run->stop_reason, GANTRY_DEADLINE);
            __atomic_store_n(&worker->run->stop, 1, __ATOMIC_RELAXED);
        }
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

gantry_status gt_worker_arm(gantry_run *run, uint64_t deadline_ms, gantry_error *err)
{
    gt_worker *worker;
    GT_TRY(get_worker(run, &worker, err));
    pthread_mutex_lock(&worker->lock);
    if (!worker->has_watcher)
        worker->has_watcher = pthread_create(&worker->watcher, NULL, watch, worker) == 0;
    bool armed = worker->has_watcher;
    worker->deadline_ns = gt_now_ns() + deadline_ms * 1000000u;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    return armed ? GANTRY_OK
                 : gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, NULL,
                           "no thread could be made to watch the deadline");
}

void gt_worker_disarm(gantry_run *run)
{
    if (!run->worker)
        return;
    pthread_mutex_lock(&run->worker->lock);
    run->worker->deadline_ns = 0;
    pthread_mutex_unlock(&run->worker->lock);
}

/* ---- asynchronous runs ----------------------------------------------------------------------- */

static void *execute(void *arg)
{
    gt_worker *worker = arg;
    pthread_mutex_lock(&worker->lock);
    while (!worker->leaving) {
        if (worker->job != JOB_WAITING) {
            pthread_cond_wait(&worker->changed, &worker->lock);
            continue;
        }
        worker->job = JOB_RUNNING;
        gantry_done_fn done = worker->done;
        void *user = worker->user;
        pthread_mutex_unlock(&worker->lock);
        gantry_error error = GANTRY_ERROR_INIT;
        gantry_status status = gt_run_execute_claimed(worker->run, &error);
        if (done)
            done(user, status, &error);
        pthread_mutex_lock(&worker->lock);
        worker->status = status;
        worker->error = error;
        /* Who heard from the callback may have started the next job already: it must not be lost. */
        if (worker->job == JOB_RUNNING)
            worker->job = JOB_DONE;
        pthread_cond_broadcast(&worker->changed);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

gantry_status gantry_run_start(gantry_run *run, gantry_done_fn done, void *user, gantry_error *err)
{
    if (!run)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL, "gantry_run_start: run is NULL");
    gt_worker *worker;
    GT_TRY(gt_run_claim(run, err));
    gantry_status status = get_worker(run, &worker, err);
    if (status == GANTRY_OK) {
        pthread_mutex_lock(&worker->lock);
        if (!worker->has_executor)
            worker->has_executor = pthread_create(&worker->executor, NULL, execute, worker) == 0;
        if (worker->has_executor) {
            worker->job = JOB_WAITING;
            worker->done = done;
            worker->user = user;
            pthread_cond_broadcast(&worker->changed);
        } else {
            status =
                gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, NULL, "no thread could be made for the run");
        }
        pthread_mutex_unlock(&worker->lock);
    }
    if (status != GANTRY_OK)
        gt_run_unclaim(run);
    return status;
}

gantry_status gantry_run_wait(gantry_run *run, int64_t timeout_ms, int *out_done, gantry_error *err)
{
    if (out_done)
        *out_done = 0;
    if (!run || !run->worker)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_wait: nothing was started on this run");
    gt_worker *worker = run->worker;
    pthread_mutex_lock(&worker->lock);
    uint64_t until_ns = timeout_ms < 0 ? 0 : gt_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct timespec until = time_of(until_ns);
    int expired = 0;
    while ((worker->job == JOB_WAITING || worker->job == JOB_RUNNING) && !expired)
        expired = timeout_ms < 0
                      ? pthread_cond_wait(&worker->changed, &worker->lock) && 0
                      : pthread_cond_timedwait(&worker->changed, &worker->lock, &until) == ETIMEDOUT;
    gantry_status status;
    if (worker->job == JOB_DONE) {
        status = worker->status;
        if (err && err->struct_bytes >= sizeof *err && status != GANTRY_OK)
            *err = worker->error;
        if (out_done)
            *out_done = 1;
    } else if (worker->job == JOB_NONE) {
        status = gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                         "gantry_run_wait: nothing was started on this run");
    } else {
        status = gt_fail(err, GANTRY_DEADLINE, GANTRY_STAGE_RUN, NULL, "the run was not done after %lld ms",
                         (long long)timeout_ms);
    }
    pthread_mutex_unlock(&worker->lock);
    return status;
}
