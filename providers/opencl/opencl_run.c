/* Contexts and running. A context holds the kernel objects, whose arguments only one thread may set; a run
 * sets buffers where bindings changed and enqueues everything on the in-order queue. */
#include "opencl_program.h"

struct gantry_context {
    gantry_shaped *shaped;
    cl_kernel *kernels; /* by launch; NULL: a copy, or nothing to do */
    uint64_t bindings;  /* of the last run whose buffers are set */
    const gantry_queue *queue;
    bool is_bound;
};

/* ---- contexts -------------------------------------------------------------------------------- */

static void context_destroy(void *self, gantry_context *context)
{
    if (!context)
        return;
    for (uint32_t k = 0; context->kernels && k < context->shaped->launch_count; k++)
        if (context->kernels[k])
            clReleaseKernel(context->kernels[k]);
    opencl_free(self, context->kernels);
    opencl_free(self, context);
}

/* What does not change from run to run. */
static cl_int set_data(const gantry_shaped *shaped, const opencl_launch *launch, cl_kernel kernel)
{
    cl_int result = CL_SUCCESS;
    cl_uint index = 0;
    for (uint32_t k = 0; k < launch->argument_count && result == CL_SUCCESS; k++) {
        const opencl_argument *a = &shaped->arguments[launch->argument_begin + k];
        if (a->kind == OPENCL_ARGUMENT_DATA)
            result = clSetKernelArg(kernel, index, a->bytes, shaped->data + a->at);
        else if (a->kind == OPENCL_ARGUMENT_LOCAL)
            result = clSetKernelArg(kernel, index, a->bytes, NULL);
        index += a->kind == OPENCL_ARGUMENT_BUFFER || a->kind == OPENCL_ARGUMENT_ERRORS ? 2 : 1;
    }
    return result;
}

static gantry_status make_kernel(const gantry_shaped *shaped, const opencl_launch *launch,
                                 cl_kernel *out_kernel, gantry_error *err)
{
    cl_int result;
    if (!launch->program || launch->dimensions == 0)
        return GANTRY_OK;
    *out_kernel = clCreateKernel(launch->program, launch->kernel, &result);
    if (result != CL_SUCCESS) {
        char call[80];
        snprintf(call, sizeof call, "clCreateKernel(\"%s\")", launch->kernel);
        *out_kernel = NULL;
        return opencl_check(result, call, err);
    }
    return opencl_check(set_data(shaped, launch, *out_kernel), "clSetKernelArg", err);
}

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    gantry_context *context = opencl_alloc(self, 1, sizeof *context);
    *out_context = NULL;
    if (!context)
        return opencl_out_of_memory(err);
    context->shaped = shaped;
    context->kernels = opencl_alloc(self, shaped->launch_count, sizeof(cl_kernel));
    gantry_status status = context->kernels ? GANTRY_OK : opencl_out_of_memory(err);
    for (uint32_t k = 0; context->kernels && status == GANTRY_OK && k < shaped->launch_count; k++)
        status = make_kernel(shaped, &shaped->launches[k], &context->kernels[k], err);
    if (status != GANTRY_OK) {
        context_destroy(self, context);
        return status;
    }
    *out_context = context;
    return GANTRY_OK;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static gantry_buffer resolve(const gantry_shaped *shaped, uint32_t place, const gantry_run_args *args)
{
    size_t offset;
    const opencl_place *p = &shaped->places[opencl_place_root(shaped, place, &offset)];
    gantry_buffer buffer = {NULL, 0};
    switch (p->kind) {
    case OPENCL_PLACE_INPUT:
        buffer = args->inputs[p->index];
        break;
    case OPENCL_PLACE_OUTPUT:
        buffer = args->outputs[p->index];
        break;
    case OPENCL_PLACE_WORKSPACE:
        buffer = args->workspace;
        offset += p->offset_bytes;
        break;
    case OPENCL_PLACE_FIXED:
        buffer.handle = p->memory;
        break;
    case OPENCL_PLACE_NONE:
        break;
    }
    buffer.offset_bytes += offset;
    return buffer;
}

