/* The domain "opencl:N": memory objects as handles, in-order queues, copies that do not wait, events. */
#include "opencl.h"

#include <stdlib.h>

struct gantry_event {
    cl_event event; /* of the last record; NULL before the first */
};

static gantry_status describe(void *self, gantry_domain_info *out_info)
{
    const opencl_device *device = self;
    snprintf(out_info->name, sizeof out_info->name, "%s", device->domain_name);
    snprintf(out_info->device, sizeof out_info->device, "%s", device->device_name);
    out_info->alignment = 64;
    out_info->separate_memory = 1;
    out_info->has_clock = 1;
    out_info->to_device_ns = out_info->to_host_ns = device->speed.copy_ns;
    out_info->to_device_bytes_per_ns = out_info->to_host_bytes_per_ns = device->speed.copy_bytes_per_ns;
    out_info->cost_source = device->speed.source;
    return GANTRY_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gantry_status device_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                  gantry_error *err)
{
    opencl_device *device = self;
    cl_int result = CL_SUCCESS;
    if (kind == GANTRY_MEMORY_PINNED) {
        *out_handle = device->host->alloc(device->host, bytes, 64);
        result = *out_handle ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    } else {
        *out_handle = clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &result);
    }
    if (result == CL_SUCCESS)
        return GANTRY_OK;
    *out_handle = NULL;
    return opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, "%s: %zu bytes of memory: OpenCL error %d",
                       device->domain_name, bytes, result);
}

static void device_free(void *self, void *handle, gantry_memory_kind kind)
{
    opencl_device *device = self;
    if (kind == GANTRY_MEMORY_PINNED)
        device->host->free(device->host, handle);
    else if (handle)
        clReleaseMemObject(handle);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    opencl_device *device = self;
    cl_int result;
    gantry_queue *queue = calloc(1, sizeof *queue);
    *out_queue = NULL;
    if (!queue)
        return opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, "%s: out of memory", device->domain_name);
    queue->commands = clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &result);
    if (result != CL_SUCCESS) {
        free(queue);
        return opencl_check(result, "clCreateCommandQueue", err);
    }
    *out_queue = queue;
    return GANTRY_OK;
}

static void queue_close(void *self, gantry_queue *queue)
{
    if (!queue)
        return;
    clFinish(queue->commands);
    for (uint32_t k = 0; k < queue->timed_count; k++)
        clReleaseEvent(queue->timed[k].event);
    free(queue->timed);
    clReleaseCommandQueue(queue->commands);
    free(queue);
}

bool opencl_time_kernel(gantry_queue *queue, cl_event event, uint32_t kernel_index,
                        gantry_timing_event *target)
{
    if (queue->timed_count == queue->timed_capacity) {
        uint32_t capacity = queue->timed_capacity ? 2 * queue->timed_capacity : 64;
        opencl_timed_kernel *timed = realloc(queue->timed, capacity * sizeof *timed);
        if (!timed) {
            clReleaseEvent(event);
            return false;
        }
        queue->timed = timed;
        queue->timed_capacity = capacity;
    }
    queue->timed[queue->timed_count++] = (opencl_timed_kernel){event, kernel_index, target};
    return true;
}

/* A kernel whose times can't be read is one of an index that nobody asks for. */
static void read_times(gantry_queue *queue)
{
    for (uint32_t k = 0; k < queue->timed_count; k++) {
        const opencl_timed_kernel *timed = &queue->timed[k];
        cl_ulong begin = 0, end = 0;
        bool known = clGetEventProfilingInfo(timed->event, CL_PROFILING_COMMAND_START, sizeof begin, &begin,
                                             NULL) == CL_SUCCESS &&
                     clGetEventProfilingInfo(timed->event, CL_PROFILING_COMMAND_END, sizeof end, &end,
                                             NULL) == CL_SUCCESS &&
                     end >= begin;
        *timed->target =
            (gantry_timing_event){known ? timed->kernel_index : GANTRY_NO_ID, begin, end - begin};
        clReleaseEvent(timed->event);
    }
    queue->timed_count = 0;
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    cl_int result = clFinish(queue->commands);
    if (queue->timed_count)
        read_times(queue);
    return opencl_check(result, "clFinish", err);
}

