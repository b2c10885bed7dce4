/* Rules of operators that move a window over space: convolutions and pools. */
#include "infer_rules.h"

#define MAX_SPACE (GANTRY_MAX_RANK - 2)

/* The attributes of a window over `space` axes. Kernel extents may be symbolic (from the weights). */
typedef struct window {
    uint32_t space;
    gt_expr kernel[MAX_SPACE];
    int64_t stride[MAX_SPACE], dilation[MAX_SPACE], pad_begin[MAX_SPACE], pad_end[MAX_SPACE];
    bool same, valid, ceil;
} window;

static gantry_status read_ints(gt_infer *infer, const char *name, uint32_t count, int64_t otherwise,
                               int64_t least, int64_t *out)
{
    uint32_t given = 0;
    const int64_t *values = gt_node_ints(infer->node, name, &given);
    if (values && given != count)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "attribute '%s' has %u values, %u are needed", name,
                             given, count);
    for (uint32_t k = 0; k < count; k++) {
        out[k] = values ? values[k] : otherwise;
        if (out[k] < least || out[k] > INT32_MAX)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "attribute '%s' holds %lld", name,
                                 (long long)out[k]);
    }
    return GANTRY_OK;
}

/* weights: the input whose extents from axis 2 on are the kernel, or GT_NONE when only the attribute tells.
 */
static gantry_status read_window(gt_infer *infer, uint32_t space, uint32_t weights, window *out)
{
    int64_t pads[2 * MAX_SPACE], kernel[MAX_SPACE];
    uint32_t given;
    const char *auto_pad = gt_node_string(infer->node, "auto_pad", "NOTSET");
    out->space = space;
    out->same = strncmp(auto_pad, "SAME", 4) == 0;
    out->valid = strcmp(auto_pad, "VALID") == 0;
    out->ceil = gt_attr_int(infer, "ceil_mode", 0) != 0;
    GT_TRY(read_ints(infer, "strides", space, 1, 1, out->stride));
    GT_TRY(read_ints(infer, "dilations", space, 1, 1, out->dilation));
    GT_TRY(read_ints(infer, "pads", 2 * space, 0, -INT32_MAX, pads));
    bool stated = gt_node_ints(infer->node, "kernel_shape", &given) != NULL;
    if (!stated && weights == GT_NONE)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'kernel_shape' is missing");
    if (stated)
        GT_TRY(read_ints(infer, "kernel_shape", space, 1, 1, kernel));
    for (uint32_t k = 0; k < space; k++) {
        int64_t own;
        gt_expr extent = weights == GT_NONE ? GT_EXPR_UNKNOWN : gt_in_dim(infer, weights, (int32_t)(2 + k));
        out->kernel[k] = stated ? gt_number(infer, kernel[k]) : extent;
        if (stated && gt_is_const(infer, extent, &own) && own != kernel[k])
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                                 "kernel_shape says %lld on axis %u, the weights have %lld",
                                 (long long)kernel[k], k, (long long)own);
        out->pad_begin[k] = out->same || out->valid ? 0 : pads[k];
        out->pad_end[k] = out->same || out->valid ? 0 : pads[space + k];
    }
    return GANTRY_OK;
}

/* (kernel - 1) * dilation + 1 */
static gt_expr reach(const gt_infer *infer, const window *w, uint32_t k)
{
    gt_expr less = gt_sub(infer, w->kernel[k], gt_number(infer, 1));
    return gt_add(infer, gt_mul(infer, less, gt_number(infer, w->dilation[k])), gt_number(infer, 1));
}

/* How many places the window has on one axis. */
static gt_expr places(const gt_infer *infer, const window *w, uint32_t k, gt_expr extent)
{
    gt_expr stride = gt_number(infer, w->stride[k]), one = gt_number(infer, 1);
    if (w->same)
        return gt_make(infer, GT_EXPR_CEILDIV, extent, stride);
    gt_expr padded = gt_add(infer, extent, gt_number(infer, w->pad_begin[k] + w->pad_end[k]));
    gt_expr room = gt_sub(infer, padded, reach(infer, w, k));
    if (!w->ceil)
        return gt_add(infer, gt_make(infer, GT_EXPR_FLOORDIV, room, stride), one);
    gt_expr count = gt_add(infer, gt_make(infer, GT_EXPR_CEILDIV, room, stride), one);
    /* The last window must begin inside of the input or its left padding. */
    gt_expr last = gt_mul(infer, gt_sub(infer, count, one), stride);
    gt_expr begins =
        gt_make(infer, GT_EXPR_LT, last, gt_add(infer, extent, gt_number(infer, w->pad_begin[k])));
    return gt_select(infer, begins, count, gt_sub(infer, count, one));
}

