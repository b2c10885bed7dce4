/* What the CPU provider makes of one node, through the session API; and with it the host's evaluate. */
#include "kit.h"

#include <stdlib.h>

struct kit_cpu {
    gantry_runtime *runtime;
    gantry_options *options;
};

gantry_status kit_cpu_create(kit_cpu **out_cpu, gantry_error *err)
{
    kit_cpu *cpu = calloc(1, sizeof *cpu);
    *out_cpu = cpu;
    if (!cpu)
        return GANTRY_RESOURCE;
    gantry_status status = gantry_runtime_create(NULL, &cpu->runtime, err);
    if (status == GANTRY_OK)
        status = gantry_options_create(&cpu->options, err);
    if (status == GANTRY_OK)
        status = gantry_options_set(cpu->options, "threads", "1", err);
    if (status == GANTRY_OK)
        status = gantry_options_set(cpu->options, "providers", "cpu", err);
    if (status != GANTRY_OK)
        kit_cpu_destroy(out_cpu);
    return status;
}

void kit_cpu_destroy(kit_cpu **cpu)
{
    if (!*cpu)
        return;
    gantry_options_destroy(&(*cpu)->options);
    gantry_runtime_destroy(&(*cpu)->runtime, NULL);
    free(*cpu);
    *cpu = NULL;
}

gantry_runtime *kit_cpu_runtime(kit_cpu *cpu)
{
    return cpu->runtime;
}

void kit_array_free(kit_array *array)
{
    free(array->data);
    *array = (kit_array){0};
}

static gantry_status bind_input(gantry_run *run, uint32_t index, const kit_array *input, gantry_error *err)
{
    gantry_tensor t = {.struct_bytes = sizeof t,
                       .dtype = input->dtype,
                       .rank = input->rank,
                       .dims = input->dims,
                       .buffer = {input->data, 0},
                       .size_bytes = input->bytes};
    return gantry_run_bind_input(run, index, &t, err);
}

static gantry_status take_output(gantry_run *run, uint32_t index, kit_array *out_array, gantry_error *err)
{
    gantry_tensor t = {.struct_bytes = sizeof t};
    gantry_status status = gantry_run_output(run, index, &t, err);
    if (status != GANTRY_OK)
        return status;
    uint64_t count = 1;
    *out_array = (kit_array){.dtype = t.dtype, .rank = t.rank};
    for (uint32_t k = 0; k < t.rank; k++)
        count *= (uint64_t)(out_array->dims[k] = t.dims[k]);
    out_array->bytes = gantry_dtype_bytes(t.dtype, count);
    out_array->data = malloc(out_array->bytes + 64);
    if (!out_array->data)
        return GANTRY_RESOURCE;
    if (out_array->bytes)
        memcpy(out_array->data, (const char *)t.buffer.handle + t.buffer.offset_bytes, out_array->bytes);
    return GANTRY_OK;
}

gantry_status kit_session_run(gantry_session *session, const kit_array *inputs, uint32_t input_count,
                              kit_array *out_arrays, gantry_error *err)
{
    gantry_run *run = NULL;
    gantry_status status = gantry_run_create(session, &run, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < input_count && k < gantry_session_input_count(session);
         k++)
        status = bind_input(run, k, &inputs[k], err);
    if (status == GANTRY_OK)
        status = gantry_run_execute(run, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < gantry_session_output_count(session); k++)
        status = take_output(run, k, &out_arrays[k], err);
    gantry_run_destroy(&run);
    return status;
}

