/* Moving a constant factor and addend per output channel into the weights and bias of a convolution or matrix
 * product: computed in double, rounded once.
 *
 *     factor * (alpha * A W + beta * C) + addend  =  alpha * A (W factor)  +  (beta * C * factor + addend)
 */
#include "rewrite_internal.h"

#include <math.h>

bool gt_rewrite_find_linear(const gt_rewrite_context *context, uint32_t value, const char *const *op_types,
                            gt_rewrite_linear *out_linear)
{
    for (; *op_types; op_types++) {
        gt_node *node = gt_rewrite_producer(context, value, *op_types);
        if (!node || node->input_count < 2 || node->output_count != 1)
            continue;
        *out_linear = (gt_rewrite_linear){
            .id = gt_rewrite_value(context, value)->producer, .node = node, .output = value};
        return true;
    }
    return false;
}

static void describe_conv(gt_rewrite_linear *linear, const gt_constant *weight)
{
    bool transposed = strcmp(linear->node->op_type, "ConvTranspose") == 0;
    uint64_t rows = transposed ? (uint64_t)weight->dims[0] : 1;
    uint64_t group = transposed ? (uint64_t)gt_node_int(linear->node, "group", 1) : 1;
    linear->rank = (int32_t)weight->rank;
    linear->rows = rows;
    linear->rows_of_group = group && rows % group == 0 ? rows / group : 0;
    linear->channels_of_row = (uint64_t)weight->dims[transposed ? 1 : 0];
    linear->channels = linear->channels_of_row * group;
    linear->inner = 1;
    for (uint32_t k = transposed ? 2 : 1; k < weight->rank; k++)
        linear->inner *= (uint64_t)weight->dims[k];
}

static void describe_product(gt_rewrite_linear *linear, const gt_constant *weight)
{
    bool transposed = linear->is_gemm && gt_node_int(linear->node, "transB", 0) != 0;
    uint64_t depth = (uint64_t)weight->dims[transposed ? 1 : 0];
    linear->rank = 2;
    linear->channels = linear->channels_of_row = (uint64_t)weight->dims[transposed ? 0 : 1];
    linear->rows = linear->rows_of_group = transposed ? 1 : depth;
    linear->inner = transposed ? depth : 1;
}

static bool has_constant_bias(const gt_rewrite_context *context, const gt_node *node)
{
    uint32_t bias = gt_rewrite_input(node, 2);
    return bias == GT_NONE || gt_rewrite_is_constant(context, bias);
}

const char *gt_rewrite_check_linear(const gt_rewrite_context *context, gt_rewrite_linear *inout_linear)
{
    const gt_constant *weight;
    const void *data;
    const gt_node *node = inout_linear->node;
    const char *guard = gt_rewrite_inner_guard(context, inout_linear->output, 1);
    if (guard)
        return guard;
    if (gt_rewrite_constant(context, node->inputs[1], &weight, &data, NULL) != GANTRY_OK || !weight ||
        !has_constant_bias(context, node))
        return "not_constant";
    if (!gt_rewrite_is_float(weight->dtype))
        return "dtype";
    inout_linear->is_gemm = strcmp(node->op_type, "Gemm") == 0;
    bool conv = strncmp(node->op_type, "Conv", 4) == 0;
    if (conv ? weight->rank < 3
             : weight->rank != 2 || gt_rewrite_value(context, inout_linear->output)->rank != 2)
        return "rank";
    if (conv)
        describe_conv(inout_linear, weight);
    else
        describe_product(inout_linear, weight);
    return inout_linear->rows_of_group || !inout_linear->rows ? NULL : "rank";
}

/* ---- weights --------------------------------------------------------------------------------- */

static bool scale_run(gantry_dtype dtype, const char *from, char *to, uint64_t first, uint64_t count,
                      double factor)
{
    bool finite = true;
    for (uint64_t k = first; k < first + count; k++) {
        gt_rewrite_store(dtype, to, k, gt_rewrite_load(dtype, from, k) * factor);
        finite &= isfinite(gt_rewrite_load(dtype, to, k)) != 0;
    }
    return finite;
}

