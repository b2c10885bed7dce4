/* Axes that only a bind knows (an operand that is a graph input): every extent becomes a choice. */
#include "infer_rules.h"

static gt_expr axis_from_front(const gt_infer *infer, gt_expr axis, int32_t rank)
{
    gt_expr shifted = gt_add(infer, axis, gt_number(infer, rank));
    return gt_select(infer, gt_make(infer, GT_EXPR_LT, axis, gt_number(infer, 0)), shifted, axis);
}

gt_expr gt_axis_is(const gt_infer *infer, gt_expr axis, int32_t rank, int32_t expected)
{
    return gt_make(infer, GT_EXPR_EQ, axis_from_front(infer, axis, rank), gt_number(infer, expected));
}

void gt_axes_mask(const gt_infer *infer, const gt_expr *axes, uint32_t count, int32_t rank, gt_expr *out_mask)
{
    for (int32_t a = 0; a < rank; a++) {
        out_mask[a] = gt_number(infer, 0);
        for (uint32_t k = 0; k < count; k++)
            out_mask[a] = gt_make(infer, GT_EXPR_OR, out_mask[a], gt_axis_is(infer, axes[k], rank, a));
    }
}

/* Each of count axes is one of rank, and none is named twice. */
static gantry_status require_distinct(gt_infer *infer, const gt_expr *mask, uint32_t count, int32_t rank)
{
    gt_expr set = gt_number(infer, 0);
    for (int32_t a = 0; a < rank; a++)
        set = gt_add(infer, set, mask[a]);
    return gt_infer_require(infer, gt_make(infer, GT_EXPR_EQ, set, gt_number(infer, count)),
                            "the axes have to be different axes of the tensor, each named once");
}

/* The dims that are not masked, closed up: the j-th of them is that before which j others stand. */
gantry_status gt_axes_drop(gt_infer *infer, const gt_expr *mask, uint32_t count, gt_shape *inout_shape)
{
    GT_TRY(require_distinct(infer, mask, count, inout_shape->rank));
    gt_shape in = *inout_shape;
    gt_expr before = gt_number(infer, 0), one = gt_number(infer, 1);
    inout_shape->rank = count <= (uint32_t)in.rank ? in.rank - (int32_t)count : -1;
    for (int32_t j = 0; j < inout_shape->rank; j++)
        inout_shape->dims[j] = in.dims[in.rank - 1];
    for (int32_t a = 0; a < in.rank; a++) {
        for (int32_t j = 0; j < inout_shape->rank; j++) {
            gt_expr here = gt_make(infer, GT_EXPR_AND, gt_make(infer, GT_EXPR_NOT, mask[a], 0),
                                   gt_make(infer, GT_EXPR_EQ, before, gt_number(infer, j)));
            inout_shape->dims[j] = gt_select(infer, here, in.dims[a], inout_shape->dims[j]);
        }
        before = gt_add(infer, before, gt_sub(infer, one, mask[a]));
    }
    return GANTRY_OK;
}

/* Ones where the mask is set; the dims of the input, in their order, elsewhere. mask is for the larger rank.
 */
gantry_status gt_axes_insert(gt_infer *infer, const gt_expr *mask, int32_t rank, gt_shape *inout_shape)
{
    GT_TRY(require_distinct(infer, mask, (uint32_t)(rank - inout_shape->rank), rank));
    gt_shape in = *inout_shape;
    gt_expr before = gt_number(infer, 0), one = gt_number(infer, 1);
    inout_shape->rank = rank;
    for (int32_t a = 0; a < rank; a++) {
        gt_expr own = one;
        for (int32_t j = 0; j < in.rank; j++)
            own = gt_select(infer, gt_make(infer, GT_EXPR_EQ, before, gt_number(infer, j)), in.dims[j], own);
        inout_shape->dims[a] = gt_select(infer, mask[a], one, own);
        before = gt_add(infer, before, gt_sub(infer, one, mask[a]));
    }
    return GANTRY_OK;
}
