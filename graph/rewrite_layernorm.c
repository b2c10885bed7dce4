/* The rule that recognises a layer normalization written out in primitive operators.
 *
 *     mean = ReduceMean(x)          d = x - mean             variance = ReduceMean(d ^ 2) or ReduceMean(d *
 * d) y = d / sqrt(variance + epsilon), or d * reciprocal of that, then * scale + bias
 *
 * The search starts at the square root: up to x, then down to the bias. Products and sums may have their
 * operands in any order. */
#include "rewrite_internal.h"

#define MAX_NODES 12u

typedef struct norm_match {
    gt_rewrite_context *context;
    uint32_t nodes[MAX_NODES];
    uint32_t node_count;
    uint32_t x, centered, scale, bias, output; /* value ids; scale and bias may be GT_NONE */
    double epsilon;
    int64_t axis; /* negative: the normalized axes are axis .. -1 */
} norm_match;

static gt_node *take(norm_match *match, uint32_t value, const char *op_type)
{
    gt_node *node = gt_rewrite_producer(match->context, value, op_type);
    uint32_t id = node ? gt_rewrite_value(match->context, value)->producer : GT_NONE;
    for (uint32_t k = 0; node && k < match->node_count; k++)
        if (match->nodes[k] == id)
            return node;
    if (node && match->node_count < MAX_NODES)
        match->nodes[match->node_count++] = id;
    return node;
}

