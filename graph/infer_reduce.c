/* Rules of reductions: axes from an attribute or an input, and sums of small known vectors. */
#include "infer_rules.h"

/* Since which version the axes are an input. */
static int32_t axes_input_since(const gt_infer *infer)
{
    return strcmp(infer->node->op_type, "ReduceSum") == 0 ? 13 : 18;
}

/* Which axes are reduced; *out_known is false when only running can tell. */
static gantry_status reduced_axes(gt_infer *infer, int32_t rank, bool *out_mask, bool *out_known)
{
    int64_t values[GANTRY_MAX_RANK];
    uint32_t count = 0;
    const int64_t *axes = values;
    bool from_input = infer->node->version >= axes_input_since(infer), given;
    *out_known = true;
    if (from_input) {
        given = gt_in_present(infer, 1);
        *out_known = !given || gt_in_constants(infer, 1, values, GANTRY_MAX_RANK, &count);
    } else {
        axes = gt_node_ints(infer->node, "axes", &count);
        given = axes != NULL;
    }
    if (!*out_known)
        return GANTRY_OK;
    bool all = (!given || count == 0) && !(from_input && gt_attr_int(infer, "noop_with_empty_axes", 0));
    for (int32_t axis = 0; axis < rank; axis++)
        out_mask[axis] = all;
    for (uint32_t k = 0; given && k < count; k++) {
        int32_t axis;
        GT_TRY(gt_infer_axis(infer, axes[k], rank, &axis));
        out_mask[axis] = true;
    }
    return GANTRY_OK;
}

static void reduce_shape(gt_infer *infer, gantry_dtype dtype, const bool *mask, bool keep)
{
    gt_shape in = gt_in_shape(infer, 0), out = {.rank = 0};
    for (int32_t axis = 0; axis < in.rank; axis++)
        if (!mask[axis])
            out.dims[out.rank++] = in.dims[axis];
        else if (keep)
            out.dims[out.rank++] = gt_number(infer, 1);
    if (in.rank < 0)
        out.rank = -1;
    gt_out_shape(infer, 0, dtype, &out);
}

/* Axes that are known when bound. */
static gantry_status reduce_chosen(gt_infer *infer, bool keep)
{
    uint32_t count;
    gt_shape shape = gt_in_shape(infer, 0);
    gt_expr mask[GANTRY_MAX_RANK];
    const gt_expr *axes = gt_in_shape_operand(infer, 1, &count);
    if (axes && count > 0)
        gt_axes_mask(infer, axes, count, shape.rank, mask);
    if (!axes || count == 0)
        shape.rank = -1;
    else if (!keep)
        GT_TRY(gt_axes_drop(infer, mask, count, &shape));
    for (int32_t axis = 0; keep && axis < shape.rank; axis++)
        shape.dims[axis] = gt_select(infer, mask[axis], gt_number(infer, 1), shape.dims[axis]);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

static gantry_status reduce(gt_infer *infer, gt_expr_kind kind, int64_t neutral, bool propagates)
{
    bool mask[GANTRY_MAX_RANK], known, keep = gt_attr_int(infer, "keepdims", 1) != 0;
    int32_t rank = gt_in_rank(infer, 0);
    uint32_t count;
    if (rank < 0) {
        gt_out_like(infer, 0, gt_in_dtype(infer, 0), 0);
        return GANTRY_OK;
    }
    GT_TRY(reduced_axes(infer, rank, mask, &known));
    if (!known)
        return reduce_chosen(infer, keep);
    reduce_shape(infer, gt_in_dtype(infer, 0), mask, keep);
    if (!propagates || rank != 1 || !mask[0] || !gt_in_has_elements(infer, 0))
        return GANTRY_OK;
    const gt_expr *elements = gt_in_elements(infer, 0, &count);
    gantry_dtype dtype = gt_in_dtype(infer, 0);
    if (!elements || (dtype != GANTRY_INT64 && dtype != GANTRY_INT32) || (count == 0 && neutral < 0))
        return GANTRY_OK;
    gt_expr sum = count ? elements[0] : gt_number(infer, neutral);
    for (uint32_t e = 1; e < count; e++)
        sum = gt_make(infer, kind, sum, elements[e]);
    gt_out_elements(infer, 0, &sum, 1);
    return GANTRY_OK;
}

gantry_status gt_rule_reduce(gt_infer *infer)
{
    return reduce(infer, GT_EXPR_ADD, 0, false);
}

gantry_status gt_rule_reduce_sum(gt_infer *infer)
{
    return reduce(infer, GT_EXPR_ADD, 0, true);
}

gantry_status gt_rule_reduce_prod(gt_infer *infer)
{
    return reduce(infer, GT_EXPR_MUL, 1, true);
}

gantry_status gt_rule_reduce_min(gt_infer *infer)
{
    return reduce(infer, GT_EXPR_MIN, -1, true);
}

gantry_status gt_rule_reduce_max(gt_infer *infer)
{
    return reduce(infer, GT_EXPR_MAX, -1, true);
}

gantry_status gt_rule_arg(gt_infer *infer)
{
    bool mask[GANTRY_MAX_RANK] = {false};
    int32_t rank = gt_in_rank(infer, 0), axis;
    if (rank >= 0) {
        GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", 0), rank, &axis));
        mask[axis] = true;
        GT_TRY(gt_infer_require(infer,
                                gt_make(infer, GT_EXPR_LT, gt_number(infer, 0), gt_in_dim(infer, 0, axis)),
                                "an axis without elements has no greatest or least one"));
    }
    reduce_shape(infer, GANTRY_INT64, mask, gt_attr_int(infer, "keepdims", 1) != 0);
    return GANTRY_OK;
}

gantry_status gt_rule_det(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    if (shape.rank >= 0 && shape.rank < 2)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the input must have 2 axes or more");
    if (shape.rank >= 0)
        shape.rank -= 2;
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}
