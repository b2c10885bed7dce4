/* The inner domain under another name, with what it copies and hands out counted. */
#include "counted.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static gantry_status describe(void *self, gantry_domain_info *out_info)
{
    counted_device *d = self;
    gantry_status status = d->inner_domain->describe(d->inner_domain->self, out_info);
    snprintf(out_info->name, sizeof out_info->name, "%s", d->config->domain);
    if (GANTRY_HAS(gantry_domain_info, out_info, queue_count) && d->config->queues < out_info->queue_count)
        out_info->queue_count = d->config->queues ? d->config->queues : 1;
    return status;
}

static bool note_pinned(counted_device *d, void *address, size_t bytes)
{
    pthread_mutex_lock(&d->lock);
    bool room = d->pinned_count < FAKE_MAX_PINNED;
    if (room)
        d->pinned[d->pinned_count++] = (fake_pinned){address, bytes};
    pthread_mutex_unlock(&d->lock);
    return room;
}

static bool is_pinned(counted_device *d, const char *address, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&d->lock);
    for (uint32_t k = 0; k < d->pinned_count; k++)
        found |=
            address >= d->pinned[k].address && address + bytes <= d->pinned[k].address + d->pinned[k].bytes;
    pthread_mutex_unlock(&d->lock);
    return found;
}

static gantry_status alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                           gantry_error *err)
{
    counted_device *d = self;
    *out_handle = NULL;
    if (kind == GANTRY_MEMORY_PINNED && !d->config->pinned)
        return fake_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, "counted device: no pinned memory");
    gantry_status status = d->inner_domain->alloc(d->inner_domain->self, bytes, kind, out_handle, err);
    if (status != GANTRY_OK)
        return status;
    if (kind == GANTRY_MEMORY_PINNED && !note_pinned(d, *out_handle, bytes)) {
        d->inner_domain->free(d->inner_domain->self, *out_handle, kind);
        *out_handle = NULL;
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, "counted device: no room to note a block");
    }
    atomic_fetch_add(&d->counters->allocations, 1);
    return GANTRY_OK;
}

static void free_handle(void *self, void *handle, gantry_memory_kind kind)
{
    counted_device *d = self;
    pthread_mutex_lock(&d->lock);
    for (uint32_t k = 0; kind == GANTRY_MEMORY_PINNED && k < d->pinned_count; k++)
        if (d->pinned[k].address == handle)
            d->pinned[k] = d->pinned[--d->pinned_count];
    pthread_mutex_unlock(&d->lock);
    d->inner_domain->free(d->inner_domain->self, handle, kind);
}

static gantry_status memory_info(void *self, uint64_t *out_free_bytes, uint64_t *out_total_bytes)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->memory_info(inner->self, out_free_bytes, out_total_bytes);
}

static gantry_status import_memory(void *self, void *native, size_t bytes, void **out_handle,
                                   gantry_error *err)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->import(inner->self, native, bytes, out_handle, err);
}

/* ---- queues and copies ----------------------------------------------------------------------- */

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->queue_open(inner->self, out_queue, err);
}

static void queue_close(void *self, gantry_queue *queue)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    inner->queue_close(inner->self, queue);
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    counted_device *d = self;
    atomic_fetch_add(&d->counters->syncs, 1);
    return d->inner_domain->queue_sync(d->inner_domain->self, queue, err);
}

static void *queue_native(void *self, gantry_queue *queue)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->queue_native(inner->self, queue);
}

static void count(counted_device *d, gantry_copy_kind kind, const void *host_end, size_t bytes)
{
    bool inside = kind == GANTRY_COPY_INSIDE;
    atomic_fetch_add(inside ? &d->counters->inside_copies : &d->counters->copies, 1);
    atomic_fetch_add(inside ? &d->counters->inside_bytes : &d->counters->copied_bytes, bytes);
    if (inside || !is_pinned(d, host_end, bytes))
        return;
    atomic_fetch_add(&d->counters->pinned_copies, 1);
    atomic_fetch_add(&d->counters->pinned_bytes, bytes);
}

static gantry_status copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                          gantry_buffer source, size_t bytes, gantry_error *err)
{
    counted_device *d = self;
    gantry_buffer end = kind == GANTRY_COPY_TO_HOST ? target : source;
    gantry_status status =
        d->inner_domain->copy(d->inner_domain->self, queue, kind, target, source, bytes, err);
    if (status == GANTRY_OK)
        count(d, kind, (char *)end.handle + end.offset_bytes, bytes);
    return status;
}

/* ---- events ---------------------------------------------------------------------------------- */

static gantry_status event_create(void *self, gantry_event **out_event, gantry_error *err)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->event_create(inner->self, out_event, err);
}

static void event_destroy(void *self, gantry_event *event)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    inner->event_destroy(inner->self, event);
}

static gantry_status event_record(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->event_record(inner->self, queue, event, err);
}

static gantry_status event_wait(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->event_wait(inner->self, queue, event, err);
}

static gantry_status event_sync(void *self, gantry_event *event, gantry_error *err)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->event_sync(inner->self, event, err);
}

static gantry_status event_elapsed(void *self, gantry_event *from, gantry_event *to, double *out_ns)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->event_elapsed(inner->self, from, to, out_ns);
}

static int lost(void *self)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->lost(inner->self);
}

static gantry_status probe(void *self, gantry_domain_info *inout_info, gantry_error *err)
{
    const gantry_domain *inner = ((counted_device *)self)->inner_domain;
    return inner->probe(inner->self, inout_info, err);
}

void counted_domain_table(counted_device *device)
{
    device->domain = (gantry_domain){.struct_bytes = sizeof device->domain,
                                     .self = device,
                                     .describe = describe,
                                     .alloc = alloc,
                                     .free = free_handle,
                                     .memory_info = memory_info,
                                     .import = import_memory,
                                     .queue_open = queue_open,
                                     .queue_close = queue_close,
                                     .queue_sync = queue_sync,
                                     .queue_native = queue_native,
                                     .copy = copy,
                                     .event_create = event_create,
                                     .event_destroy = event_destroy,
                                     .event_record = event_record,
                                     .event_wait = event_wait,
                                     .event_sync = event_sync,
                                     .event_elapsed = event_elapsed,
                                     .lost = lost,
                                     .probe = probe};
}
