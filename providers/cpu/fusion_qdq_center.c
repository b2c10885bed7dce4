/* What one integer kernel computes between DequantizeLinear and QuantizeLinear: an operator in the center
 * whose operands are dequantized, and the activations behind it as a range. */
#include "fusion_qdq.h"

/* Strips activations from the back of a chain; *inout_value becomes what they work on. */
static void strip_posts(const cpu_qdq *q, cpu_qdq_match *m, uint32_t *inout_value)
{
    cpu_group nothing = {.post_count = 0};
    while (m->post_count < 2 && cpu_qdq_is_private(q, *inout_value)) {
        const gantry_node_view *node = cpu_qdq_producer(q, *inout_value);
        if (!node || !(cpu_qdq_is_op(node, "Relu") || cpu_qdq_is_op(node, "Clip")))
            return;
        cpu_post_match match = cpu_post_of_node(q->f->program, q->f->args, &nothing, node, node->inputs[0]);
        if (!match.matched || match.guard || !cpu_qdq_is_private(q, node->inputs[0]))
            return;
        memmove(&m->posts[1], &m->posts[0], m->post_count * sizeof m->posts[0]);
        m->posts[0] = match.post;
        m->post_count++;
        cpu_qdq_absorb_producer(q, m, *inout_value);
        *inout_value = node->inputs[0];
    }
}

/* ---- centers: what a group computes ---------------------------------------------------------- */

/* Whether the scales of the bias are the products of the others; one that is single goes with each channel.
 */
static bool scales_fit(const cpu_unaligned_f32 *bias, size_t bias_count, float x, const cpu_unaligned_f32 *w,
                       size_t w_count)
{
    size_t count = bias_count > w_count ? bias_count : w_count;
    if (!bias_count || !w_count || (bias_count != count && bias_count != 1) ||
        (w_count != count && w_count != 1))
        return false;
    for (size_t k = 0; k < count; k++) {
        float wanted = x * w[w_count == 1 ? 0 : k], given = bias[bias_count == 1 ? 0 : k];
        if (!(given >= wanted * 0.999999f && given <= wanted * 1.000001f))
            return false;
    }
    return true;
}

static bool bias_scales_fit(const cpu_qdq *q, const cpu_qparams *x, const cpu_qparams *w,
                            const cpu_qparams *bias)
{
    size_t bias_bytes = 0, w_bytes = 0;
    const void *bias_scales = cpu_qdq_map(q, bias->scale, &bias_bytes);
    const void *w_scales = cpu_qdq_map(q, w->scale, &w_bytes);
    bool fit = bias_scales && w_scales &&
               scales_fit(bias_scales, bias_bytes / sizeof(float), x->scale_value, w_scales,
                          w_bytes / sizeof(float));
    cpu_qdq_unmap(q, w->scale, w_scales);
    cpu_qdq_unmap(q, bias->scale, bias_scales);
    return fit;
}

/* The kernels know of no zero point of the bias. */
static bool is_zero(const cpu_qdq *q, uint32_t value)
{
    size_t bytes = 0;
    const char *data = value == GANTRY_NO_ID ? NULL : cpu_qdq_map(q, value, &bytes);
    bool zero = value == GANTRY_NO_ID || data;
    for (size_t k = 0; k < bytes && zero; k++)
        zero = data[k] == 0;
    cpu_qdq_unmap(q, value, data);
    return zero;
}

/* A bias in the integers of the sums: a number for each output channel (an axis of w), scale s_x * s_w[c]. */
static const char *bias_guard(const cpu_qdq *q, const cpu_qparams *x, const cpu_qparams *w, int64_t axis,
                              uint32_t bias, cpu_qparams *out_bias)
{
    const gantry_node_view *node = cpu_qdq_producer(q, bias);
    if (!node || !cpu_qdq_is_op(node, "DequantizeLinear") || node->input_count < 2)
        return "the bias is not quantized";
    *out_bias = cpu_qdq_params(q, node);
    const gantry_value_view *value = cpu_qdq_value(q, out_bias->value), *weights = cpu_qdq_value(q, w->value);
    if (!out_bias->constant || !cpu_qdq_is_constant(q, out_bias->value) || value->dtype != GANTRY_INT32)
        return "the bias is not a constant of int32";
    if (value->rank != 1 || axis < 0 || axis >= weights->rank || value->dims[0] != weights->dims[axis])
        return "the bias is no vector with a number for each output channel";
    if (!is_zero(q, out_bias->zero))
        return "the bias has a zero point";
    return bias_scales_fit(q, x, w, out_bias) ? NULL
                                              : "the scale of the bias is not the product of the others";
}

