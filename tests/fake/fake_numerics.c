/* How the fake device computes a node: with the host's kernels, rounded to its own precision, with its
 * faults. */
#include "fake.h"

#include <math.h>
#include <stdlib.h>

#define MAX_OPERANDS 64

/* ---- float16 --------------------------------------------------------------------------------- */

float fake_from_half(uint16_t half)
{
    int exponent = (half >> 10) & 31;
    float mantissa = (float)(half & 1023), value;
    if (exponent == 31)
        value = half & 1023 ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexpf(mantissa, -24);
    else
        value = ldexpf(mantissa + 1024, exponent - 25);
    return half & 0x8000 ? -value : value;
}

/* Rounds half to even. */
uint16_t fake_to_half(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float magnitude = fabsf(value);
    if (isnan(value))
        return sign | 0x7e00;
    if (magnitude >= 65520.0f)
        return sign | 0x7c00;
    if (magnitude < 0x1p-14f)
        return sign | (uint16_t)lrintf(magnitude * 0x1p24f);
    int exponent;
    float fraction = frexpf(magnitude, &exponent);         /* 0.5 <= fraction < 1 */
    uint32_t mantissa = (uint32_t)lrintf(fraction * 2048); /* 1024 .. 2048; 2048 carries into the exponent */
    return sign | (uint16_t)(((uint32_t)(exponent + 14) << 10) + (mantissa - 1024));
}

static int64_t count_of(const gantry_tensor *tensor)
{
    int64_t count = 1;
    for (uint32_t k = 0; k < tensor->rank; k++)
        count *= tensor->dims[k];
    return count;
}

static void *data_of(const gantry_tensor *tensor)
{
    return (char *)tensor->buffer.handle + tensor->buffer.offset_bytes;
}

/* ---- float16 through float32, where the host has no float16 kernel --------------------------- */

/* A view of one node with float32 in place of float16, and its operands converted. */
typedef struct promoted {
    gantry_graph_view graph;
    gantry_node_view node;
    const gantry_node_view *nodes[1];
    gantry_value_view values[MAX_OPERANDS];
    const gantry_value_view *value_list[MAX_OPERANDS];
    uint32_t indexes[MAX_OPERANDS];
    gantry_tensor tensors[MAX_OPERANDS];
    float *copies[MAX_OPERANDS];
} promoted;

static bool promote_operand(promoted *p, const gantry_graph_view *graph, uint32_t index, uint32_t k,
                            const gantry_tensor *tensor, bool is_input)
{
    p->indexes[k] = index == GANTRY_NO_ID ? GANTRY_NO_ID : k;
    p->tensors[k] = *tensor;
    if (index == GANTRY_NO_ID)
        return true;
    p->values[k] = *graph->values[index];
    if (tensor->dtype != GANTRY_FLOAT16)
        return true;
    int64_t count = count_of(tensor);
    p->copies[k] = malloc((size_t)(count ? count : 1) * sizeof(float));
    if (!p->copies[k])
        return false;
    for (int64_t i = 0; is_input && i < count; i++)
        p->copies[k][i] = fake_from_half(((const uint16_t *)data_of(tensor))[i]);
    p->values[k].dtype = p->tensors[k].dtype = GANTRY_FLOAT32;
    p->tensors[k].buffer = (gantry_buffer){p->copies[k], 0};
    p->tensors[k].size_bytes = (size_t)count * sizeof(float);
    return true;
}

static bool promote(promoted *p, const gantry_graph_view *graph, uint32_t node_index,
                    const gantry_tensor *inputs, const gantry_tensor *outputs)
{
    const gantry_node_view *node = graph->nodes[node_index];
    uint32_t total = node->input_count + node->output_count;
    bool done = total <= MAX_OPERANDS;
    for (uint32_t k = 0; done && k < node->input_count; k++)
        done = promote_operand(p, graph, node->inputs[k], k, &inputs[k], true);
    for (uint32_t k = 0; done && k < node->output_count; k++)
        done = promote_operand(p, graph, node->outputs[k], node->input_count + k, &outputs[k], false);
    for (uint32_t k = 0; done && k < total; k++)
        p->value_list[k] = &p->values[k];
    p->node = *node;
    p->node.inputs = p->indexes;
    p->node.outputs = p->indexes + node->input_count;
    p->nodes[0] = &p->node;
    p->graph = *graph;
    p->graph.node_count = 1;
    p->graph.nodes = p->nodes;
    p->graph.value_count = total;
    p->graph.values = p->value_list;
    p->graph.input_count = p->graph.output_count = 0;
    return done;
}

static gantry_status compute_promoted(const fake_provider *provider, const gantry_graph_view *graph,
                                      uint32_t node_index, const gantry_tensor *inputs,
                                      const gantry_tensor *outputs, gantry_error *err)
{
    const gantry_node_view *node = graph->nodes[node_index];
    promoted *p = calloc(1, sizeof *p);
    gantry_status status;
    if (p && promote(p, graph, node_index, inputs, outputs))
        status = provider->host->evaluate(provider->host, &p->graph, 0, p->tensors,
                                          p->tensors + node->input_count, err);
    else
        status = fake_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; status == GANTRY_OK && k < node->output_count; k++) {
        const float *source = p->copies[node->input_count + k];
        for (int64_t i = 0; source && i < count_of(&outputs[k]); i++)
            ((uint16_t *)data_of(&outputs[k]))[i] = fake_to_half(source[i]);
    }
    for (uint32_t k = 0; p && k < MAX_OPERANDS; k++)
        free(p->copies[k]);
    free(p);
    return status;
}

