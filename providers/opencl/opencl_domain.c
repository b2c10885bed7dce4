/* The domain "opencl:N": memory objects as handles, in-order queues, copies that do not wait, events. */
#include "opencl.h"

/* Queues that work at the same time: one computes, one copies. */
#define QUEUE_COUNT 2

struct gantry_event {
    cl_event event; /* of the last record; NULL before the first */
    /* What kernels before it may have written, and where it is read to. */
    opencl_source sources[OPENCL_ERROR_SOURCES];
    int32_t words[OPENCL_ERROR_SOURCES][OPENCL_ERROR_WORDS];
    uint32_t source_count;
};

/* What a call said, remembered when it was that the device is gone. */
static gantry_status check(opencl_device *device, cl_int result, const char *call, gantry_error *err)
{
    if (result == CL_DEVICE_NOT_AVAILABLE)
        __atomic_store_n(&device->lost, 1, __ATOMIC_RELAXED);
    return opencl_check(result, call, err);
}

static int lost(void *self)
{
    return __atomic_load_n(&((opencl_device *)self)->lost, __ATOMIC_RELAXED);
}

static gantry_status describe(void *self, gantry_domain_info *out_info)
{
    const opencl_device *device = self;
    snprintf(out_info->name, sizeof out_info->name, "%s", device->domain_name);
    snprintf(out_info->device, sizeof out_info->device, "%s", device->device_name);
    out_info->alignment = 64;
    out_info->separate_memory = 1;
    out_info->has_clock = 1;
    out_info->to_device_ns = device->speed.to_device_ns;
    out_info->to_host_ns = device->speed.to_host_ns;
    out_info->to_device_bytes_per_ns = device->speed.to_device_bytes_per_ns;
    out_info->to_host_bytes_per_ns = device->speed.to_host_bytes_per_ns;
    out_info->cost_source = device->speed.source;
    if (out_info->struct_bytes >= offsetof(gantry_domain_info, queue_count) + sizeof out_info->queue_count)
        out_info->queue_count = QUEUE_COUNT;
    return GANTRY_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gantry_status pinned_alloc(opencl_device *device, size_t bytes, void **out_handle, gantry_error *err)
{
    cl_int result = CL_OUT_OF_HOST_MEMORY;
    opencl_pinned *pinned = opencl_alloc(device, 1, sizeof *pinned);
    *out_handle = NULL;
    if (!pinned)
        return opencl_out_of_memory(err);
    pinned->memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                    bytes ? bytes : 1, NULL, &result);
    if (result != CL_SUCCESS) {
        opencl_free(device, pinned);
        return opencl_check(result, "clCreateBuffer", err);
    }
    pthread_mutex_lock(&device->memory_lock);
    pinned->address =
        clEnqueueMapBuffer(device->own_queue, pinned->memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                           bytes ? bytes : 1, 0, NULL, NULL, &result);
    if (result == CL_SUCCESS) {
        pinned->next = device->pinned;
        device->pinned = pinned;
        *out_handle = pinned->address;
    }
    pthread_mutex_unlock(&device->memory_lock);
    if (result == CL_SUCCESS)
        return GANTRY_OK;
    clReleaseMemObject(pinned->memory);
    opencl_free(device, pinned);
    return opencl_check(result, "clEnqueueMapBuffer", err);
}

static void pinned_free(opencl_device *device, void *address)
{
    pthread_mutex_lock(&device->memory_lock);
    opencl_pinned **link = &device->pinned;
    while (*link && (*link)->address != address)
        link = &(*link)->next;
    opencl_pinned *pinned = *link;
    if (pinned) {
        *link = pinned->next;
        clEnqueueUnmapMemObject(device->own_queue, pinned->memory, pinned->address, 0, NULL, NULL);
        clFinish(device->own_queue);
        clReleaseMemObject(pinned->memory);
    }
    pthread_mutex_unlock(&device->memory_lock);
    opencl_free(device, pinned);
}

static size_t memory_size(cl_mem memory)
{
    size_t bytes = 0;
    clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    return bytes;
}

static gantry_status device_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                  gantry_error *err)
{
    opencl_device *device = self;
    cl_int result = CL_SUCCESS;
    if (kind == GANTRY_MEMORY_PINNED)
        return pinned_alloc(device, bytes, out_handle, err);
    cl_mem memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &result);
    *out_handle = result == CL_SUCCESS ? memory : NULL;
    if (result != CL_SUCCESS)
        return opencl_fail(
            err, GANTRY_RESOURCE, GANTRY_STAGE_RUN,
            "%s: %zu bytes of memory: OpenCL error %d; the device has %llu, at most %llu in a piece",
            device->domain_name, bytes, result, (unsigned long long)device->memory_bytes,
            (unsigned long long)device->allocation_bytes_max);
    __atomic_fetch_add(&device->live_bytes, memory_size(memory), __ATOMIC_RELAXED);
    return GANTRY_OK;
}