static void *queue_native(void *self, gantry_queue *queue)
{
    return queue->commands;
}

static gantry_status copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                          gantry_buffer source, size_t bytes, gantry_error *err)
{
    if (bytes == 0)
        return GANTRY_OK;
    if (!queue || !target.handle || !source.handle)
        return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                           "opencl: a copy of %zu bytes without a %s", bytes,
                           !queue           ? "queue"
                           : !target.handle ? "target"
                                            : "source");
    switch (kind) {
    case GANTRY_COPY_TO_DEVICE:
        return opencl_check(clEnqueueWriteBuffer(queue->commands, target.handle, CL_FALSE,
                                                 target.offset_bytes, bytes,
                                                 (char *)source.handle + source.offset_bytes, 0, NULL, NULL),
                            "clEnqueueWriteBuffer", err);
    case GANTRY_COPY_TO_HOST:
        return opencl_check(clEnqueueReadBuffer(queue->commands, source.handle, CL_FALSE, source.offset_bytes,
                                                bytes, (char *)target.handle + target.offset_bytes, 0, NULL,
                                                NULL),
                            "clEnqueueReadBuffer", err);
    case GANTRY_COPY_INSIDE:
        return opencl_check(clEnqueueCopyBuffer(queue->commands, source.handle, target.handle,
                                                source.offset_bytes, target.offset_bytes, bytes, 0, NULL,
                                                NULL),
                            "clEnqueueCopyBuffer", err);
    }
    return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, "opencl: copy kind %d is not known",
                       (int)kind);
}

/* ---- events ---------------------------------------------------------------------------------- */

static gantry_status event_create(void *self, gantry_event **out_event, gantry_error *err)
{
    *out_event = calloc(1, sizeof **out_event);
    return *out_event ? GANTRY_OK
                      : opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, "opencl: out of memory");
}

static void event_destroy(void *self, gantry_event *event)
{
    if (event && event->event)
        clReleaseEvent(event->event);
    free(event);
}

/* Flushes: a queue that waits for the event must not wait for commands that were never handed over. */
static gantry_status event_record(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    cl_event fresh = NULL;
    cl_int result = clEnqueueMarkerWithWaitList(queue->commands, 0, NULL, &fresh);
    if (result != CL_SUCCESS)
        return opencl_check(result, "clEnqueueMarkerWithWaitList", err);
    if (event->event)
        clReleaseEvent(event->event);
    event->event = fresh;
    return opencl_check(clFlush(queue->commands), "clFlush", err);
}

static gantry_status event_wait(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    if (!event->event)
        return GANTRY_OK;
    return opencl_check(clEnqueueBarrierWithWaitList(queue->commands, 1, &event->event, NULL),
                        "clEnqueueBarrierWithWaitList", err);
}

static gantry_status event_sync(void *self, gantry_event *event, gantry_error *err)
{
    return event->event ? opencl_check(clWaitForEvents(1, &event->event), "clWaitForEvents", err) : GANTRY_OK;
}

static bool end_time(gantry_event *event, cl_ulong *out_ns)
{
    return event->event && clWaitForEvents(1, &event->event) == CL_SUCCESS &&
           clGetEventProfilingInfo(event->event, CL_PROFILING_COMMAND_END, sizeof *out_ns, out_ns, NULL) ==
               CL_SUCCESS;
}

static gantry_status event_elapsed(void *self, gantry_event *from, gantry_event *to, double *out_ns)
{
    cl_ulong begin, end;
    *out_ns = 0;
    if (!end_time(from, &begin) || !end_time(to, &end))
        return GANTRY_UNSUPPORTED;
    *out_ns = (double)((cl_long)end - (cl_long)begin);
    return GANTRY_OK;
}

void opencl_domain_table(opencl_device *device)
{
    device->domain = (gantry_domain){.struct_bytes = sizeof device->domain,
                                     .self = device,
                                     .describe = describe,
                                     .alloc = device_alloc,
                                     .free = device_free,
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
                                     .event_elapsed = event_elapsed};
}