static bool has_half(const gantry_node_view *node, const gantry_tensor *inputs, const gantry_tensor *outputs)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        if (inputs[k].dtype == GANTRY_FLOAT16)
            return true;
    return node->output_count && outputs[0].dtype == GANTRY_FLOAT16;
}

static gantry_status evaluate(const fake_provider *provider, const gantry_graph_view *graph,
                              uint32_t node_index, const gantry_tensor *inputs, const gantry_tensor *outputs,
                              gantry_error *err)
{
    const gantry_node_view *node = graph->nodes[node_index];
    gantry_status status = provider->host->evaluate(provider->host, graph, node_index, inputs, outputs, err);
    bool again = status != GANTRY_OK && has_half(node, inputs, outputs) && strcmp(node->op, "Cast") != 0;
    return again ? compute_promoted(provider, graph, node_index, inputs, outputs, err) : status;
}

/* ---- precision and faults -------------------------------------------------------------------- */

static void round_to_half(const gantry_tensor *tensor)
{
    float *data = data_of(tensor);
    for (int64_t k = 0; tensor->dtype == GANTRY_FLOAT32 && k < count_of(tensor); k++)
        data[k] = fake_from_half(fake_to_half(data[k]));
}

static float read_element(const gantry_tensor *tensor, int64_t index)
{
    const void *data = data_of(tensor);
    return tensor->dtype == GANTRY_FLOAT16 ? fake_from_half(((const uint16_t *)data)[index])
                                           : ((const float *)data)[index];
}

static void write_element(const gantry_tensor *tensor, int64_t index, float value)
{
    void *data = data_of(tensor);
    if (tensor->dtype == GANTRY_FLOAT16)
        ((uint16_t *)data)[index] = fake_to_half(value);
    else
        ((float *)data)[index] = value;
}

static float half(float value)
{
    return fake_from_half(fake_to_half(value));
}

/* RMSNormalization with every intermediate in float16: the squares of large values overflow. */
static void rms_norm_in_half(const gantry_node_view *node, const gantry_tensor *inputs,
                             const gantry_tensor *output)
{
    int64_t axis = gantry_node_int(node, "axis", -1), rows = 1, width = 1;
    float epsilon = gantry_node_float(node, "epsilon", 1e-5f);
    axis = axis < 0 ? axis + output->rank : axis;
    for (uint32_t k = 0; k < output->rank; k++)
        *(k < axis ? &rows : &width) *= output->dims[k];
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t k = 0; k < width; k++) {
            float x = read_element(&inputs[0], r * width + k);
            sum = half(sum + half(x * x));
        }
        float scale = half(1 / half(sqrtf(half(half(sum / (float)width) + epsilon))));
        for (int64_t k = 0; k < width; k++) {
            float x = half(read_element(&inputs[0], r * width + k) * scale);
            write_element(output, r * width + k,
                          half(x * read_element(&inputs[1], k % count_of(&inputs[1]))));
        }
    }
}

static void apply_fault(const fake_provider *provider, const gantry_node_view *node,
                        const gantry_tensor *inputs, const gantry_tensor *output)
{
    fake_fault_kind kind = FAKE_FAULT_NONE;
    for (uint32_t k = 0; k < provider->config.fault_count; k++)
        if (strcmp(provider->config.faults[k].op, node->op) == 0)
            kind = provider->config.faults[k].kind;
    bool writable = output->dtype == GANTRY_FLOAT32 || output->dtype == GANTRY_FLOAT16;
    int64_t count = count_of(output);
    if (kind == FAKE_FAULT_NONE || !writable || count == 0)
        return;
    if (kind == FAKE_FAULT_ACCUMULATE_FLOAT16)
        rms_norm_in_half(node, inputs, output);
    if (kind == FAKE_FAULT_NAN)
        write_element(output, 0, NAN);
    for (int64_t k = 0; (kind == FAKE_FAULT_ZERO || kind == FAKE_FAULT_OFFSET) && k < count; k++)
        write_element(output, k, kind == FAKE_FAULT_ZERO ? 0 : read_element(output, k) + 1);
}

gantry_status fake_compute(const fake_provider *provider, const gantry_graph_view *graph, uint32_t node_index,
                           const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err)
{
    const gantry_node_view *node = graph->nodes[node_index];
    gantry_status status = evaluate(provider, graph, node_index, inputs, outputs, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < node->output_count; k++) {
        if (node->outputs[k] == GANTRY_NO_ID)
            continue;
        if (provider->config.compute == GANTRY_FLOAT16)
            round_to_half(&outputs[k]);
        if (k == 0)
            apply_fault(provider, node, inputs, &outputs[k]);
    }
    return status;
}