static gantry_status check_extent(const gt_infer *infer, const window *w, gt_expr extent, uint32_t k)
{
    int64_t value;
    if (gt_is_const(infer, extent, &value) && value < 0)
        return gt_infer_fail(
            infer, GANTRY_MODEL_SHAPE,
            "the window does not fit into axis %u with a pad of %lld before and %lld after it: the "
            "output would have extent %lld",
            2 + k, (long long)w->pad_begin[k], (long long)w->pad_end[k], (long long)value);
    return GANTRY_OK;
}

static gantry_status slide(gt_infer *infer, const window *w, gt_shape *inout_shape)
{
    for (uint32_t k = 0; k < w->space; k++) {
        inout_shape->dims[2 + k] = places(infer, w, k, inout_shape->dims[2 + k]);
        GT_TRY(check_extent(infer, w, inout_shape->dims[2 + k], k));
    }
    return GANTRY_OK;
}

static gantry_status check_rank(const gt_infer *infer, uint32_t x)
{
    int32_t rank = gt_in_rank(infer, x);
    if (rank >= 0 && rank < 3)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "'%s' must have 3 axes or more (batch, channels, space), it has %d",
                             gt_in_value(infer, x)->name, rank);
    return GANTRY_OK;
}

/* ---- convolutions */

/* What would give the convolution the channels it needs; "" when nothing simple would. */
static void hint_channels(const gt_infer *infer, uint32_t x, uint32_t weights, int64_t have, int64_t each,
                          char *out, size_t room)
{
    int32_t rank = gt_in_rank(infer, x);
    int64_t last, filters;
    int64_t group = each > 0 && have % each == 0 ? have / each : 0;
    out[0] = 0;
    if (gt_is_const(infer, gt_in_dim(infer, x, -1), &last) && last == each && rank > 3)
        snprintf(out, room,
                 GT_HINT "'%.80s' seems to have its channels last; they come second (Transpose, perm=%s)",
                 gt_in_value(infer, x)->name, rank == 4 ? "0,3,1,2" : "0,4,1,2,3");
    else if (group && gt_is_const(infer, gt_in_dim(infer, weights, 0), &filters) && filters % group == 0)
        snprintf(out, room, GT_HINT "it would fit with group=%lld", (long long)group);
}

static gantry_status check_channels(gt_infer *infer, uint32_t x, uint32_t weights, int64_t group)
{
    gt_expr channels = gt_in_dim(infer, x, 1), each = gt_in_dim(infer, weights, 1);
    gt_expr needed = gt_mul(infer, each, gt_number(infer, group));
    int64_t have, want, filters;
    if (group < 1)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "attribute 'group' is %lld", (long long)group);
    if (gt_is_const(infer, channels, &have) && gt_is_const(infer, needed, &want) && have != want) {
        char hint[200];
        hint_channels(infer, x, weights, have, want / group, hint, sizeof hint);
        return gt_infer_fail(
            infer, GANTRY_MODEL_SHAPE,
            "'%s' has %lld channels (axis 1), but the weights take %lld (their axis 1, %lld, times "
            "group=%lld)%s",
            gt_in_value(infer, x)->name, (long long)have, (long long)want, (long long)(want / group),
            (long long)group, hint);
    }
    if (gt_is_const(infer, gt_in_dim(infer, weights, 0), &filters) && filters % group)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "%lld output channels can't be shared by %lld groups",
                             (long long)filters, (long long)group);
    gt_infer_check(infer, gt_make(infer, GT_EXPR_SAME, channels, needed), x,
                   (uint32_t)gt_in_rank(infer, x) - 1, weights, (uint32_t)gt_in_rank(infer, weights) - 1);
    return GANTRY_OK;
}

