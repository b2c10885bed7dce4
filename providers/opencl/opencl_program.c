/* Programs on an OpenCL device: constants become memory objects and kernels are built at compile; reshape
 * fixes sizes and the workspace; a context holds the kernel objects, whose arguments only one thread may set.
 */
#include "opencl.h"

#include <stdlib.h>

struct gantry_program {
    opencl_device *device;
    const gantry_graph_view *graph;
    cl_mem *constants; /* by value index */
    uint64_t constant_bytes;
};

typedef enum place_kind { PLACE_NONE, PLACE_INPUT, PLACE_OUTPUT, PLACE_WORKSPACE, PLACE_CONSTANT } place_kind;

typedef struct place {
    place_kind kind;
    uint32_t index;
    size_t offset_bytes; /* in the workspace */
    size_t bytes;
    cl_mem memory; /* PLACE_CONSTANT */
} place;

/* An int8 of the kernel. Not cl_int8, which wants more alignment than calloc gives. */
typedef struct axis_numbers {
    cl_int s[8];
} axis_numbers;

/* What one node's kernel is called with, but for buffers. */
typedef struct launch {
    const char *kernel;
    cl_uint dimensions; /* 0: nothing to compute */
    size_t size[3];
    axis_numbers dims, a_strides, b_strides; /* add */
    cl_uint depth;                           /* matmul */
    cl_ulong a_batch, b_batch;
} launch;

struct gantry_shaped {
    gantry_program *program;
    place *places;    /* by value index */
    launch *launches; /* by node */
    size_t workspace_bytes;
};

struct gantry_context {
    gantry_shaped *shaped;
    cl_kernel *kernels; /* by node */
};

static gantry_status out_of_memory(gantry_error *err)
{
    return opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_COMPILE, "opencl: out of memory");
}

static void *zeroed(size_t count, size_t size)
{
    return calloc(count ? count : 1, size);
}

/* ---- compile --------------------------------------------------------------------------------- */

static gantry_status report_build_failure(opencl_device *device, cl_program program, cl_int result,
                                          gantry_error *err)
{
    char log[1024] = "";
    clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    return opencl_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_COMPILE, "clBuildProgram: OpenCL error %d: %s",
                       result, log);
}

