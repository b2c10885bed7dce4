/* Compiling: constants become memory objects, and the kernels of shapes that are known by now are built. */
#include "opencl_program.h"

void *opencl_alloc(const opencl_device *device, size_t count, size_t size)
{
    size_t wanted = count * size, bytes = wanted > 0 ? wanted : 1;
    void *memory = device->host->alloc(device->host, bytes, 64);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

void opencl_free(const opencl_device *device, void *memory)
{
    if (memory)
        device->host->free(device->host, memory);
}

gantry_status opencl_out_of_memory(gantry_error *err)
{
    return opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_COMPILE, "opencl: out of memory");
}

/* ---- constants ------------------------------------------------------------------------------- */

static void release_memory(void *self, void *data)
{
    clReleaseMemObject(data);
}

/* Plain bytes in memory of this context. */
static uint64_t packed_form(const opencl_device *device)
{
    return 0x6f70656e636cu ^ (uint64_t)(uintptr_t)device->context << 8;
}

static gantry_status make_memory(opencl_device *device, gantry_constants *constants, uint32_t id,
                                 cl_mem *out_memory, size_t *out_bytes, gantry_error *err)
{
    const gantry_host *host = device->host;
    const void *data;
    cl_int result;
    gantry_status status = host->constant_map(host, constants, id, &data, out_bytes, err);
    if (status != GANTRY_OK)
        return status;
    if (*out_bytes)
        *out_memory = clCreateBuffer(device->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, *out_bytes,
                                     (void *)data, &result);
    else
        *out_memory = clCreateBuffer(device->context, CL_MEM_READ_ONLY, 1, NULL, &result);
    host->constant_unmap(host, constants, id);
    return opencl_check(result, "clCreateBuffer", err);
}

/* Uploaded once for all sessions of the runtime, where the host keeps such things. */
static gantry_status share_constant(opencl_device *device, gantry_constants *constants, uint32_t id,
                                    opencl_constant *out, gantry_error *err)
{
    const gantry_host *host = device->host;
    bool shares = GANTRY_HAS(gantry_host, host, packed_put) && GANTRY_HAS(gantry_host, host, packed_get) &&
                  GANTRY_HAS(gantry_host, host, packed_release);
    out->packed.struct_bytes = sizeof out->packed;
    if (shares && host->packed_get(host, constants, id, packed_form(device), &out->packed) == GANTRY_OK) {
        out->memory = out->packed.data;
        out->bytes = out->packed.bytes;
        return GANTRY_OK;
    }
    out->packed.data = NULL;
    gantry_status status = make_memory(device, constants, id, &out->memory, &out->bytes, err);
    if (status != GANTRY_OK || !shares)
        return status;
    gantry_packed packed = {sizeof packed, out->memory, out->bytes, release_memory, device};
    status = host->packed_put(host, constants, id, packed_form(device), &packed, &out->packed, err);
    if (status != GANTRY_OK)
        out->packed.data = NULL;
    else
        out->memory = out->packed.data;
    return status;
}

static gantry_status copy_to_host(const opencl_device *device, gantry_constants *constants, uint32_t id,
                                  opencl_constant *out, gantry_error *err)
{
    const gantry_host *host = device->host;
    const void *data;
    size_t bytes;
    gantry_status status = host->constant_map(host, constants, id, &data, &bytes, err);
    if (status != GANTRY_OK)
        return status;
    out->host = opencl_alloc(device, bytes, 1);
    if (out->host && bytes)
        memcpy(out->host, data, bytes);
    host->constant_unmap(host, constants, id);
    return out->host ? GANTRY_OK : opencl_out_of_memory(err);
}

static gantry_status take_constant(gantry_program *program, gantry_constants *constants, uint32_t value,
                                   bool on_host, gantry_error *err)
{
    opencl_constant *constant = &program->constants[value];
    uint32_t id = program->graph->values[value]->constant_id;
    gantry_status status = GANTRY_OK;
    if (on_host && !constant->host)
        return copy_to_host(program->device, constants, id, constant, err);
    if (on_host || constant->memory)
        return GANTRY_OK;
    status = share_constant(program->device, constants, id, constant, err);
    if (status == GANTRY_OK) {
        program->constant_bytes += constant->bytes;
        __atomic_fetch_add(&program->device->constant_bytes, constant->bytes, __ATOMIC_RELAXED);
    }
    return status;
}

static gantry_status take_constants(gantry_program *program, gantry_constants *constants, gantry_error *err)
{
    const gantry_graph_view *graph = program->graph;
    gantry_status status = GANTRY_OK;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const gantry_node_view *node = graph->nodes[n];
        const opencl_op *op = opencl_op_find(node);
        for (uint32_t k = 0; k < node->input_count && status == GANTRY_OK; k++) {
            uint32_t value = node->inputs[k];
            bool on_host = op && k < 32 && op->host_inputs >> k & 1;
            if (value != GANTRY_NO_ID && graph->values[value]->constant_id != GANTRY_NO_ID)
                status = take_constant(program, constants, value, on_host, err);
        }
    }
    for (uint32_t k = 0; k < graph->output_count && status == GANTRY_OK; k++)
        if (graph->values[graph->outputs[k]]->constant_id != GANTRY_NO_ID)
            status = take_constant(program, constants, graph->outputs[k], false, err);
    return status;
}

