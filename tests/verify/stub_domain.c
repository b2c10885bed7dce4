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
    b->bytes = 0;
    free(b);
    domain->alive--;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void work_off(gantry_queue *queue, uint32_t until)
{
    for (; queue->done < until; queue->done++) {
        work *w = &queue->pending[queue->done];
        w->fn(w->arg);
        free(w->arg);
    }
    if (queue->done == queue->count)
        queue->done = queue->count = 0;
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

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    *out_queue = need(calloc(1, sizeof **out_queue));
    (*out_queue)->domain = self;
    (*out_queue)->domain->alive++;
    return GANTRY_OK;
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    work_off(queue, queue->count);
    return GANTRY_OK;
}

static void queue_close(void *self, gantry_queue *queue)
{
    work_off(queue, queue->count);
    queue->domain->alive--;
    free(queue->pending);
    free(queue);
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct copy_work {
    stub_domain *domain;
    gantry_copy_kind kind;
    gantry_buffer target, source;
    size_t bytes;
} copy_work;

static void do_copy(void *arg)
{
    const copy_work *c = arg;
    if (!c->bytes)
        return;
    uint8_t *target = stub_bytes(c->kind == GANTRY_COPY_TO_HOST ? NULL : c->domain, c->target, c->bytes);
    uint8_t *source = stub_bytes(c->kind == GANTRY_COPY_TO_DEVICE ? NULL : c->domain, c->source, c->bytes);
    if (target && source)
        memmove(target, source, c->bytes);
}

static gantry_status device_copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                                 gantry_buffer source, size_t bytes, gantry_error *err)
{
    copy_work *c = need(malloc(sizeof *c));
    *c = (copy_work){self, kind, target, source, bytes};
    stub_enqueue(queue, do_copy, c);
    return GANTRY_OK;
}

static gantry_status describe(void *self, gantry_domain_info *out_info)
{
    *out_info = ((stub_domain *)self)->entry.info;
    return GANTRY_OK;
}

void stub_domain_init(stub_domain *domain, uint32_t index, random_source *random)
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
                                      .copy = device_copy}};
    gantry_domain_info *info = &domain->entry.info;
    *info = (gantry_domain_info){.struct_bytes = sizeof *info,
                                 .alignment = 64,
                                 .separate_memory = 1,
                                 .to_device_ns = random_below(random, 2000),
                                 .to_host_ns = random_below(random, 2000),
                                 .to_device_bytes_per_ns = random_below(random, 3) * 0.5,
                                 .to_host_bytes_per_ns = random_below(random, 3) * 0.5,
                                 .cost_source = 'a'};
    snprintf(info->name, sizeof info->name, "stub:%u", index);
    domain->entry.table = &domain->table;
}
