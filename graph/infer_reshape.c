/* Rules of operators that give the same elements another shape or order: Reshape, Transpose, Concat, Split
 * ... */
#include "infer_rules.h"

/* All elements in their order: what every pure change of shape leaves. */
static void pass_elements(gt_infer *infer)
{
    uint32_t count;
    if (!gt_in_has_elements(infer, 0))
        return;
    const gt_expr *elements = gt_in_elements(infer, 0, &count);
    gt_out_elements(infer, 0, elements, count);
}

static gantry_status unknown_output(gt_infer *infer)
{
    const gt_shape unknown = {.rank = -1};
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &unknown);
    return GANTRY_OK;
}

/* ---- Reshape */

/* The target as plain extents, and for each the condition that it is to be inferred (-1). */
typedef struct target {
    uint32_t count;
    gt_expr extents[GANTRY_MAX_RANK];
    gt_expr inferred[GANTRY_MAX_RANK]; /* bool; constant 0 mostly */
} target;

static gantry_status read_target(gt_infer *infer, const gt_expr *elements, uint32_t count, target *out)
{
    bool allow_zero = infer->node->version >= 14 && gt_attr_int(infer, "allowzero", 0);
    out->count = count;
    for (uint32_t k = 0; k < count; k++) {
        gt_expr e = elements[k], own = gt_in_dim(infer, 0, (int32_t)k);
        int64_t value;
        bool constant = gt_is_const(infer, e, &value);
        out->extents[k] = e;
        out->inferred[k] = gt_number(infer, constant && value == -1);
        if (constant && value < -1)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the shape asked for has %lld at axis %u",
                                 (long long)value, k);
        if (constant && value == 0 && !allow_zero) {
            if (gt_in_rank(infer, 0) >= 0 && (int32_t)k >= gt_in_rank(infer, 0))
                return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                                     "the shape asked for copies axis %u (0), which the input does not have",
                                     k);
            out->extents[k] = own;
        }
        if (constant || gt_expr_is_nonnegative(infer->exprs, e))
            continue;
        /* It may be -1 or 0 when bound. */
        out->inferred[k] = gt_make(infer, GT_EXPR_EQ, e, gt_number(infer, -1));
        if (!allow_zero && (int32_t)k < gt_in_rank(infer, 0))
            out->extents[k] = gt_select(infer, gt_make(infer, GT_EXPR_EQ, e, gt_number(infer, 0)), own, e);
    }
    gt_expr holes = gt_number(infer, 0);
    for (uint32_t k = 0; k < count; k++)
        holes = gt_add(infer, holes, out->inferred[k]);
    return gt_infer_require(infer, gt_make(infer, GT_EXPR_LT, holes, gt_number(infer, 2)),
                            "the shape asked for may have one axis of -1, which is inferred, but not two");
}

/* What is left for an inferred axis; also checks that the element counts can agree. */
static gantry_status fill_target(gt_infer *infer, const target *t, gt_shape *out)
{
    gt_expr size = gt_in_size(infer, 0), product = gt_number(infer, 1), zero = gt_number(infer, 0);
    bool hole = false;
    int64_t have, want;
    for (uint32_t k = 0; k < t->count; k++) {
        product =
            gt_mul(infer, product, gt_select(infer, t->inferred[k], gt_number(infer, 1), t->extents[k]));
        hole = hole || t->inferred[k] != zero;
    }
    gt_expr rest = hole ? gt_make(infer, GT_EXPR_FLOORDIV, size, product) : zero;
    bool constant = gt_is_const(infer, size, &have) && gt_is_const(infer, product, &want);
    if (constant && ((hole && (want == 0 || have % want)) || (!hole && want != have)))
        return gt_infer_fail(
            infer, GANTRY_MODEL_SHAPE,
            hole ? "%lld elements do not fit into the shape asked for: its axis of -1 would need a "
                   "multiple of %lld"
                 : "%lld elements do not fit into the shape asked for, which has %lld",
            (long long)have, (long long)want);
    gt_expr filled = hole ? gt_mul(infer, rest, product) : product;
    if (!constant && size != GT_EXPR_UNKNOWN && filled != size)
        gt_infer_check(infer, gt_make(infer, GT_EXPR_SAME, size, filled), 0, 0, 1, 0);
    out->rank = (int32_t)t->count;
    for (uint32_t k = 0; k < t->count; k++)
        out->dims[k] =
            t->inferred[k] == zero ? t->extents[k] : gt_select(infer, t->inferred[k], rest, t->extents[k]);
    return GANTRY_OK;
}

