/* Order on the device: each queue has a thread that works strictly in order and, unless "late" is false, does
 * not begin before somebody waits for it. So a result that is read without a wait is not there, and host
 * memory that changes before the queue passed its copy arrives changed.
 *
 *     push: head [task][task][record][copy] tail        released: how many may run; done: how many did */
#include "fake.h"

#include <errno.h>
#include <time.h>

typedef struct task {
    struct task *next;
    fake_work_fn fn;
    bool always; /* runs after a failure too: somebody may wait for it */
    size_t capacity;
    _Alignas(16) unsigned char arg[];
} task;

struct gantry_queue {
    fake_domain *domain;
    int number;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, passed;
    task *head, *tail, *unused;
    uint64_t pushed, released, done;
    bool closing;
    gantry_status failed;
    char failure[512];
};

struct gantry_event {
    fake_domain *domain;
    pthread_mutex_t lock;
    pthread_cond_t completed_cond;
    uint64_t recorded, completed; /* how often */
    uint64_t time_ns;
    gantry_queue *queue; /* of the last record; not used once completed == recorded */
    uint64_t ticket;
    /* What had failed in the queue when it was passed last. */
    gantry_status failed;
    char failure[512];
};

/* ---- time and failures ----------------------------------------------------------------------- */

/* Sleeps, and turns at the end: a sleep alone is too coarse for times near 100 us. */
void fake_sleep_until(const fake_domain *domain, uint64_t end_ns)
{
    for (;;) {
        uint64_t now = domain->host->now_ns(domain->host);
        if (now >= end_ns)
            return;
        if (end_ns - now > 150000) {
            uint64_t rest = end_ns - now - 100000;
            struct timespec t = {(time_t)(rest / 1000000000u), (long)(rest % 1000000000u)};
            nanosleep(&t, NULL);
        }
    }
}

gantry_status fake_call_begin(fake_domain *domain, fake_script *script, fake_call call, gantry_error *err)
{
    static const char *const names[FAKE_CALL_COUNT] = {
        "compile", "reshape", "context", "run",   "run",   "alloc",    "copy", "sync", "run", "queue",
        "event",   "record",  "wait",    "await", "judge", "describe", "save", "load", "load"};
    uint64_t number = atomic_fetch_add(&script->calls[call], 1) + 1;
    if (call == FAKE_CALL_LOST && script->fail[call] && number >= script->fail[call])
        atomic_store(&domain->lost, 1);
    if (atomic_load(&domain->lost))
        return fake_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_RUN, "fake device: the device is lost");
    if (call == FAKE_CALL_LOST || number != script->fail[call])
        return GANTRY_OK;
    gantry_status status = call == FAKE_CALL_ALLOC   ? GANTRY_RESOURCE
                           : call == FAKE_CALL_STALE ? GANTRY_DATA
                                                     : GANTRY_PROVIDER;
    domain->host->log(domain->host, 3, "fake device: a scripted failure"); /* the host may do without */
    return fake_fail(err, status, call == FAKE_CALL_COMPILE ? GANTRY_STAGE_COMPILE : GANTRY_STAGE_RUN,
                     "fake device: the scripted failure of %s call %llu", names[call],
                     (unsigned long long)number);
}

/* ---- the queue's thread ---------------------------------------------------------------------- */

static void note_failure(gantry_queue *queue, gantry_status status, const gantry_error *err)
{
    if (status == GANTRY_OK || queue->failed != GANTRY_OK)
        return;
    queue->failed = status;
    snprintf(queue->failure, sizeof queue->failure, "%.500s", err->message);
}

static bool may_work(const gantry_queue *queue)
{
    return queue->head && (!queue->domain->config->late || queue->done < queue->released || queue->closing);
}

static _Thread_local int this_queue = -1;

int fake_queue_number(void)
{
    return this_queue;
}

