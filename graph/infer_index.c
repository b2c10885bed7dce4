/* Rules of operators that pick, place and find elements: Gather, Scatter, TopK, NonZero ... */
#include "infer_rules.h"

static gantry_status check_indices(gt_infer *infer, uint32_t k)
{
    gantry_dtype dtype = gt_in_dtype(infer, k);
    if (dtype && dtype != GANTRY_INT32 && dtype != GANTRY_INT64)
        return gt_infer_fail(infer, GANTRY_MODEL_TYPE, "the indices must be int32 or int64, '%s' is %s",
                             gt_in_value(infer, k)->name, gantry_dtype_text(dtype));
    return GANTRY_OK;
}

static void unknown_output(gt_infer *infer)
{
    const gt_shape unknown = {.rank = -1};
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &unknown);
}

/* ---- Gather */

/* Gathers along axis 0 of a vector, or from one of whose other axes have extent 1. */
static void gather_elements(gt_infer *infer, int32_t axis)
{
    uint32_t count, picked;
    gt_expr result[GT_MAX_ELEMENTS];
    if (gt_in_rank(infer, 0) != 1 || axis != 0 || !gt_in_has_elements(infer, 0) ||
        !gt_in_has_elements(infer, 1))
        return;
    const gt_expr *indices = gt_in_elements(infer, 1, &picked);
    const gt_expr *data = gt_in_elements(infer, 0, &count);
    for (uint32_t k = 0; indices && data && k < picked; k++) {
        int64_t at;
        bool constant = gt_is_const(infer, indices[k], &at);
        at += constant && at < 0 ? count : 0;
        result[k] = constant && at >= 0 && at < count ? data[at] : GT_EXPR_UNKNOWN;
    }
    if (indices && data)
        gt_out_elements(infer, 0, result, picked);
}

/* Constant indices that are out of range. In a body that may be right: it may never be entered. */
static gantry_status check_range(gt_infer *infer, int32_t axis)
{
    uint32_t count;
    int64_t extent, at;
    if (infer->graph->parent || !gt_in_has_elements(infer, 1) ||
        !gt_is_const(infer, gt_in_dim(infer, 0, axis), &extent))
        return GANTRY_OK;
    const gt_expr *indices = gt_in_elements(infer, 1, &count);
    for (uint32_t k = 0; indices && k < count; k++)
        if (gt_is_const(infer, indices[k], &at) && (at < -extent || at >= extent))
            return gt_infer_fail(
                infer, GANTRY_MODEL_SHAPE,
                "index %lld (element %u of '%s') is out of range: axis %d of '%s' has %lld, so that "
                "%lld to %lld are allowed",
                (long long)at, k, gt_in_value(infer, 1)->name, axis, gt_in_value(infer, 0)->name,
                (long long)extent, (long long)-extent, (long long)extent - 1);
    return GANTRY_OK;
}