/* A buffer takes two arguments: the memory object, and where the value begins in it. */
static cl_int set_buffers(const gantry_shaped *shaped, const opencl_launch *launch, cl_kernel kernel,
                          const gantry_run_args *args)
{
    cl_int result = CL_SUCCESS;
    cl_uint index = 0;
    for (uint32_t k = 0; k < launch->argument_count && result == CL_SUCCESS; k++, index++) {
        const opencl_argument *a = &shaped->arguments[launch->argument_begin + k];
        if (a->kind == OPENCL_ARGUMENT_ERRORS) {
            cl_mem words = opencl_errors_words(args->queue->errors);
            result = clSetKernelArg(kernel, index, sizeof(cl_mem), &words);
            if (result == CL_SUCCESS)
                result = clSetKernelArg(kernel, ++index, sizeof launch->site, &launch->site);
            continue;
        }
        if (a->kind != OPENCL_ARGUMENT_BUFFER)
            continue;
        gantry_buffer buffer = resolve(shaped, a->place, args);
        cl_mem memory = buffer.handle;
        cl_ulong offset = buffer.offset_bytes / a->element_bytes;
        result = clSetKernelArg(kernel, index, sizeof(cl_mem), memory ? &memory : NULL);
        if (result == CL_SUCCESS)
            result = clSetKernelArg(kernel, ++index, sizeof offset, &offset);
    }
    return result;
}

static gantry_status bind(gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    const gantry_shaped *shaped = context->shaped;
    bool same_queue = !shaped->may_fail || context->queue == args->queue;
    if (context->is_bound && context->bindings == args->bindings && same_queue)
        return GANTRY_OK;
    context->is_bound = false;
    for (uint32_t k = 0; k < shaped->launch_count; k++) {
        if (!context->kernels[k])
            continue;
        cl_int result = set_buffers(shaped, &shaped->launches[k], context->kernels[k], args);
        if (result != CL_SUCCESS)
            return opencl_check(result, "clSetKernelArg", err);
    }
    context->is_bound = true;
    context->bindings = args->bindings;
    context->queue = args->queue;
    return GANTRY_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static gantry_status enqueue(const gantry_context *context, uint32_t index, const gantry_run_args *args,
                             cl_event *out_event, gantry_error *err)
{
    const opencl_launch *launch = &context->shaped->launches[index];
    cl_command_queue commands = args->queue->commands;
    if (launch->program)
        return opencl_check(
            clEnqueueNDRangeKernel(commands, context->kernels[index], launch->dimensions, NULL, launch->size,
                                   launch->has_groups ? launch->groups : NULL, 0, NULL, out_event),
            launch->variant, err);
    gantry_buffer source = resolve(context->shaped, launch->source, args);
    gantry_buffer target = resolve(context->shaped, launch->target, args);
    return opencl_check(clEnqueueCopyBuffer(commands, source.handle, target.handle,
                                            source.offset_bytes + launch->source_offset,
                                            target.offset_bytes + launch->target_offset, launch->copy_bytes,
                                            0, NULL, out_event),
                        "clEnqueueCopyBuffer", err);
}

static gantry_status run_launch(const gantry_context *context, uint32_t index, const gantry_run_args *args,
                                uint32_t *inout_timed, gantry_error *err)
{
    cl_event event = NULL;
    bool timed = args->timing && *inout_timed < args->timing_capacity;
    if (!context->kernels[index] && context->shaped->launches[index].program)
        return GANTRY_OK;
    gantry_status status = enqueue(context, index, args, timed ? &event : NULL, err);
    if (event && opencl_time_kernel(args->queue, event, index, &args->timing[*inout_timed]))
        ++*inout_timed;
    return status;
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    uint32_t timed = 0;
    if (args->out_timing_count)
        *args->out_timing_count = 0;
    if (!args->queue)
        return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, "opencl: a run needs a queue");
    gantry_status status = bind(context, args, err);
    if (status == GANTRY_OK && context->shaped->may_fail) {
        status = opencl_check(opencl_errors_begin(args->queue->errors, args->queue->commands),
                              "clEnqueueFillBuffer", err);
        opencl_queue_watch(args->queue, opencl_errors_source(args->queue->errors));
    }
    for (uint32_t k = 0; status == GANTRY_OK && k < context->shaped->launch_count; k++) {
        if (gantry_stop_asked(args->stop))
            return GANTRY_CANCELLED;
        status = run_launch(context, k, args, &timed, err);
        if (args->out_timing_count)
            *args->out_timing_count = timed;
    }
    return status == GANTRY_OK ? opencl_check(clFlush(args->queue->commands), "clFlush", err) : status;
}

void opencl_run_table(opencl_device *device)
{
    gantry_provider *table = &device->provider;
    table->context_create = context_create;
    table->context_destroy = context_destroy;
    table->run = run;
}
