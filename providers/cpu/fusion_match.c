/* Recognises the nodes that a convolution or product can compute on its way out: bias, residual,
 * activation. */
#include "fusion.h"

#include <math.h>

/* ---- activations ----------------------------------------------------------------------------- */

bool cpu_read_scalar(const cpu_program *program, const gantry_compile_args *args,
                     const gantry_node_view *node, uint32_t input, float *inout_value)
{
    const gantry_value_view *value = gantry_node_input(program->graph, node, input);
    if (!value)
        return true; /* left out: the default stays */
    if (value->constant_id == GANTRY_NO_ID || value->dtype != GANTRY_FLOAT32)
        return false;
    const gantry_host *host = program->provider->host;
    const void *data = NULL;
    size_t bytes = 0;
    if (host->constant_map(host, args->constants, value->constant_id, &data, &bytes, NULL) != GANTRY_OK)
        return false;
    bool single = bytes == sizeof(float);
    if (single)
        memcpy(inout_value, data, sizeof(float));
    host->constant_unmap(host, args->constants, value->constant_id);
    return single;
}

static cpu_post_match activation(cpu_post_kind kind, float alpha, float beta)
{
    return (cpu_post_match){true, NULL, {kind, alpha, beta, 0}, GANTRY_NO_ID};
}

static cpu_post_match match_clip(const cpu_program *program, const gantry_compile_args *args,
                                 const gantry_node_view *node)
{
    float low = gantry_node_float(node, "min", -INFINITY), high = gantry_node_float(node, "max", INFINITY);
    cpu_post_match match = activation(CPU_POST_CLIP, low, high);
    if (!cpu_read_scalar(program, args, node, 1, &match.post.alpha) ||
        !cpu_read_scalar(program, args, node, 2, &match.post.beta))
        match.guard = "a bound of Clip is not a constant scalar";
    if (isnan(match.post.alpha) || isnan(match.post.beta) || match.post.alpha > match.post.beta)
        match.guard = "the bounds of Clip are not ordered";
    if (match.post.alpha == 0 && isinf(match.post.beta))
        match.post = (cpu_post){CPU_POST_RELU, 0, 0, 0};
    return match;
}

static cpu_post_match match_gelu(const gantry_node_view *node)
{
    bool approximate = strcmp(gantry_node_string(node, "approximate", "none"), "tanh") == 0;
    return activation(approximate ? CPU_POST_GELU_TANH : CPU_POST_GELU_ERF, 0, 0);
}

static cpu_post_match match_activation(const cpu_program *program, const gantry_compile_args *args,
                                       const gantry_node_view *node)
{
    const char *op = node->op;
    if (strcmp(op, "Relu") == 0)
        return activation(CPU_POST_RELU, 0, 0);
    if (strcmp(op, "LeakyRelu") == 0)
        return activation(CPU_POST_RELU, gantry_node_float(node, "alpha", 0.01f), 0);
    if (strcmp(op, "Clip") == 0)
        return match_clip(program, args, node);
    if (strcmp(op, "Sigmoid") == 0)
        return activation(CPU_POST_SIGMOID, 0, 0);
    if (strcmp(op, "Tanh") == 0)
        return activation(CPU_POST_TANH, 0, 0);
    if (strcmp(op, "HardSigmoid") == 0)
        return activation(CPU_POST_HARD_SIGMOID, gantry_node_float(node, "alpha", 0.2f),
                          gantry_node_float(node, "beta", 0.5f));
    if (strcmp(op, "HardSwish") == 0)
        return activation(CPU_POST_HARD_SWISH, 1.0f / 6.0f, 0.5f);
    if (strcmp(op, "Silu") == 0)
        return activation(CPU_POST_SWISH, 1.0f, 0);
    if (strcmp(op, "Swish") == 0)
        return activation(CPU_POST_SWISH, gantry_node_float(node, "alpha", 1.0f), 0);
    if (strcmp(op, "Gelu") == 0)
        return match_gelu(node);
    return (cpu_post_match){0};
}

/* ---- additions ------------------------------------------------------------------------------- */

static int64_t known_count(const gantry_value_view *value)
{
    int64_t count = 1;
    for (int32_t k = 0; k < value->rank; k++) {
        if (value->dims[k] < 0)
            return -1;
        count *= value->dims[k];
    }
    return value->rank < 0 ? -1 : count;
}

static bool same_shape(const gantry_value_view *a, const gantry_value_view *b)
{
    if (a->rank < 0 || a->rank != b->rank)
        return false;
    for (int32_t k = 0; k < a->rank; k++) {
        const char *one = a->dim_names ? a->dim_names[k] : NULL;
        const char *two = b->dim_names ? b->dim_names[k] : NULL;
        bool equal = a->dims[k] >= 0 ? a->dims[k] == b->dims[k]
                                     : b->dims[k] < 0 && one && two && strcmp(one, two) == 0;
        if (!equal)
            return false;
    }
    return true;
}

