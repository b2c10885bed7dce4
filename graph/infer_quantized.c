/* Shape rules of the quantized operators of com.microsoft: inputs are tensor, scale, zero point for each
 * operand. */
#include "infer_rules.h"

gantry_status gt_rule_qlinear_binary(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    GT_TRY(gt_infer_broadcast(infer, &shape, 3));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_qlinear_global_pool(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    int32_t last = gt_attr_int(infer, "channels_last", 0) != 0;
    for (int32_t axis = 2 - last; axis < shape.rank - last; axis++)
        shape.dims[axis] = gt_number(infer, 1);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_qgemm(gt_infer *infer)
{
    int32_t turn_a = gt_attr_int(infer, "transA", 0) != 0, turn_b = gt_attr_int(infer, "transB", 0) != 0;
    gt_shape out = {.rank = 2};
    gt_expr inner;
    for (uint32_t k = 0; k <= 3; k += 3)
        if (gt_in_rank(infer, k) >= 0 && gt_in_rank(infer, k) != 2)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "'%s' must have 2 axes, it has %d",
                                 gt_in_value(infer, k)->name, gt_in_rank(infer, k));
    if (gt_in_rank(infer, 0) == 2 && gt_in_rank(infer, 3) == 2)
        GT_TRY(gt_infer_same(infer, 0, 1 - turn_a, 3, turn_b, &inner));
    out.dims[0] = gt_in_dim(infer, 0, turn_a);
    out.dims[1] = gt_in_dim(infer, 3, 1 - turn_b);
    gt_out_shape(infer, 0, gt_in_present(infer, 7) ? gt_in_dtype(infer, 0) : GANTRY_FLOAT32, &out);
    return GANTRY_OK;
}
