/* DequantizeLinear of constants whose readers compute with floats: done once, when the program is compiled,
 * so that its result is a constant like any other (packed by convolutions and products). */
#include "fusion_qdq.h"

#include "base/map.h"

static bool is_known(const gantry_value_view *value)
{
    bool known = value->rank >= 0 && value->rank <= (int32_t)GANTRY_MAX_RANK;
    for (int32_t k = 0; k < value->rank; k++)
        known = known && value->dims[k] >= 0;
    return known;
}

static gantry_tensor tensor_of(const gantry_value_view *value, void *data)
{
    gantry_tensor tensor = {.struct_bytes = sizeof tensor,
                            .dtype = value->dtype,
                            .rank = (uint32_t)value->rank,
                            .dims = value->dims};
    tensor.buffer.handle = data;
    return tensor;
}

static size_t bytes_of(const gantry_value_view *value)
{
    int64_t count = 1;
    for (int32_t k = 0; k < value->rank; k++)
        count *= value->dims[k];
    return cpu_dtype_bytes(value->dtype, count);
}

/* Constants lie at any address of a file, kernels read elements where those of their type lie: *inout_data is
 * a copy, to be freed, when they do not. */
static bool align(cpu_fuser *f, const gantry_value_view *value, size_t bytes, const void **inout_data,
                  void **out_copy)
{
    size_t element = cpu_dtype_size(value->dtype);
    if (!element || (uintptr_t)*inout_data % element == 0)
        return true;
    *out_copy = cpu_alloc(f->program->provider, bytes);
    if (!*out_copy)
        return false;
    *inout_data = memcpy(*out_copy, *inout_data, bytes);
    return true;
}

/* Maps the constants of a node, evaluates it and unmaps them. */
static gantry_status evaluate(cpu_fuser *f, uint32_t index, void *out)
{
    const gantry_graph_view *graph = f->program->graph;
    const gantry_node_view *node = graph->nodes[index];
    const gantry_host *host = f->program->provider->host;
    gantry_tensor inputs[3] = {{.struct_bytes = sizeof inputs[0]},
                               {.struct_bytes = sizeof inputs[0]},
                               {.struct_bytes = sizeof inputs[0]}};
    void *copies[3] = {NULL};
    gantry_status status = GANTRY_OK;
    uint32_t mapped = 0;
    for (; mapped < node->input_count && status == GANTRY_OK; mapped++) {
        if (node->inputs[mapped] == GANTRY_NO_ID)
            continue;
        const gantry_value_view *value = graph->values[node->inputs[mapped]];
        const void *data = NULL;
        size_t bytes = 0;
        status = host->constant_map(host, f->args->constants, value->constant_id, &data, &bytes, f->err);
        if (status != GANTRY_OK)
            break;
        if (!align(f, value, bytes, &data, &copies[mapped]))
            status = gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
        inputs[mapped] = tensor_of(value, (void *)(uintptr_t)data);
    }
    gantry_tensor output = tensor_of(graph->values[node->outputs[0]], out);
    if (status == GANTRY_OK)
        status = cpu_evaluate(f->program->provider, graph, index, inputs, &output, f->err);
    for (uint32_t k = 0; k < 3; k++)
        cpu_free(f->program->provider, copies[k]);
    for (uint32_t k = 0; k < mapped; k++)
        if (node->inputs[k] != GANTRY_NO_ID)
            host->constant_unmap(host, f->args->constants, graph->values[node->inputs[k]]->constant_id);
    return status;
}

bool cpu_qdq_is_derived(const cpu_fuser *f, const gantry_node_view *node)
{
    const gantry_graph_view *graph = f->program->graph;
    if (strcmp(node->op, "DequantizeLinear") != 0 || node->domain[0] != 0 || node->input_count > 3 ||
        node->output_count != 1 || !is_known(graph->values[node->outputs[0]]))
        return false;
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] != GANTRY_NO_ID && (graph->values[node->inputs[k]]->constant_id == GANTRY_NO_ID ||
                                                !is_known(graph->values[node->inputs[k]])))
            return false;
    return true;
}

/* ---- shared by programs ---------------------------------------------------------------------- */

/* The bytes of a parameter become part of the form. */
static gantry_status hash_parameter(const cpu_fuser *f, uint32_t value, uint64_t *inout_form)
{
    const gantry_host *host = f->program->provider->host;
    const gantry_value_view *view = f->program->graph->values[value];
    const void *data;
    size_t bytes;
    GT_TRY(host->constant_map(host, f->args->constants, view->constant_id, &data, &bytes, f->err));
    *inout_form = XXH3_64bits_withSeed(data, bytes, *inout_form);
    host->constant_unmap(host, f->args->constants, view->constant_id);
    uint64_t shape[GANTRY_MAX_RANK + 1] = {(uint64_t)view->dtype};
    for (int32_t k = 0; k < view->rank; k++)
        shape[k + 1] = (uint64_t)view->dims[k];
    *inout_form = XXH3_64bits_withSeed(shape, sizeof shape, *inout_form);
    return GANTRY_OK;
}

/* From the first operand; the form is of the others and of the attributes. */
static gantry_status describe(cpu_fuser *f, const gantry_node_view *node, cpu_derived *out_derived)
{
    const gantry_value_view *x = f->program->graph->values[node->inputs[0]];
    const int64_t numbers[] = {node->version, gantry_node_int(node, "axis", 1),
                               gantry_node_int(node, "block_size", 0), x->dtype, node->input_count};
    *out_derived = (cpu_derived){x->constant_id, XXH3_64bits(numbers, sizeof numbers)};
    for (uint32_t k = 1; k < node->input_count; k++)
        if (node->inputs[k] != GANTRY_NO_ID)
            GT_TRY(hash_parameter(f, node->inputs[k], &out_derived->form));
    return GANTRY_OK;
}

static cpu_tensor operand_of(const gantry_value_view *value, uint32_t constant_id)
{
    cpu_tensor tensor = {.present = true,
                         .constant = true,
                         .dtype = value->dtype,
                         .rank = (uint32_t)value->rank,
                         .count = 1,
                         .constant_id = constant_id};
    for (int32_t k = 0; k < value->rank; k++)
        tensor.count *= tensor.dims[k] = value->dims[k];
    return tensor;
}

typedef struct derive_job {
    cpu_fuser *f;
    uint32_t node;
} derive_job;

static gantry_status fill_derived(void *arg, void *out)
{
    const derive_job *job = arg;
    return evaluate(job->f, job->node, out);
}

#define DERIVED_LAYOUT_KEY 0x44455249564544u /* "DERIVED" */

gantry_status cpu_qdq_derive(cpu_fuser *f, uint32_t index)
{
    cpu_program *program = f->program;
    const gantry_node_view *node = program->graph->nodes[index];
    uint32_t value = node->outputs[0];
    cpu_derived *derived = GT_ARENA_NEW(&program->arena, cpu_derived);
    if (!derived)
        return gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
    GT_TRY(describe(f, node, derived));
    program->derived[value] = derived;
    f->taken_by[index] = index;
    f->last[index] = GANTRY_NO_ID;
    cpu_tensor tensor = operand_of(program->graph->values[value], CPU_DERIVED_ID | value);
    derive_job derive = {f, index};
    cpu_pack_job job = {
        &tensor, DERIVED_LAYOUT_KEY, bytes_of(program->graph->values[value]), fill_derived, &derive, true};
    gantry_status status = cpu_program_hold(program, f->args->constants, &job, &program->owned[value]);
    return status == GANTRY_RESOURCE ? gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE) : status;
}
