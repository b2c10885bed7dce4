/* Rules of Slice, Pad and their kin: extents that come of bounds, which may be negative, too large, or
 * symbolic. */
#include "infer_rules.h"

/* ---- Slice */

typedef struct bounds {
    uint32_t count;
    const gt_expr *starts, *ends, *steps; /* steps NULL: all 1 */
    int32_t axes[GANTRY_MAX_RANK];
} bounds;

/* A bound counted from 0: negative ones count from the end. Where the sign is not known it is chosen at bind.
 */
static gt_expr from_front(const gt_infer *infer, gt_expr bound, gt_expr extent)
{
    gt_expr_facts facts = gt_expr_known_facts(infer->exprs, bound);
    if (facts.low >= 0)
        return bound;
    gt_expr shifted = gt_add(infer, bound, extent);
    if (facts.high < 0)
        return shifted;
    return gt_select(infer, gt_make(infer, GT_EXPR_LT, bound, gt_number(infer, 0)), shifted, bound);
}

static gt_expr clamp(const gt_infer *infer, gt_expr e, gt_expr low, gt_expr high)
{
    return gt_make(infer, GT_EXPR_MIN, gt_make(infer, GT_EXPR_MAX, e, low), high);
}

/* A bound of a slice of a positive step, between 0 and the extent. */
static gt_expr clamp_forward(const gt_infer *infer, gt_expr bound, gt_expr extent)
{
    gt_expr zero = gt_number(infer, 0);
    gt_expr_facts facts = gt_expr_known_facts(infer->exprs, bound);
    /* Of a bound that is 0 or negative only 0 counts from the front. */
    gt_expr below = facts.high <= 0 ? zero : gt_make(infer, GT_EXPR_MIN, bound, extent);
    gt_expr from_end = gt_make(infer, GT_EXPR_MAX, gt_add(infer, bound, extent), zero);
    if (facts.low >= 0)
        return below;
    return facts.high < 0 ? from_end
                          : gt_select(infer, gt_make(infer, GT_EXPR_LT, bound, zero), from_end, below);
}

/* Where a slice of a positive step begins and ends. INT_MAX and beyond say "to the end" in files of every
 * exporter. */
static void forward_bounds(const gt_infer *infer, gt_expr start, gt_expr end, gt_expr extent,
                           gt_expr *out_start, gt_expr *out_end)
{
    int64_t value;
    *out_start = clamp_forward(infer, start, extent);
    *out_end =
        gt_is_const(infer, end, &value) && value >= INT32_MAX ? extent : clamp_forward(infer, end, extent);
}

/* The bound that was clamped to the extent from above: min(b, d). */
static bool clamped_from(const gt_infer *infer, gt_expr e, gt_expr extent, gt_expr *out_bound)
{
    const gt_expr_node *node = &infer->exprs->nodes.data[e];
    *out_bound = e;
    if (node->kind == GT_EXPR_MIN && (node->a == extent || node->b == extent)) {
        *out_bound = node->a == extent ? node->b : node->a;
        return true;
    }
    return gt_expr_known_facts(infer->exprs, e).high <= gt_expr_known_facts(infer->exprs, extent).low;
}

/* max(end - start, 0), said simply where one of them is clamped: d - min(s, d) is max(d - s, 0), and
 * min(s + k, d) - min(s, d) is min(k, max(d - s, 0)). */
static gt_expr forward_length(const gt_infer *infer, gt_expr start, gt_expr end, gt_expr extent)
{
    gt_expr zero = gt_number(infer, 0), from, to;
    if (start == GT_EXPR_UNKNOWN || end == GT_EXPR_UNKNOWN || extent == GT_EXPR_UNKNOWN)
        return GT_EXPR_UNKNOWN;
    bool clamped = clamped_from(infer, start, extent, &from);
    gt_expr left = gt_make(infer, GT_EXPR_MAX, gt_sub(infer, extent, from), zero);
    if (clamped && end == extent)
        return left;
    if (clamped && clamped_from(infer, end, extent, &to) && gt_expr_is_nonnegative(infer->exprs, from) &&
        gt_expr_is_nonnegative(infer->exprs, gt_sub(infer, to, from)))
        return gt_make(infer, GT_EXPR_MIN, gt_sub(infer, to, from), left);
    /* d - max(d - k, 0) is min(d, k). */
    const gt_expr_node *node = &infer->exprs->nodes.data[start];
    if (end == extent && node->kind == GT_EXPR_MAX && (node->a == zero || node->b == zero)) {
        gt_expr inner = node->a == zero ? node->b : node->a;
        return gt_make(infer, GT_EXPR_MIN, extent, gt_sub(infer, extent, inner));
    }
    return gt_make(infer, GT_EXPR_MAX, gt_sub(infer, end, start), zero);
}