gantry_status gt_rule_reshape(gt_infer *infer)
{
    uint32_t count;
    target t;
    gt_shape shape;
    if (!gt_in_present(infer, 1))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "input 1, the shape, is missing");
    const gt_expr *elements = gt_in_shape_operand(infer, 1, &count);
    if (!elements)
        return unknown_output(infer);
    if (count > GANTRY_MAX_RANK)
        return gt_infer_fail(infer, GANTRY_UNSUPPORTED,
                             "the shape asked for has %u axes; at most %d are supported", count,
                             GANTRY_MAX_RANK);
    GT_TRY(read_target(infer, elements, count, &t));
    GT_TRY(fill_target(infer, &t, &shape));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    pass_elements(infer);
    return GANTRY_OK;
}

gantry_status gt_rule_flatten(gt_infer *infer)
{
    gt_shape in = gt_in_shape(infer, 0), out = {.rank = 2};
    int64_t axis = gt_attr_int(infer, "axis", 1);
    if (in.rank < 0) {
        out.dims[0] = out.dims[1] = GT_EXPR_UNKNOWN;
        gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
        return GANTRY_OK;
    }
    if (axis < -in.rank || axis > in.rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "axis %lld is not between -%d and %d",
                             (long long)axis, in.rank, in.rank);
    axis += axis < 0 ? in.rank : 0;
    out.dims[0] = out.dims[1] = gt_number(infer, 1);
    for (int32_t k = 0; k < in.rank; k++)
        out.dims[k >= axis] = gt_mul(infer, out.dims[k >= axis], in.dims[k]);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    pass_elements(infer);
    return GANTRY_OK;
}

/* ---- Squeeze and Unsqueeze */

/* Axes as an attribute (before opset 13) or as an input: set in inout_mask, which begins all false.
 * *out_given is false when there are none; returns with rank -1 in *inout_rank when they are not constant. */
static gantry_status read_axes(gt_infer *infer, int32_t *inout_rank, bool unsqueeze, bool *inout_mask,
                               bool *out_given)
{
    int64_t values[GANTRY_MAX_RANK];
    uint32_t count = 0;
    const int64_t *axes = values;
    bool is_input = infer->node->version >= 13;
    if (!is_input)
        axes = gt_node_ints(infer->node, "axes", &count);
    *out_given = is_input ? gt_in_present(infer, 1) : axes != NULL;
    if (!*out_given)
        return GANTRY_OK;
    if (is_input && !gt_in_constants(infer, 1, values, GANTRY_MAX_RANK, &count)) {
        *inout_rank = -1;
        return GANTRY_OK;
    }
    int32_t rank = *inout_rank + (unsqueeze ? (int32_t)count : 0);
    if (rank > GANTRY_MAX_RANK)
        return gt_infer_fail(infer, GANTRY_UNSUPPORTED, "the result has %d axes; at most %d are supported",
                             rank, GANTRY_MAX_RANK);
    for (uint32_t k = 0; k < count; k++) {
        int32_t axis;
        GT_TRY(gt_infer_axis(infer, axes[k], rank, &axis));
        if (inout_mask[axis])
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "axis %d is named twice", axis);
        inout_mask[axis] = true;
    }
    *inout_rank = rank;
    return GANTRY_OK;
}

