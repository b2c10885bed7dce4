/* Rules that move a batch normalization, or a constant factor or addend per channel, into the convolution or
 * matrix product before it. */
#include "rewrite_internal.h"

#include <math.h>

static const char *const convolutions[] = {"Conv", "ConvTranspose", NULL};
static const char *const products[] = {"Gemm", "MatMul", NULL};

/* ---- batch normalization --------------------------------------------------------------------- */

static bool is_training(const gt_rewrite_context *context, const gt_node *node)
{
    if (gt_node_int(node, "training_mode", 0) != 0 || node->version < 7)
        return true;
    for (uint32_t k = 1; k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE && gt_rewrite_use_count(context, node->outputs[k]))
            return true;
    return false;
}

/* factor[c] * v + addend[c] is what the normalization does; false when a parameter is not constant or has not
 * one number for each channel. */
static bool read_batchnorm(gt_rewrite_context *context, const gt_node *node, uint64_t channels,
                           double *out_factor, double *out_addend)
{
    const double *p[4]; /* scale, bias, mean, variance */
    double epsilon = (double)gt_node_float(node, "epsilon", 1e-5f);
    for (uint32_t k = 0; k < 4; k++) {
        uint64_t count;
        p[k] = gt_rewrite_doubles(context, node->inputs[k + 1], &count);
        if (!p[k] || count != channels)
            return false;
    }
    for (uint64_t c = 0; c < channels; c++) {
        out_factor[c] = p[0][c] / sqrt(p[3][c] + epsilon);
        out_addend[c] = p[1][c] - p[2][c] * out_factor[c];
    }
    return true;
}

static gantry_status visit_batchnorm(gt_rewrite_context *context, uint32_t id, gt_rewrite_linear *linear,
                                     bool *out_changed, gantry_error *err)
{
    const gt_node *node = context->graph->nodes.data[id];
    const char *guard =
        is_training(context, node) ? "training_mode" : gt_rewrite_check_linear(context, linear);
    if (guard)
        return gt_rewrite_log_miss(context, linear->node->name, guard, err);
    double *factor = GT_ARENA_ARRAY(&context->scratch, double, linear->channels);
    double *addend = GT_ARENA_ARRAY(&context->scratch, double, linear->channels);
    if (!factor || !addend)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    if (!read_batchnorm(context, node, linear->channels, factor, addend))
        return gt_rewrite_log_miss(context, linear->node->name, "not_constant", err);
    return gt_rewrite_absorb_affine(context, linear, factor, addend, id, out_changed, err);
}

static gantry_status fold_batchnorms(gt_rewrite_context *context, gt_graph *graph,
                                     const char *const *op_types, bool *out_changed, gantry_error *err)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        gt_rewrite_linear linear;
        if (!node->removed && gt_rewrite_is_op(node, "BatchNormalization") && node->input_count == 5 &&
            gt_rewrite_find_linear(context, node->inputs[0], op_types, &linear))
            GT_TRY(visit_batchnorm(context, id, &linear, out_changed, err));
    }
    return GANTRY_OK;
}

gantry_status gt_rewrite_conv_batchnorm(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                        gantry_error *err)
{
    return fold_batchnorms(context, graph, convolutions, out_changed, err);
}

gantry_status gt_rewrite_gemm_batchnorm(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                        gantry_error *err)
{
    return fold_batchnorms(context, graph, products, out_changed, err);
}

/* ---- constant factors and addends ------------------------------------------------------------ */

/* One number for each channel when the constant broadcasts along channels only, else NULL. */
static double *per_channel(gt_rewrite_context *context, uint32_t value, int32_t rank, uint64_t channels)
{
    uint64_t count;
    const double *numbers = gt_rewrite_doubles(context, value, &count);
    if (!numbers)
        return NULL;
    const gt_constant *constant = &context->model->constants.data[gt_rewrite_value(context, value)->constant];
    if ((int32_t)constant->rank > rank || (count != 1 && count != channels))
        return NULL;
    for (uint32_t k = 0; k < constant->rank; k++)
        if (constant->dims[k] != 1 && (rank - (int32_t)constant->rank + (int32_t)k != 1))
            return NULL;
    double *table = GT_ARENA_ARRAY(&context->scratch, double, channels);
    for (uint64_t c = 0; table && c < channels; c++)
        table[c] = numbers[count == 1 ? 0 : c];
    return table;
}

typedef struct constant_operation {
    const char *op_type;
    bool swaps;    /* the constant may come first */
    bool is_sum;   /* addend, else factor */
    bool negative; /* the constant is subtracted */
} constant_operation;

static gantry_status visit_operation(gt_rewrite_context *context, uint32_t id, uint32_t other,
                                     const constant_operation *operation, gt_rewrite_linear *linear,
                                     bool *out_changed, gantry_error *err)
{
    const char *guard = gt_rewrite_check_linear(context, linear);
    if (guard)
        return gt_rewrite_log_miss(context, linear->node->name, guard, err);
    double *numbers = per_channel(context, other, linear->rank, linear->channels);
    if (!numbers)
        return gt_rewrite_log_miss(context, linear->node->name, "shape", err);
    for (uint64_t c = 0; operation->negative && c < linear->channels; c++)
        numbers[c] = -numbers[c];
    return gt_rewrite_absorb_affine(context, linear, operation->is_sum ? NULL : numbers,
                                    operation->is_sum ? numbers : NULL, id, out_changed, err);
}

static gantry_status fold_operation(gt_rewrite_context *context, gt_graph *graph,
                                    const constant_operation *operation, bool *out_changed, gantry_error *err)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        gt_rewrite_linear linear;
        if (node->removed || !gt_rewrite_is_op(node, operation->op_type) || node->input_count != 2)
            continue;
        for (uint32_t side = 0; side < (operation->swaps ? 2u : 1u); side++) {
            uint32_t other = node->inputs[1 - side];
            if (!gt_rewrite_is_constant(context, other) ||
                !gt_rewrite_find_linear(context, node->inputs[side], convolutions, &linear))
                continue;
            GT_TRY(visit_operation(context, id, other, operation, &linear, out_changed, err));
            break;
        }
    }
    return GANTRY_OK;
}

gantry_status gt_rewrite_conv_mul(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                  gantry_error *err)
{
    static const constant_operation mul = {"Mul", .swaps = true};
    return fold_operation(context, graph, &mul, out_changed, err);
}

gantry_status gt_rewrite_conv_add(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                  gantry_error *err)
{
    static const constant_operation add = {"Add", .swaps = true, .is_sum = true};
    static const constant_operation sub = {"Sub", .is_sum = true, .negative = true};
    GT_TRY(fold_operation(context, graph, &add, out_changed, err));
    return fold_operation(context, graph, &sub, out_changed, err);
}
