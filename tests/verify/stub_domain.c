/* A device in the test's own memory: handles are not addresses, accesses are checked, and work waits in the
 * queue until somebody syncs or chance has it done earlier. */
#include "stub.h"

#include <stdlib.h>

typedef struct block {
    size_t bytes;
    uint8_t data[];
} block;

typedef struct work {
    stub_work_fn fn;
    void *arg;
} work;

struct gantry_queue {
    stub_domain *domain;
    work *pending;
    uint32_t count, capacity, done;
    bool working;
    uint32_t actor;
    uint64_t before; /* how much work was done before pending[0] */
};

struct gantry_event {
    gantry_queue *queue;
    uint64_t work; /* of the queue, so much of it has to be done */
    stub_clock mark;
};

static void *need(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

uint8_t *stub_bytes(stub_domain *domain, gantry_buffer buffer, size_t bytes)
{
    static uint8_t nothing;
    block *b = buffer.handle;
    if (!bytes)
        return &nothing;
    if (!domain)
        return (uint8_t *)buffer.handle + buffer.offset_bytes;
    if (b && buffer.offset_bytes <= b->bytes && bytes <= b->bytes - buffer.offset_bytes)
        return b->data + buffer.offset_bytes;
    domain->broken = true;
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gantry_status device_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                  gantry_error *err)
{
    stub_domain *domain = self;
    if (kind == GANTRY_MEMORY_PINNED && !domain->pinned_percent)
        return GANTRY_UNSUPPORTED;
    if (kind == GANTRY_MEMORY_PINNED) {
        if (!random_chance(&domain->random, domain->pinned_percent))
            return GANTRY_RESOURCE;
        *out_handle = need(aligned_alloc(64, (bytes + 64) / 64 * 64));
        memset(*out_handle, 0xa5, bytes);
        domain->alive++;
        return GANTRY_OK;
    }
    block *b = need(malloc(sizeof *b + bytes));
    b->bytes = bytes;
    memset(b->data, 0xa5, bytes);
    domain->alive++;
    *out_handle = b;
    return GANTRY_OK;
}

static void device_free(void *self, void *handle, gantry_memory_kind kind)
{
    stub_domain *domain = self;
    block *b = handle;
    domain->alive -= kind == GANTRY_MEMORY_PINNED;
    if (kind == GANTRY_MEMORY_PINNED) /* its size is not known here: its first byte stands for all */
        stub_order_release(domain->order, handle, 1);
    else
        stub_order_release(domain->order, b->data, b->bytes);
    if (kind == GANTRY_MEMORY_PINNED) {
        free(handle);
        return;
    }
    b->bytes = 0;
    free(b);
    domain->alive--;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void work_off(gantry_queue *queue, uint32_t until)
{
    bool outer = !queue->working; /* a wait for another queue may lead back here */
    queue->working = true;
    while (queue->done < until) {
        work w = queue->pending[queue->done++];
        w.fn(w.arg);
        free(w.arg);
    }
    queue->working = !outer;
    if (outer && queue->done == queue->count) {
        queue->before += queue->count;
        queue->done = queue->count = 0;
    }
}

void stub_enqueue(gantry_queue *queue, stub_work_fn fn, void *arg)
{
    if (!queue) {
        fn(arg);
        free(arg);
        return;
    }
    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity * 2 + 16;
        queue->pending = need(realloc(queue->pending, queue->capacity * sizeof *queue->pending));
    }
    queue->pending[queue->count++] = (work){fn, arg};
    if (random_chance(&queue->domain->random, 10))
        work_off(queue, queue->done + 1 + random_below(&queue->domain->random, queue->count - queue->done));
}

void stub_work_begin(stub_order *order, gantry_queue *queue)
{
    stub_order_begin(order, queue ? queue->actor : 0);
}

void stub_work_touch(stub_order *order, gantry_queue *queue, stub_domain *domain, gantry_buffer buffer,
                     size_t bytes, bool writes, const char *what)
{
    if (bytes && buffer.handle)
        stub_order_touch(order, queue ? queue->actor : 0, stub_bytes(domain, buffer, bytes), bytes, writes,
                         what);
}

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    *out_queue = need(calloc(1, sizeof **out_queue));
    (*out_queue)->domain = self;
    (*out_queue)->domain->alive++;
    (*out_queue)->actor = stub_order_open((*out_queue)->domain->order);
    return GANTRY_OK;
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    work_off(queue, queue->count);
    stub_order_sync(queue->domain->order, queue->actor);
    return GANTRY_OK;
}

static void queue_close(void *self, gantry_queue *queue)
{
    work_off(queue, queue->count);
    queue->domain->alive--;
    stub_order_close(queue->domain->order, queue->actor);
    free(queue->pending);
    free(queue);
}

/* ---- events ---------------------------------------------------------------------------------- */

static gantry_status event_create(void *self, gantry_event **out_event, gantry_error *err)
{
    stub_domain *domain = self;
    *out_event = need(calloc(1, sizeof **out_event));
    domain->alive++;
    return GANTRY_OK;
}

static void event_destroy(void *self, gantry_event *event)
{
    stub_domain *domain = self;
    free(event);
    domain->alive--;
}

static gantry_status event_record(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    *event = (gantry_event){queue, queue->before + queue->count,
                            stub_order_mark(queue->domain->order, queue->actor)};
    return GANTRY_OK;
}