/* The extent of a slice along one axis; *out_start is where it begins. */
static gt_expr slice_extent(const gt_infer *infer, gt_expr start, gt_expr end, gt_expr step, gt_expr extent,
                            gt_expr *out_start)
{
    gt_expr zero = gt_number(infer, 0), one = gt_number(infer, 1), last = gt_sub(infer, extent, one), to;
    gt_expr_facts facts = gt_expr_known_facts(infer->exprs, step);
    int64_t value;
    gt_expr forward, backward, backward_start;
    forward_bounds(infer, start, end, extent, out_start, &to);
    forward = gt_make(infer, GT_EXPR_CEILDIV, forward_length(infer, *out_start, to, extent), step);
    if (facts.low >= 1)
        return forward;
    backward_start = clamp(infer, from_front(infer, start, extent), gt_number(infer, -1), last);
    to = gt_is_const(infer, end, &value) && value <= -(int64_t)INT32_MAX
             ? gt_number(infer, -1)
             : clamp(infer, from_front(infer, end, extent), gt_number(infer, -1), last);
    backward =
        gt_make(infer, GT_EXPR_CEILDIV, gt_make(infer, GT_EXPR_MAX, gt_sub(infer, backward_start, to), zero),
                gt_sub(infer, zero, step));
    if (facts.high < 0) {
        *out_start = backward_start;
        return backward;
    }
    *out_start = GT_EXPR_UNKNOWN;
    return gt_select(infer, gt_make(infer, GT_EXPR_LT, zero, step), forward, backward);
}

static gt_expr *numbers(gt_infer *infer, const int64_t *values, uint32_t count)
{
    gt_expr *e = gt_arena_array(infer->state->scratch, count + 1, sizeof *e);
    for (uint32_t k = 0; e && k < count; k++)
        e[k] = gt_number(infer, values[k]);
    infer->state->failed = infer->state->failed || !e;
    return e;
}

/* The attributes of version 1. */
static gantry_status attribute_bounds(gt_infer *infer, bounds *out, int64_t *axes, uint32_t *axis_count)
{
    uint32_t ends;
    const int64_t *start = gt_node_ints(infer->node, "starts", &out->count);
    const int64_t *end = gt_node_ints(infer->node, "ends", &ends);
    const int64_t *named = gt_node_ints(infer->node, "axes", axis_count);
    if (!start || !end || ends != out->count)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                             "attributes 'starts' and 'ends' must have the same length");
    out->starts = numbers(infer, start, out->count);
    out->ends = numbers(infer, end, out->count);
    if (!named)
        *axis_count = 0;
    for (uint32_t k = 0; k < *axis_count && k < GANTRY_MAX_RANK; k++)
        axes[k] = named[k];
    return GANTRY_OK;
}

/* The inputs of version 10; *out_known is false when nobody can say what is sliced. */
static gantry_status input_bounds(gt_infer *infer, bounds *out, int64_t *axes, uint32_t *axis_count,
                                  bool *out_known)
{
    uint32_t ends, steps = 0;
    if (!gt_in_present(infer, 1) || !gt_in_present(infer, 2))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "inputs 1 and 2, starts and ends, are required");
    out->starts = gt_in_shape_operand(infer, 1, &out->count);
    out->ends = gt_in_shape_operand(infer, 2, &ends);
    out->steps = gt_in_present(infer, 4) ? gt_in_shape_operand(infer, 4, &steps) : NULL;
    *axis_count = 0;
    *out_known = out->starts && out->ends && (out->steps || !gt_in_present(infer, 4)) &&
                 (!gt_in_present(infer, 3) || gt_in_constants(infer, 3, axes, GANTRY_MAX_RANK, axis_count));
    if ((out->starts && out->ends && ends != out->count) ||
        (out->starts && out->steps && steps != out->count))
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "%u starts, %u ends and %u steps are given; as many are needed", out->count,
                             ends, out->steps ? steps : out->count);
    return GANTRY_OK;
}