/* Once for the device: later programs share it. */
static gantry_status build_kernels(opencl_device *device, gantry_error *err)
{
    gantry_status status = GANTRY_OK;
    pthread_mutex_lock(&device->lock);
    if (!device->program) {
        const char *source = opencl_source;
        cl_int result;
        cl_program program = clCreateProgramWithSource(device->context, 1, &source, NULL, &result);
        status = opencl_check(result, "clCreateProgramWithSource", err);
        if (status == GANTRY_OK &&
            (result = clBuildProgram(program, 1, &device->id, "", NULL, NULL)) != CL_SUCCESS)
            status = report_build_failure(device, program, result, err);
        if (status == GANTRY_OK)
            device->program = program;
        else if (program)
            clReleaseProgram(program);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

static gantry_status upload_constants(gantry_program *program, gantry_constants *constants, gantry_error *err)
{
    const gantry_host *host = program->device->host;
    for (uint32_t v = 0; v < program->graph->value_count; v++) {
        const void *data;
        size_t bytes;
        cl_int result;
        uint32_t id = program->graph->values[v]->constant_id;
        if (id == GANTRY_NO_ID)
            continue;
        gantry_status status = host->constant_map(host, constants, id, &data, &bytes, err);
        if (status != GANTRY_OK)
            return status;
        if (bytes)
            program->constants[v] =
                clCreateBuffer(program->device->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes,
                               (void *)data, &result);
        else
            program->constants[v] =
                clCreateBuffer(program->device->context, CL_MEM_READ_ONLY, 1, NULL, &result);
        host->constant_unmap(host, constants, id);
        status = opencl_check(result, "clCreateBuffer", err);
        if (status != GANTRY_OK)
            return status;
        program->constant_bytes += bytes;
    }
    return GANTRY_OK;
}

static void record_kernels(const gantry_program *program, gantry_recorder *recorder)
{
    for (uint32_t n = 0; n < program->graph->node_count; n++) {
        const gantry_node_view *node = program->graph->nodes[n];
        char name[64];
        snprintf(name, sizeof name, "opencl_%s", node->op);
        gantry_kernel_record record = {.struct_bytes = sizeof record,
                                       .index = n,
                                       .op = node->op,
                                       .name = name,
                                       .isa = program->device->device_name,
                                       .layout = "plain",
                                       .node_count = 1,
                                       .node_ids = &node->id,
                                       .precision_in = GANTRY_FLOAT32,
                                       .precision_out = GANTRY_FLOAT32,
                                       .accumulate = GANTRY_FLOAT32,
                                       .bytes = -1,
                                       .flops = -1};
        program->device->host->record_kernel(recorder, &record);
    }
}

static void program_destroy(void *self, gantry_program *program)
{
    if (!program)
        return;
    for (uint32_t v = 0; program->constants && v < program->graph->value_count; v++)
        if (program->constants[v])
            clReleaseMemObject(program->constants[v]);
    free(program->constants);
    free(program);
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    opencl_device *device = self;
    *out_program = NULL;
    gantry_status status = build_kernels(device, err);
    if (status != GANTRY_OK)
        return status;
    gantry_program *program = zeroed(1, sizeof *program);
    if (!program)
        return out_of_memory(err);
    program->device = device;
    program->graph = args->graph;
    program->constants = zeroed(args->graph->value_count, sizeof(cl_mem));
    status = program->constants ? upload_constants(program, args->constants, err) : out_of_memory(err);
    if (status != GANTRY_OK) {
        program_destroy(self, program);
        return status;
    }
    record_kernels(program, args->recorder);
    *out_program = program;
    return GANTRY_OK;
}

/* ---- reshape: what each kernel is launched with ---------------------------------------------- */

static int64_t count_elements(gantry_shape shape)
{
    int64_t count = 1;
    for (uint32_t k = 0; k < shape.rank; k++)
        count *= shape.dims[k];
    return count;
}

/* Strides of an operand along the axes of the result, innermost first; 0 where it is broadcast. */
static void broadcast_strides(gantry_shape operand, gantry_shape result, axis_numbers *out_strides)
{
    int64_t stride = 1;
    memset(out_strides, 0, sizeof *out_strides);
    for (uint32_t k = 0; k < result.rank && k < operand.rank; k++) {
        int64_t extent = operand.dims[operand.rank - 1 - k];
        out_strides->s[k] = extent == 1 ? 0 : (cl_int)stride;
        stride *= extent;
    }
}

static void prepare_add(launch *l, gantry_shape a, gantry_shape b, gantry_shape c)
{
    l->kernel = "add";
    for (uint32_t k = 0; k < OPENCL_MAX_RANK; k++)
        l->dims.s[k] = k < c.rank ? (cl_int)c.dims[c.rank - 1 - k] : 1;
    broadcast_strides(a, c, &l->a_strides);
    broadcast_strides(b, c, &l->b_strides);
}

static void prepare_matmul(launch *l, gantry_shape a, gantry_shape b, gantry_shape c)
{
    int64_t rows = c.dims[c.rank - 2], columns = c.dims[c.rank - 1], depth = a.dims[a.rank - 1];
    l->kernel = "matmul";
    l->dimensions = rows && columns && count_elements(c) ? 3 : 0;
    l->size[0] = (size_t)columns;
    l->size[1] = (size_t)rows;
    l->size[2] = l->dimensions ? (size_t)(count_elements(c) / (rows * columns)) : 0;
    l->depth = (cl_uint)depth;
    l->a_batch = (cl_ulong)(rows * depth);
    l->b_batch = b.rank == 2 ? 0 : (cl_ulong)(depth * columns);
}

static bool prepare_node(const gantry_graph_view *graph, const gantry_node_view *node,
                         const gantry_shape *shapes, launch *l, gantry_verdict *verdict)
{
    gantry_shape a = shapes[node->inputs[0]], c = shapes[node->outputs[0]];
    gantry_shape b = node->input_count > 1 ? shapes[node->inputs[1]] : a;
    if (!opencl_takes_shapes(node, graph->values[node->inputs[0]]->name, a, b, verdict))
        return false;
    if (count_elements(c) > INT32_MAX) {
        gantry_refuse(verdict, GANTRY_REFUSE_shape_limit, graph->values[node->outputs[0]]->name, "",
                      "fewer than 2^31 elements", "");
        verdict->refusal.actual_number = (double)count_elements(c);
        verdict->refusal.limit_number = INT32_MAX;
        return false;
    }
    l->dimensions = count_elements(c) ? 1 : 0;
    l->size[0] = (size_t)count_elements(c);
    l->kernel = "relu";
    if (strcmp(node->op, "Add") == 0)
        prepare_add(l, a, b, c);
    else if (strcmp(node->op, "MatMul") == 0)
        prepare_matmul(l, a, b, c);
    return true;
}

static gantry_status prepare_launches(gantry_shaped *shaped, const gantry_reshape_args *args,
                                      gantry_shaped_info *out_info, gantry_error *err)
{
    const gantry_graph_view *graph = shaped->program->graph;
    out_info->refused_count = 0;
    for (uint32_t n = 0; n < graph->node_count && out_info->refused_count < 16; n++) {
        gantry_verdict verdict = {.struct_bytes = sizeof verdict};
        if (prepare_node(graph, graph->nodes[n], args->shapes, &shaped->launches[n], &verdict))
            continue;
        if (out_info->refused_count == 0)
            out_info->refusal = verdict.refusal;
        out_info->refused_nodes[out_info->refused_count++] = graph->nodes[n]->id;
    }
    if (out_info->refused_count == 0)
        return GANTRY_OK;
    return opencl_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, "opencl: %s: %s, and it takes %s",
                       out_info->refusal.operand, out_info->refusal.actual, out_info->refusal.required);
}

/* ---- reshape: where each value lies ---------------------------------------------------------- */

static void place_values(gantry_shaped *shaped, const gantry_reshape_args *args)
{
    const gantry_program *program = shaped->program;
    const gantry_graph_view *graph = program->graph;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        shaped->places[v].bytes = (size_t)count_elements(args->shapes[v]) * sizeof(float);
        shaped->places[v].memory = program->constants[v];
        shaped->places[v].kind = program->constants[v] ? PLACE_CONSTANT : PLACE_NONE;
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        shaped->places[graph->outputs[k]].kind = PLACE_OUTPUT;
        shaped->places[graph->outputs[k]].index = k;
    }
    for (uint32_t k = 0; k < graph->input_count; k++) {
        shaped->places[graph->inputs[k]].kind = PLACE_INPUT;
        shaped->places[graph->inputs[k]].index = k;
    }
}