/* Axes that are known when bound. */
static gantry_status change_chosen(gt_infer *infer, bool unsqueeze)
{
    uint32_t count;
    gt_shape shape = gt_in_shape(infer, 0);
    gt_expr mask[GANTRY_MAX_RANK];
    const gt_expr *axes = gt_in_shape_operand(infer, 1, &count);
    if (!axes || shape.rank + (unsqueeze ? (int32_t)count : 0) > GANTRY_MAX_RANK)
        return unknown_output(infer);
    int32_t rank = shape.rank + (unsqueeze ? (int32_t)count : 0);
    gt_axes_mask(infer, axes, count, rank, mask);
    if (unsqueeze)
        GT_TRY(gt_axes_insert(infer, mask, rank, &shape));
    else
        GT_TRY(gt_axes_drop(infer, mask, count, &shape));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

static void check_not_one(gt_infer *infer, gt_expr extent, uint32_t axis)
{
    gt_expr is_one = gt_make(infer, GT_EXPR_EQ, extent, gt_number(infer, 1));
    if (!gt_is_const(infer, is_one, NULL))
        gt_infer_check(infer, gt_make(infer, GT_EXPR_SAME, is_one, gt_number(infer, 0)), 0, axis, UINT32_MAX,
                       0);
}

gantry_status gt_rule_squeeze(gt_infer *infer)
{
    gt_shape in = gt_in_shape(infer, 0), out = {.rank = 0};
    bool mask[GANTRY_MAX_RANK] = {false}, given = false;
    int64_t extent;
    if (in.rank < 0)
        return unknown_output(infer);
    int32_t rank = in.rank;
    GT_TRY(read_axes(infer, &rank, false, mask, &given));
    if (rank < 0)
        return change_chosen(infer, false);
    for (int32_t axis = 0; axis < in.rank; axis++) {
        bool constant = gt_is_const(infer, in.dims[axis], &extent);
        /* Without axes all extents of 1 go. One that is not known yet is taken to stay, and checked at bind:
         * else the rank would be unknown. */
        if (!given)
            mask[axis] = constant && extent == 1;
        if (!given && !constant)
            check_not_one(infer, in.dims[axis], (uint32_t)(in.rank - axis));
        if (mask[axis] && constant && extent != 1)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "axis %d has extent %lld; only 1 can be squeezed",
                                 axis, (long long)extent);
        if (mask[axis] && !constant)
            gt_infer_check(infer, gt_make(infer, GT_EXPR_SAME, in.dims[axis], gt_number(infer, 1)), 0,
                           (uint32_t)(in.rank - axis), UINT32_MAX, 0);
        if (!mask[axis])
            out.dims[out.rank++] = in.dims[axis];
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    pass_elements(infer);
    return GANTRY_OK;
}

gantry_status gt_rule_unsqueeze(gt_infer *infer)
{
    gt_shape in = gt_in_shape(infer, 0), out;
    bool mask[GANTRY_MAX_RANK] = {false}, given = false;
    if (in.rank < 0)
        return unknown_output(infer);
    out.rank = in.rank;
    GT_TRY(read_axes(infer, &out.rank, true, mask, &given));
    if (!given)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "the axes are missing");
    if (out.rank < 0)
        return change_chosen(infer, true);
    for (int32_t axis = 0, from = 0; axis < out.rank; axis++)
        out.dims[axis] = mask[axis] ? gt_number(infer, 1) : in.dims[from++];
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    pass_elements(infer);
    return GANTRY_OK;
}

/* ---- Transpose, Expand, Tile */

gantry_status gt_rule_transpose(gt_infer *infer)
{
    gt_shape in = gt_in_shape(infer, 0), out = {.rank = in.rank};
    uint32_t count;
    const int64_t *perm = gt_node_ints(infer->node, "perm", &count);
    bool seen[GANTRY_MAX_RANK] = {false};
    int64_t strides[GANTRY_MAX_RANK], moved[GANTRY_MAX_RANK] = {0};
    if (in.rank < 0)
        return unknown_output(infer);
    if (perm && count != (uint32_t)in.rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "perm names %u axes, the input has %d", count,
                             in.rank);
    bool known = gt_in_strides(infer, 0, strides);
    for (int32_t axis = 0; axis < in.rank; axis++) {
        int64_t from = perm ? perm[axis] : in.rank - 1 - axis;
        if (from < 0 || from >= in.rank || seen[from])
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "perm is no permutation of 0 to %d", in.rank - 1);
        seen[from] = true;
        out.dims[axis] = in.dims[from];
        moved[axis] = known ? strides[from] : 0;
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    if (known)
        gt_out_strided(infer, 0, 0, moved, 0);
    return GANTRY_OK;
}

gantry_status gt_rule_expand(gt_infer *infer)
{
    uint32_t count;
    gt_shape shape = {.rank = 0};
    int64_t strides[GANTRY_MAX_RANK], spread[GANTRY_MAX_RANK] = {0}, extent;
    const gt_expr *elements = gt_in_shape_operand(infer, 1, &count);
    int32_t rank = gt_in_rank(infer, 0);
    if (!elements || rank < 0)
        return unknown_output(infer);
    if (count > GANTRY_MAX_RANK)
        return gt_infer_fail(infer, GANTRY_UNSUPPORTED,
                             "the shape asked for has %u axes; at most %d are supported", count,
                             GANTRY_MAX_RANK);
    shape.rank = (int32_t)count;
    for (uint32_t k = 0; k < count; k++)
        shape.dims[k] = elements[k];
    GT_TRY(gt_infer_broadcast(infer, &shape, 0));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    if (!gt_in_has_elements(infer, 0) || !gt_in_strides(infer, 0, strides))
        return GANTRY_OK;
    for (int32_t axis = 0; axis < rank; axis++)
        if (gt_is_const(infer, gt_in_dim(infer, 0, axis), &extent) && extent != 1)
            spread[shape.rank - rank + axis] = strides[axis];
    gt_out_strided(infer, 0, 0, spread, 0);
    return GANTRY_OK;
}

