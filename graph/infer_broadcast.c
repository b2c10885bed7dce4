/* What rules demand of shapes together: axes, equal extents, broadcasting. What can't be decided becomes a
 * check at bind. */
#include "infer_rules.h"

gantry_status gt_infer_axis(const gt_infer *infer, int64_t axis, int32_t rank, int32_t *out_axis)
{
    if (axis < -rank || axis >= rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "axis %lld is not among the %d axes; -%d to %d are",
                             (long long)axis, rank, rank, rank - 1);
    *out_axis = (int32_t)(axis < 0 ? axis + rank : axis);
    return GANTRY_OK;
}

static void push_check(gt_infer *infer, const gt_shape_check *check)
{
    gt_graph *graph = infer->graph;
    if (graph->check_count == graph->check_capacity) {
        uint32_t capacity = graph->check_capacity ? graph->check_capacity * 2 : 16;
        gt_shape_check *grown = gt_arena_array(&infer->model->arena, capacity, sizeof *grown);
        if (!grown) {
            infer->state->failed = true;
            return;
        }
        if (graph->check_count)
            memcpy(grown, graph->checks, graph->check_count * sizeof *grown);
        graph->checks = grown;
        graph->check_capacity = capacity;
    }
    graph->checks[graph->check_count++] = *check;
}

static uint32_t input_value(const gt_infer *infer, uint32_t k)
{
    return k < infer->node->input_count ? infer->node->inputs[k] : GT_NONE;
}

void gt_infer_check(gt_infer *infer, gt_expr expr, uint32_t a, uint32_t axis_a, uint32_t b, uint32_t axis_b)
{
    int64_t value;
    if (expr == GT_EXPR_UNKNOWN || (gt_is_const(infer, expr, &value) && value))
        return;
    gt_shape_check check = {expr,   infer->node_id, input_value(infer, a), input_value(infer, b),
                            axis_a, axis_b};
    push_check(infer, &check);
}

gantry_status gt_infer_same(gt_infer *infer, uint32_t a, int32_t axis_a, uint32_t b, int32_t axis_b,
                            gt_expr *out)
{
    gt_expr x = gt_in_dim(infer, a, axis_a), y = gt_in_dim(infer, b, axis_b);
    int64_t value;
    *out = x == GT_EXPR_UNKNOWN ? y : x;
    if (x == GT_EXPR_UNKNOWN || y == GT_EXPR_UNKNOWN || x == y)
        return GANTRY_OK;
    gt_expr equal = gt_make(infer, GT_EXPR_EQ, x, y);
    gt_shape_check check = {equal,
                            infer->node_id,
                            input_value(infer, a),
                            input_value(infer, b),
                            (uint32_t)(gt_in_rank(infer, a) - axis_a),
                            (uint32_t)(gt_in_rank(infer, b) - axis_b)};
    if (gt_is_const(infer, equal, &value) && !value)
        return gt_infer_fail_pair(infer, &check);
    if (equal != GT_EXPR_UNKNOWN && !gt_is_const(infer, equal, &value))
        push_check(infer, &check);
    /* The simpler one: a constant, else what came first. */
    if (gt_is_const(infer, y, &value) || (!gt_is_const(infer, x, &value) && y < x))
        *out = y;
    return GANTRY_OK;
}

/* The input among those below k whose extent on this axis (counted from the right) is what stands against
 * k's. */
static uint32_t opponent(const gt_infer *infer, uint32_t k, uint32_t axis, gt_expr extent)
{
    uint32_t found = 0;
    int64_t value;
    for (uint32_t i = 0; i < k; i++) {
        gt_expr own =
            gt_in_rank(infer, i) < (int32_t)axis ? GT_EXPR_UNKNOWN : gt_in_dim(infer, i, -(int32_t)axis);
        if (own == extent)
            return i;
        if (own != GT_EXPR_UNKNOWN && !(gt_is_const(infer, own, &value) && value == 1))
            found = i;
    }
    return found;
}

static gantry_status broadcast_axis(gt_infer *infer, gt_expr *inout_extent, uint32_t k, uint32_t axis)
{
    gt_expr x = *inout_extent, y = gt_in_dim(infer, k, -(int32_t)axis);
    int64_t p = 0, q = 0;
    bool const_x = gt_is_const(infer, x, &p), const_y = gt_is_const(infer, y, &q);
    if (x == y || (const_y && q == 1))
        return GANTRY_OK;
    if (const_x && p == 1) {
        *inout_extent = y;
        return GANTRY_OK;
    }
    gt_expr both = gt_make(infer, GT_EXPR_BROADCAST, x, y);
    uint32_t other = opponent(infer, k, axis, x);
    gt_shape_check check = {both, infer->node_id, input_value(infer, other), input_value(infer, k), axis,
                            axis};
    if (const_x && const_y)
        return gt_infer_fail_pair(infer, &check);
    if (both != GT_EXPR_UNKNOWN && both != x)
        push_check(infer, &check);
    /* Against an extent that is 2 or more everything else is 1 or the same, or the check fails. */
    if (gt_expr_known_facts(infer->exprs, y).low >= 2)
        both = y;
    if (gt_expr_known_facts(infer->exprs, x).low >= 2)
        both = x;
    *inout_extent = both;
    return GANTRY_OK;
}

gantry_status gt_infer_broadcast(gt_infer *infer, gt_shape *inout_shape, uint32_t k)
{
    int32_t rank = gt_in_rank(infer, k);
    if (rank < 0 || inout_shape->rank < 0) {
        inout_shape->rank = -1;
        return GANTRY_OK;
    }
    if (rank > inout_shape->rank) {
        int32_t more = rank - inout_shape->rank;
        memmove(&inout_shape->dims[more], inout_shape->dims, (size_t)inout_shape->rank * sizeof(gt_expr));
        for (int32_t axis = 0; axis < more; axis++)
            inout_shape->dims[axis] = gt_number(infer, 1);
        inout_shape->rank = rank;
    }
    for (int32_t axis = 1; axis <= rank; axis++)
        GT_TRY(broadcast_axis(infer, &inout_shape->dims[inout_shape->rank - axis], k, (uint32_t)axis));
    return GANTRY_OK;
}

gantry_status gt_infer_broadcast_inputs(gt_infer *infer, uint32_t first, uint32_t last, gt_shape *out_shape)
{
    *out_shape = gt_in_shape(infer, first);
    for (uint32_t k = first + 1; k < last; k++)
        GT_TRY(gt_infer_broadcast(infer, out_shape, k));
    return GANTRY_OK;
}

gantry_status gt_infer_same_types(gt_infer *infer, uint32_t first, uint32_t last)
{
    gantry_dtype expected = GANTRY_UNDEFINED;
    uint32_t of = first;
    for (uint32_t k = first; k < last; k++) {
        gantry_dtype dtype = gt_in_dtype(infer, k);
        if (!dtype)
            continue;
        if (expected && dtype != expected)
            return gt_infer_fail(infer, GANTRY_MODEL_TYPE,
                                 "'%s' is %s, but '%s' is %s; both must have one type (insert a Cast)",
                                 gt_in_value(infer, of)->name, gantry_dtype_text(expected),
                                 gt_in_value(infer, k)->name, gantry_dtype_text(dtype));
        if (!expected)
            of = k;
        expected = dtype;
    }
    return GANTRY_OK;
}
