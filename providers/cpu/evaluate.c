/* One node computed at once on host memory: constant folding, shape arithmetic, and other providers' checks.
 */
#include "program.h"

typedef struct evaluation {
    cpu_build build;
    gt_arena arena;
    cpu_kernel kernel;
    const void **inputs;
    void **outputs;
    int64_t **true_dims;
} evaluation;

/* Shapes a cpu_tensor after t; t NULL or of type 0: left out. */
static gantry_status take_tensor(const gantry_tensor *t, cpu_tensor *out_tensor)
{
    *out_tensor = (cpu_tensor){.constant_id = GANTRY_NO_ID};
    if (!t || t->dtype == GANTRY_UNDEFINED)
        return GANTRY_OK;
    if (t->rank > GANTRY_MAX_RANK || t->strides)
        return GANTRY_INVALID_ARGUMENT;
    out_tensor->present = true;
    out_tensor->dtype = t->dtype;
    out_tensor->rank = t->rank;
    out_tensor->count = 1;
    for (uint32_t k = 0; k < t->rank; k++)
        out_tensor->count *= out_tensor->dims[k] = t->dims[k];
    return GANTRY_OK;
}

static void *address_of(const gantry_tensor *t)
{
    return t->buffer.handle ? (char *)t->buffer.handle + t->buffer.offset_bytes : NULL;
}

static gantry_status take_operands(evaluation *e, const gantry_tensor *inputs, const gantry_tensor *outputs)
{
    const gantry_node_view *node = e->build.node;
    for (uint32_t k = 0; k < node->input_count; k++) {
        bool given = node->inputs[k] != GANTRY_NO_ID;
        GT_TRY(take_tensor(given ? &inputs[k] : NULL, &e->build.inputs[k]));
        if (!e->build.inputs[k].present)
            continue;
        e->inputs[k] = address_of(&inputs[k]);
        e->build.inputs[k].data = e->inputs[k];
        e->build.inputs[k].constant = true;
    }
    for (uint32_t k = 0; k < node->output_count; k++) {
        bool given = node->outputs[k] != GANTRY_NO_ID;
        GT_TRY(take_tensor(given ? &outputs[k] : NULL, &e->build.outputs[k]));
        if (e->build.outputs[k].present)
            e->outputs[k] = address_of(&outputs[k]);
    }
    return GANTRY_OK;
}

static bool prepare(evaluation *e)
{
    const gantry_node_view *node = e->build.node;
    e->build.inputs = GT_ARENA_ARRAY(&e->arena, cpu_tensor, node->input_count);
    e->build.outputs = GT_ARENA_ARRAY(&e->arena, cpu_tensor, node->output_count);
    e->inputs = GT_ARENA_ARRAY(&e->arena, const void *, node->input_count);
    e->outputs = GT_ARENA_ARRAY(&e->arena, void *, node->output_count);
    e->true_dims = GT_ARENA_ARRAY(&e->arena, int64_t *, node->output_count);
    return e->build.inputs && e->build.outputs && e->inputs && e->outputs && e->true_dims;
}

static gantry_status check_types(const evaluation *e, const cpu_op_row *row)
{
    const cpu_build *build = &e->build;
    for (uint32_t k = 0; k < build->input_count; k++)
        if (build->inputs[k].present && !cpu_row_takes(row, k, build->inputs[k].dtype))
            return gt_fail(build->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, build->node->name,
                           "%s takes no %s as input %u", build->node->op,
                           cpu_dtype_name(build->inputs[k].dtype), k);
    for (uint32_t k = 0; k < build->output_count; k++)
        if (build->outputs[k].present && cpu_dtype_bits(build->outputs[k].dtype) == 0)
            return gt_fail(build->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, build->node->name,
                           "%s gives no %s", build->node->op, cpu_dtype_name(build->outputs[k].dtype));
    return GANTRY_OK;
}

