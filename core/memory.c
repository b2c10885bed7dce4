/* Memory in a domain, for callers that keep inputs and outputs on a device. */
#include "answer.h"
#include "runtime.h"

/* Finds a domain; it stays there until gt_runtime_domain_leave. */
static gantry_status use(gantry_runtime *runtime, const char *name, gt_domain_entry **out_domain,
                         gantry_error *err)
{
    *out_domain = NULL;
    if (!runtime || !name)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "runtime or the name of the domain is NULL");
    return gt_runtime_domain_use(runtime, name, out_domain)
               ? GANTRY_OK
               : gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL, "no domain is named %s",
                         name);
}

/* A block of the domain's that nobody else has; *out_handle is NULL on failure. */
static gantry_status alloc_in(const gantry_domain *table, const char *domain, size_t bytes, void **out_handle,
                              gantry_error *err)
{
    gt_error_clear(err);
    gantry_status status =
        table->alloc(table->self, bytes ? bytes : 1, GANTRY_MEMORY_DEVICE, out_handle, err);
    status = gt_domain_answer(domain, "alloc", GANTRY_STAGE_NONE, status, *out_handle, err);
    if (status != GANTRY_OK)
        *out_handle = NULL;
    return status;
}

gantry_status gantry_memory_alloc(gantry_runtime *runtime, const char *domain, size_t bytes,
                                  gantry_buffer *out_buffer, gantry_error *err)
{
    if (!out_buffer)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "gantry_memory_alloc: out_buffer is NULL");
    *out_buffer = (gantry_buffer){NULL, 0};
    gt_domain_entry *entry;
    GT_TRY(use(runtime, domain, &entry, err));
    const gantry_domain *table = entry->table;
    gantry_status status = GANTRY_OK;
    if (table)
        status = alloc_in(table, domain, bytes, &out_buffer->handle, err);
    else if (!(out_buffer->handle = gt_alloc(&runtime->allocator, bytes)))
        status = gt_out_of_memory(err, GANTRY_STAGE_NONE);
    if (status != GANTRY_OK)
        gt_runtime_domain_leave(runtime, entry);
    return status;
}

static gantry_status import(const gantry_domain *table, const char *domain, void *native, size_t bytes,
                            void **out_handle, gantry_error *err)
{
    gt_error_clear(err);
    gantry_status status = table->import(table->self, native, bytes, out_handle, err);
    status = gt_domain_answer(domain, "import", GANTRY_STAGE_NONE, status, *out_handle, err);
    if (status != GANTRY_OK)
        *out_handle = NULL;
    return status;
}

gantry_status gantry_memory_import(gantry_runtime *runtime, const char *domain, void *native, size_t bytes,
                                   gantry_buffer *out_buffer, gantry_error *err)
{
    if (!out_buffer)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "gantry_memory_import: out_buffer is NULL");
    *out_buffer = (gantry_buffer){NULL, 0};
    gt_domain_entry *entry;
    GT_TRY(use(runtime, domain, &entry, err));
    const gantry_domain *table = entry->table;
    gantry_status status;
    if (!table || !table->import)
        status = gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_NONE, NULL,
                         table ? "%s takes no memory of others; allocate it with gantry_memory_alloc"
                               : "memory of %s needs no import; bind its address",
                         domain);
    else
        status = import(table, domain, native, bytes, &out_buffer->handle, err);
    if (status != GANTRY_OK)
        gt_runtime_domain_leave(runtime, entry);
    return status;
}

void gantry_memory_free(gantry_runtime *runtime, const char *domain, gantry_buffer *buffer)
{
    gt_domain_entry *entry;
    if (!buffer || !buffer->handle || use(runtime, domain, &entry, NULL) != GANTRY_OK)
        return;
    if (entry->table)
        entry->table->free(entry->table->self, buffer->handle, GANTRY_MEMORY_DEVICE);
    else
        gt_free(&runtime->allocator, buffer->handle);
    *buffer = (gantry_buffer){NULL, 0};
    gt_runtime_domain_leave(runtime, entry); /* this call's use, and the block's */
    gt_runtime_domain_leave(runtime, entry);
}

/* One copy on a queue of its own. peer NULL: inside of the domain, or between it and the host. */
typedef struct copy {
    const gt_domain_entry *domain, *peer;
    gantry_copy_kind kind;
    gantry_buffer target, source;
    size_t bytes;
} copy;