/* Whether a constant of these dims is one number for each output channel of the group's node. */
static bool is_channel_vector(const cpu_program *program, const cpu_group *group,
                              const gantry_value_view *value, const gantry_value_view *output)
{
    bool conv = strncmp(group->node->op, "Conv", 4) == 0;
    int32_t axis = conv ? 1 : output->rank - 1;
    if (output->rank < 2 || value->rank > output->rank || axis < 0 || output->dims[axis] < 1)
        return false;
    int32_t missing = output->rank - value->rank;
    if (axis < missing || value->dims[axis - missing] != output->dims[axis])
        return false;
    const gantry_value_view *weight = gantry_node_input(program->graph, group->node, 1);
    return known_count(value) == output->dims[axis] && weight && weight->rank >= 2;
}

static bool has_post(const cpu_group *group, cpu_post_kind kind)
{
    for (uint32_t k = 0; k < group->post_count; k++)
        if (group->posts[k].kind == kind)
            return true;
    return false;
}

static cpu_post_match match_bias(const cpu_program *program, const cpu_group *group, uint32_t operand,
                                 const gantry_value_view *output)
{
    cpu_post_match match = {true, NULL, {CPU_POST_BIAS, 0, 0, 0}, operand};
    if (!is_channel_vector(program, group, program->graph->values[operand], output))
        match.guard = "the addend is no vector of the output channels";
    else if (group->post_count)
        match.guard = "a bias comes first";
    else if (group->node->input_count > 2 && group->node->inputs[2] != GANTRY_NO_ID)
        match.guard = "the node has a bias already";
    return match;
}

static cpu_post_match match_residual(const cpu_program *program, const cpu_group *group, uint32_t operand,
                                     const gantry_value_view *sum, const gantry_value_view *output)
{
    cpu_post_match match = {true, NULL, {CPU_POST_RESIDUAL, 0, 0, 0}, operand};
    const gantry_value_view *value = program->graph->values[operand];
    if (!same_shape(value, output) || !same_shape(sum, output))
        match.guard = "the addends are not known to have one shape";
    else if (has_post(group, CPU_POST_RESIDUAL))
        match.guard = "one residual at most";
    else if (strncmp(group->node->op, "Conv", 4) == 0 && group->post_count > has_post(group, CPU_POST_BIAS))
        match.guard = "a convolution adds before its activation only"; /* oneDNN has no other fast kernel */
    else if (strcmp(group->node->op, "ConvTranspose") == 0)
        match.guard = "a transposed convolution adds no residual";
    return match;
}

/* A scalar constant that leaves the output's shape as it is. */
static bool is_scalar(const cpu_program *program, uint32_t operand, const gantry_value_view *output)
{
    const gantry_value_view *value = program->graph->values[operand];
    return value->constant_id != GANTRY_NO_ID && value->rank >= 0 && value->rank <= output->rank &&
           known_count(value) == 1;
}

/* A factor or an addend for all elements. */
static cpu_post_match match_linear(const cpu_program *program, const gantry_compile_args *args,
                                   const gantry_node_view *node, uint32_t input, bool factor)
{
    cpu_post_match match = activation(CPU_POST_LINEAR, 1, 0);
    if (!cpu_read_scalar(program, args, node, input, factor ? &match.post.alpha : &match.post.beta))
        return (cpu_post_match){0};
    return match;
}

static cpu_post_match match_mul(const cpu_program *program, const gantry_compile_args *args,
                                const gantry_node_view *node, uint32_t value)
{
    if (node->input_count != 2 || node->inputs[0] == node->inputs[1])
        return (cpu_post_match){0};
    uint32_t other = node->inputs[0] == value ? 1 : 0;
    if (!is_scalar(program, node->inputs[other], program->graph->values[value]))
        return (cpu_post_match){0};
    return match_linear(program, args, node, other, true);
}

static cpu_post_match match_add(const cpu_program *program, const gantry_compile_args *args,
                                const cpu_group *group, const gantry_node_view *node, uint32_t value)
{
    if (node->input_count != 2 || node->inputs[0] == node->inputs[1])
        return (cpu_post_match){0};
    uint32_t operand = node->inputs[0] == value ? node->inputs[1] : node->inputs[0];
    const gantry_value_view *output = program->graph->values[value];
    if (group->post_count && is_scalar(program, operand, output))
        return match_linear(program, args, node, node->inputs[0] == value ? 1 : 0, false);
    if (program->graph->values[operand]->constant_id != GANTRY_NO_ID)
        return match_bias(program, group, operand, output);
    return match_residual(program, group, operand, gantry_node_output(program->graph, node, 0), output);
}

cpu_post_match cpu_post_of_node(const cpu_program *program, const gantry_compile_args *args,
                                const cpu_group *group, const gantry_node_view *node, uint32_t value)
{
    const gantry_value_view *output = gantry_node_output(program->graph, node, 0);
    if (!output || output->dtype != GANTRY_FLOAT32)
        return (cpu_post_match){0};
    if (strcmp(node->domain, "") != 0 && strcmp(node->domain, "gantry") != 0)
        return (cpu_post_match){0};
    cpu_post_match match = strcmp(node->op, "Add") == 0   ? match_add(program, args, group, node, value)
                           : strcmp(node->op, "Mul") == 0 ? match_mul(program, args, node, value)
                                                          : match_activation(program, args, node);
    if (match.matched && !match.guard && group->post_count >= CPU_MAX_POSTS)
        match.guard = "the chain is longer than 8 operators";
    return match;
}