static bool nothing_to_write(const cpu_build *build)
{
    for (uint32_t k = 0; k < build->output_count; k++)
        if (build->outputs[k].present && build->outputs[k].count)
            return false;
    return true;
}

/* Runs the kernel with everything it may ask for. */
static gantry_status run_kernel(evaluation *e)
{
    const cpu_kernel *kernel = &e->kernel;
    if (kernel->view_of_input >= 0) {
        const char *source = e->inputs[kernel->view_of_input];
        size_t bytes = cpu_tensor_bytes(&e->build.outputs[0]);
        if (bytes)
            memmove(e->outputs[0], source + kernel->view_offset_bytes, bytes);
        return GANTRY_OK;
    }
    cpu_provider *provider = e->build.provider;
    volatile int stop = 0;
    cpu_fault fault = {0};
    cpu_call call = {.inputs = e->inputs,
                     .outputs = e->outputs,
                     .threads = 1,
                     .true_dims = e->true_dims,
                     .stop = &stop,
                     .fault = &fault};
    gantry_status status = GANTRY_OK;
    call.scratch = cpu_alloc(provider, kernel->scratch_bytes);
    call.context = cpu_alloc(provider, kernel->context_bytes);
    if (!call.scratch || !call.context)
        status = GANTRY_RESOURCE;
    else {
        if (kernel->context_init)
            status = kernel->context_init(kernel->state, call.context, e->build.err);
        if (status == GANTRY_OK) {
            status = kernel->run(kernel->state, &call);
            if (kernel->context_destroy)
                kernel->context_destroy(kernel->state, call.context);
        }
    }
    cpu_free(provider, call.scratch);
    cpu_free(provider, call.context);
    if (fault.found)
        return gt_fail(e->build.err, status, GANTRY_STAGE_RUN, e->build.node->name,
                       "%s (node '%s'): input %u holds %lld, %lld to %lld are allowed", e->build.node->op,
                       e->build.node->name, fault.input, (long long)fault.value, (long long)fault.low,
                       (long long)fault.high);
    return status;
}

static gantry_status evaluate(evaluation *e, const gantry_tensor *inputs, const gantry_tensor *outputs)
{
    const gantry_node_view *node = e->build.node;
    gantry_error *err = e->build.err;
    const cpu_op_row *row = cpu_find_op(node->domain, node->op);
    if (!row)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, node->name, "the CPU has no kernel for %s",
                       node->op);
    if (!prepare(e))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    if (take_operands(e, inputs, outputs) != GANTRY_OK)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, node->name,
                       "%s is evaluated on dense tensors of rank %u or less only", node->op, GANTRY_MAX_RANK);
    GT_TRY(check_types(e, row));
    if (nothing_to_write(&e->build))
        return GANTRY_OK;
    GT_TRY(row->make(&e->build, &e->kernel));
    gantry_status status = run_kernel(e);
    if (status != GANTRY_OK)
        return gt_fail(err, status, GANTRY_STAGE_LOAD, node->name, "%s (node '%s') failed when evaluated",
                       node->op, node->name);
    return GANTRY_OK;
}

gantry_status cpu_evaluate(void *self, const gantry_graph_view *graph, uint32_t node_index,
                           const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err)
{
    cpu_provider *provider = self;
    const gantry_node_view *node = graph->nodes[node_index];
    evaluation e = {.build = {.provider = provider,
                              .host = provider->host,
                              .arena = &e.arena,
                              .scratch = &e.arena,
                              .graph = graph,
                              .node = node,
                              .input_count = node->input_count,
                              .output_count = node->output_count,
                              .threads = 1,
                              .err = err}};
    gt_arena_init(&e.arena, &provider->allocator);
    gantry_status status = evaluate(&e, inputs, outputs);
    if (e.kernel.destroy)
        e.kernel.destroy((void *)e.kernel.state);
    gt_arena_clear(&e.arena);
    return status;
}