static void device_free(void *self, void *handle, gantry_memory_kind kind)
{
    opencl_device *device = self;
    if (!handle)
        return;
    if (kind == GANTRY_MEMORY_PINNED) {
        pinned_free(device, handle);
        return;
    }
    __atomic_fetch_sub(&device->live_bytes, memory_size(handle), __ATOMIC_RELAXED);
    clReleaseMemObject(handle);
}

/* OpenCL does not say what others use: free is what this process left. */
static gantry_status memory_info(void *self, uint64_t *out_free_bytes, uint64_t *out_total_bytes)
{
    opencl_device *device = self;
    uint64_t used = __atomic_load_n(&device->live_bytes, __ATOMIC_RELAXED) +
                    __atomic_load_n(&device->constant_bytes, __ATOMIC_RELAXED);
    *out_total_bytes = device->memory_bytes;
    *out_free_bytes = used < device->memory_bytes ? device->memory_bytes - used : 0;
    return GANTRY_OK;
}

/* native is a cl_mem of this device's context, which a queue's native handle leads to. */
static gantry_status import_memory(void *self, void *native, size_t bytes, void **out_handle,
                                   gantry_error *err)
{
    opencl_device *device = self;
    cl_context context = NULL;
    *out_handle = NULL;
    if (!native ||
        clGetMemObjectInfo(native, CL_MEM_CONTEXT, sizeof(cl_context), &context, NULL) != CL_SUCCESS ||
        context != device->context)
        return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                           "%s: the handle is no cl_mem of the context that its queues have",
                           device->domain_name);
    if (memory_size(native) < bytes)
        return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                           "%s: the cl_mem has %zu bytes; %zu are needed", device->domain_name,
                           memory_size(native), bytes);
    clRetainMemObject(native);
    __atomic_fetch_add(&device->live_bytes, memory_size(native), __ATOMIC_RELAXED);
    *out_handle = native;
    return GANTRY_OK;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    opencl_device *device = self;
    cl_int result;
    gantry_queue *queue = opencl_alloc(device, 1, sizeof *queue);
    *out_queue = NULL;
    if (!queue)
        return opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, "%s: out of memory", device->domain_name);
    queue->device = device;
    queue->commands = clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &result);
    gantry_status status = opencl_check(result, "clCreateCommandQueue", err);
    if (status == GANTRY_OK)
        status = opencl_errors_open(device, &queue->errors, err);
    if (status != GANTRY_OK) {
        if (result == CL_SUCCESS)
            clReleaseCommandQueue(queue->commands);
        opencl_free(device, queue);
        return status;
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
    opencl_free(self, queue->timed);
    opencl_sources_drop(queue->sources, &queue->source_count);
    opencl_errors_release(queue->errors);
    clReleaseCommandQueue(queue->commands);
    opencl_free(self, queue);
}

bool opencl_time_kernel(gantry_queue *queue, cl_event event, uint32_t kernel_index,
                        gantry_timing_event *target)
{
    if (queue->timed_count == queue->timed_capacity) {
        uint32_t capacity = queue->timed_capacity ? 2 * queue->timed_capacity : 64;
        opencl_timed_kernel *timed = opencl_alloc(queue->device, capacity, sizeof *timed);
        if (!timed) {
            clReleaseEvent(event);
            return false;
        }
        if (queue->timed_count)
            memcpy(timed, queue->timed, queue->timed_count * sizeof *timed);
        opencl_free(queue->device, queue->timed);
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

/* The first error of those the queue watches; it watches none of them from then on. */
static gantry_status report_sources(opencl_device *device, gantry_queue *queue, gantry_error *err)
{
    int32_t words[OPENCL_ERROR_WORDS];
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; k < queue->source_count && status == GANTRY_OK; k++) {
        const opencl_source *source = &queue->sources[k];
        status = check(device, opencl_errors_read(source->errors, queue->commands, CL_TRUE, words),
                       "clEnqueueReadBuffer", err);
        if (status == GANTRY_OK)
            status = opencl_source_report(device, source, words, err);
    }
    opencl_sources_drop(queue->sources, &queue->source_count);
    return status;
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    gantry_status status = check(self, clFinish(queue->commands), "clFinish", err);
    if (queue->timed_count)
        read_times(queue);
    return status == GANTRY_OK ? report_sources(self, queue, err) : status;
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
        return check(self,
                     clEnqueueWriteBuffer(queue->commands, target.handle, CL_FALSE, target.offset_bytes,
                                          bytes, (char *)source.handle + source.offset_bytes, 0, NULL, NULL),
                     "clEnqueueWriteBuffer", err);
    case GANTRY_COPY_TO_HOST:
        return check(self,
                     clEnqueueReadBuffer(queue->commands, source.handle, CL_FALSE, source.offset_bytes, bytes,
                                         (char *)target.handle + target.offset_bytes, 0, NULL, NULL),
                     "clEnqueueReadBuffer", err);
    case GANTRY_COPY_INSIDE:
        return check(self,
                     clEnqueueCopyBuffer(queue->commands, source.handle, target.handle, source.offset_bytes,
                                         target.offset_bytes, bytes, 0, NULL, NULL),
                     "clEnqueueCopyBuffer", err);
    }
    return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, "opencl: copy kind %d is not known",
                       (int)kind);
}