/* Large float32 weights stay what they are in the file until somebody packs them. */
static gantry_status scale_later(gt_rewrite_context *context, const gt_rewrite_linear *linear,
                                 const double *factor, const char *stem, uint32_t *out_value,
                                 bool *out_finite, gantry_error *err)
{
    gt_scaling scaling = {.base = gt_rewrite_value(context, linear->node->inputs[1])->constant,
                          .rows = linear->rows,
                          .rows_of_group = linear->rows_of_group,
                          .channels_of_row = linear->channels_of_row,
                          .inner = linear->inner,
                          .factor = factor};
    return gt_rewrite_add_scaled(context, stem, &scaling, out_value, out_finite, err);
}

static gantry_status scale_weights(gt_rewrite_context *context, const gt_rewrite_linear *linear,
                                   const double *factor, uint32_t *out_value, bool *out_finite,
                                   gantry_error *err)
{
    const gt_constant *constant;
    const void *from;
    void *to;
    const char *stem = gt_rewrite_value(context, linear->node->inputs[1])->name;
    GT_TRY(gt_rewrite_constant(context, linear->node->inputs[1], &constant, &from, err));
    gt_constant weight = *constant; /* adding a constant moves the array */
    if (weight.dtype == GANTRY_FLOAT32 && weight.bytes > GT_CONSTANT_COPY_BYTES)
        return scale_later(context, linear, factor, stem, out_value, out_finite, err);
    GT_TRY(gt_rewrite_add_constant(context, stem, weight.dtype, weight.rank, weight.dims, weight.bytes, &to,
                                   out_value, err));
    *out_finite = true;
    for (uint64_t row = 0; row < linear->rows; row++)
        for (uint64_t c = 0; c < linear->channels_of_row; c++) {
            double f = factor[row / linear->rows_of_group * linear->channels_of_row + c];
            uint64_t first = (row * linear->channels_of_row + c) * linear->inner;
            *out_finite &= scale_run(weight.dtype, from, to, first, linear->inner, f);
        }
    return GANTRY_OK;
}

/* ---- bias ------------------------------------------------------------------------------------ */

/* A bias as rows of one number for each channel: rows is 1, or that of a Gemm's C matrix. */
typedef struct bias_table {
    uint64_t rows;
    double *numbers;
} bias_table;

/* The bias in force, broadcast, zeros when there is none; numbers NULL: memory ran out or the shape is wrong.
 */
static bias_table read_bias(gt_rewrite_context *context, const gt_rewrite_linear *linear)
{
    bias_table table = {1, NULL};
    uint32_t value = gt_rewrite_input(linear->node, 2);
    uint64_t count = 0, columns = 1;
    double beta = linear->is_gemm ? (double)gt_node_float(linear->node, "beta", 1) : 1;
    const double *numbers = NULL;
    if (value != GT_NONE && beta != 0) {
        const gt_value *bias = gt_rewrite_value(context, value);
        const gt_constant *constant = &context->model->constants.data[bias->constant];
        if (!(numbers = gt_rewrite_doubles(context, value, &count)) || constant->rank > 2)
            return table;
        columns = constant->rank ? (uint64_t)constant->dims[constant->rank - 1] : 1;
        table.rows = constant->rank == 2 ? (uint64_t)constant->dims[0] : 1;
        if (columns != 1 && columns != linear->channels)
            return table;
    }
    table.numbers = GT_ARENA_ARRAY(&context->scratch, double, table.rows * linear->channels);
    for (uint64_t r = 0; numbers && table.numbers && r < table.rows; r++)
        for (uint64_t c = 0; c < linear->channels; c++)
            table.numbers[r * linear->channels + c] = beta * numbers[r * columns + (columns == 1 ? 0 : c)];
    return table;
}