static void *queue_thread(void *queue_)
{
    gantry_queue *queue = queue_;
    this_queue = queue->number;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (!may_work(queue) && !queue->closing)
            pthread_cond_wait(&queue->work, &queue->lock);
        if (!queue->head)
            break;
        task *t = queue->head;
        queue->head = t->next;
        bool skip = queue->failed != GANTRY_OK && !t->always;
        pthread_mutex_unlock(&queue->lock);
        gantry_error err = GANTRY_ERROR_INIT;
        gantry_status status = skip ? GANTRY_OK : t->fn(t->arg, &err);
        pthread_mutex_lock(&queue->lock);
        note_failure(queue, status, &err);
        t->next = queue->unused;
        queue->unused = t;
        queue->done++;
        pthread_cond_broadcast(&queue->passed);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* An unused task that is large enough, else a new one. The caller holds the lock. */
static task *take_task(gantry_queue *queue, size_t bytes)
{
    for (task **link = &queue->unused; *link; link = &(*link)->next)
        if ((*link)->capacity >= bytes) {
            task *t = *link;
            *link = t->next;
            return t;
        }
    task *t = fake_zeroed(queue->domain->host, 1, sizeof *t + bytes);
    if (t)
        t->capacity = bytes;
    return t;
}

static gantry_status push(gantry_queue *queue, fake_work_fn fn, const void *arg, size_t bytes, bool always,
                          uint64_t *out_ticket, gantry_error *err)
{
    pthread_mutex_lock(&queue->lock);
    task *t = take_task(queue, bytes);
    if (t) {
        memcpy(t->arg, arg, bytes);
        t->fn = fn;
        t->always = always;
        t->next = NULL;
        if (queue->head)
            queue->tail->next = t;
        else
            queue->head = t;
        queue->tail = t;
        *out_ticket = ++queue->pushed;
        pthread_cond_signal(&queue->work);
    }
    pthread_mutex_unlock(&queue->lock);
    return t ? GANTRY_OK : fake_out_of_memory(err, GANTRY_STAGE_RUN);
}

gantry_status fake_queue_push(gantry_queue *queue, fake_work_fn fn, const void *arg, size_t arg_bytes,
                              gantry_error *err)
{
    uint64_t ticket;
    return push(queue, fn, arg, arg_bytes, false, &ticket, err);
}

/* Lets the queue work up to a task, without waiting. */
static void release(gantry_queue *queue, uint64_t ticket)
{
    pthread_mutex_lock(&queue->lock);
    if (ticket > queue->released)
        queue->released = ticket;
    pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->lock);
}

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    fake_domain *domain = self;
    *out_queue = NULL;
    gantry_status status = fake_call_begin(domain, &domain->script, FAKE_CALL_QUEUE, err);
    if (status != GANTRY_OK)
        return status;
    gantry_queue *queue = fake_zeroed(domain->host, 1, sizeof *queue);
    if (!queue)
        return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    queue->domain = domain;
    queue->number = (int)atomic_fetch_add(&domain->queue_count, 1);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->work, NULL);
    pthread_cond_init(&queue->passed, NULL);
    int result = pthread_create(&queue->thread, NULL, queue_thread, queue);
    if (result != 0) {
        domain->host->free(domain->host, queue);
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, "fake device: a thread: %s",
                         strerror(result));
    }
    *out_queue = queue;
    return GANTRY_OK;
}

static void queue_close(void *self, gantry_queue *queue)
{
    const gantry_host *host = ((const fake_domain *)self)->host;
    if (!queue)
        return;
    pthread_mutex_lock(&queue->lock);
    queue->closing = true;
    pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    while (queue->unused) {
        task *t = queue->unused;
        queue->unused = t->next;
        host->free(host, t);
    }
    pthread_cond_destroy(&queue->work);
    pthread_cond_destroy(&queue->passed);
    pthread_mutex_destroy(&queue->lock);
    host->free(host, queue);
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    fake_domain *domain = self;
    if (!queue)
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, "fake device: the queue is NULL");
    atomic_fetch_add(&domain->counters->syncs, 1);
    gantry_status status = fake_call_begin(domain, &domain->script, FAKE_CALL_SYNC, err);
    fake_note(domain, "begin sync of queue %d", queue->number);
    pthread_mutex_lock(&queue->lock);
    queue->released = queue->pushed;
    pthread_cond_signal(&queue->work);
    for (uint64_t ticket = queue->pushed; queue->done < ticket;)
        pthread_cond_wait(&queue->passed, &queue->lock);
    if (queue->failed != GANTRY_OK && status == GANTRY_OK)
        status = fake_fail(err, queue->failed, GANTRY_STAGE_RUN, "%s", queue->failure);
    queue->failed = GANTRY_OK;
    pthread_mutex_unlock(&queue->lock);
    fake_note(domain, "end sync of queue %d", queue->number);
    return status;
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct event_task {
    gantry_event *event;
    uint64_t number;
    gantry_queue *queue; /* that records it */
} event_task;