gantry_status gt_rule_gather(gt_infer *infer)
{
    gt_shape data = gt_in_shape(infer, 0), indices = gt_in_shape(infer, 1), out = {.rank = 0};
    int32_t axis;
    GT_TRY(check_indices(infer, 1));
    if (data.rank < 0 || indices.rank < 0) {
        unknown_output(infer);
        return GANTRY_OK;
    }
    GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", 0), data.rank, &axis));
    GT_TRY(check_range(infer, axis));
    if (data.rank - 1 + indices.rank > GANTRY_MAX_RANK)
        return gt_infer_fail(infer, GANTRY_UNSUPPORTED, "the result has %d axes; at most %d are supported",
                             data.rank - 1 + indices.rank, GANTRY_MAX_RANK);
    for (int32_t d = 0; d < data.rank; d++) {
        if (d != axis) {
            out.dims[out.rank++] = data.dims[d];
            continue;
        }
        for (int32_t i = 0; i < indices.rank; i++)
            out.dims[out.rank++] = indices.dims[i];
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    gather_elements(infer, axis);
    return GANTRY_OK;
}

gantry_status gt_rule_gather_elements(gt_infer *infer)
{
    GT_TRY(check_indices(infer, 1));
    gt_out_like(infer, 0, gt_in_dtype(infer, 0), 1);
    return GANTRY_OK;
}

gantry_status gt_rule_gather_nd(gt_infer *infer)
{
    gt_shape data = gt_in_shape(infer, 0), indices = gt_in_shape(infer, 1), out = {.rank = 0};
    int64_t depth, batch = gt_attr_int(infer, "batch_dims", 0);
    if (data.rank < 0 || indices.rank < 1 || !gt_is_const(infer, indices.dims[indices.rank - 1], &depth)) {
        unknown_output(infer);
        return GANTRY_OK;
    }
    if (batch < 0 || depth < 1 || batch >= indices.rank || depth > data.rank - batch)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "indices of %lld coordinates after %lld batch axes don't fit data of %d axes",
                             (long long)depth, (long long)batch, data.rank);
    if (indices.rank - 1 + data.rank - (int32_t)(batch + depth) > GANTRY_MAX_RANK)
        return gt_infer_fail(infer, GANTRY_UNSUPPORTED,
                             "the result has too many axes; at most %d are supported", GANTRY_MAX_RANK);
    for (int32_t i = 0; i < indices.rank - 1; i++)
        out.dims[out.rank++] = indices.dims[i];
    for (int32_t d = (int32_t)(batch + depth); d < data.rank; d++)
        out.dims[out.rank++] = data.dims[d];
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    return GANTRY_OK;
}

gantry_status gt_rule_scatter(gt_infer *infer)
{
    GT_TRY(check_indices(infer, 1));
    if (gt_in_dtype(infer, 0) && gt_in_dtype(infer, 2) && gt_in_dtype(infer, 0) != gt_in_dtype(infer, 2))
        return gt_infer_fail(infer, GANTRY_MODEL_TYPE, "data is %s, updates are %s; both must have one type",
                             gantry_dtype_text(gt_in_dtype(infer, 0)),
                             gantry_dtype_text(gt_in_dtype(infer, 2)));
    return gt_rule_same(infer);
}

gantry_status gt_rule_tensor_scatter(gt_infer *infer)
{
    return gt_rule_same(infer);
}

/* ---- new axes and sizes from operands */

static gt_expr scalar_operand(gt_infer *infer, uint32_t k)
{
    uint32_t count;
    const gt_expr *e = gt_in_shape_operand(infer, k, &count);
    if (!e || count != 1)
        return GT_EXPR_UNKNOWN;
    return gt_make(infer, GT_EXPR_TO_INT, e[0], 0);
}

gantry_status gt_rule_one_hot(gt_infer *infer)
{
    gt_shape in = gt_in_shape(infer, 0), out = {.rank = in.rank + 1};
    int32_t axis;
    if (in.rank < 0 || out.rank > GANTRY_MAX_RANK) {
        out.rank = -1;
    } else {
        GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", -1), out.rank, &axis));
        for (int32_t d = 0, from = 0; d < out.rank; d++)
            out.dims[d] = d == axis ? scalar_operand(infer, 1) : in.dims[from++];
        if (out.dims[axis] == GT_EXPR_UNKNOWN)
            out.dims[axis] = gt_out_data_dim(infer, 0, (uint32_t)axis, GT_EXPR_UNKNOWN);
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 2), &out);
    return GANTRY_OK;
}

