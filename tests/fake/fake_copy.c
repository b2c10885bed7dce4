/* Memory that is handed out and copies: from and to the host, whose memory may be pinned, inside the device,
 * and from a peer. What was copied is counted when the queue does it. */
#include "fake.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static bool note_pinned(fake_domain *domain, void *address, size_t bytes)
{
    pthread_mutex_lock(&domain->pinned_lock);
    bool room = domain->pinned_count < FAKE_MAX_PINNED;
    if (room)
        domain->pinned[domain->pinned_count++] = (fake_pinned){address, bytes};
    pthread_mutex_unlock(&domain->pinned_lock);
    return room;
}

static void forget_pinned(fake_domain *domain, const void *address)
{
    pthread_mutex_lock(&domain->pinned_lock);
    for (uint32_t k = 0; k < domain->pinned_count; k++)
        if (domain->pinned[k].address == address)
            domain->pinned[k] = domain->pinned[--domain->pinned_count];
    pthread_mutex_unlock(&domain->pinned_lock);
}

static bool is_pinned(fake_domain *domain, const char *address, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&domain->pinned_lock);
    for (uint32_t k = 0; k < domain->pinned_count; k++)
        found |= address >= domain->pinned[k].address &&
                 address + bytes <= domain->pinned[k].address + domain->pinned[k].bytes;
    pthread_mutex_unlock(&domain->pinned_lock);
    return found;
}

static void *alloc_pinned(fake_domain *domain, size_t bytes)
{
    void *address = domain->host->alloc(domain->host, bytes, 64);
    if (address && note_pinned(domain, address, bytes))
        return address;
    domain->host->free(domain->host, address);
    return NULL;
}

gantry_status fake_domain_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                gantry_error *err)
{
    fake_domain *domain = self;
    *out_handle = NULL;
    if (kind == GANTRY_MEMORY_PINNED && !domain->config->pinned)
        return fake_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, "fake device: it has no pinned memory");
    gantry_status status = fake_call_begin(domain, &domain->script, FAKE_CALL_ALLOC, err);
    if (status != GANTRY_OK)
        return status;
    *out_handle = kind == GANTRY_MEMORY_PINNED ? alloc_pinned(domain, bytes)
                                               : fake_memory_alloc(&domain->memory, bytes);
    if (!*out_handle)
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN,
                         "fake device: no room for %zu bytes: %llu of %zu are in use", bytes,
                         (unsigned long long)fake_memory_live(&domain->memory), domain->memory.bytes);
    atomic_fetch_add(&domain->counters->allocations, 1);
    if (kind == GANTRY_MEMORY_DEVICE)
        atomic_fetch_add(&domain->counters->live_bytes, bytes ? bytes : 1);
    return GANTRY_OK;
}

void fake_domain_free(void *self, void *handle, gantry_memory_kind kind)
{
    fake_domain *domain = self;
    if (kind == GANTRY_MEMORY_PINNED) {
        forget_pinned(domain, handle);
        domain->host->free(domain->host, handle);
    } else if (handle) {
        atomic_fetch_sub(&domain->counters->live_bytes, fake_memory_free(&domain->memory, handle));
    }
}

/* A handle of its own, from another place: the block then lives until both have given it back. */
gantry_status fake_domain_import(void *self, void *native, size_t bytes, void **out_handle, gantry_error *err)
{
    fake_domain *domain = self;
    *out_handle = NULL;
    if (!fake_memory_share(&domain->memory, native, bytes))
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                         "fake device: %zu bytes at %p are no block of its memory", bytes, native);
    *out_handle = native;
    return GANTRY_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct copy_task {
    fake_domain *domain;
    fake_domain *peer; /* whose the source is; NULL: see kind */
    gantry_copy_kind kind;
    gantry_buffer target, source;
    size_t bytes;
} copy_task;

double fake_copy_ns(const fake_config *config, size_t bytes, bool pinned)
{
    double gbps = pinned || config->pageable_gbps == 0 ? config->transfer_gbps : config->pageable_gbps;
    if (config->copy_us >= 0)
        return config->copy_us * 1e3;
    return config->latency_us * 1e3 + (gbps > 0 ? (double)bytes / gbps : 0);
}