static gantry_status slice_axes(gt_infer *infer, bounds *b, const int64_t *axes, uint32_t axis_count,
                                int32_t rank)
{
    bool seen[GANTRY_MAX_RANK] = {false};
    if ((axis_count && axis_count != b->count) || b->count > (uint32_t)rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%u starts for %u axes of an input that has %d",
                             b->count, axis_count, rank);
    for (uint32_t k = 0; k < b->count; k++) {
        GT_TRY(gt_infer_axis(infer, axis_count ? axes[k] : (int64_t)k, rank, &b->axes[k]));
        if (seen[b->axes[k]])
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "axis %d is sliced twice", b->axes[k]);
        seen[b->axes[k]] = true;
    }
    return GANTRY_OK;
}

static gantry_status require_step(gt_infer *infer, gt_expr step)
{
    gt_expr stays = gt_make(infer, GT_EXPR_EQ, step, gt_number(infer, 0));
    return gt_infer_require(infer, gt_make(infer, GT_EXPR_NOT, stays, 0), "a step must not be 0");
}

/* Axes that are known when bound. */
static gantry_status slice_chosen(gt_infer *infer, const bounds *b)
{
    uint32_t count;
    gt_shape shape = gt_in_shape(infer, 0);
    const gt_expr *axes = gt_in_shape_operand(infer, 3, &count);
    bool steps_known = b->steps || !gt_in_present(infer, 4);
    if (!axes || count != b->count || !steps_known)
        shape.rank = -1;
    for (int32_t axis = 0; axis < shape.rank; axis++) {
        gt_expr whole = shape.dims[axis], start;
        for (uint32_t k = 0; k < count; k++) {
            gt_expr by = b->steps ? b->steps[k] : gt_number(infer, 1);
            GT_TRY(require_step(infer, by));
            gt_expr part = slice_extent(infer, b->starts[k], b->ends[k], by, whole, &start);
            shape.dims[axis] =
                gt_select(infer, gt_axis_is(infer, axes[k], shape.rank, axis), part, shape.dims[axis]);
        }
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_slice(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    bounds b = {0};
    int64_t axes[GANTRY_MAX_RANK] = {0}, strides[GANTRY_MAX_RANK], offset = 0, value, step;
    uint32_t axis_count = 0;
    bool known = true;
    if (infer->node->version < 10)
        GT_TRY(attribute_bounds(infer, &b, axes, &axis_count));
    else
        GT_TRY(input_bounds(infer, &b, axes, &axis_count, &known));
    if (!known && shape.rank >= 0 && b.starts && b.ends)
        return slice_chosen(infer, &b);
    if (!known || shape.rank < 0 || infer->state->failed) {
        shape.rank = -1;
        gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
        return GANTRY_OK;
    }
    GT_TRY(slice_axes(infer, &b, axes, axis_count, shape.rank));
    bool movable = gt_in_strides(infer, 0, strides);
    for (uint32_t k = 0; k < b.count; k++) {
        gt_expr *extent = &shape.dims[b.axes[k]], start, by = b.steps ? b.steps[k] : gt_number(infer, 1);
        GT_TRY(require_step(infer, by));
        *extent = slice_extent(infer, b.starts[k], b.ends[k], by, *extent, &start);
        int64_t *stride = &strides[b.axes[k]];
        movable = movable && gt_is_const(infer, start, &value) && gt_is_const(infer, by, &step) &&
                  !__builtin_mul_overflow(value, *stride, &value) &&
                  !__builtin_add_overflow(offset, value, &offset) &&
                  !__builtin_mul_overflow(*stride, step, stride);
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    if (movable)
        gt_out_strided(infer, 0, 0, strides, offset);
    return GANTRY_OK;
}

/* ---- Pad */

static gantry_status pad_axes(gt_infer *infer, int32_t rank, int32_t *out_axes, uint32_t *out_count,
                              bool *out_known)
{
    int64_t axes[GANTRY_MAX_RANK];
    *out_known = true;
    *out_count = (uint32_t)rank;
    for (int32_t axis = 0; axis < rank; axis++)
        out_axes[axis] = axis;
    if (infer->node->version < 18 || !gt_in_present(infer, 3))
        return GANTRY_OK;
    *out_known = gt_in_constants(infer, 3, axes, GANTRY_MAX_RANK, out_count);
    for (uint32_t k = 0; *out_known && k < *out_count; k++)
        GT_TRY(gt_infer_axis(infer, axes[k], rank, &out_axes[k]));
    return GANTRY_OK;
}

/* Axes that are known when bound. */
static gantry_status pad_chosen(gt_infer *infer, const gt_expr *pads, uint32_t pad_count)
{
    uint32_t count;
    gt_shape shape = gt_in_shape(infer, 0);
    const gt_expr *axes = gt_in_shape_operand(infer, 3, &count);
    if (!axes || pad_count != 2 * count)
        shape.rank = -1;
    for (int32_t axis = 0; axis < shape.rank; axis++)
        for (uint32_t k = 0; k < count; k++) {
            gt_expr more = gt_select(infer, gt_axis_is(infer, axes[k], shape.rank, axis),
                                     gt_add(infer, pads[k], pads[count + k]), gt_number(infer, 0));
            shape.dims[axis] = gt_add(infer, shape.dims[axis], more);
        }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_pad(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    uint32_t count = 0, pad_count = 0;
    int32_t axes[GANTRY_MAX_RANK] = {0};
    bool known = true;
    const gt_expr *pads;
    if (infer->node->version < 11) {
        const int64_t *attribute = gt_node_ints(infer->node, "pads", &pad_count);
        pads = attribute ? numbers(infer, attribute, pad_count) : NULL;
    } else {
        if (!gt_in_present(infer, 1))
            return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "input 1, the pads, is missing");
        pads = gt_in_shape_operand(infer, 1, &pad_count);
    }
    if (shape.rank >= 0)
        GT_TRY(pad_axes(infer, shape.rank, axes, &count, &known));
    if (!known && pads && shape.rank >= 0)
        return pad_chosen(infer, pads, pad_count);
    if (shape.rank >= 0 && pads && known && pad_count != 2 * count)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "%u pads are given for %u axes; two for each are needed", pad_count, count);
    for (uint32_t k = 0; k < count && shape.rank >= 0; k++) {
        gt_expr *extent = &shape.dims[axes[k]];
        if (pads && known)
            *extent = gt_add(infer, *extent, gt_add(infer, pads[k], pads[count + k]));
    }
    if (!pads || !known)
        shape.rank = -1;
    for (int32_t axis = 0; axis < shape.rank; axis++) {
        int64_t extent;
        if (gt_is_const(infer, shape.dims[axis], &extent) && extent < 0)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the pads leave %lld of axis %d",
                                 (long long)extent, axis);
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_center_crop_pad(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    uint32_t count, axis_count;
    const int64_t *axes = gt_node_ints(infer->node, "axes", &axis_count);
    const gt_expr *target = gt_in_shape_operand(infer, 1, &count);
    if (!target)
        shape.rank = -1;
    if (shape.rank >= 0 && count != (axes ? axis_count : (uint32_t)shape.rank))
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%u extents are given for %u axes", count,
                             axes ? axis_count : (uint32_t)shape.rank);
    for (uint32_t k = 0; shape.rank >= 0 && k < count; k++) {
        int32_t axis;
        GT_TRY(gt_infer_axis(infer, axes ? axes[k] : (int64_t)k, shape.rank, &axis));
        shape.dims[axis] = target[k];
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_reverse_sequence(gt_infer *infer)
{
    return gt_rule_same(infer);
}
