/* Four threads on one fake device: a queue and a context each, one program, and an event passed around. A
 * plain program, so that ThreadSanitizer can watch it. */
#include "tests/support/test_device.h"

#include <pthread.h>
#include <stdlib.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define THREADS 4
#define ROUNDS 50

typedef struct worker {
    test_device *device;
    gantry_queue *queue;
    gantry_context *context;
    gantry_event *done, *before; /* own, and that of the thread before: its queue is waited for */
    gantry_buffer x, y, workspace;
    int number, failures;
} worker;

#define CHECK(w, condition)                                                                                  \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "thread %d: %s is false (line %d)\n", (w)->number, #condition, __LINE__);        \
            (w)->failures++;                                                                                 \
        }                                                                                                    \
    } while (0)

static void one_round(worker *w, int round)
{
    const gantry_domain *d = w->device->domain;
    const gantry_provider *p = w->device->provider;
    gantry_error error = GANTRY_ERROR_INIT;
    volatile int stop = 0;
    float in[8], out[8] = {0};
    for (int k = 0; k < 8; k++)
        in[k] = (float)(round * 8 + k - w->number * 100);
    gantry_run_args args = {.struct_bytes = sizeof args,
                            .queue = w->queue,
                            .inputs = &w->x,
                            .outputs = &w->y,
                            .workspace = w->workspace,
                            .bindings = 1,
                            .threads = 1,
                            .stop = &stop};
    CHECK(w, d->event_wait(d->self, w->queue, w->before, &error) == GANTRY_OK);
    CHECK(w, d->copy(d->self, w->queue, GANTRY_COPY_TO_DEVICE, w->x, (gantry_buffer){in, 0}, sizeof in,
                     &error) == GANTRY_OK);
    CHECK(w, p->run(p->self, w->context, &args, &error) == GANTRY_OK);
    CHECK(w, d->event_record(d->self, w->queue, w->done, &error) == GANTRY_OK);
    CHECK(w, d->copy(d->self, w->queue, GANTRY_COPY_TO_HOST, (gantry_buffer){out, 0}, w->y, sizeof out,
                     &error) == GANTRY_OK);
    CHECK(w, d->queue_sync(d->self, w->queue, &error) == GANTRY_OK);
    for (int k = 0; k < 8; k++)
        CHECK(w, out[k] == (in[k] < 0 ? -in[k] : 0));
}

static void *work(void *arg)
{
    for (int round = 0; round < ROUNDS; round++)
        one_round(arg, round);
    return NULL;
}

/* x -> Neg -> Relu -> y */
static gantry_status build(test_device *device)
{
    const int64_t dims[] = {8};
    uint32_t x = test_value_add(device->net, GANTRY_FLOAT32, 1, dims);
    uint32_t a = test_value_add(device->net, GANTRY_FLOAT32, 1, dims);
    uint32_t y = test_value_add(device->net, GANTRY_FLOAT32, 1, dims);
    test_input(device->net, x);
    test_output(device->net, y);
    test_node_add(device->net, "", "Neg", 13, 1, &x, 1, &a);
    test_node_add(device->net, "", "Relu", 13, 1, &a, 1, &y);
    return test_device_build(device);
}

static int prepare(worker *w, test_device *device)
{
    const gantry_domain *d = device->domain;
    const gantry_provider *p = device->provider;
    gantry_error error = GANTRY_ERROR_INIT;
    w->device = device;
    w->x = test_device_alloc(device, 32);
    w->y = test_device_alloc(device, 32);
    w->workspace = test_device_alloc(device, device->net->info.workspace_bytes);
    return d->queue_open(d->self, &w->queue, &error) == GANTRY_OK &&
           d->event_create(d->self, &w->done, &error) == GANTRY_OK &&
           p->context_create(p->self, device->net->shaped, &w->context, &error) == GANTRY_OK;
}

int main(void)
{
    gantry_error error = GANTRY_ERROR_INIT;
    test_device *device = test_device_open(
        FAKE, "{\"devices\": [{\"ops\": {\"Neg\": [\"float32\"], \"Relu\": [\"float32\"]}}]}", &error);
    worker workers[THREADS] = {{0}};
    pthread_t threads[THREADS];
    int failures = 0;
    if (!device || build(device) != GANTRY_OK) {
        fprintf(stderr, "%s\n", device ? device->net->error.message : error.message);
        return 1;
    }
    for (int k = 0; k < THREADS; k++) {
        workers[k].number = k;
        if (!prepare(&workers[k], device))
            return 1;
    }
    for (int k = 0; k < THREADS; k++)
        workers[k].before = workers[(k + THREADS - 1) % THREADS].done;
    for (int k = 0; k < THREADS; k++)
        if (pthread_create(&threads[k], NULL, work, &workers[k]) != 0)
            return 1;
    for (int k = 0; k < THREADS; k++) {
        pthread_join(threads[k], NULL);
        failures += workers[k].failures;
    }
    for (int k = 0; k < THREADS; k++) {
        device->domain->event_destroy(device->domain->self, workers[k].done);
        device->provider->context_destroy(device->provider->self, workers[k].context);
        device->domain->queue_close(device->domain->self, workers[k].queue);
    }
    long live = test_device_close(device);
    if (live != 0)
        fprintf(stderr, "%ld blocks are left\n", live);
    return failures || live != 0;
}