/* Tile of a vector or scalar only: what shape arithmetic does. */
static void tile_elements(gt_infer *infer)
{
    uint32_t count, out_count = 0;
    int64_t times;
    gt_expr tiled[GT_MAX_ELEMENTS];
    if (gt_in_rank(infer, 0) != 1 || !gt_in_has_elements(infer, 0))
        return;
    const gt_expr *elements = gt_in_elements(infer, 0, &count);
    uint32_t repeat_count;
    const gt_expr *repeats = gt_in_elements(infer, 1, &repeat_count);
    if (!elements || !repeats || repeat_count != 1 || !gt_is_const(infer, repeats[0], &times) || times < 0 ||
        times > GT_MAX_ELEMENTS || (uint64_t)times * count > GT_MAX_ELEMENTS)
        return;
    for (int64_t t = 0; t < times; t++)
        for (uint32_t e = 0; e < count; e++)
            tiled[out_count++] = elements[e];
    gt_out_elements(infer, 0, tiled, out_count);
}

gantry_status gt_rule_tile(gt_infer *infer)
{
    uint32_t count;
    gt_shape shape = gt_in_shape(infer, 0);
    const gt_expr *repeats = gt_in_shape_operand(infer, 1, &count);
    if (shape.rank < 0)
        return unknown_output(infer);
    if (repeats && count != (uint32_t)shape.rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%u repeats are given for %d axes", count,
                             shape.rank);
    for (int32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = repeats ? gt_mul(infer, shape.dims[axis], repeats[axis])
                                   : gt_out_data_dim(infer, 0, (uint32_t)axis, GT_EXPR_UNKNOWN);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    tile_elements(infer);
    return GANTRY_OK;
}

/* ---- Concat and Split */

static void concat_elements(gt_infer *infer)
{
    gt_expr joined[GT_MAX_ELEMENTS];
    uint32_t count = 0, own, unused;
    bool any = false;
    for (uint32_t k = 0; k < infer->node->input_count; k++)
        any = any || gt_in_has_elements(infer, k);
    for (uint32_t k = 0; any && k < infer->node->input_count; k++) {
        if (!gt_in_is_small(infer, k, &own) || count + own > GT_MAX_ELEMENTS)
            return;
        const gt_expr *elements = gt_in_elements(infer, k, &unused);
        for (uint32_t e = 0; e < own; e++)
            joined[count++] = elements && e < unused ? elements[e] : GT_EXPR_UNKNOWN;
    }
    if (any)
        gt_out_elements(infer, 0, joined, count);
}

gantry_status gt_rule_concat(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    uint32_t inputs = infer->node->input_count;
    int32_t axis = 0;
    GT_TRY(gt_infer_same_types(infer, 0, inputs));
    if (!gt_node_attribute(infer->node, "axis"))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'axis' is missing");
    for (uint32_t k = 0; k < inputs; k++)
        if (gt_in_rank(infer, k) < 0)
            return unknown_output(infer);
    GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", 0), shape.rank, &axis));
    for (uint32_t k = 1; k < inputs; k++) {
        if (gt_in_rank(infer, k) != shape.rank)
            return gt_infer_fail(
                infer, GANTRY_MODEL_SHAPE, "'%s' has %d axes, but '%s' has %d; all must have as many",
                gt_in_value(infer, 0)->name, shape.rank, gt_in_value(infer, k)->name, gt_in_rank(infer, k));
        for (int32_t d = 0; d < shape.rank; d++) {
            gt_expr extent;
            int64_t value;
            if (d == axis) {
                shape.dims[d] = gt_add(infer, shape.dims[d], gt_in_dim(infer, k, d));
                continue;
            }
            GT_TRY(gt_infer_same(infer, 0, d, k, d, &extent));
            if (!gt_is_const(infer, shape.dims[d], &value))
                shape.dims[d] = extent;
        }
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    if (shape.rank == 1)
        concat_elements(infer);
    return GANTRY_OK;
}

/* The extent of each part: from the input or attribute, else parts of equal size of which the last may be
 * smaller. */
static gantry_status split_extents(gt_infer *infer, gt_expr whole, gt_expr *out, uint32_t parts)
{
    uint32_t count = 0;
    const int64_t *attribute = gt_node_ints(infer->node, "split", &count);
    bool from_input = infer->node->version >= 13 && gt_in_present(infer, 1);
    const gt_expr *elements = from_input ? gt_in_shape_operand(infer, 1, &count) : NULL;
    bool given = from_input ? elements != NULL : attribute && infer->node->version < 13;
    if (given && count != parts)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%u parts are given, but the node has %u outputs",
                             count, parts);
    int64_t extent;
    if (!from_input && !given && infer->node->version < 18 && gt_is_const(infer, whole, &extent) &&
        extent % parts)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%lld can't be split into %u equal parts",
                             (long long)extent, parts);
    gt_expr chunk = gt_make(infer, GT_EXPR_CEILDIV, whole, gt_number(infer, parts));
    gt_expr sum = gt_number(infer, 0);
    for (uint32_t k = 0; k < parts; k++) {
        if (given)
            out[k] = elements ? elements[k] : gt_number(infer, attribute[k]);
        else if (from_input)
            out[k] = GT_EXPR_UNKNOWN;
        else if (k + 1 < parts)
            out[k] = chunk;
        else
            out[k] = gt_make(infer, GT_EXPR_MAX, gt_sub(infer, whole, sum), gt_number(infer, 0));
        sum = gt_add(infer, sum, out[k]);
    }
    int64_t total;
    if (given && gt_is_const(infer, whole, &extent) && gt_is_const(infer, sum, &total) && extent != total)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the parts are %lld long together, the axis is %lld",
                             (long long)total, (long long)extent);
    return GANTRY_OK;
}