/* ---- events ---------------------------------------------------------------------------------- */

static gantry_status event_create(void *self, gantry_event **out_event, gantry_error *err)
{
    *out_event = opencl_alloc(self, 1, sizeof **out_event);
    return *out_event ? GANTRY_OK
                      : opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, "opencl: out of memory");
}

static void event_destroy(void *self, gantry_event *event)
{
    if (!event)
        return;
    if (event->event)
        clReleaseEvent(event->event);
    opencl_sources_drop(event->sources, &event->source_count);
    opencl_free(self, event);
}

/* What kernels before the event found wrong comes with it, from whatever queue they were. */
static cl_int record_errors(gantry_queue *queue, gantry_event *event)
{
    cl_int result = CL_SUCCESS;
    opencl_sources_drop(event->sources, &event->source_count);
    memset(event->words, 0, sizeof event->words);
    for (uint32_t k = 0; k < queue->source_count && result == CL_SUCCESS; k++) {
        event->sources[event->source_count++] = queue->sources[k];
        opencl_errors_share(queue->sources[k].errors);
        result = opencl_errors_read(queue->sources[k].errors, queue->commands, CL_FALSE, event->words[k]);
    }
    return result;
}

/* Flushes: a queue that waits for the event must not wait for commands that were never handed over. */
static gantry_status event_record(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    cl_event fresh = NULL;
    cl_int result = record_errors(queue, event);
    if (result == CL_SUCCESS)
        result = clEnqueueMarkerWithWaitList(queue->commands, 0, NULL, &fresh);
    if (result != CL_SUCCESS)
        return check(self, result, "clEnqueueMarkerWithWaitList", err);
    if (event->event)
        clReleaseEvent(event->event);
    event->event = fresh;
    return check(self, clFlush(queue->commands), "clFlush", err);
}

static gantry_status event_wait(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    if (!event->event)
        return GANTRY_OK;
    for (uint32_t k = 0; k < event->source_count; k++)
        opencl_queue_watch(queue, event->sources[k]);
    return check(self, clEnqueueBarrierWithWaitList(queue->commands, 1, &event->event, NULL),
                 "clEnqueueBarrierWithWaitList", err);
}

static gantry_status event_sync(void *self, gantry_event *event, gantry_error *err)
{
    if (!event->event)
        return GANTRY_OK;
    gantry_status status = check(self, clWaitForEvents(1, &event->event), "clWaitForEvents", err);
    for (uint32_t k = 0; k < event->source_count && status == GANTRY_OK; k++)
        status = opencl_source_report(self, &event->sources[k], event->words[k], err);
    return status;
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

/* ---- the device's speed ---------------------------------------------------------------------- */

static gantry_status probe(void *self, gantry_domain_info *inout_info, gantry_error *err)
{
    opencl_device *device = self;
    opencl_speed speed;
    pthread_mutex_lock(&device->memory_lock);
    bool measured = opencl_copies_measure(device, &speed);
    pthread_mutex_unlock(&device->memory_lock);
    if (!measured)
        return opencl_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_RUN,
                           "%s: the copies that were to be timed failed", device->domain_name);
    inout_info->to_device_ns = speed.to_device_ns;
    inout_info->to_host_ns = speed.to_host_ns;
    inout_info->to_device_bytes_per_ns = speed.to_device_bytes_per_ns;
    inout_info->to_host_bytes_per_ns = speed.to_host_bytes_per_ns;
    inout_info->cost_source = 'm';
    return GANTRY_OK;
}

void opencl_domain_table(opencl_device *device)
{
    device->domain = (gantry_domain){.struct_bytes = sizeof device->domain,
                                     .self = device,
                                     .describe = describe,
                                     .alloc = device_alloc,
                                     .free = device_free,
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