/* A value that no buffer of the host holds lives in the workspace from the node that makes it to its last
 * reader. */
static gantry_status plan_workspace(gantry_shaped *shaped, gantry_error *err)
{
    const gantry_graph_view *graph = shaped->program->graph;
    const gantry_host *host = shaped->program->device->host;
    uint32_t count = graph->node_count;
    uint32_t *first = zeroed(2 * (size_t)count, sizeof *first), *last = first + count;
    size_t *bytes = zeroed(2 * (size_t)count, sizeof *bytes), *offsets = bytes + count;
    gantry_status status = first && bytes ? GANTRY_OK : out_of_memory(err);
    for (uint32_t n = 0; status == GANTRY_OK && n < count; n++) {
        uint32_t value = graph->nodes[n]->outputs[0];
        first[n] = last[n] = n;
        if (shaped->places[value].kind != PLACE_NONE)
            continue;
        bytes[n] = shaped->places[value].bytes;
        for (uint32_t r = n + 1; r < count; r++)
            for (uint32_t k = 0; k < graph->nodes[r]->input_count; k++)
                if (graph->nodes[r]->inputs[k] == value)
                    last[n] = r;
    }
    if (status == GANTRY_OK)
        status = host->plan_memory(host, count, bytes, first, last, offsets, &shaped->workspace_bytes, err);
    for (uint32_t n = 0; status == GANTRY_OK && n < count; n++) {
        place *p = &shaped->places[graph->nodes[n]->outputs[0]];
        if (p->kind == PLACE_NONE) {
            p->kind = PLACE_WORKSPACE;
            p->offset_bytes = offsets[n];
        }
    }
    free(first);
    free(bytes);
    return status;
}

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    if (!shaped)
        return;
    free(shaped->places);
    free(shaped->launches);
    free(shaped);
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    *out_shaped = NULL;
    gantry_shaped *shaped = zeroed(1, sizeof *shaped);
    if (!shaped)
        return out_of_memory(err);
    shaped->program = program;
    shaped->places = zeroed(program->graph->value_count, sizeof *shaped->places);
    shaped->launches = zeroed(program->graph->node_count, sizeof *shaped->launches);
    gantry_status status = shaped->places && shaped->launches ? prepare_launches(shaped, args, out_info, err)
                                                              : out_of_memory(err);
    if (status == GANTRY_OK) {
        place_values(shaped, args);
        status = plan_workspace(shaped, err);
    }
    if (status != GANTRY_OK) {
        shaped_destroy(self, shaped);
        return status;
    }
    out_info->workspace_bytes = shaped->workspace_bytes;
    *out_shaped = shaped;
    return GANTRY_OK;
}