static void *resolve(fake_domain *domain, gantry_buffer buffer, size_t bytes)
{
    if (!domain)
        return buffer.handle ? (char *)buffer.handle + buffer.offset_bytes : NULL;
    return fake_memory_own(&domain->memory, buffer, bytes);
}

static gantry_status resolve_both(const copy_task *copy, void **out_target, void **out_source,
                                  gantry_error *err)
{
    fake_domain *own = copy->domain;
    *out_target = resolve(copy->kind == GANTRY_COPY_TO_HOST ? NULL : own, copy->target, copy->bytes);
    *out_source = resolve(copy->peer                            ? copy->peer
                          : copy->kind == GANTRY_COPY_TO_DEVICE ? NULL
                                                                : own,
                          copy->source, copy->bytes);
    if (copy->bytes && (!*out_target || !*out_source))
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                         "fake device: the %s of a copy of %zu bytes lies in no living block of its memory",
                         !*out_target ? "target" : "source", copy->bytes);
    return GANTRY_OK;
}

static void count_copy(const copy_task *copy, bool pinned)
{
    fake_counters *counters = copy->domain->counters;
    bool inside = copy->kind == GANTRY_COPY_INSIDE && !copy->peer;
    atomic_fetch_add(copy->peer ? &counters->peer_copies
                     : inside   ? &counters->inside_copies
                                : &counters->copies,
                     1);
    atomic_fetch_add(copy->peer ? &counters->peer_bytes
                     : inside   ? &counters->inside_bytes
                                : &counters->copied_bytes,
                     copy->bytes);
    if (pinned) {
        atomic_fetch_add(&counters->pinned_copies, 1);
        atomic_fetch_add(&counters->pinned_bytes, copy->bytes);
    }
}

static gantry_status do_copy(void *arg, gantry_error *err)
{
    const copy_task *copy = arg;
    fake_domain *domain = copy->domain;
    uint64_t begin = domain->host->now_ns(domain->host);
    void *target, *source;
    gantry_status status = resolve_both(copy, &target, &source, err);
    if (status != GANTRY_OK)
        return status;
    bool inside = copy->kind == GANTRY_COPY_INSIDE && !copy->peer;
    bool pinned = copy->kind != GANTRY_COPY_INSIDE &&
                  is_pinned(domain, copy->kind == GANTRY_COPY_TO_HOST ? target : source, copy->bytes);
    const char *what = inside                                ? "inside"
                       : copy->peer                          ? "from_peer"
                       : copy->kind == GANTRY_COPY_TO_DEVICE ? "to_device"
                                                             : "to_host";
    fake_note(domain, "begin %s %zu", what, copy->bytes);
    if (copy->bytes)
        memmove(target, source, copy->bytes);
    count_copy(copy, pinned);
    if (!inside)
        fake_sleep_until(domain,
                         begin + (uint64_t)fake_copy_ns(domain->config, copy->bytes, pinned || copy->peer));
    fake_note(domain, "end %s %zu", what, copy->bytes);
    return GANTRY_OK;
}

static gantry_status enqueue(gantry_queue *queue, const copy_task *copy, gantry_error *err)
{
    void *t, *s;
    if (!queue || (unsigned)copy->kind > GANTRY_COPY_INSIDE)
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                         "fake device: a copy needs a queue and one of three kinds (%d)", (int)copy->kind);
    gantry_status status = fake_call_begin(copy->domain, &copy->domain->script, FAKE_CALL_COPY, err);
    if (status == GANTRY_OK)
        status = resolve_both(copy, &t, &s, err);
    return status == GANTRY_OK ? fake_queue_push(queue, do_copy, copy, sizeof *copy, err) : status;
}