/* x and w of a convolution or product; weights may have one scale for each channel, along `axis`. */
static const char *weights_guard(const cpu_qdq *q, const gantry_node_view *node, int64_t axis, cpu_qparams *x,
                                 cpu_qparams *w)
{
    if (!cpu_qdq_bytes(q, node->inputs[0], x))
        return "its input is not quantized with one constant scale";
    const gantry_node_view *dequantize = cpu_qdq_producer(q, node->inputs[1]);
    if (!dequantize || !cpu_qdq_is_op(dequantize, "DequantizeLinear") ||
        !cpu_qdq_is_byte(cpu_qdq_value(q, dequantize->inputs[0])))
        return "its weights are not quantized to 8 bits";
    *w = cpu_qdq_params(q, dequantize);
    if (!w->constant || gantry_node_int(dequantize, "block_size", 0))
        return "the scale of its weights is no constant, or blocked";
    int64_t rank = cpu_qdq_value(q, w->value)->rank, given = gantry_node_int(dequantize, "axis", 1);
    if (!w->scalar && given != axis && given + rank != axis)
        return "the weights' scales do not go with the output channels";
    if (!w->scalar && cpu_qdq_is_op(node, "MatMul") && rank != 2)
        return "weights of several matrices have scales for each column";
    return NULL;
}

/* The group of a convolution or product that passed the guards: x, w, scale and zero point of y, the bias. */
static const char *match_weighted(const cpu_qdq *q, const gantry_node_view *node, int64_t axis,
                                  const cpu_qparams *y, cpu_qdq_match *m)
{
    cpu_qparams x, w, bias = {.value = GANTRY_NO_ID};
    bool has_bias = node->input_count > 2 && node->inputs[2] != GANTRY_NO_ID;
    const char *guard = weights_guard(q, node, axis, &x, &w);
    if (!guard && has_bias)
        guard = bias_guard(q, &x, &w, axis, node->inputs[2], &bias);
    if (guard)
        return guard;
    cpu_qdq_operands(q, m, &x);
    cpu_qdq_operands(q, m, &w);
    cpu_qdq_operand(q, m, y->scale);
    cpu_qdq_operand(q, m, y->zero);
    cpu_qdq_operand(q, m, bias.value);
    for (uint32_t k = 0; k < (has_bias ? 3u : 2u); k++)
        cpu_qdq_absorb_producer(q, m, node->inputs[k]);
    return NULL;
}

static const char *match_conv(const cpu_qdq *q, const gantry_node_view *node, const cpu_qparams *y,
                              cpu_qdq_match *m)
{
    m->row = cpu_find_op("", "QLinearConv");
    m->rule = "qdq_conv";
    return match_weighted(q, node, 0, y, m);
}

static const char *match_product(const cpu_qdq *q, const gantry_node_view *node, const cpu_qparams *y,
                                 cpu_qdq_match *m)
{
    bool gemm = cpu_qdq_is_op(node, "Gemm");
    bool has_bias = node->input_count > 2 && node->inputs[2] != GANTRY_NO_ID;
    if (gemm && (gantry_node_int(node, "transA", 0) || gantry_node_float(node, "alpha", 1) != 1 ||
                 (has_bias && gantry_node_float(node, "beta", 1) != 1)))
        return "it transposes A, or scales";
    int32_t rank = cpu_qdq_value(q, node->inputs[1])->rank;
    m->row = cpu_find_op("", "QLinearMatMul");
    m->rule = "qdq_matmul";
    return match_weighted(q, node, gemm && gantry_node_int(node, "transB", 0) ? 0 : rank - 1, y, m);
}