static gantry_status enqueue(const copy *c, gantry_queue *queue, gantry_error *err)
{
    const gantry_domain *table = c->domain->table;
    return c->peer ? table->copy_from_peer(table->self, queue, c->peer->table, c->target, c->source, c->bytes,
                                           err)
                   : table->copy(table->self, queue, c->kind, c->target, c->source, c->bytes, err);
}

static gantry_status copy_and_wait(const copy *c, gantry_error *err)
{
    const gantry_domain *table = c->domain->table;
    const char *name = c->domain->info.name;
    gantry_queue *queue = NULL;
    gt_error_clear(err);
    gantry_status status = table->queue_open(table->self, &queue, err);
    GT_TRY(gt_domain_answer(name, "queue_open", GANTRY_STAGE_NONE, status, queue, err));
    status = gt_domain_answer(name, c->peer ? "copy_from_peer" : "copy", GANTRY_STAGE_NONE,
                              enqueue(c, queue, err), queue, err);
    gantry_error *after = status == GANTRY_OK ? err : NULL;
    gantry_status waited = table->queue_sync(table->self, queue, after);
    table->queue_close(table->self, queue);
    waited = gt_domain_answer(name, "queue_sync", GANTRY_STAGE_NONE, waited, table, after);
    return status == GANTRY_OK ? waited : status;
}

/* Far more than a latency's worth, and no large block of the host's. */
#define PIECE_BYTES ((size_t)4 << 20)

static gantry_status copy_through_host(gantry_runtime *runtime, const gt_domain_entry *to,
                                       gantry_buffer target, const gt_domain_entry *from,
                                       gantry_buffer source, size_t bytes, gantry_error *err)
{
    size_t room = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
    gantry_buffer piece = {gt_alloc(&runtime->allocator, room), 0};
    gantry_status status = piece.handle ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_NONE);
    while (status == GANTRY_OK && bytes) {
        size_t n = bytes < room ? bytes : room;
        status = copy_and_wait(&(copy){from, NULL, GANTRY_COPY_TO_HOST, piece, source, n}, err);
        if (status == GANTRY_OK)
            status = copy_and_wait(&(copy){to, NULL, GANTRY_COPY_TO_DEVICE, target, piece, n}, err);
        source.offset_bytes += n;
        target.offset_bytes += n;
        bytes -= n;
    }
    gt_free(&runtime->allocator, piece.handle);
    return status;
}

static bool are_peers(const gantry_domain *to, const gt_domain_entry *source_domain)
{
    return GANTRY_HAS(gantry_domain, to, peer) && GANTRY_HAS(gantry_domain, to, copy_from_peer) &&
           to->peer(to->self, source_domain->info.name, source_domain->table) == 1;
}

static gantry_status copy_between(gantry_runtime *runtime, const gt_domain_entry *to, gantry_buffer target,
                                  const gt_domain_entry *from, gantry_buffer source, size_t bytes,
                                  gantry_error *err)
{
    if (to->table && from->table && to != from)
        return are_peers(to->table, from)
                   ? copy_and_wait(&(copy){to, from, GANTRY_COPY_INSIDE, target, source, bytes}, err)
                   : copy_through_host(runtime, to, target, from, source, bytes, err);
    if (!to->table && !from->table) {
        memmove((char *)target.handle + target.offset_bytes,
                (const char *)source.handle + source.offset_bytes, bytes);
        return GANTRY_OK;
    }
    gantry_copy_kind kind = to->table && from->table ? GANTRY_COPY_INSIDE
                            : to->table              ? GANTRY_COPY_TO_DEVICE
                                                     : GANTRY_COPY_TO_HOST;
    return copy_and_wait(&(copy){to->table ? to : from, NULL, kind, target, source, bytes}, err);
}

gantry_status gantry_memory_copy(gantry_runtime *runtime, const char *target_domain, gantry_buffer target,
                                 const char *source_domain, gantry_buffer source, size_t bytes,
                                 gantry_error *err)
{
    gt_domain_entry *to, *from;
    GT_TRY(use(runtime, target_domain, &to, err));
    gantry_status status = use(runtime, source_domain, &from, err);
    if (status == GANTRY_OK && bytes)
        status = copy_between(runtime, to, target, from, source, bytes, err);
    gt_runtime_domain_leave(runtime, to);
    if (from)
        gt_runtime_domain_leave(runtime, from);
    return status;
}