gantry_status fake_domain_copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                               gantry_buffer source, size_t bytes, gantry_error *err)
{
    return enqueue(queue, &(copy_task){self, NULL, kind, target, source, bytes}, err);
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Tables may be copies: what they lead to says whose they are. */
static fake_domain *fake_of(const gantry_domain *other)
{
    return other->alloc == fake_domain_alloc ? other->self : NULL;
}

int fake_domain_peer(void *self, const char *other_name, const gantry_domain *other)
{
    const fake_domain *domain = self;
    return domain->config->peers && fake_of(other) != NULL;
}

gantry_status fake_copy_from_peer(void *self, gantry_queue *queue, const gantry_domain *other,
                                  gantry_buffer target, gantry_buffer source, size_t bytes, gantry_error *err)
{
    if (!fake_of(other))
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, "fake device: that is no peer");
    return enqueue(queue, &(copy_task){self, fake_of(other), GANTRY_COPY_INSIDE, target, source, bytes}, err);
}

/* ---- measuring ------------------------------------------------------------------------------- */

#define PROBE_BYTES ((size_t)1 << 18)
#define PROBE_ROUNDS 5

typedef struct probe {
    fake_domain *domain;
    gantry_queue *queue;
    gantry_buffer device, host;
    gantry_error *err;
} probe;

/* The shortest of some copies. */
static gantry_status time_copy(const probe *p, gantry_copy_kind kind, size_t bytes, double *out_ns)
{
    const gantry_domain *table = &p->domain->table;
    gantry_buffer target = kind == GANTRY_COPY_TO_DEVICE ? p->device : p->host;
    gantry_buffer source = kind == GANTRY_COPY_TO_DEVICE ? p->host : p->device;
    for (int k = 0; k < PROBE_ROUNDS; k++) {
        uint64_t begin = p->domain->host->now_ns(p->domain->host);
        gantry_status status = table->copy(p->domain, p->queue, kind, target, source, bytes, p->err);
        if (status == GANTRY_OK)
            status = table->queue_sync(p->domain, p->queue, p->err);
        if (status != GANTRY_OK)
            return status;
        double ns = (double)(p->domain->host->now_ns(p->domain->host) - begin);
        *out_ns = k == 0 || ns < *out_ns ? ns : *out_ns;
    }
    return GANTRY_OK;
}

static gantry_status measure(const probe *p, gantry_copy_kind kind, double *out_ns, double *out_bytes_per_ns)
{
    double all = 0;
    gantry_status status = time_copy(p, kind, 64, out_ns);
    if (status == GANTRY_OK)
        status = time_copy(p, kind, PROBE_BYTES, &all);
    /* On a busy machine the small copies may have taken longer than the large ones. */
    *out_bytes_per_ns = all > *out_ns ? (double)(PROBE_BYTES - 64) / (all - *out_ns)
                                      : (double)PROBE_BYTES / (all > 1 ? all : 1);
    return status;
}

gantry_status fake_domain_probe(void *self, gantry_domain_info *inout_info, gantry_error *err)
{
    probe p = {.domain = self, .err = err};
    const gantry_domain *table = &p.domain->table;
    const gantry_host *host = p.domain->host;
    p.host.handle = fake_zeroed(host, 1, PROBE_BYTES);
    gantry_status status =
        p.host.handle ? table->queue_open(self, &p.queue, err) : fake_out_of_memory(err, GANTRY_STAGE_RUN);
    if (status == GANTRY_OK)
        status = table->alloc(self, PROBE_BYTES, GANTRY_MEMORY_DEVICE, &p.device.handle, err);
    if (status == GANTRY_OK)
        status = measure(&p, GANTRY_COPY_TO_DEVICE, &inout_info->to_device_ns,
                         &inout_info->to_device_bytes_per_ns);
    if (status == GANTRY_OK)
        status = measure(&p, GANTRY_COPY_TO_HOST, &inout_info->to_host_ns, &inout_info->to_host_bytes_per_ns);
    if (status == GANTRY_OK)
        inout_info->cost_source = 'm';
    if (p.device.handle)
        table->free(self, p.device.handle, GANTRY_MEMORY_DEVICE);
    if (p.queue)
        table->queue_close(self, p.queue);
    host->free(host, p.host.handle);
    return status;
}
