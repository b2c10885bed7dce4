/* Memory in a domain, for callers that keep inputs and outputs on a device. */
#include "runtime.h"

static gantry_status find(gantry_runtime *runtime, const char *name, const gantry_domain **out_table,
                          gantry_error *err)
{
    *out_table = NULL;
    if (!runtime || !name)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "runtime or the name of the domain is NULL");
    uint32_t index = gt_runtime_find_domain(runtime, name);
    if (index == UINT32_MAX)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL, "no domain is named %s", name);
    if (index != GT_HOST_DOMAIN)
        *out_table = gt_runtime_domain_at(runtime, index)->table;
    return GANTRY_OK;
}

gantry_status gantry_memory_alloc(gantry_runtime *runtime, const char *domain, size_t bytes,
                                  gantry_buffer *out_buffer, gantry_error *err)
{
    if (!out_buffer)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "gantry_memory_alloc: out_buffer is NULL");
    *out_buffer = (gantry_buffer){NULL, 0};
    const gantry_domain *table;
    GT_TRY(find(runtime, domain, &table, err));
    if (table)
        return table->alloc(table->self, bytes ? bytes : 1, GANTRY_MEMORY_DEVICE, &out_buffer->handle, err);
    out_buffer->handle = gt_alloc(&runtime->allocator, bytes);
    return out_buffer->handle ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_NONE);
}

void gantry_memory_free(gantry_runtime *runtime, const char *domain, gantry_buffer *buffer)
{
    const gantry_domain *table;
    if (!buffer || !buffer->handle || find(runtime, domain, &table, NULL) != GANTRY_OK)
        return;
    if (table)
        table->free(table->self, buffer->handle, GANTRY_MEMORY_DEVICE);
    else
        gt_free(&runtime->allocator, buffer->handle);
    *buffer = (gantry_buffer){NULL, 0};
}

static gantry_status copy_and_wait(const gantry_domain *table, gantry_copy_kind kind, gantry_buffer target,
                                   gantry_buffer source, size_t bytes, gantry_error *err)
{
    gantry_queue *queue = NULL;
    GT_TRY(table->queue_open(table->self, &queue, err));
    gantry_status status = table->copy(table->self, queue, kind, target, source, bytes, err);
    gantry_status waited = table->queue_sync(table->self, queue, status == GANTRY_OK ? err : NULL);
    table->queue_close(table->self, queue);
    return status == GANTRY_OK ? waited : status;
}

gantry_status gantry_memory_copy(gantry_runtime *runtime, const char *target_domain, gantry_buffer target,
                                 const char *source_domain, gantry_buffer source, size_t bytes,
                                 gantry_error *err)
{
    const gantry_domain *to, *from;
    GT_TRY(find(runtime, target_domain, &to, err));
    GT_TRY(find(runtime, source_domain, &from, err));
    if (bytes == 0)
        return GANTRY_OK;
    if (to && from && to != from)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_NONE, NULL,
                       "a copy from %s to %s has to go through the host: copy twice", source_domain,
                       target_domain);
    if (!to && !from) {
        memmove((char *)target.handle + target.offset_bytes,
                (const char *)source.handle + source.offset_bytes, bytes);
        return GANTRY_OK;
    }
    gantry_copy_kind kind = to && from ? GANTRY_COPY_INSIDE
                            : to       ? GANTRY_COPY_TO_DEVICE
                                       : GANTRY_COPY_TO_HOST;
    return copy_and_wait(to ? to : from, kind, target, source, bytes, err);
}