static gantry_status event_create(void *self, gantry_event **out_event, gantry_error *err)
{
    fake_domain *domain = self;
    *out_event = NULL;
    gantry_status status = fake_call_begin(domain, &domain->script, FAKE_CALL_EVENT, err);
    if (status != GANTRY_OK)
        return status;
    gantry_event *event = fake_zeroed(domain->host, 1, sizeof *event);
    *out_event = event;
    if (!event)
        return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    event->domain = domain;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->completed_cond, NULL);
    return GANTRY_OK;
}

/* Waits until the event was passed `number` times; lets its queue work. */
static void wait_for(gantry_event *event, uint64_t number)
{
    pthread_mutex_lock(&event->lock);
    if (event->completed < number) {
        /* Lock order: an event's lock is never held while a queue's is taken. */
        gantry_queue *queue = event->queue;
        uint64_t ticket = event->ticket;
        pthread_mutex_unlock(&event->lock);
        release(queue, ticket);
        pthread_mutex_lock(&event->lock);
        while (event->completed < number)
            pthread_cond_wait(&event->completed_cond, &event->lock);
    }
    pthread_mutex_unlock(&event->lock);
}

static uint64_t times_recorded(gantry_event *event)
{
    pthread_mutex_lock(&event->lock);
    uint64_t number = event->recorded;
    pthread_mutex_unlock(&event->lock);
    return number;
}

static void event_destroy(void *self, gantry_event *event)
{
    const gantry_host *host = ((const fake_domain *)self)->host;
    if (!event)
        return;
    wait_for(event, times_recorded(event));
    pthread_mutex_destroy(&event->lock);
    pthread_cond_destroy(&event->completed_cond);
    host->free(host, event);
}

static gantry_status do_record(void *arg, gantry_error *err)
{
    const event_task *t = arg;
    char failure[sizeof t->event->failure];
    pthread_mutex_lock(&t->queue->lock);
    gantry_status failed = t->queue->failed;
    memcpy(failure, t->queue->failure, sizeof failure);
    pthread_mutex_unlock(&t->queue->lock);
    pthread_mutex_lock(&t->event->lock);
    t->event->failed = failed;
    memcpy(t->event->failure, failure, sizeof failure);
    t->event->completed = t->number;
    t->event->time_ns = t->event->domain->host->now_ns(t->event->domain->host);
    pthread_cond_broadcast(&t->event->completed_cond);
    pthread_mutex_unlock(&t->event->lock);
    return GANTRY_OK;
}

static gantry_status event_record(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    uint64_t ticket = 0;
    event_task t = {event, times_recorded(event) + 1, queue};
    gantry_status status = fake_call_begin(queue->domain, &queue->domain->script, FAKE_CALL_RECORD, err);
    if (status != GANTRY_OK)
        return status;
    status = push(queue, do_record, &t, sizeof t, true, &ticket, err);
    if (status != GANTRY_OK)
        return status;
    pthread_mutex_lock(&event->lock);
    event->recorded = t.number;
    event->queue = queue;
    event->ticket = ticket;
    pthread_mutex_unlock(&event->lock);
    return GANTRY_OK;
}

static gantry_status do_wait(void *arg, gantry_error *err)
{
    const event_task *t = arg;
    wait_for(t->event, t->number);
    return GANTRY_OK;
}