static void drop_constant(const gantry_program *program, opencl_constant *constant)
{
    if (constant->packed.data)
        program->device->host->packed_release(program->device->host, &constant->packed);
    else if (constant->memory)
        clReleaseMemObject(constant->memory);
    opencl_free(program->device, constant->host);
}

static void program_destroy(void *self, gantry_program *program)
{
    if (!program)
        return;
    for (uint32_t v = 0; program->constants && v < program->graph->value_count; v++)
        drop_constant(program, &program->constants[v]);
    __atomic_fetch_sub(&program->device->constant_bytes, program->constant_bytes, __ATOMIC_RELAXED);
    opencl_free(self, program->constants);
    opencl_free(self, program);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Host inputs that are constants are there; false when one is not. */
static bool give_constants(const gantry_program *program, opencl_node *node)
{
    for (uint32_t k = 0; k < node->input_count && k < 32; k++)
        if (node->op->host_inputs >> k & 1 && opencl_is_there(&node->inputs[k])) {
            node->inputs[k].host = program->constants[node->inputs[k].value].host;
            if (!node->inputs[k].host)
                return false;
        }
    return true;
}

/* No dim is unknown; or, with typical, none is guessed to be 0. */
static bool has_dims(const gantry_graph_view *graph, const gantry_node_view *node, bool typical)
{
    for (uint32_t k = 0; k < node->input_count + node->output_count; k++) {
        const gantry_value_view *value = k < node->input_count
                                             ? gantry_node_input(graph, node, k)
                                             : gantry_node_output(graph, node, k - node->input_count);
        for (int32_t d = 0; value && d < value->rank; d++)
            if (typical ? value->typical_dims[d] < 1 : value->dims[d] == GANTRY_DIM_UNKNOWN)
                return false;
    }
    return true;
}

/* Prepares one node into the shaped program of the build. */
static void build_node(opencl_build *build, const gantry_program *program, const gantry_node_view *view)
{
    gantry_verdict verdict = {.struct_bytes = sizeof verdict};
    opencl_node node;
    bool typical = !has_dims(program->graph, view, false);
    if ((typical && !has_dims(program->graph, view, true)) ||
        !opencl_node_fill(program->device, program->graph, view, NULL, typical, &node, &verdict) ||
        !give_constants(program, &node))
        return;
    node.final = true;
    if (opencl_node_takes(&node, &verdict))
        opencl_chain_prepare(build, &node);
    if (typical && build->status == GANTRY_UNSUPPORTED)
        build->status = GANTRY_OK;
}

/* Prepares each node, with typical extents where they are not known, into a shaped program that is thrown
 * away: what it needs is then built. A driver that can't is found out here, where another provider can still
 * take over. */
static gantry_status build_kernels(gantry_program *program, gantry_recorder *recorder, gantry_error *err)
{
    const gantry_graph_view *graph = program->graph;
    opencl_build build = {.device = program->device, .err = err};
    build.status = opencl_shaped_new(program, &build.shaped, err);
    if (build.status == GANTRY_OK)
        opencl_chains_plan(&build, NULL, NULL);
    for (uint32_t n = 0; n < graph->node_count && build.status == GANTRY_OK; n++) {
        build.node = n;
        build_node(&build, program, graph->nodes[n]);
    }
    opencl_record_builds(program->device, recorder, &build.counts);
    opencl_chains_free(&build);
    opencl_shaped_free(build.shaped);
    return build.status;
}

/* ---- compile --------------------------------------------------------------------------------- */

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    gantry_program *program = opencl_alloc(self, 1, sizeof *program);
    *out_program = NULL;
    if (!program)
        return opencl_out_of_memory(err);
    program->device = self;
    program->graph = args->graph;
    program->constants = opencl_alloc(self, args->graph->value_count, sizeof *program->constants);
    gantry_status status =
        opencl_option_switch(self, args->session_options, "fast_math", &program->is_fast, err);
    program->is_fast = program->is_fast && !args->exact;
    program->fuses = true;
    if (status == GANTRY_OK)
        status = opencl_option_switch(self, args->session_options, "fuse", &program->fuses, err);
    if (status == GANTRY_OK)
        status =
            program->constants ? take_constants(program, args->constants, err) : opencl_out_of_memory(err);
    if (status == GANTRY_OK)
        status = build_kernels(program, args->recorder, err);
    if (status != GANTRY_OK) {
        program_destroy(self, program);
        return status;
    }
    *out_program = program;
    return GANTRY_OK;
}

static uint64_t memory(void *self, const gantry_program *program)
{
    return program->constant_bytes;
}

static uint32_t memory_classes(void *self, gantry_memory_class *out_classes, uint32_t capacity)
{
    opencl_device *device = self;
    if (capacity == 0)
        return 1;
    gantry_memory_class row = {.struct_bytes = sizeof row, .name = "weights"};
    row.bytes = __atomic_load_n(&device->constant_bytes, __ATOMIC_RELAXED);
    out_classes[0] = row;
    return 1;
}

void opencl_program_table(opencl_device *device)
{
    gantry_provider *table = &device->provider;
    table->compile = compile;
    table->program_destroy = program_destroy;
    table->memory = memory;
    table->memory_classes = memory_classes;
}