/* ---- contexts and running -------------------------------------------------------------------- */

static void context_destroy(void *self, gantry_context *context)
{
    if (!context)
        return;
    for (uint32_t n = 0; context->kernels && n < context->shaped->program->graph->node_count; n++)
        if (context->kernels[n])
            clReleaseKernel(context->kernels[n]);
    free(context->kernels);
    free(context);
}

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    opencl_device *device = self;
    uint32_t count = shaped->program->graph->node_count;
    *out_context = NULL;
    gantry_context *context = zeroed(1, sizeof *context);
    if (!context)
        return out_of_memory(err);
    context->shaped = shaped;
    context->kernels = zeroed(count, sizeof(cl_kernel));
    gantry_status status = context->kernels ? GANTRY_OK : out_of_memory(err);
    for (uint32_t n = 0; status == GANTRY_OK && n < count; n++) {
        cl_int result;
        context->kernels[n] = clCreateKernel(device->program, shaped->launches[n].kernel, &result);
        status = opencl_check(result, "clCreateKernel", err);
    }
    if (status != GANTRY_OK) {
        context_destroy(self, context);
        return status;
    }
    *out_context = context;
    return GANTRY_OK;
}

static gantry_buffer resolve(const place *p, const gantry_run_args *args)
{
    switch (p->kind) {
    case PLACE_INPUT:
        return args->inputs[p->index];
    case PLACE_OUTPUT:
        return args->outputs[p->index];
    case PLACE_WORKSPACE:
        return (gantry_buffer){args->workspace.handle, args->workspace.offset_bytes + p->offset_bytes};
    case PLACE_CONSTANT:
        return (gantry_buffer){p->memory, 0};
    case PLACE_NONE:
        break;
    }
    return (gantry_buffer){NULL, 0};
}

static cl_int set_argument(cl_kernel kernel, cl_uint *inout_index, size_t bytes, const void *value)
{
    return clSetKernelArg(kernel, (*inout_index)++, bytes, value);
}