/* The operand of a two-operand node that is not `value`; GT_NONE when neither or both are. */
static uint32_t other_operand(const gt_node *node, uint32_t value)
{
    if (node->input_count != 2 || (node->inputs[0] == value) == (node->inputs[1] == value))
        return GT_NONE;
    return node->inputs[node->inputs[0] == value];
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The first of the axes a mean runs over, as a negative number, when they are the last ones and are kept; 0
 * otherwise. */
static int64_t trailing_axis(norm_match *match, const gt_node *mean)
{
    int32_t rank = gt_rewrite_value(match->context, mean->inputs[0])->rank;
    uint32_t count = 0;
    int64_t sorted[GANTRY_MAX_RANK];
    const int64_t *axes = gt_node_ints(mean, "axes", &count);
    if (!axes)
        axes = gt_rewrite_ints(match->context, gt_rewrite_input(mean, 1), &count);
    if (!axes || count == 0 || count > GANTRY_MAX_RANK || gt_node_int(mean, "keepdims", 1) == 0)
        return 0;
    for (uint32_t k = 0; k < count; k++) {
        if (axes[k] >= 0 && rank < 0)
            return 0;
        sorted[k] = axes[k] >= 0 ? axes[k] - rank : axes[k];
    }
    qsort(sorted, count, sizeof *sorted, compare_numbers);
    for (uint32_t k = 0; k < count; k++)
        if (sorted[k] != (int64_t)k - (int64_t)count)
            return 0;
    return sorted[0];
}

/* The value that is squared, or GT_NONE. */
static uint32_t squared_value(norm_match *match, uint32_t value)
{
    double exponent;
    const gt_node *pow = take(match, value, "Pow");
    if (pow)
        return pow->input_count == 2 && gt_rewrite_scalar(match->context, pow->inputs[1], &exponent) &&
                       exponent == 2
                   ? pow->inputs[0]
                   : GT_NONE;
    const gt_node *mul = take(match, value, "Mul");
    return mul && mul->input_count == 2 && mul->inputs[0] == mul->inputs[1] ? mul->inputs[0] : GT_NONE;
}

/* From the argument of the square root up to x. False: no layer normalization at all. */
static bool match_variance(norm_match *match, uint32_t value, const char **out_guard)
{
    gt_rewrite_context *context = match->context;
    const gt_node *add = take(match, value, "Add"), *mean = NULL;
    uint32_t side = 0;
    if (!add || add->input_count != 2)
        return false;
    while (side < 2 && !(mean = gt_rewrite_producer(context, add->inputs[side], "ReduceMean")))
        side++;
    if (!mean)
        return false;
    if (!gt_rewrite_scalar(context, add->inputs[1 - side], &match->epsilon))
        *out_guard = "not_constant";
    take(match, mean->outputs[0], "ReduceMean");
    match->centered = squared_value(match, mean->inputs[0]);
    const gt_node *sub = match->centered == GT_NONE ? NULL : take(match, match->centered, "Sub");
    const gt_node *first = sub ? take(match, sub->inputs[1], "ReduceMean") : NULL;
    if (!first || first->inputs[0] != sub->inputs[0])
        return false;
    match->x = sub->inputs[0];
    match->axis = trailing_axis(match, first);
    if (match->axis == 0 || match->axis != trailing_axis(match, mean))
        *out_guard = "axis";
    return true;
}

/* The node of that operator that reads value and, when other is given, other as well. */
static const gt_node *find_consumer(norm_match *match, uint32_t value, const char *op_type, uint32_t other)
{
    uint32_t cursor = GT_NONE, id;
    while ((id = gt_rewrite_next_consumer(match->context, value, &cursor)) != GT_NONE) {
        const gt_node *node = match->context->graph->nodes.data[id];
        if (gt_rewrite_is_op(node, op_type) && (other == GT_NONE || other_operand(node, value) == other))
            return node;
    }
    return NULL;
}

/* From the square root down to the normalized value; GT_NONE when what follows is something else. */
static uint32_t match_quotient(norm_match *match, uint32_t root)
{
    const gt_node *node = find_consumer(match, root, "Div", match->centered);
    if (node && node->inputs[1] == root)
        return take(match, node->outputs[0], "Div")->outputs[0];
    const gt_node *reciprocal = find_consumer(match, root, "Reciprocal", GT_NONE);
    node = reciprocal ? find_consumer(match, reciprocal->outputs[0], "Mul", match->centered) : NULL;
    if (!node)
        return GT_NONE;
    take(match, reciprocal->outputs[0], "Reciprocal");
    return take(match, node->outputs[0], "Mul")->outputs[0];
}

/* Whether value has exactly the extents of the normalized axes of x. */
static bool has_normalized_shape(const norm_match *match, uint32_t value)
{
    const gt_value *x = gt_rewrite_value(match->context, match->x);
    const gt_value *v = gt_rewrite_value(match->context, value);
    int32_t count = (int32_t)-match->axis;
    if (!v || v->rank != count || x->rank < count)
        return false;
    for (int32_t k = 0; k < count; k++)
        if (v->dims[k] == GT_EXPR_UNKNOWN || v->dims[k] != x->dims[x->rank - count + k])
            return false;
    return true;
}

/* Moves *inout_value past its only consumer of that operator when the other operand is a vector over the
 * normalized axes; returns that operand or GT_NONE. */
static uint32_t match_vector(norm_match *match, const char *op_type, uint32_t *inout_value)
{
    uint32_t id = gt_rewrite_only_consumer(match->context, *inout_value);
    const gt_node *node = gt_graph_node(match->context->graph, id);
    if (!node || !gt_rewrite_is_op(node, op_type))
        return GT_NONE;
    uint32_t vector = other_operand(node, *inout_value);
    if (vector == GT_NONE || !has_normalized_shape(match, vector))
        return GT_NONE;
    *inout_value = take(match, node->outputs[0], op_type)->outputs[0];
    return vector;
}

/* A vector of ones or zeros for a normalization without scale or bias, so that all have three inputs. */
static gantry_status fill_in(norm_match *match, double number, uint32_t *inout_vector, gantry_error *err)
{
    int64_t dims[GANTRY_MAX_RANK];
    uint64_t count = 1;
    uint32_t rank = (uint32_t)-match->axis;
    const gt_value *x = gt_rewrite_value(match->context, match->x);
    void *data;
    if (*inout_vector != GT_NONE)
        return GANTRY_OK;
    for (uint32_t k = 0; k < rank; k++) {
        gt_expr_is_const(&match->context->model->exprs, x->dims[(uint32_t)x->rank - rank + k], &dims[k]);
        count *= (uint64_t)dims[k];
    }
    GT_TRY(gt_rewrite_add_constant(match->context, x->name, x->dtype, rank, dims,
                                   gantry_dtype_bytes(x->dtype, count), &data, inout_vector, err));
    for (uint64_t k = 0; k < count; k++)
        gt_rewrite_store(x->dtype, data, k, number);
    return GANTRY_OK;
}

static bool has_static_axes(const norm_match *match)
{
    const gt_value *x = gt_rewrite_value(match->context, match->x);
    int64_t extent;
    for (int32_t k = x->rank + (int32_t)match->axis; k >= 0 && k < x->rank; k++)
        if (!gt_expr_is_const(&match->context->model->exprs, x->dims[k], &extent))
            return false;
    return x->rank >= -match->axis;
}

static const char *check(const norm_match *match, const gt_rewrite_pattern *pattern)
{
    const gt_value *x = gt_rewrite_value(match->context, match->x);
    if (!gt_rewrite_is_float(x->dtype))
        return "dtype";
    if ((match->scale == GT_NONE || match->bias == GT_NONE) && !has_static_axes(match))
        return "shape";
    if (!gt_rewrite_same_shape(x, gt_rewrite_value(match->context, match->output)))
        return "shape";
    return gt_rewrite_pattern_guard(match->context, pattern);
}

static gantry_status fuse(norm_match *match, gantry_error *err)
{
    gt_rewrite_context *context = match->context;
    GT_TRY(fill_in(match, 1, &match->scale, err));
    GT_TRY(fill_in(match, 0, &match->bias, err));
    uint32_t inputs[] = {match->x, match->scale, match->bias}, node;
    gt_rewrite_pattern pattern = {"LayerNorm", match->nodes, match->node_count, inputs, 3, match->output};
    GT_TRY(gt_rewrite_fuse(context, &pattern, &node, err));
    GT_TRY(gt_node_set_int(context->graph, node, "axis", match->axis, err));
    return gt_node_set_float(context->graph, node, "epsilon", (float)match->epsilon, err);
}

static gantry_status visit_root(gt_rewrite_context *context, const gt_node *root, bool *out_changed,
                                gantry_error *err)
{
    norm_match match = {.context = context};
    const char *guard = NULL;
    uint32_t value = root->outputs[0];
    take(&match, value, "Sqrt");
    if (!match_variance(&match, root->inputs[0], &guard) ||
        (value = match_quotient(&match, value)) == GT_NONE)
        return GANTRY_OK;
    match.scale = guard ? GT_NONE : match_vector(&match, "Mul", &value);
    match.bias = guard ? GT_NONE : match_vector(&match, "Add", &value);
    match.output = value;
    gt_rewrite_pattern pattern = {.nodes = match.nodes, .node_count = match.node_count, .output = value};
    if (!guard)
        guard = check(&match, &pattern);
    if (guard)
        return gt_rewrite_log_miss(context, root->name, guard, err);
    *out_changed = true;
    return fuse(&match, err);
}

gantry_status gt_rewrite_layer_norm(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                    gantry_error *err)
{
    uint32_t order_count = graph->order.count;
    for (uint32_t k = 0; k < order_count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (!node->removed && gt_rewrite_is_op(node, "Sqrt"))
            GT_TRY(visit_root(context, node, out_changed, err));
    }
    return GANTRY_OK;
}