static gantry_status add_bias(gt_rewrite_context *context, const gt_rewrite_linear *linear,
                              const bias_table *table, uint32_t *out_value, bool *inout_finite,
                              gantry_error *err)
{
    gantry_dtype dtype =
        context->model->constants.data[gt_rewrite_value(context, linear->node->inputs[1])->constant].dtype;
    int64_t dims[] = {(int64_t)table->rows, (int64_t)linear->channels};
    uint64_t count = table->rows * linear->channels;
    uint32_t bias = gt_rewrite_input(linear->node, 2);
    const char *stem = gt_rewrite_value(context, bias == GT_NONE ? linear->output : bias)->name;
    void *to;
    GT_TRY(gt_rewrite_add_constant(context, stem, dtype, table->rows > 1 ? 2 : 1,
                                   table->rows > 1 ? dims : dims + 1, gantry_dtype_bytes(dtype, count), &to,
                                   out_value, err));
    for (uint64_t k = 0; k < count; k++) {
        gt_rewrite_store(dtype, to, k, table->numbers[k]);
        *inout_finite &= isfinite(gt_rewrite_load(dtype, to, k)) != 0;
    }
    return GANTRY_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* A MatMul takes no bias: it computes the product, and an Add with the bias computes what next did. */
static gantry_status absorb_into_matmul(gt_rewrite_context *context, gt_rewrite_linear *linear, uint32_t bias,
                                        uint32_t next, gantry_error *err)
{
    const gt_node *node = linear->node, *old = context->graph->nodes.data[next];
    uint32_t pair[] = {linear->id, next}, inputs[] = {linear->output, bias}, output = old->outputs[0], add;
    GT_TRY(gt_rewrite_join_lineage(context, linear->id, pair, 2, err));
    GT_TRY(gt_rewrite_add_node(context, old->name, "", "Add", node->opset, 2, inputs, 1, &output, &add, err));
    return gt_rewrite_absorb(context, add, &next, 1, output, err);
}

static gantry_status absorb_both(gt_rewrite_context *context, gt_rewrite_linear *linear, uint32_t weight,
                                 uint32_t bias, uint32_t next, gantry_error *err)
{
    uint32_t pair[] = {linear->id, next};
    if (weight != GT_NONE)
        GT_TRY(gt_rewrite_set_input(context, linear->id, 1, weight, err));
    if (strcmp(linear->node->op_type, "MatMul") == 0)
        return absorb_into_matmul(context, linear, bias, next, err);
    GT_TRY(gt_rewrite_set_input(context, linear->id, 2, bias, err));
    if (linear->is_gemm)
        GT_TRY(gt_node_set_float(context->graph, linear->id, "beta", 1, err));
    uint32_t output = context->graph->nodes.data[next]->outputs[0];
    return gt_rewrite_absorb(context, linear->id, pair, 2, output, err);
}

gantry_status gt_rewrite_absorb_affine(gt_rewrite_context *context, gt_rewrite_linear *linear,
                                       const double *factor, const double *addend, uint32_t next,
                                       bool *out_changed, gantry_error *err)
{
    uint32_t weight = GT_NONE, bias, old_weight = linear->node->inputs[1];
    bool finite = true, shared = factor && (gt_rewrite_use_count(context, old_weight) > 1);
    bias_table table = read_bias(context, linear);
    if (shared && context->options->for_file &&
        gt_rewrite_static_bytes(context, gt_rewrite_value(context, old_weight)) >
            context->options->growth_limit_bytes)
        return gt_rewrite_log_miss(context, linear->node->name, "file_growth", err);
    if (!table.numbers)
        return gt_rewrite_log_miss(context, linear->node->name, "rank", err);
    for (uint64_t r = 0; r < table.rows; r++)
        for (uint64_t c = 0; c < linear->channels; c++) {
            double *number = &table.numbers[r * linear->channels + c];
            *number = *number * (factor ? factor[c] : 1) + (addend ? addend[c] : 0);
        }
    if (factor)
        GT_TRY(scale_weights(context, linear, factor, &weight, &finite, err));
    GT_TRY(add_bias(context, linear, &table, &bias, &finite, err));
    if (!finite)
        return gt_rewrite_log_miss(context, linear->node->name, "range", err);
    GT_TRY(gt_rewrite_log(context, linear->node->name, shared ? "applied_with_copy" : "applied",
                          shared ? "shared_weight" : NULL, &next, 1, NULL, err));
    GT_TRY(absorb_both(context, linear, weight, bias, next, err));
    *out_changed = true;
    return GANTRY_OK;
}