/* A buffer takes two arguments: the memory object, and where the value begins in it. */
static cl_int set_buffer(cl_kernel kernel, cl_uint *inout_index, gantry_buffer buffer)
{
    cl_mem memory = buffer.handle;
    cl_ulong offset = buffer.offset_bytes / sizeof(float);
    cl_int result = set_argument(kernel, inout_index, sizeof(cl_mem), &memory);
    return result == CL_SUCCESS ? set_argument(kernel, inout_index, sizeof offset, &offset) : result;
}

static cl_int set_numbers(cl_kernel kernel, cl_uint index, const launch *l)
{
    cl_int result = CL_SUCCESS;
    if (strcmp(l->kernel, "add") == 0) {
        result |= set_argument(kernel, &index, sizeof l->dims, &l->dims);
        result |= set_argument(kernel, &index, sizeof l->a_strides, &l->a_strides);
        result |= set_argument(kernel, &index, sizeof l->b_strides, &l->b_strides);
    } else if (strcmp(l->kernel, "matmul") == 0) {
        result |= set_argument(kernel, &index, sizeof l->depth, &l->depth);
        result |= set_argument(kernel, &index, sizeof l->a_batch, &l->a_batch);
        result |= set_argument(kernel, &index, sizeof l->b_batch, &l->b_batch);
    }
    return result;
}

static gantry_status run_node(gantry_context *context, uint32_t n, const gantry_run_args *args,
                              uint32_t *inout_timed, gantry_error *err)
{
    const gantry_shaped *shaped = context->shaped;
    const gantry_node_view *node = shaped->program->graph->nodes[n];
    const launch *l = &shaped->launches[n];
    cl_uint index = 0;
    cl_int result = CL_SUCCESS;
    if (l->dimensions == 0)
        return GANTRY_OK;
    for (uint32_t k = 0; result == CL_SUCCESS && k < node->input_count; k++)
        result = set_buffer(context->kernels[n], &index, resolve(&shaped->places[node->inputs[k]], args));
    if (result == CL_SUCCESS)
        result = set_buffer(context->kernels[n], &index, resolve(&shaped->places[node->outputs[0]], args));
    if (result == CL_SUCCESS)
        result = set_numbers(context->kernels[n], index, l);
    if (result != CL_SUCCESS)
        return opencl_check(result, "clSetKernelArg", err);
    cl_event event = NULL;
    bool timed = args->timing && *inout_timed < args->timing_capacity;
    result = clEnqueueNDRangeKernel(args->queue->commands, context->kernels[n], l->dimensions, NULL, l->size,
                                    NULL, 0, NULL, timed ? &event : NULL);
    if (event && opencl_time_kernel(args->queue, event, n, &args->timing[*inout_timed]))
        ++*inout_timed;
    return opencl_check(result, "clEnqueueNDRangeKernel", err);
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    uint32_t timed = 0;
    if (args->out_timing_count)
        *args->out_timing_count = 0;
    if (!args->queue)
        return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, "opencl: a run needs a queue");
    for (uint32_t n = 0; n < context->shaped->program->graph->node_count; n++) {
        if (gantry_stop_asked(args->stop))
            return GANTRY_CANCELLED;
        gantry_status status = run_node(context, n, args, &timed, err);
        if (args->out_timing_count)
            *args->out_timing_count = timed;
        if (status != GANTRY_OK)
            return status;
    }
    return opencl_check(clFlush(args->queue->commands), "clFlush", err);
}

static uint64_t memory(void *self, const gantry_program *program)
{
    return program->constant_bytes;
}

void opencl_program_table(opencl_device *device)
{
    gantry_provider *table = &device->provider;
    table->compile = compile;
    table->program_destroy = program_destroy;
    table->reshape = reshape;
    table->shaped_destroy = shaped_destroy;
    table->context_create = context_create;
    table->context_destroy = context_destroy;
    table->run = run;
    table->memory = memory;
}