static const char *match_binary(const cpu_qdq *q, const gantry_node_view *node, const cpu_qparams *y,
                                cpu_qdq_match *m)
{
    for (uint32_t k = 0; k < 2; k++) {
        const gantry_node_view *dequantize = cpu_qdq_producer(q, node->inputs[k]);
        if (!dequantize || !cpu_qdq_is_op(dequantize, "DequantizeLinear") ||
            !cpu_qdq_is_byte(cpu_qdq_value(q, dequantize->inputs[0])))
            return "an operand is not quantized";
        cpu_qparams p = cpu_qdq_params(q, dequantize);
        if (!p.scalar)
            return "the scale of an operand is no positive constant scalar";
        cpu_qdq_operands(q, m, &p);
        cpu_qdq_absorb_producer(q, m, node->inputs[k]);
    }
    cpu_qdq_operand(q, m, y->scale);
    cpu_qdq_operand(q, m, y->zero);
    bool add = cpu_qdq_is_op(node, "Add");
    m->row = cpu_find_op("com.microsoft", add ? "QLinearAdd" : "QLinearMul");
    m->rule = add ? "qdq_add" : "qdq_mul";
    return NULL;
}

static const char *match_global_pool(const cpu_qdq *q, const gantry_node_view *node, const cpu_qparams *y,
                                     cpu_qdq_match *m)
{
    cpu_qparams x;
    if (!cpu_qdq_bytes(q, node->inputs[0], &x))
        return "its input is not quantized with one constant scale";
    cpu_qdq_operands(q, m, &x);
    cpu_qdq_operand(q, m, y->scale);
    cpu_qdq_operand(q, m, y->zero);
    cpu_qdq_absorb_producer(q, m, node->inputs[0]);
    m->row = cpu_find_op("com.microsoft", "QLinearGlobalAveragePool");
    m->rule = "qdq_pool";
    return NULL;
}

/* Operators that only choose among the bytes of their one input, when these mean the same numbers before and
 * after. */
static const char *match_choice(const cpu_qdq *q, const gantry_node_view *node, const cpu_qparams *y,
                                cpu_qdq_match *m)
{
    cpu_qparams x;
    m->row = cpu_find_op("", node->op);
    m->rule = "qdq_pass";
    if (!m->row || !cpu_row_takes(m->row, 0, y->dtype))
        return "there is no such kernel for bytes";
    if (node->output_count != 1)
        return "it has other outputs";
    if (!cpu_qdq_bytes(q, node->inputs[0], &x))
        return "its input is not quantized with one constant scale";
    if (!cpu_qdq_same_bytes(q, node->inputs[0], y, &x))
        return "its input and output have different scales or zero points";
    cpu_qdq_operand(q, m, x.value);
    cpu_qdq_absorb_producer(q, m, node->inputs[0]);
    return NULL;
}

typedef const char *(*match_fn)(const cpu_qdq *q, const gantry_node_view *node, const cpu_qparams *y,
                                cpu_qdq_match *m);

/* posts: the activations behind it may be fused too. */
static const struct {
    const char *op;
    match_fn match;
    bool posts;
} centers[] = {
    {"GlobalAveragePool", match_global_pool, false},
    {"MatMul", match_product, true},
    {"Gemm", match_product, true},
    {"Conv", match_conv, true},
    {"Add", match_binary, true},
    {"Mul", match_binary, true},
    {"MaxPool", match_choice, false},
};

const char *cpu_qdq_center(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, cpu_qdq_match *m)
{
    uint32_t before = value;
    strip_posts(q, m, &before);
    const gantry_node_view *node = cpu_qdq_producer(q, before);
    if (!node)
        return "what it quantizes comes from outside";
    for (size_t k = 0; k < sizeof centers / sizeof *centers; k++) {
        if (!cpu_qdq_is_op(node, centers[k].op))
            continue;
        if (!cpu_qdq_is_private(q, before))
            return "the value before it is read elsewhere, too";
        if (m->post_count && !centers[k].posts)
            return "no activation is fused behind this operator";
        m->node = node;
        cpu_qdq_absorb_producer(q, m, before);
        return centers[k].match(q, node, y, m);
    }
    return "the operator before it has no integer kernel";
}