static void do_wait(void *arg)
{
    const gantry_event *e = arg;
    if (e->queue && e->work > e->queue->before)
        work_off(e->queue, (uint32_t)(e->work - e->queue->before));
}

static gantry_status event_wait(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    gantry_event *e = need(malloc(sizeof *e));
    *e = *event;
    stub_order_learn(queue->domain->order, queue->actor, &event->mark);
    stub_enqueue(queue, do_wait, e);
    return GANTRY_OK;
}

static gantry_status event_sync(void *self, gantry_event *event, gantry_error *err)
{
    do_wait(event);
    stub_order_learn(((stub_domain *)self)->order, 0, &event->mark);
    return GANTRY_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct copy_work {
    stub_domain *domain;
    gantry_copy_kind kind;
    gantry_buffer target, source;
    size_t bytes;
    stub_domain *peer; /* whose the source is; NULL: the domain's own, or the host's */
} copy_work;

/* Whose memory an end of a copy is; NULL: the host's. */
static stub_domain *target_of(const copy_work *c)
{
    return c->kind == GANTRY_COPY_TO_HOST ? NULL : c->domain;
}

static stub_domain *source_of(const copy_work *c)
{
    return c->peer ? c->peer : c->kind == GANTRY_COPY_TO_DEVICE ? NULL : c->domain;
}

static void note_copy(gantry_queue *queue, const copy_work *c)
{
    stub_order *order = c->domain->order;
    stub_work_begin(order, queue);
    stub_work_touch(order, queue, source_of(c), c->source, c->bytes, false, "a copy reads");
    stub_work_touch(order, queue, target_of(c), c->target, c->bytes, true, "a copy writes");
}

static void do_copy(void *arg)
{
    const copy_work *c = arg;
    int kind = c->peer ? 1 : c->kind == GANTRY_COPY_INSIDE ? 2 : 0;
    if (!c->bytes)
        return;
    c->domain->copies[kind]++;
    c->domain->bytes[kind] += c->bytes;
    uint8_t *target = stub_bytes(target_of(c), c->target, c->bytes);
    uint8_t *source = stub_bytes(source_of(c), c->source, c->bytes);
    if (target && source)
        memmove(target, source, c->bytes);
}

static gantry_status device_copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                                 gantry_buffer source, size_t bytes, gantry_error *err)
{
    copy_work *c = need(malloc(sizeof *c));
    *c = (copy_work){self, kind, target, source, bytes, NULL};
    note_copy(queue, c);
    stub_enqueue(queue, do_copy, c);
    return GANTRY_OK;
}

/* Some can copy from some others, and always answer the same. */
static int is_peer(void *self, const char *other_name, const gantry_domain *other)
{
    const stub_domain *domain = self, *source = other->self;
    return domain->peers >> source->index & 1;
}

static gantry_status copy_from_peer(void *self, gantry_queue *queue, const gantry_domain *other,
                                    gantry_buffer target, gantry_buffer source, size_t bytes,
                                    gantry_error *err)
{
    copy_work *c = need(malloc(sizeof *c));
    *c = (copy_work){self, GANTRY_COPY_INSIDE, target, source, bytes, other->self};
    note_copy(queue, c);
    stub_enqueue(queue, do_copy, c);
    return GANTRY_OK;
}

static gantry_status describe(void *self, gantry_domain_info *out_info)
{
    *out_info = ((stub_domain *)self)->entry.info;
    return GANTRY_OK;
}

void stub_domain_init(stub_domain *domain, uint32_t index, stub_order *order, random_source *random)
{
    *domain = (stub_domain){.random = {.state = random_next(random)},
                            .table = {.struct_bytes = sizeof domain->table,
                                      .self = domain,
                                      .describe = describe,
                                      .alloc = device_alloc,
                                      .free = device_free,
                                      .queue_open = queue_open,
                                      .queue_close = queue_close,
                                      .queue_sync = queue_sync,
                                      .copy = device_copy},
                            .index = index,
                            .order = order,
                            .pinned_percent = random_chance(random, 60) ? 90 : 0,
                            .peers = random_chance(random, 70) ? random_below(random, 8) | 6 : 0};
    if (random_chance(random, 60)) {
        domain->table.event_create = event_create;
        domain->table.event_destroy = event_destroy;
        domain->table.event_record = event_record;
        domain->table.event_wait = event_wait;
        domain->table.event_sync = event_sync;
    }
    if (domain->peers) {
        domain->table.peer = is_peer;
        domain->table.copy_from_peer = copy_from_peer;
    }
    gantry_domain_info *info = &domain->entry.info;
    *info = (gantry_domain_info){.struct_bytes = sizeof *info,
                                 .alignment = 64,
                                 .separate_memory = 1,
                                 .to_device_ns = random_below(random, 2000),
                                 .to_host_ns = random_below(random, 2000),
                                 .to_device_bytes_per_ns = random_below(random, 3) * 0.5,
                                 .to_host_bytes_per_ns = random_below(random, 3) * 0.5,
                                 .cost_source = 'a',
                                 .queue_count = random_below(random, 3)};
    snprintf(info->name, sizeof info->name, "stub:%u", index);
    domain->entry.table = &domain->table;
}