static gantry_status convolve(gt_infer *infer, uint32_t x, uint32_t weights, gantry_dtype dtype)
{
    gt_shape shape = gt_in_shape(infer, x);
    window w;
    GT_TRY(check_rank(infer, x));
    if (shape.rank < 0 || gt_in_rank(infer, weights) < 0) {
        shape.rank = -1;
        gt_out_shape(infer, 0, dtype, &shape);
        return GANTRY_OK;
    }
    if (gt_in_rank(infer, weights) != shape.rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "'%s' has %d axes, but the weights have %d; they need as many",
                             gt_in_value(infer, x)->name, shape.rank, gt_in_rank(infer, weights));
    GT_TRY(check_channels(infer, x, weights, gt_attr_int(infer, "group", 1)));
    GT_TRY(read_window(infer, (uint32_t)shape.rank - 2, weights, &w));
    GT_TRY(slide(infer, &w, &shape));
    shape.dims[1] = gt_in_dim(infer, weights, 0);
    gt_out_shape(infer, 0, dtype, &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_conv(gt_infer *infer)
{
    GT_TRY(gt_infer_same_types(infer, 0, infer->node->input_count));
    return convolve(infer, 0, 1, gt_in_dtype(infer, 0));
}

gantry_status gt_rule_conv_integer(gt_infer *infer)
{
    return convolve(infer, 0, 1, GANTRY_INT32);
}

gantry_status gt_rule_qlinear_conv(gt_infer *infer)
{
    return convolve(infer, 0, 3, gt_in_dtype(infer, 7));
}

gantry_status gt_rule_deform_conv(gt_infer *infer)
{
    return convolve(infer, 0, 1, gt_in_dtype(infer, 0));
}

/* What the windows of the input cover together. */
static gantry_status spread(gt_infer *infer, const window *w, gt_shape *inout_shape)
{
    int64_t extra[MAX_SPACE], wanted[MAX_SPACE];
    uint32_t given = 0;
    GT_TRY(read_ints(infer, "output_padding", w->space, 0, 0, extra));
    bool stated = gt_node_ints(infer->node, "output_shape", &given) != NULL;
    /* Some files state all axes; the last ones are those in space. */
    if (stated && given == w->space + 2) {
        const int64_t *all = gt_node_ints(infer->node, "output_shape", &given);
        memcpy(wanted, all + 2, w->space * sizeof *wanted);
    } else if (stated) {
        GT_TRY(read_ints(infer, "output_shape", w->space, 0, 0, wanted));
    }
    for (uint32_t k = 0; k < w->space; k++) {
        gt_expr *extent = &inout_shape->dims[2 + k], stride = gt_number(infer, w->stride[k]);
        gt_expr rest = gt_sub(infer, gt_add(infer, reach(infer, w, k), gt_number(infer, extra[k])),
                              gt_number(infer, w->pad_begin[k] + w->pad_end[k]));
        if (stated)
            *extent = gt_number(infer, wanted[k]);
        else if (w->same)
            *extent = gt_mul(infer, *extent, stride);
        else
            *extent = gt_add(infer, gt_mul(infer, gt_sub(infer, *extent, gt_number(infer, 1)), stride), rest);
        GT_TRY(check_extent(infer, w, *extent, k));
    }
    return GANTRY_OK;
}

gantry_status gt_rule_conv_transpose(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    window w;
    int64_t group = gt_attr_int(infer, "group", 1);
    gt_expr extent;
    GT_TRY(check_rank(infer, 0));
    GT_TRY(gt_infer_same_types(infer, 0, infer->node->input_count));
    if (shape.rank < 0 || gt_in_rank(infer, 1) < 0) {
        shape.rank = -1;
        gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
        return GANTRY_OK;
    }
    if (gt_in_rank(infer, 1) != shape.rank || group < 1)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "the input has %d axes, the weights have %d (group %lld)", shape.rank,
                             gt_in_rank(infer, 1), (long long)group);
    GT_TRY(gt_infer_same(infer, 0, 1, 1, 0, &extent));
    GT_TRY(read_window(infer, (uint32_t)shape.rank - 2, 1, &w));
    GT_TRY(spread(infer, &w, &shape));
    shape.dims[1] = gt_mul(infer, gt_in_dim(infer, 1, 1), gt_number(infer, group));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_col2im(gt_infer *infer)
{
    uint32_t space, block_axes;
    gt_shape shape = {.rank = -1};
    const gt_expr *image = gt_in_shape_operand(infer, 1, &space);
    const gt_expr *block = gt_in_shape_operand(infer, 2, &block_axes);
    if (image && block && space == block_axes && space <= MAX_SPACE) {
        gt_expr size = gt_number(infer, 1);
        shape.rank = (int32_t)space + 2;
        for (uint32_t k = 0; k < space; k++) {
            size = gt_mul(infer, size, block[k]);
            shape.dims[2 + k] = image[k];
        }
        shape.dims[0] = gt_in_dim(infer, 0, 0);
        shape.dims[1] = gt_make(infer, GT_EXPR_FLOORDIV, gt_in_dim(infer, 0, 1), size);
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

/* ---- pools */

gantry_status gt_rule_pool(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    window w;
    GT_TRY(check_rank(infer, 0));
    if (shape.rank >= 0) {
        GT_TRY(read_window(infer, (uint32_t)shape.rank - 2, GT_NONE, &w));
        GT_TRY(slide(infer, &w, &shape));
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    gt_out_shape(infer, 1, GANTRY_INT64, &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_global_pool(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    for (int32_t axis = 2; axis < shape.rank; axis++)
        shape.dims[axis] = gt_number(infer, 1);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_max_unpool(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    window w;
    GT_TRY(check_rank(infer, 0));
    if (gt_in_present(infer, 2)) {
        uint32_t count;
        const gt_expr *wanted = gt_in_shape_operand(infer, 2, &count);
        shape.rank = wanted && count <= GANTRY_MAX_RANK ? (int32_t)count : -1;
        for (int32_t axis = 0; axis < shape.rank; axis++)
            shape.dims[axis] = wanted[axis];
    } else if (shape.rank >= 0) {
        GT_TRY(read_window(infer, (uint32_t)shape.rank - 2, GT_NONE, &w));
        for (uint32_t k = 0; k < w.space; k++) {
            gt_expr begin = gt_mul(infer, gt_sub(infer, shape.dims[2 + k], gt_number(infer, 1)),
                                   gt_number(infer, w.stride[k]));
            gt_expr pads = gt_number(infer, w.pad_begin[k] + w.pad_end[k]);
            shape.dims[2 + k] = gt_sub(infer, gt_add(infer, begin, w.kernel[k]), pads);
        }
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

/* ---- regions and grids */

gantry_status gt_rule_roi_align(gt_infer *infer)
{
    gt_shape shape = {.rank = 4,
                      .dims = {gt_in_dim(infer, 1, 0), gt_in_dim(infer, 0, 1),
                               gt_number(infer, gt_attr_int(infer, "output_height", 1)),
                               gt_number(infer, gt_attr_int(infer, "output_width", 1))}};
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_roi_pool(gt_infer *infer)
{
    uint32_t count;
    const int64_t *pooled = gt_node_ints(infer->node, "pooled_shape", &count);
    if (!pooled || count != 2)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'pooled_shape' must have two values");
    gt_shape shape = {.rank = 4,
                      .dims = {gt_in_dim(infer, 1, 0), gt_in_dim(infer, 0, 1), gt_number(infer, pooled[0]),
                               gt_number(infer, pooled[1])}};
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_grid_sample(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0), grid = gt_in_shape(infer, 1);
    if (shape.rank >= 0 && grid.rank >= 0 && shape.rank != grid.rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the input has %d axes, the grid has %d", shape.rank,
                             grid.rank);
    if (grid.rank < 0)
        shape.rank = -1;
    for (int32_t axis = 2; axis < shape.rank; axis++)
        shape.dims[axis] = grid.dims[axis - 1];
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

/* size is [N, C, H, W] or [N, C, D, H, W]; the grid has one point of as many coordinates for each place. */
gantry_status gt_rule_affine_grid(gt_infer *infer)
{
    uint32_t count;
    const gt_expr *size = gt_in_shape_operand(infer, 1, &count);
    gt_shape shape = {.rank = size && (count == 4 || count == 5) ? (int32_t)count : -1};
    for (int32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = axis == 0               ? size[0]
                           : axis + 1 < shape.rank ? size[axis + 1]
                                                   : gt_number(infer, count - 2);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}