static gantry_status event_wait(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    event_task t = {event, times_recorded(event), NULL};
    gantry_status status = fake_call_begin(queue->domain, &queue->domain->script, FAKE_CALL_WAIT, err);
    return status != GANTRY_OK ? status : fake_queue_push(queue, do_wait, &t, sizeof t, err);
}

static gantry_status event_sync(void *self, gantry_event *event, gantry_error *err)
{
    gantry_status status = fake_call_begin(event->domain, &event->domain->script, FAKE_CALL_AWAIT, err);
    fake_note(event->domain, "begin wait for an event");
    wait_for(event, times_recorded(event));
    pthread_mutex_lock(&event->lock);
    if (event->failed != GANTRY_OK && status == GANTRY_OK)
        status = fake_fail(err, event->failed, GANTRY_STAGE_RUN, "%s", event->failure);
    pthread_mutex_unlock(&event->lock);
    fake_note(event->domain, "end wait for an event");
    return status;
}

static gantry_status event_elapsed(void *self, gantry_event *from, gantry_event *to, double *out_ns)
{
    const fake_domain *domain = self;
    *out_ns = 0;
    if (!domain->config->timing)
        return GANTRY_UNSUPPORTED;
    wait_for(from, times_recorded(from));
    wait_for(to, times_recorded(to));
    *out_ns = (double)((int64_t)to->time_ns - (int64_t)from->time_ns);
    return GANTRY_OK;
}

/* ---- the domain's table ---------------------------------------------------------------------- */

static gantry_status domain_describe(void *self, gantry_domain_info *out_info)
{
    const fake_domain *domain = self;
    const fake_config *config = domain->config;
    snprintf(out_info->name, sizeof out_info->name, "%s", config->domain);
    snprintf(out_info->device, sizeof out_info->device, "a fake device for tests");
    out_info->alignment = 64;
    out_info->separate_memory = 1;
    out_info->has_clock = config->timing;
    double latency_ns = config->assumed_latency_us * 1e3, gbps = config->assumed_gbps;
    out_info->to_device_ns = out_info->to_host_ns =
        latency_ns < 0 ? fake_copy_ns(config, 0, true) : latency_ns;
    out_info->to_device_bytes_per_ns = out_info->to_host_bytes_per_ns = gbps >= 0 ? gbps
                                                                        : config->copy_us >= 0
                                                                            ? 0
                                                                            : config->transfer_gbps;
    out_info->cost_source = 'a';
    out_info->queue_count = config->queues;
    return GANTRY_OK;
}

static gantry_status domain_memory_info(void *self, uint64_t *out_free_bytes, uint64_t *out_total_bytes)
{
    fake_domain *domain = self;
    *out_total_bytes = domain->memory.bytes;
    *out_free_bytes = domain->memory.bytes - fake_memory_live(&domain->memory);
    return GANTRY_OK;
}

/* Its API is this table's. */
static void *queue_native(void *self, gantry_queue *queue)
{
    return queue;
}

static int domain_lost(void *self)
{
    return atomic_load(&((fake_domain *)self)->lost);
}

void fake_domain_table(fake_domain *domain)
{
    domain->table = (gantry_domain){.struct_bytes = sizeof domain->table,
                                    .self = domain,
                                    .describe = domain_describe,
                                    .alloc = fake_domain_alloc,
                                    .free = fake_domain_free,
                                    .memory_info = domain_memory_info,
                                    .queue_open = queue_open,
                                    .queue_close = queue_close,
                                    .queue_sync = queue_sync,
                                    .copy = fake_domain_copy,
                                    .event_create = event_create,
                                    .event_destroy = event_destroy,
                                    .event_record = event_record,
                                    .event_wait = event_wait,
                                    .event_sync = event_sync,
                                    .event_elapsed = event_elapsed,
                                    .queue_native = queue_native,
                                    .lost = domain_lost,
                                    .import = fake_domain_import,
                                    .probe = fake_domain_probe,
                                    .peer = fake_domain_peer,
                                    .copy_from_peer = fake_copy_from_peer};
}
