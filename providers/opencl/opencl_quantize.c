/* QuantizeLinear and DequantizeLinear of integers of 8 to 32 bits: scales for the tensor, for each index of
 * an axis, or for blocks of an axis. */
#include "opencl_elementwise.h"

#define SMALL                                                                                                \
    (OPENCL_TYPE(GANTRY_INT8) | OPENCL_TYPE(GANTRY_UINT8) | OPENCL_TYPE(GANTRY_INT16) |                      \
     OPENCL_TYPE(GANTRY_UINT16))
#define SCALES (OPENCL_F32 | OPENCL_F16)

/* The axis of the scales; GANTRY_NO_ID: one scale for all. */
static uint32_t scale_axis(const opencl_node *node)
{
    const opencl_operand *x = opencl_input(node, 0), *scale = opencl_input(node, 1);
    int64_t axis = gantry_node_int(node->view, "axis", 1);
    if (scale->rank == 0 || (scale->rank == 1 && scale->dims[0] == 1) || x->rank == 0)
        return GANTRY_NO_ID;
    return x->rank == 1 ? 0 : opencl_axis(axis, x->rank);
}

/* Elements of the axis that share a scale. */
static int64_t block_size(const opencl_node *node, uint32_t axis)
{
    const opencl_operand *x = opencl_input(node, 0), *scale = opencl_input(node, 1);
    int64_t block = gantry_node_int(node->view, "block_size", 0);
    if (block > 0)
        return block;
    return scale->rank > 1 && scale->dims[axis] > 0 ? x->dims[axis] / scale->dims[axis] : 1;
}

/* The axis is walked as two: blocks, and elements of a block. */
static void walk_scales(const opencl_node *node, opencl_walk *walk, uint32_t operands)
{
    const opencl_operand *x = opencl_input(node, 0), *scale = opencl_input(node, 1);
    uint32_t axis = scale_axis(node), rank = 0;
    int64_t dims[OPENCL_MAX_RANK + 1], dense[OPENCL_MAX_RANK + 1], scales[OPENCL_MAX_RANK + 1] = {0};
    int64_t stride = 1, block = axis == GANTRY_NO_ID ? 1 : block_size(node, axis);
    for (uint32_t k = 0; k < x->rank; k++) {
        dims[rank++] = k == axis ? x->dims[k] / block : x->dims[k];
        if (k == axis)
            dims[rank++] = block;
    }
    for (uint32_t k = rank; k-- > 0;) {
        dense[k] = stride;
        stride *= dims[k];
    }
    stride = 1;
    for (uint32_t k = x->rank; k-- > 0 && axis != GANTRY_NO_ID;) {
        uint32_t at = k > axis ? k + 1 : k; /* the blocks stand where the axis did */
        if (scale->rank == 1)
            scales[at] = k == axis ? 1 : 0;
        else
            scales[at] = scale->dims[k] == 1 ? 0 : stride;
        stride *= scale->rank == 1 ? 1 : scale->dims[k];
    }
    opencl_walk_begin(walk, rank, dims);
    opencl_walk_strided(walk, dense);
    for (uint32_t k = 1; k < operands; k++)
        opencl_walk_strided(walk, scales);
}

/* ---- the operators --------------------------------------------------------------------------- */

static void prepare_dequantize(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0, 1, 2};
    bool shifted = opencl_is_there(opencl_input(node, 2));
    opencl_walk walk;
    walk_scales(node, &walk, shifted ? 3 : 2);
    opencl_elementwise_walk_add(build, node, inputs, shifted ? 3 : 2, &walk,
                                shifted ? "(float)((int)a - (int)c) * b" : "(float)a * b", 0, 0);
}

/* Rounded first, then shifted, then clamped; NaN gives the lowest number. */
static void prepare_quantize(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0, 1, 2};
    gantry_dtype dtype = opencl_output(node, 0)->dtype;
    bool shifted = opencl_is_there(opencl_input(node, 2));
    int bits = 8 * (int)opencl_dtype_bytes(dtype);
    bool is_signed = dtype == GANTRY_INT8 || dtype == GANTRY_INT16;
    int lowest = is_signed ? -(1 << (bits - 1)) : 0, highest = lowest + (1 << bits) - 1;
    const char *shift = shifted ? " + (float)c" : "";
    char text[160];
    opencl_walk walk;
    walk_scales(node, &walk, shifted ? 3 : 2);
    snprintf(text, sizeof text, "a != a || rint(a / b)%s < %d ? %d : rint(a / b)%s > %d ? %d : rint(a / b)%s",
             shift, lowest, lowest, shift, highest, highest, shift);
    opencl_elementwise_walk_add(build, node, inputs, shifted ? 3 : 2, &walk, text, 0, 0);
}

static bool takes_scales(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *x = opencl_input(node, 0), *scale = opencl_input(node, 1);
    uint32_t axis = scale_axis(node);
    if (!opencl_takes_type(scale, SCALES, verdict))
        return false;
    if (scale->rank > 1 && scale->rank != x->rank)
        return opencl_refuse_rank(verdict, scale, "0, 1 or that of the first input");
    if (axis == GANTRY_NO_ID)
        return true;
    if (axis >= x->rank)
        return opencl_refuse_attribute(verdict, "axis", "beyond the rank", "an axis of the first input");
    if (!node->final)
        return true;
    int64_t block = scale->rank == 1 ? 1 : block_size(node, axis);
    if (block < 1 || x->dims[axis] % block ||
        scale->dims[scale->rank == 1 ? 0 : axis] != x->dims[axis] / block)
        return opencl_refuse_attribute(verdict, "block_size", "blocks that don't fill the axis",
                                       "a divisor of the axis");
    return true;
}

static bool dequantize_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_takes_type(opencl_input(node, 2), OPENCL_TYPE(opencl_input(node, 0)->dtype), verdict) &&
           opencl_takes_type(opencl_output(node, 0), SCALES, verdict) && takes_scales(node, verdict);
}

static bool quantize_limits(const opencl_node *node, gantry_verdict *verdict)
{
    gantry_dtype dtype = opencl_output(node, 0)->dtype;
    if (gantry_node_int(node->view, "precision", 0) > 1)
        return opencl_refuse_attribute(verdict, "precision", "another type", "float32");
    return opencl_takes_type(opencl_output(node, 0), SMALL, verdict) &&
           opencl_takes_type(opencl_input(node, 2), OPENCL_TYPE(dtype), verdict) &&
           takes_scales(node, verdict);
}

static const opencl_op ops[] = {
    {.name = "DequantizeLinear",
     .domain = "",
     .types = SMALL | OPENCL_I32,
     .limits = dequantize_limits,
     .prepare = prepare_dequantize},
    {.name = "QuantizeLinear",
     .domain = "",
     .types = OPENCL_F32 | OPENCL_F16,
     .limits = quantize_limits,
     .prepare = prepare_quantize},
};

const opencl_op_table opencl_quantize_ops = {ops, sizeof ops / sizeof *ops};