gantry_status gt_rule_top_k(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    int32_t axis;
    bool attribute = infer->node->version < 10;
    if (!attribute && !gt_in_present(infer, 1))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "input 1, K, is missing");
    gt_expr k = attribute ? gt_number(infer, gt_attr_int(infer, "k", 0)) : scalar_operand(infer, 1);
    if (shape.rank >= 0) {
        int64_t extent, wanted;
        GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", -1), shape.rank, &axis));
        if (gt_is_const(infer, shape.dims[axis], &extent) && gt_is_const(infer, k, &wanted) &&
            (wanted > extent || wanted < 0))
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                                 "the %lld largest of %lld elements on axis %d are asked for",
                                 (long long)wanted, (long long)extent, axis);
        gt_expr fits = gt_make(infer, GT_EXPR_NOT, gt_make(infer, GT_EXPR_LT, shape.dims[axis], k), 0);
        GT_TRY(gt_infer_require(infer, fits, "K must not be more than the axis has elements"));
        shape.dims[axis] =
            k != GT_EXPR_UNKNOWN ? k : gt_out_data_dim(infer, 0, (uint32_t)axis, shape.dims[axis]);
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    gt_out_shape(infer, 1, GANTRY_INT64, &shape);
    return GANTRY_OK;
}

/* ---- sizes that depend on data, with their bounds */

gantry_status gt_rule_non_zero(gt_infer *infer)
{
    int32_t rank = gt_in_rank(infer, 0);
    gt_shape shape = {.rank = 2};
    shape.dims[0] = rank < 0 ? GT_EXPR_UNKNOWN : gt_number(infer, rank);
    shape.dims[1] = gt_out_data_dim(infer, 0, 1, gt_in_size(infer, 0));
    gt_out_shape(infer, 0, GANTRY_INT64, &shape);
    return GANTRY_OK;
}

/* At most max_output_boxes_per_class of the boxes for each batch and class; without that operand none. */
gantry_status gt_rule_nms(gt_infer *infer)
{
    gt_shape shape = {.rank = 2};
    uint32_t count;
    gt_expr boxes = gt_in_dim(infer, 0, 1), batches = gt_in_dim(infer, 1, 0),
            classes = gt_in_dim(infer, 1, 1);
    const gt_expr *limit = gt_in_elements(infer, 2, &count);
    gt_expr each = boxes;
    if (!gt_in_present(infer, 2))
        each = gt_number(infer, 0);
    else if (limit && count == 1 && limit[0] != GT_EXPR_UNKNOWN)
        each = gt_make(infer, GT_EXPR_MAX, gt_make(infer, GT_EXPR_MIN, boxes, limit[0]), gt_number(infer, 0));
    shape.dims[0] = gt_out_data_dim(infer, 0, 0, gt_mul(infer, gt_mul(infer, batches, classes), each));
    shape.dims[1] = gt_number(infer, 3);
    gt_out_shape(infer, 0, GANTRY_INT64, &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_compress(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    bool flat = !gt_node_attribute(infer->node, "axis");
    int32_t axis = 0;
    if (flat) {
        shape.rank = 1;
        shape.dims[0] = gt_in_size(infer, 0);
    } else if (shape.rank >= 0) {
        GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", 0), shape.rank, &axis));
    }
    if (shape.rank >= 0)
        shape.dims[axis] = gt_out_data_dim(infer, 0, (uint32_t)axis, shape.dims[axis]);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_unique(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0), list = {.rank = 1}, inverse = {.rank = 1};
    bool flat = !gt_node_attribute(infer->node, "axis");
    int32_t axis = 0;
    inverse.dims[0] = gt_in_size(infer, 0);
    if (flat) {
        shape.rank = 1;
        shape.dims[0] = inverse.dims[0];
    } else if (shape.rank >= 0) {
        GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", 0), shape.rank, &axis));
        inverse.dims[0] = shape.dims[axis];
    }
    list.dims[0] = gt_out_data_dim(infer, 0, (uint32_t)axis, inverse.dims[0]);
    if (shape.rank >= 0)
        shape.dims[axis] = list.dims[0];
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    gt_out_shape(infer, 1, GANTRY_INT64, &list);
    gt_out_shape(infer, 2, GANTRY_INT64, &inverse);
    gt_out_shape(infer, 3, GANTRY_INT64, &list);
    return GANTRY_OK;
}