gantry_status gt_rule_split(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    uint32_t parts = infer->node->output_count, count;
    int32_t axis;
    int64_t begin = 0, extent, num_outputs = gt_attr_int(infer, "num_outputs", parts);
    const gt_shape unknown = {.rank = -1};
    if (infer->node->version >= 18 && num_outputs != (int64_t)parts)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "num_outputs is %lld, but the node has %u outputs",
                             (long long)num_outputs, parts);
    if (shape.rank < 0) {
        for (uint32_t k = 0; k < parts; k++)
            gt_out_shape(infer, k, gt_in_dtype(infer, 0), &unknown);
        return GANTRY_OK;
    }
    gt_expr *extents = gt_arena_array(infer->state->scratch, parts, sizeof *extents);
    if (!extents) {
        infer->state->failed = true;
        return GANTRY_OK;
    }
    GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", 0), shape.rank, &axis));
    GT_TRY(split_extents(infer, shape.dims[axis], extents, parts));
    const gt_expr *elements =
        shape.rank == 1 && gt_in_has_elements(infer, 0) ? gt_in_elements(infer, 0, &count) : NULL;
    for (uint32_t k = 0; k < parts; k++) {
        shape.dims[axis] = extents[k] == GT_EXPR_UNKNOWN
                               ? gt_out_data_dim(infer, k, (uint32_t)axis, GT_EXPR_UNKNOWN)
                               : extents[k];
        gt_out_shape(infer, k, gt_in_dtype(infer, 0), &shape);
        if (!elements || !gt_is_const(infer, extents[k], &extent) || extent < 0 || begin + extent > count) {
            elements = NULL;
            continue;
        }
        gt_out_elements(infer, k, elements + begin, (uint32_t)extent);
        begin += extent;
    }
    return GANTRY_OK;
}

/* ---- blocks */

static gantry_status move_blocks(gt_infer *infer, bool to_space)
{
    gt_shape shape = gt_in_shape(infer, 0);
    int64_t block = gt_attr_int(infer, "blocksize", 0);
    if (block < 1 || block > INT32_MAX)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'blocksize' is %lld", (long long)block);
    if (shape.rank >= 0 && shape.rank != 4)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the input must have 4 axes, it has %d", shape.rank);
    for (int32_t axis = 1; axis < shape.rank; axis++) {
        gt_expr by = gt_number(infer, axis == 1 ? block * block : block);
        bool divides = (axis == 1) == to_space;
        shape.dims[axis] = divides ? gt_make(infer, GT_EXPR_FLOORDIV, shape.dims[axis], by)
                                   : gt_mul(infer, shape.dims[axis], by);
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_depth_to_space(gt_infer *infer)
{
    return move_blocks(infer, true);
}

gantry_status gt_rule_space_to_depth(gt_infer *infer)
{
    return move_blocks(infer, false);
}
