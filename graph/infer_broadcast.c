/* What rules demand of shapes together: axes, equal extents, broadcasting. What can't be decided becomes a
 * check at bind. */
#include "infer_rules.h"

gantry_status gt_infer_axis(const gt_infer *infer, int64_t axis, int32_t rank, int32_t *out_axis)
{
    if (axis < -rank || axis >= rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "axis %lld does not exist: there are %d, so that -%d to %d are allowed",
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

/* ---- extents that checks make equal */

static gt_expr find_root(const gt_infer_state *state, gt_expr e)
{
    while (e < state->equal_count && state->equal[e] != e)
        e = state->equal[e];
    return e;
}

gt_expr gt_infer_root(const gt_infer *infer, gt_expr e)
{
    if (e == GT_EXPR_UNKNOWN)
        return e;
    for (const gt_infer_state *state = infer->state; state; state = state->parent)
        e = find_root(state, e);
    return e;
}

static bool reserve_equal(gt_infer *infer, gt_expr e)
{
    gt_infer_state *state = infer->state;
    if (e < state->equal_count)
        return true;
    uint32_t count = infer->exprs->nodes.count * 2 + 64;
    gt_expr *grown = gt_arena_array(state->scratch, count, sizeof *grown);
    if (!grown) {
        state->failed = true;
        return false;
    }
    for (uint32_t k = 0; k < count; k++)
        grown[k] = k < state->equal_count ? state->equal[k] : k;
    state->equal = grown;
    state->equal_count = count;
    return true;
}

/* True when a says more than b, or is known earlier: a constant, an input, what was there first. */
static bool is_simpler(const gt_infer *infer, gt_expr a, gt_expr b)
{
    gt_expr_facts x = gt_expr_known_facts(infer->exprs, a), y = gt_expr_known_facts(infer->exprs, b);
    bool const_a = gt_is_const(infer, a, NULL), const_b = gt_is_const(infer, b, NULL);
    if (const_a != const_b)
        return const_a;
    if (x.depth != y.depth || x.segment != y.segment)
        return x.depth < y.depth || (x.depth == y.depth && x.segment < y.segment);
    return a < b;
}

void gt_infer_unite(gt_infer *infer, gt_expr a, gt_expr b)
{
    if (a == GT_EXPR_UNKNOWN || b == GT_EXPR_UNKNOWN)
        return;
    a = gt_infer_root(infer, a);
    b = gt_infer_root(infer, b);
    if (a == b)
        return;
    gt_expr root = is_simpler(infer, a, b) ? a : b, other = root == a ? b : a;
    if (reserve_equal(infer, other))
        infer->state->equal[other] = root;
}

/* ---- checks */

static uint32_t input_value(const gt_infer *infer, uint32_t k)
{
    return k < infer->node->input_count ? infer->node->inputs[k] : GT_NONE;
}

void gt_infer_check(gt_infer *infer, gt_expr expr, uint32_t a, uint32_t axis_a, uint32_t b, uint32_t axis_b)
{
    if (expr == GT_EXPR_UNKNOWN)
        return;
    const gt_expr_node *node = &infer->exprs->nodes.data[expr];
    if (node->kind != GT_EXPR_BROADCAST && node->kind != GT_EXPR_SAME)
        return;
    gt_shape_check check = {.expr = expr,
                            .node = infer->node_id,
                            .a = input_value(infer, a),
                            .b = input_value(infer, b),
                            .axis_a = axis_a,
                            .axis_b = axis_b};
    push_check(infer, &check);
}

gantry_status gt_infer_require(gt_infer *infer, gt_expr condition, const char *rule)
{
    int64_t value;
    if (condition == GT_EXPR_UNKNOWN)
        return GANTRY_OK;
    if (gt_is_const(infer, condition, &value))
        return value ? GANTRY_OK : gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%s", rule);
    gt_shape_check check = {.expr = gt_make(infer, GT_EXPR_SAME, condition, gt_number(infer, 1)),
                            .node = infer->node_id,
                            .a = GT_NONE,
                            .b = GT_NONE,
                            .rule = rule};
    if (check.expr != GT_EXPR_UNKNOWN)
        push_check(infer, &check);
    return GANTRY_OK;
}

gantry_status gt_infer_same(gt_infer *infer, uint32_t a, int32_t axis_a, uint32_t b, int32_t axis_b,
                            gt_expr *out)
{
    gt_expr x = gt_in_dim(infer, a, axis_a), y = gt_in_dim(infer, b, axis_b);
    int64_t value;
    *out = x == GT_EXPR_UNKNOWN ? y : x;
    if (x == GT_EXPR_UNKNOWN || y == GT_EXPR_UNKNOWN || x == y)
        return GANTRY_OK;
    gt_expr same = gt_make(infer, GT_EXPR_SAME, x, y), equal = gt_make(infer, GT_EXPR_EQ, x, y);
    gt_shape_check check = {.expr = same,
                            .node = infer->node_id,
                            .a = input_value(infer, a),
                            .b = input_value(infer, b),
                            .axis_a = (uint32_t)(gt_in_rank(infer, a) - axis_a),
                            .axis_b = (uint32_t)(gt_in_rank(infer, b) - axis_b)};
    if (gt_is_const(infer, equal, &value) && !value)
        return gt_infer_fail_pair(infer, &check);
    push_check(infer, &check);
    gt_infer_unite(infer, x, y);
    *out = gt_infer_root(infer, x);
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

/* Whether e is x, or one of those that x is broadcast from. */
static bool is_leaf_of(const gt_infer *infer, gt_expr e, gt_expr x)
{
    /* Broadcasts are chains to the left (see make_broadcast). */
    for (const gt_expr_node *node = &infer->exprs->nodes.data[x];; node = &infer->exprs->nodes.data[x]) {
        if (e == x)
            return true;
        if (node->kind != GT_EXPR_BROADCAST)
            return false;
        if (e == node->b)
            return true;
        x = node->a;
    }
}

/* x against min(x, c): when they broadcast, the result is x, unless x is 1 and c 0. */
static bool is_least_of(const gt_infer *infer, gt_expr least, gt_expr x)
{
    const gt_expr_node *node = &infer->exprs->nodes.data[least];
    return node->kind == GT_EXPR_MIN && (is_leaf_of(infer, node->a, x) || is_leaf_of(infer, node->b, x)) &&
           gt_expr_known_facts(infer->exprs, least).low >= 0;
}

/* A slice that ran empty stands against 1: legal, but the result would be empty too. Files mean min(x, c) to
 * be x there, so that this is checked instead of carried along in every extent. */
static void check_not_empty(gt_infer *infer, gt_expr least, gt_expr x, const gt_shape_check *both)
{
    gt_expr zero = gt_number(infer, 0);
    gt_expr holds = gt_make(infer, GT_EXPR_OR, gt_make(infer, GT_EXPR_LT, zero, least),
                            gt_make(infer, GT_EXPR_EQ, x, zero));
    gt_shape_check check = *both;
    check.expr = gt_make(infer, GT_EXPR_SAME, holds, gt_number(infer, 1));
    if (check.expr != GT_EXPR_UNKNOWN && !gt_is_const(infer, holds, NULL))
        push_check(infer, &check);
}

gt_expr gt_infer_broadcast_extent(gt_infer *infer, gt_expr x, gt_expr y, const gt_shape_check *both)
{
    if (x == GT_EXPR_UNKNOWN || y == GT_EXPR_UNKNOWN)
        return GT_EXPR_UNKNOWN;
    /* Against an extent that is 2 or more everything else is 1 or the same, or the check fails. */
    if (gt_expr_known_facts(infer->exprs, x).low >= 2)
        return x;
    if (gt_expr_known_facts(infer->exprs, y).low >= 2)
        return y;
    bool x_is_more = is_least_of(infer, y, x);
    if (!x_is_more && !is_least_of(infer, x, y))
        return gt_make(infer, GT_EXPR_BROADCAST, x, y);
    check_not_empty(infer, x_is_more ? y : x, x_is_more ? x : y, both);
    return x_is_more ? x : y;
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
    gt_shape_check check = {.expr = both,
                            .node = infer->node_id,
                            .a = input_value(infer, other),
                            .b = input_value(infer, k),
                            .axis_a = axis,
                            .axis_b = axis};
    if (const_x && const_y)
        return gt_infer_fail_pair(infer, &check);
    if (both != GT_EXPR_UNKNOWN && both != x)
        push_check(infer, &check);
    *inout_extent = gt_infer_broadcast_extent(infer, x, y, &check);
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
