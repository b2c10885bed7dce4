/* Rules of Resize and Upsample: extents from scales (rounded as floats are) or from sizes. */
#include "infer_rules.h"

/* floor(extent * scale), the product rounded to a float as the kernels compute it. A whole scale stays a
 * product. */
static gt_expr scaled(const gt_infer *infer, gt_expr extent, gt_expr scale)
{
    if (scale == GT_EXPR_UNKNOWN)
        return GT_EXPR_UNKNOWN;
    const gt_expr_node *node = &infer->exprs->nodes.data[scale];
    double value = node->constant.r;
    if (node->kind == GT_EXPR_REAL_CONST && value >= 0 && value < 65536 && value == (double)(int64_t)value)
        return gt_mul(infer, extent, gt_number(infer, (int64_t)value));
    gt_expr real = gt_make(infer, GT_EXPR_REAL_ROUND32, gt_make(infer, GT_EXPR_TO_REAL, extent, 0), 0);
    gt_expr product = gt_make(infer, GT_EXPR_REAL_ROUND32, gt_mul(infer, real, scale), 0);
    return gt_make(infer, GT_EXPR_TO_INT, gt_make(infer, GT_EXPR_REAL_FLOOR, product, 0), 0);
}

/* Which axes scales or sizes are for. */
static gantry_status resized_axes(gt_infer *infer, int32_t rank, int32_t *out_axes, uint32_t *out_count)
{
    uint32_t count;
    const int64_t *axes = infer->node->version >= 18 ? gt_node_ints(infer->node, "axes", &count) : NULL;
    *out_count = axes ? count : (uint32_t)rank;
    if (*out_count > (uint32_t)rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "attribute 'axes' names %u axes, the input has %d",
                             count, rank);
    for (uint32_t k = 0; k < *out_count; k++)
        GT_TRY(gt_infer_axis(infer, axes ? axes[k] : (int64_t)k, rank, &out_axes[k]));
    return GANTRY_OK;
}

static gantry_status scale_axes(gt_infer *infer, const gt_expr *scales, uint32_t count, const int32_t *axes,
                                uint32_t axis_count, gt_shape *inout_shape)
{
    if (count != axis_count)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%u scales are given for %u axes", count, axis_count);
    for (uint32_t k = 0; k < count; k++) {
        gt_expr above = gt_make(infer, GT_EXPR_LT, gt_expr_real(infer->exprs, 0), scales[k]);
        GT_TRY(gt_infer_require(infer, above, "each of the scales must be above 0"));
        inout_shape->dims[axes[k]] = scaled(infer, inout_shape->dims[axes[k]], scales[k]);
    }
    return GANTRY_OK;
}

/* One scale for all axes: the least or the greatest of size / extent; extents are rounded half up. */
static void keep_ratio(const gt_infer *infer, const gt_expr *sizes, const int32_t *axes, uint32_t count,
                       bool larger, gt_shape *inout_shape)
{
    gt_expr scale = GT_EXPR_UNKNOWN;
    for (uint32_t k = 0; k < count; k++) {
        gt_expr ratio = gt_make(infer, GT_EXPR_REAL_DIV, gt_make(infer, GT_EXPR_TO_REAL, sizes[k], 0),
                                gt_make(infer, GT_EXPR_TO_REAL, inout_shape->dims[axes[k]], 0));
        ratio = gt_make(infer, GT_EXPR_REAL_ROUND32, ratio, 0);
        scale = k ? gt_make(infer, larger ? GT_EXPR_MAX : GT_EXPR_MIN, scale, ratio) : ratio;
    }
    for (uint32_t k = 0; k < count; k++) {
        gt_expr *extent = &inout_shape->dims[axes[k]];
        gt_expr product = gt_mul(infer, scale, gt_make(infer, GT_EXPR_TO_REAL, *extent, 0));
        product = gt_make(infer, GT_EXPR_REAL_ROUND32, product, 0);
        *extent = gt_make(
            infer, GT_EXPR_TO_INT,
            gt_make(infer, GT_EXPR_REAL_FLOOR, gt_add(infer, product, gt_expr_real(infer->exprs, 0.5)), 0),
            0);
    }
}

static gantry_status size_axes(gt_infer *infer, const gt_expr *sizes, uint32_t count, const int32_t *axes,
                               uint32_t axis_count, gt_shape *inout_shape)
{
    const char *policy = infer->node->version >= 18
                             ? gt_node_string(infer->node, "keep_aspect_ratio_policy", "stretch")
                             : "stretch";
    if (count != axis_count)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%u sizes are given for %u axes", count, axis_count);
    if (strcmp(policy, "stretch") != 0) {
        keep_ratio(infer, sizes, axes, count, strcmp(policy, "not_larger") != 0, inout_shape);
        return GANTRY_OK;
    }
    for (uint32_t k = 0; k < count; k++)
        inout_shape->dims[axes[k]] = sizes[k];
    return GANTRY_OK;
}

static gantry_status open_output(gt_infer *infer, gt_shape *shape)
{
    for (int32_t axis = 0; axis < shape->rank; axis++)
        shape->dims[axis] = gt_out_data_dim(infer, 0, (uint32_t)axis, GT_EXPR_UNKNOWN);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), shape);
    return GANTRY_OK;
}

gantry_status gt_rule_resize(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    int32_t axes[GANTRY_MAX_RANK];
    uint32_t axis_count, scale_count = 0, size_count = 0;
    uint32_t scales_at = infer->node->version >= 11 ? 2 : 1;
    if (shape.rank < 0) {
        gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
        return GANTRY_OK;
    }
    GT_TRY(resized_axes(infer, shape.rank, axes, &axis_count));
    const gt_expr *sizes = infer->node->version >= 11 && gt_in_present(infer, 3)
                               ? gt_in_shape_operand(infer, 3, &size_count)
                               : NULL;
    const gt_expr *scales = sizes ? NULL : gt_in_shape_operand(infer, scales_at, &scale_count);
    /* Files of opset 11 give an empty tensor where the other operand counts. */
    if (sizes && size_count)
        GT_TRY(size_axes(infer, sizes, size_count, axes, axis_count, &shape));
    else if (scales && scale_count)
        GT_TRY(scale_axes(infer, scales, scale_count, axes, axis_count, &shape));
    else if (!gt_in_present(infer, scales_at) && !gt_in_present(infer, 3))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "neither scales nor sizes are given");
    else
        return open_output(infer, &shape);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

/* Scales are an attribute in version 7, an input from version 9 on. */
gantry_status gt_rule_upsample(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    int32_t axes[GANTRY_MAX_RANK];
    gt_expr attribute[GANTRY_MAX_RANK];
    uint32_t count = 0;
    const gt_expr *scales = attribute;
    if (shape.rank < 0) {
        gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
        return GANTRY_OK;
    }
    for (int32_t axis = 0; axis < shape.rank; axis++)
        axes[axis] = axis;
    if (infer->node->version < 9) {
        const gantry_attribute *a = gt_node_attribute(infer->node, "scales");
        if (!a || a->kind != GANTRY_ATTR_FLOATS || a->count > GANTRY_MAX_RANK)
            return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'scales' is missing or too long");
        count = a->count;
        for (uint32_t k = 0; k < count; k++)
            attribute[k] = gt_expr_real(infer->exprs, (double)a->floats[k]);
    } else {
        scales = gt_in_shape_operand(infer, 1, &count);
    }
    if (!scales)
        return open_output(infer, &shape);
    GT_TRY(scale_axes(infer, scales, count, axes, (uint32_t)shape.rank, &shape));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}