gantry_status kit_cpu_run(kit_cpu *cpu, const gantry_graph_view *graph, uint32_t node_index,
                          const kit_array *inputs, kit_array *out_arrays, gantry_error *err)
{
    const gantry_node_view *node = graph->nodes[node_index];
    gantry_session *session = NULL;
    kit_bytes bytes;
    kit_array given[64], declared[64];
    uint32_t count = 0;
    if (node->input_count > 64)
        return GANTRY_UNSUPPORTED;
    for (uint32_t k = 0; k < node->input_count; k++) {
        bool again = false;
        declared[k] = inputs[k];
        declared[k].data = NULL;
        for (uint32_t j = 0; j < k; j++)
            again |= node->inputs[j] == node->inputs[k];
        if (!again && node->inputs[k] != GANTRY_NO_ID)
            given[count++] = inputs[k];
    }
    kit_onnx_write(graph, node_index, declared, &bytes);
    gantry_status status = bytes.failed
                               ? GANTRY_RESOURCE
                               : gantry_session_create_from_memory(cpu->runtime, bytes.data, bytes.count,
                                                                   cpu->options, &session, NULL, err);
    if (status == GANTRY_OK)
        status = kit_session_run(session, given, count, out_arrays, err);
    gantry_session_destroy(&session, NULL);
    free(bytes.data);
    return status;
}

/* ---- host->evaluate -------------------------------------------------------------------------- */

static gantry_status refuse(gantry_error *err, const char *text)
{
    if (err && err->struct_bytes >= sizeof *err) {
        err->code = GANTRY_INVALID_ARGUMENT;
        snprintf(err->message, sizeof err->message, "evaluate: %s", text);
    }
    return GANTRY_INVALID_ARGUMENT;
}

static void *data_of(const gantry_tensor *tensor)
{
    return (char *)tensor->buffer.handle + tensor->buffer.offset_bytes;
}

static gantry_status read_inputs(const gantry_node_view *node, const gantry_tensor *inputs,
                                 kit_array *out_arrays, gantry_error *err)
{
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint64_t count = 1;
        out_arrays[k] = (kit_array){.dtype = inputs[k].dtype, .rank = inputs[k].rank};
        if (node->inputs[k] == GANTRY_NO_ID || inputs[k].dtype == GANTRY_UNDEFINED)
            continue;
        if (inputs[k].rank > GANTRY_MAX_RANK || inputs[k].strides)
            return refuse(err, "an input is strided, or its rank is too high");
        for (uint32_t d = 0; d < inputs[k].rank; d++)
            count *= (uint64_t)(out_arrays[k].dims[d] = inputs[k].dims[d]);
        out_arrays[k].bytes = gantry_dtype_bytes(inputs[k].dtype, count);
        /* At an address that any element type may lie at. */
        out_arrays[k].data = malloc(out_arrays[k].bytes + 64);
        if (!out_arrays[k].data)
            return GANTRY_RESOURCE;
        if (out_arrays[k].bytes)
            memcpy(out_arrays[k].data, data_of(&inputs[k]), out_arrays[k].bytes);
    }
    return GANTRY_OK;
}

gantry_status kit_host_evaluate(const gantry_host *host, const gantry_graph_view *graph, uint32_t node_index,
                                const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err)
{
    const kit_host *own = host->self;
    if (!graph || node_index >= graph->node_count)
        return refuse(err, "there is no such node");
    const gantry_node_view *node = graph->nodes[node_index];
    kit_array arrays[64] = {{0}}, results[64] = {{0}};
    if (node->input_count > 64 || node->output_count > 64 || node->body_count || node->composite)
        return refuse(err, "the kit evaluates plain nodes only");
    gantry_status status = read_inputs(node, inputs, arrays, err);
    if (status == GANTRY_OK)
        status = kit_cpu_run(own->cpu, graph, node_index, arrays, results, err);
    for (uint32_t k = 0, made = 0; status == GANTRY_OK && k < node->output_count; k++) {
        if (node->outputs[k] == GANTRY_NO_ID)
            continue;
        const kit_array *result = &results[made++];
        if (outputs[k].size_bytes < result->bytes)
            status = refuse(err, "an output's buffer is smaller than the result");
        else if (result->bytes)
            memcpy(data_of(&outputs[k]), result->data, result->bytes);
    }
    for (uint32_t k = 0; k < 64; k++) {
        kit_array_free(&arrays[k]);
        kit_array_free(&results[k]);
    }
    return status;
}
